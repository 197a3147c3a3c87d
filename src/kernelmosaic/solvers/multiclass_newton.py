"""Newton's method for the multi-class program: steps of all free coefficients, and the curvature in
the weights.

Both eliminate the free coefficients of every class from one system; see `SchurSystem`.
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

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, Mask
from kernelmosaic.backend import NUMPY, one_blas_thread, run_threads
from kernelmosaic.gram.factored import FeatureBlock
from kernelmosaic.solvers.program import Matrix, MulticlassProgram


def free_coefficients(program: MulticlassProgram, beta: Matrix) -> Mask:
    """Return which coefficients may move both ways; one alone in its sample may not, since a
    sample's sum to zero."""
    lower, upper = program.bounds()
    near = (
        1e-9 * program.sample_C[:, np.newaxis]
    )  # a coefficient nearer to its bound is at its bound
    free = (beta > lower + near) & (beta < upper - near)
    return np.asarray(free & (free.sum(axis=1, keepdims=True) > 1))


def class_products(K: AnyArray, x: AnyArray) -> AnyArray:
    """Return K_c x_c, of the shape (n, classes) of x; K has the shape (1, n, n) or (classes, n,
    n)."""
    if len(K) == 1:
        return np.asarray(K[0] @ x)
    return np.asarray((K @ np.ascontiguousarray(x.T)[:, :, np.newaxis])[:, :, 0].T)


def multiclass_curvature(
    K: ArrayOrTensor,
    program: MulticlassProgram,
    beta: Matrix,
    products: Array,
    rows: Indices | None = None,
    *,
    single: bool = False,
) -> Array:
    """Return ∂²J/∂d² of J(d) = max_β Σ T∘β − ½ Σ_c β_cᵀ(Σ_m d_cm K_m)β_c, as a matrix of side
    classes·P.

    Where the weights of class c change by δ, the free β_c answer with −K_c⁻¹(Σ_m δ_m K_mβ_c + ν),
    all on the free samples of the class. The multipliers ν, one a sample, keep the sums over the
    classes at zero; eliminating them leaves one more system, Σ_c K_c⁻¹ with a side as long as there
    are samples. Constants are multipliers, too: one more right-hand side a class, of ones, is
    eliminated last.

    Parameters
    ----------
    K : ndarray of shape (n, n) or (classes, n, n), or a kernel of another form
        The combined matrices at d; of the other forms only the block of the samples with free
        coefficients is asked.
    program : MulticlassProgram
        The rest of the problem.
    beta : ndarray of shape (n, classes)
        Its solution.
    products : ndarray of shape (P, n_rows, classes)
        K_m β.
    rows : ndarray of shape (n_rows,), optional
        Where the products are given, in ascending order: at least where β is not zero. By default
        everywhere.
    single : bool, default=False
        Whether single precision will do, which leaves the curvature right to a few digits. Arrays
        that are in single precision already have no more to give.

    Returns
    -------
    ndarray of shape (classes * P, classes * P)
    """
    k, P = program.n_classes, len(products)
    free = free_coefficients(program, beta)
    shared = np.flatnonzero(free.any(axis=1))
    if len(shared) == 0:
        return np.zeros((k * P, k * P))
    blocks = FreeBlocks.of(K, shared)
    sides = P + program.constants
    # Larger numbers may overflow in single precision.
    dtype = np.dtype(np.float32) if single and blocks.scale < 1e30 else blocks.dtype
    system = SchurSystem(len(shared), k * sides, dtype, blocks.scale)
    given = np.arange(len(beta)) if rows is None else rows

    def right(c: int, at: Indices) -> Array:
        V = np.ones((len(at), sides))
        V[:, :P] = products[:, np.searchsorted(given, at), c].T
        return V

    with one_blas_thread():
        eliminate(system, blocks, free, shared, right)
        H = system.curvature()
    if not program.constants:
        return H
    # The last of every class's right-hand sides is eliminated; those of all classes together are
    # none.
    last = np.arange(k) * (P + 1) + P
    others = np.delete(np.arange(k * (P + 1)), last)
    coupling = H[np.ix_(others, last)]
    # A direction of the constants that is this much flatter than others has no answer.
    least = np.linalg.lstsq(H[np.ix_(last, last)], coupling.T, rcond=1e-6)[0]
    return np.asarray(H[np.ix_(others, others)] - coupling @ least)


