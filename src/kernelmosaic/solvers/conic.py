"""Conic programs: general ones by Clarabel, those with few variables and large matrices by a
barrier method, and the linear ones of cutting planes by HiGHS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.solvers.line_search import Trials, descend
from kernelmosaic.solvers.program import Matrix, Vector
from kernelmosaic.solvers.tuning import (
    BARRIER_INCREASE,
    CENTRED_DECREMENT,
    HESSIAN_RANK,
    MOST_BARRIER_HALVINGS,
    MOST_BARRIER_STEPS,
    MOST_CENTRING_STEPS,
    UNCENTRED_DECREMENT,
)

#: Clarabel's names of the cones of `ConicProgram.require`.
_CONES = {
    "zero": "ZeroConeT",
    "nonnegative": "NonnegativeConeT",
    "second order": "SecondOrderConeT",
    "semidefinite": "PSDTriangleConeT",
}

#: The endings of Clarabel after which its point is feasible, or nearly so.
_USABLE = ("Solved", "AlmostSolved", "InsufficientProgress", "MaxIterations")


@dataclass(frozen=True)
class ConicSolution:
    """The solution of a conic program.

    Attributes
    ----------
    ended_because : str
        Clarabel's status.
    has_point : bool
        Whether x is a point of the program. It is not where Clarabel finds the program infeasible
        or unbounded, or fails.
    x : ndarray of shape (n_variables,)
        The variables.
    multipliers : list of ndarray
        The dual variables, in one array per block of `require`.
    """

    ended_because: str
    has_point: bool
    x: Vector
    multipliers: list[Vector]


@dataclass
class ConicProgram:
    """min ½ Σ quadraticᵢ xᵢ² + ⟨linear, x⟩ where b − Ax of every block lies in its cone.

    Attributes
    ----------
    linear, quadratic : ndarray of shape (n_variables,)
        The objective.
    """

    linear: Vector
    quadratic: Vector
    _blocks: list[tuple[str, Any, Vector]] = field(default_factory=list)

    def require(self, cone: str, A: ArrayOrTensor, b: Vector) -> int:
        """Add the constraint that b − Ax lies in a cone; return the number of its block.

        Parameters
        ----------
        cone : {"zero", "nonnegative", "second order", "semidefinite"}
            The cone. In a second-order cone the first entry bounds the norm of the others; the
            entries of a semidefinite one are those of `pack_symmetric`.
        A : array or sparse matrix of shape (length, n_variables)
            The linear map.
        b : ndarray of shape (length,)
            The constants.
        """
        self._blocks.append((cone, sparse.csc_matrix(A), np.asarray(b, dtype=np.float64)))
        return len(self._blocks) - 1

    def solve(self, tol: float = 1e-9, max_iter: int = 200) -> ConicSolution:
        """Return the solution by Clarabel's interior points.

        `tol` is for its relative and absolute gap and its infeasibility, `max_iter` for its steps.
        """
        try:
            import clarabel
        except ImportError:
            raise ImportError(
                'Conic programs need Clarabel: pip install "kernelmosaic[conic]".'
            ) from None
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = max_iter
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        cones = [
            getattr(clarabel, _CONES[cone])(_order(cone, len(b))) for cone, _, b in self._blocks
        ]
        A = sparse.vstack([A for _, A, _ in self._blocks], format="csc")
        b = np.concatenate([b for _, _, b in self._blocks])
        P = sparse.diags(self.quadratic, format="csc")
        result = clarabel.DefaultSolver(P, self.linear, A, b, cones, settings).solve()
        status = str(result.status)
        x = np.array(result.x)
        z = np.array(result.z)
        is_finite = bool(np.all(np.isfinite(x)) and np.all(np.isfinite(z)))
        block_ends = np.cumsum([len(b) for _, _, b in self._blocks])[:-1]
        multipliers = np.split(z, block_ends)
        return ConicSolution(status, status in _USABLE and is_finite, x, multipliers)


def pack_symmetric(M: AnyArray) -> Vector:
    """Return the upper triangles of symmetric matrices, column by column, as vectors.

    Entries beside the diagonal are multiplied by √2, so that the dot product of two vectors is that
    of the matrices. `M` has shape (..., n, n), the result (..., n (n + 1) / 2).
    """
    n = M.shape[-1]
    column, row = np.tril_indices(n)
    return np.asarray(M[..., row, column] * np.where(row == column, 1.0, np.sqrt(2.0)))


def unpack_symmetric(packed: Vector) -> Array:
    """Return the matrix that `pack_symmetric` packed."""
    n = _order("semidefinite", len(packed))
    column, row = np.tril_indices(n)
    M = np.zeros((n, n))
    M[row, column] = M[column, row] = packed / np.where(row == column, 1.0, np.sqrt(2.0))
    return M


def _order(cone: str, length: int) -> int:
    """Return the size by which Clarabel knows a cone of vectors of this length.

    That of a semidefinite cone is the order n of its matrices, from length = n (n + 1) / 2.
    """
    if cone == "semidefinite":
        order: int = round((np.sqrt(8.0 * length + 1.0) - 1.0) / 2.0)
        return order
    return length


# A barrier for few variables and large matrices: what grows with n² is only multiplied ------------


@dataclass(frozen=True)
class MatrixInequality:
    """constant + Σ_i s_i matrices_i + Σ_j t_j e e' ⪰ 0, where e is the unit vector of t_j's place.

    Attributes
    ----------
    constant : ndarray of shape (order, order)
        The constant matrix.
    matrices : ndarray of shape (P, order, order)
        The matrices that the s_i multiply.
    bounds : list of (int, int)
        Pairs of j and the place of t_j on the diagonal; other t_j do not occur in the inequality.
    """

    constant: Matrix
    matrices: Matrix
    bounds: list[tuple[int, int]]

    def value(self, s: Vector, t: Vector) -> Matrix:
        """Return the matrix at these variables, which must be positive semi-definite."""
        F = self.constant + np.tensordot(s, self.matrices, 1)
        for j, place in self.bounds:
            F[place, place] += t[j]
        return np.asarray(F)


@dataclass(frozen=True)
class BarrierSolution:
    """The point at which the barrier method stopped.

    Attributes
    ----------
    s, t : ndarray
        The variables.
    multipliers : list of ndarray
        The dual matrices, one an inequality; identities if rounding puts even the start outside.
    gap : float
        A bound on the distance of the objective from the optimum; infinite if rounding puts even
        the start outside.
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
) -> BarrierSolution:
    """Minimise ⟨linear, (s, t)⟩ over s ≥ 0 with Σ s = 1, and t, subject to matrix inequalities.

    The objective times a steepness, less the logarithms of s and of the determinants, is minimised
    by Newton steps (centring); then the steepness grows. Each Newton step multiplies every matrix
    by one inverse; nothing of the size of a packed matrix is factorised. Where rounding makes the
    Hessian useless, the method stops at the current point.

    Parameters
    ----------
    linear : ndarray of shape (P + k,)
        The objective's coefficients, of s and of t.
    inequalities : list of MatrixInequality
        The constraints.
    s, t : ndarray of shape (P,) and (k,)
        A start strictly inside all constraints.
    tol : float
        Gap at which to stop, relative to the objective's terms.

    References
    ----------
    Boyd and Vandenberghe (2004), "Convex optimization", chapter 11.
    """
    x = np.concatenate([s, t])
    P = len(s)
    order = P + sum(len(inequality.constant) for inequality in inequalities)
    # The gap of a centre is order / steepness; the first one is that of the objective's terms.
    steepness = order / max(float(np.abs(linear) @ np.abs(x)), 1e-300)
    n_iter = 0
    decrement = 0.0
    if not np.isfinite(_barrier(steepness * linear, inequalities, x, P).upper):
        identities = [np.eye(len(inequality.constant)) for inequality in inequalities]
        return BarrierSolution(s, t, identities, np.inf, 0)

    def newton_line(
        current: _BarrierPoint,
    ) -> tuple[Callable[[float], _BarrierPoint], float] | None:
        """Return the points of a Newton step by size, and the slope; None where steps end."""
        nonlocal n_iter, decrement
        n_iter += 1
        scaled = steepness * linear
        newton = _newton_step(scaled, inequalities, current.x, P)
        if newton is None:
            decrement = np.inf
            return None
        direction, decrement = newton
        if decrement <= CENTRED_DECREMENT:
            return None

        def point(size: float) -> _BarrierPoint:
            return _barrier(scaled, inequalities, current.x + size * direction, P)

        return point, -decrement

    # A first point inside the constraints may be near to a boundary, from where the next steps are
    # tiny: steps are shortened as long as that lowers the barrier.
    trials = Trials(MOST_BARRIER_HALVINGS, least=0.5, shrink=True)
    while True:
        # 1. Centre.
        start = _barrier(steepness * linear, inequalities, x, P)
        x = descend(start, newton_line, trials, MOST_CENTRING_STEPS).x

        # 2. Stop at the gap, or where rounding prevents more.
        gap = order / steepness
        has_met_gap = gap <= tol * float(np.abs(linear) @ np.abs(x))
        if has_met_gap or decrement > UNCENTRED_DECREMENT or n_iter >= MOST_BARRIER_STEPS:
            inverses = [
                Cholesky(inequality.value(x[:P], x[P:]), most=0.0).inverse()
                for inequality in inequalities
            ]
            multipliers = [inverse / steepness for inverse in inverses]
            return BarrierSolution(x[:P], x[P:], multipliers, gap, n_iter)

        # 3. Give the objective more weight.
        steepness *= BARRIER_INCREASE


