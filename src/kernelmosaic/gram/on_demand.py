"""A combined kernel that is never stored: its entries are computed from the samples on every use."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor, RowIndex
from kernelmosaic.backend import format_bytes, row_strips
from kernelmosaic.gram.gram import Array, DenseGram, Gram
from kernelmosaic.gram.linear_algebra import regularised_cholesky, rounding_share

#: Share of the budget that the block of a working set may take: its solver copies a part of it.
_SHARE = 0.6
#: Most columns of low-rank factors, and the share of the budget that they may take.
_RANK, _RANK_SHARE = 1000, 0.1
#: Entries of a few columns that are computed at once.
_ENTRIES = 2**24


class OnDemandGram(Gram):
    """K = Σ_m d_m K_m, or Σ_m g_m g_mᵀ ∘ K_m with gates, of so many samples that n² numbers have no room.

    Products compute the entries they read, and nothing is kept of them: rows that a round of a working set has read
    would take the memory that makes working sets large, and so rounds few.

    Parameters
    ----------
    stack : ComputedStack
        Computes the kernels.
    factors : ndarray of shape (P,) or (n, P)
        The weights d, or the gates g.
    budget : float
        Bytes that blocks may take.
    """

    def __init__(self, stack: Any, factors: Array, budget: float) -> None:
        self.stack, self.factors, self.budget = stack, factors, budget
        self.n_samples, self.backend, self.dtype = stack.n_samples, stack.backend, stack.dtype
        self.block_samples = most_in_a_block(self.n_samples, budget, self.dtype)
        self.shift: Array | None = None

    def products(self, beta: ArrayOrTensor, exact: bool = False) -> ArrayOrTensor:
        here = isinstance(beta, np.ndarray)
        dense = beta if here else self.backend.to_numpy(beta)
        support = np.flatnonzero(dense if dense.ndim == 1 else np.any(dense != 0, axis=1))
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
        some = self.stack.take(rows)
        gated = self.factors.ndim == 2
        gram: DenseGram = some.combine_gated(self.factors[rows]) if gated else some.combine(self.factors)
        return gram if self.shift is None else gram.add_diagonal(self.shift[rows])

    def restricted(self, rows: RowIndex) -> Gram:
        rows = self._numbers(rows)
        if len(rows) <= self.block_samples:
            return self.part(rows)
        factors = self.factors[rows] if self.factors.ndim == 2 else self.factors
        some = OnDemandGram(self.stack.take(rows), factors, self.budget)
        return some if self.shift is None else some.add_diagonal(self.shift[rows])

    def block(self, rows: RowIndex) -> ArrayOrTensor:
        return self.part(self._numbers(rows)).matrix

    def low_rank(self) -> ArrayOrTensor:
        """Return Nyström's factors, from samples evenly spread, where the samples are."""
        rank = min(_RANK, int(_RANK_SHARE * self.budget / 8 / self.n_samples))
        if rank < 2:
            return None
        some = np.unique(np.linspace(0, self.n_samples - 1, rank).astype(np.intp))
        active = np.flatnonzero(np.atleast_2d(self.factors).any(0))
        columns = self.backend.zeros((self.n_samples, len(some)))
        for strip in row_strips(self.n_samples, max(1, _ENTRIES // len(some))):
            for m, block in self.stack.placed_blocks(active, strip, some):
                columns[strip] += self._factor(m, strip, some) * block
        among = columns[self.backend.index(some)]
        jitter = rounding_share(self.dtype, len(some)) * float(among.diagonal().mean())
        factor = regularised_cholesky(among, self.backend.zeros((len(some),)), jitter)
        return None if factor is None else columns @ self.backend.invert_lower(factor).T

    def _factor(self, m: int, rows: slice, columns: NDArray[np.intp]) -> ArrayOrTensor:
        """Return what a block of one kernel is multiplied with."""
        if self.factors.ndim == 1:
            return float(self.factors[m])
        return self.backend.asarray(np.outer(self.factors[rows, m], self.factors[columns, m]))

    def _numbers(self, rows: RowIndex) -> NDArray[np.intp]:
        return rows if isinstance(rows, np.ndarray) else self.backend.to_numpy(rows)

    def diagonal(self) -> Array:
        each = self.stack.diagonals()
        values = (self.factors.T**2 * each).sum(0) if self.factors.ndim == 2 else self.factors @ each
        return np.asarray(values if self.shift is None else values + self.shift)

    def add_diagonal(self, values: Array) -> OnDemandGram:
        shifted = copy(self)
        shifted.shift = values if self.shift is None else self.shift + values
        return shifted

    def solve_free(self, rows: NDArray[np.intp], ridge: Array, right: Array) -> Array:
        if len(rows) <= self.block_samples:
            return super().solve_free(rows, ridge, right)
        # Too many for a block: some of them, evenly spread, stand for all.
        some = np.unique(np.linspace(0, len(rows) - 1, self.block_samples).astype(np.intp))
        answer = np.zeros_like(right)
        answer[some] = super().solve_free(rows[some], ridge[some], right[some]) * (len(rows) / len(some))
        return answer


def most_in_a_block(n: int, budget: float, dtype: np.dtype[Any]) -> int:
    """Return how many of n samples a block within the budget may have."""
    return int(min(n, (_SHARE * budget / dtype.itemsize) ** 0.5))
