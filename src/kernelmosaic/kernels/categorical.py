"""Kernels between rows of tables, whose columns hold categories or numbers.

`Clinical` compares categories by equality and numbers by their difference, `Categorical` compares
every column as categories.
"""

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
    """k(x, z) = the mean of max(0, 1 − |x_j − z_j| / range_j) over the columns j.

    For a nominal column the term is 1[x_j = z_j]. The range of a column is that of the training
    samples, so that every column counts equally, whatever its unit: there is nothing to
    standardise. Values more than one range apart, as new ones may be, have similarity 0. A column
    that is constant in training counts as nominal. A category that no training sample has matches
    none of them; estimators warn of it.

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
        The kind of each column; ``"auto"`` is replaced.
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
        self.kinds_ = self._column_kinds(X)
        ranges = []
        for j, kind in enumerate(self.kinds_):
            numbers = self._numbers(X, j, kind)
            ranges.append(0.0 if numbers is None else float(numbers.max()) - float(numbers.min()))
        self.ranges_ = np.array(ranges, dtype=np.float64)
        if not np.all(np.isfinite(self.ranges_)):
            j = int(np.argmin(np.isfinite(self.ranges_)))
            raise ValueError(f"X: the range of column {j} overflows; give it in a larger unit.")
        return self

    def validate(self, X: MatrixLike) -> MatrixLike:
        """Return X as an array of doubles, or of objects if a column holds other than numbers.

        Raises a ValueError that names a missing cell.
        """
        if not hasattr(X, "shape"):
            # Without the dtype, NumPy would convert numbers beside text to text.
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
        left, right = self._scaled_columns(X, Y)
        if len(left) * len(right) <= TINY**2:
            K = np.zeros((len(left), len(right)))
            for x, z in zip(left.T, right.T, strict=True):
                K += np.maximum(0.0, 1.0 - np.abs(x[:, np.newaxis] - z))
        else:
            from kernelmosaic.kernels._numba_pairs import sums_of_tents

            K = sums_of_tents(np.ascontiguousarray(left), np.ascontiguousarray(right.T), Y is X)
        K /= left.shape[1]
        return K

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.ones(X.shape[0])

    def _scaled_columns(self, X: MatrixLike, Y: MatrixLike) -> tuple[Array, Array]:
        """Return X and Y scaled so that entries 1 apart or more have nothing in common.

        Numbers are divided by the range of their column. Categories, and the entries of a column
        without a range, become different whole numbers, so that two of them are at least 1 apart.
        """
        if X.shape[1] != len(self.ranges_):
            raise ValueError(
                f"X has {X.shape[1]} columns, but {type(self).__name__} was fitted to"
                f" {len(self.ranges_)}."
            )
        left = np.empty(X.shape)
        right = np.empty(Y.shape)
        for j, (kind, column_range) in enumerate(zip(self.kinds_, self.ranges_, strict=True)):
            category_numbers: dict[Any, int] = {}
            for scaled, samples in ((left, X), (right, Y)):
                if column_range > 0:
                    scaled[:, j] = self._numbers(samples, j, kind) / column_range
                    continue
                # A category that was not met before gets the next number.
                scaled[:, j] = [
                    category_numbers.setdefault(category, len(category_numbers))
                    for category in samples[:, j].tolist()
                ]
        return left, right

    def nominal_columns(self, X: AnyArray) -> Indices:
        """Return the numbers of the columns that are compared as categories.

        These are the nominal and the constant columns; samples that lack all columns do not count.
        """
        present = X[~is_missing(X).all(axis=1)]
        if len(present) == 0:
            return np.arange(0)
        nominal = []
        for j, kind in enumerate(self._column_kinds(present)):
            is_constant = len(dict.fromkeys(present[:, j].tolist())) == 1
            if is_constant or (isinstance(kind, str) and kind == "nominal"):
                nominal.append(j)
        return np.array(nominal, dtype=np.intp)

    def _column_kinds(self, X: MatrixLike) -> list[Any]:
        """Return the kind of every column: a word, or the list of its categories in order.

        "auto" is replaced by the kind that the values of the column have.
        """
        n_columns = X.shape[1]
        kinds = self.kinds
        if isinstance(kinds, str):
            kinds = [kinds] * n_columns
        if not isinstance(kinds, Sequence | np.ndarray) or len(kinds) != n_columns:
            raise ValueError(
                f"kinds={self.kinds!r}: give 'auto', one word for all, or a list with one item for"
                f" each of the {n_columns} columns."
            )
        column_kinds = []
        for j, kind in enumerate(kinds):
            column_kinds.append(self._kind_of(X[:, j]) if _is_auto(kind) else kind)
        for kind in column_kinds:
            is_category_list = isinstance(kind, list | tuple)
            if not is_category_list and kind not in ("nominal", "ordinal", "continuous"):
                raise ValueError(
                    f"kinds={self.kinds!r}: {kind!r} is not a kind of column; choose 'nominal',"
                    " 'ordinal' or 'continuous', or list the categories in order."
                )
        return column_kinds

    def with_categories(self, is_category: Sequence[bool]) -> Kernel:
        if not _is_auto(self.kinds) or not any(is_category):
            return self
        kernel: Kernel = clone(self).set_params(
            kinds=["nominal" if nominal else "auto" for nominal in is_category]
        )
        return kernel

    def _kind_of(self, column: AnyArray) -> str:
        """Return "continuous" for a column of numbers, "nominal" for any other."""
        return "continuous" if _holds_numbers(column) else "nominal"

    def _numbers(self, X: MatrixLike, j: int, kind: Any) -> Array | None:
        """Return column j as numbers whose differences count; None if the column is nominal.

        Ordered categories are numbered from 0. Raises a ValueError if an entry is no number, or not
        among the categories.
        """
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
            numbers = check_array(column[:, np.newaxis], dtype=np.float64, input_name="X")
            return np.asarray(numbers[:, 0])
        rank = {category: float(i) for i, category in enumerate(kind)}
        values = column.tolist()
        unknown = [value for value in values if value not in rank]
        if unknown:
            raise ValueError(
                f"X: column {j} holds {unknown[0]!r}, which is not among the categories"
                f" {list(kind)!r}."
            )
        return np.array([rank[value] for value in values])


class Categorical(Clinical):
    """k(x, z) = the fraction of the columns in which two samples hold the same category.

    Categories are numbers or text. A category that no training sample has matches none of them;
    estimators warn of it.

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
    """Whether the kind of a column is to be read from its values."""
    return isinstance(kind, str) and kind == "auto"


def _holds_numbers(column: AnyArray) -> bool:
    """Whether all entries of a column are numbers; truth values are none."""
    if column.dtype.kind in "fiu":
        return True
    return all(isinstance(value, Real) and not isinstance(value, bool) for value in column)
