"""Discriminant analysis as a problem in the weights: least squares on centred kernels, in matrices or in features.

Beside it are the learners by the papers' other programs: quadratic constraints, matrix inequalities, and Kim's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import helmert

from kernelmosaic._typing import Array
from kernelmosaic.backend import row_strips
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, LearnedRidge, Start
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    BoundTracker,
    Evaluation,
    Learner,
    LearnerOptions,
    Numbers,
    WeightProblem,
    gap_progress,
    make_problem,
)
from kernelmosaic.machines.discriminant import Discriminant, Matrix, binary_targets, center, within_class_matrix
from kernelmosaic.solvers.conic import BarrierSolution, MatrixInequality, solve_matrix_inequalities
from kernelmosaic.solvers.interior_point import centring, longest_step
from kernelmosaic.solvers.least_squares import MatrixLeastSquares
from kernelmosaic.solvers.program import relative_gap, require_finite

#: A kernel whose centred trace is below this share of its trace, or a feature whose variance is below this share of its
#: mean square, is constant up to rounding.
_CONSTANT = 1e-12
#: A solution in features is refined until it is this exact, relative to its size; smaller residuals are rounding.
_EXACT = 1e-10


class DiscriminantProblem(WeightProblem):
    """min over θ ≥ 0, Σ θ_i r_i = 1, of Σ_j h_jᵀ(λI + Σ θ_iG̃_i)⁻¹h_j, seen through the shares s = θ ∘ r of the trace.

    The shares are scaled weights like any others, with penalties d_i² = r_i, and live in the set of `SumNorm`. With
    ``machine.alpha=None`` the identity is one more kernel, the first, of trace m, and λ its weight. The slope in s_i is
    −q_i with q_i = Σ_j β_jᵀN_iβ_j and N_i = G̃_i / r_i, a matrix of trace one.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred: their coefficients sum to zero, so centring what comes out is enough.
    machine : Discriminant
        The targets and λ.
    options : LearnerOptions
        Penalties √r_i, see `trace_penalties`; infinite for kernels that are constant on the training set, which get no
        weight.

    Attributes
    ----------
    stated_alpha : float or "learn"
        λ as the user states it, for errors.
    """

    exact = True
    machine: Discriminant

    def __init__(self, stack: GramStack, machine: Discriminant, options: LearnerOptions) -> None:
        super().__init__(stack, machine, options)
        self.joint = machine.alpha is None
        self.stated_alpha: float | str = "learn" if machine.alpha is None else machine.alpha
        if self.joint:
            self.scale = np.append(1.0 / stack.n_samples, self.scale)
        # Where samples are fewer than features, so are the entries of their matrix.
        features = stack.widths is not None and stack.n_samples > stack.widths.sum()
        self.ridge: Ridge = FeatureRidge(stack, machine) if features else MatrixRidge(stack, machine)

    def start(self) -> Weights:
        return self.retract(np.ones(len(self.scale)))

    def retract(self, theta: Weights, least: float = 1e-10) -> Weights:
        """Return shares on the simplex, without any for constant kernels and with λ above zero.

        A learned λ keeps the least share: nothing is lost beyond that relative size, and no matrix is singular.
        """
        out = self.norm.retract(np.where(self.scale > 0, theta, 0.0))
        if self.joint:
            out[0] = max(out[0], least)
            # Where nothing beats the identity, the kernels still define directions in which the classes differ.
            usable = self.scale[1:] > 0
            out[1:][usable] += max(least - float(out[1:].sum()), 0.0) / np.count_nonzero(usable)
            out /= out.sum()
        return out

    def scaled(self, weights: Weights) -> Weights:
        """Return the shares of given weights; the first ones where λ, which they do not include, has a share, too."""
        return self.start() if self.joint else super().scaled(weights)

    def solve(self, theta: Weights, warm_start: Any = None, tol: float = 0.0) -> RidgeSolution:
        """Solve for all targets at these shares; nothing is gained by a start, or by a tolerance."""
        weights = theta * self.scale
        alpha = weights[0] if self.machine.alpha is None else self.machine.alpha
        try:
            solution = self.ridge.solve(weights[int(self.joint) :], float(alpha))
        except np.linalg.LinAlgError:
            remedy = "give alpha a number, say 1e-3" if self.joint else "raise alpha"
            raise ValueError(
                f"alpha={self.stated_alpha!r} leaves the regularised kernel matrix singular to machine precision: "
                f"{remedy}."
            ) from None
        self.n_solves += 1
        return solution

    def evaluate(self, theta: Weights, warm_start: Any = None, tol: float = 0.0, kernels: Numbers = None) -> Evaluation:
        solution = self.solve(theta)
        return Evaluation(theta, solution, require_finite(solution.value), self._slopes(solution.beta, solution.forms))

    def plane(self, at: Evaluation) -> tuple[float, Weights]:
        gain, ridge = self._linear(at.solution.beta, self.machine.targets)
        return 2.0 * gain - ridge, at.q

    def lower(self, at: Evaluation) -> float:
        """What β, scaled as is best, guarantees whatever the weights."""
        return self._lower(at.solution.beta, at.q, self.machine.targets)

    def guarantee(self, beta: Matrix, targets: Matrix) -> float:
        """Return the lower bound of any β, its columns centred first, for these targets."""
        beta = beta - beta.mean(axis=0)
        return self._lower(beta, self._slopes(beta, 2.0 * self.stack.quadratic_forms(beta)), targets)

    def curvature(self, at: Evaluation) -> Array:
        """Return 2 Σ_j (N_iβ_j)ᵀ(λI + G̃)⁻¹(N_lβ_j)."""
        return np.asarray(2.0 * self.scale[:, np.newaxis] * at.solution.responses(self.joint) * self.scale)

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        weights = (best.theta * self.scale)[int(self.joint) :]
        return LearnedRidge(weights, best.solution, best.upper, gap, self.n_solves, history)

    def _lower(self, beta: Matrix, q: Weights, targets: Matrix) -> float:
        gain, ridge = self._linear(beta, targets)
        rest = ridge + self.norm.support(q)
        return max(gain, 0.0) ** 2 / rest if rest > 0 else 0.0

    def _linear(self, beta: Matrix, targets: Matrix) -> tuple[float, float]:
        """Return ⟨H, β⟩ and λ‖β‖², the latter zero where the identity is a kernel."""
        return float(np.sum(targets * beta)), (self.machine.alpha or 0.0) * float(np.sum(beta**2))

    def _slopes(self, beta: Matrix, forms: Weights) -> Weights:
        """Return q from β and Σ_j β_jᵀG̃_iβ_j."""
        return np.asarray(self.scale * (np.append(np.sum(beta**2), forms) if self.joint else forms))


# A linear system needs no start.
make_problem.register(Discriminant, lambda machine, stack, options, start: DiscriminantProblem(stack, machine, options))


def centered_traces(stack: GramStack, diagonals: Array) -> Weights:
    """Return r_i = tr ΠG_iΠ, exactly zero for kernels that are constant on the training set.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonals : ndarray of shape (P, n)
        k_i(x, x) on the training set.
    """
    traces = diagonals.sum(axis=1)
    centred = traces - 2.0 * stack.quadratic_forms(np.ones(stack.n_samples)) / stack.n_samples
    if not np.any(centred > _CONSTANT * traces):
        raise ValueError("kernels: every kernel is constant on the training set, so the classes cannot be separated.")
    return np.where(centred > _CONSTANT * traces, centred, 0.0)


def trace_penalties(traces: Weights) -> Weights:
    """Return the penalties with which the scaled weights are shares of the trace."""
    return np.where(traces > 0, np.sqrt(traces), np.inf)


# The least-squares problems at any weights ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RidgeSolution(ABC):
    """β = (λI + G̃)⁻¹H for the centred combined kernel G̃ = Σ θ_iG̃_i and the targets H.

    Attributes
    ----------
    beta, values : ndarray of shape (n, k)
        β, whose columns sum to zero, and G̃β.
    value : float
        No less than Σ_j h_jᵀ(λI + G̃)⁻¹h_j, however inexact β is.
    dual : float
        No more than that.
    forms : ndarray of shape (P,)
        Σ_j β_jᵀG̃_iβ_j for every kernel.
    alpha : float
        λ.
    """

    beta: Matrix
    values: Matrix
    value: float
    dual: float
    forms: Weights
    alpha: float

    @property
    def gap(self) -> float:
        """Relative duality gap at these weights."""
        return relative_gap(self.value, self.dual)

    @abstractmethod
    def responses(self, identity: bool) -> Array:
        """Return Σ_j (G̃_iβ_j)ᵀ(λI + G̃)⁻¹(G̃_lβ_j) for all pairs of kernels, the identity first if it is one."""

    @abstractmethod
    def response_diagonal(self) -> Array:
        """Return the diagonal of Q = Π(λI + G̃)⁻¹Π, with which β = QH."""

    def left_out(self, targets: Matrix) -> Matrix:
        """Return what is fitted to the targets of each sample by all others: they leave the residual β_i / Q_ii."""
        return np.asarray(targets - self.beta / self.response_diagonal()[:, np.newaxis])


class Ridge(ABC):
    """min ‖H − φ̃w‖²/λ + ‖w‖² for every target of a machine, on the centred kernels of a stack.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred.
    machine : Discriminant
        The targets, every column of which sums to zero.
    """

    def __init__(self, stack: GramStack, machine: Discriminant) -> None:
        self.stack, self.machine = stack, machine

    @abstractmethod
    def solve(self, theta: Weights, alpha: float) -> RidgeSolution:
        """Solve for all targets.

        Raises
        ------
        numpy.linalg.LinAlgError
            If λ is so small that λI + G̃ is not positive definite to machine precision.
        """

    def dual_value(self, beta: Matrix, theta: Weights, alpha: float, forms: Weights) -> float:
        """Return 2⟨H, β⟩ − λ‖β‖² − Σ_j β_jᵀG̃β_j."""
        return 2.0 * float(np.sum(self.machine.targets * beta)) - alpha * float(np.sum(beta**2)) - float(theta @ forms)


# Kernels in matrices -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixSolution(RidgeSolution):
    """A solution with the linear system, and with G̃_iβ of every kernel, of shape (P, n, k)."""

    system: MatrixLeastSquares
    products: Array

    def responses(self, identity: bool) -> Array:
        V = np.concatenate([self.beta[np.newaxis], self.products]) if identity else self.products
        flat = V.transpose(1, 0, 2).reshape(V.shape[1], -1)
        answer = self.system.solve(flat).reshape(V.shape[1], *V.shape[::2])
        return np.asarray(np.tensordot(V, answer, ([1, 2], [0, 2])))

    def response_diagonal(self) -> Array:
        return self.system.diagonal


class MatrixRidge(Ridge):
    """One factorisation of an n × n matrix a solution."""

    def solve(self, theta: Weights, alpha: float) -> MatrixSolution:
        system = self.machine.system(self.stack.combine(theta), alpha)
        beta = system.solve(self.machine.targets)
        products = self.stack.products(beta)
        # Coefficients sum to zero, so centring what comes out is enough.
        products -= products.mean(axis=1, keepdims=True)
        forms = np.einsum("inj,nj->i", products, beta)
        values = np.tensordot(theta, products, 1)
        # The problem itself, by the same products as the forms: no less than its optimum whatever β is.
        value = float(np.sum((self.machine.targets - values) ** 2) / alpha + theta @ forms)
        dual = self.dual_value(beta, theta, alpha, forms)
        return MatrixSolution(beta, values, value, dual, forms, alpha, system, products)


# Kernels in features -------------------------------------------------------------------------------------------------


class FeatureRidge(Ridge):
    """G̃_i = Z̃_iZ̃_iᵀ: one pass over the rows forms Z̃ᵀZ̃ of all features, and every solution is one in features.

    At weights θ the features are Z̃R with R² = diag θ, and w = (λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀH gives β = (H − Z̃Rw)/λ. Any w is
    a point of the problem, worth ‖H − Z̃Rw‖²/λ + ‖w‖², and any β gives a bound; so both are computed from the rows,
    which costs two more passes with k columns, and rounding in Z̃ᵀZ̃ costs nothing but exactness. Between them lies
    ‖w − RZ̃ᵀβ‖², which tells when to refine.
    """

    stack: Any  # one with the widths of its features

    def __init__(self, stack: GramStack, machine: Discriminant) -> None:
        super().__init__(stack, machine)
        self.everything = stack.combine(np.ones(stack.n_kernels))
        moments = self.everything.normal_matrix(np.ones(stack.n_samples), precise=True)
        self.means = moments[-1, :-1] / stack.n_samples
        self.moments = moments[:-1, :-1]
        squares = np.diag(self.moments).copy()
        self.moments -= np.outer(moments[-1, :-1], self.means)
        constant = np.diag(self.moments) <= _CONSTANT * squares
        self.moments[constant] = self.moments[:, constant] = 0.0
        self.right = self.sums(machine.targets)
        edges = np.concatenate([[0], np.cumsum(self.stack.widths)])
        self.places = [slice(int(a), int(b)) for a, b in pairwise(edges)]

    def solve(self, theta: Weights, alpha: float) -> FeatureSolution:
        system = _FeatureSystem(self, theta, alpha)
        best = system.evaluate(system.factor.solve(system.roots * self.right[system.active]))
        for _ in range(5):
            if np.linalg.norm(best.missing) <= _EXACT * np.sqrt(best.value):
                break
            trial = system.evaluate(best.w + system.factor.solve(alpha * best.missing))
            if not np.linalg.norm(trial.missing) < 0.5 * np.linalg.norm(best.missing):
                break
            best = trial
        return best

    def sums(self, beta: Matrix) -> Matrix:
        """Return Z̃ᵀβ over the features of all kernels."""
        return np.asarray(self.everything.adjoint(beta) - np.outer(self.means, beta.sum(axis=0)))

    def squares(self, sums: Matrix) -> Weights:
        """Return the squared size of the sums of every kernel."""
        return np.array([np.sum(sums[place] ** 2) for place in self.places])


class _FeatureSystem:
    """λI + RZ̃ᵀZ̃R over the features of the kernels with a weight, factorised."""

    def __init__(self, ridge: FeatureRidge, theta: Weights, alpha: float) -> None:
        self.ridge, self.theta, self.alpha = ridge, theta, alpha
        self.gram = ridge.stack.combine(theta)
        spread = np.repeat(theta, ridge.stack.widths)
        self.active = np.flatnonzero(spread)
        self.roots = np.sqrt(spread[self.active])[:, np.newaxis]
        A = ridge.moments[np.ix_(self.active, self.active)]
        A *= self.roots
        A *= self.roots.T
        A[np.diag_indices_from(A)] += alpha
        if alpha <= np.finfo(np.float64).eps * np.diag(A).max(initial=0.0):
            raise np.linalg.LinAlgError("The regulariser is lost in rounding.")
        # What rounding takes from a small λ, refining gives back.
        self.factor = Cholesky(A)

    def evaluate(self, w: Matrix) -> FeatureSolution:
        """Return what w is worth, from the rows."""
        values = self.gram.apply(w)
        values -= values.mean(axis=0)
        beta = (self.ridge.machine.targets - values) / self.alpha
        beta -= beta.mean(axis=0)
        sums = self.ridge.sums(beta)
        value = self.alpha * float(np.sum(beta**2)) + float(np.sum(w**2))
        forms = self.ridge.squares(sums)
        dual = self.ridge.dual_value(beta, self.theta, self.alpha, forms)
        return FeatureSolution(beta, values, value, dual, forms, self.alpha, self, w, sums)


@dataclass(frozen=True)
class FeatureSolution(RidgeSolution):
    """A solution with its system, its w, and Z̃ᵀβ over the features of all kernels."""

    system: _FeatureSystem
    w: Matrix
    sums: Matrix

    @property
    def missing(self) -> Matrix:
        """RZ̃ᵀβ − w, zero at the optimum."""
        return np.asarray(self.system.roots * self.sums[self.system.active] - self.w)

    def responses(self, identity: bool) -> Array:
        # With V_i = G̃_iβ it is (V_iᵀV_l − V_iᵀZ̃R(λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀV_l)/λ, and Z̃ᵀV_i = Z̃ᵀZ̃_i Z̃_iᵀβ has no n in it.
        system, sums, places = self.system, self.sums, self.system.ridge.places
        Y = np.array([system.ridge.moments[:, place] @ sums[place] for place in places])
        X = np.array([[np.sum(sums[place] * y[place]) for y in Y] for place in places])
        if identity:
            Y = np.concatenate([sums[np.newaxis], Y])
            corner = np.array([[np.sum(self.beta**2)]])
            X = np.block([[corner, self.forms[np.newaxis]], [self.forms[:, np.newaxis], X]])
        sides = (system.roots * Y[:, system.active]).transpose(1, 0, 2).reshape(len(system.active), -1)
        shape = (len(system.active), len(Y), -1)
        taken = np.einsum("dij,dlj->il", sides.reshape(shape), system.factor.solve(sides).reshape(shape))
        return np.asarray((X - taken) / system.alpha)

    def response_diagonal(self) -> Array:
        # Of (I − 11ᵀ/n − Z̃R(λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀ)/λ.
        system, n = self.system, self.system.gram.n_samples
        means = system.roots[:, 0] * system.ridge.means[system.active]
        leverage = np.empty(n)
        for strip in row_strips(n, 2**24 // max(len(means), 1)):  # entries of features held at once
            Z = system.gram.rows(np.arange(strip.start, strip.stop)) - means
            leverage[strip] = np.einsum("ij,ji->i", Z, system.factor.solve(Z.T))
        return np.asarray(np.maximum(1.0 - 1.0 / n - leverage, _EXACT) / system.alpha)


# Conic programs ------------------------------------------------------------------------------------------------------


class DiscriminantQCQP(Learner):
    """Maximise Σ_j (β_jᵀh_j − ¼ β_jᵀβ_j) − t/(4λ) subject to t ≥ Σ_j β_jᵀG̃_iβ_j / r_i for every kernel.

    The multipliers of the constraints are the weights. Without the term in β_jᵀβ_j, and with the identity as one more
    kernel, where λ is learned.

    A general conic solver carries all n·k coefficients of β through its linear algebra. Here they are eliminated: given
    the multipliers s, the optimal β is one Cholesky factorisation away, shared by all targets, and so is how the
    constraints' values q answer to s. What is left of the optimality conditions, s_i (t − q_i) = μ and Σs = 1 with μ
    driven to zero, has one unknown per kernel.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.2 and equations 34, 43 and 46. Mehrotra (1992) for the choice of μ.
    """

    machine_needs = ()
    stalled = "rounding hides what is left to gain; use solver='newton', raise alpha, or accept a larger tol."

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        path = _Path(DiscriminantProblem(stack, machine, self.options)).improve()
        path.prune(self.options.tol)
        return path.learned()


class _Path(BoundTracker):
    """Where the interior points are: multipliers s, slacks z, the bound t, in units of the first constraint values."""

    problem: DiscriminantProblem

    def __init__(self, problem: DiscriminantProblem) -> None:
        self.at = problem.evaluate(problem.start())
        super().__init__(problem, self.at)
        # Constant kernels are left out of the simplex altogether.
        self.usable = np.flatnonzero(problem.scale > 0)
        self.unit = max(float(np.abs(self.at.q).max()), np.finfo(float).tiny)
        self.s: Weights = self.at.theta[self.usable]
        self.t = 1.0 + 1.0 / len(self.s)
        self.z: Weights = self.t - self.at.q[self.usable] / self.unit

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused below
    def step(self) -> bool:
        """Take one predictor–corrector step and solve the least squares where it ends; False if rounding hides it."""
        C = self.problem.curvature(self.at)[np.ix_(self.usable, self.usable)] / self.unit
        missing = self.t - self.at.q[self.usable] / self.unit - self.z
        mu = float(self.s @ self.z) / len(self.s)
        if not mu > 0:
            return False
        ds, dz, _ = self._direction(C, missing, -self.s * self.z)
        # A little more than a full step, so that one can be taken.
        along_s, along_z = (min(1.0 / 0.99, longest_step(pair)) for pair in ((self.s, ds), (self.z, dz)))
        ahead = float((self.s + along_s * ds) @ (self.z + along_z * dz)) / len(self.s)
        centre = min(centring(mu, max(ahead, 0.0)), mu)
        ds, dz, dt = self._direction(C, missing, centre - self.s * self.z - ds * dz)
        # A step ends before the boundary.
        size = min(1.0, 0.99 * longest_step((self.s, ds), (self.z, dz)))
        s, z = self.s + size * ds, self.z + size * dz
        if not (np.all(s > 0) and np.all(z > 0) and np.isfinite(dt)):
            return False
        self.s, self.z, self.t = s, z, self.t + size * dt
        self.at = self._evaluate(self.s)
        self.consider(self.at)
        return True

    def prune(self, tol: float) -> None:
        """Set the shares to zero that interior points leave of a zero, if the gap allows it."""
        # A multiplier whose constraint has more slack left than it has weight is on its way to zero.
        active = self.s > self.z
        trial = self._evaluate(np.where(active, self.s, 0.0) if active.any() else self.s)
        self.note(trial)
        gap = relative_gap(trial.upper, self.lower)
        if gap <= max(tol, self.gap):
            self.best, self.proved, self.gap = trial, trial, gap
            self.history[-1] = Iteration(trial.upper, self.gap)

    def _evaluate(self, s: Weights) -> Evaluation:
        theta = np.zeros(len(self.problem.scale))
        theta[self.usable] = s
        return self.problem.evaluate(self.problem.retract(theta))

    def _direction(self, C: Weights, missing: Weights, wanted: Weights) -> tuple[Weights, Weights, float]:
        """Solve z∘ds + s∘dz = wanted with dz = dt + C ds + missing and Σds = 0; NaN where the system overflows."""
        A = C + np.diag(self.z / self.s)
        right = np.column_stack([wanted / self.s - missing, np.ones(len(self.s))])
        if not (np.all(np.isfinite(A)) and np.all(np.isfinite(right)) and np.all(np.diag(A) > 0)):
            return np.full(len(self.s), np.nan), np.full(len(self.s), np.nan), np.nan
        # Kernels that are alike leave A singular to rounding: of all solutions the least is as good as any.
        unit = 1.0 / np.sqrt(np.diag(A))[:, np.newaxis]
        both = unit * np.linalg.lstsq(A * unit * unit.T, unit * right, rcond=None)[0]
        dt = float(both[:, 0].sum() / both[:, 1].sum())
        ds = both[:, 0] - dt * both[:, 1]
        return ds, dt + C @ ds + missing, dt


class MatrixLearner(Learner):
    """Learns by matrix inequalities in the kernel matrices."""

    machine_needs = ()
    reads_matrices = True
    advice = "the semi-definite program is badly conditioned; use solver='newton', raise alpha, or accept a larger tol."

    def _require_small(self, solver: str, orders: list[int], count: int) -> None:
        entries, most = count * sum(order**2 for order in orders), self.options.most_entries
        if entries > most:
            raise MemoryError(
                f"solver={solver!r} would keep {entries:.1e} entries for {len(orders)} inequalities of order "
                f"{orders[0]} and supports up to {most:.0e}; use solver='newton'."
            )


class DiscriminantSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, h_j], [h_jᵀ, t_j]] ⪰ 0, one matrix inequality per target.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.1 and equations 29 and 41.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        k = machine.targets.shape[1]
        self._require_small("sdp", [stack.n_samples] * k, stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        columns = [[j] for j in range(k)]
        return _learn_once(problem, lambda first: _solve_inequalities(problem, first, columns).s)


def _learn_once(problem: DiscriminantProblem, shares: Callable[[Evaluation], Weights]) -> Learned:
    """Return what is learned by shares that follow from an evaluation where every kernel has the same."""
    found = BoundTracker(problem, problem.evaluate(problem.start()))
    with gap_progress(problem.machine, problem.options) as advance:
        advance(found.gap)
        found.consider(problem.evaluate(problem.retract(shares(found.best))))
        advance(found.record())
    return found.learned()


class DiscriminantApproximateSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, H], [Hᵀ, diag t]] ⪰ 0: one matrix inequality for all classes.

    Its optimum is no less than that of `DiscriminantSDP`, since diag t must exceed HᵀM⁻¹H as a matrix and not only on
    the diagonal. The gap is certified: at fixed weights the value is the largest tr(X HᵀM⁻¹H) over X ⪰ 0 with unit
    diagonal, so every such X turns into targets HX^½ whose exact problem lies below.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 3.1 and equations 32 and 45.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        H = machine.targets
        self._require_small("sdp_approximate", [stack.n_samples - 1 + H.shape[1]], stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        first = problem.evaluate(problem.start())
        with gap_progress(machine, self.options) as advance:
            found = _solve_inequalities(problem, first, [list(range(H.shape[1]))])
            at = problem.evaluate(problem.retract(found.s))
            beta = at.solution.beta
            # Σ t once t is raised so far that diag t exceeds HᵀM⁻¹H as a matrix.
            C = H.T @ beta
            excess = float(np.linalg.eigvalsh(0.5 * (C + C.T) - np.diag(found.t))[-1])
            upper = float(found.t.sum()) + H.shape[1] * max(excess, 0.0)
            root = _unit_rows(found.multipliers[0][-H.shape[1] :, -H.shape[1] :])
            gap = relative_gap(upper, problem.guarantee(beta @ root, H @ root))
            advance(gap)
        return replace(problem.learned(at, gap, [Iteration(upper, gap)]), objective=upper)


class DiscriminantKim(MatrixLearner):
    """Maximise the within-class criterion F₁* over Σ θ_i = 1 as a semi-definite program; two classes.

    min t − aᵀGa subject to [[λI + JGJ, JGa], [aᵀGJ, t]] ⪰ 0 with G = Σ θ_iG_i: then F₁* = (aᵀGa − t)/λ. The problem it
    is given must have unit traces and the regulariser mλ, for which F₃* has the same minimiser; that certifies the
    weights.

    References
    ----------
    Kim, Magnani and Boyd (2006), "Optimal kernel selection in kernel Fisher discriminant analysis".
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        if machine.alpha is None or not machine.has_classes or len(machine.counts) != 2:
            raise ValueError("solver='kim' supports two classes and a given alpha; use solver='sdp'.")
        self._require_small("kim", [stack.n_samples + 1], stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        problem.stated_alpha = machine.alpha / stack.n_samples
        return _learn_once(problem, lambda first: self._solve(problem))

    @staticmethod
    def _solve(problem: DiscriminantProblem) -> Weights:
        n, labels = problem.stack.n_samples, problem.machine.labels
        a, J = binary_targets(labels), within_class_matrix(labels)
        Gs = [np.asarray(problem.stack.row_block(m, slice(0, n)), dtype=np.float64) for m in range(len(problem.scale))]
        gains = np.array([a @ G @ a for G in Gs])
        # Units of the inequality; rounding may make either negative where it is zero.
        size = abs(float(np.mean([np.sum(J * (J @ G)) for G in Gs]))) / n or 1.0
        gain = abs(float(gains.mean())) or 1.0
        bordered = np.zeros((len(Gs), n + 1, n + 1))
        for B, G in zip(bordered, Gs, strict=True):
            B[:n, :n] = J @ G @ J / size
            B[:n, n] = B[n, :n] = J @ (G @ a) / np.sqrt(size * gain)
        constant = np.diag(np.append(np.full(n, (problem.machine.alpha or 0.0) / n / size), 0.0))
        inequality = MatrixInequality(constant, bordered, [(0, n)])
        return _minimise([inequality], np.append(-gains / gain, 1.0)).s


def _solve_inequalities(problem: DiscriminantProblem, at: Evaluation, groups: list[list[int]]) -> BarrierSolution:
    """Minimise Σ t subject to [[λI + Σ s_iN_i, H_g], [H_gᵀ, diag t_g]] ⪰ 0 for groups g of targets.

    Constants are outside every centred matrix, so the inequality is written in a basis of their complement, on the
    samples' differences only. An evaluation tells about how large t will be.
    """
    n, targets = problem.stack.n_samples, problem.machine.targets
    Q, m = helmert(n), n - 1
    # N_i = G̃_i / r_i, zero for constant kernels; the identity over n first where λ is learned.
    each = [np.eye(n) / n] if problem.joint else []
    for k, scale in enumerate(problem.scale[len(each) :]):
        each.append(center(np.array(problem.stack.row_block(k, slice(0, n)), dtype=np.float64)) * scale)
    matrices, H = np.array([n * (Q @ N @ Q.T) for N in each]), Q @ targets
    # In these units every t is about one.
    unit = float(np.sqrt(np.sum(targets * at.solution.beta) / n / H.shape[1]))
    inequalities = []
    for group in groups:
        order = m + len(group)
        bordered, constant = np.zeros((len(matrices), order, order)), np.zeros((order, order))
        bordered[:, :m, :m] = matrices
        constant[:m, :m] = n * (problem.machine.alpha or 0.0) * np.eye(m)
        constant[:m, m:] = H[:, group] / unit
        constant[m:, :m] = constant[:m, m:].T
        inequalities.append(MatrixInequality(constant, bordered, [(j, m + i) for i, j in enumerate(group)]))
    found = _minimise(inequalities, np.append(np.zeros(len(matrices)), np.ones(H.shape[1])))
    # t was scaled with the matrices, which are n times what the problem has.
    return replace(found, t=found.t * unit**2 * n)


def _minimise(inequalities: list[MatrixInequality], linear: Weights) -> BarrierSolution:
    """Minimise from equal shares, with bounds t that are twice what they need be."""
    P = len(inequalities[0].matrices)
    s, t = np.full(P, 1.0 / P), np.zeros(len(linear) - P)
    for one in inequalities:
        corner = len(one.bounds)
        F = one.value(s, t)
        need = _least_bound(F[:-corner, :-corner], F[:-corner, -corner:])
        for j, _ in one.bounds:
            t[j] = 2.0 * need + 1e-3
    found = solve_matrix_inequalities(linear, inequalities, s, t)
    # Smaller shares are what interior points leave of a zero.
    return replace(found, s=np.where(found.s > 1e-7, found.s, 0.0))


def _least_bound(M: Matrix, border: Matrix) -> float:
    """Return the least t with [[M, B], [Bᵀ, tI]] ⪰ 0; zero, which is outside, where M is singular to rounding."""
    with suppress(np.linalg.LinAlgError):
        need = border.T @ np.linalg.solve(M, border)
        if np.all(np.isfinite(need)):
            return max(float(np.linalg.eigvalsh(need)[-1]), 0.0)
    return 0.0


def _unit_rows(X: Matrix) -> Matrix:
    """Return R whose rows have unit length, with RRᵀ about X scaled to a unit diagonal; any such R gives a bound."""
    if not np.all(np.isfinite(X)):
        return np.eye(len(X))
    eigenvalues, V = np.linalg.eigh(X)
    R = V * np.sqrt(np.maximum(eigenvalues, 0.0))
    size = np.sqrt(np.sum(R**2, axis=1, keepdims=True))
    return np.where(size > 0, R / np.where(size > 0, size, 1.0), np.eye(len(X)))
