"""Views that samples lack: which they are, what stands in for them, and the kernels that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from kernelmosaic._typing import AnyArray, Array, Indices, Mask, MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.gram.kernel_set import KernelSet, Views, read_columns, take_rows, take_view
from kernelmosaic.gram.tuning import (
    DISTANCE_DIGITS,
    NEIGHBOURS,
    SPREAD_NUMBERS,
    SPREAD_SAMPLES,
    STRIP_BYTES_OF_NEIGHBOURS,
)
from kernelmosaic.kernels.base import named
from kernelmosaic.kernels.matrices import MatrixRows, NewRows
from kernelmosaic.row_order import content_hashes, on_grid

#: The values that `missing` may have.
RULES = ("neighbors", "zero")
#: The rule under gates, which are zero for a view that a sample lacks.
GATED = "gated"


def present_views(kernels: Sequence[Any], X: MatrixLike) -> Mask | None:
    """Return which of the kernels' views the samples have, of shape (n, P); None if they have all.

    Parameters
    ----------
    kernels : sequence of KernelSpec or FittedKernel
        The kernels with the columns they read.
    X : array or sparse matrix of shape (n, n_features)
        Samples. A sparse sample lacks a view if one of its columns has NaN, see `first_columns`.

    Raises
    ------
    ValueError
        If a sample has no view at all.
    """
    reads_matrices = any(isinstance(kernel.kernel, MatrixRows) for kernel in kernels)
    # A sum is NaN if any entry is, and is faster than a search for the entry.
    if not reads_matrices and X.dtype.kind in "biuf" and np.isfinite(X.sum()):
        return None
    n_samples = X.shape[0]
    present = np.ones((n_samples, len(kernels)), dtype=bool)
    gaps = _gaps(X) if sparse.issparse(X) else None
    present_by_key: dict[Any, Mask] = {}
    for m, kernel in enumerate(kernels):
        # Each precomputed matrix may have gaps of its own, whatever the columns.
        matrix_number = m if isinstance(kernel.kernel, MatrixRows) else None
        columns = None if kernel.columns is None else kernel.columns.tobytes()
        key = (matrix_number, columns)
        if key not in present_by_key:
            with named(kernel.name):
                if gaps is None:
                    present_by_key[key] = ~kernel.kernel.lacks(take_view(X, kernel))
                else:
                    present_by_key[key] = take_view(gaps, kernel).sum(axis=1) == 0
        present[:, m] = present_by_key[key]
    if present.all():
        return None
    without_views = np.flatnonzero(~present.any(axis=1))
    if len(without_views):
        raise ValueError(
            f"X[{without_views[0]}] has no view at all: what every kernel reads of it contains NaN"
            f" only; leave such samples out ({len(without_views)} of {len(present)})."
        )
    return present


def first_columns(
    specs: Sequence[Any], tables: Sequence[str]
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return which columns of a sparse matrix hold NaN where a sample lacks a table.

    For each kernel this is the first of its columns alone: few entries, which stay NaN if rows are
    taken or scaled.

    Parameters
    ----------
    specs : sequence of KernelSpec
        The kernels with the columns they read.
    tables : sequence of str
        The table of every column.

    Returns
    -------
    columns : dict of str to list of int
        For each table, these columns.
    across : dict of str to str
        For each table that is read together with another one, a kernel that reads both.
    """
    columns_of_table: dict[str, list[int]] = {}
    kernel_across: dict[str, str] = {}
    for spec in specs:
        columns = range(len(tables)) if spec.columns is None else spec.columns.tolist()
        tables_read = {tables[j] for j in columns}
        columns_of_table.setdefault(min(tables_read), []).append(columns[0])
        if len(tables_read) > 1:
            kernel_across |= dict.fromkeys(tables_read, spec.name)
    return columns_of_table, kernel_across


def filled(X: MatrixLike, kernels: Sequence[Any]) -> MatrixLike:
    """Return sparse samples as an array, with NaN in all columns of the views that they lack.

    Samples that are not sparse are returned as they are.
    """
    if not sparse.issparse(X):
        return X
    present = present_views(kernels, X)
    values = X.toarray()
    if present is None:
        return values
    for kernel, has_view in zip(kernels, present.T, strict=True):
        columns = np.arange(X.shape[1]) if kernel.columns is None else kernel.columns
        values[np.ix_(~has_view, columns)] = np.nan
    return values


def _gaps(X: MatrixLike) -> Any:
    """Return a sparse matrix that is one where sparse samples have NaN."""
    X = X.tocoo()
    is_gap = np.isnan(X.data)
    ones = np.ones(int(is_gap.sum()))
    return sparse.csc_array((ones, (X.row[is_gap], X.col[is_gap])), shape=X.shape)


