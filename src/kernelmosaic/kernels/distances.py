"""What kernels read of two samples, and what they learn of a training set: products, distances,
widths, ranks.

Squared distances are made of inner products where these leave enough digits, and of differences
where they do not. ‖x‖² + ‖z‖² − 2⟨x, z⟩ is a product of matrices, and fast. Its error is a share of
‖x‖² + ‖z‖², whatever the distance: of two samples that are near each other, and far from the
others, it leaves nothing. `unreliable_share` states the bound; every pass over squared distances,
on the host, on a device or compiled, computes the entries below it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from kernelmosaic._typing import (
    AnyArray,
    Array,
    ArrayOrTensor,
    DType,
    Indices,
    MatrixLike,
    RowIndex,
)
from kernelmosaic.backend import NUMPY, TINY, backend_of, is_tensor, row_strips

#: The error that a squared distance may have, by the precision of the kernel: relative to itself,
#: or to the scale of the kernel (the squared width of a Gaussian), whichever is larger. A Gaussian
#: then has this relative error, times its exponent where that exceeds one. Of the 53 binary digits
#: of a double, sums over hundreds of columns leave 43.
ERRORS = {np.dtype(np.float64): 2.0**-43, np.dtype(np.float32): 2.0**-24}


def unreliable_share(
    n_columns: int, largest: float, scale: float, dtype: DType = np.float64
) -> float:
    """Return the share of ‖x‖² + ‖z‖² up to which the squared distance made of it is computed anew,
    by differences.

    Each of the three terms is a sum over d columns in double precision, with the unit ε of its last
    place. Its rounding is at most dε(‖x‖² + ‖z‖²), and about √d ε(‖x‖² + ‖z‖²). A distance below
    the former may be zero: equal samples are always found among these. The latter must be no more
    than `ERRORS` of the distance or of the kernel's scale.

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
    X: MatrixLike,
    Y: MatrixLike,
    scale: float = 0.0,
    centre: ArrayOrTensor = None,
    norms: ArrayOrTensor = None,
) -> ArrayOrTensor:
    """Return the squared distances between the rows of X and those of Y, arrays, sparse rows or
    tensors.

    Equal rows are at distance zero exactly. Dense rows are multiplied less a centre, since far from
    the origin norms swallow distances; sparse ones would lose their zeros, and stay where they are.

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
    S = (
        (-2.0 * left) @ right.T
        if is_tensor(X)
        else safe_sparse_dot(-2.0 * left, right.T, dense_output=True)
    )
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


def _squared_differences(
    X: MatrixLike, Y: MatrixLike, i: RowIndex, j: RowIndex, many: bool
) -> ArrayOrTensor:
    """Return the squared distances of some pairs of rows, to the last digit or two."""
    d = int(X.shape[1])
    # Fewer differences NumPy forms about as fast as a compiled loop.
    if many and len(i) * d >= 2**14 and isinstance(X, np.ndarray) and isinstance(Y, np.ndarray):
        from kernelmosaic.kernels._numba_pairs import squared_differences

        found: Array = squared_differences(np.ascontiguousarray(X), np.ascontiguousarray(Y), i, j)
        return found
    out = backend_of(X).empty((len(i),))
    width = 1 if sparse.issparse(X) else max(d, 1)
    for pairs in row_strips(len(i), (2**22 if is_tensor(X) else 2**16) // width):
        out[pairs] = _squared_norms(X[i[pairs]] - Y[j[pairs]])
    return out


def pairwise_statistic(
    name: str,
    X: MatrixLike,
    Y: MatrixLike,
    scale: float = 0.0,
    centre: ArrayOrTensor = None,
    norms: tuple[Any, Any] | None = None,
) -> AnyArray:
    """Return the inner products or distances between the rows of X and those of Y, arrays or
    tensors.

    The scale of the kernel, and the centre and norms of samples that are known, are those of
    `squared_distances`.
    """
    block: AnyArray
    if name == "squared_distances":
        block = squared_distances(X, Y, scale, centre, norms)
    elif is_tensor(X):
        block = X @ Y.T if name == "products" else backend_of(X).xp.cdist(X, Y, p=1.0)
    elif name == "products":
        block = np.asarray(safe_sparse_dot(X, Y.T, dense_output=True))
    else:
        block = manhattan_distances(X, Y).astype(np.result_type(X.dtype, Y.dtype), copy=False)
    return block


def manhattan_distances(X: MatrixLike, Y: MatrixLike) -> Array:
    """Return Σ_c |x_c − y_c| for all rows of X and Y on the host.

    Where most entries of a column are the same number, as in tables of counts, scaled or not, only
    the others are read: the distance does not change where that number is subtracted from the
    column.
    """
    if not (sparse.issparse(X) or sparse.issparse(Y)):
        common = _common_entries(X, Y)
        if (
            common is None and len(X) * len(Y) * X.shape[1] < 2**22
        ):  # less than loading compiled code takes
            from scipy.spatial.distance import cdist

            return np.asarray(cdist(X, Y, "cityblock"))
        if common is None:
            from kernelmosaic.kernels._numba_pairs import manhattan

            left, right = (np.ascontiguousarray(one, dtype=np.float64) for one in (X, Y.T))
            return np.asarray(manhattan(left, right))
        X, Y = X - common, Y - common
    from kernelmosaic.kernels._numba_pairs import manhattan_of_nonzeros

    arrays: list[Any] = []
    for one in (X, Y):
        rows = sparse.csr_array(one, dtype=np.float64)
        if not rows.has_canonical_format:  # sorted in a copy: the arrays may be the caller's
            rows = rows.copy()
            rows.sum_duplicates()
        arrays += [rows.data, rows.indices.astype(np.intp), rows.indptr.astype(np.intp)]
    return np.asarray(manhattan_of_nonzeros(*arrays, X.shape[1]))


def _common_entries(X: NDArray[Any], Y: NDArray[Any], most: float = 0.1) -> Array | None:
    """Return the median of every column, if at most this share of the entries of X and of Y differs
    from it."""
    if X.shape[1] < 100 or len(X) * len(Y) * X.shape[1] < 2**24:  # nothing to gain
        return None
    for some in (slice(None, None, X.shape[1] // 50), slice(None)):
        found = np.median(Y[:, some], axis=0)
        if any(np.count_nonzero(one[:, some] - found) > most * one[:, some].size for one in (X, Y)):
            return None
    return np.asarray(found)


@dataclass(eq=False)
class FitSamples:
    """Validated samples that kernels are fitted to, and what several kernels learn of them; each is
    computed once.

    Parameters
    ----------
    X : array or sparse matrix
        Samples in the form that the kernels read.
    keep : bool
        Whether `distances` keeps what is measured between all samples.

    Attributes
    ----------
    distances : dict of str to ndarray of shape (n, n)
        By the name of the statistic.
    """

    X: MatrixLike
    keep: bool = False
    distances: dict[str, Array] = field(default_factory=dict, init=False)
    _widths: dict[tuple[str, str], float] = field(default_factory=dict, init=False)

    def width(self, rule: str, statistic: str) -> float:
        """Return the width by a rule, ``"median"`` or ``"nearest"``, as a distance; 0 with one
        distinct sample."""
        if (rule, statistic) not in self._widths:
            found = self._median(statistic) if rule == "median" else self._mean_nearest(statistic)
            self._widths[rule, statistic] = found
        return self._widths[rule, statistic]

    @cached_property
    def ranked(self) -> tuple[list[Array], list[Array], FitSamples]:
        """Of every column the distinct entries and their ranks, see `standardised_ranks`; and the
        samples as ranks."""
        found = [standardised_ranks(column) for column in np.asarray(self.X, dtype=np.float64).T]
        values, ranks = [one for one, _ in found], [one for _, one in found]
        return values, ranks, FitSamples(to_ranks(self.X, values, ranks), self.keep)

    def _measure(self, statistic: str) -> Array:
        """Return the statistic of every two samples, as SciPy's `pdist` orders them."""
        from scipy.spatial.distance import pdist, squareform

        X, squared = self.X.astype(np.float64, copy=False), statistic == "squared_distances"
        # Of many columns inner products are several times faster than differences; of counts,
        # common entries.
        if (
            sparse.issparse(X)
            or (squared and X.shape[1] > 32)
            or (not squared and _common_entries(X, X) is not None)
        ):
            found = squareform(pairwise_statistic(statistic, X, X), checks=False)
        else:
            found = pdist(X, "sqeuclidean" if squared else "cityblock")
        if self.keep:
            self.distances[statistic] = squareform(found)
        return np.asarray(found)

    def _median(self, statistic: str, most: int = 2000) -> float:
        """Return the median over distinct samples; of more than `most`, over an even sub-sample of
        them."""
        n = self.X.shape[0]
        if n > most:
            rows = _distinct(self.X)
            some = rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))]
            return FitSamples(self.X[some])._median(statistic)
        values = self._measure(statistic) if n > 1 else np.empty(0)
        # Where no distance is zero no sample is repeated.
        if len(values) and values.min() == 0:
            from scipy.spatial.distance import squareform

            rows = _distinct(self.X)
            values = squareform(squareform(values)[np.ix_(rows, rows)], checks=False)
        return _middle(values, statistic) if len(values) else 0.0

    def _mean_nearest(self, statistic: str) -> float:
        """Return the mean distance from a sample to the nearest that differs from it."""
        X = self.X[_distinct(self.X)]
        n = X.shape[0]
        if n < 2:
            return 0.0
        # With more columns a search tree is slower than all pairs.
        if not sparse.issparse(X) and X.shape[1] <= 15:
            from sklearn.neighbors import NearestNeighbors

            metric = "euclidean" if statistic == "squared_distances" else "cityblock"
            # Of differences: where all pairs are compared, scikit-learn makes Euclidean distances
            # of inner products.
            found = (
                NearestNeighbors(n_neighbors=1, metric=metric, algorithm="kd_tree")
                .fit(X)
                .kneighbors()[0]
            )
            return float(found.mean())
        nearest = np.empty(n)
        for strip in row_strips(n, 2**22 // n):
            D = pairwise_statistic(statistic, X[strip], X)
            D[np.arange(len(D)), np.arange(strip.start, strip.stop)] = np.inf
            nearest[strip] = D.min(axis=1)
        return float(np.mean(np.sqrt(nearest) if statistic == "squared_distances" else nearest))


def _distinct(X: MatrixLike) -> Indices:
    """Return the numbers of distinct samples: repeated ones carry no information on the scale of
    the data."""
    if not sparse.issparse(X):
        return np.asarray(np.unique(X, axis=0, return_index=True)[1])
    X = X.copy()
    # Stored zeros and unsorted columns would make equal rows look different.
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in pairwise(X.indptr)]
    return np.sort(np.unique(np.array(keys, dtype=object), return_index=True)[1])


