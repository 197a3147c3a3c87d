"""Weights that are given, or follow from a rule (centred alignment, EasyMKL).

The machine is solved once on their kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kernelmosaic._typing import Array, ArrayOrTensor
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.norms import SumNorm, Weights, numbers
from kernelmosaic.learning.problem import Evaluation, Learner, LearnerOptions, make_problem
from kernelmosaic.learning.tuning import LEAST_EIGENVALUE
from kernelmosaic.machines.base import SVC, Machine


class WeightsByRule(Learner):
    """Weights that no training problem chooses; the machine at these weights is certified."""

    advice = "the machine is badly conditioned; lower C, or accept a larger tol."

    def lower_bound(self, constant: float, q: Weights, weights: Weights) -> float:
        return constant - float(weights @ q)


class FixedWeights(WeightsByRule):
    """Keep the given weights.

    Parameters
    ----------
    weights : array of shape (P,)
        Not negative, not all zero.
    tol : float
        Relative duality gap of the machine.
    """

    machine_needs = ()

    def __init__(self, weights: Weights, tol: float = 1e-3) -> None:
        super().__init__(LearnerOptions(SumNorm(), np.ones(len(weights)), tol))
        self.weights = weights

    def _learn(self, stack: GramStack, machine: Any, start: Start) -> Learned:
        # The classes of a one-versus-rest problem share their combined kernel by the start.
        problem = make_problem(machine, stack, self.options, start)
        solution = problem.solve(self.weights, start.beta, self.options.tol)
        upper = machine.primal_value(solution)
        no_gradient = np.full(len(self.weights), np.nan)
        evaluation = Evaluation(self.weights, solution, upper, no_gradient)
        return problem.learned(evaluation, solution.gap, [Iteration(upper, solution.gap)])


def given_weights(weights: ArrayOrTensor, P: int) -> Array:
    """Return the weights of an estimator's parameter `weights`, checked, of shape (P,).

    They are 1/P each for "uniform".
    """
    if isinstance(weights, str):
        if weights != "uniform":
            raise ValueError(
                f"weights={weights!r}: give 'uniform', {P} numbers, or None to learn them."
            )
        return np.full(P, 1.0 / P)
    eta = numbers("weights", weights, P)
    if np.any(eta < 0) or not np.any(eta > 0):
        raise ValueError(f"weights={weights!r}: weights must not be negative, nor all zero.")
    return eta


class Alignment(WeightsByRule):
    """Maximise ⟨K_η, ttᵀ⟩ / ‖K_η‖ over η ≥ 0, all matrices centred, then solve the machine once.

    A heuristic: the weights do not minimise the machine's value, and the gap certified is that of
    the machine at them.

    References
    ----------
    Cortes, Mohri and Rostamizadeh (2012), "Algorithms for learning kernels based on centered
    alignment", proposition 9.
    """

    machine_needs = ("has_one_output", "has_box", "has_targets")

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        M, a = centred_products(stack, machine.program.target)
        v = aligned_weights(M, a)
        if not np.any(v > 0):
            # No kernel is aligned with the targets: none is better than the others.
            v = np.ones(stack.n_kernels)
        theta = v * self.options.penalties**2
        # Of huge kernels v is tiny; only its direction counts.
        eta = self.options.norm.retract(theta / theta.max()) / self.options.penalties**2
        return FixedWeights(eta, self.options.tol)._learn(stack, machine, start)


def aligned_weights(M: Array, a: Weights) -> Weights:
    """Return argmin over v ≥ 0 of vᵀMv − 2⟨a, v⟩, of shape (P,).

    It has the direction that maximises ⟨a, v⟩ / √(vᵀMv).

    Parameters
    ----------
    M, a : ndarray of shape (P, P) and (P,)
        Inner products of the kernels with each other and with the targets; see `centred_products`.
    """
    eigenvalues, V = np.linalg.eigh(M)
    # Directions of smaller eigenvalues are rounding.
    is_used = eigenvalues > LEAST_EIGENVALUE * max(float(eigenvalues[-1]), 1e-300)
    if not np.any(is_used):
        return np.zeros(len(a))
    V = V[:, is_used]
    root = np.sqrt(eigenvalues[is_used])
    # ‖Rv − R⁻ᵀa‖² with RᵀR = M; a lies in the range of M, since a direction without any kernel has
    # no alignment either.
    R = root[:, np.newaxis] * V.T
    return np.asarray(nnls(R, (V.T @ a) / root)[0])


def centred_products(stack: GramStack, target: Array) -> tuple[Array, Weights]:
    """Return ⟨K_k, K_l⟩ and ⟨K_k, ttᵀ⟩ of the centred matrices, of shape (P, P) and (P,).

    The stack is read once.
    """
    P = stack.n_kernels
    n = stack.n_samples
    M = np.zeros((P, P))
    a = np.zeros(P)
    row_sums = np.zeros((P, n))
    t = target - target.mean()
    for strip in stack.row_strips(n * P):
        blocks = np.empty((P, (strip.stop - strip.start) * n))
        for m, block in stack.blocks(range(P), strip, slice(0, n)):
            blocks[m] = np.asarray(block, dtype=np.float64).ravel()
            row_sums[m, strip] = block.sum(axis=1, dtype=np.float64)
            a[m] += t[strip] @ (block @ t)
        M += blocks @ blocks.T
    # ⟨HKH, HLH⟩ = ⟨K, L⟩ − (2/n) ⟨K1, L1⟩ + (1ᵀK1)(1ᵀL1) / n².
    totals = row_sums.sum(axis=1)
    return M - 2.0 / n * (row_sums @ row_sums.T) + np.outer(totals, totals) / n**2, a


class EasyMKL(WeightsByRule):
    """Weights η_m ∝ γᵀYK_mYγ, where γ minimises (1 − λ) γᵀY(Σ K_m)Yγ + λ‖γ‖².

    γ is a mixture of the points of each class. The machine is solved twice: on the sum of the
    kernels for γ, and with the weights. A heuristic: the weights do not minimise the machine's
    value, and the gap certified is that of the machine at them.

    Parameters
    ----------
    options : LearnerOptions
        Penalties divide the weights: η_m d_m² is in proportion to the share of the distance over
        d_m².
    lam : float, default=0.1
        λ, above 0 and at most 1: how evenly the mixtures spread over their class. At 1 they are the
        means of the classes; towards 0 the nearest points of their convex hulls.

    References
    ----------
    Aiolli and Donini (2015), "EasyMKL: a scalable multiple kernel learning algorithm".
    """

    machine_needs = ("has_one_output", "has_labels")

    def __init__(self, options: LearnerOptions, lam: float = 0.1) -> None:
        super().__init__(options)
        self.lam = lam

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        d2 = self.options.penalties**2
        mixtures = self._mixtures(stack, machine.program.target)
        theta = np.maximum(stack.quadratic_forms(mixtures), 0.0) / d2
        if not np.any(theta > 0):
            theta = np.ones(stack.n_kernels)
        eta = self.options.norm.retract(theta) / d2
        learned = FixedWeights(eta, self.options.tol)._learn(stack, machine, start)
        return replace(learned, n_solves=2)

    def _mixtures(self, stack: GramStack, target: Array) -> Array:
        """Return Yγ up to a factor, of shape (n,)."""
        if self.lam == 1.0:
            return np.where(target > 0, 1.0 / np.sum(target > 0), -1.0 / np.sum(target < 0))
        # The nearest points of the two convex hulls are, up to a factor, the coefficients of the
        # machine with 2-norm slack and the ridge λ / (1 − λ).
        svc = SVC(target, (1.0 - self.lam) / self.lam, slack=2)
        # An error δ in the value is one of √δ in the mixtures, and so in the weights.
        tol = max(self.options.tol**2, 10 * self.options.least_machine_tol)
        K = stack.combine(np.ones(stack.n_kernels))
        return np.asarray(svc.solve(K, tol=tol).beta)
