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
def add_gated_lower(
    matrices: NDArray[Any], active: NDArray[Any], gates: NDArray[Any], out: NDArray[Any], first: int, last: int
) -> None:
    """Write Σ_m g_m[i] K_m[i, k] g_m[k] into the lower triangle of these rows of out; gates has shape (P, n).

    A kernel whose gate is zero for a row is not read there.
    """
    for i in range(first, last):
        for start in range(0, i + 1, _STRIP):
            stop = min(start + _STRIP, i + 1)
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
                    row[k] += own * source[k] * others[k]
