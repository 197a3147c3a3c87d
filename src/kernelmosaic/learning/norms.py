"""The sets of the weights: their norms, what learners need of them, and the penalties on the
kernels."""

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
from kernelmosaic.solvers.conic import solve_master
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import solve_smo

Weights = Array

#: Below this a weight is rounding, and its kernel would be evaluated for nothing.
_ZERO = 1e-12


class WeightNorm(ABC):
    """Weights η ≥ 0 with norm(d² ∘ η) = 1, in the scaled form θ = d² ∘ η with norm(θ) = 1.

    The value J(θ) of a machine falls with the slope −q_m, where q_m = ½ βᵀK_mβ / d_m² ≥ 0.

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
        """Return the point that prefers no kernel."""

    @abstractmethod
    def support(self, q: Weights) -> float:
        """Return max ⟨θ, q⟩ over the set: what the best weights would take from the dual value."""

    @abstractmethod
    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        """Return the step to the minimiser over the set of −⟨q, δ⟩ + ½ δᵀHδ."""

    @abstractmethod
    def retract(self, theta: Weights) -> Weights:
        """Bring a point near the set back onto it."""

    def opened(self, theta: Weights) -> Weights:
        """Return a start near another one from which steps reach every point of the set."""
        return theta

    def lowest_plane_point(
        self, constants: Weights, slopes: Weights
    ) -> tuple[Weights, float, Weights] | None:
        """Return where the largest of constants_k − ⟨slopes_k, θ⟩ is least, a bound of it and the
        shares that prove it.

        None if unknown.
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

    def lowest_plane_point(
        self, constants: Weights, slopes: Weights
    ) -> tuple[Weights, float, Weights] | None:
        return solve_master(constants, slopes)

    def retract(self, theta: Weights) -> Weights:
        theta = np.where(theta > _ZERO, theta, 0.0)
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
        top = float(q.max())
        dual = self.p / (self.p - 1.0)
        if not 0.0 < top < np.inf:
            return max(top, 0.0)
        return float(top * np.sum((q / top) ** dual) ** (1.0 / dual))

    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        """One step of sequential quadratic programming on J with the constraint Σ θ^p = 1."""
        multiplier = float(theta @ q)
        safe = np.maximum(theta, 1e-12)
        slope = safe ** (self.p - 1.0)
        # In relative steps δ/θ the constraint's curvature stays bounded as weights shrink.
        A = damped(
            damped(H) * np.outer(safe, safe) + np.diag(multiplier * (self.p - 1.0) * safe**self.p)
        )
        sides = np.linalg.solve(A, np.column_stack([q * safe, slope * safe]))
        step, normal = sides[:, 0], sides[:, 1]
        step = step - (slope * safe) @ step / ((slope * safe) @ normal) * normal
        # A weight may shrink to a tenth at most in one step: it is zero only in the limit.
        return np.asarray(safe * np.clip(step, -0.9, None))

    def retract(self, theta: Weights) -> Weights:
        theta = np.maximum(theta, 0.0)
        return theta / np.linalg.norm(theta, ord=self.p)

    def opened(self, theta: Weights) -> Weights:
        # Steps are relative to the weights: from zero there is none.
        least = 1e-3 * float(theta.max())
        return theta if theta.min() >= least else self.retract(np.maximum(theta, least))


class BesideFixed(WeightNorm):
    """The set of a norm for some kernels, beside others that keep their weights and are no part of
    the norm.

    Parameters
    ----------
    norm : WeightNorm
        Of the other kernels.
    fixed : ndarray of shape (P,)
        The weights that are kept; NaN for those that are learned.
    """

    def __init__(self, norm: WeightNorm, fixed: Weights) -> None:
        self.norm, self.fixed = norm, fixed
        self.kept, self.free = np.flatnonzero(~np.isnan(fixed)), np.flatnonzero(np.isnan(fixed))

    def __str__(self) -> str:
        return f"{self.norm} with fixed_weights"

    def _beside(self, free: Weights, kept: Weights | float) -> Weights:
        """Return numbers of all kernels from those of the learned and those of the kept ones."""
        out = np.empty(len(self.fixed))
        out[self.free], out[self.kept] = free, kept
        return out

    def start(self, n_kernels: int) -> Weights:
        return self._beside(self.norm.start(len(self.free)), self.fixed[self.kept])

    def support(self, q: Weights) -> float:
        return self.norm.support(q[self.free]) + float(self.fixed[self.kept] @ q[self.kept])

    def newton_direction(self, theta: Weights, q: Weights, H: Array) -> Weights:
        free = self.free
        return self._beside(
            self.norm.newton_direction(theta[free], q[free], H[np.ix_(free, free)]), 0.0
        )

    def retract(self, theta: Weights) -> Weights:
        free = theta[self.free]
        # Where another problem left these kernels without any weight, none is better than the
        # others.
        free = self.norm.retract(free) if np.any(free > 0) else self.norm.start(len(free))
        return self._beside(free, self.fixed[self.kept])

    def opened(self, theta: Weights) -> Weights:
        return self._beside(self.norm.opened(theta[self.free]), self.fixed[self.kept])

    def lowest_plane_point(
        self, constants: Weights, slopes: Weights
    ) -> tuple[Weights, float, Weights] | None:
        found = self.norm.lowest_plane_point(
            constants - slopes[:, self.kept] @ self.fixed[self.kept], slopes[:, self.free]
        )
        return (
            None if found is None else (self._beside(found[0], self.fixed[self.kept]), *found[1:])
        )


