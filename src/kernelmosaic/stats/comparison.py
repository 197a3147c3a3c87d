"""The papers' comparison rows: F test, direct comparison and Wilcoxon's test of two methods over data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic.stats.f_test import FTestResult, f_test_5x2cv
from kernelmosaic.stats.signed_rank import WilcoxonResult, wilcoxon
from kernelmosaic.stats.win_tie_loss import WinTieLoss, win_tie_loss

_VERDICTS = {1: "win", 0: "tie", -1: "loss"}


@dataclass(frozen=True)
class DatasetComparison:
    """Two methods on one data set: their means, the F test (None where only means are known) and its verdict."""

    dataset: str
    mean_a: float
    mean_b: float
    f_test: FTestResult | None
    verdict: str | None


@dataclass(frozen=True)
class Comparison:
    """Two methods over all data sets, from the first one's side.

    Parameters
    ----------
    f_test : WinTieLoss or None
        Data sets on which the first is significantly better, neither is, the second is; None if only means are known.
    direct : WinTieLoss
        The same of the bare means.
    wilcoxon : WilcoxonResult
        The signed-rank test on the means.
    wilcoxon_verdict : {"win", "tie", "loss"}
        Its outcome at the level asked for.
    rows : tuple of DatasetComparison
        One a data set.
    """

    f_test: WinTieLoss | None
    direct: WinTieLoss
    wilcoxon: WilcoxonResult
    wilcoxon_verdict: str
    rows: tuple[DatasetComparison, ...]

    def __str__(self) -> str:
        tested = "–" if self.f_test is None else "/".join(map(str, self.f_test))
        return (
            f"5×2 cv paired F test (W/T/L) {tested}\n"
            f"direct comparison (W/T/L)    {'/'.join(map(str, self.direct))}\n"
            f"Wilcoxon's signed-rank test  {self.wilcoxon_verdict} (p = {self.wilcoxon.p_value:.3g})"
        )


def compare(
    results: Any,
    a: str | None = None,
    b: str | None = None,
    *,
    larger_is_better: bool = True,
    alpha: float = 0.05,
    decimals: int | None = None,
) -> Comparison:
    """Compare two methods over data sets as the papers' tables do.

    Parameters
    ----------
    results : mapping or data frame
        ``{data set: (scores of a, scores of b)}`` with ten scores each, (5, 2) or (10,), or with one mean each, which
        leaves out the F test. Or a data frame with columns ``dataset``, ``method`` and ``score``, ten rows a data set
        and method in the order of the folds.
    a, b : str, optional
        The methods of a data frame; by default the two there are, in the order of their first rows.
    larger_is_better : bool, default=True
        False for errors, costs or support vectors.
    alpha : float, default=0.05
        Level of both tests.
    decimals : int, optional
        Round means before they are compared, as printed tables do.

    Returns
    -------
    Comparison
        Its ``str`` is the three rows.

    Examples
    --------
    >>> from kernelmosaic.stats import compare
    >>> print(compare({"one": (90.2, 89.1), "two": (75.0, 75.0), "three": (60.4, 61.0)}))
    5×2 cv paired F test (W/T/L) –
    direct comparison (W/T/L)    1/1/1
    Wilcoxon's signed-rank test  tie (p = 1)
    """
    pairs = results if isinstance(results, Mapping) else _from_frame(results, a, b)
    if not pairs:
        raise ValueError("results is empty: give at least one data set.")
    sign = 1 if larger_is_better else -1
    rows = tuple(_row(str(name), pair, sign, alpha, decimals) for name, pair in pairs.items())
    means_a, means_b = [row.mean_a for row in rows], [row.mean_b for row in rows]
    ranked = wilcoxon(means_a, means_b)
    outcome = sign * ranked.direction if ranked.p_value < alpha else 0
    verdicts = [row.verdict for row in rows]
    tested = None if None in verdicts else WinTieLoss(*(verdicts.count(word) for word in _VERDICTS.values()))
    direct = win_tie_loss(means_a, means_b, larger_is_better=larger_is_better)
    return Comparison(tested, direct, ranked, _VERDICTS[outcome], rows)


def _row(name: str, pair: Any, sign: int, alpha: float, decimals: int | None) -> DatasetComparison:
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


def _from_frame(frame: Any, a: str | None, b: str | None) -> dict[str, tuple[list[float], list[float]]]:
    try:
        datasets, methods, scores = (list(frame[column]) for column in ("dataset", "method", "score"))
    except (KeyError, TypeError, IndexError) as error:
        raise TypeError(
            "results: give {data set: (scores of a, scores of b)} or a data frame with columns dataset, method, score."
        ) from error
    present = list(dict.fromkeys(methods))
    if a is None and b is None and len(present) == 2:
        a, b = present
    if a not in present or b not in present:
        raise ValueError(f"a={a!r}, b={b!r}: name two of the methods {', '.join(map(repr, present))}.")
    table: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in dict.fromkeys(datasets)}
    for dataset, method, score in zip(datasets, methods, scores, strict=True):
        if method in (a, b):
            table[dataset][0 if method == a else 1].append(score)
    return table
