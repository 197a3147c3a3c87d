"""Sequences of letters as the papers take them: windows around a site, and indicators."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


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
    >>> from reproduction.sequences import windows
    >>> windows(["ACGTAC", "TTG"], site=2, before=2, after=3)
    array([b'ACGTA', b'TTGNN'], dtype='|S5')
    """
    before, after = _check_count("before", before, 0), _check_count("after", after, 1)
    site = _check_count("site", site, 0)
    if len(fill) != 1:
        raise ValueError(f"fill={fill!r}: give one letter.")
    letters = _letters(sequences)
    length = letters.shape[1]
    if site >= length:
        raise ValueError(
            f"site={site!r}: the sequences have {length} letters, so give a number below that."
        )
    cut = np.full((len(letters), before + after), ord(fill), dtype=np.uint8)
    start, end = max(site - before, 0), min(site + after, length)
    inside = letters[:, start:end]
    # A sequence shorter than the longest is padded with zeros.
    cut[:, start - site + before : end - site + before] = np.where(inside == 0, ord(fill), inside)
    return np.ascontiguousarray(cut).view(f"S{before + after}").ravel()


def one_hot(
    sequences: ArrayLike, alphabet: str = "ATGCN", dtype: DTypeLike = np.float64
) -> NDArray[Any]:
    """Write sequences of equal length as indicators, one per letter of the alphabet at each
    position.

    Parameters
    ----------
    sequences : array-like of str or bytes, shape (n_samples,)
        Upper and lower case count as the same.
    alphabet : str, default="ATGCN"
        The letters. Others, such as the codes for ambiguous bases, count as ``N`` if that is among
        them, and have no indicator otherwise.
    dtype : data-type, default=float64

    Returns
    -------
    ndarray of shape (n_samples, length * len(alphabet))
        The indicators of the first position, then those of the second, and so on.

    Examples
    --------
    >>> from reproduction.sequences import one_hot
    >>> one_hot(["AT", "GA"], alphabet="AGT")
    array([[1., 0., 0., 0., 0., 1.],
           [0., 1., 0., 1., 0., 0.]])
    """
    codes = [ord(letter) for letter in alphabet.upper()]
    if not codes or len(set(codes)) < len(codes) or max(codes) > 255:
        raise ValueError(
            f"alphabet={alphabet!r}: give letters, each once whether upper or lower case."
        )
    letters = _letters(sequences)
    if (letters == 0).any():
        raise ValueError(
            "sequences differ in length: cut them to one length first, for example by windows(…)."
        )
    place = np.full(256, codes.index(ord("N")) if ord("N") in codes else -1)
    for position, code in enumerate(codes):
        place[[code, ord(chr(code).lower())]] = position
    indicators = place[letters][:, :, np.newaxis] == np.arange(len(codes))
    return np.asarray(indicators.reshape(len(letters), -1), dtype=dtype)


def _letters(sequences: ArrayLike) -> NDArray[np.uint8]:
    """Return a matrix of character codes, one row per sequence, zeros after the end of the shorter
    ones."""
    given = np.asarray(sequences)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1 or given.dtype.kind not in "SUO" or not len(given):
        raise ValueError(
            f"sequences has shape {given.shape} and type {given.dtype}: give one str or bytes for"
            " each sample."
        )
    try:
        packed = np.ascontiguousarray(given.astype("S"))
    except UnicodeEncodeError as error:
        raise ValueError(f"sequences: {error.object!r} has a letter that is not ASCII.") from error
    return packed.view(np.uint8).reshape(len(packed), -1)


def _check_count(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int, or raise naming the parameter, what was given and what would do."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r}: give a whole number of at least {minimum}.")
    if value < minimum:
        raise ValueError(f"{name}={value!r}: give a whole number of at least {minimum}.")
    return int(value)
