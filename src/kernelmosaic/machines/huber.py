"""Regression with Huber's loss: quadratic for small errors, linear for large ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive
from kernelmosaic.solvers import Program


class Huber(Machine):
    """Huber regression: min ½‖w‖² + Σ Cᵢ h(yᵢ − f(xᵢ)), where h(r) = r²/(2δ) up to |r| = δ and |r| − δ/2 beyond.

    A coefficient is Cᵢ/δ times its error, and at most Cᵢ: the program's ridge is δ/Cᵢ, its bounds are ±Cᵢ. As δ
    vanishes the loss becomes the absolute error, that of `SVR` without a tube.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    C : float
        Factor of the loss.
    delta : float
        The error δ at which the loss turns from quadratic to linear.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.

    References
    ----------
    Huber (1964), "Robust estimation of a location parameter".
    """

    has_one_slack = False

    def __init__(
        self,
        y: NDArray[Any],
        C: float = 1.0,
        delta: float = 0.1,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("C", C)
        check_positive("delta", delta, zero=True)
        sample_C = C * (np.ones(len(y)) if sample_weight is None else sample_weight)
        ridge = np.divide(delta, sample_C, out=np.zeros(len(y)), where=sample_C > 0)
        self._program = Program(np.asarray(y, dtype=np.float64), -sample_C, sample_C, ridge)

    @property
    def program(self) -> Program:
        return self._program
