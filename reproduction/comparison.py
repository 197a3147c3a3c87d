"""Two methods over data sets, as the papers' tables compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernelmosaic.stats import (
    PairedTestResult,
    WilcoxonResult,
    WinTieLoss,
    f_test_5x2cv,
    wilcoxon,
    win_tie_loss,
)

_VERDICTS = {1: "win", 0: "tie", -1: "loss"}


@dataclass(frozen=True)
class DatasetComparison:
    """Two methods on one data set: their means, the F test (None where only means are known) and
    its verdict."""

    dataset: str
    mean_a: float
    mean_b: float
    f_test: PairedTestResult | None
    verdict: str | None


@dataclass(frozen=True)
class Comparison:
    """Two methods over all data sets, from the first one's side.

    Parameters
    ----------
    f_test : WinTieLoss or None
        Data sets on which the first is significantly better, neither is, the second is; None if
        only means are known.
    direct : WinTieLoss
        The same of the bare means.
    wilcoxon : WilcoxonResult
        The signed-rank test on the means.
    wilcoxon_verdict : {"win", "tie", "loss"}
        Its outcome at the given level.
    rows : tuple of DatasetComparison
        One per data set.
    """

    f_test: WinTieLoss | None
    direct: WinTieLoss
    wilcoxon: WilcoxonResult
    wilcoxon_verdict: str
    rows: tuple[DatasetComparison, ...]


def compare(
    results: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    larger_is_better: bool = True,
    alpha: float = 0.05,
    decimals: int | None = None,
) -> Comparison:
    """Compare two methods over data sets.

    Parameters
    ----------
    results : mapping
        ``{data set: (scores of a, scores of b)}`` with ten scores each, (5, 2) or (10,), or with
        one mean each, which leaves out the F test.
    larger_is_better : bool, default=True
        False for errors, costs or support vectors.
    alpha : float, default=0.05
        Level of both tests.
    decimals : int, optional
        Round means before they are compared, as printed tables do.
    """
    sign = 1 if larger_is_better else -1
    rows = tuple(_row(str(name), pair, sign, alpha, decimals) for name, pair in results.items())
    means_a, means_b = [row.mean_a for row in rows], [row.mean_b for row in rows]
    ranked = wilcoxon(means_a, means_b)
    outcome = sign * ranked.direction if ranked.p_value < alpha else 0
    verdicts = [row.verdict for row in rows]
    tested = (
        None
        if None in verdicts
        else WinTieLoss(*(verdicts.count(word) for word in _VERDICTS.values()))
    )
    direct = win_tie_loss(means_a, means_b, larger_is_better=larger_is_better)
    return Comparison(tested, direct, ranked, _VERDICTS[outcome], rows)


def _row(
    name: str, pair: tuple[ArrayLike, ArrayLike], sign: int, alpha: float, decimals: int | None
) -> DatasetComparison:
    scores_a, scores_b = (np.asarray(scores, dtype=np.float64) for scores in pair)
    mean_a, mean_b = float(scores_a.mean()), float(scores_b.mean())
    difference = mean_a - mean_b
    if decimals is not None:
        mean_a, mean_b = round(mean_a, decimals), round(mean_b, decimals)
    if scores_a.ndim == 0 and scores_b.ndim == 0:
        return DatasetComparison(name, mean_a, mean_b, None, None)
    tested = f_test_5x2cv(scores_a, scores_b)
    outcome = sign * int(np.sign(difference)) if tested.p_value < alpha else 0
    return DatasetComparison(name, mean_a, mean_b, tested, _VERDICTS[outcome])
