"""The compiled pass that prices kernels of column subsets: no matrix is formed, and what is read stays in the cache."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kernelmosaic.gram._numba_gaussians import MATH, fast_exp


@njit(cache=True, nogil=True, fastmath=MATH)
def add_forms(
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
                    total += factors[i] * fast_exp(rate * S[i])
                out[k] += total
