"""`load`: the public sets, from a folder of files, scikit-learn, the cache or the network, in this
order."""

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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils import Bunch

from kernelmosaic._typing import AnyArray, TargetLike
from kernelmosaic.datasets import data_folder
from kernelmosaic.files import cache_folder, write_bytes
from kernelmosaic.stacking import stack_views
from reproduction.data.entries import DataSet, find

#: The arrays of one set, named as in its npz file.
Arrays = dict[str, AnyArray]


def load(
    name: str,
    data_home: str | os.PathLike[str] | None = None,
    *,
    task: str | None = None,
    return_X_y: bool = False,
    dtype: DTypeLike | None = np.float64,
    download: bool = True,
) -> Any:
    """Load a public set.

    The first of these that has it is used: the folder of npz files; scikit-learn's own sets; what
    was fetched before, in ``~/.cache/kernelmosaic`` (or under ``XDG_CACHE_HOME``); OpenML, or
    scikit-learn's download of the faces. A file of the folder is used only if its SHA-256 is the
    catalogue's, any other copy only if its rows and labels are the catalogue's. Nothing is scaled
    or filled in.

    Parameters
    ----------
    name : str
        Name of the file or in the papers; case, blanks and punctuation do not matter. See `names`
        and `catalogue`.
    data_home : path or None, default=None
        Folder of npz files; None means the environment variable ``KERNELMOSAIC_DATA``, if set.
    task : {"EO", "SL"} or None, default=None
        For sets of digits: even (−1) against odd (+1), or small, 0–4 (−1), against large, 5–9 (+1).
        None keeps the labels.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` alone.
    dtype : data-type or None, default=float64
        Type of numeric features. None keeps the file's, often a byte, which saves memory: MNIST is
        439 MB as float64. Mind that bytes overflow when squared.
    download : bool, default=True
        Whether the network may be used.

    Returns
    -------
    Bunch
        With the following keys.

        data : ndarray of shape (n_samples, n_features)
            Several views stand side by side. Sequences are a vector of bytes; pen traces a list of
            arrays.
        target : ndarray of shape (n_samples,)
            Labels or values.
        views : dict of str to ndarray
            The views, where there are several.
        columns : dict of str to ndarray
            Which columns of data each view has, where data consists of views.
        feature_names : list of str
            Empty where no names are known.
        classes, target_names : ndarray, list of str
            The labels in order and what they stand for; empty for regression.
        train, test : ndarray or None
            Row numbers of the published split.
        sequences : ndarray of bytes or None
            The strings, where there are any.
        name, title, task, DESCR, origin : str
            The set, its name in the papers, "binary", "multiclass" or "regression", a description,
            and where the rows were found.
        in_order : bool
            Whether the rows stand in the order of the npz file. A copy from OpenML may have them in
            another; it then comes without the published split, and seeds split it differently.

        Further arrays of a file (writer, position, …) keep their names there; `site` is the
        position in a sequence the label is about.

    Raises
    ------
    FileNotFoundError
        If the set cannot be had from any of these places. The message says where to ask for it.
    ValueError
        If the name is not known, or a copy is not that of the catalogue.

    Notes
    -----
    Fetching is tested against stand-ins for the servers' answers only: neither the numbers of the
    sets on OpenML and their spelling of the labels, nor scikit-learn's download of the faces, have
    been tried against the live servers. A copy that differs is refused, never used.

    Examples
    --------
    >>> from reproduction.data import load
    >>> wine = load("wine")
    >>> wine.data.shape, wine.task
    ((178, 13), 'multiclass')
    """
    entry = find(name)
    # Binary tasks on digits: what −1 and +1 stand for, and which digits are +1.
    tasks = {"EO": (["even", "odd"], (1, 3, 5, 7, 9)), "SL": (["small", "large"], (5, 6, 7, 8, 9))}
    if task is not None and (task not in tasks or not entry.digits):
        fits = (
            "'EO', 'SL' or None"
            if entry.digits
            else f"None, since {entry.title} is not a set of digits"
        )
        raise ValueError(f"task={task!r}: give {fits}.")
    obtained = obtain(entry, data_home, download)
    found = _assemble(entry, obtained, dtype)
    if entry.stem == "pendigits" and not return_X_y:
        found.views = _pendigits_views(found, data_home, dtype)
    if task is not None:
        found.target_names, positive = tasks[task]
        found.target = np.where(np.isin(found.target, positive), 1, -1)
        found.classes, found.task = np.array([-1, 1]), "binary"
    return (found.data, found.target) if return_X_y else found


