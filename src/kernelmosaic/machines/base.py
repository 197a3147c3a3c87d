"""What a machine is: the dual program of some targets, and how to solve it for a given kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.solvers import Program, Solution, certify, solve
from kernelmosaic.solvers.program import Vector


class Machine:
    """A kernel machine with its targets: everything of the training problem but the kernel.

    Only β crosses from here to the learner of the kernel: the value J of the program depends on the kernel through K
    alone, and ∂J/∂K = −½ββᵀ.

    Attributes
    ----------
    program : Program
        The dual program; its value times `objective_scale` is the problem's value as the papers write it.
    objective_scale : float
        See `program`.
    can_be_subsampled : bool
        Whether some of the samples, each counting for several, ask for about the same function.
    has_one_output : bool
        Whether there is one coefficient per sample, not one per sample and class.
    has_independent_outputs : bool
        Whether the outputs, if there are several, share nothing but the kernel.
    has_targets : bool
        Whether the samples have targets.
    has_labels : bool
        Whether these are the labels ±1 of two classes, and every coefficient has its label's sign.
    has_one_slack : bool
        Whether the loss is linear or quadratic in the slack, not one after the other.
    """

    objective_scale: float = 1.0
    can_be_subsampled: bool = True
    has_one_output: bool = True
    has_independent_outputs: bool = True
    has_targets: bool = True
    has_labels: bool = False
    has_one_slack: bool = True

    #: Set when a machine is made.
    _program: Program

    @property
    def program(self) -> Program:
        return self._program

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of β: one coefficient per sample, and per output where there are several."""
        return self.program.target.shape

    def solve(self, K: ArrayOrTensor, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
        """Return the solution for the combined kernel K, in whatever form a stack gives it, to a gap of `tol`."""
        return solve(K, self.program, warm_start, tol)

    def assess(self, gram: Any, beta: Vector) -> Solution:
        """Return a feasible β as a solution for a kernel, with what it is worth."""
        return certify(self.program, beta, np.asarray(gram.products(beta, exact=True)), 0)

    def continued(self, beta: Vector, before: Machine) -> Vector:
        """Return coefficients to start from where the solution of a like machine, with another C say, ended."""
        return self.program.continued(beta, before.program)

    def subsampled(self, rows: NDArray[np.intp]) -> Machine:
        """Return the machine of some samples, each of which stands for several."""
        return SubsampledMachine(self, rows)

    def primal_value(self, solution: Solution) -> float:
        """Return the primal value of a solution: no less than the optimum for its kernel."""
        quadratic = 0.5 * float(solution.beta @ solution.values)
        return self.program.primal_value(quadratic, solution.values, solution.intercept)


class SubsampledMachine(Machine):
    """A machine on some of its samples, each of which stands for several; see `Program.subsampled`."""

    def __init__(self, whole: Machine, rows: NDArray[np.intp]) -> None:
        self._program = whole.program.subsampled(rows)
        for declared in ("objective_scale", "has_targets", "has_labels", "has_one_slack"):
            setattr(self, declared, getattr(whole, declared))


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a finite positive number, or raise naming the parameter and its value."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name}={value!r}: give a number.")
    if not np.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name}={value!r}: must be {'zero or ' if zero else ''}positive and finite.")
    return float(value)


def check_count(name: str, value: Any) -> int:
    """Return a whole number of at least 1, or raise naming the parameter and its value."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r}: give a whole number of at least 1.")
    return int(value)


def slack_terms(C: float, slack: int, n_samples: int, sample_weight: Vector | None) -> tuple[Vector, Vector, float]:
    """Return the coefficients' reach, the ridge and the scale of the objective for a 1-norm or 2-norm slack.

    A 1-norm slack bounds the coefficients by the sample_C Cᵢ; a 2-norm slack leaves them unbounded and adds 1/Cᵢ to the
    kernel's diagonal, and the papers write its problem without the factor ½.
    """
    sample_C = C * (np.ones(n_samples) if sample_weight is None else sample_weight)
    if slack == 1:
        return sample_C, np.zeros(n_samples), 1.0
    if slack == 2:
        ridge = np.divide(1.0, sample_C, out=np.ones(n_samples), where=sample_C > 0)
        return np.where(sample_C > 0, np.inf, 0.0), ridge, 2.0
    raise ValueError(f"slack={slack!r}: the slack is penalised in the 1-norm or the 2-norm, so give 1 or 2.")
