"""Weights and ridge of every target by its own leave-one-out error or evidence.

Only the ratios γ = η/α of weights and ridge matter. A candidate is one vector γ for all kernels.
One factorisation of M = Σ_m γ_m K_m + diag(1/w) and one product with all targets give the criterion
of every target at a candidate. The candidates are few, and shared by all targets:

1. a design: fractions of the kernels drawn from the simplex, with its corners, times sums of γ over
   several decades;
2. the criterion of each target between the candidates is interpolated, by kriging;
3. EM learns from many interpolated points how frequent every γ is among all targets, since single
   targets are noisy. This is the prior; with the criterion of a target it gives the posterior mean
   of the target;
4. the posterior means are gathered into groups, whose centres are the next candidates. Steps 2 to 4
   are repeated a few times;
5. the centres of the last round are tried only for the targets of their group. Each of these then
   moves on to its own posterior mean if its criterion, interpolated from the centre, is lower
   there. Its machine is found by a few conjugate gradients, with the factorised centre as the
   preconditioner.

Every target keeps its least criterion, so that none does worse than with the best of the candidates
that were tried for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
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
from kernelmosaic.ridge import tuning
from kernelmosaic.ridge.learning import centre_and_unit
from kernelmosaic.solvers.least_squares import FeatureForm, Groups, LeastSquares, MatrixForm


@dataclass(frozen=True)
class TargetOptions:
    """How many candidates are tried, and where.

    No benchmark varies these numbers one by one; where no reason stands below, they were chosen by
    hand.

    Attributes
    ----------
    sizes : tuple of int
        Numbers of candidates: of the design, then of every round after it. The candidates of the
        last round are for groups of targets. A round never has more candidates than there are
        targets. If empty, the given candidates are the only ones.
    operations : float
        In the last round every target is a group of its own if this takes at most so many
        operations, n³ for each.
    sums : tuple of float
        Least and largest Σ_m γ_m of the design, for kernels of mean diagonal one.
    concentration : float
        Parameter of the Dirichlet distribution from which fractions of the kernels are drawn: below
        one, most draws have a few large fractions.
    points : int
        Number of points at which the criterion is interpolated.
    spread : float
        Standard deviation of the points around candidates, in log(1 + γ/γ₀); in the first round it
        is multiplied by `tuning.FIRST_SPREAD`.
    zeros : float
        Fraction of the γ of points that is set to zero.
    fitted_to, learned_from, grouped : int
        Largest numbers of targets that the interpolation is fitted to, that the prior is learned
        from, and that are gathered into groups.
    batch_bytes : int or None
        Bytes of the targets that are computed with at once. None means 32 MiB on the host and 256
        MiB on a device.
    kept_bytes : float or None
        Standardised targets are stored if they and their coefficients take at most so many bytes.
        None means the free memory.
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
        """Return options whose rounds have about `n_candidates` candidates together."""
        total = sum(cls.sizes)
        sizes = [max(5, round(n_candidates * size / total)) for size in cls.sizes]
        return cls(sizes=tuple(sizes))


DEFAULTS = TargetOptions()


