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
n. The method also converges where many β solve the machine at the best weights. The machine's value
is not differentiable there, which stops methods that follow its gradient.

`WeightPath` is the search. It reads the kernels as `WeightedKernels`: matrices or features.
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
from kernelmosaic.solvers.tuning import (
    EXACT_SLACK,
    FRACTION_TO_BOUNDARY,
    LARGEST_WEIGHT_PATH_JITTER,
    LEAST_MU,
    MOST_IDLE_WEIGHT_STEPS,
    NARROW_RATIO,
    SHORTEST_WEIGHT_STEP,
    WEIGHT_PATH_SUM_ERROR,
)

#: From right-hand sides, one or more in columns, to the solutions of a linear system.
Solve = Callable[[Array], Array]


class WeightedKernels(ABC):
    """The kernels K_m, divided by their squared penalties, with the operations of a step."""

    n_kernels: int

    @abstractmethod
    def products(self, beta: Vector) -> Matrix:
        """Return the products v_m = K_mβ, of shape (P, n)."""

    @abstractmethod
    def factorise(
        self, theta: Vector, beta: Vector, products: Matrix, factors: Vector, root: Vector
    ) -> Solve:
        """Return the solver of systems in I + R H R, with R = diag root.

        H is the curvature of the kernels, Σ θ_m K_m + Σ factors_m v_m v_mᵀ.

        Parameters
        ----------
        theta, factors : ndarray of shape (P,)
        beta : ndarray of shape (n,)
        products : ndarray of shape (P, n)
            The v_m = K_mβ.
        root : ndarray of shape (n,)
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
        self.stack = stack
        self.scale = scale
        self.n_kernels = len(scale)

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
        factor = Cholesky(H, 1.0, most=LARGEST_WEIGHT_PATH_JITTER)
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
        self.Z = features
        self.kernels = kernels
        self.n_kernels = int(kernels[-1]) + 1
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
        # The square roots of its eigenvalues: beside c_m, and along c_m.
        root_beside = np.sqrt(theta)
        root_along = np.sqrt(theta + factors * squares)
        a = np.divide(
            root_along - root_beside, squares, out=np.zeros(len(theta)), where=squares > 0
        )
        roots = root_beside[self.kernels, np.newaxis] * self.Z
        roots += (a[self.kernels] * sums)[:, np.newaxis] * products[self.kernels]
        roots *= root
        return solve_shifted(roots.T)

    def mean_diagonal(self, theta: Vector) -> float:
        return float(theta @ self._mean_diagonals)


def solve_shifted(B: Matrix) -> Solve:
    """Return the solver of systems in I + BBᵀ, for B of shape (n, R).

    Where features are few, the rounding of the diagonal of BBᵀ is added to the identity. Else the
    rounding of right-hand sides would be multiplied without bound along directions in which many
    samples with large rows are free.
    """
    n, R = B.shape
    if n <= NARROW_RATIO * R:
        factor = Cholesky(B @ B.T, 1.0, most=LARGEST_WEIGHT_PATH_JITTER)
        return lambda right: np.asarray(factor.solve(right))
    raised = 1.0 + 0.5 * rounding(np.float64, n) * np.einsum("ir,ir->i", B, B)
    root = 1.0 / np.sqrt(raised)
    solve_by_features = _factorise_features(B * root[:, np.newaxis])

    def solve(right: Array) -> Array:
        sides = root if right.ndim == 1 else root[:, np.newaxis]
        return np.asarray(sides * solve_by_features(sides * right))

    return solve


def _factorise_features(B: Matrix) -> Solve:
    """Return the solver of systems in I + BBᵀ where features are few beside the samples.

    The system is that of (y, v) with y + Bv = f and Bᵀy − v = 0. Samples whose rows of B are small
    are eliminated. About 1.25 R samples, those with the largest rows, stay in the system beside v.
    Free samples are at most that many, and their rows grow without bound towards the end of a path.
    To eliminate them, as the formula of Sherman, Morrison and Woodbury does, would leave in y only
    the rounding of numbers that cancel.
    """
    n, R = B.shape
    n_large = min(n, R + R // 4 + 8)
    order = np.argpartition(np.einsum("ir,ir->i", B, B), n - n_large)
    small = order[: n - n_large]
    large = order[n - n_large :]
    B_small = B[small]
    B_large = B[large]
    M = np.zeros((n_large + R, n_large + R))
    M[:n_large, n_large:] = B_large
    M[n_large:, :n_large] = B_large.T
    M[n_large:, n_large:] = -(B_small.T @ B_small)
    diagonal = np.einsum("ii->i", M)
    diagonal[:n_large] += 1.0
    diagonal[n_large:] -= 1.0
    # Rows and columns are scaled to about one size, by powers of two, which round nothing.
    scale = np.exp2(-np.round(0.5 * np.log2(np.abs(M).max(axis=1))))
    M *= scale
    M *= scale[:, np.newaxis]
    factor, pivots, info = dsytrf(M, lower=True, overwrite_a=True)
    if info != 0 or not np.isfinite(factor).all():
        raise np.linalg.LinAlgError("The system of the features is singular to machine precision.")

    def solve_both(f: Array, g: Array) -> tuple[Array, Array]:
        """Return y and v with y + Bv = f and Bᵀy − v = g, for right-hand sides in columns."""
        right = np.concatenate([f[large], g - B_small.T @ f[small]])
        solution, _ = dsytrs(factor, pivots, scale[:, np.newaxis] * right, lower=True)
        solution *= scale[:, np.newaxis]
        v = solution[n_large:]
        y = np.empty(f.shape)
        y[large] = solution[:n_large]
        y[small] = f[small] - B_small @ v
        return y, v

    def solve(right: Array) -> Array:
        f = right.reshape(n, -1)
        y, v = solve_both(f, np.zeros((R, f.shape[1])))
        # One step of refinement: the residuals of both equations are solved for.
        correction, _ = solve_both(f - y - B @ v, v - B.T @ y)
        return np.asarray((y + correction).reshape(right.shape))

    return solve


@dataclass(frozen=True)
class WeightPathEnd:
    """The iterate of the interior points with the smallest gap.

    Attributes
    ----------
    theta : ndarray of shape (P,)
        Weights, of sum one over those that are learned.
    is_idle : ndarray of shape (P,)
        Whether a weight converges to zero.
    beta : ndarray of shape (n,)
        Coefficients strictly within their bounds.
    at_lower, at_upper : ndarray of shape (n,)
        Whether a coefficient converges to its lower or upper bound; with a tube, to zero where both
        are set.
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
    """A Newton direction: the changes of the variables of `WeightPath`, and of β.

    `multipliers` are those of the bounds.
    """

    x: Array
    multipliers: Array
    intercept: float
    gamma: float
    theta: Vector
    slack: Vector
    beta: Vector


