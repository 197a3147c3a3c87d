"""The searches of two papers over the simplex of the weights: SimpleMKL and SILP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Learned, Start
from kernelmosaic.learning.interior_points import SearchWithSuccessor, successor_of
from kernelmosaic.learning.newton import polish
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import ROUNDING, Evaluation, Learner, WeightProblem, make_problem
from kernelmosaic.learning.tuning import DescentTuning, PlaneTuning

# Descent along the reduced gradient ---------------------------------------------------------------


class ReducedGradient(Learner):
    """Minimise the machine's value J(θ) over Σ θ = 1, θ ≥ 0 along the reduced gradient.

    The largest weight makes up for the changes of all others. As long as the value falls, the step
    goes on until a weight reaches zero, which then leaves the direction; the last stretch is
    searched for its lowest point.

    References
    ----------
    Rakotomamonjy, Bach, Canu and Grandvalet (2008), "SimpleMKL", algorithm 1.
    """

    norm_needs = ("sums_to_one",)
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        problem = make_problem(machine, stack, self.options, start)
        return _Descent(problem, start.beta).improve().learned()


class _Descent(SearchWithSuccessor):
    """Steps along the reduced gradient, each from the best evaluation.

    Parameters
    ----------
    problem : WeightProblem
        What is being solved.
    warm_start : ndarray or None
        β to start from.
    """

    tuning = DescentTuning()

    def __init__(self, problem: WeightProblem, warm_start: Weights | None) -> None:
        options = problem.options
        self.machine_tol = max(self.tuning.machine_tol * options.tol, options.least_machine_tol)
        first = problem.evaluate_first(problem.start(), warm_start, self.machine_tol)
        super().__init__(problem, first, successor_of(problem))

    def step(self) -> bool:
        """Lower the value once, or solve the machine more exactly; False if neither is possible."""
        if (self.is_short_of_steps or self.is_slower_than_path) and self.hand_over():
            return True
        best_before = self.best
        if not self._descend() or self.has_ended():
            return False
        if self.best is not best_before:
            return True
        if not self.tighten_machine_tol():
            return False
        # The same weights again: keep the sharper β, and whichever primal value is the lower.
        trial = self._evaluate(self.best.theta)
        if trial is None:
            return False
        if trial.upper <= self.best.upper:
            self.best = trial
        return True

    def _descend(self) -> bool:
        """Follow the reduced gradient as long as the value falls; False where a solve is refused.

        The best evaluation stays as it is if the value does not fall.
        """
        direction = self._reduced_gradient()
        while float(self.best.q @ direction) > 0:
            # How far the direction may be followed, and which weight reaches zero there.
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.where(direction < 0, -self.best.theta / direction, np.inf)
            first_zero = int(np.argmin(steps))
            longest = float(steps.min())
            # Rounding may leave a direction in which no weight shrinks.
            if not np.isfinite(longest):
                return True
            # Where rounding has made a weight zero already, the step to the corner has no length.
            if longest > 0:
                corner = self.best.theta + longest * direction
                corner[first_zero] = 0.0
                end = self._evaluate(corner)
                if end is None:
                    return False
                if not self.consider(end):
                    self._search_stretch(direction, longest, end)
                    return True
            # The weight that has reached zero leaves the direction, and the largest weight makes up
            # for it.
            direction[np.argmax(self.best.theta)] += direction[first_zero]
            direction[first_zero] = 0.0
        return True

    def _reduced_gradient(self) -> Weights:
        """Return the steepest feasible direction when the largest weight balances all others."""
        theta = self.best.theta
        q = self.best.q
        largest = int(np.argmax(theta))
        direction: Weights = q - q[largest]
        direction[(theta <= 0) & (direction < 0)] = 0.0
        direction[largest] = 0.0
        direction[largest] = -direction.sum()
        # Its length does not matter; that of a huge gradient would overflow in products.
        direction /= max(float(np.abs(direction).max()), 1e-300)
        return direction

    def _search_stretch(self, direction: Weights, longest: float, end: Evaluation) -> None:
        """Look between the best point and `end` for a point of slope zero along the line.

        A first point that is low enough, as a line search returns it, costs more descents than it
        spares solves.

        Parameters
        ----------
        direction : ndarray of shape (P,)
            The direction of the line.
        longest : float
            The step from the best point to `end`.
        end : Evaluation
            Where the value is no lower than at the best point.
        """
        tuning = self.tuning
        start = self.best
        slope = -float(start.q @ direction)
        low = _LinePoint(0.0, slope)
        high = _LinePoint(longest, -float(end.q @ direction))
        for _ in range(tuning.max_cuts):
            # The slope is taken as linear between both ends. An inexact machine may make it fall
            # along the line; the next point is then in the middle.
            fraction = 0.5
            if low.slope < high.slope:
                fraction = low.slope / (low.slope - high.slope)
            fraction = min(max(fraction, tuning.margin), 1.0 - tuning.margin)
            size = low.size + (high.size - low.size) * fraction
            trial = self._evaluate(start.theta + size * direction)
            if trial is None:
                return
            trial_slope = -float(trial.q @ direction)
            # Armijo's rule.
            is_low_enough = trial.upper <= start.upper + tuning.armijo * size * slope
            if is_low_enough:
                self.consider(trial)
                if abs(trial_slope) <= tuning.flat_slope * abs(slope):
                    return
            if trial_slope < 0 and is_low_enough:
                low = _LinePoint(size, trial_slope)
            else:
                high = _LinePoint(size, max(trial_slope, 0.0))

    def _evaluate(self, theta: Weights) -> Evaluation | None:
        """Return the evaluation at θ with its bounds recorded; None where refused."""
        trial = self.problem.evaluate(
            self.problem.retract(theta), self.best.solution.beta, self.machine_tol
        )
        self.record_bounds(trial)
        return trial


@dataclass(frozen=True)
class _LinePoint:
    """The size of a step along a line, and the slope of the value there."""

    size: float
    slope: float


# Column generation --------------------------------------------------------------------------------


class SILP(Learner):
    """Minimise the largest of the planes lin(β) − ⟨θ, q(β)⟩ over Σ θ = 1, θ ≥ 0.

    Every step adds the plane of a solution of the machine. Every β of the machine gives a plane
    below its value J(θ), so the master problem bounds the optimum from below, and the machine
    solved at any weights bounds it from above. The master's own weights jump from corner to corner
    of the simplex, so the machine is solved part of the way from the best weights to them instead.

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
        problem = make_problem(machine, stack, self.options, start)
        return polish(_Master(problem, start.beta).improve())


