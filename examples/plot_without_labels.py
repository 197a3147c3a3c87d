"""
Clusters of several views without labels
========================================

Handwritten digits, described in three ways, and a fourth table that has nothing to do with them. No
labels are used: the views say which of them belong together, and the sum of their kernels has the
clusters.
"""

import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

from kernelmosaic import MKLClustering, MKLKernelPCA
from kernelmosaic.plots import (
    EigenvaluesDisplay,
    EmbeddingDisplay,
    ViewSimilarityDisplay,
)

# %% The views: coarse squares, sums of rows and columns, the sizes of the Fourier coefficients, and
# plain noise. Every tenth digit has no profile.
digits = load_digits(n_class=5)
images, target = digits.images[:600] / 16, digits.target[:600]
views = {
    "squares": images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16),
    "profiles": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
    "fourier": np.abs(np.fft.rfft2(images)).reshape(len(images), -1),
    "noise": np.random.RandomState(0).normal(size=(len(images), 10)),
}
views["profiles"][::10] = np.nan

# %% Clusters in the graph of neighbours. The noise depends on no other view, and is left out; the
# warning says so.
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    model = MKLClustering(5, embedding="graph", random_state=0).fit(views)
print(textwrap.fill(str(said[-1].message), 80))
print(f"NMI with the digits {normalized_mutual_info_score(target, model.labels_):.3f}")
for name, table in views.items():
    rows = ~np.isnan(table).any(axis=1)
    alone = MKLClustering(5, embedding="graph", random_state=0).fit(table[rows])
    nmi = normalized_mutual_info_score(target[rows], alone.labels_)
    print(f"{name:8} alone {nmi:.3f}")

# %%
ViewSimilarityDisplay.from_estimator(model)
plt.show()

# %% Two principal components of the sum of the same views, coloured by what the digits are; hollow
# ones lack the profile.
own = {name: views[name] for name in ("squares", "profiles", "fourier")}
components = MKLKernelPCA(n_components=10).fit(own)
EmbeddingDisplay.from_estimator(components, own, target)
plt.show()

# %%
EigenvaluesDisplay.from_estimator(components)
plt.show()

# %%
# New digits are placed in the clusters that were found.
known = {name: table[:500] for name, table in own.items()}
new = {name: table[500:] for name, table in own.items()}
first = MKLClustering(5, embedding="graph", random_state=0).fit(known)
nmi = normalized_mutual_info_score(target[500:], first.predict(new))
print(f"NMI of 100 new digits {nmi:.3f}")
