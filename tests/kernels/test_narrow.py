"""Kernels much narrower than their samples are spread: every path against differences in extended
precision."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import ComputedStack, make_stack
from kernelmosaic.kernels import FFT, Gaussian, Laplacian, Projected
from kernelmosaic.kernels.base import StatisticKernel
from kernelmosaic.kernels.distances import ERRORS, squared_distances, unreliable_share
from kernelmosaic.kernels.views import KernelSpec

WIDTHS = [1e-6, 1e-4, 1e-2, 1.0]


def samples(width, n=48, d=5, offset=0.0, seed=0, dtype=np.float64):
    """Random samples, neighbours of theirs about a width away, and copies."""
    random = np.random.RandomState(seed)
    some = offset + random.standard_normal((n // 3, d))
    near = some + width * random.standard_normal(some.shape) / np.sqrt(d)
    return np.concatenate([some, near, some[: n - 2 * len(some)]]).astype(dtype)


def naive(A, B, width, kind=Gaussian):
    """The kernel from differences, a sample at a time, in extended precision."""
    A, B = np.asarray(A, dtype=np.longdouble), np.asarray(B, dtype=np.longdouble)
    K = np.empty((len(A), len(B)), dtype=np.longdouble)
    for i, a in enumerate(A):
        distances = (np.abs(a - B) ** kind.power).sum(axis=1)
        K[i] = np.exp(-distances / np.longdouble(width) ** kind.power)
    return K


def assert_same(found, A, B, width, kind=Gaussian, error=1e-12, floor=1e-290):
    """Every entry has its digits, and equal samples k(x, x) exactly."""
    expected = naive(A, B, width, kind)
    # An exponent of a hundred amplifies the rounding of the distance a hundredfold.
    amplified = np.maximum(1.0, -np.log(np.maximum(expected, 1e-300))).astype(np.float64)
    wrong = np.abs(np.asarray(found, dtype=np.longdouble) - expected) / np.maximum(expected, floor)
    assert float((wrong / amplified).max()) <= error
    equal = (A[:, np.newaxis] == B).all(axis=2)
    assert equal.any()
    assert_array_equal(np.asarray(found)[equal], 1.0)


def kernel_set(X, *widths, normalize="trace", kind=Gaussian):
    specs = [KernelSpec(f"k{i}", kind(width), None) for i, width in enumerate(widths)]
    return KernelSet.fit(specs, X, normalize)


@pytest.mark.parametrize("kind", [Gaussian, Laplacian])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("width", WIDTHS)
def test_blocks(width, offset, form, kind):
    X = samples(width, offset=offset)
    kernel = kind(width).fit(form(X))
    assert_same(kernel(form(X)), X, X, width, kind)
    assert_same(kernel(form(X[5:30]), form(X[20:])), X[5:30], X[20:], width, kind)
    assert_same(kernel(form(X[:1]), form(X)), X[:1], X, width, kind)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("width", [1e-4, 1.0])
def test_blocks_of_samples_in_single_precision(width, form):
    X = samples(width, dtype=np.float32)
    assert_same(Gaussian(width).fit(form(X))(form(X)), X, X, width, error=1e-6, floor=1e-30)


@pytest.mark.parametrize("columns", [1, 2, 40, 3000])
@pytest.mark.parametrize("width", [1e-5, 1.0])
def test_whatever_the_number_of_columns(columns, width):
    # Every squared entry of the second half is the same, so that their rounding adds up.
    X = samples(width, n=24, d=columns)
    X = np.concatenate([X, np.full((3, columns), 0.1), np.full((2, columns), -0.1)])
    width = width * np.sqrt(columns)
    assert_same(Gaussian(width).fit(X)(X[4:], X), X[4:], X, width)


def test_large_blocks_take_the_compiled_loop():
    X = samples(1e-5, n=600, d=30)
    K = Gaussian(1e-5).fit(X)(X[100:], X)
    assert_same(K[250:320], X[350:420], X, 1e-5)
    assert_array_equal(K, Gaussian(1e-5).fit(X)(X, X[100:]).T)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_stacks_of_wide_and_narrow_kernels(offset, device, dtype):
    X = samples(1e-5, offset=offset)
    own = kernel_set(X, *WIDTHS)
    all_rows = slice(0, len(X))
    stored = make_stack(own, own.views(X), dtype=np.dtype(dtype), device=device)
    computed = make_stack(
        own, own.views(X), dtype=np.dtype(dtype), device=device, budget=1.5 * stored.nbytes / 4
    )
    assert isinstance(computed, ComputedStack)
    for stack in (stored, computed):
        for m, K in stack.blocks(range(4), all_rows, all_rows):
            single = {"error": 1e-6, "floor": 1e-17}
            assert_same(K, X, X, WIDTHS[m], **({} if dtype == np.float64 else single))
            assert_array_equal(K.diagonal(), 1.0)
        assert_array_equal(stack.combine(np.full(4, 0.25)).diagonal(), 1.0)


@pytest.mark.parametrize("n", [90, 300])  # NumPy's passes, and compiled ones
@pytest.mark.parametrize("width", [1e-6, 1e-2])
def test_products_of_kernels_that_are_not_stored(width, device, n):
    X = samples(width, n=n, offset=10.0)
    own = kernel_set(X, width, 3 * width)
    budget = 0.5 * 4 * n**2
    stack = make_stack(own, own.views(X), dtype=np.dtype(np.float32), device=device, budget=budget)
    gram = stack.combine(np.array([0.75, 0.25]))
    assert gram.matrix is None
    beta = np.random.RandomState(1).standard_normal(n)
    K = 0.75 * naive(X, X, width) + 0.25 * naive(X, X, 3 * width)
    expected = (K @ beta).astype(np.float64)
    assert_allclose(gram.products(beta, exact=True), expected, atol=1e-12 * np.abs(beta).sum())
    assert_allclose(gram.products(beta), expected, atol=1e-6 * np.abs(beta).sum())
    rows = np.arange(0, n, 3)
    assert_allclose(gram.block(rows), K[np.ix_(rows, rows)].astype(np.float64), atol=1e-6)
    assert_array_equal(gram.diagonal(), 1.0)


@pytest.mark.parametrize("width", [1e-6, 1e-2])
def test_compiled_sums_of_stored_matrices(width):
    X = samples(width, n=300)
    own = kernel_set(X, width, 2 * width, 3 * width)
    stack = make_stack(own, own.views(X), dtype=np.dtype(np.float32), budget=2.5 * 4 * 300**2)
    assert isinstance(stack, ComputedStack)
    K = stack.combine(np.array([1.0, 0.0, 0.0])).matrix
    rows = np.arange(60, 250, 5)
    assert_same(K[np.ix_(rows, np.arange(300))], X[rows], X, width, error=1e-6, floor=1e-11)
    assert_array_equal(K.diagonal(), 1.0)


@pytest.mark.parametrize("width", [1e-6, 1e-4, 1.0])
def test_a_sample_alone_and_among_many(width, device):
    X = samples(width, n=90, offset=5.0)
    y = np.random.RandomState(2).standard_normal(len(X)) > 0
    # Equal samples of both classes.
    model = MKLClassifier(
        [Gaussian(width), Gaussian(3 * width)], weights="uniform", C=10.0, device=device
    ).fit(X, y)
    together = model.decision_function(X)
    alone = np.array([model.decision_function(x[np.newaxis])[0] for x in X])
    assert_allclose(alone, together, atol=1e-12 * np.abs(together).max())
    K = model.kernel_matrix(X)
    assert_array_equal(K.diagonal(), 1.0)
    assert_allclose(
        K, (0.5 * naive(X, X, width) + 0.5 * naive(X, X, 3 * width)).astype(float), atol=1e-12
    )
    equal = (X[:, np.newaxis] == X).all(axis=2)
    assert_array_equal(K[equal], 1.0)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("kind", [Gaussian, Laplacian])
@pytest.mark.parametrize("columns", [4, 40])
def test_widths_are_measured_by_differences(kind, columns, form):
    X = samples(1e-7, n=60, d=columns)[
        :40
    ]  # no copies: every sample's nearest is about a ten-millionth away
    L = X.astype(np.longdouble)
    D = np.abs(L[:, np.newaxis] - L)
    D = D.sum(axis=2) if kind is Laplacian else np.sqrt(np.square(D).sum(axis=2))
    upper = D[np.triu_indices(40, 1)]
    np.fill_diagonal(D, np.inf)
    assert kind("nearest").fit(form(X)).width_ == pytest.approx(
        float(D.min(axis=1).mean()), rel=1e-12
    )
    assert kind("median").fit(form(X)).width_ == pytest.approx(float(np.median(upper)), rel=1e-12)


@pytest.mark.parametrize(
    "kernel", [FFT(1e-5), Projected(Gaussian(1e-5)), Gaussian(1e-3) * Gaussian(1e-4)], ids=repr
)
def test_kernels_made_of_gaussians(kernel):
    X = samples(1e-5, d=6)
    K = kernel.fit(X)(X)
    equal = (X[:, np.newaxis] == X).all(axis=2)
    assert_array_equal(K[equal], 1.0)
    assert_allclose(np.array([kernel(x[np.newaxis], X)[0] for x in X]), K, atol=1e-9)


class Cauchy(StatisticKernel):
    """A kernel of distances that says nothing of its width."""

    statistic = "squared_distances"

    def from_statistic(self, S):
        return 1.0 / (1.0 + 1e12 * S)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_kernels_of_unknown_width(form):
    X = samples(1e-6)
    L = X.astype(np.longdouble)
    expected = 1 / (1 + 1e12 * np.square(L[:, np.newaxis] - L).sum(axis=2))
    assert_allclose(Cauchy()(form(X)), expected.astype(float), rtol=1e-12)


def test_the_stated_bound():
    double, single = (ERRORS[np.dtype(kind)] for kind in (np.float64, np.float32))
    epsilon = np.finfo(np.float64).eps
    # Wide kernels need equal samples only, narrow ones all distances of too few digits.
    assert unreliable_share(100, 1.0, 1.0) == pytest.approx(102 * epsilon)
    assert unreliable_share(100, 1e9, 1.0) == pytest.approx(10 * epsilon / double)
    assert unreliable_share(100, 1e9, 1.0, np.float32) == pytest.approx(10 * epsilon / single)
    assert unreliable_share(100, 1.0, 0.0) == pytest.approx(10 * epsilon / double)
    # What is kept of the products has the digits that the bound promises.
    random = np.random.RandomState(0)
    X = random.standard_normal((60, 100)) * 10.0 ** random.uniform(-3, 0, (60, 1))
    X[30:] = X[:30] + 10.0 ** random.uniform(-6, 0, (30, 1)) * random.standard_normal((30, 100))
    L = X.astype(np.longdouble)
    expected = np.square(L[:, np.newaxis] - L).sum(axis=2)
    assert_allclose(squared_distances(X, X), expected.astype(float), rtol=double)


def test_ordinary_kernels_are_made_of_products(monkeypatch):
    from kernelmosaic.kernels import distances

    X = np.random.RandomState(0).standard_normal((300, 20))
    pairs = []
    original = distances._squared_differences
    monkeypatch.setattr(
        distances,
        "_squared_differences",
        lambda *given: pairs.append(len(given[2])) or original(*given),
    )
    Gaussian().fit(X)(X)
    assert sum(pairs) == 300
    pairs.clear()
    Gaussian().fit(X)(X[:150], X[150:])
    assert sum(pairs) == 0
