"""What is learned: a training problem as a function of the weights, its evaluations and bounds, and
what learners are.

Whatever the machine, the value J changes with the combined kernel by −½ββᵀ, so that a problem needs
β only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import count
from math import log10
from typing import Any

import numpy as np

from kernelmosaic._typing import Array, Indices
from kernelmosaic.gram.linear_algebra import free_curvature, nonzero_rows
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import COLD, CombinedKernel, Iteration, Learned, Start
from kernelmosaic.learning.norms import WeightNorm, Weights
from kernelmosaic.solvers.line_search import Trials, line_search
from kernelmosaic.solvers.multiclass_newton import free_coefficients, multiclass_curvature
from kernelmosaic.solvers.program import assess, certify, relative_gap
from kernelmosaic.solvers.search import Search
from kernelmosaic.solvers.smooth_newton import solve_curved

#: Kernels by their numbers; None for all.
Numbers = Indices | None
#: What to do where rounding hides that a gap is met.
ROUNDING = (
    "rounding hides what is left to gain; accept a larger tol. Where the gap is far above it,"
    " centre the columns, as StandardScaler does, lower C, or use normalize='trace', which puts the"
    " kernels on one scale."
)
#: What to do where a search ends and nothing proves that rounding is why.
STALLED = (
    "no step closes it further; centre the columns, as StandardScaler does, lower C, or use"
    " normalize='trace', which puts the kernels on one scale. Else accept a larger tol."
)


# What learners are --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LearnerOptions:
    """Tolerance and limits of a learner, and the tuning values of the searches.

    Attributes
    ----------
    norm : WeightNorm
        The set of weights.
    penalties : ndarray of shape (P,)
        The d_m; infinite for a kernel that is to have no weight.
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress bar.
    """

    norm: WeightNorm
    penalties: Array
    tol: float = 1e-3
    max_iter: int = 100
    verbose: bool = False

    # How exactly the machine is solved: relative gaps.
    first_tol: float = 1e-2  # the first one, and that of parts whose weights are only a start
    sharper: float = 0.03  # factor of the next one where no step pays
    sharpest: float = 1e-13  # the last one: rounding hides smaller gaps

    # When a search ends.
    attempts: int = 8  # most evaluations in one line search
    closer: float = 0.9  # factor of the gap that counts as progress where rounding hides the value
    n_idle: int = 20  # iterations in a row that leave the gap as it was: rounding is reached
    n_flat: int = 5  # Newton steps in a row that hardly close the gap: the value may have a kink
    n_flat_factored: int = (
        3  # the same for kernels of few features, whose interior points cost less
    )
    least_path: int = 8  # iterations: interior points need more of them
    path_steps: int = 30  # iterations: interior points need no more of them
    path_solves: int = 60  # machines solved: interior points take some 30 steps of twice the cost
    factored_path_solves: int = (
        20  # the same for kernels of few features: all steps together cost a few machines
    )
    most_path_samples: int = (
        6_000  # a step over matrices of so many samples takes 4 seconds of a core
    )
    path_arrays: int = (
        6  # arrays as large as all features, or as all entries of a kernel, that a step works with
    )
    most_rank: int = 100  # features of a kernel: to look for more takes longer than a few machines
    samples_per_feature: int = (
        4  # with fewer of them, features save little, and rounding hides more
    )
    path_shares: tuple[float, ...] = (
        0.1,
        3e-3,
        1e-4,
    )  # of tol, tried in turn: rounding to bounds costs the rest

    # Sizes.
    least_part: int = (
        200  # samples: the weights of a smaller part are too far from those of all to be a start
    )
    near: float = (
        0.8  # share of the steepest slope below which a kernel cannot enter soon, and is not read
    )
    few_samples: int = 500  # up to here double precision costs little
    single_tol: float = (
        1e-4  # down to this tol single precision suffices for curvatures and matrices of classes
    )
    most_free: int = (
        4000  # samples: factorising a larger block costs more than the solves that it saves
    )
    most_entries: int = (
        20_000_000  # of the matrices of a conic program; interior points keep several times as many
    )
    most_sdp_samples: int = 100  # weights of any sign factorise a matrix of order n²/2

    def in_single(self, n_samples: int) -> bool:
        """Whether matrices that no certificate reads are in single precision."""
        return self.tol >= self.single_tol and n_samples > self.few_samples


class Learner(ABC):
    """Finds weights η for the kernels of a stack and the machine's β for the combined kernel Σ η_m
    K_m.

    Parameters
    ----------
    options : LearnerOptions
        The set of the weights, when to stop, what to show.

    Attributes
    ----------
    norm_needs, machine_needs : tuple of str
        Attributes that must be true of the norm and of the machine; see `require`.
    reads_matrices : bool
        Whether it needs the kernels as matrices, not only solutions of the problem.
    advice : str
        What to do when the gap is not met.
    stalled : str or None
        What to do when it is not met although there were iterations left; None if that is the same.
    """

    norm_needs: tuple[str, ...] = ()
    machine_needs: tuple[str, ...] = ("has_one_output", "has_box")
    reads_matrices: bool = False
    advice: str = "raise max_iter, or accept a larger tol."
    stalled: str | None = None

    def __init__(self, options: LearnerOptions) -> None:
        self.options = options

    def learn(self, stack: GramStack, machine: Any, start: Start = COLD) -> Learned:
        """Learn from where a like problem ended, unless its shapes are not those of the machine."""
        found = self._learn(stack, machine, start.continued(machine))
        solution = found.solution
        known = {} if found.slopes is None else {"values": solution.values, "slopes": found.slopes}
        return replace(found, start=Start(found.weights, solution.beta, machine, **known))

    @abstractmethod
    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        """Learn from a start for this machine, from as much of it as the learner can make use
        of."""

    def lower_bound(self, constant: float, q: Weights, weights: Weights) -> float:
        """Return what a feasible β proves of the optimum over the weights, or at the weights where
        these are given.

        `constant` is the value of its dual without the kernels, q_m = ½ βᵀK_mβ what each kernel
        takes off.
        """
        return constant - self.options.norm.support(q / self.options.penalties**2)

    @classmethod
    def require(cls, solver: str, norm: WeightNorm | None = None, machine: Any = None) -> None:
        """Raise a ValueError that names what the solver needs, if the norm or the machine does not
        declare it."""
        for given, needs in ((norm, cls.norm_needs), (machine, cls.machine_needs)):
            missing = next(
                (name for name in needs if given is not None and not getattr(given, name)), None
            )
            if missing is not None:
                what = type(given).__name__ if given is machine else str(given)
                raise ValueError(
                    f"solver={solver!r} supports {_SERVED[missing]}, not {what}; use"
                    " solver='newton'."
                )


#: What a learner serves that needs an attribute, in words.
_SERVED = {
    "sums_to_one": "norm=1",
    "has_one_output": "machines with one output (multi_class='ovr')",
    "has_targets": "machines with targets",
    "has_labels": "machines with the labels of two classes",
    "has_box": "machines whose coefficients are bounded by a box",
    "has_one_slack": "machines whose loss is either linear or quadratic in the slack",
}


# The problem, and its evaluations -----------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """The machine solved at weights θ.

    Attributes
    ----------
    theta : ndarray of shape (P,) or (classes, P)
        Scaled weights θ = d² ∘ η; by class where every class has its own.
    solution : Solution or RidgeSolution
        Of the machine on the combined kernel.
    upper : float
        Primal value: no less than the problem's optimum at these weights, and so over all weights.
    q : ndarray like `theta`
        ½ βᵀK_mβ / d_m², the slopes of the value downward in θ; NaN for kernels whose slopes were
        not computed.
    products : ndarray of shape (P, n_support), (P, n_support, outputs) or None
        K_m β / d_m² at the support samples, where curvatures are made of them; rows of kernels
        whose slopes were not asked for are meaningless.
    support : ndarray of shape (n_support,) or None
        Samples where β is not zero; None for all.
    far : ndarray of shape (P,) or False
        Which kernels are left to the certificate while they have no weight.
    """

    theta: Weights
    solution: Any
    upper: float
    q: Weights
    products: Any = None
    support: Any = None
    far: Any = False

    @property
    def known(self) -> Indices:
        """The kernels whose slopes are known."""
        return np.flatnonzero(~np.isnan(self.q))

    @property
    def complete(self) -> bool:
        """Whether every slope is known that is not left to the certificate, without which there is
        no lower bound."""
        return not (np.isnan(self.q) & np.logical_not(self.far)).any()


class Problem(ABC):
    """The value of a training problem as a function of the parameters θ of the combined kernel.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    machine : Machine or Discriminant
        What is trained on their combination.

    Attributes
    ----------
    n_solves : int
        How often the machine was solved.
    steps, vain_steps : int
        Steps of all solves, and of those that did not reach their gap.
    stalls : int
        Solves in a row that began with steps and ended in interior points; from the third on these
        come first.
    is_spent : bool
        Whether solves that did not reach their gap have used up the steps that one may take, or all
        solves eight times as many: more of them would be in vain, too, or take too long.
    has_refused : bool
        Whether a solve was asked for after that, which is not made.
    noise : float
        What a value of zero may come out as.
    exact : bool
        Whether the machine is solved to rounding whatever the tolerance, and its value is smooth:
        where no Newton step pays, nothing else does.
    """

    noise: float = 0.0
    exact: bool = False

    def __init__(self, stack: GramStack, machine: Any) -> None:
        self.stack, self.machine = stack, machine
        self.n_solves = self.steps = self.vain_steps = self.stalls = 0
        self.is_spent = self.has_refused = False

    def solve_machine(self, K: Any, warm_start: Array | None, tol: float, **known: Any) -> Any:
        """Return the machine's solution for a kernel to a relative gap of `tol`; None if the steps
        are spent."""
        if self.is_spent:
            self.has_refused = True
            return None
        most = self.machine.most_steps
        if self.stalls >= 3:
            known["inside"] = True
        options = self.machine.options
        if self.steps >= options.fit_steps and options.numpy_steps:
            self.machine = copy(self.machine)
            self.machine.options = replace(options, numpy_steps=0)
        solution = self.machine.solve(K, warm_start, tol, **known)
        self.stalls = self.stalls + 1 if getattr(solution, "inside", False) else 0
        self.n_solves += 1
        self.steps += solution.n_iter
        if solution.gap > tol:
            # Solvers of other kernels than stored matrices count other steps than those of pairs: 4
            # solves in vain that end far above the gap are enough, 16 that end near it, and 48 of
            # any other.
            enough = 48 if solution.gap <= 1e-3 else 16 if solution.gap <= 0.1 else 4
            self.vain_steps += max(solution.n_iter, most // enough)
        self.is_spent = self.vain_steps >= most or self.steps >= 8 * most
        return solution

    @abstractmethod
    def evaluate(
        self, theta: Weights, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> Evaluation | None:
        """Solve the machine at θ to a relative gap of `tol`, with the slopes of at least these
        kernels (all if None).

        `warm_start` is the β of an earlier solution, or None. None is returned where the solve is
        refused.
        """

    def evaluate_first(self, theta: Weights, warm_start: Array | None, tol: float) -> Evaluation:
        """Return the first evaluation, which is never refused."""
        evaluation = self.evaluate(theta, warm_start, tol)
        assert evaluation is not None
        return evaluation

    def curvature(self, at: Evaluation) -> Any:
        """Return ∂²J/∂θ² among the kernels whose slopes are known; None where it is unknown or
        costs too much."""
        return None


class WeightProblem(Problem):
    """The same as a function of the weights θ in the set of a norm.

    Parameters
    ----------
    options : LearnerOptions
        Norm and penalties.

    Attributes
    ----------
    scale : ndarray like θ
        1 / d²: the weights are θ ∘ scale.
    """

    def __init__(self, stack: GramStack, machine: Any, options: LearnerOptions) -> None:
        super().__init__(stack, machine)
        self.options, self.norm = options, options.norm
        self.scale = 1.0 / options.penalties**2

    def start(self) -> Weights:
        """Return the weights that prefer no kernel."""
        return self.norm.start(self.stack.n_kernels)

    def retract(self, theta: Weights) -> Weights:
        """Return weights of the set from some beside it."""
        return self.norm.retract(theta)

    def scaled(self, weights: Weights) -> Weights:
        """Return the θ nearest to those of weights η that another problem has learned."""
        return self.retract(
            np.where(weights > 0, weights / np.where(weights > 0, self.scale, 1.0), 0.0)
        )

    @abstractmethod
    def solve(self, theta: Weights, warm_start: Array | None, tol: float) -> Any:
        """Solve the machine at θ to a relative gap of `tol`."""

    @abstractmethod
    def plane(self, at: Evaluation) -> tuple[float, Weights]:
        """Return c and q of the plane c − ⟨q, θ⟩ that β puts below the value everywhere."""

    def lower(self, at: Evaluation) -> float:
        """Return what β guarantees whatever the weights of the known kernels: a bound on the
        optimum if all are."""
        constant, slopes = self.plane(at)
        return constant - self.norm.support(slopes[at.known])

    def value(self, at: Evaluation) -> float:
        """Return what steps are to lower."""
        return at.upper

    def slopes(self, at: Evaluation) -> Weights:
        """Return its slopes in θ; NaN where they are not known."""
        return -at.q

    def complete(self, at: Evaluation) -> Evaluation:
        """Return the evaluation with the slopes of all kernels."""
        return at

    def watch(self, at: Evaluation) -> Numbers:
        """Return the kernels whose slopes are computed next; None for all."""
        return None

    def assess(self, theta: Weights, beta: Array) -> Evaluation | None:
        """Return what a feasible β is worth at θ; None where a machine's own is always worth
        more."""
        return None

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        """Return what a learner does whose best evaluation this is."""
        slopes = best.q / self.scale if best.complete and self.machine.has_one_output else None
        return Learned(
            best.theta * self.scale,
            best.solution,
            best.upper,
            gap,
            self.n_solves,
            history,
            slopes=slopes,
        )

    def known(self, start: Start) -> Evaluation | None:
        """Return the evaluation of a start, without a solve, if all is known of it that this takes;
        else None."""
        return None


class MachineProblem(WeightProblem):
    """The problem of a machine with one output, evaluated with warm starts; it combines kernels
    where `start` does."""

    def __init__(
        self, stack: GramStack, machine: Any, options: LearnerOptions, start: Start = COLD
    ) -> None:
        super().__init__(stack, machine, options)
        known = start.kernel
        self.kernel = known if known is not None and known.stack is stack else CombinedKernel(stack)
        # In weights of sum one a kernel whose slope is below the steepest has no part.
        like = None if start.like is None or not self.norm.sums_to_one else start.like * self.scale
        self.far = (
            np.zeros(stack.n_kernels, dtype=bool)
            if like is None
            else like < options.near * like.max()
        )

    def combine(self, theta: Weights) -> Any:
        """Return the combined kernel at θ."""
        return self.kernel.at(theta * self.scale)

    def solve(self, theta: Weights, warm_start: Array | None, tol: float) -> Any:
        return self.solve_machine(self.combine(theta), warm_start, tol)

    def evaluate(
        self, theta: Weights, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> Evaluation | None:
        solution = self.solve_machine(self.combine(theta), warm_start, tol)
        return None if solution is None else self.evaluation(theta, solution, kernels)

    def known(self, start: Start) -> Evaluation | None:
        if start.weights is None:
            return None
        theta = self.scaled(start.weights)
        # Weights of another set, as with other penalties, are moved into this one: nothing is known
        # of them there.
        start = start.at(theta * self.scale)
        if start.slopes is None or np.isnan(start.slopes[~self.far | (theta > 0)]).any():
            return None
        q = start.slopes * self.scale
        solution = certify(self.machine.program, start.beta, start.values, 0)
        quadratic = float(theta[theta > 0] @ q[theta > 0])
        upper = self.machine.program.primal_value(quadratic, solution.values, solution.intercept)
        return Evaluation(theta, solution, upper, q, far=self.far)

    def assess(self, theta: Weights, beta: Array) -> Any:
        """Return what a feasible β is worth at θ."""
        return self.evaluation(theta, assess(self.combine(theta), self.machine.program, beta))

    def evaluation(self, theta: Weights, solution: Any, kernels: Numbers = None) -> Evaluation:
        """Return what a solution at θ is worth, with the slopes of these kernels (all if None)."""
        support = nonzero_rows(solution.beta)
        every = np.arange(self.stack.n_kernels)
        blank = np.zeros((len(every), len(support), *solution.beta.shape[1:]))
        unknown = Evaluation(
            theta, solution, np.inf, np.full(len(every), np.nan), blank, support, self.far
        )
        asked = every[~self.far] if kernels is None else kernels
        known = self.add_slopes(unknown, np.union1d(asked, every[theta > 0]))
        # The kernel part of the value, from the same products as the slopes, so that both bounds
        # round alike.
        quadratic = float(theta[theta > 0] @ known.q[theta > 0])
        upper = self.machine.program.primal_value(quadratic, solution.values, solution.intercept)
        if not self.machine.has_targets:
            # A one-class machine whose samples surround the origin is worth nothing.
            diagonal = self.combine(theta).diagonal()
            self.noise = self.machine.program.value_noise(solution.beta, diagonal, self.stack.dtype)
        return replace(known, upper=upper)

    def add_slopes(self, at: Evaluation, kernels: Indices) -> Evaluation:
        """Add the slopes of more kernels."""
        beta, products, q = at.solution.beta, at.products.copy(), at.q.copy()
        fresh = self._products(at, at.support, kernels)
        products[kernels] = fresh
        # Rounding can make the form of a positive semi-definite matrix negative.
        q[kernels] = np.maximum(0.5 * np.tensordot(fresh, beta[at.support], axes=beta.ndim), 0.0)
        return replace(at, products=products, q=q)

    def complete(self, at: Evaluation) -> Evaluation:
        return (
            at if at.complete else self.add_slopes(at, np.flatnonzero(np.isnan(at.q) & ~self.far))
        )

    def watch(self, at: Evaluation) -> Numbers:
        """Return the kernels with a weight, or a slope not far from the steepest."""
        return np.flatnonzero((at.theta > 0) | (at.q >= self.options.near * np.nanmax(at.q)))

    def plane(self, at: Evaluation) -> tuple[float, Weights]:
        # A kernel that is left to the certificate is one that lowers nothing.
        return self.machine.linear_value(at.solution), np.where(
            self.far & np.isnan(at.q), 0.0, at.q
        )

    def curvature(self, at: Evaluation) -> Array:
        """Return ∂²J/∂θ² among the known kernels, while the free samples stay free: how β depends
        on the weights.

        The free coefficients solve a linear system in the combined kernel, so their answer to a
        change of θ_m is its inverse times K_m β; everything else is fixed at its bound. Several
        outputs depend on the weights independently.
        """
        beta, known = at.solution.beta, at.known
        outputs: list[Any] = [(self.machine.program, beta, ...)]
        if beta.ndim == 2:
            outputs = [
                (one.program, beta[:, c], (..., c)) for c, one in enumerate(self.machine.machines)
            ]
        H = np.zeros((len(known), len(known)))
        for program, own, output in outputs:
            free = program.free(own)
            if len(free) == 0:
                continue
            inside = np.isin(free, at.support, assume_unique=True)
            products = np.empty(
                (len(known), len(free), *at.products.shape[2:])
            )  # K_m β / d_m² of the known kernels
            products[:, inside] = at.products[
                np.ix_(known, np.searchsorted(at.support, free[inside]))
            ]
            if (
                not inside.all()
            ):  # without a tube a sample may be free and yet have a coefficient of zero
                products[:, ~inside] = self._products(at, free[~inside], known)
            V = products[output].T
            right = np.column_stack([V, np.ones(len(free))])
            answer = self.combine(at.theta).solve_free(free, program.ridge[free], right)
            H += free_curvature(V, answer[:, :-1], None if program.total is None else answer[:, -1])
        return H

    def _products(self, at: Evaluation, rows: Indices, kernels: Indices) -> Array:
        """Return K_m β / d_m² at these samples for these kernels, from the stack."""
        fresh = self.stack.products(at.solution.beta, rows, kernels)[kernels]
        return np.asarray(self.scale[kernels].reshape(-1, *[1] * (fresh.ndim - 1)) * fresh)


class SmoothProblem(MachineProblem):
    """The problem of a machine whose coefficients are slopes of a smooth loss."""

    def assess(self, theta: Weights, beta: Array) -> None:
        """Return None: of coefficients that are no slopes, such as mixtures, no dual value is
        known."""
        return

    def known(self, start: Start) -> None:
        """Return None: coefficients are slopes of another loss."""
        return

    def curvature(self, at: Evaluation) -> Array:
        """Return (K_mβ)ᵀ(I + WK)⁻¹W(K_lβ), with W the curvature of the loss, among the known
        kernels."""
        V = np.zeros((self.stack.n_samples, len(at.known)))
        V[at.support] = at.products[at.known].T  # W does not read samples without a coefficient
        loss = self.machine.program.loss_at(at.solution.point)
        answer, _ = solve_curved(
            self.combine(at.theta).products, loss.curvature_times, loss.curvature_times(V), tol=1e-4
        )
        H = V.T @ answer
        # An infinite loss has no curvature.
        return np.asarray(0.5 * (H + H.T) if np.isfinite(H).all() else np.zeros_like(H))


class MulticlassProblem(MachineProblem):
    """The problem of a joint machine; where its free samples are too many, slopes alone show the
    curvature."""

    #: The last evaluation whose curvature was computed, and the secants' curvature there.
    _secant: tuple[Evaluation, Array] | None = None

    def watch(self, at: Evaluation) -> None:
        """Return None: all kernels share the same products."""
        return

    def curvature(self, at: Evaluation) -> Array:
        """Return that of the free coefficients where they can be factorised, else that of the
        slopes' secants."""
        K, program = self.combine(at.theta), self.machine.program
        most = (
            self.options.most_free
            if self.stack.stores_combined
            else min(self.options.most_free, K.block_samples)
        )
        H = joint_curvature(K, program, at, most, self.options.in_single(self.stack.n_samples))
        if H is not None:
            # All classes share the weights: their blocks, and those between them, add up.
            return np.asarray(
                H.reshape(program.n_classes, len(at.q), program.n_classes, -1).sum(axis=(0, 2))
            )
        H = self._secant_curvature(at)
        self._secant = at, H
        return H

    def _secant_curvature(self, at: Evaluation) -> Array:
        """Return the update by Broyden, Fletcher, Goldfarb and Shanno of what was returned last."""
        if self._secant is None:
            return np.diag(
                steepest_curvature(at.theta, np.maximum(at.q, 1e-12 * at.q.max(initial=0.0)))
            )
        here, H = self._secant
        s, change = at.theta - here.theta, here.q - at.q
        Hs, along = H @ s, float(s @ change)
        # A secant of hardly any curvature is rounding.
        if along <= 1e-8 * float(np.linalg.norm(s) * np.linalg.norm(change)) or float(s @ Hs) <= 0:
            return H
        return np.asarray(H - np.outer(Hs, Hs) / float(s @ Hs) + np.outer(change, change) / along)


