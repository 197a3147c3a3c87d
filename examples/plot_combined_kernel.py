"""
The combined kernel under gates
===============================

Two samples under different gates have little in common, however near they are: gates cut the Gram matrix into blocks.
"""

import matplotlib.pyplot as plt

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Linear
from kernelmosaic.plots import LocalKernelDisplay

# %%
# Three copies of one kernel. Under global weights they are that kernel; under gates each serves a region.
X, y = make_gaussians(n_components=4, n_samples=400, random_state=0)
model = LocalizedMKLClassifier([Linear(), Linear(), Linear()], C=10).fit(X, y)
gates = model.gate(X)
print("mean gates", gates.mean(axis=0).round(2))
print(f"samples with a gate above 0.9: {(gates.max(axis=1) > 0.9).mean():.0%}")

# %%
# Samples are sorted by class, then by their largest gate. White is zero.
LocalKernelDisplay.from_estimator(model, X, y)
plt.show()

# %%
# It is a kernel matrix like any other, with which any kernel method may go on.
K = model.kernel_matrix(X)
plain = MKLClassifier([Linear()]).fit(X, y).kernel_matrix(X)
near_zero = [(abs(matrix) < 0.01 * matrix.max()).mean() for matrix in (plain, K)]
print("entries below 1 % of the largest: linear kernel {:.0%}, under gates {:.0%}".format(*near_zero))
