"""Weights and ridge by leave-one-out error and evidence: slopes, stationarity, noise kernels, given parameters."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram import StoredStack
from kernelmosaic.learning.ridge_weights import RidgeOptions, RidgeTargets, _RidgeProblem, inner_products, learn_ridge


def make(seed=0, n=60, classes=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    Ks = np.array([np.exp(-((X[:, [j]] - X[:, j]) ** 2)) for j in range(4)])
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    weight = rng.uniform(0.5, 1.5, n)
    if classes == 0:
        return Ks, RidgeTargets((f + 0.1 * rng.normal(size=n))[:, np.newaxis], weight)
    if classes == 2:
        labels = (f > 0).astype(np.intp)
        return Ks, RidgeTargets(np.where(f > 0, 1.0, -1.0)[:, np.newaxis], weight, labels)
    labels = np.digitize(f, [-0.7, 0.7]).astype(np.intp)
    return Ks, RidgeTargets(np.eye(3)[labels], weight, labels)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_slopes_equal_finite_differences(criterion, classes):
    Ks, targets = make(1, classes=classes)
    problem = _RidgeProblem(StoredStack(Ks), targets, criterion, RidgeOptions())
    x, step = np.array([-1.0, -2.0, 0.3, -1.5, -0.7, 0.4]), 1e-5
    _, slope = problem.value(x)
    for j in range(6):
        e = step * np.eye(6)[j]
        change = (problem.value(x + e)[0] - problem.value(x - e)[0]) / (2 * step)
        assert slope[j] == pytest.approx(change, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_kernels_of_noise_lose_their_weights(criterion, classes):
    Ks, targets = make(2, n=200, classes=classes)
    found = learn_ridge(StoredStack(Ks), targets, criterion=criterion, tol=1e-6)
    assert found.stationarity <= 1e-6
    assert found.weights[2:].max() < 0.3 * found.weights[:2].min()
    assert found.value == min(found.history)


def test_given_weights_and_ridge_are_kept():
    Ks, targets = make(3)
    weights = np.array([1.0, 0.0, 2.0, 0.5])
    found = learn_ridge(StoredStack(Ks), targets, weights=weights, alpha=0.7)
    assert_allclose(found.weights, weights)
    assert found.alpha == pytest.approx(0.7)
    M = np.tensordot(weights, Ks, 1) + np.diag(0.7 / targets.weight)
    beta = np.linalg.solve(M, targets.Y - found.intercept)
    assert_allclose(found.beta, beta, rtol=1e-8)


def test_inner_products_are_those_of_the_matrices():
    Ks, _ = make(4)
    G = np.random.default_rng(0).normal(size=Ks.shape[1:])
    assert_allclose(inner_products(StoredStack(Ks), G), (Ks * G).sum(axis=(1, 2)), rtol=1e-10)
