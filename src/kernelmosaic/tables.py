"""Tables from CSV, TSV, Parquet and NPZ, matrices from NPY, NPZ and CSV, and what the columns of a
table hold."""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Array, Mask, Settings
from kernelmosaic.files import existing_file, write_bytes, write_text
from kernelmosaic.frames import is_number
from kernelmosaic.stacking import list_columns

#: What a cell of delimited text holds where a value is missing.
MISSING_MARKS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")

#: How texts say yes and no. Where all cells of a column do, it holds truth values, which count as
#: one and zero.
_TRUTH_VALUES = {
    "True": True,
    "TRUE": True,
    "true": True,
    "False": False,
    "FALSE": False,
    "false": False,
}


def read_table(path: Path, texts: Mapping[str, Collection[str]] | None = None) -> pd.DataFrame:
    """Return the table in a file, or raise saying what is wrong with it and where.

    Parameters
    ----------
    path : Path
    texts : mapping of str to collection of str, default=None
        Columns of delimited text that are read as they are written, each with the marks of its
        missing cells. The types of all other columns follow from what they hold: 007 is the number
        7 there. Files of other formats have types of their own.
    """
    _check_there(path)
    ending = path.suffix.lower()
    if ending in _TEXT_FILES:
        table = _read_text(path, texts or {})
    elif ending in _BINARY_READERS:
        table = _BINARY_READERS[ending](path)
    else:
        raise ValueError(
            f"{path}: unsupported file type; use {', '.join((*_TEXT_FILES, *_BINARY_READERS))}."
        )
    names = [str(name) for name in table.columns]
    _check_repeated(path, names)
    if len(table) == 0:
        raise ValueError(f"{path} holds no rows below the header; give at least one.")
    table.columns = names
    # Of categories that are numbers the type alone says that they are categories.
    coded = [name for name in names if isinstance(table[name].dtype, pd.CategoricalDtype)]
    texts_with_codes = [name for name in coded if not _has_numbers_as_categories(table[name])]
    table = table.astype(dict.fromkeys(texts_with_codes, object))
    for name in names:
        if table[name].dtype == object and any(type(cell) is int for cell in table[name]):
            # Whole numbers of more than 64 bits, which no array of numbers holds: texts until they
            # are computed with.
            table[name] = [str(cell) if type(cell) is int else cell for cell in table[name]]
    return table


def _has_numbers_as_categories(column: pd.Series) -> bool:
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    return is_categorical and pd.api.types.is_numeric_dtype(column.cat.categories.dtype)


def read_as_written(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Return some columns of a file whose table was read without an error, every cell as it stands
    there."""
    if path.suffix.lower() not in _TEXT_FILES:
        return read_table(path)[list(names)]
    first_line = pd.read_csv(path, **_text_options(path), nrows=0)
    columns = pd.read_csv(
        path,
        **_text_options(path),
        usecols=[first_line.columns.get_loc(name) for name in names],
        dtype=object,
        na_filter=False,
    )
    return columns[list(names)]


def named_indices(path: Path) -> list[str]:
    """Return the columns of a Parquet file that pandas wrote as an index with a name; none of other
    files."""
    if path.suffix.lower() != ".parquet":
        return []
    indices = pd.read_parquet(path, columns=[]).index.names
    return [str(name) for name in indices if name is not None]


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table in the format of its file name, whole or not at all."""
    if path.suffix.lower() == ".parquet":
        write_bytes(path, table.to_parquet(index=False))
    else:
        write_text(path, table_text(table, "\t" if path.suffix.lower() == ".tsv" else ","))


def table_text(table: pd.DataFrame, delimiter: str = ",") -> str:
    """Return a table as delimited text, in which no cell is a formula to a spreadsheet."""
    harmless = table.copy()
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name].dtype):
            harmless[name] = [_harmless(value) for value in table[name]]
    harmless.columns = [_harmless(name) for name in table.columns]
    # A carriage return ends a row, too, unless it is quoted, which pandas does of itself for the
    # other sign only.
    split = any(
        isinstance(cell, str) and "\r" in cell
        for cell in [*harmless.columns, *harmless.to_numpy().flat]
    )
    quoting = csv.QUOTE_NONNUMERIC if split else csv.QUOTE_MINIMAL
    return str(harmless.to_csv(index=False, sep=delimiter, lineterminator="\n", quoting=quoting))


