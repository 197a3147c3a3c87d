"""How estimators read samples and targets: rules of what is allowed, and checked arrays.

`read_samples` reads the training set of a fit and returns `InputRules` with it. `read_new_samples`
reads the samples of a prediction by these rules.
"""

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

#: Kinds of samples that may come as a list with one object per sample. An object may be a matrix,
#: so that such a list is not taken for a list of tables.
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
    """What samples a fitted estimator takes.

    The rules follow from the parameters at the fit and from the training samples. Predictions read
    these rules and not the parameters, which may have changed since the fit.

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
        Whether samples may lack views. Otherwise the kernels refuse NaN.
    has_gated_views : bool
        Whether a view that a sample lacks has the gate zero. Gates read the mean of a column in
        place of its NaN, which needs dense samples.
    n_columns : int
        The number of columns of the training samples.
    column_names : ndarray of str, or None
        Their names.
    columns_of_tables : dict of list
        The names of the columns of each table, by the name of the table; empty if the training
        samples are one table.
    date_columns : tuple of int
        Numbers of the columns in which new samples may hold dates, since no kernel reads them as
        numbers.
    categories : dict of list
        The categories of the training samples in every column that a kernel compares as
        categories, by the number of the column.
    gap_columns : dict of list
        The columns that mark, by NaN, that a sparse sample lacks a table, by the name of the table.
    kernels_across : dict of str
        A kernel that reads columns of several tables, by the name of each of these tables.
    standardizer : Standardizer or None
        What puts the columns of numbers on one scale; None if they are read as they are.
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
    """Return the rules of samples that follow from the parameters of an estimator.

    X are the training samples, on which default kernels may depend. Fields that are learned from
    the training samples keep their defaults.
    """
    entries = estimator.read_kernels(X)
    names = [*(entry.name for entry in entries), *estimator.further_kernels()]
    accepts_sparse = estimator.kernel_traits("accepts_sparse", entries)
    kernels = zip(names, accepts_sparse, strict=True)
    dense_kernel = next((name for name, accepts in kernels if not accepts), None)
    kinds = set(estimator.kernel_traits("input_kind", entries))
    matrix_lengths: dict[str, int] = {}
    if not estimator.reads_samples:
        # The values of the kernels are enough, and new samples may be given as similarities.
        matrix_lengths = _lengths_of_matrices(entries)
    return InputRules(
        kinds=tuple(sorted(kinds)),
        dense_kernel=dense_kernel,
        all_name_columns=all(entry.columns is not None for entry in entries),
        matrix_lengths=matrix_lengths,
        approximation=estimator.approximation,
        is_in_memory=estimator.reads_in_memory,
        may_lack_views=estimator.missing is not None,
        has_gated_views=estimator.missing == GATED,
    )


def _lengths_of_matrices(entries: Sequence[Entry]) -> dict[str, int]:
    """Return how many rows the matrix of each kernel has, by the name of the kernel.

    The dict is empty unless all kernels are given as matrices.
    """
    if not all(isinstance(entry.kernel, Precomputed) for entry in entries):
        return {}
    return {entry.name: length_of(entry.kernel.K) for entry in entries}


def columns_without_numbers(entries: Sequence[Entry], X: MatrixLike) -> list[int]:
    """Return the numbers of the columns of X that no kernel reads as numbers."""
    n_columns = X.shape[-1]
    columns_of_numbers: set[int] = set()
    for spec in lay_specs(entries, X):
        if spec.kernel.input_kind != "numbers":
            continue
        if spec.columns is None:
            columns_of_numbers.update(range(n_columns))
        else:
            columns_of_numbers.update(spec.columns.tolist())
    return [j for j in range(n_columns) if j not in columns_of_numbers]


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

    Returns
    -------
    training_set : FitInput
        The samples as one table, the targets, the weights of samples, and the device.
    rules : InputRules
    """
    # 1. Several tables become one. Arrays need no such step: an array is one table, and its rows
    # have no names that could differ from those of the targets.
    columns_of_tables: dict[str, list[Any]] = {}
    views = None
    are_arrays = all(isinstance(rows, np.ndarray | None) for rows in (X, y, sample_weight))
    if not are_arrays:
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

    # 3. The weights of samples, and the categories that those of new samples are compared with.
    weight = None
    if sample_weight is not None:
        weight = read_sample_weight(sample_weight, table)
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
    """Return a table of training samples as an array, its targets, and the rules of new samples.

    Rows on a disk are returned as a `RowSource`, which reads them in blocks.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame or rows on a disk
        Samples in one table.
    y : array-like or None
        Targets.
    targets : TargetRules
        What targets may be.
    estimator : KernelEstimator
        Its parameters and kernels say what samples may be. It is not changed.
    views : dict of list, optional
        The column numbers of each of several tables that X was made of.
    """
    rules = input_rules(X, estimator)
    X, y = to_host(X), to_host(y)
    if rules.is_in_memory:
        X = _in_memory(X, type(estimator).__name__)
    if is_streamed(X) and rules.approximation is not None:
        rows = _open_rows(X)
        names = None
        if rows.names is not None:
            names = np.array(rows.names, dtype=object)
        target = None
        if targets.are_read:
            target = _targets_of_rows(y, rows, targets)
        return rows, target, replace(rules, n_columns=int(rows.shape[1]), column_names=names)
    _refuse_paths(X)

    # 1. Dates may stand only in columns that no kernel reads as numbers.
    times = time_columns(X)
    if times:
        entries = estimator.read_kernels(X, views)
        rules = replace(rules, date_columns=tuple(columns_without_numbers(entries, X)))
    _refuse_dates(X, times, rules)

    # 2. scikit-learn's check makes arrays. It sets the number of columns and their names on the
    # estimator that it is given, which is a copy here.
    if targets.are_read:
        y = read_targets(y, targets.are_numbers)
    sparse_names = _names_of_sparse_table(X)
    X, form = _array_form(X, sparse_names, rules)
    estimator_copy = copy(estimator)
    table, target = _check_arrays(X, y, form, targets, estimator_copy, sparse_names, reset=True)
    names = sparse_names
    if names is None:
        names = getattr(estimator_copy, "feature_names_in_", None)
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
    is_list = isinstance(y, list | tuple) and len(y) > 0
    if is_list and isinstance(y[0], list | tuple | set):
        numbers_of_labels = {len(labels) for labels in y}
    else:
        # An array of shape (n_samples,) has no second length, and one label per sample.
        numbers_of_labels = set(getattr(y, "shape", ())[1:2])
    has_unequal_numbers = len(numbers_of_labels) > 1
    if has_unequal_numbers or max(numbers_of_labels, default=1) > 1:
        raise ValueError(
            "y should be a 1d array, one class per sample, and has several labels per sample:"
            " DiscriminantMKLClassifier takes a matrix of zeros and ones (MultiLabelBinarizer"
            f" makes one of lists), and sklearn.multioutput.MultiOutputClassifier({estimator}())"
            " fits one model per column."
        )


