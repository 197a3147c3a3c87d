"""Kernels between rows of tables: what columns are, what is learned of them, and what is
refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.reference import naive_kernels as naive

from kernelmosaic import MKLClassifier, MKLClassifierCV, load, save
from kernelmosaic.kernels import Categorical, Clinical, Gaussian

RNG = np.random.RandomState(0)
N = 300
FRAME = pd.DataFrame(
    {
        "age": RNG.randint(20, 90, size=N),
        "sex": pd.Categorical(RNG.choice(["f", "m"], size=N)),
        "grade": RNG.choice(["I", "II", "III"], size=N),
        "smokes": RNG.rand(N) < 0.3,
    }
)
KINDS = ["continuous", "nominal", ["I", "II", "III"], "nominal"]


def test_compiled_sums_equal_the_naive_loop():
    K = Clinical(KINDS).fit(FRAME)(FRAME)
    rows = [
        [age, sex, len(grade), smokes] for age, sex, grade, smokes in FRAME[:20].to_numpy().tolist()
    ]
    ranges = [np.ptp(FRAME["age"]), None, 2, None]
    assert_allclose(
        K[:20, :20], naive.block(lambda x, z: naive.clinical(x, z, ranges), rows, rows), rtol=1e-12
    )
    assert_array_equal(K, K.T)
    # Few pairs are NumPy's.
    assert_allclose(Clinical(KINDS).fit(FRAME)(FRAME[:5], FRAME), K[:5], rtol=1e-12)


def test_kinds_that_are_not_given_are_told_by_the_training_set():
    kernel = Clinical().fit(FRAME)
    assert kernel.kinds_ == ["continuous", "nominal", "nominal", "nominal"]
    assert_allclose(kernel.ranges_, [np.ptp(FRAME["age"]), 0, 0, 0])
    with pytest.raises(ValueError, match=r"column 0 holds 'old', which is not a number"):
        kernel([["old", "f", "I", True]], FRAME)


def test_values_outside_the_range_are_as_unlike_as_can_be_and_new_categories_like_themselves():
    kernel = Clinical().fit([[0.0, "a"], [10.0, "b"]])
    K = kernel([[25.0, "c"], [24.0, "c"], [12.0, "a"]])
    assert_allclose(K, [[1, 0.95, 0], [0.95, 1, 0], [0, 0, 1]])


def test_a_wide_range_does_not_overflow_unseen():
    with pytest.raises(ValueError, match="the range of column 1 overflows"):
        Clinical().fit([[0.0, -1e308], [1.0, 1.7e308]])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_values_are_refused_by_place(missing):
    with pytest.raises(
        ValueError, match=r"X\[1, 0\] is .*: Categorical has no rule for a missing value"
    ):
        Categorical().fit([["a", 1], [missing, 2]])


def test_wrong_kinds_are_named():
    with pytest.raises(ValueError, match="with one item for each of the 4 columns"):
        Clinical(["nominal"] * 3).fit(FRAME)
    with pytest.raises(ValueError, match="'numeric' is not a kind of column"):
        Clinical("numeric").fit(FRAME)
    with pytest.raises(
        ValueError, match=r"column 2 holds 'III', which is not among the categories \['I', 'II'\]"
    ):
        Clinical(["continuous", "nominal", ["I", "II"], "nominal"]).fit(FRAME)
    with pytest.raises(ValueError, match="column 1 holds"):
        Clinical("continuous").fit(FRAME)
    with pytest.raises(ValueError, match="X has 3 columns, but Clinical was fitted to 4"):
        Clinical().fit(FRAME)(FRAME.iloc[:, :3])


def test_estimators_read_tables_by_the_names_of_their_columns(tmp_path):
    y = (FRAME["age"] > 55) ^ (FRAME["sex"] == "f")
    kernels = [
        ("patient", Clinical(KINDS), ["age", "sex", "grade", "smokes"]),
        ("words", Categorical(), ["sex", "grade"]),
        ("both", Clinical() * Clinical(), ["age", "sex"]),
        ("age", Gaussian(), ["age"]),
    ]
    model = MKLClassifierCV(kernels, Cs=[1.0, 100.0], cv=2).fit(FRAME, y)
    assert model.score(FRAME, y) > 0.9
    # Columns that a table kernel reads keep their numbers.
    assert_array_equal(model._input_rules.standardizer.columns, [])
    save(model, tmp_path / "model.skops")
    assert_array_equal(load(tmp_path / "model.skops").predict(FRAME), model.predict(FRAME))
    with pytest.raises(ValueError, match="give text to Categorical"):
        MKLClassifier([("sex", Gaussian(), ["sex"])]).fit(FRAME, y)


@pytest.mark.parametrize(
    "kernels", [None, [("words", Categorical(), ["sex", "grade"]), ("age", Gaussian(), ["age"])]]
)
def test_predictions_warn_once_of_a_category_that_is_not_in_the_training_set(kernels, tmp_path):
    table = FRAME[["age", "sex", "grade"]].astype({"sex": str})[:60]
    model = MKLClassifier(kernels).fit(table, table["age"] > 55)
    save(model, tmp_path / "m.skops")
    new = table[:4].assign(grade=["IV", "V", "I", "I"], sex=["x", "f", "m", "f"])
    for fitted in (model, load(tmp_path / "m.skops")):
        with pytest.warns(
            UserWarning, match=r"'sex' holds 'x', which is not in the training set"
        ) as caught:
            predicted = fitted.decision_function(new)
        assert len(caught) == 1
        assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="'grade' holds 'other'"):
        others = model.decision_function(new.assign(sex="f", grade="other"))
    with pytest.warns(UserWarning, match="'grade' holds 'VI'"):
        assert_array_equal(
            model.decision_function(new.assign(sex="f", grade="VI")), others
        )  # all match nothing
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(model.decision_function(new[2:]), predicted[2:])


def test_categories_of_lists_and_of_products_are_known():
    rows, y = [["a", 1.0], ["b", 2.0], ["a", 3.0], ["c", 1.5]] * 5, [0, 1, 0, 1] * 5
    for kernels in ([("c", Categorical(), [0]), ("g", Gaussian(), [1])], [Clinical() * Clinical()]):
        model = MKLClassifier(kernels).fit(rows, y)
        with pytest.warns(UserWarning, match="column 0 holds 'z'"):
            model.predict([["z", 1.0], ["a", 2.0]])
