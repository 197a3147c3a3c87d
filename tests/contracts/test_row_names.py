"""Rows that have names on both sides, and not the same: refused wherever samples meet what belongs
to them."""

from __future__ import annotations

import inspect
import re
from functools import cache

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import resample

import kernelmosaic
from kernelmosaic import (
    MKLClassifier,
    MKLRidgeClassifierCV,
    inspection,
    model_selection,
    plots,
    stack_views,
)
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.stacking import check_row_names

mpl.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N = 24
RNG = np.random.default_rng(0)
NAMES = [f"patient {chr(97 + i)}" for i in range(N)]
X = pd.DataFrame(RNG.normal(size=(N, 2)), columns=["u", "v"], index=NAMES)
TABLES = {"rna": X[["u"]], "clinic": X[["v"]]}
CLASSES = pd.Series(np.where(X["u"] + 0.3 * RNG.normal(size=N) > 0, "yes", "no"), index=NAMES)
NUMBERS = X["u"] + 0.1 * X["v"]
TIMES = pd.DataFrame({"event": [1.0, 0.0, 1.0] * 8, "time": np.exp(X["u"])})
OTHERS = {
    "sample_weight": pd.Series(1.0, index=NAMES),
    "groups": pd.Series([0, 1, 2] * 8, index=NAMES),
}

#: All public classes with `fit`; a new one is included.
KINDS = {name: getattr(kernelmosaic, name) for name in kernelmosaic.estimators.__all__}
KINDS |= {name: getattr(model_selection, name) for name in model_selection.__all__}
KINDS = {name: kind for name, kind in KINDS.items() if hasattr(kind, "fit")}
#: Quick: nothing here depends on what is learned.
QUICK = {"n_init": 1, "max_iter": 5, "tol": 0.1, "Cs": [1.0], "norms": [1], "cv": 2}
QUICK["estimator"] = MKLClassifier([Linear()])
OWN = {"ResponseSurfaceSearchCV": {"estimator": MKLClassifier([Linear(), Gaussian()])}}
#: Nothing belongs to the samples of these.
UNLABELLED = {"MKLKernelPCA", "MKLClustering"}
FITS_TO_NUMBERS = {"MKLRegressor", "MKLRegressorCV", "MKLRidgeCV", "LocalizedMKLRegressor"}


def made(name):
    known = inspect.signature(KINDS[name]).parameters
    kernels = {"kernels": [Linear()]} if "kernels" in known else {}
    return KINDS[name](
        **{key: value for key, value in (QUICK | OWN.get(name, {})).items() if key in known},
        **kernels,
    )


def belonging(name, method):
    """What belongs to the rows among the arguments of a method, by name and in the order of X."""
    known = inspect.signature(method).parameters
    y = TIMES if "Survival" in name else NUMBERS if name in FITS_TO_NUMBERS else CLASSES
    given = {
        key: value
        for key, value in ({"y": y} | OTHERS).items()
        if key in known or "params" in known
    }
    if "OneClass" in name or name in UNLABELLED:  # reads no targets
        del given["y"]
    return given


@cache
def fitted(name):
    """The estimator, fitted to names that agree."""
    model = made(name)
    return model.fit(
        X, **{key: value for key, value in belonging(name, model.fit).items() if key == "y"}
    )


@pytest.mark.parametrize("name", KINDS)
def test_fits_refuse_rows_in_another_order(name):
    model = made(name)
    given = belonging(name, model.fit)
    assert bool(given) == (name not in UNLABELLED)
    for key, value in given.items():
        with pytest.raises(
            ValueError, match=rf"^{key}: .* in another order .*write {key}\.loc\[X\.index\]"
        ):
            model.fit(X, **given | {key: value[::-1]})
        with pytest.raises(
            ValueError, match=rf"^{key}: .*\('patient a' is in X alone, 'other' is in {key} alone\)"
        ):
            model.fit(X, **given | {key: value.rename({"patient a": "other"})})
        if name in kernelmosaic.estimators.__all__:
            with pytest.raises(ValueError, match=rf"write {key}\.loc\[X\['rna'\]\.index\]"):
                model.fit(TABLES, **given | {key: value[::-1]})
    if name in kernelmosaic.estimators.__all__:
        with pytest.raises(ValueError, match=r"^X\['clinic'\]: .*stack_views\(X\) joins tables"):
            model.fit(
                TABLES | {"clinic": X[["v"]][::-1]},
                **{key: given[key] for key in given if key == "y"},
            )


