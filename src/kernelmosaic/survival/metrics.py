"""How well survival is predicted: concordance and Brier score of samples whose times may be
censored.

``y`` is in every form that :meth:`kernelmosaic.MKLSurvival.fit` takes, and predictions are the
larger the longer the survival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from kernelmosaic._checks import warn_caller
from kernelmosaic._typing import AnyArray, Array, SampleWeight, TargetLike
from kernelmosaic.backend import to_host
from kernelmosaic.survival.machine import outlived

__all__ = [
    "StepFunction",
    "brier_score",
    "concordance_index",
    "integrated_brier_score",
    "kaplan_meier",
    "uno_concordance_index",
]

#: Step functions, or their values at the times of interest, of shape (n, n_times).
Curves = Any
#: Fraction of the samples' weight up to whose times the Brier score is integrated by default. A
#: convention: later times have few samples left.
_INTEGRATED_WEIGHT = 0.8

_FORMS = (
    "give a structured array of booleans, whether the event was observed, and times, as"
    " scikit-survival's Surv.from_arrays(event, time); or two columns, event and time; or times"
    " alone if all events were observed; times of entry (left truncation) are not served"
)


# Concordance --------------------------------------------------------------------------------------


def concordance_index(
    y: TargetLike, predicted: ArrayLike, *, sample_weight: SampleWeight = None
) -> float:
    """Return Harrell's concordance: the share of the comparable pairs of samples that are predicted
    in order.

    Parameters
    ----------
    y : structured array or array-like
        Events and times.
    predicted : array-like of shape (n,)
        Predictions that are larger for longer times; equal ones count half.
    sample_weight : array-like of shape (n,), optional
        How much each sample counts; a pair counts the product of both.

    Examples
    --------
    >>> from kernelmosaic.metrics import concordance_index
    >>> concordance_index([[1, 2.0], [0, 3.0], [1, 5.0]], [1.0, 2.0, 1.5])
    1.0
    """
    return concordance(read_times(y), predicted, sample_weight)


def uno_concordance_index(
    y_train: TargetLike, y: TargetLike, predicted: ArrayLike, *, tau: float | None = None
) -> float:
    """Return Uno's concordance, in which a pair counts 1 / G(t)², G being the share not yet
    censored at its event.

    Parameters
    ----------
    y_train : structured array or array-like
        Events and times from which G is estimated.
    y : structured array or array-like
        Events and times of the samples predicted.
    predicted : array-like of shape (n,)
        Predictions that are larger for longer times.
    tau : float, optional
        Events from this time on do not count.

    Returns
    -------
    float
        NaN, with a warning, where G is zero at an event that another sample outlives.

    References
    ----------
    Uno, Cai, Pencina, D'Agostino and Wei (2011), "On the C-statistics for evaluating overall
    adequacy of risk prediction procedures with censored survival data".

    Examples
    --------
    >>> from kernelmosaic.metrics import uno_concordance_index
    >>> y = [[1, 2.0], [0, 3.0], [1, 5.0]]
    >>> uno_concordance_index(y, y, [1.0, 2.0, 1.5], tau=4.0)
    1.0
    """
    held_out = read_times(y)
    has_event = held_out[:, 0] > 0
    time = held_out[:, 1]
    last_time = np.inf if tau is None else tau
    is_counted = has_event & (time < last_time)
    inverse = _inverse_uncensored(read_times(y_train), time)
    stage = outlived(time, has_event)
    # Only events that another sample outlives are compared.
    is_undefined = is_counted & np.isinf(inverse) & (stage < stage.max(initial=0))
    if is_undefined.any():
        _warn_of_censoring("Uno's concordance", time[is_undefined].min(), "tau")
        return float("nan")
    factor = np.where(is_counted & np.isfinite(inverse), inverse, 0.0) ** 2
    return concordance(held_out, predicted, factor=factor)


def concordance(
    y: Array, predicted: ArrayLike, sample_weight: SampleWeight = None, factor: Any = 1.0
) -> float:
    """Return Harrell's concordance of predictions that are larger for longer times.

    NaN, with a warning, if no pair of samples is comparable.

    Parameters
    ----------
    y : ndarray of shape (n, 2)
        Events and times.
    predicted : array of shape (n,)
        The predictions.
    sample_weight : array of shape (n,), optional
        How much each sample counts.
    factor : float or array of shape (n,), default=1.0
        Factors of pairs, by the sample that has the earlier event.
    """
    has_event = y[:, 0] > 0
    time = y[:, 1]
    predicted = np.asarray(predicted)
    weight = _weights(sample_weight, len(y))
    check_consistent_length(y, predicted, weight)
    event_weight = weight * factor
    stage = outlived(time, has_event)
    rank = np.unique(predicted, return_inverse=True)[1]
    # The order of the predictions, which a stable sort by groups keeps within each group.
    order = np.argsort(rank, kind="stable")
    concordant = 0.0
    comparable = 0.0
    # The highest bit in which two stages differ decides which is later. For each bit, samples whose
    # higher bits agree are a group, and those with the bit have the later stage. So every
    # comparable pair is visited once, in few passes over the samples.
    for bit in range(int(stage.max(initial=0)).bit_length()):
        samples = order[np.argsort(stage[order] >> (bit + 1), kind="stable")]
        group = stage[samples] >> (bit + 1)
        is_later = (stage[samples] >> bit) & 1 == 1
        later_weight = np.append(0.0, np.cumsum(np.where(is_later, weight[samples], 0.0)))
        # The bounds of every sample's group, and of the equal predictions in it.
        key = group * len(y) + rank[samples]
        first = np.searchsorted(group, group, side="left")
        last = np.searchsorted(group, group, side="right")
        below = np.searchsorted(key, key, side="left")
        above = np.searchsorted(key, key, side="right")
        pair_weight = np.where(has_event[samples] & ~is_later, event_weight[samples], 0.0)
        comparable += float(pair_weight @ (later_weight[last] - later_weight[first]))
        # Pairs of equal predictions count one half.
        middle = 0.5 * (later_weight[above] + later_weight[below])
        concordant += float(pair_weight @ (later_weight[last] - middle))
    if not comparable > 0:
        warn_caller(
            "The concordance is not defined: no two samples are comparable, since none was observed"
            " to have its event while another was at risk.",
            UndefinedMetricWarning,
        )
        return float("nan")
    return concordant / comparable


def _weights(sample_weight: SampleWeight, n: int) -> Array:
    """Return the weights of n samples as doubles; None means ones."""
    if sample_weight is None:
        return np.ones(n)
    return np.asarray(sample_weight, dtype=np.float64)


# Survival functions -------------------------------------------------------------------------------


class StepFunction:
    """A function that is constant between points, with the interface of scikit-survival's.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        The points, in ascending order.
    y : ndarray of shape (n_points,)
        The value from each point up to the next; before the first it is that of the first.

    Examples
    --------
    >>> from kernelmosaic.metrics import StepFunction
    >>> StepFunction([1.0, 2.0], [0.8, 0.3])([0.5, 1.5, 2.0]).tolist()
    [0.8, 0.8, 0.3]
    """

    def __init__(self, x: AnyArray, y: AnyArray) -> None:
        self.x = np.asarray(x)
        self.y = np.asarray(y)
        self.domain = (0.0, float(self.x[-1]))

    def __call__(self, x: ArrayLike) -> Any:
        """Return the values at points from 0 to the last."""
        points = np.asarray(x, dtype=np.float64)
        if not np.all((points >= 0) & (points <= self.domain[1])):
            raise ValueError(f"x must be within [0; {self.domain[1]:f}]")
        values = self.y[np.maximum(np.searchsorted(self.x, points, side="right") - 1, 0)]
        return float(values) if values.ndim == 0 else values

    def __repr__(self) -> str:
        return f"StepFunction(x={self.x!r}, y={self.y!r})"


def kaplan_meier(
    time: AnyArray, event: AnyArray, weight: Array | None = None, *, reverse: bool = False
) -> tuple[Array, Array]:
    """Return the distinct times in order, and the Kaplan–Meier estimate at each.

    The estimate is the fraction of samples that survives the time.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Times, and whether each is that of the event.
    weight : array of shape (n,), optional
        How much each sample counts.
    reverse : bool, default=False
        Whether to estimate the fraction that is not yet censored instead; events come before the
        censoring of the same time.

    Examples
    --------
    >>> from kernelmosaic.metrics import kaplan_meier
    >>> times, share = kaplan_meier([1.0, 2.0, 3.0, 3.0], [1, 0, 1, 0])
    >>> share.tolist()
    [0.75, 0.75, 0.375]
    """
    weight = np.ones(len(time)) if weight is None else weight
    times, time_number = np.unique(time, return_inverse=True)
    # The weights that are at risk, that have the event and that are censored at every time.
    at_risk = np.bincount(time_number, weights=weight)[::-1].cumsum()[::-1]
    died = np.bincount(time_number, weights=weight * (np.asarray(event) == 1))
    censored = np.bincount(time_number, weights=weight * (np.asarray(event) == 0))
    leaving = died
    if reverse:
        at_risk = at_risk - died
        leaving = censored
    rates = np.divide(leaving, at_risk, out=np.zeros(len(times)), where=leaving > 0)
    return times, np.cumprod(1.0 - rates)


def share_at(y: Array, points: Any, *, reverse: bool = False) -> Array:
    """Return the Kaplan–Meier estimate at any times.

    Parameters
    ----------
    y : ndarray of shape (n, 2)
        Events and times from which it is estimated.
    points : float or array
        The times.
    reverse : bool
        Whether to estimate the fraction that is not yet censored.
    """
    times, survivors = kaplan_meier(y[:, 1], y[:, 0], reverse=reverse)
    n_before = np.searchsorted(times, points, side="right")
    return np.asarray(np.append(1.0, survivors)[n_before])


def _inverse_uncensored(y_train: Array, points: Array, weight: Array | None = None) -> Array:
    """Return 1 / G at times, where G is the fraction not yet censored; infinity where G is zero."""
    times, uncensored = kaplan_meier(y_train[:, 1], y_train[:, 0], weight, reverse=True)
    G = np.append(1.0, uncensored)[np.searchsorted(times, points, side="right")]
    return np.asarray(np.divide(1.0, G, out=np.full(len(G), np.inf), where=G > 0))


def _warn_of_censoring(score: str, time: float, parameter: str) -> None:
    """Warn that a score is not defined from a time on, since all training samples are censored."""
    warn_caller(
        f"{score} is not defined from time {time:g} on: no sample of y_train is still uncensored"
        f" there, so that what it is weighted by is infinite; give smaller {parameter}, or a"
        " y_train that is followed longer.",
        UndefinedMetricWarning,
    )


def brier_score(
    y_train: TargetLike,
    y: TargetLike,
    survival: Curves,
    times: ArrayLike,
    *,
    sample_weight: SampleWeight = None,
    train_weight: SampleWeight = None,
) -> Array:
    """Return the Brier score: the mean squared error of survival functions at times.

    Errors are weighted by the inverse probability of censoring.

    Where the event of a sample came by time t, at t_i, it adds S(t)² / G(t_i); where it was still
    under observation, (1 − S(t))² / G(t); where it was censored before, nothing.

    Parameters
    ----------
    y_train : structured array or array-like
        Events and times from which G, the share not yet censored, is estimated.
    y : structured array or array-like
        Events and times of the samples predicted.
    survival : array-like of shape (n, n_times), or sequence of step functions
        S at the times, or functions of the time, as
        :meth:`kernelmosaic.MKLSurvival.predict_survival_function` returns them; after its last
        point a step function keeps its value.
    times : array-like of shape (n_times,)
        The times.
    sample_weight : array-like of shape (n,), optional
        How much each sample counts in the mean.
    train_weight : array-like of shape (n_train,), optional
        How much each sample of `y_train` counts in G.

    Returns
    -------
    ndarray of shape (n_times,)
        NaN, with a warning, at times for which G is zero where a sample needs it.

    References
    ----------
    Graf, Schmoor, Sauerbrei and Schumacher (1999), "Assessment and comparison of prognostic
    classification schemes for survival data".

    Examples
    --------
    >>> from kernelmosaic.metrics import brier_score
    >>> y = [[1, 2.0], [1, 3.0]]
    >>> brier_score(y, y, [[0.2], [0.7]], [2.5]).round(3).tolist()
    [0.065]
    """
    times = np.atleast_1d(np.asarray(times, dtype=np.float64))
    scores = _brier_scores(
        read_times(y_train), read_times(y), survival, times, sample_weight, train_weight
    )
    if np.isnan(scores).any():
        _warn_of_censoring("The Brier score", times[np.isnan(scores)].min(), "times")
    return scores


def _brier_scores(
    train: Array,
    held: Array,
    survival: Curves,
    times: Array,
    sample_weight: SampleWeight,
    train_weight: SampleWeight,
) -> Array:
    """Return the Brier scores at times, NaN where they are not defined."""
    S = survival
    if isinstance(S, Sequence | np.ndarray) and len(S) and callable(S[0]):
        # Behind its last point a step function keeps its value.
        S = [function(np.minimum(times, function.domain[1])) for function in S]
    S = np.asarray(S, dtype=np.float64)
    if S.shape != (len(held), len(times)):
        raise ValueError(
            f"survival has shape {S.shape}: give a row for each of {len(held)} samples and"
            f" {len(times)} times."
        )
    sample_weight = _weights(sample_weight, len(held))
    if train_weight is not None:
        train_weight = np.asarray(train_weight, dtype=np.float64)
    has_event = held[:, :1] > 0
    time = held[:, 1:]
    # Arrays of shape (n, n_times): samples whose event has come weigh 1 / G(t_i), those under
    # observation 1 / G(t), those censored before nothing.
    is_over = (time <= times) & has_event
    inverse_at_events = _inverse_uncensored(train, held[:, 1], train_weight)
    weight = np.where(is_over, inverse_at_events[:, np.newaxis], 0.0)
    weight = np.where(time > times, _inverse_uncensored(train, times, train_weight), weight)
    weight[sample_weight == 0] = 0.0
    is_infinite = np.isinf(weight)
    squares = np.where(is_over, S, 1.0 - S) ** 2
    finite_weight = np.where(is_infinite, 0.0, weight)
    scores = np.average(finite_weight * squares, axis=0, weights=sample_weight)
    return np.where(is_infinite.any(axis=0), np.nan, scores)


def integrated_brier_score(
    y_train: TargetLike,
    y: TargetLike,
    survival: Curves,
    times: ArrayLike | None = None,
    *,
    sample_weight: SampleWeight = None,
    train_weight: SampleWeight = None,
) -> float:
    """Return the mean of the Brier score over a range of times, by the trapezoidal rule.

    Parameters
    ----------
    y_train, y, survival
        As in :func:`brier_score`.
    times : array-like of shape (n_times,), optional
        At least two times, in ascending order; by default those of `y` up to the first that comes
        after more than 80 % of them, and before the first at which the score is not defined, for
        which `survival` must be step functions.
    sample_weight : array-like of shape (n,), optional
        As in :func:`brier_score`; by default times are those of 80 % of the weight.
    train_weight : array-like of shape (n_train,), optional
        As in :func:`brier_score`.

    Returns
    -------
    float
        NaN, with a warning, where the score is not defined at one of the times given, or at all but
        one by default.

    Examples
    --------
    >>> from kernelmosaic.metrics import integrated_brier_score
    >>> y = [[1, 2.0], [1, 3.0]]
    >>> round(integrated_brier_score(y, y, [[0.2, 0.1], [0.7, 0.2]], [2.5, 2.9]), 4)
    0.195
    """
    train = read_times(y_train)
    held = read_times(y)
    if times is None:
        points = usual_times(held, sample_weight)
    else:
        points = np.asarray(times, dtype=np.float64)
    if points.ndim != 1 or len(points) < 2 or np.any(np.diff(points) <= 0):
        raise ValueError(f"times={points!r}: give at least two times, in ascending order.")
    scores = _brier_scores(train, held, survival, points, sample_weight, train_weight)
    undefined = np.flatnonzero(np.isnan(scores))
    if len(undefined) and times is None and undefined[0] >= 2:
        n_defined = undefined[0]
        points = points[:n_defined]
        scores = scores[:n_defined]
    elif len(undefined):
        _warn_of_censoring("The Brier score", points[undefined[0]], "times")
    return float(trapezoid(scores, points) / (points[-1] - points[0]))


def usual_times(y: Array, weight: SampleWeight = None) -> Array:
    """Return the distinct times over which the Brier score is integrated by default.

    They are the times of samples up to the first that comes after more than 80 % of their weight.
    """
    sample_weight = _weights(weight, len(y))
    is_counted = sample_weight > 0
    times, time_number = np.unique(y[is_counted, 1], return_inverse=True)
    time_weight = np.bincount(time_number, sample_weight[is_counted])
    weight_before = np.cumsum(time_weight) - time_weight
    limit = _INTEGRATED_WEIGHT * sample_weight.sum()
    return np.asarray(times[: np.searchsorted(weight_before, limit, side="right") + 1])


# Times in every form ------------------------------------------------------------------------------


def read_times(y: TargetLike) -> Array:
    """Return events (1 if observed, else 0) and times as doubles, of shape (n, 2).

    Raises a ValueError that says what is wrong with y.

    Parameters
    ----------
    y : structured array, two columns or vector
        A truth value and a number per sample; the event and the time; or the times of events.
    """
    y = to_host(y)
    if getattr(y, "dtype", None) is not None and getattr(y.dtype, "names", None):
        event, time = _read_fields(y)
    else:
        event, time = _read_columns(np.asarray(y))
    time = check_array(
        time, ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0
    )
    negative = np.flatnonzero(time < 0)
    if len(negative):
        i = negative[0]
        raise ValueError(
            f"y: the time of sample {i} is {time[i]:g}; times must not be negative:"
            " leave such samples out, or count times from an earlier date."
        )
    return np.column_stack([event, time]).astype(np.float64)


def _read_columns(table: AnyArray) -> tuple[Array, Array]:
    """Return the events and the times of two columns, or of a vector of times of events."""
    if table.ndim == 2 and table.shape[1] == 2:
        event, time = check_array(table, dtype=np.float64, input_name="y", ensure_min_samples=0).T
        is_wrong = (event != 0) & (event != 1)
        if is_wrong.any():
            question = ""
            if np.all((time == 0) | (time == 1)):
                question = " Are the columns in the other order?"
            raise ValueError(
                f"y: its first column holds {event[is_wrong][0]:g}, not 0 or 1: the columns are the"
                f" event and the time.{question}"
            )
        return event, time
    if table.ndim == 1 or table.shape[1:] == (1,):
        time = column_or_1d(table, warn=True)
        if time.dtype == object and len(time) and isinstance(time[0], tuple | np.void):
            raise ValueError(f"y holds {time[0]!r}: {_FORMS}.")
        return np.ones(len(time)), time
    raise ValueError(f"y has shape {table.shape}: {_FORMS}.")


def _read_fields(y: AnyArray) -> tuple[Array, Array]:
    """Return the events and the times of a structured array: a truth value and a number."""
    names = y.dtype.names or ()
    kinds = [y.dtype[name].kind for name in names]
    has_both = "b" in kinds and bool(set(kinds) & set("fiu"))
    if y.ndim != 1 or len(names) != 2 or not has_both:
        fields = ", ".join(f"{name}: {y.dtype[name]}" for name in names)
        raise ValueError(f"y is a structured array of the fields ({fields}): {_FORMS}.")
    event_field = kinds.index("b")
    time_field = 1 - event_field
    return y[names[event_field]].astype(np.float64), y[names[time_field]]
