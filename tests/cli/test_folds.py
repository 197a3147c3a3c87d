"""Kernels shared by the fits of a fold: the same answers as without, and no more memory than allowed."""

from __future__ import annotations

import warnings
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from tests.cli.tables import curve, done, flowers, strings, write

from kernelmosaic.cli import fit as training
from kernelmosaic.cli.fit import Columns, Request, _pipeline, make_folds, read_material
from kernelmosaic.cli.methods import Wishes, check_method, price_name
from kernelmosaic.model_selection import folds as shared_folds
from kernelmosaic.model_selection.folds import is_shareable, shared_fold

PRICES = [0.1, 10.0]


class Case:
    """A table read as ``kernelmosaic fit`` reads it, and its cross-validation."""

    def __init__(self, folder, table, target, method="mkl", task="classification", views=(), kernels=(), jobs=1):
        path = write(table, Path(folder) / "table.csv")
        self.wishes = Wishes(method, task, folds=3, jobs=jobs)
        columns = Columns(target, tuple(views), tuple(kernels), None, ())
        material = read_material(Request(path, columns, self.wishes, 0.0, path, None))
        self.pipeline, _ = _pipeline(self.wishes, material)
        self.table, self.y = material.table, material.y
        self.parameter = f"model__{price_name(check_method(self.wishes), task)}"
        self.folds = make_folds(self.wishes, self.y)

    def curve(self, sample_C=PRICES):
        """What the command line's cross-validation finds; small tables stand in for those whose kernels take long."""
        arguments = (self.pipeline, self.parameter, sample_C, self.folds, self.wishes, self.table, self.y)
        return training._cross_validate(*arguments, lambda what, n: None, wide=1)

    def naive(self, price):
        """Every row's prediction by a whole pipeline fitted to the other parts, one fit after the other."""
        quick = {"model__n_init": 1} if self.wishes.method == "localized" else {"model__tol": 1e-2}
        predictions, self.margins = np.empty_like(self.y), np.full(len(self.y), np.inf)
        for rows, held in self.folds:
            model = clone(self.pipeline).set_params(**{self.parameter: price}, **quick)
            model.fit(self.table.iloc[rows], None if self.wishes.task == "one-class" else self.y[rows])
            predictions[held] = model.predict(self.table.iloc[held])
            if self.wishes.task == "classification":
                f = model.decision_function(self.table.iloc[held])
                ordered = np.sort(np.c_[f, -f] if f.ndim == 1 else f, axis=1)
                self.margins[held] = (ordered[:, -1] - ordered[:, -2]) / np.std(f)
        return predictions

    def assert_same_classes(self, point):
        """Equal classes; a sample on the boundary itself, to the accuracy of these fits, may fall on either side."""
        differ = point.predictions != self.naive(point.price)
        if self.wishes.method == "localized":  # not convex: rounding may lead a fold to another local optimum
            assert np.mean(differ) <= 0.05
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
def test_the_answers_are_those_of_whole_fits(tmp_path, monkeypatch, name):
    made = []
    monkeypatch.setattr(training, "shared_fold", lambda *a: made.append(shared_fold(*a)) or made[-1])
    case = Case(tmp_path, *CASES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for point in case.curve():
            if case.wishes.task == "regression":
                np.testing.assert_allclose(point.predictions, case.naive(point.price), atol=2e-2 * np.std(case.y))
            else:
                case.assert_same_classes(point)
    assert len(made) == 3  # one per fold, not one per fit


def test_matrices_that_were_given_stay_beside_those_computed(tmp_path):
    table = flowers()
    X = table[["noise_a", "noise_b"]].to_numpy()
    np.save(tmp_path / "K.npy", np.exp(-((X[:, None] - X) ** 2).sum(-1)))
    case = Case(tmp_path, table, "kind", views=("s=shape_*:gauss",), kernels=(f"k={tmp_path / 'K.npy'}",))
    fold = shared_fold(case.pipeline, case.table, *case.folds[0])
    ours, given = (kernel for _, kernel, _ in fold.pipeline[-1].kernels)
    assert len(ours.K) == 60
    assert given.K is case.pipeline[-1].kernels[1][1].K
    for point in case.curve():
        case.assert_same_classes(point)


def test_widths_and_scales_are_learned_without_the_held_out_part(tmp_path):
    table = flowers()
    case = Case(tmp_path, table, "kind", views=("s=shape_*:gauss",))
    rows, held = case.folds[0]
    case.table.iloc[held] *= 1000.0  # what nobody may look at
    fold = shared_fold(case.pipeline, case.table, rows, held)
    X = table[["shape_a", "shape_b"]].to_numpy()[rows]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    distances = np.array([[np.linalg.norm(a - b) for b in Z] for a in Z])
    width = np.median([distances[i, j] for i in range(len(Z)) for j in range(i)])
    K = fold.pipeline[-1].kernels[0][1].K
    np.testing.assert_allclose(K[: len(rows), : len(rows)], np.exp(-((distances / width) ** 2)), atol=1e-12)
    np.testing.assert_allclose(K[len(rows) :, : len(rows)], 0.0, atol=1e-12)


def test_equal_samples_have_one_number(tmp_path):
    case = Case(tmp_path, repeated(flowers()), "kind", views=("s=shape_*:gauss",))
    fold = shared_fold(case.pipeline, case.table, *case.folds[0])
    number = np.concatenate([fold.train, fold.held])[:, -1].astype(int)
    order = np.concatenate(case.folds[0])
    same = number[:, None] == number
    values = case.table.to_numpy()[order]
    np.testing.assert_array_equal(same, np.all(values[:, None] == values, axis=-1))
    assert len(fold.pipeline[-1].kernels[0][1].K) == 60


# Memory -------------------------------------------------------------------------------------------------------------


def test_what_fits_is_what_all_folds_at_once_need(tmp_path):
    case = Case(tmp_path, flowers(), "kind", views=("s=shape_*:linear+gauss",))
    need = 2 * 3 * 60 * 60 * 8  # two kernels, three folds
    assert is_shareable(case.pipeline, 60, 3, need, wide=1)
    assert not is_shareable(case.pipeline, 60, 3, need - 1, wide=1)
    assert is_shareable(case.pipeline, 60, 3, wide=1)


def test_only_kernels_that_take_long_are_shared(tmp_path):
    wide = pd.DataFrame({f"x{i}": np.arange(20.0) * (i + 1) for i in range(100)}).assign(kind=list("ab") * 10)
    for table, target, views, expected in (
        (flowers(), "kind", ("s=shape_*:linear+gauss",), False),
        (wide, "kind", ("w=x*:linear",), True),
        (wide, "kind", ("w=x1*:linear",), False),
        (strings(), "motif", ("d=dna:spectrum(2)",), True),
    ):
        case = Case(tmp_path, table, target, views=views)
        assert is_shareable(case.pipeline, len(table), 1) == expected
    np.save(tmp_path / "K.npy", np.eye(60))
    given = Case(tmp_path, flowers(), "kind", kernels=(f"k={tmp_path / 'K.npy'}",))
    assert not is_shareable(given.pipeline, 60, 1)


def test_without_the_memory_every_fit_computes_its_own(tmp_path, monkeypatch):
    case = Case(tmp_path, flowers(), "kind")
    shared = [point.predictions for point in case.curve()]
    monkeypatch.setattr(shared_folds, "default_budget", lambda: 10_000)
    monkeypatch.setattr(training, "shared_fold", None)
    for point, expected in zip(case.curve(), shared, strict=True):
        np.testing.assert_array_equal(point.predictions, expected)


def test_one_price_has_nothing_to_share(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "shared_fold", None)
    assert len(Case(tmp_path, flowers(), "kind").curve([1.0])) == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_folds_are_held_than_worked_on(tmp_path, monkeypatch, jobs):
    held, most = [], []

    def watch(*arguments):
        fold = shared_fold(*arguments)
        held.append(weakref.ref(fold.pipeline[-1].kernels[0][1].K.base))
        most.append(sum(one() is not None for one in held))
        return fold

    monkeypatch.setattr(training, "shared_fold", watch)
    Case(tmp_path, flowers(), "kind", jobs=jobs).curve([0.01, 0.1, 1.0, 10.0])
    assert len(most) == 3
    assert max(most) <= jobs


def test_from_the_command_line_with_threads(capsys, tmp_path):
    path = write(flowers(), tmp_path / "t.csv")
    one, two = (
        done(capsys, "fit", path, "--target", "kind", "--folds", "3", "--jobs", jobs, "-o", tmp_path / "m.skops").out
        for jobs in (1, 2)
    )
    assert [line for line in one.splitlines() if "seconds" not in line] == [
        line for line in two.splitlines() if "seconds" not in line
    ]