class _BarrierPoint(NamedTuple):
    """Variables x = (s, t) with the value of the barrier problem, infinite outside constraints."""

    upper: float
    x: Vector


def _newton_step(
    linear: Vector, inequalities: list[MatrixInequality], x: Vector, P: int
) -> tuple[Vector, float] | None:
    """Return the Newton step that keeps Σ s, and its squared decrement.

    `linear` is the objective times the steepness, P the number of the s. The result is None where
    rounding makes the Hessian useless.
    """
    # 1. The gradient and the Hessian of the objective − Σ log det − Σ log s.
    gradient = linear.copy()
    H = np.zeros((len(x), len(x)))
    gradient[:P] -= 1.0 / x[:P]
    H[np.arange(P), np.arange(P)] += 1.0 / x[:P] ** 2
    for inequality in inequalities:
        inverse = Cholesky(inequality.value(x[:P], x[P:]), most=0.0).inverse()
        products = np.matmul(inverse, inequality.matrices)
        gradient[:P] -= np.trace(products, axis1=1, axis2=2)
        H[:P, :P] += np.einsum("iab,jba->ij", products, products, optimize=True)
        for j, place in inequality.bounds:
            gradient[P + j] -= inverse[place, place]
            H[:P, P + j] += products[:, place] @ inverse[:, place]
            for i, row in inequality.bounds:
                H[P + j, P + i] += inverse[place, row] ** 2
    H[P:, :P] = H[:P, P:].T
    # The Hessian of a barrier is positive definite; rounding or overflow can make it otherwise.
    is_finite = np.all(np.isfinite(H)) and np.all(np.isfinite(gradient))
    if not np.all(np.diag(H) > 0) or not is_finite:
        return None

    # 2. The step, in units in which the Hessian has the diagonal one: the system can be solved then
    #    however different the sizes of the variables are.
    unit = 1.0 / np.sqrt(np.diag(H))
    sum_of_s = np.concatenate([np.ones(P), np.zeros(len(gradient) - P)]) * unit
    system = np.block(
        [[H * np.outer(unit, unit), sum_of_s[:, np.newaxis]], [sum_of_s, np.zeros(1)]]
    )
    right = np.append(-gradient * unit, 0.0)
    solution = np.linalg.lstsq(system, right, rcond=HESSIAN_RANK)[0]
    direction = solution[:-1] * unit
    return direction, float(-gradient @ direction)


