"""Weights and ridge of every target by its own leave-one-out error or evidence.

Only the ratios γ = η/α of weights and ridge count. One factorisation of Σ_m γ_m K_m + diag(1/w), a
candidate, and one product with all targets give the criterion of every target. The candidates are
few, and shared by all targets:

1. a design: shares of the kernels drawn from the simplex, with its corners, times sums of γ over
   several decades;
2. the criterion of each target between the candidates is interpolated, by kriging;
3. how frequent which γ are among all targets is learned by EM on many interpolated points, since
   single targets are noisy: this is the prior from which, with its own criterion, every target has
   a posterior mean;
4. the posterior means are gathered into groups, whose centres are the next candidates; from 2, a
   few times;
5. those of the last round are tried for the targets of their group alone, each of which then goes
   on to its own posterior mean where its criterion, interpolated from the centre, is lower still.
   Its machine is found by a few conjugate gradients, which the factorised centre preconditions.

Every target keeps the least criterion, so that none does worse than with the best of the candidates
tried for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2, vq

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, DType, Indices, Mask
from kernelmosaic.backend import (
    NUMPY,
    Backend,
    backend_of,
    default_budget,
    is_tensor,
    row_strips,
    to_host,
)
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.linear_algebra import conjugate_gradients
from kernelmosaic.gram.options import BlockOptions
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.learning.problem import progress
from kernelmosaic.ridge.learning import RidgeOptions, centre_and_unit
from kernelmosaic.solvers.least_squares import FeatureForm, Groups, LeastSquares, MatrixForm

#: Most Σ_m γ_m tr K_m: the ridge is at least this share of n times the weights, as
#: `RidgeOptions.least_ridge` has it.
MOST_RATIO = 1.0 / RidgeOptions.least_ridge
#: Most of a target, in standard deviations, that the linear system of its own ratios may leave.
MOST_RESIDUAL = 1e-3
#: Most steps of conjugate gradients for a target of its own: the factorised centre of its group is
#: a close inverse.
REFINE_STEPS = 50
#: Power of the rounding of the targets at which these steps end, relative to their start: 2e-12 in
#: double precision, 6e-6 in single precision.
REFINE_POWER = 0.75
#: Least tr(YᵀAY), in roundings of the squared size of the targets: below, no digit of it is known.
LEAST_FIT_ROUNDINGS = 10.0
#: Least squared error of a target whose logarithm is taken: of constant targets it is zero.
LEAST_ERROR = 1e-30
#: Parts in which coefficients in single precision are computed in double, so that the copies take
#: little room.
EXACT_PARTS = 8
#: Bytes of a batch of targets on the host and on a device, where `TargetOptions.batch_bytes` is
#: None.
HOST_BATCH_BYTES, DEVICE_BATCH_BYTES = 2**25, 2**28
#: Targets whose posterior means are computed at once.
MEANS_AT_ONCE = 1000
#: Added to the diagonal of the covariance of kriging, of unit variance, whose eigenvalues fall
#: below rounding.
KRIGING_NUGGET = 1e-6
#: Nats above the least value within which errors of interpolation count, and their largest square,
#: in nats².
KRIGING_RANGE, KRIGING_CAP = 10.0, 400.0
#: Candidates for each kernel from which the trend of kriging may have squares.
CANDIDATES_FOR_SQUARES = 4
#: Steps of EM from which on frequencies hardly change, and the least frequency or likelihood that
#: is not zero: arithmetic of numbers near the smallest is slow.
EM_STEPS, LEAST_FREQUENCY = 50, 1e-20
#: Steps of k-means.
KMEANS_STEPS = 20
#: γ₀ of points, in units of the γ at which the eigenvalues of a kernel exceed one.
POINT_KNEES = 0.3
#: How much wider points are spread in the first round, which knows the least.
FIRST_SPREAD = 1.5
#: Ratios of a target without any kernel, in units of γ₀: shares need a sum.
LEAST_RATIO = 1e-6


@dataclass(frozen=True)
class TargetOptions:
    """How many candidates are tried, and where.

    Attributes
    ----------
    sizes : tuple of int
        Candidates of the design, and of every round after it, of which the last is for groups of
        targets; of a round never more than targets. Without any, the candidates that are given are
        the only ones.
    operations : float
        Every target is a group of its own where so many are enough: n³ of each.
    sums : tuple of float
        Least and largest Σ_m γ_m of the design, for kernels of mean diagonal one.
    concentration : float
        Of the Dirichlet distribution from which shares are drawn: below one most have a few large
        ones.
    points : int
        Points at which the criterion is interpolated.
    spread : float
        Standard deviation of these around candidates, in log(1 + γ/γ₀); half as much again in the
        first round.
    zeros : float
        Share of their weights that is set to zero.
    fitted_to, learned_from, grouped : int
        Most targets that the interpolation is fitted to, that the prior is learned from, and that
        are gathered into groups.
    batch_bytes : int or None
        Of the targets that are worked on at once; None means 32 MiB on the host and 256 MiB on a
        device.
    kept_bytes : float or None
        Up to which size, with their coefficients, they are kept in memory; None means what is free.
    verbose : bool
        Whether to show the progress.
    """

    sizes: tuple[int, ...] = (60, 40, 50, 60)
    operations: float = 2e10
    sums: tuple[float, float] = (1e-2, 1e3)
    concentration: float = 0.5
    points: int = 2000
    spread: float = 0.5
    zeros: float = 0.1
    fitted_to: int = 300
    learned_from: int = 1000
    grouped: int = 20_000
    batch_bytes: int | None = None
    kept_bytes: float | None = None
    verbose: bool = False

    @classmethod
    def of(cls, n_candidates: int) -> TargetOptions:
        """Return the rounds of about so many candidates."""
        return cls(
            sizes=tuple(max(5, round(n_candidates * one / sum(cls.sizes))) for one in cls.sizes)
        )


DEFAULTS = TargetOptions()


@dataclass(frozen=True)
class TargetsLearned:
    """What was learned; T is the number of targets.

    Attributes
    ----------
    ratios : ndarray of shape (T, P)
        γ.
    value : ndarray of shape (T,)
        The criterion, in nats.
    errors : ndarray of shape (T,)
        Mean squared residuals of samples left out, relative to the variance of the target.
    moved : ndarray of shape (T,)
        Whether γ is no candidate, but a posterior mean: `value` and `errors` are interpolated then.
    left_over : float
        By how much the interpolated criterion falls below `value`, on average over some targets.
    beta : ndarray of shape (n, T)
        (Σ_m γ_m K_m + diag(1/w))⁻¹ Y, the constants eliminated, in the precision of the targets.
    intercept : ndarray of shape (T,)
        The constants.
    candidates : ndarray of shape (candidates, P)
        All γ that were tried, the last ones for some targets each.
    history : list of float
        The mean of `value` over the targets after every round.
    """

    ratios: Array
    value: Array
    errors: Array
    moved: Mask
    left_over: float
    beta: AnyArray
    intercept: Array
    candidates: Array
    history: list[float]


def learn_target_weights(
    stack: MatrixStack | FeatureStack,
    Y: ArrayOrTensor,
    weight: Array,
    rng: np.random.RandomState,
    *,
    criterion: str = "loo",
    groups: Groups = None,
    first: Array | None = None,
    options: TargetOptions = DEFAULTS,
) -> TargetsLearned:
    """Choose the ratios γ of weights and ridge for every target.

    Parameters
    ----------
    stack : MatrixStack or FeatureStack
        The kernels.
    Y : array or tensor of shape (n, T)
        Targets, of which parts are read; where there is room, they are kept once where the kernels
        are.
    weight : ndarray of shape (n,)
        Of the samples.
    rng : RandomState
        Draws designs and points.
    criterion : {"loo", "evidence"}
        What is minimised.
    groups : sequence of ndarray, optional
        Samples that are left out together.
    first : ndarray of shape (k, P), optional
        Candidates to try before all others.
    options : TargetOptions
        Numbers of candidates.

    Returns
    -------
    TargetsLearned
    """
    targets = TargetBatches(Y, weight, stack.backend, options)
    form: MatrixForm | FeatureForm
    if stack.widths is not None:
        form = FeatureForm.of_all_samples(stack, weight, targets.dtype)
    else:
        form = MatrixForm(stack, weight, dtype=targets.dtype)
    search, none = _Candidates(form, targets, criterion, groups), np.zeros((0, stack.n_kernels))
    (n, T), rounds, fixed = Y.shape, list(options.sizes[1:]), not options.sizes
    if rounds and T * n**3 <= options.operations:
        rounds[-1] = T
    rounds = [min(size, T) for size in rounds]
    design = none if fixed else _rounded(_design(search.units, options.sizes[0], rng, options))
    seeds = none if first is None else first if fixed else _rounded(first)
    between, total = None, len(seeds) + len(design) + sum(rounds)
    with progress("Weights per target", total, options.verbose) as show:

        def evaluate(new: Iterable[Any], judge: Callable[[Any], None]) -> None:
            for one in new:
                judge(one)
                show(f"candidate {len(search.gammas)} of {total}", len(search.gammas))
            search.history.append(float(search.best.mean()))

        evaluate(np.concatenate([seeds, design]), search.add)
        for k, size in enumerate(rounds):
            between = _Interpolated(search, rng, options, everywhere=k == 0)
            grouped = rng.permutation(T)[: options.grouped]
            centres = find_centres(between.means(grouped), size, rng)
            if k < len(rounds) - 1:
                evaluate(between.ratios(centres), search.add)
            else:
                z = between.means(np.arange(T))
                nearest = vq(z, centres)[0]
                members = [np.flatnonzero(nearest == c) for c in range(len(centres))]
                evaluate((own for own in members if len(own)), partial(search.refine, between, z))
    if not fixed and between is None:
        between = _Interpolated(search, rng, options, everywhere=False)
    return search.learned(0.0 if between is None else between.left_over())


def join_targets(
    parts: list[tuple[Indices, Indices, TargetsLearned]], shape: tuple[int, ...]
) -> TargetsLearned:
    """Return what was learned of groups of targets as of all of them.

    Parameters
    ----------
    parts : list of (ndarray, ndarray, TargetsLearned)
        The samples of every group, its targets, and what was learned of these. Other samples have
        coefficients of zero.
    shape : (n, T)
        Numbers of all samples and of all targets.
    """
    n, T = shape
    first = parts[0][2]
    ratios = np.empty((T, first.ratios.shape[1]))
    value, errors, intercept = np.empty(T), np.empty(T), np.empty(T)
    moved = np.empty(T, dtype=bool)
    beta = np.zeros((n, T), dtype=first.beta.dtype)
    ends = np.zeros(T)
    for rows, columns, learned in parts:
        ratios[columns], moved[columns] = learned.ratios, learned.moved
        value[columns], errors[columns] = learned.value, learned.errors
        intercept[columns] = learned.intercept
        beta[np.ix_(rows, columns)] = learned.beta
        ends[columns] = learned.history[-1]
    return TargetsLearned(
        ratios=ratios,
        value=value,
        errors=errors,
        moved=moved,
        left_over=max(learned.left_over for *_, learned in parts),
        beta=beta,
        intercept=intercept,
        candidates=np.concatenate([learned.candidates for *_, learned in parts]),
        history=[float(ends.mean())],
    )


# Targets in batches -------------------------------------------------------------------------------


class TargetBatches:
    """Standardised targets in batches: kept where the kernels are if there is room, else read
    again.

    Parameters
    ----------
    Y : array or tensor of shape (n, T)
        As given.
    weight : ndarray of shape (n,)
        Of the samples.
    backend : Backend
        Where products are formed.
    options : TargetOptions
        Sizes of batches, and of what is kept.

    Attributes
    ----------
    means, units : ndarray of shape (T,)
        Weighted means, and standard deviations, one for constants.
    dtype : dtype
        In which products are formed: that of the targets, single or double precision.
    batches : list of slice
        The targets of every batch.
    kept : list of array or None
        The batches, if they are kept.
    """

    def __init__(
        self, Y: ArrayOrTensor, weight: Array, backend: Backend, options: TargetOptions
    ) -> None:
        self.Y, self.weight, self.backend = Y, weight, backend
        n, T = Y.shape
        self.means, self.units = np.empty(T), np.empty(T)
        self.dtype: DType = np.dtype(
            np.float32 if backend_of(Y).dtype(Y) == np.float32 else np.float64
        )
        most = options.batch_bytes or (HOST_BATCH_BYTES if backend is NUMPY else DEVICE_BATCH_BYTES)
        self.batches = list(row_strips(T, most // (self.dtype.itemsize * n)))
        # Beside the targets there are their coefficients.
        room = default_budget(backend) if options.kept_bytes is None else options.kept_bytes
        self.kept: list[ArrayOrTensor] | None = (
            [] if 3 * n * T * self.dtype.itemsize <= room else None
        )
        for part in self.batches:
            placed = _placed(Y[:, part], backend)
            self.means[part], self.units[part] = centre_and_unit(placed, weight)
            if self.kept is not None:
                self.kept.append(self._standardised(placed, part))

    def _standardised(self, placed: ArrayOrTensor, part: slice) -> ArrayOrTensor:
        mean, unit = self.backend.asarray(self.means[part]), self.backend.asarray(self.units[part])
        return self.backend.astype((placed - mean) / unit, self.dtype)

    def __iter__(self) -> Iterator[tuple[slice, ArrayOrTensor]]:
        for k, part in enumerate(self.batches):
            if self.kept is not None:
                yield part, self.kept[k]
            else:
                yield part, self._standardised(_placed(self.Y[:, part], self.backend), part)


def _placed(Y: ArrayOrTensor, backend: Backend) -> ArrayOrTensor:
    """Return targets in double precision where products are formed."""
    if backend is NUMPY:
        return backend.asarray(to_host(Y))
    # Torch warns of memory that is not to be written to. What travels to a device has the precision
    # that was given.
    return backend.astype(backend.asarray(Y if is_tensor(Y) else np.array(Y), None), np.float64)


# What a candidate is judged by --------------------------------------------------------------------


class _Candidates:
    """The criterion of all targets at every candidate so far, and for each target the machine of
    the best.

    `units` are of every kernel the γ that gives it a mean diagonal of one, and `knees` that at
    which its eigenvalues exceed one: tr K / ‖K‖², one over their mean, each counted by its size.
    """

    def __init__(
        self, form: MatrixForm | FeatureForm, targets: TargetBatches, criterion: str, groups: Groups
    ) -> None:
        self.form, self.targets, self.criterion, self.groups = form, targets, criterion, groups
        n, T = targets.Y.shape
        self.gammas: list[Array] = []
        self.found: list[Array] = []
        self.history: list[float] = []
        # Of a kernel of zeros any γ will do.
        traces, squares = (np.where(one > n * np.finfo(float).tiny, one, n) for one in form.sizes())
        self.traces = traces
        self.units, self.knees = n / traces, traces / squares
        self.best, self.ratios = np.full(T, np.inf), np.zeros((T, len(self.units)))
        self.log_errors, self.intercept = np.full(T, np.nan), np.zeros(T)
        self.moved = np.zeros(T, dtype=bool)
        # Coefficients stay beside the targets.
        place = targets.backend if targets.kept is not None else NUMPY
        self.beta = [
            place.zeros((n, part.stop - part.start), targets.dtype) for part in targets.batches
        ]

    def add(self, gamma: Array) -> None:
        """Judge a candidate for all targets."""
        self.gammas.append(np.array(gamma, dtype=np.float64))
        self.found.append(self._judge(self.form.at(self.gammas[-1]), np.arange(len(self.best))))

    def refine(self, between: _Interpolated, z: Array, members: Indices) -> None:
        """Judge the centre of a group of targets for these, and their own posterior means from
        there."""
        self.gammas.append(between.ratios(z[members].mean(axis=0, keepdims=True))[0])
        system, own = self.form.at(self.gammas[-1]), between.ratios(z[members])
        centre, known = self._judge(system, members), np.array([x[:, members] for x in self.found])
        at_centre = between.kriging.weights(self.gammas[-1][np.newaxis])
        found = centre + np.einsum("ts,skt->kt", between.kriging.weights(own) - at_centre, known)
        # What the interpolation missed at the centre is to be gained at least.
        missed = np.sqrt(np.mean((centre[0] - at_centre[0] @ known[:, 0]) ** 2))
        better = np.flatnonzero(found[0] < self.best[members] - missed)
        targets, backend = self.targets, self.targets.backend
        at = members[better]
        accuracy = BlockOptions(
            cg_steps=REFINE_STEPS, cg_tol=float(np.finfo(targets.dtype).eps) ** REFINE_POWER
        )
        for k, some, Y in self._parts(at):
            times = partial(
                self.form.products, gammas=backend.asarray(own[better[some]].T, targets.dtype)
            )
            # A maps constants to zero, and a matrix near M⁻¹ does not.
            beta = conjugate_gradients(
                times, lambda r: system.times(r) + r.mean(0), Y, accuracy, sums=True
            )
            missed = Y - times(beta)
            constants = missed.mean(0)
            missed = missed - constants
            # Targets have unit variance. Those whose system the steps leave unsolved stay with
            # their last machine.
            residuals = backend.to_numpy((missed * missed).mean(0)) ** 0.5
            solved = np.flatnonzero(residuals <= MOST_RESIDUAL)
            if len(solved) == 0:
                continue
            numbers, columns = at[some][solved], backend.index(solved)
            self._keep(
                k, numbers, found[:, better[some]][:, solved], beta[:, columns], constants[columns]
            )
            self.ratios[numbers], self.moved[numbers] = own[better[some]][solved], True

    def _judge(self, system: LeastSquares, numbers: Indices) -> Array:
        """Keep the machines of the last candidate where they are best; return criteria and log
        errors, (2, targets)."""
        targets, backend, n = self.targets, self.targets.backend, len(self.targets.weight)
        constants = backend.asarray(system.constants, targets.dtype)
        share = backend.asarray(targets.weight / targets.weight.sum(), targets.dtype)
        found = np.empty((2, len(numbers)))
        for k, some, Y in self._parts(numbers):
            beta = system.times(Y)
            found[1, some] = _log(
                backend.to_numpy(share @ system.residuals(beta, self.groups) ** 2).astype(
                    np.float64
                )
            )
            found[0, some] = 0.5 * targets.weight.sum() * found[1, some]
            if self.criterion == "evidence":
                # Of YᵀAY no digits are left where it is below the rounding of the targets' squares.
                least = LEAST_FIT_ROUNDINGS * float(np.finfo(targets.dtype).eps) * (Y * Y).sum(0)
                fit = backend.xp.maximum((Y * beta).sum(0), least)
                fit = np.asarray(backend.to_numpy(fit), np.float64) / (n - 1)
                found[0, some] = 0.5 * (n - 1) * _log(fit) + 0.5 * system.log_det
            better = some.start + np.flatnonzero(found[0, some] < self.best[numbers[some]])
            columns, at = backend.index(better - some.start), numbers[better]
            if len(better):
                if targets.dtype == np.float32:
                    own_beta = self._exact_coefficients(system, Y, better - some.start)
                else:
                    own_beta = beta[:, columns]
                self._keep(k, at, found[:, better], own_beta, constants @ Y[:, columns])
                self.ratios[at] = self.gammas[-1]
        return found

    def _exact_coefficients(
        self, system: LeastSquares, Y: ArrayOrTensor, columns: Indices
    ) -> ArrayOrTensor:
        """Return A Y of some columns, multiplied in double precision, in single precision.

        A Y is a small difference of large numbers, of which products in single precision keep too
        few digits.
        """
        backend = self.targets.backend
        beta = backend.zeros((len(Y), len(columns)), self.targets.dtype)
        for strip in row_strips(len(columns), -(-len(columns) // EXACT_PARTS)):
            exact = backend.astype(Y[:, backend.index(columns[strip])], np.float64)
            beta[:, strip] = backend.astype(system.times(exact), self.targets.dtype)
        return beta

    def _parts(self, numbers: Indices) -> Iterator[tuple[int, slice, ArrayOrTensor]]:
        """Yield (batch, which of the numbered targets are in it, these), of ascending numbers."""
        for k, (part, Y) in enumerate(self.targets):
            some = slice(*(int(one) for one in np.searchsorted(numbers, [part.start, part.stop])))
            if some.stop - some.start == part.stop - part.start:
                yield k, some, Y
            elif some.stop > some.start:
                yield k, some, Y[:, self.targets.backend.index(numbers[some] - part.start)]

    def _keep(
        self, k: int, at: Indices, found: Array, beta: ArrayOrTensor, constants: ArrayOrTensor
    ) -> None:
        """Keep machines of some targets of a batch."""
        place, own = self.targets.backend, backend_of(self.beta[k])
        # What rounding leaves of their sum, large kernels would show.
        beta = beta - beta.mean(0)
        columns = own.index(at - self.targets.batches[k].start)
        self.beta[k][:, columns] = beta if own is place else place.to_numpy(beta)
        self.best[at], self.log_errors[at] = found
        self.intercept[at] = place.to_numpy(constants)

    def above_best(self, targets: Indices) -> Array:
        """Return by how much every candidate's criterion exceeds the least, for some targets."""
        return np.asarray(np.array([one[0, targets] for one in self.found]) - self.best[targets])

    def learned(self, left_over: float) -> TargetsLearned:
        """Return what suits every target best, in the units of the targets; the search is over
        then."""
        means, units = self.targets.means, self.targets.units
        beta = np.empty(self.targets.Y.shape, self.targets.dtype)
        for part in reversed(self.targets.batches):  # every batch is freed once it is copied
            one = self.beta.pop()
            own = backend_of(one)
            beta[:, part] = own.borrow(one * own.asarray(units[part], self.targets.dtype))
        return TargetsLearned(
            ratios=self.ratios,
            value=self.best,
            errors=np.exp(self.log_errors),
            moved=self.moved,
            left_over=left_over,
            beta=beta,
            intercept=means + units * self.intercept,
            candidates=np.array(self.gammas),
            history=self.history,
        )


