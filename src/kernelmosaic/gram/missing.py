"""Views that some samples lack: which, what stands in for them, and the kernels between all samples
that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from kernelmosaic._typing import AnyArray, Array, Indices, Mask, MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.gram.kernel_set import KernelSet, Views, read_columns, take_rows, take_view
from kernelmosaic.kernels.base import named
from kernelmosaic.kernels.matrices import MatrixRows, NewRows
from kernelmosaic.row_order import content_hashes, on_grid

#: What `missing` may be; and what it is under gates, which are zero then.
RULES = ("neighbors", "zero")
GATED = "gated"


def present_views(kernels: Sequence[Any], X: MatrixLike) -> Mask | None:
    """Return which of the kernels' views the samples have, of shape (n, P); None if they have all.

    Parameters
    ----------
    kernels : sequence of KernelSpec or FittedKernel
        The kernels with the columns they read.
    X : array or sparse matrix of shape (n, n_features)
        Samples; a sparse one lacks a view if one of its columns has NaN, see `first_columns`.
    """
    matrices = any(isinstance(one.kernel, MatrixRows) for one in kernels)
    # A sum is NaN if anything is, and found faster than what is.
    if not matrices and X.dtype.kind in "biuf" and np.isfinite(X.sum()):
        return None
    known: dict[Any, Mask] = {}
    present = np.ones((X.shape[0], len(kernels)), dtype=bool)
    gaps = _gaps(X) if sparse.issparse(X) else None
    for m, one in enumerate(kernels):
        # Matrices may have gaps of their own.
        own = m if isinstance(one.kernel, MatrixRows) else None
        key = (own, None if one.columns is None else one.columns.tobytes())
        if key not in known:
            with named(one.name):
                V = take_view(X if gaps is None else gaps, one)
                known[key] = ~one.kernel.lacks(V) if gaps is None else V.sum(axis=1) == 0
        present[:, m] = known[key]
    if present.all():
        return None
    nothing = np.flatnonzero(~present.any(axis=1))
    if len(nothing):
        raise ValueError(
            f"X[{nothing[0]}] has no view at all: what every kernel reads of it contains NaN only;"
            f" leave such samples out ({len(nothing)} of {len(present)})."
        )
    return present


def first_columns(
    specs: Sequence[Any], tables: Sequence[str]
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return, by table, the columns that come first in the kernels that read it, and a kernel that
    reads others, too.

    A sparse sample that lacks the table has NaN there: few entries, which remain in rows that are
    taken or scaled.

    Parameters
    ----------
    specs : sequence of KernelSpec
        The kernels with the columns they read.
    tables : sequence of str
        The table of every column.
    """
    firsts: dict[str, list[int]] = {}
    across: dict[str, str] = {}
    for one in specs:
        columns = range(len(tables)) if one.columns is None else one.columns.tolist()
        read = {tables[j] for j in columns}
        firsts.setdefault(min(read), []).append(columns[0])
        across |= dict.fromkeys(read if len(read) > 1 else (), one.name)
    return firsts, across


def filled(X: MatrixLike, kernels: Sequence[Any]) -> MatrixLike:
    """Return sparse samples as an array, with NaN in all columns of the views that they lack;
    others as they are."""
    if not sparse.issparse(X):
        return X
    present, values = present_views(kernels, X), X.toarray()
    if present is not None:
        for one, own in zip(kernels, present.T, strict=True):
            values[np.ix_(~own, np.arange(X.shape[1]) if one.columns is None else one.columns)] = (
                np.nan
            )
    return values


def _gaps(X: MatrixLike) -> Any:
    """Return where sparse samples have NaN."""
    X = X.tocoo()
    lost = np.isnan(X.data)
    return sparse.csc_array((np.ones(int(lost.sum())), (X.row[lost], X.col[lost])), shape=X.shape)


