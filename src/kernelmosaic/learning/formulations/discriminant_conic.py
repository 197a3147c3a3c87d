"""Discriminant weights as semi-definite programs: matrix inequalities for one target, for all, and Kim's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import helmert

from kernelmosaic.learning.base import Iteration
from kernelmosaic.learning.discriminant import DiscriminantLearned, DiscriminantLearner, DiscriminantProblem, Evaluation
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import BoundTracker
from kernelmosaic.machines.discriminant import Discriminant, Matrix, binary_targets, center, within_class_matrix
from kernelmosaic.solvers import relative_gap
from kernelmosaic.solvers.matrix_inequality import MatrixInequality, MatrixSolution, solve_matrix_inequalities

#: Entries of the matrices handed over: beyond it interior points outgrow an ordinary machine.
_MAX_ENTRIES = 20_000_000
#: Multipliers and shares below this are what interior points leave of a zero.
_ZERO = 1e-7


class DiscriminantSDP(DiscriminantLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, h_j], [h_jᵀ, t_j]] ⪰ 0, one matrix inequality per target.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.1 and equations 29 and 41.
    """

    reads_matrices = True
    advice = (
        "the semi-definite program is badly conditioned; use formulation='newton', raise alpha, or accept a larger tol."
    )

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        k = problem.machine.targets.shape[1]
        _require_small("sdp", [problem.stack.n_samples] * k, problem.n_shares)
        found = BoundTracker(problem, problem.evaluate(problem.start()))
        with self.progress() as advance:
            advance(found.gap)
            shares = _MatrixInequalities(problem, found.best).solve([[j] for j in range(k)]).s
            found.see(problem.evaluate(problem.spread(shares)))
            advance(found.record())
        return problem.learned(found.best, found.gap, found.history)


class DiscriminantApproximateSDP(DiscriminantLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, H], [Hᵀ, diag t]] ⪰ 0: one matrix inequality for all classes.

    Its optimum is no less than that of `DiscriminantSDP`, since diag t must exceed HᵀM⁻¹H as a matrix and not only on
    the diagonal. The gap is certified: at fixed weights the value is the largest tr(X HᵀM⁻¹H) over X ⪰ 0 with unit
    diagonal, so every such X turns into targets HX^½ whose exact problem lies below.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 3.1 and equations 32 and 45.
    """

    reads_matrices = True
    advice = DiscriminantSDP.advice

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        H = problem.machine.targets
        _require_small("sdp_approximate", [problem.stack.n_samples - 1 + H.shape[1]], problem.n_shares)
        first = problem.evaluate(problem.start())
        with self.progress() as advance:
            found = _MatrixInequalities(problem, first).solve([list(range(H.shape[1]))])
            at = problem.evaluate(problem.spread(found.s))
            upper = _lifted(H.T @ at.beta, found.t) * problem.machine.objective_scale
            root = _square_root(_unit_diagonal(found.multipliers[0][-H.shape[1] :, -H.shape[1] :]))
            gap = relative_gap(upper, self._lower(problem, H @ root, at.beta @ root))
            advance(gap)
        return problem.learned(at, gap, [Iteration(upper, gap)], objective=upper)

    @staticmethod
    def _lower(problem: DiscriminantProblem, targets: Matrix, beta: Matrix) -> float:
        """Return what β guarantees for other targets than the problem's own."""
        other = Discriminant(problem.machine.labels, problem.machine.alpha)
        other.targets = targets
        return DiscriminantProblem(problem.stack, other, problem.traces).guarantee(beta)


class DiscriminantKim(DiscriminantLearner):
    """Maximise the within-class criterion F₁* over Σ θ_i = 1 as a semi-definite program; two classes.

    min t − aᵀGa subject to [[λI + JGJ, JGa], [aᵀGJ, t]] ⪰ 0 with G = Σ θ_iG_i: then F₁* = (aᵀGa − t)/λ. The problem it
    is given must have unit traces and the regulariser mλ, for which F₃* has the same minimiser; that certifies the
    weights.

    References
    ----------
    Kim, Magnani and Boyd (2006), "Optimal kernel selection in kernel Fisher discriminant analysis".
    """

    reads_matrices = True
    advice = DiscriminantSDP.advice

    def learn(self, problem: DiscriminantProblem) -> DiscriminantLearned:
        n = problem.stack.n_samples
        if problem.joint or len(problem.machine.counts) != 2:
            raise ValueError("formulation='kim' serves two classes and a given alpha; use formulation='sdp'.")
        _require_small("kim", [n + 1], problem.n_shares)
        found = BoundTracker(problem, problem.evaluate(problem.start()))
        with self.progress() as advance:
            advance(found.gap)
            found.see(problem.evaluate(problem.spread(self._solve(problem))))
            advance(found.record())
        return problem.learned(found.best, found.gap, found.history)

    @staticmethod
    def _solve(problem: DiscriminantProblem) -> Weights:
        n, labels = problem.stack.n_samples, problem.machine.labels
        a, J = binary_targets(labels), within_class_matrix(labels)
        Gs = [np.asarray(problem.stack.row_block(m, slice(0, n)), dtype=np.float64) for m in map(int, problem.usable)]
        gains = np.array([a @ G @ a for G in Gs])
        size = float(np.mean([np.sum(J * (J @ G)) for G in Gs])) / n or 1.0
        gain = float(gains.mean()) or 1.0
        bordered = np.zeros((len(Gs), n + 1, n + 1))
        for B, G in zip(bordered, Gs, strict=True):
            B[:n, :n] = J @ G @ J / size
            B[:n, n] = B[n, :n] = J @ (G @ a) / np.sqrt(size * gain)
        constant = np.diag(np.append(np.full(n, (problem.machine.alpha or 0.0) / n / size), 0.0))
        inequality = MatrixInequality(constant, bordered, [(0, n)])
        return _minimise([inequality], np.append(-gains / gain, 1.0)).s


