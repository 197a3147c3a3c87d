"""Learning of gates, and of projections if there are any, together with the machine.

`GatedProblem` is the objective as a function of the gates, `GateDescent` lowers it by steps, which
are the classes `Step`.
"""

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

#: Cosine of step and change of the gradient up to which L-BFGS leaves a pair out. Chosen by hand:
#: a little more than rounding.
_LEAST_CURVATURE = 1e-10
#: Relative gap of the machines as a fraction of the tolerance of a step, and its upper bound: the
#: error of a machine must not pass for the gain of a step. Chosen by hand.
_MACHINE_TOL_FRACTION = 0.1
_MAX_MACHINE_TOL = 1e-4
#: Relative gaps below which rounding hides the gap of a machine, in single and double precision.
#: Chosen by hand, some units of the last place of a sum.
_SMALLEST_GAP_32 = 3e-7
_SMALLEST_GAP_64 = 1e-13

# The problem --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatedEvaluation(Evaluation):
    """The solution of the machine under the gates of parameters θ = V.

    Attributes
    ----------
    upper : float
        The primal value of the machine, in the program's scale: the objective J that steps lower.
    gates : ndarray of shape (n, P)
        Gates of the training samples; the kernel is Σ_m g_m g_mᵀ ∘ K_m.
    """

    gates: Array = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class LearnedGates(Learned):
    """Learned gates with the machine's solution; the weights are the mean gates.

    The history begins with the start.

    Attributes
    ----------
    V : ndarray of shape (P, q)
        Parameters of the gating.
    gates : ndarray of shape (n, P)
        Gates of the training samples.
    converged : bool
        Whether the stop rule was met; always true for a fixed number of steps.
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
    """The problem of the machine under fixed gates, which the certificate bounds.

    It is convex, other than the problem in the gates.

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
        """Return the machine's solution under the gates of V = θ, to a relative gap of `tol`.

        None if the solve is refused because rounding hides such a gap.
        """
        gates = self.gating.values(theta, self.Z)
        self._K = self.stack.combine(gates, out=self._K)
        solution = self.solve_machine(self._K, warm_start, tol)
        if solution is None:
            return None
        objective = self.machine.primal_value(solution)
        return GatedEvaluation(theta, solution, objective, np.empty(0), gates=gates)

    def gate_slopes(self, evaluation: GatedEvaluation) -> Array:
        """Return ∂J/∂η_m(x_i), of shape (n, P).

        It is zero where β is, so only the rows of the support are computed.
        """
        beta = evaluation.solution.beta
        support = nonzero_rows(beta)
        # β_ic (K_m (η_m ∘ β_c))_i, of shape (P, support) or (P, support, classes).
        each = beta[support] * self.stack.gated_products(beta, evaluation.gates, support)
        G = np.zeros_like(evaluation.gates)
        G[support] = -np.sum(each, axis=tuple(range(2, each.ndim))).T
        return G

    def slope(self, evaluation: GatedEvaluation) -> Array:
        """Return the gradient ∂J/∂V, of the shape of V."""
        return self.gating.vjp(evaluation.theta, self.Z, self.gate_slopes(evaluation))


