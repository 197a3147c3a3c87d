"""Weights and ridge by leave-one-out error and evidence: slopes, stationarity, noise kernels, given
parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from kernelmosaic.backend import NUMPY, torch_backend
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.options import PassOptions
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Laplacian
from kernelmosaic.kernels.numeric import RadialWidths
from kernelmosaic.ridge.learning import (
    RidgeOptions,
    RidgeTargets,
    feature_problem,
    learn_ridge,
    matrix_problem,
)
from kernelmosaic.solvers.least_squares import RidgePoint


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
    problem = matrix_problem(StoredStack(Ks), targets, RidgeOptions(criterion))
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
    found = learn_ridge(StoredStack(Ks), targets, options=RidgeOptions(criterion, tol=1e-6))
    assert found.stationarity <= 1e-6
    assert found.weights[2:].max() < 0.3 * found.weights[:2].min()
    assert found.value == pytest.approx(min(found.history), rel=1e-9)


@pytest.mark.parametrize("classes", [0, 3])
def test_starts_on_a_third_of_the_samples_end_as_low(classes):
    Ks, targets = make(4, n=240, classes=classes)
    stack = StoredStack(Ks)
    of_all = learn_ridge(stack, targets, options=RidgeOptions(n_init=2, tol=1e-5, first_rows=1000))
    found = learn_ridge(stack, targets, options=RidgeOptions(n_init=2, tol=1e-5, first_rows=50))
    assert found.value == pytest.approx(of_all.value, rel=1e-5)
    assert_allclose(found.weights, of_all.weights, rtol=0.05, atol=1e-3)
    assert len(found.history) < len(of_all.history)


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


class Backwards(StoredFeatures):
    """Yields the last kernel first: stacks that compute features yield them in the order that suits
    them."""

    def placed_features(self, rows, kernels):
        yield from reversed(list(super().placed_features(rows, kernels)))


@pytest.mark.parametrize("stack", [StoredFeatures, Backwards])
@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_features_are_judged_as_their_matrices_are(criterion, classes, stack):
    Z, targets = features(classes=classes)
    options = RidgeOptions(criterion, left_out_rows=1000)
    whole = matrix_problem(StoredStack(np.array([one @ one.T for one in Z])), targets, options)
    parts = feature_problem(stack(Z), targets, options)
    at = RidgePoint(np.array([0.4, 0.2, 1.3]), 0.7, 1.6, {})
    found, same = parts.judge(at), whole.judge(at)
    assert found.value == pytest.approx(same.value)
    assert_allclose(found.weights, same.weights, rtol=1e-7, atol=1e-9)
    assert found.alpha == pytest.approx(same.alpha)
    assert found.scale == pytest.approx(same.scale)
    one, other = parts.machine(at), whole.machine(at)
    assert_allclose(one.beta, other.beta, atol=1e-9)
    assert_allclose(one.intercept, other.intercept, atol=1e-9)
    assert_allclose(one.residuals, other.residuals, atol=1e-9)


def test_some_rows_of_features_stand_for_all():
    """The slopes are those of the sum over these rows: finite differences."""
    Z, targets = features(n=60, classes=3)
    problem = feature_problem(StoredFeatures(Z), targets, RidgeOptions(left_out_rows=20))

    def judged(x):
        return problem.judge(
            RidgePoint(np.exp(x[:3]), float(np.exp(x[3])), float(np.exp(x[4])), {})
        )

    x = np.array([-0.5, 0.2, -1.0, 0.3, 0.4])
    found, h = judged(x), 1e-5
    slopes = [(judged(x + h * e).value - judged(x - h * e).value) / (2 * h) for e in np.eye(5)]
    assert_allclose([*found.weights, found.alpha, found.scale], slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("height", [1, 2**26])
def test_groups_of_features_are_judged_as_their_matrices_are(classes, height):
    Z, targets = features(classes=classes)
    rng = np.random.default_rng(5)
    cut = np.sort(rng.choice(np.arange(1, 40), 14, replace=False))
    targets = replace(targets, groups=np.split(rng.permutation(40), cut))
    options = RidgeOptions(left_out_rows=1000)
    whole = matrix_problem(StoredStack(np.array([one @ one.T for one in Z])), targets, options)
    parts = feature_problem(StoredFeatures(Z, PassOptions(strip_bytes=height)), targets, options)
    at = RidgePoint(np.array([0.4, 0.2, 1.3]), 0.7, 1.6, {})
    found, same = parts.judge(at), whole.judge(at)
    assert found.value == pytest.approx(same.value)
    assert_allclose(found.weights, same.weights, rtol=1e-7, atol=1e-9)
    assert found.alpha == pytest.approx(same.alpha)
    assert found.scale == pytest.approx(same.scale)
    assert_allclose(parts.machine(at).residuals, whole.machine(at).residuals, atol=1e-9)


def test_some_groups_of_features_stand_for_all():
    """Whole groups are left out; the slopes are those of the sum over them: finite differences."""
    Z, targets = features(n=60, classes=3)
    targets = replace(targets, groups=np.split(np.arange(60), 20))
    options = RidgeOptions(left_out_rows=24, left_out_groups=2)
    problem = feature_problem(StoredFeatures(Z), targets, options)
    rows = problem.form.rows
    assert len(rows) <= 24
    assert len(rows) == 3 * len({i // 3 for i in rows})

    def judged(x):
        return problem.judge(
            RidgePoint(np.exp(x[:3]), float(np.exp(x[3])), float(np.exp(x[4])), {})
        )

    x, h = np.array([-0.5, 0.2, -1.0, 0.3, 0.4]), 1e-5
    found = judged(x)
    slopes = [(judged(x + h * e).value - judged(x - h * e).value) / (2 * h) for e in np.eye(5)]
    assert_allclose([*found.weights, found.alpha, found.scale], slopes, rtol=1e-5, atol=1e-6)


# Widths -------------------------------------------------------------------------------------------


def with_widths(X, device=None):
    """Three radial kernels whose widths are learned, between two fixed ones, on NumPy or torch."""
    backend = NUMPY if device is None else torch_backend(device)
    kernels = {
        1: Gaussian("learn"),
        2: Gaussian("learn", per_column=True),
        4: Laplacian("learn", 0.5, per_column=True),
        5: Laplacian("learn"),
    }
    return {m: RadialWidths(kernel, backend.asarray(X)) for m, kernel in kernels.items()}


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_slopes_in_widths_equal_finite_differences(criterion, classes, device):
    _, targets = make(1, classes=classes)
    X = np.random.default_rng(5).normal(size=(60, 3))
    Ks = np.array([np.zeros((60, 60)) for _ in range(6)])
    Ks[[0, 3]] = X @ X.T, np.exp(-cdist(X, X))
    backend = NUMPY if device is None else torch_backend(device)
    widths = with_widths(X, device)
    problem = matrix_problem(
        StoredStack(backend.asarray(Ks)), targets, RidgeOptions(criterion), widths
    )
    starts = np.concatenate([one.start for one in widths.values()])
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=8) - 1.0, starts + 0.3 * rng.normal(size=len(starts))])
    step, (_, slope) = 1e-5, problem.value(x)
    assert len(x) == 6 + 2 + 1 + 3 + 3 + 1
    for j in range(len(x)):
        e = step * np.eye(len(x))[j]
        change = (problem.value(x + e)[0] - problem.value(x - e)[0]) / (2 * step)
        assert slope[j] == pytest.approx(change, rel=1e-5, abs=1e-5)


def test_matrices_of_widths_equal_the_formulas():
    X = np.random.default_rng(2).normal(size=(7, 3)) + 100.0
    ell = np.array([0.5, 2.0, 9.0])
    for kernel, power in ((Gaussian, 2), (Laplacian, 1)):
        naive = [
            [
                np.exp(-sum((abs(a - b) / w) ** power for a, b, w in zip(x, z, ell, strict=True)))
                for z in X
            ]
            for x in X
        ]
        found = RadialWidths(kernel("learn", per_column=True), X).matrix(np.log(ell))
        assert_allclose(found, naive, rtol=1e-9)
        assert_allclose(
            RadialWidths(kernel("learn"), X).matrix(np.log([1.3])), kernel(1.3)(X), rtol=1e-9
        )


def test_widths_of_columns_that_do_not_matter_grow():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 4))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=150)
    targets = RidgeTargets(y[:, np.newaxis], np.ones(150))
    widths = {0: RadialWidths(Gaussian("learn", per_column=True), X)}
    for criterion in ("loo", "evidence"):
        found = learn_ridge(
            StoredStack(np.zeros((1, 150, 150))),
            targets,
            widths=widths,
            options=RidgeOptions(criterion),
        )
        assert found.widths[0][0] < 0.4 * found.widths[0][1:].min()
        assert found.stationarity <= 1e-3


def test_widths_for_numbers_are_learned_where_they_gain_less_than_a_nat_each():
    """A linear kernel explains all but the sine of one column: the evidence gains four nats by six
    widths."""
    rng = np.random.RandomState(1)
    X = rng.normal(size=(100, 6))
    y = np.sin(X[:, :1]) + X[:, 1:2] + 0.4 * rng.normal(size=(100, 1))
    widths = {0: RadialWidths(Gaussian("learn", per_column=True), X)}
    stack = StoredStack(np.array([np.zeros((100, 100)), X @ X.T / 6]))
    found = learn_ridge(
        stack, RidgeTargets(y, np.ones(100)), widths=widths, options=RidgeOptions("evidence")
    )
    stack = StoredStack(np.array([Gaussian()(X), X @ X.T / 6]))
    kept = learn_ridge(stack, RidgeTargets(y, np.ones(100)), options=RidgeOptions("evidence"))
    assert 1 < kept.value - found.value < 6
    assert found.widths[0][0] < 0.8 * found.widths[0][1:].min()


def test_widths_for_classes_are_kept_where_learning_them_gains_less_than_a_nat_each():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 5))
    labels = rng.integers(2, size=80)
    targets = RidgeTargets(2.0 * labels[:, np.newaxis] - 1.0, np.ones(80), labels)
    widths = {0: RadialWidths(Gaussian("learn", per_column=True), X)}
    found = learn_ridge(StoredStack(np.zeros((1, 80, 80))), targets, widths=widths)
    assert_allclose(found.widths[0], np.exp(widths[0].start))
