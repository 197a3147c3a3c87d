"""Compiled loops over pairs of samples: over their columns, words or letters.

The module is imported by the functions that use it, since Numba is slow to import. Arrays are
copied by loops, since Numba takes seconds to compile an assignment to a slice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, Array, Indices
from kernelmosaic.files import njit

#: Targets that a query is aligned with at once. A constant, so that the innermost loop has no
#: remainder. Chosen by hand: as many 16-bit numbers fill one or two vector registers.
LANES = 32
#: Rows of B that `sums_of_minima` compares with all rows of A before it goes on to others, so that
#: they stay in the second-level cache. Chosen by hand.
_TILE_ROWS = 16


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
    right_data: AnyArray,
    right_columns: Indices,
    right_starts: Indices,
    width: int,
) -> AnyArray:
    """Return Σ_c |a_c − b_c| for all rows a and b of two sparse matrices.

    The sum is Σ|a| + Σ|b| − Σ(|a| + |b| − |a − b|), whose last sum is over columns where neither is
    zero. Where that cancels more than six binary digits, differences are summed instead.

    Parameters
    ----------
    data, columns, starts : ndarray
        The compressed rows a, their columns in ascending order.
    right_data, right_columns, right_starts : ndarray
        The compressed rows b.
    width : int
        The number of columns.
    """
    n = len(starts) - 1
    n_right = len(right_starts) - 1
    # 1. Put the entries of b in the order of columns: those of column c are at the positions from
    #    column_starts[c] to column_starts[c + 1], and row_sums are Σ|b|.
    column_starts = np.zeros(width + 1, np.intp)
    for p in range(len(right_data)):
        column_starts[right_columns[p] + 1] += 1
    for c in range(width):
        column_starts[c + 1] += column_starts[c]
    positions = column_starts[:-1].copy()
    rows = np.empty(len(right_data), np.intp)
    entries = np.empty(len(right_data))
    row_sums = np.zeros(n_right)
    for j in range(n_right):
        for p in range(right_starts[j], right_starts[j + 1]):
            k = positions[right_columns[p]]
            rows[k] = j
            entries[k] = right_data[p]
            positions[right_columns[p]] += 1
            row_sums[j] += abs(right_data[p])
    out = np.zeros((n, n_right))
    for i in range(n):
        # 2. Sum |a| + |b| − |a − b| over the columns that row i shares with every row b.
        row = out[i]
        row_sum = 0.0
        for p in range(starts[i], starts[i + 1]):
            a = data[p]
            row_sum += abs(a)
            for k in range(column_starts[columns[p]], column_starts[columns[p] + 1]):
                row[rows[k]] += abs(a) + abs(entries[k]) - abs(a - entries[k])
        for j in range(n_right):
            total = row_sum + row_sums[j]
            row[j] = total - row[j]
            if row[j] * 64.0 < total:
                # 3. Too many digits cancelled: merge both rows and sum the differences.
                row[j] = 0.0
                p = starts[i]
                q = right_starts[j]
                while p < starts[i + 1] or q < right_starts[j + 1]:
                    c = columns[p] if p < starts[i + 1] else width
                    d = right_columns[q] if q < right_starts[j + 1] else width
                    a = data[p] if c <= d else 0.0
                    b = right_data[q] if d <= c else 0.0
                    row[j] += abs(a - b)
                    p += c <= d
                    q += d <= c
    return out


# Additions may be reordered, since only then are they vectorised. No number is infinite or NaN.
@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def sums_of_minima(A: AnyArray, B: AnyArray, symmetric: bool) -> AnyArray:
    """Return Σ_c min(A[i, c], B[j, c]) for all rows i of A and j of B.

    With `symmetric`, B is A: entries below the diagonal are computed and copied to those above.
    """
    n, m, width = A.shape[0], B.shape[0], A.shape[1]
    out = np.empty((n, m), A.dtype)
    zero = A.dtype.type(0)
    for start in range(0, m, _TILE_ROWS):
        stop = min(start + _TILE_ROWS, m)
        for i in range(start if symmetric else 0, n):
            a = A[i]
            # Four rows of B at a time, so that a is loaded once for all of them. Where fewer are
            # left, the last row stands in for the missing ones and is computed again.
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
    """Return Σ_c min(A[i, c], B[j, c]) for sparse rows i of A and j of B.

    Only columns that two samples share are visited. No entry is stored twice, and the rows of a
    column are in ascending order.

    Parameters
    ----------
    a_ends, a_columns, a : ndarray
        Compressed rows of A.
    b_ends, b_rows, b : ndarray
        Compressed columns of B.
    m : int
        The number of rows of B.
    symmetric : bool
        Whether B is A; half of the entries are then copied.
    """
    n = len(a_ends) - 1
    out = np.zeros((n, m), a.dtype)
    column_starts = b_ends[:-1].copy()
    for i in range(n):
        total = out[i]
        for p in range(a_ends[i], a_ends[i + 1]):
            c = a_columns[p]
            value = a[p]
            for q in range(column_starts[c], b_ends[c + 1]):
                total[b_rows[q]] += min(value, b[q])
            if symmetric:
                # The first entry of the column is that of row i itself, which later rows skip.
                column_starts[c] += 1
    if symmetric:
        for i in range(n):
            for j in range(i):
                out[i, j] = out[j, i]
    return out


@njit(cache=True, nogil=True)
def sums_of_tents(A: Array, B: Array, symmetric: bool) -> Array:
    """Return Σ_c max(0, 1 − |A[i, c] − B[c, j]|) for the rows i of A and the columns j of B.

    With `symmetric`, B is the transpose of A, and half of the entries are copied. The innermost
    loop runs over samples, since tables have few columns.
    """
    m = B.shape[1]
    out = np.zeros((A.shape[0], m))
    for i in range(A.shape[0]):
        first = i if symmetric else 0
        total = out[i, first:]
        for c in range(A.shape[1]):
            value = A[i, c]
            column = B[c, first:]
            for j in range(column.size):
                total[j] += max(0.0, 1.0 - abs(value - column[j]))
        if symmetric:
            for j in range(total.size):
                out[first + j, i] = total[j]
    return out


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def squared_differences(A: Array, B: Array, rows: Indices, columns: Indices) -> Array:
    """Return Σ_c (A[i, c] − B[j, c])² for pairs of rows i of `rows` and j of `columns`."""
    out = np.empty(len(rows))
    for p in range(len(rows)):
        a = A[rows[p]]
        b = B[columns[p]]
        total = 0.0
        for c in range(A.shape[1]):
            total += (a[c] - b[c]) ** 2
        out[p] = total
    return out


@njit(cache=True, nogil=True)
def matching_words(
    A: NDArray[np.uint32], B: NDArray[np.uint32], degree: float, symmetric: bool
) -> Array:
    """Return the weighted-degree kernel between strings in the rows of A and in the columns of B.

    A run of r ≤ D equal letters that ends at a position ends equal words of 1, …, r letters there,
    whose weights sum to r(2D + 1 − r) / (D(D + 1)). Whole numbers are summed and divided at the
    end, so no sum is rounded. The innermost loop runs over strings rather than positions, because
    only then does it vectorise. With `symmetric`, B is the transpose of A, and half of the entries
    are copied.
    """
    m = B.shape[1]
    K = np.empty((A.shape[0], m))
    run = np.empty(m)
    total = np.empty(m)
    for i in range(A.shape[0]):
        # Slices rather than offsets: an index that might be negative would keep the loop from
        # vectorising.
        first = i if symmetric else 0
        r = run[first:]
        t = total[first:]
        r[:] = 0.0
        t[:] = 0.0
        for position in range(B.shape[0]):
            letter = A[i, position]
            letters = B[position, first:]
            for j in range(letters.size):
                r[j] = min(r[j] + 1.0, degree) * (letters[j] == letter)
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
    right_words: NDArray[np.int64],
    right_ends: NDArray[np.int64],
    n_numbers: int,
) -> Array:
    """Return the number of pairs of equal words between every two strings of two lists.

    Only equal pairs are visited, since the words of the second list are sorted by their numbers.

    Parameters
    ----------
    words, right_words : ndarray of int
        The numbers of the words of each list, one string after the other.
    ends, right_ends : ndarray of int
        The position behind the last word of every string.
    n_numbers : int
        A bound: all numbers of words are below it.
    """
    # The strings that contain word w are owners[word_starts[w]], …, owners[word_starts[w + 1] - 1].
    word_starts = np.zeros(n_numbers + 1, dtype=np.int64)
    for word in right_words:
        word_starts[word + 1] += 1
    for word in range(n_numbers):
        word_starts[word + 1] += word_starts[word]
    positions = word_starts.copy()
    owners = np.empty(right_words.size, dtype=np.int64)
    start = 0
    for j in range(right_ends.size):
        for p in range(start, right_ends[j]):
            owners[positions[right_words[p]]] = j
            positions[right_words[p]] += 1
        start = right_ends[j]
    K = np.zeros((ends.size, right_ends.size))
    start = 0
    for i in range(ends.size):
        row = K[i]
        for p in range(start, ends[i]):
            for k in range(word_starts[words[p]], word_starts[words[p] + 1]):
                row[owners[k]] += 1.0
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
    """Write the best local alignment scores of queries against targets into `scores`.

    The recurrences are those of Gotoh (1982). The innermost loop runs over targets (Rognes, 2011):
    at the same position of all of them no cell depends on another, so the loop vectorises. Numbers
    have the type of `scores`, 16 bits where those suffice; without the casts Numba would compute
    with 64.

    Parameters
    ----------
    codes : ndarray of int
        The letters of all queries; those of query q are ``codes[starts[q]:stops[q]]``.
    starts, stops : ndarray of int of shape (n_queries,)
        The bounds of the queries.
    targets : ndarray of int of shape (length, LANES)
        One target per column, padded by a letter with score 0 against all letters: behind the end
        of a target, no score rises above its best one.
    table : ndarray of int of shape (n_letters, n_letters + 1)
        The scores of all letters of queries against those of targets.
    gap_open, gap_extend : int
        A gap of n letters costs gap_open + (n − 1) gap_extend.
    scores : ndarray of shape (n_queries, LANES)
        The result.
    """
    integer = scores.dtype.type
    zero = integer(0)
    opening = integer(gap_open)
    extension = integer(gap_extend)
    # The score of every letter against all targets, at every position, for all queries.
    letter_scores = np.empty((targets.shape[0], table.shape[0], LANES), table.dtype)
    for j in range(targets.shape[0]):
        for letter in range(table.shape[0]):
            for lane in range(LANES):
                letter_scores[j, letter, lane] = table[letter, targets[j, lane]]
    # For every letter i of the query, at the current position j of the targets:
    # column[i, 0]  the best score of alignments that end in (i, j),
    # column[i, 1]  the best score of those that end in a gap in the query.
    # All scores start at 0 instead of −∞, since only positive scores are ever used.
    column = np.empty((np.max(stops - starts), 2, LANES), scores.dtype)
    # state[0]  the best score of alignments that end in (i − 1, j − 1),
    # state[1]  the best score of those that end in a gap in the target,
    # state[2]  the best score of all.
    # Few arrays, since every pair of them costs a check for overlap.
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
                    query_gap = column[i, 1, lane]
                    target_gap = state[1, lane]
                    score = max(
                        max(integer(state[0, lane] + letter_scores[j, letter, lane]), zero),
                        max(query_gap, target_gap),
                    )
                    state[0, lane] = column[i, 0, lane]
                    column[i, 0, lane] = score
                    state[2, lane] = max(state[2, lane], score)
                    opened = integer(score - opening)
                    column[i, 1, lane] = max(integer(query_gap - extension), opened)
                    state[1, lane] = max(integer(target_gap - extension), opened)
        for lane in range(LANES):
            scores[q, lane] = state[2, lane]
