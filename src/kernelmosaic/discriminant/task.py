"""The task of discriminant analysis: from classes or labels to its machine, and from decision
values back to classes or labels."""

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
        The regulariser λ of the total scatter or, with `is_kim`, of the within-class scatter.
    is_kim : bool
        Whether the problem is that of Kim et al.
    has_labels : bool
        Whether targets are indicators of labels; set by `prepared`.
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
            # Kim et al. divide the sums of the within-class scatter by the number of samples.
            n_scatter = len(y) if self.is_kim else 1
            ridge = check_positive("alpha", self.alpha) * n_scatter
        if self.has_labels:
            return [LabelDiscriminant(y, ridge)]
        return [Discriminant(self.labels(y), ridge)]

    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        if self.has_labels:
            return (outputs > 0).astype(int)
        return super().decide(outputs, intercept)

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        # Every sample has a coefficient, so that all of each class are counted.
        if self.has_labels:
            return np.asarray(np.asarray(y).sum(axis=0))
        return super().count_support(y, np.arange(len(y)))
