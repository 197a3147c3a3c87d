"""Inner products and distances of samples, and the widths and ranks that kernels learn from them.

Squared distances are computed from inner products where these leave enough digits, and from
differences where they do not. ‖x‖² + ‖z‖² − 2⟨x, z⟩ is a product of matrices, and fast. Its error
is a fraction of ‖x‖² + ‖z‖², whatever the distance: for two samples that are close to each other,
and far from the others, no digit of it is right. `unreliable_share` states the bound; every pass
over squared distances, on the host, on a device or compiled, computes the entries below it again.
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

#: Entries of the strips in which distances are checked on the host. Chosen by hand: a strip of
#: doubles takes 256 kB, and stays in a processor's cache.
_STRIP_ENTRIES = 2**15
#: Numbers of an array of differences between samples, on the host and on a device. Chosen by hand:
#: on the host they stay in the cache, on a device larger arrays need fewer calls.
_DIFFERENCES_ON_HOST = 2**16
_DIFFERENCES_ON_DEVICE = 2**22
#: Differences from which a compiled loop is faster than NumPy. Chosen by hand.
_COMPILED_DIFFERENCES = 2**14
#: Products of two samples' columns, over all pairs, from which Manhattan distances are computed by
#: a compiled loop: loading it takes as long as SciPy needs for fewer. Chosen by hand.
_COMPILED_MANHATTAN = 2**22
#: Columns, and products over all pairs, from which tables are searched for common entries: with
#: fewer there is nothing to gain. Chosen by hand.
_COMMON_COLUMNS = 100
_COMMON_PRODUCTS = 2**24
#: Columns that are searched first for common entries, to dismiss other tables soon. Chosen by hand.
_SAMPLED_COLUMNS = 50
#: Fraction of the entries that may differ from the common entry of their column. Chosen by hand.
_MAX_UNCOMMON = 0.1
#: Columns from which `pdist` is slower than inner products. Chosen by hand.
_PDIST_COLUMNS = 32
#: Columns up to which a search tree finds neighbours faster than all pairs do. Chosen by hand.
_TREE_COLUMNS = 15
#: Distances that are held at once in the search for nearest neighbours without a tree.
_NEIGHBOUR_ENTRIES = 2**22
#: Samples over which the median distance is measured; more would not change it by much.
_MEDIAN_SAMPLES = 2000


def unreliable_share(
    n_columns: int, largest: float, scale: float, dtype: DType = np.float64
) -> float:
    """Return the fraction of ‖x‖² + ‖z‖² up to which a squared distance is unreliable.

    A distance that was computed from inner products and is not above this fraction is computed
    again from differences.

    Each of the three terms is a sum over d columns in double precision, with the unit ε of its last
    place. Its rounding is at most dε(‖x‖² + ‖z‖²), and about √d ε(‖x‖² + ‖z‖²). A distance below
    the former may be zero: equal samples are always among these. The latter must be no more than
    `ERRORS` of the distance or of the kernel's scale.

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
    epsilon = float(np.finfo(np.float64).eps)
    error = ERRORS[np.dtype(dtype)]
    largest_rounding = (n_columns + 2) * epsilon
    usual_rounding = float(np.sqrt(n_columns)) * epsilon
    if usual_rounding * largest <= error * scale:
        return largest_rounding
    return max(largest_rounding, usual_rounding / error)


