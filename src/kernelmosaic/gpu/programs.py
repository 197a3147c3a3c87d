"""Many programs of the same samples side by side on a device: alternating directions (ADMM).

The mathematics is in the docstring of `kernelmosaic.gpu`. The programs, called columns, differ in
their bounds, targets and combined kernels; arrays have one row per column. One step serves all
columns, and none of its operations waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from kernelmosaic._typing import Array, ArrayOrTensor, RowIndex
from kernelmosaic.backend import Backend, backend_of
from kernelmosaic.gpu.products import (
    ColumnKernels,
    CombinedColumns,
    HalfMatrix,
    SingleMatrix,
    solve_blocks,
)
from kernelmosaic.gpu.tuning import (
    FREE_JITTER,
    INTERCEPT_CANDIDATES,
    INTERCEPT_MARGIN,
    INTERCEPT_PASSES,
    LEAST_INTERCEPT_MARGIN,
    LEAST_SIZE,
    NEAR_BOUND,
    RELAXED_X,
    RELAXED_Z,
)
from kernelmosaic.solvers.program import VECTORS, Program


@dataclass(frozen=True)
class ProgramBatch(Program):
    """Programs side by side: a `Program` whose vectors have one row per column.

    Its methods return one number per column where those of `Program` return one number. All columns
    share `epsilon` and `total`.

    Attributes
    ----------
    has_ridge : bool
        Whether any sample of any column has a ridge. It is an argument, because finding out would
        wait for the device.
    """

    has_ridge: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_ridge_everywhere", False)

    @classmethod
    def of(cls, programs: list[Program], backend: Backend) -> Self:
        """Return programs that share `epsilon` and `total` as one batch, on a device."""
        vectors = {
            name: backend.asarray(np.stack([getattr(program, name) for program in programs]))
            for name in VECTORS
        }
        has_ridge = any(program.has_ridge for program in programs)
        epsilon = programs[0].epsilon
        return cls(**vectors, epsilon=epsilon, total=programs[0].total, has_ridge=has_ridge)

    def rows(self, columns: RowIndex) -> ProgramBatch:
        """Return a selection of the columns."""
        return self.mapped(lambda vector: vector[columns])

    def _loss(
        self, u: ArrayOrTensor, residual: ArrayOrTensor, intercept: ArrayOrTensor
    ) -> ArrayOrTensor:
        return super()._loss(u, residual, intercept[:, 0])

    def intercepts(
        self,
        z: ArrayOrTensor,
        passes: int = INTERCEPT_PASSES,
        candidates: int = INTERCEPT_CANDIDATES,
    ) -> ArrayOrTensor:
        """Return about the best intercept b of every column, (B, 1), for z = t − Kβ.

        It is where the sum S(b) = Σ uᵢ(zᵢ − b) of `optimal_intercepts` is the total. S never rises
        with b, so that each pass evaluates S at evenly spaced candidates of all columns at once and
        keeps the two between which it passes the total. The host sorts the knots of S instead; a
        device would do so column by column.

        Parameters
        ----------
        z : array of shape (B, n)
        passes, candidates : int
            How many passes, and how many candidates in each.
        """
        xp = backend_of(z).xp
        if self.total is None:
            return xp.zeros_like(z[:, :1])
        # Held-out samples have no box, and do not bound the intercept.
        counted = self.upper > self.lower
        low = xp.where(counted, z, np.inf).amin(1, keepdim=True) - self.epsilon
        high = xp.where(counted, z, -np.inf).amax(1, keepdim=True) + self.epsilon
        margin = INTERCEPT_MARGIN * (abs(low) + abs(high)) + LEAST_INTERCEPT_MARGIN
        low = low - margin
        high = high + margin
        fractions = xp.linspace(0.0, 1.0, candidates, dtype=z.dtype, device=z.device)
        # Vectors of shape (B, 1, n) beside candidates of shape (B, candidates, 1).
        broadcast = self.mapped(lambda vector: vector[:, None])
        for _ in range(passes):
            b = low + fractions * (high - low)
            # S(b); the array of all uᵢ, (B, candidates, n), gets no name, so that it is released.
            S = broadcast.conjugate_argmax(z[:, None] - b[:, :, None]).sum(2)
            crossing = (S > self.total).sum(1, keepdim=True).clip(1, candidates - 1)
            low = b.gather(1, crossing - 1)
            high = b.gather(1, crossing)
        return 0.5 * (low + high)

    def nearest(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return the feasible points nearest to the rows of beta, (B, n).

        Such a point maximises ⟨β, u⟩ − ½‖u‖² over the box and the sum: another program of this
        kind, with the multiplier of the sum as its intercept.
        """
        xp = backend_of(beta).xp
        projection = replace(
            self, target=beta, ridge=xp.ones_like(beta), epsilon=0.0, has_ridge=True
        )
        nearest = projection.conjugate_argmax(beta - projection.intercepts(beta))
        if self.total is None:
            return nearest
        # What the intercept leaves of the sum is spread over the coefficients inside their bounds.
        inside = (nearest > self.lower) & (nearest < self.upper)
        missing = (self.total - nearest.sum(1, keepdim=True)) / inside.sum(1, keepdim=True).clip(1)
        summed = xp.where(inside, nearest + missing, nearest)
        return xp.clip(summed, self.lower, self.upper)


