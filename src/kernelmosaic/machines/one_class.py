"""The one-class support vector machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive, slack_terms
from kernelmosaic.solvers import Program


class OneClass(Machine):
    """One-class support vector machine: min ½‖w‖² + Σ Cᵢ ξᵢ + b subject to f(xᵢ) = ⟨w, φ(xᵢ)⟩ + b ≥ −ξᵢ.

    Samples with f(x) < 0 are novel; at most 1/C training samples are, since the coefficients sum to one. With squared
    slacks, min ½‖w‖² + ½ Σ Cᵢ ξᵢ² + b, the coefficients are Cᵢ ξᵢ, and 1/C bounds nothing.

    Parameters
    ----------
    n_samples : int
        Number of training samples.
    C : float
        Factor of the slack; at least 1 over the sum of the sample weights, unless it is squared.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.
    slack : {1, 2}
        Norm of the slack.
    """

    has_targets = False

    def __init__(
        self, n_samples: int, C: float = 1.0, sample_weight: NDArray[np.float64] | None = None, slack: int = 1
    ) -> None:
        reach, ridge, _ = slack_terms(check_positive("C", C), slack, n_samples, sample_weight)
        if reach.sum() < 1 - 1e-9:
            raise ValueError(
                f"C={C:g}: the bounds C · sample_weight sum to {reach.sum():g}; raise C until they reach 1."
                " C = 1 / n_samples will do."
            )
        zero = np.zeros(n_samples)
        self._program = Program(zero, zero, reach, ridge, total=1.0)

    @property
    def program(self) -> Program:
        return self._program
