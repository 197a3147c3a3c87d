"""The training problem as a function of the weights, its evaluations and bounds, and learners.

Whatever the machine, its optimal value J changes with the combined kernel K by ∂J/∂K = −½ββᵀ. So a
problem in the weights needs only the coefficients β of the machine.
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
from kernelmosaic.learning.tuning import (
    CURVED_TOL,
    FAILED_SOLVES_ALLOWED,
    HIDDEN_RISE,
    LEAST_CURVED_WEIGHT,
    LEAST_SECANT,
    LEAST_SECANT_GRADIENT,
    MAX_STALLS,
    MAX_STEP_BUDGETS,
    LearnerTuning,
)
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
#: What to do where a search ends above its tolerance and nothing proves that rounding is why.
STALLED = (
    "no step closes it further; centre the columns, as StandardScaler does, lower C, or use"
    " normalize='trace', which puts the kernels on one scale. Else accept a larger tol."
)


# Learners -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LearnerOptions(LearnerTuning):
    """Tolerance and limits of a learner, and the tuning values of the searches.

    Attributes
    ----------
    norm : WeightNorm
        The set of weights.
    penalties : ndarray of shape (P,)
        The factors d_m of the norms ‖w_m‖ in the regulariser; infinite for a kernel that is to have
        no weight.
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

    def in_single(self, n_samples: int) -> bool:
        """Whether matrices that no certificate reads are in single precision."""
        return self.tol >= self.single_tol and n_samples > self.few_samples


class Learner(ABC):
    """Finds weights η of the kernels and the machine's β for the combined kernel Σ η_m K_m.

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
        What to do when the gap is not met although iterations were left; None for the same advice.
    """

    norm_needs: tuple[str, ...] = ()
    machine_needs: tuple[str, ...] = ("has_one_output", "has_box")
    reads_matrices: bool = False
    advice: str = "raise max_iter, or accept a larger tol."
    stalled: str | None = None

    def __init__(self, options: LearnerOptions) -> None:
        self.options = options

    def learn(self, stack: GramStack, machine: Any, start: Start = COLD) -> Learned:
        """Return the learned weights and the solution, and where a similar problem may start.

        Subclasses define `_learn`, which this method calls.

        Parameters
        ----------
        stack : GramStack
            The kernels.
        machine : Machine
            What is trained on their combination.
        start : Start
            Where a similar problem ended. A start whose shapes do not fit the machine is dropped.
        """
        learned = self._learn(stack, machine, start.for_machine(machine))
        solution = learned.solution
        next_start = Start(learned.weights, solution.beta, machine)
        if learned.q is not None:
            next_start = replace(next_start, values=solution.values, q=learned.q)
        return replace(learned, start=next_start)

    @abstractmethod
    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        """Return the learned weights and the solution; a start whose shapes fit may be used."""

    def lower_bound(self, constant: float, q: Weights, weights: Weights) -> float:
        """Return a lower bound on the optimum over the weights, from a feasible β.

        Learners that do not choose the weights by the training problem bound the optimum at
        `weights` instead.

        Parameters
        ----------
        constant : float
            The dual value of β without the kernels' part.
        q : ndarray of shape (P,)
            ½ βᵀK_mβ.
        weights : ndarray of shape (P,)
            The weights that were learned.
        """
        return constant - self.options.norm.support(q / self.options.penalties**2)

    @classmethod
    def require(cls, solver: str, norm: WeightNorm | None = None, machine: Any = None) -> None:
        """Raise a ValueError if the norm or the machine lacks an attribute that the solver needs.

        `solver` is its name in the message. A norm or a machine that is None is not checked.
        """
        if norm is not None:
            cls._require_attributes(solver, norm, cls.norm_needs, str(norm))
        if machine is not None:
            cls._require_attributes(solver, machine, cls.machine_needs, type(machine).__name__)

    @staticmethod
    def _require_attributes(
        solver: str, norm_or_machine: Any, attributes: tuple[str, ...], description: str
    ) -> None:
        for attribute in attributes:
            if not getattr(norm_or_machine, attribute):
                raise ValueError(
                    f"solver={solver!r} supports {_SUPPORTED[attribute]}, not {description}; use"
                    " solver='newton'."
                )


