"""``kernelmosaic fit``: every kind of file, task and method, and figures that agree with what
Python gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.preprocessing import StandardScaler
from tests.cli.tables import PLAIN, QUICK, curve, done, flowers, strings, write

from kernelmosaic import MKLClassifier, load
from kernelmosaic.cli import main
from kernelmosaic.cli.fit import make_pipeline, make_splitter, publish, train_table
from kernelmosaic.cli.fit import train as learn
from kernelmosaic.cli.layout import label_of, read_short
from kernelmosaic.cli.output import progress
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.cli.training_table import read_training_table
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.kernels.views import default_kernels, one_class_kernels

pytestmark = pytest.mark.usefixtures("fixed_margins")


@pytest.fixture
def train(tmp_path):
    return write(flowers(), tmp_path / "train.csv")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The model of the table with the quickest options."""
    folder = tmp_path_factory.mktemp("plain")
    path = write(flowers(), folder / "train.csv")
    assert (
        main(["fit", str(path), "--target", "kind", *PLAIN, "-o", str(folder / "model.skops")]) == 0
    )
    return load(folder / "model.skops")


def fitted(capsys, tmp_path, *arguments):
    said = done(capsys, "fit", *arguments, "-o", tmp_path / "model.skops")
    return load(tmp_path / "model.skops"), said


def test_the_model_is_the_one_python_gives(capsys, tmp_path, train):
    views = ("--view", "shape=shape_*:linear+gauss(1.5)", "--view", "noise=noise_?:linear")
    pipeline, _ = fitted(
        capsys, tmp_path, train, "--target", "kind", *views, "--C", "3", "--folds", "0"
    )
    table = flowers()
    X = StandardScaler().fit_transform(table[["shape_a", "shape_b", "noise_a", "noise_b"]])
    kernels = [("a", Linear(), [0, 1]), ("b", Gaussian(1.5), [0, 1]), ("c", Linear(), [2, 3])]
    model = MKLClassifier(kernels, C=3.0).fit(X, table["kind"])
    ours = pipeline.named_steps["model"]
    assert ours.kernel_names_ == ["shape:linear", "shape:gauss(1.5)", "noise:linear"]
    np.testing.assert_allclose(ours.weights_, model.weights_, atol=1e-9)
    np.testing.assert_allclose(
        pipeline.decision_function(table), model.decision_function(X), atol=1e-9
    )


def test_columns_are_grouped_by_prefix_and_kind(capsys, tmp_path, train):
    table = flowers().assign(shape_c=np.arange(60) % 7, noise_c=np.arange(60) % 5)
    pipeline, said = fitted(capsys, tmp_path, write(table, train), "--target", "kind", *QUICK)
    views = pipeline.training_["views"]
    assert list(views) == ["shape", "noise", "other"]
    assert views["other"] == {"columns": ["colour"], "kernels": ["linear"], "files": []}
    assert views["shape"]["kernels"] == [
        "linear",
        "poly2",
        "gauss",
        "gauss(2*median)",
        "gauss(4*median)",
    ]
    assert len(pipeline.named_steps["model"].kernel_names_) == 11
    assert (
        "view shape: 3 columns (shape_a, shape_b, shape_c); linear + poly2 + gauss + " in said.err
    )
    assert "view other: 1 column (colour); linear" in said.err
    assert "support vectors" in said.out
    assert "certified gap" in said.out


def test_the_widths_of_a_family_lie_around_the_median_distance(capsys, tmp_path, train):
    arguments = ("--target", "kind", "--view", "s=shape_a,shape_b:gauss*3", *PLAIN)
    pipeline, _ = fitted(capsys, tmp_path, train, *arguments)
    X = StandardScaler().fit_transform(flowers()[["shape_a", "shape_b"]])
    i, j = np.triu_indices(len(X), k=1)
    median = np.median(np.linalg.norm(X[i] - X[j], axis=1))
    model = pipeline.named_steps["model"]
    assert model.kernel_names_ == ["s:gauss(0.5*median)", "s:gauss", "s:gauss(2*median)"]
    for m, factor in enumerate([0.5, 1, 2]):
        alone = MKLClassifier(model.kernels, weights=np.eye(3)[m], normalize=None).fit(
            X, flowers()["kind"]
        )
        expected = np.exp(-(squareform(pdist(X)) ** 2) / (factor * median) ** 2)
        np.testing.assert_allclose(alone.kernel_matrix(X), expected, rtol=1e-9)


