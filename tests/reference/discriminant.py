"""Discriminant kernel learning once more, as a matrix-fractional program: none of the package's
formulations."""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse
from tests.reference.conic import factor


def solve_matrix_fractional(Ns, H, ridge):
    """Return optimum and s of min over the simplex of Σ_j h_jᵀ(ridge·I + Σ s_iN_i)⁻¹h_j.

    With N_i = L_iL_iᵀ that is min ‖U‖²/ridge + Σ τ_i over H = U + Σ L_iW_i and ‖W_i‖² ≤ τ_i s_i;
    without a ridge there is no U. The variables are U, the W_i, τ and s.
    """
    n, k = H.shape
    Ls = [factor(N) for N in Ns]
    sizes = [n * k if ridge else 0, *(L.shape[1] * k for L in Ls)]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    P = len(Ls)
    tau, s, width = starts[-1], starts[-1] + P, starts[-1] + 2 * P
    D, c = np.zeros(width), np.zeros(width)
    D[: sizes[0]] = 2.0 / ridge if ridge else 0.0
    c[tau:s] = 1.0
    parts = [np.eye(n * k)] if ridge else []
    sums = np.hstack([*parts, *(np.kron(np.eye(k), L) for L in Ls), np.zeros((n * k, 2 * P))])
    simplex = np.zeros((1, width))
    simplex[0, s:] = 1.0
    blocks = [
        (clarabel.ZeroConeT(n * k), sums, H.T.ravel()),
        (clarabel.ZeroConeT(1), simplex, np.ones(1)),
    ]
    for i in range(P):
        # τ + s above ‖(2W, τ − s)‖ says ‖W‖² ≤ τ s, and that neither is negative.
        A = np.zeros((2 + sizes[i + 1], width))
        A[0, [tau + i, s + i]] = -1.0
        A[1, [tau + i, s + i]] = -1.0, 1.0
        A[2:, starts[i + 1] : starts[i + 2]] = -2.0 * np.eye(sizes[i + 1])
        blocks.append((clarabel.SecondOrderConeT(len(A)), A, np.zeros(len(A))))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    A = sparse.csc_matrix(np.vstack([A for _, A, _ in blocks]))
    b = np.concatenate([b for _, _, b in blocks])
    solver = clarabel.DefaultSolver(
        sparse.diags(D, format="csc"), c, A, b, [cone for cone, _, _ in blocks], settings
    )
    found = solver.solve()
    assert str(found.status) in ("Solved", "AlmostSolved"), found.status
    return found.obj_val, np.array(found.x[s:])


def solve_kim(Gs, labels, alpha):
    """Return optimum and θ of the program of Kim et al., as printed, over the simplex.

    Maximise (1/λ)(Σ θ_i aᵀG_ia − t) where [[λI + J Σθ_iG_i J, J Σθ_iG_i a], [·, t]] is positive
    semi-definite: a is the difference of the classes' means, J centres every class by itself and
    divides by the root of the sample number.
    """
    n, P = len(labels), len(Gs)
    second, first = np.unique(labels)
    a = np.where(labels == first, 1 / np.sum(labels == first), -1 / np.sum(labels == second))
    J = np.zeros((n, n))
    for one in (first, second):
        rows = np.flatnonzero(labels == one)
        J[np.ix_(rows, rows)] = (np.eye(len(rows)) - 1 / len(rows)) / np.sqrt(n)

    def bordered(block, column, corner):
        whole = np.block(
            [[block, column[:, np.newaxis]], [column[np.newaxis], np.full((1, 1), corner)]]
        )
        # Columns of the upper triangle, what is off the diagonal times √2: norms of matrix and
        # vector are the same.
        return np.concatenate(
            [np.append(np.sqrt(2) * whole[:k, k], whole[k, k]) for k in range(n + 1)]
        )

    zero = np.zeros(n)
    parts = [bordered(J @ G @ J, J @ G @ a, 0.0) for G in Gs] + [
        bordered(np.zeros((n, n)), zero, 1.0)
    ]
    A = np.vstack([np.append(np.ones(P), 0.0), -np.eye(P, P + 1), -np.array(parts).T])
    b = np.concatenate([[1.0], np.zeros(P), bordered(alpha * np.eye(n), zero, 0.0)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(P), clarabel.PSDTriangleConeT(n + 1)]
    c = np.append([-(a @ G @ a) for G in Gs], 1.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix((P + 1, P + 1)), c, sparse.csc_matrix(A), b, cones, settings
    )
    found = solver.solve()
    assert str(found.status) in ("Solved", "AlmostSolved"), found.status
    return -found.obj_val / alpha, np.array(found.x[:P])
