"""Cholesky factors of Newton matrices, wherever these are, with as much added as rounding asks for."""

from __future__ import annotations

from typing import Any

from scipy.linalg import LinAlgError

from kernelmosaic.backend import backend_of

#: Added to a matrix, relative to its diagonal, until it can be factorised.
_JITTER = 1e-14
#: ... by this factor more each time, and no more than all of it.
_MORE, _MOST = 100.0, 1.0


class Cholesky:
    """M = LLᵀ where M is: an array here, a tensor on its device.

    Parameters
    ----------
    M : array of shape (D, D)
        Symmetric and positive definite up to rounding.

    Raises
    ------
    scipy.linalg.LinAlgError
        If it is not, whatever is added to its diagonal.
    """

    def __init__(self, M: Any) -> None:
        backend = self.backend = backend_of(M)
        xp = backend.xp
        # With a diagonal of one, rows of very different sizes round alike.
        self.scale = 1.0 / xp.sqrt(xp.clip(M.diagonal(), 1e-300, None))
        jitter = 0.0
        while True:
            A = M * self.scale
            A *= self.scale[:, None]
            diagonal = backend.diagonal_view(A)
            diagonal += jitter
            factor = backend.cholesky(A, overwrite=True)
            if factor is not None and bool(xp.isfinite(factor.diagonal()).all()):
                self.factor = factor
                return
            jitter = max(_JITTER, _MORE * jitter)
            if jitter > _MOST:
                raise LinAlgError("The Newton matrix is not positive definite.")

    def solve(self, right: Any) -> Any:
        """Return M⁻¹ times one or more right-hand sides."""
        scale = self.scale if right.ndim == 1 else self.scale[:, None]
        return scale * self.backend.cho_solve(self.factor, scale * right)