def _simplex_step(x: Weights, q: Weights, A: Array, curvature: Weights) -> Weights:
    """Return the step to the minimiser of −⟨q, δ⟩ + ½ δᵀAδ over the simplex, above a floor by
    `curvature`."""
    floor = trusted_floor(x, q, curvature, common=float(x @ q))
    floor /= max(float(floor.sum()), 1.0)
    step = _step_above(floor, x, q, A)
    # Where the floor raises many weights at once, the step may not descend: then it raises none.
    return step if float(q @ step) > 0 else _step_above(np.minimum(floor, x), x, q, A)


def _step_above(floor: Weights, x: Weights, q: Weights, A: Array) -> Weights:
    """Return the step to the minimiser of −⟨q, δ⟩ + ½ δᵀAδ over the part of the simplex above a
    floor."""
    total, target = max(1.0 - float(floor.sum()), 0.0), q + A @ (x - floor)
    start = np.maximum(x - floor, 0.0)
    start = start * (total / start.sum()) if start.any() else np.full(len(q), total / len(q))
    rest = simplex_minimiser(A, target, start) if total > 0 else start
    if rest is None:
        # The quadratic model over the simplex is itself a program of the one form all machines
        # share.
        zero = np.zeros(len(q))
        simplex = Program(target, zero, zero + 1.0, zero, total=total)
        rest = solve_smo(
            A, simplex, warm_start=start, tol=1e-10, max_iter=min(1000 * len(q), 100_000)
        ).beta
    return np.asarray(floor + rest - x)


def simplex_minimiser(A: Array, b: Weights, start: Weights, most: int = 100) -> Weights | None:
    """Return argmin of ½ xᵀAx − ⟨b, x⟩ over x ≥ 0 with the sum of a start; None after `most`
    changes of its free set.

    Of the free x a linear system is solved; one that would become negative is free no longer, and
    one that gains more than they do becomes free.
    """
    x, free = start.copy(), start > 0
    for _ in range(most):
        at = np.flatnonzero(free)
        system = np.pad(A[np.ix_(at, at)], (0, 1), constant_values=1.0)
        system[-1, -1] = 0.0
        try:
            *new, common = np.linalg.solve(system, np.append(b[at], start.sum()))
        except np.linalg.LinAlgError:
            return None
        moved = np.array(new) - x[at]
        if not np.isfinite(moved).all():
            return None
        leaving = np.flatnonzero(x[at] + moved < 0)
        if len(leaving):
            sizes = x[at][leaving] / -moved[leaving]
            x[at] = np.maximum(x[at] + sizes.min() * moved, 0.0)
            free[at[leaving[sizes.argmin()]]] = False
            x[~free] = 0.0
            continue
        x[at] += moved
        gains = np.where(free, 0.0, b - A @ x - common)
        if not gains.max() > 1e-12 * (abs(common) + np.abs(b).max()):
            return x
        free[gains.argmax()] = True
    return None


