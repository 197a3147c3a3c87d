"""Conformal prediction: intervals, or sets of classes, that hold a given share of new targets.

Nothing is assumed of the targets' distribution but that samples are exchangeable: any order of them
is as likely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_share
from kernelmosaic._typing import AnyArray, Array, Estimator, Indices, Mask, MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.engine.calibration import NEVER
from kernelmosaic.engine.tasks import Labels, per_class

#: Entries of an array with one column per sample that are worked on at once.
BLOCK = 2**22


def ranked(scores: Array, shift: Array, coverage: float) -> Array:
    """Return the ⌈coverage (n + 1)⌉-th smallest of n scores plus a shift of each; infinity if that
    is beyond n.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Of samples that a model was not fitted to.
    shift : ndarray of shape (m, n) or (m, 1)
        For each of m new samples; a single column is the same shift for all.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    ndarray of shape (m,)
    """
    check_share("coverage", coverage)
    n = len(scores)
    k = max(int(np.ceil(coverage * (n + 1) - 1e-9)), 1)  # 0.55 · 100 is 55, not a little more
    if k > n:
        return np.full(len(shift), np.inf)
    if shift.shape[1] == 1:
        return np.asarray(np.partition(scores, k - 1)[k - 1] + shift[:, 0])
    return np.asarray(np.partition(scores + shift, k - 1, axis=1)[:, k - 1])


def interval(low: Array, high: Array, scores: Array, coverage: float) -> Array:
    """Return intervals around the predictions of models fitted without one sample each.

    The jackknife+ and CV+ of Barber et al. (2021), with one model the split conformal interval. An
    interval whose ends would cross is its middle.

    Parameters
    ----------
    low, high : ndarray of shape (m, n) or (m, 1)
        Between which numbers the model that has not seen sample j predicts the target of new sample
        i; both are the same where a model predicts a number.
    scores : ndarray of shape (n,)
        How far the target of sample j is outside of what its model predicts; negative within.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    ndarray of shape (m, 2)
    """
    found = np.column_stack([-ranked(scores, -low, coverage), ranked(scores, high, coverage)])
    crossed = found[:, 0] > found[:, 1]
    found[crossed] = found[crossed].mean(axis=1, keepdims=True)
    return found


def misfits(values: Array) -> Array:
    """Return by how much the largest value of another class exceeds that of each class, along the
    last axis."""
    largest = np.partition(values, -2, axis=-1)[..., -2:]
    return np.asarray(
        np.where(values == largest[..., 1:], largest[..., :1], largest[..., 1:]) - values
    )


def own_misfits(values: Array, codes: Indices) -> Array:
    """Return the misfit of every sample's own class, given by its code."""
    return np.asarray(misfits(values)[np.arange(len(values)), codes])


@dataclass(frozen=True)
class Unseen(ABC):
    """Machines fitted without one sample each, with the scores of these samples.

    Attributes
    ----------
    scores : ndarray of shape (n, targets)
        How far the target of each sample is outside of what its machine predicts; of classes, the
        misfit of its own.
    classes : ndarray or None
        The classes, if the targets are some.
    is_flat : bool
        Whether targets are numbers, not rows of several.
    """

    scores: Array
    classes: AnyArray | None
    is_flat: bool

    @abstractmethod
    def bands(self, X: MatrixLike) -> Iterator[tuple[Array, Array]]:
        """Yield between which numbers the machines predict the targets of new samples, strip by
        strip of these.

        Both have the shape (strip, n, targets), or (strip, 1, targets) where one machine has seen
        none of the samples. Of classes both are the decision values.
        """

    def interval(self, X: MatrixLike, coverage: float) -> Array:
        """Return the intervals of new samples, of shape (m, 2), or (m, 2, targets)."""
        strips = []
        for low, high in self.bands(X):
            each = [
                interval(low[..., c], high[..., c], own, coverage)
                for c, own in enumerate(self.scores.T)
            ]
            strips.append(np.stack(each, -1))
        found = np.concatenate(strips)
        return found[:, :, 0] if self.is_flat else found

    def classes_within(self, X: MatrixLike, coverage: float, predicted: AnyArray) -> Mask:
        """Return which classes are in the sets of new samples, of shape (m, classes); those
        predicted always are."""
        assert self.classes is not None
        shifts = (np.moveaxis(-misfits(per_class(values)), -1, 0) for values, _ in self.bands(X))
        found = np.concatenate(
            [
                np.stack([ranked(self.scores[:, 0], own, coverage) >= 0 for own in each], -1)
                for each in shifts
            ]
        )
        found[np.arange(len(found)), Labels(self.classes).codes(predicted)] = True
        return found


