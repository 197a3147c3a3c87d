"""Newton's method for the multi-class program: a step of all free coefficients, and the second
derivative of the program's value in the weights of the kernels.

Both solve linear systems in the free coefficients of all classes, whose sums over the classes stay
what they are. The classes are coupled by these sums alone: each class is eliminated by a Cholesky
factorisation of its own block, which leaves one system of the samples' multipliers, the Schur
complement (`SchurSystem`).

Words: a coefficient is *free* if it may grow and shrink. The *shared* samples are those with free
coefficients; their multipliers couple the classes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, get_blas_funcs

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, Mask
from kernelmosaic.backend import NUMPY, one_blas_thread, run_threads
from kernelmosaic.gram.factored import FeatureBlock
from kernelmosaic.solvers.program import Matrix, MulticlassProgram
from kernelmosaic.solvers.tuning import (
    BOUND_ROUNDING,
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    FIRST_DAMPING,
    FLAT_CONSTANTS,
    FLOPS_PER_BYTE,
    LARGEST_DAMPING,
    LARGEST_SINGLE_SCALE,
    LEAST_CLASS_NOISE,
    LEAST_DAMPING,
    LONG_NEWTON_STEP,
    RELATIVE_CLASS_NOISE,
    SHORT_NEWTON_STEP,
    SINGLE_CLASS_NOISE,
)


def free_coefficients(program: MulticlassProgram, beta: Matrix) -> Mask:
    """Return which coefficients may move both ways, of shape (n, classes).

    A sample's coefficients sum to zero, so one that is strictly inside its bounds is not free if it
    is the only one of its sample.
    """
    lower, upper = program.bounds()
    rounding = BOUND_ROUNDING * program.sample_C[:, np.newaxis]
    is_inside = (beta > lower + rounding) & (beta < upper - rounding)
    n_inside = is_inside.sum(axis=1, keepdims=True)
    return np.asarray(is_inside & (n_inside > 1))


def class_products(K: AnyArray, x: AnyArray) -> AnyArray:
    """Return K_c x_c for every class c, of the shape (n, classes) of x.

    K has the shape (1, n, n) where all classes share a matrix, else (classes, n, n).
    """
    if len(K) == 1:
        return np.asarray(K[0] @ x)
    columns = np.ascontiguousarray(x.T)[:, :, np.newaxis]
    return np.asarray((K @ columns)[:, :, 0].T)


def multiclass_curvature(
    K: ArrayOrTensor,
    program: MulticlassProgram,
    beta: Matrix,
    products: Array,
    rows: Indices | None = None,
    *,
    single: bool = False,
) -> Array:
    """Return ∂²J/∂d² of J(d) = max_β Σ T∘β − ½ Σ_c β_cᵀ(Σ_m d_cm K_m)β_c.

    Where the weights of class c change by δ, the free β_c change by −K_c⁻¹(Σ_m δ_m K_mβ_c + ν), all
    on the free samples of the class. The multipliers ν, one a sample, keep the sums over the
    classes at zero; eliminating them leaves one more system, Σ_c K_c⁻¹ with a side as long as there
    are samples. Constants are multipliers, too: one more right-hand side a class, of ones, is
    eliminated last.

    Parameters
    ----------
    K : ndarray of shape (n, n) or (classes, n, n), or ClassGram
        The combined matrices at d; of a kernel that is not an array only the block of the samples
        with free coefficients is read.
    program : MulticlassProgram
        The program of several classes.
    beta : ndarray of shape (n, classes)
        Its solution.
    products : ndarray of shape (P, n_rows, classes)
        K_m β.
    rows : ndarray of shape (n_rows,), optional
        The samples of the products, in ascending order: at least those whose β is not zero. By
        default all.
    single : bool, default=False
        Whether to compute in single precision, which leaves the curvature right to a few digits. It
        makes no difference to arrays that are in single precision already.

    Returns
    -------
    ndarray of shape (classes * P, classes * P)
    """
    k, P = program.n_classes, len(products)
    free = free_coefficients(program, beta)
    shared = np.flatnonzero(free.any(axis=1))
    if len(shared) == 0:
        return np.zeros((k * P, k * P))

    # 1. The system, with P right-hand sides a class, and one of ones for its constant.
    blocks = FreeBlocks.of(K, shared)
    n_sides = P + program.constants
    dtype = blocks.dtype
    if single and blocks.scale < LARGEST_SINGLE_SCALE:
        dtype = np.dtype(np.float32)
    system = SchurSystem(len(shared), k * n_sides, dtype, blocks.scale)
    if rows is None:
        rows = np.arange(len(beta))

    def right_sides(c: int, samples: Indices) -> Array:
        V = np.ones((len(samples), n_sides))
        V[:, :P] = products[:, np.searchsorted(rows, samples), c].T
        return V

    # 2. The curvature in the right-hand sides.
    with one_blas_thread():
        eliminate(system, blocks, free, shared, right_sides)
        H = system.curvature()
    if not program.constants:
        return H

    # 3. Eliminate the constants, whose right-hand sides are the last of every class. Adding one
    #    number to all constants changes nothing, so their block is singular.
    constants = np.arange(k) * (P + 1) + P
    weights = np.delete(np.arange(k * (P + 1)), constants)
    coupling = H[np.ix_(weights, constants)]
    H_constants = H[np.ix_(constants, constants)]
    response = np.linalg.lstsq(H_constants, coupling.T, rcond=FLAT_CONSTANTS)[0]
    return np.asarray(H[np.ix_(weights, weights)] - coupling @ response)


def eliminate(
    system: SchurSystem,
    blocks: FreeBlocks,
    free: Mask,
    shared: Indices,
    right_sides: Callable[[int, Indices], Array],
) -> None:
    """Add every class to the system.

    Classes are added in several threads, so BLAS should be limited to one.

    Parameters
    ----------
    system : SchurSystem
        The system, changed in place.
    blocks : FreeBlocks
        The kernels of the shared samples.
    free : ndarray of shape (n, classes)
        Which coefficients are free.
    shared : ndarray of shape (n_shared,)
        The samples with free coefficients, in ascending order.
    right_sides : callable
        From a class and its free samples to its right-hand sides, of shape (n_free, n_sides).
    """

    def add_class(c: int) -> None:
        """Add a class to the system; one without free coefficients adds nothing."""
        samples = np.flatnonzero(free[:, c])
        if len(samples) == 0:
            return
        block = blocks.take(c, samples, system.dtype)
        places_in_shared = np.searchsorted(shared, samples)
        system.add(c, block, right_sides(c, samples), places_in_shared)

    # `run_threads` measures work by the bytes that it reads, so flops are turned into bytes.
    n_free = free.sum(axis=0, dtype=np.float64)
    flops = float(np.sum(n_free**3))
    run_threads(add_class, range(free.shape[1]), int(flops / FLOPS_PER_BYTE))


@dataclass(frozen=True)
class FreeBlocks:
    """The classes' kernels among the samples with free coefficients.

    Attributes
    ----------
    K : ndarray of shape (q, q) or (classes, q, q), or FeatureBlock
        The kernels of q samples.
    samples : ndarray of shape (q,) or None
        Which samples these are, in ascending order; None for all.
    shift : float
        Added to every entry.
    """

    K: ArrayOrTensor
    samples: Indices | None
    shift: float = 0.0

    @classmethod
    def of(cls, K: ArrayOrTensor, shared: Indices) -> FreeBlocks:
        """Return the blocks of an array, or of a `ClassGram`, at the shared samples."""
        if isinstance(K, np.ndarray):
            return cls(K, None)
        if K.matrix is not None and K.backend is NUMPY:
            return cls(K.matrix, None)
        block = K.block(shared)
        if isinstance(block, FeatureBlock):
            return cls(block, shared)
        return cls(K.backend.to_numpy(block), shared)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the blocks that `take` returns by default."""
        if isinstance(self.K, np.ndarray):
            return np.dtype(self.K.dtype)
        return np.dtype(np.float64)

    @property
    def scale(self) -> float:
        """The mean of all diagonals, which stands for that of a class whose kernels have no weight.

        The block of such a class is zero, and cannot be factorised without a diagonal.
        """
        if isinstance(self.K, FeatureBlock):
            return self.K.mean_diagonal()
        return float(np.diagonal(self.K, axis1=-2, axis2=-1).mean())

    def take(self, c: int, samples: Indices, dtype: DType) -> AnyArray:
        """Return a new array with the block of class c at these samples.

        Its lower half is set; the upper half may be anything.
        """
        from kernelmosaic.solvers._numba_multiclass import take_lower

        places = samples
        if self.samples is not None:
            places = np.searchsorted(self.samples, samples)
        if isinstance(self.K, FeatureBlock):
            return self.K.of_class(c, places, dtype)
        K_c = self.K
        if K_c.ndim == 3:
            K_c = K_c[c % len(K_c)]
        A = np.empty((len(samples), len(samples)), dtype=dtype)
        take_lower(K_c, self.shift, places, A)
        return A