def _log(values: Array) -> Array:
    """Return logarithms; of a constant target, whose residuals are zero, a number that is the same
    for all."""
    return np.asarray(np.log(np.maximum(values, LEAST_ERROR)))


# Where to try next --------------------------------------------------------------------------------


def _design(units: Array, count: int, rng: np.random.RandomState, options: TargetOptions) -> Array:
    """Return γ that cover the simplex, with its centre and corners, and decades of their sum in
    strata."""
    n_kernels = len(units)
    fixed = np.concatenate([np.full((1, n_kernels), 1.0 / n_kernels), np.eye(n_kernels)])[:count]
    drawn = rng.dirichlet(np.full(n_kernels, options.concentration), size=count - len(fixed))
    low, high = np.log(options.sums)
    sums = np.exp(low + (high - low) * (rng.permutation(count) + 0.5) / count)
    return np.asarray(np.concatenate([fixed, drawn]) * sums[:, np.newaxis] * units)


def _rounded(gammas: Array) -> Array:
    """Return γ to four digits, enough for every criterion.

    The covariance of kriging is nearly singular, and what rounding leaves of further digits would
    grow from round to round: the same samples in another order, or on another machine, would have
    other weights.
    """
    digits, exponents = np.frexp(gammas)
    return np.asarray(np.ldexp(np.round(2.0**14 * digits), exponents - 14))


