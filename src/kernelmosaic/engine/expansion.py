"""Fitted functions, from support samples or in features, with or without gates: the one way to
predict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from kernelmosaic._typing import Array, ArrayOrTensor, Indices, MatrixLike
from kernelmosaic.backend import (
    allowed_threads,
    default_budget,
    format_bytes,
    has_device,
    iterate_threads,
    one_blas_thread,
    row_strips,
    torch_backend,
)
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.kernel_set import KernelSet, Views, take_rows
from kernelmosaic.gram.missing import MissingViews
from kernelmosaic.gram.options import device_entries
from kernelmosaic.gram.row_blocks import open_rows

#: Gates, and shares of an output's largest coefficient, below this are lost in the rounding of a
#: sum.
ROUNDING = 1e-12
#: Samples are left out where at most this share of them remains.
_WORTH_SKIPPING = 0.9
#: Bytes of kernel values, or of samples and features, worked on at once; a device cuts its own
#: further.
_BLOCK_BYTES = {"support": 2**21, "features": 2**22}
_DEVICE_BYTES = {"support": 2**32, "features": 2**29}
#: Multiplications of a prediction below which one thread makes its products.
_SMALL_PRODUCT = 2**27


@dataclass(frozen=True)
class SupportSums:
    """The sums Σ_i β_cmi k_m(x, x_i) over support samples.

    Attributes
    ----------
    kernel_set : KernelSet
        The kernels.
    samples : Views
        The support samples as these kernels read them.
    beta : ndarray of shape (outputs, n_support) or (outputs, kernels, n_support)
        Signed dual coefficients, for all kernels alike, or times the gates of the support samples:
        β_ci g_cm(x_i).
    """

    kernel_set: KernelSet
    samples: Views
    beta: Array

    def take(self, outputs: slice) -> Self:
        """Return those of some outputs."""
        return replace(self, beta=self.beta[outputs])

    def unit_samples(self, columns: Indices, width: int) -> Views:
        """Return zero, and one in each of the columns of a kernel in turn, as `products` takes
        samples."""
        return Views((np.eye(len(columns) + 1, len(columns), -1),), (0,) * len(self.kernel_set))

    def sizes(self) -> list[int]:
        """Return with how many support samples each kernel is evaluated."""
        return [len(self._columns(k)) for k in range(len(self.kernel_set))]

    def views_of(self, X: MatrixLike) -> Views:
        """Return samples as the kernels read them."""
        return self.kernel_set.views(X)

    def strips(self, X: MatrixLike, device: str | None) -> Iterator[tuple[slice, Views]]:
        """Yield (rows, these samples as the kernels read them)."""
        if len(self.kernel_set) == 0 or self.beta.shape[-1] == 0:
            return
        most = (_BLOCK_BYTES if device is None else _DEVICE_BYTES)["support"]
        # Singles become doubles, of which there may be no room for all.
        views = None if getattr(X, "dtype", None) == np.float32 else self.views_of(X)
        for strip in row_strips(X.shape[0], most // (8 * self.beta.shape[-1])):
            rows = np.arange(strip.start, strip.stop)
            yield (
                strip,
                self.views_of(X[strip]) if views is None else _take(views, rows, X.shape[0]),
            )

    def products(
        self, strip: Views, kernels: Sequence[int], device: str | None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (k, the sums of kernel k) for samples of a strip, of shape (samples, outputs)."""
        # Kernels of the same support samples are computed together: they may share what they are
        # made of.
        shared = self.beta.ndim == 2
        groups = (
            [(self._columns(kernels[0]), kernels)]
            if shared
            else _together((self._columns(k), k) for k in kernels)
        )
        for columns, members in groups:
            support = _take(self.samples, columns, self.beta.shape[-1])
            if device is None:
                for k, K in self.kernel_set.blocks(strip, support, members):
                    with np.errstate(invalid="ignore"):  # kernels that overflow are refused by name
                        values = K @ self.of_kernel(k)[:, columns].T
                    yield k, values
                continue
            for group in [members] if shared else [[k] for k in members]:
                chosen, beta = self.kernel_set.take(group), self.of_kernel(group[0])[:, columns].T
                left, right = (
                    self.kernel_set.take_views(views, group) for views in (strip, support)
                )
                yield from zip(group, chosen.products(left, right, beta, device), strict=True)

    def pairs(self, X: MatrixLike, Y: MatrixLike) -> Iterator[tuple[slice, slice, int, Array]]:
        """Yield (rows of X, rows of Y, k, kernel k between them)."""
        left = self.views_of(X)
        right = left if Y is X else self.views_of(Y)
        for k, K in self.kernel_set.blocks(left, right, range(len(self.kernel_set))):
            yield slice(None), slice(None), k, K

    def of_kernel(self, k: int) -> Array:
        """Return the coefficients of the support samples for kernel k, one row per output."""
        return self.beta if self.beta.ndim == 2 else self.beta[:, k]

    def _columns(self, k: int) -> Indices:
        """The support samples that kernel k is evaluated with: under gates, those with a
        coefficient in any output."""
        if self.beta.ndim == 2:
            return np.arange(self.beta.shape[1])
        return np.flatnonzero(np.any(self.beta[:, k] != 0, axis=0))


