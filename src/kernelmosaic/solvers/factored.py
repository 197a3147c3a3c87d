"""The program for a kernel in factors: interior points from afar, working sets from nearby, then a certificate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.solvers.cholesky import factorised
from kernelmosaic.solvers.dispatch import mean_diagonal, solve, solve_free, solve_unbounded
from kernelmosaic.solvers.free_block import free_samples
from kernelmosaic.solvers.interior_point import CentralPath, Interior, follow_central_path
from kernelmosaic.solvers.program import Program, Solution, Vector, certify
from kernelmosaic.solvers.smo import solve_smo

#: The interior-point method stops at this share of the gap asked for: snapping to bounds costs the rest.
_SHARE = 0.3
#: Nor does it stop at a larger gap than this: the last digits cost little, and the next solve starts from here.
_CRUDE = 3e-5
#: This many working sets must at least halve the gap, or interior points are faster; ...
_PATIENCE = 3
#: ... or as many as cost this share of what interior points do, within reason.
_PATIENT_SHARE, _MOST_PATIENCE = 0.1, 15
#: Working sets are solved to this share of the gap of everyone.
_EARLY = 0.01
#: ... or to this one by interior points, the last steps of which tell samples at their bounds from those that are free.
_CRISP = 1e-8
#: Newton matrices that interior points take, and what an entry of a working set's block costs beside being formed.
_STEPS_AFAR, _FLOPS_AN_ENTRY = 25, 50
#: Relative to the bounds' sums: a total this near to one of them is met by no β but the bounds.
_ROUNDING = 1e-12
#: Relative to the mean diagonal.
_JITTER = 1e-5


@solve.register
def solve_factored(
    gram: FactoredGram, program: Program, warm_start: Vector | None = None, tol: float = 1e-3
) -> Solution:
    """Solve the dual program for K = ZZᵀ to a relative duality gap of `tol`.

    Parameters
    ----------
    gram : FactoredGram
        The kernel, by what Z does to vectors.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        A β from nearby: working sets of samples that are free or violate optimality are then tried first, since
        interior-point methods cannot begin at a bound; unless features are so few that these are as fast.
    tol : float
        The relative duality gap at which to stop. A larger gap in the answer tells that rounding hides the rest.
    """
    program.require_feasible()
    nothing = np.zeros(program.n_samples)
    # Interior points come near to a solution of zeros for ever, and their gap, which is relative, never closes.
    if not program.total and (zero := certify(program, nothing, nothing, 0)).gap <= tol:
        return zero
    if not _has_interior(program):
        return _Near(gram, program, program.feasible(nothing)).solution
    passes = 0
    if warm_start is not None:
        near = _Near(gram, program, program.feasible(warm_start))
        if near.solution.gap <= tol or (not _is_narrow(gram) and near.improve(tol)):
            return near.solution
        passes = near.solution.n_iter
    best: Solution | None = None
    central = CentralPath(gram, program)
    for share in (_SHARE, 0.01):
        path = central.follow(share * min(tol, _CRUDE))
        near = _Near(gram, program, snapped(gram, program, path), n_iter=passes + path.n_iter)
        near.improve(tol)
        if best is None or near.solution.gap < best.gap:
            best = near.solution
        if best.gap <= tol:
            return best
    unsnapped = _Near(gram, program, program.feasible(path.beta), n_iter=passes + path.n_iter).solution
    best = min(best or unsnapped, unsnapped, key=lambda one: one.gap)
    if best.gap > tol and gram.sharpen():
        return min(best, solve_factored(gram, program, None, tol), key=lambda one: one.gap)
    return best


def _is_narrow(gram: FactoredGram) -> bool:
    """Whether the features are so few that interior points from afar cost no more than working sets from nearby."""
    return gram.stored and _dearness(gram) <= _PATIENCE


def _dearness(gram: FactoredGram) -> float:
    """Return how many working sets from nearby cost as much as interior points from afar."""
    block = min(gram.block_samples, gram.n_samples)
    afar = _STEPS_AFAR * gram.n_samples * (gram.n_features + 1) ** 2
    near = block**2 * (gram.n_features + _FLOPS_AN_ENTRY)
    return afar / max(near, 1)


def _has_interior(program: Program) -> bool:
    """Whether the sum can be met with no sample at its bound; else there is but one feasible β."""
    if program.total is None:
        return True
    low, high = float(program.lower.sum()), float(program.upper.sum())
    slack = _ROUNDING * max(abs(low) if np.isfinite(low) else 0.0, abs(high) if np.isfinite(high) else 0.0)
    return low + slack < program.total < high - slack


def snapped(gram: FactoredGram, program: Program, path: Interior) -> Vector:
    """Return a feasible β near to the end of the path with every sample at the bound the path leads to."""
    zero = path.at_lower & path.at_upper
    beta = np.where(path.at_lower, program.lower, np.where(path.at_upper, program.upper, path.beta))
    if program.epsilon:
        beta = np.where(zero, 0.0, beta)
    beta = np.clip(beta, program.lower, program.upper)
    free = free_samples(program, beta)
    if len(free):
        beta[free] += _compensation(gram, program, path.beta - beta, beta, free)
    if program.total is None or len(free) == 0:
        return program.feasible(beta)
    rest = program.total - float(np.delete(beta, free).sum())
    inside = restricted(program, free, program.target[free], rest)
    try:
        beta[free] = inside.feasible(beta[free])
    except ValueError:  # too many at their bounds for the others to make up for
        return program.feasible(path.beta)
    return beta


def _compensation(gram: FactoredGram, program: Program, lost: Vector, beta: Vector, free: NDArray[np.intp]) -> Vector:
    """Return what the free samples must add for Zᵀβ and Σβ to stay what they were before others were snapped.

    Small as each change is, many samples that move one way move the function, and its value with them. Of all answers
    this is the least, relative to the room there is.
    """
    own, largest = beta[free], float(np.abs(beta[free]).max())
    room = np.minimum(own - program.lower[free], program.upper[free] - own)
    room = np.minimum(room, np.abs(own) if program.epsilon else 1e3 * largest)
    theta = np.zeros(program.n_samples)
    theta[free] = room**2
    right = np.append(gram.adjoint(lost), lost.sum())
    M = gram.normal_matrix(theta, precise=True)
    if program.total is None:
        M, right = M[:-1, :-1], right[:-1]
    M[np.diag_indices_from(M)] += _JITTER**2 * np.trace(M) / len(M)
    answer = factorised(M).solve(right)
    del M  # no pass over the rows need make room beside it
    change = gram.apply(answer[: gram.n_features])[free] + (0.0 if program.total is None else answer[-1])
    return np.asarray(np.clip(room**2 * change, -0.9 * room, 0.9 * room))


def restricted(program: Program, samples: NDArray[np.intp], target: Vector, total: float | None) -> Program:
    """Return the program of some samples, the others held where they are."""
    return replace(
        program,
        target=target,
        lower=program.lower[samples],
        upper=program.upper[samples],
        ridge=program.ridge[samples],
        total=total,
    )


class _Near:
    """A feasible β and its certificate, bettered by solving for a working set of samples at a time."""

    def __init__(self, gram: FactoredGram, program: Program, beta: Vector, n_iter: int = 0) -> None:
        self.gram, self.program = gram, program
        self.beta = beta
        self.n_iter = n_iter
        self.w = gram.adjoint(beta)
        self.certify()

    def certify(self) -> None:
        values = self.gram.apply(self.w)
        noise = 0.0
        if not self.program.target.any():
            noise = float(np.finfo(np.float64).eps) * np.sqrt(len(values)) * float(self.gram.diagonal() @ self.beta**2)
        self.solution = certify(self.program, self.beta, values, self.n_iter, noise)

    def improve(self, tol: float) -> bool:
        """Solve working sets until the gap is at most `tol`; False if they do not get there, or get there slowly."""
        sharper = 1.0
        patience = int(np.clip(_PATIENT_SHARE * _dearness(self.gram), _PATIENCE, _MOST_PATIENCE))
        gaps = [self.solution.gap]
        while gaps[-1] > tol:
            working = self.working_set()
            if len(working) == 0:
                return False
            # What the others leave undone is seen only afterwards: early sets need not be solved to the end.
            early = _EARLY * min(gaps[-1], 1.0) if len(working) < len(self.beta) else 0.0
            self.solve(working, sharper * max(0.1 * tol, early))
            gaps.append(self.solution.gap)
            if gaps[-1] > 0.5 * gaps[-2]:
                # The working set's own value, to which its gap is relative, may be far larger than that of everyone.
                sharper *= 0.1
            if len(gaps) > patience and gaps[-1] > 0.5 * gaps[-1 - patience]:
                return gaps[-1] <= tol
        return True

    def working_set(self) -> NDArray[np.intp]:
        """The free samples, then those that violate optimality most; none if the free ones are too many."""
        p, at = self.program, self.solution
        free = free_samples(p, self.beta)
        if len(free) > self.gram.block_samples or not self.gram.block_samples:
            return np.zeros(0, dtype=np.intp)
        residual = p.target - at.values - p.ridge * self.beta - at.intercept
        rising = np.where(self.beta < p.upper, residual - np.where(self.beta >= 0, p.epsilon, -p.epsilon), -np.inf)
        falling = np.where(self.beta > p.lower, np.where(self.beta > 0, p.epsilon, -p.epsilon) - residual, -np.inf)
        violation = np.maximum(rising, falling)
        violation[free] = np.inf
        count = min(self.gram.block_samples, len(violation))
        chosen = np.argpartition(-violation, count - 1)[:count]
        return np.sort(chosen[violation[chosen] > -np.inf])

    def solve(self, working: NDArray[np.intp], tol: float) -> None:
        """Maximise the objective over the working set."""
        p = self.program
        own = np.zeros_like(self.beta)
        own[working] = self.beta[working]
        theirs = self.gram.apply(self.w - self.gram.adjoint(own))[working]
        # As it is, not what the others leave: rounding could put that out of the working set's reach.
        limits = p.lower[working].sum(), p.upper[working].sum()
        total = None if p.total is None else float(np.clip(own[working].sum(), *limits))
        inside = restricted(p, working, p.target[working] - theirs, total)
        found = self.solve_inside(working, inside, own[working], tol)
        change = np.zeros_like(self.beta)
        change[working] = found - own[working]
        self.beta = self.beta.copy()
        self.beta[working] = found
        self.w = self.w + self.gram.adjoint(change)
        self.n_iter += 1
        self.certify()

    def solve_inside(self, working: NDArray[np.intp], inside: Program, beta: Vector, tol: float) -> Vector:
        """Solve the working set's own program from β, by its block of K or by interior points on its features."""
        if len(working) > self.gram.wide * self.gram.n_features and _has_interior(inside):
            part = self.gram.part(working)
            path = CentralPath(part, inside).follow(min(_SHARE * tol, _CRISP))
            candidates = (beta, inside.feasible(path.beta), snapped(part, inside, path))
            return max(candidates, key=lambda one: _dual_value(part, inside, one))
        K = self.gram.block(working)
        if isinstance(K, np.ndarray):
            return solve_smo(K, inside, beta, tol, max_iter=200 * len(working)).beta
        return solve(K, inside, beta, tol).beta


