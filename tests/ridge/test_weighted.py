"""Ridge machines with sample weights, class weights, groups and weights learned from some samples,
together.

The references are machines fitted anew, by the linear system of the definition, without a group at
a time.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import MKLClassifierCV, MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.ridge.learning import RidgeOptions, RidgeTargets, feature_problem
from kernelmosaic.row_order import content_order

RNG = np.random.default_rng(21)
N = 140
X = RNG.normal(size=(N, 3))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * RNG.normal(size=N)
RARE = np.where(Y > 0.9, "case", "control")
NEW = RNG.normal(size=(12, 3))
WEIGHT = 10.0 ** RNG.uniform(-1, 1, N)
SITE = np.where(np.isin(np.arange(N), [3, 60, 111]), "small", "large")
KERNELS = [Linear(), Gaussian(1.5)]
PLAIN = {"scale": False, "normalize": None}


def machine(K, y, ridge):
    """Return coefficients and constant of the machine by its linear system."""
    n = len(y)
    system = np.block([[K + np.diag(ridge), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.append(y, 0.0))
    return solution[:n], solution[n]


def outputs_left_out(model, y, weight, groups):
    """Return the output of every sample by the machine of all other groups, each fitted anew."""
    K = sum(eta * kernel(X) for eta, kernel in zip(model.weights_, KERNELS, strict=True))
    outputs = np.empty(N)
    for group in np.unique(groups):
        out, kept = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        beta, constant = machine(K[np.ix_(kept, kept)], y[kept], model.alpha_ / weight[kept])
        outputs[out] = K[np.ix_(out, kept)] @ beta + constant
    return outputs


def with_its_weights(model, *data, **fit_params):
    """Return the same machine with the weights and the ridge as given ones, which have seen no
    sample."""
    given = clone(model).set_params(weights=model.weights_, alpha=model.alpha_)
    return given.fit(*data, **fit_params)


# Leaving out: refits ------------------------------------------------------------------------------


@pytest.mark.parametrize("subsample", [None, 10, 60])
@pytest.mark.parametrize("groups", [np.arange(N), np.arange(N) // 3, SITE])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_predictions_without_a_group_are_those_of_refits(weight, groups, subsample):
    model = MKLRidgeCV(KERNELS, subsample=subsample, **PLAIN).fit(
        X, Y, sample_weight=weight, groups=groups
    )
    model = with_its_weights(model, X, Y, sample_weight=weight, groups=groups)
    own = np.ones(N) if weight is None else weight
    assert_allclose(model.loo_predictions_, outputs_left_out(model, Y, own, groups), atol=1e-6)


@pytest.mark.parametrize("class_weight", [None, "balanced", {"case": 5.0, "control": 0.5}])
@pytest.mark.parametrize("groups", [np.arange(N) // 3, SITE])
@pytest.mark.parametrize("subsample", [None, 30])
def test_classes_without_a_group_are_those_of_refits(subsample, groups, class_weight):
    params = {"class_weight": class_weight, "subsample": subsample, **PLAIN}
    model = MKLRidgeClassifierCV(KERNELS, **params).fit(
        X, RARE, sample_weight=WEIGHT, groups=groups
    )
    model = with_its_weights(model, X, RARE, sample_weight=WEIGHT, groups=groups)
    is_case, signs = RARE == "case", np.where(RARE == "case", -1.0, 1.0)
    factors = {"case": 1.0, "control": 1.0} if class_weight is None else class_weight
    if class_weight == "balanced":
        totals = {"case": WEIGHT[is_case].sum(), "control": WEIGHT[~is_case].sum()}
        factors = {label: WEIGHT.sum() / (2 * total) for label, total in totals.items()}
    weight = WEIGHT * np.where(is_case, factors["case"], factors["control"])
    outputs = outputs_left_out(model, signs, weight, groups)
    # Probabilities are softmax(a f + b), shrunk by one sample of equal probabilities.
    p = ((N + 1) * model.loo_probabilities_[:, 1] - 0.5) / N
    design = np.column_stack([outputs, np.ones(N)])
    fit = np.linalg.lstsq(design, logit(p), rcond=None)[0]
    assert fit[0] > 0
    assert_allclose(design @ fit, logit(p), atol=1e-6 * np.abs(logit(p)).max())


@pytest.mark.parametrize("seed", range(2))
def test_a_group_of_few_samples_is_among_those_that_weights_are_learned_from(seed):
    """Also where starts are tried on a third of the samples, with default parameters."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(320, 2))
    y = Z[:, 0] + 0.5 * rng.normal(size=320)
    site = np.full(320, "large")
    site[rng.choice(320, 2, replace=False)] = "small"
    for params in ({}, {"subsample": 10}):
        # Without the large group two samples are left, and whether the criterion is level there to
        # the tolerance is a matter of rounding.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = MKLRidgeCV(KERNELS, **params).fit(Z, y, groups=site)
            classes = MKLRidgeClassifierCV(KERNELS, **params).fit(Z, y > 1.5, groups=site)
        assert np.isfinite(model.best_score_)
        assert np.isfinite(classes.criterion_)


