"""Columns of pandas and Polars data frames: their values as NumPy arrays, and what they hold.

A column holds numbers, truth values, text, categories, or times: dates, time spans and the like.
Numbers of columns are their positions, from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from kernelmosaic._typing import AnyArray, Mask, MatrixLike

#: Names of kinds of time in errors, by the name that pandas infers for a column.
_KINDS_OF_TIME = {
    "datetime64": "dates",
    "datetime": "dates",
    "date": "dates",
    "timedelta64": "time spans",
    "timedelta": "time spans",
    "period": "periods",
    "interval": "intervals",
    "time": "times of day",
}
#: The same, by the name of the Polars type.
_KINDS_OF_TIME_IN_POLARS = {
    "Date": "dates",
    "Datetime": "dates",
    "Duration": "time spans",
    "Time": "times of day",
}
#: What users can give in place of times, by the kind of time.
_REMEDIES = {
    "dates": "give numbers, such as the days since a fixed date",
    "time spans": "give numbers, such as days or seconds",
    "periods": "give numbers, such as years, or the periods as text",
    "intervals": (
        "give the middle of each as a number, or the column as categories, by astype('category')"
    ),
    "times of day": "give numbers, such as hours",
}


def is_pandas(X: object) -> bool:
    """Whether an object is a data frame of pandas; one of Dask, which is not loaded, is none."""
    return hasattr(X, "iloc") and hasattr(X, "columns") and _is_of(X, "pandas")


def is_polars(X: object) -> bool:
    """Whether an object is a data frame of Polars."""
    return hasattr(X, "get_columns") and _is_of(X, "polars")


def _is_of(X: object, library: str) -> bool:
    """Whether the class of an object, or a base of it, is defined in a library."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(X).__mro__)


def is_series(X: object) -> bool:
    """Whether an object is one column of pandas or of Polars."""
    return type(X).__name__ == "Series" and hasattr(X, "to_numpy")


def is_sparse(X: object) -> bool:
    """Whether samples are a sparse matrix, or a pandas data frame of sparse columns of zeros."""
    if sparse.issparse(X):
        return True
    if not is_pandas(X):
        return False
    frame: Any = X
    dtypes = set(frame.dtypes)
    if not dtypes or any(type(dtype).__name__ != "SparseDtype" for dtype in dtypes):
        return False
    return all(dtype.fill_value == 0 and dtype.subtype.kind in "biuf" for dtype in dtypes)


# Columns as arrays --------------------------------------------------------------------------------


def read_frame(X: MatrixLike) -> MatrixLike:
    """Return a data frame in whose columns NumPy finds numbers, truth values or objects.

    Categories become their labels. Whole numbers and truth values with empty cells become floats
    with NaN, numbers and text of Arrow become those of NumPy, and dates become objects. Samples
    that are no data frame are returned as they are.
    """
    if is_pandas(X):
        other_columns = [j for j, dtype in enumerate(X.dtypes) if not _is_plain(dtype)]
        return _with_columns(X, {j: column_values(X.iloc[:, j]) for j in other_columns})
    if is_polars(X):
        return _read_polars(X)
    return X