@dataclass(frozen=True)
class TargetsLearned:
    """The machines that were learned; T is the number of targets.

    Attributes
    ----------
    ratios : ndarray of shape (T, P)
        γ.
    value : ndarray of shape (T,)
        The criterion, in nats.
    errors : ndarray of shape (T,)
        Mean squared residuals of samples left out, relative to the variance of the target.
    moved : ndarray of shape (T,)
        Whether γ is a posterior mean in place of a candidate: `value` and `errors` are interpolated
        then.
    left_over : float
        By how much the interpolated criterion falls below `value`, on average over some targets.
    beta : ndarray of shape (n, T)
        A Y with A = M⁻¹ − M⁻¹1 1ᵀM⁻¹ / 1ᵀM⁻¹1, in the precision of the targets.
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
    """Return the ratios γ of weights and ridge, and the machine, of every target.

    Parameters
    ----------
    stack : MatrixStack or FeatureStack
        The kernels.
    Y : array or tensor of shape (n, T)
        Targets. They are read in batches, which are stored if there is memory for them.
    weight : ndarray of shape (n,)
        Weights of the samples.
    rng : RandomState
        Draws designs and points.
    criterion : {"loo", "evidence"}
        The criterion to minimise.
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
    n, T = Y.shape
    targets = TargetBatches(Y, weight, stack.backend, options)
    form: MatrixForm | FeatureForm
    if stack.widths is not None:
        form = FeatureForm.of_all_samples(stack, weight, targets.dtype)
    else:
        form = MatrixForm(stack, weight, dtype=targets.dtype)
    search = _Candidates(form, targets, criterion, groups)

    # The given candidates and the design, then the number of candidates of every round.
    seeds = np.zeros((0, stack.n_kernels)) if first is None else first
    design = np.zeros((0, stack.n_kernels))
    has_design = len(options.sizes) > 0
    if has_design:
        seeds = _rounded(seeds)
        design = _rounded(_design(search.units, options.sizes[0], rng, options))
    rounds = list(options.sizes[1:])
    if rounds and T * n**3 <= options.operations:
        rounds[-1] = T
    rounds = [min(size, T) for size in rounds]
    total = len(seeds) + len(design) + sum(rounds)

    interpolation = None
    with progress("Weights per target", total, options.verbose) as show:

        def evaluate(candidates: Iterable[Any], judge: Callable[[Any], None]) -> None:
            for candidate in candidates:
                judge(candidate)
                n_tried = len(search.gammas)
                show(f"candidate {n_tried} of {total}", n_tried)
            search.history.append(float(search.best.mean()))

        # 1. The design.
        evaluate(np.concatenate([seeds, design]), search.add)
        for k, size in enumerate(rounds):
            # 2. and 3. The criterion between the candidates, and the prior.
            interpolation = _Interpolation(search, rng, options, everywhere=k == 0)
            # 4. Groups of posterior means.
            grouped = rng.permutation(T)[: options.grouped]
            centres = find_centres(interpolation.means(grouped), size, rng)
            is_last = k == len(rounds) - 1
            if not is_last:
                evaluate(interpolation.ratios(centres), search.add)
                continue
            # 5. The centres for the targets of their groups, and the posterior means of these.
            means = interpolation.means(np.arange(T))
            nearest = vq(means, centres)[0]
            members = [np.flatnonzero(nearest == number) for number in range(len(centres))]
            members = [numbers for numbers in members if len(numbers)]
            evaluate(members, partial(search.refine, interpolation, means))

    if not has_design:
        return search.learned(0.0)
    if interpolation is None:
        interpolation = _Interpolation(search, rng, options, everywhere=False)
    return search.learned(interpolation.left_over())


def join_targets(
    parts: list[tuple[Indices, Indices, TargetsLearned]], shape: tuple[int, ...]
) -> TargetsLearned:
    """Return the results of several groups of targets as one result.

    Parameters
    ----------
    parts : list of (ndarray, ndarray, TargetsLearned)
        Of every group, the numbers of its samples and of its targets, and its result. Other samples
        get coefficients of zero.
    shape : (n, T)
        Numbers of all samples and of all targets.
    """
    n, T = shape
    first_result = parts[0][2]
    ratios = np.empty((T, first_result.ratios.shape[1]))
    value = np.empty(T)
    errors = np.empty(T)
    intercept = np.empty(T)
    moved = np.empty(T, dtype=bool)
    beta = np.zeros((n, T), dtype=first_result.beta.dtype)
    last_value = np.zeros(T)
    for rows, columns, learned in parts:
        ratios[columns] = learned.ratios
        moved[columns] = learned.moved
        value[columns] = learned.value
        errors[columns] = learned.errors
        intercept[columns] = learned.intercept
        beta[np.ix_(rows, columns)] = learned.beta
        last_value[columns] = learned.history[-1]
    return TargetsLearned(
        ratios=ratios,
        value=value,
        errors=errors,
        moved=moved,
        left_over=max(learned.left_over for *_, learned in parts),
        beta=beta,
        intercept=intercept,
        candidates=np.concatenate([learned.candidates for *_, learned in parts]),
        history=[float(last_value.mean())],
    )


# Targets in batches -------------------------------------------------------------------------------


