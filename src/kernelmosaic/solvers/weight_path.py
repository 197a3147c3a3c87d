"""Interior points over a machine's coefficients and the weights of its kernels at once.

The learning problem with weights of sum one is the conic program of Lanckriet et al.,

    max ⟨t, β⟩ − ε‖β‖₁ − ½ Σ ρᵢβᵢ² − γ
    subject to  ½ βᵀK_mβ ≤ γ for every m,  lower ≤ β ≤ upper,  Σβ = total,

and the multipliers of its quadratic constraints are the weights θ. With the slacks s_m = γ − ½
βᵀK_mβ and the products v_m = K_mβ, a Newton step on the conditions of optimality solves a system in
the matrix

    (diagonal of the box) + Σ_m θ_m K_m + Σ_m (θ_m / s_m) v_m v_mᵀ,

so that a step costs one combined kernel and one Cholesky factorisation of order n, whatever the
number of the kernels and their ranks. Kernels of few features cost less: a step is then linear in
n. Nothing is lost where many β solve the machine at the best weights, which is where methods stop
that read the slopes of the machine's value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dsytrf, dsytrs

from kernelmosaic._typing import Array, Indices, Mask
from kernelmosaic.backend import one_blas_thread
from kernelmosaic.gram.linear_algebra import Cholesky, rounding
from kernelmosaic.solvers.interior_point import (
    Bounds,
    centring,
    longest_step,
    move_to_total,
    start_between_bounds,
)
from kernelmosaic.solvers.program import Matrix, Program, Vector, relative_gap
from kernelmosaic.solvers.search import Search
from kernelmosaic.solvers.tuning import FRACTION_TO_BOUNDARY

#: A sum of coefficients that misses its total by more than this share of their sizes proves no gap.
SUM_MET = 1e-9
#: Steps in a row without a smaller gap after which rounding is in the way.
MOST_IDLE = 12
#: A share of the step that the bounds allow; shorter steps show rounding.
SHORTEST = 1e-8
#: The largest share by which a diagonal grows so that a matrix is positive definite in spite of
#: rounding.
LARGEST_JITTER = 1e-6
#: Samples per feature up to which the system of the samples is solved: it is more work above two,
#: but loses less.
NARROW = 4


#: From right-hand sides, one or more in columns, to the solutions of a linear system.
Solve = Callable[[Array], Array]


class WeightedKernels(ABC):
    """The kernels K_m, already divided by their squared penalties, as the interior points read
    them."""

    n_kernels: int

    @abstractmethod
    def products(self, beta: Vector) -> Matrix:
        """Return v_m = K_mβ, of shape (P, n)."""

    @abstractmethod
    def factorise(
        self, theta: Vector, beta: Vector, products: Matrix, factors: Vector, root: Vector
    ) -> Solve:
        """Return what solves systems in I + R H R, with R = diag root and H = Σ θ_m K_m + Σ
        factors_m v_m v_mᵀ.

        The v_m are the products of the kernels with β.
        """

    @abstractmethod
    def mean_diagonal(self, theta: Vector) -> float:
        """Return the mean of the diagonal of Σ θ_m K_m."""


class MatrixKernels(WeightedKernels):
    """Kernels of any rank: their combination is formed and factorised in every step.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    scale : ndarray of shape (P,)
        One over the squared penalties.
    """

    def __init__(self, stack: Any, scale: Vector) -> None:
        self.stack, self.scale, self.n_kernels = stack, scale, len(scale)

    def products(self, beta: Vector) -> Matrix:
        return np.asarray(self.scale[:, np.newaxis] * self.stack.products(beta))

    def factorise(
        self, theta: Vector, beta: Vector, products: Matrix, factors: Vector, root: Vector
    ) -> Solve:
        gram = self.stack.combine(theta * self.scale)
        H = np.asarray(gram.block(np.arange(gram.n_samples)), dtype=np.float64)
        H += (products.T * factors) @ products
        H *= root
        H *= root[:, np.newaxis]
        factor = Cholesky(H, 1.0, most=LARGEST_JITTER)
        return lambda right: np.asarray(factor.solve(right))

    def mean_diagonal(self, theta: Vector) -> float:
        return float(self.stack.combine(theta * self.scale).diagonal().mean())


class FactoredKernels(WeightedKernels):
    """Kernels K_m = Z_mᵀZ_m of few features each, such as linear kernels of one column.

    Parameters
    ----------
    features : ndarray of shape (R, n)
        The rows of all Z_m, one kernel after the other.
    kernels : ndarray of shape (R,)
        The kernel of every feature, in ascending order; every kernel has one at least.
    """

    def __init__(self, features: Matrix, kernels: Indices) -> None:
        self.Z, self.kernels, self.n_kernels = features, kernels, int(kernels[-1]) + 1
        self.starts = np.searchsorted(kernels, np.arange(self.n_kernels))
        self._mean_diagonals = np.add.reduceat(
            np.einsum("ri,ri->r", features, features), self.starts
        )
        self._mean_diagonals /= features.shape[1]

    def products(self, beta: Vector) -> Matrix:
        sums = self.Z @ beta
        if len(self.Z) == self.n_kernels:
            return np.asarray(sums[:, np.newaxis] * self.Z)
        ends = np.append(self.starts[1:], len(self.Z))
        return np.array([sums[a:b] @ self.Z[a:b] for a, b in zip(self.starts, ends, strict=True)])

    def factorise(
        self, theta: Vector, beta: Vector, products: Matrix, factors: Vector, root: Vector
    ) -> Solve:
        # With c_m = Z_mβ, of which v_m = Z_mᵀc_m, the curvature of a kernel is Z_mᵀ(θ_m I +
        # factors_m c_m c_mᵀ)Z_m. The root of the matrix in brackets is √θ_m I + a_m c_m c_mᵀ, with
        # the a_m that follows.
        sums = self.Z @ beta
        squares = np.add.reduceat(sums**2, self.starts)
        narrow, wide = np.sqrt(theta), np.sqrt(theta + factors * squares)
        a = np.divide(wide - narrow, squares, out=np.zeros(len(theta)), where=squares > 0)
        roots = narrow[self.kernels, np.newaxis] * self.Z
        roots += (a[self.kernels] * sums)[:, np.newaxis] * products[self.kernels]
        roots *= root
        return solve_shifted(roots.T)

    def mean_diagonal(self, theta: Vector) -> float:
        return float(theta @ self._mean_diagonals)


def solve_shifted(B: Matrix) -> Solve:
    """Return what solves systems in I + BBᵀ, for B of shape (n, R).

    The identity is raised by the rounding of the diagonal of BBᵀ. Else the rounding of right-hand
    sides would be multiplied without bound along directions in which many samples with large rows
    are free.
    """
    n, R = B.shape
    if n <= NARROW * R:
        factor = Cholesky(B @ B.T, 1.0, most=LARGEST_JITTER)
        return lambda right: np.asarray(factor.solve(right))
    raised = 1.0 + 0.5 * rounding(np.float64, n) * np.einsum("ir,ir->i", B, B)
    root = 1.0 / np.sqrt(raised)
    solve_by_features = _factorise_features(B * root[:, np.newaxis])

    def solve(right: Array) -> Array:
        sides = root if right.ndim == 1 else root[:, np.newaxis]
        return np.asarray(sides * solve_by_features(sides * right))

    return solve


def _factorise_features(B: Matrix) -> Solve:
    """Return what solves systems in I + BBᵀ where features are few beside the samples.

    The system is that of (y, v) with y + Bv = f and Bᵀy − v = 0. Samples whose rows of B are small
    are eliminated. The R samples and more of the largest rows stay beside v: free samples are that
    few, their rows grow without bound towards the end of a path, and to eliminate them, as the
    formula of Sherman, Morrison and Woodbury does, would leave of y the rounding of numbers that
    cancel.
    """
    n, R = B.shape
    n_kept = min(n, R + R // 4 + 8)
    order = np.argpartition(np.einsum("ir,ir->i", B, B), n - n_kept)
    rest, kept = order[: n - n_kept], order[n - n_kept :]
    B_rest, B_kept = B[rest], B[kept]
    M = np.zeros((n_kept + R, n_kept + R))
    M[:n_kept, n_kept:], M[n_kept:, :n_kept] = B_kept, B_kept.T
    M[n_kept:, n_kept:] = -(B_rest.T @ B_rest)
    diagonal = np.einsum("ii->i", M)
    diagonal[:n_kept] += 1.0
    diagonal[n_kept:] -= 1.0
    # Rows and columns of one size, by powers of two, which round nothing.
    scale = np.exp2(-np.round(0.5 * np.log2(np.abs(M).max(axis=1))))
    M *= scale
    M *= scale[:, np.newaxis]
    factor, pivots, info = dsytrf(M, lower=True, overwrite_a=True)
    if info != 0 or not np.isfinite(factor).all():
        raise np.linalg.LinAlgError("The system of the features is singular to machine precision.")

    def solve_both(f: Array, g: Array) -> tuple[Array, Array]:
        """Return y and v with y + Bv = f and Bᵀy − v = g, for right-hand sides in columns."""
        right = np.concatenate([f[kept], g - B_rest.T @ f[rest]])
        answer, _ = dsytrs(factor, pivots, scale[:, np.newaxis] * right, lower=True)
        answer *= scale[:, np.newaxis]
        y, v = np.empty(f.shape), answer[n_kept:]
        y[kept], y[rest] = answer[:n_kept], f[rest] - B_rest @ v
        return y, v

    def solve(right: Array) -> Array:
        f = right.reshape(n, -1)
        y, v = solve_both(f, np.zeros((R, f.shape[1])))
        # What both equations leave over is solved for again.
        y_left, _ = solve_both(f - y - B @ v, v - B.T @ y)
        return np.asarray((y + y_left).reshape(right.shape))

    return solve


@dataclass(frozen=True)
class WeightPathEnd:
    """Where the interior points stopped: the best of all steps.

    Attributes
    ----------
    theta : ndarray of shape (P,)
        Weights, of sum one over those that are learned.
    is_idle : ndarray of shape (P,)
        Whether a weight leads to zero.
    beta : ndarray of shape (n,)
        Coefficients strictly within their bounds.
    at_lower, at_upper : ndarray of shape (n,)
        Whether a coefficient leads to its lower or upper bound; with a tube, to zero where both are
        set.
    gap : float
        The relative gap between the values of weights and coefficients.
    """

    theta: Vector
    is_idle: Mask
    beta: Vector
    at_lower: Mask
    at_upper: Mask
    gap: float


class _Direction(NamedTuple):
    """Changes of the variables between bounds, of their multipliers, of intercept, γ, weights,
    slacks, and of β."""

    x: Array
    force: Array
    intercept: float
    gamma: float
    theta: Vector
    slack: Vector
    beta: Vector


class WeightPath(Search):
    """Mehrotra's predictor and corrector on the conditions of optimality of both β and θ.

    As in `CentralPath`, the variables x between bounds are β, or with a tube the two parts of β =
    x₀ − x₁, each of which pays ε; arrays of them have shape (parts, n).

    Parameters
    ----------
    kernels : WeightedKernels
        The kernels.
    program : Program
        The machine without its kernel, with a bound on some coefficient.
    kept : ndarray of shape (P,), optional
        Weights that kernels keep; NaN for those that are learned. By default all are learned.

    Attributes
    ----------
    best : WeightPathEnd
        The step with the smallest gap.
    history : list of (float, float)
        Objective and gap at the start and after every step.
    """

    def __init__(
        self, kernels: WeightedKernels, program: Program, kept: Vector | None = None
    ) -> None:
        self.kernels, self.program = kernels, program
        # When to stop; see `follow`.
        self.tol, self.max_iter, self.n_idle_steps = 0.0, 0, 0
        p, P, is_split = program, kernels.n_kernels, bool(program.epsilon)
        self.learned: Indices = np.arange(P) if kept is None else np.flatnonzero(np.isnan(kept))
        self.theta = np.zeros(P) if kept is None else np.where(np.isnan(kept), 0.0, kept)
        self.theta[self.learned] = 1.0 / len(self.learned)

        # 1. Variables well between their bounds.
        self.sign = np.array([[1.0], [-1.0]] if is_split else [[1.0]])
        upper = np.stack([p.upper, -p.lower]) if is_split else p.upper[np.newaxis]
        lower = np.zeros_like(upper) if is_split else p.lower[np.newaxis]
        self.cost = p.epsilon - self.sign * p.target
        self.moves = upper > lower
        has_bound = self.moves & np.isfinite(np.stack([lower, upper]))
        at_rest = np.where(np.isfinite(lower), lower, 0.0)
        self.x = np.where(
            self.moves,
            start_between_bounds(kernels.mean_diagonal(self.theta), p, lower, upper, has_bound),
            at_rest,
        )
        if p.total is not None:
            self.x = move_to_total(p.total, self.x, self.sign, lower, upper)
        self._read_products()

        # 2. Multipliers of the bounds that match the slopes, and keep all products of one size.
        self.intercept = p.best_intercept(self.theta @ self.products)
        side = np.array([1.0, -1.0]).reshape(2, 1, 1)
        room = np.where(has_bound, side * (self.x - np.stack([lower, upper])), 1.0)
        slope = self._slope()
        is_bounded = has_bound.any(axis=0)
        nearest = np.where(has_bound, room, np.inf).min(axis=0)
        mu = (
            float(np.mean(np.abs(slope[is_bounded]) * nearest[is_bounded]))
            if is_bounded.any()
            else 0.0
        )
        mu = max(mu, 1e-12 * float(self.q.max()), 1e-300)
        force = np.where(has_bound, np.maximum(side * slope, 0.0) + mu / room, 0.0)
        self.bounds = Bounds(room, force, has_bound)

        # 3. γ above all forms, and weights that make the products with their slacks equal.
        self.gamma = float(self.q[self.learned].max()) + len(self.learned) * mu
        self.slack = self.gamma - self.q[self.learned]
        self.theta[self.learned] = (1.0 / self.slack) / float((1.0 / self.slack).sum())
        value, gap = self._assess()
        self.best = self._end(gap)
        self.history = [(value, gap)]

    def follow(self, tol: float, max_iter: int) -> WeightPathEnd:
        """Go on until the relative gap is at most `tol`, rounding ends it, or `max_iter` steps were
        taken in all."""
        self.tol, self.max_iter, self.n_idle_steps = tol, max_iter, 0
        return self.improve().best

    @contextmanager
    def context(self) -> Iterator[None]:
        """What is not finite is never moved to."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), one_blas_thread():
            yield

    def goes_on(self) -> bool:
        """Whether the gap is above `tol`, steps are left, and the last ones have not all been
        idle."""
        has_room = len(self.history) <= self.max_iter
        return self.best.gap > self.tol and has_room and self.n_idle_steps < MOST_IDLE

    def end_step(self) -> None:
        """Assess where the step has ended."""
        value, gap = self._assess()
        self.history.append((value, gap))
        self.n_idle_steps += 1
        if gap < self.best.gap:
            self.best, self.n_idle_steps = self._end(gap), 0

    # What the iterate is worth --------------------------------------------------------------------

    @property
    def beta(self) -> Vector:
        """The coefficients."""
        return np.asarray((self.sign * self.x).sum(axis=0))

    def _read_products(self) -> None:
        beta = self.beta
        self.products = self.kernels.products(beta)
        # Rounding can make the form of a positive semi-definite matrix negative.
        self.q = np.maximum(0.5 * self.products @ beta, 0.0)

    def _slope(self) -> Array:
        values = self.theta @ self.products
        return np.asarray(
            self.program.ridge * self.x + self.sign * (values + self.intercept) + self.cost
        )

    def _assess(self) -> tuple[float, float]:
        """Return the primal value at the weights, and the relative gap to the dual value of β."""
        p, beta, theta = self.program, self.beta, self.theta
        kept = np.delete(np.arange(len(theta)), self.learned)
        form = float(self.q[self.learned].max()) + float(theta[kept] @ self.q[kept])
        lower = float(p.linear_value(beta)) - form
        if p.total is not None:
            size = max(abs(p.total), float(np.abs(beta).sum()))
            if abs(p.total - float(beta.sum())) > SUM_MET * size:
                return np.inf, np.inf
        share = theta.copy()
        share[self.learned] /= share[self.learned].sum()
        values = share @ self.products
        upper = float(
            p.primal_value(float(share @ self.q), values, p.best_intercept(values, self.intercept))
        )
        return upper, relative_gap(upper, lower)

    def _end(self, gap: float) -> WeightPathEnd:
        """Return the iterate, with the bounds whose multipliers outgrow the distance to them."""
        p, beta, bounds, learned = self.program, self.beta, self.bounds, self.learned
        values = self.theta @ self.products
        largest = max(float(np.abs(self.x).max()), 1e-300)
        steepest = max(
            float(np.abs(p.target).max(initial=0.0)), p.epsilon, float(np.abs(values).max()), 1e-300
        )
        is_near = bounds.exist & (bounds.distances / largest < bounds.multipliers / steepest)
        at_lower, at_upper = is_near[0] | ~self.moves, is_near[1]
        if p.epsilon:
            is_zero = at_lower.all(axis=0)
            at_lower, at_upper = at_upper[1] | is_zero, at_upper[0] | is_zero
        else:
            at_lower, at_upper = at_lower[0], at_upper[0]
        # A slack is a distance, too, in units of γ.
        is_idle = np.zeros(len(self.theta), dtype=bool)
        is_idle[learned] = self.theta[learned] * self.gamma < self.slack
        is_idle[learned] &= not is_idle[learned].all()
        return WeightPathEnd(self.theta.copy(), is_idle, beta, at_lower, at_upper, gap)

    # Steps ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take one predictor and corrector step; False when rounding is all that is left."""
        bounds, learned = self.bounds, self.learned
        stiffness = self.program.ridge + bounds.stiffness()
        moving = self.moves & (stiffness > 0)
        self.inverse_stiffness = np.where(moving, 1.0 / np.where(moving, stiffness, 1.0), 0.0)
        try:
            self._factorise()
        except np.linalg.LinAlgError:
            return False
        theta, slack = self.theta[learned], self.slack
        products, weight_products = bounds.products(), theta * slack
        missing = self.gamma - self.q[learned] - slack
        predictor = self._direction(-products, -weight_products, missing)
        size = min(self._longest_step(predictor), 1.0)
        count = bounds.count + len(learned)
        mean = float(products.sum() + weight_products.sum()) / count
        ahead = float(bounds.products(predictor.x, predictor.force, size).sum())
        ahead += float((theta + size * predictor.theta) @ (slack + size * predictor.slack))
        aim = centring(mean, ahead / count)

        # What the predictor's step adds in second order: to the products, to the forms and to the
        # slopes.
        turned = self.kernels.products(predictor.beta)[learned]
        missing = missing - 0.5 * turned @ predictor.beta
        bend = predictor.theta @ turned
        right = bounds.complementarity(aim, predictor.x, predictor.force)
        weight_right = aim - weight_products - predictor.theta * predictor.slack
        return self._move(self._direction(right, weight_right, missing, bend))

    def _factorise(self) -> None:
        """Factorise I + E^½ H E^½, where E are the samples' inverse stiffnesses and H is the
        kernels' curvature."""
        learned = self.learned
        self.E = self.inverse_stiffness.sum(axis=0)
        self.root = np.sqrt(self.E)
        self.factors = self.theta[learned] / self.slack
        spread = np.zeros(len(self.theta))
        spread[learned] = self.factors
        self.solve_scaled = self.kernels.factorise(
            self.theta, self.beta, self.products, spread, self.root
        )
        # The answers of β to γ and to the intercept.
        self.pushed = self.products[learned].T @ self.factors
        both = np.column_stack([self.pushed, np.ones(len(self.E))])
        self.answers = self._solve(both)

    def _solve(self, right: Array) -> Array:
        """Return (E⁻¹ + H)⁻¹ times one or more right-hand sides."""
        root = self.root if right.ndim == 1 else self.root[:, np.newaxis]
        return np.asarray(root * self.solve_scaled(root * right))

    def _direction(
        self, right: Array, weight_right: Vector, missing: Vector, bend: Vector | float = 0.0
    ) -> _Direction:
        """Solve the Newton system.

        Parameters
        ----------
        right, weight_right : ndarray of shape (2, parts, n) and (learned,)
            What the products of distances and multipliers, and those of weights and slacks, are to
            change by.
        missing : ndarray of shape (learned,)
            What the slacks miss of γ − ½ βᵀK_mβ.
        bend : ndarray of shape (n,), or zero
            What the slopes change by in second order.
        """
        p, V, w = self.program, self.products[self.learned], self.factors
        pull = self.bounds.right_side(right) - self._slope() - self.sign * bend
        free = (self.sign * pull * self.inverse_stiffness).sum(axis=0)
        # dθ = k + w ∘ (V dβ − dγ), from the products of weights and slacks.
        k = weight_right / self.slack - w * missing
        scaled = np.divide(free, self.root, out=np.zeros(len(free)), where=self.root > 0)
        alone = self.root * self.solve_scaled(scaled - self.root * (V.T @ k))
        by_gamma, by_intercept = self.answers.T
        # Σ dθ and Σ dβ decide dγ and the change of the intercept.
        lack = (
            1.0
            - float(self.theta[self.learned].sum())
            - float(k.sum())
            - float(self.pushed @ alone)
        )
        bends = float(self.pushed @ by_gamma) - float(w.sum())
        if p.total is None:
            gamma, intercept = lack / bends, 0.0
        else:
            across = float(by_gamma.sum())
            system = np.array([[bends, -across], [across, -float(by_intercept.sum())]])
            owed = p.total - float(self.beta.sum()) - float(alone.sum())
            gamma, intercept = np.linalg.solve(system, np.array([lack, owed]))
        beta = alone + gamma * by_gamma - intercept * by_intercept
        along = V @ beta
        theta = k + w * (along - gamma)
        change = np.divide(free - beta, self.E, out=np.zeros(len(free)), where=self.E > 0)
        x = self.inverse_stiffness * (pull - self.sign * change)
        force = self.bounds.change(x, right)
        return _Direction(
            x, force, float(intercept), float(gamma), theta, gamma + missing - along, beta
        )

    def _longest_step(self, d: _Direction) -> float:
        of_weights = longest_step((self.theta[self.learned], d.theta), (self.slack, d.slack))
        return min(self.bounds.longest_step(d.x, d.force), of_weights)

    def _move(self, d: _Direction) -> bool:
        size = min(FRACTION_TO_BOUNDARY * self._longest_step(d), 1.0)
        if not np.isfinite(size) or size <= SHORTEST or not np.isfinite(d.x).all():
            return False
        bounds = self.bounds
        self.x = self.x + size * d.x
        # Distances are kept by themselves: far from zero, x would round them away.
        bounds.distances = np.where(bounds.exist, bounds.distances + size * bounds.side * d.x, 1.0)
        bounds.multipliers = bounds.multipliers + size * d.force
        self.intercept += size * d.intercept
        self.gamma += size * d.gamma
        self.theta[self.learned] += size * d.theta
        self.slack = self.slack + size * d.slack
        self._read_products()
        # The forms are not linear: where the distance to γ is still positive, it is the slack.
        exact = self.gamma - self.q[self.learned]
        self.slack = np.where(exact > 0.3 * self.slack, exact, self.slack)
        return True
