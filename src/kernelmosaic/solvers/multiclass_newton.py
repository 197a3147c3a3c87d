"""Newton steps of a joint machine: all free coefficients at once, where moving sample by sample would take for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.threads import one_blas_thread
from kernelmosaic.solvers.multiclass_curvature import Elimination, FreeBlocks, eliminate, free_coefficients
from kernelmosaic.solvers.multiclass_program import Matrix, MulticlassProgram

#: Relative to the mean diagonal: the first damping, and how small and how large it may become.
_FIRST, _LEAST, _MOST = 1e-2, 1e-7, 10.0
#: By how much it falls after a step that could have been as long or longer, and rises after one that was far too long.
_BOLDER, _SHYER = 0.4, 4.0
_LONG_ENOUGH, _TOO_LONG = 0.9, 0.4


class DampedNewton:
    """Steps towards where all free coefficients are optimal, the others staying where they are.

    On the free coefficients, their sums over the classes kept, the objective is quadratic, and its maximum solves a
    linear system. Undamped, many samples would leave their bounds; as much is added to the diagonal as keeps most of
    them inside, and it is learned from step to step how much that is.
    """

    def __init__(self) -> None:
        self.damping = _FIRST

    def step(self, K: NDArray[Any], program: MulticlassProgram, beta: Matrix, residual: Matrix) -> float:
        """Take a step and return by how much the objective has risen; zero if there was none to take.

        Samples that would leave their bounds go as far as these, and a line search along what is left makes it an
        ascent.

        Parameters
        ----------
        K : ndarray of shape (1, n, n) or (classes, n, n)
            The kernels.
        program : MulticlassProgram
            The rest of the problem; its target is not read.
        beta : ndarray of shape (n, classes)
            Feasible coefficients, changed in place.
        residual : ndarray of shape (classes, n)
            The slopes T − K_c β_c, changed in place.
        """
        free = free_coefficients(program, beta)
        shared = np.flatnonzero(free.any(axis=1))
        if len(shared) == 0:
            return 0.0
        some = program.part(shared)
        with one_blas_thread():
            step = self._direction(K, free, shared, residual)
            step *= _reach(some, beta[shared], step)[:, np.newaxis]
            moves = _products(K, shared, step)
        slope = float(np.sum(residual[:, shared].T * step))
        bend = float(np.sum(moves[:, shared].T * step))
        if not 0.0 < slope < np.inf:
            return 0.0
        best = slope / max(bend, 1e-300)
        if best >= _LONG_ENOUGH:
            self.damping = max(_BOLDER * self.damping, _LEAST)
        elif best < _TOO_LONG:
            self.damping = min(_SHYER * self.damping, _MOST)
        size = min(best, 1.0)
        # Rounding must neither leave the bounds nor the sums of zero.
        beta[shared] = some.feasible(beta[shared] + size * step)
        residual -= size * moves
        return size * (slope - 0.5 * size * bend)

    def _direction(
        self, K: NDArray[Any], free: NDArray[np.bool_], shared: NDArray[np.intp], residual: Matrix
    ) -> NDArray[np.float64]:
        """Return the step to the damped maximum, of shape (n_shared, classes); zeros if rounding is in the way."""
        blocks = FreeBlocks.of(K, shared)
        system = Elimination(len(shared), free.shape[1], blocks.dtype, blocks.scale, self.damping)
        try:
            eliminate(system, blocks, free, shared, lambda c, at: residual[c, at][:, np.newaxis])
            step = system.direction()
        except np.linalg.LinAlgError:
            return np.zeros((len(shared), free.shape[1]))
        # The sums are zero but for rounding: what is left is shared out.
        inside = free[shared]
        step -= inside * (step.sum(axis=1) / inside.sum(axis=1))[:, np.newaxis]
        return step


def _reach(program: MulticlassProgram, beta: Matrix, step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much of its step each sample can take, at most all of it."""
    own = np.arange(len(beta)), program.labels
    lower, upper = np.tile(-program.sample_C[:, np.newaxis], beta.shape[1]), np.zeros(beta.shape)
    lower[own], upper[own] = 0.0, program.tops
    room, size = np.where(step > 0, upper - beta, beta - lower), np.abs(step)
    share = np.divide(room, size, out=np.ones_like(room), where=size > room)
    return np.asarray(share.min(axis=1))


def _products(K: NDArray[Any], shared: NDArray[np.intp], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return K_c times the step of every class, of shape (classes, n)."""
    columns = step.T.astype(K.dtype)
    if len(K) == 1:
        return np.asarray(columns @ K[0][shared], dtype=np.float64)
    return np.stack([column @ K_c[shared] for column, K_c in zip(columns, K, strict=True)]).astype(np.float64)
