"""Linear systems in kernel matrices and Newton matrices: factorised, or solved by iterations.

Matrices are arrays of NumPy or of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kernelmosaic._typing import Array, ArrayOrTensor, DType, RowIndex
from kernelmosaic.backend import Backend, backend_of, one_blas_thread, row_strips
from kernelmosaic.gram.options import BLOCKS, BlockOptions
from kernelmosaic.gram.tuning import (
    CONVERTED_ENTRIES,
    DEVICE_BLOCK_GROWTH,
    DEVICE_FACTOR_ARRAYS,
    DEVICE_FACTORISED,
    DOUBLE_JITTER,
    GROWTH_STEP,
    SINGLE_JITTER,
    SMALLEST_MEAN_DIAGONAL,
)


def rounding(dtype: DType, n: int) -> float:
    """Return 2 ε √n: the rounding error of a sum of n numbers, relative to their sizes.

    It holds for independent errors, which add up to the root of their number.
    """
    return 2.0 * float(np.finfo(dtype).eps * np.sqrt(n))


def rounding_jitter(dtype: np.dtype[Any], diagonal: ArrayOrTensor) -> float:
    """Return what is added to a diagonal so that entries rounded to `dtype` can be factorised."""
    least_share = SINGLE_JITTER if dtype == np.float32 else DOUBLE_JITTER
    share = max(least_share, rounding(dtype, len(diagonal)) / 2.0)
    return share * max(float(diagonal.mean()), SMALLEST_MEAN_DIAGONAL)


class Cholesky:
    """The factorisation M + diag added = LLᵀ, an array of NumPy or a tensor on the device of M.

    Where rounding leaves the matrix indefinite, every entry of the diagonal grows by the same
    fraction of itself: by what rounding explains, then ten times as much, and so on.

    Parameters
    ----------
    M : array of shape (D, D)
        Symmetric and positive semi-definite up to rounding.
    added : array of shape (D,) or float
        What is added to its diagonal.
    most : float
        The largest fraction. With zero, only a matrix that is positive definite to machine
        precision is factorised.
    dtype : dtype, optional
        The precision of the arithmetic; by default that of M.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the largest fraction is not enough.
    """

    def __init__(self, M: Any, added: Any = 0.0, most: float = 1.0, dtype: DType = None) -> None:
        backend = self.backend = backend_of(M)
        xp = backend.xp
        if dtype is None:
            dtype = backend.dtype(M)
        share = 0.0
        while share <= most:
            A = backend.copy(M, dtype)
            diagonal = backend.diagonal_view(A)
            diagonal += added
            if share:
                # An entry that is zero, or nearly so, grows by a fraction of the mean.
                least_entry = float(np.finfo(dtype).eps) * float(diagonal.mean())
                diagonal += share * xp.clip(diagonal, least_entry, None)
            self.factor: Any = backend.cholesky(A, overwrite=True)
            if self.factor is not None and bool(xp.isfinite(self.factor.diagonal()).all()):
                return
            share = max(GROWTH_STEP * share, rounding(dtype, len(M)))
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
    """Return roughly (A + diag ridge)⁻¹ right, of shape (n, k); zeros if rounding forbids it.

    Parameters
    ----------
    A : array of shape (n, n)
        A symmetric positive semi-definite block of a kernel matrix.
    ridge : array of shape (n,)
        Numbers that are added to its diagonal; on the same device.
    right : array of shape (n, k)
        The right-hand sides; on the same device.
    options : BlockOptions, optional
        How the system is solved; by default the options of the backend.
    """
    backend = backend_of(A)
    options = options or BLOCKS[backend.name]
    # Entries of a kernel are no larger than those of its diagonal. Their squares must be finite in
    # the precision of the arithmetic.
    largest_entry = float(A.diagonal().max()) + float(ridge.max())
    largest = max(largest_entry, float(abs(right).max()))
    dtype = options.dtype if largest < float(np.finfo(options.dtype).max) ** 0.5 else np.float64
    ridge, sides = backend.astype(ridge, dtype), backend.astype(right, dtype)
    if options.jitter is None:
        jitter = rounding_jitter(backend.dtype(A), A.diagonal() + ridge)
    else:
        jitter = options.jitter * (float(A.diagonal().mean()) + float(ridge.mean()))
    added = ridge + jitter
    # Small blocks gain little by a second thread, and lose much where other processes use the
    # cores.
    with one_blas_thread():
        if len(A) > options.factorised and not _device_factorises(backend, len(A)):
            diagonal = (backend.astype(A.diagonal(), dtype) + added)[:, None]

            def times(p: Any) -> Any:
                return multiply(A, p) + added[:, None] * p

            return conjugate_gradients(times, lambda r: r / diagonal, sides, options)
        growth = 0.0 if backend.name == "numpy" else DEVICE_BLOCK_GROWTH
        try:
            return Cholesky(A, added, growth, dtype).solve(sides)
        except np.linalg.LinAlgError:
            return backend.zeros(right.shape)


def _device_factorises(backend: Backend, n: int) -> bool:
    """Return whether a device has room to factorise a block of n samples."""
    if backend.name != "torch" or n > DEVICE_FACTORISED:
        return False
    return DEVICE_FACTOR_ARRAYS * 8 * n**2 <= backend.free_bytes()


def conjugate_gradients(
    times: Callable[[Any], Any],
    preconditioner: Callable[[Any], Any],
    right: ArrayOrTensor,
    options: BlockOptions,
    sums: bool = False,
) -> ArrayOrTensor:
    """Return x with A x = right by preconditioned conjugate gradients.

    All columns are solved at once, each with step sizes of its own.

    Parameters
    ----------
    times : callable
        Multiplies A by columns.
    preconditioner : callable
        Multiplies a symmetric matrix near A⁻¹ by columns. It may return a
        stack, of which the first matrix is this product and the others are linear in the columns,
        too. Then `times` takes such stacks, and x is one.
    right : array of shape (n, k) or (n,)
        The right-hand sides.
    options : BlockOptions
        How many steps to take, and to what precision.
    sums : bool
        Whether x is restricted to vectors of sum zero; it then minimises ½xᵀAx − ⟨right, x⟩ among
        them.
    """
    xp = backend_of(right).xp
    ones = preconditioner(xp.ones_like(right[:, :1])) if sums else None

    def projected(r: Any) -> Any:
        """Return a residual without the multiple of one that no x of sum zero can change.

        That multiple would grow from step to step, and rounding with it.
        """
        return r if ones is None else r - (ones * r).sum(0) / ones.sum()

    def inner(p: Any, r: Any) -> Any:
        """Return ⟨p, r⟩ of every column, p being the first matrix if it is a stack."""
        return (p.reshape(-1, *r.shape)[0] * r).sum(0)

    def ratio(a: Any, b: Any) -> Any:
        """Return a / b; zero in columns that are solved up to rounding, where b is not positive."""
        return xp.where(b > 0, a / xp.where(b > 0, b, 1.0), 0.0)

    r = projected(right)
    p = preconditioner(r)
    x = xp.zeros_like(p)
    size = xp.clip(inner(p, r), 0.0, None)
    goal = options.cg_tol**2 * size
    for _ in range(options.cg_steps):
        Ap = times(p)
        step = ratio(size, inner(p, Ap))
        x = x + step * p
        r = projected(r - step * Ap)
        z = preconditioner(r)
        previous_size = size
        size = xp.clip(inner(z, r), 0.0, None)
        if bool((size <= goal).all()):
            break
        p = z + ratio(size, previous_size) * p
    return x


def solve_to_residual(
    times: Callable[[Array], Array],
    preconditioner: Callable[[Array], Array],
    right: Array,
    options: BlockOptions,
    goal: float,
    *,
    start: Array | None = None,
    rounds: int = 1,
) -> tuple[Array, Array]:
    """Return x of sum zero with A x = right up to a constant, and its true relative residuals.

    Conjugate gradients update their residual step by step, and rounding makes it differ from that
    of x. Here the residual is computed from x after every round, and the next round solves for the
    residual.

    Parameters
    ----------
    times, preconditioner : callable
        Multiply A, and a symmetric matrix near A⁻¹, by columns.
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
    solution = np.zeros(right.shape)
    residual = centred
    relative = np.linalg.norm(residual, axis=0) / sizes
    if start is not None:
        solution, residual, relative = _better(
            times, centred, sizes, start, solution, residual, relative
        )
    for _ in range(rounds):
        if np.all(relative <= goal):
            break
        change = np.asarray(
            conjugate_gradients(times, preconditioner, residual, options, sums=True)
        )
        previous = relative
        solution, residual, relative = _better(
            times, centred, sizes, solution + change, solution, residual, relative
        )
        if not np.any(relative < previous):
            break
    return solution, relative


