"""The dual program of the machines with one output a class, solved sample by sample with a certified gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers.program import Vector, relative_gap

Matrix = NDArray[np.float64]

#: A round visits the samples whose violation is above this share of the largest: the others are left out for now.
_VISITED = 0.5
#: Most visits to the same set before all samples are looked at again.
_REPEATS = 5
#: Steps before the gap is looked at, which costs as much as many steps of a small problem.
_BURST = 300


@dataclass(frozen=True)
class JointProgram:
    """max Σ_ic T_ic β_ic − ½ Σ_c β_cᵀ K_c β_c  where every sample's coefficients sum to zero over the classes.

    With y the sample's class and p its price, β_iy ≥ 0, −p ≤ β_ic ≤ 0 for the other classes, and with one slack a
    sample (Crammer and Singer) also β_iy ≤ p. Both machines ask f_y(xᵢ) − f_c(xᵢ) ≥ margin_ic − ξ of every other class
    c, so that T_ic = −margin_ic and T_iy = 0.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        The classes, as numbers from zero.
    margins : ndarray of shape (n, classes)
        What the sample's own class must be ahead by; not read for the class itself.
    prices : ndarray of shape (n,)
        The price of each sample's slack; zero takes it out.
    pairwise : bool
        Whether every other class has a slack of its own, or the sample one for the worst of them.
    """

    labels: NDArray[np.intp]
    margins: Matrix
    prices: Vector
    pairwise: bool = False

    @property
    def n_samples(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        return int(self.margins.shape[1])

    @property
    def target(self) -> Matrix:
        """The linear term T."""
        T = -self.margins
        T[np.arange(self.n_samples), self.labels] = 0.0
        return T

    @property
    def tops(self) -> Vector:
        """How large the coefficient of a sample's own class may become."""
        return self.prices * (self.n_classes - 1) if self.pairwise else self.prices

    def linear_value(self, beta: Matrix) -> float:
        """Everything in the objective that does not read the kernel."""
        return float(np.sum(self.target * beta))

    def losses(self, values: Matrix) -> float:
        """Return what the slacks cost where the outputs, (n, classes), are these."""
        behind = self.margins + values - values[np.arange(self.n_samples), self.labels][:, np.newaxis]
        behind[np.arange(self.n_samples), self.labels] = 0.0
        behind = np.maximum(behind, 0.0)
        return float(self.prices @ (behind.sum(axis=1) if self.pairwise else behind.max(axis=1)))

    def primal_value(self, quadratic: float, values: Matrix) -> float:
        """Return the primal objective of the outputs, where quadratic = ½ Σ_c ‖w_c‖²."""
        return quadratic + self.losses(values)

    def feasible(self, beta: Matrix) -> Matrix:
        """Return a feasible point near beta, which it leaves as it is if it is one."""
        rows = np.arange(self.n_samples)
        others = np.clip(-beta, 0.0, self.prices[:, np.newaxis])
        others[rows, self.labels] = 0.0
        if not self.pairwise:
            total = others.sum(axis=1)
            others *= np.divide(self.prices, total, out=np.ones(len(total)), where=total > self.prices)[:, np.newaxis]
        out = -others
        out[rows, self.labels] = np.minimum(others.sum(axis=1), self.tops)
        return out


@dataclass(frozen=True)
class JointSolution:
    """A feasible β with what it is worth; as `Solution`, with one column a class.

    Attributes
    ----------
    beta : ndarray of shape (n, classes)
        Signed dual coefficients.
    intercept : ndarray of shape (classes,)
        The constants of the outputs.
    values : ndarray of shape (n, classes)
        The outputs on the training set without their constants: K_c β_c.
    objective : float
        The dual value: a lower bound on the optimum of the primal.
    gap : float
        (primal − dual) / max(|primal|, |dual|).
    n_iter : int
        Samples solved.
    """

    beta: Matrix
    intercept: Vector
    values: Matrix
    objective: float
    gap: float
    n_iter: int


