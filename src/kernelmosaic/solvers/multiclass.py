"""One door to the solvers of joint machines, and the one for arrays: sample by sample, with a certified gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.gram import Gram
from kernelmosaic.solvers.multiclass_newton import DampedNewton
from kernelmosaic.solvers.multiclass_program import Matrix, MulticlassProgram, MulticlassSolution, certify_multiclass
from kernelmosaic.solvers.multiclass_smo import Climb
from kernelmosaic.solvers.multiclass_working_set import solve_multiclass_working_set, step_limit

#: Steps before the gap is looked at, which costs as much as many steps of a small problem.
_BURST = 300
#: A Newton step comes after so many bursts, which cost about as much: most problems never see one.
_PATIENCE = 10


def class_products(K: NDArray[Any], beta: Matrix) -> Matrix:
    """Return K_c β_c, of shape (n, classes), for K shared by the classes, (n, n), or one a class, (classes, n, n)."""
    if K.ndim == 2:
        return np.asarray(K @ beta.astype(K.dtype, copy=False), dtype=np.float64)
    columns = (k_c @ b.astype(K.dtype) for k_c, b in zip(K, beta.T, strict=True))
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def solve_multiclass(
    K: Any,
    program: MulticlassProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
) -> MulticlassSolution:
    """Solve a multi-class dual to a relative duality gap of `tol` by exact block ascent, a sample at a time.

    Arrays are solved as they are. Kernels of other forms, in features or on a device, are solved a few thousand samples
    at a time; see `multiclass_working_set`.

    Parameters
    ----------
    K : Gram, or ndarray of shape (n, n) or (classes, n, n)
        One symmetric positive semi-definite matrix for all classes, or one for each.
    program : MulticlassProgram
        The rest of the problem.
    warm_start : ndarray of shape (n, classes), optional
        Any β, feasible or not.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int, optional
        Most samples to solve; by default 10 000 n, at least 10⁷. A gap above `tol` tells that they did not do.
    values : ndarray of shape (n, classes), optional
        K_c β_c of a feasible warm start, where they are known; β is then not multiplied with K, neither at the start
        nor at the end, and whoever gave them certifies the answer.

    Returns
    -------
    MulticlassSolution

    References
    ----------
    The sample's problem is Algorithm 1 of the bilinear multi-class formulation (methods: Crammer and Singer 2001), with
    a floor where a class's diagonal vanishes.
    """
    if isinstance(K, Gram):
        if K.matrix is None or K.backend is not NUMPY:
            return solve_multiclass_working_set(K, program, warm_start, tol, max_iter, values)
        K = K.matrix
    if not isinstance(K, np.ndarray):
        raise TypeError(f"K is of type {type(K).__name__}: give a Gram or an array.")
    n, k = program.n_samples, program.n_classes
    if K.shape not in ((n, n), (k, n, n)):
        raise ValueError(f"K has shape {K.shape}; {n} samples of {k} classes ask for {(n, n)} or {(k, n, n)}.")
    beta = program.start(warm_start)
    return _Ascent(K, program, beta, None if warm_start is None else values).reach(tol, step_limit(n, max_iter))


class _Ascent:
    """The state of one solve: a climb of all samples, and how it is certified."""

    def __init__(self, K: NDArray[Any], program: MulticlassProgram, beta: Matrix, values: Matrix | None = None) -> None:
        kind = K.dtype if K.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        self.K = np.ascontiguousarray(K, dtype=kind)
        self.program = program
        self.target = np.ascontiguousarray(program.target.T)
        self.trusted = values is not None
        values = class_products(self.K, beta) if values is None else values
        self.climb = Climb(self.K, program, beta, np.ascontiguousarray(self.target - values.T))
        self.newton = DampedNewton()
        self.n_iter = self.n_bursts = 0

    def refresh(self) -> None:
        """Recompute the residual from β: rounding gathers over many steps."""
        self.climb.residual[...] = self.target - class_products(self.K, self.climb.beta).T

    def solution(self) -> MulticlassSolution:
        return certify_multiclass(self.program, self.climb.beta, (self.target - self.climb.residual).T, self.n_iter)

    def reach(self, tol: float, limit: int) -> MulticlassSolution:
        """Ascend until the certified gap is at most `tol`, the steps are used up, or no sample has anything to gain."""
        while True:
            solution = self.solution()
            stuck = False
            if solution.gap > tol and self.n_iter < limit:
                stuck = self.burst(min(max(self.program.n_samples, _BURST), limit - self.n_iter)) == 0
            if solution.gap <= tol or self.n_iter >= limit or stuck:
                if not self.trusted:
                    self.refresh()
                solution = self.solution()
                if solution.gap <= tol or self.n_iter >= limit or stuck:
                    return solution

    def burst(self, least: int) -> int:
        """Take at least so many steps, unless there are none to take, and return how many."""
        steps = self.climb.run_smo(least)
        self.n_iter += steps
        self.n_bursts += 1
        if steps and self.n_bursts % _PATIENCE == 0:
            self.climb.newton_step(self.newton)
        return steps