@pytest.mark.parametrize("name", [name for name in KINDS if hasattr(KINDS[name], "score")])
def test_scores_refuse_rows_in_another_order(name):
    model = fitted(name)
    for score in (getattr(model, one) for one in ("score", "score_split") if hasattr(model, one)):
        given = {key: value for key, value in belonging(name, score).items() if key != "groups"}
        for key, value in given.items():
            with pytest.raises(ValueError, match=rf"write {key}\.loc\[X\.index\]"):
                score(X, **given | {key: value[::-1]})
        y = given["y"][::-1]
        np.testing.assert_array_equal(score(X[::-1], y), score(X[::-1], y.to_numpy()))


def test_predictions_refuse_tables_in_another_order():
    model = MKLClassifier([Linear()]).fit(TABLES, CLASSES)
    assert (model.predict(TABLES) == CLASSES).mean() > 0.8
    for call in (model.predict, model.contributions, model.kernel_matrix):
        with pytest.raises(ValueError, match=r"stack_views\(X\) joins tables"):
            call(TABLES | {"clinic": TABLES["clinic"][::-1]})
    with pytest.raises(ValueError, match=r"^X\[1\]: "):
        MKLClassifier([Linear()]).fit([TABLES["rna"], TABLES["clinic"][::-1]], CLASSES)
    with pytest.raises(ValueError, match=r"write y\.loc\[X\.X\.index\]"):
        model.fit(stack_views(TABLES), CLASSES[::-1])


def test_inspections_refuse_rows_in_another_order():
    model, checked = MKLClassifier([Linear()]), []
    for function in (getattr(inspection, name) for name in inspection.__all__):
        known = inspect.signature(function).parameters if inspect.isfunction(function) else {}
        for key, value in ({"y": CLASSES} | OTHERS).items():
            if key in known:
                checked.append(function.__name__)
                with pytest.raises(ValueError, match=rf"write {key}\.loc\[X\.index\]"):
                    function(model, X, **{"y": CLASSES, key: value[::-1]})
    assert {"kernel_importance", "stability"} <= set(checked)


def test_pictures_refuse_rows_in_another_order():
    model = {
        "Gating": "LocalizedMKLClassifier",
        "LocalK": "LocalizedMKLClassifier",
        "Surviv": "MKLSurvival",
    }
    checked = 0
    for display in (getattr(plots, name) for name in plots.__all__):
        if (
            "y"
            not in inspect.signature(getattr(display, "from_estimator", lambda: None)).parameters
        ):
            continue
        # The first draws `score_split`, which refuses them; the second takes no targets.
        if display in (plots.TargetSharesDisplay, plots.FeatureImportanceDisplay):
            continue
        checked += 1
        name = model.get(display.__name__[:6], "MKLClassifier")
        with pytest.raises(ValueError, match=r"write y\.loc\[X\.index\]"):
            display.from_estimator(fitted(name), X, belonging(name, KINDS[name].fit)["y"][::-1])
    assert checked >= 7


# What names are, and what they are not ------------------------------------------------------------

NAMED = {
    "strings": pd.Index(["p", "q", "r"]),
    "categories": pd.CategoricalIndex(["p", "q", "r"]),
    "dates": pd.date_range("2026-01-01", periods=3),
    "pairs": pd.MultiIndex.from_tuples([(1, 1), (1, 2), (2, 1)]),
    "mixed": pd.Index(["p", 1, 2.5], dtype=object),
    "fractions": pd.Index([0.5, 1.5, 2.5]),
}
NUMBERED = {
    "range": pd.RangeIndex(3),
    "integers": pd.Index([7, 5, 9]),
    "nullable": pd.Index([7, 5, 9], dtype="Int64"),
    "objects": pd.Index([7, 5, 9], dtype=object),
}
ORDER = [2, 0, 1]


@pytest.mark.parametrize("index", NAMED.values(), ids=NAMED)
def test_any_index_but_of_integers_names_rows(index):
    table, y = pd.DataFrame({"u": [1.0, 2.0, 3.0]}, index=index), pd.Series([0, 1, 2], index=index)
    check_row_names(table, y=y, sample_weight=None, groups=y.to_frame())
    with pytest.raises(ValueError, match=r"write y\.loc\[X\.index\]"):
        check_row_names(table, y=y.iloc[ORDER])
    with pytest.raises(ValueError, match=r"write groups\.loc\[X\.index\]"):
        check_row_names(table, y=y, groups=y.to_frame().iloc[ORDER])
    # What the error says to write is right.
    written = y.iloc[ORDER].loc[table.index]
    pd.testing.assert_series_equal(written, y, check_freq=False)
    for other in NUMBERED.values():
        check_row_names(table, y=y.iloc[ORDER].set_axis(other))
        check_row_names(table.set_axis(other), y=y.iloc[ORDER])
    check_row_names(table.to_numpy(), y=y.iloc[ORDER])
    check_row_names(pl.from_pandas(table), y=y.iloc[ORDER])


