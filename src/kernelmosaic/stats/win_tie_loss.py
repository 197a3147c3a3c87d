"""Counting who is better."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class WinTieLoss(NamedTuple):
    """How often the first of two methods is better, equal, worse."""

    wins: int
    ties: int
    losses: int


def win_tie_loss(a: Any, b: Any, *, larger_is_better: bool = True) -> WinTieLoss:
    """Count where `a` is better than, equal to and worse than `b`: the papers' direct comparison.

    Parameters
    ----------
    a, b : array-like of shape (n,)
        Figures of two methods on the same data sets.
    larger_is_better : bool, default=True
        False for errors, costs or support vectors.

    Examples
    --------
    >>> from kernelmosaic.stats import win_tie_loss
    >>> win_tie_loss([90.1, 85.0, 70.2], [89.9, 85.0, 71.0])
    WinTieLoss(wins=1, ties=1, losses=1)
    """
    a, b = paired(a, b)
    better = a > b if larger_is_better else a < b
    return WinTieLoss(int(better.sum()), int((a == b).sum()), int((~better & (a != b)).sum()))


def paired(a: Any, b: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two vectors of equal length, all finite, or raise."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) == 0:
        raise ValueError(f"a has shape {a.shape}, b {b.shape}: give two lists of equal length, a figure a data set.")
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        raise ValueError("a and b must hold finite numbers only.")
    return a, b
