"""Least squares by one factorisation, against scikit-learn, a bordered system and the SMO solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.kernel_ridge import KernelRidge
from tests.reference.programs import LINEAR, cases, make_case

from kernelmosaic.machines.base import solve_unbounded
from kernelmosaic.solvers import Program, solve_smo

often = settings(max_examples=60, derandomize=True, deadline=None)


@often
@given(cases(LINEAR))
def test_the_bordered_system_is_solved(case):
    p, n = case.program, case.program.n_samples
    A, right = case.exact + np.diag(p.ridge), p.target
    if p.total is not None:
        A = np.block([[A, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        right = np.append(right, p.total)
    expected = np.linalg.solve(A, right)
    solution = solve_unbounded(case.K, p)
    size = np.abs(expected).max()
    np.testing.assert_allclose(solution.beta, expected[:n], atol=1e-7 * size)
    assert solution.intercept == pytest.approx(expected[n] if p.total is not None else 0.0, abs=1e-7 * (1 + size))
    np.testing.assert_allclose(solution.values, case.exact @ expected[:n], atol=1e-5 * (1 + size))
    assert solution.gap <= 1e-6


@often
@given(cases(LINEAR, max_samples=25))
def test_smo_climbs_to_the_same_optimum(case):
    exact, climbed = solve_unbounded(case.K, case.program), solve_smo(case.K, case.program, tol=1e-6)
    assert climbed.gap <= 1e-6
    assert climbed.objective == pytest.approx(exact.objective, rel=2e-6, abs=1e-12)


def test_kernel_ridge_is_the_same_machine():
    rng = np.random.RandomState(0)
    X, y, weight = rng.randn(30, 3), rng.randn(30), 0.1 + rng.rand(30)
    K, inf = X @ X.T, np.full(30, np.inf)
    ridge = KernelRidge(alpha=0.3, kernel="precomputed").fit(K, y, sample_weight=weight)
    solution = solve_unbounded(K, Program(y, -inf, inf, 0.3 / weight, total=None))
    np.testing.assert_allclose(solution.values, ridge.predict(K), rtol=1e-8)


def test_the_kernel_is_left_as_it_was():
    case = make_case("ridge", 10, 1.0, "wide", 0)
    before = case.K.copy()
    solve_unbounded(case.K, case.program)
    np.testing.assert_array_equal(case.K, before)


@pytest.mark.parametrize("kind", ["svm", "svr", "svm squared", "svr squared"])
def test_bounds_and_tubes_are_refused(kind):
    case = make_case(kind, 6, 1.0, "wide", 0)
    with pytest.raises(ValueError, match="without bounds"):
        solve_unbounded(case.K, case.program)
