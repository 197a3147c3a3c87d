"""
Multiview classification: fusing views of digits
================================================

Handwritten digits, described in four ways. Each description is a view with a kernel of its own; the
weights show how much each view contributes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kernelmosaic import MKLClassifier, stack_views
from kernelmosaic.kernels import Gaussian
from kernelmosaic.plots import KernelWeightsDisplay

# %% The views: coarse squares, sums of rows and columns, the sizes of the Fourier coefficients, and
# plain noise.
digits = load_digits()
images = digits.images / 16
X, columns = stack_views(
    squares=images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16),
    profiles=np.hstack([images.sum(axis=1), images.sum(axis=2)]),
    fourier=np.abs(np.fft.rfft2(images)).reshape(len(images), -1),
    noise=np.random.RandomState(0).normal(size=(len(images), 10)),
)
views = [(name, Gaussian("median"), chosen) for name, chosen in columns.items()]

# %% Even against odd digits. The learned weight of the noise is small; the plain sum gives it a
# quarter.
even = digits.target % 2
X_train, X_test, y_train, y_test = train_test_split(
    X, even, train_size=500, stratify=even, random_state=0
)
model = MKLClassifier(views, C=10).fit(X_train, y_train)
plain_sum = MKLClassifier(views, C=10, weights="uniform").fit(X_train, y_train)
print(f"learned weights {model.score(X_test, y_test):.3f}")
print(f"plain sum {plain_sum.score(X_test, y_test):.3f}")
for name, view in zip(columns, views, strict=True):
    alone = MKLClassifier([view], C=10).fit(X_train, y_train)
    print(f"{name:8} alone {alone.score(X_test, y_test):.3f}")

# %%
KernelWeightsDisplay.from_estimator(model)
plt.show()

# %% The contribution of each view to the decisions on three test samples. With the constant, they
# sum to the decision value.
shares = model.contributions(X_test[:3])
for share, value in zip(shares, model.decision_function(X_test[:3]), strict=True):
    said = ", ".join(
        f"{name} {part:+.2f}"
        for name, part in zip(model.kernel_names_, share, strict=True)
    )
    print(f"{said}, constant {model.intercept_[0]:+.2f}: together {value:+.2f}")
