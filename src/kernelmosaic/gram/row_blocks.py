"""Where the samples are: in memory, in a memory-mapped file or in Parquet, read a block of rows at
a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import run_coroutine_threadsafe
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, MatrixLike
from kernelmosaic.backend import is_dask, row_strips, to_host
from kernelmosaic.row_order import content_hashes

Rows = slice | Indices

#: Numbers that are read at a time for hashes of rows.
_HASHED_NUMBERS = 2**14


class RowSource(ABC):
    """Samples of which any rows can be read; only those rows are ever in memory.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    names : list of str or None
        Of the columns, where they have any.
    remote : bool
        Whether the rows are on other machines, where features had better be, too.
    """

    shape: tuple[int, int]
    names: list[str] | None = None
    remote: bool = False

    @property
    def row_width(self) -> int:
        """How many numbers a row takes in memory."""
        return self.shape[1]

    @abstractmethod
    def take(self, rows: Rows) -> ArrayOrTensor:
        """Return these rows."""

    def content_hashes(self, seed: int) -> AnyArray:
        """Return a number for every row, equal for equal rows, wherever they are; a block is read
        at a time."""
        hashes = np.empty(self.shape[0], dtype=np.uint64)
        for strip in row_strips(self.shape[0], _HASHED_NUMBERS // self.row_width):
            hashes[strip] = _hash_block(self.take(strip), seed)
        return hashes


class ArrayRows(RowSource):
    """Rows of an array or sparse matrix; one that is memory-mapped stays on the disk."""

    def __init__(self, X: MatrixLike) -> None:
        self.X = X
        self.shape = (X.shape[0], X.shape[1] if len(X.shape) > 1 else 1)

    @property
    def row_width(self) -> int:
        # A sparse row stores a value and a column number for every entry that is not zero.
        return 2 * self.X.nnz // self.shape[0] + 1 if hasattr(self.X, "nnz") else self.shape[1]

    def take(self, rows: Rows) -> ArrayOrTensor:
        block = self.X[rows]
        # Work on a map goes through the interpreter for every slice of it; a plain view does not.
        return np.asarray(block) if isinstance(block, np.memmap) else block


class ParquetRows(RowSource):
    """Rows of one Parquet file or a folder of them; whole row groups are read, and the last one is
    kept."""

    def __init__(self, path: Any) -> None:
        try:
            parquet = import_module("pyarrow.parquet")
        except ImportError as error:
            raise ImportError(
                'Parquet is read by pyarrow: pip install "kernelmosaic[frames]"'
            ) from error
        files = _parquet_files(path)
        self.files = [_opened(parquet, file) for file in files]
        self.groups = [
            (f, g) for f, file in enumerate(self.files) for g in range(file.metadata.num_row_groups)
        ]
        counts = [self.files[f].metadata.row_group(g).num_rows for f, g in self.groups]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        self.names = list(self.files[0].schema_arrow.names)
        for file, one in zip(files, self.files, strict=True):
            if list(one.schema_arrow.names) != self.names:
                raise ValueError(f"X: the columns of {file} differ from those of {files[0]}.")
        self.shape = (int(self.starts[-1]), len(self.names))
        self._held: tuple[int, AnyArray] | None = None

    def take(self, rows: Rows) -> AnyArray:
        wanted = (
            np.arange(*rows.indices(self.shape[0])) if isinstance(rows, slice) else np.asarray(rows)
        )
        out = np.empty((len(wanted), self.shape[1]))
        groups = np.searchsorted(self.starts, wanted, side="right") - 1
        for g in np.unique(groups):
            inside = groups == g
            out[inside] = self._group(int(g))[wanted[inside] - self.starts[g]]
        return out

    def _group(self, g: int) -> AnyArray:
        held = self._held  # another thread may read, and hold, another one meanwhile
        if held is None or held[0] != g:
            self._held = held = None  # two of them at once would be one too many
            file, number = self.groups[g]
            table = self.files[file].read_row_group(number)
            held = (
                g,
                np.column_stack([_numbers(table.column(name), name) for name in self.names or []]),
            )
            self._held = held
        return held[1]


def _opened(parquet: Any, file: Path) -> Any:
    """Return an open Parquet file, or raise naming the file and the forms that are read."""
    try:
        return parquet.ParquetFile(file)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"X={str(file)!r} is no Parquet file: give the path of one, of a folder of them, or of"
            " an array in a .npy file; load other files, as pandas.read_csv does."
        ) from error


class DaskRows(RowSource):
    """Rows of a Dask array or data frame."""

    remote = True

    def __init__(self, X: MatrixLike) -> None:
        self.names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        X = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        if any(np.isnan(size) for size in X.chunks[0]):
            gathered(
                [import_module("dask").delayed(int)()]
            )  # a worker is there: Dask itself waits without end
            X = X.compute_chunk_sizes()
        # One partition holds whole rows.
        self.X = X.rechunk({1: -1}) if X.ndim == 2 else X
        self.shape = self.X.shape

    def take(self, rows: Rows) -> AnyArray:
        return np.asarray(gathered([self.X[rows]])[0])

    def content_hashes(self, seed: int) -> AnyArray:
        hash_block = import_module("dask").delayed(_hash_block)
        # On the workers: the rows stay where they are.
        parts = [hash_block(block, seed) for block in self.X.to_delayed().ravel()]
        return np.concatenate(gathered(parts))

    @property
    def edges(self) -> Indices:
        """Where the partitions begin, and the end."""
        return np.concatenate([[0], np.cumsum(self.X.chunks[0])]).astype(np.intp)


def gathered(collections: list[Any], **options: Any) -> list[Any]:
    """Return what Dask computes, or raise a TimeoutError once its cluster has had no worker for
    some time.

    That time is Dask's setting ``kernelmosaic.worker-timeout``, one minute by default.
    """
    import dask

    client: Any = getattr(dask.base.get_scheduler(), "__self__", None)
    if not hasattr(client, "nthreads"):  # in this process
        return list(dask.compute(*collections, **options))
    allowed = dask.config.get("kernelmosaic.worker-timeout", "60s")
    futures, seconds, since = (
        client.compute(collections, **options),
        dask.utils.parse_timedelta(allowed),
        monotonic(),
    )
    found = run_coroutine_threadsafe(
        client.gather(futures, asynchronous=True), client.loop.asyncio_loop
    )
    while True:
        try:
            return list(found.result(timeout=min(1.0, seconds)))
        except TimeoutError:
            if found.done():  # a task has raised it
                raise
        if client.nthreads():
            since = monotonic()
        elif monotonic() - since >= seconds:
            found.cancel()
            client.cancel(futures)
            raise TimeoutError(
                f"X: the Dask cluster has had no worker for {seconds:g} s: start workers and fit"
                " again; dask.config.set({'kernelmosaic.worker-timeout': '10min'}) waits longer."
            )


def _hash_block(block: ArrayOrTensor, seed: int) -> AnyArray:
    block = to_host(block)
    if block.dtype.kind == "f":
        # The last digits of standardised columns depend on the order of samples.
        block = block.astype(np.float32)
    return content_hashes(block, seed)


def open_rows(X: MatrixLike) -> RowSource:
    """Return the rows of an array, a sparse matrix, a `.npy` file, a Parquet file, or a folder of
    Parquet files."""
    if isinstance(X, RowSource):
        return X
    if is_dask(X):
        return DaskRows(X)
    if not isinstance(X, str | Path):
        return ArrayRows(X)
    if Path(X).suffix.lower() == ".npy":
        return ArrayRows(_mapped(Path(X)))
    return ParquetRows(X)


def _mapped(path: Path) -> AnyArray:
    """Return the array in a `.npy` file, mapped into memory, or raise naming the file."""
    _check_there(path)
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"X={str(path)!r} is not read as an array of numbers: {error}") from error


def _check_there(path: Path) -> None:
    """Raise if there is no file, or folder, of this path."""
    if not path.exists():
        raise ValueError(
            f"X={str(path)!r}: there is no such file; give an array, or the path of a Parquet or"
            " .npy file."
        )


def _numbers(column: Any, name: str) -> Array:
    try:
        # A missing entry is not a number: it is found, and named, where numbers are checked.
        return np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"X: the column {name!r} of the Parquet file does not hold numbers."
        ) from None


def _parquet_files(path: Any) -> list[Path]:
    path = Path(path)
    _check_there(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"X={str(path)!r}: the folder holds no file named *.parquet.")
    return files
