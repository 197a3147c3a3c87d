"""Kernels of pairs that share members: products without a matrix of all pairs, against the matrices
written down."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed, Spectrum, pairwise
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.pairs.stack import PairFactors, PairStack, make_pair_stack

rng = np.random.RandomState(0)
ALWAYS = StackOptions(few_pairs=0, pair_share=2.0)
M, Q = 6, 5
LEFT, RIGHT = rng.normal(size=(M, 2)), rng.normal(size=(Q, 3))
WORDS = ["ACGTAC", "CGTTAC", "TTACGA", "ACGGGT", "TACGTT"]
MATRIX = (F := rng.normal(size=(M, 4))) @ F.T


def pairs(n: int, seed: int = 0) -> np.ndarray:
    """Columns: two of the left member, three of the right, the number of the left, the right as a
    word."""
    random = np.random.RandomState(seed)
    i, j = np.divmod(random.choice(M * Q, n, replace=n > M * Q), Q)
    X = np.empty((n, 7), dtype=object)
    X[:, :2], X[:, 2:5], X[:, 5], X[:, 6] = LEFT[i], RIGHT[j], i, np.array(WORDS)[j]
    return X


def kernels(mode: str) -> list:
    if mode in ("symmetric", "antisymmetric"):
        one = (
            [("a", Gaussian(1.0), 0), ("b", Polynomial(2), 0)],
            [("a", Gaussian(1.0), 1), ("b", Polynomial(2), 1)],
        )
        return pairwise(*one, mode="symmetric") + pairwise(*one, mode="antisymmetric")
    left = [("g", Gaussian(), [0, 1]), ("m", Precomputed(MATRIX), 5)]
    return pairwise(
        left,
        [("l", Linear(), [2, 3, 4]), ("w", Spectrum(2), 6), ("p", Gaussian(2.0), [3])],
        mode=mode,
    )


def fitted(mode: str, X: np.ndarray, normalize: str | None = "trace") -> KernelSet:
    return KernelSet.fit(lay_specs(read_kernels(kernels(mode)), X), X, normalize)


def samples(mode: str, n: int, seed: int = 0) -> np.ndarray:
    if mode == "symmetric":
        values = np.random.RandomState(5).normal(size=7)
        return values[np.random.RandomState(seed).randint(0, 7, (n, 2))]
    return pairs(n, seed)


modes = pytest.mark.parametrize("mode", ["product", "sum", "cartesian", "symmetric"])


@modes
@pytest.mark.parametrize("normalize", ["trace", None])
@pytest.mark.parametrize("n", [22, 60], ids=["incomplete", "repeated"])
def test_products_are_those_of_the_matrices(mode, normalize, n):
    X = samples(mode, n)
    kernel_set = fitted(mode, X, normalize)
    views = kernel_set.views(X)
    stack = make_pair_stack(kernel_set, views, options=ALWAYS)
    assert isinstance(stack, PairStack)
    Ks = np.array([K for _, K in sorted(kernel_set.blocks(views, views, range(len(kernel_set))))])
    size = {"rtol": 1e-12, "atol": 1e-12 * np.abs(Ks).max()}
    V = rng.normal(size=(n, 3))
    V[::3] = 0.0
    assert_allclose(stack.products(V), Ks @ V, **size)
    some = np.array([3, 1, 8])
    assert_allclose(
        stack.products(V[:, 0], some, [2, 0])[[0, 2]], (Ks @ V[:, 0])[[0, 2]][:, some], **size
    )
    assert_allclose(
        stack.quadratic_forms(V), 0.5 * np.einsum("ic,mij,jc->m", V, Ks, V), rtol=1e-11, atol=1e-11
    )
    U = rng.normal(size=(n, 3))
    assert_allclose(
        stack.bilinear_forms(U, V), np.einsum("ic,mij,jc->m", U, Ks, V), rtol=1e-10, atol=1e-10
    )
    assert_allclose(stack.diagonals, Ks.diagonal(axis1=1, axis2=2), **size)
    part = stack.take(some)
    assert_allclose(part.products(V[some]), Ks[:, some][:, :, some] @ V[some], **size)
    for m, block in stack.blocks(range(len(Ks)), some, slice(0, n)):
        assert_allclose(block, Ks[m][some], **size)


@modes
def test_values_between_new_pairs_and_training_pairs(mode):
    X, Z = samples(mode, 25), samples(mode, 9, seed=3)
    kernel_set = fitted(mode, X)
    left, right = kernel_set.views(Z), kernel_set.views(X)
    factors = PairFactors.between(kernel_set, left, right)
    beta = rng.normal(size=(25, 2))
    for m, K in kernel_set.blocks(left, right, range(len(kernel_set))):
        plan = factors.plan(np.eye(len(kernel_set))[m])
        assert_allclose(
            factors.times(plan, factors.table(beta)),
            K @ beta,
            rtol=1e-11,
            atol=1e-11 * np.abs(K).max(),
        )


def test_an_antisymmetric_kernel_of_rank_one_is_zero_in_products_too():
    # Products of entries of 10⁷ round to 10⁻², which would be added to the outputs of the other
    # kernel.
    u, F = (
        4e3 * np.random.RandomState(1).normal(size=9),
        np.random.RandomState(2).normal(size=(9, 3)),
    )
    sides = [
        [("one", Precomputed(np.outer(u, u)), side), ("three", Precomputed(F @ F.T), side)]
        for side in (0, 1)
    ]
    X = np.argwhere(np.ones((9, 9)))
    kernel_set = KernelSet.fit(
        lay_specs(read_kernels(pairwise(*sides, mode="antisymmetric")), X), X, None
    )
    views = kernel_set.views(X)
    stack = make_pair_stack(kernel_set, views, options=ALWAYS)
    K = next(kernel_set.blocks(views, views, [1]))[1]
    beta = np.random.RandomState(3).normal(size=81)
    close = {"rtol": 1e-12, "atol": 1e-12 * np.abs(K @ beta).max()}
    assert not stack.products(beta)[0].any()
    assert stack.quadratic_forms(beta)[0] == 0.0
    assert_allclose(stack.combine(np.array([0.5, 2.0])).products(beta), 2.0 * K @ beta, **close)
    assert not stack.combine(np.array([1.0, 0.0])).products(beta).any()
    factors = PairFactors.between(kernel_set, kernel_set.views(X[:7]), views)
    assert_allclose(
        factors.times(factors.plan(np.ones(2)), factors.table(beta[:, None])),
        (K @ beta)[:7, None],
        **close,
    )


def test_every_formula_is_computed_once_a_side():
    left = [(f"l{k}", Gaussian(float(k + 1)), [0, 1]) for k in range(4)]
    right = [(f"r{k}", Gaussian(float(k + 1)), [2, 3, 4]) for k in range(5)]
    X = pairs(20)[:, :5].astype(float)
    kernel_set = KernelSet.fit(lay_specs(read_kernels(pairwise(left, right)), X), X, None)
    factors = PairFactors.between(kernel_set, *[kernel_set.views(X)] * 2)
    assert (len(factors.A), len(factors.B), len(factors.terms)) == (4, 5, 20)
    assert len(factors.plan(rng.rand(20))) == 4  # those of a left matrix are one product
    assert len(factors.plan(np.outer(rng.rand(4), rng.rand(5)).ravel())) == 1


def test_no_matrix_of_all_pairs_is_made():
    n = 12_000
    i, j = np.divmod(rng.permutation(130 * 100)[:n], 100)
    matrices = [
        (name, Precomputed((F := rng.normal(size=(size, 8))) @ F.T))
        for name, size in (("a", 130), ("b", 100))
    ]
    (a, A), (b, B) = matrices
    X = np.column_stack([i, j])
    kernel_set = KernelSet.fit(
        lay_specs(read_kernels(pairwise([(a, A, 0)], [(b, B, 1)])), X), X, "trace"
    )
    beta = rng.normal(size=n)
    tracemalloc.start()
    stack = make_pair_stack(kernel_set, kernel_set.views(X))
    gram = stack.combine(np.ones(1))
    values = gram.products(beta)
    stack.products(beta)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n**2 / 50
    full = np.zeros((130, 100))
    full[i, j] = beta
    scale = kernel_set.fitted[0].normalization.scale_
    assert_allclose(values, (A.K @ full @ B.K)[i, j] / scale, rtol=1e-10, atol=1e-10)


def test_where_matrices_of_all_pairs_are_better():
    """Few pairs, members that are not shared, other kernels, and scales that differ between
    pairs."""
    X = pairs(40)
    few = fitted("product", X)
    assert make_pair_stack(few, few.views(X)) is None
    assert make_pair_stack(few, few.views(X), budget=1e4) is not None
    alone = rng.normal(size=(40, 5))
    kernel_set = KernelSet.fit(
        lay_specs(
            read_kernels(pairwise([("g", Gaussian(), [0, 1])], [("l", Linear(), [2, 3, 4])])), alone
        ),
        alone,
        None,
    )
    assert (
        make_pair_stack(
            kernel_set, kernel_set.views(alone), options=replace(ALWAYS, pair_share=0.5)
        )
        is None
    )
    cosine = fitted("product", X, "diagonal")
    assert make_pair_stack(cosine, cosine.views(X), options=ALWAYS) is None
    numbers = X[:, :5].astype(float)
    beside = KernelSet.fit(
        lay_specs(
            read_kernels(
                [*pairwise([("g", Linear(), 0)], [("l", Linear(), 2)]), ("plain", Linear(), [0])]
            ),
            numbers,
        ),
        numbers,
        None,
    )
    assert make_pair_stack(beside, beside.views(numbers), options=ALWAYS) is None


def test_a_block_that_is_too_large_is_refused():
    X = pairs(40)
    kernel_set = fitted("product", X)
    stack = make_pair_stack(kernel_set, kernel_set.views(X), options=replace(ALWAYS, pair_block=10))
    with pytest.raises(MemoryError, match="A block of 11 x 11 entries of the kernel of pairs"):
        stack.combine(np.ones(6)).block(np.arange(11))