def steepest_curvature(theta: Weights, q: Weights) -> Weights:
    """Return the largest ∂²J/∂θ_m² of slopes q: they fall at most with the power 2 of θ as one
    weight alone changes."""
    return np.asarray(2.0 * q / np.maximum(theta, 1e-3 / len(theta)))


def joint_curvature(K: Any, program: Any, at: Evaluation, most: int, single: bool) -> Array | None:
    """Return ∂²J/∂θ² over all (class, kernel) of a joint machine; None for more free samples, or a
    singular block."""
    beta = at.solution.beta
    if free_coefficients(program, beta).any(axis=1).sum() > most:
        return None
    with suppress(np.linalg.LinAlgError):
        return multiclass_curvature(K, program, beta, at.products, at.support, single=single)
    return None


@singledispatch
def make_problem(
    machine: Any, stack: GramStack, options: LearnerOptions, start: Start
) -> WeightProblem:
    """Return the problem of a machine with one weight per kernel; modules of other machines
    register theirs."""
    if not machine.has_box:
        return SmoothProblem(stack, machine, options, start)
    kind = MachineProblem if machine.has_independent_outputs else MulticlassProblem
    return kind(stack, machine, options, start)


# The best so far, and how to better it ------------------------------------------------------------


class BoundTracker(Search):
    """Keeps the best evaluation, the best lower bound, and the evaluation whose own bounds are
    closest.

    The last is what a search returns: both bounds follow from its weights and β. A search may know
    a better lower bound from another β, or from a mixture of several, and takes its steps by it.

    Parameters
    ----------
    problem : WeightProblem
        What is being solved.
    first : Evaluation
        The first one.

    Attributes
    ----------
    best : Evaluation
        The one of the smallest upper bound.
    lower : float
        The largest lower bound on the optimum.
    proved, gap : Evaluation, float
        The one of the smallest relative gap between its own bounds, and that gap.
    inner : float
        Relative gap to which a search solves the machine.
    """

    inner: float

    def __init__(self, problem: WeightProblem, first: Evaluation) -> None:
        self.problem = problem
        self.best = self.proved = first
        self.lower, self.gap = -np.inf, np.inf
        #: What the last progress is owed to, where it is not the search itself.
        self.ended_by: str | None = None
        #: Why what might close the gap further was not tried, and what to do; None if nothing was
        #: left out.
        self.hindrance: str | None = None
        #: Steps in a row that left the gap as it was, and the gap before the last step.
        self.n_idle_steps, self.gap_before_step = 0, np.inf
        self.show: Callable[[float], None] = lambda gap: None
        self.note(first)
        self.history = [Iteration(first.upper, self.gap)]

    def note(self, trial: Evaluation | None) -> None:
        """Take note of the bounds that an evaluation proves, if every slope is known."""
        if trial is None or not trial.complete:
            return
        lower = self.problem.lower(trial)
        self.lower = max(self.lower, lower)
        gap = relative_gap(trial.upper, lower, self.problem.noise)
        if gap < self.gap:
            self.proved, self.gap = trial, gap

    @property
    def known_gap(self) -> float:
        """The relative gap between the best bounds, which may be of different β."""
        return relative_gap(self.best.upper, self.lower, self.problem.noise)

    def consider(self, trial: Evaluation) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        self.note(trial)
        if trial.upper >= self.best.upper:
            return False
        self.best = trial
        return True

    def has_ended(self) -> bool:
        """Whether no machine is solved any more."""
        return self.problem.has_refused

    def walk(
        self, here: Evaluation, direction: Weights, evaluate: Callable[[Weights], Evaluation | None]
    ) -> Evaluation | None:
        """Return the end of a step along a direction that lowers the value or closes the gap; None
        if none does.

        `evaluate` solves the machine at θ and takes note of the bounds; None ends the walk, and the
        search.
        """
        problem, before, moves = self.problem, self.gap, direction != 0
        options, value = problem.options, problem.value(here)

        def slope_at(at: Evaluation) -> float:
            return float(problem.slopes(at)[moves] @ direction[moves])

        def hidden(size: float, end: Evaluation) -> bool:
            # Differences below the machine's own gap prove no descent, nor do steps that rounding
            # removes.
            error = max(here.solution.gap, end.solution.gap) * abs(value)
            return (
                self.gap <= options.tol
                or -size * slope <= error
                or np.array_equal(end.theta, here.theta)
            )

        slope = slope_at(here)
        found = line_search(
            lambda size: evaluate(here.theta + size * direction),
            here,
            slope,
            Trials(options.attempts),
            value=problem.value,
            slope_at=slope_at,
            hidden=hidden,
        )
        if found is not None:
            end: Evaluation = found[1]
            return end
        if self.has_ended():
            return None
        # Rounding hides what the step gains in the value, but not what it gains in the bound.
        rise = problem.value(self.proved) - value
        closer = self.gap < options.closer * before and rise <= (here.solution.gap + 1e-12) * abs(
            value
        )
        return self.proved if closer else None

    def sharpen(self) -> bool:
        """Solve the machine more exactly from now on; False if rounding hides smaller gaps."""
        exact, options = self.inner <= self.problem.options.sharpest, self.problem.options
        self.inner = max(options.sharper * self.inner, options.sharpest)
        return not exact

    def note_planes(self, planes: list[tuple[float, Weights, Array]]) -> Weights | None:
        """Take note of the bound that the planes of several β prove; return where it is least, or
        None if unknown.

        The value of the dual is concave: the mixture of the β bounds the optimum no less than that
        of the planes.
        """
        constants, slopes, betas = zip(*planes, strict=True)
        found = self.problem.norm.lowest_plane_point(np.array(constants), np.array(slopes))
        if found is None:
            return None
        corner, lower, shares = found
        mixture = sum(share * beta for share, beta in zip(shares, betas, strict=True) if share)
        self.lower = max(self.lower, lower)
        self.note(self.problem.assess(self.best.theta, mixture))
        return corner

    def record(self) -> float:
        """Add a line to the history and return the gap."""
        self.history.append(Iteration(self.best.upper, self.gap))
        return self.gap

    @contextmanager
    def context(self) -> Iterator[None]:
        """Show the gap."""
        with gap_progress(self.problem.machine, self.problem.options) as self.show:
            yield

    def begin(self) -> None:
        self.show(self.gap)
        self.gap_before_step = self.gap

    def goes_on(self) -> bool:
        """Whether the gap is above `tol`, the history has room, and the last steps have not all
        been idle."""
        options = self.problem.options
        has_room = len(self.history) < options.max_iter
        return self.gap > options.tol and has_room and self.n_idle_steps < options.n_idle

    def end_step(self) -> None:
        self.show(self.record())
        is_idle = not self.gap < self.gap_before_step
        self.n_idle_steps = self.n_idle_steps + 1 if is_idle else 0
        self.gap_before_step = self.gap

    def learned(self) -> Learned:
        """Return the best weights, with what is certified of them."""
        closest = self.proved if np.isfinite(self.gap) else self.best
        learned = self.problem.learned(closest, self.gap, self.history)
        return replace(learned, ended_by=self.ended_by, hindrance=self.hindrance)


