"""The dual program of the machines with one output a class, and what a point of it is worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers.program import Vector, relative_gap, require_finite

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class MulticlassProgram:
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
    sample_C : ndarray of shape (n,)
        The price of each sample's slack; zero takes it out.
    pairwise : bool
        Whether every other class has a slack of its own, or the sample one for the worst of them.
    """

    labels: NDArray[np.intp]
    margins: Matrix
    sample_C: Vector
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
        return self.sample_C * (self.n_classes - 1) if self.pairwise else self.sample_C

    def linear_value(self, beta: Matrix) -> float:
        """Everything in the objective that does not read the kernel."""
        return float(np.sum(self.target * beta))

    def losses(self, values: Matrix) -> float:
        """Return what the slacks cost where the outputs, (n, classes), are these."""
        behind = self.margins + values - values[np.arange(self.n_samples), self.labels][:, np.newaxis]
        behind[np.arange(self.n_samples), self.labels] = 0.0
        behind = np.maximum(behind, 0.0)
        return float(self.sample_C @ (behind.sum(axis=1) if self.pairwise else behind.max(axis=1)))

    def primal_value(self, quadratic: float, values: Matrix) -> float:
        """Return the primal objective of the outputs, where quadratic = ½ Σ_c ‖w_c‖²."""
        return require_finite(quadratic + self.losses(values))

    def part(self, which: NDArray[np.intp]) -> MulticlassProgram:
        """Return the program of some samples."""
        return MulticlassProgram(self.labels[which], self.margins[which], self.sample_C[which], self.pairwise)

    def start(self, warm_start: Matrix | None) -> Matrix:
        """Return the feasible point to start from, as an array of its own."""
        return np.zeros(self.margins.shape) if warm_start is None else self.feasible(warm_start)

    def feasible(self, beta: Matrix) -> Matrix:
        """Return a feasible point near beta, which it leaves as it is if it is one."""
        rows = np.arange(self.n_samples)
        others = np.clip(-beta, 0.0, self.sample_C[:, np.newaxis])
        others[rows, self.labels] = 0.0
        if not self.pairwise:
            total = others.sum(axis=1)
            others *= np.divide(self.sample_C, total, out=np.ones(len(total)), where=total > self.sample_C)[
                :, np.newaxis
            ]
        out = -others
        out[rows, self.labels] = np.minimum(others.sum(axis=1), self.tops)
        return out


@dataclass(frozen=True)
class MulticlassSolution:
    """A feasible β with what it is worth; as `Solution`, with one column per class.

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


def certify_multiclass(program: MulticlassProgram, beta: Matrix, values: Matrix, n_iter: int) -> MulticlassSolution:
    """Return the solution with its certified relative duality gap, from β and the outputs K_c β_c."""
    quadratic = 0.5 * float(np.sum(beta * values))
    dual = program.linear_value(beta) - quadratic
    gap = relative_gap(program.primal_value(quadratic, values), dual)
    return MulticlassSolution(beta, np.zeros(program.n_classes), values, dual, gap, n_iter)
