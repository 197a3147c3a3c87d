"""A line search of sufficient decrease, for the weights of kernels as for those of features."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

#: Share of the value below which rounding hides the sign of a slope.
FLAT = 1e-14


def line_search(
    evaluate: Callable[[float], Any],
    here: Any,
    slope: float,
    *,
    attempts: int,
    size: float = 1.0,
    grow: bool = False,
    least: float = 0.1,
    value: Callable[[Any], float] = attrgetter("upper"),
    slope_at: Callable[[Any], float] | None = None,
    hidden: Callable[[float, Any], bool] = lambda size, end: False,
) -> tuple[float, Any] | None:
    """Return a step along a direction that lowers the value enough, and the evaluation at its end; None if none does.

    Parameters
    ----------
    evaluate : callable
        From the size of a step to the evaluation at its end.
    here : object
        The evaluation where the line starts.
    slope : float
        Of the value at `here` along the direction. A line that rises is not searched; of one whose slope is zero within
        rounding the first step alone is tried, for where it ends may prove more than the value shows.
    attempts : int
        Most evaluations until the value is low enough.
    size : float
        Of the first step.
    grow : bool
        Whether to double a first step that is low enough, as long as that pays.
    least : float
        The smallest share of a step that is tried next where only values are known; 0.5 halves steps.
    value, slope_at : callable
        From an evaluation to the value, and to its slope along the direction where that is known.
    hidden : callable
        From the size and the evaluation at its end to whether shorter steps would show nothing, either.
    """
    if 0.0 <= slope <= FLAT * abs(value(here)):
        slope, attempts = -np.finfo(np.float64).tiny, min(attempts, 1)
    for attempt in range(attempts if slope < 0 else 0):
        end = evaluate(size)
        rise = value(end) - value(here)
        if rise <= 1e-4 * size * slope:  # Armijo's rule: a share of what the slope promises
            for _ in range(6 if grow and attempt == 0 else 0):
                beyond = evaluate(2.0 * size)
                if not value(beyond) < value(end):
                    break
                size, end = 2.0 * size, beyond
            return size, end
        if hidden(size, end):
            return None
        if slope_at is None:
            size *= _parabola(rise / size, slope, least)
        else:
            size *= _shrink(rise / size, slope, slope_at(end), smooth=attempt == 0)
    return None


def _parabola(rise: float, slope: float, least: float) -> float:
    """Return the factor to where a parabola through two values and one slope is lowest, within reason."""
    curvature = rise - slope
    if not np.isfinite(curvature) or curvature <= 0:
        return 0.5
    return float(np.clip(-0.5 * slope / curvature, least, 0.5))


def _shrink(rise: float, slope_here: float, slope_end: float, *, smooth: bool) -> float:
    """Return the factor by which to shorten a step after which the value rises again, all slopes a unit of the step.

    A smooth value is taken as quadratic, its slope as linear; if that did not do, there is a kink between the two
    points, and the value is taken as the larger of its two tangents.
    """
    if not slope_end > 0:
        return 0.5
    if smooth:
        return float(np.clip(slope_here / (slope_here - slope_end), 0.1, 0.7))
    return float(np.clip((slope_end - rise) / (slope_end - slope_here), 1e-3, 0.7))