def trusted_floor(theta: Weights, q: Weights, curvature: Weights, common: float) -> Weights:
    """Return the least that a Newton step should leave of each weight when all slopes are to become
    the common one.

    Near zero the slope is not linear in the weight but a power of it, q ∝ θ^(−κ) with κ = θ H_mm /
    q between 0 and 2 (2 when ‖w_m‖ is all that stays the same). Where the linear model alone would
    make a weight negative before its slope reaches the common one, the power's solution is the
    floor; what is too small to matter may become zero, unless the power says that its slope would
    then be far too large. Where a weight is to grow and the power is a steep one, the linear model
    falls short of its solution, which is the floor, too.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.clip(theta * curvature / q, 1e-3, 2.0)
        # From the power 1.5 on a slope is trusted to follow it down to the smallest weights.
        target, steep = theta * (q / common) ** (1.0 / power), power >= 1.5
    target[~np.isfinite(target)] = 0.0
    matters = (target > 1e-2 * theta.mean()) | steep
    floor = np.where(((1.0 + power) * q < common) & matters, np.minimum(target, theta), 0.0)
    return np.where(steep & (q > common), target, floor)


def damped(H: Array) -> Array:
    """Return the symmetric part with a little more on its diagonal: a quadratic model of equal
    kernels is solvable."""
    A = 0.5 * (H + H.T)
    # Rounding may leave a curvature of zero a little below it.
    A[np.diag_indices_from(A)] += 1e-8 * max(abs(float(np.trace(A))) / len(A), 1e-300)
    return A


def make_norm(norm: Any) -> WeightNorm:
    """Return the set of an estimator's `norm`, or raise naming the known ones."""
    if (
        isinstance(norm, bool)
        or not isinstance(norm, int | float | np.number)
        or not 1 <= norm < np.inf
    ):
        raise ValueError(f"norm={norm!r}: give 1 for sparse weights, or a finite number above 1.")
    return SumNorm() if norm == 1 else PowerNorm(float(norm))


def read_fixed(given: object, names: Sequence[str], views: Sequence[str]) -> Weights:
    """Return the weights that kernels keep, NaN for the others, from a dict by names of kernels or
    views."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"fixed_weights={given!r}: give a dict from the names of kernels, or of views, to"
            " weights."
        )
    fixed = np.full(len(names), np.nan)
    for name, weight in given.items():
        own = [m for m, both in enumerate(zip(names, views, strict=True)) if name in both]
        if not own:
            raise ValueError(
                f"fixed_weights: {name!r} is not a kernel or a view; the kernels are"
                f" {', '.join(names)}."
            )
        fixed[own] = check_positive(f"fixed_weights[{name!r}]", weight)
    if not np.isnan(fixed).any():
        raise ValueError(
            f"fixed_weights={given!r} fixes all kernels; use weights=[...] for that, or leave one"
            " out."
        )
    return fixed


# Penalties ----------------------------------------------------------------------------------------


def make_penalties(penalties: Any, power: Any, stack: GramStack) -> Array:
    """Return the d_m: ones for None, e_m^power for "eigenvalue", else the given ones, checked."""
    P = stack.n_kernels
    if penalties is None:
        return np.ones(P)
    if isinstance(penalties, str):
        if penalties != "eigenvalue":
            raise ValueError(
                f"penalties={penalties!r}: give 'eigenvalue', {P} positive numbers, or None."
            )
        if (
            isinstance(power, bool)
            or not isinstance(power, int | float | np.number)
            or not 0 <= power < np.inf
        ):
            raise ValueError(
                f"penalty_power={power!r}: give a number of at least 0; 0 penalises all kernels"
                " alike."
            )
        return eigenvalue_penalties(stack, float(power))
    d = numbers("penalties", penalties, P)
    if np.any(d <= 0):
        raise ValueError(f"penalties={penalties!r}: every penalty must be positive.")
    # They enter squared: beyond this a kernel is all there is, or none, and its matrix overflows.
    if np.any(d < 1e-8) or np.any(d > 1e8):
        raise ValueError(f"penalties={penalties!r}: give numbers between 1e-08 and 1e+08.")
    return d


def eigenvalue_penalties(stack: GramStack, power: float) -> Array:
    """Return d_m = e_m^power, with e_m the number of eigenvalues above ½ of K_m at unit diagonal, 1
    if there is none.

    References
    ----------
    Bach, Thibaux and Jordan (2005), "Computing regularization paths for learning multiple kernels".
    """
    if power == 0:
        return np.ones(stack.n_kernels)
    return np.array([float(large_eigenvalues(stack, m)) for m in range(stack.n_kernels)]) ** power


def large_eigenvalues(stack: GramStack, m: int) -> int:
    """Return how many eigenvalues of K_m, scaled to unit diagonal, are above ½; at least 1."""
    n = stack.n_samples
    needed = 2 * 8 * n * n
    if needed > default_budget():
        raise MemoryError(
            f"penalties='eigenvalue' needs {format_bytes(needed)} for the spectrum of one {n} x {n}"
            " kernel matrix: use fewer samples, or give the penalties as numbers."
        )
    K = np.array(stack.row_block(m, slice(0, n)), dtype=np.float64)
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))
    norms[norms == 0] = 1.0
    K /= norms
    K /= norms[:, np.newaxis]
    return max(int(np.count_nonzero(eigvalsh(K, overwrite_a=True, check_finite=False) > 0.5)), 1)


def numbers(name: str, values: ArrayOrTensor, P: int) -> Array:
    """Return one finite number per kernel, or raise naming the parameter."""
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
