"""Weights without an optimisation over the machine: alignment with the targets, shares of the
margin."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import LinearConstraint, minimize
from tests.learning.problems import learn, make_problem, options

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.fixed import Alignment, EasyMKL, aligned_weights, centred_products


def alignment(weights, Ks, t):
    n = len(t)
    H = np.eye(n) - 1.0 / n
    K = H @ np.tensordot(weights, Ks, 1) @ H
    return t @ K @ t / np.linalg.norm(K)


def test_products_are_those_of_centred_matrices():
    Ks, machine, _ = make_problem("svr", 0)
    t, n = machine.program.target, Ks.shape[1]
    H = np.eye(n) - 1.0 / n
    C = np.array([H @ K @ H for K in Ks])
    M, a = centred_products(StoredStack(Ks), t)
    assert_allclose(M, np.tensordot(C, C, ([1, 2], [1, 2])), rtol=1e-9, atol=1e-9)
    assert_allclose(a, [t @ K @ t for K in C], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["svc", "svr", "least squares"])
def test_no_other_weights_align_better(kind):
    rng = np.random.RandomState(0)
    Ks, machine, d = make_problem(kind, 1)
    t = machine.program.target
    found = learn(Alignment, Ks, machine, penalties=d)
    best = alignment(found.weights, Ks, t)
    for other in [*np.eye(len(Ks)), *rng.dirichlet(np.full(len(Ks), 0.3), size=300)]:
        assert alignment(other, Ks, t) <= best * (1 + 1e-9)
    for _ in range(50):
        near = np.maximum(found.weights * (1 + 0.05 * rng.standard_normal(len(Ks))), 0)
        assert alignment(near, Ks, t) <= best * (1 + 1e-9)


def test_aligned_weights_of_duplicates_and_of_nothing():
    a = np.array([1.0, 1.0])
    assert aligned_weights(np.ones((2, 2)), a).sum() == pytest.approx(1.0)
    assert_allclose(aligned_weights(np.zeros((2, 2)), np.zeros(2)), 0.0)
    assert_allclose(aligned_weights(np.eye(2), np.array([1.0, -1.0])), [1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("norm", [1, 2])
def test_weights_obey_the_norm(norm):
    Ks, machine, d = make_problem("svc", 1)
    for learner in (Alignment, EasyMKL):
        found = learn(learner, Ks, machine, norm=norm, penalties=d)
        assert np.linalg.norm(found.weights * d**2, ord=norm) == pytest.approx(1.0)


@pytest.mark.parametrize("lam", [1e-3, 0.1, 0.9, 1.0])
def test_margin_shares_against_a_generic_optimiser(lam):
    Ks, machine, _ = make_problem("svc", 0, n=20, P=3)
    y = machine.program.target
    n = len(y)
    Q = (1 - lam) * np.outer(y, y) * Ks.sum(axis=0) + lam * np.eye(n)
    one_each = LinearConstraint(np.array([y > 0, y < 0], dtype=float), 1.0, 1.0)
    start = np.where(y > 0, 1 / np.sum(y > 0), 1 / np.sum(y < 0))
    found = minimize(
        lambda g: (g @ Q @ g, 2 * Q @ g),
        start,
        jac=True,
        bounds=[(0, 1)] * n,
        constraints=[one_each],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    b = y * found.x
    shares = np.array([b @ K @ b for K in Ks])
    learned = EasyMKL(options(3), lam).learn(StoredStack(Ks), machine)
    assert_allclose(learned.weights, shares / shares.sum(), atol=1e-4)


@pytest.mark.parametrize("unit", [1e-9, 1e9, 1e20])
def test_alignment_does_not_depend_on_the_unit_of_the_kernels(unit):
    Ks, machine, d = make_problem("svr", 1)
    found = learn(Alignment, unit * Ks, machine, penalties=d)
    assert_allclose(
        found.weights, learn(Alignment, Ks, machine, penalties=d).weights, rtol=1e-6, atol=1e-9
    )
