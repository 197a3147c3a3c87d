"""`load`: the public sets, as scikit-learn's loaders give theirs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import Bunch

from kernelmosaic._typing import AnyArray
from kernelmosaic.datasets.derived import render_pen
from kernelmosaic.datasets.entries import DataSet, find
from kernelmosaic.datasets.sources import Arrays, Obtained, obtain

#: Binary tasks on digits: what −1 and +1 stand for, and which digits are +1.
_DIGIT_TASKS = {"EO": (("even", "odd"), (1, 3, 5, 7, 9)), "SL": (("small", "large"), (5, 6, 7, 8, 9))}

#: Sides of the bitmaps drawn from the pen traces.
_BITMAPS = (4, 8, 16)

#: Arrays of the files that have a name of their own among the results.
_KNOWN = frozenset({"X", "y", "classes", "feature_names", "sequences", "train", "test"})


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

    The first of these that has it is used: the folder of npz files; scikit-learn's own sets; what was fetched before,
    in ``~/.cache/kernelmosaic`` (or under ``XDG_CACHE_HOME``); OpenML, or scikit-learn's download of the faces. A file
    of the folder is used only if its SHA-256 is the catalogue's, any other copy only if its rows and labels are the
    catalogue's. Nothing is scaled or filled in.

    Parameters
    ----------
    name : str
        Name of the file or in the papers; case, blanks and punctuation do not matter. See `names` and `catalogue`.
    data_home : path or None, default=None
        Folder of npz files; None means the environment variable ``KERNELMOSAIC_DATA``, if set.
    task : {"EO", "SL"} or None, default=None
        For sets of digits: even (−1) against odd (+1), or small, 0–4 (−1), against large, 5–9 (+1). None keeps the
        labels.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` alone.
    dtype : data-type or None, default=float64
        Type of numeric features. None keeps the file's, often a byte, which saves memory: MNIST is 439 MB as float64.
        Mind that bytes overflow when squared.
    download : bool, default=True
        Whether the network may be used.

    Returns
    -------
    Bunch
        With the following keys.

        data : ndarray of shape (n_samples, n_features)
            Several views stand side by side. Sequences are a vector of bytes; pen traces a list of arrays.
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
            The set, its name in the papers, "binary", "multiclass" or "regression", a description, and where the rows
            were found.
        in_order : bool
            Whether the rows stand in the order of the npz file. A copy from OpenML may have them in another; it then
            comes without the published split, and seeds split it differently.

        Further arrays of a file (writer, position, …) keep their names there; `site` is the position in a sequence the
        label is about.

    Raises
    ------
    FileNotFoundError
        If the set cannot be had from any of these places. The message says where to ask for it.
    ValueError
        If the name is not known, or a copy is not that of the catalogue.

    Notes
    -----
    Fetching is tested against stand-ins for the servers' answers only: neither the numbers of the sets on OpenML and
    their spelling of the labels, nor scikit-learn's download of the faces, have been tried against the live servers. A
    copy that differs is refused, never used.

    Examples
    --------
    >>> from kernelmosaic.datasets import load
    >>> wine = load("wine")
    >>> wine.data.shape, wine.task
    ((178, 13), 'multiclass')
    """
    entry = find(name)
    if task is not None and (task not in _DIGIT_TASKS or not entry.digits):
        fits = "'EO', 'SL' or None" if entry.digits else f"None, since {entry.title} is not a set of digits"
        raise ValueError(f"task={task!r}: give {fits}.")
    obtained = obtain(entry, data_home, download)
    found = _assemble(entry, obtained, dtype)
    if entry.stem == "pendigits" and not return_X_y:
        found.views = _pendigits_views(found, data_home, dtype)
    if task is not None:
        found.target_names, positive = list(_DIGIT_TASKS[task][0]), _DIGIT_TASKS[task][1]
        found.target = np.where(np.isin(found.target, positive), 1, -1)
        found.classes, found.task = np.array([-1, 1]), "binary"
    return (found.data, found.target) if return_X_y else found


def join_views(views: Mapping[str, AnyArray]) -> tuple[AnyArray, dict[str, NDArray[np.intp]]]:
    """Set views side by side; return the matrix and the columns each view has in it.

    Parameters
    ----------
    views : mapping of str to ndarray of shape (n_samples, n_features_of_view)

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    columns : dict of str to ndarray
        As kernels take them: ``[(name, Linear(), columns[name]) for name in columns]``.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.datasets import join_views
    >>> X, columns = join_views({"a": np.zeros((3, 2)), "b": np.ones((3, 1))})
    >>> X.shape, columns["b"].tolist()
    ((3, 3), [2])
    """
    edges = np.cumsum([0, *(view.shape[1] for view in views.values())])
    columns = {name: np.arange(a, b) for name, a, b in zip(views, edges[:-1], edges[1:], strict=True)}
    return np.hstack(list(views.values())), columns


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
    others = {name: value for name, value in arrays.items() if name not in _KNOWN and name not in entry.views}
    found.update(others)
    if views:
        found.data, found.columns = join_views(views)
        # Where names are given they begin with those of what is kept apart.
        found.feature_names = found.feature_names[-found.data.shape[1] :]
    else:
        found.data = _data(arrays, dtype)
    return found


def _data(arrays: Arrays, dtype: DTypeLike | None) -> Any:
    if "X" in arrays:
        return _numbers(arrays["X"], dtype)
    if "sequences" in arrays:
        return arrays["sequences"]
    return np.split(arrays["points"], arrays["offsets"][1:-1])


def _numbers(values: AnyArray, dtype: DTypeLike | None) -> AnyArray:
    return values if dtype is None else values.astype(dtype)


def _describe(entry: DataSet, obtained: Obtained) -> str:
    lines = [
        f"{entry.title}: {entry.n_samples} samples, {entry.inputs}; {entry.task}.",
        f"Source: {entry.source}, {entry.url}",
        f"Licence: {entry.licence}",
        f"Found in: {obtained.origin}",
        entry.notes,
        "" if obtained.in_order else "The rows are in another order than in the npz file; there is no published split.",
    ]
    return "\n".join(line for line in lines if line)


def _pendigits_views(
    dynamic: Bunch, data_home: str | os.PathLike[str] | None, dtype: DTypeLike | None
) -> dict[str, AnyArray]:
    """Return the coordinates and, if the traces are at hand and in the same order, bitmaps drawn from them."""
    views = {"dyn": dynamic.data}
    try:
        traces = obtain(find("pendigits_orig"), data_home, download=False).arrays
    except FileNotFoundError:
        traces = None
    if traces is None or not dynamic.in_order:
        reason = "pendigits_orig.npz was not found" if traces is None else "the rows are not in the published order"
        warnings.warn(f"PENDIGITS comes without its bitmaps: {reason}.", stacklevel=3)
        return views
    finest = max(_BITMAPS)
    drawn = render_pen(traces["points"], traces["offsets"], traces["stroke"], finest)
    for size in _BITMAPS:
        # The share of a pixel that is covered is the mean over the finer pixels it consists of.
        squares = drawn.reshape(-1, size, finest // size, size, finest // size).mean(axis=(2, 4))
        views[f"{size}x{size}"] = _numbers(squares.reshape(len(drawn), -1), dtype)
    return views
