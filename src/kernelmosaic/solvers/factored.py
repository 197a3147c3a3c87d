"""The program for a kernel in factors, K = ZZᵀ + diag e, by five methods that follow each other.

Pair steps serve few samples, working sets a start from nearby, proximal Newton steps any start, and
interior points what these leave. Both of the last two are needed, as `benchmarks/factored.py`
shows. On 443 of its problems (150 to 20,000 samples, 5 to 500 features, C from 0.01 to 1000, gaps
of 10⁻³ and 10⁻⁵) solves without Newton steps took 1.27 times as long in the geometric mean, 1.9
times with 20,000 samples, and up to 7.7 times. Without interior points they took 0.86 times as long
and met every gap; but on 90 harder ones (C from 10² to 10⁶, columns that are offset, repeated or
powers of each other) 4 missed the gap, all of C ≥ 10⁴ and without a ridge, where interior points
meet it.
"""

from __future__ import annotations

from dataclasses import replace

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
from kernelmosaic.solvers.tuning import DEFAULTS, SUM_ROUNDING, SolverOptions
from kernelmosaic.solvers.working_set import FreeThenViolating, SingleOutput


def solve_factored(
    gram: FactoredGram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the dual program for K = ZZᵀ + diag e to a relative duality gap of `tol`.

    Methods are tried in the order of what they cost; the first that meets the gap is the last.

    Parameters
    ----------
    gram : FactoredGram
        The kernel, by what Z does to vectors.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        A β from nearby, which need not be feasible.
    tol : float
        The relative duality gap at which to stop. A larger gap in the result means that rounding
        hides the rest.
    options : SolverOptions
        When one method takes over from another.
    """
    program.require_feasible()

    # 1. Programs with nothing to choose. A start of other numbers than zeros is rarely far enough
    #    off for zeros to be
    # optimal: they are looked at later then.
    has_start = warm_start is not None and bool(warm_start.any())
    solution = _solution_without_steps(gram, program, tol, with_zeros=not has_start)
    if solution is not None:
        return solution

    # 2. Pair steps: of few samples, or of not many more than there are features.
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

        # 4. Newton steps in the features, which need losses, targets, and a function without a part
        #    of its own
        # for each sample.
        if gram.shift is None and program.has_losses and program.target.any():
            best = _solve_by_newton(gram, program, tol, options, best)
            if best.gap <= tol:
                return best

    # 5. Interior points, unless zeros are optimal after all.
    solution = _solution_without_steps(gram, program, tol, with_zeros=has_start)
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
    """Solve the dual program for a stored matrix of few samples, to a relative duality gap of
    `tol`.

    See `solve_smo` for the parameters. At a large C, on a kernel of low rank, each pair step
    shrinks the gap by little, where interior points on the eigenvectors of the kernel need some
    thirty factorisations.
    """
    if not (program.has_losses and has_interior(program)):
        return solve_smo(K, program, warm_start, tol, options=options)

    # 1. Pair steps, up to where interior points are faster.
    most_steps = options.pairs * len(K)
    pairs = solve_smo(K, program, warm_start, tol, most_steps, options)
    if pairs.gap <= tol:
        return pairs

    # 2. Interior points on K = ZZᵀ, with the eigenvectors whose eigenvalues are larger than
    #    rounding.
    values, vectors = np.linalg.eigh(np.asarray(K, dtype=float))
    kept = values > np.finfo(float).eps * values[-1]
    factors = DenseFactors(vectors[:, kept] * np.sqrt(values[kept]))
    in_factors = _solve_by_interior_points(factors, program, tol, options, pairs)
    inside = assess(as_gram(K), program, in_factors.beta, in_factors.n_iter)
    if inside.gap <= tol:
        n_factorised = inside.n_iter - pairs.n_iter
        return replace(inside, n_iter=pairs.n_iter + options.steps_per_factorisation * n_factorised)

    # 3. Pair steps from there; the best of the three.
    again = solve_smo(K, program, inside.beta, tol, most_steps, options)
    again = replace(again, n_iter=inside.n_iter + again.n_iter)
    return min(pairs, inside, again, key=lambda solution: solution.gap)


def has_interior(program: Program) -> bool:
    """Whether the sum can be met with no sample at its bound; else there is but one feasible β."""
    if program.total is None:
        return True
    low, high = float(program.lower.sum()), float(program.upper.sum())
    slack = SUM_ROUNDING * max(
        abs(low) if np.isfinite(low) else 0.0, abs(high) if np.isfinite(high) else 0.0
    )
    return low + slack < program.total < high - slack


# The methods --------------------------------------------------------------------------------------


def _solution_without_steps(
    gram: FactoredGram, program: Program, tol: float, *, with_zeros: bool
) -> Solution | None:
    """Return zeros if they are optimal, where that is asked, or the only feasible point if there is
    but one.

    Steps come near to zeros for ever. The gap is relative, so that it never closes on the way.
    """
    zeros = np.zeros(program.n_samples)
    if with_zeros and not program.total:
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
    """Take pair steps on the kernel written down, up to where the other methods are faster.

    `n_iter` steps were taken before.
    """
    K = gram.block(np.arange(gram.n_samples)) if _is_tiny(gram, options) else gram.written()
    pairs = solve_smo(K, program, start, tol, options.pairs * gram.n_samples, options)
    return assess(gram, program, pairs.beta, n_iter + pairs.n_iter)


def _solve_from_nearby(
    gram: FactoredGram, program: Program, start: Vector, tol: float, options: SolverOptions
) -> Solution:
    """Take rounds of working sets, unless features are so few that steps from anywhere cost no
    more."""
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
    """Take proximal Newton steps from a solution nearby, or from zeros, and working sets where they
    end."""
    if nearby is None:
        n_rounds, start, values = 0, program.feasible(np.zeros(program.n_samples)), None
    else:
        n_rounds, start, values = nearby.n_iter, nearby.beta, nearby.values
    newton = ProximalNewton(gram, program, start, values)

    # Steps that are softened slow down below `newton_goal`, where working sets are at their best.
    # These may be too small for the samples that are free: then steps go on where they had stopped.
    goals = [tol]
    if newton.sigma and tol < options.newton_goal:
        goals = [options.newton_goal, tol]
    for goal in goals:
        steps = newton.solve(goal, options.newton_steps)
        policy = FactoredRounds(gram, options)
        rounds = SingleOutput(
            gram, program, steps.beta, policy, steps.values, n_rounds + steps.n_iter
        )
        solution = rounds.solve(tol)
        if solution.gap <= tol:
            break
    return solution


def _solve_by_interior_points(
    gram: FactoredGram, program: Program, tol: float, options: SolverOptions, best: Solution | None
) -> Solution:
    """Follow the central path and round its end to the bounds, more and more exactly until the gap
    is met."""
    n_before = 0 if best is None else best.n_iter

    # 1. In the dual the diagonal e and the ridge ρ are the same, so that the path is that of ZZᵀ
    #    with the ridge
    # ρ + e, and of a program with losses. In the primal e belongs to the function and ρ to the
    # loss: the certificate is that of the program given, and steps from the end of the path reach
    # it.
    softened = program
    if gram.shift is not None:
        ridge = program.ridge + gram.shift
        softened = Program(
            program.target, program.lower, program.upper, ridge, program.epsilon, program.total
        )
    is_tiny = _is_tiny(gram, options)
    central = CentralPath(gram.take(np.arange(gram.n_samples)) if is_tiny else gram, softened)

    # 2. Stop on the path, round coefficients to their bounds, and take steps from there.
    fractions = options.path_fractions if gram.shift is None else options.shifted_path_fractions
    for fraction in fractions:
        path = central.follow(fraction * min(tol, options.path_gap))
        beta = round_to_bounds(gram, softened, path)
        n_iter = n_before + path.n_iter
        if is_tiny:
            rounded = _solve_by_pairs(gram, program, beta, tol, options, n_iter)
        else:
            policy = FactoredRounds(gram, options)
            rounded = SingleOutput(gram, program, beta, policy, n_iter=n_iter).solve(tol)
        if best is None or rounded.gap < best.gap:
            best = rounded
        if best.gap <= tol:
            return best

    # 3. The end of the path as it is, no coefficient at its bound.
    inside = assess(gram, program, program.feasible(path.beta), n_before + path.n_iter)
    if best is None or inside.gap < best.gap:
        best = inside
    if best.gap <= tol:
        return best

    # 4. The same with Newton matrices summed in double precision, if they were not.
    precise = gram.in_double()
    if precise is None:
        return best
    return _solve_by_interior_points(precise, program, tol, options, best)


# When one method takes over from another ----------------------------------------------------------


def _is_tiny(gram: FactoredGram, options: SolverOptions) -> bool:
    """Whether passes over the rows cost more than their arithmetic: the kernel is then read as one
    array."""
    return gram.stored and gram.backend is NUMPY and gram.n_samples <= options.few_samples


def _is_worth_writing(gram: FactoredGram, tol: float, options: SolverOptions) -> bool:
    """Whether samples are so few, or have so many features, that pair steps on the written kernel
    are tried first."""
    is_here = gram.stored and gram.backend is NUMPY
    most_samples = min(max(2 * gram.n_features, options.few_written), options.most_written)
    # The entries are in single precision.
    return is_here and tol >= 1e-6 and options.few_samples < gram.n_samples <= most_samples


def _is_narrow(gram: FactoredGram, options: SolverOptions) -> bool:
    """Whether features are so few that interior points from a cold start cost no more than working
    sets."""
    return gram.stored and _cost_ratio(gram, options) <= options.patience


def _cost_ratio(gram: FactoredGram, options: SolverOptions) -> float:
    """Return how many working sets from nearby cost as much as interior points from a cold
    start."""
    block = min(gram.block_samples, gram.n_samples)
    interior_flops = options.path_matrices * gram.n_samples * (gram.n_features + 1) ** 2
    block_flops = block**2 * (gram.n_features + options.entry_flops)
    return interior_flops / max(block_flops, 1)


# From the central path to the bounds --------------------------------------------------------------


def round_to_bounds(gram: FactoredGram, program: Program, path: PathEnd) -> Vector:
    """Return a feasible β near to the end of the path with every sample at the bound the path leads
    to."""
    beta = np.where(path.at_lower, program.lower, np.where(path.at_upper, program.upper, path.beta))
    if program.epsilon:
        beta = np.where(path.at_lower & path.at_upper, 0.0, beta)
    beta = np.clip(beta, program.lower, program.upper)
    free = program.free(beta)
    if len(free):
        beta[free] += _compensation(gram, program, path.beta - beta, beta, free)
    if program.total is None or len(free) == 0:
        return program.feasible(beta)
    rest = program.total - float(np.delete(beta, free).sum())
    inside = program.take(free, program.target[free], rest)
    if not inside.is_feasible:  # too many at their bounds for the others to make up for
        return program.feasible(path.beta)
    beta[free] = inside.feasible(beta[free])
    return beta


def _compensation(
    gram: FactoredGram, program: Program, lost: Vector, beta: Vector, free: Indices
) -> Vector:
    """Return what the free samples must add for Zᵀβ and Σβ to stay what they were before others
    were rounded.

    Small as each change is, many samples that move one way move the function, and its value with
    them. Of all answers this is the least, relative to the room there is.
    """
    own, largest = beta[free], float(np.abs(beta[free]).max())
    room = np.minimum(own - program.lower[free], program.upper[free] - own)
    room = np.minimum(room, np.abs(own) if program.epsilon else 1e3 * largest)
    if not np.any(room**2):
        return np.zeros(len(free))
    # Where the features are: the matrix of D × D numbers need not travel, nor be factorised by the
    # host.
    backend, D = gram.backend, gram.n_features
    theta = np.zeros(program.n_samples)
    theta[free] = room**2
    placed = backend.asarray(lost)
    right = backend.xp.concatenate([gram.adjoint(placed), placed.sum().reshape(1)])
    M = gram.normal_matrix(backend.asarray(theta), precise=True)
    if program.total is None:
        M, right = M[:-1, :-1], right[:-1]
    diagonal = backend.diagonal_view(M)
    diagonal += 1e-10 * diagonal.sum() / len(M)
    answer = Cholesky(M).solve(right)
    del M, diagonal  # no pass over the rows need make room beside them
    change = backend.to_numpy(gram.apply(answer[:D]))[free] + (
        0.0 if program.total is None else float(answer[-1])
    )
    return np.asarray(np.clip(room**2 * change, -0.9 * room, 0.9 * room))


class FactoredRounds(FreeThenViolating):
    """Working sets from nearby; those with many more samples than features are solved in their
    features."""

    def __init__(self, gram: FactoredGram, options: SolverOptions) -> None:
        # Rounds may fail to halve the gap while they cost a tenth of interior points, within
        # reason.
        idle = int(
            np.clip(0.1 * _cost_ratio(gram, options), options.patience, options.longest_patience)
        )
        super().__init__(
            gram, options, replace(options.free_rounds, max_idle_rounds=idle, tol_fraction=1.0)
        )
        self.wide = gram.wide

    def solve_inside(self, part: FactoredGram, inside: Program, beta: Vector, tol: float) -> Vector:
        narrow = part.n_samples <= self.wide * part.n_features
        if narrow or part.shift is not None or not has_interior(inside):
            return super().solve_inside(part, inside, beta, tol)
        # The last steps of interior points tell samples at their bounds from those that are free.
        path = CentralPath(part, inside).follow(min(0.3 * tol, 1e-8))
        candidates = (beta, inside.feasible(path.beta), round_to_bounds(part, inside, path))

        def dual_value(one: Vector) -> float:
            w = part.adjoint(one)
            return float(inside.linear_value(one)) - 0.5 * float(w @ w)

        return max(candidates, key=dual_value)
