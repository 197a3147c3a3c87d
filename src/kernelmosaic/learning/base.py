"""What a learner is: a way to find the weights of the kernels in a bank together with the machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import KernelBank
from kernelmosaic.learning.norms import WeightNorm
from kernelmosaic.learning.progress import gap_progress
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import Solution


@dataclass(frozen=True)
class Iteration:
    """One line of a learner's history.

    Attributes
    ----------
    objective : float
        Value of the training problem at the weights of that iteration.
    gap : float
        Relative duality gap of the whole problem, weights included.
    """

    objective: float
    gap: float


@dataclass(frozen=True)
class Learned:
    """What a learner returns.

    Attributes
    ----------
    weights : ndarray of shape (P,)
        The weights η of the kernels.
    solution : Solution
        The machine's solution for the combined kernel.
    objective : float
        Value of the training problem, in the program's scale.
    gap : float
        Certified relative duality gap of the whole problem, weights included.
    n_solves : int
        How often the machine was solved.
    history : list of Iteration
        Objective and gap after every iteration.
    """

    weights: NDArray[np.float64]
    solution: Solution
    objective: float
    gap: float
    n_solves: int
    history: list[Iteration] = field(default_factory=list)


@dataclass(frozen=True)
class Options:
    """What learners of weights are told.

    Attributes
    ----------
    norm : WeightNorm
        The set of weights.
    penalties : ndarray of shape (P,)
        The d_m.
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress bar.
    """

    norm: WeightNorm
    penalties: NDArray[np.float64]
    tol: float = 1e-3
    max_iter: int = 100
    verbose: bool = False

    def progress(self, what: str) -> AbstractContextManager[Callable[[float], None]]:
        """Return a context whose value is called with the gap after every iteration."""
        return gap_progress(what, self.tol) if self.verbose else nullcontext(lambda gap: None)


class Learner(ABC):
    """Finds weights η for the kernels of a bank and the machine's β for the combined kernel Σ η_m K_m.

    Attributes
    ----------
    advice : str
        What to do when the gap is not met.
    """

    advice: str = "raise max_iter, or accept a larger tol."

    @abstractmethod
    def learn(self, bank: KernelBank, machine: Machine, warm_start: Any = None) -> Learned: ...
