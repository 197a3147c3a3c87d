"""The compiled passes of stacks on the host: over stored matrices, and over distances.

The functions that `stack.StoredStack` calls come first; each uses the cores that this process may
use. Then come the loops over matrices, which read every entry once, in the order of memory, and the
sums of Gaussians, which read every distance once for all widths.
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
from kernelmosaic.gram.tuning import FEW_KERNELS, PRODUCT_STRIPS, SPARSE_SUPPORT
from kernelmosaic.kernels.distances import unreliable_share

#: Sums may be reordered, so that they vectorise.
MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}
#: Side of the squares in which a triangle is mirrored, or a block transposed: a cache line of
#: single precision.
_SQUARE = 16


def combine(matrices: AnyArray, weights: AnyArray, out: AnyArray) -> AnyArray:
    """Return Σ_m weights_m K_m, written to `out`.

    Parameters
    ----------
    matrices : ndarray of shape (P, n, n)
        The symmetric matrices K_m.
    weights : ndarray of shape (P,)
        The weights; kernels of weight zero are not read.
    out : ndarray of shape (n, n)
        The sum.
    """
    active = np.flatnonzero(weights)
    if len(active) <= FEW_KERNELS:
        combine_classes(matrices, weights[np.newaxis], out[np.newaxis])
        return out
    factors = weights[active].astype(matrices.dtype)

    def fill(rows: slice) -> None:
        add_lower(matrices, active, factors, out, rows.start, rows.stop)
        mirror_lower(out, rows.start, rows.stop)

    # Strips of the lower triangle with nearly equal numbers of entries; those of the longest rows
    # are filled first.
    fractions = np.sqrt(np.linspace(0.0, 1.0, PRODUCT_STRIPS + 1))
    edges = np.unique(np.round(len(out) * fractions).astype(int))
    strips = [slice(int(first), int(end)) for first, end in pairwise(edges)]
    run_threads(fill, strips[::-1], matrices.nbytes)
    return out


def combine_classes(matrices: AnyArray, weights: AnyArray, out: AnyArray) -> AnyArray:
    """Return Σ_m weights[c, m] K_m of every class c, written to out[c].

    Parameters
    ----------
    matrices : ndarray of shape (P, n, n)
        The symmetric matrices K_m.
    weights : ndarray of shape (classes, P)
        The weights.
    out : ndarray of shape (classes, n, n)
        The sums.
    """
    n = matrices.shape[1]
    # The active kernels of each class come first.
    counts = np.count_nonzero(weights, axis=1)
    active = np.argsort(weights == 0, axis=1, kind="stable")
    factors = np.take_along_axis(weights, active, axis=1).astype(out.dtype)

    def fill(rows: slice) -> None:
        combine_rows(matrices, active, counts, factors, out, rows.start, rows.stop)

    strip_rows = -(-n // PRODUCT_STRIPS)
    run_threads(fill, row_strips(n, strip_rows), matrices.nbytes + out.nbytes)
    return out


def combine_gated(matrices: AnyArray, gates: AnyArray, out: AnyArray) -> AnyArray:
    """Return Σ_m g_m g_mᵀ ∘ K_m for gates of shape (n, P), written to `out`."""
    active = np.flatnonzero(np.any(gates != 0, axis=0))
    factors = np.ascontiguousarray(gates.T, dtype=matrices.dtype)
    # Gates below rounding count as zero: products with them may be denormal numbers, which are
    # slow.
    factors[np.abs(factors) < np.finfo(matrices.dtype).eps ** 2] = 0.0

    def fill(rows: slice) -> None:
        add_gated_rows(matrices, active, factors, out, rows.start, rows.stop)

    strip_rows = -(-len(out) // PRODUCT_STRIPS)
    run_threads(fill, row_strips(len(out), strip_rows), matrices.nbytes)
    return out


def products(
    matrices: AnyArray,
    beta: AnyArray,
    rows: Indices | None,
    kernels: Sequence[int] | AnyArray | None,
    entries: int,
) -> Array:
    """Return K_m β at these rows, of shape (P, n_rows) or (P, n_rows, k).

    Parameters
    ----------
    matrices : ndarray of shape (P, n, n)
        The symmetric matrices K_m.
    beta : ndarray of shape (n,) or (n, k)
        Coefficients.
    rows : ndarray of int or None
        Row numbers; None means all.
    kernels : sequence of int or None
        The kernels that are multiplied, the products of others are zero; None means all.
    entries : int
        Most entries that are picked out of a matrix at once where β is sparse and has columns.
    """
    P, n, _ = matrices.shape
    support = nonzero_rows(beta)
    out_rows = np.arange(n) if rows is None else rows
    out = np.zeros((P, len(out_rows), *beta.shape[1:]))
    reads_all = len(support) > SPARSE_SUPPORT * n
    coefficients = (beta if reads_all else beta[support]).astype(matrices.dtype)
    columns = np.ascontiguousarray(coefficients.T)
    strip_rows = entries // max(len(support), 1)

    def multiply(m: int) -> None:
        if beta.ndim > 1 and reads_all:
            # The matrices are symmetric, and a product of βᵀ, which has a few long rows, is faster
            # than one of β.
            values = (columns @ matrices[m]).T
            out[m] = values if rows is None else values[rows]
        elif beta.ndim > 1:
            for strip in row_strips(len(out_rows), strip_rows):
                block = matrices[m][np.ix_(out_rows[strip], support)]
                out[m, strip] = block @ coefficients
        elif reads_all:
            values = np.empty(n, dtype=np.float64)
            symmetric_product(matrices[m], coefficients, values)
            out[m] = values[out_rows]
        else:
            block_products(matrices[m], out_rows, support, coefficients, out[m])

    numbers = range(P) if kernels is None else kernels
    if beta.ndim == 1:
        run_threads(multiply, numbers, matrices.nbytes)
    elif len(support):
        with one_blas_thread():
            run_threads(multiply, numbers, matrices.nbytes)
    return out


@njit(cache=True, nogil=True, fastmath=MATH)
def add_lower(
    matrices: AnyArray, active: AnyArray, weights: AnyArray, out: AnyArray, first: int, last: int
) -> None:
    """Write Σ_a weights[a] matrices[active[a]] into rows `first` to `last` of `out`.

    Only the lower triangle is written.
    """
    # Columns of a row that stay in the first-level cache while all kernels are added to it.
    strip = 4096
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
    """Copy rows `first` to `last` of the lower triangle into the upper one, square by square."""
    for top in range(first, last, _SQUARE):
        bottom = min(top + _SQUARE, last)
        for left in range(0, bottom, _SQUARE):
            if bottom - top == _SQUARE and left + _SQUARE <= top:
                source = out[top:bottom, left : left + _SQUARE]
                target = out[left : left + _SQUARE, top:bottom]
                for k in range(_SQUARE):
                    for i in range(_SQUARE):
                        target[k, i] = source[i, k]
            else:
                for i in range(top, bottom):
                    for k in range(left, min(left + _SQUARE, i)):
                        out[k, i] = out[i, k]


@njit(cache=True, nogil=True)
def write_transposed(block: AnyArray, out: AnyArray, top: int, left: int) -> None:
    """Write the transpose of a block into `out`, whose upper left entry is (top, left).

    It is written in squares: a row of a square is one vector, and memory keeps up with writes to as
    many rows as a square has.
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
    """Write K beta into `out`, reading only the lower triangle of K, four rows in a pass.

    Each entry that is read is used for its row and for its column.
    """
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
                beta_k = beta[k]
                sum_a += a[k] * beta_k
                sum_b += b[k] * beta_k
                sum_c += c[k] * beta_k
                sum_d += d[k] * beta_k
                out[k] += (w * a[k] + x * b[k]) + (y * c[k] + z * d[k])
            out[i] += sum_a
            out[i + 1] += sum_b
            out[i + 2] += sum_c
            out[i + 3] += sum_d
        for r in range(i, i + height):
            # The entries that the loop above does not read: the square on the diagonal, and the
            # whole of the last rows, which are fewer than four.
            for k in range(i if height == 4 else 0, r):
                out[r] += K[r, k] * beta[k]
                out[k] += K[r, k] * beta[r]
            out[r] += K[r, r] * beta[r]