class MissingViews:
    """What a fitted model stores to complete the views that samples may lack.

    A sample x without view m is given one in the feature space of kernel m. With the rule
    ``"neighbors"`` it is the mean of φ_m over the training samples most like x among those that
    have the view: an estimate of the conditional mean of φ_m, given the other views of x. With
    ``"zero"`` it is zero, and the views that x has are multiplied by √(P / P_x), P_x being their
    number, so that samples with few views are as long as others. With ``"gated"`` it is zero, and
    the other views stay as they are. Whatever the rule, the kernel of all samples is that of
    feature vectors, and so positive semi-definite, and the problem of the weights stays convex.

    The distance of two samples is the mean, over the kernels k that both have, of
    ‖φ_k(x) − φ_k(z)‖² in units of its mean over the training set, with one more kernel at that
    mean. Each kernel is weighted by its centred alignment with kernel m: kernels similar to it
    predict it better.

    Parameters
    ----------
    rule : {"neighbors", "zero", "gated"}
        What stands in for a view.
    kernel_set : KernelSet
        The kernels, each fitted to the training samples that have its view.
    X : array of shape (n, n_features)
        The training samples.
    present : ndarray of shape (n, P), or None
        Which views they have; None means all.
    """

    def __init__(
        self, rule: str, kernel_set: KernelSet, X: MatrixLike, present: Mask | None
    ) -> None:
        self.rule = rule
        self.kernel_set = kernel_set
        if present is None:
            self.present = np.ones((X.shape[0], len(kernel_set)), dtype=bool)
        else:
            self.present = present
        # Kernels are evaluated on all samples, and this row is put in where a sample lacks the
        # view: any row that has it will do, since these values are replaced.
        self.stand_ins = []
        first_rows = self.present.argmax(axis=0).tolist()
        for fitted_kernel, i in zip(kernel_set.fitted, first_rows, strict=True):
            self.stand_ins.append(read_columns(X[i : i + 1], fitted_kernel.columns).copy())
        # Only neighbours are looked for among the training samples.
        self.views = self.views_of(X, present) if rule == "neighbors" else Views()
        self._constants: tuple[Array, Array] | None = None
        self._order: Indices | None = None

    def views_of(self, X: MatrixLike, present: Mask | None) -> Views:
        """Return samples as the kernels read them, with any row where they lack a view."""
        return self.kernel_set.views(X, present, self.stand_ins)

    def present_in(self, X: MatrixLike) -> Mask | None:
        """Return which views samples have, of shape (n, P); None if they have all."""
        return present_views(self.kernel_set.fitted, X)

    def factors(self, present: Mask) -> Array:
        """Return what multiplies the feature vectors of the views that samples have.

        The factors have the shape (n, P), and are zero where a sample lacks the view.
        """
        factors = present.astype(np.float64)
        if self.rule == "zero":
            factors *= np.sqrt(factors.shape[1] / factors.sum(axis=1, keepdims=True))
        return factors

    def neighbors(self, views: Views, present: Mask) -> list[Any]:
        """Return the weights of training samples in the stand-ins of n samples, for every kernel.

        Each is a sparse matrix of shape (n, n_training), whose rows are zero for samples that have
        the view; or None if all have it.

        Parameters
        ----------
        views : Views
            The n samples as the kernels read them.
        present : ndarray of shape (n, P)
            Which views they have.
        """
        n_kernels, n_training = len(self.kernel_set), len(self.present)
        spreads, likeness = self._spreads_and_likeness()
        order = self._content_order()
        has_view = self.present.astype(np.float64)
        training_diagonals = self.kernel_set.diagonals(self.views)
        if isinstance(views[0], NewRows):
            # Blocks of given similarities do not hold k(x, x): it is taken for the mean of the
            # training samples.
            means = (training_diagonals * has_view.T).sum(axis=1) / has_view.sum(axis=0)
            diagonals = np.repeat(means[:, np.newaxis], len(present), axis=1)
        else:
            diagonals = self.kernel_set.diagonals(views)
        incomplete_kernels = np.flatnonzero(~present.all(axis=0)).tolist()
        parts: list[list[Any]] = [[] for _ in range(n_kernels)]
        strip_rows = STRIP_BYTES_OF_NEIGHBOURS // (8 * n_training * n_kernels)
        for rows in row_strips(len(present), strip_rows):
            # 1. ‖φ_m(x) − φ_m(z)‖² in units of its mean, zero where x or z lacks the view.
            distances = np.empty((n_kernels, rows.stop - rows.start, n_training))
            blocks = self.kernel_set.blocks(take_rows(views, rows), self.views, range(n_kernels))
            for m, K in blocks:
                squares = diagonals[m, rows, np.newaxis] + training_diagonals[m] - 2.0 * K
                distances[m] = np.maximum(squares, 0.0)
                distances[m] *= present[rows, m, np.newaxis] * (has_view[:, m] / spreads[m])
            # 2. The mean over the kernels that x and z share, weighted by their likeness to m. One
            # more kernel, at the mean distance, is added: with few shared kernels, samples are
            # near by chance.
            for m in incomplete_kernels:
                lacking = np.flatnonzero(~present[rows, m])
                weight = likeness[m]
                D = np.tensordot(weight, distances[:, lacking], axes=1)
                shared = (present[rows][lacking] * weight) @ has_view.T
                D = np.where(shared > 0, (D + 1.0) / (shared + 1.0), np.inf)
                candidates = order[self.present[order, m]]
                parts[m].append(_nearest(D, lacking, candidates, distances.shape[1:]))
        weights: list[Any] = [None] * n_kernels
        for m in incomplete_kernels:
            weights[m] = sparse.vstack(parts[m], format="csr")
        return weights

    def complete(self, matrices: AnyArray) -> list[Any]:
        """Change the Gram matrices of the training set to those of the completed feature vectors.

        Parameters
        ----------
        matrices : ndarray of shape (P, n, n)
            Matrices of the samples with any row where they lack a view; they are overwritten.

        Returns
        -------
        list
            For every kernel the weights of `neighbors`; None where no sample lacks its view, and
            for other rules.
        """
        if self.rule != "neighbors":
            factors = self.factors(self.present).T.astype(matrices.dtype)
            for K, factor in zip(matrices, factors, strict=True):
                K *= factor[:, np.newaxis]
                K *= factor
            return [None] * len(matrices)
        weights = self.neighbors(self.views, self.present)
        for m, kernel_weights in enumerate(weights):
            if kernel_weights is None:
                continue
            lacking = np.flatnonzero(~self.present[:, m])
            S = kernel_weights[lacking].astype(matrices.dtype)
            # φ of a stand-in is Sφ: its products with the others are SK, among stand-ins SKSᵀ.
            between = S @ matrices[m]
            among = S @ between.T
            matrices[m][lacking] = between
            matrices[m][:, lacking] = between.T
            matrices[m][np.ix_(lacking, lacking)] = (among + among.T) / 2
        return weights

    def blocks(self, X: MatrixLike, Y: MatrixLike, kernels: Indices) -> Iterator[tuple[int, Array]]:
        """Yield (m, kernel m between the completed feature vectors of X and Y)."""
        views_X, present_X = self._views_and_present(X)
        views_Y, present_Y = self._views_and_present(Y)
        if self.rule != "neighbors":
            factors_X, factors_Y = self.factors(present_X), self.factors(present_Y)
            for m, K in self.kernel_set.blocks(views_X, views_Y, kernels):
                yield m, factors_X[:, [m]] * K * factors_Y[:, m]
            return
        weights_X = self.neighbors(views_X, present_X)
        weights_Y = self.neighbors(views_Y, present_Y)
        for m in kernels.tolist():
            K = self._block(m, views_X, views_Y)
            K_XT = self._block(m, views_X, self.views)
            K_TY = self._block(m, self.views, views_Y)
            K_TT = self._block(m, self.views, self.views)
            if weights_X[m] is not None:
                lacking = ~present_X[:, m]
                K[lacking] = (weights_X[m] @ K_TY)[lacking]
                K_XT[lacking] = (weights_X[m] @ K_TT)[lacking]
            if weights_Y[m] is not None:
                lacking = ~present_Y[:, m]
                K[:, lacking] = (weights_Y[m] @ K_XT.T).T[:, lacking]
            yield m, K

    def _block(self, m: int, X: Views, Y: Views) -> Array:
        """Return the block of kernel m between two sets of samples."""
        return next(self.kernel_set.blocks(X, Y, [m]))[1]

    def _views_and_present(self, X: MatrixLike) -> tuple[Views, Mask]:
        """Return `views_of` samples, and which views they have, of shape (n, P)."""
        present = self.present_in(X)
        if present is None:
            present = np.ones((X.shape[0], len(self.kernel_set)), dtype=bool)
        return self.views_of(X, present), present

    def _spreads_and_likeness(self) -> tuple[Array, Array]:
        """Return two properties of the kernels on the training set; they are computed once.

        Returns
        -------
        spreads : ndarray of shape (P,)
            The mean of ‖φ_m(x) − φ_m(z)‖² over pairs of samples that have the view.
        likeness : ndarray of shape (P, P)
            The centred alignment of every two kernels, over the samples that have both views, in
            units of its mean over the other kernels of a row. Negative alignments, and that of a
            kernel with itself, count as zero.
        """
        if self._constants is None:
            P, n = len(self.kernel_set), len(self.present)
            n_rows = min(SPREAD_SAMPLES, max(int((SPREAD_NUMBERS / P) ** 0.5), 1))
            rows = np.arange(n) if n <= n_rows else self._content_order()[:n_rows]
            views = take_rows(self.views, rows)
            # Whether both samples of a pair have the view, of shape (P, n_rows²).
            has_both = np.array(
                [np.outer(has_view, has_view).ravel() for has_view in self.present[rows].T],
                dtype=np.float64,
            )
            spreads = np.ones(P)
            centred = np.zeros(has_both.shape)
            for m, K in self.kernel_set.blocks(views, views, range(P)):
                fractions = self.present[rows, m].astype(np.float64)
                if not fractions.any():
                    continue
                fractions /= fractions.sum()
                means = K @ fractions
                mean = fractions @ means
                spread = 2.0 * float(fractions @ K.diagonal() - mean)
                if spread > 0:
                    spreads[m] = spread
                centred[m] = has_both[m] * (K - means[:, np.newaxis] - means + mean).ravel()
            squared_norms = np.square(centred) @ has_both.T
            scale = np.sqrt(squared_norms * squared_norms.T)
            alignment = np.divide(centred @ centred.T, scale, out=np.zeros((P, P)), where=scale > 0)
            likeness = np.maximum(alignment, 0.0)
            np.fill_diagonal(likeness, 0.0)
            total = likeness.sum(axis=1, keepdims=True)
            # A kernel that is like no other weighs all others alike.
            divisor = np.where(total > 0, total, 1.0)
            likeness = np.where(total > 0, likeness * (P - 1) / divisor, 1.0)
            self._constants = spreads, likeness
        return self._constants

    def _content_order(self) -> Indices:
        """Return the training samples sorted by a hash of their content.

        The result does not depend on the order of the rows.
        """
        if self._order is None:
            hashes = np.zeros(len(self.present), dtype=np.uint64)
            for number, view in enumerate(self.views.distinct):
                has_view = self.present[:, self.views.which.index(number)]
                # Sums beyond 64 bits start again from zero.
                hashes += np.where(has_view, _hashes_of_samples(view, seed=number), np.uint64(0))
            self._order = np.argsort(hashes, kind="stable")
        return self._order


