"""Koshal designs: the fewest points that determine a polynomial of first or second order."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def koshal_design(n_factors: int, order: int = 2) -> NDArray[np.float64]:
    """Return the design in units of the step, the centre first.

    Second order: the centre, both levels of every factor, the high levels of every pair: (n+1)(n+2)/2 points, as many
    as a quadratic in n factors has coefficients. First order: the centre and the high level of every factor.

    Parameters
    ----------
    n_factors : int
        Number of free factors; for P kernels with the first one fixed, P − 1.
    order : {2, 1}, default=2
        Order of the polynomial.

    Returns
    -------
    ndarray of shape (n_points, n_factors)
        Levels −1, 0 and +1.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology", Algorithm 1,
    lines 2 to 11, read as the appending of columns.

    Examples
    --------
    >>> from kernelmosaic.model_selection.koshal import koshal_design
    >>> koshal_design(2).astype(int).tolist()
    [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1]]
    """
    if n_factors < 1:
        raise ValueError(f"n_factors={n_factors!r}: a design needs at least one factor.")
    if order not in (1, 2):
        raise ValueError(f"order={order!r}: give 2 for a quadratic surface or 1 for a plane.")
    axes = np.eye(n_factors)
    if order == 1:
        return np.vstack([np.zeros(n_factors), axes])
    axial = np.stack([axes, -axes], axis=1).reshape(-1, n_factors)
    pairs = [axes[m] + axes[h] for m, h in combinations(range(n_factors), 2)]
    return np.vstack([np.zeros(n_factors), axial, *pairs])
