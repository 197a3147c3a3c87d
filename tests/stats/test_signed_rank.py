"""Wilcoxon's test against SciPy, every sign pattern in turn, and outcomes printed in the papers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from kernelmosaic.stats import WinTieLoss, wilcoxon, win_tie_loss


def every_pattern(differences):
    """The exact two-sided p-value, by writing out all sign patterns."""
    d = np.array([x for x in differences if x != 0])
    ranks = stats.rankdata(np.abs(d))
    half, observed = ranks.sum() / 2, ranks[d > 0].sum()
    sums = [np.dot(signs, ranks) for signs in product((0, 1), repeat=len(d))]
    return np.mean([abs(s - half) >= abs(observed - half) - 1e-9 for s in sums])


@pytest.mark.parametrize("seed", range(5))
def test_without_ties_it_is_scipys(seed):
    rng = np.random.RandomState(seed)
    a, b = rng.standard_normal((2, 15))
    ours, theirs = wilcoxon(a, b + 0.3), stats.wilcoxon(a, b + 0.3, method="exact")
    assert ours.statistic == pytest.approx(theirs.statistic)
    assert ours.p_value == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize("seed", range(10))
def test_ties_and_zeros_are_counted_exactly(seed):
    rng = np.random.RandomState(seed)
    a, b = rng.randint(0, 5, (2, 11))
    assert wilcoxon(a, b).p_value == pytest.approx(every_pattern(a - b))


def test_by_hand():
    # ranks 1 to 5, the smallest one negative: sums at most 1 from either end are 4 of 32
    result = wilcoxon([2, 3, 4, 5, 0.5], [0, 0, 0, 0, 1])
    assert result == (1.0, pytest.approx(4 / 32), 1)
    assert wilcoxon([0.5, 0, 0, 0, 0], [0, 2, 3, 4, 5]).direction == -1


def test_equal_on_paper_is_equal_here():
    # 0.3 − 0.2 and 0.2 − 0.1 differ in the last bit
    a, b = np.array([0.3, 0.2, 0.1, 0.7]), np.array([0.2, 0.1, 0.2, 0.7])
    assert wilcoxon(a, b).p_value == pytest.approx(every_pattern(np.round(a - b, 6)))


@pytest.mark.parametrize("large", [2.1e7, 3e200, 4e-200])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_figures_of_one_set_do_not_round_those_of_the_others(large, sign):
    other = np.array([0.101, 0.204, 0.156, 0.118, 0.143, 0.182, large])
    gain = np.array([0.0021, 0.0032, 0.0013, 0.0044, 0.0017, 0.0028, sign * large / 40])
    ours, theirs = wilcoxon(other, other - gain), stats.wilcoxon(gain, method="exact")
    assert ours.statistic == theirs.statistic
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert ours.direction == 1


def test_figures_of_several_sizes_that_are_equal_on_paper_are_tied():
    a, b = np.array([0.3, 10.1, 1000.1, 0.7, 5.0]), np.array([0.2, 10.0, 1000.2, 0.4, 5.0])
    assert wilcoxon(a, b).p_value == pytest.approx(every_pattern([1, 1, -1, 3, 0]))


def test_no_difference_at_all_and_many_tied_ones():
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == (0.0, 1.0, 0)
    assert wilcoxon([0.0, 0.0], [0.0, 0.0]) == (0.0, 1.0, 0)
    many = np.random.RandomState(0).randint(-3, 5, 300)
    assert wilcoxon(many, np.zeros(300)).p_value == pytest.approx(
        stats.wilcoxon(many, method="auto").pvalue
    )


@pytest.mark.parametrize(
    ("a", "b"), [([1, 2], [1]), ([], []), ([np.nan], [1.0]), ([[1.0]], [[1.0]])]
)
def test_wrong_input_is_refused(a, b):
    with pytest.raises(ValueError, match=r"one length|finite"):
        wilcoxon(a, b)


def test_direct_comparison_counts():
    assert win_tie_loss([3, 2, 1, 1], [1, 2, 3, 0]) == WinTieLoss(2, 1, 1)
    assert win_tie_loss([3, 2, 1, 1], [1, 2, 3, 0], larger_is_better=False) == (1, 1, 2)