class Kriging:
    """Interpolates functions that are known at the same points, by weights that are the same for
    all of them.

    The covariance is Matérn's of 5/2, around a trend that is linear, or has the squares, too, in z
    = log(1 + γ/γ₀) or z = γ/(γ + γ₀), scaled.

    Parameters
    ----------
    gammas : ndarray of shape (S, P)
        The points.
    knees : ndarray of shape (P,)
        γ₀.
    bounded : bool
        Whether z is the second.
    squares : bool
        Whether the trend has them.
    length : float
        Of the covariance, in mean standard deviations of z.
    """

    def __init__(
        self, gammas: Array, knees: Array, bounded: bool, squares: bool, length: float
    ) -> None:
        self.knees, self.bounded, self.squares, self.length, self.scale = (
            knees,
            bounded,
            squares,
            length,
            1.0,
        )
        z = self._read(gammas)
        self.scale = float(z.std(axis=0).mean()) or 1.0
        self.z, self.centre = z / self.scale, z.mean(axis=0) / self.scale
        inverse = np.linalg.inv(self._covariance(self.z) + KRIGING_NUGGET * np.eye(len(z)))
        H = self._trend(self.z)
        self.by_trend = np.linalg.pinv(H.T @ inverse @ H) @ H.T @ inverse
        self.by_covariance = inverse - inverse @ H @ self.by_trend

    def errors(self, values: Array) -> Array:
        """Return what every value, of shape (S, functions), differs from its interpolation by all
        others."""
        return np.asarray(
            self.by_covariance @ values / self.by_covariance.diagonal()[:, np.newaxis]
        )

    def weights(self, gammas: Array) -> Array:
        """Return what values at the points count for interpolations at others, of shape (others,
        S)."""
        z = self._read(gammas)
        return np.asarray(self._covariance(z) @ self.by_covariance + self._trend(z) @ self.by_trend)

    def _read(self, gammas: Array) -> Array:
        z = gammas / (gammas + self.knees) if self.bounded else np.log1p(gammas / self.knees)
        return np.asarray(z / self.scale)

    def _covariance(self, z: Array) -> Array:
        squares = (z**2).sum(axis=1)[:, np.newaxis] + (self.z**2).sum(axis=1) - 2.0 * z @ self.z.T
        d = np.sqrt(5.0 * np.maximum(squares, 0.0)) / self.length
        return np.asarray((1.0 + d + d**2 / 3.0) * np.exp(-d))

    def _trend(self, z: Array) -> Array:
        off = z - self.centre
        return np.column_stack(
            [np.ones(len(z)), off, off**2] if self.squares else [np.ones(len(z)), off]
        )


