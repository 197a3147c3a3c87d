"""Data frames of pandas and Polars as arrays read them: numbers, truth values, text, and categories
by their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from kernelmosaic._typing import AnyArray, Mask, MatrixLike

#: What columns without a number in them hold, by the name that pandas has for it.
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
#: The same of Polars.
_KINDS_OF_TIME_IN_POLARS = {
    "Date": "dates",
    "Datetime": "dates",
    "Duration": "time spans",
    "Time": "times of day",
}
#: What to give in their place.
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
    """Whether an object is a data frame of pandas; those of Dask, which stay where they are, are
    none."""
    return hasattr(X, "iloc") and hasattr(X, "columns") and _is_of(X, "pandas")


def is_polars(X: object) -> bool:
    """Whether an object is a data frame of Polars."""
    return hasattr(X, "get_columns") and _is_of(X, "polars")


def _is_of(X: object, library: str) -> bool:
    """Whether a class of an object is of a library."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(X).__mro__)


def is_series(X: object) -> bool:
    """Whether an object is one column of pandas or of Polars."""
    return type(X).__name__ == "Series" and hasattr(X, "to_numpy")


def is_sparse(X: object) -> bool:
    """Whether samples are a sparse matrix, or a data frame of pandas whose columns are all sparse,
    with zeros."""
    if sparse.issparse(X):
        return True
    if not is_pandas(X):
        return False
    frame: Any = X
    types = set(frame.dtypes)
    if not types or any(type(dtype).__name__ != "SparseDtype" for dtype in types):
        return False
    return all(dtype.fill_value == 0 and dtype.subtype.kind in "biuf" for dtype in types)


# Columns as arrays --------------------------------------------------------------------------------


def read_frame(X: MatrixLike) -> MatrixLike:
    """Return a data frame in whose columns NumPy finds numbers, truth values or objects.

    Categories become their labels. Whole numbers and truth values with empty cells become floats
    with NaN, numbers and text on Arrow become those of NumPy, and dates become objects. What is no
    data frame is returned as it is.
    """
    if is_pandas(X):
        foreign = [j for j, dtype in enumerate(X.dtypes) if not _is_plain(dtype)]
        return _with_columns(X, {j: column_values(X.iloc[:, j]) for j in foreign})
    if is_polars(X):
        return _read_polars(X)
    return X


