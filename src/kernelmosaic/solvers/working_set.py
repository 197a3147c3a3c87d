"""Working sets: the solver of kernels that are too large, or not stored, to be read whole.

A round chooses some samples, takes their block of the kernel, solves their problem while all other
coefficients stay, and updates all outputs by one product; Newton steps move all free coefficients
at once. The certificate is that of the solvers that read the whole matrix, with Kβ as exact as the
kernel computes it.

`WorkingSet` is the loop. `SingleOutput` is the driver for machines with one output; its policy,
`MostViolating` or `FreeThenViolating`, chooses the samples of a round and solves their problem. The
driver for several classes is `multiclass.MultiOutput`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from kernelmosaic._typing import ArrayOrTensor, Indices, RowIndex
from kernelmosaic.backend import NUMPY
from kernelmosaic.gram.factored import DenseFactors
from kernelmosaic.gram.gram import ClassGram, DenseGram, Gram
from kernelmosaic.gram.options import BlockOptions
from kernelmosaic.solvers.free_newton import GramForm, newton_on_free
from kernelmosaic.solvers.program import Program, Solution, Vector, assess, certify, relative_gap
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.smo import initial_point, maximise, require_numbers, solve_smo
from kernelmosaic.solvers.tuning import (
    CG_FIRST_GOAL,
    CG_GOAL_FACTOR,
    CG_STEPS,
    DEFAULTS,
    EARLY_ROUND_GAP,
    FACTORED_EARLY_ROUND_GAP,
    INTERCEPT_CANDIDATES,
    LEAST_ROUND_FACTOR,
    LOST_RESIDUAL,
    LOW_RANK_START_GAP,
    MAX_CG_SOLVES,
    MAX_ROUND_STEPS,
    MAX_ROUND_STEPS_OF_FEW,
    NEWTON_BUDGET,
    NEWTON_CUT_BACKS,
    NEWTON_LEAST_GAIN,
    NEWTON_WAIT_ON_HOST,
    ROUND_FACTOR_STEP,
    ROUND_GAP,
    SAMPLES_PER_FREE_SAMPLE,
    SLOW_ROUND_GAP_RATIO,
    UNEXPLAINED_DIAGONAL,
    RoundOptions,
    SolverOptions,
)


@dataclass(frozen=True)
class Evaluation:
    """The quality of the current β of one output, and where it may move.

    Attributes
    ----------
    violation : float
        The largest violation of optimality, `Program.violation`.
    objective : float
        The dual value.
    gap : float
        The relative duality gap, at about the best intercept.
    rising, falling : array of shape (n,)
        The derivatives of the objective as each β grows, and as it shrinks; infinite where the box
        forbids it.
    """

    violation: float
    objective: float
    gap: float
    rising: ArrayOrTensor
    falling: ArrayOrTensor


#: What a driver knows of its current β.
State = TypeVar("State", Evaluation, Solution)


class WorkingSet(ABC, Generic[State]):
    """The loop of one solve. Subclasses hold β and the outputs Kβ, where the kernel is.

    Parameters
    ----------
    gram : ClassGram
        The kernel.
    program : Program or MulticlassProgram
        The problem without its kernel.
    rounds : RoundOptions
        How rounds are taken.
    """

    def __init__(self, gram: ClassGram, program: Any, rounds: RoundOptions) -> None:
        self.gram = gram
        self.program = program
        self.rounds = rounds
        self.n_iter = 0
        self.n_rounds = 0

    @abstractmethod
    def evaluate(self) -> State:
        """Return the values and the gap of the current β."""

    @abstractmethod
    def advance(self, current: State, tol: float, idle: bool) -> State | None:
        """Take a round, with Newton steps if they are due.

        Parameters
        ----------
        current : Evaluation or Solution
            `evaluate()` of the current β.
        tol : float
            The gap at which rounds stop.
        idle : bool
            Whether the last round made no progress.

        Returns
        -------
        Evaluation, Solution or None
            `evaluate()` of the new β; None if no coefficient moved.
        """

    @abstractmethod
    def certified(self) -> Solution:
        """Return the solution with a certificate.

        Its outputs are as exact as the kernel computes them, and replace those of the rounds.
        """

    @abstractmethod
    def continues(self, current: State, solution: Solution, tol: float) -> bool:
        """Prepare more rounds after a certificate, and return whether they can help.

        The gap of the certificate was above the tolerance.

        Parameters
        ----------
        current : Evaluation or Solution
            `evaluate()` before the certificate.
        solution : Solution
            The certified solution.
        tol : float
            The gap at which rounds stop.
        """

    # Infinity times zero is no number, which `require_numbers` refuses.
    @np.errstate(invalid="ignore")
    def solve(self, tol: float, exhausted: Callable[[], bool] = lambda: False) -> Solution:
        """Return the best certified solution after rounds to a gap of `tol`.

        The rounds end earlier once `exhausted()` is true, or rounding prevents progress.
        """
        rounds = self.rounds
        goal = rounds.tol_fraction * tol
        best: Solution | None = None
        n_certificates = 0
        n_idle = 0
        highest = -np.inf
        smallest_gap = np.inf
        current = self.evaluate()
        while True:
            require_numbers(current.objective)

            # 1. Count rounds without progress in the value or in the gap.
            has_progress = (
                current.objective > highest + rounds.least_rise * abs(highest)
                or current.gap < rounds.least_gap_ratio * smallest_gap
            )
            highest = max(highest, current.objective)
            if has_progress:
                smallest_gap = min(smallest_gap, current.gap)
                n_idle = 0
            else:
                n_idle += 1

            # 2. Take a round while the gap is too large.
            if current.gap > goal and not exhausted() and n_idle < rounds.max_idle_rounds:
                after_round = self.advance(current, goal, n_idle > 0)
                if after_round is not None:
                    current = after_round
                    continue

            # 3. Certify the solution; start again from its exact outputs if that can help.
            solution = self.certified()
            if best is None or solution.gap < best.gap:
                best = solution
            n_certificates += 1
            if best.gap <= tol or exhausted() or n_certificates >= rounds.max_certificates:
                return best
            if not self.continues(current, solution, goal):
                return best
            current = self.evaluate()
            n_idle = 0
            highest = -np.inf
            smallest_gap = np.inf


# One output ---------------------------------------------------------------------------------------


def solve_working_set(
    gram: Gram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    *,
    max_rounds: int = 10_000,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Return the solution of the dual program for a stored kernel, in rounds of pair steps.

    Parameters
    ----------
    gram : Gram
        Symmetric positive semi-definite; it stays on its device.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        Any β, feasible or not.
    tol : float
        The relative duality gap at which to stop.
    max_rounds : int
        Most rounds. Where they do not suffice, the gap of the answer is above `tol`.
    options : SolverOptions
        How rounds are taken.
    """
    if gram.n_samples != program.n_samples:
        raise ValueError(f"K has {gram.n_samples} samples, the program {program.n_samples}.")
    beta = initial_point(program) if warm_start is None else program.feasible(warm_start)
    driver = SingleOutput(gram, program, beta, MostViolating(options.rounds))
    return driver.solve(tol, lambda: driver.n_rounds >= max_rounds)


