"""A combined kernel that is never written down: K = Z Zᵀ, known by what Z does to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class FactoredGram(ABC):
    """K = Z Zᵀ of n samples with D features; what solvers may ask of it.

    Each operation is one pass over the rows, wherever they are: in this process, on a device, on other machines. What
    goes in and comes out are vectors of n numbers and matrices of D × D.

    Attributes
    ----------
    n_samples, n_features : int
        n and D.
    block_samples : int
        Up to this many samples may have their block of K formed.
    """

    n_samples: int
    n_features: int
    block_samples: int

    @abstractmethod
    def apply(self, W: Array) -> Array:
        """Return Z W, of shape (n,) or (n, k)."""

    @abstractmethod
    def adjoint(self, V: Array) -> Array:
        """Return Zᵀ V, of shape (D,) or (D, k); rows where V is zero are not read."""

    @abstractmethod
    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        """Return [Z, 1]ᵀ diag(θ) [Z, 1], of shape (D + 1, D + 1), for θ ≥ 0; rows where it is zero are not read.

        Unless it is to be precise, features in single precision may be multiplied in single precision.
        """

    def sharpen(self) -> bool:
        """Form normal matrices more exactly from now on, which costs more; False if they are as exact as can be."""
        return False

    @abstractmethod
    def rows(self, which: NDArray[np.intp]) -> Array:
        """Return these rows of Z."""

    def block(self, which: NDArray[np.intp]) -> Any:
        """Return the block of K of these samples, in a form that solvers serve."""
        Z = self.rows(which)
        return Z @ Z.T

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the squared norms of the rows of Z."""
