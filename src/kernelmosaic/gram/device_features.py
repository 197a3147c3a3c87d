"""Features on a device: the same factors as in this process, with every pass over the rows made there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.backend import Backend, backend_of
from kernelmosaic.gram.factored import FactoredGram, like
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack, Kernels, nonzero_rows
from kernelmosaic.gram.gram import Array
from kernelmosaic.gram.row_blocks import Rows, RowSource, row_strips
from kernelmosaic.kernels.base import Block

#: Numbers, in double precision, that a pass works on at once.
STRIP = 2**27
#: Columns of the features whose products are formed at once: of a symmetric matrix only the blocks on one side.
_COLUMNS = 640
#: Below this share of rows that count, the others are left out by a copy.
_SPARSE = 0.5
#: Samples whose block of the kernel a solver may form at once; a device forms large ones in no time.
_BLOCK_SAMPLES = 16_000
#: Rows of samples on their way to the device at once.
_HOST_ROWS = 2**17


class DeviceFeatures(FeatureStack):
    """Features on a device, one tensor per kernel."""

    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors
        self.backend = backend_of(tensors[0])
        self.n_kernels, self.n_samples = len(tensors), int(tensors[0].shape[0])
        self.dtype = self.backend.dtype(tensors[0])
        self.widths = np.array([int(Z.shape[1]) for Z in tensors], dtype=np.intp)
        self.block_samples = _BLOCK_SAMPLES

    @classmethod
    def fill(cls, kernel_set: FeatureMaps, source: RowSource, backend: Backend, dtype: Any) -> DeviceFeatures:
        """Compute the features strip by strip."""
        n = source.shape[0]
        maps = kernel_set.on(backend)
        tensors = [backend.empty((n, int(width)), dtype) for width in kernel_set.widths]
        height = min(_HOST_ROWS, STRIP // max(int(max(kernel_set.widths)), 1))
        for strip in row_strips(n, height):
            for m, Z in maps.blocks(source.take(strip), range(len(kernel_set)), dtype):
                tensors[m][strip] = Z
        return cls(tensors)

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        at = self.backend.index(rows)
        for m in kernels:
            yield m, self.backend.to_numpy(self.tensors[m][at])

    def combine(self, weights: NDArray[Any], out: Any = None) -> Any:
        return DeviceFactoredGram(self, np.asarray(weights, dtype=np.float64))

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        return DeviceFactoredGram(self, np.any(gates != 0, axis=0).astype(np.float64), np.asarray(gates))

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        from kernelmosaic.gram._torch_cuda import rows_times

        out = np.zeros((self.n_kernels, self.n_samples if rows is None else len(rows), *columns))
        at = None if rows is None else self.backend.index(rows)
        for m, total in sums.items():
            Z = self.tensors[m] if at is None else self.tensors[m][at]
            out[m] = self.backend.to_numpy(rows_times(Z, self.backend.asarray(total)))
        return out

    def sums(self, beta: NDArray[Any], kernels: Kernels, gates: NDArray[Any] | None = None) -> dict[int, Array]:
        from kernelmosaic.gram._torch_cuda import columns_times

        support = nonzero_rows(beta)
        at, plain = self.backend.index(support), self.backend.asarray(beta[support])
        gated = None if gates is None else self.backend.asarray(gates[support].T)
        totals = {}
        for m in map(int, kernels):
            coefficients = plain if gated is None else gated[m].reshape(-1, *[1] * (plain.ndim - 1)) * plain
            totals[m] = self.backend.to_numpy(columns_times(self.tensors[m][at], coefficients))
        self.rows_read += len(support)
        return totals


class DeviceFactoredGram(FactoredGram):
    """The weighted features on the device, side by side; gates, if there are any, multiply their rows."""

    # Rounds of small steps are slow on a device, and factorising is fast.
    wide = 2.0

    def __init__(self, stack: DeviceFeatures, weights: Array, gates: Array | None = None) -> None:
        self.stack, self.backend = stack, stack.backend
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.roots = [float(root) for root in np.sqrt(weights[self.active])]
        self.gates = None if gates is None else self.backend.asarray(np.ascontiguousarray(gates.T))
        edges = np.concatenate([[0], np.cumsum(stack.widths[self.active])])
        self.places = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self.n_samples, self.n_features = stack.n_samples, int(edges[-1])
        self.block_samples = stack.block_samples

    def apply(self, W: Any) -> Any:
        from kernelmosaic.gram._torch_cuda import rows_times

        right = self.backend.asarray(W)
        out = self.backend.zeros((self.n_samples, *right.shape[1:]))
        for m, root, place in self._kernels(self.n_samples):
            part = rows_times(self.stack.tensors[m], root * right[place])
            out += part if self.gates is None else _scaled(self.gates[m], part)
        return like(W, out, self.backend)

    def adjoint(self, V: Any) -> Any:
        from kernelmosaic.gram._torch_cuda import columns_times

        left = self.backend.asarray(V)
        counts = left != 0 if left.ndim == 1 else (left != 0).any(1)
        used = None
        if int(counts.sum()) < _SPARSE * self.n_samples:
            used = counts.nonzero()[:, 0]
            left = left[used]
        out = self.backend.zeros((self.n_features, *left.shape[1:]))
        for m, root, place in self._kernels(len(left)):
            own = left if self.gates is None else _scaled(self._at(self.gates[m], used), left)
            out[place] = root * columns_times(self._at(self.stack.tensors[m], used), own)
        return like(V, out, self.backend)

    def normal_matrix(self, theta: Any, precise: bool = False) -> Any:
        values = self.backend.asarray(theta)
        used = values.nonzero()[:, 0]
        at = None if len(used) == self.n_samples else used
        roots = self._at(values, at).sqrt()
        D = self.n_features + 1
        out = self.backend.zeros((D, D))
        for strip in self._strips(len(roots)):
            rows = strip if at is None else at[strip]
            B = self.backend.empty((len(roots[strip]), D))
            self._write(rows, B, roots[strip])
            B[:, -1] = roots[strip]
            for a in range(0, D, _COLUMNS):
                out[a:, a : a + _COLUMNS] += B[:, a:].T @ B[:, a : a + _COLUMNS]
        tril = self.backend.xp.tril
        out = tril(out)
        return like(theta, out + tril(out, -1).T, self.backend)

    def rows(self, which: NDArray[np.intp]) -> Array:
        return self.backend.to_numpy(self.placed_rows(which))

    def placed_rows(self, which: Any) -> Any:
        return self._rows(self.backend.index(which))

    def squared_norms(self) -> Array:
        parts = [(Z * Z).sum(1) for Z in map(self._rows, self._strips(self.n_samples))]
        return self.backend.to_numpy(self.backend.xp.cat(parts))

    def _kernels(self, n_rows: int) -> Iterator[tuple[int, float, slice]]:
        self.stack.rows_read += n_rows
        return zip(self.active, self.roots, self.places, strict=True)

    def _strips(self, n: int) -> Iterator[slice]:
        self.stack.rows_read += n
        return row_strips(n, max(1, STRIP // (self.n_features + 1)))

    def _rows(self, at: Any) -> Any:
        """Return some rows of Z in double precision."""
        n = at.stop - at.start if isinstance(at, slice) else len(at)
        out = self.backend.empty((n, self.n_features))
        self._write(at, out, self.backend.zeros((n,)) + 1.0)
        return out

    def _write(self, at: Any, out: Any, scale: Any) -> None:
        """Write some rows of Z, each times a number, into the first columns of `out`."""
        for m, root, place in zip(self.active, self.roots, self.places, strict=True):
            factor = root * scale if self.gates is None else root * scale * self.gates[m][at]
            self.backend.xp.mul(self.stack.tensors[m][at], factor[:, None], out=out[:, place])

    @staticmethod
    def _at(tensor: Any, used: Any | None) -> Any:
        return tensor if used is None else tensor[used]


def _scaled(factors: Any, rows: Any) -> Any:
    return factors * rows if rows.ndim == 1 else factors[:, None] * rows
