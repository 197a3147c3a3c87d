"""Weights, ridge, scale and widths of the least-squares machine by leave-one-out error or evidence.

The parameters are the logarithms of the weights η ≥ 0 (not normalised: their size against the ridge α is learned), of
α, for the log-loss of leave-one-out outputs of the scale a, and of the widths ℓ of kernels that have them learned. Weak
priors keep them finite. The problem is not convex: `stationarity` is the largest slope at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from kernelmosaic._typing import Array, ArrayOrTensor, Indices, Mask
from kernelmosaic.backend import backend_of, threads_for
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.linear_algebra import solve_to_residual
from kernelmosaic.gram.options import BlockOptions
from kernelmosaic.gram.pairs import PairGram, PairStack
from kernelmosaic.gram.stack import MatrixStack, StoredStack
from kernelmosaic.kernels.numeric import RadialWidths
from kernelmosaic.row_order import choose_groups, spread_rows
from kernelmosaic.solvers.leave_one_out import (
    FeatureInverse,
    FeatureSystem,
    Groups,
    RidgeSystem,
    centre,
    class_loss,
    combined_matrix,
    evidence,
    evidence_at,
    evidence_diagonal,
    evidence_value,
    raise_of_rounding,
    squared_loss,
    with_constant,
)


@dataclass(frozen=True)
class RidgeOptions:
    """What a search may vary.

    Attributes
    ----------
    criterion : {"loo", "evidence"}
        Leave-one-out error (squares; log-loss if there are labels), or evidence.
    tol : float
        The stationarity to stop at.
    max_iter : int
        Most steps.
    n_init : int
        Ridges to start from, if nothing else is given; the best after a few steps is followed.
    weight_prior, alpha_prior, scale_prior : float
        Strengths, in nats of the criterion: on log η about equal weights of sum one, on log α about `alpha_mean`, on
        log a about zero.
    width_prior, column_prior : float
        The same of the mean of a kernel's log ℓ about where it starts, and of the log ℓ of columns about their mean.
    alpha_mean : float
        Where the prior of log α is centred.
    least_ridge : float
        A learned α is at least this share of the sum of the weights times the number of samples: below, as with
        targets without noise, the rounding of linear systems shows in predictions.
    first_alpha, first_scale : float
        log α and log a to start from.
    first_steps : int
        Steps from every start, of which the best is followed.
    range, width_range : tuple of float
        Least and largest logarithm, of widths relative to where they start: beyond, rounding hides what a parameter
        does.
    left_out_rows, left_out_groups : int
        Most samples, evenly spread, whose leave-one-out errors are minimised in features: weights and ridge are few
        next to them. All samples are learned from. Where groups are left out, so many groups are judged at least.
    slope_samples : int
        Of at most so many samples the largest slope is divided by the number, to be compared with `tol`: a criterion
        is a sum over samples, and what a slope of some nats leaves to gain does not grow with their number.
    width_rows : int
        Most samples, evenly spread, that widths are learned from; weights and ridge are learned from all.
    first_rows : int
        Several starts are tried on a third of the samples, if these are at least so many.
    ridge_steps : int
        Where weights are learned from some samples, most steps of the ridge on all.
    probe_signs, most_probes : int
        Of kernels of pairs, how many random signs a trace is made of, in two vectors at least and so many at most.
    product_steps, product_tol : int, float
        Of kernels of pairs, most conjugate-gradient steps of a linear system, and the residual at which they end, in
        the norm of the preconditioner.
    product_residual, product_rounds : float, int
        The Euclidean residual of a linear system, relative to its right-hand side, that must be met, as of matrices;
        and how often steps with the strong preconditioner are taken from what is left.
    """

    criterion: str = "loo"
    tol: float = 1e-3
    max_iter: int = 100
    n_init: int = 1
    weight_prior: float = 0.2
    alpha_prior: float = 0.05
    scale_prior: float = 0.02
    width_prior: float = 0.2
    column_prior: float = 3.0
    alpha_mean: float = -1.0
    first_alpha: float = float(np.log(0.3))
    first_scale: float = 0.5
    first_steps: int = 5
    least_ridge: float = 1e-13
    range: tuple[float, float] = (-20.0, 10.0)
    width_range: tuple[float, float] = (-4.0, 7.0)
    left_out_rows: int = 5000
    left_out_groups: int = 20
    slope_samples: int = 300
    width_rows: int = 2000
    first_rows: int = 100
    ridge_steps: int = 15
    probe_signs: int = 16_000
    most_probes: int = 20
    product_steps: int = 400
    product_tol: float = 1e-4
    product_residual: float = 1e-3
    product_rounds: int = 3

    def slope_count(self, targets: RidgeTargets) -> float:
        """Return the number of samples that the largest slope is divided by."""
        return min(float(targets.weight.sum()), self.slope_samples)


DEFAULTS = RidgeOptions()


def centre_and_unit(Y: ArrayOrTensor, weight: Array) -> tuple[Array, Array]:
    """Return the mean and the deviation of every target, wherever it is; one as the deviation of a constant."""
    backend = backend_of(Y)
    low, high = (np.asarray(backend.to_numpy(one(Y, 0))) for one in (backend.xp.amin, backend.xp.amax))
    largest = np.maximum(np.maximum(-low, high), np.finfo(float).tiny)  # squares of larger numbers overflow
    Z, share = Y / backend.asarray(largest), backend.asarray(weight / weight.sum())
    mean = share @ Z
    spread = np.sqrt(backend.to_numpy(share @ (Z - mean) ** 2))
    return largest * backend.to_numpy(mean), np.where(high > low, spread * largest, 1.0)


@dataclass(frozen=True)
class RidgeTargets:
    """Targets of the machine, and what judges its outputs.

    Attributes
    ----------
    Y : ndarray of shape (n, c)
        Numbers; ±1 for two classes; indicators of several.
    weight : ndarray of shape (n,)
        Of the samples; their mean is one.
    labels : ndarray of shape (n,) or None
        The classes, if the criterion is their log-loss.
    groups : sequence of ndarray or None
        Samples that are left out together.
    mean, unit : ndarray of shape (c,), or float
        The targets as they were given are mean + unit · Y.
    weight_unit : float
        The weights as they were given are weight_unit · weight. A common factor of all weights says nothing about how
        much was observed, and the ridge α in units of the given weights is weight_unit times that of the machine.
    order : ndarray of shape (n,) or None
        The samples as `content_order` sorts them; None where they are numbered in an order of their own.
    """

    Y: Array
    weight: Array
    labels: Indices | None = None
    groups: Sequence[Indices] | None = None
    mean: Array | float = 0.0
    unit: Array | float = 1.0
    weight_unit: float = 1.0
    order: Indices | None = None

    @classmethod
    def of_numbers(cls, Y: Array, weight: Array) -> RidgeTargets:
        """Return targets of shape (n, c), those of all units alike."""
        mean, unit = centre_and_unit(Y, weight)
        weight_unit = float(weight.mean())
        return cls((Y - mean) / unit, weight / weight_unit, mean=mean, unit=unit, weight_unit=weight_unit)

    @classmethod
    def of_classes(cls, labels: Indices, weight: Array) -> RidgeTargets:
        """Return the targets of classes, which are numbered from 0."""
        Y = np.eye(int(labels.max()) + 1)[labels]
        if Y.shape[1] == 2:
            Y = 2.0 * Y[:, 1:] - 1.0
        weight_unit = float(weight.mean())
        return cls(Y, weight / weight_unit, labels, weight_unit=weight_unit)

    def loss(self, r: Array, scale: float) -> tuple[float, Array, float]:
        """Return the loss of the residuals of samples left out, its slopes in them, and that in log a."""
        if self.labels is None:
            return *squared_loss(r, self.weight), 0.0
        return class_loss(r, self.Y, self.labels, scale, self.weight)

    def best_scale(self, r: Array, scale: float, prior: float) -> float:
        """Return the scale a of the least log-loss of these residuals with its prior; numbers keep the one given."""
        if self.labels is None:
            return scale

        def value(log_scale: float) -> float:
            return self.loss(r, float(np.exp(log_scale)))[0] + prior * log_scale**2

        best = minimize_scalar(value, bounds=(-5.0, 8.0), method="bounded")
        return float(np.exp(best.x))

    def take(self, rows: Indices) -> RidgeTargets:
        """Return those of some samples, whose numbers ascend."""
        n = len(self.Y)
        is_kept = np.zeros(n, dtype=bool)
        is_kept[rows] = True
        new_number = np.cumsum(is_kept) - 1
        groups = order = labels = None
        if self.groups is not None:
            kept = (new_number[S[is_kept[S]]] for S in self.groups)
            groups = [S for S in kept if len(S)]
        if self.order is not None:
            order = new_number[self.order[is_kept[self.order]]]
        if self.labels is not None:
            labels = self.labels[rows]
        return replace(self, Y=self.Y[rows], weight=self.weight[rows], labels=labels, groups=groups, order=order)

    @property
    def content_order(self) -> Indices:
        """The samples in an order that does not depend on how they are numbered, as far as one is known."""
        return np.arange(len(self.Y)) if self.order is None else self.order

    @property
    def group_numbers(self) -> Indices | None:
        """The number of every sample's group; None where every sample is left out alone."""
        if self.groups is None:
            return None
        numbers = np.empty(len(self.Y), dtype=np.intp)
        for number, S in enumerate(self.groups):
            numbers[S] = number
        return numbers

    @property
    def n_units(self) -> int:
        """The number of groups, or of samples where every sample is left out alone."""
        return len(self.Y) if self.groups is None else len(self.groups)

    def spread(self, count: int) -> Indices:
        """Return the numbers of some samples, evenly spread over sorted targets, of all classes and groups."""
        categories: list[Indices] = []
        values: Array | Indices = self.Y[:, 0]
        if self.labels is not None:
            values = self.labels
            categories.append(self.labels)
        if self.group_numbers is not None:
            categories.append(self.group_numbers)
        return spread_rows(self.content_order, count, values, *categories)


