"""Where a search starts, where it ends, and the certificate of its end: Kβ from the entries, a
primal and a dual bound.

Learners compare bounds to know when to stop. What a fit states is written here and nowhere else,
from the returned weights, coefficients and intercept alone:

1. K_mβ is recomputed from entries in double precision, for every kernel.
2. Rounding is bounded from what was summed. With D_mi = k_m(x_i, x_i) and s_m = Σ_j √D_mj |β_j|,
   the sum (K_mβ)_i is known to within u √D_mi s_m, and ½ βᵀK_mβ to within ½ u s_m², where u = 2 ε
   √n and ε is the precision of the entries.
3. The primal value is bounded from above with every loss at the worse end of its residual's
   interval, the optimum from below with every ½ βᵀK_mβ at its upper end. The gap is the difference
   of the two bounds: it is never clipped, and an upper bound below the lower one, or one that is
   not finite, is a gap of infinity.

Learners return weights and a solution (`Learned`). `Learned.problem` is the problem that they are a
point of, which knows its forms, its regulariser and its lower bound; `CertifiedProblem.certificate`
makes a `Certificate` of the point.
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
from kernelmosaic.solvers.program import relative_gap

#: Learners stop at this share of the tolerance: the certificate adds bounds of rounding to theirs.
AIM = 0.96


# What learners start from -------------------------------------------------------------------------


@dataclass(eq=False)
class CombinedKernel:
    """The combined kernel of a stack at the weights last used, of which one matrix is kept.

    Problems on one stack that are solved one after the other may share it; those solved at once
    each have their own.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    """

    stack: GramStack
    _K: Any = field(default=None, init=False, repr=False)
    _weights: Array | None = field(default=None, init=False, repr=False)

    def at(self, weights: Array) -> Any:
        """Return Σ η_m K_m, made anew only if the weights have changed."""
        if self._weights is None or not np.array_equal(self._weights, weights):
            self._K = self.stack.combine(weights, out=self._K)
            self._weights = weights
        return self._K


@dataclass(frozen=True)
class Start:
    """What a learner starts from; by default from nothing.

    Attributes
    ----------
    weights : ndarray of shape (P,) or (classes, P), or None
        Weights η of a like problem.
    beta : ndarray of shape (n,) or (n, outputs), or None
        Its coefficients.
    machine : Machine, Discriminant or None
        Whose bounds the coefficients meet; None for those of any machine.
    kernel : CombinedKernel or None
        Where the learner combines kernels; None for one of its own.
    values, slopes : ndarray of shape (n,) and (P,), or None
        What the kernels make of the coefficients at these weights, Kβ, and ½ βᵀK_mβ; None where
        that is unknown.
    like : ndarray of shape (P,) or None
        ½ βᵀK_mβ of a like problem, by which kernels are left to a certificate that all fits share;
        None reads all.
    """

    weights: Array | None = None
    beta: Array | None = None
    machine: Any = None
    kernel: CombinedKernel | None = None
    values: Array | None = None
    slopes: Array | None = None
    like: Array | None = None

    def at(self, weights: Array) -> Start:
        """Return the same at other weights; those that differ by rounding alone are not others."""
        own = (
            np.inf if self.weights is None or self.weights.shape != weights.shape else self.weights
        )
        same = np.abs(own - weights).max() <= 1e-12 * np.abs(weights).max()
        return self if same else replace(self.elsewhere(), weights=weights)

    def take(self, rows: Indices) -> Start:
        """Return the same for some of the samples."""
        return self if self.beta is None else replace(self.elsewhere(), beta=self.beta[rows])

    def elsewhere(self) -> Start:
        """Return the same without what the kernels make of it: for others, or for the same in
        another precision."""
        return replace(self, values=None, slopes=None)

    def continued(self, machine: Any) -> Start:
        """Return the start for a machine: coefficients at a bound are at its bound; other shapes
        are dropped."""
        classes = None if self.weights is None or self.weights.ndim == 1 else len(self.weights)
        same = self.beta is None or self.beta.shape == machine.shape
        if not same or classes not in (None, *machine.shape[1:]):
            return replace(COLD, kernel=self.kernel)
        if self.beta is None or self.machine is None:
            return self
        moved = replace(self, beta=machine.continued(self.beta, self.machine), machine=machine)
        # Coefficients that no bound holds stay where they are, and so does all that is known of
        # them.
        same = np.array_equal(np.asarray(moved.beta), self.beta)
        return moved if same else moved.elsewhere()


#: A start from nothing.
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
    """What a learner returns.

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
        Where the learner of a like problem may start.
    slopes : ndarray of shape (P,) or None
        ½ βᵀK_mβ, where the learner has computed all of them.
    ended_by : str or None
        What the learner handed over to, and found this; None where it found it itself.
    hindrance : str or None
        Why what might have closed the gap was not tried, and what to do; None where nothing was
        left out.
    unrounded_gap : float or None
        What `gap` would be if nothing were added to it for rounding; None where that is unknown.
    is_final : bool
        Whether objective and gap are those that a fit states: of a certificate, or of what none is
        made for.
    """

    weights: Array
    solution: Any
    objective: float
    gap: float
    n_solves: int
    history: list[Iteration] = field(default_factory=list)
    lower: float | None = None
    start: Start = COLD
    slopes: Array | None = None
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
        """Return the same with the objective and the gap that its weights and its solution
        prove."""
        problem = self.problem(entries, machine, learner)
        return self.with_certificate(problem.certificate(self.weights, self.solution))

    def with_certificate(self, certificate: Certificate) -> Self:
        """Return the same with what a certificate states, in the last line of the history, too."""
        objective, unrounded_gap = certificate.objective, None
        if not np.isfinite(objective):  # of a function that has no margin once it is recomputed
            objective = self.objective
        if certificate.lower_without_rounding is not None:
            unrounded_gap = relative_gap(objective, certificate.lower_without_rounding)
        return replace(
            self,
            weights=certificate.weights,
            solution=certificate.solution,
            objective=objective,
            gap=certificate.gap,
            history=[*self.history[:-1], Iteration(objective, certificate.gap)],
            slopes=certificate.slopes,
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
    """What is learned of least squares, whose bounds are β's own."""

    def problem(self, entries: Entries, machine: Any, learner: Any) -> LeastSquaresProblem:
        return LeastSquaresProblem(entries, learner, self.objective, self.gap)


