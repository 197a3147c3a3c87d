"""Compiled sums of Gaussians of one squared distance: it is read once, whatever the number of widths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

#: Sums may be reordered, so that they vectorise.
MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}


@njit(inline="always")
def fast_exp(x: Any) -> Any:
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


@njit(cache=True, nogil=True, fastmath=MATH)
def add_gaussians(
    products: NDArray[np.float64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    rates: NDArray[np.float32],
    weights: NDArray[np.float32],
    out: NDArray[np.float32],
    distances: NDArray[np.float32],
) -> None:
    """out[i, j] += Σ_m weights[m] exp(rates[m] D_ij), D_ij = left[i] + right[j] − 2 products[i, j].

    `distances` is room for a row of them.
    """
    width = out.shape[1]
    for i in range(out.shape[0]):
        row, inner, own = out[i], products[i], left[i]
        for j in range(width):
            distances[j] = max(own + right[j] - 2.0 * inner[j], 0.0)
        for m in range(rates.shape[0]):
            rate, weight = rates[m], weights[m]
            for j in range(width):
                row[j] += weight * fast_exp(rate * distances[j])
