"""Gates, and projections if there are any, learned together with the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray
from kernelmosaic.gram import GramStack, KernelSet
from kernelmosaic.learning.problem import Evaluation, ExhaustedError, Iteration, Learned, Patience, progress
from kernelmosaic.learning.projections import Projections
from kernelmosaic.learning.steps import Step, make_step
from kernelmosaic.machines import Machine

Array = NDArray[np.float64]

#: The machine is solved to this share of the tolerance, so that its error does not pass for a step's gain ...
_INNER = 0.1
#: ... but no more loosely than this, ...
_LOOSEST = 1e-4
#: ... nor, single precision hiding the rest, more tightly than that.
_TIGHTEST = {np.dtype(np.float32): 3e-7, np.dtype(np.float64): 1e-13}


class GateModel(Protocol):
    """What is asked of a gating."""

    def init(self, rng: np.random.RandomState, n_features: int, n_kernels: int) -> Array: ...

    def values(self, V: Array, Z: Array) -> Array: ...

    def vjp(self, V: Array, Z: Array, G: Array) -> Array: ...


@dataclass(frozen=True)
class GatedEvaluation(Evaluation):
    """The machine solved under the gates of parameters θ = V.

    Attributes
    ----------
    upper : float
        The primal value of the machine, in the program's scale: the value of the model, and what steps are to lower.
    gates : ndarray of shape (n, P)
        Gates of the training samples; the kernel is Σ_m g_m g_mᵀ ∘ K_m.
    """

    gates: Array = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class LearnedGates(Learned):
    """What the learner of gates returns: the weights are the mean gates, the history begins with the start.

    Attributes
    ----------
    V : ndarray of shape (P, q)
        Parameters of the gating.
    gates : ndarray of shape (n, P)
        Gates of the training samples.
    converged : bool
        Whether the stop rule was met; always, for a fixed number of steps.
    kernel_set : KernelSet or None
        The kernels with their learned projections, if there are any.
    """

    V: Array
    gates: Array
    converged: bool
    kernel_set: KernelSet | None


class GatedProblem:
    """J as a function of the gates' parameters: the machine's value on the locally combined kernel.

    Only β crosses from the machine: ∂J/∂η_m(x_i) = −Σ_c β_ic (K_m (η_m ∘ β_c))_i, summed over the classes of a joint
    machine, which share the gates.
    """

    def __init__(self, stack: GramStack, machine: Machine, gating: GateModel, Z: Array, tol: float) -> None:
        self.stack = stack
        self.machine: Any = machine
        self.gating = gating
        self.Z = Z
        self.tol = tol
        self.patience = Patience(machine.most_steps)
        self.n_solves = 0
        self._K: AnyArray | None = None
        self._beta: Array | None = None

    def evaluate(self, V: Array) -> GatedEvaluation:
        """Solve the machine under the gates of V, starting from the last β."""
        gates = self.gating.values(V, self.Z)
        self._K = self.stack.combine_gated(gates, out=self._K)
        self.patience.require()
        solution: Any = self.machine.solve(self._K, self._beta, self.tol)
        self.patience.note(solution, self.tol)
        self._beta = solution.beta
        self.n_solves += 1
        return GatedEvaluation(V, solution, self.machine.primal_value(solution), np.empty(0), gates=gates)

    def gate_slopes(self, at: GatedEvaluation) -> Array:
        """Return ∂J/∂η_m(x_i), of shape (n, P); zero where β is, so only the support's rows are read."""
        beta = at.solution.beta
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        each = beta[support] * self.stack.gated_products(beta, at.gates, support)
        G = np.zeros_like(at.gates)
        G[support] = -np.sum(each, axis=tuple(range(2, each.ndim))).T
        return G

    def slope(self, at: GatedEvaluation) -> Array:
        """Return ∂J/∂V."""
        return self.gating.vjp(at.theta, self.Z, self.gate_slopes(at))


