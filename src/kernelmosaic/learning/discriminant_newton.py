"""Discriminant weights by second-order steps: few factorisations, each giving value, slopes and curvature."""

from __future__ import annotations

from kernelmosaic.learning.discriminant import Best, DiscriminantLearned, DiscriminantLearner, DiscriminantProblem
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
        best = Best(problem, problem.evaluate(problem.start()))
        with self.progress() as advance:
            advance(best.gap)
            while best.gap > self.tol and len(best.history) < self.max_iter and self._step(best):
                advance(best.record())
        return best.learned()

    def _step(self, best: Best) -> bool:
        """Step to the model's minimiser, or as far towards it as pays; False when nothing more does."""
        here, problem = best.at, best.problem
        usable = problem.usable
        s, q = here.shares[usable], here.q[usable]
        # Slopes and curvature in units of the value, so that the model's own tolerance means something.
        unit = max(float(q.max()), 1e-300)
        direction = SumNorm().newton_direction(s, q / unit, problem.curvature(here) / unit)
        slope = -problem.machine.objective_scale * float(q @ direction)
        size, before = 1.0, best.bound
        for _ in range(_MAX_HALVINGS if slope < 0 else 0):
            there = problem.evaluate(problem.spread(s + size * direction))
            best.bound = max(best.bound, problem.lower(there.beta, there.q))
            if there.upper <= here.upper + _ARMIJO * size * slope:
                best.at = there
                return True
            if best.gap <= self.tol:
                return True
            size *= 0.3
        return best.bound > before
