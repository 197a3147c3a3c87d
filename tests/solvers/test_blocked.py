"""The solver in blocks on a torch device against SMO, for every kind of program, and its habits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.programs import LINEAR, MAKERS, SHAPES, assert_feasible, cases, make_case, svm

from kernelmosaic.gram import DeviceGram
from kernelmosaic.solvers import mean_diagonal, solve, solve_blocked, solve_free, solve_smo, solve_unbounded
from kernelmosaic.solvers.free_block import free_samples

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

sometimes = settings(max_examples=60, derandomize=True, deadline=None)


def on_device(K, exact=None):
    return DeviceGram(torch.as_tensor(K), exact)


def assert_same_optimum(case, solution, tol):
    """The value of SMO's solution up to both gaps; SMO itself is held against a conic solver elsewhere."""
    reference = solve_smo(case.K, case.program, tol=tol)
    scale = max(abs(reference.objective), abs(solution.objective))
    assert abs(reference.objective - solution.objective) <= 2 * tol * scale + 1e-7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_every_kind_of_program(kind, shape):
    case = make_case(kind, 60, 3.0, shape, seed=1)
    solution = solve(on_device(case.K), case.program, None, 1e-6)
    assert_feasible(case.program, solution.beta)
    assert solution.gap <= 1e-6
    assert solution.objective == pytest.approx(case.dual(solution.beta), abs=1e-8 * (1 + abs(solution.objective)))
    assert_same_optimum(case, solution, 1e-6)


@sometimes
@given(case=cases(max_samples=30), block=st.integers(2, 8))
def test_many_small_blocks_reach_the_optimum(case, block):
    solution = solve_blocked(on_device(case.K), case.program, tol=1e-5, block=block)
    assert_feasible(case.program, solution.beta)
    assert solution.gap <= 1e-5
    np.testing.assert_allclose(
        solution.values, case.exact @ solution.beta, atol=1e-8 * (1 + np.abs(solution.beta).sum())
    )
    assert_same_optimum(case, solution, 1e-5)


@sometimes
@given(case=cases(max_samples=30), rounds=st.integers(0, 3))
def test_the_gap_is_a_true_bound_long_before_the_optimum(case, rounds):
    solution = solve_blocked(on_device(case.K), case.program, tol=1e-9, max_rounds=rounds, block=4)
    assert_feasible(case.program, solution.beta)
    best = solve_smo(case.K, case.program, tol=1e-7)
    scale = max(abs(case.primal(solution.beta, solution.intercept)), abs(solution.objective))
    assert best.objective - solution.objective <= (solution.gap + 1e-6) * scale + 1e-7


@pytest.mark.parametrize("newton", [True, False], ids=["newton", "rounds only"])
def test_a_larger_machine_in_several_rounds(newton, monkeypatch):
    from kernelmosaic.solvers import _torch_blocked

    if not newton:
        monkeypatch.setattr(_torch_blocked, "_NEWTON_FREE", 0)
    case = make_case("svm", 400, 10.0, "narrow", seed=3, dtype=np.float32)
    ascent = _torch_blocked.BlockedAscent(on_device(case.K), case.program, block=64)
    solution = ascent.reach(1e-5, 10_000)
    assert solution.gap <= 1e-5
    assert (ascent.n_jumps > 0) == newton
    assert ascent.n_rounds > 3
    assert_same_optimum(case, solution, 1e-5)


def test_newton_steps_save_rounds(monkeypatch):
    from kernelmosaic.solvers import _torch_blocked

    case = make_case("svm", 400, 10.0, "narrow", seed=3)
    rounds = []
    for limit in (10_000, 0):
        monkeypatch.setattr(_torch_blocked, "_NEWTON_FREE", limit)
        ascent = _torch_blocked.BlockedAscent(on_device(case.K), case.program, block=64)
        assert ascent.reach(1e-5, 10_000).gap <= 1e-5
        rounds.append(ascent.n_rounds)
    assert rounds[0] < 0.7 * rounds[1]


def test_blocks_too_large_to_factorise_are_iterated_on(monkeypatch):
    from kernelmosaic.solvers import _torch_linear, _torch_newton

    for module in (_torch_linear, _torch_newton):
        monkeypatch.setattr(module, "FACTORISED", 1)
    case = make_case("svm", 300, 10.0, "narrow", seed=3)
    solution = solve_blocked(on_device(case.K), case.program, tol=1e-6, block=50)
    assert solution.gap <= 1e-6
    assert_same_optimum(case, solution, 1e-6)


