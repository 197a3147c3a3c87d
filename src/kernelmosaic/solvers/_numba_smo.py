"""The compiled loops of the SMO solver.

The module is imported only when a program is solved, since Numba is slow to import. Arrays are
those of `program.Movable`.

The loops over samples are written so that they vectorise. Whether a coefficient may move is encoded
in the shift of its derivative, which is infinite if not. Maxima are taken over the bits of
non-negative doubles, which order as integers do: LLVM vectorises integer maxima but not those of
floating-point numbers. The position of a maximum is searched only in its strip.

Compiling takes seconds where Numba's cache is empty, so each loop is one compiled function into
which its parts are inlined (``inline="always"``). A part that is a function of its own would be
compiled twice, alone and within its caller. Which of the two copies is linked would depend on the
cache, and they round differently. The caller allocates and fills the arrays, because the code that
Numba puts in the place of `np.diag` or `min` is compiled anew for every function. Parts of the loop
over pairs get arrays, not the tuple of them: taking one out of a tuple counts its references, at
every step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Indices
from kernelmosaic.files import njit
from kernelmosaic.solvers.program import Movable, Vector
from kernelmosaic.solvers.tuning import FLAT_CURVATURE, STRIP

#: Rows that `subtract_rows` passes over at once in strips of this many entries, 16 kB each: the
#: strip of the residual stays in the first-level cache (chosen by hand).
ROW_STRIP = 2048

#: Flags of `fastmath`. Without `ninf`, since infinite shifts leave coefficients out.
_MATH = {"nnan", "nsz", "reassoc", "contract", "arcp"}


@njit(inline="always")
def _steepest(residual: Vector, rising: Vector, start: int, stop: int) -> tuple[int, float]:
    """Return the sample of a range with the steepest rise, and the derivative."""
    largest = -np.inf
    argmax = start
    for k in range(start, stop):
        derivative = residual[k] + rising[k]
        if derivative > largest:
            largest = derivative
            argmax = k
    return argmax, largest


@njit(inline="always")
def _lowest(residual: Vector, falling: Vector) -> tuple[int, float]:
    """Return the sample with the steepest fall, and the derivative.

    The sample is −1 if no coefficient may shrink.
    """
    smallest = np.inf
    argmin = -1
    for k in range(residual.shape[0]):
        derivative = residual[k] + falling[k]
        if derivative < smallest:
            smallest = derivative
            argmin = k
    return argmin, smallest


@njit(inline="always")
def _partner(
    row: AnyArray,
    diagonal: Vector,
    residual: Vector,
    falling: Vector,
    steepest: float,
    diagonal_i: float,
    keys: Vector,
    bits: NDArray[np.int64],
) -> int:
    """Return the sample j with which the steepest rise i gains most to second order.

    The gain is drop²/curvature along the step that raises β_i and lowers β_j. The sample is −1 if
    no pair gains.

    Parameters
    ----------
    row : ndarray of shape (n,)
        The row K_i.
    diagonal, residual, falling, keys, bits : ndarray
        As in `Movable`.
    steepest : float
        The derivative of the steepest rise.
    diagonal_i : float
        `diagonal[i]`.
    """
    n = residual.shape[0]
    best = 0
    argmax = -1
    for start in range(0, n, STRIP):
        size = n - start if n - start < STRIP else STRIP
        r, f, k_i, d = residual[start:], falling[start:], row[start:], diagonal[start:]
        for s in range(size):
            drop = steepest - (r[s] + f[s])
            drop = drop if drop > 0.0 else 0.0
            curvature = diagonal_i + d[s] - 2.0 * k_i[s]
            curvature = curvature if curvature > FLAT_CURVATURE else FLAT_CURVATURE
            keys[s] = drop * drop / curvature
        top = 0
        for s in range(size):
            top = bits[s] if bits[s] > top else top
        if top > best:
            best = top
            for s in range(size):
                if bits[s] == top:
                    argmax = start + s
                    break
    return argmax


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
    """Subtract change_i K_i + change_j K_j from the residual; return the next strip.

    Returned is the number of the first sample of the strip that has the largest derivative, or −1
    if no derivative is above the floor.

    Parameters
    ----------
    row_i, row_j : ndarray of shape (n,)
        The rows K_i and K_j.
    change_i, change_j : float
        The changes of β_i and β_j.
    residual, rising, keys, bits : ndarray
        As in `Movable`.
    floor : float
        A number that is subtracted from the derivatives, so that their bits can be compared: those
        of negative numbers are negative integers.
    """
    n = residual.shape[0]
    best = -1
    best_start = -1
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
            best_start = start
    return best_start


@njit(inline="always")
def _place(movable: Movable, k: int, new: float) -> float:
    """Set one coefficient and return its change.

    Its shifts, and the part of its residual that is due to the ridge, are updated.
    """
    epsilon = movable.epsilon
    change: float = new - movable.beta[k]
    movable.beta[k] = new
    movable.residual[k] -= change * movable.ridge[k]
    if new >= movable.upper[k]:
        movable.rising[k] = -np.inf
    else:
        movable.rising[k] = -epsilon if new >= 0.0 else epsilon
    if new <= movable.lower[k]:
        movable.falling[k] = np.inf
    else:
        movable.falling[k] = -epsilon if new > 0.0 else epsilon
    return change


# No `fastmath`: `smo.maximise_pairs` takes the same steps in NumPy, to the last bit.
@njit(cache=True, nogil=True)
def maximise_pairs(K: AnyArray, movable: Movable, tolerance: float, max_steps: int) -> int:
    """Take the steps of `smo.maximise_pairs` and return their number."""
    beta = movable.beta
    residual = movable.residual
    rising = movable.rising
    falling = movable.falling
    diagonal = movable.diagonal
    keys = movable.keys
    bits = movable.bits
    n = beta.shape[0]
    start = 0
    stop = n
    for step in range(max_steps):
        # 1. The steepest rise i, in the strip that has it, and the partner with the largest gain.
        i, steepest = _steepest(residual, rising, start, stop)
        j = _partner(K[i], diagonal, residual, falling, steepest, diagonal[i], keys, bits)
        if j < 0 or steepest - (residual[j] + falling[j]) <= tolerance:
            # The best partner need not be the one with the steepest fall, which alone decides
            # whether the violation is within the tolerance.
            j, lowest = _lowest(residual, falling)
            if j < 0 or steepest - lowest <= tolerance or i == j:
                return step

        # 2. The size of the step. A coefficient stops where it changes its sign, since the
        #    derivative jumps by 2ε there.
        floor = residual[j] + falling[j]
        curvature = diagonal[i] + diagonal[j] - 2.0 * K[i, j]
        size = (steepest - floor) / (curvature if curvature > FLAT_CURVATURE else FLAT_CURVATURE)
        end_i = 0.0 if movable.epsilon > 0.0 and beta[i] < 0.0 else movable.upper[i]
        end_j = 0.0 if movable.epsilon > 0.0 and beta[j] > 0.0 else movable.lower[j]
        room_i = end_i - beta[i]
        room_j = beta[j] - end_j
        size = room_i if room_i < size else size
        size = room_j if room_j < size else size

        # 3. Move both. Ends are met exactly, or rounding would leave a coefficient just inside its
        #    bound.
        new_i = end_i if size >= room_i else beta[i] + size
        new_j = end_j if size >= room_j else beta[j] - size
        change_i = _place(movable, i, new_i)
        change_j = _place(movable, j, new_j)
        # A step too small for the coefficients' rounding would be chosen again for ever.
        if change_i == 0.0 and change_j == 0.0:
            return step
        strip = _subtract_two(K[i], K[j], change_i, change_j, residual, rising, floor, keys, bits)
        start = 0
        stop = n
        if strip >= 0:
            start = strip
            stop = strip + STRIP if strip + STRIP < n else n
    return max_steps


@njit(inline="always")
def _best_single(movable: Movable) -> tuple[int, float, float]:
    """Return the sample that gains most by moving alone, its step and the largest violation.

    The sample is −1 if none gains; the step is the one to its maximum, whatever its bounds.
    """
    violation = 0.0
    best = 0.0
    argmax = -1
    step = 0.0
    for k in range(movable.residual.shape[0]):
        curvature = FLAT_CURVATURE
        if movable.diagonal[k] > FLAT_CURVATURE:
            curvature = movable.diagonal[k]
        up = movable.residual[k] + movable.rising[k]
        down = movable.residual[k] + movable.falling[k]
        slope = 0.0
        if up > 0.0:
            slope = up
        elif down < 0.0:
            slope = down
        violation = abs(slope) if abs(slope) > violation else violation
        if slope * slope > best * curvature:
            best = slope * slope / curvature
            step = slope / curvature
            argmax = k
    return argmax, step, violation


@njit(cache=True, nogil=True, fastmath=_MATH)
def maximise_singles(K: AnyArray, movable: Movable, tolerance: float, max_steps: int) -> int:
    """Take the steps of `smo.maximise` for single coefficients and return their number."""
    beta = movable.beta
    residual = movable.residual
    has_tube = movable.epsilon > 0.0
    n = beta.shape[0]
    for step in range(max_steps):
        i, change, violation = _best_single(movable)
        if i < 0 or violation <= tolerance:
            return step
        # A coefficient stops where it changes its sign, and meets its end exactly.
        if change > 0.0:
            end = 0.0 if has_tube and beta[i] < 0.0 else movable.upper[i]
            new = end if change >= end - beta[i] else beta[i] + change
        else:
            end = 0.0 if has_tube and beta[i] > 0.0 else movable.lower[i]
            new = end if -change >= beta[i] - end else beta[i] + change
        change = _place(movable, i, new)
        if change == 0.0:
            return step
        row = K[i]
        for k in range(n):
            residual[k] -= change * row[k]
    return max_steps


@njit(cache=True, nogil=True, fastmath=_MATH)
def subtract_rows(K: AnyArray, rows: Indices, changes: Vector, residual: Vector) -> None:
    """Subtract Σ changes[r] K[rows[r]] from the residual.

    Four rows are read per pass over a strip of the residual, which stays in the first-level cache.
    """
    n = residual.shape[0]
    n_by_four = rows.shape[0] - rows.shape[0] % 4
    for start in range(0, n, ROW_STRIP):
        stop = min(start + ROW_STRIP, n)
        strip = residual[start:stop]
        for r in range(0, n_by_four, 4):
            a = K[rows[r]][start:stop]
            b = K[rows[r + 1]][start:stop]
            c = K[rows[r + 2]][start:stop]
            d = K[rows[r + 3]][start:stop]
            w, x, y, z = changes[r], changes[r + 1], changes[r + 2], changes[r + 3]
            for k in range(stop - start):
                strip[k] -= (w * a[k] + x * b[k]) + (y * c[k] + z * d[k])
        for r in range(n_by_four, rows.shape[0]):
            change = changes[r]
            row = K[rows[r]][start:stop]
            for k in range(stop - start):
                strip[k] -= change * row[k]
