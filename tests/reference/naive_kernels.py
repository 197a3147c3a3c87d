"""The kernels once more, one pair of samples at a time, in plain Python: slow, obvious, and none of
the package."""

from __future__ import annotations

import cmath
import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean, median

Vector = Sequence[float]

_HALF = {
    "AA": 4,
    "CC": 9,
    "DD": 6,
    "WW": 11,
    "AC": 0,
    "AD": -2,
    "AW": -3,
    "CD": -3,
    "CW": -2,
    "DW": -4,
}
#: BLOSUM62 for four amino acids.
BLOSUM62 = _HALF | {pair[::-1]: score for pair, score in _HALF.items()}
#: NUC.4.4 for the four bases.
NUC44 = {a + b: 5 if a == b else -4 for a in "ACGT" for b in "ACGT"}


def block(pair: Callable[..., float], X: Sequence, Y: Sequence) -> list[list[float]]:
    return [[pair(x, y) for y in Y] for x in X]


def linear(x: Vector, z: Vector) -> float:
    return sum(a * b for a, b in zip(x, z, strict=True))


def polynomial(x: Vector, z: Vector, degree: int = 2, offset: float = 1.0) -> float:
    return (linear(x, z) + offset) ** degree


def gaussian(x: Vector, z: Vector, width: float) -> float:
    return math.exp(-(math.dist(x, z) ** 2) / width**2)


def manhattan(x: Vector, z: Vector) -> float:
    return sum(abs(a - b) for a, b in zip(x, z, strict=True))


def laplacian(x: Vector, z: Vector, width: float) -> float:
    return math.exp(-manhattan(x, z) / width)


def nearest_width(X: Sequence[Vector], distance: Callable[..., float] = math.dist) -> float:
    distinct = list({tuple(x) for x in X})
    return mean(min(distance(x, z) for z in distinct if z != x) for x in distinct)


def median_width(X: Sequence[Vector], distance: Callable[..., float] = math.dist) -> float:
    distinct = list({tuple(x) for x in X})
    return median(distance(x, z) for i, x in enumerate(distinct) for z in distinct[:i])


def correlation(x: Vector, z: Vector) -> float:
    if len(set(x)) == 1 or len(set(z)) == 1:
        return 0.0
    a, b = ([entry - mean(v) for entry in v] for v in (x, z))
    return linear(a, b) / math.sqrt(linear(a, a) * linear(b, b))


def tanimoto(x: Vector, z: Vector) -> float:
    together = sum(map(max, x, z))
    return sum(map(min, x, z)) / together if together else 1.0


def categorical(x: Sequence, z: Sequence) -> float:
    return mean(float(a == b) for a, b in zip(x, z, strict=True))


def clinical(x: Sequence, z: Sequence, ranges: Sequence[float | None]) -> float:
    """Numbers by their difference, as a share of the range; what has no range by whether it is the
    same."""
    return mean(
        float(a == b) if span is None else max(0.0, 1.0 - abs(a - b) / span)
        for a, b, span in zip(x, z, ranges, strict=True)
    )


def spectrum(x: str, z: str, length: int = 3) -> float:
    a, b = (Counter(s[i : i + length] for i in range(len(s) - length + 1)) for s in (x, z))
    return sum(a[word] * b[word] for word in a)


def weighted_degree(x: str, z: str, degree: int = 3) -> float:
    total = 0.0
    for d in range(1, degree + 1):
        matches = sum(x[i : i + d] == z[i : i + d] for i in range(len(x) - d + 1))
        total += 2 * (degree - d + 1) / (degree * (degree + 1)) * matches
    return total


#: What `alignment_score` has found.
_ALIGNED: dict[tuple[str, str, int, int, int], int] = {}


def alignment_score(x: str, z: str, table: dict[str, int], gap_open: int, gap_extend: int) -> int:
    """The best local alignment, trying gaps of every length at every cell; kept, for many kernels
    ask for it again."""
    asked = (x, z, id(table), gap_open, gap_extend)
    if asked not in _ALIGNED:
        _ALIGNED[asked] = _aligned(x, z, table, gap_open, gap_extend)
    return _ALIGNED[asked]