# Arrays with one row per column -------------------------------------------------------------------


class Columns:
    """A dataclass of arrays with one row per column of a batch.

    Arrays of a frozen dataclass are overwritten in place by `store` alone: copies of the products
    with every kernel would take twice the memory.

    Attributes
    ----------
    by_kernel : tuple of str
        Names of the arrays that have such an array for every kernel: their second axis is that of
        the columns.
    """

    by_kernel: ClassVar[tuple[str, ...]] = ()

    def rows(self, columns: RowIndex) -> Self:
        """Return copies of the rows of some columns."""
        return type(self)(
            *(getattr(self, name)[self._place(name, columns)] for name in self._names())
        )

    def store(self, columns: RowIndex, rows: Self) -> None:
        """Overwrite the rows of some columns, in place."""
        for name in self._names():
            getattr(self, name)[self._place(name, columns)] = getattr(rows, name)

    def where(self, mask: Any, other: Self) -> Self:
        """Return these rows where the mask, (B,), is true, and those of another elsewhere."""
        chosen = []
        for name in self._names():
            array = getattr(self, name)
            n_axes_after = array.ndim - 1
            if name in self.by_kernel:
                n_axes_after -= 1
            broadcast = mask.reshape(-1, *[1] * n_axes_after)
            chosen.append(backend_of(array).xp.where(broadcast, array, getattr(other, name)))
        return type(self)(*chosen)

    def _names(self) -> list[str]:
        return [field.name for field in fields(cast(Any, self))]

    def _place(self, name: str, columns: RowIndex) -> Any:
        """Return the index of some columns in an array."""
        if name in self.by_kernel:
            return slice(None), columns
        return columns


@dataclass(frozen=True)
class Iterate(Columns):
    """The coefficients and multipliers of all columns between two steps.

    Attributes
    ----------
    x, z : array of shape (B, n)
        The coefficients β twice: x meets the constraint on the sum, z the box. They agree at the
        solution.
    y : array of shape (B, n)
        The multipliers of x = z: at the solution t − Kβ − b where β is at a bound, and 0 elsewhere.
    base : array of shape (B, n)
        Coefficients β⁰ whose products with every kernel are known. Outputs of others are computed
        from their difference to them, so that its rounding vanishes as the steps converge.
    base_products : array of shape (P, B, n)
        K_m β⁰.
    """

    x: Any
    z: Any
    y: Any
    base: Any
    base_products: Any
    by_kernel = ("base_products",)

    @classmethod
    def at(cls, beta: Any, products: Any, y: Any = None) -> Iterate:
        """Return the iterate at coefficients β with their products K_m β.

        The multipliers are zero unless they are given.
        """
        if y is None:
            y = beta.new_zeros(beta.shape)
        return cls(beta.clone(), beta.clone(), y, beta.clone(), products)


