"""A combined kernel, whatever its form: the operations that solvers use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, RowIndex
from kernelmosaic.backend import NUMPY, Backend, backend_of, format_bytes, is_tensor, row_strips
from kernelmosaic.gram.linear_algebra import (
    Cholesky,
    conjugate_gradients,
    multiply_rows,
    nonzero_rows,
    rounding_jitter,
    solve_block,
)
from kernelmosaic.gram.options import BlockOptions

#: From row numbers and their coefficients to Kβ in double precision.
ExactProduct = Callable[[Indices, Array], Array]


class ClassGram(ABC):
    """The kernels of a machine with one output per class: a symmetric positive semi-definite matrix
    K_c for each.

    Solvers of joint machines use these operations and no others. A `Gram` is the case in which all
    classes have the same matrix.

    Attributes
    ----------
    n_samples : int
        n.
    backend : Backend
        Where the numbers are.
    dtype : dtype
        Precision of the entries.
    block_samples : int
        Up to this many samples may have their block formed.
    matrix : array or None
        All entries, if they are stored: a solver on the host may then read them itself.
    """

    n_samples: int
    backend: Backend = NUMPY
    dtype: np.dtype[Any] = np.dtype(np.float64)
    block_samples: int
    matrix: Any = None

    @abstractmethod
    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return K_c β_c of every column of β, of the shape of β.

        For a certificate (`exact`) in double precision, whatever the entries are stored in.
        """

    @abstractmethod
    def block(self, rows: RowIndex) -> ArrayOrTensor:
        """Return the entries between these samples as an array of the backend, a copy: (classes, q,
        q), or (q, q)."""

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the diagonal, in this process: (n, classes), or (n,)."""


class Gram(ClassGram):
    """One symmetric positive semi-definite matrix K of n samples, the same for every output.

    This is all that a solver reads of a kernel, whatever its form; solvers of kernels in factors
    read a `FactoredGram`. Rows are numbers in this process or of the backend. Vectors of n numbers
    are returned in the library they are given in, arrays for arrays and tensors for tensors.

    Attributes
    ----------
    factored : bool
        Whether K = Z Zᵀ + diag e with known Z: the kernel is then a `FactoredGram`.
    shift : ndarray of shape (n,) or None
        Of a kernel that is not written down: e ≥ 0, which is added to its diagonal; None for zeros.
    has_cheap_products : bool
        Whether a product costs far less than the entries it stands for: linear systems are solved
        by products.
    """

    factored: bool = False
    has_cheap_products: bool = False
    shift: Array | None = None
    # The entries of a kernel in factors, where a solver has written them down.
    _written: Any = None

    def take(self, rows: RowIndex) -> Gram:
        """Return the kernel of these samples alone: with entries, or features, stored if there is
        room for them."""
        return DenseGram(self.block(rows))

    def products_of(self, part: Gram, rows: Indices, beta: Array) -> Array:
        """Return Kβ where β is zero except at these rows; the part is what `take` returns for
        them."""
        spread = np.zeros(self.n_samples)
        spread[rows] = beta
        return np.asarray(self.products(spread))

    def add_diagonal(self, values: Array) -> Gram:
        """Return the kernel with these numbers added to its diagonal; it may take the place of this
        one."""
        shifted = copy(self)
        shifted.shift = values if self.shift is None else self.shift + values
        shifted._written = None
        return shifted

    def low_rank(self) -> ArrayOrTensor:
        """Return Z with K ≈ ZZᵀ where a kernel that is not stored has room for it; else None."""
        return None

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        """Return roughly (K + diag ridge)⁻¹ times the right-hand sides, (n_rows, k), for the block
        of these samples."""
        place = self.backend.asarray
        A = self.block(self.backend.index(rows))
        return self.backend.to_numpy(solve_block(A, place(ridge), place(right))).astype(
            np.float64, copy=False
        )

    def solve_by_products(
        self, ridge: Array, right: Array, options: BlockOptions, sums: bool = False
    ) -> Array:
        """Return (K + diag ridge)⁻¹ times the right-hand sides, (n, k), by
        `conjugate_gradients`."""

        def times(p: Array) -> Array:
            return np.asarray(self.products(p) + ridge[:, np.newaxis] * p)

        return np.asarray(
            conjugate_gradients(times, self.preconditioner(ridge), right, options, sums)
        )

    def preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return what multiplies columns by roughly (K + diag ridge)⁻¹: here the inverse of the
        diagonal."""
        diagonal = (self.diagonal() + ridge)[:, np.newaxis]
        return lambda r: r / diagonal

    def host_rows(self, rows: RowIndex) -> Indices:
        """Return row numbers in this process."""
        return rows if isinstance(rows, np.ndarray) else self.backend.to_numpy(rows)