# ---- warm starts


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - set(LINEAR)))
def test_the_solution_is_a_start_that_needs_no_round(kind):
    case = make_case(kind, 50, 1.0, "wide", seed=2)
    first = solve_blocked(on_device(case.K), case.program, tol=1e-6, block=20)
    again = solve_blocked(on_device(case.K), case.program, first.beta, tol=2e-6, block=20)
    assert again.n_iter == 0
    assert again.gap <= 2e-6


def test_any_start_will_do():
    case = make_case("svm", 80, 1.0, "wide", seed=4)
    start = 100.0 * np.random.RandomState(0).standard_normal(80)
    solution = solve_blocked(on_device(case.K), case.program, start, tol=1e-6, block=20)
    assert solution.gap <= 1e-6
    assert_same_optimum(case, solution, 1e-6)


# ---- the certificate


def test_the_certificate_reads_the_exact_kernel_not_the_stored_one():
    case = make_case("svm", 120, 1.0, "wide", seed=5)
    K = case.K
    rng = np.random.RandomState(0)
    noise = 1e-4 * rng.standard_normal(K.shape)
    asked = []

    def exact(support, beta):
        asked.append(len(support))
        return K[:, support] @ beta

    stored = on_device((K + noise + noise.T).astype(np.float32), exact)
    solution = solve_blocked(stored, case.program, tol=1e-5, block=40)
    assert asked
    np.testing.assert_allclose(solution.values, K @ solution.beta, atol=1e-10)
    assert solution.objective == pytest.approx(case.dual(solution.beta), rel=1e-10)
    # Products with the stored matrix are corrected by exact ones until the true gap is met.
    assert solution.gap <= 1e-5
    assert_same_optimum(case, solution, 1e-5)


@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_numbers_that_are_none(fault):
    case = make_case("svm", 20, 1.0, "wide", seed=0)
    K = case.K.copy()
    K[3, :] = K[:, 3] = fault
    with pytest.raises(ValueError, match="NaN or infinity"):
        solve_blocked(on_device(K), case.program)


def test_shapes_that_do_not_fit():
    case = make_case("svm", 20, 1.0, "wide", seed=0)
    with pytest.raises(ValueError, match=r"K has shape \(19, 19\), the program 20 samples"):
        solve_blocked(on_device(case.K[:19, :19]), case.program)


# ---- linear systems


@pytest.mark.parametrize("kind", LINEAR)
def test_programs_without_bounds(kind):
    case = make_case(kind, 50, 2.0, "wide", seed=6)
    found = solve_unbounded(on_device(case.K), case.program)
    np.testing.assert_allclose(found.beta, solve_unbounded(case.K, case.program).beta, rtol=1e-8, atol=1e-10)
    assert found.gap <= 1e-9


def test_bounds_are_not_for_the_linear_solver():
    case = make_case("svm", 20, 1.0, "wide", seed=0)
    with pytest.raises(ValueError, match="without bounds"):
        solve_unbounded(on_device(case.K), case.program)


@pytest.mark.parametrize("factorised", [True, False], ids=["factorised", "iterated"])
def test_the_block_of_the_free(factorised, monkeypatch):
    from kernelmosaic.solvers import _torch_linear

    monkeypatch.setattr(_torch_linear, "FACTORISED", 1000 if factorised else 1)
    case = make_case("svm", 80, 5.0, "narrow", seed=7)
    program = svm(case.program.target, 5.0)
    free = free_samples(program, solve_smo(case.K, program, tol=1e-6).beta)
    right = np.random.RandomState(0).standard_normal((len(free), 3))
    expected = np.linalg.solve(case.K[np.ix_(free, free)], right)
    found = solve_free(on_device(case.K), program, free, right)
    tolerance = 1e-6 if factorised else 0.05
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def test_mean_diagonal():
    K = np.diag(np.arange(5.0))
    assert mean_diagonal(on_device(K)) == 2.0


def test_least_squares_are_certified_by_the_exact_kernel_too():
    case = make_case(LINEAR[0], 30, 1.0, SHAPES[0], 0)
    asked = []

    def exact(support, beta):
        asked.append(len(support))
        return case.exact[:, support] @ beta

    solution = solve_unbounded(on_device(case.K.astype(np.float32), exact), case.program)
    assert asked == [30]
    np.testing.assert_allclose(solution.values, case.exact @ solution.beta, rtol=1e-12, atol=1e-12)
