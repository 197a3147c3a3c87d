"""The program for a kernel in factors: working sets from nearby, Newton steps from anywhere, interior points else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelmosaic._typing import AnyArray, Indices
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.factored import DenseFactors, FactoredGram
from kernelmosaic.gram.gram import as_gram
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.solvers.interior_point import CentralPath, PathEnd
from kernelmosaic.solvers.program import DEFAULTS, MET, Program, Solution, SolverOptions, Vector, assess, certify
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.working_set import FreeThenViolating, SingleOutput


def solve_factored(
    gram: FactoredGram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the dual program for K = ZZᵀ + diag e to a relative duality gap of `tol`.

    In the dual e and the ridge ρ are the same thing, so the path is that of ZZᵀ with the ridge ρ + e. In the primal
    they are not: the former is part of the function, the latter a penalty on its errors. The certificate is that of the
    program given, reached by working sets from where the path ends.

    Parameters
    ----------
    gram : FactoredGram
        The kernel, by what Z does to vectors.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        A β from nearby: working sets of samples that are free or violate optimality are then tried first, unless
        features are so few that steps from anywhere are as fast.
    tol : float
        The relative duality gap at which to stop. A larger gap in the result means that rounding hides the rest.
    options : SolverOptions
        When one method takes over from another.
    """
    program.require_feasible()
    # Interior points come near to a solution of zeros for ever, and their gap, which is relative, never closes. A start
    # of other numbers is rarely so far off: then steps are tried first.
    unknown = warm_start is None or not warm_start.any()
    if unknown and (zero := _zero(program, tol)):
        return zero
    if not has_interior(program):
        return assess(gram, program, program.feasible(np.zeros(program.n_samples)))
    if _is_written(gram, tol, options):
        pairs = solve_smo(gram.written(), program, warm_start, tol, options.pairs * gram.n_samples, options)
        found = assess(gram, program, pairs.beta, pairs.n_iter)
        if found.gap <= tol:
            return found
        warm_start = found.beta
    # Passes over few samples cost more than their arithmetic: they are taken from their block, or from one array.
    few = gram.stored and gram.backend is NUMPY and gram.n_samples <= options.few
    near = (_by_pairs if few else _by_steps)(gram, program, warm_start, tol, options)
    if near is not None and near.gap <= tol:
        return near
    if not unknown and (zero := _zero(program, tol)):
        return zero
    return _by_interior_points(gram, program, tol, options, near)