@dataclass(frozen=True, kw_only=True)
class RidgeMachine:
    """The machine at given weights and ridge.

    Attributes
    ----------
    beta, intercept : ndarray of shape (n, c) and (c,)
        Its coefficients and constants.
    residuals : ndarray of shape (n, c)
        Of samples left out.
    value : float
        The criterion.
    sums, covariance : ndarray of shape (features, c) and (features + 1, features + 1), or None
        In features, Z_mᵀ β of all kernels, one below the other, with more digits than β gives it, and the covariance of
        `FeatureInverse`.
    unsolved : float
        Of kernels of pairs, the relative residual of the linear systems where it exceeds
        `RidgeOptions.product_residual`; else zero.
    """

    beta: Array
    intercept: Array
    residuals: Array
    value: float
    sums: Array | None = None
    covariance: Array | None = None
    unsolved: float = 0.0


@dataclass(frozen=True)
class RidgeStart:
    """Weights, a ridge and a scale to start from.

    Attributes
    ----------
    weights : float or ndarray of shape (P,)
        η of every kernel; a number where all are equal.
    alpha, scale : float
        α and a.
    """

    weights: float | Array
    alpha: float
    scale: float

    def logs(self, n_kernels: int) -> Array:
        """Return log η, log α and log a."""
        return np.log([*np.broadcast_to(self.weights, n_kernels), self.alpha, self.scale])


@dataclass(frozen=True, kw_only=True)
class RidgeLearned(RidgeMachine):
    """The machine that was learned, its `value` with the priors.

    Attributes
    ----------
    weights, alpha, scale : ndarray of shape (P,), float, float
        η, α and a.
    widths : dict of int to ndarray
        ℓ of every kernel that had it learned.
    stationarity : float
        The largest slope in the logarithms, per sample, of at most `RidgeOptions.slope_samples`.
    history : list of float
        The values on the way.
    first : RidgeStart
        Where the search that led there started.
    """

    weights: Array
    alpha: float
    scale: float
    widths: dict[int, Array]
    stationarity: float
    history: list[float]
    first: RidgeStart

    def logs(self) -> Array:
        """Return log η, log α and log a."""
        with np.errstate(divide="ignore"):
            return np.log([*self.weights, self.alpha, self.scale])


