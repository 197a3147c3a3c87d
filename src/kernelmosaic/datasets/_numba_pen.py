"""The compiled loop of `derived.render_pen`."""

from __future__ import annotations

from math import ceil, floor

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True)
def ink(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    joined: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    radius: float,
    side: int,
) -> NDArray[np.bool_]:
    """Mark the pixels whose centre lies within `radius` of the pen's path.

    Point i is joined to its successor where `joined[i]`; a point on its own is a dot. Coordinates are in pixels, y
    downwards.
    """
    n = len(offsets) - 1
    images = np.zeros((n, side, side), dtype=np.bool_)
    for example in range(n):
        for i in range(offsets[example], offsets[example + 1]):
            j = i + 1 if joined[i] else i
            dx, dy = x[j] - x[i], y[j] - y[i]
            length = dx * dx + dy * dy
            # Centres stand at half numbers.
            left = max(0, ceil(min(x[i], x[j]) - radius - 0.5))
            right = min(side - 1, floor(max(x[i], x[j]) + radius - 0.5))
            top = max(0, ceil(min(y[i], y[j]) - radius - 0.5))
            bottom = min(side - 1, floor(max(y[i], y[j]) + radius - 0.5))
            for row in range(top, bottom + 1):
                for column in range(left, right + 1):
                    px, py = column + 0.5 - x[i], row + 0.5 - y[i]
                    share = 0.0 if length == 0.0 else min(1.0, max(0.0, (px * dx + py * dy) / length))
                    qx, qy = px - share * dx, py - share * dy
                    if qx * qx + qy * qy <= radius * radius:
                        images[example, row, column] = True
    return images
