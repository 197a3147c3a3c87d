"""One-class estimators as they come: novelty found as scikit-learn finds it, and a warning where
kernels mislead."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM
from tests.reference.conic import solve_mkl_conic

from kernelmosaic import LocalizedMKLOneClass, MKLOneClass
from kernelmosaic.kernels import Correlation, Gaussian, Linear, Polynomial, Precomputed
from kernelmosaic.solvers.program import Program
from reproduction.data import make_ringnorm

BOTH = [MKLOneClass, LocalizedMKLOneClass]
#: A set and which of its classes is the normal one.
TASKS = [
    (load_breast_cancer, 1),
    (load_digits, 8),
    (load_wine, 1),
    (load_iris, 1),
    (make_ringnorm, 1),
]
X = np.random.RandomState(0).normal(size=(30, 3))


def areas(load, normal, models):
    """Area under the ROC curve of each model, the other half of the normal class against the other
    classes."""
    given = (
        {"n_samples": 300, "random_state": 0} if load.__module__.startswith("reproduction") else {}
    )
    X, y = load(**given) if given else load(return_X_y=True)
    usual, odd = X[y == normal][:170], X[y != normal][::2]
    order = np.random.RandomState(0).permutation(len(usual))
    half = len(order) // 2
    scaler = StandardScaler().fit(usual[order[:half]])
    train, held, other = map(scaler.transform, (usual[order[:half]], usual[order[half:]], odd))
    truth = np.repeat([1, 0], [len(held), len(other)])
    test = np.vstack([held, other])
    return [roc_auc_score(truth, model.fit(train).decision_function(test)) for model in models]


@pytest.mark.parametrize(
    ("load", "normal"), TASKS, ids=lambda value: getattr(value, "__name__", value)
)
def test_defaults_find_novelty_as_scikit_learn_does(load, normal):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        reference, *ours = areas(load, normal, [OneClassSVM(), *(kind() for kind in BOTH)])
    assert min(ours) > reference - 0.02


@pytest.mark.parametrize(
    "options", [{}, {"approximation": "nystroem", "rank": 20}], ids=["exact", "nystroem"]
)
@pytest.mark.parametrize("kind", BOTH)
def test_kernels_that_grow_with_the_distance_are_named_once(kind, options):
    kernels = [("line", Linear()), ("square", Polynomial()), ("bell", Gaussian())]
    model = kind(kernels, random_state=0, **options)
    with pytest.warns(
        UserWarning, match=r"of line, square differs .*Gaussian\(\).* normalize='diagonal'"
    ) as caught:
        model.fit(X)
    assert len([one for one in caught if "normalize" in str(one.message)]) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("kernels", "options"),
    [
        (None, {}),
        ([Gaussian(), Correlation()], {"approximation": "nystroem", "rank": 20}),
        ([Linear(), Polynomial()], {"normalize": "diagonal"}),
        (
            [Linear(), Polynomial()],
            {"normalize": "diagonal", "approximation": "nystroem", "rank": 20},
        ),
    ],
)
def test_kernels_of_constant_diagonal_are_not(kind, kernels, options):
    model = kind(kernels, random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X)


def test_given_matrices_are_looked_at_too():
    bell, rows = Gaussian()(X), np.arange(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        MKLOneClass([Precomputed(bell)]).fit(rows)
    with pytest.warns(UserWarning, match="precomputed differs"):
        MKLOneClass([Precomputed(bell * np.outer(1 + rows, 1 + rows))]).fit(rows)


def test_samples_of_no_weight_are_not_looked_at():
    ring = X / np.linalg.norm(X, axis=1, keepdims=True)
    far, weight = np.vstack([ring, 10 * ring[:3]]), np.repeat([1.0, 0.0], [len(ring), 3])
    for approximation in (None, "nystroem"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            MKLOneClass([Linear()], approximation=approximation).fit(far, sample_weight=weight)
        # The origin is in the ring's midst, of which there is a warning; of k(x, x) there is none.
        (only,) = caught
        assert issubclass(only.category, ConvergenceWarning)
        assert "the origin lies among the samples" in str(only.message)


def squared_problem(n, nu):
    """The dual of min ½‖w‖² + 1/(2ν) Σ ξ² + b: coefficients without a bound, ridge ν."""
    return Program(np.zeros(n), np.zeros(n), np.full(n, np.inf), np.full(n, nu), total=1.0)


@pytest.mark.parametrize(
    ("solver", "nu"),
    [("newton", 0.3), ("newton", 4.0), ("reduced_gradient", 0.3), ("silp", 0.3), ("qcqp", 0.3)],
)
def test_squared_slacks_reach_the_optimum_of_a_conic_program(solver, nu):
    kernels = [Gaussian(0.5), Gaussian(1.5), Correlation()]
    model = MKLOneClass(kernels, nu=nu, slack=2, tol=1e-7, solver=solver).fit(X)
    Ks = [
        MKLOneClass([kernel], weights="uniform", slack=2).fit(X).kernel_matrix(X)
        for kernel in kernels
    ]
    best, weights, _ = solve_mkl_conic(Ks, squared_problem(len(X), nu))
    assert model.objective_ == pytest.approx(best, rel=1e-5)
    np.testing.assert_allclose(model.weights_, weights, atol=1e-2)
    f = model.decision_function(X)
    slack = np.maximum(-f, 0.0)
    K = model.kernel_matrix(X)
    beta = np.zeros(len(X))
    beta[model.support_] = model.dual_coef_[0]
    primal = 0.5 * beta @ K @ beta + np.sum(slack**2) / (2 * nu) + model.intercept_[0]
    assert primal == pytest.approx(best, rel=1e-4)
    # At the optimum β = ξ / ν: the samples below the boundary, and no other, support it. A gap of g
    # leaves β within √(2g/ν) of it.
    np.testing.assert_allclose(beta, slack / nu, atol=1e-3)


@pytest.mark.parametrize("kind", BOTH)
def test_squared_slacks_with_weights_of_samples_and_in_features(kind):
    weight = np.tile([1.0, 2.0], 15)
    options = (
        {"slack": 2, "n_init": 1, "tol": 1e-6}
        if kind is LocalizedMKLOneClass
        else {"slack": 2, "tol": 1e-8}
    )
    options |= {"gating": "constant"} if kind is LocalizedMKLOneClass else {}
    repeated = kind([Gaussian()], **options).fit(np.repeat(X, [1, 2] * 15, axis=0))
    weighted = kind([Gaussian()], **options).fit(X, sample_weight=weight)
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), atol=1e-5
    )
    features = kind([Gaussian()], approximation="nystroem", rank=30, **options).fit(X)
    exact = kind([Gaussian()], **options).fit(X)
    np.testing.assert_allclose(features.objective_, exact.objective_, rtol=1e-4)
    with pytest.raises(ValueError, match="slack=3"):
        kind(slack=3).fit(X)
