"""The conic references against closed forms, plain numerical optimisers, and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize, minimize_scalar

from kernelmosaic.solvers.program import Program

pytest.importorskip("clarabel")
from tests.reference.conic import solve_mkl_conic, solve_mkl_lp_generic, solve_program_conic


def gram(rng, n, rank):
    Z = rng.standard_normal((n, rank))
    return Z @ Z.T / rank


def machine(kind, rng, n):
    """One small program of each kind, written out by hand."""
    y = np.where(np.arange(n) % 2, -1.0, 1.0)
    zero, full, inf = np.zeros(n), np.full(n, 0.8), np.full(n, np.inf)
    return {
        "svm": Program(y, np.minimum(0, 0.8 * y), np.maximum(0, 0.8 * y), zero),
        "svm2": Program(y, np.where(y > 0, 0, -inf), np.where(y > 0, inf, 0), full),
        "svr": Program(rng.standard_normal(n), -full, full, zero, epsilon=0.2),
        "one_class": Program(zero, zero, full, zero, total=1.0),
        "ridge": Program(rng.standard_normal(n), -inf, inf, full, total=None),
    }[kind]


KINDS = ["svm", "svm2", "svr", "one_class", "ridge"]


def test_two_samples_by_hand():
    y = np.array([1.0, -1.0])
    # β = (a, −a): the value is 2a − a² until a = C.
    for C, value in ((5.0, 1.0), (0.5, 0.75)):
        program = Program(y, np.minimum(0, C * y), np.maximum(0, C * y), np.zeros(2))
        objective, beta = solve_program_conic(np.eye(2), program)
        assert objective == pytest.approx(value, abs=1e-8)
        np.testing.assert_allclose(beta, min(C, 1.0) * y, atol=1e-5)
    # A tube of half-width ε takes 2aε off; a sum of 1 with K = I is split evenly and costs ½ Σ ¼.
    tube = Program(y, -np.ones(2), np.ones(2), np.zeros(2), epsilon=0.4)
    assert solve_program_conic(np.eye(2), tube)[0] == pytest.approx(0.36, abs=1e-8)
    one = Program(np.zeros(2), np.zeros(2), np.ones(2), np.zeros(2), total=1.0)
    assert solve_program_conic(np.eye(2), one)[0] == pytest.approx(-0.25, abs=1e-8)


def test_without_bounds_it_is_a_linear_system():
    rng = np.random.RandomState(0)
    K, program = gram(rng, 6, 3), machine("ridge", rng, 6)
    beta = np.linalg.solve(K + np.diag(program.ridge), program.target)
    objective, found = solve_program_conic(K, program)
    assert objective == pytest.approx(0.5 * program.target @ beta, rel=1e-8)
    np.testing.assert_allclose(found, beta, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_program_against_a_plain_optimiser(kind):
    rng = np.random.RandomState(3)
    n = 4
    K, p = gram(rng, n, 3), machine(kind, rng, n)

    # β = a − b with a, b ≥ 0 makes the tube smooth.
    def loss(x):
        beta = x[:n] - x[n:]
        return (
            0.5 * beta @ K @ beta + 0.5 * p.ridge @ beta**2 - p.target @ beta + p.epsilon * x.sum()
        )

    bounds = [(0.0, b) for b in np.concatenate([p.upper, -p.lower])]
    signs = np.repeat([1.0, -1.0], n)
    sums = [] if p.total is None else [LinearConstraint(signs, p.total, p.total)]
    best = minimize(
        loss,
        np.full(2 * n, 0.1),
        bounds=bounds,
        constraints=sums,
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert solve_program_conic(K, p)[0] == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_mkl_is_the_least_of_the_programs(kind):
    rng = np.random.RandomState(5)
    n, d = 8, np.array([1.0, 0.7, 1.6])
    Ks, program = [gram(rng, n, r) for r in (1, 3, 8)], machine(kind, rng, n)
    objective, weights, beta = solve_mkl_conic(Ks, program, d)
    assert weights.min() >= -1e-9
    assert d**2 @ weights == pytest.approx(1.0, abs=1e-7)
    value, _ = solve_program_conic(np.tensordot(weights, Ks, 1), program)
    assert value == pytest.approx(objective, abs=1e-6)
    quadratic = max(0.5 * beta @ K @ beta / c**2 for K, c in zip(Ks, d, strict=True))
    assert program.linear_value(beta) - quadratic == pytest.approx(objective, abs=1e-6)
    for shares in rng.dirichlet(np.ones(3), size=20):
        assert (
            solve_program_conic(np.tensordot(shares / d**2, Ks, 1), program)[0] >= objective - 1e-7
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1.2, 2.0, 4.0])
def test_lp_mkl_against_a_search_over_the_weights(kind, p):
    rng = np.random.RandomState(7)
    n = 7
    Ks, program = [gram(rng, n, 2), gram(rng, n, 5)], machine(kind, rng, n)

    def value(share):
        return solve_program_conic(
            share ** (1 / p) * Ks[0] + (1 - share) ** (1 / p) * Ks[1], program
        )[0]

    best = minimize_scalar(value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-7})
    objective, weights, _ = solve_mkl_lp_generic(Ks, program, p)
    assert objective == pytest.approx(best.fun, abs=2e-6)
    assert np.linalg.norm(weights, ord=p) == pytest.approx(1.0, abs=1e-9)
    assert weights[0] ** p == pytest.approx(best.x, abs=2e-3)


def test_lp_mkl_meets_sparse_mkl_and_the_plain_sum_at_its_ends():
    rng = np.random.RandomState(9)
    Ks, program = [gram(rng, 8, r) for r in (2, 4)], machine("svm", rng, 8)
    assert solve_mkl_lp_generic(Ks, program, 1.01)[0] == pytest.approx(
        solve_mkl_conic(Ks, program)[0], rel=2e-2
    )
    assert solve_mkl_lp_generic(Ks, program, 100.0)[0] == pytest.approx(
        solve_program_conic(sum(Ks), program)[0], rel=2e-2
    )


def test_one_kernel_is_the_program_itself():
    rng = np.random.RandomState(11)
    K, program = gram(rng, 8, 4), machine("svr", rng, 8)
    assert solve_mkl_conic([K], program, [2.0])[0] == pytest.approx(
        solve_program_conic(K / 4, program)[0], abs=1e-7
    )
    assert solve_mkl_lp_generic([K], program, 2.0)[0] == pytest.approx(
        solve_program_conic(K, program)[0], abs=1e-7
    )
