"""C of a 2-norm slack learned with the weights: the identity matrix as one more kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import AnyArray, ArrayOrTensor
from kernelmosaic.gram import GramStack
from kernelmosaic.gram.stack import Rows
from kernelmosaic.kernels.base import Block
from kernelmosaic.learning.certificate import certify
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.problem import Learned, Learner, Options
from kernelmosaic.learning.start import Start
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import Program
from kernelmosaic.solvers import certify as certify_solution
from kernelmosaic.solvers.program import Vector

#: Every kernel carries this much of the identity, so that even without a weight on it a machine has a solution.
_FLOOR = 1e-6


@dataclass(frozen=True)
class LearnedWithC(Learned):
    """Weights that obey the norm's rule, with the C they were learned with.

    Attributes
    ----------
    C : float
        As a factor of the machine's own: with it and these weights the machine has this solution.
    joint : Learned
        The same with the identity as the last kernel, which is what was learned.
    """

    C: float = np.nan
    joint: Any = None


class LearnedC(Learner):
    """Minimise over η ≥ 0, Σ d_m² η_m + η_0 = 1 the value of the hard-margin machine on Σ η_m K_m + η_0 I.

    The identity is the kernel of a 2-norm slack: with weights rescaled to obey Σ d_m² η_m = 1 the same function is that
    of the machine with C = (1 − η_0) / η_0. The identity counts as a kernel of mean diagonal one and penalty
    one, as all do that are normalised. `objective` is the value of the joint problem, in which C is not given.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui and Jordan (2004), section 4.4; Ye, Ji and Chen (2008), "Multi-class
    discriminant kernel learning via convex programming", where it is called SM2 with C learned.
    """

    norm_needs = ("sums_to_one",)
    machine_needs = ("has_one_output", "has_labels")

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> LearnedWithC:
        """Learn for a machine with 2-norm slack, whatever its C; of the start it takes the coefficients."""
        if not machine.has_labels:
            raise ValueError("C='learn' serves machines that tell two classes apart; give C as a number.")
        if not self.options.norm.sums_to_one:
            raise ValueError("C='learn' serves norm=1: the identity shares the sum of the weights; give C as a number.")
        hard = HardMargin(machine.program)
        joined = WithIdentity(stack, hard.diagonal)
        found = Newton(self.joint_options())._learn(joined, hard, Start(beta=start.beta))
        if not np.isfinite(found.objective):
            raise ValueError(
                "C='learn': rounding hides the margin, since the kernels are on another scale than the slack's unit "
                "matrix; use normalize='trace', which puts kernels on one scale, or give C as a number."
            )
        return self.soften(found, joined.share(found.weights), machine.program, hard)

    def joint_options(self) -> Options:
        """Return the options of the problem with the identity as its last kernel."""
        return replace(self.options, penalties=np.append(self.options.penalties, 1.0))

    def soften(self, found: Learned, share: float, soft: Program, hard: HardMargin) -> LearnedWithC:
        """Return the same function as that of a machine with slack whose weights obey the norm's rule."""
        kept = float(self.options.penalties**2 @ found.weights[:-1])
        if not kept > 0:
            raise ValueError(
                "C='learn' gave all weight to the slack: no kernel tells the classes apart; give C as a number."
            )
        beta = found.solution.beta
        # Dividing the weights and multiplying β by the same number leaves the function as it is.
        program = replace(soft, ridge=hard.diagonal * share / kept)
        values = found.solution.values - share * hard.diagonal * beta
        solution = certify_solution(program, kept * beta, values, found.solution.n_iter)
        weights, C = found.weights[:-1] / kept, kept * hard.mean / share
        return LearnedWithC(
            weights, solution, found.objective, found.gap, found.n_solves, found.history, C=C, joint=found
        )


def certify_with_C(
    stack: GramStack, sizes: NDArray[np.float64], machine: Machine, learner: Any, learned: LearnedWithC
) -> LearnedWithC:
    """Return what was learned with the objective and the gap that the problem with the identity proves."""
    hard = HardMargin(machine.program)
    joined = WithIdentity(stack, hard.diagonal)
    each = np.vstack([sizes + _FLOOR * hard.diagonal, hard.diagonal])
    certified = certify(joined, each, hard, Newton(learner.joint_options()), learned.joint)
    soft: LearnedWithC = learner.soften(certified, joined.share(certified.weights), machine.program, hard)
    return soft


