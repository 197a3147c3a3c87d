"""The stack: P Gram matrices of one training set, on the host or on a device.

There are two kinds of stacks, each with one implementation of every operation:

- a `MatrixStack` reads blocks of matrices, which `placed_blocks` yields: a `StoredStack` from
  memory, a `ComputedStack` from the samples. Where there are compiled passes, they replace the
  blocks: those of Numba over matrices stored on the host, those of CUDA over Gaussians computed on
  a device;
- a `FeatureStack` reads rows of features, which `placed_features` yields: `StoredFeatures` from
  memory, `ComputedFeatures` from the samples, and `DaskFeatures` from the workers of a cluster.
  The last has its own passes, because a trip to the workers costs more than arithmetic.

`WithIdentity` (where C is learned) adds one kernel to those of another stack.

`take` returns the stack of some samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices
from kernelmosaic.backend import (
    NUMPY,
    Backend,
    backend_of,
    backend_on,
    default_budget,
    format_bytes,
    one_blas_thread,
    row_strips,
    run_threads,
)
from kernelmosaic.gram.gram import ClassGram, DenseGram, Gram, OnDemandGram, active_kernels
from kernelmosaic.gram.kernel_set import (
    Distances,
    Kernels,
    KernelSet,
    PlacedSamples,
    Views,
    take_rows,
)
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.row_blocks import Rows
from kernelmosaic.gram.tuning import (
    ARRAYS_PER_BLOCK,
    CLASS_BLOCK_NUMBERS,
    COLUMN_TILE_DIVISOR,
    DOUBLE_SAMPLES,
    LEAST_WORKING_BYTES,
    PART_SHARE_OF_BUDGET,
    SQUARE_MULTIPLE,
    STRIP_BLOCKS_OF_PRODUCTS,
    TALL_STRIP_BLOCKS,
    TALL_STRIP_DIVISOR,
    WORKING_BUDGET_DIVISOR,
)
from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.numeric import Gaussian


class GramStack(ABC):
    """P Gram matrices K_1 … K_P of the same n samples, on the host or on a device.

    Learners use only these operations. None of them reads a kernel whose weight is zero, and
    products with β read only the columns of samples where β is not zero. They take and return
    arrays of NumPy, except for combined kernels.

    Attributes
    ----------
    n_samples, n_kernels : int
        n and P.
    dtype : dtype
        The precision of the matrices.
    backend : Backend
        Where the matrices are.
    writes_matrices : bool
        Whether combined kernels are arrays of NumPy. If not, they stay on the device, in features,
        or are not stored.
    """

    n_samples: int
    n_kernels: int
    dtype: np.dtype[Any]
    backend: Backend = NUMPY
    writes_matrices: bool = True
    #: The number of features of every kernel; None where the kernels are matrices.
    widths: Indices | None = None
    #: The matrices, of shape (P, n, n), where all of them are stored; else None.
    matrices: Any = None
    #: The features of every kernel, a list of arrays of shape (n, width), where all of them are
    #: stored; else None.
    arrays: Any = None
    #: Whether all kernels are stored, as matrices or in features. If not, a kernel is computed
    #: whenever it is read, or is on other machines.
    is_stored: bool = False
    #: Bytes of the matrices, or features, that are stored.
    nbytes: int = 0
    #: Whether combined kernels are stored, as matrices or in features. If not, their entries are
    #: computed whenever they are read.
    stores_combined: bool = True
    #: Whether entries are in single precision here, and can be computed in double precision.
    has_exact: bool = False
    #: The stack that computes entries in double precision; None if there is none.
    exact: Any = None
    #: How the kernels are stored, and why, as a sentence; printed with `verbose`.
    form: str = ""
    #: Whether the combined kernel can be factorised, as a matrix or in features. If not, only
    #: products with it are known.
    can_be_factorised: bool = True

    @abstractmethod
    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels; the blocks must not be changed."""

    @abstractmethod
    def row_strips(self, n_columns: int) -> Iterator[slice]:
        """Yield strips of the samples whose blocks of `n_columns` columns fit the memory for work.

        That is the memory for the blocks that are worked on at once.
        """

    @abstractmethod
    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return the combined kernel Σ_m weights_m K_m, a `Gram`.

        Parameters
        ----------
        weights : ndarray of shape (P,) or (n, P)
            Weights; or gates g, for which Σ_m g_m g_mᵀ ∘ K_m is returned.
        out : Gram, optional
            An earlier combined kernel, which may be overwritten.
        """

    def support_sums(self, kernel_set: Any, samples: Any, beta: Array) -> Any:
        """Return the sums over support samples in a form of this stack's own, or None.

        None means that a prediction computes the entries of the kernels. The parameters are those
        of `engine.expansion.SupportSums`.
        """
        return None

    def combine_classes(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return the combined kernels of all classes, for weights of shape (classes, P).

        Where combined kernels are arrays of NumPy, `out[c]` is filled with Σ_m weights[c, m] K_m,
        in the precision of `out`. Elsewhere nothing is stored: one matrix per class would fill a
        device.
        """
        if not self.writes_matrices:
            return StackClasses(self, np.array(weights, dtype=np.float64))
        for class_weights, K in zip(weights, out, strict=True):
            self.combine(class_weights, out=DenseGram(K))
        return out

    @abstractmethod
    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        """Return K_m β at these rows for every kernel, of shape (P, n_rows) or (P, n_rows, k).

        Parameters
        ----------
        beta : ndarray of shape (n,) or (n, k)
            Coefficients.
        rows : ndarray, optional
            Row numbers; by default all.
        kernels : sequence of int, optional
            The kernels that are multiplied, the products of others are zero; by default all.
        """

    def exact_products(self, beta: AnyArray, rows: Indices) -> Array:
        """Return the `products` of entries in double precision, even if single ones are stored."""
        return self.products(beta, rows)

    def exact_gated_products(self, beta: AnyArray, gates: AnyArray) -> Array:
        """Return (Σ_m g_m g_mᵀ ∘ K_m) β from entries in double precision.

        The gates g have the shape (n, P).
        """
        return np.asarray(self.combine(gates).products(beta, exact=True))

    @property
    def part_samples(self) -> int:
        """The most samples that `take` should be given.

        It is 0 where a stack of some samples is not possible, or would not be faster.
        """
        return 0

    def take(self, rows: Indices, stored: bool = False) -> GramStack:
        """Return the stack of some samples, at most `part_samples`.

        With `stored`, its matrices are stored if they are on the host.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.take: part_samples is 0, these kernels are not cut."
        )

    def kernel_numbers(self, kernels: Kernels | None) -> list[int]:
        """Return the numbers of these kernels as a list; None means all."""
        if kernels is None:
            return list(range(self.n_kernels))
        return [int(m) for m in kernels]

    def row_count(self, rows: Indices | None) -> int:
        """Return the number of these rows; None means all."""
        return self.n_samples if rows is None else len(rows)

    def row_block(self, m: int, rows: Rows) -> Block:
        """Return K_m[rows]."""
        return next(self.blocks([m], rows, slice(0, self.n_samples)))[1]

    def gated_products(self, beta: AnyArray, gates: AnyArray, rows: Indices) -> Array:
        """Return K_m (g_m ∘ β) at these rows for every kernel, of the shape that `products` has.

        The gates have the shape (n, P).
        """
        products = []
        for m in range(self.n_kernels):
            # Transposed, so that one expression serves a vector and one column per class.
            gated = (gates[:, m] * beta.T).T
            products.append(self.products(gated, rows, [m])[m])
        return np.stack(products)

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None) -> Array:
        """Return ½ Σ_c β_cᵀ K_m β_c for every kernel, of shape (P,).

        Only the rows and columns of the support of β are read.
        """
        support = nonzero_rows(beta)
        values = self.products(beta, support, kernels)
        subscripts = "mi,i->m" if beta.ndim == 1 else "mic,ic->m"
        return 0.5 * np.asarray(np.einsum(subscripts, values, beta[support]))


class MatrixStack(GramStack):
    """Kernels that are read in blocks, which subclasses read from memory or compute.

    Attributes
    ----------
    entries : int
        Most entries of a block that is worked on at once. Blocks are whole rows on the host, and
        squares on a device, whose cache is small.
    options : StackOptions
        Sizes that the stack works with.
    """

    widths: None = None
    entries: int
    options: StackOptions

    @property
    def _exact_source(self) -> MatrixStack:
        """The stack with entries in double precision, or this one if there is none."""
        return self.exact if self.has_exact else self

    @property
    def _sum_dtype(self) -> Any:
        """The precision of sums: a device sums in double precision, which takes it no longer."""
        return self.dtype if self.backend is NUMPY else np.float64

    def exact_products(self, beta: AnyArray, rows: Indices) -> Array:
        """Return the `products` of entries in double precision."""
        return np.asarray(self._exact_source.products(beta, rows))

    def exact_gated_products(self, beta: AnyArray, gates: AnyArray) -> Array:
        """Return (Σ_m g_m g_mᵀ ∘ K_m) β from entries in double precision."""
        if not self.has_exact:
            return super().exact_gated_products(beta, gates)
        support = nonzero_rows(beta)
        exact: ComputedStack = self.exact
        return exact.combined_products(support, beta[support], np.asarray(gates, dtype=np.float64))

    @property
    def part_samples(self) -> int:
        """The most samples that `take` should be given."""
        # The matrices of a part, and one combined kernel, take no more memory than the combined
        # kernel of all samples.
        return int(self.n_samples / np.sqrt(self.n_kernels + 1))

    @abstractmethod
    def take(self, rows: Indices, stored: bool = False) -> MatrixStack: ...

    @abstractmethod
    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels, as arrays of the backend.

        The blocks must not be changed.
        """

    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels, arrays of NumPy."""
        for m, block in self.placed_blocks(kernels, rows, columns):
            yield m, self.backend.to_numpy(block)

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        """Yield strips of the samples whose blocks have at most `entries` entries."""
        return row_strips(self.n_samples, self.entries // max(n_columns, 1))

    def pieces(
        self, n_rows: int, n_columns: int, lower: bool = False
    ) -> Iterator[tuple[slice, slice]]:
        """Yield (rows, columns) of the pieces of a block that are worked on at once.

        With `lower`, the block is square, and the pieces cover its lower triangle.
        """
        side = n_columns if self.backend is NUMPY else int(np.sqrt(self.entries))
        height = self.entries // max(side, 1)
        for rows in row_strips(n_rows, height):
            last_column = rows.stop if lower else n_columns
            for columns in row_strips(last_column, side):
                yield rows, columns

    @property
    def loops(self) -> ModuleType | None:
        """The compiled passes over matrices; None on a device, and for few samples."""
        if self.backend is not NUMPY or self.n_samples <= self.options.few_samples:
            return None
        from kernelmosaic.gram import _numba_stack

        return _numba_stack

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        """Return Σ_m weights_m K_m, or Σ_m g_m g_mᵀ ∘ K_m for gates, as a stored matrix."""
        factors = np.array(weights, dtype=np.float64)
        K = self._new_matrix() if out is None else out.matrix
        K = self._fill(factors, K)
        # On the host solvers read the stored entries themselves; the certificate of the whole fit
        # computes exact ones, once.
        if not self.has_exact or self.backend is NUMPY:
            return DenseGram(K)
        return DenseGram(K, partial(self.exact.combined_products, factors=factors))

    def _new_matrix(self) -> ArrayOrTensor:
        """Return an n × n array with arbitrary entries, or raise a MemoryError."""
        try:
            return self.backend.empty((self.n_samples,) * 2, self.dtype)
        except RuntimeError as error:
            # The error of torch does not name what the memory was for.
            need = format_bytes(self.n_samples**2 * self.dtype.itemsize)
            raise MemoryError(
                f"A {self.n_samples} x {self.n_samples} kernel matrix needs {need} on"
                f" {self.backend.device}: use approximation='nystroem', or fewer samples."
            ) from error

    def _fill(self, factors: Array, K: ArrayOrTensor) -> ArrayOrTensor:
        """Write the combined kernel into K, and return K; factors are weights or gates."""
        for rows, columns in self.pieces(self.n_samples, self.n_samples, lower=True):
            piece = K[rows, columns]
            piece[...] = 0.0
            self._accumulate(factors, rows, columns, piece)
            mirror(K, rows, columns)
        return self._set_diagonal(K, factors)

    def _accumulate(self, factors: Array, rows: Rows, columns: Rows, out: ArrayOrTensor) -> None:
        """Add the combined kernel between rows and columns to `out`.

        Kernels whose weight, or whose gates, are zero are not read.
        """
        blocks = self.placed_blocks(active_kernels(factors), rows, columns)
        if factors.ndim == 1:
            for m, block in blocks:
                self.backend.add_scaled(out, block, float(factors[m]))
            return
        left_gates = self.backend.asarray(factors[rows], self.dtype)
        right_gates = self.backend.asarray(factors[columns], self.dtype)
        for m, block in blocks:
            scaled = block * right_gates[:, m]
            scaled *= left_gates[:, m][:, None]
            out += scaled

    def _set_diagonal(self, K: ArrayOrTensor, factors: Array) -> ArrayOrTensor:
        """Write the combined diagonal into K if it is known more exactly than blocks; return K."""
        if self.exact is None or self.exact.placed_diagonals is None:
            return K
        # Of shape (P, 1) or (P, n).
        scales = factors[:, np.newaxis] if factors.ndim == 1 else factors.T**2
        diagonals = self.backend.asarray(scales) * self.exact.placed_diagonals
        self.backend.diagonal_view(K)[...] = diagonals.sum(0)
        return K

    def inner_products(self, G: ArrayOrTensor, kernels: Kernels | None = None) -> Array:
        """Return ⟨G, K_m⟩ of every kernel, of shape (P,).

        Parameters
        ----------
        G : array of shape (n, n)
            A symmetric matrix, an array of the backend.
        kernels : sequence of int, optional
            The kernels that are read, the values of others are zero; by default all.
        """
        n, numbers = self.n_samples, self.kernel_numbers(kernels)
        products = np.zeros(self.n_kernels)
        for strip in self.row_strips(n):
            for m, block in self.placed_blocks(numbers, strip, slice(0, n)):
                exact = self.backend.astype(block, np.float64)
                products[m] += float(self.backend.xp.vdot(G[strip].reshape(-1), exact.reshape(-1)))
        return products

    def recompute(self, kernels: Kernels, views: Views) -> None:
        """Change this stack to new values of these kernels, after their parameters have changed.

        Diagonals that are stored stay as they are.

        Parameters
        ----------
        kernels : sequence of int
            The kernels that have changed.
        views : Views
            The same samples as the kernels read them.
        """
        raise NotImplementedError(f"{type(self).__name__} does not compute kernels again.")

    def stored_part(self, rows: Indices) -> MatrixStack:
        """Return the stack of some samples, stored, in a form for many combinations."""
        return self.for_many_combinations().take(rows, stored=True)

    def for_many_combinations(self) -> MatrixStack:
        """Return the kernels in a form that is fast to combine with many weights in turn."""
        return self

    def exact_placed_products(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β of every kernel, of shape (P, n, k), an array of the backend.

        It is computed from entries in double precision; β has the shape (n, k).
        """
        source = self._exact_source
        out = source.backend.zeros((self.n_kernels, *beta.shape))
        all_rows = slice(0, self.n_samples)
        source._multiply(dict.fromkeys(range(self.n_kernels), beta), all_rows, all_rows, out)
        return out

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        """Return K_m β at these rows for every kernel, from blocks in the support of β."""
        support = nonzero_rows(beta)
        n_rows = self.row_count(rows)
        out = self.backend.zeros((self.n_kernels, n_rows, *beta.shape[1:]))
        if len(support) == 0 or n_rows == 0:
            return self.backend.to_numpy(out)
        right = self.backend.asarray(beta[support].reshape(len(support), -1), self._sum_dtype)
        out_rows = slice(0, n_rows) if rows is None else rows
        out_columns = out.reshape(self.n_kernels, n_rows, -1)
        numbers = self.kernel_numbers(kernels)
        self._multiply(dict.fromkeys(numbers, right), out_rows, support, out_columns)
        return self.backend.to_numpy(out)

    @abstractmethod
    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """Add K_m[rows, columns] right[m] to out[m], for every kernel m in `right`."""


