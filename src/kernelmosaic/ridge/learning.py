"""Weights, ridge, scale and widths of the least-squares machine by leave-one-out error or evidence.

The parameters are the logarithms of the weights η ≥ 0, of the ridge α, for the log-loss of
leave-one-out outputs of the scale a, and of the widths ℓ of kernels whose widths are learned. The
weights are not normalised: their size relative to α is learned. Weak priors keep all of them
finite. The problem is not convex: `stationarity` is the largest derivative at the end.

`RidgeProblem` is the criterion with its priors, `search_ridge` minimises it by L-BFGS-B, and
`learn_from_subset` learns weights from some samples and the ridge from all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from kernelmosaic._typing import Array, ArrayOrTensor, Indices, Mask
from kernelmosaic.backend import backend_of, threads_for
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.stack import GramStack, MatrixStack, StoredStack
from kernelmosaic.kernels.numeric import RadialWidths
from kernelmosaic.ridge import tuning
from kernelmosaic.row_order import choose_groups, spread_rows
from kernelmosaic.solvers.least_squares import (
    FeatureForm,
    Judged,
    Loss,
    MatrixForm,
    MatrixLeastSquares,
    RidgeMachine,
    RidgePoint,
    centre,
    class_loss,
    consecutive,
    evidence_diagonal,
    squared_loss,
)


@dataclass(frozen=True)
class RidgeOptions:
    """The criterion, its priors, and how the search for its minimum starts and ends.

    No benchmark varies these numbers one by one; where no reason stands below, they were chosen by
    hand.

    Attributes
    ----------
    criterion : {"loo", "evidence"}
        Leave-one-out error (squares; log-loss if there are labels), or evidence.
    tol : float
        The search stops at this stationarity.
    max_iter : int
        Largest number of steps.
    n_init : int
        Number of ridges to start from, if no start is given. The best after `first_steps` steps is
        followed.
    weight_prior, alpha_prior, scale_prior : float
        Strengths of the priors, in nats per squared unit: on log η about equal weights of sum one,
        on log α about `alpha_mean`, on log a about zero.
    width_prior, column_prior : float
        Strengths of the priors on the mean of a kernel's log ℓ about its start, and on the log ℓ of
        single columns about their mean.
    alpha_mean : float
        Where the prior of log α is centred.
    first_alpha, first_scale : float
        α and a to start from.
    first_steps : int
        Steps from every start before one is chosen.
    least_ridge : float
        A learned α is at least this fraction of the sum of the weights times the number of samples;
        see `tuning.LEAST_RIDGE`.
    range, width_range : tuple of float
        Least and largest logarithm; of widths, relative to their start. Beyond, rounding hides the
        effect of a parameter.
    left_out_rows, left_out_groups : int
        In features, largest number of samples, evenly spread, whose leave-one-out errors are
        minimised: weights and ridge are few next to them. The machine is that of all samples. Where
        groups are left out, at least so many groups are judged.
    gradient_samples : int
        The largest derivative is divided by the number of samples, or by this number if there are
        more, before it is compared with `tol`. A criterion is a sum over samples, and the
        improvement that a derivative of some nats leaves does not grow with their number.
    width_rows : int
        Largest number of samples, evenly spread, that widths are learned from. Weights and ridge
        are learned from all.
    first_rows : int
        Several starts are tried on a third of the samples, if the third has at least so many.
    ridge_steps : int
        Where weights are learned from some samples, largest number of steps for the ridge of all.
    probe_signs, most_probes : int
        For kernels of pairs: number of random signs that a trace is estimated from, in two vectors
        at least and `most_probes` at most.
    product_steps, product_tol : int, float
        For kernels of pairs: largest number of conjugate-gradient steps of a linear system, and the
        residual at which they end, in the norm of the preconditioner.
    product_residual, product_rounds : float, int
        For kernels of pairs: the Euclidean residual of a linear system, relative to its right-hand
        side, that must be met; and how often steps with the strong preconditioner start again from
        the remaining residual.
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
    least_ridge: float = tuning.LEAST_RIDGE
    range: tuple[float, float] = (-20.0, 10.0)
    width_range: tuple[float, float] = (-4.0, 7.0)
    left_out_rows: int = 5000
    left_out_groups: int = 20
    gradient_samples: int = 300
    width_rows: int = 2000
    first_rows: int = 100
    ridge_steps: int = 15
    probe_signs: int = 16_000
    most_probes: int = 20
    product_steps: int = 400
    product_tol: float = 1e-4
    product_residual: float = 1e-3
    product_rounds: int = 3

    def gradient_count(self, targets: RidgeTargets) -> float:
        """Return the number by which the largest derivative is divided; see `gradient_samples`."""
        return min(float(targets.weight.sum()), self.gradient_samples)


