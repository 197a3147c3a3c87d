"""What scorers receive and return when the fits of a search are scored by held-out samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from kernelmosaic._typing import AnyArray, Array, MatrixLike, SampleWeight, TargetLike

#: A score of predictions, called with targets, predictions and the weights of the samples.
Score = Callable[[Any, Any, Any], float]


@dataclass(eq=False, repr=False)
class HeldOutPredictor(BaseEstimator):
    """An estimator that returns stored predictions of the held-out samples.

    Scorers receive it in place of a fitted estimator, together with the held-out samples. Its
    predictions are known already, so it does not read the samples that its methods are called with.

    Parameters
    ----------
    kind : str
        The type of the estimator, as in scikit-learn's tags.
    predicted : ndarray of shape (n,) or (n, targets)
        The predictions.
    outputs : ndarray of shape (n,) or (n, outputs)
        The decision values.
    classes_ : ndarray or None
        The classes of all samples of a classifier.
    default_score : callable or None
        The score of `score`, which is called with targets, predictions and weights.
    probabilities : callable or None
        Called with outputs, returns the probabilities of the classes.
    """

    kind: Any = None
    predicted: Any = None
    outputs: Any = None
    classes_: Any = None
    default_score: Any = None
    probabilities: Any = None

    def decision_function(self, X: MatrixLike) -> Array:
        return np.asarray(self.outputs)

    def predict(self, X: MatrixLike) -> AnyArray:
        return np.asarray(self.predicted)

    def predict_proba(self, X: MatrixLike) -> Array:
        return np.asarray(self.probabilities(self.outputs))

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        return float(self.default_score(y, self.predicted, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = self.kind
        return tags


def check_one_score(scoring: Any) -> None:
    """Raise unless `scoring` names or computes a single score."""
    if scoring is None or isinstance(scoring, str) or callable(scoring):
        return
    raise ValueError(
        f"scoring={scoring!r}: the choice is made by one score; give a single name or function."
    )


def read_score(score: Any, scorer: Any) -> float:
    """Return the number that a scorer has returned, or raise if it is no number."""
    # A zero-dimensional array, of any library, is a number.
    if hasattr(score, "item") and np.ndim(score) == 0:
        score = score.item()
    if not isinstance(score, Real):
        raise ValueError(
            f"scoring={scorer!r} returned {score!r}; give a function that returns one number."
        )
    return float(score)
