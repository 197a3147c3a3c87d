"""Tasks: from targets to machines, from outputs to predictions, and the path that a search
follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from kernelmosaic._checks import check_C, check_choice, check_count, check_positive, warn_caller
from kernelmosaic._typing import AnyArray, Array, Indices, SampleWeight, TargetLike
from kernelmosaic.engine.calibration import Calibration
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.scoring import HeldOutPredictor, Score
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.machines.base import (
    SVC,
    SVR,
    CrammerSinger,
    Huber,
    Machine,
    MulticlassMachine,
    OneClass,
    PairwiseSlack,
    Quantile,
    SharedMachines,
)

# What a search reads of a task --------------------------------------------------------------------


def accuracy(y: TargetLike, predicted: AnyArray, sample_weight: SampleWeight) -> float:
    """Return the share of samples whose class, or all labels, are right.

    Targets were checked before the folds were made, and there are many small folds.
    """
    right = predicted == y
    return float(np.average(right.all(axis=1) if np.ndim(y) == 2 else right, weights=sample_weight))


def r_squared(y: TargetLike, predicted: AnyArray, sample_weight: SampleWeight) -> float:
    """Return R²."""
    from sklearn.metrics import r2_score

    return float(r2_score(y, predicted, sample_weight=sample_weight))


def pinball_gain(
    y: TargetLike, predicted: AnyArray, sample_weight: SampleWeight, quantile: Any
) -> float:
    """Return minus the mean pinball loss, of several quantiles the mean over them."""
    from sklearn.metrics import mean_pinball_loss

    if np.ndim(quantile) == 0:
        return -float(mean_pinball_loss(y, predicted, sample_weight=sample_weight, alpha=quantile))
    return float(
        np.mean(
            [
                pinball_gain(y, f, sample_weight, q)
                for q, f in zip(quantile, predicted.T, strict=True)
            ]
        )
    )


def mean_deviation(given: FitInput) -> float:
    """Return the standard deviation of the targets, its mean over several; one if they are
    constant."""
    return float(np.mean([_deviation(y, given.weight) for y in np.atleast_2d(given.y.T)])) or 1.0


def _deviation(y: Array, weight: Array | None) -> float:
    """Return the standard deviation; the same to the last digit for a sample of weight two and one
    given twice."""
    values, at = np.unique(y, return_inverse=True)
    counts = np.bincount(at, weights=weight)
    return float(
        np.sqrt(np.average((values - np.average(values, weights=counts)) ** 2, weights=counts))
    )


@dataclass(frozen=True)
class PathRule:
    """The path that a search follows.

    Attributes
    ----------
    parameter : str
        The parameter that is searched.
    range : tuple of float
        Between which values, where the number of values is given.
    descending : bool
        Whether large values come first: paths begin with the smoothest model.
    unit : callable or None
        Called with a `FitInput`; returns the unit of the parameter.
    strata : callable or None
        Called with y; returns what folds are stratified by. None means classes, where there are
        any.
    score : callable or None
        The default score of a fold, called with y, predictions and weights.
    """

    parameter: str = "C"
    range: tuple[float, float] = (1e-2, 1e3)
    descending: bool = False
    unit: Callable[[FitInput], float] | None = None
    strata: Callable[[Any], Any] | None = None
    score: Score | None = None

    def values(self, Cs: Any, given: FitInput) -> Array:
        """Return the values to try, in ascending order; `Cs` has them, or is their number."""
        if isinstance(Cs, int | np.integer) and not isinstance(Cs, bool):
            low, high = np.log10(self.range)
            unit = 1.0 if self.unit is None else self.unit(given)
            return np.logspace(low, high, check_count("Cs", Cs)) * unit
        try:
            values = np.asarray(Cs, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or len(values) == 0 or not np.all(np.isfinite(values) & (values > 0)):
            raise ValueError(
                f"Cs={Cs!r}: give how many values to try, or a list of positive, finite numbers."
            )
        return np.unique(values)


# Tasks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """From targets to machines, and from outputs to predictions, by an estimator's parameters.

    Attributes
    ----------
    name : str
        The estimator, for messages.
    classes : ndarray or None
        The classes of the training samples, known once the task is prepared.
    """

    name: str
    classes: Any = None

    #: Up to how many samples the host is faster than a GPU, which waits for it between small steps.
    host_samples: ClassVar[int] = 2000
    #: Whether repeated samples are merged into one.
    merges_repeats: ClassVar[bool] = True
    #: Whether targets may be indicators of labels, of which a sample may have several.
    takes_labels: ClassVar[bool] = False

    def prepared(self, given: FitInput) -> Self:
        """Return the task with what it reads of a training set."""
        return self

    @abstractmethod
    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        """Return one machine per output, for the targets and weights of distinct samples."""

    @abstractmethod
    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        """Return the predictions of outputs of shape (n, outputs)."""

    def check(self, data: TrainingSet, normalize: str | None) -> None:  # noqa: B027
        """Warn if the kernels of a training set do not suit the task."""

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        """Return the number of support vectors, of every class where there are classes."""
        return np.array([len(support)])

    def calibrate(self, outputs: Array, rows: Indices, samples: FitInput, method: str) -> Any:
        """Return what turns outputs into predictions of another kind; None of most tasks.

        Of classes that are probabilities, of censored times survival functions.

        Parameters
        ----------
        outputs : ndarray of shape (n_held,) or (n_held, outputs)
            The outputs of samples while they were held out.
        rows : ndarray of shape (n_held,)
            Which of the samples these are.
        samples : FitInput
            All samples of a search.
        method : str
            One of `CALIBRATIONS`; read for classes only.
        """
        return None

    def predictor(
        self, held_out: HeldOutPredictor, calibration: Callable[[], Any]
    ) -> HeldOutPredictor:
        """Return the estimator that scorers receive, with all kinds of predictions of the task.

        Parameters
        ----------
        held_out : HeldOutPredictor
            Outputs and predictions of held-out samples.
        calibration : callable
            Returns what `calibrate` has made of other samples. It is called by those scorers only
            that ask for such predictions.
        """
        return held_out


def find_classes(y: AnyArray, weight: Array | None, name: str) -> AnyArray:
    """Return the classes of the samples that count, in order, or raise if y holds no classes or a
    single one."""
    check_classification_targets(y)
    classes: AnyArray = np.unique(y if weight is None else y[weight > 0])
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes.tolist()}: {name} needs at least two classes."
        )
    return classes


def class_factors(class_weight: Any, y: TargetLike, weight: Array, classes: AnyArray) -> Array:
    """Return the factor of every sample's weight that `class_weight` gives its class."""
    if class_weight is None:
        return np.ones(len(y))
    labels = Labels(classes).codes(y)
    if isinstance(class_weight, str) and class_weight == "balanced":
        # By the weights, not by rows: a repeated sample is one row here.
        totals = np.bincount(labels, weights=weight)
        return np.asarray((weight.sum() / (len(totals) * totals))[labels])
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight={class_weight!r}: give None, 'balanced' or a dict from class to factor."
        )
    factors = compute_class_weight(class_weight, classes=classes, y=y)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise ValueError(
            f"class_weight={class_weight!r}: every class needs a positive, finite factor."
        )
    return np.asarray(factors[labels])


