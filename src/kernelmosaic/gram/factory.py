"""Which stack of features a training set gets: on which device, in which precision, stored or
computed in strips."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelmosaic.backend import Backend, backend_on, default_budget, format_bytes
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import ComputedFeatures, FeatureStack, StoredFeatures
from kernelmosaic.gram.options import PASSES, PassOptions
from kernelmosaic.gram.row_blocks import RowSource


def make_feature_stack(
    kernel_set: FeatureMaps,
    source: RowSource,
    budget: float | None = None,
    device: str | None = None,
    options: PassOptions | None = None,
) -> FeatureStack:
    """Return the stack of a training set in features: stored if they fit the budget, else computed
    strip by strip.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The fitted feature maps.
    source : RowSource
        The training samples.
    budget : float, optional
        Bytes the features may take; by default half of the free memory, on a device most of its
        own.
    device : str, optional
        Where torch keeps them; by default they are NumPy's, here.
    options : PassOptions, optional
        How passes over the rows are made, where memory is no concern.

    Raises
    ------
    MemoryError
        If not even the matrix of the features' products fits.
    """
    backend = backend_on(device)
    options, D = options or PASSES[backend.name], int(kernel_set.widths.sum())
    # The Newton matrix, its parts and its factor.
    needed, allowed = 5 * 8 * (D + 1) ** 2, default_budget() if budget is None else budget
    if needed > allowed:
        raise MemoryError(
            f"The products of {D} features need {format_bytes(needed)}, the budget is"
            f" {format_bytes(allowed)}: lower rank, or raise memory_budget."
        )
    if device is not None:
        allowed = default_budget(backend) if budget is None else budget
        return _make_device_features(kernel_set, source, backend, allowed, options, needed)
    if source.remote:
        from kernelmosaic.gram._dask_features import DaskFeatures

        # The budget is this process's; the features take the workers' memory.
        return DaskFeatures(kernel_set, source)
    size, free = source.shape[0] * D, allowed - needed
    options = replace(options, strip_bytes=int(min(max(free / 2, 2**20), options.strip_bytes)))
    double, single = 8 * size <= min(free, options.double_bytes), 4 * size <= free
    if not (double or single):
        return ComputedFeatures(kernel_set, source, np.float64, _blocks_within(options, free, free))
    dtype = np.dtype(np.float64 if double else np.float32)
    left = free - size * dtype.itemsize
    # Views are cut out for every strip: where there is room for wide ones, strips are few.
    wide = replace(options, strip_bytes=int(max(min(left / 2, 2**26), options.strip_bytes)))
    stack = StoredFeatures.fill(ComputedFeatures(kernel_set, source, dtype, wide))
    # Rows that are picked, or turned to double precision, are copied: in what the features leave of
    # the budget.
    options = replace(options, strip_bytes=int(min(max(left / 2, 2**20), options.strip_bytes)))
    stack.options = _blocks_within(options, left, free)
    return stack


def _blocks_within(options: PassOptions, left: float, free: float) -> PassOptions:
    """Return the options with blocks that the memory left has room for."""
    # Blocks so small that nothing could be solved in them would save nothing.
    numbers = int(min(options.block_numbers, max(left / 16, free / 64, 100**2)))
    return replace(
        options,
        block_numbers=numbers,
        block_samples=min(options.block_samples, int(np.sqrt(numbers))),
    )


def _make_device_features(
    kernel_set: FeatureMaps,
    source: RowSource,
    backend: Backend,
    budget: float,
    options: PassOptions,
    needed: int,
) -> FeatureStack:
    """Keep the features on a device, in single precision where they are many; else every pass
    computes them there."""
    D = int(kernel_set.widths.sum())
    numbers = source.shape[0] * D
    dtype = np.dtype(np.float64 if 8 * numbers <= options.double_bytes else np.float32)
    # A strip, its copy in double precision, and what its products need.
    if dtype.itemsize * numbers + 3 * min(options.strip_bytes, 8 * numbers) <= budget:
        return StoredFeatures.fill(ComputedFeatures(kernel_set, source, dtype, options, backend))
    strip = int(min((budget - needed) / 4, options.strip_bytes))
    least_rows = 64  # fewer in a strip would keep a device waiting
    if strip < 8 * least_rows * D:
        raise MemoryError(
            f"The products of {D} features and {least_rows} rows of them need "
            f"{format_bytes(needed + 32 * least_rows * D)} on {backend.device}, the budget is "
            f"{format_bytes(budget)}: lower rank, raise memory_budget, or use device=None."
        )
    options = _blocks_within(replace(options, strip_bytes=strip), strip, strip)
    return ComputedFeatures(kernel_set, source, np.float64, options, backend)
