"""A combined kernel that is never written down: K = Z Zᵀ + diag e, known by what Z does to
vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, RowIndex
from kernelmosaic.backend import Backend, backend_of
from kernelmosaic.gram.gram import ClassGram, DenseGram, Gram
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.kernels.base import Block


@dataclass(frozen=True)
class NewtonPass:
    """What one pass of a Newton step returns.

    Attributes
    ----------
    change : ndarray of shape (n,)
        Z d.
    adjoint : ndarray of shape (D,) or (D, k)
        Zᵀ V.
    matrix : callable
        Returns [Z, 1]ᵀ diag(θ) [Z, 1]: computed already, or by another pass when it is called.
    """

    change: Any
    adjoint: Any
    matrix: Callable[[], Any]


class FactoredGram(Gram):
    """K = Z Zᵀ + diag e of n samples with D features: the operations that solvers use.

    Each operation is one pass over the rows, wherever they are: in this process, on a device, on
    other machines. What goes in and comes out are vectors of n numbers and matrices of D × D:
    NumPy's, or those of the backend if such are given. Subclasses know Z alone; e, if there is any,
    is added here.

    Attributes
    ----------
    n_features : int
        D.
    wide : float
        Blocks with this many times more samples than features are better solved in their features.
    stored : bool
        Whether a pass costs its arithmetic only: features are stored, not computed anew or on other
        machines.
    """

    factored = True
    n_features: int
    wide: float = np.inf
    stored: bool = True

    # What Z does ----------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, W: ArrayOrTensor) -> ArrayOrTensor:
        """Return Z W, of shape (n,) or (n, k)."""

    @abstractmethod
    def adjoint(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return Zᵀ V, of shape (D,) or (D, k); rows where V is zero are not read."""

    @abstractmethod
    def normal_matrix(self, theta: ArrayOrTensor, precise: bool = False) -> ArrayOrTensor:
        """Return [Z, 1]ᵀ diag(θ) [Z, 1], of shape (D + 1, D + 1), for θ ≥ 0; rows where it is zero
        are not read.

        Unless it is to be precise, features in single precision may be multiplied in single
        precision.
        """

    def newton_pass(
        self,
        direction: ArrayOrTensor,
        residual: ArrayOrTensor,
        rule: Callable[..., Any],
        rows: RowIndex,
    ) -> NewtonPass:
        """Follow a direction d and look at its end: Z d, Zᵀβ and the normal matrix of θ, in one
        trip where trips cost.

        Parameters
        ----------
        direction : array of shape (D,) or None
            d; None for zeros. Of NumPy or of the backend, as is what is returned.
        residual : array of shape (n,)
            Residuals before the step, from which Z d is taken.
        rule : callable
            Sample by sample, from residuals and the rows: β and θ. It must be possible to pickle.
        rows : tuple of ndarray of shape (n,)
            What the rule reads of each sample; the same arrays in every pass.
        """
        change = (
            backend_of(residual).xp.zeros_like(residual)
            if direction is None
            else self.apply(direction)
        )
        beta, theta = rule(residual - change, *rows)
        return NewtonPass(change, self.adjoint(beta), lambda: self.normal_matrix(theta))

    def adjoint_and_matrix(self, V: ArrayOrTensor, theta: ArrayOrTensor) -> tuple[Any, Any]:
        """Return Zᵀ V and the precise normal matrix of θ, in one trip where trips cost."""
        return self.adjoint(V), self.normal_matrix(theta, precise=True)

    @abstractmethod
    def placed_rows(self, which: Indices) -> ArrayOrTensor:
        """Return these rows of Z where the features are."""

    def rows(self, which: Indices) -> Array:
        """Return these rows of Z, in this process."""
        return self.backend.to_numpy(self.placed_rows(which))

    @abstractmethod
    def squared_norms(self) -> Array:
        """Return the squared norms of the rows of Z."""

    def in_double(self) -> FactoredGram | None:
        """Return the same kernel with normal matrices in double precision; None if these are so
        already."""
        return None

    # What K does ----------------------------------------------------------------------------------

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return K β by reading the rows twice where β is not zero and once where it is.

        There are no better features than these: they are always exact.
        """
        out = self.apply(self.adjoint(beta))
        if self.shift is not None:
            shift = backend_of(beta).asarray(self.shift)
            out += shift * beta if beta.ndim == 1 else shift[:, None] * beta
        return out

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        Z = self.placed_rows(rows)
        K = Z @ Z.T
        if self.shift is not None:
            diagonal = self.backend.diagonal_view(K)
            diagonal += self.backend.asarray(self.shift[self.host_rows(rows)])
        return K

    def written(self) -> AnyArray:
        """Return all entries in single precision, which are kept for the curvature at the same
        weights."""
        if self._written is None:
            Z = self.placed_rows(np.arange(self.n_samples)).astype(np.float32)
            self._written = Z @ Z.T
            if self.shift is not None:
                self._written[np.diag_indices_from(self._written)] += self.shift.astype(np.float32)
        return np.asarray(self._written)

    def diagonal(self) -> Array:
        norms = self.squared_norms()
        return norms if self.shift is None else norms + self.shift

    def take(self, rows: RowIndex) -> FactoredGram:
        """Return the kernel of these samples, their rows side by side where the features are."""
        part = DenseFactors(self.placed_rows(rows))
        part.shift = None if self.shift is None else self.shift[self.host_rows(rows)]
        return part

    def products_given(self, beta: Array, adjoint: Array) -> Array:
        """Return K β where Zᵀ β, the adjoint, is known."""
        out: Array = self.apply(adjoint)
        return out if self.shift is None else out + self.shift * beta

    def products_of(self, part: Any, rows: Indices, beta: Array) -> Array:
        # The part's rows are stored: Zᵀβ needs no pass over all.
        out: Array = self.apply(part.adjoint(beta))
        if self.shift is not None:
            out[rows] += self.shift[rows] * beta
        return out

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        if self._written is not None:  # a rough answer needs no other precision
            return DenseGram(self._written).solve_free(rows, ridge, right)
        if len(rows) <= self.n_features:
            return super().solve_free(rows, ridge, right)
        # Through the features, of which there are fewer; every step is a pass over the rows,
        # wherever they are.
        ridge = ridge if self.shift is None else ridge + self.shift[rows]
        size = float(self.squared_norms()[rows].mean()) + float(ridge.mean())
        if size < 1e-290:  # such a block has no usable inverse
            return np.zeros_like(right)
        softened = ridge + 1e-5 * size
        place, scaled = self.backend.asarray, right / softened[:, np.newaxis]
        theta, spread = np.zeros(self.n_samples), np.zeros((self.n_samples, right.shape[1]))
        theta[rows], spread[rows] = 1.0 / softened, scaled
        adjoint, M = self.adjoint_and_matrix(place(spread), place(theta))
        M = M[:-1, :-1]
        diagonal = self.backend.diagonal_view(M)
        diagonal += 1.0
        answer = self.apply(Cholesky(M).solve(adjoint))
        return np.asarray(scaled - self.backend.to_numpy(answer)[rows] / softened[:, np.newaxis])


class DenseFactors(FactoredGram):
    """K = Z Zᵀ with Z in one array, of shape (n, D), here or on a device."""

    def __init__(self, Z: ArrayOrTensor) -> None:
        self.Z, self.backend = Z, backend_of(Z)
        self.n_samples, self.n_features = (int(side) for side in Z.shape)
        # A few rows are a problem that has been cut down already.
        self.block_samples = 0

    def apply(self, W: ArrayOrTensor) -> ArrayOrTensor:
        return as_input(W, self.Z @ self.backend.asarray(W), self.backend)

    def adjoint(self, V: ArrayOrTensor) -> ArrayOrTensor:
        return as_input(V, self.Z.T @ self.backend.asarray(V), self.backend)

    def normal_matrix(self, theta: ArrayOrTensor, precise: bool = False) -> ArrayOrTensor:
        xp = self.backend.xp
        root = xp.sqrt(self.backend.asarray(theta))[:, None]
        B = xp.concatenate([self.Z * root, root], axis=1)
        return as_input(theta, B.T @ B, self.backend)

    def placed_rows(self, which: Indices) -> ArrayOrTensor:
        return self.Z[self.backend.index(which)]

    def squared_norms(self) -> Array:
        return self.backend.to_numpy((self.Z * self.Z).sum(axis=1))


class FactoredClasses(ClassGram):
    """K_c = Z diag(d_c) Zᵀ: the features are shared, every class weighs them for itself.

    Parameters
    ----------
    gram : FactoredGram
        Z Zᵀ, with every kernel that has a weight in some class.
    scales : ndarray of shape (classes, D)
        The weight of each feature in each class.
    block_numbers : int
        How many numbers the blocks of all classes may have together.
    """

    def __init__(self, gram: FactoredGram, scales: Array, block_numbers: int = 2**27) -> None:
        self.gram, self.scales = gram, scales
        self.n_samples, self.n_classes = gram.n_samples, len(scales)
        self.block_samples = max(1, int(np.sqrt(block_numbers / self.n_classes)))

    def products(self, beta: Array, exact: bool = False) -> Array:
        return np.asarray(self.gram.apply(self.scales.T * self.gram.adjoint(beta)))

    def block(self, rows: Indices) -> FeatureBlock:
        return FeatureBlock(self.gram.rows(rows), self.scales)

    def diagonal(self) -> Array:
        every = np.arange(self.n_samples)
        return np.asarray(self.gram.rows(every) ** 2 @ self.scales.T)


class FeatureBlock:
    """The rows of some samples, from which the block of any class follows.

    Parameters
    ----------
    rows : ndarray of shape (q, D)
        Their features.
    scales : ndarray of shape (classes, D)
        The weight of each feature in each class.
    """

    def __init__(self, rows: Array, scales: Array) -> None:
        self.rows, self.scales = rows, scales

    def of_class(
        self, c: int, inside: Indices | slice = slice(None), dtype: DType = np.float64
    ) -> Block:
        """Return the block of one class, of the samples inside this one."""
        used = np.flatnonzero(self.scales[c])
        Z = (self.rows[inside][:, used] * np.sqrt(self.scales[c, used])).astype(dtype, copy=False)
        # Products of smaller numbers would be denormal, which is slow, and nothing beside the
        # others.
        Z[np.abs(Z) < np.sqrt(np.finfo(Z.dtype).tiny)] = 0.0
        return np.asarray(Z @ Z.T)

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonals of all classes."""
        return float(np.mean(self.rows**2 @ self.scales.T))

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> AnyArray:
        q, dtype = len(self.rows), np.float64 if dtype is None else dtype
        out = np.empty((len(self.scales), q, q), dtype=dtype)
        for c, K in enumerate(out):
            K[...] = self.of_class(c, dtype=dtype)
        return out


def as_input(given: ArrayOrTensor, found: ArrayOrTensor, backend: Backend) -> ArrayOrTensor:
    """Return what was found as an array for arrays, as a tensor for tensors."""
    return backend.to_numpy(found) if isinstance(given, np.ndarray) else found
