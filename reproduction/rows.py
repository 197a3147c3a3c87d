"""Rows of a table: means over replicates, the published figures beside them, how both are read and
written."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import numpy as np

#: Figures that are set beside published ones, besides gains and counts; by how their names begin.
_COMPARED = (
    "accuracy",
    "sv_percent",
    "total_cost",
    "explained_variance_2",
    "mse",
    "weight",
    "selections",
    "C",
)
#: Figures that a table is about, in the order of its columns, and what they are called.
MAIN = {
    "accuracy": "accuracy %",
    "mse": "MSE",
    "error": "error %",
    "sv_percent": "SV %",
    "total_cost": "cost %",
    "explained_variance_2": "variance of two %",
}
#: Figures beside these.
MORE = {
    "n_sv": "SVs",
    "active_kernels": "kernels used",
    "n_solver_calls": "trainings",
    "lambda": "λ",
    "time": "seconds",
    "seconds": "seconds",
}
#: Families of figures that have tables of their own, by how their names begin.
WEIGHTS = ("weight:", "penalty:", "selections:")
SELECTIONS = WEIGHTS[2]
TESTS = ("F:", "p:")
COUNTS = ("wins:", "ties:", "losses:", "wilcoxon:", "wilcoxon_p:")
GAIN = "gain:"
#: How far figures are from the printed ones in the mean over some cells; what a study decides by.
AWAY = "mean difference"


@dataclass(frozen=True)
class Row:
    """One figure of a table, ours and, where there is one, the published one.

    A *run* is one of ours over all replicates of one split seed, as the papers have one; of several
    runs the spread is known.

    Parameters
    ----------
    dataset, method, kernels, metric : str
        The cell.
    mean, std, count : float, float or None, int
        Ours over `count` replicates of all runs; the deviation is that within a run, or, of single
        figures, between runs. None where there is one figure only.
    setting : str
        What the search chose, as ``"C=10"``.
    runs : tuple of float
        The means of the runs; empty means that there was one.
    published, published_std : float or None
        The paper's figure.
    published_count : int
        How many splits it is the mean of.
    """

    dataset: str
    method: str
    kernels: str
    metric: str
    mean: float
    std: float | None = None
    count: int = 1
    setting: str = ""
    runs: tuple[float, ...] = ()
    published: float | None = None
    published_std: float | None = None
    published_count: int = 1

    @property
    def cell(self) -> tuple[str, str, str]:
        """Data set, method and kernels."""
        return self.dataset, self.method, self.kernels

    @property
    def difference(self) -> float | None:
        """Ours less the published one."""
        return None if self.published is None else self.mean - self.published

    @property
    def error(self) -> float | None:
        """The standard error of a run's mean over its replicates."""
        return (
            None if self.std is None else self.std / math.sqrt(self.count / max(len(self.runs), 1))
        )

    @property
    def share(self) -> float | None:
        """How many of our runs agree with the published figure, as a share; None where nothing can
        be said."""
        if self.published is None:
            return None
        theirs = (
            None
            if self.published_std is None
            else self.published_std / math.sqrt(self.published_count)
        )
        allowed = tolerance(self.metric, self.error, theirs)
        if allowed is None:
            return None
        each = self.runs or (self.mean,)
        return sum(abs(one - self.published) <= allowed for one in each) / len(each)

    @property
    def ceiling(self) -> float | None:
        """How many pairs of our own runs agree with each other by the same rule; None where there
        is one run."""
        allowed = tolerance(self.metric, self.error, None)
        pairs = list(combinations(self.runs, 2))
        if allowed is None or not pairs:
            return None
        return sum(abs(one - other) <= allowed for one, other in pairs) / len(pairs)

    @property
    def within(self) -> bool | None:
        """Whether at least half of our runs agree with the published figure."""
        return None if self.share is None else self.share >= 0.5