def eliminate(
    system: SchurSystem,
    blocks: FreeBlocks,
    free: Mask,
    shared: Indices,
    sides: Callable[[int, Indices], Array],
) -> None:
    """Add every class to the system, with the right-hand sides that sides(c, its free samples)
    returns.

    Classes are added on threads of their own: libraries should be kept to one.
    """

    def add(c: int) -> None:
        at = np.flatnonzero(free[:, c])
        if len(at):
            system.add(
                c, blocks.take(c, at, system.dtype), sides(c, at), np.searchsorted(shared, at)
            )

    flops = float(np.sum(free.sum(axis=0, dtype=np.float64) ** 3))
    # A factorisation computes 16 of them in the time in which a byte is read.
    run_threads(add, range(free.shape[1]), int(flops / 16))


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
        """Return those of an array, or of a kernel of another form."""
        if isinstance(K, np.ndarray):
            return cls(K, None)
        if K.matrix is not None and K.backend is NUMPY:
            return cls(K.matrix, None)
        found = K.block(shared)
        return cls(found if isinstance(found, FeatureBlock) else K.backend.to_numpy(found), shared)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.K.dtype if isinstance(self.K, np.ndarray) else np.dtype(np.float64)

    @property
    def scale(self) -> float:
        """The mean diagonal: a class without weights is flat, and made as stiff as rounding makes
        the others."""
        if isinstance(self.K, FeatureBlock):
            return self.K.mean_diagonal()
        return float(np.diagonal(self.K, axis1=-2, axis2=-1).mean())

    def take(self, c: int, at: Indices, dtype: np.dtype[Any]) -> AnyArray:
        """Return the block of a class at these samples in an array of its own, at least the lower
        half of it."""
        from kernelmosaic.solvers._numba_multiclass import take_lower

        inside = at if self.samples is None else np.searchsorted(self.samples, at)
        if isinstance(self.K, FeatureBlock):
            return self.K.of_class(c, inside, dtype)
        A = np.empty((len(at), len(at)), dtype=dtype)
        take_lower(self.K if self.K.ndim == 2 else self.K[c % len(self.K)], self.shift, inside, A)
        return A


class SchurSystem:
    """What the classes add up to: their own answers, and what the samples with free coefficients
    share.

    Parameters
    ----------
    n_shared, side : int
        Samples with free coefficients, and right-hand sides of all classes together.
    dtype : dtype
        Of the blocks.
    scale : float
        What the diagonals are like, for a class that has none.
    damping : float, default=0.0
        Relative to the scale: added to the diagonals, for a direction, which needs the inverses
        afterwards.
    """

    def __init__(
        self, n_shared: int, side: int, dtype: np.dtype[Any], scale: float, damping: float = 0.0
    ) -> None:
        self.dtype, self.scale, self.damping = dtype, scale, damping
        self.lock = Lock()
        self.H = np.zeros((side, side))
        self.kept: dict[int, tuple[Indices, AnyArray]] = {}
        self.inverses = np.zeros((n_shared, n_shared), dtype=dtype)
        self.answers = np.zeros((n_shared, side), dtype=dtype)

    def add(self, c: int, A: AnyArray, V: Array, at: Indices) -> None:
        """Add a class: its block, which is used up, the right-hand sides, and which of the shared
        samples these are."""
        from kernelmosaic.solvers._numba_multiclass import add_lower

        columns = slice(c * V.shape[1], (c + 1) * V.shape[1])
        A[np.diag_indices_from(A)] += self.damping * self.scale
        answer = self._solve(A, V.astype(self.dtype), self.scale)
        self.H[columns, columns] = V.T @ answer
        self.answers[at, columns] = answer
        invert(A)
        with self.lock:
            add_lower(A, at, self.inverses)
            if self.damping:
                self.kept[c] = at, A

    def direction(self) -> Array:
        """Return the answers to one right-hand side a class, of shape (n_shared, classes), the
        samples' sums kept."""
        multipliers = self._solve(self.inverses, self.answers.sum(axis=1))
        out = self.answers.astype(np.float64)
        for c, (at, A) in self.kept.items():
            (symv,) = get_blas_funcs(["symv"], [A])
            out[at, c] -= symv(1.0, A.T, multipliers[at])
        return out

    def curvature(self) -> Array:
        """Return that of all right-hand sides, the samples' sums kept."""
        multipliers = self._solve(self.inverses, self.answers)
        return np.asarray(self.H - self.answers.T @ multipliers, dtype=np.float64)

    def _solve(self, A: AnyArray, right: AnyArray, least: float = 0.0) -> AnyArray:
        """Solve with A, of which the lower half is given and overwritten by its factor."""
        diagonal = A.diagonal().copy()
        # Enough to factorise a block that is positive semi-definite only up to rounding, or a class
        # without weights.
        noise = (1e-9 if self.dtype == np.float64 else 1e-5) * max(
            float(diagonal.mean()), least
        ) + 1e-12
        np.fill_diagonal(A, diagonal + noise)
        factorise(A)
        # Transposed, the lower half is the upper one in the order that cho_solve need not copy.
        return np.asarray(cho_solve((A.T, False), right, check_finite=False))


# Factors with the interpreter's lock released, unlike scipy.linalg's ------------------------------


def factorise(A: AnyArray) -> None:
    """Overwrite the lower half of A, in C order, by its Cholesky factor."""
    _call("potrf", A)


def invert(A: AnyArray) -> None:
    """Overwrite the lower half of a factorised A by that of the inverse."""
    _call("potri", A)


