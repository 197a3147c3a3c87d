"""The Laplacian kernel."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.kernels.radial import Radial


class Laplacian(Radial):
    """k(x, z) = exp(−‖x − z‖₁ / (factor · width)), with the sum of absolute differences for a distance.

    Beside a Gaussian kernel it falls off faster near a sample and slower far from it, and one column that is far off
    counts less.

    Parameters
    ----------
    width : float or {"median", "nearest"}, default="median"
        A number; ``"median"``, the median distance between two training samples; or ``"nearest"``, the mean distance
        from a training sample to its nearest neighbour, which is much narrower. Repeated samples count once in both.
    factor : float, default=1.0
        What the width is multiplied with.

    Attributes
    ----------
    width_ : float
        The width in use, the factor included, after `fit`.

    Examples
    --------
    >>> from kernelmosaic.kernels import Laplacian
    >>> Laplacian().fit([[0.0, 0.0], [1.0, 2.0]]).width_
    3.0
    """

    statistic: ClassVar[str] = "manhattan_distances"
    metric: ClassVar[str] = "manhattan"
    power: ClassVar[int] = 1

    def draw_frequencies(
        self, n_columns: int, count: int, random: np.random.RandomState
    ) -> tuple[NDArray[np.float64], float]:
        return random.standard_cauchy((n_columns, count)) / self.width_, 1.0
