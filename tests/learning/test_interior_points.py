"""Kernels whose machine has many solutions: steps on the weights meet kinks there, and interior
points take over."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from tests.learning.kinks import KINDS, draw_columns, primal_optimum
from tests.sweeps import later, thinned

from kernelmosaic import MKLClassifier, MKLRegressor
from kernelmosaic.engine.fit import WeightMethod
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Linear, per_column
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.factory import Parameters
from kernelmosaic.learning.interior_points import low_rank_factor, successor_of
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import BesideFixed, SumNorm
from kernelmosaic.learning.problem import LearnerOptions, make_problem
from kernelmosaic.machines.base import SVC, SVR, OneClass
from kernelmosaic.solvers.weight_path import solve_shifted


def fit_converged(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = estimator.fit(X, y)
    assert model.converged_
    assert model.duality_gap_ <= model.tol
    return model


#: Every kind of columns at two prices, and at every price the columns that are hardest.
PRICES = [(kind, C) for kind in KINDS for C in (0.01, 0.3, 3.0, 30.0, 1000.0)]
OFTEN = [(kind, C) for kind, C in PRICES if C in (0.3, 30.0) or kind == "nearly duplicated"]


@pytest.mark.parametrize(("kind", "C"), thinned(PRICES, OFTEN))
def test_kernels_of_single_columns_reach_tol_at_every_C(kind, C):
    pytest.importorskip("clarabel")
    X, labels, targets = draw_columns(0, kind)
    for estimator, y, epsilon in ((MKLClassifier, labels, None), (MKLRegressor, targets, 0.1)):
        model = fit_converged(estimator([per_column(Linear())], C=C, normalize=None), X, y)
        optimum = primal_optimum(X, y, C, epsilon)
        assert optimum * (1 - 1e-6) <= model.objective_ <= optimum * (1 + 1.01 * model.tol)


@pytest.mark.parametrize("solver", ["silp", "reduced_gradient"])
@pytest.mark.parametrize("C", [10.0, later(300.0)])
def test_solvers_of_the_papers_reach_tol_too(solver, C):
    X, labels, _ = draw_columns(0, "correlated")
    model = fit_converged(
        MKLClassifier([per_column(Linear())], C=C, solver=solver, normalize=None), X, labels
    )
    reference = fit_converged(
        MKLClassifier([per_column(Linear())], C=C, normalize=None, tol=1e-6), X, labels
    )
    assert model.objective_ == pytest.approx(reference.objective_, rel=1.01e-3)
    assert model.n_iter_ <= model.max_iter


def test_penalties_and_a_small_tol():
    pytest.importorskip("clarabel")
    X, labels, _ = draw_columns(1, "correlated")
    d = np.random.default_rng(0).uniform(0.5, 2.0, X.shape[1])
    model = fit_converged(
        MKLClassifier([per_column(Linear())], penalties=d, normalize=None, tol=1e-6), X, labels
    )
    assert model.objective_ == pytest.approx(primal_optimum(X, labels, 1.0, penalties=d), rel=2e-6)


def test_every_class_against_the_others():
    X, _, targets = draw_columns(2, "correlated")
    y = np.digitize(targets, np.quantile(targets, [0.33, 0.67]))
    model = fit_converged(MKLClassifier([per_column(Linear())], C=3.0), X, y)
    assert model.solver_ == "interior_points"
    # Few coefficients and weights are left, although interior points have all of them.
    assert model.support_fraction_ < 1.0
    assert np.count_nonzero(model.weights_) < 0.8 * model.weights_.size


def test_solver_names_what_found_the_weights():
    X, labels, _ = draw_columns(0, "correlated")
    assert (
        fit_converged(MKLClassifier([per_column(Linear())], C=10.0), X, labels).solver_
        == "interior_points"
    )
    assert fit_converged(MKLClassifier(norm=2), X, labels).solver_ == "newton"
    assert fit_converged(MKLClassifier(weights="uniform"), X, labels).solver_ is None
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        stopped = MKLClassifier([per_column(Linear())], C=10.0, max_iter=3).fit(X, labels)
    assert not stopped.converged_


# The path itself: against its own certificate, for every machine with a box and kernels of any rank


def draw_machine(kind, labels, targets):
    if kind == "one class":
        return OneClass(len(labels), 0.1)
    if kind == "squared slack":
        return SVC(labels, 2.0, slack=2)
    if kind == "weights of samples":
        return SVC(labels, 2.0, sample_weight=np.arange(len(labels)) % 3)
    if kind == "numbers":
        return SVR(targets, 10.0, 0.2)
    return SVC(labels, 10.0)


@pytest.mark.parametrize(
    "kind", ["labels", "numbers", "squared slack", "weights of samples", "one class"]
)
@pytest.mark.parametrize("rank", [1, later(3), "full"])
def test_the_path_ends_at_the_optimum_of_weights_and_machine(kind, rank):
    X, labels, targets = draw_columns(3, "correlated", n=40)
    if rank == "full":
        squares = ((X[:, np.newaxis] - X) ** 2).T
        Ks = np.array([np.exp(-squares[m : m + 5].sum(axis=0) / 5) for m in range(0, 30, 5)])
    else:
        Ks = np.array([X[:, m : m + rank] @ X[:, m : m + rank].T for m in range(0, 30, rank)])
    if kind == "one class":
        Ks = Ks + 1.0
    machine = draw_machine(kind, labels, targets)
    problem = make_problem(
        machine, StoredStack(Ks), LearnerOptions(SumNorm(), np.ones(len(Ks))), Start()
    )
    end = successor_of(problem).path().follow(1e-7, 60)
    assert end.gap <= 1e-7
    assert end.theta.min() > 0
    assert end.theta.sum() == pytest.approx(1.0)
    machine_alone = machine.solve(np.tensordot(end.theta, Ks, 1), tol=1e-9)
    beta = machine.program.feasible(end.beta)
    dual = machine.program.linear_value(beta) - max(0.5 * beta @ K @ beta for K in Ks)
    assert machine.primal_value(machine_alone) == pytest.approx(dual, rel=1e-6)


def test_weights_that_are_kept_stay_what_they_are():
    X, labels, _ = draw_columns(4, "correlated", n=40)
    kept = np.full(30, np.nan)
    kept[3], kept[7] = 0.5, 0.0
    options = LearnerOptions(BesideFixed(SumNorm(), kept), np.ones(30))
    problem = make_problem(
        SVC(labels, 10.0), StoredStack(X.T[:, :, np.newaxis] * X.T[:, np.newaxis]), options, Start()
    )
    end = successor_of(problem).path().follow(1e-7, 60)
    assert end.gap <= 1e-7
    assert end.theta[3] == 0.5
    assert end.theta[7] == 0.0
    assert np.delete(end.theta, [3, 7]).sum() == pytest.approx(1.0)


# Kernels of few features --------------------------------------------------------------------------


@pytest.mark.parametrize("n_free", [3, 6, 7])
def test_free_samples_keep_their_digits_where_features_are_few(n_free):
    # The rows of free samples grow without bound towards the end of a path; rotated, so that no
    # feature is alone.
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(7, 7)))[0][:n_free]
    B = np.vstack([1e7 * V, np.zeros((40 - n_free, 7))])
    right = rng.normal(size=40)
    # The large rows are orthogonal: each is a system of its own.
    wanted = right / np.where(np.arange(40) < n_free, 1.0 + 1e14, 1.0)
    assert np.abs(solve_shifted(B)(right) / wanted - 1.0).max() < 1e-6


@pytest.mark.parametrize("n", [20, 60])
def test_systems_of_few_features_are_those_of_the_samples(n):
    rng = np.random.default_rng(1)
    B = rng.normal(size=(n, 6)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
    right = rng.normal(size=(n, 2))
    wanted = np.linalg.solve(np.eye(n) + B @ B.T, right)
    np.testing.assert_allclose(solve_shifted(B)(right), wanted, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(solve_shifted(B)(right[:, 1]), wanted[:, 1], rtol=1e-6, atol=1e-8)


def test_kernels_in_factors():
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(4, 30))
    Ks = np.array([Z.T @ Z, np.zeros((30, 30)), np.eye(30), -Z.T @ Z])
    stack = StoredStack(Ks)
    factor = low_rank_factor(stack, 0, 4)
    assert factor.shape == (4, 30)
    np.testing.assert_allclose(factor.T @ factor, Ks[0], atol=1e-12)
    assert low_rank_factor(stack, 0, 3) is None
    assert not low_rank_factor(stack, 1, 1).any()
    assert low_rank_factor(stack, 2, 7) is None
    # Not positive semi-definite: its diagonal promises nothing.
    assert low_rank_factor(StoredStack(np.array([[[1.0, 2.0], [2.0, 1.0]]])), 0, 2) is None


def test_regression_at_a_large_C_reaches_tol():
    # Few columns beside the samples: steps once ended at a gap of 0.01, where digits of free
    # samples were lost.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 15)) + 0.7 * rng.normal(size=(80, 1))
    X = np.column_stack([X, X + 1e-5 * rng.normal(size=X.shape)])
    y = X[:, 0] - X[:, 3] + 0.3 * rng.normal(size=80)
    model = fit_converged(MKLRegressor([per_column(Linear())], C=550.0, tol=1e-6), X, y)
    assert model.solver_ == "interior_points"


# More samples than a block of free ones may have --------------------------------------------------


@pytest.mark.parametrize("is_factored", [True, False])
def test_many_samples_reach_tol_where_the_memory_has_room(is_factored):
    X, labels, _ = draw_columns(0, "nearly duplicated", n=60)
    Ks = X.T[:, :, np.newaxis] * X.T[:, np.newaxis]
    if not is_factored:
        Ks = np.concatenate([Ks, 1e-3 * np.eye(60)[np.newaxis]])
    options = LearnerOptions(SumNorm(), np.ones(len(Ks)), max_free_samples=50)
    learned = Newton(options).learn(StoredStack(Ks), SVC(labels, 1000.0))
    assert learned.gap <= options.tol
    assert learned.ended_by == "interior_points"
    assert learned.hindrance is None


def test_what_is_too_large_for_interior_points_says_what_to_do():
    X, labels, _ = draw_columns(0, "nearly duplicated", n=60)
    Ks = np.concatenate([X.T[:, :, np.newaxis] * X.T[:, np.newaxis], 1e-3 * np.eye(60)[np.newaxis]])
    learner = Newton(
        LearnerOptions(SumNorm(), np.ones(len(Ks)), max_free_samples=50, max_path_samples=50)
    )
    learned = learner.learn(StoredStack(Ks), SVC(labels, 1000.0))
    assert learned.gap > 0.1
    fit = SimpleNamespace(
        learned=[learned], learner=learner, task=None, recipe=SimpleNamespace(tol=1e-3)
    )
    warning = WeightMethod(Parameters(), 1e-3).warning(fit, 100)
    assert re.search(r"matrices of 60 samples, .* use fewer kernels, fewer samples", warning)
