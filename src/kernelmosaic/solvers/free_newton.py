"""Newton steps on the coefficients strictly inside their bounds, where pairwise steps only
creep."""

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


class Form(ABC):
    """The quadratic form K + diag ρ of the free samples that have not met a bound yet."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """What a further direction costs, in the units of the budget."""

    @abstractmethod
    def solve(self, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return the inverse times the columns of `right`."""

    @abstractmethod
    def multiply(self, x: ArrayOrTensor) -> ArrayOrTensor:
        """Return the form times a vector."""

    @abstractmethod
    def keep(self, which: RowIndex) -> None:
        """Leave out the samples that a mask does not hold."""

    def direction(self, slope: ArrayOrTensor, sums: bool) -> ArrayOrTensor:
        """Return the step to the maximum over the samples, their sum kept if there is one to
        keep."""
        xp = backend_of(slope).xp
        x, ones = self.solve(xp.stack([slope, xp.ones_like(slope)], axis=1)).T
        if sums:
            x = keep_sum(x, ones)
            x = (
                x - x.mean()
            )  # along a flat direction both terms are huge, and what they leave rounds badly
        return x


def newton_on_free(
    form: Form,
    beta: ArrayOrTensor,
    slope: ArrayOrTensor,
    box: tuple[ArrayOrTensor, ArrayOrTensor],
    sums: bool,
    budget: float,
    *,
    cut_backs: int = 1,
    least_gain: float = 0.0,
) -> tuple[Any, int]:
    """Return better coefficients of the free samples, and the Newton steps taken.

    A step goes along the Newton direction to its end or to the first bound. A coefficient that met
    a bound stays there, and the others go on from where they are while the budget lasts. Blocks
    without full rank are flat in some directions, which pairwise steps would follow for ever.

    Parameters
    ----------
    form : Form
        K + diag ρ between the free samples; used up.
    beta, slope : array of shape (n_free,)
        Where the samples are, and the slopes of the objective.
    box : pair of array of shape (n_free,)
        The bounds.
    sums : bool
        Whether the coefficients keep their sum.
    budget : float
        What all directions after the first may cost.
    cut_backs : int
        So many of the first steps may cut the whole direction back to the box instead, which meets
        many bounds at once.
    least_gain : float
        A step that gains less than this share of the first is the last.
    """
    backend = backend_of(beta)
    xp, new, inside = backend.xp, backend.copy(beta), backend.index(np.arange(len(beta)))
    (lower, upper), steps, first = box, 0, 0.0
    while len(inside) > 1:
        direction = form.direction(slope, sums)
        steps += 1
        points = [_first_bound(direction, beta, lower, upper)]
        if steps <= cut_backs:
            points.append(_cut_back(beta + direction, beta, lower, upper, sums))
        best, best_gain, left = beta, 0.0, slope
        for point in points:
            move = point - beta
            Am = form.multiply(move)
            steep, bend = float(slope @ move), float(move @ Am)
            if not steep > 0:
                continue
            size = steep / bend if bend > 0 else 1.0
            size = (
                size if size < 0.999 else 1.0
            )  # so near to one by rounding alone: the step is whole
            gain = size * steep - 0.5 * size**2 * bend
            if gain > best_gain:
                # A whole step ends on its bounds exactly.
                best = xp.clip(point if size == 1.0 else beta + size * move, lower, upper)
                best_gain, left = gain, slope - size * Am
        new[inside] = best
        first = max(first, best_gain)
        stays = (best > lower) & (best < upper)
        if best_gain <= least_gain * first or bool(stays.all()) or budget < form.cost:
            break
        budget -= form.cost
        beta, slope, lower, upper, inside = (
            one[stays] for one in (best, left, lower, upper, inside)
        )
        form.keep(stays)
    return new, steps


