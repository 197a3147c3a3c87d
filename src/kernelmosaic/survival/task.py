"""From events and times to the machines of survival, and from outputs to predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import Array, TargetLike
from kernelmosaic.engine.tasks import Task
from kernelmosaic.machines.base import Machine
from kernelmosaic.survival.machine import Cox, Ranking, Survival


def require_event(weight: Array, where: str = "") -> None:
    """Raise a ValueError if no event counts."""
    if not np.any(weight):
        fewer = ", fewer folds (cv), or folds stratified by the event" if where else ""
        raise ValueError(
            f"y: no event was observed{where}, all times are censored; give samples with an"
            f" observed event{fewer}."
        )


@dataclass(frozen=True, eq=False)
class Times(Task):
    """Times that may be censored; y has the event and the time."""

    loss: str = "censored"
    C: float = 1.0
    epsilon: float = 0.0
    slack: int = 1

    def machines(self, y: TargetLike, weight: Array) -> list[Machine]:
        event, time = y.T
        # The training samples of a fit were checked before, those of a fold were not.
        require_event(event * weight, " in the training samples of a fold")
        if self.loss == "censored":
            return [Survival(np.log(time), event, self.C, self.epsilon, self.slack, weight)]
        if check_choice("loss", self.loss, ("censored", "cox", "rank")) == "cox":
            return [Cox(time, event, self.C, weight)]
        return [Ranking(time, event, self.C, weight)]

    def decide(self, outputs: Array, intercept: Array) -> Array:
        return outputs[:, 0]
