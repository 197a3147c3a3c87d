"""Products of test-versus-support blocks, or of features, with coefficients, here or on a device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.backend import NUMPY, Backend, has_device, row_strips, torch_backend
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.kernel_set import KernelSet, Views, take_rows
from kernelmosaic.gram.row_blocks import RowSource

#: Entries of the blocks worked on at once.
_ENTRIES = {"numpy": 2**22, "cpu": 2**20, "cuda": 2**26}
#: Numbers of the samples and features worked on at once on the host: both may come from files larger than memory.
_HOST_NUMBERS = 2**19
Products = Iterator[tuple[slice, int, NDArray[np.float64]]]


def backend_at(device: str | None) -> Backend:
    """Return the backend of a device as long as it is there, else NumPy's."""
    return torch_backend(str(device)) if has_device(device) else NUMPY


def support_products(
    kernel_set: KernelSet,
    views: Views,
    support: Views,
    right: NDArray[np.float64],
    device: str | None = None,
    entries: int | None = None,
    columns: int = 8192,
) -> Products:
    """Yield (rows, m, K_m[rows, support] right) for every kernel, a strip of samples at a time.

    Parameters
    ----------
    kernel_set : KernelSet
        The kernels.
    views, support : list
        Samples as the kernels see them.
    right : ndarray of shape (n_support, k)
        Coefficients.
    device : str, optional
        Where to compute, if that device is there.
    entries : int, optional
        Of the blocks worked on at once.
    columns : int
        Multiplied at once on a device: so many entries of a row, with a few rows, stay in its cache.
    """
    backend = backend_at(device)
    across = kernel_set.samples(support, backend)
    coefficients = backend.asarray(right)
    every, s = range(len(kernel_set)), len(right)
    width = s if backend is NUMPY else min(s, columns)
    dtype = None if backend is NUMPY else np.float64
    for rows in row_strips(views[0].shape[0], (entries or _entries(backend)) // max(width, 1)):
        left = kernel_set.samples(take_rows(views, rows), backend, like=across)
        out = backend.zeros((len(every), rows.stop - rows.start, right.shape[1]))
        for part in row_strips(s, width):
            for m, block in kernel_set.blocks(left, across if width == s else across.take(part), every, dtype):
                out[m] += block @ coefficients[part]
        values = backend.to_numpy(out)
        yield from ((rows, m, values[m]) for m in every)


def feature_products(
    maps: FeatureMaps,
    rows: RowSource,
    right: list[NDArray[np.float64]],
    device: str | None = None,
    entries: int | None = None,
) -> Products:
    """Yield (strip, m, Z_m[strip] right_m) for every kernel, a strip of samples at a time.

    Parameters
    ----------
    maps : FeatureMaps
        The feature maps.
    rows : RowSource
        Samples.
    right : list of ndarray of shape (features, k)
        Coefficients, one array per kernel.
    device : str, optional
        Where to compute, if that device is there.
    entries : int, optional
        Of the features worked on at once.
    """
    backend = backend_at(device)
    placed = maps.on(backend)
    coefficients = [backend.asarray(one) for one in right]
    # On the host the samples, the block with the landmarks, the features and one temporary live at once.
    if backend is NUMPY:
        height = (entries or _HOST_NUMBERS) // (rows.row_width + 3 * int(maps.widths.sum()))
    else:
        height = (entries or _entries(backend)) // max(rows.row_width, *map(int, maps.widths), 1)
    for strip in row_strips(rows.shape[0], height):
        for m, Z in placed.blocks(rows.take(strip), range(len(maps)), None if backend is NUMPY else np.float64):
            yield strip, m, backend.to_numpy(Z @ coefficients[m])


def _entries(backend: Backend) -> int:
    return _ENTRIES[str(backend.device or "numpy").partition(":")[0]]