def _harmless(cell: Any) -> Any:
    """Return a text that a spreadsheet would run with an apostrophe before it; numbers stay
    numbers."""
    if (
        not isinstance(cell, str)
        or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        or is_number(cell)
    ):
        return cell
    return f"'{cell}"


def _check_repeated(path: Path, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{path}: the column {repeated[0]!r} occurs {names.count(repeated[0])} times; rename"
            " one."
        )


def _check_there(path: Path, what: str = "a table") -> None:
    if existing_file(path, what).stat().st_size == 0:
        raise ValueError(f"{path} is empty; give a file that holds {what}.")


# Text ---------------------------------------------------------------------------------------------


def _text_options(path: Path) -> dict[str, Any]:
    """How pandas is to read delimited text: nothing guessed but the types of columns."""
    # Numbers are read as they were written, which pandas 3.1 does by itself, with a warning if it
    # is requested.
    is_older = [*map(int, pd.__version__.split(".")[:2])] < [3, 1]
    precision = {"float_precision": "round_trip"} if is_older else {}
    return {
        "sep": _delimiter(path),
        "encoding": "utf-8-sig",
        "index_col": False,
        "keep_default_na": False,
        "low_memory": False,
        **precision,
    }


def _read_text(path: Path, texts: Mapping[str, Collection[str]]) -> pd.DataFrame:
    delimiter = _delimiter(path)
    lines = _rows_of_text(path, delimiter)
    head = next(lines, [])
    if not head:
        raise ValueError(f"{path} holds blank lines only; give a file that holds a table.")
    _check_repeated(path, head)
    # What pandas would fill up or cut off silently is refused here, with the line's number.
    try:
        deque(lines, maxlen=0)
    except _LongCell:
        deque(_rows_of_text(path, delimiter, shortened=True), maxlen=0)
    names = [name or f"Unnamed: {place}" for place, name in enumerate(head)]  # as pandas calls them
    as_written = [name for name in names if name in texts]
    marks: Any = list(MISSING_MARKS)
    if as_written:
        marks = {name: list(texts.get(name, MISSING_MARKS)) for name in names}
    read = partial(pd.read_csv, path, **_text_options(path), na_values=marks)
    try:
        return read(dtype=dict.fromkeys(as_written, object))
    except (
        OverflowError
    ):  # pandas before 3 makes a float of every whole number, of hundreds of digits too
        table = read(dtype=object)
        for name in table.columns.difference(as_written):
            numbers = pd.to_numeric(table[name], errors="coerce")
            if np.isfinite(numbers[table[name].notna()]).all():
                table[name] = numbers
        return table


