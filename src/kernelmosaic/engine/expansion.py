"""Fitted functions: weighted sums of kernels between samples and support samples, or in features.

An `Expansion` is the sum without the constants, a `Function` adds these. All estimators predict by
one of them. The share of a kernel is what it adds to the outputs.
"""

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

#: Gates, and coefficients relative to the largest one of their output, below this are lost in the
#: rounding of a sum.
ROUNDING = 1e-12
#: A kernel is evaluated for some of the samples of a strip if these are fewer than this fraction of
#: it. A kernel with rows of its own cannot share distances with others, so that it does not pay to
#: leave out a few samples. Chosen by hand.
_MAX_FRACTION_OF_ROWS = 0.9
#: Bytes of kernel values, or of samples and features, in a strip; a device cuts strips further.
#: Chosen by hand.
_BLOCK_BYTES = {"support": 2**21, "features": 2**22}
_DEVICE_BYTES = {"support": 2**32, "features": 2**29}
#: Multiplications of a prediction below which its products are made by one thread, since threads of
#: linear algebra would wait for each other. Chosen by hand.
_SMALL_PRODUCT = 2**27
#: Number of samples that lack views whose k(x, x) is computed from one block. Chosen by hand.
_INCOMPLETE_ROWS = 500

# Sums over training samples -----------------------------------------------------------------------


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
        Signed dual coefficients, the same for all kernels, or times the gates of the support
        samples: β_ci g_cm(x_i).
    """

    kernel_set: KernelSet
    samples: Views
    beta: Array

    def take(self, outputs: slice) -> Self:
        """Return the sums of some outputs."""
        return replace(self, beta=self.beta[outputs])

    def unit_samples(self, columns: Indices, width: int) -> Views:
        """Return zero and the unit vectors of a kernel's columns, as `products` takes samples."""
        return Views((np.eye(len(columns) + 1, len(columns), -1),), (0,) * len(self.kernel_set))

    def sizes(self) -> list[int]:
        """Return the number of support samples of each kernel."""
        return [len(self._columns(k)) for k in range(len(self.kernel_set))]

    def views_of(self, X: MatrixLike) -> Views:
        """Return samples as the kernels read them."""
        return self.kernel_set.views(X)

    def strips(self, X: MatrixLike, device: str | None) -> Iterator[tuple[slice, Views]]:
        """Yield (rows, these samples as the kernels read them)."""
        n_support = self.beta.shape[-1]
        if len(self.kernel_set) == 0 or n_support == 0:
            return
        block_bytes = (_BLOCK_BYTES if device is None else _DEVICE_BYTES)["support"]
        n_samples = X.shape[0]
        strips = row_strips(n_samples, block_bytes // (8 * n_support))
        if getattr(X, "dtype", None) == np.float32:
            # Kernels read doubles, and there may be no room for all samples in double precision.
            for strip in strips:
                yield strip, self.views_of(X[strip])
            return
        views = self.views_of(X)
        for strip in strips:
            yield strip, _take(views, np.arange(strip.start, strip.stop), n_samples)

    def products(
        self, strip: Views, kernels: Sequence[int], device: str | None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (k, the sums of kernel k) for samples of a strip, of shape (samples, outputs)."""
        # Kernels with the same support samples are computed together, because they may share
        # distances and other parts.
        has_shared_beta = self.beta.ndim == 2
        if has_shared_beta:
            groups: Iterable[tuple[Indices, Sequence[int]]] = [(self._columns(kernels[0]), kernels)]
        else:
            groups = _with_same_rows((self._columns(k), k) for k in kernels)
        for columns, members in groups:
            support = _take(self.samples, columns, self.beta.shape[-1])
            if device is None:
                for k, K in self.kernel_set.blocks(strip, support, members):
                    # Kernels that overflow are refused by name later.
                    with np.errstate(invalid="ignore"):
                        values = K @ self.of_kernel(k)[:, columns].T
                    yield k, values
                continue
            # On a device the kernels of one call have the same coefficients.
            calls = [members] if has_shared_beta else [[k] for k in members]
            for call in calls:
                kernel_set = self.kernel_set.take(call)
                left = self.kernel_set.take_views(strip, call)
                right = self.kernel_set.take_views(support, call)
                beta = self.of_kernel(call[0])[:, columns].T
                yield from zip(call, kernel_set.products(left, right, beta, device), strict=True)

    def pairs(self, X: MatrixLike, Y: MatrixLike) -> Iterator[tuple[slice, slice, int, Array]]:
        """Yield (rows of X, rows of Y, k, kernel k between them)."""
        left = self.views_of(X)
        right = left if Y is X else self.views_of(Y)
        for k, K in self.kernel_set.blocks(left, right, range(len(self.kernel_set))):
            yield slice(None), slice(None), k, K

    def of_kernel(self, k: int) -> Array:
        """Return the coefficients of kernel k, of shape (outputs, n_support)."""
        return self.beta if self.beta.ndim == 2 else self.beta[:, k]

    def _columns(self, k: int) -> Indices:
        """Return the numbers of the support samples of kernel k.

        Under gates these are the samples with a coefficient of the kernel in any output.
        """
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
        """Return the sums of some outputs."""
        return replace(self, w=[w[:, outputs] for w in self.w])

    def unit_samples(self, columns: Indices, width: int) -> Views:
        """Return zero and the unit vectors of a kernel's columns, as `products` takes samples."""
        zero_and_units = np.eye(width + 1, width, -1)
        return Views((zero_and_units[np.append(0, columns + 1)],), (0,))

    def sizes(self) -> list[int]:
        """Return the number of features of each kernel."""
        return [len(w) for w in self.w]

    def strips(self, X: MatrixLike, device: str | None = None) -> Iterator[tuple[slice, Views]]:
        """Yield (rows, these samples)."""
        rows = open_rows(X)
        block_bytes = (_BLOCK_BYTES if device is None else _DEVICE_BYTES)["features"]
        # The factor 3 leaves room for what feature maps compute on the way. Chosen by hand.
        numbers_per_row = rows.row_width + 3 * int(self.kernel_set.widths.sum())
        n_samples = rows.shape[0] if self.w else 0
        for strip in row_strips(n_samples, block_bytes // (8 * numbers_per_row)):
            yield strip, Views((rows.take(strip),), (0,))

    def products(
        self, strip: Views, kernels: Sequence[int], device: str | None
    ) -> Iterator[tuple[int, Array]]:
        """Yield (k, the sums of kernel k) for samples of a strip, of shape (samples, outputs)."""
        if device is None:
            for k, Z in self.kernel_set.blocks(strip[0], kernels):
                yield k, Z @ self.w[k]
            return
        kernel_set = self.kernel_set.take(kernels)
        w = [self.w[k] for k in kernels]
        yield from zip(kernels, kernel_set.products(open_rows(strip[0]), w, device), strict=True)

    def pairs(self, X: MatrixLike, Y: MatrixLike) -> Iterator[tuple[slice, slice, int, Array]]:
        """Yield (rows of X, rows of Y, k, kernel k between them)."""
        for rows, (left,) in self.strips(X):
            for k, Z in self.kernel_set.blocks(left, range(len(self.w))):
                for columns, (right,) in self.strips(Y):
                    for _, V in self.kernel_set.blocks(right, [k]):
                        yield rows, columns, k, Z @ V.T


# Weighted sums of kernels -------------------------------------------------------------------------


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
        The device of the fit, on which the function is evaluated as long as it is there.
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
        """Return the expansion of some outputs."""
        return replace(self, sums=self.sums.take(outputs), eta=self.eta[outputs])

    def slopes(self, m: int, columns: Indices, width: int) -> Array:
        """Return the slopes of a linear kernel's share of the outputs in the columns it reads.

        Parameters
        ----------
        m : int
            The number of the kernel among all P.
        columns : ndarray
            The columns that it reads.
        width : int
            The number of columns of a sample.

        Returns
        -------
        ndarray of shape (len(columns), outputs)
        """
        slopes = np.zeros((len(columns), len(self.eta)))
        for k in np.flatnonzero(self.kept == m):
            # The kernel is linear: slopes are differences between unit vectors and zero.
            samples = self.sums.unit_samples(columns, width)
            ((_, values),) = self.sums.products(samples, [int(k)], None)
            slopes = (values[1:] - values[0]) * self.eta[:, k]
        return slopes

    def values(self, X: MatrixLike, gates: Array | None = None) -> Array:
        """Return the outputs without their intercepts, of shape (n, outputs)."""
        out = np.zeros((open_rows(X).shape[0], len(self.eta)))
        for rows, m, values in self._shares(X, gates):
            is_finite = np.isfinite(values)
            if not is_finite.all():
                row = np.arange(len(out))[rows][np.argmin(is_finite.all(axis=1))]
                name = self.kernel_set.names[int(np.searchsorted(self.kept, m))]
                raise ValueError(
                    f"X[{row}]: kernel {name!r} overflows for this sample; correct its values, or"
                    " scale them like those of the training samples."
                )
            out[rows] += values
        return out

    def terms(self, X: MatrixLike, gates: Array | None = None) -> Array:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        n_samples = open_rows(X).shape[0]
        needed_bytes = 8 * n_samples * self.n_kernels * len(self.eta)
        if needed_bytes > default_budget():
            raise MemoryError(
                f"X: the contributions of {self.n_kernels} kernels for {n_samples}"
                f" samples need {format_bytes(needed_bytes)}, the budget is"
                f" {format_bytes(default_budget())}: give fewer samples at a time."
            )
        out = np.zeros((n_samples, self.n_kernels, len(self.eta)))
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
        """Return the combined kernel Σ_m g_cm(x) η_cm k_m(x, z) g_cm(z) between X and Y.

        Returns
        -------
        ndarray of shape (outputs, len(X), len(Y)), or (1, len(X), len(Y)) with shared gates
        """
        eta = self.eta if left_gates is None else self.eta[: len(left_gates)]
        out = np.zeros((len(eta), open_rows(X).shape[0], open_rows(Y).shape[0]))
        for rows, columns, k, K in self.sums.pairs(X, Y):
            m = self.kept[k]
            for c in np.flatnonzero(eta[:, k]):
                weighted = eta[c, k] * K
                if left_gates is not None and right_gates is not None:
                    weighted *= np.outer(left_gates[c, rows, m], right_gates[c, columns, m])
                out[c, rows, columns] += weighted
        return out

    def placed(self, X: MatrixLike, Y: MatrixLike) -> ArrayOrTensor:
        """Return Σ_m η_m k_m(x, z) with the weights of the first output, where it was fitted.

        It is computed on the device of the fit if that is there, else on the host.
        """
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
        """Return Σ_m η_m k_m(x, x) with the weights of the first output, of shape (n,).

        The kernels must be exact, not in features.
        """
        kernels: Any = self.sums.kernel_set
        return np.asarray(self.eta[0] @ kernels.diagonals(kernels.views(X)))

    def _shares(self, X: MatrixLike, gates: Array | None) -> Iterator[tuple[Any, int, Array]]:
        """Yield (rows, m, the share of kernel m in the outputs of these rows), m among all P."""
        device = self.device if has_device(self.device) else None
        n, d = open_rows(X).shape
        n_entries = n * max(self.sums.sizes(), default=0)
        # Samples in single precision, or on a disk, are read strip by strip, since there may be no
        # room for several strips.
        is_in_memory = isinstance(X, np.ndarray) and X.dtype == np.float64
        n_threads = 1
        if device is None and is_in_memory and 8 * n_entries > _BLOCK_BYTES["support"]:
            n_threads = allowed_threads()
        is_small = n_entries * d < _SMALL_PRODUCT

        def shares_of_strip(strip: tuple[slice, Views]) -> list[tuple[Any, int, Array]]:
            return list(self._strip_shares(*strip, gates, device))

        strips = self.sums.strips(X, device)
        with one_blas_thread() if is_small else nullcontext():
            for shares in iterate_threads(shares_of_strip, strips, n_threads):
                yield from shares

    def _strip_shares(
        self, strip: slice, samples: Views, gates: Array | None, device: str | None
    ) -> Iterator[tuple[Any, int, Array]]:
        """Yield what `_shares` does for one strip of samples."""
        if gates is None:
            for k, values in self.sums.products(samples, range(len(self.kept)), device):
                yield strip, int(self.kept[k]), values * self.eta[:, k]
            return
        # Kernels with the same samples are computed together, because they may share distances.
        rows_of_kernels = ((self._rows(strip, gates, m), k) for k, m in enumerate(self.kept))
        for rows, kernels in _with_same_rows(rows_of_kernels):
            left = _take(samples, rows, strip.stop - strip.start)
            rows_of_X = rows + strip.start
            for k, values in self.sums.products(left, kernels, device):
                m = int(self.kept[k])
                yield rows_of_X, m, values * self.eta[:, k] * gates[:, rows_of_X, m].T

    def _rows(self, strip: slice, gates: Array, m: int) -> Indices:
        """Return the samples for which kernel m is evaluated, counted from the strip's start."""
        n_rows = strip.stop - strip.start
        rows = np.flatnonzero(np.any(np.abs(gates[:, strip, m]) > ROUNDING, axis=0))
        if self.skip and len(rows) < _MAX_FRACTION_OF_ROWS * n_rows:
            return rows
        return np.arange(n_rows)


# Samples that may lack views ----------------------------------------------------------------------


@dataclass(frozen=True)
class PartialSums(SupportSums):
    """The sums over support samples for samples that may lack views.

    Views that a sample lacks are replaced before they are evaluated.

    Attributes
    ----------
    missing : MissingViews
        What replaces them.
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
    """The function of an `Expansion` for samples that may lack views.

    The views that a sample has are evaluated with gates of one, or larger where these make up for
    the others, and the views that it lacks with gates of zero. By the rule "neighbors", the share
    of a missing view is the mean of those of the training samples most similar to the sample.

    Attributes
    ----------
    shared : list
        The share of every kernel in the outputs of the training samples, of shape (n, outputs);
        filled on first use.
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
        if missing.present_in(X) is None and missing.present_in(Y) is None:
            return super().combined(X, Y)
        out = np.zeros((len(self.eta), X.shape[0], Y.shape[0]))
        for m, K in missing.blocks(X, Y, self.kept):
            k = int(np.searchsorted(self.kept, m))
            out += self.eta[:, k, np.newaxis, np.newaxis] * K
        return out

    def diagonal(self, X: MatrixLike) -> Array:
        present = self.sums.missing.present_in(X)
        if present is None:
            return super().diagonal(X)
        is_complete = present.all(axis=1)
        out = np.empty(X.shape[0])
        if is_complete.any():
            out[is_complete] = super().diagonal(X[is_complete])
        # What replaces a view has a k(x, x) of its own, which is found on the diagonal of blocks.
        first_output = replace(self, eta=self.eta[:1])
        incomplete = np.flatnonzero(~is_complete)
        for strip in row_strips(len(incomplete), _INCOMPLETE_ROWS):
            rows = incomplete[strip]
            out[rows] = np.diagonal(first_output.combined(X[rows], X[rows])[0])
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
        incomplete = np.flatnonzero(~present.all(axis=1))
        views = take_rows(missing.views_of(X, present), incomplete)
        for m, neighbors in enumerate(missing.neighbors(views, present[incomplete])):
            if neighbors is None or m not in self.kept:
                continue
            rows = np.flatnonzero(~present[incomplete, m])
            k = int(np.searchsorted(self.kept, m))
            yield incomplete[rows], m, neighbors[rows] @ self._training_shares()[k]

    def _training_shares(self) -> list[Array]:
        """Return the share of every kernel for the training samples that have its view."""
        if not self.shared:
            kernels = range(len(self.kept))
            views = self.sums.missing.views.take(self.kept)
            sums = {}
            if self.sums.beta.shape[-1]:
                sums = dict(self.sums.products(views, kernels, None))
            zeros = np.zeros((len(self.sums.missing.present), len(self.eta)))
            self.shared.extend(sums.get(k, zeros) * self.eta[:, k] for k in kernels)
        return self.shared


# Rows and coefficients ----------------------------------------------------------------------------


def without_rounding(beta: Array) -> Array:
    """Return gated coefficients, with zeros for those that are lost in the rounding of an output.

    `beta` are the numbers β_ci g_cm(x_i), of shape (outputs, P, n).
    """
    size = np.abs(beta)
    largest = size.max(axis=(1, 2), initial=0.0, keepdims=True)
    return np.where(size > ROUNDING * largest, beta, 0.0)


def _with_same_rows(
    rows_of_kernels: Iterable[tuple[Indices, int]],
) -> Iterator[tuple[Indices, list[int]]]:
    """Yield (rows, the numbers of the kernels with these rows); kernels without rows are left out.

    The argument yields (rows of a kernel, its number).
    """
    groups: dict[bytes, tuple[Indices, list[int]]] = {}
    for rows, k in rows_of_kernels:
        if len(rows):
            _, kernels = groups.setdefault(rows.tobytes(), (rows, []))
            kernels.append(k)
    yield from groups.values()


def _take(views: Views, rows: Indices, n: int) -> Views:
    """Return some of n rows, in ascending order, of every view; contiguous rows without a copy."""
    is_contiguous = len(rows) == rows[-1] - rows[0] + 1
    if not is_contiguous:
        return take_rows(views, rows)
    if len(rows) == n:
        return views
    return take_rows(views, slice(int(rows[0]), int(rows[-1]) + 1))


# Functions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """f_c(x) = Σ_m η_cm Σ_i β_ci k_m(x, x_i) + b_c.

    Attributes
    ----------
    expansion : Expansion
        The sums.
    intercept : ndarray of shape (outputs,)
        The constants b_c.
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
        expansion = self.expansion
        if self.shares_weights:
            expansion = replace(expansion, eta=expansion.eta[:1])
        return expansion.combined(X, Y)


@dataclass(frozen=True)
class StripFunction(Function):
    """A function of many outputs with weights of their own, which are evaluated in strips."""

    #: Number of outputs in a strip. Chosen by hand.
    at_once: ClassVar[int] = 4096

    def outputs(self, X: MatrixLike) -> Array:
        out = np.empty((X.shape[0], len(self.intercept)))
        for strip in row_strips(len(self.intercept), self.at_once):
            out[:, strip] = self.expansion.take(strip).values(X) + self.intercept[strip]
        return out