@dataclass(frozen=True)
class GateLearner:
    """Minimises J over the gates, in alternation with the projections of kernels that have one.

    Parameters
    ----------
    gating : Gating
        The gates.
    step : str or Step
        The rule of the steps; see `make_step`.
    tol : float
        τ of the stop rule: an iteration is short if J(t) > (1 − τ) J(t − 1), with |J| for a J below
        zero.
    max_iter : int
        The largest number of iterations.
    verbose : bool
        Whether to show a progress line.
    n_short : int
        The number of short iterations in a row at which to stop: between copies of one kernel, a
        single short iteration may precede longer ones.
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
        """Return the gates that are learned from one random start.

        Parameters
        ----------
        stack : GramStack
            The Gram matrices; those of `projections`, if there are any.
        machine : Machine
            The machine that is trained under the gates.
        Z : ndarray of shape (n, n_features)
            Standardised inputs of the gates.
        rng : RandomState
            Draws the start.
        projections : Projections, optional
            The projections to learn.
        """
        problem = GatedProblem(stack, machine, self.gating, Z)
        V = self.gating.init(rng, Z.shape[1], stack.n_kernels)
        smallest_gap = _SMALLEST_GAP_32 if stack.dtype == np.float32 else _SMALLEST_GAP_64
        machine_tol = max(min(_MACHINE_TOL_FRACTION * self.tol, _MAX_MACHINE_TOL), smallest_gap)
        descent = GateDescent(self, problem, machine_tol, projections, V, rng).improve()
        best = descent.current
        return LearnedGates(
            best.gates.mean(axis=0),
            best.solution,
            best.upper,
            best.solution.gap,
            problem.n_solves,
            descent.history,
            V=best.theta,
            gates=best.gates,
            converged=descent.converged,
            kernel_set=None if projections is None else projections.kernel_set,
        )


class GateDescent(Search):
    """A descent from one start.

    It ends after `n_short` steps in a row that gain less than the tolerance, or as soon as no step
    gains anything.

    Parameters
    ----------
    learner : GateLearner
        The options: which steps to take, and when to stop.
    problem : GatedProblem
        The problem to solve.
    machine_tol : float
        Relative gap to which the machine is solved.
    projections : Projections or None
        The projections to learn.
    V : ndarray of shape (P, q)
        Parameters of the gates at the start.
    rng : RandomState
        Draws the start of the projections.

    Attributes
    ----------
    current : GatedEvaluation
        The gates with the machine's solution under them.
    converged : bool
        Whether the stop rule was met; always true after a fixed number of steps.
    """

    current: GatedEvaluation
    history: list[Iteration]

    def __init__(
        self,
        learner: GateLearner,
        problem: GatedProblem,
        machine_tol: float,
        projections: Projections | None,
        V: Array,
        rng: np.random.RandomState,
    ) -> None:
        self.learner = learner
        self.problem = problem
        self.machine_tol = machine_tol
        self.projections = projections
        self.V = V
        self.rng = rng
        self.gate_step = make_step(learner.step)
        self.projection_step = make_step(learner.step)
        # The coefficients of the last trial, from which the machine of the next trial starts.
        self.beta: Array | None = None
        self.show: Callable[[str], None] = lambda state: None
        self.converged = False
        self.n_short = 0
        self.value_before_step = np.inf

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
        start = self._evaluate(self.V)
        # The first solve is never refused: rounding shows only in later ones.
        assert start is not None
        self.current = start
        self.history = [Iteration(start.upper, start.solution.gap)]

    def goes_on(self) -> bool:
        """Whether the stop rule is not met, and moves are left."""
        n_moves = len(self.history) - 1
        max_moves = int(min(self.gate_step.n_moves, self.learner.max_iter))
        return not self.converged and n_moves < max_moves

    def step(self) -> bool:
        """Move projections and gates; return False to end the search.

        It ends if neither move gains, or if rounding hides the values of the machines.
        """
        self.value_before_step = self.current.upper
        has_moved_projections = self._move_projections()
        has_moved_gates = self._move_gates()
        if self.problem.has_refused:
            return False
        self.converged = not (has_moved_projections or has_moved_gates)
        return not self.converged

    def end_step(self) -> None:
        """Add the step to the history, and count short steps in a row."""
        number = len(self.history)
        objective = self.current.upper
        tol = self.learner.tol
        self.history.append(Iteration(objective, self.current.solution.gap))
        decrease = relative_gap(self.value_before_step, objective)
        self.show(f"iteration {number}, J = {objective:.6g}, decrease {decrease:.1e} of {tol:.0e}")
        self.n_short = self.n_short + 1 if decrease < tol else 0
        self.converged = self.gate_step.monotone and self.n_short >= self.learner.n_short

    def finish(self) -> None:
        """Count a fixed number of steps as converged, since the user asked for these."""
        if not self.problem.has_refused and not self.gate_step.monotone:
            self.converged = True

    def _evaluate(self, V: Array) -> GatedEvaluation | None:
        """Return the machine's solution under gates, from the last trial's coefficients on."""
        trial = self.problem.evaluate(V, self.beta, self.machine_tol)
        if trial is not None:
            self.beta = trial.solution.beta
        return trial

    def _move_gates(self) -> bool:
        """Take a step in the gates; return whether it gains."""
        V = self.current.theta
        if V.size == 0:
            return False

        def evaluate(x: Array) -> GatedEvaluation | None:
            return self._evaluate(x.reshape(V.shape))

        gradient = self.problem.slope(self.current).ravel()
        moved = self.gate_step.move(V.ravel(), self.current, gradient, evaluate)
        if moved is None:
            return False
        self.current = moved[1]
        return True

    def _move_projections(self) -> bool:
        """Take a step in the projections; return whether it gains."""
        if self.projections is None:
            return False
        projections = self.projections
        V = self.current.theta

        def evaluate(x: Array) -> GatedEvaluation | None:
            projections.write(x)
            return self._evaluate(V)

        gradient = projections.slope(self.current.solution.beta, self.current.gates)
        moved = self.projection_step.move(self.W, self.current, gradient, evaluate)
        if moved is not None:
            self.W, self.current = moved
        # The last trial of a line search need not be the point that it returns.
        projections.write(self.W)
        return moved is not None


# Projections that are learned with the machine ----------------------------------------------------


class Projections:
    """The projections W_m of a kernel set as one vector, with a stack of their Gram matrices.

    Parameters
    ----------
    kernel_set : KernelSet
        The kernels; copied, so that machines learned side by side do not share projections.
    views : list
        The training samples as the kernels read them.
    weight : ndarray of shape (n,)
        Weights of the samples, over which a normalisation averages.
    budget : float, optional
        The bytes that the stack may take.

    Attributes
    ----------
    numbers : list of int
        The numbers of the projected kernels.
    stack : GramStack
        The Gram matrices of all kernels under the present projections.
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
        """Return kernel m, which must be projected."""
        kernel = self.kernel_set.fitted[m].kernel
        assert isinstance(kernel, Projected)
        return kernel

    def start(self, rng: np.random.RandomState) -> Array:
        """Return the vector of projections at the start; several kernels start apart."""
        is_single = len(self.numbers) == 1
        return np.concatenate([self.kernel(m).start(rng, is_single).ravel() for m in self.numbers])

    def write(self, vector: Array) -> None:
        """Set all projections W, and update their normalisations and the stack."""
        offset = 0
        for m in self.numbers:
            kernel = self.kernel(m)
            size = kernel.W_.size
            kernel.W_ = vector[offset : offset + size].reshape(kernel.W_.shape).copy()
            offset += size
            self.kernel_set.fitted[m].normalization.fit(kernel, self.views[m], self.weight)
        self.stack.recompute(self.numbers, self.views)

    def slope(self, beta: Array, gates: Array) -> Array:
        """Return ∂J/∂W of all projections, as one vector.

        It is −½ Σ_c Σ_ij u_ic u_jc ∂k(x_i, x_j)/∂W with u_c = η_m ∘ β_c.
        """
        columns = beta.reshape(len(beta), -1)
        gradients = [self._gradient(m, gates[:, [m]] * columns) for m in self.numbers]
        return np.concatenate([gradient.ravel() for gradient in gradients])

    def _gradient(self, m: int, U: Array) -> Array:
        """Return −½ Σ_c Σ_ij u_ic u_jc ∂k(x_i, x_j)/∂W for the normalised kernel m.

        Parameters
        ----------
        m : int
            The number of the kernel.
        U : ndarray of shape (n, classes)
            The gated coefficients u_c = η_m ∘ β_c.
        """
        kernel = self.kernel(m)
        normalization = self.kernel_set.fitted[m].normalization
        view = self.views[m]
        support = nonzero_rows(U)
        w = self.weight / self.weight.sum()
        if len(support) == 0:
            return np.zeros_like(kernel.W_)
        if isinstance(normalization, Centered):
            # uᵀHKHᵀu with H = I − 1wᵀ is the form of Hᵀu, which has no zeros: all samples enter
            # the mean.
            U = U - np.outer(w, U.sum(axis=0))
            support = np.arange(len(U))
        X = view[support]
        G = -0.5 * U[support] @ U[support].T
        if isinstance(normalization, UnitTrace | Centered):
            # The kernel is divided by s = Σ_i w_i k(x_i, x_i), less wᵀKw if it is centred, and s
            # depends on W as well.
            G /= normalization.scale_
            total = float(np.sum(G * kernel._block(X, X))) / normalization.scale_
            if isinstance(normalization, Centered):
                G += total * np.outer(w, w)
            return kernel.vjp(X, G) - kernel.diagonal_vjp(view, total * w)
        if isinstance(normalization, UnitDiagonal):
            norms = np.sqrt(kernel._diagonal(X))
            norms[norms == 0] = 1.0
            G /= np.outer(norms, norms)
            diagonal_factors = np.sum(G * kernel._block(X, X), axis=1) / norms**2
            return kernel.vjp(X, G) - kernel.diagonal_vjp(X, diagonal_factors)
        return kernel.vjp(X, G)


