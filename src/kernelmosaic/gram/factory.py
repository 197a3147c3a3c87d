"""Which stack of features a training set gets: its device, its precision, stored or computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelmosaic.backend import Backend, backend_on, default_budget, format_bytes
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import ComputedFeatures, FeatureStack, StoredFeatures
from kernelmosaic.gram.options import PASSES, PassOptions
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.gram.tuning import (
    FREE_BYTES_PER_NUMBER,
    LARGEST_FILL_STRIP,
    LEAST_BLOCK_NUMBERS,
    LEAST_DEVICE_ROWS,
    LEAST_STRIP_BYTES,
    LEFT_BYTES_PER_NUMBER,
    NEWTON_MATRICES,
)


def make_feature_stack(
    kernel_set: FeatureMaps,
    source: RowSource,
    budget: float | None = None,
    device: str | None = None,
    options: PassOptions | None = None,
) -> FeatureStack:
    """Return the stack of a training set in features: stored if they fit the budget, else computed.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The fitted feature maps.
    source : RowSource
        The training samples.
    budget : float, optional
        Bytes that the features may take; by default half of the free memory, on a device most of
        its own.
    device : str, optional
        The torch device that keeps the features; by default they are arrays of NumPy.
    options : PassOptions, optional
        How passes over the rows are made if memory does not limit them.

    Raises
    ------
    MemoryError
        If not even the matrix of the features' products fits.
    """
    # 1. The matrix of the products of all features, which every solver needs.
    backend = backend_on(device)
    options = options or PASSES[backend.name]
    D = int(kernel_set.widths.sum())
    product_bytes = NEWTON_MATRICES * 8 * (D + 1) ** 2
    # The matrix is checked against the memory of the host, unless there is a budget.
    allowed_bytes = default_budget() if budget is None else budget
    if product_bytes > allowed_bytes:
        raise MemoryError(
            f"The products of {D} features need {format_bytes(product_bytes)}, the budget is"
            f" {format_bytes(allowed_bytes)}: lower rank, or raise memory_budget."
        )
    if device is not None:
        device_bytes = default_budget(backend) if budget is None else budget
        return _make_device_features(
            kernel_set, source, backend, device_bytes, options, product_bytes
        )
    if source.remote:
        from kernelmosaic.gram._dask_features import DaskFeatures

        # The budget is that of this process; the features take the workers' memory.
        return DaskFeatures(kernel_set, source)

    # 2. Whether the features are stored, and in which precision.
    n_numbers = source.shape[0] * D
    free_bytes = allowed_bytes - product_bytes
    strip_bytes = max(free_bytes / 2, LEAST_STRIP_BYTES)
    options = replace(options, strip_bytes=int(min(strip_bytes, options.strip_bytes)))
    fits_double = 8 * n_numbers <= min(free_bytes, options.double_bytes)
    fits_single = 4 * n_numbers <= free_bytes
    if not (fits_double or fits_single):
        computed_options = _blocks_within(options, free_bytes, free_bytes)
        return ComputedFeatures(kernel_set, source, np.float64, computed_options)

    # 3. Stored features. Views are cut out once for every strip: where there is room for strips of
    # many rows, there are few. Later passes copy the rows that they pick, or turn to double
    # precision, into what the features leave of the budget.
    dtype = np.dtype(np.float64 if fits_double else np.float32)
    left_bytes = free_bytes - n_numbers * dtype.itemsize
    fill_bytes = max(min(left_bytes / 2, LARGEST_FILL_STRIP), options.strip_bytes)
    fill_options = replace(options, strip_bytes=int(fill_bytes))
    pass_bytes = min(max(left_bytes / 2, LEAST_STRIP_BYTES), options.strip_bytes)
    pass_options = replace(options, strip_bytes=int(pass_bytes))
    return StoredFeatures.fill(
        ComputedFeatures(kernel_set, source, dtype, fill_options),
        _blocks_within(pass_options, left_bytes, free_bytes),
    )


def _blocks_within(options: PassOptions, left_bytes: float, free_bytes: float) -> PassOptions:
    """Return the options with blocks of kernels that fit the memory.

    Parameters
    ----------
    options : PassOptions
        The options with the largest blocks.
    left_bytes : float
        Memory beside the features.
    free_bytes : float
        Memory with them: blocks may take a small fraction of it in any case, since blocks that are
        too small to solve anything in them would save nothing.
    """
    affordable_numbers = max(
        left_bytes / LEFT_BYTES_PER_NUMBER, free_bytes / FREE_BYTES_PER_NUMBER, LEAST_BLOCK_NUMBERS
    )
    block_numbers = int(min(options.block_numbers, affordable_numbers))
    return replace(
        options,
        block_numbers=block_numbers,
        block_samples=min(options.block_samples, int(np.sqrt(block_numbers))),
    )


def _make_device_features(
    kernel_set: FeatureMaps,
    source: RowSource,
    backend: Backend,
    budget: float,
    options: PassOptions,
    product_bytes: int,
) -> FeatureStack:
    """Return the stack on a device: features stored if they fit, else computed in every pass.

    Many features are stored in single precision. The parameters are those of `make_feature_stack`,
    and the bytes of the products of all features.
    """
    D = int(kernel_set.widths.sum())
    n_numbers = source.shape[0] * D
    dtype = np.dtype(np.float64 if 8 * n_numbers <= options.double_bytes else np.float32)
    # Beside the features: a strip, its copy in double precision, and memory for its products.
    pass_bytes = 3 * min(options.strip_bytes, 8 * n_numbers)
    if dtype.itemsize * n_numbers + pass_bytes <= budget:
        return StoredFeatures.fill(ComputedFeatures(kernel_set, source, dtype, options, backend))
    strip_bytes = int(min((budget - product_bytes) / 4, options.strip_bytes))
    if strip_bytes < 8 * LEAST_DEVICE_ROWS * D:
        need = format_bytes(product_bytes + 32 * LEAST_DEVICE_ROWS * D)
        raise MemoryError(
            f"The products of {D} features and {LEAST_DEVICE_ROWS} rows of them need "
            f"{need} on {backend.device}, the budget is "
            f"{format_bytes(budget)}: lower rank, raise memory_budget, or use device=None."
        )
    strip_options = replace(options, strip_bytes=strip_bytes)
    computed_options = _blocks_within(strip_options, strip_bytes, strip_bytes)
    return ComputedFeatures(kernel_set, source, np.float64, computed_options, backend)
