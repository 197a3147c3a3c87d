"""The sets of the weights, what learners need of them, and the penalties of the kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import Array, ArrayOrTensor
from kernelmosaic.backend import default_budget, format_bytes
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.tuning import (
    DAMPING,
    LEAST_GAIN,
    LEAST_STEP_WEIGHT,
    LEAST_TRUSTED,
    MAX_EXCHANGES,
    MAX_MODEL_STEPS,
    MAX_SHRINKAGE,
    MODEL_TOL,
    POWER_START,
    STEEP_POWER,
    ZERO_WEIGHT,
)
from kernelmosaic.solvers.conic import solve_master
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import solve_smo

Weights = Array


class WeightNorm(ABC):
    """Weights η ≥ 0 with norm(d² ∘ η) = 1, in the scaled form θ = d² ∘ η with norm(θ) = 1.

    The value J(θ) of a machine has the gradient −q, where q_m = ½ βᵀK_mβ / d_m² ≥ 0.

    Attributes
    ----------
    sums_to_one : bool
        Whether the set is the simplex, which linear and conic programs describe.
    """

    sums_to_one: bool = False

    @abstractmethod
    def __str__(self) -> str:
        """Return the estimator's parameter that selects it."""

    @abstractmethod
    def start(self, n_kernels: int) -> Weights:
        """Return the point of the set that prefers no kernel, of shape (n_kernels,)."""

    @abstractmethod
    def support(self, q: Weights) -> float:
        """Return the support function of the set, max ⟨θ, q⟩ over its points θ."""

    @abstractmethod
    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        """Return a step δ to the minimiser over the set of −⟨q, δ⟩ + ½ δᵀHδ.

        Parameters
        ----------
        theta : ndarray of shape (P,)
            The point where the step starts.
        q : ndarray of shape (P,)
            The negative gradient there.
        H : ndarray of shape (P, P)
            The curvature there.
        """

    @abstractmethod
    def retract(self, theta: Weights) -> Weights:
        """Return the point of the set that a θ near the set stands for."""

    def start_near(self, theta: Weights) -> Weights:
        """Return a start near θ from which Newton steps reach every point of the set."""
        return theta

    def minimise_planes(
        self, constants: Weights, gradients: Array
    ) -> tuple[Weights, float, Weights] | None:
        """Return where the largest of the planes constants_k − ⟨gradients_k, θ⟩ is least.

        Parameters
        ----------
        constants, gradients : ndarray of shape (planes,) and (planes, P)
            The planes; a plane falls along its row of `gradients`.

        Returns
        -------
        theta : ndarray of shape (P,)
            A minimiser.
        bound : float
            A lower bound on the minimum.
        shares : ndarray of shape (planes,)
            Not negative and of sum one: the mixture of the planes by them has this bound.

        None is returned by norms that do not know the minimum.
        """
        return None


class SumNorm(WeightNorm):
    """Σ θ = 1: sparse weights."""

    sums_to_one = True

    def __str__(self) -> str:
        return "norm=1"

    def start(self, n_kernels: int) -> Weights:
        return np.full(n_kernels, 1.0 / n_kernels)

    def support(self, q: Weights) -> float:
        return float(q.max())

    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        return _simplex_step(theta, q, damped(H), np.diag(H))

    def minimise_planes(
        self, constants: Weights, gradients: Array
    ) -> tuple[Weights, float, Weights] | None:
        return solve_master(constants, gradients)

    def retract(self, theta: Weights) -> Weights:
        theta = np.where(theta > ZERO_WEIGHT, theta, 0.0)
        return np.asarray(theta / theta.sum())


class PowerNorm(WeightNorm):
    """(Σ θ^p)^(1/p) = 1 with p > 1: weights that do not vanish.

    Parameters
    ----------
    p : float
        Above one.
    """

    def __init__(self, p: float) -> None:
        self.p = float(p)

    def __str__(self) -> str:
        return f"norm={self.p:g}"

    def start(self, n_kernels: int) -> Weights:
        return np.full(n_kernels, n_kernels ** (-1.0 / self.p))

    def support(self, q: Weights) -> float:
        # Hölder's inequality, written so that large exponents do not overflow.
        largest = float(q.max())
        dual = self.p / (self.p - 1.0)
        if not 0.0 < largest < np.inf:
            return max(largest, 0.0)
        return float(largest * np.sum((q / largest) ** dual) ** (1.0 / dual))

    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        """Return one step of sequential quadratic programming on J subject to Σ θ^p = 1."""
        p = self.p
        multiplier = float(theta @ q)
        positive = np.maximum(theta, LEAST_STEP_WEIGHT)
        normal = positive ** (p - 1.0)

        # In relative steps δ/θ the curvature of the constraint stays bounded as weights shrink.
        scaled_H = damped(H) * np.outer(positive, positive)
        A = damped(scaled_H + np.diag(multiplier * (p - 1.0) * positive**p))
        right_sides = np.column_stack([q * positive, normal * positive])
        solved = np.linalg.solve(A, right_sides)
        step = solved[:, 0]
        correction = solved[:, 1]

        # The step along the constraint: ⟨normal, θ ∘ step⟩ = 0.
        step = step - (normal * positive) @ step / ((normal * positive) @ correction) * correction
        # A weight is zero only in the limit.
        return np.asarray(positive * np.clip(step, -MAX_SHRINKAGE, None))

    def retract(self, theta: Weights) -> Weights:
        theta = np.maximum(theta, 0.0)
        return theta / np.linalg.norm(theta, ord=self.p)

    def start_near(self, theta: Weights) -> Weights:
        # Steps are relative to the weights: from a weight of zero there is none.
        least = POWER_START * float(theta.max())
        if theta.min() >= least:
            return theta
        return self.retract(np.maximum(theta, least))


