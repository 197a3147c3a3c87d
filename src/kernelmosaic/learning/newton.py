"""Second-order steps on the weights: few machine solves, each warm-started from the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    ROUNDING,
    BoundTracker,
    Evaluation,
    ExhaustedError,
    Learner,
    WeightProblem,
    make_problem,
)
from kernelmosaic.solvers import relative_gap


class Newton(Learner):
    """Newton steps over the set of weights, with a line search on the exact value.

    The value J(θ) = max_β is convex and, between changes of the set of free samples, smooth; its slope is −q and its
    curvature follows from the free samples' block (`MachineProblem.curvature`); that of a `DiscriminantProblem` is
    smooth everywhere. Kernels far from entering are not read again until the others have settled. Large sets start from
    the weights of a part of the samples, which start from those of a part of the part.
    """

    machine_needs = ()
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        return self.search(stack, machine, start).learned()

    def search(self, stack: GramStack, machine: Any, start: Start) -> NewtonSearch:
        """Return the search for the weights once it has ended."""
        problem = make_problem(machine, stack, self.options, start)
        weights = self._from_a_part(stack, machine) if start.weights is None else start.weights
        theta = None if weights is None else problem.norm.opened(problem.scaled(weights))
        search = NewtonSearch(problem, start.beta, theta, problem.known(start), start.weights is not None)
        search.improve()
        return search

    def _from_a_part(self, stack: GramStack, machine: Any, share: float = 0.2) -> Weights | None:
        """Return the weights of a share of the samples, which are near those of all and cost little; None if few."""
        options, count = self.options, min(int(share * stack.n_samples), stack.part_samples)
        if count < options.least_part or stack.n_kernels == 1 or not machine.can_be_subsampled:
            return None
        rows = np.unique(np.linspace(0, stack.n_samples - 1, count).astype(np.intp))
        rough = replace(options, tol=max(options.tol, options.first_tol), verbose=False)
        try:
            found = Newton(rough).learn(stack.take(rows, stored=True), machine.take(rows))
        except ValueError:  # the weights of these few samples may leave no feasible β
            return None
        return found.weights


def polish(found: BoundTracker) -> Learned:
    """Return what a search learned, after Newton steps from its best weights where no single β proves its gap."""
    tol = found.problem.options.tol
    if found.gap <= tol or found.known_gap > tol:
        return found.learned()
    try:
        search = NewtonSearch(found.problem, found.best.solution.beta, found.best.theta)
    except ExhaustedError:
        return found.learned()
    search.improve()
    closer = search if search.gap < found.gap else found
    return replace(closer.learned(), history=[*found.history[:-1], Iteration(closer.proved.upper, closer.gap)])


class NewtonSearch(BoundTracker):
    """Newton steps with a line search on the exact value, and the planes of all β seen where none pays.

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
    """

    def __init__(
        self,
        problem: WeightProblem,
        warm_start: Weights | None,
        theta: Weights | None = None,
        known: Evaluation | None = None,
        is_like: bool = True,
    ) -> None:
        options = problem.options
        self.tol, self.sharpest = options.tol, options.sharpest
        # From the solution of a like problem the first steps are the last ones.
        is_warm = theta is not None and is_like
        first = min(options.first_tol, (0.3 if is_warm else 10.0) * options.tol)
        self.inner = self.sharpest if problem.exact else max(first, self.sharpest)
        if known is None or not relative_gap(known.upper, problem.lower(known)) <= self.tol:
            known = problem.evaluate(problem.start() if theta is None else theta, warm_start, self.inner)
        super().__init__(problem, known)
        self.planes = [problem.plane(self.best)]
        self.betas = [self.best.solution.beta]
        self.idle = 0

    def step(self) -> bool:
        """Lower the value by a Newton step, or find out why none does; False if nothing is left to try."""
        here, before, known = self.best, self.lower, self.best.known
        direction = np.zeros_like(here.theta)
        direction[known] = self.problem.norm.newton_direction(
            here.theta[known], here.q[known], self.problem.curvature(here)
        )
        # An error δ in the machine's value is one of √δ in β and in the slopes: the gap of the whole needs its square.
        own_gap = relative_gap(here.upper, self.problem.lower(here))
        # Where the kernel is computed whenever it is needed, the last digits of a machine cost more than a step.
        least = 1e-2 if self.problem.stack.stores_combined else 0.1
        self.inner = min(self.inner, max(0.1 * own_gap**2, least * self.tol, self.sharpest))
        found = self.walk(here, direction, lambda theta: self._evaluate(self.problem.retract(theta), here))
        if found is not None:
            self.best = found
            return True
        return self.gap <= self.tol or (self.lower > before if self.problem.exact else self._recover())

    def _recover(self) -> bool:
        """Go on where no Newton step pays; False if that, too, has nothing left to try.

        Either the machines' errors are larger than what the weights have left to gain: they are solved more exactly
        from now on. Or the value has a kink here, β being one of several: the planes of all β seen so far then bound it
        better than the slope of one, and where they are lowest is the next place to look.
        """
        exact, before = not self.sharpen(), self.gap
        self.best = self.problem.complete(self.best)
        self._note(self.best)
        constants, slopes = map(np.array, zip(*self.planes, strict=True))
        lowest = self.problem.norm.lowest_plane_point(constants, slopes)
        if lowest is None and exact:
            return False
        theta = self.best.theta
        if lowest is not None:
            corner, lower, shares = lowest
            # The value of the dual is concave: the mixture of the β bounds the optimum no less than that of the planes.
            mixture = sum(share * beta for share, beta in zip(shares, self.betas, strict=True) if share)
            self.lower = max(self.lower, lower)
            self.note(self.problem.assess(theta, mixture))
            # The lowest point of the planes jumps from corner to corner; halfway is nearer to that of the value.
            theta = self.problem.retract(theta + 0.5 * (corner - theta))
        trial = self.problem.complete(self._evaluate(theta, self.best))
        self._note(trial)
        self.best = trial if trial.upper <= self.best.upper else self.best
        # Machines that rounding keeps from being exact would lead from plane to plane and back again.
        self.idle = self.idle + 1 if exact and not self.gap < before else 0
        return self.idle < self.problem.options.n_idle

    def _evaluate(self, theta: NDArray[np.float64], here: Evaluation) -> Evaluation:
        trial = self.problem.evaluate(theta, here.solution.beta, self.inner, self.problem.watch(here))
        # Where the known slopes prove the gap, those of all kernels are computed.
        if relative_gap(min(trial.upper, here.upper), self.problem.lower(trial)) <= 2 * self.tol:
            trial = self.problem.complete(trial)
        self._note(trial)
        return trial

    def _note(self, trial: Evaluation) -> None:
        self.note(trial)
        if trial.complete:
            self.planes.append(self.problem.plane(trial))
            self.betas.append(trial.solution.beta)
