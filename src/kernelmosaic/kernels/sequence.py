"""What the kernels between strings share: reading the strings, and letters as numbers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.kernels.base import Kernel

Sequences = NDArray[np.object_]


class SequenceKernel(Kernel):
    """A kernel between strings: X is a list, an array, a column or a series of `str` or `bytes`, one a sample.

    Letters are compared as they are written: ``"a"`` is not ``"A"``.
    """

    input_kind: ClassVar[str] = "sequences"

    def validate(self, X: Any) -> Sequences:
        """Return X as a vector of non-empty `str`, or raise naming what is wrong."""
        if isinstance(X, str | bytes):
            raise TypeError(
                f"X is one string, {X[:20]!r}: {type(self).__name__} needs a list of strings, one a sample."
            )
        strings = np.asarray(X, dtype=object)
        if strings.ndim == 2 and strings.shape[1] == 1:
            strings = strings[:, 0]
        if strings.ndim != 1 or strings.size == 0:
            raise ValueError(
                f"X has shape {strings.shape}: {type(self).__name__} needs one string a sample: a list or one column."
            )
        if all(type(s) is str and s for s in strings):
            return strings
        result = np.empty(strings.size, dtype=object)
        result[:] = [self._read(s, i) for i, s in enumerate(strings)]
        return result

    def _read(self, value: Any, position: int) -> str:
        if not isinstance(value, str | bytes):
            raise TypeError(
                f"X[{position}] is {value!r}, a {type(value).__name__}: {type(self).__name__} needs str or bytes."
            )
        if not value:
            raise ValueError(
                f"X[{position}] is empty: {type(self).__name__} needs a letter at least; leave the sample out."
            )
        # Latin-1 reads every byte as the letter of the same number, so no bytes are refused.
        return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def letter_codes(X: Sequences) -> NDArray[np.uint32]:
    """Return the numbers of all letters, one string after the other."""
    return np.frombuffer("".join(X).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32, copy=False)


def lengths(X: Sequences) -> NDArray[np.intp]:
    """Return the length of every string."""
    return np.fromiter(map(len, X), dtype=np.intp, count=len(X))
