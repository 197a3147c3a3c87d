"""Imputation: empty cells are filled with values of the training samples; views that a sample
lacks stay missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.utils import Tags
from sklearn.utils._indexing import _get_column_indices
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AnyArray, Mask, MatrixLike, TargetLike
from kernelmosaic.frames import fill_frame, is_pandas, is_polars, kinds_of_columns, read_frame
from kernelmosaic.kernels.base import is_missing
from kernelmosaic.stacking import StackedViews, are_tables, list_columns, stack_tables

__all__ = ["ViewImputer"]

#: NumPy's letters for types of numbers and truth values.
_KINDS_OF_NUMBERS = "biuf"


class ViewImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill empty cells; leave a view empty for samples that lack all of it.

    Estimators accept samples that lack a whole view and refuse samples that lack a part of one.
    This transformer fills such parts, as a step of a pipeline before the estimator.

    Parameters
    ----------
    views : mapping or sequence, default=None
        Columns that a sample may lack together, as ``stack_views`` returns them: a dict from the
        name of a view to its columns, or a list of lists of columns. None means the views of X if X
        has several tables; of one table, every empty cell is filled.
    strategy : {"median", "most_frequent"}, default="median"
        The value that fills a column of numbers. Columns of truth values, text or categories are
        filled by their most frequent value.

    Attributes
    ----------
    fill_ : ndarray of shape (n_features,)
        The value that fills each column: 0 or an empty text where all training rows are empty.
    views_ : dict of list
        The columns of each view that X has by itself; empty if X is one table.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    kernelmosaic.stack_views : Makes one table of several views.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.imputing import ViewImputer
    >>> X = np.array([[1.0, 2.0, 5.0], [3.0, np.nan, 6.0], [np.nan, np.nan, 7.0]])
    >>> ViewImputer({"rna": [0, 1], "protein": [2]}).fit_transform(X)
    array([[ 1.,  2.,  5.],
           [ 3.,  2.,  6.],
           [nan, nan,  7.]])

    Several tables, whose views are known; the result goes to an estimator:

    >>> from kernelmosaic import stack_views
    >>> ViewImputer().fit_transform(stack_views(rna=X[:, :2], protein=X[:, 2:])).X
    array([[ 1.,  2.,  5.],
           [ 3.,  2.,  6.],
           [nan, nan,  7.]])
    """

    def __init__(self, views: Any = None, *, strategy: str = "median") -> None:
        self.views = views
        self.strategy = strategy

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        """Learn the value that fills each column.

        Parameters
        ----------
        X : array-like, data frame, several tables or what `stack_views` returns
            Training samples.
        y : None
            Ignored.
        """
        check_choice("strategy", self.strategy, ("median", "most_frequent"))
        table = X
        self.views_: dict[str, list[Any]] = {}
        if are_tables(X):
            table, self.views_ = stack_tables(X)
        values, empty = self._read(table, reset=True)
        fill = []
        for j, kind in enumerate(kinds_of_columns(table, values)):
            full_cells = values[~empty[:, j], j]
            fill.append(self._fill_of(full_cells, kind))
        if values.dtype.kind in _KINDS_OF_NUMBERS:
            self.fill_ = np.array(fill)
        else:
            self.fill_ = np.array(fill, dtype=object)
        return self

    def _fill_of(self, cells: AnyArray, kind: str) -> Any:
        """Return the value that fills the empty cells of a column.

        Parameters
        ----------
        cells : ndarray
            The cells that are not empty.
        kind : str
            The kind of the column, as `kinds_of_columns` names it.
        """
        if len(cells) == 0:
            return 0.0 if kind in _KINDS_OF_NUMBERS else ""
        if kind == "b" or all(isinstance(cell, bool | np.bool_) for cell in cells):
            return bool(np.mean(cells.astype(np.float64)) > 0.5)
        has_numbers = kind != "category" and all(isinstance(cell, Real) for cell in cells)
        if has_numbers and self.strategy == "median":
            return float(np.median(cells.astype(np.float64)))
        counts = Counter(cells.tolist())
        largest_count = max(counts.values())
        most_frequent = [cell for cell, count in counts.items() if count == largest_count]
        try:
            return min(most_frequent)
        except TypeError:  # numbers and texts have no common order
            return min(most_frequent, key=str)

    def transform(self, X: MatrixLike) -> MatrixLike:
        """Return the samples with empty cells filled.

        Parameters
        ----------
        X : array-like, data frame, several tables or what `stack_views` returns
            Samples like those of the fit. Of several tables, one that is not given is missing for
            every sample.

        Returns
        -------
        ndarray, data frame or StackedViews
            A data frame of pandas or Polars if X is one, else an array; for several tables such a
            table with its views. A column keeps its type if that can hold the value.
        """
        check_is_fitted(self)
        if not are_tables(X):
            return self._filled(X, self.views)
        stacked = stack_tables(X, self.views_ or None)
        views = stacked.views if self.views is None else self.views
        filled = self._filled(stacked.X, views)
        if hasattr(filled, "columns"):
            return StackedViews(filled, stacked.views)
        return StackedViews(filled, stacked.numbers)

    def _filled(self, X: MatrixLike, views: Any) -> MatrixLike:
        """Return one table with empty cells filled, except in views that a row lacks as a whole.

        Parameters
        ----------
        X : array or data frame
        views : mapping, sequence or None
            The columns of each view, as the parameter of the constructor.
        """
        values, empty = self._read(X, reset=False)
        if views is None:
            views = ()
        elif isinstance(views, Mapping):
            views = views.values()
        columns_of_views = []
        for columns in views:
            numbers = _get_column_indices(X, list(columns))
            columns_of_views.append(np.asarray(numbers, dtype=np.intp))
        n_views = Counter(j for columns in columns_of_views for j in columns.tolist())
        for columns in columns_of_views:
            # Two views that share a column lack it together or not at all, so their cells are
            # filled.
            if all(n_views[j] == 1 for j in columns.tolist()):
                lacks_view = empty[:, columns].all(axis=1)
                empty[np.ix_(lacks_view, columns)] = False
        if is_pandas(X) or is_polars(X):
            return fill_frame(X, empty, self.fill_.tolist())
        return np.where(empty, self.fill_, values)

    def _read(self, X: MatrixLike, reset: bool) -> tuple[AnyArray, Mask]:
        """Return the cells of a table as an array, and the mask of the empty ones."""
        values = validate_data(
            self, read_frame(X), reset=reset, dtype=None, ensure_all_finite="allow-nan"
        )
        return values, is_missing(values)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


class ViewTransformer(ColumnTransformer):
    """A column transformer whose error lists, by view, the columns that a data frame lacks."""

    def transform(self, X: MatrixLike, **params: Any) -> MatrixLike:
        """Return the transformed columns of a data frame, or raise if it lacks one of them."""
        columns: Any = getattr(X, "columns", self.feature_names_in_)
        lost = [name for name in self.feature_names_in_ if name not in columns]
        if lost:
            raise ValueError(
                f"X lacks {list_columns(lost)} that the model reads: give a data frame with all"
                " columns of the training table; those of joined files are called view.column."
            )
        return super().transform(X, **params)
