"""What the columns of a table hold, and whether they can be used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

NUMBERS, CATEGORIES, SEQUENCES, TEXT = "numbers", "categories", "sequences", "free text"

#: A column is one of categories if it has at most this many different texts, each twice on average.
_MOST_CATEGORIES = 50
#: Strings this long, over letters as few as an alphabet has, are sequences.
_SHORTEST_SEQUENCE = 8
_LARGEST_ALPHABET = 26
#: From this share of numbers on, the texts among them are mistakes, not categories.
_MOSTLY = 0.5
#: How some programs write 0.5: no number here, but no category either.
_DECIMAL_COMMA = r"\s*[+-]?\d*,\d+\s*"
#: Above this, a sum of squares overflows.
_LARGEST = 1e150
#: Whole numbers are classes if there are at most this many of them, each twice on average.
_MOST_CLASSES = 20


def kind_of(column: pd.Series) -> str:
    """Return what a column holds: numbers, categories, sequences (of letters) or free text."""
    if pd.api.types.is_numeric_dtype(column.dtype):  # truth values among them
        return NUMBERS
    texts = column.dropna().astype(str)
    if len(texts) == 0:
        return NUMBERS  # an empty column: which row is missing will be said
    is_number = pd.to_numeric(texts, errors="coerce").notna() | texts.str.fullmatch(_DECIMAL_COMMA)
    if is_number.mean() >= _MOSTLY:
        return NUMBERS  # those with a comma will be refused as they are read, with a word on why
    n_distinct = texts.nunique()
    if n_distinct <= min(_MOST_CATEGORIES, max(len(texts) / 2, 2)):
        return CATEGORIES
    letters = set("".join(texts))
    is_sequence = texts.str.len().min() >= _SHORTEST_SEQUENCE and len(letters) <= _LARGEST_ALPHABET
    return SEQUENCES if is_sequence and all(c.isalpha() or c in "-*" for c in letters) else TEXT


def require(table: pd.DataFrame, names: Iterable[str], where: Any) -> None:
    """Refuse a table without these columns."""
    lost = [name for name in names if name not in table.columns]
    if lost:
        shown = ", ".join(map(repr, lost[:5])) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
        known = ", ".join(map(repr, table.columns[:8])) + (" …" if len(table.columns) > 8 else "")
        spelt = {str(name).lower(): name for name in table.columns}
        near = get_close_matches(lost[0].lower(), spelt, n=1) if len(lost) == 1 else []
        hint = f" did you mean {spelt[near[0]]!r}?" if near else ""
        if not hint and any(re.fullmatch(r"[-+.\d]+", str(name)) for name in table.columns):
            hint = " the first line is read as the names of the columns:"
        raise ValueError(f"{where} has no column {shown};{hint} its columns are {known}.")


def numbers(table: pd.DataFrame, names: Sequence[str], where: Any) -> pd.DataFrame:
    """Return columns as finite numbers, or raise naming the row and column that are not."""
    made = {}
    for name in names:
        column = table[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            column = pd.to_numeric(column, errors="coerce")
            wrong = column.isna() & table[name].notna()
            if wrong.any():
                row = int(np.argmax(wrong.to_numpy()))
                cell = table[name].iloc[row]
                hint = "; write decimals with a point" if re.fullmatch(_DECIMAL_COMMA, str(cell)) else ""
                raise ValueError(f"{where}, row {row + 1}, column {name!r}: {cell!r} is not a number{hint}.")
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        refuse_missing(np.isnan(values), name, where)
        endless = np.isinf(values)
        if endless.any():
            raise ValueError(f"{where}, row {int(np.argmax(endless)) + 1}, column {name!r} is infinite: mend the cell.")
        large = np.abs(values) > _LARGEST
        if large.any():
            row = int(np.argmax(large))
            raise ValueError(
                f"{where}, row {row + 1}, column {name!r}: {values[row]:g} is too large to compute with; measure the "
                "column in another unit."
            )
        made[name] = values
    return pd.DataFrame(made, index=range(len(table)))


def texts(table: pd.DataFrame, names: Sequence[str], where: Any) -> pd.DataFrame:
    """Return columns as texts, none missing."""
    for name in names:
        refuse_missing(table[name].isna().to_numpy(), name, where)
    made = {name: np.array([str(value) for value in table[name]], dtype=object) for name in names}
    return pd.DataFrame(made, index=range(len(table)), dtype=object)


def refuse_missing(missing: NDArray[np.bool_], name: str, where: Any) -> None:
    """Raise naming the first row that has nothing."""
    if missing.any():
        row, more = int(np.argmax(missing)), int(missing.sum()) - 1
        others = f" (and {more} more)" if more else ""
        raise ValueError(
            f"{where}, row {row + 1}{others}, column {name!r} is empty: fill it in, or leave out the row or column."
        )


def looks_like_an_index(column: pd.Series) -> bool:
    """Whether a column is what some program wrote to number the rows."""
    name = str(column.name).strip().lower()
    return (name in ("", "id", "index") or name.startswith("unnamed: ")) and column.nunique() == len(column)


# Targets ------------------------------------------------------------------------------------------------------------


def target_of(table: pd.DataFrame, name: str, where: Any) -> pd.Series:
    """Return the target column, which must be there and complete."""
    require(table, [name], where)
    refuse_missing(table[name].isna().to_numpy(), name, where)
    return table[name]


def guess_task(target: pd.Series) -> str:
    """Return what a target asks for: "classification" or "regression"."""
    if pd.api.types.is_bool_dtype(target.dtype):
        return "classification"
    if not pd.api.types.is_numeric_dtype(target.dtype):
        # Many numbers and a few texts among them: a quantity with mistakes in it, which will be named.
        is_quantity = kind_of(target) == NUMBERS and target.nunique() > _MOST_CLASSES
        return "regression" if is_quantity else "classification"
    values = target.to_numpy(dtype=np.float64)
    whole = bool(np.all(values == np.floor(values)))
    return "classification" if whole and target.nunique() <= min(_MOST_CLASSES, len(values) / 2) else "regression"


def labels_of(target: pd.Series) -> NDArray[Any]:
    """Return classes as an array of whole numbers, truth values or texts."""
    if pd.api.types.is_bool_dtype(target.dtype):
        return np.asarray(target, dtype=bool)
    if pd.api.types.is_numeric_dtype(target.dtype):
        values = np.asarray(target, dtype=np.float64)
        if np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53):
            return values.astype(np.int64)
    return np.array([str(value) for value in target])