class DenseGram(Gram):
    """A matrix that is stored, in this process or on a device.

    Parameters
    ----------
    matrix : array of shape (n, n)
        The entries.
    exact : callable, optional
        Multiplies the kernel, computed anew in double precision, with a sparse β of one or several
        columns; None if the entries are the best there is.
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

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        here = isinstance(beta, np.ndarray)
        if exact and self.exact is not None:
            dense = beta if here else self.backend.to_numpy(beta)
            support = nonzero_rows(dense)
            found = self.exact(support, dense[support])
            return found if here else self.backend.asarray(found)
        coefficients = self.backend.asarray(beta)
        used = nonzero_rows(coefficients)
        out = multiply_rows(self.matrix, used, coefficients[used])
        return self.backend.to_numpy(out) if here else out

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        rows = self.backend.index(rows)
        return self.backend.take_block(self.matrix, rows, rows)

    def take(self, rows: RowIndex) -> Gram:
        return (
            SomeRows(self, self.backend.index(rows))
            if len(rows) > self.copied
            else super().take(rows)
        )

    def diagonal(self) -> Array:
        return self.backend.to_numpy(self.matrix.diagonal()).astype(np.float64)

    def add_diagonal(self, values: Array) -> DenseGram:
        """Add to the diagonal in place, and return the matrix with it."""
        diagonal = self.backend.diagonal_view(self.matrix)
        diagonal += self.backend.asarray(values, self.dtype)
        if self.exact is None:
            return self
        inner = self.exact

        def shifted(support: Indices, beta: Array) -> Array:
            out = inner(support, beta)
            out[support] += (values[support] * beta.T).T
            return out

        return DenseGram(self.matrix, shifted)


class SomeRows(Gram):
    """The part of a stored matrix that belongs to many samples, for products in the precision of
    the matrix.

    On the host all of the matrix is read for one: that beats a copy of the part. A device, which
    reads a copy at many times the speed of making it, makes one for its many products, if that has
    at most half of the entries and there is room.

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
        return self.gram.block(self.which[self.backend.index(rows)])

    def take(self, rows: RowIndex) -> Gram:
        return self.gram.take(self.which[self.backend.index(rows)])

    def diagonal(self) -> Array:
        return self.backend.to_numpy(self.gram.matrix.diagonal()[self.which]).astype(np.float64)

    def add_diagonal(self, values: Array) -> Gram:
        return DenseGram(self.block(np.arange(self.n_samples))).add_diagonal(values)


