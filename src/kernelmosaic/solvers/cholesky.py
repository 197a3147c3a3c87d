"""Cholesky factors of Newton matrices, wherever these are, with as much added as rounding asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

#: Added to a matrix, relative to its diagonal, until it can be factorised.
_JITTER = 1e-14
#: ... by this factor more each time, and no more than all of it.
_MORE, _MOST = 100.0, 1.0


class Cholesky:
    """M = LLᵀ in this process.

    Parameters
    ----------
    M : ndarray of shape (D, D)
        Symmetric and positive definite up to rounding.

    Raises
    ------
    scipy.linalg.LinAlgError
        If it is not, whatever is added to its diagonal.
    """

    def __init__(self, M: Any) -> None:
        self.scale = self.scaling(M)
        jitter: float = 0.0
        while not self.factorise(M, jitter):
            jitter = max(_JITTER, _MORE * jitter)
            if jitter > _MOST:
                raise LinAlgError("The Newton matrix is not positive definite.")

    def scaling(self, M: Any) -> Any:
        """Return what makes the diagonal one: rows of very different sizes then round alike."""
        return 1.0 / np.sqrt(np.maximum(np.diag(M), 1e-300))

    def factorise(self, M: Any, jitter: float) -> bool:
        """Factorise the scaled matrix with that much added to its diagonal; False if it is not positive definite."""
        A = M * self.scale * self.scale[:, np.newaxis]
        A[np.diag_indices_from(A)] += jitter
        try:
            self.factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return False
        return bool(np.isfinite(np.diag(self.factor[0])).all())

    def solve(self, right: Any) -> Any:
        """Return M⁻¹ times one or more right-hand sides."""
        scale = self.scale if right.ndim == 1 else self.scale[:, np.newaxis]
        return np.asarray(scale * cho_solve(self.factor, scale * right, check_finite=False))


def factorised(M: NDArray[np.float64] | Any) -> Cholesky:
    """Return the Cholesky factor of M where M is: an array here, a tensor on its device."""
    if isinstance(M, np.ndarray):
        return Cholesky(M)
    from kernelmosaic.solvers._torch_cholesky import DeviceCholesky

    return DeviceCholesky(M)
