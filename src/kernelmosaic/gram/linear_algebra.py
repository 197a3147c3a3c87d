"""Linear systems in kernel matrices and in Newton matrices, wherever these are: factorised, or
iterated if large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kernelmosaic._typing import Array, ArrayOrTensor, DType, RowIndex
from kernelmosaic.backend import backend_of, one_blas_thread, row_strips
from kernelmosaic.gram.options import BLOCKS, BlockOptions

#: How many entries are multiplied at once in a higher precision than they are stored in.
_AT_ONCE = {"numpy": 2**20, "torch": 2**26}


def rounding(dtype: DType, n: int) -> float:
    """Return 2 ε √n: how far a sum over n samples is off by rounding, relative to the sizes summed.

    Independent errors add up to the root of their number.
    """
    return 2.0 * float(np.finfo(dtype).eps * np.sqrt(n))


def rounding_jitter(dtype: np.dtype[Any], diagonal: ArrayOrTensor) -> float:
    """Return what is added to a matrix's diagonal so that the rounding of entries in this precision
    does not matter."""
    share = max(1e-6 if dtype == np.float32 else 1e-10, rounding(dtype, len(diagonal)) / 2.0)
    return share * max(float(diagonal.mean()), 1e-300)


class Cholesky:
    """M + diag added = LLᵀ where M is: an array here, a tensor on its device.

    Where rounding leaves that indefinite, every entry of the diagonal grows by the same share of
    itself: by what rounding explains, then ten times as much, and so on.

    Parameters
    ----------
    M : array of shape (D, D)
        Symmetric and positive semi-definite up to rounding.
    added : array of shape (D,) or float
        What is added to its diagonal.
    most : float
        The largest share; with zero, only a matrix that is positive definite to machine precision
        is factorised.
    dtype : dtype, optional
        Of the arithmetic; by default that of M.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the largest share is not enough.
    """

    def __init__(self, M: Any, added: Any = 0.0, most: float = 1.0, dtype: DType = None) -> None:
        backend = self.backend = backend_of(M)
        dtype, xp, share = backend.dtype(M) if dtype is None else dtype, backend.xp, 0.0
        while share <= most:
            A = backend.copy(M, dtype)
            diagonal = backend.diagonal_view(A)
            diagonal += added
            if share:  # of an entry that is zero, of the mean
                diagonal += share * xp.clip(
                    diagonal, float(np.finfo(dtype).eps) * float(diagonal.mean()), None
                )
            self.factor: Any = backend.cholesky(A, overwrite=True)
            if self.factor is not None and bool(xp.isfinite(self.factor.diagonal()).all()):
                return
            share = max(10.0 * share, rounding(dtype, len(M)))
        raise np.linalg.LinAlgError(
            "The matrix is not positive definite to machine precision: raise the ridge."
        )

    @property
    def log_det(self) -> float:
        """The logarithm of the determinant."""
        return 2.0 * float(self.backend.xp.log(self.factor.diagonal()).sum())

    def solve(self, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return the inverse times one or more right-hand sides."""
        return self.backend.cho_solve(self.factor, right)

    def inverse(self) -> ArrayOrTensor:
        """Return the inverse."""
        return self.backend.cho_inverse(self.backend.copy(self.factor))

    def inverse_root(self) -> ArrayOrTensor:
        """Return L⁻¹."""
        return self.backend.invert_lower(self.factor)


def solve_block(
    A: ArrayOrTensor,
    ridge: ArrayOrTensor,
    right: ArrayOrTensor,
    options: BlockOptions | None = None,
) -> ArrayOrTensor:
    """Return roughly (A + diag ridge)⁻¹ times the right-hand sides, of shape (n, k); zeros where
    rounding forbids it.

    A is a symmetric positive semi-definite block of a kernel matrix, ridge and right are on the
    same device.
    """
    backend = backend_of(A)
    options = options or BLOCKS[backend.name]
    # A kernel's entries are no larger than its diagonal's, and their squares must be numbers, too.
    largest = max(float(A.diagonal().max()) + float(ridge.max()), float(abs(right).max()))
    dtype = options.dtype if largest < float(np.finfo(options.dtype).max) ** 0.5 else np.float64
    ridge, sides = backend.astype(ridge, dtype), backend.astype(right, dtype)
    if options.jitter is None:
        jitter = rounding_jitter(backend.dtype(A), A.diagonal() + ridge)
    else:
        jitter = options.jitter * (float(A.diagonal().mean()) + float(ridge.mean()))
    # A device has room for a larger factorisation, once a solve: the block, its factor, and working
    # memory.
    has_room = (
        backend.name == "torch" and len(A) <= 36_000 and 3 * 8 * len(A) ** 2 <= backend.free_bytes()
    )
    # Blocks this small gain little by a second thread, and lose much where the cores are busy.
    with one_blas_thread():
        if len(A) > options.factorised and not has_room:
            added = ridge + jitter
            diagonal = (backend.astype(A.diagonal(), dtype) + added)[:, None]
            times = lambda p: multiply(A, p) + added[:, None] * p  # noqa: E731
            return conjugate_gradients(times, lambda r: r / diagonal, sides, options)
        try:
            return Cholesky(
                A, ridge + jitter, 0.0 if backend.name == "numpy" else 0.01, dtype
            ).solve(sides)
        except np.linalg.LinAlgError:
            return backend.zeros(right.shape)


