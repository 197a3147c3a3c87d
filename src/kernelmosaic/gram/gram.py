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
from kernelmosaic.gram.tuning import (
    BLOCK_OF_DENSE,
    COPIED_SAMPLES,
    LEAST_RANK,
    LOW_RANK_GROWTH,
    LOW_RANK_STRIP_ENTRIES,
    UNUSED_DEVICE_BYTES,
)

#: A function of row numbers and their coefficients that returns Kβ in double precision.
ExactProduct = Callable[[Indices, Array], Array]


class ClassGram(ABC):
    """The kernels of a machine with one output per class: a matrix K_c for each class c.

    Every K_c is symmetric and positive semi-definite. Solvers of joint machines use these
    operations and no others. A `Gram` is the case in which all classes have the same matrix.

    Attributes
    ----------
    n_samples : int
        n.
    backend : Backend
        Where the numbers are.
    dtype : dtype
        Precision of the entries.
    block_samples : int
        The most samples whose block may be formed.
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
        """Return K_c β_c of every column β_c of β, an array of the shape of β.

        With `exact`, as a certificate requires, entries are computed in double precision even if
        they are stored in single.
        """

    @abstractmethod
    def block(self, rows: RowIndex) -> ArrayOrTensor:
        """Return a copy of the entries between these q samples, an array of the backend.

        Its shape is (classes, q, q), or (q, q) for a `Gram`.
        """

    @abstractmethod
    def diagonal(self) -> Array:
        """Return the diagonals, an array of NumPy of shape (n, classes), or (n,) for a `Gram`."""


class Gram(ClassGram):
    """One symmetric positive semi-definite matrix K of n samples, the same for every output.

    This is all that a solver reads of a kernel, whatever its form; solvers of kernels in factors
    read a `FactoredGram`. Row numbers are arrays of NumPy or of the backend. Vectors of n numbers
    are returned in the library they are given in: arrays for arrays, tensors for tensors.

    Attributes
    ----------
    factored : bool
        Whether K = Z Zᵀ + diag e with known Z: the kernel is then a `FactoredGram`.
    shift : ndarray of shape (n,) or None
        The numbers e ≥ 0 that are added to the diagonal of a kernel that is not stored; None for
        zeros.
    has_cheap_products : bool
        Whether a product costs far less than reading n² entries: linear systems are then solved by
        products.
    """

    factored: bool = False
    has_cheap_products: bool = False
    shift: Array | None = None
    # The entries of a kernel in factors, if a solver has asked for them.
    _written: Any = None

    def take(self, rows: RowIndex) -> Gram:
        """Return the kernel of these samples, with entries or features stored if they fit."""
        return DenseGram(self.block(rows))

    def products_of(self, part: Gram, rows: Indices, beta: Array) -> Array:
        """Return Kβ for a β that is zero except at these rows.

        Parameters
        ----------
        part : Gram
            The kernel that `take` returned for these rows.
        rows : ndarray of int
            The rows.
        beta : ndarray
            The coefficients of these rows.
        """
        all_beta = np.zeros(self.n_samples)
        all_beta[rows] = beta
        return np.asarray(self.products(all_beta))

    def add_diagonal(self, values: Array) -> Gram:
        """Return the kernel with these numbers added to its diagonal.

        A stored matrix is changed, and returned.
        """
        shifted = copy(self)
        shifted._set_shift(values if self.shift is None else self.shift + values)
        return shifted

    def _set_shift(self, shift: Array) -> None:
        """Change what is added to the diagonal; written entries had another diagonal."""
        self.shift = shift
        self._written = None

    def low_rank(self) -> ArrayOrTensor:
        """Return Z with K ≈ ZZᵀ for a kernel that is not stored, if it fits the memory; else None.

        It is None for all other kernels.
        """
        return None

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        """Return roughly (K_rows + diag ridge)⁻¹ right, of shape (n_rows, k).

        K_rows is the block of these samples; `right` has the shape (n_rows, k).
        """
        A = self.block(self.backend.index(rows))
        placed_ridge = self.backend.asarray(ridge)
        placed_right = self.backend.asarray(right)
        solution = self.backend.to_numpy(solve_block(A, placed_ridge, placed_right))
        return solution.astype(np.float64, copy=False)

    def solve_by_products(
        self, ridge: Array, right: Array, options: BlockOptions, sums: bool = False
    ) -> Array:
        """Return (K + diag ridge)⁻¹ right, of shape (n, k), by `conjugate_gradients`."""

        def times(p: Array) -> Array:
            return np.asarray(self.products(p) + ridge[:, np.newaxis] * p)

        preconditioner = self.preconditioner(ridge)
        return np.asarray(conjugate_gradients(times, preconditioner, right, options, sums))

    def preconditioner(self, ridge: Array) -> Callable[[Array], Array]:
        """Return a function that multiplies columns by roughly (K + diag ridge)⁻¹.

        Here it is the inverse of the diagonal.
        """
        diagonal = (self.diagonal() + ridge)[:, np.newaxis]
        return lambda r: r / diagonal

    def _shifted(self, diagonal: Array) -> Array:
        """Return a diagonal without the shift, plus the shift."""
        return np.asarray(diagonal if self.shift is None else diagonal + self.shift)

    def host_rows(self, rows: RowIndex) -> Indices:
        """Return row numbers as an array of NumPy."""
        return rows if isinstance(rows, np.ndarray) else self.backend.to_numpy(rows)


class DenseGram(Gram):
    """A matrix that is stored, on the host or on a device.

    Parameters
    ----------
    matrix : array of shape (n, n)
        The entries.
    exact : callable, optional
        A function that multiplies the kernel, computed anew in double precision, by a sparse β of
        one or several columns. By default the stored entries are multiplied.
    """

    #: The most samples whose block is copied to the host.
    block_samples = BLOCK_OF_DENSE
    #: The most samples that `take` copies out of the matrix.
    copied = COPIED_SAMPLES

    def __init__(self, matrix: Any, exact: ExactProduct | None = None) -> None:
        self.matrix = matrix
        self.exact = exact
        self.backend = backend_of(matrix)
        self.n_samples = int(matrix.shape[0])
        self.dtype = self.backend.dtype(matrix)

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> AnyArray:
        array = self.backend.to_numpy(self.matrix)
        if copy is False:
            return np.asarray(array, dtype=dtype)
        # A reader of a copy cannot change the matrix by accident.
        return np.array(array, dtype=dtype)

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return Kβ; with `exact`, from entries in double precision if there are any."""
        is_array = isinstance(beta, np.ndarray)
        if exact and self.exact is not None:
            host_beta = beta if is_array else self.backend.to_numpy(beta)
            support = nonzero_rows(host_beta)
            values = self.exact(support, host_beta[support])
            return values if is_array else self.backend.asarray(values)
        coefficients = self.backend.asarray(beta)
        support = nonzero_rows(coefficients)
        values = multiply_rows(self.matrix, support, coefficients[support])
        return as_input(beta, values, self.backend)

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        rows = self.backend.index(rows)
        return self.backend.take_block(self.matrix, rows, rows)

    def take(self, rows: RowIndex) -> Gram:
        """Return the kernel of these samples: a copy of their block, or `SomeRows` for many."""
        if len(rows) > self.copied:
            return SomeRows(self, self.backend.index(rows))
        return super().take(rows)

    def diagonal(self) -> Array:
        return self.backend.to_numpy(self.matrix.diagonal()).astype(np.float64)

    def add_diagonal(self, values: Array) -> DenseGram:
        """Change the matrix by these numbers on its diagonal, and return its kernel."""
        diagonal = self.backend.diagonal_view(self.matrix)
        diagonal += self.backend.asarray(values, self.dtype)
        if self.exact is None:
            return self
        exact_without_values = self.exact

        def exact_with_values(support: Indices, beta: Array) -> Array:
            out = exact_without_values(support, beta)
            out[support] += (values[support] * beta.T).T
            return out

        return DenseGram(self.matrix, exact_with_values)