def projected_kernels(kernel_set: KernelSet) -> list[int]:
    """Return the numbers of the kernels whose projection is to be learned."""
    kernels = [fitted.kernel for fitted in kernel_set.fitted]
    return [m for m, kernel in enumerate(kernels) if isinstance(kernel, Projected)]


# Steps downhill -----------------------------------------------------------------------------------


At = TypeVar("At", bound=Evaluation)


class Step(ABC):
    """A rule for moving from one point to the next.

    An object serves one search: it may store what moves reveal of the objective.
    """

    #: Whether the objective never rises from one accepted point to the next.
    monotone: bool = True
    #: The largest number of moves; the learner may allow fewer.
    n_moves: float = np.inf
    #: Length of the very first step, in the units of standardised gates, whatever the scale of the
    #: objective. Chosen by hand.
    first_length: float = 0.5
    #: The largest number of evaluations in one line search. Chosen by hand.
    trials: int = 20

    @abstractmethod
    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        """Return the next point with its evaluation; None if no step gains.

        None also if the needed evaluation is None.

        Parameters
        ----------
        x : ndarray
            The current point.
        at : Evaluation
            Its evaluation.
        slope : ndarray
            The gradient of the objective there.
        evaluate : callable
            Returns the evaluation of a point, or None.
        """


