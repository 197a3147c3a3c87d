"""Estimators in features: samples that need not be in memory, and the fitted function as a weight vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from kernelmosaic.gram import Mosaic
from kernelmosaic.gram.device import has_device
from kernelmosaic.gram.feature_bank import FeatureBank, make_feature_bank
from kernelmosaic.gram.feature_mosaic import APPROXIMATIONS, FeatureMosaic
from kernelmosaic.gram.memory import default_budget
from kernelmosaic.gram.row_blocks import ArrayRows, RowSource, is_dask, open_rows, row_strips
from kernelmosaic.kernels.views import Tile

#: Bytes of samples and features a prediction works on at once.
_BLOCK_BYTES = 2**22
#: Repeated samples are looked for in sets up to this size.
_SMALL_BYTES = 2**26


def is_streamed(X: Any) -> bool:
    """Whether the samples are read from where they are: a memory map, a path, a Dask collection, an opened source."""
    return isinstance(X, np.memmap | str | Path | RowSource) or is_dask(X)


def is_small(X: Any) -> bool:
    """Whether a copy of the samples would not matter."""
    size = getattr(getattr(X, "data", X), "nbytes", np.inf)
    return not is_streamed(X) and size <= _SMALL_BYTES


def check_approximation(model: Any, X: Any) -> None:
    """Raise a ValueError if the estimator's parameters do not go together with features, or its samples without."""
    if model.approximation is None:
        if is_streamed(X) and not isinstance(X, np.memmap):
            raise ValueError(
                f"X={X!r}: samples are read from files with approximation='nystroem' or 'fourier' only; "
                "load them, or choose one of these."
            )
        return
    if model.approximation not in APPROXIMATIONS:
        known = ", ".join(map(repr, APPROXIMATIONS))
        raise ValueError(f"approximation={model.approximation!r}: choose one of {known}, or None for exact kernels.")
    if isinstance(getattr(model, "C", None), str):
        raise ValueError(
            f"C={model.C!r}: the price is learned with exact kernels only; give a number, or approximation=None."
        )


def validate_rows(model: Any, X: Any, y: Sequence[Any], reset: bool, y_numeric: bool = False, **_: Any) -> Any:
    """Check the form of samples that stay where they are; what the blocks hold is checked as they are read."""
    rows = open_rows(X)
    if isinstance(rows, ArrayRows) and rows.X.ndim != 2:
        raise ValueError(f"X has {rows.X.ndim} dimensions: give samples in rows and features in columns.")
    if isinstance(rows, ArrayRows) and rows.X.dtype.kind not in "biuf":
        raise ValueError(f"X has the dtype {rows.X.dtype}: a memory map must hold real numbers.")
    if reset:
        model.n_features_in_ = rows.shape[1]
        if rows.names is not None:
            model.feature_names_in_ = np.array(rows.names, dtype=object)
    elif rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} features, but {type(model).__name__} is expecting {model.n_features_in_} features "
            "as input."
        )
    if not y:
        return rows
    if y[0] is None:
        raise ValueError("y is None: give one target a sample.")
    target = column_or_1d(y[0].compute() if is_dask(y[0]) else y[0], warn=True)
    check_consistent_length(rows, target)
    kinds = {"dtype": np.float64} if y_numeric else {"dtype": None, "ensure_all_finite": target.dtype.kind == "f"}
    return rows, check_array(target, ensure_2d=False, input_name="y", **kinds)


def named_columns(rows: Any) -> Any:
    """Return an empty table with the columns of a source of rows, by which kernels find theirs."""
    if not isinstance(rows, RowSource):
        return rows
    if rows.names is None:
        return np.empty((0, rows.shape[1]))
    try:
        import pandas as pd
    except ImportError:
        return np.empty((0, rows.shape[1]))
    return pd.DataFrame(columns=rows.names, dtype=np.float64)


