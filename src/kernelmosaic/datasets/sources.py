"""Where the arrays of a set come from: a folder of files, scikit-learn, the cache, the network; in this order."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from http.client import HTTPException
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, TargetLike
from kernelmosaic.datasets.entries import DataSet
from kernelmosaic.files import write_bytes

# Files: read with their checksum, written whole or not at all ---------------------------------------------------------

#: The environment variable that names a folder of npz files.
VARIABLE = "KERNELMOSAIC_DATA"

#: The arrays of one set, named as in its npz file.
Arrays = dict[str, AnyArray]

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
    folder, buffer = cache_folder(), io.BytesIO()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        write_bytes(folder / entry.file_name, buffer.getvalue())
    except OSError as error:
        warnings.warn(f"{entry.stem} is not kept: {folder} cannot be written to ({error}).", stacklevel=2)


# Sources, in turn -----------------------------------------------------------------------------------------------------

#: The brightest grey level of the Olivetti faces, which scikit-learn scales to 1.
_BRIGHTEST = 242


@dataclass(frozen=True)
class Obtained:
    """The arrays of a set, where they come from, and whether the rows stand in the published order."""

    arrays: Arrays
    origin: str
    in_order: bool = True


def obtain(entry: DataSet, data_home: str | os.PathLike[str] | None, download: bool) -> Obtained:
    """Return the arrays of a set from the nearest place that has them."""
    folder = local_folder(data_home)
    if folder is not None and (folder / entry.file_name).is_file():
        return Obtained(read_file(folder / entry.file_name, entry), "file")
    if entry.bundled:
        return _checked(entry, _bundled(entry), "scikit-learn")
    if not entry.on_network:
        raise FileNotFoundError(_remedy(entry))
    if (cached := read_cache(entry)) is not None:
        return _checked(entry, cached, "cache")
    if not download:
        raise FileNotFoundError(f"{_remedy(entry)} download=False keeps load from fetching it.")
    try:
        arrays = _faces() if entry.faces else _openml(entry)
    except (OSError, HTTPException) as error:
        raise FileNotFoundError(f"{_remedy(entry)} Fetching it did not work: {error}.") from error
    obtained = _checked(entry, arrays, entry.how_to_get)
    write_cache(entry, arrays)
    return obtained


def _remedy(entry: DataSet) -> str:
    return (
        f"{entry.file_name} was not found. Put it into a folder and name that folder by data_home=… or the environment "
        f"variable {VARIABLE}. The set comes from {entry.source}: {entry.url}."
    )


def _checked(entry: DataSet, arrays: Arrays, origin: str) -> Obtained:
    """Refuse rows that are not the set's; say whether they stand in its order, and add the split if so."""
    wanted, found = Digests(entry.rows, entry.order), row_digests(arrays, entry.views)
    if found.rows != wanted.rows:
        raise ValueError(
            f"{entry.title} as given by {origin} does not have the rows the catalogue knows: digest expected "
            f"{wanted.rows}, found {found.rows}. It is not used. {_remedy(entry).partition('. ')[2]}"
        )
    in_order = found.order == wanted.order
    if in_order and entry.n_train is not None:
        rows = np.arange(entry.n_samples)
        arrays = arrays | {"train": rows[: entry.n_train], "test": rows[entry.n_train :]}
    return Obtained(arrays, origin, in_order)


def _bundled(entry: DataSet) -> Arrays:
    from sklearn import datasets

    copy = getattr(datasets, f"load_{entry.bundled}")()
    return {"X": copy.data, "y": copy.target, "feature_names": np.asarray(copy.feature_names)}


def _faces() -> Arrays:
    from sklearn.datasets import fetch_olivetti_faces

    # It prints what it does and keeps a copy of its own; ours is kept checked.
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copy = fetch_olivetti_faces(data_home=folder)
    return {"X": np.rint(np.asarray(copy.data) * _BRIGHTEST).astype(np.uint8), "y": np.asarray(copy.target, np.int64)}


def _openml(entry: DataSet) -> Arrays:
    """Fetch a set from OpenML, one view per number, in the form of its npz file."""
    names = entry.views or ("X",)
    blocks: Arrays = {}
    y = None
    for name, number in zip(names, entry.openml_ids, strict=True):
        copy = _fetch(entry, number)
        values = _values(copy)
        labels = _labels(entry, copy.target)
        if y is not None and not np.array_equal(y, labels):
            raise ValueError(f"{entry.title}: the views on OpenML do not have their rows in one order. It is not used.")
        y = labels
        blocks[name] = values
    assert y is not None
    if entry.site is not None:
        letters = blocks.pop("X").astype("S1")
        return {"sequences": np.ascontiguousarray(letters).view(f"S{letters.shape[1]}").ravel(), "y": y}
    if entry.views:
        return blocks | {"y": y}
    # Some of the sets are published with gaps, and used without the rows that have them.
    complete = ~np.isnan(blocks["X"]).any(axis=1)
    return {"X": blocks["X"][complete], "y": y[complete], "feature_names": np.asarray(copy.feature_names)}


def _fetch(entry: DataSet, number: int) -> Any:
    from sklearn.datasets import fetch_openml

    target = entry.openml_target or "default-target"
    with warnings.catch_warnings():
        # OpenML marks some columns as not to be used that the papers use, and says so each time.
        warnings.simplefilter("ignore")
        # This parser needs no pandas. What is fetched is kept in our own cache, checked.
        return fetch_openml(data_id=number, target_column=target, as_frame=False, parser="liac-arff", cache=False)


def _values(copy: Any) -> AnyArray:
    """Return the features: numbers, or text where the columns are letters. Categories come as their positions."""
    data = copy.data.toarray() if hasattr(copy.data, "toarray") else np.asarray(copy.data)
    categories = getattr(copy, "categories", None) or {}
    columns = [
        np.asarray(categories[name])[data[:, j].astype(int)] if name in categories else data[:, j]
        for j, name in enumerate(copy.feature_names)
    ]
    try:
        return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    except ValueError:
        return np.column_stack([np.asarray(column, dtype=str) for column in columns])


def _labels(entry: DataSet, target: TargetLike) -> AnyArray:
    mapping = dict(entry.openml_labels) or {text: int(label) for label, text in entry.label_names.items()}
    given = [str(int(value)) if isinstance(value, float | np.floating) else str(value) for value in target]
    if unknown := sorted(set(given) - set(mapping)):
        raise ValueError(f"{entry.title} on OpenML has the labels {unknown}, not {sorted(mapping)}. It is not used.")
    kind = np.float64 if entry.task == "regression" else np.int64
    return np.asarray([mapping[label] for label in given], dtype=kind)
