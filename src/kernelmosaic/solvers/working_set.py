"""The one driver for kernels that are too large, or in too unwieldy a form, for a solver to read them whole.

A round chooses the samples with most to gain, takes their block of the kernel, solves their problem alone, and brings
all outputs up to date with one product; Newton steps move all free coefficients at once. The certificate is that
of the solvers that read the whole matrix, with Kβ as exact as the kernel knows it. `SingleOutput` is the driver for the
program of machines with one output; that for several classes is `multiclass.MultiOutput`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import ArrayOrTensor, RowIndex
from kernelmosaic.backend import NUMPY, TINY
from kernelmosaic.gram.factored import DenseFactors
from kernelmosaic.gram.gram import ClassGram, DenseGram, Gram
from kernelmosaic.solvers.free_newton import GramForm, newton_on_free
from kernelmosaic.solvers.pair_steps import maximise
from kernelmosaic.solvers.program import Program, Solution, Vector, certify, relative_gap
from kernelmosaic.solvers.proximal_newton import ProximalNewton
from kernelmosaic.solvers.smo import initial_point, solve_smo


@dataclass(frozen=True)
class RoundOptions:
    """How rounds are taken.

    Attributes
    ----------
    size : int or None
        Samples per round; None for what suits their number and the kernel.
    share, least, largest : float, int, int
        By default a round takes this share of all samples, within these limits, which the host solves as fast as a
        device does the rest.
    inner : float
        A round ends when no violation is above this share of the largest it began with, ...
    steps : int
        ... or after so many steps per sample.
    idle : int
        Rounds in a row that neither raise the value by more than `rounding` of it, nor lower the gap to `lower` of it,
        before rounding is blamed: near the optimum the value has converged while the gap has half as many digits.
    rounding, lower : float
        See `idle`.
    patience : int
        How many certificates may be above `tol` before the best is returned.
    newton_free : int
        Newton steps are tried on at most this many free samples.
    factorised : int
        Their block is factorised up to this many samples; larger ones take conjugate-gradient steps.
    longest_wait : int
        They wait longer and longer, up to this many rounds, while a round gains more than they do.
    """

    size: int | None = None
    share: float = 1 / 4
    least: int = 1024
    largest: int = 4096
    inner: float = 0.1
    steps: int = 10
    idle: int = 5
    rounding: float = 1e-14
    lower: float = 0.9
    patience: int = 4
    newton_free: int = 400_000
    factorised: int = 6000
    longest_wait: int = 16


@dataclass(frozen=True)
class RoundState:
    """Where a solve stands: the largest violation of optimality, the dual value and the gap."""

    violation: float
    dual: float
    gap: float


Found = TypeVar("Found")
At = TypeVar("At", bound=RoundState)


class WorkingSet(ABC, Generic[At, Found]):
    """The state of one solve: β, and the outputs Kβ, both where the kernel is.

    Parameters
    ----------
    gram : ClassGram
        The kernel.
    program : Program or MulticlassProgram
        The rest of the problem.
    options : RoundOptions
        How rounds are taken.
    """

    def __init__(self, gram: ClassGram, program: Any, options: RoundOptions) -> None:
        self.gram, self.program, self.options = gram, program, options
        self.n_iter = self.n_rounds = 0

    @abstractmethod
    def evaluate(self) -> At:
        """Say where things stand."""

    @abstractmethod
    def advance(self, at: At, tol: float, idle: bool) -> At | None:
        """Take a round, with Newton steps if they are due; return where that leads, None if nothing moved."""

    @abstractmethod
    def certified(self) -> Found:
        """Return the solution with its certificate, from outputs as exact as can be, which the state takes over."""

    @abstractmethod
    def gap_of(self, solution: Found) -> float:
        """Return the certified gap."""

    def increase_precision(self) -> bool:
        """Continue more exactly after a certificate above the tolerance; False if nothing more exact exists."""
        return True

    @np.errstate(invalid="ignore")  # what is no number is refused
    def solve(self, tol: float, exhausted: Callable[[], bool]) -> Found:
        """Take rounds until the certified gap is at most `tol`, the steps are used up, or rounding hides the rest."""
        options = self.options
        best: Found | None = None
        at = self.evaluate()
        n_certificates = idle = 0
        highest, least = -np.inf, np.inf
        while True:
            if not np.isfinite(at.dual):
                raise ValueError(
                    "K holds NaN or infinity: check the kernels, their weights and penalties; normalize='trace' puts "
                    "kernels on one scale."
                )
            pays = at.dual > highest + options.rounding * abs(highest) or at.gap < options.lower * least
            idle = 0 if pays else idle + 1
            highest, least = max(highest, at.dual), min(least, at.gap)
            goes_on = at.gap > tol and not exhausted() and idle < options.idle
            reached = self.advance(at, tol, idle > 0) if goes_on else None
            if reached is not None:
                at = reached
                continue
            solution = self.certified()
            best = solution if best is None or self.gap_of(solution) < self.gap_of(best) else best
            n_certificates += 1
            if self.gap_of(best) <= tol or exhausted() or n_certificates >= options.patience:
                return best
            if not self.increase_precision():
                return best
            at, idle, highest, least = self.evaluate(), 0, -np.inf, np.inf


# One output ----------------------------------------------------------------------------------------------------------

#: The search for the intercept: so many candidates at once. One large step: many would wait for the device.
_CANDIDATES = 64
#: Most Newton steps before all slopes are looked at again, each without the coefficients that met a bound; a step that
#: gains less than this share of the first ends them.
_NEWTON_STEPS, _WORTH = 4, 0.02
#: Rounds without a stored kernel: they must halve the gap in so many, and ...
_SLOW = 30
#: ... aim below what is asked for, since the certificate sees what single precision does not, at most so often.
_ROOM, _CERTIFICATES = 0.9, 3
#: Rounds on the host before the first Newton steps on samples that are too many for one.
_HOST_WAIT = 4
#: All free samples are in a round unless they take more than this share of it.
_FREE_SHARE = 0.8
#: In factors on the host, samples in a working set: so many at least, and so many for each free one.
_LEAST, _TIMES = 1000, 3
#: Outputs that have shrunk to this share of the largest since they were computed keep the rounding of those.
_SHRUNK = 1e-3
#: Working sets are solved to no less than this share of what was asked for.
_SHARPEST = 1e-8
#: Rounds that hold less than one in so many start from low-rank factors of the kernel, whose rest on the diagonal is at
#: least this share of it, solved to this gap.
_FAR, _LEAST_REST, _FIRST_TOL = 4, 1e-3, 0.1


def solve_working_set(
    gram: Gram,
    program: Program,
    warm_start: Vector | None = None,
    tol: float = 1e-3,
    *,
    max_rounds: int = 10_000,
    options: RoundOptions | None = None,
) -> Solution:
    """Solve the dual program to a relative duality gap of `tol`, the kernel staying where and as it is.

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
    options : RoundOptions, optional
        How rounds are taken.
    """
    if gram.n_samples != program.n_samples:
        raise ValueError(f"K has {gram.n_samples} samples, the program {program.n_samples}.")
    beta = initial_point(program) if warm_start is None else program.feasible(warm_start)
    rounds = SingleOutput(gram, program, beta, RoundOptions() if options is None else options)
    return rounds.solve(tol, lambda: rounds.n_rounds >= max_rounds)


@dataclass(frozen=True)
class Slopes(RoundState):
    """What the objective gains as each β grows or shrinks; infinite where the box forbids it."""

    rising: Any
    falling: Any


class SingleOutput(WorkingSet[Slopes, Solution]):
    """Rounds of the program with one output; β and its residual t − Kβ − ρβ live where the kernel is."""

    gram: Gram
    program: Program

    def __init__(
        self, gram: Gram, program: Program, beta: Vector, options: RoundOptions, values: Vector | None = None
    ) -> None:
        super().__init__(gram, program, options)
        self.backend = gram.backend
        self.placed = program.placed(self.backend)
        self.beta = self.backend.asarray(np.array(beta))
        self.diagonal = None if program.target.any() else self.backend.asarray(gram.diagonal())
        n = program.n_samples
        size = int(np.clip(options.share * n, options.least, options.largest)) if options.size is None else options.size
        self.size = min(n, size)
        self.wait = self.waited = 0
        if values is None:
            self._set_values(gram.products(self.beta) if np.any(beta) else self.backend.zeros((n,)))
        else:
            self._set_values(self.backend.asarray(values))

    def _set_values(self, values: ArrayOrTensor) -> None:
        self.residual = self.placed.target - values - self.placed.ridge * self.beta

    @property
    def values(self) -> ArrayOrTensor:
        """Kβ, read off the residual."""
        return self.placed.target - self.residual - self.placed.ridge * self.beta

    # Where things stand --------------------------------------------------------------------------------------------

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
        numbers = xp.stack([top, bottom, p.linear_term(beta) - quadratic, primal, intercept]).tolist()
        highest, lowest, dual, value, b = numbers
        if not p.has_losses:
            value = self.program.primal_value(value, self.backend.to_numpy(values), b)
        return Slopes(p.violation(highest, lowest), dual, relative_gap(value, dual, self.noise()), rising, falling)

    def _intercept(self, bottom: Any, top: Any) -> ArrayOrTensor:
        """Return about the intercept with the smallest losses: where the conjugate's u sum to the total.

        Above the steepest rise all u are at most β, below the steepest fall at least: it lies between the two.
        """
        total = self.program.total
        if self.backend is NUMPY or total is None:
            best = 0.0 if total is None else self.program.best_intercept(self.backend.to_numpy(self.values))
            return self.backend.asarray(best)
        z = self.residual + self.placed.ridge * self.beta
        low, high = self.backend.xp.stack([bottom, top]).sort().values
        candidates = low + self.backend.asarray(np.linspace(0.0, 1.0, _CANDIDATES)) * (high - low)
        # The sum falls with the intercept, so counting those above the total says where it crosses.
        above = (self.placed.conjugate_argmax(z - candidates[:, None]).sum(1) > total).sum()
        ends = self.backend.xp.stack([above - 1, above]).clip(0, _CANDIDATES - 1)
        # Picked on the device: a number as an index would have to come to the host first.
        return candidates[ends].mean()

    def noise(self) -> float:
        return 0.0 if self.diagonal is None else self.placed.value_noise(self.beta, self.diagonal, self.gram.dtype)

    def certified(self) -> Solution:
        beta: NDArray[np.float64] = np.array(self.backend.to_numpy(self.beta))
        return self._certify(beta, self.gram.products(beta, exact=True))

    def _certify(self, beta: Vector, values: Vector) -> Solution:
        self.beta, placed = self.backend.asarray(beta), self.backend.asarray(values)
        self._set_values(placed)
        if not self.program.has_losses:
            return certify(self.program, beta, values, self.n_iter, self.noise())
        return certify(self.placed, self.beta, placed, self.n_iter, self.noise())

    def gap_of(self, solution: Solution) -> float:
        return solution.gap

    # Steps ---------------------------------------------------------------------------------------------------------

    def advance(self, at: Slopes, tol: float, idle: bool) -> Slopes | None:
        steps = self.round(at)
        after = self.evaluate()
        if steps and (self.waited < self.wait or after.gap <= tol):
            self.waited += 1
            return after
        if not self.newton_step():
            return after if steps else None
        reached = self.evaluate()
        # What a round gains is what Newton steps must gain to come again soon.
        worse = reached.dual - after.dual < after.dual - at.dual
        self.wait = min(2 * self.wait + 1, self.options.longest_wait) if worse else 0
        self.waited = 0
        return reached

    def round(self, at: Slopes) -> int:
        """Solve the program of those with most to gain, all other coefficients fixed; return the steps taken."""
        chosen = self._violators(at)
        rows = self.backend.to_numpy(chosen)
        beta = np.array(self.backend.to_numpy(self.beta[chosen]))
        residual = np.array(self.backend.to_numpy(self.residual[chosen]))
        before = beta.copy()
        block = self.backend.borrow(self.gram.block(chosen))
        goal, most = self.options.inner * at.violation, self.options.steps * len(rows)
        steps, _ = maximise(block, self.program.take(rows, residual, self.program.total), beta, residual, goal, most)
        moved = np.flatnonzero(beta != before)
        self.place(self.backend.index(rows[moved]), self.backend.asarray(beta[moved]))
        self.n_iter += steps
        self.n_rounds += 1
        return steps

    def _violators(self, at: Slopes) -> ArrayOrTensor:
        """Return those with most to gain: half by growing, half by shrinking, if the sum must be kept."""
        top_k, xp = self.backend.top_k, self.backend.xp
        if self.program.total is None:
            return top_k(xp.maximum(at.rising, -at.falling), self.size)
        half = (self.size + 1) // 2
        up = top_k(at.rising, half)
        # Those already taken must come after all who may not shrink.
        shrinking = xp.clip(-at.falling, np.finfo(np.float64).min, None)
        shrinking[up] = -np.inf
        return xp.concatenate([up, top_k(shrinking, self.size - half)])

    def newton_step(self) -> int:
        """Take Newton steps on the free samples, and return how many."""
        p = self.placed
        free = p.free(self.beta)
        if not 2 <= len(free) <= self.options.newton_free:
            return 0
        beta = self.beta[free]
        lower, upper = p.sign_limits(free, beta)
        slope = self.residual[free] - p.epsilon * self.backend.xp.sign(beta)
        form = GramForm(self.gram.take(free), p.ridge[free], self.options.factorised)
        given = form, beta, slope, lower, upper, p.total is not None
        new, steps = newton_on_free(*given, _NEWTON_STEPS - 1, cut_backs=_NEWTON_STEPS, worth=_WORTH)
        moved = new != beta
        self.place(free[moved], new[moved])
        self.n_iter += steps
        return steps if bool(moved.any()) else 0

    def place(self, rows: RowIndex, beta: ArrayOrTensor) -> None:
        """Give coefficients their new values and bring all residuals up to date."""
        changes = beta - self.beta[rows]
        self.beta[rows] = beta
        self.residual[rows] -= self.placed.ridge[rows] * changes
        change = self.backend.zeros((self.program.n_samples,))
        change[rows] = changes
        self.residual -= self.gram.products(change)


def solve_on_demand(gram: Gram, program: Program, warm_start: Vector | None = None, tol: float = 1e-3) -> Solution:
    """Solve the dual program for a kernel that is not stored, to a relative duality gap of `tol`.

    Rounds are as large as memory allows, each solved to the end by the solver of stored matrices. The certificate takes
    one more pass, in double precision.
    """
    beta = _first_point(gram, program) if warm_start is None else program.feasible(warm_start)
    rounds = FreeThenViolating(gram, program, beta)
    found: list[Solution] = []
    for _ in range(_CERTIFICATES):
        reached = rounds.improve(_ROOM * tol, _SLOW)
        # The sum has been kept by each round up to its own rounding.
        rounds.beta = gram.backend.asarray(program.feasible(rounds.solution.beta))
        rounds.solution = rounds.certified()
        found.append(rounds.solution)
        if rounds.solution.gap <= tol or not reached:
            break
        rounds.sharper *= 0.1
    return min(found, key=lambda one: one.gap)


def _first_point(gram: Gram, program: Program) -> Vector:
    """Return a β to begin with: that of K ≈ ZZᵀ + diag e, whose diagonal is K's, where rounds would reach but a few."""
    far = program.n_samples > _FAR * gram.block_samples and program.has_losses and program.target.any()
    if not far or (Z := gram.low_rank()) is None:
        return initial_point(program)
    # The factors alone would leave narrow kernels out, and start below the value of zero.
    factors, diagonal = DenseFactors(Z), gram.diagonal()
    rest = np.maximum(diagonal - factors.squared_norms(), _LEAST_REST * diagonal)
    softened = replace(program, ridge=program.ridge + rest)
    start = softened.feasible(np.zeros(program.n_samples))
    return program.feasible(ProximalNewton(factors, softened, start).solve(_FIRST_TOL).beta)


