"""Sets as npz files: read with their checksum, and written to the cache whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.datasets.entries import DataSet

#: The environment variable that names a folder of npz files.
VARIABLE = "KERNELMOSAIC_DATA"

#: The arrays of one set, named as in its npz file.
Arrays = dict[str, NDArray[Any]]

_DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Digests:
    """Of the content of a set: whatever the order of its rows, and in the order given."""

    rows: str
    order: str


def row_digests(arrays: Arrays, views: Sequence[str] = ()) -> Digests:
    """Digest each row with its label, then the rows' digests, sorted and as they stand.

    Numbers count as float64, so that it does not matter which type a copy keeps them in.
    """
    blocks = [arrays["sequences"]] if "sequences" in arrays else [arrays[name] for name in views or ("X",)]
    labels = np.asarray(arrays["y"], dtype=np.float64) + 0.0  # minus zero becomes zero
    found = []
    for i, label in enumerate(labels):
        row = hashlib.blake2b(label.tobytes(), digest_size=16)
        for block in blocks:
            value = block[i]
            row.update(value if isinstance(value, bytes) else (np.asarray(value, dtype=np.float64) + 0.0).tobytes())
        found.append(row.digest())
    return Digests(_digest(sorted(found)), _digest(found))


def _digest(parts: list[bytes]) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def local_folder(data_home: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder of npz files the user named, by argument or by environment; None where neither does."""
    said = "data_home" if data_home is not None else VARIABLE
    value = data_home if data_home is not None else os.environ.get(VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{said}={str(value)!r} is not a folder: give one that holds the sets as npz files.")
    return folder


def read_file(path: Path, entry: DataSet) -> Arrays:
    """Return the arrays of a file whose checksum is the catalogue's; any other file is refused."""
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != entry.sha256:
        raise ValueError(
            f"{path} is not the file the catalogue knows: SHA-256 expected {entry.sha256}, found {found}. "
            f"It is damaged or of another origin: replace it by a good copy, or take it out of the folder so that "
            f"load({entry.stem!r}) looks elsewhere."
        )
    return _arrays(io.BytesIO(content))


def _arrays(file: io.BytesIO) -> Arrays:
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def cache_folder() -> Path:
    """Return where fetched sets are kept: under ``XDG_CACHE_HOME``, else ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "kernelmosaic"


def read_cache(entry: DataSet) -> Arrays | None:
    """Return what was fetched before; None where there is nothing, or nothing sound."""
    path = cache_folder() / entry.file_name
    if not path.exists():
        return None
    try:
        arrays = _arrays(io.BytesIO(path.read_bytes()))
        sound = row_digests(arrays, entry.views).rows == entry.rows
    except _DAMAGED:
        sound = False
    if not sound:
        warnings.warn(f"{path} is damaged and is passed over.", stacklevel=2)
        return None
    return arrays


def write_cache(entry: DataSet, arrays: Arrays) -> None:
    """Keep fetched arrays. The file takes its name only when complete, so that no reader meets half of it."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=entry.stem, suffix=".part", dir=folder)
    except OSError as error:
        warnings.warn(f"{entry.stem} is not kept: {folder} cannot be written to ({error}).", stacklevel=2)
        return
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, folder / entry.file_name)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
