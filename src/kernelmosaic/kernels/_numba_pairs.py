"""Compiled loops over pairs of samples: columns, words, letters. Imported only when used: Numba is
slow to import.

Arrays are copied by loops: an assignment to a slice takes Numba seconds to compile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Array, Indices
from kernelmosaic.files import njit

#: Targets that a query is aligned with at once. A constant, so that the innermost loop has no
#: remainder.
LANES = 32


@njit(cache=True, nogil=True)
def manhattan(X: Array, Y: Array) -> Array:
    """Return Σ_c |x_c − y_c| for all rows of X and all columns of Y, in the order of c."""
    out = np.zeros((len(X), Y.shape[1]))
    for i in range(len(X)):
        for c in range(X.shape[1]):
            for j in range(Y.shape[1]):
                out[i, j] += abs(X[i, c] - Y[c, j])
    return out


@njit(cache=True, nogil=True)
def manhattan_of_nonzeros(
    data: AnyArray,
    columns: Indices,
    starts: Indices,
    other_data: AnyArray,
    other_columns: Indices,
    other_starts: Indices,
    width: int,
) -> AnyArray:
    """Return Σ_c |a_c − b_c| for all rows a and b of two sparse matrices, their columns in
    ascending order.

    It is Σ|a| + Σ|b| − Σ(|a| + |b| − |a − b|), whose last sum is over columns where neither is
    zero. Where that cancels more than six binary digits, differences are summed instead.
    """
    n, n_others = len(starts) - 1, len(other_starts) - 1
    # The entries of the others by column.
    heads, sizes = np.zeros(width + 1, np.intp), np.zeros(n_others)
    for p in range(len(other_data)):
        heads[other_columns[p] + 1] += 1
    for c in range(width):
        heads[c + 1] += heads[c]
    ends, rows, entries = (
        heads[:-1].copy(),
        np.empty(len(other_data), np.intp),
        np.empty(len(other_data)),
    )
    for j in range(n_others):
        for p in range(other_starts[j], other_starts[j + 1]):
            k = ends[other_columns[p]]
            rows[k], entries[k] = j, other_data[p]
            ends[other_columns[p]] += 1
            sizes[j] += abs(other_data[p])
    out = np.zeros((n, n_others))
    for i in range(n):
        row, size = out[i], 0.0
        for p in range(starts[i], starts[i + 1]):
            a = data[p]
            size += abs(a)
            for k in range(heads[columns[p]], heads[columns[p] + 1]):
                row[rows[k]] += abs(a) + abs(entries[k]) - abs(a - entries[k])
        for j in range(n_others):
            total = size + sizes[j]
            row[j] = total - row[j]
            if row[j] * 64.0 < total:
                row[j] = 0.0
                p, q = starts[i], other_starts[j]
                while p < starts[i + 1] or q < other_starts[j + 1]:
                    c = columns[p] if p < starts[i + 1] else width
                    d = other_columns[q] if q < other_starts[j + 1] else width
                    a = data[p] if c <= d else 0.0
                    b = other_data[q] if d <= c else 0.0
                    row[j] += abs(a - b)
                    p, q = p + (c <= d), q + (d <= c)
    return out


# Additions in any order: only then are they vectorised. Nothing here is infinite or NaN.
@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def sums_of_minima(A: AnyArray, B: AnyArray, symmetric: bool) -> AnyArray:
    """Return Σ_c min(A[i, c], B[j, c]) for all rows; with ``symmetric`` B is A, and half of them
    are computed."""
    n, m, width = A.shape[0], B.shape[0], A.shape[1]
    out = np.empty((n, m), A.dtype)
    zero = A.dtype.type(0)
    # Samples of B that are compared with all of A before the next: they stay in the second-level
    # cache.
    tile = 16
    for start in range(0, m, tile):
        stop = min(start + tile, m)
        for i in range(start if symmetric else 0, n):
            a = A[i]
            # Four at a time, so that a is loaded once for them; the last row stands in where there
            # are fewer.
            for j in range(start, stop, 4):
                j1, j2, j3 = min(j + 1, stop - 1), min(j + 2, stop - 1), min(j + 3, stop - 1)
                b0, b1, b2, b3 = B[j], B[j1], B[j2], B[j3]
                t0 = t1 = t2 = t3 = zero
                for c in range(width):
                    t0 += min(a[c], b0[c])
                    t1 += min(a[c], b1[c])
                    t2 += min(a[c], b2[c])
                    t3 += min(a[c], b3[c])
                out[i, j], out[i, j1], out[i, j2], out[i, j3] = t0, t1, t2, t3
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[j, i] = out[i, j]
    return out


@njit(cache=True, nogil=True)
def sparse_sums_of_minima(
    a_ends: AnyArray,
    a_columns: AnyArray,
    a: AnyArray,
    b_ends: AnyArray,
    b_rows: AnyArray,
    b: AnyArray,
    m: int,
    symmetric: bool,
) -> AnyArray:
    """Return the same for compressed rows of A and compressed columns of B: only what two samples
    share is visited.

    Nothing is stored twice, and the rows of a column are in order; B has m of them.
    """
    n = len(a_ends) - 1
    out = np.zeros((n, m), a.dtype)
    first = b_ends[:-1].copy()
    for i in range(n):
        total = out[i]
        for p in range(a_ends[i], a_ends[i + 1]):
            c, value = a_columns[p], a[p]
            for q in range(first[c], b_ends[c + 1]):
                total[b_rows[q]] += min(value, b[q])
            if symmetric:
                # It was row i itself: later rows need be compared with later ones only.
                first[c] += 1
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[i, j] = out[j, i]
    return out


@njit(cache=True, nogil=True)
def sums_of_tents(A: Array, B: Array, symmetric: bool) -> Array:
    """Return Σ_c max(0, 1 − |A[i, c] − B[c, j]|) for the rows of A and the columns of B.

    The innermost loop runs over samples: tables have few columns.
    """
    m = B.shape[1]
    out = np.zeros((A.shape[0], m))
    for i in range(A.shape[0]):
        first = i if symmetric else 0
        total = out[i, first:]
        for c in range(A.shape[1]):
            value, others = A[i, c], B[c, first:]
            for j in range(others.size):
                total[j] += max(0.0, 1.0 - abs(value - others[j]))
        if symmetric:
            for j in range(total.size):
                out[first + j, i] = total[j]
    return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def squared_differences(A: Array, B: Array, rows: Indices, columns: Indices) -> Array:
    """Return Σ_c (A[i, c] − B[j, c])² for pairs (i, j) of rows."""
    out = np.empty(len(rows))
    for p in range(len(rows)):
        a, b = A[rows[p]], B[columns[p]]
        total = 0.0
        for c in range(A.shape[1]):
            total += (a[c] - b[c]) ** 2
        out[p] = total
    return out


@njit(cache=True, nogil=True)
def matching_words(
    A: NDArray[np.uint32], B: NDArray[np.uint32], degree: float, symmetric: bool
) -> Array:
    """Compare the strings in the rows of A with those in the columns of B.

    Where a run of r ≤ D equal letters ends, so do equal words of 1, …, r letters, whose weights sum
    to r(2D + 1 − r) / (D(D + 1)). Whole numbers are summed and divided at the end, so nothing is
    rounded on the way. The innermost loop runs over strings, not places, because only then does it
    vectorise.
    """
    m = B.shape[1]
    K = np.empty((A.shape[0], m))
    run = np.empty(m)
    total = np.empty(m)
    for i in range(A.shape[0]):
        # Slices rather than offsets: an index that might be negative would keep the loop from
        # vectorising.
        first = i if symmetric else 0
        r, t = run[first:], total[first:]
        r[:] = 0.0
        t[:] = 0.0
        for place in range(B.shape[0]):
            letter, others = A[i, place], B[place, first:]
            for j in range(others.size):
                r[j] = min(r[j] + 1.0, degree) * (others[j] == letter)
                t[j] += r[j] * (2.0 * degree + 1.0 - r[j])
        for j in range(t.size):
            K[i, first + j] = t[j] / (degree * (degree + 1.0))
        if symmetric:
            for j in range(t.size):
                K[first + j, i] = K[i, first + j]
    return K


@njit(cache=True, nogil=True)
def shared_words(
    words: NDArray[np.int64],
    ends: NDArray[np.int64],
    others: NDArray[np.int64],
    other_ends: NDArray[np.int64],
    count: int,
) -> Array:
    """Count the pairs of equal words in two lists of strings, given the words of each list one
    string after the other.

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