class BesideFixed(WeightNorm):
    """The set of a norm for some kernels, beside other kernels of fixed weights.

    Fixed weights are no part of the norm.

    Parameters
    ----------
    norm : WeightNorm
        Of the kernels whose weights are learned.
    fixed : ndarray of shape (P,)
        The fixed weights; NaN for those that are learned.
    """

    def __init__(self, norm: WeightNorm, fixed: Weights) -> None:
        self.norm = norm
        self.fixed = fixed
        self._fixed_kernels = np.flatnonzero(~np.isnan(fixed))
        self._learned_kernels = np.flatnonzero(np.isnan(fixed))
        self._fixed_weights = fixed[self._fixed_kernels]

    def __str__(self) -> str:
        return f"{self.norm} with fixed_weights"

    def _join(self, learned: Weights, fixed: Weights | float) -> Weights:
        """Return an array over all kernels from the values of the learned and the fixed ones."""
        joined = np.empty(len(self.fixed))
        joined[self._learned_kernels] = learned
        joined[self._fixed_kernels] = fixed
        return joined

    def start(self, n_kernels: int) -> Weights:
        return self._join(self.norm.start(len(self._learned_kernels)), self._fixed_weights)

    def support(self, q: Weights) -> float:
        fixed_part = float(self._fixed_weights @ q[self._fixed_kernels])
        return self.norm.support(q[self._learned_kernels]) + fixed_part

    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        learned = self._learned_kernels
        step = self.norm.newton_direction(theta[learned], q[learned], H[np.ix_(learned, learned)])
        return self._join(step, 0.0)

    def retract(self, theta: Weights) -> Weights:
        learned = theta[self._learned_kernels]
        if np.any(learned > 0):
            learned = self.norm.retract(learned)
        else:
            # Another problem has left all these kernels without a weight: none is preferred.
            learned = self.norm.start(len(learned))
        return self._join(learned, self._fixed_weights)

    def start_near(self, theta: Weights) -> Weights:
        return self._join(self.norm.start_near(theta[self._learned_kernels]), self._fixed_weights)

    def minimise_planes(
        self, constants: Weights, gradients: Array
    ) -> tuple[Weights, float, Weights] | None:
        minimum = self.norm.minimise_planes(
            constants - gradients[:, self._fixed_kernels] @ self._fixed_weights,
            gradients[:, self._learned_kernels],
        )
        if minimum is None:
            return None
        learned, bound, shares = minimum
        return self._join(learned, self._fixed_weights), bound, shares


# Newton steps over the simplex --------------------------------------------------------------------


def _simplex_step(x: Weights, q: Weights, A: Array, curvature: Weights) -> Weights:
    """Return the step δ to the minimiser of −⟨q, δ⟩ + ½ δᵀAδ over a part of the simplex.

    No weight falls below its trusted floor, which follows from the diagonal `curvature`.
    """
    floor = trusted_floor(x, q, curvature, common=float(x @ q))
    floor /= max(float(floor.sum()), 1.0)
    step = _step_above(floor, x, q, A)
    if float(q @ step) > 0:
        return step
    # Where the floor raises many weights at once, the step may not descend. The floor then raises
    # no weight.
    return _step_above(np.minimum(floor, x), x, q, A)