def learn_ridge(
    stack: MatrixStack | FeatureStack, targets: RidgeTargets, *, options: RidgeOptions = DEFAULTS, **known: Any
) -> RidgeLearned:
    """Minimise the criterion as `search_ridge` does, which has the parameters, and return the machine that results."""
    return search_ridge(stack, targets, options=options, **known).learned()


@dataclass(frozen=True)
class RidgeSearch:
    """Where a search for weights, ridge, scale and widths ended.

    Attributes
    ----------
    problem : RidgeProblem
        What was minimised.
    x : ndarray
        The logarithms at the end.
    stationarity, history, first : float, list of float, RidgeStart
        As in `RidgeLearned`.
    """

    problem: RidgeProblem
    x: Array
    stationarity: float
    history: list[float]
    first: RidgeStart

    @property
    def point(self) -> RidgePoint:
        """The parameters; the scale is one where the criterion has none."""
        point = self.problem.read(self.x)
        return point if self.problem.has_scale else replace(point, scale=1.0)

    def learned(self) -> RidgeLearned:
        """Return the machine, with all that was learned."""
        point = self.point
        return RidgeLearned(
            **self.problem.machine(self.x, self.problem.form.machine(point)),
            weights=point.weights,
            alpha=point.alpha,
            scale=point.scale,
            widths={m: np.exp(log_widths) for m, log_widths in point.log_widths.items()},
            stationarity=self.stationarity,
            history=self.history,
            first=self.first,
        )


