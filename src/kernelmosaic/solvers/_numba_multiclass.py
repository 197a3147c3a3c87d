"""The compiled loops of the multi-class solver. Imported only when a program is solved: Numba is slow to import."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: A diagonal entry below this share of the sample's largest is raised to it: a class whose kernels have no weight.
_FLOOR = 1e-8
#: Newton steps on a sample's multiplier; each fixes the set of free classes, so that a handful do.
_NEWTON = 60
#: Relative to the sample's price: a coefficient this near to its bound is at its bound, up to rounding.
_NEAR = 1e-12
#: Relative to the sizes summed: what is left of Σ_c β_c counts as rounding.
_ROUNDING = 1e-15


@njit(cache=True, nogil=True, inline="always")
def _rate(floored: float, slope: float, shift: float, low: float, high: float) -> tuple[float, bool]:
    """Return the class's coefficient at a multiplier, and whether it is free there."""
    value = (slope - shift) / floored
    if value <= low:
        return low, False
    if value >= high:
        return high, False
    return value, True


@njit(cache=True, nogil=True)
def solve_sample(slopes: Vector, curvature: Vector, label: int, price: float, top: float, out: Vector) -> None:
    """Maximise Σ_c slopes_c β_c − ½ curvature_c β_c² where Σβ = 0, −price ≤ β_c ≤ 0 and 0 ≤ β_label ≤ top.

    β_c is a clipped linear function of the multiplier ζ of Σβ = 0, and the sum falls in ζ: Newton's method finds the
    set of free classes, bracketed so that it cannot run astray, and on that set the multiplier is in closed form.
    """
    k = slopes.shape[0]
    low, high = slopes.min() - curvature.max() * max(top, price), slopes.max() + curvature.max() * max(top, price)
    shift = slopes[label]
    for _ in range(_NEWTON):
        total, size, rate = 0.0, 0.0, 0.0
        for c in range(k):
            floor, ceiling = (0.0, top) if c == label else (-price, 0.0)
            out[c], free = _rate(curvature[c], slopes[c], shift, floor, ceiling)
            total += out[c]
            size += abs(out[c])
            rate += 1.0 / curvature[c] if free else 0.0
        if abs(total) <= _ROUNDING * size:
            return
        if total > 0.0:
            low = shift
        else:
            high = shift
        shift = shift + total / rate if rate > 0.0 else 0.5 * (low + high)
        if not low < shift < high:
            shift = 0.5 * (low + high)
    _balance(out, curvature, label, price, top)


@njit(cache=True, nogil=True)
def _balance(out: Vector, curvature: Vector, label: int, price: float, top: float) -> None:
    """Make the coefficients sum to zero: the rest, rounding of a nearly vanishing diagonal, goes where it fits.

    It goes to free classes first: one that left its bound by a rounding error would look as if it had much to gain.
    """
    rest = -out.sum()
    for only_free in (True, False):
        for c in np.argsort(curvature):
            floor, ceiling = (0.0, top) if c == label else (-price, 0.0)
            if only_free and not floor < out[c] < ceiling:
                continue
            moved = min(max(out[c] + rest, floor), ceiling)
            rest -= moved - out[c]
            out[c] = moved


@njit(cache=True, nogil=True, inline="always")
def _violation(beta: Vector, residual: NDArray[Any], i: int, label: int, price: float, top: float) -> float:
    rise, fall = -np.inf, np.inf
    near = _NEAR * price
    for c in range(beta.shape[0]):
        if c == label:
            can_rise, can_fall = beta[c] < top - near, beta[c] > near
        else:
            can_rise, can_fall = beta[c] < -near, beta[c] > near - price
        if can_rise and residual[c, i] > rise:
            rise = residual[c, i]
        if can_fall and residual[c, i] < fall:
            fall = residual[c, i]
    return rise - fall if rise > fall else 0.0


@njit(cache=True, nogil=True)
def violations(
    beta: NDArray[Any], residual: NDArray[Any], labels: NDArray[Any], sample_C: Vector, tops: Vector
) -> Vector:
    """Return the slope of each sample's steepest exchange between two classes; 0 where it is optimal."""
    out = np.empty(beta.shape[0])
    for i in range(beta.shape[0]):
        out[i] = _violation(beta[i], residual, i, labels[i], sample_C[i], tops[i])
    return out


@njit(cache=True, nogil=True)
def ascend(
    K: NDArray[Any],
    shift: float,
    labels: NDArray[Any],
    sample_C: Vector,
    tops: Vector,
    beta: NDArray[Any],
    residual: NDArray[Any],
    order: NDArray[Any],
    threshold: float,
) -> int:
    """Solve the samples of the order that violate optimality by more than the threshold, one after the other.

    K has shape (1, n, n) where the classes share their kernel, else (classes, n, n); `shift` is added to every entry.
    Returns the number of steps.
    """
    k = beta.shape[1]
    slopes, curvature, new = np.empty(k), np.empty(k), np.empty(k)
    steps = 0
    for i in order:
        if _violation(beta[i], residual, i, labels[i], sample_C[i], tops[i]) <= threshold:
            continue
        largest = 0.0
        for c in range(k):
            curvature[c] = K[c % K.shape[0], i, i] + shift
            largest = max(largest, curvature[c])
        for c in range(k):
            curvature[c] = max(curvature[c], _FLOOR * largest, 1e-300 if largest > 0.0 else _FLOOR)
            slopes[c] = residual[c, i] + curvature[c] * beta[i, c]
        solve_sample(slopes, curvature, labels[i], sample_C[i], tops[i], new)
        moved = False
        for c in range(k):
            change = new[c] - beta[i, c]
            if change != 0.0:
                subtract_row(K[c % K.shape[0], i], shift, change, residual[c])
                beta[i, c] = new[c]
                moved = True
        # A sample that cannot move by less than rounding is no step: counting it would never end.
        steps += moved
    return steps


@njit(cache=True, nogil=True)
def ascend_in_rounds(
    K: NDArray[Any],
    shift: float,
    labels: NDArray[Any],
    sample_C: Vector,
    tops: Vector,
    beta: NDArray[Any],
    residual: NDArray[Any],
    visited: float,
    repeats: int,
    least: int,
    enough: float,
) -> int:
    """Visit the samples with much to gain until it is little, the others not at all, then look at all again.

    A round's samples violate optimality by more than the share `visited` of the largest violation; they are visited at
    most `repeats` times. Rounds go on until `least` steps are taken, some have one and certifying costs more than that,
    or until no violation is above `enough`. Returns the number of steps, zero if no sample has anything to gain.
    """
    taken = 0
    while taken < least:
        v = violations(beta, residual, labels, sample_C, tops)
        if v.max() <= enough:
            break
        threshold = visited * v.max()
        order = np.flatnonzero(v > threshold)
        order = order[np.argsort(-v[order])]
        before = taken
        for _ in range(repeats):
            steps = ascend(K, shift, labels, sample_C, tops, beta, residual, order, threshold)
            taken += steps
            if steps == 0:
                break
        if taken == before:
            break
    return taken


# Forced inline: see `_numba_smo`.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"}, forceinline=True)
def subtract_row(row: NDArray[Any], shift: float, change: float, residual: Vector) -> None:
    """Take a change of one coefficient out of its class's residual."""
    for j in range(residual.shape[0]):
        residual[j] -= change * (row[j] + shift)