@pytest.mark.parametrize(("task", "n_line"), [("classification", 2), ("one-class", 0)])
def test_default_kernels_are_those_of_the_library(capsys, tmp_path, train, task, n_line):
    price = PLAIN if task == "classification" else ()
    arguments = ("--target", "kind", "--task", task, "--view", "s=shape_a,shape_b")
    pipeline, said = fitted(capsys, tmp_path, train, *arguments, *price)
    library = {"classification": default_kernels, "one-class": one_class_kernels}[task]()
    assert [repr(kernel) for _, kernel, _ in pipeline.named_steps["model"].kernels] == [
        repr(k) for k in library
    ]
    assert sum(not isinstance(kernel, Gaussian) for kernel in library) == n_line
    assert "normalize" not in said.err


@pytest.mark.parametrize(
    ("text", "kernel", "label"),
    [
        ("gauss", Gaussian(), "gauss"),
        ("gauss(median)", Gaussian(), "gauss"),
        ("gauss(nearest)", Gaussian("nearest"), "gauss(nearest)"),
        ("rbf(0.5*nearest)", Gaussian("nearest", 0.5), "gauss(0.5*nearest)"),
        ("gaussian(2 * median)", Gaussian(factor=2.0), "gauss(2*median)"),
        ("gauss(1.5)", Gaussian(1.5), "gauss(1.5)"),
    ],
)
def test_widths_of_gaussians_are_read(text, kernel, label):
    (read,) = read_short(text)
    assert (label_of(read), repr(read)) == (label, repr(kernel))
    assert repr(read_short(label)[0]) == repr(kernel)


def test_cross_validation_chooses_the_price_that_a_plain_loop_chooses(capsys, tmp_path):
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline

    table = flowers(n=40, seed=3)
    table["kind"] = np.where(np.random.RandomState(1).rand(40) < 0.25, "rose", table["kind"])
    train = write(table, tmp_path / "noisy.csv")
    pipeline, said = fitted(
        capsys,
        tmp_path,
        train,
        *(
            "--target",
            "kind",
            "--view",
            "s=shape_*:linear",
            "--norm",
            "1",
            "--seed",
            "4",
            "--folds",
            "2",
        ),
    )
    X = table[["shape_a", "shape_b"]]
    folds = StratifiedKFold(2, shuffle=True, random_state=4)
    means = {}
    for C in np.logspace(-2, 3, 11):
        model = make_pipeline(StandardScaler(), MKLClassifier([Linear()], C=C))
        means[C] = cross_val_score(model, X, table["kind"], cv=folds).mean()
    best = max(means, key=means.get)
    assert min(means) < best < max(means)
    assert pipeline.training_["price"]["name"] == "C"
    assert pipeline.training_["price"]["value"] == pytest.approx(best)
    assert pipeline.training_["score"]["mean"] == pytest.approx(means[best])
    share = table["kind"].value_counts(normalize=True).max()
    assert pipeline.training_["score"]["baseline"] == pytest.approx(share, abs=0.02)
    assert f"{100 * means[best]:.1f} %" in said.out


@pytest.mark.parametrize("suffix", [".tsv", ".parquet", ".npz", ".semicolons"])
def test_other_files_give_the_same_model(capsys, tmp_path, plain, suffix):
    table = flowers()
    path = tmp_path / f"other{suffix}"
    if suffix == ".tsv":
        table.to_csv(path, sep="\t", index=False)
    elif suffix == ".parquet":
        table.to_parquet(path)
    elif suffix == ".npz":
        names = ["shape_a", "shape_b", "noise_a", "noise_b"]
        labels = {name: table[name].to_numpy(dtype=str) for name in ("colour", "kind")}
        np.savez(path, X=table[names].to_numpy(), feature_names=np.array(names), **labels)
    else:
        path = tmp_path / "semicolons.csv"
        table.to_csv(path, sep=";", index=False)
    other, _ = fitted(capsys, tmp_path, path, "--target", "kind", *PLAIN)
    np.testing.assert_allclose(
        other.decision_function(table), plain.decision_function(table), atol=1e-6
    )


def test_an_archive_with_an_array_a_view_becomes_views(capsys, tmp_path):
    table = flowers()
    path = tmp_path / "views.npz"
    shape, noise = (
        table[["shape_a", "shape_b"]].to_numpy(),
        table[["noise_a", "noise_b"]].to_numpy(),
    )
    np.savez(path, shape=shape, noise=noise, y=(table["kind"] == "rose").to_numpy())
    pipeline, _ = fitted(capsys, tmp_path, path, "--target", "y", *PLAIN)
    assert list(pipeline.training_["views"]) == ["shape", "noise"]
    assert pipeline.training_["columns"] == ["shape_0", "shape_1", "noise_0", "noise_1"]


