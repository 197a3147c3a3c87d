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
from kernelmosaic.learning.tuning import GROWING_C, IDENTITY_FRACTION, LEAST_MARGIN
from kernelmosaic.machines.base import SVC, Machine
from kernelmosaic.solvers.program import Program, Vector, certify
from kernelmosaic.solvers.search import Search

# The machine --------------------------------------------------------------------------------------


class HardMargin(Machine):
    """The machine without slack: min ½‖w‖² subject to yᵢ f(xᵢ) ≥ 1.

    Parameters
    ----------
    soft : Program
        The program of the machine with slack. Its labels and its samples of weight zero are kept.
    """

    has_labels = True
    # Without slack only the few samples nearest to the other class count, which a subsample lacks.
    can_be_subsampled = False

    def __init__(self, soft: Program) -> None:
        lower = np.where(soft.lower < 0, -np.inf, 0.0)
        upper = np.where(soft.upper > 0, np.inf, 0.0)
        no_ridge = np.zeros(soft.n_samples)
        self.program = MarginProgram(soft.target, lower, upper, no_ridge, total=soft.total)


@dataclass(frozen=True)
class MarginProgram(Program):
    """The dual of a machine without slack.

    Its primal values are those of functions that are divided by their smallest margin.
    """

    has_losses = False

    def primal_value(self, quadratic: float, values: Vector, intercept: float) -> float:
        """Return ½‖w‖² after dividing the function by its smallest margin.

        It is infinite if that margin is not positive.
        """
        return self.primal_bound(quadratic, values, intercept, np.zeros(self.n_samples))

    def worst_losses(self, values: Vector, intercept: float, error: Vector) -> Vector:
        """Return infinity: the smallest margin may be any sample's."""
        return np.full(self.n_samples, np.inf)

    def primal_bound(
        self, quadratic: float, values: Vector, intercept: float, error: Vector
    ) -> float:
        """Return an upper bound on ½‖w‖² of the function at margin one, for Kβ up to `error`."""
        margin = float(np.min(self.target * (values + intercept) - error))
        if not margin > 0:
            return np.inf
        return quadratic / margin**2

    def best_intercept(self, values: Vector, near: float | None = None) -> float:
        """Return the intercept of the largest smallest margin: halfway between the classes.

        It is zero for machines without a constant, and for a working set that has samples of one
        class only.
        """
        positive = values[self.target > 0]
        negative = values[self.target < 0]
        if self.total is None or len(positive) == 0 or len(negative) == 0:
            return 0.0
        return -0.5 * float(positive.min() + negative.max())

    def feasible(self, beta: Vector) -> Vector:
        """Return the point of the feasible set nearest to β."""
        box = Program(self.target, self.lower, self.upper, self.ridge, total=self.total)
        return box.feasible(beta)


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
    """Machines with slack of larger and larger C, each certified as a machine without slack.

    The parameters are those of `learn_hard_margin`.

    Attributes
    ----------
    best : Learned or None
        That of the smallest certified gap; None as long as the classes are not separated.
    n_solves : int
        How often machines were solved.
    """

    def __init__(
        self, learner: Learner, entries: Entries, y: Array, diagonal: float, tol: float
    ) -> None:
        self.learner = learner
        self.entries = entries
        self.y = y
        self.tol = tol
        self.start = Start(kernel=CombinedKernel(entries.stack))
        self.machines_left = [SVC(y, C / diagonal) for C in reversed(GROWING_C)]
        self.best: Learned | None = None
        self.n_solves = 0

    def goes_on(self) -> bool:
        return len(self.machines_left) > 0

    def step(self) -> bool:
        """Learn with the next C; False where the gap is met or rounding hides more progress."""
        machine = self.machines_left.pop()
        learned = self.learner.learn(self.entries.stack, machine, self.start)
        self.n_solves += learned.n_solves

        # 1. If the function separates the classes, certify it as one without slack.
        values = learned.solution.values
        lowest_positive = float(values[self.y > 0].min())
        highest_negative = float(values[self.y < 0].max())
        if 0.5 * (lowest_positive - highest_negative) > LEAST_MARGIN:
            intercept = -0.5 * (lowest_positive + highest_negative)
            separating = replace(learned, solution=replace(learned.solution, intercept=intercept))
            hard_machine = HardMargin(machine.program)
            self._consider(separating.certified(self.entries, hard_machine, self.learner))

        # 2. Whether a larger C may improve the best.
        if self.best is None:
            return True
        if self.best.gap <= self.tol:
            return False
        # The margin of the optimum is one, and rounding grows with the coefficients, as these do
        # with C.
        rounding = values_rounding(self.entries.sizes, learned.solution.beta, learned.weights)
        return not rounding.min() > 1

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
        The result of the joint problem, in which the identity is the last kernel.
    """

    C: float
    joint: Learned

    def certified(self, entries: Entries, machine: Any, learner: Any) -> Self:
        """Return the result with the certificate of the joint problem."""
        joint_stack = WithIdentity(entries.stack, identity_diagonal(machine.program))
        diagonal = joint_stack.diagonal
        sizes = np.vstack([entries.sizes + joint_stack.floor * diagonal, diagonal])
        joint = self.joint.certified(
            Entries(joint_stack, sizes),
            HardMargin(machine.program),
            Newton(learner.joint_options()),
        )
        softened: Self = learner.soften(joint, joint_stack, machine.program)
        return softened


class LearnedC(Learner):
    """Minimise the value of the hard-margin machine on Σ η_m K_m + η_0 I over the weights.

    The weights are η ≥ 0 with Σ d_m² η_m + η_0 = 1. The identity is the kernel of a 2-norm slack:
    with weights rescaled to obey Σ d_m² η_m = 1 the same function is that of the machine with C =
    (1 − η_0) / η_0. The identity counts as a kernel of mean diagonal one and penalty one, as all do
    that are normalised. `objective` is the value of the joint problem, in which C is not given.

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
        """Return the result for a machine with 2-norm slack, whatever its C.

        Of the start only the coefficients are used.
        """
        joint_stack = WithIdentity(stack, identity_diagonal(machine.program))
        joint = Newton(self.joint_options())._learn(
            joint_stack, HardMargin(machine.program), Start(beta=start.beta)
        )
        if not np.isfinite(joint.objective):
            raise ValueError(
                "C='learn': rounding hides the margin, since the kernels are on another scale than"
                " the slack's unit matrix; use normalize='trace', which puts kernels on one scale,"
                " or give C as a number."
            )
        return self.soften(joint, joint_stack, machine.program)

    def joint_options(self) -> LearnerOptions:
        """Return the options of the joint problem, with the identity as its last kernel."""
        return replace(self.options, penalties=np.append(self.options.penalties, 1.0))

    def soften(self, joint: Learned, joint_stack: WithIdentity, soft: Program) -> LearnedWithC:
        """Return the function of a joint result as that of a machine with slack.

        Its weights obey the norm's rule, Σ d_m² η_m = 1.

        Parameters
        ----------
        joint : Learned
            The result of the joint problem.
        joint_stack : WithIdentity
            The kernels of the joint problem.
        soft : Program
            The program of the machine with slack, whatever its C.
        """
        kernel_weights = joint.weights[:-1]
        scale = float(self.options.penalties**2 @ kernel_weights)
        if not scale > 0:
            raise ValueError(
                "C='learn' gave all weight to the slack: no kernel separates the classes; give C as"
                " a number."
            )
        identity_weight = joint_stack.identity_weight(joint.weights)
        beta = joint.solution.beta
        # Dividing the weights and multiplying β by the same number leaves the function as it is.
        program = replace(soft, ridge=joint_stack.diagonal * identity_weight / scale)
        values = joint.solution.values - identity_weight * joint_stack.diagonal * beta
        return LearnedWithC(
            kernel_weights / scale,
            certify(program, scale * beta, values, joint.solution.n_iter),
            joint.objective,
            joint.gap,
            joint.n_solves,
            joint.history,
            is_final=joint.is_final,
            C=scale * float(soft.ridge.mean()) / identity_weight,
            joint=joint,
        )


