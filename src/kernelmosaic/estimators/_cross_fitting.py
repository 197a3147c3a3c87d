"""Probabilities from decision values of samples that were held out, fold by fold."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from kernelmosaic._typing import AnyArray, Estimator
from kernelmosaic.estimators._calibration import Calibration, check_calibration
from kernelmosaic.estimators._input import FitInput
from kernelmosaic.estimators._path import calibration_of, follow_paths
from kernelmosaic.estimators._training_set import Likely, count_samples, is_streamed
from kernelmosaic.gram.row_blocks import ArrayRows

#: Folds of cross-fitting, fewer where a class has fewer samples.
FOLDS = 5


class CrossFit:
    """The folds by which a classifier with a `calibration` learns probabilities.

    Repeated samples are one sample with the sum of their weights, so that none is held out while its like is not, and
    the folds are drawn from the samples in an order of their own: they depend neither on how the samples are ordered
    nor on whether a sample is given twice or with twice the weight.

    Parameters
    ----------
    model : BaseMKLClassifier
        The classifier, not yet fitted.
    given : FitInput
        Its training set.
    classes : ndarray
        The classes.
    """

    def __init__(self, model: Estimator, given: FitInput, classes: AnyArray) -> None:
        # Loads a good part of scikit-learn, which fits without probabilities do without.
        from sklearn.model_selection import StratifiedKFold

        self.method = check_calibration(model.calibration)
        # Folds of a memory map are copies, which fit the memory as arrays do.
        X = np.asarray(given.X.X) if isinstance(given.X, ArrayRows) else given.X
        if is_streamed(X):
            raise ValueError(
                f"calibration={self.method!r} fits to folds, which are taken of arrays, sparse matrices and data "
                f"frames, not of X={type(X).__name__}: load the samples, or use calibration=None."
            )
        weight = np.ones(len(given.y)) if given.weight is None else given.weight
        counted = count_samples(model.approximation, X, given.y, weight)
        self.rows, self.classes, self.model = counted.rows, classes, model
        self.samples = replace(given, X=X[counted.rows], y=given.y[counted.rows], weight=counted.weight)
        labels = np.searchsorted(classes, self.samples.y)
        counts = np.bincount(labels, minlength=len(classes))
        if counts.min() < 2:
            rare = classes.tolist()[counts.argmin()]
            raise ValueError(
                f"calibration={self.method!r} holds out samples of every class, and class {rare!r} has one distinct "
                "sample: give more of it, or use calibration=None."
            )
        splitter = StratifiedKFold(min(FOLDS, int(counts.min())), shuffle=True, random_state=0)
        self.folds = list(splitter.split(labels, labels))

    def calibration(self) -> Calibration:
        """Return what the fits to all folds but one say of that one, once the classifier is fitted to all samples."""
        place = np.zeros(int(self.rows.max()) + 1, dtype=np.intp)
        place[self.rows] = np.arange(len(self.rows))
        beta = np.zeros((len(self.model.dual_coef_), len(self.rows)))
        beta[:, place[self.model.support_]] = self.model.dual_coef_
        found = []
        with warnings.catch_warnings():
            # The fit to all samples has said it.
            warnings.simplefilter("ignore")
            for train, held in self.folds:
                start, outside = Likely(self.model.weights_, beta[:, train]), self.samples.X[held]
                found += follow_paths([[self._part()]], self.samples.take(train), outside, start=start)[0]
        held_out = [held for _, held in self.folds]
        return calibration_of(found, held_out, self.samples, self.model, self.classes, self.method)

    def _part(self) -> Any:
        """Return the classifier of a fold, not yet fitted."""
        params = self.model.get_params(deep=False) | {"calibration": None, "verbose": False}
        if not isinstance(self.model.random_state, int | np.integer):
            params["random_state"] = int(check_random_state(self.model.random_state).randint(np.iinfo(np.int32).max))
        return type(self.model)(**params)
