"""The samples that count, the coefficients and the kernels on them, from a drawn problem and its
fitted model."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from tests.campaign.second.entries import Array, Long, normalised
from tests.campaign.second.problems import OffsetProblem


class Contradiction(AssertionError):
    """The model states what does not hold; the message begins with the kind of statement."""


class Training:
    """The samples that count, each once, their coefficients, and the kernels on them.

    Attributes
    ----------
    rows, weight : ndarray of shape (n,)
        The first of every group of equal samples with equal targets, and the sum of their weights.
    beta : ndarray of shape (outputs, n)
        The coefficients.
    blocks, new_blocks : list of Entries
        The normalised kernels among the training samples, and between new samples and them.
    undecided : list of int
        The kernels of which centring leaves so few digits that they may count as constant or not.
    """

    def __init__(self, problem: OffsetProblem, model: Any) -> None:
        self.rows, self.weight = _distinct(problem, model)
        full = np.zeros((model.dual_coef_.shape[0], len(problem.X)), dtype=Long)
        full[:, model.support_] = model.dual_coef_
        self.beta = full[:, self.rows]
        if not set(model.support_.tolist()) <= set(self.rows.tolist()):
            raise Contradiction("support: support_ names a sample that does not count")
        train, share = problem.X[self.rows], self.weight / self.weight.sum()
        rule, support = problem.parameters["normalize"], np.isin(self.rows, model.support_)
        self.blocks, self.new_blocks, self.undecided = [], [], []
        for m, view in enumerate(problem.views):
            own, new, clear = normalised(view, rule, train, problem.new, share, support)
            self.blocks.append(own)
            self.new_blocks.append(new)
            if not clear:
                self.undecided.append(m)

    def without(self, kernels: tuple[int, ...]) -> Training:
        """Return the same with kernels that count as constant, and are zero."""
        other = copy(self)
        other.blocks, other.new_blocks = (
            [block.nothing() if m in kernels else block for m, block in enumerate(blocks)]
            for blocks in (self.blocks, self.new_blocks)
        )
        return other

    def __len__(self) -> int:
        return len(self.rows)


def _distinct(problem: OffsetProblem, model: Any) -> tuple[Array, Array]:
    n = len(problem.X)
    weight = np.ones(n) if problem.sample_weight is None else problem.sample_weight
    if problem.name == "DiscriminantMKLClassifier":
        return np.arange(n), np.ones(n, dtype=Long)
    target = np.zeros(n) if problem.y is None else problem.y
    if problem.name == "PosteriorMKLClassifier":
        target = np.column_stack([labels_of(problem, model), model.posteriors_])
    groups: dict[tuple[float, ...], int] = {}
    total: dict[int, Any] = {}
    for i in range(n):
        if weight[i] > 0:
            key = (*problem.X[i].tolist(), *np.atleast_1d(target[i]).tolist())
            first = groups.setdefault(key, i)
            total[first] = total.get(first, Long(0)) + Long(weight[i])
    return np.array(list(total)), np.array(list(total.values()), dtype=Long)


def labels_of(problem: OffsetProblem, model: Any) -> Array:
    assert problem.y is not None
    if problem.y.ndim == 2:
        return np.asarray(problem.y.argmax(axis=1))
    return np.minimum(np.searchsorted(model.classes_, problem.y), len(model.classes_) - 1)


def columns(values: Array) -> Array:
    return np.asarray(values).reshape(len(values), -1)