@dataclass(frozen=True, eq=False)
class ClassTask(Task):
    """One class per sample: the one with the largest output."""

    class_weight: Any = None

    def prepared(self, given: FitInput) -> Self:
        return replace(self, classes=find_classes(given.y, given.weight, self.name))

    def labels(self, y: TargetLike) -> Indices:
        """Return the places of classes among all."""
        return Labels(self.classes).codes(y)

    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        return Labels(self.classes).decide(outputs)

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        return np.array([np.count_nonzero(y[support] == c) for c in self.classes])

    def calibrate(
        self, outputs: Array, rows: Indices, samples: FitInput, method: str
    ) -> Calibration:
        """Return the probabilities of classes, or labels, as a function of decision values.

        Samples count as they do in a fit, so that a decision value of zero has the probability ½
        whatever the weights of the classes. Samples whose class is none of `classes` do not count.
        """
        weight = np.ones(len(samples.y)) if samples.weight is None else samples.weight
        if samples.y.ndim == 2:
            return Calibration.fit(outputs, samples.y[rows], 2, weight[rows], method)
        # A class whose samples all have weight zero is not among the classes.
        counts = np.isin(samples.y, self.classes)
        weight = weight.copy()
        weight[counts] *= class_factors(
            self.class_weight, samples.y[counts], weight[counts], self.classes
        )
        outputs = outputs[counts[rows]]
        rows = rows[counts[rows]]
        codes = Labels(self.classes).codes(samples.y[rows])
        return Calibration.fit(outputs, codes, len(self.classes), weight[rows], method)

    def predictor(
        self, held_out: HeldOutPredictor, calibration: Callable[[], Any]
    ) -> HeldOutPredictor:
        return replace(held_out, probabilities=lambda outputs: calibration().probabilities(outputs))


