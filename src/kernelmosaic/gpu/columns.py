"""Kernels of a stack on a device with columns of coefficients side by side, each with weights of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor, RowIndex
from kernelmosaic.backend import TorchBackend, backend_of
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.stack import StoredStack

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HalfRows:
    """Rows in half precision, each over its size, and in single precision.

    The entries are padded by zeros to a multiple of eight, as the units of a device that multiply halves read them.
    """

    single: Any
    entries: Any
    size: Any

    @classmethod
    def of(cls, rows: Any) -> HalfRows:
        size = rows.abs().amax(1, keepdim=True).clip(1e-30)
        return cls(rows, _padded((rows / size).half()), size)

    def rows(self, which: RowIndex) -> HalfRows:
        """Return some of the rows."""
        return HalfRows(self.single[which], self.entries[which], self.size[which])


def _padded(entries: Any) -> Any:
    n = entries.shape[1]
    out = entries.new_zeros((entries.shape[0], n + -n % 8))
    out[:, :n] = entries
    return out


@dataclass(frozen=True)
class SingleMatrix:
    """A symmetric matrix in the precision of the stack."""

    entries: Any
    is_half = False

    def multiply(self, rows: Any) -> Any:
        """Return the product with every row, (B, n), in double precision."""
        return (rows.to(self.entries.dtype) @ self.entries).double()


@dataclass(frozen=True)
class HalfMatrix:
    """A symmetric matrix in half precision over its largest entry, and its diagonal in single precision.

    A product errs by 3e-4 of its size and takes a fifth of the time, so that it serves where the next products make up
    for the error. The diagonal is apart because like entries are rounded alike: the error of the others averages out.
    """

    entries: Any
    size: Any
    diagonal: Any
    backend: TorchBackend
    is_half = True

    @classmethod
    def of(cls, matrix: Any, backend: TorchBackend) -> HalfMatrix:
        n, (least, most) = len(matrix), backend.xp.aminmax(matrix)
        size = backend.xp.maximum(-least, most).clip(1e-30)
        entries = matrix.new_zeros((n + -n % 8, n + -n % 8), dtype=backend.xp.float16)
        height = max(1, 2**26 // n)
        for i in range(0, n, height):
            entries[i : min(i + height, n), :n] = matrix[i : i + height] / size
        entries.fill_diagonal_(0.0)
        return cls(entries, size, matrix.diagonal().clone(), backend)

    def times(self, rows: HalfRows) -> Any:
        """Return the product with every row, (B, n), in single precision."""
        found = self.backend.half_product(rows.entries, self.entries)[:, : rows.single.shape[1]]
        return (found * (rows.size * self.size)).addcmul_(rows.single, self.diagonal)

    def multiply(self, rows: Any) -> Any:
        """Return the same for rows in any precision, in double precision."""
        return self.times(HalfRows.of(rows.float())).double()


class ColumnKernels:
    """Products of K_b = Σ_m η_bm K_m with a β_b of its own, for all b at once; arrays have one row per b.

    One pass over a matrix serves all columns: a few times as many cost no more than one.

    Parameters
    ----------
    stack : StoredStack
        The matrices, on a device.
    half : bool, optional
        Whether to keep them in half precision, too; where that is faster and there is memory, unless given.

    Attributes
    ----------
    halves : list of HalfMatrix
        Those; empty where they are not kept.
    n_products : int
        Products of one matrix with one column so far.
    """

    #: From so many samples on, a product takes longer than to choose the columns it is needed for.
    large = 8192
    #: Largest eigenvalue over ridge up to which half precision serves.
    steepest = 2e4

    def __init__(self, stack: StoredStack, half: bool | None = None) -> None:
        self.stack, self.matrices, self.backend = stack, stack.matrices, cast(TorchBackend, stack.backend)
        self.n_kernels, self.n_samples = stack.n_kernels, stack.n_samples
        self.n_products = 0
        if half is None:
            # Beside the halves, five matrices in single precision while one is inverted.
            room = self.backend.free_bytes() >= (2.0 * self.n_kernels + 20.0) * self.n_samples**2
            half = self.backend.multiplies_halves and stack.dtype == np.float32 and room
        self.halves = [HalfMatrix.of(K, self.backend) for K in self.matrices] if half else []

    def each(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β_b of every kernel in double precision, (P, B, n), from products in that of the entries."""
        own = self.backend.astype(beta, self.stack.dtype)
        self.n_products += self.n_kernels * len(beta)
        return self.backend.xp.stack([self.backend.astype(own @ K, np.float64) for K in self.matrices])

    def combined(self, eta: Array, half: bool = False) -> CombinedColumns:
        """Return the K_b of weights η, (B, P), which are sent to the device once; in half precision if it is kept."""
        return CombinedColumns(self, eta, half and bool(self.halves))

    def exact(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return what `each` does from entries in double precision."""
        self.n_products += self.n_kernels * len(beta)
        return self.stack.exact_placed_products(beta.T).transpose(1, 2)

    def inverse(self, weights: Array, ridge: float) -> SingleMatrix | HalfMatrix:
        """Return (Σ_m weights_m K_m + ridge)⁻¹ as exact as rounding leaves it.

        It is in half precision if halves are kept and the largest eigenvalue is at most `steepest` times the ridge:
        beyond that, what half precision rounds counts for more than the ridge.
        """
        A = self.stack.combine(weights).matrix
        diagonal, backend = self.backend.diagonal_view(A), self.backend
        diagonal += ridge
        halves = bool(self.halves) and self._largest_eigenvalue(A) <= self.steepest * ridge
        factor = Cholesky(A)
        if not halves:
            return SingleMatrix(factor.inverse())
        del A, diagonal
        root = factor.inverse_root()
        del factor
        size = float(root.abs().amax())
        root = _padded((root / size).half())
        return HalfMatrix.of(backend.half_product(root.T, root)[: self.n_samples, : self.n_samples] * size**2, backend)

    def _largest_eigenvalue(self, A: Any, passes: int = 6) -> float:
        """Return about the largest eigenvalue of a positive definite matrix, by power iteration."""
        vector = self.backend.xp.ones(len(A), dtype=A.dtype, device=A.device) / len(A) ** 0.5
        size = vector.norm()
        for _ in range(passes):
            vector = A @ (vector / size)
            size = vector.norm()
        return float(size)


class CombinedColumns:
    """K_b = Σ_m η_bm K_m of every column; none of the operations waits for the device.

    Parameters
    ----------
    kernels : ColumnKernels
        The matrices.
    eta : ndarray of shape (B, P)
        The weights.
    half : bool
        Whether products are those of the matrices in half precision.
    """

    def __init__(self, kernels: ColumnKernels, eta: Array, half: bool) -> None:
        self.kernels, self.dtype, self.half = kernels, kernels.stack.dtype, half
        weights = kernels.backend.asarray(eta, self.dtype)
        # Every kernel that has a weight in some column, with its weights in all of them: to read a matrix takes longer
        # than to multiply it with a few columns more.
        self.parts = [(m, weights[:, m : m + 1]) for m in np.flatnonzero(eta.any(axis=0)).tolist()]
        # Of large matrices, the columns in which a kernel has a weight, if they are at most three quarters of them.
        self.rows: dict[int, Any] = {}
        for m, own in self.parts:
            rows = np.flatnonzero(eta[:, m])
            if kernels.n_samples >= kernels.large and len(rows) <= 0.75 * len(eta):
                chosen = kernels.backend.index(rows)
                self.rows[m] = chosen, own[chosen]

    def products(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_b β_b in double precision, (B, n), from products in that of the entries, or in half precision."""
        kernels, backend = self.kernels, self.kernels.backend
        own = backend.astype(beta, self.dtype)
        halves = HalfRows.of(own) if self.half else None
        total = backend.zeros(beta.shape, self.dtype)
        for m, weights in self.parts:
            rows, some = self.rows.get(m, (slice(None), weights))
            if halves is not None:
                total[rows] += some * kernels.halves[m].times(halves.rows(rows))
            elif m in self.rows:
                total[rows] += (some * own[rows]) @ kernels.matrices[m]
            else:
                total.addmm_(weights * own, kernels.matrices[m])
            kernels.n_products += len(some)
        return backend.astype(total, np.float64)

    def blocks(self, rows: RowIndex) -> ArrayOrTensor:
        """Return K_b between samples of its own, (B, q, q), in double precision; `rows` has the shape (B, q)."""
        kernels, (B, q) = self.kernels, rows.shape
        out = kernels.backend.zeros((B, q, q), self.dtype)
        entries = rows[:, :, None] * kernels.n_samples + rows[:, None, :]
        for m, weights in self.parts:
            out.addcmul_(kernels.matrices[m].take(entries), weights[:, :, None])
        return kernels.backend.astype(out, np.float64)


def solve_blocks(A: ArrayOrTensor, right: ArrayOrTensor, width: int = 256) -> ArrayOrTensor:
    """Return A_b⁻¹ right_b of symmetric positive definite tensors, (B, n, n) and (B, n, k); A is overwritten.

    A device factorises large matrices of a batch one by one: by panels of a few hundred columns all advance together.
    """
    xp, n, x = backend_of(A).xp, A.shape[1], right.clone()
    panels = [slice(k, min(k + width, n)) for k in range(0, n, width)]
    inverses = []
    for own in panels:
        below = slice(own.stop, n)
        corner = xp.linalg.cholesky_ex(A[:, own, own])[0]
        one = xp.eye(own.stop - own.start, dtype=A.dtype, device=A.device).expand_as(corner)
        inverses.append(xp.linalg.solve_triangular(corner, one, upper=False))
        x[:, own] = inverses[-1] @ x[:, own]
        if own.stop < n:
            panel = A[:, below, own] @ inverses[-1].transpose(1, 2)
            A[:, below, own] = panel
            A[:, below, below].baddbmm_(panel, panel.transpose(1, 2), alpha=-1.0)
            x[:, below] -= panel @ x[:, own]
    for own, inverse in zip(panels[::-1], inverses[::-1], strict=True):
        if own.stop < n:
            x[:, own] -= A[:, own.stop :, own].transpose(1, 2) @ x[:, own.stop :]
        x[:, own] = inverse.transpose(1, 2) @ x[:, own]
    return x
