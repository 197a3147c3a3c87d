"""The stack on a device: combined matrices in its memory, single kernels stored there if they fit, else recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.gram._torch_cuda import combine_directly, multiply_directly
from kernelmosaic.gram._torch_kernels import DeviceKernelSet, Placed
from kernelmosaic.gram.class_grams import StackClasses
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.kernel_set import KernelSet, Views
from kernelmosaic.gram.memory import SMALLER, default_budget, format_bytes
from kernelmosaic.gram.stack import GramStack, Rows
from kernelmosaic.kernels.base import Block

#: Side of the squares that matrices are computed in: what is worked on at once stays in the device's cache.
_TILE = {"cuda": 2048, "cpu": 512}
#: Share of the device's free memory that a stack may take by default: nobody else has plans for the rest.
_SHARE = 0.85
#: Up to this many samples matrices are kept in double precision, as on the host.
_SMALL = 2000
_KINDS = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


class TorchStack(GramStack):
    """P Gram matrices on a device; operations take and return arrays, but for combined kernels, which stay there.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : list
        The training samples as the kernels see them.
    device : torch.device
        Where the stack lives.
    dtype : dtype
        Of combined and stored matrices.
    store : bool
        Whether to keep every kernel's matrix.
    """

    writes_matrices = False

    def __init__(
        self, kernel_set: KernelSet, views: Views, device: torch.device, dtype: np.dtype[Any], store: bool = False
    ) -> None:
        self.n_samples = views[0].shape[0]
        self.n_kernels = len(kernel_set)
        self.dtype = dtype
        self.device = device
        self.kind = _KINDS[dtype]
        self.tile = _TILE[device.type]
        self.kernels = DeviceKernelSet(kernel_set, views, device)
        self.samples = self.kernels.place(views)
        # Exact, where blocks know a sample's distance from itself up to rounding only.
        self.diagonals = None if self.kernels.on_host else self._tensor(kernel_set.diagonals(views))
        self.stored: list[Tensor] | None = None
        if store:
            eye = np.eye(self.n_kernels)
            self.stored = [self._fill(eye[m], self._empty()) for m in range(self.n_kernels)]

    def part(self, rows: NDArray[np.intp]) -> TorchStack:
        at = torch.as_tensor(rows, device=self.device)
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

        return DenseGram(matrix, None if self.kind == torch.float64 else exact)

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m g_m g_mᵀ ∘ K_m as a `DenseGram`."""
        gates = np.array(gates, dtype=np.float64)
        active = np.flatnonzero(np.any(gates != 0, axis=0))
        matrix = self._empty() if out is None else out.matrix
        g = self._tensor(gates).to(self.kind)
        for rows, columns in self._squares():
            part = matrix[rows, columns].zero_()
            for m, block in self._blocks(active, rows, columns):
                # A stored block must stay as it is.
                part += (block * g[columns, m]).mul_(g[rows, m].unsqueeze(1))
            _mirror(matrix, rows, columns)
        if self.diagonals is not None:
            matrix.diagonal().copy_((self._tensor(gates.T**2) * self.diagonals).sum(0))

        def exact(support: NDArray[np.intp], beta: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._exact(support, beta, gates, gates)

        return DenseGram(matrix, None if self.kind == torch.float64 else exact)

    def combine_classes(self, weights: NDArray[Any], out: Any = None) -> Any:
        """Return Σ_m weights[c, m] K_m of every class, never written down: one matrix a class would fill the device."""
        return StackClasses(self, np.array(weights, dtype=np.float64))

    def _fill(self, weights: NDArray[Any], matrix: Tensor) -> Tensor:
        if self._fill_directly(weights, matrix):
            return matrix
        for rows, columns in self._squares():
            part = matrix[rows, columns].zero_()
            if self.stored is None:
                self.kernels.accumulate(self.samples.take(rows), self.samples.take(columns), weights, part)
            else:
                for m in np.flatnonzero(weights):
                    part.add_(self.stored[m][rows, columns], alpha=float(weights[m]))
            _mirror(matrix, rows, columns)
        if self.diagonals is not None:
            matrix.diagonal().copy_(self._tensor(weights) @ self.diagonals)
        return matrix

    def _fill_directly(self, weights: NDArray[Any], matrix: Tensor) -> bool:
        """Write the matrix straight from the samples, if only Gaussians of the same columns have a weight."""
        active = np.flatnonzero(weights)
        bells = self.kernels.bells(active.tolist()) if self.stored is None else None
        if bells is None:
            return False
        factors = (weights[active] / np.array(bells.scales)).tolist()
        return combine_directly(self.samples.samples[bells.group].T.contiguous(), bells.rates, factors, matrix)

    def _squares(self) -> Iterator[tuple[slice, slice]]:
        """Cut the lower triangle into squares."""
        cuts = [slice(a, min(a + self.tile, self.n_samples)) for a in range(0, self.n_samples, self.tile)]
        for i, rows in enumerate(cuts):
            yield from ((rows, columns) for columns in cuts[: i + 1])

    def _empty(self) -> Tensor:
        try:
            return torch.empty((self.n_samples,) * 2, dtype=self.kind, device=self.device)
        except RuntimeError as error:  # torch's own error does not say what the memory was for
            need = format_bytes(self.n_samples**2 * self.dtype.itemsize)
            raise MemoryError(
                f"A {self.n_samples} x {self.n_samples} kernel matrix needs {need} on {self.device}: use "
                "approximation='nystroem', or fewer samples."
            ) from error

    # Blocks and products -------------------------------------------------------------------------------------------

    def blocks(self, kernels: Sequence[int] | NDArray[Any], rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        for m, block in self._blocks(kernels, rows, columns):
            yield m, block.cpu().numpy()

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        height = max(1, self.tile**2 // max(n_columns, 1))
        for start in range(0, self.n_samples, height):
            yield slice(start, min(start + height, self.n_samples))

    def products(
        self,
        beta: NDArray[Any],
        rows: NDArray[np.intp] | None = None,
        kernels: Sequence[int] | NDArray[Any] | None = None,
    ) -> NDArray[np.float64]:
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        asked = range(self.n_kernels) if kernels is None else kernels
        at = np.arange(self.n_samples) if rows is None else rows
        right = self._tensor(beta[support] if beta.ndim == 2 else beta[support, np.newaxis])
        out = torch.zeros((self.n_kernels, len(at), right.shape[1]), dtype=torch.float64, device=self.device)
        if len(support) and len(at):
            if self.stored is None:
                self._multiply(dict.fromkeys(map(int, asked), right), at, support, self.kind, out)
            else:
                self._multiply_stored([int(m) for m in asked], at, support, right, out)
        values: NDArray[np.float64] = out.cpu().numpy()
        return values[:, :, 0] if beta.ndim == 1 else values

    def _multiply(self, right: dict[int, Tensor], rows: Any, columns: Any, kind: torch.dtype, out: Tensor) -> None:
        """out[m] += K_m[rows, columns] right[m], the entries computed in that precision and summed in double."""
        left, across = self.samples.take(rows), self.samples.take(columns)
        if self._multiply_directly(right, left, across, kind, out):
            return
        n_rows = out.shape[1]
        for i in range(0, n_rows, self.tile):
            strip = slice(i, min(i + self.tile, n_rows))
            part = left.take(strip)
            for j in range(0, len(columns), self.tile):
                below = slice(j, min(j + self.tile, len(columns)))
                for m, block in self.kernels.blocks(part, across.take(below), list(right), kind):
                    out[m, strip] += block.double() @ right[m][below]

    def _multiply_directly(
        self, right: dict[int, Tensor], left: Placed, across: Placed, kind: torch.dtype, out: Tensor
    ) -> bool:
        """The same straight from the samples, if all kernels are Gaussians of the same columns."""
        bells = self.kernels.bells(list(right))
        if bells is None or out.shape[2] > 1:
            return False
        beta = torch.stack([right[m][:, 0] / scale for m, scale in zip(right, bells.scales, strict=True)])
        LT, R = left.samples[bells.group].T, across.samples[bells.group]
        found = multiply_directly(LT, R, bells.rates, beta, kind == torch.float64)
        if found is not None:
            out[list(right), :, 0] += found
        return found is not None

    def _multiply_stored(self, kernels: list[int], rows: Any, columns: Any, right: Tensor, out: Tensor) -> None:
        """The same from stored matrices, a few whole rows at a time."""
        full = torch.zeros((self.n_samples, right.shape[1]), dtype=torch.float64, device=self.device)
        full[torch.as_tensor(columns, device=self.device)] = right
        at = torch.as_tensor(rows, device=self.device)
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
        columns = self._tensor(beta.reshape(len(support), -1))
        factors = self._tensor(inner[support])
        out = torch.zeros((self.n_kernels, self.n_samples, columns.shape[1]), dtype=torch.float64, device=self.device)
        right = {int(m): factors[:, m : m + 1] * columns for m in active}
        self._multiply(right, slice(0, self.n_samples), support, torch.float64, out)
        values: NDArray[np.float64] = (out * self._tensor(outer.T)[:, :, None]).sum(0).cpu().numpy()
        return values.reshape(self.n_samples, *beta.shape[1:])

    def _blocks(self, kernels: Any, rows: Rows, columns: Rows) -> Iterator[tuple[int, Tensor]]:
        if self.stored is None:
            yield from self.kernels.blocks(self.samples.take(rows), self.samples.take(columns), kernels, self.kind)
            return
        for m in kernels:
            K = self.stored[m]
            K = K[rows] if isinstance(rows, slice) else K[torch.as_tensor(rows, device=self.device)]
            yield int(m), K[:, columns if isinstance(columns, slice) else torch.as_tensor(columns, device=self.device)]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array, dtype=np.float64), device=self.device)


def make_torch_stack(
    kernel_set: KernelSet, views: Views, device: torch.device, dtype: Any, budget: float | None
) -> TorchStack:
    """Return the stack of a training set on a device; see `make_stack`."""
    n = views[0].shape[0]
    dtype = np.dtype(dtype if dtype is not None else (np.float64 if n <= _SMALL else np.float32))
    budget = device_budget(device) if budget is None else budget
    matrix = n * n * dtype.itemsize
    if matrix > budget:
        raise MemoryError(
            f"One combined {n} x {n} kernel matrix needs {format_bytes(matrix)} on {device}, the budget is "
            f"{format_bytes(budget)}: {SMALLER}."
        )
    # One more for the combined matrix, and one for the blocks the solver takes out of it.
    return TorchStack(kernel_set, views, device, dtype, store=(len(kernel_set) + 2) * matrix <= budget)


def device_budget(device: torch.device) -> float:
    """Return the bytes a stack may take: most of the device's free memory, on the host half."""
    if device.type != "cuda":
        return default_budget()
    free: int = torch.cuda.mem_get_info(device)[0]
    # What this process has set aside and does not use is free, too.
    return float(_SHARE * (free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)))


def _mirror(matrix: Tensor, rows: slice, columns: slice) -> None:
    """Copy a square of the lower triangle into the upper; one on the diagonal is made symmetric."""
    if rows.start != columns.start:
        matrix[columns, rows] = matrix[rows, columns].T
        return
    square = matrix[rows, columns]
    square.copy_(torch.tril(square) + torch.tril(square, -1).T)


__all__ = ["DeviceKernelSet", "Placed", "TorchStack", "device_budget", "make_torch_stack"]