class _MatrixInequalities:
    """[[λI + Σ s_iN_i, H_g], [H_gᵀ, diag t_g]] ⪰ 0 for groups g of targets, on the samples' differences only.

    Constants are outside every centred matrix, so the inequality is written in a basis of their complement.
    """

    def __init__(self, problem: DiscriminantProblem, at: Evaluation) -> None:
        self.problem = problem
        n = problem.stack.n_samples
        self.Q = helmert(n)
        self.matrices = np.array([n * (self.Q @ N @ self.Q.T) for N in trace_one_matrices(problem)])
        self.H = self.Q @ problem.machine.targets
        # In these units every t is about one.
        self.unit = float(np.sqrt(np.sum(problem.machine.targets * at.beta) / n / self.H.shape[1]))

    def solve(self, groups: list[list[int]]) -> MatrixSolution:
        """Return the solution, t in the problem's units."""
        P, k = len(self.matrices), self.H.shape[1]
        found = _minimise([self._inequality(group) for group in groups], np.append(np.zeros(P), np.ones(k)))
        # t was scaled with the matrices, which are n times what the problem has.
        return replace(found, t=found.t * self.unit**2 * self.problem.stack.n_samples)

    def _inequality(self, group: list[int]) -> MatrixInequality:
        m, g = self.problem.stack.n_samples - 1, len(group)
        matrices = np.zeros((len(self.matrices), m + g, m + g))
        matrices[:, :m, :m] = self.matrices
        constant = np.zeros((m + g, m + g))
        constant[:m, :m] = (m + 1) * (self.problem.machine.alpha or 0.0) * np.eye(m)
        constant[:m, m:] = self.H[:, group] / self.unit
        constant[m:, :m] = constant[:m, m:].T
        return MatrixInequality(constant, matrices, [(j, m + place) for place, j in enumerate(group)])


def _minimise(inequalities: list[MatrixInequality], linear: Weights) -> MatrixSolution:
    """Minimise from equal shares, with bounds t that are twice what they need be."""
    P = len(inequalities[0].matrices)
    s, t = np.full(P, 1.0 / P), np.zeros(len(linear) - P)
    for one in inequalities:
        corner = len(one.bounds)
        F = one.value(s, t)
        M, border = F[:-corner, :-corner], F[:-corner, -corner:]
        need = float(np.linalg.eigvalsh(border.T @ np.linalg.solve(M, border))[-1])
        for j, _ in one.bounds:
            t[j] = 2.0 * need + 1e-3
    found = solve_matrix_inequalities(linear, inequalities, s, t)
    return replace(found, s=np.where(found.s > _ZERO, found.s, 0.0))


def trace_one_matrices(problem: DiscriminantProblem) -> list[Matrix]:
    """Return N_i = G̃_i / r_i for the usable kernels, the identity over n first where λ is learned."""
    n, first = problem.stack.n_samples, int(problem.joint)
    out = [np.eye(n) / n] if problem.joint else []
    for index in problem.usable[first:]:
        G = np.array(problem.stack.row_block(index - first, slice(0, n)), dtype=np.float64)
        out.append(center(G) / problem.traces[index - first])
    return out


def _lifted(C: Matrix, t: Weights) -> float:
    """Return Σ t once t is raised so far that diag t ⪰ C."""
    excess = float(np.linalg.eigvalsh(0.5 * (C + C.T) - np.diag(t))[-1])
    return float(t.sum()) + len(t) * max(excess, 0.0)


def _unit_diagonal(X: Matrix) -> Matrix:
    size = np.sqrt(np.maximum(np.diag(X), 1e-300))
    return np.asarray(X / np.outer(size, size))


def _square_root(X: Matrix) -> Matrix:
    eigenvalues, V = np.linalg.eigh(X)
    return np.asarray((V * np.sqrt(np.maximum(eigenvalues, 0.0))) @ V.T)


def _require_small(formulation: str, orders: list[int], count: int) -> None:
    entries = count * sum(order**2 for order in orders)
    if entries > _MAX_ENTRIES:
        raise MemoryError(
            f"formulation={formulation!r} would keep {entries:.1e} entries for {len(orders)} inequalities of order "
            f"{orders[0]} and serves up to {_MAX_ENTRIES:.0e}; use formulation='newton'."
        )
