"""Support vector regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive, slack_terms
from kernelmosaic.solvers import Program


class SVR(Machine):
    """Support vector regression: min ½‖w‖² + Σ Cᵢ max(0, |yᵢ − f(xᵢ)| − ε).

    With ``slack=2`` the excess is squared: min ‖w‖² + Σ Cᵢ max(0, |yᵢ − f(xᵢ)| − ε)².

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    C : float
        Factor of the slack.
    epsilon : float
        Half-width of the tube in which errors are free.
    slack : {1, 2}
        Norm of the slack.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.
    """

    def __init__(
        self,
        y: NDArray[Any],
        C: float = 1.0,
        epsilon: float = 0.1,
        slack: int = 1,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("C", C)
        check_positive("epsilon", epsilon, zero=True)
        reach, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        self._program = Program(np.asarray(y, dtype=np.float64), -reach, reach, ridge, epsilon=float(epsilon))

    @property
    def program(self) -> Program:
        return self._program