class FixedStep(Step):
    """V ← V − 0.01 ∂J/∂V, fifty times, as in Gönen and Alpaydın (2008); the objective may rise."""

    monotone = False

    def __init__(self, size: float = 0.01, n_moves: int = 50) -> None:
        self.size = size
        self.n_moves = n_moves

    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        moved = x - self.size * slope
        evaluation = evaluate(moved)
        return None if evaluation is None else (moved, evaluation)


class ArmijoStep(Step):
    """Steepest descent with Armijo's rule: J(V − Δ G) ≤ J − c Δ ‖G‖².

    The first trial Δ is twice the last step.
    """

    def __init__(self) -> None:
        self.size: float | None = None

    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None
        first_size = self.first_length / norm if self.size is None else 2.0 * self.size

        def evaluate_step(size: float) -> At | None:
            return evaluate(x - size * slope)

        result = line_search(evaluate_step, at, -(norm**2), Trials(self.trials, first_size))
        if result is None:
            return None
        self.size, evaluation = result
        return x - self.size * slope, evaluation


class QuasiNewtonStep(Step):
    """L-BFGS with Armijo's rule; pairs without positive curvature are left out.

    Parameters
    ----------
    memory : int
        The number of pairs (step, change of the gradient) that are stored.
    """

    def __init__(self, memory: int = 20) -> None:
        self.pairs: deque[tuple[Array, Array]] = deque(maxlen=memory)
        self.last: tuple[Array, Array] | None = None

    def move(
        self, x: Array, at: At, slope: Array, evaluate: Callable[[Array], At | None]
    ) -> tuple[Array, At] | None:
        self._add_pair(x, slope)
        norm = float(np.linalg.norm(slope))
        if norm == 0:
            return None

        def search(direction: Array, size: float, grow: bool) -> tuple[Array, At] | None:
            derivative = float(direction @ slope)
            trials = Trials(self.trials, size, grow=grow)
            result = line_search(
                lambda size: evaluate(x + size * direction), at, derivative, trials
            )
            if result is None:
                return None
            step_size, evaluation = result
            return x + step_size * direction, evaluation

        if not self.pairs:
            return search(-slope, self.first_length / norm, grow=True)
        # The inverse of the curvature is that along the last step in all directions, and then
        # updated by all pairs.
        s, y = self.pairs[-1]
        unit = np.sqrt((s @ y) / (y @ y))
        S, Y = map(np.array, zip(*self.pairs, strict=True))
        inverse_hessian = LbfgsInvHessProduct(S / unit, Y * unit)
        moved = search(-unit * (inverse_hessian @ (unit * slope)), 1.0, grow=False)
        if moved is None:
            # The stored curvature does not hold at this point: forget it, and search downhill.
            self.pairs.clear()
            moved = search(-slope, self.first_length / norm, grow=False)
        return moved

    def _add_pair(self, x: Array, slope: Array) -> None:
        """Store the step from the last point to this one, if the curvature along it is positive."""
        if self.last is not None:
            last_x, last_slope = self.last
            s = x - last_x
            y = slope - last_slope
            if s @ y > _LEAST_CURVATURE * np.linalg.norm(s) * np.linalg.norm(y):
                self.pairs.append((s, y))
        self.last = (x.copy(), slope.copy())


#: Steps by their names in the parameter `step` of estimators.
STEPS: dict[str, type[Step]] = {"lbfgs": QuasiNewtonStep, "armijo": ArmijoStep, "fixed": FixedStep}


def make_step(step: Any) -> Step:
    """Return the step of a name, or a copy of a `Step`; other values raise a ValueError."""
    if isinstance(step, Step):
        return deepcopy(step)
    return STEPS[check_choice("step", step, STEPS)]()
