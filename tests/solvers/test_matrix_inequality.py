"""The barrier against Clarabel on random semi-definite programs."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
from scipy import sparse

from kernelmosaic.solvers.conic import MatrixInequality, pack_symmetric, solve_matrix_inequalities


def random_inequality(rng, P, order, bounds):
    k = len(bounds)
    matrices = np.zeros((P, order + k, order + k))
    for M in matrices:
        A = rng.randn(order, order // 2)
        M[:order, :order] = A @ A.T
    constant = np.zeros((order + k, order + k))
    constant[:order, :order] = 0.1 * np.eye(order)
    constant[:order, order:] = rng.randn(order, k)
    constant[order:, :order] = constant[:order, order:].T
    return MatrixInequality(constant, matrices, [(j, order + i) for i, j in enumerate(bounds)])


def solve_by_clarabel(linear, inequalities, P):
    width = len(linear)
    rows, right, cones = [np.eye(1, width).repeat(1, 0) * 0], [np.ones(1)], [clarabel.ZeroConeT(1)]
    rows[0][0, :P] = 1.0
    rows.append(-np.eye(P, width))
    right.append(np.zeros(P))
    cones.append(clarabel.NonnegativeConeT(P))
    for one in inequalities:
        n = len(one.constant)
        parts = np.zeros((width, n, n))
        parts[:P] = one.matrices
        for j, place in one.bounds:
            parts[P + j, place, place] = 1.0
        rows.append(-pack_symmetric(parts).T)
        right.append(pack_symmetric(one.constant))
        cones.append(clarabel.PSDTriangleConeT(n))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    A, b = sparse.csc_matrix(np.vstack(rows)), np.concatenate(right)
    return clarabel.DefaultSolver(
        sparse.csc_matrix((width, width)), linear, A, b, cones, settings
    ).solve()


@pytest.mark.parametrize("groups", [[[0]], [[0, 1, 2]], [[0], [1]]])
@pytest.mark.parametrize("seed", [0, 1])
def test_barrier_reaches_clarabels_optimum(groups, seed):
    rng = np.random.RandomState(seed)
    P, k = 4, sum(map(len, groups))
    inequalities = [random_inequality(rng, P, 10, group) for group in groups]
    linear = np.concatenate([rng.rand(P), np.ones(k)])
    found = solve_matrix_inequalities(linear, inequalities, np.full(P, 1 / P), np.full(k, 1e4))
    value = linear @ np.concatenate([found.s, found.t])
    reference = solve_by_clarabel(linear, inequalities, P)
    assert value == pytest.approx(reference.obj_val, rel=1e-6)
    np.testing.assert_allclose(found.s, np.array(reference.x[:P]), atol=1e-4)
    # Inside all constraints, and the multipliers prove how near the optimum is.
    assert found.s.sum() == pytest.approx(1.0)
    for one, Z in zip(inequalities, found.multipliers, strict=True):
        F = one.value(found.s, found.t)
        assert np.linalg.eigvalsh(F)[0] > 0
        assert np.sum(F * Z) == pytest.approx(
            len(F) * found.gap / (P + sum(len(i.constant) for i in inequalities))
        )
        # t_j costs one, and so says the diagonal of Z at its place, as far as the centre was
        # reached.
        for _, place in one.bounds:
            assert Z[place, place] == pytest.approx(1.0, abs=0.15)