@njit(cache=True, nogil=True)
def local_scores(
    codes: NDArray[np.uint8],
    starts: Indices,
    stops: Indices,
    targets: NDArray[np.uint8],
    table: NDArray[np.int8],
    gap_open: int,
    gap_extend: int,
    scores: AnyArray,
) -> None:
    """Write the scores of queries, slices of ``codes``, against the columns of ``targets`` into
    ``scores``.

    The recurrences of Gotoh (1982). The innermost loop runs over targets (Rognes, 2011): at the
    same place of all of them no cell depends on another, so the loop vectorises. Numbers stay in
    the type of ``scores``, 16 bits where those suffice; without the casts Numba would compute in
    64. Columns are padded by a letter with score 0 against all: from there no score rises above the
    best one.
    """
    kind = scores.dtype.type
    zero, opening, extension = kind(0), kind(gap_open), kind(gap_extend)
    # Scores of every letter against all targets, place by place, for all queries.
    against = np.empty((targets.shape[0], table.shape[0], LANES), table.dtype)
    for j in range(targets.shape[0]):
        for letter in range(table.shape[0]):
            for lane in range(LANES):
                against[j, letter, lane] = table[letter, targets[j, lane]]
    # At every letter of the query: the best score of alignments that end there, and of those that
    # end in a gap in it. Gaps and best scores start at 0, not −∞: only what is positive is ever
    # used.
    column = np.empty((np.max(stops - starts), 2, LANES), scores.dtype)
    # Above the cell to the left, gap in the target, best of all. Few arrays: each pair costs a
    # check for overlap.
    state = np.empty((3, LANES), scores.dtype)
    for q in range(len(starts)):
        query = codes[starts[q] : stops[q]]
        column[:] = zero
        state[:] = zero
        for j in range(targets.shape[0]):
            state[:2] = zero
            for i in range(len(query)):
                letter = query[i]
                for lane in range(LANES):
                    gap, other_gap = column[i, 1, lane], state[1, lane]
                    score = max(
                        max(kind(state[0, lane] + against[j, letter, lane]), zero),
                        max(gap, other_gap),
                    )
                    state[0, lane] = column[i, 0, lane]
                    column[i, 0, lane] = score
                    state[2, lane] = max(state[2, lane], score)
                    opened = kind(score - opening)
                    column[i, 1, lane] = max(kind(gap - extension), opened)
                    state[1, lane] = max(kind(other_gap - extension), opened)
        for lane in range(LANES):  # an assignment to a slice takes Numba seconds to compile
            scores[q, lane] = state[2, lane]