def squared_distances(
    X: MatrixLike,
    Y: MatrixLike,
    scale: float = 0.0,
    centre: ArrayOrTensor = None,
    norms: ArrayOrTensor = None,
) -> ArrayOrTensor:
    """Return the squared distances between the rows of X and those of Y.

    Equal rows are at distance zero exactly. From dense rows a centre is subtracted before they are
    multiplied, since far from the origin the norms are much larger than the distances; sparse rows
    would lose their zeros, and are not centred.

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
    dtype = np.result_type(backend.dtype(X), backend.dtype(Y))
    if not (X.shape[0] and Y.shape[0]):
        return backend.zeros((X.shape[0], Y.shape[0]), dtype)
    is_symmetric = Y is X
    X = backend.astype(X, np.float64)
    Y = X if is_symmetric else backend.astype(Y, np.float64)
    left = X
    right = Y
    if not (sparse.issparse(X) or sparse.issparse(Y)):
        if centre is None:
            centre = Y.mean(0)
        left = X - centre
        right = left if is_symmetric else Y - centre
    if norms is None:
        norms = (_squared_norms(left), _squared_norms(right))
    left_norms, right_norms = norms
    if is_tensor(X):
        S = (-2.0 * left) @ right.T
    else:
        S = safe_sparse_dot(-2.0 * left, right.T, dense_output=True)
    largest = float(left_norms.max()) + float(right_norms.max())
    fraction = unreliable_share(X.shape[1], largest, scale)
    _add_norms(S, X, Y, left_norms, right_norms, fraction)
    return backend.astype(S, dtype)


def _add_norms(
    S: ArrayOrTensor,
    X: MatrixLike,
    Y: MatrixLike,
    left_norms: ArrayOrTensor,
    right_norms: ArrayOrTensor,
    fraction: float,
) -> None:
    """Complete S = −2⟨x, z⟩ to squared distances in place, and correct those that are unreliable.

    Distances up to `fraction` of the sum of both norms are computed again from differences. The
    rows of X and Y need not be centred, but the norms are those of centred rows.
    """
    backend = backend_of(X)
    n_columns = S.shape[1]
    is_large = backend is NUMPY and S.shape[0] * n_columns >= TINY**2
    height = _STRIP_ENTRIES // n_columns if backend is NUMPY else len(S)
    for rows in row_strips(len(S), height):
        distances = S[rows]
        totals = left_norms[rows, None] + right_norms
        distances += totals
        totals *= fraction
        # The negation also selects entries that overflowed to NaN.
        unreliable = backend.nonzero((~(distances > totals)).reshape(-1))
        if len(unreliable):
            i = unreliable // n_columns
            j = unreliable % n_columns
            distances[i, j] = _squared_differences(X[rows], Y, i, j, is_large)


def _squared_norms(X: MatrixLike) -> ArrayOrTensor:
    """Return ‖x‖² of every row."""
    return (X * X).sum(1) if is_tensor(X) else row_norms(X, squared=True)


def _squared_differences(
    X: MatrixLike, Y: MatrixLike, i: RowIndex, j: RowIndex, is_large: bool
) -> ArrayOrTensor:
    """Return Σ_c (X[i, c] − Y[j, c])² of pairs of rows, which is exact to the last digit or two.

    Parameters
    ----------
    X, Y : array, sparse matrix or tensor
        Samples.
    i, j : ndarray of int of shape (n_pairs,)
        The rows of each pair.
    is_large : bool
        Whether the block of distances is large enough for compiled loops to be loaded.
    """
    n_columns = int(X.shape[1])
    are_arrays = isinstance(X, np.ndarray) and isinstance(Y, np.ndarray)
    if is_large and are_arrays and len(i) * n_columns >= _COMPILED_DIFFERENCES:
        from kernelmosaic.kernels._numba_pairs import squared_differences

        compiled: Array = squared_differences(
            np.ascontiguousarray(X), np.ascontiguousarray(Y), i, j
        )
        return compiled
    distances = backend_of(X).empty((len(i),))
    numbers_per_pair = 1 if sparse.issparse(X) else max(n_columns, 1)
    budget = _DIFFERENCES_ON_DEVICE if is_tensor(X) else _DIFFERENCES_ON_HOST
    for pairs in row_strips(len(i), budget // numbers_per_pair):
        distances[pairs] = _squared_norms(X[i[pairs]] - Y[j[pairs]])
    return distances


def pairwise_statistic(
    name: str,
    X: MatrixLike,
    Y: MatrixLike,
    scale: float = 0.0,
    centre: ArrayOrTensor = None,
    norms: tuple[Any, Any] | None = None,
) -> AnyArray:
    """Return the inner products or distances between the rows of X and those of Y.

    Parameters
    ----------
    name : {"products", "squared_distances", "manhattan_distances"}
        The statistic.
    X, Y : array, sparse matrix or tensor
        Samples.
    scale, centre, norms
        As in `squared_distances`; other statistics do not read them.
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

    In tables of counts, scaled or not, most entries of a column are the same number. Subtracting
    that number from the column does not change the distances, and only the other entries, which are
    then not zero, need to be read.
    """
    if not (sparse.issparse(X) or sparse.issparse(Y)):
        common = _common_entries(X, Y)
        if common is None:
            return _dense_manhattan_distances(X, Y)
        X = X - common
        Y = Y - common
    from kernelmosaic.kernels._numba_pairs import manhattan_of_nonzeros

    arrays: list[Any] = []
    for samples in (X, Y):
        rows = sparse.csr_array(samples, dtype=np.float64)
        if not rows.has_canonical_format:
            # The columns are sorted in a copy: the arrays may be the caller's.
            rows = rows.copy()
            rows.sum_duplicates()
        arrays += [rows.data, rows.indices.astype(np.intp), rows.indptr.astype(np.intp)]
    return np.asarray(manhattan_of_nonzeros(*arrays, X.shape[1]))


def _dense_manhattan_distances(X: NDArray[Any], Y: NDArray[Any]) -> Array:
    """Return Σ_c |x_c − y_c| for all rows of two arrays, by SciPy if they are small."""
    if len(X) * len(Y) * X.shape[1] < _COMPILED_MANHATTAN:
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(X, Y, "cityblock"))
    from kernelmosaic.kernels._numba_pairs import manhattan

    left = np.ascontiguousarray(X, dtype=np.float64)
    right = np.ascontiguousarray(Y.T, dtype=np.float64)
    return np.asarray(manhattan(left, right))


def _common_entries(X: NDArray[Any], Y: NDArray[Any]) -> Array | None:
    """Return the median of every column of Y if most entries of X and of Y are equal to it.

    None if more than `_MAX_UNCOMMON` of the entries differ, or if the arrays are too small for this
    to save time.
    """
    n_products = len(X) * len(Y) * X.shape[1]
    if X.shape[1] < _COMMON_COLUMNS or n_products < _COMMON_PRODUCTS:
        return None
    # Some columns first, which dismiss most tables, then all of them.
    for columns in (slice(None, None, X.shape[1] // _SAMPLED_COLUMNS), slice(None)):
        medians = np.median(Y[:, columns], axis=0)
        for samples in (X, Y):
            n_uncommon = np.count_nonzero(samples[:, columns] - medians)
            if n_uncommon > _MAX_UNCOMMON * samples[:, columns].size:
                return None
    return np.asarray(medians)


@dataclass(eq=False)
class FitSamples:
    """Validated samples that kernels are fitted to, with a cache of what several kernels learn.

    Widths, ranks and, if `keep` is set, distances are computed once for all kernels.

    Parameters
    ----------
    X : array or sparse matrix
        Samples in the form that the kernels read.
    keep : bool
        Whether distances that were measured between all samples are stored in `distances`.

    Attributes
    ----------
    distances : dict of str to ndarray of shape (n, n)
        The stored distances, by the name of the statistic.
    """

    X: MatrixLike
    keep: bool = False
    distances: dict[str, Array] = field(default_factory=dict, init=False)
    _widths: dict[tuple[str, str], float] = field(default_factory=dict, init=False)

    def width(self, rule: str, statistic: str) -> float:
        """Return the width by a rule, as a distance; 0 if all samples are equal.

        Parameters
        ----------
        rule : {"median", "nearest"}
            The median distance between two samples, or the mean distance to the nearest neighbour.
        statistic : {"squared_distances", "manhattan_distances"}
            The distance, of which the statistic may be the square.
        """
        if (rule, statistic) not in self._widths:
            measure = self._median if rule == "median" else self._mean_nearest
            self._widths[rule, statistic] = measure(statistic)
        return self._widths[rule, statistic]

    @cached_property
    def ranked(self) -> tuple[list[Array], list[Array], FitSamples]:
        """For every column the distinct entries and their ranks, and the samples as ranks.

        The ranks are those of `standardised_ranks`.
        """
        values, ranks = [], []
        for column in np.asarray(self.X, dtype=np.float64).T:
            column_values, column_ranks = standardised_ranks(column)
            values.append(column_values)
            ranks.append(column_ranks)
        return values, ranks, FitSamples(to_ranks(self.X, values, ranks), self.keep)

    def _measure(self, statistic: str) -> Array:
        """Return the statistic of every two samples, in the order of SciPy's `pdist`.

        With `keep`, also store it in `distances`.
        """
        from scipy.spatial.distance import pdist, squareform

        X = self.X.astype(np.float64, copy=False)
        is_squared = statistic == "squared_distances"
        # With many columns inner products are several times faster than differences; with counts,
        # common entries are.
        if sparse.issparse(X):
            is_faster_as_block = True
        elif is_squared:
            is_faster_as_block = X.shape[1] > _PDIST_COLUMNS
        else:
            is_faster_as_block = _common_entries(X, X) is not None
        if is_faster_as_block:
            condensed = squareform(pairwise_statistic(statistic, X, X), checks=False)
        else:
            condensed = pdist(X, "sqeuclidean" if is_squared else "cityblock")
        if self.keep:
            self.distances[statistic] = squareform(condensed)
        return np.asarray(condensed)

    def _median(self, statistic: str) -> float:
        """Return the median distance between distinct samples, 0 if there is only one.

        With more than `_MEDIAN_SAMPLES` samples, an evenly spaced sub-sample of them is measured.
        """
        n = self.X.shape[0]
        if n > _MEDIAN_SAMPLES:
            rows = _distinct(self.X)
            positions = np.unique(np.linspace(0, len(rows) - 1, _MEDIAN_SAMPLES).astype(int))
            return FitSamples(self.X[rows[positions]])._median(statistic)
        values = self._measure(statistic) if n > 1 else np.empty(0)
        # If no distance is zero, no sample is repeated.
        if len(values) and values.min() == 0:
            from scipy.spatial.distance import squareform

            rows = _distinct(self.X)
            values = squareform(squareform(values)[np.ix_(rows, rows)], checks=False)
        return _median_distance(values, statistic) if len(values) else 0.0

    def _mean_nearest(self, statistic: str) -> float:
        """Return the mean distance from a sample to the nearest one that differs from it.

        0 if there is only one distinct sample.
        """
        X = self.X[_distinct(self.X)]
        n = X.shape[0]
        if n < 2:
            return 0.0
        if not sparse.issparse(X) and X.shape[1] <= _TREE_COLUMNS:
            from sklearn.neighbors import NearestNeighbors

            metric = "euclidean" if statistic == "squared_distances" else "cityblock"
            # The tree computes distances from differences; comparing all pairs, scikit-learn would
            # compute Euclidean distances from inner products.
            neighbours = NearestNeighbors(n_neighbors=1, metric=metric, algorithm="kd_tree")
            distances, _ = neighbours.fit(X).kneighbors()
            return float(distances.mean())
        nearest = np.empty(n)
        for strip in row_strips(n, _NEIGHBOUR_ENTRIES // n):
            D = pairwise_statistic(statistic, X[strip], X)
            D[np.arange(len(D)), np.arange(strip.start, strip.stop)] = np.inf
            nearest[strip] = D.min(axis=1)
        if statistic == "squared_distances":
            nearest = np.sqrt(nearest)
        return float(np.mean(nearest))


def _distinct(X: MatrixLike) -> Indices:
    """Return the numbers of distinct samples, one for each group of equal samples.

    Repeated samples carry no information on the scale of the data.
    """
    if not sparse.issparse(X):
        return np.asarray(np.unique(X, axis=0, return_index=True)[1])
    X = X.copy()
    # Stored zeros and unsorted columns would make equal rows look different.
    X.sum_duplicates()
    X.eliminate_zeros()
    keys = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in pairwise(X.indptr)]
    return np.sort(np.unique(np.array(keys, dtype=object), return_index=True)[1])


def _median_distance(values: Array, statistic: str) -> float:
    """Return the median of distances; their order in the array changes.

    `values` are squared if the statistic is. One partition makes this several times faster than
    NumPy's median, which selects three positions.
    """
    middle = len(values) // 2
    values.partition(middle)
    lower = values[middle] if len(values) % 2 else values[:middle].max()
    middle_values = np.array([lower, values[middle]])
    if statistic == "squared_distances":
        middle_values = np.sqrt(middle_values)
    return float(np.mean(middle_values))


def standardised_ranks(column: NDArray[Any]) -> tuple[Array, Array]:
    """Return the distinct entries of a column in order, and their standardised ranks.

    Equal entries have the mean of their ranks; over all entries, ranks have mean zero and variance
    one. The ranks of a constant column are zero.
    """
    values, counts = np.unique(column, return_counts=True)
    ranks = np.cumsum(counts) - 0.5 * (counts - 1)
    ranks = ranks - 0.5 * (len(column) + 1)
    deviation = np.sqrt(counts @ ranks**2 / len(column))
    if deviation > 0:
        return values, ranks / deviation
    return values, np.zeros(len(values))


def to_ranks(X: MatrixLike, values: Sequence[Any], ranks: Sequence[Any]) -> NDArray[Any]:
    """Return the ranks of the entries of X, in the shape and the precision of X.

    Entries between two values of the training set have an interpolated rank.

    Parameters
    ----------
    X : array of shape (n, n_columns)
        Samples.
    values, ranks : list of ndarray
        For every column the distinct entries of the training set, in order, and their ranks.
    """
    X = np.asarray(X)
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    ranked = np.empty(X.shape, dtype=dtype)
    for j, (column_values, column_ranks) in enumerate(zip(values, ranks, strict=True)):
        ranked[:, j] = np.interp(X[:, j], column_values, column_ranks)
    return ranked
