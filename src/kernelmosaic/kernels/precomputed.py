"""A kernel given as a matrix."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.matrix_rows import ROUNDING, MatrixRows, square_matrix


class Precomputed(MatrixRows):
    """k(i, j) = K[i, j]: the samples are row numbers of a matrix computed elsewhere.

    X is a column of row numbers, so every splitter and search of scikit-learn works as it does on features. The matrix
    is checked once, at the first use, and never copied: clones share it. To search over matrices, give the search a
    list of `Precomputed` kernels rather than of arrays, which scikit-learn would copy.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Similarities between all samples, training and test; symmetric and positive semi-definite up to rounding. An
        array, a memory map or a data frame. 32-bit matrices stay 32-bit.
    """

    matrix_parameter: ClassVar[str] = "K"

    def __init__(self, K: Any) -> None:
        self.K = K

    def _prepare(self, given: Any) -> NDArray[Any]:
        if sparse.issparse(given):
            raise ValueError("K is sparse: Precomputed needs a dense matrix; K.toarray() makes one.")
        K = square_matrix(given, "K", "Precomputed")
        _check_positive(K)
        return K

    def _n_rows(self) -> int:
        return int(self._prepared().shape[0])

    def _block(self, X: Any, Y: Any) -> Block:
        K: Block = self._prepared()
        rows, columns = _run(X), _run(Y)
        if rows is not None and columns is not None:
            return K[rows, columns].copy()  # several times faster than picking the entries one by one
        return K[np.ix_(X, Y)]

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._prepared()[X, X], dtype=np.float64)


def trusted(K: NDArray[Any]) -> Precomputed:
    """Return the kernel of a matrix of floats that is not checked: for one that this package has computed itself."""
    kernel = Precomputed(K)
    kernel._share().result = K
    return kernel


def join_samples(kernel: Precomputed, block: NDArray[np.float64]) -> None:
    """Give a kernel more samples, in place, of which only the similarities to those it has are known.

    What the new samples have in common with each other is taken for zero. A fitted model never asks for it, but the
    matrix is no longer positive semi-definite, and is not checked again.

    Parameters
    ----------
    kernel : Precomputed
        A kernel of n samples.
    block : ndarray of shape (m, n)
        Similarities of the new samples, whose row numbers are n, …, n + m - 1, to these.
    """
    old = kernel._prepared()
    n, m = len(old), len(block)
    joined = np.zeros((n + m, n + m), dtype=np.result_type(old, block))
    joined[:n, :n], joined[n:, :n], joined[:n, n:] = old, block, block.T
    kernel.set_params(K=joined)
    kernel._share().result = joined


def _run(numbers: NDArray[np.intp]) -> slice | None:
    """Numbers that count up by one, as a slice; None for others."""
    if len(numbers) == 0:
        return None
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first != len(numbers) - 1 or np.any(np.diff(numbers) != 1):
        return None
    return slice(first, last + 1)


def _check_positive(K: NDArray[Any]) -> None:
    """Refuse a matrix with an eigenvalue that is negative beyond rounding.

    Entries off by a relative r move the eigenvalues by at most n·r times the largest entry, which r·trace stands for.
    """
    allowed = ROUNDING[K.dtype] * float(np.abs(K.diagonal()).sum(dtype=np.float64))
    shifted = np.array(K, order="F", subok=False)
    shifted[np.diag_indices_from(shifted)] += K.dtype.type(allowed)
    try:
        # Much cheaper than eigenvalues, and succeeds for every matrix that passes but the borderline ones.
        linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        return
    except linalg.LinAlgError:
        del shifted
    smallest = float(linalg.eigvalsh(K, subset_by_index=(0, 0), check_finite=False)[0])
    if smallest < -allowed:
        raise ValueError(
            f"K has the eigenvalue {smallest:.3g}: a kernel matrix must be positive semi-definite. Add {-smallest:.3g} "
            "to its diagonal, set its negative eigenvalues to zero, or take K @ K.T, the inner products of its rows."
        )
