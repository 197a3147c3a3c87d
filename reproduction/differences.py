"""Confidence intervals of the difference of two methods, and the margins by which a difference
matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from kernelmosaic._typing import Array
from reproduction.rows import Row, number

#: Share of the intervals that hold the true difference.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Margin:
    """How large a difference of two methods must be to matter.

    Parameters
    ----------
    size : float
        The difference, or, of ratios, how far the ratio is from one.
    unit : str
        What the size is in, as the page writes it.
    is_ratio : bool
        Whether the methods are compared by the ratio of their figures.
    """

    size: float
    unit: str
    is_ratio: bool = False

    @property
    def distance(self) -> float:
        """The margin on the scale of the comparison: that of the figures, or of their
        logarithms."""
        return float(np.log1p(self.size)) if self.is_ratio else self.size

    def __str__(self) -> str:
        if self.is_ratio:
            return f"{100 * self.size:.0f} %"
        return f"{self.size:g} {self.unit}"


#: By metric. One point of accuracy is near the lower quartile of the deviations over splits that
#: Ye, Ji and Chen print, two points of support vectors are the upper quartile of Gönen's, and 5 %
#: is the median relative deviation of his costs. Half a kernel is half the least difference there
#: is. Times that differ by less than a tenth are called equal.
MARGINS = {
    "accuracy": Margin(1.0, "point"),
    "sv_percent": Margin(2.0, "points"),
    "active_kernels": Margin(0.5, "kernels"),
    "mse": Margin(0.05, "", is_ratio=True),
    "total_cost": Margin(0.05, "", is_ratio=True),
    "time": Margin(0.1, "", is_ratio=True),
    "seconds": Margin(0.1, "", is_ratio=True),
}


@dataclass(frozen=True)
class Interval:
    """A difference, first less second method, the ends of its interval, the test it belongs to, and
    its p-value."""

    estimate: float
    lower: float
    upper: float
    test: str
    p_value: float

    def in_direction(self, sign: float) -> tuple[float, float]:
        """Return the ends where a positive difference is as claimed: those of the opposite for a
        sign of -1."""
        lower, upper = sorted((sign * self.lower, sign * self.upper))
        return lower, upper

    def text(self, margin: Margin) -> str:
        """Return the difference, or the ratio, with its interval."""
        values = np.array([self.estimate, self.lower, self.upper])
        if margin.is_ratio:
            values = np.exp(values)
        # Differences of figures that are printed with two decimals have no further digits.
        middle, lower, upper = (number(round(value, 4)) for value in values.tolist())
        return f"{middle} ({lower} to {upper})".replace("-", "−")


def signed_rank_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return the Hodges-Lehmann estimate of a difference, and the interval of Wilcoxon's
    signed-rank test.

    The interval has the differences that the exact two-sided test does not reject: it ends at those
    means of two differences (Walsh averages) whose rank is the critical value of the test.

    Parameters
    ----------
    differences : sequence of float
        One per data set, at least six.
    """
    d = np.asarray(differences, dtype=np.float64)
    n = len(d)
    first, second = np.triu_indices(n)
    averages = np.sort((d[first] + d[second]) / 2)
    # Of 2ⁿ signs, so many have each sum of positive ranks.
    counts = np.ones(1)
    for rank in range(1, n + 1):
        shifted = np.concatenate([np.zeros(rank), counts])
        counts = shifted + np.concatenate([counts, np.zeros(rank)])
    probabilities = np.cumsum(counts) / counts.sum()
    n_outside = int(np.searchsorted(probabilities, (1.0 - CONFIDENCE) / 2, side="right"))
    if n_outside == 0:
        return float(np.median(averages)), -np.inf, np.inf
    return float(np.median(averages)), float(averages[n_outside - 1]), float(averages[-n_outside])


def difference_on_a_set(one: Row, other: Row, margin: Margin, f_test: Row | None) -> Interval:
    """Return the difference of two methods on one data set.

    By a paired t test where there are several runs, which share draws and splits; else by the
    experiment's own 5×2 cv F test; else by Welch's t test over the replicates.

    Parameters
    ----------
    one, other : Row
        The figures of both methods.
    margin : Margin
        Of the metric.
    f_test : Row or None
        The p-value of the experiment's own test.
    """
    if len(one.runs) == len(other.runs) > 1:
        return _paired_interval(scaled(one.runs, margin) - scaled(other.runs, margin))
    mean, mean_of_other = scaled([one.mean, other.mean], margin)
    difference = float(mean - mean_of_other)
    if f_test is not None:
        # The F statistic grows with the square of the difference.
        statistic = stats.f.isf(f_test.mean, 10, 5)
        factor = (
            np.sqrt(stats.f.isf(1.0 - CONFIDENCE, 10, 5) / statistic) if statistic > 0 else np.inf
        )
        half = abs(difference) * float(factor) if difference else np.inf
        return Interval(
            difference, difference - half, difference + half, "5×2 cv F test", f_test.mean
        )
    return _welch_interval(one, other, margin, difference)


def printed_difference(both: Sequence[tuple[Row, Row]], margin: Margin) -> float | None:
    """Return the mean difference that a paper prints itself, first less second; None where a figure
    is not printed.

    Parameters
    ----------
    both : sequence of tuple of Row
        The figures of both methods on each data set.
    margin : Margin
        Of the metric.
    """
    printed = [
        (one.published, other.published)
        for one, other in both
        if one.published is not None and other.published is not None
    ]
    if not printed:
        return None
    first, second = zip(*printed, strict=True)
    return float(np.mean(scaled(first, margin) - scaled(second, margin)))


def scaled(values: Sequence[float], margin: Margin) -> Array:
    """Return figures on the scale of the comparison."""
    figures = np.asarray(values, dtype=np.float64)
    return np.log(figures) if margin.is_ratio else figures


def _paired_interval(differences: Array) -> Interval:
    """Return the interval of the mean difference over the runs; a point where it is the same in
    every run."""
    n, mean = len(differences), float(differences.mean())
    test = f"t test over {n} runs"
    error = float(differences.std(ddof=1)) / n**0.5
    if np.ptp(differences) == 0:
        return Interval(mean, mean, mean, test, float(mean == 0))
    half = float(stats.t.isf((1.0 - CONFIDENCE) / 2, n - 1)) * error
    p_value = float(2.0 * stats.t.sf(abs(mean) / error, n - 1))
    return Interval(mean, mean - half, mean + half, test, p_value)


def _welch_interval(one: Row, other: Row, margin: Margin, difference: float) -> Interval:
    """Return the interval of the difference of two means whose deviations over the replicates are
    known."""
    squares, degrees = [], []
    for row in (one, other):
        deviation = row.std or 0.0
        if margin.is_ratio:
            deviation /= row.mean
        squares.append(deviation**2 / row.count)
        degrees.append(max(row.count - 1, 1))
    total = sum(squares)
    if total == 0:
        return Interval(
            difference, difference, difference, "Welch's t test", float(difference == 0)
        )
    freedom = total**2 / sum(square**2 / n for square, n in zip(squares, degrees, strict=True))
    half = float(stats.t.isf((1.0 - CONFIDENCE) / 2, freedom)) * total**0.5
    p_value = float(2.0 * stats.t.sf(abs(difference) / total**0.5, freedom))
    return Interval(difference, difference - half, difference + half, "Welch's t test", p_value)
