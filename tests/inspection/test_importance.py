"""What a score loses without a kernel: fits without it, and outputs of permuted views, both written
down."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import get_scorer, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    MKLSurvival,
)
from kernelmosaic.inspection import kernel_importance
from kernelmosaic.kernels import Gaussian, Linear, per_column

VIEWS = [("first", Gaussian(), [0, 1]), ("second", Gaussian(), [2, 3]), ("line", Linear(), [4, 5])]
RANDOM = np.random.RandomState(0)
X = SAMPLES = RANDOM.standard_normal((60, 6))
ROWS = np.random.RandomState(1).permutation(60)
SCORE = 2 * X[:, 0] + X[:, 2] + RANDOM.standard_normal(60)


@pytest.mark.parametrize(
    ("params", "lacking", "scoring"),
    [
        ({}, 0, None),
        ({"weights": [0.5, 0.2, 0.3]}, 0, None),
        ({"norm": 2, "penalties": [1.0, 2.0, 3.0]}, 15, "roc_auc"),
    ],
    ids=["all views", "given weights", "some lack one"],
)
def test_dropping_is_a_fit_without_the_kernel(params, scoring, lacking):
    y, X = (SCORE > 0).astype(int), SAMPLES.copy()
    X[ROWS[:lacking], 2:4] = np.nan
    model = MKLClassifier(VIEWS, tol=1e-5, **params)
    found = kernel_importance(model, X, y, scoring=scoring, cv=2, random_state=0)
    scorer = get_scorer(scoring or "accuracy")
    for f, (train, held) in enumerate(StratifiedKFold(2).split(X, y)):
        whole = scorer(clone(model).fit(X[train], y[train]), X[held], y[held])
        assert found.scores[f] == pytest.approx(whole)
        for m in range(3):
            few = {k: np.delete(v, m) if np.ndim(v) else v for k, v in params.items()}
            without = MKLClassifier([VIEWS[j] for j in range(3) if j != m], tol=1e-5, **few).fit(
                X[train], y[train]
            )
            # One sample's side may hang on the last digits.
            assert found.drops[f, m] == pytest.approx(
                whole - scorer(without, X[held], y[held]), abs=0.051
            )
    np.testing.assert_allclose(found.drop_mean, found.drops.mean(axis=0))
    if not lacking:
        assert found.drop_mean.argmax() == found.permutation_mean.argmax() == 0


@pytest.mark.parametrize(("missing", "scaled"), [("neighbors", True), ("zero", False)])
def test_a_sample_with_one_view_is_left_out_without_it_and_then_has_the_constant(missing, scaled):
    X = SAMPLES[:, :4].copy()
    X[ROWS[:6], :2], X[ROWS[6:12], 2:] = np.nan, np.nan
    model = MKLRegressor(VIEWS[:2], missing=missing, C=10, tol=1e-6)
    if scaled:
        model = make_pipeline(StandardScaler(), model)
    folds = KFold(2)
    found = kernel_importance(model, X, SCORE, cv=folds, n_repeats=2, random_state=0)
    for f, (train, held) in enumerate(folds.split(X)):
        whole = clone(model).fit(X[train], SCORE[train]).score(X[held], SCORE[held])
        assert found.scores[f] == pytest.approx(whole, abs=1e-3)
        for m in range(2):
            kept = 1 - m
            has = ~np.isnan(X[:, 2 * kept])
            less = MKLRegressor([VIEWS[kept]], C=10, tol=1e-6)
            less = make_pipeline(StandardScaler(), less) if scaled else less
            less.fit(np.where(has[:, None], X, 0.0)[train[has[train]]], SCORE[train[has[train]]])
            last = less[-1] if scaled else less
            if scaled:  # the scale of the other columns does not matter, that of these is of the samples that have them
                inside = StandardScaler().fit(X[train[has[train]]])
                predicted = last.predict(
                    np.where(has[held][:, None], inside.transform(X[held]), 0.0)[:, :4]
                )
            else:
                predicted = last.predict(np.where(has[held][:, None], X[held], 0.0))
            predicted = np.where(has[held], predicted, last.intercept_[0])
            expected = 1 - np.sum((SCORE[held] - predicted) ** 2) / np.sum(
                (SCORE[held] - SCORE[held].mean()) ** 2
            )
            assert found.drops[f, m] == pytest.approx(whole - expected, abs=2e-3)
    assert np.all(np.isfinite(found.permutations))


@pytest.mark.parametrize("kind", [MKLClassifier, MKLClassifierCV])
def test_classifiers_of_samples_with_one_view(kind):
    X, y = SAMPLES.copy(), (SCORE > 0).astype(int)
    X[ROWS[:6], :4], X[ROWS[6:12], 2:] = np.nan, np.nan
    options = {"Cs": [1.0], "norms": ("uniform",), "cv": 2} if kind is MKLClassifierCV else {}
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = kind(VIEWS, **options)
    found = kernel_importance(model, frame, y, cv=2, n_repeats=1, scoring="roc_auc", random_state=0)
    assert np.all(np.isfinite(found.drops))
    assert np.ptp(found.drops) > 0


def test_a_kernel_shown_other_samples_is_one_whose_columns_are_permuted():
    model = MKLRegressor(VIEWS, C=10, random_state=0)
    folds = KFold(2)
    found = kernel_importance(model, X, SCORE, cv=folds, n_repeats=2, random_state=5)
    seeds = np.random.RandomState(5).randint(np.iinfo(np.int32).max, size=2)
    for f, (train, held) in enumerate(folds.split(X)):
        fitted, random = clone(model).fit(X[train], SCORE[train]), np.random.RandomState(seeds[f])
        score = fitted.score(X[held], SCORE[held])
        for m, (_, _, columns) in enumerate(VIEWS):
            for r in range(2):
                other = X[held].copy()
                other[:, columns] = other[random.permutation(len(held))][:, columns]
                assert found.permutations[f, m, r] == pytest.approx(
                    score - fitted.score(other, SCORE[held])
                )


def test_only_samples_that_have_a_view_exchange_it():
    # Of the samples held out, one has the second view: nobody's view can stand in its place, and
    # nothing is lost.
    X, y = SAMPLES[:, :4].copy(), SCORE
    folds = [(np.arange(40), np.arange(40, 60))]
    X[np.ix_(np.arange(41, 60), [2, 3])] = np.nan
    found = kernel_importance(MKLRegressor(VIEWS[:2], norm=2), X, y, cv=folds, random_state=0)
    np.testing.assert_allclose(found.permutations[0, 1], 0.0, atol=1e-12)
    assert found.permutation_mean[0] > 0.1

    # Of three that have it, the terms are exchanged among these.
    X[41:43, 2:] = SAMPLES[41:43, 2:4]
    found = kernel_importance(
        MKLRegressor(VIEWS[:2], norm=2), X, y, cv=folds, n_repeats=3, random_state=0
    )
    model = MKLRegressor(VIEWS[:2], norm=2).fit(X[:40], y[:40])
    terms, losses = model.contributions(X[40:]), []
    for order in ([0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 1, 2]):
        moved = terms.copy()
        moved[:3, 1] = terms[order, 1]
        losses.append(
            r2_score(y[40:], model.predict(X[40:]))
            - r2_score(y[40:], moved.sum(axis=1) + model.intercept_)
        )
    for loss in found.permutations[0, 1]:
        assert np.min(np.abs(np.array(losses) - loss)) < 1e-9


def test_kernels_of_all_forms_are_left_out():
    # One column decides: whatever the permutation, without it most samples are in another class.
    y = np.searchsorted([-0.5, 0.5], X[:, 0])
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = make_pipeline(
        StandardScaler().set_output(transform="pandas"), MKLClassifier(per_column(Linear()), norm=2)
    )
    found = kernel_importance(model, frame, y, cv=2, n_repeats=3, random_state=0)
    assert found.kernel_names == [f"linear[{c}]" for c in "abcdef"]
    assert found.drops.shape == (2, 6)
    assert found.permutation_mean[0] > 0.2 + found.permutation_mean[1:].max()
    assert "linear[a]" in str(found)


class CountedGaussian(Gaussian):
    """A Gaussian kernel that counts the square blocks of training samples computed by all of its
    kind."""

    squares: ClassVar = [0]

    def from_statistic(self, S):
        self.squares[0] += S.shape == (40, 40)
        return super().from_statistic(S)


def test_kernels_are_computed_once_a_fold():
    views = [("first", CountedGaussian(), [0, 1]), ("second", CountedGaussian(), [2, 3]), VIEWS[2]]
    before = CountedGaussian.squares[0]
    kernel_importance(MKLClassifier(views, norm=2), X, SCORE > 0, cv=3, n_repeats=1, random_state=0)
    assert CountedGaussian.squares[0] - before == 3 * 2


def test_other_estimators_scores_and_weights():
    y = (SCORE > 0).astype(int)
    weight = np.random.RandomState(0).uniform(0.5, 1.5, 60)
    calibrated = MKLClassifier(VIEWS, calibration="sigmoid", norm=2)
    quick = {"cv": 2, "n_repeats": 1, "random_state": 0}
    found = kernel_importance(
        calibrated, X, y, scoring="neg_log_loss", sample_weight=weight, **quick
    )
    assert found.permutation_mean[0] > 0
    event_time = np.column_stack([np.arange(60) % 3 > 0, np.exp(SCORE / 4)])
    assert kernel_importance(MKLSurvival(VIEWS), X, event_time, **quick).permutation_mean[0] > 0
    gated = LocalizedMKLClassifier(VIEWS, tol=0.1, n_init=1)
    assert kernel_importance(gated, X, y, **quick).drops.shape == (2, 3)


def test_errors_say_what_would_do():
    y = SCORE > 0
    with pytest.raises(ValueError, match="n_repeats=0"):
        kernel_importance(MKLClassifier(VIEWS), X, y, n_repeats=0)
    with pytest.raises(ValueError, match="'first' is the only one"):
        kernel_importance(MKLClassifier(VIEWS[:1]), X, y)
    with pytest.raises(ValueError, match="scoring"):
        kernel_importance(MKLClassifier(VIEWS), X, y, scoring="nothing")


def test_categories_of_a_frame_have_their_kernel_where_others_are_left_out():
    random = np.random.RandomState(0)
    X = pd.DataFrame(
        {"age": random.standard_normal(40), "ward": pd.Categorical(random.randint(0, 2, 40))}
    )
    y = (X["ward"].astype(int) + 0.1 * random.standard_normal(40) > 0.5).astype(int).to_numpy()
    found = kernel_importance(MKLClassifier(), X, y, cv=2, n_repeats=1, random_state=0).to_frame()
    assert [name for name in found.index if "categorical" in name] == [found["drop_mean"].idxmax()]
