"""Tables read from CSV, TSV, Parquet and NPZ files, matrices from NPY, NPZ and CSV files, and
questions about the columns of a table: which type they have, which cells cannot be used.

Errors are collected as `Fault` objects, one for each column, and raised together by `refuse`.
"""

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

#: Texts that mark a missing value in a cell of delimited text.
MISSING_MARKS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")

#: Spellings of truth values. A column whose cells are all among them holds truth values, which
#: count as one and zero.
_TRUTH_VALUES = {
    "True": True,
    "TRUE": True,
    "true": True,
    "False": False,
    "FALSE": False,
    "false": False,
}

#: Numbers above this magnitude are refused: a sum of their squares would overflow.
_LARGEST_NUMBER = 1e150
#: Lines that are split to try a delimiter; chosen by hand.
_LINES_TO_TRY = 20
#: Most different values of a column of categories; chosen by hand.
_MOST_CATEGORIES = 50
#: Letters of the shortest text that is taken for a sequence rather than a word; chosen by hand.
_SHORTEST_SEQUENCE = 8
#: Most different letters of sequences: those of the Latin alphabet.
_LETTERS_OF_ALPHABET = 26
#: Most different whole numbers of a target that are taken for classes; chosen by hand.
_MOST_CLASSES = 20
#: Floating-point numbers hold all whole numbers below this one.
_LARGEST_EXACT = 2**53
#: Spellings of yes and no in columns of events and the like, in lower case.
_INDICATORS = {
    "1": 1.0,
    "1.0": 1.0,
    "true": 1.0,
    "yes": 1.0,
    "0": 0.0,
    "0.0": 0.0,
    "false": 0.0,
    "no": 0.0,
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
    _check_content(path)
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
    return _with_text_cells(table)


def _with_text_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which categories of text, and whole numbers beyond 64 bits, are texts."""
    text_categories = []
    for name in table.columns:
        is_categorical = isinstance(table[name].dtype, pd.CategoricalDtype)
        # Categories that are numbers stay: their type alone says that they are categories.
        if is_categorical and not _has_numbers_as_categories(table[name]):
            text_categories.append(name)
    table = table.astype(dict.fromkeys(text_categories, object))
    for name in table.columns:
        if table[name].dtype != object or not any(type(cell) is int for cell in table[name]):
            continue
        # No array of numbers holds such whole numbers: they are texts until they are computed with.
        table[name] = [str(cell) if type(cell) is int else cell for cell in table[name]]
    return table


def _has_numbers_as_categories(column: pd.Series) -> bool:
    """Whether a column is of pandas' type for categories, and the categories are numbers."""
    is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
    return is_categorical and pd.api.types.is_numeric_dtype(column.cat.categories.dtype)


def read_as_written(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Return columns of a file, every cell as it is written there.

    The file must be one that `read_table` has read without an error.
    """
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
    """Return the names of the row indices in a Parquet file of pandas; none for other files."""
    if path.suffix.lower() != ".parquet":
        return []
    from pyarrow import parquet

    # pandas 3.0 reads no index without columns, so the names are those of the file's schema.
    described = parquet.read_schema(path).pandas_metadata
    if described is None:
        return []
    names = []
    for index in described["index_columns"]:
        # An index is a column, or a range, which is described by a dict.
        name = index["name"] if isinstance(index, dict) else index
        # pandas writes an index without a name to a column of this name.
        if name is not None and not str(name).startswith("__index_level_"):
            names.append(str(name))
    return names


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table in the format of its file name, as a whole or not at all."""
    ending = path.suffix.lower()
    if ending == ".parquet":
        write_bytes(path, table.to_parquet(index=False))
        return
    delimiter = "\t" if ending == ".tsv" else ","
    write_text(path, table_text(table, delimiter))


def table_text(table: pd.DataFrame, delimiter: str = ",") -> str:
    """Return a table as delimited text in which a spreadsheet finds no formula."""
    harmless = table.copy()
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name].dtype):
            harmless[name] = [_harmless(cell) for cell in table[name]]
    harmless.columns = [_harmless(name) for name in table.columns]
    # A carriage return ends a row unless it is quoted. pandas quotes line feeds by itself, and
    # carriage returns only where it quotes all texts.
    cells = [*harmless.columns, *harmless.to_numpy().flat]
    has_carriage_return = any(isinstance(cell, str) and "\r" in cell for cell in cells)
    quoting = csv.QUOTE_NONNUMERIC if has_carriage_return else csv.QUOTE_MINIMAL
    return str(harmless.to_csv(index=False, sep=delimiter, lineterminator="\n", quoting=quoting))


