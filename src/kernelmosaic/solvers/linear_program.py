"""Linear programs by HiGHS: the lowest point of cutting planes over the simplex."""

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
        everyone = np.arange(n_weights + 1, dtype=np.int32)
        none = np.empty(0, dtype=np.int32)
        costs, floor = np.append(np.zeros(n_weights), 1.0), np.append(np.zeros(n_weights), -infinity)
        self._highs.addCols(n_weights + 1, costs, floor, np.full(n_weights + 1, infinity), 0, none, none, np.empty(0))
        self._highs.addRow(1.0, 1.0, n_weights, everyone[:-1], np.ones(n_weights))
        self._everyone, self._infinity = everyone, infinity

    def add(self, constant: float, slopes: Vector) -> None:
        """Add the plane constant − ⟨slopes, θ⟩."""
        if not self._scale:
            self._scale = max(abs(constant), float(np.abs(slopes).max())) or 1.0
        self.constants.append(float(constant))
        self.slopes.append(slopes)
        self._highs.addRow(
            constant / self._scale,
            self._infinity,
            self.n_weights + 1,
            self._everyone,
            np.append(slopes / self._scale, 1.0),
        )

    def solve(self) -> tuple[Vector, float]:
        """Return a minimiser and a lower bound of the minimum.

        Returns
        -------
        theta : ndarray of shape (n_weights,)
            In the simplex to the last digit.
        value : float
            No more than any θ attains, whatever the linear program's own rounding.
        """
        self._highs.run()
        found = self._highs.getSolution()
        if not found.value_valid:
            status = self._highs.modelStatusToString(self._highs.getModelStatus())
            raise RuntimeError(f"HiGHS could not solve the master problem: {status}")
        theta = np.maximum(np.asarray(found.col_value)[:-1], 0.0)
        # Any mixture of the planes bounds the minimum from below, so the multipliers need not be exact for it to hold.
        shares = np.maximum(np.asarray(found.row_dual)[1:], 0.0)
        cuts = len(self.constants)
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(cuts, 1.0 / cuts)
        return theta / theta.sum(), float(shares @ np.array(self.constants) - (shares @ np.array(self.slopes)).max())


def solve_master(constants: Vector, slopes: NDArray[np.float64]) -> tuple[Vector, float]:
    """Return what `Master` finds for planes given all at once; `slopes` has shape (cuts, n_weights)."""
    master = Master(slopes.shape[1])
    for constant, row in zip(constants, slopes, strict=True):
        master.add(float(constant), row)
    return master.solve()
