"""Linear programs by HiGHS: the lowest point of cutting planes over the simplex.

Column generation keeps its program warm from plane to plane, for which it needs highspy. For planes that are all
at hand, the HiGHS that SciPy ships is enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.solvers.program import Vector


class Master:
    """Minimise the largest of constants_k − ⟨slopes_k, θ⟩ over θ ≥ 0 with Σθ = 1, the planes k coming one by one.

    The solver keeps its basis, so that one plane more costs it a few pivots and not a new start.

    Parameters
    ----------
    n_weights : int
        The length of θ.
    """

    def __init__(self, n_weights: int) -> None:
        import highspy

        self.n_weights = n_weights
        self.constants: list[float] = []
        self.slopes: list[Vector] = []
        self._scale = 0.0
        untyped: Any = highspy.Highs
        self._highs = untyped()
        self._highs.setOptionValue("output_flag", False)
        infinity = highspy.kHighsInf
        all_columns = np.arange(n_weights + 1, dtype=np.int32)
        none = np.empty(0, dtype=np.int32)
        costs, floor = np.append(np.zeros(n_weights), 1.0), np.append(np.zeros(n_weights), -infinity)
        self._highs.addCols(n_weights + 1, costs, floor, np.full(n_weights + 1, infinity), 0, none, none, np.empty(0))
        self._highs.addRow(1.0, 1.0, n_weights, all_columns[:-1], np.ones(n_weights))
        self._all_columns, self._infinity, self._refused = all_columns, infinity, highspy.HighsStatus.kError

    def add(self, constant: float, slopes: Vector) -> bool:
        """Add the plane constant − ⟨slopes, θ⟩, unless its numbers are too large; return whether it was added."""
        if not self._scale:
            self._scale = max(abs(constant), float(np.abs(slopes).max())) or 1.0
        status = self._highs.addRow(
            constant / self._scale,
            self._infinity,
            self.n_weights + 1,
            self._all_columns,
            np.append(slopes / self._scale, 1.0),
        )
        # Numbers beyond 10¹⁵ are refused; the bound of the other planes holds without this one.
        accepted = bool(status != self._refused)
        if accepted:
            self.constants.append(float(constant))
            self.slopes.append(slopes)
        return accepted

    def solve(self) -> tuple[Vector, float, Vector]:
        """Return a minimiser, a lower bound of the minimum, and the shares of the planes that prove it.

        Returns
        -------
        theta : ndarray of shape (n_weights,)
            In the simplex to the last digit.
        value : float
            No more than any θ attains, whatever the linear program's own rounding.
        shares : ndarray of shape (planes,)
            Not negative, of sum one: the planes mixed by them have this bound.
        """
        self._highs.run()
        found = self._highs.getSolution()
        if not found.value_valid:
            status = self._highs.modelStatusToString(self._highs.getModelStatus())
            raise RuntimeError(f"HiGHS could not solve the master problem: {status}")
        theta = np.maximum(np.asarray(found.col_value)[:-1], 0.0)
        shares = np.asarray(found.row_dual)[1:]
        return theta / theta.sum(), *_mixed_bound(shares, np.array(self.constants), np.array(self.slopes))


def solve_master(constants: Vector, slopes: NDArray[np.float64]) -> tuple[Vector, float, Vector]:
    """Return what `Master` finds, for planes given all at once; `slopes` has shape (cuts, n_weights)."""
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
    return theta / theta.sum(), *_mixed_bound(-found.ineqlin.marginals, constants, slopes)


def _mixed_bound(shares: Vector, constants: Vector, slopes: NDArray[np.float64]) -> tuple[float, Vector]:
    """Return the bound of the planes mixed by these multipliers, and the shares of the mixture.

    Any mixture of the planes bounds the minimum from below, so the multipliers need not be exact for it to hold.
    """
    shares = np.maximum(shares, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(shares), 1.0 / len(shares))
    return float(shares @ constants - (shares @ slopes).max()), shares