def read_targets(y: TargetLike, is_number: bool) -> TargetLike:
    """Return targets as an array, or raise if a sample has none.

    Parameters
    ----------
    y : list, array, Series or data frame
        Targets. Lists of classes, targets that cannot be missing (whole numbers, text of a fixed
        length), and targets of a wrong form are returned as they are. scikit-learn's check, which
        follows, reads or refuses them.
    is_number : bool
        Whether targets are numbers, not classes. Numbers among objects become floats.
    """
    # 1. The values, of which lists are read to look for empty ones.
    values = y
    if is_pandas(y) or is_polars(y):
        values = np.asarray(read_frame(y))
    elif is_series(y):
        values = series_values(y)
    elif isinstance(y, list | tuple):
        # Rows of different lengths are refused later.
        with suppress(ValueError):
            values = np.array(y, dtype=object)
    may_be_empty = isinstance(values, np.ndarray) and values.dtype.kind in ("f", "O")
    if not may_be_empty:
        return y

    # 2. Every sample must have a target.
    empty = is_missing(values)
    if empty.any():
        rows = np.unique(np.argwhere(empty)[:, 0])
        raise ValueError(
            f"Input y contains NaN: {len(rows)} of {len(values)} samples have no target, the first"
            f" of them sample {rows[0]}; leave them out of X and y."
        )

    # 3. Objects become numbers.
    if is_number and values.dtype.kind == "O":
        # Text stays, and is refused by scikit-learn's check.
        with suppress(TypeError, ValueError):
            return values.astype(np.float64)
    if isinstance(y, list | tuple):
        return y
    return values


def _targets_of_rows(y: TargetLike, rows: RowSource, targets: TargetRules) -> TargetLike:
    """Return the targets of samples on a disk as an array."""
    if y is None:
        raise ValueError("y is None: give one target per sample.")
    target = y
    if is_dask(y):
        target = gathered([y])[0]
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
    """Return the weights of samples as an array of shape (n_samples,), or raise.

    Parameters
    ----------
    sample_weight : array-like
        Weights: not negative, and at least one of them above zero.
    X : array-like of shape (n_samples, n_features)
        The samples, of which the number is read.
    """
    sample_weight = to_host(sample_weight)
    try:
        weights = np.asarray(sample_weight)
        if weights.dtype.kind == "c":
            raise TypeError("complex numbers")
        weights = weights.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight={reprlib.repr(sample_weight)}: give one number per sample, or None."
        ) from None
    if weights.size > 0 and not weights.any():
        raise ValueError("sample_weight is zero everywhere: at least one sample must count.")
    return np.asarray(
        _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    )


