"""Weights and machine at once by interior points: what Newton steps hand over to where the value has a kink."""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np

from kernelmosaic._typing import Array
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration
from kernelmosaic.learning.norms import BesideFixed, Weights
from kernelmosaic.learning.problem import BoundTracker, Evaluation, MachineProblem, WeightProblem
from kernelmosaic.solvers.factored import has_interior
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.weight_path import MatrixKernels, RankOneKernels, WeightedKernels, WeightPath, WeightPathEnd

#: Newton steps on the weights of fewer kernels take less time than interior points, also where these are of rank one.
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
    def factors(self) -> Array | None:
        """The z_m, of shape (P, n), if every kernel is z_m z_mᵀ up to rounding; else None."""
        return rank_one_factors(self.problem.stack)

    @property
    def is_faster(self) -> bool:
        """Whether Newton steps take longer from the first: many kernels, all of rank one."""
        return self.problem.stack.n_kernels >= FEW_KERNELS and self.factors is not None

    def path(self) -> WeightPath:
        """Return the path of the problem, where it starts."""
        problem, kernels = self.problem, self._kernels()
        kept = problem.norm.fixed if isinstance(problem.norm, BesideFixed) else None
        return WeightPath(kernels, problem.machine.program, kept)

    def _kernels(self) -> WeightedKernels:
        problem = self.problem
        if self.factors is None:
            return MatrixKernels(problem.stack, problem.scale)
        return RankOneKernels(np.sqrt(problem.scale)[:, np.newaxis] * self.factors)


def successor_of(problem: WeightProblem) -> InteriorPoints | None:
    """Return the interior points of a problem: one output, a box, weights of sum one, few samples; else None.

    Every step forms the combined kernel, so that the memory must have room for it.
    """
    if type(problem) is not MachineProblem or not problem.machine.has_one_output or not problem.machine.has_box:
        return None
    norm, stack, program = problem.norm, problem.stack, problem.machine.program
    if isinstance(norm, BesideFixed):
        norm = norm.norm
    is_small = stack.backend is NUMPY and stack.n_samples <= problem.options.most_free
    if not norm.sums_to_one or not is_small or not program.has_losses or not has_room_for_sum(stack):
        return None
    is_bounded = bool(np.isfinite(program.upper).any() or np.isfinite(program.lower).any())
    return InteriorPoints(problem) if is_bounded and has_interior(program) else None


def has_room_for_sum(stack: GramStack) -> bool:
    """Whether the combined kernel of a stack may be formed; where it is not stored, blocks of it may be as large."""
    if stack.stores_combined:
        return True
    n_formed: int = stack.combine(np.ones(stack.n_kernels)).block_samples
    return stack.n_samples <= n_formed


class SearchWithSuccessor(BoundTracker):
    """A search that hands over to interior points where its own steps end above the gap asked for.

    Where several β solve the machine, its value has a kink in the weights: the slope of one β is not that of the value,
    and the gap that one β proves does not close. Interior points find the β that proves it.

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

    def __init__(self, problem: WeightProblem, first: Evaluation, successor: InteriorPoints | None) -> None:
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
        return self.successor is not None and self.steps_left <= min(options.path_steps, options.max_iter // 3)

    def improve(self) -> Self:
        """Take steps until the gap is met or nothing is left to try, not even by interior points."""
        super().improve()
        # Rounding that hides the machine's solution hides that of both, unless the kernels are known by their factors.
        is_hidden = self.is_exhausted and self.successor is not None and self.successor.factors is None
        if self.gap > self.problem.options.tol and not is_hidden:
            self.hand_over()
        return self

    def hand_over(self) -> bool:
        """Solve for weights and machine at once; whether that closes the gap further."""
        successor, problem, options = self.successor, self.problem, self.problem.options
        if successor is None or self.steps_left < options.least_path:
            return False
        self.successor = None
        gap_before, program, path = self.gap, problem.machine.program, successor.path()
        for share in options.path_shares:
            end = path.follow(share * options.tol, self.steps_left - 1)
            # Coefficients at their bounds, and weights of zero, are what makes a solution sparse.
            theta, beta = rounded(program, end)
            self._consider_coefficients(theta, beta)
            if self.gap <= options.tol or end.gap > share * options.tol:
                break
        if self.gap > options.tol:
            self._consider_coefficients(end.theta, program.feasible(end.beta))
        problem.n_solves += len(path.history) - 1
        # The history falls to what is returned: rounding to the bounds costs a little of what the last steps gained.
        last, reached = self.history[-1], max(self.best.upper, self.proved.upper)
        for objective, gap in path.history[1:]:
            objective, gap = max(objective, reached), max(gap, self.gap)
            self.history.append(Iteration(min(objective, last.objective), min(gap, last.gap)))
        self.ended_by = "interior_points" if self.gap < gap_before else self.ended_by
        return self.gap < gap_before

    def _consider_coefficients(self, theta: Weights, beta: Weights) -> None:
        evaluation = self.problem.assess(self.problem.retract(theta), beta)
        assert evaluation is not None
        self.consider(evaluation)


def rounded(program: Program, end: WeightPathEnd) -> tuple[Weights, Weights]:
    """Return weights, and a feasible β with every sample at its bound, that the end of a path leads to."""
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
    try:
        beta[free] = program.take(free, program.target[free], owed).feasible(beta[free])
    except ValueError:  # they are too few
        beta = program.feasible(end.beta)
    return theta, beta


def rank_one_factors(stack: GramStack) -> Array | None:
    """Return the z_m, of shape (P, n), if every kernel of a stack is z_m z_mᵀ up to rounding; else None."""
    n, every = stack.n_samples, slice(0, stack.n_samples)
    tolerance = 100.0 * float(np.finfo(stack.dtype).eps)
    Z = np.zeros((stack.n_kernels, n))
    for m in range(stack.n_kernels):
        K = np.asarray(stack.row_block(m, every), dtype=np.float64)
        largest = int(np.argmax(K.diagonal()))
        size = float(K[largest, largest])
        if size <= 0.0:
            continue
        Z[m] = K[largest] / np.sqrt(size)
        if np.abs(K - np.outer(Z[m], Z[m])).max() > tolerance * size:
            return None
    return Z
