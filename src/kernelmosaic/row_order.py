"""Subsets and folds of samples that depend on the contents of the samples, not on their row
numbers.

Where a fit to all samples would take too long, some of them are chosen; a search splits samples
into folds. If row numbers decided, the same samples in another order would give another model, and
a table sorted by class, or alternating between two classes, a wrong one.

`content_order` sorts samples by a hash of their contents: a pseudo-random order that does not
depend on the order in which the samples are given. The other functions choose by it:

- `spread_rows`: a subset that is evenly spread over the sorted targets, with at least two samples
  of every class and group;
- `choose_groups`: whole groups;
- `deal_into_folds`: folds with equal shares of every class, or of whole groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from pickle import PicklingError

import joblib
import numpy as np
from scipy import sparse

from kernelmosaic._typing import AnyArray, Array, Indices, MatrixLike

#: Steps between the smallest and the largest number of a column. They are far coarser than
#: rounding, and finer than differences that matter.
_GRID_STEPS = 2.0**20
#: Numbers of samples that are hashed at a time; chosen by hand.
_BLOCK_SIZE = 2**16
#: Types of the objects that pandas writes into a missing cell.
_MISSING_MARKS = ("NAType", "NaTType")
#: Samples of a class or group that are kept at least: one remains if the other one is left out.
_LEAST_OF_CATEGORY = 2


def content_order(X: MatrixLike, *ties: AnyArray, seed: int = 0) -> Indices:
    """Return the row numbers of samples in a pseudo-random order of their contents.

    The result does not depend on the order in which the samples are given, nor on how they are
    stored: dense or sparse, in cells of any library's types. Equal samples are sorted by `ties`; if
    these are equal, too, they stay in the given order, which then makes no difference. A missing
    cell counts as zero, since a sparse sample has one mark for a whole view that it lacks.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_columns)
        Numbers, or any objects that can be pickled. Numbers that were computed from sums over
        samples, as standardised columns are, must be given in single precision: their last digits
        differ from one order to another.
    *ties : arrays of shape (n_samples,) or (n_samples, n_targets)
        Targets, weights or group numbers.
    seed : int, default=0
        Another seed gives another order.

    Returns
    -------
    ndarray of shape (n_samples,)
        Row numbers.
    """
    hashes = content_hashes(X, seed)
    columns: list[AnyArray] = [hashes]
    for values in ties:
        columns.extend(np.asarray(values).reshape(len(hashes), -1).T)
    # lexsort compares its last key first.
    return np.lexsort(columns[::-1])


def on_grid(X: MatrixLike) -> MatrixLike:
    """Return the numbers of every column rounded to a grid of `_GRID_STEPS` steps.

    Neither the units of a column nor the last digits of its numbers matter then. The grid of a
    dense column is from its smallest to its largest number, that of a sparse one from zero to its
    largest magnitude: the same grid where the smallest number is zero, as among counts. Samples
    that are not numbers are returned as they are.
    """
    if X.dtype.kind not in "biuf":
        return X
    if sparse.issparse(X):
        columns = sparse.csc_array(X, dtype=np.float64, copy=True)
        columns.data[~np.isfinite(columns.data)] = np.nan
        magnitude = np.zeros(columns.shape[1])
        column_of_entry = np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
        np.fmax.at(magnitude, column_of_entry, np.abs(columns.data))
        magnitude[~(magnitude > 0)] = 1.0
        columns.data = np.rint(columns.data / magnitude[column_of_entry] * _GRID_STEPS)
        return columns.tocsr()
    numbers = np.array(X, dtype=np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    with warnings.catch_warnings():
        # NumPy warns of columns without any number.
        warnings.simplefilter("ignore", RuntimeWarning)
        lowest = np.nanmin(numbers, axis=0)
        extent = np.nanmax(numbers, axis=0) - lowest
    extent[~(extent > 0) | ~np.isfinite(extent)] = 1.0
    return np.rint((numbers - lowest) / extent * _GRID_STEPS)


def content_hashes(X: MatrixLike, seed: int = 0) -> AnyArray:
    """Return a hash of 64 bits for every row; equal rows have equal hashes, dense or sparse.

    A row of numbers is hashed by the positions and values of its entries that are neither zero nor
    missing.
    """
    salt = seed.to_bytes(8, "little", signed=True)
    if X.dtype.kind not in "biuf":
        objects = np.asarray(X).reshape(X.shape[0], -1)
        return np.array([_hash_objects(row, salt) for row in objects], dtype=np.uint64)
    if len(X.shape) == 1:
        X = X[:, np.newaxis]
    n_rows, n_columns = X.shape
    hashes = np.empty(n_rows, dtype=np.uint64)
    rows_per_block = max(_BLOCK_SIZE // max(n_columns, 1), 1)
    for start in range(0, n_rows, rows_per_block):
        rows = slice(start, start + rows_per_block)
        # A sparse copy holds the entries that are not zero, so that sparse samples stay sparse.
        block = sparse.csr_array(X[rows], dtype=np.float64, copy=True)
        block.sum_duplicates()
        block.data[np.isnan(block.data)] = 0.0
        block.eliminate_zeros()
        columns = block.indices.astype("<i8", copy=False)
        numbers = block.data.astype("<f8", copy=False)
        hashes[rows] = [
            _hash_bytes(columns[first:last].tobytes() + numbers[first:last].tobytes(), salt)
            for first, last in pairwise(block.indptr)
        ]
    return hashes


def _hash_bytes(content: bytes, salt: bytes) -> int:
    """Return a hash of 64 bits as a whole number."""
    return int.from_bytes(blake2b(content, digest_size=8, salt=salt).digest(), "little")


def _hash_objects(row: AnyArray, salt: bytes) -> int:
    """Return the hash of a sample of texts, graphs or other objects.

    It is zero if one of them cannot be pickled.
    """
    try:
        content = joblib.hash([_plain_cell(cell) for cell in row])
    except (PicklingError, TypeError, AttributeError):
        return 0
    return _hash_bytes(str(content).encode(), salt)


def _plain_cell(cell: object) -> object:
    """Return a cell as an object of Python, whatever library made it.

    A number becomes a float, a text a str, and a missing cell None.
    """
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bool | int | float | np.bool_ | np.integer | np.floating):
        number = float(cell)
        return None if np.isnan(number) else number
    if type(cell).__name__ in _MISSING_MARKS:
        return None
    return cell


def spread_rows(order: Indices, count: int, values: AnyArray, *categories: Indices) -> Indices:
    """Return ascending row numbers of a subset of samples that is spread evenly over the values.

    At least two samples of every class and group are among them, or all if it has fewer, so that a
    criterion that leaves samples or groups out stays defined. Where there are too many categories
    for that, this holds for as many of them as fill half of the subset.

    Parameters
    ----------
    order : ndarray of shape (n,)
        The samples as `content_order` sorts them.
    count : int
        The size of the subset. It is a little larger if the categories need more samples.
    values : ndarray of shape (n,)
        Targets, or class numbers.
    *categories : ndarrays of shape (n,)
        Class numbers, group numbers.
    """
    n = len(order)
    if count >= n:
        return np.arange(n)
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    is_needed = np.zeros(n, dtype=bool)
    for category in categories:
        is_needed[_first_of_every_category(order, category, most_rows=count // 2)] = True
    by_value = np.lexsort((rank, values))
    optional = by_value[~is_needed[by_value]]
    n_optional = max(count - int(is_needed.sum()), 0)
    positions = np.linspace(0, len(optional) - 1, n_optional).astype(np.intp)
    return np.sort(np.concatenate([np.flatnonzero(is_needed), optional[positions]]))


def _first_of_every_category(order: Indices, category: Indices, most_rows: int) -> Indices:
    """Return the rows of the first two samples of every category, in the order of `order`.

    If these are more than `most_rows`, only the categories that come first are included.
    """
    numbers, first, category_of_row = np.unique(
        category[order], return_index=True, return_inverse=True
    )
    most_categories = max(most_rows // _LEAST_OF_CATEGORY, 2)
    is_included = np.zeros(len(numbers), dtype=bool)
    is_included[np.argsort(first)[:most_categories]] = True
    by_category = np.argsort(category_of_row, kind="stable")
    starts = np.searchsorted(category_of_row[by_category], np.arange(len(numbers)))
    number_in_category = np.arange(len(order)) - starts[category_of_row[by_category]]
    is_first = number_in_category < _LEAST_OF_CATEGORY
    is_chosen = is_first & is_included[category_of_row[by_category]]
    return order[by_category[is_chosen]]


def choose_groups(
    order: Indices,
    groups: Sequence[Indices],
    least_rows: int,
    least_groups: int,
    labels: Indices | None = None,
) -> list[int]:
    """Return the numbers of enough groups for `least_rows` samples and for `least_groups` groups.

    Groups are taken in the order of their first samples in `order`, but first those that have the
    first two samples of every class.

    Parameters
    ----------
    order : ndarray of shape (n,)
        The samples as `content_order` sorts them.
    groups : sequence of ndarray
        The row numbers of every group.
    least_rows, least_groups : int
        How many samples, and how many groups, are needed at least.
    labels : ndarray of shape (n,), optional
        Class numbers.
    """
    n = len(order)
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    if labels is not None:
        # Ranks below zero come first.
        rank[_first_of_every_category(order, labels, most_rows=n)] -= n
    by_first_sample = np.argsort([rank[rows].min() for rows in groups], kind="stable")
    total_rows = np.cumsum([len(groups[g]) for g in by_first_sample])
    n_groups = int(np.searchsorted(total_rows, least_rows)) + 1
    return sorted(by_first_sample[: max(n_groups, least_groups)].tolist())


def deal_into_folds(
    order: Indices, n_folds: int, values: AnyArray | None = None, groups: Indices | None = None
) -> Indices:
    """Return the number of every sample's fold, from 0 to `n_folds` − 1.

    Without groups the samples are sorted by `values`, and dealt to the folds in turn: every fold
    has its share of every class, or of small and large targets. With groups, each is dealt as a
    whole, the largest first, to the fold that has the fewest samples; groups of one size are dealt
    in the order of their mean values.

    Parameters
    ----------
    order : ndarray of shape (n,)
        The samples as `content_order` sorts them.
    n_folds : int
        The number of folds.
    values : ndarray of shape (n,), optional
        Class numbers or targets.
    groups : ndarray of shape (n,), optional
        Samples of one group are in one fold.
    """
    n = len(order)
    fold = np.empty(n, dtype=np.intp)
    if groups is None:
        dealt = order if values is None else order[np.argsort(values[order], kind="stable")]
        fold[dealt] = np.arange(n) % n_folds
        return fold
    numbers, first, group_in_order = np.unique(
        groups[order], return_index=True, return_inverse=True
    )
    sizes = np.bincount(group_in_order)
    mean_values = np.zeros(len(numbers))
    if values is not None:
        mean_values = np.bincount(group_in_order, weights=values[order]) / sizes
    fold_of_group = np.empty(len(numbers), dtype=np.intp)
    fold_sizes: Array = np.zeros(n_folds)
    for group in np.lexsort((first, mean_values, -sizes)):
        smallest_fold = int(fold_sizes.argmin())
        fold_of_group[group] = smallest_fold
        fold_sizes[smallest_fold] += sizes[group]
    fold[order] = fold_of_group[group_in_order]
    return fold
