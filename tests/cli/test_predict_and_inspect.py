"""``kernelmosaic predict`` and ``kernelmosaic inspect`` on models that ``fit`` and Python made."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from tests.cli.tables import PLAIN, curve, done, flowers, run, write

import kernelmosaic
from kernelmosaic import MKLClassifier, MKLRegressor, load, save
from kernelmosaic.kernels import Categorical, Linear


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from kernelmosaic.cli import main

    folder = tmp_path_factory.mktemp("model")
    train = write(flowers(), folder / "train.csv")
    assert (
        main(["fit", str(train), "--target", "kind", *PLAIN, "-o", str(folder / "model.skops")])
        == 0
    )
    return folder / "model.skops"


def test_columns_in_any_order_and_more_of_them(capsys, tmp_path, model):
    table = flowers(n=30, seed=1)
    new = table[["noise_b", "colour", "shape_b", "noise_a", "shape_a"]].assign(
        name=[f"n{i}" for i in range(30)], extra=1
    )
    path = write(new, tmp_path / "new.csv")
    said = done(capsys, "predict", model, path, "--id", "name", "-o", tmp_path / "out.csv")
    out = pd.read_csv(tmp_path / "out.csv")
    assert list(out.columns) == ["name", "prediction"]
    np.testing.assert_array_equal(out["prediction"], load(model).predict(table))
    assert "1 column the model does not know is ignored: extra" in said.err
    assert "accuracy" not in said.err


def test_the_target_column_gives_the_score(capsys, tmp_path, model):
    table = flowers(n=30, seed=1)
    said = done(capsys, "predict", model, write(table, tmp_path / "new.csv"))
    lines = said.out.splitlines()
    assert lines[0] == "prediction"
    right = np.mean(np.array(lines[1:]) == table["kind"])
    assert f"accuracy on column 'kind': {100 * right:.1f} %" in said.err


def test_rows_that_the_model_was_fitted_to_are_counted(capsys, tmp_path, model):
    known, new = flowers(), flowers(n=30, seed=1)
    mixed = pd.concat([new, known[:5]])
    right = load(model).predict(mixed) == mixed["kind"]
    said = done(capsys, "predict", model, write(mixed, tmp_path / "new.csv")).err
    score = (
        f"{100 * right.mean():.1f} % ± {100 * right.std(ddof=1) / 35**0.5:.1f} % (standard error;"
        " 35 rows)"
    )
    assert f"{score}; 5 of them are rows that the model was fitted to" in said
    assert (
        "these are rows that"
        in done(capsys, "predict", model, write(known, tmp_path / "new.csv")).err
    )
    assert "fitted to" not in done(capsys, "predict", model, write(new, tmp_path / "new.csv")).err


def test_scores_add_up(capsys, tmp_path, model):
    table = flowers(n=30, seed=1)
    path = write(table, tmp_path / "new.csv")
    done(capsys, "predict", model, path, "--scores", "-o", tmp_path / "out.tsv")
    out = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    pipeline = load(model)
    shares = out.filter(like="share[")
    intercept = pipeline.named_steps["model"].intercept_[0]
    np.testing.assert_allclose(shares.sum(axis=1) + intercept, out["decision"], atol=1e-6)
    np.testing.assert_allclose(out["decision"], pipeline.decision_function(table), atol=1e-6)


def test_scores_of_several_classes_are_those_of_the_predicted_one(capsys, tmp_path):
    table = flowers(n=90).drop(columns="colour")
    table["kind"] = np.where(table["noise_b"] > 0.5, "orchid", table["kind"])
    path = write(table, tmp_path / "t.csv")
    done(capsys, "fit", path, "--target", "kind", *PLAIN, "-o", tmp_path / "m.skops")
    done(capsys, "predict", tmp_path / "m.skops", path, "--scores", "-o", tmp_path / "out.parquet")
    out = pd.read_parquet(tmp_path / "out.parquet")
    decisions = out[[f"decision[{c}]" for c in ("orchid", "rose", "tulip")]].to_numpy()
    chosen = decisions.argmax(axis=1)
    np.testing.assert_array_equal(np.array(["orchid", "rose", "tulip"])[chosen], out["prediction"])
    intercepts = load(tmp_path / "m.skops").named_steps["model"].intercept_
    sums = out.filter(like="share[").sum(axis=1) + intercepts[chosen]
    np.testing.assert_allclose(sums, decisions.max(axis=1), atol=1e-6)


def test_a_category_never_seen_is_noted(capsys, tmp_path, model):
    table = flowers(n=10).drop(columns="kind").assign(colour="green")
    said = done(capsys, "predict", model, write(table, tmp_path / "new.csv"))
    assert "column 'colour' holds 'green', which is not in the training table" in said.err


def test_classes_that_read_as_numbers_elsewhere(capsys, tmp_path):
    train = flowers().assign(kind=lambda t: np.where(t["kind"] == "rose", "1", "x"))
    done(
        capsys,
        "fit",
        write(train, tmp_path / "t.csv"),
        "--target",
        "kind",
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    )
    ones = write(train[train["kind"] == "1"], tmp_path / "ones.csv")
    assert "accuracy on column 'kind'" in done(capsys, "predict", tmp_path / "m.skops", ones).err


def test_regression_scores(capsys, tmp_path):
    path = write(curve(), tmp_path / "t.csv")
    done(capsys, "fit", path, "--target", "y", *PLAIN, "--C", "5000", "-o", tmp_path / "m.skops")
    said = done(
        capsys, "predict", tmp_path / "m.skops", path, "--scores", "-o", tmp_path / "out.csv"
    )
    assert "R² on column 'y'" in said.err
    out = pd.read_csv(tmp_path / "out.csv")
    assert np.corrcoef(out["prediction"], curve()["y"])[0, 1] > 0.9


def test_new_rows_of_given_matrices(capsys, tmp_path):
    table, new = flowers(n=60), flowers(n=25, seed=5)
    names = ["shape_a", "shape_b"]
    X, Z = table[names].to_numpy(), new[names].to_numpy()
    np.save(tmp_path / "K.npy", X @ X.T)
    np.save(tmp_path / "B.npy", Z @ X.T)
    path = write(table[["kind"]], tmp_path / "t.csv")
    common = ("--target", "kind", *PLAIN, "-o", tmp_path / "m.skops")
    done(capsys, "fit", path, "--kernel", f"k={tmp_path / 'K.npy'}", *common)
    ids = write(pd.DataFrame({"name": range(25)}), tmp_path / "new.csv")
    arguments = ("--kernel", f"k={tmp_path / 'B.npy'}", "--scores", "-o", tmp_path / "o.csv")
    done(capsys, "predict", tmp_path / "m.skops", ids, *arguments)
    out = pd.read_csv(tmp_path / "o.csv")
    model = load(tmp_path / "m.skops").named_steps["model"]
    unit = np.mean(np.sum(X**2, axis=1))  # the mean diagonal of the matrix is one
    by_hand = (
        Z @ X[model.support_].T @ model.dual_coef_[0] * model.weights_[0] / unit + model.intercept_
    )
    np.testing.assert_allclose(out["decision"], by_hand, atol=1e-5)
    reference = MKLClassifier([Linear()], C=1.0, tol=1e-6).fit(X, table["kind"])
    assert model.objective_ == pytest.approx(reference.objective_, rel=2e-3)


def test_models_made_in_python(capsys, tmp_path):
    table = curve()
    save(MKLRegressor(C=1000.0).fit(table[["u", "v"]], table["y"]), tmp_path / "m.skops")
    path = write(table[["v", "u"]], tmp_path / "t.csv")
    said = done(capsys, "predict", tmp_path / "m.skops", path)
    expected = load(tmp_path / "m.skops").predict(table[["u", "v"]])
    np.testing.assert_allclose(
        [float(line) for line in said.out.splitlines()[1:]], expected, rtol=1e-6
    )
    assert "MKLRegressor" in done(capsys, "inspect", tmp_path / "m.skops").out


def test_a_search_around_a_pipeline_made_in_python(capsys, tmp_path):
    table = flowers()[["shape_a", "shape_b", "kind"]]
    X = 5.0 + 3.0 * table[["shape_a", "shape_b"]]
    pipeline = Pipeline([("scale", StandardScaler()), ("model", MKLClassifier())])
    search = GridSearchCV(pipeline, {"model__C": [0.1, 1.0]}, cv=2).fit(
        X, table["kind"] == table["kind"].iloc[0]
    )
    save(search, tmp_path / "m.skops")
    said = done(capsys, "predict", tmp_path / "m.skops", write(X, tmp_path / "t.csv"), "--scores")
    read = pd.read_csv(io.StringIO(said.out))
    np.testing.assert_allclose(read["decision"], search.decision_function(X), rtol=1e-6, atol=1e-8)


def test_inspect_tells(capsys, model):
    said = done(capsys, "inspect", model)
    pipeline = load(model)
    heaviest = np.argmax(pipeline.named_steps["model"].weights_)
    assert pipeline.named_steps["model"].kernel_names_[heaviest] in said.out
    for words in (
        "support vectors",
        "certified gap",
        "cost of a prediction",
        "target 'kind'",
        "shape_a",
    ):
        assert words in said.out
    assert kernelmosaic.__version__ in said.out


def test_inspect_as_json(capsys, model):
    found = json.loads(done(capsys, "inspect", model, "--json").out)
    inner = load(model).named_steps["model"]
    assert [kernel["name"] for kernel in found["kernels"]] == inner.kernel_names_
    np.testing.assert_allclose([kernel["weight"] for kernel in found["kernels"]], inner.weights_)
    assert sum(kernel["share"] for kernel in found["kernels"]) == pytest.approx(1)
    assert found["support_vectors"] == len(inner.support_)
    assert found["duality_gap"] == inner.duality_gap_
    assert found["classes"] == ["rose", "tulip"]
    assert found["columns"] == ["shape_a", "shape_b", "noise_a", "noise_b", "colour"]
    assert found["cost"] == pytest.approx(inner.cost(np.ones(len(inner.kernel_names_))))


def test_inspect_summarises_gates(capsys, tmp_path):
    path = write(flowers(), tmp_path / "t.csv")
    views = ("--view", "s=shape_*:linear", "--view", "n=noise_*:linear")
    done(
        capsys,
        "fit",
        path,
        "--target",
        "kind",
        "--method",
        "localized",
        *views,
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    )
    pipeline = load(tmp_path / "m.skops")
    X = pipeline.named_steps["prepare"].transform(flowers())
    low, high = np.quantile(pipeline.named_steps["model"].gate(X)[:, 0], (0.1, 0.9))
    assert f"{low:.3f} to {high:.3f}" in done(capsys, "inspect", tmp_path / "m.skops").out


def test_a_model_made_in_python_reads_text_and_lacks_views(capsys, tmp_path):
    rng = np.random.RandomState(0)
    table = pd.DataFrame(
        {
            "site": list("abc") * 10,
            "age": rng.randn(30),
            "note": ["seen"] * 30,
            "bmi": rng.randn(30),
        }
    )
    y = np.where(table["age"] + (table["site"] == "a") > 0, "p", "n")
    kernels = [
        ("site", Categorical(), ["site"]),
        ("age", Linear(), ["age"]),
        ("bmi", Linear(), ["bmi"]),
    ]
    model = MKLClassifier(kernels).fit(table, y)
    save(model, tmp_path / "m.skops")
    new = table.iloc[:6].assign(bmi=[0.1, np.nan, 0.3, np.nan, 0.5, 0.6])
    write(new[["bmi", "note", "age", "site"]], tmp_path / "new.csv")
    done(capsys, "predict", tmp_path / "m.skops", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].tolist() == model.predict(new).tolist()
    write(new.assign(age="old"), tmp_path / "wrong.csv")
    line = run(capsys, "predict", tmp_path / "m.skops", tmp_path / "wrong.csv").error
    assert "column 'age': 'old' is not a number" in line
    assert "site" not in line
