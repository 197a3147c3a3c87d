"""The SMO solver where kernels and bounds are at their worst, against closed forms and a conic
program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.reference.programs import (
    MAKERS,
    assert_feasible,
    gram,
    labels,
    make_case,
    one_class,
    svm,
)

from kernelmosaic.solvers.smo import most_steps, solve_smo


@pytest.fixture(scope="module")
def conic():
    return pytest.importorskip("tests.reference.conic")


@pytest.mark.parametrize("C", [0.01, 1.0, 1e6])
def test_the_same_sample_with_both_labels(C):
    rng = np.random.RandomState(0)
    K = gram(rng, 12, "wide")
    K, y = np.tile(K, (2, 2)), np.repeat([1.0, -1.0], 12)
    solution = solve_smo(K, svm(y, C))
    # f cannot tell them apart: the best is f = 0, at the loss C for each.
    assert solution.gap <= 1e-3
    assert solution.objective == pytest.approx(24 * C, rel=1e-3)


@pytest.mark.parametrize("level", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("C", [0.1, 1.0, 1e6])
def test_a_constant_kernel(level, C):
    y = np.array([1.0] * 5 + [-1.0] * 3)
    solution = solve_smo(np.full((8, 8), level), svm(y, C))
    # Kβ = 0 whatever β: the smaller class is filled, at twice its price, and the majority is
    # predicted.
    assert solution.gap <= 1e-3
    assert solution.objective == pytest.approx(6 * C, rel=1e-3)
    assert solution.intercept == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("C", "value"), [(0.5, 6 * 0.375), (1.0, 3.0), (50.0, 3.0)])
def test_the_identity(C, value):
    y = np.array([1.0, -1.0] * 3)
    solution = solve_smo(np.eye(6), svm(y, C), tol=1e-9)
    np.testing.assert_allclose(solution.beta, min(C, 1.0) * y, atol=1e-8)
    assert solution.objective == pytest.approx(value, rel=1e-8)
    assert solution.intercept == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", ["wide", "narrow", "linear"])
def test_a_price_of_a_million(conic, shape, dtype):
    case = make_case("svm", 24, 1e6, shape, 1, dtype)
    solution = solve_smo(case.K, case.program, tol=1e-4)
    optimum, _ = conic.solve_program_conic(case.exact, case.program)
    assert solution.gap <= 1e-4
    assert solution.objective == pytest.approx(optimum, rel=2e-4)


@pytest.mark.parametrize(
    ("C", "degree", "dtype"),
    [(1e2, 1, np.float32), (1e6, 1, np.float64), (1e2, 2, np.float64), (1e6, 2, np.float32)],
)
def test_kernels_of_low_rank(degree, C, dtype):
    # Random labels and far fewer dimensions than samples: pairs alone would creep along flat
    # directions for ever.
    rng = np.random.RandomState(6)
    n = 200
    X, y = rng.randn(n, 4), labels(rng, n)
    K = (X @ X.T + 1.0) ** degree
    solution = solve_smo((K / np.diag(K).mean()).astype(dtype), svm(y, C), max_iter=400_000)
    assert solution.gap <= 1e-3
    assert_feasible(svm(y, C), solution.beta)


def test_a_kernel_that_is_no_kernel_ends_all_the_same():
    rng = np.random.RandomState(0)
    K = rng.randn(40, 40)
    program = svm(labels(rng, 40), 10.0)
    solution = solve_smo(K + K.T, program, max_iter=20_000)
    assert_feasible(program, solution.beta)
    assert np.isfinite(solution.objective)


def test_everything_at_its_bound():
    rng = np.random.RandomState(2)
    y = np.array([1.0, -1.0] * 10)
    values = (K := gram(rng, 20, "wide")) @ (1e-4 * y)
    solution = solve_smo(K, svm(y, 1e-4), tol=1e-9)
    np.testing.assert_array_equal(solution.beta, 1e-4 * y)
    z = y - values
    assert solution.intercept == pytest.approx((z[y > 0].min() + z[y < 0].max()) / 2, abs=1e-12)


@pytest.mark.parametrize("n", [2, 49, 100])
def test_a_one_class_machine_without_a_choice(n):
    # The bounds sum to 1, or by rounding to a little less.
    solution = solve_smo(gram(np.random.RandomState(0), n, "wide"), one_class(n, 1 / n))
    np.testing.assert_allclose(solution.beta, 1 / n, rtol=1e-12)
    assert solution.gap <= 1e-3
    assert np.isfinite(solution.intercept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [20, 300])
def test_one_class_around_the_origin(n, dtype):
    # The samples surround the origin: the optimum is w = 0, of value zero, to which no gap is
    # relative.
    X = np.random.RandomState(0).randn(n, 3)
    solution = solve_smo((X @ X.T).astype(dtype), one_class(n, 0.1), tol=1e-6)
    assert solution.gap <= 1e-6
    assert solution.n_iter <= 10_000
    assert abs(solution.objective) <= 100 * np.finfo(dtype).eps


def test_infinite_bounds_with_a_total():
    # One-class with squared slack: β has no upper bound to fill the total with.
    K = gram(np.random.RandomState(4), 10, "wide")
    p = replace(one_class(10, np.inf), ridge=np.full(10, 0.5))
    solution = solve_smo(K, p, tol=1e-8)
    beta = np.linalg.solve(K + 0.5 * np.eye(10), np.ones(10))
    assert beta.min() > 0  # so that the box does not matter
    np.testing.assert_allclose(solution.beta, beta / beta.sum(), atol=1e-4)


def test_a_negative_total():
    # The program of −β with everything turned round.
    case = make_case("svr tilted", 15, 2.0, "wide", 8)
    p = case.program
    turned = replace(p, target=-p.target, lower=-p.upper, upper=-p.lower, total=-p.total)
    one, other = solve_smo(case.K, p, tol=1e-8), solve_smo(case.K, turned, tol=1e-8)
    assert p.total * turned.total < 0
    assert other.objective == pytest.approx(one.objective, rel=1e-7)
    np.testing.assert_allclose(other.beta, -one.beta, atol=1e-3)


@pytest.mark.parametrize("C", [1.0, 1e6])
@pytest.mark.parametrize("n", [2, 30])
def test_positive_semi_definite_up_to_rounding(n, C):
    rng = np.random.RandomState(6)
    X, y = rng.randn(n, 2), labels(rng, n)
    K = X @ X.T
    value = solve_smo(K, svm(y, C)).objective
    # βᵀKβ changes by as much as K's error times ‖β‖², of which there is C for each unit of the
    # value.
    for indefinite, error in ((K - 1e-10 * np.eye(n), 1e-10), (K.astype(np.float32), 1e-6)):
        assert n == 2 or np.linalg.eigvalsh(indefinite.astype(np.float64)).min() < 0
        solution = solve_smo(indefinite, svm(y, C))
        assert solution.gap <= 1e-3
        assert solution.objective == pytest.approx(value, rel=2e-3 + C * error)


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_two_samples(conic, kind):
    for seed in range(5):
        case = make_case(kind, 2, 1.0, "wide", seed)
        optimum, _ = conic.solve_program_conic(case.exact, case.program)
        assert solve_smo(case.K, case.program, tol=1e-8).objective == pytest.approx(
            optimum, rel=1e-6, abs=1e-8
        )


def test_one_class_of_labels_needs_no_coefficients():
    solution = solve_smo(np.eye(4), svm(np.ones(4), 1.0))
    assert not solution.beta.any()
    assert solution.gap == 0.0
    assert np.all(solution.values + solution.intercept >= 1.0)


def test_a_kernel_beyond_rounding_ends_the_solve_with_its_gap():
    # Entries of 10³² times coefficients of one cannot cancel to margins of one.
    rng = np.random.RandomState(0)
    X = 1e8 * rng.standard_normal((30, 3))
    K = (X @ X.T + 1.0) ** 2
    solution = solve_smo(K, svm(np.where(rng.standard_normal(30) > 0, 1.0, -1.0), 1.0))
    assert solution.n_iter <= most_steps(30) == 50_000
    assert solution.gap > 0.1


def test_no_sample_that_counts_makes_no_noise():
    p = svm(np.array([1.0, -1.0]), 1.0)
    nothing = replace(p, target=np.zeros(2), lower=np.zeros(2), upper=np.zeros(2))
    solution = solve_smo(np.eye(2), nothing)
    assert solution.gap == 0.0
    assert not solution.beta.any()
