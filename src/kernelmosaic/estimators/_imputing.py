"""Empty cells of a table filled in, by what the training rows have there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from sklearn.base import BaseEstimator, TransformerMixin

from kernelmosaic._typing import MatrixLike, TargetLike


class TableImputer(TransformerMixin, BaseEstimator):
    """Fills empty cells of a data frame: numbers by the median of their column, texts by the most frequent one.

    Parameters
    ----------
    columns : sequence of str
        The columns to fill.
    number : {"median", "most_frequent"}, default="median"
        What fills a column of numbers.
    views : sequence of sequences of str, default=()
        Columns that a sample may lack together: where all of them are empty, they stay empty.

    Attributes
    ----------
    fill_ : dict
        What fills each column. One that is empty in all training rows has 0, or no text.
    """

    def __init__(self, columns: Sequence[str], number: str = "median", views: Sequence[Sequence[str]] = ()) -> None:
        self.columns = columns
        self.number = number
        self.views = views

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        """Learn what fills the columns of a data frame."""
        self.fill_ = {name: self._fill(X[name].dropna()) for name in self.columns}
        return self

    def _fill(self, cells: Any) -> Any:
        is_number = cells.dtype.kind in "biuf"
        if len(cells) == 0:
            return 0.0 if is_number else ""
        if is_number:
            return float(cells.median() if self.number == "median" else cells.mode().iloc[0])
        return str(cells.mode().iloc[0])

    def transform(self, X: MatrixLike) -> Any:
        """Return the data frame with its cells filled."""
        filled = X.copy()
        readers = Counter(name for view in self.views for name in view)
        # A column that two views read is there for both or for none, so it is filled.
        alone = [list(view) for view in self.views if all(readers[name] == 1 for name in view)]
        lacking = {name: X[view].isna().all(axis=1) for view in alone for name in view}
        for name, value in self.fill_.items():
            empty = X[name].isna()
            empty = empty & ~lacking[name] if name in lacking else empty
            if empty.any():
                filled[name] = X[name].mask(empty, value)
        return filled
