"""The compiled pass that prices kernels of column subsets: no matrix is formed, and what is read stays in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: Sums may be reordered, so that they vectorise.
_MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}


@njit(inline="always")
def _exp(x: Any) -> Any:
    """max(exp(x), 2⁻⁶⁰) of x ≤ 0 in single precision, to about two units in the last place, as 2^k times a polynomial.

    No branch, so that it vectorises. What is below 2⁻⁶⁰ would turn products into denormal numbers, which are slow.
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


@njit(cache=True, nogil=True, fastmath=_MATH)
def add_prices(
    D: NDArray[np.float32],
    w: NDArray[np.float32],
    subsets: NDArray[np.int32],
    starts: NDArray[np.int64],
    rates: NDArray[np.float32],
    out: NDArray[np.float64],
    first: int,
    last: int,
    chunk: int,
) -> None:
    """out[k] += Σ_p w[p] exp(rates[k] Σ_c D[c, p]), c in subsets[s], for the kernels k of the subsets first ≤ s < last.

    The kernels of subset s are those from starts[s] to starts[s + 1]: they share its distances. So many pairs as are a
    chunk are summed in single precision before the sum is added to one in double.
    """
    n_pairs = w.shape[0]
    S = np.empty(chunk, dtype=np.float32)
    for s in range(first, last):
        for a in range(0, n_pairs, chunk):
            b = min(a + chunk, n_pairs)
            S[: b - a] = D[subsets[s, 0], a:b]
            for c in range(1, subsets.shape[1]):
                row = D[subsets[s, c], a:b]
                for i in range(b - a):
                    S[i] += row[i]
            factors = w[a:b]
            for k in range(starts[s], starts[s + 1]):
                rate = rates[k]
                total = np.float32(0.0)
                for i in range(b - a):
                    total += factors[i] * _exp(rate * S[i])
                out[k] += total
