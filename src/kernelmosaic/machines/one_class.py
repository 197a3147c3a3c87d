"""The one-class support vector machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive
from kernelmosaic.solvers import Program


class OneClass(Machine):
    """One-class support vector machine: min ½‖w‖² + Σ Cᵢ ξᵢ + b subject to f(xᵢ) = ⟨w, φ(xᵢ)⟩ + b ≥ −ξᵢ.

    Samples with f(x) < 0 are novel; at most 1/C training samples are, since the coefficients sum to one.

    Parameters
    ----------
    n_samples : int
        Number of training samples.
    C : float
        Factor of the slack; at least 1 over the sum of the sample weights.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.
    """

    has_targets = False

    def __init__(self, n_samples: int, C: float = 1.0, sample_weight: NDArray[np.float64] | None = None) -> None:
        check_positive("C", C)
        sample_C = C * (np.ones(n_samples) if sample_weight is None else sample_weight)
        if sample_C.sum() < 1 - 1e-9:
            raise ValueError(
                f"C={C:g}: the bounds C · sample_weight sum to {sample_C.sum():g}; raise C until they reach 1."
                " C = 1 / n_samples will do."
            )
        zero = np.zeros(n_samples)
        self._program = Program(zero, zero, sample_C, zero, total=1.0)

    @property
    def program(self) -> Program:
        return self._program
