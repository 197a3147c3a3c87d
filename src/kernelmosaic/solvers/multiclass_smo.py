"""Steps of a joint machine on samples whose kernels are at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers.multiclass_newton import DampedNewton
from kernelmosaic.solvers.multiclass_program import Matrix, MulticlassProgram

#: A round visits the samples whose violation is above this share of the largest: the others are left out for now.
_VISITED = 0.5
#: Most visits to the same set before all samples are looked at again.
_REPEATS = 5


class Climb:
    """Coefficients and slopes of some samples, both changed in place.

    Parameters
    ----------
    K : ndarray of shape (n, n), (1, n, n) or (classes, n, n)
        Their kernels, in C order.
    program : MulticlassProgram
        The rest of their problem; its target is not read.
    beta : ndarray of shape (n, classes)
        Feasible coefficients.
    residual : ndarray of shape (classes, n)
        The slopes T − K_c β_c, whatever else has gone into T.
    """

    def __init__(self, K: NDArray[Any], program: MulticlassProgram, beta: Matrix, residual: Matrix) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        self.loops = _numba_multiclass
        self.K = K if K.ndim == 3 else K[np.newaxis]
        self.program, self.beta, self.residual = program, beta, residual
        self.bounds = program.labels.astype(np.int64), program.sample_C, program.tops

    def run_smo(self, least: int, enough: float = 0.0) -> int:
        """Take at least so many steps, if no violation is above `enough` sooner, and return how many."""
        rounds = self.loops.ascend_in_rounds
        return int(rounds(self.K, *self.bounds, self.beta, self.residual, _VISITED, _REPEATS, least, enough))

    def newton_step(self, newton: DampedNewton) -> float:
        """Take a Newton step on the free coefficients, and return what it gains."""
        return newton.step(self.K, self.program, self.beta, self.residual)
