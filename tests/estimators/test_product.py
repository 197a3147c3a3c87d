"""A product of kernels is one kernel of an estimator: multiplied entry by entry, and normalised as
a whole."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, Polynomial

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.where(X[:, 0] * X[:, 2] > 0, "in", "out")
KERNELS = [("both", Gaussian(2.0) * Polynomial(2))]


def by_hand(A, B):
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 4.0) * (A @ B.T + 1.0) ** 2


def test_product_is_the_machine_on_the_multiplied_matrices():
    model = MKLClassifier(KERNELS, weights="uniform", normalize=None, C=2.0, tol=1e-8).fit(
        X[:40], Y[:40]
    )
    reference = SVC(C=2.0, kernel="precomputed", tol=1e-9).fit(by_hand(X[:40], X[:40]), Y[:40])
    expected = reference.decision_function(by_hand(X[40:], X[:40]))
    np.testing.assert_allclose(model.decision_function(X[40:]), expected, atol=1e-3)
    np.testing.assert_allclose(
        model.kernel_matrix(X[40:], X[:40]), by_hand(X[40:], X[:40]), rtol=1e-10
    )
    assert model.kernel_names_ == ["both"]
    assert model.weights_.tolist() == [1.0]


@pytest.mark.parametrize("normalize", ["trace", "diagonal"])
def test_the_product_is_normalised_and_not_its_factors(normalize):
    model = MKLClassifier(KERNELS, weights="uniform", normalize=normalize).fit(X, Y)
    K = by_hand(X, X)
    scale = np.diag(K).mean() if normalize == "trace" else np.sqrt(np.outer(np.diag(K), np.diag(K)))
    np.testing.assert_allclose(model.kernel_matrix(X), K / scale, rtol=1e-10)


def test_product_recomputed_in_blocks_is_the_same():
    stored = MKLClassifier(KERNELS, weights="uniform").fit(X, Y)
    recomputed = MKLClassifier(KERNELS, weights="uniform", memory_budget=1.5 * 60 * 60 * 8).fit(
        X, Y
    )
    np.testing.assert_allclose(
        recomputed.decision_function(X), stored.decision_function(X), atol=1e-8
    )
