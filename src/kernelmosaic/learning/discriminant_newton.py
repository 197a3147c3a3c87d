"""Discriminant weights by second-order steps: few factorisations, each giving value, slopes and curvature."""

from __future__ import annotations

from kernelmosaic.learning.bound_tracker import BoundTracker
from kernelmosaic.learning.discriminant import DiscriminantLearned, DiscriminantLearner, DiscriminantProblem, Evaluation
from kernelmosaic.learning.norms import SumNorm

#: Sufficient decrease in the line search, and how often a step is shortened.
_ARMIJO = 1e-4
_MAX_HALVINGS = 12


class DiscriminantNewton(DiscriminantLearner):
    """Newton steps over the simplex of shares.

    The value is smooth and convex in the weights, and one factorisation gives it with its gradient and Hessian, so the
    quadratic model is exact to second order; it is minimised over the simplex and searched along.
    """

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        found = BoundTracker(problem, problem.evaluate(problem.start()))
        found.improve(lambda: self._step(problem, found), self.tol, self.max_iter, self.progress())
        return problem.learned(found.best, found.gap, found.history)

    def _step(self, problem: DiscriminantProblem, found: BoundTracker[Evaluation]) -> bool:
        """Step to the model's minimiser, or as far towards it as pays; False when nothing more does."""
        here, usable = found.best, problem.usable
        s, q = here.shares[usable], here.q[usable]
        # Slopes and curvature in units of the value, so that the model's own tolerance means something.
        unit = max(float(q.max()), 1e-300)
        direction = SumNorm().newton_direction(s, q / unit, problem.curvature(here) / unit)
        slope = -problem.machine.objective_scale * float(q @ direction)
        size, before = 1.0, found.lower
        for _ in range(_MAX_HALVINGS if slope < 0 else 0):
            there = problem.evaluate(problem.spread(s + size * direction))
            found.bound(problem.lower(there))
            if there.upper <= here.upper + _ARMIJO * size * slope:
                found.best = there
                return True
            if found.gap <= self.tol:
                return True
            size *= 0.3
        return found.lower > before
