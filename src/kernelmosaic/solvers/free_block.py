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
    K: NDArray[Any],
    program: Program,
    beta: Vector,
    residual: Vector,
    free: NDArray[np.intp],
    flops: float = np.inf,
) -> Vector:
    """Return a change of the free samples' β that gains, towards the maximum of the objective over them.

    Newton steps as far as the box lets them go: samples that meet their bound stay there, and the others go on. A block
    without full rank is flat in some directions; pairwise steps would follow these for ever. No step is begun once
    the factorisations, |F|³ flops each, have taken as many as allowed.
    """
    block = _Block(K, program, beta, residual, free)
    inside = np.arange(len(free))
    while len(inside) > 1 and flops >= len(inside) ** 3:
        flops -= len(inside) ** 3
        block.step(inside)
        left = inside[block.inside(inside)]
        if len(left) == len(inside):
            break
        inside = left
    return block.beta - beta[free]


class _Block:
    """The program of the free samples alone: their box, their slopes, and their quadratic form A = K_FF + diag ρ_F."""

    def __init__(
        self, K: NDArray[Any], program: Program, beta: Vector, residual: Vector, free: NDArray[np.intp]
    ) -> None:
        self.program = program
        self.beta = beta[free]
        self.slope = residual[free] - program.epsilon * np.sign(self.beta)
        self.lower, self.upper = program.lower[free], program.upper[free]
        if program.epsilon:  # none may change its sign: the slope jumps there
            self.lower = np.where(self.beta > 0, np.maximum(self.lower, 0.0), self.lower)
            self.upper = np.where(self.beta < 0, np.minimum(self.upper, 0.0), self.upper)
        self.A = K[np.ix_(free, free)].astype(np.float64)
        jitter = max(_JITTER, float(np.finfo(K.dtype).eps) * len(free))
        ridge = program.ridge[free]
        self.A[np.diag_indices_from(self.A)] += ridge + jitter * (np.trace(self.A) / max(len(free), 1) + ridge)

    def inside(self, samples: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these samples are strictly between their bounds."""
        beta = self.beta[samples]
        return np.asarray((beta > self.lower[samples]) & (beta < self.upper[samples]))

    def step(self, samples: NDArray[np.intp]) -> None:
        """Take the Newton step of these samples, cut where the first meets its bound or cut back to the box."""
        A = self.A[np.ix_(samples, samples)]
        direction = newton_direction(A, self.slope[samples], self.program.total is not None)
        beta, lower, upper = self.beta[samples], self.lower[samples], self.upper[samples]
        end = np.where(direction > 0, upper, lower)
        room = np.divide(end - beta, direction, out=np.full(len(samples), np.inf), where=direction != 0)
        size = min(1.0, room.min())
        best = np.where(room <= size, end, beta + size * direction)
        if size < 1.0:
            total = None if self.program.total is None else float(beta.sum())
            box = replace(self.program, target=beta, lower=lower, upper=upper, ridge=beta, total=total)
            best = max(best, box.feasible(beta + direction), key=lambda new: self._gain(samples, A, new))
        if self._gain(samples, A, best) > 0:
            self.slope -= self.A[:, samples] @ (best - beta)
            self.beta[samples] = best

    def _gain(self, samples: NDArray[np.intp], A: NDArray[np.float64], new: Vector) -> float:
        change = new - self.beta[samples]
        return float(self.slope[samples] @ change - 0.5 * change @ (A @ change))


def newton_direction(A: NDArray[np.float64], slope: Vector, summed: bool) -> Vector:
    """Return the step to the maximum of ⟨slope, x⟩ − ½xᵀAx, over the x that sum to zero if asked; zero if A is singular."""
    try:
        factor = cho_factor(A, lower=True, check_finite=False)
    except LinAlgError:
        return np.zeros(len(slope))
    direction = cho_solve(factor, slope, check_finite=False)
    if summed:
        ones = cho_solve(factor, np.ones(len(slope)), check_finite=False)
        direction = direction - direction.sum() / ones.sum() * ones
    return np.asarray(direction)


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
