"""Columns so unlike in scale that a kernel sees only the largest of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic.gram.row_blocks import RowSource
from kernelmosaic.kernels.base import Kernel, StatisticKernel
from kernelmosaic.kernels.views import KernelSpec, take_columns

#: Standard deviations this many times apart are warned of.
_FACTOR = 100.0
#: Rows looked at: enough for a standard deviation, ...
_ROWS = 10_000
#: ... or as many as make this many numbers, so that wide samples on a disk stay there, but at least so many.
_NUMBERS, _LEAST_ROWS = 2**16, 200


class _Extremes(NamedTuple):
    """The columns of largest and smallest standard deviation that a kernel reads."""

    kernel: str
    large: int
    small: int
    deviations: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.deviations[0] / self.deviations[1]


def warn_of_scales(model: Any, specs: Sequence[KernelSpec], samples: Any, table: Any) -> None:
    """Warn once where one kernel reads columns whose standard deviations are 100 times apart or more.

    Only of kernels whose formula reads products or distances. Constant columns do not count, nor do those of two
    values, mostly indicators, whose deviation tells how frequent they are; sparse samples, which scaling would fill,
    are left alone. The ranges must differ as much: a pixel that is rarely lit is not on another scale.
    """
    X = _some_rows(samples)
    if sparse.issparse(X):
        return
    seen: dict[bytes | None, _Extremes | None] = {}
    for tile in specs:
        key = None if tile.columns is None else tile.columns.tobytes()
        if key not in seen and _reads_scale(tile.kernel):
            seen[key] = _extremes(tile, tile.kernel.validate(take_columns(X, tile.columns)))
    worst = max(filter(None, seen.values()), key=lambda one: one.ratio, default=None)
    if worst is None:
        return
    names = getattr(table, "columns", range(X.shape[1]))
    large, small = worst.deviations
    warnings.warn(
        f"X: columns {names[worst.large]!r} and {names[worst.small]!r}, which kernel {worst.kernel!r} reads, have "
        f"standard deviations of {large:.3g} and {small:.3g}: next to the first the second hardly counts. Scale them, "
        f"as in make_pipeline(StandardScaler(), {type(model).__name__}(...)), or give them kernels of their own.",
        UserWarning,
        stacklevel=_level_of_caller(),
    )


def _level_of_caller() -> int:
    """The `stacklevel` of whoever called the estimator; fits get here by ways of different length."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("kernelmosaic."):
        level, frame = level + 1, frame.f_back
    return level + 1


def _some_rows(samples: Any) -> Any:
    """Rows from all over the samples; the first ones where they are on a disk or on other machines."""
    n = samples.shape[0]
    if isinstance(samples, RowSource):
        return samples.take(slice(0, min(_ROWS, max(_LEAST_ROWS, _NUMBERS // samples.row_width), n)))
    return samples[:: -(-n // _ROWS)]


def _reads_scale(kernel: Kernel) -> bool:
    """Whether a kernel, or one it is made of, is a function of products or distances of its columns."""
    if isinstance(kernel, StatisticKernel):
        return True
    parts = kernel.get_params(deep=False).values()
    return any(isinstance(part, Kernel) and _reads_scale(part) for part in parts)


def _extremes(tile: KernelSpec, X: NDArray[Any]) -> _Extremes | None:
    """Return the columns of largest and smallest deviation, None if they are alike."""
    X = X.astype(np.float64, copy=False)
    low, high = X.min(axis=0), X.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread, deviation = high - low, X.std(axis=0)
        counted = np.flatnonzero(~np.all((low == X) | (high == X), axis=0) & np.isfinite(deviation))
    if len(counted) < 2:
        return None
    large, small = counted[np.argmax(deviation[counted])], counted[np.argmin(deviation[counted])]
    # Not a quotient: a deviation may underflow to zero.
    if any(of[large] < _FACTOR * of[small] or of[small] <= 0 for of in (deviation, spread)):
        return None
    place = np.arange(X.shape[1]) if tile.columns is None else tile.columns
    return _Extremes(
        tile.name, int(place[large]), int(place[small]), (float(deviation[large]), float(deviation[small]))
    )