def _harmless(cell: Any) -> Any:
    """Return a cell that a spreadsheet does not run as a formula.

    Texts that would be run get an apostrophe in front.
    """
    if not isinstance(cell, str):
        return cell
    begins_like_formula = cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    if not begins_like_formula or is_number(cell):
        return cell
    return f"'{cell}"


def _check_repeated(path: Path, names: list[str]) -> None:
    """Raise if a column name occurs twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{path}: the column {repeated[0]!r} occurs {names.count(repeated[0])} times; rename"
            " one."
        )


def _check_content(path: Path, what: str = "a table") -> None:
    """Raise unless a path leads to a file that is not empty; `what` says what it should hold."""
    if existing_file(path, what).stat().st_size == 0:
        raise ValueError(f"{path} is empty; give a file that holds {what}.")


# Text ---------------------------------------------------------------------------------------------


def _text_options(path: Path) -> dict[str, Any]:
    """Return the options with which `pandas.read_csv` reads delimited text.

    With them it guesses nothing but the types of columns.
    """
    options: dict[str, Any] = {
        "sep": _delimiter(path),
        "encoding": "utf-8-sig",
        "index_col": False,
        "keep_default_na": False,
        "low_memory": False,
    }
    # Every number is read as the double nearest to its text. pandas does so by itself from 3.1 on,
    # and warns there if it is requested.
    version = [*map(int, pd.__version__.split(".")[:2])]
    if version < [3, 1]:
        options["float_precision"] = "round_trip"
    return options


def _read_text(path: Path, texts: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """Return the table in delimited text; the columns in `texts` stay text, as in `read_table`."""
    # 1. Refuse, with the number of the line, rows that pandas would fill up or cut off silently.
    delimiter = _delimiter(path)
    rows = _rows_of_text(path, delimiter)
    header = next(rows, [])
    if not header:
        raise ValueError(f"{path} holds blank lines only; give a file that holds a table.")
    _check_repeated(path, header)
    try:
        deque(rows, maxlen=0)
    except _LongCell:
        deque(_rows_of_text(path, delimiter, shortened=True), maxlen=0)

    # 2. Read the columns, with pandas' names for those that have none.
    names = [name or f"Unnamed: {j}" for j, name in enumerate(header)]
    as_written = [name for name in names if name in texts]
    marks: Any = list(MISSING_MARKS)
    if as_written:
        marks = {name: list(texts.get(name, MISSING_MARKS)) for name in names}
    read_csv = partial(pd.read_csv, path, **_text_options(path), na_values=marks)
    try:
        return read_csv(dtype=dict.fromkeys(as_written, object))
    except OverflowError:
        # pandas before 3 fails where it makes a float of a whole number of hundreds of digits.
        table = read_csv(dtype=object)
        for name in table.columns.difference(as_written):
            numbers = pd.to_numeric(table[name], errors="coerce")
            if np.isfinite(numbers[table[name].notna()]).all():
                table[name] = numbers
        return table


def _delimiter(path: Path) -> str:
    """Return the delimiter of a text file: a comma, a semicolon or a tab.

    It is the one that occurs most in the first line, without quoted names. Where several occur, as
    in names with commas, those that divide the next lines into equally many cells come first. Of a
    .tsv file it is the tab if there is one.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first_line = re.sub('"[^"]*"', "", file.readline())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}; save it as UTF-8."
        ) from None
    signs = sorted(",;\t", key=first_line.count, reverse=True)
    candidates = [sign for sign in signs if sign in first_line]
    if not candidates:
        return signs[0]
    if path.suffix.lower() == ".tsv" and "\t" in candidates:
        return "\t"
    if len(candidates) > 1:
        # The sort is stable: the most frequent sign stays first among those that divide evenly.
        candidates.sort(key=lambda sign: not _divides_evenly(path, sign))
    return candidates[0]


