"""Hazards and ranks on a learned kernel, against general optimisers; survival functions, and the
search of C."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLSurvival, MKLSurvivalCV, load, save
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Polynomial
from kernelmosaic.metrics import (
    StepFunction,
    concordance_index,
    integrated_brier_score,
    kaplan_meier,
)
from kernelmosaic.survival.curves import LocationScale
from kernelmosaic.survival.machine import Cox, OrderedPairs, Ranking

RNG = np.random.RandomState(0)
N = 70
X = RNG.standard_normal((N, 4))
TIME = np.ceil(6 * np.exp(X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * RNG.standard_normal(N)))
LIMIT = np.ceil(RNG.exponential(25.0, size=N))
EVENT = TIME <= LIMIT
Y = np.column_stack([EVENT, np.minimum(TIME, LIMIT)]).astype(float)
KERNELS = [Linear(), Gaussian(), Polynomial(2)]
SMOOTH = ("cox", "rank")


def partial_likelihood(f, y=Y):
    """Minus the logarithm of the partial likelihood, time by time and term by term, in long
    double."""
    event, time = y[:, 0] > 0, y[:, 1]
    risk, total = np.exp(-f.astype(np.longdouble)), np.longdouble(0)
    for t in np.unique(time[event]):
        now = event & (time == t)
        d = int(now.sum())
        total += f[now].sum() + sum(
            np.log(risk[time >= t].sum() - k / d * risk[now].sum()) for k in range(d)
        )
    return float(total)


def pairs(f, y=Y):
    total = 0.0
    for i in np.flatnonzero(y[:, 0]):
        for j in range(len(y)):
            if y[j, 1] > y[i, 1] or (y[j, 1] == y[i, 1] and not y[j, 0]):
                total += max(0.0, 1.0 - (f[j] - f[i])) ** 2
    return total / len(y)


LOSSES = {"cox": partial_likelihood, "rank": pairs}


# The loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "naive"), [(Cox, partial_likelihood), (Ranking, pairs)])
def test_value_slopes_and_curvature_are_those_of_naive_sums(machine, naive):
    program, f = machine(Y[:, 1], Y[:, 0], 0.7).program, RNG.standard_normal(N)
    here = program.loss_at(f)
    assert here.value == pytest.approx(0.7 * naive(f), rel=1e-12)
    h, rows = 1e-5, RNG.permutation(N)[:12]
    slopes = [0.7 * (naive(f + h * e) - naive(f - h * e)) / (2 * h) for e in np.eye(N)[rows]]
    assert_allclose(here.gradient[rows], slopes, atol=1e-6)
    bends = [
        (program.loss_at(f + h * e).gradient - program.loss_at(f - h * e).gradient) / (2 * h)
        for e in np.eye(N)
    ]
    assert_allclose(here.curvature_times(np.eye(N)), bends, atol=1e-6)
    assert_allclose(here.curvature_times(f), bends @ f, atol=1e-5)


def test_outputs_as_far_apart_as_numbers_go_leave_the_likelihood_finite():
    program = Cox(Y[:, 1], Y[:, 0]).program
    f = 900.0 * RNG.standard_normal(N)
    here = program.loss_at(f)
    assert np.isfinite(here.value)
    assert np.isfinite(here.gradient).all()
    assert np.isfinite(here.curvature_times(f)).all()


def test_the_curvature_of_outputs_far_apart_does_not_overflow():
    # Denominators down to 1e-170: their inverse is a number, its square is not.
    program, f = Cox(Y[:, 1], Y[:, 0]).program, 0.0 + 390.0 * (Y[:, 1] / Y[:, 1].max())
    here, h = program.loss_at(f), 1e-4
    with np.errstate(over="raise", invalid="raise"):
        found = here.curvature_times(np.eye(N))
    bends = [
        (program.loss_at(f + h * e).gradient - program.loss_at(f - h * e).gradient) / (2 * h)
        for e in np.eye(N)
    ]
    assert_allclose(found, bends, atol=1e-6)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize(("C", "scale"), [(1e9, 1.0), (1.0, 1e6), (1e-9, 1e-6)])
def test_every_fit_ends_and_its_curves_are_numbers(loss, C, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MKLSurvival([Linear(), Gaussian()], loss=loss, C=C, normalize=None, max_iter=3)
        model.fit(scale * X[:20], Y[:20])
    assert not np.isnan(model.duality_gap_)
    S = model.predict_survival_function(scale * X, return_array=True)
    assert np.all((S >= 0) & (S <= 1))


def test_many_repeats_of_a_time_are_a_bounded_number_of_terms():
    weight = np.where(EVENT, 1e7, 1.0)
    model = MKLSurvival([Gaussian()], loss="cox", C=1e-6).fit(X, Y, weight)
    assert model.duality_gap_ <= 1e-3
    assert model.score(X, Y) > 0.7


# The problem --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", SMOOTH)
def test_a_linear_kernel_is_the_machine_of_its_columns(loss):
    some, y = X[:35], Y[:35]
    model = MKLSurvival([Linear()], loss=loss, C=0.4, normalize=None, tol=1e-10).fit(some, y)
    value = minimize(
        lambda w: 0.5 * w @ w + 0.4 * LOSSES[loss](some @ w, y), np.zeros(4), tol=1e-10
    )
    f = some @ value.x
    assert_allclose(model.predict(some), f - f.mean(), atol=1e-5)
    assert model.objective_ == pytest.approx(value.fun, rel=1e-9)


def test_hazards_and_survival_functions_are_those_of_scikit_survival():
    linear = pytest.importorskip("sksurv.linear_model")
    y = np.array([(e > 0, t) for e, t in Y], dtype=[("e", "?"), ("t", "f8")])
    theirs = linear.CoxPHSurvivalAnalysis(alpha=2.5, ties="efron", tol=1e-12).fit(X, y)
    ours = MKLSurvival([Linear()], loss="cox", C=0.4, normalize=None, tol=1e-10).fit(X, y)
    risk = theirs.predict(X)
    assert_allclose(ours.predict(X), risk.mean() - risk, atol=1e-5)
    assert_allclose(ours.unique_times_, theirs.unique_times_)
    for name in ("predict_survival_function", "predict_cumulative_hazard_function"):
        both = [getattr(one, name)(X[:9], return_array=True) for one in (ours, theirs)]
        assert_allclose(*both, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"norm": 2}, {"weights": "uniform"}], ids=str)
@pytest.mark.parametrize("loss", SMOOTH)
def test_an_outsider_finds_the_gap_from_the_fitted_attributes(loss, settings):
    model = MKLSurvival(KERNELS, loss=loss, C=0.5, tol=1e-5, **settings).fit(X, Y)
    matrices = [MKLSurvival([one]).fit(X, Y).kernel_matrix(X) for one in KERNELS]
    beta = np.zeros(N)
    beta[model.support_] = model.dual_coef_[0]
    f = sum(eta * K @ beta for eta, K in zip(model.weights_, matrices, strict=True))
    assert_allclose(f + model.intercept_, model.predict(X), atol=1e-8)
    upper = 0.5 * beta @ f + 0.5 * LOSSES[loss](f)
    assert model.objective_ == pytest.approx(upper, rel=1e-9)
    # Fenchel and Young: the slopes g at any outputs f have the conjugate ⟨g, f⟩ − L(f).
    slopes = {"cox": Cox, "rank": Ranking}[loss](Y[:, 1], Y[:, 0], 0.5).program.loss_at(f).gradient
    q = np.array([0.5 * slopes @ K @ slopes for K in matrices])
    largest = {"norm": q.max(), 2: np.linalg.norm(q)}
    most = model.weights_ @ q if "weights" in settings else largest[settings.get("norm", "norm")]
    lower = 0.5 * LOSSES[loss](f) - slopes @ f - most
    assert lower <= upper * (1 + 1e-12)
    assert upper - lower <= 2e-5 * abs(upper)
    assert model.duality_gap_ <= 1e-5


@pytest.mark.parametrize("loss", SMOOTH)
def test_slopes_of_the_value_in_the_weights_are_the_forms_of_the_coefficients(loss):
    machine = {"cox": Cox, "rank": Ranking}[loss](Y[:, 1], Y[:, 0], 2.0)
    matrices = [MKLSurvival([one]).fit(X, Y).kernel_matrix(X) for one in KERNELS]
    eta, h = np.array([0.5, 0.2, 0.3]), 1e-4

    def solve(weights):
        return machine.solve(np.tensordot(weights, matrices, axes=1), tol=1e-13)

    beta = solve(eta).beta
    for m, K in enumerate(matrices):
        step = h * np.eye(3)[m]
        slope = (solve(eta + step).objective - solve(eta - step).objective) / (2 * h)
        assert slope == pytest.approx(-0.5 * beta @ K @ beta, rel=1e-5)


@pytest.mark.parametrize("loss", SMOOTH)
def test_features_of_full_rank_are_the_kernels(loss):
    exact = MKLSurvival([Gaussian(), Laplacian()], loss=loss, tol=1e-7).fit(X, Y)
    model = MKLSurvival(
        exact.kernels, loss=loss, tol=1e-7, approximation="nystroem", rank=N, random_state=0
    ).fit(X, Y)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-5)
    assert_allclose(model.predict(X), exact.predict(X), atol=1e-2)


@pytest.mark.parametrize("loss", SMOOTH)
def test_a_weight_of_two_is_a_sample_given_twice(loss):
    twice = np.r_[np.arange(N), np.arange(10)]
    kernels = [Linear(), Gaussian(2.0), Polynomial(2)]
    weighted = MKLSurvival(kernels, loss=loss, tol=1e-7).fit(X, Y, np.bincount(twice).astype(float))
    # One of each pair is moved by next to nothing, so that the pair is not counted as one sample.
    apart = X[twice] + 1e-9 * RNG.standard_normal((len(twice), 4))
    repeated = MKLSurvival(kernels, loss=loss, tol=1e-7).fit(apart, Y[twice])
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-3)
    assert weighted.curves_.slope == pytest.approx(repeated.curves_.slope, rel=1e-2)
    if loss == "cox":  # of residuals, the last digits decide on which side of a step a time is
        S = [one.predict_survival_function(X, return_array=True) for one in (weighted, repeated)]
        assert_allclose(*S, atol=1e-3)


# Survival functions -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["censored", *SMOOTH])
def test_survival_functions_fall_from_one_to_zero(loss, tmp_path):
    model = MKLSurvival(KERNELS, loss=loss).fit(X, Y)
    S = model.predict_survival_function(X, return_array=True)
    H = model.predict_cumulative_hazard_function(X, return_array=True)
    assert S.shape == (N, len(model.unique_times_)) == H.shape
    assert np.all((S >= 0) & (S <= 1) & (np.diff(S, axis=1, prepend=1.0) <= 0))
    assert_allclose(np.exp(-H), S, atol=1e-12)
    # A longer predicted survival is one at every time.
    order = np.argsort(model.predict(X))
    assert np.all(np.diff(S[order], axis=0) >= -1e-12)
    steps = model.predict_survival_function(X[:3])
    assert steps.shape == (3,)
    assert_allclose(steps[1].x, model.unique_times_)
    assert_allclose(steps[1](model.unique_times_), S[1])
    assert steps[1](0.0) == pytest.approx(S[1, 0])
    save(model, tmp_path / "model.skops")
    loaded = load(tmp_path / "model.skops")
    assert_allclose(loaded.predict_survival_function(X, return_array=True), S, atol=1e-12)


@pytest.mark.parametrize("loss", ["censored", *SMOOTH])
def test_without_a_kernel_there_is_one_curve_for_all(loss):
    model = MKLSurvival([Linear()], loss=loss, normalize=None).fit(np.zeros((N, 1)), Y)
    S = model.predict_survival_function(np.ones((2, 1)), return_array=True)
    times, share = kaplan_meier(Y[:, 1], Y[:, 0])
    if loss == "cox":
        steps = [np.sum(EVENT & (Y[:, 1] == t)) / np.sum(Y[:, 1] >= t) for t in times]
        share = np.exp(-np.cumsum(steps))
    assert_allclose(model.unique_times_, times)
    assert_allclose(S, [share, share], atol=1e-12)


def test_residuals_of_log_times_are_the_same_for_all_samples():
    model = MKLSurvival(KERNELS).fit(X, Y)
    f = model.predict(X)
    residual = np.log(Y[:, 1]) - f
    S = model.predict_survival_function(X[:5], return_array=True)
    knots, share = kaplan_meier(residual, Y[:, 0])
    for i in range(5):
        for t, found in zip(model.unique_times_, S[i], strict=True):
            below = np.flatnonzero(knots <= np.log(t) - f[i])
            assert found == pytest.approx(share[below[-1]] if len(below) else 1.0, abs=1e-12)


@pytest.mark.parametrize("loss", ["rank", "censored"])
def test_every_sample_has_its_own_step_alone_or_among_others(loss):
    """S₀ falls exactly at the residual of a training sample, where rounding must not decide."""
    n_steps = 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        Z = random.standard_normal((12, 3))
        time, limit = (
            np.exp(Z[:, 0] + 0.3 * random.standard_normal(12)),
            random.exponential(6.0, 12),
        )
        y = np.column_stack([time <= limit, np.minimum(time, limit)])
        model = MKLSurvival([Gaussian()], loss=loss).fit(Z, y)
        S = model.predict_survival_function(Z, return_array=True)
        alone = np.vstack(
            [model.predict_survival_function(Z[[i]], return_array=True) for i in range(12)]
        )
        assert_allclose(alone, S, atol=1e-12)
        curves = model.curves_
        residual = np.log(y[:, 1]) - curves.slope * model.predict(Z) - curves.shift
        if (
            np.diff(np.sort(residual)).min() < 1e-8
        ):  # equal but for rounding: the sum by hand has no order for them
            continue
        knots, share = kaplan_meier(residual, y[:, 0])
        at = np.searchsorted(model.unique_times_, y[:, 1])
        event = y[:, 0] > 0
        expected = share[np.searchsorted(knots, residual)]
        assert_allclose(S[np.arange(12), at][event], expected[event], atol=1e-12)
        n_steps += event.sum()
    assert n_steps > 10


def test_equal_residuals_are_one_step_whatever_their_last_digits():
    """Samples given twice, whose outputs differ by rounding."""
    f, event = np.linspace(0.0, 3.0, 10), np.arange(10) % 3 > 0
    time = np.exp(f + 0.5 * np.sin(7.0 * f))
    outputs = np.concatenate([f, f * (1 + 4e-16), f * (1 - 4e-16)])
    y = np.column_stack([np.tile(event, 3), np.tile(time, 3)]).astype(float)
    curves = LocationScale.fit(outputs, y, None, 1.0)
    once = LocationScale.fit(f, y[:10], None, 1.0)
    assert len(curves.residuals) == len(once.residuals) == 10
    assert_allclose(curves.survival(outputs), np.tile(once.survival(f), (3, 1)), atol=1e-12)


def test_ranks_are_put_on_the_scale_of_log_times():
    curves = MKLSurvival(KERNELS, loss="rank").fit(X, Y).curves_
    f, log_time = MKLSurvival(KERNELS, loss="rank").fit(X, Y).predict(X), np.log(Y[:, 1])

    def absolute_error(line):
        off = log_time - line[0] * f - line[1]
        return np.where(EVENT, np.abs(off), np.maximum(off, 0.0)).sum()

    best = min(
        minimize(absolute_error, [a, 2.0], method="Nelder-Mead", tol=1e-10).fun
        for a in (0.5, 1.0, 2.0)
    )
    assert absolute_error((curves.slope, curves.shift)) <= best * (1 + 1e-3)


# The search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", [None, "concordance", "brier"])
def test_scores_of_the_search_and_curves_from_samples_held_out(scoring):
    model = MKLSurvivalCV(KERNELS, Cs=[0.03, 0.5], norms=(1, "uniform"), cv=3, scoring=scoring).fit(
        X, Y
    )
    folds = list(StratifiedKFold(3).split(X, EVENT))
    held = {}
    for C in (0.03, 0.5):
        outputs = np.empty(N)
        for train, test in folds:
            scale = StandardScaler().fit(X[train])
            one = MKLSurvival(
                KERNELS, loss="cox", C=C, weights="uniform" if model.norm_ == "uniform" else None
            )
            outputs[test] = one.fit(scale.transform(X[train]), Y[train]).predict(
                scale.transform(X[test])
            )
        held[C] = outputs

    def curves(rows):
        """Breslow's hazards with the slope of calibration, naively."""
        f, y = held[model.C_][rows], Y[rows]
        slope = minimize_scalar(
            lambda a: partial_likelihood(a * f, y), bounds=(0, 10), method="bounded"
        ).x
        risk, times = np.exp(-slope * f), np.unique(y[:, 1])
        steps = [np.sum(y[y[:, 1] == t, 0]) / risk[y[:, 1] >= t].sum() for t in times]
        return slope, times, np.cumsum(steps)

    slope, times, hazard = curves(np.arange(N))
    S = model.predict_survival_function(X, return_array=True)
    assert_allclose(model.unique_times_, times)
    assert_allclose(S, np.exp(-np.exp(-slope * model.predict(X))[:, None] * hazard), atol=0.02)
    for k, (_, test) in enumerate(folds):
        score = model.scores_[k, list(model.Cs_).index(model.C_)]
        if scoring is None:
            expected = -partial_likelihood(held[model.C_][test], Y[test]) / Y[test, 0].sum()
        elif scoring == "concordance":
            expected = concordance_index(Y[test], held[model.C_][test])
        else:
            slope, times, hazard = curves(np.setdiff1d(np.arange(N), test))

            f = held[model.C_][test]
            steps = [StepFunction(times, np.exp(-np.exp(-slope * one) * hazard)) for one in f]
            expected = -integrated_brier_score(Y[test], Y[test], steps)
        assert score == pytest.approx(expected, abs=0.02)


