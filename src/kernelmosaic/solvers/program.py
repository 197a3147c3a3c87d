"""The one dual program behind every machine with one output, and the certificate of its solutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Bisection steps for the intercept: enough to halve any bracket down to the rounding of a double.
_BISECTIONS = 200


@dataclass(frozen=True)
class Program:
    """max ⟨t, β⟩ − ε‖β‖₁ − ½βᵀKβ − ½ Σ ρᵢβᵢ²  subject to  lower ≤ β ≤ upper and Σβ = total.

    Attributes
    ----------
    target : ndarray of shape (n,)
        The linear term t.
    lower, upper : ndarray of shape (n,)
        The box, which contains 0; infinite sides are allowed where `ridge` is positive.
    ridge : ndarray of shape (n,)
        The ρᵢ ≥ 0 added to the kernel's diagonal.
    epsilon : float
        Half-width of the insensitive tube.
    total : float or None
        What the coefficients sum to; None leaves the sum free, and the machine without an intercept.
    """

    target: Vector
    lower: Vector
    upper: Vector
    ridge: Vector
    epsilon: float = 0.0
    total: float | None = 0.0

    @property
    def n_samples(self) -> int:
        return len(self.target)

    def linear_value(self, beta: Vector) -> float:
        """Everything in the objective that does not read the kernel: ⟨t, β⟩ − ε‖β‖₁ − ½Σρβ²."""
        return float(self.target @ beta - self.epsilon * np.abs(beta).sum() - 0.5 * (self.ridge @ beta**2))

    def conjugate_argmax(self, residual: Vector) -> Vector:
        """Return argmax over the box of uᵢrᵢ − ε|uᵢ| − ½ρᵢuᵢ², sample by sample."""
        excess = np.sign(residual) * np.maximum(np.abs(residual) - self.epsilon, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.where(self.ridge > 0, excess / self.ridge, np.where(excess == 0, 0.0, excess * np.inf))
        return np.clip(u, self.lower, self.upper)

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return the primal objective of the machine f + intercept, where values = Kβ and quadratic = ½βᵀKβ."""
        residual = self.target - values - intercept
        u = self.conjugate_argmax(residual)
        if not np.all(np.isfinite(u)):
            return np.inf
        losses = u * residual - self.epsilon * np.abs(u) - 0.5 * self.ridge * u**2
        return float(quadratic + losses.sum() + intercept * (self.total or 0.0))

    def best_intercept(self, values: Vector) -> float:
        """Return the intercept that minimises the primal objective given Kβ: the middle of all of them if several do."""
        if self.total is None:
            return 0.0
        z = self.target - values
        margin = self.epsilon + 1.0 + np.abs(z).max(initial=0.0) * 1e-12
        low, high = z.min() - margin, z.max() + margin
        while self.conjugate_argmax(z - low).sum() < self.total:
            low -= high - low
        left = self._crossing(z, low, high, np.less_equal)
        right = self._crossing(z, left, high, np.less)
        return 0.5 * (left + right)

    def _crossing(self, z: Vector, low: float, high: float, passed: np.ufunc) -> float:
        """Bisect for the intercept where the slope Σu(z − b) − total, which falls with b, passes zero."""
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if middle in (low, high):
                break
            if passed(self.conjugate_argmax(z - middle).sum(), self.total):
                high = middle
            else:
                low = middle
        return high

    def feasible(self, beta: Vector) -> Vector:
        """Return the point of the feasible set nearest to beta."""
        clipped = np.clip(beta, self.lower, self.upper)
        if self.total is None or abs(clipped.sum() - self.total) <= 1e-12 * max(1.0, np.abs(clipped).sum()):
            return clipped
        reach = np.abs(beta).max() + np.abs(clipped[np.isfinite(clipped)]).max(initial=0.0) + abs(self.total) + 1.0
        low, high = -reach, reach
        while np.clip(beta - low, self.lower, self.upper).sum() < self.total:
            low *= 2.0
        while np.clip(beta - high, self.lower, self.upper).sum() > self.total:
            high *= 2.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if np.clip(beta - middle, self.lower, self.upper).sum() > self.total:
                low = middle
            else:
                high = middle
        return np.clip(beta - high, self.lower, self.upper)


@dataclass(frozen=True)
class Solution:
    """A feasible β with what it is worth.

    Attributes
    ----------
    beta : ndarray of shape (n,)
        Signed dual coefficients.
    intercept : float
        The constant of the decision function.
    values : ndarray of shape (n,)
        Kβ on the training set.
    objective : float
        The dual value: a lower bound on the optimum of the primal.
    gap : float
        (primal − dual) / max(|primal|, |dual|): a certificate, since no β can do better than the primal value.
    n_iter : int
        Elementary steps taken by the solver.
    """

    beta: Vector
    intercept: float
    values: Vector
    objective: float
    gap: float
    n_iter: int


def certify(program: Program, beta: Vector, values: Vector, n_iter: int) -> Solution:
    """Return the solution with its intercept and certified relative duality gap, from β and Kβ."""
    quadratic = 0.5 * float(beta @ values)
    dual = program.linear_value(beta) - quadratic
    intercept = program.best_intercept(values)
    primal = program.primal_value(quadratic, values, intercept)
    return Solution(beta, intercept, values, dual, relative_gap(primal, dual), n_iter)


def relative_gap(primal: float, dual: float) -> float:
    """Return (primal − dual) / max(|primal|, |dual|), zero when both vanish."""
    scale = max(abs(primal), abs(dual))
    return float(max(primal - dual, 0.0) / scale) if scale > 0 else 0.0
