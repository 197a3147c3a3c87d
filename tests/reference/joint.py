"""The multi-class problems once more, in their primal form with explicit features, for Clarabel.

The optimum is the value that Clarabel's functions attain, no less than the true one, not the value
that it states.
"""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse
from tests.reference.conic import factor


def _solve(P, c, blocks):
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    A = sparse.csc_matrix(np.vstack([A for _, A, _ in blocks]))
    b = np.concatenate([b for _, _, b in blocks])
    cones = [cone(len(b)) for cone, _, b in blocks]
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(np.diag(P)), c, A, b, cones, settings
    ).solve()
    assert str(solution.status) in ("Solved", "AlmostSolved"), solution.status
    return np.array(solution.x)


def _with_slacks(x, A, b, first, slacks):
    """Return x with the least slacks that its margins need; Clarabel leaves them short by what it
    misses of Ax ≤ b."""
    column = first + A[:, first : first + slacks].argmin(axis=1)
    needed = A @ x - b + x[column]
    x[first : first + slacks] = 0.0
    np.maximum.at(x, column, needed)
    return x


def _margin_rows(L, y, k, margins, slack_of, width, constants=False):
    """Rows of −(f_y − f_c) − ξ ≤ −margin, class by class; w is laid out class after class, the b_c
    come last."""
    rows, bounds = [], []
    for i, own in enumerate(y):
        for c in range(k):
            if c == own:
                continue
            row = np.zeros(width)
            row[own * L.shape[1] : (own + 1) * L.shape[1]] -= L[i]
            row[c * L.shape[1] : (c + 1) * L.shape[1]] += L[i]
            row[k * L.shape[1] + slack_of(i, c)] = -1.0
            if constants:
                row[width - k + own], row[width - k + c] = -1.0, 1.0
            rows.append(row)
            bounds.append(-margins[i, c])
    return np.array(rows), np.array(bounds)


def solve_joint_conic(K, y, k, sample_C, margins, pairwise, constants=False):
    """Return the optimum of ½ Σ‖w_c‖² + Σ price · slack, one slack per sample or one per sample and
    class.

    With constants f_c = ⟨w_c, φ⟩ + b_c, as Weston and Watkins print it, else without.
    """
    L = factor(K)
    n, rank = L.shape
    slacks = n * k if pairwise else n
    last = k if constants else 0
    width = k * rank + slacks + last
    P = np.concatenate([np.ones(k * rank), np.zeros(slacks + last)])
    c = np.concatenate(
        [np.zeros(k * rank), np.repeat(sample_C, k) if pairwise else sample_C, np.zeros(last)]
    )
    slack_of = (lambda i, c: i * k + c) if pairwise else (lambda i, c: i)
    A, b = _margin_rows(L, y, k, margins, slack_of, width, constants)
    positive = np.hstack([np.zeros((slacks, k * rank)), -np.eye(slacks), np.zeros((slacks, last))])
    blocks = [
        (clarabel.NonnegativeConeT, A, b),
        (clarabel.NonnegativeConeT, positive, np.zeros(slacks)),
    ]
    x = _with_slacks(_solve(P, c, blocks), A, b, k * rank, slacks)
    return 0.5 * float(P @ x**2) + float(c @ x)


def solve_bilinear_conic(Ks, y, k, kappa):
    """Return the optimum of Σ_{c,r} ‖u_c^(r)‖ + κ Σ ξ and the norms, of shape (classes,
    kernels)."""
    factors = [factor(K) for K in Ks]
    L = np.hstack(factors)
    n, rank = L.shape
    P = len(Ks)
    width = k * rank + n + k * P
    A, b = _margin_rows(L, y, k, np.ones((n, k)), lambda i, c: i, width)
    positive = np.zeros((n, width))
    positive[:, k * rank : k * rank + n] = -np.eye(n)
    blocks = [(clarabel.NonnegativeConeT, A, b), (clarabel.NonnegativeConeT, positive, np.zeros(n))]
    starts = np.concatenate([[0], np.cumsum([F.shape[1] for F in factors])])
    for c in range(k):
        for r in range(P):
            size = starts[r + 1] - starts[r]
            cone = np.zeros((size + 1, width))
            cone[0, k * rank + n + c * P + r] = -1.0
            cone[1:, c * rank + starts[r] : c * rank + starts[r + 1]] = -np.eye(size)
            blocks.append((clarabel.SecondOrderConeT, cone, np.zeros(size + 1)))
    cost = np.concatenate([np.zeros(k * rank), np.full(n, kappa), np.ones(k * P)])
    x = _with_slacks(_solve(np.zeros(width), cost, blocks), A, b, k * rank, n)
    U = x[: k * rank].reshape(k, rank)
    norms = np.array([np.linalg.norm(part, axis=1) for part in np.split(U, starts[1:-1], axis=1)]).T
    return float(norms.sum() + kappa * x[k * rank : k * rank + n].sum()), norms


def solve_joint_mkl_conic(Ks, y, k, sample_C, margins, pairwise, constants=False):
    """Return the optimum of ½ (Σ_m (Σ_c ‖u_c^(m)‖²)^½)² + Σ price · slack: shared weights that sum
    to one."""
    factors = [factor(K) for K in Ks]
    L = np.hstack(factors)
    n, rank = L.shape
    P, slacks = len(Ks), n * k if pairwise else n
    last = k * rank + slacks + P
    width = last + 1 + (k if constants else 0)
    slack_of = (lambda i, c: i * k + c) if pairwise else (lambda i, c: i)
    A, b = _margin_rows(L, y, k, margins, slack_of, width, constants)
    positive = np.zeros((slacks, width))
    positive[:, k * rank : k * rank + slacks] = -np.eye(slacks)
    total = np.zeros((1, width))
    total[0, k * rank + slacks : last], total[0, last] = 1.0, -1.0
    blocks = [
        (clarabel.ZeroConeT, total, np.zeros(1)),
        (clarabel.NonnegativeConeT, A, b),
        (clarabel.NonnegativeConeT, positive, np.zeros(slacks)),
    ]
    starts = np.concatenate([[0], np.cumsum([F.shape[1] for F in factors])])
    for m in range(P):
        columns = np.concatenate([c * rank + np.arange(starts[m], starts[m + 1]) for c in range(k)])
        cone = np.zeros((len(columns) + 1, width))
        cone[0, k * rank + slacks + m] = -1.0
        cone[np.arange(1, len(columns) + 1), columns] = -1.0
        blocks.append((clarabel.SecondOrderConeT, cone, np.zeros(len(columns) + 1)))
    quadratic = np.zeros(width)
    quadratic[last] = 1.0
    cost = np.zeros(width)
    cost[k * rank : k * rank + slacks] = np.repeat(sample_C, k) if pairwise else sample_C
    x = _with_slacks(_solve(quadratic, cost, blocks), A, b, k * rank, slacks)
    U = x[: k * rank].reshape(k, rank)
    norms = np.array([np.linalg.norm(part) for part in np.split(U, starts[1:-1], axis=1)])
    return 0.5 * float(norms.sum()) ** 2 + float(cost @ x), norms / norms.sum()
