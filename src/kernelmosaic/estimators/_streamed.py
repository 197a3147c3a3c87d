"""Samples that need not be in memory: which they are, and how their form is checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from kernelmosaic.gram.feature_maps import APPROXIMATIONS
from kernelmosaic.gram.row_blocks import ArrayRows, RowSource, is_dask, open_rows

#: Repeated samples are looked for in sets up to this size.
_SMALL_BYTES = 2**26


def is_streamed(X: Any) -> bool:
    """Whether the samples are read from where they are: a memory map, a path, a Dask collection, an opened source."""
    return isinstance(X, np.memmap | str | Path | RowSource) or is_dask(X)


def is_small(X: Any) -> bool:
    """Whether a copy of the samples would not matter."""
    size = getattr(getattr(X, "data", X), "nbytes", np.inf)
    return not is_streamed(X) and size <= _SMALL_BYTES


def check_approximation(approximation: Any, X: Any) -> None:
    """Raise a ValueError if there is no such approximation, or if samples need one and there is none."""
    if approximation is None:
        if is_streamed(X) and not isinstance(X, np.memmap):
            raise ValueError(
                f"X={X!r}: samples are read from files with approximation='nystroem' or 'fourier' only; "
                "load them, or choose one of these."
            )
        return
    if approximation not in APPROXIMATIONS:
        known = ", ".join(map(repr, APPROXIMATIONS))
        raise ValueError(f"approximation={approximation!r}: choose one of {known}, or None for exact kernels.")


def validate_rows(
    model: Any, X: Any, y: Sequence[Any], reset: bool, y_numeric: bool = False, multi_output: bool = False
) -> Any:
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
    target = y[0].compute() if is_dask(y[0]) else y[0]
    target = np.asarray(target) if multi_output else column_or_1d(target, warn=True)
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
