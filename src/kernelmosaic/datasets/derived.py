"""Samples in other forms: traces of a pen as bitmaps, sequences as windows and indicators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelmosaic.datasets.generators import check_count

# Bitmaps of handwriting -----------------------------------------------------------------------------------------------

#: Pixels to a side, at least, before they are averaged: how finely partial coverage is measured.
_FINE = 64


def render_pen(
    points: ArrayLike, offsets: ArrayLike, stroke: ArrayLike, size: int, pen: float = 1 / 12
) -> NDArray[np.float64]:
    """Draw traces of a pen as square grey images.

    Each trace is moved to the middle of the square and scaled, both ways alike, until it fills it in height or in
    width. A round pen draws along it. A pixel's value is the share of it that is covered.

    Parameters
    ----------
    points : array-like of shape (n_points, 2)
        Positions of the pen, x to the right and y upwards, all examples one after the other.
    offsets : array-like of shape (n_samples + 1,)
        Example i has the points from ``offsets[i]`` to just before ``offsets[i + 1]``.
    stroke : array-like of shape (n_points,)
        Points of one example with the same number next to each other are joined; the pen is lifted between strokes.
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
    >>> from kernelmosaic.datasets import render_pen
    >>> image = render_pen([[0, 0], [1, 1]], offsets=[0, 2], stroke=[0, 0], size=4)
    >>> (image.reshape(4, 4) > 0.1).astype(int)
    array([[0, 0, 0, 1],
           [0, 0, 1, 0],
           [0, 1, 0, 0],
           [1, 0, 0, 0]])
    """
    from kernelmosaic.datasets._numba_pen import ink

    size = check_count("size", size)
    if not 0 < pen < 1:
        raise ValueError(f"pen={pen!r}: give a share of the side between 0 and 1.")
    where, starts, strokes = _check_traces(points, offsets, stroke)
    fine = -(-_FINE // size)
    side = size * fine
    x, y = _fit(where, starts, (1.0 - pen) * side, side)
    joined = np.append(strokes[1:] == strokes[:-1], False)
    joined[starts[1:] - 1] = False
    images = ink(x, y, joined, starts, 0.5 * pen * side, side)
    covered = images.reshape(-1, size, fine, size, fine).mean(axis=(2, 4))
    return np.asarray(covered.reshape(len(images), -1), dtype=np.float64)


def _check_traces(
    points: ArrayLike, offsets: ArrayLike, stroke: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    where = np.asarray(points, dtype=np.float64)
    if where.ndim != 2 or where.shape[1] != 2 or not np.isfinite(where).all():
        raise ValueError(f"points has shape {where.shape}: give finite numbers of shape (n_points, 2).")
    starts, strokes = np.asarray(offsets, dtype=np.int64), np.asarray(stroke, dtype=np.int64)
    if starts.ndim != 1 or len(starts) < 2 or starts[0] != 0 or starts[-1] != len(where) or (np.diff(starts) < 1).any():
        raise ValueError(f"offsets={offsets!r}: give numbers that rise from 0 to the {len(where)} points there are.")
    if strokes.shape != (len(where),):
        raise ValueError(f"stroke has shape {strokes.shape}: give one number for each of the {len(where)} points.")
    return where, starts, strokes


def _fit(
    where: NDArray[np.float64], starts: NDArray[np.int64], room: float, side: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Move and scale each trace into the middle of the square; y turns downwards."""
    low, high = np.minimum.reduceat(where, starts[:-1]), np.maximum.reduceat(where, starts[:-1])
    extent = (high - low).max(axis=1)
    # A dot has no size to scale.
    scale = room / np.where(extent > 0, extent, 1.0)
    counts = np.diff(starts)
    centred = (where - np.repeat((low + high) / 2, counts, axis=0)) * np.repeat(scale, counts)[:, np.newaxis]
    return side / 2 + centred[:, 0], side / 2 - centred[:, 1]


# Sequences ------------------------------------------------------------------------------------------------------------


