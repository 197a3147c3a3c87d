"""Traces of a pen as bitmaps."""

from __future__ import annotations

from math import ceil, floor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelmosaic._checks import check_count
from kernelmosaic.files import njit


def render_pen(
    points: ArrayLike, offsets: ArrayLike, stroke: ArrayLike, size: int, pen: float = 1 / 12
) -> NDArray[np.float64]:
    """Draw traces of a pen as square grey images.

    Each trace is moved to the middle of the square and scaled, both ways alike, until it fills it
    in height or in width. A round pen draws along it. A pixel's value is the share of it that is
    covered.

    Parameters
    ----------
    points : array-like of shape (n_points, 2)
        Positions of the pen, x to the right and y upwards, all examples one after the other.
    offsets : array-like of shape (n_samples + 1,)
        Example i has the points from ``offsets[i]`` to just before ``offsets[i + 1]``.
    stroke : array-like of shape (n_points,)
        Points of one example with the same number next to each other are joined; the pen is lifted
        between strokes.
    size : int
        Pixels to a side.
    pen : float, default=1/12
        Width of the pen, as a share of the side.

    Returns
    -------
    ndarray of shape (n_samples, size * size)
        Values from 0 to 1, row by row from the top.

    Examples
    --------
    >>> from reproduction.data._numba_pen import render_pen
    >>> image = render_pen([[0, 0], [1, 1]], offsets=[0, 2], stroke=[0, 0], size=4)
    >>> (image.reshape(4, 4) > 0.1).astype(int)
    array([[0, 0, 0, 1],
           [0, 0, 1, 0],
           [0, 1, 0, 0],
           [1, 0, 0, 0]])
    """
    size = check_count("size", size)
    if not 0 < pen < 1:
        raise ValueError(f"pen={pen!r}: give a share of the side between 0 and 1.")
    where = np.asarray(points, dtype=np.float64)
    if where.ndim != 2 or where.shape[1] != 2 or not np.isfinite(where).all():
        raise ValueError(
            f"points has shape {where.shape}: give finite numbers of shape (n_points, 2)."
        )
    starts, strokes = np.asarray(offsets, dtype=np.int64), np.asarray(stroke, dtype=np.int64)
    if (
        starts.ndim != 1
        or len(starts) < 2
        or starts[0] != 0
        or starts[-1] != len(where)
        or (np.diff(starts) < 1).any()
    ):
        raise ValueError(
            f"offsets={offsets!r}: give numbers that rise from 0 to the {len(where)} points there"
            " are."
        )
    if strokes.shape != (len(where),):
        raise ValueError(
            f"stroke has shape {strokes.shape}: give one number for each of the {len(where)}"
            " points."
        )
    # Partial coverage is measured on at least 64 pixels to a side, which are then averaged.
    fine = -(-64 // size)
    side = size * fine
    x, y = _fit(where, starts, (1.0 - pen) * side, side)
    joined = np.append(strokes[1:] == strokes[:-1], False)
    joined[starts[1:] - 1] = False
    images = _ink(x, y, joined, starts, 0.5 * pen * side, side)
    covered = images.reshape(-1, size, fine, size, fine).mean(axis=(2, 4))
    return np.asarray(covered.reshape(len(images), -1), dtype=np.float64)


def _fit(
    where: NDArray[np.float64], starts: NDArray[np.int64], room: float, side: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Move and scale each trace into the middle of the square; y turns downwards."""
    low, high = np.minimum.reduceat(where, starts[:-1]), np.maximum.reduceat(where, starts[:-1])
    extent = (high - low).max(axis=1)
    # A dot has no size to scale.
    scale = room / np.where(extent > 0, extent, 1.0)
    counts = np.diff(starts)
    centred = (where - np.repeat((low + high) / 2, counts, axis=0)) * np.repeat(scale, counts)[
        :, np.newaxis
    ]
    return side / 2 + centred[:, 0], side / 2 - centred[:, 1]


@njit(cache=True)
def _ink(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    joined: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    radius: float,
    side: int,
) -> NDArray[np.bool_]:
    """Mark the pixels whose centre lies within `radius` of the pen's path.

    Point i is joined to its successor where `joined[i]`; a point on its own is a dot. Coordinates
    are in pixels, y downwards.
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
                    share = (
                        0.0 if length == 0.0 else min(1.0, max(0.0, (px * dx + py * dy) / length))
                    )
                    qx, qy = px - share * dx, py - share * dy
                    if qx * qx + qy * qy <= radius * radius:
                        images[example, row, column] = True
    return images
