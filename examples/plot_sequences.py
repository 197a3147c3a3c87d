"""
DNA and protein sequences: string kernels
=========================================

Kernels on strings compare sequences without a table of numbers. One family counts words at any
position, the other compares words at the same position; the weights show which of them the data
need.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Spectrum, WeightedDegree
from kernelmosaic.plots import KernelWeightsDisplay


# %% Synthetic DNA. In the first set the positive class has the word TATAAT at one position, in the
# second at any position.
def sequences(anywhere, n=300, length=60):
    random = np.random.RandomState(0)
    letters = random.choice(list("ACGT"), size=(n, length))
    positive = random.randint(2, size=n)
    for row in np.flatnonzero(positive):
        start = random.randint(length - 6) if anywhere else 20
        word = np.array(list("TATAAT"))
        kept = random.uniform(size=6) < 0.85
        letters[row, start : start + 6][kept] = word[kept]
    return np.array(["".join(row) for row in letters])[:, np.newaxis], positive


# %%
# X is one column of strings.
kernels = [(f"words of {k}", Spectrum(k)) for k in (3, 5)] + [
    (f"places, up to {k}", WeightedDegree(k)) for k in (3, 5)
]
figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained", sharey=True)
places = {"at one position": False, "at any position": True}
for ax, (title, anywhere) in zip(axes, places.items(), strict=True):
    X, y = sequences(anywhere)
    halves = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    X_train, X_test, y_train, y_test = halves
    model = MKLClassifier(kernels, normalize="diagonal").fit(X_train, y_train)
    print(f"the word {title}: test accuracy {model.score(X_test, y_test):.3f}")
    KernelWeightsDisplay.from_estimator(model, ax=ax)
    ax.set_title(f"the word {title}")
plt.show()
