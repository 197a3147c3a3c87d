"""Programs without a box are linear systems: one Cholesky factorisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from kernelmosaic.solvers.program import Program, Solution, certify


def solve_linear(K: NDArray[Any], program: Program) -> Solution:
    """Solve a program whose box is infinite and whose tube is empty: (K + diag ρ) β = t − b, Σβ = total."""
    if program.epsilon or np.isfinite(program.lower).any() or np.isfinite(program.upper).any():
        raise ValueError("solve_linear serves programs without bounds and without a tube; use solve_smo.")
    A = np.array(K, dtype=np.float64)
    A[np.diag_indices_from(A)] += program.ridge
    factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    beta = cho_solve(factor, program.target)
    if program.total is not None:
        ones = cho_solve(factor, np.ones(program.n_samples))
        beta = beta - (beta.sum() - program.total) / ones.sum() * ones
    return certify(program, beta, np.asarray(K @ beta, dtype=np.float64), 1)
