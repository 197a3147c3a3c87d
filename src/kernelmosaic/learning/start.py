"""What a learner may start from: the weights and the coefficients of a like problem, and the kernel last combined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack

Array = NDArray[np.float64]


class CombinedKernel:
    """The combined kernel of a stack at the weights last asked for, of which one matrix is kept.

    Problems on one stack that are solved one after the other may share it; those solved at once each have their own.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    """

    def __init__(self, stack: GramStack) -> None:
        self.stack = stack
        self._K: Any = None
        self._weights: Array | None = None

    def at(self, weights: Array) -> Any:
        """Return Σ η_m K_m, made anew only if the weights have changed."""
        if self._weights is None or not np.array_equal(self._weights, weights):
            self._K = self.stack.combine(weights, out=self._K)
            self._weights = weights
        return self._K


@dataclass(frozen=True)
class Start:
    """What a learner starts from; by default from nothing.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (classes, P), or None
        Weights η of a like problem.
    beta : ndarray of shape (n,) or (n, outputs), or None
        Its coefficients.
    machine : Machine, Discriminant or None
        Whose bounds the coefficients meet; None for those of any machine.
    kernel : CombinedKernel or None
        Where the learner combines kernels; None for one of its own.
    """

    weights: Array | None = None
    beta: Array | None = None
    machine: Any = None
    kernel: CombinedKernel | None = None

    def fits(self, machine: Any) -> bool:
        """Whether a machine has coefficients, and classes with weights of their own, of the shapes given here."""
        classes = None if self.weights is None or self.weights.ndim == 1 else len(self.weights)
        same = self.beta is None or self.beta.shape == machine.shape
        return same and classes in (None, *machine.shape[1:])

    def continued(self, machine: Any) -> Start:
        """Return the start for a machine: coefficients at a bound are at its bound; other shapes are dropped."""
        if not self.fits(machine):
            return replace(COLD, kernel=self.kernel)
        if self.beta is None or self.machine is None:
            return self
        return replace(self, beta=machine.continued(self.beta, self.machine), machine=machine)

    def kernel_of(self, stack: GramStack) -> CombinedKernel:
        """Return where to combine the kernels of a stack."""
        return self.kernel if self.kernel is not None and self.kernel.stack is stack else CombinedKernel(stack)


#: A start from nothing.
COLD = Start()
