"""Steps of one coefficient or two: what sequential minimal optimisation does between certificates."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from kernelmosaic._typing import AnyArray
from kernelmosaic.backend import TINY
from kernelmosaic.solvers.program import FLAT, Program, Vector

#: Steps in this process that NumPy takes before loading Numba pays, which takes half a second, or two to compile.
_WORTH_COMPILING = 30_000


def maximise(
    K: AnyArray, program: Program, beta: Vector, residual: Vector, tolerance: float, max_steps: int
) -> tuple[int, float]:
    """Move pairs of coefficients, or single ones if their sum is free, until none rises steeper than the tolerance.

    beta and residual = t − Kβ − ρβ are updated in place; the program's target is not read. A pair is the steepest riser
    and the partner that promises the largest gain to second order. Returns the steps taken and the steepness left.
    """
    rising, falling = program.slopes(beta, np.zeros(len(beta)))  # what shifts the residual
    given = K, np.diagonal(K) + program.ridge, program.ridge, beta, residual, rising, falling
    bounds = program.lower, program.upper, program.epsilon
    if program.total is None:
        from kernelmosaic.solvers._numba_smo import maximise_singles

        steps = int(maximise_singles(*given, *bounds, tolerance, max_steps))
    else:
        steps = _take_pairs(*given, *bounds, tolerance, max_steps)
    with np.errstate(invalid="ignore"):  # the reader of the residual refuses what is no number
        highest, lowest = (residual + rising).max(initial=-np.inf), (residual + falling).min(initial=np.inf)
    return steps, program.violation(float(highest), float(lowest))


class _PairSteps:
    """Pair steps by NumPy while they are few, in the whole process, and by compiled code from then on.

    Both take the same steps, to the last bit, so the results do not depend on when one takes over from the other.
    """

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, K: AnyArray, *given: Any) -> int:
        if len(K) > TINY or self.taken > _WORTH_COMPILING:
            return self.compiled(K, *given)
        steps = maximise_pairs(K, *given)
        self.taken += steps
        return steps

    def compiled(self, *given: Any) -> int:
        """Take the steps in compiled code, from the first time on whatever the number of samples."""
        from kernelmosaic.solvers import _numba_smo

        self.taken = _WORTH_COMPILING + 1
        keys, loop = np.empty(_numba_smo.STRIP), cast(Any, _numba_smo.maximise_pairs)
        return int(loop(*given, keys, keys.view(np.int64)))


_take_pairs = _PairSteps()


def maximise_pairs(
    K: AnyArray,
    diagonal: Vector,
    ridge: Vector,
    beta: Vector,
    residual: Vector,
    rising: Vector,
    falling: Vector,
    lower: Vector,
    upper: Vector,
    epsilon: float,
    tolerance: float,
    max_steps: int,
) -> int:
    """Take the steps of `maximise` for pairs, given the shifts of the slopes, and return how many.

    `_numba_smo.maximise_pairs` does the same in the same order, and rounds alike.
    """
    if len(beta) == 0:
        return 0
    K = np.asarray(K, dtype=np.float64)  # so that products round in double precision
    slopes, drops, keys, curvatures = np.empty((4, len(beta)))

    def place(k: int, new: float) -> float:
        change = new - float(beta[k])
        beta[k] = new
        residual[k] -= change * ridge[k]
        rising[k] = -np.inf if new >= upper[k] else (-epsilon if new >= 0.0 else epsilon)
        falling[k] = np.inf if new <= lower[k] else (-epsilon if new > 0.0 else epsilon)
        return change

    with np.errstate(all="ignore"):  # the reader of the residual refuses what is no number
        for step in range(max_steps):
            np.add(residual, rising, out=slopes)
            i = int(slopes.argmax())
            steepest = slopes[i]
            np.add(residual, falling, out=slopes)
            np.subtract(steepest, slopes, out=drops)
            np.maximum(drops, 0.0, out=drops)
            np.add(diagonal, diagonal[i], out=curvatures)
            np.multiply(K[i], 2.0, out=keys)
            np.subtract(curvatures, keys, out=curvatures)
            np.maximum(curvatures, FLAT, out=curvatures)
            np.multiply(drops, drops, out=keys)
            np.divide(keys, curvatures, out=keys)
            j = int(keys.argmax())
            if not keys[j] > 0.0 or drops[j] <= tolerance:
                # The best partner need not be the lowest one, and only the lowest one ends the loop.
                j = int(slopes.argmin())
                if slopes[j] == np.inf or steepest - slopes[j] <= tolerance or i == j:
                    return step
            size = float((steepest - slopes[j]) / curvatures[j])
            # A coefficient stops where it changes sign: the slope jumps by 2ε there.
            end_i = 0.0 if epsilon > 0.0 and beta[i] < 0.0 else float(upper[i])
            end_j = 0.0 if epsilon > 0.0 and beta[j] > 0.0 else float(lower[j])
            room_i, room_j = end_i - float(beta[i]), float(beta[j]) - end_j
            size = min(size, room_i, room_j)
            # Ends are met exactly, or rounding would leave a coefficient just inside its bound.
            change_i = place(i, end_i if size >= room_i else float(beta[i]) + size)
            change_j = place(j, end_j if size >= room_j else float(beta[j]) - size)
            # A step too small for the coefficients' rounding would be chosen again for ever.
            if change_i == 0.0 and change_j == 0.0:
                return step
            np.multiply(K[i], change_i, out=slopes)
            np.multiply(K[j], change_j, out=drops)
            np.add(slopes, drops, out=slopes)
            np.subtract(residual, slopes, out=residual)
    return max_steps
