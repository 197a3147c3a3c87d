"""Weights, ridge, scale and widths of the least-squares machine by leave-one-out error or evidence.

The parameters are the logarithms of the weights η ≥ 0 (not normalised: their size against the ridge
α is learned), of α, for the log-loss of leave-one-out outputs of the scale a, and of the widths ℓ
of kernels that have them learned. Weak priors keep them finite. The problem is not convex:
`stationarity` is the largest slope at the end.
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

#: Half the distance, in log α, of the two slopes whose difference is a second derivative.
CURVATURE_STEP = 0.2
#: Least ridge, relative to the Frobenius norm of K, whose slope single precision shows: 80 times
#: its rounding.
SINGLE_PRECISION_FROM = 1e-5
#: Least and largest log of the scale a of outputs: beyond, probabilities are all but equal, or all
#: but zero and one.
SCALE_RANGE = (-5.0, 8.0)
#: Quasi-Newton steps, in pairs of a step and its change of slope, that L-BFGS-B remembers.
STEPS_REMEMBERED = 20
#: Relative change of the criterion below which L-BFGS-B stops: rounding, as the slopes decide.
ROUNDING_OF_VALUE = 1e-14
#: Factor between the ridges that a search starts from.
RATIO_OF_STARTS = 30.0


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
        Strengths, in nats of the criterion: on log η about equal weights of sum one, on log α about
        `alpha_mean`, on log a about zero.
    width_prior, column_prior : float
        The same of the mean of a kernel's log ℓ about where it starts, and of the log ℓ of columns
        about their mean.
    alpha_mean : float
        Where the prior of log α is centred.
    least_ridge : float
        A learned α is at least this share of the sum of the weights times the number of samples:
        below, as with targets without noise, the rounding of linear systems shows in predictions.
    first_alpha, first_scale : float
        log α and log a to start from.
    first_steps : int
        Steps from every start, of which the best is followed.
    range, width_range : tuple of float
        Least and largest logarithm, of widths relative to where they start: beyond, rounding hides
        what a parameter does.
    left_out_rows, left_out_groups : int
        Most samples, evenly spread, whose leave-one-out errors are minimised in features: weights
        and ridge are few next to them. All samples are learned from. Where groups are left out, so
        many groups are judged at least.
    slope_samples : int
        Of at most so many samples the largest slope is divided by the number, to be compared with
        `tol`: a criterion is a sum over samples, and what a slope of some nats leaves to gain does
        not grow with their number.
    width_rows : int
        Most samples, evenly spread, that widths are learned from; weights and ridge are learned
        from all.
    first_rows : int
        Several starts are tried on a third of the samples, if these are at least so many.
    ridge_steps : int
        Where weights are learned from some samples, most steps of the ridge on all.
    probe_signs, most_probes : int
        Of kernels of pairs, how many random signs a trace is made of, in two vectors at least and
        so many at most.
    product_steps, product_tol : int, float
        Of kernels of pairs, most conjugate-gradient steps of a linear system, and the residual at
        which they end, in the norm of the preconditioner.
    product_residual, product_rounds : float, int
        The Euclidean residual of a linear system, relative to its right-hand side, that must be
        met, as of matrices; and how often steps with the strong preconditioner are taken from what
        is left.
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
    """Return the mean and the deviation of every target, wherever it is; one as the deviation of a
    constant."""
    backend = backend_of(Y)
    low, high = (
        np.asarray(backend.to_numpy(one(Y, 0))) for one in (backend.xp.amin, backend.xp.amax)
    )
    largest = np.maximum(
        np.maximum(-low, high), np.finfo(float).tiny
    )  # squares of larger numbers overflow
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
        The weights as they were given are weight_unit · weight. A common factor of all weights says
        nothing about how much was observed, and the ridge α in units of the given weights is
        weight_unit times that of the machine.
    order : ndarray of shape (n,) or None
        The samples as `content_order` sorts them; None where they are numbered in an order of their
        own.
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
        return cls(
            (Y - mean) / unit, weight / weight_unit, mean=mean, unit=unit, weight_unit=weight_unit
        )

    @classmethod
    def of_classes(cls, labels: Indices, weight: Array) -> RidgeTargets:
        """Return the targets of classes, which are numbered from 0."""
        Y = np.eye(int(labels.max()) + 1)[labels]
        if Y.shape[1] == 2:
            Y = 2.0 * Y[:, 1:] - 1.0
        weight_unit = float(weight.mean())
        return cls(Y, weight / weight_unit, labels, weight_unit=weight_unit)

    def loss(self, r: Array, scale: float) -> tuple[float, Array, float]:
        """Return the loss of the residuals of samples left out, its slopes in them, and that in log
        a."""
        if self.labels is None:
            return *squared_loss(r, self.weight), 0.0
        return class_loss(r, self.Y, self.labels, scale, self.weight)

    def best_scale(self, r: Array, scale: float, prior: float) -> float:
        """Return the scale a of the least log-loss of these residuals with its prior; numbers keep
        the one given."""
        if self.labels is None:
            return scale

        def value(log_scale: float) -> float:
            return self.loss(r, float(np.exp(log_scale)))[0] + prior * log_scale**2

        best = minimize_scalar(value, bounds=SCALE_RANGE, method="bounded")
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
        """The samples in an order that does not depend on how they are numbered, as far as one is
        known."""
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
        """Return the numbers of some samples, evenly spread over sorted targets, of all classes and
        groups."""
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
    stack: MatrixStack | FeatureStack,
    targets: RidgeTargets,
    *,
    options: RidgeOptions = DEFAULTS,
    **known: Any,
) -> RidgeLearned:
    """Minimise the criterion as `search_ridge` does, which has the parameters, and return the
    machine that results."""
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
    """Minimise the criterion over the logarithms of weights, ridge, scale and widths by
    quasi-Newton steps.

    Widths for numbers are learned with everything else. Those for classes are learned last, from
    what was learned with the widths they start from, and stay there where learning them lowers the
    criterion by less than one nat per width: the gain is then one of chance.

    One sample has no leave-one-out error, and two have the same one whatever the kernel: a
    constant. What is left are the priors, whose mode is returned: equal weights.

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
    problem = make_ridge_problem(stack, targets, widths, options)
    start = start or _learn_start(problem, alpha, weights)
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
        """Return where the steps end, the value there, and the largest slope that leads nowhere out
        of its range."""
        x = np.where(free, np.clip(x, low, high), x)
        alone = free & ((ties is None) | (np.arange(len(x)) >= P))
        # A parameter of the search moves one logarithm, or those that a column of `ties` holds
        # together.
        moves, bounds = np.eye(len(x))[:, alone], np.array([low - x, high - x])[:, alone]
        if ties is not None:
            reach = np.full((2, ties.shape[1]), 0.5 * (options.range[1] - options.range[0])) * [
                [-1.0],
                [1.0],
            ]
            together = np.vstack([ties, np.zeros((len(x) - P, ties.shape[1]))])
            moves, bounds = np.hstack([moves, together]), np.hstack([bounds, reach])

        def value(moved: Array) -> tuple[float, Array]:
            found, slope = problem.value(x + moves @ moved)
            history.append(found)
            return found, moves.T @ slope

        limits = {
            "maxiter": steps,
            "gtol": options.tol * samples,
            "ftol": ROUNDING_OF_VALUE,
            "maxcor": STEPS_REMEMBERED,
        }
        first = np.zeros(moves.shape[1])
        found = minimize(value, first, jac=True, method="L-BFGS-B", bounds=bounds.T, options=limits)
        slope = np.where(found.x <= bounds[0], np.minimum(found.jac, 0.0), found.jac)
        slope = np.where(found.x >= bounds[1], np.maximum(slope, 0.0), slope)
        return x + moves @ found.x, float(found.fun), float(np.abs(slope).max(initial=0.0))

    if start is None and free[P] and options.n_init > 1:
        begun = []
        # Smaller and larger ridges in turn.
        factors = [RATIO_OF_STARTS ** ((-1) ** k * ((k + 1) // 2)) for k in range(options.n_init)]
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
    """Learn weights from some samples, whose numbers ascend, then the ridge, and the machine, from
    all of them.

    What is known is given as to `learn_ridge`. The `stationarity` is the larger one of the largest
    slope on the samples that weights are learned from and of the slope in the ridge on all samples.
    """
    some, targets_of_some = stack.take(rows, stored=True), targets.take(rows)
    is_given = known.get("alpha") is not None
    with threads_for(len(rows)):
        part = learn_ridge(some, targets_of_some, **known, options=options)
        point = RidgePoint(part.weights, part.alpha, part.scale, {})
        curvature = 0.0
        if not is_given:
            curvature = ridge_curvature(matrix_problem(some, targets_of_some, options), point)
    problem = matrix_problem(stack, targets, options)
    if is_given:
        machine, stationarity = problem.machine(point), part.stationarity
    else:
        curvature *= float(targets.weight.sum() / targets_of_some.weight.sum())
        point, machine, slope = relearn_ridge(problem, point, curvature)
        stationarity = max(part.stationarity, abs(slope) / options.slope_count(targets))
    learned = replace(part, alpha=point.alpha, scale=point.scale, stationarity=stationarity)
    return replace(learned, **vars(problem.with_prior(learned.logs(), machine)))


def _place_of_start(
    start: RidgeLearned | RidgeStart | None, n_kernels: int, options: RidgeOptions
) -> RidgeStart:
    """Return the start that is given, that of the fit that is given, or that of the options."""
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
    """Return ridge and scale of at most a third of the samples, whose systems cost a 27th, with
    equal weights.

    The weights of the third lead to higher criteria of all samples on some data. It is None of few
    samples, where systems are no matrices, where widths are learned or the ridge is given, and
    where one start is all that is tried.
    """
    form, targets, options = problem.form, problem.targets, problem.options
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


def make_ridge_problem(
    stack: MatrixStack | FeatureStack,
    targets: RidgeTargets,
    widths: Mapping[int, RadialWidths],
    options: RidgeOptions,
) -> RidgeProblem:
    """Return the criterion in features, if the stack has them, in a form of the stack's own, or
    else in matrices."""
    if not stack.can_be_factorised:
        return problem_by_products(stack, targets, options)
    if stack.widths is None:
        return matrix_problem(stack.for_many_combinations(), targets, options, widths)
    if stack.n_samples <= int(np.sum(stack.widths)):
        # Matrices are the smaller, and leave the digits of samples whose targets are met.
        features = dict(stack.features(slice(0, stack.n_samples), range(stack.n_kernels)))
        exact = [features[m].astype(np.float64) for m in range(stack.n_kernels)]
        matrices = StoredStack(np.array([Z @ Z.T for Z in exact]))
        return matrix_problem(matrices.for_many_combinations(), targets, options, widths)
    return feature_problem(stack, targets, options)


@singledispatch
def problem_by_products(
    stack: GramStack, targets: RidgeTargets, options: RidgeOptions
) -> RidgeProblem:
    """Return the criterion for kernels that are known by products alone; a family registers that of
    its stack."""
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
    """Return the criterion in features; the leave-one-out errors of some samples, or groups, stand
    for all."""
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
        rows, row_groups = np.concatenate(groups), consecutive(groups)
    form = FeatureForm.of_targets(
        stack, targets.weight, targets.Y, targets.groups, rows, row_groups
    )
    labels = None if targets.labels is None else targets.labels[rows]
    judged = RidgeTargets(targets.Y[rows], targets.weight[rows], labels)
    return RidgeProblem(form, targets, options, judged)


# The ridge of all samples at the weights of some --------------------------------------------------


def ridge_slope(
    problem: RidgeProblem, point: RidgePoint, system: MatrixLeastSquares
) -> tuple[float, float]:
    """Return the slope of the criterion in log α at given weights, and the scale a that minimises
    it there.

    Parameters
    ----------
    problem : RidgeProblem
        In matrices.
    point : RidgePoint
        Weights, ridge and scale.
    system : MatrixLeastSquares
        The system there, in single or double precision.
    """
    targets, ridge, scale = problem.targets, point.alpha / problem.targets.weight, point.scale
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
    problem: RidgeProblem, point: RidgePoint, apart: float = CURVATURE_STEP
) -> float:
    """Return the second derivative of the criterion in log α by the difference of two slopes."""
    form = problem.form
    assert isinstance(form, MatrixForm)
    slopes = []
    for sign in (-1.0, 1.0):
        end = replace(point, alpha=point.alpha * float(np.exp(sign * apart)))
        slopes.append(ridge_slope(problem, end, form.at(end.weights, end.alpha))[0])
    return (slopes[1] - slopes[0]) / (2.0 * apart)


def relearn_ridge(
    problem: RidgeProblem, point: RidgePoint, curvature: float
) -> tuple[RidgePoint, RidgeMachine, float]:
    """Return given weights with the ridge of these samples, the machine, and the slope that is left
    in log α.

    Every step takes a factorisation, and ends where the slope is at most `RidgeOptions.tol` per
    sample.

    Parameters
    ----------
    problem : RidgeProblem
        In matrices.
    point : RidgePoint
        Where to start.
    curvature : float
        The second derivative of the criterion in log α to start with.
    """
    form, targets, options = problem.form, problem.targets, problem.options
    assert isinstance(form, MatrixForm)
    K, _ = form.combine(point)
    offset, weight = centre(K), targets.weight
    # Single precision shows the slope where rounding is far below the ridge; graphics processors
    # gain nothing.
    least_ridge_of_single = np.inf
    if backend_of(K).name == "numpy":
        least_ridge_of_single = SINGLE_PRECISION_FROM * float(np.linalg.norm(K))
    least_alpha = options.least_ridge * len(weight) * float(point.weights.sum())
    search = LevelSearch(max(options.range[0], np.log(least_alpha)), options.range[1], curvature)
    log_alpha, scale = float(np.log(point.alpha)), point.scale
    for _ in range(options.ridge_steps):
        point = replace(point, alpha=float(np.exp(log_alpha)), scale=scale)
        ridge = point.alpha / weight
        dtype = np.float32 if ridge.min() > least_ridge_of_single else np.float64
        system = MatrixLeastSquares.of_centred(K, offset, ridge, dtype)
        slope, scale = ridge_slope(problem, point, system)
        slope += 2.0 * options.alpha_prior * (log_alpha - options.alpha_mean)
        slope = search.record(log_alpha, slope)
        if abs(slope) <= options.tol * options.slope_count(targets):
            break
        log_alpha = search.next_point()
    exact = MatrixLeastSquares.of_centred(K, offset, ridge)
    machine = form.solved_machine(exact, K, point, problem.loss_of(targets))
    if options.criterion == "evidence":
        return point, machine, slope
    point = replace(point, scale=targets.best_scale(machine.residuals, scale, options.scale_prior))
    return point, replace(machine, value=targets.loss(machine.residuals, point.scale)[0]), slope


class LevelSearch:
    """Looks for a minimum of a function of one variable by its slopes.

    Steps are those of Newton with the secant of the last two slopes. They are at most two long, and
    bisect where they would leave the interval that is known to hold a minimum.

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
        """Take note of the slope at a point, and return what of it does not lead out of the
        range."""
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
            step = float(
                np.clip(-self.slope / self.curvature, -self.longest_step, self.longest_step)
            )
        following = self.point + step
        if not self.lower < following < self.upper:
            following = 0.5 * (self.lower + self.upper)
        return float(np.clip(following, self.lowest, self.highest))


class RidgeForm(Protocol):
    """Kernels and targets in the form in which a criterion is computed: matrices, features, or
    products alone."""

    @property
    def stack(self) -> Any:
        """The kernels."""

    def judge(self, point: RidgePoint, loss: Loss | None) -> Judged:
        """Return the criterion and its slopes at a point; without a loss it is the evidence."""

    def machine(self, point: RidgePoint, loss: Loss | None) -> RidgeMachine:
        """Return the machine at a point."""

    def residuals_left_out(self, point: RidgePoint) -> Array:
        """Return the residuals of samples that are left out."""


class RidgeProblem:
    """The criterion with its priors, as a function of the logarithms of weights, ridge, scale and
    widths.

    Parameters
    ----------
    form : RidgeForm
        The kernels, with the weights of the samples and the targets.
    targets : RidgeTargets
        The same targets, and what judges their outputs.
    options : RidgeOptions
        The criterion and its priors.
    judged : RidgeTargets, optional
        Those whose residuals are judged during the search; by default all.
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
        self.form, self.targets, self.options = form, targets, options
        self.judged = targets if judged is None else judged
        self.n_kernels = form.stack.n_kernels
        # What the log-loss multiplies outputs with.
        self.has_scale = options.criterion == "loo" and targets.labels is not None
        self.widths, self.least_ridge = dict(widths or {}), options.least_ridge * targets.Y.shape[0]

    def loss_of(self, targets: RidgeTargets) -> Loss | None:
        """Return what the criterion makes of residuals of samples left out; None for the
        evidence."""
        return None if self.options.criterion == "evidence" else targets.loss

    def judge(self, point: RidgePoint) -> Judged:
        """Return the criterion without its priors, and its slopes."""
        return self.form.judge(point, self.loss_of(self.judged))

    def machine(self, point: RidgePoint) -> RidgeMachine:
        """Return the machine, its value without the priors."""
        return self.form.machine(point, self.loss_of(self.targets))

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
        point = self.read(x)
        judged, (prior, pull) = self.judge(point), self.prior(x)
        by_weights = judged.weights + judged.alpha * self.least_ridge * point.weights / point.alpha
        in_alpha = judged.alpha * float(np.exp(x[self.n_kernels])) / point.alpha
        in_scale = judged.scale if self.has_scale else 0.0
        slopes = np.concatenate([by_weights, [in_alpha, in_scale], *judged.widths])
        return judged.value + prior, slopes + pull

    def with_prior(self, x: Array, machine: RidgeMachine) -> RidgeMachine:
        """Return the machine at x, the priors added to its criterion."""
        return replace(machine, value=machine.value + self.prior(x)[0])

    def at_mode_of_prior(self, x: Array, free: Mask) -> Array:
        """Return x with the logarithms of weights, ridge and scale that are free at their largest
        prior."""
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
        strength = np.concatenate(
            [np.full(P, o.weight_prior), [o.alpha_prior, o.scale_prior * self.has_scale]]
        )
        value, pull = float(strength @ apart**2), [2.0 * strength * apart]
        log_widths_of_kernels = self.read(x).log_widths if self.widths else {}
        for m, log_widths in log_widths_of_kernels.items():
            mean = float(log_widths.mean())
            off, moved = log_widths - mean, mean - float(self.widths[m].start.mean())
            value += o.column_prior * float(off @ off) + o.width_prior * moved**2
            pull.append(2.0 * (o.column_prior * off + o.width_prior * moved / len(off)))
        return value, np.concatenate(pull)
