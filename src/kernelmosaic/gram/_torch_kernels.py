"""Kernels on a device.

Inner products and distances are computed in double precision, as fast on large accelerators as single precision
without shortcuts, and rounded to the block's precision before the formula. Kernels without a formula for tensors are
computed on the host, and copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.backend import is_tensor, torch_backend
from kernelmosaic.gram._torch_cuda import add_gaussians
from kernelmosaic.gram.kernel_set import FittedKernel, KernelSet, Views, take_rows
from kernelmosaic.gram.normalizing import Centered, UnitDiagonal, UnitTrace
from kernelmosaic.gram.product import ProductKernelSet
from kernelmosaic.kernels.base import StatisticKernel, pairwise_statistic
from kernelmosaic.kernels.gaussian import Gaussian


@dataclass(frozen=True)
class Group:
    """Kernels that are functions of one statistic of the same columns.

    Attributes
    ----------
    statistic : {"products", "squared_distances", "manhattan_distances"}
        What they share.
    members : list of int
        Their numbers.
    center : ndarray of shape (n_features,)
        What is subtracted from every sample: far from the origin, squared norms swallow small distances.
    """

    statistic: str
    members: list[int]
    center: NDArray[np.float64]


@dataclass(frozen=True)
class Placed:
    """Samples on the device.

    Attributes
    ----------
    samples, norms : list of Tensor
        The columns each group reads, and their squared norms.
    sides : dict from kernel to Tensor
        What a kernel's normalisation knows of each sample.
    views : list
        The samples on the host, for the kernels that are computed there.
    """

    samples: list[Tensor]
    norms: list[Tensor]
    sides: dict[int, Tensor] = field(default_factory=dict)
    views: Views = field(default_factory=list)

    def take(self, rows: Any) -> Placed:
        """Return some samples: a slice or an array of row numbers."""
        if isinstance(rows, slice):
            at: Any = rows
        else:
            at = torch.as_tensor(rows, device=self.samples[0].device) if self.samples else rows
        sides = {m: side[at] for m, side in self.sides.items()}
        views = take_rows(self.views, rows) if self.views else []
        return Placed([X[at] for X in self.samples], [x[at] for x in self.norms], sides, views)


@dataclass(frozen=True)
class GaussianGroup:
    """Gaussians of one group: exp(rate · squared distance) / scale.

    Attributes
    ----------
    group : int
        The number of their group.
    rates, scales : list of float
        One a kernel.
    """

    group: int
    rates: list[float]
    scales: list[float]


class DeviceKernelSet:
    """The fitted of a kernel_set as a device evaluates them.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : list
        Samples as the kernels see them: which kernels share columns is read off them.
    device : torch.device
        Where to compute.
    """

    def __init__(self, kernel_set: KernelSet, views: Views, device: torch.device) -> None:
        self.kernel_set = kernel_set
        self.device = device
        self.is_product = isinstance(kernel_set, ProductKernelSet)
        self.formulas: dict[int, StatisticKernel] = {}
        shared: dict[tuple[str, int], list[int]] = {}
        for m, fitted_kernel in enumerate(kernel_set.fitted):
            kernel = fitted_kernel.kernel
            if isinstance(kernel, StatisticKernel) and takes_tensors(kernel, str(device)):
                self.formulas[m] = kernel
                shared.setdefault((kernel.statistic, id(views[m])), []).append(m)
        self.on_host = [m for m in range(len(kernel_set.fitted)) if m not in self.formulas]
        self.groups = [
            Group(statistic, members, _center(statistic, views[members[0]]))
            for (statistic, _), members in shared.items()
        ]

    def place(self, views: Views) -> Placed:
        """Copy samples to the device."""
        samples = []
        for group in self.groups:
            view = views[group.members[0]]
            dense = np.asarray(view.toarray() if hasattr(view, "toarray") else view, dtype=np.float64)
            samples.append(torch.as_tensor(dense - group.center, device=self.device))
        sides = {
            m: self._tensor(side)
            for m in self.formulas
            if (side := _side(self.kernel_set.fitted[m], views[m])) is not None
        }
        return Placed(samples, [(X * X).sum(1) for X in samples], sides, views if self.on_host else [])

    def blocks(
        self, left: Placed, right: Placed, kernels: Sequence[int] | NDArray[Any], dtype: torch.dtype
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield (m, block of kernel m between two sets of samples); the blocks may be changed."""
        if not self.is_product:
            yield from self._fitted_blocks(left, right, [int(m) for m in kernels], dtype)
            return
        for m in kernels:
            factors = self._fitted_blocks(left, right, list(range(len(self.kernel_set.fitted))), dtype)
            product = next(factors)[1]
            for _, factor in factors:
                product *= factor
            yield int(m), product

    def accumulate(self, left: Placed, right: Placed, weights: NDArray[Any], out: Tensor) -> None:
        """out += Σ_m weights_m K_m between two sets of samples; kernels without a weight are not computed."""
        active = np.flatnonzero(weights)
        rest = [int(m) for m in active]
        if not self.is_product:
            for number, group in enumerate(self.groups):
                bells = [m for m in group.members if m in rest and self._is_gaussian(m)]
                if bells:
                    S = self._statistic(number, left, right)
                    rates = [self._rate(m) for m in bells]
                    add_gaussians(S, rates, [float(weights[m]) / _scale(self.kernel_set.fitted[m]) for m in bells], out)
                    rest = [m for m in rest if m not in bells]
        for m, block in self.blocks(left, right, rest, out.dtype):
            out.add_(block, alpha=float(weights[m]))

    def bells(self, kernels: Sequence[int] | NDArray[Any]) -> GaussianGroup | None:
        """Return what Gaussians of one set of columns are made of; None if some of the kernels are anything else."""
        if self.is_product or not len(kernels) or not all(m in self.formulas and self._is_gaussian(m) for m in kernels):
            return None
        homes = {number for number, group in enumerate(self.groups) if set(group.members) & set(kernels)}
        if len(homes) != 1:
            return None
        fitted = [self.kernel_set.fitted[m] for m in kernels]
        return GaussianGroup(
            homes.pop(),
            [self._rate(m) for m in kernels],
            [_scale(fitted_kernel) for fitted_kernel in fitted],
        )

    def _fitted_blocks(
        self, left: Placed, right: Placed, kernels: list[int], dtype: torch.dtype
    ) -> Iterator[tuple[int, Tensor]]:
        for number, group in enumerate(self.groups):
            members = [m for m in group.members if m in kernels]
            if members:
                S = self._statistic(number, left, right)
                rounded = S.to(dtype)
                for m in members:
                    # Centring may leave but the last digits of large entries: they are rounded after it.
                    centred = isinstance(self.kernel_set.fitted[m].normalization, Centered)
                    K = self.formulas[m].from_statistic(S if centred else rounded)
                    yield m, self._finish(m, K, left, right).to(dtype)
        hosted = [m for m in self.on_host if m in kernels]
        if hosted:
            # The product rule, too, asks for its factors one by one.
            for m, block in KernelSet(self.kernel_set.fitted).blocks(left.views, right.views, hosted):
                yield m, self._tensor(block).to(dtype)

    def _statistic(self, number: int, left: Placed, right: Placed) -> Tensor:
        statistic, norms = self.groups[number].statistic, (left.norms[number], right.norms[number])
        S: Any = pairwise_statistic(statistic, left.samples[number], right.samples[number], norms)
        return S

    def _is_gaussian(self, m: int) -> bool:
        """Whether a kernel is a Gaussian up to one factor."""
        fitted_kernel = self.kernel_set.fitted[m]
        # Subclasses may say something else than their parents.
        return type(fitted_kernel.kernel) is Gaussian and not isinstance(
            fitted_kernel.normalization, Centered | UnitDiagonal
        )

    def _rate(self, m: int) -> float:
        kernel = self.kernel_set.fitted[m].kernel
        assert isinstance(kernel, Gaussian)
        return kernel.rate(np.float32)

    def _finish(self, m: int, K: Tensor, left: Placed, right: Placed) -> Tensor:
        fitted_kernel = self.kernel_set.fitted[m]
        rule = fitted_kernel.normalization
        if isinstance(rule, UnitDiagonal):
            K *= left.sides[m].to(K.dtype).unsqueeze(1)
            K *= right.sides[m].to(K.dtype)
        elif isinstance(rule, Centered):
            K -= left.sides[m].to(K.dtype).unsqueeze(1)
            K -= (right.sides[m] - rule.mean_).to(K.dtype)
        scale = _scale(fitted_kernel)
        return K if scale == 1.0 else K.div_(scale)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


def _scale(fitted_kernel: FittedKernel) -> float:
    """Return what a kernel's blocks are divided by."""
    rule = fitted_kernel.normalization
    return float(rule.scale_) if isinstance(rule, UnitTrace | Centered) else 1.0


def _side(fitted_kernel: FittedKernel, view: Any) -> NDArray[np.float64] | None:
    """Return what a normalisation needs to know of each sample, if it does."""
    rule = fitted_kernel.normalization
    if isinstance(rule, UnitDiagonal):
        return 1.0 / rule._norms(view, np.float64)
    return rule._means(view) if isinstance(rule, Centered) else None


def takes_tensors(kernel: StatisticKernel, device: str) -> bool:
    """Whether a formula serves tensors: kernels of others may be written for NumPy alone."""
    try:
        return is_tensor(kernel.from_statistic(torch_backend(device).zeros((1, 1))))
    except Exception:  # whatever a formula for arrays makes of a tensor, the host serves
        return False


def _center(statistic: str, view: Any) -> NDArray[np.float64]:
    """Return the mean of the samples where only their differences count, else zero."""
    if statistic != "squared_distances":
        return np.zeros(view.shape[1])
    return np.asarray(view.mean(axis=0), dtype=np.float64).ravel()
