"""One weight per kernel for several outputs: LIBSVM and a search over the weights as the
reference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import SVC as LibSVC
from sklearn.svm import SVR as LibSVR

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier, MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear

X, y = load_iris(return_X_y=True)
X = ((X - X.mean(axis=0)) / X.std(axis=0))[::2]
y = y[::2]
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2], X[:, 3]])
KERNELS = [("line", Linear()), ("bell", Gaussian(1.0))]
MATRICES = [X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(-1))]
MATRICES = [K / np.trace(K) * len(K) for K in MATRICES]


def libsvm_classes(K):
    """The objectives of the one-versus-rest machines on K, added."""
    total = 0.0
    for c in range(3):
        model = LibSVC(C=2.0, kernel="precomputed", tol=1e-8).fit(K, y == c)
        beta = np.zeros(len(K))
        beta[model.support_] = model.dual_coef_[0]
        total += np.abs(beta).sum() - 0.5 * beta @ K @ beta
    return total


def libsvm_targets(K):
    """The objectives of the regressions of each target on K, added."""
    total = 0.0
    for t in Y.T:
        model = LibSVR(C=2.0, epsilon=0.1, kernel="precomputed", tol=1e-8).fit(K, t)
        beta = np.zeros(len(K))
        beta[model.support_] = model.dual_coef_[0]
        total += t @ beta - 0.1 * np.abs(beta).sum() - 0.5 * beta @ K @ beta
    return total


def best_weights(value):
    """The weights of norm one between the two kernels at which LIBSVM's value is least, and that
    value."""
    found = minimize_scalar(
        lambda a: value(a * MATRICES[0] + (1 - a) * MATRICES[1]),
        bounds=(0, 1),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return np.array([found.x, 1 - found.x]), found.fun


@pytest.fixture(scope="module")
def classes():
    return best_weights(libsvm_classes)


@pytest.fixture(scope="module")
def targets():
    return best_weights(libsvm_targets)


SETTINGS = [{}, {"approximation": "nystroem", "rank": 200}]


@pytest.mark.parametrize("setting", SETTINGS, ids=["exact", "full rank"])
def test_classes_share_the_weights_of_the_least_sum(classes, setting):
    model = MKLClassifier(KERNELS, C=2.0, multi_class="ovr-shared", tol=1e-7, **setting).fit(X, y)
    weights, value = classes
    assert 0.05 < weights[0] < 0.95  # else the corner would be found by anyone
    assert model.duality_gap_ <= 1e-7
    np.testing.assert_allclose(model.objective_, value, rtol=1e-5)
    np.testing.assert_allclose(model.weights_, weights, atol=1e-3)
    assert model.decision_function(X).shape == (len(X), 3)
    np.testing.assert_allclose(
        model.contributions(X).sum(axis=1) + model.intercept_, model.decision_function(X)
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=["exact", "full rank"])
def test_targets_share_the_weights_of_the_least_sum(targets, setting):
    model = MKLRegressor(KERNELS, C=2.0, epsilon=0.1, tol=1e-7, **setting).fit(X, Y)
    weights, value = targets
    assert 0.05 < weights[0] < 0.95
    np.testing.assert_allclose(model.objective_, value, rtol=1e-5)
    np.testing.assert_allclose(model.weights_, weights, atol=1e-3)
    assert model.predict(X).shape == Y.shape
    assert model.dual_coef_.shape == (3, len(model.support_))
    assert model.score(X, Y) > 0.9


def test_the_gap_is_what_the_coefficients_say():
    model = MKLRegressor(KERNELS, C=2.0, epsilon=0.1, tol=1e-3).fit(X, Y)
    beta = np.zeros((len(X), 3))
    beta[model.support_] = model.dual_coef_.T
    np.testing.assert_allclose(beta.sum(axis=0), 0.0, atol=1e-9)
    assert np.abs(beta).max() <= 2.0 + 1e-9
    forms = [0.5 * np.sum(beta * (K @ beta)) for K in MATRICES]
    dual = np.sum(Y * beta) - 0.1 * np.abs(beta).sum() - max(forms)
    errors = np.maximum(np.abs(Y - model.predict(X)) - 0.1, 0.0)
    primal = model.weights_ @ forms + 2.0 * errors.sum()
    assert (primal - dual) / primal <= model.duality_gap_ + 1e-9 <= 1e-3 + 1e-9


@pytest.mark.parametrize(
    "setting", [{"loss": "huber"}, {"loss": "squared"}, {"slack": 2}, {"norm": 2}], ids=str
)
def test_at_the_shared_weights_every_target_is_its_own_regression(setting):
    model = MKLRegressor(KERNELS, C=2.0, tol=1e-6, **setting).fit(X, Y)
    each = [
        MKLRegressor(KERNELS, C=2.0, weights=model.weights_, tol=1e-8, **setting).fit(X, t)
        for t in Y.T
    ]
    np.testing.assert_allclose(model.objective_, sum(one.objective_ for one in each), rtol=1e-5)
    for move in (0.02, -0.02):  # and no other weights on the same norm are better
        eta = np.abs(model.weights_ + np.array([move, -move]))
        eta /= np.sum(eta ** setting.get("norm", 1)) ** (1 / setting.get("norm", 1))
        others = [
            MKLRegressor(KERNELS, C=2.0, weights=eta, tol=1e-8, **setting).fit(X, t) for t in Y.T
        ]
        assert sum(one.objective_ for one in others) > model.objective_


def test_one_column_and_a_vector_are_the_same_regression():
    flat, column = (MKLRegressor(KERNELS).fit(X, t) for t in (Y[:, 0], Y[:, :1]))
    np.testing.assert_array_equal(flat.predict(X), column.predict(X)[:, 0])
    assert column.predict(X).shape == (len(X), 1)


def test_two_classes_are_the_binary_machine():
    two = y < 2
    shared, plain = (
        MKLClassifier(KERNELS, multi_class=way).fit(X[two], y[two]) for way in ("ovr-shared", "ovr")
    )
    np.testing.assert_array_equal(shared.decision_function(X), plain.decision_function(X))


def test_repeated_samples_are_told_apart_by_all_their_targets():
    twice, both = np.r_[X, X[:5]], np.r_[Y, Y[:5] + np.array([0.0, 0.0, 1.0])]
    weight = np.ones(len(twice))
    weight[3] = 2.0
    longer = MKLRegressor(KERNELS, tol=1e-8).fit(np.r_[twice, X[3:4]], np.r_[both, Y[3:4]])
    weighted = MKLRegressor(KERNELS, tol=1e-8).fit(twice, both, sample_weight=weight)
    np.testing.assert_allclose(longer.predict(X), weighted.predict(X), atol=1e-6)


def test_large_sets_start_from_a_part():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(1200, 3))
    B = np.column_stack([np.sin(2 * A[:, 0]), A[:, 1] ** 2]) + 0.1 * rng.normal(size=(1200, 2))
    model = MKLRegressor([Linear(), Gaussian(1.0), Gaussian(2.0)]).fit(A, B)
    assert model.duality_gap_ <= 1e-3


def test_gates_are_shared_too():
    model = LocalizedMKLClassifier(KERNELS, multi_class="ovr-shared", n_init=1, random_state=0).fit(
        X, y
    )
    assert model.gate(X).shape == (len(X), 2)
    assert model.decision_function(X).shape == (len(X), 3)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize(
    "solver", ["reduced_gradient", "silp", "qcqp", "sdp", "alignment", "easymkl"]
)
def test_solvers_of_one_output_say_so(solver):
    with pytest.raises(ValueError, match=f"solver='{solver}' supports machines with one output"):
        MKLRegressor(KERNELS, solver=solver).fit(X, Y)


def test_in_a_grid_search():
    search = GridSearchCV(
        MKLRegressor(KERNELS), {"C": [0.01, 10.0]}, cv=KFold(3, shuffle=True, random_state=0)
    ).fit(X, Y)
    assert search.best_params_ == {"C": 10.0}


@pytest.mark.torch
def test_on_a_device(targets):
    model = MKLRegressor(KERNELS, C=2.0, epsilon=0.1, tol=1e-6, device="cpu").fit(X, Y)
    np.testing.assert_allclose(model.objective_, targets[1], rtol=1e-5)
