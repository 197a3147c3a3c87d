"""Newton steps in the features, against LIBSVM, the problem as a textbook writes it, and interior
points."""

import numpy as np
import pytest
from sklearn.svm import SVC as LibSVC
from sklearn.svm import SVR as LibSVR
from tests.calls import recorded

from kernelmosaic.gram.factored import DenseFactors
from kernelmosaic.machines.base import SVC, SVR, Huber
from kernelmosaic.solvers.factored import solve_factored
from kernelmosaic.solvers.interior_point import CentralPath
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.tuning import SolverOptions

rng = np.random.RandomState(0)
N, D = 300, 15
Z = rng.standard_normal((N, D)) / np.sqrt(D)
F = Z @ rng.standard_normal(D)
LABELS = np.where(F + 0.5 * rng.standard_normal(N) > 0.3, 1.0, -1.0)
TARGETS = 3.0 * F + rng.standard_normal(N)


def solved(program, tol, beta=None, factors=Z):
    start = np.zeros(N) if beta is None else beta
    found = ProximalNewton(DenseFactors(factors), program, program.feasible(start)).solve(tol)
    # The certificate, from β alone.
    assert found.beta.sum() == pytest.approx(0.0, abs=1e-9 * np.abs(found.beta).sum())
    assert np.all(found.beta >= program.lower)
    assert np.all(found.beta <= program.upper)
    np.testing.assert_allclose(found.values, Z @ (Z.T @ found.beta), rtol=1e-9, atol=1e-9)
    assert found.gap <= tol
    return found


@pytest.mark.parametrize("C", [0.05, 1.0, 30.0])
def test_the_hinge_loss_against_libsvm(C):
    found = solved(SVC(LABELS, C).program, 1e-4)
    lib = LibSVC(C=C, kernel="linear", tol=1e-7).fit(Z, LABELS)
    w, b = lib.coef_[0], lib.intercept_[0]
    value = 0.5 * w @ w + C * np.maximum(0.0, 1.0 - LABELS * (Z @ w + b)).sum()
    own = Z.T @ found.beta
    reached = (
        0.5 * own @ own + C * np.maximum(0.0, 1.0 - LABELS * (Z @ own + found.intercept)).sum()
    )
    assert found.objective <= value * (1 + 1e-6)
    assert reached - found.objective == pytest.approx(found.gap * reached, rel=1e-6)
    assert reached <= value * (1 + 2e-4)


@pytest.mark.parametrize("C", [0.05, 1.0, 1000.0])
def test_the_squared_hinge_loss_to_the_last_digits_from_anywhere(C):
    program = SVC(LABELS, C, slack=2).program
    found = solved(program, 1e-9)
    assert found.n_iter <= 15
    # LIBSVM without a bound on the coefficients, the slack being on the kernel's diagonal.
    lib = LibSVC(C=1e9, kernel="precomputed", tol=1e-9).fit(Z @ Z.T + np.eye(N) / C, LABELS)
    beta = np.zeros(N)
    beta[lib.support_] = lib.dual_coef_[0]
    # The dual bends by at least the ridge, so that its gap bounds the distance.
    np.testing.assert_allclose(found.beta, beta, atol=np.sqrt(2e-9 * found.objective * C))
    other = solved(program, 1e-9, 10.0 * C * rng.standard_normal(N))
    assert other.objective == pytest.approx(found.objective, rel=1e-8)


def test_a_tube_against_libsvm():
    found = solved(SVR(TARGETS, 2.0, 0.3).program, 1e-4)
    lib = LibSVR(C=2.0, epsilon=0.3, kernel="linear", tol=1e-7).fit(Z, TARGETS)
    w = lib.coef_[0]
    # The primal bends by at least one.
    assert np.linalg.norm(Z.T @ found.beta - w) <= np.sqrt(2e-4 * found.objective)
    value = 0.5 * w @ w + 2.0 * np.maximum(0.0, np.abs(TARGETS - lib.predict(Z)) - 0.3).sum()
    assert found.objective == pytest.approx(value, rel=2e-4)


def test_hubers_loss_against_interior_points():
    program = Huber(TARGETS, 1.0, 0.5).program
    path = CentralPath(DenseFactors(Z), program).follow(1e-9)
    found = solved(program, 1e-9)
    np.testing.assert_allclose(
        found.beta, path.beta, atol=2 * np.sqrt(2e-9 * found.objective / 0.5)
    )


def test_samples_of_weight_zero_stay_out():
    weight = np.where(np.arange(N) < 250, 1.0, 0.0)
    found = solved(SVC(LABELS, 1.0, sample_weight=weight).program, 1e-4)
    assert not found.beta[250:].any()


def test_interior_points_are_asked_where_steps_do_not_do():
    program = SVC(LABELS, 1.0).program
    expected = solve_factored(DenseFactors(Z), program, tol=1e-6)
    with recorded(CentralPath.__init__) as asked:
        found = solve_factored(
            DenseFactors(Z), program, tol=1e-6, options=SolverOptions(few_written=0, newton_steps=1)
        )
    assert asked
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(expected.objective, rel=2e-6)


@pytest.mark.torch
@pytest.mark.parametrize(
    "program",
    [SVC(LABELS, 1.0).program, SVC(LABELS, 1.0, slack=2).program, SVR(TARGETS, 2.0, 0.3).program],
    ids=["hinge", "squared hinge", "tube"],
)
def test_the_same_where_features_are_tensors(program):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    here = solved(program, 1e-5)
    there = solved(program, 1e-5, factors=torch.as_tensor(Z))
    assert isinstance(there.beta, np.ndarray)
    assert there.n_iter == here.n_iter
    np.testing.assert_allclose(
        there.beta, here.beta, rtol=1e-6, atol=1e-8 * np.abs(here.beta).max()
    )
    # From anywhere: a solver of features takes these steps there, too, and none through the inside.
    with recorded(CentralPath.__init__) as asked:
        again = solve_factored(
            DenseFactors(torch.as_tensor(Z)),
            program,
            tol=1e-5,
            options=SolverOptions(few_samples=0),
        )
    assert not asked
    assert again.gap <= 1e-5


def test_steps_go_on_where_working_sets_have_no_room():
    program = SVC(LABELS, 1.0).program
    gram = DenseFactors(Z)
    assert gram.block_samples == 0
    with recorded(CentralPath.__init__) as asked:
        found = solve_factored(gram, program, tol=1e-6, options=SolverOptions(few_samples=0))
    assert not asked
    assert found.gap <= 1e-6
    lib = LibSVC(C=1.0, kernel="linear", tol=1e-8).fit(Z, LABELS)
    np.testing.assert_allclose(
        Z @ (Z.T @ found.beta) + found.intercept, lib.decision_function(Z), atol=2e-2
    )