def test_regression_is_guessed_and_its_price_follows_the_scale(capsys, tmp_path):
    table = curve(n=40)
    path = write(table, tmp_path / "curve.csv")
    pipeline, said = fitted(capsys, tmp_path, path, "--target", "y", "--folds", "3", "--norm", "1")
    assert pipeline.training_["task"] == "regression"
    model = pipeline.named_steps["model"]
    scale = np.std(table["y"])
    assert model.epsilon == pytest.approx(0.1 * scale)
    power = 2 * np.log10(model.C / scale)  # two values a decade
    assert power == pytest.approx(round(power), abs=5e-3)
    assert pipeline.training_["score"]["mean"] > 0.9
    assert "RMS" in said.out


@pytest.mark.parametrize(
    ("values", "task", "wanted"),
    [
        ([1, 2] * 30, None, "classification"),
        ([1, 2] * 30, "regression", "regression"),
        (np.arange(60) / 7, None, "regression"),
        (np.arange(60), None, "regression"),
        (["a", "b"] * 30, None, "classification"),
        ([True, False] * 30, None, "classification"),
    ],
    ids=[
        "few whole numbers",
        "overridden",
        "fractions",
        "many whole numbers",
        "texts",
        "truth values",
    ],
)
def test_the_task_is_guessed_from_the_target(capsys, tmp_path, values, task, wanted):
    table = flowers().drop(columns=["kind", "colour"]).assign(target=values)
    path = write(table, tmp_path / "t.csv")
    asked = () if task is None else ("--task", task)
    pipeline, _ = fitted(
        capsys, tmp_path, path, "--target", "target", "--view", "s=shape_*:linear", *PLAIN, *asked
    )
    assert pipeline.training_["task"] == wanted


def test_one_class(capsys, tmp_path):
    table = flowers(n=100)
    path = write(table, tmp_path / "t.csv")
    pipeline, said = fitted(
        capsys, tmp_path, path, "--task", "one-class", "--nu", "0.2", "--view", "s=shape_*:gauss(2)"
    )
    rejected = np.mean(pipeline.predict(table) == -1)
    assert rejected <= 0.2 + 1e-9
    assert "share accepted" in said.out


@pytest.mark.parametrize("method", ["localized", "bilinear", "discriminant", "rmkl"])
def test_methods(capsys, tmp_path, method):
    table = flowers(n=30)
    path = write(table, tmp_path / "t.csv")
    views = ("--view", "s=shape_*:linear+gauss(2)", "--view", "n=noise_*:linear", "--folds", "2")
    price = () if method == "discriminant" else ("--C", "2")
    report = ("--report", tmp_path / "r.html") if method in ("localized", "rmkl") else ()
    pipeline, said = fitted(
        capsys, tmp_path, path, "--target", "kind", "--method", method, *views, *price, *report
    )
    assert pipeline.training_["method"] == method
    assert pipeline.training_["score"]["mean"] > 0.8
    assert (pipeline.training_["gates"] is not None) == (method == "localized")
    model = pipeline.named_steps["model"]
    assert type(model).__name__ == f"{'' if method == 'rmkl' else method.capitalize()}MKLClassifier"
    assert hasattr(model, "predict_proba") == (method in ("localized", "discriminant"))
    if report:
        text = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert ("response surface" in text) == (method == "rmkl")
        assert ("gate, 10 %" in text) == (method == "localized")
    if method == "rmkl":
        assert len(model.penalties) == 3
        assert model.tol == MKLClassifier().tol
    assert "Kernels" in said.out


def test_sequences_are_recognised_and_told_apart(capsys, tmp_path):
    path = write(strings(), tmp_path / "dna.csv")
    pipeline, _ = fitted(capsys, tmp_path, path, "--target", "motif", "--C", "10", "--folds", "2")
    assert pipeline.named_steps["model"].kernel_names_ == ["dna:spectrum(3)"]
    assert pipeline.training_["score"]["mean"] > 0.8
    wd, _ = fitted(
        capsys, tmp_path, path, "--target", "motif", "--view", "d=dna:wd(4)+spectrum(2)", *PLAIN
    )
    assert wd.named_steps["model"].kernel_names_ == ["d:wd(4)", "d:spectrum(2)"]


