"""Toy problems of the papers: Breiman's waveforms and ringnorm."""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from kernelmosaic._checks import check_count


def make_waveform(
    n_samples: int = 5000, random_state: int | RandomState | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw waveforms: u · one wave + (1 − u) · another, u uniform on [0, 1], plus unit noise at
    each of 21 times.

    Parameters
    ----------
    n_samples : int, default=5000
        Number of samples; the three classes are equally likely.
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same draw every time.

    Returns
    -------
    X : ndarray of shape (n_samples, 21)
    y : ndarray of shape (n_samples,)
        Labels 0, 1, 2.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), "Classification and Regression Trees", section
    2.6.2.

    Examples
    --------
    >>> from reproduction.data import make_waveform
    >>> X, y = make_waveform(n_samples=50, random_state=0)
    >>> X.shape
    (50, 21)
    """
    n_samples = check_count("n_samples", n_samples)
    rng = check_random_state(random_state)
    # Triangles of height 6 and half-width 6, peaking at 7, 11 and 15.
    waves = np.maximum(6.0 - np.abs(np.arange(1, 22) - np.array([[7], [11], [15]])), 0.0)
    # The two waves each class mixes; numbered as in the published sample of this problem.
    pairs = np.array([(0, 2), (0, 1), (1, 2)])
    y = rng.randint(len(pairs), size=n_samples)
    u = rng.uniform(size=(n_samples, 1))
    one, other = waves[pairs[y].T]
    return u * one + (1 - u) * other + rng.standard_normal((n_samples, waves.shape[1])), y


def make_ringnorm(
    n_samples: int = 7400, n_features: int = 20, random_state: int | RandomState | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw from two equally likely Gaussians that no hyperplane separates.

    Class 0 is N(0, 4I), class 1 is N(a, I), where every entry of a is 2 / √n_features: its mean
    lies at distance 2 of the origin whatever the dimension.

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
    Breiman (1996), "Bias, variance, and arcing classifiers", technical report 460, Statistics
    Department, Berkeley.

    Examples
    --------
    >>> from reproduction.data import make_ringnorm
    >>> X, y = make_ringnorm(n_samples=50, random_state=0)
    >>> X.shape
    (50, 20)
    """
    n_samples, n_features = (
        check_count("n_samples", n_samples),
        check_count("n_features", n_features),
    )
    rng = check_random_state(random_state)
    y = rng.randint(2, size=n_samples)
    spread, centre = np.array([2.0, 1.0]), np.array([0.0, 2.0 / np.sqrt(n_features)])
    return centre[y, None] + spread[y, None] * rng.standard_normal((n_samples, n_features)), y