class SchurSystem:
    """The linear system of the free coefficients of all classes, solved class by class.

    For every class c with the block A_c, right-hand sides V_c and the places of its samples among
    the shared ones, the solutions X_c = A_c⁻¹(V_c − ν) have the sum zero in every shared sample.
    `add` takes the classes one by one. Then the multipliers ν are found, by `direction` for the
    right-hand sides of all classes at once, by `curvature` for each column by itself, the other
    columns being zero.

    Parameters
    ----------
    n_shared, n_columns : int
        Samples with free coefficients, and right-hand sides of all classes together.
    dtype : dtype
        The precision of the blocks.
    scale : float
        The mean of the classes' diagonals.
    damping : float, default=0.0
        Added to the diagonals, relative to the scale. Only a damped system has a `direction`, for
        which it stores the inverse of every block.
    """

    def __init__(
        self,
        n_shared: int,
        n_columns: int,
        dtype: np.dtype[Any],
        scale: float,
        damping: float = 0.0,
    ) -> None:
        self.dtype = dtype
        self.scale = scale
        self.damping = damping
        self.lock = Lock()
        #: V_cᵀA_c⁻¹V_c in the diagonal blocks.
        self.H = np.zeros((n_columns, n_columns))
        #: Σ_c A_c⁻¹, the lower half.
        self.inverse_sum = np.zeros((n_shared, n_shared), dtype=dtype)
        #: A_c⁻¹V_c, in the columns of the class.
        self.unconstrained = np.zeros((n_shared, n_columns), dtype=dtype)
        #: For each class the places of its samples and the lower half of A_c⁻¹.
        self.inverses: dict[int, tuple[Indices, AnyArray]] = {}

    def add(self, c: int, A: AnyArray, V: Array, places: Indices) -> None:
        """Add class c; several threads may add classes at once.

        Parameters
        ----------
        c : int
            The class.
        A : ndarray of shape (n_free, n_free)
            Its block, of which the lower half is read; overwritten by the inverse.
        V : ndarray of shape (n_free, n_sides)
            Its right-hand sides.
        places : ndarray of shape (n_free,)
            The places of its samples among the shared ones, in ascending order.
        """
        from kernelmosaic.solvers._numba_multiclass import add_lower

        columns = slice(c * V.shape[1], (c + 1) * V.shape[1])
        A[np.diag_indices_from(A)] += self.damping * self.scale
        solution = self._solve(A, V.astype(self.dtype), self.scale)
        self.H[columns, columns] = V.T @ solution
        self.unconstrained[places, columns] = solution
        invert(A)
        with self.lock:
            add_lower(A, places, self.inverse_sum)
            if self.damping:
                self.inverses[c] = places, A

    def direction(self) -> Array:
        """Return the solutions X_c to one right-hand side a class, of shape (n_shared, classes).

        The system cannot be solved again: its matrix is overwritten.
        """
        multipliers = self._solve(self.inverse_sum, self.unconstrained.sum(axis=1))
        X = self.unconstrained.astype(np.float64)
        for c, (places, inverse) in self.inverses.items():
            (symv,) = get_blas_funcs(["symv"], [inverse])
            X[places, c] -= symv(1.0, inverse.T, multipliers[places])
        return X

    def curvature(self) -> Array:
        """Return VᵀX of all right-hand sides, of shape (n_columns, n_columns).

        The system cannot be solved again: its matrix is overwritten.
        """
        multipliers = self._solve(self.inverse_sum, self.unconstrained)
        return np.asarray(self.H - self.unconstrained.T @ multipliers, dtype=np.float64)

    def _solve(self, A: AnyArray, right: AnyArray, least_scale: float = 0.0) -> AnyArray:
        """Return A⁻¹ right, up to noise on the diagonal of A.

        The noise makes it possible to factorise a block that is positive semi-definite only up to
        rounding, or that of a class without weights.

        Parameters
        ----------
        A : ndarray of shape (q, q)
            Its lower half is read, and overwritten by the Cholesky factor.
        right : ndarray of shape (q,) or (q, k)
            Unchanged.
        least_scale : float, default=0.0
            The noise is relative to the mean of A's diagonal, or to this number if it is larger.

        Raises
        ------
        numpy.linalg.LinAlgError
            If A is not positive definite with the noise either.
        """
        diagonal = A.diagonal().copy()
        relative_noise = SINGLE_CLASS_NOISE
        if self.dtype == np.float64:
            relative_noise = RELATIVE_CLASS_NOISE
        noise = relative_noise * max(float(diagonal.mean()), least_scale) + LEAST_CLASS_NOISE
        np.fill_diagonal(A, diagonal + noise)
        factorise(A)
        # Transposed, the lower half is the upper one in Fortran order, which cho_solve need not
        # copy.
        return np.asarray(cho_solve((A.T, False), right, check_finite=False))


