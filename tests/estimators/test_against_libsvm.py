"""Decision values against scikit-learn's LIBSVM on the combined kernel, and against runs done piece
by piece."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.svm import SVC, SVR, OneClassSVM

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear, Polynomial

KERNELS = [("line", Linear()), ("square", Polynomial()), ("bell", Gaussian("median"), [0, 2])]
GIVEN = {"uniform": "uniform", "given": [0.7, 0.0, 1.9]}
TIGHT = {"tol": 1e-9}  # certificates add the rounding of their sums, up to 1e-10 here
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def classes(n_classes=2, n=90, seed=0):
    X, y = make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=n_classes, flip_y=0.1, random_state=seed
    )
    return X[:60], y[:60], X[60:]


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
@pytest.mark.parametrize("weights", GIVEN.values(), ids=GIVEN)
def test_classifier_equals_svc(weights, normalize):
    X, y, X_test = classes()
    model = MKLClassifier(KERNELS, C=3.0, weights=weights, normalize=normalize, **TIGHT).fit(X, y)
    reference = SVC(kernel="precomputed", C=3.0, tol=1e-9).fit(model.kernel_matrix(X), y)
    expected = reference.decision_function(model.kernel_matrix(X_test, X))
    np.testing.assert_allclose(model.decision_function(X_test), expected, **CLOSE)
    np.testing.assert_array_equal(
        model.predict(X_test), reference.predict(model.kernel_matrix(X_test, X))
    )
    assert model.intercept_ == pytest.approx(reference.intercept_, abs=1e-4)


@pytest.mark.parametrize("normalize", ["trace", "diagonal"])
def test_regressor_equals_svr(normalize):
    X, y = make_regression(90, 5, noise=5.0, random_state=1)
    y = y / y.std()
    model = MKLRegressor(
        KERNELS, C=3.0, epsilon=0.2, weights="uniform", normalize=normalize, **TIGHT
    ).fit(X[:60], y[:60])
    reference = SVR(kernel="precomputed", C=3.0, epsilon=0.2, tol=1e-9).fit(
        model.kernel_matrix(X[:60]), y[:60]
    )
    np.testing.assert_allclose(
        model.predict(X[60:]), reference.predict(model.kernel_matrix(X[60:], X[:60])), **CLOSE
    )


@pytest.mark.parametrize("normalize", ["trace", "diagonal"])
@pytest.mark.parametrize("nu", [0.1, 0.6])
def test_one_class_equals_one_class_svm(nu, normalize):
    X, _, X_test = classes(seed=2)
    model = MKLOneClass(KERNELS, nu=nu, weights="uniform", normalize=normalize, **TIGHT).fit(X)
    reference = OneClassSVM(kernel="precomputed", nu=nu, tol=1e-10).fit(model.kernel_matrix(X))
    # LIBSVM's coefficients sum to nu * n, ours to one.
    expected = reference.decision_function(model.kernel_matrix(X_test, X)) / (nu * len(X))
    np.testing.assert_allclose(model.decision_function(X_test), expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        model.score_samples(X_test) - model.offset_, model.decision_function(X_test)
    )
    # Samples on the boundary are worth zero up to the root of the gap, whatever sign rounding gives
    # them.
    assert np.mean(model.decision_function(X) < -1e-5) <= nu


@pytest.mark.parametrize("slack", [1, 2])
@pytest.mark.parametrize("weights", [None, "uniform"])
def test_one_versus_rest_equals_a_run_a_class(weights, slack):
    X, y, X_test = classes(n_classes=3)
    model = MKLClassifier(KERNELS, weights=weights, slack=slack, tol=1e-6).fit(X, y)
    columns, objective = [], 0.0
    for i, label in enumerate(model.classes_):
        one = MKLClassifier(KERNELS, weights=weights, slack=slack, tol=1e-6).fit(X, y == label)
        columns.append(one.decision_function(X_test))
        objective += one.objective_
        np.testing.assert_allclose(model.weights_[i], one.weights_, atol=1e-6)
    np.testing.assert_allclose(
        model.decision_function(X_test), np.column_stack(columns), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(model.predict(X_test), np.column_stack(columns).argmax(axis=1))
    assert model.objective_ == pytest.approx(objective)
    assert model.weights_.shape == (3, 3)
    assert model.kernel_matrix(X_test, X).shape == (3, 30, 60)


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 0.3, 1: 2.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_sample_and_class_weights_equal_svc(class_weight, weighted):
    X, y, X_test = classes(seed=3)
    y[:12] = 1  # so that "balanced" has something to do
    weight = np.random.RandomState(0).uniform(0.2, 3.0, len(y)) if weighted else None
    model = MKLClassifier(KERNELS, weights="uniform", class_weight=class_weight, **TIGHT)
    model.fit(X, y, sample_weight=weight)
    price = np.ones(len(y)) if weight is None else weight
    if class_weight == "balanced":
        # scikit-learn's SVC counts rows here; weights are meant to stand for repetitions.
        totals = [price[y == c].sum() for c in (0, 1)]
        factors = [price.sum() / (2 * total) for total in totals]
    else:
        factors = [1.0, 1.0] if class_weight is None else [class_weight[0], class_weight[1]]
    reference = SVC(kernel="precomputed", tol=1e-9).fit(
        model.kernel_matrix(X), y, sample_weight=price * np.array(factors)[y]
    )
    expected = reference.decision_function(model.kernel_matrix(X_test, X))
    np.testing.assert_allclose(model.decision_function(X_test), expected, **CLOSE)


def test_squared_slack_is_a_hard_margin_with_a_ridge():
    X, y, X_test = classes(seed=4)
    C = 0.7
    model = MKLClassifier(KERNELS, C=C, slack=2, weights="uniform", **TIGHT).fit(X, y)
    K = model.kernel_matrix(X)
    reference = SVC(kernel="precomputed", C=1e8, tol=1e-10).fit(K + np.eye(len(X)) / C, y)
    # The ridge belongs to training samples only: a test sample has no slack.
    expected = reference.decision_function(model.kernel_matrix(X_test, X))
    np.testing.assert_allclose(model.decision_function(X_test), expected, **CLOSE)


def test_squared_slack_in_regression_is_a_hard_tube_with_a_ridge():
    X, y = make_regression(60, 5, noise=5.0, random_state=5)
    y = y / y.std()
    model = MKLRegressor(KERNELS, C=2.0, slack=2, epsilon=0.1, weights="uniform", **TIGHT).fit(X, y)
    K = model.kernel_matrix(X)
    reference = SVR(kernel="precomputed", C=1e8, epsilon=0.1, tol=1e-10).fit(
        K + np.eye(len(X)) / 2.0, y
    )
    np.testing.assert_allclose(model.predict(X), reference.predict(K), **CLOSE)


def test_learned_weights_are_those_of_their_own_machine():
    X, y, X_test = classes(seed=6)
    learned = MKLClassifier(KERNELS, tol=1e-9).fit(X, y)
    assert learned.weights_.sum() == pytest.approx(1.0)
    reference = SVC(kernel="precomputed", tol=1e-9).fit(learned.kernel_matrix(X), y)
    expected = reference.decision_function(learned.kernel_matrix(X_test, X))
    np.testing.assert_allclose(learned.decision_function(X_test), expected, rtol=1e-3, atol=1e-3)
    # and no other weights do better, by LIBSVM's own account
    for weights in np.random.RandomState(0).dirichlet(np.ones(3), size=10):
        assert MKLClassifier(KERNELS, weights=weights, **TIGHT).fit(
            X, y
        ).objective_ >= learned.objective_ * (1 - 1e-8)
