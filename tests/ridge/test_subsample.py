"""Weights learned from some samples, the ridge and the machine from all of them."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Precomputed, pairwise
from kernelmosaic.ridge import tuning

RNG = np.random.RandomState(0)
X = RNG.normal(size=(150, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=150)
CLASSES = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
KERNELS = [Linear(), Gaussian(), Laplacian()]


@pytest.fixture(scope="module")
def numbers():
    return MKLRidgeCV(KERNELS, subsample=60).fit(X, Y)


def test_the_machine_is_that_of_all_samples(numbers):
    K = numbers.kernel_matrix(X)
    y = Y - Y.mean()
    centre = np.eye(150) - 1 / 150
    other = KernelRidge(alpha=numbers.alpha_, kernel="precomputed").fit(centre @ K @ centre, y)
    assert_allclose(numbers.predict(X), other.predict(centre @ K @ centre) + Y.mean(), atol=1e-6)


def test_left_out_predictions_are_those_of_refits(numbers):
    # Weights that are given have seen no sample.
    numbers = clone(numbers).set_params(weights=numbers.weights_, alpha=numbers.alpha_).fit(X, Y)
    given = {
        "weights": numbers.weights_,
        "alpha": numbers.alpha_,
        "scale": False,
        "normalize": None,
    }
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    # The kernels as they were fitted to all samples: refits must not measure their widths again.
    scales = [1 / np.mean(kernel.diag(Z)) for kernel in numbers.kernels_]
    given["weights"] = numbers.weights_ * scales
    for i in (0, 77, 149):
        rest = np.delete(np.arange(150), i)
        fixed = [
            Linear(),
            *(type(kernel)(width=kernel.width_) for kernel in numbers.kernels_[1:]),
        ]
        refit = MKLRidgeCV(fixed, **given).fit(Z[rest], Y[rest])
        assert refit.predict(Z[[i]])[0] == pytest.approx(numbers.loo_predictions_[i], abs=1e-6)


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_the_ridge_is_that_of_all_samples(criterion):
    some = MKLRidgeCV(KERNELS, criterion=criterion, subsample=60).fit(X, Y)

    def value(log_alpha):
        model = clone(some).set_params(
            weights=some.weights_, alpha=float(np.exp(log_alpha)), subsample=None
        )
        return model.fit(X, Y).criterion_

    found = minimize_scalar(value, bracket=(np.log(some.alpha_) - 0.5, np.log(some.alpha_) + 0.5))
    assert value(np.log(some.alpha_)) - found.fun <= 0.6  # nats
    assert some.criterion_ == pytest.approx(value(np.log(some.alpha_)), abs=1e-6)


def test_classes_and_groups():
    groups = np.arange(150) // 3
    model = MKLRidgeClassifierCV(KERNELS, subsample=70).fit(X, CLASSES, groups=groups)
    whole = MKLRidgeClassifierCV(KERNELS, subsample=None).fit(X, CLASSES, groups=groups)
    assert model.best_score_ >= whole.best_score_ - 0.05
    same = {"weights": model.weights_, "alpha": model.alpha_}
    some = MKLRidgeClassifierCV(KERNELS, **same, subsample=70).fit(X, CLASSES, groups=groups)
    every = MKLRidgeClassifierCV(KERNELS, **same).fit(X, CLASSES, groups=groups)
    assert_allclose(some.loo_probabilities_, every.loo_probabilities_, atol=1e-6)


def test_few_samples_are_all_learned_from(numbers, monkeypatch):
    whole = MKLRidgeCV(KERNELS, subsample=None).fit(X, Y)
    assert_array_equal(MKLRidgeCV(KERNELS).fit(X, Y).weights_, whole.weights_)
    assert_array_equal(MKLRidgeCV(KERNELS, subsample=150).fit(X, Y).weights_, whole.weights_)
    assert not np.array_equal(numbers.weights_, whole.weights_)
    monkeypatch.setattr(tuning, "LEARNED_FROM", 60)
    assert_array_equal(MKLRidgeCV(KERNELS).fit(X, Y).weights_, numbers.weights_)


def test_too_many_samples_are_fitted_by_features(monkeypatch):
    monkeypatch.setattr(tuning, "LEARNED_FROM", 60)
    monkeypatch.setattr(tuning, "EXACT_UP_TO", 100)
    monkeypatch.setattr(tuning, "N_FEATURES", 90)
    exact = MKLRidgeClassifierCV(KERNELS, subsample=None).fit(X, CLASSES)
    with pytest.warns(
        UserWarning, match=r"the 150 samples are too many for exact linear systems.* subsample=None"
    ):
        model = MKLRidgeClassifierCV(KERNELS, random_state=0).fit(X, CLASSES)
    assert model.best_score_ >= exact.best_score_ - 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MKLRidgeClassifierCV(KERNELS, subsample=50).fit(X[:100], CLASSES[:100])


def test_missing_views_of_too_many_samples_are_refused_with_what_helps(monkeypatch):
    monkeypatch.setattr(tuning, "EXACT_UP_TO", 100)
    Z = X.copy()
    Z[::7, 2:] = np.nan
    kernels = [("first", Gaussian(), [0, 1]), ("second", Linear(), [2, 3])]
    with pytest.raises(
        ValueError,
        match=r"X: some samples lack a view.* 150 samples.*subsample=None.*SimpleImputer",
    ):
        MKLRidgeCV(kernels, subsample=60).fit(Z, Y)
    # Both remedies.
    exact = MKLRidgeCV(kernels, subsample=None).fit(Z, Y)
    with pytest.warns(UserWarning, match=r"too many for exact linear systems"):
        completed = make_pipeline(
            SimpleImputer(), MKLRidgeCV(kernels, subsample=60, random_state=0)
        ).fit(Z, Y)
    assert exact.score(Z, Y) > 0.5
    assert completed.score(Z, Y) > 0.5


@pytest.mark.parametrize(("rank", "expected"), [(500, 34), (4, 12), ([20, 3, 1], 15)])
def test_features_fit_the_budget_and_the_rank(rank, expected):
    """Half of the budget holds five matrices of their products: 35² · 5 · 8 bytes."""
    model = MKLRidgeCV(
        KERNELS, subsample=60, weights=[1, 1, 1], memory_budget=1e5, rank=rank, random_state=0
    )
    with pytest.warns(UserWarning, match=r"The fit uses (\d+) Nyström features") as caught:
        model.fit(X, Y)
    count = int(re.search(r"uses (\d+) Nyström", str(caught[0].message))[1])
    assert count in (expected, expected - 1)


def test_a_budget_for_no_features_is_refused():
    with pytest.raises(
        MemoryError, match=r"memory_budget=.* too small for 10 features of each of the 3 kernels"
    ):
        MKLRidgeCV(KERNELS, subsample=60, memory_budget=1e4).fit(X, Y)


def test_features_and_kernels_of_pairs_are_learned_from_all_samples(monkeypatch):
    pairs = np.column_stack([np.arange(150) % 15, np.arange(150) // 15])
    members = [RNG.normal(size=(count, 3)) for count in (15, 10)]
    sides = (
        [("left", Precomputed(members[0] @ members[0].T), 0)],
        [("right", Precomputed(members[1] @ members[1].T), 1)],
    )
    settings = [
        (pairs, {"kernels": pairwise(*sides)}),
        (X, {"kernels": KERNELS, "approximation": "nystroem", "rank": 20, "random_state": 0}),
        (
            X,
            {
                "kernels": [Gaussian(width="learn")],
                "approximation": "nystroem",
                "rank": 20,
                "random_state": 0,
            },
        ),
    ]
    for samples, params in settings:
        whole = MKLRidgeCV(**params, subsample=None).fit(samples, Y)
        monkeypatch.setattr(tuning, "LEARNED_FROM", 60)
        monkeypatch.setattr(tuning, "EXACT_UP_TO", 100)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            some = MKLRidgeCV(**params).fit(samples, Y)
        assert_allclose(some.weights_, whole.weights_)
        assert_allclose(some.predict(samples), whole.predict(samples))


@pytest.mark.parametrize("subsample", [0, -3, 2.5, "all", True])
def test_wrong_values(subsample):
    with pytest.raises(ValueError, match=r"subsample="):
        MKLRidgeCV(KERNELS, subsample=subsample).fit(X, Y)


@pytest.mark.torch
def test_on_a_device(numbers):
    pytest.importorskip("torch", reason="torch is not installed")
    model = clone(numbers).set_params(device="cpu").fit(X, Y)
    assert_allclose(model.predict(X), numbers.predict(X), atol=1e-3)
    assert_allclose(model.loo_predictions_, numbers.loo_predictions_, atol=1e-3)
