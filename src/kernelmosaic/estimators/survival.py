"""Survival with one weight per kernel: times until an event, some of which are known from below only."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from kernelmosaic._typing import AnyArray, MatrixLike, SampleWeight, TargetLike
from kernelmosaic.backend import to_host
from kernelmosaic.estimators._base import WeightedMKL, parameters
from kernelmosaic.estimators._input import FitInput
from kernelmosaic.estimators._path import PathRule
from kernelmosaic.kernels.base import refuse_text
from kernelmosaic.machines import Machine, Survival

Array = NDArray[np.float64]

_FORMS = (
    "give a structured array of booleans, whether the event was observed, and times, as scikit-survival's "
    "Surv.from_arrays(event, time); or two columns, event and time; or times alone if all events were observed"
)


def observed(y: Array) -> NDArray[np.int64]:
    """Return whether each event was observed."""
    return y[:, 0].astype(np.int64)


def concordance(y: Array, predicted: Any, sample_weight: SampleWeight = None) -> float:
    """Return Harrell's concordance of predictions that are larger for longer times; NaN if no pair is comparable.

    Parameters
    ----------
    y : ndarray of shape (n, 2)
        Events and times.
    predicted : array of shape (n,)
        The predictions.
    sample_weight : array of shape (n,), optional
        How much each sample counts.
    """
    event, time = y[:, 0] > 0, y[:, 1]
    predicted = np.asarray(predicted)
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    check_consistent_length(y, predicted, weight)
    # Sample j outlives i, whose event was observed, just if its stage is the later: events come before the censoring of
    # the same time, and two events of one time have no order.
    stage = 2 * np.unique(time, return_inverse=True)[1] + ~event
    rank = np.unique(predicted, return_inverse=True)[1]
    # In order of the predictions, which a stable sort by groups keeps within each.
    order = np.argsort(rank, kind="stable")
    right = pairs = 0.0
    # Two stages differ first, from the top, in one bit: for each bit, samples that agree above it are a group, and
    # those with the bit have the later stage. So every comparable pair is met once, in few passes over the samples.
    for bit in range(int(stage.max(initial=0)).bit_length()):
        at = order[np.argsort(stage[order] >> (bit + 1), kind="stable")]
        group, later = stage[at] >> (bit + 1), (stage[at] >> bit) & 1 == 1
        outlives = np.append(0.0, np.cumsum(np.where(later, weight[at], 0.0)))
        key = group * len(y) + rank[at]
        first, last = (np.searchsorted(group, group, side=side) for side in ("left", "right"))
        below, above = (np.searchsorted(key, key, side=side) for side in ("left", "right"))
        own = np.where(event[at] & ~later, weight[at], 0.0)
        pairs += float(own @ (outlives[last] - outlives[first]))
        right += float(own @ (outlives[last] - 0.5 * (outlives[above] + outlives[below])))
    if not pairs > 0:
        warnings.warn(
            "The concordance is not defined: no two samples are comparable, since none was observed to have its event "
            "while another lived on.",
            UndefinedMetricWarning,
            stacklevel=3,
        )
        return float("nan")
    return right / pairs


@parameters
class MKLSurvival(RegressorMixin, WeightedMKL):
    """Survival times by support vector regression on a weighted sum of kernels, with censored samples.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + C Σ l_i over f(x) = Σ_m ⟨w_m, φ_m(x)⟩ + b, which predicts the logarithm of the time.
    Where the event was observed at time t_i, the loss is l_i = max(0, |log t_i − f(x_i)| − ε). Where the sample was
    censored then, the event comes later: l_i = max(0, log t_i − f(x_i) − ε), and predicting a longer time costs
    nothing. The problem is convex, and solved to a certified gap.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    C : float, default=1.0
        Factor of the loss.
    epsilon : float, default=0.1
        Half-width ε of the tube in which errors are free, on the scale of log t: 0.1 is about 10 % of the time.
    norm, l1_ratio, weights, penalties, penalty_power, solver, normalize, approximation, rank, missing
        As in :class:`MKLClassifier`.
    slack : {1, 2}, default=1
        Norm of the loss: with 2 the objective is (Σ_m d_m ‖w_m‖)² + C Σ l_i².
    tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        As in :class:`MKLClassifier`; the coefficients of censored samples are not negative.
    objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`MKLClassifier`.

    References
    ----------
    Shivaswamy, Chu and Jansche (2007), "A support vector approach to censored targets".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLSurvival
    >>> rng = np.random.RandomState(0)
    >>> X = rng.randn(100, 3)
    >>> time, limit = np.exp(X[:, 0] + 0.1 * rng.randn(100)), rng.exponential(3, 100)
    >>> y = np.column_stack([time <= limit, np.minimum(time, limit)])  # event, time
    >>> model = MKLSurvival().fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _: KW_ONLY
    C: float = 1.0
    epsilon: float = 0.1

    _path_rule: ClassVar[PathRule | None] = PathRule(range=(1e-3, 1e2), strata=observed, score=concordance)

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples and their times.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : structured array of shape (n_samples,), or array-like of shape (n_samples, 2) or (n_samples,)
            Whether the event was observed, and the time of the event or of censoring, which is positive: a structured
            array of a boolean and a number, as scikit-survival has it; or two columns, the event (0 or 1) and the time.
            A vector of times says that all events were observed.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, sample by sample.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            # Without y it is scikit-learn that says so.
            times = y if y is None else read_times(y)
        given = self._read_input(X, times, sample_weight=sample_weight, y_numeric=True, multi_output=True)
        event = given.y[:, 0]
        if not np.any(event if given.weight is None else event * given.weight):
            raise ValueError(
                "y: no event was observed, all times are censored, and nothing bounds a prediction from above; "
                f"{type(self).__name__} needs at least one sample with its event."
            )
        return given

    def _machines(self, y: Array, weight: Array) -> list[Machine]:
        return [Survival(np.log(y[:, 1]), y[:, 0], self.C, self.epsilon, self.slack, weight)]

    def predict(self, X: MatrixLike) -> Array:
        """Return the predicted logarithm of the time: the larger, the longer the survival; ``np.exp`` of it is a time.

        Beside a risk, which other libraries predict, it has the opposite sign.
        """
        return self._predictions(self._outputs(X))

    def _predictions(self, outputs: Array) -> Array:
        return outputs[:, 0]

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return Harrell's concordance: the share of the comparable pairs of samples that are predicted in order.

        Two samples are comparable if the one with the shorter time had its event then: its prediction should be the
        smaller. Equal predictions count half. Guessing has a concordance of 0.5, and the true order one of 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : structured array or array-like
            Their events and times, as in `fit`.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts; a pair counts the product of both.

        Returns
        -------
        float
        """
        return concordance(read_times(y), self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def read_times(y: TargetLike) -> Array:
    """Return events (1 if observed, else 0) and positive times, of shape (n, 2), or raise saying what is wrong."""
    y = to_host(y)
    if getattr(y, "dtype", None) is not None and getattr(y.dtype, "names", None):
        event, time = _read_fields(y)
    else:
        table = np.asarray(y)
        if table.ndim == 2 and table.shape[1] == 2:
            columns = check_array(table, dtype=np.float64, input_name="y", ensure_min_samples=0)
            event, time = columns.T
            if not np.all((event == 0) | (event == 1)):
                other = " Are the columns in the other order?" if np.all((time == 0) | (time == 1)) else ""
                raise ValueError(
                    f"y: its first column holds {event[(event != 0) & (event != 1)][0]:g}, not 0 or 1: the "
                    f"columns are the event and the time.{other}"
                )
        elif table.ndim == 1 or table.shape[1:] == (1,):
            time = column_or_1d(table, warn=True)
            if time.dtype == object and len(time) and isinstance(time[0], tuple | np.void):
                raise ValueError(f"y holds {time[0]!r}: {_FORMS}.")
            time = check_array(time, ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0)
            event = np.ones(len(time))
        else:
            raise ValueError(f"y has shape {table.shape}: {_FORMS}.")
    wrong = np.flatnonzero(time <= 0)
    if len(wrong):
        raise ValueError(
            f"y: the time of sample {wrong[0]} is {time[wrong[0]]:g}; times must be positive, since their logarithm is "
            "predicted. Leave such samples out, or add a small number to all times."
        )
    return np.column_stack([event, time]).astype(np.float64)


def _read_fields(y: AnyArray) -> tuple[Array, Array]:
    names = y.dtype.names or ()
    kinds = [y.dtype[name].kind for name in names]
    if y.ndim != 1 or len(names) != 2 or "b" not in kinds or not set(kinds) & set("fiu"):
        fields = ", ".join(f"{name}: {y.dtype[name]}" for name in names)
        raise ValueError(f"y is a structured array of the fields ({fields}): {_FORMS}.")
    at = kinds.index("b")
    time = check_array(y[names[1 - at]], ensure_2d=False, dtype=np.float64, input_name="y", ensure_min_samples=0)
    return y[names[at]].astype(np.float64), time
