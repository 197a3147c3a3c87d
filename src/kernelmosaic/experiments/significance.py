"""The tables of a page that say which differences are significant."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmosaic.experiments.checks import LEVEL
from kernelmosaic.experiments.layout import COUNTS, TESTS, label, lines_of, number
from kernelmosaic.experiments.summary import Row
from kernelmosaic.reports import Cell, Table

_VERDICTS = {1: "win", 0: "tie", -1: "loss"}
_KINDS = ("wins:", "ties:", "losses:")
_NAMES = {"5x2cvF": "5×2 cv F test", "direct": "bare means"}


def f_test_table(rows: Sequence[Row]) -> Table | None:
    """Return the 5×2 cv F tests, a line a data set, comparison and metric; None if there are none."""
    found = []
    for line in lines_of(row for row in rows if row.metric.startswith(TESTS)):
        for metric in (name.removeprefix("p:") for name in line.figures if name.startswith("p:")):
            p_value, statistic = line.figures[f"p:{metric}"].mean, line.figures[f"F:{metric}"].mean
            said = "significant" if p_value < LEVEL else "not significant"
            found.append(
                (line.dataset, line.method, line.kernels, label(metric), _f(statistic), f"{p_value:.3f}", said)
            )
    head = ("data set", "comparison", "kernels", "of", "F", "p", f"at {LEVEL:.0%}")
    caption = "Significance: the combined 5×2 cv F test on each data set, 10 and 5 degrees of freedom."
    return Table(caption, head, found, len(found) > 5) if found else None


def _f(statistic: float) -> str:
    return "> 1000" if statistic > 1000 else f"{statistic:.2f}"


def count_table(rows: Sequence[Row]) -> Table | None:
    """Return the counts over data sets beside the printed ones; None if there are none."""
    found = []
    for line in lines_of(row for row in rows if row.metric.startswith(COUNTS)):
        for name in (name.removeprefix("wins:") for name in line.figures if name.startswith("wins:")):
            test, metric = name.split(":")
            counts = [line.figures[f"{kind}{name}"] for kind in _KINDS]
            found.append(
                (line.dataset, line.method, line.kernels, label(metric), _NAMES.get(test, test), *_both(counts))
            )
        for row in line.figures.values():
            if row.metric.startswith("wilcoxon:"):
                metric = row.metric.removeprefix("wilcoxon:")
                p_value = line.figures[f"wilcoxon_p:{metric}"].mean
                cells = _verdict(row, p_value)
                found.append((line.dataset, line.method, line.kernels, label(metric), "Wilcoxon", *cells))
    head = ("over", "comparison", "kernels", "of", "test", "ours", "published", "agreement")
    return Table("Wins, ties and losses of the first method over the data sets.", head, found) if found else None


def _both(counts: Sequence[Row]) -> tuple[str, str, Cell]:
    mine = " / ".join(number(row.mean) for row in counts)
    if any(row.published is None for row in counts):
        return mine, "", Cell("")
    printed = " / ".join(number(row.published) for row in counts)
    return mine, printed, _agreement(all(row.within for row in counts))


def _verdict(row: Row, p_value: float) -> tuple[str, str, Cell]:
    mine = f"{_VERDICTS[round(row.mean)]} (p = {p_value:.3f})"
    if row.published is None:
        return mine, "", Cell("")
    return mine, _VERDICTS[round(row.published)], _agreement(bool(row.within))


def _agreement(same: bool) -> Cell:
    return Cell("the same", "good") if same else Cell("another", "bad")
