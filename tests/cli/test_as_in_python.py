"""The command line chooses and answers as the estimators do in Python, by their own defaults.

Choices are the same; weights and outputs are, to the tolerance of the fits, which differ in the
order of rounding.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.cli.tables import curve, done, write

from kernelmosaic import (
    MKLClassifierCV,
    MKLRegressor,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    MKLSurvivalCV,
    load,
)
from kernelmosaic.cli.fit import train_table
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.kernels import Linear
from kernelmosaic.model_selection import PathSearchCV


@pytest.fixture
def omics():
    """Two views of one hidden state, with scales of their own, that some patients lack; and their
    classes."""
    rng = np.random.RandomState(3)
    state = rng.normal(size=(40, 2))
    y = np.where(state[:, 0] + 0.7 * rng.normal(size=40) > 0, "case", "control")
    views = {}
    for name, n, factor, lost in (("mrna", 6, 1.0, (0, 33)), ("meth", 5, 100.0, range(5, 14))):
        values = factor * (state @ rng.normal(size=(2, n)) + rng.normal(size=(40, n)))
        values[list(lost)] = np.nan
        views[name] = pd.DataFrame(values, columns=[f"{name}{j}" for j in range(n)])
    return views, y


def by_command_line(capsys, folder, views, y, *options):
    """Write a table of patients and one of every view, fit, and return the pipeline, the table and
    what was printed."""
    ids = pd.Series([f"p{i}" for i in range(len(y))], name="id")
    train = write(pd.DataFrame({"id": ids, "y": y}), folder / "train.csv")
    files = [
        write(view.dropna().assign(id=ids), folder / f"{name}.csv") for name, view in views.items()
    ]
    given = [word for path in files for word in ("--view", path)]
    model = folder / "m.skops"
    said = done(capsys, "fit", train, "--target", "y", "--on", "id", *given, *options, "-o", model)
    joined = [view.add_prefix(f"{name}.") for name, view in views.items()]
    return load(model), pd.concat(joined, axis=1), said.out


def test_classes_of_views_some_of_which_are_missing(capsys, tmp_path, omics):
    views, y = omics
    pipeline, table, printed = by_command_line(
        capsys, tmp_path, views, y, "--method", "mkl", "--folds", "3"
    )
    model = MKLClassifierCV(cv=3).fit(views, y)
    noted = pipeline.training_
    assert noted["price"]["value"] == pytest.approx(model.C_, rel=1e-12)
    assert f"the best of {len(model.Cs_)} from" in printed
    rules = {
        1: "learned weights of norm 1",
        2: "learned weights of norm 2",
        "uniform": "equal weights",
    }
    assert noted["choice"].startswith(f"{rules[model.norm_]} {model.best_score_:.3f} ± ")
    assert noted["score"]["mean"] == pytest.approx(model.best_score_, abs=1e-12)
    assert noted["score"]["folds"] == len(model.scores_)
    np.testing.assert_allclose(pipeline[-1].weights_, model.weights_, atol=5e-3)
    np.testing.assert_allclose(
        pipeline.decision_function(table), model.decision_function(views), atol=5e-3
    )
    np.testing.assert_allclose(pipeline.predict_proba(table), model.predict_proba(views), atol=5e-3)


def test_ridge_of_the_same_views(capsys, tmp_path, omics):
    views, y = omics
    pipeline, table, _ = by_command_line(capsys, tmp_path, views, y)
    assert pipeline.training_["score"]["mean"] == pytest.approx(pipeline[-1].best_score_, abs=1e-12)
    model = MKLRidgeClassifierCV(random_state=0).fit(views, y)
    np.testing.assert_allclose(pipeline[-1].weights_, model.weights_, rtol=1e-2, atol=5e-3)
    # Folds are dealt by what samples hold, here columns of another scale: the calibration is
    # learned on other folds.
    np.testing.assert_allclose(
        pipeline.decision_function(table), model.decision_function(views), atol=0.05
    )
    n_samples = len(y)
    assert abs(pipeline[-1].best_score_ - model.best_score_) <= 2.0 / n_samples


def test_numbers(capsys, tmp_path):
    # Noise, lest every large C do equally well: a choice between equals rests on rounding.
    table = curve(n=24)
    X, y = table[["u", "v"]], table["y"] + 300 * np.random.RandomState(1).normal(size=24)
    pipeline, joined, _ = by_command_line(
        capsys, tmp_path, {"x": X}, y, "--method", "mkl", "--folds", "2"
    )
    model = MKLRegressorCV(cv=2).fit(X, y)
    assert pipeline.training_["price"]["value"] == pytest.approx(model.C_, rel=1e-12)
    assert pipeline.training_["score"]["mean"] == pytest.approx(model.best_score_, abs=1e-3)
    np.testing.assert_allclose(pipeline[-1].weights_, model.weights_, atol=5e-3)
    np.testing.assert_allclose(pipeline.predict(joined), model.predict(X), atol=5e-3 * np.std(y))


def test_times(capsys, tmp_path):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.normal(size=(36, 2)), columns=["u", "v"])
    time, limit = np.exp(X["u"] + 0.5 * rng.normal(size=36)), rng.exponential(3, 36)
    y = np.column_stack([time <= limit, np.minimum(time, limit)])
    path = write(X.assign(event=y[:, 0], time=y[:, 1]), tmp_path / "t.csv")
    options = ("--target", "time", "--event", "event", "--folds", "2", "-o", tmp_path / "m.skops")
    done(capsys, "fit", path, *options)
    pipeline, model = load(tmp_path / "m.skops"), MKLSurvivalCV(cv=2).fit(X, y)
    assert pipeline.training_["price"]["value"] == pytest.approx(model.C_, rel=1e-12)
    np.testing.assert_allclose(pipeline[-1].weights_, model.weights_, atol=5e-3)
    np.testing.assert_allclose(pipeline.predict(X), model.predict(X), atol=5e-3)


def test_the_other_methods_are_searched_as_by_the_search(capsys, tmp_path, omics):
    views, y = omics
    kept = views["mrna"].notna().all(axis=1)
    views, y = {"mrna": views["mrna"][kept].reset_index(drop=True)}, y[kept]
    pipeline, table, _ = by_command_line(capsys, tmp_path, views, y, "--method", "discriminant")
    model = clone_of(pipeline[-1])
    search = PathSearchCV(model).fit(table.to_numpy(), y)
    assert pipeline.training_["score"]["folds"] == len(search.scores_) == 5
    assert pipeline.training_["price"]["value"] == pytest.approx(search.C_, rel=1e-12)
    np.testing.assert_allclose(pipeline[-1].weights_, search.best_estimator_.weights_, atol=5e-3)


def clone_of(model):
    """Return the estimator, with the parameter that is searched at its default and not fitted."""
    return type(model)(**model.get_params(deep=False) | {"alpha": type(model)().alpha})


def test_a_seed_shuffles_the_parts(capsys, tmp_path):
    table = curve().sort_values("y")
    path = write(table, tmp_path / "t.csv")
    options = (
        "--target",
        "y",
        "--view",
        "all=u,v:linear+gauss",
        "--C",
        "1000",
        "-o",
        tmp_path / "m.skops",
    )
    said = done(capsys, "fit", path, *options)
    assert "the rows are sorted by the target" in said.err
    ordered = load(tmp_path / "m.skops").training_["score"]["mean"]
    said = done(capsys, "fit", path, *options, "--seed", "0")
    assert "sorted" not in said.err
    assert load(tmp_path / "m.skops").training_["score"]["mean"] > ordered + 0.1


def test_where_equal_weights_score_best_the_learned_ones_are_kept_for_the_report(tmp_path):
    rng = np.random.RandomState(4)
    X = pd.DataFrame(rng.standard_normal((60, 6)), columns=["a1", "a2", "b1", "b2", "c1", "c2"])
    y = np.where(X.sum(axis=1) + rng.standard_normal(60) > 0, "yes", "no")
    path = write(X.assign(y=y), tmp_path / "t.csv")
    trained = train_table(
        FitRequest(path, "y", views=tuple(f"{v}={v}*:linear" for v in "abc"), method="mkl", folds=3)
    )
    model = MKLClassifierCV([(v, Linear(), [f"{v}1", f"{v}2"]) for v in "abc"], cv=3).fit(X, y)
    assert trained.path.norm == model.norm_ == "uniform"
    assert list(trained.path.learned_weights) == [1, 2, "uniform"]
    for norm, weights in trained.path.learned_weights.items():
        np.testing.assert_allclose(trained.path.scores_by_norm[norm], model.scores_by_norm_[norm])
        np.testing.assert_allclose(weights, model.weights_by_norm_[norm], atol=5e-3)


def test_the_rule_of_the_choice(capsys, tmp_path):
    """Of noisy numbers the smoothest C within one standard error is smaller than the best."""
    table = curve(n=36)
    X, y = table[["u", "v"]], table["y"] + 1500 * np.random.RandomState(0).normal(size=36)
    rule = ("--rule", "one-standard-error", "--folds", "3")
    pipeline, _, printed = by_command_line(capsys, tmp_path, {"x": X}, y, *rule, "--norm", "1")
    model = PathSearchCV(
        MKLRegressor(epsilon=0.1 * np.std(y)), rule="one_standard_error", cv=3, refit=False
    ).fit(X, y)
    best = model.Cs_[model.scores_.mean(axis=0).argmax()]
    assert pipeline.training_["price"]["value"] == pytest.approx(model.C_, rel=1e-12)
    assert best > model.C_
    assert "smoothest within one standard error of the best, of 11" in " ".join(
        printed.replace("│", " ").split()
    )
