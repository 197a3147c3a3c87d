"""A target that a sample does not have is one clear error, in whatever form the targets come."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelmosaic
from kernelmosaic import MKLClassifier, MKLRegressor

RNG = np.random.RandomState(0)
X = RNG.standard_normal((30, 2))
NUMBERS = X[:, 0].tolist()
CLASSES = ["case", "control"] * 15
GAP = 4


def with_gap(values, gap):
    return [gap if i == GAP else value for i, value in enumerate(values)]


OF_NUMBERS = {
    "floats": np.array(with_gap(NUMBERS, np.nan)),
    "a list": with_gap(NUMBERS, None),
    "objects": pd.Series(with_gap(NUMBERS, None), dtype=object),
    "nullable": pd.Series(with_gap(NUMBERS, None), dtype="Float64"),
    "arrow": pd.Series(with_gap(NUMBERS, None), dtype="double[pyarrow]"),
    "polars": pl.Series(with_gap(NUMBERS, None)),
    "a frame": pd.DataFrame({"target": pd.Series(with_gap(NUMBERS, pd.NA), dtype=object)}),
}
OF_CLASSES = {
    "a list": with_gap(CLASSES, None),
    "objects": np.array(with_gap(CLASSES, np.nan), dtype=object),
    "strings": pd.Series(with_gap(CLASSES, pd.NA), dtype="string"),
    "arrow": pd.Series(with_gap(CLASSES, None), dtype="string[pyarrow]"),
    "categories": pd.Series(pd.Categorical(with_gap(CLASSES, None))),
    "polars": pl.Series(with_gap(CLASSES, None)),
    "truth values": pd.Series(
        [None if i == GAP else i % 2 == 0 for i in range(30)], dtype="boolean"
    ),
    "whole numbers": pd.Series([None if i == GAP else i % 2 for i in range(30)], dtype="Int64"),
}
MESSAGE = (
    "Input y contains NaN: 1 of 30 samples have no target, the first of them sample 4; leave them"
    " out of X and y"
)


@pytest.mark.parametrize("form", OF_NUMBERS)
@pytest.mark.parametrize(
    "name", ["MKLRegressor", "MKLRidgeCV", "MKLRegressorCV", "LocalizedMKLRegressor"]
)
def test_numbers(name, form):
    with pytest.raises(ValueError, match=MESSAGE):
        getattr(kernelmosaic, name)().fit(X, OF_NUMBERS[form])


@pytest.mark.parametrize("form", OF_CLASSES)
@pytest.mark.parametrize(
    "name",
    ["MKLClassifier", "MKLRidgeClassifierCV", "MKLClassifierCV", "DiscriminantMKLClassifier"],
)
def test_classes(name, form):
    with pytest.raises(ValueError, match=MESSAGE):
        getattr(kernelmosaic, name)().fit(X, OF_CLASSES[form])


def test_targets_of_samples_that_stay_on_the_disk(tmp_path):
    np.save(tmp_path / "samples.npy", X)
    model = MKLRegressor(approximation="nystroem", rank=10)
    with pytest.raises(ValueError, match=MESSAGE):
        model.fit(tmp_path / "samples.npy", OF_NUMBERS["objects"])


def test_infinite_targets_among_objects():
    for name in ("MKLRegressor", "MKLRidgeCV", "MKLRegressorCV"):
        with pytest.raises(ValueError, match="Input y contains infinity"):
            getattr(kernelmosaic, name)().fit(X, np.array(with_gap(NUMBERS, np.inf), dtype=object))


@pytest.mark.parametrize(
    "form", [list, np.array, pd.Series, lambda y: pd.Series(y, dtype=object), pl.Series]
)
def test_targets_without_gaps_lead_to_the_same_fit(form):
    expected = MKLRegressor().fit(X, np.array(NUMBERS)).predict(X)
    np.testing.assert_array_equal(MKLRegressor().fit(X, form(NUMBERS)).predict(X), expected)
    named = MKLClassifier().fit(X, form(CLASSES))
    assert named.classes_.tolist() == ["case", "control"]
    np.testing.assert_array_equal(
        named.predict(X), MKLClassifier().fit(X, np.array(CLASSES)).predict(X)
    )
