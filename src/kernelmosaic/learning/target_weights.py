"""Weights and ridge of every target by its own leave-one-out error or evidence.

Only the ratios γ = η/α of weights and ridge count. One factorisation of Σ_m γ_m K_m + diag(1/w), a candidate, and one
product with all targets give the criterion of every target. The candidates are few, and shared by all targets:

1. a design: shares of the kernels drawn from the simplex, with its corners, times sums of γ over several decades;
2. the criterion of each target between the candidates is interpolated, by kriging;
3. how frequent which γ are among all targets is learned by EM on many interpolated points, since single targets are
   noisy: this is the prior from which, with its own criterion, every target has a posterior mean;
4. the posterior means are gathered into groups, whose centres are the next candidates; from 2, a few times.

Every target takes the candidate of its least criterion, so that none does worse than with the best of the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from kernelmosaic._typing import ArrayOrTensor, DType
from kernelmosaic.backend import NUMPY, Backend, backend_of, default_budget, is_tensor, row_strips, to_host
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.learning.problem import progress
from kernelmosaic.solvers.leave_one_out import Array, Groups, RidgeSystem


@dataclass(frozen=True)
class TargetOptions:
    """How many candidates are tried, and where.

    Attributes
    ----------
    sizes : tuple of int
        Candidates of the design, and of every round after it; of a round never more than targets.
    sums : tuple of float
        Least and largest Σ_m γ_m of the design, for kernels of mean diagonal one.
    concentration : float
        Of the Dirichlet distribution from which shares are drawn: below one most have a few large ones.
    points : int
        Points at which the criterion is interpolated.
    spread : float
        Standard deviation of these around candidates, in log(1 + γ/γ₀); half as much again in the first round.
    zeros : float
        Share of their weights that is set to zero.
    fitted_to, learned_from, grouped : int
        Most targets that the interpolation is fitted to, that the prior is learned from, and that are gathered into
        groups.
    batch_bytes : int
        Of the targets that are worked on at once.
    kept_bytes : float or None
        Up to which size, with their coefficients, they are kept in memory; None stands for what is free.
    """

    sizes: tuple[int, ...] = (60, 40, 50, 150)
    sums: tuple[float, float] = (1e-2, 1e3)
    concentration: float = 0.5
    points: int = 2000
    spread: float = 0.5
    zeros: float = 0.1
    fitted_to: int = 300
    learned_from: int = 1000
    grouped: int = 20_000
    batch_bytes: int = 2**28
    kept_bytes: float | None = None


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
    left_over : float
        By how much the interpolated criterion falls below `value`, on average over some targets.
    beta : ndarray of shape (n, T)
        (Σ_m γ_m K_m + diag(1/w))⁻¹ Y, the constants eliminated, in the precision of the targets.
    intercept : ndarray of shape (T,)
        The constants.
    candidates : ndarray of shape (candidates, P)
        All γ that were tried.
    history : list of float
        The mean of `value` over the targets after every round.
    """

    ratios: Array
    value: Array
    errors: Array
    left_over: float
    beta: NDArray[Any]
    intercept: Array
    candidates: Array
    history: list[float]


