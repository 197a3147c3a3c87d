"""Sequential minimal optimisation for the one dual program, with warm starts and a certified gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, MatrixLike
from kernelmosaic.backend import TINY, one_blas_thread
from kernelmosaic.solvers.free_newton import block_form, newton_on_free
from kernelmosaic.solvers.pair_steps import maximise
from kernelmosaic.solvers.program import Program, Solution, Vector, certify, relative_gap


@dataclass(frozen=True)
class SMOOptions:
    """When a solve by pair steps takes larger ones.

    Attributes
    ----------
    compact_share : float
        The active samples are copied out and solved alone when they are fewer than this share of all ...
    compact_samples : int
        ... and the problem has at least this many samples, for the copy to pay.
    newton_after : float
        A Newton step on the free samples is tried once this many steps per sample have not been enough, ...
    newton_free : int
        ... while there are at most this many free samples to factorise ...
    flops_per_step : float
        ... and the factorisation's |F|³ is at most this multiple of steps × samples: it then takes no longer than they
        did.
    """

    compact_share: float = 0.5
    compact_samples: int = 2000
    newton_after: float = 3
    newton_free: int = 4000
    flops_per_step: float = 20


#: Most steps, in all and per sample: about five times what the hardest problems take that rounding does not hide.
_MOST_STEPS, _MOST_STEPS_PER_SAMPLE = 50_000, 500
#: Relative to the sizes summed: coefficients whose sum is further off its total are moved to meet it.
_SUM = 1e-14
#: A look at the gap takes as long as so many steps of a few samples.
_STEPS_PER_LOOK = 100


def solve_smo(
    K: AnyArray,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    options: SMOOptions | None = None,
) -> Solution:
    """Solve the dual program to a relative duality gap of `tol`.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Symmetric positive semi-definite matrix, float32 or float64; read row by row.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        Any β, feasible or not: the nearest feasible point is where the solve starts.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int, optional
        Most steps to take; by default `most_steps(n)`. Where they do not suffice, the gap of the answer is above `tol`.
    options : SMOOptions, optional
        When larger steps are taken than those of pairs.

    Returns
    -------
    Solution
    """
    start = initial_point(program) if warm_start is None else program.feasible(warm_start)
    limit = most_steps(program.n_samples) if max_iter is None else max_iter
    return SMOState(_readable(K, program), program, start, options or SMOOptions()).solve(tol, limit)


def most_steps(n_samples: int) -> int:
    """Return the steps after which a solve ends, converged or not: rounding keeps it from converging then."""
    return max(_MOST_STEPS, _MOST_STEPS_PER_SAMPLE * n_samples)


def initial_point(program: Program) -> Vector:
    """Return a feasible β with few non-zeros: none, or the first samples filled to their bound until the sum is met."""
    program.require_feasible()
    total = program.total or 0.0
    bound = program.upper if total > 0 else -program.lower
    filled = np.concatenate([[0.0], np.cumsum(bound)[:-1]])
    return np.asarray(np.sign(total) * np.clip(abs(total) - filled, 0.0, bound))


def _readable(K: AnyArray, program: Program) -> AnyArray:
    if K.shape != (program.n_samples,) * 2:
        raise ValueError(f"K has shape {K.shape}, the program {program.n_samples} samples.")
    # A look at the diagonal costs nothing; what hides elsewhere shows in the residual once it is read.
    _require_numbers(np.diagonal(K))
    return np.ascontiguousarray(K, dtype=K.dtype if K.dtype in (np.float32, np.float64) else np.float64)


def _require_numbers(values: AnyArray) -> None:
    if not np.all(np.isfinite(values)):
        raise ValueError(
            "K holds NaN or infinity: check the kernels, their weights and penalties; normalize='trace' puts "
            "kernels on one scale."
        )


class SMOState:
    """The state of one solve: β, the residual t − Kβ − ρβ, and the steepness aimed at."""

    def __init__(self, K: AnyArray, program: Program, beta: Vector, options: SMOOptions) -> None:
        self.K = K
        self.program = program
        self.beta = beta
        self.options = options
        self.n_iter = 0
        self.exhausted = False
        self.last_newton = 0
        self.allowance = float(options.flops_per_step)
        self.refresh()
        self.tolerance = np.inf
        self.violation = np.inf

    def solve(self, tol: float, limit: int) -> Solution:
        """Take steps until the certified gap is at most `tol`, they are used up, or rounding hides what is left."""
        steps, looks = max(self.program.n_samples, 1000), 0
        gap = self.gap()
        while True:
            if gap <= tol:
                solution = self.certified()
                if solution.gap <= tol:
                    return solution
                # The suggested intercept's gap rounds to less than the best one's, even to zero.
                gap = solution.gap
            if self.n_iter >= limit or self.exhausted:
                return self.certified()
            self.aim(gap, tol)
            self.run(min(steps, limit - self.n_iter))
            gap = self.gap()
            looks += 1
            if looks * _STEPS_PER_LOOK >= limit:  # runs of a few steps each: they are used up, too
                self.n_iter = max(self.n_iter, limit)
            if gap > tol:
                gap = self.advance(gap, tol, limit)

    def refresh(self) -> None:
        """Recompute the residual from β: rounding gathers over many steps."""
        self.residual = self.program.target.copy()
        self._subtract(np.flatnonzero(self.beta), self.beta[self.beta != 0])
        self.refreshed_at = self.n_iter

    def _subtract(self, rows: NDArray[np.intp], changes: Vector) -> None:
        if len(self.K) <= TINY:
            with np.errstate(invalid="ignore"):  # infinity times zero: the residual is refused once it is read
                self.residual -= changes @ self.K[rows]
        else:
            from kernelmosaic.solvers._numba_smo import subtract_rows

            subtract_rows(self.K, rows, changes, self.residual)
        self.residual[rows] -= self.program.ridge[rows] * changes

    def gap(self) -> float:
        """The relative gap with the intercept the slopes suggest: an upper bound, cheaper than the best intercept."""
        _require_numbers(self.residual)
        rising, falling = self.program.slopes(self.beta, self.residual)
        highest, lowest = float(rising.max()), float(falling.min())
        self.violation = self.program.violation(highest, lowest)
        values = self.values()
        quadratic = 0.5 * float(self.beta @ values)
        if self.program.total is None:
            intercept = 0.0
        elif np.isfinite(highest) and np.isfinite(lowest):
            intercept = 0.5 * (highest + lowest)
        else:  # no coefficient may grow, or none may shrink
            return np.inf
        dual = self.program.linear_value(self.beta) - quadratic
        return relative_gap(self.program.primal_value(quadratic, values, intercept), dual, self.noise())

    def values(self) -> Vector:
        """Kβ, read off the residual."""
        return self.program.target - self.residual - self.program.ridge * self.beta

    def certified(self) -> Solution:
        """Return the solution with Kβ recomputed, and with its sum: every step has rounded both."""
        total, size = self.program.total, float(np.abs(self.beta).sum())
        if total is not None and abs(float(self.beta.sum()) - total) > _SUM * (abs(total) + size):
            self.beta = self.program.feasible(self.beta)
            self.refresh()
        if self.refreshed_at < self.n_iter:
            self.refresh()
        return certify(self.program, self.beta, self.values(), self.n_iter, self.noise())

    def noise(self) -> float:
        return self.program.value_noise(self.beta, np.diagonal(self.K), self.K.dtype)

    def aim(self, gap: float, tol: float) -> None:
        """Choose the steepness to reach next: the gap shrinks with it, so aim where the gap would be met."""
        if self.tolerance == np.inf:
            self.tolerance = 0.1 * self.violation
        elif self.violation <= self.tolerance:
            self.tolerance *= min(0.5, max(0.05, 0.7 * tol / gap)) if np.isfinite(gap) else 0.5
        else:
            return
        self.tolerance = max(self.tolerance, 1e-300)

    def advance(self, gap: float, tol: float, limit: int) -> float:
        """Take the larger steps that pay when a run of pair steps was not enough, and return the gap they leave."""
        n, options = self.program.n_samples, self.options
        if self.n_iter > options.newton_after * n:
            gap = self.newton_step(gap)
        active = self.active()
        if gap > tol and n >= options.compact_samples and len(active) < options.compact_share * n:
            self.aim(gap, tol)
            self.run_alone(active, min(int(options.newton_after * n), limit - self.n_iter))
            gap = self.gap()
        return gap

    def newton_step(self, gap: float) -> float:
        """Take Newton steps on the free samples if they cost no more than the steps since the last ones.

        Every time more is allowed: the problem has proved to be a hard one.
        """
        free = self.program.free(self.beta)
        flops = self.allowance * (self.n_iter - self.last_newton) * self.program.n_samples
        if not 2 <= len(free) <= self.options.newton_free or len(free) ** 3 > flops:
            return gap
        before = self.beta[free]
        slope = self.residual[free] - self.program.epsilon * np.sign(before)
        limits = self.program.sign_limits(free, before)
        # One thread: many small steps lose much where the cores are busy.
        with one_blas_thread():
            form = block_form(self.K[np.ix_(free, free)], self.program.ridge[free])
            self.beta[free], _ = newton_on_free(form, before, slope, *limits, self.program.total is not None, flops)
        changes = self.beta[free] - before
        moved = changes != 0
        self._subtract(free[moved], changes[moved])
        self.last_newton = self.n_iter
        self.allowance *= 2
        return self.gap()

    def run(self, max_steps: int) -> None:
        steps = self._maximise(self.K, slice(None), self.residual, max_steps)
        # No step taken although the aim was not met: rounding hides whatever is left to gain.
        scale = max(1.0, float(np.abs(self.residual).max(initial=0.0)))
        self.exhausted = steps == 0 and (self.violation > self.tolerance or self.tolerance < 1e-15 * scale)

    def active(self) -> NDArray[np.intp]:
        """Samples that are not pinned to a bound by a slope beyond all slopes still in play."""
        if self.program.total is None:
            return np.arange(self.program.n_samples)
        rising, falling = self.program.slopes(self.beta, self.residual)
        pinned = ((rising == -np.inf) & (falling > rising.max())) | ((falling == np.inf) & (rising < falling.min()))
        return np.flatnonzero(~pinned)

    def run_alone(self, active: NDArray[np.intp], max_steps: int) -> None:
        """Take steps of the active samples on a copy of their block, then bring all residuals up to date."""
        before = self.beta[active].copy()
        residual = self.residual[active].copy()
        self._maximise(self.K[np.ix_(active, active)], active, residual, max_steps)
        changes = self.beta[active] - before
        moved = changes != 0
        self._subtract(active[moved], changes[moved])

    def _maximise(self, K: AnyArray, samples: MatrixLike, residual: Vector, max_steps: int) -> int:
        part = self.program.take(samples, residual, self.program.total)
        beta = np.ascontiguousarray(self.beta[samples])
        steps, self.violation = maximise(K, part, beta, residual, self.tolerance, max_steps)
        self.beta[samples] = beta
        self.n_iter += steps
        return steps
