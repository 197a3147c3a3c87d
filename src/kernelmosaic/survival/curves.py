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
        """Fit to the outputs of samples, their events and times; a slope of None is fitted, too."""

    @abstractmethod
    def survival(self, outputs: Array) -> Array:
        """Return the share that lives on after each of the times, of shape (n, n_times)."""

    def hazard(self, outputs: Array) -> Array:
        """Return the cumulative hazard, −log of the survival function."""
        with np.errstate(divide="ignore"):
            return -np.log(self.survival(outputs))

    def functions(self, outputs: Array, return_array: bool, hazard: bool = False) -> AnyArray:
        """Return survival functions, or cumulative hazards: step functions, or their values at the
        times."""
        values = self.hazard(outputs) if hazard else self.survival(outputs)
        if return_array:
            return values
        found = np.empty(len(values), dtype=object)
        found[:] = [StepFunction(self.times, row) for row in values]
        return found


@dataclass(frozen=True)
class ProportionalHazards(Curves):
    """H(t | f) = H₀(t) exp(−slope · f), with Breslow's estimate of H₀.

    Attributes
    ----------
    baseline : ndarray of shape (n_times,)
        log H₀: exp(−f) may be beyond the numbers.
    """

    baseline: Array

    @classmethod
    def fit(cls, outputs: Array, y: Array, weight: Array | None, slope: float | None) -> Self:
        event, time = y.T
        weight = np.ones(len(y)) if weight is None else weight
        if slope is None:
            likelihood = PartialLikelihood(time, event, weight, 1.0)
            slope = minimize_scalar(
                lambda a: likelihood.loss_at(a * outputs).value, bounds=(0, 10), method="bounded"
            ).x
        times, at = np.unique(time, return_inverse=True)
        died, order = np.bincount(at, weights=weight * event), np.argsort(-time, kind="stable")
        with np.errstate(divide="ignore"):
            total = np.logaddexp.accumulate((np.log(weight) - slope * outputs)[order])
            risk = total[np.searchsorted(-time[order], -times, side="right") - 1]
            steps = np.where(died > 0, np.log(died) - np.where(died > 0, risk, 0.0), -np.inf)
        return cls(times, float(slope), 0.0, np.logaddexp.accumulate(steps))

    def hazard(self, outputs: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(self.baseline - self.slope * outputs[:, np.newaxis])

    def survival(self, outputs: Array) -> Array:
        return np.exp(-self.hazard(outputs))


@dataclass(frozen=True)
class LocationScale(Curves):
    """S(t | f) = S₀(log t − slope · f − shift), with Kaplan and Meier's estimate of S₀ from the
    residuals.

    A slope that is not given is that of the censored regression of log times on the outputs, by
    absolute errors. Events at time 0, whose logarithm is −∞, do not count there; S₀ begins with
    them.

    S₀ falls exactly where a training sample has its time. The last digits of its output depend on
    how many samples are predicted with it, and must not decide on which side of its own step it is:
    residuals that differ by less than `resolution` are equal.

    Attributes
    ----------
    residuals, survivors : ndarray of shape (n_residuals,)
        Where S₀ falls, and its value from there on.
    resolution : float
        The least difference of residuals that is no rounding: as a difference of log times, far
        below those of data.
    """

    residuals: Array
    survivors: Array
    resolution: float

    @classmethod
    def fit(cls, outputs: Array, y: Array, weight: Array | None, slope: float | None) -> Self:
        event, log_time = y[:, 0], _log(y[:, 1])
        shift = 0.0
        if slope is None:
            slope, later = 0.0, np.isfinite(log_time)
            if event[later].any():
                f = outputs[later]
                # The scale of the outputs is open, and the prior of the slope next to none.
                scale = 1e3 / (float(np.abs(f).max()) or 1.0)
                weights = None if weight is None else weight[later]
                machine = Survival(log_time[later], event[later], 1.0, 0.0, 1, weights)
                line = machine.solve(DenseFactors(scale * f[:, np.newaxis]))
                slope, shift = max(float(scale**2 * (line.beta @ f)), 0.0), float(line.intercept)
        location = slope * outputs + shift
        resolution = RESOLUTION * max(1.0, float(np.abs(location).max()))
        residual = _joined(log_time - location, resolution)
        steps, survivors = kaplan_meier(residual, event, weight)
        return cls(np.unique(y[:, 1]), slope, shift, steps, survivors, resolution)

    def survival(self, outputs: Array) -> Array:
        location = self.slope * outputs + self.shift
        residual = _log(self.times) - location[:, np.newaxis]
        steps_before = np.searchsorted(self.residuals, residual + self.resolution, side="right")
        return np.append(1.0, self.survivors)[steps_before]


def _joined(values: Array, resolution: float) -> Array:
    """Return values, those of a run whose neighbours are no further apart than the resolution as
    the least of them."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    begins = np.ones(len(values), dtype=bool)
    begins[1:] = in_order[1:] > in_order[:-1] + resolution
    first_of_run = np.maximum.accumulate(np.where(begins, np.arange(len(values)), 0))
    joined = np.empty(len(values))
    joined[order] = in_order[first_of_run]
    return joined


def _log(time: Array) -> Array:
    """Return the logarithm, −∞ of zero."""
    with np.errstate(divide="ignore"):
        return np.log(time)