def _divides_evenly(path: Path, delimiter: str) -> bool:
    """Whether a delimiter divides the first lines of a file into equally many cells."""
    rows = _rows_of_text(path, delimiter, shortened=True)
    try:
        deque(islice(rows, _LINES_TO_TRY), maxlen=0)
    except ValueError:
        return False
    return True


class _LongCell(ValueError):
    """A cell is longer than the csv module reads."""


def _rows_of_text(path: Path, delimiter: str, shortened: bool = False) -> Iterator[list[str]]:
    """Yield the rows of a text file without blank ones; raise unless all have as many cells.

    The csv module refuses cells above a length, a limit of the whole process that is left alone.
    With `shortened`, runs of plain letters below the first line are cut to one letter: the rows
    are divided as before, and a cell may hold a whole genome.
    """
    width = None
    plain_letters = re.compile(rf'[^{re.escape(delimiter)}"\r\n]{{2,}}')

    def lines_of(file: Iterable[str]) -> Iterator[str]:
        """Yield the lines of the file, all but the first shortened if `shortened`."""
        for i, line in enumerate(file):
            yield plain_letters.sub("x", line) if shortened and i else line

    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(lines_of(file), delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if not row:
                    continue
                if width is None:
                    width = len(row)
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
    """Return the table in a Parquet file.

    A named index becomes a column, an unnamed one is dropped.

    Parquet keeps categories that are numbers as numbers, and pandas' metadata say what they were.
    """
    try:
        table = pd.read_parquet(path)
        from pyarrow.parquet import read_schema

        described_columns = (read_schema(path).pandas_metadata or {}).get("columns", [])
    except ImportError as error:
        raise ImportError(
            'Parquet files need pyarrow: pip install "kernelmosaic[frames]"'
        ) from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file, or a damaged one: {error}") from None
    categorical = {
        entry["name"] for entry in described_columns if entry["pandas_type"] == "categorical"
    }
    table = table.astype({name: "category" for name in table.columns if str(name) in categorical})
    all_names = (*table.index.names, *table.columns)
    _check_repeated(path, [str(name) for name in all_names if name is not None])
    unnamed_levels = [level for level, name in enumerate(table.index.names) if name is None]
    if len(unnamed_levels) == table.index.nlevels:
        return table.reset_index(drop=True)
    if unnamed_levels:
        table = table.reset_index(level=unnamed_levels, drop=True)
    return table.reset_index()


def load_arrays(path: Path) -> dict[str, AnyArray]:
    """Return the arrays of an NPZ file by name; the array of an NPY file has the name ``""``.

    Nothing pickled is read.
    """
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
    """Return the vectors and matrices of an NPZ file as the columns of one table.

    An array ``feature_names`` has the names of the columns of X; those of other matrices are
    called ``name_0``, ``name_1``, ….
    """
    arrays = load_arrays(path)
    feature_names = arrays.pop("feature_names", None)
    arrays = {name: array for name, array in arrays.items() if array.ndim in (1, 2)}
    if not arrays:
        raise ValueError(f"{path}: no array with one row per sample, such as X and y.")
    if "X" in arrays:
        n = len(arrays["X"])
    else:
        n = len(max(arrays.values(), key=lambda array: array.ndim))
    frames = []
    for name, array in arrays.items():
        if len(array) != n:
            raise ValueError(
                f"{path}: {name} has {len(array)} rows, others {n}; every array needs one per"
                " sample."
            )
        names_of_X = feature_names if name == "X" else None
        frames.append(_frame_of_array(path, name, array, names_of_X))
    return pd.concat(frames, axis=1)


def _frame_of_array(
    path: Path, name: str, array: AnyArray, feature_names: AnyArray | None
) -> pd.DataFrame:
    """Return a vector or matrix of an NPZ file as a data frame, bytes decoded to texts."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.ndim == 1:
        # By name: a structured array alone would give a column for each of its fields.
        return pd.DataFrame({name: array}, columns=[name])
    n_columns = array.shape[1]
    if feature_names is None:
        return pd.DataFrame(array, columns=[f"{name}_{j}" for j in range(n_columns)])
    if feature_names.shape != (n_columns,):
        raise ValueError(
            f"{path}: feature_names has shape {feature_names.shape}, but X has {n_columns} columns."
        )
    return pd.DataFrame(array, columns=[str(label) for label in feature_names])


_TEXT_FILES = (".csv", ".tsv", ".txt")
_BINARY_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}


# Matrices -----------------------------------------------------------------------------------------


def read_matrix(path: Path, name: str) -> Array:
    """Return the matrix of numbers in a file.

    Of an archive with several arrays it is the one called `name` or K.
    """
    _check_content(path, "a matrix")
    ending = path.suffix.lower()
    if ending not in (".npy", ".npz", ".csv", ".tsv", ".txt"):
        raise ValueError(f"{path}: a matrix is read from .npy, .npz, .csv or .tsv.")
    if ending in (".npy", ".npz"):
        arrays = load_arrays(path)
        keys = [key for key in (name, "K") if key in arrays] or list(arrays)
        if len(keys) > 1 and keys[0] not in (name, "K"):
            raise ValueError(f"{path} holds {', '.join(arrays)}: call the matrix {name} or K.")
        matrix = arrays[keys[0]]
    else:
        matrix = _matrix_of_text(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {matrix.dtype} of shape {matrix.shape} is not a numeric matrix.")
    return np.asarray(matrix, dtype=np.float64)


def _matrix_of_text(path: Path) -> Array:
    """Return the numbers in delimited text, without a first row and a first column of names."""
    rows = list(_rows_of_text(path, _delimiter(path)))
    # The corner above the names of rows may be anything, so it does not count.
    if len(rows) > 1 and not all(map(is_number, rows[0][1:])):
        rows = rows[1:]
    if not is_number(rows[0][0]):
        rows = [row[1:] for row in rows]
    for i, row in enumerate(rows, start=1):
        for j, cell in enumerate(row, start=1):
            if not is_number(cell):
                raise ValueError(f"{path}, matrix row {i}, column {j}: {cell!r} is not a number.")
    return np.array(rows, dtype=np.float64)


# Kinds of columns, and cells that cannot be used --------------------------------------------------


def kind_of(column: pd.Series) -> str:
    """Return the kind of a column: numbers, categories, sequences (of letters) or free text."""
    if pd.api.types.is_numeric_dtype(column.dtype):  # truth values are numeric, too
        return "numbers"
    texts = column.dropna().astype(str)
    if len(texts) and _has_numbers_as_categories(column) and _is_repeated(texts):
        return "categories"
    if texts.isin([*_TRUTH_VALUES]).all():
        # All are truth values but for missing ones. An empty column counts as numbers, too: the
        # error of `read_columns` will name its missing rows.
        return "numbers"
    parses = pd.to_numeric(texts, errors="coerce").notna()
    has_comma = texts.map(_has_decimal_comma).astype(bool)
    is_whole = texts.map(_is_whole).astype(bool)
    if (parses | has_comma | is_whole).mean() >= 0.5:
        # The other texts are mistakes. `read_columns` refuses them, and decimal commas by name.
        return "numbers"
    if _is_repeated(texts):
        return "categories"
    if _are_sequences(texts):
        return "sequences"
    return "free text"


def _are_sequences(texts: pd.Series) -> bool:
    """Whether all texts are long, and written in letters, - and * of one small alphabet."""
    letters = set("".join(texts))
    if texts.str.len().min() < _SHORTEST_SEQUENCE or len(letters) > _LETTERS_OF_ALPHABET:
        return False
    return all(letter.isalpha() or letter in "-*" for letter in letters)


def _is_repeated(texts: pd.Series) -> bool:
    """Whether few texts differ, and each comes twice on average, as categories do."""
    return bool(texts.nunique() <= min(_MOST_CATEGORIES, max(len(texts) / 2, 2)))


def require(table: pd.DataFrame, names: Iterable[str], where: object) -> None:
    """Raise unless a table has these columns."""
    lost = [name for name in names if name not in table.columns]
    if not lost:
        return
    verb = "lacks"
    hint = ""
    if len(lost) == 1:
        verb = "has no"
        hint = suggest_name(lost[0], table.columns)
    if not hint and any(re.fullmatch(r"[-+.\d]+", str(name)) for name in table.columns):
        hint = " the first line is read as the names of the columns:"
    listed = ", ".join(map(repr, table.columns[:8]))
    if len(table.columns) > 8:
        listed += " …"
    raise ValueError(f"{where} {verb} {list_columns(lost)};{hint} its columns are {listed}.")


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return " did you mean …?" with the most similar of several names.

    The text is empty if none is similar.
    """
    spelling = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), spelling, n=1)
    if not matches:
        return ""
    return f" did you mean {spelling[matches[0]]!r}?"


