"""Solvers of the program for a kernel in factors, K = ZZᵀ + diag e: several methods, the cheapest
first.

Pair steps solve problems of few samples, working sets start from a solution nearby, proximal Newton
steps start anywhere, and interior points solve what the others do not. Both of the last two are
needed, as `benchmarks/factored.py` shows. On 443 of its problems (150 to 20,000 samples, 5 to 500
features, C from 0.01 to 1000, gaps of 10⁻³ and 10⁻⁵) solves without Newton steps took 1.27 times as
long in the geometric mean, 1.9 times with 20,000 samples, and up to 7.7 times. Without interior
points they took 0.86 times as long and met every gap; but on 90 harder ones (C from 10² to 10⁶,
columns that are offset, repeated or powers of each other) 4 missed the gap, all of C ≥ 10⁴ and
without a ridge, where interior points meet it.

Words: a *tiny* problem has so few samples that a pass over the rows costs more than its arithmetic;
its kernel is read as one array. The *written* kernel is the matrix K, formed from its factors.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

import numpy as np

from kernelmosaic._typing import AnyArray, Indices
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.factored import DenseFactors, FactoredGram
from kernelmosaic.gram.gram import as_gram
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.solvers.interior_point import CentralPath, PathEnd
from kernelmosaic.solvers.program import Program, Solution, Vector, assess, certify
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.tuning import (
    BLOCK_PATH_FRACTION,
    BLOCK_PATH_GAP,
    COMPENSATION_FRACTION,
    COMPENSATION_JITTER,
    DEFAULTS,
    IDLE_COST_FRACTION,
    SUM_ROUNDING,
    UNBOUNDED_ROOM,
    WRITTEN_GAP,
    SolverOptions,
)
from kernelmosaic.solvers.working_set import FreeThenViolating, SingleOutput


def solve_factored(
    gram: FactoredGram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the dual program for K = ZZᵀ + diag e to a relative duality gap of `tol`.

    The methods are tried in the order of their cost, each from the best solution of those before it
    where it can use one, until one meets the gap.

    Parameters
    ----------
    gram : FactoredGram
        The kernel, known by products with Z.
    program : Program
        The dual program.
    warm_start : ndarray of shape (n,), optional
        A β near the solution, which need not be feasible.
    tol : float
        The relative duality gap at which to stop. A larger gap in the result means that rounding
        prevents a smaller one.
    options : SolverOptions
        When one method takes over from another.
    """
    program.require_feasible()

    # 1. Programs that need no steps. Zeros are tried first unless there is a start, which is rarely
    #    given where zeros are optimal; they are then tried before interior points.
    has_start = warm_start is not None and bool(warm_start.any())
    solution = _solution_without_steps(gram, program, tol, try_zeros=not has_start)
    if solution is not None:
        return solution

    # 2. Pair steps, where samples are few or hardly more than features.
    best: Solution | None = None
    is_tiny = _is_tiny(gram, options)
    if is_tiny or _is_worth_writing(gram, tol, options):
        best = _solve_by_pairs(gram, program, warm_start, tol, options)
        if best.gap <= tol:
            return best
        warm_start = best.beta

    if not is_tiny:
        # 3. Working sets, if there is a start.
        if warm_start is not None:
            best = _solve_from_nearby(gram, program, warm_start, tol, options)
            if best.gap <= tol:
                return best

        # 4. Newton steps in the features. They need losses, targets, and a function that is linear
        #    in the features, so no diagonal e.
        if gram.shift is None and program.has_losses and program.target.any():
            best = _solve_by_newton(gram, program, tol, options, best)
            if best.gap <= tol:
                return best

    # 5. Interior points, unless zeros are optimal after all.
    solution = _solution_without_steps(gram, program, tol, try_zeros=has_start)
    if solution is not None:
        return solution
    return _solve_by_interior_points(gram, program, tol, options, best)


