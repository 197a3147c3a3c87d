"""Paths of like problems on one stack, those of all folds and of neighbouring values learned together on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram.columns import ColumnKernels
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.certificate import Iteration, Learned, Start, known_forms
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.problem import Learner
from kernelmosaic.solvers.batch import BatchState, ProgramBatch, SharedInverse, solve_free_blocks, take_steps
from kernelmosaic.solvers.program import Solution, relative_gap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BatchOptions:
    """How paths are followed together.

    Attributes
    ----------
    columns : int
        About so many problems advance together: neighbouring values of all paths.
    steps : int
        Of alternating directions between two looks at the bounds.
    rounds : int
        Most looks at the bounds.
    free : int
        Blocks of the free samples have at most so many: of more, some stand for all.
    settled : float
        Share of the whole gap below which the machine's own lets the weights move.
    unbalanced : float
        The primal and the dual residual may be apart by this factor before ρ changes.
    """

    columns: int = 32
    steps: int = 10
    rounds: int = 60
    free: int = 1024
    settled: float = 0.3
    unbalanced: float = 5.0


@dataclass
class Counts:
    """What the paths took: products of a kernel matrix with a column, matrices inverted, waits for the device."""

    products: int = 0
    inverses: int = 0
    waits: int = 0
    steps: int = 0
    rounds: int = 0
    alone: int = 0


def learn_paths(
    stack: StoredStack,
    sizes: Array,
    paths: Sequence[Sequence[Any]],
    learners: Sequence[Learner],
    options: BatchOptions | None = None,
    counts: Counts | None = None,
) -> list[list[Learned]]:
    """Return what is learned for the machines of every path, with the certificates of `Learned.certified`.

    Parameters
    ----------
    stack : StoredStack
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
    kernels = ColumnKernels(stack)
    search: _Search | None = None
    found: list[list[Learned]] = [[] for _ in paths]
    width = max(1, options.columns // len(paths))
    for first in range(0, len(paths[0]), width):
        machines = [machine for path in paths for machine in path[first : first + width]]
        many = len(machines) // len(paths)
        each = [learner for learner in learners for _ in range(many)]
        search = _Search(kernels, sizes, machines, each, options, counts, search, many)
        for column, one in enumerate(search.learn()):
            found[column // many].append(one)
    counts.products += kernels.n_products
    return found


class _Search:
    """The problems that advance together; every array has one row per problem."""

    def __init__(
        self,
        kernels: ColumnKernels,
        sizes: Array,
        machines: list[Any],
        learners: list[Learner],
        options: BatchOptions,
        counts: Counts,
        before: _Search | None,
        many: int,
    ) -> None:
        self.kernels, self.sizes, self.machines, self.learners = kernels, sizes, machines, learners
        self.options, self.counts, self.many = options, counts, many
        self.backend, self.xp = kernels.backend, kernels.backend.xp
        self.program = ProgramBatch.of([machine.program for machine in machines], self.backend)
        self.tol = learners[0].options.tol
        self.keeps_weights = isinstance(learners[0], FixedWeights)
        self.best: list[Learned | None] = [None] * len(machines)
        self._start(before)

    # Where it starts -----------------------------------------------------------------------------------------------

    def _start(self, before: _Search | None) -> None:
        B = len(self.machines)
        p, xp = self.program, self.xp
        if before is None:
            self.eta = np.array([self._first_weights(learner) for learner in self.learners])
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
        zero = xp.zeros_like(beta)
        values = self.kernels.each(beta)
        self.state = BatchState(beta, beta.clone(), zero, beta.clone(), values)
        V = xp.einsum("bm,mbn->bn", self.backend.asarray(self.eta), values)
        self.state.y = p.target - V - p.intercepts(p.target - V)
        self.beta = beta.clone()
        self.lowest, self.from_eta, self.damping = np.full(B, np.inf), self.eta.copy(), np.zeros(B)

    def _first_weights(self, learner: Any) -> Array:
        if self.keeps_weights:
            return np.asarray(learner.weights)
        return np.asarray(learner.options.norm.start(self.kernels.n_kernels) / learner.options.penalties**2)

    # The rounds ----------------------------------------------------------------------------------------------------

    def learn(self) -> list[Learned]:
        """Return what was learned, certified; what did not end here is learned alone."""
        left = np.arange(len(self.machines))
        for _ in range(4):
            self._advance(left)
            left = self._certify(left)
            if len(left) == 0:
                break
        for b in left:
            self.counts.alone += 1
            self.best[b] = self._alone(b)
        return [one for one in self.best if one is not None]

    def _advance(self, left: NDArray[np.intp]) -> None:
        """Take rounds until the bounds of all these columns, in the entries' precision, are close enough."""
        rho = None
        for _ in range(self.options.rounds):
            if len(left) == 0:
                return
            self.counts.rounds += 1
            self._share(left, rho)
            at = self.backend.index(left)
            program, state, eta = self.program.rows(at), self.state.rows(at), self.eta[left]
            residuals = take_steps(self.kernels, program, state, eta, self.shared, self.options.steps)
            self.counts.steps += self.options.steps
            gaps, balance = self._look(left, at, program, state, residuals)
            self.state.store(at, state)
            self.beta[at] = state.base
            rho = (
                self.shared.rho * balance
                if not 1 / self.options.unbalanced < balance**2 < self.options.unbalanced
                else None
            )
            left = left[~(gaps <= 0.9 * self.tol)]

    def _share(self, left: NDArray[np.intp], rho: float | None) -> None:
        """Make the matrix that the columns share anew where their weights, or ρ, have left its range."""
        eta, shared = self.eta[left], self.shared
        if shared is None:
            # As large as the multipliers are beside the coefficients.
            bounds = float(abs(self.program.upper - self.program.lower).clip(None, 1e6).amax())
            rho = float(np.mean(self.kernels.stack.combine(eta.mean(axis=0)).diagonal())) / np.sqrt(bounds)
        elif rho is None and np.all(eta <= 1.2 * shared.weights + 0.02 * eta.max()):
            return
        floor = 0.01 * eta.max() if not self.keeps_weights else 0.0
        self.shared = SharedInverse.of(self.kernels, eta.max(axis=0) + floor, rho or shared.rho)
        self.counts.inverses += 1

    def _look(
        self, left: NDArray[np.intp], at: Any, program: ProgramBatch, state: BatchState, residuals: tuple[Any, Any]
    ) -> tuple[Array, float]:
        """Return the gaps of columns, and by which factor ρ would balance their residuals; move their weights."""
        xp, kernels, eta = self.xp, self.kernels, self.eta[left]
        weights = self.backend.asarray(eta)
        plain = self._bounds(program, state, program.nearest(state.z), weights)
        rows, answer, share = self._answers(program, plain, eta)
        P = kernels.n_kernels
        # The Newton step on the free coefficients, and how these answer to the weights.
        ones = answer[:, :, 1]
        step = answer[:, :, 0]
        total = ones.sum(1, keepdim=True).clip(1e-300)
        if program.total is not None:
            step = step - step.sum(1, keepdim=True) / total * ones
        own = xp.take_along_dim(plain.each.permute(1, 2, 0), rows[:, :, None], 1)
        H = own.transpose(1, 2) @ answer[:, :, 2:]
        if program.total is not None:
            shift = (own.transpose(1, 2) @ ones[:, :, None])[:, :, 0]
            H = H - shift[:, :, None] * shift[:, None, :] / total[:, :, None]
        H = H * share[:, None, None]
        moved = plain.beta.scatter_add(1, rows, step * (share == 1)[:, None])
        polished = self._bounds(program, state, program.nearest(moved), weights, plain)
        numbers = [
            plain.numbers,
            polished.numbers,
            residuals[0][:, None],
            residuals[1][:, None],
            H.reshape(len(left), -1),
        ]
        packed = self.backend.to_numpy(xp.cat(numbers, 1))
        self.counts.waits += 1
        width = P + 2
        bounds = [self._gaps(left, packed[:, k * width : (k + 1) * width]) for k in (0, 1)]
        primal, dual = packed[:, 2 * width], packed[:, 2 * width + 1]
        curvature = packed[:, 2 * width + 2 :].reshape(len(left), P, P)
        better = bounds[1][1] < bounds[0][1]
        take = self.backend.index(better)[:, None]
        beta = xp.where(take, polished.beta, plain.beta)
        values = xp.where(take, polished.values, plain.values)
        # Where the Newton step is better, the steps go on from it.
        state.x, state.z = xp.where(take, beta, state.x), xp.where(take, beta, state.z)
        state.y = xp.where(take, program.target - values - polished.intercept, state.y)
        gap, own_gap, upper, dual_value, q = (
            np.where(better.reshape(-1, *[1] * (one[0].ndim - 1)), one[1], one[0]) for one in zip(*bounds, strict=True)
        )
        each = xp.where(take[None], polished.each, plain.each)
        state.base, state.base_values = beta, each
        if not self.keeps_weights:
            self._move_weights(left, gap, own_gap, upper, dual_value, q, curvature, state, each, values)
        balance = float(np.median(np.sqrt(np.maximum(primal, 1e-300) / np.maximum(dual, 1e-300))))
        return gap, float(np.clip(balance, 0.1, 10.0))

    def _answers(self, program: ProgramBatch, at: _Bounds, eta: Array) -> tuple[Any, Any, Any]:
        """Return what the free blocks' inverses make of the slopes, of ones and of K_mβ."""
        xp = self.xp
        slope = program.target - at.values - program.ridge * at.beta - at.intercept
        if program.epsilon:
            slope = slope - program.epsilon * xp.sign(at.beta)
        right = xp.cat([xp.stack([slope, xp.ones_like(slope)], 2), at.each.permute(1, 2, 0)], 2)
        self.counts.waits += 1
        return solve_free_blocks(self.kernels, program, at.beta, right, eta, self.options.free)

    def _bounds(
        self, program: ProgramBatch, state: BatchState, beta: Any, weights: Any, near: _Bounds | None = None
    ) -> _Bounds:
        """Return what feasible coefficients are worth; products are those of the difference from what is known."""
        xp = self.xp
        base, known = (state.base, state.base_values) if near is None else (near.beta, near.each)
        each = known + self.kernels.each(beta - base)
        values = xp.einsum("bm,mbn->bn", weights, each)
        intercept = program.intercepts(program.target - values)
        q = (0.5 * xp.einsum("bn,mbn->bm", beta, each)).clip(0.0, None)
        losses = program.losses(values, intercept)
        numbers = xp.cat([program.linear_term(beta)[:, None], losses[:, None], q], 1)
        return _Bounds(beta, each, values, intercept, numbers)

    def _gaps(self, left: NDArray[np.intp], numbers: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Return the gaps, the machines' own gaps, the upper bounds, the machines' dual values and the q of columns."""
        linear, losses, q, eta = numbers[:, 0], numbers[:, 1], numbers[:, 2:], self.eta[left]
        quadratic = (eta * q).sum(axis=1)
        upper, dual = quadratic + losses, linear - quadratic
        lower = [self.learners[b].lower_bound(linear[k], q[k], eta[k]) for k, b in enumerate(left)]
        gap = np.array([relative_gap(*both) for both in zip(upper, lower, strict=True)])
        own = np.array([relative_gap(*both) for both in zip(upper, dual, strict=True)])
        return gap, own, upper, dual, q

    def _move_weights(
        self,
        left: NDArray[np.intp],
        gap: Array,
        own: Array,
        upper: Array,
        dual: Array,
        q: Array,
        curvature: Array,
        state: BatchState,
        each: Any,
        values: Any,
    ) -> None:
        """Take Newton steps on the weights where machines are solved well enough, or go back and damp the next."""
        changed = self.eta[left].copy()
        for k, b in enumerate(left):
            if gap[k] <= 0.9 * self.tol or own[k] > self.options.settled * gap[k]:
                continue
            options = self.learners[b].options
            scale = 1.0 / options.penalties**2
            if dual[k] > self.lowest[b]:
                # Whatever the machine has left to gain, these weights are worse than those before: back to them.
                self.damping[b] = max(4.0 * self.damping[b], 0.05)
                self.lowest[b], changed[k] = np.inf, self.from_eta[b]
                continue
            self.damping[b] *= 0.25 if np.isfinite(self.lowest[b]) else 1.0
            self.lowest[b], self.from_eta[b] = upper[k], self.eta[b]
            theta, slopes = self.eta[b] / scale, q[k] * scale
            # A slope falls at most with the power 2 of θ when only the kernel's own weight changes.
            steepest = 2.0 * slopes / np.maximum(theta, 1e-3 / len(theta))
            H = curvature[k] * np.outer(scale, scale) + np.diag(self.damping[b] * steepest)
            theta = theta + options.norm.newton_direction(theta, slopes, H)
            changed[k] = options.norm.retract(theta) * scale
        moved = np.flatnonzero(np.any(changed != self.eta[left], axis=1))
        if len(moved):
            at, new = self.backend.index(moved), self.backend.asarray(changed[moved])
            fresh = self.xp.einsum("bm,mbn->bn", new, each[:, at])
            state.y[at] -= fresh - values[at]
            self.eta[left] = changed

    # The certificate -----------------------------------------------------------------------------------------------

    def _certify(self, left: NDArray[np.intp]) -> NDArray[np.intp]:
        """Certify columns from exact products; return those whose gap is too large, which go on from these."""
        xp, at = self.xp, self.backend.index(left)
        beta, program, eta = self.beta[at], self.program.rows(at), self.eta[left]
        each = self.kernels.exact(beta)
        values = xp.einsum("bm,mbn->bn", self.backend.asarray(eta), each)
        intercept = program.intercepts(program.target - values)
        q = (0.5 * xp.einsum("bn,mbn->bm", beta, each)).clip(0.0, None)
        V, coefficients, forms, constants = map(self.backend.to_numpy, (values, beta, q, intercept[:, 0]))
        self.counts.waits += 1
        loose = []
        for k, b in enumerate(left):
            solution = Solution(coefficients[k], float(constants[k]), V[k], np.nan, np.inf, 0)
            rough = Learned(eta[k], solution, np.inf, np.inf, 0, [Iteration(np.inf, np.inf)])
            known = known_forms(self.sizes, coefficients[k], eta[k], V[k], forms[k])
            one = rough.proved(known, self.machines[b], self.learners[b])
            best = self.best[b]
            if best is None or one.gap < best.gap:
                self.best[b] = one
            if not one.gap <= self.tol:
                loose.append(b)
        self.state.base[at], self.state.base_values[:, at] = beta, each
        return np.array(loose, dtype=np.intp)

    def _alone(self, b: int) -> Learned:
        """Learn one problem by itself, from where it stands."""
        machine, learner, best = self.machines[b], self.learners[b], self.best[b]
        assert best is not None
        stack: Any = self.kernels.stack
        found = learner.learn(stack, machine, Start(best.weights, best.solution.beta))
        one = found.certified(stack, self.sizes, machine, learner)
        return one if one.gap < best.gap else best


@dataclass
class _Bounds:
    """What feasible coefficients are worth: K_mβ, Kβ, the intercepts, and ⟨t, β⟩ …, the losses and ½βᵀK_mβ."""

    beta: Any
    each: Any
    values: Any
    intercept: Any
    numbers: Any
