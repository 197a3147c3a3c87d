"""Columns on one scale: sparse samples have the deviations of dense ones, and a column that does
not vary keeps its."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from kernelmosaic import MKLRegressorCV, MKLRidgeCV
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.kernels.views import Entry


def sparse_columns(n, seed=0):
    random = np.random.RandomState(seed)
    return np.where(random.uniform(size=(n, 3)) < 0.5, random.standard_normal((n, 3)), 0.0)


@pytest.mark.parametrize("weight", [None, np.arange(50) / 7.0], ids=["alike", "weighted"])
def test_sparse_columns_have_the_deviation_of_dense_ones(weight):
    X = sparse_columns(50)
    given = sparse.csr_matrix(X)
    found = FitInput(given, None, weight, given).standardizer([Entry("all", Linear(), None)])
    mean = np.average(X, axis=0, weights=weight)
    np.testing.assert_allclose(
        found.scale, np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight)), rtol=1e-12
    )


@pytest.mark.parametrize("n", [10, 77, 1000])
@pytest.mark.parametrize("value", [0.1, 1 / 7, 123.456])
def test_a_sparse_column_that_does_not_vary_stays_as_it_is(n, value):
    X = np.column_stack([sparse_columns(n), np.full(n, value)])
    given = sparse.csr_matrix(X)
    found = FitInput(given, None, None, given).standardizer([Entry("all", Linear(), None)])
    assert found.scale[3] == 1.0
    np.testing.assert_allclose(found(given).toarray()[:, 3], value)


def test_samples_that_lack_a_view_do_not_count_in_its_columns():
    X, lacks = sparse_columns(40), np.arange(40) % 4 == 0
    marked = np.where(lacks[:, np.newaxis] & [True, True, False], [np.nan, 0.0, 0.0], X)
    given = sparse.csr_matrix(marked)
    found = FitInput(given, None, None, given).standardizer(
        [Entry("a", Linear(), [0, 1]), Entry("b", Linear(), [2])]
    )
    np.testing.assert_allclose(found.scale, [*X[~lacks, :2].std(axis=0), X[:, 2].std()], rtol=1e-12)


def test_a_sparse_column_that_does_not_vary_changes_no_prediction():
    X = sparse_columns(60)
    y = X @ [1.0, -2.0, 0.5]
    with_ones = sparse.csr_matrix(np.column_stack([X, np.full(60, 0.1)]))
    plain, more = (MKLRidgeCV([Linear()]).fit(Z, y) for Z in (sparse.csr_matrix(X), with_ones))
    np.testing.assert_allclose(
        more.predict(with_ones), plain.predict(sparse.csr_matrix(X)), atol=0.05
    )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("unit", [5e-324 * 2**20, 1e-200, 1e-165, 1e165, 1e200, 1e307])
def test_columns_whose_squares_leave_the_range_have_their_deviation(form, unit):
    X = sparse_columns(50) / 8.0
    weight = np.arange(1, 51) / 7.0
    exact = np.ldexp(1.0, np.frexp(unit)[1])
    units = np.array([exact, 1.0, 1.0 / min(exact, 1e300) if exact > 1 else 1.0])
    with np.errstate(all="raise", under="ignore"):
        given, scaled = form(X), form(X * units)
        plain = FitInput(given, None, weight, given).standardizer([Entry("all", Linear(), None)])
        found = FitInput(scaled, None, weight, scaled).standardizer([Entry("all", Linear(), None)])
        expected, standardised = plain(given), found(scaled)
    dense = [one.toarray() if sparse.issparse(one) else one for one in (expected, standardised)]
    # The smallest floats have few digits.
    np.testing.assert_allclose(
        dense[1], dense[0], rtol=1e-12 if unit > 1e-300 else 1e-4, atol=1e-12
    )


def test_a_large_column_that_does_not_vary_is_next_to_nothing():
    X = np.column_stack([sparse_columns(30), np.full(30, 1e200)])
    found = FitInput(X, None, None, X).standardizer([Entry("all", Linear(), None)])
    assert np.abs(found(X)[:, 3]).max() < 1e-10


@pytest.mark.parametrize(
    "model", [MKLRidgeCV, lambda kernels: MKLRegressorCV(kernels, Cs=[1.0], norms=[1], cv=2)]
)
def test_sparse_new_samples_of_a_model_of_dense_ones_are_centred_as_these(model):
    X = sparse_columns(40) + 3.0
    fitted = model([Linear(), Gaussian()]).fit(X, X @ [1.0, -2.0, 0.5])
    np.testing.assert_allclose(fitted.predict(sparse.csr_array(X)), fitted.predict(X), rtol=1e-9)