def solve_stored(
    K: AnyArray,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the dual program for a stored matrix of few samples to a relative gap of `tol`.

    See `solve_smo` for the parameters. At a large C, on a kernel of low rank, each pair step
    shrinks the gap by little, where interior points on the eigenvectors of the kernel need some
    thirty factorisations.
    """
    if not (program.has_losses and has_interior(program)):
        return solve_smo(K, program, warm_start, tol, options=options)

    # 1. Pair steps, up to where interior points are faster.
    step_limit = options.pairs * len(K)
    by_pairs = solve_smo(K, program, warm_start, tol, step_limit, options)
    if by_pairs.gap <= tol:
        return by_pairs

    # 2. Interior points on K = ZZᵀ, with the eigenvectors whose eigenvalues are larger than
    #    rounding.
    eigenvalues, eigenvectors = np.linalg.eigh(np.asarray(K, dtype=float))
    is_significant = eigenvalues > np.finfo(float).eps * eigenvalues[-1]
    Z = eigenvectors[:, is_significant] * np.sqrt(eigenvalues[is_significant])
    in_factors = _solve_by_interior_points(DenseFactors(Z), program, tol, options, by_pairs)
    by_interior = assess(as_gram(K), program, in_factors.beta, in_factors.n_iter)
    if by_interior.gap <= tol:
        n_factorised = by_interior.n_iter - by_pairs.n_iter
        n_steps = by_pairs.n_iter + options.steps_per_factorisation * n_factorised
        return replace(by_interior, n_iter=n_steps)

    # 3. Pair steps from the solution of interior points; the best of the three.
    final = solve_smo(K, program, by_interior.beta, tol, step_limit, options)
    final = replace(final, n_iter=by_interior.n_iter + final.n_iter)
    return min(by_pairs, by_interior, final, key=attrgetter("gap"))


def has_interior(program: Program) -> bool:
    """Whether the total can be met with no sample at its bound.

    Otherwise there is at most one feasible β. Sums within rounding of the total count as equal to
    it.
    """
    if program.total is None:
        return True
    lowest_sum = float(program.lower.sum())
    highest_sum = float(program.upper.sum())
    finite_sums = [abs(bound) for bound in (lowest_sum, highest_sum) if np.isfinite(bound)]
    slack = SUM_ROUNDING * max(finite_sums, default=0.0)
    return lowest_sum + slack < program.total < highest_sum - slack


# The methods --------------------------------------------------------------------------------------


def _solution_without_steps(
    gram: FactoredGram, program: Program, tol: float, *, try_zeros: bool
) -> Solution | None:
    """Return zeros if they are optimal, or the only feasible point if there is but one, else None.

    Zeros are tried only with `try_zeros`. Where they are optimal, iterates of the other methods
    approach them without end, and their gap, which is relative, does not become small.
    """
    zeros = np.zeros(program.n_samples)
    if try_zeros and not program.total:
        solution = certify(program, zeros, zeros, 0)
        if solution.gap <= tol:
            return solution
    if not has_interior(program):
        return assess(gram, program, program.feasible(zeros))
    return None


def _solve_by_pairs(
    gram: FactoredGram,
    program: Program,
    start: Vector | None,
    tol: float,
    options: SolverOptions,
    n_iter: int = 0,
) -> Solution:
    """Return the solution of pair steps on the written kernel.

    They end at a gap of `tol`, or where other methods are faster. `n_iter` steps were taken before,
    and are counted in the solution.
    """
    K = gram.block(np.arange(gram.n_samples)) if _is_tiny(gram, options) else gram.written()
    by_pairs = solve_smo(K, program, start, tol, options.pairs * gram.n_samples, options)
    return assess(gram, program, by_pairs.beta, n_iter + by_pairs.n_iter)


def _solve_from_nearby(
    gram: FactoredGram, program: Program, start: Vector, tol: float, options: SolverOptions
) -> Solution:
    """Return the solution of rounds of working sets from a start.

    No round is taken where there are so few features that methods which start anywhere cost no
    more: the start is certified only.
    """
    policy = FactoredRounds(gram, options)
    rounds = SingleOutput(gram, program, program.feasible(start), policy)
    return rounds.solve(tol, lambda: _is_narrow(gram, options))


def _solve_by_newton(
    gram: FactoredGram,
    program: Program,
    tol: float,
    options: SolverOptions,
    nearby: Solution | None,
) -> Solution:
    """Return the solution of proximal Newton steps, completed by working sets.

    The steps start from a solution nearby, if there is one, else from zeros.
    """
    if nearby is None:
        n_rounds = 0
        start = program.feasible(np.zeros(program.n_samples))
        values = None
    else:
        n_rounds = nearby.n_iter
        start = nearby.beta
        values = nearby.values
    newton = ProximalNewton(gram, program, start, values)

    # Steps on a softened problem slow down below a gap of `newton_goal`, where working sets are
    # most useful. A working set may be too small for all free samples: the steps then go on from
    # where they had stopped, to a gap of `tol`.
    goals = [tol]
    if newton.sigma and tol < options.newton_goal:
        goals = [options.newton_goal, tol]
    for goal in goals:
        by_newton = newton.solve(goal, options.newton_steps)
        policy = FactoredRounds(gram, options)
        n_iter = n_rounds + by_newton.n_iter
        rounds = SingleOutput(gram, program, by_newton.beta, policy, by_newton.values, n_iter)
        solution = rounds.solve(tol)
        if solution.gap <= tol:
            break
    return solution


def _solve_by_interior_points(
    gram: FactoredGram, program: Program, tol: float, options: SolverOptions, best: Solution | None
) -> Solution:
    """Return the best of `best` and the solutions of interior points.

    The central path is followed to smaller and smaller gaps until the solution at its end, with
    coefficients rounded to their bounds, meets the gap. `best` is the best solution of other
    methods, if there is one.
    """
    n_before = 0
    if best is not None:
        n_before = best.n_iter

    # 1. The path is that of ZZᵀ with the ridge ρ + e: in the dual, the diagonal e and the ridge ρ
    #    are the same. In the primal e belongs to the function and ρ to the loss, so that the end
    #    of the path is only a start for steps on the given program, for which solutions are
    #    certified.
    path_program = program
    gap_fractions = options.path_fractions
    if gram.shift is not None:
        ridge = program.ridge + gram.shift
        path_program = Program(
            program.target, program.lower, program.upper, ridge, program.epsilon, program.total
        )
        gap_fractions = options.shifted_path_fractions
    is_tiny = _is_tiny(gram, options)
    path_gram = gram
    if is_tiny:
        path_gram = gram.take(np.arange(gram.n_samples))
    path = CentralPath(path_gram, path_program)

    # 2. Stop on the path, round coefficients to their bounds, and take steps from there. The path
    #    goes on from where it stopped, and its n_iter counts all of its steps.
    for fraction in gap_fractions:
        path_end = path.follow(fraction * min(tol, options.path_gap))
        start = round_to_bounds(gram, path_program, path_end)
        n_iter = n_before + path_end.n_iter
        if is_tiny:
            rounded = _solve_by_pairs(gram, program, start, tol, options, n_iter)
        else:
            policy = FactoredRounds(gram, options)
            rounded = SingleOutput(gram, program, start, policy, n_iter=n_iter).solve(tol)
        if best is None or rounded.gap < best.gap:
            best = rounded
        if best.gap <= tol:
            return best

    # 3. The end of the path without rounding, where no coefficient is at its bound.
    inside = assess(gram, program, program.feasible(path_end.beta), n_before + path_end.n_iter)
    if best is None or inside.gap < best.gap:
        best = inside
    if best.gap <= tol:
        return best

    # 4. The same with Newton matrices in double precision, unless they were: there is no more
    #    precise kernel then.
    precise_gram = gram.in_double()
    if precise_gram is None:
        return best
    return _solve_by_interior_points(precise_gram, program, tol, options, best)


# When one method takes over from another ----------------------------------------------------------


def _is_tiny(gram: FactoredGram, options: SolverOptions) -> bool:
    """Whether a pass over the rows costs more than its arithmetic."""
    return gram.stored and gram.backend is NUMPY and gram.n_samples <= options.few_samples


def _is_worth_writing(gram: FactoredGram, tol: float, options: SolverOptions) -> bool:
    """Whether pair steps on the written kernel are tried first.

    They are where samples are few, or where there are at least half as many features. The written
    kernel is in single precision, which is too coarse for a tolerance below `WRITTEN_GAP`.
    """
    is_on_host = gram.stored and gram.backend is NUMPY
    most_samples = min(max(2 * gram.n_features, options.few_written), options.most_written)
    has_suitable_size = options.few_samples < gram.n_samples <= most_samples
    return is_on_host and tol >= WRITTEN_GAP and has_suitable_size


def _is_narrow(gram: FactoredGram, options: SolverOptions) -> bool:
    """Whether features are so few that interior points cost no more than working sets.

    The interior points are those of a cold start, the working sets those from a solution nearby.
    """
    return gram.stored and _cost_ratio(gram, options) <= options.patience


def _cost_ratio(gram: FactoredGram, options: SolverOptions) -> float:
    """Return the cost of interior points from a cold start, in rounds of working sets."""
    n, D = gram.n_samples, gram.n_features
    block = min(gram.block_samples, n)
    interior_flops = options.path_matrices * n * (D + 1) ** 2
    round_flops = block**2 * (D + options.entry_flops)
    return interior_flops / max(round_flops, 1)


# From the central path to the bounds --------------------------------------------------------------


def round_to_bounds(gram: FactoredGram, program: Program, path_end: PathEnd) -> Vector:
    """Return a feasible β near the end of a path, with samples at the bounds the path leads to.

    The free samples change so that Zᵀβ and Σβ stay nearly what they were. Where they cannot meet
    the total, β is that of the path.
    """
    # 1. Samples to their bounds, those of a tube also to zero.
    beta = np.where(
        path_end.at_lower,
        program.lower,
        np.where(path_end.at_upper, program.upper, path_end.beta),
    )
    if program.epsilon:
        beta = np.where(path_end.at_lower & path_end.at_upper, 0.0, beta)
    beta = np.clip(beta, program.lower, program.upper)

    # 2. The free samples make up for their changes.
    free = program.free(beta)
    if len(free):
        beta[free] += _compensation(gram, program, path_end.beta - beta, beta, free)
    if program.total is None or len(free) == 0:
        return program.feasible(beta)

    # 3. The free samples alone meet the total.
    total_of_free = program.total - float(np.delete(beta, free).sum())
    program_of_free = program.take(free, program.target[free], total_of_free)
    if not program_of_free.is_feasible:
        return program.feasible(path_end.beta)
    beta[free] = program_of_free.feasible(beta[free])
    return beta


def _compensation(
    gram: FactoredGram, program: Program, lost: Vector, beta: Vector, free: Indices
) -> Vector:
    """Return changes of the free samples that restore Zᵀβ and Σβ after others were rounded.

    Each rounding is small, but many that go one way move the function and its value. The changes
    are the smallest that restore them, relative to each sample's distance to its bounds.

    Parameters
    ----------
    gram : FactoredGram
        The kernel.
    program : Program
        The dual program.
    lost : ndarray of shape (n,)
        What rounding took from β.
    beta : ndarray of shape (n,)
        The rounded coefficients.
    free : ndarray of shape (n_free,)
        Which samples are free at β.

    Returns
    -------
    ndarray of shape (n_free,)
    """
    # 1. How far each free sample may move without leaving its bounds or changing its sign in a
    #    tube; the second limit keeps unbounded samples of the size of the others.
    free_beta = beta[free]
    largest = float(np.abs(free_beta).max())
    distance = np.minimum(free_beta - program.lower[free], program.upper[free] - free_beta)
    sign_limit = np.abs(free_beta) if program.epsilon else UNBOUNDED_ROOM * largest
    distance = np.minimum(distance, sign_limit)
    if not np.any(distance**2):
        return np.zeros(len(free))

    # 2. The least-squares system [Z, 1]ᵀΘ[Z, 1] u = [Z, 1]ᵀ lost with Θ = diag(distance²), where
    #    the features are: a device keeps its matrix of D × D numbers and factorises it.
    backend = gram.backend
    D = gram.n_features
    theta = np.zeros(program.n_samples)
    theta[free] = distance**2
    placed_lost = backend.asarray(lost)
    right = backend.xp.concatenate([gram.adjoint(placed_lost), placed_lost.sum().reshape(1)])
    M = gram.normal_matrix(backend.asarray(theta), precise=True)
    if program.total is None:
        M = M[:-1, :-1]
        right = right[:-1]
    diagonal = backend.diagonal_view(M)
    diagonal += COMPENSATION_JITTER * diagonal.sum() / len(M)
    u = Cholesky(M).solve(right)
    # The pass over the rows that follows can use the memory of the matrix.
    del M, diagonal

    # 3. The changes Θ[Z, 1]u, cut before the bounds.
    constant = 0.0
    if program.total is not None:
        constant = float(u[-1])
    change = backend.to_numpy(gram.apply(u[:D]))[free] + constant
    limit = COMPENSATION_FRACTION * distance
    return np.asarray(np.clip(distance**2 * change, -limit, limit))


class FactoredRounds(FreeThenViolating):
    """Rounds of working sets near the solution.

    A working set with many more samples than features is solved by interior points in its features,
    any other by pair steps on its block.
    """

    def __init__(self, gram: FactoredGram, options: SolverOptions) -> None:
        # Rounds may fail to halve the gap until they have cost a fraction of what interior points
        # cost, within limits.
        idle_rounds = np.clip(
            IDLE_COST_FRACTION * _cost_ratio(gram, options),
            options.patience,
            options.longest_patience,
        )
        rounds = replace(options.free_rounds, max_idle_rounds=int(idle_rounds), tol_fraction=1.0)
        super().__init__(gram, options, rounds)
        self.wide = gram.wide

    def solve_inside(
        self, block_gram: FactoredGram, program: Program, beta: Vector, tol: float
    ) -> Vector:
        """Return a better β for the program of a working set."""
        is_narrow = block_gram.n_samples <= self.wide * block_gram.n_features
        if is_narrow or block_gram.shift is not None or not has_interior(program):
            return super().solve_inside(block_gram, program, beta, tol)
        # The path is followed far beyond the tolerance: its last steps separate samples at their
        # bounds from those that are free.
        path_gap = min(BLOCK_PATH_FRACTION * tol, BLOCK_PATH_GAP)
        path_end = CentralPath(block_gram, program).follow(path_gap)
        inside = program.feasible(path_end.beta)
        rounded = round_to_bounds(block_gram, program, path_end)

        def dual_value(beta: Vector) -> float:
            w = block_gram.adjoint(beta)
            return float(program.linear_value(beta)) - 0.5 * float(w @ w)

        return max((beta, inside, rounded), key=dual_value)
