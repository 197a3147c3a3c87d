"""Squared distances: by inner products where these leave enough digits, by differences where they do not.

‖x‖² + ‖z‖² − 2⟨x, z⟩ is a product of matrices, and fast. Its error is a share of ‖x‖² + ‖z‖², whatever the distance: of
two samples that are near each other, and far from the others, it leaves nothing. `unreliable_share` states the bound;
every pass over squared distances, on the host, on a device or compiled, computes the entries below it anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from kernelmosaic._typing import ArrayOrTensor, DType, MatrixLike, RowIndex
from kernelmosaic.backend import NUMPY, TINY, backend_of, is_tensor, row_strips

#: The error that a squared distance may have, by the precision of the kernel: relative to itself, or to the scale of
#: the kernel (the squared width of a Gaussian), whichever is larger. A Gaussian then has this relative error, times its
#: exponent where that exceeds one. Of the 53 binary digits of a double, sums over hundreds of columns leave 43.
ERRORS = {np.dtype(np.float64): 2.0**-43, np.dtype(np.float32): 2.0**-24}


def unreliable_share(n_columns: int, largest: float, scale: float, dtype: DType = np.float64) -> float:
    """Return the share of ‖x‖² + ‖z‖² up to which the squared distance made of it is computed anew, by differences.

    Each of the three terms is a sum over d columns in double precision, with the unit ε of its last place. Its rounding
    is at most dε(‖x‖² + ‖z‖²), and about √d ε(‖x‖² + ‖z‖²). A distance below the former may be zero: equal samples
    are always found among these. The latter must be no more than `ERRORS` of the distance or of the kernel's scale.

    Parameters
    ----------
    n_columns : int
        d.
    largest : float
        The largest ‖x‖² + ‖z‖².
    scale : float
        The squared distance over which the kernel changes; 0 where it is not known.
    dtype : dtype
        The precision of the kernel.
    """
    epsilon, error = float(np.finfo(np.float64).eps), ERRORS[np.dtype(dtype)]
    zero, rounding = (n_columns + 2) * epsilon, float(np.sqrt(n_columns)) * epsilon
    return zero if rounding * largest <= error * scale else max(zero, rounding / error)


def squared_distances(
    X: MatrixLike, Y: MatrixLike, scale: float = 0.0, centre: ArrayOrTensor = None, norms: ArrayOrTensor = None
) -> ArrayOrTensor:
    """Return the squared distances between the rows of X and those of Y, arrays, sparse rows or tensors.

    Equal rows are at distance zero exactly. Dense rows are multiplied less a centre, since far from the origin norms
    swallow distances; sparse ones would lose their zeros, and stay where they are.

    Parameters
    ----------
    X, Y : array, sparse matrix or tensor
        Samples.
    scale : float
        The squared distance over which the kernel changes; 0 where it is not known.
    centre : array or tensor, optional
        By default the mean of Y.
    norms : tuple, optional
        Squared norms of the rows of X and Y less the centre, if they are known.
    """
    backend = backend_of(X)
    kind = np.result_type(backend.dtype(X), backend.dtype(Y))
    if not (X.shape[0] and Y.shape[0]):
        return backend.zeros((X.shape[0], Y.shape[0]), kind)
    same = Y is X
    X = backend.astype(X, np.float64)
    Y = X if same else backend.astype(Y, np.float64)
    left, right = X, Y
    if not (sparse.issparse(X) or sparse.issparse(Y)):
        centre = Y.mean(0) if centre is None else centre
        left = X - centre
        right = left if same else Y - centre
    own, others = (_squared_norms(left), _squared_norms(right)) if norms is None else norms
    S = (-2.0 * left) @ right.T if is_tensor(X) else safe_sparse_dot(-2.0 * left, right.T, dense_output=True)
    share = unreliable_share(X.shape[1], float(own.max()) + float(others.max()), scale)
    many = backend is NUMPY and S.shape[0] * S.shape[1] >= TINY**2
    # On the host a strip of distances stays in the cache.
    for rows in row_strips(len(S), 2**15 // S.shape[1] if backend is NUMPY else len(S)):
        part, total = S[rows], own[rows, None] + others
        part += total
        total *= share
        # Written so that what overflowed is computed anew, too.
        lost = backend.nonzero((~(part > total)).reshape(-1))
        if len(lost):
            i, j = lost // S.shape[1], lost % S.shape[1]
            part[i, j] = _squared_differences(X[rows], Y, i, j, many)
    return backend.astype(S, kind)


def _squared_norms(X: MatrixLike) -> ArrayOrTensor:
    return (X * X).sum(1) if is_tensor(X) else row_norms(X, squared=True)


def _squared_differences(X: MatrixLike, Y: MatrixLike, i: RowIndex, j: RowIndex, many: bool) -> ArrayOrTensor:
    """Return the squared distances of some pairs of rows, to the last digit or two."""
    d = int(X.shape[1])
    # Fewer differences NumPy forms about as fast as a compiled loop.
    if many and len(i) * d >= 2**14 and isinstance(X, np.ndarray) and isinstance(Y, np.ndarray):
        from kernelmosaic.kernels._numba_pairs import squared_differences

        found: NDArray[np.float64] = squared_differences(np.ascontiguousarray(X), np.ascontiguousarray(Y), i, j)
        return found
    out = backend_of(X).empty((len(i),))
    width = 1 if sparse.issparse(X) else max(d, 1)
    for pairs in row_strips(len(i), (2**22 if is_tensor(X) else 2**16) // width):
        out[pairs] = _squared_norms(X[i[pairs]] - Y[j[pairs]])
    return out
