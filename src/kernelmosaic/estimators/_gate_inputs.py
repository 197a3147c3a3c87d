"""What gates read: columns of the samples, or their coordinates in the space of a kernel, on a standard scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from kernelmosaic._typing import MatrixLike, Seed
from kernelmosaic.backend import row_strips
from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.linear import Linear
from kernelmosaic.kernels.views import Entry, lay_specs, take_columns

Array = NDArray[np.float64]

#: Most coordinates kept of a kernel's space, and the least share of the largest variance one must have.
_COORDINATES = 20
_LEAST_VARIANCE = 1e-6
#: The space of a kernel that is approximated elsewhere is learned from at most this many samples.
SPACE_ROWS = 1000
#: Bytes of samples read at once from where they are.
STRIP_BYTES = 2**22


@dataclass(frozen=True)
class KernelSpace:
    """Coordinates along the leading principal components of the training set in a kernel's feature space.

    Attributes
    ----------
    kernel : Kernel
        Fitted.
    samples : array
        The training set as the kernel reads it.
    directions : ndarray of shape (n, components)
        What turns centred similarities to the training set into coordinates.
    means : ndarray of shape (n,)
        Mean similarity of each training sample to the training set.
    share : ndarray of shape (n,)
        Weights of the training samples in that mean, summing to one.
    """

    kernel: Kernel
    samples: MatrixLike
    directions: Array
    means: Array
    share: Array

    @classmethod
    def fit(cls, kernel: Kernel, view: Any, weight: Array) -> KernelSpace:
        kernel = clone(kernel).fit(view)
        X = kernel.validate(view)
        share = weight / weight.sum()
        K = np.asarray(kernel._block(X, X), dtype=np.float64)
        means = K @ share
        root = np.sqrt(share)
        C = root[:, np.newaxis] * (K - means[:, np.newaxis] - means + share @ means) * root
        variances, U = np.linalg.eigh(0.5 * (C + C.T))
        kept = np.flatnonzero(variances > _LEAST_VARIANCE * max(variances[-1], 0.0))[::-1][:_COORDINATES]
        variances, U = variances[kept], U[:, kept]
        U = U * np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(kept))])
        return cls(kernel, X, root[:, np.newaxis] * U / np.sqrt(variances), means, share)

    def coordinates(self, view: Any) -> Array:
        K = np.asarray(self.kernel._block(self.kernel.validate(view), self.samples), dtype=np.float64)
        centred = K - (K @ self.share)[:, np.newaxis] - self.means + self.share @ self.means
        return np.asarray(centred @ self.directions)


@dataclass(frozen=True)
class GateInputs:
    """From samples to the standardised inputs of the gates.

    Attributes
    ----------
    columns : ndarray or None
        The columns read; None for all.
    space : KernelSpace or None
        The kernel's space, if gates live in one.
    mean, scale : ndarray of shape (n_features,)
        Inputs are (x − mean) / scale.
    blind : bool
        Whether the gates read nothing.
    """

    columns: NDArray[np.intp] | None
    space: KernelSpace | None
    mean: Array
    scale: Array
    blind: bool = False

    @classmethod
    def none(cls) -> GateInputs:
        """For gates that do not depend on the sample."""
        return cls(None, None, np.zeros(0), np.ones(0), True)

    @classmethod
    def fit(
        cls,
        X: MatrixLike,
        table: Any,
        columns: Any,
        kernel: Kernel | None,
        weight: Array,
        random_state: Seed = None,
        standardize: bool = True,
        space_rows: int = SPACE_ROWS,
        strip_bytes: int = STRIP_BYTES,
    ) -> GateInputs:
        """Learn the scale, or leave the inputs as they are; `table` has the names of X's columns.

        Samples in a RowSource are read in strips of about `strip_bytes`, and a kernel's space is learned from at most
        `space_rows` of them, drawn by `random_state`.
        """
        try:
            spec = lay_specs([Entry("gating", Linear() if kernel is None else kernel, columns)], table)[0]
        except ValueError as error:
            raise ValueError(f"gating_columns={columns!r}: {error}") from error
        if kernel is not None:
            X, weight = _some(X, weight, random_state, space_rows)
            view = take_columns(X, spec.columns)
            space = KernelSpace.fit(kernel, view, weight)
            Z = space.coordinates(view)
            if not standardize:
                return cls(spec.columns, space, np.zeros(Z.shape[1]), np.ones(Z.shape[1]))
            # One scale for all coordinates: the leading ones shall weigh more, as they do in the kernel's space.
            leading = float(np.sqrt(np.average(Z[:, 0] ** 2, weights=weight))) if Z.shape[1] else 1.0
            return cls(spec.columns, space, np.zeros(Z.shape[1]), np.full(Z.shape[1], leading or 1.0))
        dense = np.concatenate([_numbers(view) for view in _views(X, spec.columns, strip_bytes)])
        if not standardize:
            return cls(spec.columns, None, np.zeros(dense.shape[1]), np.ones(dense.shape[1]))
        mean = np.average(dense, axis=0, weights=weight)
        spread = np.sqrt([np.average((x - m) ** 2, weights=weight) for x, m in zip(dense.T, mean, strict=True)])
        # A column that does not vary is left out by a scale of one: it is zero after centring, up to rounding.
        flat = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
        return cls(spec.columns, None, mean, np.where(flat, 1.0, spread))

    def __call__(self, X: MatrixLike, strip_bytes: int = STRIP_BYTES) -> Array:
        """Return the standardised inputs, of shape (n, n_features)."""
        if self.blind:
            return np.zeros((X.shape[0], 0))
        read = _numbers if self.space is None else self.space.coordinates
        return np.concatenate([(read(view) - self.mean) / self.scale for view in _views(X, self.columns, strip_bytes)])


def _views(X: MatrixLike, columns: NDArray[np.intp] | None, strip_bytes: int) -> Iterator[Any]:
    """Yield the columns that gates read, a strip of samples at a time where those need not be in memory."""
    if not isinstance(X, RowSource):
        yield take_columns(X, columns)
        return
    for strip in row_strips(X.shape[0], strip_bytes // (8 * X.row_width)):
        yield take_columns(X.take(strip), columns)


def _some(X: MatrixLike, weight: Array, random_state: Seed, most: int) -> tuple[Any, Array]:
    """Return the samples to learn a kernel's space from, with their weights."""
    if not isinstance(X, RowSource):
        return X, weight
    counted = np.flatnonzero(weight)
    if len(counted) > most:
        counted = np.sort(check_random_state(random_state).choice(counted, most, replace=False))
    return X.take(counted), weight[counted]


def _numbers(view: Any) -> Array:
    """Return the columns as a dense matrix of finite numbers, or raise saying what gates can read instead."""
    dense = view.toarray() if sparse.issparse(view) else view
    try:
        numbers = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "gates read numbers, and these columns are not: name numeric gating_columns, or give a gating_kernel."
        ) from None
    if not np.all(np.isfinite(numbers)):
        raise ValueError("gates read finite numbers: the gating columns hold NaN or infinity.")
    return numbers
