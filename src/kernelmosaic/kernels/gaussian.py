"""The Gaussian kernel."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms

from kernelmosaic.kernels.radial import Radial

#: An error of the kernel that is worth a warning.
_VISIBLE = 1e-6


class Gaussian(Radial):
    """k(x, z) = exp(−‖x − z‖² / (factor · width)²).

    Dense samples are centred before distances are formed, so that an offset common to all does no harm. Sparse ones are
    not, since they would lose their zeros: where rounding shows in the kernel for that, `fit` warns.

    Parameters
    ----------
    width : float or {"median", "nearest"}, default="median"
        A number; ``"median"``, the median distance between two training samples; or ``"nearest"``, the mean distance
        from a training sample to its nearest neighbour, which is much narrower. Repeated samples count once in both.
    factor : float, default=1.0
        What the width is multiplied with: ``family(Gaussian(), factor=[1, 2, 4])`` is a family around the scale of the
        data, whatever that is.

    Attributes
    ----------
    width_ : float
        The width in use, the factor included, after `fit`.

    References
    ----------
    ``"nearest"`` is the rule of Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response
    surface methodology", eq. 9.

    Examples
    --------
    >>> from kernelmosaic.kernels import Gaussian
    >>> Gaussian(factor=2).fit([[0.0], [1.0], [4.0]]).width_
    6.0
    """

    statistic: ClassVar[str] = "squared_distances"
    metric: ClassVar[str] = "euclidean"
    power: ClassVar[int] = 2

    def fit(self, X: Any, y: Any = None) -> Self:
        X = self.validate(X)
        super().fit(X, y)
        if sparse.issparse(X):
            _warn_if_far(X, self.width_)
        return self

    def draw_frequencies(
        self, n_columns: int, count: int, random: np.random.RandomState
    ) -> tuple[NDArray[np.float64], float]:
        return np.sqrt(2.0) / self.width_ * random.standard_normal((n_columns, count)), 1.0


def _warn_if_far(X: Any, width: float) -> None:
    """Warn of sparse samples so far from the origin that rounding of their squared norms shows in the kernel."""
    rounding = np.finfo(np.float64).eps * float(row_norms(X, squared=True).mean())
    if rounding > _VISIBLE * width**2:
        warnings.warn(
            "X is sparse and far from the origin for the width of a Gaussian kernel, so that distances are lost to "
            "rounding: dense samples are centred first, sparse ones cannot be. Subtract the columns' means and give a "
            "dense X, or choose a larger width.",
            UserWarning,
            stacklevel=3,
        )
