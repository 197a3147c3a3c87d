"""Second-order steps on the weights: few machine solves, each warm-started from the last."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.gram import KernelBank
from kernelmosaic.learning.base import Iteration, Learned, Learner, Options
from kernelmosaic.learning.evaluation import Evaluation, Problem
from kernelmosaic.learning.norms import Weights
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import relative_gap

#: The machine is first solved to this share of the gap asked for, ...
_INNER_SHARE = 0.1
#: ... then sharpened by this factor when its error is what holds the weights up, down to rounding.
_SHARPER = 0.03
_SHARPEST = 1e-13
#: Sufficient decrease in the line search.
_ARMIJO = 1e-4
_MAX_HALVINGS = 8


class Newton(Learner):
    """Newton steps over the set of weights, with a line search on the exact value.

    The value J(θ) = max_β is convex and, between changes of the set of free samples, smooth; its slope is −q and its
    curvature follows from one factorisation of the free samples' block (`Problem.curvature`).
    """

    serves = frozenset({"sum norm", "power norm"})

    def __init__(self, options: Options) -> None:
        self.options = options

    def learn(self, bank: KernelBank, machine: Machine, warm_start: Any = None) -> Learned:
        options = self.options
        problem = Problem(bank, machine, options.norm, options.penalties)
        search = _Search(problem, options.tol, warm_start)
        history = [search.record()]
        with options.progress(type(machine).__name__) as advance:
            advance(search.gap)
            while search.gap > options.tol and len(history) < options.max_iter and search.step():
                history.append(search.record())
                advance(search.gap)
        best = search.best
        return Learned(
            best.theta * problem.scale, best.solution, best.upper, search.gap, problem.n_solves, history
        )


class _Search:
    """The current point, the best one, and the best lower bound seen."""

    def __init__(self, problem: Problem, tol: float, warm_start: Any) -> None:
        self.problem = problem
        self.tol = tol
        self.inner = max(_INNER_SHARE * tol, _SHARPEST)
        self.best = problem.evaluate(problem.norm.start(problem.n_kernels), warm_start, self.inner)
        self.lower = self.best.lower

    @property
    def gap(self) -> float:
        return relative_gap(self.best.upper, self.lower)

    def record(self) -> Iteration:
        return Iteration(self.best.upper, self.gap)

    def step(self) -> bool:
        """Lower the value by a Newton step, or sharpen the machine's solution; False when rounding is all that is left."""
        self.inner = self._inner_tol()
        here = self.best
        direction = self.problem.norm.newton_direction(here.theta, here.q, self.problem.curvature(here))
        slope = -float(here.q @ direction)
        size = 1.0
        for _ in range(_MAX_HALVINGS if slope < 0 else 0):
            there = self._evaluate(here.theta + size * direction, here)
            if there.upper <= here.upper + _ARMIJO * size * slope:
                self.best = there
                return True
            if self.gap <= self.tol:
                return True
            # Differences below the machine's own gap say nothing about the weights.
            if -size * slope <= here.solution.gap * abs(here.upper):
                break
            size *= self._shrink(slope, -float(there.q @ direction))
        return self._sharpen()

    def _sharpen(self) -> bool:
        """Solve the machine more exactly where we are: its error was larger than what the weights have left to gain."""
        if self.inner <= _SHARPEST:
            return False
        self.inner = max(_SHARPER * min(self.inner, self.best.solution.gap), _SHARPEST)
        self.best = self._evaluate(self.best.theta, self.best)
        return True

    def _inner_tol(self) -> float:
        # An error δ in the machine's value is one of √δ in β and in the slopes: the gap of the whole needs its square.
        return min(self.inner, max(0.1 * self.gap**2, 1e-3 * self.tol, _SHARPEST))

    def _evaluate(self, theta: Weights, here: Evaluation) -> Evaluation:
        there = self.problem.evaluate(self.problem.norm.retract(theta), here.solution.beta, self.inner)
        self.lower = max(self.lower, there.lower)
        return there

    @staticmethod
    def _shrink(slope_here: float, slope_there: float) -> float:
        """Where the slope, taken as linear between the two points, would vanish."""
        return float(np.clip(slope_here / (slope_here - slope_there), 0.1, 0.7)) if slope_there > 0 else 0.5