def _assemble(entry: DataSet, obtained: Obtained, dtype: DTypeLike | None) -> Bunch:
    """Return the arrays of a file under the names of a Bunch."""
    arrays = obtained.arrays
    regression = entry.task == "regression"
    target = arrays["y"].astype(np.float64 if regression else np.int64)
    classes = np.array([], dtype=np.int64) if regression else np.unique(target)
    views = {name: _numbers(arrays[name], dtype) for name in entry.views}
    found = Bunch(
        target=target,
        views=views,
        columns={},
        feature_names=[str(name) for name in arrays.get("feature_names", [])],
        classes=classes,
        target_names=[entry.label_names.get(str(label), str(label)) for label in classes],
        train=arrays.get("train"),
        test=arrays.get("test"),
        sequences=arrays.get("sequences"),
        site=entry.site,
        name=entry.stem,
        title=entry.title,
        task=entry.task,
        DESCR=_describe(entry, obtained),
        origin=obtained.origin,
        in_order=obtained.in_order,
    )
    # The others keep their names.
    named = {"X", "y", "classes", "feature_names", "sequences", "train", "test", *entry.views}
    found.update({name: value for name, value in arrays.items() if name not in named})
    if views:
        found.data, found.columns = stack_views(views)
        # Where names are given they begin with those of what is kept apart.
        found.feature_names = found.feature_names[-found.data.shape[1] :]
    elif "X" in arrays:
        found.data = _numbers(arrays["X"], dtype)
    elif "sequences" in arrays:
        found.data = arrays["sequences"]
    else:
        found.data = np.split(arrays["points"], arrays["offsets"][1:-1])
    return found


def _numbers(values: AnyArray, dtype: DTypeLike | None) -> AnyArray:
    return values if dtype is None else values.astype(dtype)


def _describe(entry: DataSet, obtained: Obtained) -> str:
    lines = [
        f"{entry.title}: {entry.n_samples} samples, {entry.inputs}; {entry.task}.",
        f"Source: {entry.source}, {entry.url}",
        f"Licence: {entry.licence}",
        f"Found in: {obtained.origin}",
        entry.notes,
        (
            ""
            if obtained.in_order
            else "The rows are in another order than in the npz file; there is no published split."
        ),
    ]
    return "\n".join(line for line in lines if line)


def _pendigits_views(
    dynamic: Bunch, data_home: str | os.PathLike[str] | None, dtype: DTypeLike | None
) -> dict[str, AnyArray]:
    """Return the coordinates and, if the traces are at hand and in the same order, bitmaps drawn
    from them."""
    views = {"dyn": dynamic.data}
    try:
        traces = obtain(find("pendigits_orig"), data_home, download=False).arrays
    except FileNotFoundError:
        traces = None
    if traces is None or not dynamic.in_order:
        reason = (
            "pendigits_orig.npz was not found"
            if traces is None
            else "the rows are not in the published order"
        )
        warnings.warn(f"PENDIGITS comes without its bitmaps: {reason}.", stacklevel=3)
        return views
    from reproduction.data._numba_pen import render_pen

    finest = 16
    drawn = render_pen(traces["points"], traces["offsets"], traces["stroke"], finest)
    for size in (4, 8, finest):
        # The share of a pixel that is covered is the mean over the finer pixels it consists of.
        squares = drawn.reshape(-1, size, finest // size, size, finest // size).mean(axis=(2, 4))
        views[f"{size}x{size}"] = _numbers(squares.reshape(len(drawn), -1), dtype)
    return views


# Where the arrays come from -----------------------------------------------------------------------


class Digests(NamedTuple):
    """Of the content of a set: whatever the order of its rows, and in the order given."""

    rows: str
    order: str


def row_digests(arrays: Arrays, views: Sequence[str] = ()) -> Digests:
    """Digest each row with its label, then the rows' digests, sorted and as they stand.

    Numbers count as float64, so that it does not matter which type a copy keeps them in.
    """
    blocks = (
        [arrays["sequences"]]
        if "sequences" in arrays
        else [arrays[name] for name in views or ("X",)]
    )
    labels = np.asarray(arrays["y"], dtype=np.float64) + 0.0  # minus zero becomes zero
    found = []
    for i, label in enumerate(labels):
        row = hashlib.blake2b(label.tobytes(), digest_size=16)
        for block in blocks:
            value = block[i]
            row.update(
                value
                if isinstance(value, bytes)
                else (np.asarray(value, dtype=np.float64) + 0.0).tobytes()
            )
        found.append(row.digest())
    return Digests(_digest(sorted(found)), _digest(found))


def _digest(parts: list[bytes]) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def read_file(path: Path, entry: DataSet) -> Arrays:
    """Return the arrays of a file whose checksum is the catalogue's; any other file is refused."""
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != entry.sha256:
        raise ValueError(
            f"{path} is not the file the catalogue knows: SHA-256 expected {entry.sha256}, found"
            f" {found}. It is damaged or of another origin: replace it by a good copy, or take it"
            f" out of the folder so that load({entry.stem!r}) looks elsewhere."
        )
    return _arrays(io.BytesIO(content))


def _arrays(file: io.BytesIO) -> Arrays:
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def read_cache(entry: DataSet) -> Arrays | None:
    """Return what was fetched before; None where there is nothing, or nothing sound."""
    path = cache_folder() / entry.file_name
    if not path.exists():
        return None
    try:
        arrays = _arrays(io.BytesIO(path.read_bytes()))
        sound = row_digests(arrays, entry.views).rows == entry.rows
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        sound = False
    if not sound:
        warnings.warn(f"{path} is damaged and is passed over.", stacklevel=2)
        return None
    return arrays


def write_cache(entry: DataSet, arrays: Arrays) -> None:
    """Keep fetched arrays. The file takes its name only when complete, so that no reader meets half
    of it."""
    folder, buffer = cache_folder(), io.BytesIO()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        write_bytes(folder / entry.file_name, buffer.getvalue())
    except OSError as error:
        warnings.warn(
            f"{entry.stem} is not kept: {folder} cannot be written to ({error}).", stacklevel=2
        )


@dataclass(frozen=True)
class Obtained:
    """The arrays of a set, where they come from, and whether the rows stand in the published
    order."""

    arrays: Arrays
    origin: str
    in_order: bool = True


def obtain(entry: DataSet, data_home: str | os.PathLike[str] | None, download: bool) -> Obtained:
    """Return the arrays of a set from the nearest place that has them."""
    folder = data_folder(data_home)
    if folder is not None and (folder / entry.file_name).is_file():
        return Obtained(read_file(folder / entry.file_name, entry), "file")
    if entry.bundled:
        from sklearn import datasets

        copy = getattr(datasets, f"load_{entry.bundled}")()
        arrays = {"X": copy.data, "y": copy.target, "feature_names": np.asarray(copy.feature_names)}
        return _checked(entry, arrays, "scikit-learn")
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
        f"{entry.file_name} was not found. Put it into a folder and name that folder by data_home=…"
        f" or the environment variable KERNELMOSAIC_DATA. The set comes from {entry.source}:"
        f" {entry.url}."
    )


