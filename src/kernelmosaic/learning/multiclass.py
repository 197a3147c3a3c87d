"""One weight per kernel, shared by all classes of a joint machine."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import Evaluation, MachineProblem, Options
from kernelmosaic.learning.start import COLD, Start
from kernelmosaic.solvers.multiclass_newton import free_coefficients, multiclass_curvature

#: Down to this gap of the whole problem single precision does for curvatures, and for matrices of classes, ...
SINGLE = 1e-4
#: ... which pays with more samples than this.
FEW = 500
#: Samples with free coefficients beyond which factorising their blocks costs more than the solves it saves.
LARGEST = 4000
#: A secant is used if its curvature is at least this share of what its slopes would allow.
_CURVED = 1e-8
#: The power of θ with which a slope falls when only the kernel's own weight changes: at most 2.
_POWER = 2.0


class MulticlassProblem(MachineProblem):
    """The training problem of a joint machine; too many free samples, and its curvature is learned from the slopes."""

    def __init__(self, stack: GramStack, machine: Any, options: Options, start: Start = COLD) -> None:
        super().__init__(stack, machine, options, start)
        self.single = options.tol >= SINGLE and stack.n_samples > FEW
        self._H: NDArray[np.float64] | None = None
        self._seen: Evaluation | None = None

    def evaluate(
        self, theta: Weights, warm_start: Any, tol: float, kernels: NDArray[np.intp] | None = None
    ) -> Evaluation:
        """Solve the machine at θ; every kernel is looked at, since all share the same products."""
        there = super().evaluate(theta, warm_start, tol)
        self._learn_from(there)
        return there

    def _learn_from(self, there: Evaluation) -> None:
        """Update the curvature by the secant from the last evaluation to this."""
        here, self._seen = self._seen, there
        if here is None or self._H is None:
            return
        s, change = there.theta - here.theta, here.q - there.q
        Hs = self._H @ s
        along = float(s @ change)
        if along <= _CURVED * float(np.linalg.norm(s) * np.linalg.norm(change)) or float(s @ Hs) <= 0:
            return
        self._H = self._H - np.outer(Hs, Hs) / float(s @ Hs) + np.outer(change, change) / along

    def curvature(self, at: Evaluation) -> NDArray[np.float64]:
        """Return that of the free coefficients where they can be factorised, else what the slopes have told."""
        exact = self._exact_curvature(at)
        return self._secant_curvature(at) if exact is None else exact

    def _exact_curvature(self, at: Evaluation) -> NDArray[np.float64] | None:
        program: Any = self.machine.program
        beta, K = at.solution.beta, self.combine(at.theta)
        most = LARGEST if self.stack.stores_combined else min(LARGEST, K.block_samples)
        if free_coefficients(program, beta).any(axis=1).sum() > most:
            return None
        with suppress(np.linalg.LinAlgError):
            H = multiclass_curvature(K, program, beta, at.products, at.support, single=self.single)
            # All classes share the weights: their blocks, and those between them, add up.
            return np.asarray(H.reshape(program.n_classes, self.n_kernels, program.n_classes, -1).sum(axis=(0, 2)))
        return None

    def _secant_curvature(self, at: Evaluation) -> NDArray[np.float64]:
        if self._H is None:
            safe = np.maximum(at.theta, 1e-3 / self.n_kernels)
            self._H = np.diag(_POWER * np.maximum(at.q, 1e-12 * at.q.max(initial=0.0)) / safe)
        return self._H
