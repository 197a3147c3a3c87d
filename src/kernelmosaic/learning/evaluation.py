"""One look at the training problem: the machine at given weights, with the bounds, slopes and curvature it yields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernelmosaic.gram import KernelBank
from kernelmosaic.learning.norms import Weights, WeightNorm
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import Solution
from kernelmosaic.solvers.free_block import free_samples


@dataclass
class Evaluation:
    """The machine solved at weights θ.

    Attributes
    ----------
    theta : ndarray of shape (P,)
        Scaled weights θ = d² ∘ η.
    solution : Solution
        Of the machine on the combined kernel.
    upper : float
        Primal value: no less than the problem's optimum at these weights, and so over all weights.
    lower : float
        What β guarantees whatever the weights: no more than the optimum.
    q : ndarray of shape (P,)
        ½ βᵀK_mβ / d_m², the slopes of the value downward in θ.
    """

    theta: Weights
    solution: Solution
    upper: float
    lower: float
    q: Weights
    products: NDArray[np.float64]
    support: NDArray[np.intp]


class Problem:
    """Bank, machine, penalties and norm, evaluated at weights with warm starts; one combined matrix is all it keeps."""

    def __init__(self, bank: KernelBank, machine: Machine, norm: WeightNorm, penalties: Weights) -> None:
        self.bank = bank
        self.machine = machine
        self.norm = norm
        self.scale = 1.0 / penalties**2
        self.n_solves = 0
        self._K: NDArray[Any] | None = None
        self._at: Weights | None = None

    @cached_property
    def n_kernels(self) -> int:
        return self.bank.n_kernels

    def evaluate(self, theta: Weights, warm_start: NDArray[np.float64] | None, tol: float) -> Evaluation:
        """Solve the machine at θ to a relative gap of `tol`."""
        self._K = self.bank.combine(theta * self.scale, out=self._K)
        self._at = theta
        solution = self.machine.solve(self._K, warm_start, tol)
        self.n_solves += 1
        support = np.flatnonzero(solution.beta)
        beta = solution.beta[support]
        products = self.bank.products(solution.beta, support) * self.scale[:, np.newaxis]
        q = 0.5 * (products @ beta)
        program = self.machine.program
        # The kernel part of the value, from the same products as the slopes, so that both bounds see one arithmetic.
        quadratic = float(theta @ q)
        upper = program.primal_value(quadratic, solution.values, solution.intercept)
        lower = program.linear_value(solution.beta) - self.norm.support(q)
        return Evaluation(theta, solution, upper, lower, q, products, support)

    def curvature(self, at: Evaluation) -> NDArray[np.float64]:
        """Return ∂²J/∂θ² while the free samples stay free: how β answers when the weights move.

        The free coefficients solve a linear system in the combined kernel, so their answer to a change of θ_m is its inverse
        times (K_m β); everything else is fixed at its bound.
        """
        program = self.machine.program
        free = free_samples(program, at.solution.beta)
        if len(free) == 0 or self._K is None or self._at is not at.theta:
            return np.zeros((self.n_kernels,) * 2)
        V = at.products[:, np.searchsorted(at.support, free)].T
        # Single precision will do: the curvature only chooses the step, it certifies nothing.
        A = self._K[np.ix_(free, free)].astype(np.float32)
        ridge = program.ridge[free].astype(np.float32)
        A[np.diag_indices_from(A)] += ridge + np.float32(1e-5) * (np.trace(A) / len(free) + ridge.mean())
        try:
            factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return np.zeros((self.n_kernels,) * 2)
        right = np.column_stack([V, np.ones(len(free))]).astype(np.float32)
        answer = cho_solve(factor, right, check_finite=False).astype(np.float64)
        H = V.T @ answer[:, :-1]
        if program.total is not None:
            pull = V.T @ answer[:, -1]
            H -= np.outer(pull, pull) / answer[:, -1].sum()
        return np.asarray(H)