def _aligned(x: str, z: str, table: dict[str, int], gap_open: int, gap_extend: int) -> int:
    H = [[0] * (len(z) + 1) for _ in range(len(x) + 1)]
    for i in range(1, len(x) + 1):
        for j in range(1, len(z) + 1):
            down = [H[i - k][j] - gap_open - (k - 1) * gap_extend for k in range(1, i + 1)]
            right = [H[i][j - k] - gap_open - (k - 1) * gap_extend for k in range(1, j + 1)]
            H[i][j] = max(0, H[i - 1][j - 1] + table[x[i - 1] + z[j - 1]], *down, *right)
    return max(map(max, H))


def smith_waterman(
    x: str,
    z: str,
    training: Sequence[str],
    table: dict[str, int] = BLOSUM62,
    gap_open: int = 11,
    gap_extend: int = 1,
) -> float:
    def score(a: str, b: str) -> int:
        return alignment_score(a, b, table, gap_open, gap_extend)

    def described(s: str) -> list[float]:
        return [score(s, t) / math.sqrt(score(s, s) * score(t, t)) for t in training]

    return linear(described(x), described(z))


def diffusion(adjacency: Sequence[Vector], beta: float) -> list[list[float]]:
    """exp(βH) by its power series, on β / 2^10 and then squared ten times."""
    n = len(adjacency)
    H = [
        [adjacency[i][j] - (sum(adjacency[i]) if i == j else 0.0) for j in range(n)]
        for i in range(n)
    ]

    def times(A: list[list[float]], B: list[list[float]]) -> list[list[float]]:
        return [[sum(A[i][k] * B[k][j] for k in range(n)) for j in range(n)] for i in range(n)]

    term = [[float(i == j) for j in range(n)] for i in range(n)]
    total = [row[:] for row in term]
    for power in range(1, 15):
        term = [[entry * beta / 2**10 / power for entry in row] for row in times(term, H)]
        total = [
            [a + b for a, b in zip(*rows, strict=True)] for rows in zip(total, term, strict=True)
        ]
    for _ in range(10):
        total = times(total, total)
    return total


def magnitudes(x: Vector, n_frequencies: int | None = None) -> list[float]:
    n = len(x)
    waves = range(n // 2 + 1 if n_frequencies is None else n_frequencies)
    return [
        abs(sum(a * cmath.exp(-2j * math.pi * f * t / n) for t, a in enumerate(x))) for f in waves
    ]


def refined_labels(graph: tuple, iterations: int) -> list:
    """The labels of the nodes after some iterations, written out as nested tuples; loops do not
    count."""
    edges, labels = graph
    neighbours = [set() for _ in range(labels if isinstance(labels, int) else len(labels))]
    for u, v in edges:
        if u != v:
            neighbours[u].add(int(v))
            neighbours[v].add(int(u))
    found = (
        [str(len(near)) for near in neighbours]
        if isinstance(labels, int)
        else [str(label) for label in labels]
    )
    for _ in range(iterations):
        found = [
            (own, tuple(sorted(found[u] for u in near)))
            for own, near in zip(found, neighbours, strict=True)
        ]
    return found


def weisfeiler_lehman(
    x: tuple, z: tuple, iterations: Sequence[int], mode: str = "subtree"
) -> float:
    total = 0
    for h in iterations:
        a, b = Counter(refined_labels(x, h)), Counter(refined_labels(z, h))
        total += sum(min(a[one], b[one]) if mode == "assignment" else a[one] * b[one] for one in a)
    return float(total)


def shortest_path(x: tuple, z: tuple) -> float:
    """All paths by the algorithm of Floyd and Warshall."""
    a, b = _paths(x), _paths(z)
    return float(sum(a[one] * b[one] for one in a))


def _paths(graph: tuple) -> Counter:
    labels, n = refined_labels(graph, 0), len(refined_labels(graph, 0))
    D = [[0 if i == j else math.inf for j in range(n)] for i in range(n)]
    for u, v in graph[0]:
        if u != v:
            D[u][v] = D[v][u] = 1
    for k in range(n):
        for i in range(n):
            for j in range(n):
                D[i][j] = min(D[i][j], D[i][k] + D[k][j])
    ends = ((i, j) for i in range(n) for j in range(i) if D[i][j] < math.inf)
    return Counter((*sorted((labels[i], labels[j])), D[i][j]) for i, j in ends)
