"""Scores, outputs and calibrations of weights that had not seen the sample, and the prior that few
samples need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.base import clone

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, by_group, per_column
from kernelmosaic.ridge.cross_fitting import FOLDS, RULE, effective_number, make_folds
from kernelmosaic.ridge.learning import RidgeOptions, RidgeTargets, search_ridge
from kernelmosaic.row_order import content_order, on_grid

RNG = np.random.default_rng(11)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.3 * RNG.normal(size=60)
KERNELS = [Gaussian(1.5), Laplacian(4.0), Linear()]
PLAIN = {"scale": False, "normalize": None, "n_init": 1, "tol": FOLDS.tol}


def make_noise(n, n_groups, seed):
    """Return kernels of groups of five columns, the columns, and targets that have nothing to do
    with them."""
    rng = np.random.default_rng(seed)
    kernels = by_group(Linear(), {f"g{g}": list(range(5 * g, 5 * g + 5)) for g in range(n_groups)})
    return kernels, rng.normal(size=(n, 5 * n_groups)), rng.normal(size=n)


def folds_of(samples, y, groups=None):
    """Return the folds of a fit."""
    weight = np.ones(len(y))
    ties = [y, weight] if groups is None else [y, weight, groups]
    members = None if groups is None else [np.flatnonzero(groups == g) for g in np.unique(groups)]
    targets = RidgeTargets.of_numbers(y[:, np.newaxis], weight)
    return make_folds(
        replace(targets, order=content_order(on_grid(samples), *ties), groups=members)
    )


def learn_weights_of(samples, y, criterion, weight_prior):
    """Return the weights and the ridge that the kernels learn from samples, without any folds."""
    matrices = np.array([kernel.fit(samples)(samples) for kernel in map(clone, KERNELS)])
    targets = RidgeTargets.of_numbers(y[:, np.newaxis], np.ones(len(y)))
    options = RidgeOptions(criterion=criterion, weight_prior=weight_prior, tol=FOLDS.tol)
    point = search_ridge(StoredStack(matrices), targets, options=options).point
    return {"weights": point.weights, "alpha": point.alpha}


# What is printed had not been seen ----------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
@pytest.mark.parametrize("n_others", [1, 2])
def test_a_group_of_nearly_all_samples_is_judged_by_the_prior(n_others, criterion):
    """One or two samples say nothing about weights: equal ones, and the ridge of the prior, judge
    the others."""
    others = np.arange(60) < n_others
    model = MKLRidgeCV(KERNELS, **PLAIN, criterion=criterion).fit(X, Y, groups=others)
    of_prior = MKLRidgeCV(KERNELS, **PLAIN, weights=np.full(3, 1 / 3), alpha=np.exp(-1.0))
    refit = of_prior.fit(X, Y, groups=others).loo_predictions_
    assert_allclose(model.loo_predictions_[~others], refit[~others], atol=2e-3)
    # The weights of the group judge the others.
    learned = learn_weights_of(X[~others], Y[~others], criterion, model.weight_prior_)
    of_group = MKLRidgeCV(KERNELS, **PLAIN, **learned).fit(X[~others], Y[~others])
    assert_allclose(model.loo_predictions_[others], of_group.predict(X[others]), atol=1e-6)


def test_classes_of_a_group_of_all_samples_but_one():
    model = MKLRidgeClassifierCV(KERNELS).fit(X, Y > 0, groups=np.arange(60) == 0)
    assert np.all(np.isfinite(model.loo_probabilities_))
    # Without the group the class of the other sample is all that is known.
    assert np.all(model.loo_predictions_[1:] == (Y[0] > 0))


def test_an_output_left_out_does_not_depend_on_its_own_target():
    """Neither the machine nor its weights have seen it. The target keeps its rank, and so every
    sample its fold."""
    model = MKLRidgeCV(KERNELS, **PLAIN, criterion="loo").fit(X, Y)
    largest = int(np.argmax(Y))
    moved = Y.copy()
    moved[largest] += 5.0
    other = MKLRidgeCV(KERNELS, **PLAIN, criterion="loo").fit(X, moved)
    assert not np.allclose(other.weight_shares_, model.weight_shares_, atol=1e-3)
    assert other.loo_predictions_[largest] == pytest.approx(
        model.loo_predictions_[largest], abs=1e-4
    )


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_outputs_left_out_are_those_of_refits_with_weights_of_other_folds(criterion):
    settings = {**PLAIN, "criterion": criterion, "weight_prior": 1.0}
    model = MKLRidgeCV(KERNELS, **settings).fit(X, Y)
    every = np.arange(60)
    for fold in folds_of(X, Y)[:2]:
        # The targets of the fold's others are in units of their own: weights and ridge are relative
        # to each other.
        given = learn_weights_of(X[fold.learned_from], Y[fold.learned_from], criterion, 1.0)
        for i in fold.judged[:3]:
            others = np.delete(every, i)
            refit = MKLRidgeCV(KERNELS, **PLAIN, **given).fit(X[others], Y[others])
            assert model.loo_predictions_[i] == pytest.approx(refit.predict(X[[i]])[0], abs=1e-5)


def test_groups_stay_together_in_folds():
    groups = np.arange(60) % 12
    folds = folds_of(X, Y, groups)
    assert_allclose(np.sort(np.concatenate([fold.judged for fold in folds])), np.arange(60))
    for fold in folds:
        assert not set(groups[fold.judged]) & set(groups[fold.learned_from])
    assert np.isfinite(MKLRidgeCV(KERNELS).fit(X, Y, groups=groups).best_score_)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_few_groups_are_folds_of_their_own(n_groups):
    groups = np.arange(60) % n_groups
    model = MKLRidgeCV(KERNELS).fit(X, Y, groups=groups)
    assert np.all(np.isfinite(model.loo_predictions_))
    assert model.best_score_ <= model.training_score_ + 0.2


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_a_handful_of_samples(n):
    model = MKLRidgeCV(KERNELS).fit(X[:n], Y[:n])
    assert np.all(np.isfinite(model.loo_predictions_))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scores_of_noise_are_those_of_new_samples():
    """Six draws, of one start each: the training score is what it is, the printed one that of new
    samples."""
    printed, trained = [], []
    for seed in range(6):
        kernels, A, y = make_noise(60, 40, seed)
        model = MKLRidgeClassifierCV(kernels, weight_prior=0.2, criterion="loo", n_init=1).fit(
            A, y > 0
        )
        printed.append(model.best_score_)
        trained.append(model.training_score_)
    # The larger class of sixty coin tosses has .55 of them; shares of 360 right guesses deviate by
    # .026.
    assert np.mean(printed) < 0.6
    assert np.mean(trained) > np.mean(printed) + 0.04


def test_intervals_cover_with_a_kernel_per_column():
    """Held-out targets of eight draws; intervals of residuals that the weights had seen cover two
    thirds."""
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(240, 10))
        y = A[:, 0] + np.sin(2 * A[:, 1]) + 0.5 * rng.normal(size=240)
        low, high = (
            MKLRidgeCV(per_column(Gaussian())).fit(A[:40], y[:40]).predict_interval(A[40:]).T
        )
        inside.append(np.mean((low <= y[40:]) & (y[40:] <= high)))
    # The shares of eight draws of 40 samples deviate by about .05 each, their mean by .02.
    assert 0.84 < np.mean(inside) < 0.96


def test_learned_widths_are_judged_on_samples_that_they_had_not_seen():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(40, 12))
    y = rng.normal(size=40)
    model = MKLRidgeCV([Gaussian(width="learn", per_column=True)], tol=1e-2).fit(A, y)
    assert model.best_score_ < 0.15


def test_outputs_of_features_are_those_of_their_matrices():
    settings = {**PLAIN, "criterion": "loo"}
    exact = MKLRidgeCV(KERNELS, **settings).fit(X, Y)
    features = MKLRidgeCV(
        KERNELS, **settings, approximation="nystroem", rank=60, random_state=0
    ).fit(X, Y)
    assert_allclose(features.loo_predictions_, exact.loo_predictions_, atol=1e-6)
    low_rank = MKLRidgeCV(
        KERNELS, **settings, approximation="nystroem", rank=8, random_state=0
    ).fit(X, Y)
    assert low_rank.best_score_ == pytest.approx(exact.best_score_, abs=0.1)


@pytest.mark.parametrize("subsample", [20, 40])
def test_weights_of_some_samples_are_judged_by_others(subsample):
    """Of 60 samples 20 are less than half: as many others judge them; of 40 there are five
    folds."""
    kernels, A, y = make_noise(60, 15, 5)
    settings = {"criterion": "loo", "weight_prior": 0.2, "subsample": subsample}
    model = MKLRidgeCV(kernels, **settings).fit(A, y)
    assert model.best_score_ < 0.1
    # The training score is of all samples, most of which weights of 20 have not seen.
    assert model.training_score_ > (0.1 if subsample == 40 else model.best_score_)


def test_many_samples_of_few_weights_are_not_split():
    n = int(FOLDS.rows_per_parameter * len(KERNELS))
    A = RNG.normal(size=(n, 3))
    y = A[:, 0] + RNG.normal(size=n)
    model = MKLRidgeCV(KERNELS).fit(A, y)
    assert model.best_score_ == pytest.approx(model.training_score_, abs=1e-12)
    fewer = MKLRidgeCV(KERNELS).fit(A[1:], y[1:])
    assert fewer.best_score_ != pytest.approx(fewer.training_score_, abs=1e-12)


def test_groups_count_where_they_are_left_out_together():
    n = int(FOLDS.rows_per_parameter * len(KERNELS))
    A = RNG.normal(size=(n, 3))
    y = A[:, 0] + RNG.normal(size=n)
    model = MKLRidgeCV(KERNELS).fit(A, y, groups=np.arange(n) % 40)
    assert model.best_score_ != pytest.approx(model.training_score_, abs=1e-12)


def test_given_weights_have_seen_nothing():
    model = MKLRidgeCV(KERNELS, weights="uniform").fit(X, Y)
    assert model.best_score_ == pytest.approx(model.training_score_, abs=1e-12)
    assert model.n_effective_kernels_ is None
    assert model.weight_prior_ is None


# The scale of outputs -----------------------------------------------------------------------------


def test_the_scale_is_learned_on_outputs_whose_weights_had_not_seen_them():
    kernels, A, y = make_noise(60, 15, 2)
    labels = y > 0
    model = MKLRidgeClassifierCV(kernels, weight_prior=0.2, criterion="loo").fit(A, labels)
    p = model.loo_probabilities_[:, 1]
    sign = np.where(labels, 1.0, -1.0)

    def log_loss(log_factor):
        odds = np.exp(log_factor) * np.log(p / (1.0 - p))
        return -np.mean(np.log(expit(sign * odds)))

    best = minimize_scalar(log_loss, bounds=(-5.0, 5.0), method="bounded")
    # The priors of scale and constants are worth less than a nat of sixty samples.
    assert log_loss(0.0) - best.fun < 1.0 / 60


# How strong the prior is --------------------------------------------------------------------------


def test_the_effective_number_of_kernels():
    rng = np.random.default_rng(0)
    B = rng.normal(size=(40, 3))
    same = B @ B.T
    assert effective_number(
        StoredStack(np.array([same, 5.0 * same, same + 3.0])), np.arange(40)
    ) == pytest.approx(1.0)
    # Projections on centred directions that are orthogonal to each other.
    Q = np.linalg.qr(np.column_stack([np.ones(40), rng.normal(size=(40, 3))]))[0]
    apart = np.array([np.outer(q, q) for q in Q.T[1:]])
    assert effective_number(StoredStack(apart), np.arange(40)) == pytest.approx(3.0, rel=1e-5)
    with_constant = np.concatenate([apart, np.ones((1, 40, 40))])
    assert effective_number(StoredStack(with_constant), np.arange(40)) == pytest.approx(
        3.0, rel=1e-5
    )
    # Sums of a tenth are rounded.
    with_tenths = np.concatenate([apart, np.full((1, 40, 40), 0.1)])
    assert effective_number(StoredStack(with_tenths), np.arange(40)) == pytest.approx(3.0, rel=1e-5)


def test_the_strength_rises_with_kernels_that_differ_and_falls_with_samples():
    assert RULE.strength(1.3, 20, 200) == RULE.least
    assert RULE.strength(50.0, 54, 180) == RULE.most
    assert RULE.least < RULE.strength(2.0, 20, 200) < RULE.most
    strengths = [RULE.strength(50.0, 54, n) for n in (400, 1000, 3000, 10_000)]
    assert strengths == sorted(strengths, reverse=True)
    assert RULE.strength(50.0, 54, 10**6) == RULE.least


def test_fits_say_which_prior_and_criterion_they_had():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(80, 20))
    y = A[:, 0] + rng.normal(size=80)
    of_one_table = MKLRidgeCV().fit(A[:, :4], y)
    assert of_one_table.n_effective_kernels_ < 2.0
    assert of_one_table.weight_prior_ < 0.6
    assert of_one_table.chosen_criterion_ == "loo"
    of_columns = MKLRidgeCV(per_column(Gaussian())).fit(A, y)
    assert of_columns.n_effective_kernels_ > 10.0
    assert (of_columns.chosen_criterion_, of_columns.weight_prior_) in {
        ("loo", 2.0),
        ("evidence", RULE.evidence_prior),
    }
    assert MKLRidgeCV(per_column(Gaussian()), weight_prior=0.7).fit(A, y).weight_prior_ == 0.7


@pytest.mark.parametrize("weight_prior", [0.0, -1.0, "strong", np.inf])
def test_wrong_priors(weight_prior):
    with pytest.raises(ValueError, match="weight_prior="):
        MKLRidgeCV(weight_prior=weight_prior).fit(X, Y)


def test_learned_weights_are_not_behind_equal_ones():
    """Thirty kernels, one informs; 60 samples."""
    rng = np.random.default_rng(4)
    kernels = by_group(Linear(), {f"g{g}": list(range(5 * g, 5 * g + 5)) for g in range(30)})
    factors = rng.normal(size=(560, 30))
    A = (factors[:, :, np.newaxis] + rng.normal(size=(560, 30, 5))).reshape(560, -1)
    y = 1.5 * factors[:, 0] + rng.normal(size=560)
    learned = MKLRidgeCV(kernels).fit(A[:60], y[:60]).score(A[60:], y[60:])
    equal = MKLRidgeCV(kernels, weights="uniform").fit(A[:60], y[:60]).score(A[60:], y[60:])
    assert learned > equal + 0.05


def test_units_and_last_digits_of_columns_say_nothing():
    """Folds are dealt by what samples hold: were it by every digit, another unit would deal other
    folds."""
    kernels, A, y = make_noise(50, 8, 6)
    unit = np.random.default_rng(0).uniform(0.01, 100.0, A.shape[1])
    here = MKLRidgeClassifierCV(kernels).fit(A, y > 0)
    there = MKLRidgeClassifierCV(kernels).fit(A * unit + 3.0, y > 0)
    assert_allclose(there.loo_probabilities_, here.loo_probabilities_, atol=1e-4)
    nearly = MKLRidgeClassifierCV(kernels).fit(A * (1.0 + 1e-15), y > 0)
    assert_allclose(nearly.loo_probabilities_, here.loo_probabilities_, atol=1e-4)


def test_the_order_of_samples_says_nothing():
    kernels, A, y = make_noise(50, 8, 6)
    order = np.random.default_rng(0).permutation(50)
    here = MKLRidgeClassifierCV(kernels).fit(A, y > 0)
    there = MKLRidgeClassifierCV(kernels).fit(A[order], y[order] > 0)
    assert_allclose(there.loo_probabilities_, here.loo_probabilities_[order], atol=1e-6)
    assert there.best_score_ == pytest.approx(here.best_score_)
