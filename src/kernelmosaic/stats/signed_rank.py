"""Wilcoxon's signed-rank test, exact with ties too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.stats.win_tie_loss import paired

#: Above so many differences with ties among them the exact distribution gives way to SciPy's approximation.
_MOST_EXACT = 100


class WilcoxonResult(NamedTuple):
    """What the test says: the smaller rank sum, the two-sided p-value, the sign of the difference of the rank sums."""

    statistic: float
    p_value: float
    direction: int


def wilcoxon(a: Any, b: Any) -> WilcoxonResult:
    """Test, two-sided, whether the differences of two methods over data sets are symmetric about zero.

    Differences of zero are dropped and equal ones share their mean rank, as Wilcoxon has it. Differences are compared
    to nine significant digits of the figures they come from: those of two-decimal figures that are equal on paper are
    equal here. The p-value is exact: SciPy's without ties; with ties that of all sign patterns over the mean ranks,
    counted by dynamic programming (SciPy would approximate). Beyond 100 tied differences the approximation is taken.

    Parameters
    ----------
    a, b : array-like of shape (n,)
        Figures of two methods on the same data sets.

    Returns
    -------
    WilcoxonResult
        ``statistic``, ``p_value`` and ``direction``: +1 where `a` tends to be larger. Without any difference: 0, 1, 0.

    Examples
    --------
    >>> from kernelmosaic.stats import wilcoxon
    >>> wilcoxon([5, 6, 7, 8, 9, 10], [4, 4, 4, 4, 4, 4])
    WilcoxonResult(statistic=0.0, p_value=0.03125, direction=1)
    """
    from scipy import stats

    a, b = paired(a, b)
    size = max(np.abs(a).max(), np.abs(b).max())
    differences = np.round(a - b, int(9 - np.ceil(np.log10(size)))) if size > 0 else a - b
    differences = differences[differences != 0]
    if len(differences) == 0:
        return WilcoxonResult(0.0, 1.0, 0)
    ranks = stats.rankdata(np.abs(differences))
    above, below = float(ranks[differences > 0].sum()), float(ranks[differences < 0].sum())
    tied = len(np.unique(ranks)) < len(ranks)
    if tied and len(ranks) <= _MOST_EXACT:
        p_value = _exact_p(ranks, min(above, below))
    else:
        p_value = float(stats.wilcoxon(differences, method="auto" if tied else "exact").pvalue)
    return WilcoxonResult(min(above, below), p_value, int(np.sign(above - below)))


def _exact_p(ranks: NDArray[np.float64], smaller: float) -> float:
    """Twice the share of sign patterns whose positive rank sum is at most `smaller`, and at most one."""
    doubled = np.rint(2 * ranks).astype(int)  # mean ranks are whole or half
    shares = np.zeros(doubled.sum() + 1)
    shares[0] = 1.0
    for rank in doubled:
        shares[rank:] = (shares[rank:] + shares[:-rank]) / 2
        shares[:rank] /= 2
    return float(min(1.0, 2 * shares[: round(2 * smaller) + 1].sum()))
