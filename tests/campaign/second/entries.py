"""Kernel entries from their printed formulas in long double, and by how much double precision may
move each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.campaign.second.problems import Formula, View

#: What everything is computed in. Where long double is double, the judge is as exact as what it
#: judges.
Long = np.longdouble
Array = np.ndarray
#: The rounding of one operation in double precision.
U = Long(2.0) ** -53
#: The error that products may leave in a squared distance, relative to itself or to the squared
#: width: the library keeps 43 digits by a rounding of 2√d U(‖x‖² + ‖z‖²), of which 8 √d U are
#: allowed.
_DIGITS = Long(2.0) ** -41
#: A kernel of which centring leaves less than this share of its mean diagonal, in √n U, is constant
#: but for rounding; one of which it leaves no more than so many times that has few digits left, and
#: may count as constant or not.
_NOISE, _FEW = 16.0, 2e4


@dataclass(frozen=True)
class Entries:
    """Values and by how much rounding in double precision may move each."""

    K: Array
    E: Array

    def nothing(self) -> Entries:
        """Return the zero kernel on the same samples."""
        return Entries(np.zeros_like(self.K), np.zeros_like(self.K))


def summed(n: int) -> Any:
    """Return what rounding may do to a sum of n terms, relative to the sum of their absolute
    values."""
    return max(4 * np.sqrt(Long(n)), Long(n + 2)) * U


def normalised(
    view: View, rule: str | None, train: Array, new: Array, share: Array, support: Array
) -> tuple[Entries, Entries, bool]:
    """Return a kernel among the training samples and between new ones and these, normalised by its
    definition.

    Outputs are sums over the support samples alone, a mask of the training samples. False comes
    last where centring leaves few digits of the kernel.
    """
    A, B = train[:, view.columns], new[:, view.columns]
    own, other = entries(view.formula, A, A, A, support), entries(view.formula, B, A, A, support)
    if rule is None:
        return own, other, True
    k, e = np.diag(own.K), np.diag(own.E)
    if rule == "trace":
        mean = share @ k
        if not mean > 0:
            return own, other, True
        off = (share @ e) / mean + summed(len(k))
        return _divided(own, mean, off), _divided(other, mean, off), True
    if rule == "diagonal":
        itself = [entries(view.formula, x[np.newaxis], x[np.newaxis], A, support) for x in B]
        squares = (
            np.array([one.K[0, 0] for one in itself]),
            np.array([one.E[0, 0] for one in itself]),
        )
        return _cosines(own, k, e, k, e), _cosines(other, *squares, k, e), True
    return _centred(own, other, share)


def _divided(block: Entries, by: Any, off: Any) -> Entries:
    """Divide by numbers that are known to a relative `off`."""
    K = block.K / by
    return Entries(K, block.E / abs(by) + abs(K) * (off + 2 * U))


def _cosines(
    block: Entries, left: Array, off_left: Array, right: Array, off_right: Array
) -> Entries:
    """Divide by the roots of k(x, x) and k(z, z)."""
    left, right = (np.where(one > 0, one, Long(1)) for one in (left, right))
    off = (off_left / left)[:, np.newaxis] / 2 + off_right / right / 2 + 4 * U
    return _divided(block, np.sqrt(left)[:, np.newaxis] * np.sqrt(right), off)


def _centred(own: Entries, other: Entries, share: Array) -> tuple[Entries, Entries, bool]:
    n = len(share)
    means, mean = own.K @ share, share @ own.K @ share
    off_means = own.E @ share + summed(n) * (abs(own.K) @ share)
    off_mean = share @ off_means
    trace = share @ np.diag(own.K) - mean
    level = share @ abs(np.diag(own.K))
    noise = _NOISE * np.sqrt(Long(n)) * U * level
    if trace <= noise:
        return own.nothing(), other.nothing(), True
    off_trace = share @ np.diag(own.E) + 2 * off_mean + 4 * U * (level + abs(mean))
    both = []
    for block in (own, other):
        side = block.K @ share
        off_side = block.E @ share + summed(n) * (abs(block.K) @ share)
        K = block.K - side[:, np.newaxis] - means + mean
        size = abs(block.K) + abs(side)[:, np.newaxis] + abs(means) + abs(mean)
        E = block.E + off_side[:, np.newaxis] + off_means + off_mean + 2 * U * size
        both.append(_divided(Entries(K, E), trace, off_trace / trace))
    return both[0], both[1], bool(trace > _FEW * noise)


def entries(
    formula: Formula, A: Array, B: Array, train: Array, support: Array | None = None
) -> Entries:
    """Return k(a, b) of the rows of A and B, and how far it may be off in double precision.

    Distances are those of samples less the mean of the training samples, or of the support samples
    among them.
    """
    parts = [entries(part, A, B, train, support) for part in formula.parts]
    if formula.kind == "sum":
        K = parts[0].K + parts[1].K
        return Entries(K, parts[0].E + parts[1].E + U * abs(K))
    if formula.kind == "product":
        (a, b), K = parts, parts[0].K * parts[1].K
        return Entries(K, abs(a.K) * b.E + abs(b.K) * a.E + a.E * b.E + U * abs(K))
    if formula.kind == "scaled":
        factor = Long(formula.numbers["factor"])
        return Entries(factor * parts[0].K, factor * parts[0].E + U * abs(factor * parts[0].K))
    if formula.kind == "given":
        K = formula.numbers["K"].astype(Long)[np.ix_(A[:, 0].astype(int), B[:, 0].astype(int))]
        return Entries(K, np.zeros_like(K))
    if formula.kind in ("linear", "polynomial"):
        return _of_products(formula, A, B)
    means = [
        some.astype(Long).mean(axis=0)
        for some in (train, train if support is None or not support.any() else train[support])
    ]
    return _of_distances(formula, A, B, train, means)


def _of_products(formula: Formula, A: Array, B: Array) -> Entries:
    S, size = np.zeros((len(A), len(B)), dtype=Long), np.zeros((len(A), len(B)), dtype=Long)
    for a, b in zip(A.T.astype(Long), B.T.astype(Long), strict=True):
        S += np.multiply.outer(a, b)
        size += abs(np.multiply.outer(a, b))
    E = (summed(A.shape[1]) + U) * size
    if formula.kind == "linear":
        return Entries(S, E)
    degree, offset = formula.numbers["degree"], Long(formula.numbers["offset"])
    base = S + offset
    off = E + U * abs(base)
    K = base**degree
    return Entries(K, (abs(base) + off) ** degree - abs(K) + degree * U * abs(K))


def _of_distances(
    formula: Formula, A: Array, B: Array, train: Array, means: list[Array]
) -> Entries:
    power = 2 if formula.kind == "gaussian" else 1
    width, off_width = _width(formula, train)
    S, off = _distances(A, B, means, power)
    if power == 2:
        left, right = (
            max_of(((one.astype(Long) - mean) ** 2).sum(axis=1) for mean in means) for one in (A, B)
        )
        made = 8 * np.sqrt(Long(A.shape[1])) * U * np.add.outer(left, right)
        off = np.where(
            S > 0, np.maximum(off, np.minimum(made, _DIGITS * np.maximum(S, width**2))), off
        )
    a = S / width**power
    E = off / width**power + a * (power * off_width + 4 * U)
    K = np.exp(-a)
    return Entries(K, np.minimum(K * np.expm1(np.minimum(E, 100)) + 2 * U * K + Long(1e-300), 1))


def max_of(arrays: Iterable[Array]) -> Array:
    """Return the largest of each entry."""
    return np.max(list(arrays), axis=0)


def _distances(A: Array, B: Array, means: list[Array], power: int) -> tuple[Array, Array]:
    """Return Σ |a − b|^power over the columns, and how far it may be off when a mean is subtracted
    first."""
    S, off = np.zeros((len(A), len(B)), dtype=Long), np.zeros((len(A), len(B)), dtype=Long)
    for j in range(A.shape[1]):
        a, b = A[:, j].astype(Long), B[:, j].astype(Long)
        left, right = (max_of(abs(one - mean[j]) for mean in means) for one in (a, b))
        D = abs(np.subtract.outer(a, b))
        e = np.where(D > 0, U * (D + np.add.outer(left, right)), 0)
        S += D**power
        off += e if power == 1 else (2 * D + e) * e + U * D**2
    return S, off + summed(A.shape[1]) * S


def _width(formula: Formula, train: Array) -> tuple[Any, Any]:
    """Return the width, its factor included, and how far it may be off, relative."""
    width, factor = formula.numbers["width"], Long(formula.numbers.get("factor", 1.0))
    if not isinstance(width, str):
        return Long(width) * factor, 2 * U
    rows = np.array(sorted({tuple(row) for row in train.tolist()}))
    if len(rows) < 2:
        return factor, 2 * U
    power = 2 if formula.kind == "gaussian" else 1
    S, off = _distances(rows, rows, [train.astype(Long).mean(axis=0)], power)
    D = np.sqrt(S) if power == 2 else S
    off = off / (2 * np.where(D > 0, D, 1)) if power == 2 else off
    if width == "median":
        apart = np.triu_indices(len(rows), 1)
        value, error = np.median(D[apart]), np.median(D[apart] + off[apart]) - np.median(D[apart])
    else:
        D = D + np.where(np.eye(len(rows)) > 0, Long(np.inf), Long(0))
        value, error = D.min(axis=1).mean(), (D + off).min(axis=1).mean() - D.min(axis=1).mean()
    return value * factor, error / value + summed(len(rows))


def combined(eta: Array, blocks: list[Entries]) -> Entries:
    K = sum(weight * block.K for weight, block in zip(eta, blocks, strict=True))
    size = sum(abs(weight * block.K) for weight, block in zip(eta, blocks, strict=True))
    E = sum(abs(weight) * block.E for weight, block in zip(eta, blocks, strict=True))
    return Entries(K, E + summed(len(eta)) * size)


def applied(block: Entries, beta: Array) -> Entries:
    """Return Kβ."""
    return Entries(
        block.K @ beta, block.E @ abs(beta) + summed(len(beta)) * (abs(block.K) @ abs(beta))
    )
