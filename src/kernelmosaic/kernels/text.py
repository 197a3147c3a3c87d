"""Text where numbers are read: said in words a user of tables understands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def refuse_text(X: Any, y: Any = None) -> Iterator[None]:
    """Turn NumPy's complaint about a string into one that names the column, or the target, and what to do."""
    try:
        yield
    except ValueError as error:
        complaint = "could not convert string" in str(error)
        found = _first_text(X) if complaint else None
        if found is None and complaint and y is not None and (target := _first_text(y)) is not None:
            raise ValueError(
                f"y holds text ({target[1]!r}) where a number a sample is read: give numbers, or tell classes apart "
                "with a classifier."
            ) from error
        if found is None:
            raise
        column, value = found
        raise ValueError(
            f"X: column {column!r} holds text ({value!r}) where numbers are read: say which columns a kernel reads, "
            "(name, kernel, columns), and give text to a sequence kernel such as Spectrum."
        ) from error


def _first_text(X: Any) -> tuple[Any, str] | None:
    """Return the first column with a string that is no number, by name or number, and the string."""
    table = np.asarray(X, dtype=object)
    for j, values in enumerate(table.T if table.ndim == 2 else [table.ravel()]):
        for value in values:
            if isinstance(value, str) and not _is_number(value):
                return (list(X.columns)[j] if hasattr(X, "columns") else j), str(value)
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
