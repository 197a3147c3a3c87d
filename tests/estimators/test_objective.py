"""The value of the training problem and its certificate, recomputed from the fitted model by the
papers' formulas."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial

KERNELS = [Linear(), Polynomial(), Gaussian("median")]
C, EPSILON, NU = 1.7, 0.15, 0.4
TOL = 1e-6
WEIGHTS = [None, "uniform", [0.2, 0.0, 3.0]]
IDS = ["learned", "uniform", "given"]


@pytest.fixture(scope="module")
def samples():
    X, y = make_classification(70, 4, flip_y=0.1, random_state=0)
    return X, y, X[:, 0] + np.sin(3 * X[:, 1])


def signed(model, n):
    """Dual coefficients of all n samples."""
    beta = np.zeros(n)
    beta[model.support_] = model.dual_coef_[0]
    return beta


def kernel_matrices(X):
    """The three kernels at unit trace, by their formulas."""
    products = X @ X.T
    squares = np.square(X[:, None] - X).sum(axis=2)
    width = np.median(np.sqrt(squares)[np.triu_indices(len(X), 1)])
    matrices = [products, (products + 1) ** 2, np.exp(-squares / width**2)]
    return [K * len(X) / np.trace(K) for K in matrices]


def block_norm(model, beta, X):
    """(Σ ‖w_m‖)² where weights were learned, else the norm in the combined kernel's own space, Σ
    η_m βᵀK_mβ."""
    squares = np.array([beta @ K @ beta for K in kernel_matrices(X)])
    if model.weights is not None:
        return model.weights_ @ squares
    return float((model.weights_ * np.sqrt(squares)).sum() ** 2)


@pytest.mark.parametrize("weights", WEIGHTS, ids=IDS)
@pytest.mark.parametrize("slack", [1, 2])
def test_classification(samples, weights, slack):
    X, y, _ = samples
    model = MKLClassifier(KERNELS, C=C, slack=slack, weights=weights, tol=TOL).fit(X, y)
    sign, beta = np.where(y == model.classes_[1], 1.0, -1.0), signed(model, len(X))
    alpha = sign * beta
    assert alpha.min() >= 0
    assert beta.sum() == pytest.approx(0, abs=1e-9)
    quadratic = beta @ model.kernel_matrix(X) @ beta
    slacks = np.maximum(0, 1 - sign * model.decision_function(X))
    norm = block_norm(model, beta, X)
    if slack == 1:
        assert alpha.max() <= C * (1 + 1e-12)
        dual, primal = alpha.sum() - 0.5 * quadratic, 0.5 * norm + C * slacks.sum()
    else:
        dual, primal = 2 * alpha.sum() - quadratic - alpha @ alpha / C, norm + C * slacks @ slacks
    check_value(model, primal, dual)


@pytest.mark.parametrize("weights", WEIGHTS, ids=IDS)
@pytest.mark.parametrize("slack", [1, 2])
def test_regression(samples, weights, slack):
    X, _, y = samples
    model = MKLRegressor(KERNELS, C=C, epsilon=EPSILON, slack=slack, weights=weights, tol=TOL).fit(
        X, y
    )
    beta = signed(model, len(X))
    assert beta.sum() == pytest.approx(0, abs=1e-9)
    quadratic = beta @ model.kernel_matrix(X) @ beta
    linear = y @ beta - EPSILON * np.abs(beta).sum()
    slacks = np.maximum(0, np.abs(y - model.predict(X)) - EPSILON)
    norm = block_norm(model, beta, X)
    if slack == 1:
        assert np.abs(beta).max() <= C * (1 + 1e-12)
        dual, primal = linear - 0.5 * quadratic, 0.5 * norm + C * slacks.sum()
    else:
        dual, primal = 2 * linear - quadratic - beta @ beta / C, norm + C * slacks @ slacks
    check_value(model, primal, dual)


@pytest.mark.parametrize("weights", WEIGHTS, ids=IDS)
def test_novelty(samples, weights):
    X, _, _ = samples
    model = MKLOneClass(KERNELS, nu=NU, weights=weights, tol=TOL).fit(X)
    beta, price = signed(model, len(X)), 1 / (NU * len(X))
    assert beta.min() >= 0
    assert beta.max() <= price * (1 + 1e-12)
    assert beta.sum() == pytest.approx(1.0)
    slacks = np.maximum(0, -model.decision_function(X))
    dual = -0.5 * beta @ model.kernel_matrix(X) @ beta
    primal = 0.5 * block_norm(model, beta, X) + price * slacks.sum() + model.intercept_[0]
    check_value(model, primal, dual)


def check_value(model, primal, dual):
    assert model.duality_gap_ <= TOL
    scale = max(abs(primal), abs(dual))
    assert primal >= dual - 1e-9 * scale
    # Away from the optimum in β by √gap, the learned problem's norm is off by as much to first
    # order at most.
    assert primal == pytest.approx(dual, rel=1e-4 if model.weights is None else 2 * TOL)
    assert model.objective_ == pytest.approx(dual, rel=2 * TOL)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("penalties", [None, [0.5, 1.0, 2.0]])
def test_the_weights_obey_their_norm(samples, norm, penalties):
    X, y, _ = samples
    model = MKLClassifier(KERNELS, norm=norm, penalties=penalties).fit(X, y)
    d = np.ones(3) if penalties is None else np.array(penalties)
    assert np.linalg.norm(d**2 * model.weights_, ord=norm) == pytest.approx(1.0)
    assert np.all(model.weights_ >= 0)


def test_what_is_counted(samples):
    X, y, _ = samples
    model = MKLClassifier(KERNELS, tol=1e-5).fit(X, y)
    assert model.n_support_.tolist() == [
        int((y[model.support_] == c).sum()) for c in model.classes_
    ]
    assert model.n_support_.sum() == len(model.support_) == model.dual_coef_.shape[1]
    assert model.support_fraction_ == len(model.support_) / len(X)
    assert np.all(np.diff(model.support_) > 0)
    assert model.n_iter_ == len(model.history_) <= model.n_solves_
    assert model.history_[-1]["gap"] == model.duality_gap_ <= 1e-5
    assert model.history_[-1]["objective"] == pytest.approx(model.objective_)
    gaps = [step["gap"] for step in model.history_]
    assert gaps == sorted(gaps, reverse=True)
    assert [step["iteration"] for step in model.history_] == list(range(1, model.n_iter_ + 1))
    fixed = MKLClassifier(KERNELS, weights="uniform").fit(X, y)
    assert (fixed.n_iter_, fixed.n_solves_) == (1, 1)


def test_the_history_tells_the_classes_apart(samples):
    X, _, target = samples
    y = np.digitize(target, [-0.7, 0.7])
    model = MKLClassifier(KERNELS, slack=2).fit(X, y)
    assert {step["output"] for step in model.history_} == {0, 1, 2}
    last = {step["output"]: step["objective"] for step in model.history_}
    assert sum(last.values()) == pytest.approx(model.objective_)
    assert model.n_support_.shape == (3,)


def test_the_cost_by_hand(samples):
    X, y, _ = samples
    model = MKLClassifier(KERNELS, weights=[0.5, 0.0, 0.5]).fit(X, y)
    # Of the costs 1, 2 and 5, the active kernels carry 6 of 8.
    assert model.cost([1, 2, 5]) == pytest.approx(len(model.support_) * 6 / 8)
    assert model.cost([0, 3, 0]) == 0.0
    two_points = MKLClassifier([Linear(), Gaussian(1.0)], weights=[1, 0]).fit(
        [[-1.0], [1.0]], [0, 1]
    )
    assert two_points.cost([1, 3]) == pytest.approx(2 * 1 / 4)
    for costs in ([1, 2], [1, -2, 5], [0, 0, 0]):
        with pytest.raises(ValueError, match="costs"):
            model.cost(costs)


def test_given_and_learned_weights_report_the_same_side_of_the_gap():
    X, y = make_gaussians(n_components=4, n_samples=60, random_state=0)
    kernel = [("bell", Gaussian(1.0))]
    loose = [
        MKLClassifier(kernel, weights=w, tol=0.05).fit(X, y).objective_ for w in (None, "uniform")
    ]
    exact = MKLClassifier(kernel, tol=1e-10).fit(X, y).objective_
    # Both are primal values: no less than the optimum.
    assert min(loose) >= exact * (1 - 1e-9)


def test_the_advice_is_that_of_the_loosest_class():
    X, y = make_gaussians(n_components=4, n_samples=60, random_state=0)
    labels = np.where(y > 0, 2, 1)
    labels[0] = 0
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        MKLClassifier(max_iter=2, tol=1e-9).fit(X, labels)
