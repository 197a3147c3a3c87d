"""The curvature of a joint machine's value in its weights, against differences of the slopes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.machines.base import CrammerSinger, PairwiseSlack
from kernelmosaic.solvers.multiclass_newton import free_coefficients, multiclass_curvature


def make_problem(seed=0, n=40, k=4, P=3):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    X = rng.normal(size=(n, 4)) + 1.5 * rng.normal(size=(k, 4))[y]
    squares = ((X[:, None] - X) ** 2).sum(-1)
    return np.stack([np.exp(-squares / width**2) for width in np.logspace(-0.3, 0.7, P)]), y


def solve(machine, Ks, d):
    K = np.einsum("cm,mij->cij", d, Ks)
    beta = machine.solve(K, tol=1e-13).beta
    products = np.einsum("mij,jc->mic", Ks, beta)
    return K, beta, products, 0.5 * np.einsum("mic,ic->cm", products, beta)


@pytest.mark.parametrize("constants", [False, True], ids=["without constants", "with constants"])
@pytest.mark.parametrize("kind", [CrammerSinger, PairwiseSlack])
def test_curvature_against_differences(kind, constants):
    Ks, y = make_problem()
    machine = kind(y, 1.0, constants=constants)
    d = np.random.default_rng(1).uniform(0.5, 1.5, (4, 3))
    K, beta, products, _ = solve(machine, Ks, d)
    H = multiclass_curvature(K, machine.program, beta, products)
    assert 0 < free_coefficients(machine.program, beta).sum() < beta.size
    h = 1e-6
    # Along directions of all weights at once: a wrong column of H shows in each of them.
    for along in np.random.default_rng(2).normal(size=(3, *d.shape)):
        along /= np.linalg.norm(along)
        up, down = (solve(machine, Ks, d + sign * h * along)[3] for sign in (1, -1))
        assert_allclose(
            H @ along.ravel(), (down - up).ravel() / (2 * h), atol=1e-4 * np.abs(H).max()
        )


def test_products_at_the_support_and_single_precision_do():
    Ks, y = make_problem(2)
    machine = CrammerSinger(y, 1.0)
    K, beta, products, _ = solve(machine, Ks, np.ones((4, 3)))
    H = multiclass_curvature(K[0], machine.program, beta, products)
    support = np.flatnonzero(beta.any(axis=1))
    assert len(support) < len(y)
    assert_allclose(
        multiclass_curvature(K, machine.program, beta, products[:, support], support), H, atol=1e-12
    )
    rough = multiclass_curvature(K, machine.program, beta, products, single=True)
    assert_allclose(rough, H, atol=1e-3 * np.abs(H).max())


def test_nothing_is_free_at_the_start_and_none_alone_in_its_sample():
    Ks, y = make_problem(3)
    machine = CrammerSinger(y, 0.5)
    beta = np.zeros((40, 4))
    assert not free_coefficients(machine.program, beta).any()
    assert not multiclass_curvature(Ks[0], machine.program, beta, np.zeros((3, 40, 4))).any()
    # The own coefficient is at its top, one other takes all of it: neither may move.
    beta[0, y[0]], beta[0, y[0] - 1] = 0.5, -0.5
    # The own coefficient is inside its bounds, and so is one other.
    beta[1, y[1]], beta[1, y[1] - 1] = 0.25, -0.25
    free = free_coefficients(machine.program, beta)
    assert not free[0].any()
    assert np.flatnonzero(free[1]).tolist() == sorted([y[1], (y[1] - 1) % 4])


def test_a_matrix_that_is_not_positive_is_refused():
    Ks, y = make_problem(4)
    machine = CrammerSinger(y, 1.0)
    K, beta, products, _ = solve(machine, Ks, np.ones((4, 3)))
    with pytest.raises(np.linalg.LinAlgError, match="not positive semi-definite"):
        multiclass_curvature(K - 2.0 * np.eye(40), machine.program, beta, products)
