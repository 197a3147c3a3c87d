"""Kernels of the ranks of columns."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelmosaic._typing import MatrixLike, TargetLike
from kernelmosaic.kernels.base import Block, Kernel


class Ranked(Kernel):
    """k(r(x), r(z)): a kernel of samples whose entries are replaced by their ranks among the training samples.

    Ranks do not change under monotone transformations of a column, and outliers are one rank away from their
    neighbours. Equal entries share the mean of their ranks, entries between two training values are interpolated, and
    those beyond all have the first or the last rank. Every column of ranks has mean zero and variance one.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the ranks.

    Attributes
    ----------
    kernel_ : Kernel
        The inner kernel, fitted to the ranks of the training samples.
    values_, ranks_ : list of ndarray
        Of every column, the distinct training entries in order, and their standardised ranks.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic.kernels import Laplacian, Ranked
    >>> X = np.array([[1.0], [10.0], [100.0]])
    >>> kernel = Ranked(Laplacian()).fit(X)
    >>> np.allclose(kernel(X), Laplacian()([[1.0], [2.0], [3.0]]))
    True
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def fit(self, X: MatrixLike, y: TargetLike = None) -> Self:
        X = self.validate(X)
        found = [_standardised_ranks(column) for column in np.asarray(X, dtype=np.float64).T]
        self.values_, self.ranks_ = [values for values, _ in found], [ranks for _, ranks in found]
        self.kernel_ = clone(self.kernel).fit(self.transform(X))
        return self

    def transform(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the standardised ranks of the entries, in the shape of X."""
        columns = zip(np.asarray(X, dtype=np.float64).T, self.values_, self.ranks_, strict=True)
        return np.ascontiguousarray(np.array([np.interp(*column) for column in columns]).T)

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        if not hasattr(self, "kernel_"):
            # As unfitted Gaussian kernels do: the columns of a test-versus-train block are the training set.
            return np.asarray(clone(self).fit(Y)._block(X, Y))
        left = self.transform(X)
        return np.asarray(self.kernel_._block(left, left if Y is X else self.transform(Y)))

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        if not hasattr(self, "kernel_"):
            return np.asarray(clone(self).fit(X)._diagonal(X))
        return np.asarray(self.kernel_._diagonal(self.transform(X)))


def _standardised_ranks(column: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the distinct entries in order, and their ranks with mean zero and variance one over all entries."""
    values, counts = np.unique(column, return_counts=True)
    ranks = np.cumsum(counts) - 0.5 * (counts - 1)
    ranks = ranks - 0.5 * (len(column) + 1)
    spread = np.sqrt(counts @ ranks**2 / len(column))
    return values, ranks / spread if spread > 0 else np.zeros(len(values))
