"""Which stack a training set gets: where it lives, in which precision, stored or recomputed."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.backend import NUMPY, Backend, torch_backend
from kernelmosaic.gram.class_grams import BLOCK_NUMBERS
from kernelmosaic.gram.device import require_device
from kernelmosaic.gram.device_features import STRIP, DeviceFeatures
from kernelmosaic.gram.device_stack import DeviceStack, device_budget
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import (
    BLOCK_SAMPLES,
    STRIP_BYTES,
    ComputedFeatures,
    FeatureStack,
    StoredFeatures,
)
from kernelmosaic.gram.kernel_set import KernelSet, Views
from kernelmosaic.gram.memory import SMALLER, default_budget, format_bytes
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.gram.stack import ComputedStack, GramStack, StoredStack

#: Up to this many samples matrices are small enough to keep in double precision without thinking.
_SMALL = 2000
#: Features stay in double precision up to this many bytes, on a device up to this many numbers.
_DOUBLE_BYTES, _DOUBLE = 2**28, 2**25


def make_stack(
    kernel_set: KernelSet, views: Views, *, dtype: Any = None, budget: float | None = None, device: str | None = None
) -> GramStack:
    """Return the stack of a training set: stored if it fits the budget, else recomputed in blocks.

    Parameters
    ----------
    kernel_set : KernelSet
        The fitted kernels.
    views : list
        The training samples as the kernels see them.
    dtype : dtype, optional
        Of the matrices. By default double precision for small sets and single precision above.
    budget : float, optional
        Bytes the stack and one combined matrix may take; by default half of the free memory.
    device : str, optional
        A torch device to keep the stack on, such as ``"cuda"``; the budget is then of its memory, by default most of
        what is free there.

    Raises
    ------
    MemoryError
        If not even one combined matrix fits.
    """
    n = views[0].shape[0]
    dtype = np.dtype(dtype if dtype is not None else (np.float64 if n <= _SMALL else np.float32))
    backend = NUMPY if device is None else torch_backend(str(require_device(device)))
    if budget is None:
        budget = default_budget() if device is None else device_budget(backend)
    matrix = n * n * dtype.itemsize
    if matrix > budget:
        where = "" if device is None else f" on {backend.device}"
        raise MemoryError(
            f"One combined {n} x {n} kernel matrix needs {format_bytes(matrix)}{where}, the budget is "
            f"{format_bytes(budget)}: {SMALLER}."
        )
    if device is not None:
        # One more for the combined matrix, and one for the blocks the solver takes out of it.
        return DeviceStack(kernel_set, views, backend, dtype, store=(len(kernel_set) + 2) * matrix <= budget)
    if (len(kernel_set) + 1) * matrix <= budget:
        return StoredStack.fill(kernel_set, views, dtype)
    return ComputedStack(kernel_set, views, dtype, working_bytes=max(int(min(budget - matrix, budget / 8)), 2**20))


def make_feature_stack(
    kernel_set: FeatureMaps, source: RowSource, budget: float | None = None, device: str | None = None
) -> FeatureStack:
    """Return the stack of a training set in features: stored if they fit the budget, else computed strip by strip.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The fitted feature maps.
    source : RowSource
        The training samples.
    budget : float, optional
        Bytes the features may take; by default half of the free memory, on a device most of its own.
    device : str, optional
        Where torch keeps them; by default they are NumPy's, here.

    Raises
    ------
    MemoryError
        If not even the matrix of the features' products fits.
    """
    given, budget = budget, default_budget() if budget is None else budget
    D = int(kernel_set.widths.sum())
    # The Newton matrix, its parts and its factor.
    needed = 5 * 8 * (D + 1) ** 2
    if needed > budget:
        raise MemoryError(
            f"The products of {D} features need {format_bytes(needed)}, the budget is {format_bytes(budget)}: "
            "lower rank, or raise memory_budget."
        )
    size = source.shape[0] * D
    free = budget - needed
    if device is not None:
        return _make_device_features(kernel_set, source, torch_backend(str(require_device(device))), given)
    if source.remote:
        from kernelmosaic.gram._dask_features import DaskFeatures

        # The budget is this process's; the features take the workers' memory.
        return DaskFeatures(kernel_set, source, np.float64)
    strip_bytes = int(min(max(free / 2, 2**20), STRIP_BYTES))
    stack: FeatureStack
    if 8 * size <= min(free, _DOUBLE_BYTES):
        stack = StoredFeatures.fill(kernel_set, source, np.float64, strip_bytes)
    elif 4 * size <= free:
        stack = StoredFeatures.fill(kernel_set, source, np.float32, strip_bytes)
    else:
        stack = ComputedFeatures(kernel_set, source, np.float64, strip_bytes)
    left = free
    if isinstance(stack, StoredFeatures):
        # Rows that are picked, or turned to double precision, are copied: in what the features leave of the budget.
        left -= size * stack.dtype.itemsize
        stack.strip_bytes = int(min(max(left / 2, 2**20), STRIP_BYTES))
    # Blocks so small that nothing could be solved in them would save nothing.
    stack.block_numbers = int(min(BLOCK_NUMBERS, max(left / 16, free / 64, 100**2)))
    stack.block_samples = min(BLOCK_SAMPLES, int(np.sqrt(stack.block_numbers)))
    return stack


def _make_device_features(
    kernel_set: FeatureMaps, source: RowSource, backend: Backend, budget: float | None
) -> DeviceFeatures:
    """Keep the features on a device, in single precision where they are many."""
    numbers = source.shape[0] * int(kernel_set.widths.sum())
    size, budget = 8 if numbers <= _DOUBLE else 4, device_budget(backend) if budget is None else budget
    # A strip, its copy in double precision, and what its products need.
    needed = size * numbers + 8 * 3 * min(STRIP, numbers)
    if needed > budget:
        raise MemoryError(
            f"The features of {source.shape[0]} samples need {format_bytes(needed)} on {backend.device}, the budget is "
            f"{format_bytes(budget)}: lower rank, or use device=None, which computes them as they are needed."
        )
    return DeviceFeatures.fill(kernel_set, source, backend, np.float64 if size == 8 else np.float32)
