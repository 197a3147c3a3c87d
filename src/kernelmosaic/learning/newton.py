"""Second-order steps on the weights: few machine solves, each warm-started from the last."""

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
from kernelmosaic.solvers.program import relative_gap


class Newton(Learner):
    """Newton steps over the set of weights, with a line search on the exact value.

    The value J(θ) = max_β is convex and, between changes of the set of free samples, smooth; its
    slope is −q and its curvature follows from the free samples' block (`MachineProblem.curvature`);
    that of a `DiscriminantProblem` is smooth everywhere. Kernels far from entering are not read
    again until the others have settled. Large sets start from the weights of a part of the samples,
    which start from those of a part of the part.
    """

    machine_needs = ()
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        return self.search(stack, machine, start).learned()

    def search(self, stack: GramStack, machine: Any, start: Start) -> NewtonSearch:
        """Return the search for the weights once it has ended."""
        problem = make_problem(machine, stack, self.options, start)
        successor, weights = successor_of(problem), start.weights
        if weights is None and not (successor is not None and successor.comes_first):
            weights = self._from_a_part(stack, machine)
        theta = None if weights is None else problem.norm.opened(problem.scaled(weights))
        is_like = start.weights is not None
        return NewtonSearch(
            problem, start.beta, theta, problem.known(start), is_like, successor
        ).improve()

    def _from_a_part(self, stack: GramStack, machine: Any, share: float = 0.2) -> Weights | None:
        """Return the weights of a share of the samples, which are near those of all and cost
        little; None if few."""
        options, count = self.options, min(int(share * stack.n_samples), stack.part_samples)
        if count < options.least_part or stack.n_kernels == 1 or not machine.can_be_subsampled:
            return None
        rows = np.unique(np.linspace(0, stack.n_samples - 1, count).astype(np.intp))
        rough, part = (
            replace(options, tol=max(options.tol, options.first_tol), verbose=False),
            machine.take(rows),
        )
        # The compiled steps are loaded for all samples, and so for these.
        if stack.n_samples > part.options.few_samples:
            part.options = replace(part.options, numpy_steps=0)
        try:
            found = Newton(rough).learn(stack.take(rows, stored=True), part)
        except ValueError:  # the weights of these few samples may leave no feasible β
            return None
        return found.weights


def polish(found: BoundTracker) -> Learned:
    """Return what a search learned, after Newton steps from its best weights where no single β
    proves its gap."""
    problem = found.problem
    tol = problem.options.tol
    if found.gap <= tol or found.known_gap > tol:
        return found.learned()
    successor = successor_of(problem)
    begins_with_a_machine = successor is None or not successor.comes_first
    if problem.is_spent and begins_with_a_machine:
        return found.learned()
    search = NewtonSearch(
        problem, found.best.solution.beta, found.best.theta, successor=successor
    ).improve()
    closer = search if search.gap < found.gap else found
    return replace(
        closer.learned(), history=[*found.history[:-1], Iteration(closer.proved.upper, closer.gap)]
    )