# LAPACK without the interpreter's lock, which scipy.linalg holds ----------------------------------


def factorise(A: AnyArray) -> None:
    """Overwrite the lower half of A, in C order, by its Cholesky factor."""
    _call("potrf", A)


def invert(A: AnyArray) -> None:
    """Overwrite the Cholesky factor in the lower half of A by the lower half of the inverse."""
    _call("potri", A)


def _call(name: str, A: AnyArray) -> None:
    """Call a LAPACK routine, named without its type, that changes the lower half of A in place."""
    if not A.flags.c_contiguous or A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"A of shape {A.shape} must be square and in C order.")
    size, failed = ctypes.c_int(len(A)), ctypes.c_int(0)
    prefix = {"f": "s", "d": "d"}[A.dtype.char]
    routine = _routine(prefix + name)
    # The lower half in C order is the upper half in Fortran order, which LAPACK reads.
    routine(b"U", ctypes.byref(size), A.ctypes.data, ctypes.byref(size), ctypes.byref(failed))
    if failed.value:
        raise np.linalg.LinAlgError(
            "a kernel matrix is not positive semi-definite, even up to rounding."
        )


@lru_cache(maxsize=4)
def _routine(name: str) -> Callable[..., None]:
    """Return a LAPACK routine of the library that scipy was built with.

    Calls through ctypes release the interpreter's lock.
    """
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    integer = ctypes.POINTER(ctypes.c_int)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_char_p, integer, ctypes.c_void_p, integer, integer)
    return signature(capsule_pointer(capsule, capsule_name(capsule)))


