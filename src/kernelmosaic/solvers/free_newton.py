"""Newton steps on the free coefficients, where steps of pairs converge slowly.

A step maximises ⟨g, d⟩ − ½ dᵀ(K + diag ρ)d over the directions d of the free samples, whose
gradient is g. `Form` is the matrix K + diag ρ, in several forms; `newton_on_free` takes the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpstrf

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Mask, RowIndex
from kernelmosaic.backend import backend_of
from kernelmosaic.gram.gram import Gram
from kernelmosaic.gram.linear_algebra import (
    Cholesky,
    conjugate_gradients,
    keep_sum,
    rounding_jitter,
)
from kernelmosaic.gram.options import BLOCKS
from kernelmosaic.solvers.program import Vector
from kernelmosaic.solvers.tuning import (
    GRAM_FORM_JITTER,
    INVERSE_FLOPS_PER_ENTRY,
    LEAST_BLOCK_NOISE,
    LEAST_RELATIVE_NOISE,
    MAX_SUM_STEPS,
    MOST_HOST_SAMPLES,
    SHIFT_ROUNDING,
    WHOLE_STEP,
)


class Form(ABC):
    """The matrix K + diag ρ of the free samples that have not met a bound yet."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """The cost of a further direction, in the units of the budget."""

    @abstractmethod
    def solve(self, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return (K + diag ρ)⁻¹ right, for right-hand sides in columns."""

    @abstractmethod
    def multiply(self, x: ArrayOrTensor) -> ArrayOrTensor:
        """Return (K + diag ρ) x for a vector x."""

    @abstractmethod
    def keep(self, which: RowIndex) -> None:
        """Leave out all samples but those of a mask."""

    def direction(self, gradient: ArrayOrTensor, keeps_sum: bool) -> ArrayOrTensor:
        """Return the step to the maximum over the samples, with Σd = 0 if `keeps_sum`."""
        xp = backend_of(gradient).xp
        x, solved_ones = self.solve(xp.stack([gradient, xp.ones_like(gradient)], axis=1)).T
        if keeps_sum:
            x = keep_sum(x, solved_ones)
            # Along a flat direction both terms are huge, and their difference rounds badly.
            x = x - x.mean()
        return x


def newton_on_free(
    form: Form,
    beta: ArrayOrTensor,
    gradient: ArrayOrTensor,
    box: tuple[ArrayOrTensor, ArrayOrTensor],
    keeps_sum: bool,
    budget: float,
    *,
    cut_backs: int = 1,
    least_gain: float = 0.0,
) -> tuple[Any, int]:
    """Return better coefficients of the free samples, and the Newton steps taken.

    A step goes along the Newton direction to its end or to the first bound. A coefficient that met
    a bound stays there, and the others go on from their new values while the budget lasts. Blocks
    without full rank are flat in some directions, which steps of pairs would follow for ever.

    Parameters
    ----------
    form : Form
        K + diag ρ between the free samples; it is changed.
    beta, gradient : array of shape (n_free,)
        The coefficients of the samples, and the derivatives of the objective.
    box : pair of array of shape (n_free,)
        The bounds.
    keeps_sum : bool
        Whether the coefficients keep their sum.
    budget : float
        The cost of all directions after the first, at most; in the units of `form.cost`.
    cut_backs : int
        So many of the first steps may instead go to the point of the box nearest to the end of the
        direction, at which many coefficients meet a bound at once.
    least_gain : float
        A step that gains less than this fraction of the first step's gain is the last.
    """
    backend = backend_of(beta)
    xp = backend.xp
    lower, upper = box
    new = backend.copy(beta)
    inside = backend.index(np.arange(len(beta)))
    steps = 0
    largest_gain = 0.0
    while len(inside) > 1:
        # 1. The ends of the step: the first bound, and the cut-back direction.
        direction = form.direction(gradient, keeps_sum)
        steps += 1
        points = [_first_bound(direction, beta, lower, upper)]
        if steps <= cut_backs:
            points.append(_cut_back(beta + direction, beta, lower, upper, keeps_sum))

        # 2. The best point on the lines to these ends.
        best = beta
        best_gain = 0.0
        best_gradient = gradient
        for point in points:
            move = point - beta
            form_move = form.multiply(move)
            slope = float(gradient @ move)
            curvature = float(move @ form_move)
            if not slope > 0:
                continue
            size = slope / curvature if curvature > 0 else 1.0
            # A size this near to one differs from it by rounding alone.
            if not size < WHOLE_STEP:
                size = 1.0
            gain = size * slope - 0.5 * size**2 * curvature
            if gain > best_gain:
                # A whole step ends on its bounds exactly.
                end = point if size == 1.0 else beta + size * move
                best = xp.clip(end, lower, upper)
                best_gain = gain
                best_gradient = gradient - size * form_move
        new[inside] = best

        # 3. Coefficients that met a bound are left out of the next step.
        largest_gain = max(largest_gain, best_gain)
        stays = (best > lower) & (best < upper)
        is_last = best_gain <= least_gain * largest_gain or bool(stays.all())
        if is_last or budget < form.cost:
            break
        budget -= form.cost
        beta = best[stays]
        gradient = best_gradient[stays]
        lower = lower[stays]
        upper = upper[stays]
        inside = inside[stays]
        form.keep(stays)
    return new, steps