@njit(cache=True, nogil=True, fastmath=MATH)
def block_products(
    K: AnyArray, rows: AnyArray, columns: AnyArray, beta: AnyArray, out: AnyArray
) -> None:
    """Write Σ_c K[rows[r], columns[c]] beta[c] into out[r], reading only these entries."""
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
    """Write Σ_m g_m[i] K_m[i, k] g_m[k] into rows `first` to `last` of `out`.

    Whole rows are read: that is faster than reading a half and mirroring it. A kernel whose gate is
    zero for a row is not read there. The gates have the shape (P, n).
    """
    n = out.shape[1]
    # Columns of a row, and of gates, that stay in the first-level cache.
    strip = 2048
    for i in range(first, last):
        for start in range(0, n, strip):
            stop = min(start + strip, n)
            row = out[i, start:stop]
            row[:] = 0.0
            for a in range(active.shape[0]):
                m = active[a]
                row_gate = gates[m, i]
                if row_gate == 0.0:
                    continue
                source = matrices[m, i, start:stop]
                column_gates = gates[m, start:stop]
                for k in range(stop - start):
                    # The gates are multiplied first: their product is rounded alike on both sides
                    # of the diagonal.
                    row[k] += (row_gate * column_gates[k]) * source[k]


@njit(inline="always")
def _combine_strip(
    matrices: AnyArray, i: int, left: int, active: AnyArray, weights: AnyArray, row: AnyArray
) -> None:
    """Write Σ_a weights[a] matrices[active[a], i, left:] into `row`, of any length.

    Four kernels are added in a pass, so that the row is written less often.
    """
    row[:] = 0.0
    right = left + len(row)
    whole = len(active) - len(active) % 4
    for a in range(0, whole, 4):
        first = matrices[active[a], i, left:right]
        second = matrices[active[a + 1], i, left:right]
        third = matrices[active[a + 2], i, left:right]
        fourth = matrices[active[a + 3], i, left:right]
        p, q, r, s = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
        for j in range(len(row)):
            row[j] += p * first[j] + q * second[j] + r * third[j] + s * fourth[j]
    for a in range(whole, len(active)):
        source = matrices[active[a], i, left:right]
        weight = weights[a]
        for j in range(len(row)):
            row[j] += weight * source[j]


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
    """Write Σ_a weights[c, a] matrices[active[c, a]] into rows `start` to `stop` of out[c].

    The sum is over the first counts[c] kernels. The stack is read once for all classes. Whole rows
    are written: mirroring the lower half would read less, but its writes along columns take longer
    than that saves.
    """
    n = matrices.shape[1]
    # Columns of a row that stay in the first-level cache while kernels are added for all classes.
    strip = 512
    for i in range(start, stop):
        for left in range(0, n, strip):
            right = min(left + strip, n)
            for c in range(out.shape[0]):
                _combine_strip(
                    matrices, i, left, active[c, : counts[c]], weights[c], out[c, i, left:right]
                )


