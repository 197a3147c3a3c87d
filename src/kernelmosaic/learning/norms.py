"""The sets in which weights live, and what learners need to know of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers import Program, solve_smo
from kernelmosaic.solvers.linear_program import solve_master

Weights = NDArray[np.float64]

#: Relative to the curvature's mean: keeps a quadratic model of duplicated kernels solvable.
_DAMPING = 1e-8
#: A weight below this share of the uniform one may be set to zero in one step.
_NEGLIGIBLE = 1e-2
#: Below this a weight is rounding, and its kernel would be evaluated for nothing.
_ZERO = 1e-12


class WeightNorm(ABC):
    """Weights η ≥ 0 with norm(d² ∘ η) = 1, in the scaled form θ = d² ∘ η with norm(θ) = 1.

    The value J(θ) of a machine falls with the slope −q_m, where q_m = ½ βᵀK_mβ / d_m² ≥ 0.
    """

    @abstractmethod
    def start(self, n_kernels: int) -> Weights:
        """Return the point that prefers no kernel."""

    @abstractmethod
    def support(self, q: Weights) -> float:
        """Return max ⟨θ, q⟩ over the set: what the best weights would take from the dual value."""

    @abstractmethod
    def newton_direction(self, theta: Weights, q: Weights, H: NDArray[np.float64]) -> Weights:
        """Return the step to the minimiser over the set of −⟨q, δ⟩ + ½ δᵀHδ."""

    @abstractmethod
    def retract(self, theta: Weights) -> Weights:
        """Bring a point near the set back onto it."""

    def lowest_plane_point(self, constants: Weights, slopes: NDArray[np.float64]) -> tuple[Weights, float] | None:
        """Return where the largest of constants_k − ⟨slopes_k, θ⟩ is least, and a bound of it; None if unknown."""
        return None


class SumNorm(WeightNorm):
    """Σ θ = 1: sparse weights."""

    def start(self, n_kernels: int) -> Weights:
        return np.full(n_kernels, 1.0 / n_kernels)

    def support(self, q: Weights) -> float:
        return float(q.max())

    def newton_direction(self, theta: Weights, q: Weights, H: NDArray[np.float64]) -> Weights:
        # The quadratic model over the simplex is itself a program of the one form all machines share.
        A = _damped(H)
        floor = _trusted_floor(theta, q, np.diag(A))
        zero = np.zeros(len(q))
        simplex = Program(q + A @ (theta - floor), zero, zero + 1.0, zero, total=max(1.0 - float(floor.sum()), 0.0))
        rest: Weights = solve_smo(A, simplex, warm_start=theta - floor, tol=1e-10, max_iter=100_000).beta
        return np.asarray(floor + rest - theta)

    def lowest_plane_point(self, constants: Weights, slopes: NDArray[np.float64]) -> tuple[Weights, float] | None:
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

    def start(self, n_kernels: int) -> Weights:
        return np.full(n_kernels, n_kernels ** (-1.0 / self.p))

    def support(self, q: Weights) -> float:
        # Hölder's inequality, written so that large exponents do not overflow.
        top = float(q.max())
        dual = self.p / (self.p - 1.0)
        return top * float(np.sum((q / top) ** dual)) ** (1.0 / dual) if top > 0 else 0.0

    def newton_direction(self, theta: Weights, q: Weights, H: NDArray[np.float64]) -> Weights:
        """One step of sequential quadratic programming on J with the constraint Σ θ^p = 1."""
        multiplier = float(theta @ q)
        safe = np.maximum(theta, 1e-12)
        slope = safe ** (self.p - 1.0)
        # In relative steps δ/θ the constraint's curvature stays bounded as weights shrink.
        A = _damped(H) * np.outer(safe, safe) + np.diag(multiplier * (self.p - 1.0) * safe**self.p)
        A[np.diag_indices_from(A)] += _DAMPING * np.trace(A) / len(A)
        sides = np.linalg.solve(A, np.column_stack([q * safe, slope * safe]))
        step, normal = sides[:, 0], sides[:, 1]
        step = step - (slope * safe) @ step / ((slope * safe) @ normal) * normal
        # A weight may shrink to a tenth at most in one step: it is zero only in the limit.
        return np.asarray(safe * np.clip(step, -0.9, None))

    def retract(self, theta: Weights) -> Weights:
        theta = np.maximum(theta, 0.0)
        return theta / np.linalg.norm(theta, ord=self.p)


def _trusted_floor(theta: Weights, q: Weights, curvature: Weights) -> Weights:
    """Return how far down a Newton step may take each weight.

    Near zero the slope is not linear in the weight but a power of it, q ∝ θ^(−κ) with κ = θ H_mm / q between 0 and 2
    (2 when ‖w_m‖ is all that stays the same). Where the linear model alone would make a weight negative before its
    slope reaches the common one, the power's solution is the floor; what is too small to matter may become zero.
    """
    common = float(theta @ q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.clip(theta * curvature / q, 1e-3, 2.0)
        floor = np.where((1.0 + power) * q < common, theta * (q / common) ** (1.0 / power), 0.0)
    floor = np.where(np.isfinite(floor) & (floor > _NEGLIGIBLE / len(theta)), floor, 0.0)
    return np.minimum(floor, theta)


def _damped(H: NDArray[np.float64]) -> NDArray[np.float64]:
    A = 0.5 * (H + H.T)
    A[np.diag_indices_from(A)] += _DAMPING * max(float(np.trace(A)) / len(A), 1e-300)
    return A


def make_norm(p: float) -> WeightNorm:
    """Return the set for that p, or raise saying which there are."""
    if isinstance(p, bool) or not isinstance(p, int | float | np.number) or not 1 <= p < np.inf:
        raise ValueError(f"norm={p!r}: give 1 for sparse weights or a finite number above 1.")
    return SumNorm() if p == 1 else PowerNorm(float(p))
