"""From events and times to the machines of survival, and from outputs to predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import Array, Indices, MatrixLike, TargetLike
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.scoring import HeldOutPredictor
from kernelmosaic.engine.tasks import Task
from kernelmosaic.machines.base import Machine
from kernelmosaic.survival.curves import Curves, LocationScale, ProportionalHazards
from kernelmosaic.survival.machine import Cox, Ranking, Survival


def require_event(event_weight: Array, where: str = "") -> None:
    """Raise a ValueError if no event counts.

    Parameters
    ----------
    event_weight : ndarray of shape (n,)
        How much each sample counts, zero for those that were censored.
    where : str
        The samples, for the message; the default is those that the user has given.
    """
    if not np.any(event_weight):
        fewer = ", fewer folds (cv), or folds stratified by the event" if where else ""
        raise ValueError(
            f"y: no event was observed{where}, all times are censored; give samples with an"
            f" observed event{fewer}."
        )


@dataclass(eq=False, repr=False)
class HeldOutTimes(HeldOutPredictor):
    """Predictions of held-out samples with survival functions.

    Parameters
    ----------
    curves : callable
        Returns the `Curves` of outputs.
    """

    curves: Any = None

    @classmethod
    def of(cls, held_out: HeldOutPredictor, curves: Callable[[], Any]) -> HeldOutTimes:
        """Return predictions of held-out samples together with survival functions."""
        return cls(**vars(held_out), curves=curves)

    def predict_survival_function(self, X: MatrixLike, return_array: bool = False) -> Any:
        return self.curves().functions(np.ravel(self.outputs), return_array)


@dataclass(frozen=True, eq=False)
class Times(Task):
    """Times that may be censored.

    The targets y have two columns: whether the event was observed (1 or 0), and the time.

    Attributes
    ----------
    loss : {"censored", "cox", "rank"}
        Which machine is made: `Survival`, `Cox` or `Ranking`.
    C : float
        Factor of the loss.
    epsilon, slack : float, {1, 2}
        Half-width of the tube, and norm of the slack; read with ``loss="censored"`` only.
    """

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

    def fit_curves(
        self, outputs: Array, y: Array, weight: Array | None, held_out: bool = False
    ) -> Curves:
        """Return the survival functions of outputs, of shape (n,), fitted to events and times.

        `y` has events and times. The slope of a curve in the outputs is one for training samples,
        and is fitted for samples held out, and for ranks, which have no unit.
        """
        if self.loss == "cox":
            return ProportionalHazards.fit(outputs, y, weight, None if held_out else 1.0)
        fits_slope = held_out or self.loss == "rank"
        return LocationScale.fit(outputs, y, weight, None if fits_slope else 1.0)

    def calibrate(self, outputs: Array, rows: Indices, samples: FitInput, method: str) -> Curves:
        """Return the survival functions of outputs of held-out samples; `method` is not read."""
        weight = None if samples.weight is None else samples.weight[rows]
        return self.fit_curves(outputs[:, 0], samples.y[rows], weight, held_out=True)

    def predictor(self, held_out: HeldOutPredictor, calibration: Callable[[], Any]) -> HeldOutTimes:
        return HeldOutTimes.of(held_out, calibration)
