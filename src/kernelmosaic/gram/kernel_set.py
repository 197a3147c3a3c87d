"""The kernel set: named kernels, each with its columns and its scale, fitted to a training set."""

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
from kernelmosaic.gram.tuning import (
    CUTS_BY_ROW,
    DENSE_COLUMNS,
    PRODUCT_COLUMNS,
    RATIO_ERROR,
    STATISTICS_PER_VIEW,
)
from kernelmosaic.kernels.base import Block, Kernel, StatisticKernel, named
from kernelmosaic.kernels.distances import FitSamples, pairwise_statistic
from kernelmosaic.kernels.matrices import MatrixRows, NewRows, Precomputed
from kernelmosaic.kernels.numeric import Radial
from kernelmosaic.kernels.views import KernelSpec, take_columns

#: Numbers of kernels.
Kernels = Sequence[int] | AnyArray
#: Distances between all samples of a training set, which widths were learned from, by the number of
#: the view and the name of the statistic.
Distances = Mapping[tuple[int, str], Array]


@dataclass(frozen=True)
class Views(Sequence[Any]):
    """Samples as the kernels read them: `views[m]` is the data that kernel m reads.

    Attributes
    ----------
    distinct : tuple
        The distinct data: some columns of the samples, prepared for the kernel or not.
    which : tuple of int
        For each kernel, the number of its data in `distinct`. Kernels with the same number share
        what is computed from the data.
    """

    distinct: tuple[Any, ...] = ()
    which: tuple[int, ...] = ()

    @classmethod
    def of(cls, keys: Sequence[Hashable], arrays: Mapping[Any, Any]) -> Views:
        """Return the views of kernels from the key of each kernel and the data of each key."""
        numbers = {key: v for v, key in enumerate(arrays)}
        which = tuple(numbers[key] for key in keys)
        return cls(tuple(arrays.values()), which)

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, m: Any) -> Any:
        return self.distinct[self.which[m]]

    def take(self, kernels: Kernels) -> Views:
        """Return the views of these kernels, in this order."""
        numbers = [self.which[m] for m in kernels]
        return Views.of(numbers, {v: self.distinct[v] for v in numbers})


@dataclass(frozen=True)
class PlacedSamples:
    """Samples as the kernels read them, placed on a backend, with what normalisations need of them.

    Lists have one entry for each kernel.

    Attributes
    ----------
    backend : Backend
        Where blocks between the samples are computed.
    views : Views
        Arrays of the backend for kernels that are evaluated there. For others the data that the
        kernel itself reads, on the host.
    row_scales : list
        What the normalisation of each kernel needs of each sample, or None.
    on_backend : list of bool
        Whether the kernel is evaluated on the backend; else it is evaluated on the host, and its
        blocks are copied to the backend.
    centres, norms : tuple
        For each distinct view on a device that squared distances are computed from: a centre, and
        the squared norms of the samples minus that centre; else None. The samples themselves are
        not centred, since differences of rounded samples would be rounded, too.
    distances : dict
        Distances between the samples of the training set that are stored, on the host.
    rows : ndarray, optional
        The numbers of these samples in that training set.
    """

    backend: Backend
    views: Views
    row_scales: list[Any]
    on_backend: list[bool]
    centres: tuple[Any, ...]
    norms: tuple[Any, ...]
    distances: Distances = field(default_factory=dict)
    rows: Any = None

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return int(self.views[0].shape[0])

    def take(self, rows: RowIndex) -> PlacedSamples:
        """Return these samples; `rows` is a slice or an array of row numbers."""

        def cut(array: Any) -> Any:
            if array is None:
                return None
            if is_tensor(array):
                return array[self.backend.index(rows)]
            return array[rows]

        return replace(
            self,
            views=Views(tuple(map(cut, self.views.distinct)), self.views.which),
            row_scales=[cut(scale) for scale in self.row_scales],
            norms=tuple(map(cut, self.norms)),
            rows=cut(self.rows),
        )

    def stored_distances(self, m: int, statistic: str, other: PlacedSamples) -> Block | None:
        """Return the stored block of a statistic between these samples and others, or None.

        It is None if the statistic was not stored, or if the others are of another training set.
        """
        S = self.distances.get((self.views.which[m], statistic))
        if S is None or other.distances is not self.distances:
            return None
        return S[np.ix_(self.rows, other.rows)]


