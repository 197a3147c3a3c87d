"""Interior points on kernels in factors, against the conic reference and the solver that reads
matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.programs import (
    LINEAR,
    MAKERS,
    assert_feasible,
    cases,
    labels,
    make_case,
    one_class,
    svm,
)

from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.machines.base import SVC, SVR, OneClass
from kernelmosaic.solvers.factored import FactoredRounds, solve_factored
from kernelmosaic.solvers.interior_point import CentralPath
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.tuning import DEFAULTS
from kernelmosaic.solvers.working_set import SingleOutput

often = settings(max_examples=60, derandomize=True, deadline=None)
sometimes = settings(max_examples=30, derandomize=True, deadline=None)


@pytest.fixture(scope="module")
def conic():
    return pytest.importorskip("tests.reference.conic")


def in_factors(K, dtype=np.float64):
    """K = ZZᵀ, from its eigenvectors."""
    eigenvalues, V = np.linalg.eigh(np.asarray(K, dtype=np.float64))
    keep = eigenvalues > 1e-13 * max(eigenvalues[-1], 1e-300)
    Z = V[:, keep] * np.sqrt(eigenvalues[keep]) if keep.any() else np.zeros((len(K), 1))
    return StoredFeatures([Z.astype(dtype)]).combine(np.ones(1))


@often
@given(case=cases())
def test_the_optimum_is_reached_and_the_gap_is_a_true_bound(conic, case):
    gram = in_factors(case.exact)
    optimum, _ = conic.solve_program_conic(case.exact, case.program)
    solution = solve_factored(gram, case.program, tol=1e-6)
    assert_feasible(case.program, solution.beta)
    np.testing.assert_allclose(
        solution.values, case.exact @ solution.beta, atol=1e-7 * (1 + np.abs(solution.beta).sum())
    )
    dual, primal = case.dual(solution.beta), case.primal(solution.beta, solution.intercept)
    rounding = 1e-7 * max(abs(primal), abs(dual)) + 1e-9
    assert solution.gap <= 1e-6
    assert solution.objective == pytest.approx(dual, abs=rounding)
    assert dual <= optimum + rounding
    assert optimum <= primal + rounding
    assert optimum - dual <= solution.gap * max(abs(primal), abs(dual)) + rounding


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_few_matrices_are_factorised(kind):
    for seed, shape in enumerate(("wide", "narrow", "linear", "repeated")):
        case = make_case(kind, 120, 3.0, shape, seed)
        path = CentralPath(in_factors(case.exact), case.program)
        path.follow(1e-6)
        assert path.gap() <= 1e-6
        assert path.n_iter <= (1 if kind in LINEAR else 25)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["svc", "svc squared", "svr", "svr squared", "one class"])
def test_machines_agree_with_what_they_find_on_the_matrix(kind, weighted):
    rng = np.random.RandomState(0)
    n = 200
    X = rng.standard_normal((n, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n)
    weight = rng.gamma(1.0, size=n) * (rng.rand(n) < 0.9) if weighted else None
    y = np.where(f > 0, 1.0, -1.0)
    machine = {
        "svc": lambda: SVC(y, 2.0, 1, weight),
        "svc squared": lambda: SVC(y, 2.0, 2, weight),
        "svr": lambda: SVR(f, 2.0, 0.1, 1, weight),
        "svr squared": lambda: SVR(f, 2.0, 0.1, 2, weight),
        "one class": lambda: OneClass(n, 10.0 / n, weight),
    }[kind]()
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 9.0)
    found, reference = machine.solve(in_factors(K), tol=1e-8), machine.solve(K, tol=1e-8)
    assert found.gap <= 1e-8
    assert found.objective == pytest.approx(reference.objective, rel=1e-7)
    np.testing.assert_allclose(
        found.values + found.intercept, reference.values + reference.intercept, atol=2e-3
    )
    # Bounds are met exactly, so that the support is as small as the other solver's.
    assert abs(np.count_nonzero(found.beta) - np.count_nonzero(reference.beta)) <= 3


@sometimes
@given(case=cases(), seed=st.integers(0, 1000), size=st.floats(-2, 2))
def test_warm_starts_end_at_the_same_optimum(case, seed, size):
    p, gram = case.program, in_factors(case.exact)
    cold = solve_factored(gram, p, tol=1e-7)
    anywhere = 10.0**size * np.random.RandomState(seed).standard_normal(p.n_samples)
    for start in (anywhere, p.feasible(anywhere), cold.beta):
        kept = start.copy()
        warm = solve_factored(gram, p, start, 1e-6)
        np.testing.assert_array_equal(start, kept)
        assert_feasible(p, warm.beta)
        assert warm.gap <= 1e-6
        assert warm.objective == pytest.approx(cold.objective, rel=3e-6, abs=1e-9)
    assert warm.n_iter == 0  # it started at the end


@sometimes
@given(case=cases())
def test_without_working_sets_interior_points_do(case):
    gram = in_factors(case.exact)
    gram.block_samples = 0
    solution = solve_factored(gram, case.program, tol=1e-5)
    assert_feasible(case.program, solution.beta)
    assert solution.gap <= 1e-5
    reference = solve_smo(case.exact, case.program, tol=1e-7)
    assert solution.objective == pytest.approx(reference.objective, rel=2e-5, abs=1e-8)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_features_in_single_precision_are_certified_as_they_are(kind):
    case = make_case(kind, 150, 3.0, "wide", 1)
    gram = in_factors(case.exact, np.float32)
    Z = gram.rows(np.arange(150))
    solution = solve_factored(gram, case.program, None, 1e-5)
    reference = solve_smo(Z @ Z.T, case.program, tol=1e-6)
    assert solution.gap <= 1e-5
    assert solution.objective == pytest.approx(reference.objective, rel=2e-5)


def test_programs_with_nothing_to_choose():
    K = np.eye(4)
    gram = in_factors(K)
    taken = Program(np.ones(4), np.zeros(4), np.zeros(4), np.zeros(4))
    assert not solve_factored(gram, taken, None, 1e-6).beta.any()
    # One class only: β = 0 is all the sum allows.
    alone = svm(np.ones(4), 1.0)
    assert not solve_factored(gram, alone, None, 1e-6).beta.any()
    # Every sample at its bound.
    np.testing.assert_allclose(solve_factored(gram, one_class(4, 0.25), None, 1e-6).beta, 0.25)
    with pytest.raises(ValueError, match="No β is feasible"):
        solve_factored(gram, one_class(4, 0.2), None, 1e-6)


def test_a_kernel_of_zeros():
    gram = StoredFeatures([np.zeros((6, 2))]).combine(np.ones(1))
    y = np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0])
    solution = solve_factored(gram, svm(y, 2.0), None, 1e-6)
    reference = solve_smo(np.zeros((6, 6)), svm(y, 2.0), tol=1e-6)
    assert solution.gap <= 1e-6
    assert solution.objective == pytest.approx(reference.objective)


def test_samples_that_surround_the_origin_are_worth_nothing():
    Z = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [2.0, 1.0]])
    solution = solve_factored(
        StoredFeatures([Z]).combine(np.ones(1)), one_class(5, 1.0), None, 1e-6
    )
    assert solution.objective == pytest.approx(0.0, abs=1e-9)
    assert solution.gap <= 1e-6


@pytest.mark.parametrize("n_free", [3, 30])
def test_the_block_of_the_free_samples_is_solved_roughly(n_free):
    rng = np.random.RandomState(0)
    Z, ridge = rng.standard_normal((40, 8)), rng.uniform(0.5, 1.0, 40)
    gram = StoredFeatures([Z]).combine(np.ones(1))
    program = Program(np.ones(40), -np.ones(40), np.ones(40), ridge)
    free, right = np.sort(rng.choice(40, n_free, replace=False)), rng.standard_normal((n_free, 2))
    exact = np.linalg.solve((Z @ Z.T)[np.ix_(free, free)] + np.diag(ridge[free]), right)
    np.testing.assert_allclose(
        gram.solve_free(free, program.ridge[free], right), exact, rtol=1e-2, atol=1e-3
    )
    np.testing.assert_allclose(gram.diagonal(), np.diag(Z @ Z.T))


def test_a_form_of_kernel_nobody_knows():
    with pytest.raises(TypeError, match="type str"):
        SVC(np.ones(2), 1.0).solve("K")


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_tube_that_holds_every_target_leaves_nothing_to_do(seed):
    # Coefficients that only approach zero have a relative gap of one, however small they are.
    rng = np.random.RandomState(seed)
    for size in (1.0, 100.0, 1.0, 100.0):
        p = Program(
            rng.uniform(-0.1, 0.1, 40),
            np.full(40, -2.0),
            np.full(40, 2.0),
            np.zeros(40),
            epsilon=1.0,
        )
        Z = size * np.hstack([np.full((40, 3), 1.3), rng.standard_normal((40, 5))])
        solution = solve_factored(StoredFeatures([Z]).combine(np.ones(1)), p, None, 1e-6)
        assert not solution.beta.any()
        assert solution.gap == 0


def squared_slack(y):
    return Program(
        y, np.where(y > 0, 0.0, -np.inf), np.where(y > 0, np.inf, 0.0), np.full(len(y), 0.01)
    )


@pytest.mark.parametrize(
    ("seed", "kind", "dtype"),
    [
        (0, "squared slack", np.float32),
        (1, "squared slack", np.float32),
        (2, "squared slack", np.float64),
        (0, "huge price", np.float32),
        (1, "huge price", np.float64),
        (2, "huge price", np.float32),
    ],
)
def test_large_kernels_and_prices_are_served_in_either_precision(seed, kind, dtype):
    # In single precision the ridge is rounded away; and a price far above the kernel's inverse is
    # far from the start.
    rng = np.random.RandomState(seed)
    Z = np.hstack([np.full((100, 9), 130.0), 100 * rng.standard_normal((100, 8))]).astype(dtype)
    y = labels(rng, 100)
    p = squared_slack(y) if kind == "squared slack" else svm(y, 1e5)
    stack = StoredFeatures([Z])
    stack.options = replace(stack.options, block_samples=0)
    solution = solve_factored(stack.combine(np.ones(1)), p, None, 1e-4)
    exact = Z.astype(np.float64)
    reference = solve_smo(exact @ exact.T, p, tol=1e-4)
    assert solution.gap <= 1e-4
    assert solution.objective == pytest.approx(reference.objective, rel=3e-4)


def test_a_block_of_many_free_samples_in_single_precision_is_solved_though_features_repeat():
    Z = np.random.RandomState(0).standard_normal((3000, 4)).astype(np.float32)
    gram = StoredFeatures([np.hstack([Z, Z, Z])]).combine(np.ones(1))
    program = Program(np.ones(3000), -np.ones(3000), np.ones(3000), np.zeros(3000))
    right = Z[:, :2].astype(np.float64)
    found = gram.solve_free(np.arange(3000), program.ridge, right)
    # β = (K + noise)⁻¹ Zv reproduces Zv but for the noise.
    np.testing.assert_allclose(gram.apply(gram.adjoint(found)), right, atol=1e-2)


def test_a_working_set_of_one_class_keeps_its_sum_though_the_others_round():
    rng = np.random.RandomState(1)
    n = 60
    y = np.where(np.arange(n) < 30, 1.0, -1.0)
    sample_C = rng.uniform(0.05, 0.15, n)
    gram = StoredFeatures([rng.standard_normal((n, 3))]).combine(np.ones(1))
    program = Program(
        y, np.where(y > 0, 0.0, -sample_C), np.where(y > 0, sample_C, 0.0), np.zeros(n)
    )
    beta = np.concatenate([np.zeros(5), sample_C[5:30], np.full(30, -sample_C[5:30].sum() / 30)])
    # What the others leave is not zero but −4e-17 or so, which samples that cannot fall cannot make
    # up for.
    assert beta[5:].sum() != 0
    policy = FactoredRounds(gram, DEFAULTS)
    state = SingleOutput(gram, program, beta, policy)
    found, _, _ = policy.solve(state, np.arange(5), state.evaluate(), 1e-3)
    np.testing.assert_array_equal(found, 0.0)