def tolerance(metric: str, ours: float | None, theirs: float | None) -> float | None:
    """Return how far two figures that agree may be apart: 2 √(ours² + theirs²), of their standard
    errors.

    Where one error is not known the other one stands for it; where neither is, two points of a
    percentage or of a weight times hundred are allowed. Printed figures are rounded, so half a unit
    of the second decimal is allowed in any case. Counts and verdicts must be equal. Of other
    figures, such as times, nothing is said: None.
    """
    if metric.startswith(COUNTS[:4]):
        return 0.0
    name = metric.split(":")[1] if metric.startswith(GAIN) else metric
    if name.split(":")[0] not in _COMPARED:
        return None
    known = [one for one in (ours, theirs) if one is not None]
    if not known:
        return None if name == "mse" else 0.02 if name.startswith(WEIGHTS[0]) else 2.0
    return max(2.0 * math.hypot(known[0], known[-1]), 0.005)


def row_of(
    dataset: str, method: str, kernels: str, metric: str, values: Sequence[float], setting: str = ""
) -> Row:
    """Return the row of some replicates of one figure."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Row(dataset, method, kernels, metric, float(np.mean(values)), std, len(values), setting)


def gain_metric(metric: str, method: str, kernels: str) -> str:
    """Return what the gain in a metric over a baseline is called."""
    return f"{GAIN}{metric}:{method}:{kernels}"


def merge(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the rows of several runs of one table as one row each; what later runs alone have is
    left out.

    Tests and counts stay those of the first run, as the papers have one; the others are kept beside
    it.
    """
    if not runs:
        return []
    later = [{(row.cell, row.metric): row for row in run} for run in runs[1:]]
    return [
        _merged(
            [row, *(run[row.cell, row.metric] for run in later if (row.cell, row.metric) in run)]
        )
        for row in runs[0]
    ]


def _merged(rows: Sequence[Row]) -> Row:
    means = tuple(row.mean for row in rows)
    if len(rows) == 1:
        return rows[0]
    if rows[0].metric.startswith(TESTS + COUNTS):
        return replace(rows[0], runs=means)
    spreads = [row.std for row in rows if row.std is not None]
    std = math.sqrt(np.mean(np.square(spreads))) if spreads else float(np.std(means, ddof=1))
    return replace(
        rows[0],
        mean=float(np.mean(means)),
        std=std,
        count=sum(row.count for row in rows),
        setting=" / ".join(dict.fromkeys(row.setting for row in rows)),
        runs=means,
    )


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as a table with commas, six digits per number; what is not known stays empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        names = [field.name for field in fields(Row)] + ["difference", "within"]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _text(getattr(row, name)) for name in names})


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table that `write_rows` wrote."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_row(line) for line in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError, csv.Error):
        raise ValueError(
            f"{path} is damaged; `python -m reproduction` with the run's folder writes it anew."
        ) from None