def fit_kriging(gammas: Array, values: Array, knees: Array) -> Kriging:
    """Return the interpolation with the least errors where values are within ten nats of their
    least."""
    near = values - values.min(axis=0) < KRIGING_RANGE

    def misses(one: Kriging) -> float:
        return float(np.mean(np.minimum(one.errors(values)[near] ** 2, KRIGING_CAP)))

    kinds = [(False, 0.2), (False, 0.6), (False, 2.0), (True, 0.3), (True, 1.0), (True, 4.0)]
    trends = (False, True) if len(gammas) > CANDIDATES_FOR_SQUARES * gammas.shape[1] else (False,)
    tried = (
        Kriging(gammas, factor * knees, bounded, squares, length)
        for bounded, factor in kinds
        for squares in trends
        for length in (2, 4, 8)
    )
    return min(tried, key=misses)


def learn_frequencies(values: Array, steps: int = EM_STEPS) -> Array:
    """Return how frequent points are among targets, by EM, for criteria in nats of shape (points,
    targets)."""
    likelihoods = np.exp(values.min(axis=0) - values)
    likelihoods[likelihoods < LEAST_FREQUENCY] = 0.0
    found = np.full(len(values), 1.0 / len(values))
    for _ in range(steps):
        found *= likelihoods @ (1.0 / (len(likelihoods.T) * (found @ likelihoods)))
        np.maximum(found, LEAST_FREQUENCY, out=found)
    return found


