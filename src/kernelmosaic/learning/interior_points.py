"""Weights and machine at once by interior points: what Newton steps hand over to where the value
has a kink."""

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
from kernelmosaic.solvers.factored import has_interior
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.weight_path import (
    FactoredKernels,
    MatrixKernels,
    WeightedKernels,
    WeightPath,
    WeightPathEnd,
)

#: Newton steps on the weights of fewer kernels take less time than interior points, also where
#: these are of rank one.
FEW_KERNELS = 8


class InteriorPoints:
    """What a search may hand its problem over to.

    Parameters
    ----------
    problem : MachineProblem
        One that `successor_of` serves.
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
        stack, options = self.problem.stack, self.problem.options
        # Features that are stored need not be looked for.
        most = stack.n_samples if isinstance(stack, FeatureStack) else options.most_rank
        return factors_of(stack, most, options.samples_per_feature)

    @property
    def is_last_resort(self) -> bool:
        """Whether a step takes so long that other ways are tried to the end first."""
        return (
            self.problem.stack.n_samples > self.problem.options.most_free and self.factors is None
        )

    @property
    def comes_first(self) -> bool:
        """Whether Newton steps take longer from the first: many kernels, all of rank one."""
        is_faster = (
            self.problem.stack.n_kernels >= FEW_KERNELS and self.rank_one_factors is not None
        )
        return is_faster and self.is_possible

    @property
    def is_possible(self) -> bool:
        """Whether the memory has room for a step: for features, or for the combined kernel of not
        too many samples."""
        stack, options = self.problem.stack, self.problem.options
        n = stack.n_samples
        if n <= options.most_free:
            return self.rank_one_factors is not None or has_room_for_sum(stack)
        if self.factors is not None:
            return (
                options.path_arrays * 8 * n * sum(map(len, self.factors.features))
                <= default_budget()
            )
        has_room = has_room_for_sum(stack) and options.path_arrays * 8 * n**2 <= default_budget()
        return has_room and n <= options.most_path_samples

    @property
    def hindrance(self) -> str:
        """What keeps a step from being taken, and what to do."""
        stack, options = self.problem.stack, self.problem.options
        n, rank = (
            stack.n_samples,
            stack.n_samples // (options.samples_per_feature * stack.n_kernels),
        )
        remedy = (
            f"use approximation='nystroem' with rank={rank} or less, "
            if rank
            else "use fewer kernels, "
        )
        return (
            "no step on the weights closes it further, and interior points, which may, would need"
            f" {format_bytes(options.path_arrays * 8 * n**2)} for matrices of {n} samples, of which"
            f" at most {options.most_path_samples} are taken; {remedy}fewer samples, or accept a"
            " larger tol."
        )

    @cached_property
    def in_factors(self) -> MachineProblem:
        """The problem with kernels in factors where these are known: what coefficients are worth
        costs less there."""
        problem = self.problem
        if self.factors is None:
            return problem
        return MachineProblem(self.factors.stack, problem.machine, problem.options)

    def assess(self, theta: Weights, beta: Weights) -> Evaluation:
        """Return what a feasible β is worth at θ."""
        evaluation: Evaluation = self.in_factors.assess(theta, beta)
        self.problem.noise = self.in_factors.noise
        return evaluation

    def path(self) -> WeightPath:
        """Return the path of the problem, where it starts."""
        problem = self.problem
        kernels: WeightedKernels = MatrixKernels(problem.stack, problem.scale)
        if self.factors is not None:
            kernels = self.factors.weighted(problem.scale)
        kept = problem.norm.fixed if isinstance(problem.norm, BesideFixed) else None
        return WeightPath(kernels, problem.machine.program, kept)


def successor_of(problem: WeightProblem) -> InteriorPoints | None:
    """Return the interior points of a problem: one output, a box, weights of sum one, on the host;
    else None."""
    if (
        type(problem) is not MachineProblem
        or not problem.machine.has_one_output
        or not problem.machine.has_box
    ):
        return None
    norm, stack, program = problem.norm, problem.stack, problem.machine.program
    if isinstance(norm, BesideFixed):
        norm = norm.norm
    if stack.backend is not NUMPY or not norm.sums_to_one or not program.has_losses:
        return None
    is_bounded = bool(np.isfinite(program.upper).any() or np.isfinite(program.lower).any())
    return InteriorPoints(problem) if is_bounded and has_interior(program) else None


def has_room_for_sum(stack: GramStack) -> bool:
    """Whether the combined kernel of a stack may be formed; where it is not stored, blocks of it
    may be as large."""
    if stack.stores_combined:
        return True
    n_formed: int = stack.combine(np.ones(stack.n_kernels)).block_samples
    return stack.n_samples <= n_formed


class SearchWithSuccessor(BoundTracker):
    """A search that hands over to interior points where its own steps end above the gap asked for.

    Where several β solve the machine, its value has a kink in the weights: the slope of one β is
    not that of the value, and the gap that one β proves does not close. Interior points find the β
    that proves it.

    Parameters
    ----------
    problem : WeightProblem
        What is being solved.
    first : Evaluation
        The first evaluation.
    successor : InteriorPoints or None
        What takes over; None where nothing can.

    Attributes
    ----------
    successor : InteriorPoints or None
        None, too, once it has taken over.
    """

    def __init__(
        self, problem: WeightProblem, first: Evaluation, successor: InteriorPoints | None
    ) -> None:
        super().__init__(problem, first)
        options = problem.options
        self.successor = successor if options.max_iter > options.least_path else None

    @property
    def steps_left(self) -> int:
        """How many iterations may still be taken."""
        return self.problem.options.max_iter - len(self.history)

    @property
    def is_short_of_steps(self) -> bool:
        """Whether only as many iterations are left as interior points may need."""
        options = self.problem.options
        return self.successor is not None and self.steps_left <= min(
            options.path_steps, options.max_iter // 3
        )

    @property
    def is_slower_than_path(self) -> bool:
        """Whether so many machines were solved that interior points would have taken less time."""
        n_solves, options = self.problem.n_solves, self.problem.options
        if (
            self.successor is None
            or n_solves < options.factored_path_solves
            or self.successor.is_last_resort
        ):
            return False
        return n_solves >= options.path_solves or self.successor.factors is not None

    def finish(self) -> None:
        """Hand over where the gap is not met and interior points are left to try."""
        tol = self.problem.options.tol
        # Rounding that hides the machine's solution hides that of both, unless the kernels are
        # known by their factors.
        is_unsolved = self.has_ended() and self.best.solution.gap > tol
        is_hidden = is_unsolved and self.successor is not None and self.successor.factors is None
        if self.gap > tol and not is_hidden:
            self.hand_over()

    def hand_over(self) -> bool:
        """Solve for weights and machine at once; whether that closes the gap further."""
        successor, problem, options = self.successor, self.problem, self.problem.options
        if successor is None or self.steps_left < options.least_path:
            return False
        self.successor = None
        if not successor.is_possible:
            self.hindrance = successor.hindrance
            return False
        gap_before, program, path = self.gap, problem.machine.program, successor.path()
        for share in options.path_shares:
            end = path.follow(share * options.tol, self.steps_left - 1)
            # Coefficients at their bounds, and weights of zero, are what makes a solution sparse.
            theta, beta = rounded(program, end)
            self._consider_coefficients(successor, theta, beta)
            if self.gap <= options.tol or end.gap > share * options.tol:
                break
        if self.gap > options.tol:
            self._consider_coefficients(successor, end.theta, program.feasible(end.beta))
        problem.n_solves += len(path.history) - 1
        # The history falls to what is returned: rounding to the bounds costs a little of what the
        # last steps gained.
        last, reached = self.history[-1], max(self.best.upper, self.proved.upper)
        for objective, gap in path.history[1:]:
            objective, gap = max(objective, reached), max(gap, self.gap)
            self.history.append(Iteration(min(objective, last.objective), min(gap, last.gap)))
        self.ended_by = "interior_points" if self.gap < gap_before else self.ended_by
        return self.gap < gap_before

    def _consider_coefficients(
        self, successor: InteriorPoints, theta: Weights, beta: Weights
    ) -> None:
        self.consider(successor.assess(self.problem.retract(theta), beta))


def rounded(program: Program, end: WeightPathEnd) -> tuple[Weights, Weights]:
    """Return weights, and a feasible β with every sample at its bound, that the end of a path leads
    to."""
    theta = np.where(end.is_idle, 0.0, end.theta)
    beta = np.where(end.at_lower, program.lower, np.where(end.at_upper, program.upper, end.beta))
    if program.epsilon:
        beta = np.where(end.at_lower & end.at_upper, 0.0, beta)
    beta = np.clip(beta, program.lower, program.upper)
    free = program.free(beta)
    if program.total is None or len(free) == 0:
        return theta, program.feasible(beta)
    # The free samples make up for what the others were rounded by.
    owed = program.total - float(np.delete(beta, free).sum())
    free_program = program.take(free, program.target[free], owed)
    if not free_program.is_feasible:  # they are too few
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
        """The same kernels as a stack."""
        return StoredFeatures([Z.T for Z in self.features])

    def weighted(self, scale: Weights) -> FactoredKernels:
        """Return the kernels times these numbers."""
        kernels = np.repeat(np.arange(len(self.features)), [len(Z) for Z in self.features])
        Z = np.concatenate(self.features)
        Z *= np.sqrt(scale)[kernels, np.newaxis]
        return FactoredKernels(Z, kernels)


def factors_of(stack: GramStack, most_features: int, samples_per_feature: int) -> Factors | None:
    """Return the kernels of a stack in factors, of at most so many features each; None if one of
    them has more.

    The features of all kernels together have that many samples each, or there is one of every
    kernel.
    """
    if stack.backend is not NUMPY:
        return None
    features: list[Array] = []
    most_in_all = max(stack.n_samples // samples_per_feature, stack.n_kernels)
    for m in range(stack.n_kernels):
        most = min(most_features, most_in_all - sum(map(len, features)))
        find_factor = _stored_features if isinstance(stack, FeatureStack) else low_rank_factor
        Z = find_factor(stack, m, most)
        if Z is None:
            return None
        features.append(Z)
    return Factors(features)


def _stored_features(stack: GramStack, m: int, most: int) -> Array | None:
    if not isinstance(stack, StoredFeatures) or not 0 < len(stack.arrays[m].T) <= most:
        return None
    return np.ascontiguousarray(stack.arrays[m].T, dtype=np.float64)


def low_rank_factor(
    stack: GramStack, m: int, most: int, n_roundings: float = 100.0
) -> Array | None:
    """Return Z, of shape (r, n), with K_m = ZᵀZ up to `n_roundings` and r of at most `most`; None
    if there is none.

    The largest entry that is left of the diagonal picks the next row, as in an incomplete Cholesky
    factorisation. What is left of other entries of a positive semi-definite matrix is no larger.
    """
    exact = stack.exact if isinstance(stack, MatrixStack) and stack.has_exact else stack
    every = slice(0, stack.n_samples)
    diagonal = _diagonal(exact, m)
    tolerance = n_roundings * float(np.finfo(exact.dtype).eps) * float(diagonal.max())
    Z = np.zeros((1, stack.n_samples))
    rank = 0
    while float(diagonal.max()) > tolerance:
        if rank == most:
            return None
        if rank == len(Z):
            Z = np.concatenate([Z, np.zeros_like(Z)])
        pivot = int(np.argmax(diagonal))
        ((_, block),) = exact.blocks([m], np.array([pivot]), every)
        row = np.asarray(block[0], dtype=np.float64) - Z[:rank, pivot] @ Z[:rank]
        if row[pivot] <= 0.0:
            return None
        Z[rank] = row / np.sqrt(row[pivot])
        diagonal = diagonal - Z[rank] ** 2
        if float(diagonal.min()) < -tolerance:  # the kernel is not positive semi-definite
            return None
        rank += 1
    # A kernel of zeros has one feature of zeros.
    return Z[: max(rank, 1)]


def _diagonal(stack: GramStack, m: int, block_samples: int = 256) -> Array:
    # Stacks that compute entries whenever they are needed have their diagonals.
    known = getattr(stack, "diagonals", None)
    if known is not None:
        return np.asarray(known[m], dtype=np.float64)
    parts = []
    for rows in row_strips(stack.n_samples, block_samples):
        ((_, block),) = stack.blocks([m], rows, rows)
        parts.append(np.asarray(block.diagonal(), dtype=np.float64))
    return np.concatenate(parts)