class MissingViews:
    """What a fitted model stores to complete views that samples may lack.

    A sample x without view m is given one in the feature space of kernel m. With the rule
    ``"neighbors"`` it is the mean of φ_m over the training samples most like x among those that
    have the view: an estimate of the conditional mean of φ_m, given what is known of x. With
    ``"zero"`` it is zero, and what x has is multiplied by √(P / P_x), P_x being the number of
    kernels it has, so that samples with few views are as long as others; with ``"gated"`` it is
    zero, and the rest is as it is. Whatever the rule, the kernel of all samples is that of feature
    vectors, and so positive semi-definite, and the problem of the weights stays convex.

    How unlike two samples are is the mean, over the kernels k that both have, of ‖φ_k(x) − φ_k(z)‖²
    in units of its mean over the training set, with one more kernel at that mean. Kernels count by
    their centred alignment with the one that is missing: kernels similar to it predict it better.

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
        self.rule, self.kernel_set = rule, kernel_set
        self.present = (
            np.ones((X.shape[0], len(kernel_set)), dtype=bool) if present is None else present
        )
        # Whatever a kernel can be evaluated with: what comes of it is not used.
        self.stand_ins = [
            read_columns(X[i : i + 1], one.columns).copy()
            for one, i in zip(kernel_set.fitted, self.present.argmax(axis=0).tolist(), strict=True)
        ]
        # Only neighbours are looked for among them.
        self.views = self.views_of(X, present) if rule == "neighbors" else Views()
        self._constants: tuple[Array, Array] | None = None
        self._order: Indices | None = None

    def views_of(self, X: MatrixLike, present: Mask | None) -> Views:
        """Return samples as the kernels read them, with stand-ins where they lack a view."""
        return self.kernel_set.views(X, present, self.stand_ins)

    def present_in(self, X: MatrixLike) -> Mask | None:
        """Return which views samples have, of shape (n, P); None if they have all."""
        return present_views(self.kernel_set.fitted, X)

    def factors(self, present: Mask) -> Array:
        """Return what multiplies the feature vectors that samples have themselves, of shape (n,
        P)."""
        own = present.astype(np.float64)
        if self.rule == "zero":
            own *= np.sqrt(own.shape[1] / own.sum(axis=1, keepdims=True))
        return own

    def neighbors(self, views: Views, present: Mask) -> list[Any]:
        """Return, for every kernel, the shares of training samples in what stands in for it, or
        None if all have it.

        Sparse, of shape (n_samples, n); the rows of samples that have the view are zero.
        """
        P, n = len(self.kernel_set), len(self.present)
        spreads, likeness = self._measured()
        order = self._content_order()
        there = self.kernel_set.diagonals(self.views)
        own = self.present.astype(np.float64)
        if isinstance(views[0], NewRows):
            # Blocks of similarities do not hold k(x, x): it is taken for that of a training sample.
            means = (there * own.T).sum(axis=1) / own.sum(axis=0)
            here = np.repeat(means[:, np.newaxis], len(present), axis=1)
        else:
            here = self.kernel_set.diagonals(views)
        found: list[list[Any]] = [[] for _ in range(P)]
        for rows in row_strips(len(present), 2**26 // (8 * n * P)):
            apart = np.empty((P, rows.stop - rows.start, n))
            for m, K in self.kernel_set.blocks(take_rows(views, rows), self.views, range(P)):
                apart[m] = np.maximum(here[m, rows, np.newaxis] + there[m] - 2.0 * K, 0.0)
                apart[m] *= present[rows, m, np.newaxis] * (own[:, m] / spreads[m])
            for m in np.flatnonzero(~present.all(axis=0)).tolist():
                at, weight = np.flatnonzero(~present[rows, m]), likeness[m]
                D = np.tensordot(weight, apart[:, at], axes=1)
                shared = (present[rows][at] * weight) @ own.T
                # As if one more were shared, at the mean distance: with few in common, samples are
                # near by chance.
                D = np.where(shared > 0, (D + 1.0) / (shared + 1.0), np.inf)
                found[m].append(_nearest(D, at, order[self.present[order, m]], apart.shape[1:]))
        return [sparse.vstack(parts, format="csr") if parts else None for parts in found]

    def complete(self, matrices: AnyArray) -> list[Any]:
        """Turn the Gram matrices of the stand-ins, of shape (P, n, n), into those of the feature
        vectors, in place.

        Returns the shares of training samples in what stands in for every kernel, see `neighbors`;
        None for no shares.
        """
        if self.rule != "neighbors":
            for K, own in zip(
                matrices, self.factors(self.present).T.astype(matrices.dtype), strict=True
            ):
                K *= own[:, np.newaxis]
                K *= own
            return [None] * len(matrices)
        found = self.neighbors(self.views, self.present)
        for m, shares in enumerate(found):
            if shares is not None:
                lacking = np.flatnonzero(~self.present[:, m])
                S = shares[lacking].astype(matrices.dtype)
                between = S @ matrices[m]
                among = S @ between.T
                matrices[m][lacking], matrices[m][:, lacking] = between, between.T
                matrices[m][np.ix_(lacking, lacking)] = (among + among.T) / 2
        return found

    def blocks(self, X: MatrixLike, Y: MatrixLike, kernels: Indices) -> Iterator[tuple[int, Array]]:
        """Yield (m, kernel m between the feature vectors of X and Y)."""
        left, right = self._known(X), self._known(Y)
        T = self.views
        if self.rule != "neighbors":
            a, b = self.factors(left[1]), self.factors(right[1])
            for m, K in self.kernel_set.blocks(left[0], right[0], kernels):
                yield m, a[:, [m]] * K * b[:, m]
            return
        across, down = self.neighbors(*left), self.neighbors(*right)
        for m in kernels.tolist():
            pairs = ((left[0], right[0]), (left[0], T), (T, right[0]), (T, T))
            K, KX, KY, KT = (next(self.kernel_set.blocks(A, B, [m]))[1] for A, B in pairs)
            if across[m] is not None:
                lost = ~left[1][:, m]
                K[lost], KX[lost] = (across[m] @ KY)[lost], (across[m] @ KT)[lost]
            if down[m] is not None:
                lost = ~right[1][:, m]
                K[:, lost] = (down[m] @ KX.T).T[:, lost]
            yield m, K

    def _known(self, X: MatrixLike) -> tuple[Views, Mask]:
        present = self.present_in(X)
        if present is None:
            present = np.ones((X.shape[0], len(self.kernel_set)), dtype=bool)
        return self.views_of(X, present), present

    def _measured(self) -> tuple[Array, Array]:
        """Return the mean squared distance in the feature space of every kernel, and how alike the
        kernels are.

        The second, of shape (P, P), has the centred alignment of every two kernels, over the
        samples that have both, in units of its mean over the others of a row; it is zero between a
        kernel and itself.
        """
        if self._constants is None:
            P, n = len(self.kernel_set), len(self.present)
            # At most 300 training samples, and fewer of many kernels, whose matrices have 2²²
            # entries together.
            most = min(300, max(int((2**22 / P) ** 0.5), 1))
            some = np.arange(n) if n <= most else self._content_order()[:most]
            both = np.array(
                [np.outer(own, own).ravel() for own in self.present[some].T], dtype=np.float64
            )
            spreads, flat = np.ones(P), np.zeros(both.shape)
            views = take_rows(self.views, some)
            for m, K in self.kernel_set.blocks(views, views, range(P)):
                own = self.present[some, m].astype(np.float64)
                if own.any():
                    own /= own.sum()
                    means = K @ own
                    spread = 2.0 * float(own @ K.diagonal() - own @ means)
                    spreads[m] = spread if spread > 0 else 1.0
                    flat[m] = both[m] * (K - means[:, np.newaxis] - means + own @ means).ravel()
            norms = np.square(flat) @ both.T
            scale = np.sqrt(norms * norms.T)
            likeness = np.maximum(
                np.divide(flat @ flat.T, scale, out=np.zeros((P, P)), where=scale > 0), 0.0
            )
            np.fill_diagonal(likeness, 0.0)
            total = likeness.sum(axis=1, keepdims=True)
            likeness = np.where(
                total > 0, likeness * (P - 1) / np.where(total > 0, total, 1.0), 1.0
            )
            self._constants = spreads, likeness
        return self._constants

    def _content_order(self) -> Indices:
        """Return the training samples in an order of what they hold, which the order of the rows
        does not change."""
        if self._order is None:
            hashes = np.zeros(len(self.present), dtype=np.uint64)
            for number, view in enumerate(self.views.distinct):
                has_view = self.present[:, self.views.which.index(number)]
                # Sums beyond 64 bits start again from zero.
                hashes += np.where(has_view, _hashes_of_samples(view, seed=number), np.uint64(0))
            self._order = np.argsort(hashes, kind="stable")
        return self._order


def _hashes_of_samples(view: Any, seed: int) -> AnyArray:
    """Return a number for every sample of a view that follows from what it holds."""
    if hasattr(view, "dtype"):
        table = view[:, np.newaxis] if view.ndim == 1 else view
        return content_hashes(on_grid(table), seed)
    n_samples = view.shape[0]
    samples = np.empty(n_samples, dtype=object)
    for i in range(n_samples):
        samples[i] = view[i : i + 1]
    return content_hashes(samples, seed)


def _nearest(D: Array, at: Indices, having: Indices, shape: tuple[int, int]) -> MatrixLike:
    """Return the shares of the six nearest training samples that have a view in what stands in for
    it, in some rows.

    Of samples that are equally near, the first in `having` are taken.
    """
    # In units of a mean distance: what differs by rounding only is equally near.
    E = np.round(D[:, having], 10)
    order = np.argsort(E, axis=1, kind="stable")[:, :6]
    near = np.zeros(E.shape, dtype=bool)
    np.put_along_axis(near, order, np.isfinite(np.take_along_axis(E, order, axis=1)), axis=1)
    # Without a sample to compare with, all are equally near.
    near[~near.any(axis=1)] = True
    rows, columns = np.nonzero(near)
    return sparse.csr_array(
        (1.0 / near.sum(axis=1)[rows], (at[rows], having[columns])), shape=shape
    )