def _barrier(
    linear: Vector, inequalities: list[MatrixInequality], x: Vector, P: int
) -> _BarrierPoint:
    """Return ⟨linear, x⟩ − Σ log s − Σ log det at x = (s, t)."""
    if not np.all(x[:P] > 0):
        return _BarrierPoint(np.inf, x)
    value = float(linear @ x - np.log(x[:P]).sum())
    for inequality in inequalities:
        try:
            value -= Cholesky(inequality.value(x[:P], x[P:]), most=0.0).log_det
        except np.linalg.LinAlgError:
            return _BarrierPoint(np.inf, x)
    return _BarrierPoint(value, x)


# Cutting planes over the simplex ------------------------------------------------------------------


def solve_master(constants: Vector, slopes: Array) -> tuple[Vector, float, Vector]:
    """Minimise the largest of constants_k − ⟨slopes_k, θ⟩ over θ ≥ 0 with Σθ = 1.

    Parameters
    ----------
    constants, slopes : ndarray of shape (planes,) and (planes, n_weights)
        The planes.

    Returns
    -------
    theta : ndarray of shape (n_weights,)
        A minimiser, in the simplex to the last digit.
    lower_bound : float
        A bound on the minimum from below, which holds whatever the rounding of the linear program.
    shares : ndarray of shape (planes,)
        Multipliers of the planes, not negative and of sum one. The bound is the least value of the
        mean of the planes with these weights.
    """
    # Imported here because it loads a large part of SciPy, which most fits do not use.
    from scipy.optimize import linprog

    n_planes, P = slopes.shape
    # The variables are θ and the value v: v ≥ constants_k − ⟨slopes_k, θ⟩ for every plane. All
    # planes, and v with them, are divided by the largest number, unless all numbers are zero.
    scale = max(float(np.abs(constants).max()), float(np.abs(slopes).max())) or 1.0
    result = linprog(
        np.append(np.zeros(P), 1.0),
        A_ub=np.column_stack([-slopes / scale, -np.ones(n_planes)]),
        b_ub=-constants / scale,
        A_eq=np.append(np.ones(P), 0.0)[np.newaxis],
        b_eq=[1.0],
        bounds=[(0.0, None)] * P + [(None, None)],
        method="highs",
    )
    if result.x is None:
        raise RuntimeError(f"HiGHS could not solve the master problem: {result.message}")
    theta = np.maximum(result.x[:-1], 0.0)
    # Any mean of the planes bounds the minimum from below, so the multipliers need not be exact;
    # where all of them are lost in rounding, equal ones do.
    shares = np.maximum(-result.ineqlin.marginals, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(n_planes, 1.0 / n_planes)
    lower_bound = float(shares @ constants - (shares @ slopes).max())
    return theta / theta.sum(), lower_bound, shares
