"""Conjugate gradients, against the linear systems written down."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram.linear_algebra import conjugate_gradients
from kernelmosaic.gram.options import BlockOptions

RNG = np.random.default_rng(1)
N = 30
F = RNG.normal(size=(N, N))
#: Diagonals four decades apart, which the steps must not mind.
SCALE = np.logspace(-1, 1, N)
A = SCALE[:, np.newaxis] * (F @ F.T / N + 0.1 * np.eye(N)) * SCALE
RIGHT = RNG.normal(size=(N, 3))
EXACT = BlockOptions(cg_steps=500, cg_tol=1e-10)


def near(r):
    return r / A.diagonal()[:, np.newaxis]


def test_all_columns_are_solved():
    found = conjugate_gradients(A.__matmul__, near, RIGHT, EXACT)
    assert_allclose(found, np.linalg.solve(A, RIGHT), rtol=1e-6, atol=1e-8)


def test_among_those_that_sum_to_zero():
    found = conjugate_gradients(A.__matmul__, near, RIGHT, EXACT, sums=True)
    # The system of the multiplier and x together.
    bordered = np.block([[A, np.ones((N, 1))], [np.ones((1, N)), np.zeros((1, 1))]])
    expected = np.linalg.solve(bordered, np.vstack([RIGHT, np.zeros((1, 3))]))[:N]
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert_allclose(found.sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize("sums", [False, True])
def test_nothing_asked_is_nothing_answered(sums):
    found = conjugate_gradients(A.__matmul__, near, np.zeros((N, 1)), EXACT, sums=sums)
    np.testing.assert_array_equal(found, 0.0)


def test_a_stack_is_carried_along():
    # (B⁻¹ + A) y = right is solved by products with B and A alone, and B⁻¹y is found, too.
    B = F @ F.T + 0.1 * np.eye(N)
    y, x = conjugate_gradients(
        lambda p: p[1] + A @ p[0], lambda r: np.stack([B @ r, r]), RIGHT, EXACT
    )
    assert_allclose(y, np.linalg.solve(np.linalg.inv(B) + A, RIGHT), rtol=1e-6, atol=1e-8)
    assert_allclose(x, np.linalg.solve(B, y), rtol=1e-6, atol=1e-8)
