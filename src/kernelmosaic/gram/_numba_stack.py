"""The compiled passes of stacks on the host: over stored matrices, and over distances that kernels
are read off.

What `stack.StoredStack` calls comes first, each on the cores that are ours, then the loops over
matrices, which read an entry once in the order it lies in memory, then the sums of Gaussians, which
read a distance once whatever the number of widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices
from kernelmosaic.backend import one_blas_thread, row_strips, run_threads
from kernelmosaic.files import njit
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.kernels.distances import unreliable_share

#: Sums may be reordered, so that they vectorise.
MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}
#: Side of the squares in which a triangle is mirrored, or a block transposed: a cache line of
#: single precision.
_SQUARE = 16


def combine(matrices: AnyArray, weights: AnyArray, out: AnyArray) -> AnyArray:
    """Write Σ_m weights_m K_m."""
    active = np.flatnonzero(weights)
    if (
        len(active) <= 3
    ):  # whole rows of so few kernels are read faster than half of them are mirrored
        combine_classes(matrices, weights[np.newaxis], out[np.newaxis])
        return out
    factors = weights[active].astype(matrices.dtype)

    def fill(rows: slice) -> None:
        add_lower(matrices, active, factors, out, rows.start, rows.stop)
        mirror_lower(out, rows.start, rows.stop)

    # Strips of the lower triangle with about as many entries each, the longest rows first.
    edges = np.unique(np.round(len(out) * np.sqrt(np.linspace(0.0, 1.0, 5))).astype(int))
    run_threads(fill, [slice(int(a), int(b)) for a, b in pairwise(edges)][::-1], matrices.nbytes)
    return out


def combine_classes(matrices: AnyArray, weights: AnyArray, out: AnyArray) -> AnyArray:
    """Write Σ_m weights[c, m] K_m into out[c]."""
    n, counts = matrices.shape[1], np.count_nonzero(weights, axis=1)
    active = np.argsort(weights == 0, axis=1, kind="stable")
    factors = np.take_along_axis(weights, active, axis=1).astype(out.dtype)

    def fill(rows: slice) -> None:
        combine_rows(matrices, active, counts, factors, out, rows.start, rows.stop)

    run_threads(fill, row_strips(n, -(-n // 4)), matrices.nbytes + out.nbytes)
    return out


def combine_gated(matrices: AnyArray, gates: AnyArray, out: AnyArray) -> AnyArray:
    """Write Σ_m g_m g_mᵀ ∘ K_m for gates of shape (n, P)."""
    active = np.flatnonzero(np.any(gates != 0, axis=0))
    factors = np.ascontiguousarray(gates.T, dtype=matrices.dtype)
    # Gates below rounding are no gates, and reading denormal numbers is slow.
    factors[np.abs(factors) < np.finfo(matrices.dtype).eps ** 2] = 0.0

    def fill(rows: slice) -> None:
        add_gated_rows(matrices, active, factors, out, rows.start, rows.stop)

    run_threads(fill, row_strips(len(out), -(-len(out) // 4)), matrices.nbytes)
    return out


def products(
    matrices: AnyArray,
    beta: AnyArray,
    rows: Indices | None,
    kernels: Sequence[int] | AnyArray | None,
    entries: int,
) -> Array:
    """Return K_m β at the given rows, picking up to so many entries out at once where β is
    sparse."""
    P, n, _ = matrices.shape
    support = nonzero_rows(beta)
    at = np.arange(n) if rows is None else rows
    out = np.zeros((P, len(at), *beta.shape[1:]))
    # Reading half of a matrix in order is faster than picking most of its entries one by one.
    whole = len(support) > 0.3 * n
    coefficients = (beta if whole else beta[support]).astype(matrices.dtype)
    columns = np.ascontiguousarray(coefficients.T)

    def multiply(m: int) -> None:
        if beta.ndim > 1 and whole:
            # The matrices are symmetric, and the few long rows of βᵀ suit the product better than
            # columns.
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


@njit(cache=True, nogil=True, fastmath=MATH)
def add_lower(
    matrices: AnyArray, active: AnyArray, weights: AnyArray, out: AnyArray, first: int, last: int
) -> None:
    """Write Σ weights[a] matrices[active[a]] into the lower triangle of these rows of out."""
    strip = 4096  # columns that stay in the first-level cache while the kernels pass by
    for i in range(first, last):
        for start in range(0, i + 1, strip):
            stop = min(start + strip, i + 1)
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
                source, target = (
                    out[top:bottom, left : left + _SQUARE],
                    out[left : left + _SQUARE, top:bottom],
                )
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

    What a square writes to a row is one vector, and so few rows at once are ones that memory keeps
    up with.
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


@njit(cache=True, nogil=True, fastmath=MATH)
def symmetric_product(K: AnyArray, beta: AnyArray, out: AnyArray) -> None:
    """out = K beta from the lower triangle, four rows a pass: an entry serves its row and its
    column at once."""
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


@njit(cache=True, nogil=True, fastmath=MATH)
def block_products(
    K: AnyArray, rows: AnyArray, columns: AnyArray, beta: AnyArray, out: AnyArray
) -> None:
    """out[r] = Σ_c K[rows[r], columns[c]] beta[c], reading only these entries."""
    for r in range(rows.shape[0]):
        row = K[rows[r]]
        total = 0.0
        for c in range(columns.shape[0]):
            total += row[columns[c]] * beta[c]
        out[r] = total


@njit(cache=True, nogil=True, fastmath=MATH)
def add_gated_rows(
    matrices: AnyArray, active: AnyArray, gates: AnyArray, out: AnyArray, first: int, last: int
) -> None:
    """Write Σ_m g_m[i] K_m[i, k] g_m[k] into these rows of out; gates has shape (P, n).

    Whole rows: reading both halves in order is faster than mirroring one. A kernel whose gate is
    zero for a row is not read there.
    """
    n, strip = out.shape[1], 2048
    for i in range(first, last):
        for start in range(0, n, strip):
            stop = min(start + strip, n)
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
def _combine_strip(
    matrices: AnyArray, i: int, left: int, active: AnyArray, weights: AnyArray, row: AnyArray
) -> None:
    """row = Σ_a weights[a] matrices[active[a], i] from `left` on, four kernels a pass: fewer
    writes."""
    row[:] = 0.0
    right = left + len(row)
    whole = len(active) - len(active) % 4
    for a in range(0, whole, 4):
        first, second = matrices[active[a], i, left:right], matrices[active[a + 1], i, left:right]
        third, fourth = (
            matrices[active[a + 2], i, left:right],
            matrices[active[a + 3], i, left:right],
        )
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
    """Fill whole rows of out[c] = Σ_a weights[c, a] matrices[active[c, a]] over the first counts[c]
    kernels a.

    The stack is read once, not once a class. Writing the lower half only and mirroring it would
    read less, but the mirroring writes down columns and takes longer than what it saves.
    """
    n, strip = matrices.shape[1], 512
    for i in range(start, stop):
        for left in range(0, n, strip):
            right = min(left + strip, n)
            for c in range(out.shape[0]):
                _combine_strip(
                    matrices, i, left, active[c, : counts[c]], weights[c], out[c, i, left:right]
                )


# Sums of Gaussians --------------------------------------------------------------------------------

#: What the squared distances between samples X and Y less one centre are read off: inner products,
#: the squared norms of both, X, Y and a share. D_ij = own[i] + others[j] − 2 inner[i, j]; where
#: that is at most the share of own[i] + others[j], it is computed anew from X and Y. A plain tuple:
#: calls of compiled code take longer with a named one.
Tile = tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, float]


class Centred(NamedTuple):
    """Samples X, the same less a centre, and their squared norms then: far from the origin norms
    swallow distances."""

    X: Array
    V: Array
    norms: Array

    @classmethod
    def of(cls, view: AnyArray, centre: AnyArray) -> Centred:
        """Take the centre off samples."""
        X = np.ascontiguousarray(view, dtype=np.float64)
        V = X - centre
        return cls(X, V, np.einsum("ij,ij->i", V, V))

    def take(self, rows: Any) -> Centred:
        """Return some of the samples."""
        return Centred(*(one[rows] for one in self))

    def unreliable(self, other: Centred, rates: Sequence[float], dtype: DType) -> float:
        """Return `unreliable_share` between these samples and others, for Gaussians with these
        rates."""
        steepest = -min(rates)
        largest = float(self.norms.max()) + float(other.norms.max())
        return unreliable_share(
            self.X.shape[1], largest, 1.0 / steepest if steepest else np.inf, dtype
        )

    def tile(self, other: Centred, share: float) -> Tile:
        """Return what the distances between these samples and others, less the same centre, are
        read off."""
        return self.V @ other.V.T, self.norms, other.norms, self.X, other.X, share


@njit(inline="always")
def fast_exp(x: Any) -> ArrayOrTensor:
    """max(exp(x), 2⁻⁶⁰) of x ≤ 0 in single precision, to about two units in the last place, as 2^k
    times a polynomial.

    No branch, so that it vectorises. What is below 2⁻⁶⁰ would turn products into denormal numbers,
    which are slow.
    """
    y = max(x * np.float32(1.4426950408889634), np.float32(-60.0))
    k = np.int32(y - np.float32(0.5))
    f = y - np.float32(k)
    p = np.float32(1.5403530393381606e-4)
    p = p * f + np.float32(1.3333558146428443e-3)
    p = p * f + np.float32(9.618129107628477e-3)
    p = p * f + np.float32(5.550410866482158e-2)
    p = p * f + np.float32(2.402265069591007e-1)
    p = p * f + np.float32(6.931471805599453e-1)
    p = p * f + np.float32(1.0)
    return p * np.int32(np.int32(k + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(inline="always")
def exact_exp(x: Any) -> ArrayOrTensor:
    """The same in double precision, max(exp(x), 2⁻¹⁰⁰⁰): terms of the series of 2^f, |f| ≤ ½, down
    to rounding."""
    y = max(x * 1.4426950408889634, -1000.0)
    k = np.int64(y - 0.5)
    f = (y - k) * 0.6931471805599453
    p = 1.0 / 6227020800.0
    p = p * f + 1.0 / 479001600.0
    p = p * f + 1.0 / 39916800.0
    p = p * f + 1.0 / 3628800.0
    p = p * f + 1.0 / 362880.0
    p = p * f + 1.0 / 40320.0
    p = p * f + 1.0 / 5040.0
    p = p * f + 1.0 / 720.0
    p = p * f + 1.0 / 120.0
    p = p * f + 1.0 / 24.0
    p = p * f + 1.0 / 6.0
    p = p * f + 0.5
    p = p * f + 1.0
    p = p * f + 1.0
    return p * np.int64(np.int64(k + 1023) << 52).view(np.float64)


@njit(inline="always")
def fill_distances(
    inner: Any, own: Any, others: Any, x: Any, Y: AnyArray, share: float, distances: AnyArray
) -> None:
    """Write a row of D."""
    close = 0
    for j in range(len(distances)):
        total = own + others[j]
        d = total - 2.0 * inner[j]
        distances[j] = d
        close += d <= share * total
    # Two loops, so that the first one vectorises: most rows need no second.
    if close:
        for j in range(len(distances)):
            total = own + others[j]
            if total - 2.0 * inner[j] <= share * total:
                d = 0.0
                for c in range(x.shape[0]):
                    d += (x[c] - Y[j, c]) ** 2
                distances[j] = d


@njit(cache=True, nogil=True, fastmath=MATH)
def add_gaussians(
    tile: Tile, rates: NDArray[np.float32], weights: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """out[i, j] += Σ_m weights[m] exp(rates[m] D_ij)."""
    inner, own, others, X, Y, share = tile
    width = out.shape[1]
    distances = np.empty(width, dtype=rates.dtype)
    for i in range(out.shape[0]):
        row = out[i]
        fill_distances(inner[i], own[i], others, X[i], Y, share, distances)
        for m in range(rates.shape[0]):
            rate, weight = rates[m], weights[m]
            for j in range(width):
                row[j] += weight * fast_exp(rate * distances[j])


@njit(cache=True, nogil=True, fastmath=MATH)
def multiply_gaussians(tile: Tile, rates: AnyArray, beta: AnyArray, out: Array) -> None:
    """out[m, i] += Σ_j exp(rates[m] D_ij) beta[m, j], with exponentials in the precision of
    `rates`."""
    inner, own, others, X, Y, share = tile
    width = beta.shape[1]
    distances = np.empty(width, dtype=rates.dtype)
    for i in range(out.shape[1]):
        fill_distances(inner[i], own[i], others, X[i], Y, share, distances)
        for m in range(rates.shape[0]):
            rate, factors = rates[m], beta[m]
            total = rate - rate
            for j in range(width):
                total += factors[j] * _exp(rate * distances[j])
            out[m, i] += total


@njit(cache=True, nogil=True, fastmath=MATH)
def write_distances(tile: Tile, out: AnyArray) -> None:
    """out[i, j] = D_ij."""
    inner, own, others, X, Y, share = tile
    for i in range(out.shape[0]):
        fill_distances(inner[i], own[i], others, X[i], Y, share, out[i])


@njit(cache=True, nogil=True, fastmath=MATH)
def write_gaussian(distances: AnyArray, rate: Any, weight: Any, out: AnyArray) -> None:
    """out[i, j] = weight exp(rate D_ij), in the precision of all of them."""
    for i in range(out.shape[0]):
        row, own = out[i], distances[i]
        for j in range(out.shape[1]):
            row[j] = weight * _exp(rate * own[j])


@njit(cache=True, nogil=True, fastmath=MATH)
def write_gaussians(
    distances: AnyArray,
    rates: AnyArray,
    weights: AnyArray,
    kernels: AnyArray,
    matrices: AnyArray,
    top: int,
    left: int,
) -> None:
    """Write weights[a] exp(rates[a] D) into matrices[kernels[a]], from (top, left) on, and its
    mirror image.

    A block on the diagonal, of which the lower triangle of D is read, is its own transpose; it is
    changed.
    """
    height, width = distances.shape
    if top == left:
        mirror_lower(distances, 0, height)
    room = np.empty((_SQUARE, width), dtype=matrices.dtype)
    for a in range(rates.shape[0]):
        rate, weight, out = rates[a], weights[a], matrices[kernels[a]]
        for start in range(0, height, _SQUARE):
            rows = min(_SQUARE, height - start)
            for i in range(rows):
                row, own, target = (
                    room[i],
                    distances[start + i],
                    out[top + start + i, left : left + width],
                )
                for j in range(width):
                    row[j] = weight * _exp(rate * own[j])
                for j in range(width):
                    target[j] = row[j]
            if top != left:
                write_transposed(room[:rows], out, left, top + start)


def _exp(x: ArrayOrTensor) -> ArrayOrTensor:
    """Exponential in the precision of x; compiled code takes the one or the other."""
    raise NotImplementedError


@overload(_exp, inline="always")
def _exp_of(x: Any) -> ArrayOrTensor:
    return fast_exp.py_func if x.bitwidth == 32 else exact_exp.py_func
