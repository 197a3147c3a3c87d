"""Weights that are given: one machine on one combined kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Iteration, Learned, Learner
from kernelmosaic.learning.penalties import numbers
from kernelmosaic.machines import Machine
from kernelmosaic.machines.multiclass import MulticlassMachine


class FixedWeights(Learner):
    """Keep the given weights.

    Parameters
    ----------
    weights : array of shape (P,)
        Not negative, not all zero.
    tol : float
        Relative duality gap of the machine.
    """

    machine_needs = ()
    advice = "the machine is badly conditioned; lower C, or accept a larger tol."

    def __init__(self, weights: NDArray[np.float64], tol: float = 1e-3) -> None:
        self.weights = weights
        self.tol = tol
        self._combined: tuple[GramStack, NDArray[Any]] | None = None

    def learn(self, stack: GramStack, machine: Machine | MulticlassMachine, warm_start: Any = None) -> Learned:
        # The classes of a one-versus-rest problem share their kernel: combine it once.
        if self._combined is None or self._combined[0] is not stack:
            self._combined = (stack, stack.combine(self.weights))
        solution: Any = machine.solve(self._combined[1], warm_start, self.tol)
        value = machine.primal_value(solution)
        return Learned(self.weights, solution, value, solution.gap, 1, [Iteration(value, solution.gap)])


def given_weights(weights: Any, P: int) -> NDArray[np.float64]:
    """Return weights to keep: 1/P each for "uniform", else the given ones, checked; a product is one kernel by now."""
    if isinstance(weights, str):
        if weights not in ("uniform", "product"):
            raise ValueError(f"weights={weights!r}: give 'uniform', 'product', {P} numbers, or None to learn them.")
        return np.full(P, 1.0 / P)
    eta = numbers("weights", weights, P)
    if np.any(eta < 0) or not np.any(eta > 0):
        raise ValueError(f"weights={weights!r}: weights must not be negative, nor all zero.")
    return eta
