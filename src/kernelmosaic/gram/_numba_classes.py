"""The compiled loop that combines the bank once for every class. Imported only when it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def add_classes_lower(
    matrices: NDArray[Any], weights: NDArray[Any], out: NDArray[Any], start: np.intp, stop: np.intp
) -> None:
    """Fill rows of the lower triangles of out[c] = Σ_m weights[c, m] matrices[m].

    The P rows of one sample stay in the cache while all classes read them: the bank is read once, not once a class.
    """
    for i in range(start, stop):
        for c in range(weights.shape[0]):
            row = out[c, i, : i + 1]
            row[:] = 0.0
            for m in range(weights.shape[1]):
                weight = weights[c, m]
                if weight != 0.0:
                    values = matrices[m, i, : i + 1]
                    for j in range(i + 1):
                        row[j] += weight * values[j]