@dataclass(frozen=True)
class Conformal(Unseen):
    """Estimators and samples that each has not seen: one is split conformal prediction, those of
    all folds are CV+.

    Attributes
    ----------
    models : list of estimator
        Fitted.
    at : ndarray of shape (n,)
        For each sample, the number of the model fitted without it.
    """

    models: list[Estimator]
    at: Indices

    @classmethod
    def of(
        cls,
        models: Sequence[Estimator],
        unseen: Sequence[tuple[MatrixLike, AnyArray]],
        classes: AnyArray | None = None,
    ) -> Conformal:
        """Return models with the scores of samples and targets that each was not fitted to."""
        each = list(zip(models, unseen, strict=True))
        if classes is None:
            scores = [_distances(_band(model, X, y.size // len(y)), y) for model, (X, y) in each]
        else:
            scores = [_scores_of_classes(model, X, y, classes) for model, (X, y) in each]
        at = np.repeat(np.arange(len(each)), [len(one) for one in scores])
        return cls(
            np.concatenate(scores), classes, all(y.ndim == 1 for _, y in unseen), list(models), at
        )

    def bands(self, X: MatrixLike) -> Iterator[tuple[Array, Array]]:
        if self.classes is None:
            each = np.array([_band(model, X, self.scores.shape[1]) for model in self.models])
        else:
            each = np.array(
                [_class_values(model, X, self.classes)[:, np.newaxis] for model in self.models]
            )
        for rows in row_strips(each.shape[1], BLOCK // (len(self.at) * each.shape[3])):
            found = each[:, rows].swapaxes(0, 1)
            # For each sample what the model says that was fitted without it.
            found = found if len(self.models) == 1 else found[:, self.at]
            yield found[:, :, 0], found[:, :, -1]


# Methods of estimators ----------------------------------------------------------------------------


def predict_interval(self: Any, X: MatrixLike, coverage: float = 0.9) -> Array:
    """Return intervals that contain the targets of new samples with a given probability.

    Their ends are quantiles, over the training samples, of the prediction by a machine fitted
    without the sample, minus and plus the residual of the sample (Barber et al. 2021). If the model
    predicts several quantiles, the residual is how far the target lies outside the first and the
    last of them (Romano, Patterson and Candès 2019), so that intervals are wide where these are far
    apart. Whatever the distribution, intervals of samples that are exchangeable with the training
    samples contain the target with a probability of at least

    - 2·coverage − 1 − √(2/n) by the machines of the folds of a search (CV+), for a given C and
      norm,
    - 2·coverage − 1 by all leave-one-out machines of a ridge estimator, in closed form
      (jackknife+), for given weights; with features, and for many pairs, the machine itself takes
      their place (the jackknife), without a guarantee,
    - coverage by one machine and n samples set aside; they are infinite above n / (n + 1);

    in practice of about `coverage`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Samples.
    coverage : float, default=0.9
        Between 0 and 1.

    Returns
    -------
    ndarray of shape (n_samples, 2), or (n_samples, 2, targets)
    """
    check_is_fitted(self)
    return np.asarray(self._unseen().interval(X, coverage))


def predict_set(self: Any, X: MatrixLike, coverage: float = 0.9) -> Mask:
    """Return sets of classes that contain the classes of new samples with a given probability.

    A class is in the set unless its score is larger than too many of the scores that training
    samples have for their own classes, each by a machine fitted without the sample (Romano, Sesia
    and Candès 2020). The score is by how much the largest decision value (or, without those,
    probability) of another class exceeds that of this class. The probability is at least 2·coverage
    − 1 − √(2/n) by the machines of folds, 2·coverage − 1 by leave-one-out machines, and coverage by
    samples set aside, as for ``predict_interval``.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Samples.
    coverage : float, default=0.9
        Between 0 and 1.

    Returns
    -------
    ndarray of bool of shape (n_samples, classes)
        Whether each of `classes_` is in the set; the predicted class always is, so no set is empty.
    """
    check_is_fitted(self)
    return np.asarray(self._unseen().classes_within(X, coverage, self.predict(X)))


# Scores -------------------------------------------------------------------------------------------


def _band(model: Estimator, X: MatrixLike, n_targets: int) -> Array:
    """Return between which numbers a model predicts each target, of shape (m, 2, targets).

    Of several quantiles these are the first and the last; else both are the prediction.
    """
    predicted = np.asarray(model.predict(X), dtype=np.float64)
    columns = predicted[:, np.newaxis] if predicted.ndim == 1 else predicted
    if n_targets == 1:
        return columns[:, [0, -1], np.newaxis]
    if columns.shape[1] != n_targets:
        raise ValueError(
            f"y has {n_targets} columns, but {type(model).__name__} predicts {columns.shape[1]}"
            " numbers per sample; give the targets that it predicts."
        )
    return np.repeat(columns[:, np.newaxis], 2, axis=1)


def _distances(band: Array, y: AnyArray) -> Array:
    """Return how far targets are outside of a band, of shape (n, targets)."""
    columns = y.reshape(len(band), -1)
    return np.maximum(band[:, 0] - columns, columns - band[:, 1])


def _class_values(model: Estimator, X: MatrixLike, classes: AnyArray) -> Array:
    """Return decision values, or probabilities where there are none, with one column per class of
    the whole set."""
    says: Any = (
        model.decision_function if hasattr(model, "decision_function") else model.predict_proba
    )
    values = per_class(np.asarray(says(X), dtype=np.float64))
    # A class that the model has no sample of has a value whose differences from others are finite.
    return Labels(classes).spread(values, model.classes_, -NEVER / 8)


def _scores_of_classes(model: Estimator, X: MatrixLike, y: AnyArray, classes: AnyArray) -> Array:
    """Return the misfit of every sample's own class, of shape (n, 1); infinite if it is none of the
    classes."""
    known, found = np.isin(y, classes), np.full((len(y), 1), np.inf)
    found[known, 0] = own_misfits(
        _class_values(model, X, classes)[known], Labels(classes).codes(y[known])
    )
    return found