def find_centres(z: Array, count: int, rng: np.random.RandomState) -> Array:
    """Return the centres of so many groups of points, by k-means."""
    if count >= len(z):
        return z
    # A group without points keeps its centre.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return np.asarray(
            kmeans2(z, z[rng.permutation(len(z))[:count]], KMEANS_STEPS, minit="matrix")[0]
        )


class _Interpolated:
    """The criterion at points between the candidates, and how frequent they are among targets.

    The points are drawn around the candidates that suit targets and, if they are to be
    `everywhere`, as the design is drawn, too.

    Attributes
    ----------
    knees : ndarray of shape (P,)
        γ₀.
    z : ndarray of shape (points, P)
        The points, log(1 + γ/γ₀).
    kriging : Kriging
        What interpolates.
    weights : ndarray of shape (points, candidates)
        What the candidates count for the points.
    frequencies : ndarray of shape (points,)
        The prior.
    some, lowest : ndarray
        The targets that it was learned from, and the least interpolated criterion of each.
    """

    def __init__(
        self,
        search: _Candidates,
        rng: np.random.RandomState,
        options: TargetOptions,
        everywhere: bool,
    ) -> None:
        self.search, self.knees, gammas = (
            search,
            POINT_KNEES * search.knees,
            np.array(search.gammas),
        )
        self.some = rng.permutation(len(search.best))[: options.learned_from]
        known = search.above_best(self.some)
        self.kriging = fit_kriging(gammas, known[:, : options.fitted_to], search.knees)
        frequent = learn_frequencies(known)
        at = rng.choice(len(gammas), options.points, p=frequent / frequent.sum())
        spread = options.spread * (FIRST_SPREAD if everywhere else 1.0)
        z = np.maximum(
            np.log1p(gammas[at] / self.knees) + spread * rng.normal(size=gammas[at].shape), 0.0
        )
        z[rng.uniform(size=z.shape) < options.zeros] = 0.0
        if everywhere:
            z = np.concatenate(
                [z, np.log1p(_design(search.units, options.points // 2, rng, options) / self.knees)]
            )
        self.z, self.weights = z, self.kriging.weights(self.knees * np.expm1(z))
        values = self.weights @ known
        self.frequencies, self.lowest = (
            learn_frequencies(values),
            values.min(axis=0) + search.best[self.some],
        )

    def left_over(self) -> float:
        """Return by how much the criterion is below that of the best candidate somewhere, on
        average over targets."""
        return float(np.maximum(self.search.best[self.some] - self.lowest, 0.0).mean())

    def means(self, targets: Indices) -> Array:
        """Return the posterior means of some targets in z."""
        backend = self.search.targets.backend
        place, xp = backend.asarray, backend.xp
        weights, z = place(self.weights), place(self.z)
        prior = place(np.log(self.frequencies + np.finfo(float).tiny))[:, None]
        means = np.empty((len(targets), self.z.shape[1]))
        for part in row_strips(len(targets), MEANS_AT_ONCE):
            odds = prior - weights @ place(self.search.above_best(targets[part]))
            odds = xp.exp(odds - xp.amax(odds, 0))
            means[part] = backend.to_numpy((odds.T @ z) / odds.sum(0)[:, None])
        return means

    def ratios(self, z: Array) -> Array:
        """Return γ."""
        found = self.knees * np.expm1(z)
        # Without any kernel there are no shares.
        found[found.sum(axis=1) <= 0.0] = LEAST_RATIO * self.knees
        # Beyond, as targets without noise would have it, the rounding of linear systems shows in
        # predictions.
        sizes = found @ self.search.traces
        found *= np.minimum(1.0, MOST_RATIO / sizes)[:, np.newaxis]
        return _rounded(found)