def _first_bound(direction: ArrayOrTensor, beta: Any, lower: Any, upper: Any) -> ArrayOrTensor:
    """Return β + direction, or the point on the way where a coefficient meets the first bound."""
    xp = backend_of(beta).xp
    end = xp.where(direction > 0, upper, lower)
    moves = direction != 0
    room = xp.where(moves, (end - beta) / xp.where(moves, direction, 1.0), np.inf)
    size = min(1.0, float(room.min()))
    return xp.where(room <= size, end, beta + size * direction)


def _cut_back(
    end: ArrayOrTensor, beta: Any, lower: Any, upper: Any, keeps_sum: bool
) -> ArrayOrTensor:
    """Return the point of the box nearest to `end`, with the sum of β if `keeps_sum`."""
    backend = backend_of(beta)
    if not keeps_sum:
        return backend.xp.clip(end, lower, upper)
    if len(end) > MOST_HOST_SAMPLES:
        return _nearest_of_same_sum(end, beta, lower, upper)
    # Few numbers move to the host: each of the many small operations would wait for the device.
    on_host = map(backend.to_numpy, (end, beta, lower, upper))
    return backend.asarray(_nearest_of_same_sum(*on_host))


def _nearest_of_same_sum(end: ArrayOrTensor, beta: Any, lower: Any, upper: Any) -> ArrayOrTensor:
    """Return the point of the box nearest to `end` whose sum is that of β.

    It is clip(end − shift) with a number `shift`, found by Newton's method within an interval.
    """
    xp = backend_of(end).xp
    total = float(beta.sum())
    # The rounding of sums is relative to this size, also where they are zero.
    size = float(xp.abs(beta).sum())
    # With a shift of the largest rise no coefficient exceeds that of β, with one of the smallest
    # none falls below: the sum is met between the two.
    low = float((end - beta).min())
    high = float((end - beta).max())
    shift = min(max(0.0, low), high)
    for _ in range(MAX_SUM_STEPS):
        nearest = xp.clip(end - shift, lower, upper)
        inside = (nearest > lower) & (nearest < upper)
        excess = float(nearest.sum()) - total
        n_inside = int(inside.sum())
        if excess > 0:
            low = shift
        else:
            high = shift
        # The sum is linear in the shift from bound to bound: Newton's step, or half of the interval
        # where it leads out.
        newton_shift = shift + excess / n_inside if n_inside else np.inf
        is_met = abs(newton_shift - shift) <= SHIFT_ROUNDING * (abs(shift) + size)
        if is_met or not low < high:
            break
        shift = newton_shift if low <= newton_shift <= high else 0.5 * (low + high)
    return nearest + inside * ((total - float(nearest.sum())) / max(n_inside, 1))


# Blocks of this process, whose budget is in flops -------------------------------------------------


def block_form(K: AnyArray, ridge: Vector) -> Form:
    """Return K + diag ρ of a matrix of the host, made positive definite by a small diagonal.

    That diagonal is the noise up to which K's entries are known. The form is one of low rank if
    that costs less than an inverse.
    """
    A = K.astype(np.float64)
    n = len(K)
    relative_noise = max(LEAST_RELATIVE_NOISE, float(np.finfo(K.dtype).eps) * n)
    # It is not zero, so that a block of zeros has a Newton step, too.
    noise = max(relative_noise * np.trace(A) / n, LEAST_BLOCK_NOISE)
    triangle, pivots, rank, _ = dpstrf(A, tol=noise, lower=1)
    if rank**2 > INVERSE_FLOPS_PER_ENTRY * n:
        # A matrix may be less definite than its kernel promises; the factor of low rank takes any.
        with suppress(np.linalg.LinAlgError):
            return InverseForm(A + np.diag(ridge + noise))
    L = np.empty((n, rank))
    L[pivots - 1] = np.tril(triangle)[:, :rank]
    return LowRankForm(L, ridge + noise)


class LowRankForm(Form):
    """The matrix L Lᵀ + D with a diagonal D and few columns in L.

    Systems are solved by the formula of Sherman, Morrison and Woodbury: one of the order of the
    columns.
    """

    def __init__(self, L: Array, D: Vector) -> None:
        self.L = L
        self.D = D

    @property
    def cost(self) -> float:
        return float(self.L.shape[0] * self.L.shape[1] ** 2)

    def multiply(self, x: Vector) -> Vector:
        return np.asarray(self.L @ (self.L.T @ x) + self.D * x)

    def solve(self, right: Array) -> Array:
        scaled = self.L / self.D[:, np.newaxis]
        x = right / self.D[:, np.newaxis]
        inner = Cholesky(self.L.T @ scaled, 1.0)
        return np.asarray(x - scaled @ inner.solve(self.L.T @ x))

    def keep(self, which: Mask) -> None:
        self.L = self.L[which]
        self.D = self.D[which]


