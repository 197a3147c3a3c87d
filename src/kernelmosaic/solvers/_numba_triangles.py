"""Blocks of symmetric matrices, lower halves only. Imported only when it is used."""

from __future__ import annotations

from numba import njit

from kernelmosaic._typing import AnyArray


@njit(cache=True, nogil=True)
def take_lower(K: AnyArray, shift: float, rows: AnyArray, out: AnyArray) -> None:
    """Fill the lower half of out = K[rows, rows] + shift."""
    for i in range(len(rows)):
        source = K[rows[i]]
        for j in range(i + 1):
            out[i, j] = source[rows[j]] + shift


@njit(cache=True, nogil=True)
def add_lower(block: AnyArray, rows: AnyArray, out: AnyArray) -> None:
    """Add the lower half of a block to that of out[rows, rows]; the rows ascend."""
    for i in range(len(rows)):
        target = out[rows[i]]
        for j in range(i + 1):
            target[rows[j]] += block[i, j]


@njit(cache=True, nogil=True)
def mirror_lower(A: AnyArray) -> None:
    """Fill the upper half of a symmetric matrix by its lower half."""
    for i in range(len(A)):
        for j in range(i):
            A[j, i] = A[i, j]
