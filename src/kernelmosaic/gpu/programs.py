"""Many programs of the same samples solved side by side on a device, by alternating directions.

The programs differ in their bounds, targets and kernels: folds, of which the samples held out have
bounds of zero, values of C, classes. A step splits β into x, which meets the sum, and z, which
meets the box: x by one product with the kernels and one with a matrix that all columns share, (K̄ +
ρ)⁻¹ with K̄ about as large as every kernel; z sample by sample. No step waits for the device, and a
product reads a matrix once for all columns.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from kernelmosaic._typing import Array, ArrayOrTensor, RowIndex
from kernelmosaic.backend import Backend, TorchBackend, backend_of
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.solvers.program import VECTORS, Program

# Kernels with columns of coefficients side by side, each with weights of its own ------------------


@dataclass(frozen=True)
class HalfRows:
    """Rows in half precision, each over its size, and in single precision.

    The entries are padded by zeros to a multiple of eight, as the units of a device that multiply
    halves read them.
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

    def multiply(self, rows: Any) -> Any:
        """Return the product with every row, (B, n), in double precision."""
        return (rows.to(self.entries.dtype) @ self.entries).double()


@dataclass(frozen=True)
class HalfMatrix:
    """A symmetric matrix in half precision over its largest entry, and its diagonal in single
    precision.

    A product errs by 3e-4 of its size and takes a fifth of the time, so that it serves where the
    next products make up for the error. The diagonal is apart because like entries are rounded
    alike: the error of the others averages out.
    """

    entries: Any
    size: Any
    diagonal: Any
    backend: TorchBackend

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
    """Products of K_b = Σ_m η_bm K_m with a β_b of its own, for all b at once; arrays have one row
    per b.

    One pass over a matrix serves all columns: a few times as many cost no more than one.

    Parameters
    ----------
    stack : MatrixStack
        The matrices, on a device.
    half : bool, optional
        Whether to keep them in half precision, too; where that is faster and there is memory,
        unless given.

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

    def __init__(self, stack: MatrixStack, half: bool | None = None) -> None:
        self.stack, self.matrices, self.backend = (
            stack,
            stack.matrices,
            cast(TorchBackend, stack.backend),
        )
        self.n_kernels, self.n_samples = stack.n_kernels, stack.n_samples
        self.n_products = 0
        if half is None:
            # Beside the halves, five matrices in single precision while one is inverted.
            room = self.backend.free_bytes() >= (2.0 * self.n_kernels + 20.0) * self.n_samples**2
            half = self.backend.multiplies_halves and stack.dtype == np.float32 and room
        self.halves = [HalfMatrix.of(K, self.backend) for K in self.matrices] if half else []

    def each(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_m β_b of every kernel in double precision, (P, B, n), from products in that of
        the entries."""
        own = self.backend.astype(beta, self.stack.dtype)
        self.n_products += self.n_kernels * len(beta)
        return self.backend.xp.stack(
            [self.backend.astype(own @ K, np.float64) for K in self.matrices]
        )

    def exact(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return what `each` does from entries in double precision."""
        self.n_products += self.n_kernels * len(beta)
        return self.stack.exact_placed_products(beta.T).transpose(1, 2)

    def inverse(self, weights: Array, ridge: float) -> SingleMatrix | HalfMatrix:
        """Return (Σ_m weights_m K_m + ridge)⁻¹ as exact as rounding leaves it.

        It is in half precision if halves are kept and the largest eigenvalue is at most `steepest`
        times the ridge: beyond that, what half precision rounds counts for more than the ridge.
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
        return HalfMatrix.of(
            backend.half_product(root.T, root)[: self.n_samples, : self.n_samples] * size**2,
            backend,
        )

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
        The weights, which are sent to the device once.
    half : bool
        Whether products are those of the matrices in half precision, which must be kept.
    """

    def __init__(self, kernels: ColumnKernels, eta: Array, half: bool = False) -> None:
        self.kernels, self.dtype, self.half = kernels, kernels.stack.dtype, half
        weights = kernels.backend.asarray(eta, self.dtype)
        # Every kernel that has a weight in some column, with its weights in all of them: to read a
        # matrix takes longer than to multiply it with a few columns more.
        self.parts = [(m, weights[:, m : m + 1]) for m in np.flatnonzero(eta.any(axis=0)).tolist()]
        # Of large matrices, the columns in which a kernel has a weight, if they are at most three
        # quarters of them.
        self.rows: dict[int, Any] = {}
        for m, own in self.parts:
            rows = np.flatnonzero(eta[:, m])
            if kernels.n_samples >= kernels.large and len(rows) <= 0.75 * len(eta):
                chosen = kernels.backend.index(rows)
                self.rows[m] = chosen, own[chosen]

    def products(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return K_b β_b in double precision, (B, n), from products in that of the entries, or in
        half precision."""
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
        """Return K_b between samples of its own, (B, q, q), in double precision; `rows` has the
        shape (B, q)."""
        kernels, (B, q) = self.kernels, rows.shape
        out = kernels.backend.zeros((B, q, q), self.dtype)
        entries = rows[:, :, None] * kernels.n_samples + rows[:, None, :]
        for m, weights in self.parts:
            out.addcmul_(kernels.matrices[m].take(entries), weights[:, :, None])
        return kernels.backend.astype(out, np.float64)


def solve_blocks(A: ArrayOrTensor, right: ArrayOrTensor, width: int = 256) -> ArrayOrTensor:
    """Return A_b⁻¹ right_b of symmetric positive definite tensors, (B, n, n) and (B, n, k); A is
    overwritten.

    A device factorises large matrices of a batch one by one: by panels of a few hundred columns all
    advance together.
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


# Programs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProgramBatch(Program):
    """Programs side by side: the vectors of `Program` have one row per program, and sums are taken
    row by row.

    Attributes
    ----------
    has_ridge : bool
        Whether a sample has a ridge: to look would wait for the device.
    """

    has_ridge: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_ridge_everywhere", False)

    @classmethod
    def of(cls, programs: list[Program], backend: Backend) -> Self:
        """Return programs that share `epsilon` and `total`, where a backend keeps them."""
        vectors = {
            name: backend.asarray(np.stack([getattr(p, name) for p in programs]))
            for name in VECTORS
        }
        ridged = any(p.has_ridge for p in programs)
        return cls(
            **vectors, epsilon=programs[0].epsilon, total=programs[0].total, has_ridge=ridged
        )

    def rows(self, which: RowIndex) -> ProgramBatch:
        """Return some of the programs."""
        return self.mapped(lambda vector: vector[which])

    def _loss(
        self, u: ArrayOrTensor, residual: ArrayOrTensor, intercept: ArrayOrTensor
    ) -> ArrayOrTensor:
        return super()._loss(u, residual, intercept[:, 0])

    def intercepts(self, z: ArrayOrTensor, passes: int = 12, candidates: int = 8) -> ArrayOrTensor:
        """Return about the best intercept of every program, (B, 1), for z = t − Kβ: where Σu is the
        total.

        The sum falls with the intercept: each pass looks at many candidates at once, and keeps the
        two between which it crosses.
        """
        xp = backend_of(z).xp
        if self.total is None:
            return xp.zeros_like(z[:, :1])
        counted = self.upper > self.lower
        low = xp.where(counted, z, np.inf).amin(1, keepdim=True) - self.epsilon
        high = xp.where(counted, z, -np.inf).amax(1, keepdim=True) + self.epsilon
        room = 1e-6 * (abs(low) + abs(high)) + 1e-12
        low, high = low - room, high + room
        shares = xp.linspace(0.0, 1.0, candidates, dtype=z.dtype, device=z.device)
        each = self.mapped(lambda vector: vector[:, None])
        for _ in range(passes):
            b = low + shares * (high - low)
            above = each.conjugate_argmax(z[:, None] - b[:, :, None]).sum(2) > self.total
            at = above.sum(1, keepdim=True).clip(1, candidates - 1)
            low, high = b.gather(1, at - 1), b.gather(1, at)
        return 0.5 * (low + high)

    def nearest(self, beta: ArrayOrTensor) -> ArrayOrTensor:
        """Return the points of the feasible sets nearest to the rows of beta."""
        xp = backend_of(beta).xp
        near = replace(self, target=beta, ridge=xp.ones_like(beta), epsilon=0.0, has_ridge=True)
        found = near.conjugate_argmax(beta - near.intercepts(beta))
        if self.total is None:
            return found
        inside = (found > self.lower) & (found < self.upper)
        missed = (self.total - found.sum(1, keepdim=True)) / inside.sum(1, keepdim=True).clip(1)
        return xp.clip(xp.where(inside, found + missed, found), self.lower, self.upper)


@dataclass
class Columns:
    """Arrays with one row per problem of a batch, called a column; those `by_kernel` have one such
    array per kernel."""

    by_kernel: ClassVar[tuple[str, ...]] = ()

    def rows(self, which: RowIndex) -> Self:
        """Return some of the columns."""
        return type(self)(*(getattr(self, name)[self._at(name, which)] for name in self._names()))

    def store(self, which: RowIndex, some: Self) -> None:
        """Put columns that `rows` returned in their place."""
        for name in self._names():
            getattr(self, name)[self._at(name, which)] = getattr(some, name)

    def where(self, take: Any, other: Self) -> Self:
        """Return these columns where a mask, (B,), is true, and others elsewhere."""

        def chosen(name: str) -> Any:
            mine = getattr(self, name)
            mask = take.reshape(-1, *[1] * (mine.ndim - 1 - (name in self.by_kernel)))
            return backend_of(mine).xp.where(mask, mine, getattr(other, name))

        return type(self)(*map(chosen, self._names()))

    def _names(self) -> list[str]:
        return [one.name for one in fields(self)]

    def _at(self, name: str, which: RowIndex) -> Any:
        return (slice(None), which) if name in self.by_kernel else which


@dataclass
class BatchState(Columns):
    """Where the columns stand.

    Attributes
    ----------
    x, z : array of shape (B, n)
        The coefficients that meet the sum, and those that meet the box.
    y : array of shape (B, n)
        The multipliers of x = z: at the solution t − Kβ − b where β is at a bound, and 0 elsewhere.
    base, base_values : array of shape (B, n) and (P, B, n)
        Coefficients whose products with every kernel are known well; those of others are found by
        their difference.
    """

    x: Any
    z: Any
    y: Any
    base: Any
    base_values: Any
    by_kernel = ("base_values",)

    @classmethod
    def at(cls, base: Any, base_values: Any) -> BatchState:
        """Return the state at coefficients whose products are known."""
        return cls(
            base.clone(), base.clone(), base.new_zeros(base.shape), base.clone(), base_values
        )


@dataclass(frozen=True)
class SharedInverse:
    """M = (K̄ + ρ)⁻¹ with the product of M and the ones."""

    weights: Array
    rho: float
    M: SingleMatrix | HalfMatrix
    ones: Any

    @classmethod
    def of(cls, kernels: ColumnKernels, weights: Array, rho: float) -> SharedInverse:
        M = kernels.inverse(weights, rho)
        one = kernels.backend.asarray(np.ones((1, kernels.n_samples)), kernels.stack.dtype)
        return cls(weights, rho, M, M.multiply(one)[0])


def take_steps(
    kernels: ColumnKernels,
    program: ProgramBatch,
    state: BatchState,
    eta: Array,
    shared: SharedInverse,
    steps: int,
    half: bool = False,
) -> tuple[Any, Any]:
    """Take steps of all columns, and return the sizes of their last primal and dual residuals,
    relative, (B,).

    Parameters
    ----------
    kernels : ColumnKernels
        The kernels.
    program : ProgramBatch
        The programs.
    state : BatchState
        Where the columns stand; changed.
    eta : ndarray of shape (B, P)
        The weights of the kernels.
    shared : SharedInverse
        What all columns share.
    steps : int
        How many.
    half : bool
        Whether kernels multiply in half precision, if the shared matrix is in it: what is
        multiplied is how far coefficients are from those whose products are known well, so that the
        error vanishes with it.
    """
    xp, rho, M = kernels.backend.xp, shared.rho, shared.M
    combined = CombinedColumns(kernels, eta, half and isinstance(M, HalfMatrix))
    weights = kernels.backend.asarray(eta)
    known = xp.einsum("bm,mbn->bn", weights, state.base_values)
    constant = program.target - known
    x, z, y, before = state.x, state.z, state.y, state.z
    curvature = rho + program.ridge
    values = known
    for _ in range(steps):
        change = combined.products(x - state.base)
        right = constant - change + rho * (z - x) - y
        if (
            program.total is not None
        ):  # what is left of it in the end is an intercept, which would be rounded
            right = right - right.mean(1, keepdim=True)
        step = M.multiply(right)
        if program.total is not None:
            left = x.sum(1, keepdim=True) + step.sum(1, keepdim=True) - program.total
            step = step - left / shared.ones.sum() * shared.ones
        x = x + step
        ahead = 1.6 * x - 0.6 * z  # over-relaxed: a factor between 1 and 2
        v = rho * ahead + y
        before = z
        shrunk = (
            v if not program.epsilon else xp.sign(v) * xp.clip(abs(v) - program.epsilon, 0.0, None)
        )
        z = xp.clip(shrunk / curvature, program.lower, program.upper)
        y = v - rho * z
        values = known + change
    state.x, state.z, state.y = x, z, y
    size = xp.linalg.vector_norm
    primal = size(x - z, dim=1) / xp.maximum(size(x, dim=1), size(z, dim=1)).clip(1e-300)
    largest = xp.maximum(
        xp.maximum(size(values, dim=1), size(y, dim=1)), size(program.target, dim=1)
    )
    return primal, rho * size(z - before, dim=1) / largest.clip(1e-300)


def free_samples(program: ProgramBatch, beta: ArrayOrTensor) -> ArrayOrTensor:
    """Return which coefficients may move both ways, (B, n).

    Those at a bound are off it by the little that the nearest feasible point moves them all.
    """
    xp, lower, upper = backend_of(beta).xp, program.lower, program.upper
    near = xp.nan_to_num(1e-3 * (upper - lower), posinf=0.0)
    inside = (beta > lower + near) & (beta < upper - near)
    return inside & (beta != 0) if program.epsilon else inside


def solve_free_blocks(
    kernels: ColumnKernels,
    program: ProgramBatch,
    free: Any,
    right: Any,
    eta: Array,
    counts: Array,
    most: int,
) -> tuple[Any, Any, Any]:
    """Return (K_b + diag ρ)⁻¹ times right-hand sides among the free coefficients of every column.

    Parameters
    ----------
    free : array of shape (B, n)
        Which coefficients are free.
    right : array of shape (B, n, k)
        The right-hand sides.
    counts : ndarray of shape (B,)
        How many are free, in this process.
    most : int
        Of more free samples than this, so many, evenly spread, stand for all.

    Returns
    -------
    rows : array of shape (B, q)
        The samples, those that are free first.
    answer : array of shape (B, q, k)
        Zero where a sample is not free.
    share : ndarray of shape (B,)
        How many free samples each of them stands for.
    """
    backend, ridge = kernels.backend, cast(Any, program.ridge)
    xp = backend.xp
    number = np.minimum(counts, most)
    share = counts / np.maximum(number, 1)
    # Of too many free samples, those at equal distances in their order.
    stride, q = backend.asarray(share)[:, None], max(int(number.max()), 1)
    place = xp.cumsum(free.to(stride.dtype), 1) - 1.0
    chosen = free & (xp.floor(place / stride) != xp.floor((place - 1.0) / stride))
    rows = xp.argsort(chosen.to(xp.int8), dim=1, descending=True, stable=True)[:, :q]
    inside = chosen.gather(1, rows)
    A = CombinedColumns(kernels, eta).blocks(rows)
    A *= inside[:, :, None]
    A *= inside[:, None, :]
    diagonal = A.diagonal(dim1=1, dim2=2)
    jitter = 1e-6 * diagonal.sum(1, keepdim=True) / backend.asarray(np.maximum(number, 1))[:, None]
    diagonal += xp.where(inside, ridge.gather(1, rows) + jitter, 1.0)
    sides = xp.take_along_dim(right, rows[:, :, None], 1) * inside[:, :, None]
    return rows, solve_blocks(A, sides), share
