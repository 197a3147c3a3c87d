"""Newton steps on the weights: few solves of the machine, each started from the last solution."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.interior_points import InteriorPoints, SearchWithSuccessor, successor_of
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    ROUNDING,
    BoundTracker,
    Evaluation,
    Learner,
    WeightProblem,
    make_problem,
)
from kernelmosaic.learning.tuning import (
    COLD_MACHINE_TOL,
    COMPUTED_KERNEL_MACHINE_TOL,
    CORNER_FRACTION,
    NEARLY_PROVED,
    SQUARED_GAP_FRACTION,
    STORED_KERNEL_MACHINE_TOL,
    WARM_MACHINE_TOL,
)
from kernelmosaic.solvers.program import relative_gap


class Newton(Learner):
    """Newton steps over the set of weights, with a line search on the exact value.

    The value J(θ) = max_β is convex and, between changes of the set of free samples, smooth; its
    gradient is −q and its curvature follows from the free samples' block
    (`MachineProblem.curvature`); that of a `DiscriminantProblem` is smooth everywhere. Kernels far
    from entering are not read again until the weights of the others have converged. Searches over
    large sets start from the weights of a subsample, which start from those of a smaller one.
    """

    machine_needs = ()
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        return self.search(stack, machine, start).learned()

    def search(self, stack: GramStack, machine: Any, start: Start) -> NewtonSearch:
        """Return the search for the weights after its last step."""
        problem = make_problem(machine, stack, self.options, start)
        successor = successor_of(problem)
        weights = start.weights
        if weights is None:
            begins_with_successor = successor is not None and successor.comes_first
            if not begins_with_successor:
                weights = self.weights_of_subsample(stack, machine)
        theta = None
        if weights is not None:
            theta = problem.norm.start_near(problem.scaled(weights))
        search = NewtonSearch(
            problem,
            start.beta,
            theta,
            problem.evaluate_start(start),
            start.weights is not None,
            successor,
        )
        return search.improve()

    def weights_of_subsample(self, stack: GramStack, machine: Any) -> Weights | None:
        """Return weights learned from a fraction of the samples; None if there are too few.

        They are near the weights of all samples and cost little. None is returned, too, if the
        machine cannot be subsampled, or has no solution for these samples.
        """
        options = self.options
        n_rows = min(int(options.subsample_fraction * stack.n_samples), stack.part_samples)
        is_too_small = n_rows < options.min_subsample
        if is_too_small or stack.n_kernels == 1 or not machine.can_be_subsampled:
            return None
        rows = np.unique(np.linspace(0, stack.n_samples - 1, n_rows).astype(np.intp))
        rough_tol = max(options.tol, options.first_machine_tol)
        rough_options = replace(options, tol=rough_tol, verbose=False)
        subsample = machine.take(rows)
        # All samples need the compiled steps, so the subsample may load them, too.
        if stack.n_samples > subsample.options.few_samples:
            subsample.options = replace(subsample.options, numpy_steps=0)
        try:
            learned = Newton(rough_options).learn(stack.take(rows, stored=True), subsample)
        except ValueError:
            # At the weights of these few samples the machine may have no feasible β.
            return None
        return learned.weights


def polish(search: BoundTracker) -> Learned:
    """Return the result of a search, improved by Newton steps where no single β proves its gap.

    A search by planes may have met the tolerance by bounds of different β. Newton steps from its
    best weights then look for one β that proves the gap.
    """
    problem = search.problem
    tol = problem.options.tol
    if search.gap <= tol or search.combined_gap > tol:
        return search.learned()
    successor = successor_of(problem)
    begins_with_a_machine = successor is None or not successor.comes_first
    if problem.is_spent and begins_with_a_machine:
        return search.learned()
    best = search.best
    newton_search = NewtonSearch(
        problem, best.solution.beta, best.theta, successor=successor
    ).improve()
    tighter = newton_search if newton_search.gap < search.gap else search
    last_iteration = Iteration(tighter.tightest.upper, tighter.gap)
    return replace(tighter.learned(), history=[*search.history[:-1], last_iteration])


class NewtonSearch(SearchWithSuccessor):
    """Newton steps with a line search, and planes of all β found where no step lowers the value.

    Parameters
    ----------
    problem : WeightProblem
        What is being solved.
    warm_start : ndarray or None
        β to start from.
    theta : ndarray of shape (P,), optional
        Scaled weights to start from; by default the point of the set that prefers no kernel.
    start_evaluation : Evaluation, optional
        The evaluation of the start, if it needs no solve. If its gap is small enough, the search
        ends there; else the machine is solved at `theta`.
    is_similar : bool
        Whether the weights are those of a similar problem.
    successor : InteriorPoints or None
        Takes over where steps do not close the gap.

    Attributes
    ----------
    planes : list of (float, ndarray, ndarray)
        Constant, q and β of the plane of every complete evaluation.
    n_flat_steps : int
        Steps in a row without progress of the gap.
    n_idle_recoveries : int
        Recoveries in a row, with the machine as exact as can be, that left the gap as it was.
    """

    def __init__(
        self,
        problem: WeightProblem,
        warm_start: Weights | None,
        theta: Weights | None = None,
        start_evaluation: Evaluation | None = None,
        is_similar: bool = True,
        successor: InteriorPoints | None = None,
    ) -> None:
        options = problem.options
        self.tol = options.tol
        self.machine_tol = self._first_machine_tol(problem, theta is not None and is_similar)
        self.n_flat_steps = 0
        self.n_idle_recoveries = 0
        self.hands_over_first = successor is not None and successor.comes_first
        first = start_evaluation
        if first is None or not relative_gap(first.upper, problem.lower_bound(first)) <= self.tol:
            if theta is None:
                theta = problem.start()
            first = self._first_evaluation(problem, theta, warm_start, successor)
        super().__init__(problem, first, successor)
        self.planes = [(*problem.plane(self.best), self.best.solution.beta)]

    def _first_machine_tol(self, problem: WeightProblem, is_warm: bool) -> float:
        """Return the machine tolerance of the first solve.

        From the solution of a similar problem the first steps are also the last ones.
        """
        options = problem.options
        if problem.solves_exactly:
            return options.least_machine_tol
        fraction = WARM_MACHINE_TOL if is_warm else COLD_MACHINE_TOL
        first_tol = min(options.first_machine_tol, fraction * options.tol)
        return max(first_tol, options.least_machine_tol)

    def _first_evaluation(
        self,
        problem: WeightProblem,
        theta: Weights,
        warm_start: Weights | None,
        successor: InteriorPoints | None,
    ) -> Evaluation:
        """Return the evaluation of a feasible β where interior points come first, else a solve."""
        if successor is None or not self.hands_over_first:
            return problem.evaluate_first(theta, warm_start, self.machine_tol)
        program = problem.machine.program
        beta = np.zeros(program.n_samples) if warm_start is None else warm_start
        return successor.evaluate_coefficients(theta, program.feasible(beta))

    def step(self) -> bool:
        """Take a Newton step, or hand over where steps do not close the gap; False at the end."""
        if (self.hands_over_first or self._is_at_a_kink()) and self.hand_over():
            self.n_flat_steps = 0
            return True
        gap_before = self.gap
        value_before = self.best.upper
        goes_on = self._newton_step()

        # Where the value falls by a good part of the gap, the bound may follow a step later.
        progress_factor = self.problem.options.progress_factor
        good_fall = (1.0 - progress_factor) * gap_before * abs(value_before)
        closes_gap = self.gap < progress_factor * gap_before
        if closes_gap or value_before - self.best.upper > good_fall:
            self.n_flat_steps = 0
        else:
            self.n_flat_steps += 1
        return goes_on

    def _is_at_a_kink(self) -> bool:
        """Whether so many steps were flat that interior points take less time than more steps."""
        options = self.problem.options
        # The search for factors, which the next questions need, takes as long as some solves of the
        # machine, so it is not begun before a few steps were flat.
        if self.successor is None or self.n_flat_steps < options.max_flat_steps_factored:
            return False
        if self.successor.is_last_resort:
            return False
        return self.n_flat_steps >= options.max_flat_steps or self.successor.factors is not None

    def _newton_step(self) -> bool:
        """Lower the value by a Newton step, or recover where none does; False at the end."""
        start = self.best
        bound_before = self.lower_bound
        kernels = start.computed_kernels
        direction = np.zeros_like(start.theta)
        direction[kernels] = self.problem.norm.newton_direction(
            start.theta[kernels], start.q[kernels], self.problem.curvature(start)
        )
        self._adapt_machine_tol(start)
        end = self.search_line(start, direction, partial(self._evaluate, start))
        if end is not None:
            self.best = end
            return True
        if self.has_ended():
            return False
        if self.gap <= self.tol:
            return True
        if self.problem.solves_exactly:
            # A step without progress in the bound is the last one.
            return self.lower_bound > bound_before
        return self._recover()

    def _adapt_machine_tol(self, start: Evaluation) -> None:
        """Solve the machine as exactly as the step from an evaluation needs.

        An error δ in the machine's value is one of √δ in β and in the gradient, so the gap of the
        whole problem needs its square. Where the combined kernel is computed whenever it is needed,
        the last digits of a machine cost more than another step.
        """
        options = self.problem.options
        gap = relative_gap(start.upper, self.problem.lower_bound(start))
        fraction = COMPUTED_KERNEL_MACHINE_TOL
        if self.problem.stack.stores_combined:
            fraction = STORED_KERNEL_MACHINE_TOL
        needed = max(SQUARED_GAP_FRACTION * gap**2, fraction * self.tol, options.least_machine_tol)
        self.machine_tol = min(self.machine_tol, needed)

    def _recover(self) -> bool:
        """Go on where no Newton step lowers the value; False if nothing is left to try.

        Either the machine's errors are larger than what the weights have left to gain: it is solved
        more exactly from now on. Or the value has a kink at these weights, where several β solve
        the machine. The planes of all β seen so far then bound the value better than the gradient
        of one β, and the search goes on towards the θ where their maximum is least.
        """
        machine_is_exact = not self.tighten_machine_tol()
        gap_before = self.gap
        self.best = self.problem.with_all_gradients(self.best)
        self._record(self.best)
        theta = self.best.theta
        corner = self.record_planes(self.planes)
        if corner is None and machine_is_exact:
            return False
        if corner is not None:
            theta = theta + CORNER_FRACTION * (corner - theta)
        trial = self._evaluate(self.best, theta)
        if trial is None:
            return False
        trial = self.problem.with_all_gradients(trial)
        self._record(trial)
        if trial.upper <= self.best.upper:
            self.best = trial

        # Machines that rounding keeps from being exact would lead from plane to plane and back
        # again.
        is_idle = machine_is_exact and not self.gap < gap_before
        self.n_idle_recoveries = self.n_idle_recoveries + 1 if is_idle else 0
        return self.n_idle_recoveries < self.problem.options.max_idle_steps

    def _evaluate(self, start: Evaluation, theta: Weights) -> Evaluation | None:
        """Return the evaluation at θ, solved from the β of another one; None where refused."""
        problem = self.problem
        trial = problem.evaluate(
            problem.retract(theta),
            start.solution.beta,
            self.machine_tol,
            problem.watched_kernels(start),
        )
        if trial is None:
            return None
        # The gradients of all kernels are computed where those of the watched kernels nearly prove
        # the gap.
        watched_gap = relative_gap(min(trial.upper, start.upper), problem.lower_bound(trial))
        if watched_gap <= NEARLY_PROVED * self.tol:
            trial = problem.with_all_gradients(trial)
        self._record(trial)
        return trial

    def _record(self, trial: Evaluation) -> None:
        self.record_bounds(trial)
        if trial.is_complete:
            self.planes.append((*self.problem.plane(trial), trial.solution.beta))
