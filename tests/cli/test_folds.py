"""Kernels and solutions shared by the fits of a fold: the same answers as without."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from tests.cli.tables import curve, done, flowers, strings, write

from kernelmosaic.cli.fit import Columns, Request, make_pipeline, make_splitter, read_training_table, train
from kernelmosaic.cli.methods import METHODS, FitRequest, check_method, make_estimator
from kernelmosaic.gram.stack import StoredStack

PRICES = (0.1, 10.0)


class Case:
    """A table read as ``kernelmosaic fit`` reads it, and its cross-validation."""

    def __init__(self, folder, table, target, method="mkl", task="classification", views=(), kernels=(), jobs=1):
        path = write(table, Path(folder) / "table.csv")
        self.settings = FitRequest(method, task, folds=3, jobs=jobs)
        columns = Columns(target, tuple(views), tuple(kernels))
        self.material = read_training_table(Request(path, columns, self.settings, 0.0, path, None))
        self.table, self.y = self.material.table, self.material.y
        self.splitter = make_splitter(self.settings, self.y)
        self.folds = list(self.splitter.split(self.y, self.y))

    def curve(self, prices=PRICES):
        """What the command line's cross-validation finds."""
        method = replace(check_method(self.settings), grid=tuple(prices))
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(METHODS, self.settings.method, method)
            patch.setattr("kernelmosaic.cli.fit._LOOSE_ON_PATHS", 0.0)  # as exactly as whole fits
            pipeline = make_pipeline(self.settings, method, self.material, self.splitter)
            return train(pipeline, method, self.settings, self.table, self.y, self.splitter, lambda what, n: None).curve

    def naive(self, price):
        """Every row's prediction by a whole pipeline fitted to the other parts, one fit after the other."""
        scale = np.std(self.y) if self.settings.task == "regression" else 1.0
        plain = make_estimator(self.settings, self.material.kernels, self.material.plan, scale, [price])
        if self.settings.method != "localized":
            plain.set_params(tol=1e-3)
        predictions, self.margins = np.empty_like(self.y), np.full(len(self.y), np.inf)
        for rows, held in self.folds:
            model = Pipeline([*self.material.plan.steps(), ("model", clone(plain))])
            model.fit(self.table.iloc[rows], None if self.settings.task == "one-class" else self.y[rows])
            predictions[held] = model.predict(self.table.iloc[held])
            if self.settings.task == "classification":
                f = model.decision_function(self.table.iloc[held])
                ordered = np.sort(np.c_[f, -f] if f.ndim == 1 else f, axis=1)
                self.margins[held] = (ordered[:, -1] - ordered[:, -2]) / np.std(f)
        return predictions

    def assert_same_classes(self, point):
        """Equal classes; a sample on the boundary itself, to the accuracy of these fits, may fall on either side."""
        differ = point.predictions != self.naive(point.price)
        if self.settings.method == "localized":  # not convex: rounding may lead a fold to another local optimum
            assert np.mean(differ) <= 0.1
        else:
            assert np.all(self.margins[differ] < 2e-2)


def repeated(table):
    """The table with a good part of it a second and a third time, not all in the same fold."""
    return pd.concat([table, table.iloc[:20], table.iloc[10:15]], ignore_index=True)


CASES = {
    "mkl": (flowers(), "kind", "mkl", "classification", ("s=shape_*:linear+gauss", "n=noise_*:gauss(median)")),
    "guessed": (flowers(), "kind", "mkl", "classification"),
    "regression": (curve(), "y", "mkl", "regression"),
    "localized": (flowers(), "kind", "localized", "classification", ("s=shape_*:linear+gauss", "n=noise_*:linear")),
    "bilinear": (flowers(), "kind", "bilinear", "classification"),
    "discriminant": (flowers(), "kind", "discriminant", "classification"),
    "strings": (strings(), "motif", "mkl", "classification", ("d=dna:spectrum(3)+wd(3)",)),
    "repeated": (repeated(flowers()), "kind", "mkl", "classification", ("s=shape_*:linear+gauss",)),
    "repeated strings": (repeated(strings()), "motif", "mkl", "classification", ("d=dna:spectrum(2)",)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_answers_are_those_of_whole_fits(tmp_path, name):
    case = Case(tmp_path, *CASES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for point in case.curve():
            if case.settings.task == "regression":
                np.testing.assert_allclose(point.predictions, case.naive(point.price), atol=2e-2 * np.std(case.y))
            else:
                case.assert_same_classes(point)


def test_matrices_that_were_given_stay_beside_those_computed(tmp_path):
    table = flowers()
    X = table[["noise_a", "noise_b"]].to_numpy()
    np.save(tmp_path / "K.npy", np.exp(-((X[:, None] - X) ** 2).sum(-1)))
    case = Case(tmp_path, table, "kind", views=("s=shape_*:gauss",), kernels=(f"k={tmp_path / 'K.npy'}",))
    for point in case.curve():
        case.assert_same_classes(point)


def test_scales_and_widths_are_learned_without_the_held_out_part(tmp_path):
    case = Case(tmp_path, flowers(), "kind", views=("s=shape_*:gauss",))
    rows, held = case.folds[0]
    case.table.iloc[held[1:]] *= 1000.0  # what nobody may look at
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = case.curve()[0].predictions
    assert found[held[0]] == case.naive(PRICES[0])[held[0]]
    assert np.mean(found[rows] == case.y[rows]) < 1.0


def test_every_fold_computes_its_kernels_once(tmp_path, monkeypatch):
    made = []
    fill = StoredStack.of
    monkeypatch.setattr(StoredStack, "of", lambda *a, **k: made.append(a) or fill(*a, **k))
    Case(tmp_path, flowers(), "kind").curve([0.01, 0.1, 1.0, 10.0])
    assert len(made) == 3 + 1  # and once for the fit to all rows


def test_from_the_command_line_with_threads(capsys, tmp_path):
    path = write(flowers(), tmp_path / "t.csv")
    one, two = (
        done(capsys, "fit", path, "--target", "kind", "--folds", "3", "--jobs", jobs, "-o", tmp_path / "m.skops").out
        for jobs in (1, 2)
    )
    assert [line for line in one.splitlines() if "seconds" not in line] == [
        line for line in two.splitlines() if "seconds" not in line
    ]
