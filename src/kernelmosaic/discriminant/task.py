"""From classes, or labels of which a sample may have several, to the machine of discriminant
analysis and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import AnyArray, Array, Indices, TargetLike
from kernelmosaic.discriminant.machine import Discriminant, LabelDiscriminant
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import ClassTask


@dataclass(frozen=True, eq=False)
class Indicators(ClassTask):
    """Discriminant analysis of classes, or of labels of which a sample may have several.

    Attributes
    ----------
    alpha : float or "learn"
        λ of the total scatter, or of Kim's within-class scatter.
    is_kim : bool
        Whether it is the latter.
    has_labels : bool
        Whether targets are indicators of labels, known once the task is prepared.
    """

    alpha: float | str = 5e-4
    is_kim: bool = False
    has_labels: bool = False
    host_samples: ClassVar[int] = 500
    merges_repeats: ClassVar[bool] = False
    takes_labels: ClassVar[bool] = True

    def prepared(self, given: FitInput) -> Self:
        if given.y.ndim == 2:
            return replace(self, has_labels=True, classes=np.arange(given.y.shape[1]))
        return replace(super().prepared(given), has_labels=False)

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        ridge: float | None = None
        if self.alpha != "learn":
            # Kim et al. regularise the within-class scatter, whose sums are divided by the number
            # of samples.
            ridge = check_positive("alpha", self.alpha) * (len(y) if self.is_kim else 1)
        return [
            LabelDiscriminant(y, ridge) if self.has_labels else Discriminant(self.labels(y), ridge)
        ]

    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        return (outputs > 0).astype(int) if self.has_labels else super().decide(outputs, intercept)

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        # Every sample has a coefficient.
        return (
            np.asarray(y).sum(axis=0)
            if self.has_labels
            else super().count_support(y, np.arange(len(y)))
        )
