"""Where a search starts, what it returns, and the certificate of that.

Learners compare bounds to know when to stop. The gap that a fit states is computed here and nowhere
else, from the returned weights, coefficients and intercept alone:

1. K_mβ is recomputed from entries in double precision, for every kernel.
2. Rounding is bounded from what was summed. With D_mi = k_m(x_i, x_i) and s_m = Σ_j √D_mj |β_j|,
   the sum (K_mβ)_i is known to within u √D_mi s_m, and ½ βᵀK_mβ to within ½ u s_m², where u = 2 ε
   √n and ε is the precision of the entries.
3. The primal value is bounded from above with every loss at the worse end of its residual's
   interval, the optimum from below with every ½ βᵀK_mβ at its upper end. The gap is the difference
   of the two bounds: it is never clipped, and an upper bound below the lower one, or one that is
   not finite, is a gap of infinity.

Learners return weights and a solution (`Learned`). `Learned.problem` is the problem that these are
a point of: it has the products with the kernels, the regulariser and the lower bound.
`CertifiedProblem.certificate` makes a `Certificate` of the point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from kernelmosaic._typing import Array, Indices
from kernelmosaic.gram.linear_algebra import nonzero_rows, rounding
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.tuning import SAME_WEIGHTS
from kernelmosaic.solvers.program import relative_gap

# What learners start from -------------------------------------------------------------------------


@dataclass(eq=False)
class CombinedKernel:
    """The combined kernel of a stack at the weights last used, of which one matrix is kept.

    Problems on one stack may share it if they are solved one after the other. Problems that are
    solved at the same time need one each.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    """

    stack: GramStack
    _K: Any = field(default=None, init=False, repr=False)
    _weights: Array | None = field(default=None, init=False, repr=False)

    def at(self, weights: Array) -> Any:
        """Return Σ η_m K_m, computed again only if the weights have changed."""
        if self._weights is None or not np.array_equal(self._weights, weights):
            self._K = self.stack.combine(weights, out=self._K)
            self._weights = weights
        return self._K


@dataclass(frozen=True)
class Start:
    """Where a learner starts; by default it has neither weights nor coefficients.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (classes, P), or None
        Weights η of a similar problem.
    beta : ndarray of shape (n,) or (n, outputs), or None
        Its coefficients.
    machine : Machine, Discriminant or None
        The machine within whose bounds the coefficients are; None for those of any machine.
    kernel : CombinedKernel or None
        Where the learner combines kernels; None for one of its own.
    values, q : ndarray of shape (n,) and (P,), or None
        Kβ at these weights, and ½ βᵀK_mβ, the negative gradient of J in η; None where unknown.
    similar_q : ndarray of shape (P,) or None
        ½ βᵀK_mβ of a fit to similar samples, by which kernels are deferred to a certificate that
        all fits share; None defers no kernel.
    """

    weights: Array | None = None
    beta: Array | None = None
    machine: Any = None
    kernel: CombinedKernel | None = None
    values: Array | None = None
    q: Array | None = None
    similar_q: Array | None = None

    def with_weights(self, weights: Array) -> Start:
        """Return the start at other weights, without the products that depend on the old ones.

        Weights that differ by rounding alone are not replaced, and the products are kept.
        """
        if self.weights is not None and self.weights.shape == weights.shape:
            change = np.abs(self.weights - weights).max()
            if change <= SAME_WEIGHTS * np.abs(weights).max():
                return self
        return replace(self.without_products(), weights=weights)

    def take(self, rows: Indices) -> Start:
        """Return the start for some of the samples."""
        if self.beta is None:
            return self
        return replace(self.without_products(), beta=self.beta[rows])

    def without_products(self) -> Start:
        """Return the start without Kβ and ½ βᵀK_mβ.

        They do not hold for other kernels, nor for the same kernels in another precision.
        """
        return replace(self, values=None, q=None)

    def for_machine(self, machine: Any) -> Start:
        """Return the start for a machine, within whose bounds the coefficients are.

        Coefficients at a bound of the old machine are at the bound of the new one. A start whose
        shapes do not fit the machine is dropped, but for the combined kernel.
        """
        has_other_shape = self.beta is not None and self.beta.shape != machine.shape
        if self.weights is not None and self.weights.ndim > 1:
            n_classes = len(self.weights)
            has_other_shape = has_other_shape or n_classes not in machine.shape[1:]
        if has_other_shape:
            return replace(COLD, kernel=self.kernel)
        if self.beta is None or self.machine is None:
            return self
        moved = replace(self, beta=machine.continued(self.beta, self.machine), machine=machine)
        # Where no coefficient is moved, the products with them still hold.
        if np.array_equal(np.asarray(moved.beta), self.beta):
            return moved
        return moved.without_products()


#: A start without weights and coefficients.
COLD = Start()


# What learners return -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Iteration:
    """One line of a learner's history.

    Attributes
    ----------
    objective : float
        Value of the training problem at the weights of that iteration.
    gap : float
        Relative duality gap of the whole problem, weights included.
    """

    objective: float
    gap: float


@dataclass(frozen=True)
class Learned:
    """The result of a learner.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (classes, P)
        The weights η of the kernels; by class where every class has its own.
    solution : Solution or RidgeSolution
        The machine's solution for the combined kernel; β has one column per class or target where
        there are several.
    objective : float
        Value of the training problem, in the program's scale.
    gap : float
        Certified relative duality gap of the whole problem, weights included; where the weights are
        given or chosen by a heuristic, of the machine at these weights.
    n_solves : int
        How often the machine was solved.
    history : list of Iteration
        Objective and gap after every iteration.
    lower : float or None
        A lower bound on the optimum, where no β alone proves one.
    start : Start
        Where the learner of a similar problem may start.
    q : ndarray of shape (P,) or None
        ½ βᵀK_mβ, where the learner has computed all of them.
    ended_by : str or None
        Name of the method that the learner handed over to and that found the result; None for the
        learner itself.
    hindrance : str or None
        Why a method that might have closed the gap was not tried, and what to do; None where none
        was left out.
    unrounded_gap : float or None
        What `gap` would be if nothing were added to it for rounding; None where that is unknown.
    is_final : bool
        Whether a fit states this objective and this gap: they are those of a certificate, or no
        certificate is made.
    """

    weights: Array
    solution: Any
    objective: float
    gap: float
    n_solves: int
    history: list[Iteration] = field(default_factory=list)
    lower: float | None = None
    start: Start = COLD
    q: Array | None = None
    ended_by: str | None = None
    hindrance: str | None = None
    unrounded_gap: float | None = None
    is_final: bool = False

    def problem(self, entries: Entries, machine: Any, learner: Any) -> CertifiedProblem:
        """Return the problem that the weights and the solution are a point of.

        Parameters
        ----------
        entries : Entries
            The kernels' entries.
        machine : Machine
            What was trained.
        learner : Learner
            What learned the weights; its `lower_bound` states which weights the bound holds for.
        """
        if self.lower is None:
            return KernelWeights(entries, machine, learner)
        return SignedWeights(entries, machine, learner, self.lower)

    def certified(self, entries: Entries, machine: Any, learner: Any) -> Self:
        """Return the result with the objective and the gap of its own certificate.

        The parameters are those of `problem`.
        """
        problem = self.problem(entries, machine, learner)
        return self.with_certificate(problem.certificate(self.weights, self.solution))

    def with_certificate(self, certificate: Certificate) -> Self:
        """Return the result with objective and gap of a certificate, also in its history."""
        objective = certificate.objective
        # A function that has no margin once it is recomputed has an infinite objective.
        if not np.isfinite(objective):
            objective = self.objective
        unrounded_gap = None
        if certificate.lower_without_rounding is not None:
            unrounded_gap = relative_gap(objective, certificate.lower_without_rounding)
        return replace(
            self,
            weights=certificate.weights,
            solution=certificate.solution,
            objective=objective,
            gap=certificate.gap,
            history=[*self.history[:-1], Iteration(objective, certificate.gap)],
            q=certificate.q,
            unrounded_gap=unrounded_gap,
            is_final=True,
        )


@dataclass(frozen=True, kw_only=True)
class LearnedClasses(Learned):
    """Weights θ_c of every class c, learned with ½ Σθ + ½ Σ‖w_c‖² + the losses.

    Attributes
    ----------
    witness : ndarray like `solution.beta`
        The machine's own feasible β; that of the solution is rescaled with the weights.
    """

    witness: Array

    def problem(self, entries: Entries, machine: Any, learner: Any) -> ClassWeights:
        return ClassWeights(entries, machine, learner, self.witness)


@dataclass(frozen=True)
class LearnedRidge(Learned):
    """The result of a learner of least squares, whose β alone proves both bounds."""

    def problem(self, entries: Entries, machine: Any, learner: Any) -> LeastSquaresProblem:
        return LeastSquaresProblem(entries, learner, self.objective, self.gap)


# What is certified --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """The bounds that weights and a solution prove.

    Attributes
    ----------
    objective : float
        The primal value.
    upper : float
        An upper bound on the primal value, whatever rounding has added to it.
    lower : float
        A lower bound on the optimum.
    gap : float
        The largest possible relative gap between both; infinite where they prove nothing.
    weights, solution : ndarray, Solution or RidgeSolution
        What is certified, with Kβ recomputed from the entries.
    q : ndarray or None
        ½ βᵀK_mβ, output by output; None where the solution has them.
    lower_without_rounding : float or None
        The lower bound with nothing taken off for rounding; None where that is unknown.
    """

    objective: float
    upper: float
    lower: float
    gap: float
    weights: Array
    solution: Any
    q: Array | None = None
    lower_without_rounding: float | None = None


@dataclass(frozen=True)
class Entries:
    """The kernels' entries, from which certificates recompute all products.

    Attributes
    ----------
    stack : GramStack
        The kernels.
    sizes : ndarray of shape (P, n)
        The size of the numbers that entries are made of: k_m(x, x), or more where entries are
        differences.
    shared_products : SharedProducts or None
        Products with the coefficients that are known already.
    """

    stack: GramStack
    sizes: Array
    shared_products: SharedProducts | None = None


class CertifiedProblem(ABC):
    """A training problem whose points can be certified."""

    @abstractmethod
    def certificate(self, weights: Array, solution: Any) -> Certificate:
        """Return the bounds that weights and a solution prove."""


@dataclass(frozen=True)
class KernelWeights(CertifiedProblem):
    """The problem of a machine with one weight per kernel.

    Subclasses replace what differs in other problems: the products with the kernels, the
    regulariser of the weights, and the lower bound.

    Attributes
    ----------
    entries : Entries
        The kernels' entries.
    machine : Machine
        What is trained.
    learner : Learner
        Its `lower_bound` is that of the set of weights.
    """

    entries: Entries
    machine: Any
    learner: Any

    def certificate(self, weights: Array, solution: Any) -> Certificate:
        program = self.machine.program
        intercept = solution.intercept
        forms = self.forms(weights, solution)
        zero_outputs = self.zero_outputs(weights, solution, forms)
        if zero_outputs is not None:
            # A function that is zero up to rounding is zero, and does not depend on the weights.
            beta = np.where(zero_outputs, 0.0, solution.beta)
            values = np.where(zero_outputs, 0.0, solution.values)
            remaining_weights = np.where(zero_outputs[:, np.newaxis], 0.0, weights)
            return self.certificate(remaining_weights, replace(solution, beta=beta, values=values))

        quadratic = self.regulariser(weights) + forms.quadratic
        upper = program.primal_bound(
            quadratic + forms.quadratic_error, forms.values, intercept, forms.values_error
        )
        objective = program.primal_value(quadratic, forms.values, intercept)
        lower = self.lower_bound(weights, solution, forms)
        return Certificate(
            objective,
            upper,
            lower,
            certified_gap(objective, upper, lower),
            weights,
            replace(solution, values=forms.values),
            q=forms.q,
            lower_without_rounding=self.lower_bound_without_rounding(weights, solution, forms),
        )

    def forms(self, weights: Array, solution: Any) -> Forms:
        """Return Kβ and ½ βᵀK_mβ with the bounds of their rounding."""
        return exact_forms(self.entries, self.machine, solution, weights)

    def regulariser(self, weights: Array) -> float:
        """Return the regulariser of the weights themselves."""
        return 0.0

    def zero_outputs(self, weights: Array, solution: Any, forms: Forms) -> Array | None:
        """Return a mask of the outputs that are zero up to rounding and yet have coefficients.

        None is returned where there is no such output.
        """
        return None

    def lower_bound(self, weights: Array, solution: Any, forms: Forms) -> float:
        """Return a lower bound on the optimum, with every ½ βᵀK_mβ at its upper end."""
        q = (forms.q + forms.q_error).reshape(len(forms.q), -1).sum(axis=1)
        return float(self.learner.lower_bound(self.machine.linear_bound(solution), q, weights))

    def lower_bound_without_rounding(
        self, weights: Array, solution: Any, forms: Forms
    ) -> float | None:
        """Return the lower bound with nothing taken off for rounding; None where it is unknown."""
        q = forms.q.reshape(len(forms.q), -1).sum(axis=1)
        return float(self.learner.lower_bound(self.machine.linear_value(solution), q, weights))


@dataclass(frozen=True)
class KnownForms(KernelWeights):
    """The problem of a machine where the products were computed in double precision already.

    Attributes
    ----------
    computed_forms : Forms
        Those of the one solution that is certified.
    """

    computed_forms: Forms

    def forms(self, weights: Array, solution: Any) -> Forms:
        return self.computed_forms


@dataclass(frozen=True)
class SignedWeights(KernelWeights):
    """The problem of weights of any sign, of which no β alone proves a bound.

    Attributes
    ----------
    search_bound : float
        The lower bound that the search has found.
    """

    search_bound: float

    def lower_bound(self, weights: Array, solution: Any, forms: Forms) -> float:
        # Rounding may lift the bound of the search above what the machine proves at these weights.
        machine_bound = self.machine.linear_bound(solution) - forms.quadratic
        return float(min(self.search_bound, machine_bound) - forms.quadratic_error)

    def lower_bound_without_rounding(self, weights: Array, solution: Any, forms: Forms) -> None:
        return None


@dataclass(frozen=True)
class ClassWeights(KernelWeights):
    """The problem of one weight per class and kernel, with the regulariser ½ Σθ.

    The witness τ is feasible for the machine; divided by the largest (τ_cᵀK_mτ_c)^½, where that
    exceeds one, it is feasible for the whole problem, whose dual value is its linear term.

    Attributes
    ----------
    witness : ndarray of shape (n, classes)
        τ; the β of the solution is rescaled with the weights.
    """

    witness: Array

    def forms(self, weights: Array, solution: Any) -> Forms:
        return exact_forms(self.entries, self.machine, solution, weights.T)

    def regulariser(self, weights: Array) -> float:
        return 0.5 * float(weights.T.sum())

    def zero_outputs(self, weights: Array, solution: Any, forms: Forms) -> Array | None:
        theta = weights.T
        is_zero: Array = np.sum(theta * forms.q, axis=0) <= np.sum(theta * forms.q_error, axis=0)
        if not np.any(solution.beta[:, is_zero]):
            return None
        return is_zero

    def lower_bound(self, weights: Array, solution: Any, forms: Forms) -> float:
        tau = self.witness
        stack = self.entries.stack
        support = nonzero_rows(tau)
        q = _quadratic(stack.exact_products(tau, support), tau[support])
        sums = _rounding_sums(self.entries.sizes, tau)
        q = q + 0.5 * rounding(np.float64, stack.n_samples) * sums**2
        scale = max(1.0, float(np.sqrt(2.0 * q.max(initial=0.0))))
        lower: float = self.machine.program.linear_bound(tau, solution.intercept) / scale
        return lower

    def lower_bound_without_rounding(self, weights: Array, solution: Any, forms: Forms) -> None:
        return None


@dataclass(frozen=True)
class LeastSquaresProblem(CertifiedProblem):
    """The problem of least squares on centred kernels, searched in double precision.

    The gap is that of the search plus the rounding of both bounds. Both sum terms of the size of
    Σ_j (Σ_i √D_i |β_ij|)². The lower bound is ⟨H, β⟩² over the sum of λ‖β‖² and the largest form
    Σ_j β_jᵀG̃_mβ_j / r_m, whether or not its kernel has a weight; r_m are the traces of the centred
    kernels. Rounding may hide u Σ_j s_mj² of a form and u Σ_i D_mi of r_m, which is much where
    centring leaves little of a kernel: the forms are raised by both, which lowers the bound. Traces
    of one are given, not summed.

    Attributes
    ----------
    entries : Entries
        The kernels' entries.
    learner : Learner
        Its `lower_bound` is that of the set of weights, its penalties are the √r_m.
    objective, search_gap : float
        The objective that the search has found, and its gap.
    """

    entries: Entries
    learner: Any
    objective: float
    search_gap: float

    def certificate(self, weights: Array, solution: Any) -> Certificate:
        sizes = self.entries.sizes
        learner = self.learner
        beta = solution.beta
        forms = solution.forms
        traces = learner.options.penalties**2
        objective_size = abs(self.objective)
        u = rounding(np.float64, len(beta))

        # The rounding of the primal value.
        combined_sizes = (weights @ sizes)[np.newaxis]
        error = 2.0 * u * float(np.sum(_rounding_sums(combined_sizes, beta) ** 2))

        # The forms at their upper ends, and how much that takes off the lower bound.
        raised = np.maximum(forms, 0.0) + u * np.sum(_rounding_sums(sizes, beta) ** 2, axis=1)
        trace_error = u * np.abs(sizes).sum(axis=1) / traces
        raised *= 1.0 + np.where(traces == 1.0, 0.0, trace_error)
        bound = learner.lower_bound(0.0, forms, weights)
        raised_bound = learner.lower_bound(0.0, raised, weights)
        hidden = bound - raised_bound

        lower = (
            self.objective * (1.0 - self.search_gap) * objective_size / (objective_size + hidden)
        )
        gap = (
            self.search_gap
            + error / objective_size
            + 1.0
            - objective_size / (objective_size + hidden)
        )
        return Certificate(self.objective, self.objective + error, lower, gap, weights, solution)


def certified_gap(objective: float, upper: float, lower: float) -> float:
    """Return the largest possible (primal − dual) / max(|primal|, |dual|).

    It is infinite where the bounds prove nothing, because they cross or are not finite. The primal
    value is at most `upper`, and no further below `objective` and `upper` than these two are apart;
    rounding may leave either as the larger one. The dual value is no less than `lower`.
    """
    if not (np.isfinite(upper) and np.isfinite(lower)) or upper < lower:
        return np.inf
    if upper == lower == 0.0:
        return 0.0
    scale = max(abs(lower), min(abs(objective), abs(upper)) - abs(upper - objective))
    if not scale > 0:
        return np.inf
    return float((upper - lower) / scale)


# Products with the kernels, and the bounds of their rounding --------------------------------------


@dataclass(frozen=True)
class Forms:
    """Kβ and ½ βᵀK_mβ of coefficients β, each number with a bound of its rounding.

    Attributes
    ----------
    values, values_error : ndarray of shape (n,) or (n, outputs)
        Σ_m η_m K_m β.
    q, q_error : ndarray of shape (P,) or (P, outputs)
        ½ βᵀK_mβ, output by output.
    quadratic, quadratic_error : float
        Σ_m η_m ½ βᵀK_mβ, summed over the outputs.
    """

    values: Array
    values_error: Array
    q: Array
    q_error: Array
    quadratic: float
    quadratic_error: float


class SharedProducts:
    """K_mβ of several β from one pass over the entries in double precision.

    Equal columns are multiplied once.

    Parameters
    ----------
    stack : GramStack
        The kernels, as matrices or features.
    betas : sequence of ndarray of shape (n,) or (n, outputs)
        The coefficients.
    """

    def __init__(self, stack: GramStack, betas: Sequence[Array]) -> None:
        columns = {column.tobytes(): column for beta in betas for column in np.atleast_2d(beta.T)}
        self._stack = stack
        self._column_numbers = {key: k for k, key in enumerate(columns)}
        self._products = stack.exact_products(
            np.column_stack(list(columns.values())), np.arange(stack.n_samples)
        )

    def __call__(self, beta: Array, rows: Indices) -> Array:
        """Return K_mβ at some samples, of shape (P, rows) or (P, rows, outputs)."""
        numbers = [self._column_numbers[column.tobytes()] for column in np.atleast_2d(beta.T)]
        products = self._products[:, :, numbers][:, rows]
        return products.reshape(len(self._products), len(rows), *beta.shape[1:])


def exact_forms(entries: Entries, machine: Any, solution: Any, weights: Array) -> Forms:
    """Return the forms of a solution's β, from entries in double precision.

    Where entries are stored in single precision they are computed anew, for the samples that have a
    coefficient and those that may have a loss. For the others the stored entries prove that they
    have none.

    Parameters
    ----------
    entries : Entries
        The kernels' entries.
    machine : Machine
        What was trained.
    solution : Solution
        Its β is certified.
    weights : ndarray of shape (P,) or (P, outputs)
        The weights of all outputs, or of every output.
    """
    stack = entries.stack
    sizes = entries.sizes
    beta = solution.beta
    sums = _rounding_sums(sizes, beta)
    W = weights
    if weights.ndim != beta.ndim:
        W = np.repeat(weights[:, np.newaxis], beta.shape[1], axis=1)
    # Σ_m η_m √D_mi s_m, of shape (n,) or (n, outputs).
    scale = np.tensordot(np.sqrt(sizes), np.abs(W) * sums, axes=(0, 0))
    scale = np.broadcast_to(scale, beta.shape)
    u_double = rounding(np.float64, stack.n_samples)

    # 1. Which samples' products are computed in double precision.
    if not stack.has_exact:
        rows = np.arange(len(beta))
        values = np.empty(beta.shape)
        error = np.empty(beta.shape)
    else:
        stored_error = rounding(stack.dtype, stack.n_samples) * scale
        losses = machine.program.worst_losses(solution.values, solution.intercept, stored_error)
        rows = np.union1d(nonzero_rows(beta), np.flatnonzero(losses > 0))
        values = solution.values.copy()
        error = stored_error.copy()

    # 2. The products of these samples.
    if entries.shared_products is not None:
        products = entries.shared_products(beta, rows)
    elif stack.has_exact:
        products = stack.exact_products(beta, rows)
    else:
        products = stack.products(beta)

    # 3. Values and forms, with the bounds of their rounding.
    values[rows] = np.einsum("m...,mi...->i...", W, products)
    error[rows] = u_double * scale[rows]
    q = _quadratic(products, beta[rows])
    # Infinite rounding proves nothing, and the gap is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        q_error = 0.5 * u_double * sums**2
        quadratic = float(np.sum(W * q))
        quadratic_error = float(np.sum(np.abs(W) * q_error))
    return Forms(values, error, q, q_error, quadratic, quadratic_error)


def known_forms(sizes: Array, beta: Array, weights: Array, values: Array, q: Array) -> Forms:
    """Return the forms of β from Kβ and ½ βᵀK_mβ that were computed in double precision elsewhere.

    Parameters
    ----------
    sizes : ndarray of shape (P, n)
        As in `Entries`.
    beta : ndarray of shape (n,) or (n, outputs)
        Coefficients.
    weights : ndarray of shape (P,)
        The weights of all outputs.
    values : ndarray like β
        Σ_m η_m K_m β.
    q : ndarray of shape (P,) or (P, outputs)
        ½ βᵀK_mβ, output by output.
    """
    q_error = 0.5 * rounding(np.float64, len(beta)) * _rounding_sums(sizes, beta) ** 2
    values_error = values_rounding(sizes, beta, weights)
    quadratic = float((weights @ q).sum())
    quadratic_error = float((np.abs(weights) @ q_error).sum())
    return Forms(values, values_error, q, q_error, quadratic, quadratic_error)


def values_rounding(sizes: Array, beta: Array, weights: Array) -> Array:
    """Return a bound of the rounding of Σ_m η_m K_m β in double precision, shaped like β."""
    scale = np.tensordot(
        np.sqrt(np.abs(sizes)).T * np.abs(weights), _rounding_sums(sizes, beta), axes=1
    )
    return np.asarray(rounding(np.float64, len(beta)) * np.broadcast_to(scale, beta.shape))


def gated_forms(entries: Entries, beta: Array, gates: Array) -> Forms:
    """Return the forms of β for the one kernel Σ_m g_m g_mᵀ ∘ K_m of gates g.

    Parameters
    ----------
    entries : Entries
        The kernels' entries.
    beta : ndarray of shape (n,) or (n, outputs)
        Coefficients.
    gates : ndarray of shape (n, P)
        The gates g_m of the training samples.
    """
    sizes = np.broadcast_to(entries.sizes, gates.T.shape)
    combined_sizes = np.einsum("im,mi->i", gates**2, sizes)[np.newaxis]
    values = entries.stack.exact_gated_products(beta, gates)
    q = _quadratic(values[np.newaxis], beta)
    return known_forms(combined_sizes, beta, np.ones(1), values, q)


def _rounding_sums(sizes: Array, beta: Array) -> Array:
    """Return s_m = Σ_j √|D_mj| |β_j|, of shape (P,) or (P, outputs).

    Rounding may make a diagonal negative.
    """
    sizes = np.broadcast_to(sizes, (len(sizes), len(beta)))
    return np.asarray(np.sqrt(np.abs(sizes)) @ np.abs(beta))


def _quadratic(products: Array, beta: Array) -> Array:
    """Return ½ βᵀK_mβ, output by output; values that rounding makes negative are zero."""
    return np.asarray(np.maximum(0.5 * np.einsum("mi...,i...->m...", products, beta), 0.0))