class FreeThenViolating(SingleOutput):
    """Rounds that hold all free samples and solve their program to the end, for kernels that are not stored.

    There a product costs a pass over all samples, and a solution from nearby needs but a few rounds. Where more samples
    are free than a block has room for, a kernel in factors is better solved by other means, and one on demand takes
    those of them that have most to gain.
    """

    def __init__(
        self, gram: Gram, program: Program, beta: Vector, n_iter: int = 0, values: Vector | None = None
    ) -> None:
        size = min(gram.block_samples, program.n_samples)
        super().__init__(gram, program, beta, RoundOptions(size=size, newton_free=program.n_samples), values)
        self.n_iter = n_iter
        self.early, self.sharper = 0.01 if gram.factored else 0.1, 1.0
        self.crowded = False
        # The host computes products slowly: Newton steps take about as long as so many rounds.
        self.wait = _HOST_WAIT if self.backend is NUMPY else 0
        self.solution = self._certify(beta, self.backend.to_numpy(self.values))
        self.largest = float(np.abs(self.solution.values).max())

    def improve(self, tol: float, patience: int) -> bool:
        """Take rounds until the gap is at most `tol`; False if they do not get there, or get there slowly."""
        gaps = [self.solution.gap]
        while gaps[-1] > tol:
            working = self.working_set()
            if len(working) == 0:
                return False
            # What the others leave undone is seen only afterwards: early sets need not be solved to the end.
            early = self.early * min(gaps[-1], 1.0) if len(working) < len(self.solution.beta) else 0.0
            before = self.solution.objective
            self.solve_for(working, self.sharper * max(0.1 * tol, early))
            if self.crowded and self.solution.gap > tol:
                self.move_together(self.solution.objective - before)
            gaps.append(self.solution.gap)
            if gaps[-1] > 0.5 * gaps[-2] and not self.crowded:
                # The working set's own value, to which its gap is relative, may be far larger than that of all samples.
                self.sharper = max(0.1 * self.sharper, _SHARPEST)
            if len(gaps) > patience and gaps[-1] > 0.5 * gaps[-1 - patience]:
                return gaps[-1] <= tol
        return True

    def working_set(self) -> NDArray[np.intp]:
        """The free samples, then those that violate optimality most; none if the free ones are too many."""
        p, at = self.program, self.solution
        free = p.free(at.beta)
        if not self.size or (self.gram.factored and len(free) > self.size):
            return np.zeros(0, dtype=np.intp)
        residual = p.target - at.values - p.ridge * at.beta - at.intercept
        rising, falling = p.slopes(at.beta, residual)
        falling = -falling
        size = self.size
        if self.gram.factored and self.backend is NUMPY:
            # There a block's samples cost their square to form, and few beside the free ones move.
            size = min(size, max(_LEAST, _TIMES * len(free)))
        self.crowded = not self.gram.factored and len(free) > _FREE_SHARE * size
        chosen = free[:0] if self.crowded else free
        rising[chosen] = falling[chosen] = -np.inf
        # Half by growing, half by shrinking: the one needs the other if the sum must be kept.
        for gain, count in ((rising, (size - len(chosen) + 1) // 2), (falling, size)):
            best = NUMPY.top_k(gain, min(count, size - len(chosen)))
            best = best[gain[best] > -np.inf]
            falling[best] = -np.inf
            chosen = np.concatenate([chosen, best])
        return np.sort(chosen)

    def solve_for(self, working: NDArray[np.intp], tol: float) -> None:
        """Maximise the objective over the working set, all other coefficients fixed."""
        p, at = self.program, self.solution
        own = at.beta[working]
        part = self.gram.take(working)
        theirs = at.values[working] - part.products(own)
        # As it is, not what the others leave: rounding could put that out of the working set's reach.
        limits = p.lower[working].sum(), p.upper[working].sum()
        total = None if p.total is None else float(np.clip(own.sum(), *limits))
        inside = p.take(working, p.target[working] - theirs, total)
        found = self.solve_inside(part, inside, own, tol)
        beta = at.beta.copy()
        beta[working] = found
        self.n_iter += 1
        values = at.values + self.gram.products_of(part, working, found - own)
        del part
        self.largest = max(self.largest, float(np.abs(values).max()))
        if float(np.abs(values).max()) < _SHRUNK * self.largest:
            values = self.gram.products(beta, exact=True)
            self.largest = float(np.abs(values).max())
        self.solution = self._certify(beta, values)

    def move_together(self, gained: float) -> None:
        """Take Newton steps on all free samples, which are too many for a round, unless rounds gain more than they."""
        if self.waited < self.wait:
            self.waited += 1
            return
        before = self.solution.objective
        if self.newton_step():
            self.solution = self._certify(self.backend.to_numpy(self.beta).copy(), self.backend.to_numpy(self.values))
        worse = self.solution.objective - before < gained
        self.wait = min(2 * self.wait + 1, self.options.longest_wait) if worse else 0
        self.waited = 0

    def solve_inside(self, part: ArrayOrTensor, inside: Program, beta: Vector, tol: float) -> Vector:
        """Solve the working set's own program from β, by its block of K."""
        K = part.block(np.arange(part.n_samples)) if part.matrix is None else part.matrix
        if self.backend is NUMPY:
            # Few samples have had their pair steps before; interior points take over sooner.
            most = 30 if part.n_samples <= TINY else 200
            return solve_smo(K, inside, beta, tol, max_iter=most * part.n_samples).beta
        return solve_working_set(DenseGram(K), inside, beta, tol).beta
