"""The 5×2 cv F test against hand-computed values, a naive loop, and the tables of the F
distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import beta

from kernelmosaic.stats import f_test_5x2cv


def test_by_hand():
    # p = (1, 2) in each replication: Σp² = 25, s² = ½ each, so f = 25 / (2 · 2.5) = 5
    a = np.tile([1.0, 2.0], 5)
    result = f_test_5x2cv(a, np.zeros(10))
    assert result.statistic == pytest.approx(5.0)

    def density(x, m=10, n=5):
        return (
            (m / n) ** (m / 2)
            * x ** (m / 2 - 1)
            * (1 + m * x / n) ** (-(m + n) / 2)
            / beta(m / 2, n / 2)
        )

    assert result.p_value == pytest.approx(quad(density, 5.0, np.inf)[0], rel=1e-6)


def test_critical_value_of_the_five_percent_level():
    # p = (c + e, c − e): f = (c² + e²) / (2e²); at 4.735 the level is 5 %
    e = 1.0
    c = np.sqrt(2 * 4.735 - 1) * e
    result = f_test_5x2cv(np.tile([c + e, c - e], (5, 1)), np.zeros((5, 2)))
    assert result.statistic == pytest.approx(4.735)
    assert result.p_value == pytest.approx(0.05, abs=2e-5)


def test_against_a_naive_loop_in_both_shapes():
    rng = np.random.RandomState(0)
    a, b = rng.standard_normal((2, 5, 2))
    top = bottom = 0.0
    for i in range(5):
        first, second = a[i, 0] - b[i, 0], a[i, 1] - b[i, 1]
        mean = (first + second) / 2
        top += first**2 + second**2
        bottom += (first - mean) ** 2 + (second - mean) ** 2
    assert f_test_5x2cv(a, b).statistic == pytest.approx(top / (2 * bottom))
    assert f_test_5x2cv(a.ravel(), b.ravel().tolist()) == f_test_5x2cv(a, b)
    assert f_test_5x2cv(a, b) == f_test_5x2cv(b, a)


def test_no_difference_and_always_the_same_difference():
    a = np.linspace(0.5, 0.9, 10)
    assert f_test_5x2cv(a, a) == (0.0, 1.0)
    statistic, p_value = f_test_5x2cv(np.ones(10), np.zeros(10))
    assert statistic == np.inf
    assert p_value == 0.0


@pytest.mark.parametrize("scores", [np.zeros(9), np.zeros((2, 5)), np.full(10, np.nan)])
def test_wrong_shapes_and_values_are_named(scores):
    with pytest.raises(ValueError, match="scores_b"):
        f_test_5x2cv(np.ones(10), scores)