@dataclass(frozen=True)
class FittedKernel:
    """One fitted kernel with its columns, its view and its scale.

    Attributes
    ----------
    name : str
        The name that the user gave, or one made for the kernel.
    kernel : Kernel
        The fitted kernel.
    columns : ndarray or None
        The columns that it reads; None means all.
    normalization : Normalization
        The rule with the constants learned on the training set.
    view : int
        The number of its view. Kernels of one view were fitted to the same samples.
    """

    name: str
    kernel: Kernel
    columns: Indices | None
    normalization: Normalization
    view: int

    @property
    def view_key(self) -> tuple[int, str]:
        """A key that is equal for kernels that read the same prepared data."""
        return self.view, self.kernel.preparation

    @property
    def is_zero(self) -> bool:
        """Whether the kernel is zero once centred, since it is constant on the training set."""
        return bool(getattr(self.normalization, "scale_", 1.0) == np.inf)


@dataclass(frozen=True)
class KernelSet:
    """The fitted kernels, which compute blocks between any samples, on the host or on a device."""

    fitted: tuple[FittedKernel, ...]

    @classmethod
    def fit(cls, *arguments: Any, **options: Any) -> KernelSet:
        """Return the fitted kernels; the arguments are those of `fit_samples`."""
        return cls.fit_samples(*arguments, **options)[0]

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
        """Return the kernels fitted to a training set, their views and the stored distances.

        The kernels of the specs are cloned, each is fitted to its columns, and its scale is
        learned.

        Parameters
        ----------
        specs : sequence of KernelSpec
            The named kernels with their columns.
        X : array or sparse matrix of shape (n, n_features)
            The training samples.
        normalize : str or None
            The rule that puts the kernels on one scale, see `make_normalization`.
        sample_weight : ndarray of shape (n,), optional
            Weights of the samples for the constants of the rule.
        present : ndarray of shape (n, P), optional
            The samples that each kernel is fitted to; by default all.
        room : float
            Bytes that distances may take, which widths are learned from. If they might take more,
            none are stored and returned.
        """
        make_normalization(normalize)  # raises for an unknown rule before anything is computed
        if present is not None:
            _check_present(specs, present)
        kernels = [clone(spec.kernel) for spec in specs]
        view_numbers = _view_numbers(specs, sparse.issparse(X), present)
        n_prepared = len({(v, k.preparation) for v, k in zip(view_numbers, kernels, strict=True)})
        distance_bytes = 8 * STATISTICS_PER_VIEW * X.shape[0] ** 2 * n_prepared
        keeps_distances = distance_bytes <= room
        table = by_column(X, specs)
        cut_views: dict[int, FitSamples] = {}
        prepared_views: dict[tuple[int, str], FitSamples] = {}
        fitted: list[FittedKernel] = []
        for m, (spec, kernel, v) in enumerate(zip(specs, kernels, view_numbers, strict=True)):
            fitted_rows = None if present is None else present[:, m]
            if isinstance(kernel, MatrixRows):
                kernel.share(kernels[:m])
            with named(spec.name):
                if v not in cut_views:
                    V = read_columns(table, spec.columns)
                    if fitted_rows is not None:
                        V = V[fitted_rows]
                    cut_views[v] = FitSamples(in_double(kernel.validate(V)), keeps_distances)
                kernel.fit_to(cut_views[v])
                samples = cut_views[v]
                if kernel.preparation != "":
                    samples = samples.ranked[2]
                weight = sample_weight
                if sample_weight is not None and fitted_rows is not None:
                    weight = sample_weight[fitted_rows]
                scale = make_normalization(normalize).fit(kernel.inner, samples.X, weight)
            fitted_kernel = FittedKernel(spec.name, kernel, spec.columns, scale, v)
            fitted.append(fitted_kernel)
            prepared_views[fitted_kernel.view_key] = samples

        warn_of_constant([fitted_kernel.name for fitted_kernel in fitted if fitted_kernel.is_zero])
        view_keys = [kernel.view_key for kernel in fitted]
        views = Views.of(view_keys, {key: samples.X for key, samples in prepared_views.items()})
        distances: dict[tuple[int, str], Array] = {}
        for number, samples in enumerate(prepared_views.values()):
            for statistic, S in samples.distances.items():
                distances[number, statistic] = S
        return cls(tuple(fitted)), views, distances

    @property
    def names(self) -> list[str]:
        """The names of the kernels."""
        return [fitted_kernel.name for fitted_kernel in self.fitted]

    def __len__(self) -> int:
        return len(self.fitted)

    def take(self, active: Kernels) -> KernelSet:
        """Return the set of these kernels, in this order."""
        return KernelSet(tuple(self.fitted[m] for m in active))

    def take_views(self, views: Views, active: Kernels) -> Views:
        """Return the views of the kernels that `take` keeps."""
        return views.take(active)

    def views(
        self, X: MatrixLike, present: Mask | None = None, stand_ins: list[Any] | None = None
    ) -> Views:
        """Return samples as the kernels read them.

        Parameters
        ----------
        X : array, sparse matrix or NewRows, of n rows
            The samples.
        present : ndarray of shape (n, P), optional
            The views that they have; by default all.
        stand_ins : list, optional
            For each kernel the row that stands in for the view where a sample lacks it.
        """
        X = by_column(X, self.fitted)
        cut_views: dict[int, Any] = {}
        prepared_views: dict[tuple[int, str], Any] = {}
        for m, fitted_kernel in enumerate(self.fitted):
            v = fitted_kernel.view
            if v not in cut_views:
                V = in_dense_columns(take_view(X, fitted_kernel))
                if present is not None and stand_ins is not None and not present[:, m].all():
                    V = _with_stand_in(V, present[:, m], stand_ins[m])
                with named(fitted_kernel.name):
                    cut_views[v] = in_double(fitted_kernel.kernel.validate(V))
            if fitted_kernel.view_key not in prepared_views:
                prepared = fitted_kernel.kernel.prepare(cut_views[v])
                prepared_views[fitted_kernel.view_key] = prepared
        view_keys = [fitted_kernel.view_key for fitted_kernel in self.fitted]
        return Views.of(view_keys, prepared_views)

    def place_samples(
        self,
        X: Views | PlacedSamples,
        backend: Backend = NUMPY,
        kernels: Kernels | None = None,
        across: PlacedSamples | None = None,
        distances: Distances | None = None,
    ) -> PlacedSamples:
        """Return samples placed on a backend, with what the normalisations need of them.

        Parameters
        ----------
        X : Views or PlacedSamples
            The views that `views` returned, or the same samples placed on the host.
        backend : Backend
            Where blocks will be computed.
        kernels : sequence of int, optional
            The kernels whose blocks will be computed; by default all.
        across : PlacedSamples, optional
            The samples on the other side of the blocks. Both sides use the same centre for squared
            distances, so these samples take over the other side's centres.
        distances : dict, optional
            The distances between the samples of a training set that are stored.
        """
        row_scales: list[Any] | None = None
        if isinstance(X, PlacedSamples):
            if X.backend is backend:
                return X
            views = X.views
            row_scales = X.row_scales
        else:
            views = X
        used_kernels = set(range(len(self.fitted)))
        if kernels is not None:
            used_kernels = set(map(int, kernels))
        if row_scales is None:
            row_scales = [None] * len(self.fitted)
            for m in sorted(used_kernels):
                row_scales[m] = self.fitted[m].normalization.row_scale(views[m])
        if backend is NUMPY:
            no_centres = (None,) * len(views.distinct)
            rows = np.arange(views[0].shape[0]) if distances else None
            all_here = [True] * len(self.fitted)
            return PlacedSamples(
                backend, views, row_scales, all_here, no_centres, no_centres, distances or {}, rows
            )
        return self._place_on_device(views, row_scales, backend, used_kernels, across)

    def _place_on_device(
        self,
        views: Views,
        row_scales: list[Any],
        backend: Backend,
        used_kernels: set[int],
        across: PlacedSamples | None,
    ) -> PlacedSamples:
        """Return samples on a device; the arguments are those of `place_samples`."""
        # 1. Which kernels are evaluated on the device. A view that some kernels read on the host
        # and others on the device is held on both.
        if across is None:
            on_backend = [
                _takes_tensors(fitted_kernel.kernel.inner, backend) for fitted_kernel in self.fitted
            ]
        else:
            on_backend = across.on_backend
        moves = [on_backend[m] and m in used_kernels for m in range(len(self.fitted))]
        keys = list(zip(views.which, moves, strict=True))

        # 2. The row scales of these kernels.
        placed_scales = list(row_scales)
        for m, scale in enumerate(row_scales):
            if moves[m] and scale is not None:
                placed_scales[m] = backend.asarray(scale)

        # 3. The views, and for squared distances a centre and norms: far from the origin, squared
        # norms of the samples themselves would cancel digits.
        squared_keys = set()
        for fitted_kernel, key in zip(self.fitted, keys, strict=True):
            if getattr(fitted_kernel.kernel.inner, "statistic", "") == "squared_distances":
                squared_keys.add(key)
        arrays: dict[tuple[int, bool], Any] = {}
        centres: list[Any] = []
        norms: list[Any] = []
        for m, key in enumerate(keys):
            if key in arrays:
                continue
            view, centre, squared_norms = views[m], None, None
            if moves[m]:
                view = backend.asarray(view.toarray() if hasattr(view, "toarray") else view)
                if across is not None:
                    centre = across.centres[across.views.which[m]]
                elif key in squared_keys:
                    centre = view.mean(0)
                if centre is not None:
                    squared_norms = ((view - centre) ** 2).sum(1)
            arrays[key] = view
            centres.append(centre)
            norms.append(squared_norms)
        placed_views = Views.of(keys, arrays)
        return PlacedSamples(
            backend, placed_views, placed_scales, on_backend, tuple(centres), tuple(norms)
        )

    def blocks(
        self,
        X: Views | PlacedSamples,
        Y: Views | PlacedSamples,
        kernels: Kernels,
        dtype: DType = None,
    ) -> Iterator[tuple[int, Block]]:
        """Yield (m, block of kernel m between X and Y) for these kernels, in no fixed order.

        The blocks are arrays of the samples' backend. Kernels that are functions of the same
        statistic of the same columns share it: it is computed once for all of them. On a device it
        is computed in double precision, which is as fast there as single precision without
        shortcuts.
        """
        left = X if isinstance(X, PlacedSamples) else self.place_samples(X, kernels=kernels)
        if Y is X:
            right = left
        elif isinstance(Y, PlacedSamples):
            right = Y
        else:
            right = self.place_samples(Y, kernels=kernels)

        groups: dict[tuple[str, int, int], list[int]] = {}
        for m in kernels:
            kernel = self.fitted[m].kernel.inner
            if left.on_backend[m] and isinstance(kernel, StatisticKernel):
                group_key = (kernel.statistic, left.views.which[m], right.views.which[m])
                groups.setdefault(group_key, []).append(m)
                continue
            K = self._own_block(m, left, right)
            if left.backend is not NUMPY:
                K = left.backend.asarray(K, np.float64 if dtype is None else dtype)
            yield m, K
        for members in groups.values():
            yield from self._statistic_blocks(members, left, right, dtype)

    def _own_block(self, m: int, left: PlacedSamples, right: PlacedSamples) -> Block:
        """Return the normalised block of a kernel that is no function of a statistic."""
        fitted_kernel = self.fitted[m]
        K = fitted_kernel.kernel.inner._block(left.views[m], right.views[m])
        shape = left.views[m].shape[0], right.views[m].shape[0]
        if np.shape(K) != shape:
            raise ValueError(
                f"kernel {fitted_kernel.name!r}: _block returned an array of shape"
                f" {np.shape(K)} for {shape[0]} and {shape[1]} samples; return one number"
                f" for every pair, of shape {shape}."
            )
        return fitted_kernel.normalization.block(K, left.row_scales[m], right.row_scales[m])

    def _statistic_blocks(
        self, members: list[int], left: PlacedSamples, right: PlacedSamples, dtype: DType
    ) -> Iterator[tuple[int, Block]]:
        """Yield (m, block) for kernels that are functions of the same statistic."""
        # Rounding the statistic to single precision, in place of the kernel, halves the cost of
        # the formula.
        exact_statistic = self.statistic_block(members, left, right)
        backend = left.backend
        kind = backend.dtype(exact_statistic) if dtype is None else np.dtype(dtype)
        rounded_statistic = backend.astype(exact_statistic, kind)
        order = self._widest_first(members, kind)
        next_powers = [power for _, power in order[1:]] + [0]
        power_of_wider: Any = None
        for (m, power), following in zip(order, next_powers, strict=True):
            kernel = self.fitted[m].kernel.inner
            assert isinstance(kernel, StatisticKernel)
            rule = self.fitted[m].normalization
            rounds_last = rule.rounds_last(left.row_scales[m], right.row_scales[m])
            S = exact_statistic if rounds_last else rounded_statistic
            K = power_of_wider if power else kernel.from_statistic(S)
            # The normalisation may write into the block, and a formula may return the statistic
            # itself, which the next kernels need.
            if backend.may_share_memory(K, S):
                K = backend.copy(K)
            if following:
                # The next kernel is a power of this one, taken before it is normalised.
                power_of_wider = K * K
                if following == 4:
                    power_of_wider *= power_of_wider
            K = rule.block(K, left.row_scales[m], right.row_scales[m])
            yield m, backend.astype(K, kind)

    def _widest_first(self, members: list[int], kind: np.dtype[Any]) -> list[tuple[int, int]]:
        """Return (m, power) for kernels of one statistic, radial kernels from wide to narrow.

        The power is 2 or 4 if the kernel is that power of the one before it in the list, else 0. A
        radial kernel of half the width is a power of the wider one, and an exponential takes as
        long as ten products. In single precision powers would lose digits: all are 0 there.
        """
        kernels = {m: self.fitted[m].kernel.inner for m in members}
        rates = {m: k.rate(kind) for m, k in kernels.items() if isinstance(k, Radial)}
        not_radial = [m for m in members if m not in rates]
        order = not_radial + sorted(rates, key=rates.__getitem__, reverse=True)
        powers = [0] * len(order)
        if kind != np.float64:
            return list(zip(order, powers, strict=True))
        for position, (wider, narrower) in enumerate(pairwise(order), start=1):
            if wider not in rates or not rates[wider]:
                continue
            ratio = rates[narrower] / rates[wider]
            for power in (2, 4):
                if abs(ratio - power) < RATIO_ERROR * power:
                    powers[position] = power
                    break
        return list(zip(order, powers, strict=True))

    def products(
        self,
        views: Views,
        support: Views,
        coefficients: Array,
        device: str,
        entries: int | None = None,
        columns: int = PRODUCT_COLUMNS,
    ) -> Array:
        """Return K_m β for every kernel, of shape (P, n, k), computed on a device.

        K_m is the matrix between n samples and the support samples.

        Parameters
        ----------
        views, support : Views
            The n samples and the support samples as the kernels read them.
        coefficients : ndarray of shape (n_support, k)
            β.
        device : str
            Where to compute.
        entries : int, optional
            Most entries of the blocks that are computed at once.
        columns : int
            Most columns of a block that are multiplied at once.
        """
        backend = torch_backend(device)
        placed_support = self.place_samples(support, backend)
        beta = backend.asarray(coefficients)
        n_samples, n_support = views[0].shape[0], len(coefficients)
        width = min(n_support, columns)
        strip_rows = (entries or device_entries(backend)) // max(width, 1)
        out = np.empty((len(self), n_samples, coefficients.shape[1]))
        for rows in row_strips(n_samples, strip_rows):
            left = self.place_samples(take_rows(views, rows), backend, across=placed_support)
            sums = backend.zeros((len(self), rows.stop - rows.start, coefficients.shape[1]))
            for strip in row_strips(n_support, width):
                # A single strip needs no copy of the support samples.
                right = placed_support if width == n_support else placed_support.take(strip)
                for m, block in self.blocks(left, right, range(len(self)), np.float64):
                    sums[m] += block @ beta[strip]
            out[:, rows] = backend.to_numpy(sums)
        return out

    def statistic_block(
        self, members: Sequence[int], left: PlacedSamples, right: PlacedSamples
    ) -> Block:
        """Return the block of the statistic that these kernels share.

        It is as precise as the narrowest of them requires.
        """
        m = members[0]
        kernels = [self.fitted[k].kernel.inner for k in members]
        statistic = kernels[0].statistic
        stored = left.stored_distances(m, statistic, right)
        if stored is not None:
            return stored
        scales = [k.statistic_scale() for k in kernels if isinstance(k, StatisticKernel)]
        left_view, right_view = left.views.which[m], right.views.which[m]
        norms = None
        if left.norms[left_view] is not None:
            norms = (left.norms[left_view], right.norms[right_view])
        centre = right.centres[right_view]
        return pairwise_statistic(
            statistic, left.views[m], right.views[m], min(scales), centre, norms
        )

    def check_definite(self, views: Views, coefficients: Array) -> None:
        """Raise if a precomputed matrix is not positive semi-definite where a fit used it.

        Parameters
        ----------
        views : Views
            The support samples as the kernels read them.
        coefficients : ndarray of shape (n_outputs, n_support)
            Their coefficients.
        """
        for fitted_kernel, rows in zip(self.fitted, views, strict=True):
            if isinstance(fitted_kernel.kernel, Precomputed):
                with named(fitted_kernel.name):
                    fitted_kernel.kernel.check_definite(rows, coefficients)

    def diagonals(self, X: Views | PlacedSamples) -> Array:
        """Return k_m(x, x) of every kernel and sample, of shape (P, n), computed on the host."""
        samples = self.place_samples(X)
        diagonals = []
        for m, fitted_kernel in enumerate(self.fitted):
            diagonal = fitted_kernel.kernel.inner._diagonal(samples.views[m])
            rule = fitted_kernel.normalization
            diagonals.append(rule.diagonal(diagonal, samples.row_scales[m]))
        return np.array(diagonals)


