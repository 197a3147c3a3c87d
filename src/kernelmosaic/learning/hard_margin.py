"""No slack at all: C = ∞, the hard margin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.certificate import certify
from kernelmosaic.learning.learned_c import MarginProgram
from kernelmosaic.learning.problem import Learned, Learner
from kernelmosaic.learning.start import CombinedKernel, Start
from kernelmosaic.machines import SVC, Machine

#: The C that are tried, for a kernel of mean diagonal one.
_TRIED = (1e3, 1e5, 1e7, 1e9, 1e11)
#: A margin below this separates nothing.
_LEAST_MARGIN = 0.1


def learn_hard_margin(
    learner: Learner, stack: GramStack, sizes: NDArray[np.float64], y: NDArray[np.float64], diagonal: float, tol: float
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
    sizes : ndarray of shape (P, n)
        Of the numbers that their entries are made of; see `certify`.
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
    best, n_solves, start = None, 0, Start(kernel=CombinedKernel(stack))
    for C in _TRIED:
        found = learner.learn(stack, SVC(y, C / diagonal), start)
        n_solves += found.n_solves
        hard = _without_slack(found, y)
        hard = None if hard is None else certify(stack, sizes, SeparatingSVC(y), learner, hard)
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


class SeparatingSVC(Machine):
    """The machine without slack: min ½‖w‖² subject to yᵢ f(xᵢ) ≥ 1."""

    has_labels = True

    def __init__(self, y: NDArray[np.float64]) -> None:
        reach = np.full(len(y), np.inf)
        lower, upper = np.where(y > 0, 0.0, -reach), np.where(y > 0, reach, 0.0)
        self.program = MarginProgram(y, lower, upper, np.zeros(len(y)))


def _without_slack(found: Learned, y: NDArray[np.float64]) -> Learned | None:
    """Return the same with the intercept of the problem without slack; None if the classes overlap."""
    solution: Any = found.solution
    low, high = float(solution.values[y > 0].min()), float(solution.values[y < 0].max())
    # Near the optimum the margin is one; what is left of a sample that both classes have is rounding.
    if not 0.5 * (low - high) > _LEAST_MARGIN:
        return None
    return replace(found, solution=replace(solution, intercept=-0.5 * (low + high)))
