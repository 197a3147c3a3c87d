"""Semi-definite programs with few variables and large matrices, by a barrier: what grows with n² is only multiplied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernelmosaic.solvers.program import Vector

Matrix = NDArray[np.float64]

#: How much steeper the objective gets each time the centre is reached.
_STEEPER = 3.0
#: The centre is reached when the Newton decrement, squared, is below this.
_CENTRED = 1e-2
_MAX_STEPS = 100
#: Most Newton steps in all: about ten times what the hardest problems take that rounding does not hide.
_MOST_STEPS = 1000
_MAX_HALVINGS = 40


@dataclass(frozen=True)
class MatrixInequality:
    """constant + Σ_i s_i matrices_i + Σ_j t_j e e' ⪰ 0, where t_j stands at one place of the diagonal.

    Attributes
    ----------
    constant : ndarray of shape (order, order)
        What no variable multiplies.
    matrices : ndarray of shape (P, order, order)
        What the s_i multiply.
    bounds : list of (int, int)
        Which t_j stands at which place of the diagonal.
    """

    constant: Matrix
    matrices: Matrix
    bounds: list[tuple[int, int]]

    def value(self, s: Vector, t: Vector) -> Matrix:
        F = self.constant + np.tensordot(s, self.matrices, 1)
        for j, place in self.bounds:
            F[place, place] += t[j]
        return np.asarray(F)


@dataclass(frozen=True)
class MatrixSolution:
    """Where the barrier stopped.

    Attributes
    ----------
    s, t : ndarray
        The variables.
    multipliers : list of ndarray
        The dual matrices, one an inequality; identities where not even the start is inside to rounding.
    gap : float
        How far the objective may be from the optimum; infinite where not even the start is inside.
    n_iter : int
        Newton steps.
    """

    s: Vector
    t: Vector
    multipliers: list[Matrix]
    gap: float
    n_iter: int


def solve_matrix_inequalities(
    linear: Vector, inequalities: list[MatrixInequality], s: Vector, t: Vector, tol: float = 1e-8
) -> MatrixSolution:
    """Minimise ⟨linear, (s, t)⟩ over s ≥ 0, Σ s = 1 and t with every inequality, from a point strictly inside.

    Each Newton step multiplies every matrix by one inverse; nothing of the size of a packed matrix is factorised. Where
    rounding hides the curvature, the path ends at the last point whose curvature is known.

    Parameters
    ----------
    linear : ndarray of shape (P + k,)
        The objective's coefficients, of s and of t.
    inequalities : list of MatrixInequality
        The constraints.
    s, t : ndarray of shape (P,) and (k,)
        Where to start.
    tol : float
        Gap at which to stop, relative to the objective's terms.
    """
    x, P = np.concatenate([s, t]), len(s)
    order = P + sum(len(one.constant) for one in inequalities)
    steepness, n_iter, decrement = order / max(float(np.abs(linear) @ np.abs(x)), 1e-300), 0, 0.0
    if not np.isfinite(_barrier(steepness * linear, inequalities, x, P)):
        return MatrixSolution(s, t, [np.eye(len(one.constant)) for one in inequalities], np.inf, 0)
    while True:
        for _ in range(_MAX_STEPS):
            n_iter += 1
            newton = _newton(steepness * linear, inequalities, x, P)
            if newton is None:
                decrement = np.inf
                break
            direction, decrement = newton
            moved = None
            if decrement > _CENTRED:
                moved = _search(linear * steepness, inequalities, x, direction, decrement, P)
            if moved is None:
                break
            x = moved
        gap = order / steepness
        if gap <= tol * float(np.abs(linear) @ np.abs(x)) or decrement > 1.0 or n_iter >= _MOST_STEPS:
            inverses = [_inverse(one.value(x[:P], x[P:])) for one in inequalities]
            return MatrixSolution(x[:P], x[P:], [F / steepness for F in inverses], gap, n_iter)
        steepness *= _STEEPER


def _derivatives(inequalities: list[MatrixInequality], x: Vector, P: int) -> tuple[Vector, Matrix]:
    """Return gradient and Hessian of −Σ log det − Σ log s."""
    gradient, H = np.zeros(len(x)), np.zeros((len(x), len(x)))
    gradient[:P] -= 1.0 / x[:P]
    H[np.arange(P), np.arange(P)] += 1.0 / x[:P] ** 2
    for one in inequalities:
        inverse = _inverse(one.value(x[:P], x[P:]))
        products = np.matmul(inverse, one.matrices)
        gradient[:P] -= np.trace(products, axis1=1, axis2=2)
        H[:P, :P] += np.einsum("iab,jba->ij", products, products, optimize=True)
        for j, place in one.bounds:
            gradient[P + j] -= inverse[place, place]
            H[:P, P + j] += products[:, place] @ inverse[:, place]
            for other, elsewhere in one.bounds:
                H[P + j, P + other] += inverse[place, elsewhere] ** 2
    H[P:, :P] = H[:P, P:].T
    return gradient, H


def _newton(linear: Vector, inequalities: list[MatrixInequality], x: Vector, P: int) -> tuple[Vector, float] | None:
    """Return the step that keeps Σ s, and its decrement squared; None where rounding hides the curvature."""
    gradient, H = _derivatives(inequalities, x, P)
    slope = linear + gradient
    # The Hessian of a barrier is positive definite: what is not, or overflows, is rounding.
    if not (np.all(np.diag(H) > 0) and np.all(np.isfinite(H)) and np.all(np.isfinite(slope))):
        return None
    # In relative units the system stays solvable however different the variables' sizes are.
    unit = 1.0 / np.sqrt(np.diag(H))
    normal = np.concatenate([np.ones(P), np.zeros(len(slope) - P)]) * unit
    system = np.block([[H * np.outer(unit, unit), normal[:, np.newaxis]], [normal, np.zeros(1)]])
    answer = np.linalg.lstsq(system, np.append(-slope * unit, 0.0), rcond=1e-15)[0]
    direction = answer[:-1] * unit
    return direction, float(-slope @ direction)


def _search(
    linear: Vector, inequalities: list[MatrixInequality], x: Vector, direction: Vector, decrement: float, P: int
) -> Vector | None:
    """Return a point along the direction that is inside and low enough, or None when rounding hides all such."""
    here, size, best, lowest = _barrier(linear, inequalities, x, P), 1.0, None, np.inf
    for _ in range(_MAX_HALVINGS):
        point = x + size * direction
        value = _barrier(linear, inequalities, point, P)
        # The first point inside may hug the boundary, from where the next steps are tiny: shorten as long as it pays.
        if best is not None and value >= lowest:
            return best
        if value <= here - 0.1 * size * decrement:
            best, lowest = point, value
            if size == 1.0:
                return best
        size *= 0.5
    return best


def _barrier(linear: Vector, inequalities: list[MatrixInequality], x: Vector, P: int) -> float:
    if not np.all(x[:P] > 0):
        return np.inf
    value = float(linear @ x - np.log(x[:P]).sum())
    for one in inequalities:
        try:
            L, _ = cho_factor(one.value(x[:P], x[P:]), lower=True, check_finite=False)
        except LinAlgError:
            return np.inf
        value -= 2.0 * float(np.log(np.diag(L)).sum())
    return value


def _inverse(F: Matrix) -> Matrix:
    return np.asarray(cho_solve(cho_factor(F, lower=True, check_finite=False), np.eye(len(F)), check_finite=False))
