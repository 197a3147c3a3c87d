"""Columns that are the target in another unit or code."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kernelmosaic.cli.training_table import Target, copies_of_target

y = np.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0])
TARGET = Target("regression", ("y",), y)


@pytest.mark.parametrize(
    "values", [y, 2.54 * y, 32.0 - 1.8 * y, (2 * y).astype(int)], ids=["copy", "unit", "reversed", "whole"]
)
def test_a_multiple_of_the_target_plus_a_constant_is_a_copy(values):
    table = pd.DataFrame({"x": values, "other": np.sqrt(y)})
    assert copies_of_target(table, ["x", "other"], TARGET) == {"x": "y"}


def test_rows_that_lack_the_column_do_not_hide_a_copy():
    values = 2.0 * y
    values[2] = np.nan
    assert copies_of_target(pd.DataFrame({"x": values}), ["x"], TARGET) == {"x": "y"}


def test_a_column_that_is_nearly_the_target_is_none():
    values = y + np.where(np.arange(len(y)) == 3, 1e-3, 0.0)
    assert copies_of_target(pd.DataFrame({"x": values}), ["x"], TARGET) == {}
