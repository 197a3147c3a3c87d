"""Paths of like problems on one stack, those of all folds and of neighbouring values learned
together on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmosaic._typing import Array, ArrayOrTensor, Indices
from kernelmosaic.gpu.programs import (
    BatchState,
    ColumnKernels,
    Columns,
    ProgramBatch,
    SharedInverse,
    free_samples,
    solve_free_blocks,
    take_steps,
)
from kernelmosaic.gram.linear_algebra import free_curvature, keep_sum
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.learning.certificate import (
    Entries,
    Iteration,
    KnownForms,
    Learned,
    Start,
    known_forms,
)
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.problem import Learner, steepest_curvature
from kernelmosaic.learning.tuning import AIM
from kernelmosaic.solvers.program import Solution, relative_gap


@dataclass(frozen=True)
class BatchOptions:
    """How paths are followed together.

    Attributes
    ----------
    columns : int
        About so many problems advance together: neighbouring values of all paths.
    apart : float
        ... as long as their bounds differ by no more than this factor.
    steps : int
        Of alternating directions between two looks at the bounds.
    rounds, certificates : int
        Most looks at the bounds before a certificate, and most certificates: what is left then is
        learned alone.
    idle : int
        Looks in a row that lower no gap by a tenth, all of them together, end the rounds, too.
    entries : int
        Blocks of the free samples have at most so many entries in all columns together: of more
        samples, some stand for all.
    settled : float
        Share of the whole gap below which the machine's own lets the weights move.
    unbalanced : float
        ρ changes where another one, by this factor, would balance the primal and the dual residual.
    half : bool, optional
        Whether kernels multiply in half precision up to the first certificate; where that is
        faster, unless given.
    floor, beyond : float
        The matrix that all columns share has this share of the largest weight in every kernel, and
        is made anew where weights exceed it by this share of its own.
    """

    columns: int = 64
    apart: float = 12.0
    steps: int = 20
    rounds: int = 25
    certificates: int = 3
    idle: int = 4
    entries: int = 2**28
    settled: float = 0.3
    unbalanced: float = 2.0
    half: bool | None = None
    floor: float = 0.02
    beyond: float = 0.1


@dataclass
class Counts:
    """What the paths took: looks at the bounds, and problems that were learned alone."""

    rounds: int = 0
    alone: int = 0


def learn_paths(
    stack: MatrixStack,
    sizes: Array,
    paths: Sequence[Sequence[Any]],
    learners: Sequence[Learner],
    options: BatchOptions | None = None,
    counts: Counts | None = None,
) -> list[list[Learned]]:
    """Return what is learned for the machines of every path, with the certificates of
    `Learned.certified`.

    Parameters
    ----------
    stack : MatrixStack
        The kernels, on a device.
    sizes : ndarray of shape (P, n)
        What the entries' rounding is bounded by.
    paths : sequence of sequences of Machine
        Machines on the samples of the stack, along C; all paths have the same number.
    learners : sequence of Learner
        Of every path: `Newton`, or `FixedWeights`.
    options : BatchOptions, optional
        How they are followed.
    counts : Counts, optional
        Where the work is added up.
    """
    options, counts = options or BatchOptions(), counts or Counts()
    kernels = ColumnKernels(stack, options.half)
    search: _Search | None = None
    found: list[list[Learned]] = [[] for _ in paths]
    for some in _neighbours(paths[0], max(1, options.columns // len(paths)), options.apart):
        machines = [machine for path in paths for machine in path[some]]
        many = len(machines) // len(paths)
        each = [learner for learner in learners for _ in range(many)]
        search = _Search(kernels, sizes, options, counts, machines, each, many, search)
        for column, one in enumerate(search.learn()):
            found[column // many].append(one)
    return found


def _neighbours(path: Sequence[Any], most: int, apart: float) -> Iterator[slice]:
    """Cut a path into values that are learned together: one ρ suits bounds, or ridges, of about one
    size."""
    programs = [machine.program for machine in path]
    boxes = [
        np.where(np.isfinite(p.upper - p.lower), p.upper - p.lower, 1.0).max() for p in programs
    ]
    sizes = [
        box / max(float(p.ridge.mean()), 1e-300) if p.has_ridge else box
        for box, p in zip(boxes, programs, strict=True)
    ]
    first = 0
    for i in range(1, len(path) + 1):
        near = i < len(path) and 1.0 / apart <= sizes[i] / sizes[first] <= apart
        if i - first == most or not near:
            yield slice(first, i)
            first = i


class _Search:
    """The problems that advance together; every array has one row per problem.

    Parameters
    ----------
    kernels, sizes, options, counts
        What they share with all others; see `learn_paths`.
    machines, learners : list
        Theirs, `many` of each path in turn.
    before : _Search, optional
        The problems whose ends are where these start.
    """

    beta: Any
    shared: SharedInverse | None

    def __init__(
        self,
        kernels: ColumnKernels,
        sizes: Array,
        options: BatchOptions,
        counts: Counts,
        machines: list[Any],
        learners: list[Learner],
        many: int,
        before: _Search | None,
    ) -> None:
        self.kernels, self.sizes, self.options, self.counts = kernels, sizes, options, counts
        self.machines, self.learners, self.many = machines, learners, many
        self.backend, self.xp = self.kernels.backend, self.kernels.backend.xp
        self.program = ProgramBatch.of([machine.program for machine in machines], self.backend)
        # An entry takes 32 bytes: its place, two copies in single and two in double precision.
        self.entries = max(min(self.options.entries, self.backend.free_bytes() / 64), len(machines))
        self.tol = learners[0].options.tol
        self.keeps_weights = isinstance(learners[0], FixedWeights)
        self.learns = not self.keeps_weights and self.kernels.n_kernels > 1
        self.best: list[Learned | None] = [None] * len(machines)
        self._start(before)

    # Where it starts ------------------------------------------------------------------------------

    def _start(self, before: _Search | None) -> None:
        B = len(self.machines)
        p, xp = self.program, self.xp
        if before is None:
            self.eta = self._first_weights()
            # Below the solution's C most coefficients are at their bound.
            ends = xp.where(xp.isfinite(p.upper) & xp.isfinite(p.lower), p.upper + p.lower, 0.0)
            beta, self.shared = p.nearest(ends), None
        else:
            # The last problem of each path before: its coefficients grow with the bounds.
            last = [(b // self.many + 1) * before.many - 1 for b in range(B)]
            self.eta, self.shared = before.eta[last], before.shared
            at, old = self.backend.index(np.array(last)), before.program
            room, own = old.upper[at] - old.lower[at], p.upper - p.lower
            grown = xp.where(xp.isfinite(room) & (room > 0), own / room.clip(1e-300), 1.0)
            beta = p.nearest(before.beta[at] * grown)
        values = self.kernels.each(beta)
        self.state = BatchState.at(beta, values)
        V = xp.einsum("bm,mbn->bn", self.backend.asarray(self.eta), values)
        self.state.y = p.target - V - p.intercepts(p.target - V)
        self.beta = beta.clone()
        # Of the weights before: the upper bound, what their step promised, and how much steps are
        # damped.
        self.from_eta, self.upper = self.eta.copy(), np.full(B, np.inf)
        self.promised, self.damping = np.zeros(B), np.zeros(B)

    def _first_weights(self) -> Array:
        """Return the weights to start from: those that are kept, those of a part of the samples, or
        like ones."""
        stack: Any = self.kernels.stack
        first: Any = self.learners[0]
        if self.keeps_weights:
            return np.array(
                [learner.weights for learner in self.learners if isinstance(learner, FixedWeights)]
            )
        known = first.weights_of_subsample(stack, self.machines[0])
        theta = (
            first.options.norm.start(stack.n_kernels)
            if known is None
            else known * first.options.penalties**2
        )
        return np.array([theta / learner.options.penalties**2 for learner in self.learners])

    # The rounds -----------------------------------------------------------------------------------

    def learn(self) -> list[Learned]:
        """Return what was learned, certified; what did not end here is learned alone."""
        left = np.arange(len(self.machines))
        for i in range(self.options.certificates):
            self._advance(left, half=i == 0)
            left = self._certify(left)
            if len(left) == 0:
                break
        for b in left:
            self.counts.alone += 1
            self.best[b] = self._alone(int(b))
        return [one for one in self.best if one is not None]

    def _advance(self, left: Indices, half: bool) -> None:
        """Take rounds until the bounds of all these columns, in the entries' precision, are close
        enough."""
        rho, idle, lowest = None, 0, np.full(len(self.machines), np.inf)
        for _ in range(self.options.rounds):
            if len(left) == 0 or idle == self.options.idle:
                return
            self.counts.rounds += 1
            self.shared = shared = self._sharing(left, rho)
            at = self.backend.index(left)
            program, state, eta = self.program.rows(at), self.state.rows(at), self.eta[left]
            residuals = take_steps(
                self.kernels, program, state, eta, shared, self.options.steps, half
            )
            base, values = state.base, state.base_values
            gaps, balance = self._look(left, program, state, residuals)
            if np.isnan(gaps).any():
                lost = self.backend.index(np.flatnonzero(np.isnan(gaps)))
                state.store(lost, BatchState.at(base[lost], values[:, lost]))
                half = False
            self.state.store(at, state)
            self.beta[at] = state.base
            unbalanced = max(balance, 1.0 / balance) > self.options.unbalanced
            # For a few stragglers a new matrix costs more than their steps.
            rho = (
                shared.rho * balance if unbalanced and 4 * len(left) > len(self.machines) else None
            )
            lower = gaps < 0.9 * lowest[left]
            idle = 0 if lower.any() else idle + 1
            lowest[left] = np.where(lower, gaps, lowest[left])
            left = left[~(gaps <= 0.9 * self.tol)]

    def _sharing(self, left: Indices, rho: float | None) -> SharedInverse:
        """Return the matrix that the columns share, made anew where their weights have left its
        range, or for ρ."""
        eta, shared = self.eta[left], self.shared
        if shared is None:
            # As large as the multipliers are beside the coefficients, most of which are at their
            # bounds, if any.
            program: Any = self.program
            room, target = (program.upper - program.lower).amax(1), program.target
            mean = float(np.mean(self.kernels.stack.combine(eta.mean(axis=0)).diagonal()))
            rho = mean / np.sqrt(float(room.clip(1e-300, 1e6).amax()))
            if bool(self.xp.isfinite(room).all()):
                target = target if program.total is None else target - target.mean(1, keepdim=True)
                size = float((target**2).mean()) ** 0.5
                rho = max(rho, size / float(room.clip(1e-300, None).log().mean().exp()))
        elif rho is None:
            # Steps converge for kernels that exceed the shared one by up to a third.
            beyond = np.maximum(eta.max(axis=0) - 1.3 * shared.weights, 0.0).sum()
            if beyond <= self.options.beyond * shared.weights.sum():
                return shared
            rho = shared.rho
        floor = 0.0 if self.keeps_weights else self.options.floor * eta.max()
        return SharedInverse.of(self.kernels, eta.max(axis=0) + floor, rho)

    def _look(
        self, left: Indices, program: ProgramBatch, state: BatchState, residuals: tuple[Any, Any]
    ) -> tuple[Array, float]:
        """Return the gaps of columns, and by which factor ρ would balance their residuals; move
        their weights."""
        xp, beta = self.xp, program.nearest(state.z)
        at = self._bounds(
            program, beta, state.base_values + self.kernels.each(beta - state.base), self.eta[left]
        )
        free = free_samples(program, at.beta)
        packed = self._fetch(at.numbers, free.sum(1), *residuals)
        counts, primal, dual = packed[:, -3:].T
        worth = self._worth(left, packed[:, :-3])
        settled = self.learns & (worth.own <= self.options.settled * worth.gap)
        most = int(np.sqrt(self.entries / len(left)))
        # What a Newton step may improve: coefficients, where all that are free fit a block, or
        # weights.
        some = np.flatnonzero(~(worth.gap <= 0.9 * self.tol) & ((counts <= most) | settled))
        if len(some):
            # Where blocks are for weights alone, half as many samples stand for all.
            most = int(np.sqrt(self.entries / len(some)))
            most = most if np.any(counts[some] <= most) else most // 2
            which = self.backend.index(some)
            own, mine, known, eta = (
                program.rows(which),
                at.rows(which),
                worth.rows(some),
                self.eta[left[some]],
            )
            rows, step, H, share = self._newton(own, mine, free[which], counts[some], eta, most)
            exact = self.backend.asarray(share == 1, np.bool_)[:, None]
            near = own.nearest(mine.beta.scatter_add(1, rows, xp.where(exact, step, 0.0)))
            polished = self._bounds(own, near, mine.each + self.kernels.each(near - mine.beta), eta)
            width, packed = mine.numbers.shape[1], self._fetch(polished.numbers, H.flatten(1))
            other = self._worth(left[some], packed[:, :width])
            better = other.own < known.own
            take = self.backend.asarray(better, np.bool_)
            mine, known = polished.where(take, mine), other.where(better, known)
            # Where the Newton step is better, the steps go on from it.
            take = take[:, None]
            state.x[which] = xp.where(take, mine.beta, state.x[which])
            state.z[which] = xp.where(take, mine.beta, state.z[which])
            state.y[which] = xp.where(
                take, own.target - mine.values - mine.intercept, state.y[which]
            )
            if self.learns:
                P = self.kernels.n_kernels
                change = self._move_weights(left[some], known, packed[:, width:].reshape(-1, P, P))
                # The multipliers follow the outputs.
                state.y[which] -= xp.einsum("bm,mbn->bn", self.backend.asarray(change), mine.each)
            at.store(which, mine)
            worth.store(some, known)
        state.base, state.base_values = at.beta, at.each
        balance = np.sqrt(np.maximum(primal, 1e-300) / np.maximum(dual, 1e-300))
        return worth.gap, float(np.clip(np.median(balance), 0.1, 10.0))

    def _fetch(self, *numbers: Any) -> Array:
        """Bring numbers of the columns to this process, all at once."""
        columns = [one[:, None] if one.ndim == 1 else one for one in numbers]
        return self.backend.to_numpy(self.xp.cat([one.double() for one in columns], 1))

    def _newton(
        self, program: ProgramBatch, at: _Bounds, free: Any, counts: Array, eta: Array, most: int
    ) -> tuple[Any, ...]:
        """Return free samples, the Newton step on them, ∂²J/∂η² while they stay free, and how many
        each stands for."""
        xp = self.xp
        slope = program.target - at.values - program.ridge * at.beta - at.intercept
        if program.epsilon:
            slope = slope - program.epsilon * xp.sign(at.beta)
        sums, each = program.total is not None, at.each.permute(1, 2, 0)
        right = xp.cat([xp.stack([slope, xp.ones_like(slope)], 2), each], 2)
        rows, answer, share = solve_free_blocks(
            self.kernels, program, free, right, eta, counts, most
        )
        step, ones = answer[:, :, 0], answer[:, :, 1]
        H = free_curvature(
            xp.take_along_dim(each, rows[:, :, None], 1), answer[:, :, 2:], ones if sums else None
        )
        step = keep_sum(step, ones) if sums else step
        return rows, step, H * self.backend.asarray(share)[:, None, None], share

    def _bounds(self, program: ProgramBatch, beta: ArrayOrTensor, each: Any, eta: Array) -> _Bounds:
        """Return what feasible coefficients are worth, whose products with every kernel are
        given."""
        xp = self.xp
        values = xp.einsum("bm,mbn->bn", self.backend.asarray(eta), each)
        intercept = program.intercepts(program.target - values)
        q = (0.5 * xp.einsum("bn,mbn->bm", beta, each)).clip(0.0, None)
        sums = xp.stack([program.linear_value(beta), program.losses(values, intercept)], 1)
        return _Bounds(beta, each, values, intercept, xp.cat([sums, q], 1))

    def _worth(self, left: Indices, numbers: Array) -> _Worth:
        """Return the bounds of columns, and their gaps."""
        linear, losses, q, eta = numbers[:, 0], numbers[:, 1], numbers[:, 2:], self.eta[left]
        quadratic = (eta * q).sum(axis=1)
        upper, dual = quadratic + losses, linear - quadratic
        lower = [self.learners[b].lower_bound(linear[k], q[k], eta[k]) for k, b in enumerate(left)]
        gap = np.array([relative_gap(*both) for both in zip(upper, lower, strict=True)])
        own = np.array([relative_gap(*both) for both in zip(upper, dual, strict=True)])
        return _Worth(gap, own, upper, dual, q)

    def _move_weights(self, left: Indices, worth: _Worth, curvature: Array) -> Array:
        """Take Newton steps on the weights where machines are solved well enough, or shorten and
        damp them.

        Returns the changes.
        """
        changed = self.eta[left].copy()
        for k, b in enumerate(left):
            done = worth.gap[k] <= 0.9 * self.tol or not np.isfinite(worth.gap[k])
            if done or worth.own[k] > self.options.settled * worth.gap[k]:
                continue
            options = self.learners[b].options
            scale = 1.0 / options.penalties**2
            promised = self.promised[b]
            if worth.dual[k] > self.upper[b]:
                # Whatever the machine has left to gain, these weights are worse than those before:
                # the next are nearer.
                self.damping[b] = max(4.0 * self.damping[b], 0.05)
                self.promised[b] = 0.25 * promised
                between = self.from_eta[b] + 0.25 * (self.eta[b] - self.from_eta[b])
                changed[k] = options.norm.retract(between / scale) * scale
                continue
            if (
                self.upper[b] - worth.dual[k] < 0.25 * promised
            ):  # the step gained little, at the most
                self.damping[b] = max(4.0 * self.damping[b], 0.05)
            elif self.upper[b] - worth.upper[k] > 0.75 * promised:
                self.damping[b] *= 0.25
            self.upper[b], self.from_eta[b] = worth.upper[k], self.eta[b]
            theta, slopes = self.eta[b] / scale, worth.q[k] * scale
            H = curvature[k] * np.outer(scale, scale) + np.diag(
                self.damping[b] * steepest_curvature(theta, slopes)
            )
            new = options.norm.retract(theta + options.norm.newton_direction(theta, slopes, H))
            self.promised[b] = slopes @ (new - theta) - 0.5 * (new - theta) @ H @ (new - theta)
            changed[k] = new * scale
        change = changed - self.eta[left]
        self.eta[left] = changed
        return change

    # The certificate ------------------------------------------------------------------------------

    def _certify(self, left: Indices) -> Indices:
        """Certify columns from exact products; return those whose gap is too large, which go on
        from these."""
        at = self.backend.index(left)
        beta, program, eta = self.beta[at], self.program.rows(at), self.eta[left]
        exact = self._bounds(program, beta, self.kernels.exact(beta), eta)
        V, coefficients, sums, constants = map(
            self.backend.to_numpy, (exact.values, beta, exact.numbers, exact.intercept[:, 0])
        )
        entries, loose = Entries(self.kernels.stack, self.sizes), []
        for k, b in enumerate(left):
            solution = Solution(coefficients[k], float(constants[k]), V[k], np.nan, np.inf, 0)
            rough = Learned(eta[k], solution, np.inf, np.inf, 0, [Iteration(np.inf, np.inf)])
            forms = known_forms(self.sizes, coefficients[k], eta[k], V[k], sums[k, 2:])
            problem = KnownForms(entries, self.machines[b], self.learners[b], forms)
            one = rough.with_certificate(problem.certificate(eta[k], solution))
            best = self.best[b]
            if best is None or one.gap < best.gap:
                self.best[b] = one
            if not one.gap <= self.tol / AIM:
                loose.append(b)
        self.state.base[at], self.state.base_values[:, at] = beta, exact.each
        return np.array(loose, dtype=np.intp)

    def _alone(self, b: int) -> Learned:
        """Learn one problem by itself, from where it stands."""
        machine, learner, best = self.machines[b], self.learners[b], self.best[b]
        assert best is not None
        stack: Any = self.kernels.stack
        start = Start(best.weights, best.solution.beta) if np.isfinite(best.gap) else Start()
        one = learner.learn(stack, machine, start).certified(
            Entries(stack, self.sizes), machine, learner
        )
        return best if best.gap <= one.gap else one


@dataclass
class _Bounds(Columns):
    """What feasible coefficients are worth: K_mβ, Kβ, the intercepts, and ⟨t, β⟩ …, the losses and
    ½βᵀK_mβ."""

    beta: Any
    each: Any
    values: Any
    intercept: Any
    numbers: Any
    by_kernel = ("each",)


@dataclass
class _Worth(Columns):
    """Relative gaps of columns, those of the machines alone, upper bounds, the machines' dual
    values, and ½βᵀK_mβ."""

    gap: Array
    own: Array
    upper: Array
    dual: Array
    q: Array
