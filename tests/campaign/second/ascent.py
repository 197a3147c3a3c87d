"""A plain interior-point method in long double, for problems of a few dozen samples.

The second judge asks it where the returned coefficients alone do not prove a stated gap, as they
need not where the weights were learned: the bound may have been that of other coefficients. It
maximises

    ⟨c, z⟩ − ½ zᵀRz − γ    subject to    ½ zᵀA_m z ≤ γ,  l ≤ z ≤ h,  ⟨a_k, z⟩ = e_k,

the dual of learning one weight per kernel with weights that sum to one; the multipliers of the
first constraints are the weights. What it returns is no verdict: the judge computes both bounds
anew from its point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Long = np.longdouble
Array = np.ndarray

#: Most steps, how near to the boundary one may end, and the share of the complementarity that each
#: aims at.
_STEPS, _REACH, _CENTRE = 80, 0.98, 0.15
#: Relative residuals and complementarity at which to stop.
_ENOUGH = 1e-15


@dataclass(frozen=True)
class Quadratic:
    """The problem above.

    Attributes
    ----------
    linear, low, high : ndarray of shape (N,)
        c, l and h; bounds may be infinite.
    ridge : ndarray of shape (N, N)
        R.
    forms : list of ndarray of shape (N, N)
        The A_m.
    rows : ndarray of shape (k, N)
        The a_k.
    sums : ndarray of shape (k,)
        The e_k.
    """

    linear: Array
    low: Array
    high: Array
    ridge: Array
    forms: list[Array]
    rows: Array
    sums: Array


def maximise(problem: Quadratic, size: Any) -> tuple[Array, Array, Array] | None:
    """Return z, the multipliers θ of the forms and those of the sums; None if the steps do not
    converge.

    `size` is about how large the entries of z will be.
    """
    state = _State.start(problem, Long(size))
    for _ in range(_STEPS):
        if state.error() <= _ENOUGH:
            return state.z, state.theta, state.y
        state = state.step()
        if not np.all(np.isfinite(state.z)):
            return None
    return (state.z, state.theta, state.y) if state.error() <= 1e6 * _ENOUGH else None


@dataclass(frozen=True)
class _State:
    """Where it is: z, the multipliers of its bounds, γ, slacks s and multipliers θ of the forms,
    and y of the sums."""

    problem: Quadratic
    z: Array
    below: Array
    above: Array
    gamma: Any
    s: Array
    theta: Array
    y: Array

    @classmethod
    def start(cls, problem: Quadratic, size: Any) -> _State:
        low, high, N = problem.low, problem.high, len(problem.linear)
        both = np.isfinite(low) & np.isfinite(high)
        z = np.zeros(N, dtype=Long)
        z = np.where(np.isfinite(low), low + size, z)
        z = np.where(np.isfinite(high) & ~np.isfinite(low), high - size, z)
        z = np.where(both, np.minimum((low + high) / 2, low + size), z)
        q = np.array([z @ A @ z / 2 for A in problem.forms])
        unit = max(abs(problem.linear).max(), q.max() / max(abs(z).max(), size), Long(1e-30))
        below, above = (np.where(np.isfinite(one), unit, Long(0)) for one in (low, high))
        s = q.max() - q + max(q.max(), size * unit)
        P = len(q)
        theta = np.full(P, Long(1) / P)
        return cls(
            problem, z, below, above, q.max() * 2, s, theta, np.zeros(len(problem.sums), dtype=Long)
        )

    def residuals(self) -> tuple[Array, Array, Any, Array]:
        p = self.problem
        combined = sum(t * (A @ self.z) for t, A in zip(self.theta, p.forms, strict=True))
        slope = (
            -p.linear + p.ridge @ self.z + combined + p.rows.T @ self.y - self.below + self.above
        )
        q = np.array([self.z @ A @ self.z / 2 for A in p.forms])
        return slope, p.rows @ self.z - p.sums, self.theta.sum() - 1, self.s + q - self.gamma

    def gaps(self) -> tuple[Array, Array]:
        p = self.problem
        return np.where(np.isfinite(p.low), self.z - p.low, 1), np.where(
            np.isfinite(p.high), p.high - self.z, 1
        )

    def complementarity(self) -> Any:
        under, over = self.gaps()
        count = (
            np.isfinite(self.problem.low).sum() + np.isfinite(self.problem.high).sum() + len(self.s)
        )
        return (self.below @ under + self.above @ over + self.theta @ self.s) / count

    def error(self) -> Any:
        """Return the largest relative residual."""
        slope, sums, total, forms = self.residuals()
        size = max(
            abs(self.problem.linear).max(),
            abs(self.below).max(initial=0),
            abs(self.above).max(initial=0),
        )
        value = max(abs(self.gamma), abs(self.problem.linear) @ abs(self.z), Long(1e-300))
        reach = max(abs(self.z).sum(), abs(self.problem.sums).max(), Long(1e-300))
        count = len(self.z) + len(self.s)
        return max(
            abs(slope).max() / max(size, Long(1e-300)),
            abs(sums).max() / reach,
            abs(total),
            abs(forms).max() / value,
            count * self.complementarity() / value,
        )

    def step(self) -> _State:
        p, N, P, k = self.problem, len(self.z), len(self.s), len(self.problem.sums)
        slope, sums, total, forms = self.residuals()
        under, over = self.gaps()
        mu = _CENTRE * self.complementarity()
        finite_low, finite_high = np.isfinite(p.low), np.isfinite(p.high)
        # Multipliers and slacks follow from dz: d below = (μ − below ∘ dz)/under − below, and
        # likewise above and s.
        G = np.array([A @ self.z for A in p.forms])
        combined = sum((t * A for t, A in zip(self.theta, p.forms, strict=True)), p.ridge.copy())
        M = np.zeros((N + k + P + 1,) * 2, dtype=Long)
        M[:N, :N] = combined + np.diag(self.below / under + self.above / over)
        M[:N, N : N + k], M[N : N + k, :N] = p.rows.T, p.rows
        M[:N, N + k : N + k + P] = G.T
        # θ ds + s dθ = μ − θ s with ds = dγ − G dz − forms.
        M[N + k : N + k + P, :N] = G
        M[N + k : N + k + P, N + k : N + k + P] = -np.diag(self.s / self.theta)
        M[N + k : N + k + P, -1] = -1
        M[-1, N + k : N + k + P] = 1
        pull = np.where(finite_low, mu / under - self.below, 0) - np.where(
            finite_high, mu / over - self.above, 0
        )
        right = np.concatenate([-slope + pull, -sums, -forms - mu / self.theta + self.s, [-total]])
        found = solved(M, right[:, np.newaxis])[:, 0]
        dz, dy, dtheta, dgamma = found[:N], found[N : N + k], found[N + k : N + k + P], found[-1]
        dbelow = np.where(finite_low, (mu - self.below * dz) / under - self.below, 0)
        dabove = np.where(finite_high, (mu + self.above * dz) / over - self.above, 0)
        ds = dgamma - G @ dz - forms
        primal = min(
            _longest(under, np.where(finite_low, dz, 0)),
            _longest(over, np.where(finite_high, -dz, 0)),
        )
        size = min(primal, _longest(self.s, ds), _longest(self.theta, dtheta))
        size = min(size, _longest(self.below, dbelow), _longest(self.above, dabove))
        return _State(
            p,
            self.z + size * dz,
            self.below + size * dbelow,
            self.above + size * dabove,
            self.gamma + size * dgamma,
            self.s + size * ds,
            self.theta + size * dtheta,
            self.y + size * dy,
        )


def _longest(x: Array, dx: Array) -> Any:
    """Return how far x + size dx stays positive, at most one."""
    falling = dx < 0
    return min(Long(1), _REACH * np.min(-x[falling] / dx[falling], initial=Long(np.inf)))


def solved(A: Array, right: Array) -> Array:
    """Solve a linear system by elimination with pivots, in long double."""
    A, x = A.astype(Long), right.astype(Long)
    n = len(A)
    for i in range(n):
        pivot = i + int(np.argmax(abs(A[i:, i])))
        A[[i, pivot]], x[[i, pivot]] = A[[pivot, i]], x[[pivot, i]]
        factors = A[i + 1 :, i] / A[i, i]
        A[i + 1 :, i:] -= np.multiply.outer(factors, A[i, i:])
        x[i + 1 :] -= np.multiply.outer(factors, x[i])
    for i in reversed(range(n)):
        x[i] = (x[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x
