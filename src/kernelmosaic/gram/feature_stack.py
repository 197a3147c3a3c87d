"""The stack of kernels in features: every operation costs a pass over n × r numbers, and no matrix is n × n."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.class_grams import BLOCK_NUMBERS, FactoredClasses
from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.gram import Array
from kernelmosaic.gram.row_blocks import Rows, RowSource, row_strips
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.gram.stack import Rows as StackRows
from kernelmosaic.kernels.base import Block

#: Bytes of a strip of features that is worked on at once: large enough to keep the matrix products busy.
STRIP_BYTES = 2**24
#: Up to this many features, passes over the rows are too little work for several cores.
_FEW_FEATURES = 300
#: Samples whose block of the kernel a solver may form at once, where memory is no concern.
BLOCK_SAMPLES = 3000
Kernels = Sequence[int] | NDArray[Any]


class FeatureStack(GramStack):
    """P kernels K_m = Z_m Z_mᵀ of the same n samples, each with a few features a sample.

    Attributes
    ----------
    widths : ndarray of shape (P,)
        The number of features of every kernel.
    block_samples, block_numbers : int
        Up to this many samples may have their block of a combined kernel formed; and if there is one a class, the
        blocks may have this many numbers together.
    rows_read : int
        Rows of features read so far, over all operations.
    precise : bool
        Whether features in single precision are multiplied with each other in double.
    shareable : bool
        Whether several threads may work with it at once, and gain by it.
    """

    writes_matrices = False
    widths: NDArray[np.intp]
    strip_bytes: int = STRIP_BYTES
    block_samples: int = BLOCK_SAMPLES
    block_numbers: int = BLOCK_NUMBERS
    rows_read: int = 0
    precise: bool = False
    shareable: bool = False

    @abstractmethod
    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        """Yield (m, Z_m[rows]) for the kernels asked for; the blocks must not be changed."""

    def combine(self, weights: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m weights_m K_m in its factors; nothing is computed yet."""
        return LocalFactoredGram(self, np.asarray(weights, dtype=np.float64))

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m g_m g_mᵀ ∘ K_m in its factors, which are the rows of Z_m times the gates."""
        return LocalFactoredGram(self, np.any(gates != 0, axis=0).astype(np.float64), np.asarray(gates))

    def combine_classes(self, weights: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m weights[c, m] K_m of every class in their factors, which all classes share."""
        used = np.any(weights != 0, axis=0)
        scales = np.repeat(np.asarray(weights, dtype=np.float64)[:, used], self.widths[used], axis=1)
        return FactoredClasses(self.combine(used.astype(np.float64)), scales, self.block_numbers)

    @property
    def part_samples(self) -> int:
        # Below many samples a feature a part's weights are far from those of all, and cost as much.
        return 0

    def blocks(self, kernels: Kernels, rows: StackRows, columns: StackRows) -> Iterator[tuple[int, Block]]:
        right = dict(self.features(columns, kernels))
        for m, left in self.features(rows, kernels):
            yield m, left @ right[m].T

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return row_strips(self.n_samples, self.strip_bytes // (8 * max(n_columns + int(self.widths.sum()), 1)))

    def products(
        self, beta: NDArray[Any], rows: NDArray[np.intp] | None = None, kernels: Kernels | None = None
    ) -> NDArray[np.float64]:
        every = range(self.n_kernels) if kernels is None else kernels
        return self.outputs(self.sums(beta, every), beta.shape[1:], rows)

    def gated_products(self, beta: NDArray[Any], gates: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        return self.outputs(self.sums(beta, range(self.n_kernels), gates), beta.shape[1:], rows)

    def quadratic_forms(self, beta: NDArray[Any], kernels: Kernels | None = None) -> NDArray[np.float64]:
        every = range(self.n_kernels) if kernels is None else kernels
        out = np.zeros(self.n_kernels)
        for m, total in self.sums(beta, every).items():
            out[m] = 0.5 * float(np.sum(total * total))
        return out

    def sums(self, beta: NDArray[Any], kernels: Kernels, gates: NDArray[Any] | None = None) -> dict[int, Array]:
        """Return Z_mᵀ β, or Z_mᵀ (g_m ∘ β), for the kernels asked for, reading the rows where β is not zero."""
        totals = {int(m): np.zeros((self.widths[m], *beta.shape[1:])) for m in kernels}
        for part in self.strips(nonzero_rows(beta)):
            for m, Z in self.features(part, kernels):
                totals[int(m)] += Z.T @ under_gate(beta[part], None if gates is None else gates[part, m])
        return totals

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        """Return Z_m times what `sums` returned at the given rows, of shape (P, n_rows) and the columns."""
        at = np.arange(self.n_samples) if rows is None else rows
        out = np.zeros((self.n_kernels, len(at), *columns))
        done = 0
        for part in self.strips(at):
            for m, Z in self.features(part, list(sums)):
                out[m, done : done + len(part)] = Z @ sums[m]
            done += len(part)
        return out

    def strips(self, which: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """Cut the rows asked for into parts that are worked on at once."""
        for strip in row_strips(len(which), self.strip_bytes // (8 * max(int(self.widths.sum()), 1))):
            self.rows_read += strip.stop - strip.start
            yield which[strip]


class StoredFeatures(FeatureStack):
    """All features in memory, one array a kernel."""

    def __init__(self, arrays: list[NDArray[Any]]) -> None:
        self.arrays = arrays
        self.n_kernels, self.n_samples = len(arrays), len(arrays[0])
        self.dtype = arrays[0].dtype
        self.widths = np.array([Z.shape[1] for Z in arrays], dtype=np.intp)
        # How exactly single precision is multiplied changes for all at once, and products of many features keep every
        # core busy by themselves.
        self.shareable = self.dtype == np.float64 and int(self.widths.sum()) <= _FEW_FEATURES

    @classmethod
    def fill(
        cls, kernel_set: FeatureMaps, source: RowSource, dtype: Any, strip_bytes: int = STRIP_BYTES
    ) -> StoredFeatures:
        """Compute the features strip by strip."""
        n = source.shape[0]
        arrays = [np.empty((n, width), dtype=dtype) for width in kernel_set.widths]
        for strip in row_strips(n, _strip_height(source, kernel_set, strip_bytes)):
            for m, Z in kernel_set.blocks(source.take(strip), range(len(kernel_set))):
                arrays[m][strip] = Z
        return cls(arrays)

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        rows = _as_slice(rows)
        for m in kernels:
            yield m, self.arrays[m][rows]


class ComputedFeatures(FeatureStack):
    """Nothing stored: features are computed from the samples, strip by strip, whenever they are asked for."""

    def __init__(self, kernel_set: FeatureMaps, source: RowSource, dtype: Any, strip_bytes: int) -> None:
        self.kernel_set, self.source = kernel_set, source
        self.n_kernels, self.n_samples = len(kernel_set), source.shape[0]
        self.dtype = np.dtype(dtype)
        self.widths = kernel_set.widths
        # Samples, kernel blocks and features of a strip live at once.
        self.strip_bytes = strip_bytes

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        yield from self.kernel_set.blocks(self.source.take(_as_slice(rows)), kernels, self.dtype)

    def strips(self, which: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        for strip in row_strips(len(which), _strip_height(self.source, self.kernel_set, self.strip_bytes)):
            self.rows_read += strip.stop - strip.start
            yield which[strip]


class LocalFactoredGram(FactoredGram):
    """The weighted features of a stack in this process, side by side; gates, if there are any, multiply their rows."""

    def __init__(self, stack: FeatureStack, weights: Array, gates: Array | None = None) -> None:
        self.stack, self.gates = stack, None if gates is None else np.ascontiguousarray(gates.T)
        self.active = np.flatnonzero(weights)
        self.roots = np.sqrt(weights[self.active])
        edges = np.concatenate([[0], np.cumsum(stack.widths[self.active])])
        self.place = {int(m): slice(int(a), int(b)) for m, a, b in zip(self.active, edges[:-1], edges[1:], strict=True)}
        self.n_samples, self.n_features = stack.n_samples, int(edges[-1])
        self.block_samples, self.stored = stack.block_samples, isinstance(stack, StoredFeatures)

    def apply(self, W: Array) -> Array:
        out = np.zeros((self.n_samples, *W.shape[1:]))
        scaled = self._scale(W)
        for part in self.stack.strips(np.arange(self.n_samples)):
            strip = slice(part[0], part[-1] + 1)
            for m, Z in self.stack.features(part, self.active):
                out[strip] += under_gate(Z @ scaled[self.place[m]], self._gate(m, strip))
        return out

    def adjoint(self, V: Array) -> Array:
        out = np.zeros((self.n_features, *V.shape[1:]))
        for part in self.stack.strips(nonzero_rows(V)):
            for m, Z in self.stack.features(part, self.active):
                out[self.place[m]] += Z.T @ under_gate(V[part], self._gate(m, part))
        return self._scale(out)

    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        kind = np.float64 if precise or self.stack.precise else self.stack.dtype
        out = np.zeros((self.n_features + 1,) * 2)
        for part in self.stack.strips(np.flatnonzero(theta)):
            root = np.sqrt(theta[part])
            B = np.empty((len(part), self.n_features + 1), dtype=kind)
            for m, Z in self.stack.features(part, self.active):
                factor = under_gate(root, self._gate(m, part))
                np.multiply(Z, factor[:, np.newaxis], out=B[:, self.place[m]], casting="same_kind")
            B[:, -1] = root
            out += B.T @ B
        scale = self._scale(np.ones(self.n_features))
        out[:-1] *= scale[:, np.newaxis]
        out[:, :-1] *= scale
        return out

    def increase_precision(self) -> bool:
        sharper = self.stack.dtype == np.float32 and not self.stack.precise
        self.stack.precise = True
        return sharper

    def rows(self, which: NDArray[np.intp]) -> Array:
        out = np.empty((len(which), self.n_features))
        done = 0
        for part in self.stack.strips(which):
            for m, Z in self.stack.features(part, self.active):
                out[done : done + len(part), self.place[m]] = under_gate(Z, self._gate(m, part))
            done += len(part)
        out *= self._scale(np.ones(self.n_features))
        return out

    def squared_norms(self) -> Array:
        out = np.zeros(self.n_samples)
        for part in self.stack.strips(np.arange(self.n_samples)):
            for m, Z in self.stack.features(part, self.active):
                root = under_gate(self.roots[np.searchsorted(self.active, m)], self._gate(m, part))
                out[part] += root**2 * np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
        return out

    def _gate(self, m: int, rows: Rows) -> Array | None:
        return None if self.gates is None else self.gates[m, rows]

    def _scale(self, W: Array) -> Array:
        """Multiply the rows of W, one a feature, with the roots of the weights."""
        root = np.repeat(self.roots, self.stack.widths[self.active])
        return np.asarray(W * root if W.ndim == 1 else W * root[:, np.newaxis])


def nonzero_rows(V: Array) -> NDArray[np.intp]:
    """Return the rows of a vector, or of a matrix, that are not zero."""
    return np.flatnonzero(V if V.ndim == 1 else np.any(V != 0, axis=1))


def under_gate(V: Any, gate: Array | None) -> Any:
    """Multiply the rows of V with the gate, if there is one."""
    return V if gate is None else (gate * np.transpose(V)).T


def _strip_height(source: RowSource, kernel_set: FeatureMaps, strip_bytes: int) -> int:
    # The samples, the block with the landmarks, the features and one temporary, each in double precision.
    return max(1, strip_bytes // (8 * (source.row_width + 3 * int(kernel_set.widths.sum()) + 1)))


def _as_slice(rows: Rows) -> Rows:
    """Rows in their order without gaps are a slice, which copies nothing."""
    if isinstance(rows, slice) or len(rows) == 0 or rows[-1] - rows[0] + 1 != len(rows):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1) if len(rows) < 2 or np.all(np.diff(rows) == 1) else rows