# Steps --------------------------------------------------------------------------------------------


class DampedNewton:
    """Newton steps of all free coefficients, while the others stay where they are.

    On the free coefficients, their sums over the classes kept, the objective is quadratic, and its
    maximum solves a linear system. Undamped steps would take many samples beyond their bounds. What
    is added to the diagonal keeps most of them inside, and is adapted from step to step.

    Attributes
    ----------
    damping : float
        What is added to the diagonal, relative to its mean.
    """

    def __init__(self) -> None:
        self.damping = FIRST_DAMPING

    def step(
        self,
        K: AnyArray,
        program: MulticlassProgram,
        beta: Matrix,
        residual: Matrix,
        shift: float = 0.0,
    ) -> float:
        """Take a step; return the increase of the objective, zero if no step was taken.

        Samples that would leave their bounds go as far as these. A line search along what is left
        makes the step an ascent.

        Parameters
        ----------
        K : ndarray of shape (1, n, n) or (classes, n, n)
            The kernels.
        program : MulticlassProgram
            The program of several classes; its target is not read.
        beta : ndarray of shape (n, classes)
            Feasible coefficients, changed in place.
        residual : ndarray of shape (classes, n)
            The gradient T − K_c β_c, changed in place.
        shift : float, default=0.0
            Added to every entry of the kernels.
        """
        free = free_coefficients(program, beta)
        shared = np.flatnonzero(free.any(axis=1))
        if len(shared) == 0:
            return 0.0
        shared_program = program.take(shared)

        # 1. The direction, in each sample shortened to what its bounds allow, and the change of all
        #    outputs along it.
        with one_blas_thread():
            step = self._direction(K, free, shared, residual, shift)
            lower, upper = shared_program.bounds()
            distance = np.where(step > 0, upper - beta[shared], beta[shared] - lower)
            length = np.abs(step)
            fraction = np.divide(
                distance, length, out=np.ones_like(distance), where=length > distance
            )
            step *= fraction.min(axis=1, keepdims=True)
            change = _products(K, shared, step) + shift * step.sum(axis=0)[:, np.newaxis]

        # 2. The objective along the direction is slope · size − ½ curvature · size².
        slope = float(np.sum(residual[:, shared].T * step))
        curvature = float(np.sum(change[:, shared].T * step))
        if not 0.0 < slope < np.inf:
            return 0.0
        best_size = slope / max(curvature, 1e-300)

        # 3. Nearly full steps are damped less the next time, much shorter ones more.
        if best_size >= LONG_NEWTON_STEP:
            self.damping = max(DAMPING_DECREASE * self.damping, LEAST_DAMPING)
        elif best_size < SHORT_NEWTON_STEP:
            self.damping = min(DAMPING_INCREASE * self.damping, LARGEST_DAMPING)

        # 4. The step; `feasible` corrects the rounding of bounds and sums.
        size = min(best_size, 1.0)
        beta[shared] = shared_program.feasible(beta[shared] + size * step)
        residual -= size * change
        return size * (slope - 0.5 * size * curvature)

    def _direction(
        self, K: AnyArray, free: Mask, shared: Indices, residual: Matrix, shift: float
    ) -> Array:
        """Return the step to the damped maximum, of shape (n_shared, classes).

        It is zero if a block cannot be factorised because of rounding.
        """
        blocks = replace(FreeBlocks.of(K, shared), shift=shift)
        system = SchurSystem(len(shared), free.shape[1], blocks.dtype, blocks.scale, self.damping)

        def right_side(c: int, samples: Indices) -> Array:
            return np.asarray(residual[c, samples][:, np.newaxis])

        try:
            eliminate(system, blocks, free, shared, right_side)
            step = system.direction()
        except np.linalg.LinAlgError:
            return np.zeros((len(shared), free.shape[1]))
        # The step sums to zero in every sample up to rounding, which its free coefficients share.
        is_free = free[shared]
        step -= is_free * (step.sum(axis=1) / is_free.sum(axis=1))[:, np.newaxis]
        return step


def _products(K: AnyArray, shared: Indices, step: Array) -> Array:
    """Return K_c times the step of every class, of shape (classes, n)."""
    columns = step.T.astype(K.dtype)
    if len(K) == 1:
        return np.asarray(columns @ K[0][shared], dtype=np.float64)
    products = [column @ K_c[shared] for column, K_c in zip(columns, K, strict=True)]
    return np.stack(products).astype(np.float64)
