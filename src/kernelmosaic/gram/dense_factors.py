"""A few rows of features side by side in one array, here or on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.factored import Array, FactoredGram, HostArrays


class DenseFactors(FactoredGram):
    """K = Z Zᵀ with Z in memory.

    Parameters
    ----------
    Z : array of shape (n, D)
        NumPy's, or one of `arrays`.
    arrays : HostArrays
        Where it is.
    """

    def __init__(self, Z: Any, arrays: HostArrays) -> None:
        self.Z, self.arrays = Z, arrays
        self.n_samples, self.n_features = (int(side) for side in Z.shape)
        # Whoever asks for a few rows has cut the problem down already.
        self.block_samples = 0

    def apply(self, W: Any) -> Any:
        return self._in_place(W, lambda W: self.Z @ W)

    def adjoint(self, V: Any) -> Any:
        return self._in_place(V, lambda V: self.Z.T @ V)

    def normal_matrix(self, theta: Any, precise: bool = False) -> Any:
        xp = self.arrays.xp

        def multiply(theta: Any) -> Any:
            root = xp.sqrt(theta)[:, None]
            B = xp.concatenate([self.Z * root, root], axis=1)
            return B.T @ B

        return self._in_place(theta, multiply)

    def rows(self, which: NDArray[np.intp]) -> Array:
        return self.arrays.fetch(self.Z[which])

    def diagonal(self) -> Array:
        return self.arrays.fetch((self.Z * self.Z).sum(axis=1))

    def _in_place(self, given: Any, work: Callable[[Any], Any]) -> Any:
        """Work where the factors are, and answer in the form that was given."""
        if isinstance(given, np.ndarray):
            return self.arrays.fetch(work(self.arrays.place(given)))
        return work(given)
