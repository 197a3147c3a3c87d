"""Discriminant weights by the papers' other programs: quadratic constraints, matrix inequalities, and Kim's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.linalg import helmert

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, Start
from kernelmosaic.learning.discriminant import DiscriminantProblem
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import BoundTracker, Evaluation, Learner, gap_progress
from kernelmosaic.machines.discriminant import Discriminant, Matrix, binary_targets, center, within_class_matrix
from kernelmosaic.solvers import relative_gap
from kernelmosaic.solvers.conic import MatrixInequality, MatrixSolution, solve_matrix_inequalities
from kernelmosaic.solvers.interior_point import centring, longest_step


class DiscriminantQCQP(Learner):
    """Maximise Σ_j (β_jᵀh_j − ¼ β_jᵀβ_j) − t/(4λ) subject to t ≥ Σ_j β_jᵀG̃_iβ_j / r_i for every kernel.

    The multipliers of the constraints are the weights. Without the term in β_jᵀβ_j, and with the identity as one more
    kernel, where λ is learned.

    A general conic solver carries all n·k coefficients of β through its linear algebra. Here they are eliminated: given
    the multipliers s, the optimal β is one Cholesky factorisation away, shared by all targets, and so is how the
    constraints' values q answer to s. What is left of the optimality conditions, s_i (t − q_i) = μ and Σs = 1 with μ
    driven to zero, has one unknown per kernel.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.2 and equations 34, 43 and 46. Mehrotra (1992) for the choice of μ.
    """

    machine_needs = ()
    stalled = "rounding hides what is left to gain; use solver='newton', raise alpha, or accept a larger tol."

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        path = _Path(DiscriminantProblem(stack, machine, self.options))
        path.improve()
        path.prune(self.options.tol)
        return path.learned()


class _Path(BoundTracker):
    """Where the interior points are: multipliers s, slacks z, the bound t, in units of the first constraint values."""

    problem: DiscriminantProblem

    def __init__(self, problem: DiscriminantProblem) -> None:
        self.at = problem.evaluate(problem.start())
        super().__init__(problem, self.at)
        # Constant kernels are left out of the simplex altogether.
        self.usable = np.flatnonzero(problem.scale > 0)
        self.unit = max(float(np.abs(self.at.q).max()), np.finfo(float).tiny)
        self.s: Weights = self.at.theta[self.usable]
        self.t = 1.0 + 1.0 / len(self.s)
        self.z: Weights = self.t - self.at.q[self.usable] / self.unit

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused below
    def step(self) -> bool:
        """Take one predictor–corrector step and solve the least squares where it ends; False if rounding hides it."""
        C = self.problem.curvature(self.at)[np.ix_(self.usable, self.usable)] / self.unit
        missing = self.t - self.at.q[self.usable] / self.unit - self.z
        mu = float(self.s @ self.z) / len(self.s)
        if not mu > 0:
            return False
        ds, dz, _ = self._direction(C, missing, -self.s * self.z)
        # A little more than a full step, so that one can be taken.
        along_s, along_z = (min(1.0 / 0.99, longest_step(pair)) for pair in ((self.s, ds), (self.z, dz)))
        ahead = float((self.s + along_s * ds) @ (self.z + along_z * dz)) / len(self.s)
        centre = min(centring(mu, max(ahead, 0.0)), mu)
        ds, dz, dt = self._direction(C, missing, centre - self.s * self.z - ds * dz)
        # A step ends before the boundary.
        size = min(1.0, 0.99 * longest_step((self.s, ds), (self.z, dz)))
        s, z = self.s + size * ds, self.z + size * dz
        if not (np.all(s > 0) and np.all(z > 0) and np.isfinite(dt)):
            return False
        self.s, self.z, self.t = s, z, self.t + size * dt
        self.at = self._evaluate(self.s)
        self.consider(self.at)
        return True

    def prune(self, tol: float) -> None:
        """Set the shares to zero that interior points leave of a zero, if the gap allows it."""
        # A multiplier whose constraint has more slack left than it has weight is on its way to zero.
        active = self.s > self.z
        trial = self._evaluate(np.where(active, self.s, 0.0) if active.any() else self.s)
        self.note(trial)
        gap = relative_gap(trial.upper, self.lower)
        if gap <= max(tol, self.gap):
            self.best, self.proved, self.gap = trial, trial, gap
            self.history[-1] = Iteration(trial.upper, self.gap)

    def _evaluate(self, s: Weights) -> Evaluation:
        theta = np.zeros(len(self.problem.scale))
        theta[self.usable] = s
        return self.problem.evaluate(self.problem.retract(theta))

    def _direction(self, C: Weights, missing: Weights, wanted: Weights) -> tuple[Weights, Weights, float]:
        """Solve z∘ds + s∘dz = wanted with dz = dt + C ds + missing and Σds = 0; NaN where the system overflows."""
        A = C + np.diag(self.z / self.s)
        right = np.column_stack([wanted / self.s - missing, np.ones(len(self.s))])
        if not (np.all(np.isfinite(A)) and np.all(np.isfinite(right)) and np.all(np.diag(A) > 0)):
            return np.full(len(self.s), np.nan), np.full(len(self.s), np.nan), np.nan
        # Kernels that are alike leave A singular to rounding: of all solutions the least is as good as any.
        unit = 1.0 / np.sqrt(np.diag(A))[:, np.newaxis]
        both = unit * np.linalg.lstsq(A * unit * unit.T, unit * right, rcond=None)[0]
        dt = float(both[:, 0].sum() / both[:, 1].sum())
        ds = both[:, 0] - dt * both[:, 1]
        return ds, dt + C @ ds + missing, dt


class MatrixLearner(Learner):
    """Learns by matrix inequalities in the kernel matrices."""

    machine_needs = ()
    reads_matrices = True
    advice = "the semi-definite program is badly conditioned; use solver='newton', raise alpha, or accept a larger tol."

    def _require_small(self, solver: str, orders: list[int], count: int) -> None:
        entries, most = count * sum(order**2 for order in orders), self.options.most_entries
        if entries > most:
            raise MemoryError(
                f"solver={solver!r} would keep {entries:.1e} entries for {len(orders)} inequalities of order "
                f"{orders[0]} and supports up to {most:.0e}; use solver='newton'."
            )


class DiscriminantSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, h_j], [h_jᵀ, t_j]] ⪰ 0, one matrix inequality per target.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.1 and equations 29 and 41.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        k = machine.targets.shape[1]
        self._require_small("sdp", [stack.n_samples] * k, stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        columns = [[j] for j in range(k)]
        return _learn_once(problem, lambda first: _MatrixInequalities(problem, first).solve(columns).s)


def _learn_once(problem: DiscriminantProblem, shares: Callable[[Evaluation], Weights]) -> Learned:
    """Return what is learned by shares that follow from an evaluation where every kernel has the same."""
    found = BoundTracker(problem, problem.evaluate(problem.start()))
    with gap_progress(problem.machine, problem.options) as advance:
        advance(found.gap)
        found.consider(problem.evaluate(problem.retract(shares(found.best))))
        advance(found.record())
    return found.learned()


class DiscriminantApproximateSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, H], [Hᵀ, diag t]] ⪰ 0: one matrix inequality for all classes.

    Its optimum is no less than that of `DiscriminantSDP`, since diag t must exceed HᵀM⁻¹H as a matrix and not only on
    the diagonal. The gap is certified: at fixed weights the value is the largest tr(X HᵀM⁻¹H) over X ⪰ 0 with unit
    diagonal, so every such X turns into targets HX^½ whose exact problem lies below.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 3.1 and equations 32 and 45.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        H = machine.targets
        self._require_small("sdp_approximate", [stack.n_samples - 1 + H.shape[1]], stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        first = problem.evaluate(problem.start())
        with gap_progress(machine, self.options) as advance:
            found = _MatrixInequalities(problem, first).solve([list(range(H.shape[1]))])
            at = problem.evaluate(problem.retract(found.s))
            beta = at.solution.beta
            upper = _lifted(H.T @ beta, found.t)
            root = _unit_rows(found.multipliers[0][-H.shape[1] :, -H.shape[1] :])
            gap = relative_gap(upper, problem.guarantee(beta @ root, H @ root))
            advance(gap)
        return replace(problem.learned(at, gap, [Iteration(upper, gap)]), objective=upper)


class DiscriminantKim(MatrixLearner):
    """Maximise the within-class criterion F₁* over Σ θ_i = 1 as a semi-definite program; two classes.

    min t − aᵀGa subject to [[λI + JGJ, JGa], [aᵀGJ, t]] ⪰ 0 with G = Σ θ_iG_i: then F₁* = (aᵀGa − t)/λ. The problem it
    is given must have unit traces and the regulariser mλ, for which F₃* has the same minimiser; that certifies the
    weights.

    References
    ----------
    Kim, Magnani and Boyd (2006), "Optimal kernel selection in kernel Fisher discriminant analysis".
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        if machine.alpha is None or not machine.has_classes or len(machine.counts) != 2:
            raise ValueError("solver='kim' supports two classes and a given alpha; use solver='sdp'.")
        self._require_small("kim", [stack.n_samples + 1], stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        problem.stated_alpha = machine.alpha / stack.n_samples
        return _learn_once(problem, lambda first: self._solve(problem))

    @staticmethod
    def _solve(problem: DiscriminantProblem) -> Weights:
        n, labels = problem.stack.n_samples, problem.machine.labels
        a, J = binary_targets(labels), within_class_matrix(labels)
        Gs = [np.asarray(problem.stack.row_block(m, slice(0, n)), dtype=np.float64) for m in range(len(problem.scale))]
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
        self.unit = float(np.sqrt(np.sum(problem.machine.targets * at.solution.beta) / n / self.H.shape[1]))

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
        need = _least_bound(F[:-corner, :-corner], F[:-corner, -corner:])
        for j, _ in one.bounds:
            t[j] = 2.0 * need + 1e-3
    found = solve_matrix_inequalities(linear, inequalities, s, t)
    # Smaller shares are what interior points leave of a zero.
    return replace(found, s=np.where(found.s > 1e-7, found.s, 0.0))


def _least_bound(M: Matrix, border: Matrix) -> float:
    """Return the least t with [[M, B], [Bᵀ, tI]] ⪰ 0; zero, which is outside, where M is singular to rounding."""
    with suppress(np.linalg.LinAlgError):
        need = border.T @ np.linalg.solve(M, border)
        if np.all(np.isfinite(need)):
            return max(float(np.linalg.eigvalsh(need)[-1]), 0.0)
    return 0.0


def trace_one_matrices(problem: DiscriminantProblem) -> list[Matrix]:
    """Return N_i = G̃_i / r_i, zero for constant kernels; the identity over n first where λ is learned."""
    n, first = problem.stack.n_samples, int(problem.joint)
    out = [np.eye(n) / n] if problem.joint else []
    for m, scale in enumerate(problem.scale[first:]):
        G = np.array(problem.stack.row_block(m, slice(0, n)), dtype=np.float64)
        out.append(center(G) * scale)
    return out


def _lifted(C: Matrix, t: Weights) -> float:
    """Return Σ t once t is raised so far that diag t ⪰ C."""
    excess = float(np.linalg.eigvalsh(0.5 * (C + C.T) - np.diag(t))[-1])
    return float(t.sum()) + len(t) * max(excess, 0.0)


def _unit_rows(X: Matrix) -> Matrix:
    """Return R whose rows have unit length, with RRᵀ about X scaled to a unit diagonal; any such R gives a bound."""
    if not np.all(np.isfinite(X)):
        return np.eye(len(X))
    eigenvalues, V = np.linalg.eigh(X)
    R = V * np.sqrt(np.maximum(eigenvalues, 0.0))
    size = np.sqrt(np.sum(R**2, axis=1, keepdims=True))
    return np.where(size > 0, R / np.where(size > 0, size, 1.0), np.eye(len(X)))
