"""Regularised least squares: a program without a box, solved by one factorisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.machines.base import Machine, check_positive
from kernelmosaic.solvers import Program, Solution, solve_unbounded
from kernelmosaic.solvers.program import Vector


class LeastSquares(Machine):
    """Regularised least squares: min Σ sᵢ (yᵢ − f(xᵢ))² + λ‖w‖².

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    alpha : float
        The regulariser λ.
    intercept : bool
        Whether f has a constant term.
    sample_weight : array of shape (n,), optional
        The sᵢ; zero takes a sample out.
    """

    def __init__(
        self,
        y: NDArray[Any],
        alpha: float = 1.0,
        intercept: bool = True,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        check_positive("alpha", alpha)
        n = len(y)
        if sample_weight is not None and np.any(sample_weight <= 0):
            raise ValueError("sample_weight must be positive here; leave out the samples of weight zero.")
        ridge = np.full(n, alpha) if sample_weight is None else alpha / sample_weight
        self.objective_scale = 2.0 * alpha
        bound = np.full(n, np.inf)
        total = 0.0 if intercept else None
        self._program = Program(np.asarray(y, dtype=np.float64), -bound, bound, ridge, total=total)

    @property
    def program(self) -> Program:
        return self._program

    def solve(self, K: Any, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
        """Return the exact solution; a warm start would not make the factorisation cheaper."""
        return solve_unbounded(K, self.program)
