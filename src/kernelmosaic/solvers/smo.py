"""Sequential minimal optimisation of the dual program, with a certified gap.

A step moves two coefficients, or one if their sum is free, to the best point within their bounds.
Where many such steps are needed, Newton steps move all free coefficients, and samples that stay at
their bounds are left out for a while.
"""

from __future__ import annotations

import numpy as np

from kernelmosaic._typing import AnyArray, Indices
from kernelmosaic.backend import one_blas_thread
from kernelmosaic.solvers.free_newton import block_form, newton_on_free
from kernelmosaic.solvers.program import Movable, Program, Solution, Vector, certify
from kernelmosaic.solvers.tuning import (
    ASSESSMENT_STEPS,
    DEFAULTS,
    FEW_SAMPLES_NEWTON_FACTOR,
    FIRST_TARGET_FRACTION,
    FLAT_CURVATURE,
    LARGEST_TARGET_FACTOR,
    LEAST_RUN_OF_FEW,
    LEAST_RUN_OF_MANY,
    LEAST_TARGET,
    MAX_STEPS_PER_SAMPLE,
    MOST_STEPS_OF_FEW,
    NEWTON_ALLOWANCE_GROWTH,
    PAIR_SUM_ROUNDING,
    REACHED_ROUNDING,
    SMALLEST_TARGET_FACTOR,
    STRIP,
    TARGET_SAFETY,
    SolverOptions,
)


