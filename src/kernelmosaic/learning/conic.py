"""The whole problem as one conic program, for small sets.

The weights are the multipliers of its constraints (`QCQP`), or variables of any sign (`SDP`).
"""

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
from kernelmosaic.learning.tuning import (
    CONIC_MACHINE_TOLS,
    LEAST_EIGENVALUE,
    LEAST_MULTIPLIER,
    LEAST_TRACE_FRACTION,
    SDP_MACHINE_TOL,
)
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.conic import ConicProgram, pack_symmetric, unpack_symmetric
from kernelmosaic.solvers.program import Program, Vector, relative_gap, require_finite


class QCQP(Learner):
    """Maximise ⟨t, β⟩ − ε‖β‖₁ − ½ Σ ρβ² − γ over the program's β and γ with ½ βᵀK_mβ ≤ d_m² γ.

    Interior points solve the program. The multipliers of the constraints are the weights η, with Σ
    d_m² η_m = 1. The machine is then solved at these weights, which certifies them. Where the conic
    program is too badly conditioned to have a point, the weights stay equal, and the gap bounds
    their distance from the optimum.

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
        options = self.options
        n_entries = stack.n_kernels * stack.n_samples**2
        if n_entries > options.max_conic_entries:
            raise MemoryError(
                f"solver='qcqp' would factorise {stack.n_kernels} kernels of {stack.n_samples}"
                f" samples, {n_entries:.1e} entries, and supports up to"
                f" {options.max_conic_entries:.0e}; use solver='newton'."
            )
        problem = MachineProblem(stack, machine, options, start)
        return polish(_ConicSearch(problem, start.beta).improve())


class _ConicSearch(BoundTracker):
    """The conic program, then the machine at its weights, at most twice.

    Attributes
    ----------
    theta : ndarray of shape (P,) or None
        The weights of the conic program; None before it is solved.
    n_machine_solves : int
        How often the machine was solved at these weights.
    """

    problem: MachineProblem
    theta: Weights | None = None

    def __init__(self, problem: MachineProblem, warm_start: Weights | None) -> None:
        first_fraction, _ = CONIC_MACHINE_TOLS
        self.machine_tol = first_fraction * problem.options.tol
        first = problem.evaluate_first(problem.start(), warm_start, self.machine_tol)
        super().__init__(problem, first)
        self.n_machine_solves = 0

    def goes_on(self) -> bool:
        """Whether the machine is still to be solved, or solved more exactly to meet the gap."""
        if self.n_machine_solves == 0:
            return True
        return self.n_machine_solves == 1 and self.gap > self.problem.options.tol

    def step(self) -> bool:
        """Solve the conic program and the machine, or the machine again; False for no solution."""
        if self.theta is not None:
            _, last_fraction = CONIC_MACHINE_TOLS
            last_tol = last_fraction * self.problem.options.tol
            return self._solve_machine(self.best.solution.beta, last_tol)
        solution = self._solve_conic(gamma_scale=float(self.best.theta @ self.best.q))
        if solution is None:
            return False
        self.theta, beta = solution
        self.consider(self.problem.evaluate_coefficients(self.theta, beta))
        return self._solve_machine(beta, self.machine_tol)

    def _solve_machine(self, warm_start: Vector, tol: float) -> bool:
        """Solve the machine at the weights of the conic program; False where that is refused."""
        assert self.theta is not None
        evaluation = self.problem.evaluate(self.theta, warm_start, tol)
        if evaluation is None:
            return False
        self.consider(evaluation)
        self.n_machine_solves += 1
        return True

    def _solve_conic(self, gamma_scale: float) -> tuple[Vector, Vector] | None:
        """Return θ and a feasible β; None where the conic program has no point.

        `gamma_scale` is about the size that γ will have.
        """
        problem = self.problem
        program = problem.machine.program
        d2 = 1.0 / problem.scale
        model = linear_model(program)
        n = program.n_samples
        gamma = len(model.linear) - 1
        # ‖Lᵀβ‖² ≤ 2 d²γ is ‖(Lᵀβ, d²γ/u − u/2)‖ ≤ d²γ/u + u/2, with u such that both terms on the
        # right are alike.
        u = np.sqrt(2.0 * gamma_scale) if gamma_scale > 0 else 1.0
        constraints = []
        for m in range(len(d2)):
            K = np.asarray(problem.stack.row_block(m, slice(0, n)), dtype=np.float64)
            eigenvalues, V = np.linalg.eigh(K)
            # Smaller eigenvalues are rounding; L Lᵀ is the kernel.
            is_used = eigenvalues > LEAST_EIGENVALUE * max(float(eigenvalues[-1]), 1e-300)
            L = V[:, is_used] * np.sqrt(eigenvalues[is_used])
            A = np.zeros((2 + L.shape[1], gamma + 1))
            A[:2, gamma] = -d2[m] / u
            A[2:, :n] = -L.T
            b = np.concatenate([[0.5 * u, -0.5 * u], np.zeros(L.shape[1])])
            constraints.append(model.require("second order", A, b))
        solution = model.solve()
        if not solution.has_point:
            return None
        multipliers = [solution.multipliers[k] for k in constraints]
        theta = d2 * np.array([multiplier[0] + multiplier[1] for multiplier in multipliers]) / u
        # Smaller multipliers belong to constraints that are not active.
        theta = np.where(theta > LEAST_MULTIPLIER * theta.max(), theta, 0.0)
        return problem.retract(theta), program.feasible(solution.x[:n])


def linear_model(program: Program) -> ConicProgram:
    """Return the conic program of a machine without its kernel.

    The variables are β, then bounds of |β| if there is a tube, then γ, which costs one.
    """
    n = program.n_samples
    n_tube = n if program.epsilon else 0
    linear = np.concatenate([-program.target, np.full(n_tube, program.epsilon), [1.0]])
    quadratic = np.concatenate([program.ridge, np.zeros(n_tube + 1)])
    model = ConicProgram(linear, quadratic)
    eye = sparse.identity(n, format="csr")

    def padded(A: ArrayOrTensor) -> ArrayOrTensor:
        """Return A with columns of zeros for the variables that it does not name."""
        n_missing = len(linear) - A.shape[1]
        return sparse.hstack([A, sparse.csr_matrix((A.shape[0], n_missing))])

    if n_tube:
        model.require("nonnegative", padded(sparse.hstack([eye, -eye])), np.zeros(n))
        model.require("nonnegative", padded(sparse.hstack([-eye, -eye])), np.zeros(n))
    for side, bound in ((1.0, program.upper), (-1.0, -program.lower)):
        finite = np.flatnonzero(np.isfinite(bound))
        if len(finite):
            model.require("nonnegative", padded(side * eye[finite]), bound[finite])
    if program.total is not None:
        ones = sparse.csr_matrix(np.ones((1, n)))
        model.require("zero", padded(ones), np.array([program.total]))
    return model


class SDP(Learner):
    """Minimise the machine's value over η of any sign with K_η = Σ η_m K_m ⪰ 0 and tr K_η = n.

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
        n = stack.n_samples
        max_samples = self.options.max_sdp_samples
        if n > max_samples:
            raise MemoryError(
                f"solver='sdp' supports up to {max_samples} samples, not {n}: it factorises"
                " matrices of order n²/2; use solver='newton'."
            )
        matrices = [stack.row_block(m, slice(0, n)) for m in range(stack.n_kernels)]
        Ks = np.array([np.asarray(K, dtype=np.float64) for K in matrices])

        # 1. Scale the kernels to about one trace, so that kernels of any scale make one program; a
        #    kernel without a trace is zero and stays so. Powers of two leave every digit as it is.
        scale = np.mean(np.diagonal(Ks, axis1=1, axis2=2), axis=1)
        has_scale = (scale > np.finfo(float).tiny) & np.isfinite(scale)
        scale = np.exp2(np.round(np.log2(np.where(has_scale, scale, 1.0))))
        Ks = Ks / scale[:, np.newaxis, np.newaxis]
        require_finite(float(np.abs(Ks).sum()))

        with gap_progress(machine, self.options) as advance:
            # 2. The weights of the conic program; equal shares of the trace where it is too badly
            #    conditioned to have a point.
            conic_solution = _solve(Ks, machine.program)
            if conic_solution is None:
                eta = _equal_traces(Ks)
                beta = None
                W = None
            else:
                eta, beta, W = conic_solution

            # 3. The machine at these weights, and both bounds.
            K = np.ascontiguousarray(np.tensordot(eta, Ks, 1))
            solution = machine.solve(K, beta, SDP_MACHINE_TOL * self.options.tol)
            upper = machine.primal_value(solution)
            if beta is None or W is None:
                beta = solution.beta
                W = 0.5 * np.outer(beta, beta)
            lower = _lower_bound(Ks, machine.program, beta, W)
            # Rounding may lift the bound above what the machine at these weights is certified to.
            gap = max(relative_gap(upper, lower), solution.gap)
            advance(gap)
        return Learned(eta / scale, solution, upper, gap, 1, [Iteration(upper, gap)], lower=lower)

    def lower_bound(self, constant: float, q: Weights, weights: Weights) -> float:
        """Return −∞: β alone proves nothing, because weights may be negative."""
        return -np.inf


