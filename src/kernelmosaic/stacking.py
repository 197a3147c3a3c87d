"""One array per view, side by side in one table: what estimators read, and which columns and rows
are whose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from kernelmosaic._typing import AnyArray, Mask, MatrixLike, Settings, TargetLike

__all__ = ["SparseTable", "StackedViews", "stack_views"]

#: Between a view's name and a column's, as scikit-learn's unions of columns write it.
SEPARATOR = "__"


class StackedViews(NamedTuple):
    """A table and the columns of each view in it.

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
        ends = np.cumsum([0, *map(len, self.views.values())]).tolist()
        return {
            name: list(range(*ends)) for name, ends in zip(self.views, pairwise(ends), strict=True)
        }

    # By these, splitters and searches of scikit-learn take it for a table of samples, and rows of
    # it to an estimator.

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return tuple(self.X.shape)

    @property
    def iloc(self) -> Any:
        """Indexer of rows by position: ``stacked.iloc[rows]``."""
        return _Rows(self)

    def take(self, rows: Any, axis: int = 0) -> StackedViews:
        """Return some of the samples, with the same views."""
        return StackedViews(_safe_indexing(self.X, rows), self.views)


class _Rows(NamedTuple):
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
    *given : any
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

    def __init__(self, *given: Any, columns: Any = None, index: Any = None, **options: Any) -> None:
        super().__init__(*given, **options)
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
        return [
            name.partition(SEPARATOR)[0] if SEPARATOR in name else ""
            for name in map(str, self.columns)
        ]

    @cached_property
    def lacking(self) -> dict[str, Mask]:
        """Which rows lack a table, by its name; without the tables that all rows have."""
        entries = np.flatnonzero(np.isnan(self.data))
        rows = np.searchsorted(self.indptr, entries, side="right") - 1
        found: dict[str, Mask] = {}
        for row, column in zip(rows.tolist(), self.indices[entries].tolist(), strict=True):
            found.setdefault(self.tables[column], np.zeros(self.shape[0], dtype=bool))[row] = True
        return found

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, SparseTable) or found.ndim != 2:
            return found
        given = (key if isinstance(key, tuple) else (key,)) + (...,)
        every = [slice(None) if own is ... else own for own in given]
        taken = [own if isinstance(own, slice) else np.ravel(own) for own in every]
        for names, own in zip(("index", "columns"), taken, strict=False):
            if hasattr(self, names):
                setattr(found, names, getattr(self, names)[own])
        if found.shape[1] < self.shape[1] and hasattr(self, "columns") and self.lacking:
            # The column with NaN may not be among those that are taken.
            firsts = {table: [j] for j, table in reversed(list(enumerate(found.tables)))}
            marked = mark_lacking(
                found, {table: own[taken[0]] for table, own in self.lacking.items()}, firsts
            )
            return SparseTable(marked, columns=found.columns, index=getattr(found, "index", None))
        return found

    def reindex(self, index: Any) -> SparseTable:
        """Return the rows of these names; one that the table does not have is empty but for NaN in
        its first column."""
        if self.index.equals(index):
            return self
        places = self.index.get_indexer(index)
        # A row that the table does not have is number −1, the last one, which is empty.
        empty = sparse.csr_array((1, self.shape[1]), dtype=np.result_type(self.dtype, np.float32))
        rows = sparse.vstack([sparse.csr_array(self), empty], format="csr")[places]
        rows = mark_lacking(rows, {"": places < 0}, {"": range(min(1, self.shape[1]))})
        return SparseTable(rows, columns=getattr(self, "columns", None), index=index)


def several_tables(X: Any) -> bool:
    """Whether samples are a sparse table of several, one of which a row may lack."""
    return isinstance(X, SparseTable) and hasattr(X, "columns") and len(set(X.tables)) > 1


def mark_lacking(
    X: MatrixLike, lacking: Mapping[str, Mask], columns: Mapping[str, Sequence[int]]
) -> MatrixLike:
    """Return sparse samples with NaN in the given columns of every table, in the rows that lack
    it."""
    rows = {table: np.flatnonzero(own) for table, own in lacking.items() if table in columns}
    if not any(map(len, rows.values())):
        return X
    at = np.concatenate([np.repeat(own, len(columns[table])) for table, own in rows.items()])
    to = np.concatenate(
        [np.tile(np.array(columns[table], dtype=np.intp), len(own)) for table, own in rows.items()]
    )
    marks = sparse.csr_array((np.full(len(at), np.nan, dtype=X.dtype), (at, to)), shape=X.shape)
    return sparse.csr_array(X) + marks


