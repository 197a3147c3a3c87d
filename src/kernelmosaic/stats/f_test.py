"""The combined 5×2 cv paired F test."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class FTestResult(NamedTuple):
    """What the test says."""

    statistic: float
    p_value: float


def f_test_5x2cv(scores_a: Any, scores_b: Any) -> FTestResult:
    """Test whether two methods score alike on five replications of two folds.

    With p_i^(j) the difference on fold j of replication i and s_i² = Σ_j (p_i^(j) − p̄_i)²,
    f = Σ_ij (p_i^(j))² / (2 Σ_i s_i²) follows, if the methods are equal, nearly the F distribution with 10 and 5
    degrees of freedom; its upper 5 % begin at 4.735.

    Parameters
    ----------
    scores_a, scores_b : array-like of shape (5, 2) or (10,)
        Scores on the same folds, replication by replication, as `FiveByTwoFold` yields them.

    Returns
    -------
    FTestResult
        ``statistic`` and ``p_value``. Without any difference 0 and 1, so that nothing is rejected; with one and the
        same difference everywhere infinity and 0.

    References
    ----------
    Alpaydın (1999), "Combined 5×2 cv F test for comparing supervised classification learning algorithms".

    Examples
    --------
    >>> from kernelmosaic.stats import f_test_5x2cv
    >>> f_test_5x2cv([1, 2, 1, 2, 1, 2, 1, 2, 1, 2], [0] * 10).statistic
    5.0
    """
    from scipy.stats import f as f_distribution

    p = five_by_two("scores_a", scores_a) - five_by_two("scores_b", scores_b)
    if not np.any(p):
        return FTestResult(0.0, 1.0)
    spread = float(np.sum((p - p.mean(axis=1, keepdims=True)) ** 2))
    statistic = float(np.sum(p**2)) / (2 * spread) if spread > 0 else np.inf
    return FTestResult(statistic, float(f_distribution.sf(statistic, 10, 5)))


def five_by_two(name: str, scores: Any) -> NDArray[np.float64]:
    """Return ten scores as five rows of two, or raise naming what was given."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape not in ((10,), (5, 2)):
        raise ValueError(f"{name} has shape {array.shape}: give five replications of two folds, (5, 2) or (10,).")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={scores!r}: NaN and infinity are not allowed.")
    return array.reshape(5, 2)