def _first_bound(direction: ArrayOrTensor, beta: Any, lower: Any, upper: Any) -> ArrayOrTensor:
    """Return the end of the direction, or the point where it meets the first bound."""
    xp = backend_of(beta).xp
    end, moves = xp.where(direction > 0, upper, lower), direction != 0
    room = xp.where(moves, (end - beta) / xp.where(moves, direction, 1.0), np.inf)
    size = min(1.0, float(room.min()))
    return xp.where(room <= size, end, beta + size * direction)


def _cut_back(end: ArrayOrTensor, beta: Any, lower: Any, upper: Any, sums: bool) -> ArrayOrTensor:
    """Return the point of the box, with the same sum if there is one to keep, nearest to the
    direction's end."""
    backend = backend_of(beta)
    if not sums:
        return backend.xp.clip(end, lower, upper)
    if len(end) > 20_000:
        return _nearest_of_same_sum(end, beta, lower, upper)
    # Few numbers move to the host: of many small steps, each would wait for the device.
    return backend.asarray(_nearest_of_same_sum(*map(backend.to_numpy, (end, beta, lower, upper))))


def _nearest_of_same_sum(end: ArrayOrTensor, beta: Any, lower: Any, upper: Any) -> ArrayOrTensor:
    """Return the point of the box nearest to `end` whose sum is that of β."""
    xp, total = backend_of(end).xp, float(beta.sum())
    size = float(xp.abs(beta).sum())  # which sums are rounded by, also where they are zero
    # Moved down by the largest rise, no coefficient exceeds its old value, so that the sum is met
    # in between.
    low, high = float((end - beta).min()), float((end - beta).max())
    shift = min(max(0.0, low), high)
    for _ in range(60):
        nearest = xp.clip(end - shift, lower, upper)
        inside = (nearest > lower) & (nearest < upper)
        excess, count = float(nearest.sum()) - total, int(inside.sum())
        low, high = (shift, high) if excess > 0 else (low, shift)
        # The sum is linear in the shift from bound to bound: Newton's step, or half the way where
        # it leads out.
        best = shift + excess / count if count else np.inf
        if abs(best - shift) <= 1e-15 * (abs(shift) + size) or not low < high:
            break
        shift = best if low <= best <= high else 0.5 * (low + high)
    return nearest + inside * ((total - float(nearest.sum())) / max(count, 1))


# Blocks of this process, whose budget is in flops -------------------------------------------------


def block_form(K: AnyArray, ridge: Vector) -> Form:
    """Return K + diag ρ, made positive definite by the noise that K's entries are known up to."""
    A, n = K.astype(np.float64), len(K)
    # So that a block of zeros has a Newton step, too, it is not zero.
    noise = max(max(1e-10, float(np.finfo(K.dtype).eps) * n) * np.trace(A) / n, 1e-12)
    triangle, pivots, rank, _ = dpstrf(A, tol=noise, lower=1)
    if rank**2 > InverseForm.flops_per_entry * n:
        with suppress(
            np.linalg.LinAlgError
        ):  # if A is less definite than was promised, the factor takes what is
            return InverseForm(A + np.diag(ridge + noise))
    L = np.empty((n, rank))
    L[pivots - 1] = np.tril(triangle)[:, :rank]
    return LowRankForm(L, ridge + noise)


class LowRankForm(Form):
    """The quadratic form L Lᵀ + D with a diagonal D and few columns in L, inverted through them."""

    def __init__(self, L: Array, D: Vector) -> None:
        self.L, self.D = L, D

    @property
    def cost(self) -> float:
        return float(self.L.shape[0] * self.L.shape[1] ** 2)

    def multiply(self, x: Vector) -> Vector:
        return np.asarray(self.L @ (self.L.T @ x) + self.D * x)

    def solve(self, right: Array) -> Array:
        scaled = self.L / self.D[:, np.newaxis]
        x = right / self.D[:, np.newaxis]
        return np.asarray(x - scaled @ Cholesky(self.L.T @ scaled, 1.0).solve(self.L.T @ x))

    def keep(self, which: Mask) -> None:
        self.L, self.D = self.L[which], self.D[which]