# Progress: a bar where rich is installed, else plain lines on stdout ------------------------------


#: Says where a run is: in words and, where an end is known, how much of a total is done.
Advance = Callable[..., None]


@contextmanager
def progress(what: str, total: float | None = None, verbose: bool = True) -> Iterator[Advance]:
    """Show what runs and how far it is while the block runs, if `verbose`; the value is called with
    every new state."""
    if not verbose:
        yield lambda state, completed=None, total=None: None
        return
    try:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:  # it comes with the extra `cli`
        yield lambda state, completed=None, total=None: print(f"{what}: {state}", flush=True)
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task(what, total=total, state="")

        def advance(state: str, completed: float | None = None, total: float | None = None) -> None:
            bar.update(task, state=state, completed=completed, total=total)

        yield advance


@contextmanager
def gap_progress(machine: Any, options: LearnerOptions) -> Iterator[Callable[[float], None]]:
    """Show how many of the decades from a gap of 1 down to `tol` are done; the value is called with
    each new gap."""
    if not options.verbose:
        yield lambda gap: None
        return
    tol, numbers = options.tol, count(1)
    with progress(type(machine).__name__, max(-log10(tol), 1e-9)) as show:
        yield lambda gap: show(
            f"iteration {next(numbers)}, gap {gap:.1e} of {tol:.0e}",
            -log10(min(max(gap, tol * 1e-3), 1.0)),
        )
