"""The learners that hand the whole problem to an interior-point solver, and the conic programs
beneath them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.learning.conic import QCQP, SDP, _lower_bound
from kernelmosaic.solvers.conic import ConicProgram, pack_symmetric, unpack_symmetric

pytest.importorskip("clarabel")
from tests.learning.problems import KINDS, learn, make_problem, options
from tests.reference.conic import solve_mkl_conic, solve_program_conic


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huber"])
def test_any_sign_is_at_least_as_good_and_positive_semidefinite(kind):
    Ks, machine, _ = make_problem(kind, 2, n=16, P=4)
    optimum, _, _ = solve_mkl_conic(Ks, machine.program)
    found = learn(SDP, Ks, machine)
    assert found.gap <= 1e-6
    assert found.objective <= optimum + 1e-6 * abs(optimum)
    K = np.tensordot(found.weights, Ks, 1)
    assert np.linalg.eigvalsh(K).min() >= -1e-7 * len(K)
    assert np.trace(K) == pytest.approx(len(K))
    exact = solve_program_conic(K, machine.program)[0]
    assert found.objective == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("kind", ["svc", "svc squared"])
def test_any_sign_against_a_grid_of_two_kernels(kind):
    for seed in range(2):
        Ks, machine, _ = make_problem(kind, seed, n=12, P=3)
        Ks = Ks[1:]
        found = learn(SDP, Ks, machine)
        # Σ η = 1 leaves one number; beyond the ends of its range the combined matrix is not
        # positive semi-definite.
        line = np.linspace(-1.5, 2.5, 81)
        usable = [s for s in line if np.linalg.eigvalsh(s * Ks[0] + (1 - s) * Ks[1]).min() >= 0]
        values = [machine.solve(s * Ks[0] + (1 - s) * Ks[1], tol=1e-7).objective for s in usable]
        assert found.objective <= min(values) * (1 + 1e-5)
        assert found.objective >= min(values) * (1 - 2e-2)
        assert abs(found.weights[0] - usable[int(np.argmin(values))]) < 0.05


def test_any_sign_no_certificate_however_wrong_exceeds_the_optimum():
    Ks, machine, _ = make_problem("svc", 2, n=12, P=3)
    found = learn(SDP, Ks, machine)
    rng = np.random.RandomState(0)
    for _ in range(20):
        beta = machine.program.feasible(rng.standard_normal(12))
        Z = rng.standard_normal((12, 12))
        W = 0.5 * np.outer(beta, beta) + Z + Z.T
        assert _lower_bound(Ks, machine.program, beta, W) <= found.objective * (1 + 1e-6)


def test_estimator_predicts_with_negative_weights():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((30, 2))
    y = np.where(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] > 0, "b", "a")
    kernels = [("line", Linear()), ("narrow", Gaussian(0.8)), ("wide", Gaussian(3.0))]
    model = MKLClassifier(kernels, C=10.0, solver="sdp").fit(X, y)
    assert model.weights_.min() < -1e-3
    assert model.weights_.sum() == pytest.approx(1.0)
    K = model.kernel_matrix(X, X[model.support_])
    assert_allclose(
        model.decision_function(X), K @ model.dual_coef_[0] + model.intercept_, atol=1e-8
    )
    assert model.score(X, y) > 0.9
    assert model.objective_ <= MKLClassifier(kernels, C=10.0).fit(X, y).objective_


def test_refuse_what_is_too_large_before_reading_it():
    Ks, machine, _ = make_problem("svc", 0)
    stack = StoredStack(np.broadcast_to(np.eye(3), (2, 3, 3)))
    stack.n_samples = 10**5
    with pytest.raises(MemoryError, match=r"solver='qcqp' .* use solver='newton'"):
        QCQP(options(2)).learn(stack, machine)
    with pytest.raises(MemoryError, match="solver='sdp' supports up to 100 samples, not 100000"):
        SDP(options(2)).learn(stack, machine)
    with pytest.raises(ValueError, match=r"solver='sdp' .* penalties=None"):
        SDP(options(len(Ks), penalties=np.full(len(Ks), 2.0)))


def test_packing_keeps_dot_products():
    rng = np.random.RandomState(0)
    A, B = (M + M.T for M in rng.standard_normal((2, 5, 5)))
    assert pack_symmetric(A) @ pack_symmetric(B) == pytest.approx(np.sum(A * B))
    assert_allclose(unpack_symmetric(pack_symmetric(A)), A)


def test_largest_eigenvalue_as_a_conic_program():
    rng = np.random.RandomState(1)
    M = rng.standard_normal((4, 4))
    M = M + M.T
    model = ConicProgram(np.ones(1), np.zeros(1))
    block = model.require(
        "semidefinite", -pack_symmetric(np.eye(4))[:, np.newaxis], -pack_symmetric(M)
    )
    solution = model.solve()
    assert solution.has_point
    assert solution.x[0] == pytest.approx(np.linalg.eigvalsh(M).max(), abs=1e-6)
    assert np.trace(unpack_symmetric(solution.multipliers[block])) == pytest.approx(1.0, abs=1e-6)


def test_infeasible_is_said():
    model = ConicProgram(np.ones(1), np.zeros(1))
    model.require("nonnegative", np.array([[1.0], [-1.0]]), np.array([-1.0, -1.0]))
    solution = model.solve()
    assert not solution.has_point
    assert "Infeasible" in solution.ended_because


def break_clarabel(monkeypatch, status):
    """Put in the place of Clarabel one that stops with a status at a point that is not finite."""
    clarabel = pytest.importorskip("clarabel")

    class Broken:
        def __init__(self, *arguments):
            pass

        def solve(self):
            return SimpleNamespace(status=status, x=[np.nan], z=[0.0, 0.0], iterations=3)

    broken = SimpleNamespace(**vars(clarabel) | {"DefaultSolver": Broken})
    monkeypatch.setitem(sys.modules, "clarabel", broken)


@pytest.mark.parametrize("solver", ["qcqp", "sdp"])
@pytest.mark.parametrize("status", ["DualInfeasible", "InsufficientProgress"])
def test_where_the_conic_solver_breaks_down_the_fit_warns_with_an_honest_gap(
    monkeypatch, solver, status
):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((16, 2))
    y = (X[:, 0] + 0.3 * rng.standard_normal(16) > 0).astype(int)
    kernels = [Linear(), Gaussian(1.0), Gaussian(10.0)]
    best = MKLClassifier(kernels, solver=solver).fit(X, y)
    break_clarabel(monkeypatch, status)
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap of .* solver='newton'"):
        model = MKLClassifier(kernels, solver=solver).fit(X, y)
    assert_allclose(model.weights_, np.full(3, 1 / 3))
    assert model.objective_ > best.objective_
    assert model.objective_ - best.objective_ <= model.duality_gap_ * model.objective_


def test_kernels_that_are_all_zero_leave_the_machine_without_them():
    # Centred, a constant column is nothing. Without a kernel the best there is is the constant of
    # the larger class.
    X, y = np.ones((9, 2)), np.repeat([0, 1], [3, 6])
    model = MKLClassifier([Linear(), Linear()], C=2.0, normalize="centered", solver="sdp").fit(X, y)
    assert model.objective_ == pytest.approx(2.0 * 2.0 * 3)
    assert model.duality_gap_ <= 1e-6
    assert_allclose(model.decision_function(X), 1.0)


def test_a_point_that_is_not_finite_is_none(monkeypatch):
    break_clarabel(monkeypatch, "InsufficientProgress")
    model = ConicProgram(np.ones(1), np.zeros(1))
    model.require("nonnegative", np.array([[1.0], [-1.0]]), np.array([1.0, 1.0]))
    solution = model.solve()
    assert not solution.has_point
    assert solution.ended_because == "InsufficientProgress"
