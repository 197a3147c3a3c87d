"""Paths of many folds on one stack, followed together on a device.

The mathematics is in the docstring of `kernelmosaic.gpu`. A batch has one column per problem:
neighbouring values of all paths. `learn_batch` takes rounds and certificates in turn. One round
(`take_round`) takes steps of alternating directions, computes the bounds of the feasible
coefficients nearest to them, and takes Newton steps on coefficients and on weights from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelmosaic._typing import Array, ArrayOrTensor, Indices
from kernelmosaic.backend import TorchBackend
from kernelmosaic.gpu.products import ColumnKernels
from kernelmosaic.gpu.programs import (
    Columns,
    Iterate,
    ProgramBatch,
    SharedInverse,
    free_samples,
    solve_free_blocks,
    take_steps,
)
from kernelmosaic.gpu.tuning import (
    BLOCK_ENTRY_BYTES,
    GOOD_STEP,
    LEAST_DAMPING,
    LEAST_SIZE,
    LESS_DAMPING,
    MAX_RHO_FACTOR,
    MORE_DAMPING,
    POOR_STEP,
    PROGRESS,
    RHO_COLUMNS,
    ROUND_AIM,
    SHARED_REACH,
    SHORTENED_STEP,
    WIDEST_BOX,
    BatchOptions,
)
from kernelmosaic.gram.linear_algebra import free_curvature, keep_sum
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.learning.certificate import (
    Entries,
    Iteration,
    KnownForms,
    Learned,
    Start,
    known_forms,
)
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.problem import Learner, steepest_curvature
from kernelmosaic.learning.tuning import AIM
from kernelmosaic.solvers.program import Solution, relative_gap


@dataclass
class Counts:
    """What the paths took.

    Attributes
    ----------
    rounds : int
        Rounds of all batches.
    alone : int
        Problems that were learned alone, because no certificate finished them.
    """

    rounds: int = 0
    alone: int = 0


# Batches ------------------------------------------------------------------------------------------


def learn_paths(
    stack: MatrixStack,
    sizes: Array,
    paths: Sequence[Sequence[Any]],
    learners: Sequence[Learner],
    options: BatchOptions | None = None,
    counts: Counts | None = None,
) -> list[list[Learned]]:
    """Return what is learned for the machines of every path, with certificates.

    Parameters
    ----------
    stack : MatrixStack
        The kernels, on a device.
    sizes : ndarray of shape (P, n)
        The size of the numbers that entries are made of, as in `Entries`.
    paths : sequence of sequences of Machine
        Machines on the samples of the stack, along C. All paths have the same number.
    learners : sequence of Learner
        The learner of every path, all of them `Newton` or all `FixedWeights`.
    options : BatchOptions, optional
    counts : Counts, optional
        Where the work is added up.
    """
    options = options or BatchOptions()
    counts = counts or Counts()
    kernels = ColumnKernels(stack, options.half_precision)
    max_values = max(1, options.n_columns // len(paths))
    learned_by_path: list[list[Learned]] = [[] for _ in paths]
    previous: BatchEnd | None = None
    holder = InverseHolder()
    for values in neighbouring_values(paths[0], max_values, options.max_size_ratio):
        n_values = values.stop - values.start
        machines = [machine for path in paths for machine in path[values]]
        batch = Batch.of(
            kernels,
            sizes,
            machines,
            [learner for learner in learners for _ in range(n_values)],
            n_values,
            options,
        )
        learned, previous = learn_batch(batch, previous, holder, counts)
        for column, result in enumerate(learned):
            learned_by_path[column // n_values].append(result)
    return learned_by_path


def neighbouring_values(
    path: Sequence[Any], max_values: int, max_size_ratio: float
) -> Iterator[slice]:
    """Yield the slices of a path that are learned in one batch.

    The columns of a batch share ρ, which suits boxes, or boxes over ridges, of about one size.

    Parameters
    ----------
    path : sequence of Machine
    max_values : int
        Most values in a slice.
    max_size_ratio : float
        Largest ratio of the size of a value to that of the first one in its slice.
    """
    sizes = [_box_size(machine.program) for machine in path]
    first = 0
    for end in range(1, len(path) + 1):
        is_full = end - first == max_values
        is_similar = (
            end < len(path) and 1.0 / max_size_ratio <= sizes[end] / sizes[first] <= max_size_ratio
        )
        if is_full or not is_similar:
            yield slice(first, end)
            first = end


def _box_size(program: Any) -> float:
    """Return the widest finite box of a program, over its mean ridge where it has one."""
    widths = program.upper - program.lower
    size = np.where(np.isfinite(widths), widths, 1.0).max()
    if program.has_ridge:
        return float(size / max(float(program.ridge.mean()), LEAST_SIZE))
    return float(size)


@dataclass(frozen=True)
class Batch:
    """Problems that are learned together, and what they share; nothing of it changes.

    Attributes
    ----------
    kernels : ColumnKernels
    sizes : ndarray of shape (P, n)
        As in `learn_paths`.
    machines, learners : list
        Those of every column: `n_values` of each path in turn.
    n_values : int
        Values of each path.
    options : BatchOptions
    program : ProgramBatch
        The programs of the machines, on the device.
    max_block_entries : float
        Most entries of the free blocks of all columns together.
    """

    kernels: ColumnKernels
    sizes: Array
    machines: list[Any]
    learners: list[Learner]
    n_values: int
    options: BatchOptions
    program: ProgramBatch
    max_block_entries: float

    @classmethod
    def of(
        cls,
        kernels: ColumnKernels,
        sizes: Array,
        machines: list[Any],
        learners: list[Learner],
        n_values: int,
        options: BatchOptions,
    ) -> Batch:
        """Return a batch, with its programs sent to the device."""
        backend = kernels.backend
        program = ProgramBatch.of([machine.program for machine in machines], backend)
        max_entries = min(options.max_block_entries, backend.free_bytes() / BLOCK_ENTRY_BYTES)
        # At least one entry for every column.
        max_entries = max(max_entries, len(machines))
        return cls(kernels, sizes, machines, learners, n_values, options, program, max_entries)

    @property
    def backend(self) -> TorchBackend:
        return self.kernels.backend

    @property
    def tol(self) -> float:
        """The tolerance of all problems."""
        return float(self.learners[0].options.tol)

    @property
    def keeps_weights(self) -> bool:
        """Whether the weights are given and stay as they are."""
        return isinstance(self.learners[0], FixedWeights)

    @property
    def learns_weights(self) -> bool:
        """Whether there are weights to learn; one kernel has none."""
        return not self.keeps_weights and self.kernels.n_kernels > 1

    def fetch(self, *tensors: Any) -> Array:
        """Return numbers of the columns in the memory of the host, all brought in one transfer.

        Parameters
        ----------
        tensors : tensors of shape (B,) or (B, k)
            They become the columns of one matrix, in this order.
        """
        matrices = []
        for tensor in tensors:
            matrix = tensor[:, None] if tensor.ndim == 1 else tensor
            matrices.append(matrix.double())
        return self.backend.to_numpy(self.backend.xp.cat(matrices, 1))


@dataclass(frozen=True)
class BatchEnd:
    """What the next batch starts from.

    Attributes
    ----------
    eta : ndarray of shape (B, P)
        The weights.
    beta : tensor of shape (B, n)
        The coefficients, feasible for `program`.
    program : ProgramBatch
    n_values : int
        Values of each path.
    """

    eta: Array
    beta: Any
    program: ProgramBatch
    n_values: int


@dataclass
class InverseHolder:
    """The one place that holds the shared inverse of all batches.

    The inverse is a matrix of all samples. Nothing else refers to it between rounds, so that the
    device releases it as soon as it is replaced.
    """

    shared: SharedInverse | None = None


@dataclass(frozen=True)
class WeightIterate(Columns):
    """The kernel weights of columns, on the host, and how far the last step of theirs is trusted.

    Attributes
    ----------
    eta : ndarray of shape (B, P)
        The weights.
    accepted_eta : ndarray of shape (B, P)
        The weights that the last step was taken from.
    accepted_upper : ndarray of shape (B,)
        The upper bound of the objective at those; infinite before the first step.
    promised_gain : ndarray of shape (B,)
        By how much the quadratic model of the objective decreased in that step.
    damping : ndarray of shape (B,)
        What the next step adds to the curvature, in units of its largest possible value.
    """

    eta: Array
    accepted_eta: Array
    accepted_upper: Array
    promised_gain: Array
    damping: Array

    @classmethod
    def at(cls, eta: Array) -> WeightIterate:
        """Return weights from which no step was taken yet."""
        n_columns = len(eta)
        return cls(
            eta,
            accepted_eta=eta.copy(),
            accepted_upper=np.full(n_columns, np.inf),
            promised_gain=np.zeros(n_columns),
            damping=np.zeros(n_columns),
        )


def learn_batch(
    batch: Batch, previous: BatchEnd | None, holder: InverseHolder, counts: Counts
) -> tuple[list[Learned], BatchEnd]:
    """Return what is learned for every column, certified, and what the next batch starts from.

    Parameters
    ----------
    batch : Batch
    previous : BatchEnd or None
        The end of the batch of neighbouring values; None for the first batch.
    holder : InverseHolder
        The shared inverse so far, which is replaced where it does not serve any more.
    counts : Counts
        Where the work is added up.
    """
    # 1. Where it starts: arrays of all columns, which rounds and certificates overwrite.
    iterate, weights = start_of(batch, previous)

    # 2. Rounds in the precision of the stack, then certificates from exact products. Columns whose
    #    certificate is too loose go on from there.
    best: list[Learned | None] = [None] * len(batch.machines)
    unfinished = np.arange(len(batch.machines))
    for number in range(batch.options.max_certificates):
        half = number == 0
        take_rounds(batch, unfinished, iterate, weights, holder, half, counts)
        certified = certify(batch, unfinished, iterate, weights.eta)
        loose = []
        for column, result in zip(unfinished, certified, strict=True):
            best_so_far = best[column]
            if best_so_far is None or result.gap < best_so_far.gap:
                best[column] = result
            # `tol` is `AIM` times the tolerance of the fit, which the certificate must meet.
            if not result.gap <= batch.tol / AIM:
                loose.append(column)
        unfinished = np.array(loose, dtype=np.intp)
        if len(unfinished) == 0:
            break

    # 3. The host's learner for those that are still unfinished.
    for column in unfinished:
        counts.alone += 1
        best[column] = learn_alone(batch, int(column), best[column])
    learned = [result for result in best if result is not None]
    return learned, BatchEnd(weights.eta, iterate.base, batch.program, batch.n_values)


# The start ----------------------------------------------------------------------------------------


def start_of(batch: Batch, previous: BatchEnd | None) -> tuple[Iterate, WeightIterate]:
    """Return coefficients and weights to start from."""
    xp = batch.backend.xp
    program = batch.program
    if previous is None:
        eta = _first_weights(batch)
        # For small C most coefficients of the solution are at their bound other than zero.
        finite = xp.isfinite(program.upper) & xp.isfinite(program.lower)
        beta = program.nearest(xp.where(finite, program.upper + program.lower, 0.0))
    else:
        # The last value of the same path in the previous batch. Its coefficients grow with the box.
        n_columns = len(batch.machines)
        path_of_column = np.arange(n_columns) // batch.n_values
        last = (path_of_column + 1) * previous.n_values - 1
        eta = previous.eta[last]
        columns = batch.backend.index(last)
        old_width = previous.program.upper[columns] - previous.program.lower[columns]
        width = program.upper - program.lower
        is_box = xp.isfinite(old_width) & (old_width > 0)
        growth = xp.where(is_box, width / old_width.clip(LEAST_SIZE), 1.0)
        beta = program.nearest(previous.beta[columns] * growth)
    products = batch.kernels.each(beta)
    values = xp.einsum("bm,mbn->bn", batch.backend.asarray(eta), products)
    y = program.target - values - program.intercepts(program.target - values)
    return Iterate.at(beta, products, y), WeightIterate.at(eta)


def _first_weights(batch: Batch) -> Array:
    """Return the weights of the first batch, (B, P).

    They are those that are given, those of a subsample, or the start of the norm.
    """
    if batch.keeps_weights:
        return np.array(
            [learner.weights for learner in batch.learners if isinstance(learner, FixedWeights)]
        )
    stack: Any = batch.kernels.stack
    learner: Any = batch.learners[0]
    subsample_weights = learner.weights_of_subsample(stack, batch.machines[0])
    if subsample_weights is None:
        theta = learner.options.norm.start(stack.n_kernels)
    else:
        theta = subsample_weights * learner.options.penalties**2
    return np.array([theta / learner.options.penalties**2 for learner in batch.learners])


# Rounds -------------------------------------------------------------------------------------------


def take_rounds(
    batch: Batch,
    unfinished: Indices,
    iterate: Iterate,
    weights: WeightIterate,
    holder: InverseHolder,
    half: bool,
    counts: Counts,
) -> None:
    """Take rounds until the gaps of all these columns are small, or no gap decreases any more.

    The gaps are those in the precision of the stack. The rows of these columns in `iterate` and
    `weights` are overwritten.

    Parameters
    ----------
    batch : Batch
    unfinished : ndarray of int
        The columns.
    iterate, weights : Iterate and WeightIterate
        Those of all columns.
    holder : InverseHolder
        The shared inverse so far, which is replaced where it does not serve any more.
    half : bool
        Whether kernels multiply in half precision.
    counts : Counts
        Where the rounds are added up.
    """
    options = batch.options
    new_rho = None
    n_idle = 0
    lowest_gaps = np.full(len(batch.machines), np.inf)
    for _ in range(options.max_rounds):
        if len(unfinished) == 0 or n_idle == options.max_idle_rounds:
            return
        counts.rounds += 1

        # 1. One round of the unfinished columns.
        shared = shared_inverse(batch, weights.eta[unfinished], holder.shared, new_rho)
        holder.shared = shared
        columns = batch.backend.index(unfinished)
        start = iterate.rows(columns)
        program = batch.program.rows(columns)
        learners = [batch.learners[column] for column in unfinished]
        end = take_round(batch, program, learners, start, weights.rows(unfinished), shared, half)

        # 2. Columns that have overflown start again from their coefficients before the round; half
        #    precision may be the reason.
        overflown = np.flatnonzero(np.isnan(end.gap))
        if len(overflown):
            lost = batch.backend.index(overflown)
            end.iterate.store(lost, Iterate.at(start.base[lost], start.base_products[:, lost]))
            half = False
        iterate.store(columns, end.iterate)
        weights.store(unfinished, end.weights)

        # 3. Another ρ where it would balance the residuals, unless a new inverse costs more than
        #    the steps of a few columns.
        is_unbalanced = max(end.balance, 1.0 / end.balance) > options.max_imbalance
        are_many = RHO_COLUMNS * len(unfinished) > len(batch.machines)
        new_rho = shared.rho * end.balance if is_unbalanced and are_many else None

        # 4. The columns whose gap is still too large.
        has_progress = end.gap < PROGRESS * lowest_gaps[unfinished]
        n_idle = 0 if has_progress.any() else n_idle + 1
        lowest_gaps[unfinished] = np.where(has_progress, end.gap, lowest_gaps[unfinished])
        unfinished = unfinished[~(end.gap <= ROUND_AIM * batch.tol)]


def shared_inverse(
    batch: Batch, eta: Array, shared: SharedInverse | None, new_rho: float | None
) -> SharedInverse:
    """Return the inverse that the columns share: the one so far while it serves, or a new one.

    Parameters
    ----------
    batch : Batch
    eta : ndarray of shape (B, P)
        The weights of the unfinished columns.
    shared : SharedInverse or None
        The one so far.
    new_rho : float or None
        Another ρ; None for the ρ so far.
    """
    if shared is None:
        rho = _first_rho(batch, eta)
    elif new_rho is not None:
        rho = new_rho
    else:
        excess = np.maximum(eta.max(axis=0) - SHARED_REACH * shared.weights, 0.0).sum()
        if excess <= batch.options.shared_excess * shared.weights.sum():
            return shared
        rho = shared.rho
    # K̄ has the largest weight of each kernel in any column. Those of learned weights get a floor,
    # so that weights may grow from zero before a new inverse is needed.
    floor = 0.0 if batch.keeps_weights else batch.options.shared_floor * eta.max()
    return SharedInverse.of(batch.kernels, eta.max(axis=0) + floor, rho)


def _first_rho(batch: Batch, eta: Array) -> float:
    """Return a first ρ: the size of the multipliers over that of the coefficients.

    Most coefficients are at their bounds, if they have any, so that boxes say their size.
    """
    program: Any = batch.program
    widest = (program.upper - program.lower).amax(1)
    mean_kernel = batch.kernels.stack.combine(eta.mean(axis=0))
    mean_diagonal = float(np.mean(mean_kernel.diagonal()))
    rho = mean_diagonal / np.sqrt(float(widest.clip(LEAST_SIZE, WIDEST_BOX).amax()))
    if not bool(batch.backend.xp.isfinite(widest).all()):
        return float(rho)
    # The root mean square of the targets, over the geometric mean of the boxes.
    target = program.target
    if program.total is not None:
        target = target - target.mean(1, keepdim=True)
    target_size = float((target**2).mean()) ** 0.5
    box_size = float(widest.clip(LEAST_SIZE, None).log().mean().exp())
    return float(max(rho, target_size / box_size))


# One round ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation(Columns):
    """Feasible coefficients of columns, and the terms of their objectives, on the device.

    Attributes
    ----------
    beta : tensor of shape (B, n)
    products : tensor of shape (P, B, n)
        K_m β.
    values : tensor of shape (B, n)
        Kβ of the combined kernels.
    intercept : tensor of shape (B, 1)
    terms : tensor of shape (B, 2 + P)
        `linear_value`, the losses, and ½βᵀK_mβ of every kernel.
    """

    beta: Any
    products: Any
    values: Any
    intercept: Any
    terms: Any
    by_kernel = ("products",)


@dataclass(frozen=True)
class Gaps(Columns):
    """Bounds of the objectives of columns, on the host.

    Attributes
    ----------
    gap : ndarray of shape (B,)
        The relative gap of machine and weights.
    machine_gap : ndarray of shape (B,)
        The relative gap of the machine at its weights.
    upper : ndarray of shape (B,)
        The primal value: an upper bound of both.
    dual : ndarray of shape (B,)
        The dual value of the machine: a lower bound of its optimum at these weights.
    q : ndarray of shape (B, P)
        ½βᵀK_mβ.
    """

    gap: Array
    machine_gap: Array
    upper: Array
    dual: Array
    q: Array


@dataclass(frozen=True)
class RoundState:
    """Where the columns of a round stand between two of its steps.

    Attributes
    ----------
    iterate : Iterate
    weights : WeightIterate
    evaluation : Evaluation
        That of the feasible coefficients, at the weights before their step.
    gaps : Gaps
        Theirs.
    """

    iterate: Iterate
    weights: WeightIterate
    evaluation: Evaluation
    gaps: Gaps


@dataclass(frozen=True)
class RoundEnd:
    """What one round ends with.

    Attributes
    ----------
    iterate, weights : Iterate and WeightIterate
        Those of the columns that took part; the base of the iterate is feasible.
    gap : ndarray of shape (B,)
        Relative gaps of the base at the weights before their step; NaN where numbers overflow.
    balance : float
        The factor of ρ that would balance the primal and the dual residual.
    """

    iterate: Iterate
    weights: WeightIterate
    gap: Array
    balance: float


def take_round(
    batch: Batch,
    program: ProgramBatch,
    learners: Sequence[Learner],
    iterate: Iterate,
    weights: WeightIterate,
    shared: SharedInverse,
    half: bool,
) -> RoundEnd:
    """Return where one round takes columns: steps, bounds, and Newton steps from there.

    The device is waited for twice: for the bounds, and for those after the Newton steps.

    Parameters
    ----------
    batch : Batch
    program, learners : ProgramBatch and list
        Those of the columns that take part.
    iterate, weights : Iterate and WeightIterate
        Their rows, copies which are overwritten.
    shared : SharedInverse
    half : bool
        Whether kernels multiply in half precision.
    """
    kernels = batch.kernels

    # 1. Alternating directions.
    iterate, residuals = take_steps(
        kernels, program, iterate, weights.eta, shared, batch.options.n_steps, half
    )

    # 2. The bounds of the nearest feasible coefficients.
    beta = program.nearest(iterate.z)
    products = iterate.base_products + kernels.each(beta - iterate.base)
    evaluation = evaluate(batch, program, beta, products, weights.eta)
    free = free_samples(program, evaluation.beta)
    fetched = batch.fetch(evaluation.terms, free.sum(1), residuals.primal, residuals.dual)
    n_free, primal, dual = fetched[:, -3:].T
    gaps = gaps_of(learners, fetched[:, :-3], weights.eta)
    state = RoundState(iterate, weights, evaluation, gaps)

    # 3. Newton steps of those columns that they may improve: their coefficients, where all free
    #    samples fit into a block, or their weights, where the machine is solved well enough.
    is_settled = batch.learns_weights & (
        gaps.machine_gap <= batch.options.settled_fraction * gaps.gap
    )
    max_rows = int(np.sqrt(batch.max_block_entries / len(learners)))
    is_open = ~(gaps.gap <= ROUND_AIM * batch.tol)
    chosen = np.flatnonzero(is_open & ((n_free <= max_rows) | is_settled))
    if len(chosen):
        state = take_newton_steps(batch, program, learners, state, chosen, free, n_free)

    # 4. The next products start from the feasible coefficients.
    iterate = replace(
        state.iterate, base=state.evaluation.beta, base_products=state.evaluation.products
    )
    ratio = np.sqrt(np.maximum(primal, LEAST_SIZE) / np.maximum(dual, LEAST_SIZE))
    balance = float(np.clip(np.median(ratio), 1.0 / MAX_RHO_FACTOR, MAX_RHO_FACTOR))
    return RoundEnd(iterate, state.weights, state.gaps.gap, balance)


def evaluate(
    batch: Batch, program: ProgramBatch, beta: ArrayOrTensor, products: Any, eta: Array
) -> Evaluation:
    """Return the evaluation of feasible coefficients whose products K_m β are given."""
    xp = batch.backend.xp
    values = xp.einsum("bm,mbn->bn", batch.backend.asarray(eta), products)
    intercept = program.intercepts(program.target - values)
    q = (0.5 * xp.einsum("bn,mbn->bm", beta, products)).clip(0.0, None)
    sums = xp.stack([program.linear_value(beta), program.losses(values, intercept)], 1)
    return Evaluation(beta, products, values, intercept, xp.cat([sums, q], 1))


def gaps_of(learners: Sequence[Learner], terms: Array, eta: Array) -> Gaps:
    """Return the bounds of columns from the terms of `Evaluation`, brought to the host."""
    linear = terms[:, 0]
    losses = terms[:, 1]
    q = terms[:, 2:]
    quadratic = (eta * q).sum(axis=1)
    upper = quadratic + losses
    dual = linear - quadratic
    lower = [
        learner.lower_bound(linear[row], q[row], eta[row]) for row, learner in enumerate(learners)
    ]
    gap = np.array([relative_gap(*bounds) for bounds in zip(upper, lower, strict=True)])
    machine_gap = np.array([relative_gap(*bounds) for bounds in zip(upper, dual, strict=True)])
    return Gaps(gap, machine_gap, upper, dual, q)


# Newton steps -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewtonStep:
    """Newton steps on the free coefficients of columns, and the curvature of their objectives.

    Attributes
    ----------
    rows : tensor of int of shape (B, q)
        The samples of the block of each column.
    step : tensor of shape (B, q)
        By how much their coefficients change; zero for samples that are not free.
    curvature : tensor of shape (B, P, P)
        ∂²J/∂η² of the optimal value J, as long as the same samples are free.
    is_exact : ndarray of bool of shape (B,)
        Whether the block holds all free samples. Otherwise some stand for all, which serves the
        curvature but not the step.
    """

    rows: Any
    step: Any
    curvature: Any
    is_exact: Array


def take_newton_steps(
    batch: Batch,
    program: ProgramBatch,
    learners: Sequence[Learner],
    state: RoundState,
    chosen: Indices,
    free: Any,
    n_free: Array,
) -> RoundState:
    """Return columns after a Newton step on the coefficients, and one on the weights, of some.

    The arrays of `state` are overwritten.

    Parameters
    ----------
    batch : Batch
    program, learners : ProgramBatch and list
        Those of the columns of the round.
    state : RoundState
    chosen : ndarray of int
        The columns that take the steps, counted in the round.
    free : tensor of bool of shape (B, n)
        Which samples are free.
    n_free : ndarray of shape (B,)
        How many, on the host.
    """
    xp = batch.backend.xp
    kernels = batch.kernels
    columns = batch.backend.index(chosen)
    program = program.rows(columns)
    learners = [learners[column] for column in chosen]
    evaluation = state.evaluation.rows(columns)
    gaps = state.gaps.rows(chosen)
    weights = state.weights.rows(chosen)

    # 1. The step on the free coefficients. Where no block holds all free samples, blocks serve the
    #    weights alone, for which half as many samples stand for all.
    max_rows = int(np.sqrt(batch.max_block_entries / len(chosen)))
    if not np.any(n_free[chosen] <= max_rows):
        max_rows = max_rows // 2
    newton = newton_step(
        batch, program, evaluation, free[columns], n_free[chosen], weights.eta, max_rows
    )
    is_exact = batch.backend.asarray(newton.is_exact, np.bool_)[:, None]
    step = xp.where(is_exact, newton.step, 0.0)
    beta = program.nearest(evaluation.beta.scatter_add(1, newton.rows, step))
    products = evaluation.products + kernels.each(beta - evaluation.beta)
    trial = evaluate(batch, program, beta, products, weights.eta)

    # 2. The bounds after the step, brought to the host together with the curvature.
    n_terms = evaluation.terms.shape[1]
    fetched = batch.fetch(trial.terms, newton.curvature.flatten(1))
    trial_gaps = gaps_of(learners, fetched[:, :n_terms], weights.eta)

    # 3. The steps of alternating directions go on from the Newton step where it is better.
    is_better = trial_gaps.machine_gap < gaps.machine_gap
    mask = batch.backend.asarray(is_better, np.bool_)
    evaluation = trial.where(mask, evaluation)
    gaps = trial_gaps.where(is_better, gaps)
    mask = mask[:, None]
    x, z, y = state.iterate.x, state.iterate.z, state.iterate.y
    y_of_newton = program.target - evaluation.values - evaluation.intercept
    x[columns] = xp.where(mask, evaluation.beta, x[columns])
    z[columns] = xp.where(mask, evaluation.beta, z[columns])
    y[columns] = xp.where(mask, y_of_newton, y[columns])

    # 4. The step on the weights. The multipliers t − Kβ − b change with the outputs Kβ.
    if batch.learns_weights:
        n_kernels = kernels.n_kernels
        curvature = fetched[:, n_terms:].reshape(-1, n_kernels, n_kernels)
        moved = move_weights(batch, learners, weights, gaps, curvature)
        change = batch.backend.asarray(moved.eta - weights.eta)
        y[columns] -= xp.einsum("bm,mbn->bn", change, evaluation.products)
        state.weights.store(chosen, moved)

    # 5. Back into the arrays of the round.
    state.evaluation.store(columns, evaluation)
    state.gaps.store(chosen, gaps)
    return state


def newton_step(
    batch: Batch,
    program: ProgramBatch,
    evaluation: Evaluation,
    free: Any,
    n_free: Array,
    eta: Array,
    max_rows: int,
) -> NewtonStep:
    """Return the Newton step on the free coefficients of every column, and the curvature.

    With A = K + diag ρ among the free samples F, V = (K_1 β, …, K_P β)_F and the gradient
    g = (t − Kβ − ρβ − b ∓ ε)_F, the step is A⁻¹g and the curvature VᵀA⁻¹V, both among vectors of
    sum zero where the sum of the coefficients is fixed.

    Parameters
    ----------
    batch : Batch
    program : ProgramBatch
    evaluation : Evaluation
        That of the coefficients β.
    free : tensor of bool of shape (B, n)
    n_free : ndarray of shape (B,)
        How many samples are free, on the host.
    eta : ndarray of shape (B, P)
    max_rows : int
        Most samples of a block.
    """
    xp = batch.backend.xp
    has_sum = program.total is not None
    gradient = program.target - evaluation.values - program.ridge * evaluation.beta
    gradient = gradient - evaluation.intercept
    if program.epsilon:
        gradient = gradient - program.epsilon * xp.sign(evaluation.beta)

    # The right-hand sides g, 1 and V of every column, (B, n, 2 + P).
    V = evaluation.products.permute(1, 2, 0)
    right = xp.cat([xp.stack([gradient, xp.ones_like(gradient)], 2), V], 2)
    solved = solve_free_blocks(batch.kernels, program, free, right, eta, n_free, max_rows)
    step = solved.answer[:, :, 0]
    A_inverse_ones = solved.answer[:, :, 1]
    A_inverse_V = solved.answer[:, :, 2:]

    V_of_rows = xp.take_along_dim(V, solved.rows[:, :, None], 1)
    if has_sum:
        curvature = free_curvature(V_of_rows, A_inverse_V, A_inverse_ones)
        step = keep_sum(step, A_inverse_ones)
    else:
        curvature = free_curvature(V_of_rows, A_inverse_V)
    samples_per_row = batch.backend.asarray(solved.samples_per_row)
    curvature = curvature * samples_per_row[:, None, None]
    return NewtonStep(solved.rows, step, curvature, solved.samples_per_row == 1)


def move_weights(
    batch: Batch,
    learners: Sequence[Learner],
    weights: WeightIterate,
    gaps: Gaps,
    curvature: Array,
) -> WeightIterate:
    """Return weights after damped Newton steps.

    Columns whose machine is not solved well enough keep their weights. A step minimises a quadratic
    model of J(θ), with θ the weights in the scale of the norm. It is accepted unless J is certain
    to have risen: then it is shortened. The damping follows the ratio of the gain to what the model
    promised, as in methods of Levenberg, Marquardt and trust regions (Conn, Gould and Toint,
    2000, chapter 6).

    Parameters
    ----------
    batch : Batch
    learners : list of Learner
    weights : WeightIterate
    gaps : Gaps
        Those at these weights.
    curvature : ndarray of shape (B, P, P)
        ∂²J/∂η².
    """
    eta = weights.eta.copy()
    accepted_eta = weights.accepted_eta.copy()
    accepted_upper = weights.accepted_upper.copy()
    promised_gain = weights.promised_gain.copy()
    damping = weights.damping.copy()
    max_machine_gaps = batch.options.settled_fraction * gaps.gap
    for row, learner in enumerate(learners):
        # 1. Nothing moves where the gap is met, numbers overflow, or the machine is not solved.
        is_finished = gaps.gap[row] <= ROUND_AIM * batch.tol or not np.isfinite(gaps.gap[row])
        if is_finished or gaps.machine_gap[row] > max_machine_gaps[row]:
            continue
        options = learner.options
        scale = 1.0 / options.penalties**2
        more_damping = max(MORE_DAMPING * damping[row], LEAST_DAMPING)

        # 2. A step that made J worse, whatever the machine may still gain, is shortened.
        if gaps.dual[row] > accepted_upper[row]:
            damping[row] = more_damping
            promised_gain[row] = SHORTENED_STEP * promised_gain[row]
            step = eta[row] - accepted_eta[row]
            shortened = accepted_eta[row] + SHORTENED_STEP * step
            eta[row] = options.norm.retract(shortened / scale) * scale
            continue

        # 3. The damping, by bounds of the gain: the largest that is possible, and the least.
        largest_gain = accepted_upper[row] - gaps.dual[row]
        least_gain = accepted_upper[row] - gaps.upper[row]
        if largest_gain < POOR_STEP * promised_gain[row]:
            damping[row] = more_damping
        elif least_gain > GOOD_STEP * promised_gain[row]:
            damping[row] *= LESS_DAMPING
        accepted_upper[row] = gaps.upper[row]
        accepted_eta[row] = eta[row]

        # 4. The next step, from θ with the negative gradient q of J(θ).
        theta = eta[row] / scale
        q = gaps.q[row] * scale
        damping_matrix = np.diag(damping[row] * steepest_curvature(theta, q))
        H = curvature[row] * np.outer(scale, scale) + damping_matrix
        trial = options.norm.retract(theta + options.norm.newton_direction(theta, q, H))
        change = trial - theta
        promised_gain[row] = q @ change - 0.5 * change @ H @ change
        eta[row] = trial * scale
    return WeightIterate(eta, accepted_eta, accepted_upper, promised_gain, damping)


# Certificates -------------------------------------------------------------------------------------


def certify(batch: Batch, unfinished: Indices, iterate: Iterate, eta: Array) -> list[Learned]:
    """Return the certified results of columns, from exact products with their base.

    The exact products replace those in `iterate`, so that columns go on from them.

    Parameters
    ----------
    batch : Batch
    unfinished : ndarray of int
        The columns.
    iterate : Iterate
        That of all columns; the base is feasible.
    eta : ndarray of shape (B, P)
        The weights of all columns.
    """
    to_numpy = batch.backend.to_numpy
    columns = batch.backend.index(unfinished)
    beta = iterate.base[columns]
    program = batch.program.rows(columns)
    eta = eta[unfinished]
    exact = evaluate(batch, program, beta, batch.kernels.exact(beta), eta)
    values = to_numpy(exact.values)
    coefficients = to_numpy(beta)
    q = to_numpy(exact.terms)[:, 2:]
    intercepts = to_numpy(exact.intercept[:, 0])
    entries = Entries(batch.kernels.stack, batch.sizes)
    certified = []
    for row, column in enumerate(unfinished):
        solution = Solution(
            coefficients[row], float(intercepts[row]), values[row], np.nan, np.inf, 0
        )
        uncertified = Learned(eta[row], solution, np.inf, np.inf, 0, [Iteration(np.inf, np.inf)])
        forms = known_forms(batch.sizes, coefficients[row], eta[row], values[row], q[row])
        problem = KnownForms(entries, batch.machines[column], batch.learners[column], forms)
        certificate = problem.certificate(eta[row], solution)
        certified.append(uncertified.with_certificate(certificate))
    iterate.base_products[:, columns] = exact.products
    return certified


def learn_alone(batch: Batch, column: int, best: Learned | None) -> Learned:
    """Return the better of the best result of a column and that of the host's learner.

    Parameters
    ----------
    batch : Batch
    column : int
    best : Learned
        The best certified result of the column, which the learner starts from.
    """
    assert best is not None
    machine = batch.machines[column]
    learner = batch.learners[column]
    stack: Any = batch.kernels.stack
    start = Start()
    if np.isfinite(best.gap):
        start = Start(best.weights, best.solution.beta)
    learned = learner.learn(stack, machine, start)
    learned = learned.certified(Entries(stack, batch.sizes), machine, learner)
    if best.gap <= learned.gap:
        return best
    return learned
