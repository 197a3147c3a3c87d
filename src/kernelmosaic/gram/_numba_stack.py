"""The compiled passes over stored Gram matrices; each reads an entry once, in the order it lies in memory."""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

#: Sums may be reordered, so that they vectorise.
_MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}
#: Columns accumulated at once: they stay in the first-level cache while the kernels pass by.
_STRIP = 4096
#: Side of the squares in which a triangle is mirrored.
_SQUARE = 32


@njit(cache=True, nogil=True, fastmath=_MATH)
def add_lower(
    matrices: NDArray[Any], active: NDArray[Any], weights: NDArray[Any], out: NDArray[Any], first: int, last: int
) -> None:
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
def mirror_lower(out: NDArray[Any], first: int, last: int) -> None:
    """Copy these rows of the lower triangle into the columns of the upper, square by square."""
    for top in range(first, last, _SQUARE):
        bottom = min(top + _SQUARE, last)
        for left in range(0, bottom, _SQUARE):
            for i in range(top, bottom):
                for k in range(left, min(left + _SQUARE, i)):
                    out[k, i] = out[i, k]


@njit(cache=True, nogil=True, fastmath=_MATH)
def symmetric_product(K: NDArray[Any], beta: NDArray[Any], out: NDArray[Any]) -> None:
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
def block_products(
    K: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any], beta: NDArray[Any], out: NDArray[Any]
) -> None:
    """out[r] = Σ_c K[rows[r], columns[c]] beta[c], reading only these entries."""
    for r in range(rows.shape[0]):
        row = K[rows[r]]
        total = 0.0
        for c in range(columns.shape[0]):
            total += row[columns[c]] * beta[c]
        out[r] = total
