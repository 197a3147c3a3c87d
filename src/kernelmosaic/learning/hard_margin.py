"""Machines without slack: C = ∞, and C learned as the weight of the identity matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices
from kernelmosaic.gram.row_blocks import Rows
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.kernels.base import Block
from kernelmosaic.learning.certificate import (
    CombinedKernel,
    Entries,
    Learned,
    Start,
    values_rounding,
)
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import WeightNorm
from kernelmosaic.learning.problem import Learner, LearnerOptions
from kernelmosaic.machines.base import SVC, Machine
from kernelmosaic.solvers.program import Program, Vector, certify
from kernelmosaic.solvers.search import Search

# The machine --------------------------------------------------------------------------------------


class HardMargin(Machine):
    """The machine without slack: min ½‖w‖² subject to yᵢ f(xᵢ) ≥ 1.

    Parameters
    ----------
    soft : Program
        The program of the machine with slack; its labels, and which samples count.
    """

    has_labels = True
    # Without slack it is the few samples nearest to the others' side that count.
    can_be_subsampled = False

    def __init__(self, soft: Program) -> None:
        lower, upper = np.where(soft.lower < 0, -np.inf, 0.0), np.where(soft.upper > 0, np.inf, 0.0)
        self.program = MarginProgram(
            soft.target, lower, upper, np.zeros(soft.n_samples), total=soft.total
        )


@dataclass(frozen=True)
class MarginProgram(Program):
    """The dual of a machine without slack, whose primal values come from scaling functions up to
    the margin."""

    has_losses = False

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return ½‖w‖² after dividing the function by its smallest margin; infinite if that is not
        positive."""
        return self.primal_bound(quadratic, values, intercept, np.zeros(self.n_samples))

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return infinity: the smallest margin may be any sample's."""
        return np.full(self.n_samples, np.inf)

    def primal_bound(
        self, quadratic: float, values: Vector, intercept: float, error: Vector
    ) -> float:
        """Return a number that ½‖w‖² of the function at margin one does not exceed, for Kβ up to
        `error`."""
        margin = float(np.min(self.target * (values + intercept) - error))
        return quadratic / margin**2 if margin > 0 else np.inf

    def best_intercept(self, values: Vector, near: float | None = None) -> float:
        """Return the intercept with the largest smallest margin: halfway between the classes."""
        above, below = values[self.target > 0], values[self.target < 0]
        if self.total is None or not (
            len(above) and len(below)
        ):  # a working set may have samples of one class only
            return 0.0
        return -0.5 * float(above.min() + below.max())

    def feasible(self, beta: Vector) -> Vector:
        """Return the point of the feasible set nearest to beta."""
        return Program(self.target, self.lower, self.upper, self.ridge, total=self.total).feasible(
            beta
        )


# C = ∞ --------------------------------------------------------------------------------------------


def learn_hard_margin(
    learner: Learner, entries: Entries, y: Array, diagonal: float, tol: float
) -> Learned:
    """Return weights and machine of min ½(Σ d_m‖w_m‖)² subject to yᵢ f(xᵢ) ≥ 1.

    A machine with slack is the one without as soon as C exceeds its coefficients. So C grows until
    the certificate of the problem without slack is met: β is feasible there whatever C is, which
    bounds the optimum from below, and f divided by its smallest margin is feasible, too, which
    bounds it from above.

    Parameters
    ----------
    learner : Learner
        How the weights are learned.
    entries : Entries
        The kernels' entries.
    y : ndarray of shape (n,)
        Labels ±1.
    diagonal : float
        Scale of the kernels' diagonals.
    tol : float
        Relative duality gap to reach.

    Raises
    ------
    ValueError
        If no function of the kernels separates the classes: then the dual is unbounded, and
        coefficients reach every C.
    """
    search = HardMarginSearch(learner, entries, y, diagonal, tol).improve()
    if search.best is None:
        raise ValueError(
            "C=inf: the classes are not separable by these kernels: there is no hard-margin"
            " solution; give a finite C, or kernels that separate them, such as a narrower"
            " Gaussian()."
        )
    return replace(search.best, n_solves=search.n_solves)


