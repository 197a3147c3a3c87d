"""The kernel set: named kernels, each on its columns and on a common scale, fitted to a training set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelmosaic._typing import AnyArray, DType, MatrixLike, RowIndex
from kernelmosaic.backend import NUMPY, Backend, is_tensor, row_strips, torch_backend
from kernelmosaic.gram.normalizing import Normalization, make_normalization, warn_of_constant
from kernelmosaic.gram.options import device_entries
from kernelmosaic.kernels.base import Block, Kernel, StatisticKernel, pairwise_statistic
from kernelmosaic.kernels.gaussian import measured_once
from kernelmosaic.kernels.matrices import Precomputed
from kernelmosaic.kernels.views import KernelSpec, take_columns

#: The samples as each kernel reads them. Kernels on the same columns hold the same object.
Views = list[Any]


@dataclass(frozen=True)
class PlacedSamples:
    """Samples as kernels read them, on a backend, with what normalising needs; every list has one item per kernel.

    Attributes
    ----------
    backend : Backend
        Where blocks between them are computed.
    views : list
        Arrays of the backend for kernels with a formula there; else what the kernel itself reads, on the host.
    row_scales : list
        What each kernel's normalisation needs of the samples, or None.
    shares : list of bool
        Whether the kernel is evaluated on the backend; on the host, whether it is a function of a statistic, which
        kernels with the same view share.
    centres, norms : list
        On a device: what is taken off the samples before they are multiplied for squared distances, and their squared
        norms then; else None. The samples themselves stay as they are: differences of rounded ones are rounded, too.
    """

    backend: Backend
    views: Views
    row_scales: list[Any]
    shares: list[bool]
    centres: list[Any]
    norms: list[Any]

    @property
    def n_samples(self) -> int:
        return next(int(view.shape[0]) for view in self.views if view is not None)

    def take(self, rows: RowIndex) -> PlacedSamples:
        """Return some samples: a slice or an array of row numbers; equal views stay equal."""
        lists = (take_rows(arrays, rows, self.backend) for arrays in (self.views, self.row_scales, self.norms))
        views, row_scales, norms = lists
        return replace(self, views=views, row_scales=row_scales, norms=norms)


@dataclass(frozen=True)
class FittedKernel:
    """One fitted kernel with the columns it reads and its scale."""

    name: str
    kernel: Kernel
    columns: NDArray[np.intp] | None
    normalization: Normalization


@dataclass(frozen=True)
class KernelSet:
    """The fitted kernels, and how to evaluate them on samples old and new, here or on a device."""

    fitted: tuple[FittedKernel, ...]

    @classmethod
    def fit(
        cls,
        specs: Sequence[KernelSpec],
        X: MatrixLike,
        normalize: str | None,
        sample_weight: NDArray[np.float64] | None = None,
        present: NDArray[np.bool_] | None = None,
    ) -> KernelSet:
        """Clone the kernels, fit each to its columns of the training set, and learn their scales.

        Of shape (n, P), `present` marks the samples that a kernel is fitted to; None means to all.
        """
        make_normalization(normalize)
        if present is not None and not present.any(axis=0).all():
            raise ValueError(
                f"kernel {specs[int(np.argmin(present.any(axis=0)))].name!r}: none of the {len(present)} training "
                "samples has what it reads; leave the kernel out, or give samples that have it."
            )
        views = _views(specs, X, present)
        fitted = []
        with measured_once():
            for m, (tile, view) in enumerate(zip(specs, views, strict=True)):
                own = sample_weight if sample_weight is None or present is None else sample_weight[present[:, m]]
                with named(tile.name):
                    kernel = clone(tile.kernel).fit(view)
                    scale = make_normalization(normalize).fit(kernel, view, own)
                fitted.append(FittedKernel(tile.name, kernel, tile.columns, scale))
        constant = [one.name for one in fitted if getattr(one.normalization, "scale_", 1.0) == np.inf]
        if constant:
            warn_of_constant(constant)
        return cls(tuple(fitted))

    @property
    def names(self) -> list[str]:
        return [fitted_kernel.name for fitted_kernel in self.fitted]

    def __len__(self) -> int:
        return len(self.fitted)

    def take(self, active: Sequence[int] | AnyArray) -> KernelSet:
        """Keep only these kernels, in this order."""
        return KernelSet(tuple(self.fitted[m] for m in active))

    def take_views(self, views: Views, active: Sequence[int] | AnyArray) -> Views:
        """Keep the views of the kernels that `take` keeps."""
        return [views[m] for m in active]

    def views(
        self, X: MatrixLike, present: NDArray[np.bool_] | None = None, stand_ins: list[Any] | None = None
    ) -> Views:
        """Return the samples as each kernel reads them, with stand-ins for what they lack; they have all by default."""
        return _views(self.fitted, X, present, stand_ins)

    def samples(
        self,
        X: Views | PlacedSamples,
        backend: Backend = NUMPY,
        kernels: Sequence[int] | AnyArray | None = None,
        across: PlacedSamples | None = None,
    ) -> PlacedSamples:
        """Place views of some samples on a backend, and compute once what the normalisations need of them.

        Parameters
        ----------
        X : list or PlacedSamples
            What `views` returned, or the same samples in this process.
        backend : Backend
            Where blocks are to be computed.
        kernels : sequence of int, optional
            The fitted kernels whose blocks will be computed; by default all of them.
        across : PlacedSamples, optional
            The samples on the other side of the blocks: products are between samples less the same centre.
        """
        if isinstance(X, PlacedSamples) and X.backend is backend:
            return X
        views, row_scales = (X.views, X.row_scales) if isinstance(X, PlacedSamples) else (X, None)
        asked = set(range(len(self.fitted)) if kernels is None else map(int, kernels))
        if row_scales is None:
            row_scales = [
                one.normalization.row_scale(views[m]) if m in asked else None for m, one in enumerate(self.fitted)
            ]
        none = [None] * len(views)
        if backend is NUMPY:
            shares = [isinstance(one.kernel, StatisticKernel) for one in self.fitted]
            return PlacedSamples(backend, views, row_scales, shares, none, none)
        shares = [_takes_tensors(one.kernel, backend) for one in self.fitted] if across is None else across.shares
        centres = _centres(self.fitted, views, shares, backend) if across is None else across.centres
        placed: dict[tuple[int, int], tuple[Any, Any]] = {}
        samples = PlacedSamples(backend, list(views), list(row_scales), shares, centres, none[:])
        for m in sorted(asked):
            if shares[m]:
                key = (id(views[m]), id(centres[m]))
                if key not in placed:
                    placed[key] = _place(views[m], centres[m], backend)
                samples.views[m], samples.norms[m] = placed[key]
                samples.row_scales[m] = None if row_scales[m] is None else backend.asarray(row_scales[m])
        return samples

    def blocks(
        self,
        X: Views | PlacedSamples,
        Y: Views | PlacedSamples,
        kernels: Sequence[int] | AnyArray,
        dtype: DType = None,
    ) -> Iterator[tuple[int, Block]]:
        """Yield (m, block of kernel m between X and Y) for each given m, in the samples' backend.

        Kernels that are functions of the same statistic of the same columns share it: it is computed once for all. On
        a device it is computed in double precision, which is as fast there as single precision without shortcuts.
        """
        left = X if isinstance(X, PlacedSamples) else self.samples(X, kernels=kernels)
        right = left if Y is X else Y if isinstance(Y, PlacedSamples) else self.samples(Y, kernels=kernels)
        shared: dict[tuple[str, int, int], list[int]] = {}
        for m in kernels:
            kernel = self.fitted[m].kernel
            if left.shares[m] and isinstance(kernel, StatisticKernel):
                shared.setdefault((kernel.statistic, id(left.views[m]), id(right.views[m])), []).append(m)
            else:
                K = kernel._block(left.views[m], right.views[m])
                K = self.fitted[m].normalization.block(K, left.row_scales[m], right.row_scales[m])
                yield m, K if left.backend is NUMPY else left.backend.asarray(K, np.float64 if dtype is None else dtype)
        for members in shared.values():
            # Rounding the statistic instead of the kernel halves the cost of the formula.
            exact = self.statistic(members, left, right)
            backend = left.backend
            kind = backend.dtype(exact) if dtype is None else np.dtype(dtype)
            rounded = backend.astype(exact, kind)
            for m in members:
                kernel = self.fitted[m].kernel
                assert isinstance(kernel, StatisticKernel)
                rule = self.fitted[m].normalization
                S = exact if rule.rounds_last(left.row_scales[m], right.row_scales[m]) else rounded
                K = kernel.from_statistic(S)
                # A formula may hand the statistic on as it is; what follows may write into it.
                K = backend.copy(K) if backend.may_share_memory(K, S) else K
                K = rule.block(K, left.row_scales[m], right.row_scales[m])
                yield m, backend.astype(K, kind)

    def products(
        self,
        views: Views,
        support: Views,
        right: NDArray[np.float64],
        device: str,
        entries: int | None = None,
        columns: int = 8192,
    ) -> NDArray[np.float64]:
        """Return K_m right between samples and support samples for every kernel, (P, n, k), computed on a device.

        Parameters
        ----------
        views, support : list
            Samples as the kernels see them.
        right : ndarray of shape (n_support, k)
            Coefficients.
        device : str
            Where to compute.
        entries : int, optional
            Of the blocks worked on at once.
        columns : int
            Multiplied at once: this many entries of a row, with a few rows, stay in the device's cache.
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
                for m, block in self.blocks(left, across if width == s else across.take(part), every, np.float64):
                    sums[m] += block @ coefficients[part]
            out[:, rows] = backend.to_numpy(sums)
        return out

    def statistic(self, members: Sequence[int], left: PlacedSamples, right: PlacedSamples) -> Block:
        """Return the block of the statistic that these kernels are functions of, exact enough for the narrowest."""
        m, kernels = members[0], [self.fitted[k].kernel for k in members]
        scales = [kernel.statistic_scale() for kernel in kernels if isinstance(kernel, StatisticKernel)]
        norms = None if left.norms[m] is None else (left.norms[m], right.norms[m])
        name = kernels[0].statistic
        return pairwise_statistic(name, left.views[m], right.views[m], min(scales), right.centres[m], norms)

    def check_definite(self, views: Views, coefficients: NDArray[np.float64]) -> None:
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

    def diagonals(self, X: Views | PlacedSamples) -> NDArray[np.float64]:
        """Return k_m(x, x) of samples in this process, of shape (P, n)."""
        samples = self.samples(X)
        every = zip(self.fitted, samples.views, samples.row_scales, strict=True)
        return np.array([one.normalization.diagonal(one.kernel._diagonal(V), scale) for one, V, scale in every])