#: Machines that separate all classes in one problem, by the name `multi_class` gives them.
JOINT: dict[str, type[MulticlassMachine]] = {"joint": CrammerSinger, "pairwise": PairwiseSlack}


@dataclass(frozen=True, eq=False)
class Classes(ClassTask):
    """Support vector classification: one versus rest, or all classes in one problem."""

    C: float | str = 1.0
    slack: int = 1
    multi_class: str = "ovr"
    learned: bool = True

    @property
    def is_joint(self) -> bool:
        """Whether all classes share one problem; two classes are the binary machine whatever
        `multi_class` says."""
        return self.multi_class in JOINT and self.classes is not None and len(self.classes) > 2

    @property
    def host_samples(self) -> int:  # type: ignore[override]
        return 5000 if self.is_joint else 2000

    @property
    def is_hard(self) -> bool:
        """Whether no slack is allowed."""
        return isinstance(self.C, float | np.floating) and bool(np.isposinf(self.C))

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        check_choice("multi_class", self.multi_class, ("ovr", "ovr-shared", *JOINT))
        positive = self.classes[1:] if len(self.classes) == 2 else self.classes
        if self.is_hard:
            if self.multi_class != "ovr" and len(positive) > 1:
                raise ValueError(
                    f"C=inf needs multi_class='ovr', not multi_class={self.multi_class!r}; give a"
                    " finite C, or 'ovr'."
                )
            return [
                SVC(np.where(y == c, 1.0, -1.0), sample_weight=(weight > 0).astype(np.float64))
                for c in positive
            ]
        sample_C = weight
        if self.class_weight is not None:
            sample_C = weight * class_factors(self.class_weight, y, weight, self.classes)
        shared = self.multi_class == "ovr-shared" and len(positive) > 1
        if isinstance(self.C, str) and (
            self.C != "learn" or not self.learned or shared or self.is_joint
        ):
            raise ValueError(
                f"C={self.C!r}: give a positive number, or 'learn' with slack=2, weights=None and"
                " multi_class='ovr'."
            )
        if self.is_joint:
            if self.slack != 1:
                raise ValueError(
                    f"slack={self.slack!r}: multi_class={self.multi_class!r} has slacks of norm 1"
                    " only, as printed; give slack=1, or multi_class='ovr' or 'ovr-shared'."
                )
            C = check_C(self.C)
            return [
                JOINT[self.multi_class](
                    self.labels(y), C, len(self.classes), sample_C, constants=True
                )
            ]
        # A C to be learned is a factor of these.
        C = 1.0 if isinstance(self.C, str) else check_C(self.C, infinite=True)
        machines = [SVC(np.where(y == c, 1.0, -1.0), C, self.slack, sample_C) for c in positive]
        return [SharedMachines(machines)] if shared else machines


