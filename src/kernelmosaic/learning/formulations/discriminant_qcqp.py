"""Discriminant weights from the program with quadratic constraints, by interior points with β eliminated."""

from __future__ import annotations

import numpy as np

from kernelmosaic.learning.base import Iteration
from kernelmosaic.learning.discriminant import DiscriminantLearned, DiscriminantLearner, DiscriminantProblem, Evaluation
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import BoundTracker
from kernelmosaic.solvers import relative_gap

#: How near to the boundary a step may end, as a share of the way there.
_REACH = 0.99
#: So many steps without progress mean that rounding is reached.
_PATIENCE = 10


class DiscriminantQCQP(DiscriminantLearner):
    """Maximise Σ_j (β_jᵀh_j − ¼ β_jᵀβ_j) − t/(4λ) subject to t ≥ Σ_j β_jᵀG̃_iβ_j / r_i for every kernel.

    The multipliers of the constraints are the weights. Without the term in β_jᵀβ_j, and with the identity as one more
    kernel, where λ is learned.

    A general conic solver carries all n·k coefficients of β through its linear algebra. Here they are eliminated: given
    the multipliers s, the optimal β is one Cholesky factorisation away, shared by all targets, and so is how the
    constraints' values q answer to s. What is left of the optimality conditions, s_i (t − q_i) = μ and Σs = 1 with μ
    driven to zero, has one unknown per kernel.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.2 and equations 34, 43 and 46. Mehrotra (1992) for the choice of μ.
    """

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        found = BoundTracker(problem, problem.evaluate(problem.start()))
        path = _Path(problem, found.best)
        idle = 0
        with self.progress() as advance:
            advance(found.gap)
            while found.gap > self.tol and len(found.history) < self.max_iter and idle < _PATIENCE:
                before = found.gap
                found.see(path.step())
                idle = 0 if found.gap < before else idle + 1
                advance(found.record())
            self._prune(found, path)
        return problem.learned(found.best, found.gap, found.history)

    def _prune(self, found: BoundTracker[Evaluation], path: _Path) -> None:
        """Give up the shares that interior points leave of a zero, if the gap allows it."""
        there = path.problem.evaluate(path.problem.spread(path.likely()))
        found.bound(path.problem.lower(there))
        if relative_gap(there.upper, found.lower) <= max(self.tol, found.gap):
            found.best = there
            found.history[-1] = Iteration(there.upper, found.gap)


class _Path:
    """Where the interior points are: multipliers s, slacks z, the bound t, in units of the first constraint values."""

    def __init__(self, problem: DiscriminantProblem, start: Evaluation) -> None:
        self.problem = problem
        self.at = start
        self.unit = max(float(start.q[problem.usable].max()), np.finfo(float).tiny)
        self.s: Weights = start.shares[problem.usable]
        self.t = 1.0 + 1.0 / len(self.s)
        self.z: Weights = self.t - self._q()

    def step(self) -> Evaluation:
        """Take one predictor–corrector step and solve the least-squares problems where it ends."""
        C = self.problem.curvature(self.at) / self.unit
        missing = self.t - self._q() - self.z
        mu = float(self.s @ self.z) / len(self.s)
        ds, dz, _ = self._direction(C, missing, -self.s * self.z)
        aim = float((self.s + _longest(self.s, ds) * ds) @ (self.z + _longest(self.z, dz) * dz)) / len(self.s)
        centre = mu * min(max(aim / mu, 0.0) ** 3, 1.0)
        ds, dz, dt = self._direction(C, missing, centre - self.s * self.z - ds * dz)
        size = min(1.0, _REACH * min(_longest(self.s, ds), _longest(self.z, dz)))
        self.s, self.z, self.t = self.s + size * ds, self.z + size * dz, self.t + size * dt
        self.at = self.problem.evaluate(self.problem.spread(self.s))
        return self.at

    def likely(self) -> Weights:
        """Return the multipliers without those whose constraint has more slack left than they have weight."""
        return np.where(self.s > self.z, self.s, 0.0) if np.any(self.s > self.z) else self.s

    def _q(self) -> Weights:
        return np.asarray(self.at.q[self.problem.usable] / self.unit)

    def _direction(self, C: Weights, missing: Weights, wanted: Weights) -> tuple[Weights, Weights, float]:
        """Solve z∘ds + s∘dz = wanted with dz = dt + C ds + missing and Σds = 0."""
        A = C + np.diag(self.z / self.s)
        both = np.linalg.solve(A, np.column_stack([wanted / self.s - missing, np.ones(len(self.s))]))
        dt = float(both[:, 0].sum() / both[:, 1].sum())
        ds = both[:, 0] - dt * both[:, 1]
        return ds, dt + C @ ds + missing, dt


def _longest(x: Weights, dx: Weights) -> float:
    """Return how far x + size · dx stays positive, at most 1/_REACH, so that a full step can be taken."""
    falling = dx < 0
    return min(1.0 / _REACH, float(np.min(-x[falling] / dx[falling], initial=np.inf)))
