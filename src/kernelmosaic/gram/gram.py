"""A combined kernel, whatever its form: the operations that solvers use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, ArrayOrTensor, DType, RowIndex
from kernelmosaic.backend import NUMPY, Backend, backend_of, is_tensor
from kernelmosaic.gram.linear_algebra import multiply_rows, solve_block

Array = NDArray[np.float64]
#: From row numbers and their coefficients to Kβ in double precision.
ExactProduct = Callable[[NDArray[np.intp], Array], Array]


class Gram(ABC):
    """One symmetric positive semi-definite matrix K of n samples, or one per class.

    A solver uses these operations and no others: products with β, blocks of a few samples, linear systems in
    such a block, the diagonal. Vectors of n numbers come back in the library they were given in, arrays for arrays and
    tensors for tensors; `backend` says where a solver that needs many of them had better keep its own.

    Attributes
    ----------
    n_samples : int
        n.
    backend : Backend
        Where the numbers are.
    block_samples : int
        Up to this many samples may have their block formed.
    matrix : array or None
        All entries, if they are stored: a solver on the host may then read them itself.
    dtype : dtype
        Precision of the entries.
    factored : bool
        Whether K = Z Zᵀ with known factors Z; such a kernel is a `FactoredGram`.
    """

    n_samples: int
    backend: Backend = NUMPY
    block_samples: int
    matrix: Any = None
    dtype: np.dtype[Any] = np.dtype(np.float64)
    factored: bool = False

    @abstractmethod
    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return K β, of the shape of β; for a certificate, in double precision whatever the entries are stored in."""

    @abstractmethod
    def block(self, rows: RowIndex) -> ArrayOrTensor:
        """Return K between these samples as an array of the backend, a copy."""

    def part(self, rows: NDArray[np.intp]) -> Gram:
        """Return the kernel of some samples alone, at hand for solving their problem."""
        return DenseGram(self.block(rows))

    def products_of(self, part: ArrayOrTensor, rows: NDArray[np.intp], beta: Array) -> Array:
        """Return Kβ where β is zero but at these rows, whose kernel alone is the part."""
        spread = np.zeros(self.n_samples)
        spread[rows] = beta
        return np.asarray(self.products(spread))

    def restricted(self, rows: RowIndex) -> Gram:
        """Return the same for row numbers of the backend, of any number of samples."""
        return DenseGram(self.block(rows))

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the diagonal, in this process."""

    @abstractmethod
    def add_diagonal(self, values: Array) -> Gram:
        """Return the kernel with these numbers added to its diagonal; it may take the place of this one."""

    def low_rank(self) -> ArrayOrTensor:
        """Return Z with K ≈ ZZᵀ where a kernel that is not stored has room for it; else None."""
        return None

    def solve_free(self, rows: NDArray[np.intp], ridge: Array, right: Array) -> Array:
        """Return roughly (K + diag ridge)⁻¹ times the right-hand sides, (n_rows, k), for the block of these samples."""
        place = self.backend.asarray
        A = self.block(self.backend.index(rows))
        return self.backend.to_numpy(solve_block(A, place(ridge), place(right))).astype(np.float64, copy=False)


class DenseGram(Gram):
    """A matrix that is stored, in this process or on a device.

    Parameters
    ----------
    matrix : array of shape (n, n)
        The entries.
    exact : callable, optional
        Multiplies the kernel, computed anew in double precision, with a sparse β of one or several columns; None if
        the entries are the best there is.
    """

    #: Up to this many samples a block is copied to the host.
    block_samples = 4096
    #: Up to this many samples are taken out of the matrix to be worked on by themselves.
    copied = 6000

    def __init__(self, matrix: Any, exact: ExactProduct | None = None) -> None:
        self.matrix = matrix
        self.exact = exact
        self.backend = backend_of(matrix)
        self.n_samples = int(matrix.shape[0])
        self.dtype = self.backend.dtype(matrix)

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> AnyArray:
        array = self.backend.to_numpy(self.matrix)
        # A reader of the array cannot change it by accident.
        return np.array(array, dtype=dtype) if copy is not False else np.asarray(array, dtype=dtype)

    def __len__(self) -> int:
        return self.n_samples

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n_samples, self.n_samples)

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        here = isinstance(beta, np.ndarray)
        if exact and self.exact is not None:
            dense = beta if here else self.backend.to_numpy(beta)
            support = np.flatnonzero(dense if dense.ndim == 1 else np.any(dense != 0, axis=1))
            found = self.exact(support, dense[support])
            return found if here else self.backend.asarray(found)
        coefficients = self.backend.asarray(beta)
        used = self.backend.nonzero(coefficients if beta.ndim == 1 else (coefficients != 0).any(1))
        out = multiply_rows(self.matrix, used, coefficients[used])
        return self.backend.to_numpy(out) if here else out

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        rows = self.backend.index(rows)
        return self.backend.take_block(self.matrix, rows, rows)

    def restricted(self, rows: RowIndex) -> Gram:
        return SomeRows(self, rows) if len(rows) > self.copied else super().restricted(rows)

    def diagonal(self) -> Array:
        return self.backend.to_numpy(self.matrix.diagonal()).astype(np.float64)

    def add_diagonal(self, values: Array) -> DenseGram:
        """Add to the diagonal in place, and return the matrix with it."""
        diagonal = self.backend.diagonal_view(self.matrix)
        diagonal += self.backend.asarray(values, self.dtype)
        exact = self.exact
        if exact is None:
            return self
        inner: ExactProduct = exact

        def shifted(support: NDArray[np.intp], beta: Array) -> Array:
            out = inner(support, beta)
            out[support] += (values[support] * beta.T).T
            return out

        return DenseGram(self.matrix, shifted)


class SomeRows(Gram):
    """The part of a stored matrix that belongs to many samples, for products in the precision of the matrix.

    On the host all of the matrix is read for one: that beats a copy of the part. A device, which reads a copy at many
    times the speed of making it, makes one for its many products, if that has at most half of the entries and there is
    room.

    Parameters
    ----------
    gram : DenseGram
        The whole.
    rows : array of int
        Row numbers of the backend.
    """

    block_samples = DenseGram.block_samples

    def __init__(self, gram: DenseGram, rows: RowIndex) -> None:
        self.gram, self.which = gram, rows
        self.n_samples, self.backend, self.dtype = len(rows), gram.backend, gram.dtype
        self.copy: Any = None
        size = self.n_samples**2 * self.dtype.itemsize
        small = self.backend is not NUMPY and 2 * self.n_samples**2 <= gram.n_samples**2
        # A pass over the whole needs room, too; and what is free may be so in pieces.
        if small and 2 * size + 2**30 <= self.backend.free_bytes():
            with suppress(RuntimeError):
                self.copy = gram.block(rows)

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        own = self.backend.asarray(beta, self.dtype)
        if self.copy is not None:
            values = self.copy @ own
        else:
            full = self.backend.zeros((self.gram.n_samples, *beta.shape[1:]), self.dtype)
            full[self.which] = own
            values = (self.gram.matrix @ full)[self.which]
        found = self.backend.astype(values, np.float64)
        return self.backend.to_numpy(found) if isinstance(beta, np.ndarray) else found

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        return self.gram.block(self.which[rows])

    def restricted(self, rows: RowIndex) -> Gram:
        return self.gram.restricted(self.which[rows])

    def diagonal(self) -> Array:
        return self.backend.to_numpy(self.gram.matrix.diagonal()[self.which]).astype(np.float64)

    def add_diagonal(self, values: Array) -> Gram:
        return DenseGram(self.block(self.backend.index(np.arange(self.n_samples)))).add_diagonal(values)


def as_gram(K: ArrayOrTensor) -> Gram:
    """Return a kernel as it is, or an array of shape (n, n) as one."""
    if isinstance(K, Gram):
        return K
    if not isinstance(K, np.ndarray) and not is_tensor(K):
        raise TypeError(f"K is of type {type(K).__name__}: give a Gram or an array of shape (n, n).")
    return DenseGram(K)
