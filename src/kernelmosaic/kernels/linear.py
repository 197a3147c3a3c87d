"""The linear kernel."""

from __future__ import annotations

from typing import Any, ClassVar

from kernelmosaic.backend import backend_of
from kernelmosaic.kernels.base import Block, StatisticKernel, pairwise_statistic


class Linear(StatisticKernel):
    """k(x, z) = ⟨x, z⟩."""

    statistic: ClassVar[str] = "products"

    def from_statistic(self, S: Block) -> Block:
        # The caller keeps S for other kernels, and may scale what it gets from here.
        copy: Block = backend_of(S).copy(S)
        return copy

    def _block(self, X: Any, Y: Any) -> Block:
        return pairwise_statistic(self.statistic, X, Y)