@dataclass(frozen=True, eq=False)
class Numbers(Task):
    """Numbers, one or several per sample, or quantiles of one.

    Attributes
    ----------
    is_flat : bool
        Whether predictions are a vector, known once the task is prepared.
    """

    loss: str = "epsilon"
    C: float = 1.0
    epsilon: float = 0.1
    slack: int = 1
    quantile: Any = 0.5
    is_flat: bool = True

    @property
    def is_ordered(self) -> bool:
        """Whether there are several quantiles, which have a column each."""
        return self.loss == "quantile" and np.ndim(self.quantile) > 0

    @property
    def score(self) -> Score:
        """The score of predictions."""
        return (
            partial(pinball_gain, quantile=self.quantile) if self.loss == "quantile" else r_squared
        )

    def prepared(self, given: FitInput) -> Self:
        return replace(self, is_flat=given.y.ndim == 1 and not self.is_ordered)

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        each = [one for target in np.atleast_2d(y.T) for one in self._machines_of(target, weight)]
        if self.is_ordered and y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"quantile={self.quantile!r}: several quantiles need a single target, but y has"
                f" {y.shape[1]} columns; give one quantile, or one column at a time."
            )
        return each if len(each) == 1 else [SharedMachines(each)]

    def _machines_of(self, y: TargetLike, weight: Array) -> list[Machine]:
        """Return the machine of one target, or those of its quantiles."""
        if self.loss == "epsilon":
            return [SVR(y, self.C, self.epsilon, self.slack, weight)]
        if self.loss == "huber":
            return [Huber(y, self.C, check_positive("epsilon", self.epsilon, zero=True), weight)]
        if self.loss == "squared":
            return [SVR(y, self.C, 0.0, 2, weight)]
        check_choice("loss", self.loss, ("epsilon", "huber", "squared", "quantile"))
        try:
            values = np.atleast_1d(np.asarray(self.quantile, dtype=np.float64))
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or len(values) == 0 or not np.all(np.diff([0.0, *values, 1.0]) > 0):
            raise ValueError(
                f"quantile={self.quantile!r}: give a number between 0 and 1, or a list of several"
                " in increasing order."
            )
        return [Quantile(y, self.C, q, weight) for q in values]

    def decide(self, outputs: Array, intercept: Array) -> Array:
        if self.is_flat:
            return outputs[:, 0]
        return np.sort(outputs, axis=1) if self.is_ordered else outputs


@dataclass(frozen=True, eq=False)
class Novelty(Task):
    """Whether a sample is like the training samples (+1) or not (−1)."""

    nu: float = 0.5
    slack: int = 1

    def machines(self, y: TargetLike, weight: Array) -> list[Machine]:
        # A price per share of the samples bounds how many are novel; of squared slacks it would
        # have all of them be.
        if self.slack == 1:
            # By a power of two, which rounds nothing: the largest weight is of the order of one.
            weight = np.ldexp(weight, -int(np.frexp(weight.max())[1]))
        counted = float(weight.sum()) if self.slack == 1 else 1.0
        return [OneClass(len(weight), 1.0 / (self.nu * counted), weight, self.slack)]

    def check(self, data: TrainingSet, normalize: str | None) -> None:
        varying = [] if normalize == "diagonal" else data.varying_diagonals()
        if varying:
            warn_caller(
                f"{self.name}: k(x, x) of {', '.join(varying)} differs between training samples, so"
                " a sample far from the origin may count as an inlier for its norm alone; use"
                " kernels with constant k(x, x), such as Gaussian(), or normalize='diagonal',"
                " which compares directions only."
            )

    def distances(self, outputs: Array, intercept: Array) -> Array:
        """Return the outputs, with zero for those that differ from it by rounding, relative to the
        offset."""
        values = outputs[:, 0]
        # The boundary runs through samples, which must fall on the same side however many are
        # predicted at once.
        return np.where(np.abs(values) <= 1e-9 * abs(float(intercept[0])), 0.0, values)

    def decide(self, outputs: Array, intercept: Array) -> NDArray[np.int64]:
        return np.where(self.distances(outputs, intercept) >= 0, 1, -1)


# Classes and their codes --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes in order.

    Outputs have one column per class, or for two classes a single one, which is positive for the
    second.
    """

    classes: AnyArray

    def codes(self, y: TargetLike) -> Indices:
        """Return the places of classes in the order."""
        return np.asarray(np.searchsorted(self.classes, np.asarray(y)))

    def decide(self, outputs: Array) -> AnyArray:
        """Return the class with the largest output; of a single output, the second class where it
        is positive."""
        one = outputs.shape[1] == 1
        return np.asarray(
            self.classes[(outputs[:, 0] > 0).astype(int) if one else outputs.argmax(axis=1)]
        )

    def spread(self, values: Array, classes: AnyArray, fill: float) -> Array:
        """Return columns of some of the classes among those of all, `fill` in the others."""
        full = np.full((len(values), len(self.classes)), fill)
        full[:, self.codes(classes)] = values
        return full


def per_class(outputs: Array) -> Array:
    """Return outputs with one column per class: a single one is that of the second class, its
    negative the first's."""
    columns: Array = outputs if outputs.ndim > 1 else outputs[:, np.newaxis]
    return columns if columns.shape[-1] > 1 else np.concatenate([-columns, columns], axis=-1)


def single(values: AnyArray) -> AnyArray:
    """Return values of shape (n, outputs) as (n,) where there is one output."""
    return values[:, 0] if values.shape[1] == 1 else values
