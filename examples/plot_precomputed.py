"""
Precomputed kernels and a grid search
=====================================

Kernels often arrive as matrices. ``Precomputed`` reads row numbers as samples, so that splitters, searches and
pipelines of scikit-learn work on matrices as they do on tables.
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
# Three matrices between all samples, made here but perhaps by a program of your own.
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
matrices = {
    "linear": linear_kernel(X),
    "gaussian": rbf_kernel(X, gamma=0.02),
    "laplacian": laplacian_kernel(X, gamma=0.02),
}
kernels = [(name, Precomputed(K)) for name, K in matrices.items()]

# %%
# What is split are row numbers, a column of them. The kernel of a fold is read from the matrix.
rows = np.arange(len(X))[:, np.newaxis]
train, test, y_train, y_test = train_test_split(rows, y, stratify=y, random_state=0)
search = GridSearchCV(MKLClassifier(kernels), {"C": [0.1, 1, 10, 100], "norm": [1, 2]}, cv=5).fit(train, y_train)
print(search.best_params_, f"test accuracy {search.score(test, y_test):.3f}")

# %%
# How the score depends on both parameters.
scores = search.cv_results_["mean_test_score"].reshape(4, 2)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
for score, norm, marker, colour in zip(scores.T, (1, 2), "o^", ("#0072B2", "#D55E00"), strict=True):
    axes[0].semilogx([0.1, 1, 10, 100], 100 * score, marker=marker, color=colour, label=f"norm={norm}")
axes[0].set(xlabel="C", ylabel="cross-validated accuracy, %")
axes[0].spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
KernelWeightsDisplay.from_estimator(search, ax=axes[1])
plt.show()
