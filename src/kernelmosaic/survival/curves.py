"""Survival functions from the outputs of a machine, calibrated on samples with events and times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar

from kernelmosaic._typing import AnyArray, Array
from kernelmosaic.gram.factored import DenseFactors
from kernelmosaic.survival.machine import PartialLikelihood, Survival
from kernelmosaic.survival.metrics import StepFunction, kaplan_meier

#: Of log times, or of outputs on their scale: smaller differences, relative to their size, are
#: rounding.
RESOLUTION = 1e-11


#: The largest slope of proportional hazards that is searched. Chosen by hand.
_MAX_SLOPE = 10
#: Largest absolute output in the regression of log times; the regulariser then hardly affects the
#: slope. Chosen by hand.
_REGRESSION_SCALE = 1e3


@dataclass(frozen=True)
class Curves(ABC):
    """Survival functions of outputs.

    Attributes
    ----------
    times : ndarray of shape (n_times,)
        The times of the samples fitted to, in order.
    slope, shift : float
        The curves are those of slope · f + shift for an output f.
    """

    times: Array
    slope: float
    shift: float

    @classmethod
    @abstractmethod
    def fit(cls, outputs: Array, y: Array, weight: Array | None, slope: float | None) -> Self:
        """Return the curves that fit the outputs of samples.

        Parameters
        ----------
        outputs : ndarray of shape (n,)
            The outputs of a machine, larger for longer times.
        y : ndarray of shape (n, 2)
            Events and times.
        weight : ndarray of shape (n,) or None
            Weights of the samples.
        slope : float or None
            The slope of the curves; None fits it.
        """

    @abstractmethod
    def survival(self, outputs: Array) -> Array:
        """Return the probability of surviving each of the times, of shape (n, n_times)."""

    def hazard(self, outputs: Array) -> Array:
        """Return the cumulative hazard, −log of the survival function."""
        with np.errstate(divide="ignore"):
            return -np.log(self.survival(outputs))

    def functions(self, outputs: Array, return_array: bool, hazard: bool = False) -> AnyArray:
        """Return survival functions, or cumulative hazards, as step functions.

        With `return_array`, return their values at the times, of shape (n, n_times).
        """
        values = self.hazard(outputs) if hazard else self.survival(outputs)
        if return_array:
            return values
        functions = np.empty(len(values), dtype=object)
        functions[:] = [StepFunction(self.times, row) for row in values]
        return functions


@dataclass(frozen=True)
class ProportionalHazards(Curves):
    """H(t | f) = H₀(t) exp(−slope · f), with Breslow's estimate of H₀.

    Attributes
    ----------
    baseline : ndarray of shape (n_times,)
        log H₀, since exp(−f) may overflow.
    """

    baseline: Array

    @classmethod
    def fit(cls, outputs: Array, y: Array, weight: Array | None, slope: float | None) -> Self:
        event, time = y.T
        weight = np.ones(len(y)) if weight is None else weight
        if slope is None:
            likelihood = PartialLikelihood(time, event, weight, 1.0)

            def minus_log_likelihood(slope: float) -> float:
                return likelihood.loss_at(slope * outputs).value

            slope = minimize_scalar(
                minus_log_likelihood, bounds=(0, _MAX_SLOPE), method="bounded"
            ).x
        times, time_number = np.unique(time, return_inverse=True)
        died = np.bincount(time_number, weights=weight * event)
        order = np.argsort(-time, kind="stable")
        with np.errstate(divide="ignore"):
            # The logarithm of Σ w exp(−slope · f) over the samples at risk at every time.
            sums = np.logaddexp.accumulate((np.log(weight) - slope * outputs)[order])
            at_risk = sums[np.searchsorted(-time[order], -times, side="right") - 1]
            log_steps = np.where(died > 0, np.log(died) - np.where(died > 0, at_risk, 0.0), -np.inf)
        return cls(times, float(slope), 0.0, np.logaddexp.accumulate(log_steps))

    def hazard(self, outputs: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(self.baseline - self.slope * outputs[:, np.newaxis])

    def survival(self, outputs: Array) -> Array:
        return np.exp(-self.hazard(outputs))


@dataclass(frozen=True)
class LocationScale(Curves):
    """S(t | f) = S₀(log t − slope · f − shift), with Kaplan and Meier's estimate of S₀.

    S₀ is estimated from the residuals. A slope that is fitted is that of the censored regression of
    log times on the outputs, by absolute errors. Events at time 0, whose logarithm is −∞, do not
    count in that regression; S₀ begins with them.

    S₀ falls exactly where a training sample has its time. The last digits of its output depend on
    how many samples are predicted with it, and must not decide on which side of its own step it is:
    residuals that differ by less than `resolution` are equal.

    Attributes
    ----------
    residuals, survivors : ndarray of shape (n_residuals,)
        The points at which S₀ falls, and its values from each point on.
    resolution : float
        The least difference of residuals that is not taken for rounding; log times of data differ
        by far more.
    """

    residuals: Array
    survivors: Array
    resolution: float

    @classmethod
    def fit(cls, outputs: Array, y: Array, weight: Array | None, slope: float | None) -> Self:
        event = y[:, 0]
        log_time = _log(y[:, 1])
        shift = 0.0
        if slope is None:
            slope, shift = cls._fit_line(outputs, event, log_time, weight)
        location = slope * outputs + shift
        resolution = RESOLUTION * max(1.0, float(np.abs(location).max()))
        residual = _joined(log_time - location, resolution)
        steps, survivors = kaplan_meier(residual, event, weight)
        return cls(np.unique(y[:, 1]), slope, shift, steps, survivors, resolution)

    @staticmethod
    def _fit_line(
        outputs: Array, event: Array, log_time: Array, weight: Array | None
    ) -> tuple[float, float]:
        """Return slope and shift of the censored regression of log times on the outputs.

        The slope is not negative. Both are zero if no event comes after time 0.
        """
        is_positive = np.isfinite(log_time)
        if not event[is_positive].any():
            return 0.0, 0.0
        f = outputs[is_positive]
        # Outputs may have any scale; after scaling, the regulariser leaves the slope almost free.
        scale = _REGRESSION_SCALE / (float(np.abs(f).max()) or 1.0)
        weights = None if weight is None else weight[is_positive]
        machine = Survival(log_time[is_positive], event[is_positive], 1.0, 0.0, 1, weights)
        line = machine.solve(DenseFactors(scale * f[:, np.newaxis]))
        slope = max(float(scale**2 * (line.beta @ f)), 0.0)
        return slope, float(line.intercept)

    def survival(self, outputs: Array) -> Array:
        location = self.slope * outputs + self.shift
        residual = _log(self.times) - location[:, np.newaxis]
        steps_before = np.searchsorted(self.residuals, residual + self.resolution, side="right")
        return np.append(1.0, self.survivors)[steps_before]


def _joined(values: Array, resolution: float) -> Array:
    """Return values in which nearly equal ones are replaced by the least of them.

    Values are nearly equal if they belong to a run, in ascending order, whose neighbours differ by
    no more than `resolution`.
    """
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    starts_run = np.ones(len(values), dtype=bool)
    starts_run[1:] = in_order[1:] > in_order[:-1] + resolution
    first_of_run = np.maximum.accumulate(np.where(starts_run, np.arange(len(values)), 0))
    joined = np.empty(len(values))
    joined[order] = in_order[first_of_run]
    return joined


def _log(time: Array) -> Array:
    """Return the logarithm, −∞ of zero."""
    with np.errstate(divide="ignore"):
        return np.log(time)