DEFAULTS = RidgeOptions()


def centre_and_unit(Y: ArrayOrTensor, weight: Array) -> tuple[Array, Array]:
    """Return the weighted mean and standard deviation of every target.

    The deviation of a constant target is given as one.

    Parameters
    ----------
    Y : array or tensor of shape (n, T)
        Targets, on the host or a device.
    weight : ndarray of shape (n,)
        Weights of the samples.

    Returns
    -------
    mean, unit : ndarray of shape (T,)
    """
    backend = backend_of(Y)
    lowest = np.asarray(backend.to_numpy(backend.xp.amin(Y, 0)))
    highest = np.asarray(backend.to_numpy(backend.xp.amax(Y, 0)))
    # Squares of large numbers overflow, so targets are divided by their largest size first.
    largest = np.maximum(np.maximum(-lowest, highest), np.finfo(float).tiny)
    Z = Y / backend.asarray(largest)
    fraction = backend.asarray(weight / weight.sum())
    mean = fraction @ Z
    deviation = np.sqrt(backend.to_numpy(fraction @ (Z - mean) ** 2))
    unit = np.where(highest > lowest, deviation * largest, 1.0)
    return largest * backend.to_numpy(mean), unit


@dataclass(frozen=True)
class RidgeTargets:
    """Targets of the machine, and the loss of its outputs for samples left out.

    Attributes
    ----------
    Y : ndarray of shape (n, c)
        Numbers; ±1 for two classes; indicators of several.
    weight : ndarray of shape (n,)
        Weights of the samples; their mean is one.
    labels : ndarray of shape (n,) or None
        The classes, if the loss is their log-loss.
    groups : sequence of ndarray or None
        Samples that are left out together.
    mean, unit : ndarray of shape (c,), or float
        The targets as they were given are mean + unit · Y.
    weight_unit : float
        The weights as they were given are weight_unit · weight. A common factor of all weights says
        nothing about how much was observed. The ridge α in units of the given weights is
        weight_unit times that of the machine.
    order : ndarray of shape (n,) or None
        The samples as `content_order` of `row_order` sorts them; None if it was not computed.
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
        """Return numbers of shape (n, c) as standardised targets."""
        mean, unit = centre_and_unit(Y, weight)
        weight_unit = float(weight.mean())
        return cls(
            (Y - mean) / unit, weight / weight_unit, mean=mean, unit=unit, weight_unit=weight_unit
        )

    @classmethod
    def of_classes(cls, labels: Indices, weight: Array) -> RidgeTargets:
        """Return classes, which are numbered from 0, as ±1 or as indicators."""
        Y = np.eye(int(labels.max()) + 1)[labels]
        if Y.shape[1] == 2:
            Y = 2.0 * Y[:, 1:] - 1.0
        weight_unit = float(weight.mean())
        return cls(Y, weight / weight_unit, labels, weight_unit=weight_unit)

    def loss(self, r: Array, scale: float) -> tuple[float, Array, float]:
        """Return the loss of residuals of samples left out, and its derivatives.

        Parameters
        ----------
        r : ndarray of shape (n, c)
            The residuals.
        scale : float
            The scale a of outputs; only the log-loss has it.

        Returns
        -------
        value : float
        gradient : ndarray of shape (n, c)
            The derivatives in the residuals.
        in_scale : float
            The derivative in log a.
        """
        if self.labels is None:
            return *squared_loss(r, self.weight), 0.0
        return class_loss(r, self.Y, self.labels, scale, self.weight)

    def best_scale(self, r: Array, scale: float, prior: float) -> float:
        """Return the scale a that minimises the log-loss of residuals and its prior.

        Numbers have no scale: for them `scale` is returned. `prior` is its strength in nats.
        """
        if self.labels is None:
            return scale

        def value(log_scale: float) -> float:
            return self.loss(r, float(np.exp(log_scale)))[0] + prior * log_scale**2

        best = minimize_scalar(value, bounds=tuning.SCALE_RANGE, method="bounded")
        return float(np.exp(best.x))

    def take(self, rows: Indices) -> RidgeTargets:
        """Return the targets of some samples, whose numbers ascend."""
        n = len(self.Y)
        is_taken = np.zeros(n, dtype=bool)
        is_taken[rows] = True
        new_number = np.cumsum(is_taken) - 1
        groups = order = labels = None
        if self.groups is not None:
            taken_groups = (new_number[S[is_taken[S]]] for S in self.groups)
            groups = [S for S in taken_groups if len(S)]
        if self.order is not None:
            order = new_number[self.order[is_taken[self.order]]]
        if self.labels is not None:
            labels = self.labels[rows]
        return replace(
            self,
            Y=self.Y[rows],
            weight=self.weight[rows],
            labels=labels,
            groups=groups,
            order=order,
        )

    @property
    def content_order(self) -> Indices:
        """The samples in an order that does not depend on how they are numbered.

        Without `order` it is the order in which they are numbered.
        """
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
        """The number of groups, or of samples if every sample is left out alone."""
        return len(self.Y) if self.groups is None else len(self.groups)

    def spread(self, count: int) -> Indices:
        """Return the numbers of about `count` samples, evenly spread over sorted targets.

        Every class and every group has some of them.
        """
        categories: list[Indices] = []
        values: Array | Indices = self.Y[:, 0]
        if self.labels is not None:
            values = self.labels
            categories.append(self.labels)
        if self.group_numbers is not None:
            categories.append(self.group_numbers)
        return spread_rows(self.content_order, count, values, *categories)


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
    """The machine that was learned; its `value` includes the priors.

    Attributes
    ----------
    weights, alpha, scale : ndarray of shape (P,), float, float
        η, α and a.
    widths : dict of int to ndarray
        ℓ of every kernel whose widths were learned.
    stationarity : float
        The largest derivative in the logarithms, divided by `RidgeOptions.gradient_count`.
    history : list of float
        The values of all evaluations.
    first : RidgeStart
        Where the search started.
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
    stack: MatrixStack | FeatureStack,
    targets: RidgeTargets,
    *,
    options: RidgeOptions = DEFAULTS,
    **parameters: Any,
) -> RidgeLearned:
    """Return the machine at the minimum that `search_ridge` finds, which has the parameters."""
    return search_ridge(stack, targets, options=options, **parameters).learned()


