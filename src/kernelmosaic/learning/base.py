"""What a learner is: a way to find the weights of the kernels in a stack together with the machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.norms import WeightNorm
from kernelmosaic.learning.progress import GapProgress, gap_progress
from kernelmosaic.solvers import Solution
from kernelmosaic.solvers.multiclass_program import MulticlassSolution

#: What to do where rounding ends a search.
ROUNDING = (
    "rounding hides what is left to gain; accept a larger tol. Where the gap is far above it, lower C or use "
    "normalize='trace', which puts the kernels on one scale."
)


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
    weights : ndarray of shape (P,) or (classes, P)
        The weights η of the kernels; by class where every class has its own.
    solution : Solution or MulticlassSolution
        The machine's solution for the combined kernel; of a joint machine, with one column per class.
    objective : float
        Value of the training problem, in the program's scale.
    gap : float
        Certified relative duality gap of the whole problem, weights included; where the weights are given or chosen by
        a heuristic, of the machine at these weights.
    n_solves : int
        How often the machine was solved.
    history : list of Iteration
        Objective and gap after every iteration.
    """

    weights: NDArray[np.float64]
    solution: Solution | MulticlassSolution
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

    def progress(self, what: str) -> GapProgress:
        """Return a context whose value is called with the gap after every iteration."""
        return gap_progress(what, self.tol) if self.verbose else nullcontext(lambda gap: None)


class Learner(ABC):
    """Finds weights η for the kernels of a stack and the machine's β for the combined kernel Σ η_m K_m.

    Attributes
    ----------
    norm_needs, machine_needs : tuple of str
        Attributes that must be true of the norm and of the machine; see `require`.
    advice : str
        What to do when the gap is not met.
    stalled : str or None
        What to do when it is not met although there were iterations left; None if that is the same.
    """

    norm_needs: tuple[str, ...] = ()
    machine_needs: tuple[str, ...] = ("has_one_output",)
    advice: str = "raise max_iter, or accept a larger tol."
    stalled: str | None = None

    @abstractmethod
    def learn(self, stack: GramStack, machine: Any, warm_start: Any = None) -> Learned: ...

    @classmethod
    def require(cls, solver: str, norm: WeightNorm | None = None, machine: Any = None) -> None:
        """Raise a ValueError that names what the solver needs, if the norm or the machine does not declare it."""
        for given, needs in ((norm, cls.norm_needs), (machine, cls.machine_needs)):
            missing = next((name for name in needs if given is not None and not getattr(given, name)), None)
            if missing is not None:
                what = type(given).__name__ if given is machine else str(given)
                raise ValueError(f"solver={solver!r} serves {_SERVED[missing]}, not {what}; use solver='newton'.")


#: What a learner serves that needs an attribute, in words.
_SERVED = {
    "sums_to_one": "norm=1",
    "has_one_output": "machines with one output (multi_class='ovr')",
    "has_targets": "machines with targets",
    "has_labels": "machines with the labels of two classes",
    "has_one_slack": "machines whose loss is either linear or quadratic in the slack",
}
