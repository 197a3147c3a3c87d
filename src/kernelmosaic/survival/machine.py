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

#: The largest number of terms of Efron's sum over the events of one time; more events are
#: represented by as many terms. Chosen by hand.
_MAX_TERMS = 1000
#: The largest number of pairs of an event with another sample that a ranking stores; an array of
#: as many doubles takes 400 MB.
_MAX_PAIRS = 50_000_000
#: Numbers below this are treated as zero, since the square of the inverse would overflow.
_TINY = 1e-290


def outlived(time: AnyArray, event: AnyArray) -> Indices:
    """Return stages: a sample outlives an event if and only if its stage is later.

    Events come before the censoring of the same time, and two events of one time have no order.
    """
    return np.asarray(2 * np.unique(time, return_inverse=True)[1] + ~np.asarray(event, dtype=bool))


class Survival(SVR):
    """Censored regression: min ½‖w‖² + Σ Cᵢ lᵢ(f(xᵢ)) on logarithms yᵢ of times.

    Where the event was observed, lᵢ(f) = max(0, |yᵢ − f| − ε), as in `SVR`. The event of a censored
    sample comes later than its time, so its loss is lᵢ(f) = max(0, yᵢ − f − ε), and its coefficient
    is not negative. With ``slack=2`` the excess is squared: min ‖w‖² + Σ Cᵢ lᵢ².

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
        has_event = np.asarray(event, dtype=bool)
        lower = np.where(has_event, self.program.lower, 0.0)
        self.program = replace(self.program, lower=lower)


class PartialLikelihood(SmoothProgram):
    """−C times the logarithm of Cox's partial likelihood, with Efron's terms for ties.

    The log hazards are −f, and the risk of a sample is rⱼ = wⱼ exp(−fⱼ). At a time with events, let
    S be the sum of the risks of samples under observation, D that of the samples which have their
    event then, and d the weight of the latter. The time adds Σ_{l < d} log(S − (l / d) D) + Σ w f,
    whose last sum is over its events.

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
        has_event = np.asarray(event, dtype=bool) & (weight > 0)
        event_times = np.unique(np.asarray(time)[has_event])
        n_times = len(event_times)
        # 1. Samples in the order of the last event time at which they are at risk; samples that
        #    are at risk at none are left out. `last` are the numbers of these event times, `starts`
        #    the first sample of each.
        n_at_risk = np.searchsorted(event_times, time, side="right")
        rows = np.flatnonzero((n_at_risk > 0) & (weight > 0))
        self.rows = rows[np.argsort(n_at_risk[rows], kind="stable")]
        self.last = n_at_risk[self.rows] - 1
        self.starts = np.searchsorted(self.last, np.arange(n_times))
        row_weight = weight[self.rows]
        self.log_weight = np.log(row_weight)
        # 2. The positions of samples with an event among these, the first of each event time, and
        #    the factor of the output of each in the loss.
        self.events = np.flatnonzero(has_event[self.rows])
        self.event_starts = np.searchsorted(self.last[self.events], np.arange(n_times))
        self.event_factor = C * row_weight[self.events]
        # 3. Efron's terms: the event time of each, its fraction l / d and its factor. The fractions
        #    are equally spaced from 0 to (d − 1) / d; they are l / d where d is a whole number.
        count = np.add.reduceat(row_weight[self.events], self.event_starts)
        n_terms = np.clip(np.ceil(count), 1, _MAX_TERMS).astype(np.intp)
        self.term_time = np.repeat(np.arange(n_times), n_terms)
        self.term_starts = np.concatenate([[0], np.cumsum(n_terms)[:-1]])
        number = np.arange(len(self.term_time)) - self.term_starts[self.term_time]
        last_fraction = np.maximum((count - 1.0) / count, 0.0)
        steps = np.maximum(n_terms - 1, 1)[self.term_time]
        self.fraction = (number / steps) * last_fraction[self.term_time]
        self.factor = (C * count / n_terms)[self.term_time]

    def _sums(self, values: Vector) -> tuple[Vector, Vector]:
        """Return the logarithms of the risks, and those of the denominators S − (l / d) D."""
        log_risk = self.log_weight - values[self.rows]
        log_S = np.logaddexp.accumulate(np.logaddexp.reduceat(log_risk, self.starts)[::-1])[::-1]
        log_D = np.logaddexp.reduceat(log_risk[self.events], self.event_starts)
        ratio = np.exp(np.minimum(log_D - log_S, 0.0))[self.term_time]
        return log_risk, log_S[self.term_time] + np.log1p(-self.fraction * ratio)

    def loss_at(self, values: Vector) -> LossPoint:
        log_risk, log_denominator = self._sums(values)
        value = float(
            self.factor @ log_denominator + self.event_factor @ values[self.rows][self.events]
        )
        with np.errstate(divide="ignore"):
            # The fraction of the first term of a time is zero, and its logarithm −∞.
            log_terms = np.log(self.factor) - log_denominator
            log_parts = np.log(self.factor * self.fraction) - log_denominator
            log_hazard = np.logaddexp.reduceat(log_terms, self.term_starts)
            log_less = np.logaddexp.reduceat(log_parts, self.term_starts)
        # The number of events that are expected of each sample, up to its own time.
        expected = np.exp(log_risk + np.logaddexp.accumulate(log_hazard)[self.last])
        expected[self.events] -= np.exp(log_risk[self.events] + log_less[self.last[self.events]])
        gradient = np.zeros(self.n_samples)
        gradient[self.rows] = -expected
        gradient[self.rows[self.events]] += self.event_factor
        multiply_hessian = partial(self._multiply_hessian, log_risk, log_denominator, expected)
        return LossPoint(value, gradient, multiply_hessian)

    def _multiply_hessian(
        self, log_risk: Vector, log_denominator: Vector, expected: Vector, V: Array
    ) -> Array:
        """Return the product of the Hessian with vectors V.

        The Hessian is Σ factor · (diag p − ppᵀ) over the terms, where p are the fractions that the
        risks of samples have of the denominator.
        """
        columns = V.reshape(len(V), -1)[self.rows]
        # All risks are divided by the largest, which cancels in p.
        top = float(log_risk.max())
        risk = np.exp(log_risk - top)
        denominator = np.exp(log_denominator - top)
        usable = np.maximum(denominator, _TINY)
        inverse = np.where(denominator > _TINY, 1.0 / usable, 0.0)[:, np.newaxis]
        products = risk[:, np.newaxis] * columns
        S = np.add.reduceat(products, self.starts)[::-1].cumsum(axis=0)[::-1]
        D = np.add.reduceat(products[self.events], self.event_starts)
        fraction = self.fraction[:, np.newaxis]
        sums = S[self.term_time] - fraction * D[self.term_time]
        # The inverses are multiplied one after the other: the square of a large one overflows.
        mean = self.factor[:, np.newaxis] * sums * inverse * inverse
        total = np.add.reduceat(mean, self.term_starts).cumsum(axis=0)[self.last]
        event_means = np.add.reduceat(fraction * mean, self.term_starts)
        total[self.events] -= event_means[self.last[self.events]]
        out = np.zeros((self.n_samples, columns.shape[1]))
        out[self.rows] = expected[:, np.newaxis] * columns - risk[:, np.newaxis] * total
        return out.reshape(V.shape)

    def loss_bound(self, values: Vector, error: float) -> float:
        """Return an upper bound of the loss where every output may be off by `error`.

        An event's term changes by at most that error in a weighted mean and in an output.
        """
        return self.loss_at(values).value + 2.0 * float(self.factor.sum()) * error

    def loss_size(self, values: Vector) -> float:
        log_denominator = np.abs(self._sums(values)[1])
        outputs_of_events = np.abs(values[self.rows][self.events])
        return float(self.factor @ log_denominator + self.event_factor @ outputs_of_events)


