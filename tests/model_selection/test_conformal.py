"""Intervals and sets of classes: against their definitions, sample by sample, and their coverage
over many draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    DiscriminantMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    MKLSurvival,
    load,
    save,
)
from kernelmosaic.engine.conformal import Conformal, interval, misfits, ranked
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV, SplitConformal

RNG = np.random.default_rng(3)
X = RNG.normal(size=(48, 3)) * [1.0, 5.0, 1.0]
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=48) * (1 + (X[:, 2] > 0))
CLASSES = np.array(["a", "b", "c"])[np.digitize(Y, [-0.4, 0.4])]
NEW = RNG.normal(size=(9, 3)) * [1.0, 5.0, 1.0]
KERNELS = [Linear(), Gaussian()]
BAND = {"loss": "quantile", "quantile": [0.1, 0.5, 0.9]}


def plus_by_definition(low, high, scores, coverage):
    """Barber et al. (2021), one new sample: low and high of the model that has not seen each
    sample."""
    n = len(scores)
    k = int(np.ceil(coverage * (n + 1)))
    if k > n:
        return -np.inf, np.inf
    # The ⌊(1 − coverage)(n + 1)⌋-th smallest from below is the k-th largest.
    return np.sort(low - scores)[::-1][k - 1], np.sort(high + scores)[k - 1]


def set_by_definition(own, others, coverage):
    """Romano et al. (2020), one new sample: a class is in it if too few of the samples suit their
    own better."""
    return [
        sum(s < o for s, o in zip(own, each, strict=True)) < coverage * (len(own) + 1)
        for each in others.T
    ]


def misfit(values):
    """By how much the best other class is ahead of each."""
    return np.array([max(np.delete(values, c)) - values[c] for c in range(len(values))])


# By definition ------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [{}, BAND], ids=["residuals", "quantiles"])
def test_intervals_of_folds_are_cv_plus(setting):
    folds = KFold(3, shuffle=True, random_state=0)
    model = MKLRegressorCV(
        KERNELS, Cs=[2.0], norms=[1], epsilon=0.1, cv=folds, tol=1e-8, **setting
    ).fit(X, Y)
    plain = make_pipeline(
        StandardScaler(), MKLRegressor(KERNELS, C=2.0, epsilon=0.1, tol=1e-8, **setting)
    )
    low, high, scores = np.empty((9, 48)), np.empty((9, 48)), np.empty(48)
    for train, held in folds.split(X):
        part = clone(plain).fit(X[train], Y[train])
        first, last = (part.predict(Z).reshape(len(Z), -1)[:, [0, -1]].T for Z in (X[held], NEW))
        scores[held] = [max(a - y, y - b) for a, b, y in zip(*first, Y[held], strict=True)]
        low[:, held], high[:, held] = last[0][:, None], last[1][:, None]
    for coverage in (0.5, 0.9, 0.95):
        expected = [
            plus_by_definition(*one, scores, coverage) for one in zip(low, high, strict=True)
        ]
        assert_allclose(model.predict_interval(NEW, coverage), expected, atol=1e-4)
    assert np.all(np.isinf(model.predict_interval(NEW, 0.99)))
    assert model.predict_interval(NEW).shape == (9, 2)


@pytest.mark.parametrize("y", [CLASSES, CLASSES == "a"], ids=["three", "two"])
def test_sets_of_folds_are_cv_plus(y):
    folds = StratifiedKFold(3)
    model = MKLClassifierCV(KERNELS, Cs=[2.0], norms=["uniform"], cv=folds, tol=1e-8).fit(X, y)
    plain = make_pipeline(
        StandardScaler(), MKLClassifier(KERNELS, C=2.0, weights="uniform", tol=1e-8)
    )
    classes = np.unique(y)
    own, others = np.empty(48), np.empty((9, 48, len(classes)))
    for train, held in folds.split(X, y):
        part = clone(plain).fit(X[train], y[train])

        def values(Z, part=part):
            f = part.decision_function(Z)
            return np.column_stack([-f, f]) if f.ndim == 1 else f

        own[held] = [
            misfit(f)[list(classes).index(c)] for f, c in zip(values(X[held]), y[held], strict=True)
        ]
        others[:, held] = np.array([misfit(f) for f in values(NEW)])[:, None]
    for coverage in (0.3, 0.8, 0.97):
        expected = np.array([set_by_definition(own, one, coverage) for one in others])
        expected[np.arange(9), np.searchsorted(classes, model.predict(NEW))] = True
        assert_array_equal(model.predict_set(NEW, coverage), expected)
    assert model.predict_set(NEW, 0.999).all()
    assert np.all(model.predict_set(NEW, 1e-6).sum(axis=1) == 1)


@pytest.mark.parametrize("y", [CLASSES, CLASSES == "a"], ids=["three", "two"])
def test_sets_of_ridge_are_the_jackknife_plus_of_n_refits(y):
    given = {"weights": [0.5, 0.5], "alpha": 0.3, "scale": False, "normalize": None}
    model = MKLRidgeClassifierCV([Linear(), Gaussian(2.0)], **given).fit(X, y)
    classes = model.classes_
    T = (
        np.where(y[:, None] == classes, 1.0, 0.0)
        if len(classes) == 3
        else np.where(y == classes[1], 1.0, -1.0)[:, None]
    )

    def machine(rows):
        return MKLRidgeCV([Linear(), Gaussian(2.0)], **given).fit(X[rows], T[rows])

    shift, every = model.intercept_ - machine(np.arange(48)).intercept_, np.arange(48)

    def values(part, Z):
        f = part.predict(Z).reshape(len(Z), -1) + shift
        return np.column_stack([-f, f]) if f.shape[1] == 1 else f

    parts = [machine(np.delete(every, i)) for i in every]
    own = [
        misfit(values(part, X[i : i + 1])[0])[list(classes).index(y[i])]
        for i, part in enumerate(parts)
    ]
    others = np.array([[misfit(f) for f in values(part, NEW)] for part in parts])
    for coverage in (0.5, 0.9):
        expected = np.array([set_by_definition(own, others[:, j], coverage) for j in range(9)])
        expected[np.arange(9), np.searchsorted(classes, model.predict(NEW))] = True
        assert_array_equal(model.predict_set(NEW, coverage), expected)


def test_a_split_moves_predictions_by_one_number():
    model = SplitConformal(MKLRegressor(KERNELS, C=2.0), calibration_size=0.4, random_state=5).fit(
        X, Y
    )
    train, held = train_test_split(np.arange(48), test_size=0.4, random_state=5)
    plain = MKLRegressor(KERNELS, C=2.0).fit(X[train], Y[train])
    size = np.sort(np.abs(Y[held] - plain.predict(X[held])))[int(np.ceil(0.8 * 21)) - 1]
    f = plain.predict(NEW)
    assert_allclose(model.predict_interval(NEW, 0.8), np.column_stack([f - size, f + size]))
    assert_array_equal(model.predict(NEW), f)
    assert model.score(X, Y) == plain.score(X, Y)


def test_quantiles_are_moved_apart_or_together():
    for quantile in ([0.05, 0.95], [0.45, 0.55], [0.001, 0.5, 0.999]):
        model = SplitConformal(
            MKLRegressor(KERNELS, **BAND | {"quantile": quantile}), random_state=0
        ).fit(X, Y)
        held = train_test_split(np.arange(48), test_size=0.25, random_state=0)[1]
        low, high = model.predict(X[held])[:, [0, -1]].T
        move = np.sort(np.maximum(low - Y[held], Y[held] - high))[int(np.ceil(0.8 * 13)) - 1]
        expected = model.predict(NEW)[:, [0, -1]] + [-move, move]
        expected = np.where(
            expected[:, :1] > expected[:, 1:], expected.mean(axis=1, keepdims=True), expected
        )
        assert_allclose(model.predict_interval(NEW, 0.8), expected)


def test_crossed_ends_are_their_middle():
    scores = np.array([-3.0, -2.0, -1.0])
    assert_allclose(
        interval(np.array([[0.0], [0.0]]), np.array([[1.0], [8.0]]), scores, 0.7),
        [[0.5, 0.5], [1.0, 7.0]],
    )


def test_ranks_are_exact():
    # 0.55 · 100 is 55.000000000000007 in binary.
    assert ranked(np.arange(99.0), np.zeros((1, 1)), 0.55)[0] == 54
    assert ranked(np.arange(9.0), np.zeros((2, 9)), 0.9).tolist() == [8, 8]
    assert ranked(np.arange(8.0), np.zeros((2, 8)), 0.9).tolist() == [np.inf, np.inf]


def test_misfits_of_ties():
    assert_allclose(misfits(np.array([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]])), [[2, 0, 0], [-2, 2, 3]])


# Over many draws ----------------------------------------------------------------------------------


def covered(low_high, y):
    return np.mean((low_high[:, 0] <= y) & (y <= low_high[:, 1]))


def assert_near(shares, expected):
    """Within four standard errors of the mean over draws."""
    assert abs(np.mean(shares) - expected) < 4 * np.std(shares) / np.sqrt(len(shares)), np.mean(
        shares
    )


def draw(rng, n):
    Z = rng.normal(size=(n, 1))
    return Z, np.sin(2 * Z[:, 0]) + np.exp(Z[:, 0]) * 0.2 * rng.standard_t(3, size=n)


@pytest.mark.parametrize(
    "setting", [{}, {"loss": "quantile", "quantile": [0.2, 0.8]}], ids=["residuals", "quantiles"]
)
def test_a_split_covers_exactly(setting):
    """Of 19 samples set aside the 18-th largest score is exceeded with probability 2/20, whatever
    the noise."""
    rng, shares = np.random.default_rng(0), []
    split = SplitConformal(FrozenEstimator(MKLRegressor(KERNELS, **setting).fit(*draw(rng, 40))))
    for _ in range(120):
        Z, y = draw(rng, 19 + 40)
        shares.append(covered(split.fit(Z[:19], y[:19]).predict_interval(Z[19:], 0.9), y[19:]))
    assert_near(shares, 0.9)


def test_folds_cover():
    """CV+ of a search: at least 2 · coverage − 1 is proven, about the coverage is usual."""
    rng, shares = np.random.default_rng(1), []
    model = MKLRegressorCV([Gaussian(factor=0.5)], Cs=[10.0], norms=["uniform"], cv=3, tol=0.1)
    for _ in range(12):
        Z, y = draw(rng, 30 + 200)
        shares.append(covered(model.fit(Z[:30], y[:30]).predict_interval(Z[30:], 0.8), y[30:]))
    assert 0.76 <= np.mean(shares) <= 0.92


class Line:
    """Least squares, in as little time as can be."""

    def __init__(self, A, b):
        self.w = np.linalg.solve(A.T @ A, A.T @ b)

    def predict(self, A):
        return A @ self.w


def test_folds_cover_where_residuals_alone_do_not():
    """Least squares with about as many columns as samples: hardly stable, the case that the plus is
    for."""
    rng, plus, fitted = np.random.default_rng(2), [], []
    n, d, alpha = 24, 20, 0.2
    for _ in range(300):
        A = rng.normal(size=(n + 30, d))
        b = A[:, 0] + rng.normal(size=n + 30)
        rest = [np.delete(np.arange(n), i) for i in range(n)]
        found = Conformal.of(
            [Line(A[r], b[r]) for r in rest], [(A[i : i + 1], b[i : i + 1]) for i in range(n)]
        )
        plus.append(covered(found.interval(A[n:], 1 - alpha), b[n:]))
        whole = Line(A[:n], b[:n])
        size = np.quantile(np.abs(b[:n] - whole.predict(A[:n])), 1 - alpha)
        fitted.append(np.mean(np.abs(b[n:] - whole.predict(A[n:])) <= size))
    assert np.mean(fitted) < 1 - 2 * alpha - 0.1  # residuals of the training samples say nothing
    assert np.mean(plus) + 3 * np.std(plus) / np.sqrt(300) >= 1 - 2 * alpha
    assert np.mean(plus) == pytest.approx(1 - alpha, abs=0.06)


def blobs(seed, n):
    Z, y = make_blobs(n, 2, centers=[[0, 0], [2, 0], [0, 2]], random_state=seed)
    return Z, y


def test_sets_cover():
    split, shares, ridge = SplitConformal(FrozenEstimator(GaussianNB().fit(*blobs(0, 60)))), [], []
    for seed in range(1, 121):
        Z, y = blobs(seed, 19 + 40)
        found = split.fit(Z[:19], y[:19]).predict_set(Z[19:], 0.9)
        assert found.any(axis=1).all()
        shares.append(np.mean(found[np.arange(40), y[19:]]))
    assert_near(shares, 0.9)
    machine = MKLRidgeClassifierCV([Linear()], weights=[1.0], alpha=0.1)
    for seed in range(12):
        Z, y = blobs(seed, 40 + 200)
        found = machine.fit(Z[:40], y[:40]).predict_set(Z[40:], 0.9)
        ridge.append(np.mean(found[np.arange(200), y[40:]]))
    assert 0.87 <= np.mean(ridge) <= 0.95


# In all surroundings ------------------------------------------------------------------------------


def test_several_targets():
    both = np.column_stack([Y, -2 * Y])
    for model in (
        MKLRegressorCV(KERNELS, Cs=[1.0], norms=["uniform"], cv=3),
        SplitConformal(Ridge(), random_state=0),
    ):
        found = clone(model).fit(X, both).predict_interval(NEW)
        assert found.shape == (9, 2, 2)
        assert np.all(found[:, 0] <= found[:, 1])
    first, second = (
        SplitConformal(Ridge(), random_state=0)
        .fit(X, both)
        .predict_interval(NEW)
        .transpose(2, 0, 1)
    )
    assert_allclose(second, -2 * first[:, ::-1])


def test_a_search_has_those_of_the_estimator_that_chooses_by_itself():
    setting = {"Cs": [0.1, 1.0], "norms": (1, "uniform"), "cv": 2}
    tuned = MKLRegressorCV(KERNELS, epsilon=0.1, **setting).fit(X, Y)
    search = PathSearchCV(MKLRegressor(KERNELS, epsilon=0.1), **setting).fit(X, Y)
    assert_array_equal(search.predict_interval(NEW), tuned.predict_interval(NEW))
    assert not hasattr(search, "predict_set")
    classes = PathSearchCV(MKLClassifier(KERNELS, calibration="sigmoid"), **setting).fit(X, CLASSES)
    assert_array_equal(
        classes.predict_set(NEW),
        MKLClassifierCV(KERNELS, **setting).fit(X, CLASSES).predict_set(NEW),
    )
    assert not hasattr(classes, "predict_interval")


def test_the_steps_of_a_pipeline_and_the_names_of_columns():
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    search = PathSearchCV(
        make_pipeline(SelectKBest(f_regression, k=2), MKLRegressor(KERNELS)),
        Cs=[1.0],
        cv=3,
        scale=False,
    )
    named = [("line", Linear(), ["u", "w"]), ("bell", Gaussian(), ["v"])]
    tuned = MKLRegressorCV(named, Cs=[1.0], norms=[1], cv=3)
    for model in (search, tuned):
        model.fit(frame, Y)
        assert_allclose(
            model.predict_interval(frame[:5]),
            model.predict_interval(frame)[:5],
            err_msg=type(model).__name__,
        )


def test_samples_of_weight_zero_do_not_count():
    weight = np.ones(60)
    weight[48:] = 0.0
    A, b = np.r_[X, NEW, NEW[:3]], np.r_[Y, np.full(12, 100.0)]
    folds = [(np.r_[train, 48:60], np.r_[held, 48:60]) for train, held in KFold(3).split(X)]
    model = MKLRegressorCV(KERNELS, Cs=[1.0], norms=[1], epsilon=0.1, tol=1e-6)
    weighted = clone(model).set_params(cv=folds).fit(A, b, sample_weight=weight)
    plain = clone(model).set_params(cv=KFold(3)).fit(X, Y)
    assert_allclose(weighted.predict_interval(NEW), plain.predict_interval(NEW), atol=1e-3)
    split = SplitConformal(FrozenEstimator(plain)).fit(A, b, sample_weight=weight)
    assert_array_equal(split.predict_interval(NEW), split.fit(X, Y).predict_interval(NEW))


def test_a_fitted_estimator_is_left_as_it_is():
    model = MKLRegressor(KERNELS).fit(X[:30], Y[:30])
    before = model.dual_coef_.copy()
    found = SplitConformal(FrozenEstimator(model)).fit(X[30:], Y[30:])
    size = np.sort(np.abs(Y[30:] - model.predict(X[30:])))[int(np.ceil(0.9 * 19)) - 1]
    assert_allclose(found.predict_interval(NEW)[:, 1], model.predict(NEW) + size)
    assert_array_equal(model.dual_coef_, before)


def test_a_class_that_was_not_seen():
    y = CLASSES.copy()
    y[0] = "z"
    with pytest.warns(UserWarning, match="least populated class"):
        model = MKLClassifierCV(KERNELS, Cs=[1.0], norms=["uniform"], cv=3).fit(X, y)
    found = model.predict_set(NEW)
    assert found.shape == (9, 4)
    assert found.any(axis=1).all()
    seen = MKLClassifier(KERNELS).fit(X[1:], CLASSES[1:])
    plain, other = (SplitConformal(FrozenEstimator(seen)).fit(X, labels) for labels in (CLASSES, y))
    # A sample whose class is none of the model's is never covered, and the sets grow by it.
    assert np.all(other.predict_set(X, 0.9) >= plain.predict_set(X, 0.9))
    assert other.predict_set(NEW, 0.98).all()


def test_a_fold_of_one_class():
    order = np.argsort(CLASSES == "a", kind="stable")
    A, two = X[order], (CLASSES == "a")[order]
    folds = [(np.arange(20), np.arange(20, 48)), (np.arange(10, 48), np.arange(10))]
    assert len(set(two[:20])) == 1
    model = MKLClassifierCV(KERNELS, Cs=[1.0], norms=["uniform"], cv=folds).fit(A, two)
    assert model.predict_set(NEW).any(axis=1).all()


def test_what_has_none():
    times = np.column_stack([np.arange(48) % 3 > 0, np.exp(Y)])
    assert not hasattr(
        PathSearchCV(MKLSurvival(), Cs=[1.0], cv=3).fit(X, times), "predict_interval"
    )
    accepted = PathSearchCV(MKLOneClass(), Cs=[0.3], cv=KFold(3), scoring=lambda model, X: 1.0).fit(
        X
    )
    assert not hasattr(accepted, "predict_interval")
    assert not hasattr(accepted, "predict_set")
    assert not hasattr(MKLRegressor(), "predict_interval")
    labels = np.column_stack([CLASSES == "a", CLASSES == "b"]).astype(int)
    search = PathSearchCV(DiscriminantMKLClassifier(KERNELS), Cs=[0.1], cv=KFold(3)).fit(X, labels)
    with pytest.raises(ValueError, match="sets need one class per sample"):
        search.predict_set(X)
    with pytest.raises(NotFittedError):
        MKLRegressorCV(Cs=[1.0], norms=[1], cv=3, refit=False).fit(X, Y).predict_interval(X)


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.2, np.nan, "most", True])
def test_wrong_coverage(coverage):
    models = [
        (SplitConformal(Ridge(), random_state=0).fit(X, Y), "predict_interval"),
        (MKLRidgeCV(KERNELS, weights="uniform", alpha=1.0).fit(X, Y), "predict_interval"),
        (SplitConformal(GaussianNB(), random_state=0).fit(X, CLASSES), "predict_set"),
    ]
    for model, method in models:
        with pytest.raises(ValueError, match=r"coverage=.*: give a number between 0 and 1"):
            getattr(model, method)(NEW, coverage)


def test_wrong_splits():
    for size in (0, 1, 2, -0.5, "half", np.nan):
        with pytest.raises(ValueError, match=r"calibration_size=.*: give a number between 0 and 1"):
            SplitConformal(Ridge(), calibration_size=size).fit(X, Y)
    with pytest.raises(
        TypeError, match="estimator=StandardScaler: give a regressor or a classifier"
    ):
        SplitConformal(StandardScaler()).fit(X, Y)
    with pytest.raises(ValueError, match="y: the samples have several labels"):
        SplitConformal(GaussianNB()).fit(X, np.column_stack([CLASSES == "a", CLASSES == "b"]))
    with pytest.raises(
        ValueError, match=r"y has 2 columns, but MKLSurvival predicts 1 numbers per sample"
    ):
        SplitConformal(MKLSurvival(), random_state=0).fit(
            X, np.column_stack([np.ones(48), np.exp(Y)])
        )
    with pytest.raises(ValueError, match="NaN"):
        SplitConformal(Ridge(), random_state=0).fit(X, np.where(np.arange(48) == 7, np.nan, Y))


def test_model_files(tmp_path):
    pytest.importorskip("skops")
    for model, y, method in (
        (SplitConformal(MKLRegressor(KERNELS, **BAND), random_state=0), Y, "predict_interval"),
        (MKLRegressorCV(KERNELS, Cs=[1.0], norms=[1], cv=3), Y, "predict_interval"),
        (MKLRidgeClassifierCV(KERNELS), CLASSES, "predict_set"),
    ):
        save(model.fit(X, y), tmp_path / "model.skops")
        assert_array_equal(
            getattr(load(tmp_path / "model.skops"), method)(NEW), getattr(model, method)(NEW)
        )
