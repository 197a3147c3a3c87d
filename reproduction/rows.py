"""Rows of a table: means over replicates, the published figures beside them, how both are read and written."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np

#: Figures in percent, for which two points are two points.
_PERCENT = ("accuracy", "sv_percent", "total_cost", "explained_variance_2")
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
WEIGHTS = ("weight:", "penalty:")
TESTS = ("F:", "p:")
COUNTS = ("wins:", "ties:", "losses:", "wilcoxon:", "wilcoxon_p:")


@dataclass(frozen=True)
class Row:
    """One figure of a table, ours and, where there is one, the published one.

    Parameters
    ----------
    dataset, method, kernels, metric : str
        The cell.
    mean, std, count : float, float or None, int
        Ours over `count` replicates; the deviation is the sample's, None where there is one figure only.
    setting : str
        What the search chose, as ``"C=10"``.
    published, published_std : float or None
        The paper's figure.
    difference : float or None
        Ours less the published one.
    within : bool or None
        Whether the two agree; see `published.agrees`.
    """

    dataset: str
    method: str
    kernels: str
    metric: str
    mean: float
    std: float | None = None
    count: int = 1
    setting: str = ""
    published: float | None = None
    published_std: float | None = None
    difference: float | None = None
    within: bool | None = None


def row_of(dataset: str, method: str, kernels: str, metric: str, values: Sequence[float], setting: str = "") -> Row:
    """Return the row of some replicates of one figure."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Row(dataset, method, kernels, metric, float(np.mean(values)), std, len(values), setting)


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as a table with commas, six digits per number; what is not known stays empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _text(value) for name, value in asdict(row).items()})


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table that `write_rows` wrote."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_row(line) for line in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError, csv.Error):
        raise ValueError(f"{path} is damaged; `python -m reproduction` with the run's folder writes it anew.") from None


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
        published=number("published"),
        published_std=number("published_std"),
        difference=number("difference"),
        within={"True": True, "False": False}.get(line["within"]),
    )


def _text(value: object) -> str:
    if value is None:
        return ""
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
            key = tuple(line[name] for name in ("paper", "table", "dataset", "method", "kernels", "metric"))
            if key in found:
                raise ValueError(f"published.csv has {' / '.join(key)} twice.")
            found[key] = Figure(float(line["mean"]), float(line["std"]) if line["std"] else None)
    return found


def join(rows: Iterable[Row], paper: str, table: str) -> list[Row]:
    """Return the rows with the published figures beside them."""
    figures = published_figures()
    joined = []
    for row in rows:
        figure = figures.get((paper, table, row.dataset, row.method, row.kernels, row.metric))
        if figure is not None:
            row = replace(
                row,
                published=figure.mean,
                published_std=figure.std,
                difference=row.mean - figure.mean,
                within=agrees(row.metric, row.mean - figure.mean, figure.std),
            )
        joined.append(row)
    return joined


def agrees(metric: str, difference: float, std: float | None) -> bool | None:
    """Say whether a difference is small.

    That is two printed deviations; where none is printed, two points of a percentage or of a weight times hundred. A
    deviation printed as 0.00 counts as the 0.005 it may have been. Counts and verdicts agree if they are equal; of
    other figures without a deviation nothing is said.
    """
    if std is not None:
        return abs(difference) <= 2 * max(std, 0.005)
    if metric in _PERCENT:
        return abs(difference) <= 2
    if metric.startswith("weight:"):
        return abs(difference) <= 0.02
    if metric.startswith(("wins:", "ties:", "losses:", "wilcoxon:")):
        return difference == 0
    return None


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
        key = (row.dataset, row.method, row.kernels)
        found.setdefault(key, Line(*key, {})).figures[row.metric] = row
    return list(found.values())


def main_metrics(rows: Sequence[Row]) -> list[str]:
    """Return the metrics that the main table shows: those with a label, or all plain ones if none has."""
    plain = list(dict.fromkeys(row.metric for row in rows if not row.metric.startswith(WEIGHTS + TESTS + COUNTS)))
    known = [metric for metric in MAIN if metric in plain]
    return known or plain


def more_metrics(rows: Sequence[Row]) -> list[str]:
    """Return the metrics that have a label but no place in the main table."""
    shown = {row.metric for row in rows} - set(main_metrics(rows))
    return [metric for metric in MORE if metric in shown]


def label(metric: str) -> str:
    """Return what a metric is called in a table's head."""
    return (MAIN | MORE).get(metric, metric.replace("_", " "))


def number(value: float | None) -> str:
    """Return a figure with as many digits as it deserves: two decimals, three digits below one, counts plainly."""
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
    size = f"{row.difference:+.2f}" if row.metric in MAIN else f"{'+' * (row.difference > 0)}{number(row.difference)}"
    return f"{said}{size}".replace("-", "−")


@dataclass(frozen=True)
class Tally:
    """Cells of one metric that can be set beside a published one, and how many of them agree."""

    metric: str
    compared: int
    within: int


def tallies(rows: Iterable[Row]) -> list[Tally]:
    """Count, metric by metric, the cells that agree; weights count as one metric, and so do counts of a test."""
    found: dict[str, list[bool]] = {}
    for row in rows:
        if row.within is not None:
            name = row.metric
            for prefixes, family in ((WEIGHTS[:1], "weights"), (WEIGHTS[1:], "penalties"), (COUNTS, "verdicts")):
                if row.metric.startswith(prefixes):
                    name = family
            found.setdefault(name, []).append(row.within)
    return [Tally(metric, len(marks), sum(marks)) for metric, marks in found.items()]
