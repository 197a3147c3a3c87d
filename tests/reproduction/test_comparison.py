"""Comparison rows against those printed in Gönen and Alpaydın (2011), and against each test on its
own."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.stats import f_test_5x2cv
from reproduction.comparison import compare

# Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface
# methodology": RMKL and MKL on 13 tasks, Table 6 (accuracies, then support vectors) and Table 7
# (accuracies), in percent.
RMKL_6 = [79.21, 93.56, 87.47, 87.07, 92.29, 87.64, 90.49, 93.26, 95.2, 89.05, 94.43, 95.24, 97.74]
MKL_6 = [78.59, 93.23, 87.17, 85.62, 91.9, 86.73, 90.31, 92.92, 94.75, 89.16, 94.65, 95.26, 97.73]
RMKL_6_SV = [
    94.85,
    85.93,
    93.14,
    82.81,
    77.52,
    92.78,
    86.45,
    95.91,
    84.18,
    75.94,
    86.68,
    79.63,
    9.74,
]
MKL_6_SV = [
    91.5,
    90.95,
    96.11,
    87.22,
    91.24,
    93.58,
    82.56,
    91.49,
    82.28,
    93.39,
    96.24,
    76.32,
    77.14,
]
RMKL_7 = [80.68, 94.48, 87.53, 85.53, 94.59, 87.9, 90.7, 93.77, 94.99, 89.58, 94.43, 96.22, 97.83]
MKL_7 = [80.72, 94.32, 87.51, 85.63, 93.68, 87.44, 91.05, 93.78, 95.0, 89.56, 94.43, 96.41, 97.8]


@pytest.mark.parametrize(
    ("new", "old", "larger", "direct", "outcome"),
    [
        (RMKL_6, MKL_6, True, (10, 0, 3), "win"),
        (RMKL_6_SV, MKL_6_SV, False, (8, 0, 5), "tie"),
        (RMKL_7, MKL_7, True, (6, 1, 6), "tie"),
    ],
)
def test_printed_rows(new, old, larger, direct, outcome):
    pairs = {f"Y{i}": pair for i, pair in enumerate(zip(new, old, strict=True), start=1)}
    result = compare(pairs, larger_is_better=larger)
    assert result.direct == direct
    assert result.wilcoxon_verdict == outcome
    assert result.f_test is None
    reverse = compare({name: pair[::-1] for name, pair in pairs.items()}, larger_is_better=larger)
    assert reverse.direct == direct[::-1]
    assert reverse.wilcoxon_verdict == {"win": "loss"}.get(outcome, outcome)


@pytest.fixture
def folds():
    rng = np.random.RandomState(0)
    noise = 0.01 * rng.standard_normal((3, 2, 10))
    return {
        "better": (0.9 + noise[0, 0], 0.7 + noise[0, 1]),
        "alike": (0.8 + noise[1, 0], 0.8 + noise[1, 1]),
        "worse": (0.6 + noise[2, 0], 0.7 + noise[2, 1]),
    }


def test_significant_wins_are_those_of_the_f_test(folds):
    result = compare(folds)
    assert [row.verdict for row in result.rows] == ["win", "tie", "loss"]
    assert result.f_test == (1, 1, 1)
    for row in result.rows:
        assert row.f_test == f_test_5x2cv(*folds[row.dataset])
        assert (row.mean_a, row.mean_b) == tuple(np.mean(folds[row.dataset], axis=1))
    assert compare(folds, larger_is_better=False).rows[0].verdict == "loss"
    assert compare(folds, alpha=1e-9).f_test == (0, 3, 0)
    assert compare(folds, decimals=1).direct == (1, 1, 1)
