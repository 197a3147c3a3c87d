"""The penalties d_m on the kernels: given, or from the kernels' spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

from kernelmosaic.backend import default_budget, format_bytes
from kernelmosaic.gram import GramStack

#: Eigenvalues of a matrix with unit diagonal count as large above this.
_LARGE = 0.5

#: Penalties enter squared: beyond this a kernel is all there is, or none, and its matrix overflows.
_EXTREME = 1e8


def make_penalties(penalties: Any, power: Any, stack: GramStack) -> NDArray[np.float64]:
    """Return the d_m: ones for None, e_m^power for "eigenvalue", else the given ones, checked."""
    P = stack.n_kernels
    if penalties is None:
        return np.ones(P)
    if isinstance(penalties, str):
        if penalties != "eigenvalue":
            raise ValueError(f"penalties={penalties!r}: give 'eigenvalue', {P} positive numbers, or None.")
        return eigenvalue_penalties(stack, check_power(power))
    d = numbers("penalties", penalties, P)
    if np.any(d <= 0):
        raise ValueError(f"penalties={penalties!r}: every penalty must be positive.")
    if np.any(d < 1 / _EXTREME) or np.any(d > _EXTREME):
        raise ValueError(f"penalties={penalties!r}: give numbers between {1 / _EXTREME:g} and {_EXTREME:g}.")
    return d


def eigenvalue_penalties(stack: GramStack, power: float) -> NDArray[np.float64]:
    """Return d_m = e_m^power, with e_m the number of eigenvalues above ½ of K_m at unit diagonal, 1 if there is none.

    References
    ----------
    Bach, Thibaux and Jordan (2005), "Computing regularization paths for learning multiple kernels".
    """
    if power == 0:
        return np.ones(stack.n_kernels)
    return np.array([float(large_eigenvalues(stack, m)) for m in range(stack.n_kernels)]) ** power


def large_eigenvalues(stack: GramStack, m: int) -> int:
    """Return how many eigenvalues of K_m, scaled to unit diagonal, are above ½; at least 1."""
    n = stack.n_samples
    needed = 2 * 8 * n * n
    if needed > default_budget():
        raise MemoryError(
            f"penalties='eigenvalue' needs {format_bytes(needed)} for the spectrum of one {n} x {n} kernel matrix: "
            "use fewer samples, or give the penalties as numbers."
        )
    K = np.array(stack.row_block(m, slice(0, n)), dtype=np.float64)
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))
    norms[norms == 0] = 1.0
    K /= norms
    K /= norms[:, np.newaxis]
    return max(int(np.count_nonzero(eigvalsh(K, overwrite_a=True, check_finite=False) > _LARGE)), 1)


def check_power(power: Any) -> float:
    """Return γ, or raise naming it."""
    if isinstance(power, bool) or not isinstance(power, int | float | np.number) or not 0 <= power < np.inf:
        raise ValueError(f"penalty_power={power!r}: give a number of at least 0; 0 penalises all kernels alike.")
    return float(power)


def numbers(name: str, values: Any, P: int) -> NDArray[np.float64]:
    """Return one finite number per kernel, or raise naming the parameter."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={values!r}: give {P} numbers, one per kernel.") from None
    if array.shape != (P,):
        raise ValueError(f"{name} has shape {array.shape}, but there are {P} kernels: give one number per kernel.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name}={values!r}: NaN and infinity are not allowed.")
    return array
