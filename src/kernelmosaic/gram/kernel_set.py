"""The kernel set: named kernels, each on its columns and on a common scale, fitted to a training
set."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from kernelmosaic._typing import AnyArray, Array, DType, Indices, Mask, MatrixLike, RowIndex
from kernelmosaic.backend import NUMPY, Backend, is_tensor, row_strips, torch_backend
from kernelmosaic.gram.normalizing import Normalization, make_normalization, warn_of_constant
from kernelmosaic.gram.options import device_entries
from kernelmosaic.kernels.base import Block, Kernel, StatisticKernel, named
from kernelmosaic.kernels.distances import FitSamples, pairwise_statistic
from kernelmosaic.kernels.matrices import MatrixRows, NewRows, Precomputed
from kernelmosaic.kernels.numeric import Radial
from kernelmosaic.kernels.views import KernelSpec, take_columns

#: Numbers of kernels.
Kernels = Sequence[int] | AnyArray
#: Of a training set, the distances between all samples that widths were learned of: by the number
#: of the view and the name of the statistic.
Distances = Mapping[tuple[int, str], Array]


@dataclass(frozen=True)
class Views(Sequence[Any]):
    """Samples as each kernel reads them; item m is what kernel m reads.

    Attributes
    ----------
    distinct : tuple
        What kernels read: some columns, prepared or not.
    which : tuple of int
        Of every kernel, the number of what it reads. Kernels of the same number share what is
        computed of it.
    """

    distinct: tuple[Any, ...] = ()
    which: tuple[int, ...] = ()

    @classmethod
    def of(cls, keys: Sequence[Hashable], arrays: Mapping[Any, Any]) -> Views:
        """Return the views of kernels, by keys that are equal for kernels that read the same."""
        numbers = {key: v for v, key in enumerate(arrays)}
        return cls(tuple(arrays.values()), tuple(numbers[key] for key in keys))

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, m: Any) -> Any:
        return self.distinct[self.which[m]]

    def take(self, kernels: Kernels) -> Views:
        """Return what some kernels read, in this order."""
        which = [self.which[m] for m in kernels]
        return Views.of(which, {v: self.distinct[v] for v in which})


@dataclass(frozen=True)
class PlacedSamples:
    """Samples as kernels read them, on a backend, with what normalising needs; every list has one
    item per kernel.

    Attributes
    ----------
    backend : Backend
        Where blocks between them are computed.
    views : Views
        Arrays of the backend for kernels with a formula there; else what the kernel itself reads,
        on the host.
    row_scales : list
        What each kernel's normalisation needs of the samples, or None.
    shares : list of bool
        Whether the kernel is evaluated on the backend; on the host, whether it is a function of a
        statistic, which kernels with the same view share.
    centres, norms : tuple
        Of every distinct view on a device: what is taken off the samples before they are multiplied
        for squared distances, and their squared norms then; else None. The samples themselves stay
        as they are: differences of rounded ones are rounded, too.
    distances : dict
        Of a training set on the host, the distances that are known.
    rows : ndarray, optional
        Which samples of that training set these are.
    """

    backend: Backend
    views: Views
    row_scales: list[Any]
    shares: list[bool]
    centres: tuple[Any, ...]
    norms: tuple[Any, ...]
    distances: Distances = field(default_factory=dict)
    rows: Any = None

    @property
    def n_samples(self) -> int:
        return int(self.views[0].shape[0])

    def take(self, rows: RowIndex) -> PlacedSamples:
        """Return some samples: a slice or an array of row numbers."""

        def cut(array: Any) -> Any:
            return (
                None
                if array is None
                else array[self.backend.index(rows) if is_tensor(array) else rows]
            )

        return replace(
            self,
            views=Views(tuple(map(cut, self.views.distinct)), self.views.which),
            row_scales=[cut(scale) for scale in self.row_scales],
            norms=tuple(map(cut, self.norms)),
            rows=cut(self.rows),
        )

    def known(self, m: int, statistic: str, other: PlacedSamples) -> Block | None:
        """Return the block of a statistic between these samples and others, None where it was not
        measured."""
        S = self.distances.get((self.views.which[m], statistic))
        return (
            None
            if S is None or other.distances is not self.distances
            else S[np.ix_(self.rows, other.rows)]
        )


@dataclass(frozen=True)
class FittedKernel:
    """One fitted kernel with the columns it reads, their number among those of the training set,
    and its scale.

    Kernels of one number were fitted to the same samples.
    """

    name: str
    kernel: Kernel
    columns: Indices | None
    normalization: Normalization
    view: int


@dataclass(frozen=True)
class KernelSet:
    """The fitted kernels, and how to evaluate them on samples old and new, here or on a device."""

    fitted: tuple[FittedKernel, ...]

    @classmethod
    def fit(cls, *given: Any, **options: Any) -> KernelSet:
        """Return the kernels as `fit_samples` fits them."""
        return cls.fit_samples(*given, **options)[0]

    @classmethod
    def fit_samples(
        cls,
        specs: Sequence[KernelSpec],
        X: MatrixLike,
        normalize: str | None,
        sample_weight: Array | None = None,
        present: Mask | None = None,
        room: float = 0.0,
    ) -> tuple[KernelSet, Views, Distances]:
        """Clone the kernels, fit each to its columns of the training set, and learn their scales.

        Of shape (n, P), `present` marks the samples that a kernel is fitted to; None means to all.
        The samples that each was fitted to are returned, too, and the distances between them that
        widths were learned of; none if these might take more bytes than there is room.
        """
        make_normalization(normalize)
        if present is not None and not present.any(axis=0).all():
            raise ValueError(
                f"kernel {specs[int(np.argmin(present.any(axis=0)))].name!r}: none of the"
                f" {len(present)} training samples has what it reads; leave the kernel out, or give"
                " samples that have it."
            )
        kernels = [clone(spec.kernel) for spec in specs]
        numbers = _view_numbers(specs, sparse.issparse(X), present)
        reads = [(v, kernel.preparation) for v, kernel in zip(numbers, kernels, strict=True)]
        # Two distances in every view.
        keep = 16 * X.shape[0] ** 2 * len(set(reads)) <= room
        table = by_column(X, specs)
        cut: dict[int, FitSamples] = {}
        prepared: dict[tuple[int, str], FitSamples] = {}
        fitted: list[FittedKernel] = []
        for m, (spec, kernel, v) in enumerate(zip(specs, kernels, numbers, strict=True)):
            own = None if present is None else present[:, m]
            if isinstance(kernel, MatrixRows):
                kernel.share(kernels[:m])
            with named(spec.name):
                if v not in cut:
                    V = read_columns(table, spec.columns)
                    cut[v] = FitSamples(
                        in_double(kernel.validate(V if own is None else V[own])), keep
                    )
                kernel.fit_to(cut[v])
                samples = cut[v] if kernel.preparation == "" else cut[v].ranked[2]
                weight = (
                    sample_weight if sample_weight is None or own is None else sample_weight[own]
                )
                scale = make_normalization(normalize).fit(kernel.inner, samples.X, weight)
            fitted.append(FittedKernel(spec.name, kernel, spec.columns, scale, v))
            prepared[reads[m]] = samples
        warn_of_constant(
            [one.name for one in fitted if getattr(one.normalization, "scale_", 1.0) == np.inf]
        )
        views = Views.of(reads, {key: one.X for key, one in prepared.items()})
        every = enumerate(prepared.values())
        return (
            cls(tuple(fitted)),
            views,
            {(k, name): S for k, one in every for name, S in one.distances.items()},
        )

    @property
    def names(self) -> list[str]:
        return [fitted_kernel.name for fitted_kernel in self.fitted]

    def __len__(self) -> int:
        return len(self.fitted)

    def take(self, active: Kernels) -> KernelSet:
        """Keep only these kernels, in this order."""
        return KernelSet(tuple(self.fitted[m] for m in active))

    def take_views(self, views: Views, active: Kernels) -> Views:
        """Keep the views of the kernels that `take` keeps."""
        return views.take(active)

    def views(
        self, X: MatrixLike, present: Mask | None = None, stand_ins: list[Any] | None = None
    ) -> Views:
        """Return the samples as each kernel reads them, with stand-ins for what they lack; they
        have all by default."""
        X = by_column(X, self.fitted)
        cut: dict[int, Any] = {}
        prepared: dict[tuple[int, str], Any] = {}
        # Equal for kernels that read the same array.
        reads = [(one.view, one.kernel.preparation) for one in self.fitted]
        for m, one in enumerate(self.fitted):
            if one.view not in cut:
                V = in_dense_columns(take_view(X, one))
                if present is not None and stand_ins is not None and not present[:, m].all():
                    V = _with_stand_in(V, present[:, m], stand_ins[m])
                with named(one.name):
                    cut[one.view] = in_double(one.kernel.validate(V))
            if reads[m] not in prepared:
                prepared[reads[m]] = one.kernel.prepare(cut[one.view])
        return Views.of(reads, prepared)

    def samples(
        self,
        X: Views | PlacedSamples,
        backend: Backend = NUMPY,
        kernels: Kernels | None = None,
        across: PlacedSamples | None = None,
        distances: Distances | None = None,
    ) -> PlacedSamples:
        """Place views of some samples on a backend, and compute once what the normalisations need
        of them.

        Parameters
        ----------
        X : Views or PlacedSamples
            What `views` returned, or the same samples in this process.
        backend : Backend
            Where blocks are to be computed.
        kernels : sequence of int, optional
            The fitted kernels whose blocks will be computed; by default all of them.
        across : PlacedSamples, optional
            The samples on the other side of the blocks: products are between samples less the same
            centre.
        distances : dict, optional
            Of a training set, the distances that are known.
        """
        if isinstance(X, PlacedSamples) and X.backend is backend:
            return X
        views, row_scales = (X.views, X.row_scales) if isinstance(X, PlacedSamples) else (X, None)
        asked = set(range(len(self.fitted)) if kernels is None else map(int, kernels))
        if row_scales is None:
            row_scales = [
                one.normalization.row_scale(views[m]) if m in asked else None
                for m, one in enumerate(self.fitted)
            ]
        if backend is NUMPY:
            shares = [isinstance(one.kernel.inner, StatisticKernel) for one in self.fitted]
            none = (None,) * len(views.distinct)
            rows = np.arange(views[0].shape[0]) if distances else None
            return PlacedSamples(
                backend, views, row_scales, shares, none, none, distances or {}, rows
            )
        shares = (
            [_takes_tensors(one.kernel.inner, backend) for one in self.fitted]
            if across is None
            else across.shares
        )
        # Some kernels may read on the host what others read on the device.
        keys = [(v, shares[m] and m in asked) for m, v in enumerate(views.which)]
        row_scales = [
            backend.asarray(scale) if moves and scale is not None else scale
            for (_, moves), scale in zip(keys, row_scales, strict=True)
        ]
        names = (getattr(one.kernel.inner, "statistic", "") for one in self.fitted)
        squared = {
            key for key, name in zip(keys, names, strict=True) if name == "squared_distances"
        }
        placed: dict[tuple[int, bool], tuple[Any, Any, Any]] = {}
        for m, key in enumerate(keys):
            view, centre, norms = views[m], None, None
            if key not in placed and key[1]:
                view = backend.asarray(view.toarray() if hasattr(view, "toarray") else view)
                if across is not None:
                    centre = across.centres[across.views.which[m]]
                elif key in squared:  # far from the origin, norms cancel digits
                    centre = view.mean(0)
                norms = None if centre is None else ((view - centre) ** 2).sum(1)
            placed.setdefault(key, (view, centre, norms))
        arrays, centres, every = zip(*placed.values(), strict=True)
        moved = Views.of(keys, dict(zip(placed, arrays, strict=True)))
        return PlacedSamples(backend, moved, row_scales, shares, centres, every)

    def blocks(
        self,
        X: Views | PlacedSamples,
        Y: Views | PlacedSamples,
        kernels: Kernels,
        dtype: DType = None,
    ) -> Iterator[tuple[int, Block]]:
        """Yield (m, block of kernel m between X and Y) for each given m, in the samples' backend.

        Kernels that are functions of the same statistic of the same columns share it: it is
        computed once for all. On a device it is computed in double precision, which is as fast
        there as single precision without shortcuts.
        """
        left = X if isinstance(X, PlacedSamples) else self.samples(X, kernels=kernels)
        right = (
            left
            if Y is X
            else Y
            if isinstance(Y, PlacedSamples)
            else self.samples(Y, kernels=kernels)
        )
        shared: dict[tuple[str, int, int], list[int]] = {}
        for m in kernels:
            kernel = self.fitted[m].kernel.inner
            if left.shares[m] and isinstance(kernel, StatisticKernel):
                shared.setdefault(
                    (kernel.statistic, left.views.which[m], right.views.which[m]), []
                ).append(m)
            else:
                K = kernel._block(left.views[m], right.views[m])
                shape = left.views[m].shape[0], right.views[m].shape[0]
                if np.shape(K) != shape:
                    raise ValueError(
                        f"kernel {self.fitted[m].name!r}: _block returned an array of shape"
                        f" {np.shape(K)} for {shape[0]} and {shape[1]} samples; return one number"
                        f" for every pair, of shape {shape}."
                    )
                K = self.fitted[m].normalization.block(K, left.row_scales[m], right.row_scales[m])
                yield (
                    m,
                    (
                        K
                        if left.backend is NUMPY
                        else left.backend.asarray(K, np.float64 if dtype is None else dtype)
                    ),
                )
        for members in shared.values():
            # Rounding the statistic instead of the kernel halves the cost of the formula.
            exact = self.statistic(members, left, right)
            backend = left.backend
            kind = backend.dtype(exact) if dtype is None else np.dtype(dtype)
            rounded = backend.astype(exact, kind)
            wider: Any = None
            order = self._widest_first(members, kind)
            for (m, power), (_, following) in zip(order, [*order[1:], (-1, 0)], strict=True):
                kernel = self.fitted[m].kernel.inner
                assert isinstance(kernel, StatisticKernel)
                rule = self.fitted[m].normalization
                S = exact if rule.rounds_last(left.row_scales[m], right.row_scales[m]) else rounded
                K = wider if power else kernel.from_statistic(S)
                # What follows may write into a block: a formula may hand the statistic on as it is.
                K = backend.copy(K) if backend.may_share_memory(K, S) else K
                if following:  # the narrower kernel is made of this one first
                    wider = K * K
                    if following == 4:
                        wider *= wider
                K = rule.block(K, left.row_scales[m], right.row_scales[m])
                yield m, backend.astype(K, kind)

    def _widest_first(self, members: list[int], kind: np.dtype[Any]) -> list[tuple[int, int]]:
        """Return kernels of one statistic with the power, 2 or 4, of the kernel before that each
        is; 0 for others.

        A radial kernel of half the width is a power of the wider one, and an exponential takes as
        long as ten products. Powers of single precision lose digits.
        """
        kernels = {m: self.fitted[m].kernel.inner for m in members}
        rates = {m: one.rate(kind) for m, one in kernels.items() if isinstance(one, Radial)}
        order = [m for m in members if m not in rates] + sorted(
            rates, key=rates.__getitem__, reverse=True
        )
        powers = [0] * len(order)
        for place, (before, m) in enumerate(pairwise(order), start=1):
            if before in rates and kind == np.float64 and rates[before]:
                share = rates[m] / rates[before]
                powers[place] = next(
                    (power for power in (2, 4) if abs(share - power) < 1e-14 * power), 0
                )
        return list(zip(order, powers, strict=True))

    def products(
        self,
        views: Views,
        support: Views,
        right: Array,
        device: str,
        entries: int | None = None,
        columns: int = 8192,
    ) -> Array:
        """Return K_m right between samples and support samples for every kernel, (P, n, k),
        computed on a device.

        Parameters
        ----------
        views, support : list
            Samples as the kernels read them.
        right : ndarray of shape (n_support, k)
            Coefficients.
        device : str
            Where to compute.
        entries : int, optional
            Of the blocks worked on at once.
        columns : int
            Multiplied at once: this many entries of a row, with a few rows, stay in the device's
            cache.
        """
        backend = torch_backend(device)
        across, coefficients = self.samples(support, backend), backend.asarray(right)
        n, s, every = views[0].shape[0], len(right), range(len(self))
        width = min(s, columns)
        out = np.empty((len(self), n, right.shape[1]))
        for rows in row_strips(n, (entries or device_entries(backend)) // max(width, 1)):
            left = self.samples(take_rows(views, rows), backend, across=across)
            sums = backend.zeros((len(self), rows.stop - rows.start, right.shape[1]))
            for part in row_strips(s, width):
                for m, block in self.blocks(
                    left, across if width == s else across.take(part), every, np.float64
                ):
                    sums[m] += block @ coefficients[part]
            out[:, rows] = backend.to_numpy(sums)
        return out

    def statistic(self, members: Sequence[int], left: PlacedSamples, right: PlacedSamples) -> Block:
        """Return the block of the statistic that these kernels are functions of, exact enough for
        the narrowest."""
        m, kernels = members[0], [self.fitted[k].kernel.inner for k in members]
        name = kernels[0].statistic
        known = left.known(m, name, right)
        if known is not None:
            return known
        scales = [
            kernel.statistic_scale() for kernel in kernels if isinstance(kernel, StatisticKernel)
        ]
        own, others = left.norms[left.views.which[m]], right.norms[right.views.which[m]]
        centre, norms = right.centres[right.views.which[m]], None if own is None else (own, others)
        return pairwise_statistic(name, left.views[m], right.views[m], min(scales), centre, norms)

    def check_definite(self, views: Views, coefficients: Array) -> None:
        """Raise if a given matrix is not positive semi-definite where a fit made use of it.

        Parameters
        ----------
        views : list
            The support samples as each kernel reads them.
        coefficients : ndarray of shape (n_outputs, n_support)
            Their coefficients.
        """
        for one, rows in zip(self.fitted, views, strict=True):
            if isinstance(one.kernel, Precomputed):
                with named(one.name):
                    one.kernel.check_definite(rows, coefficients)

    def diagonals(self, X: Views | PlacedSamples) -> Array:
        """Return k_m(x, x) of samples in this process, of shape (P, n)."""
        samples = self.samples(X)
        every = zip(self.fitted, samples.views, samples.row_scales, strict=True)
        return np.array(
            [
                one.normalization.diagonal(one.kernel.inner._diagonal(V), scale)
                for one, V, scale in every
            ]
        )


def _takes_tensors(kernel: Kernel, backend: Backend) -> bool:
    """Whether a kernel has a formula for tensors: those of others may be written for NumPy
    alone."""
    if not isinstance(kernel, StatisticKernel):
        return kernel.takes_tensors
    try:
        return is_tensor(kernel.from_statistic(backend.zeros((1, 1))))
    except Exception:  # whatever a formula for arrays makes of a tensor, the host serves
        return False


def _view_numbers(specs: Sequence[KernelSpec], is_sparse: bool, present: Mask | None) -> list[int]:
    """Return, for every kernel, the number of the samples that it reads: the same where columns and
    rows are."""
    numbers: dict[tuple[Any, ...], int] = {}
    found = []
    for m, one in enumerate(specs):
        kernel: Any = one.kernel
        # What is read of strings, tables and given matrices depends on the kernel.
        own = None if kernel.input_kind in ("numbers", "graphs") else m
        columns = None if one.columns is None else one.columns.tobytes()
        rows = None if present is None else present[:, m].tobytes()
        form = kernel.form(), is_sparse and kernel.accepts_sparse
        found.append(numbers.setdefault((own, form, columns, rows), len(numbers)))
    return found


def read_columns(X: MatrixLike, columns: Indices | None, few: int = 500) -> MatrixLike:
    """Return the columns that a kernel reads, up to so many of a sparse matrix as an array.

    Products of arrays are several times faster than those of sparse rows, even where one entry in
    ten is not zero.
    """
    return in_dense_columns(take_columns(X, columns), few)


def in_dense_columns(V: MatrixLike, few: int = 500) -> MatrixLike:
    """Return samples, a sparse matrix of few columns as an array."""
    if not sparse.issparse(V):
        return V
    return V.toarray() if V.shape[1] <= few else V.tocsr()


def take_view(X: MatrixLike, kernel: Any) -> MatrixLike:
    """Return the columns of samples that a kernel, known by its name and columns, reads."""
    if isinstance(X, NewRows):
        return X.of_kernel(kernel.name)
    return take_columns(X, kernel.columns)


def _with_stand_in(V: MatrixLike, present: Mask, row: MatrixLike) -> MatrixLike:
    """Return what a kernel reads of samples, with one row in place of those that lack it."""
    if sparse.issparse(V):
        return sparse.vstack([V, row], format="csr")[
            np.where(present, np.arange(len(present)), len(present))
        ]
    if isinstance(V, NewRows):
        return np.where(present[:, np.newaxis], V, 0.0).view(NewRows)
    V = np.array(V)
    V[~present] = row.toarray() if sparse.issparse(row) else row
    return V


def by_column(X: MatrixLike, specs: Sequence[Any], many: int = 4) -> MatrixLike:
    """Return sparse samples column by column if many kernels cut some of theirs out."""
    cut = sum(one.columns is not None for one in specs)
    return X.tocsc() if sparse.issparse(X) and cut > many else X


def in_double(X: MatrixLike) -> MatrixLike:
    """Return samples with numbers in double precision: a kernel of singles is off by more than a
    certificate states."""
    return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X


def take_rows(views: Views, rows: RowIndex) -> Views:
    """Return some rows of every view."""
    return Views(tuple(view[rows] for view in views.distinct), views.which)
