"""Several machines of one output each that share one kernel, and with it the weights that are learned for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers import Program, Solution, relative_gap
from kernelmosaic.solvers.multiclass_program import MulticlassSolution

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SharedProgram:
    """The sum of programs that share a kernel; β has one column per program."""

    programs: Sequence[Program]

    @property
    def target(self) -> Array:
        """The linear terms, of shape (n, outputs)."""
        return np.column_stack([one.target for one in self.programs])

    def linear_value(self, beta: Array) -> float:
        """Everything in the objective that does not read the kernel."""
        return sum(one.linear_value(b) for one, b in zip(self.programs, beta.T, strict=True))

    def primal_value(self, quadratic: float, values: Array, intercept: Array) -> float:
        """Return the primal objective, where quadratic is the sum of ½βᵀKβ over the outputs."""
        outputs = zip(self.programs, values.T, intercept, strict=True)
        return quadratic + sum(one.primal_value(0.0, f, b) for one, f, b in outputs)

    def worst_losses(self, values: Array, intercept: Array, error: Array) -> Array:
        """Return the most that each sample's losses may add up to, where the outputs are `values` up to `error`."""
        each = zip(self.programs, values.T, intercept, error.T, strict=True)
        return np.asarray(np.sum([one.worst_losses(f, b, e) for one, f, b, e in each], axis=0))

    def primal_bound(self, quadratic: float, values: Array, intercept: Array, error: Array) -> float:
        """Return a number that the primal objective does not exceed, for outputs up to `error`."""
        each = zip(self.programs, values.T, intercept, error.T, strict=True)
        return quadratic + sum(one.primal_bound(0.0, f, b, e) for one, f, b, e in each)

    def linear_bound(self, beta: Array, intercept: Array) -> float:
        """Return a number that `linear_value` exceeds by no less than its rounding and what the sums of β miss."""
        return sum(one.linear_bound(own, b) for one, own, b in zip(self.programs, beta.T, intercept, strict=True))


class SharedMachines:
    """Machines on the same samples, one per output, whose objectives are added: min Σ_t J_t(K).

    At a given kernel they are solved one by one; only its weights are shared, so that ∂J/∂K = −½ Σ_t β_t β_tᵀ.

    Parameters
    ----------
    machines : sequence of Machine
        One per output.
    """

    has_one_output: bool = False
    has_independent_outputs: bool = True

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = list(machines)
        first = self.machines[0]
        self.program = SharedProgram([one.program for one in self.machines])
        #: Of β: one coefficient per sample and output.
        self.shape = (*first.shape, len(self.machines))
        self.objective_scale, self.can_be_subsampled = first.objective_scale, first.can_be_subsampled
        self.has_targets, self.has_labels, self.has_one_slack = first.has_targets, False, first.has_one_slack

    def continued(self, beta: Array, before: SharedMachines) -> Array:
        """Return coefficients to start from where the solution of like machines, with another C say, ended."""
        each = zip(self.machines, beta.T, before.machines, strict=True)
        return np.column_stack([one.continued(own, other) for one, own, other in each])

    def subsampled(self, rows: NDArray[np.intp]) -> SharedMachines:
        """Return the machines of some samples, each of which stands for several."""
        return SharedMachines([one.subsampled(rows) for one in self.machines])

    def solve(self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3) -> MulticlassSolution:
        """Return the solutions for the combined kernel, side by side, each to a relative gap of `tol`."""
        starts = [None] * len(self.machines) if warm_start is None else warm_start.T
        return self._joined([one.solve(K, start, tol) for one, start in zip(self.machines, starts, strict=True)])

    def _joined(self, each: list[Solution]) -> MulticlassSolution:
        """Return solutions of the machines side by side."""
        beta, values = (np.column_stack([getattr(one, name) for one in each]) for name in ("beta", "values"))
        intercept = np.array([one.intercept for one in each])
        dual = sum(one.objective for one in each)
        primal = self.program.primal_value(0.5 * float(np.sum(beta * values)), values, intercept)
        return MulticlassSolution(
            beta, intercept, values, dual, relative_gap(primal, dual), sum(one.n_iter for one in each)
        )

    def assess(self, gram: Any, beta: Array) -> MulticlassSolution:
        """Return a feasible β as a solution for a kernel, with what it is worth."""
        return self._joined([one.assess(gram, own) for one, own in zip(self.machines, beta.T, strict=True)])

    def primal_value(self, solution: MulticlassSolution) -> float:
        """Return the primal value of a solution: no less than the optimum for its kernel."""
        quadratic = 0.5 * float(np.sum(solution.beta * solution.values))
        return self.program.primal_value(quadratic, solution.values, solution.intercept)
