"""The weighted features of a device as one kernel in factors, with every pass over the rows made there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.backend import torch_backend
from kernelmosaic.gram._torch_cuda import columns_times, rows_times
from kernelmosaic.gram.factored import FactoredGram, like
from kernelmosaic.gram.gram import Array
from kernelmosaic.gram.row_blocks import row_strips

if TYPE_CHECKING:
    from kernelmosaic.gram._torch_features import TorchFeatures

#: Numbers, in double precision, that a pass works on at once.
_STRIP = 2**27
#: Columns of the features whose products are formed at once: of a symmetric matrix only the blocks on one side.
_COLUMNS = 640
#: Below this share of rows that count, the others are left out by a copy.
_SPARSE = 0.5


class DeviceFactoredGram(FactoredGram):
    """The weighted features on the device, side by side; gates, if there are any, multiply their rows."""

    # Rounds of small steps are slow on a device, and factorising is fast.
    wide = 2.0

    def __init__(self, stack: TorchFeatures, weights: Array, gates: Array | None = None) -> None:
        self.stack, self.backend = stack, torch_backend(str(stack.device))
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.roots = [float(root) for root in np.sqrt(weights[self.active])]
        self.gates = None if gates is None else stack.tensor(np.ascontiguousarray(gates.T))
        edges = np.concatenate([[0], np.cumsum(stack.widths[self.active])])
        self.places = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self.n_samples, self.n_features = stack.n_samples, int(edges[-1])
        self.block_samples = stack.block_samples

    def apply(self, W: Any) -> Any:
        right = self._placed(W)
        out = torch.zeros((self.n_samples, *right.shape[1:]), dtype=torch.float64, device=self.stack.device)
        for m, root, place in self._kernels(self.n_samples):
            part = rows_times(self.stack.tensors[m], root * right[place])
            out += part if self.gates is None else _scaled(self.gates[m], part)
        return like(W, out, self.backend)

    def adjoint(self, V: Any) -> Any:
        left = self._placed(V)
        counts = left != 0 if left.ndim == 1 else (left != 0).any(1)
        used = None
        if int(counts.sum()) < _SPARSE * self.n_samples:
            used = counts.nonzero()[:, 0]
            left = left[used]
        out = torch.zeros((self.n_features, *left.shape[1:]), dtype=torch.float64, device=self.stack.device)
        for m, root, place in self._kernels(len(left)):
            own = left if self.gates is None else _scaled(self._at(self.gates[m], used), left)
            out[place] = root * columns_times(self._at(self.stack.tensors[m], used), own)
        return like(V, out, self.backend)

    def normal_matrix(self, theta: Any, precise: bool = False) -> Any:
        values = self._placed(theta)
        used = values.nonzero()[:, 0]
        at = None if len(used) == self.n_samples else used
        roots = self._at(values, at).sqrt()
        D = self.n_features + 1
        out = torch.zeros((D, D), dtype=torch.float64, device=self.stack.device)
        for strip in self._strips(len(roots)):
            rows = strip if at is None else at[strip]
            B = torch.empty((len(roots[strip]), D), dtype=torch.float64, device=self.stack.device)
            self._write(rows, B, roots[strip])
            B[:, -1] = roots[strip]
            for a in range(0, D, _COLUMNS):
                out[a:, a : a + _COLUMNS] += B[:, a:].T @ B[:, a : a + _COLUMNS]
        out = torch.tril(out)
        return like(theta, out + torch.tril(out, -1).T, self.backend)

    def rows(self, which: NDArray[np.intp]) -> Array:
        return self.backend.to_numpy(self.placed_rows(which))

    def placed_rows(self, which: Any) -> Tensor:
        return self._rows(self.backend.index(which))

    def squared_norms(self) -> Array:
        parts = [(Z * Z).sum(1) for Z in map(self._rows, self._strips(self.n_samples))]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _kernels(self, n_rows: int) -> Iterator[tuple[int, float, slice]]:
        self.stack.rows_read += n_rows
        return zip(self.active, self.roots, self.places, strict=True)

    def _strips(self, n: int) -> Iterator[slice]:
        self.stack.rows_read += n
        return row_strips(n, max(1, _STRIP // (self.n_features + 1)))

    def _rows(self, at: Any) -> Tensor:
        """Return some rows of Z in double precision."""
        n = len(at) if isinstance(at, Tensor) else at.stop - at.start
        out = torch.empty((n, self.n_features), dtype=torch.float64, device=self.stack.device)
        self._write(at, out, torch.ones(n, dtype=torch.float64, device=self.stack.device))
        return out

    def _write(self, at: Any, out: Tensor, scale: Tensor) -> None:
        """Write some rows of Z, each times a number, into the first columns of `out`."""
        for m, root, place in zip(self.active, self.roots, self.places, strict=True):
            factor = root * scale if self.gates is None else root * scale * self.gates[m][at]
            torch.mul(self.stack.tensors[m][at], factor[:, None], out=out[:, place])

    def _placed(self, array: Any) -> Tensor:
        return array if isinstance(array, Tensor) else self.stack.tensor(array)

    @staticmethod
    def _at(tensor: Tensor, used: Tensor | None) -> Tensor:
        return tensor if used is None else tensor[used]


def _scaled(factors: Tensor, rows: Tensor) -> Tensor:
    return factors * rows if rows.ndim == 1 else factors[:, None] * rows
