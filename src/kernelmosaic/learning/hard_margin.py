"""No slack at all: C = ∞, the hard margin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.problem import Iteration, Learned, Learner
from kernelmosaic.machines import SVC
from kernelmosaic.solvers import relative_gap

#: The C that are tried, for a kernel of mean diagonal one.
_TRIED = (1e3, 1e5, 1e7, 1e9, 1e11)
#: A margin below this separates nothing.
_LEAST_MARGIN = 0.1


def learn_hard_margin(
    learner: Learner, stack: GramStack, y: NDArray[np.float64], diagonal: float, tol: float
) -> Learned:
    """Return weights and machine of min ½(Σ d_m‖w_m‖)² subject to yᵢ f(xᵢ) ≥ 1.

    A machine with slack is the one without as soon as C exceeds its coefficients. So C grows until the certificate of
    the problem without slack is met: β is feasible there whatever C is, which bounds the optimum from below, and f
    divided by its smallest margin is feasible, too, which bounds it from above.

    Parameters
    ----------
    learner : Learner
        How the weights are learned.
    stack : GramStack
        The kernels.
    y : ndarray of shape (n,)
        Labels ±1.
    diagonal : float
        Scale of the kernels' diagonals.
    tol : float
        Relative duality gap to reach.

    Raises
    ------
    ValueError
        If no function of the kernels separates the classes: then the dual is unbounded, and coefficients reach every C.
    """
    best, n_solves = None, 0
    for C in _TRIED:
        found = learner.learn(stack, SVC(y, C / diagonal))
        n_solves += found.n_solves
        hard = _without_slack(found, y)
        if hard is not None and (best is None or hard.gap < best.gap):
            best = hard
        if best is not None and best.gap <= tol:
            break
    if best is None:
        raise ValueError(
            "C=inf: the classes are not separable by these kernels, so that no machine without slack exists; give a "
            "finite C, or kernels that separate them, such as a narrower Gaussian()."
        )
    return replace(best, n_solves=n_solves)


def _without_slack(found: Learned, y: NDArray[np.float64]) -> Learned | None:
    """Return the same with intercept, objective and gap of the problem without slack; None if the classes overlap."""
    solution: Any = found.solution
    low, high = float(solution.values[y > 0].min()), float(solution.values[y < 0].max())
    margin = 0.5 * (low - high)
    # Near the optimum it is one; what is left of a sample that both classes have is rounding.
    if not margin > _LEAST_MARGIN:
        return None
    upper = 0.5 * float(solution.beta @ solution.values) / margin**2
    gap = relative_gap(upper, found.objective * (1.0 - found.gap))
    certified = replace(solution, intercept=-0.5 * (low + high), gap=gap)
    return replace(
        found, solution=certified, objective=upper, gap=gap, history=[*found.history[:-1], Iteration(upper, gap)]
    )
