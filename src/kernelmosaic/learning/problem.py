"""The training problem at given weights, and the best weights seen so far with how good they are certified to be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Iteration, Learned, Options
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.progress import GapProgress
from kernelmosaic.solvers import Solution, relative_gap
from kernelmosaic.solvers.free_block import free_samples
from kernelmosaic.solvers.smo import most_steps

#: A kernel whose slope is below this share of the steepest cannot enter soon, and is not asked every time.
_WATCHED = 0.8
#: Relative to the kernel's mean diagonal.
_NOISE = 1e-10
#: Sufficient decrease in a line search: the share of what the slope promises.
_ARMIJO = 1e-4
#: So many solves in vain that end above such a gap are enough, however few steps they took.
_HOPELESS = {0.1: 4, 1e-3: 16}


class ExhaustedError(Exception):
    """Machines were solved for so long without reaching their gap that more solves would be in vain, too."""


class Patience:
    """Counts the steps of solves that did not reach their gap.

    Parameters
    ----------
    n_samples : int
        Of the machine, which says how many steps one solve may take: so many in vain are enough.
    """

    def __init__(self, n_samples: int) -> None:
        self.left = self.whole = most_steps(n_samples)

    def require(self) -> None:
        """Raise an `ExhaustedError` if there is none left."""
        if self.left <= 0:
            raise ExhaustedError

    def note(self, solution: Any, tol: float) -> None:
        """Take note of a solve to a relative gap of `tol`."""
        if solution.gap > tol:
            # Solvers of other kernels than stored matrices count other steps than those of pairs.
            enough = next((count for gap, count in _HOPELESS.items() if solution.gap > gap), self.whole)
            self.left -= max(solution.n_iter, self.whole // enough)


@dataclass(frozen=True)
class Evaluation:
    """The machine solved at weights θ.

    Attributes
    ----------
    theta : ndarray of shape (P,)
        Scaled weights θ = d² ∘ η.
    solution : Solution
        Of the machine on the combined kernel.
    upper : float
        Primal value: no less than the problem's optimum at these weights, and so over all weights.
    q : ndarray of shape (P,)
        ½ βᵀK_mβ / d_m², the slopes of the value downward in θ; NaN for kernels whose slopes were not asked for.
    products : ndarray of shape (P, n_support)
        K_m β / d_m² at the support samples; rows of kernels whose slopes were not asked for are meaningless.
    support : ndarray of shape (n_support,)
        Samples where β is not zero.
    """

    theta: Weights
    solution: Solution
    upper: float
    q: Weights
    products: NDArray[np.float64]
    support: NDArray[np.intp]

    @property
    def watched(self) -> NDArray[np.intp]:
        """The kernels whose slopes are known."""
        return np.flatnonzero(~np.isnan(self.q))

    @property
    def complete(self) -> bool:
        """Whether every slope is known, without which there is no lower bound."""
        return not np.isnan(self.q).any()


class Problem:
    """Stack, machine, penalties and norm, evaluated at weights with warm starts; it keeps one combined matrix."""

    def __init__(self, stack: GramStack, machine: Any, options: Options) -> None:
        self.stack = stack
        self.machine = machine
        self.norm = options.norm
        self.scale = 1.0 / options.penalties**2
        self.n_solves = 0
        self.patience = Patience(stack.n_samples)
        self._K: Any = None
        self._at: Weights | None = None

    @property
    def n_kernels(self) -> int:
        return self.stack.n_kernels

    @property
    def noise(self) -> float:
        """What a value of zero may come out as.

        A one-class machine whose samples surround the origin is worth nothing, and no relative gap to zero is small.
        """
        if self._K is None or self.machine.program.target.any():
            return 0.0
        return _NOISE * float(self._K.diagonal().mean())

    def combine(self, theta: Weights) -> Any:
        """Return the combined kernel at θ, made anew only when θ has changed."""
        if self._at is None or not np.array_equal(self._at, theta):
            self._K = self.stack.combine(theta * self.scale, out=self._K)
            self._at = theta
        return self._K

    def solve(self, theta: Weights, warm_start: NDArray[np.float64] | None, tol: float) -> Solution:
        """Solve the machine at θ to a relative gap of `tol`.

        Raises
        ------
        ExhaustedError
            If solves that did not reach their gap have used up the steps that one may take.
        """
        self.patience.require()
        solution: Solution = self.machine.solve(self.combine(theta), warm_start, tol)
        self.n_solves += 1
        self.patience.note(solution, tol)
        return solution

    def evaluate(
        self,
        theta: Weights,
        warm_start: NDArray[np.float64] | None,
        tol: float,
        kernels: NDArray[np.intp] | None = None,
    ) -> Evaluation:
        """Solve the machine at θ to a relative gap of `tol`, with the slopes of these kernels (all if None)."""
        solution = self.solve(theta, warm_start, tol)
        support = np.flatnonzero(solution.beta)
        blank = np.zeros((self.n_kernels, len(support)))
        unknown = Evaluation(theta, solution, np.inf, np.full(self.n_kernels, np.nan), blank, support)
        every = np.arange(self.n_kernels)
        known = self.add_slopes(unknown, every if kernels is None else np.union1d(kernels, every[theta > 0]))
        # The kernel part of the value, from the same products as the slopes, so that both bounds see one arithmetic.
        quadratic = float(theta[theta > 0] @ known.q[theta > 0])
        upper = self.machine.program.primal_value(quadratic, solution.values, solution.intercept)
        return replace(known, upper=upper)

    def add_slopes(self, at: Evaluation, kernels: NDArray[np.intp]) -> Evaluation:
        """Add the slopes of more kernels."""
        fresh = self.stack.products(at.solution.beta, at.support, kernels)[kernels] * self.scale[kernels, np.newaxis]
        products, q = at.products.copy(), at.q.copy()
        products[kernels] = fresh
        # Rounding can make the form of a positive semi-definite matrix negative.
        q[kernels] = np.maximum(0.5 * (fresh @ at.solution.beta[at.support]), 0.0)
        return replace(at, products=products, q=q)

    def complete(self, at: Evaluation) -> Evaluation:
        """Evaluated at every kernel."""
        return at if at.complete else self.add_slopes(at, np.flatnonzero(np.isnan(at.q)))

    def watch(self, at: Evaluation) -> NDArray[np.intp]:
        """The kernels whose slopes to ask for next: those with a weight, or a slope not far from the steepest."""
        return np.flatnonzero((at.theta > 0) | (at.q >= _WATCHED * np.nanmax(at.q)))

    def lower(self, at: Evaluation) -> float:
        """What β guarantees whatever the weights of the kernels watched: a bound on the optimum if these are all."""
        constant, slopes = self.plane(at)
        return constant - self.norm.support(slopes[at.watched])

    def plane(self, at: Evaluation) -> tuple[float, Weights]:
        """Return c and q of the plane c − ⟨q, θ⟩ that β puts below the value everywhere."""
        return self.machine.program.linear_value(at.solution.beta), at.q

    def guarantee(self, beta: NDArray[np.float64]) -> float:
        """Return the lower bound on the optimum that any feasible β gives."""
        q = self.stack.quadratic_forms(beta) * self.scale
        return float(self.machine.program.linear_value(beta)) - self.norm.support(q)

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        """Return what a learner does whose best evaluation this is."""
        return Learned(best.theta * self.scale, best.solution, best.upper, gap, self.n_solves, history)

    def curvature(self, at: Evaluation) -> NDArray[np.float64]:
        """Return ∂²J/∂θ² among the kernels watched, while the free samples stay free: how β answers to the weights.

        The free coefficients solve a linear system in the combined kernel, so their answer to a change of θ_m is its
        inverse times K_m β; everything else is fixed at its bound.
        """
        program = self.machine.program
        free = free_samples(program, at.solution.beta)
        if len(free) == 0 or self._K is None or self._at is None or not np.array_equal(self._at, at.theta):
            return np.zeros((len(at.watched),) * 2)
        V = self._products_at(at, free).T
        answer = self._K.solve_free(free, program.ridge[free], np.column_stack([V, np.ones(len(free))]))
        H = V.T @ answer[:, :-1]
        if program.total is not None and answer[:, -1].sum() > 0:
            pull = V.T @ answer[:, -1]
            H -= np.outer(pull, pull) / answer[:, -1].sum()
        return np.asarray(H)

    def _products_at(self, at: Evaluation, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return K_m β / d_m² at these samples for the kernels watched, of shape (len(at.watched), len(rows))."""
        known = np.isin(rows, at.support, assume_unique=True)
        values = np.empty((len(at.watched), len(rows)))
        values[:, known] = at.products[np.ix_(at.watched, np.searchsorted(at.support, rows[known]))]
        if not known.all():  # without a tube a sample may be free and yet have a coefficient of zero
            fresh = self.stack.products(at.solution.beta, rows[~known], at.watched)[at.watched]
            values[:, ~known] = fresh * self.scale[at.watched, np.newaxis]
        return values