def _step_above(floor: Weights, x: Weights, q: Weights, A: Array) -> Weights:
    """Return the step δ to the minimiser of −⟨q, δ⟩ + ½ δᵀAδ over x + δ ≥ floor, Σ (x + δ) = 1."""
    # The variables are z = x + δ − floor ≥ 0 with Σ z = total.
    total = max(1.0 - float(floor.sum()), 0.0)
    target = q + A @ (x - floor)
    start = np.full(len(q), total / len(q))
    above_floor = np.maximum(x - floor, 0.0)
    if above_floor.any():
        start = above_floor * (total / above_floor.sum())
    z: Weights | None = start
    if total > 0:
        z = simplex_minimiser(A, target, start)
    if z is None:
        # The quadratic model over the simplex is itself a program of the one form all machines
        # share.
        zero = np.zeros(len(q))
        simplex = Program(target, zero, zero + 1.0, zero, total=total)
        max_steps = min(1000 * len(q), MAX_MODEL_STEPS)
        z = solve_smo(A, simplex, warm_start=start, tol=MODEL_TOL, max_iter=max_steps).beta
    return np.asarray(floor + z - x)


def simplex_minimiser(
    A: Array, b: Weights, start: Weights, max_exchanges: int = MAX_EXCHANGES
) -> Weights | None:
    """Return argmin of ½ xᵀAx − ⟨b, x⟩ over x ≥ 0 with the sum of a start.

    An active-set method. The free x solve a linear system. If one of them would become negative,
    the step ends where it is zero, and it is free no longer. If another x would gain more than the
    free ones, it becomes free. None is returned for a singular system, or after `max_exchanges`
    changes of the free set.
    """
    x = start.copy()
    is_free = start > 0
    for _ in range(max_exchanges):
        # 1. The minimiser over the free x, with the multiplier of their sum.
        free = np.flatnonzero(is_free)
        system = np.pad(A[np.ix_(free, free)], (0, 1), constant_values=1.0)
        system[-1, -1] = 0.0
        try:
            *new_x, multiplier = np.linalg.solve(system, np.append(b[free], start.sum()))
        except np.linalg.LinAlgError:
            return None
        step = np.array(new_x) - x[free]
        if not np.isfinite(step).all():
            return None

        # 2. The first x that would become negative leaves the free set.
        leaving = np.flatnonzero(x[free] + step < 0)
        if len(leaving):
            sizes = x[free][leaving] / -step[leaving]
            x[free] = np.maximum(x[free] + sizes.min() * step, 0.0)
            is_free[free[leaving[sizes.argmin()]]] = False
            x[~is_free] = 0.0
            continue

        # 3. The x that gains most enters the free set, unless rounding alone makes it gain.
        x[free] += step
        gains = np.where(is_free, 0.0, b - A @ x - multiplier)
        if not gains.max() > LEAST_GAIN * (abs(multiplier) + np.abs(b).max()):
            return x
        is_free[gains.argmax()] = True
    return None


def trusted_floor(theta: Weights, q: Weights, curvature: Weights, common: float) -> Weights:
    """Return the least value of each weight to which a Newton step can be trusted.

    The step is to make all q equal to `common`. Near zero q is not linear in the weight but a power
    of it, q ∝ θ^(−κ) with κ = θ H_mm / q between 0 and 2 (2 when ‖w_m‖ is all that stays the same).

    - Where the linear model alone would make a weight negative before its q reaches the common one,
      the floor is the solution of the power. A weight that is too small to matter may become zero,
      unless the power says that its q would then be far too large.
    - Where a weight is to grow and the power is a steep one, the linear model falls short of the
      solution of the power, which is then the floor.

    Parameters
    ----------
    theta, q : ndarray of shape (P,)
        The weights, and the negative gradient.
    curvature : ndarray of shape (P,)
        The diagonal H_mm.
    common : float
        What all q are to become.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.clip(theta * curvature / q, 1e-3, 2.0)
        target = theta * (q / common) ** (1.0 / power)
    target[~np.isfinite(target)] = 0.0
    is_steep = power >= STEEP_POWER
    matters = (target > LEAST_TRUSTED * theta.mean()) | is_steep
    overshoots = (1.0 + power) * q < common
    floor = np.where(overshoots & matters, np.minimum(target, theta), 0.0)
    return np.where(is_steep & (q > common), target, floor)


def damped(H: Array) -> Array:
    """Return the symmetric part of H with a little more on its diagonal.

    A quadratic model of equal kernels, whose curvature is singular, is then solvable.
    """
    A = 0.5 * (H + H.T)
    # Rounding may leave a curvature of zero a little below it.
    mean_diagonal = max(abs(float(np.trace(A))) / len(A), 1e-300)
    A[np.diag_indices_from(A)] += DAMPING * mean_diagonal
    return A


# Reading parameters -------------------------------------------------------------------------------


def make_norm(norm: Any) -> WeightNorm:
    """Return the set of the weights for an estimator's `norm`, or raise a ValueError."""
    if not _is_number(norm) or not 1 <= norm < np.inf:
        raise ValueError(f"norm={norm!r}: give 1 for sparse weights, or a finite number above 1.")
    if norm == 1:
        return SumNorm()
    return PowerNorm(float(norm))


