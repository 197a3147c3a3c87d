"""Weights of every class and kernel, and weights shared by the classes of a joint machine, against
conic programs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import PowerNorm, SumNorm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import CrammerSinger, PairwiseSlack
from kernelmosaic.multiclass.learning import (
    ClassNewton,
    ClassWiseProblem,
    ProjectedGradient,
    QuasiNewton,
)

pytest.importorskip("clarabel")
from tests.reference.joint import solve_bilinear_conic, solve_joint_conic, solve_joint_mkl_conic


def make_problem(seed, n=24, k=3, P=3):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    X = rng.normal(size=(n, 4)) + 1.5 * rng.normal(size=(k, 4))[y]
    squares = ((X[:, None] - X) ** 2).sum(-1)
    return np.stack([np.exp(-squares / width**2) for width in np.logspace(-0.3, 1.3, P)]), y


def learn(learner, Ks, machine, tol, max_iter):
    return learner(LearnerOptions(SumNorm(), np.ones(len(Ks)), tol, max_iter)).learn(
        StoredStack(Ks), machine
    )


def class_wise(Ks, machine):
    return ClassWiseProblem(
        StoredStack(Ks), machine, LearnerOptions(SumNorm(), np.ones(len(Ks)), tol=0.0)
    )


@pytest.mark.parametrize("learner", [ClassNewton, QuasiNewton])
@pytest.mark.parametrize(("k", "kappa"), [(3, 1.0), (4, 0.5), (6, 10.0)])
def test_the_bilinear_optimum_is_the_group_norms(k, kappa, learner):
    Ks, y = make_problem(k, k=k)
    optimum, norms = solve_bilinear_conic(Ks, y, k, kappa)
    found = learn(learner, Ks, CrammerSinger(y, kappa), 1e-6, 1000)
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(optimum, rel=1e-5)
    assert_allclose(found.weights, norms, atol=2e-2 * norms.max())
    assert found.n_solves == len(found.history)


def test_the_published_scheme_reaches_the_same_optimum():
    Ks, y = make_problem(1)
    optimum, _ = solve_bilinear_conic(Ks, y, 3, 1.0)
    found = learn(ProjectedGradient, Ks, CrammerSinger(y, 1.0), 1e-4, 3000)
    assert found.gap <= 1e-4
    assert optimum <= found.objective * (1 + 1e-8) <= optimum * (1 + 2e-4)


@pytest.mark.parametrize("learner", [ClassNewton, QuasiNewton, ProjectedGradient])
def test_the_gap_is_a_true_bound_long_before_the_end(learner):
    Ks, y = make_problem(2)
    optimum, _ = solve_bilinear_conic(Ks, y, 3, 1.0)
    for max_iter in (1, 3, 6):
        found = learn(learner, Ks, CrammerSinger(y, 1.0), 1e-12, max_iter)
        assert found.n_solves == max_iter
        assert (
            found.objective * (1 - found.gap)
            <= optimum * (1 + 1e-7)
            <= found.objective * (1 + 2e-7)
        )


def test_rescaling_changes_no_output_and_balances_the_regulariser():
    Ks, y = make_problem(3)
    problem = class_wise(Ks, CrammerSinger(y, 1.0))
    d = np.random.default_rng(0).uniform(0.1, 2.0, (3, 3))
    at = problem.evaluate(d, None, 1e-6)
    scaled, solution = problem.rescaled(at)
    matrices = np.einsum("cr,rij->cij", scaled, Ks)
    assert_allclose(
        np.einsum("cij,jc->ic", matrices, solution.beta), at.solution.values, rtol=1e-9, atol=1e-12
    )
    squares = np.einsum("ic,cij,jc->c", solution.beta, matrices, solution.beta)
    assert_allclose(squares, scaled.sum(axis=1), rtol=1e-9)
    losses = problem.machine.program.losses(at.solution.values)
    assert at.upper == pytest.approx(0.5 * (squares.sum() + scaled.sum()) + losses, rel=1e-9)
    assert at.upper < problem.value(at)
    plain = 0.5 * np.einsum("ic,ic->", at.solution.beta, at.solution.values) + losses
    assert problem.value(at) == pytest.approx(0.5 * d.sum() + plain, rel=1e-9)


def test_the_slope_is_that_of_the_value():
    Ks, y = make_problem(4)
    problem = class_wise(Ks, CrammerSinger(y, 1.0))
    d = np.random.default_rng(1).uniform(0.5, 1.0, (3, 3))
    q = problem.evaluate(d, None, 1e-12).q
    h = 1e-4
    for c, r in ((0, 0), (1, 2), (2, 1)):
        up, down = d.copy(), d.copy()
        up[c, r] += h
        down[c, r] -= h
        above, below = (problem.value(problem.evaluate(there, None, 1e-12)) for there in (up, down))
        assert (above - below) / (2 * h) == pytest.approx(0.5 - q[c, r], abs=1e-5)


@pytest.mark.parametrize("learner", [ClassNewton, QuasiNewton])
def test_a_class_may_end_without_any_weight(learner):
    # Kernels that see nothing of the third class: its output is best left at zero.
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1, 2], 10)
    X = np.concatenate(
        [rng.normal(3, 0.5, (10, 1)), rng.normal(-3, 0.5, (10, 1)), np.zeros((10, 1))]
    )
    Ks = np.stack([X @ X.T, (X**3) @ (X**3).T])
    optimum, norms = solve_bilinear_conic(Ks, y, 3, 0.05)
    found = learn(learner, Ks, CrammerSinger(y, 0.05), 1e-4, 500)
    assert np.all(norms[2] < 1e-6)
    assert np.all(found.weights[2] < 1e-6)
    assert found.objective == pytest.approx(optimum, rel=1e-3)
    assert np.all(np.isfinite(found.solution.beta))


@pytest.mark.parametrize("constants", [False, True], ids=["without constants", "with constants"])
@pytest.mark.parametrize("machine", [CrammerSinger, PairwiseSlack])
def test_shared_weights_reach_the_conic_optimum(machine, constants):
    Ks, y = make_problem(10 + constants, P=4)
    one = machine(y, 2.0, constants=constants)
    p = one.program
    optimum, weights = solve_joint_mkl_conic(Ks, y, 3, p.sample_C, p.margins, p.pairwise, constants)
    found = Newton(LearnerOptions(SumNorm(), np.ones(4), tol=1e-6)).learn(StoredStack(Ks), one)
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(optimum, rel=1e-5)
    assert_allclose(found.weights, weights, atol=1e-2)
    assert found.weights.sum() == pytest.approx(1.0)


def test_shared_weights_of_power_norm_and_given_ones():
    Ks, y = make_problem(20, P=4)
    one = CrammerSinger(y, 1.0)
    found = Newton(LearnerOptions(PowerNorm(2.0), np.ones(4), tol=1e-5)).learn(StoredStack(Ks), one)
    p = one.program

    def value(eta):
        return solve_joint_conic(np.tensordot(eta, Ks, 1), y, 3, p.sample_C, p.margins, False)

    assert found.gap <= 1e-5
    assert np.linalg.norm(found.weights) == pytest.approx(1.0)
    assert found.objective == pytest.approx(value(found.weights), rel=1e-4)
    for other in np.random.default_rng(0).dirichlet(np.ones(4), size=5):
        assert value(other / np.linalg.norm(other)) >= found.objective * (1 - 1e-5)
    fixed = FixedWeights(np.full(4, 0.25), tol=1e-8).learn(StoredStack(Ks), one)
    assert fixed.objective == pytest.approx(value(np.full(4, 0.25)), rel=1e-6)
