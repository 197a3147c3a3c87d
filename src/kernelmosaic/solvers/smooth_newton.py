"""Newton's method for machines with a smooth loss of all outputs at once.

It reads the kernel by products alone. The problem is min over β of F(β) = ½βᵀKβ + L(f) with the
outputs f = Kβ and a convex, differentiable loss L. Its dual is max over β of −L*(−β) − ½βᵀKβ. The
conjugate L* is known at gradients of L: for any outputs g, β = −∇L(g) is feasible and −L*(−β) =
L(g) + ⟨β, g⟩, by Fenchel and Young. So every g proves a lower bound, and the gap between both
bounds at β is the Bregman divergence L(Kβ) − L(g) − ⟨∇L(g), Kβ − g⟩, which vanishes where g = Kβ.

A Newton step δ solves (I + WK) δ = −∇L(f) − β, where W = ∇²L(f). The system is symmetric and
positive definite in the inner product of K, and conjugate gradients in that product read nothing
but products with K and with W.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from kernelmosaic._typing import Array
from kernelmosaic.gram.linear_algebra import conjugate_gradients
from kernelmosaic.gram.options import BlockOptions
from kernelmosaic.solvers.line_search import Trials, descend
from kernelmosaic.solvers.program import (
    Solution,
    Vector,
    relative_gap,
    require_finite,
    sum_rounding,
)
from kernelmosaic.solvers.tuning import (
    CURVED_CG_STEPS,
    LARGEST_SMOOTH_RESIDUAL,
    SMOOTH_TRIALS,
)


class LossPoint(NamedTuple):
    """A loss at some outputs.

    Attributes
    ----------
    value : float
        L(f).
    gradient : ndarray of shape (n,)
        ∇L(f).
    curvature_times : callable
        Multiplies W = ∇²L(f) with a vector, or with columns.
    """

    value: float
    gradient: Vector
    curvature_times: Callable[[Array], Array]


@dataclass(frozen=True)
class SmoothSolution(Solution):
    """A solution whose β is −∇L(g) for some outputs g.

    Attributes
    ----------
    point : ndarray of shape (n,)
        The outputs g, which prove the dual value.
    """

    point: Vector


class SmoothProgram(ABC):
    """A convex, differentiable loss of the outputs of all samples.

    A constant added to all outputs does not change the loss.

    Parameters
    ----------
    weight : ndarray of shape (n,)
        The weights of the samples.

    Attributes
    ----------
    n_samples : int
        n.
    target : ndarray of shape (n,)
        Zeros: one coefficient per sample.
    """

    def __init__(self, weight: Vector) -> None:
        self.n_samples = len(weight)
        self.target = np.zeros(len(weight))
        self.weight = weight

    @abstractmethod
    def loss_at(self, values: Vector) -> LossPoint:
        """Return the loss, its gradient and its curvature at outputs."""

    @abstractmethod
    def loss_bound(self, values: Vector, error: float) -> float:
        """Return a number that the loss does not exceed at outputs wrong by at most `error`."""

    @abstractmethod
    def loss_size(self, values: Vector) -> float:
        """Return the sum of the sizes of the terms of the loss, to which rounding is relative."""

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return ½βᵀKβ plus the loss at the outputs Kβ."""
        return require_finite(quadratic + self.loss_at(values).value)

    def primal_bound(
        self, quadratic: float, values: Vector, intercept: float, error: Vector
    ) -> float:
        """Return a number that the primal value does not exceed, for outputs up to `error`."""
        upper = quadratic + self.loss_bound(values, float(error.max(initial=0.0)))
        rounding = 2.0 * sum_rounding(self.n_samples)
        return upper + rounding * (quadratic + self.loss_size(values))

    def best_intercept(self, values: Vector) -> float:
        """Return the constant with which the outputs have the weighted mean zero.

        The loss does not depend on it.
        """
        return -float(np.average(values, weights=self.weight))

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return ones, since any sample may have a loss: they are not bounds."""
        return np.ones(self.n_samples)

    def linear_value(self, point: Vector) -> float:
        """Return −L*(−β) of β = −∇L(g), where `point` is g."""
        loss = self.loss_at(point)
        return float(loss.value - loss.gradient @ point)

    def linear_bound(self, point: Vector) -> float:
        """Return a number that `linear_value` exceeds by no less than its rounding."""
        gradient_size = float(np.abs(self.loss_at(point).gradient) @ np.abs(point))
        size = self.loss_size(point) + gradient_size
        return self.linear_value(point) - 2.0 * sum_rounding(self.n_samples) * size

    def continued(self, beta: Vector, before: SmoothProgram) -> Vector:
        """Return the solution β of a similar program, as the start for this one."""
        return beta


class _NewtonPoint(NamedTuple):
    """Coefficients β with the value F(β), the outputs Kβ and the loss there."""

    upper: float
    beta: Vector
    values: Vector
    loss: LossPoint


def solve_smooth(
    gram: Any,
    program: SmoothProgram,
    warm_start: Vector | None = None,
    tol: float = 1e-8,
    max_iter: int = 100,
) -> SmoothSolution:
    """Return the solution for a kernel to a relative duality gap of `tol`.

    The gap of the result is larger where rounding, or `max_iter`, prevents more.

    Parameters
    ----------
    gram : Gram
        The kernel.
    program : SmoothProgram
        The loss.
    warm_start : ndarray of shape (n,), optional
        Any coefficients to start from.
    tol : float
        Relative duality gap.
    max_iter : int
        Most Newton steps.
    """

    def point_at(beta: Vector, values: Vector) -> _NewtonPoint:
        loss = program.loss_at(values)
        return _NewtonPoint(0.5 * float(beta @ values) + loss.value, beta, values, loss)

    # 1. The start: zeros, unless the warm start is better.
    start = point_at(np.zeros(program.n_samples), np.zeros(program.n_samples))
    if warm_start is not None and warm_start.any():
        warm = point_at(warm_start, np.asarray(gram.products(warm_start)))
        if warm.upper < start.upper:
            start = warm

    # 2. Newton steps. Every point also proves a dual value, by β = −∇L at its outputs.
    solutions: list[SmoothSolution] = []

    def newton_line(
        current: _NewtonPoint,
    ) -> tuple[Callable[[float], _NewtonPoint], float] | None:
        """Return the points of a Newton step by size, and the slope; None at the gap."""
        beta = -current.loss.gradient
        residual = beta - current.beta
        change = np.asarray(gram.products(residual))
        n_iter = len(solutions) + 1
        solutions.append(_assess(program, beta, current.values + change, current, n_iter))
        gap = solutions[-1].gap
        if gap <= tol:
            return None
        # The smaller the gap, the more exact the step, since convergence is quadratic.
        step_tol = min(LARGEST_SMOOTH_RESIDUAL, gap**0.5)
        step, step_values = solve_curved(
            gram.products, current.loss.curvature_times, residual, step_tol, change
        )

        def end(size: float) -> _NewtonPoint:
            return point_at(current.beta + size * step, current.values + size * step_values)

        return end, -float(residual @ step_values)

    descend(start, newton_line, Trials(SMOOTH_TRIALS), max_iter)

    # 3. The best solution, with outputs as exact as the kernel computes them.
    best = min(solutions, key=attrgetter("gap"))
    exact_values = np.asarray(gram.products(best.beta, exact=True))
    proof = point_at(best.beta, best.point)
    return _assess(program, best.beta, exact_values, proof, best.n_iter)


def _assess(
    program: SmoothProgram, beta: Vector, values: Vector, proof: _NewtonPoint, n_iter: int
) -> SmoothSolution:
    """Return β as a solution, where `values` are Kβ.

    `proof` is the point whose outputs g have β = −∇L(g); they prove the dual value.
    """
    quadratic = 0.5 * float(beta @ values)
    primal = quadratic + program.loss_at(values).value
    dual = float(proof.loss.value + beta @ proof.values) - quadratic
    return SmoothSolution(
        beta,
        program.best_intercept(values),
        values,
        dual,
        relative_gap(primal, dual),
        n_iter,
        proof.values,
    )


def solve_curved(
    products: Callable[[Array], Any],
    curvature_times: Callable[[Array], Array],
    right: Array,
    tol: float,
    image: Array | None = None,
    steps: int = CURVED_CG_STEPS,
) -> tuple[Array, Array]:
    """Return x with (I + WK) x = right, and Kx.

    The system is solved as (K⁻¹ + W) Kx = right by conjugate gradients that K preconditions. K⁻¹
    is never applied: with every vector Kp the method stores p.

    Parameters
    ----------
    products, curvature_times : callable
        Multiply K and W with a vector, or with columns, each of which takes steps of its own.
    right : ndarray of shape (n,) or (n, k)
        The right-hand sides.
    tol : float
        Residual at which to stop, relative to `right`, both in the norm of K.
    image : ndarray like `right`, optional
        K times `right`, if it is known.
    steps : int
        Most steps.
    """

    def times(pair: Array) -> Array:
        """Multiply K⁻¹ + W with Kp, given as the pair (Kp, p)."""
        Kp, p = pair
        return np.asarray(p + curvature_times(Kp))

    def precondition(r: Array) -> Array:
        """Return K r, with r."""
        Kr = image if image is not None and r is right else products(r)
        return np.stack([Kr, r])

    options = BlockOptions(cg_steps=steps, cg_tol=tol)
    Kx, x = conjugate_gradients(times, precondition, right, options)
    return x, Kx
