"""The one driver for kernels that are too large, or in too unwieldy a form, for a solver to read
them whole.

A round chooses some samples, takes their block of the kernel, solves their problem alone, and
brings all outputs up to date with one product; Newton steps move all free coefficients at once. The
certificate is that of the solvers that read the whole matrix, with Kβ as exact as the kernel
computes it. `SingleOutput` is the driver for machines with one output; its policy chooses the
samples of a round and solves their problem. The driver for several classes is
`multiclass.MultiOutput`.
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
from kernelmosaic.solvers.program import (
    Program,
    Solution,
    Vector,
    assess,
    certify,
    relative_gap,
)
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.smo import initial_point, maximise, require_numbers, solve_smo
from kernelmosaic.solvers.tuning import DEFAULTS, RoundOptions, SolverOptions


@dataclass(frozen=True)
class Slopes:
    """Where a solve of one output stands: the largest violation of optimality, the dual value and
    the gap.

    `rising` and `falling` are what the objective gains as each β grows or shrinks; infinite where
    the box forbids it.
    """

    violation: float
    objective: float
    gap: float
    rising: ArrayOrTensor
    falling: ArrayOrTensor


#: Where a solve stands.
At = TypeVar("At", Slopes, Solution)


class WorkingSet(ABC, Generic[At]):
    """The state of one solve: β, and the outputs Kβ, both where the kernel is.

    Parameters
    ----------
    gram : ClassGram
        The kernel.
    program : Program or MulticlassProgram
        The rest of the problem.
    rounds : RoundOptions
        How rounds are taken.
    """

    def __init__(self, gram: ClassGram, program: Any, rounds: RoundOptions) -> None:
        self.gram, self.program, self.rounds = gram, program, rounds
        self.n_iter = self.n_rounds = 0

    @abstractmethod
    def evaluate(self) -> At:
        """Return the state at the present β."""

    @abstractmethod
    def advance(self, at: At, tol: float, idle: bool) -> At | None:
        """Take a round, with Newton steps if they are due; return the state after it, None if
        nothing moved."""

    @abstractmethod
    def certified(self) -> Solution:
        """Return the solution with its certificate, from outputs as exact as can be, which the
        state takes over."""

    @abstractmethod
    def continues(self, at: At, found: Solution, tol: float) -> bool:
        """Whether more rounds can help after a certificate above the tolerance; they may be made
        more exact here."""

    @np.errstate(invalid="ignore")  # what is no number is refused
    def solve(self, tol: float, exhausted: Callable[[], bool] = lambda: False) -> Solution:
        """Take rounds until the certified gap is at most `tol`, the steps are used up, or rounding
        hides the rest."""
        rounds, goal = self.rounds, self.rounds.tol_fraction * tol
        best: Solution | None = None
        at = self.evaluate()
        n_certificates = idle = 0
        highest, least = -np.inf, np.inf
        while True:
            require_numbers(at.objective)
            pays = (
                at.objective > highest + rounds.least_rise * abs(highest)
                or at.gap < rounds.least_gap_ratio * least
            )
            idle = 0 if pays else idle + 1
            highest, least = max(highest, at.objective), min(least, at.gap) if pays else least
            goes_on = at.gap > goal and not exhausted() and idle < rounds.max_idle_rounds
            reached = self.advance(at, goal, idle > 0) if goes_on else None
            if reached is not None:
                at = reached
                continue
            found = self.certified()
            best = found if best is None or found.gap < best.gap else best
            n_certificates += 1
            ends = best.gap <= tol or exhausted() or n_certificates >= rounds.max_certificates
            if ends or not self.continues(at, found, goal):
                return best
            at, idle, highest, least = self.evaluate(), 0, -np.inf, np.inf


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
    """Solve the dual program to a relative duality gap of `tol`, the kernel staying where and as it
    is.

    Parameters
    ----------
    gram : Gram
        Symmetric positive semi-definite.
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
    state = SingleOutput(gram, program, beta, MostViolating(options.rounds))
    return state.solve(tol, lambda: state.n_rounds >= max_rounds)


