"""``norms`` may include ``"loo"``: weights of the least-squares criterion, learned from the
training part of a fold."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from tests.sweeps import thinned

from kernelmosaic import (
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV, SharedKernels
from kernelmosaic.ridge.learning import RidgeTargets
from kernelmosaic.ridge.rule import weights_for

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 3)) * [1.0, 5.0, 0.2] + [0.0, 3.0, 0.0]
Y = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1] + 0.2 * RNG.normal(size=60)
TWO, THREE = np.where(Y > 0.3, "yes", "no"), np.digitize(Y, [0.0, 0.7])
KERNELS = [Linear(), ("one", Gaussian(), [0]), ("rest", Gaussian(), [1, 2])]
PLANS = {
    "two": (MKLClassifierCV, MKLRidgeClassifierCV, MKLClassifier, TWO, StratifiedKFold(2)),
    "three": (MKLClassifierCV, MKLRidgeClassifierCV, MKLClassifier, THREE, StratifiedKFold(2)),
    "numbers": (MKLRegressorCV, MKLRidgeCV, MKLRegressor, Y, KFold(2)),
    "targets": (
        MKLRegressorCV,
        MKLRidgeCV,
        MKLRegressor,
        np.column_stack([Y, 100 * X[:, 0] ** 2]),
        KFold(2),
    ),
}


def share(model):
    return model.weights_ / model.weights_.sum()


@cache
def shares_of_three_classes():
    return share(MKLRidgeClassifierCV(KERNELS, scale=False).fit(X, THREE))


@pytest.mark.parametrize("plan", thinned(PLANS, ["two", "numbers", "targets"]))
def test_weights_are_those_of_the_training_part_of_every_fold(plan):
    search, ridge, plain, y, folds = PLANS[plan]
    model = search(KERNELS, norms=["loo"], Cs=[0.5, 5.0], cv=folds).fit(X, y)
    assert model.norm_ == "loo"
    for f, (train, held) in enumerate(folds.split(X, y)):
        expected = share(ridge(KERNELS).fit(X[train], y[train]))
        for i, C in enumerate(model.Cs_):
            found = np.atleast_2d(model.weights_paths_[f, i])
            assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-6)
            # The score is that of the machine with these weights, fitted by hand.
            scaler = StandardScaler().fit(X[train])
            params = {"epsilon": model.epsilon_} if plain is MKLRegressor else {}
            alone = plain(KERNELS, C=C, weights=expected, **params).fit(
                scaler.transform(X[train]), y[train]
            )
            assert model.scores_[f, i] == pytest.approx(
                alone.score(scaler.transform(X[held]), y[held]), abs=2e-2
            )
    whole = share(ridge(KERNELS).fit(X, y))
    assert_allclose(
        np.atleast_2d(model.weights_),
        np.broadcast_to(whole, np.atleast_2d(model.weights_).shape),
        rtol=1e-6,
    )
    assert not np.allclose(model.weights_paths_[0, 0], model.weights_, rtol=1e-3)


@cache
def weights_of_three_folds():
    folds = list(KFold(3).split(X))
    return folds, MKLRegressorCV(KERNELS, norms=["loo"], Cs=[1.0], cv=folds, epsilon=0.1).fit(
        X, Y
    ).weights_paths_


def test_targets_of_held_out_samples_do_not_leak():
    """Other targets in the held-out part of a fold change the weights of all folds but that one."""
    folds, before = weights_of_three_folds()
    y = Y.copy()
    y[folds[1][1]] = RNG.permutation(y[folds[1][1]]) + 3.0 * X[folds[1][1], 2]
    after = (
        MKLRegressorCV(KERNELS, norms=["loo"], Cs=[1.0], cv=folds, epsilon=0.1)
        .fit(X, y)
        .weights_paths_
    )
    assert np.array_equal(after[1], before[1])
    assert not np.allclose(after[0], before[0], rtol=1e-3)
    assert not np.allclose(after[2], before[2], rtol=1e-3)


def test_samples_held_out_do_not_leak():
    folds, before = weights_of_three_folds()
    Z = X.copy()
    Z[folds[0][1]] *= 7.0
    after = (
        MKLRegressorCV(KERNELS, norms=["loo"], Cs=[1.0], cv=folds, epsilon=0.1)
        .fit(Z, Y)
        .weights_paths_
    )
    assert np.array_equal(after[0], before[0])
    assert not np.allclose(after[1], before[1], rtol=1e-3)


def test_it_is_one_norm_among_others():
    model = MKLClassifierCV(KERNELS, norms=(1, "uniform", "loo"), Cs=2, cv=2).fit(X, TWO)
    assert list(model.scores_by_norm_) == [1, "uniform", "loo"]
    assert model.predict_proba(X).shape == (60, 2)


def test_weights_of_plain_estimators_and_of_searches():
    plain = MKLClassifier(KERNELS, weights="loo").fit(X, TWO)
    assert_allclose(
        plain.weights_, share(MKLRidgeClassifierCV(KERNELS, scale=False).fit(X, TWO)), rtol=1e-6
    )
    assert plain.duality_gap_ <= plain.tol
    found = PathSearchCV(
        MKLClassifier(KERNELS), Cs=[0.1, 1.0], norms=["loo"], cv=3, scale=False
    ).fit(X, TWO)
    assert_allclose(found.best_estimator_.weights_, plain.weights_, rtol=1e-6)


@pytest.mark.parametrize("multi_class", ["ovr", "ovr-shared", "joint", "pairwise"])
def test_classes_share_the_weights(multi_class):
    model = MKLClassifier(KERNELS, weights="loo", multi_class=multi_class).fit(X, THREE)
    assert_allclose(
        np.unique(np.atleast_2d(model.weights_), axis=0), [shares_of_three_classes()], rtol=1e-6
    )


def test_weights_of_samples_and_classes_count():
    weight = np.linspace(0.2, 3.0, 60)
    # Scales of kernels count samples by their own weights, without those of the classes.
    kept = {"normalize": None}
    model = MKLClassifier(KERNELS, weights="loo", class_weight="balanced", **kept).fit(
        X, TWO, sample_weight=weight
    )
    totals = {c: weight[c == TWO].sum() for c in ("no", "yes")}
    own = weight * [weight.sum() / (2 * totals[c]) for c in TWO]
    same = MKLRidgeClassifierCV(KERNELS, scale=False, **kept).fit(X, TWO, sample_weight=own)
    # The samples are in another order, and sums round differently.
    assert_allclose(model.weights_, share(same), rtol=1e-5)


def test_features():
    given = {"approximation": "nystroem", "rank": 20, "random_state": 0}
    model = MKLRegressor(KERNELS, weights="loo", **given).fit(X, Y)
    assert_allclose(
        model.weights_, share(MKLRidgeCV(KERNELS, scale=False, **given).fit(X, Y)), rtol=1e-6
    )


def test_kernels_are_weighed_once_for_the_same_targets():
    targets = RidgeTargets.of_numbers(Y[:, np.newaxis], np.ones(60))
    with SharedKernels() as shared:
        models = [MKLRegressor(KERNELS, C=C, weights="loo").fit(X, Y) for C in (0.1, 10.0)]
        data = shared.store.training_sets[-1]
        found = weights_for(targets, data)
        assert weights_for(targets, data) is found
        assert not np.allclose(
            weights_for(replace(targets, Y=targets.Y**2), data), found, rtol=1e-3
        )
    assert all(np.array_equal(model.weights_, found) for model in models)


@pytest.mark.parametrize(
    "model",
    [
        MKLOneClass(KERNELS, weights="loo"),
        PosteriorMKLClassifier(KERNELS, weights="loo"),
    ],
)
def test_others_refuse_it(model):
    with pytest.raises(ValueError, match="weights='loo'"):
        model.fit(X, TWO)
