"""The compiled loops of kernels between strings. Imported only when they are computed: Numba is slow to import."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def matching_words(A: NDArray[np.uint32], B: NDArray[np.uint32], degree: float, symmetric: bool) -> NDArray[np.float64]:
    """Compare the strings in the rows of A with those in the columns of B.

    Where a run of r ≤ D equal letters ends, so do equal words of 1, …, r letters, whose weights sum to
    r(2D + 1 − r) / (D(D + 1)). Whole numbers are summed and divided at the end, so nothing is rounded on the way. The
    innermost loop runs over strings, not places, because only then does it vectorise.
    """
    m = B.shape[1]
    K = np.empty((A.shape[0], m))
    run = np.empty(m)
    total = np.empty(m)
    for i in range(A.shape[0]):
        # Slices rather than offsets: an index that might be negative would keep the loop from vectorising.
        first = i if symmetric else 0
        r, t = run[first:], total[first:]
        r[:] = 0.0
        t[:] = 0.0
        for place in range(B.shape[0]):
            letter, others = A[i, place], B[place, first:]
            for j in range(others.size):
                r[j] = min(r[j] + 1.0, degree) * (others[j] == letter)
                t[j] += r[j] * (2.0 * degree + 1.0 - r[j])
        K[i, first:] = t / (degree * (degree + 1.0))
        if symmetric:
            K[first:, i] = K[i, first:]
    return K


@njit(cache=True, nogil=True)
def shared_words(
    words: NDArray[np.int64],
    ends: NDArray[np.int64],
    others: NDArray[np.int64],
    other_ends: NDArray[np.int64],
    count: int,
) -> NDArray[np.float64]:
    """Count the pairs of equal words in two lists of strings, given the words of each list one string after the other.

    Only pairs that are equal are met: the second list is sorted by words.
    """
    first = np.zeros(count + 1, dtype=np.int64)
    for word in others:
        first[word + 1] += 1
    for word in range(count):
        first[word + 1] += first[word]
    place, owner = first.copy(), np.empty(others.size, dtype=np.int64)
    start = 0
    for j in range(other_ends.size):
        for at in range(start, other_ends[j]):
            owner[place[others[at]]] = j
            place[others[at]] += 1
        start = other_ends[j]
    K = np.zeros((ends.size, other_ends.size))
    start = 0
    for i in range(ends.size):
        row = K[i]
        for at in range(start, ends[i]):
            for found in range(first[words[at]], first[words[at] + 1]):
                row[owner[found]] += 1.0
        start = ends[i]
    return K