@dataclass(frozen=True)
class Fault:
    """A mistake in the cells of one column.

    Attributes
    ----------
    column : str
        The column.
    row : int
        The number of the first row with this mistake, from 0.
    count : int
        The number of rows with it.
    what : str
        What is wrong with the first row, such as ": 'a' is not a number".
    remedy : str
        A sentence on how to correct it.
    """

    column: str
    row: int
    count: int
    what: str
    remedy: str = ""

    @classmethod
    def at(
        cls, wrong: Any, column: str, what: Callable[[int], str], remedy: str = ""
    ) -> list[Fault]:
        """Return a list with the fault of a column, empty if no row is wrong.

        Parameters
        ----------
        wrong : array-like of bool of shape (n_rows,)
            The rows that are wrong.
        column, remedy : str
            As in `Fault`.
        what : callable
            Returns what is wrong with a row, by its number.
        """
        rows = np.flatnonzero(np.asarray(wrong))
        if len(rows) == 0:
            return []
        first_row = int(rows[0])
        return [cls(column, first_row, len(rows), what(first_row), remedy)]

    def __str__(self) -> str:
        row = f"row {self.row + 1}"
        if self.count > 1:
            row += f" (and {self.count - 1} more)"
        return f"{row}, column {self.column!r}{self.what}"