# Sums of Gaussians --------------------------------------------------------------------------------

#: The numbers that squared distances between samples X and Y are computed from: inner products of
#: the samples minus one centre, the squared norms of both then, X, Y and a share.
#:
#: D_ij = row_norms[i] + column_norms[j] − 2 inner[i, j]. Where that is at most the share of
#: row_norms[i] + column_norms[j], rounding has cancelled too many digits, and it is computed anew
#: from X and Y. It is a plain tuple, since calls of compiled code take longer with a named one.
Tile = tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, float]


class Centred(NamedTuple):
    """Samples X, V = X minus a centre, and the squared norms of V.

    Far from the origin, distances would be lost in the rounding of the norms of X.
    """

    X: Array
    V: Array
    norms: Array

    @classmethod
    def of(cls, view: AnyArray, centre: AnyArray) -> Centred:
        """Return samples with this centre."""
        X = np.ascontiguousarray(view, dtype=np.float64)
        V = X - centre
        return cls(X, V, np.einsum("ij,ij->i", V, V))

    def take(self, rows: Any) -> Centred:
        """Return some of the samples."""
        return Centred(self.X[rows], self.V[rows], self.norms[rows])

    def unreliable(self, other: Centred, rates: Sequence[float], dtype: DType) -> float:
        """Return the share of a `Tile` between these samples and others.

        It is `unreliable_share` for Gaussians with these rates.
        """
        steepest = -min(rates)
        largest = float(self.norms.max()) + float(other.norms.max())
        scale = 1.0 / steepest if steepest else np.inf
        return unreliable_share(self.X.shape[1], largest, scale, dtype)

    def tile(self, other: Centred, share: float) -> Tile:
        """Return the `Tile` between these samples and others with the same centre."""
        return self.V @ other.V.T, self.norms, other.norms, self.X, other.X, share