def learn_target_weights(
    stack: MatrixStack,
    Y: ArrayOrTensor,
    weight: Array,
    rng: np.random.RandomState,
    *,
    criterion: str = "loo",
    groups: Groups = None,
    first: Array | None = None,
    fixed: bool = False,
    options: TargetOptions | None = None,
    verbose: bool = False,
) -> TargetsLearned:
    """Choose the ratios γ of weights and ridge for every target.

    Parameters
    ----------
    stack : MatrixStack
        The kernels.
    Y : array or tensor of shape (n, T)
        Targets, of which parts are read; where there is room, they are kept once where the kernels are.
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
    fixed : bool
        Whether these are the only ones.
    options : TargetOptions
        Numbers of candidates.
    verbose : bool
        Whether to show the progress.

    Returns
    -------
    TargetsLearned
    """
    options = TargetOptions() if options is None else options
    seeds = np.zeros((0, stack.n_kernels)) if first is None else first
    search = _Candidates(stack, TargetBatches.of(Y, weight, stack.backend, options), criterion, groups)
    rounds = [] if fixed else [min(size, search.targets.n_targets) for size in options.sizes[1:]]
    design = np.zeros((0, stack.n_kernels)) if fixed else _design(search.units, options.sizes[0], rng, options)
    total = len(seeds) + len(design) + sum(rounds)
    with progress("Weights per target", total, verbose) as show:

        def evaluate(new: Array) -> None:
            for gamma in new:
                search.add(gamma)
                show(f"candidate {len(search.gammas)} of {total}", len(search.gammas))
            search.history.append(float(search.best.mean()))

        evaluate(np.concatenate([seeds, design]))
        for k, size in enumerate(rounds):
            between = _Interpolated.of(search, rng, options, everywhere=k == 0)
            evaluate(between.centres(between.means(search, rng, options), size, rng))
    left_over = 0.0 if fixed else _Interpolated.of(search, rng, options, everywhere=False).left_over
    return search.learned(left_over)