def test_the_search_is_cloned_and_kept(tmp_path):
    model = MKLSurvivalCV([Linear(), Gaussian()], Cs=2, norms=1, cv=2, loss="rank").fit(
        X[:40], Y[:40]
    )
    assert clone(model).get_params()["loss"] == "rank"
    assert MKLSurvivalCV().loss == "cox"
    save(model, tmp_path / "model.skops")
    loaded = load(tmp_path / "model.skops")
    assert_allclose(
        loaded.predict_survival_function(X, return_array=True),
        model.predict_survival_function(X, True),
    )


# What is refused ----------------------------------------------------------------------------------

WRONG = {
    "loss": (MKLSurvival(loss="hinge"), Y, "loss='hinge': choose one of 'censored', 'cox', 'rank'"),
    "entry": (
        MKLSurvival(loss="cox"),
        np.column_stack([Y[:, 0], Y[:, 1] - 0.5, Y[:, 1]]),
        "left truncation",
    ),
    "silp": (
        MKLSurvival(loss="cox", solver="silp"),
        Y,
        "solver='silp' supports .* not Cox; use solver='newton'",
    ),
    "qcqp": (
        MKLSurvival(loss="rank", solver="qcqp"),
        Y,
        "solver='qcqp' supports .* not Ranking; use solver='newton'",
    ),
    "alignment": (MKLSurvival(loss="cox", solver="alignment"), Y, "use solver='newton'"),
    "scoring": (MKLSurvivalCV(scoring="accuracy"), Y, "scoring='accuracy' with loss='cox': give"),
    "likelihood": (
        MKLSurvivalCV(loss="rank", scoring="likelihood"),
        Y,
        "scoring='likelihood' with loss='rank'",
    ),
    "C": (MKLSurvival(loss="cox", C=-1.0), Y, "C=-1.0: give a positive, finite number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    model, y, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_more_pairs_than_fit_the_memory_are_refused():
    with pytest.raises(MemoryError, match="use loss='cox' or 'censored'"):
        OrderedPairs(np.arange(1.0, 8001.0), np.ones(8000), np.ones(8000), 1.0)


# Few events, and times of zero --------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["cox", "rank", "censored"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_search_whose_folds_lack_events_says_so(loss):
    one = np.column_stack([np.arange(N) == 3, Y[:, 1]])
    with pytest.raises(
        ValueError,
        match=r"no event was observed in the training samples of a fold.*fewer folds \(cv\)",
    ):
        MKLSurvivalCV([Linear()], loss=loss, Cs=2, cv=3).fit(X, one)
    three = np.column_stack([np.arange(N) < 3, Y[:, 1]])
    message = (
        r"scoring=None is undefined in fold 4, 5 \(of 5\), whose held-out samples .* use fewer"
        r" folds"
    )
    with pytest.raises(ValueError, match=message):
        MKLSurvivalCV([Linear()], loss=loss, Cs=2, cv=5).fit(X, three)


@pytest.mark.parametrize("loss", SMOOTH)
def test_hazards_and_ranks_count_times_from_any_date(loss):
    shifted = Y - [0.0, Y[:, 1].min()]
    assert (shifted[:, 1] == 0).sum() > 1
    first, other = (MKLSurvival(KERNELS, loss=loss, tol=1e-6).fit(X, y) for y in (Y, shifted))
    assert_allclose(other.predict(X), first.predict(X), atol=1e-8)
    assert other.score(X, shifted) == pytest.approx(first.score(X, Y))
    values = other.predict_survival_function(X, return_array=True)
    if loss == "cox":
        assert_allclose(values, first.predict_survival_function(X, return_array=True), atol=1e-8)
    else:  # a share of the samples dies at once, whatever the output
        assert_allclose(values[:, 0], 1.0 - np.mean(shifted[:, 0] * (shifted[:, 1] == 0)))
        assert np.all(np.diff(values) <= 0)
    assert np.isfinite(values).all()


def test_only_logarithms_need_positive_times():
    shifted = Y - [0.0, Y[:, 1].min()]
    first = np.argmin(shifted[:, 1])
    for model in (MKLSurvival([Linear()]), MKLSurvivalCV([Linear()], loss="censored", Cs=2)):
        with pytest.raises(
            ValueError,
            match=f"time of sample {first} is 0; times must be positive with loss='censored'",
        ):
            model.fit(X, shifted)