def _better(
    times: Callable[[Array], Array],
    right: Array,
    sizes: Array,
    trial: Array,
    solution: Array,
    residual: Array,
    relative: Array,
) -> tuple[Array, Array, Array]:
    """Return for every column the better of a trial and a solution, with its residuals.

    Parameters
    ----------
    times : callable
        Multiplies A by columns.
    right : ndarray of shape (n, k)
        The centred right-hand sides.
    sizes : ndarray of shape (k,)
        Their norms.
    trial, solution : ndarray of shape (n, k)
        The two candidates.
    residual : ndarray of shape (n, k)
        right − A · solution, centred.
    relative : ndarray of shape (k,)
        Its norms divided by the sizes.

    Returns
    -------
    tuple of ndarray
        The solution, the residual and the relative residuals of the better candidate.
    """
    trial_residual = right - times(trial)
    trial_residual -= trial_residual.mean(axis=0)
    trial_relative = np.linalg.norm(trial_residual, axis=0) / sizes
    is_better = trial_relative < relative
    return (
        np.where(is_better, trial, solution),
        np.where(is_better, trial_residual, residual),
        np.where(is_better, trial_relative, relative),
    )


class NystromInverse:
    """Roughly (K + D)⁻¹ for a diagonal D, from products of K with random columns.

    D^-½ K D^-½ is approximated by U diag(λ) Uᵀ with its r leading eigenvectors, and its other
    eigenvalues by λ_r. Where λ_r is below one, which is the ridge on this scale, conjugate
    gradients converge in a few steps.

    Parameters
    ----------
    products : callable
        Multiplies K by columns.
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
        # K is known up to rounding: a multiple of the identity keeps it positive definite, and is
        # subtracted from the eigenvalues.
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
        """Return roughly (K + D)⁻¹ right, of shape (n, k)."""
        scaled = self.root * right
        coordinates = (self.inside - self.outside)[:, np.newaxis] * (self.vectors.T @ scaled)
        return np.asarray(self.root * (self.outside * scaled + self.vectors @ coordinates))


def keep_sum(x: ArrayOrTensor, ones: ArrayOrTensor) -> ArrayOrTensor:
    """Return x minus the multiples of `ones` with which the last axes sum to zero.

    For a solution x = A⁻¹r and ones = A⁻¹1 this is the solution among vectors of sum zero.
    """
    return x - _share_of_sum(x.sum(-1), ones)[..., None] * ones


def free_curvature(
    V: ArrayOrTensor, answer: ArrayOrTensor, ones: ArrayOrTensor | None = None
) -> ArrayOrTensor:
    """Return VᵀA⁻¹V, or its Schur complement where sums are kept.

    First axes of the arrays beyond those below are problems side by side.

    Parameters
    ----------
    V : array of shape (n, k)
        Columns.
    answer : array of shape (n, k)
        A⁻¹V.
    ones : array of shape (n,), optional
        A⁻¹1. If it is given, VᵀA⁻¹1 (1ᵀA⁻¹1)⁻¹ 1ᵀA⁻¹V is subtracted, which restricts solutions to
        vectors of sum zero.
    """
    H = V.swapaxes(-1, -2) @ answer
    if ones is None:
        return H
    shift = (V * ones[..., None]).sum(-2)
    return H - shift[..., :, None] * _share_of_sum(shift, ones[..., None, :])[..., None, :]


def _share_of_sum(x: ArrayOrTensor, ones: ArrayOrTensor) -> ArrayOrTensor:
    """Return x divided by the sum of `ones` over its last axis; zero where that is not positive."""
    xp = backend_of(x).xp
    total = ones.sum(-1)
    return xp.where(total > 0, x / xp.where(total > 0, total, 1.0), 0.0)


def multiply(A: ArrayOrTensor, x: ArrayOrTensor) -> ArrayOrTensor:
    """Return A x in the precision of x; rows of A in another precision are converted in strips."""
    backend = backend_of(A)
    dtype = backend.dtype(x)
    if backend.dtype(A) == dtype:
        return A @ x
    strips = row_strips(len(A), CONVERTED_ENTRIES[backend.name] // A.shape[1])
    return backend.xp.concatenate([backend.astype(A[strip], dtype) @ x for strip in strips])


def multiply_rows(K: ArrayOrTensor, rows: RowIndex, coefficients: ArrayOrTensor) -> ArrayOrTensor:
    """Return K[:, rows] coefficients for a symmetric K, summed in double precision.

    Parameters
    ----------
    K : array of shape (n, n)
        Entries in any precision.
    rows : array
        Row numbers, an index of the backend.
    coefficients : array of shape (n_rows,) or (n_rows, k)
        What is multiplied.
    """
    backend, n = backend_of(K), K.shape[0]
    height = CONVERTED_ENTRIES[backend.name] // n
    out = backend.zeros((n, *coefficients.shape[1:]))
    # The difference of infinite numbers is NaN; callers refuse such results.
    with np.errstate(invalid="ignore"):
        if 2 * len(rows) > n:
            # Reading whole rows in order is faster than picking most of their entries.
            all_coefficients = backend.zeros((n, *coefficients.shape[1:]))
            all_coefficients[rows] = coefficients
            for strip in row_strips(n, height):
                out[strip] = backend.astype(K[strip], np.float64) @ all_coefficients
            return out
        for strip in row_strips(len(rows), height):
            out += backend.astype(K[rows[strip]], np.float64).T @ coefficients[strip]
    return out


def nonzero_rows(V: ArrayOrTensor) -> ArrayOrTensor:
    """Return the numbers of the rows of a vector or a matrix that are not zero.

    They are an index of the backend.
    """
    return backend_of(V).nonzero(V if V.ndim == 1 else (V != 0).any(1))