# Steps of alternating directions ------------------------------------------------------------------


@dataclass(frozen=True)
class SharedInverse:
    """M = (K̄ + ρ)⁻¹, which all columns share in place of their own (K_b + ρ)⁻¹.

    Attributes
    ----------
    weights : ndarray of shape (P,)
        Weights of K̄ = Σ_m weights_m K_m.
    rho : float
        The penalty ρ of x ≠ z.
    M : SingleMatrix or HalfMatrix
    M_ones : tensor of shape (n,)
        M times the vector of ones.
    """

    weights: Array
    rho: float
    M: SingleMatrix | HalfMatrix
    M_ones: Any

    @classmethod
    def of(cls, kernels: ColumnKernels, weights: Array, rho: float) -> SharedInverse:
        """Return the inverse for the weights of K̄ and a penalty."""
        M = kernels.inverse(weights, rho)
        ones = kernels.backend.asarray(np.ones((1, kernels.n_samples)), kernels.stack.dtype)
        return cls(weights, rho, M, M.multiply(ones)[0])


@dataclass(frozen=True)
class Residuals:
    """How far columns are from their solutions, each as a tensor of shape (B,).

    Attributes
    ----------
    primal : tensor
        ‖x − z‖ relative to the larger of the two norms.
    dual : tensor
        ρ times the last change of z, relative to the largest of Kβ, y and t.
    """

    primal: Any
    dual: Any


def take_steps(
    kernels: ColumnKernels,
    program: ProgramBatch,
    iterate: Iterate,
    eta: Array,
    shared: SharedInverse,
    n_steps: int,
    half: bool = False,
) -> tuple[Iterate, Residuals]:
    """Return the iterate after steps of alternating directions, and its residuals.

    Parameters
    ----------
    kernels : ColumnKernels
    program : ProgramBatch
    iterate : Iterate
        Where the steps start.
    eta : ndarray of shape (B, P)
        The weights of the kernels.
    shared : SharedInverse
    n_steps : int
    half : bool
        Whether kernels multiply in half precision, if the shared inverse is in it, too. Only
        x − base is multiplied, so that the rounding vanishes with this difference.
    """
    xp = kernels.backend.xp
    rho = shared.rho
    M = shared.M
    has_sum = program.total is not None

    # 1. What no step changes: the weights are sent to the device here, before the first step.
    K = CombinedColumns(kernels, eta, half and isinstance(M, HalfMatrix))
    weights = kernels.backend.asarray(eta)
    base_values = xp.einsum("bm,mbn->bn", weights, iterate.base_products)
    base_residual = program.target - base_values
    curvature = rho + program.ridge

    # 2. Steps.
    x = iterate.x
    z = iterate.z
    y = iterate.y
    previous_z = z
    values = base_values
    for _ in range(n_steps):
        # x: one step of x ← x + M (t − Kx + ρ(z − x) − y), within the sum.
        change = K.products(x - iterate.base)
        right = base_residual - change + rho * (z - x) - y
        if has_sum:
            # A constant on the right-hand side, which becomes the intercept, changes no x of a
            # given sum. The rounding of a large one would.
            right = right - right.mean(1, keepdim=True)
        step = M.multiply(right)
        if has_sum:
            excess = x.sum(1, keepdim=True) + step.sum(1, keepdim=True) - program.total
            step = step - excess / shared.M_ones.sum() * shared.M_ones
        x = x + step
        # z: sample by sample, from an over-relaxed x.
        ahead = RELAXED_X * x - RELAXED_Z * z
        v = rho * ahead + y
        previous_z = z
        shrunk = v
        if program.epsilon:
            shrunk = xp.sign(v) * xp.clip(abs(v) - program.epsilon, 0.0, None)
        z = xp.clip(shrunk / curvature, program.lower, program.upper)
        # y: the part of v that z leaves.
        y = v - rho * z
        values = base_values + change

    # 3. Residuals, relative to the numbers that they are differences of.
    norm = xp.linalg.vector_norm
    largest_beta = xp.maximum(norm(x, dim=1), norm(z, dim=1))
    primal = norm(x - z, dim=1) / largest_beta.clip(LEAST_SIZE)
    largest_term = xp.maximum(norm(values, dim=1), norm(y, dim=1))
    largest_term = xp.maximum(largest_term, norm(program.target, dim=1))
    dual = rho * norm(z - previous_z, dim=1) / largest_term.clip(LEAST_SIZE)
    return replace(iterate, x=x, z=z, y=y), Residuals(primal, dual)


