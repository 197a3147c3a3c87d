"""Steps downhill: quasi-Newton and steepest descent with a line search, and the fixed step of the first paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._checks import check_choice
from kernelmosaic.learning.problem import Evaluation
from kernelmosaic.solvers.line_search import Trials, line_search

Array = NDArray[np.float64]
At = TypeVar("At", bound=Evaluation)


class Step(ABC):
    """A way to move from one point to the next; it keeps what moves show of the objective."""

    #: Whether the objective never rises from one accepted point to the next.
    monotone: bool = True
    #: Most moves to make; the learner may allow fewer.
    n_moves: float = np.inf
    #: Length of the very first step, in the units of standardised gates, whatever the objective's scale.
    first_length: float = 0.5
    #: Most evaluations in one line search.
    trials: int = 20

    @abstractmethod
    def move(self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At]) -> tuple[Array, At] | None:
        """Return the next point with its evaluation, or None where no step gains."""


class FixedStep(Step):
    """V ← V − 0.01 ∂J/∂V, fifty times, as in Gönen and Alpaydın (2008); the objective may rise."""

    monotone = False

    def __init__(self, size: float = 0.01, n_moves: int = 50) -> None:
        self.size, self.n_moves = size, n_moves

    def move(self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At]) -> tuple[Array, At] | None:
        moved = x - self.size * slope
        return moved, evaluate(moved)


class ArmijoStep(Step):
    """Steepest descent with Armijo's rule: J(V − Δ G) ≤ J − c Δ ‖G‖²; the first trial is twice the last step."""

    def __init__(self) -> None:
        self.size: float | None = None

    def move(self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At]) -> tuple[Array, At] | None:
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None
        first = self.first_length / norm if self.size is None else 2.0 * self.size
        found = line_search(lambda size: evaluate(x - size * slope), at, -(norm**2), Trials(self.trials, first))
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
        self.pairs: deque[tuple[Array, Array]] = deque(maxlen=memory)
        self.last: tuple[Array, Array] | None = None

    def move(self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At]) -> tuple[Array, At] | None:
        self._learn(x, slope)
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None

        def search(direction: Array, size: float, grow: bool) -> tuple[Array, At] | None:
            steep = float(direction @ slope)
            trials = Trials(self.trials, size, grow=grow)
            found = line_search(lambda size: evaluate(x + size * direction), at, steep, trials)
            return None if found is None else (x + found[0] * direction, found[1])

        direction = self._direction(slope)
        if not self.pairs or float(direction @ slope) >= 0:
            return search(-slope, self.first_length / norm, grow=True)
        found = search(direction, 1.0, grow=False)
        if found is None:
            # What was learned of the curvature does not hold here: start again downhill.
            self.pairs.clear()
            found = search(-slope, self.first_length / norm, grow=False)
        return found

    def _learn(self, x: Array, slope: Array) -> None:
        if self.last is not None:
            s, y = x - self.last[0], slope - self.last[1]
            if s @ y > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
                self.pairs.append((s, y))
        self.last = (x.copy(), slope.copy())

    def _direction(self, slope: Array) -> Array:
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
STEPS: dict[str, type[Step]] = {"lbfgs": QuasiNewtonStep, "armijo": ArmijoStep, "fixed": FixedStep}


def make_step(step: Any) -> Step:
    """Return the step of that name, or a copy of the one given, or raise naming those there are."""
    if isinstance(step, Step):
        return deepcopy(step)
    return STEPS[check_choice("step", step, STEPS)]()
