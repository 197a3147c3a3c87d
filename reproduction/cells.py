"""From the records of a protocol to rows: the setting chosen, means over replicates, comparisons of
methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from reproduction.comparison import Comparison, compare
from reproduction.experiment import Record
from reproduction.rows import Row, gain_metric, merge, row_of

#: The metric by which a setting is chosen; larger is better.
VALIDATION = "validation"
_VERDICTS = {"win": 1.0, "tie": 0.0, "loss": -1.0}


@dataclass(frozen=True)
class Grid:
    """Values of one parameter.

    Parameters
    ----------
    parameter : str
    values : tuple of float
        As the paper gives them.
    per_sample : bool
        Divide by the number of training samples before the estimator sees them. For papers that
        scale kernels to unit trace: theirs are ours, of mean diagonal 1, divided by n, and then the
        same machine has C/n for C.
    """

    parameter: str = "C"
    values: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
    per_sample: bool = False

    def setting(self, value: float) -> str:
        """Return a value's name in the records."""
        return f"{self.parameter}={value:g}"

    def given(self, value: float, n_samples: int) -> dict[str, float]:
        """Return a value as the estimator's parameter."""
        return {self.parameter: value / n_samples if self.per_sample else value}


#: The sample_C of slack that the papers try.
PRICES = Grid()


@dataclass(frozen=True)
class Both:
    """Every pair of values of two grids."""

    first: Grid
    second: Grid

    @property
    def values(self) -> tuple[tuple[float, float], ...]:
        """The pairs."""
        return tuple(product(self.first.values, self.second.values))

    def setting(self, value: tuple[float, float]) -> str:
        """Return a pair's name in the records."""
        return f"{self.first.setting(value[0])}, {self.second.setting(value[1])}"

    def given(self, value: tuple[float, float], n_samples: int) -> dict[str, float]:
        """Return a pair as the estimator's parameters."""
        return self.first.given(value[0], n_samples) | self.second.given(value[1], n_samples)


def best_setting(records: Sequence[Record]) -> str:
    """Return the setting with the largest mean validation figure over the records; of equal ones
    the first."""
    found: dict[str, list[float]] = {}
    for record in records:
        for one in record.measurements:
            if one.metric == VALIDATION:
                found.setdefault(one.setting, []).append(one.value)
    return max(found, key=lambda setting: float(np.mean(found[setting]))) if found else ""


@dataclass(frozen=True)
class Cell:
    """The replicates of one method on one data set and split seed, under the setting that
    validation chooses."""

    dataset: str
    method: str
    kernels: str
    setting: str
    values: dict[str, list[float]]
    seed: int = 0

    def rows(self) -> list[Row]:
        """Return one row a metric."""
        return [
            row_of(self.dataset, self.method, self.kernels, metric, values, self.setting)
            for metric, values in self.values.items()
        ]


