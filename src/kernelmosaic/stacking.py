"""Tables of several views: views side by side as one table, with the columns and row names of each.

A *view table* holds the data of one view: an array, a sparse array or a data frame. `stack_views`
and `stack_tables` put view tables side by side; the result, `StackedViews`, knows which columns
belong to which view. Rows are matched by position, or by their names where they have any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from kernelmosaic._typing import AnyArray, Mask, MatrixLike, Settings, TargetLike

__all__ = ["SparseTable", "StackedViews", "stack_views"]

#: Stands between the name of a view and that of its column, as in scikit-learn's unions of columns.
SEPARATOR = "__"


class StackedViews(NamedTuple):
    """A table of several views, and the columns of each view in it.

    Attributes
    ----------
    X : ndarray, sparse array or data frame of shape (n_samples, n_features)
        The views side by side.
    views : dict of list
        Columns by the name of their view: names for a data frame, else numbers.
    numbers : dict of list
        The same columns by number, for any table. It is not an item of the tuple.
    """

    X: MatrixLike
    views: dict[str, list[Any]]

    @property
    def numbers(self) -> dict[str, list[int]]:
        """The columns of each view by their numbers.

        Unlike names, they also apply to the array that a scaler returns for a data frame.
        """
        numbers = {}
        first = 0
        for name, columns in self.views.items():
            numbers[name] = list(range(first, first + len(columns)))
            first += len(columns)
        return numbers

    # Splitters and searches of scikit-learn read `shape`, `iloc` and `take` of a table of samples.
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return tuple(self.X.shape)

    @property
    def iloc(self) -> Any:
        """Indexer of rows by position: ``stacked.iloc[rows]``."""
        return _RowIndexer(self)

    def take(self, rows: Any, axis: int = 0) -> StackedViews:
        """Return some of the samples, with the same views."""
        return StackedViews(_safe_indexing(self.X, rows), self.views)


class _RowIndexer(NamedTuple):
    """The indexer that `StackedViews.iloc` returns.

    ``indexer[rows]`` are the samples of these rows.
    """

    stacked: StackedViews

    def __getitem__(self, rows: Any) -> Any:
        return self.stacked.take(rows)


class SparseTable(sparse.csr_array):  # type: ignore[misc]
    """A sparse array with the names of its columns and, where they are known, of its rows.

    Kernels find their columns by these names. Selected rows and columns keep their names; results
    of arithmetic have none. A row with NaN in a column lacks the whole table of that column, the
    part of its name before ``__``; estimators treat it as a missing view.

    Parameters
    ----------
    *arguments : any
        Arguments of SciPy's :class:`~scipy.sparse.csr_array`.
    columns : sequence of str, optional
        The names of the columns.
    index : pandas.Index, optional
        The names of the rows.
    **options : any
        As in SciPy.

    Examples
    --------
    >>> from kernelmosaic.stacking import SparseTable
    >>> counts = [[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]
    >>> X = SparseTable(counts, columns=["CD4", "CD8A", "MKI67"])
    >>> X[:, [0, 2]].columns.tolist(), X[1:].shape
    (['CD4', 'MKI67'], (1, 3))
    """

    columns: NDArray[np.object_]
    index: Any

    def __init__(
        self, *arguments: Any, columns: Any = None, index: Any = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        if columns is not None:
            self.columns = np.asarray(columns, dtype=object)
        if index is not None:
            self.index = index

    @cached_property
    def places(self) -> dict[Any, int]:
        """The number of every column by its name."""
        return {name: j for j, name in enumerate(self.columns)}

    @cached_property
    def tables(self) -> list[str]:
        """The table of every column: the part of its name before ``__``, or an empty text."""
        table_of_column = []
        for name in map(str, self.columns):
            table, separator, _ = name.partition(SEPARATOR)
            table_of_column.append(table if separator else "")
        return table_of_column

    @cached_property
    def lacking(self) -> dict[str, Mask]:
        """Masks of the rows that lack a table, by the name of the table.

        Tables that no row lacks have no entry.
        """
        entries = np.flatnonzero(np.isnan(self.data))
        rows = np.searchsorted(self.indptr, entries, side="right") - 1
        columns = self.indices[entries]
        lacking_rows: dict[str, Mask] = {}
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            table = self.tables[column]
            if table not in lacking_rows:
                lacking_rows[table] = np.zeros(self.shape[0], dtype=bool)
            lacking_rows[table][row] = True
        return lacking_rows

    def __getitem__(self, key: Any) -> Any:
        selected = super().__getitem__(key)
        if not isinstance(selected, SparseTable) or selected.ndim != 2:
            return selected

        # 1. The names of the selected rows and columns. X[rows] selects all columns.
        keys = (*key, ...) if isinstance(key, tuple) else (key, ...)
        selections = []
        for selection in keys:
            if selection is ...:
                selection = slice(None)
            elif not isinstance(selection, slice):
                selection = np.ravel(selection)
            selections.append(selection)
        for attribute, selection in zip(("index", "columns"), selections, strict=False):
            if hasattr(self, attribute):
                setattr(selected, attribute, getattr(self, attribute)[selection])

        # 2. NaN in one column marks a row that lacks its table. That column may not be selected, so
        # the first selected column of the table is marked.
        has_fewer_columns = selected.shape[1] < self.shape[1] and hasattr(self, "columns")
        if not has_fewer_columns or not self.lacking:
            return selected
        first_column: dict[str, list[int]] = {}
        for j, table in enumerate(selected.tables):
            first_column.setdefault(table, [j])
        lacking_rows = {table: rows[selections[0]] for table, rows in self.lacking.items()}
        marked = mark_lacking(selected, lacking_rows, first_column)
        index = getattr(selected, "index", None)
        return SparseTable(marked, columns=selected.columns, index=index)

    def reindex(self, index: Any) -> SparseTable:
        """Return the rows of these names.

        A row that the table does not have is empty but for NaN in its first column: NaN marks a
        sample that lacks the table.
        """
        if self.index.equals(index):
            return self
        positions = self.index.get_indexer(index)
        # pandas gives the position −1 to a name that it does not find: the empty row is put last.
        empty_row = sparse.csr_array(
            (1, self.shape[1]), dtype=np.result_type(self.dtype, np.float32)
        )
        rows = sparse.vstack([sparse.csr_array(self), empty_row], format="csr")[positions]
        first_column = range(min(1, self.shape[1]))
        rows = mark_lacking(rows, {"": positions < 0}, {"": first_column})
        return SparseTable(rows, columns=getattr(self, "columns", None), index=index)


def several_tables(X: Any) -> bool:
    """Whether samples are a `SparseTable` of several tables, any of which a row may lack."""
    return isinstance(X, SparseTable) and hasattr(X, "columns") and len(set(X.tables)) > 1


def mark_lacking(
    X: MatrixLike, lacking: Mapping[str, Mask], columns: Mapping[str, Sequence[int]]
) -> MatrixLike:
    """Return sparse samples with NaN where rows lack a table.

    Parameters
    ----------
    X : sparse array of shape (n_samples, n_columns)
    lacking : mapping from table to ndarray of bool of shape (n_samples,)
        The rows that lack each table.
    columns : mapping from table to sequence of int
        The columns of each table that get NaN in these rows. Tables without an entry get none.
    """
    rows_of_table = {
        table: np.flatnonzero(is_lacking)
        for table, is_lacking in lacking.items()
        if table in columns
    }
    if not any(map(len, rows_of_table.values())):
        return X
    row_numbers: list[AnyArray] = []
    column_numbers: list[AnyArray] = []
    for table, rows in rows_of_table.items():
        marked_columns = np.array(columns[table], dtype=np.intp)
        row_numbers.append(np.repeat(rows, len(marked_columns)))
        column_numbers.append(np.tile(marked_columns, len(rows)))
    positions = (np.concatenate(row_numbers), np.concatenate(column_numbers))
    values = np.full(len(positions[0]), np.nan, dtype=X.dtype)
    return sparse.csr_array(X) + sparse.csr_array((values, positions), shape=X.shape)


@overload
def stack_views(container: Any = None, y: None = None, /, **views: Any) -> StackedViews: ...
@overload
def stack_views(container: Any, y: TargetLike, /, **views: Any) -> tuple[StackedViews, Any]: ...
def stack_views(container: Any = None, y: TargetLike = None, /, **views: Any) -> Any:
    """Return one table of several views of the same samples, and the columns of each view.

    Splitters, searches and pipelines take one X; this makes one of several tables. New samples are
    stacked in the same way. The whole result may also be their X:
    ``cross_val_score(MKLRidgeClassifierCV(), stack_views(tables), y)``.

    Parameters
    ----------
    container : MuData or mapping, optional
        Views by name in one object: the modalities of a MuData, the items of a dict. More may
        follow by name.
    y : Series, data frame or array-like, optional
        Targets of the samples, by position. Those whose index names the samples are joined to the
        views by these names: samples without a target are left out, and so are targets without a
        sample.
    **views : array-like, sparse matrix, data frame or AnnData of shape (n_samples, n_columns)
        The views by name, rows in the same order. If one is a pandas or polars data frame so is the
        result, its columns named ``view__column``, numbered where a view has no names; else if one
        is sparse the result is sparse. Data frames of pandas whose indices name the samples, and
        differ, are joined by these names: a sample that a view does not have gets NaN for it, which
        estimators take for a missing view. Of an AnnData, `X` is read as a data frame, its
        observations as rows and its variables as columns; where all views are sparse AnnData, the
        result is a ``SparseTable`` with these names, joined by those of the observations.

    Returns
    -------
    X : ndarray, sparse array or data frame of shape (n_samples, n_features)
        The views side by side.
    views : dict of list
        The columns of each view: names for a data frame, else numbers.
    y : like `y`
        Where targets are given the result is ``(X, views), y``, which ``fit`` takes: the targets of
        the rows of X.

    Notes
    -----
    X and views come as a named tuple whose attribute ``numbers`` has the columns by number even for
    a data frame. A transformer such as :class:`~sklearn.preprocessing.StandardScaler` drops the
    names without ``set_output(transform="pandas")``; column numbers remain valid.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLClassifier, stack_views
    >>> from kernelmosaic.kernels import Linear
    >>> shape, sound = np.eye(4), np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> X, views = stack_views(shape=shape, sound=sound)
    >>> views
    {'shape': [0, 1, 2, 3], 'sound': [4]}
    >>> kernels = [(name, Linear(), columns) for name, columns in views.items()]
    >>> MKLClassifier(kernels).fit(X, [0, 0, 1, 1]).kernel_names_
    ['shape', 'sound']

    Tables and targets by the names of their rows, of which the last has no target:

    >>> import pandas as pd
    >>> rna = pd.DataFrame({"gene": [0.5, 1.5, 2.5]}, index=["p", "q", "r"])
    >>> clinic = pd.DataFrame({"age": [61.0, 57.0]}, index=["q", "p"])
    >>> target = pd.Series([1, 0], index=["q", "p"])
    >>> stacked, y = stack_views({"rna": rna, "clinic": clinic}, target)
    >>> stacked.X
       rna__gene  clinic__age
    p        0.5         57.0
    q        1.5         61.0
    >>> y.tolist()
    [0, 1]

    Data frames through a scaler, which returns an array:

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> stacked = stack_views(shape=pd.DataFrame(shape, columns=list("abcd")), sound=sound)
    >>> stacked.views["sound"], stacked.numbers["sound"]
    (['sound__0'], [4])
    >>> kernels = [(name, Linear(), columns) for name, columns in stacked.numbers.items()]
    >>> model = make_pipeline(StandardScaler(), MKLClassifier(kernels))
    >>> model = model.fit(stacked.X, [0, 0, 1, 1])
    >>> model[-1].kernel_names_
    ['shape', 'sound']
    """
    if container is not None:
        tables_by_name = getattr(container, "mod", container)
        if not isinstance(tables_by_name, Mapping):
            raise TypeError(
                f"stack_views: {type(container).__name__} is not a collection of views; give a"
                " MuData or a dict of views, or name the view: stack_views(name=table)."
            )
        views = dict(tables_by_name) | views
    if not views:
        raise ValueError(
            "stack_views needs at least one view: stack_views(name=array, other=array)."
        )
    tables = _read_tables(views)
    is_joined = _have_different_names(list(tables.values()))
    if is_joined:
        tables = _joined_rows(tables)
    stacked = _side_by_side(tables)
    if y is None:
        return stacked
    return _with_targets(stacked, y, is_joined)


def _side_by_side(tables: Settings) -> StackedViews:
    """Return view tables side by side, as one table.

    It is a data frame if one of them is, else sparse if one is, else an array.
    """
    n_rows = {name: table.shape[0] for name, table in tables.items()}
    if len(set(n_rows.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in n_rows.items())
        raise ValueError(
            f"the views differ in their numbers of rows: {listed}; each needs one row per sample."
        )
    libraries = {name: _library(table) for name, table in tables.items() if _is_frame(table)}
    if len(set(libraries.values())) > 1:
        listed = ", ".join(f"{name} {library}" for name, library in libraries.items())
        raise TypeError(
            f"the views are data frames of several libraries ({listed}): convert them to one."
        )
    if libraries:
        return _stack_frames(tables, next(iter(libraries.values())))
    return _stack_arrays(tables)


# Samples of an estimator that are several tables --------------------------------------------------


def refuse_annotated(X: Any) -> None:
    """Raise if samples are an AnnData, whose matrix, layer and genes are to be chosen first."""
    if _is_annotated(X):
        shape = " × ".join(map(str, getattr(X, "shape", ())))
        raise TypeError(
            f"X is an {type(X).__name__} ({shape}): write X, kernels = views_from_anndata(adata,"
            " gene_sets), from kernelmosaic.single_cell, and give these and y = adata.obs[...]."
        )


def are_tables(X: Any) -> bool:
    """Whether samples are several tables.

    These are what `stack_views` takes or returns, or a list of arrays and data frames.
    """
    if isinstance(X, StackedViews):
        return True
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(len(getattr(table, "shape", ())) == 2 for table in X)
    container = getattr(X, "mod", X)
    # SciPy's matrix by keys (`dok_array`) is a mapping, too.
    return isinstance(container, Mapping) and not sparse.issparse(container)


def stack_tables(X: Any, fitted: Mapping[str, list[Any]] | None = None) -> StackedViews:
    """Put the tables of an estimator side by side, rows in one order.

    Parameters
    ----------
    X : mapping, MuData, list or StackedViews
        Tables by name; those of a list are called ``view0``, ``view1``, ….
    fitted : mapping, optional
        The columns of each table that an estimator is fitted to: one that is not given is missing
        in every row. Tables of other widths are refused.
    """
    if isinstance(X, StackedViews):
        if fitted:
            _check_stacked(X, fitted)
        return X
    if isinstance(X, list | tuple):
        views = {f"view{i}": view for i, view in enumerate(X)}
    else:
        views = dict(getattr(X, "mod", X))
    tables = _read_tables({str(name): view for name, view in views.items()})
    check_row_names(X)
    if fitted is not None:
        tables = _tables_of_fit(tables, fitted)
    elif tables and all(map(_is_gram, tables.values())):
        raise ValueError(
            f"X: {', '.join(map(repr, tables))} are symmetric matrices, as many rows as columns."
            " Give Gram matrices as kernels, [(name, Precomputed(K)), ...], and the row numbers"
            " np.arange(len(K)) as X."
        )
    return _side_by_side(tables)


def _tables_of_fit(tables: Settings, fitted: Mapping[str, list[Any]]) -> Settings:
    """Return the tables that an estimator was fitted to, in that order.

    A table that is absent from `tables` is missing in every row; one that the fit did not have is
    refused.
    """
    if not tables or not {*tables} <= {*fitted}:
        names_at_fit = ", ".join(map(repr, fitted)) or "one table"
        remedy = "tables with these names" if fitted else "an array or a data frame"
        raise ValueError(
            f"X has the tables {', '.join(map(repr, tables))}, but the estimator was fitted to "
            f"{names_at_fit}; give {remedy}."
        )
    # Columns of a data frame are found by their names, so only other tables need the same width.
    _check_widths(
        {name: int(table.shape[1]) for name, table in tables.items() if not _is_frame(table)},
        fitted,
    )
    present_table = next(iter(tables.values()))
    tables_of_fit = {}
    for name, columns in fitted.items():
        table = tables.get(name)
        if table is None:
            table = _empty_table(columns, name, present_table)
        tables_of_fit[name] = table
    return tables_of_fit


def _check_widths(widths: Mapping[str, int], fitted: Mapping[str, list[Any]]) -> None:
    """Raise if a table has more or fewer columns than at the fit."""
    for name, width in widths.items():
        if width != len(fitted[name]):
            raise ValueError(
                f"X: table {name!r} has {width} columns, and {len(fitted[name])} in the training"
                " set; give every table the columns that it had there."
            )


def _check_stacked(stacked: StackedViews, fitted: Mapping[str, list[Any]]) -> None:
    """Raise if stacked views are not those of the fit.

    They must come in the same order and have as many columns.
    """
    views = stacked.views
    if list(views) != list(fitted):
        raise ValueError(
            f"X has the views {', '.join(map(repr, views))}, and the training set"
            f" {', '.join(map(repr, fitted))}; stack the same views in the same order."
        )
    _check_widths({name: len(columns) for name, columns in views.items()}, fitted)


def _empty_table(columns: list[Any], view: str, present_table: MatrixLike) -> MatrixLike:
    """Return a view table that is missing in every row, in the form of a table that is present."""
    names = [str(name).removeprefix(f"{view}{SEPARATOR}") for name in columns]
    if isinstance(present_table, SparseTable) and hasattr(present_table, "index"):
        index = present_table.index
        return SparseTable((0, len(names)), columns=names, index=index[:0]).reindex(index)
    values = np.full((present_table.shape[0], len(columns)), np.nan)
    if not _is_frame(present_table):
        return values
    columns_by_name = dict(zip(names, values.T, strict=True))
    frame_type = type(present_table)
    if hasattr(present_table, "index"):
        return frame_type(columns_by_name, index=present_table.index)
    return frame_type(columns_by_name)


def _is_gram(table: MatrixLike) -> bool:
    """Whether a table is a symmetric dense matrix of numbers, as a Gram matrix is."""
    if table.shape[0] != table.shape[1] or table.shape[0] < 2 or sparse.issparse(table):
        return False
    values = np.asarray(table)
    return values.dtype.kind in "iuf" and bool(np.allclose(values, values.T, equal_nan=True))


def find_columns(names: Iterable[Any], columns: Iterable[Any]) -> dict[Any, Any]:
    """Return the columns that are meant by some names, as a dict from name to column.

    A name may leave out the table in front of the column: ``CD4`` means ``rna__CD4``. Names that
    mean no column are left out of the result; a name that two tables have is a ValueError.
    """
    candidates: dict[Any, list[Any]] = {}
    for column in columns:
        # A column of exactly this name comes before those that have it behind their table.
        candidates.setdefault(column, []).insert(0, column)
        if isinstance(column, str) and SEPARATOR in column:
            candidates.setdefault(column.partition(SEPARATOR)[2], []).append(column)
    columns_of_names = {}
    for name in names:
        if name not in candidates:
            continue
        matches = candidates[name]
        if len(matches) > 1 and matches[0] != name:
            listed = ", ".join(map(repr, matches))
            raise ValueError(
                f"{name!r} is a column of several tables, {listed}: write the one that is meant, as"
                " by_group does with among=views[table]."
            )
        columns_of_names[name] = matches[0]
    return columns_of_names


def list_columns(names: Sequence[str], most: int = 3) -> str:
    """Return a text that counts columns and names the first `most` of each view.

    Columns of files are called ``view.column``.
    """
    names_of_view: dict[str, list[str]] = {}
    for name in names:
        view, dot, _ = name.partition(".")
        names_of_view.setdefault(view if dot else "", []).append(name)
    texts = []
    for view_names in names_of_view.values():
        text = ", ".join(map(repr, view_names[:most]))
        if len(view_names) > most:
            text += f" and {len(view_names) - most} more"
        texts.append(text)
    listed = "; ".join(texts)
    if len(names) == 1:
        return f"column {listed}"
    return f"{len(names)} columns ({listed})"


def by_view(values: Any, views: Sequence[str]) -> dict[str, Any]:
    """Return the sums of values of kernels over the kernels of each view, by the view.

    Parameters
    ----------
    values : array-like of shape (..., P)
        Numbers of the kernels.
    views : sequence of str
        The view of each kernel; a single view is that of all kernels.

    Returns
    -------
    dict from view to float, or to ndarray of shape (...)
    """
    values = np.asarray(values, dtype=np.float64)
    if len(views) < values.shape[-1]:
        values = values.sum(axis=-1, keepdims=True)
    sums: dict[str, Any] = {}
    for view, kernel_values in zip(views, np.moveaxis(values, -1, 0), strict=True):
        if kernel_values.ndim == 0:
            kernel_values = float(kernel_values)
        sums[view] = sums.get(view, 0.0) + kernel_values
    return sums


# Names of rows ------------------------------------------------------------------------------------


class _RowNames(NamedTuple):
    """The names of the rows of an object.

    Attributes
    ----------
    owner : str
        How the user writes the object, such as ``X['rna']``.
    index : pandas.Index
        The names.
    written : str
        How the user writes the index, such as ``X['rna'].index``.
    """

    owner: str
    index: Any
    written: str


def check_row_names(X: MatrixLike, **others: Any) -> None:
    """Raise a ValueError if samples and their targets or weights name their rows differently.

    Names are a pandas index of anything but integers; they must come in the same order. Objects
    without names, such as arrays, belong to the samples by position.

    Parameters
    ----------
    X : array-like, data frame, or dict or list of tables
        Samples; the tables' names must be the same.
    **others : Series, data frame, array-like or None
        Targets, weights or groups of the samples, by the name of their parameter.
    """
    all_names = list(_named_rows("X", X))
    for parameter, rows in others.items():
        all_names += _named_rows(parameter, rows)
    for names in all_names[1:]:
        expected = all_names[0].index
        if not expected.equals(names.index) and expected.tolist() != names.index.tolist():
            raise ValueError(_disagreement(all_names[0], names))


def _named_rows(owner: str, rows: Any) -> Iterator[_RowNames]:
    """Yield the row names of an object, of several tables those of each.

    Where rows have no names, nothing is yielded.
    """
    if isinstance(rows, StackedViews):
        yield from _named_rows(f"{owner}.X", rows.X)
        return
    if are_tables(rows):
        if isinstance(rows, list | tuple):
            tables: Any = dict(enumerate(rows))
        else:
            tables = getattr(rows, "mod", rows)
        for key, table in tables.items():
            yield from _named_rows(f"{owner}[{key!r}]", table)
        return
    # A pandas Series looks up attributes that it does not have among its rows: `index` goes first.
    is_annotated = not hasattr(rows, "index") and _is_annotated(rows)
    attribute = "obs_names" if is_annotated else "index"
    index = row_names(rows, attribute)
    if index is not None:
        yield _RowNames(owner, index, f"{owner}.{attribute}")


def row_names(rows: Any, attribute: str = "index") -> Any:
    """Return the names of rows, a pandas index of anything but integers, or None."""
    if isinstance(rows, StackedViews):
        return row_names(rows.X)
    index: Any = getattr(rows, attribute, None)
    is_index = type(index).__module__.partition(".")[0] == "pandas"
    if not is_index or index.inferred_type == "integer":
        return None
    return index


def _disagreement(first: _RowNames, second: _RowNames) -> str:
    """Return the error message for two objects whose row names differ.

    It says what differs, and what to write.
    """
    owner = second.owner
    first_names = first.index.tolist()
    second_names = second.index.tolist()

    # 1. What differs: the names themselves, or their order.
    only_in_first = _first_missing(first_names, set(second_names))
    only_in_second = _first_missing(second_names, set(first_names))
    lost = []
    if only_in_first is not None:
        lost.append(f"{only_in_first!r} is in {first.owner} alone")
    if only_in_second is not None:
        lost.append(f"{only_in_second!r} is in {owner} alone")
    if lost:
        fault = f"its rows and those of {first.owner} have different names ({', '.join(lost)})"
    else:
        difference = f"{len(first_names)} rows there"
        pairs = enumerate(zip(first_names, second_names, strict=False))
        for i, (first_name, second_name) in pairs:
            if first_name != second_name:
                difference = f"row {i} is {first_name!r} there and {second_name!r} here"
                break
        fault = (
            f"its {len(second_names)} rows have the names of {first.owner} in another order"
            f" ({difference})"
        )

    # 2. What to write.
    if owner.startswith("X"):
        return f"{owner}: {fault}; stack_views(X) joins tables by the names of their rows."
    repeated = second.index[second.index.duplicated()].tolist()
    if repeated:
        remedy = f"give every row a name of its own ({repeated[0]!r} is there more than once)"
    elif only_in_first is None:
        remedy = f"write {owner}.loc[{first.written}]"
    else:
        remedy = f"keep the rows of both, {first.written}.intersection({second.written})"
    return (
        f"{owner}: {fault}; {remedy}, or give {owner}.to_numpy() if it belongs to {first.owner} row"
        " by row as it is."
    )


def _first_missing(names: Iterable[Any], names_of_other: set[Any]) -> Any:
    """Return the first of the names that is not in the set, or None."""
    return next((name for name in names if name not in names_of_other), None)


def _with_targets(
    stacked: StackedViews, y: TargetLike, is_joined: bool
) -> tuple[StackedViews, Any]:
    """Return the samples that have a target, and their targets in the same order.

    Targets belong to samples by the names of the rows if both have names, else by position.
    """
    # With equal names, the rows of both are in the same order already.
    if _have_different_names([stacked.X, y]):
        _check_names("y", y.index, stacked.X.index)
        X = stacked.X[stacked.X.index.isin(y.index)]
        return StackedViews(X, stacked.views), y.loc[X.index]
    if is_joined and not _is_labelled(y):
        raise ValueError(
            "y: the views are joined by the names of their rows; give a Series with these as its"
            " index."
        )
    if len(y) != stacked.X.shape[0]:
        raise ValueError(
            f"y has {len(y)} rows, and the views have {stacked.X.shape[0]}: give one target per"
            " sample."
        )
    return stacked, y


def _check_names(owner: str, index: Any, names_of_views: Any) -> None:
    """Raise unless an index names every row once and shares a name with the views."""
    if not index.is_unique:
        repeated = index[index.duplicated()][0]
        raise ValueError(
            f"{owner}: the index has {repeated!r} more than once; give every sample a name of its"
            " own."
        )
    if not names_of_views.isin(index).any():
        raise ValueError(
            f"{owner} has no row in common with the views: its index begins with {index[0]!r},"
            f" theirs with {names_of_views[0]!r}."
        )


# Side by side -------------------------------------------------------------------------------------


def _read_tables(views: Settings) -> Settings:
    """Return every view as a view table.

    AnnData become sparse tables if all views are sparse AnnData, else data frames.
    """
    are_sparse_anndata = all(
        _is_annotated(view) and sparse.issparse(getattr(view, "X", None)) for view in views.values()
    )
    tables = {}
    for name, view in views.items():
        if are_sparse_anndata:
            view = SparseTable(view.X, columns=view.var_names, index=view.obs_names)
        tables[name] = _checked_table(name, view)
    return tables


def _checked_table(name: str, view: MatrixLike) -> MatrixLike:
    """Return a view as a view table, or raise unless it has rows and columns.

    Data frames and sparse matrices are returned as they are, an AnnData as a data frame, all else
    as an array.
    """
    if SEPARATOR in name:
        raise ValueError(
            f"the view's name {name!r} contains {SEPARATOR!r}, which separates view and column"
            " names."
        )
    if _is_annotated(view):
        view = view.to_df()
    if not _is_frame(view) and not sparse.issparse(view):
        try:
            view = np.asarray(view)
        except ValueError as error:
            raise ValueError(f"view {name!r} is not a table: {error}") from error
    shape = tuple(view.shape)
    if len(shape) == 1 and shape[0] > 0:
        raise ValueError(
            f"view {name!r} has shape {shape}: give a table; {name}.reshape(-1, 1) is one column, "
            f"{name}.reshape(1, -1) is one sample."
        )
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"view {name!r} has shape {shape}: give a table with at least one row and one column."
        )
    return view


def _have_different_names(tables: list[Any]) -> bool:
    """Whether the rows of all tables have names, and these differ.

    A range of numbers is no name.
    """
    if not all(map(_is_labelled, tables)):
        return False
    return not all(table.index.equals(tables[0].index) for table in tables)


def _is_labelled(table: Any) -> bool:
    """Whether the rows of a table have names: an index that is no range of numbers.

    Only pandas objects and `SparseTable` have such names.
    """
    # A SparseTable always has `reindex`, and an index only where its rows have names.
    attribute = "index" if isinstance(table, SparseTable) else "reindex"
    return hasattr(table, attribute) and type(table.index).__name__ != "RangeIndex"


def _joined_rows(tables: Settings) -> Settings:
    """Return every table with a row for each sample of any table.

    The samples are in the order of their first appearance.
    """
    index = next(iter(tables.values())).index
    for name, table in tables.items():
        _check_names(f"view {name!r}", table.index, index)
        index = index.append(table.index[~table.index.isin(index)])
    return {name: table.reindex(index) for name, table in tables.items()}


def _is_annotated(view: Any) -> bool:
    """Whether an object is an AnnData."""
    return hasattr(view, "obs_names") and hasattr(view, "to_df")


def _is_frame(view: MatrixLike) -> bool:
    """Whether an object is a data frame of any library."""
    return hasattr(view, "columns") and hasattr(view, "shape") and not sparse.issparse(view)


def _library(frame: Any) -> str:
    """Return the library of a data frame, ``"pandas"`` or ``"polars"``; refuse those of others."""
    library = type(frame).__module__.partition(".")[0]
    if library not in ("pandas", "polars"):
        raise TypeError(
            f"{type(frame).__module__}.{type(frame).__name__}: give data frames of pandas or"
            " polars."
        )
    return library


def _stack_arrays(tables: Settings) -> StackedViews:
    """Return arrays and sparse matrices side by side, sparse if one of them is."""
    views = {name: list(range(table.shape[1])) for name, table in tables.items()}
    numbers = StackedViews(None, views).numbers
    arrays = list(tables.values())
    text_views = [name for name, table in tables.items() if table.dtype.kind not in "biuf"]
    if not any(map(sparse.issparse, arrays)):
        if 0 < len(text_views) < len(arrays):
            # NumPy would turn numbers beside text into text.
            arrays = [array.astype(object) for array in arrays]
        return StackedViews(np.hstack(arrays), numbers)
    if text_views:
        raise TypeError(
            f"view {text_views[0]!r} holds no numbers, which a sparse table cannot: give dense"
            " views or frames."
        )
    stacked = sparse.hstack(arrays, format="csr")
    if not all(hasattr(array, "columns") and hasattr(array, "index") for array in arrays):
        return StackedViews(sparse.csr_array(stacked), numbers)
    names = _column_names({name: table.columns for name, table in tables.items()})
    columns = list(chain.from_iterable(names.values()))
    return StackedViews(SparseTable(stacked, columns=columns, index=arrays[0].index), names)


def _column_names(columns: Mapping[str, Iterable[Any]]) -> dict[str, list[str]]:
    """Return the names ``view__column`` of the columns of each view."""
    return {
        view: [f"{view}{SEPARATOR}{column}" for column in view_columns]
        for view, view_columns in columns.items()
    }


def _stack_frames(tables: Settings, library: str) -> StackedViews:
    """Return tables side by side as a data frame of a library, columns named ``view__column``."""
    columns: dict[str, Iterable[Any]] = {}
    for view, table in tables.items():
        columns[view] = table.columns if _is_frame(table) else range(table.shape[1])
    names = _column_names(columns)
    counts = Counter(chain.from_iterable(names.values()))
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(
            f"several columns would be named {repeated[0]!r}: rename a column or a view."
        )
    dense_tables = dict(tables)
    for view, table in tables.items():
        if sparse.issparse(table):
            dense_tables[view] = _dense_table(table)
    if library == "pandas":
        return StackedViews(_join_pandas(dense_tables, names), names)
    return StackedViews(_join_polars(dense_tables, names), names)


def _dense_table(table: MatrixLike) -> AnyArray:
    """Return a sparse table as an array; a row that lacks the table has NaN in all columns."""
    values: AnyArray = table.toarray()
    if values.dtype.kind == "f":
        values[np.isnan(values).any(axis=1)] = np.nan
    return values


def _join_pandas(tables: Settings, names: dict[str, list[str]]) -> MatrixLike:
    """Return tables side by side as a pandas data frame.

    Data frames among them must have equal indices.
    """
    import pandas as pd

    indices = {view: table.index for view, table in tables.items() if _is_frame(table)}
    first_index = next(iter(indices.values()))
    for view, index in indices.items():
        if not first_index.equals(index):
            raise ValueError(
                f"view {view!r} has another index than view {next(iter(indices))!r}: bring the rows"
                " in one order, then give both the same index, or none by reset_index(drop=True)."
            )
    frames = []
    for view, table in tables.items():
        if _is_frame(table):
            frames.append(table.set_axis(names[view], axis=1))
        else:
            frames.append(pd.DataFrame(table, columns=names[view], index=first_index))
    return pd.concat(frames, axis=1)


def _join_polars(tables: Settings, names: dict[str, list[str]]) -> MatrixLike:
    """Return tables side by side as a Polars data frame."""
    import polars as pl

    frames = []
    for view, table in tables.items():
        if _is_frame(table):
            frames.append(table.rename(dict(zip(table.columns, names[view], strict=True))))
        else:
            frames.append(pl.DataFrame(table, schema=names[view]))
    return pl.concat(frames, how="horizontal")
