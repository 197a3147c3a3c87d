"""Programs on ZZᵀ + diag e: solved through the ridge, certified as they are, against the matrix
written down."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.learning.hard_margin import HardMargin
from kernelmosaic.machines.base import SVC, SVR
from kernelmosaic.solvers.program import certify
from kernelmosaic.solvers.smo import solve_smo

N = 90


def make_gram(seed=0, least=0.1):
    rng = np.random.RandomState(seed)
    Z = rng.standard_normal((N, 6))
    shift = least + rng.rand(N)
    gram = StoredFeatures([Z[:, :2], Z[:, 2:]]).combine(np.ones(2)).add_diagonal(shift)
    return gram, Z @ Z.T + np.diag(shift), Z[:, 0] + 0.5 * rng.standard_normal(N)


MACHINES = {
    "margin": lambda f: HardMargin(SVC(np.sign(f), 1.0, slack=2).program),
    "classes": lambda f: SVC(np.sign(f), 1.0),
    "classes, squared": lambda f: SVC(np.sign(f), 1.0, slack=2),
    "targets": lambda f: SVR(f, 0.5, 0.1),
}


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", sorted(MACHINES))
def test_against_the_matrix_written_down(name, warm, tol):
    gram, K, f = make_gram()
    machine = MACHINES[name](f)
    program = machine.program
    exact = solve_smo(K, program, tol=1e-10)
    found = machine.solve(gram, exact.beta * 1.1 if warm else None, tol)
    assert found.gap <= tol
    np.testing.assert_allclose(found.values, K @ found.beta, atol=1e-9 * np.abs(found.values).max())
    again = certify(program, found.beta, K @ found.beta, 0)
    assert again.gap == pytest.approx(found.gap, abs=1e-9)
    assert again.objective == pytest.approx(found.objective, rel=1e-9)
    assert exact.objective * (1 - 2 * tol) <= found.objective <= exact.objective * (1 + 1e-9)


def test_a_margin_that_nearly_every_sample_shares():
    # Little on the diagonal and few features: the machine is all but unable to part the classes.
    gram, K, f = make_gram(least=1e-3)
    machine = MACHINES["margin"](f)
    program, found = machine.program, machine.solve(gram, None, 1e-6)
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(solve_smo(K, program, tol=1e-9).objective, rel=2e-6)
    assert np.min(program.target * (found.values + found.intercept)) == pytest.approx(1.0, abs=1e-5)


def test_parts():
    gram, K, f = make_gram()
    program = MACHINES["classes, squared"](f).program
    np.testing.assert_allclose(gram.diagonal(), np.diag(K))
    some = np.array([3, 1, 50])
    np.testing.assert_allclose(gram.block(some), K[np.ix_(some, some)], atol=1e-12)
    free = np.arange(0, N, 2)
    sides = np.random.RandomState(0).standard_normal((len(free), 2))
    expected = np.linalg.solve(K[np.ix_(free, free)] + np.diag(program.ridge[free]), sides)
    np.testing.assert_allclose(
        gram.solve_free(free, program.ridge[free], sides), expected, rtol=1e-3, atol=1e-3
    )