def solve_smo(
    K: AnyArray,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Return the solution of the dual program to a relative duality gap of `tol`.

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
    """
    if K.shape != (program.n_samples,) * 2:
        raise ValueError(f"K has shape {K.shape}, the program {program.n_samples} samples.")
    # The diagonal is checked first, at no cost. NaN elsewhere is found in the residual.
    require_numbers(np.diagonal(K))
    dtype = K.dtype if K.dtype in (np.float32, np.float64) else np.float64
    readable = np.ascontiguousarray(K, dtype=dtype)
    start = initial_point(program) if warm_start is None else program.feasible(warm_start)
    limit = most_steps(program.n_samples) if max_iter is None else max_iter
    return SMOState(readable, program, start, options).solve(tol, limit)


def most_steps(n_samples: int) -> int:
    """Return the number of steps after which a solve ends, converged or not.

    It is about five times what the hardest problems take that converge. Where it does not suffice,
    rounding prevents convergence.
    """
    return max(MOST_STEPS_OF_FEW, MAX_STEPS_PER_SAMPLE * n_samples)


def initial_point(program: Program) -> Vector:
    """Return a feasible β with few non-zero coefficients.

    The first samples are at the bound on the side of the total, until their sum is the total. All
    are zero if the total is zero or the sum is free.
    """
    program.require_feasible()
    total = program.total or 0.0
    bound = program.upper if total > 0 else -program.lower
    sums_before = np.concatenate([[0.0], np.cumsum(bound)[:-1]])
    return np.asarray(np.sign(total) * np.clip(abs(total) - sums_before, 0.0, bound))


def require_numbers(values: AnyArray | float) -> None:
    """Raise a ValueError that blames the kernel unless all values are finite."""
    if not np.all(np.isfinite(values)):
        raise ValueError(
            "K holds NaN or infinity: check the kernels, their weights and penalties;"
            " normalize='trace' puts kernels on one scale, StandardScaler the columns that they"
            " read."
        )


class SMOState:
    """The state of one solve.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        C-contiguous, float32 or float64.
    program : Program
    beta : ndarray of shape (n,)
        Feasible coefficients from which to start.
    options : SolverOptions

    Attributes
    ----------
    beta, residual : ndarray of shape (n,)
        The coefficients, and t − Kβ − ρβ.
    violation : float
        The largest violation of optimality when the gap was last computed.
    tolerance : float
        The violation at which the current run of steps ends; infinite before the first run.
    intercept : float
        The middle between the steepest rise and the steepest fall of the objective.
    n_iter, last_newton, refreshed_at : int
        Steps taken so far, at the last Newton steps, and when the residual was last computed anew.
    allowance : float
        Flops per sample and step that Newton steps may cost.
    """

    def __init__(self, K: AnyArray, program: Program, beta: Vector, options: SolverOptions) -> None:
        self.K = K
        self.program = program
        self.options = options
        self.beta = np.ascontiguousarray(beta)
        self.n_iter = 0
        self.last_newton = 0
        self.is_few = program.n_samples <= options.few_samples
        self.newton_after = options.newton_after
        if self.is_few:
            self.newton_after = options.newton_after / FEW_SAMPLES_NEWTON_FACTOR
        self.allowance = float(options.flops_per_step)
        self.refresh()
        self.tolerance = np.inf
        self.violation = np.inf
        self.intercept = 0.0

    def solve(self, tol: float, limit: int) -> Solution:
        """Return the certified solution after steps to a gap of `tol`.

        It is returned earlier once `limit` steps were taken or rounding prevents progress.
        """
        n = self.program.n_samples
        options = self.options
        run_length = max(n // 2, LEAST_RUN_OF_FEW) if self.is_few else max(n, LEAST_RUN_OF_MANY)
        n_runs = 0
        is_stuck = False
        gap = self.gap()
        while True:
            # 1. Stop with a certificate.
            if gap <= tol:
                solution = self.certified()
                if solution.gap <= tol:
                    return solution
                # The gap at the middle of the steepest slopes may round to less than that at the
                # best intercept, even to zero.
                gap = solution.gap
            if self.n_iter >= limit or is_stuck:
                return self.certified()

            # 2. A run of steps.
            self.aim(gap, tol)
            steps = maximise(
                self.K,
                self.program,
                self.beta,
                self.residual,
                self.tolerance,
                min(run_length, limit - self.n_iter),
                compiled=not self.is_few or self.n_iter >= options.numpy_steps * n,
            )
            self.n_iter += steps
            gap = self.gap()
            # No step was possible although the violation is above its target, or the target is
            # below the rounding of the residual: rounding prevents progress.
            scale = max(1.0, float(np.abs(self.residual).max(initial=0.0)))
            is_stuck = steps == 0 and (
                self.violation > self.tolerance or self.tolerance < REACHED_ROUNDING * scale
            )
            # Computing the gap takes as long as so many steps of few samples: runs that end after a
            # few steps count as well.
            n_runs += 1
            if n_runs * ASSESSMENT_STEPS >= limit:
                self.n_iter = max(self.n_iter, limit)

            # 3. Larger steps, if pair steps have not been enough.
            if gap > tol and self.n_iter > self.newton_after * n:
                gap = self.newton_step(gap)
            if gap > tol and n >= options.min_compact_samples:
                active = self.active()
                if len(active) < options.compact_fraction * n:
                    self.aim(gap, tol)
                    max_steps = min(int(options.newton_after * n), limit - self.n_iter)
                    self.run_alone(active, max_steps)
                    gap = self.gap()

    def refresh(self) -> None:
        """Compute the residual from β anew: steps have accumulated rounding."""
        self.residual = self.program.target.copy()
        self._subtract(np.flatnonzero(self.beta), self.beta[self.beta != 0])
        self.refreshed_at = self.n_iter

    def _subtract(self, rows: Indices, changes: Vector) -> None:
        """Subtract (K + diag ρ) · changes from the residual, the changes of some coefficients."""
        if len(self.K) <= self.options.few_samples:
            # Infinity times zero is NaN, which `require_numbers` refuses later.
            with np.errstate(invalid="ignore"):
                self.residual -= changes @ self.K[rows]
        else:
            from kernelmosaic.solvers._numba_smo import subtract_rows

            subtract_rows(self.K, rows, changes, self.residual)
        self.residual[rows] -= self.program.ridge[rows] * changes

    def gap(self) -> float:
        """Return an upper bound of the relative gap, and set `violation` and `intercept`.

        It is the gap at the intercept in the middle of the steepest rise and fall, which takes less
        time than the best intercept.
        """
        require_numbers(self.residual)
        rising, falling = self.program.slopes(self.beta, self.residual)
        highest = float(rising.max())
        lowest = float(falling.min())
        self.violation = self.program.violation(highest, lowest)
        if self.program.total is not None:
            # No coefficient may grow, or none may shrink.
            if not (np.isfinite(highest) and np.isfinite(lowest)):
                return np.inf
            self.intercept = 0.5 * (highest + lowest)
        return self.solution(intercept=self.intercept).gap

    def solution(self, **intercept: float) -> Solution:
        """Return the solution of the current β, with Kβ = t − residual − ρβ.

        The keyword is `intercept`, at which the gap is taken, or `near`, from which the best one is
        searched; see `certify`.
        """
        values = self.program.target - self.residual - self.program.ridge * self.beta
        noise = self.program.value_noise(self.beta, np.diagonal(self.K), self.K.dtype)
        return certify(self.program, self.beta, values, self.n_iter, noise, **intercept)

    def certified(self) -> Solution:
        """Return the solution with Kβ computed anew, and with the exact sum of β.

        Every step has rounded both.
        """
        total = self.program.total
        size = float(np.abs(self.beta).sum())
        if total is not None:
            error = abs(float(self.beta.sum()) - total)
            if error > PAIR_SUM_ROUNDING * (abs(total) + size):
                self.beta = self.program.feasible(self.beta)
                self.refresh()
        if self.refreshed_at < self.n_iter:
            self.refresh()
        return self.solution(near=self.intercept)

    def aim(self, gap: float, tol: float) -> None:
        """Set `tolerance`, the violation at which the next run ends.

        The gap is about proportional to the violation. Where the last target was met, the next one
        is that at which the gap would be `tol`, within limits.
        """
        if self.tolerance == np.inf:
            self.tolerance = FIRST_TARGET_FRACTION * self.violation
        elif self.violation <= self.tolerance:
            factor = LARGEST_TARGET_FACTOR
            if np.isfinite(gap):
                factor = min(factor, max(SMALLEST_TARGET_FACTOR, TARGET_SAFETY * tol / gap))
            self.tolerance *= factor
        else:
            return
        self.tolerance = max(self.tolerance, LEAST_TARGET)

    def newton_step(self, gap: float) -> float:
        """Take Newton steps on the free samples if they are affordable, and return the gap.

        They may cost as many flops as `allowance` times the steps since the last ones; each time
        the allowance grows, since the problem has proved to be hard. The gap is the given one if no
        step is taken.
        """
        free = self.program.free(self.beta)
        steps_since = self.n_iter - self.last_newton
        # Newton steps of few samples cost next to nothing.
        flops = np.inf
        if not self.is_few:
            flops = self.allowance * steps_since * self.program.n_samples
        has_size = 2 <= len(free) <= self.options.max_newton_samples
        if not steps_since or not has_size or len(free) ** 3 > flops:
            return gap
        beta = self.beta[free]
        gradient = self.residual[free] - self.program.epsilon * np.sign(beta)
        limits = self.program.sign_limits(free, beta)
        keeps_sum = self.program.total is not None
        # One thread: many small steps lose much where the cores are busy.
        with one_blas_thread():
            form = block_form(self.K[np.ix_(free, free)], self.program.ridge[free])
            new, _ = newton_on_free(form, beta, gradient, limits, keeps_sum, flops)
        self._place(free, new)
        self.last_newton = self.n_iter
        self.allowance *= NEWTON_ALLOWANCE_GROWTH
        return self.gap()

    def active(self) -> Indices:
        """Return the numbers of the samples that may still move.

        All others are at a bound, and their derivative is beyond those of all samples that could
        move with them.
        """
        if self.program.total is None:
            return np.arange(self.program.n_samples)
        rising, falling = self.program.slopes(self.beta, self.residual)
        stays_at_upper = (rising == -np.inf) & (falling > rising.max())
        stays_at_lower = (falling == np.inf) & (rising < falling.min())
        return np.flatnonzero(~(stays_at_upper | stays_at_lower))

    def run_alone(self, active: Indices, max_steps: int) -> None:
        """Take steps of the active samples on a copy of their block, then update all residuals."""
        beta = self.beta[active]
        residual = self.residual[active]
        program = self.program.take(active, residual, self.program.total)
        K = self.K[np.ix_(active, active)]
        self.n_iter += maximise(K, program, beta, residual, self.tolerance, max_steps)
        self._place(active, beta)

    def _place(self, rows: Indices, beta: Vector) -> None:
        """Set some coefficients and update all residuals."""
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
    """Take steps of two coefficients, or of one if the sum is free, and return their number.

    Steps end once the violation of optimality is at most the tolerance. A pair is the sample whose
    coefficient rises most steeply, and the partner with which it gains most to second order. NumPy
    and compiled code take the same steps of pairs, to the last bit.

    Parameters
    ----------
    K : ndarray of shape (n, n)
    program : Program
        Its target is not read.
    beta, residual : ndarray of shape (n,)
        The coefficients, and t − Kβ − ρβ; both are changed in place.
    tolerance : float
        As in `Program.violation`.
    max_steps : int
    compiled : bool
        Whether to load compiled code for pairs; single coefficients always use it.
    """
    # What is added to a residual of zero are the shifts that `Movable` needs.
    rising, falling = program.slopes(beta, np.zeros(len(beta)))
    keys = np.empty(STRIP)
    movable = Movable(
        beta=beta,
        residual=residual,
        rising=rising,
        falling=falling,
        diagonal=np.diagonal(K) + program.ridge,
        ridge=program.ridge,
        lower=program.lower,
        upper=program.upper,
        epsilon=float(program.epsilon),
        keys=keys,
        bits=keys.view(np.int64),
    )
    if program.total is not None and not compiled:
        return maximise_pairs(K, movable, tolerance, max_steps)
    from kernelmosaic.solvers import _numba_smo

    if program.total is None:
        return int(_numba_smo.maximise_singles(K, movable, tolerance, max_steps))
    return int(_numba_smo.maximise_pairs(K, movable, tolerance, max_steps))


def maximise_pairs(K: AnyArray, movable: Movable, tolerance: float, max_steps: int) -> int:
    """Take the steps of `maximise` for pairs, in NumPy, and return their number.

    `_numba_smo.maximise_pairs` does the same in the same order, and rounds alike.
    """
    beta, residual, rising, falling, diagonal, ridge, lower, upper, epsilon, *_ = movable
    K = np.asarray(K, dtype=np.float64)  # so that products round in double precision
    curvatures = np.add.outer(diagonal, diagonal) - 2.0 * K
    np.maximum(curvatures, FLAT_CURVATURE, out=curvatures)
    slopes, drops, keys = np.empty((3, len(beta)))
    # Numbers of lists are read and written in less time than those of arrays.
    b = beta.tolist()
    rho = ridge.tolist()
    lows = lower.tolist()
    highs = upper.tolist()

    def place(k: int, new: float) -> float:
        """Set one coefficient and return its change.

        Its shifts, and the part of its residual that is due to the ridge, are updated.
        """
        change = new - b[k]
        b[k] = new
        residual[k] -= change * rho[k]
        if new >= highs[k]:
            rising[k] = -np.inf
        else:
            rising[k] = -epsilon if new >= 0.0 else epsilon
        if new <= lows[k]:
            falling[k] = np.inf
        else:
            falling[k] = -epsilon if new > 0.0 else epsilon
        return float(change)

    steps = max_steps
    # NaN is refused by whoever reads the residual.
    with np.errstate(all="ignore"):
        for step in range(max_steps):
            # 1. The steepest rise i, and the partner j with the largest gain drop²/curvature.
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
                # The best partner need not be the one with the steepest fall, which alone decides
                # whether the violation is within the tolerance.
                j = int(slopes.argmin())
                if slopes[j] == np.inf or steepest - slopes[j] <= tolerance or i == j:
                    steps = step
                    break

            # 2. The size of the step. A coefficient stops where it changes its sign, since the
            #    derivative jumps by 2ε there.
            size = float((steepest - slopes[j]) / curvatures[i, j])
            end_i = 0.0 if epsilon > 0.0 and b[i] < 0.0 else highs[i]
            end_j = 0.0 if epsilon > 0.0 and b[j] > 0.0 else lows[j]
            room_i = end_i - b[i]
            room_j = b[j] - end_j
            size = min(size, room_i, room_j)

            # 3. Move both. Ends are met exactly, or rounding would leave a coefficient just inside
            #    its bound.
            new_i = end_i if size >= room_i else b[i] + size
            new_j = end_j if size >= room_j else b[j] - size
            change_i = place(i, new_i)
            change_j = place(j, new_j)
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
