"""The certificate of a fit: Kβ from the entries, the primal value of what is returned, and the dual bound.

Learners compare bounds to know when to stop. What a fit states is written here and nowhere else, from the returned
weights, coefficients and intercept alone:

1. K_mβ is recomputed from entries in double precision, for every kernel.
2. Rounding is bounded from what was summed. With D_mi = k_m(x_i, x_i) and s_m = Σ_j √D_mj |β_j|, the sum (K_mβ)_i is
   known to within u √D_mi s_m, and ½ βᵀK_mβ to within ½ u s_m², where u = 2 ε √n and ε is the precision of the entries.
3. The primal value is bounded from above with every loss at the worse end of its residual's interval, the optimum from
   below with every ½ βᵀK_mβ at its upper end. The gap is the difference of the two bounds: it is never clipped, and an
   upper bound below the lower one, or one that is not finite, is a gap of infinity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic._typing import DType
from kernelmosaic.gram import GramStack
from kernelmosaic.gram.linear_algebra import nonzero_rows
from kernelmosaic.learning.problem import Iteration, Learned, Learner

Array = NDArray[np.float64]
#: Learners stop at this share of the gap asked for: the certificate adds bounds of rounding to theirs.
AIM = 0.96


@dataclass(frozen=True)
class Forms:
    """What the kernels of a stack make of coefficients β, each number with a bound of its rounding.

    Attributes
    ----------
    values, values_error : ndarray of shape (n,) or (n, outputs)
        Σ_m η_m K_m β.
    q, q_error : ndarray of shape (P,) or (P, outputs)
        ½ βᵀK_mβ, output by output.
    """

    values: Array
    values_error: Array
    q: Array
    q_error: Array


def certify(stack: Any, sizes: Array, machine: Any, learner: Learner, learned: Learned) -> Learned:
    """Return what was learned with the objective and the gap that its weights and coefficients prove.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    sizes : ndarray of shape (P, n)
        The size of the numbers that entries are made of: k_m(x, x), or more where entries are differences.
    machine : Machine, MulticlassMachine or SharedMachines
        What was trained.
    learner : Learner
        What learned the weights; it says which weights the lower bound holds for.
    learned : Learned
        Weights and solution.
    """
    program, solution, weights = machine.program, learned.solution, learned.weights
    used = np.flatnonzero(weights) if stack.is_implicit else np.arange(stack.n_kernels)
    few = stack.take_kernels(used) if stack.is_implicit else stack
    forms = exact_forms(few, sizes[used], machine, solution, weights[used])
    quadratic, error = float(np.sum(weights[used] @ forms.q)), float(np.sum(np.abs(weights[used]) @ forms.q_error))
    upper = program.primal_bound(quadratic + error, forms.values, solution.intercept, forms.values_error)
    if stack.is_implicit:
        # The largest in the set of the weights is exact, which is all that its bound asks for.
        penalties = learner.options.penalties
        spread = 0.5 * rounding(np.float64, stack.n_samples) * _spread(sizes, solution.beta) ** 2
        q = stack.quadratic_forms(solution.beta, None, penalties**-2.0) * penalties**2 + _per_kernel(spread)
    else:
        q = _per_kernel(forms.q + forms.q_error)
    constant = program.linear_bound(solution.beta, solution.intercept)
    lower = learner.lower_bound(constant, q, weights)
    if learned.lower is not None:
        # Rounding may lift it above what the machine proves at these weights.
        lower = min(learned.lower, constant - float(weights[used] @ _per_kernel(forms.q))) - error
    objective = program.primal_value(quadratic, forms.values, solution.intercept)
    return _stated(learned, forms, objective, upper, lower)


def certify_classes(stack: GramStack, sizes: Array, machine: Any, learned: Learned) -> Learned:
    """Return the same where every class c has weights θ_c of its own, learned with ½ Σθ + ½ Σ‖w_c‖² + the losses.

    The witness τ is feasible for the machine; divided by the largest (τ_cᵀK_mτ_c)^½, where that exceeds one, it is
    feasible for the whole problem, whose dual value is its linear term.
    """
    program, solution, theta = machine.program, learned.solution, learned.weights.T
    forms = exact_forms(stack, sizes, machine, solution, theta)
    lost = np.sum(theta * forms.q, axis=0) <= np.sum(theta * forms.q_error, axis=0)
    if np.any(solution.beta[:, lost]):
        # A function that rounding does not tell from zero is zero, and has no use for weights.
        solution = replace(
            solution, beta=np.where(lost, 0.0, solution.beta), values=np.where(lost, 0.0, solution.values)
        )
        weights = np.where(lost[:, np.newaxis], 0.0, learned.weights)
        return certify_classes(stack, sizes, machine, replace(learned, solution=solution, weights=weights))
    half = 0.5 * float(theta.sum())
    quadratic, error = float(np.sum(theta * forms.q)), float(np.sum(theta * forms.q_error))
    upper = program.primal_bound(half + quadratic + error, forms.values, solution.intercept, forms.values_error)
    tau = learned.witness
    support = nonzero_rows(tau)
    q = _quadratic(stack.exact_products(tau, support), tau[support])
    q = q + 0.5 * rounding(np.float64, stack.n_samples) * _spread(sizes, tau) ** 2
    scale = max(1.0, float(np.sqrt(2.0 * q.max(initial=0.0))))
    lower = program.linear_bound(tau, solution.intercept) / scale
    objective = program.primal_value(half + quadratic, forms.values, solution.intercept)
    return _stated(learned, forms, objective, upper, lower)


def certify_gates(stack: GramStack, sizes: Array, machine: Any, learned: Any) -> Any:
    """Return the same for the machine under its gates g, whose kernel is Σ_m g_m g_mᵀ ∘ K_m."""
    program, solution, gates = machine.program, learned.solution, learned.gates
    combined = np.einsum("im,mi->i", gates**2, np.broadcast_to(sizes, gates.T.shape))[np.newaxis]
    values = stack.exact_gated_products(solution.beta, gates)
    spread, unit = _spread(combined, solution.beta), rounding(np.float64, stack.n_samples)
    error = unit * np.broadcast_to(np.tensordot(np.sqrt(combined), spread, axes=(0, 0)), values.shape)
    q, q_error = _quadratic(values[np.newaxis], solution.beta), 0.5 * unit * spread**2
    forms = Forms(values, error, q, q_error)
    quadratic, doubt = float(q.sum()), float(q_error.sum())
    upper = program.primal_bound(quadratic + doubt, values, solution.intercept, error)
    lower = program.linear_bound(solution.beta, solution.intercept) - quadratic - doubt
    objective = program.primal_value(quadratic, values, solution.intercept)
    return _stated(learned, forms, objective, upper, lower)


def certify_ridge(sizes: Array, learned: Learned) -> Learned:
    """Return the same for least squares, whose bounds are β's own: the gap of the search, and the rounding of both.

    Either bound sums terms of the size of Σ_j (Σ_i √D_i |β_ij|)².
    """
    beta = learned.solution.beta
    size = float(np.sum(_spread((learned.weights @ sizes)[np.newaxis], beta) ** 2))
    gap = learned.gap + 2.0 * rounding(np.float64, len(beta)) * size / abs(learned.objective)
    return replace(learned, gap=gap, history=[*learned.history[:-1], Iteration(learned.objective, gap)])


def _stated(learned: Learned, forms: Forms, objective: float, upper: float, lower: float) -> Learned:
    if not np.isfinite(objective):  # of a function that has no margin once it is recomputed
        objective = learned.objective
    gap = certified_gap(objective, upper, lower)
    history = [*learned.history[:-1], Iteration(objective, gap)]
    solution = replace(learned.solution, values=forms.values)
    return replace(learned, solution=solution, objective=objective, gap=gap, history=history)


def certified_gap(objective: float, upper: float, lower: float) -> float:
    """Return the most that (primal − dual) / max(|primal|, |dual|) may be; infinite where the bounds prove nothing.

    The primal value is known to lie as far below `objective` as `upper` lies above it; the dual value is no less than
    `lower`. Bounds that cross, or that are not finite, prove nothing.
    """
    if not (np.isfinite(upper) and np.isfinite(lower)) or upper < lower:
        return np.inf
    if upper == lower == 0.0:
        return 0.0
    scale = max(abs(lower), abs(objective) - (upper - objective))
    return float((upper - lower) / scale) if scale > 0 else np.inf


def exact_forms(stack: GramStack, sizes: Array, machine: Any, solution: Any, weights: Array) -> Forms:
    """Return what the kernels make of a solution's β, from entries in double precision.

    Where entries are stored in single precision they are computed anew, for the samples that have a coefficient and
    those that may have a loss. For the others the stored entries prove that they have none.
    """
    beta, spread = solution.beta, _spread(sizes, solution.beta)
    # Every output has its own weights, or all have the same.
    W = weights if weights.ndim == beta.ndim else np.repeat(weights[:, np.newaxis], beta.shape[1], axis=1)
    # Σ_m η_m √D_mi s_m, of shape (n,) or (n, outputs).
    bound = np.broadcast_to(np.tensordot(np.sqrt(sizes), np.abs(W) * spread, axes=(0, 0)), beta.shape)
    double = rounding(np.float64, stack.n_samples)
    if not stack.has_exact:
        products = stack.products(beta)
        values, error = _weighted(W, products), double * bound
        q = _quadratic(products, beta)
    else:
        rough = rounding(stack.dtype, stack.n_samples) * bound
        may_lose = machine.program.worst_losses(solution.values, solution.intercept, rough) > 0
        rows = np.union1d(nonzero_rows(beta), np.flatnonzero(may_lose))
        products = stack.exact_products(beta, rows)
        values, error = solution.values.copy(), rough.copy()
        values[rows], error[rows] = _weighted(W, products), double * bound[rows]
        q = _quadratic(products, beta[rows])
    with np.errstate(over="ignore"):  # infinite rounding proves nothing, and the gap is infinite
        return Forms(values, error, q, 0.5 * double * spread**2)


def rounding(dtype: DType, n_samples: int) -> float:
    """Return u: how far a sum over the samples is off by rounding, relative to the sizes summed."""
    return 2.0 * float(np.finfo(dtype).eps * np.sqrt(n_samples))


def _weighted(W: Array, products: Array) -> Array:
    """Return Σ_m η_m K_mβ, output by output."""
    return np.asarray(np.einsum("m...,mi...->i...", W, products))


def _spread(sizes: Array, beta: Array) -> Array:
    """Return s_m = Σ_j √D_mj |β_j|, of shape (P,) or (P, outputs)."""
    return np.asarray(np.sqrt(np.broadcast_to(sizes, (len(sizes), len(beta)))) @ np.abs(beta))


def _quadratic(products: Array, beta: Array) -> Array:
    """Return ½ βᵀK_mβ, which rounding may make negative, output by output."""
    return np.asarray(np.maximum(0.5 * np.einsum("mi...,i...->m...", products, beta), 0.0))


def _per_kernel(forms: Array) -> Array:
    """Return the sum over the outputs."""
    return forms if forms.ndim == 1 else np.asarray(forms.sum(axis=1))
