"""Model files: fitted estimators written to disk and read back without running anyone's code.

A model file is a skops archive with one more member, the header ``kernelmosaic.json``, which names
the versions that wrote it. Objects are rebuilt only if `is_trusted` accepts their types: those of
this package, and those of NumPy, SciPy and scikit-learn that models consist of. The digest in the
header finds damage and changes made by hand. It is no signature: whoever can write the file can
write the digest too, and then decides what the model predicts, but still not which code runs.
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

#: The name of the header in the archive.
_HEADER = "kernelmosaic.json"
#: What an error advises to give in place of a file that is no model file.
_MODEL = "the path of a file that save or `kernelmosaic fit` wrote"
#: Default bound on the bytes that a model file may unpack to; chosen by hand. A small file can
#: unpack to very many zeros.
MAX_BYTES = 2**31
#: Types of sparse samples, which skops rebuilds by scipy.sparse.load_npz, without pickled objects.
_SPARSE = {
    *(
        f"scipy.sparse._{form}.{form}_{kind}"
        for form in ("csr", "csc")
        for kind in ("matrix", "array")
    ),
    # A sparse table is read back without the names of its columns, which the model knows.
    "kernelmosaic.stacking.SparseTable",
}
#: Further types that consist of arrays: dtypes, and the curves of SplineTransformer.
_ARRAY_TYPES = {
    "numpy.dtype",
    "scipy.interpolate._bsplines.BSpline",
    # The name since SciPy 1.18.
    "scipy.interpolate._bsplines._BSpline",
}
#: Modules of scikit-learn whose public functions compute with arrays. Its preprocessing takes such
#: functions as parameters: scores of columns, and scales.
_FUNCTION_MODULES = ("sklearn.feature_selection", "sklearn.preprocessing")


@dataclass(frozen=True)
class ModelFileInfo:
    """Header of a model file.

    Attributes
    ----------
    estimator : str
        Class of the estimator.
    kernelmosaic_version, sklearn_version, python_version : str
        The versions that wrote it.
    created : str
        The time of writing, in ISO 8601, UTC.
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

    The file is complete or does not exist: it is written beside its path and then moved there. An
    existing file is replaced, also where a symbolic link leads to it, and keeps its mode; a device
    or a FIFO is refused. Of several runs that save to the same file at once, the last one wins.

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
    except Exception as error:  # attributes may raise anything as their state is read
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
        types = skops_io.get_untrusted_types(data=data)
        unknown = _unknown(types, trusted)
    except Exception as error:  # a schema that was changed by hand may provoke any error
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
        # Each of these types is trusted: the others were refused above.
        estimator = skops_io.loads(data, trusted=types)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be rebuilt: {error!r}. It was written by kernelmosaic"
            f" {header.kernelmosaic_version} with scikit-learn {header.sklearn_version}."
        ) from error
    class_name = _type_name(type(estimator))
    if class_name != header.estimator:
        raise ValueError(
            f"{path} is damaged or was changed: its header names {header.estimator}, and it holds"
            f" {class_name}."
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
    """Return the path of a model file, or raise if it is neither text nor a path."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"path={reprlib.repr(path)}: give the name of a file, such as 'model.skops'."
        )
    return Path(path)


# Types that are rebuilt ---------------------------------------------------------------------------


@cache
def is_trusted(name: str) -> bool:
    """Whether objects of a type, given by its full name, are rebuilt from a model file.

    Types that skops trusts by itself are not asked for here. The module of the type is imported
    only if models may hold objects of it.
    """
    if name in _SPARSE or name in _ARRAY_TYPES or _is_function_of_arrays(name):
        return True
    module, _, last = name.rpartition(".")
    if not _may_hold_types(module):
        return False
    try:
        kind: Any = getattr(import_module(module), last, None)
    except ImportError:
        return False
    # The module itself defines the class, rather than importing it.
    is_defined_there = isinstance(kind, type) and _type_name(kind) == name
    if module.startswith("kernelmosaic."):
        return is_defined_there
    if is_defined_there and _is_estimator_or_record(kind):
        return True
    return name in _from_scikit_learn()


def _is_estimator_or_record(kind: type) -> bool:
    """Whether a class of scikit-learn is a public estimator or a named tuple.

    A named tuple has fields of numbers and estimators, and no code of its own.
    """
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return True
    is_estimator = issubclass(kind, BaseEstimator) and not isabstract(kind)
    return is_estimator and not kind.__name__.startswith("_")


def _is_function_of_arrays(name: str) -> bool:
    """Whether a function, by its full name, computes with arrays alone.

    Such a function opens no file and calls none of its arguments.

    Of scikit-learn these are the public functions of `_FUNCTION_MODULES`; of NumPy those of one
    array, such as the mean or the median; of SciPy its own name for ``numpy.asarray``.
    """
    module, _, last = name.rpartition(".")
    if module.partition(".")[0] == "sklearn":
        for home in map(import_module, _FUNCTION_MODULES):
            function = getattr(home, last) if last in home.__all__ else None
            if isfunction(function) and _type_name(function) == name:
                return True
        return False
    if module == "numpy":
        return _reads_one_array(getattr(import_module(module), last, None))
    return name == "scipy._lib.array_api_compat.numpy._aliases.asarray"


def _reads_one_array(function: object) -> bool:
    """Whether a NumPy function computes with an array and calls no argument.

    Its first parameter is an array, and no parameter is a function.
    """
    if not callable(function) or isinstance(function, type):
        return False
    try:
        names = list(signature(function).parameters)
    except (TypeError, ValueError):  # a function in C without a signature
        return False
    takes_functions = any(name.startswith(("func", "format")) for name in names)
    return names[:1] in (["a"], ["x"]) and not takes_functions


def _may_hold_types(module: str) -> bool:
    """Whether a module may define types that models hold; only such modules are imported."""
    package, _, path = module.partition(".")
    parts = path.split(".")
    if package == "sklearn":
        # scikit-learn, too, leaves these modules out when it lists its estimators.
        return not {"tests", "externals", "conftest", "experimental", "estimator_checks"} & {*parts}
    # Stacks, learners and readers of files are defined elsewhere: a model holds none, and building
    # a reader opens its file.
    homes = {"kernels", "estimators", "imputing", "schema", "model_selection"}
    homes |= {"gram.kernel_set", "gram.missing", "gram.normalizing", "gram.feature_maps"}
    homes |= {
        "engine.calibration",
        "engine.conformal",
        "engine.expansion",
        "engine.samples",
        "engine.tasks",
    }
    # The folders of families define what their models hold, and nothing that reads files.
    public_homes = (*ESTIMATOR_HOMES.values(), *KERNEL_HOMES.values())
    homes |= {home.partition(".")[0] for home in public_homes}
    is_home = path in homes or path.rpartition(".")[0] in homes
    # Modules that import these packages hold compiled loops and the like, which models do not.
    imports_late_package = parts[-1].startswith(("_numba_", "_torch_", "_dask_"))
    return package == "kernelmosaic" and is_home and not imports_late_package


@cache
def _from_scikit_learn() -> frozenset[str]:
    """Return the names of trusted types and functions of scikit-learn that are no estimators.

    Searches and column transformers hold them: splitters, scorers, the routing of metadata, and
    patterns of column names.
    """
    from sklearn.compose import _column_transformer, make_column_selector
    from sklearn.metrics import _scorer, get_scorer, get_scorer_names
    from sklearn.model_selection import _split
    from sklearn.utils._metadata_requests import MetadataRequest, MethodMetadataRequest

    kinds: list[Any] = [make_column_selector, MetadataRequest, MethodMetadataRequest]
    # Up to scikit-learn 1.6, a column transformer keeps the columns of its remainder in this type.
    if hasattr(_column_transformer, "_RemainderColsList"):
        kinds.append(_column_transformer._RemainderColsList)
    for module in (_split, _scorer):
        kinds += [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and kind.__module__ == module.__name__
        ]
    kinds += [get_scorer(name)._score_func for name in get_scorer_names()]
    return frozenset(map(_type_name, kinds))


def _type_name(kind: Any) -> str:
    """Return the full name of a class or function."""
    return f"{kind.__module__}.{kind.__name__}"


def _unknown(types: Iterable[str], trusted: Iterable[str]) -> list[str]:
    """Return the types that neither the user nor this package trusts."""
    return [name for name in types if name not in trusted and not is_trusted(name)]


def _names(trusted: Iterable[str]) -> list[str]:
    """Return the parameter `trusted` as a list of names, or raise if it holds anything else."""
    names = [trusted] if isinstance(trusted, str) else list(trusted)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"trusted={trusted!r}: give full names, such as ['package.module.Class'].")
    return names


# The header ---------------------------------------------------------------------------------------


def _digest(archive: zipfile.ZipFile) -> str:
    """Return the SHA-256 digest of all members of an archive but the header."""
    digest = hashlib.sha256()
    for name in sorted(set(archive.namelist()) - {_HEADER}):
        digest.update(name.encode())
        digest.update(hashlib.sha256(archive.read(name)).digest())
    return digest.hexdigest()


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (0, 4, 0) for 0.4.0rc1."""
    numeric_part = re.split(r"[^\d.]", version, maxsplit=1)[0]
    return tuple(int(number) for number in re.findall(r"\d+", numeric_part))


def _read_header(path: str | os.PathLike[str], data: bytes, max_bytes: int) -> ModelFileInfo:
    """Return the header of a model file, or raise if the file is damaged or cannot be read here.

    Parameters
    ----------
    path : str or path-like
        The file that errors name.
    data : bytes
        Its content.
    max_bytes : int
        As in `load`.
    """
    # 1. The text of the header, and the digest of the other members.
    text = None
    digest = ""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size <= max_bytes:
                if _HEADER in archive.namelist():
                    text = archive.read(_HEADER)
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
        reason = str(error).removesuffix(".")
        raise ValueError(
            f"{path} is not a model file, or a damaged one: {reason}; give {_MODEL}."
        ) from error
    if size > max_bytes:
        raise ValueError(
            f"{path} unpacks to {size / 2**20:,.0f} MiB, above max_bytes={max_bytes}"
            f" ({max_bytes / 2**20:,.0f} MiB): if you know who wrote it, give load a larger"
            " max_bytes."
        )
    if text is None:
        raise ValueError(
            f"{path} is not a model file of kernelmosaic: it has no {_HEADER}; use save to make"
            " one."
        )
    try:
        entries = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged or was changed: its {_HEADER} cannot be read."
        ) from error

    # 2. The version. A header without one is damaged, which the next step says.
    release = _release(__version__)[:2]
    writer = str(entries.get("kernelmosaic_version", __version__))
    if _release(writer)[:2] != release:
        raise ValueError(
            f"{path} was written by kernelmosaic {writer}, and {__version__} reads only files of"
            f" {release[0]}.{release[1]}: fit and save the model again, or read it with that"
            f" version (pip install kernelmosaic=={writer})."
        )

    # 3. All entries, and the digest.
    names = [field.name for field in fields(ModelFileInfo)]
    missing = [name for name in names if name not in entries]
    fault = None
    if missing:
        fault = f"its {_HEADER} lacks {missing[0]}"
    elif digest != entries["digest"]:
        fault = "its content does not match its digest"
    if fault is not None:
        raise ValueError(f"{path} is damaged or was changed: {fault}.")
    return ModelFileInfo(**{name: entries[name] for name in names})


def _skops_io() -> ModuleType:
    """Return the module skops.io, imported on first use because it imports all of scikit-learn."""
    try:
        return import_module("skops.io")
    except ImportError as error:
        raise ImportError(
            'Model files need skops: pip install "kernelmosaic[persistence]"'
        ) from error
