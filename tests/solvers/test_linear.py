"""Programs without bounds: the SMO solver against a bordered linear system."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from tests.reference.programs import LINEAR, cases

from kernelmosaic.solvers.smo import solve_smo


@settings(max_examples=40, derandomize=True, deadline=None)
@given(cases(LINEAR, max_samples=25))
def test_smo_climbs_to_the_solution_of_a_bordered_system(case):
    p, n = case.program, case.program.n_samples
    A, right = case.exact + np.diag(p.ridge), p.target
    if p.total is not None:
        A = np.block([[A, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        right = np.append(right, p.total)
    beta = np.linalg.solve(A, right)[:n]
    climbed = solve_smo(case.K, p, tol=1e-6)
    assert climbed.gap <= 1e-6
    expected = p.target @ beta - 0.5 * beta @ (case.exact + np.diag(p.ridge)) @ beta
    np.testing.assert_allclose(climbed.objective, expected, rtol=2e-6, atol=1e-12)