class BadCells(ValueError):
    """The error that `refuse` raises; its attribute `faults` has all faults."""

    def __init__(self, message: str, faults: Sequence[Fault]) -> None:
        super().__init__(message)
        self.faults = list(faults)


def refuse(faults: Sequence[Fault], where: object, most: int = 5) -> None:
    """Raise a BadCells that names the first `most` faults and all remedies, if there is a fault."""
    if not faults:
        return
    text = "; ".join(map(str, faults[:most]))
    n_unnamed = len({fault.column for fault in faults[most:]})
    if n_unnamed == 1:
        text += "; and 1 more column"
    elif n_unnamed > 1:
        text += f"; and {n_unnamed} more columns"
    remedies = [remedy for remedy in dict.fromkeys(fault.remedy for fault in faults) if remedy]
    raise BadCells(f"{where}, {text}.{''.join(f' {remedy}' for remedy in remedies)}", faults)


def read_columns(
    table: pd.DataFrame,
    numbers: Sequence[str],
    texts: Sequence[str],
    where: object,
    groups: Iterable[Sequence[str]] = (),
    filled: Collection[str] = (),
) -> pd.DataFrame:
    """Return columns as finite numbers and as texts, or raise naming the cells that are neither.

    Parameters
    ----------
    table : DataFrame
    numbers, texts : sequence of str
        The columns that are read as numbers, and those that are read as texts.
    where : object
        The file that an error names.
    groups : iterable of sequences of str
        Columns of one view: a row may lack all columns of a group together.
    filled : collection of str
        Columns whose empty cells will be filled: a row may lack any of them.

    Returns
    -------
    DataFrame
        Missing numbers are NaN, missing texts None.
    """
    may_be_missing: dict[str, Mask] = {}
    for group in groups:
        lacks_group = table[list(group)].isna().all(axis=1).to_numpy()
        may_be_missing |= dict.fromkeys(group, lacks_group)
    remedy = "Fill empty cells in, or leave out their rows or columns."
    if not filled:
        remedy = (
            "Fill empty cells in, leave out their rows or columns, or fit with --impute median."
        )
    columns: Settings = {}
    faults: list[Fault] = []
    number_columns = set(numbers)
    for name in table.columns.intersection([*numbers, *texts], sort=False):
        missing = table[name].isna().to_numpy()
        if name not in filled:
            wrong = missing & ~may_be_missing.get(name, np.zeros(1, dtype=bool))
            faults += Fault.at(wrong, name, lambda row: " is empty", remedy)
        if name in number_columns:
            columns[name], faults_of_column = _to_numbers(table[name], missing)
            faults += faults_of_column
        else:
            # A series of objects without the index: pandas 3 would turn a list of texts into a
            # type of its own, and the rows are numbered anew below.
            columns[name] = pd.Series(texts_of(table[name]).to_numpy(), dtype=object)
    refuse(faults, where)
    return pd.DataFrame(
        {name: columns[name] for name in dict.fromkeys([*numbers, *texts])},
        index=range(len(table)),
    )


