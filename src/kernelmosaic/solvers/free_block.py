"""Newton steps on the coefficients strictly inside their bounds, where pairwise steps only creep."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpstrf

from kernelmosaic.backend import one_blas_thread
from kernelmosaic.solvers.program import Program, Vector

#: Relative to the mean diagonal: enough to factorise a block that is positive semi-definite only up to rounding.
_JITTER = 1e-10
#: At least this much is added, so that a block of zeros has a Newton step, too.
_LEAST_NOISE = 1e-12
#: What updating an entry of an inverse costs in time, as flops of a factorisation.
_FLOPS_PER_ENTRY = 80


def free_newton_step(
    K: NDArray[Any], program: Program, beta: Vector, residual: Vector, free: NDArray[np.intp], flops: float = np.inf
) -> Vector:
    """Return better β for the free samples, towards the maximum of the objective over them.

    A Newton step goes as far as the box lets it; whoever met a bound stays there, and the others go on from where they
    are until the flops are spent. Blocks without full rank are flat in some directions, which pairwise steps would
    follow for ever.
    """
    if len(free) < 2:
        return beta[free]
    # One thread: many small steps lose much where the cores are busy.
    with one_blas_thread():
        block = _Block(K, program, beta, residual, free)
        start, slope = beta[free], block.slope.copy()
        direction = block.newton_direction()
        # Cutting back meets many bounds at once, which pays if the block has full rank.
        cut_back = block.cut_back(direction)
        while block.follow(direction) and len(block.inside) > 1 and flops >= block.form.cost:
            flops -= block.form.cost
            direction = block.newton_direction()

    def gain(new: Vector) -> float:
        return float(slope @ (new - start) - 0.5 * (new - start) @ (block.A @ (new - start)))

    return max(start, cut_back, block.beta, key=gain)


class _Block:
    """The program of the free samples alone; `inside` are those that have not met a bound yet."""

    def __init__(
        self, K: NDArray[Any], program: Program, beta: Vector, residual: Vector, free: NDArray[np.intp]
    ) -> None:
        self.program = program
        self.inside = np.arange(len(free))
        self.beta = beta[free]
        self.slope = residual[free] - program.epsilon * np.sign(self.beta)
        self.lower, self.upper = program.sign_limits(free, self.beta)
        self.A = K[np.ix_(free, free)].astype(np.float64)
        noise = max(_JITTER, float(np.finfo(K.dtype).eps) * len(free)) * np.trace(self.A) / len(free)
        self.form = quadratic_form(self.A, program.ridge[free], max(noise, _LEAST_NOISE))
        self.A[np.diag_indices_from(self.A)] += program.ridge[free]

    def newton_direction(self) -> Vector:
        """Return the step of the samples inside to the maximum over them, their sum kept if there is one to keep."""
        slope = self.slope[self.inside]
        x, ones = self.form.solve(np.column_stack([slope, np.ones(len(slope))])).T
        if self.program.total is not None:
            x = x - x.sum() / ones.sum() * ones
            x -= x.mean()  # along a flat direction both terms are huge, and what they leave rounds badly
        return np.asarray(x)

    def follow(self, direction: Vector) -> bool:
        """Go along the direction to its end or to the first bound; return whether a bound was met."""
        i = self.inside
        end = np.where(direction > 0, self.upper[i], self.lower[i])
        room = np.divide(end - self.beta[i], direction, out=np.full(len(i), np.inf), where=direction != 0)
        size = min(1.0, float(room.min()))
        self.beta[i] = np.where(room <= size, end, self.beta[i] + size * direction)
        self.slope[i] -= size * self.form.multiply(direction)
        self.inside = i[room > size]
        self.form.keep(room > size)
        return size < 1.0

    def cut_back(self, direction: Vector) -> Vector:
        """Return the feasible point nearest to the end of the direction."""
        total = None if self.program.total is None else float(self.beta.sum())
        box = replace(self.program, target=self.beta, lower=self.lower, upper=self.upper, ridge=self.slope, total=total)
        return box.feasible(self.beta + direction)


class _LowRankForm:
    """The quadratic form L Lᵀ + D with a diagonal D and few columns in L, inverted through them."""

    def __init__(self, L: NDArray[np.float64], D: Vector) -> None:
        self.L, self.D = L, D

    @property
    def cost(self) -> float:
        return float(self.L.shape[0] * self.L.shape[1] ** 2)

    def multiply(self, x: Vector) -> Vector:
        return np.asarray(self.L @ (self.L.T @ x) + self.D * x)

    def solve(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = self.L / self.D[:, np.newaxis]
        W = self.L.T @ scaled
        W[np.diag_indices_from(W)] += 1.0
        x = right / self.D[:, np.newaxis]
        return np.asarray(x - scaled @ cho_solve(cho_factor(W, check_finite=False), self.L.T @ x, check_finite=False))

    def keep(self, samples: NDArray[np.bool_]) -> None:
        self.L, self.D = self.L[samples], self.D[samples]


class _FullForm:
    """A quadratic form with its factor and, once samples are left out, its inverse, which follows that."""

    def __init__(self, A: NDArray[np.float64]) -> None:
        self.A = A
        self.factor = cho_factor(A, check_finite=False)
        self.inverse: NDArray[np.float64] | None = None
        self.kept = np.arange(len(A))
        self.leaving: list[int] = []

    @property
    def cost(self) -> float:
        n = len(self.A)
        return float(_FLOPS_PER_ENTRY * n**2 + (3 * n**3 if self.inverse is None else 0))

    def multiply(self, x: Vector) -> Vector:
        return self._apply(self.A, x)

    def solve(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.leaving and self.inverse is None:
            return np.asarray(cho_solve(self.factor, right, check_finite=False))
        if self.inverse is None:
            identity = np.asfortranarray(np.eye(len(self.A)))
            self.inverse = cho_solve(self.factor, identity, overwrite_b=True, check_finite=False)
        for k in self.leaving:
            row = self.inverse[k].copy()
            # In place: what is left is the inverse of A without row and column k, and zero there.
            self.inverse = dger(-1.0 / row[k], row, row, a=self.inverse, overwrite_a=1)
            self.inverse[k] = self.inverse[:, k] = 0.0
        self.leaving.clear()
        return self._apply(self.inverse, right)

    def keep(self, samples: NDArray[np.bool_]) -> None:
        self.leaving.extend(self.kept[~samples])
        self.kept = self.kept[samples]

    def _apply(self, matrix: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
        padded = np.zeros((len(matrix), *x.shape[1:]))
        padded[self.kept] = x
        return np.asarray((matrix @ padded)[self.kept])


def quadratic_form(A: NDArray[np.float64], ridge: Vector, noise: float) -> _LowRankForm | _FullForm:
    """Return A + diag ridge, made positive definite by the noise A's entries are known up to."""
    triangle, pivots, rank, _ = dpstrf(A, tol=noise, lower=1)
    if rank**2 > _FLOPS_PER_ENTRY * len(A):
        with suppress(LinAlgError):  # if A is less definite than was promised, the factor takes what is
            return _FullForm(A + np.diag(ridge + noise))
    L = np.empty((len(A), rank))
    L[pivots - 1] = np.tril(triangle)[:, :rank]
    return _LowRankForm(L, ridge + noise)
