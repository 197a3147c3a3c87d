"""
Kernel matrix of a localized model
==================================

Gates multiply the entries of the kernels. Two samples with different gates have a combined kernel
near zero, however near the samples are, so that the kernel matrix has blocks.
"""

import matplotlib.pyplot as plt

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Linear
from kernelmosaic.plots import LocalKernelDisplay

# %% Three copies of one kernel. With global weights their sum is that kernel; with gates each copy
# is used in a region.
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
# The result is a kernel matrix, which any kernel method takes.
K = model.kernel_matrix(X)
plain = MKLClassifier([Linear()]).fit(X, y).kernel_matrix(X)
near_zero = [(abs(matrix) < 0.01 * matrix.max()).mean() for matrix in (plain, K)]
print("entries below 1 % of the largest:")
print("linear kernel {:.0%}, with gates {:.0%}".format(*near_zero))
