"""Tasks: machines for the targets of an estimator, and predictions from the machines' outputs.

A `PathRule` says which parameter of an estimator a search follows.
"""

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

#: Outputs of novelty detection are zero if they are at most this fraction of the offset.
ROUNDING_OF_BOUNDARY = 1e-9

# Scores of predictions ----------------------------------------------------------------------------


def accuracy(y: TargetLike, predicted: AnyArray, sample_weight: SampleWeight) -> float:
    """Return the fraction of samples whose class, or all of whose labels, are right.

    Targets are not checked, as in scikit-learn: they were before the folds were made, and there are
    many small folds.
    """
    is_right = predicted == y
    if np.ndim(y) == 2:
        is_right = is_right.all(axis=1)
    return float(np.average(is_right, weights=sample_weight))


def r_squared(y: TargetLike, predicted: AnyArray, sample_weight: SampleWeight) -> float:
    """Return R²."""
    from sklearn.metrics import r2_score

    return float(r2_score(y, predicted, sample_weight=sample_weight))


def pinball_gain(
    y: TargetLike, predicted: AnyArray, sample_weight: SampleWeight, quantile: Any
) -> float:
    """Return minus the mean pinball loss, averaged over samples and quantiles.

    `predicted` has one column per quantile where there are several.
    """
    from sklearn.metrics import mean_pinball_loss

    if np.ndim(quantile) == 0:
        return -float(mean_pinball_loss(y, predicted, sample_weight=sample_weight, alpha=quantile))
    gains = [
        pinball_gain(y, f, sample_weight, q) for q, f in zip(quantile, predicted.T, strict=True)
    ]
    return float(np.mean(gains))


# Paths of searches --------------------------------------------------------------------------------


def mean_deviation(given: FitInput) -> float:
    """Return the standard deviation of the targets, averaged over several targets.

    It is one if the targets are constant.
    """
    deviations = [_deviation(y, given.weight) for y in np.atleast_2d(given.y.T)]
    return float(np.mean(deviations)) or 1.0


def _deviation(y: Array, weight: Array | None) -> float:
    """Return the standard deviation of one target.

    It is computed from distinct values, so that a sample of weight two and a sample given twice
    have the same deviation to the last digit.
    """
    values, value_of_sample = np.unique(y, return_inverse=True)
    counts = np.bincount(value_of_sample, weights=weight)
    mean = np.average(values, weights=counts)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))


