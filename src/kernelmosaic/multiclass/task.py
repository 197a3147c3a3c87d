"""From classes, or their posteriors, to machines, and from outputs to classes."""

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


@dataclass(frozen=True, eq=False)
class BilinearClasses(ClassTask):
    """All classes in one problem, with weights of their own and without constants."""

    kappa: float = 1.0
    host_samples: ClassVar[int] = 10_000

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        return [CrammerSinger(self.labels(y), self.kappa, len(self.classes), weight)]


@dataclass(frozen=True, eq=False)
class Posteriors(ClassTask):
    """Posteriors of the classes; y has a column of labels before them."""

    C: float = 1.0

    def prepared(self, given: FitInput) -> Self:
        return self

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        return [posterior_machine(y[:, 1:], check_C(self.C), weight, y[:, 0].astype(np.intp))]

    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        if outputs.shape[1] == 1:
            return super().decide(outputs, intercept)
        # Two posteriors that are equal have equal outputs: of outputs that differ by rounding only,
        # the first is taken.
        best = outputs.max(axis=1, keepdims=True)
        return np.asarray(
            self.classes[(outputs >= best - 1e-9 * (1.0 + np.abs(best))).argmax(axis=1)]
        )

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        return np.bincount(y[support, 0].astype(np.intp), minlength=len(self.classes))
