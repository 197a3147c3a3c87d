"""Samples of a fit: the distinct ones with their weights, scales of columns, and warnings.

`FitInput` is a training set as an estimator has validated it. `count_samples` merges repeated
samples, `Standardizer` puts columns on one scale. The warnings are of categories that no training
sample has, and of columns whose scales are far apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.sparsefuncs import mean_variance_axis

from kernelmosaic._checks import warn_caller
from kernelmosaic._typing import AnyArray, Array, Indices, MatrixLike, RowIndex, TargetLike
from kernelmosaic.backend import is_dask
from kernelmosaic.gram.missing import present_views
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.kernels.base import Kernel, StatisticKernel, is_missing
from kernelmosaic.kernels.categorical import Clinical
from kernelmosaic.kernels.views import Entry, KernelSpec, lay_specs, take_columns

#: Approximated samples of more bytes are not searched for repeated ones: they may fill the memory.
#: Chosen by hand.
MAX_SEARCHED_BYTES = 2**26
#: Standard deviations below this fraction of the largest entry of a column are rounding.
ROUNDING_OF_DEVIATION = 1e-12
#: Entries between these have squares that neither vanish nor overflow.
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-100, 1e100
#: The ratio of two standard deviations from which columns are reported to be on different scales.
#: Chosen by hand.
WIDE_RATIO = 100.0
#: Number of rows whose deviations are compared, enough for a standard deviation. Chosen by hand.
N_COMPARED_ROWS = 10_000
#: Numbers, and least number of rows, that are read from a disk to compare deviations. Chosen by
#: hand.
MAX_READ_NUMBERS, MIN_READ_ROWS = 2**16, 200


@dataclass(frozen=True)
class FitInput:
    """A training set as validated, before anything is learned from it.

    Attributes
    ----------
    X : array or sparse matrix
        Samples.
    y : ndarray of shape (n,) or (n, targets), or None
        Targets.
    weight : ndarray of shape (n,) or None
        How much each sample counts; None means once.
    original : array or data frame
        X as it was given, for the names of its columns.
    device : str or None
        The device on which to compute; None means the host.
    views : dict or None
        The column numbers of each table, where several were given.
    groups : ndarray of shape (n,) or None
        The number of every sample's group, where the samples of a group are left out together.
    order : ndarray of shape (n,) or None
        The numbers of the samples, sorted by their content as it was given; None where no method
        asks for it.
    """

    X: MatrixLike
    y: TargetLike
    weight: Array | None
    original: Any
    device: str | None = None
    views: dict[str, list[int]] | None = None
    groups: Indices | None = None
    order: Indices | None = None

    def take(self, rows: Indices) -> Self:
        """Return some of the samples, whose order by content is not known."""
        X = _safe_indexing(self.X, rows)
        y = None if self.y is None else self.y[rows]
        weight = None if self.weight is None else self.weight[rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, X=X, y=y, weight=weight, groups=groups, order=None)

    @property
    def table(self) -> MatrixLike:
        """The table by which kernels find their columns: X as given if that has columns."""
        if len(getattr(self.original, "shape", ())) == 2:
            return self.original
        return named_columns(self.X)

    def standardizer(self, entries: list[Entry]) -> Standardizer:
        """Return what puts the columns that kernels read as numbers on one scale.

        `entries` are the kernels.
        """
        # It is fitted to distinct samples in an order of their own, so that a sample of weight two
        # and a sample given twice have the same result.
        counted = count_samples(None, self.X, self.y, self.weight)
        specs = lay_specs(entries, self.table)
        return Standardizer.fit(specs, self.X[counted.rows], counted.weight)


# Which samples count ------------------------------------------------------------------------------


@dataclass(frozen=True)
class DistinctSamples:
    """The samples that count, each once.

    Repeated samples are merged because the time of a fit depends on the number of distinct ones.
    Without merging, fits of `MKLClassifier` and `MKLRegressor` (exact kernels, norm 1) to a
    bootstrap of 1,000 samples, about 632 of them distinct, take 1.7 times as long (1.1 to 2.7 times
    on twelve problems). Where every sample occurs twice, they take 2.7 times as long (1.7 to 5.5
    times).

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Their row numbers in what was given; of repeated samples, the first.
    weight : ndarray of shape (n,)
        How much each counts.
    """

    rows: Indices
    weight: Array

    @classmethod
    def all_of(cls, n: int, sample_weight: Array | None) -> DistinctSamples:
        """Return every sample as it is, repeated or not."""
        return cls(np.arange(n), np.ones(n) if sample_weight is None else sample_weight)


def count_samples(
    approximation: str | None,
    X: MatrixLike,
    y: TargetLike,
    sample_weight: Array | None,
    *,
    reorders: bool = False,
) -> DistinctSamples:
    """Return the distinct samples with the sum of their weights.

    A sample of weight two is a sample given twice, and one of weight zero is no sample: both must
    lead to the same problem, with the samples in the same order. So whenever there are weights or
    repetitions the samples are put in an order of their own; a set without either stays as it is.
    Weights of one are none.

    Parameters
    ----------
    approximation : str or None
        How kernels are approximated. Their samples may fill the memory, or stay on the disk;
        repeated ones are then not looked for.
    X : array or sparse matrix of shape (n_samples, n_features)
        Samples.
    y : array of shape (n_samples,) or (n_samples, n_targets), or None
        Targets: samples with different ones are different samples.
    sample_weight : array of shape (n_samples,) or None
        Their weights.
    reorders : bool, default=False
        Whether samples without weights or repetitions are put in that order, too.
    """
    n_bytes = getattr(getattr(X, "data", X), "nbytes", np.inf)
    if approximation is not None and (is_streamed(X) or n_bytes > MAX_SEARCHED_BYTES):
        return DistinctSamples.all_of(X.shape[0], sample_weight)
    all_rows = np.arange(X.shape[0])
    # A sample of weight zero must not touch widths or scales either.
    rows = all_rows if sample_weight is None else np.flatnonzero(sample_weight)
    counted_X = X[rows] if len(rows) < len(all_rows) else X
    counted_y = None if y is None else y[rows]
    _, first, group = np.unique(_keys(counted_X, counted_y), return_index=True, return_inverse=True)
    has_unit_weights = sample_weight is None or bool(np.all(sample_weight == 1.0))
    if has_unit_weights and len(first) == len(all_rows) and not reorders:
        return DistinctSamples(all_rows, np.ones(len(all_rows)))
    weight = None if sample_weight is None else sample_weight[rows]
    totals = np.bincount(group, weights=weight, minlength=len(first)).astype(np.float64)
    return DistinctSamples(rows[first], totals)


def _keys(X: MatrixLike, y: TargetLike) -> AnyArray:
    """Return one comparable key per sample, equal for equal samples and targets."""
    labels = np.zeros(X.shape[0], dtype=np.int64)
    if y is not None:
        # Samples with several targets are distinct if any target differs. Rows of objects cannot be
        # compared before NumPy 2, single objects can.
        axis = 0 if np.ndim(y) > 1 else None
        labels = np.unique(y, return_inverse=True, axis=axis)[1].reshape(-1).astype(np.int64)
    if sparse.issparse(X):
        return _sparse_keys(X, labels)
    if X.dtype.kind not in "iuf":
        X = np.column_stack([_codes(column) for column in X.T])
    # Adding zero makes −0 and 0, which are equal but differ in their bits, the same.
    cells = np.ascontiguousarray(X + X.dtype.type(0)).view(np.uint8)
    # Keys begin with the label, as those of sparse rows do, so that dense and sparse samples
    # without zeros have the same order, and so the same folds.
    rows = np.hstack([labels[:, np.newaxis].view(np.uint8), cells.reshape(len(labels), -1)])
    # One opaque value per row: sorting compares the bytes, many times faster than column by column.
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]


def _sparse_keys(X: MatrixLike, labels: NDArray[np.int64]) -> AnyArray:
    """Return one comparable key per sparse sample, equal for equal samples and labels."""
    X = X.tocsr(copy=True)
    # Stored zeros and unsorted columns would make equal rows look different.
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = []
    for label, (start, end) in zip(labels.tolist(), pairwise(X.indptr), strict=True):
        keys.append((label, X.indices[start:end].tobytes(), X.data[start:end].tobytes()))
    return _codes(keys)


def _codes(column: Sequence[Any] | AnyArray) -> NDArray[np.int64]:
    """Return a number for every entry, equal for equal entries and in the order of the entries.

    Entries that do not compare, such as str and bytes, are numbered in the order of their first
    occurrence.
    """
    try:
        distinct = dict.fromkeys(column)
    except TypeError:
        # The entries are not hashable; the kernels validate them.
        return np.arange(len(column), dtype=np.int64)
    try:
        ordered = sorted(distinct)
    except TypeError:
        ordered = list(distinct)
    code_of_entry = {entry: code for code, entry in enumerate(ordered)}
    codes = (code_of_entry[entry] for entry in column)
    return np.fromiter(codes, dtype=np.int64, count=len(column))


# Samples that need not be in memory ---------------------------------------------------------------


def is_streamed(X: MatrixLike) -> bool:
    """Return whether the samples are not an array in memory.

    They are then a memory map, a path, a Dask collection or an opened source of rows.
    """
    return isinstance(X, np.memmap | str | Path | RowSource) or is_dask(X)


def named_columns(rows: RowIndex) -> MatrixLike:
    """Return an empty table with the columns of a source of rows; other samples as they are.

    Kernels find their columns in it.
    """
    if not isinstance(rows, RowSource):
        return rows
    if rows.names is None:
        return np.empty((0, rows.shape[1]))
    import pandas as pd

    return pd.DataFrame(columns=rows.names, dtype=np.float64)


# On one scale -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standardizer:
    """Subtracts the means of columns and divides by their standard deviations, where kernels read
    them as numbers.

    Attributes
    ----------
    columns : ndarray of int
        The columns it changes; row numbers, strings and what no kernel reads stay as they are.
    mean, scale : ndarray of shape (len(columns),)
        Of the training samples, by their weights. Sparse samples are divided only, so that they
        stay sparse.
    unit : ndarray of shape (len(columns),)
        The unit in which squares of a column neither overflow nor vanish: 1 for all but extreme
        columns, for these a power of two, so that dividing by it does not round.
    """

    columns: Indices
    mean: Array
    scale: Array
    unit: Array

    @classmethod
    def fit(cls, specs: Sequence[KernelSpec], X: MatrixLike, weight: Array) -> Standardizer:
        """Return the standardizer of the columns that kernels read as numbers.

        A column is left out if any kernel that reads it takes it for something else, or keeps its
        scale.

        Parameters
        ----------
        specs : sequence of KernelSpec
            The kernels with the columns that they read.
        X : array or sparse matrix of shape (n_samples, n_features)
            Samples; NaN where one lacks a view.
        weight : ndarray of shape (n_samples,)
            How much each sample counts.
        """
        is_number, is_other = np.zeros((2, X.shape[1]), dtype=bool)
        for spec in specs:
            columns = slice(None) if spec.columns is None else spec.columns
            if spec.kernel.input_kind == "numbers" and not spec.kernel.keeps_scale:
                is_number[columns] = True
            else:
                is_other[columns] = True
        columns = np.flatnonzero(is_number & ~is_other)
        if sparse.issparse(X):
            mean, deviation, largest, unit = _sparse_moments(specs, X, columns, weight)
        else:
            mean, deviation, largest, unit = _dense_moments(X, columns, weight)
        scale = np.where(deviation > ROUNDING_OF_DEVIATION * largest, deviation, 1.0)
        return cls(columns, mean * unit, scale * unit, unit)

    def __call__(self, X: MatrixLike) -> MatrixLike:
        """Return the samples on one scale, as a new array."""
        if sparse.issparse(X) and self.mean.any():
            # The training samples were dense and were centred: on their scale, zeros are not zero.
            X = X.toarray()
        if sparse.issparse(X):
            scale, unit = np.ones((2, X.shape[1]))
            scale[self.columns] = self.scale / self.unit
            unit[self.columns] = self.unit
            in_units = _divided(sparse.csr_matrix(X, dtype=np.float64), unit)
            return sparse.csr_matrix(in_units.multiply((1.0 / scale)[np.newaxis]))
        out = X.astype(np.float64 if X.dtype == np.float32 else X.dtype)
        in_units = _divided(np.asarray(X[:, self.columns], dtype=np.float64), self.unit)
        out[:, self.columns] = (in_units - self.mean / self.unit) / (self.scale / self.unit)
        return out


#: Means, standard deviations and largest entries of columns in their units, and these units.
Moments = tuple[Array, Array, Array, Array]


def _sparse_moments(
    specs: Sequence[KernelSpec], X: MatrixLike, columns: Indices, weight: Array
) -> Moments:
    """Return the moments of columns of sparse samples, with means of zero.

    Sparse columns are not centred, so that they stay sparse. The largest entries are replaced by
    root mean squares. The arguments are those of `Standardizer.fit`, with the columns to read.
    """
    entries = sparse.csr_matrix(X[:, columns], dtype=np.float64)
    magnitudes = abs(entries)
    magnitudes.data[np.isnan(magnitudes.data)] = 0.0
    unit = _units(magnitudes.max(axis=0).toarray()[0])
    entries = _divided(entries, unit)
    mean, variance = mean_variance_axis(entries, 0, weights=weight)
    present = present_views(specs, X)
    if present is not None:
        # Samples that lack a view do not count in its columns.
        for spec, has_view in zip(specs, present.T, strict=True):
            columns_of_view = np.arange(X.shape[1]) if spec.columns is None else spec.columns
            in_view = np.isin(columns, columns_of_view)
            mean[in_view], variance[in_view] = mean_variance_axis(
                entries[has_view][:, in_view], 0, weights=weight[has_view]
            )
    return np.zeros(len(columns)), np.sqrt(variance), np.sqrt(variance + mean**2), unit


def _dense_moments(X: MatrixLike, columns: Indices, weight: Array) -> Moments:
    """Return the moments of columns of dense samples, by the samples that are not NaN there.

    A column that no sample has is refused by its kernel.
    """
    entries = np.asarray(X[:, columns], dtype=np.float64)
    is_present = ~np.isnan(entries)
    values = np.where(is_present, entries, 0.0)
    counts = is_present * weight[:, np.newaxis]
    unit = _units(np.abs(values).max(axis=0, initial=0.0))
    values = _divided(values, unit)
    total = np.maximum(counts.sum(axis=0), np.finfo(np.float64).tiny)
    mean = (counts * values).sum(axis=0) / total
    deviation = np.sqrt((counts * (values - mean) ** 2).sum(axis=0) / total)
    largest = np.abs(values).max(axis=0, initial=0.0)
    return mean, deviation, largest, unit


def _units(largest: Array) -> Array:
    """Return the units of columns with these largest entries.

    The unit is 1, or a power of two where squares of the entries would vanish or overflow.
    """
    is_plain = (largest > SMALLEST_PLAIN) & (largest < LARGEST_PLAIN)
    is_extreme = (largest > 0) & ~is_plain
    exponents = np.where(is_extreme, np.frexp(largest)[1], 0)
    return np.asarray(np.ldexp(1.0, np.clip(exponents, -1021, 1023)))


def _divided(X: MatrixLike, unit: Array) -> MatrixLike:
    """Return samples with every column divided by its unit."""
    if np.all(unit == 1.0):
        return X
    if not sparse.issparse(X):
        return X / unit
    # Entries are divided, since the reciprocal of the smallest units would overflow.
    entries = X.tocoo()
    values = entries.data / unit[entries.col]
    return sparse.csr_matrix((values, (entries.row, entries.col)), shape=X.shape)


# Categories that the training samples do not have -------------------------------------------------


def known_categories(entries: list[Entry], given: FitInput) -> dict[int, list[Any]]:
    """Return the categories of the training samples, by the number of their column.

    Only columns that kernels compare as categories are read. `entries` are the kernels.
    """
    categories: dict[int, list[Any]] = {}
    for spec in lay_specs(entries, given.table):
        columns = np.arange(given.X.shape[1]) if spec.columns is None else spec.columns
        for kernel in _parts_of(spec.kernel, Clinical):
            for j in columns[kernel.nominal_columns(given.X[:, columns])].tolist():
                categories[j] = _categories_of(given.X[:, j])
    return categories


def _categories_of(column: AnyArray) -> list[Any]:
    """Return the distinct values of a column, without empty cells."""
    return list(dict.fromkeys(column[~is_missing(column)].tolist()))


def _parts_of(kernel: Kernel, kinds: Any) -> Iterator[Any]:
    """Yield the kernels of some kinds that a kernel is made of.

    The kernels of the members of pairs are no parts, since they read other samples.
    """
    if isinstance(kernel, kinds):
        yield kernel
    elif not kernel.reads_pairs:
        for part in kernel.get_params(deep=False).values():
            if isinstance(part, Kernel):
                yield from _parts_of(part, kinds)


def warn_of_unseen(known: dict[int, list[Any]], X: AnyArray, names: Sequence[Any]) -> None:
    """Warn of the first category of new samples that no training sample has in its column.

    Parameters
    ----------
    known : dict from int to list
        The categories of the training samples, by the number of their column.
    X : ndarray
        New samples.
    names : sequence
        The names of all columns.
    """
    for j, categories in known.items():
        in_training = set(categories)
        unseen = [value for value in _categories_of(X[:, j]) if value not in in_training]
        if unseen:
            warn_caller(
                f"X: column {names[j]!r} holds {unseen[0]!r}, which is not in the training set: it"
                f" matches no training category.{_hint_of_other_type(unseen[0], categories)}"
            )
            return


def _hint_of_other_type(value: Any, categories: list[Any]) -> str:
    """Return a hint if a category differs from one of the training set by its type only; else "".

    An example is the number 1 in place of the text "1".
    """
    is_text = isinstance(value, str)
    for category in categories:
        if isinstance(category, str) != is_text and str(category) == str(value):
            return (
                f" The training set holds {category!r}: give the column the type that it had there."
            )
    return ""


# Columns of scales so different that the largest dominates a kernel -------------------------------


def warn_of_scales(
    estimator: str, specs: Sequence[KernelSpec], samples: MatrixLike, table: Any
) -> None:
    """Warn once if a kernel reads columns whose standard deviations are 100 times apart or more.

    Only kernels whose formula has products or distances of columns count. Constant columns do not
    count, nor do columns of two values, mostly indicators, whose deviation reflects their
    frequency. The ranges must differ as much: a pixel that is rarely lit is not on another scale.
    There is no warning of sparse samples, which scaling would fill.

    Parameters
    ----------
    estimator : str
        The name of the estimator, for the warning.
    specs : sequence of KernelSpec
        The kernels with the columns that they read.
    samples : array, sparse matrix or RowSource
        The training samples.
    table : array or data frame
        Has the names of the columns, if they have any.
    """
    X = _some_rows(samples)
    if sparse.issparse(X):
        return
    # Kernels that read the same columns are compared once.
    widest_of_columns: dict[bytes | None, WideColumns | None] = {}
    for spec in specs:
        key = None if spec.columns is None else spec.columns.tobytes()
        if key in widest_of_columns or not any(_parts_of(spec.kernel, StatisticKernel)):
            continue
        V = take_columns(X, spec.columns)
        if not sparse.issparse(V):
            has_view = ~is_missing(V).all(axis=1)
            V = V[has_view]
        widest_of_columns[key] = None
        if V.shape[0]:
            widest_of_columns[key] = _widest_columns(spec, spec.kernel.validate(V))
    wide_columns = [columns for columns in widest_of_columns.values() if columns is not None]
    if not wide_columns:
        return
    widest = max(wide_columns, key=attrgetter("ratio"))
    names = getattr(table, "columns", range(X.shape[1]))
    warn_caller(
        f"X: columns {names[widest.large_column]!r} and {names[widest.small_column]!r}, which"
        f" kernel {widest.kernel!r} reads, have standard deviations of"
        f" {widest.large_deviation:.3g} and {widest.small_deviation:.3g}: the first dominates the"
        f" second. Scale them, as in make_pipeline(StandardScaler(), {estimator}(...)), or give"
        " them kernels of their own."
    )


def _some_rows(samples: MatrixLike) -> MatrixLike:
    """Return rows of the samples, enough for a standard deviation.

    They are spread over the samples; of samples on a disk, or on other machines, they are the first
    ones.
    """
    n_samples = samples.shape[0]
    if not isinstance(samples, RowSource):
        step = -(-n_samples // N_COMPARED_ROWS)
        return samples[::step]
    n_affordable = max(MIN_READ_ROWS, MAX_READ_NUMBERS // samples.row_width)
    return samples.take(slice(0, min(N_COMPARED_ROWS, n_affordable, n_samples)))


@dataclass(frozen=True)
class WideColumns:
    """Two columns of a kernel whose standard deviations are far apart.

    Attributes
    ----------
    ratio : float
        The larger deviation divided by the smaller one.
    kernel : str
        The name of the kernel.
    large_column, small_column : int
        The numbers of the columns.
    large_deviation, small_deviation : float
        Their standard deviations.
    """

    ratio: float
    kernel: str
    large_column: int
    small_column: int
    large_deviation: float
    small_deviation: float


def _widest_columns(spec: KernelSpec, X: AnyArray) -> WideColumns | None:
    """Return the columns of the largest and the smallest deviation; None if these are close.

    Parameters
    ----------
    spec : KernelSpec
        A kernel with the columns that it reads.
    X : ndarray
        Samples as the kernel reads them.
    """
    X = X.astype(np.float64, copy=False)
    low, high = X.min(axis=0), X.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        ranges, deviations = high - low, X.std(axis=0)
        has_two_values = np.all((low == X) | (high == X), axis=0)
        counted = np.flatnonzero(~has_two_values & np.isfinite(deviations))
    if len(counted) < 2:
        return None
    large = counted[np.argmax(deviations[counted])]
    small = counted[np.argmin(deviations[counted])]
    for spreads in (deviations, ranges):
        # The factor is on this side because the smaller one may have vanished.
        if spreads[large] < WIDE_RATIO * spreads[small] or spreads[small] <= 0:
            return None
    columns = np.arange(X.shape[1]) if spec.columns is None else spec.columns
    return WideColumns(
        deviations[large] / deviations[small],
        spec.name,
        int(columns[large]),
        int(columns[small]),
        deviations[large],
        deviations[small],
    )
