"""Discriminant analysis as a problem in the weights: least squares on centred kernels, in matrices or in features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.backend import row_strips
from kernelmosaic.gram import GramStack
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.learning.certificate import COLD, Iteration, Learned, Start, ridge_rounding
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import Evaluation, LearnerOptions, Numbers, WeightProblem, make_problem
from kernelmosaic.machines.discriminant import Discriminant, Matrix
from kernelmosaic.solvers import relative_gap
from kernelmosaic.solvers.leave_one_out import RidgeSystem
from kernelmosaic.solvers.program import require_finite

#: A kernel whose centred trace is below this share of its trace, or a feature whose variance is below this share of its
#: mean square, is constant up to rounding.
_CONSTANT = 1e-12
#: A solution in features is refined until it is this exact, relative to its size; smaller residuals are rounding.
_EXACT = 1e-10


@dataclass(frozen=True)
class LearnedRidge(Learned):
    """What is learned of least squares, whose bounds are β's own."""

    def certified(
        self, stack: GramStack, sizes: Weights, machine: Discriminant, learner: Any, products: Any = None
    ) -> Self:
        """Return the same with the gap of the search plus the rounding of both bounds."""
        error = ridge_rounding(self.weights @ sizes, self.solution.beta)
        return self.with_gap(self.objective, self.gap + error / abs(self.objective))


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
            # Where nothing beats the identity, the kernels still say in which directions the classes differ.
            usable = self.scale[1:] > 0
            out[1:][usable] += max(least - float(out[1:].sum()), 0.0) / np.count_nonzero(usable)
            out /= out.sum()
        return out

    def scaled(self, weights: Weights) -> Weights:
        """Return the shares of given weights; the first ones where λ, of which they say nothing, has a share, too."""
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
        return self._lower(beta, self._slopes(beta, self.ridge.forms(beta)), targets)

    def curvature(self, at: Evaluation) -> NDArray[np.float64]:
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


@make_problem.register
def _discriminant_problem(
    machine: Discriminant, stack: GramStack, options: LearnerOptions, start: Start = COLD
) -> DiscriminantProblem:
    """Return the problem of discriminant analysis; a linear system needs no start."""
    return DiscriminantProblem(stack, machine, options)


def centered_traces(stack: GramStack, diagonals: NDArray[np.float64]) -> Weights:
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
    def responses(self, identity: bool) -> NDArray[np.float64]:
        """Return Σ_j (G̃_iβ_j)ᵀ(λI + G̃)⁻¹(G̃_lβ_j) for all pairs of kernels, the identity first if it is one."""

    @abstractmethod
    def response_diagonal(self) -> NDArray[np.float64]:
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

    @abstractmethod
    def forms(self, beta: Matrix) -> Weights:
        """Return Σ_j β_jᵀG̃_iβ_j for every kernel and any β whose columns sum to zero."""

    def dual_value(self, beta: Matrix, theta: Weights, alpha: float, forms: Weights) -> float:
        """Return 2⟨H, β⟩ − λ‖β‖² − Σ_j β_jᵀG̃β_j."""
        return 2.0 * float(np.sum(self.machine.targets * beta)) - alpha * float(np.sum(beta**2)) - float(theta @ forms)


# Kernels in matrices -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixSolution(RidgeSolution):
    """A solution with the linear system, and with G̃_iβ of every kernel, of shape (P, n, k)."""

    system: RidgeSystem
    products: NDArray[np.float64]

    def responses(self, identity: bool) -> NDArray[np.float64]:
        V = np.concatenate([self.beta[np.newaxis], self.products]) if identity else self.products
        flat = V.transpose(1, 0, 2).reshape(V.shape[1], -1)
        answer = self.system.solve(flat).reshape(V.shape[1], *V.shape[::2])
        return np.asarray(np.tensordot(V, answer, ([1, 2], [0, 2])))

    def response_diagonal(self) -> NDArray[np.float64]:
        return self.system.diagonal


class MatrixRidge(Ridge):
    """One factorisation of an n × n matrix a solution."""

    def solve(self, theta: Weights, alpha: float) -> MatrixSolution:
        system = self.machine.system(self.stack.combine(theta), alpha)
        beta = system.solve(self.machine.targets)
        products = self._products(beta)
        forms = np.einsum("inj,nj->i", products, beta)
        values = np.tensordot(theta, products, 1)
        # The problem itself, by the same products as the forms: no less than its optimum whatever β is.
        value = float(np.sum((self.machine.targets - values) ** 2) / alpha + theta @ forms)
        dual = self.dual_value(beta, theta, alpha, forms)
        return MatrixSolution(beta, values, value, dual, forms, alpha, system, products)

    def forms(self, beta: Matrix) -> Weights:
        return np.asarray(np.einsum("inj,nj->i", self._products(beta), beta))

    def _products(self, beta: Matrix) -> NDArray[np.float64]:
        # Coefficients sum to zero, so centring what comes out is enough.
        out = self.stack.products(beta)
        out -= out.mean(axis=1, keepdims=True)
        return out


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

    def forms(self, beta: Matrix) -> Weights:
        return self.squares(self.sums(beta))

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

    def responses(self, identity: bool) -> NDArray[np.float64]:
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

    def response_diagonal(self) -> NDArray[np.float64]:
        # Of (I − 11ᵀ/n − Z̃R(λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀ)/λ.
        system, n = self.system, self.system.gram.n_samples
        means = system.roots[:, 0] * system.ridge.means[system.active]
        leverage = np.empty(n)
        for strip in row_strips(n, 2**24 // max(len(means), 1)):  # entries of features held at once
            Z = system.gram.rows(np.arange(strip.start, strip.stop)) - means
            leverage[strip] = np.einsum("ij,ji->i", Z, system.factor.solve(Z.T))
        return np.asarray(np.maximum(1.0 - 1.0 / n - leverage, _EXACT) / system.alpha)