@pytest.mark.parametrize("index", NUMBERED.values(), ids=NUMBERED)
def test_numbered_rows_belong_together_by_position(index):
    table, y = pd.DataFrame({"u": [1.0, 2.0, 3.0]}, index=index), pd.Series([0, 1, 2], index=index)
    check_row_names(table, y=y.iloc[ORDER])


def test_equal_names_of_other_types_agree():
    for one in (
        NAMED["categories"],
        NAMED["strings"].astype(object),
        NAMED["strings"].astype("string"),
    ):
        check_row_names(
            pd.DataFrame({"u": [1.0, 2.0, 3.0]}, index=NAMED["strings"]), y=pd.Series(0, index=one)
        )


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (
            "pqr",
            "prq",
            "(row 1 is 'q' there and 'r' here); write y.loc[X.index], or give y.to_numpy()",
        ),
        ("pqr", "rqps", "('s' is in y alone); write y.loc[X.index]"),
        ("pqr", "qp", "('r' is in X alone); keep the rows of both, X.index.intersection(y.index)"),
        ("pqr", "ptr", "('q' is in X alone, 't' is in y alone); keep the rows of both"),
        ("ppq", "qpp", "give every row a name of its own ('p' is there more than once)"),
        ("pq", "pqp", "its 3 rows have the names of X in another order (2 rows there)"),
        ("ppq", "qp", "write y.loc[X.index]"),
        ("ppq", "ppq", None),
    ],
)
def test_the_error_says_what_to_write(ours, theirs, words):
    table, y = pd.DataFrame({"u": 1.0}, index=list(ours)), pd.Series(0, index=list(theirs))
    if words is None:
        check_row_names(table, y=y)
        return
    with pytest.raises(ValueError, match=re.escape(words)):
        check_row_names(table, y=y)
    if "y.loc" in words:
        assert y.loc[table.index].index.equals(table.index)


def test_targets_and_weights_are_compared_where_samples_have_no_names():
    with pytest.raises(ValueError, match=r"write sample_weight\.loc\[y\.index\]"):
        MKLClassifier([Linear()]).fit(X.to_numpy(), CLASSES, OTHERS["sample_weight"][::-1])


# Where names agree --------------------------------------------------------------------------------


def test_folds_searches_and_pipelines_keep_names_together():
    model, folds = MKLClassifier([Linear()]), KFold(3, shuffle=True, random_state=0)
    plain = X.to_numpy(), CLASSES.to_numpy()
    scaled = make_pipeline(StandardScaler().set_output(transform="pandas"), model)
    for one in (model, scaled):
        scores = [cross_val_score(one, *given, cv=folds) for given in ((X, CLASSES), plain)]
        np.testing.assert_array_equal(*scores)
    search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=folds)
    best = [search.fit(*given).best_score_ for given in ((X, CLASSES), plain)]
    assert best[0] == best[1]
    # Rows drawn with replacement come several times, under one name.
    drawn = resample(X, CLASSES, random_state=0)
    assert not drawn[0].index.is_unique
    assert model.fit(*drawn).score(*drawn) == model.score(drawn[0], drawn[1].to_numpy())


def test_joined_tables_learn_what_their_rows_say():
    """Rows of two tables in different orders: joined by name all is as it was, by position it would
    be noise."""
    rng = np.random.default_rng(1)
    names = [f"sample {i}" for i in range(60)]
    rna, clinic = (
        pd.DataFrame(rng.normal(size=(60, 2)), index=names, columns=["a", "b"]) for _ in range(2)
    )
    y = pd.Series((rna["a"] + clinic["a"] + 0.5 * rng.normal(size=60) > 0).astype(int))

    def left_out(X, y):
        return MKLRidgeClassifierCV([Linear()]).fit(X, y.to_numpy()).best_score_

    aligned = left_out(np.hstack([rna, clinic]), y)
    mixed = clinic.iloc[rng.permutation(60)]
    target = y.iloc[rng.permutation(60)]
    stacked, joined = stack_views({"rna": rna, "clinic": mixed}, target)
    assert left_out(stacked.X, joined) == aligned > 0.75
    assert left_out(stacked.X, target) < 0.65
    with pytest.raises(ValueError, match=r"write y\.loc\[X\.index\]"):
        MKLClassifier().fit(stacked.X, target)
    with pytest.raises(ValueError, match=r"X\['clinic'\]: .*stack_views"):
        MKLClassifier().fit({"rna": rna, "clinic": mixed}, target)
