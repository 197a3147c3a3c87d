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
    """out = K beta, reading only the lower triangle: an entry serves its row and its column at once."""
    n = beta.shape[0]
    out[:] = 0.0
    zero = K[0, 0] * 0
    for i in range(n):
        row = K[i, :i]
        own = beta[i]
        total = zero
        for k in range(i):
            total += row[k] * beta[k]
            out[k] += own * row[k]
        out[i] += total + K[i, i] * own


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
