"""Discriminant kernel learning once more, as a matrix-fractional program: none of the package's formulations."""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse
from tests.reference.conic import factor


def solve_matrix_fractional(Ns, H, ridge):
    """Return optimum and s of min over the simplex of Σ_j h_jᵀ(ridge·I + Σ s_iN_i)⁻¹h_j.

    With N_i = L_iL_iᵀ that is min ‖U‖²/ridge + Σ τ_i over H = U + Σ L_iW_i and ‖W_i‖² ≤ τ_i s_i; without a ridge there
    is no U. The variables are U, the W_i, τ and s.
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
    blocks = [(clarabel.ZeroConeT(n * k), sums, H.T.ravel()), (clarabel.ZeroConeT(1), simplex, np.ones(1))]
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
    solver = clarabel.DefaultSolver(sparse.diags(D, format="csc"), c, A, b, [cone for cone, _, _ in blocks], settings)
    found = solver.solve()
    assert str(found.status) in ("Solved", "AlmostSolved"), found.status
    return found.obj_val, np.array(found.x[s:])