class OnDemandGram(Gram):
    """K = Σ_m d_m K_m, or Σ_m g_m g_mᵀ ∘ K_m with gates, of so many samples that n² numbers have no
    room.

    Products compute the entries they read, and nothing is kept of them: rows that a round of a
    working set has read would take the memory that makes working sets large, and so rounds few.

    Parameters
    ----------
    stack : ComputedStack
        Computes the kernels.
    factors : ndarray of shape (P,) or (n, P)
        The weights d, or the gates g.
    """

    def __init__(self, stack: Any, factors: Array) -> None:
        self.stack, self.factors = stack, factors
        self.n_samples, self.backend, self.dtype = stack.n_samples, stack.backend, stack.dtype
        self.block_samples = stack.options.block_samples(self.n_samples, stack.budget, self.dtype)

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        here = isinstance(beta, np.ndarray)
        dense = beta if here else self.backend.to_numpy(beta)
        support = nonzero_rows(dense)
        stack = self.stack.exact if exact else self.stack
        values = stack.combined_products(support, dense[support], self.factors)
        if self.shift is not None:
            values[support] += (self.shift[support] * dense[support].T).T
        return values if here else self.backend.asarray(values)

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        """Return the entries between some samples.

        Raises
        ------
        MemoryError
            If they do not fit the budget.
        """
        if len(rows) > self.block_samples:
            need = format_bytes(len(rows) ** 2 * self.dtype.itemsize)
            raise MemoryError(
                f"A block of {len(rows)} x {len(rows)} entries of the kernel needs {need}, the"
                f" budget is {format_bytes(self.stack.budget)}: use approximation='nystroem', which"
                " needs no such block, or fewer samples, or raise memory_budget."
            )
        return self.take(rows).matrix

    def take(self, rows: RowIndex) -> Gram:
        rows = self.host_rows(rows)
        some, factors = (
            self.stack.take(rows),
            self.factors[rows] if self.factors.ndim == 2 else self.factors,
        )
        gram: Gram = (
            OnDemandGram(some, factors) if len(rows) > self.block_samples else some.combine(factors)
        )
        return gram if self.shift is None else gram.add_diagonal(self.shift[rows])

    def low_rank(self) -> ArrayOrTensor:
        """Return Nyström's factors, from samples evenly spread, where the samples are."""
        options = self.stack.options
        rank = min(
            options.most_rank, int(options.rank_share * self.stack.budget / 8 / self.n_samples)
        )
        if rank < 2:
            return None
        some = np.unique(np.linspace(0, self.n_samples - 1, rank).astype(np.intp))
        columns = self.backend.zeros((self.n_samples, len(some)))
        for strip in row_strips(self.n_samples, 2**24 // len(some)):
            for m, block in self.stack.placed_blocks(active_kernels(self.factors), strip, some):
                gates = self.factors[:, m] if self.factors.ndim == 2 else None
                factor = self.factors[m] if gates is None else np.outer(gates[strip], gates[some])
                columns[strip] += self.backend.asarray(factor) * block
        among = columns[self.backend.index(some)]
        with suppress(np.linalg.LinAlgError):
            return (
                columns
                @ Cholesky(among, rounding_jitter(self.dtype, among.diagonal()), 0.01)
                .inverse_root()
                .T
            )
        return None

    def diagonal(self) -> Array:
        each = self.stack.diagonals
        values = (
            (self.factors.T**2 * each).sum(0) if self.factors.ndim == 2 else self.factors @ each
        )
        return np.asarray(values if self.shift is None else values + self.shift)

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        if len(rows) <= self.block_samples:
            return super().solve_free(rows, ridge, right)
        # Too many for a block: some of them, evenly spread, represent all.
        some = np.unique(np.linspace(0, len(rows) - 1, self.block_samples).astype(np.intp))
        answer = np.zeros_like(right)
        answer[some] = super().solve_free(rows[some], ridge[some], right[some]) * (
            len(rows) / len(some)
        )
        return answer


def active_kernels(factors: Array) -> Indices:
    """Return the kernels with a weight, of shape (P,), or with a gate that is not zero, of shape
    (n, P)."""
    return np.flatnonzero(np.atleast_2d(factors).any(axis=0))


def as_gram(K: ArrayOrTensor) -> Gram:
    """Return a kernel as it is, or an array of shape (n, n) as one."""
    if isinstance(K, Gram):
        return K
    if not isinstance(K, np.ndarray) and not is_tensor(K):
        raise TypeError(
            f"K is of type {type(K).__name__}: give a Gram or an array of shape (n, n)."
        )
    return DenseGram(K)