@njit(inline="always")
def fast_exp(x: Any) -> ArrayOrTensor:
    """Return max(exp(x), 2⁻⁶⁰) for x ≤ 0 in single precision, to about two units in the last place.

    It is 2^k times a polynomial in f, with x log₂e = k + f and |f| ≤ ½, and has no branch, so that
    it vectorises. Products with numbers below 2⁻⁶⁰ may be denormal, which are slow.
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
    """Return max(exp(x), 2⁻¹⁰⁰⁰) for x ≤ 0 in double precision, up to rounding.

    It is 2^k times the Taylor series of 2^f, with x log₂e = k + f and |f| ≤ ½.
    """
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
    inner: Any,
    row_norm: Any,
    column_norms: Any,
    x: Any,
    Y: AnyArray,
    share: float,
    distances: AnyArray,
) -> None:
    """Write a row of the squared distances of a `Tile` into `distances`."""
    n_unreliable = 0
    for j in range(len(distances)):
        total = row_norm + column_norms[j]
        d = total - 2.0 * inner[j]
        distances[j] = d
        n_unreliable += d <= share * total
    # Two loops, so that the first one vectorises: most rows need no second.
    if n_unreliable:
        for j in range(len(distances)):
            total = row_norm + column_norms[j]
            if total - 2.0 * inner[j] <= share * total:
                d = 0.0
                for c in range(x.shape[0]):
                    d += (x[c] - Y[j, c]) ** 2
                distances[j] = d


@njit(cache=True, nogil=True, fastmath=MATH)
def add_gaussians(
    tile: Tile, rates: NDArray[np.float32], weights: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Add Σ_m weights[m] exp(rates[m] D_ij) to out[i, j], with the D of the tile."""
    inner, row_norms, column_norms, X, Y, share = tile
    width = out.shape[1]
    distances = np.empty(width, dtype=rates.dtype)
    for i in range(out.shape[0]):
        row = out[i]
        fill_distances(inner[i], row_norms[i], column_norms, X[i], Y, share, distances)
        for m in range(rates.shape[0]):
            rate = rates[m]
            weight = weights[m]
            for j in range(width):
                row[j] += weight * fast_exp(rate * distances[j])


@njit(cache=True, nogil=True, fastmath=MATH)
def multiply_gaussians(tile: Tile, rates: AnyArray, beta: AnyArray, out: Array) -> None:
    """Add Σ_j exp(rates[m] D_ij) beta[m, j] to out[m, i], with the D of the tile.

    The exponentials are in the precision of `rates`.

    Parameters
    ----------
    tile : Tile
        The distances between some rows and some columns.
    rates : ndarray of shape (G,)
        The constants of G Gaussians, not positive.
    beta : ndarray of shape (G, n_columns)
    out : ndarray of shape (G, n_rows)
        Changed in place.
    """
    inner, row_norms, column_norms, X, Y, share = tile
    width = beta.shape[1]
    distances = np.empty(width, dtype=rates.dtype)
    for i in range(out.shape[1]):
        fill_distances(inner[i], row_norms[i], column_norms, X[i], Y, share, distances)
        for m in range(rates.shape[0]):
            rate = rates[m]
            factors = beta[m]
            # A zero in the precision of the rates; 0.0 would make sums in single precision double.
            total = rate - rate
            for j in range(width):
                total += factors[j] * _exp(rate * distances[j])
            out[m, i] += total


@njit(cache=True, nogil=True, fastmath=MATH)
def write_distances(tile: Tile, out: AnyArray) -> None:
    """Write the D_ij of the tile into out[i, j]."""
    inner, row_norms, column_norms, X, Y, share = tile
    for i in range(out.shape[0]):
        fill_distances(inner[i], row_norms[i], column_norms, X[i], Y, share, out[i])


@njit(cache=True, nogil=True, fastmath=MATH)
def write_gaussian(distances: AnyArray, rate: Any, weight: Any, out: AnyArray) -> None:
    """Write weight · exp(rate D_ij) into out[i, j]; all arrays are of the same precision."""
    for i in range(out.shape[0]):
        row = out[i]
        row_distances = distances[i]
        for j in range(out.shape[1]):
            row[j] = weight * _exp(rate * row_distances[j])


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
    """Write weights[a] exp(rates[a] D) and its mirror image into matrices[kernels[a]], for every a.

    The upper left entry of the block is (top, left). For a block on the diagonal only the lower
    triangle of D is read, and D is made symmetric.
    """
    height, width = distances.shape
    if top == left:
        mirror_lower(distances, 0, height)
    # A strip of the block, which stays in the cache until it is mirrored.
    strip = np.empty((_SQUARE, width), dtype=matrices.dtype)
    for a in range(rates.shape[0]):
        rate = rates[a]
        weight = weights[a]
        out = matrices[kernels[a]]
        for start in range(0, height, _SQUARE):
            rows = min(_SQUARE, height - start)
            for i in range(rows):
                row = strip[i]
                row_distances = distances[start + i]
                target = out[top + start + i, left : left + width]
                for j in range(width):
                    row[j] = weight * _exp(rate * row_distances[j])
                for j in range(width):
                    target[j] = row[j]
            if top != left:
                write_transposed(strip[:rows], out, left, top + start)


def _exp(x: ArrayOrTensor) -> ArrayOrTensor:
    """Return exp(x) in the precision of x: compiled code calls `fast_exp` or `exact_exp`."""
    raise NotImplementedError


@overload(_exp, inline="always")
def _exp_of(x: Any) -> ArrayOrTensor:
    """Return the function that compiled code calls for `_exp`, by the type of x."""
    return fast_exp.py_func if x.bitwidth == 32 else exact_exp.py_func
