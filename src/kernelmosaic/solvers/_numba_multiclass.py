"""The compiled loops of the multi-class solver. Imported only when a program is solved: Numba is
slow to import.

As in `_numba_smo`, a compiled function holds its parts, and what NumPy does as well is left to it:
a sort in compiled code takes longer to compile than the solver itself.
"""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import AnyArray
from kernelmosaic.files import njit
from kernelmosaic.solvers.program import Vector

#: Of every sample the class, C, and the upper bound of the coefficient of its class.
Box = tuple[AnyArray, Vector, Vector]


@njit(inline="always")
def solve_sample(
    slopes: Vector, curvature: Vector, label: int, C: float, own_upper: float, out: Vector
) -> None:
    """Maximise Σ_c slopes_c β_c − ½ curvature_c β_c² where Σβ = 0, −C ≤ β_c ≤ 0 and 0 ≤ β_label ≤
    own_upper.

    β_c is a clipped linear function of the multiplier ζ of Σβ = 0, and the sum falls in ζ: Newton's
    method finds the set of free classes, bracketed so that it cannot run astray, and on that set
    the multiplier is in closed form.
    """
    k = slopes.shape[0]
    low, high, stiffest = slopes[0], slopes[0], curvature[0]
    for c in range(1, k):
        low = slopes[c] if slopes[c] < low else low
        high = slopes[c] if slopes[c] > high else high
        stiffest = curvature[c] if curvature[c] > stiffest else stiffest
    width = stiffest * (own_upper if own_upper > C else C)
    low, high = low - width, high + width
    shift = slopes[label]
    balanced = False
    # Each step fixes the set of free classes, so that a handful do.
    for _ in range(60):
        total, size, rate = 0.0, 0.0, 0.0
        for c in range(k):
            floor, ceiling = (0.0, own_upper) if c == label else (-C, 0.0)
            value = (slopes[c] - shift) / curvature[c]
            rate += 1.0 / curvature[c] if floor < value < ceiling else 0.0
            value = floor if value <= floor else ceiling if value >= ceiling else value
            out[c] = value
            total += value
            size += abs(value)
        balanced = abs(total) <= 1e-15 * size  # rounding
        if balanced:
            break
        if total > 0.0:
            low = shift
        else:
            high = shift
        shift = shift + total / rate if rate > 0.0 else 0.5 * (low + high)
        if not low < shift < high:
            shift = 0.5 * (low + high)
    if not balanced:
        _balance(out, curvature, label, C, own_upper)


@njit(inline="always")
def _balance(out: Vector, curvature: Vector, label: int, C: float, own_upper: float) -> None:
    """Make the coefficients sum to zero: the rest, rounding of a nearly vanishing diagonal, goes
    where it fits.

    It goes to free classes first: one that left its bound by a rounding error would look as if it
    had much to gain.
    """
    k = out.shape[0]
    rest = 0.0
    for c in range(k):
        rest -= out[c]
    last, c = -np.inf, -1
    for visit in range(2 * k):
        if visit == k:
            last, c = -np.inf, -1
        # The flattest class that comes after the last one.
        following = -1
        for other in range(k):
            later = curvature[other] > last or (curvature[other] == last and other > c)
            if later and (following < 0 or curvature[other] < curvature[following]):
                following = other
        c = following
        last = curvature[c]
        floor, ceiling = (0.0, own_upper) if c == label else (-C, 0.0)
        if visit < k and not floor < out[c] < ceiling:
            continue
        moved = out[c] + rest
        moved = floor if moved < floor else moved
        moved = ceiling if moved > ceiling else moved
        rest -= moved - out[c]
        out[c] = moved


@njit(inline="always")
def _violation(
    beta: Vector, residual: AnyArray, i: int, label: int, C: float, own_upper: float
) -> float:
    rise, fall = -np.inf, np.inf
    # A coefficient this near to its bound is at its bound, up to rounding.
    near = 1e-12 * C
    for c in range(beta.shape[0]):
        if c == label:
            can_rise, can_fall = beta[c] < own_upper - near, beta[c] > near
        else:
            can_rise, can_fall = beta[c] < -near, beta[c] > near - C
        if can_rise and residual[c, i] > rise:
            rise = residual[c, i]
        if can_fall and residual[c, i] < fall:
            fall = residual[c, i]
    return rise - fall if rise > fall else 0.0


