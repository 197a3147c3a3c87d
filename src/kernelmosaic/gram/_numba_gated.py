"""The compiled pass that combines stored Gram matrices under gates."""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

#: Sums may be reordered, so that they vectorise.
_MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}
#: Columns accumulated at once: they stay in the first-level cache while the kernels pass by.
_STRIP = 2048


@njit(cache=True, nogil=True, fastmath=_MATH)
def add_gated_rows(
    matrices: NDArray[Any], active: NDArray[Any], gates: NDArray[Any], out: NDArray[Any], first: int, last: int
) -> None:
    """Write Σ_m g_m[i] K_m[i, k] g_m[k] into these rows of out; gates has shape (P, n).

    Whole rows: reading both halves in order is faster than mirroring one. A kernel whose gate is zero for a row is not
    read there.
    """
    n = out.shape[1]
    for i in range(first, last):
        for start in range(0, n, _STRIP):
            stop = min(start + _STRIP, n)
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
