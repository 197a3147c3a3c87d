"""Kernels that are too many to be stored: the weights of a few are learned, and kernels that lower the value enter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import ROUNDING, Learner, gap_progress
from kernelmosaic.solvers import relative_gap


class ColumnGeneration(Learner):
    """Sparse weights over any number of kernels, of which only those with a weight, and a few candidates, are stored.

    The optimum over all kernels has weights on few. With weights on some, the machine's β bounds it from below by
    c(β) − max_m ½βᵀK_mβ / d_m², the largest over **all** kernels; where the largest is not among the few, these kernels
    enter, and those without a weight leave. Most rounds ask only the kernels that were near the largest when all were
    last asked.

    Attributes
    ----------
    batch : int
        How many kernels to begin with, evenly spread over all, and most that enter at a time; fewer where half as many
        matrices fill the memory budget.

    References
    ----------
    Sonnenburg, Rätsch, Schäfer and Schölkopf (2006), "Large scale multiple kernel learning": columns are generated
    there, too, one plane and one linear program at a time; here Newton's method solves what is generated.
    """

    norm_needs = ("sums_to_one",)
    machine_needs = ()
    stalled = ROUNDING
    batch: int = 200

    def _learn(self, stack: Any, machine: Any, start: Start) -> Learned:
        options, every = self.options, np.arange(stack.n_kernels)
        # Matrices that are computed anew whenever they are read cost more than a few rounds.
        batch = max(min(self.batch, stack.room // 2), 8)
        if len(every) <= batch:
            return Newton(options)._learn(stack.take_kernels(every), machine, start)
        if start.weights is None:
            active = np.unique(np.linspace(0, len(every) - 1, batch).astype(np.intp))
        else:
            active = np.flatnonzero(start.weights)
            start = Start(start.weights[active], start.beta)
        scale, watched = 1.0 / options.penalties**2, every
        history: list[Iteration] = []
        proved: Learned | None = None
        best, lower, gap, n_solves = np.inf, -np.inf, np.inf, 0
        # The weights of the few are learned to a share of the gap that all have left, and of the tolerance in the end.
        share, last = 0.1, 0.3 * options.tol
        inner = max(options.first_tol, last)
        with gap_progress(machine, options) as advance:
            while True:
                few = replace(options, penalties=options.penalties[active], tol=inner, verbose=False)
                search = Newton(few).search(stack.take_kernels(active), machine, start)
                found, noise = search.learned(), search.problem.noise
                beta, n_solves = found.solution.beta, n_solves + found.n_solves
                here = replace(found, weights=np.zeros(stack.n_kernels))
                here.weights[active] = found.weights
                pays, best = proved is None or found.objective < best, min(best, found.objective)
                # The one whose own β proves the smallest gap is what is returned.
                proved = here if proved is None else proved
                constant = machine.program.linear_value(beta)
                q = stack.quadratic_forms(beta, watched, scale)
                near = relative_gap(best, constant - q.max(), noise)
                # Once the kernels looked at would do, the others are asked whether they agree.
                if len(watched) < len(every) and near <= max(options.tol, inner):
                    q, watched = stack.quadratic_forms(beta, None, scale), every
                    near = relative_gap(best, constant - q.max(), noise)
                if len(watched) == len(every):
                    bound = constant - options.norm.support(q)
                    own = relative_gap(found.objective, bound, noise)
                    pays, lower = pays or bound > lower or own < gap, max(lower, bound)
                    proved, gap = (here, own) if own < gap else (proved, gap)
                history.append(Iteration(best, gap))
                advance(gap)
                if gap <= options.tol or len(history) >= options.max_iter or not (pays or inner > options.sharpest):
                    return replace(proved, gap=gap, n_solves=n_solves, history=history)
                kept = active[found.weights > 0]
                missing = _missing(q, kept, batch)
                if pays and len(missing):
                    inner = max(min(inner, share * near), min(inner, last))
                else:  # what is left of the gap is that of the few
                    inner = max(share * inner, options.sharpest)
                start = Start(np.append(found.weights[found.weights > 0], np.zeros(len(missing))), beta)
                active = np.append(kept, missing)
                watched = np.union1d(active, np.flatnonzero(q >= 0.7 * q.max())) if pays else every


def _missing(q: Weights, kept: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most `most` kernels whose q exceeds those of the kernels with a weight."""
    exceed = q > q[kept].max()
    exceed[kept] = False
    found = np.flatnonzero(exceed)
    return found[np.argsort(-q[found], kind="stable")[:most]]
