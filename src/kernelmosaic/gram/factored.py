"""A combined kernel that is never written down: K = Z Zᵀ, known by what Z does to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class HostArrays:
    """Where a solver's vectors of n numbers live: in this process, as NumPy's arrays.

    Attributes
    ----------
    xp : module
        NumPy, or whatever has its functions for the arrays.
    """

    xp: Any = np

    def place(self, array: NDArray[Any]) -> Any:
        """Return a NumPy array as one of these."""
        return array

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return one of these as a NumPy array."""
        return np.asarray(array)


class FactoredGram(ABC):
    """K = Z Zᵀ of n samples with D features; what solvers may ask of it.

    Each operation is one pass over the rows, wherever they are: in this process, on a device, on other machines. What
    goes in and comes out are vectors of n numbers and matrices of D × D: NumPy's, or those of `arrays` if such are
    given.

    Attributes
    ----------
    n_samples, n_features : int
        n and D.
    block_samples : int
        Up to this many samples may have their block of K formed.
    arrays : HostArrays
        Where a solver that makes many passes had better keep its vectors.
    wide : float
        Blocks with this many times more samples than features are better solved in their features.
    stored : bool
        Whether a pass costs its arithmetic only: features are at hand, not computed anew or on other machines.
    """

    n_samples: int
    n_features: int
    block_samples: int
    arrays: HostArrays = HostArrays()
    wide: float = np.inf
    stored: bool = True

    @abstractmethod
    def apply(self, W: Array) -> Array:
        """Return Z W, of shape (n,) or (n, k)."""

    @abstractmethod
    def adjoint(self, V: Array) -> Array:
        """Return Zᵀ V, of shape (D,) or (D, k); rows where V is zero are not read."""

    def products(self, beta: Array, exact: bool = False) -> Array:
        """Return K β, of the shape of β, by reading the rows twice where it is not zero and once where it is.

        There are no better features than these: they are always exact.
        """
        return self.apply(self.adjoint(beta))

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

    def part(self, which: NDArray[np.intp]) -> FactoredGram:
        """Return the kernel of these samples, their rows side by side in memory."""
        from kernelmosaic.gram.dense_factors import DenseFactors

        return DenseFactors(self.rows(which), HostArrays())

    def block(self, which: NDArray[np.intp]) -> Any:
        """Return the block of K of these samples, in a form that solvers serve."""
        Z = self.rows(which)
        return Z @ Z.T

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the squared norms of the rows of Z."""

    def add_diagonal(self, values: Array) -> ShiftedGram:
        """Return the kernel with these numbers added to its diagonal."""
        return ShiftedGram(self, values)


@dataclass(frozen=True)
class ShiftedGram:
    """K = Z Zᵀ + diag e.

    Attributes
    ----------
    inner : FactoredGram
        Z Zᵀ.
    shift : ndarray of shape (n,)
        e, not negative.
    """

    inner: FactoredGram
    shift: Array
