"""The stack: P Gram matrices of one training set, here or on a device, stored or recomputed under a
memory budget.

There are two kinds of stacks, each with one implementation of every operation:

- a `MatrixStack` reads blocks of matrices, which `placed_blocks` yields: a `StoredStack` from
  memory, a `ComputedStack` from the samples. Compiled passes take the place of blocks where there
  are any: Numba's over matrices stored on the host, CUDA's over Gaussians computed on a device;
- a `FeatureStack` reads rows of features, which `placed_features` yields: `StoredFeatures` from
  memory, `ComputedFeatures` from the samples, and `DaskFeatures` from the workers of a cluster,
  where it has its own passes because a trip to the workers costs more than arithmetic.

`WithIdentity` (where C is learned) adds one kernel to those of another stack.

`take` returns the stack of some samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import ModuleType
from typing import Any, cast

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
from kernelmosaic.gram.kernel_set import Distances, Kernels, KernelSet, PlacedSamples, Views
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.row_blocks import Rows
from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.numeric import Gaussian


class GramStack(ABC):
    """P Gram matrices K_1 … K_P of the same n samples, on the host or a device.

    Learners use only these operations: none of them reads a kernel whose weight is zero, and
    products with β read only the columns of the samples where β is not. They take and return arrays
    in this process, but for combined kernels.

    Attributes
    ----------
    n_samples, n_kernels : int
        n and P.
    dtype : dtype
        Of the matrices.
    backend : Backend
        Where they are.
    writes_matrices : bool
        Whether combined kernels are arrays in this process; else they stay where, and in the form
        in which, they are.
    """

    n_samples: int
    n_kernels: int
    dtype: np.dtype[Any]
    backend: Backend = NUMPY
    writes_matrices: bool = True
    #: The number of features of every kernel; None where the kernels are matrices.
    widths: Indices | None = None
    #: Bytes of the matrices, or features, that are stored.
    nbytes: int = 0
    #: Whether combined kernels are stored, in whatever form; else they are computed whenever they
    #: are needed.
    stores_combined: bool = True
    #: Whether entries are in single precision here, and can be computed in double.
    has_exact: bool = False
    #: How the kernels are stored, and why; printed with `verbose`.
    form: str = ""
    #: Whether the combined kernel can be factorised, as a matrix or in features. Others are known
    #: by products alone.
    can_be_factorised: bool = True

    @abstractmethod
    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        """Yield (m, K_m[rows][:, columns]) for the given kernels; the blocks must not be
        changed."""

    @abstractmethod
    def row_strips(self, n_columns: int) -> Iterator[slice]:
        """Cut the samples into strips whose blocks of that many columns fit the stack's working
        memory."""

    @abstractmethod
    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return Σ_m weights_m K_m, a `Gram`; an earlier one given as `out` may be overwritten.

        Of kernels that take gates, weights of shape (n, P) are these: Σ_m g_m g_mᵀ ∘ K_m is
        returned.
        """

    def support_sums(self, kernel_set: Any, samples: Any, beta: Array) -> Any:
        """Return the sums over support samples in a form of this stack's own; None where entries
        are computed.

        They are as `engine.expansion.SupportSums`, which has the parameters.
        """
        return None

    def combine_classes(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Fill out[c] with Σ_m weights[c, m] K_m for weights of shape (classes, P), in out's
        precision.

        Where combined kernels stay where they are, nothing is written down: one matrix per class
        would fill a device.
        """
        if not self.writes_matrices:
            return StackClasses(self, np.array(weights, dtype=np.float64))
        for own, K in zip(weights, out, strict=True):
            self.combine(own, out=DenseGram(K))
        return out

    @abstractmethod
    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        """Return K_m β at the given rows for every kernel: (P, n_rows), and the columns of β where
        it has any."""

    def exact_products(self, beta: AnyArray, rows: Indices) -> Array:
        """Return what `products` does, from entries in double precision whatever they are stored
        in."""
        return self.products(beta, rows)

    def exact_gated_products(self, beta: AnyArray, gates: AnyArray) -> Array:
        """Return (Σ_m g_m g_mᵀ ∘ K_m) β from entries in double precision, for gates of shape (n,
        P)."""
        return np.asarray(self.combine(gates).products(beta, exact=True))

    @property
    def part_samples(self) -> int:
        """The most samples that `take` may be given; 0 where a stack of some samples is of no use,
        or is not made."""
        return 0

    def take(self, rows: Indices, stored: bool = False) -> GramStack:
        """Return the stack of some samples, at most `part_samples`; with `stored`, the host stores
        its matrices."""
        raise NotImplementedError(
            f"{type(self).__name__}.take: part_samples is 0, these kernels are not cut."
        )

    def asked(self, kernels: Kernels | None) -> list[int]:
        """Return the numbers of some kernels; of all of them for None."""
        return [int(m) for m in (range(self.n_kernels) if kernels is None else kernels)]

    def row_block(self, m: int, rows: Rows) -> Block:
        """Return K_m[rows]."""
        return next(self.blocks([m], rows, slice(0, self.n_samples)))[1]

    def gated_products(self, beta: AnyArray, gates: AnyArray, rows: Indices) -> Array:
        """Return K_m (g_m ∘ β) at the given rows for every kernel and gates of shape (n, P), formed
        as `products`."""
        # Transposed, so that a vector and one column per class are written alike.
        each = [
            self.products((gates[:, m] * beta.T).T, rows, [m])[m] for m in range(self.n_kernels)
        ]
        return np.stack(each)

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None) -> Array:
        """Return ½ Σ_c β_cᵀ K_m β_c for every kernel, reading only rows and columns of the
        support."""
        support = nonzero_rows(beta)
        values = self.products(beta, support, kernels)
        return 0.5 * np.asarray(
            np.einsum("mi,i->m" if beta.ndim == 1 else "mic,ic->m", values, beta[support])
        )


class MatrixStack(GramStack):
    """Kernels that are read in blocks, wherever these come from.

    Attributes
    ----------
    entries : int
        Of a block that is worked on at once: whole rows of it on the host, squares on a device,
        whose cache is small.
    options : StackOptions
        Sizes that it works with.
    exact : ComputedStack or None
        The stack that computes entries in double precision; None if there is none.
    """

    entries: int
    options: StackOptions
    exact: Any = None

    def exact_products(self, beta: AnyArray, rows: Indices) -> Array:
        return np.asarray((self.exact if self.has_exact else self).products(beta, rows))

    def exact_gated_products(self, beta: AnyArray, gates: AnyArray) -> Array:
        if not self.has_exact:
            return super().exact_gated_products(beta, gates)
        support = nonzero_rows(beta)
        exact: ComputedStack = self.exact
        return exact.combined_products(support, beta[support], np.asarray(gates, dtype=np.float64))

    @property
    def part_samples(self) -> int:
        # No more memory than the combined kernel will take.
        return int(self.n_samples / np.sqrt(self.n_kernels + 1))

    @abstractmethod
    def take(self, rows: Indices, stored: bool = False) -> MatrixStack: ...

    @abstractmethod
    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        """Yield what `blocks` does as arrays of the backend."""

    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        for m, block in self.placed_blocks(kernels, rows, columns):
            yield m, self.backend.to_numpy(block)

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return row_strips(self.n_samples, self.entries // max(n_columns, 1))

    def pieces(
        self, n_rows: int, n_columns: int, lower: bool = False
    ) -> Iterator[tuple[slice, slice]]:
        """Cut a block, or the lower triangle of a square one, into pieces that are worked on at
        once."""
        side = n_columns if self.backend is NUMPY else int(np.sqrt(self.entries))
        height = self.entries // max(side, 1)
        for rows in row_strips(n_rows, height):
            yield from (
                (rows, columns) for columns in row_strips(rows.stop if lower else n_columns, side)
            )

    @property
    def loops(self) -> ModuleType | None:
        """The compiled passes over matrices, or None on a device and where there are few
        samples."""
        if self.backend is not NUMPY or self.n_samples <= self.options.few_samples:
            return None
        from kernelmosaic.gram import _numba_stack

        return _numba_stack

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        """Return the kernel combined by weights of shape (P,), or by gates of shape (n, P)."""
        factors = np.array(weights, dtype=np.float64)
        try:
            K = self.backend.empty((self.n_samples,) * 2, self.dtype) if out is None else out.matrix
        except RuntimeError as error:  # torch's own error does not name what the memory was for
            need = format_bytes(self.n_samples**2 * self.dtype.itemsize)
            raise MemoryError(
                f"A {self.n_samples} x {self.n_samples} kernel matrix needs {need} on"
                f" {self.backend.device}: use approximation='nystroem', or fewer samples."
            ) from error
        K = self._fill(factors, K)
        # On the host solvers read the stored entries; the certificate of the whole reads exact
        # ones, once.
        if not self.has_exact or self.backend is NUMPY:
            return DenseGram(K)
        return DenseGram(K, partial(self.exact.combined_products, factors=factors))

    def _fill(self, factors: Array, K: ArrayOrTensor) -> ArrayOrTensor:
        for rows, columns in self.pieces(self.n_samples, self.n_samples, lower=True):
            part = K[rows, columns]
            part[...] = 0.0
            self._accumulate(factors, rows, columns, part)
            mirror(K, rows, columns)
        return self._set_diagonal(K, factors)

    def _accumulate(self, factors: Array, rows: Rows, columns: Rows, out: ArrayOrTensor) -> None:
        """out += the combined kernel between rows and columns; kernels without a weight or gate are
        not read."""
        blocks = self.placed_blocks(active_kernels(factors), rows, columns)
        if factors.ndim == 1:
            for m, block in blocks:
                self.backend.add_scaled(out, block, float(factors[m]))
            return
        left, right = (self.backend.asarray(factors[some], self.dtype) for some in (rows, columns))
        for m, block in blocks:
            scaled = block * right[:, m]
            scaled *= left[:, m][:, None]
            out += scaled

    def _set_diagonal(self, K: ArrayOrTensor, factors: Array) -> ArrayOrTensor:
        """Write the combined diagonal where it is known better than by blocks."""
        known = None if self.exact is None else self.exact.placed_diagonals
        if known is not None:
            each = self.backend.asarray(
                factors[:, np.newaxis] if factors.ndim == 1 else factors.T**2
            )
            self.backend.diagonal_view(K)[...] = (each * known).sum(0)
        return K

    def inner_products(self, G: ArrayOrTensor, kernels: Kernels | None = None) -> Array:
        """Return ⟨G, K_m⟩ of every kernel, for a symmetric G where the stack is; zero of kernels
        not asked for."""
        n, asked = self.n_samples, self.asked(kernels)
        products = np.zeros(self.n_kernels)
        for strip in self.row_strips(n):
            for m, block in self.placed_blocks(asked, strip, slice(0, n)):
                exact = self.backend.astype(block, np.float64)
                products[m] += float(self.backend.xp.vdot(G[strip].reshape(-1), exact.reshape(-1)))
        return products

    def for_many_combinations(self) -> MatrixStack:
        """Return the same kernels in a form that is quick to combine with many weights, one after
        the other."""
        return self

    def exact_placed_products(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β of every kernel where the stack is, (P, n, columns), from entries in double
        precision."""
        source: MatrixStack = self.exact if self.has_exact else self
        out, every = source.backend.zeros((self.n_kernels, *beta.shape)), slice(0, self.n_samples)
        source._multiply(dict.fromkeys(range(self.n_kernels), beta), every, every, out)
        return out

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        support = nonzero_rows(beta)
        n_rows = self.n_samples if rows is None else len(rows)
        # A device sums in double precision, which takes it no longer.
        kind = self.dtype if self.backend is NUMPY else np.float64
        right = self.backend.asarray(
            beta[support].reshape(len(support), -1 if len(support) else 1), kind
        )
        out = self.backend.zeros((self.n_kernels, n_rows, *beta.shape[1:]))
        if len(support) and n_rows:
            at = slice(0, n_rows) if rows is None else rows
            self._multiply(
                dict.fromkeys(self.asked(kernels), right),
                at,
                support,
                out.reshape(self.n_kernels, n_rows, -1),
            )
        return self.backend.to_numpy(out)

    @abstractmethod
    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """out[m] += K_m[rows, columns] right[m]."""


class ComputedStack(MatrixStack):
    """Nothing stored but the samples: every block is computed on every use.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : Views or PlacedSamples
        The training samples as the kernels read them, or placed on the backend already.
    dtype : dtype
        Of the matrices.
    working_bytes : int, optional
        Memory for the blocks worked on at once; by default what a device's cache holds.
    backend : Backend
        Where to compute.
    budget : float, optional
        Bytes that a combined kernel may take: one that takes more is not stored, either. By default
        it may take all.
    options : StackOptions, optional
        Sizes that it works with.
    distances : dict, optional
        Between the training samples, as far as they are known; on the host.

    Attributes
    ----------
    diagonals : ndarray of shape (P, n) or None
        Of the kernels; None where combined kernels are written down on the host.
    """

    def __init__(
        self,
        kernel_set: KernelSet,
        views: Views | PlacedSamples,
        dtype: np.dtype[Any],
        working_bytes: int | None = None,
        backend: Backend = NUMPY,
        budget: float = np.inf,
        options: StackOptions | None = None,
        distances: Distances | None = None,
    ) -> None:
        self.kernel_set, self.dtype, self.backend, self.budget = kernel_set, dtype, backend, budget
        self.options = options or StackOptions()
        here = kernel_set.samples(views, distances=distances)
        self.samples = kernel_set.samples(here, backend)
        self.n_samples, self.n_kernels, self.has_exact = (
            self.samples.n_samples,
            len(kernel_set),
            dtype != np.float64,
        )
        self.stores_combined = self.n_samples**2 * dtype.itemsize <= budget
        self.placed_diagonals: Any = None
        # Samples less their mean, by view.
        self._centred: dict[int, Any] = {}
        self.writes_matrices = backend is NUMPY and self.stores_combined
        self.diagonals: Any = None if self.writes_matrices else kernel_set.diagonals(here)
        if backend is not NUMPY and all(self.samples.shares):
            # Exact; in blocks, products of a sample with itself are rounded.
            self.placed_diagonals = backend.asarray(self.diagonals)
        # The statistic, the kernel made of it and one temporary live at once, in double precision.
        self.entries = (
            self.options.tile_entries(backend)
            if working_bytes is None
            else max(1, working_bytes // (3 * 8))
        )

    @property
    def exact(self) -> ComputedStack:
        if not self.has_exact:
            return self
        exact = copy(self)
        exact.dtype, exact.has_exact = np.dtype(np.float64), False
        return exact

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        left = self.samples.take(rows)
        right = left if rows is columns else self.samples.take(columns)
        for m, block in self.kernel_set.blocks(left, right, self.asked(kernels), self.dtype):
            yield m, self.backend.astype(block, self.dtype)

    def write_square(
        self, kernels: Kernels, matrices: AnyArray, loops: Any, square: tuple[slice, slice]
    ) -> None:
        """Write a square of the lower triangle of matrices on the host, and its mirror image."""
        (rows, columns), rest = square, self.asked(kernels)
        left, right = self.samples.take(rows), self.samples.take(columns)
        for members in self._gaussians(rest):
            constants = np.array(self._constants(members, np.ones(self.n_kernels)), self.dtype)
            known = left.known(members[0], "squared_distances", right)
            if known is not None:
                distances = np.ascontiguousarray(known, dtype=self.dtype)
            else:
                distances = np.empty([some.stop - some.start for some in square], self.dtype)
                loops.write_distances(
                    self._tile_between(members[0], rows, columns, constants[0]), distances
                )
            loops.write_gaussians(
                distances, *constants, np.array(members), matrices, rows.start, columns.start
            )
            rest = [m for m in rest if m not in members]
        for m, block in self.placed_blocks(rest, *square):
            _write_square(matrices[m], square, block, loops)

    def _tile_between(self, m: int, rows: Rows, columns: Rows, rates: Sequence[float]) -> Any:
        """Return what distances between samples that a kernel reads are read off, for Gaussians
        with these rates."""
        from kernelmosaic.gram._numba_stack import Centred

        v = self.samples.views.which[m]
        if v not in self._centred:
            view = self.samples.views[m]
            self._centred[v] = Centred.of(view, view.mean(axis=0))
        left, right = (self._centred[v].take(some) for some in (rows, columns))
        return left.tile(right, left.unreliable(right, rates, self.dtype))

    def squares(self) -> list[tuple[slice, slice]]:
        """Cut the lower triangle into squares for the host's cache; one on the diagonal has one
        slice twice."""
        side = int(min(self.options.cache_bytes // self.dtype.itemsize, self.entries) ** 0.5)
        strips = list(row_strips(self.n_samples, max(side - side % 16, 1)))
        return [(rows, columns) for i, rows in enumerate(strips) for columns in strips[: i + 1]]

    def is_cheap(self, kernels: Sequence[int]) -> bool:
        """Whether kernels may as well be computed in many small blocks here, on any thread, as in
        few tall ones."""
        inner = [self.kernel_set.fitted[m].kernel.inner for m in kernels]
        dense = all(isinstance(self.samples.views[m], np.ndarray) for m in kernels)
        return self.backend is NUMPY and dense and all(one.costs_by_entries for one in inner)

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        if self.stores_combined:
            return super().combine(weights, out)
        return OnDemandGram(self, np.array(weights, dtype=np.float64))

    @property
    def part_samples(self) -> int:
        # On the host all matrices of a part are stored, on a device the combined one is; in half of
        # the budget.
        numbers = (
            0.5
            * self.budget
            / self.dtype.itemsize
            / (self.n_kernels + 1 if self.backend is NUMPY else 1)
        )
        return int(min(super().part_samples, numbers**0.5))

    def take(self, rows: Indices, stored: bool = False) -> MatrixStack:
        some = copy(self)
        some.samples, some.n_samples, some._centred = self.samples.take(rows), len(rows), {}
        some.stores_combined = len(rows) ** 2 * self.dtype.itemsize <= self.budget
        some.placed_diagonals = (
            None
            if self.placed_diagonals is None
            else self.placed_diagonals[:, self.backend.index(rows)]
        )
        some.diagonals = None if self.diagonals is None else self.diagonals[:, rows]
        # The matrices of a part fit where one of all samples will.
        return StoredStack.of(some) if stored and self.backend is NUMPY else some

    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        left, across = self.samples.take(rows), self.samples.take(columns)
        rest = list(right) if across.n_samples else []
        for members in self._gaussians(rest):
            # On a device those beside other kernels share their distances.
            alone = self.backend is NUMPY or members == list(right)
            if alone and self._multiply_gaussians(members, right, left, across, out):
                rest = [m for m in rest if m not in members]
        if not rest:
            return
        height, width = self._tile(rest, out.shape[1], across.n_samples)

        def multiply(strip: slice) -> None:
            part = left.take(strip)
            for below in row_strips(across.n_samples, width):
                for m, block in self.kernel_set.blocks(part, across.take(below), rest, self.dtype):
                    own = right[m][below]
                    out[m, strip] += self.backend.astype(block, self.backend.dtype(own)) @ own

        self._each(multiply, row_strips(out.shape[1], height), rest)

    def _tile(self, kernels: Sequence[int], n_rows: int, n_columns: int) -> tuple[int, int]:
        """Return the height and width of the blocks that are computed at once."""
        if self.is_cheap(kernels):
            return self.options.host_tile
        rows, columns = next(self.pieces(n_rows, n_columns))
        return rows.stop, columns.stop

    def _each(
        self, work: Callable[[Any], None], items: Iterable[Any], kernels: Sequence[int]
    ) -> None:
        """Do some work on every item, on all cores where that pays."""
        cheap = self.is_cheap(kernels)
        with one_blas_thread() if cheap else nullcontext():
            run_threads(work, items, cheap * self.n_samples * self.options.host_tile[1])

    def combined_products(self, support: Indices, beta: Array, factors: Array) -> Array:
        """Return Kβ of the kernel combined by weights (P,) or gates (n, P); β, at the support, has
        columns or none."""
        gated = factors.ndim == 2
        if self.backend is NUMPY and beta.ndim > 1 and not gated and self.dtype != np.float64:
            return self._weighted_products(factors, support, beta)
        # A device sums in double precision, which takes it no longer.
        kind = self.dtype if self.backend is NUMPY else np.float64
        columns = self.backend.asarray(beta.reshape(len(support), *(beta.shape[1:] or (1,))), kind)
        scales = self.backend.asarray(factors[support] if gated else factors[np.newaxis], kind)
        right = {int(m): scales[:, m : m + 1] * columns for m in active_kernels(factors)}
        out = self.backend.zeros((self.n_kernels, self.n_samples, columns.shape[1]))
        self._multiply(right, slice(0, self.n_samples), support, out)
        if gated:
            out *= self.backend.asarray(factors.T)[:, :, None]
        values = self.backend.to_numpy(out.sum(0))
        return values.reshape(self.n_samples, *beta.shape[1:])

    def _weighted_products(self, weights: Array, support: Indices, beta: Array) -> Array:
        """Return Σ_m weights_m K_m β on the host: kernels are combined before they are multiplied
        with many columns."""
        active, right = np.flatnonzero(weights).tolist(), beta.astype(self.dtype)
        height, width = self._tile(active, self.n_samples, max(len(support), 1))
        out = np.zeros((self.n_samples, *beta.shape[1:]))

        def multiply(strip: slice) -> None:
            for below in row_strips(len(support), width):
                block = np.zeros(
                    (strip.stop - strip.start, below.stop - below.start), dtype=self.dtype
                )
                self._accumulate(weights, strip, support[below], block)
                out[strip] += block @ right[below]

        self._each(multiply, row_strips(self.n_samples, height), active)
        return out

    # Gaussians on a device, whose compiled passes read the samples themselves ---------------------

    def _fill(self, factors: Array, K: ArrayOrTensor) -> ArrayOrTensor:
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
            block = np.zeros([some.stop - some.start for some in square], dtype=K.dtype)
            self._accumulate(factors, *square, block)
            _write_square(K, square, block, loops)

        self._each(fill, self.squares(), active)
        return K

    def _accumulate(self, factors: Array, rows: Rows, columns: Rows, out: ArrayOrTensor) -> None:
        rest = factors.copy()
        # On the host only sums in single precision are compiled.
        if factors.ndim == 1 and (self.backend is not NUMPY or self.dtype == np.float32):
            for members in self._gaussians(np.flatnonzero(factors).tolist()):
                self._add_gaussians(members, factors, rows, columns, out)
                rest[members] = 0.0
        if rest.any():
            super()._accumulate(rest, rows, columns, out)

    def _add_gaussians(
        self, members: list[int], weights: Array, rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        """out += the weighted sum of Gaussians that read the same samples."""
        constants = self._constants(members, weights)
        if self.backend is not NUMPY:
            from kernelmosaic.gpu import add_gaussians as add_there

            left, right = self.samples.take(rows), self.samples.take(columns)
            add_there(self.kernel_set.statistic(members, left, right), *constants, out)
            return
        from kernelmosaic.gram._numba_stack import add_gaussians

        tile = self._tile_between(members[0], rows, columns, constants[0])
        add_gaussians(tile, *(np.array(one, dtype=np.float32) for one in constants), out)

    def _multiply_gaussians(
        self,
        members: list[int],
        right: dict[int, Any],
        left: PlacedSamples,
        across: PlacedSamples,
        out: ArrayOrTensor,
    ) -> bool:
        """Add products of Gaussians of the same samples to `out`, on a device those with one
        vector; return whether."""
        if out.shape[2] > 1 and self.backend is not NUMPY:
            return False
        rates, factors = self._constants(members, np.ones(self.n_kernels))
        beta = self.backend.xp.stack(
            [right[m] * factor for m, factor in zip(members, factors, strict=True)]
        )
        L, R = left.views[members[0]], across.views[members[0]]
        if self.backend is NUMPY:
            found: Any = self._multiply_here(L, R, rates, beta.astype(self.dtype))
        else:
            from kernelmosaic.gpu import multiply_directly

            found = multiply_directly(L.T, R, rates, beta[:, :, 0], self.dtype == np.float64)
            found = None if found is None else found[:, :, None]
        if found is not None:
            out[members] += found
        return found is not None

    def _multiply_here(
        self, left: AnyArray, right: AnyArray, rates: list[float], beta: AnyArray
    ) -> Array:
        """Return products of Gaussians with β of shape (Gaussians, samples, columns)."""
        from kernelmosaic.gram._numba_stack import (
            Centred,
            multiply_gaussians,
            write_distances,
            write_gaussian,
        )

        L, R = (Centred.of(view, right.mean(axis=0)) for view in (left, right))
        share = L.unreliable(R, rates, self.dtype)
        found, factors = (
            np.zeros((len(rates), len(left), beta.shape[2])),
            np.array(rates, dtype=self.dtype),
        )
        height, width = self.options.host_tile
        # The exponentials that several vectors are multiplied with stay in the cache.
        height = height if beta.shape[2] == 1 else max(height // 4, 1)

        def multiply(strip: slice) -> None:
            for below in row_strips(len(right), width):
                tile = L.take(strip).tile(R.take(below), share)
                if beta.shape[2] == 1:
                    vector = np.ascontiguousarray(beta[:, below, 0])
                    multiply_gaussians(tile, factors, vector, found[:, strip, 0])
                    continue
                distances, block = np.empty((2, *tile[0].shape), dtype=self.dtype)
                write_distances(tile, distances)
                for m, rate in enumerate(factors):
                    write_gaussian(distances, rate, rate.dtype.type(1), block)
                    found[m, strip] += block @ beta[m, below]

        with one_blas_thread():
            run_threads(multiply, row_strips(len(left), height), self.n_samples * width)
        return found

    def _gaussians(self, kernels: Sequence[int]) -> list[list[int]]:
        """Return the kernels that are Gaussians up to one factor, in groups that read the same
        samples."""
        groups: dict[int, list[int]] = {}
        here = self.backend is NUMPY
        for m in kernels if not here or self.n_samples > self.options.few_samples else ():
            one = self.kernel_set.fitted[m]
            # A subclass may have another formula than its parent.
            plain = type(one.kernel.inner) is Gaussian and isinstance(
                one.normalization, Unscaled | UnitTrace
            )
            dense = not here or isinstance(self.samples.views[m], np.ndarray)
            if plain and dense and self.samples.shares[m]:
                groups.setdefault(self.samples.views.which[m], []).append(m)
        return list(groups.values())

    def _constants(
        self, gaussians: Sequence[int], weights: Array
    ) -> tuple[list[float], list[float]]:
        """Return what squared distances are multiplied with in the exponents, and the weights on
        the kernels' scale."""
        fitted = [self.kernel_set.fitted[m] for m in gaussians]
        kernels = [one.kernel.inner for one in fitted]
        rates = [kernel.rate(np.float32) for kernel in kernels if isinstance(kernel, Gaussian)]
        scales = [float(getattr(one.normalization, "scale_", 1.0)) for one in fitted]
        return rates, [
            float(weights[m]) / scale for m, scale in zip(gaussians, scales, strict=True)
        ]


class StoredStack(MatrixStack):
    """All matrices in memory, in one array of shape (P, n, n).

    Parameters
    ----------
    matrices : array of shape (P, n, n)
        Of NumPy or torch.
    computed : ComputedStack, optional
        What the matrices were computed by.
    options : StackOptions, optional
        Sizes that it works with; by default those of what computed it.
    """

    def __init__(
        self,
        matrices: ArrayOrTensor,
        computed: ComputedStack | None = None,
        options: StackOptions | None = None,
    ) -> None:
        self.matrices, self.computed, self.backend = matrices, computed, backend_of(matrices)
        self.exact = None if computed is None else computed.exact
        self.options = options or (StackOptions() if computed is None else computed.options)
        self.n_kernels, self.n_samples, _ = (int(size) for size in matrices.shape)
        self.dtype = self.backend.dtype(matrices)
        self.nbytes = self.n_kernels * self.n_samples**2 * self.dtype.itemsize
        self.has_exact = computed is not None and self.dtype != np.float64
        self.writes_matrices = self.backend is NUMPY
        self.entries = self.options.cache_bytes // self.dtype.itemsize
        if self.backend is not NUMPY:
            self.entries = (
                self.options.tile_entries(self.backend) if computed is None else computed.entries
            )

    @classmethod
    def of(cls, computed: ComputedStack) -> StoredStack:
        """Store what a stack computes."""
        n, backend = computed.n_samples, computed.backend
        matrices = backend.empty((computed.n_kernels, n, n), computed.dtype)
        loops, kernels = computed.loops, list(range(computed.n_kernels))
        if loops is not None:
            cheap = [m for m in kernels if computed.is_cheap([m])]
            kernels = [m for m in kernels if m not in cheap]
            # A statistic and the kernels that are functions of it stay in the cache; memory is
            # written to once an entry, and never read.
            with one_blas_thread():
                write = partial(computed.write_square, cheap, matrices, loops)
                run_threads(write, computed.squares() if cheap else [], matrices.nbytes)
        for rows, columns in computed.pieces(n, n, lower=True) if kernels else ():
            for m, block in computed.placed_blocks(kernels, rows, columns):
                matrices[m][rows, columns] = block
                if loops is None:
                    mirror(matrices[m], rows, columns)
        if loops is not None and kernels:
            run_threads(
                lambda m: loops.mirror_lower(matrices[m], 0, n),
                kernels,
                len(kernels) * matrices[0].nbytes,
            )
        if computed.placed_diagonals is not None:
            for K, one in zip(matrices, np.eye(computed.n_kernels), strict=True):
                computed._set_diagonal(K, one)
        return cls(matrices, computed)

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        rows, columns = self.backend.index(rows), self.backend.index(columns)
        for m in kernels:
            K = self.matrices[m]
            if isinstance(rows, slice) or isinstance(columns, slice):
                yield int(m), K[rows, columns]
            else:
                yield int(m), self.backend.take_block(K, rows, columns)

    @cached_property
    def _triangles(self) -> TriangleStack:
        return TriangleStack.of(self.matrices)

    def for_many_combinations(self) -> MatrixStack:
        """Return the lower triangles where these are many numbers for NumPy's passes and few for
        the memory."""
        n_bytes = 8 * self.n_kernels * _triangle_size(self.n_samples)
        is_here = self.backend is NUMPY and self.dtype == np.float64
        return self._triangles if is_here and n_bytes <= self.options.triangle_bytes else self

    def take(self, rows: Indices, stored: bool = True) -> StoredStack:
        matrices = self.backend.empty((self.n_kernels, len(rows), len(rows)), self.dtype)
        for m, block in self.placed_blocks(range(self.n_kernels), rows, rows):
            matrices[m] = block
        computed = None if self.computed is None else cast(ComputedStack, self.computed.take(rows))
        return StoredStack(matrices, computed, self.options)

    def _fill(self, factors: Array, K: ArrayOrTensor) -> ArrayOrTensor:
        if self.loops is not None:
            combine = self.loops.combine if factors.ndim == 1 else self.loops.combine_gated
            return combine(self.matrices, factors, K)
        if self.backend is not NUMPY or factors.ndim == 2:
            return super()._fill(factors, K)
        active = np.flatnonzero(factors)
        matrices = self.matrices if len(active) == self.n_kernels else self.matrices[active]
        return np.einsum(
            "m,mij->ij", factors[active].astype(self.dtype), matrices, out=K, casting="same_kind"
        )

    def combine_classes(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        if self.loops is None:
            return super().combine_classes(weights, out)
        return self.loops.combine_classes(self.matrices, weights, out)

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        if self.loops is None:
            return super().products(beta, rows, kernels)
        return np.asarray(self.loops.products(self.matrices, beta, rows, kernels, self.entries))

    def _multiply(
        self, right: dict[int, Any], rows: Rows, columns: Rows, out: ArrayOrTensor
    ) -> None:
        # Whole rows at a time: picking columns out of them would take longer than what it saves.
        at = self.backend.index(rows)
        for m, own in right.items():
            full = self.backend.zeros((self.n_samples, own.shape[1]), self.backend.dtype(own))
            full[self.backend.index(columns)] = own
            for strip in row_strips(out.shape[1], 8 * self.entries // self.n_samples):
                some = self.matrices[m][strip if isinstance(at, slice) else at[strip]]
                out[m, strip] = self.backend.astype(some, self.backend.dtype(own)) @ full


class TriangleStack(MatrixStack):
    """The lower triangles of all matrices in memory, in double precision on the host: half of the
    numbers.

    Combining the kernels, and inner products with another matrix, are products of one matrix with a
    vector.

    Parameters
    ----------
    triangles : ndarray of shape (P, n (n + 1) / 2)
        Row by row.
    n_samples : int
        n.
    """

    def __init__(self, triangles: Array, n_samples: int) -> None:
        self.triangles, self.n_kernels, self.n_samples = triangles, len(triangles), n_samples
        self.dtype, self.nbytes = triangles.dtype, triangles.nbytes
        self.options = StackOptions()
        self.entries = self.options.cache_bytes // self.dtype.itemsize

    @classmethod
    def of(cls, matrices: Array) -> TriangleStack:
        """Return the stack of symmetric matrices, of shape (P, n, n)."""
        n_kernels, n, _ = matrices.shape
        return cls(matrices.reshape(n_kernels, -1).take(_Triangle.of(n).entries, axis=1), n)

    @property
    def _triangle(self) -> _Triangle:
        return _Triangle.of(self.n_samples)

    def placed_blocks(
        self, kernels: Kernels, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Any]]:
        places = self._triangle.places[rows][:, columns]
        for m in kernels:
            yield int(m), self.triangles[m].take(places)

    def take(self, rows: Indices, stored: bool = True) -> TriangleStack:
        places = self._triangle.places[np.ix_(rows, rows)].reshape(-1)
        return TriangleStack(
            self.triangles.take(places[_Triangle.of(len(rows)).entries], axis=1), len(rows)
        )

    def for_many_combinations(self) -> MatrixStack:
        return self

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Gram:
        if np.ndim(weights) > 1:
            return super().combine(weights, out)
        combined = np.asarray(weights, dtype=np.float64) @ self.triangles
        return DenseGram(combined.take(self._triangle.places))

    def inner_products(self, G: ArrayOrTensor, kernels: Kernels | None = None) -> Array:
        lower = G.reshape(-1).take(self._triangle.entries) * self._triangle.counts
        products = self.triangles @ lower
        if kernels is not None:
            products[np.setdiff1d(np.arange(self.n_kernels), self.asked(kernels))] = 0.0
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
    """Where the entries of a lower triangle are.

    Attributes
    ----------
    entries : ndarray of shape (n (n + 1) / 2,)
        Numbers of the entries of the triangle among the n² of the matrix, row by row.
    places : ndarray of shape (n, n)
        The place in the triangle of every entry of the matrix, or of its mirror image.
    counts : ndarray of shape (n (n + 1) / 2,)
        How often an entry of the triangle is in the matrix: once on the diagonal, else twice.
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
    """K_c from the matrices of a stack, which are read for every product and block.

    Parameters
    ----------
    stack : GramStack
        The kernels, on the host or a device.
    weights : ndarray of shape (classes, P)
        The weights d.
    """

    def __init__(self, stack: GramStack, weights: Array, block_numbers: int = 2**27) -> None:
        self.stack, self.weights = stack, weights
        self.active = np.flatnonzero(np.any(weights != 0, axis=0))
        self.n_samples, self.n_classes, self.dtype = stack.n_samples, len(weights), stack.dtype
        self.block_samples = int(np.sqrt(block_numbers / max(self.n_classes, len(self.active))))

    def products(self, beta: Array, exact: bool = False) -> Array:
        products = self.stack.products(beta, kernels=self.active)
        return np.asarray(
            np.einsum("cm,mic->ic", self.weights[:, self.active], products[self.active])
        )

    def block(self, rows: Indices) -> Block:
        out = np.zeros((self.n_classes, len(rows), len(rows)), dtype=self.stack.dtype)
        for m, block in self.stack.blocks(self.active, rows, rows):
            for c in np.flatnonzero(self.weights[:, m]):
                out[c] += out.dtype.type(self.weights[c, m]) * block
        return out

    def diagonal(self) -> Array:
        grams = (self.stack.combine(own) for own in self.weights)
        return np.column_stack([gram.diagonal() for gram in grams])


def _write_square(K: AnyArray, square: tuple[slice, slice], block: AnyArray, loops: Any) -> None:
    """Write a square of the lower triangle, and its mirror image."""
    rows, columns = square
    block = np.ascontiguousarray(block)
    if rows is columns:
        loops.mirror_lower(block, 0, len(block))
    else:
        loops.write_transposed(block, K, columns.start, rows.start)
    K[rows, columns] = block


def mirror(K: ArrayOrTensor, rows: slice, columns: slice) -> None:
    """Copy a piece of the lower triangle into the upper; a square on the diagonal is made
    symmetric."""
    left = slice(columns.start, min(columns.stop, rows.start))
    K[left, rows] = K[rows, left].T
    if columns.stop > rows.start:
        square, tril = K[rows, rows], backend_of(K).xp.tril
        square[...] = tril(square) + tril(square, -1).T


def matrix_dtype(n_samples: int, dtype: DType = None, double_samples: int = 500) -> np.dtype[Any]:
    """Return the precision of stored matrices: the given one, else double for small sets and single
    above."""
    return np.dtype(
        dtype if dtype is not None else (np.float64 if n_samples <= double_samples else np.float32)
    )


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
    """Return the stack of a training set: stored if it fits the budget, else computed whenever it
    is needed.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : Views
        The training samples as the kernels read them.
    dtype : dtype, optional
        Of the matrices. By default double precision for small sets and single precision above.
    budget : float, optional
        Bytes the stack and one combined matrix may take; by default half of the free memory.
    device : str, optional
        A torch device to keep the stack on, such as ``"cuda"``; the budget is then of its memory,
        by default most of what is free there.
    working_bytes : int, optional
        Memory for the blocks worked on at once where matrices are computed; by default a share of
        the budget, or what a device's cache holds.
    options : StackOptions, optional
        Sizes that stacks work with.
    distances : dict, optional
        Between the training samples, as far as they are known; kept where the budget has room for
        them, too.
    stores : bool
        Whether the matrices are to be stored; False where all samples are read a few times only.
    """
    n = views[0].shape[0]
    dtype, options = matrix_dtype(n, dtype), options or StackOptions()
    backend = backend_on(device)
    budget = default_budget(backend) if budget is None else budget
    matrix = n * n * dtype.itemsize
    where = "" if device is None else f" on {backend.device}"
    room = f"the budget is {format_bytes(budget)}"
    # Beside the stack one combined matrix, and on a device the blocks that the solver takes out of
    # it.
    count = len(kernel_set) + (1 if device is None else 2)
    stored, combined = stores and count * matrix <= budget, matrix <= budget
    if working_bytes is None and device is None:
        # Tall strips keep the matrix products busy; a sixteenth of one matrix is still nothing
        # beside the stack.
        tall = 3 * max(2 * options.cache_bytes, matrix // 16)
        share = max(int(min(budget - matrix, budget / 8)), 2**20)
        working_bytes = tall if stored else share if combined else options.on_demand_bytes
    most = np.inf if combined else budget
    if device is not None or count * matrix + 8 * n * n * len(distances or ()) > budget:
        distances = None
    stack: MatrixStack = ComputedStack(
        kernel_set, views, dtype, working_bytes, backend, most, options, distances
    )
    if stored:
        stack = StoredStack.of(cast(ComputedStack, stack))
        stack.form = (
            f"{len(kernel_set)} kernel matrices of {format_bytes(matrix)} are stored{where}, {room}"
        )
    elif combined:
        needed = (
            f"{count} kernel matrices would need {format_bytes(count * matrix)}{where}, {room}: "
            if stores
            else ""
        )
        stack.form = (
            f"{needed}the combined one is stored, the others are computed whenever they are needed"
        )
    else:
        stack.form = (
            f"one combined {n} x {n} kernel matrix needs {format_bytes(matrix)}{where}, {room}:"
            " entries are computed whenever they are needed, for working sets of up to"
            f" {options.block_samples(n, budget, dtype)} samples"
        )
    return stack
