"""Compiled local alignment of strings. Imported only when used: Numba is slow to import."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray
from kernelmosaic.files import njit

#: Targets that a query is aligned with at once. A constant, so that the innermost loop has no remainder.
LANES = 32


@njit(cache=True, nogil=True)
def local_scores(
    codes: NDArray[np.uint8],
    starts: NDArray[np.intp],
    stops: NDArray[np.intp],
    targets: NDArray[np.uint8],
    table: NDArray[np.int8],
    gap_open: int,
    gap_extend: int,
    scores: AnyArray,
) -> None:
    """Write the scores of queries, slices of ``codes``, against the columns of ``targets`` into ``scores``.

    The recurrences of Gotoh (1982). The innermost loop runs over targets (Rognes, 2011): at the same place of all of
    them no cell depends on another, so the loop vectorises. Numbers stay in the type of ``scores``, 16 bits where those
    suffice; without the casts Numba would compute in 64. Columns are padded by a letter with score 0 against
    all: from there no score rises above the best one.
    """
    kind = scores.dtype.type
    zero, opening, extension = kind(0), kind(gap_open), kind(gap_extend)
    # Scores of every letter against all targets, place by place, for all queries.
    against = np.empty((targets.shape[0], table.shape[0], LANES), table.dtype)
    for j in range(targets.shape[0]):
        for letter in range(table.shape[0]):
            for lane in range(LANES):
                against[j, letter, lane] = table[letter, targets[j, lane]]
    # At every letter of the query: the best score of alignments that end there, and of those that end in a gap in it.
    # Gaps and best scores start at 0, not −∞: only what is positive is ever used.
    column = np.empty((np.max(stops - starts), 2, LANES), scores.dtype)
    # Above the cell to the left, gap in the target, best of all. Few arrays: each pair costs a check for overlap.
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
                    score = max(max(kind(state[0, lane] + against[j, letter, lane]), zero), max(gap, other_gap))
                    state[0, lane] = column[i, 0, lane]
                    column[i, 0, lane] = score
                    state[2, lane] = max(state[2, lane], score)
                    opened = kind(score - opening)
                    column[i, 1, lane] = max(kind(gap - extension), opened)
                    state[1, lane] = max(kind(other_gap - extension), opened)
        for lane in range(LANES):  # an assignment to a slice takes Numba seconds to compile
            scores[q, lane] = state[2, lane]
