"""Fits along a path of parameters, fold by fold, and what they say of the samples held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic.estimators._calibration import NEVER
from kernelmosaic.estimators._scaling import Standardizer
from kernelmosaic.estimators._shared import OneTrainingSet
from kernelmosaic.estimators._training_set import Likely, TrainingSet, count_samples, named_columns
from kernelmosaic.kernels.views import lay_specs

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Samples:
    """A training set as validated, before anything is learned from it.

    Attributes
    ----------
    X, y : array, or sparse matrix; ndarray of shape (n,) or (n, targets), or None
        Samples and targets.
    weight : ndarray of shape (n,) or None
        How much each counts.
    original : array or data frame
        X as it was given, for the names of its columns.
    prepare : callable, optional
        Called with the rows to fit to and those held out; returns these samples prepared by what the former tell.
    """

    X: Any
    y: Any
    weight: Array | None
    original: Any
    prepare: Callable[[Rows, Rows], tuple[Any, Any]] | None = None

    @classmethod
    def read(cls, models: Sequence[Any], X: Any, y: Any) -> Samples:
        """Return samples as the models take them, which differ in nothing that samples are checked by."""
        for model in models:
            validated = model._validate(X, reset=True)
        return cls(validated, y, None, X)

    def take(self, rows: Rows) -> Samples:
        """Return some of the samples."""
        weight = None if self.weight is None else self.weight[rows]
        return Samples(self.X[rows], None if self.y is None else self.y[rows], weight, self.original)

    def divide(self, train: Rows, held: Rows) -> tuple[Samples, Any]:
        """Return the samples to fit to, and X of those held out."""
        inside = self.take(train)
        if self.prepare is None:
            return inside, self.X[held]
        X, outside = self.prepare(train, held)
        return replace(inside, X=X), outside

    def standardizer(self, model: Any) -> Standardizer:
        """Return what puts the columns of numbers that a model's kernels read on one scale."""
        table = self.original if len(getattr(self.original, "shape", ())) == 2 else named_columns(self.X)
        # Of distinct samples, in an order of their own: a sample of weight two and one given twice are the same.
        counted = count_samples(None, self.X, self.y, self.weight)
        return Standardizer.fit(lay_specs(model._read_kernels(), table), self.X[counted.rows], counted.weight)

    def scaled(self, standardizer: Standardizer | None) -> Samples:
        """Return the samples with their columns on one scale."""
        X = self.X if standardizer is None else standardizer(self.X)
        return Samples(X, self.y, self.weight, self.original)


@dataclass(frozen=True)
class HeldOut:
    """What one fitted model says of samples it has not seen.

    Attributes
    ----------
    outputs : ndarray of shape (n_held, outputs)
        Decision values, or predicted targets. There is no column if the training samples have one class, and a label
        that all of them have, or none of them, has ±`NEVER`.
    predicted : ndarray of shape (n_held,) or (n_held, targets)
        What it predicts.
    classes : ndarray or None
        The classes of the training samples, of a classifier.
    weights : ndarray of shape (P,) or (classes, P)
        The model's weights; NaN, of shape (), where one class, or constant labels, left nothing to learn.
    gap : float
        Its certified relative duality gap.
    n_solves : int
        How often a machine was solved for it.
    """

    outputs: Array
    predicted: NDArray[Any]
    classes: NDArray[Any] | None
    weights: Array
    gap: float
    n_solves: int


def follow_path(models: Sequence[Any], samples: Samples, train: Rows, held: Rows, scale: bool) -> list[HeldOut]:
    """Follow one path of models; see `follow_paths`."""
    return follow_paths([models], samples, train, held, scale)[0]


def follow_paths(
    paths: Sequence[Sequence[Any]],
    samples: Samples,
    train: Rows,
    held: Rows,
    scale: bool,
    like: Sequence[Sequence[HeldOut]] | None = None,
    whole: Likely | None = None,
) -> list[list[HeldOut]]:
    """Fit models one after the other to some samples, and return what each says of those held out.

    The models differ in what the kernels do not depend on, such as C: kernels are computed once, the outputs of all
    models from one evaluation of them, and each model of a path starts where the one before it ended.

    Parameters
    ----------
    paths : sequence of sequences of estimators
        To be fitted; those of one path differ in C.
    samples : Samples
        All of them.
    train, held : ndarray of int
        Row numbers of those to fit to, and of those held out.
    scale : bool
        Whether columns of numbers are standardised, by the samples fitted to.
    like : sequence of sequences of HeldOut, optional
        The same paths of another fold: weights differ less from fold to fold than from one C to the next. They are
        not read if that fold has other classes.
    whole : Likely, optional
        What a fit to all samples has found, from which the first model starts.
    """
    inside, outside = samples.divide(train, held)
    start = None
    if whole is not None:
        start = Likely(whole.weights, None if whole.coefficients is None else whole.coefficients[:, train])
    if is_classifier(paths[0][0]):
        follow = _follow_labels if inside.y.ndim == 2 else _follow_classes
        return follow(paths, inside, outside, scale, like, start)
    return _follow(paths, inside, outside, scale, like, start)


