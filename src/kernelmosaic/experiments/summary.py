"""Rows of a table: means over replicates, and how they are written to a file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np


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
    """Write rows as a table with commas, six digits a number; what is not known stays empty."""
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
        raise ValueError(f"{path} is damaged; `kernelmosaic reproduce` with the run's folder writes it anew.") from None


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
