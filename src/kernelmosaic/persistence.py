"""Model files: fitted estimators written to disk and read back without running anyone's code.

A model file is a skops archive with one more member, ``kernelmosaic.json``, which names what wrote
it. Objects are rebuilt only if their types are on a list: those of this package and those of NumPy,
SciPy and scikit-learn that a model is made of. The digest in the header finds damage and changes
made by hand. It is no signature: who can write the file can write the digest too, and then decides
what the model predicts, but still not what runs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import reprlib
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from inspect import isabstract, isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import Any

import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from kernelmosaic import __version__
from kernelmosaic._typing import Estimator
from kernelmosaic.estimators import HOMES as ESTIMATOR_HOMES
from kernelmosaic.files import existing_file, write_bytes
from kernelmosaic.kernels import HOMES as KERNEL_HOMES

__all__ = ["ModelFileInfo", "info", "load", "save"]

_HEADER = "kernelmosaic.json"
_MODEL = "the path of a file that save or `kernelmosaic fit` wrote"
#: Bytes that a model file may unpack to, unless `max_bytes` says otherwise: a small file may hold
#: many zeros.
MAX_BYTES = 2**31
#: Sparse support samples, which skops rebuilds by scipy.sparse.load_npz, without pickled objects.
_SPARSE = {
    *(
        f"scipy.sparse._{form}.{form}_{kind}"
        for form in ("csr", "csc")
        for kind in ("matrix", "array")
    ),
    # A sparse table is read back without the names of its columns, which the model knows.
    "kernelmosaic.stacking.SparseTable",
}
#: What preprocessing holds beside arrays: their dtypes, and the curves of SplineTransformer, which
#: are arrays, too.
_ARRAY_TYPES = {"numpy.dtype", "scipy.interpolate._bsplines.BSpline"}
#: Where scikit-learn has functions of arrays that its preprocessing is given: scores of columns,
#: and scales.
_FUNCTION_MODULES = ("sklearn.feature_selection", "sklearn.preprocessing")


@dataclass(frozen=True)
class ModelFileInfo:
    """Header of a model file.

    Attributes
    ----------
    estimator : str
        Class of the estimator.
    kernelmosaic_version, sklearn_version, python_version : str
        What wrote it.
    created : str
        When, in ISO 8601, UTC.
    digest : str
        SHA-256 of the other members.
    """

    estimator: str
    kernelmosaic_version: str
    sklearn_version: str
    python_version: str
    created: str
    digest: str


def save(
    estimator: Estimator, path: str | os.PathLike[str], *, trusted: Iterable[str] = ()
) -> None:
    """Write an estimator to a file.

    The file is complete or not there: it is written beside its place and then moved. An existing
    file is replaced, also where a symbolic link leads to it, and keeps its mode; a device or a FIFO
    is refused. Of several runs that save to the same file at once, the last one wins.

    Parameters
    ----------
    estimator : estimator
        Of this package, or a pipeline or search of scikit-learn around one; fitted or not.
    path : str or path-like
        Where to; ``.skops`` is the usual ending.
    trusted : iterable of str, default=()
        Full names of further types, such as a kernel class of your own; `load` needs the same
        names.

    Raises
    ------
    ValueError
        If the estimator holds something that `load` would refuse: a lambda, for example, or an
        object of unknown type.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernelmosaic import MKLClassifier, load, save
    >>> model = MKLClassifier().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.skops")
    ...     load(f"{folder}/model.skops").predict([[2.5]])
    array([1])
    """
    if not isinstance(estimator, BaseEstimator):
        raise TypeError(
            f"estimator={estimator!r}: give an estimator object; save writes nothing else."
        )
    path = _read_path(path)
    skops_io = _skops_io()
    trusted = _names(trusted)
    try:
        data = skops_io.dumps(estimator, compression=zipfile.ZIP_DEFLATED)
        unknown = _unknown(skops_io.get_untrusted_types(data=data), trusted)
    except Exception as error:  # whatever its attributes raise as their state is read
        raise ValueError(
            f"{type(estimator).__name__} cannot be saved: {error}. Parameters and attributes must"
            " be arrays, numbers, text, lists, dicts, kernels and estimators."
        ) from error
    if unknown:
        advice = (
            "Give lists and arrays instead, or name types that you know to be harmless in trusted=,"
            " here and when loading."
        )
        if any(name.endswith("<lambda>") for name in unknown):
            advice = (
                "A lambda has no name by which to find it again: list the columns, or use"
                " make_column_selector."
            )
        raise ValueError(
            f"{type(estimator).__name__} cannot be saved, it holds {', '.join(unknown)}. {advice}"
        )
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        header = ModelFileInfo(
            estimator=_type_name(type(estimator)),
            kernelmosaic_version=__version__,
            sklearn_version=sklearn.__version__,
            python_version=platform.python_version(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            digest=_digest(archive),
        )
        archive.writestr(_HEADER, json.dumps(asdict(header), indent=2))
    write_bytes(path, buffer.getvalue())


def load(
    path: str | os.PathLike[str], *, trusted: Iterable[str] = (), max_bytes: int = MAX_BYTES
) -> Estimator:
    """Read an estimator that `save` wrote.

    Nothing in the file is run: only objects of listed types are rebuilt, from arrays, numbers and
    text.

    Parameters
    ----------
    path : str or path-like
        The file.
    trusted : iterable of str, default=()
        Full names of further types to rebuild. Name only what you know to be harmless.
    max_bytes : int, default=2**31
        Most bytes that the file may unpack to. The sizes it states are added up before anything is
        unpacked, and no more than these are read.

    Returns
    -------
    estimator
        The saved estimator, with the same predictions.

    Raises
    ------
    ValueError
        If the file is not a model file, is damaged or changed, holds other types, was written by
        another minor version of kernelmosaic, or unpacks to more than `max_bytes`.

    Warns
    -----
    InconsistentVersionWarning
        If another version of scikit-learn wrote it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernelmosaic import MKLClassifier, load, save
    >>> with TemporaryDirectory() as folder:
    ...     save(MKLClassifier(C=3.0), f"{folder}/model.skops")
    ...     load(f"{folder}/model.skops")
    MKLClassifier(C=3.0)
    """
    skops_io = _skops_io()
    trusted = _names(trusted)
    data = existing_file(_read_path(path), _MODEL).read_bytes()
    header = _read_header(path, data, max_bytes)
    try:
        held = skops_io.get_untrusted_types(data=data)
        unknown = _unknown(held, trusted)
    except Exception as error:  # whatever a schema made by hand provokes
        raise ValueError(f"{path} is damaged or was changed: {error!r}.") from error
    if unknown:
        raise ValueError(
            f"{path} is refused: it holds {', '.join(unknown)}, which models of kernelmosaic do"
            " not. If you know these to be harmless, name them in trusted=."
        )
    if header.sklearn_version != sklearn.__version__:
        name = header.estimator.rpartition(".")[2]
        versions = {
            "current_sklearn_version": sklearn.__version__,
            "original_sklearn_version": header.sklearn_version,
        }
        warnings.warn(InconsistentVersionWarning(estimator_name=name, **versions), stacklevel=2)
    try:
        estimator = skops_io.loads(data, trusted=held)  # all of them are known by now
    except Exception as error:
        raise ValueError(
            f"{path} cannot be rebuilt: {error!r}. It was written by kernelmosaic"
            f" {header.kernelmosaic_version} with scikit-learn {header.sklearn_version}."
        ) from error
    if (kind := _type_name(type(estimator))) != header.estimator:
        raise ValueError(
            f"{path} is damaged or was changed: its header names {header.estimator}, and it holds"
            f" {kind}."
        )
    return estimator


def info(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> ModelFileInfo:
    """Return the header of a model file without rebuilding anything; `max_bytes` as in `load`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernelmosaic import MKLClassifier, save
    >>> from kernelmosaic.persistence import info
    >>> with TemporaryDirectory() as folder:
    ...     save(MKLClassifier(), f"{folder}/model.skops")
    ...     info(f"{folder}/model.skops").estimator
    'kernelmosaic.estimators.classifier.MKLClassifier'
    """
    return _read_header(path, existing_file(_read_path(path), _MODEL).read_bytes(), max_bytes)


def _read_path(path: Any) -> Path:
    """Return the path of a model file, or raise if it is none."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"path={reprlib.repr(path)}: give the name of a file, such as 'model.skops'."
        )
    return Path(path)


