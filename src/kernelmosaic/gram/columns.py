"""Kernels of a stack on a device with columns of coefficients side by side, each with weights of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.stack import StoredStack

Array = NDArray[np.float64]


class ColumnKernels:
    """Products of K_b = Σ_m η_bm K_m with a β_b of its own, for all b at once; arrays have one row per b.

    One pass over a matrix serves all columns: a few times as many cost no more than one.

    Parameters
    ----------
    stack : StoredStack
        The matrices, on a device.

    Attributes
    ----------
    n_products : int
        Products of one matrix with one column so far.
    """

    def __init__(self, stack: StoredStack) -> None:
        self.stack, self.backend, self.matrices = stack, stack.backend, stack.matrices
        self.n_kernels, self.n_samples = stack.n_kernels, stack.n_samples
        self.n_products = 0

    def each(self, beta: Any) -> Any:
        """Return K_m β_b of every kernel in double precision, (P, B, n), from products in that of the entries."""
        own = self.backend.astype(beta, self.stack.dtype)
        self.n_products += self.n_kernels * len(beta)
        return self.backend.xp.stack([self.backend.astype(own @ K, np.float64) for K in self.matrices])

    def products(self, beta: Any, eta: Array) -> Any:
        """Return K_b β_b in double precision, (B, n), for weights of shape (B, P), which are in this process."""
        backend, total = self.backend, None
        weights = backend.asarray(eta, self.stack.dtype)
        own = backend.astype(beta, self.stack.dtype)
        for m in np.flatnonzero(eta.any(axis=0)):
            rows = np.flatnonzero(eta[:, m])
            self.n_products += len(rows)
            if len(rows) == len(eta):
                part = (weights[:, m : m + 1] * own) @ self.matrices[m]
                total = part if total is None else total.add_(part)
                continue
            at = backend.index(rows)
            total = backend.zeros(beta.shape, self.stack.dtype) if total is None else total
            total.index_add_(0, at, (weights[at, m : m + 1] * own[at]) @ self.matrices[m])
        return backend.astype(total, np.float64)

    def exact(self, beta: Any) -> Any:
        """Return what `each` does from entries in double precision."""
        self.n_products += self.n_kernels * len(beta)
        return self.stack.exact_placed_products(beta.T).transpose(1, 2)

    def blocks(self, rows: Any, eta: Array) -> Any:
        """Return K_b between samples of its own, (B, q, q), in double precision; `rows` has the shape (B, q)."""
        backend, out = self.backend, None
        weights = backend.asarray(eta)
        for m in np.flatnonzero(eta.any(axis=0)):
            part = self.matrices[m][rows[:, :, None], rows[:, None, :]] * weights[:, m, None, None]
            out = part if out is None else out.add_(part)
        return out

    def inverse(self, weights: Array, ridge: float) -> Any:
        """Return (Σ_m weights_m K_m + ridge)⁻¹ in the precision of the entries, as good as rounding leaves it."""
        A = self.stack.combine(weights).matrix
        diagonal, backend = self.backend.diagonal_view(A), self.backend
        diagonal += ridge
        factor = backend.cholesky(A)
        while factor is None:  # a small ridge is lost in the rounding of a large matrix
            diagonal += ridge
            ridge *= 2.0
            factor = backend.cholesky(A)
        return backend.cho_inverse(factor)
