"""Interior points over weights and machine at once, which searches hand over to at a kink."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelmosaic._typing import Array
from kernelmosaic.backend import NUMPY, default_budget, format_bytes, row_strips
from kernelmosaic.gram.feature_stack import FeatureStack, StoredFeatures
from kernelmosaic.gram.stack import GramStack, MatrixStack
from kernelmosaic.learning.certificate import Iteration
from kernelmosaic.learning.norms import BesideFixed, Weights
from kernelmosaic.learning.problem import BoundTracker, Evaluation, MachineProblem, WeightProblem
from kernelmosaic.learning.tuning import FEW_KERNELS, PIVOT_ROUNDINGS
from kernelmosaic.solvers.factored import has_interior
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.weight_path import (
    FactoredKernels,
    MatrixKernels,
    WeightedKernels,
    WeightPath,
    WeightPathEnd,
)


class InteriorPoints:
    """The interior points of a problem, which a search may hand over to.

    Parameters
    ----------
    problem : MachineProblem
        One that `successor_of` accepts.
    """

    def __init__(self, problem: MachineProblem) -> None:
        self.problem = problem

    @cached_property
    def rank_one_factors(self) -> Factors | None:
        """The kernels in factors if all of them are of rank one; else None."""
        return factors_of(self.problem.stack, 1, self.problem.options.samples_per_feature)

    @cached_property
    def factors(self) -> Factors | None:
        """The kernels in factors if all of them have few features; else None."""
        if self.rank_one_factors is not None:
            return self.rank_one_factors
        stack = self.problem.stack
        options = self.problem.options
        max_rank = options.max_rank
        if isinstance(stack, FeatureStack):
            # Features that are stored need not be looked for.
            max_rank = stack.n_samples
        return factors_of(stack, max_rank, options.samples_per_feature)

    @property
    def is_last_resort(self) -> bool:
        """Whether a step takes so long that all other ways are tried first."""
        n = self.problem.stack.n_samples
        return n > self.problem.options.max_free_samples and self.factors is None

    @property
    def comes_first(self) -> bool:
        """Whether Newton steps take longer from the first: many kernels, all of rank one."""
        if self.problem.stack.n_kernels < FEW_KERNELS or self.rank_one_factors is None:
            return False
        return self.is_possible

    @property
    def is_possible(self) -> bool:
        """Whether the memory has room for a step.

        A step needs all features, or the combined kernel of not too many samples.
        """
        stack = self.problem.stack
        options = self.problem.options
        n = stack.n_samples
        if n <= options.max_free_samples:
            return self.rank_one_factors is not None or has_room_for_sum(stack)
        if self.factors is not None:
            n_features = sum(map(len, self.factors.features))
            return options.path_arrays * 8 * n * n_features <= default_budget()
        has_room = has_room_for_sum(stack) and options.path_arrays * 8 * n**2 <= default_budget()
        return has_room and n <= options.max_path_samples

    @property
    def hindrance(self) -> str:
        """Why a step is not possible, and what to do."""
        stack = self.problem.stack
        options = self.problem.options
        n = stack.n_samples
        rank = n // (options.samples_per_feature * stack.n_kernels)
        remedy = "use fewer kernels, "
        if rank:
            remedy = f"use approximation='nystroem' with rank={rank} or less, "
        return (
            "no step on the weights closes it further, and interior points, which may, would need"
            f" {format_bytes(options.path_arrays * 8 * n**2)} for matrices of {n} samples, of which"
            f" at most {options.max_path_samples} are taken; {remedy}fewer samples, or accept a"
            " larger tol."
        )

    @cached_property
    def factored_problem(self) -> MachineProblem:
        """The problem with kernels in factors where these exist, else the problem itself.

        In factors coefficients are evaluated in less time.
        """
        problem = self.problem
        if self.factors is None:
            return problem
        return MachineProblem(self.factors.stack, problem.machine, problem.options)

    def evaluate_coefficients(self, theta: Weights, beta: Weights) -> Evaluation:
        """Return the evaluation of a feasible β at θ, without a solve of the machine."""
        evaluation: Evaluation = self.factored_problem.evaluate_coefficients(theta, beta)
        self.problem.noise = self.factored_problem.noise
        return evaluation

    def path(self) -> WeightPath:
        """Return the central path of the problem, at its start."""
        problem = self.problem
        if self.factors is not None:
            kernels: WeightedKernels = self.factors.weighted(problem.scale)
        else:
            kernels = MatrixKernels(problem.stack, problem.scale)
        fixed_weights = problem.norm.fixed if isinstance(problem.norm, BesideFixed) else None
        return WeightPath(kernels, problem.machine.program, fixed_weights)


def successor_of(problem: WeightProblem) -> InteriorPoints | None:
    """Return the interior points of a problem; None where they do not apply.

    They need a machine of one output in a box, weights of sum one, and matrices on the host.
    """
    if type(problem) is not MachineProblem:
        return None
    if not problem.machine.has_one_output or not problem.machine.has_box:
        return None
    norm = problem.norm
    if isinstance(norm, BesideFixed):
        norm = norm.norm
    program = problem.machine.program
    if problem.stack.backend is not NUMPY or not norm.sums_to_one or not program.has_losses:
        return None
    is_bounded = bool(np.isfinite(program.upper).any() or np.isfinite(program.lower).any())
    if not is_bounded or not has_interior(program):
        return None
    return InteriorPoints(problem)


def has_room_for_sum(stack: GramStack) -> bool:
    """Whether the combined kernel of a stack may be formed as one matrix.

    A combined kernel that is not stored is read in blocks, one of which may be as large.
    """
    if stack.stores_combined:
        return True
    n_formed: int = stack.combine(np.ones(stack.n_kernels)).block_samples
    return stack.n_samples <= n_formed


class SearchWithSuccessor(BoundTracker):
    """A search that hands over to interior points where its own steps end above the tolerance.

    Where several β solve the machine, its value has a kink in the weights: the gradient of one β is
    not that of the value, and the gap that one β proves does not close. Interior points find the β
    that proves it.

    Parameters
    ----------
    problem : WeightProblem
        What is being solved.
    first : Evaluation
        The first evaluation.
    successor : InteriorPoints or None
        Takes over; None where nothing can.

    Attributes
    ----------
    successor : InteriorPoints or None
        None, too, once it has taken over, and where the iterations do not suffice for it.
    """

    def __init__(
        self, problem: WeightProblem, first: Evaluation, successor: InteriorPoints | None
    ) -> None:
        super().__init__(problem, first)
        options = problem.options
        self.successor = successor if options.max_iter > options.min_path_steps else None

    @property
    def steps_left(self) -> int:
        """How many iterations may still be taken."""
        return self.problem.options.max_iter - len(self.history)

    @property
    def is_short_of_steps(self) -> bool:
        """Whether only as many iterations are left as interior points may need."""
        if self.successor is None:
            return False
        options = self.problem.options
        return self.steps_left <= min(options.max_path_steps, options.max_iter // 3)

    @property
    def is_slower_than_path(self) -> bool:
        """Whether so many machines were solved that interior points would have taken less time."""
        n_solves = self.problem.n_solves
        options = self.problem.options
        if self.successor is None or n_solves < options.max_solves_before_factored_path:
            return False
        if self.successor.is_last_resort:
            return False
        return n_solves >= options.max_solves_before_path or self.successor.factors is not None

    def finish(self) -> None:
        """Hand over where the gap is above the tolerance and interior points are left to try."""
        tol = self.problem.options.tol
        # Rounding that keeps the machine from its gap keeps interior points from theirs, unless
        # these work in factors.
        is_unsolved = self.has_ended() and self.best.solution.gap > tol
        is_hidden = is_unsolved and self.successor is not None and self.successor.factors is None
        if self.gap > tol and not is_hidden:
            self.hand_over()

    def hand_over(self) -> bool:
        """Solve for weights and machine at once by interior points; whether that lowers the gap.

        Nothing is done without a successor or with few iterations left. Where the memory has no
        room, the reason is left in `hindrance`.
        """
        successor = self.successor
        problem = self.problem
        options = problem.options
        if successor is None or self.steps_left < options.min_path_steps:
            return False
        self.successor = None
        if not successor.is_possible:
            self.hindrance = successor.hindrance
            return False
        gap_before = self.gap

        # 1. Follow the path to smaller and smaller gaps, until its end, rounded to the bounds,
        #    meets the tolerance.
        program = problem.machine.program
        path = successor.path()
        for fraction in options.path_tol_fractions:
            path_tol = fraction * options.tol
            end = path.follow(path_tol, self.steps_left - 1)
            # Coefficients at their bounds, and weights of zero, make a solution sparse.
            theta, beta = rounded(program, end)
            self._consider_coefficients(successor, theta, beta)
            if self.gap <= options.tol or end.gap > path_tol:
                break
        if self.gap > options.tol:
            self._consider_coefficients(successor, end.theta, program.feasible(end.beta))

        # 2. Count the steps, and add them to the history. It falls to the values that are returned:
        #    rounding to the bounds costs a little of what the last steps gained.
        problem.n_solves += len(path.history) - 1
        last = self.history[-1]
        least_objective = max(self.best.upper, self.tightest.upper)
        for path_objective, path_gap in path.history[1:]:
            objective = min(max(path_objective, least_objective), last.objective)
            gap = min(max(path_gap, self.gap), last.gap)
            self.history.append(Iteration(objective, gap))
        if self.gap < gap_before:
            self.ended_by = "interior_points"
        return self.gap < gap_before

    def _consider_coefficients(
        self, successor: InteriorPoints, theta: Weights, beta: Weights
    ) -> None:
        self.consider(successor.evaluate_coefficients(self.problem.retract(theta), beta))


def rounded(program: Program, end: WeightPathEnd) -> tuple[Weights, Weights]:
    """Return θ and a feasible β from the end of a path, rounded to their bounds.

    Idle weights become zero, and coefficients that tend to a bound are put there. The free
    coefficients make up for the change of the sum. If they cannot, β is not rounded.
    """
    theta = np.where(end.is_idle, 0.0, end.theta)
    beta = np.where(end.at_upper, program.upper, end.beta)
    beta = np.where(end.at_lower, program.lower, beta)
    if program.epsilon:
        beta = np.where(end.at_lower & end.at_upper, 0.0, beta)
    beta = np.clip(beta, program.lower, program.upper)
    free = program.free(beta)
    if program.total is None or len(free) == 0:
        return theta, program.feasible(beta)
    free_total = program.total - float(np.delete(beta, free).sum())
    free_program = program.take(free, program.target[free], free_total)
    # The free coefficients may be too few to make up for the rounding.
    if not free_program.is_feasible:
        return theta, program.feasible(end.beta)
    beta[free] = free_program.feasible(beta[free])
    return theta, beta


# Kernels of few features --------------------------------------------------------------------------


@dataclass(frozen=True)
class Factors:
    """Few features of every kernel of a stack, K_m = Z_mᵀZ_m up to rounding.

    Attributes
    ----------
    features : list of ndarray of shape (r_m, n)
        The Z_m.
    """

    features: list[Array]

    @cached_property
    def stack(self) -> StoredFeatures:
        """The kernels as a stack of features."""
        return StoredFeatures([Z.T for Z in self.features])

    def weighted(self, scale: Weights) -> FactoredKernels:
        """Return the kernels, each multiplied by its number in `scale`, of shape (P,)."""
        ranks = [len(Z) for Z in self.features]
        kernels = np.repeat(np.arange(len(self.features)), ranks)
        Z = np.concatenate(self.features)
        Z *= np.sqrt(scale)[kernels, np.newaxis]
        return FactoredKernels(Z, kernels)


def factors_of(stack: GramStack, max_rank: int, samples_per_feature: int) -> Factors | None:
    """Return the kernels of a stack in factors; None if they have too many features.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    max_rank : int
        Most features of a kernel.
    samples_per_feature : int
        Fewest samples per feature of all kernels together. One feature of every kernel is allowed
        in any case.
    """
    if stack.backend is not NUMPY:
        return None
    find_factor = _stored_features if isinstance(stack, FeatureStack) else low_rank_factor
    max_features = max(stack.n_samples // samples_per_feature, stack.n_kernels)
    features: list[Array] = []
    for m in range(stack.n_kernels):
        n_features = sum(map(len, features))
        Z = find_factor(stack, m, min(max_rank, max_features - n_features))
        if Z is None:
            return None
        features.append(Z)
    return Factors(features)


def _stored_features(stack: GramStack, m: int, max_rank: int) -> Array | None:
    """Return the stored features of a kernel, of shape (r, n); None for none or too many."""
    if not isinstance(stack, StoredFeatures):
        return None
    Z = stack.arrays[m].T
    if not 0 < len(Z) <= max_rank:
        return None
    return np.ascontiguousarray(Z, dtype=np.float64)


def low_rank_factor(
    stack: GramStack, m: int, max_rank: int, n_roundings: float = PIVOT_ROUNDINGS
) -> Array | None:
    """Return Z, of shape (r, n), with K_m = ZᵀZ up to rounding; None if r exceeds `max_rank`.

    The factorisation is an incomplete Cholesky factorisation: the largest remaining entry of the
    diagonal picks the next row, until it is below `n_roundings` units of rounding. The remaining
    entries off the diagonal of a positive semi-definite matrix are no larger. None is returned,
    too, where the matrix turns out not to be positive semi-definite.
    """
    exact = stack.exact if isinstance(stack, MatrixStack) and stack.has_exact else stack
    all_samples = slice(0, stack.n_samples)
    diagonal = _diagonal(exact, m)
    tolerance = n_roundings * float(np.finfo(exact.dtype).eps) * float(diagonal.max())
    Z = np.zeros((1, stack.n_samples))
    rank = 0
    while float(diagonal.max()) > tolerance:
        if rank == max_rank:
            return None
        if rank == len(Z):
            Z = np.concatenate([Z, np.zeros_like(Z)])
        pivot = int(np.argmax(diagonal))
        ((_, block),) = exact.blocks([m], np.array([pivot]), all_samples)
        row = np.asarray(block[0], dtype=np.float64) - Z[:rank, pivot] @ Z[:rank]
        if row[pivot] <= 0.0:
            return None
        Z[rank] = row / np.sqrt(row[pivot])
        diagonal = diagonal - Z[rank] ** 2
        # The matrix is not positive semi-definite.
        if float(diagonal.min()) < -tolerance:
            return None
        rank += 1
    # A kernel of zeros has one feature of zeros.
    return Z[: max(rank, 1)]


def _diagonal(stack: GramStack, m: int, block_samples: int = 256) -> Array:
    """Return the diagonal of K_m in double precision, of shape (n,)."""
    # Stacks that compute entries whenever they are needed have the diagonals stored.
    diagonals = getattr(stack, "diagonals", None)
    if diagonals is not None:
        return np.asarray(diagonals[m], dtype=np.float64)
    parts = []
    for rows in row_strips(stack.n_samples, block_samples):
        ((_, block),) = stack.blocks([m], rows, rows)
        parts.append(np.asarray(block.diagonal(), dtype=np.float64))
    return np.concatenate(parts)