@dataclass(frozen=True)
class FeatureSums:
    """The sums Σ_i β_cmi k_m(x, x_i) = ⟨w_cm, z_m(x)⟩ in features, which need no support samples.

    Attributes
    ----------
    kernel_set : FeatureMaps
        The kernels with their feature maps.
    w : list of ndarray of shape (features, outputs)
        The weight vectors Σ_i β_cmi z_m(x_i), per kernel.
    """

    kernel_set: FeatureMaps
    w: list[Array]

    def take(self, outputs: slice) -> FeatureSums:
        """Return those of some outputs."""
        return replace(self, w=[one[:, outputs] for one in self.w])

    def unit_samples(self, columns: Indices, width: int) -> Views:
        """Return zero, and one in each of the columns of a kernel in turn, as `products` takes
        samples."""
        return Views((np.eye(width + 1, width, -1)[np.append(0, columns + 1)],), (0,))

    def sizes(self) -> list[int]:
        """Return the number of features per kernel."""
        return [len(one) for one in self.w]

    def strips(self, X: MatrixLike, device: str | None = None) -> Iterator[tuple[slice, Views]]:
        """Yield (rows, these samples)."""
        rows = open_rows(X)
        most = (_BLOCK_BYTES if device is None else _DEVICE_BYTES)["features"]
        width = rows.row_width + 3 * int(self.kernel_set.widths.sum())
        for strip in row_strips(rows.shape[0] if self.w else 0, most // (8 * width)):
            yield strip, Views((rows.take(strip),), (0,))

    def products(
        self, strip: Views, kernels: Sequence[int], device: str | None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (k, the sums of kernel k) for samples of a strip, of shape (samples, outputs)."""
        if device is None:
            for k, Z in self.kernel_set.blocks(strip[0], kernels):
                yield k, Z @ self.w[k]
            return
        chosen, w = self.kernel_set.take(kernels), [self.w[k] for k in kernels]
        yield from zip(kernels, chosen.products(open_rows(strip[0]), w, device), strict=True)

    def pairs(self, X: MatrixLike, Y: MatrixLike) -> Iterator[tuple[slice, slice, int, Array]]:
        """Yield (rows of X, rows of Y, k, kernel k between them)."""
        for rows, (left,) in self.strips(X):
            for k, Z in self.kernel_set.blocks(left, range(len(self.w))):
                for columns, (right,) in self.strips(Y):
                    for _, V in self.kernel_set.blocks(right, [k]):
                        yield rows, columns, k, Z @ V.T


@dataclass(frozen=True)
class Expansion:
    """f_c(x) = Σ_m g_cm(x) η_cm Σ_i β_cmi k_m(x, x_i), with g = 1 where there are no gates.

    Gates have the shape (outputs, n, P), or (1, n, P) where the outputs share them. A kernel is not
    evaluated for samples whose gate is lost in rounding, unless these are few.

    Attributes
    ----------
    sums : SupportSums or FeatureSums
        The inner sums, of the kernels that are kept.
    eta : ndarray of shape (outputs, kept kernels)
        Weights; ones under gates.
    kept : ndarray
        The numbers of the kept kernels among all P.
    n_kernels : int
        P.
    device : str or None
        Where it was fitted, and is evaluated as long as that device is there.
    skip : bool
        Whether a kernel is left out for samples whose gates are too small to change an output;
        False evaluates every kernel for every sample.
    """

    sums: SupportSums | FeatureSums
    eta: Array
    kept: Indices
    n_kernels: int
    device: str | None = None
    skip: bool = True

    @property
    def kernel_set(self) -> KernelSet | FeatureMaps:
        """The kept kernels."""
        return self.sums.kernel_set

    @property
    def active(self) -> Indices:
        """The numbers, among all P, of the kernels that predictions need."""
        return self.kept[np.array(self.sums.sizes(), dtype=np.intp) > 0]

    def take(self, outputs: slice) -> Expansion:
        """Return that of some outputs."""
        return replace(self, sums=self.sums.take(outputs), eta=self.eta[outputs])

    def slopes(self, m: int, columns: Indices, width: int) -> Array:
        """Return of every output the slopes of the share of a linear kernel in its columns, of
        `width` of a sample."""
        out = np.zeros((len(columns), len(self.eta)))
        for k in np.flatnonzero(self.kept == m):
            ((_, values),) = self.sums.products(
                self.sums.unit_samples(columns, width), [int(k)], None
            )
            out = (values[1:] - values[0]) * self.eta[:, k]
        return out

    def values(self, X: MatrixLike, gates: Array | None = None) -> Array:
        """Return the outputs without their intercepts, of shape (n, outputs)."""
        out = np.zeros((open_rows(X).shape[0], len(self.eta)))
        for rows, m, values in self._shares(X, gates):
            if not np.isfinite(values).all():
                at = np.arange(len(out))[rows][np.argmin(np.isfinite(values).all(axis=1))]
                name = self.kernel_set.names[int(np.searchsorted(self.kept, m))]
                raise ValueError(
                    f"X[{at}]: kernel {name!r} overflows for this sample; correct its values, or"
                    " scale them like those of the training samples."
                )
            out[rows] += values
        return out

    def terms(self, X: MatrixLike, gates: Array | None = None) -> Array:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        needed = 8 * open_rows(X).shape[0] * self.n_kernels * len(self.eta)
        if needed > default_budget():
            raise MemoryError(
                f"X: the contributions of {self.n_kernels} kernels for {open_rows(X).shape[0]}"
                f" samples need {format_bytes(needed)}, the budget is"
                f" {format_bytes(default_budget())}: give fewer samples at a time."
            )
        out = np.zeros((open_rows(X).shape[0], self.n_kernels, len(self.eta)))
        for rows, m, values in self._shares(X, gates):
            out[rows, m] = values
        return out

    def combined(
        self,
        X: MatrixLike,
        Y: MatrixLike,
        left_gates: Array | None = None,
        right_gates: Array | None = None,
    ) -> Array:
        """Return Σ_m g_cm(x) η_cm k_m(x, z) g_cm(z) between X and Y, of shape (outputs or 1,
        len(X), len(Y))."""
        eta = self.eta if left_gates is None else self.eta[: len(left_gates)]
        out = np.zeros((len(eta), open_rows(X).shape[0], open_rows(Y).shape[0]))
        for rows, columns, k, K in self.sums.pairs(X, Y):
            m = self.kept[k]
            for c in np.flatnonzero(eta[:, k]):
                share = eta[c, k] * K
                if left_gates is not None and right_gates is not None:
                    share *= np.outer(left_gates[c, rows, m], right_gates[c, columns, m])
                out[c, rows, columns] += share
        return out

    def placed(self, X: MatrixLike, Y: MatrixLike) -> ArrayOrTensor:
        """Return Σ_m η_m k_m(x, z) by the weights of the first output, on the device of the fit if
        it is there."""
        kernels = self.sums.kernel_set
        if not has_device(self.device) or not isinstance(kernels, KernelSet):
            return replace(self, eta=self.eta[:1]).combined(X, Y)[0]
        backend = torch_backend(str(self.device))
        right = kernels.place_samples(kernels.views(Y), backend)
        left = right if X is Y else kernels.place_samples(kernels.views(X), backend, across=right)
        out = backend.zeros((left.n_samples, right.n_samples))
        for rows in row_strips(left.n_samples, device_entries(backend) // right.n_samples):
            for k, block in kernels.blocks(left.take(rows), right, range(len(kernels)), np.float64):
                backend.add_scaled(out[rows], block, float(self.eta[0, k]))
        return out

    def diagonal(self, X: MatrixLike) -> Array:
        """Return Σ_m η_m k_m(x, x) by the weights of the first output, of shape (n,); of support
        samples only."""
        kernels: Any = self.sums.kernel_set
        return np.asarray(self.eta[0] @ kernels.diagonals(kernels.views(X)))

    def _shares(self, X: MatrixLike, gates: Array | None) -> Iterator[tuple[Any, int, Array]]:
        """Yield (rows, m, what kernel m adds to the outputs there), m among all P."""
        device = self.device if has_device(self.device) else None
        # Samples in single precision, or on a disk, are read strip by strip: there may be no room
        # for all.
        several = device is None and isinstance(X, np.ndarray) and X.dtype == np.float64
        n, d = open_rows(X).shape
        entries = n * max(self.sums.sizes(), default=0)
        n_threads = allowed_threads() if several and 8 * entries > _BLOCK_BYTES["support"] else 1
        # Threads of the libraries wait for each other in small products, long where cores are busy.
        with one_blas_thread() if entries * d < _SMALL_PRODUCT else nullcontext():
            for shares in iterate_threads(
                lambda strip: list(self._strip_shares(strip[0], strip[1], gates, device)),
                self.sums.strips(X, device),
                n_threads,
            ):
                yield from shares

    def _strip_shares(
        self, strip: slice, samples: Views, gates: Array | None, device: str | None
    ) -> Iterator[tuple[Any, int, Array]]:
        """Yield the same of one strip of samples."""
        if gates is None:
            for k, values in self.sums.products(samples, range(len(self.kept)), device):
                yield strip, int(self.kept[k]), values * self.eta[:, k]
            return
        # Kernels of the same samples are computed together, too.
        for rows, kernels in _together(
            (self._rows(strip, gates, m), k) for k, m in enumerate(self.kept)
        ):
            left, at = _take(samples, rows, strip.stop - strip.start), rows + strip.start
            for k, values in self.sums.products(left, kernels, device):
                m = int(self.kept[k])
                yield at, m, values * self.eta[:, k] * gates[:, at, m].T

    def _rows(self, strip: slice, gates: Array, m: int) -> Indices:
        """The samples of a strip, counted from its start, for which to evaluate kernel m."""
        all_rows = np.arange(strip.stop - strip.start)
        counted = np.flatnonzero(np.any(np.abs(gates[:, strip, m]) > ROUNDING, axis=0))
        # Rows of its own cost a kernel what it shares with others: a few samples to leave out are
        # not worth it.
        return counted if self.skip and len(counted) < _WORTH_SKIPPING * len(all_rows) else all_rows


@dataclass(frozen=True)
class PartialSums(SupportSums):
    """The same for samples that may lack views, and are evaluated with stand-ins then.

    Attributes
    ----------
    missing : MissingViews
        What stands in.
    kept : ndarray
        The numbers of the kernels among all P.
    """

    missing: MissingViews
    kept: Indices

    def views_of(self, X: MatrixLike) -> Views:
        present = self.missing.present_in(X)
        return self.missing.views_of(X, present).take(self.kept)


@dataclass(frozen=True)
class PartialExpansion(Expansion):
    """The same function of samples that may lack views.

    What a sample has it contributes itself, as gates that are zero for the rest see to; in place of
    a view that it lacks it contributes what its neighbours do on average, if that is the rule.

    Attributes
    ----------
    shared : list
        What every kernel contributes at the training samples, once it is asked for, of shape (n,
        outputs).
    """

    sums: PartialSums
    shared: list[Array] = field(default_factory=list, init=False)

    def combined(
        self,
        X: MatrixLike,
        Y: MatrixLike,
        left_gates: Array | None = None,
        right_gates: Array | None = None,
    ) -> Array:
        missing = self.sums.missing
        if all(missing.present_in(one) is None for one in (X, Y)):
            return super().combined(X, Y)
        out = np.zeros((len(self.eta), X.shape[0], Y.shape[0]))
        for m, K in missing.blocks(X, Y, self.kept):
            out += self.eta[:, int(np.searchsorted(self.kept, m)), np.newaxis, np.newaxis] * K
        return out

    def diagonal(self, X: MatrixLike) -> Array:
        missing, one = self.sums.missing, replace(self, eta=self.eta[:1])
        present = missing.present_in(X)
        if present is None:
            return super().diagonal(X)
        complete = present.all(axis=1)
        out = np.empty(X.shape[0])
        if complete.any():
            out[complete] = super().diagonal(X[complete])
        # A stand-in has its own length: that of a mean, or of the rest made longer.
        some = np.flatnonzero(~complete)
        for strip in row_strips(len(some), 500):
            out[some[strip]] = np.diagonal(one.combined(X[some[strip]], X[some[strip]])[0])
        return out

    def _shares(self, X: MatrixLike, gates: Array | None) -> Iterator[tuple[Any, int, Array]]:
        missing = self.sums.missing
        present = missing.present_in(X)
        if present is None:
            yield from super()._shares(X, None)
            return
        yield from super()._shares(X, missing.factors(present)[np.newaxis])
        if missing.rule != "neighbors":
            return
        some = np.flatnonzero(~present.all(axis=1))
        views = take_rows(missing.views_of(X, present), some)
        for m, neighbors in enumerate(missing.neighbors(views, present[some])):
            if neighbors is not None and m in self.kept:
                rows = np.flatnonzero(~present[some, m])
                yield (
                    some[rows],
                    m,
                    neighbors[rows] @ self._of_training()[int(np.searchsorted(self.kept, m))],
                )

    def _of_training(self) -> list[Array]:
        """What the kernels contribute at the training samples that have their views."""
        if not self.shared:
            every = range(len(self.kept))
            views = self.sums.missing.views.take(self.kept)
            found = dict(self.sums.products(views, every, None)) if self.sums.beta.shape[-1] else {}
            none = np.zeros((len(self.sums.missing.present), len(self.eta)))
            self.shared.extend(found.get(k, none) * self.eta[:, k] for k in every)
        return self.shared


def hide_rounding(beta: Array) -> Array:
    """Return β_ci g_cm(x_i), of shape (outputs, P, n), with zeros for what is lost in the rounding
    of an output."""
    size = np.abs(beta)
    return np.where(size > ROUNDING * size.max(axis=(1, 2), initial=0.0, keepdims=True), beta, 0.0)


def _together(items: Iterable[tuple[Indices, int]]) -> Iterator[tuple[Indices, list[int]]]:
    """Gather the kernels with the same row numbers; those without any are left out."""
    groups: dict[bytes, tuple[Indices, list[int]]] = {}
    for rows, k in items:
        if len(rows):
            groups.setdefault(rows.tobytes(), (rows, []))[1].append(k)
    yield from groups.values()


def _take(views: Views, rows: Indices, n: int) -> Views:
    """Return some of n rows, in ascending order, of every view: contiguous ones, and so all of
    them, without a copy."""
    if len(rows) == rows[-1] - rows[0] + 1:
        return views if len(rows) == n else take_rows(views, slice(int(rows[0]), int(rows[-1]) + 1))
    return take_rows(views, rows)


# Functions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """f_c(x) = Σ_m η_cm Σ_i β_ci k_m(x, x_i) + b_c.

    Attributes
    ----------
    expansion : Expansion
        The sums.
    intercept : ndarray of shape (outputs,)
        The constants.
    shares_weights : bool
        Whether all outputs have the same weights.
    """

    expansion: Expansion
    intercept: Array
    shares_weights: bool = True

    def outputs(self, X: MatrixLike) -> Array:
        """Return the outputs for validated samples, of shape (n, outputs)."""
        return np.asarray(self.expansion.values(X) + self.intercept)

    def terms(self, X: MatrixLike) -> Array:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        return self.expansion.terms(X)

    def combined(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Return the combined kernel between validated samples, one for every set of weights."""
        one = replace(self.expansion, eta=self.expansion.eta[:1])
        return (one if self.shares_weights else self.expansion).combined(X, Y)


@dataclass(frozen=True)
class StripFunction(Function):
    """Many outputs with weights of their own, so many of which are evaluated at once."""

    at_once: ClassVar[int] = 4096

    def outputs(self, X: MatrixLike) -> Array:
        out = np.empty((X.shape[0], len(self.intercept)))
        for part in row_strips(len(self.intercept), self.at_once):
            out[:, part] = self.expansion.take(part).values(X) + self.intercept[part]
        return out
