"""The spectrum kernel between strings."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.sequence import SequenceKernel, Sequences, lengths, letter_codes


class Spectrum(SequenceKernel):
    """k(x, z) = Σ_w count of w in x · count of w in z, over all words w of a given length.

    The strings may differ in length; one shorter than the words has none, and similarity 0 to all.

    Parameters
    ----------
    length : int, default=3
        The length of the words.

    References
    ----------
    Leslie, Eskin and Noble (2002), "The spectrum kernel: a string kernel for SVM protein classification".
    """

    def __init__(self, length: int = 3) -> None:
        self.length = length

    def fit(self, X: Any, y: Any = None) -> Self:
        self._check_length()
        return super().fit(X, y)

    def _block(self, X: Any, Y: Any) -> Block:
        if Y is X:
            counts = self._counts(X)
            return np.asarray((counts @ counts.T).toarray())
        # Counted together, so that a word has the same column in both.
        counts = self._counts(np.concatenate([X, Y]))
        return np.asarray((counts[: len(X)] @ counts[len(X) :].T).toarray())

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._counts(X).power(2).sum(axis=1), dtype=np.float64).ravel()

    def _counts(self, X: Sequences) -> Any:
        """One row a string, one column a word that occurs."""
        self._check_length()
        n_letters = lengths(X)
        # Where words may start: not so near the end of a string that they would run into the next one.
        rows = np.repeat(np.arange(len(X)), n_letters)
        left = np.repeat(np.cumsum(n_letters), n_letters) - np.arange(rows.size)
        starts = np.flatnonzero(left >= self.length)
        columns = _word_numbers(letter_codes(X), starts, self.length)
        shape = (len(X), int(columns.max(initial=-1)) + 1)
        return sparse.csr_array((np.ones(starts.size), (rows[starts], columns)), shape=shape)

    def _check_length(self) -> None:
        if not isinstance(self.length, Integral) or isinstance(self.length, bool) or self.length < 1:
            raise ValueError(f"length={self.length!r}: the length of the words must be a positive integer.")


def _word_numbers(codes: NDArray[np.uint32], starts: NDArray[np.intp], length: int) -> NDArray[np.int64]:
    """Number the words at the given starts, equal words alike."""
    letters, numbers = np.unique(codes, return_inverse=True)
    words = np.zeros(starts.size, dtype=np.int64)
    for i in range(length):
        # Renumbered after each letter: the numbers stay below the count of words, for every alphabet and length.
        words = np.unique(words * letters.size + numbers[starts + i], return_inverse=True)[1]
    return words