def _delimiter(path: Path) -> str:
    """Return the sign that divides the lines: a comma, a semicolon or a tab.

    It is the one that occurs most in the first line, quoted names left out. Where several occur, as
    in names with commas, those come first that divide the next lines into as many cells; and of a
    .tsv, the tab does.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = re.sub('"[^"]*"', "", file.readline())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}; save it as UTF-8."
        ) from None
    signs = sorted(",;\t", key=first.count, reverse=True)
    candidates = [sign for sign in signs if sign in first]
    if path.suffix.lower() == ".tsv" and "\t" in candidates:
        return "\t"
    if len(candidates) > 1:
        candidates.sort(key=lambda sign: not _divides_evenly(path, sign))
    return candidates[0] if candidates else signs[0]


def _divides_evenly(path: Path, delimiter: str, n_lines: int = 20) -> bool:
    """Whether the first lines have as many cells each."""
    try:
        deque(islice(_rows_of_text(path, delimiter, shortened=True), n_lines), maxlen=0)
    except ValueError:
        return False
    return True


class _LongCell(ValueError):
    """A cell is longer than the csv module reads."""


def _rows_of_text(path: Path, delimiter: str, shortened: bool = False) -> Iterator[list[str]]:
    """Yield the rows, blank ones left out, all as long as the first.

    The limit of the csv module on the length of a cell belongs to the whole process and is left as
    it is. If `shortened`, what stands between delimiters, quotes and line ends below the first line
    is cut to one letter: the rows are divided as they are, and a cell may hold a whole genome.
    """
    width = None
    plain = re.compile(rf'[^{re.escape(delimiter)}"\r\n]{{2,}}')
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = (plain.sub("x", line) if shortened and i else line for i, line in enumerate(file))
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if not row:
                    continue
                width = len(row) if width is None else width
                if len(row) != width:
                    raise ValueError(
                        f"{path}, line {rows.line_num}: {len(row)} cells, but the first line has"
                        f" {width}."
                    )
                yield row
        except csv.Error as error:
            where = f"{path}, line {rows.line_num}"
            if "field limit" in str(error):
                raise _LongCell(
                    f"{where}: a cell is too long ({error}); shorten it, or write Parquet."
                ) from None
            raise ValueError(f"{where}: {error}.") from None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, after line {rows.line_num}: not text in UTF-8 ({error.reason})."
            ) from None


# Binary -------------------------------------------------------------------------------------------


def _read_parquet(path: Path) -> pd.DataFrame:
    """Return the table, an index with a name as a column; one without a name numbers the rows.

    Parquet keeps categories that are numbers as numbers, beside a remark of pandas on what they
    were.
    """
    try:
        table = pd.read_parquet(path)
        from pyarrow.parquet import read_schema

        described = (read_schema(path).pandas_metadata or {}).get("columns", [])
    except ImportError as error:
        raise ImportError(
            'Parquet files need pyarrow: pip install "kernelmosaic[frames]"'
        ) from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file, or a damaged one: {error}") from None
    coded = {entry["name"] for entry in described if entry["pandas_type"] == "categorical"}
    table = table.astype({name: "category" for name in table.columns if str(name) in coded})
    unnamed = [level for level, name in enumerate(table.index.names) if name is None]
    _check_repeated(
        path, [str(name) for name in (*table.index.names, *table.columns) if name is not None]
    )
    if len(unnamed) == table.index.nlevels:
        return table.reset_index(drop=True)
    return (
        table.reset_index(level=unnamed, drop=True).reset_index()
        if unnamed
        else table.reset_index()
    )


def load_arrays(path: Path) -> dict[str, AnyArray]:
    """Return the arrays of an NPZ file by name, or that of an NPY file under ``""``; nothing
    pickled is read."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, BadZipFile):
        raise ValueError(
            f"{path} is not an archive of plain NumPy arrays, or a damaged one; numpy.save and"
            " numpy.savez write such, of numbers or texts."
        ) from None


def _read_npz(path: Path) -> pd.DataFrame:
    arrays = load_arrays(path)
    names = arrays.pop("feature_names", None)
    arrays = {name: array for name, array in arrays.items() if array.ndim in (1, 2)}
    if not arrays:
        raise ValueError(f"{path}: no array with one row per sample, such as X and y.")
    n = len(arrays["X"] if "X" in arrays else max(arrays.values(), key=lambda array: array.ndim))
    parts = []
    for name, array in arrays.items():
        if len(array) != n:
            raise ValueError(
                f"{path}: {name} has {len(array)} rows, others {n}; every array needs one per"
                " sample."
            )
        labels = [name] if array.ndim == 1 else [f"{name}_{j}" for j in range(array.shape[1])]
        if name == "X" and array.ndim == 2 and names is not None:
            if names.shape != (array.shape[1],):
                raise ValueError(
                    f"{path}: feature_names has shape {names.shape}, but X has {array.shape[1]}"
                    " columns."
                )
            labels = [str(label) for label in names]
        decoded = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        # A field of a structured array is no column.
        parts.append(pd.DataFrame({name: decoded} if array.ndim == 1 else decoded, columns=labels))
    return pd.concat(parts, axis=1)


