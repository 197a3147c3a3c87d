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
from tests.sweeps import thinned

from kernelmosaic.cli.fit import make_pipeline, make_splitter, train
from kernelmosaic.cli.methods import make_estimator
from kernelmosaic.cli.requests import FitRequest
from kernelmosaic.cli.training_table import read_training_table
from kernelmosaic.kernels import Kernel


class Case:
    """A table read as ``kernelmosaic fit`` reads it, and its cross-validation."""

    def __init__(
        self,
        folder,
        table,
        target,
        method="mkl",
        task="classification",
        views=(),
        kernels=(),
        jobs=1,
    ):
        path = write(table, Path(folder) / "table.csv")
        asked = {"views": tuple(views), "kernels": tuple(kernels), "method": method, "task": task}
        asked |= {"norm": 1.0} if method == "mkl" else {}  # of which the naive fits are
        self.request = FitRequest(path, target, **asked, folds=3, jobs=jobs)
        self.training = read_training_table(self.request)
        self.table, self.y = self.training.table, self.training.target.y
        self.splitter = make_splitter(self.training)
        self.folds = list(self.splitter.split(self.y, self.y))

    def curve(self, C=None):
        """Every C of the command line's path, or one alone, with the prediction of every row while
        it was held out."""
        training = replace(self.training, request=replace(self.training.request, C=C))
        path = train(training, make_pipeline(training), self.splitter, lambda what, n: None).path
        choices = [replace(path.choice, value_number=i) for i in range(len(path.Cs))]
        return [(choice.C, choice.predictions_held_out()) for choice in choices]

    def naive(self, C):
        """Every row's prediction by a whole pipeline fitted to the other parts, one fit after the
        other."""
        scale = np.std(self.y) if self.request.task == "regression" else 1.0
        plain = make_estimator(
            replace(self.request, C=C), self.training.kernels, self.training.plan, scale
        )
        if self.request.method != "localized":
            plain.set_params(tol=1e-3)
        predictions, self.margins = np.empty_like(self.y), np.full(len(self.y), np.inf)
        for rows, held in self.folds:
            model = Pipeline([*self.training.plan.steps(), ("model", clone(plain))])
            model.fit(
                self.table.iloc[rows], None if self.request.task == "one-class" else self.y[rows]
            )
            predictions[held] = model.predict(self.table.iloc[held])
            if self.request.task == "classification":
                f = model.decision_function(self.table.iloc[held])
                ordered = np.sort(np.c_[f, -f] if f.ndim == 1 else f, axis=1)
                self.margins[held] = (ordered[:, -1] - ordered[:, -2]) / np.std(f)
        return predictions

    def assert_same_classes(self, C, predictions):
        """Equal classes; a sample on the boundary itself, to the accuracy of these fits, may fall
        on either side."""
        differ = predictions != self.naive(C)
        if (
            self.request.method == "localized"
        ):  # not convex: rounding may lead a fold to another local optimum
            assert np.mean(differ) <= 0.1
        else:
            assert np.all(self.margins[differ] < 2e-2)


def repeated(table):
    """The table with a good part of it a second and a third time, not all in the same fold."""
    return pd.concat([table, table.iloc[:20], table.iloc[10:15]], ignore_index=True)


CASES = {
    "mkl": (
        flowers(40),
        "kind",
        "mkl",
        "classification",
        ("s=shape_*:linear+gauss", "n=noise_*:gauss(median)"),
    ),
    "guessed": (flowers(40), "kind", "mkl", "classification"),
    "regression": (curve(40), "y", "mkl", "regression"),
    "localized": (
        flowers(40),
        "kind",
        "localized",
        "classification",
        ("s=shape_*:linear+gauss", "n=noise_*:linear"),
    ),
    "bilinear": (flowers(40), "kind", "bilinear", "classification"),
    "discriminant": (flowers(40), "kind", "discriminant", "classification"),
    "strings": (strings(), "motif", "mkl", "classification", ("d=dna:spectrum(3)+wd(3)",)),
    "repeated": (
        repeated(flowers(40)),
        "kind",
        "mkl",
        "classification",
        ("s=shape_*:linear+gauss",),
    ),
    "repeated strings": (
        repeated(strings()),
        "motif",
        "mkl",
        "classification",
        ("d=dna:spectrum(2)",),
    ),
}


#: The kernels that are guessed and rows that are repeated have one of numbers and one of strings
#: each.
@pytest.mark.parametrize("name", thinned(CASES, set(CASES) - {"guessed", "repeated strings"}))
def test_the_answers_are_those_of_whole_fits(tmp_path, name):
    case = Case(tmp_path, *CASES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Gates that are not convex end elsewhere at the end of a long path.
        points = case.curve()[5:16:10] if name != "localized" else case.curve(1.0)
        for C, predictions in points:
            if case.request.task == "regression":
                np.testing.assert_allclose(predictions, case.naive(C), atol=2e-2 * np.std(case.y))
            else:
                case.assert_same_classes(C, predictions)


def test_matrices_that_were_given_stay_beside_those_computed(tmp_path):
    table = flowers()
    X = table[["noise_a", "noise_b"]].to_numpy()
    np.save(tmp_path / "K.npy", np.exp(-((X[:, None] - X) ** 2).sum(-1)))
    case = Case(
        tmp_path, table, "kind", views=("s=shape_*:gauss",), kernels=(f"k={tmp_path / 'K.npy'}",)
    )
    for point in case.curve()[5:16:10]:
        case.assert_same_classes(*point)


def test_scales_and_widths_are_learned_without_the_held_out_part(tmp_path):
    case = Case(tmp_path, flowers(), "kind", views=("s=shape_*:gauss",))
    rows, held = case.folds[0]
    case.table.iloc[held[1:]] *= 1000.0  # what nobody may look at
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = case.curve(0.1)[0][1]
    assert found[held[0]] == case.naive(0.1)[held[0]]
    assert np.mean(found[rows] == case.y[rows]) < 1.0


class Counted(Kernel):
    """Inner products; counts how often they are computed."""

    calls = 0

    def _block(self, X, Y):
        Counted.calls += 1
        return X @ Y.T

    def _diagonal(self, X):
        return np.sum(X**2, axis=1)


def test_every_fold_computes_its_kernels_once(tmp_path):
    counts = []
    for C in (1.0, None):
        case = Case(tmp_path, flowers(), "kind")
        case.training.kernels[:] = [("counted", Counted(), [0, 1])]
        Counted.calls = 0
        case.curve(C)
        counts.append(Counted.calls)
    assert counts[0] == counts[1] > 3


def test_from_the_command_line_with_threads(capsys, tmp_path):
    path = write(flowers(40), tmp_path / "t.csv")
    options = ("--target", "kind", "--view", "s=shape_*:linear+gauss", "--folds", "3")
    one, two = (
        done(capsys, "fit", path, *options, "--jobs", jobs, "-o", tmp_path / "m.skops").out
        for jobs in (1, 2)
    )
    assert [line for line in one.splitlines() if "seconds" not in line] == [
        line for line in two.splitlines() if "seconds" not in line
    ]
