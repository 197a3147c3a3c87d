"""Kernels of several classes, each with weights of its own, that are never written down whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, DType
from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.gram import Array, Gram
from kernelmosaic.kernels.base import Block

#: Numbers in the blocks of all classes together, where memory is no concern.
BLOCK_NUMBERS = 2**27


class ClassGram(Gram):
    """K_c = Σ_m d_cm K_m for every class c; the operations that solvers of joint machines use.

    Attributes
    ----------
    n_samples, n_classes : int
        Their numbers.
    block_samples : int
        Up to this many samples may have their blocks formed, for all classes at once.
    """

    n_samples: int
    n_classes: int
    block_samples: int

    def add_diagonal(self, values: Array) -> Gram:
        raise NotImplementedError(
            f"{type(self).__name__}.add_diagonal: kernels of several classes take no diagonal: C is not learned with "
            "them; add the numbers to the ridge of the program."
        )

    def solve_free(self, rows: NDArray[np.intp], ridge: Array, right: Array) -> Array:
        raise NotImplementedError(
            f"{type(self).__name__}.solve_free: there is one linear system per class; take the block of these samples "
            "and solve them one by one."
        )


class FactoredClasses(ClassGram):
    """K_c = Z diag(d_c) Zᵀ: the features are shared, every class weighs them for itself.

    Parameters
    ----------
    gram : FactoredGram
        Z Zᵀ, with every kernel that has a weight in some class.
    scales : ndarray of shape (classes, D)
        The weight of each feature in each class.
    block_numbers : int
        How many numbers the blocks of all classes may have together.
    """

    def __init__(self, gram: FactoredGram, scales: Array, block_numbers: int = BLOCK_NUMBERS) -> None:
        self.gram, self.scales = gram, scales
        self.n_samples, self.n_classes = gram.n_samples, len(scales)
        self.block_samples = max(1, int(np.sqrt(block_numbers / self.n_classes)))

    def products(self, beta: Array, exact: bool = False) -> Array:
        return np.asarray(self.gram.apply(self.scales.T * self.gram.adjoint(beta)))

    def block(self, rows: NDArray[np.intp]) -> FeatureBlock:
        return FeatureBlock(self.gram.rows(rows), self.scales)

    def diagonal(self) -> Array:
        every = np.arange(self.n_samples)
        return np.asarray(self.gram.rows(every) ** 2 @ self.scales.T)


class FeatureBlock:
    """The rows of some samples, from which the block of any class follows.

    Parameters
    ----------
    rows : ndarray of shape (q, D)
        Their features.
    scales : ndarray of shape (classes, D)
        The weight of each feature in each class.
    """

    def __init__(self, rows: Array, scales: Array) -> None:
        self.rows, self.scales = rows, scales

    def of_class(self, c: int, inside: NDArray[np.intp] | slice = slice(None), dtype: DType = np.float64) -> Block:
        """Return the block of one class, of the samples inside this one."""
        used = np.flatnonzero(self.scales[c])
        Z = (self.rows[inside][:, used] * np.sqrt(self.scales[c, used])).astype(dtype, copy=False)
        # Products of smaller numbers would be denormal, which is slow, and nothing beside the others.
        Z[np.abs(Z) < np.sqrt(np.finfo(Z.dtype).tiny)] = 0.0
        return np.asarray(Z @ Z.T)

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonals of all classes."""
        return float(np.mean(self.rows**2 @ self.scales.T))

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> AnyArray:
        q, dtype = len(self.rows), np.float64 if dtype is None else dtype
        out = np.empty((len(self.scales), q, q), dtype=dtype)
        for c, K in enumerate(out):
            K[...] = self.of_class(c, dtype=dtype)
        return out


class StackClasses(ClassGram):
    """K_c from the matrices of a stack, which are read for every product and block.

    Parameters
    ----------
    stack : GramStack
        The kernels, wherever they live.
    weights : ndarray of shape (classes, P)
        The weights d.
    """

    def __init__(self, stack: Any, weights: Array) -> None:
        self.stack, self.weights = stack, weights
        self.active = np.flatnonzero(np.any(weights != 0, axis=0))
        self.n_samples, self.n_classes = stack.n_samples, len(weights)
        self.block_samples = int(np.sqrt(BLOCK_NUMBERS / max(self.n_classes, len(self.active))))

    def products(self, beta: Array, exact: bool = False) -> Array:
        products = self.stack.products(beta, kernels=self.active)
        return np.asarray(np.einsum("cm,mic->ic", self.weights[:, self.active], products[self.active]))

    def block(self, rows: NDArray[np.intp]) -> Block:
        out = np.zeros((self.n_classes, len(rows), len(rows)), dtype=self.stack.dtype)
        for m, block in self.stack.blocks(self.active, rows, rows):
            for c in np.flatnonzero(self.weights[:, m]):
                out[c] += out.dtype.type(self.weights[c, m]) * block
        return out

    def diagonal(self) -> Array:
        grams = (self.stack.combine(own) for own in self.weights)
        return np.column_stack([gram.diagonal() for gram in grams])
