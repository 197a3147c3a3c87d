"""One weight a kernel, shared by all classes of a joint machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import KernelBank
from kernelmosaic.learning.base import Iteration, Options
from kernelmosaic.learning.evaluation import Evaluation, Problem
from kernelmosaic.learning.factory import given_weights
from kernelmosaic.learning.newton import Newton, _Search
from kernelmosaic.learning.norms import Weights, make_norm
from kernelmosaic.learning.penalties import make_penalties
from kernelmosaic.machines.multiclass import JointMachine
from kernelmosaic.solvers.joint_curvature import free_coefficients, joint_curvature
from kernelmosaic.solvers.multiclass import JointSolution

#: Down to this gap of the whole problem single precision does for curvatures.
SINGLE = 1e-4
#: Samples with free coefficients beyond which factorising their blocks costs more than the solves it saves.
LARGEST = 4000
#: A secant is used if its curvature is at least this share of what its slopes would allow.
_CURVED = 1e-8
#: The power of θ with which a slope falls when only the kernel's own weight changes: at most 2.
_POWER = 2.0


@dataclass(frozen=True)
class JointLearned:
    """What a learner for joint machines returns: as `Learned`, with a solution that has one column a class.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (classes, P)
        The weights of the kernels.
    solution : JointSolution
        The machine's solution for the combined kernel.
    objective, gap : float
        Value of the training problem and its certified relative duality gap, weights included.
    n_solves : int
        How often the machine was solved.
    history : list of Iteration
        Objective and gap after every iteration.
    """

    weights: NDArray[np.float64]
    solution: JointSolution
    objective: float
    gap: float
    n_solves: int
    history: list[Iteration] = field(default_factory=list)


class JointProblem(Problem):
    """The training problem of a joint machine; too many free samples, and its curvature is learned from the slopes."""

    def __init__(self, bank: KernelBank, machine: JointMachine, options: Options) -> None:
        super().__init__(bank, machine, options.norm, options.penalties)  # type: ignore[arg-type]
        self.single = options.tol >= SINGLE
        self._H: NDArray[np.float64] | None = None
        self._seen: Evaluation | None = None

    def evaluate(
        self, theta: Weights, warm_start: Any, tol: float, kernels: NDArray[np.intp] | None = None
    ) -> Evaluation:
        """Solve the machine at θ; every kernel is looked at, since all share the same products."""
        if self._K is None or self._at is None or not np.array_equal(self._at, theta):
            self._K = self.bank.combine(theta * self.scale, out=self._K)
            self._at = theta
        solution: Any = self.machine.solve(self._K, warm_start, tol)
        self.n_solves += 1
        support = np.flatnonzero(np.any(solution.beta != 0, axis=1))
        products = self.bank.products(solution.beta, support) * self.scale[:, np.newaxis, np.newaxis]
        q = np.maximum(0.5 * np.einsum("mic,ic->m", products, solution.beta[support]), 0.0)
        program: Any = self.machine.program
        upper = program.primal_value(float(theta @ q), solution.values)
        there = Evaluation(theta, solution, upper, q, products, support)
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
        beta = at.solution.beta
        if not isinstance(self._K, np.ndarray) or free_coefficients(program, beta).any(axis=1).sum() > LARGEST:
            return None
        if self._at is None or not np.array_equal(self._at, at.theta):
            self._K = self.bank.combine(at.theta * self.scale, out=self._K)
            self._at = at.theta
        with suppress(np.linalg.LinAlgError):
            H = joint_curvature(self._K, program, beta, at.products, at.support, single=self.single)
            # All classes share the weights: their blocks, and those between them, add up.
            return np.asarray(H.reshape(program.n_classes, self.n_kernels, program.n_classes, -1).sum(axis=(0, 2)))
        return None

    def _secant_curvature(self, at: Evaluation) -> NDArray[np.float64]:
        if self._H is None:
            safe = np.maximum(at.theta, 1e-3 / self.n_kernels)
            self._H = np.diag(_POWER * np.maximum(at.q, 1e-12 * at.q.max(initial=0.0)) / safe)
        return self._H


class JointNewton:
    """Newton steps over the set of weights, with the line search and the bounds of `Newton`."""

    advice = Newton.advice
    stalled = Newton.stalled

    def __init__(self, options: Options) -> None:
        self.options = options

    def learn(self, bank: KernelBank, machine: JointMachine) -> JointLearned:
        options = self.options
        problem = JointProblem(bank, machine, options)
        search = _Search(problem, options.tol, None)
        history = [search.record()]
        with options.progress(type(machine).__name__) as advance:
            advance(search.gap)
            while search.gap > options.tol and len(history) < options.max_iter and search.step():
                history.append(search.record())
                advance(search.gap)
        best, solution = search.best, _joint(search.best)
        return JointLearned(best.theta * problem.scale, solution, best.upper, search.gap, problem.n_solves, history)


class JointFixed:
    """Keep the given weights.

    Parameters
    ----------
    weights : array of shape (P,)
        Not negative, not all zero.
    tol : float
        Relative duality gap of the machine.
    """

    advice = "the machine is badly conditioned; lower C, or accept a larger tol."
    stalled = None

    def __init__(self, weights: Weights, tol: float = 1e-3) -> None:
        self.weights = weights
        self.tol = tol

    def learn(self, bank: KernelBank, machine: JointMachine) -> JointLearned:
        solution = machine.solve(bank.combine(self.weights), None, self.tol)
        history = [Iteration(solution.objective, solution.gap)]
        return JointLearned(self.weights, solution, solution.objective, solution.gap, 1, history)


def make_joint_learner(parameters: Any, bank: KernelBank) -> JointNewton | JointFixed:
    """Return the learner that an estimator's parameters ask for, as `make_learner` does for one output."""
    norm = make_norm(parameters.norm)
    if parameters.weights is not None:
        return JointFixed(given_weights(parameters.weights, bank.n_kernels), parameters.tol)
    if parameters.solver != "newton":
        raise ValueError(
            f"solver={parameters.solver!r} serves one machine a class; multi_class={parameters.multi_class!r} needs "
            "solver='newton'."
        )
    penalties = make_penalties(parameters.penalties, parameters.penalty_power, bank)
    max_iter = check_count("max_iter", parameters.max_iter)
    return JointNewton(Options(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose)))


def check_count(name: str, value: Any) -> int:
    """Return a whole number of at least 1, or raise naming the parameter and its value."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r}: give a whole number of at least 1.")
    return int(value)


def _joint(at: Evaluation) -> JointSolution:
    solution: Any = at.solution
    assert isinstance(solution, JointSolution)
    return replace(solution)
