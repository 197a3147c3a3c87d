"""Steps downhill: quasi-Newton and steepest descent with a line search, and the fixed step of the first paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Share of the decrease promised by the slope that a step must deliver.
_SUFFICIENT = 1e-4
#: Most evaluations in one line search.
_TRIALS = 20
#: Length of the very first step, in the units of standardised gates, whatever the objective's scale.
_FIRST_LENGTH = 0.5
#: Most doublings of a step that keeps paying, before the curvature is known.
_DOUBLINGS = 6


class Evaluated(Protocol):
    """Anything with the objective's value."""

    @property
    def value(self) -> float: ...


Look = TypeVar("Look", bound=Evaluated)


class Step(ABC):
    """A way to move from one point to the next; keeps what it learns of the objective from move to move."""

    #: Whether the objective never rises from one accepted point to the next.
    monotone: bool = True
    #: How many moves to make; None leaves it to the stop rule.
    n_moves: int | None = None

    @abstractmethod
    def move(
        self, x: Vector, at: Look, slope: Vector, evaluate: Callable[[Vector], Look]
    ) -> tuple[Vector, Look] | None:
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

    def move(
        self, x: Vector, at: Look, slope: Vector, evaluate: Callable[[Vector], Look]
    ) -> tuple[Vector, Look] | None:
        there = x - self.size * slope
        return there, evaluate(there)

    def fresh(self) -> Step:
        return FixedStep(self.size, self.n_moves)


class ArmijoStep(Step):
    """Steepest descent with Armijo's rule: J(V − Δ G) ≤ J − c Δ ‖G‖²; the first trial is twice the last step."""

    def __init__(self) -> None:
        self.size: float | None = None

    def move(
        self, x: Vector, at: Look, slope: Vector, evaluate: Callable[[Vector], Look]
    ) -> tuple[Vector, Look] | None:
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None
        first = _FIRST_LENGTH / norm if self.size is None else 2.0 * self.size
        found = _search(x, at, -slope, -(norm**2), evaluate, first)
        if found is None:
            return None
        size, there, look = found
        self.size = size
        return there, look


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

    def move(
        self, x: Vector, at: Look, slope: Vector, evaluate: Callable[[Vector], Look]
    ) -> tuple[Vector, Look] | None:
        self._learn(x, slope)
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None
        direction = self._direction(slope)
        steep = float(direction @ slope)
        known = bool(self.pairs) and steep < 0
        if not known:
            direction, steep = -slope, -(norm**2)
        first = 1.0 if known else _FIRST_LENGTH / norm
        found = _search(x, at, direction, steep, evaluate, first, grow=not known)
        if found is None and known:
            # What was learned of the curvature does not hold here: start again downhill.
            self.pairs.clear()
            found = _search(x, at, -slope, -(norm**2), evaluate, _FIRST_LENGTH / norm)
        return None if found is None else found[1:]

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


def _search(
    x: Vector,
    at: Look,
    direction: Vector,
    steep: float,
    evaluate: Callable[[Vector], Look],
    size: float,
    grow: bool = False,
) -> tuple[float, Vector, Look] | None:
    """Return a step that decreases the objective enough, its end and the evaluation there; None if none is found."""
    for trial in range(_TRIALS):
        there = x + size * direction
        look = evaluate(there)
        if np.isfinite(look.value) and look.value <= at.value + _SUFFICIENT * size * steep and look.value < at.value:
            return _grown(x, direction, evaluate, size, there, look) if grow and trial == 0 else (size, there, look)
        size *= _shrinking(size, steep, look.value - at.value)
    return None


def _grown(
    x: Vector, direction: Vector, evaluate: Callable[[Vector], Look], size: float, there: Vector, look: Look
) -> tuple[float, Vector, Look]:
    """Double a step as long as that pays."""
    for _ in range(_DOUBLINGS):
        further = x + 2.0 * size * direction
        beyond = evaluate(further)
        if not beyond.value < look.value:
            break
        size, there, look = 2.0 * size, further, beyond
    return size, there, look


def _shrinking(size: float, steep: float, rise: float) -> float:
    """Return the factor to where a parabola through what is known has its minimum, within reason."""
    curvature = rise - size * steep
    if not np.isfinite(curvature) or curvature <= 0:
        return 0.5
    return float(np.clip(-0.5 * size * steep / curvature, 0.1, 0.5))


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
