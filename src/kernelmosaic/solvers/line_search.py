"""A line search of sufficient decrease, and a descent that takes its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from kernelmosaic.solvers.tuning import (
    ARMIJO,
    FLAT_SLOPE,
    LARGEST_SHORTENING,
    LEAST_KINK_FACTOR,
    LEAST_SMOOTH_FACTOR,
    MAX_STEP_CHANGES,
)

#: An evaluation of the value at a point.
Evaluation = TypeVar("Evaluation")


@dataclass(frozen=True)
class Trials:
    """The steps that a line search tries.

    Attributes
    ----------
    attempts : int
        Most steps until the value is low enough.
    size : float
        The size of the first step.
    least : float
        The smallest factor by which a step is shortened where only values are known; 0.5 halves
        steps.
    grow : bool
        Whether a first step that is low enough is doubled as long as that lowers the value.
    shrink : bool
        Whether a later step that is low enough is halved as long as that lowers the value.
    """

    attempts: int
    size: float = 1.0
    least: float = 0.1
    grow: bool = False
    shrink: bool = False


def line_search(
    evaluate: Callable[[float], Any],
    start: Any,
    slope: float,
    trials: Trials,
    *,
    value: Callable[[Any], float] = attrgetter("upper"),
    slope_at: Callable[[Any], float] | None = None,
    hidden: Callable[[float, Any], bool] = lambda size, end: False,
) -> tuple[float, Any] | None:
    """Return the size of a step that lowers the value enough, and the evaluation at its end.

    None is returned if no step does.

    Parameters
    ----------
    evaluate : callable
        From the size of a step to the evaluation at its end. Where it returns None the search ends
        without a step.
    start : object
        The evaluation at the start of the line.
    slope : float
        The derivative of the value along the line at its start. A line that rises is not searched.
        Where the derivative is zero within rounding the first step alone is tried, since the
        evaluation at its end may have a better bound although the value is the same.
    trials : Trials
        Which steps to try.
    value : callable
        From an evaluation to the value.
    slope_at : callable, optional
        From an evaluation to the derivative along the line, where it is known.
    hidden : callable
        From the size of a step and the evaluation at its end to whether rounding would hide the
        effect of shorter steps.
    """
    attempts = trials.attempts
    size = trials.size
    is_flat = 0.0 <= slope <= FLAT_SLOPE * abs(value(start))
    if is_flat:
        slope = -np.finfo(np.float64).tiny
        attempts = min(attempts, 1)
    if not slope < 0:
        return None
    for attempt in range(attempts):
        end = evaluate(size)
        if end is None:
            return None
        rise = value(end) - value(start)
        # Armijo's rule: the value falls by a fraction of what the derivative promises.
        if rise <= ARMIJO * size * slope:
            is_first = attempt == 0
            may_change = trials.grow if is_first else trials.shrink
            if not may_change:
                return size, end
            return _best_multiple(evaluate, size, end, value, 2.0 if is_first else 0.5)
        if hidden(size, end):
            return None
        if slope_at is None:
            size *= _parabola(rise / size, slope, trials.least)
        else:
            size *= _shrink(rise / size, slope, slope_at(end), smooth=attempt == 0)
    return None


def _best_multiple(
    evaluate: Callable[[float], Any],
    size: float,
    end: Any,
    value: Callable[[Any], float],
    factor: float,
) -> tuple[float, Any] | None:
    """Return the last of the sizes size · factorᵏ, k = 0, 1, …, up to which the value falls.

    With it comes the evaluation at its end. None is returned where `evaluate` returns None.
    """
    for _ in range(MAX_STEP_CHANGES):
        beyond = evaluate(factor * size)
        if beyond is None:
            return None
        if not value(beyond) < value(end):
            break
        size = factor * size
        end = beyond
    return size, end


def descend(
    start: Evaluation,
    line: Callable[[Evaluation], tuple[Callable[[float], Evaluation], float] | None],
    trials: Trials,
    max_steps: int,
) -> Evaluation:
    """Return the evaluation after up to `max_steps` steps, each with a line search.

    Steps end earlier where there is no line, or none of its steps lowers the value.

    Parameters
    ----------
    start : object
        The evaluation at the start.
    line : callable
        From an evaluation to the line that starts at its point: a function from the size of a step
        to the evaluation at its end, and the derivative at the start. None if there is no line.
    trials : Trials
        Which steps of a line to try.
    max_steps : int
        Most steps.
    """
    current = start
    for _ in range(max_steps):
        next_line = line(current)
        if next_line is None:
            break
        evaluate, slope = next_line
        step = line_search(evaluate, current, slope, trials)
        if step is None:
            break
        _, current = step
    return current


def _parabola(rise: float, slope: float, least: float) -> float:
    """Return the factor to the minimum of the parabola through two values and one derivative.

    It is between `least` and 0.5. Rise and slope are per unit of the step.
    """
    curvature = rise - slope
    if not np.isfinite(curvature) or curvature <= 0:
        return 0.5
    return float(np.clip(-0.5 * slope / curvature, least, 0.5))


def _shrink(rise: float, slope_start: float, slope_end: float, *, smooth: bool) -> float:
    """Return the factor by which to shorten a step at whose end the value rises.

    A smooth value is taken as quadratic, its derivative as linear. Where that did not do there is a
    kink between the two points, and the value is taken as the larger of its two tangents. Rise and
    slopes are per unit of the step.
    """
    if not slope_end > 0:
        return 0.5
    if smooth:
        root = slope_start / (slope_start - slope_end)
        return float(np.clip(root, LEAST_SMOOTH_FACTOR, LARGEST_SHORTENING))
    crossing = (slope_end - rise) / (slope_end - slope_start)
    return float(np.clip(crossing, LEAST_KINK_FACTOR, LARGEST_SHORTENING))
