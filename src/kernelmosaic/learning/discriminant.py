"""Learning the weights for discriminant analysis: the problem that every formulation solves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import DeviceGram, KernelBank
from kernelmosaic.learning.base import Iteration
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.progress import gap_progress
from kernelmosaic.machines.discriminant import Discriminant, Factored, Matrix, center
from kernelmosaic.solvers import relative_gap

#: A learned λ keeps at least this share of the trace: nothing is lost beyond that relative size, and no matrix is
#: singular.
_LEAST = 1e-10
#: A kernel whose centred trace is below this share of its trace is constant up to rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class Evaluation:
    """The least-squares problems of all targets solved at some weights.

    Attributes
    ----------
    shares : ndarray of shape (P,) or (1 + P,)
        s = θ ∘ r: what each kernel has of the trace; the identity first where λ is learned.
    factored : Factored
        The factorisation and β.
    values : ndarray of shape (n, k)
        G̃β, without the identity's part.
    upper : float
        Primal value, no less than the optimum.
    q : ndarray like `shares`
        Σ_j β_jᵀN_iβ_j for the matrices N_i = G̃_i / r_i of trace one: the value falls with the slope −scale · q.
    products : ndarray of shape (P or 1 + P, n, k)
        N_i β.
    """

    shares: Weights
    factored: Factored
    values: Matrix
    upper: float
    q: Weights
    products: NDArray[np.float64]

    @property
    def beta(self) -> Matrix:
        return self.factored.beta


@dataclass(frozen=True)
class DiscriminantLearned:
    """What is learned.

    Attributes
    ----------
    weights : ndarray of shape (P,)
        θ, with Σ θ_i r_i = 1 (together with λm where λ is learned).
    alpha : float
        λ.
    beta, values : ndarray of shape (n, k)
        (λI + G̃)⁻¹H and G̃β for the combined kernel.
    objective : float
        Value of the training problem.
    gap : float
        Certified relative duality gap, weights included.
    n_solves : int
        Factorisations.
    history : list of Iteration
        Objective and gap after every iteration.
    """

    weights: Weights
    alpha: float
    beta: Matrix
    values: Matrix
    objective: float
    gap: float
    n_solves: int
    history: list[Iteration] = field(default_factory=list)


class DiscriminantProblem:
    """min over θ ≥ 0, Σ θ_i r_i = 1, of scale · Σ_j h_jᵀ(λI + Σ θ_iG̃_i)⁻¹h_j, seen through the shares s = θ ∘ r.

    With ``machine.alpha=None`` the identity is one more kernel, of trace m, and λ its weight.

    Parameters
    ----------
    bank : KernelBank
        The kernels, not centred: their coefficients sum to zero, so centring what comes out is enough.
    machine : Discriminant
        The targets and λ.
    traces : ndarray of shape (P,)
        The r_i; zero for kernels that are constant on the training set, which get no weight.
    """

    def __init__(self, bank: KernelBank, machine: Discriminant, traces: Weights) -> None:
        if not np.any(traces > 0):
            raise ValueError(
                "kernels: every kernel is constant on the training set, so there is nothing to tell classes by."
            )
        self.bank = bank
        self.machine = machine
        self.traces = traces
        self.joint = machine.alpha is None
        self.n_solves = 0
        # Constant kernels are left out of the simplex altogether.
        self.usable = np.flatnonzero(np.append(np.ones(int(self.joint)), traces) > 0)

    @property
    def n_shares(self) -> int:
        return self.bank.n_kernels + int(self.joint)

    def start(self) -> Weights:
        """Return equal shares of the trace."""
        return self.spread(np.full(len(self.usable), 1.0 / len(self.usable)))

    def spread(self, shares: Weights) -> Weights:
        """Return the shares of all kernels from those of the usable ones, on the simplex and with λ above zero."""
        out = np.zeros(self.n_shares)
        out[self.usable] = np.maximum(shares, 0.0)
        out /= out.sum()
        if self.joint:
            out[0] = max(out[0], _LEAST)
            # Where nothing beats the identity, the kernels still say in which directions the classes differ.
            out[self.usable[1:]] += max(_LEAST - float(out[1:].sum()), 0.0) / (len(self.usable) - 1)
            out /= out.sum()
        return out

    def weights(self, shares: Weights) -> tuple[Weights, float]:
        """Return θ and λ."""
        own = shares[int(self.joint) :]
        theta = np.divide(own, self.traces, out=np.zeros_like(own), where=self.traces > 0)
        alpha = self.machine.alpha
        return theta, shares[0] / self.bank.n_samples if alpha is None else alpha

    def evaluate(self, shares: Weights) -> Evaluation:
        """Solve for all targets at these shares, with the slopes of all kernels."""
        theta, alpha = self.weights(shares)
        factored = self._factor(self.bank.combine(theta), alpha)
        self.n_solves += 1
        products = self._products(factored.beta)
        q = np.einsum("inj,nj->i", products, factored.beta)
        first = int(self.joint)
        values = np.tensordot(shares[first:], products[first:], 1)
        residual = self.machine.targets - values
        # The ridge problem itself, by the same products as the slopes: an upper bound however inexact β is.
        upper = self.machine.objective_scale * float(np.sum(residual**2) / alpha + shares[first:] @ q[first:])
        return Evaluation(shares, factored, values, upper, q, products)

    def lower(self, beta: Matrix, q: Weights) -> float:
        """What β, scaled as is best, guarantees whatever the weights."""
        gain = float(np.sum(self.machine.targets * beta))
        rest = float(q[self.usable].max()) + (
            0.0 if self.machine.alpha is None else self.machine.alpha * float(np.sum(beta**2))
        )
        return self.machine.objective_scale * max(gain, 0.0) ** 2 / rest if rest > 0 else 0.0

    def guarantee(self, beta: Matrix) -> float:
        """Return the lower bound of any β; its columns are centred first."""
        beta = beta - beta.mean(axis=0)
        return self.lower(beta, np.einsum("inj,nj->i", self._products(beta), beta))

    def curvature(self, at: Evaluation) -> NDArray[np.float64]:
        """Return ∂²/∂s² of Σ_j h_jᵀ(…)⁻¹h_j over the usable kernels: 2 Σ_j (N_iβ_j)ᵀ(…)⁻¹(N_lβ_j)."""
        V = at.products[self.usable]
        flat = V.transpose(1, 0, 2).reshape(V.shape[1], -1)
        answer = at.factored.solve(flat).reshape(V.shape[1], *V.shape[::2])
        return np.asarray(2.0 * np.einsum("inj,nlj->il", V, answer))

    def learned(
        self, best: Evaluation, gap: float, history: list[Iteration], objective: float | None = None
    ) -> DiscriminantLearned:
        theta, alpha = self.weights(best.shares)
        value = best.upper if objective is None else objective
        return DiscriminantLearned(theta, alpha, best.beta, best.values, value, gap, self.n_solves, history)

    def _factor(self, K: Any, alpha: float) -> Factored:
        """Centre the combined kernel and solve for all targets, wherever it lives; it is overwritten."""
        try:
            if isinstance(K, DeviceGram):
                from kernelmosaic.machines._torch_discriminant import solve_on_device

                return solve_on_device(K, self.machine.targets, alpha)
            return self.machine.solve(center(np.asarray(K, dtype=np.float64)), alpha)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"alpha={alpha:g} leaves the regularised kernel matrix singular to machine precision: raise alpha."
            ) from None

    def _products(self, beta: Matrix) -> NDArray[np.float64]:
        bank, first = self.bank, int(self.joint)
        out = np.empty((self.n_shares, *beta.shape))
        out[first:] = bank.products(beta)
        own = out[first:]
        own -= own.mean(axis=1, keepdims=True)
        own *= np.divide(1.0, self.traces, out=np.zeros_like(self.traces), where=self.traces > 0)[
            :, np.newaxis, np.newaxis
        ]
        if self.joint:
            out[0] = beta / bank.n_samples
        return out


def centered_traces(bank: KernelBank, diagonals: NDArray[np.float64]) -> Weights:
    """Return r_i = tr ΠG_iΠ, exactly zero for kernels that are constant on the training set.

    Parameters
    ----------
    bank : KernelBank
        The kernels.
    diagonals : ndarray of shape (P, n)
        k_i(x, x) on the training set.
    """
    n = bank.n_samples
    totals = bank.products(np.ones(n)).sum(axis=1)
    traces = diagonals.sum(axis=1)
    centred = traces - totals / n
    return np.where(centred > _CONSTANT * traces, centred, 0.0)


class DiscriminantLearner(ABC):
    """One formulation of the problem.

    Parameters
    ----------
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Most iterations.
    verbose : bool
        Whether to show a progress bar.
    """

    advice = "raise max_iter, or accept a larger tol."

    def __init__(self, tol: float = 5e-4, max_iter: int = 100, verbose: bool = False) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    @abstractmethod
    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned: ...

    def progress(self) -> AbstractContextManager[Callable[[float], None]]:
        return gap_progress("Discriminant", self.tol) if self.verbose else nullcontext(lambda gap: None)


class Best:
    """The best weights seen so far, the best lower bound, and the record of both."""

    def __init__(self, problem: DiscriminantProblem, first: Evaluation) -> None:
        self.problem = problem
        self.at = first
        self.bound = problem.lower(first.beta, first.q)
        self.history = [Iteration(first.upper, self.gap)]

    @property
    def gap(self) -> float:
        return relative_gap(self.at.upper, self.bound)

    def see(self, there: Evaluation) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        self.bound = max(self.bound, self.problem.lower(there.beta, there.q))
        if there.upper >= self.at.upper:
            return False
        self.at = there
        return True

    def record(self) -> float:
        self.history.append(Iteration(self.at.upper, self.gap))
        return self.gap

    def learned(self) -> DiscriminantLearned:
        return self.problem.learned(self.at, self.gap, self.history)


class DiscriminantFixed(DiscriminantLearner):
    """Weights that are given and kept; their shares of the trace need not sum to one.

    Parameters
    ----------
    weights : ndarray of shape (P,)
        θ.
    """

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        shares = self.weights * problem.traces
        at = problem.evaluate(shares)
        scale = problem.machine.objective_scale
        linear = 2.0 * float(np.sum(problem.machine.targets * at.beta)) - scale * float(np.sum(at.beta**2))
        gap = relative_gap(at.upper, scale * (linear - float(shares @ at.q)))
        # A kernel that is constant on the training set has no share of the trace, but keeps its weight.
        return replace(problem.learned(at, gap, [Iteration(at.upper, gap)]), weights=self.weights)