def _checked(entry: DataSet, arrays: Arrays, origin: str) -> Obtained:
    """Refuse rows that are not the set's; say whether they stand in its order, and add the split if
    so."""
    found = row_digests(arrays, entry.views)
    if found.rows != entry.rows:
        raise ValueError(
            f"{entry.title} as given by {origin} does not have the rows the catalogue knows: digest"
            f" expected {entry.rows}, found {found.rows}. It is not used."
            f" {_remedy(entry).partition('. ')[2]}"
        )
    in_order = found.order == entry.order
    if in_order and entry.n_train is not None:
        rows = np.arange(entry.n_samples)
        arrays = arrays | {"train": rows[: entry.n_train], "test": rows[entry.n_train :]}
    return Obtained(arrays, origin, in_order)


def _faces() -> Arrays:
    from sklearn.datasets import fetch_olivetti_faces

    # It prints what it does and keeps a copy of its own; ours is kept checked.
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copy = fetch_olivetti_faces(data_home=folder)
    # The brightest grey level, 242, is scaled to 1 by scikit-learn.
    return {
        "X": np.rint(np.asarray(copy.data) * 242).astype(np.uint8),
        "y": np.asarray(copy.target, np.int64),
    }


def _openml(entry: DataSet) -> Arrays:
    """Fetch a set from OpenML, one view per number, in the form of its npz file."""
    from sklearn.datasets import fetch_openml

    names, target = entry.views or ("X",), entry.openml_target or "default-target"
    blocks: Arrays = {}
    y = None
    for name, number in zip(names, entry.openml_ids, strict=True):
        with warnings.catch_warnings():
            # OpenML marks some columns as not to be used that the papers use, and says so each
            # time.
            warnings.simplefilter("ignore")
            # This parser needs no pandas. What is fetched is kept in our own cache, checked.
            copy = fetch_openml(
                data_id=number,
                target_column=target,
                as_frame=False,
                parser="liac-arff",
                cache=False,
            )
        labels = _labels(entry, copy.target)
        if y is not None and not np.array_equal(y, labels):
            raise ValueError(
                f"{entry.title}: the views on OpenML do not have their rows in one order. It is not"
                " used."
            )
        y, blocks[name] = labels, _values(copy)
    assert y is not None
    if entry.site is not None:
        letters = blocks.pop("X").astype("S1")
        return {
            "sequences": np.ascontiguousarray(letters).view(f"S{letters.shape[1]}").ravel(),
            "y": y,
        }
    if entry.views:
        return blocks | {"y": y}
    # Some of the sets are published with gaps, and used without the rows that have them.
    complete = ~np.isnan(blocks["X"]).any(axis=1)
    return {
        "X": blocks["X"][complete],
        "y": y[complete],
        "feature_names": np.asarray(copy.feature_names),
    }


def _values(copy: Any) -> AnyArray:
    """Return the features: numbers, or text where the columns are letters. Categories come as their
    positions."""
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
    mapping = dict(entry.openml_labels) or {
        text: int(label) for label, text in entry.label_names.items()
    }
    given = [
        str(int(value)) if isinstance(value, float | np.floating) else str(value)
        for value in target
    ]
    if unknown := sorted(set(given) - set(mapping)):
        raise ValueError(
            f"{entry.title} on OpenML has the labels {unknown}, not {sorted(mapping)}. It is not"
            " used."
        )
    kind = np.float64 if entry.task == "regression" else np.int64
    return np.asarray([mapping[label] for label in given], dtype=kind)
