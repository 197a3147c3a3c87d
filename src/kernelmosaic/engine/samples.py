"""Samples of a fit: each counted once, their columns on one scale, and what new ones are compared
with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
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


@dataclass(frozen=True)
class FitInput:
    """A training set as validated, before anything is learned from it.

    Attributes
    ----------
    X, y : array, or sparse matrix; ndarray of shape (n,) or (n, targets), or None
        Samples and targets.
    weight : ndarray of shape (n,) or None
        How much each counts.
    original : array or data frame
        X as it was given, for the names of its columns.
    device : str or None
        Where to compute; None means the host.
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
        """What kernels find their columns by: X as given if it is a table."""
        return (
            self.original
            if len(getattr(self.original, "shape", ())) == 2
            else named_columns(self.X)
        )

    def standardizer(self, entries: list[Entry]) -> Standardizer:
        """Return what puts the columns of numbers that kernels read on one scale."""
        # Of distinct samples, in an order of their own: a sample of weight two and one given twice
        # are the same.
        counted = count_samples(None, self.X, self.y, self.weight)
        return Standardizer.fit(
            lay_specs(entries, self.table), self.X[counted.rows], counted.weight
        )


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
        """Every sample as it is, repeated or not."""
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
    lead to the very same problem, in the same order of samples. So whenever there are weights or
    repetitions the samples are put in an order of their own; a set without either stays as it is.
    Weights of one are none.

    Parameters
    ----------
    approximation : str or None
        Where kernels are approximated, samples may fill the memory, or stay on the disk: repeated
        ones are then not looked for.
    X : array or sparse matrix of shape (n_samples, n_features)
        Samples.
    y : array of shape (n_samples,) or (n_samples, n_targets), or None
        Targets: samples with different ones are different samples.
    sample_weight : array of shape (n_samples,) or None
        Their weights.
    reorders : bool, default=False
        Whether samples without weights or repetitions are put in that order, too.
    """
    size = getattr(getattr(X, "data", X), "nbytes", np.inf)
    if approximation is not None and (is_streamed(X) or size > 2**26):
        return DistinctSamples.all_of(X.shape[0], sample_weight)
    all_rows = np.arange(X.shape[0])
    # A sample of weight zero must not touch widths or scales either.
    rows = all_rows if sample_weight is None else np.flatnonzero(sample_weight)
    keys = _keys(X[rows] if len(rows) < len(all_rows) else X, None if y is None else y[rows])
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    counts_once = sample_weight is None or bool(np.all(sample_weight == 1.0))
    if counts_once and len(first) == len(all_rows) and not reorders:
        return DistinctSamples(all_rows, np.ones(len(all_rows)))
    weight = None if sample_weight is None else sample_weight[rows]
    return DistinctSamples(
        rows[first], np.bincount(inverse, weights=weight, minlength=len(first)).astype(np.float64)
    )


def _keys(X: MatrixLike, y: TargetLike) -> AnyArray:
    """Return one comparable key per sample, equal for equal samples."""
    labels = np.zeros(X.shape[0], dtype=np.int64)
    if y is not None:  # samples with several targets are distinct if any of them differs
        # Rows of objects cannot be compared before NumPy 2, single ones can.
        axis = 0 if np.ndim(y) > 1 else None
        labels = np.unique(y, return_inverse=True, axis=axis)[1].reshape(-1).astype(np.int64)
    if sparse.issparse(X):
        return _sparse_keys(X, labels)
    if X.dtype.kind not in "iuf":
        X = np.column_stack([_codes(column) for column in X.T])
    # Adding zero makes one of the two zeros that compare equal but differ in their bits.
    cells = np.ascontiguousarray(X + X.dtype.type(0)).view(np.uint8)
    # By class first, as sparse rows are: where no cell is zero both come in the same order, and so
    # in the same folds.
    rows = np.hstack([labels[:, np.newaxis].view(np.uint8), cells.reshape(len(labels), -1)])
    # One opaque value per row: sorting compares the bytes, many times faster than column by column.
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]


def _sparse_keys(X: MatrixLike, labels: NDArray[np.int64]) -> AnyArray:
    X = X.tocsr(copy=True)
    # Stored zeros and unsorted columns would make equal rows look different.
    X.sum_duplicates()
    X.eliminate_zeros()
    rows = zip(labels.tolist(), pairwise(X.indptr), strict=True)
    return _codes(
        [(label, X.indices[a:b].tobytes(), X.data[a:b].tobytes()) for label, (a, b) in rows]
    )


def _codes(column: Sequence[Any] | AnyArray) -> NDArray[np.int64]:
    """Return a number for every entry, equal for equal entries and in the entries' order where they
    have one."""
    try:
        distinct = dict.fromkeys(column)
    except TypeError:  # entries that cannot be looked up; the kernels validate them
        return np.arange(len(column), dtype=np.int64)
    try:
        ranked = sorted(distinct)
    except (
        TypeError
    ):  # entries that do not compare, such as str and bytes, keep the order they come in
        ranked = list(distinct)
    rank = {entry: i for i, entry in enumerate(ranked)}
    return np.fromiter((rank[entry] for entry in column), dtype=np.int64, count=len(column))


# Samples that need not be in memory ---------------------------------------------------------------


def is_streamed(X: MatrixLike) -> bool:
    """Whether the samples are read from where they are: a memory map, a path, a Dask collection, an
    opened source."""
    return isinstance(X, np.memmap | str | Path | RowSource) or is_dask(X)


def named_columns(rows: RowIndex) -> MatrixLike:
    """Return an empty table with the columns of a source of rows, by which kernels find theirs."""
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
        """Return that of the columns which all kernels reading them take as numbers."""
        numbers, other = np.zeros((2, X.shape[1]), dtype=bool)
        for spec in specs:
            read = (
                numbers
                if spec.kernel.input_kind == "numbers" and not spec.kernel.keeps_scale
                else other
            )
            read[slice(None) if spec.columns is None else spec.columns] = True
        columns = np.flatnonzero(numbers & ~other)
        if sparse.issparse(X):
            taken = sparse.csr_matrix(X[:, columns], dtype=np.float64)
            magnitudes = abs(taken)
            magnitudes.data[np.isnan(magnitudes.data)] = 0.0
            unit = _units(magnitudes.max(axis=0).toarray()[0])
            taken = _divided(taken, unit)
            (mean, variance), present = (
                mean_variance_axis(taken, 0, weights=weight),
                present_views(specs, X),
            )
            if present is not None:  # samples that lack a view do not count in its columns
                for spec, own in zip(specs, present.T, strict=True):
                    read = np.isin(
                        columns, np.arange(X.shape[1]) if spec.columns is None else spec.columns
                    )
                    mean[read], variance[read] = mean_variance_axis(
                        taken[own][:, read], 0, weights=weight[own]
                    )
            scale, largest = np.sqrt(variance), np.sqrt(variance + mean**2)
            mean = np.zeros(len(columns))
        else:
            taken = np.asarray(X[:, columns], dtype=np.float64)
            # Of a view that samples lack, the other samples give the scale; a column that no sample
            # has is refused by its kernel.
            present = ~np.isnan(taken)
            values, counted = np.where(present, taken, 0.0), present * weight[:, np.newaxis]
            unit = _units(np.abs(values).max(axis=0, initial=0.0))
            values = _divided(values, unit)
            total = np.maximum(counted.sum(axis=0), np.finfo(np.float64).tiny)
            mean = (counted * values).sum(axis=0) / total
            scale = np.sqrt((counted * (values - mean) ** 2).sum(axis=0) / total)
            largest = np.abs(values).max(axis=0, initial=0.0)
        # Below this share of its largest entry a column's deviation is rounding.
        scale = np.where(scale > 1e-12 * largest, scale, 1.0)
        return cls(columns, mean * unit, scale * unit, unit)

    def __call__(self, X: MatrixLike) -> MatrixLike:
        """Return the samples on that scale, as an array of its own."""
        if sparse.issparse(X) and self.mean.any():
            # The training samples were dense and have been centred; zeros are not zero on their
            # scale.
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


def _units(largest: Array) -> Array:
    """Return the units of columns by their largest entries: 1, or a power of two where squares
    leave the range."""
    is_extreme = (largest > 0) & ~((largest > 1e-100) & (largest < 1e100))
    exponents = np.where(is_extreme, np.frexp(largest)[1], 0)
    return np.asarray(np.ldexp(1.0, np.clip(exponents, -1021, 1023)))


def _divided(X: MatrixLike, unit: Array) -> MatrixLike:
    """Return samples in which every column is divided by its unit."""
    if np.all(unit == 1.0):
        return X
    if not sparse.issparse(X):
        return X / unit
    # Not by a factor: that of the smallest numbers would overflow.
    entries = X.tocoo()
    values = entries.data / unit[entries.col]
    return sparse.csr_matrix((values, (entries.row, entries.col)), shape=X.shape)


# Categories that the training samples do not have -------------------------------------------------


def known_categories(entries: list[Entry], given: FitInput) -> dict[int, list[Any]]:
    """Return what the columns hold that kernels compare as categories, by the number of the
    column."""
    found: dict[int, list[Any]] = {}
    for spec in lay_specs(entries, given.table):
        columns = np.arange(given.X.shape[1]) if spec.columns is None else spec.columns
        for kernel in _parts_of(spec.kernel, Clinical):
            for j in columns[kernel.nominal_columns(given.X[:, columns])].tolist():
                found[j] = _categories_of(given.X[:, j])
    return found


def _categories_of(column: AnyArray) -> list[Any]:
    """Return the distinct values of a column, without empty cells."""
    return list(dict.fromkeys(column[~is_missing(column)].tolist()))


def _parts_of(kernel: Kernel, kinds: Any) -> Iterator[Any]:
    """Yield the kernels of some kinds in a kernel; what reads the members of pairs is no part of
    it."""
    if isinstance(kernel, kinds):
        yield kernel
    elif not kernel.reads_pairs:
        for part in kernel.get_params(deep=False).values():
            if isinstance(part, Kernel):
                yield from _parts_of(part, kinds)


def warn_of_unseen(known: dict[int, list[Any]], X: AnyArray, names: Sequence[Any]) -> None:
    """Warn once where new samples hold a category that no training sample has in its column."""
    for j, categories in known.items():
        in_training = set(categories)
        unseen = [value for value in _categories_of(X[:, j]) if value not in in_training]
        if unseen:
            warn_caller(
                f"X: column {names[j]!r} holds {unseen[0]!r}, which is not in the training set: it"
                f" matches no training category.{_written_otherwise(unseen[0], categories)}"
            )
            return


def _written_otherwise(value: Any, categories: list[Any]) -> str:
    """Return what to do if a category differs from one of the training set in its type alone."""
    alike = [
        category for category in categories if isinstance(category, str) != isinstance(value, str)
    ]
    for category in alike:
        if str(category) == str(value):
            return (
                f" The training set holds {category!r}: give the column the type that it had there."
            )
    return ""


# Columns of scales so different that the largest dominates a kernel -------------------------------


def warn_of_scales(
    estimator: str, specs: Sequence[KernelSpec], samples: MatrixLike, table: Any
) -> None:
    """Warn once where one kernel reads columns whose standard deviations are 100 times apart or
    more.

    Only of kernels whose formula reads products or distances. Constant columns do not count, nor do
    those of two values, mostly indicators, whose deviation reflects their frequency; sparse
    samples, which scaling would fill, are left alone. The ranges must differ as much: a pixel that
    is rarely lit is not on another scale.
    """
    # Rows from all over the samples, enough for a standard deviation. Of samples on a disk or on
    # other machines the first ones, and few if they are wide: 2¹⁶ numbers, but at least 200 rows.
    n, most = samples.shape[0], 10_000
    if isinstance(samples, RowSource):
        X = samples.take(slice(0, min(most, max(200, 2**16 // samples.row_width), n)))
    else:
        X = samples[:: -(-n // most)]
    if sparse.issparse(X):
        return
    seen: dict[bytes | None, tuple[Any, ...] | None] = {}
    for spec in specs:
        key = None if spec.columns is None else spec.columns.tobytes()
        # Functions of products or distances of columns.
        if key not in seen and any(_parts_of(spec.kernel, StatisticKernel)):
            V = take_columns(X, spec.columns)
            there = V if sparse.issparse(V) else V[~is_missing(V).all(axis=1)]
            seen[key] = _extremes(spec, spec.kernel.validate(there)) if there.shape[0] else None
    extremes = list(filter(None, seen.values()))
    if not extremes:
        return
    _, kernel, first, second, large, small = max(extremes, key=itemgetter(0))
    names = getattr(table, "columns", range(X.shape[1]))
    warn_caller(
        f"X: columns {names[first]!r} and {names[second]!r}, which kernel {kernel!r} reads, have"
        f" standard deviations of {large:.3g} and {small:.3g}: the first dominates the second."
        f" Scale them, as in make_pipeline(StandardScaler(), {estimator}(...)), or give them"
        " kernels of their own."
    )


def _extremes(spec: KernelSpec, X: AnyArray) -> tuple[Any, ...] | None:
    """Return the columns of largest and smallest deviation, None unless these are 100 times apart.

    They come with the ratio of the deviations and the name of the kernel before them, and both
    deviations after.
    """
    X = X.astype(np.float64, copy=False)
    low, high = X.min(axis=0), X.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread, deviation = high - low, X.std(axis=0)
        counted = np.flatnonzero(~np.all((low == X) | (high == X), axis=0) & np.isfinite(deviation))
    if len(counted) < 2:
        return None
    large, small = counted[np.argmax(deviation[counted])], counted[np.argmin(deviation[counted])]
    # Not a quotient: a deviation may underflow to zero.
    if any(of[large] < 100.0 * of[small] or of[small] <= 0 for of in (deviation, spread)):
        return None
    place = np.arange(X.shape[1]) if spec.columns is None else spec.columns
    ends = int(place[large]), int(place[small]), deviation[large], deviation[small]
    return deviation[large] / deviation[small], spec.name, *ends
