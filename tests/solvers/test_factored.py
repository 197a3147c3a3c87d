"""From the end of the central path to a solution at its bounds, and when a start from nearby is
worth trying."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.svm
from numpy.testing import assert_allclose, assert_array_equal
from tests.calls import recorded
from tests.reference.programs import assert_feasible, svm

from kernelmosaic.gram.factored import DenseFactors
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.machines.base import SVC, SVR
from kernelmosaic.solvers.factored import (
    FactoredRounds,
    _compensation,
    _is_narrow,
    round_to_bounds,
    solve_factored,
    solve_stored,
)
from kernelmosaic.solvers.interior_point import CentralPath
from kernelmosaic.solvers.program import Program, assess
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.tuning import DEFAULTS, SolverOptions
from kernelmosaic.solvers.working_set import SingleOutput

RNG = np.random.RandomState(0)
Z = RNG.standard_normal((3000, 5))
F = Z[:, 0] + 0.5 * RNG.standard_normal(3000)
GRAM = StoredFeatures([Z]).combine(np.ones(1))
MACHINES = {"svc": SVC(np.where(F > 0, 1.0, -1.0), C=10.0), "svr": SVR(F, C=10.0, epsilon=0.1)}


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_snapping_to_bounds_leaves_the_function_where_it_is(name):
    program = MACHINES[name].program
    path = CentralPath(GRAM, program).follow(1e-5)
    beta = round_to_bounds(GRAM, program, path)
    assert np.all((program.lower <= beta) & (beta <= program.upper))
    assert beta.sum() == pytest.approx(program.total, abs=1e-8 * np.abs(beta).sum())
    assert len(program.free(beta)) < 200
    np.testing.assert_allclose(Z.T @ beta, Z.T @ path.beta, atol=1e-6)
    gap = assess(GRAM, program, beta).gap
    assert gap <= 1e-5
    # It is the others that make up for it: bounds alone move the function far.
    alone = np.where(
        path.at_lower, program.lower, np.where(path.at_upper, program.upper, path.beta)
    )
    alone = np.where(path.at_lower & path.at_upper, 0.0, alone) if program.epsilon else alone
    assert assess(GRAM, program, program.feasible(alone)).gap > 20 * gap


@pytest.mark.parametrize("room", [0.0, 1e-200])
def test_free_samples_without_room_make_up_for_nothing(room):
    program, free = SVC(np.ones(4) * [1, 1, -1, -1], C=1.0).program, np.arange(4)
    gram = StoredFeatures([Z[:4]]).combine(np.ones(1))
    beta = np.where(program.upper > 0, program.upper - room, program.lower + room)
    assert_array_equal(_compensation(gram, program, np.full(4, 0.1), beta, free), 0.0)


def test_few_features_are_solved_from_afar():
    assert _is_narrow(GRAM, DEFAULTS)
    assert not _is_narrow(
        StoredFeatures([RNG.standard_normal((3000, 500))]).combine(np.ones(1)), DEFAULTS
    )
    # Where a pass over the rows is dear, two or three from nearby are better than a hundred from
    # afar.
    remote = StoredFeatures([Z]).combine(np.ones(1))
    remote.stored = False
    assert not _is_narrow(remote, DEFAULTS)
    program = MACHINES["svc"].program
    cold = solve_factored(GRAM, program, tol=1e-5)
    assert solve_factored(GRAM, program, cold.beta, 1e-5).n_iter == 0
    start = program.feasible(cold.beta + RNG.standard_normal(3000))
    for gram in (GRAM, remote):
        assert solve_factored(gram, program, start, 1e-5).objective == pytest.approx(
            cold.objective, rel=3e-5
        )


def test_few_samples_are_solved_by_their_block():
    rows = np.arange(0, 3000, 25)
    y = np.where(F[rows] > 0, 1.0, -1.0)
    gram = StoredFeatures([Z[rows, :3], Z[rows, 3:]]).combine(np.ones(2))
    with recorded(CentralPath.__init__) as asked:
        found = solve_factored(gram, SVC(y, C=10.0).program, tol=1e-6)
    assert not asked
    assert found.gap <= 1e-6
    libsvm = sklearn.svm.SVC(C=10.0, kernel="linear", tol=1e-6).fit(Z[rows], y)
    np.testing.assert_allclose(
        found.values + found.intercept, libsvm.decision_function(Z[rows]), atol=1e-2
    )


@pytest.mark.parametrize("D", [5, 900])
def test_samples_that_are_few_or_have_many_features_are_solved_by_pair_steps(D):
    wide = np.hstack([Z[:700], 0.1 * np.random.RandomState(1).standard_normal((700, D - 5))])
    gram, y = StoredFeatures([wide]).combine(np.ones(1)), np.where(F[:700] > 0, 1.0, -1.0)
    with recorded(ProximalNewton.__init__) as steps, recorded(CentralPath.__init__) as paths:
        found = solve_factored(gram, SVC(y, C=0.1).program, tol=1e-4)
    assert not steps
    assert not paths
    assert found.gap <= 1e-4
    libsvm = sklearn.svm.SVC(C=0.1, kernel="linear", tol=1e-6).fit(wide, y)
    np.testing.assert_allclose(
        found.values + found.intercept, libsvm.decision_function(wide), atol=0.05
    )


def test_few_samples_that_pair_steps_do_not_solve_are_left_to_interior_points():
    rows = np.arange(0, 3000, 25)
    program = SVC(np.where(F[rows] > 0, 1.0, -1.0), C=10.0).program
    gram = StoredFeatures([Z[rows]]).combine(np.ones(1))
    exact = solve_factored(gram, program, tol=1e-8)
    found = solve_factored(gram, program, tol=1e-6, options=SolverOptions(pairs=0))
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(exact.objective, rel=2e-6)


def test_outputs_do_not_keep_the_rounding_of_much_larger_ones():
    # From coefficients of C to some of 10⁻¹³: outputs of 10²³ round to 10⁷, which the last must not
    # carry along.
    Z = np.array([[2496.83], [2498.42]]) ** 3
    y = np.array([-20.9, 76.2])
    program = SVR(y, C=5e4, epsilon=0.0).program
    gram = StoredFeatures([Z]).combine(np.ones(1))
    found = SingleOutput(
        gram, program, np.array([-5e4, 5e4]), FactoredRounds(gram, DEFAULTS)
    ).solve(1e-4)
    np.testing.assert_allclose(found.values, Z @ (Z.T @ found.beta), rtol=1e-12)
    b = float(np.ptp(y)) / float(np.ptp(Z)) ** 2
    np.testing.assert_allclose(found.beta, [-b, b], rtol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("total", [0.0, None], ids=["intercept", "no intercept"])
def test_matrices_of_features_stay_on_the_device(total):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from kernelmosaic.backend import TorchBackend

    rng = np.random.RandomState(8)
    Z = rng.standard_normal((300, 12))
    t = np.sign(Z[:, 0] + rng.standard_normal(300))
    program = Program(t, np.minimum(t, 0.0), np.maximum(t, 0.0), np.zeros(300), total=total)
    gram = DenseFactors(torch.as_tensor(Z))
    with recorded(TorchBackend.to_numpy, lambda given: tuple(given["array"].shape)) as fetched:
        there = solve_factored(gram, program, tol=1e-6)
        gram.solve_free(np.arange(50), np.ones(50), rng.standard_normal((50, 2)))
    # A few rows tell how large β may become; matrices of D × D numbers would take longer to fetch
    # than to factorise.
    assert {shape for shape in fetched if len(shape) == 2 and shape[0] == shape[1]} == set()
    here = solve_factored(DenseFactors(Z), program, tol=1e-6)
    assert there.gap <= 1e-6
    assert there.objective == pytest.approx(here.objective, rel=2e-6)


def test_few_samples_whose_pair_steps_stall_are_solved_by_interior_points():
    # Polynomials of one number have a low rank: at a large C pair steps shrink the gap by little
    # each.
    rng = np.random.RandomState(1)
    x, y = rng.normal(size=26), np.sign(rng.normal(size=26))
    program, K = svm(y, 1e6), (1.0 + np.outer(x, x)) ** 5
    assert solve_smo(K, program, tol=1e-7, max_iter=DEFAULTS.pairs * 26).gap > 1e-6
    with recorded(CentralPath.__init__) as calls:
        solution = solve_stored(K, program, tol=1e-7)
    assert len(calls) == 1
    assert solution.gap <= 1e-7
    assert_feasible(program, solution.beta)
    assert_allclose(solution.values, K @ solution.beta, rtol=1e-6, atol=1e-6)