@dataclass(eq=False, kw_only=True)
class ComputedStack(MatrixStack):
    """Kernels of which only the samples are stored: every block is computed whenever it is read.

    `ComputedStack.of` makes one from the kernels and the samples.

    Attributes
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    samples : PlacedSamples
        The training samples on the backend.
    dtype : dtype
        The precision of the matrices.
    entries : int
        Most entries of a block that is worked on at once.
    budget : float
        Bytes that a combined kernel may take: one that takes more is not stored.
    options : StackOptions
        Sizes that the stack works with.
    writes_matrices : bool
        Whether combined kernels are arrays of NumPy.
    diagonals : ndarray of shape (P, n) or None
        The diagonals of the kernels; None where combined kernels are arrays of NumPy.
    placed_diagonals : tensor of shape (P, n) or None
        The diagonals on a device that evaluates all kernels. They are exact, while in blocks the
        distance of a sample to itself is rounded.
    form : str
        See `GramStack`.
    """

    kernel_set: KernelSet
    samples: PlacedSamples
    dtype: np.dtype[Any]
    entries: int
    budget: float
    options: StackOptions
    writes_matrices: bool
    diagonals: Any
    placed_diagonals: Any = None
    form: str = ""
    # Samples minus their mean, by the number of the view; kept since every tile reads them.
    _centred: dict[int, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        kernel_set: KernelSet,
        views: Views | PlacedSamples,
        dtype: np.dtype[Any],
        working_bytes: int | None = None,
        backend: Backend = NUMPY,
        budget: float = np.inf,
        options: StackOptions | None = None,
        distances: Distances | None = None,
        form: str = "",
    ) -> ComputedStack:
        """Return the stack of a training set.

        Parameters
        ----------
        kernel_set : KernelSet
            The fitted kernels.
        views : Views or PlacedSamples
            The training samples as the kernels read them, or placed on the host.
        dtype : dtype
            The precision of the matrices.
        working_bytes : int, optional
            Memory for the blocks that are worked on at once; by default what the cache of a device
            holds.
        backend : Backend
            Where to compute.
        budget : float, optional
            Bytes that a combined kernel may take: one that takes more is not stored. By default any
            is stored.
        options : StackOptions, optional
            Sizes that the stack works with.
        distances : dict, optional
            The distances between the training samples that are stored; on the host.
        form : str
            See `GramStack`.
        """
        options = options or StackOptions()
        host_samples = kernel_set.place_samples(views, distances=distances)
        samples = kernel_set.place_samples(host_samples, backend)
        stores_combined = samples.n_samples**2 * dtype.itemsize <= budget
        writes_matrices = backend is NUMPY and stores_combined
        diagonals = None if writes_matrices else kernel_set.diagonals(host_samples)
        placed_diagonals = None
        if backend is not NUMPY and all(samples.on_backend):
            placed_diagonals = backend.asarray(diagonals)
        if working_bytes is None:
            entries = options.tile_entries(backend)
        else:
            entries = max(1, working_bytes // (ARRAYS_PER_BLOCK * 8))
        return cls(
            kernel_set=kernel_set,
            samples=samples,
            dtype=dtype,
            entries=entries,
            budget=budget,
            options=options,
            writes_matrices=writes_matrices,
            diagonals=diagonals,
            placed_diagonals=placed_diagonals,
            form=form,
        )

    def __post_init__(self) -> None:
        self.backend = self.samples.backend
        self.n_samples = self.samples.n_samples
        self.n_kernels = len(self.kernel_set)
        self.has_exact = self.dtype != np.float64
        self.stores_combined = self.n_samples**2 * self.dtype.itemsize <= self.budget

    @property
    def exact(self) -> ComputedStack:
        """This stack with entries in double precision."""
        if not self.has_exact:
            return self
        return replace(self, dtype=np.dtype(np.float64))

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels, computed from the samples."""
        left = self.samples.take(rows)
        right = left if rows is columns else self.samples.take(columns)
        numbers = self.kernel_numbers(kernels)
        for m, block in self.kernel_set.blocks(left, right, numbers, self.dtype):
            yield m, self.backend.astype(block, self.dtype)

    def write_square(
        self, kernels: Kernels, matrices: AnyArray, loops: Any, square: tuple[slice, slice]
    ) -> None:
        """Write a square of the lower triangle of all matrices, and its mirror image.

        Parameters
        ----------
        kernels : sequence of int
            The kernels that are computed.
        matrices : ndarray of shape (P, n, n)
            The matrices on the host, which are written to.
        loops : module
            The compiled passes.
        square : tuple of slice
            Rows and columns of the square.
        """
        rows, columns = square
        other_kernels = self.kernel_numbers(kernels)
        left, right = self.samples.take(rows), self.samples.take(columns)
        for members in self._gaussians(other_kernels):
            constants = np.array(self._constants(members, np.ones(self.n_kernels)), self.dtype)
            stored = left.stored_distances(members[0], "squared_distances", right)
            if stored is not None:
                distances = np.ascontiguousarray(stored, dtype=self.dtype)
            else:
                shape = (rows.stop - rows.start, columns.stop - columns.start)
                distances = np.empty(shape, self.dtype)
                tile = self._tile_between(members[0], rows, columns, constants[0])
                loops.write_distances(tile, distances)
            loops.write_gaussians(
                distances, *constants, np.array(members), matrices, rows.start, columns.start
            )
            other_kernels = [m for m in other_kernels if m not in members]
        for m, block in self.placed_blocks(other_kernels, *square):
            _write_square(matrices[m], square, block, loops)

    def _tile_between(self, m: int, rows: Rows, columns: Rows, rates: Sequence[float]) -> Any:
        """Return the `Tile` of squared distances between rows and columns of the view of kernel m.

        It is for Gaussians with these rates.
        """
        from kernelmosaic.gram._numba_stack import Centred

        v = self.samples.views.which[m]
        if v not in self._centred:
            view = self.samples.views[m]
            self._centred[v] = Centred.of(view, view.mean(axis=0))
        left = self._centred[v].take(rows)
        right = self._centred[v].take(columns)
        return left.tile(right, left.unreliable(right, rates, self.dtype))

    def squares(self) -> list[tuple[slice, slice]]:
        """Return (rows, columns) of squares that cover the lower triangle and fit the host's cache.

        Rows and columns of a square on the diagonal are the same object.
        """
        cached_entries = self.options.cache_bytes // self.dtype.itemsize
        side = int(min(cached_entries, self.entries) ** 0.5)
        strips = list(row_strips(self.n_samples, max(side - side % SQUARE_MULTIPLE, 1)))
        return [(rows, columns) for i, rows in enumerate(strips) for columns in strips[: i + 1]]

    def is_cheap(self, kernels: Sequence[int]) -> bool:
        """Return whether many small blocks of these kernels cost no more than a few tall ones.

        They can then be computed on the host in blocks that fit the cache, on any thread.
        """
        inner = [self.kernel_set.fitted[m].kernel.inner for m in kernels]
        is_dense = all(isinstance(self.samples.views[m], np.ndarray) for m in kernels)
        return (
            self.backend is NUMPY and is_dense and all(kernel.costs_by_entries for kernel in inner)
        )

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        """Return the combined kernel, as a matrix if it fits the budget."""
        if self.stores_combined:
            return super().combine(weights, out)
        return OnDemandGram(self, np.array(weights, dtype=np.float64))

    @property
    def part_samples(self) -> int:
        """The most samples that `take` should be given."""
        # On the host all matrices of a part are stored and one combined kernel, on a device the
        # combined kernel alone.
        n_matrices = self.n_kernels + 1 if self.backend is NUMPY else 1
        numbers = PART_SHARE_OF_BUDGET * self.budget / self.dtype.itemsize / n_matrices
        return int(min(super().part_samples, numbers**0.5))

    def part(self, rows: Indices) -> ComputedStack:
        """Return the stack of these samples, whose blocks are computed as well."""
        diagonals, placed_diagonals = self.diagonals, self.placed_diagonals
        if diagonals is not None:
            diagonals = diagonals[:, rows]
        if placed_diagonals is not None:
            placed_diagonals = placed_diagonals[:, self.backend.index(rows)]
        return replace(
            self,
            samples=self.samples.take(rows),
            diagonals=diagonals,
            placed_diagonals=placed_diagonals,
            _centred={},
        )

    def recompute(self, kernels: Kernels, views: Views) -> None:
        """Place the samples again, since normalisations need other numbers of them."""
        host_samples = self.kernel_set.place_samples(views)
        self.samples = self.kernel_set.place_samples(host_samples, self.backend)

    def take(self, rows: Indices, stored: bool = False) -> MatrixStack:
        """Return the stack of these samples, stored on the host if `stored` is true."""
        computed = self.part(rows)
        # The matrices of a part fit in the memory that one matrix of all samples would take.
        if stored and self.backend is NUMPY:
            return StoredStack.of(computed)
        return computed

    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """Add K_m[rows, columns] right[m] to out[m], by compiled passes for Gaussians."""
        left, across = self.samples.take(rows), self.samples.take(columns)
        if across.n_samples == 0:
            return
        other_kernels = list(right)
        for members in self._gaussians(other_kernels):
            # On a device, Gaussians beside other kernels share their distances with these.
            has_own_pass = self.backend is NUMPY or members == list(right)
            if has_own_pass and self._multiply_gaussians(members, right, left, across, out):
                other_kernels = [m for m in other_kernels if m not in members]
        if not other_kernels:
            return
        height, width = self._tile(other_kernels, out.shape[1], across.n_samples)

        def multiply(strip: slice) -> None:
            strip_samples = left.take(strip)
            for columns in row_strips(across.n_samples, width):
                blocks = self.kernel_set.blocks(
                    strip_samples, across.take(columns), other_kernels, self.dtype
                )
                for m, block in blocks:
                    coefficients = right[m][columns]
                    kind = self.backend.dtype(coefficients)
                    out[m, strip] += self.backend.astype(block, kind) @ coefficients

        self._run(multiply, row_strips(out.shape[1], height), other_kernels)

    def _tile(self, kernels: Sequence[int], n_rows: int, n_columns: int) -> tuple[int, int]:
        """Return the height and width of the blocks that are computed at once."""
        if self.is_cheap(kernels):
            return self.options.host_tile
        rows, columns = next(self.pieces(n_rows, n_columns))
        return rows.stop, columns.stop

    def _run(
        self, work: Callable[[Any], None], tasks: Iterable[Any], kernels: Sequence[int]
    ) -> None:
        """Call `work` with every task, on all cores if the kernels are cheap on the host."""
        if not self.is_cheap(kernels):
            run_threads(work, tasks, 0)
            return
        with one_blas_thread():
            run_threads(work, tasks, self.n_samples * self.options.host_tile[1])

    def combined_products(self, support: Indices, beta: Array, factors: Array) -> Array:
        """Return Kβ of a combined kernel that is not stored, of shape (n,) or (n, k).

        Parameters
        ----------
        support : ndarray of int
            The samples where β is not zero.
        beta : ndarray of shape (n_support,) or (n_support, k)
            Their coefficients.
        factors : ndarray of shape (P,) or (n, P)
            Weights or gates.
        """
        is_gated = factors.ndim == 2
        has_columns = beta.ndim > 1
        is_single_on_host = self.backend is NUMPY and self.dtype != np.float64
        if is_single_on_host and has_columns and not is_gated:
            return self._weighted_products(factors, support, beta)
        column_shape = beta.shape[1:] or (1,)
        columns = self.backend.asarray(beta.reshape(len(support), *column_shape), self._sum_dtype)
        scales = factors[support] if is_gated else factors[np.newaxis]
        scales = self.backend.asarray(scales, self._sum_dtype)
        right = {int(m): scales[:, m : m + 1] * columns for m in active_kernels(factors)}
        out = self.backend.zeros((self.n_kernels, self.n_samples, columns.shape[1]))
        self._multiply(right, slice(0, self.n_samples), support, out)
        if is_gated:
            out *= self.backend.asarray(factors.T)[:, :, None]
        values = self.backend.to_numpy(out.sum(0))
        return values.reshape(self.n_samples, *beta.shape[1:])

    def _weighted_products(self, weights: Array, support: Indices, beta: Array) -> Array:
        """Return Σ_m weights_m K_m β on the host, for many columns of β.

        The kernels are combined block by block, before they are multiplied by β.
        """
        active = np.flatnonzero(weights).tolist()
        right = beta.astype(self.dtype)
        height, width = self._tile(active, self.n_samples, max(len(support), 1))
        out = np.zeros((self.n_samples, *beta.shape[1:]))

        def multiply(strip: slice) -> None:
            for columns in row_strips(len(support), width):
                shape = (strip.stop - strip.start, columns.stop - columns.start)
                block = np.zeros(shape, dtype=self.dtype)
                self._accumulate(weights, strip, support[columns], block)
                out[strip] += block @ right[columns]

        self._run(multiply, row_strips(self.n_samples, height), active)
        return out

    # Gaussians, whose compiled passes read the samples themselves ---------------------------------

    def _fill(self, factors: Array, K: ArrayOrTensor) -> ArrayOrTensor:
        """Write the combined kernel into K by the fastest pass there is, and return K."""
        if factors.ndim == 2:
            return super()._fill(factors, K)
        active = np.flatnonzero(factors).tolist()
        if self.backend is not NUMPY and self._gaussians(active) == [active]:
            from kernelmosaic.gpu import combine_directly

            constants = self._constants(active, factors)
            if combine_directly(self.samples.views[active[0]].T.contiguous(), *constants, K):
                return K
        loops = self.loops
        if loops is None or not self.is_cheap(active):
            return super()._fill(factors, K)

        def fill(square: tuple[slice, slice]) -> None:
            rows, columns = square
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            block = np.zeros(shape, dtype=K.dtype)
            self._accumulate(factors, rows, columns, block)
            _write_square(K, square, block, loops)

        self._run(fill, self.squares(), active)
        return K

    def _accumulate(self, factors: Array, rows: Rows, columns: Rows, out: ArrayOrTensor) -> None:
        """Add the combined kernel to `out`, by compiled passes for Gaussians."""
        other_factors = factors.copy()
        # On the host only sums in single precision are compiled.
        is_compiled = self.backend is not NUMPY or self.dtype == np.float32
        if factors.ndim == 1 and is_compiled:
            for members in self._gaussians(np.flatnonzero(factors).tolist()):
                self._add_gaussians(members, factors, rows, columns, out)
                other_factors[members] = 0.0
        if other_factors.any():
            super()._accumulate(other_factors, rows, columns, out)

    def _add_gaussians(
        self, members: list[int], weights: Array, rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """Add the weighted sum of Gaussians that read the same samples to `out`."""
        rates, factors = self._constants(members, weights)
        if self.backend is not NUMPY:
            from kernelmosaic.gpu import add_gaussians as add_on_device

            left, right = self.samples.take(rows), self.samples.take(columns)
            S = self.kernel_set.statistic_block(members, left, right)
            add_on_device(S, rates, factors, out)
            return
        from kernelmosaic.gram._numba_stack import add_gaussians

        tile = self._tile_between(members[0], rows, columns, rates)
        add_gaussians(
            tile, np.array(rates, dtype=np.float32), np.array(factors, dtype=np.float32), out
        )

    def _multiply_gaussians(
        self,
        members: list[int],
        right: dict[int, Any],
        left: PlacedSamples,
        across: PlacedSamples,
        out: ArrayOrTensor,
    ) -> bool:
        """Add products of Gaussians that read the same samples to `out` by a compiled pass.

        Returns False, and adds nothing, if there is no such pass: on a device there is one for
        single columns only, and it may refuse some samples.

        Parameters
        ----------
        members : list of int
            The Gaussians.
        right : dict of int to array of shape (n_columns, k)
            What each kernel is multiplied by.
        left, across : PlacedSamples
            The samples of the rows and of the columns.
        out : array of shape (P, n_rows, k)
            The sums.
        """
        is_on_host = self.backend is NUMPY
        if out.shape[2] > 1 and not is_on_host:
            return False
        rates, factors = self._constants(members, np.ones(self.n_kernels))
        scaled = [right[m] * factor for m, factor in zip(members, factors, strict=True)]
        beta = self.backend.xp.stack(scaled)
        L, R = left.views[members[0]], across.views[members[0]]
        if is_on_host:
            out[members] += self._multiply_on_host(L, R, rates, beta.astype(self.dtype))
            return True
        from kernelmosaic.gpu import multiply_directly

        products = multiply_directly(L.T, R, rates, beta[:, :, 0], self.dtype == np.float64)
        if products is None:
            return False
        out[members] += products[:, :, None]
        return True

    def _multiply_on_host(
        self, left: AnyArray, right: AnyArray, rates: list[float], beta: AnyArray
    ) -> Array:
        """Return the products of Gaussians between two sets of samples with β.

        Parameters
        ----------
        left : ndarray of shape (n_rows, d)
        right : ndarray of shape (n_columns, d)
        rates : list of float
            The constants of the G Gaussians exp(rate ‖x − z‖²).
        beta : ndarray of shape (G, n_columns, k)

        Returns
        -------
        ndarray of shape (G, n_rows, k)
        """
        from kernelmosaic.gram._numba_stack import (
            Centred,
            multiply_gaussians,
            write_distances,
            write_gaussian,
        )

        centre = right.mean(axis=0)
        L, R = Centred.of(left, centre), Centred.of(right, centre)
        share = L.unreliable(R, rates, self.dtype)
        factors = np.array(rates, dtype=self.dtype)
        n_vectors = beta.shape[2]
        products = np.zeros((len(rates), len(left), n_vectors))
        height, width = self.options.host_tile
        if n_vectors > 1:
            height = max(height // COLUMN_TILE_DIVISOR, 1)

        def multiply(strip: slice) -> None:
            for columns in row_strips(len(right), width):
                tile = L.take(strip).tile(R.take(columns), share)
                if n_vectors == 1:
                    vector = np.ascontiguousarray(beta[:, columns, 0])
                    multiply_gaussians(tile, factors, vector, products[:, strip, 0])
                    continue
                distances, block = np.empty((2, *tile[0].shape), dtype=self.dtype)
                write_distances(tile, distances)
                for m, rate in enumerate(factors):
                    write_gaussian(distances, rate, rate.dtype.type(1), block)
                    products[m, strip] += block @ beta[m, columns]

        with one_blas_thread():
            run_threads(multiply, row_strips(len(left), height), self.n_samples * width)
        return products

    def _gaussians(self, kernels: Sequence[int]) -> list[list[int]]:
        """Return those of these kernels that compiled passes compute, grouped by their view.

        These are Gaussians times one factor. On the host, where passes need a compiler, there are
        none for few samples, and none for sparse samples.
        """
        is_on_host = self.backend is NUMPY
        if is_on_host and self.n_samples <= self.options.few_samples:
            return []
        groups: dict[int, list[int]] = {}
        for m in kernels:
            fitted_kernel = self.kernel_set.fitted[m]
            # A subclass of Gaussian may have another formula.
            is_gaussian = type(fitted_kernel.kernel.inner) is Gaussian
            has_one_factor = isinstance(fitted_kernel.normalization, Unscaled | UnitTrace)
            is_dense = not is_on_host or isinstance(self.samples.views[m], np.ndarray)
            if is_gaussian and has_one_factor and is_dense and self.samples.on_backend[m]:
                groups.setdefault(self.samples.views.which[m], []).append(m)
        return list(groups.values())

    def _constants(
        self, gaussians: Sequence[int], weights: Array
    ) -> tuple[list[float], list[float]]:
        """Return rates and factors of Gaussians: weights_m K_m = factor · exp(rate ‖x − z‖²)."""
        rates = []
        factors = []
        for m in gaussians:
            kernel = self.kernel_set.fitted[m].kernel.inner
            if isinstance(kernel, Gaussian):
                rates.append(kernel.rate(np.float32))
            scale = float(getattr(self.kernel_set.fitted[m].normalization, "scale_", 1.0))
            factors.append(float(weights[m]) / scale)
        return rates, factors


class StoredStack(MatrixStack):
    """All matrices in memory, in one array of shape (P, n, n).

    Parameters
    ----------
    matrices : array of shape (P, n, n)
        Of NumPy or torch.
    computed : ComputedStack, optional
        The stack that computed the matrices.
    options : StackOptions, optional
        Sizes that the stack works with; by default those of the stack that computed it.
    form : str
        See `GramStack`.
    """

    is_stored = True

    def __init__(
        self,
        matrices: ArrayOrTensor,
        computed: ComputedStack | None = None,
        options: StackOptions | None = None,
        form: str = "",
    ) -> None:
        self.matrices = matrices
        self.computed = computed
        self.form = form
        self.backend = backend_of(matrices)
        if computed is not None:
            self.exact = computed.exact
            options = options or computed.options
        self.options = options or StackOptions()
        self.n_kernels, self.n_samples, _ = (int(size) for size in matrices.shape)
        self.dtype = self.backend.dtype(matrices)
        self.nbytes = self.n_kernels * self.n_samples**2 * self.dtype.itemsize
        self.has_exact = computed is not None and self.dtype != np.float64
        self.writes_matrices = self.backend is NUMPY
        if self.backend is NUMPY:
            self.entries = self.options.cache_bytes // self.dtype.itemsize
        elif computed is None:
            self.entries = self.options.tile_entries(self.backend)
        else:
            self.entries = computed.entries

    @classmethod
    def of(cls, computed: ComputedStack, form: str = "") -> StoredStack:
        """Return the matrices of a stack that computes them, all in memory."""
        n, n_kernels, backend = computed.n_samples, computed.n_kernels, computed.backend
        matrices = backend.empty((n_kernels, n, n), computed.dtype)
        loops = computed.loops
        other_kernels = list(range(n_kernels))

        # 1. Cheap kernels in squares that fit the cache: a statistic and all kernels that are
        # functions of it stay there, and memory is written once for every entry, and never read.
        if loops is not None:
            cheap_kernels = [m for m in other_kernels if computed.is_cheap([m])]
            other_kernels = [m for m in other_kernels if m not in cheap_kernels]
            with one_blas_thread():
                write = partial(computed.write_square, cheap_kernels, matrices, loops)
                squares = computed.squares() if cheap_kernels else []
                run_threads(write, squares, matrices.nbytes)

        # 2. The others in tall strips of the lower triangle.
        if other_kernels:
            for rows, columns in computed.pieces(n, n, lower=True):
                for m, block in computed.placed_blocks(other_kernels, rows, columns):
                    matrices[m][rows, columns] = block
                    if loops is None:
                        mirror(matrices[m], rows, columns)
            if loops is not None:
                run_threads(
                    lambda m: loops.mirror_lower(matrices[m], 0, n),
                    other_kernels,
                    len(other_kernels) * matrices[0].nbytes,
                )

        # 3. The diagonals, where they are known more exactly.
        if computed.placed_diagonals is not None:
            for K, unit_weights in zip(matrices, np.eye(n_kernels), strict=True):
                computed._set_diagonal(K, unit_weights)
        return cls(matrices, computed, form=form)

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels, read from memory."""
        rows, columns = self.backend.index(rows), self.backend.index(columns)
        for m in kernels:
            K = self.matrices[m]
            if isinstance(rows, slice) or isinstance(columns, slice):
                yield int(m), K[rows, columns]
            else:
                yield int(m), self.backend.take_block(K, rows, columns)

    @cached_property
    def _triangles(self) -> TriangleStack:
        """The lower triangles of the matrices; made once."""
        return TriangleStack.of(self.matrices)

    def for_many_combinations(self) -> MatrixStack:
        """Return the lower triangles if they fit `triangle_bytes` of the options, else this stack.

        There are triangles of double-precision matrices on the host only.
        """
        triangle_bytes = 8 * self.n_kernels * _triangle_size(self.n_samples)
        is_double_on_host = self.backend is NUMPY and self.dtype == np.float64
        if is_double_on_host and triangle_bytes <= self.options.triangle_bytes:
            return self._triangles
        return self

    def take(self, rows: Indices, stored: bool = True) -> StoredStack:
        """Return the stack of these samples, with copies of their entries."""
        matrices = self.backend.empty((self.n_kernels, len(rows), len(rows)), self.dtype)
        for m, block in self.placed_blocks(range(self.n_kernels), rows, rows):
            matrices[m] = block
        computed = None if self.computed is None else self.computed.part(rows)
        return StoredStack(matrices, computed, self.options)

    def recompute(self, kernels: Kernels, views: Views) -> None:
        """Compute the matrices of these kernels again, and write them in place."""
        if self.computed is None:
            raise ValueError("these matrices were given, no kernels can compute them again.")
        kernel_set = self.computed.kernel_set
        for strip in self.row_strips(self.n_samples):
            strip_views = take_rows(views, strip)
            for m, block in kernel_set.blocks(strip_views, views, kernels, self.dtype):
                self.matrices[m, strip] = block
        for m in kernels:
            # Strips round differently on the two sides of the diagonal.
            K = self.matrices[m]
            K[...] = 0.5 * (K + K.T)

    def _fill(self, factors: Array, K: ArrayOrTensor) -> ArrayOrTensor:
        """Write the combined kernel into K in one pass over the matrices, and return K."""
        if self.loops is not None:
            combine = self.loops.combine if factors.ndim == 1 else self.loops.combine_gated
            return combine(self.matrices, factors, K)
        if self.backend is not NUMPY or factors.ndim == 2:
            return super()._fill(factors, K)
        active = np.flatnonzero(factors)
        matrices = self.matrices if len(active) == self.n_kernels else self.matrices[active]
        weights = factors[active].astype(self.dtype)
        return np.einsum("m,mij->ij", weights, matrices, out=K, casting="same_kind")

    def combine_classes(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return the combined kernels of all classes, in one pass over the matrices if compiled."""
        if self.loops is None:
            return super().combine_classes(weights, out)
        return self.loops.combine_classes(self.matrices, weights, out)

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        """Return K_m β at these rows for every kernel, by the compiled passes if there are any."""
        if self.loops is None:
            return super().products(beta, rows, kernels)
        return np.asarray(self.loops.products(self.matrices, beta, rows, kernels, self.entries))

    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """Add K_m[rows, columns] right[m] to out[m], for every kernel m in `right`."""
        # Whole rows are multiplied: picking columns out of them would take longer than it saves.
        row_index = self.backend.index(rows)
        column_index = self.backend.index(columns)
        strip_rows = STRIP_BLOCKS_OF_PRODUCTS * self.entries // self.n_samples
        for m, coefficients in right.items():
            kind = self.backend.dtype(coefficients)
            spread = self.backend.zeros((self.n_samples, coefficients.shape[1]), kind)
            spread[column_index] = coefficients
            for strip in row_strips(out.shape[1], strip_rows):
                strip_index = strip if isinstance(row_index, slice) else row_index[strip]
                K_rows = self.matrices[m][strip_index]
                out[m, strip] = self.backend.astype(K_rows, kind) @ spread


class TriangleStack(MatrixStack):
    """The lower triangles of all matrices in memory, in double precision on the host.

    These are half of the numbers. Combining the kernels, and inner products with another matrix,
    are products of one matrix with a vector.

    Parameters
    ----------
    triangles : ndarray of shape (P, n (n + 1) / 2)
        The triangles row by row.
    n_samples : int
        n.
    """

    is_stored = True

    def __init__(self, triangles: Array, n_samples: int) -> None:
        self.triangles = triangles
        self.n_kernels = len(triangles)
        self.n_samples = n_samples
        self.dtype = triangles.dtype
        self.nbytes = triangles.nbytes
        self.options = StackOptions()
        self.entries = self.options.cache_bytes // self.dtype.itemsize

    @classmethod
    def of(cls, matrices: Array) -> TriangleStack:
        """Return the stack of symmetric matrices, of shape (P, n, n)."""
        n_kernels, n, _ = matrices.shape
        return cls(matrices.reshape(n_kernels, -1).take(_Triangle.of(n).entries, axis=1), n)

    @property
    def _triangle(self) -> _Triangle:
        """Where the entries of a triangle are."""
        return _Triangle.of(self.n_samples)

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels, read from the triangles."""
        places = self._triangle.places[rows][:, columns]
        for m in kernels:
            yield int(m), self.triangles[m].take(places)

    def take(self, rows: Indices, stored: bool = True) -> TriangleStack:
        """Return the triangles of these samples."""
        places = self._triangle.places[np.ix_(rows, rows)].reshape(-1)
        part_places = places[_Triangle.of(len(rows)).entries]
        return TriangleStack(self.triangles.take(part_places, axis=1), len(rows))

    def for_many_combinations(self) -> MatrixStack:
        return self

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        """Return Σ_m weights_m K_m, a product with the triangles; gates are combined in blocks."""
        if np.ndim(weights) > 1:
            return super().combine(weights, out)
        combined = np.asarray(weights, dtype=np.float64) @ self.triangles
        return DenseGram(combined.take(self._triangle.places))

    def inner_products(self, G: ArrayOrTensor, kernels: Kernels | None = None) -> Array:
        """Return ⟨G, K_m⟩ of every kernel by one product with the triangles."""
        lower = G.reshape(-1).take(self._triangle.entries) * self._triangle.counts
        products = self.triangles @ lower
        if kernels is not None:
            all_kernels = np.arange(self.n_kernels)
            products[np.setdiff1d(all_kernels, self.kernel_numbers(kernels))] = 0.0
        return np.asarray(products)

    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        for m, block in self.placed_blocks(list(right), rows, columns):
            out[m] += block @ right[m]


def _triangle_size(n: int) -> int:
    """Return the number of entries of the lower triangle of an n × n matrix."""
    return n * (n + 1) // 2


@dataclass(frozen=True)
class _Triangle:
    """Where the entries of the lower triangle of a symmetric matrix are.

    Attributes
    ----------
    entries : ndarray of shape (n (n + 1) / 2,)
        The number of each entry of the triangle among the n² of the matrix, row by row.
    places : ndarray of shape (n, n)
        For each entry of the matrix, its number, or that of its mirror image, in the triangle.
    counts : ndarray of shape (n (n + 1) / 2,)
        How often each entry of the triangle is in the matrix: once on the diagonal, else twice.
    """

    entries: Indices
    places: Indices
    counts: Array

    @classmethod
    @lru_cache(maxsize=4)
    def of(cls, n: int) -> _Triangle:
        """Return the triangle of n rows."""
        rows, columns = np.tril_indices(n)
        places = np.empty((n, n), dtype=np.intp)
        places[rows, columns] = places[columns, rows] = np.arange(len(rows))
        return cls(rows * n + columns, places, np.where(rows == columns, 1.0, 2.0))


class StackClasses(ClassGram):
    """One combined kernel per class, of which nothing is stored: the stack is read for every block.

    Parameters
    ----------
    stack : GramStack
        The kernels, on the host or a device.
    weights : ndarray of shape (classes, P)
        The weights d: K_c = Σ_m d_cm K_m.
    block_numbers : int
        Numbers that the blocks of all classes may have together.
    """

    def __init__(
        self, stack: GramStack, weights: Array, block_numbers: int = CLASS_BLOCK_NUMBERS
    ) -> None:
        self.stack = stack
        self.weights = weights
        self.active = np.flatnonzero(np.any(weights != 0, axis=0))
        self.n_samples = stack.n_samples
        self.n_classes = len(weights)
        self.dtype = stack.dtype
        self.block_samples = int(np.sqrt(block_numbers / max(self.n_classes, len(self.active))))

    def products(self, beta: Array, exact: bool = False) -> Array:
        """Return K_c β_c of every column β_c of β."""
        products = self.stack.products(beta, kernels=self.active)
        weights = self.weights[:, self.active]
        return np.asarray(np.einsum("cm,mic->ic", weights, products[self.active]))

    def block(self, rows: Indices) -> Block:
        """Return the blocks of all classes between these samples, of shape (classes, q, q)."""
        out = np.zeros((self.n_classes, len(rows), len(rows)), dtype=self.stack.dtype)
        for m, block in self.stack.blocks(self.active, rows, rows):
            for c in np.flatnonzero(self.weights[:, m]):
                out[c] += out.dtype.type(self.weights[c, m]) * block
        return out

    def diagonal(self) -> Array:
        """Return the diagonals of all classes, of shape (n, classes)."""
        diagonals = [self.stack.combine(weights).diagonal() for weights in self.weights]
        return np.column_stack(diagonals)


def _write_square(K: AnyArray, square: tuple[slice, slice], block: AnyArray, loops: Any) -> None:
    """Write the block of a square of the lower triangle into K, and its mirror image."""
    rows, columns = square
    block = np.ascontiguousarray(block)
    if rows is columns:
        loops.mirror_lower(block, 0, len(block))
    else:
        loops.write_transposed(block, K, columns.start, rows.start)
    K[rows, columns] = block


def mirror(K: ArrayOrTensor, rows: slice, columns: slice) -> None:
    """Copy a piece of the lower triangle of K into the upper triangle.

    A square on the diagonal is made symmetric from its lower triangle.
    """
    left = slice(columns.start, min(columns.stop, rows.start))
    K[left, rows] = K[rows, left].T
    if columns.stop > rows.start:
        square, tril = K[rows, rows], backend_of(K).xp.tril
        square[...] = tril(square) + tril(square, -1).T


def matrix_dtype(
    n_samples: int, dtype: DType = None, double_samples: int = DOUBLE_SAMPLES
) -> np.dtype[Any]:
    """Return the precision of stored matrices.

    It is `dtype` if that is given, else double for up to `double_samples` samples and single for
    more.
    """
    if dtype is not None:
        return np.dtype(dtype)
    return np.dtype(np.float64 if n_samples <= double_samples else np.float32)


def make_stack(
    kernel_set: KernelSet,
    views: Views,
    *,
    dtype: DType = None,
    budget: float | None = None,
    device: str | None = None,
    working_bytes: int | None = None,
    options: StackOptions | None = None,
    distances: Distances | None = None,
    stores: bool = True,
) -> MatrixStack:
    """Return the stack of a training set: matrices if they fit the budget, else a ComputedStack.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : Views
        The training samples as the kernels read them.
    dtype : dtype, optional
        The precision of the matrices, see `matrix_dtype`.
    budget : float, optional
        Bytes that the stack and one combined matrix may take; by default half of the free memory.
    device : str, optional
        A torch device to keep the stack on, such as ``"cuda"``. The budget is then of its memory,
        by default most of what is free there.
    working_bytes : int, optional
        Memory for the blocks that are worked on at once where matrices are computed. By default a
        fraction of the budget, or what the cache of a device holds.
    options : StackOptions, optional
        Sizes that stacks work with.
    distances : dict, optional
        The distances between the training samples that are stored. They are kept if the budget has
        room for them as well.
    stores : bool
        Whether to store the matrices if they fit. False where all samples are read a few times
        only.
    """
    n = views[0].shape[0]
    n_kernels = len(kernel_set)
    dtype = matrix_dtype(n, dtype)
    options = options or StackOptions()
    backend = backend_on(device)
    if budget is None:
        budget = default_budget(backend)
    matrix_bytes = n * n * dtype.itemsize

    # 1. What is stored. Beside the stack there is one combined matrix, and on a device the blocks
    # that the solver takes out of it.
    n_matrices = n_kernels + (1 if device is None else 2)
    needed_bytes = n_matrices * matrix_bytes
    stores_all = stores and needed_bytes <= budget
    stores_combined = matrix_bytes <= budget

    # 2. The memory for the blocks that are worked on at once.
    if working_bytes is None and device is None:
        if stores_all:
            smallest = TALL_STRIP_BLOCKS * options.cache_bytes
            working_bytes = ARRAYS_PER_BLOCK * max(smallest, matrix_bytes // TALL_STRIP_DIVISOR)
        elif stores_combined:
            unused_bytes = budget - matrix_bytes
            working_bytes = int(min(unused_bytes, budget / WORKING_BUDGET_DIVISOR))
            working_bytes = max(working_bytes, LEAST_WORKING_BYTES)
        else:
            working_bytes = options.on_demand_bytes

    # 3. The stack, with a sentence on its form.
    on_device = "" if device is None else f" on {backend.device}"
    room = f"the budget is {format_bytes(budget)}"
    if stores_all:
        size = format_bytes(matrix_bytes)
        form = f"{n_kernels} kernel matrices of {size} are stored{on_device}, {room}"
    elif stores_combined:
        form = "the combined one is stored, the others are computed whenever they are needed"
        if stores:
            need = format_bytes(needed_bytes)
            form = f"{n_matrices} kernel matrices would need {need}{on_device}, {room}: {form}"
    else:
        form = (
            f"one combined {n} x {n} kernel matrix needs {format_bytes(matrix_bytes)}{on_device},"
            f" {room}: entries are computed whenever they are needed, for working sets of up to"
            f" {options.block_samples(n, budget, dtype)} samples"
        )
    distance_bytes = 8 * n * n * len(distances or ())
    if device is not None or needed_bytes + distance_bytes > budget:
        distances = None
    combined_budget = np.inf if stores_combined else budget
    computed = ComputedStack.of(
        kernel_set,
        views,
        dtype,
        working_bytes,
        backend,
        combined_budget,
        options,
        distances,
        form,
    )
    return StoredStack.of(computed, form) if stores_all else computed
