"""Breiman's ringnorm: a wide Gaussian around a narrow one."""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from kernelmosaic.datasets._checks import check_count


def make_ringnorm(
    n_samples: int = 7400, n_features: int = 20, random_state: int | RandomState | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw from two equally likely Gaussians that no hyperplane tells apart.

    Class 0 is N(0, 4I), class 1 is N(a, I), where every entry of a is 2 / √n_features: its mean lies at distance 2 of
    the origin whatever the dimension.

    Parameters
    ----------
    n_samples : int, default=7400
    n_features : int, default=20
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same draw every time.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Labels 0 and 1.

    References
    ----------
    Breiman (1996), "Bias, variance, and arcing classifiers", technical report 460, Statistics Department, Berkeley.
    """
    n_samples, n_features = check_count("n_samples", n_samples), check_count("n_features", n_features)
    rng = check_random_state(random_state)
    y = rng.randint(2, size=n_samples)
    spread, centre = np.array([2.0, 1.0]), np.array([0.0, 2.0 / np.sqrt(n_features)])
    return centre[y, None] + spread[y, None] * rng.standard_normal((n_samples, n_features)), y
