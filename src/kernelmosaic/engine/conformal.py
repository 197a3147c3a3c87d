"""Conformal prediction: intervals, or sets of classes, that contain new targets with a given
probability.

Nothing is assumed of the targets' distribution but that samples are exchangeable: any order of them
is equally likely. The score of a sample says how far its target is from what a model predicts that
was not fitted to the sample.
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

#: Entries of the largest array that is worked on at once, 32 MiB of doubles; it has one column per
#: training sample. Chosen by hand.
BLOCK = 2**22
#: Rounding allowed where a coverage times a number of samples is rounded up: 0.55 · 100 is 55, and
#: not a little more.
ROUNDING_OF_RANK = 1e-9


def ranked(scores: Array, shift: Array, coverage: float) -> Array:
    """Return the ⌈coverage (n + 1)⌉-th smallest of n shifted scores; infinity if that is beyond n.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Of samples that a model was not fitted to.
    shift : ndarray of shape (m, n) or (m, 1)
        What is added to the scores for each of m new samples; a single column is the same number
        for all scores.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    ndarray of shape (m,)
    """
    check_share("coverage", coverage)
    n = len(scores)
    k = max(int(np.ceil(coverage * (n + 1) - ROUNDING_OF_RANK)), 1)
    if k > n:
        return np.full(len(shift), np.inf)
    if shift.shape[1] == 1:
        return np.asarray(np.partition(scores, k - 1)[k - 1] + shift[:, 0])
    return np.asarray(np.partition(scores + shift, k - 1, axis=1)[:, k - 1])


def interval(low: Array, high: Array, scores: Array, coverage: float) -> Array:
    """Return intervals around the predictions of models fitted without one sample each.

    They are those of the jackknife+ and of CV+ of Barber et al. (2021), and with one model the
    split conformal interval. An interval whose ends would cross is its middle.

    Parameters
    ----------
    low, high : ndarray of shape (m, n) or (m, 1)
        The numbers between which the model that was fitted without sample j predicts the target of
        new sample i; both are the same where a model predicts a number.
    scores : ndarray of shape (n,)
        How far the target of sample j is outside of what its model predicts; negative inside.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    ndarray of shape (m, 2)
    """
    lower_end = -ranked(scores, -low, coverage)
    upper_end = ranked(scores, high, coverage)
    ends = np.column_stack([lower_end, upper_end])
    crossed = ends[:, 0] > ends[:, 1]
    ends[crossed] = ends[crossed].mean(axis=1, keepdims=True)
    return ends


def misfits(values: Array) -> Array:
    """Return by how much the largest value of another class exceeds that of each class.

    `values` are decision values with the classes along the last axis, as in what is returned.
    """
    two_largest = np.partition(values, -2, axis=-1)[..., -2:]
    second, first = two_largest[..., :1], two_largest[..., 1:]
    largest_of_others = np.where(values == first, second, first)
    return np.asarray(largest_of_others - values)


def own_misfits(values: Array, codes: Indices) -> Array:
    """Return the misfit of every sample's own class, of shape (n,).

    Parameters
    ----------
    values : ndarray of shape (n, classes)
        Decision values.
    codes : ndarray of shape (n,)
        The samples' classes as numbers.
    """
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
        """Yield the numbers between which the machines predict the targets of new samples.

        They are yielded for strips of the new samples.

        Yields
        ------
        low, high : ndarray of shape (strip, n, targets) or (strip, 1, targets)
            The second shape is that of one machine that was fitted without any of the samples. Of
            classes both are the decision values.
        """

    def interval(self, X: MatrixLike, coverage: float) -> Array:
        """Return the intervals of new samples, of shape (m, 2), or (m, 2, targets)."""
        strips = []
        for low, high in self.bands(X):
            intervals_by_target = [
                interval(low[..., c], high[..., c], scores, coverage)
                for c, scores in enumerate(self.scores.T)
            ]
            strips.append(np.stack(intervals_by_target, -1))
        intervals = np.concatenate(strips)
        return intervals[:, :, 0] if self.is_flat else intervals

    def classes_within(self, X: MatrixLike, coverage: float, predicted: AnyArray) -> Mask:
        """Return which classes are in the sets of new samples, of shape (m, classes).

        `predicted` are the predicted classes of the new samples; they are in their sets in any
        case.
        """
        assert self.classes is not None
        scores = self.scores[:, 0]
        strips = []
        for values, _ in self.bands(X):
            shifts_by_class = np.moveaxis(-misfits(per_class(values)), -1, 0)
            is_within = [ranked(scores, shift, coverage) >= 0 for shift in shifts_by_class]
            strips.append(np.stack(is_within, -1))
        within = np.concatenate(strips)
        within[np.arange(len(within)), Labels(self.classes).codes(predicted)] = True
        return within


@dataclass(frozen=True)
class Conformal(Unseen):
    """Estimators, and samples that each of them was not fitted to.

    With one estimator it is split conformal prediction, with those of all folds CV+.

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
        """Return fitted models with the scores of samples that each was not fitted to.

        Parameters
        ----------
        models : sequence of estimators
            Fitted.
        unseen : sequence of (samples, targets)
            For every model the samples that it was not fitted to.
        classes : ndarray or None
            The classes of all samples, if the targets are some.
        """
        scores = []
        for model, (X, y) in zip(models, unseen, strict=True):
            if classes is None:
                n_targets = y.size // len(y)
                scores.append(_distances(_band(model, X, n_targets), y))
            else:
                scores.append(_scores_of_classes(model, X, y, classes))
        model_of_sample = np.repeat(np.arange(len(scores)), [len(part) for part in scores])
        is_flat = all(y.ndim == 1 for _, y in unseen)
        return cls(np.concatenate(scores), classes, is_flat, list(models), model_of_sample)

    def bands(self, X: MatrixLike) -> Iterator[tuple[Array, Array]]:
        # Predictions of all models, of shape (models, m, 2 or 1, targets or classes).
        if self.classes is None:
            n_targets = self.scores.shape[1]
            predictions = np.array([_band(model, X, n_targets) for model in self.models])
        else:
            values = [_class_values(model, X, self.classes) for model in self.models]
            predictions = np.array(values)[:, :, np.newaxis]
        _, n_new, _, n_columns = predictions.shape
        for rows in row_strips(n_new, BLOCK // (len(self.at) * n_columns)):
            strip = predictions[:, rows].swapaxes(0, 1)
            if len(self.models) > 1:
                # For each training sample, the predictions of the model fitted without it.
                strip = strip[:, self.at]
            yield strip[:, :, 0], strip[:, :, -1]


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
    """Return the numbers between which a model predicts each target, of shape (m, 2, targets).

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
    """Return how far targets are outside of a band, of shape (n, targets); negative inside."""
    columns = y.reshape(len(band), -1)
    return np.maximum(band[:, 0] - columns, columns - band[:, 1])


def _class_values(model: Estimator, X: MatrixLike, classes: AnyArray) -> Array:
    """Return decision values with one column per class of all samples.

    They are probabilities where the model has no decision values.
    """
    if hasattr(model, "decision_function"):
        values = model.decision_function(X)
    else:
        values = model.predict_proba(X)
    values = per_class(np.asarray(values, dtype=np.float64))
    # The value of a class without training samples is finite, and so are its differences from the
    # values of other classes.
    return Labels(classes).spread(values, model.classes_, -NEVER / 8)


def _scores_of_classes(model: Estimator, X: MatrixLike, y: AnyArray, classes: AnyArray) -> Array:
    """Return the misfit of every sample's own class, of shape (n, 1).

    It is infinite if the sample's class is none of `classes`.
    """
    is_known = np.isin(y, classes)
    values = _class_values(model, X, classes)[is_known]
    scores = np.full((len(y), 1), np.inf)
    scores[is_known, 0] = own_misfits(values, Labels(classes).codes(y[is_known]))
    return scores
