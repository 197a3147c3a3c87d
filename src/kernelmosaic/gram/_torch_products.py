"""Products of test-versus-support blocks, or of features, with coefficients, on a device and in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernelmosaic.gram._torch_features import DeviceMaps
from kernelmosaic.gram._torch_kernels import DeviceKernelSet
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.kernel_set import KernelSet, Views, take_rows
from kernelmosaic.gram.row_blocks import RowSource, row_strips

#: Entries of the blocks worked on at once.
_ENTRIES = {"cuda": 2**26, "cpu": 2**20}
#: Columns multiplied at once: so many entries of a row, with a few rows, stay in the device's cache.
_COLUMNS = 8192


def device_products(
    kernel_set: KernelSet, views: Views, support: Views, right: NDArray[np.float64], device: Any
) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
    """Yield (rows, m, K_m[rows, support] right) for every kernel, a strip of samples at a time.

    Parameters
    ----------
    kernel_set : KernelSet
        The kernels.
    views, support : list
        Samples as the kernels see them.
    right : ndarray of shape (n_support, k)
        Coefficients.
    device : str
        Where to compute.
    """
    place = torch.device(device)
    kernels = DeviceKernelSet(kernel_set, support, place)
    across = kernels.place(support)
    coefficients = torch.as_tensor(np.ascontiguousarray(right, dtype=np.float64), device=place)
    n, s = views[0].shape[0], len(right)
    width = min(s, _COLUMNS)
    height = max(1, _ENTRIES[place.type] // width)
    for i in range(0, n, height):
        rows = slice(i, min(i + height, n))
        left = kernels.place(take_rows(views, rows))
        shape = (len(kernel_set), rows.stop - rows.start, right.shape[1])
        out = torch.zeros(shape, dtype=torch.float64, device=place)
        for j in range(0, s, width):
            part = slice(j, min(j + width, s))
            for m, block in kernels.blocks(left, across.take(part), range(len(kernel_set)), torch.float64):
                out[m] += block @ coefficients[part]
        values = out.cpu().numpy()
        yield from ((rows, m, values[m]) for m in range(len(kernel_set)))


def device_feature_products(
    kernel_set: FeatureMaps, rows: RowSource, right: list[NDArray[np.float64]], device: Any
) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
    """Yield (strip, m, Z_m[strip] right_m) for every kernel, a strip of samples at a time.

    Parameters
    ----------
    kernel_set : FeatureMaps
        The feature maps.
    rows : RowSource
        Samples.
    right : list of ndarray of shape (features, k)
        Coefficients, one array a kernel.
    device : str
        Where to compute.
    """
    place = torch.device(device)
    maps = DeviceMaps(kernel_set, place)
    coefficients = [torch.as_tensor(np.ascontiguousarray(one), device=place) for one in right]
    width = max(rows.row_width, *map(int, kernel_set.widths), 1)
    for strip in row_strips(rows.shape[0], _ENTRIES[place.type] // width):
        for m, Z in maps.blocks(rows.take(strip), range(len(kernel_set)), torch.float64):
            yield strip, m, (Z @ coefficients[m]).cpu().numpy()
