"""From records to rows, whatever the protocol was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmosaic.experiments.protocols.search import VALIDATION, best_setting
from kernelmosaic.experiments.summary import Row, row_of
from kernelmosaic.experiments.units import Record


@dataclass(frozen=True)
class Cell:
    """The replicates of one method on one data set, under the setting that the validation figures choose."""

    dataset: str
    method: str
    kernels: str
    setting: str
    values: dict[str, list[float]]

    def rows(self) -> list[Row]:
        """Return one row a metric."""
        return [
            row_of(self.dataset, self.method, self.kernels, metric, values, self.setting)
            for metric, values in self.values.items()
        ]


def cells_of(records: Sequence[Record]) -> list[Cell]:
    """Group records by data set and method, in their order, and choose a setting for each."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.unit.cell, []).append(record)
    return [_cell(group) for group in groups.values()]


def _cell(records: list[Record]) -> Cell:
    setting = best_setting(records)
    values: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda one: one.unit.replicate):
        for one in record.measurements:
            # What hangs on no setting counts whichever is chosen.
            if one.setting in (setting, "") and one.metric != VALIDATION:
                values.setdefault(one.metric, []).append(one.value)
    unit = records[0].unit
    return Cell(unit.dataset, unit.method, unit.kernels, setting, values)