def conjugate_gradients(
    times: Callable[[Any], Any],
    near: Callable[[Any], Any],
    right: ArrayOrTensor,
    options: BlockOptions,
    sums: bool = False,
) -> ArrayOrTensor:
    """Return x with A x = right, of all columns at once, each with step sizes of its own.

    Parameters
    ----------
    times : callable
        Multiplies A with columns.
    near : callable
        Multiplies a symmetric matrix near A⁻¹ with columns. It may return a stack, of which the
        first matrix is this product and the others are linear in the columns, too: `times` then
        reads such stacks, and x is one.
    right : array of shape (n, k) or (n,)
        The right-hand sides.
    options : BlockOptions
        How many steps to take, and to what precision.
    sums : bool
        Whether to stay among the x that sum to zero, where the solution minimises ½xᵀAx − ⟨right,
        x⟩.
    """
    xp = backend_of(right).xp
    ones = near(xp.ones_like(right[:, :1])) if sums else None

    def within(r: Any) -> Any:
        """Return a residual less its multiplier, which x cannot change; else it grows, and rounding
        with it."""
        return r if ones is None else r - (ones * r).sum(0) / ones.sum()

    def inner(p: Any, r: Any) -> Any:
        return (p.reshape(-1, *r.shape)[0] * r).sum(0)

    def ratio(a: Any, b: Any) -> Any:
        """Return a / b; zero in columns that are solved, or that rounding leaves nothing of."""
        return xp.where(b > 0, a / xp.where(b > 0, b, 1.0), 0.0)

    r = within(right)
    p = near(r)
    x, size = xp.zeros_like(p), xp.clip(inner(p, r), 0.0, None)
    goal = options.cg_tol**2 * size
    for _ in range(options.cg_steps):
        Ap = times(p)
        step = ratio(size, inner(p, Ap))
        x, r = x + step * p, within(r - step * Ap)
        z = near(r)
        before, size = size, xp.clip(inner(z, r), 0.0, None)
        if bool((size <= goal).all()):
            break
        p = z + ratio(size, before) * p
    return x


