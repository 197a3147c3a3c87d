"""Learning the weights for discriminant analysis: the problem that every formulation solves, and Newton steps on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Iteration
from kernelmosaic.learning.discriminant_ridge import RidgeSolution, make_ridge
from kernelmosaic.learning.norms import SumNorm, Weights
from kernelmosaic.learning.problem import BoundTracker, line_search
from kernelmosaic.learning.progress import GapProgress, gap_progress
from kernelmosaic.machines.discriminant import Discriminant, Matrix
from kernelmosaic.solvers import relative_gap
from kernelmosaic.solvers.program import require_finite

#: A learned λ keeps at least this share of the trace: nothing is lost beyond that relative size, and no matrix is
#: singular.
_LEAST = 1e-10
#: A kernel whose centred trace is below this share of its trace is constant up to rounding.
_CONSTANT = 1e-12
#: Most evaluations in one line search.
_ATTEMPTS = 12


@dataclass(frozen=True)
class Evaluation:
    """The least-squares problems of all targets solved at some weights.

    Attributes
    ----------
    shares : ndarray of shape (P,) or (1 + P,)
        s = θ ∘ r: what each kernel has of the trace; the identity first where λ is learned.
    solution : RidgeSolution
        β, and how it answers to the weights.
    upper : float
        Primal value, no less than the optimum.
    q : ndarray like `shares`
        Σ_j β_jᵀN_iβ_j for the matrices N_i = G̃_i / r_i of trace one: the value falls with the slope −scale · q.
    """

    shares: Weights
    solution: RidgeSolution
    upper: float
    q: Weights

    @property
    def beta(self) -> Matrix:
        return self.solution.beta


@dataclass(frozen=True)
class DiscriminantLearned:
    """What is learned.

    Attributes
    ----------
    weights : ndarray of shape (P,)
        θ, with Σ θ_i r_i = 1 (together with λm where λ is learned).
    alpha : float
        λ.
    beta, values : ndarray of shape (n, k)
        (λI + G̃)⁻¹H and G̃β for the combined kernel.
    objective : float
        Value of the training problem.
    gap : float
        Certified relative duality gap, weights included.
    n_solves : int
        Factorisations.
    history : list of Iteration
        Objective and gap after every iteration.
    """

    weights: Weights
    alpha: float
    beta: Matrix
    values: Matrix
    objective: float
    gap: float
    n_solves: int
    history: list[Iteration] = field(default_factory=list)


class DiscriminantProblem:
    """min over θ ≥ 0, Σ θ_i r_i = 1, of scale · Σ_j h_jᵀ(λI + Σ θ_iG̃_i)⁻¹h_j, seen through the shares s = θ ∘ r.

    With ``machine.alpha=None`` the identity is one more kernel, of trace m, and λ its weight.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred: their coefficients sum to zero, so centring what comes out is enough.
    machine : Discriminant
        The targets and λ.
    traces : ndarray of shape (P,)
        The r_i; zero for kernels that are constant on the training set, which get no weight.
    """

    def __init__(self, stack: GramStack, machine: Discriminant, traces: Weights) -> None:
        if not np.any(traces > 0):
            raise ValueError(
                "kernels: every kernel is constant on the training set, so there is nothing to tell classes by."
            )
        self.stack = stack
        self.machine = machine
        self.traces = traces
        self.joint = machine.alpha is None
        self.n_solves = 0
        self.ridge = make_ridge(stack, machine)
        inverse = np.divide(1.0, traces, out=np.zeros_like(traces), where=traces > 0)
        self._units = np.append(1.0 / stack.n_samples, inverse) if self.joint else inverse
        # Constant kernels are left out of the simplex altogether.
        self.usable = np.flatnonzero(np.append(np.ones(int(self.joint)), traces) > 0)

    @property
    def n_shares(self) -> int:
        return self.stack.n_kernels + int(self.joint)

    def start(self) -> Weights:
        """Return equal shares of the trace."""
        return self.spread(np.full(len(self.usable), 1.0 / len(self.usable)))

    def spread(self, shares: Weights) -> Weights:
        """Return the shares of all kernels from those of the usable ones, on the simplex and with λ above zero."""
        out = np.zeros(self.n_shares)
        out[self.usable] = np.maximum(shares, 0.0)
        out /= out.sum()
        if self.joint:
            out[0] = max(out[0], _LEAST)
            # Where nothing beats the identity, the kernels still say in which directions the classes differ.
            out[self.usable[1:]] += max(_LEAST - float(out[1:].sum()), 0.0) / (len(self.usable) - 1)
            out /= out.sum()
        return out

    def weights(self, shares: Weights) -> tuple[Weights, float]:
        """Return θ and λ."""
        own = shares[int(self.joint) :]
        theta = np.divide(own, self.traces, out=np.zeros_like(own), where=self.traces > 0)
        alpha = self.machine.alpha
        return theta, shares[0] / self.stack.n_samples if alpha is None else alpha

    def evaluate(self, shares: Weights) -> Evaluation:
        """Solve for all targets at these shares, with the slopes of all kernels."""
        theta, alpha = self.weights(shares)
        try:
            solution = self.ridge.solve(theta, alpha)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"alpha={alpha:g} leaves the regularised kernel matrix singular to machine precision: raise alpha."
            ) from None
        self.n_solves += 1
        upper = require_finite(self.machine.objective_scale * solution.value)
        return Evaluation(shares, solution, upper, self._slopes(solution.beta, solution.forms))

    def lower(self, at: Evaluation) -> float:
        """What β, scaled as is best, guarantees whatever the weights."""
        return self._lower(at.beta, at.q)

    def guarantee(self, beta: Matrix) -> float:
        """Return the lower bound of any β; its columns are centred first."""
        beta = beta - beta.mean(axis=0)
        return self._lower(beta, self._slopes(beta, self.ridge.forms(beta)))

    def _lower(self, beta: Matrix, q: Weights) -> float:
        gain = float(np.sum(self.machine.targets * beta))
        rest = float(q[self.usable].max()) + (
            0.0 if self.machine.alpha is None else self.machine.alpha * float(np.sum(beta**2))
        )
        return self.machine.objective_scale * max(gain, 0.0) ** 2 / rest if rest > 0 else 0.0

    def curvature(self, at: Evaluation) -> NDArray[np.float64]:
        """Return ∂²/∂s² of Σ_j h_jᵀ(…)⁻¹h_j over the usable kernels: 2 Σ_j (N_iβ_j)ᵀ(…)⁻¹(N_lβ_j)."""
        unit = self._units[self.usable]
        chosen = at.solution.responses(identity=self.joint)[np.ix_(self.usable, self.usable)]
        return np.asarray(2.0 * unit[:, np.newaxis] * chosen * unit)

    def learned(
        self, best: Evaluation, gap: float, history: list[Iteration], objective: float | None = None
    ) -> DiscriminantLearned:
        theta, alpha = self.weights(best.shares)
        value = best.upper if objective is None else objective
        return DiscriminantLearned(theta, alpha, best.beta, best.solution.values, value, gap, self.n_solves, history)

    def _slopes(self, beta: Matrix, forms: Weights) -> Weights:
        """Return q from β and Σ_j β_jᵀG̃_iβ_j."""
        return np.asarray(self._units * (np.append(np.sum(beta**2), forms) if self.joint else forms))


def centered_traces(stack: GramStack, diagonals: NDArray[np.float64]) -> Weights:
    """Return r_i = tr ΠG_iΠ, exactly zero for kernels that are constant on the training set.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonals : ndarray of shape (P, n)
        k_i(x, x) on the training set.
    """
    n = stack.n_samples
    totals = 2.0 * stack.quadratic_forms(np.ones(n))
    traces = diagonals.sum(axis=1)
    centred = traces - totals / n
    return np.where(centred > _CONSTANT * traces, centred, 0.0)


class DiscriminantLearner(ABC):
    """One formulation of the problem.

    Parameters
    ----------
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress bar.

    Attributes
    ----------
    advice : str
        What to do when the gap is not met.
    reads_matrices : bool
        Whether it needs the kernels as matrices, not only solutions of the problem.
    """

    reads_matrices = False
    advice = "raise max_iter, or accept a larger tol."

    def __init__(self, tol: float = 5e-4, max_iter: int = 100, verbose: bool = False) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    @abstractmethod
    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned: ...

    def progress(self) -> GapProgress:
        return gap_progress("Discriminant", self.tol) if self.verbose else nullcontext(lambda gap: None)


class DiscriminantNewton(DiscriminantLearner):
    """Newton steps over the simplex of shares.

    The value is smooth and convex in the weights, and one factorisation gives it with its gradient and Hessian, so the
    quadratic model is exact to second order; it is minimised over the simplex and searched along.
    """

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        found = BoundTracker(problem, problem.evaluate(problem.start()))
        found.improve(lambda: self._step(problem, found), self.tol, self.max_iter, self.progress())
        return problem.learned(found.best, found.gap, found.history)

    def _step(self, problem: DiscriminantProblem, found: BoundTracker[Evaluation]) -> bool:
        """Step to the model's minimiser, or as far towards it as pays; False when nothing more does."""
        here, usable = found.best, problem.usable
        s, q = here.shares[usable], here.q[usable]
        # Slopes and curvature in units of the value, so that the model's own tolerance means something.
        unit = max(float(q.max()), 1e-300)
        direction = SumNorm().newton_direction(s, q / unit, problem.curvature(here) / unit)
        slope = -problem.machine.objective_scale * float(q @ direction)
        before = found.lower

        def evaluate(size: float) -> Evaluation:
            there = problem.evaluate(problem.spread(s + size * direction))
            found.bound(problem.lower(there))
            return there

        there = line_search(
            evaluate,
            here,
            slope,
            value=lambda at: at.upper,
            slope_at=lambda at: -problem.machine.objective_scale * float(at.q[usable] @ direction),
            hidden=lambda size, at: found.gap <= self.tol,
            attempts=_ATTEMPTS,
        )
        found.best = found.best if there is None else there
        return there is not None or found.gap <= self.tol or found.lower > before


class DiscriminantFixed(DiscriminantLearner):
    """Weights that are given and kept; their shares of the trace need not sum to one.

    Parameters
    ----------
    weights : ndarray of shape (P,)
        θ.
    """

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        shares = self.weights * problem.traces
        at = problem.evaluate(shares)
        scale = problem.machine.objective_scale
        linear = 2.0 * float(np.sum(problem.machine.targets * at.beta)) - scale * float(np.sum(at.beta**2))
        gap = relative_gap(at.upper, scale * (linear - float(shares @ at.q)))
        # A kernel that is constant on the training set has no share of the trace, but keeps its weight.
        return replace(problem.learned(at, gap, [Iteration(at.upper, gap)]), weights=self.weights)