def _check_present(specs: Sequence[KernelSpec], present: Mask) -> None:
    """Raise if no training sample has the view of a kernel; `present` has the shape (n, P)."""
    has_samples = present.any(axis=0)
    if not has_samples.all():
        raise ValueError(
            f"kernel {specs[int(np.argmin(has_samples))].name!r}: none of the"
            f" {len(present)} training samples has what it reads; leave the kernel out, or give"
            " samples that have it."
        )


def _takes_tensors(kernel: Kernel, backend: Backend) -> bool:
    """Return whether a kernel can be evaluated on tensors; some formulas are for NumPy alone."""
    if not isinstance(kernel, StatisticKernel):
        return kernel.takes_tensors
    try:
        return is_tensor(kernel.from_statistic(backend.zeros((1, 1))))
    except Exception:
        # A formula for arrays may raise anything for a tensor; the host evaluates it then.
        return False


def _view_numbers(specs: Sequence[KernelSpec], is_sparse: bool, present: Mask | None) -> list[int]:
    """Return the number of the view of each kernel.

    Kernels have the same number if they read the same columns, of the same rows, in the same form.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    view_numbers = []
    for m, spec in enumerate(specs):
        kernel: Any = spec.kernel
        # The data read from strings, tables and precomputed matrices depends on the kernel.
        kernel_number = None if kernel.input_kind in ("numbers", "graphs") else m
        columns = None if spec.columns is None else spec.columns.tobytes()
        rows = None if present is None else present[:, m].tobytes()
        form = kernel.form(), is_sparse and kernel.accepts_sparse
        view_numbers.append(numbers.setdefault((kernel_number, form, columns, rows), len(numbers)))
    return view_numbers


def read_columns(
    X: MatrixLike, columns: Indices | None, max_columns: int = DENSE_COLUMNS
) -> MatrixLike:
    """Return these columns of samples, see `in_dense_columns`; None means all."""
    return in_dense_columns(take_columns(X, columns), max_columns)


def in_dense_columns(V: MatrixLike, max_columns: int = DENSE_COLUMNS) -> MatrixLike:
    """Return samples; a sparse matrix of at most `max_columns` columns is returned as an array."""
    if not sparse.issparse(V):
        return V
    return V.toarray() if V.shape[1] <= max_columns else V.tocsr()


def take_view(X: MatrixLike, kernel: Any) -> MatrixLike:
    """Return the columns of samples that a KernelSpec or FittedKernel reads."""
    if isinstance(X, NewRows):
        return X.of_kernel(kernel.name)
    return take_columns(X, kernel.columns)


def _with_stand_in(V: MatrixLike, present: Mask, stand_in: MatrixLike) -> MatrixLike:
    """Return the view of samples, with the row `stand_in` for the samples that lack it."""
    if sparse.issparse(V):
        n_samples = len(present)
        extended = sparse.vstack([V, stand_in], format="csr")
        return extended[np.where(present, np.arange(n_samples), n_samples)]
    if isinstance(V, NewRows):
        return np.where(present[:, np.newaxis], V, 0.0).view(NewRows)
    V = np.array(V)
    V[~present] = stand_in.toarray() if sparse.issparse(stand_in) else stand_in
    return V


def by_column(X: MatrixLike, specs: Sequence[Any], max_cuts: int = CUTS_BY_ROW) -> MatrixLike:
    """Return sparse samples by column if more than `max_cuts` kernels read a part of them."""
    n_cuts = sum(spec.columns is not None for spec in specs)
    if sparse.issparse(X) and n_cuts > max_cuts:
        return X.tocsc()
    return X


def in_double(X: MatrixLike) -> MatrixLike:
    """Return samples with numbers in double precision.

    The error of a kernel of single-precision samples would exceed what a certificate states.
    """
    return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X


def take_rows(views: Views, rows: RowIndex) -> Views:
    """Return these rows of every view."""
    return Views(tuple(view[rows] for view in views.distinct), views.which)
