"""Weights and ridge by leave-one-out error and evidence: slopes, stationarity, noise kernels, given parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram import StoredStack
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.options import PassOptions
from kernelmosaic.learning.ridge_weights import (
    FeatureForm,
    MatrixForm,
    RidgeOptions,
    RidgeProblem,
    RidgeTargets,
    learn_ridge,
)


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
    form = MatrixForm(StoredStack(Ks), targets, criterion)
    problem = RidgeProblem(form, len(Ks), criterion == "loo" and classes > 0, RidgeOptions())
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


def features(seed=0, n=40, classes=0):
    rng = np.random.default_rng(seed)
    Z = [rng.normal(size=(n, width)) for width in (3, 5, 2)]
    y = Z[0][:, 0] + 0.5 * Z[1][:, 1] ** 2 + 0.2 * rng.normal(size=n)
    weight = rng.uniform(0.5, 2.0, n)
    if classes == 0:
        return Z, RidgeTargets(np.column_stack([y, np.sin(y)]), weight)
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    Y = np.where(labels == 1, 1.0, -1.0)[:, None] if classes == 2 else np.eye(classes)[labels]
    return Z, RidgeTargets(Y, weight, labels)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_features_are_judged_as_their_matrices_are(criterion, classes):
    Z, targets = features(classes=classes)
    whole = MatrixForm(StoredStack(np.array([one @ one.T for one in Z])), targets, criterion)
    parts = FeatureForm(StoredFeatures(Z), targets, criterion, most_rows=1000)
    weights = np.array([0.4, 0.2, 1.3])
    found, same = parts.judge(weights, 0.7, 1.6), whole.judge(weights, 0.7, 1.6)
    assert found.value == pytest.approx(same.value)
    assert_allclose(found.weights, same.weights, rtol=1e-7, atol=1e-9)
    assert found.alpha == pytest.approx(same.alpha)
    assert found.scale == pytest.approx(same.scale)
    one, other = parts.machine(weights, 0.7), whole.machine(weights, 0.7)
    assert_allclose(one.beta, other.beta, atol=1e-9)
    assert_allclose(one.intercept, other.intercept, atol=1e-9)
    assert_allclose(one.residuals, other.residuals, atol=1e-9)


def test_some_rows_of_features_stand_for_all():
    """The slopes are those of the sum over these rows: finite differences."""
    Z, targets = features(n=60, classes=3)
    form = FeatureForm(StoredFeatures(Z), targets, "loo", most_rows=20)

    def value(x):
        return form.judge(np.exp(x[:3]), float(np.exp(x[3])), float(np.exp(x[4]))).value

    x = np.array([-0.5, 0.2, -1.0, 0.3, 0.4])
    found = form.judge(np.exp(x[:3]), float(np.exp(x[3])), float(np.exp(x[4])))
    h = 1e-5
    slopes = [(value(x + h * e) - value(x - h * e)) / (2 * h) for e in np.eye(5)]
    assert_allclose([*found.weights, found.alpha, found.scale], slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("height", [1, 2**26])
def test_groups_of_features_are_judged_as_their_matrices_are(classes, height):
    Z, targets = features(classes=classes)
    rng = np.random.default_rng(5)
    cut = np.sort(rng.choice(np.arange(1, 40), 14, replace=False))
    targets = replace(targets, groups=np.split(rng.permutation(40), cut))
    whole = MatrixForm(StoredStack(np.array([one @ one.T for one in Z])), targets, "loo")
    parts = FeatureForm(StoredFeatures(Z, PassOptions(strip_bytes=height)), targets, "loo", most_rows=1000)
    weights = np.array([0.4, 0.2, 1.3])
    found, same = parts.judge(weights, 0.7, 1.6), whole.judge(weights, 0.7, 1.6)
    assert found.value == pytest.approx(same.value)
    assert_allclose(found.weights, same.weights, rtol=1e-7, atol=1e-9)
    assert found.alpha == pytest.approx(same.alpha)
    assert found.scale == pytest.approx(same.scale)
    assert_allclose(parts.machine(weights, 0.7).residuals, whole.machine(weights, 0.7).residuals, atol=1e-9)


def test_some_groups_of_features_stand_for_all():
    """Whole groups are left out; the slopes are those of the sum over them: finite differences."""
    Z, targets = features(n=60, classes=3)
    form = FeatureForm(StoredFeatures(Z), replace(targets, groups=np.split(np.arange(60), 20)), "loo", most_rows=24)
    assert len(form.rows) <= 24
    assert len(form.rows) == 3 * len({i // 3 for i in form.rows})

    def value(x):
        return form.judge(np.exp(x[:3]), float(np.exp(x[3])), float(np.exp(x[4]))).value

    x, h = np.array([-0.5, 0.2, -1.0, 0.3, 0.4]), 1e-5
    found = form.judge(np.exp(x[:3]), float(np.exp(x[3])), float(np.exp(x[4])))
    slopes = [(value(x + h * e) - value(x - h * e)) / (2 * h) for e in np.eye(5)]
    assert_allclose([*found.weights, found.alpha, found.scale], slopes, rtol=1e-5, atol=1e-6)
