"""The stack: P Gram matrices of one training set, stored or recomputed in blocks under a memory budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet, Views
from kernelmosaic.gram.threads import one_blas_thread, run_threads
from kernelmosaic.kernels.base import Block

Rows = slice | NDArray[np.intp]
#: Bytes of a block that is worked on at once: it stays in the second-level cache.
_CACHE_BYTES = 2**19
#: Above this share of support samples a product reads whole rows.
_DENSE_SHARE = 0.3


class GramStack(ABC):
    """P Gram matrices K_1 … K_P of the same n samples, wherever they live.

    Learners see only these operations: none of them reads a kernel whose weight is zero, and products with β read only
    the columns of the samples where β is not.
    """

    n_samples: int
    n_kernels: int
    dtype: np.dtype[Any]
    #: Whether combined kernels are arrays in this process; else they stay where, and in the form in which, they are.
    writes_matrices: bool = True
    #: The number of features of every kernel; None where the kernels are matrices.
    widths: NDArray[np.intp] | None = None

    @abstractmethod
    def blocks(self, kernels: Sequence[int] | NDArray[Any], rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        """Yield (m, K_m[rows][:, columns]) for the kernels asked for; the blocks must not be changed."""

    @abstractmethod
    def row_strips(self, n_columns: int) -> Iterator[slice]:
        """Cut the samples into strips whose blocks of that many columns fit the stack's working memory."""

    def combine(self, weights: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m weights_m K_m, a `Gram`; an earlier one given as `out` may be overwritten."""
        active = np.flatnonzero(weights)
        K = self._written(out)
        for strip in self.row_strips(self.n_samples):
            # The matrices are symmetric: read the lower half, mirror it into the upper.
            part = K[strip, : strip.stop]
            part[...] = 0.0
            for m, block in self.blocks(active, strip, slice(0, strip.stop)):
                part += self.dtype.type(weights[m]) * block
            _mirror(K, strip)
        return DenseGram(K)

    def _written(self, out: Any) -> Block:
        """Return the matrix of an earlier kernel to write to, or a new one."""
        return np.empty((self.n_samples,) * 2, dtype=self.dtype) if out is None else out.matrix

    def combine_classes(self, weights: NDArray[Any], out: Block) -> Block:
        """Fill out[c] with Σ_m weights[c, m] K_m for weights of shape (classes, P), in out's precision."""
        for own, K in zip(weights, out, strict=True):
            self.combine(own, out=DenseGram(K))
        return out

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m g_m g_mᵀ ∘ K_m for the gates of shape (n, P), a `Gram`."""
        active = np.flatnonzero(np.any(gates != 0, axis=0))
        gates = np.asarray(gates, dtype=self.dtype)
        K = self._written(out)
        for strip in self.row_strips(self.n_samples):
            part = K[strip, : strip.stop]
            part[...] = 0.0
            for m, block in self.blocks(active, strip, slice(0, strip.stop)):
                part += gates[strip, m, np.newaxis] * block * gates[: strip.stop, m]
            _mirror(K, strip)
        return DenseGram(K)

    @property
    def part_samples(self) -> int:
        """The most samples a part may have without taking more memory than the combined kernel will."""
        return int(self.n_samples / np.sqrt(self.n_kernels + 1))

    def part(self, rows: NDArray[np.intp]) -> GramStack:
        """Return the stack of some of the samples."""
        matrices = np.empty((self.n_kernels, len(rows), len(rows)), dtype=self.dtype)
        for m, block in self.blocks(range(self.n_kernels), rows, rows):
            matrices[m] = block
        return StoredStack(matrices)

    def row_block(self, m: int, rows: Rows) -> Block:
        """Return K_m[rows]."""
        return next(self.blocks([m], rows, slice(0, self.n_samples)))[1]

    def products(
        self,
        beta: NDArray[Any],
        rows: NDArray[np.intp] | None = None,
        kernels: Sequence[int] | NDArray[Any] | None = None,
    ) -> NDArray[np.float64]:
        """Return K_m β at the given rows for every kernel: (P, n_rows), and the columns of β where it has any."""
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        at = np.arange(self.n_samples) if rows is None else rows
        out = np.zeros((self.n_kernels, len(at), *beta.shape[1:]))
        if len(support) == 0:
            return out
        weights = beta[support].astype(np.float64)
        for strip in self.row_strips(len(support)):
            inside = at[strip.start : strip.stop]
            if len(inside) == 0:
                break
            for m, block in self.blocks(range(self.n_kernels) if kernels is None else kernels, inside, support):
                out[m, strip.start : strip.start + len(inside)] = block @ weights.astype(block.dtype, copy=False)
        return out

    def gated_products(self, beta: NDArray[Any], gates: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return K_m (g_m ∘ β) at the given rows for every kernel and gates of shape (n, P), formed as `products`."""
        # Transposed, so that a vector and one column per class are written alike.
        each = [self.products((gates[:, m] * beta.T).T, rows, [m])[m] for m in range(self.n_kernels)]
        return np.stack(each)

    def quadratic_forms(
        self, beta: NDArray[Any], kernels: Sequence[int] | NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Return ½ Σ_c β_cᵀ K_m β_c for every kernel, reading only rows and columns of the support."""
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        values = self.products(beta, support, kernels)
        return 0.5 * np.asarray(np.einsum("mi,i->m" if beta.ndim == 1 else "mic,ic->m", values, beta[support]))


class StoredStack(GramStack):
    """All matrices in memory, in one array of shape (P, n, n)."""

    def __init__(self, matrices: NDArray[Any]) -> None:
        self.matrices = matrices
        self.n_kernels, self.n_samples, _ = matrices.shape
        self.dtype = matrices.dtype

    @classmethod
    def fill(cls, kernel_set: KernelSet, views: Views, dtype: np.dtype[Any]) -> StoredStack:
        """Compute the matrices strip by strip, so that nothing but the stack itself is ever large."""
        from kernelmosaic.gram._numba_stack import mirror_lower

        n = views[0].shape[0]
        matrices = np.empty((len(kernel_set), n, n), dtype=dtype)
        # Tall strips keep the matrix products busy; a sixteenth of one matrix is still nothing beside the stack.
        height = max(2 * _CACHE_BYTES, n * n * dtype.itemsize // 16) // (8 * n)
        samples = kernel_set.samples(views)
        for strip in _strips(n, max(1, height)):
            rows, below = samples.take(strip), samples.take(slice(0, strip.stop))
            for m, block in kernel_set.blocks(rows, below, range(len(kernel_set)), dtype):
                matrices[m, strip, : strip.stop] = block
        run_threads(lambda K: mirror_lower(K, 0, n), matrices, matrices.nbytes)
        return cls(matrices)

    def blocks(self, kernels: Sequence[int] | NDArray[Any], rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        for m in kernels:
            K = self.matrices[m]
            if isinstance(rows, slice) or isinstance(columns, slice):
                yield m, K[rows, columns]
            else:
                yield m, K[np.ix_(rows, columns)]

    def combine(self, weights: NDArray[Any], out: Any = None) -> DenseGram:
        from kernelmosaic.gram._numba_stack import add_lower, mirror_lower

        active = np.flatnonzero(weights)
        factors = np.asarray(weights, dtype=self.dtype)[active]
        K = self._written(out)

        def fill(rows: slice) -> None:
            add_lower(self.matrices, active, factors, K, rows.start, rows.stop)
            mirror_lower(K, rows.start, rows.stop)

        run_threads(fill, _triangle_strips(self.n_samples, 4), self.matrices.nbytes)
        return DenseGram(K)

    def combine_classes(self, weights: NDArray[Any], out: Block) -> Block:
        from kernelmosaic.gram._numba_stack import combine_rows

        counts = np.count_nonzero(weights, axis=1)
        active = np.argsort(weights == 0, axis=1, kind="stable")
        factors = np.take_along_axis(weights, active, axis=1).astype(out.dtype)

        def fill(rows: slice) -> None:
            combine_rows(self.matrices, active, counts, factors, out, rows.start, rows.stop)

        run_threads(fill, _strips(self.n_samples, -(-self.n_samples // 4)), self.matrices.nbytes + out.nbytes)
        return out

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> DenseGram:
        from kernelmosaic.gram._numba_stack import add_gated_rows

        active = np.flatnonzero(np.any(gates != 0, axis=0))
        factors = np.ascontiguousarray(gates.T, dtype=self.dtype)
        # Gates below rounding are no gates, and reading denormal numbers is slow.
        factors[np.abs(factors) < np.finfo(self.dtype).eps ** 2] = 0.0
        K = self._written(out)

        def fill(rows: slice) -> None:
            add_gated_rows(self.matrices, active, factors, K, rows.start, rows.stop)

        run_threads(fill, _strips(self.n_samples, -(-self.n_samples // 4)), self.matrices.nbytes)
        return DenseGram(K)

    def products(
        self,
        beta: NDArray[Any],
        rows: NDArray[np.intp] | None = None,
        kernels: Sequence[int] | NDArray[Any] | None = None,
    ) -> NDArray[np.float64]:
        if beta.ndim > 1:
            if np.count_nonzero(np.any(beta != 0, axis=1)) <= _DENSE_SHARE * self.n_samples:
                return super().products(beta, rows, kernels)
            return self._column_products(beta.astype(self.dtype, copy=False), rows, kernels)
        from kernelmosaic.gram._numba_stack import block_products, symmetric_product

        support = np.flatnonzero(beta)
        at = np.arange(self.n_samples) if rows is None else rows
        out = np.zeros((self.n_kernels, len(at)))
        # Reading half of a matrix in order is faster than picking most of its entries one by one.
        whole = len(support) > _DENSE_SHARE * self.n_samples
        coefficients = (beta if whole else beta[support]).astype(self.dtype)

        def multiply(m: int) -> None:
            if whole:
                values = np.empty(self.n_samples, dtype=np.float64)
                symmetric_product(self.matrices[m], coefficients, values)
                out[m] = values[at]
            else:
                block_products(self.matrices[m], at, support, coefficients, out[m])

        run_threads(multiply, range(self.n_kernels) if kernels is None else kernels, self.matrices.nbytes)
        return out

    def _column_products(
        self, beta: NDArray[Any], rows: NDArray[np.intp] | None, kernels: Sequence[int] | NDArray[Any] | None
    ) -> NDArray[np.float64]:
        """Whole matrices times β: faster than copying most of them out first."""
        at = slice(None) if rows is None else rows
        columns = np.ascontiguousarray(beta.T)
        out = np.zeros((self.n_kernels, self.n_samples if rows is None else len(rows), beta.shape[1]))

        def multiply(m: int) -> None:
            # The matrices are symmetric, and the few long rows of βᵀ suit the product better than columns.
            out[m] = (columns @ self.matrices[m]).T[at]

        with one_blas_thread():
            run_threads(multiply, range(self.n_kernels) if kernels is None else kernels, self.matrices.nbytes)
        return out

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return _strips(self.n_samples, max(1, _CACHE_BYTES // (self.dtype.itemsize * max(n_columns, 1))))


class ComputedStack(GramStack):
    """Nothing stored but the samples: every block is computed when it is asked for."""

    def __init__(self, kernel_set: KernelSet, views: Views, dtype: np.dtype[Any], working_bytes: int) -> None:
        self.kernel_set = kernel_set
        self.samples = kernel_set.samples(views)
        self.dtype = dtype
        self.n_samples = views[0].shape[0]
        self.n_kernels = len(kernel_set)
        self.working_bytes = working_bytes

    def blocks(self, kernels: Sequence[int] | NDArray[Any], rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        left, right = self.samples.take(rows), self.samples.take(columns)
        for m, block in self.kernel_set.blocks(left, right, kernels, self.dtype):
            yield m, block.astype(self.dtype, copy=False)

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        # The statistic, the kernel made of it and one temporary live at once, in double precision.
        return _strips(self.n_samples, max(1, self.working_bytes // (3 * 8 * max(n_columns, 1))))


def _mirror(K: Block, strip: slice) -> None:
    """Copy the lower triangle of a strip of rows into the upper, its own square included."""
    K[: strip.start, strip] = K[strip, : strip.start].T
    square = K[strip, strip]
    upper = np.triu_indices_from(square, k=1)
    square[upper] = square.T[upper]


def _triangle_strips(n: int, count: int) -> list[slice]:
    """Cut the rows so that every strip of the lower triangle holds about as many entries, the longest rows first."""
    edges = np.unique(np.round(n * np.sqrt(np.linspace(0.0, 1.0, count + 1))).astype(int))
    return [slice(int(a), int(b)) for a, b in pairwise(edges)][::-1]


def _strips(n: int, height: int) -> Iterator[slice]:
    for start in range(0, n, height):
        yield slice(start, min(start + height, n))
