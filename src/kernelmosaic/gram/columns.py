"""Kernels of a stack on a device with columns of coefficients side by side, each with weights of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor, RowIndex
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

    #: From so many samples on, a product takes longer than to choose the columns it is needed for.
    large = 8192

    def __init__(self, stack: StoredStack) -> None:
        self.stack, self.backend, self.matrices = stack, stack.backend, stack.matrices
        self.n_kernels, self.n_samples = stack.n_kernels, stack.n_samples
        self.n_products = 0

    def each(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β_b of every kernel in double precision, (P, B, n), from products in that of the entries."""
        own = self.backend.astype(beta, self.stack.dtype)
        self.n_products += self.n_kernels * len(beta)
        return self.backend.xp.stack([self.backend.astype(own @ K, np.float64) for K in self.matrices])

    def combined(self, eta: Array) -> CombinedColumns:
        """Return the K_b of weights η, (B, P), which are sent to the device once."""
        return CombinedColumns(self, eta)

    def exact(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return what `each` does from entries in double precision."""
        self.n_products += self.n_kernels * len(beta)
        return self.stack.exact_placed_products(beta.T).transpose(1, 2)

    def inverse(self, weights: Array, ridge: float) -> ArrayOrTensor:
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


class CombinedColumns:
    """K_b = Σ_m η_bm K_m of every column; none of the operations waits for the device.

    Parameters
    ----------
    kernels : ColumnKernels
        The matrices.
    eta : ndarray of shape (B, P)
        The weights.
    """

    def __init__(self, kernels: ColumnKernels, eta: Array) -> None:
        self.kernels, self.dtype = kernels, kernels.stack.dtype
        weights = kernels.backend.asarray(eta, self.dtype)
        # Every kernel that has a weight in some column, with its weights in all of them: to read a matrix takes longer
        # than to multiply it with a few columns more.
        self.parts = [(m, weights[:, m : m + 1]) for m in np.flatnonzero(eta.any(axis=0)).tolist()]
        # Of large matrices, the columns in which a kernel has a weight, if they are at most three quarters of them.
        self.rows = {
            m: kernels.backend.index(np.flatnonzero(eta[:, m]))
            for m, _ in self.parts
            if kernels.n_samples >= kernels.large and np.count_nonzero(eta[:, m]) <= 0.75 * len(eta)
        }

    def products(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_b β_b in double precision, (B, n), from products in that of the entries."""
        kernels, backend = self.kernels, self.kernels.backend
        own = backend.astype(beta, self.dtype)
        total = backend.zeros(beta.shape, self.dtype)
        for m, weights in self.parts:
            rows = self.rows.get(m)
            if rows is None:
                total.addmm_(weights * own, kernels.matrices[m])
            else:
                total.index_add_(0, rows, (weights[rows] * own[rows]) @ kernels.matrices[m])
            kernels.n_products += len(weights if rows is None else rows)
        return backend.astype(total, np.float64)

    def blocks(self, rows: RowIndex) -> ArrayOrTensor:
        """Return K_b between samples of its own, (B, q, q), in double precision; `rows` has the shape (B, q)."""
        kernels, (B, q) = self.kernels, rows.shape
        out = kernels.backend.zeros((B, q, q), self.dtype)
        entries = rows[:, :, None] * kernels.n_samples + rows[:, None, :]
        for m, weights in self.parts:
            out.addcmul_(kernels.matrices[m].take(entries), weights[:, :, None])
        return kernels.backend.astype(out, np.float64)
