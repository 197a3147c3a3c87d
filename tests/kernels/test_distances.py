"""Distances of tables in which most entries of a column are the same number."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist

from kernelmosaic.kernels import Laplacian, distances

RNG = np.random.RandomState(0)
COUNTS = RNG.poisson(0.03, size=(300, 240)).astype(float)


@pytest.mark.parametrize("form", ["scaled", "float32", "sparse", "one sparse"])
def test_counts_have_the_distances_of_differences(form):
    X = COUNTS
    if form in ("scaled", "float32"):
        X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
        X = X.astype(np.float32) if form == "float32" else X
        assert distances._common_entries(X, X) is not None
    A = sparse.csr_matrix(X) if "sparse" in form else X
    B = A if form == "sparse" else X
    found = distances.pairwise_statistic("manhattan_distances", A[:200], B)
    assert found.dtype == X.dtype
    assert_allclose(
        found, cdist(X[:200], X, "cityblock"), rtol=1e-6 if form == "float32" else 1e-12, atol=1e-9
    )


def test_equal_rows_are_at_distance_zero_exactly():
    X = (COUNTS - COUNTS.mean(axis=0)) / np.maximum(COUNTS.std(axis=0), 0.1)
    found = distances.manhattan_distances(X, X)
    assert_array_equal(found.diagonal(), 0.0)
    assert_array_equal(found, found.T)


def test_sparse_rows_with_repeated_and_unsorted_entries():
    given = sparse.csr_matrix(([1.0, 2.0, 3.0, 0.0], [2, 0, 2, 1], [0, 3, 4]), shape=(2, 4))
    assert_allclose(distances.manhattan_distances(given, given), [[0.0, 6.0], [6.0, 0.0]])
    assert_array_equal(given.indices, [2, 0, 2, 1])  # the caller's arrays are as they were
    assert_array_equal(given.indptr, [0, 3, 4])


@pytest.mark.parametrize("form", [np.float64, np.float32, "Fortran", "strided"])
def test_many_entries_have_the_distances_of_a_loop(form):
    X = (
        np.asfortranarray(RNG.normal(size=(220, 90)))
        if form == "Fortran"
        else RNG.normal(size=(220, 90))
    )
    X = X[::-1, ::-1] if form == "strided" else X if isinstance(form, str) else X.astype(form)
    assert 220 * 215 * 90 >= 2**22  # compiled
    expected = [
        [sum(abs(a - b) for a, b in zip(x, z, strict=True)) for z in X[5:8].tolist()]
        for x in X.tolist()
    ]
    assert_allclose(distances.manhattan_distances(X, X[5:])[:, :3], expected, rtol=1e-13)


def test_columns_of_many_numbers_are_compared_as_they_are():
    X = RNG.normal(size=(300, 240))
    assert distances._common_entries(X, X) is None
    # Dense entries in columns that the first look leaves out.
    Z = COUNTS.copy()
    Z[:, 1::4] = X[:, 1::4]
    assert distances._common_entries(Z, Z) is None


def test_median_width_of_counts():
    X = COUNTS / 3.0
    every = cdist(X, X, "cityblock")[np.triu_indices(len(X), 1)]
    assert Laplacian().fit(X).width_ == pytest.approx(np.median(every[every > 0]), rel=1e-9)