def identity_diagonal(soft: Program) -> Vector:
    """Return the diagonal of the kernel of a 2-norm slack, of shape (n,) and mean one.

    It is constant, or proportional to the inverse of the samples' weights.
    """
    slack_bounds = np.where(soft.target > 0, soft.upper, soft.lower)
    if not np.all(soft.ridge > 0) or np.any(np.isfinite(slack_bounds)):
        raise ValueError("C='learn' needs slack=2: only the 2-norm slack is a kernel of its own.")
    return np.asarray(soft.ridge / soft.ridge.mean())


class WithIdentity(GramStack):
    """A stack with a diagonal matrix D as its last kernel.

    Every other kernel K_m carries a trace of it: the stack has K_m + `floor` D.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonal : ndarray of shape (n,)
        That of D; mean one.

    Attributes
    ----------
    floor : float
        Fraction of D that every kernel carries, so that the machine has a solution even if D has no
        weight.
    """

    floor: float = IDENTITY_FRACTION

    def __init__(self, stack: GramStack, diagonal: Vector) -> None:
        self.stack = stack
        self.diagonal = diagonal
        self.n_samples = stack.n_samples
        self.n_kernels = stack.n_kernels + 1
        self.dtype = stack.dtype
        self.has_exact = stack.has_exact

    def identity_weight(self, weights: AnyArray) -> float:
        """Return the weight of D, with the fractions of it that the other kernels carry."""
        return float(weights[-1] + self.floor * weights[:-1].sum())

    def exact_products(self, beta: AnyArray, rows: Indices) -> Array:
        D_beta = (self.diagonal * beta)[rows]
        products = self.stack.exact_products(beta, rows) + self.floor * D_beta
        return np.concatenate([products, D_beta[np.newaxis]])

    def row_strips(self, n_columns: int) -> Iterator[slice]:
        return self.stack.row_strips(n_columns)

    def blocks(
        self, kernels: Sequence[int] | AnyArray, rows: Rows, columns: Rows
    ) -> Iterator[tuple[int, Block]]:
        numbers = np.arange(self.n_samples)
        is_same_sample = numbers[rows][:, np.newaxis] == numbers[columns]
        D_block = np.where(is_same_sample, self.diagonal[rows][:, np.newaxis], 0.0)
        D_block = D_block.astype(self.dtype)
        last = self.n_kernels - 1
        inner_kernels = [int(m) for m in kernels if m != last]
        for m, block in self.stack.blocks(inner_kernels, rows, columns):
            yield m, block + self.dtype.type(self.floor) * D_block
        if last in np.asarray(kernels):
            yield last, D_block

    def combine(self, weights: AnyArray, out: ArrayOrTensor = None) -> ArrayOrTensor:
        K = self.stack.combine(weights[:-1], out)
        return K.add_diagonal(self.identity_weight(weights) * self.diagonal)

    def products(
        self,
        beta: AnyArray,
        rows: Indices | None = None,
        kernels: Sequence[int] | AnyArray | None = None,
    ) -> Array:
        last = self.n_kernels - 1
        inner_kernels = None
        if kernels is not None:
            inner_kernels = [int(m) for m in kernels if m != last]
        diagonal = self.diagonal if beta.ndim == 1 else self.diagonal[:, np.newaxis]
        D_beta = beta * diagonal
        if rows is not None:
            D_beta = D_beta[rows]
        D_beta = D_beta.astype(np.float64)
        inner_products = self.stack.products(beta, rows, inner_kernels)
        return np.concatenate([inner_products + self.floor * D_beta, D_beta[np.newaxis]])