def cells_of(records: Sequence[Record]) -> list[Cell]:
    """Group records by data set, method and split seed, in their order, and choose a setting for
    each."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record.unit.cell, record.unit.seed), []).append(record)
    return [_cell(group) for group in groups.values()]


def rows_of(cells: Sequence[Cell], comparisons: Sequence[Pair | Gain] = ()) -> list[Row]:
    """Return the rows of each split seed, comparisons after the figures, made into one row each."""
    runs = []
    for seed in sorted({cell.seed for cell in cells}):
        mine = [cell for cell in cells if cell.seed == seed]
        rows = [row for cell in mine for row in cell.rows()]
        runs.append(rows + [row for one in comparisons for row in one.rows(mine)])
    return merge(runs)


def _cell(records: list[Record]) -> Cell:
    setting = best_setting(records)
    values: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda one: one.unit.replicate):
        for one in record.measurements:
            # What hangs on no setting counts whichever is chosen.
            if one.setting in (setting, "") and one.metric != VALIDATION:
                values.setdefault(one.metric, []).append(one.value)
    unit = records[0].unit
    return Cell(unit.dataset, unit.method, unit.kernels, setting, values, unit.seed)


@dataclass(frozen=True)
class Gain:
    """By how much a method exceeds its baseline, split by split: what is left when both share a
    setting's effect.

    Parameters
    ----------
    method, baseline : (str, str)
        Names and kernels of the two.
    metric : str
    """

    method: tuple[str, str]
    baseline: tuple[str, str]
    metric: str = "accuracy"

    def rows(self, cells: Sequence[Cell]) -> list[Row]:
        """Return one row a data set that has both."""
        by_name = {
            (cell.dataset, cell.method, cell.kernels): cell.values.get(self.metric, [])
            for cell in cells
        }
        rows = []
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            both = [by_name.get((dataset, *side), []) for side in (self.method, self.baseline)]
            # The first ones are those of the same splits, where one of the two has fewer.
            values = [one - other for one, other in zip(*both, strict=False)]
            if values:
                rows.append(
                    row_of(dataset, *self.method, gain_metric(self.metric, *self.baseline), values)
                )
        return rows


@dataclass(frozen=True)
class Pair:
    """Two columns to compare, from the first one's side.

    Parameters
    ----------
    first, second : (str, str)
        Names and kernels of the two methods.
    name : str
        As printed: ``"LMKL vs MKL"``.
    overall : str
        What the papers call all data sets together; empty if the comparison is not made over data
        sets.
    n_sets : int
        How many data sets that is. Counts over fewer are named so, and not set beside the paper's;
        0 means any number.
    metrics : tuple of (str, bool) pairs
        What is compared, and whether more of it is better.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    name: str
    overall: str = ""
    n_sets: int = 0
    metrics: tuple[tuple[str, bool], ...] = (("accuracy", True), ("sv_percent", False))

    def rows(self, cells: Sequence[Cell]) -> list[Row]:
        """Return the rows of this comparison; none where a data set lacks replicates."""
        by_name = {(cell.dataset, cell.method, cell.kernels): cell for cell in cells}
        rows: list[Row] = []
        for metric, larger_is_better in self.metrics:
            scores = {}
            for dataset in dict.fromkeys(cell.dataset for cell in cells):
                both = [by_name.get((dataset, *method)) for method in (self.first, self.second)]
                values = [cell.values.get(metric, []) if cell else [] for cell in both]
                if all(len(one) == 10 for one in values):
                    scores[dataset] = (values[0], values[1])
            if scores:
                # Two decimals, as the tables that the papers compare by eye.
                compared = compare(scores, larger_is_better=larger_is_better, decimals=2)
                rows += self._tests(compared, metric) + self._counts(compared, metric)
        return rows

    def _tests(self, compared: Comparison, metric: str) -> list[Row]:
        rows = []
        for one in compared.rows:
            assert one.f_test is not None
            kernels = self.first[1]
            rows.append(
                Row(one.dataset, self.name, kernels, f"F:{metric}", min(one.f_test.statistic, 1e9))
            )
            rows.append(Row(one.dataset, self.name, kernels, f"p:{metric}", one.f_test.p_value))
        return rows

    def _counts(self, compared: Comparison, metric: str) -> list[Row]:
        if not self.overall:
            return []
        found: dict[str, float] = {}
        for test, counts in (("5x2cvF", compared.f_test), ("direct", compared.direct)):
            if counts is not None:
                found |= {
                    f"wins:{test}:{metric}": counts.wins,
                    f"ties:{test}:{metric}": counts.ties,
                    f"losses:{test}:{metric}": counts.losses,
                }
        found[f"wilcoxon:{metric}"] = _VERDICTS[compared.wilcoxon_verdict]
        found[f"wilcoxon_p:{metric}"] = compared.wilcoxon.p_value
        n_sets = len(compared.rows)
        name = self.overall if self.n_sets in (0, n_sets) else f"{n_sets} of {self.overall}"
        return [
            Row(name, self.name, self.first[1], key, float(value)) for key, value in found.items()
        ]
