"""Weights that are given, or follow a rule of their own (centred alignment, EasyMKL): one machine
on their kernel."""

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
from kernelmosaic.machines.base import SVC, Machine


class WeightsByRule(Learner):
    """Weights that no training problem chooses: what is certified is the machine at them."""

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
        # The classes of a one-versus-rest problem share their kernel: it is combined once.
        problem = make_problem(machine, stack, self.options, start)
        solution = problem.solve(self.weights, start.beta, self.options.tol)
        unknown = np.full(len(self.weights), np.nan)
        at = Evaluation(self.weights, solution, machine.primal_value(solution), unknown)
        return problem.learned(at, solution.gap, [Iteration(at.upper, solution.gap)])


def given_weights(weights: ArrayOrTensor, P: int) -> Array:
    """Return weights to keep: 1/P each for "uniform", else the given ones, checked."""
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
    """Maximise ⟨K_η, ttᵀ⟩ / ‖K_η‖ over η ≥ 0, all matrices centred, and solve the machine once with
    these weights.

    A heuristic: the weights do not minimise the machine's value, and the gap certified is that of
    the machine at them.

    References
    ----------
    Cortes, Mohri and Rostamizadeh (2012), "Algorithms for learning kernels based on centered
    alignment", proposition 9.
    """

    machine_needs = ("has_one_output", "has_box", "has_targets")

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        v = aligned_weights(*centred_products(stack, machine.program.target))
        # All kernels turned away from the targets: none is better than the others.
        v = v if np.any(v > 0) else np.ones(stack.n_kernels)
        theta = v * self.options.penalties**2
        # Of huge kernels v is tiny; only its direction counts.
        eta = self.options.norm.retract(theta / theta.max()) / self.options.penalties**2
        return FixedWeights(eta, self.options.tol)._learn(stack, machine, start)


def aligned_weights(M: Array, a: Weights) -> Weights:
    """Return argmin over v ≥ 0 of vᵀMv − 2⟨a, v⟩, the direction that maximises ⟨a, v⟩ / √(vᵀMv)."""
    eigenvalues, V = np.linalg.eigh(M)
    # Directions below this share of the largest are rounding.
    keep = eigenvalues > 1e-12 * max(float(eigenvalues[-1]), 1e-300)
    if not np.any(keep):
        return np.zeros(len(a))
    root = np.sqrt(eigenvalues[keep])
    # ‖Rv − R⁻ᵀa‖² with RᵀR = M; a lies in the range of M, since a direction without any kernel has
    # no alignment either.
    return np.asarray(nnls(root[:, np.newaxis] * V[:, keep].T, (V[:, keep].T @ a) / root)[0])


def centred_products(stack: GramStack, target: Array) -> tuple[Array, Weights]:
    """Return ⟨K_k, K_l⟩ and ⟨K_k, ttᵀ⟩ of the centred matrices, reading the stack once."""
    P, n = stack.n_kernels, stack.n_samples
    M, a, sums = np.zeros((P, P)), np.zeros(P), np.zeros((P, n))
    t = target - target.mean()
    for strip in stack.row_strips(n * P):
        blocks = np.empty((P, (strip.stop - strip.start) * n))
        for m, block in stack.blocks(range(P), strip, slice(0, n)):
            blocks[m] = np.asarray(block, dtype=np.float64).ravel()
            sums[m, strip] = block.sum(axis=1, dtype=np.float64)
            a[m] += t[strip] @ (block @ t)
        M += blocks @ blocks.T
    # ⟨HKH, HLH⟩ = ⟨K, L⟩ − (2/n) ⟨K1, L1⟩ + (1ᵀK1)(1ᵀL1) / n².
    totals = sums.sum(axis=1)
    return M - 2.0 / n * (sums @ sums.T) + np.outer(totals, totals) / n**2, a


class EasyMKL(WeightsByRule):
    """Weights η_m ∝ γᵀYK_mYγ, where γ minimises (1 − λ) γᵀY(Σ K_m)Yγ + λ‖γ‖² over one mixture of
    points per class.

    Two machine solves in all: one on the sum of the kernels for γ, one with the weights. A
    heuristic: the weights do not minimise the machine's value, and the gap certified is that of the
    machine at them.

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
        shares = np.maximum(stack.quadratic_forms(mixtures), 0.0) / d2
        shares = shares if np.any(shares > 0) else np.ones(stack.n_kernels)
        eta = self.options.norm.retract(shares) / d2
        return replace(
            FixedWeights(eta, self.options.tol)._learn(stack, machine, start), n_solves=2
        )

    def _mixtures(self, stack: GramStack, target: Array) -> Array:
        """Return Yγ, up to a factor."""
        if self.lam == 1.0:
            return np.where(target > 0, 1.0 / np.sum(target > 0), -1.0 / np.sum(target < 0))
        # The nearest points of two hulls are, up to scale, the coefficients of the machine with the
        # hardest margin, whose 2-norm slack has the ridge λ / (1 − λ): they are Yγ up to a factor.
        hard = SVC(target, (1.0 - self.lam) / self.lam, slack=2)
        # An error δ in the value is one of √δ in the mixtures, and so in the weights.
        tol = max(self.options.tol**2, 10 * self.options.sharpest)
        return np.asarray(hard.solve(stack.combine(np.ones(stack.n_kernels)), tol=tol).beta)
