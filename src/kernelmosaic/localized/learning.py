"""Gates, and projections if there are any, learned together with the machine, and the steps
downhill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import LbfgsInvHessProduct

from kernelmosaic._checks import check_choice
from kernelmosaic._typing import Array
from kernelmosaic.gram.kernel_set import KernelSet, Views
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.gram.normalizing import Centered, UnitDiagonal, UnitTrace
from kernelmosaic.gram.stack import GramStack, make_stack
from kernelmosaic.kernels.transformed import Projected
from kernelmosaic.learning.certificate import (
    Entries,
    Forms,
    Iteration,
    KernelWeights,
    Learned,
    gated_forms,
)
from kernelmosaic.learning.problem import Evaluation, Numbers, Problem, progress
from kernelmosaic.localized.gating import Gating
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.line_search import Trials, line_search
from kernelmosaic.solvers.program import relative_gap
from kernelmosaic.solvers.search import Search

# The problem --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatedEvaluation(Evaluation):
    """The machine solved under the gates of parameters θ = V.

    Attributes
    ----------
    upper : float
        The primal value of the machine, in the program's scale: the value of the model, and what
        steps are to lower.
    gates : ndarray of shape (n, P)
        Gates of the training samples; the kernel is Σ_m g_m g_mᵀ ∘ K_m.
    """

    gates: Array = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class LearnedGates(Learned):
    """What the learner of gates returns: the weights are the mean gates, the history begins with
    the start.

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

    def problem(self, entries: Entries, machine: Any, learner: Any) -> GivenGates:
        return GivenGates(entries, machine, learner, self.gates)


@dataclass(frozen=True)
class GivenGates(KernelWeights):
    """The problem of the machine under its gates, which is convex; that of the gates is not.

    Attributes
    ----------
    gates : ndarray of shape (n, P)
        Gates of the training samples.
    """

    gates: Array

    def forms(self, weights: Array, solution: Any) -> Forms:
        return gated_forms(self.entries, solution.beta, self.gates)

    def lower_bound(self, weights: Array, solution: Any, forms: Forms) -> float:
        constant: float = self.machine.linear_bound(solution)
        return constant - forms.quadratic - forms.quadratic_error

    def lower_bound_without_rounding(self, weights: Array, solution: Any, forms: Forms) -> None:
        return None


