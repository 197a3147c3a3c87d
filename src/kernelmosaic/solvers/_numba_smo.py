"""The compiled loops of the SMO solver. Imported only when a program is solved: Numba is slow to
import.

The loops over samples are written so that they vectorise. Which coefficients may still move is kept
as a shift of their slope (plus or minus infinity for those that may not). Maxima are taken over the
bits of non-negative doubles, which order as integers do: LLVM vectorises integer maxima but not
those of floating-point numbers. Where a maximum lies is looked up only in its strip.

Compiling takes seconds where Numba's cache is empty, so each loop is one compiled function with its
parts written into it (``inline="always"``): a part with a function of its own would be compiled
twice, alone and within its caller, and linked to the one or the other copy, which round
differently, as the cache is cold or warm. The caller allocates and fills the arrays: what Numba
puts in the place of `np.diag` or `min` is compiled anew for every function. Parts of the loop over
pairs are given arrays, not the tuple of them: to take one out of it counts its references, at every
step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Indices
from kernelmosaic.files import njit
from kernelmosaic.solvers.program import Movable, Vector
from kernelmosaic.solvers.tuning import FLAT_CURVATURE, STRIP

#: No `ninf`: infinities are how fixed coefficients are left out.
_MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}


@njit(inline="always")
def _steepest(residual: Vector, rising: Vector, start: int, stop: int) -> tuple[int, float]:
    """Return the sample in the range whose coefficient gains most by growing, and its slope."""
    best = -np.inf
    where = start
    for k in range(start, stop):
        slope = residual[k] + rising[k]
        if slope > best:
            best = slope
            where = k
    return where, best


@njit(inline="always")
def _lowest(residual: Vector, falling: Vector) -> tuple[int, float]:
    """Return the sample whose coefficient gains most by shrinking, and its slope."""
    best = np.inf
    where = -1
    for k in range(residual.shape[0]):
        slope = residual[k] + falling[k]
        if slope < best:
            best = slope
            where = k
    return where, best


@njit(inline="always")
def _partner(
    row: AnyArray,
    diagonal: Vector,
    residual: Vector,
    falling: Vector,
    steepest: float,
    own: float,
    keys: Vector,
    bits: NDArray[np.int64],
) -> int:
    """Return the sample whose fall, paired with the steepest rise, gains most to second order; −1
    if none gains."""
    n = residual.shape[0]
    best = 0
    where = -1
    for start in range(0, n, STRIP):
        size = n - start if n - start < STRIP else STRIP
        r, f, k_i, d = residual[start:], falling[start:], row[start:], diagonal[start:]
        for s in range(size):
            drop = steepest - (r[s] + f[s])
            drop = drop if drop > 0.0 else 0.0
            curvature = own + d[s] - 2.0 * k_i[s]
            curvature = curvature if curvature > FLAT_CURVATURE else FLAT_CURVATURE
            keys[s] = drop * drop / curvature
        top = 0
        for s in range(size):
            top = bits[s] if bits[s] > top else top
        if top > best:
            best = top
            for s in range(size):
                if bits[s] == top:
                    where = start + s
                    break
    return where


@njit(inline="always")
def _subtract_two(
    row_i: AnyArray,
    row_j: AnyArray,
    change_i: float,
    change_j: float,
    residual: Vector,
    rising: Vector,
    floor: float,
    keys: Vector,
    bits: NDArray[np.int64],
) -> int:
    """residual −= change_i K_i + change_j K_j; return where the strip with the steepest rise
    starts.

    Rises to at most the floor do not count; −1 if there is no other.
    """
    n = residual.shape[0]
    best = -1
    where = -1
    for start in range(0, n, STRIP):
        size = n - start if n - start < STRIP else STRIP
        r, f, k_i, k_j = residual[start:], rising[start:], row_i[start:], row_j[start:]
        for s in range(size):
            value = r[s] - (change_i * k_i[s] + change_j * k_j[s])
            r[s] = value
            keys[s] = value + f[s] - floor
        top = -1
        for s in range(size):
            top = bits[s] if bits[s] > top else top
        if top > best:
            best = top
            where = start
    return where


@njit(inline="always")
def _place(at: Movable, k: int, new: float) -> float:
    """Give one coefficient its new value and return the change; the kernel's part of the residual
    is left to do."""
    epsilon = at.epsilon
    change: float = new - at.beta[k]
    at.beta[k] = new
    at.residual[k] -= change * at.ridge[k]
    at.rising[k] = -np.inf if new >= at.upper[k] else (-epsilon if new >= 0.0 else epsilon)
    at.falling[k] = np.inf if new <= at.lower[k] else (-epsilon if new > 0.0 else epsilon)
    return change


# No `fastmath`: `smo.maximise_pairs` takes the same steps in NumPy, to the last bit.
@njit(cache=True, nogil=True)
def maximise_pairs(K: AnyArray, at: Movable, tolerance: float, max_steps: int) -> int:
    """As `smo.maximise_pairs`."""
    beta, residual, rising, falling, diagonal = (
        at.beta,
        at.residual,
        at.rising,
        at.falling,
        at.diagonal,
    )
    keys, bits = at.keys, at.bits
    n = beta.shape[0]
    start, stop = 0, n
    for step in range(max_steps):
        i, steepest = _steepest(residual, rising, start, stop)
        j = _partner(K[i], diagonal, residual, falling, steepest, diagonal[i], keys, bits)
        if j < 0 or steepest - (residual[j] + falling[j]) <= tolerance:
            # The best partner need not be the lowest one, and only the lowest one ends the loop.
            j, lowest = _lowest(residual, falling)
            if j < 0 or steepest - lowest <= tolerance or i == j:
                return step
        floor = residual[j] + falling[j]
        curvature = diagonal[i] + diagonal[j] - 2.0 * K[i, j]
        size = (steepest - floor) / (curvature if curvature > FLAT_CURVATURE else FLAT_CURVATURE)
        # A coefficient stops where it changes sign: the slope jumps by 2ε there.
        end_i = 0.0 if at.epsilon > 0.0 and beta[i] < 0.0 else at.upper[i]
        end_j = 0.0 if at.epsilon > 0.0 and beta[j] > 0.0 else at.lower[j]
        room_i, room_j = end_i - beta[i], beta[j] - end_j
        size = room_i if room_i < size else size
        size = room_j if room_j < size else size
        # Ends are met exactly, or rounding would leave a coefficient just inside its bound.
        change_i = _place(at, i, end_i if size >= room_i else beta[i] + size)
        change_j = _place(at, j, end_j if size >= room_j else beta[j] - size)
        # A step too small for the coefficients' rounding would be chosen again for ever.
        if change_i == 0.0 and change_j == 0.0:
            return step
        strip = _subtract_two(K[i], K[j], change_i, change_j, residual, rising, floor, keys, bits)
        start, stop = 0, n
        if strip >= 0:
            start, stop = strip, (strip + STRIP if strip + STRIP < n else n)
    return max_steps


@njit(inline="always")
def _best_single(at: Movable) -> tuple[int, float, float]:
    """Return the sample that gains most by moving alone (−1 if none gains), its full step, and the
    steepest slope."""
    violation = 0.0
    best = 0.0
    where = -1
    step = 0.0
    for k in range(at.residual.shape[0]):
        curvature = at.diagonal[k] if at.diagonal[k] > FLAT_CURVATURE else FLAT_CURVATURE
        up = at.residual[k] + at.rising[k]
        down = at.residual[k] + at.falling[k]
        slope = up if up > 0.0 else (down if down < 0.0 else 0.0)
        violation = abs(slope) if abs(slope) > violation else violation
        if slope * slope > best * curvature:
            best = slope * slope / curvature
            step = slope / curvature
            where = k
    return where, step, violation


@njit(cache=True, nogil=True, fastmath=_MATH)
def maximise_singles(K: AnyArray, at: Movable, tolerance: float, max_steps: int) -> int:
    """Take the steps of `smo.maximise` for single coefficients."""
    beta, residual, epsilon = at.beta, at.residual, at.epsilon
    n = beta.shape[0]
    for step in range(max_steps):
        i, change, violation = _best_single(at)
        if i < 0 or violation <= tolerance:
            return step
        if change > 0.0:
            end = 0.0 if epsilon > 0.0 and beta[i] < 0.0 else at.upper[i]
            new = end if change >= end - beta[i] else beta[i] + change
        else:
            end = 0.0 if epsilon > 0.0 and beta[i] > 0.0 else at.lower[i]
            new = end if -change >= beta[i] - end else beta[i] + change
        change = _place(at, i, new)
        if change == 0.0:
            return step
        row = K[i]
        for k in range(n):
            residual[k] -= change * row[k]
    return max_steps


@njit(cache=True, nogil=True, fastmath=_MATH)
def subtract_rows(K: AnyArray, rows: Indices, changes: Vector, residual: Vector) -> None:
    """residual −= Σ changes[r] K[rows[r]], four rows per pass over a strip that stays in the
    first-level cache."""
    n = residual.shape[0]
    fours = rows.shape[0] - rows.shape[0] % 4
    strip = 2048
    for start in range(0, n, strip):
        stop = min(start + strip, n)
        part = residual[start:stop]
        for r in range(0, fours, 4):
            a, b, c, d = K[rows[r]], K[rows[r + 1]], K[rows[r + 2]], K[rows[r + 3]]
            first, second, third, fourth = (
                a[start:stop],
                b[start:stop],
                c[start:stop],
                d[start:stop],
            )
            w, x, y, z = changes[r], changes[r + 1], changes[r + 2], changes[r + 3]
            for k in range(stop - start):
                part[k] -= (w * first[k] + x * second[k]) + (y * third[k] + z * fourth[k])
        for r in range(fours, rows.shape[0]):
            change = changes[r]
            row = K[rows[r]][start:stop]
            for k in range(stop - start):
                part[k] -= change * row[k]
