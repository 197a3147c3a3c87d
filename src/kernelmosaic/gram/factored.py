"""A combined kernel that is never stored: K = Z Zᵀ + diag e, known by products with Z."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, RowIndex
from kernelmosaic.backend import backend_of
from kernelmosaic.gram.gram import ClassGram, DenseGram, Gram, as_input
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.gram.tuning import (
    CLASS_BLOCK_NUMBERS,
    FREE_BLOCK_JITTER,
    SMALLEST_FREE_BLOCK,
)
from kernelmosaic.kernels.base import Block


@dataclass(frozen=True)
class NewtonPass:
    """The result of one pass over the rows in a Newton step.

    Attributes
    ----------
    change : ndarray of shape (n,)
        Z d for the direction d.
    adjoint : ndarray of shape (D,) or (D, k)
        Zᵀβ at the end of the step.
    matrix : callable
        Returns [Z, 1]ᵀ diag(θ) [Z, 1], of shape (D + 1, D + 1). The matrix was computed in the same
        pass, or is computed by another one when this is called.
    """

    change: Any
    adjoint: Any
    matrix: Callable[[], Any]


class FactoredGram(Gram):
    """K = Z Zᵀ + diag e of n samples with D features: the operations that solvers use.

    Each operation is one pass over the rows of Z, which may be on the host, on a device or on other
    machines. Arguments and results are vectors of n numbers and matrices of D × D: arrays of NumPy,
    or of the backend if the arguments are. Subclasses implement products with Z; the diagonal e is
    added here.

    Attributes
    ----------
    n_features : int
        D.
    wide : float
        Blocks with this many times more samples than features are faster to solve in their
        features.
    stored : bool
        Whether a pass costs its arithmetic alone. It is False where features are computed anew, or
        are on other machines.
    """

    factored = True
    n_features: int
    wide: float = np.inf
    stored: bool = True

    # Products with Z ------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, W: ArrayOrTensor) -> ArrayOrTensor:
        """Return Z W, of shape (n,) or (n, k)."""

    @abstractmethod
    def adjoint(self, V: ArrayOrTensor) -> ArrayOrTensor:
        """Return Zᵀ V, of shape (D,) or (D, k); rows where V is zero are not read."""

    @abstractmethod
    def normal_matrix(self, theta: ArrayOrTensor, precise: bool = False) -> ArrayOrTensor:
        """Return [Z, 1]ᵀ diag(θ) [Z, 1], of shape (D + 1, D + 1).

        Parameters
        ----------
        theta : array of shape (n,)
            θ ≥ 0; rows where it is zero are not read.
        precise : bool
            Whether to multiply in double precision. If not, features in single precision may be
            multiplied in single precision.
        """

    def newton_pass(
        self,
        direction: ArrayOrTensor,
        residual: ArrayOrTensor,
        rule: Callable[..., Any],
        rows: RowIndex,
    ) -> NewtonPass:
        """Return Z d, and Zᵀβ and the normal matrix of θ at the residual minus Z d.

        On other machines this is one trip, in place of three.

        Parameters
        ----------
        direction : array of shape (D,) or None
            d; None for zeros. An array of NumPy or of the backend, as the results are.
        residual : array of shape (n,)
            Residuals before the step, from which Z d is subtracted.
        rule : callable
            Returns β and θ of all samples from their residuals and `rows`. It must be possible to
            pickle.
        rows : tuple of ndarray of shape (n,)
            Further arguments of the rule, the same arrays in every pass.
        """
        if direction is None:
            change = backend_of(residual).xp.zeros_like(residual)
        else:
            change = self.apply(direction)
        beta, theta = rule(residual - change, *rows)
        return NewtonPass(change, self.adjoint(beta), lambda: self.normal_matrix(theta))

    def adjoint_and_matrix(self, V: ArrayOrTensor, theta: ArrayOrTensor) -> tuple[Any, Any]:
        """Return Zᵀ V and the precise normal matrix of θ; on other machines this is one trip."""
        return self.adjoint(V), self.normal_matrix(theta, precise=True)

    @abstractmethod
    def placed_rows(self, which: Indices) -> ArrayOrTensor:
        """Return these rows of Z, an array of the backend."""

    def rows(self, which: Indices) -> Array:
        """Return these rows of Z, an array of NumPy."""
        return self.backend.to_numpy(self.placed_rows(which))

    @abstractmethod
    def squared_norms(self) -> Array:
        """Return the squared norms of the rows of Z, of shape (n,)."""

    def in_double(self) -> FactoredGram | None:
        """Return this kernel with normal matrices in double precision; None if they are already."""
        return None

    # Products with K ------------------------------------------------------------------------------

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        """Return K β; rows are read twice where β is not zero, and once where it is zero.

        Features are always exact, since no more precise ones are known.
        """
        out = self.apply(self.adjoint(beta))
        if self.shift is not None:
            shift = backend_of(beta).asarray(self.shift)
            out += shift * beta if beta.ndim == 1 else shift[:, None] * beta
        return out

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        """Return a copy of the entries between these samples, an array of the backend."""
        Z = self.placed_rows(rows)
        K = Z @ Z.T
        if self.shift is not None:
            diagonal = self.backend.diagonal_view(K)
            diagonal += self.backend.asarray(self.shift[self.host_rows(rows)])
        return K

    def written(self) -> AnyArray:
        """Return all entries in single precision.

        They are kept, since solvers read them again for curvature at the same weights.
        """
        if self._written is None:
            Z = self.placed_rows(np.arange(self.n_samples)).astype(np.float32)
            self._written = Z @ Z.T
            if self.shift is not None:
                self._written[np.diag_indices_from(self._written)] += self.shift.astype(np.float32)
        return np.asarray(self._written)

    def diagonal(self) -> Array:
        """Return the diagonal of K, of shape (n,)."""
        return self._shifted(self.squared_norms())

    def take(self, rows: RowIndex) -> FactoredGram:
        """Return the kernel of these samples, with their rows of Z stored in one array."""
        shift = None if self.shift is None else self.shift[self.host_rows(rows)]
        return DenseFactors(self.placed_rows(rows), shift)

    def products_given(self, beta: Array, adjoint: Array) -> Array:
        """Return K β from β and the known Zᵀβ."""
        out: Array = self.apply(adjoint)
        return out if self.shift is None else out + self.shift * beta

    def products_of(self, part: Any, rows: Indices, beta: Array) -> Array:
        """Return Kβ for a β that is zero except at these rows, whose kernel is `part`."""
        # The rows of the part are stored: Zᵀβ needs no pass over all rows.
        out: Array = self.apply(part.adjoint(beta))
        if self.shift is not None:
            out[rows] += self.shift[rows] * beta
        return out

    def solve_free(self, rows: Indices, ridge: Array, right: Array) -> Array:
        """Return roughly (K_rows + diag ridge)⁻¹ right for the block of these samples."""
        if self._written is not None:
            # A rough solution does not need more than single precision.
            return DenseGram(self._written).solve_free(rows, ridge, right)
        if len(rows) <= self.n_features:
            return super().solve_free(rows, ridge, right)
        # With fewer features than samples the system is solved in the features, in passes over the
        # rows: (ZZᵀ + S)⁻¹ = S⁻¹ − S⁻¹Z (1 + ZᵀS⁻¹Z)⁻¹ ZᵀS⁻¹ for a diagonal S.
        if self.shift is not None:
            ridge = ridge + self.shift[rows]
        size = float(self.squared_norms()[rows].mean()) + float(ridge.mean())
        if size < SMALLEST_FREE_BLOCK:
            return np.zeros_like(right)
        softened = ridge + FREE_BLOCK_JITTER * size
        scaled = right / softened[:, np.newaxis]
        theta = np.zeros(self.n_samples)
        theta[rows] = 1.0 / softened
        all_scaled = np.zeros((self.n_samples, right.shape[1]))
        all_scaled[rows] = scaled
        placed_scaled = self.backend.asarray(all_scaled)
        placed_theta = self.backend.asarray(theta)
        adjoint, M = self.adjoint_and_matrix(placed_scaled, placed_theta)
        M = M[:-1, :-1]
        diagonal = self.backend.diagonal_view(M)
        diagonal += 1.0
        correction = self.backend.to_numpy(self.apply(Cholesky(M).solve(adjoint)))[rows]
        return np.asarray(scaled - correction / softened[:, np.newaxis])


class DenseFactors(FactoredGram):
    """K = Z Zᵀ + diag e with Z in one array, on the host or on a device.

    Parameters
    ----------
    Z : array of shape (n, D)
        The features.
    shift : ndarray of shape (n,), optional
        e; by default zeros.
    """

    def __init__(self, Z: ArrayOrTensor, shift: Array | None = None) -> None:
        self.Z = Z
        self.shift = shift
        self.backend = backend_of(Z)
        self.n_samples, self.n_features = (int(side) for side in Z.shape)
        # No blocks are formed: these few rows are a part of a larger kernel already.
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
    """K_c = Z diag(d_c) Zᵀ: all classes share the features, and each has weights of its own.

    Parameters
    ----------
    gram : FactoredGram
        Z Zᵀ, with every kernel that has a weight in some class.
    scales : ndarray of shape (classes, D)
        The weight d of each feature in each class.
    block_numbers : int
        How many numbers the blocks of all classes may have together.
    """

    def __init__(
        self, gram: FactoredGram, scales: Array, block_numbers: int = CLASS_BLOCK_NUMBERS
    ) -> None:
        self.gram = gram
        self.scales = scales
        self.n_samples = gram.n_samples
        self.n_classes = len(scales)
        self.block_samples = max(1, int(np.sqrt(block_numbers / self.n_classes)))

    def products(self, beta: Array, exact: bool = False) -> Array:
        """Return K_c β_c of every column β_c of β."""
        return np.asarray(self.gram.apply(self.scales.T * self.gram.adjoint(beta)))

    def block(self, rows: Indices) -> FeatureBlock:
        """Return the blocks of all classes between these samples, by their features."""
        return FeatureBlock(self.gram.rows(rows), self.scales)

    def diagonal(self) -> Array:
        """Return the diagonals of all classes, of shape (n, classes)."""
        Z = self.gram.rows(np.arange(self.n_samples))
        return np.asarray(Z**2 @ self.scales.T)


class FeatureBlock:
    """The features of some samples, from which the block of any class is computed.

    Parameters
    ----------
    rows : ndarray of shape (q, D)
        The features.
    scales : ndarray of shape (classes, D)
        The weight of each feature in each class.
    """

    def __init__(self, rows: Array, scales: Array) -> None:
        self.rows = rows
        self.scales = scales

    def of_class(
        self, c: int, places: Indices | slice = slice(None), dtype: DType = np.float64
    ) -> Block:
        """Return the block of class c between some of the samples.

        Parameters
        ----------
        c : int
            The class.
        places : ndarray of shape (k,) or slice
            The places of these samples among the rows of `rows`.
        dtype : dtype
            The precision of the products.

        Returns
        -------
        ndarray of shape (k, k)
        """
        has_weight = np.flatnonzero(self.scales[c])
        Z = self.rows[places][:, has_weight] * np.sqrt(self.scales[c, has_weight])
        Z = Z.astype(dtype, copy=False)
        # The product of two numbers below the root of the smallest normal number is denormal:
        # such products are slow, and add nothing to larger ones.
        Z[np.abs(Z) < np.sqrt(np.finfo(Z.dtype).tiny)] = 0.0
        return np.asarray(Z @ Z.T)

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonals of all classes."""
        return float(np.mean(self.rows**2 @ self.scales.T))

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> AnyArray:
        q = len(self.rows)
        dtype = np.float64 if dtype is None else dtype
        out = np.empty((len(self.scales), q, q), dtype=dtype)
        for c, K in enumerate(out):
            K[...] = self.of_class(c, dtype=dtype)
        return out
