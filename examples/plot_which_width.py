"""
Choosing the width of a Gaussian kernel
=======================================

Several widths are given, one kernel each, and their weights are learned in place of a search for
one width.
"""

import matplotlib.pyplot as plt
import numpy as np

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, family
from kernelmosaic.plots import DecisionRegionDisplay, KernelWeightsDisplay

# %%
# Four clusters in the plane, two per class, and a large test set.
X, y = make_gaussians(n_components=4, n_samples=400, random_state=0)
X_test, y_test = make_gaussians(n_components=4, n_samples=20_000, random_state=1)
widths = [0.3, 1, 3, 10, 30]

# %% One kernel per width. The weights are learned with the machine and are sparse; the gap bounds
# the distance of the objective from the optimum.
model = MKLClassifier(family(Gaussian(), width=widths), C=1).fit(X, y)
print(f"test accuracy {model.score(X_test, y_test):.3f}")
print(f"duality gap {model.duality_gap_:.1e}")

# %%
# Each width alone, for comparison.
alone = [
    MKLClassifier([Gaussian(width)], C=1).fit(X, y).score(X_test, y_test)
    for width in widths
]
for width, accuracy in zip(widths, alone, strict=True):
    print(f"width {width:4}: {accuracy:.3f}")

# %% The learned mixture is nearly as accurate as the best single width, without a search. It is not
# more accurate: weights are learned from the training set, where a narrow kernel also fits some of
# the noise.
#
# The weights, and the classes in the plane. Rings are support vectors.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
KernelWeightsDisplay.from_estimator(model, ax=axes[0])
DecisionRegionDisplay.from_estimator(model, X, y, ax=axes[1])
axes[0].set_title(f"{np.count_nonzero(model.weights_)} of {len(widths)} kernels used")
plt.show()
