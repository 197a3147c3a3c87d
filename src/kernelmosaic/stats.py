"""Paired tests of two methods: on the folds of one data set, or over many data sets by signs and
ranks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kernelmosaic._typing import Array

__all__ = [
    "PairedTestResult",
    "WilcoxonResult",
    "WinTieLoss",
    "f_test_5x2cv",
    "t_test_resampled",
    "wilcoxon",
    "win_tie_loss",
]

# Wins, ties and losses ----------------------------------------------------------------------------


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
    is_better = a > b if larger_is_better else a < b
    is_equal = a == b
    is_worse = ~is_better & ~is_equal
    return WinTieLoss(int(is_better.sum()), int(is_equal.sum()), int(is_worse.sum()))


def paired(a: Any, b: Any) -> tuple[Array, Array]:
    """Return two vectors of equal length, all finite, or raise."""
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) == 0:
        raise ValueError(
            f"a has shape {a.shape}, b {b.shape}: give two lists of one length, one figure per data"
            " set."
        )
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        raise ValueError("a and b must hold finite numbers only.")
    return a, b


# Signed ranks -------------------------------------------------------------------------------------

#: Differences up to which the distribution of tied ranks is computed exactly, which takes time that
#: grows with the third power; SciPy approximates beyond. Chosen by hand.
_MOST_EXACT = 100
#: Significant digits to which differences are rounded: figures are printed with fewer.
_DIGITS = 9


class WilcoxonResult(NamedTuple):
    """The result of `wilcoxon`.

    These are the smaller rank sum, the two-sided p-value, and the sign of the difference of the
    rank sums.
    """

    statistic: float
    p_value: float
    direction: int


def wilcoxon(a: Any, b: Any) -> WilcoxonResult:
    """Test, two-sided, whether differences of two methods are symmetric about zero.

    The differences are those of the figures on the same data sets. Differences of zero are dropped
    and equal ones share their mean rank, as Wilcoxon proposed. Every difference is rounded to nine
    significant digits of the larger of its two figures: differences of two-decimal figures that are
    equal on paper are equal here, whatever the size of the other figures. The p-value is exact. It
    is SciPy's if no ranks are tied; otherwise all sign patterns over the mean ranks are counted by
    dynamic programming, where SciPy would approximate. Above 100 tied differences SciPy's
    approximation is used.

    Parameters
    ----------
    a, b : array-like of shape (n,)
        Figures of two methods on the same data sets.

    Returns
    -------
    WilcoxonResult
        ``statistic``, ``p_value`` and ``direction``: +1 where `a` tends to be larger, −1 where `b`
        does, and 0 where the rank sums are equal. Without any difference: 0, 1, 0.

    Examples
    --------
    >>> from kernelmosaic.stats import wilcoxon
    >>> wilcoxon([5, 6, 7, 8, 9, 10], [4, 4, 4, 4, 4, 4])
    WilcoxonResult(statistic=0.0, p_value=0.03125, direction=1)
    """
    from scipy import stats

    a, b = paired(a, b)
    differences = _rounded_differences(a, b)
    differences = differences[differences != 0]
    if len(differences) == 0:
        return WilcoxonResult(0.0, 1.0, 0)
    ranks = stats.rankdata(np.abs(differences))
    positive_sum = float(ranks[differences > 0].sum())
    negative_sum = float(ranks[differences < 0].sum())
    statistic = min(positive_sum, negative_sum)
    has_ties = len(np.unique(ranks)) < len(ranks)
    if has_ties and len(ranks) <= _MOST_EXACT:
        p_value = _exact_p(ranks, statistic)
    else:
        method = "auto" if has_ties else "exact"
        p_value = float(stats.wilcoxon(differences, method=method).pvalue)
    return WilcoxonResult(statistic, p_value, int(np.sign(positive_sum - negative_sum)))


def _rounded_differences(a: Array, b: Array) -> Array:
    """Return a − b, each rounded to `_DIGITS` significant digits of the larger of its figures."""
    differences = np.zeros(len(a))
    for k, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        size = max(abs(x), abs(y))
        if size > 0:
            differences[k] = round(x - y, _DIGITS - math.ceil(math.log10(size)))
    return differences


def _exact_p(ranks: Array, statistic: float) -> float:
    """Return the exact two-sided p-value of the smaller rank sum.

    It is twice the share of sign patterns whose positive rank sum is at most the statistic, and at
    most one. ``shares[s]`` is the share of patterns with the positive rank sum s / 2.
    """
    doubled = np.rint(2 * ranks).astype(int)  # mean ranks are whole or half
    shares = np.zeros(doubled.sum() + 1)
    shares[0] = 1.0
    for rank in doubled:
        # Half of the patterns so far get this rank as positive, the other half as negative.
        shares[rank:] = (shares[rank:] + shares[:-rank]) / 2
        shares[:rank] /= 2
    return float(min(1.0, 2 * shares[: round(2 * statistic) + 1].sum()))


# The corrected resampled t test -------------------------------------------------------------------


class PairedTestResult(NamedTuple):
    """Result of a test on the folds or splits of one data set."""

    statistic: float
    p_value: float


def t_test_resampled(
    scores_a: Any, scores_b: Any, *, n_train: int, n_test: int
) -> PairedTestResult:
    """Test, two-sided, whether two methods have equal scores on random splits of one data set.

    Random splits share most of their training samples, so a plain paired t test, or a rank test,
    counts the same evidence several times. With d the k differences, t = mean(d) / √((1/k +
    n_test/n_train) var(d)) has about k − 1 degrees of freedom.

    Parameters
    ----------
    scores_a, scores_b : array-like of shape (k,)
        Scores on the same splits, at least two.
    n_train, n_test : int
        How many samples a split trains on, and tests on.

    Returns
    -------
    PairedTestResult
        ``statistic``, above 0 where `scores_a` are larger, and ``p_value``. Without any difference
        they are 0 and 1; with the same difference on all splits infinity and 0.

    References
    ----------
    Nadeau and Bengio (2003), "Inference for the generalization error".

    Examples
    --------
    >>> from kernelmosaic.stats import t_test_resampled
    >>> a, b = [0.82, 0.86, 0.81], [0.80, 0.81, 0.80]
    >>> round(t_test_resampled(a, b, n_train=70, n_test=30).p_value, 2)
    0.28
    """
    from scipy.stats import t as t_distribution

    for name, count in (("n_train", n_train), ("n_test", n_test)):
        if not count > 0:
            raise ValueError(
                f"{name}={count!r}: give how many samples a split has, a positive number."
            )
    a, b = paired(scores_a, scores_b)
    if len(a) < 2:
        raise ValueError(
            "scores_a and scores_b hold one score each: the test needs at least two splits."
        )
    differences = a - b
    if not np.any(differences):
        return PairedTestResult(0.0, 1.0)
    mean = float(differences.mean())
    variance = float(differences.var(ddof=1))
    if variance == 0:
        return PairedTestResult(float(np.copysign(np.inf, mean)), 0.0)
    statistic = mean / float(np.sqrt((1 / len(a) + n_test / n_train) * variance))
    p_value = float(2 * t_distribution.sf(abs(statistic), len(a) - 1))
    return PairedTestResult(statistic, p_value)


# The 5×2 cv F test --------------------------------------------------------------------------------


def f_test_5x2cv(scores_a: Any, scores_b: Any) -> PairedTestResult:
    """Test whether two methods have equal scores on five replications of two folds.

    With p_i^(j) the difference on fold j of replication i and s_i² = Σ_j (p_i^(j) − p̄_i)², f =
    Σ_ij (p_i^(j))² / (2 Σ_i s_i²) follows, if the methods are equal, nearly the F distribution with
    10 and 5 degrees of freedom; its upper 5 % begin at 4.735.

    Parameters
    ----------
    scores_a, scores_b : array-like of shape (5, 2) or (10,)
        Scores on the same folds, replication by replication, as `FiveByTwoFold` yields them.

    Returns
    -------
    PairedTestResult
        ``statistic`` and ``p_value``. Without any difference 0 and 1, so that nothing is rejected;
        with the same difference on all folds infinity and 0.

    References
    ----------
    Alpaydın (1999), "Combined 5×2 cv F test for comparing supervised classification learning
    algorithms".

    Examples
    --------
    >>> from kernelmosaic.stats import f_test_5x2cv
    >>> f_test_5x2cv([1, 2, 1, 2, 1, 2, 1, 2, 1, 2], [0] * 10).statistic
    5.0
    """
    from scipy.stats import f as f_distribution

    p = five_by_two("scores_a", scores_a) - five_by_two("scores_b", scores_b)
    if not np.any(p):
        return PairedTestResult(0.0, 1.0)
    sum_of_variances = float(np.sum((p - p.mean(axis=1, keepdims=True)) ** 2))
    statistic = np.inf
    if sum_of_variances > 0:
        statistic = float(np.sum(p**2)) / (2 * sum_of_variances)
    return PairedTestResult(statistic, float(f_distribution.sf(statistic, 10, 5)))


def five_by_two(name: str, scores: Any) -> Array:
    """Return ten finite scores as an array of shape (5, 2), or raise naming the parameter."""
    array = np.asarray(scores, dtype=np.float64)
    if array.shape not in ((10,), (5, 2)):
        raise ValueError(
            f"{name} has shape {array.shape}: give five replications of two folds, (5, 2) or (10,)."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={scores!r}: NaN and infinity are not allowed.")
    return array.reshape(5, 2)
