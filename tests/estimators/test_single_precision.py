"""Samples in single precision: what is predicted is the function that was certified, of the same
numbers in double."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from kernelmosaic import (
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLRegressor,
    MKLRidgeCV,
    MKLSurvival,
)
from kernelmosaic.kernels import Gaussian, Linear, Polynomial

RNG = np.random.RandomState(0)
NEAR = RNG.standard_normal((40, 3))
Y = NEAR[:, 0] + np.sin(2.0 * NEAR[:, 1])
#: Near zero, far from it, and large.
PLACES = {"near": (0.0, 1.0), "far": (1000.0, 1.0), "large": (0.0, 1e7)}


def placed(where, dtype=np.float32):
    offset, size = PLACES[where]
    return (offset + size * NEAR).astype(dtype)


def formula(kernel, X, Z):
    """The kernel from its printed formula, in long double."""
    X, Z = (np.asarray(one, dtype=np.longdouble) for one in (X, Z))
    if isinstance(kernel, Gaussian):
        return np.exp(-np.square(X[:, np.newaxis] - Z).sum(-1) / np.longdouble(kernel.width) ** 2)
    products = X @ Z.T
    return products if isinstance(kernel, Linear) else (products + kernel.offset) ** kernel.degree


def by_formula(model, kernels, X):
    """What a model with normalize="trace" predicts at its training samples, and the size of the
    terms."""
    beta = np.zeros(len(X), dtype=np.longdouble)
    beta[model.support_] = np.ravel(model.dual_coef_)
    weights = np.ravel(model.weights_)
    sums, size = np.longdouble(0), np.longdouble(0)
    for weight, kernel in zip(weights, kernels, strict=True):
        K = formula(kernel, X, X)
        K = weight * K / np.mean(np.diagonal(K))
        sums, size = sums + K @ beta, size + np.abs(K) @ np.abs(beta)
    return np.asarray(sums + np.longdouble(np.ravel(model.intercept_)[0]), float), float(size.max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("where", PLACES)
def test_predictions_are_those_of_the_formula(where, dtype):
    X, width = placed(where, dtype), 2.0 * PLACES[where][1]
    kernels = [Linear(), Polynomial(3), Gaussian(width)]
    for model in (
        MKLRegressor(kernels, C=10.0, weights="uniform"),
        MKLRidgeCV(kernels, alpha=1e-6, scale=False, weights="uniform"),
    ):
        model.fit(X, Y)
        expected, size = by_formula(model, kernels, X)
        assert_allclose(model.predict(X), expected, rtol=0, atol=1e-12 * size)


def test_samples_in_mixed_precision_are_the_same_samples():
    X = placed("far")
    for model in (
        MKLRegressor([Polynomial(3), Gaussian(2.0)], C=10.0),
        MKLRegressor([Polynomial(3), Gaussian(2.0)], normalize="diagonal", C=10.0),
        MKLRegressor([Linear()], normalize="centered", C=10.0),
        MKLRegressor(
            [Polynomial(2), Gaussian(2.0)], approximation="nystroem", rank=20, random_state=0
        ),
        MKLRegressor([Gaussian(2.0)], approximation="fourier", rank=20, random_state=0),
        MKLRidgeCV(Polynomial(2), alpha=1e-6),
        MKLRidgeCV(Polynomial(2), alpha=1e-6, scale=False),
        MKLRidgeCV([Polynomial(2), Gaussian("learn")]),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            single, double = (
                clone(model).fit(X.astype(kind), Y) for kind in (np.float32, np.float64)
            )
        expected = double.predict(X.astype(np.float64))
        for fitted in (single, double):
            assert_array_equal(fitted.predict(X), expected, err_msg=repr(model))
            assert_array_equal(fitted.predict(X.astype(np.float64)), expected, err_msg=repr(model))


def test_gates_of_samples_in_mixed_precision():
    X = placed("far")
    model = LocalizedMKLClassifier([Linear(), Gaussian(2.0)], n_init=1, random_state=0).fit(
        X, Y > 0
    )
    assert_array_equal(model.decision_function(X), model.decision_function(X.astype(np.float64)))


def test_sparse_samples():
    X = sparse.csr_matrix(placed("large"))
    model = MKLRegressor([Polynomial(3), Gaussian(2e7)], C=10.0, weights="uniform").fit(X, Y)
    expected, size = by_formula(model, model.kernels, X.toarray())
    assert_allclose(model.predict(X), expected, rtol=0, atol=1e-12 * size)


def test_a_ridge_predicts_its_training_samples():
    """The residual of ridge regression is alpha times its coefficients, whatever the samples are
    stored in."""
    X = (3.0 * NEAR + 5.0).astype(np.float32)
    model = MKLRidgeCV(Polynomial(2), alpha=1e-6, scale=False, weights="uniform").fit(X, Y)
    assert_allclose(Y - model.predict(X), 1e-6 * np.ravel(model.dual_coef_), atol=1e-6)


@pytest.mark.parametrize("normalize", ["trace", "diagonal"])
@pytest.mark.parametrize("size", [1e-18, 1e7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_beyond_single_precision_are_scaled_before_they_are_rounded(normalize, size, dtype):
    """Above 500 samples matrices are in single precision: their entries are of size one, those of
    the formula not."""
    X = np.random.RandomState(1).standard_normal((520, 3))
    y = X[:, 0] ** 2 - X[:, 1]
    kernels = [Polynomial(3, offset=0.0)]
    expected = MKLRegressor(kernels, normalize=normalize, C=1.0).fit(X, y)
    scaled = MKLRegressor(kernels, normalize=normalize, C=1.0).fit((size * X).astype(dtype), y)
    assert scaled.duality_gap_ <= 1e-3
    assert scaled.objective_ == pytest.approx(expected.objective_, rel=2e-3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_overflow_is_said():
    X = placed("near", np.float64)
    model = MKLRegressor([Polynomial(3)], C=1.0).fit(X, Y)
    far = X.copy()
    far[7] = 1e120
    with pytest.raises(
        ValueError,
        match=r"X\[7\]: kernel 'polynomial' overflows for this sample; correct its values",
    ):
        model.predict(far)


def test_objectives_of_many_samples_are_certified():
    """Matrices of more samples are kept in single precision; what is certified are the numbers in
    double."""
    many = np.random.RandomState(0).standard_normal((700, 3))
    y = np.where(many[:, 0] > 0, 1, -1)
    many[:, 0] += 3.0 * y
    times = np.column_stack([many[:, 1] > -1.0, np.exp(many[:, 2])])
    views = [("a", Gaussian(), [0, 1]), ("b", Gaussian(), [1, 2])]
    for model, target in (
        (MKLClassifier(views, C=np.inf), y),
        (MKLClassifier(views, C="learn", slack=2), y),
        (MKLSurvival(views, loss="cox"), times),
        (MKLSurvival(views, loss="rank"), times),
    ):
        assert model.fit(many, target).duality_gap_ <= model.tol
