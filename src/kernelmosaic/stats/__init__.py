"""Paired tests to judge one method against another, on one data set and over many."""

from __future__ import annotations

from kernelmosaic.stats.paired import (
    Comparison,
    DatasetComparison,
    FTestResult,
    WilcoxonResult,
    WinTieLoss,
    compare,
    f_test_5x2cv,
    wilcoxon,
    win_tie_loss,
)

__all__ = [
    "Comparison",
    "DatasetComparison",
    "FTestResult",
    "WilcoxonResult",
    "WinTieLoss",
    "compare",
    "f_test_5x2cv",
    "wilcoxon",
    "win_tie_loss",
]
