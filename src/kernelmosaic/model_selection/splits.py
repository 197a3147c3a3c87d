"""Splits: five times two halves for the paired F test."""

from __future__ import annotations

from sklearn.model_selection import RepeatedStratifiedKFold

from kernelmosaic._typing import Seed


class FiveByTwoFold(RepeatedStratifiedKFold):
    """Halve the samples five times at random, class shares kept, and let each half train once.

    The ten splits come replication by replication, which is the order that
    :func:`kernelmosaic.stats.f_test_5x2cv` reads.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seed or generator; pass an int for the same halves every time.

    References
    ----------
    Alpaydın (1999), "Combined 5×2 cv F test for comparing supervised classification learning
    algorithms".

    Examples
    --------
    >>> from kernelmosaic.model_selection import FiveByTwoFold
    >>> FiveByTwoFold(random_state=0).get_n_splits()
    10
    """

    def __init__(self, random_state: Seed = None) -> None:
        super().__init__(n_splits=2, n_repeats=5, random_state=random_state)
