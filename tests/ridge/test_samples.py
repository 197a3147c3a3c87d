"""Ridge machines of samples without weight, that lack views, or in features: against machines
fitted anew."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.kernels import Gaussian, Laplacian, Linear

RNG = np.random.default_rng(11)
X = RNG.normal(size=(50, 3))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.normal(size=50)
THREE = np.digitize(Y, [-0.4, 0.4])
NEW = RNG.normal(size=(9, 3))
KERNELS = [Gaussian(1.5), Laplacian(4.0), Linear()]
PLAIN = {"scale": False, "normalize": None}
WEIGHT = np.where(np.arange(50) % 5 == 0, 0.0, 1.0)
COUNTED = np.flatnonzero(WEIGHT)


# Samples of weight zero ---------------------------------------------------------------------------


@pytest.mark.parametrize("y", [Y, np.column_stack([Y, X[:, 1] ** 2])])
def test_samples_of_weight_zero_keep_their_place(y):
    model = MKLRidgeCV(KERNELS).fit(X, y, sample_weight=WEIGHT)
    assert np.array_equal(model.support_, COUNTED)
    assert model.loo_predictions_.shape == y.shape
    rest = np.flatnonzero(WEIGHT == 0)
    # Without influence on the machine, they are left out of it as it is.
    assert_allclose(model.loo_predictions_[rest], model.predict(X[rest]))
    same = MKLRidgeCV(KERNELS).fit(X[COUNTED], y[COUNTED])
    assert_allclose(model.loo_predictions_[COUNTED], same.loo_predictions_)
    assert model.best_score_ == pytest.approx(same.best_score_)


def test_classes_of_samples_of_weight_zero_keep_their_place():
    model = MKLRidgeClassifierCV(KERNELS).fit(X, THREE, sample_weight=WEIGHT)
    same = MKLRidgeClassifierCV(KERNELS).fit(X[COUNTED], THREE[COUNTED])
    assert np.array_equal(model.support_, COUNTED)
    assert model.loo_predictions_.shape == (50,)
    assert np.array_equal(model.loo_predictions_[COUNTED], same.loo_predictions_)
    rest = np.flatnonzero(WEIGHT == 0)
    assert np.array_equal(model.loo_predictions_[rest], model.predict(X[rest]))
    assert model.best_score_ == same.best_score_


@pytest.mark.parametrize("weight", [None, np.where(X[:, 1] > 0, 3.0, 1.0) * WEIGHT])
def test_balanced_classes_have_equal_sums_of_weights(weight):
    own = np.ones(50) if weight is None else weight
    totals = np.array([own[c == THREE].sum() for c in range(3)])
    given = {"weights": "uniform", "alpha": 0.5, **PLAIN}
    model = MKLRidgeClassifierCV(KERNELS, class_weight="balanced", **given).fit(
        X, THREE, sample_weight=weight
    )
    same = MKLRidgeClassifierCV(KERNELS, **given).fit(
        X, THREE, sample_weight=own * own.sum() / (3 * totals[THREE])
    )
    assert_allclose(model.decision_function(NEW), same.decision_function(NEW), rtol=1e-9)
    with pytest.raises(ValueError, match=r"class_weight='equal': .*'balanced'"):
        MKLRidgeClassifierCV(KERNELS, class_weight="equal", **given).fit(X, THREE)


@pytest.mark.parametrize("approximation", [None, "nystroem"])
def test_samples_of_weight_zero_are_left_out_with_their_group(approximation):
    """The machine without their group: fitted anew with the weights and the ridge that were
    learned."""
    groups = np.arange(50) // 4
    params = (
        {}
        if approximation is None
        else {"approximation": approximation, "rank": 50, "random_state": 0}
    )
    model = MKLRidgeCV(KERNELS, **PLAIN, **params).fit(X, Y, sample_weight=WEIGHT, groups=groups)
    for i in (0, 5, 25):
        rest = COUNTED[groups[COUNTED] != groups[i]]
        same = MKLRidgeCV(KERNELS, weights=model.weights_, alpha=model.alpha_, **PLAIN).fit(
            X[rest], Y[rest]
        )
        assert model.loo_predictions_[i] == pytest.approx(same.predict(X[i : i + 1])[0], abs=1e-5)


def test_groups_of_samples_of_weight_zero_are_checked():
    with pytest.raises(
        ValueError, match=r"groups has shape \(40,\): give one label per sample, 50 of them"
    ):
        MKLRidgeCV(KERNELS).fit(X, Y, sample_weight=WEIGHT, groups=np.arange(40))


# Standard deviations and intervals ----------------------------------------------------------------


def with_gaps(Z, seed):
    """The same samples, some of which lack the view of column 2."""
    gaps = Z.copy()
    gaps[np.random.default_rng(seed).random(len(Z)) < 0.3, 2] = np.nan
    return gaps


def without_c(Z, seed=0):
    return with_gaps(Z, seed), [("a", Gaussian(1.5), [0, 1]), ("b", Gaussian(1.0), [2])]


@pytest.mark.parametrize("missing", ["neighbors", "zero"])
def test_deviations_of_samples_that_lack_views(missing):
    """The formula of a Gaussian process, from the kernel matrix of every sample for itself."""
    Z, views = without_c(X)
    model = MKLRidgeCV(views, missing=missing, **PLAIN).fit(Z, Y)
    new = with_gaps(NEW, 3)
    assert np.isnan(new).any()
    found = model.predict(new, return_std=True)[1]
    M = model.kernel_matrix(Z) + model.alpha_ * np.eye(50)
    ones, inverse = np.ones(50), np.linalg.inv(M)
    total = ones @ inverse @ ones
    for i in range(len(new)):
        one = new[i : i + 1]
        k = model.kernel_matrix(one, Z)[0]
        variance = (
            model.kernel_matrix(one)[0, 0] - k @ inverse @ k + (1 - ones @ inverse @ k) ** 2 / total
        )
        assert found[i] == pytest.approx(
            np.sqrt(model._noise[0] ** 2 * (variance + model.alpha_)), rel=1e-6
        )


@pytest.mark.parametrize("missing", ["neighbors", "zero"])
def test_intervals_of_samples_that_lack_views(missing):
    """The jackknife+ of n machines on the same kernel matrix, each without a sample."""
    Z, views = without_c(X)
    learned = MKLRidgeCV(views, missing=missing, **PLAIN).fit(Z, Y)
    # Weights that are given have seen no sample.
    given = {"weights": learned.weights_, "alpha": learned.alpha_}
    model = MKLRidgeCV(views, missing=missing, **given, **PLAIN).fit(Z, Y)
    new = with_gaps(NEW, 3)
    K, k = (
        model.kernel_matrix(Z),
        np.array([model.kernel_matrix(new[i : i + 1], Z)[0] for i in range(len(new))]),
    )
    low, high = [], []
    for i in range(50):
        rest = np.delete(np.arange(50), i)
        system = np.ones((50, 50))
        system[:49, :49], system[49, 49] = K[np.ix_(rest, rest)] + model.alpha_ * np.eye(49), 0.0
        answer = np.linalg.solve(system, np.append(Y[rest], 0.0))
        r = abs(Y[i] - K[i, rest] @ answer[:49] - answer[49])
        outputs = k[:, rest] @ answer[:49] + answer[49]
        low.append(outputs - r)
        high.append(outputs + r)
    found = model.predict_interval(new, coverage=0.8)
    # The ⌈0.8 · 51⌉-th smallest above, the (51 − 41)-th below.
    assert_allclose(found[:, 1], np.sort(high, axis=0)[40], atol=1e-8)
    assert_allclose(found[:, 0], np.sort(low, axis=0)[9], atol=1e-8)


def test_deviations_of_several_targets():
    both = np.column_stack([Y, 100.0 * X[:, 1] ** 2])
    model = MKLRidgeCV(KERNELS, alpha=0.3, weights=[1.0, 0.5, 0.2]).fit(X, both)
    found = model.predict(NEW, return_std=True)[1]
    alone = [MKLRidgeCV(KERNELS, alpha=0.3, weights=[1.0, 0.5, 0.2]).fit(X, y) for y in both.T]
    assert_allclose(found, np.column_stack([one.predict(NEW, return_std=True)[1] for one in alone]))


# Features -----------------------------------------------------------------------------------------

FEATURES = {"approximation": "nystroem", "rank": 50, "random_state": 0}


def test_deviations_in_features_of_full_rank_are_exact():
    given = {"alpha": 0.3, "weights": [1.0, 0.0, 0.4], **PLAIN}
    weight = np.linspace(0.5, 2.0, 50)
    exact = MKLRidgeCV(KERNELS, **given).fit(X, Y, sample_weight=weight)
    there = MKLRidgeCV(KERNELS, **given, **FEATURES).fit(X, Y, sample_weight=weight)
    # New samples are not in the span of the landmarks; training samples are.
    for found, expected in zip(
        there.predict(X, return_std=True), exact.predict(X, return_std=True), strict=True
    ):
        assert_allclose(found, expected, rtol=1e-6)


def test_deviations_in_features_are_those_of_bayesian_linear_regression():
    model = MKLRidgeCV(KERNELS, approximation="nystroem", rank=6, random_state=0).fit(X, Y)
    found = model.predict(NEW, return_std=True)[1]
    both = model.kernel_matrix(np.vstack([X, NEW]))
    K, k, own = both[:50, :50], both[50:, :50], np.diagonal(both)[50:]
    M = K + model.alpha_ * np.eye(50)
    inverse = np.linalg.inv(M)
    shift = (1 - inverse.sum(axis=0) @ k.T) ** 2 / inverse.sum()
    variance = own - np.einsum("ij,jk,ik->i", k, inverse, k) + shift + model.alpha_
    assert_allclose(found, np.sqrt(model._noise[0] ** 2 * variance), rtol=1e-5)


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_groups_in_features_of_full_rank_are_exact(criterion):
    groups = np.random.default_rng(0).permutation(np.arange(50) // 3)
    params = {"criterion": criterion, "tol": 1e-6, **PLAIN}
    exact = MKLRidgeCV(KERNELS, **params).fit(X, Y, groups=groups)
    there = MKLRidgeCV(KERNELS, **params, **FEATURES).fit(X, Y, groups=groups)
    assert_allclose(there.weights_, exact.weights_, rtol=1e-2)
    assert_allclose(there.loo_predictions_, exact.loo_predictions_, atol=1e-3)


def test_groups_of_classes_in_features():
    groups = np.arange(50) // 3
    exact = MKLRidgeClassifierCV(KERNELS, tol=1e-6, **PLAIN).fit(X, THREE, groups=groups)
    there = MKLRidgeClassifierCV(KERNELS, tol=1e-6, **PLAIN, **FEATURES).fit(
        X, THREE, groups=groups
    )
    assert_allclose(there.weights_, exact.weights_, rtol=1e-2)
    assert np.array_equal(there.loo_predictions_, exact.loo_predictions_)


# Sparse samples -----------------------------------------------------------------------------------


def test_a_fit_that_is_refused_leaves_the_default_kernels_as_they_are():
    model = MKLRidgeCV().fit(X, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(sparse.csr_matrix(X), Y[:-1])
    assert len(model.read_kernels()) == 20
    assert len(model.fit(sparse.csr_matrix(X), Y).kernel_names_) == 10
    assert len(model.fit(X, Y).kernel_names_) == 20


def test_deviations_of_complete_samples_of_a_model_that_saw_gaps():
    Z, views = without_c(X)
    model = MKLRidgeCV(views, missing="zero", **PLAIN).fit(Z, Y)
    M = model.kernel_matrix(Z) + model.alpha_ * np.eye(50)
    ones, inverse, k = np.ones(50), np.linalg.inv(M), model.kernel_matrix(NEW, Z)
    own = np.diagonal(model.kernel_matrix(NEW))
    variance = (
        own
        - np.sum(k @ inverse * k, axis=1)
        + (1 - k @ inverse @ ones) ** 2 / (ones @ inverse @ ones)
    )
    found = model.predict(NEW, return_std=True)[1]
    assert_allclose(found, model._noise[0] * np.sqrt(variance + model.alpha_), rtol=1e-6)
