"""The stack against plain NumPy on the whole matrices, wherever it keeps them, and what it may read
and hold."""

from __future__ import annotations

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

from kernelmosaic import backend
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.stack import ComputedStack, StoredStack, TriangleStack, make_stack
from kernelmosaic.kernels import (
    Correlation,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    family,
)
from kernelmosaic.kernels.views import lay_specs, read_kernels

KERNELS = [Linear(), Polynomial(2), *family(Gaussian(), width=[0.5, 1.0, 2.0]), Correlation()]
P = len(KERNELS)


def fit_mosaic(X, kernels=KERNELS, normalize="trace"):
    return KernelSet.fit(lay_specs(read_kernels(kernels), X), X, normalize)


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(0).normal(size=(57, 4))


@pytest.fixture(scope="module")
def whole(samples):
    """The matrices, computed kernel by kernel with the public call and scaled by hand."""
    matrices = np.array([kernel.fit(samples)(samples) for kernel in map(type_clone, KERNELS)])
    return matrices / matrices.trace(axis1=1, axis2=2)[:, None, None] * len(samples)


def type_clone(kernel):
    from sklearn.base import clone

    return clone(kernel)


def stacks(X, dtype=np.float64):
    kernel_set = fit_mosaic(X)
    views = kernel_set.views(X)
    # Working memory so small that every operation takes many strips.
    yield make_stack(kernel_set, views, dtype=dtype)
    yield ComputedStack.of(kernel_set, views, np.dtype(dtype), working_bytes=3 * 8 * len(X) * 5)