def solve_to_residual(
    times: Callable[[Array], Array],
    near: Callable[[Array], Array],
    right: Array,
    options: BlockOptions,
    goal: float,
    *,
    start: Array | None = None,
    rounds: int = 1,
) -> tuple[Array, Array]:
    """Return x of sum zero with A x = right up to a constant, and its relative residuals as they
    are.

    Conjugate gradients update their residual step by step, and rounding parts it from that of x.
    Here it is computed from x after every round, and the next round solves for what is left.

    Parameters
    ----------
    times, near : callable
        Multiply A, and a symmetric matrix near A⁻¹, with columns.
    right : ndarray of shape (n, k)
        The right-hand sides.
    options : BlockOptions
        Most steps of a round, and to what precision.
    goal : float
        Relative residual, in the Euclidean norm, at which the rounds end.
    start : ndarray of shape (n, k), optional
        Where to start; by default at zero.
    rounds : int
        Most rounds.

    Returns
    -------
    solution : ndarray of shape (n, k)
        Of every column the x with the least residual, that of zero included.
    residuals : ndarray of shape (k,)
        ‖right − A x − constant‖ / ‖right − constant‖.
    """
    centred = right - right.mean(axis=0)
    sizes = np.linalg.norm(centred, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    solution, left = np.zeros(right.shape), centred
    residuals = np.linalg.norm(left, axis=0) / sizes
    if start is not None:
        solution, left, residuals = _better(times, centred, sizes, start, solution, left, residuals)
    for _ in range(rounds):
        if np.all(residuals <= goal):
            break
        trial = solution + np.asarray(conjugate_gradients(times, near, left, options, sums=True))
        before = residuals
        solution, left, residuals = _better(times, centred, sizes, trial, solution, left, residuals)
        if not np.any(residuals < before):
            break
    return solution, residuals


def _better(
    times: Callable[[Array], Array],
    right: Array,
    sizes: Array,
    trial: Array,
    solution: Array,
    left: Array,
    residuals: Array,
) -> tuple[Array, Array, Array]:
    """Return of every column the solution with the smaller residual, what it leaves, and the
    relative residuals."""
    left_by_trial = right - times(trial)
    left_by_trial -= left_by_trial.mean(axis=0)
    trial_residuals = np.linalg.norm(left_by_trial, axis=0) / sizes
    better = trial_residuals < residuals
    return (
        np.where(better, trial, solution),
        np.where(better, left_by_trial, left),
        np.where(better, trial_residuals, residuals),
    )


class NystromInverse:
    """Roughly (K + D)⁻¹ of a diagonal D, from the products of K with random columns.

    D^-½ K D^-½ is near U diag(λ) Uᵀ with its r leading eigenvectors. Between the others its
    eigenvalues count as λ_r: where these fall below one, the ridge, conjugate gradients end after a
    few steps.

    Parameters
    ----------
    products : callable
        Multiplies K with columns.
    ridge : ndarray of shape (n,)
        The diagonal of D, positive.
    rank : int
        r, at most n.

    References
    ----------
    Frangella, Tropp and Udell (2023), "Randomized Nyström preconditioning".
    """

    def __init__(self, products: Callable[[Array], Array], ridge: Array, rank: int) -> None:
        n = len(ridge)
        self.root = 1.0 / np.sqrt(ridge)[:, np.newaxis]
        columns = np.linalg.qr(np.random.RandomState(0).normal(size=(n, rank)))[0]
        image = self.root * products(self.root * columns)
        # K is known up to rounding: a multiple of the identity keeps it positive, and is taken off
        # again.
        shift = rounding(image.dtype, n) * float(np.linalg.norm(image))
        image += shift * columns
        inner = columns.T @ image
        factor = Cholesky(0.5 * (inner + inner.T))
        half = solve_triangular(factor.factor, image.T, lower=True).T
        basis, triangle = np.linalg.qr(half)
        rotation, roots, _ = np.linalg.svd(triangle)
        self.vectors = basis @ rotation
        eigenvalues = np.maximum(roots**2 - shift, 0.0)
        self.outside = 1.0 / (eigenvalues[-1] + 1.0)
        self.inside = 1.0 / (eigenvalues + 1.0)

    def __call__(self, right: Array) -> Array:
        """Return the product with columns."""
        scaled = self.root * right
        coordinates = (self.inside - self.outside)[:, np.newaxis] * (self.vectors.T @ scaled)
        return np.asarray(self.root * (self.outside * scaled + self.vectors @ coordinates))


def keep_sum(x: ArrayOrTensor, ones: ArrayOrTensor) -> ArrayOrTensor:
    """Return solutions x = A⁻¹r less the multiples of A⁻¹1, given as `ones`, with which their last
    axes sum to zero."""
    return x - _share_of_sum(x.sum(-1), ones)[..., None] * ones


def free_curvature(
    V: ArrayOrTensor, answer: ArrayOrTensor, ones: ArrayOrTensor | None = None
) -> ArrayOrTensor:
    """Return VᵀA⁻¹V of columns V with A⁻¹V as `answer`; less what keeping the sum takes off where
    A⁻¹1 is given.

    The first axes of the arrays, if there are more than two, are problems side by side.
    """
    H = V.swapaxes(-1, -2) @ answer
    if ones is None:
        return H
    shift = (V * ones[..., None]).sum(-2)
    return H - shift[..., :, None] * _share_of_sum(shift, ones[..., None, :])[..., None, :]


def _share_of_sum(x: ArrayOrTensor, ones: ArrayOrTensor) -> ArrayOrTensor:
    """Return x over the sum of the ones; zero where rounding leaves nothing of it."""
    xp, total = backend_of(x).xp, ones.sum(-1)
    return xp.where(total > 0, x / xp.where(total > 0, total, 1.0), 0.0)


def multiply(A: ArrayOrTensor, x: ArrayOrTensor) -> ArrayOrTensor:
    """Return A x in the precision of x, a few rows of A at a time where that is another one."""
    backend = backend_of(A)
    dtype = backend.dtype(x)
    if backend.dtype(A) == dtype:
        return A @ x
    strips = row_strips(len(A), _AT_ONCE[backend.name] // A.shape[1])
    return backend.xp.concatenate([backend.astype(A[strip], dtype) @ x for strip in strips])


def multiply_rows(K: ArrayOrTensor, rows: RowIndex, coefficients: ArrayOrTensor) -> ArrayOrTensor:
    """Return K[:, rows] coefficients of a symmetric K, entries as they are stored, summed in double
    precision.

    `rows` are row numbers in the form the backend indexes with, `coefficients` have one column or
    several.
    """
    backend, n = backend_of(K), K.shape[0]
    height, out = _AT_ONCE[backend.name] // n, backend.zeros((n, *coefficients.shape[1:]))
    with np.errstate(invalid="ignore"):  # infinity less infinity: the caller refuses the result
        if 2 * len(rows) > n:  # whole rows in order are faster than most of them picked out
            full = backend.zeros((n, *coefficients.shape[1:]))
            full[rows] = coefficients
            for strip in row_strips(n, height):
                out[strip] = backend.astype(K[strip], np.float64) @ full
            return out
        for strip in row_strips(len(rows), height):
            out += backend.astype(K[rows[strip]], np.float64).T @ coefficients[strip]
    return out


def nonzero_rows(V: ArrayOrTensor) -> ArrayOrTensor:
    """Return which rows of a vector, or of a matrix, are not zero, as row numbers of the
    backend."""
    return backend_of(V).nonzero(V if V.ndim == 1 else (V != 0).any(1))
