"""The compiled passes over Gram matrices stored on the host, each on the cores that are ours.

What `stack.StoredStack` calls comes first, then the loops; each reads an entry once, in the order it lies in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray
from kernelmosaic.backend import one_blas_thread, row_strips, run_threads
from kernelmosaic.gram.linear_algebra import nonzero_rows

#: Sums may be reordered, so that they vectorise.
_MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}
#: Columns accumulated at once: they stay in the first-level cache while the kernels pass by, or the classes.
_STRIP, _GATED_STRIP, _CLASS_STRIP = 4096, 2048, 512
#: Side of the squares in which a triangle is mirrored, or a block transposed: a cache line of single precision.
_SQUARE = 16
#: Whole rows of so few kernels are read faster than half of them are mirrored.
_FEW = 3
#: Above this share of support samples a product reads whole rows.
_DENSE_SHARE = 0.3


def mirror_all(matrices: Sequence[AnyArray]) -> None:
    """Copy the lower triangle of every matrix into the upper."""
    run_threads(lambda K: mirror_lower(K, 0, len(K)), matrices, sum(K.nbytes for K in matrices))


def combine(matrices: AnyArray, weights: AnyArray, out: AnyArray) -> AnyArray:
    """Write Σ_m weights_m K_m."""
    active = np.flatnonzero(weights)
    if len(active) <= _FEW:
        combine_classes(matrices, weights[np.newaxis], out[np.newaxis])
        return out
    factors = weights[active].astype(matrices.dtype)

    def fill(rows: slice) -> None:
        add_lower(matrices, active, factors, out, rows.start, rows.stop)
        mirror_lower(out, rows.start, rows.stop)

    run_threads(fill, _triangle_strips(len(out), 4), matrices.nbytes)
    return out


def combine_classes(matrices: AnyArray, weights: AnyArray, out: AnyArray) -> AnyArray:
    """Write Σ_m weights[c, m] K_m into out[c]."""
    counts = np.count_nonzero(weights, axis=1)
    active = np.argsort(weights == 0, axis=1, kind="stable")
    factors = np.take_along_axis(weights, active, axis=1).astype(out.dtype)

    def fill(rows: slice) -> None:
        combine_rows(matrices, active, counts, factors, out, rows.start, rows.stop)

    run_threads(fill, _quarters(matrices.shape[1]), matrices.nbytes + out.nbytes)
    return out


def combine_gated(matrices: AnyArray, gates: AnyArray, out: AnyArray) -> AnyArray:
    """Write Σ_m g_m g_mᵀ ∘ K_m for gates of shape (n, P)."""
    active = np.flatnonzero(np.any(gates != 0, axis=0))
    factors = np.ascontiguousarray(gates.T, dtype=matrices.dtype)
    # Gates below rounding are no gates, and reading denormal numbers is slow.
    factors[np.abs(factors) < np.finfo(matrices.dtype).eps ** 2] = 0.0

    def fill(rows: slice) -> None:
        add_gated_rows(matrices, active, factors, out, rows.start, rows.stop)

    run_threads(fill, _quarters(len(out)), matrices.nbytes)
    return out


def products(
    matrices: AnyArray,
    beta: AnyArray,
    rows: NDArray[np.intp] | None,
    kernels: Sequence[int] | AnyArray | None,
    entries: int,
) -> NDArray[np.float64]:
    """Return K_m β at the given rows, picking up to so many entries out at once where β is sparse."""
    P, n, _ = matrices.shape
    support = nonzero_rows(beta)
    at = np.arange(n) if rows is None else rows
    out = np.zeros((P, len(at), *beta.shape[1:]))
    # Reading half of a matrix in order is faster than picking most of its entries one by one.
    whole = len(support) > _DENSE_SHARE * n
    coefficients = (beta if whole else beta[support]).astype(matrices.dtype)
    columns = np.ascontiguousarray(coefficients.T)

    def multiply(m: int) -> None:
        if beta.ndim > 1 and whole:
            # The matrices are symmetric, and the few long rows of βᵀ suit the product better than columns.
            values = (columns @ matrices[m]).T
            out[m] = values if rows is None else values[rows]
        elif beta.ndim > 1:
            for strip in row_strips(len(at), entries // max(len(support), 1)):
                out[m, strip] = matrices[m][np.ix_(at[strip], support)] @ coefficients
        elif whole:
            values = np.empty(n, dtype=np.float64)
            symmetric_product(matrices[m], coefficients, values)
            out[m] = values[at]
        else:
            block_products(matrices[m], at, support, coefficients, out[m])

    asked = range(P) if kernels is None else kernels
    if beta.ndim == 1:
        run_threads(multiply, asked, matrices.nbytes)
    elif len(support):
        with one_blas_thread():
            run_threads(multiply, asked, matrices.nbytes)
    return out


def _triangle_strips(n: int, count: int) -> list[slice]:
    """Cut the rows so that every strip of the lower triangle holds about as many entries, the longest rows first."""
    edges = np.unique(np.round(n * np.sqrt(np.linspace(0.0, 1.0, count + 1))).astype(int))
    return [slice(int(a), int(b)) for a, b in pairwise(edges)][::-1]


def _quarters(n: int) -> Iterator[slice]:
    return row_strips(n, -(-n // 4))


@njit(cache=True, nogil=True, fastmath=_MATH)
def add_lower(matrices: AnyArray, active: AnyArray, weights: AnyArray, out: AnyArray, first: int, last: int) -> None:
    """Write Σ weights[a] matrices[active[a]] into the lower triangle of these rows of out."""
    for i in range(first, last):
        for start in range(0, i + 1, _STRIP):
            stop = min(start + _STRIP, i + 1)
            row = out[i, start:stop]
            row[:] = 0.0
            for a in range(active.shape[0]):
                weight = weights[a]
                source = matrices[active[a], i, start:stop]
                for k in range(stop - start):
                    row[k] += weight * source[k]


@njit(cache=True, nogil=True)
def mirror_lower(out: AnyArray, first: int, last: int) -> None:
    """Copy these rows of the lower triangle into the columns of the upper, square by square."""
    for top in range(first, last, _SQUARE):
        bottom = min(top + _SQUARE, last)
        for left in range(0, bottom, _SQUARE):
            if bottom - top == _SQUARE and left + _SQUARE <= top:
                source, target = out[top:bottom, left : left + _SQUARE], out[left : left + _SQUARE, top:bottom]
                for k in range(_SQUARE):
                    for i in range(_SQUARE):
                        target[k, i] = source[i, k]
            else:
                for i in range(top, bottom):
                    for k in range(left, min(left + _SQUARE, i)):
                        out[k, i] = out[i, k]


@njit(cache=True, nogil=True)
def write_transposed(block: AnyArray, out: AnyArray, top: int, left: int) -> None:
    """Write the transpose of a block into out, from (top, left) on, square by square.

    What a square writes to a row is one vector, and so few rows at once are ones that memory keeps up with.
    """
    height, width = block.shape
    whole = height - height % _SQUARE
    for start in range(0, width, _SQUARE):
        stop = min(start + _SQUARE, width)
        for i in range(0, whole, _SQUARE):
            square = block[i : i + _SQUARE, start:stop]
            for k in range(stop - start):
                row = out[top + start + k, left + i : left + i + _SQUARE]
                for r in range(_SQUARE):
                    row[r] = square[r, k]
        for i in range(whole, height):
            for k in range(start, stop):
                out[top + k, left + i] = block[i, k]


@njit(cache=True, nogil=True, fastmath=_MATH)
def symmetric_product(K: AnyArray, beta: AnyArray, out: AnyArray) -> None:
    """out = K beta from the lower triangle, four rows a pass: an entry serves its row and its column at once."""
    n = beta.shape[0]
    out[:] = 0.0
    zero = K[0, 0] * 0
    for i in range(0, n, 4):
        height = min(4, n - i)
        if height == 4:
            a, b, c, d = K[i, :i], K[i + 1, :i], K[i + 2, :i], K[i + 3, :i]
            w, x, y, z = beta[i], beta[i + 1], beta[i + 2], beta[i + 3]
            sum_a = sum_b = sum_c = sum_d = zero
            for k in range(i):
                own = beta[k]
                sum_a += a[k] * own
                sum_b += b[k] * own
                sum_c += c[k] * own
                sum_d += d[k] * own
                out[k] += (w * a[k] + x * b[k]) + (y * c[k] + z * d[k])
            out[i] += sum_a
            out[i + 1] += sum_b
            out[i + 2] += sum_c
            out[i + 3] += sum_d
        for r in range(i, i + height):
            # What four rows leave: the square on the diagonal, and whole rows at the very end.
            for k in range(i if height == 4 else 0, r):
                out[r] += K[r, k] * beta[k]
                out[k] += K[r, k] * beta[r]
            out[r] += K[r, r] * beta[r]


@njit(cache=True, nogil=True, fastmath=_MATH)
def block_products(K: AnyArray, rows: AnyArray, columns: AnyArray, beta: AnyArray, out: AnyArray) -> None:
    """out[r] = Σ_c K[rows[r], columns[c]] beta[c], reading only these entries."""
    for r in range(rows.shape[0]):
        row = K[rows[r]]
        total = 0.0
        for c in range(columns.shape[0]):
            total += row[columns[c]] * beta[c]
        out[r] = total


@njit(cache=True, nogil=True, fastmath=_MATH)
def add_gated_rows(matrices: AnyArray, active: AnyArray, gates: AnyArray, out: AnyArray, first: int, last: int) -> None:
    """Write Σ_m g_m[i] K_m[i, k] g_m[k] into these rows of out; gates has shape (P, n).

    Whole rows: reading both halves in order is faster than mirroring one. A kernel whose gate is zero for a row is not
    read there.
    """
    n = out.shape[1]
    for i in range(first, last):
        for start in range(0, n, _GATED_STRIP):
            stop = min(start + _GATED_STRIP, n)
            row = out[i, start:stop]
            row[:] = 0.0
            for a in range(active.shape[0]):
                m = active[a]
                own = gates[m, i]
                if own == 0.0:
                    continue
                source = matrices[m, i, start:stop]
                others = gates[m, start:stop]
                for k in range(stop - start):
                    # The gates first: their product is the same on both sides of the diagonal.
                    row[k] += (own * others[k]) * source[k]


@njit(inline="always")
def _combine_strip(matrices: AnyArray, i: int, left: int, active: AnyArray, weights: AnyArray, row: AnyArray) -> None:
    """row = Σ_a weights[a] matrices[active[a], i] from `left` on, four kernels a pass: fewer writes."""
    row[:] = 0.0
    right = left + len(row)
    whole = len(active) - len(active) % 4
    for a in range(0, whole, 4):
        first, second = matrices[active[a], i, left:right], matrices[active[a + 1], i, left:right]
        third, fourth = matrices[active[a + 2], i, left:right], matrices[active[a + 3], i, left:right]
        p, q, r, s = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
        for j in range(len(row)):
            row[j] += p * first[j] + q * second[j] + r * third[j] + s * fourth[j]
    for a in range(whole, len(active)):
        only, weight = matrices[active[a], i, left:right], weights[a]
        for j in range(len(row)):
            row[j] += weight * only[j]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def combine_rows(
    matrices: AnyArray,
    active: AnyArray,
    counts: AnyArray,
    weights: AnyArray,
    out: AnyArray,
    start: int,
    stop: int,
) -> None:
    """Fill whole rows of out[c] = Σ_a weights[c, a] matrices[active[c, a]] over the first counts[c] kernels a.

    The stack is read once, not once a class. Writing the lower half only and mirroring it would read less, but the
    mirroring writes down columns and takes longer than what it saves.
    """
    n = matrices.shape[1]
    for i in range(start, stop):
        for left in range(0, n, _CLASS_STRIP):
            right = min(left + _CLASS_STRIP, n)
            for c in range(out.shape[0]):
                _combine_strip(matrices, i, left, active[c, : counts[c]], weights[c], out[c, i, left:right])
