"""Stability of weights: how often kernels are selected in fits to resampled training sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import has_fit_parameter

from kernelmosaic._checks import check_choice, check_count, check_positive, check_share
from kernelmosaic._typing import (
    AnyArray,
    Array,
    Estimator,
    Indices,
    MatrixLike,
    SampleWeight,
    Seed,
    TargetLike,
)
from kernelmosaic.inspection.refits import (
    Task,
    comparable_weights,
    fit,
    frame,
    labelled,
    last_step,
    leaves_out_one_by_one,
    prepare,
    refit,
    text_table,
)
from kernelmosaic.stacking import check_row_names

#: Draws of groups that may lack a class before `stability` gives up; chosen by hand.
_MOST_DRAWS = 100


@dataclass(frozen=True, eq=False)
class Stability:
    """The result of :func:`stability`.

    Attributes
    ----------
    kernel_names : list of str
        The names of the P kernels.
    classes : list or None
        The classes, where every class has weights of its own; the arrays below then have shape
        (classes, P).
    weights : ndarray of shape (P,)
        The weights learned from all samples. Where only their ratios matter, as for the ridge
        estimators, discriminants and bilinear machines, their sum is one, here and in all fits.
    selection_frequencies : ndarray of shape (P,)
        Share of the fits in which a kernel has a weight above the threshold.
    lower, upper : ndarray of shape (P,)
        Ends of the interval that holds the middle `confidence_level` of a weight.
    resampled_weights : ndarray of shape (n_resamples, P)
        The weights of all fits.
    confidence_level : float
        The level of the intervals.
    """

    kernel_names: list[str]
    classes: list[Any] | None
    weights: Array
    selection_frequencies: Array
    lower: Array
    upper: Array
    resampled_weights: Array = field(repr=False)
    confidence_level: float = 0.95

    def _rows(self) -> list[list[Any]]:
        """Return one row per kernel, or per class and kernel."""
        columns = (self.weights, self.selection_frequencies, self.lower, self.upper)
        return labelled(self.kernel_names, self.classes, columns)

    def to_frame(self) -> Any:
        """Return a data frame: one row per kernel, or per class and kernel as ``class: kernel``."""
        return frame(("kernel", "weight", "selection_frequency", "lower", "upper"), self._rows())

    def __str__(self) -> str:
        return text_table(("kernel", "weight", "selected", "from", "to"), self._rows())


def stability(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    *,
    n_resamples: int = 100,
    method: str = "subsample",
    fraction: float = 0.5,
    threshold: float = 1e-3,
    confidence_level: float = 0.95,
    groups: Any = None,
    sample_weight: SampleWeight = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Stability:
    """Return how often kernels are selected in fits to resampled training sets, and their weights.

    Every fit is separate: widths and scales of the kernels are those of the samples drawn. It
    starts from the weights of the fit to all samples, which saves time and does not change the
    result.

    Parameters
    ----------
    estimator : estimator
        Of this package, with targets, or a pipeline that ends in one; not changed.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        Samples.
    y : array-like
        Their targets, as `fit` takes them.
    n_resamples : int, default=100
        How often samples are drawn.
    method : {"subsample", "bootstrap"}, default="subsample"
        Some of the samples, each at most once; or as many as there are, with replacement, which
        shows how much the weights of a set of this size vary. A sample that is drawn several times
        is given once, with its number of copies as sample weight, or its copies are left out
        together, so that leaving it out leaves no copy behind. Samples are drawn within each class,
        so that every class is present.
    fraction : float, default=0.5
        Share of the samples in a subsample.
    threshold : float, default=1e-3
        A kernel is selected if its weight is above.
    confidence_level : float, default=0.95
        Share of the weights that the intervals hold.
    groups : array-like of shape (n_samples,), default=None
        Whole groups are drawn, such as donors, in place of samples; draws that lack a class are
        drawn again.
    sample_weight : array-like of shape (n_samples,), default=None
        Factors of C; samples of weight zero are not drawn.
    random_state : int, RandomState or None, default=None
        Draws the samples, and a seed for an estimator that has none.
    n_jobs : int, default=None
        Processes; None means one. Results do not depend on it.
    verbose : bool, default=False
        Show how many fits are done.

    Returns
    -------
    Stability

    References
    ----------
    Meinshausen and Bühlmann (2010), "Stability selection".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.inspection import stability
    >>> from kernelmosaic.kernels import Gaussian
    >>> X, y = load_iris(return_X_y=True)
    >>> views = [("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])]
    >>> model = MKLClassifier(views)
    >>> result = stability(model, X[50:], y[50:], n_resamples=10, random_state=0)
    >>> float(result.selection_frequencies[1])
    1.0
    """
    n_resamples = check_count("n_resamples", n_resamples)
    check_choice("method", method, ("subsample", "bootstrap"))
    check_share("fraction", fraction)
    check_share("confidence_level", confidence_level)
    check_positive("threshold", threshold, zero=True)
    check_row_names(X, groups=groups)
    estimator, y, weight, random = prepare(estimator, X, y, sample_weight, random_state)
    model = last_step(fit(estimator, X, y, weight))
    weights = comparable_weights(model)

    # 1. Draw samples: of each class, or whole groups. Samples of weight zero are not drawn.
    n = len(y)
    is_bootstrap = method == "bootstrap"
    drawn_fraction = None if is_bootstrap else fraction
    strata = y if is_classifier(model) and y.ndim == 1 else np.zeros(n)
    candidates = np.arange(n)
    if weight is not None:
        candidates = np.flatnonzero(weight)
    labels = strata
    if groups is not None:
        labels = _group_labels(groups, n)
    labels = labels[candidates]
    members = [candidates[labels == label] for label in np.unique(labels)]
    draws = []
    for _ in range(n_resamples):
        if groups is None:
            parts = [_draw(stratum, drawn_fraction, random) for stratum in members]
            draws.append(np.concatenate(parts))
        else:
            draws.append(_draw_groups(members, strata, drawn_fraction, random))

    # 2. Fit to every draw, copies of a sample counted in its weight where the estimator allows it.
    counts_copies = (
        is_bootstrap
        and not leaves_out_one_by_one(model)
        and has_fit_parameter(model, "sample_weight")
    )
    tasks = [_task_of_draw(y, weight, rows, counts_copies) for rows in draws]
    resampled = refit(estimator, X, tasks, model.weights_, n_jobs, verbose, "stability")

    # 3. Frequencies and intervals.
    tail = 0.5 * (1.0 - confidence_level)
    lower, upper = np.quantile(resampled, [tail, 1.0 - tail], axis=0)
    return Stability(
        kernel_names=list(model.kernel_names_),
        classes=model.classes_.tolist() if weights.ndim == 2 else None,
        weights=weights,
        selection_frequencies=np.mean(resampled > threshold, axis=0),
        lower=lower,
        upper=upper,
        resampled_weights=resampled,
        confidence_level=float(confidence_level),
    )


def _task_of_draw(y: AnyArray, weight: Array | None, rows: Indices, counts_copies: bool) -> Task:
    """Return the fit to drawn samples.

    With `counts_copies`, a sample is given once, its weight multiplied by the number of its copies:
    a fit that leaves samples out, as leave-one-out and cross-validation do, would otherwise find
    copies of them among the others.
    """
    if not counts_copies:
        return y[rows], None if weight is None else weight[rows], rows
    distinct, counts = np.unique(rows, return_counts=True)
    sample_weight = counts.astype(np.float64)
    if weight is not None:
        sample_weight *= weight[distinct]
    return y[distinct], sample_weight, distinct


def _draw(numbers: Indices, fraction: float | None, random: np.random.RandomState) -> Indices:
    """Return a random fraction of some numbers, without replacement.

    Without a fraction, as many numbers as there are, drawn with replacement.
    """
    if fraction is None:
        return np.asarray(random.choice(numbers, len(numbers), replace=True))
    size = max(1, round(fraction * len(numbers)))
    return np.asarray(random.choice(numbers, size, replace=False))


def _draw_groups(
    members: list[Indices], strata: AnyArray, fraction: float | None, random: np.random.RandomState
) -> Indices:
    """Return the samples of groups that `_draw` draws, or raise if every draw lacks a class.

    Parameters
    ----------
    members : list of ndarray of int
        The samples of each group.
    strata : ndarray of shape (n,)
        The classes.
    fraction, random
        As in `_draw`.
    """
    n_classes = len(np.unique(strata[np.concatenate(members)]))
    for _ in range(_MOST_DRAWS):
        chosen = _draw(np.arange(len(members)), fraction, random)
        rows = np.concatenate([members[g] for g in chosen])
        if len(np.unique(strata[rows])) == n_classes:
            return rows
    raise ValueError(
        f"groups: {_MOST_DRAWS} draws of {len(chosen)} of the {len(members)} groups lack a class;"
        " raise fraction, or leave groups None."
    )


def _group_labels(groups: Any, n: int) -> Indices:
    """Return the group number of each of n samples, or raise."""
    labels: Indices = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    if len(labels) != n:
        raise ValueError(f"groups has {len(labels)} entries for {n} samples: give one per sample.")
    return labels
