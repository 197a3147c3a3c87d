"""Tasks that make machines from classes or posteriors, and classes from outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from kernelmosaic._checks import check_C
from kernelmosaic._typing import AnyArray, Array, Indices, TargetLike
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import ClassTask
from kernelmosaic.machines.base import CrammerSinger
from kernelmosaic.multiclass.machine import posterior_machine

#: Outputs of classes that differ by less than this, relative to one plus their size, are equal up
#: to rounding. Chosen by hand.
EQUAL_OUTPUTS = 1e-9


@dataclass(frozen=True, eq=False)
class BilinearClasses(ClassTask):
    """All classes in one problem, with weights of their own and without constants."""

    kappa: float = 1.0
    host_samples: ClassVar[int] = 10_000

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        return [CrammerSinger(self.labels(y), self.kappa, len(self.classes), weight)]


@dataclass(frozen=True, eq=False)
class Posteriors(ClassTask):
    """Posteriors of the classes; y has a column of labels, then one column per class."""

    C: float = 1.0

    def prepared(self, given: FitInput) -> Self:
        return self

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        labels = y[:, 0].astype(np.intp)
        posteriors = y[:, 1:]
        return [posterior_machine(posteriors, check_C(self.C), weight, labels)]

    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        if outputs.shape[1] == 1:
            return super().decide(outputs, intercept)
        # Classes of equal posteriors have equal outputs up to rounding: the first of them is taken.
        largest = outputs.max(axis=1, keepdims=True)
        is_largest = outputs >= largest - EQUAL_OUTPUTS * (1.0 + np.abs(largest))
        return np.asarray(self.classes[is_largest.argmax(axis=1)])

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        return np.bincount(y[support, 0].astype(np.intp), minlength=len(self.classes))