def _is_plain(dtype: Any) -> bool:
    """Whether a column of pandas holds numbers or truth values of NumPy."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biufc"


def _with_columns(frame: MatrixLike, columns: dict[int, AnyArray]) -> MatrixLike:
    """Return a data frame of pandas in which some columns, by their numbers, are other arrays."""
    import pandas as pd

    if not columns:
        return frame
    changed = frame.copy(deep=False)
    for j, values in columns.items():
        # Without the type, newer versions of pandas would look for one that fits the text.
        changed.isetitem(j, pd.Series(values, index=frame.index, dtype=values.dtype))
    return changed


def _read_polars(frame: MatrixLike) -> MatrixLike:
    """Return a data frame of Polars whose categories are text and whose decimals are floats."""
    import polars as pl

    casts: dict[str, Any] = {}
    for name, dtype in frame.schema.items():
        if type(dtype).__name__ in ("Categorical", "Enum"):
            casts[name] = pl.String
        elif type(dtype).__name__ == "Decimal":
            casts[name] = pl.Float64
    if not casts:
        return frame
    return frame.with_columns(**{name: pl.col(name).cast(dtype) for name, dtype in casts.items()})


def series_values(column: Any) -> AnyArray:
    """Return a column of pandas or Polars as an array, with NaN or None in empty cells."""
    if hasattr(column, "iloc"):
        return column_values(column)
    return np.asarray(column.to_numpy())


def column_values(column: Any) -> AnyArray:
    """Return a column of pandas as an array of numbers, truth values or objects, with NaN in empty
    cells."""
    import pandas as pd

    dtype = column.dtype
    if _is_plain(dtype):
        return np.asarray(column)
    if isinstance(dtype, pd.SparseDtype):
        return column_values(column.sparse.to_dense())
    if _is_category(dtype):
        return _labels_of(column)
    if pd.api.types.is_numeric_dtype(dtype):
        has_gaps = bool(column.isna().any())
        # Decimals of Arrow are objects of Python in NumPy.
        of_numpy = np.dtype(getattr(dtype, "numpy_dtype", np.float64))
        if of_numpy.kind == "f":
            return np.asarray(column.to_numpy(dtype=of_numpy, na_value=np.nan))
        if has_gaps or of_numpy.kind not in "biu":
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(column.to_numpy(dtype=of_numpy))
    if pd.api.types.infer_dtype(column, skipna=True) == "decimal":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    objects: AnyArray = column.to_numpy(dtype=object)
    missing = column.isna().to_numpy()
    if missing.any():
        objects = np.where(missing, np.nan, objects)
    return objects


def _is_category(dtype: Any) -> bool:
    """Whether a column of pandas holds categories, its own ones or those of Arrow."""
    return type(dtype).__name__ == "CategoricalDtype" or str(dtype).startswith("dictionary<")


def _labels_of(column: Any) -> AnyArray:
    """Return the label of every cell of a column of categories."""
    import pandas as pd

    if not isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object).astype("category")
    categories = column.cat.categories.to_series()
    labels = column_values(categories)
    if _kind_of_time(categories) is not None:
        # An interval or a date that is a category is one by its name.
        labels = np.array([str(label) for label in categories], dtype=object)
    codes = column.cat.codes.to_numpy()
    if codes.min(initial=0) < 0:
        wide = np.float64 if labels.dtype.kind in "biu" else labels.dtype
        # An empty cell has the code −1, which takes the last label.
        labels = np.append(labels.astype(wide), np.array([np.nan], dtype=wide))
    return np.asarray(labels[codes])


# What the columns are -----------------------------------------------------------------------------


def category_columns(X: MatrixLike) -> set[int]:
    """Return the numbers of the columns that hold categories: by their type, whatever the labels,
    or text."""
    by_type = columns_of_category_type(X)
    if is_pandas(X):
        others = {j for j, dtype in enumerate(X.dtypes) if not _is_plain(dtype)} - by_type
        return by_type | {j for j in others if _has_text(column_values(X.iloc[:, j]))}
    if is_polars(X):
        others = {j for j, dtype in enumerate(X.dtypes) if not dtype.is_numeric()} - by_type
        return by_type | {j for j in others if _has_text(X.to_series(j).to_numpy())}
    return set()


def columns_of_category_type(X: MatrixLike) -> set[int]:
    """Return the numbers of the columns whose type says that they hold categories, numbers or
    not."""
    if is_pandas(X):
        return {
            j for j, dtype in enumerate(X.dtypes) if not _is_plain(dtype) and _is_category(dtype)
        }
    if is_polars(X):
        return {
            j for j, dtype in enumerate(X.dtypes) if type(dtype).__name__ in ("Categorical", "Enum")
        }
    return set()


def _has_text(values: AnyArray) -> bool:
    """Whether a text that is no number is among some values."""
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
    """Return what the columns hold that hold dates, spans of time, periods or intervals, by their
    numbers."""
    if is_pandas(X):
        kinds = {
            j: _kind_of_time(X.iloc[:, j])
            for j, dtype in enumerate(X.dtypes)
            if not _is_plain(dtype)
        }
        return {j: kind for j, kind in kinds.items() if kind is not None}
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
    """Return what a column of pandas holds if that is no number, no text and no category."""
    import pandas as pd

    if _is_category(column.dtype):
        return None
    return _KINDS_OF_TIME.get(pd.api.types.infer_dtype(column, skipna=True))


def refuse_times(X: MatrixLike, times: dict[int, str]) -> None:
    """Raise naming the first column of dates or the like, and what to give in its place."""
    if not times:
        return
    j = min(times)
    name = list(getattr(X, "columns", range(j + 1)))[j]
    raise ValueError(
        f"X: column {name!r} holds {times[j]} where numbers are needed: {_REMEDIES[times[j]]}, or"
        " leave the column out."
    )


def kinds_of_columns(X: MatrixLike, values: AnyArray) -> list[str]:
    """Return the kind of every column: ``"category"``, or the letter that NumPy has for the type of
    its values.

    Parameters
    ----------
    X : array or data frame
        Samples.
    values : ndarray
        The same as an array.
    """
    if is_pandas(X):
        return [_kind_of_column(X.iloc[:, j]) for j in range(X.shape[1])]
    if is_polars(X):
        return [_kind_of_series(dtype) for dtype in X.dtypes]
    return [values.dtype.kind] * values.shape[1]


def _kind_of_column(column: Any) -> str:
    """Return the kind of a column of pandas; of truth values also where it has empty cells."""
    import pandas as pd

    if _is_category(column.dtype):
        return "category"
    if pd.api.types.is_bool_dtype(column.dtype):
        return "b"
    return str(column_values(column).dtype.kind)


def _kind_of_series(dtype: Any) -> str:
    """Return the kind of a column of Polars by its type."""
    if type(dtype).__name__ == "Boolean":
        return "b"
    return "f" if dtype.is_numeric() else "O"


# Columns filled -----------------------------------------------------------------------------------


def fill_frame(frame: Any, empty: Mask, fill: list[Any]) -> Any:
    """Return a data frame with a value in every empty cell, columns of the same type where that
    holds the value.

    Parameters
    ----------
    frame : data frame of pandas or Polars
        Samples.
    empty : ndarray of bool
        The cells to be filled.
    fill : list
        What fills each column.
    """
    changed = np.flatnonzero(empty.any(axis=0)).tolist()
    if is_polars(frame):
        return frame.with_columns(
            [_fill_series(frame.to_series(j), empty[:, j], fill[j]) for j in changed]
        )
    filled = frame.copy(deep=False)
    for j in changed:
        filled.isetitem(j, _fill_column(frame.iloc[:, j], empty[:, j], fill[j]))
    return filled


def _fill_column(column: Any, empty: Mask, value: Any) -> Any:
    """Return a column of pandas with a value in its empty cells."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        if value not in column.cat.categories:
            column = column.cat.add_categories([value])
        return column.where(~empty, value)
    cells = column_values(column).astype(object)
    cells[empty] = value
    # The type of the column, else that of numbers, else none.
    for dtype in (column.dtype, np.dtype(np.float64)):
        try:
            filled = pd.Series(cells, index=column.index, dtype=object).astype(dtype)
        except (TypeError, ValueError, NotImplementedError):
            continue
        if all(cell == value for cell in filled[empty]):
            return filled
    return pd.Series(cells, index=column.index, dtype=object)


def _fill_series(column: Any, empty: Mask, value: Any) -> Any:
    """Return a column of Polars with a value in its empty cells."""
    import polars as pl

    cells = [
        value if is_gap else cell
        for cell, is_gap in zip(column.to_list(), empty.tolist(), strict=True)
    ]
    try:
        return pl.Series(column.name, cells, dtype=column.dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(column.name, cells, strict=False)