def _dual_value(gram: FactoredGram, program: Program, beta: Vector) -> float:
    w = gram.adjoint(beta)
    return program.linear_value(beta) - 0.5 * float(w @ w)


@solve_unbounded.register
def _solve_factored_unbounded(gram: FactoredGram, program: Program) -> Solution:
    gram.sharpen()
    path = follow_central_path(gram, program, 0.0)
    return _Near(gram, program, path.beta, n_iter=path.n_iter).solution


@solve_free.register
def _solve_factored_free(
    gram: FactoredGram, program: Program, free: NDArray[np.intp], right_hand_sides: NDArray[np.float64]
) -> NDArray[np.float64]:
    ridge = program.ridge[free]
    if len(free) <= gram.n_features:
        everyone = np.arange(len(free))
        return solve_free(gram.block(free), restricted(program, free, ridge, None), everyone, right_hand_sides)
    # Through the features, of which there are fewer; every step is a pass over the rows, wherever they are.
    softened = ridge + _JITTER * (float(gram.diagonal()[free].mean()) + float(ridge.mean()))
    theta, spread = np.zeros(gram.n_samples), np.zeros((gram.n_samples, right_hand_sides.shape[1]))
    theta[free], scaled = 1.0 / softened, right_hand_sides / softened[:, np.newaxis]
    spread[free] = scaled
    M = gram.normal_matrix(theta, precise=True)[:-1, :-1]
    M[np.diag_indices_from(M)] += 1.0
    answer = factorised(M).solve(gram.adjoint(spread))
    return np.asarray(scaled - gram.apply(answer)[free] / softened[:, np.newaxis])


@mean_diagonal.register
def _mean_diagonal_factored(gram: FactoredGram) -> float:
    return float(gram.diagonal().mean())
