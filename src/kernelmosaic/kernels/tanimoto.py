"""The Tanimoto kernel between sets and counts, such as the fingerprints of molecules."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic._typing import AnyArray, MatrixLike
from kernelmosaic.backend import TINY, backend_of, is_tensor
from kernelmosaic.kernels.base import Block, Kernel
from kernelmosaic.kernels.distances import pairwise_statistic

#: Whole numbers up to this are exact in single precision, and so are sums that stay below it.
_EXACT = 2.0**24
#: Up to this share of counts that are not zero, compressed rows are faster than dense ones.
_FEW = 0.1


class Tanimoto(Kernel):
    """k(x, z) = Σ_j min(x_j, z_j) / Σ_j max(x_j, z_j): what two samples share of what they have together.

    For samples of zeros and ones that is ⟨x, z⟩ / (‖x‖² + ‖z‖² − ⟨x, z⟩), the size of the intersection of two sets over
    that of their union, also known as Jaccard's index. For counts, or other numbers that are not negative, it is the
    form of minima over maxima (Ruzicka's), in which a feature counts as often as both samples have it. Both are
    positive semi-definite. Two samples of zeros alone are equal, k = 1; one of them shares nothing with any other.

    Samples may be dense or sparse; nothing is learned from them, and ``scale=True`` of the CV estimators leaves them as
    they are.

    References
    ----------
    Ralaivola, Swamidass, Saigo and Baldi (2005), "Graph kernels for chemical informatics".

    Examples
    --------
    >>> from kernelmosaic.kernels import Tanimoto
    >>> Tanimoto()([[1, 1, 0, 0]], [[1, 0, 1, 0], [3, 1, 0, 0]])
    array([[0.33333333, 0.5       ]])
    """

    accepts_sparse = True
    takes_tensors = True
    costs_by_entries = True
    keeps_scale = True

    def validate(self, X: MatrixLike) -> MatrixLike:
        X = super().validate(X)
        least = (X.data if sparse.issparse(X) else X).min(initial=0)
        if least < 0:
            raise ValueError(
                f"X holds {least:g}: Tanimoto compares counts or zeros and ones, which are not negative. Give the "
                "columns as they were counted, before any standardising."
            )
        if not is_tensor(X) and not sparse.issparse(X) and X.shape[1] >= 64 and not _is_binary(X):
            # Of counts that are mostly zero, only what two samples share is visited.
            few = np.count_nonzero(X) < _FEW * X.size
            X = sparse.csr_matrix(X) if few else X
        return X

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        shared = shared_counts(X, Y)
        union = _sums(X)[:, None] + _sums(Y)
        union -= shared
        # Two samples without anything are equal: both sums become one.
        empty = union == 0
        if empty.any():
            union[empty] = shared[empty] = 1
        shared /= union
        return shared

    def _diagonal(self, X: MatrixLike) -> NDArray[np.float64]:
        return np.ones(X.shape[0])


def _sums(X: MatrixLike) -> MatrixLike:
    total = X.sum(1)
    return total if is_tensor(total) else np.asarray(total).ravel()


def shared_counts(X: MatrixLike, Y: MatrixLike) -> Block:
    """Return Σ_j min(x_j, z_j) for all pairs, an array of its own in the precision of the samples."""
    backend = backend_of(X)
    precision = np.result_type(*(backend.dtype(one) for one in (X, Y)))
    if _is_binary(X) and (Y is X or _is_binary(Y)):
        # The minimum of zeros and ones is their product; whole numbers as small lose nothing in single precision.
        exact = X.shape[1] < _EXACT and not is_tensor(X)
        left, right = (one.astype(np.float32) for one in (X, Y)) if exact else (X, Y)
        minima: Any = pairwise_statistic("products", left, right)
    elif is_tensor(X) or X.shape[0] * Y.shape[0] <= TINY**2:
        # |x − z| = x + z − 2 min(x, z).
        minima = _sums(X)[:, None] + _sums(Y)
        minima -= pairwise_statistic("manhattan_distances", X, Y)
        minima *= 0.5
    else:
        minima = _compiled_minima(X, Y)
    converted: Block = backend.astype(minima, precision)
    return converted


def _is_binary(X: MatrixLike) -> bool:
    values = X.data if sparse.issparse(X) else X
    return bool(((values == 0) | (values == 1)).all())


def _compiled_minima(X: MatrixLike, Y: MatrixLike) -> AnyArray:
    from kernelmosaic.kernels._numba_pairs import sparse_sums_of_minima, sums_of_minima

    same = Y is X
    left, right = (_compact(one) for one in (X, Y))
    kind = np.result_type(left.dtype, right.dtype)
    if sparse.issparse(left) and sparse.issparse(right):
        rows, columns = left.astype(kind), right.astype(kind).tocsc()
        a, b = ((one.indptr.astype(np.int64), one.indices, one.data) for one in (rows, columns))
        return np.asarray(sparse_sums_of_minima(*a, *b, right.shape[0], same))
    left, right = (
        np.ascontiguousarray(one.toarray() if sparse.issparse(one) else one, dtype=kind) for one in (left, right)
    )
    return np.asarray(sums_of_minima(left, right, same))


def _compact(X: MatrixLike) -> MatrixLike:
    """Return samples as the compiled loops read them: every number once, in single precision if that loses nothing."""
    if sparse.issparse(X):
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sparse.issparse(X) else X
    whole = float(_sums(X).max()) < _EXACT and bool((values == np.rint(values)).all())
    return X.astype(np.float32) if whole else X
