"""
Sequences: what, or where?
==========================

Strings need no table of numbers: kernels on strings compare them directly. Two families are offered, words wherever
they stand and words at their place, and the weights tell which kind of signal the data hold.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Spectrum, WeightedDegree
from kernelmosaic.plots import KernelWeightsDisplay


# %%
# Made-up DNA. In the first set the positive class has the word TATAAT at one place; in the second, anywhere.
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
# A column of strings is all the machine is given.
kernels = [(f"words of {k}", Spectrum(k)) for k in (3, 5)] + [(f"places, up to {k}", WeightedDegree(k)) for k in (3, 5)]
figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained", sharey=True)
for ax, (title, anywhere) in zip(axes, {"at one place": False, "anywhere": True}.items(), strict=True):
    X, y = sequences(anywhere)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    model = MKLClassifier(kernels, normalize="diagonal").fit(X_train, y_train)
    print(f"the word {title}: test accuracy {model.score(X_test, y_test):.3f}")
    KernelWeightsDisplay.from_estimator(model, ax=ax)
    ax.set_title(f"the word stands {title}")
plt.show()