def test_samples_that_weights_are_learned_from_have_every_class_and_group():
    labels = (np.arange(300) == 17) + 2 * np.isin(np.arange(300), [5, 80, 81])
    targets = RidgeTargets.of_classes(labels, np.ones(300))
    some = targets.take(targets.spread(20))
    assert np.sum(some.labels == 1) == 1
    assert np.sum(some.labels == 2) >= 2
    groups = np.split(np.arange(300), [2, 150])
    grouped = RidgeTargets(targets.Y, targets.weight, targets.labels, groups)
    some = grouped.take(grouped.spread(20))
    assert len(some.groups) == 3
    assert_array_equal(np.sort(np.concatenate(some.groups)), np.arange(len(some.Y)))


def test_widths_are_not_learned_from_one_group():
    Z = np.column_stack([X, X[:, 0]])
    Z[SITE == "small", 3] = np.nan
    kernels = [("first", Gaussian(width="learn"), [0, 1, 2]), ("second", Gaussian(), [3])]
    with pytest.raises(
        ValueError, match=r"groups: all samples that have all views are of one group.* widths"
    ):
        MKLRidgeCV(kernels).fit(Z, Y, groups=SITE)


# The ridge of all samples -------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
@pytest.mark.parametrize("estimator", [MKLRidgeCV, MKLRidgeClassifierCV])
def test_the_criterion_of_all_samples_is_level_in_the_ridge(estimator, criterion):
    """Weights of four decades: the ridge of the part is far from that of all."""
    y = Y if estimator is MKLRidgeCV else RARE
    weight = 10.0 ** np.random.default_rng(3).uniform(-2, 2, N)
    model = estimator(KERNELS, criterion=criterion, subsample=40).fit(X, y, sample_weight=weight)

    def criterion_at(factor):
        given = estimator(
            model.kernels,
            criterion=criterion,
            weights=model.weights_,
            alpha=model.alpha_ * factor,
            subsample=None,
        )
        return given.fit(X, y, sample_weight=weight).criterion_

    slope = (criterion_at(np.exp(0.05)) - criterion_at(np.exp(-0.05))) / 0.1
    assert abs(slope) / N <= 2 * model.tol
    assert model.stationarity_ <= model.tol
    assert model.criterion_ == pytest.approx(
        criterion_at(1.0), abs=1e-3
    )  # nats: the scale is learned to `tol`


