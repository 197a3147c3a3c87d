"""What gates read: columns of the samples, or their coordinates in the space of a kernel, on a standard scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.linear import Linear
from kernelmosaic.kernels.views import Entry, lay_tiles, take_columns

Array = NDArray[np.float64]

#: Most coordinates kept of a kernel's space, and the least share of the largest variance one must have.
_COORDINATES = 20
_LEAST_VARIANCE = 1e-6


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
    samples: Any
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
    def fit(cls, X: Any, table: Any, columns: Any, kernel: Kernel | None, weight: Array) -> GateInputs:
        """Learn the scale; `table` is X as it was given, for the names of its columns."""
        try:
            tile = lay_tiles([Entry("gating", Linear() if kernel is None else kernel, columns)], table)[0]
        except ValueError as error:
            raise ValueError(f"gating_columns={columns!r}: {error}") from error
        view = take_columns(X, tile.columns)
        if kernel is not None:
            space = KernelSpace.fit(kernel, view, weight)
            Z = space.coordinates(view)
            # One scale for all coordinates: the leading ones shall weigh more, as they do in the kernel's space.
            leading = float(np.sqrt(np.average(Z[:, 0] ** 2, weights=weight))) if Z.shape[1] else 1.0
            return cls(tile.columns, space, np.zeros(Z.shape[1]), np.full(Z.shape[1], leading or 1.0))
        dense = _numbers(view)
        mean = np.average(dense, axis=0, weights=weight)
        spread = np.sqrt(np.average((dense - mean) ** 2, axis=0, weights=weight))
        # A column that does not vary is left out by a scale of one: it is zero after centring, up to rounding.
        flat = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
        return cls(tile.columns, None, mean, np.where(flat, 1.0, spread))

    def __call__(self, X: Any) -> Array:
        """Return the standardised inputs, of shape (n, n_features)."""
        if self.blind:
            return np.zeros((X.shape[0], 0))
        view = take_columns(X, self.columns)
        raw = _numbers(view) if self.space is None else self.space.coordinates(view)
        return np.asarray((raw - self.mean) / self.scale)


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
