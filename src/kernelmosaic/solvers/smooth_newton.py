"""Newton's method for machines whose loss is smooth and joins samples, by products with the kernel
alone.

The problem is min over β of F(β) = ½βᵀKβ + L(f) with the outputs f = Kβ and a convex,
differentiable loss L of all outputs at once. Its dual is max over β of −L*(−β) − ½βᵀKβ. The
conjugate L* is known at slopes of L: for any outputs g, β = −∇L(g) is feasible and −L*(−β) = L(g) +
⟨β, g⟩, by Fenchel and Young. So every g proves a lower bound, and the gap between both bounds at β
is the Bregman divergence L(Kβ) − L(g) − ⟨∇L(g), Kβ − g⟩, which vanishes where g = Kβ.

A Newton step δ solves (I + WK) δ = −∇L(f) − β, where W = ∇²L(f). The system is symmetric and
positive definite in the inner product of K, and conjugate gradients in that product read nothing
but products with K and with W.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
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


class LossPoint(NamedTuple):
    """A loss at some outputs: its value, its slopes, and what its curvature W does to vectors or
    columns."""

    value: float
    slopes: Vector
    times: Callable[[Array], Array]


@dataclass(frozen=True)
class SmoothSolution(Solution):
    """A solution whose β are the slopes of the loss, with the opposite sign.

    Attributes
    ----------
    point : ndarray of shape (n,)
        The outputs g with β = −∇L(g), which prove the dual value.
    """

    point: Vector


class SmoothProgram(ABC):
    """A convex, differentiable loss of the outputs of all samples, which a constant added to all
    leaves as it is.

    Attributes
    ----------
    n_samples : int
        n.
    target : ndarray of shape (n,)
        Zeros: one coefficient per sample.
    weight : ndarray of shape (n,)
        How much each sample counts.
    """

    def __init__(self, weight: Vector) -> None:
        self.n_samples, self.target, self.weight = len(weight), np.zeros(len(weight)), weight

    @abstractmethod
    def at(self, values: Vector) -> LossPoint:
        """Return the loss at outputs."""

    @abstractmethod
    def bound(self, values: Vector, error: float) -> float:
        """Return a number that the loss does not exceed at outputs that are off by at most
        `error`."""

    @abstractmethod
    def size(self, values: Vector) -> float:
        """Return the sum of the sizes of the terms of the loss, which rounding is relative to."""

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return ½βᵀKβ plus the loss at the outputs Kβ."""
        return require_finite(quadratic + self.at(values).value)

    def primal_bound(
        self, quadratic: float, values: Vector, intercept: float, error: Vector
    ) -> float:
        """Return a number that the primal value does not exceed, for outputs up to `error`."""
        upper = quadratic + self.bound(values, float(error.max(initial=0.0)))
        return upper + 2.0 * sum_rounding(self.n_samples) * (quadratic + self.size(values))

    def best_intercept(self, values: Vector) -> float:
        """Return the constant with which the outputs average to zero; the loss does not depend on
        it."""
        return -float(np.average(values, weights=self.weight))

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return ones: any sample may have a loss."""
        return np.ones(self.n_samples)

    def linear_value(self, point: Vector) -> float:
        """Return −L*(−β) of the β = −∇L(g) at outputs g."""
        here = self.at(point)
        return float(here.value - here.slopes @ point)

    def linear_bound(self, point: Vector) -> float:
        """Return the same less its rounding."""
        size = self.size(point) + float(np.abs(self.at(point).slopes) @ np.abs(point))
        return self.linear_value(point) - 2.0 * sum_rounding(self.n_samples) * size

    def continued(self, beta: Vector, before: SmoothProgram) -> Vector:
        """Return where to start after the solution β of a like program: there."""
        return beta


class _End(NamedTuple):
    """Where a step ends: the value F, β, the outputs Kβ and the loss there."""

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
    """Return the solution for a kernel, to a relative duality gap of `tol` unless rounding hides
    it.

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

    def look(beta: Vector, values: Vector) -> _End:
        loss = program.at(values)
        return _End(0.5 * float(beta @ values) + loss.value, beta, values, loss)

    here = look(np.zeros(program.n_samples), np.zeros(program.n_samples))
    if warm_start is not None and warm_start.any():
        # A start far from the solution may be worse than none.
        warm = look(warm_start, np.asarray(gram.products(warm_start)))
        here = warm if warm.upper < here.upper else here
    seen: list[SmoothSolution] = []

    def line(here: _End) -> tuple[Callable[[float], _End], float] | None:
        beta = -here.loss.slopes
        residual = beta - here.beta
        change = np.asarray(gram.products(residual))
        seen.append(_assess(program, beta, here.values + change, here, len(seen) + 1))
        if (gap := seen[-1].gap) <= tol:
            return None
        # The nearer the solution is, the more exact the step: convergence is quadratic.
        step, along = solve_curved(
            gram.products, here.loss.times, residual, min(0.1, gap**0.5), change
        )
        ends = lambda size: look(here.beta + size * step, here.values + size * along)  # noqa: E731
        return ends, -float(residual @ along)

    descend(here, line, Trials(30), max_iter)
    best = min(seen, key=lambda one: one.gap)
    exact = np.asarray(gram.products(best.beta, exact=True))
    return _assess(program, best.beta, exact, look(best.beta, best.point), best.n_iter)


def _assess(
    program: SmoothProgram, beta: Vector, values: Vector, at: _End, n_iter: int
) -> SmoothSolution:
    """Return β = −∇L(g) as a solution, where g are the outputs of a point and `values` are Kβ."""
    quadratic = 0.5 * float(beta @ values)
    primal = quadratic + program.at(values).value
    dual = float(at.loss.value + beta @ at.values) - quadratic
    return SmoothSolution(
        beta,
        program.best_intercept(values),
        values,
        dual,
        relative_gap(primal, dual),
        n_iter,
        at.values,
    )


def solve_curved(
    products: Callable[[Array], Any],
    times: Callable[[Array], Array],
    right: Array,
    tol: float,
    image: Array | None = None,
    steps: int = 500,
) -> tuple[Array, Array]:
    """Return x with (I + WK) x = right, and Kx, by conjugate gradients for (K⁻¹ + W) Kx = right
    that K preconditions.

    Parameters
    ----------
    products, times : callable
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

    def near(r: Array) -> Array:
        return np.stack([image if image is not None and r is right else products(r), r])

    # K⁻¹ is not known, but K⁻¹ of every step is: it goes along.
    Kx, x = conjugate_gradients(
        lambda p: p[1] + times(p[0]), near, right, BlockOptions(cg_steps=steps, cg_tol=tol)
    )
    return x, Kx
