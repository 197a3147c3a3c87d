"""Weights of resampled data: those of plain fits to the samples drawn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    MKLClassifier,
    MKLRegressor,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    MKLSurvival,
)
from kernelmosaic.inspection import stability
from kernelmosaic.kernels import Gaussian, Linear

VIEWS = [("first", Gaussian(), [0, 1]), ("second", Gaussian(), [2, 3]), ("line", Linear(), [4, 5])]
RANDOM = np.random.RandomState(0)
X = RANDOM.standard_normal((40, 6))
SCORE = 3 * X[:, 0] + RANDOM.standard_normal(40)


def naive(model, y, method, count, seed, weight=None):
    """A loop of fits to samples drawn class by class, in the order in which classes are sorted."""
    random = np.random.RandomState(seed)
    rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
    classes = np.unique(y[rows]) if isinstance(model, MKLClassifier) else [None]
    found = []
    for _ in range(count):
        drawn = []
        for label in classes:
            own = rows if label is None else rows[y[rows] == label]
            size = len(own) if method == "bootstrap" else round(0.5 * len(own))
            drawn.append(random.choice(own, size, replace=method == "bootstrap"))
        at = np.concatenate(drawn)
        found.append(
            clone(model).fit(X[at], y[at], None if weight is None else weight[at]).weights_
        )
    return np.array(found)


@pytest.mark.parametrize(
    ("kind", "method"),
    [("two classes", "subsample"), ("three classes", "bootstrap"), ("numbers", "subsample")],
)
def test_weights_are_those_of_a_naive_loop(kind, method):
    y = {
        "two classes": SCORE > 0,
        "three classes": np.searchsorted([-1, 1], SCORE),
        "numbers": SCORE,
    }[kind]
    model = (MKLRegressor if kind == "numbers" else MKLClassifier)(VIEWS, tol=1e-5)
    found = stability(
        model.set_params(random_state=0), X, y, n_resamples=3, method=method, random_state=1
    )
    expected = naive(model, y, method, 3, 1)
    np.testing.assert_allclose(found.resampled_weights, expected, atol=0.02)
    np.testing.assert_allclose(
        found.selection_frequencies, np.mean(found.resampled_weights > 1e-3, axis=0)
    )
    np.testing.assert_allclose(found.lower, np.quantile(found.resampled_weights, 0.025, axis=0))
    np.testing.assert_allclose(found.upper, np.quantile(found.resampled_weights, 0.975, axis=0))
    np.testing.assert_allclose(found.weights, clone(model).fit(X, y).weights_)
    assert found.selection_frequencies[..., 0].max() == 1
    assert found.classes == ([0, 1, 2] if kind == "three classes" else None)
    assert "first" in str(found)


def test_sample_weights_and_pipelines():
    weight = np.random.RandomState(0).randint(0, 3, 40).astype(float)
    y = SCORE > 0
    model = MKLClassifier(VIEWS, tol=1e-5, random_state=0)
    found = stability(model, X, y, n_resamples=3, sample_weight=weight, random_state=1)
    np.testing.assert_allclose(
        found.resampled_weights, naive(model, y, "subsample", 3, 1, weight), atol=0.02
    )
    pipeline = make_pipeline(StandardScaler(), model)
    found = stability(pipeline, X, y, n_resamples=2, sample_weight=weight, random_state=0)
    assert found.resampled_weights.shape == (2, 3)


def test_survival_is_served():
    y = np.column_stack([np.arange(40) % 3 > 0, np.exp(SCORE / 4)])
    assert (
        stability(MKLSurvival(VIEWS), X, y, n_resamples=5, random_state=0).selection_frequencies[0]
        == 1
    )


def test_errors_say_what_would_do():
    y = SCORE > 0
    for wrong, said in [
        ({"n_resamples": 1.5}, "n_resamples=1.5"),
        ({"method": "jackknife"}, "method='jackknife': choose one of 'subsample', 'bootstrap'"),
        ({"fraction": 1.0}, "fraction=1.0: give a number between 0 and 1"),
        ({"confidence_level": 95}, "confidence_level=95: give a number between 0 and 1"),
        ({"threshold": -1.0}, "threshold=-1.0"),
        ({"sample_weight": [1.0]}, "sample_weight"),
    ]:
        with pytest.raises(ValueError, match=said):
            stability(MKLClassifier(VIEWS), X, y, **wrong)


def test_groups_are_drawn_whole():
    donors, y = np.arange(40) % 4, (SCORE > 0).astype(int)
    model = MKLClassifier(VIEWS, tol=1e-6)
    found = stability(model, X, y, n_resamples=6, groups=donors, random_state=0).resampled_weights
    pairs = [np.isin(donors, (a, b)) for a in range(4) for b in range(a)]
    expected = np.array([clone(model).fit(X[rows], y[rows]).weights_ for rows in pairs])
    apart = np.abs(found[:, np.newaxis] - expected).max(axis=2)
    assert apart.min(axis=1).max() < 1e-2
    assert len(set(apart.argmin(axis=1))) > 1


def test_groups_that_cannot_be_drawn_say_so():
    y = (SCORE > 0).astype(int)
    with pytest.raises(
        ValueError, match=r"100 draws of 1 of the 2 groups lack a class; raise fraction"
    ):
        stability(MKLClassifier(VIEWS), X, y, n_resamples=2, groups=y)
    with pytest.raises(ValueError, match=r"groups has 3 entries for 40 samples"):
        stability(MKLClassifier(VIEWS), X, y, n_resamples=2, groups=[0, 1, 1])


@pytest.mark.parametrize(
    "model",
    [MKLRidgeCV(VIEWS), MKLRidgeClassifierCV(VIEWS), MKLRidgeCV(VIEWS, criterion="evidence")],
)
def test_copies_of_a_bootstrap_sample_are_left_out_together(model):
    """Refits to the drawn rows whose copies are one group; the evidence has counts as weights."""
    y = (SCORE > 0).astype(int) if isinstance(model, MKLRidgeClassifierCV) else SCORE
    found = stability(
        model.set_params(random_state=0), X, y, n_resamples=3, method="bootstrap", random_state=1
    )
    random, expected, strata = (
        np.random.RandomState(1),
        [],
        y if y.dtype == int else np.zeros(len(y)),
    )
    for _ in range(3):
        rows = np.concatenate(
            [random.choice(own, len(own)) for own in (np.flatnonzero(strata == c) for c in (0, 1))]
        )
        if model.criterion == "loo":
            refit = clone(model).fit(X[rows], y[rows], groups=rows)
        else:
            distinct, counts = np.unique(rows, return_counts=True)
            refit = clone(model).fit(X[distinct], y[distinct], sample_weight=counts)
        expected.append(refit.weights_ / refit.weights_.sum())
    np.testing.assert_allclose(found.resampled_weights, expected, atol=1e-3)
    assert (
        np.mean((found.weights < found.lower - 0.1) | (found.weights > found.upper + 0.1)) <= 1 / 3
    )


@pytest.mark.parametrize("method", ["subsample", "bootstrap"])
@pytest.mark.parametrize("model", [DiscriminantMKLClassifier(VIEWS), BilinearMKLClassifier(VIEWS)])
def test_weights_without_a_norm_are_compared_as_shares(model, method):
    """Those of half the samples are on another scale."""
    y = np.searchsorted([-1, 1], SCORE)
    found = stability(model, X, y, n_resamples=8, method=method, random_state=0)
    for weights in (found.weights, *found.resampled_weights):
        sums = weights.sum(axis=-1)
        np.testing.assert_allclose(sums[sums > 0], 1.0)
    fitted = clone(model).fit(X, y).weights_
    np.testing.assert_allclose(
        found.weights, fitted / fitted.sum(axis=-1, keepdims=True), atol=2e-2
    )
    half = np.concatenate([np.flatnonzero(y == c)[::2] for c in range(3)])
    assert clone(model).fit(X[half], y[half]).weights_.sum() != pytest.approx(fitted.sum(), rel=0.1)
