"""Weights of any sign: the combined matrix need only be positive semi-definite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigvalsh

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Iteration, Learned, Learner, Options
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import Program, relative_gap
from kernelmosaic.solvers.conic import ConicError, ConicProgram, pack_symmetric, unpack_symmetric
from kernelmosaic.solvers.program import Vector

#: The interior-point solver factorises a matrix of order n²/2.
_MAX_SAMPLES = 100
#: A kernel that gets less than this share of the trace is rounding.
_ZERO = 1e-7


class SDP(Learner):
    """Minimise the machine's value over weights η of any sign with K_η = Σ η_m K_m ⪰ 0 and tr K_η = n.

    The trace stands where Σ d_m² η_m = 1 does for the other solvers; it is the same rule when d_m² is the mean diagonal
    of K_m, so with normalised kernels the weights sum to one and the optimum is at most theirs. The gap is certified:
    the machine solved at the weights bounds the optimum from above, and β with any matrix Z ⪰ 0 such that
    ½ βᵀK_mβ + ⟨Z, K_m⟩ = γ tr K_m / n for all m bounds it from below by the dual value with γ for the kernel's part.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui and Jordan (2004), "Learning the kernel matrix with semidefinite
    programming", theorem 16 onwards.
    """

    norm_needs = ("sums_to_one",)
    machine_needs = ("has_one_output", "has_one_slack")
    advice = "the semi-definite program is badly conditioned; lower C, use solver='newton', or accept a larger tol."

    def __init__(self, options: Options) -> None:
        if np.any(options.penalties != 1.0):
            raise ValueError(
                "solver='sdp' keeps the trace of the combined kernel and serves penalties=None; use solver='newton'."
            )
        self.options = options

    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned:
        self.require("sdp", self.options.norm, machine)
        n = stack.n_samples
        if n > _MAX_SAMPLES:
            raise MemoryError(
                f"solver='sdp' serves up to {_MAX_SAMPLES} samples, not {n}: it factorises matrices of order n²/2; "
                "use solver='newton'."
            )
        Ks = np.array([np.asarray(stack.row_block(m, slice(0, n)), dtype=np.float64) for m in range(stack.n_kernels)])
        with self.options.progress(type(machine).__name__) as advance:
            try:
                eta, beta, W = _solve(Ks, machine.program)
            except ConicError:  # too badly conditioned to have a point: equal shares of the trace, honestly certified
                eta, beta, W = _equal_shares(Ks), None, None
            K = np.ascontiguousarray(np.tensordot(eta, Ks, 1))
            solution = machine.solve(K, beta, 0.01 * self.options.tol)
            upper = machine.program.primal_value(
                0.5 * float(solution.beta @ solution.values), solution.values, solution.intercept
            )
            if beta is None or W is None:
                beta, W = solution.beta, 0.5 * np.outer(solution.beta, solution.beta)
            # Rounding may lift the bound above what the machine at these weights is certified to.
            gap = max(relative_gap(upper, _lower_bound(Ks, machine.program, beta, W)), solution.gap)
            advance(gap)
        return Learned(eta, solution, upper, gap, 1, [Iteration(upper, gap)])


def _equal_shares(Ks: NDArray[np.float64]) -> Vector:
    """Return weights that give every kernel that has a trace the same share of it."""
    r = np.trace(Ks, axis1=1, axis2=2) / Ks.shape[1]
    shares = np.divide(1.0, r, out=np.zeros(len(r)), where=r > 0)
    return np.asarray(shares / max(np.count_nonzero(shares), 1))


def _solve(Ks: NDArray[np.float64], program: Program) -> tuple[Vector, Vector, NDArray[np.float64]]:
    """Return the weights, β, and W = ½ββᵀ + Z, of which the multiplier of the semi-definite constraint is made.

    The variables are η, the values f = K_ηβ, b, the excesses over the tube on both sides, and τ ≥ fᵀK_η⁻¹f.
    """
    P, n = len(Ks), program.n_samples
    above, below = np.flatnonzero(program.upper > 0), np.flatnonzero(program.lower < 0)
    width = P + n + 1 + len(above) + len(below) + 1
    model = ConicProgram(np.zeros(width), np.zeros(width))
    model.linear[P + n], model.linear[-1] = program.total or 0.0, 0.5
    _add_losses(model, program, above, program.upper, 1.0, P, P + n + 1)
    _add_losses(model, program, below, -program.lower, -1.0, P, P + n + 1 + len(above))
    trace = np.zeros((1, width))
    trace[0, :P] = np.trace(Ks, axis1=1, axis2=2) / n
    model.require("zero", trace, np.ones(1))
    block = model.require("semidefinite", _matrix_rows(Ks, width), np.zeros((n + 1) * (n + 2) // 2))
    found = model.solve()
    M = unpack_symmetric(found.multipliers[block])
    eta = np.where(np.abs(found.x[:P] * trace[0, :P]) > _ZERO, found.x[:P], 0.0)
    return eta / float(eta @ trace[0, :P]), program.feasible(-2.0 * M[:n, n]), M[:n, :n]


def _add_losses(
    model: ConicProgram, program: Program, samples: NDArray[np.intp], bound: Vector, side: float, f: int, excess: int
) -> None:
    """Charge the excesses of side (t − f − b) over the tube; `f` and `excess` number their first variables."""
    bound, ridge = bound[samples], program.ridge[samples]
    k = np.arange(len(samples))
    model.linear[excess + k] = np.where(ridge > 0, 0.0, bound)
    model.quadratic[excess + k] = np.divide(1.0, ridge, out=np.zeros(len(k)), where=ridge > 0)
    positive = np.zeros((len(k), len(model.linear)))
    positive[k, excess + k] = -1.0
    over = positive.copy()
    over[k, f + samples] = -side
    if program.total is not None:
        over[:, f + program.n_samples] = -side
    model.require("nonnegative", positive, np.zeros(len(k)))
    model.require("nonnegative", over, program.epsilon - side * program.target[samples])


def _matrix_rows(Ks: NDArray[np.float64], width: int) -> Any:
    """Return A with −Ax the packed matrix [[K_η, f], [fᵀ, τ]]; the variables open with η and f and end with τ."""
    P, n, _ = Ks.shape
    bordered = np.zeros((P, n + 1, n + 1))
    bordered[:, :n, :n] = Ks
    # Packed column by column, the border comes last: n entries √2 f, then τ.
    length = (n + 1) * (n + 2) // 2
    rows, columns = np.append(np.arange(length - n - 1, length - 1), length - 1), np.append(np.arange(n), width - P - 1)
    entries = np.append(np.full(n, -np.sqrt(2.0)), -1.0)
    border = sparse.csc_matrix((entries, (rows, columns)), shape=(length, width - P))
    return sparse.hstack([sparse.csc_matrix(-pack_symmetric(bordered).T), border])


def _lower_bound(Ks: NDArray[np.float64], program: Program, beta: Vector, W: NDArray[np.float64]) -> float:
    """Return the dual value of β with the best γ that a correction of Z = W − ½ββᵀ can vouch for."""
    r = np.trace(Ks, axis1=1, axis2=2) / program.n_samples
    forms = np.tensordot(Ks, W, 2)
    gamma = float(forms @ r / (r @ r))
    # Z must meet all equalities exactly: correct it within the kernels' span ...
    gram = np.tensordot(Ks, Ks, ([1, 2], [1, 2]))
    share = np.linalg.lstsq(gram, gamma * r - forms, rcond=None)[0]
    Z = W - 0.5 * np.outer(beta, beta) + np.tensordot(share, Ks, 1)
    # ... and lift it to be positive semi-definite; ⟨I, K_m⟩ is n r_m, so that only raises γ.
    lift = max(-float(eigvalsh(Z, subset_by_index=[0, 0])[0]), 0.0)
    return program.linear_value(beta) - gamma - program.n_samples * lift