# The order of samples -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"subsample": 50},
        {"subsample": None},
        {"subsample": 50, "kernels": [Gaussian(width="learn"), Linear()], "tol": 1e-5},
    ],
)
@pytest.mark.parametrize("estimator", [MKLRidgeCV, MKLRidgeClassifierCV])
def test_shuffled_samples_give_the_same_fit(estimator, params):
    rng = np.random.default_rng(8)
    Z, order = rng.normal(size=(330, 3)), rng.permutation(330)
    y = Z[:, 0] + 0.5 * Z[:, 1] ** 2 + 0.4 * rng.normal(size=330)
    y = y if estimator is MKLRidgeCV else (y > 1).astype(int)
    weight, groups = rng.uniform(0.5, 2.0, 330), np.arange(330) // 2
    settings = {"kernels": KERNELS, **params}
    one = estimator(**settings).fit(Z, y, sample_weight=weight, groups=groups)
    other = estimator(**settings).fit(
        Z[order], y[order], sample_weight=weight[order], groups=groups[order]
    )
    assert_allclose(other.weights_, one.weights_, rtol=1e-3)
    assert other.alpha_ == pytest.approx(one.alpha_, rel=1e-2)
    if estimator is MKLRidgeCV:
        assert_allclose(other.predict(NEW), one.predict(NEW), atol=2e-3)
    else:
        assert_allclose(other.predict_proba(NEW), one.predict_proba(NEW), atol=1e-3)


def test_classes_in_turn_are_both_judged_in_features():
    """Of alternating classes every second sample is of one class."""
    n = 400
    Z, labels = RNG.normal(size=(n, 3)), np.arange(n) % 2
    order = content_order(Z)
    targets = RidgeTargets.of_classes(labels, np.ones(n))
    targets = RidgeTargets(targets.Y, targets.weight, targets.labels, order=order)
    options = RidgeOptions(left_out_rows=n // 2)
    form = feature_problem(StoredFeatures([Z]), targets, options).form
    assert_array_equal(np.bincount(labels[form.rows]), [n // 4, n // 4])
    shuffled = RNG.permutation(n)
    moved = RidgeTargets(
        targets.Y[shuffled], targets.weight, labels[shuffled], order=content_order(Z[shuffled])
    )
    other = feature_problem(StoredFeatures([Z[shuffled]]), moved, options).form
    assert_array_equal(np.sort(shuffled[other.rows]), form.rows)


def test_few_groups_are_all_judged_in_features():
    n = 300
    targets = RidgeTargets(RNG.normal(size=(n, 1)), np.ones(n), groups=np.split(np.arange(n), 3))
    stack = StoredFeatures([RNG.normal(size=(n, 3))])
    form = feature_problem(stack, targets, RidgeOptions(left_out_rows=20)).form
    assert len(form.row_groups) == 3


# A common factor of all weights -------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1 / N, 1000.0])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"criterion": "evidence"},
        {"subsample": 40},
        {"approximation": "nystroem", "rank": 10, "random_state": 0},
        {"kernels": [Gaussian(width="learn"), Linear()]},
    ],
)
def test_a_common_factor_of_all_weights_changes_nothing(params, factor):
    settings = {"kernels": KERNELS, **params}
    one = MKLRidgeCV(**settings).fit(X, Y, sample_weight=WEIGHT)
    other = MKLRidgeCV(**settings).fit(X, Y, sample_weight=factor * WEIGHT)
    assert_allclose(other.weights_, one.weights_, rtol=1e-3)
    # The ridge is relative to the weights as they are given.
    assert other.alpha_ == pytest.approx(factor * one.alpha_, rel=1e-3)
    assert other.criterion_ == pytest.approx(one.criterion_, abs=1e-4)
    assert_allclose(other.loo_predictions_, one.loo_predictions_, atol=1e-3)
    for found, same in zip(
        other.predict(NEW, return_std=True), one.predict(NEW, return_std=True), strict=True
    ):
        assert_allclose(found, same, atol=1e-3)
    assert_allclose(other.predict_interval(NEW), one.predict_interval(NEW), atol=5e-3)


@pytest.mark.parametrize("factor", [1 / N, 1000.0])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"case": 1e-3, "control": 2e-3}])
def test_a_common_factor_of_all_weights_changes_no_probability(class_weight, factor):
    one = MKLRidgeClassifierCV(KERNELS, class_weight=class_weight).fit(
        X, RARE, sample_weight=WEIGHT
    )
    other = MKLRidgeClassifierCV(KERNELS, class_weight=class_weight).fit(
        X, RARE, sample_weight=factor * WEIGHT
    )
    assert_allclose(other.weights_, one.weights_, rtol=1e-3)
    assert_allclose(other.predict_proba(NEW), one.predict_proba(NEW), atol=1e-3)
    assert_allclose(other.loo_probabilities_, one.loo_probabilities_, atol=1e-3)