class GatedProblem(Problem):
    """J as a function of the gates' parameters: the machine's value on the locally combined kernel.

    Only β crosses from the machine: ∂J/∂η_m(x_i) = −Σ_c β_ic (K_m (η_m ∘ β_c))_i, summed over the
    classes of a joint machine, which share the gates. J is not convex, and no evaluation bounds it
    from below.
    """

    def __init__(self, stack: GramStack, machine: Machine, gating: Gating, Z: Array) -> None:
        super().__init__(stack, machine)
        self.gating, self.Z = gating, Z
        self._K: Any = None

    def evaluate(
        self, theta: Array, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> GatedEvaluation | None:
        """Solve the machine under the gates of V = θ to a relative gap of `tol`; None where the
        solve is refused."""
        gates = self.gating.values(theta, self.Z)
        self._K = self.stack.combine(gates, out=self._K)
        solution = self.solve_machine(self._K, warm_start, tol)
        if solution is None:
            return None
        return GatedEvaluation(
            theta, solution, self.machine.primal_value(solution), np.empty(0), gates=gates
        )

    def gate_slopes(self, at: GatedEvaluation) -> Array:
        """Return ∂J/∂η_m(x_i), of shape (n, P); zero where β is, so only the support's rows are
        read."""
        beta, support = at.solution.beta, nonzero_rows(at.solution.beta)
        each = beta[support] * self.stack.gated_products(beta, at.gates, support)
        G = np.zeros_like(at.gates)
        G[support] = -np.sum(each, axis=tuple(range(2, each.ndim))).T
        return G

    def slope(self, at: GatedEvaluation) -> Array:
        """Return ∂J/∂V."""
        return self.gating.vjp(at.theta, self.Z, self.gate_slopes(at))


@dataclass(frozen=True)
class GateLearner:
    """Minimises J over the gates, and over the projections of kernels that have one, in
    alternation.

    Parameters
    ----------
    gating : Gating
        The gates.
    step : str or Step
        How to move; see `make_step`.
    tol : float
        τ of the stop rule: an iteration is short if J(t) > (1 − τ) J(t − 1), with |J| for a J below
        zero.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress line.
    n_short : int
        Short iterations in a row at which to stop: between copies of one kernel, one is not the
        end.
    """

    gating: Gating
    step: str | Step = "armijo"
    tol: float = 1e-3
    max_iter: int = 100
    verbose: bool = False
    n_short: int = 3

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
        problem = GatedProblem(stack, machine, self.gating, Z)
        V = self.gating.init(rng, Z.shape[1], stack.n_kernels)
        # The machine is solved so exactly that its error does not pass for a step's gain; rounding
        # hides smaller gaps.
        inner = max(min(0.1 * self.tol, 1e-4), 3e-7 if stack.dtype == np.float32 else 1e-13)
        descent = GateDescent(self, problem, inner, projections, V, rng).improve()
        at, kernel_set = descent.at, None if projections is None else projections.kernel_set
        return LearnedGates(
            at.gates.mean(axis=0),
            at.solution,
            at.upper,
            at.solution.gap,
            problem.n_solves,
            descent.history,
            V=at.theta,
            gates=at.gates,
            converged=descent.converged,
            kernel_set=kernel_set,
        )


class GateDescent(Search):
    """One descent: steps until `n_short` in a row gain less than the tolerance, or none gains
    anything.

    Parameters
    ----------
    learner : GateLearner
        Which steps to take, and when to stop.
    problem : GatedProblem
        What is being solved.
    inner : float
        Relative gap to which the machine is solved.
    projections : Projections or None
        Those to learn.
    V : ndarray of shape (P, q)
        Parameters of the gates to start from.
    rng : RandomState
        Of where the projections start.

    Attributes
    ----------
    at : GatedEvaluation
        The gates with the machine's solution under them.
    converged : bool
        Whether the stop rule was met; always, once a fixed number of steps was taken.
    """

    at: GatedEvaluation
    history: list[Iteration]

    def __init__(
        self,
        learner: GateLearner,
        problem: GatedProblem,
        inner: float,
        projections: Projections | None,
        V: Array,
        rng: np.random.RandomState,
    ) -> None:
        self.learner, self.problem, self.inner, self.projections = (
            learner,
            problem,
            inner,
            projections,
        )
        self.V, self.rng = V, rng
        self.gate_step, self.projection_step = make_step(learner.step), make_step(learner.step)
        # Of the last trial: the next one is near it.
        self.beta: Array | None = None
        self.show: Callable[[str], None] = lambda state: None
        self.converged = False
        self.n_short, self.value_before_step = 0, np.inf

    @contextmanager
    def context(self) -> Iterator[None]:
        """Show the objective."""
        with progress("Learning gates", verbose=self.learner.verbose) as self.show:
            yield

    def begin(self) -> None:
        """Solve the machine at the start."""
        if self.projections is not None:
            self.W = self.projections.start(self.rng)
            self.projections.write(self.W)
        first = self._evaluate(self.V)
        assert first is not None  # nothing has been solved in vain yet
        self.at = first
        self.history = [Iteration(first.upper, first.solution.gap)]

    def goes_on(self) -> bool:
        """Whether the stop rule is not met, and moves are left."""
        n_moves = len(self.history) - 1
        return not self.converged and n_moves < int(
            min(self.gate_step.n_moves, self.learner.max_iter)
        )

    def step(self) -> bool:
        """Move projections and gates; False if neither gains, or rounding hides the machines'
        values."""
        self.value_before_step = self.at.upper
        moved_projections = self._move_projections()
        moved_gates = self._move_gates()
        if self.problem.has_refused:
            return False
        self.converged = not (moved_projections or moved_gates)
        return not self.converged

    def end_step(self) -> None:
        """Add a line to the history, and count short steps."""
        number, tol = len(self.history), self.learner.tol
        self.history.append(Iteration(self.at.upper, self.at.solution.gap))
        decrease = relative_gap(self.value_before_step, self.at.upper)
        self.show(
            f"iteration {number}, J = {self.at.upper:.6g}, decrease {decrease:.1e} of {tol:.0e}"
        )
        self.n_short = self.n_short + 1 if decrease < tol else 0
        self.converged = self.gate_step.monotone and self.n_short >= self.learner.n_short

    def finish(self) -> None:
        """A fixed number of steps is what was asked for."""
        if not self.problem.has_refused and not self.gate_step.monotone:
            self.converged = True

    def _evaluate(self, V: Array) -> GatedEvaluation | None:
        trial = self.problem.evaluate(V, self.beta, self.inner)
        if trial is not None:
            self.beta = trial.solution.beta
        return trial

    def _move_gates(self) -> bool:
        V = self.at.theta
        if V.size == 0:
            return False
        slope = self.problem.slope(self.at).ravel()
        moved = self.gate_step.move(
            V.ravel(), self.at, slope, lambda x: self._evaluate(x.reshape(V.shape))
        )
        if moved is not None:
            self.at = moved[1]
        return moved is not None

    def _move_projections(self) -> bool:
        if self.projections is None:
            return False
        projections, V = self.projections, self.at.theta

        def evaluate(x: Array) -> GatedEvaluation | None:
            projections.write(x)
            return self._evaluate(V)

        slope = projections.slope(self.at.solution.beta, self.at.gates)
        moved = self.projection_step.move(self.W, self.at, slope, evaluate)
        if moved is not None:
            self.W, self.at = moved
        # The last trial of a line search need not be the point it returns.
        projections.write(self.W)
        return moved is not None


# Projections that are learned with the machine ----------------------------------------------------


class Projections:
    """The matrices W_m of a kernel_set's projected kernels as one vector, with a stack that follows
    them.

    Parameters
    ----------
    kernel_set : KernelSet
        The kernels; copied, so that machines learned side by side do not share projections.
    views : list
        The training samples as they read them.
    weight : ndarray of shape (n,)
        Weights of the samples, which a scale may average over.
    budget : float, optional
        Of the stack.
    """

    def __init__(
        self, kernel_set: KernelSet, views: Views, weight: Array, budget: float | None = None
    ) -> None:
        self.kernel_set = KernelSet(
            tuple(deepcopy(fitted_kernel) for fitted_kernel in kernel_set.fitted)
        )
        self.views = views
        self.weight = weight
        self.numbers = projected_kernels(kernel_set)
        self.stack = make_stack(self.kernel_set, views, budget=budget)

    def kernel(self, m: int) -> Projected:
        kernel = self.kernel_set.fitted[m].kernel
        assert isinstance(kernel, Projected)
        return kernel

    def start(self, rng: np.random.RandomState) -> Array:
        """Return where to begin, each kernel elsewhere if there are several."""
        alone = len(self.numbers) == 1
        return np.concatenate([self.kernel(m).start(rng, alone).ravel() for m in self.numbers])

    def write(self, vector: Array) -> None:
        """Put all W, the scales that depend on them, and the stored matrices in place."""
        at = 0
        for m in self.numbers:
            kernel, view = self.kernel(m), self.views[m]
            size = kernel.W_.size
            kernel.W_ = vector[at : at + size].reshape(kernel.W_.shape).copy()
            at += size
            self.kernel_set.fitted[m].normalization.fit(kernel, view, self.weight)
        self.stack.recompute(self.numbers, self.views)

    def slope(self, beta: Array, gates: Array) -> Array:
        """Return ∂J/∂W of all projections: −½ Σ_c Σ_ij u_ic u_jc ∂k(x_i, x_j)/∂W with u_c = η_m ∘
        β_c."""
        columns = beta.reshape(len(beta), -1)
        return np.concatenate(
            [self._slope(m, gates[:, [m]] * columns).ravel() for m in self.numbers]
        )

    def _slope(self, m: int, U: Array) -> Array:
        kernel, scale, view = self.kernel(m), self.kernel_set.fitted[m].normalization, self.views[m]
        support, share = nonzero_rows(U), self.weight / self.weight.sum()
        if len(support) == 0:
            return np.zeros_like(kernel.W_)
        if isinstance(scale, Centered):
            # uᵀHKHᵀu with H = I − 1wᵀ reads K through Hᵀu, which is zero nowhere: the mean is made
            # of all samples.
            U, support = U - np.outer(share, U.sum(axis=0)), np.arange(len(U))
        X = view[support]
        G = -0.5 * U[support] @ U[support].T
        if isinstance(scale, UnitTrace | Centered):
            # The kernel is divided by Σ_i w_i k(x_i, x_i), less wᵀKw if it is centred, which
            # answers to W as well.
            G /= scale.scale_
            total = float(np.sum(G * kernel._block(X, X))) / scale.scale_
            if isinstance(scale, Centered):
                G += total * np.outer(share, share)
            return kernel.vjp(X, G) - kernel.diagonal_vjp(view, total * share)
        if isinstance(scale, UnitDiagonal):
            norms = np.sqrt(kernel._diagonal(X))
            norms[norms == 0] = 1.0
            G /= np.outer(norms, norms)
            own = np.sum(G * kernel._block(X, X), axis=1) / norms**2
            return kernel.vjp(X, G) - kernel.diagonal_vjp(X, own)
        return kernel.vjp(X, G)


def projected_kernels(kernel_set: KernelSet) -> list[int]:
    """Return the numbers of the kernels whose projection is to be learned."""
    return [
        m
        for m, fitted_kernel in enumerate(kernel_set.fitted)
        if isinstance(fitted_kernel.kernel, Projected)
    ]


# Steps downhill -----------------------------------------------------------------------------------


At = TypeVar("At", bound=Evaluation)


class Step(ABC):
    """A way to move from one point to the next; it keeps what moves show of the objective."""

    #: Whether the objective never rises from one accepted point to the next.
    monotone: bool = True
    #: Most moves to make; the learner may allow fewer.
    n_moves: float = np.inf
    #: Length of the very first step, in the units of standardised gates, whatever the objective's
    #: scale.
    first_length: float = 0.5
    #: Most evaluations in one line search.
    trials: int = 20

    @abstractmethod
    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        """Return the next point with its evaluation; None where no step gains, or an evaluation is
        None."""


class FixedStep(Step):
    """V ← V − 0.01 ∂J/∂V, fifty times, as in Gönen and Alpaydın (2008); the objective may rise."""

    monotone = False

    def __init__(self, size: float = 0.01, n_moves: int = 50) -> None:
        self.size, self.n_moves = size, n_moves

    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        moved = x - self.size * slope
        evaluation = evaluate(moved)
        return None if evaluation is None else (moved, evaluation)


class ArmijoStep(Step):
    """Steepest descent with Armijo's rule: J(V − Δ G) ≤ J − c Δ ‖G‖²; the first trial is twice the
    last step."""

    def __init__(self) -> None:
        self.size: float | None = None

    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None
        first = self.first_length / norm if self.size is None else 2.0 * self.size
        found = line_search(
            lambda size: evaluate(x - size * slope), at, -(norm**2), Trials(self.trials, first)
        )
        if found is None:
            return None
        self.size = found[0]
        return x - self.size * slope, found[1]


class QuasiNewtonStep(Step):
    """L-BFGS with Armijo's rule; pairs without positive curvature are left out.

    Parameters
    ----------
    memory : int
        Pairs of steps and slope changes to keep.
    """

    def __init__(self, memory: int = 20) -> None:
        self.pairs: deque[tuple[Array, Array]] = deque(maxlen=memory)
        self.last: tuple[Array, Array] | None = None

    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        self._learn(x, slope)
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None

        def search(direction: Array, size: float, grow: bool) -> tuple[Array, At] | None:
            steep = float(direction @ slope)
            trials = Trials(self.trials, size, grow=grow)
            found = line_search(lambda size: evaluate(x + size * direction), at, steep, trials)
            return None if found is None else (x + found[0] * direction, found[1])

        if not self.pairs:
            return search(-slope, self.first_length / norm, grow=True)
        s, y = self.pairs[-1]
        # The inverse of the curvature is that along the last step in all directions, and then
        # updated by all pairs.
        unit = np.sqrt((s @ y) / (y @ y))
        S, Y = map(np.array, zip(*self.pairs, strict=True))
        found = search(
            -unit * (LbfgsInvHessProduct(S / unit, Y * unit) @ (unit * slope)), 1.0, grow=False
        )
        if found is None:
            # What was learned of the curvature does not hold here: start again downhill.
            self.pairs.clear()
            found = search(-slope, self.first_length / norm, grow=False)
        return found

    def _learn(self, x: Array, slope: Array) -> None:
        if self.last is not None:
            s, y = x - self.last[0], slope - self.last[1]
            if s @ y > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
                self.pairs.append((s, y))
        self.last = (x.copy(), slope.copy())


#: Steps by the name an estimator's `step` gives them.
STEPS: dict[str, type[Step]] = {"lbfgs": QuasiNewtonStep, "armijo": ArmijoStep, "fixed": FixedStep}


def make_step(step: Any) -> Step:
    """Return the step of that name, or a copy of the one given, or raise naming those there are."""
    if isinstance(step, Step):
        return deepcopy(step)
    return STEPS[check_choice("step", step, STEPS)]()
