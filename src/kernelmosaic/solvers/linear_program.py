"""Linear programs by HiGHS: the lowest point of cutting planes over the simplex."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from kernelmosaic.solvers.program import Vector


def solve_master(constants: Vector, slopes: NDArray[np.float64]) -> tuple[Vector, float]:
    """Minimise the largest of constants_k − ⟨slopes_k, θ⟩ over θ ≥ 0 with Σθ = 1.

    Parameters
    ----------
    constants : ndarray of shape (cuts,)
        Heights of the planes at θ = 0.
    slopes : ndarray of shape (cuts, P)
        How fast they fall.

    Returns
    -------
    theta : ndarray of shape (P,)
        A minimiser, in the simplex to the last digit.
    value : float
        A lower bound of the minimum: no more than any θ attains, whatever the linear program's own rounding.
    """
    cuts, P = slopes.shape
    scale = float(np.abs(np.column_stack([constants, slopes])).max()) or 1.0
    planes = np.column_stack([-slopes / scale, -np.ones(cuts)])
    found = linprog(
        np.append(np.zeros(P), 1.0),
        A_ub=planes,
        b_ub=-constants / scale,
        A_eq=np.append(np.ones(P), 0.0)[np.newaxis],
        b_eq=[1.0],
        bounds=[(0.0, None)] * P + [(None, None)],
        method="highs",
    )
    if found.x is None:
        raise RuntimeError(f"HiGHS could not solve the master problem: {found.message}")
    theta = np.maximum(found.x[:P], 0.0)
    # Any mixture of the planes bounds the minimum from below, so the multipliers need not be exact for it to hold.
    shares = np.maximum(-found.ineqlin.marginals, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(cuts, 1.0 / cuts)
    return theta / theta.sum(), float(shares @ constants - (shares @ slopes).max())