class SomeRows(Gram):
    """The part of a stored matrix that belongs to many samples, for products.

    Products are in the precision of the matrix. On the host each product reads the whole matrix,
    which is faster than a copy of the part. A device makes a copy, since it reads one many times
    faster than it makes it, if the part has at most half of the entries and there is room.

    Parameters
    ----------
    gram : DenseGram
        The whole matrix.
    rows : array of int
        The row numbers of the part, an index of the backend.
    """

    block_samples = DenseGram.block_samples

    def __init__(self, gram: DenseGram, rows: RowIndex) -> None:
        self.gram = gram
        self.which = rows
        self.n_samples = len(rows)
        self.backend = gram.backend
        self.dtype = gram.dtype
        self.copy: Any = None
        copy_bytes = self.n_samples**2 * self.dtype.itemsize
        is_small = 2 * self.n_samples**2 <= gram.n_samples**2
        if self.backend is NUMPY or not is_small:
            return
        # Room is left for a copy of the same size during a pass, and for free memory that is in
        # pieces.
        if 2 * copy_bytes + UNUSED_DEVICE_BYTES <= self.backend.free_bytes():
            with suppress(RuntimeError):
                self.copy = gram.block(rows)

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return the product of the part with β."""
        coefficients = self.backend.asarray(beta, self.dtype)
        if self.copy is not None:
            values = self.copy @ coefficients
        else:
            shape = (self.gram.n_samples, *beta.shape[1:])
            all_coefficients = self.backend.zeros(shape, self.dtype)
            all_coefficients[self.which] = coefficients
            values = (self.gram.matrix @ all_coefficients)[self.which]
        return as_input(beta, self.backend.astype(values, np.float64), self.backend)

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        return self.gram.block(self.which[self.backend.index(rows)])

    def take(self, rows: RowIndex) -> Gram:
        return self.gram.take(self.which[self.backend.index(rows)])

    def diagonal(self) -> Array:
        return self.backend.to_numpy(self.gram.matrix.diagonal()[self.which]).astype(np.float64)

    def add_diagonal(self, values: Array) -> Gram:
        """Return a copy of the part with these numbers added to its diagonal."""
        return DenseGram(self.block(np.arange(self.n_samples))).add_diagonal(values)


class OnDemandGram(Gram):
    """K = Σ_m d_m K_m, or Σ_m g_m g_mᵀ ∘ K_m with gates, for n² entries that do not fit the memory.

    Products compute the entries that they read and keep none of them. Rows kept from one round of a
    working-set solver to the next would take the memory of the working sets, and larger working
    sets mean fewer rounds.

    Parameters
    ----------
    stack : ComputedStack
        The stack that computes the kernels.
    factors : ndarray of shape (P,) or (n, P)
        The weights d, or the gates g.
    """

    def __init__(self, stack: Any, factors: Array) -> None:
        self.stack = stack
        self.factors = factors
        self.n_samples = stack.n_samples
        self.backend = stack.backend
        self.dtype = stack.dtype
        self.block_samples = stack.options.block_samples(self.n_samples, stack.budget, self.dtype)

    @property
    def _has_gates(self) -> bool:
        """Whether the factors are gates."""
        return self.factors.ndim == 2

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return Kβ, computed from the columns of the support of β."""
        is_array = isinstance(beta, np.ndarray)
        host_beta = beta if is_array else self.backend.to_numpy(beta)
        support = nonzero_rows(host_beta)
        stack = self.stack.exact if exact else self.stack
        values = stack.combined_products(support, host_beta[support], self.factors)
        if self.shift is not None:
            values[support] += (self.shift[support] * host_beta[support].T).T
        return values if is_array else self.backend.asarray(values)

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        """Return the entries between some samples, an array of the backend.

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
        """Return the kernel of these samples, as a matrix if it fits the budget."""
        rows = self.host_rows(rows)
        row_stack = self.stack.take(rows)
        row_factors = self.factors[rows] if self._has_gates else self.factors
        gram: Gram
        if len(rows) > self.block_samples:
            gram = OnDemandGram(row_stack, row_factors)
        else:
            gram = row_stack.combine(row_factors)
        return gram if self.shift is None else gram.add_diagonal(self.shift[rows])

    def low_rank(self) -> ArrayOrTensor:
        """Return Nyström's factors Z = K(X, L) K(L, L)^(−½), an array of the backend, or None.

        The landmarks L are evenly spread samples. It is None if the budget has no room for the
        factors, or K(L, L) is not positive definite up to rounding.
        """
        options = self.stack.options
        affordable_rank = int(options.rank_share * self.stack.budget / 8 / self.n_samples)
        rank = min(options.most_rank, affordable_rank)
        if rank < LEAST_RANK:
            return None
        landmarks = np.unique(np.linspace(0, self.n_samples - 1, rank).astype(np.intp))
        active = active_kernels(self.factors)
        columns = self.backend.zeros((self.n_samples, len(landmarks)))
        for strip in row_strips(self.n_samples, LOW_RANK_STRIP_ENTRIES // len(landmarks)):
            for m, block in self.stack.placed_blocks(active, strip, landmarks):
                if self._has_gates:
                    gates = self.factors[:, m]
                    factor = np.outer(gates[strip], gates[landmarks])
                else:
                    factor = self.factors[m]
                columns[strip] += self.backend.asarray(factor) * block
        among_landmarks = columns[self.backend.index(landmarks)]
        jitter = rounding_jitter(self.dtype, among_landmarks.diagonal())
        with suppress(np.linalg.LinAlgError):
            cholesky = Cholesky(among_landmarks, jitter, LOW_RANK_GROWTH)
            return columns @ cholesky.inverse_root().T
        return None

    def diagonal(self) -> Array:
        """Return the diagonal of K, of shape (n,)."""
        diagonals = self.stack.diagonals
        if self._has_gates:
            values = (self.factors.T**2 * diagonals).sum(0)
        else:
            values = self.factors @ diagonals
        return self._shifted(values)

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        """Return roughly (K_rows + diag ridge)⁻¹ right for the block of these samples."""
        if len(rows) <= self.block_samples:
            return super().solve_free(rows, ridge, right)
        # Too many samples for a block: the system is solved for some of them, evenly spread, and
        # scaled up to the number of all.
        chosen = np.unique(np.linspace(0, len(rows) - 1, self.block_samples).astype(np.intp))
        solution = np.zeros_like(right)
        chosen_solution = super().solve_free(rows[chosen], ridge[chosen], right[chosen])
        solution[chosen] = chosen_solution * (len(rows) / len(chosen))
        return solution


def active_kernels(factors: Array) -> Indices:
    """Return the kernels whose weight, of shape (P,), or gates, of shape (n, P), are not zero."""
    return np.flatnonzero(np.atleast_2d(factors).any(axis=0))


def as_input(argument: ArrayOrTensor, values: ArrayOrTensor, backend: Backend) -> ArrayOrTensor:
    """Return values of the backend in the library of an argument: arrays for arrays."""
    return backend.to_numpy(values) if isinstance(argument, np.ndarray) else values


def as_gram(K: ArrayOrTensor) -> Gram:
    """Return a `Gram` as it is, and an array of shape (n, n) as a DenseGram."""
    if isinstance(K, Gram):
        return K
    if not isinstance(K, np.ndarray) and not is_tensor(K):
        raise TypeError(
            f"K is of type {type(K).__name__}: give a Gram or an array of shape (n, n)."
        )
    return DenseGram(K)