class InverseForm(Form):
    """A matrix with its Cholesky factor and, once samples are left out, its inverse.

    The inverse is updated for each sample that is left out.

    Attributes
    ----------
    A : ndarray of shape (n, n)
        The matrix of all samples.
    factor : Cholesky
        The factor of A.
    inverse : ndarray of shape (n, n) or None
        The inverse of A without the rows and columns of the samples that were left out, which are
        zero; None until one is.
    remaining : ndarray
        The numbers of the samples that were not left out.
    leaving : list of int
        Samples that were left out since the inverse was updated.
    """

    def __init__(self, A: Array) -> None:
        self.A = A
        self.factor = Cholesky(A, most=0.0)
        self.inverse: Array | None = None
        self.remaining = np.arange(len(A))
        self.leaving: list[int] = []

    @property
    def cost(self) -> float:
        n = len(self.A)
        inversion = 3 * n**3 if self.inverse is None else 0
        return float(INVERSE_FLOPS_PER_ENTRY * n**2 + inversion)

    def multiply(self, x: Vector) -> Vector:
        return self._apply(self.A, x)

    def solve(self, right: Array) -> Array:
        if not self.leaving and self.inverse is None:
            return np.asarray(self.factor.solve(right))
        if self.inverse is None:
            self.inverse = np.asfortranarray(self.factor.inverse())
        for k in self.leaving:
            row = self.inverse[k].copy()
            # In place: A⁻¹ − A⁻¹_k A⁻¹_kᵀ / A⁻¹_kk is the inverse of A without row and column k,
            # and zero there.
            self.inverse = dger(-1.0 / row[k], row, row, a=self.inverse, overwrite_a=1)
            self.inverse[k] = 0.0
            self.inverse[:, k] = 0.0
        self.leaving.clear()
        return self._apply(self.inverse, right)

    def keep(self, which: Mask) -> None:
        self.leaving.extend(self.remaining[~which])
        self.remaining = self.remaining[which]

    def _apply(self, matrix: Array, x: Array) -> Array:
        """Return the product of the remaining rows and columns of a matrix with x."""
        padded = np.zeros((len(matrix), *x.shape[1:]))
        padded[self.remaining] = x
        return np.asarray((matrix @ padded)[self.remaining])


# Kernels of any form, whose budget is in steps ----------------------------------------------------


class GramForm(Form):
    """K + diag ρ of any kernel: factorised if it is stored and small, else known by products.

    Parameters
    ----------
    A : Gram
        K between the samples.
    ridge : array of shape (n_free,)
        Their ρ.
    max_factorised : int
        A stored block of up to this many samples is factorised, any other takes conjugate-gradient
        steps.
    """

    cost = 1.0

    def __init__(self, A: Gram, ridge: ArrayOrTensor, max_factorised: int) -> None:
        self.A = A
        self.ridge = ridge
        self.max_factorised = max_factorised

    def multiply(self, x: ArrayOrTensor) -> ArrayOrTensor:
        return self.A.products(x) + self.ridge * x

    def keep(self, which: RowIndex) -> None:
        self.A = self.A.take(self.A.backend.nonzero(which))
        self.ridge = self.ridge[which]

    def direction(self, gradient: ArrayOrTensor, keeps_sum: bool) -> ArrayOrTensor:
        backend = self.A.backend
        # The memory of the old factor is freed for the next one.
        self.factor: Any = None
        K = self.A.matrix
        if K is not None and len(K) <= self.max_factorised:
            jitter = rounding_jitter(self.A.dtype, K.diagonal() + self.ridge)
            added = self.ridge + jitter
            with suppress(np.linalg.LinAlgError):
                self.factor = Cholesky(K, added, GRAM_FORM_JITTER, backend.dtype(self.ridge))
                return super().direction(gradient, keeps_sum)
        # Conjugate gradients find the direction to a few digits.
        diagonal = (backend.asarray(self.A.diagonal()) + self.ridge)[:, None]
        added = self.ridge[:, None] + rounding_jitter(self.A.dtype, diagonal)
        direction = conjugate_gradients(
            lambda p: self.A.products(p) + added * p,
            lambda residual: residual / diagonal,
            gradient[:, None],
            BLOCKS[backend.name],
            keeps_sum,
        )
        return direction[:, 0]

    def solve(self, right: ArrayOrTensor) -> ArrayOrTensor:
        return self.factor.solve(right)