def test_numbers_and_sequences_together(capsys, tmp_path):
    table = strings().assign(length=np.arange(40.0), weight=np.random.RandomState(0).randn(40))
    path = write(table, tmp_path / "t.csv")
    pipeline, _ = fitted(capsys, tmp_path, path, "--target", "motif", *PLAIN)
    assert set(pipeline.training_["views"]) == {"all", "dna"}
    assert set(pipeline.predict(table)) <= {"yes", "no"}


def test_a_cost_makes_a_view_dearer(capsys, tmp_path, train):
    common = (
        train,
        "--target",
        "kind",
        "--view",
        "s=shape_*:linear",
        "--view",
        "n=noise_*:linear",
        *PLAIN,
    )
    plain, _ = fitted(capsys, tmp_path, *common)
    dear, _ = fitted(capsys, tmp_path, *common, "--cost", "s=5", "--cost", "n:linear=2")
    assert dear.named_steps["model"].penalties == [5.0, 2.0]
    assert dear.training_["costs"] == [5.0, 2.0]
    weights = dear.named_steps["model"].weights_ * np.array([25, 4])  # Σ d² η = 1
    assert weights.sum() == pytest.approx(1)
    assert plain.named_steps["model"].weights_.sum() == pytest.approx(1)


def test_held_out_rows_are_not_learned_from(capsys, tmp_path, train):
    pipeline, said = fitted(
        capsys, tmp_path, train, "--target", "kind", "--drop", "colour", *QUICK, "--test", "0.25"
    )
    assert pipeline.training_["rows"] == 45
    assert pipeline.named_steps["prepare"].named_transformers_["numbers"].n_samples_seen_ == 45
    assert re.search(
        r"accuracy on the test rows\D+\d+\.\d % ± \d+\.\d % \(standard error; 15 rows\)", said.out
    )
    assert "colour" not in pipeline.training_["columns"]


def test_the_same_seed_gives_the_same_model(capsys, tmp_path, train, plain):
    again, _ = fitted(capsys, tmp_path, train, "--target", "kind", *PLAIN)
    np.testing.assert_array_equal(
        plain.named_steps["model"].dual_coef_, again.named_steps["model"].dual_coef_
    )


def test_columns_that_number_the_rows_and_free_text_are_left_out_with_a_note(capsys, tmp_path):
    remarks = [f"seen on day {i}, by hand" for i in range(60)]
    path = write(flowers().assign(id=range(60), remark=remarks), tmp_path / "t.csv")
    pipeline, said = fitted(capsys, tmp_path, path, "--target", "kind", *PLAIN)
    assert not {"id", "remark"} & set(pipeline.training_["columns"])
    assert "'id' is left out" in said.err
    assert "'remark' is left out" in said.err


def test_a_gap_that_is_not_met_is_one_line_on_stderr(capsys, tmp_path, train):
    views = ("s=shape_*:linear+gauss(1)", "n=noise_*:gauss(1)")
    request = FitRequest(
        train, "kind", views=views, C=1.0, norm=1.0, method="mkl", task="classification"
    )
    training = read_training_table(replace(request, output=tmp_path / "m.skops"))
    # Weights of a norm that is given are learned: equal ones, which a search may choose, need no
    # iterations.
    pipeline = make_pipeline(training).set_params(model__max_iter=1, model__tol=1e-12)
    publish(learn(training, pipeline, make_splitter(training), lambda what, done: None))
    lines = [line for line in capsys.readouterr().err.splitlines() if "duality gap" in line]
    assert len(lines) == 1
    assert lines[0].startswith("kernelmosaic: MKLClassifier stopped at")


def test_seconds_in_all_are_those_of_the_whole_command(capsys, tmp_path, train):
    began = {"started": perf_counter() - 100.0, "output": tmp_path / "m.skops"}
    publish(
        train_table(FitRequest(train, "kind", views=("s=shape_*:linear",), C=1.0, folds=0, **began))
    )
    out = capsys.readouterr().out
    fits, whole = (
        float(re.search(rf"{name}\D+([\d.]+)", out)[1]) for name in ("of the fits", "in all")
    )
    assert fits < 100.0 <= whole