def class_products(K: NDArray[Any], beta: Matrix) -> Matrix:
    """Return K_c β_c, of shape (n, classes), for K shared by the classes, (n, n), or one a class, (classes, n, n)."""
    if K.ndim == 2:
        return np.asarray(K @ beta.astype(K.dtype, copy=False), dtype=np.float64)
    columns = (k_c @ b.astype(K.dtype) for k_c, b in zip(K, beta.T, strict=True))
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def certify_joint(program: JointProgram, beta: Matrix, values: Matrix, n_iter: int) -> JointSolution:
    """Return the solution with its certified relative duality gap, from β and the outputs K_c β_c."""
    quadratic = 0.5 * float(np.sum(beta * values))
    dual = program.linear_value(beta) - quadratic
    gap = relative_gap(program.primal_value(quadratic, values), dual)
    return JointSolution(beta, np.zeros(program.n_classes), values, dual, gap, n_iter)


def solve_joint(
    K: NDArray[Any],
    program: JointProgram,
    warm_start: Matrix | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    values: Matrix | None = None,
) -> JointSolution:
    """Solve a multi-class dual to a relative duality gap of `tol` by exact block ascent, a sample at a time.

    Parameters
    ----------
    K : ndarray of shape (n, n) or (classes, n, n)
        One symmetric positive semi-definite matrix for all classes, or one for each.
    program : JointProgram
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
    JointSolution

    References
    ----------
    The sample's problem is Algorithm 1 of the bilinear multi-class formulation (methods: Crammer and Singer 2001), with
    a floor where a class's diagonal vanishes.
    """
    n, k = program.n_samples, program.n_classes
    if K.shape not in ((n, n), (k, n, n)):
        raise ValueError(f"K has shape {K.shape}; {n} samples of {k} classes ask for {(n, n)} or {(k, n, n)}.")
    limit = max(10_000_000, 10_000 * n) if max_iter is None else max_iter
    beta = np.zeros((n, k)) if warm_start is None else program.feasible(warm_start)
    return _Ascent(K, program, beta, None if warm_start is None else values).reach(tol, limit)


class _Ascent:
    """The state of one solve: β and the residual T − K_c β_c, one row a class."""

    def __init__(self, K: NDArray[Any], program: JointProgram, beta: Matrix, values: Matrix | None = None) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        self.loops = _numba_multiclass
        kind = K.dtype if K.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        self.K = np.ascontiguousarray(K, dtype=kind)
        self.program = program
        self.beta = beta
        self.target = np.ascontiguousarray(program.target.T)
        self.bounds = (program.labels.astype(np.int64), program.prices, program.tops)
        self.n_iter = 0
        self.trusted = values is not None
        self.refresh(values)

    def refresh(self, values: Matrix | None = None) -> None:
        """Recompute the residual from β: rounding gathers over many steps."""
        values = class_products(self.K, self.beta) if values is None else values
        self.residual = np.ascontiguousarray(self.target - values.T)

    def solution(self) -> JointSolution:
        return certify_joint(self.program, self.beta, (self.target - self.residual).T, self.n_iter)

    def reach(self, tol: float, limit: int) -> JointSolution:
        """Ascend until the certified gap is at most `tol`, the steps are used up, or no sample has anything to gain."""
        while True:
            solution = self.solution()
            stuck = False
            if solution.gap > tol and self.n_iter < limit:
                stuck = self.rounds(min(max(self.program.n_samples, _BURST), limit - self.n_iter)) == 0
            if solution.gap <= tol or self.n_iter >= limit or stuck:
                if not self.trusted:
                    self.refresh()
                solution = self.solution()
                if solution.gap <= tol or self.n_iter >= limit or stuck:
                    return solution

    def rounds(self, least: int) -> int:
        """Take at least so many steps, unless there are none to take, and return how many."""
        K = self.K if self.K.ndim == 3 else self.K[np.newaxis]
        steps = int(self.loops.ascend_in_rounds(K, *self.bounds, self.beta, self.residual, _VISITED, _REPEATS, least))
        self.n_iter += steps
        return steps