def _to_numbers(column: pd.Series, missing: Mask) -> tuple[Array, list[Fault]]:
    """Return the numbers of a column, NaN where cells are missing, and the faults of other cells.

    Parameters
    ----------
    column : Series
    missing : ndarray of bool
        The missing cells.
    """
    name = str(column.name)
    faults = []
    numbers = column
    # Whole numbers with so many digits that they are beyond the range of floating-point numbers.
    beyond_range = np.zeros(len(column), dtype=bool)
    if not pd.api.types.is_numeric_dtype(column.dtype):
        numbers = _quantities(column)
        # pandas reads some of them as infinite, others as no number.
        read = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
        not_finite = ~np.isfinite(read) & ~missing
        beyond_range[not_finite] = [_is_whole(str(cell)) for cell in column[not_finite]]
        wrong = numbers.isna().to_numpy() & ~missing & ~beyond_range
        remedy = ""
        if any(_has_decimal_comma(str(cell)) for cell in column[wrong]):
            remedy = "Write decimals with a point."

        def not_a_number(row: int) -> str:
            return f": {_quoted_cell(column.iloc[row])} is not a number"

        faults += Fault.at(wrong, name, not_a_number, remedy)
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values) & ~beyond_range
    faults += Fault.at(
        infinite, name, lambda row: " is infinite", "Correct cells that are not finite."
    )
    large = (np.isfinite(values) & (np.abs(values) > _LARGEST_NUMBER)) | beyond_range

    def too_large(row: int) -> str:
        text = _quoted_cell(column.iloc[row]) if beyond_range[row] else f"{values[row]:g}"
        return f": {text} is too large to compute with"

    faults += Fault.at(large, name, too_large, "Measure what is too large in another unit.")
    return values, faults


