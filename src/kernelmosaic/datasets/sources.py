"""Where the arrays of a set come from: a folder of files, scikit-learn, the cache, the network; in this order."""

from __future__ import annotations

import os
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from http.client import HTTPException
from io import StringIO
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.datasets.entries import DataSet
from kernelmosaic.datasets.store import (
    VARIABLE,
    Arrays,
    Digests,
    local_folder,
    read_cache,
    read_file,
    row_digests,
    write_cache,
)

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
    """Fetch a set from OpenML, a view a number, in the form of its npz file."""
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


def _values(copy: Any) -> NDArray[Any]:
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


def _labels(entry: DataSet, target: Any) -> NDArray[Any]:
    mapping = dict(entry.openml_labels) or {text: int(label) for label, text in entry.label_names.items()}
    given = [str(int(value)) if isinstance(value, float | np.floating) else str(value) for value in target]
    if unknown := sorted(set(given) - set(mapping)):
        raise ValueError(f"{entry.title} on OpenML has the labels {unknown}, not {sorted(mapping)}. It is not used.")
    kind = np.float64 if entry.task == "regression" else np.int64
    return np.asarray([mapping[label] for label in given], dtype=kind)