def solve_on_demand(
    gram: Gram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    options: SolverOptions = DEFAULTS,
) -> Solution:
    """Solve the dual program for a kernel that is not stored, to a relative duality gap of `tol`.

    Rounds are as large as memory allows, each solved to the end by the solver of stored matrices.
    The certificate takes one more pass, in double precision.
    """
    unbounded = not (
        program.epsilon or np.isfinite(program.lower).any() or np.isfinite(program.upper).any()
    )
    if unbounded and gram.has_cheap_products:
        start = np.zeros(program.n_samples) if warm_start is None else warm_start
        return _solve_by_products(gram, program, program.feasible(start), tol)
    beta = (
        _first_point(gram, program, options) if warm_start is None else program.feasible(warm_start)
    )
    return SingleOutput(gram, program, beta, FreeThenViolating(gram, options)).solve(tol)


def _solve_by_products(
    gram: Gram, program: Program, beta: Vector, tol: float, rounds: int = 6
) -> Solution:
    """Solve (K + diag ρ) β = t − b, Σβ = total, by conjugate gradients, to more digits until the
    gap is met."""
    best = assess(gram, program, beta)
    goal = 0.03 * np.sqrt(tol)
    for steps in range(1, rounds + 1):
        if best.gap <= tol:
            break
        left = program.target - best.values - program.ridge * best.beta
        options = BlockOptions(cg_steps=1000, cg_tol=goal)
        change = gram.solve_by_products(
            program.ridge, left[:, np.newaxis], options, program.total is not None
        )
        found = assess(gram, program, program.feasible(best.beta + change[:, 0]), steps)
        if not found.gap < best.gap:
            break
        best, goal = found, 0.1 * goal
    return best


def _first_point(gram: Gram, program: Program, options: SolverOptions) -> Vector:
    """Return a β to start from: that of K ≈ ZZᵀ + diag e, whose diagonal is K's, where a round
    holds few samples."""
    far = (
        program.n_samples > options.low_rank_start_ratio * gram.block_samples
        and program.has_losses
        and program.target.any()
    )
    if not far or (Z := gram.low_rank()) is None:
        return initial_point(program)
    # The factors alone would leave narrow kernels out, and start below the value of zero.
    factors, diagonal = DenseFactors(Z), gram.diagonal()
    rest = np.maximum(diagonal - factors.squared_norms(), 1e-3 * diagonal)
    softened = replace(program, ridge=program.ridge + rest)
    start = softened.feasible(np.zeros(program.n_samples))
    return program.feasible(ProximalNewton(factors, softened, start).solve(0.1).beta)