class GateLearner:
    """Minimises J over the gates, and over the projections of kernels that have one, in alternation.

    Parameters
    ----------
    gating : GateModel
        The gates.
    step : str or Step
        How to move; see `make_step`.
    tol : float
        τ of the stop rule: an iteration is short if J(t) > (1 − τ) J(t − 1), with |J| for a J below zero.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress line.
    n_short : int
        Short iterations in a row at which to stop: between copies of one kernel, one is not the end.
    """

    def __init__(
        self,
        gating: GateModel,
        step: str | Step = "lbfgs",
        tol: float = 1e-3,
        max_iter: int = 100,
        verbose: bool = False,
        n_short: int = 3,
    ) -> None:
        self.gating = gating
        self.step = step
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.n_short = n_short

    def learn(
        self,
        stack: GramStack,
        machine: Machine,
        Z: Array,
        rng: np.random.RandomState,
        projections: Projections | None = None,
    ) -> LearnedGates:
        """Learn from one random start.

        Parameters
        ----------
        stack : GramStack
            The Gram matrices; of `projections`, if given.
        machine : Machine
            What is trained under the gates.
        Z : ndarray of shape (n, n_features)
            Standardised inputs of the gates.
        rng : RandomState
            Of the start.
        projections : Projections, optional
            Those to learn.
        """
        inner = max(min(_INNER * self.tol, _LOOSEST), _TIGHTEST[stack.dtype])
        problem = GatedProblem(stack, machine, self.gating, Z, inner)
        run = _Run(problem, self.gating.init(rng, Z.shape[1], stack.n_kernels), self.step, projections, rng)
        moves = run.gate_step.n_moves or self.max_iter
        with self._progress() as advance:
            converged = run.descend(moves, self.tol, self.n_short, advance)
        at = run.at
        return LearnedGates(
            at.gates.mean(axis=0),
            at.solution,
            at.upper,
            at.solution.gap,
            problem.n_solves,
            run.history,
            V=at.theta,
            gates=at.gates,
            converged=converged,
            kernel_set=None if projections is None else projections.kernel_set,
        )

    def _progress(self) -> AbstractContextManager[Callable[[float, float], None]]:
        return _progress_line(self.tol) if self.verbose else nullcontext(lambda value, decrease: None)


class _Run:
    """The state of one descent: the gates with the machine's solution under them, and the projections."""

    def __init__(
        self,
        problem: GatedProblem,
        V: Array,
        step: str | Step,
        projections: Projections | None,
        rng: np.random.RandomState,
    ) -> None:
        self.problem = problem
        self.gate_step = make_step(step)
        self.projections = projections
        self.projection_step = make_step(step)
        if projections is not None:
            self.W = projections.start(rng)
            projections.write(self.W)
        self.at = problem.evaluate(V)
        self.history = [self._line()]

    def descend(self, moves: int, tol: float, n_short: int, advance: Callable[[float, float], None]) -> bool:
        """Take steps until so many in a row gain less than the tolerance, and return whether that came about."""
        short = 0
        for _ in range(moves):
            before = self.at.upper
            try:
                moved = self._move_projections()
                moved = self._move_gates() or moved
            except ExhaustedError:  # rounding hides the machines' values: there is nothing to descend on
                return False
            if not moved:
                return True
            self.history.append(self._line())
            decrease = (before - self.at.upper) / max(abs(before), np.finfo(float).tiny)
            advance(self.at.upper, decrease)
            short = short + 1 if decrease < tol else 0
            if self.gate_step.monotone and short >= n_short:
                return True
        return not self.gate_step.monotone

    def _move_gates(self) -> bool:
        V = self.at.theta
        if V.size == 0:
            return False
        slope = self.problem.slope(self.at).ravel()
        moved = self.gate_step.move(V.ravel(), self.at, slope, lambda x: self.problem.evaluate(x.reshape(V.shape)))
        if moved is None:
            return False
        self.at = moved[1]
        return True

    def _move_projections(self) -> bool:
        if self.projections is None:
            return False
        projections, V = self.projections, self.at.theta

        def evaluate(x: Array) -> GatedEvaluation:
            projections.write(x)
            return self.problem.evaluate(V)

        slope = projections.slope(self.at.solution.beta, self.at.gates)
        moved = self.projection_step.move(self.W, self.at, slope, evaluate)
        if moved is not None:
            self.W, self.at = moved
        # The last trial of a line search need not be the point it returns.
        projections.write(self.W)
        return moved is not None

    def _line(self) -> Iteration:
        return Iteration(self.at.upper, self.at.solution.gap)


@contextmanager
def _progress_line(tol: float) -> Iterator[Callable[[float, float], None]]:
    """Show the objective and its last relative decrease."""
    with progress("Learning gates") as show:
        count = 0

        def advance(value: float, decrease: float) -> None:
            nonlocal count
            count += 1
            show(f"iteration {count}, J = {value:.6g}, decrease {decrease:.1e} of {tol:.0e}")

        yield advance
