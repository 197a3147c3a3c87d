"""Class posteriors estimated from labels: the shares of the classes near a sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from kernelmosaic.gram.row_blocks import row_strips
from kernelmosaic.machines.base import check_positive

Array = NDArray[np.float64]

#: Relative: distances this near are equal up to rounding.
_SAME = 1e-9
#: Digits kept: rounding must not tell equal posteriors apart, since samples are put in an order by them.
_DIGITS = 12
#: Distances held at once.
_ENTRIES = 2**22


def neighbor_posteriors(X: Array, members: Array, n_neighbors: int) -> Array:
    """Return the shares of the classes among each sample's nearest neighbours, itself included.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Samples.
    members : ndarray of shape (n, classes)
        The weight of each sample in the column of its class, zero elsewhere.
    n_neighbors : int
        How many there are, by weight; all at the distance of the last count as well.
    """
    P = np.empty(members.shape)
    weight = members.sum(axis=1)
    each = (row for _, strip in _distance_strips(X, "euclidean") for row in strip)
    for i, distances in enumerate(each):
        order = np.argsort(distances, kind="stable")
        reached = int(np.searchsorted(np.cumsum(weight[order]), n_neighbors))
        # All at the distance of the last: equal distances are not told apart by the order of the samples.
        within = distances <= (1.0 + _SAME) * distances[order[min(reached, len(order) - 1)]]
        shares = members[within].sum(axis=0)
        P[i] = shares / shares.sum() if shares.sum() > 0 else 1.0 / len(shares)
    return np.round(P, _DIGITS)


def density_posteriors(X: Array, members: Array, bandwidth: Any) -> Array:
    """Return Bayes' rule, Pr(c) p(x | c) / Σ_c' Pr(c') p(x | c'), with Gaussian densities p(· | c) around the samples.

    With Pr(c) the share of class c and p(x | c) the mean of the Gaussians at its samples, all of one width h, the rule
    is Σ_{j of class c} exp(−‖x − x_j‖² / 2h²) over the same sum of all samples.

    Parameters
    ----------
    X, members
        As in `neighbor_posteriors`.
    bandwidth : float or "scott"
        The width h, or Scott's rule for it; see `scott_bandwidth`.
    """
    h = scott_bandwidth(X, members) if isinstance(bandwidth, str) else float(bandwidth)
    counted = members.any(axis=1)
    sums = np.empty(members.shape)
    for rows, distances in _distance_strips(X, "sqeuclidean"):
        # From the nearest sample that counts: the sums cannot all vanish, however narrow the Gaussians are.
        distances -= distances[:, counted].min(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            distances /= max(2.0 * h * h, np.finfo(float).tiny)
        sums[rows] = np.exp(-np.maximum(distances, 0.0)) @ members
    return np.asarray(np.round(sums / sums.sum(axis=1, keepdims=True), _DIGITS))


def scott_bandwidth(X: Array, members: Array) -> float:
    """Return s n^(−1/(d+4)): s² the variance within the classes, averaged over the d columns; n the mean class size."""
    sizes = members.sum(axis=0)
    means = (members.T @ X) / sizes[:, np.newaxis]
    within = sum(float(m @ ((X - mean) ** 2).mean(axis=1)) for m, mean in zip(members.T, means, strict=True))
    return float(np.sqrt(within / sizes.sum()) * sizes.mean() ** (-1.0 / (X.shape[1] + 4)))


def _distance_strips(X: Array, metric: str) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, their distances from all samples), a strip at a time."""
    for rows in row_strips(len(X), _ENTRIES // len(X)):
        yield rows, cdist(X[rows], X, metric)


def check_bandwidth(bandwidth: Any) -> None:
    """Raise unless it is a positive number or the name of the rule."""
    if isinstance(bandwidth, str) and bandwidth != "scott":
        raise ValueError(f"bandwidth={bandwidth!r}: give a positive number, or 'scott'.")
    if not isinstance(bandwidth, str):
        check_positive("bandwidth", bandwidth)