class InverseForm(Form):
    """A quadratic form with its factor and, once samples are left out, its inverse, which follows
    that."""

    #: What updating an entry of an inverse costs in time, as flops of a factorisation.
    flops_per_entry = 80

    def __init__(self, A: Array) -> None:
        self.A = A
        self.factor = Cholesky(A, most=0.0)
        self.inverse: Array | None = None
        self.kept = np.arange(len(A))
        self.leaving: list[int] = []

    @property
    def cost(self) -> float:
        n = len(self.A)
        return float(self.flops_per_entry * n**2 + (3 * n**3 if self.inverse is None else 0))

    def multiply(self, x: Vector) -> Vector:
        return self._apply(self.A, x)

    def solve(self, right: Array) -> Array:
        if not self.leaving and self.inverse is None:
            return np.asarray(self.factor.solve(right))
        if self.inverse is None:
            self.inverse = np.asfortranarray(self.factor.inverse())
        for k in self.leaving:
            row = self.inverse[k].copy()
            # In place: what is left is the inverse of A without row and column k, and zero there.
            self.inverse = dger(-1.0 / row[k], row, row, a=self.inverse, overwrite_a=1)
            self.inverse[k] = self.inverse[:, k] = 0.0
        self.leaving.clear()
        return self._apply(self.inverse, right)

    def keep(self, which: Mask) -> None:
        self.leaving.extend(self.kept[~which])
        self.kept = self.kept[which]

    def _apply(self, matrix: Array, x: Array) -> Array:
        padded = np.zeros((len(matrix), *x.shape[1:]))
        padded[self.kept] = x
        return np.asarray((matrix @ padded)[self.kept])


# Kernels of any form, whose budget is in steps ----------------------------------------------------


class GramForm(Form):
    """K + diag ρ by the kernel's own products: factorised if it is stored and small enough, else
    iterated on.

    Parameters
    ----------
    A : Gram
        K between the samples.
    ridge : array of shape (n_free,)
        Their ρ.
    factorised : int
        A stored block of up to this many samples is factorised, any other takes conjugate-gradient
        steps.
    """

    cost = 1.0

    def __init__(self, A: Gram, ridge: ArrayOrTensor, factorised: int) -> None:
        self.A, self.ridge, self.factorised = A, ridge, factorised

    def multiply(self, x: ArrayOrTensor) -> ArrayOrTensor:
        return self.A.products(x) + self.ridge * x

    def keep(self, which: RowIndex) -> None:
        self.A, self.ridge = self.A.take(self.A.backend.nonzero(which)), self.ridge[which]

    def direction(self, slope: ArrayOrTensor, sums: bool) -> ArrayOrTensor:
        self.factor: Any = None  # its memory is that of the next one
        K = self.A.matrix
        if K is not None and len(K) <= self.factorised:
            jitter = rounding_jitter(self.A.dtype, K.diagonal() + self.ridge)
            with suppress(np.linalg.LinAlgError):
                self.factor = Cholesky(
                    K, self.ridge + jitter, 0.01, self.A.backend.dtype(self.ridge)
                )
                return super().direction(slope, sums)
        # About the direction by conjugate gradients, to a few digits.
        diagonal = (self.A.backend.asarray(self.A.diagonal()) + self.ridge)[:, None]
        added = self.ridge[:, None] + rounding_jitter(self.A.dtype, diagonal)
        times = lambda p: self.A.products(p) + added * p  # noqa: E731
        options = BLOCKS[self.A.backend.name]
        return conjugate_gradients(times, lambda r: r / diagonal, slope[:, None], options, sums)[
            :, 0
        ]

    def solve(self, right: ArrayOrTensor) -> ArrayOrTensor:
        return self.factor.solve(right)
