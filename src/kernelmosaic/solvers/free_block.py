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
#: The same in single precision.
_SINGLE_JITTER = 1e-5
#: Blocks up to this many samples are factorised rather than iterated on.
_FACTORISED = 1000
_CG_TOL = 1e-2
_CG_STEPS = 8


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
    return min(_ray_length(block, beta[free], direction), 1.0) * direction


def _ray_length(block: Program, beta: Vector, direction: Vector) -> float:
    """Return how far the ray from β stays in the box."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = (np.where(direction > 0, block.upper, block.lower) - beta) / direction
    return float(np.min(steps, where=direction != 0, initial=np.inf))


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


def solve_free_block(
    K: NDArray[Any], ridge: Vector, free: NDArray[np.intp], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return roughly (K_FF + diag ρ_F)⁻¹ times the right-hand sides, in single precision.

    Small blocks are factorised; large ones, which only well-conditioned kernels have, take a few conjugate-gradient steps.
    """
    A = K[np.ix_(free, free)].astype(np.float32, copy=False)
    diagonal = ridge[free].astype(np.float32)
    A[np.diag_indices_from(A)] += diagonal + np.float32(_SINGLE_JITTER) * (np.trace(A) / len(free) + diagonal.mean())
    sides = right.astype(np.float32)
    if len(free) <= _FACTORISED:
        try:
            factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return np.zeros_like(right)
        return np.asarray(cho_solve(factor, sides, check_finite=False), dtype=np.float64)
    return conjugate_gradients(A, sides).astype(np.float64)


def conjugate_gradients(A: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """Solve A x = right for all columns at once, each with step sizes of its own, to about two digits."""
    scale = 1.0 / np.sqrt(np.diag(A))[:, np.newaxis]
    b = scale * right
    x = np.zeros_like(b)
    r = b.copy()
    p = r.copy()
    norm = np.einsum("ij,ij->j", r, r)
    goal = _CG_TOL**2 * norm
    for _ in range(_CG_STEPS):
        Ap = scale * (A @ (scale * p))
        curvature = np.einsum("ij,ij->j", p, Ap)
        step = np.divide(norm, curvature, out=np.zeros_like(norm), where=curvature > 0)
        x += step * p
        r -= step * Ap
        fresh = np.einsum("ij,ij->j", r, r)
        if np.all(fresh <= goal):
            break
        p = r + np.divide(fresh, norm, out=np.zeros_like(norm), where=norm > 0) * p
        norm = fresh
    return scale * x