def _takes_tensors(kernel: Kernel, backend: Backend) -> bool:
    """Whether a kernel has a formula for tensors: those of others may be written for NumPy alone."""
    if not isinstance(kernel, StatisticKernel):
        return kernel.takes_tensors
    try:
        return is_tensor(kernel.from_statistic(backend.zeros((1, 1))))
    except Exception:  # whatever a formula for arrays makes of a tensor, the host serves
        return False


def _centres(fitted: Sequence[FittedKernel], views: Views, shares: list[bool], backend: Backend) -> list[Any]:
    """Return the mean of the samples where squared distances are needed: far from the origin, norms cancel digits."""
    found: dict[int, Any] = {}
    centres: list[Any] = [None] * len(views)
    for m, (one, view) in enumerate(zip(fitted, views, strict=True)):
        if shares[m] and getattr(one.kernel, "statistic", None) == "squared_distances":
            if id(view) not in found:
                found[id(view)] = backend.asarray(np.asarray(view.mean(axis=0), dtype=np.float64).ravel())
            centres[m] = found[id(view)]
    return centres


def _place(view: Any, centre: Any, backend: Backend) -> tuple[Any, Any]:
    """Return samples on a device, in double precision, and their squared norms less a centre if there is one."""
    V = backend.asarray(view.toarray() if hasattr(view, "toarray") else view)
    return V, None if centre is None else ((V - centre) ** 2).sum(1)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Add the name of the kernel to an error: a kernel itself has no name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"kernel {name!r}: {error}") from error