Paths = Sequence[Sequence[Any]]
Found = Sequence[Sequence[HeldOut]]


def _follow_classes(
    paths: Paths, inside: Samples, outside: Any, scale: bool, like: Found | None, start: Likely | None
) -> list[list[HeldOut]]:
    """Follow paths of classifiers; samples of one class teach them to predict it."""
    classes = np.unique(inside.y if inside.weight is None else inside.y[inside.weight > 0])
    if len(classes) == 1:
        return _learn_nothing(paths, np.repeat(classes, outside.shape[0]), classes)
    if like is not None:
        theirs = like[0][0].classes
        like = like if theirs is not None and np.array_equal(theirs, classes) else None
    return _follow(paths, inside, outside, scale, like, start)


def _follow_labels(
    paths: Paths, inside: Samples, outside: Any, scale: bool, like: Found | None, start: Likely | None
) -> list[list[HeldOut]]:
    """Follow paths of classifiers of several labels; a label that is the same for all samples stays what it is."""
    varies = np.any(inside.y != inside.y[0], axis=0)
    if like is not None and like[0][0].weights.ndim == 0:
        like = None
    if varies.all():
        return _follow(paths, inside, outside, scale, like, start)
    found: Found = _learn_nothing(paths, np.empty((outside.shape[0], 0)), None)
    if varies.any():
        found = _follow(paths, replace(inside, y=inside.y[:, varies]), outside, scale, like, start)

    def completed(one: HeldOut) -> HeldOut:
        outputs = np.tile(np.where(inside.y[0] > 0, NEVER, -NEVER), (len(one.outputs), 1))
        outputs[:, varies] = one.outputs
        return replace(one, outputs=outputs, predicted=(outputs > 0).astype(int), classes=np.arange(len(varies)))

    return [[completed(one) for one in path] for path in found]


def _learn_nothing(paths: Paths, predicted: NDArray[Any], classes: NDArray[Any] | None) -> list[list[HeldOut]]:
    """Return what models say that have nothing to tell apart."""
    one = HeldOut(np.empty((len(predicted), 0)), predicted, classes, np.array(np.nan), 0.0, 0)
    return [[one] * len(models) for models in paths]


def _follow(
    paths: Paths, inside: Samples, outside: Any, scale: bool, like: Found | None, start: Likely | None
) -> list[list[HeldOut]]:
    """Fit the models of all paths to the samples inside, and return what each says of those outside."""
    if scale:
        standardizer = inside.standardizer(paths[0][0])
        inside, outside = inside.scaled(standardizer), standardizer(outside)
    with OneTrainingSet() as shared, warnings.catch_warnings():
        # Gaps are kept, and the search speaks of them once.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for p, models in enumerate(paths):
            for i, model in enumerate(models):
                shared.likely = start if like is None else Likely(_guess(models[:i], like[p][: i + 1]))
                model._fit_validated(inside.X, inside.y, inside.weight, inside.original)
                if model._has_plain_outputs:
                    # It holds support samples, and the outputs of all models are computed at once.
                    del model._expansion
        every = [model for models in paths for model in models]
        outputs = iter(_outputs(every, shared.training_sets, inside.X.shape[0], outside))
    return [[_held_out(model, next(outputs)) for model in models] for models in paths]


def _held_out(model: Any, outputs: Array) -> HeldOut:
    predicted, classes = model._predictions(outputs), getattr(model, "classes_", None)
    return HeldOut(outputs, predicted, classes, model.weights_, model.duality_gap_, model.n_solves_)


def _guess(done: Sequence[Any], like: Sequence[HeldOut]) -> Array:
    """Return where the weights will be that the last fit left: they move about as those of the other fold did."""
    if not done or done[-1].weights_.shape != like[-1].weights.shape:
        return like[-1].weights
    moved: Array = np.maximum(done[-1].weights_ + like[-1].weights - like[-2].weights, 0.0)
    return moved if np.all(moved.sum(axis=-1) > 0) else like[-1].weights


def _outputs(models: Sequence[Any], sets: Sequence[TrainingSet], n: int, X: Any) -> list[Array]:
    """Return the outputs of every model, from one evaluation of the kernels where that will do."""
    if not all(model._has_plain_outputs for model in models):
        return [model._outputs_of(X) for model in models]
    (data,) = sets
    place = np.zeros(n, dtype=np.intp)
    place[data.kept] = np.arange(len(data.kept))
    beta, eta, ends = [], [], []
    for model in models:
        own = np.zeros((len(model.dual_coef_), len(data.kept)))
        own[:, place[model.support_]] = model.dual_coef_
        beta.append(own)
        eta.append(np.broadcast_to(np.atleast_2d(model.weights_), (len(own), model.weights_.shape[-1])))
        ends.append(len(own))
    stacked = np.concatenate(beta)
    support = np.flatnonzero(np.any(stacked != 0, axis=0))
    values = data.expansion(stacked, support, np.concatenate(eta)).values(X)
    parts = np.split(values, np.cumsum(ends)[:-1], axis=1)
    return [part + model.intercept_ for part, model in zip(parts, models, strict=True)]