# New samples --------------------------------------------------------------------------------------


def read_new_samples(X: MatrixLike, rules: InputRules, estimator: Estimator) -> MatrixLike:
    """Return new samples as the fitted kernels read them.

    Samples that differ from those of the fit in form, columns or names raise a ValueError. They are
    returned as an array or a sparse matrix on the scale of the fit, as a `RowSource` where they are
    on a disk, or as rows of similarities.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame, rows on a disk, or several tables
        Samples. Where all kernels are given matrices, also blocks of similarities to their rows.
    rules : InputRules
        As `read_samples` returned them for the training set.
    estimator : KernelEstimator
        A fitted estimator. Errors name its class. scikit-learn's check reads its `n_features_in_`
        and `feature_names_in_`.
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

    # 3. Views that samples lack, categories that the training samples lack, and the scale.
    _refuse_gaps_in_features(table, rules)
    if rules.categories:
        _warn_of_unseen_categories(table, rules)
    if sparse_names is not None and (several_tables(X) or X.lacking):
        table = _with_marked_gaps(table, X.lacking, rules)
    if rules.standardizer is None:
        return table
    return rules.standardizer(table)


def _has_widths_of_fit(X: MatrixLike, rules: InputRules) -> bool:
    """Whether samples have as many columns as those of the fit, in every table.

    Where kernels are given matrices, new samples with as many columns as at the fit are row
    numbers, as they were at the fit. Others are rows of similarities.
    """
    if not are_tables(X) or isinstance(X, StackedViews):
        return np.shape(X)[1:] == (rules.n_columns,)
    columns_of_tables = rules.columns_of_tables
    if not columns_of_tables:
        return False
    tables = X
    if not isinstance(X, Mapping):
        # The names that `stack_tables` gives the tables of a list.
        tables = {f"view{number}": table for number, table in enumerate(X)}
    for name, table in tables.items():
        if name not in columns_of_tables:
            return False
        if np.shape(table)[1:] != (len(columns_of_tables[name]),):
            return False
    return True


def _warn_of_unseen_categories(table: MatrixLike, rules: InputRules) -> None:
    """Warn of categories that no training sample has, by the names of their columns."""
    labels: Any = range(rules.n_columns)
    if rules.column_names is not None:
        labels = rules.column_names
    warn_of_unseen(rules.categories, table, labels)


def _check_names(names: NDArray[np.object_], rules: InputRules) -> None:
    """Raise if the names of the columns of a sparse table are not those of the fit."""
    if rules.column_names is None or list(rules.column_names) == list(names):
        return
    pairs = enumerate(zip(rules.column_names, names, strict=True))
    # The first column with another name.
    j = next(j for j, (name_at_fit, name) in pairs if name_at_fit != name)
    raise ValueError(
        f"X: column {j} is {names[j]!r}, but {rules.column_names[j]!r} in the training set; "
        "give the columns in the order of the training set, as views_from_anndata(..., "
        "genes=model.feature_names_in_) does."
    )


# Steps for training samples and for new samples ---------------------------------------------------


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
    """Return samples on a disk as rows that are read in blocks, or raise if their form is wrong.

    The values are checked when a block is read.
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
    """Raise if a column that is read as numbers holds dates, time spans, periods or intervals.

    `times` are the kinds of all such columns, by the number of the column.
    """
    refuse_times(X, {j: kind for j, kind in times.items() if j not in rules.date_columns})


def _names_of_sparse_table(X: MatrixLike) -> NDArray[np.object_] | None:
    """Return the names of the columns of a sparse table; None if it has none, or X is not sparse.

    scikit-learn reads the names of data frames only, not of sparse tables.
    """
    if not issparse(X):
        return None
    names: NDArray[np.object_] | None = getattr(X, "columns", None)
    return names


@dataclass(frozen=True)
class ArrayForm:
    """The form of an array of samples, for scikit-learn's check.

    Attributes
    ----------
    dtype : type, tuple of types or None
        Its type, or the types that stay; None leaves any type.
    accept_sparse : str or bool
        The format of sparse samples; False refuses them.
    ensure_all_finite : bool or str
        Whether infinite values and NaN are refused; ``"allow-nan"`` refuses infinite values only.
    """

    dtype: Any
    accept_sparse: str | bool = False
    ensure_all_finite: bool | str = True


