"""The fitted function under gates, evaluated only where gates and coefficients are not zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import KernelSet, Views, take_rows
from kernelmosaic.gram.device import has_device
from kernelmosaic.gram.predictions import support_products

Array = NDArray[np.float64]

#: Bytes of the blocks a prediction works on at once.
_BLOCK_BYTES = 2**25
#: Gates, and shares of a kernel's largest coefficient, below this are lost in the rounding of a sum.
ROUNDING = 1e-12


@dataclass(frozen=True)
class GatedExpansion:
    """f_c(x) = Σ_m η_cm(x) Σ_i β_ci η_cm(x_i) k_m(x, x_i); the outputs c have gates of their own, or share one set.

    Kernel m is evaluated between the samples whose gate is above rounding and the support samples whose coefficient
    β_ci η_cm(x_i) is; nothing else is computed.

    Attributes
    ----------
    kernel_set : KernelSet
        All P kernels.
    support : list
        The support samples as the kernels see them.
    coefficients : ndarray of shape (outputs, P, n_support)
        β_ci η_cm(x_i).
    skip : bool
        Whether to leave out what rounding hides; False evaluates everything.
    device : str or None
        Where it was fitted, and is evaluated as long as that device is there.
    """

    kernel_set: KernelSet
    support: Views
    coefficients: Array
    skip: bool = True
    device: str | None = None

    @property
    def active(self) -> NDArray[np.intp]:
        """The kernels some support sample needs."""
        return np.flatnonzero([len(self._columns(m)) for m in range(len(self.kernel_set))])

    def terms(self, X: Any, gates: Array) -> Array:
        """Return each kernel's share of the outputs, (n, P, outputs), for gates of shape (outputs or 1, n, P)."""
        out = np.zeros((gates.shape[1], gates.shape[2], len(self.coefficients)))
        for rows, m, values in self._blocks(self.kernel_set.views(X), gates):
            out[rows, m] = values
        return out

    def values(self, X: Any, gates: Array) -> Array:
        """Return the outputs without their intercepts, of shape (n, outputs)."""
        out = np.zeros((gates.shape[1], len(self.coefficients)))
        for rows, _, values in self._blocks(self.kernel_set.views(X), gates):
            out[rows] += values
        return out

    def combined(self, X: Any, Y: Any, left_gates: Array, right_gates: Array) -> Array:
        """Return Σ_m η_m(x) k_m(x, z) η_m(z) of every output between X and Y, of shape (outputs, len(X), len(Y))."""
        left = self.kernel_set.views(X)
        right = left if Y is X else self.kernel_set.views(Y)
        out = np.zeros((len(left_gates), left_gates.shape[1], right_gates.shape[1]))
        for m, K in self.kernel_set.blocks(left, right, range(len(self.kernel_set))):
            for total, g, h in zip(out, left_gates[:, :, m], right_gates[:, :, m], strict=True):
                total += g[:, np.newaxis] * K * h
        return out

    def n_evaluations(self, gates: Array) -> int:
        """Return how many kernel values a prediction under these gates computes."""
        columns = [len(self._columns(m)) for m in range(len(self.kernel_set))]
        return int(sum(len(self._rows(gates[:, :, m])) * c for m, c in enumerate(columns)))

    def _blocks(self, views: Views, gates: Array) -> Iterator[tuple[NDArray[np.intp], int, Array]]:
        n, size = gates.shape[1], self.coefficients.shape[2]
        if size == 0:
            return
        columns = [self._columns(m) for m in range(len(self.kernel_set))]
        height = max(1, _BLOCK_BYTES // (8 * size))
        for start in range(0, n, height):
            strip = np.arange(start, min(start + height, n))
            # Kernels wanted for the same samples are asked for together: they may share what they are made of.
            wanted: dict[tuple[bytes, bytes], list[int]] = {}
            rows = [strip[self._rows(gates[:, strip, m])] for m in range(len(self.kernel_set))]
            for m, (r, c) in enumerate(zip(rows, columns, strict=True)):
                if len(r) and len(c):
                    wanted.setdefault((r.tobytes(), c.tobytes()), []).append(m)
            for members in wanted.values():
                r, c = rows[members[0]], columns[members[0]]
                left, right = _rows_of(views, r, n), _rows_of(self.support, c, size)
                for m, values in self._products(left, right, members, c):
                    yield r, m, values * gates[:, r, m].T

    def _products(
        self, left: Views, right: Views, members: list[int], columns: NDArray[np.intp]
    ) -> Iterator[tuple[int, Array]]:
        """Yield (m, K_m times the kernel's coefficients) between samples and support samples."""
        if not has_device(self.device):
            for m, K in self.kernel_set.blocks(left, right, members):
                yield m, K @ self.coefficients[:, m, columns].T
            return
        for m in members:
            single, coefficients = self.kernel_set.select([m]), self.coefficients[:, m, columns].T
            parts = support_products(single, [left[m]], [right[m]], coefficients, self.device)
            yield m, np.concatenate([values for _, _, values in parts])

    def _rows(self, gates: Array) -> NDArray[np.intp]:
        """The samples for which a kernel's gate counts, in any output."""
        if not self.skip:
            return np.arange(gates.shape[1])
        return np.flatnonzero(np.any(np.abs(gates) > ROUNDING, axis=0))

    def _columns(self, m: int) -> NDArray[np.intp]:
        """The support samples whose coefficient counts, in any output."""
        size = np.abs(self.coefficients[:, m])
        if not self.skip:
            return np.arange(size.shape[1])
        largest = np.abs(self.coefficients).max(axis=(1, 2), initial=0.0)
        return np.flatnonzero(np.any(size > ROUNDING * largest[:, np.newaxis], axis=0))


def _rows_of(views: Views, rows: NDArray[np.intp], n: int) -> Views:
    """Return some rows of every view; contiguous ones, and so all of them, without a copy."""
    if len(rows) == rows[-1] - rows[0] + 1:
        return views if len(rows) == n else take_rows(views, slice(int(rows[0]), int(rows[-1]) + 1))
    return take_rows(views, rows)