@dataclass(frozen=True)
class RidgeSearch:
    """The end of a search for weights, ridge, scale and widths.

    Attributes
    ----------
    problem : RidgeProblem
        The function that was minimised.
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
        """Return the machine at the end, with the parameters there."""
        point = self.point
        return RidgeLearned(
            **vars(self.problem.with_prior(self.x, self.problem.machine(point))),
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
    """Return the end of the search for the minimum of the criterion with its priors.

    Quasi-Newton steps are taken in the logarithms of weights, ridge, scale and widths.

    Widths for numbers are learned with everything else. Those for classes are learned last, from
    the minimum at the widths they start from, and stay there if learning them lowers the criterion
    by less than one nat per width: such a gain is chance.

    A single sample has no leave-one-out error, and two have the same one whatever the kernel: a
    constant. Only the priors count then, and the weights are equal, as at their mode.

    Parameters
    ----------
    stack : MatrixStack or FeatureStack
        The kernels.
    targets : RidgeTargets
        Targets, weights and groups of the samples.
    alpha, weights : float, ndarray of shape (P,), optional
        A fixed ridge or fixed weights.
    ties : ndarray of shape (P, k), optional
        Weights that are products of others: log η is changed by ties @ z alone, and z is learned.
    widths : dict of int to RadialWidths, optional
        The kernels of the stack that have widths to learn.
    start : RidgeLearned or RidgeStart, optional
        Where to start. By default the search starts at equal weights, with the best of
        `RidgeOptions.n_init` ridges.
    options : RidgeOptions
        The criterion, its priors, where to start and when to stop.

    Returns
    -------
    RidgeSearch
    """
    P = stack.n_kernels
    widths = dict(widths or {})
    problem = make_ridge_problem(stack, targets, widths, options)

    # 1. The first point x (log η, log α, log a, log ℓ), the range of its entries, and which of them
    # are free. A given fit is continued at its end; its own start stands in the result.
    if start is None:
        start = _learn_start(problem, alpha, weights)
    first_start = _first_start(start, P, options)
    logs = start.logs() if isinstance(start, RidgeLearned) else first_start.logs(P)
    x = np.concatenate([logs, *(kernel_widths.start for kernel_widths in widths.values())])
    is_width = np.arange(len(x)) >= P + 2
    is_free = ~is_width | (targets.labels is None)
    lowest = np.where(is_width, x + options.width_range[0], options.range[0])
    highest = np.where(is_width, x + options.width_range[1], options.range[1])
    if weights is not None:
        with np.errstate(divide="ignore"):
            x[:P] = np.log(weights)
        is_free[:P] = False
    if alpha is not None:
        x[P] = np.log(alpha)
        is_free[P] = False
        problem.least_ridge = 0.0
    is_free[P + 1] = problem.has_scale
    if stack.n_samples == 1:
        mode = problem.at_mode_of_prior(x, is_free)
        return RidgeSearch(problem, mode, 0.0, [], first_start)
    descent = _Descent(problem, lowest, highest, ties)

    # 2. A few steps from several ridges, smaller and larger ones in turn; the best is followed.
    if start is None and is_free[P] and options.n_init > 1:
        first_steps = min(options.first_steps, options.max_iter)
        factors = []
        reached = []
        for k in range(options.n_init):
            factor = tuning.RATIO_OF_STARTS ** ((-1) ** k * ((k + 1) // 2))
            shifted = x.copy()
            shifted[P] += np.log(factor)
            factors.append(factor)
            reached.append(descent.minimise(shifted, is_free, first_steps))
        best = int(np.argmin([end.value for end in reached]))
        x = reached[best].x
        first_start = replace(first_start, alpha=first_start.alpha * factors[best])

    # 3. All free entries.
    largest_derivative = 0.0
    if is_free.any():
        end = descent.minimise(x, is_free, options.max_iter)
        x = end.x
        largest_derivative = end.largest_derivative

    # 4. The widths for classes, with everything else, if they gain more than a nat each.
    if is_width.any() and targets.labels is not None:
        value_before = problem.value(x)[0]
        end = descent.minimise(x, is_free | is_width, options.max_iter)
        if value_before - end.value > is_width.sum():
            x = end.x
            largest_derivative = end.largest_derivative

    stationarity = largest_derivative / options.gradient_count(targets)
    return RidgeSearch(problem, x, stationarity, descent.history, first_start)


@dataclass(frozen=True)
class _DescentEnd:
    """The end of some quasi-Newton steps.

    Attributes
    ----------
    x : ndarray
        The logarithms.
    value : float
        The criterion with its priors.
    largest_derivative : float
        In size, without derivatives that lead out of the range of a parameter.
    """

    x: Array
    value: float
    largest_derivative: float


class _Descent:
    """Quasi-Newton steps in the free logarithms of a problem, within their ranges.

    Parameters
    ----------
    problem : RidgeProblem
        The function to minimise.
    lowest, highest : ndarray
        The range of every logarithm.
    ties : ndarray of shape (P, k) or None
        As for `search_ridge`.

    Attributes
    ----------
    history : list of float
        The values of all evaluations.
    """

    def __init__(
        self, problem: RidgeProblem, lowest: Array, highest: Array, ties: Array | None
    ) -> None:
        self.problem = problem
        self.lowest = lowest
        self.highest = highest
        self.ties = ties
        self.history: list[float] = []

    def minimise(self, x: Array, is_free: Mask, max_steps: int) -> _DescentEnd:
        """Return the end of at most `max_steps` steps of L-BFGS-B in the free entries of x."""
        problem = self.problem
        options = problem.options
        x = np.where(is_free, np.clip(x, self.lowest, self.highest), x)
        directions, bounds = self._directions(x, is_free)

        def value(lengths: Array) -> tuple[float, Array]:
            criterion, gradient = problem.value(x + directions @ lengths)
            self.history.append(criterion)
            return criterion, directions.T @ gradient

        samples = options.gradient_count(problem.targets)
        result = minimize(
            value,
            np.zeros(directions.shape[1]),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds.T,
            options={
                "maxiter": max_steps,
                "gtol": options.tol * samples,
                "ftol": tuning.ROUNDING_OF_VALUE,
                "maxcor": tuning.STEPS_REMEMBERED,
            },
        )
        # At a bound, a derivative counts only if the criterion falls towards the inside.
        # L-BFGS-B may stop for another reason than `gtol`, so the largest one is computed here.
        derivatives = np.where(result.x <= bounds[0], np.minimum(result.jac, 0.0), result.jac)
        derivatives = np.where(result.x >= bounds[1], np.maximum(derivatives, 0.0), derivatives)
        largest_derivative = float(np.abs(derivatives).max(initial=0.0))
        return _DescentEnd(x + directions @ result.x, float(result.fun), largest_derivative)

    def _directions(self, x: Array, is_free: Mask) -> tuple[Array, Array]:
        """Return the directions in which x may move, and the range of the steps along them.

        A direction moves one logarithm, or the log weights that a column of `ties` holds together.

        Returns
        -------
        directions : ndarray of shape (len(x), d)
        bounds : ndarray of shape (2, d)
        """
        ties = self.ties
        P = self.problem.n_kernels
        moves_alone = is_free & ((ties is None) | (np.arange(len(x)) >= P))
        directions = np.eye(len(x))[:, moves_alone]
        bounds = np.array([self.lowest - x, self.highest - x])[:, moves_alone]
        if ties is None:
            return directions, bounds
        least, largest = self.problem.options.range
        half_range = np.full((2, ties.shape[1]), 0.5 * (largest - least))
        tied_bounds = half_range * [[-1.0], [1.0]]
        tied_directions = np.vstack([ties, np.zeros((len(x) - P, ties.shape[1]))])
        return np.hstack([directions, tied_directions]), np.hstack([bounds, tied_bounds])


def learn_from_subset(
    stack: MatrixStack,
    targets: RidgeTargets,
    rows: Indices,
    options: RidgeOptions,
    **parameters: Any,
) -> RidgeLearned:
    """Return the machine of all samples with weights that are learned from some of them.

    The ridge is that of all samples, unless it is given. The `stationarity` is the larger one of
    that of the search on some samples and of the derivative in log α on all samples.

    Parameters
    ----------
    stack : MatrixStack
        The kernels of all samples.
    targets : RidgeTargets
        The targets of all samples.
    rows : ndarray
        Ascending numbers of the samples that weights are learned from.
    options : RidgeOptions
        The criterion and its priors.
    **parameters
        Further parameters of `search_ridge`.
    """
    subset_stack = stack.take(rows, stored=True)
    subset_targets = targets.take(rows)
    alpha_is_given = parameters.get("alpha") is not None
    with threads_for(len(rows)):
        subset_fit = learn_ridge(subset_stack, subset_targets, **parameters, options=options)
        point = RidgePoint(subset_fit.weights, subset_fit.alpha, subset_fit.scale, {})
        curvature = 0.0
        if not alpha_is_given:
            subset_problem = matrix_problem(subset_stack, subset_targets, options)
            curvature = ridge_curvature(subset_problem, point)
    problem = matrix_problem(stack, targets, options)
    if alpha_is_given:
        machine = problem.machine(point)
        stationarity = subset_fit.stationarity
    else:
        curvature *= float(targets.weight.sum() / subset_targets.weight.sum())
        point, machine, derivative = relearn_ridge(problem, point, curvature)
        ridge_stationarity = abs(derivative) / options.gradient_count(targets)
        stationarity = max(subset_fit.stationarity, ridge_stationarity)
    learned = replace(subset_fit, alpha=point.alpha, scale=point.scale, stationarity=stationarity)
    return replace(learned, **vars(problem.with_prior(learned.logs(), machine)))


def _first_start(
    start: RidgeLearned | RidgeStart | None, n_kernels: int, options: RidgeOptions
) -> RidgeStart:
    """Return the given start, the one that a given fit started from, or that of the options."""
    if isinstance(start, RidgeStart):
        return start
    if isinstance(start, RidgeLearned):
        return start.first
    return RidgeStart(
        1.0 / n_kernels, float(np.exp(options.first_alpha)), float(np.exp(options.first_scale))
    )


def _learn_start(
    problem: RidgeProblem, alpha: float | None, weights: Array | None
) -> RidgeStart | None:
    """Return equal weights with the ridge and scale of at most a third of the samples.

    The linear systems of the third cost a 27th. Its weights are not used: on some data they lead to
    a larger criterion of all samples. The result is None where a start on a third is not worth its
    cost or not possible: with few samples, without matrices, where widths are learned, where the
    ridge is given, and where only one start is to be tried.
    """
    form = problem.form
    targets = problem.targets
    options = problem.options
    if options.n_init == 1 or alpha is not None:
        return None
    if not isinstance(form, MatrixForm) or form.widths:
        return None
    stack = form.stack
    count = min(stack.n_samples // 3, stack.part_samples)
    if count < options.first_rows:
        return None
    rows = targets.spread(count)
    third = stack.take(rows, stored=True)
    point = search_ridge(third, targets.take(rows), weights=weights, options=options).point
    return RidgeStart(float(point.weights.mean()), point.alpha, point.scale)


def make_ridge_problem(
    stack: MatrixStack | FeatureStack,
    targets: RidgeTargets,
    widths: Mapping[int, RadialWidths],
    options: RidgeOptions,
) -> RidgeProblem:
    """Return the criterion in the form that suits the stack.

    It is computed from products for kernels that cannot be factorised, from features if there are
    fewer of them than samples, else from matrices.
    """
    if not stack.can_be_factorised:
        return problem_by_products(stack, targets, options)
    if stack.widths is None:
        return matrix_problem(stack.for_many_combinations(), targets, options, widths)
    if stack.n_samples <= int(np.sum(stack.widths)):
        # Matrices are smaller than features here, and keep more digits of residuals near zero.
        features = dict(stack.features(slice(0, stack.n_samples), range(stack.n_kernels)))
        exact = [features[m].astype(np.float64) for m in range(stack.n_kernels)]
        matrices = StoredStack(np.array([Z @ Z.T for Z in exact]))
        return matrix_problem(matrices.for_many_combinations(), targets, options, widths)
    return feature_problem(stack, targets, options)


@singledispatch
def problem_by_products(
    stack: GramStack, targets: RidgeTargets, options: RidgeOptions
) -> RidgeProblem:
    """Return the criterion for kernels that are known by products alone.

    A family registers the function for its kind of stack.
    """
    raise NotImplementedError(f"{type(stack).__name__} has no criterion of least squares.")


def matrix_problem(
    stack: MatrixStack,
    targets: RidgeTargets,
    options: RidgeOptions,
    widths: Mapping[int, RadialWidths] | None = None,
) -> RidgeProblem:
    """Return the criterion in matrices of all pairs of samples."""
    form = MatrixForm(stack, targets.weight, targets.Y, targets.groups, dict(widths or {}))
    return RidgeProblem(form, targets, options, widths=widths)


def feature_problem(
    stack: FeatureStack, targets: RidgeTargets, options: RidgeOptions
) -> RidgeProblem:
    """Return the criterion in features.

    The leave-one-out errors are those of some samples, or of some groups, in place of all; see
    `RidgeOptions.left_out_rows`.
    """
    if options.criterion == "evidence":
        form = FeatureForm.of_targets(stack, targets.weight, targets.Y, targets.groups)
        return RidgeProblem(form, targets, options)
    row_groups = None
    if targets.groups is None:
        rows = targets.spread(options.left_out_rows)
    else:
        most_rows = min(stack.n_samples, options.left_out_rows)
        numbers = choose_groups(
            targets.content_order,
            targets.groups,
            most_rows,
            options.left_out_groups,
            targets.labels,
        )
        groups = [targets.groups[number] for number in numbers]
        rows = np.concatenate(groups)
        row_groups = consecutive(groups)
    form = FeatureForm.of_targets(
        stack, targets.weight, targets.Y, targets.groups, rows, row_groups
    )
    labels = None if targets.labels is None else targets.labels[rows]
    judged = RidgeTargets(targets.Y[rows], targets.weight[rows], labels)
    return RidgeProblem(form, targets, options, judged)


# The ridge of all samples at the weights of some --------------------------------------------------


def derivative_in_ridge(
    problem: RidgeProblem, point: RidgePoint, system: MatrixLeastSquares
) -> tuple[float, float]:
    """Return the derivative of the criterion in log α at fixed weights, and the best scale a there.

    Parameters
    ----------
    problem : RidgeProblem
        In matrices.
    point : RidgePoint
        Weights, ridge and scale.
    system : MatrixLeastSquares
        The system of the point, in single or double precision.
    """
    targets = problem.targets
    ridge = point.alpha / targets.weight
    scale = point.scale
    if problem.options.criterion == "evidence":
        diagonal = evidence_diagonal(system, targets.Y, system.solve(targets.Y))
    else:
        beta = system.times(targets.Y.astype(system.dtype)).astype(np.float64)
        r = system.residuals(beta, targets.groups)
        scale = targets.best_scale(r, scale, problem.options.scale_prior)
        _, g, _ = targets.loss(r, scale)
        diagonal = system.slope_diagonal(beta, r, g, targets.groups)
    return float(ridge @ diagonal), scale


def ridge_curvature(
    problem: RidgeProblem, point: RidgePoint, step: float = tuning.CURVATURE_STEP
) -> float:
    """Return the second derivative of the criterion in log α, by a central difference."""
    form = problem.form
    assert isinstance(form, MatrixForm)
    derivatives = []
    for sign in (-1.0, 1.0):
        trial = replace(point, alpha=point.alpha * float(np.exp(sign * step)))
        system = form.at(trial.weights, trial.alpha)
        derivatives.append(derivative_in_ridge(problem, trial, system)[0])
    return (derivatives[1] - derivatives[0]) / (2.0 * step)


def relearn_ridge(
    problem: RidgeProblem, point: RidgePoint, curvature: float
) -> tuple[RidgePoint, RidgeMachine, float]:
    """Return fixed weights with the ridge of all samples, and the machine there.

    Every step takes a factorisation. Steps end where the derivative in log α is at most
    `RidgeOptions.tol` per sample.

    Parameters
    ----------
    problem : RidgeProblem
        In matrices.
    point : RidgePoint
        The weights, and the ridge and scale to start from.
    curvature : float
        The second derivative of the criterion in log α to start with.

    Returns
    -------
    point : RidgePoint
        The weights with the new ridge and scale.
    machine : RidgeMachine
        The machine there, its value without the priors.
    derivative : float
        The derivative in log α at the last step, with the prior.
    """
    form = problem.form
    targets = problem.targets
    options = problem.options
    assert isinstance(form, MatrixForm)
    K, _ = form.combine(point)
    offset = centre(K)
    weight = targets.weight
    # Single precision is enough where its rounding is far below the ridge. Graphics processors gain
    # nothing by it.
    least_ridge_of_single = np.inf
    if backend_of(K).name == "numpy":
        least_ridge_of_single = tuning.SINGLE_PRECISION_FROM * float(np.linalg.norm(K))
    least_alpha = options.least_ridge * len(weight) * float(point.weights.sum())
    lowest = max(options.range[0], np.log(least_alpha))
    search = DerivativeSearch(lowest, options.range[1], curvature)
    log_alpha = float(np.log(point.alpha))
    scale = point.scale
    for _ in range(options.ridge_steps):
        point = replace(point, alpha=float(np.exp(log_alpha)), scale=scale)
        ridge = point.alpha / weight
        dtype = np.float32 if ridge.min() > least_ridge_of_single else np.float64
        system = MatrixLeastSquares.of_centred(K, offset, ridge, dtype)
        derivative, scale = derivative_in_ridge(problem, point, system)
        derivative += 2.0 * options.alpha_prior * (log_alpha - options.alpha_mean)
        derivative = search.record(log_alpha, derivative)
        if abs(derivative) <= options.tol * options.gradient_count(targets):
            break
        log_alpha = search.next_point()

    # The machine at the last ridge, in double precision.
    exact = MatrixLeastSquares.of_centred(K, offset, ridge)
    machine = form.solved_machine(exact, K, point, problem.loss_of(targets))
    if options.criterion == "evidence":
        return point, machine, derivative
    scale = targets.best_scale(machine.residuals, scale, options.scale_prior)
    point = replace(point, scale=scale)
    machine = replace(machine, value=targets.loss(machine.residuals, scale)[0])
    return point, machine, derivative


class DerivativeSearch:
    """A search for a minimum of a function of one variable by its derivatives.

    Steps are those of Newton with the secant of the last two derivatives. They are no longer than
    `tuning.LONGEST_STEP`, and bisect the interval that is known to hold a minimum if they would
    leave it.

    Parameters
    ----------
    lowest, highest : float
        The range of the variable.
    curvature : float
        The second derivative to start with.
    """

    def __init__(self, lowest: float, highest: float, curvature: float) -> None:
        self.lowest = lowest
        self.highest = highest
        self.curvature = curvature
        self.point = np.nan
        self.derivative = np.nan
        # The interval that holds a minimum: the function falls at its lower end, and rises at its
        # upper one.
        self.lower = -np.inf
        self.upper = np.inf

    def record(self, point: float, derivative: float) -> float:
        """Add the derivative at a point, and return it, or zero if it leads out of the range."""
        step = point - self.point
        if np.isfinite(step) and step != 0:
            self.curvature = (derivative - self.derivative) / step
        self.point = point
        self.derivative = derivative
        if derivative < 0:
            self.lower = point
            if self.upper <= point:
                self.upper = np.inf
        else:
            self.upper = point
            if self.lower >= point:
                self.lower = -np.inf
        leads_below = point <= self.lowest and derivative > 0
        leads_above = point >= self.highest and derivative < 0
        return 0.0 if leads_below or leads_above else derivative

    def next_point(self) -> float:
        """Return the point whose derivative is to be computed next."""
        longest = tuning.LONGEST_STEP
        if self.curvature > 0:
            step = float(np.clip(-self.derivative / self.curvature, -longest, longest))
        else:
            step = -longest * float(np.sign(self.derivative))
        trial = self.point + step
        if not self.lower < trial < self.upper:
            trial = 0.5 * (self.lower + self.upper)
        return float(np.clip(trial, self.lowest, self.highest))


# The criterion with its priors --------------------------------------------------------------------


class RidgeForm(Protocol):
    """Kernels and targets in a form from which a criterion is computed.

    The form is of matrices, of features, or of products alone.
    """

    @property
    def stack(self) -> Any:
        """The kernels."""

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the criterion at a point with its derivatives; without a loss, the evidence."""

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine at a point."""

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of samples that are left out."""


