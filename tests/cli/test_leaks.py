"""Columns that are the target in another unit or code."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kernelmosaic.cli.training_table import Target, copies_of_target

y = np.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0])
TARGET = Target("regression", ("y",), y)


@pytest.mark.parametrize(
    "values",
    [y, 2.54 * y, 32.0 - 1.8 * y, (2 * y).astype(int)],
    ids=["copy", "unit", "reversed", "whole"],
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


RNG = np.random.RandomState(0)
LONG = RNG.standard_normal(300)
COUNTS = RNG.poisson(20.0, 300).astype(float)


@pytest.mark.parametrize(
    "target", [LONG, COUNTS, np.round(LONG)], ids=["numbers", "counts", "few kinds"]
)
def test_the_order_of_the_target_gives_a_copy_away(target):
    noise = 1e-6 * np.random.RandomState(1).standard_normal((3, 300))
    gaps = np.exp(target)
    gaps[::7] = np.nan
    table = pd.DataFrame(
        {
            "exp": np.exp(target / 4),
            "minus": -(target**3),
            "noisy": target + noise[0],
            "gaps": gaps,
            "back": noise[1] - target,
        }
    )
    found = copies_of_target(table, list(table), Target("regression", ("y",), target))
    assert found == dict.fromkeys(table, "y")


@pytest.mark.parametrize(
    "target", [LONG, COUNTS, np.round(LONG)], ids=["numbers", "counts", "few kinds"]
)
def test_ordinary_columns_are_no_copies(target):
    rng = np.random.RandomState(2)
    table = pd.DataFrame(rng.standard_normal((300, 50)), columns=[f"x{j}" for j in range(50)])
    table["whole"] = rng.randint(5, size=300).astype(np.uint8)
    table["flag"] = target > 0
    table["bins"] = np.digitize(target, np.quantile(target, [0.3, 0.6]))
    table["close"] = target + 0.05 * target.std() * rng.standard_normal(300)
    table["text"] = "a"
    table["same"] = 1.0
    assert copies_of_target(table, list(table), Target("regression", ("y",), target)) == {}


def test_few_rows_are_in_order_by_coincidence():
    rng = np.random.RandomState(3)
    table = pd.DataFrame(rng.standard_normal((8, 2000))).rename(columns=str)
    assert copies_of_target(table, list(table), TARGET) == {}


def test_classes_in_numbers_with_noise_are_a_copy_and_classes_that_are_apart_are_not():
    rng = np.random.RandomState(4)
    classes = np.array(["b", "a", "c"])[np.arange(60) % 3]
    codes = np.unique(classes, return_inverse=True)[1]
    table = pd.DataFrame(
        {
            "noisy": np.exp(codes) + 1e-6 * rng.standard_normal(60),
            "apart": 3.0 * codes
            + rng.uniform(size=60),  # every class by itself, as a good measurement has it
            "one": (codes == 1) + 1e-6 * rng.standard_normal(60),
        }
    )
    target = Target("classification", ("kind",), classes)
    assert copies_of_target(table, list(table), target) == {"noisy": "kind"}
