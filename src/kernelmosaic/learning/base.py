"""What a learner is: a way to find the weights of the kernels in a stack together with the machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.norms import PowerNorm, SumNorm, WeightNorm
from kernelmosaic.learning.progress import GapProgress, gap_progress
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import Program, Solution
from kernelmosaic.solvers.multiclass_program import MulticlassSolution


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
        The machine's solution for the combined kernel; of a joint machine, with one column a class.
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
    serves : frozenset of str
        Which sets of weights: "sum norm" (norm=1) and "power norm" (norm > 1).
    programs : frozenset of str
        Which programs, by their kind (see `program_kind`).
    advice : str
        What to do when the gap is not met.
    stalled : str or None
        What to do when it is not met although there were iterations left; None if that is the same.
    """

    serves: frozenset[str] = frozenset({"sum norm", "power norm"})
    programs: frozenset[str] = frozenset({"two classes", "targets", "one class"})
    advice: str = "raise max_iter, or accept a larger tol."
    stalled: str | None = None

    @abstractmethod
    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned: ...

    @classmethod
    def require(cls, solver: str, norm: WeightNorm | None = None, program: Program | None = None) -> None:
        """Raise a ValueError naming the solver and what it cannot do, if it cannot serve the norm or the program."""
        if norm is not None and norm_kind(norm) not in cls.serves:
            given = f"norm={norm.p:g}" if isinstance(norm, PowerNorm) else "norm=1"
            served = "norm=1" if isinstance(norm, PowerNorm) else "norms above 1"
            raise ValueError(f"solver={solver!r} serves {served}, not {given}; use solver='newton'.")
        if program is not None and program_kind(program) not in cls.programs:
            raise ValueError(
                f"solver={solver!r} serves machines with {' or '.join(sorted(cls.programs))}, not with "
                f"{program_kind(program)}; use solver='newton'."
            )


def norm_kind(norm: WeightNorm) -> str:
    """Return "sum norm" or "power norm"."""
    return "sum norm" if isinstance(norm, SumNorm) else "power norm"


def program_kind(program: Program) -> str:
    """Return what a program is fitted to: "two classes" (±1, each β of its target's sign), "one class" or "targets"."""
    t = program.target
    if not np.any(t):
        return "one class"
    signed = np.all(np.abs(t) == 1) and np.all(np.where(t > 0, program.lower, program.upper) == 0)
    return "two classes" if signed and program.epsilon == 0 else "targets"