def test_equal_weights_are_no_weights():
    for estimator, y in ((MKLRidgeCV, Y), (MKLRidgeClassifierCV, RARE)):
        plain = estimator(KERNELS).fit(X, y)
        equal = estimator(KERNELS).fit(X, y, sample_weight=np.full(N, 256.0))
        assert_allclose(equal.weights_, plain.weights_, rtol=1e-5)
        assert_allclose(equal._outputs(NEW), plain._outputs(NEW), atol=1e-5)
        assert equal.alpha_ == pytest.approx(256.0 * plain.alpha_, rel=1e-5)


@pytest.mark.parametrize("params", [{}, {"weights": "uniform"}, {"alpha": 0.5}])
def test_a_common_factor_changes_no_target_of_several(params):
    targets = np.column_stack([Y, X[:, 1] ** 2, X[:, 2]])
    settings = {"per_target": True, "n_candidates": 20, "random_state": 0, **params}
    one = MKLRidgeCV(KERNELS, **settings).fit(X, targets, sample_weight=WEIGHT)
    # A power of two changes no digit: candidates that are nearly as good stay in their order.
    if "alpha" in settings:
        settings["alpha"] = 1024 * settings["alpha"]
    other = MKLRidgeCV(KERNELS, **settings).fit(X, targets, sample_weight=1024 * WEIGHT)
    assert_allclose(other.predict(NEW), one.predict(NEW), atol=1e-9)
    assert_allclose(other.alpha_, 1024 * one.alpha_, rtol=1e-9)


def test_the_ridge_is_kept_beside_the_weights_it_was_learned_with():
    model = MKLRidgeCV(KERNELS, **PLAIN).fit(X, Y, sample_weight=0.01 * WEIGHT)
    given = MKLRidgeCV(KERNELS, weights=model.weights_, alpha=model.alpha_, **PLAIN)
    same = given.fit(X, Y, sample_weight=0.01 * WEIGHT)
    assert same.alpha_ == pytest.approx(model.alpha_, rel=1e-12)
    assert same.criterion_ == pytest.approx(model.criterion_, abs=1e-6)
    assert_allclose(same.predict(NEW), model.predict(NEW), atol=1e-9)


def test_weights_by_leave_one_out_error_do_not_depend_on_a_common_factor():
    """Those of a search, too. Its machines do: C is a factor of the weights."""
    search = MKLClassifierCV(KERNELS, norms=["loo"], Cs=[2.0], cv=2)
    one = search.fit(X, RARE, sample_weight=WEIGHT)
    other = clone(search).set_params(Cs=[2.0 / 1024]).fit(X, RARE, sample_weight=1024 * WEIGHT)
    assert_allclose(
        other.weights_ / other.weights_.sum(), one.weights_ / one.weights_.sum(), rtol=1e-4
    )
    assert_allclose(other.decision_function(NEW), one.decision_function(NEW), atol=1e-3)


def test_options_divide_slopes_by_no_more_samples_than_there_are():
    few, many = (RidgeTargets(np.zeros((n, 1)), np.ones(n)) for n in (50, 5000))
    assert RidgeOptions().gradient_count(few) == 50
    assert RidgeOptions().gradient_count(many) == RidgeOptions.gradient_samples