@dataclass(frozen=True)
class PathRule:
    """The parameter that a search follows, and how.

    Attributes
    ----------
    parameter : str
        The parameter that is searched.
    range : tuple of float
        The least and the largest value, in units, where only the number of values is given.
    descending : bool
        Whether large values have smooth models. Paths begin with the smoothest model.
    unit : callable or None
        Called with a `FitInput`, returns the unit of the parameter; None means one.
    strata : callable or None
        Called with y, returns the strata of the samples, which folds have in equal parts. None
        means the classes, if there are any.
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
        """Return the values to try, in ascending order, or raise.

        Parameters
        ----------
        Cs : int or array-like
            The values, or their number.
        given : FitInput
            All samples of the search, on which the unit may depend.
        """
        is_number_of_values = isinstance(Cs, int | np.integer) and not isinstance(Cs, bool)
        if is_number_of_values:
            low, high = np.log10(self.range)
            unit = 1.0 if self.unit is None else self.unit(given)
            return np.logspace(low, high, check_count("Cs", Cs)) * unit
        try:
            values = np.asarray(Cs, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        is_list = values.ndim == 1 and len(values) > 0
        if not is_list or not np.all(np.isfinite(values) & (values > 0)):
            raise ValueError(
                f"Cs={Cs!r}: give how many values to try, or a list of positive, finite numbers."
            )
        return np.unique(values)


# Tasks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """The machines of targets, and the predictions of outputs, by an estimator's parameters.

    Attributes
    ----------
    name : str
        The estimator, for messages.
    classes : ndarray or None
        The classes of the training samples; None before `prepared` has set them.
    """

    name: str
    classes: Any = None

    #: The number of samples up to which the host is faster than a GPU, which waits for the host
    #: between small steps.
    host_samples: ClassVar[int] = 2000
    #: Whether repeated samples are merged into one.
    merges_repeats: ClassVar[bool] = True
    #: Whether targets may be indicators of labels, of which a sample may have several.
    takes_labels: ClassVar[bool] = False

    def prepared(self, given: FitInput) -> Self:
        """Return the task with all that depends on the training set, such as the classes."""
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
            How; one of `CALIBRATIONS` for classes. Other tasks have one way, and do not read it.
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
    """Return the factors by which `class_weight` multiplies the samples' weights, or raise.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        As in :class:`~kernelmosaic.MKLClassifier`.
    y, weight : ndarray of shape (n,)
        The classes of the samples, and how much each counts.
    classes : ndarray
        All classes, in order.
    """
    if class_weight is None:
        return np.ones(len(y))
    labels = Labels(classes).codes(y)
    if isinstance(class_weight, str) and class_weight == "balanced":
        # Classes are balanced by weights, not by rows: a repeated sample is one row here.
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
        """Return classes as numbers."""
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
        """Whether all classes share one problem.

        Two classes are separated by the binary machine, whatever `multi_class` says.
        """
        return self.multi_class in JOINT and self.classes is not None and len(self.classes) > 2

    @property
    def host_samples(self) -> int:  # type: ignore[override]
        return 5000 if self.is_joint else 2000

    @property
    def is_hard(self) -> bool:
        """Whether no slack is allowed."""
        return isinstance(self.C, float | np.floating) and bool(np.isposinf(self.C))

    @property
    def _shares_weights(self) -> bool:
        """Whether classes are separated one versus rest, with the same weights for all."""
        return self.multi_class == "ovr-shared" and len(self.classes) > 2

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        check_choice("multi_class", self.multi_class, ("ovr", "ovr-shared", *JOINT))
        if self.is_hard:
            return self._hard_machines(y, weight)
        sample_C = weight
        if self.class_weight is not None:
            sample_C = weight * class_factors(self.class_weight, y, weight, self.classes)
        self._check_learned_C()
        if self.is_joint:
            return [self._joint_machine(y, sample_C)]
        # A learned C is a factor of the samples' weights.
        C = 1.0 if isinstance(self.C, str) else check_C(self.C, infinite=True)
        machines = [SVC(labels, C, self.slack, sample_C) for labels in self._signed_labels(y)]
        return [SharedMachines(machines)] if self._shares_weights else machines

    def _signed_labels(self, y: TargetLike) -> list[Array]:
        """Return +1 for the samples of each class, and −1 for the rest.

        Of two classes these are the labels of the second alone.
        """
        positive_classes = self.classes[1:] if len(self.classes) == 2 else self.classes
        return [np.where(y == c, 1.0, -1.0) for c in positive_classes]

    def _hard_machines(self, y: TargetLike, weight: Array) -> list[Any]:
        """Return the machines of C = ∞, one per class versus the rest, or raise."""
        if self.multi_class != "ovr" and len(self.classes) > 2:
            raise ValueError(
                f"C=inf needs multi_class='ovr', not multi_class={self.multi_class!r}; give a"
                " finite C, or 'ovr'."
            )
        counts = (weight > 0).astype(np.float64)
        return [SVC(labels, sample_weight=counts) for labels in self._signed_labels(y)]

    def _check_learned_C(self) -> None:
        """Raise if C is a word other than "learn", or cannot be learned."""
        if not isinstance(self.C, str):
            return
        can_be_learned = self.learned and not self._shares_weights and not self.is_joint
        if self.C != "learn" or not can_be_learned:
            raise ValueError(
                f"C={self.C!r}: give a positive number, or 'learn' with slack=2, weights=None and"
                " multi_class='ovr'."
            )

    def _joint_machine(self, y: TargetLike, sample_C: Array) -> MulticlassMachine:
        """Return the machine that separates all classes in one problem, or raise."""
        if self.slack != 1:
            raise ValueError(
                f"slack={self.slack!r}: multi_class={self.multi_class!r} has slacks of norm 1"
                " only, as printed; give slack=1, or multi_class='ovr' or 'ovr-shared'."
            )
        C = check_C(self.C)
        labels = self.labels(y)
        return JOINT[self.multi_class](labels, C, len(self.classes), sample_C, constants=True)


@dataclass(frozen=True, eq=False)
class Numbers(Task):
    """Numbers, one or several per sample, or quantiles of one.

    Attributes
    ----------
    is_flat : bool
        Whether predictions are a vector; set by `prepared`.
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
        machines: list[Machine] = []
        for target in np.atleast_2d(y.T):
            machines += self._machines_of(target, weight)
        if self.is_ordered and y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"quantile={self.quantile!r}: several quantiles need a single target, but y has"
                f" {y.shape[1]} columns; give one quantile, or one column at a time."
            )
        return machines if len(machines) == 1 else [SharedMachines(machines)]

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
        is_list = values.ndim == 1 and len(values) > 0
        if not is_list or not np.all(np.diff([0.0, *values, 1.0]) > 0):
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
        if self.slack != 1:
            # Of squared slacks, a C that falls with the number of samples makes all of them novel.
            return [OneClass(len(weight), 1.0 / self.nu, weight, self.slack)]
        # With C = 1 / (ν Σ weights), ν bounds the fraction of samples that are novel. The weights
        # are divided by a power of two, which rounds nothing, so that the largest is about one.
        weight = np.ldexp(weight, -int(np.frexp(weight.max())[1]))
        total = float(weight.sum())
        return [OneClass(len(weight), 1.0 / (self.nu * total), weight, self.slack)]

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
        """Return the outputs, with zeros for those that are zero but for rounding."""
        values = outputs[:, 0]
        # The boundary runs through training samples. These must be on the same side of it however
        # many samples are predicted together, which rounds their outputs differently.
        is_zero = np.abs(values) <= ROUNDING_OF_BOUNDARY * abs(float(intercept[0]))
        return np.where(is_zero, 0.0, values)

    def decide(self, outputs: Array, intercept: Array) -> NDArray[np.int64]:
        return np.where(self.distances(outputs, intercept) >= 0, 1, -1)


