"""Linear kernels of single columns, whose machine has many solutions at the best weights, and their
exact optimum."""

from __future__ import annotations

import numpy as np
from scipy import sparse

KINDS = (
    "independent",
    "correlated",
    "counts",
    "duplicated",
    "nearly duplicated",
    "more columns than rows",
)


def draw_columns(seed: int, kind: str, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns with mean zero and variance one, the labels ±1 and the numbers that some of
    them predict."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    m = 80 if kind == "more columns than rows" else 30
    X = rng.normal(size=(n, m))
    if kind == "counts":
        X = rng.poisson(np.exp(X)).astype(float)
    if kind != "independent":
        X = X + 0.7 * rng.normal(size=(n, 1))
    if "duplicated" in kind:
        X[:, m // 2 :] = X[:, : m // 2]
    if kind == "nearly duplicated":
        X[:, m // 2 :] += 1e-5 * rng.normal(size=(n, m // 2))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    signal = X @ (rng.normal(size=m) * (rng.random(m) < 0.3))
    signal /= signal.std()
    labels = np.where(signal + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, labels, signal + 0.3 * rng.normal(size=n)


def primal_optimum(
    X: np.ndarray,
    y: np.ndarray,
    C: float,
    epsilon: float | None = None,
    penalties: np.ndarray | None = None,
) -> float:
    """Return min ½ (Σ d_m |w_m|)² + C Σ losses of w and b, by Clarabel on this quadratic program of
    the columns.

    The losses are those of a support vector machine, or with ε those of support vector regression.
    """
    import clarabel

    n, m = X.shape
    d = np.ones(m) if penalties is None else penalties
    # Variables: w₊, w₋, the constant b, t = Σ d (w₊ + w₋), and the excesses of the losses.
    n_variables = 2 * m + 2 + n
    excess = sparse.hstack([sparse.csc_matrix((n, 2 * m + 2)), sparse.eye(n)])
    outputs = sparse.hstack([X, -X, np.ones((n, 1)), sparse.csc_matrix((n, n + 1))])
    norm = sparse.hstack(
        [d[np.newaxis], d[np.newaxis], np.array([[0.0, -1.0]]), sparse.csc_matrix((1, n))]
    )
    if epsilon is None:
        above, right = [-(sparse.diags(y) @ outputs + excess)], [-np.ones(n)]
    else:
        above, right = [-(outputs + excess), outputs - excess], [epsilon - y, epsilon + y]
    positive = sparse.vstack([sparse.eye(2 * m, n_variables), excess])
    A = sparse.vstack([norm, *above, -positive], format="csc")
    b = np.concatenate([[0.0], *right, np.zeros(2 * m + n)])
    P = sparse.csc_matrix(([1.0], ([2 * m + 1], [2 * m + 1])), shape=(n_variables, n_variables))
    linear = np.concatenate([np.zeros(2 * m + 2), np.full(n, C)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(len(b) - 1)]
    return float(clarabel.DefaultSolver(P, linear, A, b, cones, settings).solve().obj_val)
