"""Kernels between rows of tables: categories that match, numbers by their difference, and both
together."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_array

from kernelmosaic._typing import AnyArray, Array, Indices, MatrixLike
from kernelmosaic.backend import TINY
from kernelmosaic.kernels.base import Block, Kernel, is_missing
from kernelmosaic.kernels.distances import FitSamples


class Clinical(Kernel):
    """k(x, z) = the mean over columns of max(0, 1 − |x_j − z_j| / range_j), or of 1[x_j = z_j] for
    a nominal column.

    The range of a column is that of the training samples, so that every column counts equally,
    whatever its unit: there is nothing to standardise. Values more than one range apart, as new
    ones may be, have similarity 0. A column that is constant in training counts as nominal. A
    category that no training sample has matches none of them; estimators warn of it.

    Parameters
    ----------
    kinds : "auto", str or sequence, default="auto"
        Kind of each column: ``"nominal"``, categories without an order, of numbers or text;
        ``"continuous"`` or ``"ordinal"``, numbers; or, for categories that are not numbers, a list
        of them in order, whose places are compared. A word is for all columns; a list has one item
        per column that the kernel reads. ``"auto"`` takes columns of numbers for continuous and all
        others for nominal; in an estimator also columns of numbers whose type in a data frame is
        that of categories.

    Attributes
    ----------
    kinds_ : list
        What each column is.
    ranges_ : ndarray of shape (n_columns,)
        The range of each column in training; zero for those that count as nominal.

    References
    ----------
    Daemen and De Moor (2009), "Development of a kernel function for clinical data".

    Examples
    --------
    >>> from kernelmosaic.kernels import Clinical
    >>> patients = [[30, "f", "low"], [50, "m", "high"], [70, "f", "medium"]]
    >>> kinds = ["continuous", "nominal", ["low", "medium", "high"]]
    >>> kernel = Clinical(kinds=kinds).fit(patients)
    >>> kernel(patients[:1], patients)
    array([[1.        , 0.16666667, 0.5       ]])
    """

    input_kind: ClassVar[str] = "table"
    learned: ClassVar[str] = "ranges_"

    def __init__(self, kinds: Any = "auto") -> None:
        self.kinds = kinds

    def _learn(self, samples: FitSamples) -> Self:
        X = samples.X
        self.kinds_ = self._kinds(X)
        columns = [self._numbers(X, j, kind) for j, kind in enumerate(self.kinds_)]
        spans = [0.0 if one is None else float(one.max()) - float(one.min()) for one in columns]
        self.ranges_ = np.array(spans, dtype=np.float64)
        if not np.all(np.isfinite(self.ranges_)):
            j = int(np.argmin(np.isfinite(self.ranges_)))
            raise ValueError(f"X: the range of column {j} overflows; give it in a larger unit.")
        return self

    def validate(self, X: MatrixLike) -> MatrixLike:
        """Return X as a table of numbers, or of objects where some are not, or raise naming what is
        missing."""
        if not hasattr(X, "shape"):  # NumPy would make text of numbers that stand beside it
            X = np.asarray(X, dtype=object)
        table = check_array(X, dtype=None, ensure_all_finite=False, input_name="X", estimator=self)
        if table.dtype.kind in "fiub" or all(map(_holds_numbers, table.T)):
            return check_array(table, dtype=np.float64, input_name="X", estimator=self)
        table = table.astype(object, copy=False)
        missing = np.argwhere(is_missing(table).T)
        if len(missing):
            j, i = missing[0]
            raise ValueError(
                f"X[{i}, {j}] is {table[i, j]!r}: {type(self).__name__} has no rule for a missing"
                " value; fill it in, such as with a category of its own."
            )
        return table

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        left, right = self._placed(X, X if Y is X else Y)
        if len(left) * len(right) <= TINY**2:
            K = np.zeros((len(left), len(right)))
            for a, b in zip(left.T, right.T, strict=True):
                K += np.maximum(0.0, 1.0 - np.abs(a[:, np.newaxis] - b))
        else:
            from kernelmosaic.kernels._numba_pairs import sums_of_tents

            K = sums_of_tents(np.ascontiguousarray(left), np.ascontiguousarray(right.T), Y is X)
        K /= left.shape[1]
        return K

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.ones(X.shape[0])

    def _placed(self, X: MatrixLike, Y: MatrixLike) -> tuple[Array, Array]:
        """Return the columns of both as numbers that are one apart, or more, where samples have
        nothing in common."""
        if X.shape[1] != len(self.ranges_):
            raise ValueError(
                f"X has {X.shape[1]} columns, but {type(self).__name__} was fitted to"
                f" {len(self.ranges_)}."
            )
        left, right = (np.empty(one.shape) for one in (X, Y))
        for j, (kind, span) in enumerate(zip(self.kinds_, self.ranges_, strict=True)):
            if span > 0:
                for out, one in ((left, X), (right, Y)):
                    out[:, j] = self._numbers(one, j, kind) / span
            else:
                # Categories are numbered, so that two of them are one apart at least.
                number: dict[Any, int] = {}
                for out, one in ((left, X), (right, Y)):
                    out[:, j] = [
                        number.setdefault(value, len(number)) for value in one[:, j].tolist()
                    ]
        return left, right

    def nominal_columns(self, X: AnyArray) -> Indices:
        """Return which columns of samples, that may lack all of them, are compared as
        categories."""
        present = X[~is_missing(X).all(axis=1)]
        if len(present) == 0:
            return np.arange(0)
        nominal = []
        for j, kind in enumerate(self._kinds(present)):
            is_constant = len(dict.fromkeys(present[:, j].tolist())) == 1
            if is_constant or (isinstance(kind, str) and kind == "nominal"):
                nominal.append(j)
        return np.array(nominal, dtype=np.intp)

    def _kinds(self, X: MatrixLike) -> list[Any]:
        """Return what every column is."""
        kinds = self.kinds
        each = [kinds] * X.shape[1] if isinstance(kinds, str) else kinds
        if not isinstance(each, Sequence | np.ndarray) or len(each) != X.shape[1]:
            raise ValueError(
                f"kinds={kinds!r}: give 'auto', one word for all, or a list with one item for each"
                f" of the {X.shape[1]} columns."
            )
        each = [self._kind_of(X[:, j]) if _is_auto(kind) else kind for j, kind in enumerate(each)]
        for kind in each:
            if not isinstance(kind, list | tuple) and kind not in (
                "nominal",
                "ordinal",
                "continuous",
            ):
                raise ValueError(
                    f"kinds={kinds!r}: {kind!r} is not a kind of column; choose 'nominal',"
                    " 'ordinal' or 'continuous', or list the categories in order."
                )
        return list(each)

    def with_categories(self, is_category: Sequence[bool]) -> Kernel:
        if not _is_auto(self.kinds) or not any(is_category):
            return self
        kernel: Kernel = clone(self).set_params(
            kinds=["nominal" if nominal else "auto" for nominal in is_category]
        )
        return kernel

    def _kind_of(self, column: AnyArray) -> str:
        """Return what a column is by its values."""
        return "continuous" if _holds_numbers(column) else "nominal"

    def _numbers(self, X: MatrixLike, j: int, kind: Any) -> Array | None:
        """Return a column whose differences count as numbers, None if it is nominal."""
        if isinstance(kind, str) and kind == "nominal":
            return None
        column = X[:, j]
        if isinstance(kind, str):
            if not _holds_numbers(column):
                text = next(value for value in column if not isinstance(value, Real))
                raise ValueError(
                    f"X: column {j} holds {text!r}, which is not a number; in kinds, call it"
                    " 'nominal' or list its categories in order."
                )
            return np.asarray(
                check_array(column[:, np.newaxis], dtype=np.float64, input_name="X")[:, 0]
            )
        place = {category: float(i) for i, category in enumerate(kind)}
        unknown = [value for value in column.tolist() if value not in place]
        if unknown:
            raise ValueError(
                f"X: column {j} holds {unknown[0]!r}, which is not among the categories"
                f" {list(kind)!r}."
            )
        return np.array([place[value] for value in column.tolist()])


class Categorical(Clinical):
    """k(x, z) = the share of the columns in which two samples hold the same category, a number or a
    text.

    A category that no training sample has matches none of them; estimators warn of it.

    Examples
    --------
    >>> from kernelmosaic.kernels import Categorical
    >>> Categorical()([["red", 1], ["blue", 1]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    kinds = "nominal"

    def __init__(self) -> None:
        pass


def _is_auto(kind: Any) -> bool:
    return isinstance(kind, str) and kind == "auto"


def _holds_numbers(column: AnyArray) -> bool:
    return column.dtype.kind in "fiu" or all(
        isinstance(value, Real) and not isinstance(value, bool) for value in column
    )