#: What a learner supports that needs an attribute of the norm or of the machine, in words.
_SUPPORTED = {
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
        ½ βᵀK_mβ / d_m², the negative gradient of J in θ; NaN for kernels where it was not computed.
    products : ndarray of shape (P, n_support), (P, n_support, outputs) or None
        K_m β / d_m² at the support samples, where curvatures are made of them; rows of kernels
        whose q was not computed are meaningless.
    support : ndarray of shape (n_support,) or None
        Samples where β is not zero; None for all.
    deferred : ndarray of shape (P,) or False
        Which kernels are left to the certificate while they have no weight.
    """

    theta: Weights
    solution: Any
    upper: float
    q: Weights
    products: Any = None
    support: Any = None
    deferred: Any = False

    @property
    def computed_kernels(self) -> Indices:
        """The kernels whose gradient was computed."""
        return np.flatnonzero(~np.isnan(self.q))

    @property
    def is_complete(self) -> bool:
        """Whether the gradient of every kernel that is not deferred was computed.

        Without it an evaluation proves no lower bound.
        """
        is_missing = np.isnan(self.q) & np.logical_not(self.deferred)
        return not is_missing.any()


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
    n_steps, n_failed_steps : int
        Steps of all solves, and of those that did not reach their gap.
    n_stalls : int
        Solves in a row that began with steps and ended in interior points; from `MAX_STALLS` on
        interior points come first.
    is_spent : bool
        Whether no machine is solved any more: solves that did not reach their gap have used up the
        steps that one solve may take, or all solves `MAX_STEP_BUDGETS` times as many.
    has_refused : bool
        Whether a solve was asked for after that.
    noise : float
        The size of what rounding may leave of a value that is zero.
    solves_exactly : bool
        Whether the machine is solved to rounding whatever the tolerance, and J is smooth: where no
        Newton step lowers it, nothing else does.
    """

    noise: float = 0.0
    solves_exactly: bool = False

    def __init__(self, stack: GramStack, machine: Any) -> None:
        self.stack = stack
        self.machine = machine
        self.n_solves = 0
        self.n_steps = 0
        self.n_failed_steps = 0
        self.n_stalls = 0
        self.is_spent = False
        self.has_refused = False

    def solve_machine(
        self, K: Any, warm_start: Array | None, tol: float, **solver_arguments: Any
    ) -> Any:
        """Return the machine's solution for the combined kernel K to a relative gap of `tol`.

        None is returned where the steps are spent. `solver_arguments` are those of
        `machine.solve`, such as products with the warm start that are known already.
        """
        if self.is_spent:
            self.has_refused = True
            return None
        max_steps = self.machine.most_steps
        if self.n_stalls >= MAX_STALLS:
            solver_arguments["inside"] = True

        # Once so many steps were taken that compiled steps pay for their loading, no more of them
        # are taken in NumPy.
        options = self.machine.options
        if self.n_steps >= options.fit_steps and options.numpy_steps:
            self.machine = copy(self.machine)
            self.machine.options = replace(options, numpy_steps=0)

        solution = self.machine.solve(K, warm_start, tol, **solver_arguments)
        ended_in_interior_points = getattr(solution, "inside", False)
        self.n_stalls = self.n_stalls + 1 if ended_in_interior_points else 0
        self.n_solves += 1
        self.n_steps += solution.n_iter
        if solution.gap > tol:
            n_allowed = next(n for gap, n in FAILED_SOLVES_ALLOWED if solution.gap <= gap)
            self.n_failed_steps += max(solution.n_iter, max_steps // n_allowed)
        has_failed_too_often = self.n_failed_steps >= max_steps
        self.is_spent = has_failed_too_often or self.n_steps >= MAX_STEP_BUDGETS * max_steps
        return solution

    @abstractmethod
    def evaluate(
        self, theta: Weights, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> Evaluation | None:
        """Return the evaluation at θ; None where the solve is refused.

        Parameters
        ----------
        theta : ndarray
            Scaled weights.
        warm_start : ndarray or None
            β of an earlier solution.
        tol : float
            Relative gap to which the machine is solved.
        kernels : ndarray of int or None
            Kernels whose gradient is computed at least; None for all.
        """

    def evaluate_first(self, theta: Weights, warm_start: Array | None, tol: float) -> Evaluation:
        """Return the first evaluation, which is never refused."""
        evaluation = self.evaluate(theta, warm_start, tol)
        assert evaluation is not None
        return evaluation

    def curvature(self, evaluation: Evaluation) -> Any:
        """Return ∂²J/∂θ² among the kernels whose gradient was computed.

        None is returned where it is unknown or costs too much.
        """
        return None


class WeightProblem(Problem):
    """The training problem as a function of the weights θ in the set of a norm.

    Parameters
    ----------
    stack, machine
        As in `Problem`.
    options : LearnerOptions
        Norm and penalties.

    Attributes
    ----------
    scale : ndarray like θ
        1 / d²: the weights are θ ∘ scale.
    """

    def __init__(self, stack: GramStack, machine: Any, options: LearnerOptions) -> None:
        super().__init__(stack, machine)
        self.options = options
        self.norm = options.norm
        self.scale = 1.0 / options.penalties**2

    def start(self) -> Weights:
        """Return the θ that prefers no kernel."""
        return self.norm.start(self.stack.n_kernels)

    def retract(self, theta: Weights) -> Weights:
        """Return the point of the set of the weights that a θ near the set stands for."""
        return self.norm.retract(theta)

    def scaled(self, weights: Weights) -> Weights:
        """Return the θ of the set for weights η that another problem has learned."""
        scale = np.where(weights > 0, self.scale, 1.0)
        theta = np.where(weights > 0, weights / scale, 0.0)
        return self.retract(theta)

    @abstractmethod
    def solve(self, theta: Weights, warm_start: Array | None, tol: float) -> Any:
        """Return the machine's solution at θ to a relative gap of `tol`; None where refused."""

    @abstractmethod
    def plane(self, evaluation: Evaluation) -> tuple[float, Weights]:
        """Return c and q of the plane c − ⟨q, θ⟩ that β gives, which J nowhere falls below."""

    def lower_bound(self, evaluation: Evaluation) -> float:
        """Return the minimum of the plane of β over the weights of the computed kernels.

        It bounds the optimum from below if the evaluation is complete.
        """
        constant, q = self.plane(evaluation)
        return constant - self.norm.support(q[evaluation.computed_kernels])

    def value(self, evaluation: Evaluation) -> float:
        """Return the value that the steps of a search lower."""
        return evaluation.upper

    def gradient(self, evaluation: Evaluation) -> Weights:
        """Return the gradient of this value in θ; NaN where it was not computed."""
        return -evaluation.q

    def with_all_gradients(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with the gradient of every kernel that is not deferred."""
        return evaluation

    def watched_kernels(self, evaluation: Evaluation) -> Numbers:
        """Return the kernels whose gradient the next evaluation computes; None for all."""
        return None

    def evaluate_coefficients(self, theta: Weights, beta: Array) -> Evaluation | None:
        """Return the evaluation of a feasible β at θ, without a solve of the machine.

        None is returned where the β of a solution always proves at least as much.
        """
        return None

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        """Return the result of a learner whose best evaluation has this gap."""
        q = None
        if best.is_complete and self.machine.has_one_output:
            q = best.q / self.scale
        return Learned(
            best.theta * self.scale,
            best.solution,
            best.upper,
            gap,
            self.n_solves,
            history,
            q=q,
        )

    def evaluate_start(self, start: Start) -> Evaluation | None:
        """Return the evaluation of a start without a solve; None if the start lacks products."""
        return None


class MachineProblem(WeightProblem):
    """The problem of a machine in a box, evaluated with warm starts.

    Parameters
    ----------
    stack, machine, options
        As in `WeightProblem`.
    start : Start
        Where the search starts. If it has a combined kernel of this stack, the problem shares it.
    """

    def __init__(
        self, stack: GramStack, machine: Any, options: LearnerOptions, start: Start = COLD
    ) -> None:
        super().__init__(stack, machine, options)
        if start.kernel is not None and start.kernel.stack is stack:
            self.kernel = start.kernel
        else:
            self.kernel = CombinedKernel(stack)

        # At the optimum over weights of sum one, only kernels of the largest q have a weight.
        self.deferred = np.zeros(stack.n_kernels, dtype=bool)
        if start.similar_q is not None and self.norm.sums_to_one:
            similar_q = start.similar_q * self.scale
            self.deferred = similar_q < options.entering_fraction * similar_q.max()

    def combine(self, theta: Weights) -> Any:
        """Return the combined kernel at θ."""
        return self.kernel.at(theta * self.scale)

    def solve(self, theta: Weights, warm_start: Array | None, tol: float) -> Any:
        return self.solve_machine(self.combine(theta), warm_start, tol)

    def evaluate(
        self, theta: Weights, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> Evaluation | None:
        solution = self.solve_machine(self.combine(theta), warm_start, tol)
        if solution is None:
            return None
        return self.evaluation(theta, solution, kernels)

    def evaluate_start(self, start: Start) -> Evaluation | None:
        if start.weights is None:
            return None
        theta = self.scaled(start.weights)
        # Weights of another set, as with other penalties, are moved into this one: the products
        # that the start has do not hold for the moved weights, and `with_weights` drops them.
        start = start.with_weights(theta * self.scale)
        if start.q is None:
            return None
        is_needed = ~self.deferred | (theta > 0)
        if np.isnan(start.q[is_needed]).any():
            return None
        q = start.q * self.scale
        solution = certify(self.machine.program, start.beta, start.values, 0)
        upper = self._primal_value(theta, q, solution)
        return Evaluation(theta, solution, upper, q, deferred=self.deferred)

    def evaluate_coefficients(self, theta: Weights, beta: Array) -> Any:
        """Return the evaluation of a feasible β at θ, without a solve of the machine."""
        return self.evaluation(theta, assess(self.combine(theta), self.machine.program, beta))

    def evaluation(self, theta: Weights, solution: Any, kernels: Numbers = None) -> Evaluation:
        """Return the evaluation of a solution at θ, with the gradient of at least these kernels.

        With None the gradient of every kernel that is not deferred is computed. Kernels with a
        weight are always among them.
        """
        support = nonzero_rows(solution.beta)
        all_kernels = np.arange(self.stack.n_kernels)
        no_products = np.zeros((len(all_kernels), len(support), *solution.beta.shape[1:]))
        no_q = np.full(len(all_kernels), np.nan)
        empty = Evaluation(theta, solution, np.inf, no_q, no_products, support, self.deferred)
        if kernels is None:
            kernels = all_kernels[~self.deferred]
        evaluation = self.with_gradients(empty, np.union1d(kernels, all_kernels[theta > 0]))

        upper = self._primal_value(theta, evaluation.q, solution)
        if not self.machine.has_targets:
            # If the samples of a one-class machine surround the origin, the optimum is zero.
            diagonal = self.combine(theta).diagonal()
            self.noise = self.machine.program.value_noise(solution.beta, diagonal, self.stack.dtype)
        return replace(evaluation, upper=upper)

    def _primal_value(self, theta: Weights, q: Weights, solution: Any) -> float:
        # The part of the kernels comes from the same products as the lower bound, so that rounding
        # moves both bounds alike.
        quadratic = float(theta[theta > 0] @ q[theta > 0])
        program = self.machine.program
        value: float = program.primal_value(quadratic, solution.values, solution.intercept)
        return value

    def with_gradients(self, evaluation: Evaluation, kernels: Indices) -> Evaluation:
        """Return the evaluation with the gradient of these kernels, too."""
        beta = evaluation.solution.beta
        support = evaluation.support
        products = evaluation.products.copy()
        q = evaluation.q.copy()
        new_products = self._scaled_products(evaluation, support, kernels)
        products[kernels] = new_products
        # Rounding can make the form of a positive semi-definite matrix negative.
        q[kernels] = np.maximum(
            0.5 * np.tensordot(new_products, beta[support], axes=beta.ndim), 0.0
        )
        return replace(evaluation, products=products, q=q)

    def with_all_gradients(self, evaluation: Evaluation) -> Evaluation:
        if evaluation.is_complete:
            return evaluation
        missing = np.flatnonzero(np.isnan(evaluation.q) & ~self.deferred)
        return self.with_gradients(evaluation, missing)

    def watched_kernels(self, evaluation: Evaluation) -> Numbers:
        """Return the kernels with a weight, or with a q not far below the largest one."""
        theta, q = evaluation.theta, evaluation.q
        may_enter = q >= self.options.entering_fraction * np.nanmax(q)
        return np.flatnonzero((theta > 0) | may_enter)

    def plane(self, evaluation: Evaluation) -> tuple[float, Weights]:
        # The q of a deferred kernel counts as zero, until the certificate computes it.
        is_unknown = self.deferred & np.isnan(evaluation.q)
        q = np.where(is_unknown, 0.0, evaluation.q)
        return self.machine.linear_value(evaluation.solution), q

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return ∂²J/∂θ² among the computed kernels, while the free samples stay free.

        The free coefficients solve a linear system in the combined kernel, so their change with
        θ_m is the inverse of the system times K_m β. All other coefficients are fixed at a bound.
        Several outputs depend on the weights independently, and their curvatures add up.
        """
        beta = evaluation.solution.beta
        kernels = evaluation.computed_kernels
        outputs: list[Any] = [(self.machine.program, beta, np.index_exp[...])]
        if beta.ndim == 2:
            machines = enumerate(self.machine.machines)
            outputs = [
                (machine.program, beta[:, c], np.index_exp[..., c]) for c, machine in machines
            ]
        H = np.zeros((len(kernels), len(kernels)))
        for program, output_beta, output in outputs:
            free = program.free(output_beta)
            if len(free) == 0:
                continue
            # K_m β / d_m² of these kernels at the free samples.
            products = self._products_at(evaluation, free, kernels)
            V = products[output].T
            right_sides = np.column_stack([V, np.ones(len(free))])
            K = self.combine(evaluation.theta)
            solved = K.solve_free(free, program.ridge[free], right_sides)
            solved_ones = None if program.total is None else solved[:, -1]
            H += free_curvature(V, solved[:, :-1], solved_ones)
        return H

    def _products_at(self, evaluation: Evaluation, rows: Indices, kernels: Indices) -> Array:
        """Return K_m β / d_m² at these samples, from the evaluation as far as it has them."""
        support = evaluation.support
        in_support = np.isin(rows, support, assume_unique=True)
        products = np.empty((len(kernels), len(rows), *evaluation.products.shape[2:]))
        places = np.searchsorted(support, rows[in_support])
        products[:, in_support] = evaluation.products[np.ix_(kernels, places)]
        # Without a tube a sample may be free although its coefficient is zero.
        if not in_support.all():
            products[:, ~in_support] = self._scaled_products(evaluation, rows[~in_support], kernels)
        return products

    def _scaled_products(self, evaluation: Evaluation, rows: Indices, kernels: Indices) -> Array:
        """Return K_m β / d_m² at these samples for these kernels, computed by the stack."""
        products = self.stack.products(evaluation.solution.beta, rows, kernels)[kernels]
        one_per_kernel = (-1, *[1] * (products.ndim - 1))
        return np.asarray(self.scale[kernels].reshape(one_per_kernel) * products)


class SmoothProblem(MachineProblem):
    """The problem of a machine whose coefficients are the negative gradient of a smooth loss."""

    def evaluate_coefficients(self, theta: Weights, beta: Array) -> None:
        """Return None: the dual value of a β that is no gradient of the loss is not known."""
        return

    def evaluate_start(self, start: Start) -> None:
        """Return None: the coefficients of a start belong to another loss."""
        return

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return (K_mβ)ᵀ(I + WK)⁻¹W(K_lβ) among the computed kernels.

        W is the curvature of the loss.
        """
        kernels = evaluation.computed_kernels
        # W does not read samples without a coefficient, whose rows stay zero.
        V = np.zeros((self.stack.n_samples, len(kernels)))
        V[evaluation.support] = evaluation.products[kernels].T
        loss = self.machine.program.loss_at(evaluation.solution.point)
        K = self.combine(evaluation.theta)
        solved, _ = solve_curved(
            K.products, loss.curvature_times, loss.curvature_times(V), tol=CURVED_TOL
        )
        H = V.T @ solved
        # An infinite loss has no curvature.
        if not np.isfinite(H).all():
            return np.zeros_like(H)
        return np.asarray(0.5 * (H + H.T))


class MulticlassProblem(MachineProblem):
    """The problem of a joint machine of several classes.

    Where its free samples are too many to be factorised, differences of gradients stand in for the
    curvature.
    """

    #: The last evaluation whose curvature came from gradients, and that curvature.
    _secant: tuple[Evaluation, Array] | None = None

    def watched_kernels(self, evaluation: Evaluation) -> None:
        """Return None: all kernels share the same products."""
        return

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return ∂²J/∂θ² from the free coefficients, or from differences of gradients."""
        K = self.combine(evaluation.theta)
        program = self.machine.program
        max_free = self.options.max_free_samples
        if not self.stack.stores_combined:
            max_free = min(max_free, K.block_samples)
        in_single = self.options.in_single(self.stack.n_samples)
        H = joint_curvature(K, program, evaluation, max_free, in_single)
        if H is not None:
            # All classes share the weights: their blocks, and those between them, add up.
            blocks = H.reshape(program.n_classes, len(evaluation.q), program.n_classes, -1)
            return np.asarray(blocks.sum(axis=(0, 2)))
        H = self._secant_curvature(evaluation)
        self._secant = evaluation, H
        return H

    def _secant_curvature(self, evaluation: Evaluation) -> Array:
        """Return the update of the last curvature by Broyden, Fletcher, Goldfarb and Shanno."""
        if self._secant is None:
            q = np.maximum(evaluation.q, LEAST_SECANT_GRADIENT * evaluation.q.max(initial=0.0))
            return np.diag(steepest_curvature(evaluation.theta, q))
        last, H = self._secant
        s = evaluation.theta - last.theta
        y = last.q - evaluation.q
        Hs = H @ s
        sy = float(s @ y)
        # A secant of hardly any curvature is rounding.
        least_sy = LEAST_SECANT * float(np.linalg.norm(s) * np.linalg.norm(y))
        if sy <= least_sy or float(s @ Hs) <= 0:
            return H
        return np.asarray(H - np.outer(Hs, Hs) / float(s @ Hs) + np.outer(y, y) / sy)


def steepest_curvature(theta: Weights, q: Weights) -> Weights:
    """Return the largest possible ∂²J/∂θ_m² for the negative gradient q.

    As one weight alone changes, its q falls at most like θ_m⁻².
    """
    return np.asarray(2.0 * q / np.maximum(theta, LEAST_CURVED_WEIGHT / len(theta)))


def joint_curvature(
    K: Any, program: Any, evaluation: Evaluation, max_free: int, single: bool
) -> Array | None:
    """Return ∂²J/∂θ² over all (class, kernel) of a joint machine.

    None is returned for more than `max_free` free samples, or a singular block of theirs. `single`
    says whether the block is factorised in single precision.
    """
    beta = evaluation.solution.beta
    n_free = free_coefficients(program, beta).any(axis=1).sum()
    if n_free > max_free:
        return None
    with suppress(np.linalg.LinAlgError):
        return multiclass_curvature(
            K, program, beta, evaluation.products, evaluation.support, single=single
        )
    return None


@singledispatch
def make_problem(
    machine: Any, stack: GramStack, options: LearnerOptions, start: Start
) -> WeightProblem:
    """Return the problem of a machine with one weight per kernel.

    It follows from the flags of a `Machine`. Classes of machines with a problem of their own, which
    are none of these three, register it here.
    """
    if not machine.has_box:
        return SmoothProblem(stack, machine, options, start)
    if machine.has_independent_outputs:
        return MachineProblem(stack, machine, options, start)
    return MulticlassProblem(stack, machine, options, start)


# The best evaluations of a search -----------------------------------------------------------------


class BoundTracker(Search):
    """A search that keeps its best evaluation, its best lower bound and its tightest evaluation.

    The search returns its tightest evaluation, the two bounds of which both follow from its weights
    and its β. It may know a better lower bound from another β, or from a mixture of several, and
    takes its steps by that one.

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
    lower_bound : float
        The largest lower bound on the optimum.
    tightest, gap : Evaluation, float
        The one of the smallest relative gap between its own bounds, and that gap.
    machine_tol : float
        Relative gap to which the search solves the machine.
    ended_by : str or None
        Name of the successor to which the last progress is due; None for the search itself.
    hindrance : str or None
        Why a successor that might close the gap was not tried, and what to do; None if none was
        left out.
    n_idle_steps, gap_before_step : int, float
        Steps in a row that left the gap as it was, and the gap before the last step.
    show : callable
        Shows a gap; set while the search runs.
    history : list of Iteration
        One line per iteration.
    """

    machine_tol: float

    def __init__(self, problem: WeightProblem, first: Evaluation) -> None:
        self.problem = problem
        self.best = first
        self.tightest = first
        self.lower_bound = -np.inf
        self.gap = np.inf
        self.ended_by: str | None = None
        self.hindrance: str | None = None
        self.n_idle_steps = 0
        self.gap_before_step = np.inf
        self.show: Callable[[float], None] = lambda gap: None
        self.record_bounds(first)
        self.history = [Iteration(first.upper, self.gap)]

    def record_bounds(self, trial: Evaluation | None) -> None:
        """Update the lower bound and the tightest evaluation by a trial, if it is complete."""
        if trial is None or not trial.is_complete:
            return
        lower = self.problem.lower_bound(trial)
        self.lower_bound = max(self.lower_bound, lower)
        gap = relative_gap(trial.upper, lower, self.problem.noise)
        if gap < self.gap:
            self.tightest = trial
            self.gap = gap

    @property
    def combined_gap(self) -> float:
        """The relative gap between the best bounds, which may be of different β."""
        return relative_gap(self.best.upper, self.lower_bound, self.problem.noise)

    def consider(self, trial: Evaluation) -> bool:
        """Update the bounds and the best evaluation by a trial; whether it is the best so far."""
        self.record_bounds(trial)
        if trial.upper >= self.best.upper:
            return False
        self.best = trial
        return True

    def has_ended(self) -> bool:
        """Whether no machine is solved any more."""
        return self.problem.has_refused

    def search_line(
        self,
        start: Evaluation,
        direction: Weights,
        evaluate: Callable[[Weights], Evaluation | None],
    ) -> Evaluation | None:
        """Return the end of a step that lowers the value or closes the gap; None if none does.

        Parameters
        ----------
        start : Evaluation
            Where the line starts.
        direction : ndarray like θ
            Its direction.
        evaluate : callable
            From θ to its evaluation, the bounds of which it records; None ends the line search, and
            the whole search.
        """
        problem = self.problem
        options = problem.options
        value = problem.value(start)
        gap_before = self.gap
        moving = direction != 0

        def evaluate_step(size: float) -> Evaluation | None:
            return evaluate(start.theta + size * direction)

        def slope_along_line(evaluation: Evaluation) -> float:
            return float(problem.gradient(evaluation)[moving] @ direction[moving])

        slope = slope_along_line(start)

        def is_hidden(size: float, end: Evaluation) -> bool:
            # Differences below the machine's own gap prove no descent, nor do steps that rounding
            # removes.
            if self.gap <= options.tol:
                return True
            error = max(start.solution.gap, end.solution.gap) * abs(value)
            return -size * slope <= error or np.array_equal(end.theta, start.theta)

        step = line_search(
            evaluate_step,
            start,
            slope,
            Trials(options.max_line_evaluations),
            value=problem.value,
            slope_at=slope_along_line,
            hidden=is_hidden,
        )
        if step is not None:
            end: Evaluation = step[1]
            return end
        if self.has_ended():
            return None

        # Rounding may hide that the step lowers the value, but not that it raises the lower bound.
        rise = problem.value(self.tightest) - value
        closes_gap = self.gap < options.progress_factor * gap_before
        if closes_gap and rise <= (start.solution.gap + HIDDEN_RISE) * abs(value):
            return self.tightest
        return None

    def tighten_machine_tol(self) -> bool:
        """Solve the machine more exactly from now on; False if rounding hides smaller gaps."""
        options = self.problem.options
        was_least = self.machine_tol <= options.least_machine_tol
        tightened = options.machine_tol_factor * self.machine_tol
        self.machine_tol = max(tightened, options.least_machine_tol)
        return not was_least

    def record_planes(self, planes: list[tuple[float, Weights, Array]]) -> Weights | None:
        """Update the bounds by the planes of several β, and return θ where their maximum is least.

        None is returned where the norm does not know that θ. The value of the dual is concave: the
        mixture of the β bounds the optimum no less than the mixture of their planes does.

        Parameters
        ----------
        planes : list of (float, ndarray, ndarray)
            Constant c, q and β of every plane c − ⟨q, θ⟩.
        """
        constants, qs, betas = zip(*planes, strict=True)
        minimum = self.problem.norm.minimise_planes(np.array(constants), np.array(qs))
        if minimum is None:
            return None
        theta, lower, shares = minimum
        mixture = sum(share * beta for share, beta in zip(shares, betas, strict=True) if share)
        self.lower_bound = max(self.lower_bound, lower)
        self.record_bounds(self.problem.evaluate_coefficients(self.best.theta, mixture))
        return theta

    def record_iteration(self) -> float:
        """Add a line to the history and return the gap."""
        self.history.append(Iteration(self.best.upper, self.gap))
        return self.gap

    @contextmanager
    def context(self) -> Iterator[None]:
        """Show the gap while the search runs."""
        with gap_progress(self.problem.machine, self.problem.options) as self.show:
            yield

    def begin(self) -> None:
        self.show(self.gap)
        self.gap_before_step = self.gap

    def goes_on(self) -> bool:
        """Whether the gap is above `tol`, iterations are left, and some of the last were of use."""
        options = self.problem.options
        has_room = len(self.history) < options.max_iter
        is_idle = self.n_idle_steps >= options.max_idle_steps
        return self.gap > options.tol and has_room and not is_idle

    def end_step(self) -> None:
        self.show(self.record_iteration())
        is_idle = not self.gap < self.gap_before_step
        self.n_idle_steps = self.n_idle_steps + 1 if is_idle else 0
        self.gap_before_step = self.gap

    def learned(self) -> Learned:
        """Return the tightest weights and their solution; the best ones if no gap is finite."""
        evaluation = self.tightest if np.isfinite(self.gap) else self.best
        learned = self.problem.learned(evaluation, self.gap, self.history)
        return replace(learned, ended_by=self.ended_by, hindrance=self.hindrance)


# Progress: a bar where rich is installed, else plain lines on stdout ------------------------------


#: Shows the state of a run: words and, where an end is known, how much of a total is done.
Advance = Callable[..., None]


@contextmanager
def progress(title: str, total: float | None = None, verbose: bool = True) -> Iterator[Advance]:
    """Show what runs and how far it is while the block runs, if `verbose`.

    The value of the context is called with every new state, and optionally with how much is
    completed and a new total.
    """
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
    except ImportError:
        # rich comes with the extra `cli`.
        yield lambda state, completed=None, total=None: print(f"{title}: {state}", flush=True)
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=total, state="")

        def advance(state: str, completed: float | None = None, total: float | None = None) -> None:
            bar.update(task, state=state, completed=completed, total=total)

        yield advance


@contextmanager
def gap_progress(machine: Any, options: LearnerOptions) -> Iterator[Callable[[float], None]]:
    """Show how many of the decades from a gap of 1 down to `tol` are done.

    The value of the context is called with each new gap.
    """
    if not options.verbose:
        yield lambda gap: None
        return
    tol = options.tol
    iteration_numbers = count(1)
    n_decades = max(-log10(tol), 1e-9)
    with progress(type(machine).__name__, n_decades) as show:

        def show_gap(gap: float) -> None:
            state = f"iteration {next(iteration_numbers)}, gap {gap:.1e} of {tol:.0e}"
            show(state, -log10(min(max(gap, tol * 1e-3), 1.0)))

        yield show_gap
