"""The kernel_set: named kernels, each on its columns and on a common scale, fitted to a training set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kernelmosaic.gram.normalizing import Centered, Normalization, make_normalization
from kernelmosaic.kernels.base import Block, Kernel, StatisticKernel, pairwise_statistic
from kernelmosaic.kernels.views import KernelSpec, take_columns

#: The samples as each kernel sees them. Tiles on the same columns hold the same object.
Views = list[Any]


@dataclass(frozen=True)
class FittedKernel:
    """One fitted kernel with the columns it reads and its scale."""

    name: str
    kernel: Kernel
    columns: NDArray[np.intp] | None
    normalization: Normalization


@dataclass(frozen=True)
class KernelSet:
    """The fitted fitted, and how to evaluate them on samples old and new."""

    fitted: tuple[FittedKernel, ...]

    @classmethod
    def fit(
        cls,
        specs: Sequence[KernelSpec],
        X: Any,
        normalize: str | None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> KernelSet:
        """Clone the kernels, fit each to its columns of the training set, and learn their scales."""
        make_normalization(normalize)
        views = _views(specs, X)
        fitted = []
        for tile, view in zip(specs, views, strict=True):
            with _named(tile.name):
                kernel = clone(tile.kernel).fit(view)
            scale = make_normalization(normalize).fit(kernel, view, sample_weight)
            fitted.append(FittedKernel(tile.name, kernel, tile.columns, scale))
        return cls(tuple(fitted))

    @property
    def names(self) -> list[str]:
        return [fitted_kernel.name for fitted_kernel in self.fitted]

    def __len__(self) -> int:
        return len(self.fitted)

    def select(self, active: Sequence[int] | NDArray[Any]) -> KernelSet:
        """Keep only these fitted, in this order."""
        return KernelSet(tuple(self.fitted[m] for m in active))

    def select_views(self, views: Views, active: Sequence[int] | NDArray[Any]) -> Views:
        """Keep the views that `select` keeps the fitted of."""
        return [views[m] for m in active]

    def views(self, X: Any) -> Views:
        """Return the samples as each fitted_kernel sees them."""
        return _views(self.fitted, X)

    def blocks(
        self, X: Views, Y: Views, kernels: Sequence[int] | NDArray[Any], dtype: Any = None
    ) -> Iterator[tuple[int, Block]]:
        """Yield (m, block of kernel m between X and Y) for each m asked for.

        Kernels that are functions of the same statistic of the same columns share it: it is computed once for all.
        """
        shared: dict[tuple[str, int, int], list[int]] = {}
        for m in kernels:
            kernel = self.fitted[m].kernel
            if isinstance(kernel, StatisticKernel):
                shared.setdefault((kernel.statistic, id(X[m]), id(Y[m])), []).append(m)
            else:
                yield m, self._finish(m, kernel._block(X[m], Y[m]), X[m], Y[m])
        for (statistic, _, _), members in shared.items():
            # Rounding the statistic instead of the kernel halves the cost of the formula.
            exact = pairwise_statistic(statistic, X[members[0]], Y[members[0]])
            rounded = exact if dtype is None else exact.astype(dtype, copy=False)
            for m in members:
                kernel = self.fitted[m].kernel
                assert isinstance(kernel, StatisticKernel)
                # Centring may leave but the last digits of large entries: they are rounded after it.
                S = exact if isinstance(self.fitted[m].normalization, Centered) else rounded
                K = kernel.from_statistic(S)
                # Linear kernels hand the statistic on as it is; what follows may write into it.
                K = self._finish(m, K.copy() if np.may_share_memory(K, S) else K, X[m], Y[m])
                yield m, K.astype(rounded.dtype, copy=False)

    def diagonals(self, X: Views) -> NDArray[np.float64]:
        """Return k_m(x, x), of shape (P, n)."""
        return np.array(
            [
                fitted_kernel.normalization.diagonal(fitted_kernel.kernel._diagonal(V), V)
                for fitted_kernel, V in zip(self.fitted, X, strict=True)
            ]
        )

    def _finish(self, m: int, K: Block, X: Any, Y: Any) -> Block:
        return self.fitted[m].normalization.block(K, X, Y)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say of which kernel an error speaks: a kernel itself does not know its name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"kernel {name!r}: {error}") from error


def _views(fitted: Sequence[KernelSpec | FittedKernel], X: Any) -> Views:
    """Cut X into the kernels' columns; equal columns give the same object, by which shared work is recognised."""
    cut: dict[tuple[type, bytes | None], Any] = {}
    views = []
    for fitted_kernel in fitted:
        kernel, columns = fitted_kernel.kernel, fitted_kernel.columns
        key = (kernel.validate.__func__, None if columns is None else columns.tobytes())  # type: ignore[attr-defined]
        if key not in cut or kernel.input_kind != "numbers":
            with _named(fitted_kernel.name):
                cut[key] = kernel.validate(take_columns(X, columns))
        views.append(cut[key])
    return views


def take_rows(views: Views, rows: Any) -> Views:
    """Return some rows of every view, keeping equal views equal."""
    taken: dict[int, Any] = {}
    for view in views:
        if id(view) not in taken:
            taken[id(view)] = view[rows]
    return [taken[id(view)] for view in views]
