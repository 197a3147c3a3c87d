"""How the rows of a table are read: which figures stand side by side, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelmosaic.experiments.summary import Row

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
