"""Weights by a rule of their own, then one machine: centred alignment with the targets, and EasyMKL."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Learned, Learner, Options
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.norms import Weights
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_positive
from kernelmosaic.solvers import Program, solve

#: Directions of the kernels' Gram matrix below this share of the largest are rounding.
_RANK = 1e-12


class Alignment(Learner):
    """Maximise ⟨K_η, ttᵀ⟩ / ‖K_η‖ over η ≥ 0, all matrices centred, and solve the machine once with these weights.

    A heuristic: the weights do not minimise the machine's value, and the gap certified is that of the machine at them.

    References
    ----------
    Cortes, Mohri and Rostamizadeh (2012), "Algorithms for learning kernels based on centered alignment", proposition 9.
    """

    machine_needs = ("has_one_output", "has_targets")
    advice = FixedWeights.advice

    def __init__(self, options: Options) -> None:
        self.options = options

    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned:
        self.require("alignment", machine=machine)
        v = aligned_weights(*centred_products(stack, machine.program.target))
        # All kernels turned away from the targets: none is better than the others.
        v = v if np.any(v > 0) else np.ones(stack.n_kernels)
        eta = self.options.norm.retract(v * self.options.penalties**2) / self.options.penalties**2
        return FixedWeights(eta, self.options.tol).learn(stack, machine, warm_start)


def aligned_weights(M: NDArray[np.float64], a: Weights) -> Weights:
    """Return argmin over v ≥ 0 of vᵀMv − 2⟨a, v⟩, the direction that maximises ⟨a, v⟩ / √(vᵀMv)."""
    eigenvalues, V = np.linalg.eigh(M)
    keep = eigenvalues > _RANK * max(float(eigenvalues[-1]), 1e-300)
    if not np.any(keep):
        return np.zeros(len(a))
    root = np.sqrt(eigenvalues[keep])
    # ‖Rv − R⁻ᵀa‖² with RᵀR = M; a lies in the range of M, since a direction without any kernel has no alignment either.
    return np.asarray(nnls(root[:, np.newaxis] * V[:, keep].T, (V[:, keep].T @ a) / root)[0])


def centred_products(stack: GramStack, target: NDArray[np.float64]) -> tuple[NDArray[np.float64], Weights]:
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


class EasyMKL(Learner):
    """Weights η_m ∝ γᵀYK_mYγ, where γ minimises (1 − λ) γᵀY(Σ K_m)Yγ + λ‖γ‖² over one mixture of points per class.

    Two machine solves in all: one on the sum of the kernels for γ, one with the weights. A heuristic: the weights do
    not minimise the machine's value, and the gap certified is that of the machine at them.

    Parameters
    ----------
    options : Options
        Penalties divide the weights: η_m d_m² is in proportion to the share of the distance over d_m².
    lam : float
        λ, above 0 and at most 1: how evenly the mixtures spread over their class.

    References
    ----------
    Aiolli and Donini (2015), "EasyMKL: a scalable multiple kernel learning algorithm".
    """

    machine_needs = ("has_one_output", "has_labels")
    advice = FixedWeights.advice

    def __init__(self, options: Options, lam: float = 0.1) -> None:
        if check_positive("lam", lam) > 1:
            raise ValueError(f"lam={lam!r}: give a number above 0 and at most 1.")
        self.options = options
        self.lam = lam

    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned:
        self.require("easymkl", machine=machine)
        d2 = self.options.penalties**2
        beta = self._mixtures(stack, machine.program)
        shares = np.maximum(stack.quadratic_forms(beta), 0.0) / d2
        shares = shares if np.any(shares > 0) else np.ones(stack.n_kernels)
        eta = self.options.norm.retract(shares) / d2
        learned = FixedWeights(eta, self.options.tol).learn(stack, machine, warm_start)
        return Learned(eta, learned.solution, learned.objective, learned.gap, 2, learned.history)

    def _mixtures(self, stack: GramStack, program: Program) -> Any:
        """Return Yγ up to a factor.

        The nearest points of two hulls are, up to scale, the coefficients of the machine with the hardest margin, whose
        2-norm slack has the ridge λ / (1 − λ).
        """
        y = program.target
        if self.lam == 1:
            return np.where(y > 0, 1.0 / np.sum(y > 0), -1.0 / np.sum(y < 0))
        n = len(y)
        lower, upper = np.where(y > 0, 0.0, -np.inf), np.where(y > 0, np.inf, 0.0)
        hard = Program(y, lower, upper, np.full(n, self.lam / (1.0 - self.lam)))
        return solve(stack.combine(np.ones(stack.n_kernels)), hard, tol=0.1 * self.options.tol).beta
