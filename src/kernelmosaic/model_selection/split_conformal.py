"""Intervals and sets of classes for any estimator, by samples that are set aside."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import check_array

from kernelmosaic._checks import check_share
from kernelmosaic._typing import AnyArray, ArrayOrTensor, Estimator, MatrixLike, SampleWeight, Seed, TargetLike
from kernelmosaic.engine.conformal import Conformal
from kernelmosaic.estimators._base import parameters
from kernelmosaic.estimators.cv import in_memory
from kernelmosaic.model_selection.path_search import Wrapper
from kernelmosaic.stacking import check_row_names


@parameters
class SplitConformal(Wrapper, BaseEstimator):
    """Intervals around the predictions of any regressor, or sets of classes by any classifier, with their coverage.

    Split conformal prediction: the estimator is fitted to some of the samples, and the others, which it has not seen,
    say how far targets are from its predictions. Whatever the estimator and the distribution, intervals and sets of
    samples that are exchangeable with those set aside hold the target with a probability of at least `coverage`, on
    average over all samples. Estimators that were cross-validated, such as :class:`~kernelmosaic.MKLRegressorCV` and
    :class:`~kernelmosaic.MKLRidgeCV`, have these methods themselves, and set no samples aside.

    Parameters
    ----------
    estimator : estimator
        A regressor or a classifier, of this package or any other. One that predicts several quantiles,
        ``MKLRegressor(loss="quantile", quantile=[0.05, 0.95])``, has its first and last one moved apart or together
        until they cover (conformalised quantile regression), so that intervals are wide where the targets vary. One
        that is fitted already, ``FrozenEstimator(model)`` of scikit-learn, is left as it is: all samples given to
        `fit` are then taken for new ones.
    calibration_size : float, default=0.25
        The share of the samples that is set aside, drawn at random.
    random_state : int, RandomState or None, default=None
        Draws them.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the other samples.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Papadopoulos, Proedrou, Vovk and Gammerman (2002), "Inductive confidence machines for regression".
    Romano, Patterson and Candès (2019), "Conformalized quantile regression".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelmosaic import MKLRegressor
    >>> from kernelmosaic.model_selection import SplitConformal
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SplitConformal(MKLRegressor(C=100), random_state=0).fit(X[:300], y[:300])
    >>> low, high = model.predict_interval(X[300:], coverage=0.8).T
    >>> bool(0.7 < ((low <= y[300:]) & (y[300:] <= high)).mean() < 0.9)
    True
    """

    estimator: Estimator
    _: KW_ONLY
    calibration_size: float = 0.25
    random_state: Seed = None

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit the estimator to some of the samples, and keep the residuals of the others.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or of shape (n_samples, n_targets) for a regression
            Classes, or targets.
        sample_weight : array-like of shape (n_samples,), optional
            Passed to the estimator's `fit`. Those set aside count alike, but for samples of weight zero, which do not.

        Returns
        -------
        self
        """
        check_row_names(X, y=y, sample_weight=sample_weight)
        X, y, weight = indexable(in_memory(X), y, sample_weight)
        y, rows = self._read(y), np.arange(len(y))
        train, held = rows, rows
        if not isinstance(self.estimator, FrozenEstimator):
            train, held = self._divide(rows)
        params = {} if weight is None else {"sample_weight": _safe_indexing(weight, train)}
        self.estimator_ = clone(self.estimator).fit(_safe_indexing(X, train), y[train], **params)
        held = held if weight is None else held[np.asarray(weight)[held] > 0]
        classes = self.estimator_.classes_ if is_classifier(self.estimator) else None
        self._conformal = Conformal.of([self.estimator_], [(_safe_indexing(X, held), y[held])], classes)
        return self

    def _read(self, y: TargetLike) -> ArrayOrTensor:
        """Return the targets as an array, or raise saying what is wrong."""
        if not is_classifier(self.estimator) and not is_regressor(self.estimator):
            raise TypeError(f"estimator={type(self.estimator).__name__}: give a regressor or a classifier.")
        if y is None:
            raise ValueError("This SplitConformal estimator requires y to be passed, but the target y is None.")
        if is_regressor(self.estimator):
            return np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        labels: AnyArray = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] > 1:
            raise ValueError("y: the samples have several labels; sets are those of one class per sample.")
        return labels.ravel()

    def _divide(self, rows: NDArray[np.intp]) -> Any:
        """Return the samples to fit to, and those set aside."""
        from sklearn.model_selection import train_test_split

        size = check_share("calibration_size", self.calibration_size)
        return train_test_split(rows, test_size=size, random_state=self.random_state)

    def _unseen(self) -> Conformal:
        return self._conformal
