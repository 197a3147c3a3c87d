"""Weights and machine at once by interior points: what Newton steps hand over to where the value has a kink."""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import Array
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.norms import BesideFixed, Weights
from kernelmosaic.learning.problem import MachineProblem, WeightProblem
from kernelmosaic.solvers.factored import has_interior
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.weight_path import MatrixKernels, RankOneKernels, WeightedKernels, WeightPath, WeightPathEnd


def can_follow(problem: WeightProblem) -> bool:
    """Whether interior points solve a problem: weights of sum one, one output, a box, and few enough samples."""
    if type(problem) is not MachineProblem or not problem.machine.has_one_output or not problem.machine.has_box:
        return False
    norm, stack, program = problem.norm, problem.stack, problem.machine.program
    if isinstance(norm, BesideFixed):
        norm = norm.norm
    is_stored = stack.backend is NUMPY and stack.n_samples <= problem.options.most_free
    if not norm.sums_to_one or not is_stored or not program.has_losses:
        return False
    is_bounded = bool(np.isfinite(program.upper).any() or np.isfinite(program.lower).any())
    return is_bounded and has_interior(program)


def are_cheap(problem: WeightProblem) -> bool:
    """Whether a step of interior points costs no more than a few products: all kernels are of rank one."""
    return _rank_one_factors(problem.stack) is not None


def path_of(problem: MachineProblem) -> WeightPath:
    """Return the interior points of a problem, where they start."""
    kept = problem.norm.fixed if isinstance(problem.norm, BesideFixed) else None
    Z = _rank_one_factors(problem.stack)
    kernels: WeightedKernels
    if Z is None:
        kernels = MatrixKernels(problem.stack, problem.scale)
    else:
        kernels = RankOneKernels(np.sqrt(problem.scale)[:, np.newaxis] * Z)
    return WeightPath(kernels, problem.machine.program, kept)


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


def _rank_one_factors(stack: GramStack) -> Array | None:
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
