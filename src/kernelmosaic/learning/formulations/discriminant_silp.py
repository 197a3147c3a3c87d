"""Discriminant weights by column generation: a linear program over the weights, a factorisation as the oracle."""

from __future__ import annotations

import numpy as np

from kernelmosaic.learning.discriminant import DiscriminantLearned, DiscriminantLearner, DiscriminantProblem, Evaluation
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import BoundTracker
from kernelmosaic.solvers.linear_program import Master

#: The first step from the best weights towards the master's, and how it shrinks when it does not pay and grows when
#: it does.
_STEP = 0.5
_CHANGE = 0.7
#: So many steps without any progress mean that the linear program's own rounding is reached.
_PATIENCE = 20


class DiscriminantSILP(DiscriminantLearner):
    """Maximise γ subject to Σ θ_i S_i(β) ≥ γ for every β, adding the most violated constraint each time.

    S_i(β) = Σ_j (r_i/4 β_jᵀβ_j + 1/(4λ) β_jᵀG̃_iβ_j − r_i β_jᵀh_j), or without the first term where λ is learned. The
    most violated constraint at some weights is the solution of the least-squares problems there: one Cholesky
    factorisation, shared by all classes. It stops when |1 − Σ θ_i S_i(β)/γ| ≤ tol, which is the relative duality gap:
    the left side is the problem's value at the weights, γ the master's bound.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.3 and equations 37, 38, 44 and 47. Ben-Ameur and Neto (2007) for stepping part of
    the way to the master's solution, which jumps from corner to corner of the simplex.
    """

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        planes = _Planes(problem)
        found = BoundTracker(problem, planes.ask(problem.start()))
        share, idle = _STEP, 0
        with self.progress() as advance:
            advance(found.gap)
            while found.gap > self.tol and len(found.history) < self.max_iter and idle < _PATIENCE:
                before = found.gap
                corner, bound = planes.master()
                found.bound(bound)
                if found.gap > self.tol:
                    towards = (1 - share) * found.best.shares[problem.usable] + share * corner
                    paid = found.see(planes.ask(problem.spread(towards)))
                    share = min(share / _CHANGE, 1.0) if paid else max(share * _CHANGE, 1e-3)
                idle = 0 if found.gap < before else idle + 1
                advance(found.record())
        return problem.learned(found.best, found.gap, found.history)


class _Planes:
    """The constraints found so far, as planes that lie below the value everywhere."""

    def __init__(self, problem: DiscriminantProblem) -> None:
        self.problem = problem
        self.planes = Master(len(problem.usable))

    def ask(self, shares: Weights) -> Evaluation:
        """Evaluate at these shares and keep the plane that touches the value there."""
        at = self.problem.evaluate(shares)
        machine, beta = self.problem.machine, at.beta
        ridge = 0.0 if machine.alpha is None else machine.alpha * float(np.sum(beta**2))
        constant = machine.objective_scale * (2.0 * float(np.sum(machine.targets * beta)) - ridge)
        self.planes.add(constant, machine.objective_scale * at.q[self.problem.usable])
        return at

    def master(self) -> tuple[Weights, float]:
        """Return the lowest point of the planes, over the usable kernels, and a bound on the optimum."""
        return self.planes.solve()
