"""How much the weights of the kernels vary with the samples: fits to samples drawn from the training set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from kernelmosaic._checks import check_choice, check_count, check_positive, check_share
from kernelmosaic._typing import Estimator, MatrixLike, SampleWeight, Seed, TargetLike
from kernelmosaic.inspection._refits import Rows, Task, fit, labelled, last_step, prepare, refit, text_table

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stability:
    """What :func:`stability` returns.

    Attributes
    ----------
    kernel_names : list of str
        Of the P kernels.
    classes : list or None
        Whose weights the rows are, where every class has its own; the arrays below then have shape (classes, P).
    weights : ndarray of shape (P,)
        The weights learned from all samples.
    selection_frequencies : ndarray of shape (P,)
        Share of the fits in which a kernel has a weight above the threshold.
    lower, upper : ndarray of shape (P,)
        Ends of the interval that holds the middle `confidence_level` of a weight.
    resampled_weights : ndarray of shape (n_resamples, P)
        The weights of all fits.
    confidence_level : float
        Of the intervals.
    """

    kernel_names: list[str]
    classes: list[Any] | None
    weights: Array
    selection_frequencies: Array
    lower: Array
    upper: Array
    resampled_weights: Array = field(repr=False)
    confidence_level: float = 0.95

    def __str__(self) -> str:
        columns = (self.weights, self.selection_frequencies, self.lower, self.upper)
        heads = ("kernel", "weight", "selected", "from", "to")
        return text_table(heads, labelled(self.kernel_names, self.classes, columns))


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
    sample_weight: SampleWeight = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Stability:
    """Fit to samples drawn from the training set again and again: how often is a kernel selected, with which weights?

    Every fit is one of its own: widths and scales of the kernels are those of the samples drawn. It starts from the
    weights of the fit to all samples, which changes the time it takes and not what it finds.

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
        Some of the samples, each at most once; or as many as there are, with replacement, which shows how much the
        weights of a set of this size vary. Samples are drawn within each class, so that every class is present.
    fraction : float, default=0.5
        Share of the samples in a subsample.
    threshold : float, default=1e-3
        A kernel is selected if its weight is above.
    confidence_level : float, default=0.95
        Share of the weights that the intervals hold.
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
    >>> found = stability(model, X[50:], y[50:], n_resamples=20, random_state=0)
    >>> float(found.selection_frequencies[1])
    1.0
    """
    n_resamples = check_count("n_resamples", n_resamples)
    check_choice("method", method, ("subsample", "bootstrap"))
    check_share("fraction", fraction)
    check_share("confidence_level", confidence_level)
    check_positive("threshold", threshold, zero=True)
    estimator, y, weight, random = prepare(estimator, X, y, sample_weight, random_state)
    model = last_step(fit(estimator, X, y, weight))
    weights = model.weight_shares_
    strata = y if is_classifier(model) and y.ndim == 1 else np.zeros(len(y))
    counted = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
    members = [counted[strata[counted] == label] for label in np.unique(strata[counted])]
    drawn = [_draw(members, None if method == "bootstrap" else fraction, random) for _ in range(n_resamples)]
    tasks = [Task(y[rows], None if weight is None else weight[rows], rows) for rows in drawn]
    found = refit(estimator, X, tasks, weights, n_jobs, verbose, "stability")
    tail = 0.5 * (1.0 - confidence_level)
    lower, upper = np.quantile(found, [tail, 1.0 - tail], axis=0)
    return Stability(
        kernel_names=list(model.kernel_names_),
        classes=model.classes_.tolist() if weights.ndim == 2 else None,
        weights=weights,
        selection_frequencies=np.mean(found > threshold, axis=0),
        lower=lower,
        upper=upper,
        resampled_weights=found,
        confidence_level=float(confidence_level),
    )


def _draw(members: list[Rows], fraction: float | None, random: np.random.RandomState) -> Rows:
    """Return some samples of every class: a fraction of them without replacement, or as many with it."""
    sizes = [len(one) if fraction is None else max(1, round(fraction * len(one))) for one in members]
    return np.concatenate(
        [random.choice(one, size, replace=fraction is None) for one, size in zip(members, sizes, strict=True)]
    )
