"""Kernels whose samples are the row numbers of a given matrix."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.kernels.base import Kernel

#: How far entries may be off, relative to the largest, and still be taken for rounded.
ROUNDING = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-6}

#: Rows compared at a time, so that a check never holds a second matrix.
_STRIP = 512


class _Prepared:
    """What was made of one given matrix; a kernel and its clones hold the same one."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self.result: Any = None


class MatrixRows(Kernel):
    """A kernel between the rows of a matrix given at construction: X holds row numbers.

    The matrix is checked, and what is computed from it is computed, once, at the first use; clones share both.
    """

    input_kind: ClassVar[str] = "rows"
    #: Name of the parameter that holds the matrix.
    matrix_parameter: ClassVar[str]

    @abstractmethod
    def _prepare(self, given: Any) -> Any:
        """Check the given matrix and return what `_block` reads."""

    @abstractmethod
    def _n_rows(self) -> int:
        """How many rows there are to choose from."""

    def validate(self, X: Any) -> NDArray[np.intp]:
        return row_numbers(X, self._n_rows(), self.matrix_parameter)

    def _prepared(self) -> Any:
        shared = self._share()
        if shared.result is None:
            shared.result = self._prepare(shared.given)
        return shared.result

    def _share(self) -> _Prepared:
        given = getattr(self, self.matrix_parameter)
        shared: _Prepared | None = self.__dict__.get("_shared")
        if shared is None or shared.given is not given:
            # Also after set_params, which must not leave the result of the former matrix in place.
            shared = self._shared = _Prepared(given)
        return shared

    def __sklearn_clone__(self) -> Self:
        # scikit-learn would copy the matrix for every fold and candidate of a search.
        copy = type(self)(**self.get_params(deep=False))
        copy._shared = self._share()
        return copy

    def __repr__(self) -> str:
        parameters = self.get_params(deep=False)
        given = parameters.pop(self.matrix_parameter)
        try:
            size = " x ".join(map(str, np.shape(given)))
        except ValueError:  # rows of different lengths, which `fit` will refuse
            size = type(given).__name__
        return f"{type(self).__name__}({', '.join([f'<{size}>', *(f'{k}={v!r}' for k, v in parameters.items())])})"


def row_numbers(X: Any, n_rows: int, matrix: str) -> NDArray[np.intp]:
    """Return X, a list or one column of whole numbers between 0 and n_rows - 1, as a vector of indices."""
    rows = np.asarray(X)
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if rows.ndim != 1 or rows.size == 0:
        raise ValueError(
            f"X has shape {np.shape(X)}: X must hold row numbers of {matrix}, in a list or in one column; "
            f"np.arange({n_rows}).reshape(-1, 1) stands for all samples."
        )
    given, wanted = rows, f"X must hold row numbers of {matrix}, whole numbers from 0 to {n_rows - 1}."
    if rows.dtype.kind == "O" and all(isinstance(row, Real) for row in rows):
        rows = rows.astype(np.float64)
    if rows.dtype.kind not in "iuf":
        raise ValueError(f"X holds entries such as {given[0]!r}: {wanted}")
    wrong = ~((rows >= 0) & (rows < n_rows))
    if rows.dtype.kind == "f":
        wrong |= rows != np.floor(rows)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(f"X[{first}] is {given[first]}: {wanted}")
    return rows.astype(np.intp, copy=False)


def square_matrix(given: Any, name: str, owner: str) -> NDArray[Any]:
    """Return the given matrix as floats, not copied when it holds floats, after checking its shape and its numbers."""
    try:
        A = np.asarray(given)
        if A.dtype.kind == "c":
            raise TypeError("complex numbers")
        if A.dtype not in ROUNDING:
            A = A.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix of real numbers, but it cannot be read as one: {error}.") from error
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise ValueError(
            f"{name} has shape {A.shape}: {owner} needs a square matrix with a row and a column for every sample, "
            "training and test alike; X then says which rows are meant."
        )
    _check_finite(A, name)
    _check_symmetric(A, name)
    return A


def _check_finite(A: NDArray[Any], name: str) -> None:
    for start in range(0, A.shape[0], _STRIP):
        bad = ~np.isfinite(A[start : start + _STRIP])
        if bad.any():
            i, j = np.argwhere(bad)[0]
            raise ValueError(
                f"{name}[{start + i}, {j}] is {A[start + i, j]}: {name} must be finite; fill missing entries, or leave "
                "out the samples that have them."
            )


def _check_symmetric(A: NDArray[Any], name: str) -> None:
    allowed = ROUNDING[A.dtype] * max(np.abs(A[i : i + _STRIP]).max() for i in range(0, A.shape[0], _STRIP))
    for start in range(0, A.shape[0], _STRIP):
        off = np.abs(A[start : start + _STRIP] - A[:, start : start + _STRIP].T)
        if off.max() > allowed:
            i, j = np.unravel_index(np.argmax(off), off.shape)
            i += start
            raise ValueError(
                f"{name}[{i}, {j}] is {A[i, j]:.6g} but {name}[{j}, {i}] is {A[j, i]:.6g}: {name} must be symmetric; "
                f"({name} + {name}.T) / 2 is."
            )
