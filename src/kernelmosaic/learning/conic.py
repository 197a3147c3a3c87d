"""The whole problem as one conic program, for small sets: the weights as its multipliers, or of any
sign."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigvalsh

from kernelmosaic._typing import Array, ArrayOrTensor, Indices
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.newton import polish
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    BoundTracker,
    Learner,
    LearnerOptions,
    MachineProblem,
    gap_progress,
)
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.conic import ConicProgram, pack_symmetric, unpack_symmetric
from kernelmosaic.solvers.program import Program, Vector, relative_gap, require_finite


class QCQP(Learner):
    """Maximise ⟨t, β⟩ − ε‖β‖₁ − ½ Σ ρβ² − γ over the program's β and γ with ½ βᵀK_mβ ≤ d_m² γ, by
    interior points.

    The multipliers of the constraints are the weights η, with Σ d_m² η_m = 1. The machine is then
    solved once at these weights, which certifies them. Where the conic program is too badly
    conditioned to have a point, the weights stay equal, and the gap bounds their distance from the
    optimum.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui and Jordan (2004), "Learning the kernel matrix with
    semidefinite programming"; Gönen and Alpaydın (2011), "Regularizing multiple kernel learning
    using response surface methodology".
    """

    norm_needs = ("sums_to_one",)
    advice = (
        "the conic program is badly conditioned; lower C, use solver='newton', or accept a larger"
        " tol."
    )

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        options, entries = self.options, stack.n_kernels * stack.n_samples**2
        if entries > options.most_entries:
            raise MemoryError(
                f"solver='qcqp' would factorise {stack.n_kernels} kernels of {stack.n_samples}"
                f" samples, {entries:.1e} entries, and supports up to {options.most_entries:.0e};"
                " use solver='newton'."
            )
        return polish(
            _ConicSearch(MachineProblem(stack, machine, options, start), start.beta).improve()
        )


class _ConicSearch(BoundTracker):
    """The conic program, the machine at its weights, and the machine there more exactly.

    Attributes
    ----------
    theta : ndarray of shape (P,) or None
        The weights of the conic program; None before it is solved.
    """

    problem: MachineProblem
    theta: Weights | None = None

    def __init__(self, problem: MachineProblem, warm_start: Weights | None) -> None:
        self.inner = 0.1 * problem.options.tol
        super().__init__(problem, problem.evaluate_first(problem.start(), warm_start, self.inner))
        self.n_machine_solves = 0

    def goes_on(self) -> bool:
        """Whether the conic program, or the machine at its weights, has yet to be solved well
        enough."""
        if self.n_machine_solves == 0:
            return True
        return self.n_machine_solves == 1 and self.gap > self.problem.options.tol

    def step(self) -> bool:
        """Solve the conic program, or the machine more exactly; False where there is no
        solution."""
        if self.theta is not None:
            return self._solve_machine(self.best.solution.beta, 1e-3 * self.problem.options.tol)
        conic = self._solve_conic(scale=float(self.best.theta @ self.best.q))
        if conic is None:
            return False
        self.theta, beta = conic
        self.consider(self.problem.assess(self.theta, beta))
        return self._solve_machine(beta, self.inner)

    def _solve_machine(self, warm_start: Vector, tol: float) -> bool:
        assert self.theta is not None
        evaluation = self.problem.evaluate(self.theta, warm_start, tol)
        if evaluation is None:
            return False
        self.consider(evaluation)
        self.n_machine_solves += 1
        return True

    def _solve_conic(self, scale: float) -> tuple[Vector, Vector] | None:
        """Return θ and a feasible β; `scale` is about how large γ will be."""
        problem = self.problem
        program, d2 = problem.machine.program, 1.0 / problem.scale
        model = linear_model(program)
        n, gamma = program.n_samples, len(model.linear) - 1
        unit = np.sqrt(2.0 * scale) if scale > 0 else 1.0
        blocks = []
        for m in range(len(d2)):
            eigenvalues, V = np.linalg.eigh(
                np.asarray(problem.stack.row_block(m, slice(0, n)), dtype=np.float64)
            )
            # Smaller eigenvalues are rounding; L Lᵀ is the kernel.
            keep = eigenvalues > 1e-12 * max(float(eigenvalues[-1]), 1e-300)
            L = V[:, keep] * np.sqrt(eigenvalues[keep])
            # ‖Lᵀβ‖² ≤ 2 d²γ is ‖(Lᵀβ, d²γ/u − u/2)‖ ≤ d²γ/u + u/2, with u such that both terms on
            # the right are alike.
            A = np.zeros((2 + L.shape[1], gamma + 1))
            A[:2, gamma] = -d2[m] / unit
            A[2:, :n] = -L.T
            b = np.concatenate([[0.5 * unit, -0.5 * unit], np.zeros(L.shape[1])])
            blocks.append(model.require("second order", A, b))
        solution = model.solve()
        if not solution.has_point:
            return None
        x, multipliers = solution.x, solution.multipliers
        theta = d2 * np.array([multipliers[k][0] + multipliers[k][1] for k in blocks]) / unit
        # Smaller multipliers belong to constraints that are not active.
        theta = np.where(theta > 1e-7 * theta.max(), theta, 0.0)
        return problem.retract(theta), program.feasible(x[:n])


def linear_model(program: Program) -> ConicProgram:
    """Return the program without its kernel: variables β, then |β| if there is a tube, then γ,
    which costs one."""
    n = program.n_samples
    tube = n if program.epsilon else 0
    linear = np.concatenate([-program.target, np.full(tube, program.epsilon), [1.0]])
    model = ConicProgram(linear, np.concatenate([program.ridge, np.zeros(tube + 1)]))
    eye = sparse.identity(n, format="csr")

    def wide(A: ArrayOrTensor) -> ArrayOrTensor:
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


class SDP(Learner):
    """Minimise the machine's value over weights η of any sign with K_η = Σ η_m K_m ⪰ 0 and tr K_η =
    n.

    The trace stands where Σ d_m² η_m = 1 does for the other solvers; it is the same rule when d_m²
    is the mean diagonal of K_m, so with normalised kernels the weights sum to one and the optimum
    is at most theirs. The gap is certified: the machine solved at the weights bounds the optimum
    from above, and β with any matrix Z ⪰ 0 such that ½ βᵀK_mβ + ⟨Z, K_m⟩ = γ tr K_m / n for all m
    bounds it from below by the dual value with γ for the kernel's part.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui and Jordan (2004), "Learning the kernel matrix with
    semidefinite programming", theorem 16 onwards.
    """

    norm_needs = ("sums_to_one",)
    machine_needs = ("has_one_output", "has_one_slack")
    advice = (
        "the semi-definite program is badly conditioned; lower C, use solver='newton', or accept a"
        " larger tol."
    )

    def __init__(self, options: LearnerOptions) -> None:
        if np.any(options.penalties != 1.0):
            raise ValueError(
                "solver='sdp' keeps the trace of the combined kernel and needs penalties=None; use"
                " solver='newton'."
            )
        super().__init__(options)

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        n, most = stack.n_samples, self.options.most_sdp_samples
        if n > most:
            raise MemoryError(
                f"solver='sdp' supports up to {most} samples, not {n}: it factorises matrices of"
                " order n²/2; use solver='newton'."
            )
        Ks = np.array(
            [
                np.asarray(stack.row_block(m, slice(0, n)), dtype=np.float64)
                for m in range(stack.n_kernels)
            ]
        )
        # In units of about their traces kernels of any scale make one program; one without a trace
        # is zero and stays so. Powers of two leave every digit as it is.
        size = np.mean(np.diagonal(Ks, axis1=1, axis2=2), axis=1)
        size = np.where((size > np.finfo(float).tiny) & np.isfinite(size), size, 1.0)
        size = np.exp2(np.round(np.log2(size)))
        Ks = Ks / size[:, np.newaxis, np.newaxis]
        require_finite(float(np.abs(Ks).sum()))
        with gap_progress(machine, self.options) as advance:
            conic = _solve(Ks, machine.program)
            if conic is None:
                # Too badly conditioned to have a point: equal shares of the trace.
                r, beta, W = np.trace(Ks, axis1=1, axis2=2) / n, None, None
                eta = np.divide(1.0, r, out=np.zeros(len(r)), where=r > 0) / max(
                    np.count_nonzero(r > 0), 1
                )
            else:
                eta, beta, W = conic
            K = np.ascontiguousarray(np.tensordot(eta, Ks, 1))
            solution = machine.solve(K, beta, 0.01 * self.options.tol)
            upper = machine.primal_value(solution)
            if beta is None or W is None:
                beta, W = solution.beta, 0.5 * np.outer(solution.beta, solution.beta)
            # Rounding may lift the bound above what the machine at these weights is certified to.
            lower = _lower_bound(Ks, machine.program, beta, W)
            gap = max(relative_gap(upper, lower), solution.gap)
            advance(gap)
        return Learned(eta / size, solution, upper, gap, 1, [Iteration(upper, gap)], lower=lower)

    def lower_bound(self, constant: float, q: Weights, weights: Weights) -> float:
        """Return that β alone proves nothing: weights may be negative."""
        return -np.inf


def _solve(Ks: Array, program: Program) -> tuple[Vector, Vector | None, Array | None] | None:
    """Return the weights, β, and W = ½ββᵀ + Z, of which the multiplier of the semi-definite
    constraint is made.

    None is returned where the conic program has no point.

    The variables are η, the values f = K_ηβ, b, the excesses over the tube on both sides, and τ ≥
    fᵀK_η⁻¹f.
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
    solution = model.solve()
    if not solution.has_point:
        return None
    x = solution.x
    M = unpack_symmetric(solution.multipliers[block])
    # A kernel with a smaller share of the trace is rounding.
    eta = np.where(np.abs(x[:P] * trace[0, :P]) > 1e-7, x[:P], 0.0)
    return eta / float(eta @ trace[0, :P]), program.feasible(-2.0 * M[:n, n]), M[:n, :n]