class RidgeProblem:
    """The criterion with its priors, as a function of x.

    x are the logarithms of the P weights, the ridge, the scale and all widths, in this order. Of
    the ridge it is log(α − `least_ridge` · Σ η), which keeps α above the least ridge.

    Parameters
    ----------
    form : RidgeForm
        The kernels, with the weights of the samples and the targets.
    targets : RidgeTargets
        Targets and weights of all samples.
    options : RidgeOptions
        The criterion and its priors.
    judged : RidgeTargets, optional
        The samples whose residuals enter the criterion during the search; by default all.
    widths : dict of int to RadialWidths, optional
        The kernels that have widths to learn.
    """

    def __init__(
        self,
        form: RidgeForm,
        targets: RidgeTargets,
        options: RidgeOptions,
        judged: RidgeTargets | None = None,
        widths: Mapping[int, RadialWidths] | None = None,
    ) -> None:
        self.form = form
        self.targets = targets
        self.options = options
        self.judged_targets = targets if judged is None else judged
        self.n_kernels = form.stack.n_kernels
        # Only the log-loss of classes multiplies outputs with a scale.
        self.has_scale = options.criterion == "loo" and targets.labels is not None
        self.widths = dict(widths or {})
        # The least α over the sum of the weights.
        self.least_ridge = options.least_ridge * targets.Y.shape[0]

    def loss_of(self, targets: RidgeTargets) -> Loss | None:
        """Return the loss of residuals of samples left out; None for the evidence."""
        return None if self.options.criterion == "evidence" else targets.loss

    def judge(self, point: RidgePoint) -> Judged:
        """Return the criterion without its priors, and its derivatives."""
        return self.form.judge(point, self.loss_of(self.judged_targets))

    def machine(self, point: RidgePoint) -> RidgeMachine:
        """Return the machine at a point; its value is that of all samples, without priors."""
        return self.form.machine(point, self.loss_of(self.targets))

    def read(self, x: Array) -> RidgePoint:
        """Return the parameters at x."""
        P = self.n_kernels
        widths = {}
        first = P + 2
        for m, kernel_widths in self.widths.items():
            stop = first + len(kernel_widths.start)
            widths[m] = x[first:stop]
            first = stop
        weights = np.exp(x[:P])
        alpha = float(np.exp(x[P])) + self.least_ridge * float(weights.sum())
        return RidgePoint(weights, alpha, float(np.exp(x[P + 1])), widths)

    def value(self, x: Array) -> tuple[float, Array]:
        """Return the criterion with its priors at x, and its gradient."""
        point = self.read(x)
        criterion = self.judge(point)
        prior, prior_gradient = self.prior(x)
        # α = exp(x[P]) + least_ridge · Σ η, so a weight changes α, too.
        in_weights = (
            criterion.weights + criterion.alpha * self.least_ridge * point.weights / point.alpha
        )
        in_alpha = criterion.alpha * float(np.exp(x[self.n_kernels])) / point.alpha
        in_scale = criterion.scale if self.has_scale else 0.0
        gradient = np.concatenate([in_weights, [in_alpha, in_scale], *criterion.widths])
        return criterion.value + prior, gradient + prior_gradient

    def with_prior(self, x: Array, machine: RidgeMachine) -> RidgeMachine:
        """Return the machine with the priors at x added to its value."""
        return replace(machine, value=machine.value + self.prior(x)[0])

    def at_mode_of_prior(self, x: Array, free: Mask) -> Array:
        """Return x with its free entries, but for widths, at the mode of their priors."""
        P = self.n_kernels
        mode = x.copy()
        mode[: P + 2] = [*np.full(P, -np.log(P)), self.options.alpha_mean, 0.0]
        return np.where(free, mode, x)

    def prior(self, x: Array) -> tuple[float, Array]:
        """Return the priors at x, in nats, and their gradient."""
        P = self.n_kernels
        options = self.options
        # Log η relative to equal weights of sum one; given weights of zero have no prior.
        with np.errstate(invalid="ignore"):
            log_weights = np.where(np.isfinite(x[:P]), x[:P] + np.log(P), 0.0)
        deviations = np.concatenate([log_weights, [x[P] - options.alpha_mean, x[P + 1]]])
        scale_strength = options.scale_prior * self.has_scale
        strengths = np.concatenate(
            [np.full(P, options.weight_prior), [options.alpha_prior, scale_strength]]
        )
        value = float(strengths @ deviations**2)
        gradient = [2.0 * strengths * deviations]
        log_widths_of_kernels = self.read(x).log_widths if self.widths else {}
        for m, log_widths in log_widths_of_kernels.items():
            mean = float(log_widths.mean())
            columns = log_widths - mean
            shift = mean - float(self.widths[m].start.mean())
            squares = float(columns @ columns)
            value += options.column_prior * squares + options.width_prior * shift**2
            in_widths = options.column_prior * columns + options.width_prior * shift / len(columns)
            gradient.append(2.0 * in_widths)
        return value, np.concatenate(gradient)
