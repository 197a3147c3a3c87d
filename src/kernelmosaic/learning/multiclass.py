"""One weight a kernel, shared by all classes of a joint machine."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Iteration, Learned, Options
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.learning.newton import Newton, NewtonSearch
from kernelmosaic.learning.norms import Weights, make_norm
from kernelmosaic.learning.penalties import make_penalties
from kernelmosaic.learning.problem import Evaluation, Problem
from kernelmosaic.machines.base import check_count
from kernelmosaic.machines.multiclass import MulticlassMachine
from kernelmosaic.solvers.multiclass_newton import free_coefficients, multiclass_curvature

#: Down to this gap of the whole problem single precision does for curvatures.
SINGLE = 1e-4
#: Samples with free coefficients beyond which factorising their blocks costs more than the solves it saves.
LARGEST = 4000
#: A secant is used if its curvature is at least this share of what its slopes would allow.
_CURVED = 1e-8
#: The power of θ with which a slope falls when only the kernel's own weight changes: at most 2.
_POWER = 2.0


class MulticlassProblem(Problem):
    """The training problem of a joint machine; too many free samples, and its curvature is learned from the slopes."""

    def __init__(self, stack: GramStack, machine: MulticlassMachine, options: Options) -> None:
        super().__init__(stack, machine, options.norm, options.penalties)  # type: ignore[arg-type]
        self.single = options.tol >= SINGLE
        self._H: NDArray[np.float64] | None = None
        self._seen: Evaluation | None = None

    def evaluate(
        self, theta: Weights, warm_start: Any, tol: float, kernels: NDArray[np.intp] | None = None
    ) -> Evaluation:
        """Solve the machine at θ; every kernel is looked at, since all share the same products."""
        solution: Any = self.solve(theta, warm_start, tol)
        support = np.flatnonzero(np.any(solution.beta != 0, axis=1))
        products = self.stack.products(solution.beta, support) * self.scale[:, np.newaxis, np.newaxis]
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
        if free_coefficients(program, beta).any(axis=1).sum() > LARGEST:
            return None
        with suppress(np.linalg.LinAlgError):
            H = multiclass_curvature(self.combine(at.theta), program, beta, at.products, at.support, single=self.single)
            # All classes share the weights: their blocks, and those between them, add up.
            return np.asarray(H.reshape(program.n_classes, self.n_kernels, program.n_classes, -1).sum(axis=(0, 2)))
        return None

    def _secant_curvature(self, at: Evaluation) -> NDArray[np.float64]:
        if self._H is None:
            safe = np.maximum(at.theta, 1e-3 / self.n_kernels)
            self._H = np.diag(_POWER * np.maximum(at.q, 1e-12 * at.q.max(initial=0.0)) / safe)
        return self._H


class MulticlassNewton:
    """Newton steps over the set of weights, with the line search and the bounds of `Newton`."""

    advice = Newton.advice
    stalled = Newton.stalled

    def __init__(self, options: Options) -> None:
        self.options = options

    def learn(self, stack: GramStack, machine: MulticlassMachine) -> Learned:
        options = self.options
        problem = MulticlassProblem(stack, machine, options)
        search = NewtonSearch(problem, options.tol, None)
        search.improve(search.step, options.tol, options.max_iter, options.progress(type(machine).__name__))
        return problem.learned(search.best, search.gap, search.history)


class MulticlassFixed:
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

    def learn(self, stack: GramStack, machine: MulticlassMachine) -> Learned:
        solution = machine.solve(stack.combine(self.weights), None, self.tol)
        history = [Iteration(solution.objective, solution.gap)]
        return Learned(self.weights, solution, solution.objective, solution.gap, 1, history)


def make_multiclass_learner(parameters: Any, stack: GramStack) -> MulticlassNewton | MulticlassFixed:
    """Return the learner that an estimator's parameters ask for, as `make_learner` does for one output."""
    norm = make_norm(parameters.norm)
    if parameters.weights is not None:
        return MulticlassFixed(given_weights(parameters.weights, stack.n_kernels), parameters.tol)
    if parameters.solver != "newton":
        raise ValueError(
            f"solver={parameters.solver!r} serves one machine a class; multi_class={parameters.multi_class!r} needs "
            "solver='newton'."
        )
    penalties = make_penalties(parameters.penalties, parameters.penalty_power, stack)
    max_iter = check_count("max_iter", parameters.max_iter)
    return MulticlassNewton(Options(norm, penalties, parameters.tol, max_iter, bool(parameters.verbose)))
