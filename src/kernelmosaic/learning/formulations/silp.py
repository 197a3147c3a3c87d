"""Column generation: a linear program over the weights, and the machine as the oracle of its constraints."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.newton import make_problem, polish
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import ROUNDING, BoundTracker, Evaluation, Learned, Learner, Problem
from kernelmosaic.learning.start import Start
from kernelmosaic.solvers.linear_program import Master

#: The machine is solved to this share of the gap asked for.
_INNER_SHARE = 0.1
#: The first step from the best weights towards the master's, ...
_STEP = 0.3
#: ... and by which factor it shrinks when it does not pay and grows when it does.
_CHANGE = 0.7


class SILP(Learner):
    """Minimise the largest of the planes lin(β) − ⟨θ, q(β)⟩ over Σ θ = 1, θ ≥ 0, adding the worst plane each time.

    Every β of the machine gives a plane below its value J(θ), so the master problem bounds the optimum from below, and
    the machine solved at any weights bounds it from above. The master's own weights jump from corner to corner of the
    simplex, so the machine is asked part of the way from the best weights to them instead.

    In discriminant analysis the plane of β is Σ_j (2 h_jᵀβ_j − λ β_jᵀβ_j) − Σ_i s_i Σ_j β_jᵀN_iβ_j, the constraint of
    Ye et al. up to factors of β and of the whole; the worst one is a Cholesky factorisation away.

    References
    ----------
    Sonnenburg, Rätsch, Schäfer and Schölkopf (2006), "Large scale multiple kernel learning". Ben-Ameur and Neto (2007),
    "Acceleration of cutting-plane and column generation algorithms", for the part of the way. Ye, Ji and Chen (2008),
    theorem 2.3 and equations 37, 38, 44 and 47, for discriminant analysis.
    """

    norm_needs = ("sums_to_one",)
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        master = _Master(make_problem(stack, machine, self.options, start), self.options.tol, start.beta)
        master.improve(master.step, self.options)
        return polish(master, self.options)


class _Master(BoundTracker):
    """The planes found so far."""

    def __init__(self, problem: Problem, tol: float, warm_start: Any) -> None:
        self.tol, self.inner = tol, _INNER_SHARE * tol
        self.share = _STEP
        start = problem.start()
        self.planes = Master(len(start))
        self.betas: list[Any] = []
        super().__init__(problem, self._ask(problem, start, warm_start))

    def step(self) -> bool:
        """Solve the master problem and ask the machine for one more plane; False when nothing new comes."""
        corner, lower, shares = self.planes.solve()
        mixture = sum(share * beta for share, beta in zip(shares, self.betas, strict=True) if share)
        self.bound(lower)
        self.note(self.problem.assess(self.best.theta, mixture))
        if self.known_gap <= self.tol:
            return False
        if np.array_equal(corner, self.best.theta) and self.inner < 1e-13:
            return False
        theta = self.best.theta + self.share * (corner - self.best.theta)
        there = self._ask(self.problem, self.problem.retract(theta), self.best.solution.beta)
        if self.see(there):
            self.share = min(self.share / _CHANGE, 1.0)
        else:
            self.share = max(self.share * _CHANGE, 1e-3)
            # Planes of an inexact machine may leave the master where it was; ask more exactly.
            self.inner = max(min(self.inner, 0.1 * self.gap), 1e-14)
        return True

    def _ask(self, problem: Problem, theta: Weights, warm_start: Any) -> Evaluation:
        there = problem.evaluate(theta, warm_start, self.inner)
        if self.planes.add(*problem.plane(there)):
            self.betas.append(there.solution.beta)
        return there