@pytest.mark.parametrize("which", [0, 1], ids=["stored", "computed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
class TestOperations:
    @pytest.fixture
    def stack(self, samples, which, dtype):
        return list(stacks(samples, dtype))[which]

    @pytest.fixture
    def close(self, dtype):
        return (
            {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-12}
        )

    def test_combine(self, stack, whole, close):
        weights = np.array([0.5, 0.0, 2.0, 0.0, 1.0, 0.25])
        K = stack.combine(weights).matrix
        np.testing.assert_allclose(K, np.tensordot(weights, whole, 1), **close)
        assert np.array_equal(K, K.T)
        assert K.dtype == stack.dtype

    def test_combine_into_a_used_matrix(self, stack, whole, close):
        used = DenseGram(np.full((len(whole[0]),) * 2, np.nan, dtype=stack.dtype))
        weights = np.arange(P) / P
        assert stack.combine(weights, out=used).matrix is used.matrix
        np.testing.assert_allclose(used, np.tensordot(weights, whole, 1), **close)

    def test_combine_gated(self, stack, whole, close):
        gates = np.random.default_rng(1).uniform(size=(len(whole[0]), P))
        gates[:, 1] = 0.0
        expected = sum(np.outer(gates[:, m], gates[:, m]) * whole[m] for m in range(P))
        np.testing.assert_allclose(stack.combine(gates), expected, **close)

    @pytest.mark.parametrize("share", [0.1, 0.9])
    def test_products(self, stack, whole, close, share):
        rng = np.random.default_rng(2)
        beta = rng.normal(size=len(whole[0])) * (rng.uniform(size=len(whole[0])) < share)
        rows = np.array([3, 0, 41])
        np.testing.assert_allclose(stack.products(beta), whole @ beta, **close)
        np.testing.assert_allclose(stack.products(beta, rows), (whole @ beta)[:, rows], **close)
        np.testing.assert_allclose(
            stack.quadratic_forms(beta), 0.5 * np.einsum("i,mij,j->m", beta, whole, beta), **close
        )

    def test_products_of_several_columns(self, stack, whole, close):
        beta = np.random.default_rng(3).normal(size=(len(whole[0]), 3))
        beta[10:] = 0.0
        np.testing.assert_allclose(stack.products(beta), whole @ beta, **close)
        expected = 0.5 * np.einsum("ic,mij,jc->m", beta, whole, beta)
        np.testing.assert_allclose(stack.quadratic_forms(beta), expected, **close)

    def test_products_of_chosen_kernels(self, stack, whole, close):
        beta = np.ones(len(whole[0]))
        chosen = stack.products(beta, kernels=[1, 4])
        np.testing.assert_allclose(chosen[[1, 4]], (whole @ beta)[[1, 4]], **close)

    def test_nothing_of_nothing(self, stack):
        assert not stack.quadratic_forms(np.zeros(stack.n_samples)).any()

    def test_row_block(self, stack, whole, close):
        np.testing.assert_allclose(stack.row_block(2, np.array([5, 1])), whole[2][[5, 1]], **close)


class Counting(Kernel):
    """A linear kernel that notes the blocks it is asked for."""

    asked: list[tuple[int, int]] = []  # noqa: RUF012 - shared by clones on purpose

    def _block(self, X, Y):
        self.asked.append((X.shape[0], Y.shape[0]))
        return X @ Y.T


def test_kernels_without_weight_are_not_read(samples):
    kernel_set = fit_mosaic(samples, [Linear(), Counting()], normalize=None)
    stack = ComputedStack.of(kernel_set, kernel_set.views(samples), np.dtype(float), 2**20)
    Counting.asked.clear()
    stack.combine(np.array([1.0, 0.0]))
    assert Counting.asked == []
    stack.combine(np.array([0.0, 1.0]))
    assert Counting.asked != []


def test_quadratic_forms_read_only_support_rows_and_columns(samples):
    kernel_set = fit_mosaic(samples, [Counting()], normalize=None)
    stack = ComputedStack.of(kernel_set, kernel_set.views(samples), np.dtype(float), 2**20)
    beta = np.zeros(len(samples))
    beta[[2, 3, 5, 7]] = 1.0
    Counting.asked.clear()
    stack.quadratic_forms(beta)
    assert sum(rows * columns for rows, columns in Counting.asked) == 16


def test_stack_is_stored_only_within_the_budget(samples):
    kernel_set = fit_mosaic(samples)
    views = kernel_set.views(samples)
    matrix = len(samples) ** 2 * 8
    stored = make_stack(kernel_set, views, dtype=np.float64, budget=(P + 1) * matrix)
    computed = make_stack(kernel_set, views, dtype=np.float64, budget=(P + 1) * matrix - 1)
    assert isinstance(stored, StoredStack)
    assert isinstance(computed, ComputedStack)
    weights = np.linspace(0, 1, P)
    np.testing.assert_allclose(
        stored.combine(weights), computed.combine(weights), rtol=1e-12, atol=1e-12
    )
    on_demand = make_stack(kernel_set, views, dtype=np.float64, budget=matrix - 1)
    assert not on_demand.stores_combined
    assert "25.4 KiB, the budget is 25.4 KiB: entries are computed" in on_demand.form


@pytest.mark.parametrize("stored", [True, False])
def test_peak_memory_is_the_stack_and_one_combined_matrix(stored):
    X = np.random.default_rng(0).normal(size=(900, 5))
    kernel_set = fit_mosaic(X, family(Gaussian(), width=[0.5, 1.0, 2.0, 4.0]))
    views = kernel_set.views(X)
    matrix = len(X) ** 2 * 4
    budget = 5 * matrix if stored else 1.5 * matrix
    # Compiled code is loaded before memory is watched.
    make_stack(kernel_set, views, dtype=np.float32, budget=budget).combine(np.ones(4))
    tracemalloc.start()
    stack = make_stack(kernel_set, views, dtype=np.float32, budget=budget)
    stack.combine(np.ones(4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Strips in flight are small beside the matrices.
    assert peak <= (4 * stored + 1) * matrix + 3 * 2**20


def test_large_sets_are_kept_in_single_precision():
    X = np.random.default_rng(0).normal(size=(2001, 2))
    kernel_set = fit_mosaic(X, [Linear()])
    assert make_stack(kernel_set, kernel_set.views(X)).dtype == np.float32
    assert make_stack(kernel_set, kernel_set.views(X[:50])).dtype == np.float64


# ---- compiled passes against the plain ones that they replace


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_passes_agree_with_plain_ones(dtype):
    rng = np.random.RandomState(7)
    A = rng.standard_normal((4, 37, 37))
    matrices = (A @ A.transpose(0, 2, 1)).astype(dtype)
    plain, compiled = (
        StoredStack(matrices, options=StackOptions(few_samples=few)) for few in (37, 36)
    )
    plain.entries = compiled.entries = 200
    weights, gates, classes = np.array([0.5, 0.0, 2.0, 1.0]), rng.rand(37, 4), rng.rand(3, 4)
    gates[::3, 1] = 0.0
    sparse = rng.standard_normal((37, 2)) * (np.arange(37) < 5)[:, np.newaxis]
    rows = np.array([30, 2, 17])

    def results(stack):
        yield np.asarray(stack.combine(weights))
        yield np.asarray(stack.combine(gates))
        yield stack.combine_classes(classes, np.empty((3, 37, 37), dtype=dtype))
        for beta in (sparse[:, 0], sparse, sparse + 1.0, sparse[:, 1] + 1.0):
            yield stack.products(beta)
            yield stack.products(beta, rows, [3, 1])
            yield stack.quadratic_forms(beta)

    assert plain.loops is None  # so few samples wait for no compiler
    assert compiled.loops is not None
    for fast, slow in zip(results(compiled), results(plain), strict=True):
        scale = np.abs(slow).max()
        np.testing.assert_allclose(
            fast, slow, rtol=0, atol=scale * (1e-5 if dtype == np.float32 else 1e-12)
        )


@pytest.mark.parametrize(("dtype", "n_threads"), [(np.float32, 1), (np.float64, 3)])
def test_matrices_filled_by_squares_are_those_of_the_formulas(dtype, n_threads, monkeypatch):
    monkeypatch.setattr(backend, "allowed_threads", lambda: n_threads)
    monkeypatch.setattr(backend, "_BYTES_FOR_THREADS", 0)
    X = np.random.default_rng(3).normal(
        size=(555, 3)
    )  # two squares a side, and one that is not whole
    given = Precomputed(np.cov(np.random.default_rng(4).normal(size=(555, 600))))
    kernels = [
        *family(Gaussian(), factor=[0.02, 0.1, 1.0, 8.0]),
        Laplacian(factor=0.05),
        Polynomial(2) * Gaussian(),
        2.0 * Linear(),
        Correlation(),
        given,
    ]
    rows = np.arange(555).reshape(-1, 1)
    table = np.hstack([X, rows])
    entries = [
        (f"{m}", kernel, [3] if kernel is given else [0, 1, 2]) for m, kernel in enumerate(kernels)
    ]
    kernel_set = KernelSet.fit(lay_specs(read_kernels(entries), table), table, None)
    filled = make_stack(kernel_set, kernel_set.views(table), dtype=dtype).matrices
    whole = np.array(
        [kernel.fit(rows)(rows) if kernel is given else kernel.fit(X)(X) for kernel in kernels]
    )
    close = {"rtol": 3e-5, "atol": 3e-6} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(filled, whole, **close)
    for K in filled:
        assert np.array_equal(K, K.T)
    assert np.array_equal(np.diagonal(filled[:5], axis1=1, axis2=2), np.ones((5, 555)))


@pytest.mark.parametrize("shape", [(16, 16), (33, 7), (5, 40), (1, 1)])
def test_a_block_is_written_transposed(shape):
    from kernelmosaic.gram._numba_stack import write_transposed

    block = np.random.default_rng(5).normal(size=shape)
    out = np.zeros((60, 60))
    write_transposed(block, out, 3, 11)
    expected = np.zeros((60, 60))
    expected[3 : 3 + shape[1], 11 : 11 + shape[0]] = block.T
    assert np.array_equal(out, expected)


def test_a_backend_is_one_object_after_a_journey_to_another_process():
    assert pickle.loads(pickle.dumps(NUMPY)) is NUMPY
    assert copy.deepcopy(NUMPY) is NUMPY


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_sums_of_gaussians_far_from_the_origin(dtype):
    # Of samples in single precision, squared norms of a million would leave nothing of distances of
    # one.
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 4)) + 1000.0).astype(dtype)
    kernel_set = fit_mosaic(X, family(Gaussian(), width=[0.5, 2.0, 5.0]))
    stack = make_stack(kernel_set, kernel_set.views(X), dtype=np.float32, budget=300**2 * 2)
    weights, beta = (
        np.array([0.5, 0.0, 2.0]),
        np.where(rng.random(300) < 0.5, rng.normal(size=300), 0.0),
    )
    D = ((X[:, None].astype(np.float64) - X[None].astype(np.float64)) ** 2).sum(axis=-1)
    each = np.array([np.exp(-D / width**2) for width in (0.5, 2.0, 5.0)])
    K = np.tensordot(weights, each, axes=1)
    gram = stack.combine(weights)
    scale = np.abs(K) @ np.abs(beta)
    np.testing.assert_array_less(np.abs(gram.products(beta) - K @ beta), 1e-6 * scale)
    np.testing.assert_array_less(np.abs(gram.products(beta, exact=True) - K @ beta), 1e-9 * scale)
    np.testing.assert_allclose(stack.products(beta), each @ beta, atol=1e-5 * scale.max())
    rows = rng.permutation(300)[:100]
    np.testing.assert_allclose(gram.block(rows), K[np.ix_(rows, rows)], atol=1e-6 * K.max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [(), (3,)], ids=["vector", "columns"])
def test_compiled_products_of_gaussians_beside_other_kernels(dtype, columns):
    rng = np.random.default_rng(0)
    X, beta, weights = (
        rng.normal(size=(300, 4)),
        rng.normal(size=(300, *columns)),
        np.linspace(0.0, 1.0, P),
    )
    beta[rng.random(300) < 0.5] = 0.0
    kernel_set = fit_mosaic(X)
    stack = ComputedStack.of(kernel_set, kernel_set.views(X), np.dtype(dtype), 2**20)
    Ks = np.array([type_clone(kernel).fit(X)(X) for kernel in KERNELS])
    Ks *= (300 / Ks.trace(axis1=1, axis2=2))[:, None, None]
    expected, support = (
        np.tensordot(Ks, beta, axes=(2, 0)),
        np.flatnonzero(beta.reshape(300, -1)[:, 0]),
    )
    close = {"rtol": 0, "atol": 100 * float(np.finfo(dtype).eps) * np.abs(expected).max()}
    np.testing.assert_allclose(stack.products(beta), expected, **close)
    found = stack.combined_products(support, beta[support], weights)
    np.testing.assert_allclose(found, np.tensordot(weights, expected, axes=1), **close)


class TestTriangles:
    """The form that is combined with many weights, one after the other."""

    @pytest.fixture
    def triangles(self, whole):
        stack = StoredStack(whole).for_many_combinations()
        assert isinstance(stack, TriangleStack)
        return stack

    def test_combined_kernels(self, triangles, whole):
        weights = np.arange(P, dtype=float)
        np.testing.assert_allclose(
            triangles.combine(weights).matrix, np.tensordot(weights, whole, 1), rtol=1e-13
        )

    def test_gated_kernels(self, triangles, whole):
        gates = np.random.default_rng(1).normal(size=(57, P))
        expected = sum(np.outer(gates[:, m], gates[:, m]) * whole[m] for m in range(P))
        np.testing.assert_allclose(triangles.combine(gates).matrix, expected, atol=1e-12)

    def test_inner_products(self, triangles, whole):
        B = np.random.default_rng(1).normal(size=(57, 57))
        G = B + B.T
        expected = [np.sum(G * K) for K in whole]
        for stack in (triangles, StoredStack(whole)):
            np.testing.assert_allclose(stack.inner_products(G), expected, rtol=1e-12)
            np.testing.assert_allclose(
                stack.inner_products(G, [1, 3])[[0, 1, 3]], [0.0, *np.take(expected, [1, 3])]
            )

    def test_some_samples(self, triangles, whole):
        rows = np.array([2, 3, 11, 40, 56])
        part = triangles.take(rows)
        for m, block in part.blocks(range(P), slice(0, 5), slice(0, 5)):
            np.testing.assert_array_equal(block, whole[m][np.ix_(rows, rows)])

    def test_blocks_and_products(self, triangles, whole):
        rows, columns = np.array([5, 1]), np.array([0, 7, 9])
        for m, block in triangles.blocks([4, 0], rows, columns):
            np.testing.assert_array_equal(block, whole[m][np.ix_(rows, columns)])
        beta = np.random.default_rng(1).normal(size=57) * (np.arange(57) % 3 == 0)
        np.testing.assert_allclose(triangles.products(beta), whole @ beta, atol=1e-12)

    def test_matrices_stay_where_memory_is_short_or_digits_are_few(self, whole):
        one_byte_short = StackOptions(triangle_bytes=8 * P * 57 * 58 // 2 - 1)
        for stack in (
            StoredStack(whole, options=one_byte_short),
            StoredStack(whole.astype(np.float32)),
        ):
            assert stack.for_many_combinations() is stack
