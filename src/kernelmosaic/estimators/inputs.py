"""Samples of estimators: what they may be, how a fit reads them, and how new ones are read."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import _check_n_features, _check_sample_weight, validate_data

from kernelmosaic._typing import (
    Array,
    Estimator,
    Mask,
    MatrixLike,
    SampleWeight,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import is_dask, require_device, tensor_device, to_host
from kernelmosaic.engine.samples import (
    FitInput,
    Standardizer,
    is_streamed,
    known_categories,
    warn_of_unseen,
)
from kernelmosaic.frames import (
    is_pandas,
    is_polars,
    is_series,
    is_sparse,
    read_frame,
    refuse_times,
    series_values,
    time_columns,
)
from kernelmosaic.gram.missing import GATED, first_columns
from kernelmosaic.gram.row_blocks import ArrayRows, RowSource, gathered, open_rows
from kernelmosaic.kernels.base import is_missing, object_table, refuse_text
from kernelmosaic.kernels.graphs import graph_table
from kernelmosaic.kernels.matrices import Precomputed, length_of, read_new_rows
from kernelmosaic.kernels.views import Entry, lay_specs
from kernelmosaic.stacking import (
    StackedViews,
    are_tables,
    check_row_names,
    mark_lacking,
    refuse_annotated,
    several_tables,
    stack_tables,
)

# What samples and targets may be ------------------------------------------------------------------

#: Kinds of samples that may come as a list, each item one sample, be it a matrix.
_LISTED_KINDS = {"graphs", "objects"}


@dataclass(frozen=True)
class TargetRules:
    """What targets a fit takes.

    Attributes
    ----------
    are_read : bool
        Whether samples have targets at all.
    are_numbers : bool
        Whether targets are numbers; else they are classes.
    may_be_several : bool
        Whether a sample may have several targets, one per column.
    """

    are_read: bool = True
    are_numbers: bool = False
    may_be_several: bool = False


NO_TARGETS = TargetRules(are_read=False)
CLASSES = TargetRules()
COLUMNS_OF_CLASSES = TargetRules(may_be_several=True)
NUMBERS = TargetRules(are_numbers=True, may_be_several=True)


@dataclass(frozen=True)
class InputRules:
    """What samples an estimator takes, by its parameters at the fit and by the training samples.

    Predictions read these rules and not the parameters, which may have changed since the fit.

    Attributes
    ----------
    kinds : tuple of str
        The kinds of samples that the kernels read, `Kernel.input_kind`, each once.
    dense_kernel : str or None
        The name of the first kernel that does not read sparse samples.
    all_name_columns : bool
        Whether every kernel names the columns that it reads. All other columns may then hold
        anything.
    matrix_lengths : dict of int
        How many rows the matrix of each kernel has, by the kernel's name. Empty unless new samples
        may be given as blocks of similarities to these rows.
    approximation : str or None
        How kernels become features. Samples may then stay on a disk.
    is_in_memory : bool
        Whether the estimator reads samples in memory only, also with an approximation.
    may_lack_views : bool
        Whether samples may lack what a kernel reads. Otherwise the kernels raise.
    has_gated_views : bool
        Whether views that samples lack have gates of zero. Gates read means of dense samples.
    n_columns : int
        The number of columns of the training samples.
    column_names : ndarray of str, or None
        Their names.
    columns_of_tables : dict of list
        The columns of each table, where several tables were given; empty if there was one.
    date_columns : tuple of int
        Columns in which new samples may hold dates and the like. No kernel reads them as numbers.
    categories : dict of list
        What the columns hold that kernels compare as categories, by the number of the column.
    gap_columns : dict of list
        The columns that mark, by NaN, that a sparse sample lacks a table, by the name of the table.
    kernels_across : dict of str
        A kernel that reads columns of several tables, by the name of each of these tables.
    standardizer : Standardizer or None
        What puts the columns of numbers on one scale.
    """

    kinds: tuple[str, ...]
    dense_kernel: str | None
    all_name_columns: bool
    matrix_lengths: dict[str, int]
    approximation: str | None
    is_in_memory: bool
    may_lack_views: bool
    has_gated_views: bool
    n_columns: int = 0
    column_names: NDArray[np.object_] | None = None
    columns_of_tables: dict[str, list[Any]] = field(default_factory=dict)
    date_columns: tuple[int, ...] = ()
    categories: dict[int, list[Any]] = field(default_factory=dict)
    gap_columns: dict[str, list[int]] = field(default_factory=dict)
    kernels_across: dict[str, str] = field(default_factory=dict)
    standardizer: Standardizer | None = None


def input_rules(X: MatrixLike, estimator: Estimator) -> InputRules:
    """Return what samples an estimator takes by its parameters.

    What is learned from the training samples has its default.
    """
    entries = estimator.read_kernels(X)
    names = [*(entry.name for entry in entries), *estimator.further_kernels()]
    reads_sparse = estimator.kernel_traits("accepts_sparse", entries)
    names_of_readers = zip(names, reads_sparse, strict=True)
    dense_kernels = [name for name, is_sparse_read in names_of_readers if not is_sparse_read]
    return InputRules(
        kinds=tuple(sorted(set(estimator.kernel_traits("input_kind", entries)))),
        dense_kernel=dense_kernels[0] if dense_kernels else None,
        all_name_columns=all(entry.columns is not None for entry in entries),
        # Similarities to the training samples do not suffice where the samples themselves are read.
        matrix_lengths={} if estimator.reads_samples else _lengths_of_matrices(entries),
        approximation=estimator.approximation,
        is_in_memory=estimator.reads_in_memory,
        may_lack_views=estimator.missing is not None,
        has_gated_views=estimator.missing == GATED,
    )


def _lengths_of_matrices(entries: Sequence[Entry]) -> dict[str, int]:
    """Return how many rows the matrix of each kernel has, by the kernel's name.

    The dict is empty unless all kernels are given matrices.
    """
    if not all(isinstance(entry.kernel, Precomputed) for entry in entries):
        return {}
    return {entry.name: length_of(entry.kernel.K) for entry in entries}


def columns_without_numbers(entries: Sequence[Entry], X: MatrixLike) -> list[int]:
    """Return the numbers of the columns of X that no kernel reads as numbers."""
    read: set[int] = set()
    for spec in lay_specs(entries, X):
        if spec.kernel.input_kind == "numbers":
            read.update(range(X.shape[-1]) if spec.columns is None else spec.columns.tolist())
    return [j for j in range(X.shape[-1]) if j not in read]


# Samples of a fit ---------------------------------------------------------------------------------


def read_samples(
    X: MatrixLike,
    y: TargetLike,
    sample_weight: SampleWeight,
    targets: TargetRules,
    estimator: Estimator,
) -> tuple[FitInput, InputRules]:
    """Return a checked training set, and the rules by which new samples are read.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame, rows on a disk, or several tables
        Samples.
    y : array-like or None
        Targets.
    sample_weight : array-like of shape (n_samples,) or None
        How much each sample counts.
    targets : TargetRules
        What targets may be.
    estimator : KernelEstimator
        Its parameters and kernels say what samples may be. Errors name its class. It is not
        changed.
    """
    # 1. Several tables become one. Arrays have no names of rows, and an array is one table.
    columns_of_tables: dict[str, list[Any]] = {}
    views = None
    if not all(isinstance(rows, np.ndarray | None) for rows in (X, y, sample_weight)):
        refuse_annotated(X)
        check_row_names(X, y=y, sample_weight=sample_weight)
        if are_tables(X) and not _LISTED_KINDS.intersection(estimator.kernel_traits("input_kind")):
            stacked = stack_tables(X)
            X, columns_of_tables, views = stacked.X, stacked.views, stacked.numbers

    # 2. The table and its targets become arrays.
    if targets.are_read and not targets.may_be_several:
        _refuse_several_labels(y, type(estimator).__name__)
    device = tensor_device(X) if estimator.device is None else str(require_device(estimator.device))
    table, target, rules = read_training_table(X, y, targets, estimator, views)

    # 3. What belongs to the samples, and the categories that new samples are compared with.
    weight = None if sample_weight is None else read_sample_weight(sample_weight, table)
    training_set = FitInput(table, target, weight, to_host(X), device, views)
    categories: dict[int, list[Any]] = {}
    if "table" in rules.kinds:
        entries = estimator.read_kernels(training_set.table, views)
        categories = known_categories(entries, training_set)
    return training_set, replace(rules, columns_of_tables=columns_of_tables, categories=categories)


def read_training_table(
    X: MatrixLike,
    y: TargetLike,
    targets: TargetRules,
    estimator: Estimator,
    views: dict[str, list[int]] | None = None,
) -> tuple[MatrixLike, TargetLike, InputRules]:
    """Return a table of training samples and its targets as arrays, and the rules of both.

    Where the table is made of several, `views` are the column numbers of each.
    """
    rules = input_rules(X, estimator)
    X, y = to_host(X), to_host(y)
    if rules.is_in_memory:
        X = _in_memory(X, type(estimator).__name__)
    if is_streamed(X) and rules.approximation is not None:
        rows = _open_rows(X)
        names = None if rows.names is None else np.array(rows.names, dtype=object)
        target = _targets_of_rows(y, rows, targets) if targets.are_read else None
        return rows, target, replace(rules, n_columns=int(rows.shape[1]), column_names=names)
    _refuse_paths(X)

    # 1. Dates are not read as numbers.
    times = time_columns(X)
    if times:
        entries = estimator.read_kernels(X, views)
        rules = replace(rules, date_columns=tuple(columns_without_numbers(entries, X)))
    _refuse_dates(X, times, rules)

    # 2. Arrays, by scikit-learn's check, which sets what it sees of the columns: here on a copy.
    if targets.are_read:
        y = read_targets(y, targets.are_numbers)
    sparse_names = _names_of_sparse_table(X)
    X, form = _array_form(X, sparse_names, rules)
    estimator_copy = copy(estimator)
    table, target = _check_arrays(X, y, form, targets, estimator_copy, sparse_names, reset=True)
    names = (
        getattr(estimator_copy, "feature_names_in_", None) if sparse_names is None else sparse_names
    )
    rules = replace(rules, n_columns=estimator_copy.n_features_in_, column_names=names)

    # 3. Views that samples lack.
    _refuse_gaps_in_features(table, rules)
    if sparse_names is not None and (several_tables(X) or X.lacking):
        specs = lay_specs(estimator.read_kernels(X, views), X)
        gap_columns, kernels_across = first_columns(specs, X.tables)
        rules = replace(rules, gap_columns=gap_columns, kernels_across=kernels_across)
        table = _with_marked_gaps(table, X.lacking, rules)
    return table, target, rules


# Targets and weights of a fit ---------------------------------------------------------------------


def _refuse_several_labels(y: TargetLike, estimator: str) -> None:
    """Raise if samples have several labels, or a target of several columns."""
    is_ragged = isinstance(y, list | tuple) and len(y) > 0 and isinstance(y[0], list | tuple | set)
    widths = {len(labels) for labels in y} if is_ragged else set(getattr(y, "shape", ())[1:2])
    if len(widths) > 1 or max(widths, default=1) > 1:
        raise ValueError(
            "y should be a 1d array, one class per sample, and has several labels per sample:"
            " DiscriminantMKLClassifier takes a matrix of zeros and ones (MultiLabelBinarizer"
            f" makes one of lists), and sklearn.multioutput.MultiOutputClassifier({estimator}())"
            " fits one model per column."
        )


def read_targets(y: TargetLike, is_number: bool) -> TargetLike:
    """Return targets as an array, those that are to be numbers as numbers, or raise if a sample has
    none.

    Parameters
    ----------
    y : list, array, Series or data frame
        Targets. Those whose form is wrong in another way are returned as they are; scikit-learn's
        check refuses them.
    is_number : bool
        Whether targets are numbers, not classes.
    """
    values = y
    if is_pandas(y) or is_polars(y):
        values = np.asarray(read_frame(y))
    elif is_series(y):
        values = series_values(y)
    elif isinstance(y, list | tuple):
        with suppress(ValueError):  # rows of different lengths
            values = np.array(y, dtype=object)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in ("f", "O"):
        return y
    empty = is_missing(values)
    if empty.any():
        rows = np.unique(np.argwhere(empty)[:, 0])
        raise ValueError(
            f"Input y contains NaN: {len(rows)} of {len(values)} samples have no target, the first"
            f" of them sample {rows[0]}; leave them out of X and y."
        )
    if is_number and values.dtype.kind == "O":
        with suppress(TypeError, ValueError):  # text, which scikit-learn's check refuses
            return values.astype(np.float64)
    return y if isinstance(y, list | tuple) else values


def _targets_of_rows(y: TargetLike, rows: RowSource, targets: TargetRules) -> TargetLike:
    """Return the targets of samples that stay where they are, as an array."""
    if y is None:
        raise ValueError("y is None: give one target per sample.")
    target = gathered([y])[0] if is_dask(y) else y
    target = read_targets(target, targets.are_numbers)
    target = np.asarray(target) if targets.may_be_several else column_or_1d(target, warn=True)
    check_consistent_length(rows, target)
    if targets.are_numbers:
        return check_array(target, ensure_2d=False, input_name="y", dtype=np.float64)
    is_float = target.dtype.kind == "f"
    return check_array(
        target, ensure_2d=False, input_name="y", dtype=None, ensure_all_finite=is_float
    )


def read_sample_weight(sample_weight: SampleWeight, X: MatrixLike) -> Array:
    """Return the weights of samples, or raise saying what is wrong."""
    sample_weight = to_host(sample_weight)
    try:
        given = np.asarray(sample_weight)
        if given.dtype.kind == "c":
            raise TypeError("complex numbers")
        given = given.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight={reprlib.repr(sample_weight)}: give one number per sample, or None."
        ) from None
    if given.size > 0 and not given.any():
        raise ValueError("sample_weight is zero everywhere: at least one sample must count.")
    return np.asarray(
        _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    )


# New samples --------------------------------------------------------------------------------------


def read_new_samples(X: MatrixLike, rules: InputRules, estimator: Estimator) -> MatrixLike:
    """Return new samples as the fitted kernels read them.

    Samples that are not like those of the fit raise a ValueError.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame, rows on a disk, or several tables
        Samples. Where all kernels are given matrices, also blocks of similarities to their rows.
    rules : InputRules
        As `read_samples` returned them for the training set.
    estimator : KernelEstimator
        Whose class errors name. scikit-learn's check reads its `n_features_in_` and
        `feature_names_in_`.
    """
    # 1. Blocks of similarities, several tables, and rows on a disk.
    if rules.is_in_memory:
        X = _in_memory(X, type(estimator).__name__)
    if rules.matrix_lengths and not _has_widths_of_fit(X, rules):
        new_rows = read_new_rows(X, rules.matrix_lengths)
        if new_rows is not None:
            return new_rows
    if not isinstance(X, np.ndarray):
        refuse_annotated(X)
        if are_tables(X) and not _LISTED_KINDS.intersection(rules.kinds):
            X = stack_tables(X, rules.columns_of_tables).X
    X = to_host(X)
    if is_streamed(X) and rules.approximation is not None:
        rows = _open_rows(X)
        _check_n_features(estimator, rows, reset=False)
        return rows
    _refuse_paths(X)

    # 2. An array with the columns of the training samples.
    _refuse_dates(X, time_columns(X), rules)
    sparse_names = _names_of_sparse_table(X)
    X, form = _array_form(X, sparse_names, rules)
    table, _ = _check_arrays(X, None, form, NO_TARGETS, estimator, sparse_names, reset=False)
    if sparse_names is not None:
        _check_names(sparse_names, rules)

    # 3. Views that samples lack, categories that the training samples lack, and their scale.
    _refuse_gaps_in_features(table, rules)
    if rules.categories:
        labels: Any = range(rules.n_columns) if rules.column_names is None else rules.column_names
        warn_of_unseen(rules.categories, table, labels)
    if sparse_names is not None and (several_tables(X) or X.lacking):
        table = _with_marked_gaps(table, X.lacking, rules)
    return table if rules.standardizer is None else rules.standardizer(table)


def _has_widths_of_fit(X: MatrixLike, rules: InputRules) -> bool:
    """Whether samples have as many columns as those of the fit, in every table.

    Where kernels are given matrices, samples with these columns are row numbers.
    """
    if not are_tables(X) or isinstance(X, StackedViews):
        return np.shape(X)[1:] == (rules.n_columns,)
    columns_of_tables = rules.columns_of_tables
    if not isinstance(X, Mapping):
        X = {f"view{place}": table for place, table in enumerate(X)}
    return bool(columns_of_tables) and all(
        name in columns_of_tables and np.shape(table)[1:] == (len(columns_of_tables[name]),)
        for name, table in X.items()
    )


def _check_names(names: NDArray[np.object_], rules: InputRules) -> None:
    """Raise if the names of the columns of a sparse table are not those of the fit."""
    if rules.column_names is None or list(rules.column_names) == list(names):
        return
    pairs = zip(rules.column_names, names, strict=True)
    j = next(j for j, (name_at_fit, name) in enumerate(pairs) if name_at_fit != name)
    raise ValueError(
        f"X: column {j} is {names[j]!r}, but {rules.column_names[j]!r} in the training set; "
        "give the columns in the order of the training set, as views_from_anndata(..., "
        "genes=model.feature_names_in_) does."
    )


# Steps of both ------------------------------------------------------------------------------------


def _in_memory(X: MatrixLike, estimator: str) -> MatrixLike:
    """Return a memory map as an array; raise if samples are other rows on a disk."""
    if isinstance(X, np.memmap):
        return np.asarray(X)
    if is_streamed(X):
        raise ValueError(f"X={X!r}: {estimator} reads samples in memory; give an array.")
    return X


def _refuse_paths(X: MatrixLike) -> None:
    """Raise if samples are rows on a disk; a memory map can be read like an array."""
    if is_streamed(X) and not isinstance(X, np.memmap):
        raise ValueError(
            f"X={X!r}: samples are read from files with approximation='nystroem' or 'fourier' only;"
            " load them, or choose one of these."
        )


def _open_rows(X: MatrixLike) -> RowSource:
    """Return samples that stay where they are, their form checked.

    What blocks of rows hold is checked as they are read.
    """
    rows = open_rows(X)
    if isinstance(rows, ArrayRows) and rows.X.ndim != 2:
        raise ValueError(
            f"X has {rows.X.ndim} dimensions: give samples in rows and features in columns."
        )
    if isinstance(rows, ArrayRows) and rows.X.dtype.kind not in "biuf":
        raise ValueError(f"X has the dtype {rows.X.dtype}: a memory map must hold real numbers.")
    return rows


def _refuse_dates(X: MatrixLike, times: dict[int, str], rules: InputRules) -> None:
    """Raise if a column that is read as numbers holds dates, time spans, periods or intervals."""
    refuse_times(X, {j: kind for j, kind in times.items() if j not in rules.date_columns})


def _names_of_sparse_table(X: MatrixLike) -> NDArray[np.object_] | None:
    """Return the names of the columns of a sparse table, None of other samples.

    scikit-learn reads the names of data frames, and none of sparse tables.
    """
    names: NDArray[np.object_] | None = getattr(X, "columns", None) if issparse(X) else None
    return names


@dataclass(frozen=True)
class ArrayForm:
    """What scikit-learn's check makes of samples and allows; fields are named as its parameters."""

    dtype: Any
    accept_sparse: str | bool = False
    ensure_all_finite: bool | str = True


