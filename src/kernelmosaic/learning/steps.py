"""Steps downhill: quasi-Newton and steepest descent with a line search, and the fixed step of the first paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.learning.problem import Evaluation
from kernelmosaic.solvers.line_search import line_search

Vector = NDArray[np.float64]
At = TypeVar("At", bound=Evaluation)

#: Most evaluations in one line search.
_TRIALS = 20
#: Length of the very first step, in the units of standardised gates, whatever the objective's scale.
_FIRST_LENGTH = 0.5


class Step(ABC):
    """A way to move from one point to the next; keeps what it learns of the objective from move to move."""

    #: Whether the objective never rises from one accepted point to the next.
    monotone: bool = True
    #: How many moves to make; None leaves it to the stop rule.
    n_moves: int | None = None

    @abstractmethod
    def move(self, x: Vector, at: At, slope: Vector, evaluate: Callable[[Vector], At]) -> tuple[Vector, At] | None:
        """Return the next point with its evaluation, or None where no step gains."""

    def fresh(self) -> Step:
        """Return a step of the same kind that knows nothing yet."""
        return type(self)()


class FixedStep(Step):
    """V ← V − 0.01 ∂J/∂V, fifty times, as in Gönen and Alpaydın (2008); the objective may rise."""

    monotone = False
    n_moves = 50

    def __init__(self, size: float = 0.01, n_moves: int = 50) -> None:
        self.size = size
        self.n_moves = n_moves

    def move(self, x: Vector, at: At, slope: Vector, evaluate: Callable[[Vector], At]) -> tuple[Vector, At] | None:
        there = x - self.size * slope
        return there, evaluate(there)

    def fresh(self) -> Step:
        return FixedStep(self.size, self.n_moves)


class ArmijoStep(Step):
    """Steepest descent with Armijo's rule: J(V − Δ G) ≤ J − c Δ ‖G‖²; the first trial is twice the last step."""

    def __init__(self) -> None:
        self.size: float | None = None

    def move(self, x: Vector, at: At, slope: Vector, evaluate: Callable[[Vector], At]) -> tuple[Vector, At] | None:
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None
        first = _FIRST_LENGTH / norm if self.size is None else 2.0 * self.size
        found = line_search(lambda size: evaluate(x - size * slope), at, -(norm**2), attempts=_TRIALS, size=first)
        if found is None:
            return None
        self.size = found[0]
        return x - self.size * slope, found[1]


class QuasiNewtonStep(Step):
    """L-BFGS with Armijo's rule; pairs without positive curvature are left out.

    Parameters
    ----------
    memory : int
        Pairs of steps and slope changes to keep.
    """

    def __init__(self, memory: int = 20) -> None:
        self.pairs: deque[tuple[Vector, Vector]] = deque(maxlen=memory)
        self.last: tuple[Vector, Vector] | None = None

    def fresh(self) -> Step:
        return QuasiNewtonStep(self.pairs.maxlen or 20)

    def move(self, x: Vector, at: At, slope: Vector, evaluate: Callable[[Vector], At]) -> tuple[Vector, At] | None:
        self._learn(x, slope)
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None

        def search(direction: Vector, size: float, grow: bool) -> tuple[Vector, At] | None:
            steep = float(direction @ slope)
            found = line_search(
                lambda size: evaluate(x + size * direction), at, steep, attempts=_TRIALS, size=size, grow=grow
            )
            return None if found is None else (x + found[0] * direction, found[1])

        direction = self._direction(slope)
        if not self.pairs or float(direction @ slope) >= 0:
            return search(-slope, _FIRST_LENGTH / norm, grow=True)
        found = search(direction, 1.0, grow=False)
        if found is None:
            # What was learned of the curvature does not hold here: start again downhill.
            self.pairs.clear()
            found = search(-slope, _FIRST_LENGTH / norm, grow=False)
        return found

    def _learn(self, x: Vector, slope: Vector) -> None:
        if self.last is not None:
            s, y = x - self.last[0], slope - self.last[1]
            if s @ y > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
                self.pairs.append((s, y))
        self.last = (x.copy(), slope.copy())

    def _direction(self, slope: Vector) -> Vector:
        """The two-loop recursion."""
        q = slope.copy()
        kept = []
        for s, y in reversed(self.pairs):
            a = (s @ q) / (s @ y)
            q -= a * y
            kept.append(a)
        if self.pairs:
            s, y = self.pairs[-1]
            q *= (s @ y) / (y @ y)
        for (s, y), a in zip(self.pairs, reversed(kept), strict=True):
            q += (a - (y @ q) / (s @ y)) * s
        return -q


#: Steps by the name an estimator's `step` gives them.
STEPS: dict[str, type[Any]] = {"lbfgs": QuasiNewtonStep, "armijo": ArmijoStep, "fixed": FixedStep}


def make_step(step: Any) -> Step:
    """Return the step of that name, or the one given, or raise naming those there are."""
    if isinstance(step, Step):
        return step.fresh()
    if isinstance(step, str) and step in STEPS:
        made: Step = STEPS[step]()
        return made
    raise ValueError(f"step={step!r}: choose one of {', '.join(map(repr, STEPS))}.")
