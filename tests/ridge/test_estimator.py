"""Ridge machines whose weights are learned by leave-one-out error or evidence."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.metrics import log_loss, r2_score

from kernelmosaic import MKLRegressor, MKLRidgeClassifierCV, MKLRidgeCV, load, save
from kernelmosaic.kernels import (
    Gaussian,
    Laplacian,
    Linear,
    Polynomial,
    Ranked,
    Rescaled,
    per_column,
)
from kernelmosaic.ridge.learning import RidgeOptions

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.normal(size=60)
TWO = np.where(Y > 0, "yes", "no")
THREE = np.digitize(Y, [-0.4, 0.4])
NEW = RNG.normal(size=(11, 3))
KERNELS = [Gaussian(1.5), Laplacian(4.0), Linear()]


def refit(model, rows, y):
    """The same machine of other samples, with the weights and the ridge that were learned, kernels
    unnormalised."""
    same = MKLRidgeCV(
        KERNELS, weights=model.weights_, alpha=model.alpha_, scale=False, normalize=None
    )
    return same.fit(X[rows], y[rows])


def learned(y=Y, **params):
    return MKLRidgeCV(KERNELS, scale=False, normalize=None, **params).fit(X, y)


@cache
def left_out(criterion):
    """The machine with the weights that were learned, and the same of all samples but one, for each
    of them."""
    model, every = learned(criterion=criterion), np.arange(60)
    return refit(model, every, Y), [refit(model, np.delete(every, i), Y) for i in every]


# What the closed form gives -----------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_leave_one_out_predictions_are_those_of_n_refits(criterion):
    model, machines = left_out(criterion)
    found = [machine.predict(X[i : i + 1])[0] for i, machine in enumerate(machines)]
    assert_allclose(model.loo_predictions_, found, atol=1e-9)
    assert model.best_score_ == pytest.approx(r2_score(Y, found))


def test_groups_are_left_out_together():
    groups = np.repeat(np.arange(20), 3)
    weights = learned().weights_
    model = MKLRidgeCV(KERNELS, weights=weights, scale=False, normalize=None).fit(
        X, Y, groups=groups
    )
    for g in (0, 7, 19):
        found = refit(model, np.flatnonzero(groups != g), Y).predict(X[groups == g])
        assert_allclose(model.loo_predictions_[groups == g], found, atol=1e-9)


def test_intervals_are_those_of_the_jackknife_plus_of_n_refits():
    model, machines = left_out("loo")
    r = np.abs(Y - [machine.predict(X[i : i + 1])[0] for i, machine in enumerate(machines)])
    outputs = np.array([machine.predict(NEW) for machine in machines])
    found = model.predict_interval(NEW, coverage=0.8)
    # The ⌈0.8 · 61⌉-th smallest above, the 61 − 49 = 12-th smallest below.
    assert_allclose(found[:, 1], np.sort(outputs + r[:, None], axis=0)[48], atol=1e-9)
    assert_allclose(found[:, 0], np.sort(outputs - r[:, None], axis=0)[11], atol=1e-9)
    assert np.all(np.isinf(model.predict_interval(NEW, coverage=0.999)))


def test_intervals_cover_what_they_say():
    """24 draws of noise with heavy tails: weights learned anew in every one."""
    rng, inside = np.random.default_rng(0), []
    for _ in range(24):
        Z = rng.normal(size=(60, 1))
        y = np.sin(2 * Z[:, 0]) + 0.3 * rng.standard_t(3, size=60)
        model = MKLRidgeCV([Gaussian(), Linear()], n_init=1, tol=1e-2).fit(Z[:40], y[:40])
        low, high = model.predict_interval(Z[40:], coverage=0.9).T
        inside.append((low <= y[40:]) & (y[40:] <= high))
    # Draws of 40 samples cover shares that deviate by 0.046 = √(0.09 / 42), seen in 20 others by
    # 0.08: three standard deviations of 24 draws are 5 points.
    assert 0.86 <= np.mean(inside) <= 0.96


def test_the_machine_is_kernel_ridge_of_centred_targets():
    model = learned(alpha=0.5, weights=[0.5, 0.2, 0.3])
    K = model.kernel_matrix(X)
    plain = KernelRidge(kernel="precomputed", alpha=0.5).fit(K, Y - model.intercept_[0])
    assert_allclose(plain.dual_coef_, model.dual_coef_[0], atol=1e-10)
    # The best constant leaves residuals of mean zero.
    assert np.mean(Y - model.predict(X)) == pytest.approx(0.0, abs=1e-12)


def test_one_linear_kernel_agrees_with_ridge_cv():
    Z = X - X.mean(axis=0)
    alphas = np.logspace(-2, 2, 9)
    best = RidgeCV(alphas).fit(Z, Y)
    same = MKLRidgeCV([Linear()], weights=[1.0], scale=False, normalize=None)
    scores = [same.set_params(alpha=alpha).fit(Z, Y).best_score_ for alpha in alphas]
    assert alphas[int(np.argmax(scores))] == best.alpha_
    same.set_params(alpha=best.alpha_).fit(Z, Y)
    assert_allclose(same.predict(NEW), best.predict(NEW), atol=1e-9)


def test_standard_deviations_are_those_of_a_gaussian_process():
    """With a constant of a large prior variance in place of the free one, and the same noise."""
    model = MKLRidgeCV([Gaussian(1.5)], weights=[1.0], alpha=0.3, scale=False, normalize=None).fit(
        X, Y
    )
    s2 = float(model._noise[0] ** 2)
    kernel = (
        ConstantKernel(s2) * RBF(1.5 / np.sqrt(2)) + ConstantKernel(1e6) + WhiteKernel(0.3 * s2)
    )
    process = GaussianProcessRegressor(kernel, optimizer=None).fit(X, Y)
    mean, std = process.predict(NEW, return_std=True)
    found = model.predict(NEW, return_std=True)
    assert_allclose(found[0], mean, rtol=1e-5)
    assert_allclose(found[1], std, rtol=1e-5)


def test_shares_of_r_squared_sum_to_it():
    model = learned()
    target = np.sin(NEW[:, 0]) + 0.3 * NEW[:, 1]
    shares = model.score_split(NEW, target)
    assert shares.shape == (3,)
    assert shares.sum() == pytest.approx(r2_score(target, model.predict(NEW)))
    terms = model.contributions(NEW)
    assert_allclose(terms.sum(axis=1) + model.intercept_, model.predict(NEW))


# What is learned ----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_a_kernel_of_noise_loses_to_one_of_the_target(criterion):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(150, 6))
    y = np.sin(2 * Z[:, 0]) + 0.1 * rng.normal(size=150)
    model = MKLRidgeCV(
        [("signal", Gaussian(), [0]), ("noise", Gaussian(), [1, 2, 3, 4, 5])], criterion=criterion
    ).fit(Z, y)
    assert model.weights_[0] > 5 * model.weights_[1]
    equal = MKLRidgeCV(model.kernels, criterion=criterion, weights="uniform").fit(Z, y)
    assert model.best_score_ > equal.best_score_


def test_the_end_is_level():
    model = learned(tol=1e-5)
    assert model.stationarity_ <= 1e-5
    assert model.history_[-1]["objective"] <= model.history_[0]["objective"]


def test_targets_of_any_unit_have_the_same_weights():
    both = np.column_stack([Y, X[:, 1] ** 2])
    one = learned(both, tol=1e-6)
    other = learned(both * [1e6, 1e-3] + [3e6, 7.0], tol=1e-6)
    assert_allclose(other.weights_, one.weights_, rtol=1e-3)
    assert_allclose(other.predict(NEW), one.predict(NEW) * [1e6, 1e-3] + [3e6, 7.0], rtol=1e-3)


@pytest.mark.parametrize("y", [TWO, THREE])
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_classes(y, criterion):
    model = MKLRidgeClassifierCV(criterion=criterion).fit(X, y)
    p = model.predict_proba(NEW)
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(model.loo_predictions_, model.loo_predictions_.astype(y.dtype))
    assert model.best_score_ == np.mean(model.loo_predictions_ == y)
    assert model.best_score_ > 0.7
    # Probabilities of samples left out are those of calibrated outputs, not of the samples' own
    # fit.
    assert log_loss(y, model.predict_proba(X), labels=model.classes_) < np.log(len(model.classes_))


def test_near_separable_classes_are_not_certain():
    Z, y = make_classification(
        60, 4, class_sep=5.0, n_informative=4, n_redundant=0, flip_y=0, random_state=0
    )
    model = MKLRidgeClassifierCV().fit(Z, y)
    assert model.predict_proba(Z).min() >= 0.5 / 61


# What samples may be ------------------------------------------------------------------------------


def test_samples_of_weight_zero_do_not_count():
    weight = np.r_[np.ones(40), np.zeros(20)]
    one = MKLRidgeCV(KERNELS).fit(X, Y, sample_weight=weight)
    other = MKLRidgeCV(KERNELS).fit(X[:40], Y[:40])
    assert_allclose(one.predict(NEW), other.predict(NEW), rtol=1e-9)


def test_a_weight_is_a_smaller_ridge():
    weight = np.linspace(0.5, 2.0, 60)
    model = MKLRidgeCV([Linear()], weights=[1.0], alpha=0.7, scale=False, normalize=None)
    found = model.fit(X, Y, sample_weight=weight)
    K = X @ X.T + np.diag(0.7 / weight)
    system = np.block([[K, np.ones((60, 1))], [np.ones((1, 60)), np.zeros((1, 1))]])
    answer = np.linalg.solve(system, np.append(Y, 0.0))
    assert_allclose(found.dual_coef_[0], answer[:60], atol=1e-9)
    assert_allclose(found.intercept_, answer[60:], atol=1e-9)


def test_repeated_samples_are_warned_of():
    with pytest.warns(UserWarning, match=r"50 % of the samples duplicate .* give groups"):
        MKLRidgeCV(KERNELS).fit(np.tile(X, (2, 1)), np.tile(Y, 2))
    with pytest.warns(
        UserWarning, match=r"50 % of the samples duplicate another one, with .* sample_weight"
    ):
        MKLRidgeCV(KERNELS, criterion="evidence").fit(np.vstack([X, X]), np.concatenate([Y, Y]))


def test_groups_undo_repetition():
    twice = MKLRidgeCV(KERNELS, tol=1e-6).fit(
        np.tile(X, (2, 1)), np.tile(Y, 2), groups=np.tile(np.arange(60), 2)
    )
    assert_allclose(twice.loo_predictions_[:60], twice.loo_predictions_[60:], atol=1e-8)
    once = MKLRidgeCV(KERNELS, tol=1e-6).fit(X, Y)
    assert abs(twice.best_score_ - once.best_score_) < 0.02


def test_sparse_samples():
    Z = np.where(np.abs(X) > 0.5, X, 0.0)
    model = MKLRidgeCV([Linear(), Polynomial()], scale=False)
    found = model.fit(sparse.csr_matrix(Z), Y).predict(sparse.csr_matrix(NEW))
    assert_allclose(found, model.fit(Z, Y).predict(NEW))
    assert MKLRidgeCV().fit(sparse.csr_matrix(Z), Y).predict(sparse.csr_matrix(NEW)).shape == (11,)


def test_samples_that_lack_a_view():
    gaps = X.copy()
    gaps[:5, 2] = np.nan
    model = MKLRidgeCV([("a", Gaussian(), [0, 1]), ("b", Gaussian(), [2])]).fit(gaps, Y)
    assert np.all(np.isfinite(model.predict(gaps)))


def test_model_files(tmp_path):
    for model in (MKLRidgeCV().fit(X, Y), MKLRidgeClassifierCV(KERNELS).fit(X, THREE)):
        save(model, tmp_path / "m.skops")
        again = load(tmp_path / "m.skops")
        assert np.array_equal(again.predict(NEW), model.predict(NEW))
        method = "predict_interval" if isinstance(model, MKLRidgeCV) else "predict_proba"
        assert np.array_equal(getattr(again, method)(NEW), getattr(model, method)(NEW))


def test_fitted_kernels_serve_other_estimators():
    model = MKLRidgeCV().fit(X, Y)
    assert len(model.kernels_) == 20
    assert MKLRegressor(model.kernels_).fit(X, Y).score(X, Y) > 0.5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"criterion": "aic"}, "criterion='aic': choose one of 'auto', 'loo', 'evidence'"),
        ({"alpha": "best"}, "alpha='best': give a positive, finite number, or 'learn'"),
        ({"alpha": -1.0}, "alpha=-1.0"),
        ({"n_init": 0}, "n_init=0"),
        ({"weights": [1.0]}, "weights"),
    ],
)
def test_wrong_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        MKLRidgeCV(KERNELS, **params).fit(X, Y)


@pytest.mark.parametrize(
    ("groups", "message"),
    [(np.zeros(60), "one group only"), (np.arange(5), r"groups has shape \(5,\)")],
)
def test_wrong_groups(groups, message):
    with pytest.raises(ValueError, match=message):
        MKLRidgeCV(KERNELS).fit(X, Y, groups=groups)


def test_defaults_beat_a_linear_ridge():
    Z, y = load_diabetes(return_X_y=True)
    assert MKLRidgeCV().fit(Z, y).best_score_ > 0.45
    Z, y = make_regression(80, 5, noise=1.0, random_state=0)
    assert MKLRidgeCV().fit(Z, y).best_score_ > 0.99


# Ranks --------------------------------------------------------------------------------------------


def test_ranks_do_not_change_under_monotone_transformations():
    Z = np.exp(X)
    assert_allclose(Ranked(Laplacian())(Z), Ranked(Laplacian())(X), atol=1e-12)
    found = Ranked(Linear()).fit(X)
    ranks = found.transform(X)
    assert_allclose(ranks.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(ranks.std(axis=0), 1.0)
    assert np.array_equal(np.argsort(ranks[:, 0]), np.argsort(X[:, 0]))


def test_ties_share_their_ranks_and_new_samples_are_interpolated():
    kernel = Ranked(Linear()).fit([[1.0], [2.0], [2.0], [4.0]])
    middle = kernel.transform([[1.0], [2.0], [3.0], [4.0], [9.0]])[:, 0]
    unit = np.sqrt(np.mean(np.array([-1.5, 0.0, 0.0, 1.5]) ** 2))
    assert_allclose(middle * unit, [-1.5, 0.0, 0.75, 1.5, 1.5])
    assert np.array_equal(
        Ranked(Linear()).fit([[3.0], [3.0]]).transform([[3.0], [5.0]]), np.zeros((2, 1))
    )


# Features -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_features_of_full_rank_are_exact(criterion):
    params = {"criterion": criterion, "tol": 1e-6}
    exact = MKLRidgeCV(KERNELS, **params).fit(X, Y)
    there = MKLRidgeCV(KERNELS, approximation="nystroem", rank=60, random_state=0, **params).fit(
        X, Y
    )
    assert_allclose(there.weights_, exact.weights_, rtol=1e-2)
    assert_allclose(there.predict(NEW), exact.predict(NEW), atol=1e-3)
    assert_allclose(there.loo_predictions_, exact.loo_predictions_, atol=1e-3)


def test_features_of_many_samples_and_all_default_kernels():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2700, 4))
    y = np.sin(2 * Z[:, 0]) * Z[:, 1] + 0.3 * rng.normal(size=2700)
    model = MKLRidgeCV(approximation="nystroem", rank=20, random_state=0).fit(Z[:1200], y[:1200])
    assert model.score(Z[1200:], y[1200:]) == pytest.approx(model.best_score_, abs=0.05)
    low, high = model.predict_interval(Z[1200:]).T
    assert 0.85 <= np.mean((low <= y[1200:]) & (y[1200:] <= high)) <= 0.94


def test_classes_in_features():
    model = MKLRidgeClassifierCV(approximation="nystroem", rank=20, random_state=0).fit(X, THREE)
    assert model.predict_proba(NEW).shape == (11, 3)
    assert model.best_score_ > 0.6


def test_verbose_says_how_the_search_ended(capsys):
    model = MKLRidgeCV(KERNELS, verbose=True).fit(X, Y)
    assert (
        f"{model.n_iter_} evaluations, criterion {model.criterion_:.6g}" in capsys.readouterr().out
    )


@pytest.mark.torch
def test_a_device_learns_what_the_host_does():
    pytest.importorskip("torch")
    # Each criterion once, and each kind of target; the intervals are of numbers left out one by
    # one.
    for y, Model, criterion in ((Y, MKLRidgeCV, "evidence"), (THREE, MKLRidgeClassifierCV, "loo")):
        model = Model(
            [KERNELS[0], Gaussian("learn", per_column=True)], tol=1e-5, criterion=criterion
        )
        there = clone(model).set_params(device="cpu").fit(X, y, groups=np.arange(60) // 2)
        here = model.fit(X, y, groups=np.arange(60) // 2)
        assert_allclose(there.weights_, here.weights_, rtol=1e-2, atol=1e-3)
        assert there.criterion_ == pytest.approx(here.criterion_, abs=1e-3)
        assert_allclose(there._outputs(NEW), here._outputs(NEW), atol=1e-2)
    intervals = [
        MKLRidgeCV(KERNELS, device=where, tol=1e-5).fit(X, Y).predict_interval(NEW)
        for where in ("cpu", None)
    ]
    assert_allclose(*intervals, atol=1e-2)


@pytest.mark.torch
@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_features_on_a_device_learn_what_the_host_does(criterion):
    pytest.importorskip("torch")
    model = MKLRidgeCV(
        approximation="nystroem", rank=20, criterion=criterion, tol=1e-5, random_state=0
    )
    there = clone(model).set_params(device="cpu").fit(X, Y)
    here = model.fit(X, Y)
    assert there.criterion_ == pytest.approx(here.criterion_, abs=1e-3)
    assert_allclose(there.predict(NEW), here.predict(NEW), atol=1e-2)
    assert_allclose(
        there.predict(NEW, return_std=True)[1], here.predict(NEW, return_std=True)[1], rtol=2e-2
    )
    assert_allclose(there.predict_interval(NEW), here.predict_interval(NEW), atol=2e-2)


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_targets_without_noise_are_predicted_to_many_digits(criterion):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 3))
    y = Z[:, 0] * Z[:, 1] + Z[:, 2] ** 2
    model = MKLRidgeCV(criterion=criterion, max_iter=300).fit(Z[:200], y[:200])
    assert model.alpha_ >= 1e-13 * 200 * model.weights_.sum()
    deviation = model.predict(Z[200:], return_std=True)[1]
    missed = np.abs(model.predict(Z[200:]) - y[200:])
    assert 0.3 < np.sqrt(np.mean((missed / deviation) ** 2)) < 3.0
    assert_allclose(model.predict(Z[:200]), y[:200], atol=1e-6)
    assert model.score(Z[200:], y[200:]) > 0.9999


# Widths -------------------------------------------------------------------------------------------

LEARNED = [
    Linear(),
    Gaussian("learn"),
    Laplacian("learn", per_column=True),
    Ranked(Gaussian("learn", per_column=True)),
]


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_learned_widths_are_fitted_kernels_for_other_estimators(criterion):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=120)
    model = MKLRidgeCV(LEARNED, criterion=criterion).fit(X, y)
    plain, column, ranked = model.kernels_[1:]
    assert isinstance(plain, Gaussian)
    assert plain.width_ > 0
    assert isinstance(column, Rescaled)
    assert column.scale_.argmin() == 0
    assert isinstance(ranked.kernel_, Rescaled)
    same = MKLRidgeCV(
        model.kernels_, weights=model.weights_, alpha=model.alpha_, criterion=criterion
    ).fit(X, y)
    assert_allclose(same.predict(X[:9]), model.predict(X[:9]), rtol=1e-6, atol=1e-6)
    assert MKLRegressor(model.kernels_, C=100.0).fit(X, y).score(X, y) > 0.9


def test_the_evidence_of_learned_widths_is_that_of_scikit_learn():
    """The matrix of one width per column is that of scikit-learn's RBF, whose length scale is ℓ /
    √2."""
    model = MKLRidgeCV([Gaussian("learn", per_column=True)], criterion="evidence", scale=False).fit(
        X, Y
    )
    kernel = model.kernels_[0]
    widths = kernel.scale_ if isinstance(kernel, Rescaled) else np.full(3, kernel.width_)
    assert_allclose(kernel(X), RBF(widths / np.sqrt(2))(X), rtol=1e-9)


def test_widths_on_views():
    kernels = [
        ("left", Gaussian("learn", per_column=True), [0, 1]),
        ("right", Gaussian("learn"), [2]),
    ]
    model = MKLRidgeCV(kernels).fit(X, Y)
    names = [name for name, _, _ in model.kernels_]
    assert names == model.kernel_names_ == ["left", "right"]
    assert MKLRegressor(model.kernels_).fit(X, Y).predict(NEW).shape == (11,)
    each = MKLRidgeCV([per_column(Gaussian("learn"))]).fit(X, Y)
    assert len(each.kernels_) == 3
    assert each.predict(NEW).shape == (11,)


def test_widths_are_learned_from_samples_that_have_all_views():
    Z = X.copy()
    Z[::5, 2] = np.nan
    kernels = [
        ("left", Gaussian("learn", per_column=True), [0, 1]),
        ("right", Gaussian("learn"), [2]),
    ]
    model = MKLRidgeCV(kernels).fit(Z, Y)
    whole = MKLRidgeCV(kernels, scale=False).fit(X, Y)
    assert model.best_score_ > 0.5 * whole.best_score_
    assert np.isfinite(model.predict(Z)).all()


def test_widths_in_features_and_of_many_samples(monkeypatch):
    monkeypatch.setattr(
        RidgeOptions, "width_rows", 400
    )  # of 500 samples, as if there were thousands
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=500)
    kernels = [Gaussian("learn", per_column=True)]
    params = {
        "criterion": "evidence",
        "approximation": "nystroem",
        "rank": 50,
        "random_state": 0,
        "tol": 0.3,
    }
    model = MKLRidgeCV(kernels, **params).fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.kernels_[0].scale_.argmin() == 0


def test_other_estimators_refuse_to_learn_widths():
    with pytest.raises(
        ValueError, match="width='learn': only MKLRidgeCV and MKLRidgeClassifierCV learn widths"
    ):
        MKLRegressor([Gaussian("learn")]).fit(X, Y)
    with pytest.raises(ValueError, match="per_column=True with width='median'"):
        MKLRidgeCV([Gaussian(per_column=True)]).fit(X, Y)
    with pytest.raises(ValueError, match="normalize='centered': widths are learned with"):
        MKLRidgeCV([Gaussian("learn")], normalize="centered").fit(X, Y)
    with pytest.raises(ValueError, match="widths are learned from dense samples"):
        MKLRidgeCV([Gaussian("learn")], scale=False).fit(sparse.csr_matrix(X), Y)
    with pytest.raises(ValueError, match="width='learn'"):
        MKLRidgeCV([Gaussian("learn") + Linear()]).fit(X, Y)


def test_deviations_of_repeated_samples_are_positive():
    """Repeated samples of equal targets drive the ridge of the evidence to the end of its range."""
    rng = np.random.RandomState(0)
    X, y = np.repeat(rng.normal(size=(40, 2)), 2, axis=0), np.repeat(rng.normal(size=40), 2)
    model = MKLRidgeCV([Gaussian(), Laplacian()], criterion="evidence").fit(X, y)
    assert model.alpha_ < 1e-6
    _, deviation = model.predict(X, return_std=True)
    assert np.all(deviation >= np.sqrt(model.alpha_ * model._noise**2) * (1 - 1e-9))
    assert np.all(deviation > 0)


# What is refused, and what stays finite -----------------------------------------------------------


def test_linear_targets_without_noise():
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(240, 2))
    y = 2 * Z[:, 0] + 1
    for kernels in (None, [Linear()], [Linear(), Polynomial(degree=2)], [Gaussian(factor=4)]):
        for criterion in ("loo", "evidence"):
            model = MKLRidgeCV(kernels, criterion=criterion).fit(Z[:120], y[:120])
            assert_allclose(model.predict(Z[:120]), y[:120], atol=1e-5)
            assert_allclose(model.predict(Z[120:]), y[120:], atol=0.02)
            low, high = model.predict_interval(Z[:120]).T
            assert np.mean((low - 1e-5 <= y[:120]) & (y[:120] <= high + 1e-5)) > 0.85


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_features_of_targets_without_noise_are_those_of_their_matrices(criterion):
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(25, 2))
    y, kernels = np.sin(Z[:, 0]), [Gaussian(factor=2), Linear()]
    learned_there = MKLRidgeCV(
        kernels, criterion=criterion, approximation="nystroem", random_state=0
    ).fit(Z, y)
    given = {
        "criterion": criterion,
        "weights": learned_there.weights_,
        "alpha": learned_there.alpha_,
    }
    there = MKLRidgeCV(kernels, **given, approximation="nystroem", random_state=0).fit(Z, y)
    same = MKLRidgeCV(kernels, **given).fit(Z, y)
    assert_allclose(there.loo_predictions_, same.loo_predictions_, atol=1e-5)


@pytest.mark.parametrize(
    ("value", "params"),
    [
        (0.1, {}),
        *((value, {"kernels": KERNELS}) for value in (1.0, 5.0)),
        (0.1, {"criterion": "evidence"}),
        (0.1, {"approximation": "nystroem", "rank": 20}),
    ],
)
def test_constant_targets(value, params):
    model = MKLRidgeCV(**params, random_state=0).fit(X, np.full(60, value))
    assert model.best_score_ == 1.0
    assert_allclose(model.predict(NEW), value)
    both = MKLRidgeCV(**params, random_state=0).fit(X, np.column_stack([Y, np.full(60, value)]))
    assert 0.5 < both.best_score_ < 1.0


def test_targets_of_any_size():
    huge = MKLRidgeCV(KERNELS).fit(X, 1e200 * Y)
    assert_allclose(
        huge.predict(NEW) / 1e200, MKLRidgeCV(KERNELS).fit(X, Y).predict(NEW), rtol=1e-6, atol=1e-8
    )


def test_a_search_that_does_not_end_level_is_warned_of():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        MKLRidgeCV(max_iter=1, tol=1e-9).fit(X, Y)


def test_many_small_groups_are_left_out_exactly():
    groups = np.arange(60) // 2
    weights = learned().weights_
    model = MKLRidgeCV(KERNELS, weights=weights, scale=False, normalize=None).fit(
        X, Y, groups=groups
    )
    found = refit(model, np.flatnonzero(groups != 4), Y).predict(X[groups == 4])
    assert_allclose(model.loo_predictions_[groups == 4], found, atol=1e-9)


def test_mistakes_are_named(tmp_path):
    np.save(tmp_path / "X.npy", X)
    streamed = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(ValueError, match="MKLRidgeCV reads samples in memory"):
        MKLRidgeCV([Linear()], approximation="nystroem", rank=20).fit(streamed, Y)
    with pytest.raises(ValueError, match="leave-one-out needs at least two"):
        MKLRidgeCV().fit(X, Y, sample_weight=np.eye(60)[0])
    with pytest.raises(ValueError, match="groups holds None or NaN"):
        MKLRidgeCV().fit(X, Y, groups=np.where(np.arange(60) % 2, np.nan, 1.0))
    with pytest.raises(ValueError, match=r"y has shape \(60, 2\): give 1 targets"):
        MKLRidgeCV(KERNELS).fit(X, Y).score_split(X, np.column_stack([Y, Y]))
    Z = X.copy()
    Z[::2, 2] = np.nan
    Z[1::2, :2] = np.nan
    views = [("left", Gaussian("learn"), [0, 1]), ("right", Laplacian("learn"), [2])]
    with pytest.raises(ValueError, match="0 of the 60 samples have all views"):
        MKLRidgeCV(views).fit(Z, Y)


def test_default_kernels_in_fourier_features():
    model = MKLRidgeCV(approximation="fourier", rank=40, random_state=0).fit(X, Y)
    assert len(model.weights_) == 8


@pytest.mark.parametrize("place", [(1e6, 1.0), (0.0, 1e9)], ids=["far", "large"])
@pytest.mark.parametrize("alpha", ["learn", 1e-6])
def test_a_ridge_that_rounding_hides_is_refused(place, alpha):
    samples = place[0] + place[1] * X
    model = MKLRidgeCV([Polynomial(2)], alpha=alpha, scale=False, normalize=None)
    with pytest.raises(
        ValueError,
        match=r"kernels: their entries are so large.* alpha is lost in rounding; .*scale=True",
    ):
        model.fit(samples, Y)
    scaled = MKLRidgeCV([Polynomial(2)], alpha=alpha).fit(samples, Y)
    assert_allclose(
        scaled.predict(samples),
        MKLRidgeCV([Polynomial(2)], alpha=alpha).fit(X, Y).predict(X),
        atol=1e-3,
    )


def test_intervals_leave_groups_out_together():
    groups = np.repeat(np.arange(20), 3)
    weights = learned().weights_
    model = MKLRidgeCV(KERNELS, weights=weights, scale=False, normalize=None).fit(
        X, Y, groups=groups
    )
    machines = [refit(model, np.flatnonzero(groups != g), Y) for g in range(20)]
    r = np.abs(Y - [machines[g].predict(X[i : i + 1])[0] for i, g in enumerate(groups)])
    outputs = np.array([machines[g].predict(NEW) for g in groups])
    found = model.predict_interval(NEW, coverage=0.8)
    assert_allclose(found[:, 1], np.sort(outputs + r[:, None], axis=0)[48], atol=1e-9)
    assert_allclose(found[:, 0], np.sort(outputs - r[:, None], axis=0)[11], atol=1e-9)


def test_a_combined_matrix_beyond_the_budget_names_what_to_change():
    Z = np.random.default_rng(0).normal(size=(700, 2))
    with pytest.raises(MemoryError, match="raise memory_budget, or use approximation='nystroem'"):
        MKLRidgeCV([Gaussian(), Linear()], memory_budget=2e6).fit(Z, Z[:, 0])
