"""The compiled loop that combines the stack once for every class. Imported only when it is used."""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

#: Entries of a row worked on at once: those of all kernels stay in the first-level cache while the classes pass by.
_STRIP = 512


# Forced inline: see `solvers._numba_smo`.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, forceinline=True)
def _combine_strip(
    matrices: NDArray[Any], i: int, left: int, active: NDArray[Any], weights: NDArray[Any], row: NDArray[Any]
) -> None:
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


@njit(cache=True, nogil=True)
def combine_rows(
    matrices: NDArray[Any],
    active: NDArray[Any],
    counts: NDArray[Any],
    weights: NDArray[Any],
    out: NDArray[Any],
    start: int,
    stop: int,
) -> None:
    """Fill whole rows of out[c] = Σ_a weights[c, a] matrices[active[c, a]] over the first counts[c] kernels a.

    The stack is read once, not once a class. Writing the lower half only and mirroring it would read less, but the
    mirroring writes down columns and takes longer than what it saves.
    """
    n = matrices.shape[1]
    for i in range(start, stop):
        for left in range(0, n, _STRIP):
            right = min(left + _STRIP, n)
            for c in range(out.shape[0]):
                _combine_strip(matrices, i, left, active[c, : counts[c]], weights[c], out[c, i, left:right])
