"""Which kernel reads which columns: the `kernels` parameter of every estimator, understood and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._indexing import _get_column_indices, _safe_indexing

from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.family import PerColumn, family
from kernelmosaic.kernels.gaussian import Gaussian
from kernelmosaic.kernels.linear import Linear
from kernelmosaic.kernels.naming import name_kernels
from kernelmosaic.kernels.polynomial import Polynomial

_FORMS = "a kernel, (name, kernel) or (name, kernel, columns)"


@dataclass(frozen=True)
class Entry:
    """One item of the `kernels` parameter; the columns are still as the user wrote them, None for all."""

    name: str
    kernel: Kernel | PerColumn
    columns: Any = None


@dataclass(frozen=True)
class Tile:
    """One kernel with the numbers of the columns it reads; None for all."""

    name: str
    kernel: Kernel
    columns: NDArray[np.intp] | None


def default_kernels() -> list[Kernel]:
    """Return what ``kernels=None`` stands for: linear, quadratic and Gaussians from the scale of the data upwards."""
    return [Linear(), Polynomial(degree=2), *family(Gaussian(), factor=[1, 2, 4])]


def one_class_kernels() -> list[Kernel]:
    """Return the same for one-class machines: Gaussians that are narrower than the scale of the data.

    Nothing in a training set of one class speaks against a wide kernel, so that learned weights lean to the widest.
    """
    return family(Gaussian(), factor=[0.175, 0.35, 0.7])


def read_kernels(kernels: Any, default: Callable[[], list[Kernel]] = default_kernels) -> list[Entry]:
    """Return the entries of a `kernels` parameter, unnamed kernels named, or raise saying which entry is wrong.

    Parameters
    ----------
    kernels : list of kernels, (name, kernel) or (name, kernel, columns), one kernel, or None
        As an estimator was given it.
    default : callable
        Makes the kernels that None stands for.
    """
    if kernels is None:
        kernels = default()
    if isinstance(kernels, Kernel | PerColumn):
        kernels = [kernels]
    if isinstance(kernels, str | bytes) or not isinstance(kernels, Sequence):
        raise TypeError(f"kernels={kernels!r}: give a list whose items are {_FORMS}.")
    if not kernels:
        raise ValueError("kernels is empty: give at least one kernel, or None for the defaults.")
    triples = [_read_item(i, item) for i, item in enumerate(kernels)]
    unnamed = [kernel for name, kernel, _ in triples if name is None]
    given = iter(name_kernels([k.kernel if isinstance(k, PerColumn) else k for k in unnamed]))
    entries = [Entry(next(given) if name is None else name, kernel, columns) for name, kernel, columns in triples]
    names = [entry.name for entry in entries]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"kernels: the name {repeated[0]!r} is used {names.count(repeated[0])} times; names must differ."
        )
    return entries


def _read_item(i: int, item: Any) -> tuple[str | None, Kernel | PerColumn, Any]:
    if isinstance(item, Kernel | PerColumn):
        return None, item, None
    if not isinstance(item, tuple) or len(item) not in (2, 3):
        raise TypeError(f"kernels[{i}]={item!r}: expected {_FORMS}.")
    name, kernel = item[:2]
    if not isinstance(name, str) or "__" in name:
        raise ValueError(f"kernels[{i}]: the name {name!r} must be a string without '__'.")
    if not isinstance(kernel, Kernel | PerColumn):
        raise TypeError(f"kernels[{i}]: {kernel!r} is not a kernel; see kernelmosaic.kernels for those there are.")
    return name, kernel, item[2] if len(item) == 3 else None


def lay_tiles(entries: Sequence[Entry], X: Any) -> list[Tile]:
    """Turn columns into numbers, as `ColumnTransformer` does, and expand the kernels that stand for one a column."""
    tiles = []
    for entry in entries:
        columns = _column_numbers(entry, X)
        if isinstance(entry.kernel, PerColumn):
            numbers = np.arange(_n_columns(X)) if columns is None else columns
            labels = getattr(X, "columns", range(_n_columns(X)))
            tiles += [
                Tile(f"{entry.name}[{labels[c]}]", kernel, np.array([c]))
                for c, kernel in zip(numbers, entry.kernel.expand([int(c) for c in numbers]), strict=True)
            ]
        else:
            tiles.append(Tile(entry.name, entry.kernel, columns))
    return tiles


def _column_numbers(entry: Entry, X: Any) -> NDArray[np.intp] | None:
    if entry.columns is None:
        return None
    columns = _chosen(entry, X)
    if _is_mask(columns) and len(columns) != _n_columns(X):
        raise ValueError(
            f"kernel {entry.name!r}: columns {columns!r} is a mask of {len(columns)} for the {_n_columns(X)} columns "
            "of X: give one boolean a column, or names or numbers."
        )
    try:
        numbers = np.asarray(_get_column_indices(X, columns), dtype=np.intp)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"kernel {entry.name!r}: columns {columns!r} do not fit the {_n_columns(X)} of X: {error}"
        ) from error
    if len(numbers) == 0:
        raise ValueError(f"kernel {entry.name!r}: columns {columns!r} select none of the {_n_columns(X)} columns of X.")
    return numbers


def _is_mask(columns: Any) -> bool:
    several = isinstance(columns, Sequence | np.ndarray) and len(columns) > 0
    return several and all(isinstance(one, bool | np.bool_) for one in columns)


def _chosen(entry: Entry, X: Any) -> Any:
    """The columns as `ColumnTransformer` wants them: a callable asked, a series or an index as a list."""
    columns = entry.columns
    if callable(columns):
        try:
            columns = _matching(columns, X) if _reads_names_only(columns, X) else columns(X)
        except ValueError as error:  # of scikit-learn's selector, which does not say whose columns it could not find
            raise ValueError(f"kernel {entry.name!r}: {error}") from error
    if isinstance(columns, slice) and columns == slice(None):
        # scikit-learn takes a slice without ends for one of names, which arrays have not.
        return slice(0, None)
    return columns.to_list() if hasattr(columns, "to_list") else columns


def _reads_names_only(selector: Any, X: Any) -> bool:
    """Whether this is scikit-learn's selector, by pattern alone, on a frame that is not of pandas: it would refuse."""
    if hasattr(X, "iloc") or not hasattr(X, "columns"):
        return False
    from sklearn.compose import make_column_selector

    types = (getattr(selector, name, None) for name in ("dtype_include", "dtype_exclude"))
    return isinstance(selector, make_column_selector) and all(chosen is None for chosen in types)


def _matching(selector: Any, X: Any) -> list[str]:
    return [name for name in X.columns if selector.pattern is None or re.search(selector.pattern, name)]


def _n_columns(X: Any) -> int:
    shape = np.shape(X)
    return int(shape[1]) if len(shape) > 1 else 1


def take_columns(X: Any, columns: NDArray[np.intp] | None) -> Any:
    """Return some columns of an array or sparse matrix, all of them if columns is None."""
    return X if columns is None else _safe_indexing(X, columns, axis=1)
