"""Probabilities of one classifier, calibrated by folds of its training samples."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils import check_random_state

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import AnyArray, Estimator, Indices
from kernelmosaic.engine.calibration import CALIBRATIONS, Calibration
from kernelmosaic.engine.fit import Fit
from kernelmosaic.engine.paths import HeldOut, follow_paths
from kernelmosaic.engine.samples import FitInput, count_samples, is_streamed
from kernelmosaic.engine.tasks import Labels
from kernelmosaic.gram.row_blocks import ArrayRows

#: The number of folds; fewer where the rarest class has fewer samples.
N_FOLDS = 5


@dataclass(frozen=True)
class CalibrationFolds:
    """The folds by which a classifier with a `calibration` learns probabilities.

    There are five, or fewer if a class is rare. Repeated samples are one sample with the sum of
    their weights, so that no sample is held out while a copy of it is not. The folds are drawn from
    the samples in an order of their own: they depend neither on how the samples are ordered nor on
    whether a sample is given twice or with twice the weight.

    Attributes
    ----------
    samples : FitInput
        The distinct samples.
    rows : ndarray
        Their rows among the samples of the classifier.
    folds : list of (ndarray, ndarray)
        Rows of the distinct samples to train on, and of those held out.
    """

    samples: FitInput
    rows: Indices
    folds: list[tuple[Indices, Indices]]

    @classmethod
    def of(cls, model: Estimator, samples: FitInput, classes: AnyArray) -> CalibrationFolds:
        """Return the folds of a classifier's samples, or raise if there are none."""
        # Imported here because it loads much of scikit-learn, which other fits do not need.
        from sklearn.model_selection import StratifiedKFold

        method = check_choice("calibration", model.calibration, CALIBRATIONS)
        X = samples.X
        if isinstance(X, ArrayRows):
            # Folds of a memory map are copies, which fit the memory as arrays do.
            X = np.asarray(X.X)
        if is_streamed(X):
            raise ValueError(
                f"calibration={method!r} needs cross-validation, which supports arrays, sparse"
                f" matrices and data frames, not X={type(X).__name__}: load the samples, or use"
                " calibration=None."
            )
        counted = count_samples(model.approximation, X, samples.y, samples.weight, reorders=True)
        distinct = replace(
            samples, X=X[counted.rows], y=samples.y[counted.rows], weight=counted.weight
        )
        codes = Labels(classes).codes(distinct.y)
        class_sizes = np.bincount(codes, minlength=len(classes))
        if class_sizes.min() < 2:
            rare = classes.tolist()[class_sizes.argmin()]
            raise ValueError(
                f"calibration={method!r} holds out samples of every class, and class {rare!r} has"
                " one distinct sample: give more of it, or use calibration=None."
            )
        n_folds = min(N_FOLDS, int(class_sizes.min()))
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=0)
        return cls(distinct, counted.rows, list(splitter.split(codes, codes)))


def cross_calibrate(
    model: Estimator, crossed: CalibrationFolds, fit: Fit, n_samples: int
) -> Calibration:
    """Return the probabilities of a classifier, calibrated by samples held out in folds.

    Parameters
    ----------
    model : estimator
        The classifier.
    crossed : CalibrationFolds
        The folds of its samples.
    fit : Fit
        Its fit to all samples, from which the fits of the folds start.
    n_samples : int
        The number of all samples, repeated ones included.
    """
    params = model.get_params(deep=False) | {"calibration": None, "verbose": False}
    if not isinstance(model.random_state, int | np.integer):
        # All folds draw the same landmarks.
        random_state = check_random_state(model.random_state)
        params["random_state"] = int(random_state.randint(np.iinfo(np.int32).max))
    model_of_folds = type(model)(**params)
    all_starts = [start.take(crossed.rows) for start in fit.starts(n_samples)]
    held_out: list[HeldOut] = []
    # Warnings are ignored because the fit to all samples has given the same ones.
    with warnings.catch_warnings(action="ignore"):
        for train, held in crossed.folds:
            inside = crossed.samples.take(train)
            starts = [start.take(train) for start in all_starts]
            recipes = [[model_of_folds.recipe(inside)]]
            X_held = crossed.samples.X[held]
            held_out += follow_paths(recipes, inside, X_held, starts=[starts])[0]
    classes = fit.task.classes
    outputs = np.concatenate([fold.aligned(classes) for fold in held_out])
    rows = np.concatenate([held for _, held in crossed.folds])
    calibration: Calibration = fit.task.calibrate(outputs, rows, crossed.samples, model.calibration)
    return calibration
