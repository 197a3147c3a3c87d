"""Second-order steps on the weights: few machine solves, each warm-started from the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.discriminant import DiscriminantProblem
from kernelmosaic.learning.multiclass import MulticlassProblem
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    ROUNDING,
    BoundTracker,
    Evaluation,
    ExhaustedError,
    Iteration,
    Learned,
    Learner,
    MachineProblem,
    Options,
    Problem,
)
from kernelmosaic.learning.start import Start
from kernelmosaic.machines.discriminant import Discriminant
from kernelmosaic.solvers import relative_gap
from kernelmosaic.solvers.line_search import line_search

#: Weights are first learned from this share of the samples, ...
_PART = 0.2
#: ... unless these are fewer than this, ...
_LEAST_PART = 200
#: ... to a gap of no less than this: they are not those of all samples anyway.
_ROUGH = 1e-2
#: The machine is first solved to this gap, ...
_FIRST_TOL = 1e-2
#: ... or to this share of the tolerance if it starts from the solution of a like problem, ...
_WARM_SHARE = 0.3
#: ... then sharpened by this factor whenever no step pays, down to rounding.
_SHARPER = 0.03
_SHARPEST = 1e-13
#: Most evaluations in one line search.
_ATTEMPTS = 8
#: A step is kept that closes the gap by this factor at a value that is the same but for so much of it.
_CLOSER, _LEVEL = 0.9, 1e-12
#: So many looks at the planes in a row, with machines as exact as can be, must lower the gap.
_IDLE = 14
#: How far to go from the best weights towards the lowest point of the planes, which jumps from corner to corner.
_INWARD = 0.5


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
        problem = make_problem(stack, machine, self.options, start)
        known = self._from_a_part(stack, machine) if start.weights is None else start.weights
        theta = None if known is None else problem.scaled(known)
        search = NewtonSearch(problem, self.options.tol, start.beta, theta)
        search.improve(search.step, self.options)
        return search

    def _from_a_part(self, stack: GramStack, machine: Any) -> Weights | None:
        """Return the weights that some of the samples ask for, which are near those of all and cost next to nothing."""
        count = min(int(_PART * stack.n_samples), stack.part_samples)
        if count < _LEAST_PART or stack.n_kernels == 1 or not machine.can_be_subsampled:
            return None
        rows = np.unique(np.linspace(0, stack.n_samples - 1, count).astype(np.intp))
        rough = replace(self.options, tol=max(self.options.tol, _ROUGH), verbose=False)
        try:
            found = Newton(rough).learn(stack.take(rows, stored=True), machine.subsampled(rows))
        except ValueError:  # the weights of these few samples may leave no feasible β
            return None
        return found.weights


def make_problem(stack: GramStack, machine: Any, options: Options, start: Start) -> Problem:
    """Return the problem that a machine poses with one weight per kernel; it combines kernels where the start does."""
    if isinstance(machine, Discriminant):
        return DiscriminantProblem(stack, machine, options)
    kind = MachineProblem if machine.has_independent_outputs else MulticlassProblem
    return kind(stack, machine, options, start)


def polish(found: BoundTracker, options: Options) -> Learned:
    """Return what a search learned, after Newton steps from its best weights where no single β proves its gap."""
    if found.gap <= options.tol or found.known_gap > options.tol:
        return found.learned()
    try:
        search = NewtonSearch(found.problem, options.tol, found.best.solution.beta, found.best.theta)
    except ExhaustedError:
        return found.learned()
    search.improve(search.step, options)
    closer = search if search.gap < found.gap else found
    return replace(closer.learned(), history=[*found.history[:-1], Iteration(closer.proved.upper, closer.gap)])


class NewtonSearch(BoundTracker):
    """Newton steps with a line search on the exact value, and the planes of all β seen where none pays.

    Parameters
    ----------
    problem : Problem
        What is being solved.
    tol : float
        The relative duality gap asked for.
    warm_start : ndarray or None
        β to start from.
    theta : ndarray of shape (P,), optional
        Scaled weights to start from; by default the middle of their set.
    """

    def __init__(self, problem: Problem, tol: float, warm_start: Any, theta: Weights | None = None) -> None:
        self.tol = tol
        is_warm = theta is not None and warm_start is not None
        first = min(_FIRST_TOL, (_WARM_SHARE if is_warm else 10) * tol)
        self.inner = _SHARPEST if problem.exact else max(first, _SHARPEST)
        super().__init__(problem, problem.evaluate(problem.start() if theta is None else theta, warm_start, self.inner))
        self.planes = [problem.plane(self.best)]
        self.betas = [self.best.solution.beta]
        self.idle = 0

    def step(self) -> bool:
        """Lower the value by a Newton step, or find out why none does; False if nothing is left to try."""
        here, before, gap = self.best, self.lower, self.gap
        watched = here.watched
        direction = np.zeros_like(here.theta)
        direction[watched] = self.problem.norm.newton_direction(
            here.theta[watched], here.q[watched], self.problem.curvature(here)
        )
        slope = -float(here.q[watched] @ direction[watched])
        self.inner = self._inner_tol(here)
        found = line_search(
            lambda size: self._evaluate(self.problem.retract(here.theta + size * direction), here),
            here,
            slope,
            attempts=_ATTEMPTS,
            slope_at=lambda at: -float(at.q[watched] @ direction[watched]),
            # Differences below the machine's own gap say nothing about the weights.
            hidden=lambda size, _: self.gap <= self.tol or -size * slope <= here.solution.gap * abs(here.upper),
        )
        if found is not None:
            self.best = found[1]
            return True
        if self.gap < _CLOSER * gap and self.proved.upper - here.upper <= _LEVEL * abs(here.upper):
            # Rounding hides what the step gains in the value, but not what it gains in the bound.
            self.best = self.proved
            return True
        return self.gap <= self.tol or (self.lower > before if self.problem.exact else self._recover())

    def _recover(self) -> bool:
        """Go on where no Newton step pays; False if that, too, has nothing left to try.

        Either the machines' errors are larger than what the weights have left to gain: they are solved more exactly
        from now on. Or the value has a kink here, β being one of several: the planes of all β seen so far then know
        more than the slope of one, and where they are lowest is the next place to look.
        """
        exact, before = self.inner <= _SHARPEST, self.gap
        self.inner = max(_SHARPER * self.inner, _SHARPEST)
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
            self.bound(lower)
            self.note(self.problem.assess(theta, mixture))
            theta = self.problem.retract(theta + _INWARD * (corner - theta))
        there = self.problem.complete(self._evaluate(theta, self.best))
        self._note(there)
        self.best = there if there.upper <= self.best.upper else self.best
        # Machines that rounding keeps from being exact would lead from plane to plane and back again.
        self.idle = self.idle + 1 if exact and not self.gap < before else 0
        return self.idle < _IDLE

    def _evaluate(self, theta: NDArray[np.float64], here: Evaluation) -> Evaluation:
        there = self.problem.evaluate(theta, here.solution.beta, self.inner, self.problem.watch(here))
        # Once the kernels looked at would do, the others are asked whether they agree.
        if relative_gap(min(there.upper, here.upper), self.problem.lower(there)) <= 2 * self.tol:
            there = self.problem.complete(there)
        self._note(there)
        return there

    def _note(self, there: Evaluation) -> None:
        self.note(there)
        if there.complete:
            self.planes.append(self.problem.plane(there))
            self.betas.append(there.solution.beta)

    def _inner_tol(self, here: Evaluation) -> float:
        # An error δ in the machine's value is one of √δ in β and in the slopes: the gap of the whole needs its square.
        gap = relative_gap(here.upper, self.problem.lower(here))
        # Where the kernel is computed whenever it is needed, the last digits of a machine cost more than a step.
        least = 1e-2 if self.problem.stack.stores_combined else 0.1
        return min(self.inner, max(0.1 * gap**2, least * self.tol, _SHARPEST))
