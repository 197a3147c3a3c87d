"""The papers' searches over the simplex of the weights: SimpleMKL's descent, and the planes of
SILP."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Learned, Start
from kernelmosaic.learning.interior_points import SearchWithSuccessor, successor_of
from kernelmosaic.learning.newton import polish
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import ROUNDING, Evaluation, Learner, WeightProblem, make_problem

# Descent along the reduced gradient ---------------------------------------------------------------


class ReducedGradient(Learner):
    """Minimise the machine's value J(θ) over Σ θ = 1, θ ≥ 0 along the reduced gradient.

    The largest weight pays for the changes of all others. As long as the value falls, the step goes
    on until a weight reaches zero, which then leaves the direction; the last stretch is searched
    for its lowest point.

    References
    ----------
    Rakotomamonjy, Bach, Canu and Grandvalet (2008), "SimpleMKL", algorithm 1.
    """

    norm_needs = ("sums_to_one",)
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        return (
            _Descent(make_problem(machine, stack, self.options, start), start.beta)
            .improve()
            .learned()
        )


class _Descent(SearchWithSuccessor):
    """The current point, which is also the best one."""

    def __init__(self, problem: WeightProblem, warm_start: Weights | None) -> None:
        self.inner = max(0.01 * problem.options.tol, problem.options.sharpest)
        first = problem.evaluate_first(problem.start(), warm_start, self.inner)
        super().__init__(problem, first, successor_of(problem))

    def step(self) -> bool:
        """Go down once, or solve the machine more exactly; False when neither is left to try."""
        if (self.is_short_of_steps or self.is_slower_than_path) and self.hand_over():
            return True
        before = self.best
        # The steepest feasible direction when the largest weight balances all others, for the
        # slopes −q.
        pivot = int(np.argmax(before.theta))
        direction = before.q - before.q[pivot]
        direction[(before.theta <= 0) & (direction < 0)] = 0.0
        direction[pivot] = 0.0
        direction[pivot] = -direction.sum()
        # Its length does not matter; that of huge slopes would overflow in products.
        direction /= max(float(np.abs(direction).max()), 1e-300)
        while float(self.best.q @ direction) > 0:
            # How far the direction may be followed, and which weight reaches zero there.
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.where(direction < 0, -self.best.theta / direction, np.inf)
            first, longest = int(np.argmin(steps)), float(steps.min())
            # Rounding may leave a direction in which nothing shrinks.
            if not np.isfinite(longest):
                break
            # Where rounding has made a weight zero already, there is no way to go.
            if longest > 0:
                corner = self.best.theta + longest * direction
                corner[first] = 0.0
                end = self._evaluate(corner)
                if end is None:
                    return False
                if not self.consider(end):
                    self._search(direction, longest, end)
                    break
            # That weight has had its turn; the largest takes over its share of the direction.
            direction[np.argmax(self.best.theta)] += direction[first]
            direction[first] = 0.0
        if self.has_ended():
            return False
        if self.best is not before:
            return True
        if not self.sharpen():
            return False
        trial = self._evaluate(self.best.theta)
        if trial is None:
            return False
        # The same weights again: keep the sharper β, and whichever primal value is the lower.
        self.best = trial if trial.upper <= self.best.upper else self.best
        return True

    def _search(
        self, direction: Weights, longest: float, end: Evaluation, most_cuts: int = 12
    ) -> None:
        """Look between the best point and `end` for the lowest one: where the slope along the line
        vanishes.

        A first point that is low enough, as a line search returns it, costs more descents than it
        spares solves.
        """
        start = self.best
        slope = -float(start.q @ direction)
        low, high, slope_low, slope_high = 0.0, longest, slope, -float(end.q @ direction)
        for _ in range(most_cuts):
            # The slope taken as linear; where an inexact machine makes it fall along the line, the
            # middle.
            share = slope_low / (slope_low - slope_high) if slope_low < slope_high else 0.5
            size = low + (high - low) * min(max(share, 0.05), 0.95)
            trial = self._evaluate(start.theta + size * direction)
            if trial is None:
                return
            trial_slope = -float(trial.q @ direction)
            enough = trial.upper <= start.upper + 1e-4 * size * slope  # Armijo's rule
            if enough:
                self.consider(trial)
                if abs(trial_slope) <= 0.1 * abs(slope):
                    return
            if trial_slope < 0 and enough:
                low, slope_low = size, trial_slope
            else:
                high, slope_high = size, max(trial_slope, 0.0)

    def _evaluate(self, theta: Weights) -> Evaluation | None:
        trial = self.problem.evaluate(
            self.problem.retract(theta), self.best.solution.beta, self.inner
        )
        self.note(trial)
        return trial


# Column generation: a linear program over the weights, and the machine as the oracle of its constra


class SILP(Learner):
    """Minimise the largest of the planes lin(β) − ⟨θ, q(β)⟩ over Σ θ = 1, θ ≥ 0, adding the worst
    plane each time.

    Every β of the machine gives a plane below its value J(θ), so the master problem bounds the
    optimum from below, and the machine solved at any weights bounds it from above. The master's own
    weights jump from corner to corner of the simplex, so the machine is solved part of the way from
    the best weights to them instead.

    In discriminant analysis the plane of β is Σ_j (2 h_jᵀβ_j − λ β_jᵀβ_j) − Σ_i s_i Σ_j β_jᵀN_iβ_j,
    the constraint of Ye et al. up to factors of β and of the whole; the worst one is a Cholesky
    factorisation away.

    References
    ----------
    Sonnenburg, Rätsch, Schäfer and Schölkopf (2006), "Large scale multiple kernel learning".
    Ben-Ameur and Neto (2007), "Acceleration of cutting-plane and column generation algorithms", for
    the part of the way. Ye, Ji and Chen (2008), theorem 2.3 and equations 37, 38, 44 and 47, for
    discriminant analysis.
    """

    norm_needs = ("sums_to_one",)
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        return polish(
            _Master(make_problem(machine, stack, self.options, start), start.beta).improve()
        )


class _Master(SearchWithSuccessor):
    """The planes found so far."""

    def __init__(self, problem: WeightProblem, warm_start: Weights | None) -> None:
        self.inner = 0.1 * problem.options.tol
        # The step from the best weights towards the master's.
        self.share = 0.3
        self.planes: list[tuple[float, Weights, Weights]] = []
        first = problem.evaluate_first(problem.start(), warm_start, self.inner)
        self._add_plane(problem, first)
        super().__init__(problem, first, successor_of(problem))

    def step(self) -> bool:
        """Solve the master problem and add the machine's plane there; False if there is no new
        one."""
        if (self.is_short_of_steps or self.is_slower_than_path) and self.hand_over():
            return True
        options, corner = self.problem.options, self.note_planes(self.planes)
        assert corner is not None  # of the simplex it is known
        is_old = self.inner <= options.sharpest and np.array_equal(corner, self.best.theta)
        if is_old or self.known_gap <= options.tol:
            return False
        theta = self.best.theta + self.share * (corner - self.best.theta)
        trial = self.problem.evaluate(
            self.problem.retract(theta), self.best.solution.beta, self.inner
        )
        if trial is None:
            return False
        self._add_plane(self.problem, trial)
        if self.consider(trial):
            self.share = min(self.share / 0.7, 1.0)
        else:
            self.share = max(self.share * 0.7, 1e-3)
            # Planes of an inexact machine may leave the master where it was; solve it more exactly.
            self.inner = max(min(self.inner, 0.1 * self.gap), options.sharpest)
        return True

    def _add_plane(self, problem: WeightProblem, evaluation: Evaluation) -> None:
        self.planes.append((*problem.plane(evaluation), evaluation.solution.beta))
