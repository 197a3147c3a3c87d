"""Gates, and projections if there are any, learned together with the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack, KernelSet
from kernelmosaic.learning.base import Iteration
from kernelmosaic.learning.problem import ExhaustedError, Patience
from kernelmosaic.learning.progress import progress
from kernelmosaic.learning.projections import Projections
from kernelmosaic.learning.steps import Step, make_step
from kernelmosaic.machines import Machine
from kernelmosaic.machines.multiclass import MulticlassMachine
from kernelmosaic.solvers import Solution
from kernelmosaic.solvers.multiclass_program import MulticlassSolution

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
class Look:
    """The machine solved under some gates.

    Attributes
    ----------
    value : float
        J, in the program's scale.
    gates : ndarray of shape (n, P)
        Gates of the training samples.
    solution : Solution or MulticlassSolution
        Of the machine on Σ_m g_m g_mᵀ ∘ K_m; β has one column, or one per class.
    """

    value: float
    gates: Array
    solution: Solution | MulticlassSolution

    @property
    def outputs(self) -> Array:
        """β with one row per output, of shape (outputs, n)."""
        return np.atleast_2d(self.solution.beta.T)


@dataclass(frozen=True)
class LearnedGates:
    """What the learner of gates returns.

    Attributes
    ----------
    V : ndarray of shape (P, q)
        Parameters of the gating.
    look : Look
        The machine under them.
    converged : bool
        Whether the stop rule was met; always, for a fixed number of steps.
    n_solves : int
        How often the machine was solved.
    kernel_set : KernelSet or None
        The kernels with their learned projections, if there are any.
    history : list of Iteration
        Objective and gap of the inner problem, from the start on.
    """

    V: Array
    look: Look
    converged: bool
    n_solves: int
    kernel_set: KernelSet | None = None
    history: list[Iteration] = field(default_factory=list)


class GatedProblem:
    """J as a function of the gates' parameters: the machine's value on the locally combined kernel.

    Only β crosses from the machine: ∂J/∂η_m(x_i) = −Σ_c β_ic (K_m (η_m ∘ β_c))_i, summed over the classes of a joint
    machine, which share the gates.
    """

    def __init__(
        self, stack: GramStack, machine: Machine | MulticlassMachine, gating: GateModel, Z: Array, tol: float
    ) -> None:
        self.stack = stack
        self.machine = machine
        self.gating = gating
        self.Z = Z
        self.tol = tol
        self.patience = Patience(stack.n_samples)
        self.n_solves = 0
        self._K: NDArray[Any] | None = None
        self._beta: Array | None = None

    def evaluate(self, V: Array) -> Look:
        """Solve the machine under the gates of V, starting from the last β."""
        gates = self.gating.values(V, self.Z)
        self._K = self.stack.combine_gated(gates, out=self._K)
        self.patience.require()
        solution = self.machine.solve(self._K, self._beta, self.tol)
        self.patience.note(solution, self.tol)
        self._beta = solution.beta
        self.n_solves += 1
        return Look(solution.objective, gates, solution)

    def gate_slopes(self, look: Look) -> Array:
        """Return ∂J/∂η_m(x_i), of shape (n, P); zero where β is, so only the support's rows are read."""
        beta = look.solution.beta
        support = np.flatnonzero(beta if beta.ndim == 1 else np.any(beta != 0, axis=1))
        each = beta[support] * self.stack.gated_products(beta, look.gates, support)
        G = np.zeros_like(look.gates)
        G[support] = -np.sum(each, axis=tuple(range(2, each.ndim))).T
        return G

    def slope(self, V: Array, look: Look) -> Array:
        """Return ∂J/∂V."""
        return self.gating.vjp(V, self.Z, self.gate_slopes(look))


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
        machine: Machine | MulticlassMachine,
        Z: Array,
        rng: np.random.RandomState,
        projections: Projections | None = None,
    ) -> LearnedGates:
        """Learn from one random start.

        Parameters
        ----------
        stack : GramStack
            The Gram matrices; of `projections`, if given.
        machine : Machine or MulticlassMachine
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
        kernel_set = None if projections is None else projections.kernel_set
        return LearnedGates(run.V, run.look, converged, problem.n_solves, kernel_set, run.history)

    def _progress(self) -> AbstractContextManager[Callable[[float, float], None]]:
        return _progress_line(self.tol) if self.verbose else nullcontext(lambda value, decrease: None)


class _Run:
    """The state of one descent: V, the projections, the machine's solution there."""

    def __init__(
        self,
        problem: GatedProblem,
        V: Array,
        step: str | Step,
        projections: Projections | None,
        rng: np.random.RandomState,
    ) -> None:
        self.problem = problem
        self.V = V
        self.gate_step = make_step(step)
        self.projections = projections
        self.projection_step = make_step(step)
        if projections is not None:
            self.W = projections.start(rng)
            projections.write(self.W)
        self.look = problem.evaluate(V)
        self.history = [self._line()]

    def descend(self, moves: int, tol: float, n_short: int, advance: Callable[[float, float], None]) -> bool:
        """Take steps until so many in a row gain less than the tolerance, and return whether that came about."""
        short = 0
        for _ in range(moves):
            before = self.look.value
            try:
                moved = self._move_projections()
                moved = self._move_gates() or moved
            except ExhaustedError:  # rounding hides the machines' values: there is nothing to descend on
                return False
            if not moved:
                return True
            self.history.append(self._line())
            decrease = (before - self.look.value) / max(abs(before), np.finfo(float).tiny)
            advance(self.look.value, decrease)
            short = short + 1 if decrease < tol else 0
            if self.gate_step.monotone and short >= n_short:
                return True
        return not self.gate_step.monotone

    def _move_gates(self) -> bool:
        if self.V.size == 0:
            return False
        shape = self.V.shape
        slope = self.problem.slope(self.V, self.look).ravel()
        moved = self.gate_step.move(self.V.ravel(), self.look, slope, lambda x: self.problem.evaluate(x.reshape(shape)))
        if moved is None:
            return False
        self.V, self.look = moved[0].reshape(shape), moved[1]
        return True

    def _move_projections(self) -> bool:
        if self.projections is None:
            return False
        projections = self.projections

        def evaluate(x: Array) -> Look:
            projections.write(x)
            return self.problem.evaluate(self.V)

        slope = projections.slope(self.look.solution.beta, self.look.gates)
        moved = self.projection_step.move(self.W, self.look, slope, evaluate)
        if moved is not None:
            self.W, self.look = moved
        # The last trial of a line search need not be the point it returns.
        projections.write(self.W)
        return moved is not None

    def _line(self) -> Iteration:
        return Iteration(self.look.value, self.look.solution.gap)


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