# What is certified --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """What weights and a solution prove.

    Attributes
    ----------
    objective : float
        The primal value.
    upper : float
        What the primal value does not exceed, whatever rounding has added to it.
    lower : float
        What the optimum does not fall below.
    gap : float
        The most that the relative gap of both may be; infinite where they prove nothing.
    weights, solution : ndarray, Solution or RidgeSolution
        What is certified, with Kβ as the entries have it.
    slopes : ndarray or None
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
    slopes: Array | None = None
    lower_without_rounding: float | None = None


@dataclass(frozen=True)
class Entries:
    """The kernels' entries, from which certificates are computed anew.

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
        """Return what weights and a solution prove of the problem's optimum."""


@dataclass(frozen=True)
class KernelWeights(CertifiedProblem):
    """The problem of a machine with one weight per kernel.

    Subclasses replace what other problems differ in: the forms, the regulariser of the weights, and
    the lower bound.

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
        program, intercept = self.machine.program, solution.intercept
        forms = self.forms(weights, solution)
        lost = self.lost_outputs(weights, solution, forms)
        if lost is not None:
            # A function that is zero up to rounding is zero, and does not depend on the weights.
            beta = np.where(lost, 0.0, solution.beta)
            values = np.where(lost, 0.0, solution.values)
            known_weights = np.where(lost[:, np.newaxis], 0.0, weights)
            return self.certificate(known_weights, replace(solution, beta=beta, values=values))

        # The primal value, and what it does not exceed.
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
            slopes=forms.q,
            lower_without_rounding=self.lower_bound_without_rounding(weights, solution, forms),
        )

    def forms(self, weights: Array, solution: Any) -> Forms:
        """Return what the kernels make of the coefficients."""
        return exact_forms(self.entries, self.machine, solution, weights)

    def regulariser(self, weights: Array) -> float:
        """Return what the weights themselves cost."""
        return 0.0

    def lost_outputs(self, weights: Array, solution: Any, forms: Forms) -> Array | None:
        """Return which outputs have coefficients and yet are zero up to rounding; None if none
        is."""
        return None

    def lower_bound(self, weights: Array, solution: Any, forms: Forms) -> float:
        """Return what the optimum does not fall below, with the forms at their upper ends."""
        q = (forms.q + forms.q_error).reshape(len(forms.q), -1).sum(axis=1)
        return float(self.learner.lower_bound(self.machine.linear_bound(solution), q, weights))

    def lower_bound_without_rounding(
        self, weights: Array, solution: Any, forms: Forms
    ) -> float | None:
        """Return the same without what is taken off for rounding; None where that is unknown."""
        q = forms.q.reshape(len(forms.q), -1).sum(axis=1)
        return float(self.learner.lower_bound(self.machine.linear_value(solution), q, weights))


@dataclass(frozen=True)
class KnownForms(KernelWeights):
    """The same where the forms were computed in double precision already.

    Attributes
    ----------
    computed_forms : Forms
        What the kernels make of the one solution that is certified.
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
        # Rounding may lift it above what the machine proves at these weights.
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

    def lost_outputs(self, weights: Array, solution: Any, forms: Forms) -> Array | None:
        theta = weights.T
        lost = np.sum(theta * forms.q, axis=0) <= np.sum(theta * forms.q_error, axis=0)
        return lost if np.any(solution.beta[:, lost]) else None

    def lower_bound(self, weights: Array, solution: Any, forms: Forms) -> float:
        tau, stack, sizes = self.witness, self.entries.stack, self.entries.sizes
        support = nonzero_rows(tau)
        q = _quadratic(stack.exact_products(tau, support), tau[support])
        q = q + 0.5 * rounding(np.float64, stack.n_samples) * _spread(sizes, tau) ** 2
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
        sizes, learner = self.entries.sizes, self.learner
        beta, forms, traces = solution.beta, solution.forms, learner.options.penalties**2
        size, u = abs(self.objective), rounding(np.float64, len(beta))
        error = 2.0 * u * float(np.sum(_spread((weights @ sizes)[np.newaxis], beta) ** 2))
        raised = np.maximum(forms, 0.0) + u * np.sum(_spread(sizes, beta) ** 2, axis=1)
        raised *= 1.0 + np.where(traces == 1.0, 0.0, u * np.abs(sizes).sum(axis=1) / traces)
        hidden = learner.lower_bound(0.0, forms, weights) - learner.lower_bound(
            0.0, raised, weights
        )
        lower = self.objective * (1.0 - self.search_gap) * size / (size + hidden)
        gap = self.search_gap + error / size + 1.0 - size / (size + hidden)
        return Certificate(self.objective, self.objective + error, lower, gap, weights, solution)