# Newton steps on the free coefficients ------------------------------------------------------------


def free_samples(program: ProgramBatch, beta: ArrayOrTensor) -> ArrayOrTensor:
    """Return which coefficients are free to move both ways, (B, n).

    A coefficient within `NEAR_BOUND` of a bound counts as at it: the nearest feasible point moves
    all coefficients by a little, those at their bounds, too.
    """
    xp = backend_of(beta).xp
    near = xp.nan_to_num(NEAR_BOUND * (program.upper - program.lower), posinf=0.0)
    inside = (beta > program.lower + near) & (beta < program.upper - near)
    if program.epsilon:
        return inside & (beta != 0)
    return inside


@dataclass(frozen=True)
class FreeSolution:
    """Solutions of linear systems among the free samples of every column.

    Attributes
    ----------
    rows : tensor of int of shape (B, q)
        The samples of each block, the free ones first.
    answer : tensor of shape (B, q, k)
        The solutions for k right-hand sides; zero where a sample is not free.
    samples_per_row : ndarray of shape (B,)
        How many free samples each row stands for: 1 where all of them are in the block.
    """

    rows: Any
    answer: Any
    samples_per_row: Array


def solve_free_blocks(
    kernels: ColumnKernels,
    program: ProgramBatch,
    free: Any,
    right: Any,
    eta: Array,
    n_free: Array,
    max_rows: int,
) -> FreeSolution:
    """Return (K_b + diag ρ)⁻¹ right_b, both restricted to the free samples of every column.

    Parameters
    ----------
    kernels : ColumnKernels
    program : ProgramBatch
    free : tensor of bool of shape (B, n)
        Which samples are free.
    right : tensor of shape (B, n, k)
        The right-hand sides.
    eta : ndarray of shape (B, P)
        The weights of the kernels.
    n_free : ndarray of shape (B,)
        How many samples are free, on the host.
    max_rows : int
        Most samples of a block. Of more free samples, so many at even distances stand for all.
    """
    backend = kernels.backend
    xp = backend.xp
    ridge = cast(Any, program.ridge)
    n_rows = np.minimum(n_free, max_rows)
    samples_per_row = n_free / np.maximum(n_rows, 1)

    # 1. The samples of the blocks: a free one is chosen where its rank among the free ones passes a
    #    multiple of `samples_per_row`.
    stride = backend.asarray(samples_per_row)[:, None]
    block_size = max(int(n_rows.max()), 1)
    rank = xp.cumsum(free.to(stride.dtype), 1) - 1.0
    chosen = free & (xp.floor(rank / stride) != xp.floor((rank - 1.0) / stride))
    order = xp.argsort(chosen.to(xp.int8), dim=1, descending=True, stable=True)
    rows = order[:, :block_size]
    in_block = chosen.gather(1, rows)

    # 2. The matrices: rows and columns of samples that are not free are those of the identity, so
    #    that all columns have blocks of one size.
    A = CombinedColumns(kernels, eta).blocks(rows)
    A *= in_block[:, :, None]
    A *= in_block[:, None, :]
    diagonal = A.diagonal(dim1=1, dim2=2)
    divisor = backend.asarray(np.maximum(n_rows, 1))[:, None]
    jitter = FREE_JITTER * diagonal.sum(1, keepdim=True) / divisor
    diagonal += xp.where(in_block, ridge.gather(1, rows) + jitter, 1.0)

    # 3. The solutions.
    sides = xp.take_along_dim(right, rows[:, :, None], 1) * in_block[:, :, None]
    return FreeSolution(rows, solve_blocks(A, sides), samples_per_row)
