"""Newton steps on all coefficients strictly inside their bounds, for a block of the kernel where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic.backend import backend_of
from kernelmosaic.gram.linear import (
    DEVICE,
    conjugate_gradients,
    multiply,
    regularised_cholesky,
    rounding_jitter,
)

#: Most Newton steps before everyone's slope is looked at again, each without those who met a bound.
_FOLLOWED = 4
#: A step that gains less than this share of the first ends them.
_WORTH = 0.02
_HALVINGS = 60


@dataclass
class FreeBlock:
    """The program of the free samples alone.

    Attributes
    ----------
    A : array of shape (n_free, n_free)
        K between them.
    beta, slope, lower, upper, ridge : array of shape (n_free,)
        Theirs.
    sums : bool
        Whether the coefficients keep their sum.
    left : array or None
        The slopes after the last step.
    """

    A: Any
    beta: Any
    slope: Any
    lower: Any
    upper: Any
    ridge: Any
    sums: bool
    left: Any = None

    def __post_init__(self) -> None:
        self.backend = backend_of(self.A)
        self.xp = self.backend.xp

    def ascend(self) -> tuple[Any, int]:
        """Return better coefficients for the free samples, and the Newton steps taken."""
        new = self.backend.copy(self.beta)
        inside = self.backend.index(np.arange(len(new)))
        block: FreeBlock = self
        first = 0.0
        for count in range(1, _FOLLOWED + 1):
            there, gain = block._step()
            new[inside] = there
            first = max(first, gain)
            stays = (there > block.lower) & (there < block.upper)
            if gain <= _WORTH * first or bool(stays.all()) or int(stays.sum()) < 2:
                return new, count
            inside = inside[stays]
            block = block._without(there, stays)
        return new, _FOLLOWED

    def _step(self) -> tuple[Any, float]:
        """Return where a Newton step, cut to the box, leads, and what it gains; nowhere if it gains nothing."""
        direction = self._direction()
        best, best_gain = self.beta, 0.0
        self.left = None
        for move in (self._cut_back(direction) - self.beta, self._follow(direction)):
            Am = multiply(self.A, move[:, None])[:, 0] + self.ridge * move
            steep, curvature = float(self.slope @ move), float(move @ Am)
            if not steep > 0:
                continue
            size = min(1.0, steep / curvature) if curvature > 0 else 1.0
            gain = size * steep - 0.5 * size**2 * curvature
            if gain > best_gain:
                # A whole step ends on its bounds exactly.
                best, best_gain = self.xp.clip(self.beta + size * move, self.lower, self.upper), gain
                self.left = self.slope - size * Am
        return best, best_gain

    def _without(self, beta: Any, stays: Any) -> FreeBlock:
        kept = self.backend.nonzero(stays)
        A = self.backend.take_block(self.A, kept, kept)
        rest = [one[stays] for one in (beta, self.left, self.lower, self.upper, self.ridge)]
        return FreeBlock(A, *rest, sums=self.sums)  # type: ignore[misc]

    def _direction(self) -> Any:
        """Return the step to the maximum over the free samples, their sum kept if there is one to keep."""
        sides = self.xp.stack([self.slope, self.xp.ones_like(self.slope)], axis=1)
        jitter = rounding_jitter(self.A, self.ridge)
        factor = regularised_cholesky(self.A, self.ridge, jitter) if len(self.A) <= DEVICE.factorised else None
        if factor is not None:
            found = self.backend.cho_solve(factor, sides)
        else:
            found = conjugate_gradients(self.A, self.ridge + jitter, sides)
        x, ones = found[:, 0], found[:, 1]
        if self.sums:
            x = x - x.sum() / ones.sum() * ones
            x = x - x.mean()  # along a flat direction both terms are huge, and what they leave rounds badly
        return x

    def _cut_back(self, direction: Any) -> Any:
        """Return the point of the box, with the same sum if there is one to keep, nearest to the direction's end."""
        xp = self.xp
        end = self.beta + direction
        if not self.sums:
            return xp.clip(end, self.lower, self.upper)
        total = self.beta.sum()
        # Moved down by more than the largest rise nobody is above where he was, so that the sum is met in between.
        low, high = direction.min(), direction.max()
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            surplus = xp.clip(end - middle, self.lower, self.upper).sum() > total
            low, high = xp.where(surplus, middle, low), xp.where(surplus, high, middle)
        there = xp.clip(end - high, self.lower, self.upper)
        inside = (there > self.lower) & (there < self.upper)
        return there + inside * ((total - there.sum()) / xp.clip(inside.sum(), 1, None))

    def _follow(self, direction: Any) -> Any:
        """Return the part of the direction up to the first bound."""
        xp = self.xp
        end = xp.where(direction > 0, self.upper, self.lower)
        moves = direction != 0
        room = xp.where(moves, (end - self.beta) / xp.where(moves, direction, 1.0), np.inf)
        return direction * xp.clip(room.min(), None, 1.0)