class Valued(Protocol):
    """An evaluation of a problem at some weights, with a value no less than the optimum."""

    @property
    def upper(self) -> float: ...


Evaluated = TypeVar("Evaluated", bound=Valued)
Evaluated_contra = TypeVar("Evaluated_contra", bound=Valued, contravariant=True)


class Bounded(Protocol[Evaluated_contra]):
    """A problem in which every evaluation gives a lower bound on the optimum."""

    def lower(self, at: Evaluated_contra, /) -> float: ...


class BoundTracker(Generic[Evaluated]):
    """Keeps the best evaluation and the best lower bound; every evaluation may better either.

    Parameters
    ----------
    problem : Bounded
        What is being solved.
    first : Valued
        The first one.
    """

    def __init__(self, problem: Bounded[Evaluated], first: Evaluated) -> None:
        self.problem = problem
        self.best = first
        self.lower = problem.lower(first)
        self.history = [Iteration(first.upper, self.gap)]

    @property
    def noise(self) -> float:
        """A lower bound of less than this is zero up to rounding, and the gap with it."""
        return 0.0

    @property
    def gap(self) -> float:
        return relative_gap(self.best.upper, self.lower, self.noise)

    def see(self, there: Evaluated) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        self.bound(self.problem.lower(there))
        if there.upper >= self.best.upper:
            return False
        self.best = there
        return True

    def bound(self, lower: float) -> None:
        """Take note of a lower bound on the optimum."""
        self.lower = max(self.lower, lower)

    def record(self) -> float:
        """Add a line to the history and return the gap."""
        self.history.append(Iteration(self.best.upper, self.gap))
        return self.gap

    def improve(self, step: Callable[[], bool], tol: float, max_iter: int, progress: GapProgress) -> None:
        """Record step after step until the gap is `tol`, the history has `max_iter` lines, or a step says False."""
        with progress as advance, suppress(ExhaustedError):
            advance(self.gap)
            while self.gap > tol and len(self.history) < max_iter and step():
                advance(self.record())