#: Samples of which each kernel checks its own.
_ANYTHING = ArrayForm(dtype=None, ensure_all_finite=False)


def _array_form(
    X: MatrixLike, sparse_names: NDArray[np.object_] | None, rules: InputRules
) -> tuple[MatrixLike, ArrayForm]:
    """Return samples as a table of rows and columns, and the form that their array is to have."""
    may_hold_text = hasattr(X, "columns") or getattr(X, "dtype", None) == np.dtype(object)
    reads_some_columns = rules.all_name_columns and sparse_names is None and may_hold_text
    if rules.kinds != ("numbers",) or reads_some_columns:
        # Row numbers, sequences, graphs, tables with columns that no kernel reads.
        return _table_of_any_kind(X, rules), _ANYTHING
    is_kept_sparse = is_sparse(X)
    if is_kept_sparse and rules.dense_kernel is not None and not issparse(X):
        # A frame keeps its columns sparse to save memory; each of them may be dense as well.
        is_kept_sparse = False
    if not is_kept_sparse:
        X = read_frame(X)
    if issparse(X) and rules.dense_kernel is not None:
        raise TypeError(
            f"X is sparse, which kernel {rules.dense_kernel!r} does not read: give X.toarray(), "
            "or kernels that do, such as Linear, Polynomial and Gaussian."
        )
    # Of sparse samples, those with names have tables that a row can lack. Gates read means of
    # dense ones.
    has_gaps = not is_kept_sparse or (sparse_names is not None and not rules.has_gated_views)
    accept_sparse = "csr" if rules.dense_kernel is None else False
    ensure_all_finite = "allow-nan" if rules.may_lack_views and has_gaps else True
    return X, ArrayForm((np.float64, np.float32), accept_sparse, ensure_all_finite)