class TargetBatches:
    """Standardised targets in batches of columns.

    They are stored where the kernels are if there is memory for them; else every pass over the
    batches reads and standardises them again.

    Parameters
    ----------
    Y : array or tensor of shape (n, T)
        The targets as they were given.
    weight : ndarray of shape (n,)
        Weights of the samples.
    backend : Backend
        Where products are formed.
    options : TargetOptions
        Sizes of batches, and how much is stored.

    Attributes
    ----------
    means, units : ndarray of shape (T,)
        Weighted means, and standard deviations, one for constants.
    dtype : dtype
        In which products are formed: that of the targets, single or double precision.
    batches : list of slice
        The targets of every batch.
    stored : list of array or None
        The batches, if they are stored.
    """

    def __init__(
        self, Y: ArrayOrTensor, weight: Array, backend: Backend, options: TargetOptions
    ) -> None:
        self.Y = Y
        self.weight = weight
        self.backend = backend
        n, T = Y.shape
        self.means = np.empty(T)
        self.units = np.empty(T)
        is_single = backend_of(Y).dtype(Y) == np.float32
        self.dtype: DType = np.dtype(np.float32 if is_single else np.float64)
        default_bytes = tuning.HOST_BATCH_BYTES if backend is NUMPY else tuning.DEVICE_BATCH_BYTES
        batch_bytes = options.batch_bytes or default_bytes
        self.batches = list(row_strips(T, batch_bytes // (self.dtype.itemsize * n)))

        # The factor three leaves memory for the coefficients beside the targets.
        budget = default_budget(backend) if options.kept_bytes is None else options.kept_bytes
        is_stored = 3 * n * T * self.dtype.itemsize <= budget
        self.stored: list[ArrayOrTensor] | None = [] if is_stored else None
        for batch in self.batches:
            placed = _placed(Y[:, batch], backend)
            self.means[batch], self.units[batch] = centre_and_unit(placed, weight)
            if self.stored is not None:
                self.stored.append(self._standardised(placed, batch))

    def _standardised(self, placed: ArrayOrTensor, batch: slice) -> ArrayOrTensor:
        """Return the targets of a batch with mean zero and variance one, in `dtype`."""
        mean = self.backend.asarray(self.means[batch])
        unit = self.backend.asarray(self.units[batch])
        return self.backend.astype((placed - mean) / unit, self.dtype)

    def __iter__(self) -> Iterator[tuple[slice, ArrayOrTensor]]:
        for k, batch in enumerate(self.batches):
            if self.stored is not None:
                yield batch, self.stored[k]
            else:
                yield batch, self._standardised(_placed(self.Y[:, batch], self.backend), batch)


def _placed(Y: ArrayOrTensor, backend: Backend) -> ArrayOrTensor:
    """Return targets in double precision where products are formed."""
    if backend is NUMPY:
        return backend.asarray(to_host(Y))
    # Targets travel to a device in the precision that was given. Arrays are copied, because Torch
    # warns of read-only memory.
    source = Y if is_tensor(Y) else np.array(Y)
    return backend.astype(backend.asarray(source, None), np.float64)


# The criterion at candidates ----------------------------------------------------------------------


class _Candidates:
    """The criterion of all targets at every candidate, and the best machine of every target.

    Parameters
    ----------
    form : MatrixForm or FeatureForm
        The kernels.
    targets : TargetBatches
        The targets.
    criterion : {"loo", "evidence"}
        The criterion to minimise.
    groups : sequence of ndarray or None
        Samples that are left out together.

    Attributes
    ----------
    gammas : list of ndarray of shape (P,)
        All candidates.
    values : list of ndarray of shape (2, T)
        Criteria, and logarithms of errors, at the candidates that were tried for all targets.
    history : list of float
        As in `TargetsLearned`.
    traces : ndarray of shape (P,)
        tr K of every kernel.
    units : ndarray of shape (P,)
        The γ at which every kernel has a mean diagonal of one.
    knees : ndarray of shape (P,)
        The γ at which the eigenvalues of every kernel exceed one: tr K / ‖K‖², one over their mean,
        in which each eigenvalue is weighted by its size.
    best, log_errors : ndarray of shape (T,)
        The least criterion of every target, and the logarithm of its error there.
    ratios, moved, intercept : ndarray
        As in `TargetsLearned`, but for the constants of standardised targets.
    beta : list of array
        The coefficients of every batch of standardised targets.
    """

    def __init__(
        self, form: MatrixForm | FeatureForm, targets: TargetBatches, criterion: str, groups: Groups
    ) -> None:
        self.form = form
        self.targets = targets
        self.criterion = criterion
        self.groups = groups
        n, T = targets.Y.shape
        self.gammas: list[Array] = []
        self.values: list[Array] = []
        self.history: list[float] = []

        # Sizes of n in place of zero: for a kernel of zeros any γ will do.
        least_size = n * np.finfo(float).tiny
        traces, squares = form.sizes()
        traces = np.where(traces > least_size, traces, n)
        squares = np.where(squares > least_size, squares, n)
        self.traces = traces
        self.units = n / traces
        self.knees = traces / squares

        self.best = np.full(T, np.inf)
        self.ratios = np.zeros((T, len(self.units)))
        self.log_errors = np.full(T, np.nan)
        self.intercept = np.zeros(T)
        self.moved = np.zeros(T, dtype=bool)
        # Coefficients are on the device if the targets are.
        backend = NUMPY if targets.stored is None else targets.backend
        self.beta = [
            backend.zeros((n, batch.stop - batch.start), targets.dtype) for batch in targets.batches
        ]

    def add(self, gamma: Array) -> None:
        """Try a candidate for all targets."""
        gamma = np.array(gamma, dtype=np.float64)
        self.gammas.append(gamma)
        every_target = np.arange(len(self.best))
        self.values.append(self._judge(self.form.at(gamma), every_target))

    def refine(self, interpolation: _Interpolation, z: Array, members: Indices) -> None:
        """Try the centre of a group for its targets, then the posterior mean of each of them.

        A target moves to its posterior mean if its criterion there, interpolated from the centre,
        is below its least criterion by more than the interpolation misses at the centre.

        Parameters
        ----------
        interpolation : _Interpolation
            The criterion between the candidates.
        z : ndarray of shape (T, P)
            The posterior means of all targets, log(1 + γ/γ₀).
        members : ndarray
            Ascending numbers of the targets of the group.
        """
        targets = self.targets
        backend = targets.backend
        centre = interpolation.ratios(z[members].mean(axis=0, keepdims=True))[0]
        self.gammas.append(centre)
        system = self.form.at(centre)
        gammas = interpolation.ratios(z[members])

        # 1. The criterion at the centre, and interpolated from there at the posterior means.
        at_centre = self._judge(system, members)
        candidate_values = np.array([values[:, members] for values in self.values])
        centre_weights = interpolation.kriging.weights(centre[np.newaxis])
        weight_changes = interpolation.kriging.weights(gammas) - centre_weights
        interpolated = at_centre + np.einsum("ts,skt->kt", weight_changes, candidate_values)

        # 2. The targets that gain more than the interpolation misses at the centre.
        misses = at_centre[0] - centre_weights[0] @ candidate_values[:, 0]
        least_gain = np.sqrt(np.mean(misses**2))
        moving = np.flatnonzero(interpolated[0] < self.best[members] - least_gain)
        numbers = members[moving]

        # 3. Their machines, by conjugate gradients.
        rounding = float(np.finfo(targets.dtype).eps)
        accuracy = BlockOptions(cg_steps=tuning.REFINE_STEPS, cg_tol=rounding**tuning.REFINE_POWER)

        def preconditioner(r: Any) -> Any:
            # A maps constants to zero, but a matrix near M⁻¹ does not: the means are added.
            return system.times(r) + r.mean(0)

        for k, strip, Y in self._batches_of(numbers):
            strip_gammas = gammas[moving[strip]]
            placed_gammas = backend.asarray(strip_gammas.T, targets.dtype)
            times = partial(self.form.products, gammas=placed_gammas)
            beta = conjugate_gradients(times, preconditioner, Y, accuracy, sums=True)
            residuals = Y - times(beta)
            constants = residuals.mean(0)
            residuals = residuals - constants
            # Targets have unit variance. Those whose system the steps leave unsolved keep their
            # last machine.
            sizes = backend.to_numpy((residuals * residuals).mean(0)) ** 0.5
            solved = np.flatnonzero(sizes <= tuning.LARGEST_RESIDUAL)
            if len(solved) == 0:
                continue
            solved_numbers = numbers[strip][solved]
            solved_values = interpolated[:, moving[strip][solved]]
            columns = backend.index(solved)
            self._store(k, solved_numbers, solved_values, beta[:, columns], constants[columns])
            self.ratios[solved_numbers] = strip_gammas[solved]
            self.moved[solved_numbers] = True

    def _judge(self, system: LeastSquares, numbers: Indices) -> Array:
        """Return the criteria and log errors of some targets at the last candidate.

        Where they are the best so far, the machines are stored.

        Parameters
        ----------
        system : LeastSquares
            The system of the last candidate.
        numbers : ndarray
            Ascending numbers of the targets.

        Returns
        -------
        ndarray of shape (2, len(numbers))
        """
        targets = self.targets
        backend = targets.backend
        n = len(targets.weight)
        total_weight = targets.weight.sum()
        constants = backend.asarray(system.constants, targets.dtype)
        fraction = backend.asarray(targets.weight / total_weight, targets.dtype)
        values = np.empty((2, len(numbers)))
        for k, strip, Y in self._batches_of(numbers):
            beta = system.times(Y)
            errors = fraction @ system.residuals(beta, self.groups) ** 2
            log_errors = _log(backend.to_numpy(errors).astype(np.float64))
            if self.criterion == "evidence":
                # No digit of YᵀAY is known where it is below the rounding of squared targets.
                rounding = float(np.finfo(targets.dtype).eps)
                least = tuning.LEAST_FIT_ROUNDINGS * rounding * (Y * Y).sum(0)
                YAY = backend.xp.maximum((Y * beta).sum(0), least)
                noise = np.asarray(backend.to_numpy(YAY), np.float64) / (n - 1)
                criteria = 0.5 * (n - 1) * _log(noise) + 0.5 * system.log_det
            else:
                criteria = 0.5 * total_weight * log_errors
            values[0, strip] = criteria
            values[1, strip] = log_errors

            better = np.flatnonzero(criteria < self.best[numbers[strip]])
            if len(better) == 0:
                continue
            columns = backend.index(better)
            if targets.dtype == np.float32:
                better_beta = self._exact_coefficients(system, Y, better)
            else:
                better_beta = beta[:, columns]
            better_numbers = numbers[strip][better]
            better_values = values[:, strip.start + better]
            better_constants = constants @ Y[:, columns]
            self._store(k, better_numbers, better_values, better_beta, better_constants)
            self.ratios[better_numbers] = self.gammas[-1]
        return values

    def _exact_coefficients(
        self, system: LeastSquares, Y: ArrayOrTensor, columns: Indices
    ) -> ArrayOrTensor:
        """Return A Y of some columns in single precision, computed in double precision.

        A Y is a small difference of large numbers, of which products in single precision keep too
        few digits.
        """
        backend = self.targets.backend
        beta = backend.zeros((len(Y), len(columns)), self.targets.dtype)
        strip_size = -(-len(columns) // tuning.EXACT_STRIPS)
        for strip in row_strips(len(columns), strip_size):
            exact = backend.astype(Y[:, backend.index(columns[strip])], np.float64)
            beta[:, strip] = backend.astype(system.times(exact), self.targets.dtype)
        return beta

    def _batches_of(self, numbers: Indices) -> Iterator[tuple[int, slice, ArrayOrTensor]]:
        """Yield the targets of ascending numbers, batch by batch.

        Yields
        ------
        k : int
            The number of the batch.
        strip : slice
            Which of `numbers` are in the batch.
        Y : array of shape (n, targets)
            The standardised targets of these numbers.
        """
        for k, (batch, Y) in enumerate(self.targets):
            first, stop = np.searchsorted(numbers, [batch.start, batch.stop])
            strip = slice(int(first), int(stop))
            n_targets = strip.stop - strip.start
            if n_targets == batch.stop - batch.start:
                yield k, strip, Y
            elif n_targets > 0:
                yield k, strip, Y[:, self.targets.backend.index(numbers[strip] - batch.start)]

    def _store(
        self,
        k: int,
        numbers: Indices,
        values: Array,
        beta: ArrayOrTensor,
        constants: ArrayOrTensor,
    ) -> None:
        """Store the best machines of some targets of a batch.

        Parameters
        ----------
        k : int
            The number of the batch.
        numbers : ndarray
            The numbers of the targets.
        values : ndarray of shape (2, targets)
            Their criteria and log errors.
        beta, constants : array of shape (n, targets), (targets,)
            Their machines, where products are formed.
        """
        backend = self.targets.backend
        store_backend = backend_of(self.beta[k])
        # Rounding leaves a sum of β that is not zero; with large kernels it would show.
        beta = beta - beta.mean(0)
        columns = store_backend.index(numbers - self.targets.batches[k].start)
        self.beta[k][:, columns] = beta if store_backend is backend else backend.to_numpy(beta)
        self.best[numbers] = values[0]
        self.log_errors[numbers] = values[1]
        self.intercept[numbers] = backend.to_numpy(constants)

    def above_best(self, numbers: Indices) -> Array:
        """Return by how much every candidate's criterion exceeds the least one.

        Returns
        -------
        ndarray of shape (candidates, len(numbers))
            For the targets of these numbers.
        """
        criteria = np.array([values[0, numbers] for values in self.values])
        return np.asarray(criteria - self.best[numbers])

    def learned(self, left_over: float) -> TargetsLearned:
        """Return the best machine of every target, in the units of the targets.

        The coefficients are moved out of the search, which is over then.
        """
        dtype = self.targets.dtype
        means = self.targets.means
        units = self.targets.units
        beta = np.empty(self.targets.Y.shape, dtype)
        # The memory of every batch is freed once it is copied.
        for batch in reversed(self.targets.batches):
            batch_beta = self.beta.pop()
            backend = backend_of(batch_beta)
            beta[:, batch] = backend.borrow(batch_beta * backend.asarray(units[batch], dtype))
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
    """Return logarithms of numbers ≥ 0, with `tuning.LEAST_ERROR` in place of smaller ones.

    The residuals of a constant target are zero; its criterion is then the same at all candidates.
    """
    return np.asarray(np.log(np.maximum(values, tuning.LEAST_ERROR)))


# The next candidates ------------------------------------------------------------------------------


def _design(units: Array, count: int, rng: np.random.RandomState, options: TargetOptions) -> Array:
    """Return `count` candidates γ that cover the simplex, at sums over several decades.

    The first ones are the centre and the corners of the simplex. The logarithms of the sums are
    stratified.

    Parameters
    ----------
    units : ndarray of shape (P,)
        The γ at which every kernel has a mean diagonal of one.
    count : int
        Number of candidates.
    rng : RandomState
        Draws fractions of the kernels, and assigns them to sums.
    options : TargetOptions
        The range of the sums, and the distribution of the fractions.
    """
    n_kernels = len(units)
    centre = np.full((1, n_kernels), 1.0 / n_kernels)
    fixed = np.concatenate([centre, np.eye(n_kernels)])[:count]
    drawn = rng.dirichlet(np.full(n_kernels, options.concentration), size=count - len(fixed))
    low, high = np.log(options.sums)
    sums = np.exp(low + (high - low) * (rng.permutation(count) + 0.5) / count)
    return np.asarray(np.concatenate([fixed, drawn]) * sums[:, np.newaxis] * units)


def _rounded(gammas: Array) -> Array:
    """Return γ to four digits, which is enough for every criterion.

    The covariance of kriging is nearly singular, and what rounding leaves of further digits would
    grow from round to round: the same samples in another order, or on another machine, would have
    other weights.
    """
    digits, exponents = np.frexp(gammas)
    return np.asarray(np.ldexp(np.round(2.0**14 * digits), exponents - 14))


class Kriging:
    """Interpolation of functions whose values are known at the same points.

    The weights of the values are the same for all functions. The covariance is Matérn's of 5/2
    around a trend, which is linear, or has squares, too, in z = log(1 + γ/γ₀) or z = γ/(γ + γ₀),
    scaled.

    Parameters
    ----------
    gammas : ndarray of shape (S, P)
        The points.
    knees : ndarray of shape (P,)
        γ₀.
    bounded : bool
        Whether z = γ/(γ + γ₀).
    squares : bool
        Whether the trend has squares.
    length : float
        Length of the covariance, in mean standard deviations of z.
    """

    def __init__(
        self, gammas: Array, knees: Array, bounded: bool, squares: bool, length: float
    ) -> None:
        self.knees = knees
        self.bounded = bounded
        self.squares = squares
        self.length = length
        self.scale = 1.0
        z = self._scaled(gammas)
        self.scale = float(z.std(axis=0).mean()) or 1.0
        self.z = z / self.scale
        self.centre = z.mean(axis=0) / self.scale

        # Universal kriging: of the values v at the points, by_trend @ v are the coefficients of the
        # trend by generalised least squares, and by_covariance @ v those of the covariances.
        C = self._covariance(self.z) + tuning.KRIGING_NUGGET * np.eye(len(z))
        inverse = np.linalg.inv(C)
        H = self._trend(self.z)
        self.by_trend = np.linalg.pinv(H.T @ inverse @ H) @ H.T @ inverse
        self.by_covariance = inverse - inverse @ H @ self.by_trend

    def errors(self, values: Array) -> Array:
        """Return every value minus its interpolation by all others.

        Parameters
        ----------
        values : ndarray of shape (S, functions)
            The values at the points.
        """
        diagonal = self.by_covariance.diagonal()[:, np.newaxis]
        return np.asarray(self.by_covariance @ values / diagonal)

    def weights(self, gammas: Array) -> Array:
        """Return the weights of the values at the points in interpolations at other γ.

        Parameters
        ----------
        gammas : ndarray of shape (k, P)
            Where to interpolate.

        Returns
        -------
        ndarray of shape (k, S)
        """
        z = self._scaled(gammas)
        return np.asarray(self._covariance(z) @ self.by_covariance + self._trend(z) @ self.by_trend)

    def _scaled(self, gammas: Array) -> Array:
        """Return z of some γ."""
        z = gammas / (gammas + self.knees) if self.bounded else np.log1p(gammas / self.knees)
        return np.asarray(z / self.scale)

    def _covariance(self, z: Array) -> Array:
        """Return the covariances of some z with the points, of shape (k, S)."""
        squares = (z**2).sum(axis=1)[:, np.newaxis] + (self.z**2).sum(axis=1) - 2.0 * z @ self.z.T
        d = np.sqrt(5.0 * np.maximum(squares, 0.0)) / self.length
        return np.asarray((1.0 + d + d**2 / 3.0) * np.exp(-d))

    def _trend(self, z: Array) -> Array:
        """Return the functions of the trend at some z, one per column."""
        centred = z - self.centre
        columns = [np.ones(len(z)), centred]
        if self.squares:
            columns.append(centred**2)
        return np.column_stack(columns)


def fit_kriging(gammas: Array, values: Array, knees: Array) -> Kriging:
    """Return the kriging with the least errors near the least value of every function.

    Parameters
    ----------
    gammas : ndarray of shape (S, P)
        The points.
    values : ndarray of shape (S, functions)
        The values there, in nats.
    knees : ndarray of shape (P,)
        The γ at which the eigenvalues of every kernel exceed one.
    """
    is_near = values - values.min(axis=0) < tuning.KRIGING_RANGE

    def mean_error(kriging: Kriging) -> float:
        squares = kriging.errors(values)[is_near] ** 2
        return float(np.mean(np.minimum(squares, tuning.KRIGING_CAP)))

    trends = [False]
    if len(gammas) > tuning.CANDIDATES_FOR_SQUARES * gammas.shape[1]:
        trends.append(True)
    settings = product(tuning.KRIGING_KINDS, trends, tuning.KRIGING_LENGTHS)
    krigings = (
        Kriging(gammas, factor * knees, bounded, squares, length)
        for (bounded, factor), squares, length in settings
    )
    return min(krigings, key=mean_error)


def learn_frequencies(values: Array, steps: int = tuning.EM_STEPS) -> Array:
    """Return how frequent points are among targets, by EM.

    Parameters
    ----------
    values : ndarray of shape (points, targets)
        The criterion of every target at every point, in nats.
    steps : int
        Steps of EM.
    """
    likelihoods = np.exp(values.min(axis=0) - values)
    likelihoods[likelihoods < tuning.LEAST_FREQUENCY] = 0.0
    n_targets = len(likelihoods.T)
    frequencies = np.full(len(values), 1.0 / len(values))
    for _ in range(steps):
        frequencies *= likelihoods @ (1.0 / (n_targets * (frequencies @ likelihoods)))
        np.maximum(frequencies, tuning.LEAST_FREQUENCY, out=frequencies)
    return frequencies


def find_centres(z: Array, count: int, rng: np.random.RandomState) -> Array:
    """Return the centres of `count` groups of points, by k-means; all points if they are fewer."""
    if count >= len(z):
        return z
    first_centres = z[rng.permutation(len(z))[:count]]
    # Of a group without points SciPy warns, and its centre stays.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        centres, _ = kmeans2(z, first_centres, tuning.KMEANS_STEPS, minit="matrix")
    return np.asarray(centres)


class _Interpolation:
    """The criterion at points between the candidates, and how frequent these are among targets.

    The points are drawn around the candidates that are frequent among targets.

    Parameters
    ----------
    search : _Candidates
        The candidates.
    rng : RandomState
        Draws targets and points.
    options : TargetOptions
        Numbers of targets and points.
    everywhere : bool
        Whether to draw wider, and to add points of a design.

    Attributes
    ----------
    knees : ndarray of shape (P,)
        γ₀.
    z : ndarray of shape (points, P)
        The points, log(1 + γ/γ₀).
    kriging : Kriging
        The interpolation.
    weights : ndarray of shape (points, candidates)
        The weights of the candidates in the criterion at the points.
    frequencies : ndarray of shape (points,)
        The prior.
    prior_targets, lowest : ndarray
        The targets that the prior was learned from, and the least interpolated criterion of each.
    """

    def __init__(
        self,
        search: _Candidates,
        rng: np.random.RandomState,
        options: TargetOptions,
        everywhere: bool,
    ) -> None:
        self.search = search
        self.knees = tuning.POINT_KNEES * search.knees
        gammas = np.array(search.gammas)

        # 1. The interpolation.
        self.prior_targets = rng.permutation(len(search.best))[: options.learned_from]
        candidate_values = search.above_best(self.prior_targets)
        self.kriging = fit_kriging(gammas, candidate_values[:, : options.fitted_to], search.knees)

        # 2. Points around frequent candidates.
        candidate_frequencies = learn_frequencies(candidate_values)
        probabilities = candidate_frequencies / candidate_frequencies.sum()
        origins = gammas[rng.choice(len(gammas), options.points, p=probabilities)]
        spread = options.spread
        if everywhere:
            spread *= tuning.FIRST_SPREAD
        z = np.log1p(origins / self.knees) + spread * rng.normal(size=origins.shape)
        z = np.maximum(z, 0.0)
        z[rng.uniform(size=z.shape) < options.zeros] = 0.0
        if everywhere:
            design = _design(search.units, options.points // 2, rng, options)
            z = np.concatenate([z, np.log1p(design / self.knees)])
        self.z = z

        # 3. The frequencies of the points.
        self.weights = self.kriging.weights(self.knees * np.expm1(z))
        values = self.weights @ candidate_values
        self.frequencies = learn_frequencies(values)
        self.lowest = values.min(axis=0) + search.best[self.prior_targets]

    def left_over(self) -> float:
        """Return by how much the least interpolated criterion is below that of the best candidate.

        It is the average over the targets that the prior was learned from.
        """
        best = self.search.best[self.prior_targets]
        return float(np.maximum(best - self.lowest, 0.0).mean())

    def means(self, numbers: Indices) -> Array:
        """Return the posterior means of z of the targets of these numbers."""
        backend = self.search.targets.backend
        xp = backend.xp
        weights = backend.asarray(self.weights)
        z = backend.asarray(self.z)
        log_prior = backend.asarray(np.log(self.frequencies + np.finfo(float).tiny))[:, None]
        means = np.empty((len(numbers), self.z.shape[1]))
        for strip in row_strips(len(numbers), tuning.MEANS_AT_ONCE):
            candidate_values = backend.asarray(self.search.above_best(numbers[strip]))
            log_posterior = log_prior - weights @ candidate_values
            posterior = xp.exp(log_posterior - xp.amax(log_posterior, 0))
            means[strip] = backend.to_numpy((posterior.T @ z) / posterior.sum(0)[:, None])
        return means

    def ratios(self, z: Array) -> Array:
        """Return the γ of points z, rounded, and within the limits of γ."""
        gammas = self.knees * np.expm1(z)
        # Without any kernel there are no fractions.
        gammas[gammas.sum(axis=1) <= 0.0] = tuning.LEAST_RATIO * self.knees
        # Targets without noise would have larger γ, at which the rounding of linear systems shows
        # in predictions.
        sizes = gammas @ self.search.traces
        gammas *= np.minimum(1.0, tuning.LARGEST_RATIO / sizes)[:, np.newaxis]
        return _rounded(gammas)
