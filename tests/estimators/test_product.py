"""The product rule: kernels on different columns multiplied into one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, Polynomial

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.where(X[:, 0] * X[:, 2] > 0, "in", "out")
KERNELS = [("left", Gaussian(2.0), [0, 1]), ("right", Polynomial(2), slice(2, 4))]


def by_hand(A, B):
    left = np.exp(-((A[:, None, :2] - B[None, :, :2]) ** 2).sum(-1) / 4.0)
    return left * (A[:, 2:] @ B[:, 2:].T + 1.0) ** 2


def test_product_is_the_machine_on_the_multiplied_matrices():
    model = MKLClassifier(KERNELS, weights="product", normalize=None, C=2.0, tol=1e-8).fit(X[:40], Y[:40])
    reference = SVC(C=2.0, kernel="precomputed", tol=1e-9).fit(by_hand(X[:40], X[:40]), Y[:40])
    expected = reference.decision_function(by_hand(X[40:], X[:40]))
    np.testing.assert_allclose(model.decision_function(X[40:]), expected, atol=1e-3)
    np.testing.assert_allclose(model.kernel_matrix(X[40:], X[:40]), by_hand(X[40:], X[:40]), rtol=1e-10)
    assert model.kernel_names_ == ["left * right"]
    assert model.weights_.tolist() == [1.0]


@pytest.mark.parametrize("normalize", ["trace", "diagonal"])
def test_factors_are_normalised_before_they_are_multiplied(normalize):
    model = MKLClassifier(KERNELS, weights="product", normalize=normalize).fit(X, Y)
    alone = [MKLClassifier([k], weights="uniform", normalize=normalize).fit(X, Y).kernel_matrix(X) for k in KERNELS]
    np.testing.assert_allclose(model.kernel_matrix(X), alone[0] * alone[1], rtol=1e-10)


def test_product_recomputed_in_blocks_is_the_same():
    stored = MKLClassifier(KERNELS, weights="product").fit(X, Y)
    recomputed = MKLClassifier(KERNELS, weights="product", memory_budget=1.5 * 60 * 60 * 8).fit(X, Y)
    np.testing.assert_allclose(recomputed.decision_function(X), stored.decision_function(X), atol=1e-8)
