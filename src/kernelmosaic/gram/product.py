"""The product rule: all kernels of a set multiplied, entry by entry, into one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.kernel_set import KernelSet, Samples, Views
from kernelmosaic.kernels.base import Block


@dataclass(frozen=True)
class ProductKernelSet(KernelSet):
    """One kernel ∏_m k_m, whose factors may read different columns."""

    @property
    def names(self) -> list[str]:
        return [" * ".join(fitted_kernel.name for fitted_kernel in self.fitted)]

    def __len__(self) -> int:
        return 1

    def select(self, active: Sequence[int] | NDArray[Any]) -> KernelSet:
        return self

    def select_views(self, views: Views, active: Sequence[int] | NDArray[Any]) -> Views:
        return views

    def blocks(
        self, X: Views | Samples, Y: Views | Samples, kernels: Sequence[int] | NDArray[Any], dtype: Any = None
    ) -> Iterator[tuple[int, Block]]:
        for m in kernels:
            factors = super().blocks(X, Y, range(len(self.fitted)), dtype)
            product = next(factors)[1]
            for _, factor in factors:
                product = product * factor
            yield m, product

    def diagonals(self, X: Views | Samples) -> NDArray[np.float64]:
        return np.asarray(super().diagonals(X).prod(axis=0, keepdims=True))
