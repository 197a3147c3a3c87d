"""The diffusion kernel between the nodes of a graph."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.matrix_rows import MatrixRows, square_matrix


class Diffusion(MatrixRows):
    """k(i, j) = [exp(β H)]_ij with H = −(graph Laplacian) = A − diag(A·1): heat that has flowed from node i to node j.

    X is a column of node numbers. The eigenvectors of the Laplacian are computed once, at the first use, and shared by
    clones, so a family of β costs one decomposition. A loop on a node changes nothing, as it cancels in the Laplacian.

    Parameters
    ----------
    adjacency : array-like or sparse matrix of shape (n, n)
        Symmetric, non-negative weights of the links.
    beta : float, default=1.0
        How long the heat flows; near 0 a node resembles only itself, and far from 0 its whole component.

    References
    ----------
    Kondor and Lafferty (2002), "Diffusion kernels on graphs and other discrete structures".
    """

    matrix_parameter: ClassVar[str] = "adjacency"

    def __init__(self, adjacency: Any, beta: float = 1.0) -> None:
        self.adjacency = adjacency
        self.beta = beta

    def fit(self, X: Any, y: Any = None) -> Self:
        self._check_beta()
        return super().fit(X, y)

    def _prepare(self, given: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        A = square_matrix(given.toarray() if sparse.issparse(given) else given, "adjacency", "Diffusion")
        if A.min() < 0:
            i, j = np.unravel_index(np.argmin(A), A.shape)
            raise ValueError(f"adjacency[{i}, {j}] is {A[i, j]:.6g}: the weights of links must not be negative.")
        L = -A.astype(np.float64)
        L[np.diag_indices_from(L)] -= L.sum(axis=1)
        values, vectors = linalg.eigh(L, overwrite_a=True, check_finite=False, driver="evd")
        # Zero eigenvalues, one a component, come out as dust of either sign.
        return np.maximum(values, 0), vectors

    def _n_rows(self) -> int:
        return int(self._prepared()[1].shape[0])

    def _block(self, X: Any, Y: Any) -> Block:
        features = self._features(X)
        return np.asarray(features @ (features if Y is X else self._features(Y)).T)

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        features = self._features(X)
        return np.asarray(np.einsum("ij,ij->i", features, features))

    def _features(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        self._check_beta()
        values, vectors = self._prepared()
        return np.asarray(vectors[rows] * np.exp(-0.5 * self.beta * values))

    def _check_beta(self) -> None:
        if not isinstance(self.beta, Real) or isinstance(self.beta, bool) or not 0 < self.beta < np.inf:
            raise ValueError(f"beta={self.beta!r}: the diffusion time must be a positive finite number.")