def _is_number(value: Any) -> bool:
    """Whether a value is a real number; truth values are none."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def read_fixed(fixed_weights: object, names: Sequence[str], views: Sequence[str]) -> Weights:
    """Return the fixed weights of the kernels, of shape (P,); NaN for kernels that have none.

    Parameters
    ----------
    fixed_weights : dict
        Weights by names of kernels, or of views, all kernels of which get the weight.
    names, views : sequence of str
        The name and the view of every kernel.
    """
    if not isinstance(fixed_weights, Mapping):
        raise TypeError(
            f"fixed_weights={fixed_weights!r}: give a dict from the names of kernels, or of views,"
            " to weights."
        )
    fixed = np.full(len(names), np.nan)
    for name, weight in fixed_weights.items():
        kernels = [m for m, pair in enumerate(zip(names, views, strict=True)) if name in pair]
        if not kernels:
            raise ValueError(
                f"fixed_weights: {name!r} is not a kernel or a view; the kernels are"
                f" {', '.join(names)}."
            )
        fixed[kernels] = check_positive(f"fixed_weights[{name!r}]", weight)
    if not np.isnan(fixed).any():
        raise ValueError(
            f"fixed_weights={fixed_weights!r} fixes all kernels; use weights=[...] for that, or"
            " leave one out."
        )
    return fixed


# Penalties ----------------------------------------------------------------------------------------


def make_penalties(penalties: Any, power: Any, stack: GramStack) -> Array:
    """Return the penalties d_m of the kernels, of shape (P,).

    Parameters
    ----------
    penalties : None, "eigenvalue" or sequence of P floats
        None for ones, "eigenvalue" for `eigenvalue_penalties`, or the d_m themselves.
    power : float
        Of the eigenvalue penalties.
    stack : GramStack
        The kernels.
    """
    P = stack.n_kernels
    if penalties is None:
        return np.ones(P)
    if isinstance(penalties, str):
        if penalties != "eigenvalue":
            raise ValueError(
                f"penalties={penalties!r}: give 'eigenvalue', {P} positive numbers, or None."
            )
        if not _is_number(power) or not 0 <= power < np.inf:
            raise ValueError(
                f"penalty_power={power!r}: give a number of at least 0; 0 penalises all kernels"
                " alike."
            )
        return eigenvalue_penalties(stack, float(power))
    d = numbers("penalties", penalties, P)
    if np.any(d <= 0):
        raise ValueError(f"penalties={penalties!r}: every penalty must be positive.")
    # Penalties enter squared: beyond these limits one kernel gets all the weight or none of it, and
    # its matrix overflows.
    if np.any(d < 1e-8) or np.any(d > 1e8):
        raise ValueError(f"penalties={penalties!r}: give numbers between 1e-08 and 1e+08.")
    return d


def eigenvalue_penalties(stack: GramStack, power: float) -> Array:
    """Return d_m = e_m^power, of shape (P,).

    e_m is the number of eigenvalues above ½ of K_m, scaled to unit diagonal; 1 if there is none.

    References
    ----------
    Bach, Thibaux and Jordan (2005), "Computing regularization paths for learning multiple kernels".
    """
    if power == 0:
        return np.ones(stack.n_kernels)
    counts = np.array([float(large_eigenvalues(stack, m)) for m in range(stack.n_kernels)])
    return counts**power


def large_eigenvalues(stack: GramStack, m: int) -> int:
    """Return the number of eigenvalues above ½ of K_m, scaled to unit diagonal; at least 1."""
    n = stack.n_samples
    needed_bytes = 2 * 8 * n * n
    if needed_bytes > default_budget():
        raise MemoryError(
            f"penalties='eigenvalue' needs {format_bytes(needed_bytes)} for the spectrum of one"
            f" {n} x {n} kernel matrix: use fewer samples, or give the penalties as numbers."
        )
    K = np.array(stack.row_block(m, slice(0, n)), dtype=np.float64)
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))
    norms[norms == 0] = 1.0
    K /= norms
    K /= norms[:, np.newaxis]
    eigenvalues = eigvalsh(K, overwrite_a=True, check_finite=False)
    return max(int(np.count_nonzero(eigenvalues > 0.5)), 1)


def numbers(name: str, values: ArrayOrTensor, P: int) -> Array:
    """Return the values as an array of P finite numbers, or raise an error.

    `name` is the parameter that the error names.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={values!r}: give {P} numbers, one per kernel.") from None
    if array.shape != (P,):
        raise ValueError(
            f"{name} has shape {array.shape}, but there are {P} kernels: give one number per"
            " kernel."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={values!r}: NaN and infinity are not allowed.")
    return array