def search_ridge(
    stack: MatrixStack | FeatureStack,
    targets: RidgeTargets,
    *,
    alpha: float | None = None,
    weights: Array | None = None,
    ties: Array | None = None,
    widths: Mapping[int, RadialWidths] | None = None,
    start: RidgeLearned | RidgeStart | None = None,
    options: RidgeOptions = DEFAULTS,
) -> RidgeSearch:
    """Minimise the criterion over the logarithms of weights, ridge, scale and widths by quasi-Newton steps.

    Widths for numbers are learned with everything else. Those for classes are learned last, from what was learned with
    the widths they start from, and stay there where learning them lowers the criterion by less than one nat per width:
    the gain is then one of chance.

    One sample has no leave-one-out error, and two have the same one whatever the kernel: a constant. What is left are
    the priors, whose mode is returned: equal weights.

    Parameters
    ----------
    stack : MatrixStack or FeatureStack
        The kernels.
    targets : RidgeTargets
        Targets, weights and groups of the samples.
    alpha, weights : float, ndarray of shape (P,), optional
        Given ones are kept.
    ties : ndarray of shape (P, k), optional
        log η moves by ties z, and z is learned: weights that are products of others.
    widths : dict of int to RadialWidths, optional
        The kernels of the stack that have widths to learn.
    start : RidgeLearned or RidgeStart, optional
        Where to start; by default at equal weights, with the best of `RidgeOptions.n_init` ridges.
    options : RidgeOptions
        The criterion, its priors, where to start and when to stop.

    Returns
    -------
    RidgeSearch
    """
    P, widths = stack.n_kernels, dict(widths or {})
    form = make_form(stack, targets, widths, options)
    problem = RidgeProblem(form, options, widths)
    start = start or _learn_start(form, targets, alpha, weights, options)
    begin = _place_of_start(start, P, options)
    first = start.logs() if isinstance(start, RidgeLearned) else begin.logs(P)
    x = np.concatenate([first, *(one.start for one in widths.values())])
    is_width = np.arange(len(x)) >= P + 2
    low = np.where(is_width, x + options.width_range[0], options.range[0])
    high = np.where(is_width, x + options.width_range[1], options.range[1])
    free = ~is_width | (targets.labels is None)
    if weights is not None:
        with np.errstate(divide="ignore"):
            x[:P], free[:P] = np.log(weights), False
    if alpha is not None:
        x[P], free[P], problem.least_ridge = np.log(alpha), False, 0.0
    free[P + 1] = problem.has_scale
    if stack.n_samples == 1:
        return RidgeSearch(problem, problem.at_mode_of_prior(x, free), 0.0, [], begin)
    history: list[float] = []
    samples = options.slope_count(targets)

    def improve(x: Array, free: Mask, steps: int) -> tuple[Array, float, float]:
        """Return where the steps end, the value there, and the largest slope that leads nowhere out of its range."""
        x = np.where(free, np.clip(x, low, high), x)
        alone = free & ((ties is None) | (np.arange(len(x)) >= P))
        # A parameter of the search moves one logarithm, or those that a column of `ties` holds together.
        moves, bounds = np.eye(len(x))[:, alone], np.array([low - x, high - x])[:, alone]
        if ties is not None:
            reach = np.full((2, ties.shape[1]), 0.5 * (options.range[1] - options.range[0])) * [[-1.0], [1.0]]
            together = np.vstack([ties, np.zeros((len(x) - P, ties.shape[1]))])
            moves, bounds = np.hstack([moves, together]), np.hstack([bounds, reach])

        def value(moved: Array) -> tuple[float, Array]:
            found, slope = problem.value(x + moves @ moved)
            history.append(found)
            return found, moves.T @ slope

        limits = {"maxiter": steps, "gtol": options.tol * samples, "ftol": 1e-14, "maxcor": 20}
        first = np.zeros(moves.shape[1])
        found = minimize(value, first, jac=True, method="L-BFGS-B", bounds=bounds.T, options=limits)
        slope = np.where(found.x <= bounds[0], np.minimum(found.jac, 0.0), found.jac)
        slope = np.where(found.x >= bounds[1], np.maximum(slope, 0.0), slope)
        return x + moves @ found.x, float(found.fun), float(np.abs(slope).max(initial=0.0))

    if start is None and free[P] and options.n_init > 1:
        begun = []
        # Smaller and larger ridges in turn.
        factors = [30.0 ** ((-1) ** k * ((k + 1) // 2)) for k in range(options.n_init)]
        for factor in factors:
            shifted = x.copy()
            shifted[P] += np.log(factor)
            begun.append(improve(shifted, free, min(options.first_steps, options.max_iter)))
        best = int(np.argmin([value for _, value, _ in begun]))
        x, begin = begun[best][0], replace(begin, alpha=begin.alpha * factors[best])
    steepest = 0.0
    if free.any():
        x, _, steepest = improve(x, free, options.max_iter)
    if is_width.any() and targets.labels is not None:
        reached = problem.value(x)[0]
        end, lower, there = improve(x, free | is_width, options.max_iter)
        if reached - lower > is_width.sum():
            x, steepest = end, there
    return RidgeSearch(problem, x, steepest / samples, history, begin)


def learn_from_some(
    stack: MatrixStack, targets: RidgeTargets, rows: Indices, options: RidgeOptions, **known: Any
) -> RidgeLearned:
    """Learn weights from some samples, whose numbers ascend, then the ridge, and the machine, from all of them.

    What is known is given as to `learn_ridge`. The `stationarity` is the larger one of the largest slope on the samples
    that weights are learned from and of the slope in the ridge on all samples.
    """
    some, own = stack.take(rows, stored=True), targets.take(rows)
    with threads_for(len(rows)):
        part = learn_ridge(some, own, **known, options=options)
        point = RidgePoint(part.weights, part.alpha, part.scale, {})
        is_given = known.get("alpha") is not None
        curvature = 0.0
        if not is_given:
            curvature = MatrixForm(some, own, options.criterion, {}).curvature(point, options.scale_prior)
    form = MatrixForm(stack, targets, options.criterion, {})
    if is_given:
        machine, stationarity = form.machine(point), part.stationarity
    else:
        curvature *= float(targets.weight.sum() / own.weight.sum())
        point, machine, slope = form.relearn_ridge(point, curvature, options)
        stationarity = max(part.stationarity, abs(slope) / options.slope_count(targets))
    found = replace(part, alpha=point.alpha, scale=point.scale, stationarity=stationarity)
    return replace(found, **RidgeProblem(form, options).machine(found.logs(), machine))


def _place_of_start(start: RidgeLearned | RidgeStart | None, n_kernels: int, options: RidgeOptions) -> RidgeStart:
    """Return the start that is given, that of the fit that is given, or that of the options."""
    if isinstance(start, RidgeStart):
        return start
    if isinstance(start, RidgeLearned):
        return start.first
    return RidgeStart(1.0 / n_kernels, float(np.exp(options.first_alpha)), float(np.exp(options.first_scale)))


def _learn_start(
    form: RidgeForm, targets: RidgeTargets, alpha: float | None, weights: Array | None, options: RidgeOptions
) -> RidgeStart | None:
    """Return ridge and scale of at most a third of the samples, whose systems cost a 27th, with equal weights.

    The weights of the third lead to higher criteria of all samples on some data. It is None of few samples, where
    systems are no matrices, where widths are learned or the ridge is given, and where one start is all that is tried.
    """
    if options.n_init == 1 or alpha is not None or not isinstance(form, MatrixForm) or form.widths:
        return None
    stack = form.stack
    count = min(stack.n_samples // 3, stack.part_samples)
    if count < options.first_rows:
        return None
    rows = targets.spread(count)
    part = stack.take(rows, stored=True)
    point = search_ridge(part, targets.take(rows), weights=weights, options=options).point
    return RidgeStart(float(point.weights.mean()), point.alpha, point.scale)


def make_form(
    stack: MatrixStack | FeatureStack,
    targets: RidgeTargets,
    widths: Mapping[int, RadialWidths],
    options: RidgeOptions,
) -> RidgeForm:
    """Return the criterion in features, if the stack has them, by products of pairs, or else in matrices."""
    criterion = options.criterion
    if isinstance(stack, PairStack):
        return PairForm(stack, targets, options)
    if not isinstance(stack, FeatureStack):
        return MatrixForm(stack.for_many_combinations(), targets, criterion, widths)
    if stack.n_samples <= int(np.sum(stack.widths)):
        # Matrices are the smaller, and leave the digits of samples whose targets are met.
        every = dict(stack.features(slice(0, stack.n_samples), range(stack.n_kernels)))
        exact = [every[m].astype(np.float64) for m in range(stack.n_kernels)]
        matrices = StoredStack(np.array([Z @ Z.T for Z in exact]))
        return MatrixForm(matrices.for_many_combinations(), targets, criterion, widths)
    return FeatureForm(stack, targets, criterion, options.left_out_rows, options.left_out_groups)


@dataclass(frozen=True)
class RidgePoint:
    """Weights η, ridge α and scale a, and the logarithms of the widths that are learned, by the numbers of kernels."""

    weights: Array
    alpha: float
    scale: float
    log_widths: dict[int, Array]


@dataclass(frozen=True)
class Judged:
    """A criterion at given weights, ridge, scale and widths, with its slopes in their logarithms."""

    value: float
    weights: Array
    alpha: float
    scale: float = 0.0
    widths: tuple[Array, ...] = ()


@dataclass(frozen=True)
class MatrixForm:
    """The criterion by matrices of all pairs of samples, where the stack has them: n³ operations."""

    stack: MatrixStack
    targets: RidgeTargets
    criterion: str
    widths: Mapping[int, RadialWidths]

    def judge(self, at: RidgePoint) -> Judged:
        t, ridge, in_scale = self.targets, at.alpha / self.targets.weight, 0.0
        system, own, _ = self._system(at)
        if self.criterion == "evidence":
            value, G = evidence(system, t.Y)
        else:
            beta = system.times(t.Y)
            r = system.residuals(beta, t.groups)
            value, g, in_scale = t.loss(r, at.scale)
            G = system.slope(beta, r, g, t.groups)
        in_widths: list[Array] = []
        fixed = np.setdiff1d(np.arange(self.stack.n_kernels), [*own]) if own else None
        slopes = self.stack.inner_products(G, fixed)
        for m, K in own.items():
            K *= G
            slopes[m] = float(K.sum())
            in_widths.append(at.weights[m] * self.widths[m].slopes(at.log_widths[m], K))
        in_alpha = float(ridge @ backend_of(G).to_numpy(G.diagonal()))
        return Judged(value, at.weights * slopes, in_alpha, in_scale, tuple(in_widths))

    def residuals_left_out(self, at: RidgePoint) -> Array:
        """Return the residuals of samples left out."""
        system, _, _ = self._system(at)
        return np.asarray(system.residuals(system.solve(self.targets.Y), self.targets.groups))

    def machine(self, at: RidgePoint) -> RidgeMachine:
        system, _, K = self._system(at)
        return self._machine(system, K, at)

    def _machine(self, system: RidgeSystem, K: ArrayOrTensor, at: RidgePoint) -> RidgeMachine:
        ridge, Y = at.alpha / self.targets.weight, self.targets.Y
        beta = system.solve(Y)
        for _ in range(3):  # what was added to the diagonal for rounding is taken off again
            left = Y - backend_of(K).to_numpy(K @ backend_of(K).asarray(beta)) - ridge[:, np.newaxis] * beta
            beta = beta + system.solve(left)
        if not np.abs(left - left.mean(axis=0)).max() <= 1e-3 * np.abs(Y).max():  # β does not solve the system
            raise_of_rounding()
        residuals = system.residuals(beta, self.targets.groups)
        is_evidence = self.criterion == "evidence"
        value = evidence_at(system, Y, beta)[0] if is_evidence else self.targets.loss(residuals, at.scale)[0]
        return RidgeMachine(beta=beta, intercept=system.constants @ Y, residuals=residuals, value=value)

    def ridge_slope(self, at: RidgePoint, system: RidgeSystem, scale_prior: float) -> tuple[float, float]:
        """Return the slope of the criterion in log α at given weights, and the scale a that minimises it there."""
        t, ridge, scale = self.targets, at.alpha / self.targets.weight, at.scale
        if self.criterion == "evidence":
            diagonal = evidence_diagonal(system, t.Y, system.solve(t.Y))
        else:
            beta = system.times(t.Y.astype(system.dtype)).astype(np.float64)
            r = system.residuals(beta, t.groups)
            scale = t.best_scale(r, scale, scale_prior)
            _, g, _ = t.loss(r, scale)
            diagonal = system.slope_diagonal(beta, r, g, t.groups)
        return float(ridge @ diagonal), scale

    def curvature(self, at: RidgePoint, scale_prior: float, apart: float = 0.2) -> float:
        """Return the second derivative of the criterion in log α by the difference of two slopes."""
        ends = [replace(at, alpha=at.alpha * float(np.exp(sign * apart))) for sign in (-1.0, 1.0)]
        low, high = (self.ridge_slope(end, self._system(end)[0], scale_prior)[0] for end in ends)
        return (high - low) / (2.0 * apart)

    def relearn_ridge(
        self, at: RidgePoint, curvature: float, options: RidgeOptions
    ) -> tuple[RidgePoint, RidgeMachine, float]:
        """Return given weights with the ridge of these samples, the machine, and the slope that is left in log α.

        Every step takes a factorisation, and ends where the slope is at most `options.tol` per sample.

        Parameters
        ----------
        at : RidgePoint
            Where to start.
        curvature : float
            The second derivative of the criterion in log α to start with.
        options : RidgeOptions
            The priors, and when to stop.
        """
        K, _ = self._combine(at)
        offset, weight = centre(K), self.targets.weight
        # Single precision shows the slope where rounding is far below the ridge; graphics processors gain nothing.
        lost = 1e-5 * float(np.linalg.norm(K)) if backend_of(K).name == "numpy" else np.inf
        least_alpha = options.least_ridge * len(weight) * float(at.weights.sum())
        search = LevelSearch(max(options.range[0], np.log(least_alpha)), options.range[1], curvature)
        log_alpha, scale = float(np.log(at.alpha)), at.scale
        for _ in range(options.ridge_steps):
            point = replace(at, alpha=float(np.exp(log_alpha)), scale=scale)
            ridge = point.alpha / weight
            dtype = np.float32 if ridge.min() > lost else np.float64
            system = RidgeSystem.of_centred(K, offset, ridge, dtype)
            slope, scale = self.ridge_slope(point, system, options.scale_prior)
            slope += 2.0 * options.alpha_prior * (log_alpha - options.alpha_mean)
            slope = search.record(log_alpha, slope)
            if abs(slope) <= options.tol * options.slope_count(self.targets):
                break
            log_alpha = search.next_point()
        machine = self._machine(RidgeSystem.of_centred(K, offset, ridge), K, point)
        if self.criterion == "evidence":
            return point, machine, slope
        point = replace(point, scale=self.targets.best_scale(machine.residuals, scale, options.scale_prior))
        return point, replace(machine, value=self.targets.loss(machine.residuals, point.scale)[0]), slope

    def _system(self, at: RidgePoint) -> tuple[RidgeSystem, dict[int, ArrayOrTensor], ArrayOrTensor]:
        """Return the linear system, the matrices of the kernels whose widths are learned, and K, centred."""
        K, own = self._combine(at)
        return RidgeSystem.of(K, at.alpha / self.targets.weight), own, K

    def _combine(self, at: RidgePoint) -> tuple[ArrayOrTensor, dict[int, ArrayOrTensor]]:
        """Return K in double precision, and the matrices of the kernels whose widths are learned."""
        fixed = at.weights.copy()
        fixed[list(self.widths)] = 0.0
        K = combined_matrix(self.stack, fixed)
        own = {m: one.matrix(at.log_widths[m]) for m, one in self.widths.items()}
        for m, matrix in own.items():
            backend_of(K).add_scaled(K, matrix, float(at.weights[m]))
        return K, own


class LevelSearch:
    """Looks for a minimum of a function of one variable by its slopes.

    Steps are those of Newton with the secant of the last two slopes. They are at most two long, and bisect where they
    would leave the interval that is known to hold a minimum.

    Parameters
    ----------
    lowest, highest : float
        The range of the variable.
    curvature : float
        The second derivative to start with.
    """

    longest_step = 2.0

    def __init__(self, lowest: float, highest: float, curvature: float) -> None:
        self.lowest, self.highest, self.curvature = lowest, highest, curvature
        self.point = self.slope = np.nan
        # The function falls at the lower end, and rises at the upper one.
        self.lower, self.upper = -np.inf, np.inf

    def record(self, point: float, slope: float) -> float:
        """Take note of the slope at a point, and return what of it does not lead out of the range."""
        moved = point - self.point
        if np.isfinite(moved) and moved != 0:
            self.curvature = (slope - self.slope) / moved
        self.point, self.slope = point, slope
        if slope < 0:
            self.lower = point
            if self.upper <= point:
                self.upper = np.inf
        else:
            self.upper = point
            if self.lower >= point:
                self.lower = -np.inf
        leads_out = (point <= self.lowest and slope > 0) or (point >= self.highest and slope < 0)
        return 0.0 if leads_out else slope

    def next_point(self) -> float:
        """Return where the slope is to be looked at next."""
        step = -self.longest_step * float(np.sign(self.slope))
        if self.curvature > 0:
            step = float(np.clip(-self.slope / self.curvature, -self.longest_step, self.longest_step))
        following = self.point + step
        if not self.lower < following < self.upper:
            following = 0.5 * (self.lower + self.upper)
        return float(np.clip(following, self.lowest, self.highest))


class FeatureForm:
    """The criterion by features K_m = Z_m Z_mᵀ: n r² operations, and r³ for the evidence once ZᵀZ is known.

    With Φ and B of `FeatureInverse` the outputs are Φ B Φᵀ diag(w) Y, and A Φ J = diag(w) Φ B J. The leave-one-out
    errors of `rows` are judged; every sample is learned from.
    """

    def __init__(
        self,
        stack: FeatureStack,
        targets: RidgeTargets,
        criterion: str,
        most_rows: int = RidgeOptions.left_out_rows,
        least_groups: int = RidgeOptions.left_out_groups,
    ) -> None:
        self.stack, self.targets, self.criterion = stack, targets, criterion
        Y, weight, n = targets.Y, targets.weight, stack.n_samples
        self.factors = stack.factors(np.ones(stack.n_kernels))
        self.normal = stack.backend.asarray(self.factors.normal_matrix(weight, precise=True))
        weighted = weight[:, np.newaxis] * Y
        self.right = np.vstack([self.factors.adjoint(weighted), weighted.sum(axis=0)])
        self.square = float(np.sum(weighted * Y))
        self.kernel = np.repeat(np.arange(stack.n_kernels), stack.widths)
        if targets.groups is None:
            self.groups = None
            self.rows = targets.spread(most_rows)
        else:
            order, labels = targets.content_order, targets.labels
            numbers = choose_groups(order, targets.groups, min(n, most_rows), least_groups, labels)
            self.groups = [targets.groups[number] for number in numbers]
            self.rows = np.concatenate(self.groups)
        self.judged = with_constant(self.factors, self.rows) if criterion == "loo" else None
        labels = None if targets.labels is None else targets.labels[self.rows]
        self.left_out = RidgeTargets(targets.Y[self.rows], targets.weight[self.rows], labels)

    def _solve(self, weights: Array, alpha: float) -> tuple[FeatureInverse, Array, Array]:
        """Return B, Φᵀ diag(w) Y and θ = B Φᵀ diag(w) Y."""
        backend = self.stack.backend
        inverse = FeatureInverse.of(self.normal, weights[self.kernel], self.targets.weight, alpha)
        b = backend.to_numpy(inverse.root)[:, np.newaxis] * self.right
        return inverse, b, backend.to_numpy(inverse.B @ backend.asarray(b))

    def judge(self, at: RidgePoint) -> Judged:
        inverse, b, theta = self._solve(at.weights, at.alpha)
        if self.criterion == "evidence":
            return self._evidence(inverse, b, theta)
        return self._left_out(inverse, at.scale, theta)

    def _evidence(self, inverse: FeatureInverse, b: Array, theta: Array) -> Judged:
        (n, c), alpha, R = self.targets.Y.shape, inverse.alpha, len(theta) - 1
        # Rounding may leave nothing of targets without noise.
        fit = max(self.square - float(np.sum(b * theta)), np.finfo(float).eps * self.square, 1e-30) / alpha
        value, s2 = evidence_value(fit, inverse.log_det, n, c)
        own = 1.0 - alpha * self.stack.backend.to_numpy(inverse.B.diagonal())[:R]
        # W_mᵀ β = (Φᵀ A Y)_m = θ_m, as A W = diag(w) Φ B.
        per_feature = 0.5 * (c * own - np.sum(theta[:R] ** 2, axis=1) / s2)
        residual = (self.square - float(np.sum(b * theta)) - alpha * float(np.sum(theta[:R] ** 2))) / alpha
        slope = 0.5 * (c * (n - 1 - float(own.sum())) - residual / s2)
        return Judged(value, self._per_kernel(per_feature), slope)

    def _left_out(self, inverse: FeatureInverse, scale: float, theta: Array) -> Judged:
        t, R, backend = self.left_out, len(theta) - 1, self.stack.backend
        system, groups = inverse.system(self.judged, t.weight), _consecutive(self.groups)
        beta, w = self._coefficients(system, t.Y, theta), t.weight[:, np.newaxis]
        r = system.residuals(beta, groups)
        value, g, own = t.loss(r, scale)
        u = system.residuals(g, groups)
        squares = system.squares(w * u, w * r, groups)
        across = backend.to_numpy(system.T.T @ backend.asarray(w * u))
        per_feature = squares[:R] - np.sum(across[:R] * theta[:R], axis=1)
        # Σ ridge_i (A u)_i β_i = Σ u_i (β_i − w_i T_i Φᵀβ), where Φᵀβ is θ but for the constant, which is zero.
        moved = float(np.sum(u * beta)) - float(np.sum(across[:R] * theta[:R]))
        slope = float(np.sum(g * r)) - float(squares[:R].sum()) - moved
        return Judged(value, self._per_kernel(per_feature), slope, own)

    def _per_kernel(self, features: Array) -> Array:
        return np.bincount(self.kernel, features, self.stack.n_kernels).astype(np.float64)

    def _parts(self) -> Iterator[tuple[Indices, Groups]]:
        """Yield all samples in parts, or all groups, with the numbers of the samples of both."""
        if self.targets.groups is None:
            every = np.arange(self.stack.n_samples)
            yield from ((every[part], None) for part in self.stack.strips(copied=True))
            return
        groups = self.targets.groups
        ends = np.cumsum([len(S) for S in groups])
        most = max(self.stack.options.strip_bytes // (8 * len(self.normal)), 1)
        cuts = np.flatnonzero(np.diff(ends // most)) + 1
        for i, j in pairwise([0, *cuts.tolist(), len(groups)]):
            yield np.concatenate(groups[i:j]), groups[i:j]

    def _coefficients(self, system: FeatureSystem, Y: Array, theta: Array) -> Array:
        """Return β = (Y − Φθ) w/α of the samples of a system."""
        outputs = self.stack.backend.to_numpy(system.Phi @ self.stack.backend.asarray(theta))
        return np.asarray((system.weight / system.alpha)[:, np.newaxis] * (Y - outputs))

    def machine(self, at: RidgePoint) -> RidgeMachine:
        t, (inverse, _, theta) = self.targets, self._solve(at.weights, at.alpha)
        beta, residuals = np.empty_like(t.Y), np.empty_like(t.Y)
        for rows, groups in self._parts():
            system = inverse.system(with_constant(self.factors, rows), t.weight[rows])
            beta[rows] = self._coefficients(system, t.Y[rows], theta)
            residuals[rows] = system.residuals(beta[rows], _consecutive(groups))
        # The sums of a kernel without a weight are not read.
        root = self.stack.backend.to_numpy(inverse.root)[:-1, np.newaxis]
        sums = theta[:-1] / np.where(root > 0, root, 1.0)
        value = self.judge(at).value if self.criterion == "evidence" else t.loss(residuals, at.scale)[0]
        found = RidgeMachine(beta=beta, intercept=theta[-1], residuals=residuals, value=value)
        return replace(found, sums=sums, covariance=inverse.covariance())

    def residuals_left_out(self, at: RidgePoint) -> Array:
        """Return the residuals of samples left out."""
        return self.machine(at).residuals

    def covariance(self, weights: Array, alpha: float) -> Array:
        """Return that of `FeatureInverse`."""
        return self._solve(weights, alpha)[0].covariance()


def _consecutive(groups: Groups) -> Groups:
    """Return where the samples of groups are once all are put one after the other."""
    return groups and np.split(np.arange(sum(map(len, groups))), np.cumsum([len(S) for S in groups[:-1]]))


@dataclass(frozen=True)
class LeftOutPairs:
    """The machine of all pairs, and what is known of pairs left out.

    Attributes
    ----------
    beta, probed : ndarray of shape (n, c) and (n, s)
        A times the targets, and A times the random signs.
    residuals : ndarray of shape (n, c)
        Of pairs left out.
    tau : float
        The mean of A_ii / w_i.
    unsolved : float
        The largest relative residual of the linear systems.
    """

    beta: Array
    probed: Array
    residuals: Array
    tau: float
    unsolved: float


class PairForm:
    """The criterion by products with kernels of pairs: conjugate gradients, and traces by random signs.

    A is not written down, and so its diagonal is not known: A_ii counts as w_i τ, where τ is the mean of A_ii / w_i, as
    in generalised cross-validation. τ = Σ_j z_jᵀ A z_j / (n s) of s vectors z_j of random signs over √w, which stay the
    same during a search: what is minimised is a smooth function, and its slopes are exact.
    """

    def __init__(self, stack: PairStack, targets: RidgeTargets, options: RidgeOptions) -> None:
        if options.criterion != "loo":
            raise ValueError(
                f"criterion={options.criterion!r}: {stack.form}, but the evidence needs a matrix of all pairs; use "
                "criterion='loo'."
            )
        if targets.groups is not None:
            raise ValueError(
                f"groups: {stack.form}, so groups of pairs cannot be left out together; choose alpha by "
                "cross-validation with PairSplit, or fit to fewer pairs."
            )
        self.stack, self.targets = stack, targets
        count = min(max(2, -(-options.probe_signs // stack.n_samples)), options.most_probes)
        signs = np.random.RandomState(0).choice([-1.0, 1.0], (stack.n_samples, count))
        self.probes = signs / np.sqrt(targets.weight)[:, np.newaxis]
        self.options = options
        self.accuracy = BlockOptions(cg_steps=options.product_steps, cg_tol=options.product_tol)
        #: The largest α / Σ η so far at which the members' preconditioner left a system unsolved.
        self.unsolved_ridge = 0.0

    def _solve(self, gram: PairGram, at: RidgePoint, right: Array) -> tuple[Array, Array]:
        """Return A times the right-hand sides, and the relative residuals.

        The preconditioner of the members costs next to nothing, and is enough where the ridge is not small. Where it
        was not, systems of the same search with a ridge as small have the strong one at once.
        """
        ridge, options = at.alpha / self.targets.weight, self.options
        relative_ridge = at.alpha / float(at.weights.sum())

        def times(p: Array) -> Array:
            return np.asarray(gram.products(p) + ridge[:, np.newaxis] * p)

        def solve(near: Callable[[Array], Array], start: Array | None, rounds: int) -> tuple[Array, Array]:
            goal = options.product_residual
            return solve_to_residual(times, near, right, self.accuracy, goal, start=start, rounds=rounds)

        solution = None
        if relative_ridge > self.unsolved_ridge:
            solution, residuals = solve(gram.preconditioner(ridge), None, 1)
            if np.all(residuals <= options.product_residual):
                return solution, residuals
            self.unsolved_ridge = relative_ridge
        return solve(gram.strong_preconditioner(ridge), solution, options.product_rounds)

    def _left_out(self, gram: PairGram, at: RidgePoint) -> LeftOutPairs:
        """Return the machine of all pairs, and the residuals of pairs left out."""
        t = self.targets
        solution, unsolved = self._solve(gram, at, np.column_stack([t.Y, self.probes]))
        beta, probed = np.split(solution, [t.Y.shape[1]], axis=1)
        tau = max(float(np.sum(self.probes * probed)) / probed.size, np.finfo(float).tiny)
        residuals = beta / (tau * t.weight[:, np.newaxis])
        return LeftOutPairs(beta, probed, residuals, tau, float(unsolved.max()))

    def judge(self, at: RidgePoint) -> Judged:
        t, ridge, gram = self.targets, (at.alpha / self.targets.weight)[:, np.newaxis], self._combine(at)
        pairs = self._left_out(gram, at)
        beta, U, r, tau = pairs.beta, pairs.probed, pairs.residuals, pairs.tau
        value, g, in_scale = t.loss(r, at.scale)
        H, _ = self._solve(gram, at, g / (tau * t.weight[:, np.newaxis]))
        # dβ = −A dM β and dτ = −Σ_j u_jᵀ dM u_j / (n s).
        share = float(np.sum(g * r)) / (tau * U.size)
        slopes = share * self.stack.bilinear_forms(U, U) - self.stack.bilinear_forms(H, beta)
        in_alpha = share * float(np.sum(ridge * U * U)) - float(np.sum(ridge * H * beta))
        return Judged(value, at.weights * slopes, in_alpha, in_scale)

    def residuals_left_out(self, at: RidgePoint) -> Array:
        """Return the residuals of pairs left out, as `_left_out` approximates them."""
        return self._left_out(self._combine(at), at).residuals

    def machine(self, at: RidgePoint) -> RidgeMachine:
        t, gram = self.targets, self._combine(at)
        pairs = self._left_out(gram, at)
        missed = t.Y - gram.products(pairs.beta) - (at.alpha / t.weight)[:, np.newaxis] * pairs.beta
        is_solved = pairs.unsolved <= self.options.product_residual
        return RidgeMachine(
            beta=pairs.beta,
            intercept=missed.mean(axis=0),
            residuals=pairs.residuals,
            value=t.loss(pairs.residuals, at.scale)[0],
            unsolved=0.0 if is_solved else pairs.unsolved,
        )

    def _combine(self, at: RidgePoint) -> PairGram:
        return cast(PairGram, self.stack.combine(at.weights))


#: What judges weights, ridge and widths (`judge`), and returns the machine in the end (`machine`).
RidgeForm = MatrixForm | FeatureForm | PairForm


class RidgeProblem:
    """The criterion with its priors, as a function of the logarithms of weights, ridge, scale and widths."""

    def __init__(
        self, form: RidgeForm, options: RidgeOptions, widths: Mapping[int, RadialWidths] | None = None
    ) -> None:
        self.form, self.n_kernels, self.options = form, form.stack.n_kernels, options
        # What the log-loss multiplies outputs with.
        self.has_scale = options.criterion == "loo" and form.targets.labels is not None
        self.widths, self.least_ridge = dict(widths or {}), options.least_ridge * form.targets.Y.shape[0]

    def read(self, x: Array) -> RidgePoint:
        """Return the parameters."""
        P = self.n_kernels
        ends = np.cumsum([len(one.start) for one in self.widths.values()])
        parts = np.split(x[P + 2 :], ends[:-1]) if len(ends) else []
        widths = dict(zip(self.widths, parts, strict=True))
        weights = np.exp(x[:P])
        alpha = float(np.exp(x[P])) + self.least_ridge * float(weights.sum())
        return RidgePoint(weights, alpha, float(np.exp(x[P + 1])), widths)

    def value(self, x: Array) -> tuple[float, Array]:
        """Return the criterion with its priors, and its slopes."""
        at = self.read(x)
        found, (prior, pull) = self.form.judge(at), self.prior(x)
        by_weights = found.weights + found.alpha * self.least_ridge * at.weights / at.alpha
        in_alpha = found.alpha * float(np.exp(x[self.n_kernels])) / at.alpha
        in_scale = found.scale if self.has_scale else 0.0
        return found.value + prior, np.concatenate([by_weights, [in_alpha, in_scale], *found.widths]) + pull

    def machine(self, x: Array, found: RidgeMachine) -> dict[str, Any]:
        """Return the fields of the machine at x, the priors added to its criterion."""
        return vars(replace(found, value=found.value + self.prior(x)[0]))

    def at_mode_of_prior(self, x: Array, free: Mask) -> Array:
        """Return x with the logarithms of weights, ridge and scale that are free at their largest prior."""
        P = self.n_kernels
        mode = x.copy()
        mode[: P + 2] = [*np.full(P, -np.log(P)), self.options.alpha_mean, 0.0]
        return np.where(free, mode, x)

    def prior(self, x: Array) -> tuple[float, Array]:
        """Return the priors, in nats, and their slopes."""
        P, o = self.n_kernels, self.options
        with np.errstate(invalid="ignore"):
            off = np.where(np.isfinite(x[:P]), x[:P] + np.log(P), 0.0)
        apart = np.concatenate([off, [x[P] - o.alpha_mean, x[P + 1]]])
        strength = np.concatenate([np.full(P, o.weight_prior), [o.alpha_prior, o.scale_prior * self.has_scale]])
        value, pull = float(strength @ apart**2), [2.0 * strength * apart]
        log_widths_of_kernels = self.read(x).log_widths if self.widths else {}
        for m, log_widths in log_widths_of_kernels.items():
            mean = float(log_widths.mean())
            off, moved = log_widths - mean, mean - float(self.widths[m].start.mean())
            value += o.column_prior * float(off @ off) + o.width_prior * moved**2
            pull.append(2.0 * (o.column_prior * off + o.width_prior * moved / len(off)))
        return value, np.concatenate(pull)
