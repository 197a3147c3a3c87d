"""The widths of the Gaussian kernel, on data that make them hard to measure."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tests.reference import naive_kernels as naive

from kernelmosaic.kernels import Gaussian, Laplacian, Linear, distances, family

RULES = {"nearest": naive.nearest_width, "median": naive.median_width}


def data(name):
    rng = np.random.RandomState(3)
    X = rng.normal(size=(25, 4))
    return {
        "plain": X,
        "duplicates": np.vstack([X, X[:10], X[:5]]),
        "two": X[:2],
        "wide": rng.normal(
            size=(15, 40)
        ),  # scikit-learn searches neighbours by brute force from 16 columns on
        "far away": rng.normal(size=(15, 40)) * 1e-2 + 1e6,
        "column": X[:, :1],
        "integers": rng.randint(0, 3, size=(60, 3)).astype(float),
    }[name]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["plain", "duplicates", "two", "wide", "column", "integers"])
def test_width_equals_the_naive_loop(rule, name):
    X = data(name)
    expected = RULES[rule](X.tolist())
    assert_allclose(Gaussian(width=rule).fit(X).width_, expected, rtol=1e-9)
    assert_allclose(Gaussian(width=rule).fit(X[::-1]).width_, expected, rtol=1e-9)
    assert_allclose(Gaussian(width=rule).fit(X.astype(np.float32)).width_, expected, rtol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_width_of_sparse_rows(rule):
    X = np.where(np.abs(data("duplicates")) > 0.8, data("duplicates"), 0)
    expected = RULES[rule](X.tolist())
    A = sparse.csr_array(X)
    A.data[0] = 0  # stored, but zero
    B = X.copy()
    B[0, A.indices[0]] = 0
    assert_allclose(Gaussian(width=rule).fit(sparse.csr_array(X)).width_, expected, rtol=1e-9)
    B = np.vstack([B, B[:1]])
    A = sparse.vstack([A, sparse.csr_array(B[:1])], format="csr")
    assert_allclose(Gaussian(width=rule).fit(A).width_, RULES[rule](B.tolist()), rtol=1e-9)


def test_widths_far_from_the_origin():
    X = data("far away")
    assert_allclose(Gaussian("nearest").fit(X).width_, naive.nearest_width(X.tolist()), rtol=1e-6)
    assert_allclose(Gaussian("median").fit(X).width_, naive.median_width(X.tolist()), rtol=1e-6)


def test_median_over_many_samples_is_close_to_the_median_over_all():
    X = np.random.RandomState(4).normal(size=(2600, 2))
    i, j = np.triu_indices(len(X), k=1)
    exact = np.median(np.hypot(*(X[i] - X[j]).T))
    assert_allclose(Gaussian(width="median").fit(X).width_, exact, rtol=0.02)


@pytest.mark.parametrize("factor", [0.25, 1, np.float32(2.0)])
@pytest.mark.parametrize("width", ["median", "nearest", 3.0])
def test_the_factor_multiplies_any_width(width, factor):
    X, new = data("plain"), data("column") * np.ones((1, 4))
    expected = float(factor) * (RULES[width](X.tolist()) if isinstance(width, str) else width)
    kernel = Gaussian(width=width, factor=factor).fit(X)
    assert_allclose(kernel.width_, expected, rtol=1e-9)
    assert_allclose(
        kernel(new, X), np.exp(-(cdist(new, X) ** 2) / expected**2), rtol=1e-9, atol=1e-300
    )
    # Unfitted, the columns of the block are the training set.
    assert_allclose(clone(kernel)(new, X), kernel(new, X), rtol=1e-9, atol=1e-300)


def test_a_family_of_factors_follows_the_scale_of_the_data():
    X = data("duplicates")
    bells = family(Gaussian(), factor=[1, 2, 4])
    assert repr(bells) == "[Gaussian(factor=1), Gaussian(factor=2), Gaussian(factor=4)]"
    for unit in (1e-3, 1.0, 1e4):
        median = np.median(pdist(np.unique(unit * X, axis=0)))
        assert_allclose(
            [k.fit(unit * X).width_ for k in bells], median * np.array([1, 2, 4]), rtol=1e-9
        )
    with pytest.raises(ValueError, match="factor: Linear"):
        family(Linear(), factor=[1])


@pytest.mark.parametrize("factor", [0, -1.0, np.nan, np.inf, True, "2", None, [1.0]])
def test_bad_factors_are_named(factor):
    for use in (Gaussian(factor=factor).fit, Gaussian(2.0, factor)):
        with pytest.raises(ValueError, match="factor="):
            use(data("plain"))


@pytest.mark.parametrize("rule", RULES)
def test_one_distinct_sample_gives_the_constant_kernel(rule):
    X = np.ones((5, 2))
    kernel = Gaussian(width=rule).fit(X)
    assert kernel.width_ == 1.0
    assert_array_equal(kernel(X), np.ones((5, 5)))


@pytest.mark.parametrize("width", [0, -1.0, np.nan, np.inf, True, "mean", None, [1.0]])
def test_bad_widths_are_named(width):
    X = data("plain")
    for use in (Gaussian(width=width).fit, Gaussian(width=width)):
        with pytest.raises(ValueError, match="width="):
            use(X)


def test_formula_on_distances_needs_a_width():
    with pytest.raises(NotFittedError, match="call fit first"):
        Gaussian().from_statistic(np.zeros((2, 2)))
    S = np.array([[0.0, 4.0]])
    assert_allclose(Gaussian(width=2.0).from_statistic(S), [[1.0, np.exp(-1)]])
    assert_array_equal(S, [[0.0, 4.0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", [1e-200, 1e-20, 1e200])
def test_extreme_widths_give_the_limits(dtype, width):
    X = data("plain").astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        K = Gaussian(width=width)(X)
    assert_array_equal(K, np.eye(len(X)) if width < 1 else np.ones((len(X), len(X))))


def test_the_fitted_width_serves_new_samples():
    X = data("plain")
    kernel = Gaussian().fit(X)
    new = np.random.RandomState(5).normal(size=(3, 4)) * 10
    expected = naive.block(
        lambda x, z: naive.gaussian(x, z, naive.median_width(X.tolist())), new.tolist(), X.tolist()
    )
    assert_allclose(kernel(new, X), expected, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponentials_too_small_to_be_normal_are_zero(dtype):
    S = np.linspace(0.0, 2000.0, 4001, dtype=dtype).reshape(1, -1)
    K = Gaussian(1.0).from_statistic(S)
    tiny = np.finfo(dtype).tiny
    exact = np.exp(-S.astype(np.longdouble))
    np.testing.assert_allclose(
        K.astype(np.longdouble), exact, rtol=20 * np.finfo(dtype).eps, atol=3 * tiny
    )
    assert K[K > 0].min() >= tiny
    assert K[0, 0] == 1
    assert np.all(K[0, exact[0] < tiny] == 0)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1001, 1002])
def test_the_median_is_that_of_numpy(n):
    values = np.random.RandomState(n).exponential(size=n)
    for given in (values, np.round(values, 1), np.where(values > 1, np.inf, values)):
        assert distances._median_distance(given.copy(), "manhattan_distances") == np.median(given)


def test_city_block_distances_of_sparse_samples_with_indices_of_64_bits():
    dense = np.random.default_rng(0).normal(size=(6, 4)) * (np.arange(4) % 2)
    wide = sparse.csr_matrix(dense)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert_allclose(Laplacian(2.0)(wide), Laplacian(2.0)(dense))
