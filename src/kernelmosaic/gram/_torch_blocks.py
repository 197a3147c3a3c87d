"""Parts of a matrix on a device: blocks of it, and its products with columns of which few rows are not zero."""

from __future__ import annotations

import torch
from torch import Tensor

#: Entries gathered at once.
_CHUNK = 2**26


def take_block(K: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return K[rows][:, columns] without a copy of whole rows that is larger than need be."""
    out = torch.empty((len(rows), len(columns)), dtype=K.dtype, device=K.device)
    height = max(1, _CHUNK // K.shape[1])
    for i in range(0, len(rows), height):
        torch.index_select(K[rows[i : i + height]], 1, columns, out=out[i : i + height])
    return out


def multiply_columns(K: Tensor, rows: Tensor, coefficients: Tensor) -> Tensor:
    """Return K[:, rows] coefficients of a symmetric K, entries as they are stored and sums in double precision."""
    out = torch.zeros((K.shape[0], coefficients.shape[1]), dtype=torch.float64, device=K.device)
    height = max(1, _CHUNK // K.shape[1])
    for i in range(0, len(rows), height):
        out += K[rows[i : i + height]].double().T @ coefficients[i : i + height]
    return out
