"""Empty cells: all named at once, or filled in by what the rows learned from have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from tests.cli.tables import PLAIN, QUICK, curve, done, flowers, run, write

from kernelmosaic import load
from kernelmosaic.cli.fit import make_pipeline, make_splitter, train
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.cli.training_table import read_training_table
from kernelmosaic.imputing import ViewImputer


def holes(seed=0, n=60):
    """Flowers with cells missing in every column but the target's, categories among them."""
    table = flowers(n=n, seed=seed)
    rng = np.random.RandomState(seed)
    for name in ("shape_a", "shape_b", "noise_a", "colour"):
        table.loc[rng.rand(n) < 0.15, name] = None
    return table


def test_all_bad_columns_are_named_at_once(capsys, tmp_path):
    table = (
        pd.concat([flowers(), flowers(seed=1).add_suffix("2")], axis=1)
        .drop(columns="kind2")
        .astype(object)
    )
    table.loc[[3, 4], "shape_a"] = table.loc[11, "kind"] = None
    table.loc[5, "shape_b"] = "wide"
    table.loc[6, "noise_a"] = "inf"
    table.loc[7, "colour"] = None
    table.loc[8, "noise_b"] = 1e300
    table.loc[9, ["shape_a2", "shape_b2"]] = None
    line = run(capsys, "fit", write(table, tmp_path / "t.csv"), "--target", "kind").error
    for words in (
        "row 12, column 'kind' is empty",
        "row 4 (and 1 more), column 'shape_a' is empty",
        "row 6, column 'shape_b': 'wide' is not a number",
        "row 7, column 'noise_a' is infinite",
        "row 9, column 'noise_b': 1e+300 is too large",
        "and 3 more columns",
        "--impute",
    ):
        assert words in line
    assert "'shape_b2'" not in line


@pytest.mark.parametrize("impute", ["median", "frequent"])
def test_cells_are_filled_as_scikit_learn_fills_them(impute):
    table = holes().drop(columns="kind")
    numbers, texts = table.drop(columns="colour"), table[["colour"]]
    strategy = "median" if impute == "median" else "most_frequent"
    ours = ViewImputer(strategy=strategy).fit(table[:40]).transform(table)
    filled = SimpleImputer(strategy=strategy).fit(numbers[:40]).transform(numbers)
    np.testing.assert_allclose(ours.drop(columns="colour"), filled)
    commonest = texts["colour"][:40].value_counts().index[0]
    assert list(ours["colour"]) == list(texts["colour"].fillna(commonest))


def test_what_nobody_has_in_a_fold_is_filled_with_nothing():
    table = pd.DataFrame({"a": [np.nan, np.nan, 3.0], "b": [None, None, "x"]}, dtype=object).astype(
        {"a": float}
    )
    filled = ViewImputer().fit(table[:2]).transform(table)
    assert list(filled["a"]) == [0.0, 0.0, 3.0]
    assert list(filled["b"]) == ["", "", "x"]


@pytest.mark.parametrize("impute", ["median", "frequent", "views"])
def test_predict_fills_by_the_training_rows(capsys, tmp_path, impute):
    path = write(holes(), tmp_path / "t.csv")
    views = ("--view", "s=shape_*:linear+gauss", "--view", "n=noise_*,colour")
    done(
        capsys,
        "fit",
        path,
        "--target",
        "kind",
        "--impute",
        impute,
        *views,
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    )
    new = write(holes(seed=5, n=20).drop(columns="kind"), tmp_path / "new.csv")
    said = done(capsys, "predict", tmp_path / "m.skops", new, "--scores")
    alone = write(holes(seed=5, n=20).drop(columns="kind").iloc[:1], tmp_path / "one.csv")
    one = done(capsys, "predict", tmp_path / "m.skops", alone, "--scores")
    a, b = (list(map(float, text.out.splitlines()[1].split(",")[1:])) for text in (said, one))
    np.testing.assert_allclose(a, b, rtol=1e-6)  # nothing is learned from the rows to predict


def test_views_stay_missing_where_a_row_has_nothing_of_them(capsys, tmp_path):
    table = flowers().drop(columns="colour")
    table.loc[:9, ["shape_a", "shape_b"]] = None
    table.loc[10:12, "shape_a"] = None
    path = write(table, tmp_path / "t.csv")
    common = ("fit", path, "--target", "kind", *QUICK, "-o", tmp_path / "m.skops")
    done(capsys, *common, "--impute", "views")  # views of guessed groups, too
    pipeline = load(tmp_path / "m.skops")
    X = pipeline[:-1].transform(table)
    assert np.isnan(X[:10, :2]).all()
    assert not np.isnan(X[10:]).any()
    assert pipeline.training_["score"]["mean"] > 0.7
    done(capsys, *common, "--impute", "median")
    assert not np.isnan(load(tmp_path / "m.skops")[:-1].transform(table)).any()
    line = run(capsys, *common, "--impute", "views", "--method", "discriminant").error
    assert "--impute median fills it in" in line


@pytest.mark.parametrize("method", ["mkl", "rmkl"])  # with an estimator that chooses C, and without
def test_every_part_is_filled_by_the_others(tmp_path, method):
    table = curve(24)
    table.loc[::4, "u"] = None
    path = write(table, tmp_path / "t.csv")
    request = FitRequest(
        path,
        "y",
        views=("all=u,v:linear+gauss",),
        impute="median",
        method=method,
        task="regression",
        C=1000.0,
        folds=3,
    )
    training = read_training_table(request)
    splitter = make_splitter(training)
    seen = []

    class Spy(ViewImputer):
        def fit(self, X, y=None):
            seen.append(sorted(X.index))
            return super().fit(X)

    pipeline = make_pipeline(training)
    name, imputer, columns = pipeline.steps[0][1].transformers[0]
    pipeline.steps[0][1].transformers[0] = (name, Spy(**imputer.get_params()), columns)
    train(training, pipeline, splitter, lambda what, n: None)
    for rows, _ in splitter.split(training.target.y):
        assert sorted(rows) in seen
    assert list(range(24)) in seen


@pytest.mark.parametrize(
    ("column", "words"),
    [("noise_b", "every cell is empty in column 'noise_b'"), ("kind", "column 'kind' is empty")],
)
def test_what_cannot_be_filled(capsys, tmp_path, column, words):
    path = write(flowers().assign(**{column: None}), tmp_path / "t.csv")
    assert words in run(capsys, "fit", path, "--target", "kind", "--impute", "median").error