def test_the_types_of_a_parquet_file(capsys, tmp_path):
    table = flowers()
    typed = table.assign(
        colour=table["colour"].astype("category"),
        shape_a=(10 * table["shape_a"]).round().astype("Int64"),
        on=pd.date_range("2020-01-01", periods=60),
        wet=table["noise_b"] > 0,
    )
    typed.to_parquet(tmp_path / "t.parquet")
    pipeline, said = fitted(capsys, tmp_path, tmp_path / "t.parquet", "--target", "kind", *PLAIN)
    plan = pipeline.training_["plan"]
    assert list(plan["numbers"]) == ["shape_a", "shape_b", "noise_a", "noise_b", "wet"]
    assert plan["categories"] == {"colour": ["blue", "red"]}
    assert "'on' is left out" in said.err


# Matrices -----------------------------------------------------------------------------------------


def gram(table, columns):
    X = table[columns].to_numpy()
    return X @ X.T


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".named.csv"])
def test_a_kernel_matrix_gives_the_model_of_its_features(capsys, tmp_path, train, suffix):
    table = flowers()
    K = gram(table, ["shape_a", "shape_b"])
    path = tmp_path / f"K{suffix}"
    if suffix == ".npy":
        np.save(path, K)
    elif suffix == ".npz":
        np.savez(path, other=np.eye(3), mine=K)
    elif suffix == ".csv":
        np.savetxt(path, K, delimiter=",", fmt="%.17g")
    else:
        names = [f"s{i}" for i in range(len(K))]
        pd.DataFrame(K, index=names, columns=names).to_csv(path)
    pipeline, _ = fitted(
        capsys, tmp_path, train, "--target", "kind", "--kernel", f"mine={path}", *PLAIN
    )
    model = pipeline.named_steps["model"]
    reference = MKLClassifier([Linear()], C=1.0).fit(
        table[["shape_a", "shape_b"]].to_numpy(), table["kind"]
    )
    assert model.kernel_names_ == ["mine"]
    assert model.objective_ == pytest.approx(reference.objective_, rel=1e-3)


def test_a_matrix_of_more_samples_needs_row_numbers(capsys, tmp_path):
    table = flowers(n=60).assign(sample=range(60))
    np.save(tmp_path / "K.npy", gram(table, ["shape_a", "shape_b"]))
    some = write(table.iloc[10:50], tmp_path / "some.csv")
    arguments = (some, "--target", "kind", "--kernel", f"k={tmp_path / 'K.npy'}", *PLAIN)
    pipeline, _ = fitted(capsys, tmp_path, *arguments, "--rows", "sample")
    right = np.mean(pipeline.predict(table[["sample"]]) == table["kind"])
    assert right > 0.85
    from tests.cli.tables import run

    assert "--rows" in run(capsys, "fit", *arguments).error


# Outside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colours", [None, "1"], ids=["plain", "FORCE_COLOR"])
def test_no_bar_without_a_terminal(capsys, monkeypatch, colours):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if colours is not None:
        monkeypatch.setenv("FORCE_COLOR", colours)
    with progress(2, clock=iter([0.0, 4.0, 12.0]).__next__) as advance:
        advance("fold 1", 1)
        advance("fold 2", 2)
    assert (
        capsys.readouterr().err == "kernelmosaic: fold 2: 2 of 2 steps after 12 s, about 0 s left\n"
    )


def test_from_the_shell(capsys, tmp_path, train):
    said = done(
        capsys,
        "fit",
        train,
        "--target",
        "kind",
        "--view",
        "s=shape_*:linear",
        *QUICK,
        "-o",
        tmp_path / "model.skops",
    )
    # No bar where nobody watches; a machine so slow that this takes ten seconds says how far it is.
    view, unused = (
        line for line in said.err.splitlines() if not re.search(r": \d+ of \d+ steps after ", line)
    )
    assert view == "kernelmosaic: view s: 2 columns (shape_a, shape_b); linear"
    assert unused.startswith("kernelmosaic: 3 columns are not used: noise_a, noise_b, colour.")
    assert (tmp_path / "model.skops").is_file()
    # A process of its own: how it ends, and where it says why.
    source = os.pathsep.join(
        [str(Path(__file__).parents[2] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    lost = subprocess.run(
        [sys.executable, "-m", "kernelmosaic", "fit", "nowhere.csv", "--target", "kind"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": source, "PYTHONWARNINGS": "ignore", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (lost.returncode, lost.stdout) == (2, "")
    assert lost.stderr.splitlines() == [
        "kernelmosaic: nowhere.csv: there is no such file; give a table."
    ]
