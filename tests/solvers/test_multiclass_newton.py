"""Newton steps on the free coefficients of a joint machine: ascents that stay feasible and end at
the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.machines.base import CrammerSinger, PairwiseSlack
from kernelmosaic.solvers.multiclass import solve_multiclass
from kernelmosaic.solvers.multiclass_newton import DampedNewton

MACHINES = [CrammerSinger, PairwiseSlack]
N, K = 30, 4


def make_problem(own, ridge):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(K if own else 1, N, 8))
    return Z @ Z.transpose(0, 2, 1) / 8 + ridge * np.eye(N), rng.integers(K, size=N)


def inside(program, share=0.5):
    """Coefficients all of which are free."""
    beta = np.tile(-share * program.sample_C[:, None] / K, K)
    beta[np.arange(N), program.labels] = 0.0
    beta[np.arange(N), program.labels] = -beta.sum(axis=1)
    return beta


def slopes(kernels, program, beta):
    return np.ascontiguousarray(program.target.T - (kernels @ beta.T[:, :, np.newaxis])[:, :, 0])


def value(kernels, program, beta):
    return program.linear_value(beta) - 0.5 * np.sum(
        beta.T * (kernels @ beta.T[:, :, np.newaxis])[:, :, 0]
    )


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("machine", MACHINES)
def test_steps_gain_what_they_say_and_stay_feasible(machine, own):
    kernels, y = make_problem(own, 1e-3)
    program = machine(y, 1.0, K).program
    beta, newton = inside(program), DampedNewton()
    residual = slopes(kernels, program, beta)
    total = 0.0
    for _ in range(20):
        before = value(kernels, program, beta)
        gain = newton.step(kernels, program, beta, residual)
        assert gain >= 0.0
        assert value(kernels, program, beta) - before == pytest.approx(gain, rel=1e-6, abs=1e-10)
        total += gain
    assert total > 0.0
    assert_allclose(residual, slopes(kernels, program, beta), atol=1e-9)
    assert_allclose(beta.sum(axis=1), 0.0, atol=1e-12)
    assert_allclose(program.feasible(beta), beta, atol=1e-15)
    # Some samples have met their bounds on the way.
    assert np.any(beta == 0.0)


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("machine", MACHINES)
def test_where_nothing_is_at_a_bound_one_undamped_step_does(machine, own):
    # So stiff that every coefficient stays small, and none at zero.
    kernels, y = make_problem(own, 100.0)
    program = machine(y, 1.0, K).program
    beta, newton = inside(program), DampedNewton()
    newton.damping = 1e-9
    residual = slopes(kernels, program, beta)
    newton.step(kernels, program, beta, residual)
    shared = kernels if own else kernels[0]
    optimum = solve_multiclass(shared, program, tol=1e-12)
    assert_allclose(beta, optimum.beta, atol=1e-6)


def test_damping_follows_how_far_steps_could_go():
    kernels, y = make_problem(False, 100.0)
    program = CrammerSinger(y, 1.0, K).program
    beta, newton = inside(program), DampedNewton()
    first = newton.damping
    newton.step(kernels, program, beta, slopes(kernels, program, beta))
    assert newton.damping < first


def test_nothing_free_nothing_gained():
    kernels, y = make_problem(False, 1.0)
    program = CrammerSinger(y, 1.0, K).program
    beta = np.zeros((N, K))
    assert DampedNewton().step(kernels, program, beta, slopes(kernels, program, beta)) == 0.0
    assert not beta.any()
