"""The discriminant classifier: what it promises of weights, objective, projections and
decisions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from tests.reference.criteria import least_squares_value, within_class_value
from tests.reference.discriminant import solve_kim

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.discriminant.machine import binary_targets, class_targets
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, family

WIDTHS = [0.5, 2.0, 8.0]


def make_data(classes=3, n=90):
    X, y = load_wine(return_X_y=True)
    keep = np.random.RandomState(0).permutation(np.flatnonzero(y < classes))[:n]
    return StandardScaler().fit_transform(X[keep]), np.array(["red", "rose", "white"])[y[keep]]


def make_model(**params):
    return DiscriminantMKLClassifier(family(Gaussian(), width=WIDTHS), **params)


def grams(X, Y=None):
    Y = X if Y is None else Y
    D = ((X[:, np.newaxis] - Y) ** 2).sum(axis=2)
    return np.array([np.exp(-D / width**2) for width in WIDTHS])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("formulation", ["newton", "silp", "qcqp"])
def test_objective_and_weights_follow_the_formula(classes, formulation):
    X, y = make_data(classes)
    model = make_model(solver=formulation, alpha=1e-3).fit(X, y)
    labels = np.searchsorted(model.classes_, y)
    targets = binary_targets(labels)[:, np.newaxis] if classes == 2 else class_targets(labels)
    K = np.tensordot(model.weights_, grams(X), 1)
    n = len(y)
    Pi = np.eye(n) - 1.0 / n
    assert np.trace(Pi @ K @ Pi) == pytest.approx(1.0)
    assert model.trace_shares_.sum() == pytest.approx(1.0)
    assert model.objective_ == pytest.approx(least_squares_value(K, targets, 1e-3), rel=1e-7)
    assert 0 <= model.duality_gap_ <= 5e-4
    np.testing.assert_allclose(model.kernel_matrix(X), K, atol=1e-12)
    assert model.history_[-1]["gap"] == model.duality_gap_
    assert [row["iteration"] for row in model.history_] == list(range(1, model.n_iter_ + 1))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("decision", ["least_squares", "centroid"])
def test_decision_is_the_sum_of_contributions_and_of_the_dual_expansion(classes, decision):
    X, y = make_data(classes)
    model = make_model(decision=decision).fit(X[:60], y[:60])
    scores = model.decision_function(X)
    columns = scores[:, np.newaxis] if classes == 2 else scores
    expansion = (
        model.kernel_matrix(X, X[:60][model.support_]) @ model.dual_coef_.T + model.intercept_
    )
    np.testing.assert_allclose(columns, expansion, atol=1e-8)
    np.testing.assert_allclose(
        model.contributions(X).sum(axis=1) + model.intercept_.squeeze(), scores, atol=1e-8
    )
    expected = model.classes_[(scores > 0).astype(int) if classes == 2 else scores.argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.score(X[60:], y[60:]) > 0.85


def test_transform_centres_new_samples_as_the_training_set():
    X, y = make_data()
    model = make_model(alpha=1e-2).fit(X[:60], y[:60])
    n = 60
    K, k = (np.tensordot(model.weights_, grams(A, X[:60]), 1) for A in (X[:60], X[60:]))
    Pi = np.eye(n) - 1.0 / n
    G = Pi @ K @ Pi
    rows = (k - K.mean(axis=0)) @ Pi
    H = class_targets(np.searchsorted(model.classes_, y[:60]))
    fitted = rows @ np.linalg.solve(G + 1e-2 * np.eye(n), H)
    Z = model.transform(X[60:])
    assert Z.shape == (len(X) - 60, 2)
    # The projections span what the least-squares fit of the targets does.
    residual = fitted - Z @ np.linalg.lstsq(Z, fitted, rcond=None)[0]
    np.testing.assert_allclose(residual, 0.0, atol=1e-9)
    T = model.transform(X[:60])
    np.testing.assert_allclose(T.mean(axis=0), 0.0, atol=1e-9)
    assert list(model.get_feature_names_out()) == [
        "discriminantmklclassifier0",
        "discriminantmklclassifier1",
    ]
    assert model.explained_ratio_.sum() == pytest.approx(1.0)
    assert model.explained_ratio_[0] >= model.explained_ratio_[1]


def test_least_squares_rule_is_ridge_regression_of_the_indicators():
    X, y = make_data(3)
    model = DiscriminantMKLClassifier([Linear()], weights=[1.0], normalize=None, alpha=3.0).fit(
        X, y
    )
    indicators = (y[:, np.newaxis] == model.classes_).astype(float)
    np.testing.assert_allclose(
        model.decision_function(X), Ridge(alpha=3.0).fit(X, indicators).predict(X), atol=1e-9
    )
    X, y = make_data(2)
    model.fit(X, y)
    signs = np.where(y == model.classes_[1], 1.0, -1.0)
    np.testing.assert_allclose(
        model.decision_function(X), Ridge(alpha=3.0).fit(X, signs).predict(X), atol=1e-9
    )


def test_centroid_rule_is_the_nearest_projected_centroid():
    X, y = make_data(3)
    model = make_model(decision="centroid").fit(X[:60], y[:60])
    T, Z = model.transform(X[:60]), model.transform(X)
    centroids = np.array([T[y[:60] == c].mean(axis=0) for c in model.classes_])
    nearest = ((Z[:, np.newaxis] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[nearest])


def test_linear_kernel_without_regulariser_is_linear_discriminant_analysis():
    X, y = load_iris(return_X_y=True)
    model = DiscriminantMKLClassifier([Linear()], alpha=1e-7, normalize=None).fit(X, y)
    theirs = LinearDiscriminantAnalysis().fit(X, y).transform(X)
    ours = model.transform(X)
    for a, b in zip(ours.T, theirs.T, strict=True):
        assert abs(np.corrcoef(a, b)[0, 1]) == pytest.approx(1.0, abs=1e-6)


def test_learned_regulariser_shares_the_trace():
    X, y = make_data()
    model = make_model(alpha="learn", solver="newton").fit(X, y)
    other = make_model(alpha="learn", solver="silp").fit(X, y)
    assert model.trace_shares_.sum() + len(y) * model.alpha_ == pytest.approx(1.0)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-3)
    labels = np.searchsorted(model.classes_, y)
    K = np.tensordot(model.weights_, grams(X), 1)
    value = least_squares_value(K, class_targets(labels), model.alpha_) / model.alpha_
    assert model.objective_ == pytest.approx(value, rel=1e-6)


def test_uniform_weights_are_equal_and_on_the_same_simplex():
    X, y = make_data()
    uniform, learned = make_model(weights="uniform").fit(X, y), make_model().fit(X, y)
    assert np.ptp(uniform.weights_) == 0
    assert uniform.trace_shares_.sum() == pytest.approx(1.0)
    assert learned.objective_ <= uniform.objective_
    given = make_model(weights=uniform.weights_).fit(X, y)
    np.testing.assert_allclose(given.decision_function(X), uniform.decision_function(X))


def test_kim_learns_on_the_plain_simplex():
    X, y = make_data(2, n=40)
    model = make_model(solver="kim", alpha=0.01).fit(X, y)
    assert model.weights_.sum() == pytest.approx(1.0)
    # λ and the value are those of the within-class criterion, of which no other weights have more.
    assert model.alpha_ == 0.01
    labels = np.searchsorted(model.classes_, y)

    def value(theta):
        return within_class_value(np.tensordot(theta, grams(X), 1), labels, 0.01)

    assert model.objective_ == pytest.approx(value(model.weights_), rel=1e-8)
    assert model.history_[-1]["objective"] == model.objective_
    rivals = np.random.RandomState(0).dirichlet(np.ones(len(model.weights_)), 50)
    best = max(map(value, [*rivals, *np.eye(len(model.weights_))]))
    assert model.objective_ >= best * (1 - model.duality_gap_)
    assert model.duality_gap_ <= model.tol
    # The rule is that of least squares with m times this λ.
    plain = make_model(weights=model.weights_, alpha=0.01 * len(y)).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), plain.decision_function(X), rtol=1e-7, atol=1e-9
    )
    # The same by a conic solver, from the program as printed.
    optimum, theta = solve_kim(grams(X), y, 0.01)
    assert model.objective_ == pytest.approx(optimum, rel=2 * model.tol)
    tight = make_model(solver="kim", alpha=0.01, tol=1e-6).fit(X, y)
    assert tight.objective_ == pytest.approx(optimum, rel=1e-5)
    np.testing.assert_allclose(tight.weights_, theta, atol=1e-3)
    with pytest.raises(ValueError, match="two classes"):
        make_model(solver="kim").fit(*make_data(3, n=40))


def test_precomputed_kernels_memory_budget_search_and_pickle():
    X, y = make_data()
    rows = np.arange(len(y))[:, np.newaxis]
    stored = make_model().fit(X, y)
    given = DiscriminantMKLClassifier([Precomputed(K) for K in grams(X)]).fit(rows, y)
    np.testing.assert_allclose(
        given.decision_function(rows), stored.decision_function(X), atol=1e-6
    )
    small = make_model(memory_budget=2 * 8 * len(y) ** 2).fit(X, y)
    np.testing.assert_allclose(small.decision_function(X), stored.decision_function(X), atol=1e-6)
    again = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(again.transform(X), stored.transform(X))
    search = GridSearchCV(make_model(weights="uniform"), {"alpha": [1e-4, 1e-2]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9


def test_classes_of_one_sample():
    X, y = make_data()
    y = y.copy()
    y[7] = "fizz"
    for decision in ("least_squares", "centroid"):
        model = make_model(decision=decision).fit(X, y)
        assert model.transform(X).shape[1] == 3
        assert model.n_support_.tolist() == [np.sum(y == c) for c in model.classes_]
        assert model.predict(X[7:8]) == ["fizz"]


def test_cost_counts_active_kernels():
    X, y = make_data()
    model = make_model().fit(X, y)
    active = model.weights_ > 0
    assert model.cost([1.0, 2.0, 4.0]) == pytest.approx(
        len(y) * np.dot(active, [1.0, 2.0, 4.0]) / 7.0
    )


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"solver": "lp"}, ValueError, "solver='lp'"),
        ({"decision": "vote"}, ValueError, "decision='vote'"),
        ({"alpha": 0.0}, ValueError, "alpha=0.0"),
        ({"alpha": "auto"}, ValueError, "alpha='auto'"),
        ({"alpha": "learn", "weights": "uniform"}, ValueError, "weights=None"),
        ({"weights": [1.0, -1.0, 1.0]}, ValueError, "weights="),
        ({"weights": "even"}, ValueError, "weights='even'"),
        ({"tol": -1.0}, ValueError, "tol=-1.0"),
        ({"max_iter": 0}, ValueError, "max_iter=0"),
        ({"normalize": "unit"}, ValueError, "normalize='unit'"),
    ],
)
def test_errors_name_the_parameter(params, error, message):
    X, y = make_data(n=30)
    with pytest.raises(error, match=message):
        clone(make_model(**params)).fit(X, y)


def test_one_class_and_constant_samples_are_refused():
    X, _ = make_data(n=30)
    with pytest.raises(ValueError, match="one class only"):
        make_model().fit(X, np.zeros(30))
    with pytest.raises(ValueError, match="constant"):
        make_model().fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])


def test_stopping_early_is_said():
    X, y = make_data()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        make_model(max_iter=1, tol=1e-9).fit(X, y)


def test_certificate_holds_for_kernels_that_differ_in_the_last_digit():
    """Of a nearly constant kernel without a weight, last digits may tell the classes apart: the gap
    must allow for it.

    The nearly constant kernel 1 + δffᵀ does not distinguish the two samples of a pair, which are of
    different classes; the other one hardly does. Moved by one unit in the last place, the former
    has ε yyᵀ in addition, and separates.
    """
    n, alpha, delta, eps = 20, 1e-6, 2.0**-33, np.finfo(float).eps
    y, f = np.tile([-1.0, 1.0], n // 2), np.repeat([1.0, -1.0], n // 2)
    K = 1.25 + delta * np.outer(f, f)
    pairs = np.kron(np.eye(n // 2), np.ones((2, 2))) + 2e-6 * np.eye(n)
    # Newton steps may leave the former a weight, which changes nothing: planes end at the corner
    # without it.
    model = DiscriminantMKLClassifier(
        [Precomputed(K), Precomputed(pairs)], alpha=alpha, normalize=None, solver="silp"
    )
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        model.fit(np.arange(n)[:, np.newaxis], y)
    assert model.weights_[0] == 0
    moved = np.nextafter(K, np.where(np.outer(y, y) > 0, 2.0, 1.0))
    np.testing.assert_array_equal(moved, K + eps * np.outer(y, y))
    # y is an eigenvector of the moved kernel, centred and over its trace n (δ + ε), and the targets
    # are 2y/n.
    attained = 4.0 / n * alpha / (alpha + eps / (delta + eps))
    assert model.objective_ * (1.0 - model.duality_gap_) <= attained


def test_one_least_squares_machine_a_target_gives_the_same_coefficients():
    X, y = make_data(2)
    model = make_model().fit(X, y)
    n, targets = len(X), binary_targets(np.searchsorted(model.classes_, y))
    K = model.kernel_matrix(X) + model.alpha_ * np.eye(n)
    bordered = np.block([[K, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    beta = np.linalg.solve(bordered, np.append(targets, 0.0))[:n]
    assert abs(np.corrcoef(beta, model.dual_coef_[0])[0, 1]) == pytest.approx(1.0, abs=1e-9)
