"""A training set as validation leaves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from kernelmosaic._typing import MatrixLike, TargetLike
from kernelmosaic.estimators._scaling import Standardizer
from kernelmosaic.estimators._training_set import count_samples, named_columns
from kernelmosaic.kernels.views import Entry, lay_specs


@dataclass(frozen=True)
class FitInput:
    """A training set as validated, before anything is learned from it.

    Attributes
    ----------
    X, y : array, or sparse matrix; ndarray of shape (n,) or (n, targets), or None
        Samples and targets.
    weight : ndarray of shape (n,) or None
        How much each counts.
    original : array or data frame
        X as it was given, for the names of its columns.
    device : str or None
        Where to compute; None stands for the host.
    """

    X: MatrixLike
    y: TargetLike
    weight: NDArray[np.float64] | None
    original: Any
    device: str | None = None

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Return some of the samples."""
        X = _safe_indexing(self.X, rows)
        y = None if self.y is None else self.y[rows]
        return replace(self, X=X, y=y, weight=None if self.weight is None else self.weight[rows])

    def standardizer(self, entries: list[Entry]) -> Standardizer:
        """Return what puts the columns of numbers that kernels read on one scale."""
        table = self.original if len(getattr(self.original, "shape", ())) == 2 else named_columns(self.X)
        # Of distinct samples, in an order of their own: a sample of weight two and one given twice are the same.
        counted = count_samples(None, self.X, self.y, self.weight)
        return Standardizer.fit(lay_specs(entries, table), self.X[counted.rows], counted.weight)