def line_search(
    evaluate: Callable[[float], Any],
    here: Any,
    slope: float,
    *,
    value: Callable[[Any], float],
    slope_at: Callable[[Any], float],
    hidden: Callable[[float, Any], bool],
    attempts: int,
) -> Any:
    """Return the first evaluation along a direction that lowers the value enough; None if none does.

    Parameters
    ----------
    evaluate : callable
        From the size of a step, of which 1 is the full one, to the evaluation at its end.
    here : Evaluation
        Where the line starts.
    slope : float
        Of the value there along the direction; a line that does not fall is not searched.
    value, slope_at : callable
        From an evaluation to the value, and to its slope along the direction.
    hidden : callable
        From the size and the evaluation at its end to whether shorter steps would show nothing, either.
    attempts : int
        Most evaluations.
    """
    size = 1.0
    for attempt in range(attempts if slope < 0 else 0):
        there = evaluate(size)
        rise = value(there) - value(here)
        if rise <= _ARMIJO * size * slope:
            return there
        if hidden(size, there):
            return None
        size *= _shrink(rise / size, slope, slope_at(there), smooth=attempt == 0)
    return None


def _shrink(rise: float, slope_here: float, slope_there: float, *, smooth: bool) -> float:
    """Return the factor by which to shorten a step after which the value rises again, all slopes a unit of the step.

    A smooth value is taken as quadratic, its slope as linear; if that did not do, there is a kink between the two
    points, and the value is taken as the larger of its two tangents.
    """
    if not slope_there > 0:
        return 0.5
    if smooth:
        return float(np.clip(slope_here / (slope_here - slope_there), 0.1, 0.7))
    return float(np.clip((slope_there - rise) / (slope_there - slope_here), 1e-3, 0.7))