def _is_plain(dtype: Any) -> bool:
    """Whether the type of a pandas column is one of NumPy for numbers or truth values."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biufc"


def _with_columns(frame: MatrixLike, columns: dict[int, AnyArray]) -> MatrixLike:
    """Return a pandas data frame with other values in the columns of these numbers."""
    import pandas as pd

    if not columns:
        return frame
    changed = frame.copy(deep=False)
    for j, values in columns.items():
        # Without a dtype, newer versions of pandas would infer one of their own for text.
        changed.isetitem(j, pd.Series(values, index=frame.index, dtype=values.dtype))
    return changed


def _read_polars(frame: MatrixLike) -> MatrixLike:
    """Return a Polars data frame with categories as text and decimals as floats."""
    import polars as pl

    new_types: dict[str, Any] = {}
    for name, dtype in frame.schema.items():
        if type(dtype).__name__ in ("Categorical", "Enum"):
            new_types[name] = pl.String
        elif type(dtype).__name__ == "Decimal":
            new_types[name] = pl.Float64
    if not new_types:
        return frame
    return frame.with_columns(
        **{name: pl.col(name).cast(dtype) for name, dtype in new_types.items()}
    )


def series_values(column: Any) -> AnyArray:
    """Return a column of pandas or Polars as an array, with NaN or None in empty cells."""
    if hasattr(column, "iloc"):
        return column_values(column)
    return np.asarray(column.to_numpy())


def column_values(column: Any) -> AnyArray:
    """Return a pandas column as an array of numbers, truth values or objects.

    Empty cells are NaN. Categories are given by their labels.
    """
    import pandas as pd

    dtype = column.dtype
    if _is_plain(dtype):
        return np.asarray(column)
    if isinstance(dtype, pd.SparseDtype):
        return column_values(column.sparse.to_dense())
    if _is_category(dtype):
        return _labels_of(column)
    if pd.api.types.is_numeric_dtype(dtype):
        return _numeric_values(column)
    if pd.api.types.infer_dtype(column, skipna=True) == "decimal":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    objects: AnyArray = column.to_numpy(dtype=object)
    missing = column.isna().to_numpy()
    if missing.any():
        objects = np.where(missing, np.nan, objects)
    return objects


def _numeric_values(column: Any) -> AnyArray:
    """Return the numbers of a pandas column of pandas' own types or those of Arrow.

    Empty cells are NaN.
    """
    has_gaps = bool(column.isna().any())
    # Decimals of Arrow have no NumPy type of numbers but objects of Python.
    numpy_dtype = np.dtype(getattr(column.dtype, "numpy_dtype", np.float64))
    if numpy_dtype.kind == "f":
        return np.asarray(column.to_numpy(dtype=numpy_dtype, na_value=np.nan))
    if has_gaps or numpy_dtype.kind not in "biu":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(column.to_numpy(dtype=numpy_dtype))


def _is_category(dtype: Any) -> bool:
    """Whether the type of a pandas column is one for categories, of pandas or of Arrow."""
    return type(dtype).__name__ == "CategoricalDtype" or str(dtype).startswith("dictionary<")


def _labels_of(column: Any) -> AnyArray:
    """Return the label of every cell of a column of categories, NaN where a cell is empty."""
    import pandas as pd

    if not isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object).astype("category")
    categories = column.cat.categories.to_series()
    labels = column_values(categories)
    if _kind_of_time(categories) is not None:
        # An interval or a date that is a category counts by its name.
        labels = np.array([str(label) for label in categories], dtype=object)
    codes = column.cat.codes.to_numpy()
    if codes.min(initial=0) < 0:
        # An empty cell has the code −1, which selects the last label: NaN.
        label_dtype = np.float64 if labels.dtype.kind in "biu" else labels.dtype
        labels = np.append(labels.astype(label_dtype), np.array([np.nan], dtype=label_dtype))
    return np.asarray(labels[codes])


# What columns hold --------------------------------------------------------------------------------


def category_columns(X: MatrixLike) -> set[int]:
    """Return the numbers of the columns that hold text, or are of a type for categories."""
    by_type = columns_of_category_type(X)
    if is_pandas(X):
        columns = {j: X.iloc[:, j] for j, dtype in enumerate(X.dtypes) if not _is_plain(dtype)}
        values = {j: column_values(column) for j, column in columns.items() if j not in by_type}
    elif is_polars(X):
        columns = {j: X.to_series(j) for j, dtype in enumerate(X.dtypes) if not dtype.is_numeric()}
        values = {j: column.to_numpy() for j, column in columns.items() if j not in by_type}
    else:
        return set()
    return by_type | {j for j, cells in values.items() if _has_text(cells)}


def columns_of_category_type(X: MatrixLike) -> set[int]:
    """Return the numbers of the columns of a type for categories, whatever the labels are."""
    if is_pandas(X):
        return {
            j for j, dtype in enumerate(X.dtypes) if not _is_plain(dtype) and _is_category(dtype)
        }
    if is_polars(X):
        names = [type(dtype).__name__ for dtype in X.dtypes]
        return {j for j, name in enumerate(names) if name in ("Categorical", "Enum")}
    return set()


def _has_text(values: AnyArray) -> bool:
    """Whether one of the values is a text that does not read as a number."""
    if values.dtype.kind not in "OU":
        return False
    return any(isinstance(value, str) and not is_number(value) for value in values.tolist())


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def time_columns(X: MatrixLike) -> dict[int, str]:
    """Return the kind of time, such as ``"dates"``, of the columns that hold times, by number."""
    if is_pandas(X):
        kind_of_column = {}
        for j, dtype in enumerate(X.dtypes):
            kind = None if _is_plain(dtype) else _kind_of_time(X.iloc[:, j])
            if kind is not None:
                kind_of_column[j] = kind
        return kind_of_column
    if is_polars(X):
        names = [type(dtype).__name__ for dtype in X.dtypes]
        return {
            j: _KINDS_OF_TIME_IN_POLARS[name]
            for j, name in enumerate(names)
            if name in _KINDS_OF_TIME_IN_POLARS
        }
    dtype = getattr(X, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return dict.fromkeys(range(X.shape[-1]), "dates" if dtype.kind == "M" else "time spans")
    return {}


def _kind_of_time(column: Any) -> str | None:
    """Return the kind of time that a pandas column holds; None for categories and all else."""
    import pandas as pd

    if _is_category(column.dtype):
        return None
    return _KINDS_OF_TIME.get(pd.api.types.infer_dtype(column, skipna=True))


def refuse_times(X: MatrixLike, times: dict[int, str]) -> None:
    """Raise if a column holds times, naming the first one and what to give in its place.

    Parameters
    ----------
    X : array or data frame
        Samples.
    times : dict from int to str
        The result of `time_columns` for them.
    """
    if not times:
        return
    j = min(times)
    name = list(getattr(X, "columns", range(j + 1)))[j]
    raise ValueError(
        f"X: column {name!r} holds {times[j]} where numbers are needed: {_REMEDIES[times[j]]}, or"
        " leave the column out."
    )


def kinds_of_columns(X: MatrixLike, values: AnyArray) -> list[str]:
    """Return the kind of every column: ``"category"``, or NumPy's letter for the type of values.

    Parameters
    ----------
    X : array or data frame
        Samples.
    values : ndarray
        The same samples as an array.
    """
    if is_pandas(X):
        return [_kind_of_column(X.iloc[:, j]) for j in range(X.shape[1])]
    if is_polars(X):
        return [_kind_of_series(dtype) for dtype in X.dtypes]
    return [values.dtype.kind] * values.shape[1]


def _kind_of_column(column: Any) -> str:
    """Return the kind of a pandas column; truth values keep theirs beside empty cells."""
    import pandas as pd

    if _is_category(column.dtype):
        return "category"
    if pd.api.types.is_bool_dtype(column.dtype):
        return "b"
    return str(column_values(column).dtype.kind)


def _kind_of_series(dtype: Any) -> str:
    """Return the kind of a Polars column by its type: ``"b"``, ``"f"`` or ``"O"``."""
    if type(dtype).__name__ == "Boolean":
        return "b"
    return "f" if dtype.is_numeric() else "O"


# Filling empty cells ------------------------------------------------------------------------------


def fill_frame(frame: Any, empty: Mask, fill: list[Any]) -> Any:
    """Return a data frame with a value in every empty cell.

    A column keeps its type if that can hold the value.

    Parameters
    ----------
    frame : data frame of pandas or Polars
        Samples.
    empty : ndarray of bool of shape (n_samples, n_columns)
        The cells to be filled.
    fill : list
        The value for the empty cells of each column.
    """
    changed_columns = np.flatnonzero(empty.any(axis=0)).tolist()
    if is_polars(frame):
        return frame.with_columns(
            [_fill_series(frame.to_series(j), empty[:, j], fill[j]) for j in changed_columns]
        )
    filled = frame.copy(deep=False)
    for j in changed_columns:
        filled.isetitem(j, _fill_column(frame.iloc[:, j], empty[:, j], fill[j]))
    return filled


def _fill_column(column: Any, empty: Mask, value: Any) -> Any:
    """Return a pandas column with a value in its empty cells."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        if value not in column.cat.categories:
            column = column.cat.add_categories([value])
        return column.where(~empty, value)
    cells = column_values(column).astype(object)
    cells[empty] = value
    # The type of the column is tried first, then floats; otherwise the cells stay objects.
    for dtype in (column.dtype, np.dtype(np.float64)):
        try:
            filled = pd.Series(cells, index=column.index, dtype=object).astype(dtype)
        except (TypeError, ValueError, NotImplementedError):
            continue
        if all(cell == value for cell in filled[empty]):
            return filled
    return pd.Series(cells, index=column.index, dtype=object)


def _fill_series(column: Any, empty: Mask, value: Any) -> Any:
    """Return a Polars column with a value in its empty cells."""
    import polars as pl

    cells = column.to_list()
    for row in np.flatnonzero(empty).tolist():
        cells[row] = value
    try:
        return pl.Series(column.name, cells, dtype=column.dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(column.name, cells, strict=False)
