"""Machines of survival times: censored regression, and losses that join samples, by hazards and by
pairs in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from kernelmosaic._checks import check_C
from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices
from kernelmosaic.gram.gram import as_gram
from kernelmosaic.machines.base import SVR, Machine
from kernelmosaic.solvers.program import Vector
from kernelmosaic.solvers.smooth_newton import (
    LossPoint,
    SmoothProgram,
    SmoothSolution,
    solve_smooth,
)

#: Most terms of Efron's sum over the events of one time; of more events, so many stand for all.
_MOST_TERMS = 1000
#: Most pairs of an event with another sample that a ranking keeps in memory.
_MOST_PAIRS = 50_000_000
#: Numbers below this have no usable inverse.
_TINY = 1e-290


def outlived(time: AnyArray, event: AnyArray) -> Indices:
    """Return stages: a sample outlives an event just if its stage is the later one.

    Events come before the censoring of the same time, and two events of one time have no order.
    """
    return np.asarray(2 * np.unique(time, return_inverse=True)[1] + ~np.asarray(event, dtype=bool))


class Survival(SVR):
    """Censored regression: min ½‖w‖² + Σ Cᵢ lᵢ(f(xᵢ)) on the logarithms yᵢ of times, some of which
    are lower bounds.

    Where the event was observed, lᵢ(f) = max(0, |yᵢ − f| − ε), as in `SVR`; of a censored sample
    nothing more is known than that the event comes later, lᵢ(f) = max(0, yᵢ − f − ε), so that its
    coefficient is not negative. With ``slack=2`` the excess is squared: min ‖w‖² + Σ Cᵢ lᵢ².

    Parameters
    ----------
    y : array of shape (n,)
        Logarithms of the times.
    event : array of shape (n,)
        Whether the event was observed; else the time is censored.
    C : float
        Factor of the loss.
    epsilon : float
        Half-width of the tube in which errors are free.
    slack : {1, 2}
        Norm of the slack.
    sample_weight : array of shape (n,), optional
        Factors of C, sample by sample.

    References
    ----------
    Shivaswamy, Chu and Jansche (2007), "A support vector approach to censored targets".
    """

    def __init__(
        self,
        y: AnyArray,
        event: AnyArray,
        C: float = 1.0,
        epsilon: float = 0.0,
        slack: int = 1,
        sample_weight: Array | None = None,
    ) -> None:
        super().__init__(y, C, epsilon, slack, sample_weight)
        self.program = replace(
            self.program, lower=np.where(np.asarray(event, dtype=bool), self.program.lower, 0.0)
        )


class PartialLikelihood(SmoothProgram):
    """−C times the logarithm of Cox's partial likelihood, with Efron's terms for ties, at log
    hazards −f.

    With risks rⱼ = wⱼ exp(−fⱼ), the sum S of those that are under observation at a time with
    events, the sum D of those that have their event then, and the weight d of these, the time adds
    Σ_{l < d} log(S − (l / d) D) + Σ w f.

    Parameters
    ----------
    time, event : array of shape (n,)
        Times, and whether each is that of the event.
    weight : array of shape (n,)
        How often each sample counts; a fraction of a count is a term of that weight.
    C : float
        Factor.
    """

    def __init__(self, time: AnyArray, event: AnyArray, weight: Array, C: float) -> None:
        super().__init__(weight)
        event = np.asarray(event, dtype=bool) & (weight > 0)
        ends = np.unique(np.asarray(time)[event])
        # A sample is at risk in the first so many of the times with events.
        stage = np.searchsorted(ends, time, side="right")
        rows = np.flatnonzero((stage > 0) & (weight > 0))
        self.rows = rows[np.argsort(stage[rows], kind="stable")]
        self.last = stage[self.rows] - 1
        self.starts = np.searchsorted(self.last, np.arange(len(ends)))
        self.log_weight = np.log(weight[self.rows])
        self.died = np.flatnonzero(event[self.rows])
        self.died_starts = np.searchsorted(self.last[self.died], np.arange(len(ends)))
        self.deaths = C * weight[self.rows][self.died]
        count = np.add.reduceat(weight[self.rows][self.died], self.died_starts)
        terms = np.clip(np.ceil(count), 1, _MOST_TERMS).astype(np.intp)
        self.of = np.repeat(np.arange(len(ends)), terms)
        self.term_starts = np.concatenate([[0], np.cumsum(terms)[:-1]])
        place = np.arange(len(self.of)) - self.term_starts[self.of]
        last = np.maximum((count - 1.0) / count, 0.0)
        # From 0 to (d − 1) / d in equal steps: l / d where d is a whole number.
        self.share = (place / np.maximum(terms - 1, 1)[self.of]) * last[self.of]
        self.height = (C * count / terms)[self.of]

    def _sums(self, values: Vector) -> tuple[Vector, Vector]:
        """Return the logarithms of the risks, and those of the denominators S − (l / d) D."""
        log_risk = self.log_weight - values[self.rows]
        S = np.logaddexp.accumulate(np.logaddexp.reduceat(log_risk, self.starts)[::-1])[::-1]
        D = np.logaddexp.reduceat(log_risk[self.died], self.died_starts)
        return log_risk, S[self.of] + np.log1p(
            -self.share * np.exp(np.minimum(D - S, 0.0))[self.of]
        )

    def loss_at(self, values: Vector) -> LossPoint:
        log_risk, below = self._sums(values)
        value = float(self.height @ below + self.deaths @ values[self.rows][self.died])
        with np.errstate(divide="ignore"):  # the first term of a time takes nothing off
            hazard = np.logaddexp.reduceat(np.log(self.height) - below, self.term_starts)
            less = np.logaddexp.reduceat(np.log(self.height * self.share) - below, self.term_starts)
        # The events that are expected of each sample, up to its own time.
        expected = np.exp(log_risk + np.logaddexp.accumulate(hazard)[self.last])
        expected[self.died] -= np.exp(log_risk[self.died] + less[self.last[self.died]])
        slopes = np.zeros(self.n_samples)
        slopes[self.rows] = -expected
        slopes[self.rows[self.died]] += self.deaths
        return LossPoint(value, slopes, partial(self._times, log_risk, below, expected))

    def _times(self, log_risk: Vector, below: Vector, expected: Vector, V: Array) -> Array:
        """Multiply the curvature with vectors: Σ over the terms of diag p − ppᵀ, p being shares of
        the denominator."""
        columns, top = V.reshape(len(V), -1)[self.rows], float(log_risk.max())
        risk, denominator = np.exp(log_risk - top), np.exp(below - top)
        inverse = np.where(denominator > _TINY, 1.0 / np.maximum(denominator, _TINY), 0.0)[
            :, np.newaxis
        ]
        moved = risk[:, np.newaxis] * columns
        S = np.add.reduceat(moved, self.starts)[::-1].cumsum(axis=0)[::-1]
        D = np.add.reduceat(moved[self.died], self.died_starts)
        share = self.share[:, np.newaxis]
        # One factor after the other: the square of a large inverse overflows.
        mean = self.height[:, np.newaxis] * (S[self.of] - share * D[self.of]) * inverse * inverse
        taken = np.add.reduceat(mean, self.term_starts).cumsum(axis=0)[self.last]
        taken[self.died] -= np.add.reduceat(share * mean, self.term_starts)[self.last[self.died]]
        out = np.zeros((self.n_samples, columns.shape[1]))
        out[self.rows] = expected[:, np.newaxis] * columns - risk[:, np.newaxis] * taken
        return out.reshape(V.shape)

    def loss_bound(self, values: Vector, error: float) -> float:
        """Return the loss plus what an error in the outputs may add: a mean, and an output, for
        each event."""
        return self.loss_at(values).value + 2.0 * float(self.height.sum()) * error

    def loss_size(self, values: Vector) -> float:
        below, own = np.abs(self._sums(values)[1]), np.abs(values[self.rows][self.died])
        return float(self.height @ below + self.deaths @ own)


class OrderedPairs(SmoothProgram):
    """(C / N) Σ wᵢ wⱼ max(0, 1 − (fⱼ − fᵢ))² over the pairs in which j outlives the event of i; N
    is Σ w.

    Parameters
    ----------
    time, event, weight, C
        As in `PartialLikelihood`.
    """

    def __init__(self, time: AnyArray, event: AnyArray, weight: Array, C: float) -> None:
        super().__init__(weight)
        self.first = np.flatnonzero(np.asarray(event, dtype=bool) & (weight > 0))
        if len(self.first) * self.n_samples > _MOST_PAIRS:
            raise MemoryError(
                f"loss='rank' would compare {len(self.first)} events with {self.n_samples} samples,"
                f" and keeps up to {_MOST_PAIRS:.0e} pairs in memory: use loss='cox' or 'censored',"
                " or fewer samples."
            )
        stage = outlived(time, event)
        later = stage > stage[self.first][:, np.newaxis]
        self.factor = (C / weight.sum()) * np.where(
            later, np.outer(weight[self.first], weight), 0.0
        )

    def _short(self, values: Vector, margin: float = 1.0) -> Array:
        """Return by how much each pair falls short of its margin, of shape (events, n)."""
        return np.maximum(margin - values + values[self.first][:, np.newaxis], 0.0)

    def loss_at(self, values: Vector) -> LossPoint:
        short = self._short(values)
        pull = 2.0 * self.factor * short
        slopes = -pull.sum(axis=0)
        slopes[self.first] += pull.sum(axis=1)
        bends = cache(lambda: 2.0 * self.factor * (short > 0))
        return LossPoint(0.5 * float(np.vdot(pull, short)), slopes, partial(self._times, bends))

    def _times(self, curvature: Callable[[], Array], V: Array) -> Array:
        """Multiply the curvature with vectors: 2 (C / N) wᵢ wⱼ of the pairs that fall short."""
        bends = curvature()
        columns = V.reshape(len(V), -1)
        out = bends.sum(axis=0)[:, np.newaxis] * columns - bends.T @ columns[self.first]
        out[self.first] += bends.sum(axis=1)[:, np.newaxis] * columns[self.first] - bends @ columns
        return np.asarray(out.reshape(V.shape))

    def loss_bound(self, values: Vector, error: float) -> float:
        """Return the loss where every pair falls short by twice the error more."""
        return float(np.vdot(self.factor, self._short(values, 1.0 + 2.0 * error) ** 2))

    def loss_size(self, values: Vector) -> float:
        return self.loss_bound(values, 0.0)


class SmoothMachine(Machine):
    """A machine min ½‖w‖² + L(f) whose loss L is smooth, joins samples, and leaves the constant of
    f open.

    Its coefficients are slopes of the loss, β = −∇L: the outputs where the slopes are taken prove
    the dual value.
    """

    program: SmoothProgram
    _loss: ClassVar[Callable[..., SmoothProgram]]
    can_be_subsampled = False
    has_box = False
    has_one_slack = False

    def __init__(
        self, time: AnyArray, event: AnyArray, C: float = 1.0, sample_weight: Array | None = None
    ) -> None:
        weight = np.ones(len(time)) if sample_weight is None else sample_weight
        self.program = type(self)._loss(time, event, weight, check_C(C))

    def solve(
        self, K: ArrayOrTensor, warm_start: Array | None = None, tol: float = 1e-3
    ) -> SmoothSolution:
        """Return the solution for a kernel; the last digits cost one Newton step more, since these
        converge fast."""
        return solve_smooth(as_gram(K), self.program, warm_start, min(tol, 1e-6))

    def linear_value(self, solution: Any) -> float:
        return self.program.linear_value(solution.point)

    def linear_bound(self, solution: Any) -> float:
        return self.program.linear_bound(solution.point)


class Cox(SmoothMachine):
    """Proportional hazards: min ½‖w‖² − C log PL(f), the partial likelihood of log hazards −f, ties
    by Efron.

    The larger f(x), the longer the survival. A constant added to f changes nothing: there is no
    intercept.

    Parameters
    ----------
    time, event : array of shape (n,)
        Times, and whether each is that of the event; else it is that of censoring.
    C : float
        Factor of the likelihood.
    sample_weight : array of shape (n,), optional
        How often each sample counts.

    References
    ----------
    Cox (1972), "Regression models and life-tables"; Efron (1977), "The efficiency of Cox's
    likelihood function for censored data".
    """

    _loss = PartialLikelihood


class Ranking(SmoothMachine):
    """Ranking: min ½‖w‖² + (C / N) Σ max(0, 1 − (f(xⱼ) − f(xᵢ)))² over the pairs in which j
    outlives the event of i.

    Parameters
    ----------
    time, event, C, sample_weight
        As in `Cox`; N is the sum of the weights.

    References
    ----------
    Pölsterl, Navab and Katouzian (2015), "Fast training of support vector machines for survival
    analysis".
    """

    _loss = OrderedPairs
