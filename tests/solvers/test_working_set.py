"""The working-set driver against SMO, for every kind of program, on NumPy and on torch, and its
habits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.programs import LINEAR, MAKERS, SHAPES, assert_feasible, cases, make_case, svm

from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.linear_algebra import solve_block
from kernelmosaic.gram.options import BlockOptions
from kernelmosaic.solvers.smo import initial_point, solve_smo
from kernelmosaic.solvers.tuning import RoundOptions, SolverOptions
from kernelmosaic.solvers.working_set import MostViolating, SingleOutput, solve_working_set

sometimes = settings(max_examples=60, derandomize=True, deadline=None)


def rounds_of(size, **options):
    return SolverOptions(rounds=RoundOptions(size=size, **options))


def placed(where, K, exact=None):
    if where == "numpy":
        return DenseGram(K.copy(), exact)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return DenseGram(torch.as_tensor(K), exact)


WHERE = ["numpy", pytest.param("torch", marks=pytest.mark.torch)]


@pytest.fixture(params=WHERE, scope="module")
def place(request):
    return lambda K, exact=None: placed(request.param, K, exact)


def assert_same_optimum(case, solution, tol):
    """The value of SMO's solution up to both gaps; SMO itself is held against a conic solver
    elsewhere."""
    reference = solve_smo(case.K, case.program, tol=tol)
    scale = max(abs(reference.objective), abs(solution.objective))
    assert abs(reference.objective - solution.objective) <= 2 * tol * scale + 1e-7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_every_kind_of_program(kind, shape, place):
    case = make_case(kind, 60, 3.0, shape, seed=1)
    solution = solve_working_set(place(case.K), case.program, None, 1e-6)
    assert_feasible(case.program, solution.beta)
    assert solution.gap <= 1e-6
    assert solution.objective == pytest.approx(
        case.dual(solution.beta), abs=1e-8 * (1 + abs(solution.objective))
    )
    assert_same_optimum(case, solution, 1e-6)


@sometimes
@given(case=cases(max_samples=30), block=st.integers(2, 8))
def test_many_small_blocks_reach_the_optimum(case, block, place):
    solution = solve_working_set(place(case.K), case.program, tol=1e-5, options=rounds_of(block))
    assert_feasible(case.program, solution.beta)
    assert solution.gap <= 1e-5
    np.testing.assert_allclose(
        solution.values, case.exact @ solution.beta, atol=1e-8 * (1 + np.abs(solution.beta).sum())
    )
    assert_same_optimum(case, solution, 1e-5)


@sometimes
@given(case=cases(max_samples=30), rounds=st.integers(0, 3))
def test_the_gap_is_a_true_bound_long_before_the_optimum(case, rounds, place):
    solution = solve_working_set(
        place(case.K), case.program, tol=1e-9, max_rounds=rounds, options=rounds_of(4)
    )
    assert_feasible(case.program, solution.beta)
    best = solve_smo(case.K, case.program, tol=1e-7)
    scale = max(abs(case.primal(solution.beta, solution.intercept)), abs(solution.objective))
    assert best.objective - solution.objective <= (solution.gap + 1e-6) * scale + 1e-7


@pytest.mark.parametrize("newton", [True, False], ids=["newton", "rounds only"])
def test_a_larger_machine_in_several_rounds(newton, place):
    case = make_case("svm", 400, 10.0, "narrow", seed=3, dtype=np.float32)
    options = RoundOptions(size=64) if newton else RoundOptions(size=64, max_newton_samples=0)
    rounds = SingleOutput(
        place(case.K), case.program, initial_point(case.program), MostViolating(options)
    )
    solution = rounds.solve(1e-5)
    assert solution.gap <= 1e-5
    assert rounds.n_rounds > 3
    assert_same_optimum(case, solution, 1e-5)


def test_newton_steps_save_rounds(place):
    case = make_case("svm", 400, 10.0, "narrow", seed=3)
    counts = []
    for limit in (10_000, 0):
        options = RoundOptions(size=64, max_newton_samples=limit)
        rounds = SingleOutput(
            place(case.K), case.program, initial_point(case.program), MostViolating(options)
        )
        assert rounds.solve(1e-5).gap <= 1e-5
        counts.append(rounds.n_rounds)
    assert counts[0] < 0.7 * counts[1]


def test_blocks_too_large_to_factorise_are_iterated_on(place):
    case = make_case("svm", 300, 10.0, "narrow", seed=3)
    solution = solve_working_set(
        place(case.K), case.program, tol=1e-6, options=rounds_of(50, max_factorised=1)
    )
    assert solution.gap <= 1e-6
    assert_same_optimum(case, solution, 1e-6)


# ---- warm starts


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - set(LINEAR)))
def test_the_solution_is_a_start_that_needs_no_round(kind, place):
    case = make_case(kind, 50, 1.0, "wide", seed=2)
    first = solve_working_set(place(case.K), case.program, tol=1e-6, options=rounds_of(20))
    again = solve_working_set(
        place(case.K), case.program, first.beta, tol=2e-6, options=rounds_of(20)
    )
    assert again.n_iter == 0
    assert again.gap <= 2e-6


def test_any_start_will_do(place):
    case = make_case("svm", 80, 1.0, "wide", seed=4)
    start = 100.0 * np.random.RandomState(0).standard_normal(80)
    solution = solve_working_set(
        place(case.K), case.program, start, tol=1e-6, options=rounds_of(20)
    )
    assert solution.gap <= 1e-6
    assert_same_optimum(case, solution, 1e-6)


# ---- the certificate


def test_the_certificate_reads_the_exact_kernel_not_the_stored_one(place):
    case = make_case("svm", 120, 1.0, "wide", seed=5)
    K = case.K
    rng = np.random.RandomState(0)
    noise = 1e-4 * rng.standard_normal(K.shape)
    asked = []

    def exact(support, beta):
        asked.append(len(support))
        return K[:, support] @ beta

    stored = place((K + noise + noise.T).astype(np.float32), exact)
    solution = solve_working_set(stored, case.program, tol=1e-5, options=rounds_of(40))
    assert asked
    np.testing.assert_allclose(solution.values, K @ solution.beta, atol=1e-10)
    assert solution.objective == pytest.approx(case.dual(solution.beta), rel=1e-10)
    # Products with the stored matrix are corrected by exact ones until the true gap is met.
    assert solution.gap <= 1e-5
    assert_same_optimum(case, solution, 1e-5)


@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_numbers_that_are_none(fault, place):
    case = make_case("svm", 20, 1.0, "wide", seed=0)
    K = case.K.copy()
    K[3, :] = K[:, 3] = fault
    with pytest.raises(ValueError, match="NaN or infinity"):
        solve_working_set(place(K), case.program)


def test_shapes_that_do_not_fit(place):
    case = make_case("svm", 20, 1.0, "wide", seed=0)
    with pytest.raises(ValueError, match=r"K has 19 samples, the program 20"):
        solve_working_set(place(case.K[:19, :19]), case.program)


# ---- linear systems


@pytest.mark.parametrize("factorised", [True, False], ids=["factorised", "iterated"])
def test_the_block_of_the_free(factorised, place):
    case = make_case("svm", 80, 5.0, "narrow", seed=7)
    program = svm(case.program.target, 5.0)
    free = program.free(solve_smo(case.K, program, tol=1e-6).beta)
    gram = place(case.K)
    right = np.random.RandomState(0).standard_normal((len(free), 3))
    expected = np.linalg.solve(case.K[np.ix_(free, free)], right)
    put = gram.backend.asarray
    options = BlockOptions(factorised=1000 if factorised else 1)
    found = gram.backend.to_numpy(
        solve_block(gram.block(free), put(np.zeros(len(free))), put(right), options)
    )
    tolerance = 1e-6 if factorised else 0.05
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    rough = gram.solve_free(free, np.zeros(len(free)), right)
    np.testing.assert_allclose(rough, expected, atol=0.05 * np.abs(expected).max())


def test_the_diagonal(place):
    gram = place(np.diag(np.arange(5.0)))
    np.testing.assert_array_equal(gram.diagonal(), np.arange(5.0))
    np.testing.assert_array_equal(gram.add_diagonal(np.ones(5)).diagonal(), np.arange(1.0, 6.0))
