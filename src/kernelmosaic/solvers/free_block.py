"""One Newton step on the coefficients strictly inside their bounds, where pairwise steps only creep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernelmosaic.solvers.program import Program, Vector

#: Relative to the mean diagonal: enough to factorise a block that is positive semi-definite only up to rounding.
_JITTER = 1e-10
_HALVINGS = 6


def free_samples(program: Program, beta: Vector) -> NDArray[np.intp]:
    """Samples whose coefficient may move both ways to first order."""
    free = (beta > program.lower) & (beta < program.upper)
    return np.flatnonzero(free & (beta != 0)) if program.epsilon else np.flatnonzero(free)


def free_newton_step(
    K: NDArray[Any], program: Program, beta: Vector, residual: Vector, free: NDArray[np.intp]
) -> Vector:
    """Return the change of the free samples' β that maximises the objective over them, cut back to the box.

    The change is zero if the block cannot be factorised or no cut-back point gains.
    """
    nothing = np.zeros(len(free))
    if len(free) < 2:
        return nothing
    A = K[np.ix_(free, free)].astype(np.float64)
    A[np.diag_indices_from(A)] += program.ridge[free] + _JITTER * (np.trace(A) / len(free) + program.ridge[free])
    slope = residual[free] - program.epsilon * np.sign(beta[free])
    try:
        factor = cho_factor(A, lower=True, check_finite=False)
    except LinAlgError:
        return nothing
    direction = cho_solve(factor, slope)
    if program.total is not None:
        ones = cho_solve(factor, np.ones(len(free)))
        direction -= direction.sum() / ones.sum() * ones
    block = _block_program(program, beta, free)
    size = 1.0
    for _ in range(_HALVINGS):
        change = block.feasible(beta[free] + size * direction) - beta[free]
        if slope @ change > 0.5 * change @ (A @ change):
            return change
        size *= 0.5
    return nothing


def _block_program(program: Program, beta: Vector, free: NDArray[np.intp]) -> Program:
    """The box and the sum left to the free samples; with a tube, none may change its sign."""
    lower, upper = program.lower[free], program.upper[free]
    if program.epsilon:
        lower = np.where(beta[free] > 0, np.maximum(lower, 0.0), lower)
        upper = np.where(beta[free] < 0, np.minimum(upper, 0.0), upper)
    total = None if program.total is None else float(beta[free].sum())
    return replace(
        program, target=program.target[free], lower=lower, upper=upper, ridge=program.ridge[free], total=total
    )