@cache
def is_trusted(name: str) -> bool:
    """Whether a type, given by its full name, is rebuilt although skops itself does not trust
    it."""
    module, _, last = name.rpartition(".")
    if name in _SPARSE or name in _ARRAY_TYPES or _is_function_of_arrays(name):
        return True
    if not _may_hold_types(module):
        return False
    try:
        kind: Any = getattr(import_module(module), last, None)
    except ImportError:
        return False
    is_its_own = isinstance(kind, type) and _type_name(kind) == name
    if module.startswith("kernelmosaic."):
        return is_its_own
    is_estimator = (
        is_its_own
        and issubclass(kind, BaseEstimator)
        and not isabstract(kind)
        and not last.startswith("_")
    )
    # Fields of numbers and estimators, without code of its own.
    is_record = is_its_own and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_estimator or is_record or name in _from_scikit_learn()


def _is_function_of_arrays(name: str) -> bool:
    """Whether a name is that of a function of arrays that opens no file and calls nothing that it
    is given.

    Of scikit-learn these are the public functions of `_FUNCTION_MODULES`; of NumPy those of one
    array, such as the mean or the median; of SciPy its own name for ``numpy.asarray``.
    """
    module, _, last = name.rpartition(".")
    if module.partition(".")[0] == "sklearn":
        homes = [import_module(home) for home in _FUNCTION_MODULES]
        public = [getattr(home, last) for home in homes if last in home.__all__]
        return any(isfunction(function) and _type_name(function) == name for function in public)
    if module == "numpy":
        return _reads_one_array(getattr(import_module(module), last, None))
    return name == "scipy._lib.array_api_compat.numpy._aliases.asarray"


