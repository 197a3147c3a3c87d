"""Descent along the reduced gradient of the simplex: SimpleMKL."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    ROUNDING,
    BoundTracker,
    Evaluation,
    Learned,
    Learner,
    MachineProblem,
    Problem,
)
from kernelmosaic.learning.start import Start
from kernelmosaic.machines import Machine

#: The machine is solved to this share of the gap asked for, ...
_INNER_SHARE = 0.01
#: ... and this much more exactly whenever its error hides the descent, down to rounding.
_SHARPER = 0.03
_SHARPEST = 1e-13
#: Sufficient decrease, and how often a step is cut back.
_ARMIJO = 1e-4
_MAX_CUTS = 12
#: A slope this small relative to the one at the start of the line is as good as none.
_FLAT = 0.1


class ReducedGradient(Learner):
    """Minimise the machine's value J(θ) over Σ θ = 1, θ ≥ 0 along the reduced gradient.

    The largest weight pays for the changes of all others. As long as the value falls, the step goes on until a weight
    reaches zero, which then leaves the direction; the last stretch is searched for its lowest point.

    References
    ----------
    Rakotomamonjy, Bach, Canu and Grandvalet (2008), "SimpleMKL", algorithm 1.
    """

    norm_needs = ("sums_to_one",)
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        descent = _Descent(MachineProblem(stack, machine, self.options, start), self.options.tol, start.beta)
        descent.improve(descent.step, self.options)
        return descent.learned()


class _Descent(BoundTracker):
    """The current point, which is also the best one."""

    def __init__(self, problem: Problem, tol: float, warm_start: Any) -> None:
        self.inner = max(_INNER_SHARE * tol, _SHARPEST)
        super().__init__(problem, problem.evaluate(problem.start(), warm_start, self.inner))

    def step(self) -> bool:
        """Go down once, or solve the machine more exactly; False when rounding is all that is left."""
        before = self.best
        direction = reduced_direction(before.theta, before.q)
        # Its length does not matter; that of huge slopes would overflow in products.
        direction /= max(float(np.abs(direction).max()), 1e-300)
        while float(self.best.q @ direction) > 0:
            reach, first = _reach(self.best.theta, direction)
            # Rounding may leave a direction in which nothing shrinks.
            if not np.isfinite(reach):
                break
            # Where rounding has made a weight zero already, there is no way to go.
            if reach > 0:
                end = self._evaluate(self.best.theta + reach * direction, zero=first)
                if not self.see(end):
                    self._search(direction, reach, end)
                    break
            # That weight has had its turn; the largest takes over its share of the direction.
            direction[np.argmax(self.best.theta)] += direction[first]
            direction[first] = 0.0
        return self.best is not before or self._sharpen()

    def _search(self, direction: Weights, reach: float, end: Evaluation) -> None:
        """Look between the best point and `end` for the lowest one: where the slope along the line vanishes.

        A first point that is low enough, as a line search returns it, costs more descents than it spares solves.
        """
        start = self.best
        slope = -float(start.q @ direction)
        low, high, slope_low, slope_high = 0.0, reach, slope, -float(end.q @ direction)
        for _ in range(_MAX_CUTS):
            # The slope taken as linear; where an inexact machine makes it fall along the line, the middle.
            share = slope_low / (slope_low - slope_high) if slope_low < slope_high else 0.5
            size = low + (high - low) * min(max(share, 0.05), 0.95)
            there = self._evaluate(start.theta + size * direction)
            slope_there = -float(there.q @ direction)
            enough = there.upper <= start.upper + _ARMIJO * size * slope
            if enough:
                self.see(there)
                if abs(slope_there) <= _FLAT * abs(slope):
                    return
            if slope_there < 0 and enough:
                low, slope_low = size, slope_there
            else:
                high, slope_high = size, max(slope_there, 0.0)

    def _evaluate(self, theta: Weights, zero: int | None = None) -> Evaluation:
        theta = theta.copy()
        if zero is not None:
            theta[zero] = 0.0
        problem = self.problem
        there = problem.evaluate(problem.retract(theta), self.best.solution.beta, self.inner)
        self.note(there)
        return there

    def _sharpen(self) -> bool:
        if self.inner <= _SHARPEST:
            return False
        self.inner = max(_SHARPER * self.inner, _SHARPEST)
        there = self._evaluate(self.best.theta)
        # The same weights again: keep the sharper β, and whichever primal value is the lower.
        self.best = there if there.upper <= self.best.upper else self.best
        return True


def reduced_direction(theta: Weights, q: Weights) -> Weights:
    """Return the steepest feasible direction when the largest weight balances all others, for the slopes −q."""
    pivot = int(np.argmax(theta))
    direction = q - q[pivot]
    direction[(theta <= 0) & (direction < 0)] = 0.0
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return np.asarray(direction)


def _reach(theta: Weights, direction: Weights) -> tuple[float, int]:
    """Return how far the direction may be followed, and which weight reaches zero there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(direction < 0, -theta / direction, np.inf)
    first = int(np.argmin(steps))
    return float(steps[first]), first
