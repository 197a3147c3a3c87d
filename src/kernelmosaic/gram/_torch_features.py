"""Features on a device: the same factors as in this process, with every pass over the rows made there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.gram._torch_cuda import columns_times, rows_times
from kernelmosaic.gram._torch_factored import DeviceFactoredGram
from kernelmosaic.gram._torch_kernels import DeviceKernelSet, Placed
from kernelmosaic.gram._torch_stack import device_budget
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack, Kernels, nonzero_rows
from kernelmosaic.gram.features import FourierMap, NystroemMap
from kernelmosaic.gram.gram import Array
from kernelmosaic.gram.memory import format_bytes
from kernelmosaic.gram.normalizing import UnitTrace, Unscaled
from kernelmosaic.gram.row_blocks import Rows, RowSource, row_strips
from kernelmosaic.kernels.base import Block

#: Numbers, in double precision, that a pass works on at once.
_STRIP = 2**27
#: Features stay in double precision up to this many numbers.
_DOUBLE = 2**25
#: Samples whose block of the kernel a solver may form at once; a device forms large ones in no time.
_BLOCK_SAMPLES = 16_000
#: Rows of samples on their way to the device at once.
_HOST_ROWS = 2**17


class DeviceMaps:
    """The feature maps of a kernel_set as a device evaluates them.

    Maps or normalisations without a formula here are evaluated on the host by their own code, and copied.
    """

    def __init__(self, kernel_set: FeatureMaps, device: torch.device) -> None:
        self.kernel_set, self.device = kernel_set, device
        self.landmarks: dict[int, Placed] = {}
        self.kernels: DeviceKernelSet | None = None
        if any(isinstance(one, NystroemMap) for one in kernel_set.maps):
            self.kernels = DeviceKernelSet(kernel_set.kernel_set, kernel_set.landmarks, device)
            self.all_landmarks = self.kernels.place(kernel_set.landmarks)

    def blocks(self, X: Any, kernels: Kernels, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        """Yield (m, features of the samples X, on the device) for each kernel asked for."""
        views = self.kernel_set.kernel_set.views(X)
        placed: dict[int, Tensor] = {}
        landmarked: dict[int, list[int]] = {}
        for m in map(int, kernels):
            one = self.kernel_set.maps[m]
            if isinstance(one, NystroemMap):
                landmarked.setdefault(one.n_landmarks, []).append(m)
            elif isinstance(one, FourierMap) and self._is_plain(m) and not hasattr(views[m], "toarray"):
                key = id(views[m])
                if key not in placed:
                    placed[key] = torch.as_tensor(np.asarray(views[m], dtype=np.float64), device=self.device)
                yield m, self._finish(m, self._fourier(m, one, placed[key]), dtype)
            else:
                yield m, self._tensor(next(self.kernel_set.blocks(X, [m]))[1]).to(dtype)
        if self.kernels is not None and landmarked:
            samples = self.kernels.place(views)
            for count, members in landmarked.items():
                some = self.all_landmarks.take(slice(0, count))
                for m, block in self.kernels.blocks(samples, some, members, torch.float64):
                    one = self.kernel_set.maps[m]
                    assert isinstance(one, NystroemMap)
                    yield m, self._finish(m, block @ self._tensor(one.root), dtype)

    def _is_plain(self, m: int) -> bool:
        return isinstance(self.kernel_set.kernel_set.fitted[m].normalization, UnitTrace | Unscaled)

    def _fourier(self, m: int, one: FourierMap, X: Tensor) -> Tensor:
        rule = self.kernel_set.kernel_set.fitted[m].normalization
        scale = float(rule.scale_) if isinstance(rule, UnitTrace) else 1.0
        angles = (X - self._tensor(np.asarray(one.center))) @ self._tensor(one.frequencies)
        Z = torch.cat([angles.cos(), angles.sin()], dim=1)
        return Z.mul_(float(np.sqrt(one.factor / (one.width // 2) / scale)))

    def _finish(self, m: int, Z: Tensor, dtype: torch.dtype) -> Tensor:
        centre, factor = self.kernel_set.centres[m], self.kernel_set.factors[m]
        if factor != 1.0 or np.any(centre):
            Z = (Z - self._tensor(np.asarray(centre, dtype=np.float64))) * factor
        return Z.to(dtype)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


class TorchFeatures(FeatureStack):
    """Features on a device, one tensor a kernel."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.device = tensors[0].device
        self.n_kernels, self.n_samples = len(tensors), int(tensors[0].shape[0])
        self.dtype = np.dtype(np.float32 if tensors[0].element_size() == 4 else np.float64)
        self.widths = np.array([int(Z.shape[1]) for Z in tensors], dtype=np.intp)
        self.block_samples = _BLOCK_SAMPLES

    @classmethod
    def fill(
        cls, kernel_set: FeatureMaps, source: RowSource, device: torch.device, dtype: torch.dtype
    ) -> TorchFeatures:
        """Compute the features strip by strip."""
        n = source.shape[0]
        maps = DeviceMaps(kernel_set, device)
        tensors = [torch.empty((n, int(width)), dtype=dtype, device=device) for width in kernel_set.widths]
        height = min(_HOST_ROWS, _STRIP // max(int(max(kernel_set.widths)), 1))
        for strip in row_strips(n, max(1, height)):
            for m, Z in maps.blocks(source.take(strip), range(len(kernel_set)), dtype):
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

    def outputs(
        self, sums: dict[int, Array], columns: tuple[int, ...] = (), rows: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        out = np.zeros((self.n_kernels, self.n_samples if rows is None else len(rows), *columns))
        at = None if rows is None else torch.as_tensor(rows, device=self.device)
        for m, total in sums.items():
            right = self.tensor(total)
            out[m] = rows_times(self.tensors[m] if at is None else self.tensors[m][at], right).cpu().numpy()
        return out

    def sums(self, beta: NDArray[Any], kernels: Kernels, gates: NDArray[Any] | None = None) -> dict[int, Array]:
        support = nonzero_rows(beta)
        at, plain = torch.as_tensor(support, device=self.device), self.tensor(beta[support])
        gated = None if gates is None else self.tensor(gates[support].T)
        totals = {}
        for m in map(int, kernels):
            coefficients = plain if gated is None else gated[m].reshape(-1, *[1] * (plain.ndim - 1)) * plain
            totals[m] = columns_times(self.tensors[m][at], coefficients).cpu().numpy()
        self.rows_read += len(support)
        return totals

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """Return an array on the device, in double precision."""
        return torch.as_tensor(np.ascontiguousarray(array, dtype=np.float64), device=self.device)


def make_torch_features(
    kernel_set: FeatureMaps, source: RowSource, device: torch.device, budget: float | None = None
) -> TorchFeatures:
    """Return the stack of a training set in features on a device, in single precision where they are many."""
    numbers = source.shape[0] * int(kernel_set.widths.sum())
    size, budget = 8 if numbers <= _DOUBLE else 4, device_budget(device) if budget is None else budget
    # A strip, its copy in double precision, and what its products need.
    needed = size * numbers + 8 * 3 * min(_STRIP, numbers)
    if needed > budget:
        raise MemoryError(
            f"The features of {source.shape[0]} samples need {format_bytes(needed)} on {device}, the budget is "
            f"{format_bytes(budget)}: lower rank, or use device=None, which computes them as they are needed."
        )
    return TorchFeatures.fill(kernel_set, source, device, torch.float64 if size == 8 else torch.float32)