def windows(
    sequences: ArrayLike, site: int, before: int = 100, after: int = 100, fill: str = "N"
) -> NDArray[np.bytes_]:
    """Cut from every sequence the letters around a position.

    Parameters
    ----------
    sequences : array-like of str or bytes, shape (n_samples,)
    site : int
        The position, from 0, at which the second half of the window begins.
    before, after : int, default=100
        How many letters to keep before the site, and from the site on.
    fill : str, default="N"
        Letter for places beyond the ends of a sequence.

    Returns
    -------
    ndarray of bytes, shape (n_samples,)
        Each of ``before + after`` letters.

    Examples
    --------
    >>> from kernelmosaic.datasets import windows
    >>> windows(["ACGTAC", "TTG"], site=2, before=2, after=3)
    array([b'ACGTA', b'TTGNN'], dtype='|S5')
    """
    before, after = check_count("before", before, 0), check_count("after", after, 1)
    site = check_count("site", site, 0)
    if len(fill) != 1:
        raise ValueError(f"fill={fill!r}: give one letter.")
    letters = _letters(sequences)
    length = letters.shape[1]
    if site >= length:
        raise ValueError(f"site={site!r}: the sequences have {length} letters, so give a number below that.")
    cut = np.full((len(letters), before + after), ord(fill), dtype=np.uint8)
    start, end = max(site - before, 0), min(site + after, length)
    inside = letters[:, start:end]
    # A sequence shorter than the longest is padded with zeros.
    cut[:, start - site + before : end - site + before] = np.where(inside == 0, ord(fill), inside)
    return np.ascontiguousarray(cut).view(f"S{before + after}").ravel()


def one_hot(sequences: ArrayLike, alphabet: str = "ATGCN", dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Write sequences of equal length as indicators, one per letter of the alphabet at each position.

    Parameters
    ----------
    sequences : array-like of str or bytes, shape (n_samples,)
        Upper and lower case count as the same.
    alphabet : str, default="ATGCN"
        The letters. Others, such as the codes for ambiguous bases, count as ``N`` if that is among them, and have no
        indicator otherwise.
    dtype : data-type, default=float64

    Returns
    -------
    ndarray of shape (n_samples, length * len(alphabet))
        The indicators of the first position, then those of the second, and so on.

    Examples
    --------
    >>> from kernelmosaic.datasets import one_hot
    >>> one_hot(["AT", "GA"], alphabet="AGT")
    array([[1., 0., 0., 0., 0., 1.],
           [0., 1., 0., 1., 0., 0.]])
    """
    codes = [ord(letter) for letter in alphabet.upper()]
    if not codes or len(set(codes)) < len(codes) or max(codes) > 255:
        raise ValueError(f"alphabet={alphabet!r}: give letters, each once whether upper or lower case.")
    letters = _letters(sequences)
    if (letters == 0).any():
        raise ValueError("sequences differ in length: cut them to one length first, for example by windows(…).")
    place = np.full(256, codes.index(ord("N")) if ord("N") in codes else -1)
    for position, code in enumerate(codes):
        place[[code, ord(chr(code).lower())]] = position
    indicators = place[letters][:, :, np.newaxis] == np.arange(len(codes))
    return np.asarray(indicators.reshape(len(letters), -1), dtype=dtype)


def _letters(sequences: ArrayLike) -> NDArray[np.uint8]:
    """Return a matrix of character codes, one row per sequence, zeros after the end of the shorter ones."""
    given = np.asarray(sequences)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1 or given.dtype.kind not in "SUO" or not len(given):
        raise ValueError(
            f"sequences has shape {given.shape} and type {given.dtype}: give one str or bytes for each sample."
        )
    try:
        packed = np.ascontiguousarray(given.astype("S"))
    except UnicodeEncodeError as error:
        raise ValueError(f"sequences: {error.object!r} has a letter that is not ASCII.") from error
    return packed.view(np.uint8).reshape(len(packed), -1)
