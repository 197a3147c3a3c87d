"""C learned with the weights: the identity as one more kernel."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.learning.hard_margin import HardMargin, LearnedC, WithIdentity
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.machines.base import SVC
from kernelmosaic.solvers.smo import solve_smo

pytest.importorskip("clarabel")
from tests.learning.problems import learn, make_kernels, make_problem, options
from tests.reference.conic import solve_mkl_conic


def noisy(seed, n=40, P=5):
    rng = np.random.RandomState(seed)
    X, Ks = make_kernels(rng, n, P)
    return Ks, np.where(
        np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.8 * rng.standard_normal(n) > 0, 1.0, -1.0
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_against_a_conic_program_with_the_identity(weighted):
    for seed in range(2):
        Ks, y = noisy(seed)
        s = (
            np.exp(np.random.RandomState(seed).standard_normal(len(y)))
            if weighted
            else np.ones(len(y))
        )
        machine = SVC(y, 1.0, slack=2, sample_weight=s)
        identity = np.diag(1 / s) / np.mean(1 / s)
        optimum, eta, _ = solve_mkl_conic([*Ks, identity], HardMargin(machine.program).program)
        found = learn(LearnedC, Ks, machine)
        assert found.gap <= 1e-6
        assert found.objective == pytest.approx(optimum, rel=1e-5)
        assert pytest.approx((1 - eta[-1]) / eta[-1] * np.mean(1 / s), rel=1e-2) == found.C
        assert_allclose(found.weights, eta[:-1] / (1 - eta[-1]), atol=1e-2)
        # The same function is what the machine with that C learns.
        again = learn(Newton, Ks, SVC(y, found.C, slack=2, sample_weight=s), tol=1e-8)
        assert_allclose(found.weights, again.weights, atol=1e-3)
        values = found.solution.values + found.solution.intercept
        assert_allclose(values, again.solution.values + again.solution.intercept, atol=1e-2)
        assert found.solution.gap < 1e-4


def test_separable_classes_need_no_slack():
    n = 30
    y = np.where(np.arange(n) % 2, -1.0, 1.0)
    found = learn(LearnedC, np.array([10 * np.outer(y, y) + 0.1]), SVC(y, 1.0, slack=2))
    assert found.C > 1e3
    assert np.all(y * (found.solution.values + found.solution.intercept) > 0.9)


def test_stack_with_the_identity_is_what_it_says():
    rng = np.random.RandomState(0)
    Ks = make_kernels(rng, 12, 3)[1]
    diagonal = rng.rand(12)
    stack = WithIdentity(StoredStack(Ks), diagonal)
    whole = np.array([*(K + 1e-6 * np.diag(diagonal) for K in Ks), np.diag(diagonal)])
    weights, beta = rng.rand(4), rng.standard_normal(12)
    assert_allclose(stack.combine(weights), np.tensordot(weights, whole, 1))
    rows = np.array([7, 2, 5])
    assert_allclose(stack.products(beta, rows), (whole @ beta)[:, rows])
    assert_allclose(stack.products(beta, None, [1, 3])[[1, 3]], (whole @ beta)[[1, 3]])
    for m, block in stack.blocks([0, 3], rows, slice(1, 6)):
        assert_allclose(block, whole[m][rows, 1:6])
    assert_allclose(stack.row_block(3, slice(0, 12)), whole[3])


def test_features_are_worth_their_matrices():
    rng = np.random.RandomState(0)
    Zs = [rng.standard_normal((60, r)) / np.sqrt(r) for r in (2, 3, 5)]
    y = np.where(Zs[0][:, 0] + Zs[2][:, 1] + 0.5 * rng.standard_normal(60) > 0, 1.0, -1.0)
    machine = SVC(y, 1.0, slack=2, sample_weight=np.exp(rng.standard_normal(60)))
    matrices = learn(LearnedC, [Z @ Z.T for Z in Zs], machine, tol=1e-8)
    features = LearnedC(options(3, tol=1e-8)).learn(StoredFeatures(Zs), machine)
    assert features.gap <= 1e-8
    assert features.objective == pytest.approx(matrices.objective, rel=1e-7)
    assert pytest.approx(matrices.C, rel=1e-3) == features.C
    assert_allclose(features.weights, matrices.weights, atol=1e-4)
    beta = features.solution.beta
    whole = WithIdentity(StoredFeatures(Zs), np.ones(60)).products(beta, None, [3])
    assert_allclose(whole[3], beta)


def test_refusals():
    Ks, y = noisy(0)
    with pytest.raises(ValueError, match="C='learn' needs slack=2"):
        learn(LearnedC, Ks, SVC(y, 1.0))
    with pytest.raises(ValueError, match="C='learn' needs norm=1"):
        LearnedC.require("newton", make_norm(2))
    with pytest.raises(ValueError, match="C='learn' is for classification with two classes"):
        LearnedC.require("newton", machine=make_problem("svr", 0)[1])


def test_a_working_set_of_one_class_stands_still():
    Ks, y = noisy(0)
    program, own = HardMargin(SVC(y, 1.0, slack=2).program).program, np.flatnonzero(y > 0)
    part = program.take(own, program.target[own], 0.0)
    assert_allclose(solve_smo(Ks[0][np.ix_(own, own)], part, max_iter=100).beta, 0.0)


def test_kernels_on_demand_are_worth_their_matrices():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((40, 3))
    y = np.where(X[:, 0] + 0.2 * rng.standard_normal(40) > 0.8, 1, -1)
    kernels = [Linear(), Gaussian(1.0), Gaussian(3.0)]
    stored, computed = (
        MKLClassifier(kernels, C="learn", slack=2, memory_budget=budget).fit(X, y)
        for budget in (None, 4 * 40**2)
    )
    assert computed.duality_gap_ <= 1e-3
    assert computed.objective_ == pytest.approx(stored.objective_, rel=2e-3)


def test_kernels_on_another_scale_than_the_slack_are_refused():
    rng = np.random.default_rng(0)
    X, y = 1e8 * rng.normal(size=(20, 2)), np.repeat([-1, 1], 10)
    with pytest.raises(ValueError, match="C='learn': rounding hides the margin"):
        MKLClassifier([Linear()], C="learn", slack=2, normalize=None).fit(X, y)
