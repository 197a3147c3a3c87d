"""Survival times, several labels per row, and probabilities of classes on the command line."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler
from tests.cli.tables import QUICK, curve, done, flowers, run, write

from kernelmosaic import (
    DiscriminantMKLClassifier,
    MKLClassifierCV,
    MKLSurvival,
    MKLSurvivalCV,
    load,
)
from kernelmosaic.cli.fit import publish, train_table
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.metrics import StepFunction, integrated_brier_score, kaplan_meier
from kernelmosaic.model_selection import PathSearchCV

pytestmark = pytest.mark.usefixtures("fixed_margins")


def patients(n=80, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 2)
    time, limit = np.exp(X[:, 0] + 0.2 * rng.randn(n)), rng.exponential(3, n)
    table = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "days": np.minimum(time, limit)})
    return table.assign(died=(time <= limit).astype(int))


def songs(n=80, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3)
    table = pd.DataFrame(X, columns=["u", "v", "w"])
    return table.assign(
        happy=(X[:, 0] > 0).astype(int), loud=X[:, 1] + X[:, 2] > 0.5, sad=(X[:, 2] > 0).astype(int)
    )


# Survival -----------------------------------------------------------------------------------------

SURVIVAL = ("--target", "days", "--event", "died")


def test_hazards_are_what_python_gives(capsys, tmp_path):
    table = patients(60)
    path = write(table, tmp_path / "t.csv")
    arguments = (*SURVIVAL, "--view", "a=u,v:linear+gauss", "--folds", "2")
    said = done(
        capsys, "fit", path, *arguments, "-o", tmp_path / "m.skops", "--report", tmp_path / "r.html"
    )
    assert "mkl, survival (cox)" in said.out
    assert "by partial likelihood" in re.sub(r"[\s│]+", " ", said.out)
    pipeline = load(tmp_path / "m.skops")
    X, y = table[["u", "v"]], table[["died", "days"]].to_numpy()
    model = MKLSurvivalCV([Linear(), Gaussian()], cv=2).fit(X, y)
    assert pipeline.training_["price"]["value"] == model.C_
    np.testing.assert_allclose(pipeline.predict(table), model.predict(X), atol=5e-3)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    ours, plain = (
        float(figure)
        for figure in re.search(r"lives on, is ([\d.]+); .* Meier's, has ([\d.]+)\.", page).groups()
    )
    same = StepFunction(*kaplan_meier(y[:, 1], y[:, 0]))
    assert plain == pytest.approx(integrated_brier_score(y, y, [same] * len(y)), abs=5e-4)
    assert 0 < ours < 0.5 * plain
    # Hazards give every row a coefficient; C is chosen by what the last column has.
    assert "support vectors" not in said.out + page
    assert '<th scope="col" class="n">partial likelihood</th>' in page
    groups = re.findall(r"(high|middle|low) risk: (\d+) events in (\d+) rows", page)
    assert [(name, int(n)) for name, _, n in groups] == [("high", 20), ("middle", 20), ("low", 20)]
    assert sum(int(events) for _, events, _ in groups) == y[:, 0].sum()
    assert int(groups[0][1]) > int(groups[2][1])
    said = done(capsys, "predict", tmp_path / "m.skops", path, "--scores", "-o", tmp_path / "o.csv")
    assert f"concordance on column 'days': {model.score(X, y):.3f}" in said.err
    out = pd.read_csv(tmp_path / "o.csv")
    np.testing.assert_allclose(out["decision"], pipeline.predict(table), rtol=1e-6)
    # The prediction is the median: the first time after which at most half live on.
    curves = pipeline[-1].predict_survival_function(pipeline[:-1].transform(table))
    medians = [next((t for t in one.x if one(t) <= 0.5), np.inf) for one in curves]
    np.testing.assert_allclose(out["prediction"], medians, rtol=1e-6)
    assert np.isfinite(medians).mean() > 0.5
    done(
        capsys,
        "explain",
        tmp_path / "m.skops",
        path,
        "-o",
        tmp_path / "e.csv",
        "--report",
        tmp_path / "e.html",
    )
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "e.csv")["decision"], out["decision"], rtol=1e-5
    )
    assert "minus the logarithm of the hazard" in (tmp_path / "e.html").read_text(encoding="utf-8")


def test_survival_functions_are_those_of_rows_held_out(capsys, tmp_path):
    """On columns that say nothing, rows learned from seem to differ, and rows held out do not."""
    rng = np.random.RandomState(0)
    table = patients(60).assign(u=rng.randn(60), v=rng.randn(60))
    path = write(table, tmp_path / "t.csv")
    done(
        capsys,
        "fit",
        path,
        *SURVIVAL,
        "--view",
        "a=u,v:gauss",
        "--C",
        "100",
        "-o",
        tmp_path / "m.skops",
    )
    pipeline = load(tmp_path / "m.skops")
    X, y = pipeline[:-1].transform(table), table[["died", "days"]].to_numpy()
    own = (
        MKLSurvival([Gaussian()], loss="cox", C=100.0)
        .fit(X, y)
        .predict_survival_function(X, return_array=True)
    )
    held = pipeline[-1].predict_survival_function(X, return_array=True)
    assert held.std(axis=0).mean() < 0.5 * own.std(axis=0).mean()


@pytest.mark.parametrize(
    ("given", "loss", "epsilon"),
    [((), "cox", 0.1), (("--loss", "rank"), "rank", 0.1), (("--epsilon", "0.2"), "censored", 0.2)],
)
def test_the_loss_of_survival(capsys, tmp_path, hide, given, loss, epsilon):
    if loss != "rank":  # the pictures of the others are drawn by the tests of what Python gives
        hide("matplotlib")
    path = write(patients(40), tmp_path / "t.csv")
    view = ("--view", "a=u,v:linear", "--folds", "0", "--C", "0.1", "--test", "0.25")
    said = done(
        capsys,
        "fit",
        path,
        *SURVIVAL,
        *view,
        *given,
        "-o",
        tmp_path / "m.skops",
        "--report",
        tmp_path / "r",
    )
    assert f"survival ({loss})" in said.out
    model = load(tmp_path / "m.skops")[-1]
    assert (model.loss, model.epsilon) == (loss, epsilon)
    done(capsys, "predict", tmp_path / "m.skops", path, "-o", tmp_path / "o.csv")
    assert pd.read_csv(tmp_path / "o.csv")["prediction"].gt(0).all()


def test_survival_is_what_python_gives(capsys, tmp_path):
    table = patients(40)
    path = write(table, tmp_path / "t.csv")
    arguments = (*SURVIVAL, "--loss", "censored", "--view", "a=u,v:linear+gauss", "--folds", "2")
    said = done(
        capsys, "fit", path, *arguments, "-o", tmp_path / "m.skops", "--report", tmp_path / "r.html"
    )
    assert "concordance" in said.out
    pipeline = load(tmp_path / "m.skops")
    X, y = table[["u", "v"]], table[["died", "days"]].to_numpy()
    model = MKLSurvivalCV([Linear(), Gaussian()], loss="censored", cv=2).fit(X, y)
    assert pipeline.training_["price"]["value"] == model.C_
    assert pipeline.training_["score"]["mean"] == pytest.approx(model.best_score_, abs=0.01)
    np.testing.assert_allclose(pipeline.predict(table), model.predict(X), atol=5e-3)
    said = done(capsys, "predict", tmp_path / "m.skops", path, "--scores", "-o", tmp_path / "o.csv")
    assert "concordance on column 'days'" in said.err
    out = pd.read_csv(tmp_path / "o.csv")
    np.testing.assert_allclose(
        out["prediction"], np.exp(pipeline.predict(table)), rtol=1e-5
    )  # a time, in days
    done(capsys, "explain", tmp_path / "m.skops", path, "-o", tmp_path / "e.csv")
    np.testing.assert_allclose(
        np.exp(pd.read_csv(tmp_path / "e.csv")["decision"]), out["prediction"], rtol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        ({"died": 2}, SURVIVAL, "column 'died' holds '2'. Write 1 or true"),
        ({"died": 0}, SURVIVAL, "no event was observed"),
        ({"days": -1.0}, SURVIVAL, "the time -1. Times must not be negative"),
        ({"days": 0.0}, (*SURVIVAL, "--loss", "censored"), "the time 0. Times must be positive"),
        ({}, ("--target", "days", "--task", "survival"), "--event"),
        ({}, (*SURVIVAL, "--task", "regression"), "--event died: a regression has no events"),
        ({}, (*SURVIVAL, "--method", "bilinear"), "not survival; choose mkl"),
        ({}, (*SURVIVAL, "--proba"), "--proba"),
        ({}, (*SURVIVAL, "--loss", "cox", "--epsilon", "0.1"), "--loss cox has no epsilon"),
        (
            {},
            ("--target", "died", "--loss", "cox"),
            "--loss cox: the task must be survival, not classification",
        ),
        ({}, ("--target", "days", "--event", "dead"), "no column 'dead'"),
    ],
)
def test_survival_that_cannot_be_learned(capsys, tmp_path, change, arguments, words):
    path = write(patients().assign(**change), tmp_path / "t.csv")
    assert words in run(capsys, "fit", path, *arguments).error


# Labels -------------------------------------------------------------------------------------------


def test_several_labels_are_what_python_gives(capsys, tmp_path):
    table = songs(40)
    path = write(table, tmp_path / "t.csv")
    arguments = ("--target", "happy,loud,sad", "--view", "a=u,v,w:linear", "--folds", "3")
    said = done(
        capsys, "fit", path, *arguments, "-o", tmp_path / "m.skops", "--report", tmp_path / "r.html"
    )
    assert "discriminant, multi-label" in said.out
    assert "3: happy, loud, sad" in said.out
    assert "How well each label is predicted" in (tmp_path / "r.html").read_text(encoding="utf-8")
    X = StandardScaler().fit_transform(table[["u", "v", "w"]])
    y = table[["happy", "loud", "sad"]].to_numpy(dtype=int)
    model = PathSearchCV(DiscriminantMKLClassifier([Linear()]), cv=3).fit(X, y)
    said = done(
        capsys,
        "predict",
        tmp_path / "m.skops",
        path,
        "--proba",
        "--scores",
        "-o",
        tmp_path / "o.csv",
    )
    assert "share of rows with all labels right on column 'happy,loud,sad'" in said.err
    out = pd.read_csv(tmp_path / "o.csv")
    assert list(out)[:6] == [f"prediction[{n}]" for n in ("happy", "loud", "sad")] + [
        "p_happy",
        "p_loud",
        "p_sad",
    ]
    np.testing.assert_array_equal(out.iloc[:, :3], model.predict(X))
    np.testing.assert_allclose(out.iloc[:, 3:6], model.predict_proba(X), atol=1e-5)
    done(
        capsys,
        "explain",
        tmp_path / "m.skops",
        path,
        "-o",
        tmp_path / "e.csv",
        "--report",
        tmp_path / "e.html",
    )
    found = pd.read_csv(tmp_path / "e.csv")
    np.testing.assert_allclose(found["decision"], model.decision_function(X).ravel(), atol=1e-5)
    assert list(found["label"][:4]) == ["happy", "loud", "sad", "happy"]


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (
            {"loud": "very"},
            ("--target", "happy,loud"),
            "row 1 (and 79 more), column 'loud' holds 'very'",
        ),
        ({"sad": 1}, ("--target", "happy,sad"), "column 'sad': every row has the same value"),
        ({}, ("--target", "happy,lud"), "no column 'lud'; did you mean 'loud'?"),
        ({}, ("--target", "happy,loud", "--method", "mkl"), "not multi-label; choose discriminant"),
        ({}, ("--target", "happy,loud", "--task", "regression"), "a regression has one target"),
        ({}, ("--target", "happy", "--task", "multi-label"), "name several columns"),
    ],
)
def test_labels_that_cannot_be_learned(capsys, tmp_path, change, arguments, words):
    path = write(songs().assign(**change), tmp_path / "t.csv")
    assert words in run(capsys, "fit", path, *arguments).error


# Probabilities ------------------------------------------------------------------------------------


def test_probabilities_are_those_of_the_cross_validation(capsys, tmp_path):
    table = flowers(n=90)
    table["kind"] = np.where(table["noise_b"] > 0.5, "orchid", table["kind"])
    path = write(table, tmp_path / "t.csv")
    asked = {"C": 2.0, "folds": 3, "proba": True, "output": tmp_path / "m.skops"}
    request = FitRequest(path, "kind", views=("s=shape_a,shape_b,noise_b:gauss",), **asked)
    publish(train_table(request))
    done(capsys, "predict", tmp_path / "m.skops", path, "--proba", "-o", tmp_path / "o.csv")
    out = pd.read_csv(tmp_path / "o.csv")
    assert list(out) == ["prediction", "p_orchid", "p_rose", "p_tulip"]
    np.testing.assert_allclose(out.iloc[:, 1:].sum(axis=1), 1.0, atol=1e-6)
    X = StandardScaler().fit_transform(table[["shape_a", "shape_b", "noise_b"]])
    model = MKLClassifierCV([Gaussian()], Cs=[2.0], norms=(1,), cv=3).fit(X, table["kind"])
    np.testing.assert_allclose(out.iloc[:, 1:], model.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize(
    "arguments", [("--method", "bilinear"), ("--folds", "0"), ("--method", "rmkl")]
)
def test_methods_that_choose_no_price_know_them_if_asked_to(capsys, tmp_path, arguments):
    path = write(flowers(n=24), tmp_path / "t.csv")
    common = (
        "fit",
        path,
        "--target",
        "kind",
        "--view",
        "s=shape_*:linear+poly2",
        *QUICK,
        *arguments,
    )
    done(capsys, *common, "-o", tmp_path / "m.skops")
    assert "fit --proba" in run(capsys, "predict", tmp_path / "m.skops", path, "--proba").error
    done(capsys, *common, "--proba", "-o", tmp_path / "m.skops")
    lines = done(capsys, "predict", tmp_path / "m.skops", path, "--proba").out.splitlines()
    assert lines[0] == "prediction,p_rose,p_tulip"


def test_a_regression_knows_none(capsys, tmp_path):
    path = write(curve(), tmp_path / "t.csv")
    assert "--proba" in run(capsys, "fit", path, "--target", "y", "--proba").error


def test_parts_in_which_no_two_rows_can_be_compared(capsys, tmp_path):
    table = patients(n=30)
    order = np.argsort(-table["days"])
    table["died"] = 0
    table.loc[order[:2], "died"] = (
        1  # the last two of all: nobody is known to outlive either but one another
    )
    path = write(table, tmp_path / "t.csv")
    done(
        capsys,
        "fit",
        path,
        *SURVIVAL,
        "--view",
        "a=u,v:linear",
        "--folds",
        "2",
        "-o",
        tmp_path / "m.skops",
    )
    assert load(tmp_path / "m.skops").training_["score"]["mean"] == 0.5