def _hashes_of_samples(view: Any, seed: int) -> AnyArray:
    """Return a hash of the content of every sample of a view, as 64-bit integers."""
    if hasattr(view, "dtype"):
        table = view[:, np.newaxis] if view.ndim == 1 else view
        return content_hashes(on_grid(table), seed)
    n_samples = view.shape[0]
    samples = np.empty(n_samples, dtype=object)
    for i in range(n_samples):
        samples[i] = view[i : i + 1]
    return content_hashes(samples, seed)


def _nearest(D: Array, rows: Indices, candidates: Indices, shape: tuple[int, int]) -> MatrixLike:
    """Return equal weights of the nearest training samples, as a sparse matrix of this shape.

    Of samples that are equally near, the first candidates are taken. A row of infinite distances
    has equal weights of all candidates.

    Parameters
    ----------
    D : ndarray of shape (n_rows, n_training)
        Distances.
    rows : ndarray of shape (n_rows,)
        The rows of the result that these samples have.
    candidates : ndarray of int
        The training samples that have the view.
    shape : tuple of int
        Number of samples and n_training.
    """
    # In units of a mean distance: samples whose distances differ by rounding are equally near.
    E = np.round(D[:, candidates], DISTANCE_DIGITS)
    nearest = np.argsort(E, axis=1, kind="stable")[:, :NEIGHBOURS]
    is_finite = np.isfinite(np.take_along_axis(E, nearest, axis=1))
    is_near = np.zeros(E.shape, dtype=bool)
    np.put_along_axis(is_near, nearest, is_finite, axis=1)
    is_near[~is_near.any(axis=1)] = True
    row_numbers, columns = np.nonzero(is_near)
    weights = 1.0 / is_near.sum(axis=1)[row_numbers]
    places = rows[row_numbers], candidates[columns]
    return sparse.csr_array((weights, places), shape=shape)