#: The form of samples that scikit-learn's check leaves as they are: each kernel checks what it
#: reads.
_ANYTHING = ArrayForm(dtype=None, ensure_all_finite=False)


def _array_form(
    X: MatrixLike, sparse_names: NDArray[np.object_] | None, rules: InputRules
) -> tuple[MatrixLike, ArrayForm]:
    """Return samples as a table of rows and columns, and the form that their array is to have.

    `sparse_names` are the names of the columns of a sparse table.
    """
    # 1. Row numbers, sequences, graphs, and tables with columns that no kernel reads.
    may_hold_text = hasattr(X, "columns") or getattr(X, "dtype", None) == np.dtype(object)
    may_have_unread_text = rules.all_name_columns and sparse_names is None and may_hold_text
    if rules.kinds != ("numbers",) or may_have_unread_text:
        return _table_of_any_kind(X, rules), _ANYTHING

    # 2. Numbers, which stay sparse if all kernels read sparse samples.
    accept_sparse: str | bool = "csr"
    if rules.dense_kernel is not None:
        accept_sparse = False
        if issparse(X):
            raise TypeError(
                f"X is sparse, which kernel {rules.dense_kernel!r} does not read: give X.toarray(),"
                " or kernels that do, such as Linear, Polynomial and Gaussian."
            )
    # A data frame of sparse columns may become dense: its columns are sparse to save memory only.
    stays_sparse = rules.dense_kernel is None and is_sparse(X)
    if not stays_sparse:
        X = read_frame(X)

    # 3. NaN may mark a view that a sample lacks. In sparse samples, only those with names have
    # tables that a sample can lack, and gates need the means of dense columns.
    can_mark_views = True
    if stays_sparse:
        can_mark_views = sparse_names is not None and not rules.has_gated_views
    ensure_all_finite: str | bool = True
    if rules.may_lack_views and can_mark_views:
        ensure_all_finite = "allow-nan"
    return X, ArrayForm((np.float64, np.float32), accept_sparse, ensure_all_finite)


def _table_of_any_kind(X: MatrixLike, rules: InputRules) -> MatrixLike:
    """Return samples that are not all numbers as a table of rows and columns.

    Graphs and objects have one column.
    """
    table = read_frame(X)
    if "graphs" in rules.kinds:
        table = graph_table(X)
    elif "objects" in rules.kinds:
        table = object_table(X)
    # Row numbers and strings may come as a list, which has one column.
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

    If `reset`, scikit-learn sets the number of the columns and their names on the estimator;
    otherwise it compares them with those that the estimator has, and raises if they differ.
    """
    options: Settings = {
        "reset": reset,
        "dtype": form.dtype,
        "accept_sparse": form.accept_sparse,
        "ensure_all_finite": form.ensure_all_finite,
        # Data frames store column after column. All samples are stored row after row, so that sums
        # are rounded in the same way and fits are the same for both.
        "order": "C",
    }
    context = nullcontext() if sparse_names is None else warnings.catch_warnings()
    with refuse_text(X), context:
        if sparse_names is not None:
            # scikit-learn does not see the names of sparse tables, and would warn.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
        if not targets.are_read:
            return validate_data(estimator, X, **options), None
        several = {"y_numeric": targets.are_numbers, "multi_output": targets.may_be_several}
        table, target = validate_data(estimator, X, y, **several, **options)
        return table, target


def _refuse_gaps_in_features(X: MatrixLike, rules: InputRules) -> None:
    """Raise if samples contain NaN and kernels are approximated by features."""
    if rules.approximation is None or not rules.may_lack_views:
        return
    values = X
    if issparse(X):
        values = X.data
    if values.dtype.kind != "f":
        return
    # The sum needs no array of its own: it says of most samples that they contain no NaN.
    if np.isnan(values.sum()) and np.isnan(values).any():
        raise ValueError(
            f"approximation={rules.approximation!r}: X contains NaN, and missing views need exact "
            "kernels; use approximation=None, or fill the cells."
        )


def _with_marked_gaps(X: MatrixLike, lacking: Mapping[str, Mask], rules: InputRules) -> MatrixLike:
    """Return sparse samples with NaN in every view of the tables that they lack.

    `lacking` says which samples lack a table, by the name of the table.
    """
    for table in lacking:
        if table in rules.kernels_across:
            raise ValueError(
                f"kernel {rules.kernels_across[table]!r} reads columns of several tables, of which "
                f"samples lack {table!r}: give each table kernels of its own."
            )
    return mark_lacking(X, lacking, rules.gap_columns)