class SingleOutput(WorkingSet[Slopes]):
    """Rounds of the program with one output; β and its residual t − Kβ − ρβ are where the kernel
    is.

    The policy says which samples a round has (`rows`), how their problem is solved (`solve`: better
    coefficients, the steps taken, and the samples' kernel if it is at hand), and whether more
    rounds can help after a certificate above the tolerance (`continues`). It is `crowded` if rounds
    do not hold all free samples, so that Newton steps on these are worth trying, after `wait`
    rounds.
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
        self.policy, self.n_iter = policy, n_iter
        self.backend = gram.backend
        self.placed = program.placed(self.backend)
        self.beta = self.backend.asarray(np.array(beta))
        self.diagonal = None if program.target.any() else self.backend.asarray(gram.diagonal())
        self.wait, self.waited = policy.wait, 0
        if values is None:
            values = (
                gram.products(self.beta)
                if np.any(beta)
                else self.backend.zeros((program.n_samples,))
            )
        self._set_values(self.backend.asarray(values))

    def _set_values(self, values: ArrayOrTensor) -> None:
        self.residual = self.placed.target - values - self.placed.ridge * self.beta
        self.largest = float(abs(self.residual).max())

    @property
    def values(self) -> ArrayOrTensor:
        """Kβ, read off the residual."""
        return self.placed.target - self.residual - self.placed.ridge * self.beta

    def evaluate(self) -> Slopes:
        p, xp, beta = self.placed, self.backend.xp, self.beta
        rising, falling = p.slopes(beta, self.residual)
        values = self.values
        quadratic = 0.5 * (beta @ values)
        top, bottom = rising.max(), falling.min()
        if p.has_losses:
            intercept = self._intercept(bottom, top)
            primal = quadratic + p.losses(values, intercept)
        else:
            intercept = 0.5 * (top + bottom)
            primal = quadratic
        # One transfer to the host.
        numbers = xp.stack(
            [top, bottom, p.linear_value(beta) - quadratic, primal, intercept]
        ).tolist()
        highest, lowest, dual, value, b = numbers
        if not p.has_losses:
            value = self.program.primal_value(value, self.backend.to_numpy(values), b)
        return Slopes(
            p.violation(highest, lowest),
            dual,
            relative_gap(value, dual, self._noise()),
            rising,
            falling,
        )

    def _intercept(
        self, bottom: ArrayOrTensor, top: ArrayOrTensor, n_candidates: int = 64
    ) -> ArrayOrTensor:
        """Return about the intercept with the smallest losses: where the conjugate's u sum to the
        total.

        Above the steepest rise all u are at most β, below the steepest fall at least: it lies
        between the two. On a device, one look at many candidates takes less time than several looks
        at one.
        """
        total = self.program.total
        if self.backend is NUMPY or total is None:
            best = (
                0.0
                if total is None
                else self.program.best_intercept(self.backend.to_numpy(self.values))
            )
            return self.backend.asarray(best)
        z = self.residual + self.placed.ridge * self.beta
        low, high = self.backend.xp.stack([bottom, top]).sort().values
        candidates = low + self.backend.asarray(np.linspace(0.0, 1.0, n_candidates)) * (high - low)
        # The sum falls with the intercept, so counting those above the total finds where it
        # crosses.
        above = (self.placed.conjugate_argmax(z - candidates[:, None]).sum(1) > total).sum()
        ends = self.backend.xp.stack([above - 1, above]).clip(0, n_candidates - 1)
        # Picked on the device: a number as an index would have to come to the host first.
        return candidates[ends].mean()

    def _noise(self) -> float:
        return (
            0.0
            if self.diagonal is None
            else self.placed.value_noise(self.beta, self.diagonal, self.gram.dtype)
        )

    def certified(self) -> Solution:
        # Rounds keep the sum up to their own rounding.
        beta = self.program.feasible(np.array(self.backend.to_numpy(self.beta)))
        values = self.gram.products(beta, exact=True)
        self.beta, placed = self.backend.asarray(beta), self.backend.asarray(values)
        self._set_values(placed)
        if not self.program.has_losses:
            return certify(self.program, beta, values, self.n_iter, self._noise())
        return certify(self.placed, self.beta, placed, self.n_iter, self._noise())

    def continues(self, at: Slopes, found: Solution, tol: float) -> bool:
        return self.policy.continues(at, found, tol)

    def advance(self, at: Slopes, tol: float, idle: bool) -> Slopes | None:
        steps = self.round(at, tol)
        after = self.evaluate()
        if steps and (self.waited < self.wait or after.gap <= tol or not self.policy.crowded):
            self.waited += 1
            return after
        if not (self.policy.crowded and self.newton_step()):
            return after if steps else None
        reached = self.evaluate()
        # What a round gains is what Newton steps must gain to come again soon.
        worse = reached.objective - after.objective < after.objective - at.objective
        self.wait = min(2 * self.wait + 1, self.rounds.max_newton_wait) if worse else 0
        self.waited = 0
        return reached

    def round(self, at: Slopes, tol: float) -> int:
        """Solve the program of some samples, all other coefficients fixed; return the steps
        taken."""
        rows = self.policy.rows(self, at)
        if len(rows) == 0:
            return 0
        beta, steps, part = self.policy.solve(self, rows, at, tol)
        self._place(rows, self.backend.asarray(beta), part)
        self.n_iter += steps
        self.n_rounds += 1
        return steps

    def newton_step(self) -> int:
        """Take Newton steps on the free samples, and return how many."""
        p = self.placed
        free = p.free(self.beta)
        if not 2 <= len(free) <= self.rounds.max_newton_samples:
            return 0
        beta = self.beta[free]
        box, sums = p.sign_limits(free, beta), p.total is not None
        slope = self.residual[free] - p.epsilon * self.backend.xp.sign(beta)
        form = GramForm(self.gram.take(free), p.ridge[free], self.rounds.max_factorised)
        # A few steps, each without the coefficients that met a bound, before all slopes are looked
        # at again.
        new, steps = newton_on_free(form, beta, slope, box, sums, budget=3, cut_backs=4, worth=0.02)
        moved = bool((new != beta).any())
        self._place(free, new)
        self.n_iter += steps
        return steps if moved else 0

    def _place(self, rows: RowIndex, beta: ArrayOrTensor, part: Gram | None = None) -> None:
        """Give coefficients their new values and bring all residuals up to date."""
        rows = self.backend.index(rows)
        changes = beta - self.beta[rows]
        self.beta[rows] = beta
        self.residual[rows] -= self.placed.ridge[rows] * changes
        if part is None:
            change = self.backend.zeros((self.program.n_samples,))
            change[rows] = changes
            self.residual -= self.gram.products(change)
        else:
            change = self.gram.products_of(
                part, self.backend.to_numpy(rows), self.backend.to_numpy(changes)
            )
            self.residual -= self.backend.asarray(change)
            size = float(abs(self.residual).max())
            if size < 1e-3 * self.largest:  # the residual keeps the rounding of much larger ones
                self._set_values(self.gram.products(self.beta, exact=True))
            self.largest = max(self.largest, size)


class MostViolating:
    """Those with most to gain, by pair steps until little of it is left: for matrices that are
    stored."""

    crowded, wait = True, 0

    def __init__(self, rounds: RoundOptions) -> None:
        self.rounds = rounds

    def rows(self, state: SingleOutput, at: Slopes) -> RowIndex:
        """Return those with most to gain: half by growing, half by shrinking, if the sum must be
        kept."""
        rounds, n = self.rounds, state.program.n_samples
        size = (
            int(np.clip(rounds.fraction * n, rounds.min_size, rounds.max_size))
            if rounds.size is None
            else rounds.size
        )
        size, top_k, xp = min(n, size), state.backend.top_k, state.backend.xp
        if state.program.total is None:
            return top_k(xp.maximum(at.rising, -at.falling), size)
        half = (size + 1) // 2
        up = top_k(at.rising, half)
        # Those already taken must come after all who may not shrink.
        shrinking = xp.clip(-at.falling, np.finfo(np.float64).min, None)
        shrinking[up] = -np.inf
        return xp.concatenate([up, top_k(shrinking, size - half)])

    def solve(
        self, state: SingleOutput, rows: RowIndex, at: Slopes, tol: float
    ) -> tuple[Vector, int, None]:
        beta, residual = (
            np.array(state.backend.to_numpy(one[rows])) for one in (state.beta, state.residual)
        )
        inside = state.program.take(state.backend.to_numpy(rows), residual, state.program.total)
        block = state.backend.borrow(state.gram.block(rows))
        goal, most = (
            self.rounds.violation_fraction * at.violation,
            self.rounds.steps_per_sample * len(beta),
        )
        return beta, maximise(block, inside, beta, residual, goal, most), None

    def continues(self, at: Slopes, found: Solution, tol: float) -> bool:
        return True


class FreeThenViolating:
    """All free samples, then those with most to gain, solved to the end: for kernels that are not
    stored.

    There a product costs a pass over all samples, and a solution from nearby needs but a few
    rounds. Where more samples are free than a block has room for, a kernel in factors is better
    solved by other means, and one on demand takes those of them that have most to gain.

    Parameters
    ----------
    gram : Gram
        The kernel.
    options : SolverOptions
        Among others, how the program of a round is solved.
    rounds : RoundOptions, optional
        How rounds are taken; by default `options.free_rounds`.
    """

    def __init__(
        self, gram: Gram, options: SolverOptions, rounds: RoundOptions | None = None
    ) -> None:
        self.options, self.rounds = options, options.free_rounds if rounds is None else rounds
        self.crowded = False
        # The host computes products slowly: Newton steps take about as long as so many rounds.
        self.wait = 4 if gram.backend is NUMPY else 0
        # Rounds are solved to this share of the gap that is left, and to this share of what that
        # asks for.
        self.early, self.sharper, self.last_gap = 0.01 if gram.factored else 0.1, 1.0, np.inf

    def rows(self, state: SingleOutput, at: Slopes) -> Indices:
        """Return the free samples, then those that violate optimality most; none if the free ones
        are too many."""
        gram, fetch = state.gram, state.backend.to_numpy
        size = min(gram.block_samples, state.program.n_samples)
        free = fetch(state.placed.free(state.beta))
        if not size or (gram.factored and len(free) > size):
            return np.zeros(0, dtype=np.intp)
        if at.gap > 0.5 * self.last_gap and not self.crowded:
            # The working set's own value, to which its gap is relative, may be far larger than that
            # of all samples.
            self.sharper = max(0.1 * self.sharper, 1e-8)
        self.last_gap = at.gap
        if gram.factored and state.backend is NUMPY:
            # There a block's samples cost their square to form, and few beside the free ones move.
            size = min(size, max(self.options.least_factored, 3 * len(free)))
        self.crowded = not gram.factored and len(free) > self.options.free_fraction * size
        chosen = free[:0] if self.crowded else free
        rising, falling = np.array(fetch(at.rising)), -fetch(at.falling)
        rising[chosen] = falling[chosen] = -np.inf
        # Half by growing, half by shrinking: the one needs the other if the sum must be kept.
        for gain, count in ((rising, (size - len(chosen) + 1) // 2), (falling, size)):
            best = NUMPY.top_k(gain, min(count, size - len(chosen)))
            best = best[gain[best] > -np.inf]
            falling[best] = -np.inf
            chosen = np.concatenate([chosen, best])
        return np.sort(chosen)

    def solve(
        self, state: SingleOutput, rows: Indices, at: Slopes, tol: float
    ) -> tuple[Vector, int, Gram | None]:
        """Maximise the objective over these samples, all other coefficients fixed; this counts as
        one step."""
        p, placed = state.program, state.backend.index(rows)
        own, residual = (
            np.array(state.backend.to_numpy(one[placed])) for one in (state.beta, state.residual)
        )
        part = state.gram.take(rows)
        # As it is, not what the others leave: rounding could put that out of these samples' reach.
        limits = p.lower[rows].sum(), p.upper[rows].sum()
        total = None if p.total is None else float(np.clip(own.sum(), *limits))
        inside = p.take(rows, residual + p.ridge[rows] * own + part.products(own), total)
        # What the others leave undone is seen only afterwards: early sets need not be solved to the
        # end.
        early = self.early * min(at.gap, 1.0) if len(rows) < p.n_samples else 0.0
        return self.solve_inside(part, inside, own, self.sharper * max(0.1 * tol, early)), 1, part

    def solve_inside(self, part: Any, inside: Program, beta: Vector, tol: float) -> Vector:
        """Solve the program of a round from β, by its block of K."""
        K = part.block(np.arange(part.n_samples)) if part.matrix is None else part.matrix
        if part.backend is NUMPY:
            # Few samples have had their pair steps before; interior points take over sooner.
            most = 30 if part.n_samples <= self.options.few_samples else 200
            return solve_smo(K, inside, beta, tol, most * part.n_samples, self.options).beta
        return solve_working_set(DenseGram(K), inside, beta, tol, options=self.options).beta

    def continues(self, at: Slopes, found: Solution, tol: float) -> bool:
        # Rounds that were merely slow stay so; those misled by rounding start again from exact
        # outputs.
        self.sharper *= 0.1
        return at.gap <= tol or found.gap <= 0.5 * at.gap