def _row(line: dict[str, str]) -> Row:
    def number(name: str) -> float | None:
        return float(line[name]) if line[name] else None

    return Row(
        dataset=line["dataset"],
        method=line["method"],
        kernels=line["kernels"],
        metric=line["metric"],
        mean=float(line["mean"]),
        std=number("std"),
        count=int(line["count"]),
        setting=line["setting"],
        runs=tuple(map(float, line.get("runs", "").split())),
        published=number("published"),
        published_std=number("published_std"),
        published_count=int(line.get("published_count") or 1),
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Figure:
    """A printed number and its plus-minus figure."""

    mean: float
    std: float | None


@lru_cache(maxsize=1)
def published_figures() -> dict[tuple[str, ...], Figure]:
    """Return the printed figures by (paper, table, dataset, method, kernels, metric)."""
    found: dict[tuple[str, ...], Figure] = {}
    with files("reproduction").joinpath("published.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            key = tuple(
                line[name] for name in ("paper", "table", "dataset", "method", "kernels", "metric")
            )
            if key in found:
                raise ValueError(f"published.csv has {' / '.join(key)} twice.")
            found[key] = Figure(float(line["mean"]), float(line["std"]) if line["std"] else None)
    return found


def join(rows: Iterable[Row], paper: str, table: str, splits: int = 1) -> list[Row]:
    """Return the rows with the published figures beside them, which are means over so many
    splits."""
    joined = []
    for row in rows:
        figure = _published(paper, table, row)
        if figure is not None:
            std = figure.std
            if row.metric.startswith(
                SELECTIONS
            ):  # so many of the splits: what is printed tells its deviation
                std = math.sqrt(figure.mean * (splits - figure.mean))
            row = replace(row, published=figure.mean, published_std=std, published_count=splits)
        joined.append(row)
    return joined


def _published(paper: str, table: str, row: Row) -> Figure | None:
    def find(method: str, kernels: str, metric: str) -> Figure | None:
        return published_figures().get((paper, table, row.dataset, method, kernels, metric))

    if not row.metric.startswith(GAIN):
        return find(row.method, row.kernels, row.metric)
    _, metric, method, kernels = row.metric.split(":")
    own, base = find(row.method, row.kernels, metric), find(method, kernels, metric)
    # The two are measured on the same splits, so that what is printed says nothing of the spread of
    # their difference.
    return None if own is None or base is None else Figure(own.mean - base.mean, None)


@dataclass(frozen=True)
class Line:
    """All figures of one method on one data set, by metric."""

    dataset: str
    method: str
    kernels: str
    figures: dict[str, Row]

    @property
    def setting(self) -> str:
        """What the search chose."""
        return next((row.setting for row in self.figures.values() if row.setting), "")


def lines_of(rows: Iterable[Row]) -> list[Line]:
    """Return one line a data set, method and kernels, in the order of the rows."""
    found: dict[tuple[str, str, str], Line] = {}
    for row in rows:
        found.setdefault(row.cell, Line(*row.cell, {})).figures[row.metric] = row
    return list(found.values())


def main_metrics(rows: Sequence[Row]) -> list[str]:
    """Return the metrics that the main table shows: those with a label, or all plain ones if none
    has."""
    others = (*WEIGHTS, *TESTS, *COUNTS, GAIN)
    plain = list(dict.fromkeys(row.metric for row in rows if not row.metric.startswith(others)))
    known = [metric for metric in MAIN if metric in plain]
    return known or plain


def more_metrics(rows: Sequence[Row]) -> list[str]:
    """Return the metrics that have a label but no place in the main table."""
    shown = {row.metric for row in rows} - set(main_metrics(rows))
    return [metric for metric in MORE if metric in shown]


def label(metric: str) -> str:
    """Return what a metric is called in a table's head."""
    if metric.startswith(GAIN):
        _, figure, method, kernels = metric.split(":")
        return f"{label(figure)} over {method} {kernels}"
    return (MAIN | MORE).get(metric, metric.replace("_", " "))


def number(value: float | None) -> str:
    """Return a figure with as many digits as it deserves: two decimals, three digits below one,
    counts plainly."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    size = abs(value)
    if size >= 1e5 or size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.1f}" if size >= 1000 else f"{value:.2f}" if size >= 0.1 else f"{value:.3f}"


def ours(row: Row) -> str:
    """Return our figure with its deviation."""
    return _figure(row.metric, row.mean, row.std)


def in_runs(row: Row) -> str:
    """Return our figure in every run, where there are several."""
    return (
        f"{number(row.mean)} ({', '.join(map(number, row.runs))})"
        if len(row.runs) > 1
        else number(row.mean)
    )


def published(row: Row) -> str:
    """Return the printed figure with its deviation, or nothing."""
    return "" if row.published is None else _figure(row.metric, row.published, row.published_std)


def _figure(metric: str, mean: float, std: float | None) -> str:
    # The figures of the main table have two decimals in every paper.
    write = "{:.2f}".format if metric in MAIN else number
    return write(mean) if std is None else f"{write(mean)} ± {write(std)}"


def agreement(row: Row) -> str:
    """Return in words whether the two agree, with the difference; nothing where none is printed."""
    if row.difference is None:
        return ""
    said = {True: "within ", False: "beyond ", None: ""}[row.within]
    size = (
        f"{row.difference:+.2f}"
        if row.metric in MAIN
        else f"{'+' * (row.difference > 0)}{number(row.difference)}"
    )
    return f"{said}{size}".replace("-", "−")


@dataclass(frozen=True)
class Apart:
    """Cells that are not counted with the others, and why; an empty name stands for any.

    What is printed cannot be compared with them, or a reading was `chosen` because it brings them
    near to print.
    """

    why: str
    dataset: str = ""
    method: str = ""
    metric: str = ""
    chosen: bool = False

    @property
    def cells(self) -> tuple[str, str, str]:
        """Which they are."""
        return self.dataset, self.method, self.metric

    def covers(self, row: Row) -> bool:
        """Say whether a row is one of them."""
        return (
            row.dataset == (self.dataset or row.dataset)
            and row.method == (self.method or row.method)
            and row.metric.startswith(self.metric)
        )


@dataclass(frozen=True)
class Tally:
    """Cells of one kind that can be set beside a published one, and how many of them agree.

    Parameters
    ----------
    metric, group : str
        What is counted, and of which methods: ``"baselines"``, ``"methods"`` or ``"gains"``; empty
        means all.
    compared : int
    within : float
        Each cell counts by the share of our runs that agree with the published figure.
    ceiling : float or None
        The share of pairs of our own runs that agree with each other, over the same cells; None
        where there is one run.
    """

    metric: str
    group: str
    compared: int
    within: float
    ceiling: float | None


def tallies(rows: Sequence[Row], apart: Sequence[Apart] = ()) -> list[Tally]:
    """Count the cells that agree, kind by kind; those that cannot be compared are left out."""
    kept = [
        row for row in rows if row.share is not None and not any(one.covers(row) for one in apart)
    ]
    methods = {(row.method, row.kernels) for row in rows if row.metric.startswith(GAIN)}
    found: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    for row in kept:
        assert row.share is not None
        metric, group = _family(row, methods)
        found.setdefault((metric, group), []).append((row.share, row.ceiling))
        if row.metric.startswith(WEIGHTS[0]) and row.published:
            # Weights that are printed to sum to ten are measured as if they summed to one.
            line = [
                one for one in rows if one.cell == row.cell and one.metric.startswith(WEIGHTS[0])
            ]
            unit = max(round(sum(one.published or 0.0 for one in line)), 1)
            found.setdefault((f"weights within {_NEAR_WEIGHT}", ""), []).append(
                _near(row, _NEAR_WEIGHT * unit)
            )
        elif row.metric == "accuracy":
            found.setdefault((f"accuracy within {_NEAR_POINTS}", group), []).append(
                _near(row, _NEAR_POINTS)
            )
    counted = []
    for (metric, group), marks in found.items():
        tops = [top for _, top in marks if top is not None]
        ceiling = sum(tops) / len(tops) if tops else None
        counted.append(Tally(metric, group, len(marks), sum(share for share, _ in marks), ceiling))
    return counted


#: Figures that agree nearly always: whatever a method does, most weights and selections that are
#: printed as zero are zero. They are counted apart from the others.
NEARLY_FREE = ("zero weights", "kernels never selected")


#: As near as the eye tells: weights other than zero, and percentages.
_NEAR_WEIGHT, _NEAR_POINTS = 0.03, 2


def _family(row: Row, methods: set[tuple[str, str]]) -> tuple[str, str]:
    if row.metric.startswith(GAIN):
        return row.metric.split(":")[1], "gains"
    if row.metric.startswith(WEIGHTS[0]):
        return ("weights" if row.published else "zero weights"), ""
    if row.metric.startswith(SELECTIONS):
        return ("selections" if row.published else "kernels never selected"), ""
    if row.metric.startswith(COUNTS):
        return "verdicts", ""
    if not methods:
        return row.metric, ""
    return row.metric, "methods" if (row.method, row.kernels) in methods else "baselines"


def _near(row: Row, allowed: float) -> tuple[float, float | None]:
    """Return the shares of our runs that are this near to the published figure, and of pairs of
    them to each other."""
    assert row.published is not None
    each, pairs = row.runs or (row.mean,), list(combinations(row.runs, 2))
    share = sum(abs(one - row.published) <= allowed + 1e-12 for one in each) / len(each)
    return share, sum(abs(a - b) <= allowed + 1e-12 for a, b in pairs) / len(
        pairs
    ) if pairs else None
