"""The two-class support vector machine, with 1-norm or 2-norm slack."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive, slack_terms
from kernelmosaic.solvers import Program


class SVC(Machine):
    """Two-class support vector machine.

    With ``slack=1``: min ½‖w‖² + Σ Cᵢ ξᵢ; with ``slack=2``: min ‖w‖² + Σ Cᵢ ξᵢ²; both subject to yᵢ f(xᵢ) ≥ 1 − ξᵢ.

    Parameters
    ----------
    y : array of shape (n,)
        −1 or +1.
    C : float
        Factor of the slack.
    slack : {1, 2}
        Its norm.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample; zero takes a sample out.
    """

    has_labels = True

    def __init__(
        self, y: NDArray[Any], C: float = 1.0, slack: int = 1, sample_weight: NDArray[np.float64] | None = None
    ) -> None:
        check_positive("C", C)
        reach, ridge, self.objective_scale = slack_terms(C, slack, len(y), sample_weight)
        target = np.asarray(y, dtype=np.float64)
        lower, upper = np.where(target > 0, 0.0, -reach), np.where(target > 0, reach, 0.0)
        self._program = Program(target, lower, upper, ridge)

    @property
    def program(self) -> Program:
        return self._program