class NewtonSearch(SearchWithSuccessor):
    """Newton steps with a line search on the exact value, and the planes of all β found where no
    step lowers it.

    Parameters
    ----------
    problem : WeightProblem
        What is being solved.
    warm_start : ndarray or None
        β to start from.
    theta : ndarray of shape (P,), optional
        Scaled weights to start from; by default the middle of their set.
    known : Evaluation, optional
        What is known of both already; it is all there is to do if its gap is small enough.
    is_like : bool
        Whether the weights are those of a like problem.
    successor : InteriorPoints or None
        What takes over where steps do not close the gap.
    """

    def __init__(
        self,
        problem: WeightProblem,
        warm_start: Weights | None,
        theta: Weights | None = None,
        known: Evaluation | None = None,
        is_like: bool = True,
        successor: InteriorPoints | None = None,
    ) -> None:
        options = problem.options
        self.tol, self.sharpest = options.tol, options.sharpest
        # From the solution of a like problem the first steps are the last ones.
        is_warm = theta is not None and is_like
        first = min(options.first_tol, (0.3 if is_warm else 10.0) * options.tol)
        self.inner = self.sharpest if problem.exact else max(first, self.sharpest)
        # Steps in a row that hardly closed the gap.
        self.n_flat = 0
        self.hands_over_first = successor is not None and successor.comes_first
        if known is None or not relative_gap(known.upper, problem.lower(known)) <= self.tol:
            theta = problem.start() if theta is None else theta
            known = self._first_evaluation(problem, theta, warm_start, successor)
        super().__init__(problem, known, successor)
        self.planes = [(*problem.plane(self.best), self.best.solution.beta)]
        self.idle = 0

    def _first_evaluation(
        self,
        problem: WeightProblem,
        theta: Weights,
        warm_start: Weights | None,
        successor: InteriorPoints | None,
    ) -> Evaluation:
        """Return the machine solved at θ, or where interior points come first what a β at hand is
        worth there."""
        if successor is None or not self.hands_over_first:
            return problem.evaluate_first(theta, warm_start, self.inner)
        program = problem.machine.program
        beta = np.zeros(program.n_samples) if warm_start is None else warm_start
        return successor.assess(theta, program.feasible(beta))

    def step(self) -> bool:
        """Lower the value by a Newton step, or hand over where steps do not close the gap; False at
        the end."""
        if (self.hands_over_first or self._is_at_a_kink()) and self.hand_over():
            self.n_flat = 0
            return True
        gap_before, value_before = self.gap, self.best.upper
        goes_on = self._newton_step()
        closer = self.problem.options.closer
        # Where the value falls by a good part of the gap, the bound may follow a step later.
        value_to_fall = (1.0 - closer) * gap_before * abs(value_before)
        if self.gap < closer * gap_before or value_before - self.best.upper > value_to_fall:
            self.n_flat = 0
        else:
            self.n_flat += 1
        return goes_on

    def _is_at_a_kink(self) -> bool:
        """Whether so many steps hardly closed the gap that interior points take less time than more
        of them."""
        options = self.problem.options
        # To look for factors takes as long as some machines, so a single step of that kind is no
        # reason.
        if (
            self.successor is None
            or self.n_flat < options.n_flat_factored
            or self.successor.is_last_resort
        ):
            return False
        return self.n_flat >= options.n_flat or self.successor.factors is not None

    def _newton_step(self) -> bool:
        """Lower the value by a Newton step, or find out why none does; False if nothing is left to
        try."""
        here, before, known = self.best, self.lower, self.best.known
        direction = np.zeros_like(here.theta)
        direction[known] = self.problem.norm.newton_direction(
            here.theta[known], here.q[known], self.problem.curvature(here)
        )
        # An error δ in the machine's value is one of √δ in β and in the slopes: the gap of the
        # whole needs its square.
        own_gap = relative_gap(here.upper, self.problem.lower(here))
        # Where the kernel is computed whenever it is needed, the last digits of a machine cost more
        # than a step.
        least = 1e-2 if self.problem.stack.stores_combined else 0.1
        self.inner = min(self.inner, max(0.1 * own_gap**2, least * self.tol, self.sharpest))
        found = self.walk(here, direction, partial(self._evaluate, here))
        if found is not None:
            self.best = found
            return True
        if self.has_ended():
            return False
        return self.gap <= self.tol or (
            self.lower > before if self.problem.exact else self._recover()
        )

    def _recover(self) -> bool:
        """Go on where no Newton step pays; False if that, too, has nothing left to try.

        Either the machines' errors are larger than what the weights have left to gain: they are
        solved more exactly from now on. Or the value has a kink here, β being one of several: the
        planes of all β seen so far then bound it better than the slope of one, and where they are
        lowest is the next place to look.
        """
        exact, before = not self.sharpen(), self.gap
        self.best = self.problem.complete(self.best)
        self._note(self.best)
        theta, corner = self.best.theta, self.note_planes(self.planes)
        if corner is None and exact:
            return False
        if corner is not None:
            # The lowest point of the planes jumps from corner to corner; halfway is nearer to that
            # of the value.
            theta = theta + 0.5 * (corner - theta)
        trial = self._evaluate(self.best, theta)
        if trial is None:
            return False
        trial = self.problem.complete(trial)
        self._note(trial)
        self.best = trial if trial.upper <= self.best.upper else self.best
        # Machines that rounding keeps from being exact would lead from plane to plane and back
        # again.
        self.idle = self.idle + 1 if exact and not self.gap < before else 0
        return self.idle < self.problem.options.n_idle

    def _evaluate(self, here: Evaluation, theta: Weights) -> Evaluation | None:
        problem = self.problem
        trial = problem.evaluate(
            problem.retract(theta), here.solution.beta, self.inner, problem.watch(here)
        )
        if trial is None:
            return None
        # Where the known slopes prove the gap, those of all kernels are computed.
        if relative_gap(min(trial.upper, here.upper), problem.lower(trial)) <= 2 * self.tol:
            trial = problem.complete(trial)
        self._note(trial)
        return trial

    def _note(self, trial: Evaluation) -> None:
        self.note(trial)
        if trial.complete:
            self.planes.append((*self.problem.plane(trial), trial.solution.beta))
