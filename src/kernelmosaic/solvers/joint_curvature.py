"""How a joint machine's value bends in the weights of its kernels, while the free coefficients stay free."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from kernelmosaic.gram.threads import one_blas_thread, run_threads
from kernelmosaic.solvers import lapack
from kernelmosaic.solvers.multiclass import JointProgram, Matrix

#: Relative to the sample's price: a coefficient nearer to its bound than this is at its bound.
_NEAR = 1e-9
#: Relative to the mean diagonal: enough to factorise a block that is positive semi-definite only up to rounding.
_JITTER = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}
#: What a factorisation computes in the time in which a byte is read.
_FLOPS_A_BYTE = 16
#: At least this much is added, so that a class without weights can be factorised, too.
_LEAST_NOISE = 1e-12


def free_coefficients(program: JointProgram, beta: Matrix) -> NDArray[np.bool_]:
    """Tell which coefficients may move both ways; one alone in its sample may not, since a sample's sum to zero."""
    prices, tops = program.prices[:, np.newaxis], program.tops[:, np.newaxis]
    near = _NEAR * prices
    own = np.zeros(beta.shape, dtype=bool)
    own[np.arange(len(beta)), program.labels] = True
    free = np.where(own, (beta > near) & (beta < tops - near), (beta < -near) & (beta > near - prices))
    return np.asarray(free & (free.sum(axis=1) > 1)[:, np.newaxis])


def joint_curvature(
    K: NDArray[Any],
    program: JointProgram,
    beta: Matrix,
    products: NDArray[np.float64],
    rows: NDArray[np.intp] | None = None,
    *,
    single: bool = False,
) -> NDArray[np.float64]:
    """Return ∂²J/∂d² of J(d) = max_β Σ T∘β − ½ Σ_c β_cᵀ(Σ_m d_cm K_m)β_c, as a matrix of side classes·P.

    Where the weights of class c change by δ, the free β_c answer with −K_c⁻¹(Σ_m δ_m K_mβ_c + ν), all on the free
    samples of the class. The multipliers ν, one a sample, keep the sums over the classes at zero; eliminating them
    leaves one more system, Σ_c K_c⁻¹ with a side as long as there are samples.

    Parameters
    ----------
    K : ndarray of shape (n, n) or (classes, n, n)
        The combined matrices at d.
    program : JointProgram
        The rest of the problem.
    beta : ndarray of shape (n, classes)
        Its solution.
    products : ndarray of shape (P, n_rows, classes)
        K_m β.
    rows : ndarray of shape (n_rows,), optional
        Where the products are given, in ascending order: at least where β is not zero. By default everywhere.
    single : bool, default=False
        Whether single precision will do, which leaves the curvature right to a few digits. Matrices that are in single
        precision already have no more to give.

    Returns
    -------
    ndarray of shape (classes * P, classes * P)
    """
    k, P = program.n_classes, len(products)
    free = free_coefficients(program, beta)
    shared = np.flatnonzero(free.any(axis=1))
    # A class without weights is flat; it is made as stiff as rounding makes the others.
    scale = float(np.diagonal(K, axis1=-2, axis2=-1).mean())
    system = _Elimination(len(shared), k * P, np.dtype(np.float32) if single else K.dtype, scale)

    def add(c: int) -> None:
        at = np.flatnonzero(free[:, c])
        if len(at):
            A = system.block(K if K.ndim == 2 else K[c], at)
            V = products[:, at if rows is None else np.searchsorted(rows, at), c].T
            system.add(A, V, np.searchsorted(shared, at), slice(c * P, (c + 1) * P))

    with one_blas_thread():
        flops = float(np.sum(free.sum(axis=0, dtype=np.float64) ** 3))
        run_threads(add, range(k), int(flops / _FLOPS_A_BYTE))
        return system.curvature()


class _Elimination:
    """What the classes add up to: their own curvatures, and what the samples with free coefficients share."""

    def __init__(self, n_shared: int, side: int, dtype: np.dtype[Any], scale: float) -> None:
        from kernelmosaic.solvers import _numba_triangles

        self.loops = _numba_triangles
        self.dtype = dtype
        self.scale = scale
        self.lock = Lock()
        self.H = np.zeros((side, side))
        self.inverses = np.zeros((n_shared, n_shared), dtype=dtype)
        self.answers = np.zeros((n_shared, side), dtype=dtype)

    def block(self, K: NDArray[Any], at: NDArray[np.intp]) -> NDArray[Any]:
        """Return K at these samples, the lower half of it."""
        A = np.empty((len(at), len(at)), dtype=self.dtype)
        self.loops.take_lower(K, at, A)
        return A

    def add(self, A: NDArray[Any], V: NDArray[np.float64], at: NDArray[np.intp], columns: slice) -> None:
        """Add a class: its block, which is used up, the products K_m β_c there, and which of the shared samples."""
        answer = self._solve(A, V.astype(self.dtype), self.scale)
        self.H[columns, columns] = V.T @ answer
        self.answers[at, columns] = answer
        lapack.invert(A)
        with self.lock:
            self.loops.add_lower(A, at, self.inverses)

    def curvature(self) -> NDArray[np.float64]:
        """Return the whole, the samples' sums kept."""
        if len(self.inverses) == 0:
            return self.H
        pulled = self._solve(self.inverses, self.answers)
        return np.asarray(self.H - self.answers.T @ pulled, dtype=np.float64)

    def _solve(self, A: NDArray[Any], right: NDArray[Any], least: float = 0.0) -> NDArray[Any]:
        """Solve with A, of which the lower half is given and overwritten by its factor."""
        diagonal = A.diagonal().copy()
        noise = _JITTER[self.dtype] * max(float(diagonal.mean()), least) + _LEAST_NOISE
        np.fill_diagonal(A, diagonal + noise)
        lapack.factorise(A)
        # Transposed, the lower half is the upper one in the order that cho_solve need not copy.
        return np.asarray(cho_solve((A.T, False), right, check_finite=False))