def _table_of_any_kind(X: MatrixLike, rules: InputRules) -> MatrixLike:
    """Return samples that are not all numbers as a table of rows and columns."""
    table = read_frame(X)
    if "graphs" in rules.kinds:
        table = graph_table(X)
    elif "objects" in rules.kinds:
        table = object_table(X)
    # Row numbers and strings may come as a plain list: one column then.
    if not hasattr(table, "shape"):
        table = np.asarray(table, dtype=object)
    if len(table.shape) == 1:
        table = np.asarray(table).reshape(-1, 1)
    return table


def _check_arrays(
    X: MatrixLike,
    y: TargetLike,
    form: ArrayForm,
    targets: TargetRules,
    estimator: Estimator,
    sparse_names: NDArray[np.object_] | None,
    *,
    reset: bool,
) -> tuple[MatrixLike, TargetLike]:
    """Return samples and targets as arrays, by scikit-learn's check.

    With `reset`, scikit-learn sets the number of the columns and their names on the estimator that
    it is given; otherwise it compares them with those that the estimator has.
    """
    options: Settings = {
        "reset": reset,
        "dtype": form.dtype,
        "accept_sparse": form.accept_sparse,
        "ensure_all_finite": form.ensure_all_finite,
        # Rows one after the other, as data frames do not have them: sums then round alike, and
        # fits are the same.
        "order": "C",
    }
    context = nullcontext() if sparse_names is None else warnings.catch_warnings()
    with refuse_text(X), context:
        if sparse_names is not None:
            # scikit-learn reads names of data frames only.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
        if not targets.are_read:
            return validate_data(estimator, X, **options), None
        several = {"y_numeric": targets.are_numbers, "multi_output": targets.may_be_several}
        table, target = validate_data(estimator, X, y, **several, **options)
        return table, target


def _refuse_gaps_in_features(X: MatrixLike, rules: InputRules) -> None:
    """Raise if samples lack something where kernels are features."""
    if rules.approximation is None or not rules.may_lack_views:
        return
    values = X.data if issparse(X) else X
    if values.dtype.kind == "f" and np.isnan(values.sum()) and np.isnan(values).any():
        raise ValueError(
            f"approximation={rules.approximation!r}: X contains NaN, and missing views need exact "
            "kernels; use approximation=None, or fill the cells."
        )


def _with_marked_gaps(X: MatrixLike, lacking: Mapping[str, Mask], rules: InputRules) -> MatrixLike:
    """Return sparse samples with NaN in every view of the tables that they lack."""
    for table in lacking:
        if table in rules.kernels_across:
            raise ValueError(
                f"kernel {rules.kernels_across[table]!r} reads columns of several tables, of which "
                f"samples lack {table!r}: give each table kernels of its own."
            )
    return mark_lacking(X, lacking, rules.gap_columns)
