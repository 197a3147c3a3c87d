"""Sources of samples, read in blocks of rows: memory, mapped files, Parquet and Dask."""

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
from kernelmosaic.gram.tuning import HASHED_NUMBERS
from kernelmosaic.row_order import content_hashes

#: Row numbers.
Rows = slice | Indices


class RowSource(ABC):
    """Samples of which any rows can be read; only those rows are in memory.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and of columns.
    names : list of str or None
        The names of the columns, if they have any.
    remote : bool
        Whether the rows are on other machines; features are then computed there.
    """

    shape: tuple[int, int]
    names: list[str] | None = None
    remote: bool = False

    @property
    def row_width(self) -> int:
        """The memory that a row takes, in numbers of 8 bytes."""
        return self.shape[1]

    @abstractmethod
    def take(self, rows: Rows) -> ArrayOrTensor:
        """Return these rows."""

    def content_hashes(self, seed: int) -> AnyArray:
        """Return a hash of the content of every row, as 64-bit integers.

        Equal rows have equal hashes, wherever they are. A block of rows is read at a time.
        """
        hashes = np.empty(self.shape[0], dtype=np.uint64)
        for strip in row_strips(self.shape[0], HASHED_NUMBERS // self.row_width):
            hashes[strip] = _hash_block(self.take(strip), seed)
        return hashes


class ArrayRows(RowSource):
    """Rows of an array or sparse matrix; an array that is memory-mapped stays on the disk."""

    def __init__(self, X: MatrixLike) -> None:
        self.X = X
        n_columns = X.shape[1] if len(X.shape) > 1 else 1
        self.shape = (X.shape[0], n_columns)

    @property
    def row_width(self) -> int:
        """The memory that a row takes, in numbers of 8 bytes."""
        if hasattr(self.X, "nnz"):
            # A sparse row stores a value and a column number for every entry that is not zero.
            return int(2 * self.X.nnz // self.shape[0] + 1)
        return self.shape[1]

    def take(self, rows: Rows) -> ArrayOrTensor:
        """Return these rows, in memory."""
        block = self.X[rows]
        # Slices of a memory map are slower than those of a plain view of it.
        return np.asarray(block) if isinstance(block, np.memmap) else block


class ParquetRows(RowSource):
    """Rows of one Parquet file or a folder of them.

    Whole row groups are read, and the last one is kept.
    """

    def __init__(self, path: Any) -> None:
        try:
            parquet = import_module("pyarrow.parquet")
        except ImportError as error:
            raise ImportError(
                'Parquet is read by pyarrow: pip install "kernelmosaic[frames]"'
            ) from error
        paths = _parquet_files(path)
        self.files = [_opened(parquet, file_path) for file_path in paths]
        self.groups: list[tuple[int, int]] = []
        counts = []
        for f, file in enumerate(self.files):
            for g in range(file.metadata.num_row_groups):
                self.groups.append((f, g))
                counts.append(file.metadata.row_group(g).num_rows)
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        self.names = list(self.files[0].schema_arrow.names)
        for file_path, file in zip(paths, self.files, strict=True):
            if list(file.schema_arrow.names) != self.names:
                raise ValueError(f"X: the columns of {file_path} differ from those of {paths[0]}.")
        self.shape = (int(self.starts[-1]), len(self.names))
        # The number of the group that was read last, and its rows.
        self._last_group: tuple[int, AnyArray] | None = None

    def take(self, rows: Rows) -> AnyArray:
        """Return these rows, read group by group."""
        if isinstance(rows, slice):
            wanted = np.arange(*rows.indices(self.shape[0]))
        else:
            wanted = np.asarray(rows)
        out = np.empty((len(wanted), self.shape[1]))
        groups = np.searchsorted(self.starts, wanted, side="right") - 1
        for g in np.unique(groups):
            inside = groups == g
            out[inside] = self._group(int(g))[wanted[inside] - self.starts[g]]
        return out

    def _group(self, g: int) -> AnyArray:
        """Return the rows of a row group."""
        # Another thread may replace the attribute while this one reads a group.
        last_group = self._last_group
        if last_group is None or last_group[0] != g:
            # Freed first: two groups may not fit in memory.
            self._last_group = last_group = None
            file, number = self.groups[g]
            table = self.files[file].read_row_group(number)
            columns = [_numbers(table.column(name), name) for name in self.names or []]
            last_group = (g, np.column_stack(columns))
            self._last_group = last_group
        return last_group[1]


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
        if hasattr(X, "to_dask_array"):
            X = X.to_dask_array()
        if any(np.isnan(size) for size in X.chunks[0]):
            # A task is computed first, which raises if there is no worker: Dask itself would wait
            # without end.
            gathered([import_module("dask").delayed(int)()])
            X = X.compute_chunk_sizes()
        # Every partition holds whole rows.
        self.X = X.rechunk({1: -1}) if X.ndim == 2 else X
        self.shape = self.X.shape

    def take(self, rows: Rows) -> AnyArray:
        """Return these rows, in this process."""
        return np.asarray(gathered([self.X[rows]])[0])

    def content_hashes(self, seed: int) -> AnyArray:
        """Return a hash of the content of every row, computed by the workers."""
        hash_block = import_module("dask").delayed(_hash_block)
        # Hashes are computed by the workers: the rows do not travel.
        parts = [hash_block(block, seed) for block in self.X.to_delayed().ravel()]
        return np.concatenate(gathered(parts))

    @property
    def edges(self) -> Indices:
        """The first row of every partition, and the number of rows."""
        return np.concatenate([[0], np.cumsum(self.X.chunks[0])]).astype(np.intp)


def gathered(collections: list[Any], **options: Any) -> list[Any]:
    """Return what Dask computes.

    Parameters
    ----------
    collections : list
        Arrays, data frames or delayed values.
    **options
        Options of Dask.

    Raises
    ------
    TimeoutError
        Once the cluster has had no worker for the time that Dask's setting
        ``kernelmosaic.worker-timeout`` allows, one minute by default.
    """
    import dask

    client: Any = getattr(dask.base.get_scheduler(), "__self__", None)
    if not hasattr(client, "nthreads"):
        # There is no cluster: Dask computes in this process.
        return list(dask.compute(*collections, **options))
    timeout_setting = dask.config.get("kernelmosaic.worker-timeout", "60s")
    futures = client.compute(collections, **options)
    seconds = dask.utils.parse_timedelta(timeout_setting)
    last_worker_time = monotonic()
    result = run_coroutine_threadsafe(
        client.gather(futures, asynchronous=True), client.loop.asyncio_loop
    )
    while True:
        try:
            return list(result.result(timeout=min(1.0, seconds)))
        except TimeoutError:
            if result.done():
                # The error is that of a task.
                raise
        if client.nthreads():
            last_worker_time = monotonic()
        elif monotonic() - last_worker_time >= seconds:
            result.cancel()
            client.cancel(futures)
            raise TimeoutError(
                f"X: the Dask cluster has had no worker for {seconds:g} s: start workers and fit"
                " again; dask.config.set({'kernelmosaic.worker-timeout': '10min'}) waits longer."
            )


def _hash_block(block: ArrayOrTensor, seed: int) -> AnyArray:
    """Return a hash of the content of every row of a block."""
    block = to_host(block)
    if block.dtype.kind == "f":
        # The last digits of standardised columns depend on the order of samples.
        block = block.astype(np.float32)
    return content_hashes(block, seed)


def open_rows(X: MatrixLike) -> RowSource:
    """Return the source of the rows of X.

    X is an array, a sparse matrix, a Dask array or data frame, or the path of a `.npy` file, of a
    Parquet file or of a folder of Parquet files.
    """
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
    _check_path(path)
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"X={str(path)!r} is not read as an array of numbers: {error}") from error


def _check_path(path: Path) -> None:
    """Raise if there is no file or folder of this path."""
    if not path.exists():
        raise ValueError(
            f"X={str(path)!r}: there is no such file; give an array, or the path of a Parquet or"
            " .npy file."
        )


def _numbers(column: Any, name: str) -> Array:
    """Return a column of a Parquet table in double precision, or raise naming the column."""
    try:
        # A missing entry becomes NaN, which the checks of numbers find and name.
        return np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"X: the column {name!r} of the Parquet file does not hold numbers."
        ) from None


def _parquet_files(path: Any) -> list[Path]:
    """Return the Parquet files of a folder in order, or the one file, or raise if there is none."""
    path = Path(path)
    _check_path(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"X={str(path)!r}: the folder holds no file named *.parquet.")
    return files
