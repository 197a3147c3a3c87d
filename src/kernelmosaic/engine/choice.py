"""Which of the models that a search has scored is chosen, where scores differ by less than they are known to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._checks import check_choice

Array = NDArray[np.float64]

#: What a search may choose: the best score, or the smoothest model within one standard error of it.
RULES = ("best", "one_standard_error")


def choose(
    scores: Array, tol: float, rule: str = "best", descending: bool = False, sizes: NDArray[np.intp] | None = None
) -> tuple[int, int]:
    """Return the numbers of the norm and of the value that a search chooses.

    Of all scores that tie with the best, the smoothest value is taken; of the norms that tie at this value, the first.
    A plateau of scores, where a larger C changes nothing, thus has one choice, whatever the rounding of the scores.

    Parameters
    ----------
    scores : ndarray of shape (norms, folds, values)
        Larger is better; NaN where nothing was tried.
    tol : float
        The tolerance of the fits.
    rule : {"best", "one_standard_error"}
        Whether scores that are less than one standard error below the best tie with it as well. The standard error is
        that of the mean over the folds, of the best score.
    descending : bool
        Whether large values are smooth.
    sizes : ndarray of shape (folds,), optional
        How many samples each fold holds out.
    """
    means = scores.mean(axis=1)
    margin = resolution(means, tol)
    if sizes is not None and _are_shares(scores, sizes):
        # Folds of 16 and 17 samples: as many right answers differ by less than one sample in their mean.
        margin = max(margin, 0.5 / (len(sizes) * int(np.max(sizes))))
    m, i = _smoothest(means, margin, margin, descending)
    if check_choice("rule", rule, RULES) == "best" or scores.shape[1] == 1:
        return m, i
    error = float(scores[m, :, i].std(ddof=1)) / scores.shape[1] ** 0.5
    below = float(np.nanmax(means) - means[m, i])
    return _smoothest(means, max(below + error, margin), margin, descending)


def resolution(means: Array, tol: float) -> float:
    """Return the least difference of two mean scores by which two models are distinguished.

    A fit is certified to a relative gap of `tol`: its objective, and with it the loss that it has on samples held out,
    is known to this share and no better. So is the distance of a score from the best there can be, 1 for accuracies,
    R² and concordance, 0 for losses with a minus. (Copies of a problem that differ in the last bits of X have R² whose
    1 − R² differ by up to 4 `tol`, relatively.) As outputs that are off by `tol` have a squared error of `tol`², nearly
    perfect scores are known to this share of the largest distance, that of a constant model, and to
    rounding.
    """
    best = float(np.nanmax(means))
    ideal = 1.0 if 0.0 < best <= 1.0 else 0.0
    largest = float(np.nanmax(np.abs(ideal - means)))
    # R² has no lower bound.
    largest = min(largest, 1.0) if ideal else largest
    return max(4.0 * tol * abs(ideal - best), max(tol**2, 1e-12) * largest)


def _smoothest(means: Array, margin: float, between_norms: float, descending: bool) -> tuple[int, int]:
    """Return the first norm and the smoothest value whose mean score is at most a margin below the best.

    At that value norms are compared once more: those within another margin of its best tie.
    """
    tied = means >= np.nanmax(means) - margin
    values = np.flatnonzero(tied.any(axis=0))
    i = int(values[-1 if descending else 0])
    return int(np.argmax(means[:, i] >= np.nanmax(means[:, i]) - between_norms)), i


def _are_shares(scores: Array, sizes: NDArray[np.intp]) -> bool:
    """Whether all scores are numbers of samples divided by those held out."""
    counts = (scores * np.reshape(sizes, (-1, 1)))[np.isfinite(scores)]
    return bool(np.all(np.abs(counts - np.round(counts)) < 1e-6))
