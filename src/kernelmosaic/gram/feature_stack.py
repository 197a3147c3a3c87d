"""The stack of kernels in features: every operation costs a pass over n × r numbers, and no matrix
is n × n.

Features are arrays of a backend, here or on a device, stored or computed anew in strips; the passes
are the same.
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
from kernelmosaic.gram.factored import FactoredClasses, FactoredGram, as_input
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.kernel_set import Kernels
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.options import PASSES, PassOptions
from kernelmosaic.gram.row_blocks import Rows, RowSource
from kernelmosaic.gram.stack import GramStack, StoredStack
from kernelmosaic.kernels.base import Block


class FeatureStack(GramStack):
    """P kernels K_m = Z_m Z_mᵀ of the same n samples, each with a few features a sample.

    Attributes
    ----------
    widths : ndarray of shape (P,)
        The number of features of every kernel.
    options : PassOptions
        How passes over the rows are made.
    rows_read : int
        Rows of features read so far, over all operations.
    shareable : bool
        Whether several threads may work with it at once, and gain by it.
    """

    writes_matrices = False
    widths: Indices
    options: PassOptions = PassOptions()
    rows_read: int = 0
    shareable: bool = False

    @abstractmethod
    def placed_features(self, rows: RowIndex, kernels: Kernels) -> Iterator[tuple[int, Any]]:
        """Yield (m, Z_m[rows]) for the given kernels as arrays of the backend, which must not be
        changed."""

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        """Yield the same in this process."""
        for m, Z in self.placed_features(rows, kernels):
            yield m, self.backend.to_numpy(Z)

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return the combined kernel in its factors, Z_m times weights or rows times gates; nothing
        is computed yet."""
        given = np.asarray(weights, dtype=np.float64)
        if given.ndim == 1:
            return self.factors(given)
        return self.factors(np.any(given != 0, axis=0).astype(np.float64), given)

    def factors(self, weights: Array, gates: Array | None = None) -> FactoredGram:
        """Return the factors of Σ_m weights_m g_m g_mᵀ ∘ K_m; without gates the g_m are one."""
        return StackFactors(self, weights, gates)

    def combine_classes(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        """Return Σ_m weights[c, m] K_m of every class in their factors, which all classes share."""
        used = np.any(weights != 0, axis=0)
        scales = np.repeat(
            np.asarray(weights, dtype=np.float64)[:, used], self.widths[used], axis=1
        )
        return FactoredClasses(
            self.combine(used.astype(np.float64)), scales, self.options.block_numbers
        )

    @property
    def part_samples(self) -> int:
        # Equal weights multiply all features with each other: where these are many, weights of a
        # part of the samples are a start that reads a few kernels. Its matrices take no more memory
        # than the features.
        count = int(self.widths.sum())
        if self.backend is not NUMPY or count <= self.options.many_features:
            return 0
        return min(int(np.sqrt(self.n_samples * count / self.n_kernels)), self.options.part_samples)

    def take(self, rows: Indices, stored: bool = False) -> StoredStack:
        """Return the matrices of some samples."""
        matrices = np.empty((self.n_kernels, len(rows), len(rows)), dtype=np.float32)
        for m, Z in self.features(rows, range(self.n_kernels)):
            np.matmul(Z, Z.T, out=matrices[m], casting="same_kind")
        return StoredStack(matrices)

    def blocks(self, kernels: Kernels, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        right = dict(self.features(columns, kernels))
        for m, left in self.features(rows, kernels):
            yield m, left @ right[m].T

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        width = max(n_columns + int(self.widths.sum()), 1)
        return row_strips(self.n_samples, self.options.strip_bytes // (8 * width))

    def products(
        self, beta: AnyArray, rows: Indices | None = None, kernels: Kernels | None = None
    ) -> Array:
        return self.outputs(self.sums(beta, kernels), beta.shape[1:], rows)

    def gated_products(self, beta: AnyArray, gates: AnyArray, rows: Indices) -> Array:
        return self.outputs(self.sums(beta, None, gates), beta.shape[1:], rows)

    def quadratic_forms(self, beta: AnyArray, kernels: Kernels | None = None) -> Array:
        out = np.zeros(self.n_kernels)
        for m, total in self.sums(beta, kernels).items():
            out[m] = 0.5 * float(np.sum(total * total))
        return out

    def sums(
        self, beta: AnyArray, kernels: Kernels | None, gates: AnyArray | None = None
    ) -> dict[int, Array]:
        """Return Z_mᵀ β, or Z_mᵀ (g_m ∘ β), for the given kernels or all, reading the rows where β
        is not zero."""
        place, support = self.backend.asarray, nonzero_rows(beta)
        totals: dict[int, Any] = dict.fromkeys(self.asked(kernels), 0.0)
        for part in self.strips(support):
            coefficients, own = place(beta[part]), None if gates is None else place(gates[part].T)
            for m, Z in self.placed_features(part, list(totals)):
                totals[m] += _times(
                    Z, apply_gate(coefficients, None if own is None else own[m]), transposed=True
                )
        if len(support) == 0:
            return {m: np.zeros((self.widths[m], *beta.shape[1:])) for m in totals}
        return {m: self.backend.to_numpy(total) for m, total in totals.items()}

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: Indices | None = None
    ) -> Array:
        """Return Z_m times what `sums` returned at the given rows, of shape (P, n_rows) and the
        columns."""
        right = {m: self.backend.asarray(total) for m, total in sums.items()}
        out = np.zeros((self.n_kernels, self.n_samples if rows is None else len(rows), *columns))
        done = 0
        for part in self.strips(rows):
            for m, Z in self.placed_features(part, list(sums)):
                out[m, done : done + len(Z)] = self.backend.to_numpy(_times(Z, right[m]))
            done += _length(part)
        return out

    def strips(self, which: RowIndex = None, copied: bool = False) -> Iterator[Any]:
        """Cut the given rows, by default all, into parts that are worked on at once.

        Parameters
        ----------
        which : array of int, optional
            Row numbers, as the backend indexes with them or in this process.
        copied : bool
            Whether the pass copies what it works on: else features that are stored on a device are
            read as they are.
        """
        n = self.n_samples if which is None else len(which)
        self.rows_read += n
        for strip in row_strips(n, self._height(copied)):
            yield strip if which is None else which[strip]

    def _height(self, copied: bool) -> int:
        return self.options.strip_bytes // (8 * max(int(self.widths.sum()), 1))


class StoredFeatures(FeatureStack):
    """All features in memory, one array per kernel.

    Parameters
    ----------
    arrays : list of array of shape (n, width)
        Of NumPy or torch.
    options : PassOptions, optional
        How passes over the rows are made.
    """

    def __init__(self, arrays: list[Any], options: PassOptions | None = None) -> None:
        self.arrays, self.backend = arrays, backend_of(arrays[0])
        self.options = options or PASSES[self.backend.name]
        self.n_kernels, self.n_samples = len(arrays), len(arrays[0])
        self.dtype = self.backend.dtype(arrays[0])
        self.widths = np.array([int(Z.shape[1]) for Z in arrays], dtype=np.intp)
        count = int(self.widths.sum())
        self.nbytes = self.n_samples * count * self.dtype.itemsize
        if self.backend is NUMPY and count > self.n_samples:
            self.form = (
                f"{count} features outnumber the {self.n_samples} samples, whose combined kernels"
                " are written down"
            )
        # How exactly single precision is multiplied changes for all at once, and products of many
        # features keep every core busy by themselves.
        few = count <= self.options.few_features
        self.shareable = self.backend is NUMPY and self.dtype == np.float64 and few

    @classmethod
    def fill(cls, computed: ComputedFeatures) -> StoredFeatures:
        """Store what a stack computes, strip by strip."""
        n, backend = computed.n_samples, computed.backend
        arrays = [backend.empty((n, int(width)), computed.dtype) for width in computed.widths]
        for strip in computed.strips():
            for m, Z in computed.placed_features(strip, range(len(arrays))):
                arrays[m][strip] = Z
        return cls(arrays, computed.options)

    def placed_features(self, rows: RowIndex, kernels: Kernels) -> Iterator[tuple[int, Any]]:
        at = as_slice(rows) if isinstance(rows, np.ndarray) else rows
        at = self.backend.index(at)
        for m in kernels:
            yield int(m), self.arrays[m][at]

    def _height(self, copied: bool) -> int:
        # Passes over stored features on a device are compiled ones, which need no copy in another
        # precision.
        return super()._height(copied) if copied or self.backend is NUMPY else self.n_samples


class ComputedFeatures(FeatureStack):
    """Nothing stored: features are computed from the samples, strip by strip, on every use.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The fitted feature maps.
    source : RowSource
        The training samples.
    dtype : dtype
        Of the features.
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
        self.maps, self.source, self.backend = kernel_set, source, backend
        self.landmarks = kernel_set.place_landmarks(backend)
        self.options = options or PASSES[backend.name]
        self.n_kernels, self.n_samples = len(kernel_set), source.shape[0]
        self.dtype, self.widths = np.dtype(dtype), kernel_set.widths

    def placed_features(self, rows: RowIndex, kernels: Kernels) -> Iterator[tuple[int, Any]]:
        at = rows if isinstance(rows, slice | np.ndarray) else self.backend.to_numpy(rows)
        samples = self.source.take(as_slice(at))
        yield from self.maps.blocks(samples, kernels, self.dtype, self.backend, self.landmarks)

    def _height(self, copied: bool) -> int:
        # The samples, the block with the landmarks, the features and one temporary, each in double
        # precision.
        return self.options.strip_bytes // (
            8 * (self.source.row_width + 3 * int(self.widths.sum()) + 1)
        )


class StackFactors(FactoredGram):
    """The weighted features of a stack, side by side; gates, if there are any, multiply their rows.

    Attributes
    ----------
    precise : bool
        Whether features in single precision are multiplied with each other in double.
    """

    precise: bool = False

    def __init__(self, stack: FeatureStack, weights: Array, gates: Array | None = None) -> None:
        self.stack, self.backend, self.wide = stack, stack.backend, stack.options.wide
        self.gates = None if gates is None else self.backend.asarray(np.ascontiguousarray(gates.T))
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.root = {m: float(np.sqrt(weights[m])) for m in self.active}
        edges = np.concatenate([[0], np.cumsum(stack.widths[self.active])])
        self.place = {
            m: slice(int(a), int(b)) for m, (a, b) in zip(self.active, pairwise(edges), strict=True)
        }
        self.n_samples, self.n_features = stack.n_samples, int(edges[-1])
        self.block_samples, self.stored = (
            stack.options.block_samples,
            isinstance(stack, StoredFeatures),
        )

    def apply(self, W: ArrayOrTensor) -> ArrayOrTensor:
        right = self.backend.asarray(W)
        out = self.backend.zeros((self.n_samples, *right.shape[1:]))
        for strip in self.stack.strips():
            for m, Z in self.stack.placed_features(strip, self.active):
                part = _times(Z, self.root[m] * right[self.place[m]])
                out[strip] += apply_gate(part, self._gate(m, strip))
        return as_input(W, out, self.backend)

    def adjoint(self, V: ArrayOrTensor) -> ArrayOrTensor:
        left = self.backend.asarray(V)
        out = self.backend.zeros((self.n_features, *left.shape[1:]))
        for rows in self.stack.strips(self._rows_that_count(left, self.stack.options.sparse)):
            own = left[rows]
            for m, Z in self.stack.placed_features(rows, self.active):
                out[self.place[m]] += self.root[m] * _times(
                    Z, apply_gate(own, self._gate(m, rows)), transposed=True
                )
        return as_input(V, out, self.backend)

    def normal_matrix(self, theta: ArrayOrTensor, precise: bool = False) -> ArrayOrTensor:
        backend, D, columns = self.backend, self.n_features + 1, self.stack.options.columns
        values = backend.asarray(theta)
        dtype = (
            self.stack.dtype
            if backend is NUMPY and not (precise or self.precise)
            else np.dtype(np.float64)
        )
        strips = list(self.stack.strips(self._rows_that_count(values), copied=True))
        # Every thread adds up its own strips, always the same ones: sums round alike from run to
        # run.
        count = min(allowed_threads(), len(strips)) if self.stored and backend is NUMPY else 1
        sums = [backend.zeros((D, D)) for _ in range(max(count, 1))]

        def add(thread: int) -> None:
            for rows in strips[thread::count]:
                self._add_products(rows, values, dtype, sums[thread])

        run_threads(add, range(count), sum(map(_length, strips)) * D * dtype.itemsize)
        out = sums[0]
        for other in sums[1:]:
            out += other
        if columns is not None:
            lower = backend.xp.tril(out)
            out = lower + backend.xp.tril(out, -1).T
        return as_input(theta, out, backend)

    def _add_products(
        self, rows: RowIndex, theta: ArrayOrTensor, dtype: DType, out: ArrayOrTensor
    ) -> None:
        """Add to `out` what these rows add to the normal matrix, or to its lower half if columns
        are taken in turn."""
        root, D = self.backend.xp.sqrt(theta[rows]), self.n_features + 1
        columns = self.stack.options.columns or D
        B = self.backend.empty((len(root), D), dtype)
        self._write(rows, B, root)
        B[:, -1] = root
        for a in range(0, D, columns):
            out[a:, a : a + columns] += B[:, a:].T @ B[:, a : a + columns]

    def in_double(self) -> FactoredGram | None:
        # On a device products are in double precision always.
        if self.precise or self.backend is not NUMPY or self.stack.dtype == np.float64:
            return None
        precise = copy(self)
        precise.precise = True
        return precise

    def placed_rows(self, which: RowIndex) -> ArrayOrTensor:
        which = self.backend.index(which)
        out = self.backend.empty((len(which), self.n_features))
        done = 0
        for rows in self.stack.strips(which, copied=True):
            self._write(rows, out[done : done + len(rows)], self.backend.zeros((len(rows),)) + 1.0)
            done += len(rows)
        return out

    def squared_norms(self) -> Array:
        out = self.backend.zeros((self.n_samples,))
        for strip in self.stack.strips(copied=True):
            for m, Z in self.stack.placed_features(strip, self.active):
                Z, gate = self.backend.astype(Z, np.float64), self._gate(m, strip)
                norms = self.root[m] ** 2 * self.backend.xp.einsum("ij,ij->i", Z, Z)
                out[strip] += norms if gate is None else gate**2 * norms
        return self.backend.to_numpy(out)

    def _write(self, rows: RowIndex, out: ArrayOrTensor, scale: ArrayOrTensor) -> None:
        """Write some rows of Z, each times a number, into the first columns of `out`."""
        options = {"casting": "same_kind"} if self.backend is NUMPY else {}
        for m, Z in self.stack.placed_features(rows, self.active):
            factor = apply_gate(self.root[m] * scale, self._gate(m, rows))
            self.backend.xp.multiply(Z, factor[:, None], out=out[:, self.place[m]], **options)

    def _rows_that_count(self, V: ArrayOrTensor, share: float = 1.0) -> ArrayOrTensor:
        """Return the numbers of the rows that are not zero; None for all if these are at least this
        share of them."""
        # What is computed for every pass is computed for no more rows than need be.
        used = nonzero_rows(V)
        return None if len(used) >= (share if self.stored else 1.0) * self.n_samples else used

    def _gate(self, m: int, rows: RowIndex) -> ArrayOrTensor:
        return None if self.gates is None else self.gates[m][rows]


def apply_gate(V: ArrayOrTensor, gate: ArrayOrTensor) -> ArrayOrTensor:
    """Multiply the rows of V, a vector or a matrix, with the gate, if there is one."""
    return V if gate is None else gate * V if V.ndim == 1 else gate[:, None] * V


def _times(Z: ArrayOrTensor, V: ArrayOrTensor, transposed: bool = False) -> ArrayOrTensor:
    """Return ZV, or ZᵀV where Z is transposed, in double precision."""
    if not is_tensor(Z):
        return (Z.T if transposed else Z) @ V
    from kernelmosaic.gpu import multiply_features

    return multiply_features(Z, V, transposed)


def _length(rows: RowIndex) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
