"""Products of combined kernels with many columns of coefficients on a device.

Every column b has coefficients β_b and kernel weights η_b of its own, and with them its combined
kernel K_b = Σ_m η_bm K_m. A device takes longer to read a matrix than to multiply it with a few
columns more, so that all columns are multiplied in one pass over each K_m. Arrays have one row per
column: β has the shape (B, n), the products with every kernel (P, B, n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kernelmosaic._typing import Array, ArrayOrTensor, Indices, RowIndex
from kernelmosaic.backend import TorchBackend, backend_of
from kernelmosaic.gpu.tuning import (
    HALF_ALIGNMENT,
    HALF_BYTES,
    INVERSION_BYTES,
    LARGE_SAMPLES,
    LEAST_HALF_SIZE,
    MAX_GATHERED_FRACTION,
    MAX_HALF_CONDITION,
    PANEL_COLUMNS,
    POWER_STEPS,
    ROUNDED_ENTRIES,
)
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.stack import MatrixStack

# Matrices in single and in half precision ---------------------------------------------------------


@dataclass(frozen=True)
class HalfRows:
    """Rows in single precision, and in half precision divided by their largest entry.

    Attributes
    ----------
    single : tensor of shape (B, n)
        The rows.
    entries : tensor of shape (B, n or more)
        The rows in half precision, divided by `size`, and padded with zeros to the alignment that
        the units of a device which multiply halves read.
    size : tensor of shape (B, 1)
        The largest absolute entry of each row.
    """

    single: Any
    entries: Any
    size: Any

    @classmethod
    def of(cls, rows: Any) -> HalfRows:
        """Return rows in single precision together with their halves."""
        size = rows.abs().amax(1, keepdim=True).clip(LEAST_HALF_SIZE)
        return cls(rows, _padded((rows / size).half()), size)

    def rows(self, which: RowIndex) -> HalfRows:
        """Return a selection of the rows."""
        return HalfRows(self.single[which], self.entries[which], self.size[which])


def _padded(entries: Any) -> Any:
    """Return a matrix with columns of zeros up to the alignment of halves."""
    n_rows, n_columns = entries.shape
    padded = entries.new_zeros((n_rows, _aligned(n_columns)))
    padded[:, :n_columns] = entries
    return padded


def _aligned(n: int) -> int:
    """Return the least multiple of the alignment of halves that is not below n."""
    return n + -n % HALF_ALIGNMENT


@dataclass(frozen=True)
class SingleMatrix:
    """A symmetric matrix in the precision of the stack."""

    entries: Any

    def multiply(self, rows: Any) -> Any:
        """Return the product with every row, of shape (B, n), in double precision."""
        return (rows.to(self.entries.dtype) @ self.entries).double()


@dataclass(frozen=True)
class HalfMatrix:
    """A symmetric matrix in half precision, with its diagonal in single precision.

    A product errs by 3e-4 of its size and takes a fifth of the time, so that halves serve where
    later products correct the error. The diagonal is kept apart because its entries are often equal
    and are rounded alike, which adds up; the rounding of the other entries averages out.

    Attributes
    ----------
    entries : tensor of shape (n or more, n or more)
        The matrix without its diagonal, divided by `size`, and padded with zeros.
    size : tensor of shape ()
        Its largest absolute entry.
    diagonal : tensor of shape (n,)
        Its diagonal, in single precision.
    backend : TorchBackend
        Where it is.
    """

    entries: Any
    size: Any
    diagonal: Any
    backend: TorchBackend

    @classmethod
    def of(cls, matrix: Any, backend: TorchBackend) -> HalfMatrix:
        """Return a matrix of shape (n, n) in half precision."""
        n = len(matrix)
        lowest, highest = backend.xp.aminmax(matrix)
        size = backend.xp.maximum(-lowest, highest).clip(LEAST_HALF_SIZE)
        entries = matrix.new_zeros((_aligned(n), _aligned(n)), dtype=backend.xp.float16)
        # Strip by strip: the quotient takes the precision of the matrix.
        height = max(1, ROUNDED_ENTRIES // n)
        for first in range(0, n, height):
            strip = matrix[first : first + height]
            entries[first : first + len(strip), :n] = strip / size
        entries.fill_diagonal_(0.0)
        return cls(entries, size, matrix.diagonal().clone(), backend)

    def times(self, rows: HalfRows) -> Any:
        """Return the product with every row, of shape (B, n), in single precision."""
        n = rows.single.shape[1]
        product = self.backend.half_product(rows.entries, self.entries)[:, :n]
        return (product * (rows.size * self.size)).addcmul_(rows.single, self.diagonal)

    def multiply(self, rows: Any) -> Any:
        """Return the product with rows in any precision, (B, n), in double precision."""
        return self.times(HalfRows.of(rows.float())).double()


# Kernels with columns of coefficients -------------------------------------------------------------


class ColumnKernels:
    """The Gram matrices of a stack, for products with many columns of coefficients at once.

    Parameters
    ----------
    stack : MatrixStack
        The matrices, on a device.
    half : bool, optional
        Whether to keep them in half precision, too. By default they are kept where the device
        multiplies halves faster, the stack is in single precision, and there is memory.

    Attributes
    ----------
    halves : list of HalfMatrix
        The matrices in half precision; empty where they are not kept.
    n_products : int
        Products of one matrix with one column that were computed so far.
    """

    #: Samples from which on a kernel is multiplied only with the columns in which it has a weight.
    large = LARGE_SAMPLES

    def __init__(self, stack: MatrixStack, half: bool | None = None) -> None:
        self.stack = stack
        self.matrices = stack.matrices
        self.backend = cast(TorchBackend, stack.backend)
        self.n_kernels = stack.n_kernels
        self.n_samples = stack.n_samples
        self.n_products = 0
        if half is None:
            bytes_per_entry = HALF_BYTES * self.n_kernels + INVERSION_BYTES
            fits = self.backend.free_bytes() >= bytes_per_entry * self.n_samples**2
            half = self.backend.multiplies_halves and stack.dtype == np.float32 and fits
        self.halves: list[HalfMatrix] = []
        if half:
            self.halves = [HalfMatrix.of(K, self.backend) for K in self.matrices]

    def each(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β_b of every kernel, (P, B, n), from products in the precision of the stack.

        The result is in double precision.
        """
        rounded = self.backend.astype(beta, self.stack.dtype)
        self.n_products += self.n_kernels * len(beta)
        products = [self.backend.astype(rounded @ K, np.float64) for K in self.matrices]
        return self.backend.xp.stack(products)

    def exact(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β_b of every kernel, (P, B, n), from entries in double precision."""
        self.n_products += self.n_kernels * len(beta)
        return self.stack.exact_placed_products(beta.T).transpose(1, 2)

    def inverse(self, weights: Array, ridge: float) -> SingleMatrix | HalfMatrix:
        """Return (Σ_m weights_m K_m + ridge)⁻¹ in the precision of the stack, or in halves.

        It is in half precision if halves are kept and the largest eigenvalue of the matrix is at
        most `MAX_HALF_CONDITION` times the ridge.

        Parameters
        ----------
        weights : ndarray of shape (P,)
        ridge : float
            What is added to the diagonal.
        """
        A = self.stack.combine(weights).matrix
        diagonal = self.backend.diagonal_view(A)
        diagonal += ridge
        in_halves = bool(self.halves) and self._largest_eigenvalue(A) <= MAX_HALF_CONDITION * ridge
        factor = Cholesky(A)
        if not in_halves:
            return SingleMatrix(factor.inverse())
        # A⁻¹ = RᵀR is multiplied in half precision. Each array is released once it has served: on a
        # device, matrices of all samples fill the memory.
        del A, diagonal
        R = factor.inverse_root()
        del factor
        size = float(R.abs().amax())
        R = _padded((R / size).half())
        n = self.n_samples
        inverse = self.backend.half_product(R.T, R)[:n, :n] * size**2
        return HalfMatrix.of(inverse, self.backend)

    def _largest_eigenvalue(self, A: Any) -> float:
        """Return about the largest eigenvalue of a positive definite matrix, by power iteration."""
        vector = self.backend.xp.ones(len(A), dtype=A.dtype, device=A.device) / len(A) ** 0.5
        size = vector.norm()
        for _ in range(POWER_STEPS):
            vector = A @ (vector / size)
            size = vector.norm()
        return float(size)


@dataclass(frozen=True)
class ColumnWeights:
    """The weights of one kernel in the columns, on the device.

    Attributes
    ----------
    kernel : int
        Its number in the stack.
    by_column : tensor of shape (B, 1)
        Its weight in every column.
    columns : tensor of int, or slice
        The columns that are multiplied with it: those in which it has a weight, or all.
    in_columns : tensor of shape (at most B, 1)
        Its weight in these columns.
    is_gathered : bool
        Whether `columns` leaves some out.
    """

    kernel: int
    by_column: Any
    columns: Any
    in_columns: Any
    is_gathered: bool


class CombinedColumns:
    """The combined kernels K_b = Σ_m η_bm K_m of all columns.

    No operation waits for the device.

    Parameters
    ----------
    kernels : ColumnKernels
        The matrices.
    eta : ndarray of shape (B, P)
        The weights, which are sent to the device once.
    half : bool
        Whether products are those of the matrices in half precision, which must be kept.
    """

    def __init__(self, kernels: ColumnKernels, eta: Array, half: bool = False) -> None:
        self.kernels = kernels
        self.dtype = kernels.stack.dtype
        self.half = half
        weights = kernels.backend.asarray(eta, self.dtype)
        # Kernels without a weight in any column are left out.
        self.parts = [
            self._part(m, weights[:, m : m + 1], np.flatnonzero(eta[:, m]))
            for m in np.flatnonzero(eta.any(axis=0)).tolist()
        ]

    def _part(self, kernel: int, by_column: Any, weighted: Indices) -> ColumnWeights:
        """Return the weights of one kernel, and the columns that are multiplied with it.

        Parameters
        ----------
        kernel : int
        by_column : tensor of shape (B, 1)
            Its weights.
        weighted : ndarray of int
            The columns in which its weight is not zero.
        """
        is_large = self.kernels.n_samples >= self.kernels.large
        if not is_large or len(weighted) > MAX_GATHERED_FRACTION * len(by_column):
            return ColumnWeights(kernel, by_column, slice(None), by_column, is_gathered=False)
        columns = self.kernels.backend.index(weighted)
        return ColumnWeights(kernel, by_column, columns, by_column[columns], is_gathered=True)

    def products(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_b β_b of every column, (B, n), in double precision.

        The products are computed in the precision of the stack, or in half precision.
        """
        kernels = self.kernels
        backend = kernels.backend
        rounded = backend.astype(beta, self.dtype)
        halves = HalfRows.of(rounded) if self.half else None
        total = backend.zeros(beta.shape, self.dtype)
        for part in self.parts:
            columns = part.columns
            weights = part.in_columns
            if halves is not None:
                product = kernels.halves[part.kernel].times(halves.rows(columns))
                total[columns] += weights * product
            elif part.is_gathered:
                total[columns] += (weights * rounded[columns]) @ kernels.matrices[part.kernel]
            else:
                # A product and the sum in one pass.
                total.addmm_(weights * rounded, kernels.matrices[part.kernel])
            kernels.n_products += len(weights)
        return backend.astype(total, np.float64)

    def blocks(self, rows: RowIndex) -> ArrayOrTensor:
        """Return K_b between the samples of every column, (B, q, q), in double precision.

        Parameters
        ----------
        rows : tensor of int of shape (B, q)
            The samples of each column.
        """
        kernels = self.kernels
        B, q = rows.shape
        blocks = kernels.backend.zeros((B, q, q), self.dtype)
        # Places of the entries in the matrix that is read row after row.
        places = rows[:, :, None] * kernels.n_samples + rows[:, None, :]
        for part in self.parts:
            weights = part.by_column[:, :, None]
            # The entries get no name, so that they are released before the next ones are taken.
            blocks.addcmul_(kernels.matrices[part.kernel].take(places), weights)
        return kernels.backend.astype(blocks, np.float64)


# Linear systems of all columns --------------------------------------------------------------------


def solve_blocks(
    A: ArrayOrTensor, right: ArrayOrTensor, width: int = PANEL_COLUMNS
) -> ArrayOrTensor:
    """Return A_b⁻¹ right_b of every column b, by Cholesky factorisations panel by panel.

    A device factorises the large matrices of a batch one after the other. In panels of a few
    hundred columns, all of them advance together.

    Parameters
    ----------
    A : tensor of shape (B, n, n)
        Symmetric positive definite matrices, which are overwritten.
    right : tensor of shape (B, n, k)
        Right-hand sides.
    width : int
        Columns of a panel.
    """
    xp = backend_of(A).xp
    n = A.shape[1]
    x = right.clone()
    panels = [slice(first, min(first + width, n)) for first in range(0, n, width)]

    # 1. The factorisation A = LLᵀ, and x = L⁻¹ right along with it. L_kk⁻¹ of each panel is kept;
    #    the rest of L stands below the diagonal of A.
    corner_inverses = []
    for panel in panels:
        below = slice(panel.stop, n)
        corner = xp.linalg.cholesky_ex(A[:, panel, panel])[0]
        identity = xp.eye(panel.stop - panel.start, dtype=A.dtype, device=A.device)
        corner_inverse = xp.linalg.solve_triangular(corner, identity.expand_as(corner), upper=False)
        corner_inverses.append(corner_inverse)
        x[:, panel] = corner_inverse @ x[:, panel]
        if panel.stop < n:
            L = A[:, below, panel] @ corner_inverse.transpose(1, 2)
            A[:, below, panel] = L
            A[:, below, below].baddbmm_(L, L.transpose(1, 2), alpha=-1.0)
            x[:, below] -= L @ x[:, panel]

    # 2. L⁻ᵀ x, from the last panel to the first.
    for panel, corner_inverse in zip(panels[::-1], corner_inverses[::-1], strict=True):
        if panel.stop < n:
            L = A[:, panel.stop :, panel]
            x[:, panel] -= L.transpose(1, 2) @ x[:, panel.stop :]
        x[:, panel] = corner_inverse.transpose(1, 2) @ x[:, panel]
    return x
