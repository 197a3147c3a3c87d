"""One door to the solvers of the program with one output: which of them serves depends on the form of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.gram import as_gram
from kernelmosaic.solvers.factored import solve_factored, solve_factored_unbounded
from kernelmosaic.solvers.options import DEFAULTS, SolverOptions
from kernelmosaic.solvers.program import Program, Solution, Vector, assess
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.working_set import solve_on_demand, solve_working_set


def solve(
    K: ArrayOrTensor,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the program for a kernel, a `Gram` or an array, to a relative duality gap of `tol`.

    A matrix in this process is read whole by sequential minimal optimisation, one on a device in working sets, factors
    by Newton steps in the features, working sets and interior points, and what is not stored in working sets as large
    as memory allows.
    """
    gram: Any = as_gram(K)
    if gram.factored:
        return solve_factored(gram, program, warm_start, tol, options)
    if gram.matrix is None:
        return solve_on_demand(gram, program, warm_start, tol, options)
    if gram.backend is NUMPY:
        return solve_smo(gram.matrix, program, warm_start, tol, options=options)
    return solve_working_set(gram, program, warm_start, tol, options=options)


def solve_unbounded(K: ArrayOrTensor, program: Program) -> Solution:
    """Solve a program whose box is infinite and whose tube is empty: (K + diag ρ) β = t − b, Σβ = total."""
    if program.epsilon or np.isfinite(program.lower).any() or np.isfinite(program.upper).any():
        raise ValueError("solve_unbounded serves programs without bounds and without a tube; use solve.")
    gram: Any = as_gram(K)
    if gram.factored:
        return solve_factored_unbounded(gram, program)
    backend = gram.backend
    A = backend.copy(gram.block(np.arange(gram.n_samples)) if gram.matrix is None else gram.matrix, np.float64)
    diagonal = backend.diagonal_view(A)
    diagonal += backend.asarray(program.ridge)
    factor = backend.cholesky(A, overwrite=True)
    if factor is None:
        raise np.linalg.LinAlgError("K + diag ρ is not positive definite to machine precision: raise the ridge.")
    sides = np.column_stack([program.target, np.ones(program.n_samples)])
    beta, ones = backend.to_numpy(backend.cho_solve(factor, backend.asarray(sides))).T
    if program.total is not None:
        beta = beta - (beta.sum() - program.total) / ones.sum() * ones
    return assess(gram, program, np.array(beta), 1)
