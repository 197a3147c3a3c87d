"""The figures of the papers that ours are set beside, from `published.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from kernelmosaic.experiments.summary import Row

#: Figures in percent, for which two points are two points.
_PERCENT = ("accuracy", "sv_percent", "total_cost", "explained_variance_2")


@dataclass(frozen=True)
class Figure:
    """A printed number and its plus-minus figure."""

    mean: float
    std: float | None


@lru_cache(maxsize=1)
def published_figures() -> dict[tuple[str, ...], Figure]:
    """Return the printed figures by (paper, table, dataset, method, kernels, metric)."""
    found: dict[tuple[str, ...], Figure] = {}
    with files("kernelmosaic.experiments").joinpath("published.csv").open(encoding="utf-8") as file:
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
