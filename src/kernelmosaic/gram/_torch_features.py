"""Features on a device: the same factors as in this process, with every pass over the rows made there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.gram._torch_bank import device_budget
from kernelmosaic.gram._torch_kernels import DeviceMosaic, Placed
from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.gram.factored import Array, FactoredGram
from kernelmosaic.gram.feature_bank import FeatureBank, Kernels
from kernelmosaic.gram.feature_mosaic import FeatureMosaic
from kernelmosaic.gram.features import FourierMap, NystroemMap
from kernelmosaic.gram.memory import format_bytes
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.row_blocks import Rows, RowSource, row_strips
from kernelmosaic.kernels.base import Block

#: Numbers, in double precision, that a pass works on at once.
_STRIP = 2**27
#: Columns of the features whose products are formed at once: of a symmetric matrix only the blocks on one side.
_COLUMNS = 1280
#: Features stay in double precision up to this many numbers.
_DOUBLE = 2**25
#: Samples whose block of the kernel a solver may form at once; a device forms large ones in no time.
_BLOCK_SAMPLES = 16_000
#: Rows of samples on their way to the device at once.
_HOST_ROWS = 2**17


class DeviceMaps:
    """The feature maps of a mosaic as a device evaluates them.

    Maps or normalisations without a formula here are evaluated on the host by their own code, and copied.
    """

    def __init__(self, mosaic: FeatureMosaic, device: torch.device) -> None:
        self.mosaic, self.device = mosaic, device
        self.landmarks: dict[int, Placed] = {}
        self.kernels: DeviceMosaic | None = None
        if any(isinstance(one, NystroemMap) for one in mosaic.maps):
            self.kernels = DeviceMosaic(mosaic.mosaic, mosaic.landmarks, device)
            self.all_landmarks = self.kernels.place(mosaic.landmarks)

    def blocks(self, X: Any, kernels: Kernels, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        """Yield (m, features of the samples X, on the device) for each kernel asked for."""
        views = self.mosaic.mosaic.views(X)
        placed: dict[int, Tensor] = {}
        landmarked: dict[int, list[int]] = {}
        for m in map(int, kernels):
            one = self.mosaic.maps[m]
            if isinstance(one, NystroemMap):
                landmarked.setdefault(one.n_landmarks, []).append(m)
            elif isinstance(one, FourierMap) and self._is_plain(m) and not hasattr(views[m], "toarray"):
                key = id(views[m])
                if key not in placed:
                    placed[key] = torch.as_tensor(np.asarray(views[m], dtype=np.float64), device=self.device)
                yield m, self._finish(m, self._fourier(m, one, placed[key]), dtype)
            else:
                yield m, self._tensor(next(self.mosaic.blocks(X, [m]))[1]).to(dtype)
        if self.kernels is not None and landmarked:
            samples = self.kernels.place(views)
            for count, members in landmarked.items():
                some = self.all_landmarks.take(slice(0, count))
                for m, block in self.kernels.blocks(samples, some, members, torch.float64):
                    one = self.mosaic.maps[m]
                    assert isinstance(one, NystroemMap)
                    yield m, self._finish(m, block @ self._tensor(one.root), dtype)

    def _is_plain(self, m: int) -> bool:
        return isinstance(self.mosaic.mosaic.pieces[m].normalization, UnitTrace | Unscaled)

    def _fourier(self, m: int, one: FourierMap, X: Tensor) -> Tensor:
        rule = self.mosaic.mosaic.pieces[m].normalization
        scale = float(rule.scale_) if isinstance(rule, UnitTrace) else 1.0
        angles = X @ self._tensor(one.frequencies)
        Z = torch.cat([angles.cos(), angles.sin()], dim=1)
        return Z.mul_(float(np.sqrt(one.factor / (one.width // 2) / scale)))

    def _finish(self, m: int, Z: Tensor, dtype: torch.dtype) -> Tensor:
        centre, factor = self.mosaic.centres[m], self.mosaic.factors[m]
        if factor != 1.0 or np.any(centre):
            Z = (Z - self._tensor(np.asarray(centre, dtype=np.float64))) * factor
        return Z.to(dtype)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


class TorchFeatures(FeatureBank):
    """Features on a device, one tensor a kernel."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.device = tensors[0].device
        self.n_kernels, self.n_samples = len(tensors), int(tensors[0].shape[0])
        self.dtype = np.dtype(np.float32 if tensors[0].element_size() == 4 else np.float64)
        self.widths = np.array([int(Z.shape[1]) for Z in tensors], dtype=np.intp)
        self.block_samples = _BLOCK_SAMPLES

    @classmethod
    def fill(cls, mosaic: FeatureMosaic, source: RowSource, device: torch.device, dtype: torch.dtype) -> TorchFeatures:
        """Compute the features strip by strip."""
        n = source.shape[0]
        maps = DeviceMaps(mosaic, device)
        tensors = [torch.empty((n, int(width)), dtype=dtype, device=device) for width in mosaic.widths]
        height = min(_HOST_ROWS, _STRIP // max(int(max(mosaic.widths)), 1))
        for strip in row_strips(n, max(1, height)):
            for m, Z in maps.blocks(source.take(strip), range(len(mosaic)), dtype):
                tensors[m][strip] = Z
        return cls(tensors)

    def features(self, rows: Rows, kernels: Kernels) -> Iterator[tuple[int, Block]]:
        at = rows if isinstance(rows, slice) else torch.as_tensor(rows, device=self.device)
        for m in kernels:
            yield m, self.tensors[m][at].cpu().numpy()

    def combine(self, weights: NDArray[Any], out: Any = None) -> Any:
        return DeviceFactoredGram(self, np.asarray(weights, dtype=np.float64))

    def combine_gated(self, gates: NDArray[Any], out: Any = None) -> Any:
        return DeviceFactoredGram(self, np.any(gates != 0, axis=0).astype(np.float64), np.asarray(gates))

    def products(
        self, beta: NDArray[Any], rows: NDArray[np.intp] | None = None, kernels: Kernels | None = None
    ) -> NDArray[np.float64]:
        every = range(self.n_kernels) if kernels is None else kernels
        out = np.zeros((self.n_kernels, self.n_samples if rows is None else len(rows), *beta.shape[1:]))
        at = None if rows is None else torch.as_tensor(rows, device=self.device)
        for m, total in self.sums(beta, every).items():
            right = self.tensor(total)
            strips = row_strips(out.shape[1], self._height(self.tensors[m].shape[1]))
            parts = [self.tensors[m][strip if at is None else at[strip]].double() @ right for strip in strips]
            out[m] = torch.cat(parts).cpu().numpy() if parts else 0.0
        return out

    def sums(self, beta: NDArray[Any], kernels: Kernels) -> dict[int, Array]:
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        at, coefficients = torch.as_tensor(support, device=self.device), self.tensor(beta[support])
        totals = {}
        for m in map(int, kernels):
            total = torch.zeros((int(self.widths[m]), *beta.shape[1:]), dtype=torch.float64, device=self.device)
            for strip in row_strips(len(support), self._height(int(self.widths[m]))):
                total += self.tensors[m][at[strip]].double().T @ coefficients[strip]
            totals[m] = total.cpu().numpy()
        self.rows_read += len(support)
        return totals

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Return an array on the device, in double precision."""
        return torch.as_tensor(np.ascontiguousarray(array, dtype=np.float64), device=self.device)

    @staticmethod
    def _height(width: int) -> int:
        return max(1, _STRIP // max(width, 1))


class DeviceFactoredGram(FactoredGram):
    """The weighted features on the device, side by side; gates, if there are any, multiply their rows."""

    def __init__(self, bank: TorchFeatures, weights: Array, gates: Array | None = None) -> None:
        self.bank = bank
        self.active = [int(m) for m in np.flatnonzero(weights)]
        self.roots = np.sqrt(weights[self.active])
        self.gates = None if gates is None else bank.tensor(gates)
        self.n_samples, self.n_features = bank.n_samples, int(bank.widths[self.active].sum())
        self.block_samples = bank.block_samples

    def apply(self, W: Array) -> Array:
        right = self.bank.tensor(W)
        parts = [self._rows(strip) @ right for strip in self._strips(self.n_samples)]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def adjoint(self, V: Array) -> Array:
        support = np.flatnonzero(V if V.ndim == 1 else np.any(V != 0, axis=1))
        at, coefficients = torch.as_tensor(support, device=self.bank.device), self.bank.tensor(V[support])
        out = torch.zeros((self.n_features, *V.shape[1:]), dtype=torch.float64, device=self.bank.device)
        for strip in self._strips(len(support)):
            out += self._rows(at[strip]).T @ coefficients[strip]
        return np.asarray(out.cpu().numpy())

    def normal_matrix(self, theta: Array, precise: bool = False) -> Array:
        used = np.flatnonzero(theta)
        at, roots = torch.as_tensor(used, device=self.bank.device), self.bank.tensor(np.sqrt(theta[used]))
        D = self.n_features + 1
        out = torch.zeros((D, D), dtype=torch.float64, device=self.bank.device)
        for strip in self._strips(len(used)):
            B = torch.cat([self._rows(at[strip]), torch.ones_like(roots[strip])[:, None]], dim=1)
            B *= roots[strip, None]
            for a in range(0, D, _COLUMNS):
                out[a:, a : a + _COLUMNS] += B[:, a:].T @ B[:, a : a + _COLUMNS]
        out = torch.tril(out)
        return np.asarray((out + torch.tril(out, -1).T).cpu().numpy())

    def rows(self, which: NDArray[np.intp]) -> Array:
        return np.asarray(self._rows(torch.as_tensor(which, device=self.bank.device)).cpu().numpy())

    def block(self, which: NDArray[np.intp]) -> DeviceGram:
        Z = self._rows(torch.as_tensor(which, device=self.bank.device))
        return DeviceGram(Z @ Z.T)

    def diagonal(self) -> Array:
        parts = [(Z * Z).sum(1) for Z in map(self._rows, self._strips(self.n_samples))]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _strips(self, n: int) -> Iterator[slice]:
        self.bank.rows_read += n
        return row_strips(n, max(1, _STRIP // (self.n_features + 1)))

    def _rows(self, at: Any) -> Tensor:
        """Return some rows of Z in double precision."""
        blocks = []
        for m, root in zip(self.active, self.roots, strict=True):
            factor = float(root) if self.gates is None else float(root) * self.gates[at, m, None]
            # Not in place: of doubles in a slice this is the bank's own memory.
            blocks.append(self.bank.tensors[m][at].double() * factor)
        return torch.cat(blocks, dim=1)


def make_torch_features(
    mosaic: FeatureMosaic, source: RowSource, device: torch.device, budget: float | None = None
) -> TorchFeatures:
    """Return the bank of a training set in features on a device, in single precision where they are many."""
    numbers = source.shape[0] * int(mosaic.widths.sum())
    size, budget = 8 if numbers <= _DOUBLE else 4, device_budget(device) if budget is None else budget
    # A strip, its copy in double precision, and what its products need.
    needed = size * numbers + 8 * 3 * min(_STRIP, numbers)
    if needed > budget:
        raise MemoryError(
            f"The features of {source.shape[0]} samples need {format_bytes(needed)} on {device}, the budget is "
            f"{format_bytes(budget)}: lower rank, or use device=None, which computes them as they are needed."
        )
    return TorchFeatures.fill(mosaic, source, device, torch.float64 if size == 8 else torch.float32)