def _reads_one_array(function: object) -> bool:
    """Whether a function of NumPy has an array as its first parameter, and none that it would
    call."""
    if not callable(function) or isinstance(function, type):
        return False
    try:
        names = list(signature(function).parameters)
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    takes_functions = any(name.startswith(("func", "format")) for name in names)
    return names[:1] in (["a"], ["x"]) and not takes_functions


def _may_hold_types(module: str) -> bool:
    """Whether a module is one whose types models may hold, and so is imported to see."""
    package, _, rest = module.partition(".")
    parts = rest.split(".")
    if package == "sklearn":  # what scikit-learn itself passes over when it lists its estimators
        return not {"tests", "externals", "conftest", "experimental", "estimator_checks"} & {*parts}
    # Stacks, learners and readers of files are elsewhere: a model holds none, and building a reader
    # opens its file.
    homes = {"kernels", "estimators", "imputing", "schema", "model_selection"}
    homes |= {"gram.kernel_set", "gram.missing", "gram.normalizing", "gram.feature_maps"}
    homes |= {
        "engine.calibration",
        "engine.conformal",
        "engine.expansion",
        "engine.samples",
        "engine.tasks",
    }
    # A family has in its folder what its models hold, and nothing that reads files.
    homes |= {
        module.partition(".")[0] for module in (*ESTIMATOR_HOMES.values(), *KERNEL_HOMES.values())
    }
    # Modules that need one of these packages hold compiled loops and the like, no part of a model.
    late = ("_numba_", "_torch_", "_dask_")
    is_home = rest in homes or rest.rpartition(".")[0] in homes
    return package == "kernelmosaic" and is_home and not parts[-1].startswith(late)