def _call(name: str, A: AnyArray) -> None:
    if not A.flags.c_contiguous or A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"A of shape {A.shape} must be square and in C order.")
    size, failed = ctypes.c_int(len(A)), ctypes.c_int(0)
    # The lower half in C order is the upper half in the order LAPACK reads.
    routine = _routine({"f": "s", "d": "d"}[A.dtype.char] + name)
    routine(b"U", ctypes.byref(size), A.ctypes.data, ctypes.byref(size), ctypes.byref(failed))
    if failed.value:
        raise np.linalg.LinAlgError(
            "a kernel matrix is not positive semi-definite, even up to rounding."
        )


@lru_cache(maxsize=4)
def _routine(name: str) -> Callable[..., None]:
    """Return the routine that scipy was built with; calls through ctypes release the interpreter's
    lock."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    integer = ctypes.POINTER(ctypes.c_int)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, integer, ctypes.c_void_p, integer, integer)
    return kind(get_pointer(capsule, get_name(capsule)))


# Steps --------------------------------------------------------------------------------------------


class DampedNewton:
    """Steps towards where all free coefficients are optimal, the others staying where they are.

    On the free coefficients, their sums over the classes kept, the objective is quadratic, and its
    maximum solves a linear system. Undamped, many samples would leave their bounds; as much is
    added to the diagonal as keeps most of them inside, and it is learned from step to step how much
    that is.
    """

    def __init__(self) -> None:
        self.damping = 1e-2  # relative to the mean diagonal

    def step(
        self,
        K: AnyArray,
        program: MulticlassProgram,
        beta: Matrix,
        residual: Matrix,
        shift: float = 0.0,
    ) -> float:
        """Take a step and return by how much the objective has risen; zero if there was none to
        take.

        Samples that would leave their bounds go as far as these, and a line search along what is
        left makes it an ascent.

        Parameters
        ----------
        K : ndarray of shape (1, n, n) or (classes, n, n)
            The kernels.
        program : MulticlassProgram
            The rest of the problem; its target is not read.
        beta : ndarray of shape (n, classes)
            Feasible coefficients, changed in place.
        residual : ndarray of shape (classes, n)
            The slopes T − K_c β_c, changed in place.
        shift : float, default=0.0
            Added to every entry of the kernels.
        """
        free = free_coefficients(program, beta)
        shared = np.flatnonzero(free.any(axis=1))
        if len(shared) == 0:
            return 0.0
        some = program.take(shared)
        with one_blas_thread():
            step = self._direction(K, free, shared, residual, shift)
            # How much of its step each sample can take, at most all of it.
            lower, upper = some.bounds()
            room, length = (
                np.where(step > 0, upper - beta[shared], beta[shared] - lower),
                np.abs(step),
            )
            step *= np.divide(room, length, out=np.ones_like(room), where=length > room).min(
                axis=1, keepdims=True
            )
            moves = _products(K, shared, step) + shift * step.sum(axis=0)[:, np.newaxis]
        slope = float(np.sum(residual[:, shared].T * step))
        bend = float(np.sum(moves[:, shared].T * step))
        if not 0.0 < slope < np.inf:
            return 0.0
        best = slope / max(bend, 1e-300)
        # A step that could have been as long or longer is damped less the next time, one that was
        # far too long more.
        if best >= 0.9:
            self.damping = max(0.4 * self.damping, 1e-7)
        elif best < 0.4:
            self.damping = min(4.0 * self.damping, 10.0)
        size = min(best, 1.0)
        # Rounding must neither leave the bounds nor the sums of zero.
        beta[shared] = some.feasible(beta[shared] + size * step)
        residual -= size * moves
        return size * (slope - 0.5 * size * bend)

    def _direction(
        self, K: AnyArray, free: Mask, shared: Indices, residual: Matrix, shift: float
    ) -> Array:
        """Return the step to the damped maximum, of shape (n_shared, classes); zeros if rounding is
        in the way."""
        blocks = replace(FreeBlocks.of(K, shared), shift=shift)
        system = SchurSystem(len(shared), free.shape[1], blocks.dtype, blocks.scale, self.damping)
        try:
            eliminate(system, blocks, free, shared, lambda c, at: residual[c, at][:, np.newaxis])
            step = system.direction()
        except np.linalg.LinAlgError:
            return np.zeros((len(shared), free.shape[1]))
        # The sums are zero but for rounding: what is left is shared out.
        inside = free[shared]
        step -= inside * (step.sum(axis=1) / inside.sum(axis=1))[:, np.newaxis]
        return step


def _products(K: AnyArray, shared: Indices, step: Array) -> Array:
    """Return K_c times the step of every class, of shape (classes, n)."""
    columns = step.T.astype(K.dtype)
    if len(K) == 1:
        return np.asarray(columns @ K[0][shared], dtype=np.float64)
    return np.stack([column @ K_c[shared] for column, K_c in zip(columns, K, strict=True)]).astype(
        np.float64
    )
