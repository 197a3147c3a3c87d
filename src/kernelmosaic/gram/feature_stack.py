"""The stack of kernels in features: every operation costs a pass over n × r numbers.

No matrix is n × n. Features are arrays of a backend, on the host or on a device, and are stored or
computed anew in strips; the passes are the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, RowIndex
from kernelmosaic.backend import (
    NUMPY,
    Backend,
    allowed_threads,
    as_slice,
    backend_of,
    is_tensor,
    row_strips,
    run_threads,
)
from kernelmosaic.gram.factored import FactoredClasses, FactoredGram
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.gram import as_input
from kernelmosaic.gram.kernel_set import Kernels
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.options import PASSES, PassOptions
from kernelmosaic.gram.row_blocks import Rows, RowSource
from kernelmosaic.gram.stack import GramStack, StoredStack
from kernelmosaic.kernels.base import Block


class FeatureStack(GramStack):
    """P kernels K_m = Z_m Z_mᵀ of the same n samples, each with a few features per sample.

    Attributes
    ----------
    widths : ndarray of shape (P,)
        The number of features of every kernel.
    options : PassOptions
        How passes over the rows are made.
    rows_read : int
        Rows of features read so far, over all operations.
    shareable : bool
        Whether several threads may use the stack at once, and are faster if they do.
    """

    writes_matrices = False
    widths: Indices
    options: PassOptions = PassOptions()
    rows_read: int = 0
    shareable: bool = False

    @abstractmethod
    def placed_features(self, rows: RowIndex, kernels: Kernels) -> Iterator[tuple[int, Any]]:
        """Yield (m, Z_m[rows]) for these kernels, arrays of the backend that are read only."""

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        """Yield (m, Z_m[rows]) for these kernels, arrays of NumPy."""
        for m, Z in self.placed_features(rows, kernels):
            yield m, self.backend.to_numpy(Z)

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return the combined kernel in its factors; nothing is computed yet.

        Weights have the shape (P,), gates (n, P).
        """
        weights = np.asarray(weights, dtype=np.float64)
        if weights.ndim == 1:
            return self.factors(weights)
        gates = weights
        has_gate = np.any(gates != 0, axis=0)
        return self.factors(has_gate.astype(np.float64), gates)

    def factors(self, weights: Array, gates: Array | None = None) -> FactoredGram:
        """Return Σ_m weights_m g_m g_mᵀ ∘ K_m in its factors; without gates the g_m are one."""
        return StackFactors(self, weights, gates)

    def combine_classes(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return Σ_m weights[c, m] K_m of every class in factors, which all classes share."""
        is_active = np.any(weights != 0, axis=0)
        active_weights = np.asarray(weights, dtype=np.float64)[:, is_active]
        scales = np.repeat(active_weights, self.widths[is_active], axis=1)
        gram = self.combine(is_active.astype(np.float64))
        return FactoredClasses(gram, scales, self.options.block_numbers)

    @property
    def part_samples(self) -> int:
        """The most samples that `take` should be given; 0 where a part is no help."""
        # A search that starts from equal weights multiplies all features by each other. Where these
        # are many, it starts from weights learned on a part of the samples instead, which need few
        # kernels. The matrices of the part take no more memory than the features.
        n_features = int(self.widths.sum())
        if self.backend is not NUMPY or n_features <= self.options.many_features:
            return 0
        affordable_samples = int(np.sqrt(self.n_samples * n_features / self.n_kernels))
        return min(affordable_samples, self.options.part_samples)

    def take(self, rows: Indices, stored: bool = False) -> StoredStack:
        """Return the matrices of some samples, in single precision."""
        matrices = np.empty((self.n_kernels, len(rows), len(rows)), dtype=np.float32)
        for m, Z in self.features(rows, range(self.n_kernels)):
            np.matmul(Z, Z.T, out=matrices[m], casting="same_kind")
        return StoredStack(matrices)

    def stored_part(self, rows: Indices) -> StoredFeatures:
        """Return the features of some samples, stored."""
        features = dict(self.placed_features(rows, range(self.n_kernels)))
        return StoredFeatures([features[m] for m in range(self.n_kernels)])

    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        """Yield (m, K_m[rows][:, columns]) for these kernels, as products of features."""
        right = dict(self.features(columns, kernels))
        for m, left in self.features(rows, kernels):
            yield m, left @ right[m].T

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        """Yield strips whose features, and blocks of `n_columns` columns, fit the memory."""
        width = max(n_columns + int(self.widths.sum()), 1)
        return row_strips(self.n_samples, self.options.strip_bytes // (8 * width))

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        """Return K_m β = Z_m (Z_mᵀ β) at these rows for every kernel."""
        return self.outputs(self.sums(beta, kernels), beta.shape[1:], rows)

    def gated_products(self, beta: AnyArray, gates: AnyArray, rows: Indices) -> Array:
        """Return K_m (g_m ∘ β) at these rows for every kernel."""
        return self.outputs(self.sums(beta, None, gates), beta.shape[1:], rows)

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None) -> Array:
        """Return ½ Σ_c β_cᵀ K_m β_c = ½ ‖Z_mᵀ β‖² for every kernel, of shape (P,)."""
        out = np.zeros(self.n_kernels)
        for m, total in self.sums(beta, kernels).items():
            out[m] = 0.5 * float(np.sum(total * total))
        return out

    def sums(
        self, beta: AnyArray, kernels: Kernels | None, gates: AnyArray | None = None
    ) -> dict[int, Array]:
        """Return Z_mᵀ β, or Z_mᵀ (g_m ∘ β) with gates, for every kernel m.

        Rows where β is zero are not read.

        Parameters
        ----------
        beta : ndarray of shape (n,) or (n, k)
            Coefficients.
        kernels : sequence of int or None
            The kernels; None means all.
        gates : ndarray of shape (n, P), optional
            The gates g.
        """
        support = nonzero_rows(beta)
        numbers = self.kernel_numbers(kernels)
        if len(support) == 0:
            return {m: np.zeros((self.widths[m], *beta.shape[1:])) for m in numbers}
        totals: dict[int, Any] = dict.fromkeys(numbers, 0.0)
        for rows in self.strips(support):
            coefficients = self.backend.asarray(beta[rows])
            strip_gates = None if gates is None else self.backend.asarray(gates[rows].T)
            for m, Z in self.placed_features(rows, numbers):
                gate = None if strip_gates is None else strip_gates[m]
                totals[m] += _times(Z, apply_gate(coefficients, gate), transposed=True)
        return {m: self.backend.to_numpy(total) for m, total in totals.items()}

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: Indices | None = None
    ) -> Array:
        """Return Z_m s_m at these rows for the sums s_m of every kernel, of shape (P, n_rows, k).

        Parameters
        ----------
        sums : dict of int to ndarray
            For each kernel, an array of shape (width,) or (width, k), as the method `sums` returns
            them. The outputs of other kernels are zero.
        columns : tuple of int
            (k,), or empty if the sums have one dimension; the last axis of the result is then
            absent.
        rows : ndarray of int, optional
            Row numbers; by default all.
        """
        right = {m: self.backend.asarray(total) for m, total in sums.items()}
        n_rows = self.row_count(rows)
        out = np.zeros((self.n_kernels, n_rows, *columns))
        start = 0
        for strip in self.strips(rows):
            for m, Z in self.placed_features(strip, list(sums)):
                out[m, start : start + len(Z)] = self.backend.to_numpy(_times(Z, right[m]))
            start += _length(strip)
        return out

    def strips(self, which: RowIndex = None, copied: bool = False) -> Iterator[Any]:
        """Yield strips of these rows that are worked on at once, as slices or row numbers.

        Parameters
        ----------
        which : array of int, optional
            Row numbers, an index of the backend or an array of NumPy; by default all rows.
        copied : bool
            Whether the pass copies each strip. If not, features that are stored on a device are
            read in one strip.
        """
        n_rows = self.row_count(which)
        self.rows_read += n_rows
        for strip in row_strips(n_rows, self._height(copied)):
            yield strip if which is None else which[strip]

    def _height(self, copied: bool) -> int:
        """Return the number of rows of a strip; `copied` is as in `strips`."""
        return self.options.strip_bytes // (8 * max(int(self.widths.sum()), 1))


class StoredFeatures(FeatureStack):
    """All features in memory, in one array per kernel.

    Parameters
    ----------
    arrays : list of array of shape (n, width)
        Of NumPy or torch.
    options : PassOptions, optional
        How passes over the rows are made.
    """

    is_stored = True

    def __init__(self, arrays: list[Any], options: PassOptions | None = None) -> None:
        self.arrays = arrays
        self.backend = backend_of(arrays[0])
        self.options = options or PASSES[self.backend.name]
        self.n_kernels = len(arrays)
        self.n_samples = len(arrays[0])
        self.dtype = self.backend.dtype(arrays[0])
        self.widths = np.array([int(Z.shape[1]) for Z in arrays], dtype=np.intp)
        n_features = int(self.widths.sum())
        self.nbytes = self.n_samples * n_features * self.dtype.itemsize
        if self.backend is NUMPY and n_features > self.n_samples:
            self.form = (
                f"{n_features} features outnumber the {self.n_samples} samples, whose combined"
                " kernels are written down"
            )
        # The precision of products of single-precision arrays is a setting of the whole process,
        # and products of many features use every core by themselves.
        has_few_features = n_features <= self.options.few_features
        is_double_on_host = self.backend is NUMPY and self.dtype == np.float64
        self.shareable = is_double_on_host and has_few_features

    @classmethod
    def fill(cls, computed: ComputedFeatures, options: PassOptions | None = None) -> StoredFeatures:
        """Return the features of a stack that computes them, all in memory.

        The options are by default those of that stack.
        """
        n, backend = computed.n_samples, computed.backend
        arrays = [backend.empty((n, int(width)), computed.dtype) for width in computed.widths]
        for strip in computed.strips():
            for m, Z in computed.placed_features(strip, range(len(arrays))):
                arrays[m][strip] = Z
        return cls(arrays, options or computed.options)

    def placed_features(self, rows: RowIndex, kernels: Kernels) -> Iterator[tuple[int, Any]]:
        """Yield (m, Z_m[rows]) for these kernels, read from memory."""
        if isinstance(rows, np.ndarray):
            rows = as_slice(rows)
        index = self.backend.index(rows)
        for m in kernels:
            yield int(m), self.arrays[m][index]

    def _height(self, copied: bool) -> int:
        """Return the number of rows of a strip; `copied` is as in `strips`."""
        # Compiled passes on a device read features that are stored there without a copy.
        if self.backend is not NUMPY and not copied:
            return self.n_samples
        return super()._height(copied)


class ComputedFeatures(FeatureStack):
    """Features of which nothing is stored: every pass computes them from the samples, in strips.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The fitted feature maps.
    source : RowSource
        The training samples.
    dtype : dtype
        The precision of the features.
    options : PassOptions
        How passes over the rows are made.
    backend : Backend
        Where features are computed.
    """

    def __init__(
        self,
        kernel_set: FeatureMaps,
        source: RowSource,
        dtype: DType,
        options: PassOptions | None = None,
        backend: Backend = NUMPY,
    ) -> None:
        self.maps = kernel_set
        self.source = source
        self.backend = backend
        self.landmarks = kernel_set.place_landmarks(backend)
        self.options = options or PASSES[backend.name]
        self.n_kernels = len(kernel_set)
        self.n_samples = source.shape[0]
        self.dtype = np.dtype(dtype)
        self.widths = kernel_set.widths

    def placed_features(self, rows: RowIndex, kernels: Kernels) -> Iterator[tuple[int, Any]]:
        """Yield (m, Z_m[rows]) for these kernels, computed from the samples."""
        if not isinstance(rows, slice | np.ndarray):
            rows = self.backend.to_numpy(rows)
        samples = self.source.take(as_slice(rows))
        yield from self.maps.blocks(samples, kernels, self.dtype, self.backend, self.landmarks)

    def _height(self, copied: bool) -> int:
        """Return the number of rows of a strip that fits the memory."""
        # The samples, and three arrays as wide as the features: the block with the landmarks, the
        # features and one temporary, each in double precision.
        row_numbers = self.source.row_width + 3 * int(self.widths.sum()) + 1
        return self.options.strip_bytes // (8 * row_numbers)


class StackFactors(FactoredGram):
    """The weighted features of a stack, side by side: Z = [√d_1 Z_1, √d_2 Z_2, …].

    With gates, the rows of Z_m are multiplied by g_m.

    Parameters
    ----------
    stack : FeatureStack
        The features.
    weights : ndarray of shape (P,)
        The weights d; kernels whose weight is zero are left out.
    gates : ndarray of shape (n, P), optional
        The gates g.

    Attributes
    ----------
    precise : bool
        Whether features in single precision are multiplied by each other in double precision.
    """

    precise: bool = False

    def __init__(self, stack: FeatureStack, weights: Array, gates: Array | None = None) -> None:
        self.stack = stack
        self.backend = stack.backend
        self.wide = stack.options.wide
        self.gates = None if gates is None else self.backend.asarray(np.ascontiguousarray(gates.T))
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.root = {m: float(np.sqrt(weights[m])) for m in self.active}
        # The columns of each kernel in Z.
        edges = np.concatenate([[0], np.cumsum(stack.widths[self.active])])
        self.place: dict[int, slice] = {}
        for m, (first, end) in zip(self.active, pairwise(edges), strict=True):
            self.place[m] = slice(int(first), int(end))
        self.n_samples = stack.n_samples
        self.n_features = int(edges[-1])
        self.block_samples = stack.options.block_samples
        self.stored = stack.is_stored

    def apply(self, W: ArrayOrTensor) -> ArrayOrTensor:
        """Return Z W, of shape (n,) or (n, k)."""
        right = self.backend.asarray(W)
        out = self.backend.zeros((self.n_samples, *right.shape[1:]))
        for strip in self.stack.strips():
            for m, Z in self.stack.placed_features(strip, self.active):
                product = _times(Z, self.root[m] * right[self.place[m]])
                out[strip] += apply_gate(product, self._gate(m, strip))
        return as_input(W, out, self.backend)

    def adjoint(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return Zᵀ V, of shape (D,) or (D, k)."""
        left = self.backend.asarray(V)
        out = self.backend.zeros((self.n_features, *left.shape[1:]))
        for rows in self.stack.strips(self._rows_that_count(left, self.stack.options.sparse)):
            coefficients = left[rows]
            for m, Z in self.stack.placed_features(rows, self.active):
                gated = apply_gate(coefficients, self._gate(m, rows))
                out[self.place[m]] += self.root[m] * _times(Z, gated, transposed=True)
        return as_input(V, out, self.backend)

    def normal_matrix(self, theta: ArrayOrTensor, precise: bool = False) -> ArrayOrTensor:
        """Return [Z, 1]ᵀ diag(θ) [Z, 1], of shape (D + 1, D + 1)."""
        backend, D = self.backend, self.n_features + 1
        values = backend.asarray(theta)
        is_double = backend is not NUMPY or precise or self.precise
        dtype = np.dtype(np.float64) if is_double else self.stack.dtype
        strips = list(self.stack.strips(self._rows_that_count(values), copied=True))
        # Each thread adds up strips of its own, the same ones in every run: sums are then rounded
        # alike from run to run.
        n_threads = 1
        if self.stored and backend is NUMPY:
            n_threads = min(allowed_threads(), len(strips))
        sums = [backend.zeros((D, D)) for _ in range(max(n_threads, 1))]

        def add(thread: int) -> None:
            for rows in strips[thread::n_threads]:
                self._add_products(rows, values, dtype, sums[thread])

        run_threads(add, range(n_threads), sum(map(_length, strips)) * D * dtype.itemsize)
        out = sums[0]
        for thread_sum in sums[1:]:
            out += thread_sum
        if self.stack.options.columns is not None:
            # Only the lower half was computed.
            lower = backend.xp.tril(out)
            out = lower + backend.xp.tril(out, -1).T
        return as_input(theta, out, backend)

    def _add_products(
        self, rows: RowIndex, theta: ArrayOrTensor, dtype: DType, out: ArrayOrTensor
    ) -> None:
        """Add the terms of these rows in the normal matrix to `out`.

        If the options say how many columns are multiplied at once, these are the terms of the lower
        half.
        """
        root, D = self.backend.xp.sqrt(theta[rows]), self.n_features + 1
        columns = self.stack.options.columns or D
        B = self.backend.empty((len(root), D), dtype)
        self._write(rows, B, root)
        B[:, -1] = root
        for a in range(0, D, columns):
            out[a:, a : a + columns] += B[:, a:].T @ B[:, a : a + columns]

    def in_double(self) -> FactoredGram | None:
        """Return these factors with normal matrices in double precision; None if they are so."""
        # On a device products are in double precision always.
        if self.precise or self.backend is not NUMPY or self.stack.dtype == np.float64:
            return None
        precise_factors = copy(self)
        precise_factors._use_double()
        return precise_factors

    def _use_double(self) -> None:
        """Multiply features by each other in double precision from now on."""
        self.precise = True

    def placed_rows(self, which: RowIndex) -> ArrayOrTensor:
        """Return these rows of Z, an array of the backend."""
        which = self.backend.index(which)
        out = self.backend.empty((len(which), self.n_features))
        start = 0
        for rows in self.stack.strips(which, copied=True):
            ones = self.backend.zeros((len(rows),)) + 1.0
            self._write(rows, out[start : start + len(rows)], ones)
            start += len(rows)
        return out

    def squared_norms(self) -> Array:
        """Return the squared norms of the rows of Z, of shape (n,)."""
        out = self.backend.zeros((self.n_samples,))
        for strip in self.stack.strips(copied=True):
            for m, features in self.stack.placed_features(strip, self.active):
                Z = self.backend.astype(features, np.float64)
                norms = self.root[m] ** 2 * self.backend.xp.einsum("ij,ij->i", Z, Z)
                gate = self._gate(m, strip)
                out[strip] += norms if gate is None else gate**2 * norms
        return self.backend.to_numpy(out)

    def _write(self, rows: RowIndex, out: ArrayOrTensor, scale: ArrayOrTensor) -> None:
        """Write these rows of Z, each times its scale, into the first columns of `out`."""
        options = {"casting": "same_kind"} if self.backend is NUMPY else {}
        for m, Z in self.stack.placed_features(rows, self.active):
            factor = apply_gate(self.root[m] * scale, self._gate(m, rows))
            self.backend.xp.multiply(Z, factor[:, None], out=out[:, self.place[m]], **options)

    def _rows_that_count(self, V: ArrayOrTensor, share: float = 1.0) -> ArrayOrTensor:
        """Return the numbers of the rows of V that are not zero, or None to read all rows.

        Stored features are all read if at least this share of the rows is not zero. Features that
        every pass computes are computed for the rows that are not zero alone.
        """
        support = nonzero_rows(V)
        least_share = share if self.stored else 1.0
        return None if len(support) >= least_share * self.n_samples else support

    def _gate(self, m: int, rows: RowIndex) -> ArrayOrTensor:
        """Return the gate of kernel m at these rows; None without gates."""
        return None if self.gates is None else self.gates[m][rows]


def apply_gate(V: ArrayOrTensor, gate: ArrayOrTensor) -> ArrayOrTensor:
    """Return a vector or a matrix V with its rows multiplied by the gate; None is no gate."""
    if gate is None:
        return V
    return gate * V if V.ndim == 1 else gate[:, None] * V


def _times(Z: ArrayOrTensor, V: ArrayOrTensor, transposed: bool = False) -> ArrayOrTensor:
    """Return ZV, or ZᵀV with `transposed`, in double precision."""
    if not is_tensor(Z):
        return (Z.T if transposed else Z) @ V
    from kernelmosaic.gpu import multiply_features

    return multiply_features(Z, V, transposed)


def _length(rows: RowIndex) -> int:
    """Return the number of rows of a slice or an array of row numbers."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
