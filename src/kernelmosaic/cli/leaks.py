"""Columns that are the target under another name or in another code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, TargetLike
from kernelmosaic.cli.methods import LABELS, ONE_CLASS, REGRESSION, SURVIVAL

#: So many rows must have a column of numbers, and each category on average so many, so that a copy is no coincidence.
_FEWEST_ROWS = 5
_FEWEST_EACH = 2
#: What rounding leaves of the difference between a column and a multiple of it plus a constant.
_ROUNDING = 1e-9


def copies_of_target(
    table: Any, columns: Sequence[str], task: str, names: Sequence[str], y: TargetLike
) -> dict[str, str]:
    """Return the columns that say what the target says, each with the name of that target.

    A column is such a copy of classes if its values and the classes go with each other one to one, and of a quantity if
    that is a multiple of it plus a constant.
    """
    found = {}
    for column in columns:
        present = table[column].notna().to_numpy()
        values = table[column].to_numpy()[present]
        for name, target, is_quantity in _parts(task, names, y):
            same = _same_quantity if is_quantity else _same_code
            if column not in found and same(values, target[present]):
                found[column] = name
    return found


def _parts(task: str, names: Sequence[str], y: AnyArray) -> Iterator[tuple[str, AnyArray, bool]]:
    """The columns of the target: name, values, and whether it is a quantity."""
    if task == SURVIVAL:
        yield names[0], y[:, 1], True
        yield names[1], y[:, 0], False
    elif task == LABELS:
        yield from ((name, y[:, j], False) for j, name in enumerate(names))
    elif task != ONE_CLASS:
        yield names[0], y, task == REGRESSION


def _same_code(values: AnyArray, target: AnyArray) -> bool:
    import pandas as pd

    codes, kinds = pd.factorize(values)
    n = len(kinds)
    if n < 2 or len(values) < _FEWEST_EACH * n:
        return False
    classes = pd.factorize(target)[0]
    return bool(classes.max() + 1 == n == len(np.unique(codes * n + classes)))


def _same_quantity(values: AnyArray, target: AnyArray) -> bool:
    if len(values) < _FEWEST_ROWS or values.dtype.kind not in "fiu" or np.ptp(values) == 0 or np.ptp(target) == 0:
        return False
    x = (values - values.mean()) / np.ptp(values)
    t = (target - target.mean()) / np.ptp(target)
    return bool(np.max(np.abs(t - x * (x @ t) / (x @ x))) < _ROUNDING)