def certified_gap(objective: float, upper: float, lower: float) -> float:
    """Return the most that (primal − dual) / max(|primal|, |dual|) may be; infinite where the
    bounds prove nothing.

    The primal value is at most `upper`, and no further below `objective` and `upper` than these two
    are apart; rounding may leave either as the larger one. The dual value is no less than `lower`.
    Bounds that cross, or that are not finite, prove nothing.
    """
    if not (np.isfinite(upper) and np.isfinite(lower)) or upper < lower:
        return np.inf
    if upper == lower == 0.0:
        return 0.0
    scale = max(abs(lower), min(abs(objective), abs(upper)) - abs(upper - objective))
    return float((upper - lower) / scale) if scale > 0 else np.inf


# What kernels make of coefficients ----------------------------------------------------------------


@dataclass(frozen=True)
class Forms:
    """What the kernels of a stack make of coefficients β, each number with a bound of its rounding.

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
    """K_mβ of several β from one pass over the entries in double precision; equal columns are
    multiplied once.

    Parameters
    ----------
    stack : GramStack
        The kernels, as matrices or features.
    betas : sequence of ndarray of shape (n,) or (n, outputs)
        The coefficients.
    """

    def __init__(self, stack: GramStack, betas: Sequence[Array]) -> None:
        columns = {one.tobytes(): one for beta in betas for one in np.atleast_2d(beta.T)}
        self._stack, self._place = stack, {key: k for k, key in enumerate(columns)}
        self._products = stack.exact_products(
            np.column_stack(list(columns.values())), np.arange(stack.n_samples)
        )

    def __call__(self, beta: Array, rows: Indices) -> Array:
        """Return K_mβ at some samples, of shape (P, rows) or (P, rows, outputs)."""
        at = [self._place[one.tobytes()] for one in np.atleast_2d(beta.T)]
        return self._products[:, :, at][:, rows].reshape(
            len(self._products), len(rows), *beta.shape[1:]
        )


def exact_forms(entries: Entries, machine: Any, solution: Any, weights: Array) -> Forms:
    """Return what the kernels make of a solution's β, from entries in double precision.

    Where entries are stored in single precision they are computed anew, for the samples that have a
    coefficient and those that may have a loss. For the others the stored entries prove that they
    have none.
    """
    stack, sizes, products_of = entries.stack, entries.sizes, entries.shared_products
    beta, spread = solution.beta, _spread(sizes, solution.beta)
    # Every output has its own weights, or all have the same.
    W = (
        weights
        if weights.ndim == beta.ndim
        else np.repeat(weights[:, np.newaxis], beta.shape[1], axis=1)
    )
    # Σ_m η_m √D_mi s_m, of shape (n,) or (n, outputs).
    bound = np.broadcast_to(
        np.tensordot(np.sqrt(sizes), np.abs(W) * spread, axes=(0, 0)), beta.shape
    )
    double = rounding(np.float64, stack.n_samples)
    if not stack.has_exact:
        rows = np.arange(len(beta))
        products = stack.products(beta) if products_of is None else products_of(beta, rows)
        values, error = np.empty(beta.shape), np.empty(beta.shape)
    else:
        rough = rounding(stack.dtype, stack.n_samples) * bound
        may_lose = machine.program.worst_losses(solution.values, solution.intercept, rough) > 0
        rows = np.union1d(nonzero_rows(beta), np.flatnonzero(may_lose))
        products = (products_of or stack.exact_products)(beta, rows)
        values, error = solution.values.copy(), rough.copy()
    values[rows], error[rows] = np.einsum("m...,mi...->i...", W, products), double * bound[rows]
    q = _quadratic(products, beta[rows])
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # infinite rounding proves nothing, and the gap is infinite
        q_error = 0.5 * double * spread**2
        return Forms(
            values, error, q, q_error, float(np.sum(W * q)), float(np.sum(np.abs(W) * q_error))
        )


def known_forms(sizes: Array, beta: Array, weights: Array, values: Array, q: Array) -> Forms:
    """Return the same where Σ_m η_m K_m β and ½ βᵀK_mβ, output by output, were formed in double
    precision elsewhere."""
    q_error = 0.5 * rounding(np.float64, len(beta)) * _spread(sizes, beta) ** 2
    error = values_rounding(sizes, beta, weights)
    return Forms(
        values,
        error,
        q,
        q_error,
        float((weights @ q).sum()),
        float((np.abs(weights) @ q_error).sum()),
    )


def values_rounding(sizes: Array, beta: Array, weights: Array) -> Array:
    """Return by how much rounding in double precision may move Σ_m η_m K_m β, which is shaped as
    β."""
    each = np.tensordot(np.sqrt(np.abs(sizes)).T * np.abs(weights), _spread(sizes, beta), axes=1)
    return np.asarray(rounding(np.float64, len(beta)) * np.broadcast_to(each, beta.shape))


def gated_forms(entries: Entries, beta: Array, gates: Array) -> Forms:
    """Return the same for the one kernel Σ_m g_m g_mᵀ ∘ K_m of gates g."""
    sizes = np.broadcast_to(entries.sizes, gates.T.shape)
    combined = np.einsum("im,mi->i", gates**2, sizes)[np.newaxis]
    values = entries.stack.exact_gated_products(beta, gates)
    return known_forms(combined, beta, np.ones(1), values, _quadratic(values[np.newaxis], beta))


def _spread(sizes: Array, beta: Array) -> Array:
    """Return s_m = Σ_j √|D_mj| |β_j|, of shape (P,) or (P, outputs); rounding may make a diagonal
    negative."""
    return np.asarray(
        np.sqrt(np.abs(np.broadcast_to(sizes, (len(sizes), len(beta))))) @ np.abs(beta)
    )


def _quadratic(products: Array, beta: Array) -> Array:
    """Return ½ βᵀK_mβ, which rounding may make negative, output by output."""
    return np.asarray(np.maximum(0.5 * np.einsum("mi...,i...->m...", products, beta), 0.0))