class HardMarginSearch(Search):
    """Machines with slack of larger and larger C, each made one without slack and certified.

    The parameters are those of `learn_hard_margin`.

    Attributes
    ----------
    best : Learned or None
        That of the smallest certified gap; None as long as the classes are not separated.
    n_solves : int
        How often machines were solved.
    """

    #: The values of C, for a kernel of mean diagonal one.
    values_of_C = (1e3, 1e5, 1e7, 1e9, 1e11)
    #: Near the optimum the margin is one; what is left of a sample that both classes have is
    #: rounding.
    least_margin = 0.1

    def __init__(
        self, learner: Learner, entries: Entries, y: Array, diagonal: float, tol: float
    ) -> None:
        self.learner, self.entries, self.y, self.tol = learner, entries, y, tol
        self.start = Start(kernel=CombinedKernel(entries.stack))
        self.machines_left = [SVC(y, C / diagonal) for C in reversed(self.values_of_C)]
        self.best: Learned | None = None
        self.n_solves = 0

    def goes_on(self) -> bool:
        return len(self.machines_left) > 0

    def step(self) -> bool:
        """Learn with the next C; False where the gap is met, or rounding hides what a larger C may
        gain."""
        machine, y = self.machines_left.pop(), self.y
        learned = self.learner.learn(self.entries.stack, machine, self.start)
        self.n_solves += learned.n_solves
        values = learned.solution.values
        low, high = float(values[y > 0].min()), float(values[y < 0].max())
        if 0.5 * (low - high) > self.least_margin:
            solution = replace(learned.solution, intercept=-0.5 * (low + high))
            separating = replace(learned, solution=solution)
            self._consider(
                separating.certified(self.entries, HardMargin(machine.program), self.learner)
            )
        if self.best is None:
            return True
        # The margin of the optimum is one, and rounding grows with the coefficients, as these do
        # with C.
        rounding = values_rounding(self.entries.sizes, learned.solution.beta, learned.weights)
        return not (self.best.gap <= self.tol or rounding.min() > 1)

    def _consider(self, certified: Learned) -> None:
        if self.best is None or certified.gap < self.best.gap:
            self.best = certified


# C learned ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LearnedWithC(Learned):
    """Weights that obey the norm's rule, with the C they were learned with.

    Attributes
    ----------
    C : float
        As a factor of the machine's own: with it and these weights the machine has this solution.
    joint : Learned
        The same with the identity as the last kernel, which is what was learned.
    """

    C: float
    joint: Learned

    def certified(self, entries: Entries, machine: Any, learner: Any) -> Self:
        """Return the same with what is certified of the problem with the identity."""
        joined = WithIdentity(entries.stack, identity(machine.program))
        sizes = np.vstack([entries.sizes + joined.floor * joined.diagonal, joined.diagonal])
        joint_learner = Newton(learner.joint_options())
        joint = self.joint.certified(
            Entries(joined, sizes), HardMargin(machine.program), joint_learner
        )
        softened: Self = learner.soften(joint, joined, machine.program)
        return softened


class LearnedC(Learner):
    """Minimise over η ≥ 0, Σ d_m² η_m + η_0 = 1 the value of the hard-margin machine on Σ η_m K_m +
    η_0 I.

    The identity is the kernel of a 2-norm slack: with weights rescaled to obey Σ d_m² η_m = 1 the
    same function is that of the machine with C = (1 − η_0) / η_0. The identity counts as a kernel
    of mean diagonal one and penalty one, as all do that are normalised. `objective` is the value of
    the joint problem, in which C is not given.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui and Jordan (2004), section 4.4; Ye, Ji and Chen
    (2008), "Multi-class discriminant kernel learning via convex programming", where it is called
    SM2 with C learned.
    """

    @classmethod
    def require(cls, solver: str, norm: WeightNorm | None = None, machine: Any = None) -> None:
        if norm is not None and not norm.sums_to_one:
            raise ValueError(f"C='learn' needs norm=1, not {norm}; give C as a number.")
        if machine is not None and not machine.has_labels:
            raise ValueError(
                "C='learn' is for classification with two classes; give C as a number."
            )

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> LearnedWithC:
        """Learn for a machine with 2-norm slack, whatever its C; of the start it takes the
        coefficients."""
        joined = WithIdentity(stack, identity(machine.program))
        found = Newton(self.joint_options())._learn(
            joined, HardMargin(machine.program), Start(beta=start.beta)
        )
        if not np.isfinite(found.objective):
            raise ValueError(
                "C='learn': rounding hides the margin, since the kernels are on another scale than"
                " the slack's unit matrix; use normalize='trace', which puts kernels on one scale,"
                " or give C as a number."
            )
        return self.soften(found, joined, machine.program)

    def joint_options(self) -> LearnerOptions:
        """Return the options of the problem with the identity as its last kernel."""
        return replace(self.options, penalties=np.append(self.options.penalties, 1.0))

    def soften(self, found: Learned, joined: WithIdentity, soft: Program) -> LearnedWithC:
        """Return the same function as that of a machine with slack whose weights obey the norm's
        rule."""
        kept = float(self.options.penalties**2 @ found.weights[:-1])
        if not kept > 0:
            raise ValueError(
                "C='learn' gave all weight to the slack: no kernel separates the classes; give C as"
                " a number."
            )
        share, beta = joined.share(found.weights), found.solution.beta
        # Dividing the weights and multiplying β by the same number leaves the function as it is.
        program = replace(soft, ridge=joined.diagonal * share / kept)
        values = found.solution.values - share * joined.diagonal * beta
        solution = certify(program, kept * beta, values, found.solution.n_iter)
        weights, C = found.weights[:-1] / kept, kept * float(soft.ridge.mean()) / share
        return LearnedWithC(
            weights,
            solution,
            found.objective,
            found.gap,
            found.n_solves,
            found.history,
            is_final=found.is_final,
            C=C,
            joint=found,
        )


