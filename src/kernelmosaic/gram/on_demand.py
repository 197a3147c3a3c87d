"""A combined kernel that is never stored: its entries are computed from the samples whenever they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.backend import NUMPY, format_bytes
from kernelmosaic.gram.gram import Array, DenseGram, Gram

#: Share of the budget that the block of a working set may take; on the host, rows that are kept may take as much.
_SHARE = 0.35


class OnDemandGram(Gram):
    """K = Σ_m d_m K_m, or Σ_m g_m g_mᵀ ∘ K_m with gates, of so many samples that n² numbers have no room.

    Products compute the entries they read. On the host, rows that a product has read are kept for the next ones while
    there is room: rounds of a working set move much the same samples again and again. A device computes entries about
    as fast as it would read them.

    Parameters
    ----------
    stack : ComputedStack
        Computes the kernels.
    factors : ndarray of shape (P,) or (n, P)
        The weights d, or the gates g.
    budget : float
        Bytes that blocks, and rows that are kept, may take.
    keeps_rows : bool
        Whether rows are kept, which a device never does.
    """

    def __init__(self, stack: Any, factors: Array, budget: float, keeps_rows: bool = True) -> None:
        self.stack, self.factors, self.budget = stack, factors, budget
        self.n_samples, self.backend, self.dtype = stack.n_samples, stack.backend, stack.dtype
        self.block_samples = most_in_a_block(self.n_samples, budget, self.dtype)
        self.shift: Array | None = None
        keeps = keeps_rows and self.backend is NUMPY
        kept = int(_SHARE * budget / self.dtype.itemsize / self.n_samples) if keeps else 0
        self.rows = KeptRows(kept, self.n_samples, self.dtype)

    def products(self, beta: Any, exact: bool = False) -> Any:
        here = isinstance(beta, np.ndarray)
        dense = beta if here else self.backend.to_numpy(beta)
        support = np.flatnonzero(dense if dense.ndim == 1 else np.any(dense != 0, axis=1))
        if not exact and len(support) <= self.rows.capacity:
            values = self.rows.multiply(support, dense[support], self._fill_rows)
        else:
            inner = np.atleast_2d(self.factors)
            outer = inner if self.factors.ndim == 2 else np.ones((1, 1))
            kind = np.dtype(np.float64) if exact else self.dtype
            values = self.stack.combined_products(support, dense[support], inner, outer, kind)
        if self.shift is not None:
            values[support] += (self.shift[support] * dense[support].T).T
        return values if here else self.backend.asarray(values)

    def part(self, rows: NDArray[np.intp]) -> DenseGram:
        """Return the kernel of some samples, stored.

        Raises
        ------
        MemoryError
            If that does not fit.
        """
        if len(rows) > self.block_samples:
            need = format_bytes(len(rows) ** 2 * self.dtype.itemsize)
            raise MemoryError(
                f"A block of {len(rows)} x {len(rows)} entries of the kernel needs {need}, the budget is "
                f"{format_bytes(self.budget)}: use approximation='nystroem', which needs no such block, or fewer "
                "samples, or raise memory_budget."
            )
        some = self.stack.taken(rows)
        gated = self.factors.ndim == 2
        gram: DenseGram = some.combine_gated(self.factors[rows]) if gated else some.combine(self.factors)
        return gram if self.shift is None else gram.add_diagonal(self.shift[rows])

    def restricted(self, rows: Any) -> Gram:
        rows = np.asarray(rows) if self.backend is NUMPY else self.backend.to_numpy(rows)
        if len(rows) <= self.block_samples:
            return self.part(rows)
        factors = self.factors[rows] if self.factors.ndim == 2 else self.factors
        # Its products read every row once: none is worth keeping.
        some = OnDemandGram(self.stack.taken(rows), factors, self.budget, keeps_rows=False)
        return some if self.shift is None else some.add_diagonal(self.shift[rows])

    def block(self, rows: Any) -> Any:
        return self.part(np.asarray(rows) if self.backend is NUMPY else self.backend.to_numpy(rows)).matrix

    def diagonal(self) -> Array:
        each = self.stack.known_diagonals()
        values = (self.factors.T**2 * each).sum(0) if self.factors.ndim == 2 else self.factors @ each
        return np.asarray(values if self.shift is None else values + self.shift)

    def add_diagonal(self, values: Array) -> OnDemandGram:
        shifted = copy(self)
        shifted.shift = values if self.shift is None else self.shift + values
        return shifted

    def solve_free(self, rows: NDArray[np.intp], ridge: Array, right: Array) -> Array:
        if len(rows) <= self.block_samples:
            return super().solve_free(rows, ridge, right)
        # Too many for a block: some of them, evenly spread, answer for all.
        some = np.unique(np.linspace(0, len(rows) - 1, self.block_samples).astype(np.intp))
        answer = np.zeros_like(right)
        answer[some] = super().solve_free(rows[some], ridge[some], right[some]) * (len(rows) / len(some))
        return answer

    def _fill_rows(self, rows: NDArray[np.intp], out: NDArray[Any]) -> None:
        self.stack.fill_rows(self.factors, rows, out)


def most_in_a_block(n: int, budget: float, dtype: np.dtype[Any]) -> int:
    """Return how many of n samples a block within the budget may have."""
    return int(min(n, (_SHARE * budget / dtype.itemsize) ** 0.5))


class KeptRows:
    """Rows of a symmetric matrix that products have read; the longest unused make room for new ones.

    Parameters
    ----------
    capacity : int
        How many there is room for.
    n_columns : int
        Of the matrix.
    dtype : dtype
        Of its entries.
    """

    def __init__(self, capacity: int, n_columns: int, dtype: Any) -> None:
        self.capacity = min(capacity, n_columns)
        # Memory is taken as rows come.
        self._array = np.empty((self.capacity, n_columns), dtype=dtype)
        self._place = np.full(n_columns, -1)
        self._owner, self._used = np.full(self.capacity, -1), np.zeros(self.capacity, dtype=np.int64)
        self._clock = self._filled = 0

    def multiply(
        self, rows: NDArray[np.intp], coefficients: Array, fill: Callable[[NDArray[np.intp], NDArray[Any]], None]
    ) -> Array:
        """Return the matrix times coefficients of some of its rows; `fill` computes the rows that are not here."""
        self._clock += 1
        self._used[self._place[rows[self._place[rows] >= 0]]] = self._clock
        missing = rows[self._place[rows] < 0]
        if len(missing):
            # Those of this product were used last; places that are empty, never.
            places = np.sort(np.argsort(self._used, kind="stable")[: len(missing)])
            left = self._owner[places]
            self._place[left[left >= 0]] = -1
            self._owner[places], self._place[missing], self._used[places] = missing, places, self._clock
            self._filled = max(self._filled, int(places[-1]) + 1)
            fill_scattered(self._array, places, missing, fill)
        weights = np.zeros((self._filled, *coefficients.shape[1:]), dtype=self._array.dtype)
        weights[self._place[rows]] = coefficients
        return np.asarray(self._array[: self._filled].T @ weights, dtype=np.float64)


def fill_scattered(
    array: NDArray[Any], places: NDArray[np.intp], rows: NDArray[np.intp], fill: Callable[..., None]
) -> None:
    """Fill these places of an array with these rows, runs of neighbouring places at a time."""
    for run in np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) > 1) + 1):
        fill(rows[run], array[places[run[0]] : places[run[-1]] + 1])
