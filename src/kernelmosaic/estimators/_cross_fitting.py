"""Probabilities from decision values of samples that were held out, fold by fold."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from kernelmosaic.estimators._calibration import NEVER, Calibration, check_calibration
from kernelmosaic.estimators._path import HeldOut, Rows, Samples, follow_paths
from kernelmosaic.estimators._training_set import Likely, count_samples, is_streamed
from kernelmosaic.gram.row_blocks import ArrayRows

Array = NDArray[np.float64]

#: Folds of cross-fitting, fewer where a class has fewer samples.
FOLDS = 5


def aligned(held: HeldOut, classes: NDArray[Any]) -> Array:
    """Return outputs of shape (n,) for two classes, else with one column per class of the whole set.

    A class that the fold has no training sample of has −`NEVER`, as in scikit-learn's ``cross_val_predict``.
    """
    assert held.classes is not None
    outputs, n = held.outputs, len(held.outputs)
    if len(classes) == 2:
        if len(held.classes) == 1:
            return np.full(n, NEVER if held.classes[0] == classes[1] else -NEVER)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
    if len(held.classes) == len(classes):
        return outputs
    full = np.full((n, len(classes)), -NEVER)
    own = np.zeros((n, 1)) if len(held.classes) == 1 else outputs
    if len(held.classes) == 2 and outputs.shape[1] == 1:
        own = np.column_stack([-outputs[:, 0], outputs[:, 0]])
    full[:, np.searchsorted(classes, held.classes)] = own
    return full


def calibration_of(
    found: Sequence[HeldOut], held: Sequence[Rows], samples: Samples, model: Any, method: str
) -> Calibration:
    """Return what turns decision values into probabilities, by those of samples while they were held out.

    Samples count as they do in the fit: a decision value of zero is a probability of one half, whatever the weights of
    the classes. A sample of a class that its fold knows nothing of says nothing.
    """
    rows, classes = np.concatenate(held), model.classes_
    weight = np.ones(len(samples.y)) if samples.weight is None else samples.weight
    if samples.y.ndim == 2:
        return Calibration.fit(np.concatenate([one.outputs for one in found]), samples.y[rows], 2, weight[rows], method)
    # A class whose samples all have weight zero is none.
    counts = np.isin(samples.y, classes)
    weight = weight.copy()
    weight[counts] *= model._class_factors(samples.y[counts], weight[counts])
    values = np.concatenate([aligned(one, classes) for one in found])[counts[rows]]
    rows = rows[counts[rows]]
    labels = np.searchsorted(classes, samples.y[rows])
    return Calibration.fit(values, labels, len(classes), weight[rows], check_calibration(method))


class CrossFit:
    """The folds by which a classifier with a `calibration` learns probabilities.

    Repeated samples are one sample with the sum of their weights, so that none is held out while its like is not, and
    the folds are drawn from the samples in an order of their own: they depend neither on how the samples are ordered
    nor on whether a sample is given twice or with twice the weight.

    Parameters
    ----------
    model : BaseMKLClassifier
        The classifier, not yet fitted.
    samples : Samples
        Its training set.
    classes : ndarray
        The classes.
    """

    def __init__(self, model: Any, samples: Samples, classes: NDArray[Any]) -> None:
        # Loads a good part of scikit-learn, which fits without probabilities do without.
        from sklearn.model_selection import StratifiedKFold

        self.method = check_calibration(model.calibration)
        # Folds of a memory map are copies, which fit the memory as arrays do.
        X = np.asarray(samples.X.X) if isinstance(samples.X, ArrayRows) else samples.X
        if is_streamed(X):
            raise ValueError(
                f"calibration={self.method!r} fits to folds, which are taken of arrays, sparse matrices and data "
                f"frames, not of X={type(X).__name__}: load the samples, or use calibration=None."
            )
        weight = np.ones(len(samples.y)) if samples.weight is None else samples.weight
        counted = count_samples(model.approximation, X, samples.y, weight)
        self.rows, self.classes, self.model = counted.rows, classes, model
        self.samples = Samples(X[counted.rows], samples.y[counted.rows], counted.weight, samples.original)
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
        whole = Likely(self.model.weights_, beta)
        with warnings.catch_warnings():
            # The fit to all samples has said it.
            warnings.simplefilter("ignore")
            found = [
                follow_paths([[self._part()]], self.samples, train, held, scale=False, whole=whole)[0][0]
                for train, held in self.folds
            ]
        return calibration_of(found, [held for _, held in self.folds], self.samples, self.model, self.method)

    def _part(self) -> Any:
        """Return the classifier of a fold, not yet fitted."""
        params = self.model.get_params(deep=False) | {"calibration": None, "verbose": False}
        if not isinstance(self.model.random_state, int | np.integer):
            params["random_state"] = int(check_random_state(self.model.random_state).randint(np.iinfo(np.int32).max))
        part = type(self.model)(**params)
        part._fit_device, part._fit_input = self.model._fit_device, self.model._fit_input
        return part
