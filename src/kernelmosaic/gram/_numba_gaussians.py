"""Compiled sums of Gaussians of one squared distance: it is read once, whatever the number of widths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, ArrayOrTensor, MatrixLike

#: Sums may be reordered, so that they vectorise.
MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}


@njit(inline="always")
def fast_exp(x: Any) -> ArrayOrTensor:
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


@njit(inline="always")
def exact_exp(x: Any) -> ArrayOrTensor:
    """The same in double precision, max(exp(x), 2⁻¹⁰⁰⁰): terms of the series of 2^f, |f| ≤ ½, down to rounding."""
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
def fill_distances(inner: Any, own: Any, others: Any, x: Any, Y: MatrixLike, share: Any, distances: Any) -> None:
    """distances[j] = own + others[j] − 2 inner[j], or ‖x − Y[j]‖² where that is at most a share of own + others[j]."""
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
    products: NDArray[np.float64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    rates: NDArray[np.float32],
    weights: NDArray[np.float32],
    out: NDArray[np.float32],
    distances: NDArray[np.float32],
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    share: float,
) -> None:
    """out[i, j] += Σ_m weights[m] exp(rates[m] D_ij), D_ij = left[i] + right[j] − 2 products[i, j].

    `distances` is room for a row of them. Where D_ij is at most a share of left[i] + right[j] (`unreliable_share`), it
    is computed anew from the samples X and Y.
    """
    width = out.shape[1]
    for i in range(out.shape[0]):
        row = out[i]
        fill_distances(products[i], left[i], right, X[i], Y, share, distances)
        for m in range(rates.shape[0]):
            rate, weight = rates[m], weights[m]
            for j in range(width):
                row[j] += weight * fast_exp(rate * distances[j])


@njit(cache=True, nogil=True, fastmath=MATH)
def multiply_gaussians(
    products: NDArray[np.float64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    rates: AnyArray,
    beta: AnyArray,
    out: NDArray[np.float64],
    distances: AnyArray,
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    share: float,
) -> None:
    """out[m, i] += Σ_j exp(rates[m] D_ij) beta[m, j], with exponentials in the precision of `rates`."""
    width = products.shape[1]
    for i in range(products.shape[0]):
        fill_distances(products[i], left[i], right, X[i], Y, share, distances)
        for m in range(rates.shape[0]):
            rate, factors = rates[m], beta[m]
            total = rate - rate
            for j in range(width):
                total += factors[j] * _exp(rate * distances[j])
            out[m, i] += total


def _exp(x: Any) -> ArrayOrTensor:
    """Exponential in the precision of x; compiled code takes the one or the other."""
    raise NotImplementedError


@overload(_exp, inline="always")
def _exp_of(x: Any) -> ArrayOrTensor:
    return fast_exp.py_func if x.bitwidth == 32 else exact_exp.py_func
