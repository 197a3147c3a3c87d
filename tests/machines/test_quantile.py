"""The pinball loss: against linear programs by HiGHS, the printed quadratic program by Clarabel,
and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog, minimize_scalar
from sklearn.base import clone
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import make_scorer, mean_pinball_loss
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import LocalizedMKLRegressor, MKLRegressor, MKLRegressorCV, load, save
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.machines.base import SVR, Quantile

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 2))
#: Noise that grows to the right, so that the quantiles of a linear kernel cross to the left.
Y = X[:, 0] + 0.5 * np.exp(0.7 * X[:, 0]) * RNG.standard_normal(60)
NEW = 3.0 * RNG.standard_normal((200, 2))
WEIGHT = RNG.randint(0, 3, 60).astype(float)
KERNELS = [("line", Linear()), ("bell", Gaussian(1.5))]
MATRICES = [X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(-1) / 1.5**2)]
MATRICES = [K / np.trace(K) * len(K) for K in MATRICES]
THREE = [0.1, 0.5, 0.9]


def pinball(r, q):
    return np.maximum(q * r, (q - 1) * r)


def printed_primal(K, y, sample_C, q):
    """min ½‖w‖² + Σ Cᵢ (q uᵢ + (1 − q) vᵢ) with yᵢ − f(xᵢ) = uᵢ − vᵢ and u, v ≥ 0, by Clarabel: the
    value and f."""
    clarabel = pytest.importorskip("clarabel")
    from tests.reference.conic import factor

    L = factor(K)
    n, rank = L.shape
    # The variables are w, b, u and v.
    P = sparse.diags(np.concatenate([np.ones(rank), np.zeros(1 + 2 * n)]), format="csc")
    c = np.concatenate([np.zeros(rank + 1), q * sample_C, (1 - q) * sample_C])
    equal = np.hstack([L, np.ones((n, 1)), np.eye(n), -np.eye(n)])
    signs = np.hstack([np.zeros((2 * n, rank + 1)), -np.eye(2 * n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    cones = [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(2 * n)]
    A, b = sparse.csc_matrix(np.vstack([equal, signs])), np.concatenate([y, np.zeros(2 * n)])
    found = clarabel.DefaultSolver(P, c, A, b, cones, settings).solve()
    x = np.array(found.x)
    return found.obj_val, L @ x[:rank] + x[rank]


def linear_program(Z, y, q):
    """The least Σ pinball(y − Zw − b) over w and b, by HiGHS: the value, w and b."""
    n, d = Z.shape
    equal = np.hstack([Z, np.ones((n, 1)), np.eye(n), -np.eye(n)])
    cost = np.concatenate([np.zeros(d + 1), np.full(n, q), np.full(n, 1 - q)])
    bounds = [(None, None)] * (d + 1) + [(0, None)] * (2 * n)
    found = linprog(cost, A_eq=equal, b_eq=y, bounds=bounds, method="highs")
    return found.fun, found.x[:d], found.x[d]


# One quantile -------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_equals_the_printed_primal_problem(C, q):
    K = MATRICES[0] + MATRICES[1]
    machine = Quantile(Y, C, q, 1.0 + WEIGHT)
    found = machine.solve(K, tol=1e-9)
    optimum, values = printed_primal(K, Y, C * (1.0 + WEIGHT), q)
    assert found.gap <= 1e-9
    assert found.objective == pytest.approx(optimum, rel=1e-6)
    assert machine.primal_value(found) == pytest.approx(optimum, rel=1e-6)
    assert_allclose(found.values + found.intercept, values, atol=1e-3)


@pytest.mark.parametrize("q", [0.2, 0.5, 0.9])
def test_without_a_penalty_it_is_the_linear_program_and_that_of_scikit_learn(q):
    value, w, b = linear_program(X, Y, q)
    model = MKLRegressor(
        [Linear()], loss="quantile", quantile=q, C=1e4, weights=[1.0], normalize=None, tol=1e-6
    ).fit(X, Y)
    assert pinball(Y - model.predict(X), q).sum() == pytest.approx(value, rel=1e-5)
    assert_allclose(model.predict(NEW), NEW @ w + b, atol=1e-3)
    theirs = QuantileRegressor(quantile=q, alpha=0.0).fit(X, Y)
    assert_allclose(model.predict(NEW), theirs.predict(NEW), atol=1e-3)


def test_the_median_is_regression_without_a_tube_at_half_the_price():
    K = MATRICES[1]
    median, tubeless = Quantile(Y, 2.0, 0.5).solve(K, tol=1e-9), SVR(Y, 1.0, 0.0).solve(K, tol=1e-9)
    assert median.objective == pytest.approx(tubeless.objective, rel=1e-7)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_so_many_targets_are_below(q):
    model = MKLRegressor(KERNELS, loss="quantile", quantile=q, C=3.0, tol=1e-8).fit(X, Y)
    beta = np.zeros(60)
    beta[model.support_] = model.dual_coef_[0]
    # Samples strictly between the bounds are on the function; the others are on the side that their
    # bound says.
    free = np.sum((beta > 3.0 * (q - 1) + 1e-6) & (beta < 3.0 * q - 1e-6))
    below, at_most = np.mean(Y - model.predict(X) < -1e-4), np.mean(Y - model.predict(X) <= 1e-4)
    assert 0 < free < 15
    assert q - free / 60 - 1e-9 <= below <= q + 1e-9
    assert q - 1e-9 <= at_most <= q + free / 60 + 1e-9


@pytest.mark.parametrize("solver", ["reduced_gradient", "silp", "qcqp", "sdp"])
def test_all_solvers_agree(solver):
    if solver in ("qcqp", "sdp"):
        pytest.importorskip("clarabel")
    setting = {"loss": "quantile", "quantile": 0.8, "C": 2.0, "tol": 1e-5}
    # Weights of any sign, as "sdp" has them, are no better here than those that are not negative.
    ours, other = (
        MKLRegressor(KERNELS, solver=name, **setting).fit(X[:30], Y[:30])
        for name in ("newton", solver)
    )
    assert other.objective_ == pytest.approx(ours.objective_, rel=1e-4)


# Several ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three():
    return MKLRegressor(KERNELS, loss="quantile", quantile=THREE, C=2.0, tol=1e-7).fit(X, Y)


def test_quantiles_share_the_weights_of_the_least_sum(three):
    def value(a):
        K = a * MATRICES[0] + (1 - a) * MATRICES[1]
        return sum(printed_primal(K, Y, np.full(60, 2.0), q)[0] for q in THREE)

    found = minimize_scalar(value, bounds=(0, 1), method="bounded", options={"xatol": 1e-4})
    assert 0.05 < found.x < 0.95  # else the corner would be found by anyone
    assert three.duality_gap_ <= 1e-7
    assert three.objective_ == pytest.approx(found.fun, rel=1e-6)
    assert_allclose(three.weights_, [found.x, 1 - found.x], atol=1e-2)
    assert three.predict(X).shape == (60, 3)
    assert three.dual_coef_.shape == (3, len(three.support_))


def test_the_gap_is_what_the_coefficients_say():
    model = MKLRegressor(KERNELS, loss="quantile", quantile=THREE, C=2.0, tol=1e-3).fit(X, Y)
    q = np.array(THREE)
    beta = np.zeros((60, 3))
    beta[model.support_] = model.dual_coef_.T
    assert_allclose(beta.sum(axis=0), 0.0, atol=1e-9)
    assert np.all((beta >= 2.0 * (q - 1) - 1e-12) & (beta <= 2.0 * q + 1e-12))
    forms = [0.5 * np.sum(beta * (K @ beta)) for K in MATRICES]
    dual = np.sum(Y[:, None] * beta) - max(forms)
    outputs = model.contributions(X).sum(axis=1) + model.intercept_
    primal = model.weights_ @ forms + 2.0 * pinball(Y[:, None] - outputs, q).sum()
    assert model.objective_ == pytest.approx(primal, rel=1e-9)
    assert (primal - dual) / primal <= model.duality_gap_ + 1e-9 <= 1e-3 + 1e-9


def test_predictions_do_not_cross_and_lose_nothing_by_it():
    q = np.array([0.3, 0.4, 0.5, 0.6, 0.7])
    model = MKLRegressor([Linear()], loss="quantile", quantile=list(q), C=100.0).fit(X, Y)
    outputs = model.contributions(NEW).sum(axis=1) + model.intercept_
    crossed = np.any(np.diff(outputs, axis=1) < 0, axis=1)
    assert 20 < crossed.sum() < 180  # else there is nothing to put in order
    predicted = model.predict(NEW)
    assert np.all(np.diff(predicted, axis=1) >= 0)
    assert_array_equal(predicted[~crossed], outputs[~crossed])
    for target in (NEW[:, 0], NEW[:, 0] + 2, -NEW[:, 1]):
        before, after = (pinball(target[:, None] - f, q).sum(axis=1) for f in (outputs, predicted))
        assert np.all(after <= before + 1e-12)
        assert np.all(after[crossed] <= before[crossed] + 1e-12)


def test_one_in_a_list_is_a_column():
    flat, column = (
        MKLRegressor(KERNELS, loss="quantile", quantile=q).fit(X, Y) for q in (0.7, [0.7])
    )
    assert_array_equal(flat.predict(X), column.predict(X)[:, 0])
    both = MKLRegressor(KERNELS, loss="quantile", quantile=0.7).fit(X, np.column_stack([Y, -Y]))
    assert both.predict(X).shape == (60, 2)
    # Columns of targets are no quantiles, and stay where they are.
    assert np.mean(both.predict(X)[:, 0] > both.predict(X)[:, 1]) > 0.2


def test_scores_are_pinball_losses(three):
    each = list(zip(THREE, three.predict(X).T, strict=True))
    assert three.score(X, Y) == pytest.approx(
        -np.mean([mean_pinball_loss(Y, f, alpha=q) for q, f in each])
    )
    weighted = -np.mean([np.average(pinball(Y - f, q), weights=WEIGHT) for q, f in each])
    assert three.score(X, Y, WEIGHT) == pytest.approx(weighted)


# In all surroundings ------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [0.8, THREE], ids=str)
def test_weights_of_samples_count_as_repeats(quantile):
    plain = MKLRegressor(KERNELS, loss="quantile", quantile=quantile, tol=1e-8)
    rows = np.repeat(np.arange(60), WEIGHT.astype(int))
    weighted, repeated = (
        clone(plain).fit(X, Y, sample_weight=WEIGHT),
        clone(plain).fit(X[rows], Y[rows]),
    )
    assert_allclose(weighted.predict(NEW), repeated.predict(NEW), atol=1e-5)


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
def test_in_features(approximation, three):
    params = three.get_params(deep=False) | {
        "approximation": approximation,
        "rank": 60,
        "random_state": 0,
    }
    model = MKLRegressor(**params | {"tol": 1e-5}).fit(X, Y)
    assert model.duality_gap_ <= 1e-5
    if approximation == "nystroem":  # of full rank
        assert model.objective_ == pytest.approx(three.objective_, rel=1e-4)
        assert_allclose(model.predict(X), three.predict(X), atol=2e-2)


def test_many_samples():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(700, 2))
    b = np.sin(2 * A[:, 0]) + (0.2 + 0.2 * (A[:, 1] > 0)) * rng.normal(size=700)
    model = MKLRegressor(
        [Linear(), Gaussian(1.0)], loss="quantile", quantile=[0.05, 0.95], weights="uniform", C=5.0
    )
    low, high = model.fit(A, b).predict(A).T
    assert model.duality_gap_ <= 1e-3
    assert np.mean(b < low) == pytest.approx(0.05, abs=0.02)
    assert np.mean(b > high) == pytest.approx(0.05, abs=0.02)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gates():
    model = LocalizedMKLRegressor(
        [Linear(), Linear()],
        loss="quantile",
        quantile=THREE,
        n_init=1,
        max_iter=1,
        tol=0.3,
        random_state=0,
    )
    predicted = model.fit(X, Y).predict(X)
    assert predicted.shape == (60, 3)
    assert np.all(np.diff(predicted, axis=1) >= 0)


@pytest.mark.parametrize("quantile", [0.8, [0.2, 0.8]], ids=str)
def test_a_path_has_the_scores_of_a_grid_search(quantile):
    plain = MKLRegressor(KERNELS, loss="quantile", quantile=quantile, tol=1e-5)
    scoring = (
        make_scorer(mean_pinball_loss, alpha=quantile, greater_is_better=False)
        if quantile == 0.8
        else None
    )
    pipeline = make_pipeline(StandardScaler(), plain)
    search = GridSearchCV(pipeline, {"mklregressor__C": [0.1, 10.0]}, cv=2, scoring=scoring).fit(
        X, Y
    )
    model = MKLRegressorCV(
        KERNELS, loss="quantile", quantile=quantile, Cs=[0.1, 10], norms=[1], cv=2, tol=1e-5
    ).fit(X, Y)
    assert_allclose(model.scores_.mean(axis=0), search.cv_results_["mean_test_score"], atol=1e-3)
    assert search.best_params_["mklregressor__C"] == model.C_
    assert np.all(model.scores_ < 0)
    assert_allclose(model.predict(NEW), search.predict(NEW), atol=2e-2)


def test_folds_of_one_sample_have_a_score():
    model = MKLRegressorCV(
        [Linear()], loss="quantile", quantile=0.7, Cs=[1.0], cv=LeaveOneOut()
    ).fit(X[:12], Y[:12])
    assert np.isfinite(model.best_score_)


def test_model_files(tmp_path, three):
    pytest.importorskip("skops")
    save(three, tmp_path / "three.skops")
    again = load(tmp_path / "three.skops")
    assert_array_equal(again.predict(NEW), three.predict(NEW))
    assert again.quantile == THREE


@pytest.mark.torch
def test_on_a_device(three):
    pytest.importorskip("torch", reason="torch is not installed")
    model = MKLRegressor(**three.get_params(deep=False) | {"device": "cpu", "tol": 1e-6}).fit(X, Y)
    assert model.objective_ == pytest.approx(three.objective_, rel=1e-5)


@pytest.mark.parametrize(
    "quantile", [0, 1, 1.5, -0.1, np.nan, True, "median", None, [], [0.9, 0.1], [0.5, 0.5], [[0.1]]]
)
def test_wrong_quantiles(quantile):
    with pytest.raises(
        ValueError,
        match=r"quantile=.*: give a number between 0 and 1, or a list of several in incr",
    ):
        MKLRegressor(loss="quantile", quantile=quantile).fit(X, Y)


def test_refusals():
    with pytest.raises(
        ValueError, match=r"quantile=\[0\.1, 0\.9\]: several quantiles need a single target, but y"
    ):
        MKLRegressor(loss="quantile", quantile=[0.1, 0.9]).fit(X, np.column_stack([Y, Y, Y]))
    with pytest.raises(ValueError, match="solver='silp' supports machines with one output"):
        MKLRegressor(KERNELS, loss="quantile", quantile=[0.1, 0.9], solver="silp").fit(X, Y)
    # Another loss does not read it.
    assert MKLRegressor(KERNELS, quantile=[0.1, 0.9]).fit(X, Y).predict(X).shape == (60,)