def solve_stored(
    K: AnyArray,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the dual program for a stored matrix of few samples, by pair steps and interior points where those stall.

    See `solve_smo` for the parameters. Pair steps at a large C on a kernel of low rank shrink the gap by little each;
    interior points on the eigenvectors of the kernel need some thirty factorisations.
    """
    if not (program.has_losses and has_interior(program)):
        return solve_smo(K, program, warm_start, tol, options=options)
    limit = options.pairs * len(K)
    best = solve_smo(K, program, warm_start, tol, limit, options)
    if best.gap <= tol:
        return best
    values, vectors = np.linalg.eigh(np.asarray(K, dtype=float))
    kept = values > np.finfo(float).eps * values[-1]
    inside = _by_interior_points(DenseFactors(vectors[:, kept] * np.sqrt(values[kept])), program, tol, options, best)
    found = assess(as_gram(K), program, inside.beta, inside.n_iter)
    if found.gap <= tol:
        # A factorisation takes as long as 400 pair steps of a few samples.
        return replace(found, n_iter=best.n_iter + 400 * (inside.n_iter - best.n_iter))
    last = solve_smo(K, program, found.beta, tol, limit, options)
    last = replace(last, n_iter=found.n_iter + last.n_iter)
    return min(best, found, last, key=lambda solution: solution.gap)


def _zero(program: Program, tol: float) -> Solution | None:
    """Return a β of zeros if it solves the program."""
    if program.total:
        return None
    nothing = np.zeros(program.n_samples)
    found = certify(program, nothing, nothing, 0)
    return found if found.gap <= tol else None


def _by_pairs(
    gram: FactoredGram, program: Program, start: Vector | None, tol: float, options: SolverOptions, n_iter: int = 0
) -> Solution:
    """Solve the program of few samples by pair steps in their block, up to where interior points are faster."""
    K = gram.block(np.arange(gram.n_samples))
    pairs = solve_smo(K, program, start, tol, options.pairs * gram.n_samples, options)
    return assess(gram, program, pairs.beta, n_iter + pairs.n_iter)


def _by_steps(
    gram: FactoredGram, program: Program, start: Vector | None, tol: float, options: SolverOptions
) -> Solution | None:
    """Go from a start to a nearby solution by working sets, or to any by Newton steps; None if neither serves."""
    near: Solution | None = None
    if start is not None:
        policy = FactoredRounds(gram, options)
        state = SingleOutput(gram, program, program.feasible(start), policy)
        near = state.solve(tol, lambda: _is_narrow(gram, options))
        if near.gap <= tol:
            return near
    if gram.shift is None and program.has_losses and program.target.any():
        passes = 0 if near is None else near.n_iter
        known = (program.feasible(np.zeros(program.n_samples)),) if near is None else (near.beta, near.values)
        newton = ProximalNewton(gram, program, *known)
        # Newton steps slow down below this gap, where working sets are at their best; with a ridge they never do.
        # Working sets may be too small for the samples that are free: then steps go on where they had stopped.
        for goal in dict.fromkeys((max(tol, 3e-4) if newton.sigma else tol, tol)):
            found = newton.solve(goal, options.newton_steps)
            policy = FactoredRounds(gram, options)
            near = SingleOutput(gram, program, found.beta, policy, found.values, passes + found.n_iter).solve(tol)
            if near.gap <= tol:
                break
    return near


def _by_interior_points(
    gram: FactoredGram, program: Program, tol: float, options: SolverOptions, best: Solution | None
) -> Solution:
    """Follow the central path and round its end to the bounds, more and more exactly until the gap is met."""
    passes = 0 if best is None else best.n_iter
    softened = program
    if gram.shift is not None:  # its ridge, and the primal of every such program
        ridge = program.ridge + gram.shift
        softened = Program(program.target, program.lower, program.upper, ridge, program.epsilon, program.total)
    few = gram.stored and gram.backend is NUMPY and gram.n_samples <= options.few
    central = CentralPath(gram.take(np.arange(gram.n_samples)) if few else gram, softened)
    # The path stops at these shares of the tolerance: rounding coefficients to their bounds costs the rest. The gap
    # of a machine without slack is larger, by about a root, than with the kernel's diagonal as its slack.
    for share in (0.3, 0.01) if gram.shift is None else (0.3, 0.01, 3e-4, 1e-5, 3e-7):
        # Nor does it stop at a larger gap than 3e-5: the last digits cost little, and the next solve starts from here.
        path = central.follow(share * min(tol, 3e-5))
        beta, n_iter = round_to_bounds(gram, softened, path), passes + path.n_iter
        if few:  # one round holds them all
            near = _by_pairs(gram, program, beta, tol, options, n_iter)
        else:
            near = SingleOutput(gram, program, beta, FactoredRounds(gram, options), n_iter=n_iter).solve(tol)
        best = near if best is None or near.gap < best.gap else best
        if best.gap <= tol:
            return best
    inside = assess(gram, program, program.feasible(path.beta), passes + path.n_iter)
    best = inside if best is None or inside.gap < best.gap else best
    precise = gram.in_double() if best.gap > tol else None
    return best if precise is None else _by_interior_points(precise, program, tol, options, best)


def _is_written(gram: FactoredGram, tol: float, options: SolverOptions) -> bool:
    """Whether samples are so few, or have so many features, that pair steps on the written kernel are tried first."""
    here, most = gram.stored and gram.backend is NUMPY, max(2 * gram.n_features, options.few_written)
    # The entries are in single precision.
    return here and tol >= 1e-6 and options.few < gram.n_samples <= min(most, options.most_written)


def _is_narrow(gram: FactoredGram, options: SolverOptions) -> bool:
    """Whether features are so few that interior points from a cold start cost no more than working sets."""
    return gram.stored and _cost_ratio(gram) <= options.patience


def _cost_ratio(gram: FactoredGram) -> float:
    """Return how many working sets from nearby cost as much as interior points from a cold start."""
    block = min(gram.block_samples, gram.n_samples)
    # Interior points take about 25 Newton matrices; an entry of a working set's block costs 50 flops once it is formed.
    cold = 25 * gram.n_samples * (gram.n_features + 1) ** 2
    near = block**2 * (gram.n_features + 50)
    return cold / max(near, 1)


def has_interior(program: Program) -> bool:
    """Whether the sum can be met with no sample at its bound; else there is but one feasible β."""
    if program.total is None:
        return True
    low, high = float(program.lower.sum()), float(program.upper.sum())
    slack = MET * max(abs(low) if np.isfinite(low) else 0.0, abs(high) if np.isfinite(high) else 0.0)
    return low + slack < program.total < high - slack


def round_to_bounds(gram: FactoredGram, program: Program, path: PathEnd) -> Vector:
    """Return a feasible β near to the end of the path with every sample at the bound the path leads to."""
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


def _compensation(gram: FactoredGram, program: Program, lost: Vector, beta: Vector, free: Indices) -> Vector:
    """Return what the free samples must add for Zᵀβ and Σβ to stay what they were before others were rounded.

    Small as each change is, many samples that move one way move the function, and its value with them. Of all answers
    this is the least, relative to the room there is.
    """
    own, largest = beta[free], float(np.abs(beta[free]).max())
    room = np.minimum(own - program.lower[free], program.upper[free] - own)
    room = np.minimum(room, np.abs(own) if program.epsilon else 1e3 * largest)
    if not np.any(room**2):
        return np.zeros(len(free))
    # Where the features are: the matrix of D × D numbers need not travel, nor be factorised by the host.
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
    change = backend.to_numpy(gram.apply(answer[:D]))[free] + (0.0 if program.total is None else float(answer[-1]))
    return np.asarray(np.clip(room**2 * change, -0.9 * room, 0.9 * room))


class FactoredRounds(FreeThenViolating):
    """Working sets from nearby; those with many more samples than features are solved in their features."""

    def __init__(self, gram: FactoredGram, options: SolverOptions) -> None:
        # Rounds may fail to halve the gap while they cost a tenth of interior points, within reason.
        idle = int(np.clip(0.1 * _cost_ratio(gram), options.patience, 15))
        super().__init__(gram, options, replace(options.free_rounds, idle=idle, room=1.0))
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