def _views(
    fitted: Sequence[KernelSpec | FittedKernel],
    X: MatrixLike,
    present: NDArray[np.bool_] | None = None,
    stand_ins: list[Any] | None = None,
) -> Views:
    """Cut X into the kernels' columns; equal columns give the same object, by which shared work is recognised.

    Where samples lack what a kernel reads, they get a stand-in; without stand-ins, they are left out.
    """
    cut: dict[tuple[Any, ...], Any] = {}
    views = []
    for m, one in enumerate(fitted):
        own = None if present is None or present[:, m].all() else present[:, m]
        columns = None if one.columns is None else one.columns.tobytes()
        key = (one.kernel.validate.__func__, columns, None if own is None else own.tobytes())  # type: ignore[attr-defined]
        if key not in cut or one.kernel.input_kind not in ("numbers", "graphs"):
            V = take_columns(X, one.columns)
            if own is not None and stand_ins is None:
                V = V[own]
            elif own is not None and stand_ins is not None:
                V = np.array(V)
                V[~own] = stand_ins[m]
            with named(one.name):
                cut[key] = in_double(one.kernel.validate(V))
        views.append(cut[key])
    return views


def in_double(X: MatrixLike) -> MatrixLike:
    """Return samples with numbers in double precision: a kernel of singles is off by more than a certificate states."""
    return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X


def take_rows(views: Views, rows: RowIndex, backend: Backend = NUMPY) -> Views:
    """Return some rows of every view, keeping equal views equal; tensors are those of the backend."""
    taken: dict[int, Any] = {id(None): None}
    for view in views:
        if id(view) not in taken:
            taken[id(view)] = view[backend.index(rows) if is_tensor(view) else rows]
    return [taken[id(view)] for view in views]
