"""Conic programs by Clarabel, those with few variables and large matrices by a barrier, and linear
ones by HiGHS."""

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

#: Clarabel's names of the cones, by ours.
_CONES = {
    "zero": "ZeroConeT",
    "nonnegative": "NonnegativeConeT",
    "second order": "SecondOrderConeT",
    "semidefinite": "PSDTriangleConeT",
}


@dataclass(frozen=True)
class ConicSolution:
    """How a conic program was solved.

    Attributes
    ----------
    ended_because : str
        Clarabel's status.
    has_point : bool
        Whether there is a point; not where Clarabel finds the program infeasible or unbounded, or
        breaks down before it has one.
    x : ndarray of shape (n_variables,)
        The variables.
    multipliers : list of ndarray
        The dual variables, in one array per block.
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
        """Ask that b − Ax lie in the cone and return the number of the block; A may be dense or
        sparse.

        Cones: "zero", "nonnegative", "second order" (first entry the largest) and "semidefinite"
        (`pack_symmetric`).
        """
        self._blocks.append((cone, sparse.csc_matrix(A), np.asarray(b, dtype=np.float64)))
        return len(self._blocks) - 1

    def solve(self, tol: float = 1e-9, max_iter: int = 200) -> ConicSolution:
        """Return the variables, and the dual ones, by interior points."""
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
        found = clarabel.DefaultSolver(P, self.linear, A, b, cones, settings).solve()
        status, x, z = str(found.status), np.array(found.x), np.array(found.z)
        usable = ("Solved", "AlmostSolved", "InsufficientProgress", "MaxIterations")
        is_finite = bool(np.all(np.isfinite(x)) and np.all(np.isfinite(z)))
        ends = np.cumsum([len(b) for _, _, b in self._blocks])[:-1]
        return ConicSolution(status, status in usable and is_finite, x, np.split(z, ends))


def pack_symmetric(M: AnyArray) -> Vector:
    """Return the upper triangles of symmetric matrices, column by column, so that dot products stay
    what they were.

    `M` has shape (..., n, n), the result (..., n (n + 1) / 2).
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
    return round((np.sqrt(8.0 * length + 1.0) - 1.0) / 2.0) if cone == "semidefinite" else length


# A barrier for few variables and large matrices: what grows with n² is only multiplied ------------


@dataclass(frozen=True)
class MatrixInequality:
    """constant + Σ_i s_i matrices_i + Σ_j t_j e e' ⪰ 0, where t_j stands at one place of the
    diagonal.

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
class BarrierSolution:
    """Where the barrier stopped.

    Attributes
    ----------
    s, t : ndarray
        The variables.
    multipliers : list of ndarray
        The dual matrices, one an inequality; identities where not even the start is inside to
        rounding.
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
) -> BarrierSolution:
    """Minimise ⟨linear, (s, t)⟩ over s ≥ 0, Σ s = 1 and t with every inequality, from a point
    strictly inside.

    Each Newton step multiplies every matrix by one inverse; nothing of the size of a packed matrix
    is factorised. Where rounding hides the curvature, the path ends at the last point whose
    curvature is known.

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
    if not np.isfinite(_barrier(steepness * linear, inequalities, x, P).upper):
        return BarrierSolution(s, t, [np.eye(len(one.constant)) for one in inequalities], np.inf, 0)

    def line(here: _Inside) -> tuple[Callable[[float], _Inside], float] | None:
        nonlocal n_iter, decrement
        n_iter += 1
        slopes, newton = steepness * linear, _newton(steepness * linear, inequalities, here.x, P)
        decrement = np.inf if newton is None else newton[1]
        if (
            newton is None or decrement <= 1e-2
        ):  # rounding hides the curvature, or this is the centre
            return None
        return lambda size: _barrier(slopes, inequalities, here.x + size * newton[0], P), -decrement

    while True:
        # The first point inside may hug the boundary, from where the next steps are tiny: shorten
        # as long as it pays.
        x = descend(
            _barrier(steepness * linear, inequalities, x, P),
            line,
            Trials(40, least=0.5, shrink=True),
            100,
        ).x
        gap = order / steepness
        # A thousand steps are about ten times what the hardest problems take that rounding does not
        # hide.
        if gap <= tol * float(np.abs(linear) @ np.abs(x)) or decrement > 1.0 or n_iter >= 1000:
            inverses = [
                Cholesky(one.value(x[:P], x[P:]), most=0.0).inverse() for one in inequalities
            ]
            return BarrierSolution(x[:P], x[P:], [F / steepness for F in inverses], gap, n_iter)
        steepness *= 3.0


class _Inside(NamedTuple):
    """A point with the value of the barrier there, infinite where it is not inside."""

    upper: float
    x: Vector


def _newton(
    linear: Vector, inequalities: list[MatrixInequality], x: Vector, P: int
) -> tuple[Vector, float] | None:
    """Return the step that keeps Σ s, and its decrement squared; None where rounding hides the
    curvature."""
    # The slope and the Hessian of the objective − Σ log det − Σ log s.
    slope, H = linear.copy(), np.zeros((len(x), len(x)))
    slope[:P] -= 1.0 / x[:P]
    H[np.arange(P), np.arange(P)] += 1.0 / x[:P] ** 2
    for one in inequalities:
        inverse = Cholesky(one.value(x[:P], x[P:]), most=0.0).inverse()
        products = np.matmul(inverse, one.matrices)
        slope[:P] -= np.trace(products, axis1=1, axis2=2)
        H[:P, :P] += np.einsum("iab,jba->ij", products, products, optimize=True)
        for j, place in one.bounds:
            slope[P + j] -= inverse[place, place]
            H[:P, P + j] += products[:, place] @ inverse[:, place]
            for other, elsewhere in one.bounds:
                H[P + j, P + other] += inverse[place, elsewhere] ** 2
    H[P:, :P] = H[:P, P:].T
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


def _barrier(linear: Vector, inequalities: list[MatrixInequality], x: Vector, P: int) -> _Inside:
    if not np.all(x[:P] > 0):
        return _Inside(np.inf, x)
    value = float(linear @ x - np.log(x[:P]).sum())
    for one in inequalities:
        try:
            value -= Cholesky(one.value(x[:P], x[P:]), most=0.0).log_det
        except np.linalg.LinAlgError:
            return _Inside(np.inf, x)
    return _Inside(value, x)


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
    value : float
        No more than any θ attains, whatever the linear program's own rounding.
    shares : ndarray of shape (planes,)
        Not negative, of sum one: the planes mixed by them have this bound.
    """
    # Loads a good part of SciPy, which most fits do without.
    from scipy.optimize import linprog

    cuts, P = slopes.shape
    scale = max(float(np.abs(constants).max()), float(np.abs(slopes).max())) or 1.0
    found = linprog(
        np.append(np.zeros(P), 1.0),
        A_ub=np.column_stack([-slopes / scale, -np.ones(cuts)]),
        b_ub=-constants / scale,
        A_eq=np.append(np.ones(P), 0.0)[np.newaxis],
        b_eq=[1.0],
        bounds=[(0.0, None)] * P + [(None, None)],
        method="highs",
    )
    if found.x is None:
        raise RuntimeError(f"HiGHS could not solve the master problem: {found.message}")
    theta = np.maximum(found.x[:-1], 0.0)
    # Any mixture of the planes bounds the minimum from below, so the multipliers need not be exact
    # for it to hold.
    shares = np.maximum(-found.ineqlin.marginals, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(cuts, 1.0 / cuts)
    return theta / theta.sum(), float(shares @ constants - (shares @ slopes).max()), shares
