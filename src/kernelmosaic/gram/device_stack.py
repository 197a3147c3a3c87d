"""The stack on a device: combined matrices in its memory, single kernels stored there if they fit, else recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.backend import Backend
from kernelmosaic.gram.class_grams import StackClasses
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet, Samples, Views
from kernelmosaic.gram.memory import default_budget, format_bytes
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.row_blocks import row_strips
from kernelmosaic.gram.stack import GramStack, Rows
from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.gaussian import Gaussian

#: Side of the squares that matrices are computed in: what is worked on at once stays in the device's cache.
_TILE = {"cuda": 2048, "cpu": 512}
#: Share of the device's free memory that a stack may take by default: nobody else has plans for the rest.
_SHARE = 0.85


class DeviceStack(GramStack):
    """P Gram matrices on a device; operations take and return arrays, but for combined kernels, which stay there.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : list
        The training samples as the kernels see them.
    backend : Backend
        Where the stack lives.
    dtype : dtype
        Of combined and stored matrices.
    store : bool
        Whether to keep every kernel's matrix.
    """

    writes_matrices = False

    def __init__(
        self, kernel_set: KernelSet, views: Views, backend: Backend, dtype: np.dtype[Any], store: bool = False
    ) -> None:
        self.n_samples = views[0].shape[0]
        self.n_kernels = len(kernel_set)
        self.dtype, self.backend = dtype, backend
        self.tile = _TILE[str(backend.device).partition(":")[0]]
        self.kernel_set = kernel_set
        here = kernel_set.samples(views)
        self.samples = kernel_set.samples(here, backend)
        # Exact, where blocks know a sample's distance from itself up to rounding only.
        self.diagonals = backend.asarray(kernel_set.diagonals(here)) if all(self.samples.shares) else None
        self.stored: list[Any] | None = None
        if store:
            eye = np.eye(self.n_kernels)
            self.stored = [self._fill(eye[m], self._empty()) for m in range(self.n_kernels)]

    def part(self, rows: NDArray[np.intp]) -> DeviceStack:
        at = self.backend.index(rows)
        some = copy(self)
        some.n_samples = len(rows)
        some.samples = self.samples.take(rows)
        some.diagonals = None if self.diagonals is None else self.diagonals[:, at]
        some.stored = None if self.stored is None else [K[at][:, at] for K in self.stored]
        return some

    # Matrices ------------------------------------------------------------------------------------------------------

    def combine(self, weights: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m weights_m K_m as a `DenseGram`."""
        weights = np.array(weights, dtype=np.float64)
        matrix = self._fill(weights, self._empty() if out is None else out.matrix)

        def exact(support: NDArray[np.intp], beta: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._exact(support, beta, np.tile(weights, (self.n_samples, 1)), np.ones((self.n_samples, 1)))

        return DenseGram(matrix, None if self.dtype == np.float64 else exact)

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m g_m g_mᵀ ∘ K_m as a `DenseGram`."""
        gates = np.array(gates, dtype=np.float64)
        active = np.flatnonzero(np.any(gates != 0, axis=0))
        matrix = self._empty() if out is None else out.matrix
        g = self.backend.asarray(gates, self.dtype)
        for rows, columns in self._squares():
            part = matrix[rows, columns].zero_()
            for m, block in self._blocks(active, rows, columns):
                # A stored block must stay as it is.
                part += (block * g[columns, m]).mul_(g[rows, m][:, None])
            self._mirror(matrix, rows, columns)
        if self.diagonals is not None:
            matrix.diagonal().copy_((self.backend.asarray(gates.T**2) * self.diagonals).sum(0))

        def exact(support: NDArray[np.intp], beta: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._exact(support, beta, gates, gates)

        return DenseGram(matrix, None if self.dtype == np.float64 else exact)

    def combine_classes(self, weights: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m weights[c, m] K_m of every class, never written down: one matrix a class would fill the device."""
        return StackClasses(self, np.array(weights, dtype=np.float64))

    def _fill(self, weights: NDArray[Any], matrix: Any) -> Any:
        if self._fill_directly(weights, matrix):
            return matrix
        for rows, columns in self._squares():
            part = matrix[rows, columns].zero_()
            if self.stored is None:
                self._accumulate(self.samples.take(rows), self.samples.take(columns), weights, part)
            else:
                for m in np.flatnonzero(weights):
                    part.add_(self.stored[m][rows, columns], alpha=float(weights[m]))
            self._mirror(matrix, rows, columns)
        if self.diagonals is not None:
            matrix.diagonal().copy_(self.backend.asarray(weights) @ self.diagonals)
        return matrix

    def _accumulate(self, left: Samples, right: Samples, weights: NDArray[Any], out: Any) -> None:
        """out += Σ_m weights_m K_m between two sets of samples; kernels without a weight are not computed."""
        from kernelmosaic.gram._torch_cuda import add_gaussians

        rest = [int(m) for m in np.flatnonzero(weights)]
        for members in self._gaussians(rest):
            S = self.kernel_set.statistic(members[0], left, right)
            rates, scales = self._constants(members)
            add_gaussians(S, rates, [float(weights[m]) / scale for m, scale in zip(members, scales, strict=True)], out)
            rest = [m for m in rest if m not in members]
        for m, block in self.kernel_set.blocks(left, right, rest, self.dtype):
            out.add_(block, alpha=float(weights[m]))

    def _gaussians(self, kernels: Sequence[int]) -> list[list[int]]:
        """Return those of the kernels that are Gaussians up to one factor, in groups that read the same samples."""
        groups: dict[int, list[int]] = {}
        if self.n_kernels == len(self.kernel_set.fitted):  # else they are factors of a product
            for m in kernels:
                one = self.kernel_set.fitted[m]
                # Subclasses may say something else than their parents.
                plain = type(one.kernel) is Gaussian and isinstance(one.normalization, Unscaled | UnitTrace)
                if plain and self.samples.shares[m]:
                    groups.setdefault(id(self.samples.views[m]), []).append(m)
        return list(groups.values())

    def _constants(self, gaussians: Sequence[int]) -> tuple[list[float], list[float]]:
        """Return what squared distances are multiplied with in the exponents, and what the kernels are divided by."""
        fitted = [self.kernel_set.fitted[m] for m in gaussians]
        rates = [one.kernel.rate(np.float32) for one in fitted if isinstance(one.kernel, Gaussian)]
        return rates, [float(getattr(one.normalization, "scale_", 1.0)) for one in fitted]

    def _fill_directly(self, weights: NDArray[Any], matrix: Any) -> bool:
        """Write the matrix straight from the samples, if only Gaussians of the same columns have a weight."""
        from kernelmosaic.gram._torch_cuda import combine_directly

        active = np.flatnonzero(weights).tolist()
        if self.stored is not None or self._gaussians(active) != [active]:
            return False
        rates, scales = self._constants(active)
        factors = (weights[active] / np.array(scales)).tolist()
        return combine_directly(self.samples.views[active[0]].T.contiguous(), rates, factors, matrix)

    def _squares(self) -> Iterator[tuple[slice, slice]]:
        """Cut the lower triangle into squares."""
        cuts = [slice(a, min(a + self.tile, self.n_samples)) for a in range(0, self.n_samples, self.tile)]
        for i, rows in enumerate(cuts):
            yield from ((rows, columns) for columns in cuts[: i + 1])

    def _mirror(self, matrix: Any, rows: slice, columns: slice) -> None:
        """Copy a square of the lower triangle into the upper; one on the diagonal is made symmetric."""
        if rows.start != columns.start:
            matrix[columns, rows] = matrix[rows, columns].T
            return
        square, tril = matrix[rows, columns], self.backend.xp.tril
        square.copy_(tril(square) + tril(square, -1).T)

    def _empty(self) -> Any:
        try:
            return self.backend.empty((self.n_samples,) * 2, self.dtype)
        except RuntimeError as error:  # torch's own error does not say what the memory was for
            need = format_bytes(self.n_samples**2 * self.dtype.itemsize)
            raise MemoryError(
                f"A {self.n_samples} x {self.n_samples} kernel matrix needs {need} on {self.backend.device}: use "
                "approximation='nystroem', or fewer samples."
            ) from error

    # Blocks and products -------------------------------------------------------------------------------------------

    def blocks(self, kernels: Sequence[int] | NDArray[Any], rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        for m, block in self._blocks(kernels, rows, columns):
            yield m, self.backend.to_numpy(block)

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return row_strips(self.n_samples, self.tile**2 // max(n_columns, 1))

    def products(
        self,
        beta: NDArray[Any],
        rows: NDArray[np.intp] | None = None,
        kernels: Sequence[int] | NDArray[Any] | None = None,
    ) -> NDArray[np.float64]:
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        asked = range(self.n_kernels) if kernels is None else kernels
        at = np.arange(self.n_samples) if rows is None else rows
        right = self.backend.asarray(beta[support] if beta.ndim == 2 else beta[support, np.newaxis])
        out = self.backend.zeros((self.n_kernels, len(at), right.shape[1]))
        if len(support) and len(at):
            if self.stored is None:
                self._multiply(dict.fromkeys(map(int, asked), right), at, support, self.dtype, out)
            else:
                self._multiply_stored([int(m) for m in asked], at, support, right, out)
        values = self.backend.to_numpy(out)
        return values[:, :, 0] if beta.ndim == 1 else values

    def _multiply(self, right: dict[int, Any], rows: Any, columns: Any, dtype: Any, out: Any) -> None:
        """out[m] += K_m[rows, columns] right[m], the entries computed in that precision and summed in double."""
        left, across = self.samples.take(rows), self.samples.take(columns)
        if self._multiply_directly(right, left, across, dtype, out):
            return
        n_rows = out.shape[1]
        for i in range(0, n_rows, self.tile):
            strip = slice(i, min(i + self.tile, n_rows))
            part = left.take(strip)
            for j in range(0, len(columns), self.tile):
                below = slice(j, min(j + self.tile, len(columns)))
                for m, block in self.kernel_set.blocks(part, across.take(below), list(right), dtype):
                    out[m, strip] += self.backend.astype(block, np.float64) @ right[m][below]

    def _multiply_directly(self, right: dict[int, Any], left: Samples, across: Samples, dtype: Any, out: Any) -> bool:
        """The same straight from the samples, if all kernels are Gaussians of the same columns."""
        from kernelmosaic.gram._torch_cuda import multiply_directly

        members = list(right)
        if out.shape[2] > 1 or self._gaussians(members) != [members]:
            return False
        rates, scales = self._constants(members)
        beta = self.backend.xp.stack([right[m][:, 0] / scale for m, scale in zip(members, scales, strict=True)])
        LT, R = left.views[members[0]].T, across.views[members[0]]
        found = multiply_directly(LT, R, rates, beta, np.dtype(dtype) == np.float64)
        if found is not None:
            out[members, :, 0] += found
        return found is not None

    def _multiply_stored(self, kernels: list[int], rows: Any, columns: Any, right: Any, out: Any) -> None:
        """The same from stored matrices, a few whole rows at a time."""
        full = self.backend.zeros((self.n_samples, right.shape[1]))
        full[self.backend.index(columns)] = right
        at = self.backend.index(rows)
        height = max(1, 8 * self.tile**2 // self.n_samples)
        assert self.stored is not None
        for m in kernels:
            for i in range(0, len(at), height):
                out[m, i : i + height] = self.stored[m][at[i : i + height]].double() @ full

    def _exact(
        self,
        support: NDArray[np.intp],
        beta: NDArray[np.float64],
        inner: NDArray[np.float64],
        outer: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return Σ_m outer_m ∘ K_m(inner_m ∘ β) with every entry in double precision, for (n, P) or (n, 1) factors.

        β, at the support, has one column or several.
        """
        active = np.flatnonzero(np.any(inner != 0, axis=0))
        columns = self.backend.asarray(beta.reshape(len(support), -1))
        factors = self.backend.asarray(inner[support])
        out = self.backend.zeros((self.n_kernels, self.n_samples, columns.shape[1]))
        right = {int(m): factors[:, m : m + 1] * columns for m in active}
        self._multiply(right, slice(0, self.n_samples), support, np.float64, out)
        values = self.backend.to_numpy((out * self.backend.asarray(outer.T)[:, :, None]).sum(0))
        return values.reshape(self.n_samples, *beta.shape[1:])

    def _blocks(self, kernels: Any, rows: Rows, columns: Rows) -> Iterator[tuple[int, Any]]:
        if self.stored is None:
            left, right = self.samples.take(rows), self.samples.take(columns)
            yield from self.kernel_set.blocks(left, right, [int(m) for m in kernels], self.dtype)
            return
        rows, columns = self.backend.index(rows), self.backend.index(columns)
        for m in kernels:
            yield int(m), self.stored[m][rows][:, columns]


def device_budget(backend: Backend) -> float:
    """Return the bytes a stack may take: most of the device's free memory, on the host half."""
    cuda = str(backend.device).startswith("cuda")
    return _SHARE * backend.free_bytes() if cuda else default_budget()
