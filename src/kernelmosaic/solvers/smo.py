"""Sequential minimal optimisation for the one dual program, with warm starts and a certified
gap."""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import AnyArray, Indices
from kernelmosaic.backend import one_blas_thread
from kernelmosaic.solvers.free_newton import block_form, newton_on_free
from kernelmosaic.solvers.program import Movable, Program, Solution, Vector, certify
from kernelmosaic.solvers.tuning import DEFAULTS, FLAT_CURVATURE, STRIP, SolverOptions


def solve_smo(
    K: AnyArray,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    options: SolverOptions = DEFAULTS,
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
        Most steps to take; by default `most_steps(n)`. Where they do not suffice, the gap of the
        answer is above `tol`.
    options : SolverOptions
        When larger steps are taken than those of pairs.

    Returns
    -------
    Solution
    """
    if K.shape != (program.n_samples,) * 2:
        raise ValueError(f"K has shape {K.shape}, the program {program.n_samples} samples.")
    # A look at the diagonal costs nothing; what hides elsewhere shows in the residual once it is
    # read.
    require_numbers(np.diagonal(K))
    readable = np.ascontiguousarray(
        K, dtype=K.dtype if K.dtype in (np.float32, np.float64) else np.float64
    )
    start = initial_point(program) if warm_start is None else program.feasible(warm_start)
    limit = most_steps(program.n_samples) if max_iter is None else max_iter
    return SMOState(readable, program, start, options).solve(tol, limit)


def most_steps(n_samples: int) -> int:
    """Return the steps after which a solve ends, converged or not: rounding keeps it from
    converging then."""
    # About five times what the hardest problems take that rounding does not hide.
    return max(50_000, 500 * n_samples)


def initial_point(program: Program) -> Vector:
    """Return a feasible β with few non-zeros: none, or the first samples filled to their bound
    until the sum is met."""
    program.require_feasible()
    total = program.total or 0.0
    bound = program.upper if total > 0 else -program.lower
    filled = np.concatenate([[0.0], np.cumsum(bound)[:-1]])
    return np.asarray(np.sign(total) * np.clip(abs(total) - filled, 0.0, bound))


def require_numbers(values: AnyArray | float) -> None:
    """Raise a ValueError if what was made of a kernel is not finite."""
    if not np.all(np.isfinite(values)):
        raise ValueError(
            "K holds NaN or infinity: check the kernels, their weights and penalties;"
            " normalize='trace' puts kernels on one scale, StandardScaler the columns that they"
            " read."
        )


class SMOState:
    """The state of one solve: β, the residual t − Kβ − ρβ, and the steepness aimed at."""

    def __init__(self, K: AnyArray, program: Program, beta: Vector, options: SolverOptions) -> None:
        self.K, self.program, self.options = K, program, options
        self.beta = np.ascontiguousarray(beta)
        self.n_iter = self.last_newton = 0
        self.is_few = program.n_samples <= options.few_samples
        self.newton_after = options.newton_after / 6 if self.is_few else options.newton_after
        self.allowance = float(options.flops_per_step)
        self.refresh()
        self.tolerance = np.inf
        self.violation = np.inf
        self.intercept = 0.0

    def solve(self, tol: float, limit: int) -> Solution:
        """Take steps until the certified gap is at most `tol`, they are used up, or rounding hides
        what is left."""
        n, looks, options = self.program.n_samples, 0, self.options
        steps = max(n // 2, 100) if self.is_few else max(n, 1000)
        gap, exhausted = self.gap(), False
        while True:
            if gap <= tol:
                solution = self.certified()
                if solution.gap <= tol:
                    return solution
                # The suggested intercept's gap rounds to less than the best one's, even to zero.
                gap = solution.gap
            if self.n_iter >= limit or exhausted:
                return self.certified()
            self.aim(gap, tol)
            compiled = not self.is_few or self.n_iter >= options.numpy_steps * n
            given = (
                self.K,
                self.program,
                self.beta,
                self.residual,
                self.tolerance,
                min(steps, limit - self.n_iter),
            )
            taken = maximise(*given, compiled=compiled)
            self.n_iter += taken
            gap = self.gap()
            # No step taken although the aim was not met: rounding hides whatever is left to gain.
            scale = max(1.0, float(np.abs(self.residual).max(initial=0.0)))
            exhausted = taken == 0 and (
                self.violation > self.tolerance or self.tolerance < 1e-15 * scale
            )
            looks += 1
            # A look at the gap takes as long as 100 steps of a few samples: after runs of a few
            # steps each, the steps are used up, too.
            if looks * 100 >= limit:
                self.n_iter = max(self.n_iter, limit)
            # The larger steps that pay when a run of pair steps was not enough.
            if gap > tol and self.n_iter > self.newton_after * n:
                gap = self.newton_step(gap)
            if (
                gap > tol
                and n >= options.min_compact_samples
                and len(active := self.active()) < options.compact_fraction * n
            ):
                self.aim(gap, tol)
                self.run_alone(active, min(int(options.newton_after * n), limit - self.n_iter))
                gap = self.gap()

    def refresh(self) -> None:
        """Recompute the residual from β: rounding gathers over many steps."""
        self.residual = self.program.target.copy()
        self._subtract(np.flatnonzero(self.beta), self.beta[self.beta != 0])
        self.refreshed_at = self.n_iter

    def _subtract(self, rows: Indices, changes: Vector) -> None:
        if len(self.K) <= self.options.few_samples:
            with np.errstate(
                invalid="ignore"
            ):  # infinity times zero: the residual is refused once it is read
                self.residual -= changes @ self.K[rows]
        else:
            from kernelmosaic.solvers._numba_smo import subtract_rows

            subtract_rows(self.K, rows, changes, self.residual)
        self.residual[rows] -= self.program.ridge[rows] * changes

    def gap(self) -> float:
        """The relative gap with the intercept the slopes suggest: an upper bound, cheaper than the
        best intercept."""
        require_numbers(self.residual)
        rising, falling = self.program.slopes(self.beta, self.residual)
        highest, lowest = float(rising.max()), float(falling.min())
        self.violation = self.program.violation(highest, lowest)
        if self.program.total is not None:
            if not (
                np.isfinite(highest) and np.isfinite(lowest)
            ):  # no coefficient may grow, or none may shrink
                return np.inf
            self.intercept = 0.5 * (highest + lowest)
        return self.worth(intercept=self.intercept).gap

    def worth(self, **intercept: float) -> Solution:
        """Return β with what it is worth, by Kβ read off the residual, at an intercept or at the
        best near one."""
        values = self.program.target - self.residual - self.program.ridge * self.beta
        noise = self.program.value_noise(self.beta, np.diagonal(self.K), self.K.dtype)
        return certify(self.program, self.beta, values, self.n_iter, noise, **intercept)

    def certified(self) -> Solution:
        """Return the solution with Kβ recomputed, and with its sum: every step has rounded both."""
        total, size = self.program.total, float(np.abs(self.beta).sum())
        if total is not None and abs(float(self.beta.sum()) - total) > 1e-14 * (abs(total) + size):
            self.beta = self.program.feasible(self.beta)
            self.refresh()
        if self.refreshed_at < self.n_iter:
            self.refresh()
        return self.worth(near=self.intercept)

    def aim(self, gap: float, tol: float) -> None:
        """Choose the steepness to reach next: the gap shrinks with it, so aim where the gap would
        be met."""
        if self.tolerance == np.inf:
            self.tolerance = 0.1 * self.violation
        elif self.violation <= self.tolerance:
            self.tolerance *= min(0.5, max(0.05, 0.7 * tol / gap)) if np.isfinite(gap) else 0.5
        else:
            return
        self.tolerance = max(self.tolerance, 1e-300)

    def newton_step(self, gap: float) -> float:
        """Take Newton steps on the free samples if they cost no more than the steps since the last
        ones.

        Every time more is allowed: the problem has proved to be a hard one.
        """
        free, since = self.program.free(self.beta), self.n_iter - self.last_newton
        # Of few samples they cost next to nothing.
        flops = np.inf if self.is_few else self.allowance * since * self.program.n_samples
        if (
            not since
            or not 2 <= len(free) <= self.options.max_newton_samples
            or len(free) ** 3 > flops
        ):
            return gap
        before = self.beta[free]
        slope = self.residual[free] - self.program.epsilon * np.sign(before)
        limits = self.program.sign_limits(free, before)
        # One thread: many small steps lose much where the cores are busy.
        with one_blas_thread():
            form = block_form(self.K[np.ix_(free, free)], self.program.ridge[free])
            new, _ = newton_on_free(
                form, before, slope, limits, self.program.total is not None, flops
            )
        self._place(free, new)
        self.last_newton = self.n_iter
        self.allowance *= 2
        return self.gap()

    def active(self) -> Indices:
        """Samples that are not pinned to a bound by a slope beyond all slopes still in play."""
        if self.program.total is None:
            return np.arange(self.program.n_samples)
        rising, falling = self.program.slopes(self.beta, self.residual)
        pinned = ((rising == -np.inf) & (falling > rising.max())) | (
            (falling == np.inf) & (rising < falling.min())
        )
        return np.flatnonzero(~pinned)

    def run_alone(self, active: Indices, max_steps: int) -> None:
        """Take steps of the active samples on a copy of their block, then bring all residuals up to
        date."""
        beta, residual = self.beta[active], self.residual[active]
        part = self.program.take(active, residual, self.program.total)
        K = self.K[np.ix_(active, active)]
        self.n_iter += maximise(K, part, beta, residual, self.tolerance, max_steps)
        self._place(active, beta)

    def _place(self, rows: Indices, beta: Vector) -> None:
        """Give coefficients their new values and bring all residuals up to date."""
        changes = beta - self.beta[rows]
        self.beta[rows] = beta
        self._subtract(rows[changes != 0], changes[changes != 0])


# Steps of one coefficient or two ------------------------------------------------------------------


def maximise(
    K: AnyArray,
    program: Program,
    beta: Vector,
    residual: Vector,
    tolerance: float,
    max_steps: int,
    compiled: bool = True,
) -> int:
    """Move pairs of coefficients, or single ones if their sum is free, until none rises steeper
    than the tolerance.

    beta and residual = t − Kβ − ρβ are updated in place; the program's target is not read. A pair
    is the steepest riser and the partner that promises the largest gain to second order. NumPy and
    compiled code move pairs by the same steps, to the last bit. Returns the steps taken.
    """
    rising, falling = program.slopes(beta, np.zeros(len(beta)))  # what shifts the residual
    diagonal, keys = np.diagonal(K) + program.ridge, np.empty(STRIP)
    box = program.ridge, program.lower, program.upper, float(program.epsilon)
    at = Movable(beta, residual, rising, falling, diagonal, *box, keys, keys.view(np.int64))
    if program.total is not None and not compiled:
        return maximise_pairs(K, at, tolerance, max_steps)
    from kernelmosaic.solvers import _numba_smo

    steps = _numba_smo.maximise_singles if program.total is None else _numba_smo.maximise_pairs
    return int(steps(K, at, tolerance, max_steps))


def maximise_pairs(K: AnyArray, at: Movable, tolerance: float, max_steps: int) -> int:
    """Take the steps of `maximise` for pairs and return how many.

    `_numba_smo.maximise_pairs` does the same in the same order, and rounds alike.
    """
    beta, residual, rising, falling, diagonal, ridge, lower, upper, epsilon, *_ = at
    K = np.asarray(K, dtype=np.float64)  # so that products round in double precision
    curvatures = np.add.outer(diagonal, diagonal) - 2.0 * K
    np.maximum(curvatures, FLAT_CURVATURE, out=curvatures)
    slopes, drops, keys = np.empty((3, len(beta)))
    # Numbers of lists are read and written in less time than those of arrays.
    b, rho, least, most = beta.tolist(), ridge.tolist(), lower.tolist(), upper.tolist()

    def place(k: int, new: float) -> float:
        change = new - b[k]
        b[k] = new
        residual[k] -= change * rho[k]
        rising[k] = -np.inf if new >= most[k] else (-epsilon if new >= 0.0 else epsilon)
        falling[k] = np.inf if new <= least[k] else (-epsilon if new > 0.0 else epsilon)
        return float(change)

    steps = max_steps
    with np.errstate(all="ignore"):  # the reader of the residual refuses what is no number
        for step in range(max_steps):
            np.add(residual, rising, out=slopes)
            i = int(slopes.argmax())
            steepest = float(slopes[i])
            np.add(residual, falling, out=slopes)
            np.subtract(steepest, slopes, out=drops)
            np.maximum(drops, 0.0, out=drops)
            np.multiply(drops, drops, out=keys)
            np.divide(keys, curvatures[i], out=keys)
            j = int(keys.argmax())
            if not keys[j] > 0.0 or drops[j] <= tolerance:
                # The best partner need not be the lowest one, and only the lowest one ends the
                # loop.
                j = int(slopes.argmin())
                if slopes[j] == np.inf or steepest - slopes[j] <= tolerance or i == j:
                    steps = step
                    break
            size = float((steepest - slopes[j]) / curvatures[i, j])
            # A coefficient stops where it changes sign: the slope jumps by 2ε there.
            end_i = 0.0 if epsilon > 0.0 and b[i] < 0.0 else most[i]
            end_j = 0.0 if epsilon > 0.0 and b[j] > 0.0 else least[j]
            room_i, room_j = end_i - b[i], b[j] - end_j
            size = min(size, room_i, room_j)
            # Ends are met exactly, or rounding would leave a coefficient just inside its bound.
            change_i = place(i, end_i if size >= room_i else b[i] + size)
            change_j = place(j, end_j if size >= room_j else b[j] - size)
            # A step too small for the coefficients' rounding would be chosen again for ever.
            if change_i == 0.0 and change_j == 0.0:
                steps = step
                break
            np.multiply(K[i], change_i, out=slopes)
            np.multiply(K[j], change_j, out=drops)
            np.add(slopes, drops, out=slopes)
            np.subtract(residual, slopes, out=residual)
    beta[:] = b
    return steps