@overload
def stack_views(container: Any = None, y: None = None, /, **views: Any) -> StackedViews: ...
@overload
def stack_views(container: Any, y: TargetLike, /, **views: Any) -> tuple[StackedViews, Any]: ...
def stack_views(container: Any = None, y: TargetLike = None, /, **views: Any) -> Any:
    """Put views of the same samples side by side, with the columns of each.

    Splitters, searches and pipelines take one X; this makes one of several tables. New samples are
    stacked likewise. The result as a whole may be their X, too:
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
        held = getattr(container, "mod", container)
        if not isinstance(held, Mapping):
            raise TypeError(
                f"stack_views: {type(container).__name__} is not a collection of views; give a"
                " MuData or a dict of views, or name the view: stack_views(name=table)."
            )
        views = dict(held) | views
    if not views:
        raise ValueError(
            "stack_views needs at least one view: stack_views(name=array, other=array)."
        )
    tables = _read_tables(views)
    is_joined = _have_names(list(tables.values()))
    stacked = _side_by_side(_joined_rows(tables) if is_joined else tables)
    return stacked if y is None else _with_targets(stacked, y, is_joined)


def _side_by_side(tables: Settings) -> StackedViews:
    rows = {name: table.shape[0] for name, table in tables.items()}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
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


# Tables that an estimator is given ----------------------------------------------------------------


def refuse_annotated(X: Any) -> None:
    """Raise if samples are an AnnData, whose matrix, layer and genes are to be chosen first."""
    if _is_annotated(X):
        shape = " × ".join(map(str, getattr(X, "shape", ())))
        raise TypeError(
            f"X is an {type(X).__name__} ({shape}): write X, kernels = views_from_anndata(adata,"
            " gene_sets), from kernelmosaic.single_cell, and give these and y = adata.obs[...]."
        )


def are_tables(X: Any) -> bool:
    """Whether samples are several tables: what `stack_views` takes or returns, or a list of arrays
    and data frames."""
    if isinstance(X, list | tuple):
        return isinstance(X, StackedViews) or (
            bool(X) and all(len(getattr(one, "shape", ())) == 2 for one in X)
        )
    held = getattr(X, "mod", X)
    return isinstance(held, Mapping) and not sparse.issparse(
        held
    )  # a matrix by keys is a mapping, too


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
    listed = isinstance(X, list | tuple)
    views = {f"view{i}": one for i, one in enumerate(X)} if listed else dict(getattr(X, "mod", X))
    tables = _read_tables({str(name): one for name, one in views.items()})
    check_row_names(X)
    if fitted is not None:
        if not tables or not {*tables} <= {*fitted}:
            raise ValueError(
                f"X has the tables {', '.join(map(repr, tables))}, but the estimator was fitted to "
                f"{', '.join(map(repr, fitted)) or 'one table'}; give "
                f"{'tables with these names' if fitted else 'an array or a data frame'}."
            )
        _check_widths(
            {name: _width(table) for name, table in tables.items() if not _is_frame(table)}, fitted
        )
        like = next(iter(tables.values()))
        tables = {
            name: tables[name] if name in tables else _absent(own, name, like)
            for name, own in fitted.items()
        }
    elif tables and all(map(_is_gram, tables.values())):
        raise ValueError(
            f"X: {', '.join(map(repr, tables))} are symmetric matrices, as many rows as columns."
            " Give Gram matrices as kernels, [(name, Precomputed(K)), ...], and the row numbers"
            " np.arange(len(K)) as X."
        )
    return _side_by_side(tables)


def _width(table: MatrixLike) -> int:
    """Return how many columns a table has."""
    return int(table.shape[1])


def _check_widths(widths: Mapping[str, int], fitted: Mapping[str, list[Any]]) -> None:
    """Raise if a table has another number of columns than at the fit, which tells columns by their
    places."""
    for name, width in widths.items():
        if width != len(fitted[name]):
            raise ValueError(
                f"X: table {name!r} has {width} columns, and {len(fitted[name])} in the training"
                " set; give every table the columns that it had there."
            )


def _check_stacked(stacked: StackedViews, fitted: Mapping[str, list[Any]]) -> None:
    """Raise if views that were stacked are not those of the fit in the same order, each with as
    many columns."""
    given = stacked.views
    if list(given) != list(fitted):
        raise ValueError(
            f"X has the views {', '.join(map(repr, given))}, and the training set"
            f" {', '.join(map(repr, fitted))}; stack the same views in the same order."
        )
    _check_widths({name: len(columns) for name, columns in given.items()}, fitted)


def _absent(columns: list[Any], view: str, like: MatrixLike) -> MatrixLike:
    """Return a table that is missing in every row of another one."""
    names = [str(name).removeprefix(f"{view}{SEPARATOR}") for name in columns]
    if isinstance(like, SparseTable) and hasattr(like, "index"):
        return SparseTable((0, len(names)), columns=names, index=like.index[:0]).reindex(like.index)
    nothing = np.full((like.shape[0], len(columns)), np.nan)
    if not _is_frame(like):
        return nothing
    return type(like)(
        dict(zip(names, nothing.T, strict=True)),
        **({"index": like.index} if hasattr(like, "index") else {}),
    )


def _is_gram(table: MatrixLike) -> bool:
    if table.shape[0] != table.shape[1] or table.shape[0] < 2 or sparse.issparse(table):
        return False
    values = np.asarray(table)
    return values.dtype.kind in "iuf" and bool(np.allclose(values, values.T, equal_nan=True))


def find_columns(names: Iterable[Any], columns: Iterable[Any]) -> dict[Any, Any]:
    """Return the columns that names mean, by these names; a name may lack the prefix of its table,
    as in ``rna__CD4``.

    Names that no column has are left out; one that two tables have is a ValueError.
    """
    own: dict[Any, list[Any]] = {}
    for column in columns:
        own.setdefault(column, []).insert(0, column)
        if isinstance(column, str) and SEPARATOR in column:
            own.setdefault(column.partition(SEPARATOR)[2], []).append(column)
    found = {name: own[name] for name in names if name in own}
    for name, meant in found.items():
        if len(meant) > 1 and meant[0] != name:
            listed = ", ".join(map(repr, meant))
            raise ValueError(
                f"{name!r} is a column of several tables, {listed}: write the one that is meant, as"
                " by_group does with among=views[table]."
            )
    return {name: meant[0] for name, meant in found.items()}


def list_columns(names: Sequence[str], most: int = 3) -> str:
    """Return how many columns there are, and the first ones of each view; those of files are called
    ``view.column``."""
    views: dict[str, list[str]] = {}
    for name in names:
        view, dot, _ = name.partition(".")
        views.setdefault(view if dot else "", []).append(name)
    shown = [", ".join(map(repr, own[:most])) for own in views.values()]
    more = [f" and {len(own) - most} more" * (len(own) > most) for own in views.values()]
    listed = "; ".join(map(str.__add__, shown, more))
    return f"column {listed}" if len(names) == 1 else f"{len(names)} columns ({listed})"


def by_view(values: Any, views: Sequence[str]) -> dict[str, Any]:
    """Return values, whose last axis is that of the kernels, summed over the kernels of every view.

    Parameters
    ----------
    values : array-like of shape (..., P)
        Numbers of the kernels.
    views : sequence of str
        The view of each kernel; one alone is that of all.

    Returns
    -------
    dict from view to float, or to ndarray of shape (...)
    """
    values = np.asarray(values, dtype=np.float64)
    if len(views) < values.shape[-1]:
        values = values.sum(axis=-1, keepdims=True)
    found: dict[str, Any] = {}
    for view, one in zip(views, np.moveaxis(values, -1, 0), strict=True):
        found[view] = found.get(view, 0.0) + (float(one) if one.ndim == 0 else one)
    return found


# Names of rows ------------------------------------------------------------------------------------


class _Named(NamedTuple):
    """Names of rows: whose they are, the index, and what to write for it."""

    what: str
    names: Any
    written: str


def check_row_names(X: MatrixLike, **others: Any) -> None:
    """Raise a ValueError if samples and what belongs to them name their rows, and not in the same
    order.

    Names are a pandas index of anything but integers. What has none, as arrays, belongs to the
    samples by position.

    Parameters
    ----------
    X : array-like, data frame, or dict or list of tables
        Samples; the tables' names must be the same.
    **others : Series, data frame, array-like or None
        Targets, weights or groups of the samples, by the name of their parameter.
    """
    named = [one for what, rows in {"X": X, **others}.items() for one in _named_rows(what, rows)]
    for one in named[1:]:
        if not named[0].names.equals(one.names) and named[0].names.tolist() != one.names.tolist():
            raise ValueError(_disagreement(named[0], one))


def _named_rows(what: str, rows: Any) -> Iterator[_Named]:
    """Yield the names of rows, of several tables those of each."""
    if isinstance(rows, StackedViews):
        yield from _named_rows(f"{what}.X", rows.X)
    elif are_tables(rows):
        held = (
            dict(enumerate(rows)) if isinstance(rows, list | tuple) else getattr(rows, "mod", rows)
        )
        for key, table in held.items():
            yield from _named_rows(f"{what}[{key!r}]", table)
    else:
        # Last, since attributes that a Series does not have are searched among its rows.
        place = "index" if hasattr(rows, "index") or not _is_annotated(rows) else "obs_names"
        index = row_names(rows, place)
        if index is not None:
            yield _Named(what, index, f"{what}.{place}")


def row_names(rows: Any, place: str = "index") -> Any:
    """Return the names of rows, a pandas index of anything but integers; None where they have
    none."""
    if isinstance(rows, StackedViews):
        return row_names(rows.X)
    index: Any = getattr(rows, place, None)
    is_index = type(index).__module__.partition(".")[0] == "pandas"
    return index if is_index and index.inferred_type != "integer" else None


def _disagreement(first: _Named, other: _Named) -> str:
    """Return what is wrong with names that differ, and what to write."""
    what, here, there = other.what, first.names.tolist(), other.names.tolist()
    sides = ((first.what, here, set(there)), (what, there, set(here)))
    alone = {
        side: next((name for name in own if name not in rest), None) for side, own, rest in sides
    }
    lost = [f"{name!r} is in {side} alone" for side, name in alone.items() if name is not None]
    twice = other.names[other.names.duplicated()].tolist()
    if lost:
        wrong = f"its rows and those of {first.what} have different names ({', '.join(lost)})"
    else:
        unlike = [(i, a, b) for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b]
        place = (
            "row {} is {!r} there and {!r} here".format(*unlike[0])
            if unlike
            else f"{len(here)} rows there"
        )
        wrong = f"its {len(there)} rows have the names of {first.what} in another order ({place})"
    if what.startswith("X"):
        return f"{what}: {wrong}; stack_views(X) joins tables by the names of their rows."
    if twice:
        write = f"give every row a name of its own ({twice[0]!r} is there more than once)"
    elif alone[first.what] is None:
        write = f"write {what}.loc[{first.written}]"
    else:
        write = f"keep the rows of both, {first.written}.intersection({other.written})"
    return (
        f"{what}: {wrong}; {write}, or give {what}.to_numpy() if it belongs to {first.what} row by"
        " row as it is."
    )


def _with_targets(
    stacked: StackedViews, y: TargetLike, is_joined: bool
) -> tuple[StackedViews, Any]:
    """Return the samples that have a target, and the targets in their order; by position where one
    has no names."""
    if _have_names([stacked.X, y]):
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


def _check_names(what: str, index: Any, others: Any) -> None:
    """Raise unless an index names every row once, and has a name in common with that of the
    views."""
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise ValueError(
            f"{what}: the index has {twice!r} more than once; give every sample a name of its own."
        )
    if not others.isin(index).any():
        raise ValueError(
            f"{what} has no row in common with the views: its index begins with {index[0]!r},"
            f" theirs with {others[0]!r}."
        )


# Side by side -------------------------------------------------------------------------------------


def _read_tables(views: Settings) -> Settings:
    """Return the views as tables: AnnData stay sparse, where all are."""
    stay = all(
        _is_annotated(one) and sparse.issparse(getattr(one, "X", None)) for one in views.values()
    )
    tables = {
        name: SparseTable(one.X, columns=one.var_names, index=one.obs_names) if stay else one
        for name, one in views.items()
    }
    return {name: _table(name, one) for name, one in tables.items()}


def _table(name: str, view: MatrixLike) -> MatrixLike:
    """The view as it is if it has columns, else as an array; refused unless it is a table with rows
    and columns."""
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


def _have_names(tables: list[Any]) -> bool:
    """Whether all views are tables whose rows have names, and not the same; a range of numbers is
    none."""
    return all(map(_is_labelled, tables)) and not all(
        table.index.equals(tables[0].index) for table in tables
    )


def _is_labelled(table: Any) -> bool:
    has_names = (
        hasattr(table, "index") if isinstance(table, SparseTable) else hasattr(table, "reindex")
    )
    return has_names and type(table.index).__name__ != "RangeIndex"


def _joined_rows(tables: Settings) -> Settings:
    """Give every view a row for every sample that one of them has, in the order in which they
    come."""
    index = next(iter(tables.values())).index
    for name, table in tables.items():
        _check_names(f"view {name!r}", table.index, index)
        index = index.append(table.index[~table.index.isin(index)])
    return {name: table.reindex(index) for name, table in tables.items()}


def _is_annotated(view: Any) -> bool:
    """Whether it is an AnnData."""
    return hasattr(view, "obs_names") and hasattr(view, "to_df")


def _is_frame(view: MatrixLike) -> bool:
    return hasattr(view, "columns") and hasattr(view, "shape") and not sparse.issparse(view)


def _library(frame: Any) -> str:
    library = type(frame).__module__.partition(".")[0]
    if library not in ("pandas", "polars"):
        raise TypeError(
            f"{type(frame).__module__}.{type(frame).__name__}: give data frames of pandas or"
            " polars."
        )
    return library


def _stack_arrays(tables: Settings) -> StackedViews:
    numbers = StackedViews(
        None, {name: list(range(table.shape[1])) for name, table in tables.items()}
    ).numbers
    parts = list(tables.values())
    text = [name for name, part in tables.items() if part.dtype.kind not in "biuf"]
    if any(map(sparse.issparse, parts)):
        if text:
            raise TypeError(
                f"view {text[0]!r} holds no numbers, which a sparse table cannot: give dense views"
                " or frames."
            )
        stacked = sparse.hstack(parts, format="csr")
        if not all(hasattr(part, "columns") and hasattr(part, "index") for part in parts):
            return StackedViews(sparse.csr_array(stacked), numbers)
        names = {
            view: [f"{view}{SEPARATOR}{label}" for label in table.columns]
            for view, table in tables.items()
        }
        every = list(chain.from_iterable(names.values()))
        return StackedViews(SparseTable(stacked, columns=every, index=parts[0].index), names)
    if 0 < len(text) < len(parts):
        # Numbers beside text stay numbers.
        parts = [part.astype(object) for part in parts]
    return StackedViews(np.hstack(parts), numbers)


def _stack_frames(tables: Settings, library: str) -> StackedViews:
    columns = {
        view: table.columns if _is_frame(table) else range(table.shape[1])
        for view, table in tables.items()
    }
    names = {view: [f"{view}{SEPARATOR}{label}" for label in own] for view, own in columns.items()}
    repeated = [
        name for name, times in Counter(chain.from_iterable(names.values())).items() if times > 1
    ]
    if repeated:
        raise ValueError(
            f"several columns would be named {repeated[0]!r}: rename a column or a view."
        )
    dense = {
        view: _filled(table) if sparse.issparse(table) else table for view, table in tables.items()
    }
    join = _join_pandas if library == "pandas" else _join_polars
    return StackedViews(join(dense, names), names)


def _filled(table: MatrixLike) -> AnyArray:
    """Return a sparse table as an array: a row that lacks the table has NaN in all columns."""
    values: AnyArray = table.toarray()
    if values.dtype.kind == "f":
        values[np.isnan(values).any(axis=1)] = np.nan
    return values


def _join_pandas(tables: Settings, names: dict[str, list[str]]) -> MatrixLike:
    import pandas as pd

    indices = {view: table.index for view, table in tables.items() if _is_frame(table)}
    index = next(iter(indices.values()))
    for view, other in indices.items():
        if not index.equals(other):
            raise ValueError(
                f"view {view!r} has another index than view {next(iter(indices))!r}: bring the rows"
                " in one order, then give both the same index, or none by reset_index(drop=True)."
            )
    frames = [
        (
            table.set_axis(names[view], axis=1)
            if _is_frame(table)
            else pd.DataFrame(table, columns=names[view], index=index)
        )
        for view, table in tables.items()
    ]
    return pd.concat(frames, axis=1)


def _join_polars(tables: Settings, names: dict[str, list[str]]) -> MatrixLike:
    import polars as pl

    frames = [
        (
            table.rename(dict(zip(table.columns, names[view], strict=True)))
            if _is_frame(table)
            else pl.DataFrame(table, schema=names[view])
        )
        for view, table in tables.items()
    ]
    return pl.concat(frames, how="horizontal")
