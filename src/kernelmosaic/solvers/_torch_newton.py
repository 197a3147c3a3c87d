"""Newton steps on a device, for all coefficients strictly inside their bounds at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelmosaic.gram._torch_blocks import take_block
from kernelmosaic.solvers._torch_linear import (
    FACTORISED,
    conjugate_gradients,
    multiply_rows,
    noise_of,
    regularised_factor,
    solve_factor,
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
    K : Tensor of shape (n, n)
        The whole matrix.
    free : Tensor of int
        The samples.
    beta, slope, lower, upper, ridge : Tensor
        Theirs.
    sums : bool
        Whether the coefficients keep their sum.
    left : Tensor or None
        The slopes after the last step.
    A : Tensor or None
        K between the free samples, where it is known already.
    """

    K: Tensor
    free: Tensor
    beta: Tensor
    slope: Tensor
    lower: Tensor
    upper: Tensor
    ridge: Tensor
    sums: bool
    left: Tensor | None = None
    A: Tensor | None = None

    def ascend(self) -> tuple[Tensor, int]:
        """Return better coefficients for the free samples, and the Newton steps taken."""
        new = self.beta.clone()
        inside = torch.arange(len(self.free), device=self.free.device)
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

    def _step(self) -> tuple[Tensor, float]:
        """Return where a Newton step, cut to the box, leads, and what it gains; nowhere if it gains nothing."""
        A = take_block(self.K, self.free, self.free) if self.A is None else self.A
        direction = self._direction(A)
        change = self._cut_back(direction) - self.beta
        followed = self._follow(direction)
        best, best_gain, best_curve = self.beta, 0.0, None
        for move in (change, followed):
            Am = multiply_rows(A, move.unsqueeze(1))[:, 0] + self.ridge * move
            steep, curvature = float(self.slope @ move), float(move @ Am)
            if not steep > 0:
                continue
            size = min(1.0, steep / curvature) if curvature > 0 else 1.0
            gain = size * steep - 0.5 * size**2 * curvature
            if gain > best_gain:
                # A whole step ends on its bounds exactly.
                end = torch.minimum(torch.maximum(self.beta + size * move, self.lower), self.upper)
                best, best_gain, best_curve = end, gain, size * Am
        self.A, self.left = A, None if best_curve is None else self.slope - best_curve
        return best, best_gain

    def _without(self, beta: Tensor, stays: Tensor) -> FreeBlock:
        assert self.left is not None
        assert self.A is not None
        kept = torch.nonzero(stays)[:, 0]
        return FreeBlock(
            self.K,
            self.free[stays],
            beta[stays],
            self.left[stays],
            self.lower[stays],
            self.upper[stays],
            self.ridge[stays],
            self.sums,
            A=take_block(self.A, kept, kept),
        )

    def _direction(self, A: Tensor) -> Tensor:
        """Return the step to the maximum over the free samples, their sum kept if there is one to keep."""
        sides = torch.stack([self.slope, torch.ones_like(self.slope)], dim=1)
        found = self._solver(A)(sides)
        x, ones = found[:, 0], found[:, 1]
        if self.sums:
            x = x - x.sum() / ones.sum() * ones
            x = x - x.mean()  # along a flat direction both terms are huge, and what they leave rounds badly
        return x

    def _solver(self, A: Tensor) -> Callable[[Tensor], Tensor]:
        factor = regularised_factor(A, self.ridge) if len(A) <= FACTORISED else None
        if factor is not None:
            return lambda sides: solve_factor(factor, sides)
        return lambda sides: conjugate_gradients(A, self.ridge + noise_of(A, self.ridge), sides)

    def _cut_back(self, direction: Tensor) -> Tensor:
        """Return the point of the box, with the same sum if there is one to keep, nearest to the direction's end."""
        end = self.beta + direction
        if not self.sums:
            return torch.minimum(torch.maximum(end, self.lower), self.upper)
        total = self.beta.sum()
        # Moved down by more than the largest rise nobody is above where he was, so that the sum is met in between.
        low, high = direction.min(), direction.max()
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            surplus = torch.minimum(torch.maximum(end - middle, self.lower), self.upper).sum() > total
            low, high = torch.where(surplus, middle, low), torch.where(surplus, high, middle)
        there = torch.minimum(torch.maximum(end - high, self.lower), self.upper)
        inside = (there > self.lower) & (there < self.upper)
        return there + inside * ((total - there.sum()) / inside.sum().clamp(min=1))

    def _follow(self, direction: Tensor) -> Tensor:
        """Return the part of the direction up to the first bound."""
        end = torch.where(direction > 0, self.upper, self.lower)
        room = torch.where(direction != 0, (end - self.beta) / direction, torch.full_like(direction, torch.inf))
        return direction * room.min().clamp(max=1.0)