def _add_losses(
    model: ConicProgram,
    program: Program,
    samples: Indices,
    bound: Vector,
    side: float,
    f: int,
    excess: int,
) -> None:
    """Charge the excesses of side (t − f − b) over the tube; `f` and `excess` number their first
    variables."""
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


def _matrix_rows(Ks: Array, width: int) -> Any:
    """Return A with −Ax the packed matrix [[K_η, f], [fᵀ, τ]]; the variables open with η and f and
    end with τ."""
    P, n, _ = Ks.shape
    bordered = np.zeros((P, n + 1, n + 1))
    bordered[:, :n, :n] = Ks
    # Packed column by column, the border comes last: n entries √2 f, then τ.
    length = (n + 1) * (n + 2) // 2
    rows, columns = (
        np.append(np.arange(length - n - 1, length - 1), length - 1),
        np.append(np.arange(n), width - P - 1),
    )
    entries = np.append(np.full(n, -np.sqrt(2.0)), -1.0)
    border = sparse.csc_matrix((entries, (rows, columns)), shape=(length, width - P))
    return sparse.hstack([sparse.csc_matrix(-pack_symmetric(bordered).T), border])


def _lower_bound(Ks: Array, program: Program, beta: Vector, W: Array) -> float:
    """Return the dual value of β with the best γ that a correction of Z = W − ½ββᵀ can vouch
    for."""
    r = np.trace(Ks, axis1=1, axis2=2) / program.n_samples
    forms = np.tensordot(Ks, W, 2)
    # Kernels that are zero do not constrain Z.
    gamma = float(forms @ r / (r @ r)) if r.any() else 0.0
    # Z must meet all equalities exactly: correct it within the kernels' span ...
    gram = np.tensordot(Ks, Ks, ([1, 2], [1, 2]))
    share = np.linalg.lstsq(gram, gamma * r - forms, rcond=None)[0]
    Z = W - 0.5 * np.outer(beta, beta) + np.tensordot(share, Ks, 1)
    # ... and lift it to be positive semi-definite; ⟨I, K_m⟩ is n r_m, so that only raises γ.
    lift = max(-float(eigvalsh(Z, subset_by_index=[0, 0])[0]), 0.0)
    return float(program.linear_value(beta)) - gamma - program.n_samples * lift
