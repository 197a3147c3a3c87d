"""The corrected resampled t test against SciPy's paired one, which it is without the correction,
and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kernelmosaic.stats import t_test_resampled

A = np.array([0.82, 0.86, 0.81, 0.79, 0.90])
B = np.array([0.80, 0.81, 0.83, 0.75, 0.86])


def test_without_test_samples_it_is_the_paired_test():
    plain = stats.ttest_rel(A, B)
    found = t_test_resampled(A, B, n_train=10**12, n_test=1)
    assert found.statistic == pytest.approx(plain.statistic)
    assert found.p_value == pytest.approx(plain.pvalue)


def test_the_correction_divides_the_statistic():
    # 1/5 + 30/70 for 1/5 under the root
    found = t_test_resampled(A, B, n_train=70, n_test=30)
    assert found.statistic == pytest.approx(
        stats.ttest_rel(A, B).statistic * np.sqrt((1 / 5) / (1 / 5 + 3 / 7))
    )
    swapped = t_test_resampled(B, A, n_train=70, n_test=30)
    assert swapped.statistic == pytest.approx(-found.statistic)
    assert swapped.p_value == pytest.approx(found.p_value)


def test_it_keeps_its_level_where_splits_share_their_samples():
    # Two methods of equal merit: the score of a split is the mean over its test part of 100
    # samples.
    random = np.random.RandomState(0)
    rejected = plainly = 0
    for _ in range(200):
        a, b = random.randn(2, 100)
        parts = [random.permutation(100)[:30] for _ in range(20)]
        scores = [a[part].mean() for part in parts], [b[part].mean() for part in parts]
        rejected += t_test_resampled(*scores, n_train=70, n_test=30).p_value < 0.05
        plainly += stats.ttest_rel(*scores).pvalue < 0.05
    assert rejected < 20 < 60 < plainly


def test_no_difference_and_the_same_everywhere():
    assert t_test_resampled(A, A, n_train=7, n_test=3) == (0.0, 1.0)
    assert t_test_resampled(np.ones(4), np.zeros(4), n_train=7, n_test=3) == (np.inf, 0.0)
    assert t_test_resampled(np.zeros(4), np.ones(4), n_train=7, n_test=3) == (-np.inf, 0.0)


def test_what_cannot_be_tested_is_refused_by_name():
    with pytest.raises(ValueError, match="n_train=0: give how many samples"):
        t_test_resampled(A, B, n_train=0, n_test=3)
    with pytest.raises(ValueError, match="at least two splits"):
        t_test_resampled([1.0], [2.0], n_train=7, n_test=3)
    with pytest.raises(ValueError, match="finite"):
        t_test_resampled(A, B * np.nan, n_train=7, n_test=3)