@cache
def _from_scikit_learn() -> frozenset[str]:
    """What searches and columns hold beside estimators: splitters and their routing, scorers,
    patterns of names."""
    from sklearn.compose import _column_transformer, make_column_selector
    from sklearn.metrics import _scorer, get_scorer, get_scorer_names
    from sklearn.model_selection import _split
    from sklearn.utils._metadata_requests import MetadataRequest, MethodMetadataRequest

    kinds: list[Any] = [make_column_selector, MetadataRequest, MethodMetadataRequest]
    if hasattr(
        _column_transformer, "_RemainderColsList"
    ):  # up to scikit-learn 1.6, columns that were left over
        kinds.append(_column_transformer._RemainderColsList)
    for module in (_split, _scorer):
        kinds += [
            k
            for k in vars(module).values()
            if isinstance(k, type) and k.__module__ == module.__name__
        ]
    kinds += [get_scorer(name)._score_func for name in get_scorer_names()]
    return frozenset(map(_type_name, kinds))


def _type_name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _unknown(types: Iterable[str], trusted: Iterable[str]) -> list[str]:
    return [name for name in types if name not in trusted and not is_trusted(name)]


def _names(trusted: Iterable[str]) -> list[str]:
    names = [trusted] if isinstance(trusted, str) else list(trusted)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"trusted={trusted!r}: give full names, such as ['package.module.Class'].")
    return names


def _digest(archive: zipfile.ZipFile) -> str:
    total = hashlib.sha256()
    for name in sorted(set(archive.namelist()) - {_HEADER}):
        total.update(name.encode())
        total.update(hashlib.sha256(archive.read(name)).digest())
    return total.hexdigest()


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers a version begins with."""
    return tuple(
        int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0])
    )


def _read_header(path: str | os.PathLike[str], data: bytes, max_bytes: int) -> ModelFileInfo:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text, digest, total = None, "", sum(member.file_size for member in archive.infolist())
            if total <= max_bytes:
                text = archive.read(_HEADER) if _HEADER in archive.namelist() else None
                digest = _digest(archive)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        RuntimeError,
        OverflowError,
        ValueError,
    ) as error:
        fault = str(error).removesuffix(".")
        raise ValueError(
            f"{path} is not a model file, or a damaged one: {fault}; give {_MODEL}."
        ) from error
    if total > max_bytes:
        raise ValueError(
            f"{path} unpacks to {total / 2**20:,.0f} MiB, above max_bytes={max_bytes}"
            f" ({max_bytes / 2**20:,.0f} MiB): if you know who wrote it, give load a larger"
            " max_bytes."
        )
    if text is None:
        raise ValueError(
            f"{path} is not a model file of kernelmosaic: it has no {_HEADER}; use save to make"
            " one."
        )
    try:
        given = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged or was changed: its {_HEADER} cannot be read."
        ) from error
    own = _release(__version__)[:2]
    writer = str(
        given.get("kernelmosaic_version", __version__)
    )  # a header without it is damaged, which is found below
    if _release(writer)[:2] != own:
        raise ValueError(
            f"{path} was written by kernelmosaic {writer}, and {__version__} reads only files of"
            f" {own[0]}.{own[1]}: fit and save the model again, or read it with that version (pip"
            f" install kernelmosaic=={writer})."
        )
    missing = [field.name for field in fields(ModelFileInfo) if field.name not in given]
    if missing or digest != given["digest"]:
        fault = (
            f"its {_HEADER} lacks {missing[0]}"
            if missing
            else "its content does not match its digest"
        )
        raise ValueError(f"{path} is damaged or was changed: {fault}.")
    return ModelFileInfo(**{field.name: given[field.name] for field in fields(ModelFileInfo)})


def _skops_io() -> ModuleType:
    """Return skops.io, imported where it is needed first: it imports all of scikit-learn."""
    try:
        return import_module("skops.io")
    except ImportError as error:
        raise ImportError(
            'Model files need skops: pip install "kernelmosaic[persistence]"'
        ) from error
