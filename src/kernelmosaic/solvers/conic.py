"""Conic programs for Clarabel, block by block: linear constraints, second-order cones and semi-definite matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic._typing import AnyArray, ArrayOrTensor
from kernelmosaic.solvers.program import Vector

#: Clarabel's names of the cones, by ours.
_CONES = {
    "zero": "ZeroConeT",
    "nonnegative": "NonnegativeConeT",
    "second order": "SecondOrderConeT",
    "semidefinite": "PSDTriangleConeT",
}
_USABLE = ("Solved", "AlmostSolved", "InsufficientProgress", "MaxIterations")


class ConicError(RuntimeError):
    """Clarabel finds a program infeasible or unbounded, or breaks down before it has a point."""


@dataclass(frozen=True)
class ConicSolution:
    """Where the solver stopped.

    Attributes
    ----------
    x : ndarray
        The variables.
    multipliers : list of ndarray
        The dual variables, one array per block, in the order the blocks were added.
    status : str
        What Clarabel says of them; only "Solved" is an optimum within its tolerance.
    n_iter : int
        Interior-point iterations.
    """

    x: Vector
    multipliers: list[Vector]
    status: str
    n_iter: int


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
        """Ask that b − Ax lie in the cone and return the number of the block; A may be dense or sparse.

        Cones: "zero", "nonnegative", "second order" (first entry the largest) and "semidefinite" (`pack_symmetric`).
        """
        self._blocks.append((cone, sparse.csc_matrix(A), np.asarray(b, dtype=np.float64)))
        return len(self._blocks) - 1

    def solve(self, tol: float = 1e-9, max_iter: int = 200) -> ConicSolution:
        """Solve by interior points.

        Raises
        ------
        ConicError
            If Clarabel finds the program infeasible or unbounded, or breaks down before it has a point.
        """
        clarabel = import_clarabel()
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = max_iter
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        cones = [getattr(clarabel, _CONES[cone])(_order(cone, len(b))) for cone, _, b in self._blocks]
        A = sparse.vstack([A for _, A, _ in self._blocks], format="csc")
        b = np.concatenate([b for _, _, b in self._blocks])
        P = sparse.diags(self.quadratic, format="csc")
        found = clarabel.DefaultSolver(P, self.linear, A, b, cones, settings).solve()
        status, x, z = str(found.status), np.array(found.x), np.array(found.z)
        if status not in _USABLE or not (np.all(np.isfinite(x)) and np.all(np.isfinite(z))):
            raise ConicError(
                f"Clarabel stopped with the status {status!r}: the conic program has no optimum it can reach."
            )
        ends = np.cumsum([len(b) for _, _, b in self._blocks])[:-1]
        return ConicSolution(x, np.split(z, ends), status, int(found.iterations))


def pack_symmetric(M: AnyArray) -> Vector:
    """Return the upper triangles of symmetric matrices, column by column, so that dot products stay what they were.

    `M` has shape (..., n, n), the result (..., n (n + 1) / 2).
    """
    n = M.shape[-1]
    column, row = np.tril_indices(n)
    return np.asarray(M[..., row, column] * np.where(row == column, 1.0, np.sqrt(2.0)))


def unpack_symmetric(packed: Vector) -> NDArray[np.float64]:
    """Return the matrix that `pack_symmetric` packed."""
    n = _order("semidefinite", len(packed))
    column, row = np.tril_indices(n)
    M = np.zeros((n, n))
    M[row, column] = M[column, row] = packed / np.where(row == column, 1.0, np.sqrt(2.0))
    return M


def import_clarabel() -> Any:
    """Return the module, or raise naming the extra that brings it."""
    try:
        import clarabel
    except ImportError:
        raise ImportError('Conic programs need Clarabel: pip install "kernelmosaic[conic]".') from None
    return clarabel


def _order(cone: str, length: int) -> int:
    return round((np.sqrt(8.0 * length + 1.0) - 1.0) / 2.0) if cone == "semidefinite" else length
