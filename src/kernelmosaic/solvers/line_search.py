"""A line search of sufficient decrease, for the weights of kernels as for those of features, and
steps that take it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

At = TypeVar("At")

#: Share of the value below which rounding hides the sign of a slope.
FLAT = 1e-14


@dataclass(frozen=True)
class Trials:
    """Which steps a line search tries.

    Attributes
    ----------
    attempts : int
        Most evaluations until the value is low enough.
    size : float
        Of the first step.
    least : float
        The smallest share of a step that is tried next where only values are known; 0.5 halves
        steps.
    grow, shrink : bool
        Whether to double a first step that is low enough, and to halve a later one, as long as that
        pays.
    """

    attempts: int
    size: float = 1.0
    least: float = 0.1
    grow: bool = False
    shrink: bool = False


def line_search(
    evaluate: Callable[[float], Any],
    here: Any,
    slope: float,
    trials: Trials,
    *,
    value: Callable[[Any], float] = attrgetter("upper"),
    slope_at: Callable[[Any], float] | None = None,
    hidden: Callable[[float, Any], bool] = lambda size, end: False,
) -> tuple[float, Any] | None:
    """Return a step along a direction that lowers the value enough, and the evaluation at its end;
    None if none does.

    Parameters
    ----------
    evaluate : callable
        From the size of a step to the evaluation at its end; None ends the search, and no step is
        returned.
    here : object
        The evaluation where the line starts.
    slope : float
        Of the value at `here` along the direction. A line that rises is not searched; of one whose
        slope is zero within rounding the first step alone is tried, for where it ends may prove
        more than the value shows.
    trials : Trials
        Which steps to try.
    value, slope_at : callable
        From an evaluation to the value, and to its slope along the direction where that is known.
    hidden : callable
        From the size and the evaluation at its end to whether shorter steps would show nothing,
        either.
    """
    attempts, size = trials.attempts, trials.size
    if 0.0 <= slope <= FLAT * abs(value(here)):
        slope, attempts = -np.finfo(np.float64).tiny, min(attempts, 1)
    for attempt in range(attempts if slope < 0 else 0):
        end = evaluate(size)
        if end is None:
            return None
        rise = value(end) - value(here)
        if rise <= 1e-4 * size * slope:  # Armijo's rule: a share of what the slope promises
            factor = 2.0 if attempt == 0 else 0.5
            for _ in range(6 if (trials.shrink if attempt else trials.grow) else 0):
                beyond = evaluate(factor * size)
                if beyond is None:
                    return None
                if not value(beyond) < value(end):
                    break
                size, end = factor * size, beyond
            return size, end
        if hidden(size, end):
            return None
        if slope_at is None:
            size *= _parabola(rise / size, slope, trials.least)
        else:
            size *= _shrink(rise / size, slope, slope_at(end), smooth=attempt == 0)
    return None


def descend(
    here: At,
    line: Callable[[At], tuple[Callable[[float], At], float] | None],
    trials: Trials,
    most: int,
) -> At:
    """Take steps with a line search, at most so many, until no line is left or none falls, and
    return their end.

    `line` returns where steps of a size along a direction end, and the slope there, of the
    evaluation that it is given.
    """
    for _ in range(most):
        ahead = line(here)
        found = None if ahead is None else line_search(ahead[0], here, ahead[1], trials)
        if found is None:
            break
        here = found[1]
    return here


def _parabola(rise: float, slope: float, least: float) -> float:
    """Return the factor to where a parabola through two values and one slope is lowest, within
    reason."""
    curvature = rise - slope
    if not np.isfinite(curvature) or curvature <= 0:
        return 0.5
    return float(np.clip(-0.5 * slope / curvature, least, 0.5))


def _shrink(rise: float, slope_here: float, slope_end: float, *, smooth: bool) -> float:
    """Return the factor by which to shorten a step after which the value rises again, all slopes a
    unit of the step.

    A smooth value is taken as quadratic, its slope as linear; if that did not do, there is a kink
    between the two points, and the value is taken as the larger of its two tangents.
    """
    if not slope_end > 0:
        return 0.5
    if smooth:
        return float(np.clip(slope_here / (slope_here - slope_end), 0.1, 0.7))
    return float(np.clip((slope_end - rise) / (slope_end - slope_here), 1e-3, 0.7))