def _quantities(column: pd.Series) -> pd.Series:
    """Return the numbers that cells write, NaN where a cell is no number.

    If all cells are truth values, they count as one and zero.
    """
    texts = column.astype(object).where(column.notna(), None)
    if column.dropna().astype(str).isin([*_TRUTH_VALUES]).all():
        truth_values = texts.map(lambda cell: float(_TRUTH_VALUES[str(cell)]), na_action="ignore")
        return truth_values.astype(np.float64)
    approximate = pd.to_numeric(texts, errors="coerce").astype(np.float64)
    # pandas says which cells are numbers, but the last digit of its numbers may be wrong.
    exact = [_exact_number(cell, number) for cell, number in zip(texts, approximate, strict=True)]
    return pd.Series(exact, index=column.index, name=column.name, dtype=np.float64)


def _exact_number(cell: Any, approximate: float) -> float:
    """Return the number that a text writes, correctly rounded.

    Where Python cannot read it, or there is none, `approximate` is returned.
    """
    if not isinstance(cell, str) or not np.isfinite(approximate):
        return approximate
    try:
        return float(cell)
    except ValueError:
        return approximate


def texts_of(
    column: pd.Series, spellings: Collection[str] = (), missing: Collection[str] = ()
) -> pd.Series:
    """Return cells as texts, None where one is missing or its text is in `missing`.

    A whole number that is no text is written as in `spellings`, if that has 1 or 1.0 for the
    number 1, else without a point.
    """
    texts = []
    for cell, is_missing in zip(column, column.isna().to_numpy(), strict=True):
        text = None if is_missing else _text_of(cell, spellings)
        if text in missing:
            text = None
        texts.append(text)
    return pd.Series(texts, index=column.index, name=column.name, dtype=object)


def _text_of(cell: Any, spellings: Collection[str]) -> str:
    """Return a cell as text; a whole number as in `spellings`, else without a point."""
    is_number_type = isinstance(cell, (int, float, np.integer, np.floating))
    if not is_number_type or isinstance(cell, bool):
        return str(cell)
    if abs(cell) >= _LARGEST_EXACT or cell != int(cell):
        return str(cell)
    forms = (str(int(cell)), f"{int(cell)}.0")
    return next((form for form in forms if form in spellings), forms[0])