_TEXT_FILES = (".csv", ".tsv", ".txt")
_BINARY_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}


# Matrices -----------------------------------------------------------------------------------------


def read_matrix(path: Path, name: str) -> Array:
    """Return a matrix of numbers; of an archive with several, the one called `name` or K."""
    _check_there(path, "a matrix")
    if path.suffix.lower() not in (".npy", ".npz", ".csv", ".tsv", ".txt"):
        raise ValueError(f"{path}: a matrix is read from .npy, .npz, .csv or .tsv.")
    if path.suffix.lower() in (".npy", ".npz"):
        arrays = load_arrays(path)
        known = [key for key in (name, "K") if key in arrays] or list(arrays)
        if len(known) > 1 and known[0] not in (name, "K"):
            raise ValueError(f"{path} holds {', '.join(arrays)}: call the matrix {name} or K.")
        matrix = arrays[known[0]]
    else:
        matrix = _matrix_of_text(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {matrix.dtype} of shape {matrix.shape} is not a numeric matrix.")
    return np.asarray(matrix, dtype=np.float64)


def _matrix_of_text(path: Path) -> Array:
    """The numbers of a delimited file, without a first line or column of names if there is one."""
    rows = list(_rows_of_text(path, _delimiter(path)))
    if len(rows) > 1 and not all(map(is_number, rows[0][1:])):
        rows = rows[1:]
    if not is_number(rows[0][0]):
        rows = [row[1:] for row in rows]
    for i, row in enumerate(rows, start=1):
        for j, cell in enumerate(row, start=1):
            if not is_number(cell):
                raise ValueError(f"{path}, matrix row {i}, column {j}: {cell!r} is not a number.")
    return np.array(rows, dtype=np.float64)


def kind_of(column: pd.Series) -> str:
    """Return what a column holds: numbers, categories, sequences (of letters) or free text."""
    if pd.api.types.is_numeric_dtype(column.dtype):  # truth values among them
        return "numbers"
    texts = column.dropna().astype(str)
    if len(texts) and _has_numbers_as_categories(column) and _is_repeated(texts):
        return "categories"
    if texts.isin([*_TRUTH_VALUES]).all():
        # Truth values, some of them missing; of an empty column the error names the missing row.
        return "numbers"
    read = pd.to_numeric(texts, errors="coerce").notna()
    is_number = (
        read | texts.map(_has_decimal_comma).astype(bool) | texts.map(_is_whole).astype(bool)
    )
    if is_number.mean() >= 0.5:  # the texts among them are mistakes, not categories
        return "numbers"  # those with a comma will be refused as they are read, with a word on why
    if _is_repeated(texts):
        return "categories"
    letters = set("".join(texts))
    is_sequence = (
        texts.str.len().min() >= 8 and len(letters) <= 26
    )  # long, over as few letters as an alphabet has
    return (
        "sequences"
        if is_sequence and all(c.isalpha() or c in "-*" for c in letters)
        else "free text"
    )


def _is_repeated(texts: pd.Series) -> bool:
    """Whether there are not many different texts, each twice on average."""
    return bool(texts.nunique() <= min(50, max(len(texts) / 2, 2)))


def require(table: pd.DataFrame, names: Iterable[str], where: object) -> None:
    """Refuse a table without these columns."""
    lost = [name for name in names if name not in table.columns]
    if lost:
        known = ", ".join(map(repr, table.columns[:8])) + (" …" if len(table.columns) > 8 else "")
        hint = meant(lost[0], table.columns) if len(lost) == 1 else ""
        if not hint and any(re.fullmatch(r"[-+.\d]+", str(name)) for name in table.columns):
            hint = " the first line is read as the names of the columns:"
        verb = "has no" if len(lost) == 1 else "lacks"
        raise ValueError(f"{where} {verb} {list_columns(lost)};{hint} its columns are {known}.")


def meant(name: str, known: Iterable[str]) -> str:
    """Return the question whether one of the known names is meant that is spelt nearly alike; empty
    if none is."""
    spelt = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), spelt, n=1)
    return f" did you mean {spelt[near[0]]!r}?" if near else ""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a column: the first row, how many there are, and what would correct it."""

    column: str
    row: int
    count: int
    what: str
    remedy: str = ""

    @classmethod
    def at(
        cls, wrong: Any, column: str, what: Callable[[int], str], remedy: str = ""
    ) -> list[Fault]:
        """Return the fault of the rows that are wrong, if any, in words for the first."""
        rows = np.flatnonzero(np.asarray(wrong))
        return (
            [cls(column, int(rows[0]), len(rows), what(int(rows[0])), remedy)] if len(rows) else []
        )

    def __str__(self) -> str:
        others = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"row {self.row + 1}{others}, column {self.column!r}{self.what}"


class BadCells(ValueError):
    """What `refuse` raises; `faults` are those it names."""

    def __init__(self, message: str, faults: Sequence[Fault]) -> None:
        super().__init__(message)
        self.faults = list(faults)


def refuse(faults: Sequence[Fault], where: object, most: int = 5) -> None:
    """Raise naming the columns that cannot be used, a handful of them, and what would correct
    them."""
    if not faults:
        return
    shown = "; ".join(map(str, faults[:most]))
    left = len({fault.column for fault in faults[most:]})
    more = f"; and {left} more column{'s' * (left > 1)}" if left > 0 else ""
    remedies = "".join(
        f" {text}" for text in dict.fromkeys(fault.remedy for fault in faults) if text
    )
    raise BadCells(f"{where}, {shown}{more}.{remedies}", faults)


def read_columns(
    table: pd.DataFrame,
    numbers: Sequence[str],
    texts: Sequence[str],
    where: object,
    groups: Iterable[Sequence[str]] = (),
    filled: Collection[str] = (),
) -> pd.DataFrame:
    """Return columns as finite numbers and as texts, or raise naming the rows and columns that are
    not.

    Of a group of columns, a row may lack all, and of those `filled` later any; what it lacks is
    NaN.
    """
    lacking = {
        name: table[list(group)].isna().all(axis=1).to_numpy() for group in groups for name in group
    }
    made: Settings = {}
    faults: list[Fault] = []
    quantities = set(numbers)
    remedy = "Fill empty cells in, or leave out their rows or columns."
    if not filled:
        remedy = (
            "Fill empty cells in, leave out their rows or columns, or fit with --impute median."
        )
    for name in table.columns.intersection([*numbers, *texts], sort=False):
        missing = table[name].isna().to_numpy()
        if name not in filled:
            needed = missing & ~lacking.get(name, np.zeros(1, dtype=bool))
            faults += Fault.at(needed, name, lambda row: " is empty", remedy)
        if name in quantities:
            made[name], wrong = _to_numbers(table[name], missing)
            faults += wrong
        else:
            # Rows have new numbers below; newer versions of pandas would take bare texts for
            # something else.
            made[name] = pd.Series(texts_of(table[name]).to_numpy(), dtype=object)
    refuse(faults, where)
    return pd.DataFrame(
        {name: made[name] for name in dict.fromkeys([*numbers, *texts])}, index=range(len(table))
    )


def _to_numbers(column: pd.Series, missing: Mask) -> tuple[Array, list[Fault]]:
    """The numbers of a column, and what is none."""
    name, faults = str(column.name), []
    read, endless = column, np.zeros(len(column), dtype=bool)
    if not pd.api.types.is_numeric_dtype(column.dtype):
        read = _quantities(column)
        # Digits beyond the range of floating-point numbers; pandas reads some as infinite, and more
        # of them as nothing.
        unread = ~np.isfinite(read.to_numpy(dtype=np.float64, na_value=np.nan)) & ~missing
        endless[unread] = [_is_whole(str(cell)) for cell in column[unread]]
        wrong = read.isna().to_numpy() & ~missing & ~endless
        comma = any(_has_decimal_comma(str(cell)) for cell in column[wrong])
        hint = "Write decimals with a point." if comma else ""
        faults += Fault.at(
            wrong, name, lambda row: f": {_some(column.iloc[row])} is not a number", hint
        )
    values = read.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values) & ~endless
    faults += Fault.at(
        infinite, name, lambda row: " is infinite", "Correct cells that are not finite."
    )
    # Above 1e150 a sum of squares overflows.
    large = (np.isfinite(values) & (np.abs(values) > 1e150)) | endless

    def too_large(row: int) -> str:
        text = _some(column.iloc[row]) if endless[row] else f"{values[row]:g}"
        return f": {text} is too large to compute with"

    return values, faults + Fault.at(
        large, name, too_large, "Measure what is too large in another unit."
    )


def _quantities(column: pd.Series) -> pd.Series:
    """Return the numbers that cells write, or the ones and zeros of truth values; NaN where a cell
    is neither."""
    texts = column.astype(object).where(column.notna(), None)
    if column.dropna().astype(str).isin([*_TRUTH_VALUES]).all():
        return texts.map(lambda cell: float(_TRUTH_VALUES[str(cell)]), na_action="ignore").astype(
            np.float64
        )
    read = pd.to_numeric(texts, errors="coerce").astype(np.float64)
    # pandas finds out which cells are numbers, but its last digit may be off.
    exact = [_exact_number(cell, number) for cell, number in zip(texts, read, strict=True)]
    return pd.Series(exact, index=column.index, name=column.name, dtype=np.float64)


def _exact_number(cell: Any, nearly: float) -> float:
    """Return the number that a text writes, where there is one near it."""
    if not isinstance(cell, str) or not np.isfinite(nearly):
        return nearly
    try:
        return float(cell)
    except ValueError:
        return nearly


def texts_of(
    column: pd.Series, known: Collection[str] = (), missing: Collection[str] = ()
) -> pd.Series:
    """Return cells as texts, None where one is missing or its text is a mark of missing cells.

    A number that is no text yet is written as one of the `known` texts where one says the same: 1
    as "1.0", or as "1".
    """
    lost = column.isna().to_numpy()
    texts = [
        None if is_lost else _text_of(cell, known)
        for cell, is_lost in zip(column, lost, strict=True)
    ]
    found = [None if text in missing else text for text in texts]
    return pd.Series(found, index=column.index, name=column.name, dtype=object)


def _text_of(cell: Any, known: Collection[str]) -> str:
    is_number_cell = isinstance(cell, (int, float, np.integer, np.floating)) and not isinstance(
        cell, bool
    )
    if not is_number_cell or abs(cell) >= 2**53 or cell != int(cell):
        return str(cell)
    forms = (str(int(cell)), f"{int(cell)}.0")
    return next((form for form in forms if form in known), forms[0])


def _has_decimal_comma(text: str) -> bool:
    """Whether a text is a number as some programs write 0.5: none here, but no category either."""
    return re.fullmatch(r"\s*[+-]?\d*,\d+\s*", text) is not None


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None


def _some(cell: Any, most: int = 40) -> str:
    """A cell as it is quoted, not more than the beginning of a long one."""
    text = str(cell)
    return repr(cell) if len(text) <= most else f"{text[:most]!r}… ({len(text)} letters)"


def numbers(table: pd.DataFrame, name: str, where: object) -> Array:
    """Return one column as finite numbers, or raise naming the row that is none."""
    return np.asarray(read_columns(table, [name], [], where)[name])


def looks_like_an_index(column: pd.Series) -> bool:
    """Whether a column is what some program wrote to number or name the rows; one without a name
    may hold data."""
    name = str(column.name).strip().lower()
    nameless = not name or name.startswith("unnamed: ")
    if not (nameless or name in ("id", "index")) or column.nunique() != len(column):
        return False
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return not nameless or kind_of(column) != "sequences"
    values = column.to_numpy(dtype=np.float64)
    if np.any(values != np.floor(values)):
        return False
    return not nameless or bool(np.ptp(values) == len(values) - 1)


# Targets ------------------------------------------------------------------------------------------


def target_of(table: pd.DataFrame, name: str, where: object) -> pd.Series:
    """Return the target column, which must be there and complete."""
    require(table, [name], where)
    remedy = "Fill it in, or leave out the row: there is nothing to learn from it."
    refuse(Fault.at(table[name].isna(), name, lambda row: " is empty", remedy), where)
    return table[name]


def indicators(table: pd.DataFrame, names: Sequence[str], where: object) -> Array:
    """Return columns of 0 and 1, or of truth values, as an array with one column each."""
    require(table, names, where)
    written = {
        "1": 1.0,
        "1.0": 1.0,
        "true": 1.0,
        "yes": 1.0,
        "0": 0.0,
        "0.0": 0.0,
        "false": 0.0,
        "no": 0.0,
    }
    cells = {
        name: table[name].map(lambda cell: written.get(str(cell).strip().lower())) for name in names
    }
    remedy = "Write 1 or true for yes, and 0 or false for no."
    wrong = [Fault.at(cells[name].isna(), name, _quoted(table[name]), remedy) for name in names]
    refuse([fault for faults in wrong for fault in faults], where)
    return np.column_stack([np.asarray(cells[name], dtype=np.float64) for name in names])


def _quoted(column: pd.Series) -> Callable[[int], str]:
    return lambda row: (
        " is empty" if pd.isna(column.iloc[row]) else f" holds {str(column.iloc[row])!r}"
    )


def guess_task(target: pd.Series) -> Literal["classification", "regression"]:
    """Return the task of a target: "classification" or "regression"."""
    most = 20  # whole numbers are classes if there are few of them, each twice on average
    target = _typed(target)
    if pd.api.types.is_bool_dtype(target.dtype):
        return "classification"
    if not pd.api.types.is_numeric_dtype(target.dtype):
        # Many numbers and a few texts among them: a quantity with mistakes in it, which will be
        # named.
        is_quantity = kind_of(target) == "numbers" and target.nunique() > most
        return "regression" if is_quantity else "classification"
    values = target.to_numpy(dtype=np.float64)
    whole = bool(np.all(values == np.floor(values)))
    return (
        "classification"
        if whole and target.nunique() <= min(most, len(values) / 2)
        else "regression"
    )


def _typed(target: pd.Series) -> pd.Series:
    """Return a target that is written in texts as truth values or numbers, where all of its cells
    are."""
    if pd.api.types.is_numeric_dtype(target.dtype):
        return target
    if target.astype(str).isin([*_TRUTH_VALUES]).all():
        return target.astype(str).map(_TRUTH_VALUES)
    numbers = _quantities(target)
    return target if numbers.isna().any() else numbers


def labels_of(target: pd.Series) -> AnyArray:
    """Return classes as an array of whole numbers, truth values or texts.

    Texts are numbers only if these are written in the same way: 1 is, while 01 and 1.0 stay what
    they are.
    """
    if pd.api.types.is_bool_dtype(target.dtype):
        return np.asarray(target, dtype=bool)
    if pd.api.types.is_numeric_dtype(target.dtype):
        values = np.asarray(target, dtype=np.float64)
        if np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53):
            return values.astype(np.int64)
    texts = [str(value) for value in target]
    stripped = [text.strip() for text in texts]
    if all(re.fullmatch(r"0|-?[1-9]\d{0,14}", text) for text in stripped):
        return np.array([int(text) for text in stripped], dtype=np.int64)
    if set(texts) <= {"True", "False"}:
        return np.array([text == "True" for text in texts])
    return np.array(texts)


def fingerprints(table: pd.DataFrame) -> NDArray[np.uint64]:
    """Return a number per row that equal rows share, and others by a chance of 2⁻⁶⁴."""
    return np.asarray(pd.util.hash_pandas_object(table, index=False), dtype=np.uint64)


def some(names: Sequence[Any], n: int) -> str:
    """Return the first n names as a text, and how many there are if there are more."""
    shown = ", ".join(map(str, names[:n]))
    return shown if len(names) <= n else f"{shown} … ({len(names)} in all)"
