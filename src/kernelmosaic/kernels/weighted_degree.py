"""The weighted degree kernel between strings of one length."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.kernels.base import Block
from kernelmosaic.kernels.sequence import SequenceKernel, Sequences, lengths, letter_codes


class WeightedDegree(SequenceKernel):
    """k(x, z) = Σ_{d=1..D} β_d Σ_l 1[x[l:l+d] = z[l:l+d]], β_d = 2(D − d + 1) / (D(D + 1)).

    Counts the words, of up to D letters, that both strings have at the same place. All strings must have one length.

    Parameters
    ----------
    degree : int, default=3
        The length D of the longest word.

    References
    ----------
    Rätsch and Sonnenburg (2004), "Accurate splice site prediction for Caenorhabditis elegans".
    """

    def __init__(self, degree: int = 3) -> None:
        self.degree = degree

    def fit(self, X: Any, y: Any = None) -> Self:
        self._check_degree()
        return super().fit(X, y)

    def validate(self, X: Any) -> Sequences:
        strings: Sequences = super().validate(X)
        _check_length(strings, len(strings[0]))
        return strings

    def _block(self, X: Any, Y: Any) -> Block:
        # Numba takes long to load, and only this kernel's users should wait for it.
        from kernelmosaic.kernels._numba_weighted_degree import matching_words

        self._check_degree()
        _check_length(X, len(Y[0]))
        places = np.ascontiguousarray(_letters(Y).T)
        return np.asarray(matching_words(_letters(X), places, float(self.degree), Y is X))

    def _diagonal(self, X: Any) -> NDArray[np.float64]:
        self._check_degree()
        d = np.arange(1, self.degree + 1)
        beta = 2.0 * (self.degree - d + 1) / (self.degree * (self.degree + 1.0))
        # A string of L letters has L - d + 1 words of length d, all of which match.
        return np.full(len(X), beta @ np.maximum(len(X[0]) - d + 1, 0))

    def _check_degree(self) -> None:
        if not isinstance(self.degree, Integral) or isinstance(self.degree, bool) or self.degree < 1:
            raise ValueError(f"degree={self.degree!r}: the length of the longest word must be a positive integer.")


def _check_length(X: Sequences, length: int) -> None:
    other = lengths(X) != length
    if other.any():
        i = int(np.argmax(other))
        raise ValueError(
            f"X[{i}] has {len(X[i])} letters, but others have {length}: WeightedDegree compares letters at the same "
            "place; cut or pad the strings to one length, or use Spectrum."
        )


def _letters(X: Sequences) -> NDArray[np.uint32]:
    return letter_codes(X).reshape(len(X), -1)