def _middle(values: Array, statistic: str) -> float:
    """Return the median of distances, several times faster than NumPy's, which selects three
    positions.

    The values are put into another order.
    """
    middle = len(values) // 2
    values.partition(middle)
    ends = np.array([values[middle] if len(values) % 2 else values[:middle].max(), values[middle]])
    return float(np.mean(np.sqrt(ends) if statistic == "squared_distances" else ends))


def standardised_ranks(column: NDArray[Any]) -> tuple[Array, Array]:
    """Return the distinct entries in order, and their ranks with mean zero and variance one over
    all entries."""
    values, counts = np.unique(column, return_counts=True)
    ranks = np.cumsum(counts) - 0.5 * (counts - 1)
    ranks = ranks - 0.5 * (len(column) + 1)
    spread = np.sqrt(counts @ ranks**2 / len(column))
    return values, ranks / spread if spread > 0 else np.zeros(len(values))


def to_ranks(X: MatrixLike, values: Sequence[Any], ranks: Sequence[Any]) -> NDArray[Any]:
    """Return the ranks of the entries, interpolated between known ones, in the shape and the
    precision of X."""
    X = np.asarray(X)
    out = np.empty(X.shape, dtype=np.float32 if X.dtype == np.float32 else np.float64)
    for j, (known, own) in enumerate(zip(values, ranks, strict=True)):
        out[:, j] = np.interp(X[:, j], known, own)
    return out
