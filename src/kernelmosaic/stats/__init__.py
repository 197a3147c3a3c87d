"""Paired tests to judge one method against another, on one data set and over many."""

from __future__ import annotations

from kernelmosaic.stats.comparison import Comparison, DatasetComparison, compare
from kernelmosaic.stats.f_test import FTestResult, f_test_5x2cv
from kernelmosaic.stats.signed_rank import WilcoxonResult, wilcoxon
from kernelmosaic.stats.win_tie_loss import WinTieLoss, win_tie_loss

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