def identity(soft: Program) -> Vector:
    """Return the diagonal of the kernel of a 2-norm slack, mean one: ones, or the inverse of the
    samples' weights."""
    if not np.all(soft.ridge > 0) or np.any(
        np.isfinite(np.where(soft.target > 0, soft.upper, soft.lower))
    ):
        raise ValueError("C='learn' needs slack=2: only the 2-norm slack is a kernel of its own.")
    return np.asarray(soft.ridge / soft.ridge.mean())


class WithIdentity(GramStack):
    """A stack with a diagonal matrix as its last kernel, a trace of which every other kernel
    carries too.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonal : ndarray of shape (n,)
        The last kernel's; mean one.

    Attributes
    ----------
    floor : float
        Share of the diagonal that every kernel carries, so that even without a weight on it a
        machine has a solution.
    """

    floor: float = 1e-6

    def __init__(self, stack: GramStack, diagonal: Vector) -> None:
        self.stack = stack
        self.diagonal = diagonal
        self.n_samples = stack.n_samples
        self.n_kernels = stack.n_kernels + 1
        self.dtype, self.has_exact = stack.dtype, stack.has_exact

    def share(self, weights: AnyArray) -> float:
        """Return the weight of the diagonal matrix, with what the other kernels carry of it."""
        return float(weights[-1] + self.floor * weights[:-1].sum())

    def exact_products(self, beta: AnyArray, rows: Indices) -> Array:
        identity = (self.diagonal * beta)[rows]
        return np.concatenate(
            [self.stack.exact_products(beta, rows) + self.floor * identity, identity[np.newaxis]]
        )

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return self.stack.row_strips(n_columns)

    def blocks(
        self, kernels: Sequence[int] | AnyArray, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Block]]:
        numbers = np.arange(self.n_samples)
        equal = numbers[rows][:, np.newaxis] == numbers[columns]
        identity = np.where(equal, self.diagonal[rows][:, np.newaxis], 0.0).astype(self.dtype)
        last = self.n_kernels - 1
        for m, block in self.stack.blocks([int(m) for m in kernels if m != last], rows, columns):
            yield m, block + self.dtype.type(self.floor) * identity
        if last in np.asarray(kernels):
            yield last, identity

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        K = self.stack.combine(weights[:-1], out)
        return K.add_diagonal(self.share(weights) * self.diagonal)

    def products(
        self,
        beta: AnyArray,
        rows: Indices | None = None,
        kernels: Sequence[int] | AnyArray | None = None,
    ) -> Array:
        last = self.n_kernels - 1
        asked = None if kernels is None else [int(m) for m in kernels if m != last]
        scaled = beta * (self.diagonal if beta.ndim == 1 else self.diagonal[:, np.newaxis])
        identity = (scaled if rows is None else scaled[rows]).astype(np.float64)
        inner = self.stack.products(beta, rows, asked)
        return np.concatenate([inner + self.floor * identity, identity[np.newaxis]])
