"""Conformal prediction: intervals, or sets of classes, that hold a given share of new targets.

Nothing is assumed of the targets' distribution but that samples are exchangeable: any order of them is as likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Estimator, MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.engine.calibration import NEVER
from kernelmosaic.engine.labels import Labels, per_class

Array = NDArray[np.float64]

#: Entries of an array with one column per sample that are worked on at once.
BLOCK = 2**22


def ranked(scores: Array, shift: Array, coverage: float) -> Array:
    """Return the ⌈coverage (n + 1)⌉-th smallest of n scores plus a shift of each; infinity if that is beyond n.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Of samples that a model has not seen.
    shift : ndarray of shape (m, n) or (m, 1)
        For each of m new samples; one column stands for the same shift of all.
    coverage : float
        Between 0 and 1.

    Returns
    -------
    ndarray of shape (m,)
    """
    if not isinstance(coverage, float | np.floating) or not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage!r}: give a number between 0 and 1.")
    n = len(scores)
    k = max(int(np.ceil(coverage * (n + 1) - 1e-9)), 1)  # 0.55 · 100 is 55, not a little more
    if k > n:
        return np.full(len(shift), np.inf)
    if shift.shape[1] == 1:
        return np.asarray(np.partition(scores, k - 1)[k - 1] + shift[:, 0])
    return np.asarray(np.partition(scores + shift, k - 1, axis=1)[:, k - 1])


def interval(low: Array, high: Array, scores: Array, coverage: float) -> Array:
    """Return intervals around what models predict that have not seen some sample each.

    The jackknife+ and CV+ of Barber et al. (2021), with one model the split conformal interval. An interval whose ends
    would cross is its middle.

    Parameters
    ----------
    low, high : ndarray of shape (m, n) or (m, 1)
        Between which numbers the model that has not seen sample j predicts the target of new sample i; both are the
        same where a model predicts a number.
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
    """Return by how much the largest value of another class exceeds that of each class, along the last axis."""
    largest = np.partition(values, -2, axis=-1)[..., -2:]
    return np.asarray(np.where(values == largest[..., 1:], largest[..., :1], largest[..., 1:]) - values)


@dataclass(frozen=True)
class Conformal:
    """Models, each with the scores of samples that it has not seen.

    One model is split conformal prediction; those of all folds are CV+.

    Attributes
    ----------
    models : list of estimator
        Fitted.
    at : ndarray of shape (n,)
        The number of the model that has not seen each sample.
    scores : ndarray of shape (n, targets)
        How far its target is outside of what that model predicts; of classes, the misfit of its own class.
    classes : ndarray or None
        The classes, if the targets are some.
    is_flat : bool
        Whether targets are numbers, not rows of several.
    """

    models: list[Estimator]
    at: NDArray[np.intp]
    scores: Array
    classes: AnyArray | None = None
    is_flat: bool = True

    @classmethod
    def of(
        cls, models: Sequence[Estimator], unseen: Sequence[tuple[MatrixLike, AnyArray]], classes: AnyArray | None = None
    ) -> Conformal:
        """Return models with the scores of samples and targets that each has not seen."""
        each = list(zip(models, unseen, strict=True))
        if classes is None:
            scores = [_distances(_band(model, X, targets(y)), y) for model, (X, y) in each]
        else:
            scores = [_own_misfits(model, X, y, classes)[:, np.newaxis] for model, (X, y) in each]
        at = np.repeat(np.arange(len(each)), [len(one) for one in scores])
        return cls(list(models), at, np.concatenate(scores), classes, all(y.ndim == 1 for _, y in unseen))

    def interval(self, X: MatrixLike, coverage: float) -> Array:
        """Return the intervals of new samples, of shape (m, 2), or (m, 2, targets)."""
        n_targets = self.scores.shape[1]
        bands = np.array([_band(model, X, n_targets) for model in self.models])
        found = np.empty(bands.shape[1:])
        for rows in row_strips(len(found), BLOCK // len(self.at)):
            for c in range(n_targets):
                low, high = (self._by_sample(bands[:, rows, side, c]) for side in (0, 1))
                found[rows, :, c] = interval(low, high, self.scores[:, c], coverage)
        return found[:, :, 0] if self.is_flat else found

    def classes_within(self, X: MatrixLike, coverage: float, predicted: AnyArray) -> NDArray[np.bool_]:
        """Return which classes are in the sets of new samples, of shape (m, classes); those predicted always are."""
        assert self.classes is not None
        values = np.array([misfits(_class_values(model, X, self.classes)) for model in self.models])
        found = np.zeros(values.shape[1:], dtype=bool)
        for rows in row_strips(len(found), BLOCK // len(self.at)):
            for c in range(len(self.classes)):
                found[rows, c] = ranked(self.scores[:, 0], -self._by_sample(values[:, rows, c]), coverage) >= 0
        found[np.arange(len(found)), Labels(self.classes).codes(predicted)] = True
        return found

    def _by_sample(self, values: Array) -> Array:
        """Return values of shape (models, m) as (m, n): of the model that has not seen each sample."""
        return values.T if len(self.models) == 1 else values.T[:, self.at]


def targets(y: AnyArray) -> int:
    """Return how many targets a sample has."""
    return 1 if y.ndim == 1 else y.shape[1]


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
            f"y has {n_targets} columns, and {type(model).__name__} predicts {columns.shape[1]} numbers of a sample: "
            "intervals are those of targets that are predicted; give these."
        )
    return np.repeat(columns[:, np.newaxis], 2, axis=1)


def _distances(band: Array, y: AnyArray) -> Array:
    """Return how far targets are outside of a band, of shape (n, targets)."""
    columns = y.reshape(len(band), -1)
    return np.maximum(band[:, 0] - columns, columns - band[:, 1])


def _class_values(model: Estimator, X: MatrixLike, classes: AnyArray) -> Array:
    """Return decision values, or probabilities where there are none, with one column per class of the whole set."""
    says: Any = model.decision_function if hasattr(model, "decision_function") else model.predict_proba
    values = per_class(np.asarray(says(X), dtype=np.float64))
    # A class that the model has no sample of has a value whose differences from others are finite.
    return Labels(classes).spread(values, model.classes_, -NEVER / 8)


def _own_misfits(model: Estimator, X: MatrixLike, y: AnyArray, classes: AnyArray) -> Array:
    """Return the misfit of every sample's own class; infinite if it is none of the classes."""
    known, found = np.isin(y, classes), np.full(len(y), np.inf)
    every = misfits(_class_values(model, X, classes))[known]
    found[known] = every[np.arange(len(every)), Labels(classes).codes(y[known])]
    return found