def violations(beta: AnyArray, residual: AnyArray, box: Box) -> Vector:
    """Return the slope of each sample's steepest exchange between two classes; 0 where it is
    optimal."""
    out = np.empty(beta.shape[0])
    _fill_violations(beta, residual, box, out)
    return out


@njit(cache=True, nogil=True)
def _fill_violations(beta: AnyArray, residual: AnyArray, box: Box, out: Vector) -> None:
    labels, sample_C, own_upper = box
    for i in range(beta.shape[0]):
        out[i] = _violation(beta[i], residual, i, labels[i], sample_C[i], own_upper[i])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _maximise_samples(
    K: AnyArray,
    shift: float,
    box: Box,
    beta: AnyArray,
    residual: AnyArray,
    order: AnyArray,
    threshold: float,
    room: AnyArray,
) -> int:
    """Solve the samples of the order that violate optimality by more than the threshold, one after
    the other.

    K has shape (1, n, n) where the classes share their kernel, else (classes, n, n); `shift` is
    added to every entry. `room`, of shape (3, classes), is for the classes of one sample. Returns
    the number of steps.
    """
    labels, sample_C, own_upper = box
    slopes, curvature, new = room[0], room[1], room[2]
    k = beta.shape[1]
    steps = 0
    for o in range(order.shape[0]):
        i = order[o]
        if _violation(beta[i], residual, i, labels[i], sample_C[i], own_upper[i]) <= threshold:
            continue
        largest = 0.0
        for c in range(k):
            curvature[c] = K[c % K.shape[0], i, i] + shift
            largest = curvature[c] if curvature[c] > largest else largest
        # The diagonal of a class whose kernels have no weight is raised to a share of the sample's
        # largest.
        least = max(1e-8 * largest, 1e-300) if largest > 0.0 else 1e-8
        for c in range(k):
            curvature[c] = curvature[c] if curvature[c] > least else least
            slopes[c] = residual[c, i] + curvature[c] * beta[i, c]
        solve_sample(slopes, curvature, labels[i], sample_C[i], own_upper[i], new)
        moved = False
        for c in range(k):
            change = new[c] - beta[i, c]
            if change != 0.0:
                row, slope = K[c % K.shape[0], i], residual[c]
                for j in range(slope.shape[0]):
                    slope[j] -= change * (row[j] + shift)
                beta[i, c] = new[c]
                moved = True
        # A sample that cannot move by less than rounding is no step: counting it would never end.
        steps += moved
    return steps


def maximise_in_rounds(
    K: AnyArray,
    shift: float,
    box: Box,
    beta: AnyArray,
    residual: AnyArray,
    most: int,
    enough: float,
) -> int:
    """Visit the samples with much to gain until it is little, the others not at all, then look at
    all again.

    A round's samples violate optimality by more than half of the largest violation; they are
    visited at most five times. Rounds go on until `most` steps are taken, or until no violation is
    above `enough`. Returns the number of steps, zero if no sample has anything to gain.
    """
    room = np.empty((3, beta.shape[1]))
    taken = 0
    while taken < most:
        v = violations(beta, residual, box)
        if v.max() <= enough:
            break
        threshold = 0.5 * v.max()
        order = np.flatnonzero(v > threshold)
        order = order[np.argsort(-v[order], kind="stable")]
        before = taken
        for _ in range(5):
            visited = order[: most - taken]
            steps = _maximise_samples(K, shift, box, beta, residual, visited, threshold, room)
            taken += steps
            if steps == 0:
                break
        if taken == before:
            break
    return taken


# Blocks of symmetric matrices, lower halves only --------------------------------------------------


@njit(cache=True, nogil=True)
def take_lower(K: AnyArray, shift: float, rows: AnyArray, out: AnyArray) -> None:
    """Fill the lower half of out = K[rows, rows] + shift."""
    for i in range(len(rows)):
        source = K[rows[i]]
        for j in range(i + 1):
            out[i, j] = source[rows[j]] + shift


@njit(cache=True, nogil=True)
def add_lower(block: AnyArray, rows: AnyArray, out: AnyArray) -> None:
    """Add the lower half of a block to that of out[rows, rows]; the rows ascend."""
    for i in range(len(rows)):
        target = out[rows[i]]
        for j in range(i + 1):
            target[rows[j]] += block[i, j]
