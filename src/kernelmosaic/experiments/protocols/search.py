"""A search over one parameter: which values, and which of them the validation figures choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelmosaic.experiments.units import Record

#: The metric by which a setting is chosen; larger is better.
VALIDATION = "validation"


@dataclass(frozen=True)
class Grid:
    """Values of one parameter.

    Parameters
    ----------
    parameter : str
    values : tuple of float
        As the paper gives them.
    per_sample : bool
        Divide by the number of training samples before the estimator sees them. For papers that scale kernels to unit
        trace: theirs are ours, of mean diagonal 1, divided by n, and then the same machine has C/n for C.
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


#: The prices of slack that the papers try.
PRICES = Grid()


def best_setting(records: Sequence[Record]) -> str:
    """Return the setting with the largest mean validation figure over the records; of equal ones the first."""
    found: dict[str, list[float]] = {}
    for record in records:
        for one in record.measurements:
            if one.metric == VALIDATION:
                found.setdefault(one.setting, []).append(one.value)
    return max(found, key=lambda setting: float(np.mean(found[setting]))) if found else ""