# Targets in batches ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetBatches:
    """Standardised targets in batches: kept where the kernels are if there is room, else read again.

    Attributes
    ----------
    Y : array or tensor of shape (n, T)
        As given.
    means, units : ndarray of shape (T,)
        Weighted means, and standard deviations, one for constants.
    weight : ndarray of shape (n,)
        Of the samples.
    backend : Backend
        Where products are formed.
    dtype : dtype
        In which they are formed: that of the targets, single or double precision.
    batches : list of slice
        The targets of every batch.
    kept : list of array or None
        The batches, if they are kept.
    """

    Y: ArrayOrTensor
    means: Array
    units: Array
    weight: Array
    backend: Backend
    dtype: DType
    batches: list[slice]
    kept: list[Any] | None

    @classmethod
    def of(cls, Y: ArrayOrTensor, weight: Array, backend: Backend, options: TargetOptions) -> TargetBatches:
        """Cut targets into batches."""
        n, T = Y.shape
        dtype = np.dtype(np.float32 if backend_of(Y).dtype(Y) == np.float32 else np.float64)
        batches = list(row_strips(T, options.batch_bytes // (dtype.itemsize * n)))
        # Beside the targets there are their coefficients.
        room = default_budget(backend) if options.kept_bytes is None else options.kept_bytes
        is_kept = 3 * n * T * dtype.itemsize <= room
        means, units, share = np.empty(T), np.empty(T), backend.asarray(weight / weight.sum())
        kept: list[Any] = []
        for part in batches:
            values = _placed(Y[:, part], backend)
            mean = share @ values
            centred = values - mean
            spread = np.sqrt(backend.to_numpy(share @ centred**2))
            means[part], units[part] = backend.to_numpy(mean), np.where(spread > 0, spread, 1.0)
            if is_kept:
                kept.append(backend.astype(centred / backend.asarray(units[part]), dtype))
        return cls(Y, means, units, weight, backend, dtype, batches, kept if is_kept else None)

    @property
    def n_targets(self) -> int:
        """T."""
        return int(self.Y.shape[1])

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        for k, part in enumerate(self.batches):
            if self.kept is not None:
                yield part, self.kept[k]
            else:
                mean, unit = self.backend.asarray(self.means[part]), self.backend.asarray(self.units[part])
                yield part, self.backend.astype((_placed(self.Y[:, part], self.backend) - mean) / unit, self.dtype)


def _placed(Y: ArrayOrTensor, backend: Backend) -> Any:
    """Return targets in double precision where products are formed."""
    if backend is NUMPY:
        return backend.asarray(to_host(Y))
    # Torch warns of memory that is not to be written to.
    return backend.asarray(Y if is_tensor(Y) else np.array(Y))


class _Candidates:
    """The criterion of all targets at every candidate so far, and for each target the machine of the best."""

    def __init__(self, stack: MatrixStack, targets: TargetBatches, criterion: str, groups: Groups) -> None:
        self.stack, self.targets, self.criterion, self.groups = stack, targets, criterion, groups
        T = targets.n_targets
        self.gammas: list[Array] = []
        self.values: list[Array] = []
        self.history: list[float] = []
        self.units, self.knees = _sizes(stack)
        self.best, self.chosen = np.full(T, np.inf), np.zeros(T, dtype=np.intp)
        self.errors, self.intercept = np.full(T, np.nan), np.zeros(T)
        # Coefficients stay beside the targets.
        place = targets.backend if targets.kept is not None else NUMPY
        n = stack.n_samples
        self.beta = [place.zeros((n, part.stop - part.start), targets.dtype) for part in targets.batches]

    def add(self, gamma: Array) -> None:
        """Factorise a candidate and judge it for all targets."""
        targets, backend = self.targets, self.targets.backend
        K = self.stack.combine(gamma).matrix
        if K is None:
            raise MemoryError(
                f"{self.stack.form}, but weights per target are learned by the combined matrix; raise memory_budget."
            )
        system = RidgeSystem.of(backend_of(K).astype(K, np.float64), 1.0 / targets.weight)
        A = backend.asarray(system.A, targets.dtype)
        ones = backend.asarray(system.ones / system.ones.sum(), targets.dtype)
        offset = backend.asarray(system.offset, targets.dtype)
        left_out = _LeftOut.of(system, targets, self.groups)
        n, values = len(targets.weight), np.empty(targets.n_targets)
        for k, (part, Y) in enumerate(targets):
            beta = A @ Y
            errors = left_out.errors(beta)
            if self.criterion == "evidence":
                fit = np.asarray(backend.to_numpy((Y * beta).sum(0)), np.float64) / (n - 1)
                values[part] = 0.5 * (n - 1) * _log(fit) + 0.5 * system.log_det
            else:
                values[part] = 0.5 * targets.weight.sum() * _log(errors)
            better = np.flatnonzero(values[part] < self.best[part])
            if len(better):
                columns, at = backend.index(better), part.start + better
                place = backend_of(self.beta[k])
                chosen = beta[:, columns]
                # What rounding leaves of their sum, large kernels would show.
                chosen -= chosen.mean(0)
                self.beta[k][:, place.index(better)] = chosen if place is backend else backend.to_numpy(chosen)
                self.errors[at], self.best[at] = errors[better], values[at]
                self.chosen[at] = len(self.gammas)
                self.intercept[at] = backend.to_numpy(ones @ Y[:, columns] - offset @ chosen)
        self.gammas.append(np.array(gamma, dtype=np.float64))
        self.values.append(values)

    def above_best(self, targets: NDArray[np.intp]) -> Array:
        """Return by how much every candidate's criterion exceeds the least, for some targets."""
        return np.asarray(np.array([one[targets] for one in self.values]) - self.best[targets])

    def learned(self, left_over: float) -> TargetsLearned:
        """Return what suits every target best, in the units of the targets."""
        gammas, means, units = np.array(self.gammas), self.targets.means, self.targets.units
        beta = np.empty((self.stack.n_samples, self.targets.n_targets), self.targets.dtype)
        for part, one in zip(self.targets.batches, self.beta, strict=True):
            np.multiply(backend_of(one).to_numpy(one), units[part], out=beta[:, part], casting="same_kind")
        intercept = means + units * self.intercept
        ratios = gammas[self.chosen]
        return TargetsLearned(ratios, self.best, self.errors, left_over, beta, intercept, gammas, self.history)


@dataclass(frozen=True)
class _LeftOut:
    """Squared residuals of samples left out, each alone, by factors of β², or together in groups."""

    backend: Backend
    factors: Any
    blocks: Sequence[tuple[Any, Any, Any]]

    @classmethod
    def of(cls, system: RidgeSystem, targets: TargetBatches, groups: Groups) -> _LeftOut:
        backend, share = targets.backend, targets.weight / targets.weight.sum()
        if groups is None:
            return cls(backend, backend.asarray(share / system.diagonal**2, targets.dtype), [])
        blocks = []
        for S in groups:
            rows = backend.index(S)
            block = backend.xp.linalg.inv(backend.take_block(system.A, rows, rows))
            blocks.append((rows, backend.asarray(block, targets.dtype), backend.asarray(share[S], targets.dtype)))
        return cls(backend, None, blocks)

    def errors(self, beta: ArrayOrTensor) -> Array:
        """Return their weighted mean for every target."""
        found = 0.0 if self.factors is None else self.factors @ (beta * beta)
        for rows, block, share in self.blocks:
            found = found + share @ (block @ beta[rows]) ** 2
        return np.asarray(self.backend.to_numpy(found), np.float64)


def _log(values: Array) -> Array:
    """Return logarithms; of a constant target, whose residuals are zero, a number that is the same for all."""
    return np.asarray(np.log(np.maximum(values, 1e-30)))


# Where to try next ----------------------------------------------------------------------------------------------------


def _sizes(stack: MatrixStack) -> tuple[Array, Array]:
    """Return of every kernel the γ that gives it a mean diagonal of one, and that at which its eigenvalues exceed one.

    The second is tr K / ‖K‖², one over the mean of the eigenvalues, each counted by its size.
    """
    n, backend = stack.n_samples, stack.backend
    traces, squares = np.zeros(stack.n_kernels), np.zeros(stack.n_kernels)
    for strip in stack.row_strips(n):
        for m, block in stack.placed_blocks(range(stack.n_kernels), strip, slice(0, n)):
            exact = backend.astype(block, np.float64)
            traces[m] += float(exact[:, strip].diagonal().sum())
            squares[m] += float((exact * exact).sum())
    traces, squares = np.maximum(traces, np.finfo(float).tiny), np.maximum(squares, np.finfo(float).tiny)
    return n / traces, traces / squares


def _design(units: Array, count: int, rng: np.random.RandomState, options: TargetOptions) -> Array:
    """Return γ that cover the simplex, with its centre and corners, and decades of their sum in strata."""
    n_kernels = len(units)
    fixed = np.concatenate([np.full((1, n_kernels), 1.0 / n_kernels), np.eye(n_kernels)])[:count]
    drawn = rng.dirichlet(np.full(n_kernels, options.concentration), size=count - len(fixed))
    low, high = np.log(options.sums)
    sums = np.exp(low + (high - low) * (rng.permutation(count) + 0.5) / count)
    return np.asarray(np.concatenate([fixed, drawn]) * sums[:, np.newaxis] * units)


class Kriging:
    """Interpolates functions that are known at the same points, by weights that are the same for all of them.

    The covariance is Matérn's of 5/2, around a trend that is linear, or has the squares, too, in z = log(1 + γ/γ₀) or
    z = γ/(γ + γ₀), scaled.

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

    def __init__(self, gammas: Array, knees: Array, bounded: bool, squares: bool, length: float) -> None:
        self.knees, self.bounded, self.squares, self.length, self.scale = knees, bounded, squares, length, 1.0
        z = self._read(gammas)
        self.scale = float(z.std(axis=0).mean()) or 1.0
        self.z, self.centre = z / self.scale, z.mean(axis=0) / self.scale
        inverse = np.linalg.inv(self._covariance(self.z) + 1e-6 * np.eye(len(z)))
        H = self._trend(self.z)
        self.by_trend = np.linalg.pinv(H.T @ inverse @ H) @ H.T @ inverse
        self.by_covariance = inverse - inverse @ H @ self.by_trend

    def errors(self, values: Array) -> Array:
        """Return what every value, of shape (S, functions), differs from its interpolation by all others."""
        return np.asarray(self.by_covariance @ values / self.by_covariance.diagonal()[:, np.newaxis])

    def weights(self, gammas: Array) -> Array:
        """Return what values at the points count for interpolations at others, of shape (others, S)."""
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
        return np.column_stack([np.ones(len(z)), off, off**2] if self.squares else [np.ones(len(z)), off])


def fit_kriging(gammas: Array, values: Array, knees: Array) -> Kriging:
    """Return the interpolation with the least errors where values are within ten nats of their least."""
    near = values - values.min(axis=0) < 10.0

    def misses(one: Kriging) -> float:
        return float(np.mean(np.minimum(one.errors(values)[near] ** 2, 400.0)))

    kinds = [(False, 0.2), (False, 0.6), (False, 2.0), (True, 0.3), (True, 1.0), (True, 4.0)]
    trends = (False, True) if len(gammas) > 4 * gammas.shape[1] else (False,)
    tried = (
        Kriging(gammas, factor * knees, bounded, squares, length)
        for bounded, factor in kinds
        for squares in trends
        for length in (2, 4, 8)
    )
    return min(tried, key=misses)


def learn_frequencies(values: Array, steps: int = 50) -> Array:
    """Return how frequent points are among targets, by EM, for criteria in nats of shape (points, targets)."""
    likelihoods = np.exp(values.min(axis=0) - values)
    found = np.full(len(values), 1.0 / len(values))
    for _ in range(steps):
        found *= (likelihoods / (found @ likelihoods)).mean(axis=1)
    return found


@dataclass(frozen=True)
class _Interpolated:
    """The criterion at points between the candidates, and how frequent they are among targets.

    Attributes
    ----------
    knees : ndarray of shape (P,)
        γ₀.
    z : ndarray of shape (points, P)
        The points, log(1 + γ/γ₀).
    weights : ndarray of shape (points, candidates)
        What the candidates count for the points.
    frequencies : ndarray of shape (points,)
        The prior.
    left_over : float
        By how much the criterion is below that of the best candidate somewhere, on average over some targets.
    """

    knees: Array
    z: Array
    weights: Array
    frequencies: Array
    left_over: float

    @classmethod
    def of(
        cls, search: _Candidates, rng: np.random.RandomState, options: TargetOptions, everywhere: bool
    ) -> _Interpolated:
        """Draw points around the candidates that suit targets and, if asked for, as the design is drawn, too."""
        gammas, knees = np.array(search.gammas), 0.3 * search.knees
        some = rng.permutation(search.targets.n_targets)[: options.learned_from]
        known = search.above_best(some)
        kriging = fit_kriging(gammas, known[:, : options.fitted_to], search.knees)
        frequent = learn_frequencies(known)
        at = rng.choice(len(gammas), options.points, p=frequent / frequent.sum())
        spread = options.spread * (1.5 if everywhere else 1.0)
        z = np.maximum(np.log1p(gammas[at] / knees) + spread * rng.normal(size=gammas[at].shape), 0.0)
        z[rng.uniform(size=z.shape) < options.zeros] = 0.0
        if everywhere:
            z = np.concatenate([z, np.log1p(_design(search.units, options.points // 2, rng, options) / knees)])
        weights = kriging.weights(knees * np.expm1(z))
        values = weights @ known
        left_over = float(np.maximum(-values.min(axis=0), 0.0).mean())
        return cls(knees, z, weights, learn_frequencies(values), left_over)

    def means(self, search: _Candidates, rng: np.random.RandomState, options: TargetOptions) -> Array:
        """Return the posterior means of the targets in z, or of so many of them as are gathered into groups."""
        grouped = rng.permutation(search.targets.n_targets)[: options.grouped]
        prior = np.log(self.frequencies + np.finfo(float).tiny)[:, np.newaxis]
        means = np.empty((len(grouped), self.z.shape[1]))
        for part in row_strips(len(grouped), 1000):
            values = self.weights @ search.above_best(grouped[part])
            means[part] = softmax(prior - values, axis=0).T @ self.z
        return means

    def centres(self, z: Array, count: int, rng: np.random.RandomState, steps: int = 20) -> Array:
        """Return γ at the centres of so many groups of means, by k-means."""
        count = min(count, len(z))
        centres = z[rng.permutation(len(z))[:count]]
        for _ in range(steps):
            nearest = ((centres**2).sum(axis=1) - 2.0 * z @ centres.T).argmin(axis=1)
            sizes = np.bincount(nearest, minlength=count)
            sums = np.column_stack([np.bincount(nearest, column, count) for column in z.T])
            centres[sizes > 0] = sums[sizes > 0] / sizes[sizes > 0, np.newaxis]
        found = self.knees * np.expm1(centres)
        # Without any kernel there are no shares.
        found[found.sum(axis=1) <= 0.0] = 1e-6 * self.knees
        return np.asarray(found)
