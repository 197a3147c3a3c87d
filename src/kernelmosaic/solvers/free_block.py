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
    K: NDArray[Any], program: Program, beta: Vector, residual: Vector, free: NDArray[np.intp], max_rounds: int = 10**9
) -> Vector:
    """Return a change of the free samples' β that gains, towards the maximum of the objective over them.

    A Newton step is taken as far as the box lets it go; the sample that met its bound stays there and the others go on
    from where they are. A block without full rank is flat in some directions, which pairwise steps follow for ever.
    """
    block = _Block(K, program, beta, residual, free)
    for _ in range(min(max_rounds, len(free) - 1)):
        direction = block.newton_direction()
        if direction is None or not block.follow(direction):
            break
    return block.beta - beta[free]


class _Block:
    """The program of the free samples alone; `inside` are those that have not met a bound yet."""

    def __init__(
        self, K: NDArray[Any], program: Program, beta: Vector, residual: Vector, free: NDArray[np.intp]
    ) -> None:
        self.summed = program.total is not None
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
        self.inverse = _inverse(self.A)

    def newton_direction(self) -> Vector | None:
        """The step of the samples inside to the maximum over them; 0 for the others."""
        if self.inverse is None:
            return None
        direction = self.inverse @ self.slope
        if self.summed:
            ones = self.inverse.sum(axis=1)
            direction -= direction.sum() / ones.sum() * ones
        return direction

    def follow(self, direction: Vector) -> bool:
        """Go along the direction to its end or to the first bound; return whether a bound was met."""
        end = np.where(direction > 0, self.upper, self.lower)
        room = np.divide(end - self.beta, direction, out=np.full(len(end), np.inf), where=direction != 0)
        first = int(room.argmin())
        size = min(1.0, room[first])
        bend = self.A @ direction
        if not self.slope @ direction > 0.5 * size * direction @ bend:
            return False
        self.beta += size * direction
        self.slope -= size * bend
        if size == 1.0:
            return False
        self.beta[first] = end[first]
        self._leave(first)
        return True

    def _leave(self, sample: int) -> None:
        """Take a sample out of the inverse: that of A without its row and column."""
        assert self.inverse is not None
        row = self.inverse[sample].copy()
        self.inverse -= np.outer(row / row[sample], row)
        self.inverse[sample] = 0.0
        self.inverse[:, sample] = 0.0


def _inverse(A: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return A⁻¹ for a positive definite A, None if it is not."""
    try:
        factor = cho_factor(A, lower=True, check_finite=False)
    except LinAlgError:
        return None
    return np.asarray(cho_solve(factor, np.eye(len(A)), check_finite=False))


def solve_free_block(
    K: NDArray[Any], ridge: Vector, free: NDArray[np.intp], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return roughly (K_FF + diag ρ_F)⁻¹ times the right-hand sides, in single precision.

    Small blocks are factorised; large ones, which only well-conditioned kernels have, take a few conjugate-gradient
    steps.
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
    scale = np.float32(1.0) / np.sqrt(np.diag(A))[:, np.newaxis]
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
    return np.asarray(scale * x, dtype=np.float32)
