"""Breiman's waveforms: three classes, each a random mixture of two of three triangular waves."""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from kernelmosaic.datasets._checks import check_count

_TIMES = np.arange(1, 22)
#: Triangles of height 6 and half-width 6, peaking at 7, 11 and 15.
_WAVES = np.maximum(6.0 - np.abs(_TIMES - np.array([[7], [11], [15]])), 0.0)
#: The two waves each class mixes; numbered as in the published sample of this problem.
_PAIRS = np.array([(0, 2), (0, 1), (1, 2)])


def make_waveform(
    n_samples: int = 5000, random_state: int | RandomState | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw waveforms: u · one wave + (1 − u) · another, u uniform on [0, 1], plus unit noise at each of 21 times.

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
    Breiman, Friedman, Olshen and Stone (1984), "Classification and Regression Trees", section 2.6.2.
    """
    n_samples = check_count("n_samples", n_samples)
    rng = check_random_state(random_state)
    y = rng.randint(len(_PAIRS), size=n_samples)
    u = rng.uniform(size=(n_samples, 1))
    one, other = _WAVES[_PAIRS[y].T]
    return u * one + (1 - u) * other + rng.standard_normal((n_samples, len(_TIMES))), y
