"""
Precomputed kernels and a grid search
=====================================

``Precomputed`` takes a kernel matrix and reads row numbers as samples, so that splitters, searches
and pipelines of scikit-learn work on matrices as they do on tables.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Precomputed
from kernelmosaic.plots import KernelWeightsDisplay

# %%
# Three matrices between all samples; any other program may compute them.
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
matrices = {
    "linear": linear_kernel(X),
    "gaussian": rbf_kernel(X, gamma=0.02),
    "laplacian": laplacian_kernel(X, gamma=0.02),
}
kernels = [(name, Precomputed(K)) for name, K in matrices.items()]

# %%
# The samples are row numbers, in one column. The kernel of a fold is read from the matrix.
rows = np.arange(len(X))[:, np.newaxis]
train, test, y_train, y_test = train_test_split(rows, y, stratify=y, random_state=0)
grid = {"C": [0.1, 1, 10, 100], "norm": [1, 2]}
search = GridSearchCV(MKLClassifier(kernels), grid, cv=5).fit(train, y_train)
print(search.best_params_, f"test accuracy {search.score(test, y_test):.3f}")

# %%
# The score as a function of both parameters.
scores = search.cv_results_["mean_test_score"].reshape(4, 2)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
for score, norm, marker in zip(scores.T, grid["norm"], "o^", strict=True):
    axes[0].semilogx(grid["C"], 100 * score, marker=marker, label=f"norm={norm}")
axes[0].set(xlabel="C", ylabel="cross-validated accuracy, %")
axes[0].spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
KernelWeightsDisplay.from_estimator(search, ax=axes[1])
plt.show()
