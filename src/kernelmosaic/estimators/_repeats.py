"""Samples that occur more than once: one sample each, with the sum of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True)
class Counted:
    """The samples that count, each once.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Their row numbers in what was given; of repeated samples, the first.
    weight : ndarray of shape (n,)
        How much each counts.
    """

    rows: NDArray[np.intp]
    weight: NDArray[np.float64]

    @classmethod
    def everyone(cls, n: int, sample_weight: NDArray[np.float64] | None) -> Counted:
        """Every sample as it is, repeated or not."""
        return cls(np.arange(n), np.ones(n) if sample_weight is None else sample_weight)


def count_repeats(X: Any, y: Any, sample_weight: NDArray[np.float64] | None) -> Counted:
    """Return the distinct samples with the sum of their weights.

    A sample of weight two is a sample given twice, and one of weight zero is no sample: both must lead to the very same
    problem, in the same order of samples. So whenever there are weights or repetitions the samples are put in an order
    of their own; a set without either stays as it is.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        Samples.
    y : array of shape (n_samples,) or None
        Targets: samples with different ones are different samples.
    sample_weight : array of shape (n_samples,) or None
        Their weights.
    """
    everyone = np.arange(X.shape[0])
    # A sample of weight zero must not touch widths or scales either.
    rows = everyone if sample_weight is None else np.flatnonzero(sample_weight)
    keys = _keys(X[rows] if len(rows) < len(everyone) else X, None if y is None else y[rows])
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if sample_weight is None and len(first) == len(everyone):
        return Counted(everyone, np.ones(len(everyone)))
    weight = None if sample_weight is None else sample_weight[rows]
    return Counted(rows[first], np.bincount(inverse, weights=weight, minlength=len(first)).astype(np.float64))


def _keys(X: Any, y: Any) -> NDArray[Any]:
    """Return one comparable key a sample, equal for equal samples."""
    labels = (
        np.zeros(X.shape[0], dtype=np.int64) if y is None else np.unique(y, return_inverse=True)[1].astype(np.int64)
    )
    if sparse.issparse(X):
        return _sparse_keys(X, labels)
    if X.dtype.kind not in "iuf":
        X = np.column_stack([_codes(column) for column in X.T])
    # Adding zero makes one of the two zeros that compare equal but differ in their bits.
    cells = np.ascontiguousarray(X + X.dtype.type(0)).view(np.uint8)
    return _as_void(np.hstack([cells.reshape(len(labels), -1), labels[:, np.newaxis].view(np.uint8)]))


def _sparse_keys(X: Any, labels: NDArray[np.int64]) -> NDArray[Any]:
    X = X.tocsr(copy=True)
    # Stored zeros and unsorted columns would make equal rows look different.
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = np.empty(X.shape[0], dtype=object)
    for i, (a, b) in enumerate(pairwise(X.indptr)):
        keys[i] = (int(labels[i]), X.indices[a:b].tobytes(), X.data[a:b].tobytes())
    return _codes(keys)


def _codes(column: NDArray[Any]) -> NDArray[np.int64]:
    """Return a number for every entry, equal for equal entries and in the entries' order where they have one."""
    try:
        distinct = dict.fromkeys(column)
    except TypeError:  # entries that cannot be looked up; whether they are any good is for the kernels to say
        return np.arange(len(column), dtype=np.int64)
    try:
        ranked = sorted(distinct)
    except TypeError:  # entries that do not compare, such as str and bytes, keep the order they come in
        ranked = list(distinct)
    rank = {entry: i for i, entry in enumerate(ranked)}
    return np.fromiter((rank[entry] for entry in column), dtype=np.int64, count=len(column))


def _as_void(cells: NDArray[np.uint8]) -> NDArray[Any]:
    # One opaque value a row: sorting compares the bytes, many times faster than column by column.
    return np.ascontiguousarray(cells).view(np.dtype((np.void, cells.shape[1])))[:, 0]
