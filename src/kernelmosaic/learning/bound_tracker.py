"""The best weights seen so far, and how good they are certified to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kernelmosaic.learning.base import Iteration
from kernelmosaic.learning.progress import GapProgress
from kernelmosaic.solvers import relative_gap


class Valued(Protocol):
    """A look at a problem at some weights, with a value no less than the optimum."""

    @property
    def upper(self) -> float: ...


Look = TypeVar("Look", bound=Valued)
Look_contra = TypeVar("Look_contra", bound=Valued, contravariant=True)


class Bounded(Protocol[Look_contra]):
    """A problem in which every look gives a lower bound on the optimum."""

    def lower(self, at: Look_contra, /) -> float: ...


class BoundTracker(Generic[Look]):
    """Keeps the best look and the best lower bound; every look may better either.

    Parameters
    ----------
    problem : Bounded
        What is being solved.
    first : Valued
        The first look at it.
    """

    def __init__(self, problem: Bounded[Look], first: Look) -> None:
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

    def see(self, there: Look) -> bool:
        """Take note of a look; whether it is the best so far."""
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
        with progress as advance:
            advance(self.gap)
            while self.gap > tol and len(self.history) < max_iter and step():
                advance(self.record())