class HardMargin(Machine):
    """The machine without slack: min ½‖w‖² subject to yᵢ f(xᵢ) ≥ 1.

    Parameters
    ----------
    soft : Program
        The program with 2-norm slack whose ridge, up to its mean, is the identity.
    """

    objective_scale = 2.0
    has_labels = True
    # Without slack it is the few samples nearest to the others' side that count.
    can_be_subsampled = False

    def __init__(self, soft: Program) -> None:
        if not np.all(soft.ridge > 0) or np.any(np.isfinite(np.where(soft.target > 0, soft.upper, soft.lower))):
            raise ValueError("C='learn' needs slack=2: only the 2-norm slack is a kernel of its own.")
        self.mean = float(soft.ridge.mean())
        self.diagonal = soft.ridge / self.mean
        self.program = MarginProgram(soft.target, soft.lower, soft.upper, np.zeros(soft.n_samples), total=soft.total)


@dataclass(frozen=True)
class MarginProgram(Program):
    """The dual of a machine without slack, whose primal values come from scaling functions up to the margin."""

    has_losses = False

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return ½‖w‖² after dividing the function by its smallest margin; infinite if that is not positive."""
        margin = float(np.min(self.target * (values + intercept)))
        return quadratic / margin**2 if margin > 0 else np.inf

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return infinity: the smallest margin may be any sample's."""
        return np.full(self.n_samples, np.inf)

    def primal_bound(self, quadratic: float, values: Vector, intercept: float, error: Vector) -> float:
        """Return a number that ½‖w‖² of the function at margin one does not exceed, for Kβ up to `error`."""
        margin = float(np.min(self.target * (values + intercept) - error))
        return quadratic / margin**2 if margin > 0 else np.inf

    def best_intercept(self, values: Vector) -> float:
        """Return the intercept with the largest smallest margin: halfway between the classes."""
        above, below = values[self.target > 0], values[self.target < 0]
        if self.total is None or not (len(above) and len(below)):  # a working set may have samples of one class only
            return 0.0
        return -0.5 * float(above.min() + below.max())

    def feasible(self, beta: Vector) -> Vector:
        """Return the point of the feasible set nearest to beta."""
        return Program(self.target, self.lower, self.upper, self.ridge, total=self.total).feasible(beta)


class WithIdentity(GramStack):
    """A stack with a diagonal matrix as its last kernel, a trace of which every other kernel carries too.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonal : ndarray of shape (n,)
        The last kernel's; mean one.
    """

    def __init__(self, stack: GramStack, diagonal: Vector) -> None:
        self.stack = stack
        self.diagonal = diagonal
        self.n_samples = stack.n_samples
        self.n_kernels = stack.n_kernels + 1
        self.dtype = stack.dtype

    def share(self, weights: AnyArray) -> float:
        """Return the weight of the diagonal matrix, with what the other kernels carry of it."""
        return float(weights[-1] + _FLOOR * weights[:-1].sum())

    @property
    def has_exact(self) -> bool:
        return self.stack.has_exact

    def exact_products(self, beta: AnyArray, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        identity = (self.diagonal * beta)[rows]
        return np.concatenate([self.stack.exact_products(beta, rows) + _FLOOR * identity, identity[np.newaxis]])

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return self.stack.row_strips(n_columns)

    def blocks(self, kernels: Sequence[int] | AnyArray, rows: Rows, columns: Rows) -> Iterator[tuple[int, Block]]:
        numbers = np.arange(self.n_samples)
        equal = numbers[rows][:, np.newaxis] == numbers[columns]
        identity = np.where(equal, self.diagonal[rows][:, np.newaxis], 0.0).astype(self.dtype)
        last = self.n_kernels - 1
        for m, block in self.stack.blocks([int(m) for m in kernels if m != last], rows, columns):
            yield m, block + self.dtype.type(_FLOOR) * identity
        if last in np.asarray(kernels):
            yield last, identity

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> Any:
        K = self.stack.combine(weights[:-1], out)
        return K.add_diagonal(self.share(weights) * self.diagonal)

    def products(
        self,
        beta: AnyArray,
        rows: NDArray[np.intp] | None = None,
        kernels: Sequence[int] | AnyArray | None = None,
    ) -> NDArray[np.float64]:
        last = self.n_kernels - 1
        asked = None if kernels is None else [int(m) for m in kernels if m != last]
        scaled = beta * (self.diagonal if beta.ndim == 1 else self.diagonal[:, np.newaxis])
        identity = (scaled if rows is None else scaled[rows]).astype(np.float64)
        inner = self.stack.products(beta, rows, asked)
        return np.concatenate([inner + _FLOOR * identity, identity[np.newaxis]])