class WeightPath(Search):
    """Mehrotra's predictor and corrector on the conditions of optimality of both β and θ.

    As in `CentralPath`, the variables x between bounds are β, or with a tube the two parts of β =
    x₀ − x₁, each of which costs ε; arrays of them have shape (parts, n).

    Parameters
    ----------
    kernels : WeightedKernels
        The kernels.
    program : Program
        The machine without its kernel, with a bound on some coefficient.
    fixed_weights : ndarray of shape (P,), optional
        Weights that do not change; NaN for those that are learned. By default all are learned.

    Attributes
    ----------
    learned : ndarray
        The numbers of the kernels whose weights are learned.
    theta, gamma, slack : ndarray of shape (P,), float, ndarray of shape (learned,)
        The weights, γ, and the slacks γ − ½βᵀK_mβ of the kernels with learned weights.
    x, intercept, bounds : ndarray of shape (parts, n), float, Bounds
        The variables, the multiplier of Σβ = total, and distances and multipliers of the bounds.
    products, q : ndarray of shape (P, n) and (P,)
        K_mβ and ½βᵀK_mβ.
    best : WeightPathEnd
        The iterate with the smallest gap.
    history : list of (float, float)
        Objective and gap at the start and after every step.
    """

    def __init__(
        self, kernels: WeightedKernels, program: Program, fixed_weights: Vector | None = None
    ) -> None:
        self.kernels = kernels
        self.program = program
        # The arguments of `follow`, and its count of steps without a smaller gap.
        self.tol = 0.0
        self.max_iter = 0
        self.n_idle_steps = 0

        # 1. Equal weights.
        P = kernels.n_kernels
        if fixed_weights is None:
            self.learned: Indices = np.arange(P)
            self.theta = np.zeros(P)
        else:
            is_learned = np.isnan(fixed_weights)
            self.learned = np.flatnonzero(is_learned)
            self.theta = np.where(is_learned, 0.0, fixed_weights)
        self.theta[self.learned] = 1.0 / len(self.learned)

        # 2. Variables well between their bounds.
        is_split = bool(program.epsilon)
        if is_split:
            self.sign = np.array([[1.0], [-1.0]])
            upper = np.stack([program.upper, -program.lower])
            lower = np.zeros_like(upper)
        else:
            self.sign = np.array([[1.0]])
            upper = program.upper[np.newaxis]
            lower = program.lower[np.newaxis]
        self.cost = program.epsilon - self.sign * program.target
        self.moves = upper > lower
        limits = np.stack([lower, upper])
        has_bound = self.moves & np.isfinite(limits)
        mean_diagonal = kernels.mean_diagonal(self.theta)
        start = start_between_bounds(mean_diagonal, program, lower, upper, has_bound)
        fixed_x = np.where(np.isfinite(lower), lower, 0.0)
        self.x = np.where(self.moves, start, fixed_x)
        if program.total is not None:
            self.x = move_to_total(program.total, self.x, self.sign, lower, upper)
        self._read_products()

        # 3. Multipliers of the bounds that match the gradient, and keep all products with the
        #    distances of one size.
        self.intercept = program.best_intercept(self.theta @ self.products)
        side = np.array([1.0, -1.0]).reshape(2, 1, 1)
        distances = np.where(has_bound, side * (self.x - limits), 1.0)
        gradient = self._gradient()
        is_bounded = has_bound.any(axis=0)
        nearest = np.where(has_bound, distances, np.inf).min(axis=0)
        mu = 0.0
        if is_bounded.any():
            mu = float(np.mean(np.abs(gradient[is_bounded]) * nearest[is_bounded]))
        mu = max(mu, LEAST_MU * float(self.q.max()), 1e-300)
        multipliers = np.where(has_bound, np.maximum(side * gradient, 0.0) + mu / distances, 0.0)
        self.bounds = Bounds(distances, multipliers, has_bound)

        # 4. γ above all forms, and weights that make the products with their slacks equal.
        self.gamma = float(self.q[self.learned].max()) + len(self.learned) * mu
        self.slack = self.gamma - self.q[self.learned]
        self.theta[self.learned] = (1.0 / self.slack) / float((1.0 / self.slack).sum())
        value, gap = self._assess()
        self.best = self._end(gap)
        self.history = [(value, gap)]

    def follow(self, tol: float, max_iter: int) -> WeightPathEnd:
        """Take steps until the relative gap is at most `tol`, and return the best iterate.

        Steps end earlier where rounding prevents progress, or `max_iter` steps were taken, with
        those of earlier calls.
        """
        self.tol = tol
        self.max_iter = max_iter
        self.n_idle_steps = 0
        return self.improve().best

    @contextmanager
    def context(self) -> Iterator[None]:
        """Return a context of one BLAS thread in which NumPy does not warn.

        A direction that is not finite is never taken.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), one_blas_thread():
            yield

    def goes_on(self) -> bool:
        """Return whether to take another step.

        The gap must be above `tol`, steps must be left, and one of the last must have made
        progress.
        """
        has_steps = len(self.history) <= self.max_iter
        has_progress = self.n_idle_steps < MOST_IDLE_WEIGHT_STEPS
        return self.best.gap > self.tol and has_steps and has_progress

    def end_step(self) -> None:
        """Record value and gap after a step, and the iterate if its gap is the smallest."""
        value, gap = self._assess()
        self.history.append((value, gap))
        self.n_idle_steps += 1
        if gap < self.best.gap:
            self.best = self._end(gap)
            self.n_idle_steps = 0

    # Values of the iterate ------------------------------------------------------------------------

    @property
    def beta(self) -> Vector:
        """The coefficients."""
        return np.asarray((self.sign * self.x).sum(axis=0))

    def _read_products(self) -> None:
        """Compute the products and the forms of the current β."""
        beta = self.beta
        self.products = self.kernels.products(beta)
        # Rounding can make the form of a positive semi-definite matrix negative.
        self.q = np.maximum(0.5 * self.products @ beta, 0.0)

    def _gradient(self) -> Array:
        """Return the gradient in x of the minimised Lagrangian, without the terms of the bounds."""
        outputs = self.theta @ self.products + self.intercept
        return np.asarray(self.program.ridge * self.x + self.sign * outputs + self.cost)

    def _assess(self) -> tuple[float, float]:
        """Return the primal value at the weights, and the relative gap to the dual value of β.

        Both are infinite while Σβ misses the total.
        """
        program = self.program
        beta = self.beta
        fixed = np.delete(np.arange(len(self.theta)), self.learned)
        form = float(self.q[self.learned].max()) + float(self.theta[fixed] @ self.q[fixed])
        lower = float(program.linear_value(beta)) - form
        if program.total is not None:
            size = max(abs(program.total), float(np.abs(beta).sum()))
            if abs(program.total - float(beta.sum())) > WEIGHT_PATH_SUM_ERROR * size:
                return np.inf, np.inf
        theta = self.theta.copy()
        theta[self.learned] /= theta[self.learned].sum()
        values = theta @ self.products
        intercept = program.best_intercept(values, self.intercept)
        upper = float(program.primal_value(float(theta @ self.q), values, intercept))
        return upper, relative_gap(upper, lower)

    def _end(self, gap: float) -> WeightPathEnd:
        """Return the iterate, with the bounds to which coefficients and weights converge.

        A variable converges to a bound if its distance to the bound is smaller than the bound's
        multiplier, each relative to the largest of its kind.
        """
        program = self.program
        bounds = self.bounds
        learned = self.learned
        values = self.theta @ self.products
        largest = max(float(np.abs(self.x).max()), 1e-300)
        largest_target = float(np.abs(program.target).max(initial=0.0))
        steepest = max(largest_target, program.epsilon, float(np.abs(values).max()), 1e-300)
        is_near = bounds.exist & (bounds.distances / largest < bounds.multipliers / steepest)
        x_at_lower = is_near[0] | ~self.moves
        x_at_upper = is_near[1]
        if program.epsilon:
            # β = x₀ − x₁ is zero where both parts are.
            is_zero = x_at_lower.all(axis=0)
            at_lower = x_at_upper[1] | is_zero
            at_upper = x_at_upper[0] | is_zero
        else:
            at_lower = x_at_lower[0]
            at_upper = x_at_upper[0]
        # θ_m is the distance of a weight to zero, its slack the multiplier, in units of γ.
        is_idle = np.zeros(len(self.theta), dtype=bool)
        is_idle[learned] = self.theta[learned] * self.gamma < self.slack
        is_idle[learned] &= not is_idle[learned].all()
        return WeightPathEnd(self.theta.copy(), is_idle, self.beta, at_lower, at_upper, gap)

    # Steps ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take one predictor and corrector step; False if rounding prevents one.

        The predictor is the Newton direction to complementarity products of zero. Its length sets
        the aim of the corrector, which also has the second-order terms of the predictor.
        """
        # 1. The Newton matrix.
        bounds = self.bounds
        learned = self.learned
        stiffness = self.program.ridge + bounds.stiffness()
        moving = self.moves & (stiffness > 0)
        self.inverse_stiffness = np.where(moving, 1.0 / np.where(moving, stiffness, 1.0), 0.0)
        try:
            self._factorise()
        except np.linalg.LinAlgError:
            return False

        # 2. The predictor, and the mean of the products at the end of its step.
        theta = self.theta[learned]
        slack = self.slack
        products = bounds.products()
        weight_products = theta * slack
        missing = self.gamma - self.q[learned] - slack
        predictor = self._direction(-products, -weight_products, missing)
        size = min(self._longest_step(predictor), 1.0)
        count = bounds.count + len(learned)
        mean = float(products.sum() + weight_products.sum()) / count
        ahead = float(bounds.products(predictor.x, predictor.multipliers, size).sum())
        ahead += float((theta + size * predictor.theta) @ (slack + size * predictor.slack))
        aim = centring(mean, ahead / count)

        # 3. The corrector, with the second-order terms of the predictor's step: in the products, in
        #    the forms and in the gradient.
        changed_products = self.kernels.products(predictor.beta)[learned]
        missing = missing - 0.5 * changed_products @ predictor.beta
        bend = predictor.theta @ changed_products
        right = bounds.complementarity(aim, predictor.x, predictor.multipliers)
        weight_right = aim - weight_products - predictor.theta * predictor.slack
        return self._move(self._direction(right, weight_right, missing, bend))

    def _factorise(self) -> None:
        """Factorise I + E^½ H E^½, the matrix of the Newton system.

        E are the inverse stiffnesses of the samples, H is the curvature of the kernels.

        It sets `E`, `root` = E^½, `factors` = θ_m/s_m, `solve_scaled`, and `by_gamma` and
        `by_intercept`, the changes of β with γ and with the intercept; `gamma_side` is the
        right-hand side of the former, Σ factors_m v_m.
        """
        learned = self.learned
        self.E = self.inverse_stiffness.sum(axis=0)
        self.root = np.sqrt(self.E)
        self.factors = self.theta[learned] / self.slack
        spread = np.zeros(len(self.theta))
        spread[learned] = self.factors
        self.solve_scaled = self.kernels.factorise(
            self.theta, self.beta, self.products, spread, self.root
        )
        self.gamma_side = self.products[learned].T @ self.factors
        sides = np.column_stack([self.gamma_side, np.ones(len(self.E))])
        self.by_gamma, self.by_intercept = self._solve(sides).T

    def _solve(self, right: Array) -> Array:
        """Return (E⁻¹ + H)⁻¹ times one or more right-hand sides."""
        root = self.root if right.ndim == 1 else self.root[:, np.newaxis]
        return np.asarray(root * self.solve_scaled(root * right))

    def _direction(
        self, right: Array, weight_right: Vector, missing: Vector, bend: Vector | float = 0.0
    ) -> _Direction:
        """Return the solution of the Newton system.

        Parameters
        ----------
        right, weight_right : ndarray of shape (2, parts, n) and (learned,)
            The wanted changes of the products of distances and multipliers, and of weights and
            slacks.
        missing : ndarray of shape (learned,)
            γ − ½ βᵀK_mβ − s_m.
        bend : ndarray of shape (n,), or zero
            The change of the gradient in second order.
        """
        program = self.program
        V = self.products[self.learned]
        w = self.factors

        # 1. dβ without the changes of γ and of the intercept.
        pull = self.bounds.right_side(right) - self._gradient() - self.sign * bend
        free = (self.sign * pull * self.inverse_stiffness).sum(axis=0)
        # dθ = k + w ∘ (V dβ − dγ), from the products of weights and slacks.
        k = weight_right / self.slack - w * missing
        scaled = np.divide(free, self.root, out=np.zeros(len(free)), where=self.root > 0)
        direct = self.root * self.solve_scaled(scaled - self.root * (V.T @ k))

        # 2. dγ and the change of the intercept, so that Σθ = 1 and Σβ = total.
        learned_sum = float(self.theta[self.learned].sum())
        theta_lack = 1.0 - learned_sum - float(k.sum()) - float(self.gamma_side @ direct)
        curvature = float(self.gamma_side @ self.by_gamma) - float(w.sum())
        if program.total is None:
            gamma = theta_lack / curvature
            intercept = 0.0
        else:
            across = float(self.by_gamma.sum())
            system = np.array([[curvature, -across], [across, -float(self.by_intercept.sum())]])
            beta_lack = program.total - float(self.beta.sum()) - float(direct.sum())
            gamma, intercept = np.linalg.solve(system, np.array([theta_lack, beta_lack]))

        # 3. All other changes follow.
        beta = direct + gamma * self.by_gamma - intercept * self.by_intercept
        along = V @ beta
        theta = k + w * (along - gamma)
        change = np.divide(free - beta, self.E, out=np.zeros(len(free)), where=self.E > 0)
        x = self.inverse_stiffness * (pull - self.sign * change)
        return _Direction(
            x=x,
            multipliers=self.bounds.change(x, right),
            intercept=float(intercept),
            gamma=float(gamma),
            theta=theta,
            slack=gamma + missing - along,
            beta=beta,
        )

    def _longest_step(self, d: _Direction) -> float:
        """Return the size of the step along d to the nearest bound."""
        of_weights = longest_step((self.theta[self.learned], d.theta), (self.slack, d.slack))
        return min(self.bounds.longest_step(d.x, d.multipliers), of_weights)

    def _move(self, d: _Direction) -> bool:
        """Take a step along d, just short of the nearest bound.

        False is returned, and nothing changed, where rounding makes the step too short.
        """
        size = min(FRACTION_TO_BOUNDARY * self._longest_step(d), 1.0)
        if not np.isfinite(size) or size <= SHORTEST_WEIGHT_STEP or not np.isfinite(d.x).all():
            return False
        bounds = self.bounds
        self.x = self.x + size * d.x
        # Distances are variables of their own: computed from an x far from zero they would be
        # rounding.
        bounds.distances = np.where(bounds.exist, bounds.distances + size * bounds.side * d.x, 1.0)
        bounds.multipliers = bounds.multipliers + size * d.multipliers
        self.intercept += size * d.intercept
        self.gamma += size * d.gamma
        self.theta[self.learned] += size * d.theta
        self.slack = self.slack + size * d.slack
        self._read_products()
        # The forms are not linear in β: the linear slack is replaced by γ − ½βᵀK_mβ unless that is
        # much smaller, or negative.
        exact = self.gamma - self.q[self.learned]
        self.slack = np.where(exact > EXACT_SLACK * self.slack, exact, self.slack)
        return True
