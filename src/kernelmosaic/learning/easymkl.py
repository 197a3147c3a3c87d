"""Weights in proportion to what each kernel adds to the distance between the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Learned, Learner, Options
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_positive
from kernelmosaic.solvers import Program, solve


class EasyMKL(Learner):
    """Weights η_m ∝ γᵀYK_mYγ, where γ minimises (1 − λ) γᵀY(Σ K_m)Yγ + λ‖γ‖² over one mixture of points a class.

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

    programs = frozenset({"two classes"})
    advice = FixedWeights.advice

    def __init__(self, options: Options, lam: float = 0.1) -> None:
        if check_positive("lam", lam) > 1:
            raise ValueError(f"lam={lam!r}: give a number above 0 and at most 1.")
        self.options = options
        self.lam = lam

    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned:
        self.require("easymkl", program=machine.program)
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
