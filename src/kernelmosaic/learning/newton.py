"""Second-order steps on the weights: few machine solves, each warm-started from the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Learned, Learner, Options
from kernelmosaic.learning.evaluation import Problem
from kernelmosaic.learning.newton_search import NewtonSearch
from kernelmosaic.learning.norms import Weights
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import SubsampledMachine

#: Weights are first learned from this share of the samples, ...
_PART = 0.2
#: ... unless these are fewer than this, ...
_LEAST_PART = 200
#: ... to a gap of no less than this: they are not those of all samples anyway.
_ROUGH = 1e-2


class Newton(Learner):
    """Newton steps over the set of weights, with a line search on the exact value.

    The value J(θ) = max_β is convex and, between changes of the set of free samples, smooth; its slope is −q and its
    curvature follows from the free samples' block (`Problem.curvature`). Kernels far from entering are not read again
    until the others have settled. Large sets start from the weights of a part of the samples, which start from those of
    a part of the part.
    """

    stalled = "rounding is all that is left to gain; accept a larger tol."

    def __init__(self, options: Options) -> None:
        self.options = options

    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned:
        options = self.options
        problem = Problem(stack, machine, options.norm, options.penalties)
        search = NewtonSearch(problem, options.tol, warm_start, self._from_a_part(stack, machine))
        search.improve(search.step, options.tol, options.max_iter, options.progress(type(machine).__name__))
        return problem.learned(search.best, search.gap, search.history)

    def _from_a_part(self, stack: GramStack, machine: Machine) -> Weights | None:
        """Return the weights that some of the samples ask for, which are near those of all and cost next to nothing."""
        count = min(int(_PART * stack.n_samples), stack.part_samples)
        if count < _LEAST_PART or stack.n_kernels == 1 or not machine.can_be_subsampled:
            return None
        rows = np.unique(np.linspace(0, stack.n_samples - 1, count).astype(np.intp))
        rough = replace(self.options, tol=max(self.options.tol, _ROUGH), verbose=False)
        try:
            found = Newton(rough).learn(stack.part(rows), SubsampledMachine(machine, rows))
        except ValueError:  # the weights of these few samples may leave no feasible β
            return None
        return found.weights * self.options.penalties**2