def _has_decimal_comma(text: str) -> bool:
    """Whether a text is a number with a decimal comma.

    Such a text is read neither as a number nor as a category.
    """
    return re.fullmatch(r"\s*[+-]?\d*,\d+\s*", text) is not None


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number, of any number of digits."""
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None


def _quoted_cell(cell: Any, most: int = 40) -> str:
    """Return a cell as an error quotes it: of a long one the first `most` letters."""
    text = str(cell)
    if len(text) <= most:
        return repr(cell)
    return f"{text[:most]!r}… ({len(text)} letters)"


def numbers(table: pd.DataFrame, name: str, where: object) -> Array:
    """Return one column as finite numbers, or raise naming the rows that are not."""
    return np.asarray(read_columns(table, [name], [], where)[name])


def looks_like_an_index(column: pd.Series) -> bool:
    """Whether a column numbers or names the rows, as some programs write.

    It is called ``id`` or ``index``, or has no name, and all its cells differ. A column without a
    name may also hold data: it counts only if its numbers are consecutive, or if its texts are no
    sequences.
    """
    name = str(column.name).strip().lower()
    is_nameless = not name or name.startswith("unnamed: ")
    may_be_index = is_nameless or name in ("id", "index")
    if not may_be_index or column.nunique() != len(column):
        return False
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return not is_nameless or kind_of(column) != "sequences"
    values = column.to_numpy(dtype=np.float64)
    if np.any(values != np.floor(values)):
        return False
    return not is_nameless or bool(np.ptp(values) == len(values) - 1)


# Targets ------------------------------------------------------------------------------------------


def complete_column(table: pd.DataFrame, name: str, where: object) -> pd.Series:
    """Return a column of targets or groups; raise if it does not exist or has empty cells."""
    require(table, [name], where)
    remedy = "Fill it in, or leave out the row: there is nothing to learn from it."
    refuse(Fault.at(table[name].isna(), name, lambda row: " is empty", remedy), where)
    return table[name]


def indicators(table: pd.DataFrame, names: Sequence[str], where: object) -> Array:
    """Return columns of yes and no, in any spelling, as an array of ones and zeros.

    Parameters
    ----------
    table : DataFrame
    names : sequence of str
        The columns.
    where : object
        The file that an error names.

    Returns
    -------
    ndarray of shape (n_rows, n_names)
    """
    require(table, names, where)
    remedy = "Write 1 or true for yes, and 0 or false for no."
    columns = []
    faults = []
    for name in names:
        cells = table[name].map(lambda cell: _INDICATORS.get(str(cell).strip().lower()))
        faults += Fault.at(cells.isna(), name, _content_of(table[name]), remedy)
        columns.append(np.asarray(cells, dtype=np.float64))
    refuse(faults, where)
    return np.column_stack(columns)


def _content_of(column: pd.Series) -> Callable[[int], str]:
    """Return a function that says what a cell of the column holds, by its row."""

    def content(row: int) -> str:
        cell = column.iloc[row]
        return " is empty" if pd.isna(cell) else f" holds {str(cell)!r}"

    return content


def guess_task(target: pd.Series) -> Literal["classification", "regression"]:
    """Return the task of a target: "classification" or "regression"."""
    target = _typed(target)
    if pd.api.types.is_bool_dtype(target.dtype):
        return "classification"
    if not pd.api.types.is_numeric_dtype(target.dtype):
        # Many numbers and a few texts among them are a quantity with mistakes in it, which will be
        # named.
        if kind_of(target) == "numbers" and target.nunique() > _MOST_CLASSES:
            return "regression"
        return "classification"
    values = target.to_numpy(dtype=np.float64)
    are_whole = bool(np.all(values == np.floor(values)))
    # Whole numbers are classes if there are few of them, and each comes twice on average.
    if are_whole and target.nunique() <= min(_MOST_CLASSES, len(values) / 2):
        return "classification"
    return "regression"


def _typed(target: pd.Series) -> pd.Series:
    """Return a target of texts as truth values or numbers if all cells are such, else as it is."""
    if pd.api.types.is_numeric_dtype(target.dtype):
        return target
    if target.astype(str).isin([*_TRUTH_VALUES]).all():
        return target.astype(str).map(_TRUTH_VALUES)
    numbers = _quantities(target)
    return target if numbers.isna().any() else numbers


def labels_of(target: pd.Series) -> AnyArray:
    """Return classes as an array of whole numbers, truth values or texts.

    Texts become numbers only if the numbers are written in the same way: 1 does, while 01 and 1.0
    stay texts.
    """
    if pd.api.types.is_bool_dtype(target.dtype):
        return np.asarray(target, dtype=bool)
    if pd.api.types.is_numeric_dtype(target.dtype):
        values = np.asarray(target, dtype=np.float64)
        if np.all(values == np.floor(values)) and np.all(np.abs(values) < _LARGEST_EXACT):
            return values.astype(np.int64)
    texts = [str(value) for value in target]
    stripped = [text.strip() for text in texts]
    # Numbers of up to 15 digits: floating-point numbers hold them all.
    if all(re.fullmatch(r"0|-?[1-9]\d{0,14}", text) for text in stripped):
        return np.array([int(text) for text in stripped], dtype=np.int64)
    if set(texts) <= {"True", "False"}:
        return np.array([text == "True" for text in texts])
    return np.array(texts)


def fingerprints(table: pd.DataFrame) -> NDArray[np.uint64]:
    """Return a hash of 64 bits for every row; equal rows have equal hashes."""
    return np.asarray(pd.util.hash_pandas_object(table, index=False), dtype=np.uint64)


def list_names(names: Sequence[Any], n: int) -> str:
    """Return the first n names as a text, with the number of names if there are more."""
    listed = ", ".join(map(str, names[:n]))
    if len(names) > n:
        listed += f" … ({len(names)} in all)"
    return listed