def _equal_traces(Ks: Array) -> Weights:
    """Return weights, of shape (P,), with which all kernels that are not zero have equal traces.

    The traces sum to n.
    """
    n = Ks.shape[1]
    traces = np.trace(Ks, axis1=1, axis2=2) / n
    inverses = np.divide(1.0, traces, out=np.zeros(len(traces)), where=traces > 0)
    return np.asarray(inverses / max(np.count_nonzero(traces > 0), 1))


def _solve(Ks: Array, program: Program) -> tuple[Vector, Vector | None, Array | None] | None:
    """Return the weights, a feasible β, and W = ½ββᵀ + Z; None where there is no point.

    W is a part of the multiplier of the semi-definite constraint. The variables of the conic
    program are η, the values f = K_ηβ, b, the excesses over the tube on both sides, and τ ≥
    fᵀK_η⁻¹f.

    Parameters
    ----------
    Ks : ndarray of shape (P, n, n)
        The kernels.
    program : Program
        That of the machine.
    """
    P = len(Ks)
    n = program.n_samples
    above = np.flatnonzero(program.upper > 0)
    below = np.flatnonzero(program.lower < 0)
    first_above = P + n + 1
    first_below = first_above + len(above)
    n_variables = first_below + len(below) + 1
    model = ConicProgram(np.zeros(n_variables), np.zeros(n_variables))
    model.linear[P + n] = program.total or 0.0
    model.linear[-1] = 0.5
    _add_losses(model, program, above, program.upper, 1.0, P, first_above)
    _add_losses(model, program, below, -program.lower, -1.0, P, first_below)
    trace = np.zeros((1, n_variables))
    trace[0, :P] = np.trace(Ks, axis1=1, axis2=2) / n
    model.require("zero", trace, np.ones(1))
    no_constant = np.zeros((n + 1) * (n + 2) // 2)
    block = model.require("semidefinite", _matrix_rows(Ks, n_variables), no_constant)
    solution = model.solve()
    if not solution.has_point:
        return None
    eta = solution.x[:P]
    traces = trace[0, :P]
    M = unpack_symmetric(solution.multipliers[block])
    # A kernel with a smaller fraction of the trace is rounding.
    eta = np.where(np.abs(eta * traces) > LEAST_TRACE_FRACTION, eta, 0.0)
    return eta / float(eta @ traces), program.feasible(-2.0 * M[:n, n]), M[:n, :n]


def _add_losses(
    model: ConicProgram,
    program: Program,
    samples: Indices,
    bound: Vector,
    side: float,
    first_value: int,
    first_excess: int,
) -> None:
    """Add the losses of the excesses of side · (t − f − b) over the tube to a conic program.

    Parameters
    ----------
    model : ConicProgram
        Costs and constraints are added to it.
    program : Program
        That of the machine.
    samples : ndarray of int
        The samples that may have such a loss.
    bound : ndarray of shape (n,)
        The bound of the coefficients on this side, which is the slope of the loss.
    side : float
        1 for values below the targets, −1 for values above them.
    first_value, first_excess : int
        Numbers of the first variables of f and of the excesses.
    """
    bound = bound[samples]
    ridge = program.ridge[samples]
    k = np.arange(len(samples))
    model.linear[first_excess + k] = np.where(ridge > 0, 0.0, bound)
    inverse_ridge = np.divide(1.0, ridge, out=np.zeros(len(k)), where=ridge > 0)
    model.quadratic[first_excess + k] = inverse_ridge
    # Excesses are not negative, and no less than side · (t − f − b) − ε.
    positive = np.zeros((len(k), len(model.linear)))
    positive[k, first_excess + k] = -1.0
    over_tube = positive.copy()
    over_tube[k, first_value + samples] = -side
    if program.total is not None:
        over_tube[:, first_value + program.n_samples] = -side
    model.require("nonnegative", positive, np.zeros(len(k)))
    model.require("nonnegative", over_tube, program.epsilon - side * program.target[samples])


def _matrix_rows(Ks: Array, n_variables: int) -> Any:
    """Return A with −Ax the packed matrix [[K_η, f], [fᵀ, τ]].

    The variables x begin with η and f, and end with τ.
    """
    P, n, _ = Ks.shape
    bordered = np.zeros((P, n + 1, n + 1))
    bordered[:, :n, :n] = Ks
    # Packed column by column, the border comes last: n entries √2 f, then τ.
    n_packed = (n + 1) * (n + 2) // 2
    rows = np.append(np.arange(n_packed - n - 1, n_packed - 1), n_packed - 1)
    columns = np.append(np.arange(n), n_variables - P - 1)
    entries = np.append(np.full(n, -np.sqrt(2.0)), -1.0)
    border = sparse.csc_matrix((entries, (rows, columns)), shape=(n_packed, n_variables - P))
    return sparse.hstack([sparse.csc_matrix(-pack_symmetric(bordered).T), border])


def _lower_bound(Ks: Array, program: Program, beta: Vector, W: Array) -> float:
    """Return a lower bound on the optimum from β and W = ½ββᵀ + Z.

    It is the dual value of β with the γ for which a corrected Z ⪰ 0 meets ½ βᵀK_mβ + ⟨Z, K_m⟩ =
    γ tr K_m / n for every kernel.
    """
    traces = np.trace(Ks, axis1=1, axis2=2) / program.n_samples
    forms = np.tensordot(Ks, W, 2)
    # Kernels that are zero do not constrain Z.
    gamma = float(forms @ traces / (traces @ traces)) if traces.any() else 0.0
    # Z must meet all equalities exactly: correct it within the kernels' span.
    inner_products = np.tensordot(Ks, Ks, ([1, 2], [1, 2]))
    correction = np.linalg.lstsq(inner_products, gamma * traces - forms, rcond=None)[0]
    Z = W - 0.5 * np.outer(beta, beta) + np.tensordot(correction, Ks, 1)
    # Lift Z to be positive semi-definite. ⟨I, K_m⟩ is the trace, so a lift only raises γ.
    least_eigenvalue = float(eigvalsh(Z, subset_by_index=[0, 0])[0])
    lift = max(-least_eigenvalue, 0.0)
    return float(program.linear_value(beta)) - gamma - program.n_samples * lift
