"""Weights, ridge and scale of the least-squares machine by leave-one-out error or evidence.

The parameters are the logarithms of the weights η ≥ 0 (not normalised: their size against the ridge α is learned), of
α, and, for the log-loss of leave-one-out outputs, of the scale a. Weak priors keep them from running away. The problem
is not convex: `stationarity` says how level the end is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kernelmosaic.gram import GramStack
from kernelmosaic.solvers.leave_one_out import Array, Criterion, RidgeSystem, evidence, log_loss, squared_error


@dataclass(frozen=True)
class RidgeOptions:
    """What a search may vary.

    Attributes
    ----------
    weight_prior, alpha_prior, scale_prior : float
        Strengths, in nats of the criterion: on log η about equal weights of sum one, on log α about `alpha_mean`, on
        log a about zero.
    alpha_mean : float
        Where the prior of log α is centred.
    first_alpha, first_scale : float
        log α and log a to start from.
    first_steps : int
        Steps from every start, of which the best is followed.
    range : tuple of float
        Least and largest logarithm: beyond, rounding hides what a parameter does.
    """

    weight_prior: float = 0.2
    alpha_prior: float = 0.05
    scale_prior: float = 0.02
    alpha_mean: float = -1.0
    first_alpha: float = float(np.log(0.3))
    first_scale: float = 0.5
    first_steps: int = 5
    range: tuple[float, float] = (-20.0, 10.0)

    def alpha_shifts(self, count: int) -> list[float]:
        """Return by how much log α of every start differs from that of the first: smaller and larger in turn."""
        return [0.0] + [float((-1) ** k * ((k + 1) // 2) * np.log(30.0)) for k in range(1, count)]


@dataclass(frozen=True)
class RidgeTargets:
    """Targets of the machine, and what judges its outputs.

    Attributes
    ----------
    Y : ndarray of shape (n, c)
        Numbers; ±1 for two classes; indicators of several.
    weight : ndarray of shape (n,)
        Of the samples.
    labels : ndarray of shape (n,) or None
        The classes, if the criterion is their log-loss.
    groups : sequence of ndarray or None
        Samples that are left out together.
    """

    Y: Array
    weight: Array
    labels: NDArray[np.intp] | None = None
    groups: Sequence[NDArray[np.intp]] | None = None


@dataclass(frozen=True)
class RidgeLearned:
    """What was learned.

    Attributes
    ----------
    weights, alpha, scale : ndarray of shape (P,), float, float
        η, α and a.
    beta, intercept : ndarray of shape (n, c) and (c,)
        The machine.
    residuals : ndarray of shape (n, c)
        Of samples left out.
    value : float
        The criterion with its priors.
    stationarity : float
        The largest slope in the logarithms, per sample.
    history : list of float
        The values on the way.
    """

    weights: Array
    alpha: float
    scale: float
    beta: Array
    intercept: Array
    residuals: Array
    value: float
    stationarity: float
    history: list[float]


def inner_products(stack: GramStack, G: Array) -> Array:
    """Return ⟨G, K_m⟩ of every kernel."""
    out, n = np.zeros(stack.n_kernels), stack.n_samples
    every = np.arange(stack.n_kernels)
    for strip in stack.row_strips(n):
        for m, block in stack.blocks(every, strip, slice(0, n)):
            out[m] += float(np.vdot(G[strip], block))
    return out


def learn_ridge(
    stack: GramStack,
    targets: RidgeTargets,
    *,
    criterion: str = "loo",
    alpha: float | None = None,
    weights: Array | None = None,
    tol: float = 1e-3,
    max_iter: int = 100,
    n_init: int = 1,
    options: RidgeOptions | None = None,
) -> RidgeLearned:
    """Minimise the criterion over the logarithms of weights, ridge and scale by quasi-Newton steps.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    targets : RidgeTargets
        Targets, weights and groups of the samples.
    criterion : {"loo", "evidence"}
        Leave-one-out error (squares; log-loss if there are labels), or evidence.
    alpha, weights : float, ndarray of shape (P,), optional
        Given ones are kept.
    tol : float
        The stationarity to stop at.
    max_iter : int
        Most steps.
    n_init : int
        Ridges to start from; the best after a few steps is followed.
    options : RidgeOptions
        Priors and start.

    Returns
    -------
    RidgeLearned
    """
    options = RidgeOptions() if options is None else options
    problem = _RidgeProblem(stack, targets, criterion, options)
    P = stack.n_kernels
    start = np.concatenate([np.full(P, -np.log(P)), [options.first_alpha, options.first_scale]])
    free = np.ones(P + 2, dtype=bool)
    if weights is not None:
        with np.errstate(divide="ignore"):
            start[:P], free[:P] = np.log(weights), False
    if alpha is not None:
        start[P], free[P] = np.log(alpha), False
    free[P + 1] = problem.has_scale
    history: list[float] = []

    def value(x: Array) -> tuple[float, Array]:
        full = start.copy()
        full[free] = x
        found, slope = problem.value(full)
        history.append(found)
        return found, slope[free]

    def improve(x: Array, steps: int) -> Any:
        limits = {"maxiter": steps, "gtol": tol * float(targets.weight.sum()), "ftol": 1e-14}
        return minimize(value, x, jac=True, method="L-BFGS-B", bounds=[options.range] * len(x), options=limits)

    x = start.copy()
    if free.any():
        starts = [start.copy() for _ in range(n_init if free[P] else 1)]
        for one, shift in zip(starts, options.alpha_shifts(len(starts)), strict=True):
            one[P] += shift
        begun = [improve(one[free], options.first_steps if len(starts) > 1 else max_iter) for one in starts]
        best = min(begun, key=lambda one: float(one.fun))
        x[free] = best.x if len(starts) == 1 else improve(best.x, max_iter).x
    return problem.learned(x, free, history)


class _RidgeProblem:
    """The criterion as a function of the logarithms of weights, ridge and scale."""

    def __init__(self, stack: GramStack, targets: RidgeTargets, criterion: str, options: RidgeOptions) -> None:
        self.stack, self.targets, self.options = stack, targets, options
        self.criterion = criterion
        self.has_scale = criterion == "loo" and targets.labels is not None

    def system(self, x: Array) -> tuple[RidgeSystem, Array]:
        P = self.stack.n_kernels
        K = self.stack.combine(np.exp(x[:P]))
        ridge = np.exp(x[P]) / self.targets.weight
        return RidgeSystem.of(np.asarray(K, dtype=np.float64), ridge), ridge

    def judged(self, system: RidgeSystem, x: Array) -> Criterion:
        t = self.targets
        if self.criterion == "evidence":
            return evidence(system, t.Y)
        if t.labels is not None:
            return log_loss(system, t.Y, t.labels, float(np.exp(x[-1])), t.weight, t.groups)
        return squared_error(system, t.Y, t.weight, t.groups)

    def value(self, x: Array) -> tuple[float, Array]:
        P, o = self.stack.n_kernels, self.options
        system, ridge = self.system(x)
        found = self.judged(system, x)
        slope = np.zeros(P + 2)
        slope[:P] = np.exp(x[:P]) * inner_products(self.stack, found.G)
        slope[P] = float(ridge @ np.diagonal(found.G))
        if self.has_scale:
            slope[P + 1] = found.own[0]
        with np.errstate(invalid="ignore"):
            off = np.where(np.isfinite(x[:P]), x[:P] + np.log(P), 0.0)
        apart = np.concatenate([off, [x[P] - o.alpha_mean, x[P + 1]]])
        strength = np.concatenate([np.full(P, o.weight_prior), [o.alpha_prior, o.scale_prior * self.has_scale]])
        return found.value + float(strength @ apart**2), slope + 2.0 * strength * apart

    def learned(self, x: Array, free: NDArray[np.bool_], history: list[float]) -> RidgeLearned:
        P = self.stack.n_kernels
        value, slope = self.value(x)
        system, _ = self.system(x)
        found = self.judged(system, x)
        Y = self.targets.Y
        return RidgeLearned(
            np.exp(x[:P]),
            float(np.exp(x[P])),
            float(np.exp(x[P + 1])) if self.has_scale else 1.0,
            system.A @ Y,
            system.intercept(Y),
            found.residuals,
            value,
            float(np.abs(slope[free]).max(initial=0.0)) / float(self.targets.weight.sum()),
            history,
        )