def fit_features(
    model: Any, rule: type[Mosaic], tiles: Sequence[Tile], X: Any, weight: NDArray[np.float64]
) -> tuple[FeatureMosaic, FeatureBank]:
    """Return the kernels in features, and their bank on the samples, as the estimator's parameters ask for."""
    rows = open_rows(X)
    budget = default_budget() if model.memory_budget is None else float(model.memory_budget)
    mosaic = FeatureMosaic.fit(
        rule, tiles, rows, model.normalize, weight, model.approximation, model.rank, model.random_state, budget
    )
    return mosaic, make_feature_bank(mosaic, rows, model.memory_budget, model._fit_device)


@dataclass(frozen=True)
class FeatureExpansion:
    """f_c(x) = Σ_m ⟨w_cm, z_m(x)⟩ with w_cm = η_cm Z_mᵀβ_c, over the kernels with a weight.

    Attributes
    ----------
    mosaic : FeatureMosaic
        The active kernels with their feature maps.
    w : list of ndarray of shape (features, outputs)
        The weight vectors, one a kernel.
    eta : ndarray of shape (outputs, active kernels)
        Weights.
    active : ndarray
        The numbers of the active kernels among all P.
    n_kernels : int
        P.
    device : str or None
        Where it was fitted, and is evaluated as long as that device is there.
    """

    mosaic: FeatureMosaic
    w: list[NDArray[np.float64]]
    eta: NDArray[np.float64]
    active: NDArray[np.intp]
    n_kernels: int
    device: str | None = None

    @classmethod
    def prune(
        cls,
        mosaic: FeatureMosaic,
        bank: FeatureBank,
        beta: NDArray[np.float64],
        eta: NDArray[np.float64],
        device: str | None = None,
    ) -> FeatureExpansion:
        """Keep what the function needs: active kernels and their weight vectors; β has shape (outputs, n)."""
        active = np.flatnonzero(np.any(eta != 0, axis=0))
        sums = bank.sums(np.ascontiguousarray(beta.T), active)
        w = [sums[int(m)] * eta[:, m] for m in active]
        return cls(mosaic.select(active), w, eta[:, active], active, eta.shape[1], device)

    def terms(self, X: Any) -> NDArray[np.float64]:
        """Return each kernel's share of the outputs, of shape (n, P, outputs)."""
        rows = open_rows(X)
        out = np.zeros((rows.shape[0], self.n_kernels, len(self.eta)))
        for strip, m, values in self._products(rows):
            out[strip, self.active[m]] = values
        return out

    def values(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs without their intercepts, of shape (n, outputs)."""
        rows = open_rows(X)
        out = np.zeros((rows.shape[0], len(self.eta)))
        for strip, _, values in self._products(rows):
            out[strip] += values
        return out

    def combined(self, X: Any, Y: Any) -> NDArray[np.float64]:
        """Return the combined kernel of every output between X and Y, of shape (outputs, len(X), len(Y))."""
        left, right = open_rows(X), open_rows(Y)
        out = np.zeros((len(self.eta), left.shape[0], right.shape[0]))
        for strip, m, Z in self._blocks(left):
            for other, k, V in self._blocks(right, [m]):
                for total, weight in zip(out, self.eta[:, k], strict=True):
                    total[strip, other] += weight * (Z @ V.T)
        return out

    def _products(self, rows: RowSource) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
        if has_device(self.device):
            from kernelmosaic.gram._torch_products import device_feature_products

            yield from device_feature_products(self.mosaic, rows, self.w, self.device)
            return
        for strip, m, Z in self._blocks(rows):
            yield strip, m, Z @ self.w[m]

    def _blocks(
        self, rows: RowSource, kernels: Sequence[int] | None = None
    ) -> Iterator[tuple[slice, int, NDArray[np.float64]]]:
        every = range(len(self.mosaic)) if kernels is None else kernels
        width = rows.row_width + 3 * int(self.mosaic.widths.sum())
        for strip in row_strips(rows.shape[0], _BLOCK_BYTES // (8 * width)):
            for m, Z in self.mosaic.blocks(rows.take(strip), every):
                yield strip, m, Z
