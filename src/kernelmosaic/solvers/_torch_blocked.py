"""Ascent in blocks for a kernel matrix on a device: β and its slopes live there, only small blocks come to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelmosaic.gram._torch_blocks import take_block
from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.solvers._torch_newton import FreeBlock
from kernelmosaic.solvers.program import Program, Solution, Vector, certify, relative_gap
from kernelmosaic.solvers.smo import initial_point

#: A round's samples solve their program to this share of the violation they came with.
_INNER = 0.1
#: Most pair steps a sample of the block in one round.
_STEPS = 10
#: Samples a round: this share of all, within limits that the host solves as fast as the device does the rest.
_BLOCK_SHARE = 1 / 12
_LEAST_BLOCK, _LARGEST_BLOCK = 1024, 4096
#: Entries gathered at once for a product.
_CHUNK = 2**26
#: The search for the intercept: so many candidates at once, so often. Few large steps: each waits for the device.
_CANDIDATES, _NARROWINGS = 32, 8
#: How often a certificate may disappoint before rounding is blamed.
_PATIENCE = 4
#: Rounds in a row that raise the value by no more than this share of it before rounding is blamed.
_IDLE = 5
_ROUNDING = 1e-14
#: Newton steps are tried on at most this many free samples.
_NEWTON_FREE = 40_000
#: They wait longer and longer, up to this many rounds, while a round gains more than they do.
_LONGEST_WAIT = 16


@dataclass(frozen=True)
class Look:
    """Where the ascent stands: slopes on the device, and what one transfer tells the host of them."""

    rising: Tensor
    falling: Tensor
    violation: float
    dual: float
    gap: float


class BlockedAscent:
    """The state of one solve: β and the residual t − Kβ − ρβ, on the device in double precision.

    Parameters
    ----------
    gram : DeviceGram
        The kernel.
    program : Program
        The rest of the problem.
    warm_start : ndarray of shape (n,), optional
        Any β.
    block : int, optional
        Samples a round.
    """

    def __init__(
        self, gram: DeviceGram, program: Program, warm_start: Vector | None = None, block: int | None = None
    ) -> None:
        from kernelmosaic.solvers import _numba_smo

        if gram.shape != (program.n_samples,) * 2:
            raise ValueError(f"K has shape {gram.shape}, the program {program.n_samples} samples.")
        self.climb = _numba_smo.ascend_singles if program.total is None else _numba_smo.ascend_pairs
        self.gram, self.program = gram, program
        self.K: Tensor = gram.matrix
        self.block = min(program.n_samples, default_block(program.n_samples) if block is None else block)
        self.target, self.lower, self.upper, self.ridge = map(
            self._tensor, (program.target, program.lower, program.upper, program.ridge)
        )
        self.beta = self._tensor(initial_point(program) if warm_start is None else program.feasible(warm_start))
        self.residual = self.target - self.ridge * self.beta
        self._subtract_kernel(torch.nonzero(self.beta)[:, 0], self.beta[self.beta != 0])
        self.reach_beyond = _beyond(program)
        self.has_ridge = bool(program.ridge.any())
        self.n_iter = self.n_rounds = self.n_jumps = 0
        self.wait = self.waited = 0
        self.buffer: Tensor | None = None

    def reach(self, tol: float, limit: int) -> Solution:
        """Climb until the certified gap is at most `tol`, the rounds are used up, or rounding hides what is left."""
        best: Solution | None = None
        disappointed = idle = 0
        before = -np.inf
        look = self.look()
        while True:
            if not np.isfinite(look.dual):
                raise ValueError(
                    "K holds NaN or infinity: check the kernels, their weights and penalties; normalize='trace' puts "
                    "kernels on one scale."
                )
            idle = 0 if look.dual > before + _ROUNDING * abs(before) else idle + 1
            before = look.dual
            climbs = look.gap > tol and self.n_rounds < limit and idle < _IDLE
            there = self.advance(look, tol) if climbs else None
            if there is not None:
                look = there
                continue
            solution = self.certified()
            look, idle = self.look(), 0
            best = solution if best is None or solution.gap < best.gap else best
            disappointed += 1
            if best.gap <= tol or self.n_rounds >= limit or disappointed >= _PATIENCE:
                return best

    # Where things stand --------------------------------------------------------------------------------------------

    def look(self) -> Look:
        """Compute everyone's slopes, and the gap with a good intercept."""
        beta, e = self.beta, self.program.epsilon
        infinite = torch.full((), torch.inf, dtype=torch.float64, device=self.K.device)
        up = self.residual - e * (2.0 * (beta >= 0).double() - 1.0)
        down = self.residual - e * (2.0 * (beta > 0).double() - 1.0)
        rising = torch.where(beta < self.upper, up, -infinite)
        falling = torch.where(beta > self.lower, down, infinite)
        plain = type(self.program) is Program
        values = self.target - self.residual - self.ridge * beta
        quadratic = 0.5 * (beta @ values)
        linear = self.target @ beta - e * beta.abs().sum() - 0.5 * (self.ridge @ beta**2)
        intercept = self._intercept() if plain else 0.5 * (rising.max() + falling.min())
        primal = quadratic + self._losses(intercept) if plain else quadratic
        numbers = torch.stack([rising.max(), falling.min(), linear - quadratic, primal, intercept]).tolist()
        if not plain:  # a program with an idea of its own of its primal
            numbers[3] = self.program.primal_value(numbers[3], values.cpu().numpy(), numbers[4])
        highest, lowest, dual, primal_value, _ = numbers
        free_sum = self.program.total is None
        violation = max(highest, -lowest, 0.0) if free_sum else highest - lowest
        return Look(rising, falling, violation, dual, relative_gap(primal_value, dual, self.noise()))

    def _conjugate(self, residual: Tensor) -> Tensor:
        """As `Program.conjugate_argmax`."""
        p = self.program
        if not self.has_ridge:
            zero = torch.zeros_like(residual)
            return torch.where(residual > p.epsilon, self.upper, torch.where(residual < -p.epsilon, self.lower, zero))
        excess = torch.sign(residual) * (residual.abs() - p.epsilon).clamp(min=0.0)
        steep = torch.where(excess == 0, excess, excess * torch.inf)
        u = torch.where(self.ridge > 0, excess / self.ridge, steep)
        return torch.minimum(torch.maximum(u, self.lower), self.upper)

    def _intercept(self) -> Tensor:
        """Return about the intercept with the smallest losses: where the conjugate's u sum to the total."""
        if self.program.total is None:
            return torch.zeros((), dtype=torch.float64, device=self.K.device)
        z = self.residual + self.ridge * self.beta
        low, high = z.min() - self.reach_beyond, z.max() + self.reach_beyond
        shares = torch.linspace(0.0, 1.0, _CANDIDATES, dtype=torch.float64, device=self.K.device)
        for _ in range(_NARROWINGS):
            candidates = low + shares * (high - low)
            # The sum falls with the intercept, so counting those above the total says where it crosses.
            above = (self._conjugate(z - candidates[:, None]).sum(dim=1) > self.program.total).sum()
            ends = torch.stack([above - 1, above]).clamp(0, _CANDIDATES - 1)
            # Picked on the device: a number as an index would have to come to the host first.
            low, high = candidates.index_select(0, ends).unbind()
        return 0.5 * (low + high)

    def _losses(self, intercept: Tensor) -> Tensor:
        """What the primal adds to ½βᵀKβ."""
        residual = self.residual + self.ridge * self.beta - intercept
        u = self._conjugate(residual)
        losses = u * residual - self.program.epsilon * u.abs() - 0.5 * self.ridge * u**2
        return losses.sum() + intercept * (self.program.total or 0.0)

    def noise(self) -> float:
        """What a value of zero may come out as; see `solve_smo`."""
        if self.program.target.any():
            return 0.0
        orthogonal = float(self.K.diagonal().double() @ self.beta**2)
        return float(np.finfo(self.gram.dtype).eps * np.sqrt(self.program.n_samples) * orthogonal)

    def certified(self) -> Solution:
        """Certify β with Kβ in double precision, which the residual takes over."""
        beta: NDArray[np.float64] = self.beta.cpu().numpy().copy()
        support = np.flatnonzero(beta)
        if self.gram.exact is None:
            self.residual = self.target - self.ridge * self.beta
            self._subtract_kernel(torch.nonzero(self.beta)[:, 0], self.beta[self.beta != 0])
            values = (self.target - self.residual - self.ridge * self.beta).cpu().numpy()
        else:
            values = self.gram.exact(support, beta[support])
            self.residual = self.target - self._tensor(values) - self.ridge * self.beta
        return certify(self.program, beta, values, self.n_iter, self.noise())

    # Steps ---------------------------------------------------------------------------------------------------------

    def advance(self, look: Look, tol: float) -> Look | None:
        """Take a round, then Newton steps if they are due; return where that leads, None if nothing moved."""
        steps = self.round(look)
        after = self.look()
        if steps and (self.waited < self.wait or after.gap <= tol):
            self.waited += 1
            return after
        if not self.jump():
            return after if steps else None
        there = self.look()
        # What a round gains is what Newton steps must gain to come again soon.
        worse = there.dual - after.dual < after.dual - look.dual
        self.wait = min(2 * self.wait + 1, _LONGEST_WAIT) if worse else 0
        self.waited = 0
        return there

    def round(self, look: Look) -> int:
        """Solve the program of those with most to gain, everyone else standing still; return the steps taken."""
        rows = self._violators(look)
        numbers, beta, residual = torch.stack([rows.double(), self.beta[rows], self.residual[rows]]).cpu().numpy()
        at = numbers.astype(np.intp)
        p, before = self.program, beta.copy()
        beta, residual = np.ascontiguousarray(beta), np.ascontiguousarray(residual)
        steps, _ = self.climb(
            self._to_host(take_block(self.K, rows, rows)),
            p.ridge[at],
            beta,
            residual,
            p.lower[at],
            p.upper[at],
            p.epsilon,
            _INNER * look.violation,
            _STEPS * len(at),
        )
        moved = np.flatnonzero(beta != before)
        self.place(rows[self._index(moved)], self._tensor(beta[moved]))
        self.n_iter += int(steps)
        self.n_rounds += 1
        return int(steps)

    def _violators(self, look: Look) -> Tensor:
        """Return those with most to gain: half by growing, half by shrinking, if the sum must be kept."""
        if self.program.total is None:
            return torch.topk(torch.maximum(look.rising, -look.falling), self.block, sorted=False).indices
        half = (self.block + 1) // 2
        up = torch.topk(look.rising, half, sorted=False).indices
        # Those already taken must come after all who may not shrink.
        falling = look.falling.clamp(max=torch.finfo(torch.float64).max)
        falling[up] = torch.inf
        down = torch.topk(falling, self.block - half, largest=False, sorted=False).indices
        return torch.cat([up, down])

    def jump(self) -> int:
        """Take Newton steps on the free samples, and return how many."""
        p = self.program
        inside = (self.beta > self.lower) & (self.beta < self.upper)
        free = torch.nonzero(inside & (self.beta != 0) if p.epsilon else inside)[:, 0]
        if not 2 <= len(free) <= _NEWTON_FREE:
            return 0
        beta, lower, upper = self.beta[free], self.lower[free], self.upper[free]
        if p.epsilon:  # none may change its sign: the slope jumps there
            lower = torch.where(beta > 0, lower.clamp(min=0.0), lower)
            upper = torch.where(beta < 0, upper.clamp(max=0.0), upper)
        slope = self.residual[free] - p.epsilon * torch.sign(beta)
        block = FreeBlock(self.K, free, beta, slope, lower, upper, self.ridge[free], p.total is not None)
        new, steps = block.ascend()
        moved = new != beta
        self.place(free[moved], new[moved])
        self.n_jumps += steps
        self.n_iter += steps
        return steps if bool(moved.any()) else 0

    def place(self, rows: Tensor, beta: Tensor) -> None:
        """Give coefficients their new values and bring everyone's residual up to date."""
        changes = beta - self.beta[rows]
        self.beta[rows] = beta
        self.residual[rows] -= self.ridge[rows] * changes
        self._subtract_kernel(rows, changes)

    def _subtract_kernel(self, rows: Tensor, changes: Tensor) -> None:
        """residual −= K[:, rows] changes, entries as they are stored and sums in double precision."""
        n = self.K.shape[0]
        height = max(1, _CHUNK // n)
        if len(rows) > n // 2:  # whole rows in order are faster than most of them picked out
            full = torch.zeros_like(self.beta)
            full[rows] = changes
            for i in range(0, n, height):
                self.residual[i : i + height] -= self.K[i : i + height].double() @ full
            return
        for i in range(0, len(rows), height):
            self.residual -= changes[i : i + height] @ self.K[rows[i : i + height]].double()

    # Between host and device ---------------------------------------------------------------------------------------

    def _to_host(self, block: Tensor) -> NDArray[Any]:
        """Copy a block through memory that the device can write to at full speed."""
        if block.device.type == "cpu":
            return np.asarray(block.numpy())
        if self.buffer is None or self.buffer.shape != block.shape:
            self.buffer = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
        self.buffer.copy_(block)
        return np.asarray(self.buffer.numpy())

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.as_tensor(np.array(values, dtype=np.float64), device=self.K.device)

    def _index(self, values: NDArray[Any]) -> Tensor:
        return torch.as_tensor(values, device=self.K.device)


def default_block(n_samples: int) -> int:
    """Return how many samples a round takes."""
    return int(np.clip(_BLOCK_SHARE * n_samples, _LEAST_BLOCK, _LARGEST_BLOCK))


def _beyond(program: Program) -> float:
    """Return how far outside the residuals the best intercept may lie."""
    bound = np.maximum(np.abs(program.lower), np.abs(program.upper))
    bound = np.where(np.isfinite(bound), bound, abs(program.total or 0.0))
    return float(program.epsilon + np.max(program.ridge * bound, initial=0.0))