# Classes and their codes --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes in order, and their numbers in this order.

    Outputs have one column per class, or for two classes a single one, which is positive for the
    second class.
    """

    classes: AnyArray

    def codes(self, y: TargetLike) -> Indices:
        """Return classes as numbers."""
        return np.asarray(np.searchsorted(self.classes, np.asarray(y)))

    def decide(self, outputs: Array) -> AnyArray:
        """Return the class with the largest output.

        Of a single output, that is the second class where the output is positive.
        """
        if outputs.shape[1] == 1:
            is_second = outputs[:, 0] > 0
            return np.asarray(self.classes[is_second.astype(int)])
        return np.asarray(self.classes[outputs.argmax(axis=1)])

    def spread(self, values: Array, classes: AnyArray, fill: float) -> Array:
        """Return columns for all classes, given those of some.

        Parameters
        ----------
        values : ndarray of shape (n, len(classes))
            The columns of some classes.
        classes : ndarray
            These classes.
        fill : float
            The value in the columns of the other classes.
        """
        full = np.full((len(values), len(self.classes)), fill)
        full[:, self.codes(classes)] = values
        return full


def per_class(outputs: Array) -> Array:
    """Return outputs with one column per class.

    A single column is that of the second of two classes; the first class gets its negative.
    """
    columns: Array = outputs if outputs.ndim > 1 else outputs[:, np.newaxis]
    if columns.shape[-1] > 1:
        return columns
    return np.concatenate([-columns, columns], axis=-1)


def single(values: AnyArray) -> AnyArray:
    """Return values of shape (n, outputs), or of shape (n,) if there is one output."""
    return values[:, 0] if values.shape[1] == 1 else values