class _Master(SearchWithSuccessor):
    """The master problem: a linear program over the weights, of the planes of all β so far.

    Attributes
    ----------
    planes : list of (float, ndarray, ndarray)
        Constant, q and β of the plane of every evaluation.
    fraction : float
        How far the next evaluation goes from the best weights to those of the master problem.
    """

    tuning = PlaneTuning()

    def __init__(self, problem: WeightProblem, warm_start: Weights | None) -> None:
        self.machine_tol = self.tuning.machine_tol * problem.options.tol
        self.fraction = self.tuning.first_fraction
        self.planes: list[tuple[float, Weights, Weights]] = []
        first = problem.evaluate_first(problem.start(), warm_start, self.machine_tol)
        self._add_plane(problem, first)
        super().__init__(problem, first, successor_of(problem))

    def step(self) -> bool:
        """Solve the master problem and add the machine's plane; False if there is no new plane."""
        if (self.is_short_of_steps or self.is_slower_than_path) and self.hand_over():
            return True
        options = self.problem.options
        tuning = self.tuning
        master_theta = self.record_planes(self.planes)
        # The minimum of planes over the simplex is known.
        assert master_theta is not None
        machine_is_exact = self.machine_tol <= options.least_machine_tol
        if machine_is_exact and np.array_equal(master_theta, self.best.theta):
            return False
        if self.combined_gap <= options.tol:
            return False
        theta = self.best.theta + self.fraction * (master_theta - self.best.theta)
        trial = self.problem.evaluate(
            self.problem.retract(theta), self.best.solution.beta, self.machine_tol
        )
        if trial is None:
            return False
        self._add_plane(self.problem, trial)
        if self.consider(trial):
            self.fraction = min(self.fraction / tuning.fraction_factor, 1.0)
        else:
            self.fraction = max(self.fraction * tuning.fraction_factor, tuning.least_fraction)
            # Planes of an inexact machine may leave the master where it was; solve it more exactly.
            tightened = min(self.machine_tol, tuning.gap_fraction * self.gap)
            self.machine_tol = max(tightened, options.least_machine_tol)
        return True

    def _add_plane(self, problem: WeightProblem, evaluation: Evaluation) -> None:
        self.planes.append((*problem.plane(evaluation), evaluation.solution.beta))