class OrderedPairs(SmoothProgram):
    """(C / N) Σ wᵢ wⱼ max(0, 1 − (fⱼ − fᵢ))² with N = Σ w.

    The sum is over the pairs in which sample j outlives the event of sample i.

    Parameters
    ----------
    time, event, weight, C
        As in `PartialLikelihood`.
    """

    def __init__(self, time: AnyArray, event: AnyArray, weight: Array, C: float) -> None:
        super().__init__(weight)
        self.first = np.flatnonzero(np.asarray(event, dtype=bool) & (weight > 0))
        if len(self.first) * self.n_samples > _MAX_PAIRS:
            raise MemoryError(
                f"loss='rank' would compare {len(self.first)} events with {self.n_samples} samples,"
                f" and keeps up to {_MAX_PAIRS:.0e} pairs in memory: use loss='cox' or 'censored',"
                " or fewer samples."
            )
        stage = outlived(time, event)
        is_later = stage > stage[self.first][:, np.newaxis]
        pair_weight = np.where(is_later, np.outer(weight[self.first], weight), 0.0)
        self.factor = (C / weight.sum()) * pair_weight

    def _shortfall(self, values: Vector, margin: float = 1.0) -> Array:
        """Return by how much each pair misses its margin, of shape (events, n)."""
        return np.maximum(margin - values + values[self.first][:, np.newaxis], 0.0)

    def loss_at(self, values: Vector) -> LossPoint:
        shortfall = self._shortfall(values)
        pair_gradient = 2.0 * self.factor * shortfall
        gradient = -pair_gradient.sum(axis=0)
        gradient[self.first] += pair_gradient.sum(axis=1)
        value = 0.5 * float(np.vdot(pair_gradient, shortfall))
        # Computed at the first product with the Hessian only.
        curvature = cache(lambda: 2.0 * self.factor * (shortfall > 0))
        return LossPoint(value, gradient, partial(self._multiply_hessian, curvature))

    def _multiply_hessian(self, curvature: Callable[[], Array], V: Array) -> Array:
        """Return the product of the Hessian with vectors V.

        `curvature` returns 2 (C / N) wᵢ wⱼ for the pairs that miss their margin, and zero for
        others, of shape (events, n).
        """
        H = curvature()
        columns = V.reshape(len(V), -1)
        out = H.sum(axis=0)[:, np.newaxis] * columns - H.T @ columns[self.first]
        out[self.first] += H.sum(axis=1)[:, np.newaxis] * columns[self.first] - H @ columns
        return np.asarray(out.reshape(V.shape))

    def loss_bound(self, values: Vector, error: float) -> float:
        """Return an upper bound of the loss where every output may be off by `error`."""
        return float(np.vdot(self.factor, self._shortfall(values, 1.0 + 2.0 * error) ** 2))

    def loss_size(self, values: Vector) -> float:
        return self.loss_bound(values, 0.0)


class SmoothMachine(Machine):
    """A machine min ½‖w‖² + L(f) with a smooth loss L that joins samples.

    A constant added to f does not change the loss. The coefficients are minus its gradient,
    β = −∇L; the outputs at which the gradient is taken prove the dual value.
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
        """Return the solution for a kernel, to a relative gap of 1e-6 or less.

        Newton steps converge fast, so that the last digits cost one step more.
        """
        return solve_smooth(as_gram(K), self.program, warm_start, min(tol, 1e-6))

    def linear_value(self, solution: Any) -> float:
        return self.program.linear_value(solution.point)

    def linear_bound(self, solution: Any) -> float:
        return self.program.linear_bound(solution.point)


class Cox(SmoothMachine):
    """Proportional hazards: min ½‖w‖² − C log PL(f).

    PL is the partial likelihood of log hazards −f, with Efron's terms for ties. The larger f(x),
    the longer the survival. A constant added to f changes nothing: there is no intercept.

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
    """Ranking: min ½‖w‖² + (C / N) Σ max(0, 1 − (f(xⱼ) − f(xᵢ)))².

    The sum is over the pairs in which sample j outlives the event of sample i.

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