def solve_on_demand(
    gram: Gram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Return the solution of the dual program for a kernel that is not stored.

    Rounds are as large as memory allows, each solved to the end by the solver of stored matrices.
    The certificate takes one more pass, in double precision. A program without bounds and tube is a
    linear system, which conjugate gradients solve if products with the kernel are cheap.

    Parameters are those of `solve_working_set`.
    """
    has_bounds = np.isfinite(program.lower).any() or np.isfinite(program.upper).any()
    is_linear_system = not (program.epsilon or has_bounds)
    if is_linear_system and gram.has_cheap_products:
        start = np.zeros(program.n_samples) if warm_start is None else warm_start
        return _solve_by_products(gram, program, program.feasible(start), tol)
    if warm_start is None:
        beta = _first_point(gram, program, options)
    else:
        beta = program.feasible(warm_start)
    return SingleOutput(gram, program, beta, FreeThenViolating(gram, options)).solve(tol)


def _solve_by_products(gram: Gram, program: Program, beta: Vector, tol: float) -> Solution:
    """Return the solution of (K + diag ρ) β = t − b, Σβ = total, by conjugate gradients.

    Each solve corrects the residual of the previous one to more digits, until the gap is at most
    `tol` or no longer falls.
    """
    best = assess(gram, program, beta)
    goal = CG_FIRST_GOAL * np.sqrt(tol)
    has_sum = program.total is not None
    for n_solves in range(1, MAX_CG_SOLVES + 1):
        if best.gap <= tol:
            break
        residual = program.target - best.values - program.ridge * best.beta
        options = BlockOptions(cg_steps=CG_STEPS, cg_tol=goal)
        change = gram.solve_by_products(program.ridge, residual[:, np.newaxis], options, has_sum)
        candidate = assess(gram, program, program.feasible(best.beta + change[:, 0]), n_solves)
        if not candidate.gap < best.gap:
            break
        best = candidate
        goal = CG_GOAL_FACTOR * goal
    return best


def _first_point(gram: Gram, program: Program, options: SolverOptions) -> Vector:
    """Return a feasible β from which the rounds start.

    Where a round holds few of the samples, it is about the solution for K ≈ ZZᵀ + diag e, with the
    low-rank factors Z of the kernel and the e that give the diagonal of K. Else, and where the
    kernel has no such factors, it is `initial_point`.
    """
    is_large = program.n_samples > options.low_rank_start_ratio * gram.block_samples
    if not (is_large and program.has_losses and program.target.any()):
        return initial_point(program)
    Z = gram.low_rank()
    if Z is None:
        return initial_point(program)
    # Without e, the factors would leave narrow kernels out, and the value of the start would be
    # below zero, the value of β = 0.
    factors = DenseFactors(Z)
    diagonal = gram.diagonal()
    e = np.maximum(diagonal - factors.squared_norms(), UNEXPLAINED_DIAGONAL * diagonal)
    approximated = replace(program, ridge=program.ridge + e)
    start = approximated.feasible(np.zeros(program.n_samples))
    return program.feasible(
        ProximalNewton(factors, approximated, start).solve(LOW_RANK_START_GAP).beta
    )


class SingleOutput(WorkingSet[Evaluation]):
    """Rounds of the program with one output.

    β and its residual t − Kβ − ρβ are kept where the kernel is.

    Parameters
    ----------
    gram : Gram
        The kernel.
    program : Program
        The rest of the problem, on the host.
    beta : ndarray of shape (n,)
        Feasible coefficients from which to start.
    policy : MostViolating or FreeThenViolating
        `policy.rows` returns the samples of a round. `policy.solve` returns better coefficients of
        these samples, the steps taken, and the samples' kernel if it has been computed.
        `policy.continues` returns whether more rounds can help after a certificate above the
        tolerance. While `policy.crowded` is set rounds do not hold all free samples, and Newton
        steps on these are tried, after `policy.wait` rounds.
    values : ndarray of shape (n,), optional
        Kβ, if it is known.
    n_iter : int
        Steps already taken, to which those of the rounds are added.
    """

    gram: Gram
    program: Program

    def __init__(
        self,
        gram: Gram,
        program: Program,
        beta: Vector,
        policy: MostViolating | FreeThenViolating,
        values: Vector | None = None,
        n_iter: int = 0,
    ) -> None:
        super().__init__(gram, program, policy.rounds)
        self.policy = policy
        self.n_iter = n_iter
        self.backend = gram.backend
        self.placed = program.placed(self.backend)
        self.beta = self.backend.asarray(np.array(beta))
        # `Program.value_noise` reads the diagonal only where t = 0.
        self.diagonal = None
        if not program.target.any():
            self.diagonal = self.backend.asarray(gram.diagonal())
        self.newton_wait = policy.wait
        self.rounds_since_newton = 0
        if values is not None:
            outputs = values
        elif np.any(beta):
            outputs = gram.products(self.beta)
        else:
            outputs = self.backend.zeros((program.n_samples,))
        self._set_values(self.backend.asarray(outputs))

    def _set_values(self, values: ArrayOrTensor) -> None:
        """Set the residual from values = Kβ."""
        self.residual = self.placed.target - values - self.placed.ridge * self.beta
        self.largest_residual = float(abs(self.residual).max())

    @property
    def values(self) -> ArrayOrTensor:
        """Kβ = t − residual − ρβ."""
        return self.placed.target - self.residual - self.placed.ridge * self.beta

    def evaluate(self) -> Evaluation:
        program = self.placed
        beta = self.beta
        rising, falling = program.slopes(beta, self.residual)
        values = self.values
        quadratic = 0.5 * (beta @ values)
        top = rising.max()
        bottom = falling.min()
        if program.has_losses:
            intercept = self._intercept(bottom, top)
            primal = quadratic + program.losses(values, intercept)
        else:
            intercept = 0.5 * (top + bottom)
            primal = quadratic
        # One transfer to the host.
        dual = program.linear_value(beta) - quadratic
        numbers = self.backend.xp.stack([top, bottom, dual, primal, intercept]).tolist()
        highest, lowest, dual_value, primal_value, b = numbers
        if not program.has_losses:
            host_values = self.backend.to_numpy(values)
            primal_value = self.program.primal_value(primal_value, host_values, b)
        violation = program.violation(highest, lowest)
        gap = relative_gap(primal_value, dual_value, self._noise())
        return Evaluation(violation, dual_value, gap, rising, falling)

    def _intercept(
        self,
        bottom: ArrayOrTensor,
        top: ArrayOrTensor,
        n_candidates: int = INTERCEPT_CANDIDATES,
    ) -> ArrayOrTensor:
        """Return about the intercept with the smallest losses, a number where the kernel is.

        On the host it is exact. On a device, where one pass over many candidates takes less time
        than several passes over one, it is the middle of the two candidates between which the sum
        of the conjugate's u crosses the total.

        Parameters
        ----------
        bottom, top : number
            The smallest entry of `falling` and the largest of `rising`. At intercepts above the
            larger of them all u are at most β, below the smaller at least, so that the best
            intercept is between the two.
        n_candidates : int
            Intercepts that are tried on a device.
        """
        total = self.program.total
        if total is None:
            return self.backend.asarray(0.0)
        if self.backend is NUMPY:
            return self.backend.asarray(
                self.program.best_intercept(self.backend.to_numpy(self.values))
            )
        z = self.residual + self.placed.ridge * self.beta
        low, high = self.backend.xp.stack([bottom, top]).sort().values
        candidates = low + self.backend.asarray(np.linspace(0.0, 1.0, n_candidates)) * (high - low)
        # The sum falls as the intercept grows: the number of sums above the total is the index of
        # the first candidate whose sum is not.
        n_above = (self.placed.conjugate_argmax(z - candidates[:, None]).sum(1) > total).sum()
        ends = self.backend.xp.stack([n_above - 1, n_above]).clip(0, n_candidates - 1)
        # Picked on the device: a number as an index would have to come to the host first.
        return candidates[ends].mean()

    def _noise(self) -> float:
        """Return the size that rounding may give to a dual value of zero."""
        if self.diagonal is None:
            return 0.0
        return self.placed.value_noise(self.beta, self.diagonal, self.gram.dtype)

    def certified(self) -> Solution:
        # Rounds keep the sum of the coefficients only up to their own rounding.
        beta = self.program.feasible(np.array(self.backend.to_numpy(self.beta)))
        values = self.gram.products(beta, exact=True)
        self.beta = self.backend.asarray(beta)
        placed_values = self.backend.asarray(values)
        self._set_values(placed_values)
        if not self.program.has_losses:
            return certify(self.program, beta, values, self.n_iter, self._noise())
        return certify(self.placed, self.beta, placed_values, self.n_iter, self._noise())

    def continues(self, current: Evaluation, solution: Solution, tol: float) -> bool:
        return self.policy.continues(current, solution, tol)

    def advance(self, current: Evaluation, tol: float, idle: bool) -> Evaluation | None:
        steps = self.round(current, tol)
        after_round = self.evaluate()
        needs_no_newton = (
            self.rounds_since_newton < self.newton_wait
            or after_round.gap <= tol
            or not self.policy.crowded
        )
        if steps and needs_no_newton:
            self.rounds_since_newton += 1
            return after_round
        if not (self.policy.crowded and self.newton_step()):
            return after_round if steps else None
        after_newton = self.evaluate()
        # Newton steps that gain less than the round before them come again after more rounds.
        newton_gain = after_newton.objective - after_round.objective
        if newton_gain < after_round.objective - current.objective:
            self.newton_wait = min(2 * self.newton_wait + 1, self.rounds.max_newton_wait)
        else:
            self.newton_wait = 0
        self.rounds_since_newton = 0
        return after_newton

    def round(self, current: Evaluation, tol: float) -> int:
        """Solve the program of some samples, and return the steps taken.

        All other coefficients stay. Zero steps mean that the policy chose no samples, or took no
        step on those it chose. It reads `current` and `tol` to choose samples and to stop.
        """
        rows = self.policy.rows(self, current)
        if len(rows) == 0:
            return 0
        beta, steps, block = self.policy.solve(self, rows, current, tol)
        self._place(rows, self.backend.asarray(beta), block)
        self.n_iter += steps
        self.n_rounds += 1
        return steps

    def newton_step(self) -> int:
        """Take a few Newton steps on the free samples, and return their number.

        It is zero if no coefficient moved.
        """
        program = self.placed
        free = program.free(self.beta)
        if not 2 <= len(free) <= self.rounds.max_newton_samples:
            return 0
        beta = self.beta[free]
        gradient = self.residual[free] - program.epsilon * self.backend.xp.sign(beta)
        form = GramForm(self.gram.take(free), program.ridge[free], self.rounds.max_factorised)
        # Each step leaves out the coefficients that met a bound. After a few of them the gradients
        # of all samples are computed again.
        new, steps = newton_on_free(
            form,
            beta,
            gradient,
            program.sign_limits(free, beta),
            program.total is not None,
            budget=NEWTON_BUDGET,
            cut_backs=NEWTON_CUT_BACKS,
            least_gain=NEWTON_LEAST_GAIN,
        )
        has_moved = bool((new != beta).any())
        self._place(free, new)
        self.n_iter += steps
        return steps if has_moved else 0

    def _place(self, rows: RowIndex, beta: ArrayOrTensor, block: Gram | None = None) -> None:
        """Set some coefficients and update all residuals.

        Parameters
        ----------
        rows : index
            The numbers of the samples.
        beta : array of shape (n_rows,)
            Their new coefficients, where the kernel is.
        block : Gram, optional
            The kernel of these samples, if it has been computed: it saves a part of the product.
        """
        rows = self.backend.index(rows)
        changes = beta - self.beta[rows]
        self.beta[rows] = beta
        self.residual[rows] -= self.placed.ridge[rows] * changes
        if block is None:
            change = self.backend.zeros((self.program.n_samples,))
            change[rows] = changes
            self.residual -= self.gram.products(change)
            return
        host_rows = self.backend.to_numpy(rows)
        change = self.gram.products_of(block, host_rows, self.backend.to_numpy(changes))
        self.residual -= self.backend.asarray(change)
        size = float(abs(self.residual).max())
        if size < LOST_RESIDUAL * self.largest_residual:
            # The rounding of the much larger residuals of earlier rounds is still in this one.
            self._set_values(self.gram.products(self.beta, exact=True))
        self.largest_residual = max(self.largest_residual, size)


class MostViolating:
    """Rounds of the samples that violate optimality most, for matrices that are stored.

    Pair steps solve a round until its violations have fallen by a factor.
    """

    crowded = True
    wait = 0

    def __init__(self, rounds: RoundOptions) -> None:
        self.rounds = rounds

    def rows(self, driver: SingleOutput, current: Evaluation) -> RowIndex:
        """Return the samples of a round.

        If the sum of the coefficients is fixed, half of them gain most by growing and half by
        shrinking.
        """
        rounds = self.rounds
        n = driver.program.n_samples
        top_k = driver.backend.top_k
        xp = driver.backend.xp
        if rounds.size is None:
            size = int(np.clip(rounds.fraction * n, rounds.min_size, rounds.max_size))
        else:
            size = rounds.size
        size = min(n, size)
        if driver.program.total is None:
            return top_k(xp.maximum(current.rising, -current.falling), size)
        half = (size + 1) // 2
        growing = top_k(current.rising, half)
        # Samples that may not shrink are −∞. They become finite, so that the samples already chosen
        # come after them.
        gains = xp.clip(-current.falling, np.finfo(np.float64).min, None)
        gains[growing] = -np.inf
        return xp.concatenate([growing, top_k(gains, size - half)])

    def solve(
        self, driver: SingleOutput, rows: RowIndex, current: Evaluation, tol: float
    ) -> tuple[Vector, int, None]:
        """Return better coefficients of a round's samples, the pair steps taken, and None."""
        fetch = driver.backend.to_numpy
        beta = np.array(fetch(driver.beta[rows]))
        residual = np.array(fetch(driver.residual[rows]))
        of_rows = driver.program.take(fetch(rows), residual, driver.program.total)
        block = driver.backend.borrow(driver.gram.block(rows))
        goal = self.rounds.violation_fraction * current.violation
        max_steps = self.rounds.steps_per_sample * len(beta)
        steps = maximise(block, of_rows, beta, residual, goal, max_steps)
        return beta, steps, None

    def continues(self, current: Evaluation, solution: Solution, tol: float) -> bool:
        """Return True: rounds that start from exact outputs go on."""
        return True


class FreeThenViolating:
    """Rounds of all free samples and the most violating ones, for kernels that are not stored.

    There a product costs a pass over all samples, and a warm start needs but a few rounds, each of
    which is solved to the end. Where a block has no room for all free samples, a kernel in factors
    gets no rounds, since other solvers are faster; rounds of a kernel on demand then take the
    samples that violate optimality most.

    Parameters
    ----------
    gram : Gram
        The kernel.
    options : SolverOptions
        Among others, how the program of a round is solved.
    rounds : RoundOptions, optional
        How rounds are taken; by default `options.free_rounds`.

    Attributes
    ----------
    crowded : bool
        Whether the last round had no room for all free samples.
    wait : int
        Rounds before Newton steps.
    early_gap : float
        Rounds of some samples are solved to this fraction of the current gap.
    round_factor : float
        The gap to which rounds are solved is multiplied by it; it becomes smaller where rounds make
        little progress.
    last_gap : float
        The gap before the last round.
    """

    def __init__(
        self, gram: Gram, options: SolverOptions, rounds: RoundOptions | None = None
    ) -> None:
        self.options = options
        self.rounds = options.free_rounds if rounds is None else rounds
        self.crowded = False
        # The host computes products slowly: Newton steps take about as long as so many rounds.
        self.wait = NEWTON_WAIT_ON_HOST if gram.backend is NUMPY else 0
        self.early_gap = FACTORED_EARLY_ROUND_GAP if gram.factored else EARLY_ROUND_GAP
        self.round_factor = 1.0
        self.last_gap = np.inf

    def rows(self, driver: SingleOutput, current: Evaluation) -> Indices:
        """Return the free samples and those that violate optimality most, in ascending order.

        No samples are returned where the kernel is in factors and a block cannot hold the free
        ones. `crowded`, `round_factor` and `last_gap` are updated.
        """
        gram = driver.gram
        fetch = driver.backend.to_numpy
        size = min(gram.block_samples, driver.program.n_samples)
        free = fetch(driver.placed.free(driver.beta))
        if not size or (gram.factored and len(free) > size):
            return np.zeros(0, dtype=np.intp)

        if current.gap > SLOW_ROUND_GAP_RATIO * self.last_gap and not self.crowded:
            # The last round was not exact enough: the gap of its program is relative to a dual
            # value that may be far larger than that of all samples.
            self.round_factor = max(ROUND_FACTOR_STEP * self.round_factor, LEAST_ROUND_FACTOR)
        self.last_gap = current.gap

        if gram.factored and driver.backend is NUMPY:
            # There a block of s samples costs s² to form, and few samples beside the free ones
            # move.
            size = min(size, max(self.options.least_factored, SAMPLES_PER_FREE_SAMPLE * len(free)))
        self.crowded = not gram.factored and len(free) > self.options.free_fraction * size

        # Of the remaining samples, half gain most by growing and half by shrinking: the one needs
        # the other if the sum is fixed.
        chosen = free[:0] if self.crowded else free
        growth_gains = np.array(fetch(current.rising))
        shrink_gains = -fetch(current.falling)
        growth_gains[chosen] = -np.inf
        shrink_gains[chosen] = -np.inf
        n_growing = (size - len(chosen) + 1) // 2
        for gains, count in ((growth_gains, n_growing), (shrink_gains, size)):
            best = NUMPY.top_k(gains, min(count, size - len(chosen)))
            best = best[gains[best] > -np.inf]
            shrink_gains[best] = -np.inf
            chosen = np.concatenate([chosen, best])
        return np.sort(chosen)

    def solve(
        self, driver: SingleOutput, rows: Indices, current: Evaluation, tol: float
    ) -> tuple[Vector, int, Gram | None]:
        """Return the best coefficients of a round's samples, and their kernel.

        Between the two is the count of steps, which is one.
        """
        program = driver.program
        fetch = driver.backend.to_numpy
        placed_rows = driver.backend.index(rows)
        beta = np.array(fetch(driver.beta[placed_rows]))
        residual = np.array(fetch(driver.residual[placed_rows]))
        block = driver.gram.take(rows)
        # The samples keep their present sum. The total less the sum of all others may be out of
        # their reach by rounding.
        total = None
        if program.total is not None:
            limits = program.lower[rows].sum(), program.upper[rows].sum()
            total = float(np.clip(beta.sum(), *limits))
        # The linear term of the round: t less the outputs of all other samples.
        target = residual + program.ridge[rows] * beta + block.products(beta)
        of_rows = program.take(rows, target, total)
        # Violations outside of the round change after it, so an early round is solved roughly.
        gap_of_round = ROUND_GAP * tol
        if len(rows) < program.n_samples:
            gap_of_round = max(gap_of_round, self.early_gap * min(current.gap, 1.0))
        new = self.solve_inside(block, of_rows, beta, self.round_factor * gap_of_round)
        return new, 1, block

    def solve_inside(self, part: Any, inside: Program, beta: Vector, tol: float) -> Vector:
        """Return the solution of a round's program from β, by its block of K.

        Parameters
        ----------
        part : Gram
            The kernel of the round's samples.
        inside : Program
            Their program.
        beta : ndarray of shape (n_rows,)
            A start.
        tol : float
            The relative duality gap at which to stop.
        """
        K = part.block(np.arange(part.n_samples)) if part.matrix is None else part.matrix
        if part.backend is NUMPY:
            is_few = part.n_samples <= self.options.few_samples
            steps_per_sample = MAX_ROUND_STEPS_OF_FEW if is_few else MAX_ROUND_STEPS
            max_steps = steps_per_sample * part.n_samples
            return solve_smo(K, inside, beta, tol, max_steps, self.options).beta
        return solve_working_set(DenseGram(K), inside, beta, tol, options=self.options).beta

    def continues(self, current: Evaluation, solution: Solution, tol: float) -> bool:
        """Make rounds more exact, and return whether they can close the gap.

        Rounds that were merely slow stay slow. Rounds whose outputs rounding had spoiled start
        again from exact outputs: their own gap was small, or the certified one is far smaller.
        """
        self.round_factor *= ROUND_FACTOR_STEP
        return current.gap <= tol or solution.gap <= SLOW_ROUND_GAP_RATIO * current.gap
