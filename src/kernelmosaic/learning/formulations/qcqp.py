"""The whole problem as one conic program, with the weights as its multipliers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Learned, Learner, Options
from kernelmosaic.learning.problem import BoundTracker, ExhaustedError, Problem
from kernelmosaic.machines import Machine
from kernelmosaic.solvers import Program
from kernelmosaic.solvers.conic import ConicError, ConicProgram
from kernelmosaic.solvers.program import Vector

#: Entries of the kernels' factors: beyond it the interior-point solver's own matrices outgrow an ordinary machine.
_MAX_ENTRIES = 20_000_000
#: Eigenvalues below this share of the largest are rounding.
_RANK = 1e-12
#: Multipliers below this share of the largest belong to constraints that are not active.
_ACTIVE = 1e-7


class QCQP(Learner):
    """Maximise ⟨t, β⟩ − ε‖β‖₁ − ½ Σ ρβ² − γ over the program's β and γ with ½ βᵀK_mβ ≤ d_m² γ, by interior points.

    The multipliers of the constraints are the weights η, with Σ d_m² η_m = 1. The machine is then solved once at these
    weights, which certifies them. Where the conic program is too badly conditioned to have a point, the weights stay
    equal, and the gap says how far from the optimum they may be.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui and Jordan (2004), "Learning the kernel matrix with semidefinite
    programming"; Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology".
    """

    norm_needs = ("sums_to_one",)
    advice = "the conic program is badly conditioned; lower C, use solver='newton', or accept a larger tol."

    def __init__(self, options: Options) -> None:
        self.options = options

    def learn(self, stack: GramStack, machine: Machine, warm_start: Any = None) -> Learned:
        _require_small(stack)
        options = self.options
        problem = Problem(stack, machine, options)
        inner = 0.1 * options.tol
        found = BoundTracker(problem, problem.evaluate(options.norm.start(stack.n_kernels), warm_start, inner))
        with options.progress(type(machine).__name__) as advance:
            advance(found.gap)
            with suppress(ConicError, ExhaustedError):
                theta, beta = self._solve(problem, scale=float(found.best.theta @ found.best.q))
                found.bound(problem.guarantee(beta))
                found.see(problem.evaluate(theta, beta, inner))
                advance(found.record())
                if found.gap > options.tol:
                    found.see(problem.evaluate(theta, found.best.solution.beta, 1e-3 * options.tol))
                    advance(found.record())
        return problem.learned(found.best, found.gap, found.history)

    def _solve(self, problem: Problem, scale: float) -> tuple[Vector, Vector]:
        """Return θ and a feasible β; `scale` is about how large γ will be."""
        program, d2 = problem.machine.program, 1.0 / problem.scale
        model = linear_model(program)
        n, gamma = program.n_samples, len(model.linear) - 1
        unit = np.sqrt(2.0 * scale) if scale > 0 else 1.0
        blocks = []
        for m in range(problem.n_kernels):
            L = _factor(problem.stack.row_block(m, slice(0, n)))
            # ‖Lᵀβ‖² ≤ 2 d²γ is ‖(Lᵀβ, d²γ/u − u/2)‖ ≤ d²γ/u + u/2, with u such that both terms on the right are alike.
            A = np.zeros((2 + L.shape[1], gamma + 1))
            A[:2, gamma] = -d2[m] / unit
            A[2:, :n] = -L.T
            b = np.concatenate([[0.5 * unit, -0.5 * unit], np.zeros(L.shape[1])])
            blocks.append(model.require("second order", A, b))
        found = model.solve()
        theta = d2 * np.array([found.multipliers[k][0] + found.multipliers[k][1] for k in blocks]) / unit
        theta = np.where(theta > _ACTIVE * theta.max(), theta, 0.0)
        return problem.norm.retract(theta), program.feasible(found.x[:n])


def linear_model(program: Program) -> ConicProgram:
    """Return the program without its kernel: variables β, then |β| if there is a tube, then γ, which costs one."""
    n = program.n_samples
    tube = n if program.epsilon else 0
    linear = np.concatenate([-program.target, np.full(tube, program.epsilon), [1.0]])
    model = ConicProgram(linear, np.concatenate([program.ridge, np.zeros(tube + 1)]))
    eye = sparse.identity(n, format="csr")

    def wide(A: Any) -> Any:
        return sparse.hstack([A, sparse.csr_matrix((A.shape[0], len(linear) - A.shape[1]))])

    if tube:
        model.require("nonnegative", wide(sparse.hstack([eye, -eye])), np.zeros(n))
        model.require("nonnegative", wide(sparse.hstack([-eye, -eye])), np.zeros(n))
    for side, bound in ((1.0, program.upper), (-1.0, -program.lower)):
        finite = np.flatnonzero(np.isfinite(bound))
        if len(finite):
            model.require("nonnegative", wide(side * eye[finite]), bound[finite])
    if program.total is not None:
        model.require("zero", wide(sparse.csr_matrix(np.ones((1, n)))), np.array([program.total]))
    return model


def _factor(K: NDArray[Any]) -> NDArray[np.float64]:
    """Return L of shape (n, rank) with L Lᵀ = K."""
    eigenvalues, V = np.linalg.eigh(np.asarray(K, dtype=np.float64))
    keep = eigenvalues > _RANK * max(float(eigenvalues[-1]), 1e-300)
    return np.asarray(V[:, keep] * np.sqrt(eigenvalues[keep]))


def _require_small(stack: GramStack) -> None:
    entries = stack.n_kernels * stack.n_samples**2
    if entries > _MAX_ENTRIES:
        raise MemoryError(
            f"solver='qcqp' would factorise {stack.n_kernels} kernels of {stack.n_samples} samples, {entries:.1e} "
            f"entries, and serves up to {_MAX_ENTRIES:.0e}; use solver='newton'."
        )
