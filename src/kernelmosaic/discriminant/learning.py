"""Discriminant analysis as a problem in the weights: least squares on centred kernels, in matrices
or in features.

Beside it are the learners by the papers' other programs: quadratic constraints, matrix
inequalities, and Kim's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from scipy.linalg import helmert

from kernelmosaic._typing import Array
from kernelmosaic.discriminant.machine import (
    Discriminant,
    Matrix,
    binary_targets,
    center,
    within_class_matrix,
)
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, LearnedRidge, Start
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import Weights
from kernelmosaic.learning.problem import (
    BoundTracker,
    Evaluation,
    Learner,
    LearnerOptions,
    Numbers,
    WeightProblem,
    gap_progress,
    make_problem,
)
from kernelmosaic.learning.simplex import SILP
from kernelmosaic.solvers.conic import BarrierSolution, MatrixInequality, solve_matrix_inequalities
from kernelmosaic.solvers.interior_point import centring, longest_step
from kernelmosaic.solvers.least_squares import FeatureForm, FeatureLeastSquares
from kernelmosaic.solvers.program import relative_gap, require_finite

#: Fraction of its trace below which the centred trace of a kernel is rounding: the kernel is
#: constant.
CONSTANT_KERNEL = 1e-12
#: A solution in features is refined until it is this exact, relative to its size; smaller residuals
#: are rounding.
EXACT = 1e-10
#: Most steps of refinement: each leaves less than half of what was missing, or is the last one.
REFINEMENTS = 5


class DiscriminantProblem(WeightProblem):
    """min over θ ≥ 0, Σ θ_i r_i = 1, of Σ_j h_jᵀ(λI + Σ θ_iG̃_i)⁻¹h_j, seen through the shares s =
    θ ∘ r of the trace.

    The shares are scaled weights like any others, with penalties d_i² = r_i, and live in the set of
    `SumNorm`. With ``machine.alpha=None`` the identity is one more kernel, the first, of trace m,
    and λ its weight. The slope in s_i is −q_i with q_i = Σ_j β_jᵀN_iβ_j and N_i = G̃_i / r_i, a
    matrix of trace one.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred: their coefficients sum to zero, so centring what comes out is
        enough.
    machine : Discriminant
        The targets and λ.
    options : LearnerOptions
        Penalties √r_i, see `trace_penalties`; infinite for kernels that are constant on the
        training set, which get no weight.

    Attributes
    ----------
    stated_alpha : float or "learn"
        λ as the user states it, for errors.
    """

    solves_exactly = True
    machine: Discriminant

    def __init__(self, stack: GramStack, machine: Discriminant, options: LearnerOptions) -> None:
        super().__init__(stack, machine, options)
        self.joint = machine.alpha is None
        self.stated_alpha: float | str = "learn" if machine.alpha is None else machine.alpha
        if self.joint:
            self.scale = np.append(1.0 / stack.n_samples, self.scale)
        self.solve_ridge = ridge_solver(stack, machine)

    def start(self) -> Weights:
        return self.retract(np.ones(len(self.scale)))

    def retract(self, theta: Weights, least: float = 1e-10) -> Weights:
        """Return shares on the simplex, without any for constant kernels and with λ above zero.

        A learned λ keeps the least share: nothing is lost beyond that relative size, and no matrix
        is singular.
        """
        out = self.norm.retract(np.where(self.scale > 0, theta, 0.0))
        if self.joint:
            out[0] = max(out[0], least)
            # Where nothing beats the identity, the kernels still define directions in which the
            # classes differ.
            usable = self.scale[1:] > 0
            out[1:][usable] += max(least - float(out[1:].sum()), 0.0) / np.count_nonzero(usable)
            out /= out.sum()
        return out

    def scaled(self, weights: Weights) -> Weights:
        """Return the shares of given weights; the first ones where λ, which they do not include,
        has a share, too."""
        return self.start() if self.joint else super().scaled(weights)

    def solve(self, theta: Weights, warm_start: Any = None, tol: float = 0.0) -> RidgeSolution:
        """Solve for all targets at these shares; nothing is gained by a start, or by a
        tolerance."""
        weights = theta * self.scale
        alpha = weights[0] if self.machine.alpha is None else self.machine.alpha
        try:
            solution = self.solve_ridge(weights[int(self.joint) :], float(alpha))
        except np.linalg.LinAlgError:
            remedy = "give alpha a number, say 1e-3" if self.joint else "raise alpha"
            raise ValueError(
                f"alpha={self.stated_alpha!r} leaves the regularised kernel matrix singular to"
                f" machine precision: {remedy}."
            ) from None
        self.n_solves += 1
        return solution

    def evaluate(
        self, theta: Weights, warm_start: Any = None, tol: float = 0.0, kernels: Numbers = None
    ) -> Evaluation:
        solution = self.solve(theta)
        return Evaluation(
            theta,
            solution,
            require_finite(solution.value),
            self._slopes(solution.beta, solution.forms),
        )

    def plane(self, at: Evaluation) -> tuple[float, Weights]:
        gain, ridge = self._linear(at.solution.beta, self.machine.targets)
        return 2.0 * gain - ridge, at.q

    def lower_bound(self, at: Evaluation) -> float:
        """What β, scaled as is best, guarantees whatever the weights."""
        return self._lower(at.solution.beta, at.q, self.machine.targets)

    def guarantee(self, beta: Matrix, targets: Matrix) -> float:
        """Return the lower bound of any β, its columns centred first, for these targets."""
        beta = beta - beta.mean(axis=0)
        return self._lower(
            beta, self._slopes(beta, 2.0 * self.stack.quadratic_forms(beta)), targets
        )

    def curvature(self, at: Evaluation) -> Array:
        """Return 2 Σ_j (N_iβ_j)ᵀ(λI + G̃)⁻¹(N_lβ_j)."""
        return np.asarray(
            2.0 * self.scale[:, np.newaxis] * at.solution.responses(self.joint) * self.scale
        )

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        weights = (best.theta * self.scale)[int(self.joint) :]
        return LearnedRidge(weights, best.solution, best.upper, gap, self.n_solves, history)

    def _lower(self, beta: Matrix, q: Weights, targets: Matrix) -> float:
        gain, ridge = self._linear(beta, targets)
        rest = ridge + self.norm.support(q)
        return max(gain, 0.0) ** 2 / rest if rest > 0 else 0.0

    def _linear(self, beta: Matrix, targets: Matrix) -> tuple[float, float]:
        """Return ⟨H, β⟩ and λ‖β‖², the latter zero where the identity is a kernel."""
        return float(np.sum(targets * beta)), (self.machine.alpha or 0.0) * float(np.sum(beta**2))

    def _slopes(self, beta: Matrix, forms: Weights) -> Weights:
        """Return q from β and Σ_j β_jᵀG̃_iβ_j."""
        return np.asarray(self.scale * (np.append(np.sum(beta**2), forms) if self.joint else forms))


# A linear system needs no start.
make_problem.register(
    Discriminant,
    lambda machine, stack, options, start: DiscriminantProblem(stack, machine, options),
)


def centered_traces(stack: GramStack, diagonals: Array) -> Weights:
    """Return r_i = tr ΠG_iΠ, exactly zero for kernels that are constant on the training set.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonals : ndarray of shape (P, n)
        k_i(x, x) on the training set.
    """
    traces = diagonals.sum(axis=1)
    centred = traces - 2.0 * stack.quadratic_forms(np.ones(stack.n_samples)) / stack.n_samples
    if not np.any(centred > CONSTANT_KERNEL * traces):
        raise ValueError(
            "kernels: every kernel is constant on the training set, so the classes cannot be"
            " separated."
        )
    return np.where(centred > CONSTANT_KERNEL * traces, centred, 0.0)


def trace_penalties(traces: Weights) -> Weights:
    """Return the penalties with which the scaled weights are shares of the trace."""
    return np.where(traces > 0, np.sqrt(traces), np.inf)


# The least-squares problem at any weights ---------------------------------------------------------


@dataclass(frozen=True)
class RidgeSolution:
    """β = (λI + G̃)⁻¹H for the centred combined kernel G̃ = Σ θ_iG̃_i and the targets H.

    Attributes
    ----------
    beta, values : ndarray of shape (n, k)
        β, whose columns sum to zero, and G̃β.
    value : float
        No less than Σ_j h_jᵀ(λI + G̃)⁻¹h_j, however inexact β is.
    dual : float
        No more than that.
    forms : ndarray of shape (P,)
        Σ_j β_jᵀG̃_iβ_j for every kernel.
    alpha : float
        λ.
    system : LeastSquares
        λI + G̃, factorised.
    form : FeatureForm, or None
        The centred features; None where kernels are matrices.
    products : ndarray
        G̃_iβ of every kernel, of shape (P, n, k); in features Z̃ᵀβ, of shape (features, k), from
        which these follow.
    missing : ndarray of shape (used, k), or None
        In features RZ̃ᵀβ − w, zero at the optimum.
    """

    beta: Matrix
    values: Matrix
    value: float
    dual: float
    forms: Weights
    alpha: float
    system: Any
    form: FeatureForm | None
    products: Array
    missing: Array | None = None

    @property
    def gap(self) -> float:
        """Relative duality gap at these weights."""
        return relative_gap(self.value, self.dual)

    def responses(self, identity: bool) -> Array:
        """Return Σ_j (G̃_iβ_j)ᵀ(λI + G̃)⁻¹(G̃_lβ_j) for all pairs of kernels, the identity first if
        it is one."""
        if self.form is None:
            V = self.products
            if identity:
                V = np.concatenate([self.beta[np.newaxis], V])
            return np.asarray(self.system.responses(V))
        # With V_i = G̃_iβ, Z̃ᵀV_i = Z̃ᵀZ̃_i Z̃_iᵀβ has no n in it.
        sums, places = self.products, self.form.places
        Y = np.array([self.form.normal[:, place] @ sums[place] for place in places])
        inner = np.array([[np.sum(sums[place] * y[place]) for y in Y] for place in places])
        if identity:
            Y = np.concatenate([sums[np.newaxis], Y])
            corner = np.array([[np.sum(self.beta**2)]])
            inner = np.block([[corner, self.forms[np.newaxis]], [self.forms[:, np.newaxis], inner]])
        return np.asarray(self.system.responses(inner, Y))

    def response_diagonal(self) -> Array:
        """Return the diagonal of Q = Π(λI + G̃)⁻¹Π, with which β = QH."""
        if self.form is None:
            return np.asarray(self.system.diagonal)
        return self.form.diagonal(self.system)

    def left_out(self, targets: Matrix) -> Matrix:
        """Return what is fitted to the targets of each sample by all others: they leave the
        residual β_i / Q_ii."""
        return np.asarray(targets - self.beta / self.response_diagonal()[:, np.newaxis])


#: Solves for all targets at weights θ and λ. Raises a LinAlgError if λI + G̃ is not positive
#: definite to rounding.
RidgeSolver = Callable[[Weights, float], RidgeSolution]


def ridge_solver(stack: GramStack, machine: Discriminant) -> RidgeSolver:
    """Return what solves min ‖H − φ̃w‖²/λ + ‖w‖² for every target of a machine, on the centred
    kernels of a stack.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred.
    machine : Discriminant
        The targets, every column of which sums to zero.
    """
    # Where samples are fewer than features, so are the entries of their matrix.
    if stack.widths is None or stack.n_samples <= stack.widths.sum():
        return partial(solve_in_matrices, stack, machine)
    form = FeatureForm.of_centred(cast(FeatureStack, stack), machine.targets)
    return partial(solve_in_features, form)


def dual_value(
    targets: Matrix, beta: Matrix, theta: Weights, alpha: float, forms: Weights
) -> float:
    """Return 2⟨H, β⟩ − λ‖β‖² − Σ_j β_jᵀG̃β_j."""
    return (
        2.0 * float(np.sum(targets * beta)) - alpha * float(np.sum(beta**2)) - float(theta @ forms)
    )


def solve_in_matrices(
    stack: GramStack, machine: Discriminant, theta: Weights, alpha: float
) -> RidgeSolution:
    """Return the solution by one factorisation of an n × n matrix."""
    system = machine.system(stack.combine(theta), alpha)
    beta = system.solve(machine.targets)
    products = stack.products(beta)
    # Coefficients sum to zero, so centring what comes out is enough.
    products -= products.mean(axis=1, keepdims=True)
    forms = np.einsum("inj,nj->i", products, beta)
    values = np.tensordot(theta, products, 1)
    # The problem itself, by the same products as the forms: no less than its optimum whatever β is.
    value = float(np.sum((machine.targets - values) ** 2) / alpha + theta @ forms)
    dual = dual_value(machine.targets, beta, theta, alpha, forms)
    return RidgeSolution(beta, values, value, dual, forms, alpha, system, None, products)


def solve_in_features(form: FeatureForm, theta: Weights, alpha: float) -> RidgeSolution:
    """Return the solution by one factorisation in the features Z̃ of all kernels together, G̃_i =
    Z̃_iZ̃_iᵀ.

    At weights θ the features are Z̃R with R² = diag θ, and w = (λI + RZ̃ᵀZ̃R)⁻¹RZ̃ᵀH gives β = (H −
    Z̃Rw)/λ. Rounding in Z̃ᵀZ̃ costs exactness, which steps of refinement give back.
    """
    system = form.at(theta, alpha)
    roots = system.root[:-1, np.newaxis]
    w = system.factor.solve(roots * form.right[system.used])
    best = solution_of_features(form, system, theta, w)
    for _ in range(REFINEMENTS):
        assert best.missing is not None
        if np.linalg.norm(best.missing) <= EXACT * np.sqrt(best.value):
            break
        w = w + system.factor.solve(alpha * best.missing)
        trial = solution_of_features(form, system, theta, w)
        assert trial.missing is not None
        if not np.linalg.norm(trial.missing) < 0.5 * np.linalg.norm(best.missing):
            break
        best = trial
    return best


def solution_of_features(
    form: FeatureForm, system: FeatureLeastSquares, theta: Weights, w: Matrix
) -> RidgeSolution:
    """Return what any w is worth.

    Any w is a point of the problem, worth ‖H − Z̃Rw‖²/λ + ‖w‖², and any β gives a bound. Both are
    computed from the rows, which takes two passes with k columns. Between them lies ‖RZ̃ᵀβ − w‖².
    """
    alpha = system.alpha
    values = form.stack.combine(theta).apply(w)
    values -= values.mean(axis=0)
    beta = (form.Y - values) / alpha
    beta -= beta.mean(axis=0)
    sums = form.sums(beta)
    value = alpha * float(np.sum(beta**2)) + float(np.sum(w**2))
    forms = np.array([np.sum(sums[place] ** 2) for place in form.places])
    dual = dual_value(form.Y, beta, theta, alpha, forms)
    missing = np.asarray(system.root[:-1, np.newaxis] * sums[system.used] - w)
    return RidgeSolution(beta, values, value, dual, forms, alpha, system, form, sums, missing)


# Conic programs -----------------------------------------------------------------------------------


class DiscriminantQCQP(Learner):
    """Maximise Σ_j (β_jᵀh_j − ¼ β_jᵀβ_j) − t/(4λ) subject to t ≥ Σ_j β_jᵀG̃_iβ_j / r_i for every
    kernel.

    The multipliers of the constraints are the weights. Without the term in β_jᵀβ_j, and with the
    identity as one more kernel, where λ is learned.

    A general conic solver carries all n·k coefficients of β through its linear algebra. Here they
    are eliminated: given the multipliers s, the optimal β is one Cholesky factorisation away,
    shared by all targets, and so is how the constraints' values q answer to s. What is left of the
    optimality conditions, s_i (t − q_i) = μ and Σs = 1 with μ driven to zero, has one unknown per
    kernel.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.2 and equations 34, 43 and 46. Mehrotra (1992) for the choice
    of μ.
    """

    machine_needs = ()
    stalled = (
        "rounding hides what is left to gain; use solver='newton', raise alpha, or accept a larger"
        " tol."
    )

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        path = _Path(DiscriminantProblem(stack, machine, self.options)).improve()
        path.prune(self.options.tol)
        return path.learned()


class _Path(BoundTracker):
    """Where the interior points are: multipliers s, slacks z, the bound t, in units of the first
    constraint values."""

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
        """Take one predictor–corrector step and solve the least squares where it ends; False if
        rounding hides it."""
        C = self.problem.curvature(self.at)[np.ix_(self.usable, self.usable)] / self.unit
        missing = self.t - self.at.q[self.usable] / self.unit - self.z
        mu = float(self.s @ self.z) / len(self.s)
        if not mu > 0:
            return False
        ds, dz, _ = self._direction(C, missing, -self.s * self.z)
        # A little more than a full step, so that one can be taken.
        along_s, along_z = (
            min(1.0 / 0.99, longest_step(pair)) for pair in ((self.s, ds), (self.z, dz))
        )
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
        # A multiplier whose constraint has more slack left than it has weight is on its way to
        # zero.
        active = self.s > self.z
        trial = self._evaluate(np.where(active, self.s, 0.0) if active.any() else self.s)
        self.record_bounds(trial)
        gap = relative_gap(trial.upper, self.lower_bound)
        if gap <= max(tol, self.gap):
            self.best, self.tightest, self.gap = trial, trial, gap
            self.history[-1] = Iteration(trial.upper, self.gap)

    def _evaluate(self, s: Weights) -> Evaluation:
        theta = np.zeros(len(self.problem.scale))
        theta[self.usable] = s
        return self.problem.evaluate(self.problem.retract(theta))

    def _direction(
        self, C: Weights, missing: Weights, wanted: Weights
    ) -> tuple[Weights, Weights, float]:
        """Solve z∘ds + s∘dz = wanted with dz = dt + C ds + missing and Σds = 0; NaN where the
        system overflows."""
        A = C + np.diag(self.z / self.s)
        right = np.column_stack([wanted / self.s - missing, np.ones(len(self.s))])
        if not (np.all(np.isfinite(A)) and np.all(np.isfinite(right)) and np.all(np.diag(A) > 0)):
            return np.full(len(self.s), np.nan), np.full(len(self.s), np.nan), np.nan
        # Kernels that are alike leave A singular to rounding: of all solutions the least is as good
        # as any.
        unit = 1.0 / np.sqrt(np.diag(A))[:, np.newaxis]
        both = unit * np.linalg.lstsq(A * unit * unit.T, unit * right, rcond=None)[0]
        dt = float(both[:, 0].sum() / both[:, 1].sum())
        ds = both[:, 0] - dt * both[:, 1]
        return ds, dt + C @ ds + missing, dt


class MatrixLearner(Learner):
    """Learns by matrix inequalities in the kernel matrices."""

    machine_needs = ()
    reads_matrices = True
    advice = (
        "the semi-definite program is badly conditioned; use solver='newton', raise alpha, or"
        " accept a larger tol."
    )

    def _require_small(self, solver: str, orders: list[int], count: int) -> None:
        entries, most = count * sum(order**2 for order in orders), self.options.max_conic_entries
        if entries > most:
            raise MemoryError(
                f"solver={solver!r} would keep {entries:.1e} entries for {len(orders)} inequalities"
                f" of order {orders[0]} and supports up to {most:.0e}; use solver='newton'."
            )


class DiscriminantSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, h_j], [h_jᵀ, t_j]] ⪰ 0, one matrix
    inequality per target.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.1 and equations 29 and 41.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        k = machine.targets.shape[1]
        self._require_small("sdp", [stack.n_samples] * k, stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        columns = [[j] for j in range(k)]
        return _learn_once(problem, lambda first: _solve_inequalities(problem, first, columns).s)


def _learn_once(problem: DiscriminantProblem, shares: Callable[[Evaluation], Weights]) -> Learned:
    """Return what is learned by shares that follow from an evaluation where every kernel has the
    same."""
    found = BoundTracker(problem, problem.evaluate(problem.start()))
    with gap_progress(problem.machine, problem.options) as advance:
        advance(found.gap)
        found.consider(problem.evaluate(problem.retract(shares(found.best))))
        advance(found.record_iteration())
    return found.learned()


class DiscriminantApproximateSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, H], [Hᵀ, diag t]] ⪰ 0: one matrix
    inequality for all classes.

    Its optimum is no less than that of `DiscriminantSDP`, since diag t must exceed HᵀM⁻¹H as a
    matrix and not only on the diagonal. The gap is certified: at fixed weights the value is the
    largest tr(X HᵀM⁻¹H) over X ⪰ 0 with unit diagonal, so every such X turns into targets HX^½
    whose exact problem lies below.

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
            found = _solve_inequalities(problem, first, [list(range(H.shape[1]))])
            at = problem.evaluate(problem.retract(found.s))
            beta = at.solution.beta
            # Σ t once t is raised so far that diag t exceeds HᵀM⁻¹H as a matrix.
            C = H.T @ beta
            excess = float(np.linalg.eigvalsh(0.5 * (C + C.T) - np.diag(found.t))[-1])
            upper = float(found.t.sum()) + H.shape[1] * max(excess, 0.0)
            root = _unit_rows(found.multipliers[0][-H.shape[1] :, -H.shape[1] :])
            gap = relative_gap(upper, problem.guarantee(beta @ root, H @ root))
            advance(gap)
        return replace(problem.learned(at, gap, [Iteration(upper, gap)]), objective=upper)


class DiscriminantKim(MatrixLearner):
    """Maximise the within-class criterion F₁* over Σ θ_i = 1 as a semi-definite program; two
    classes.

    min t − aᵀGa subject to [[λI + JGJ, JGa], [aᵀGJ, t]] ⪰ 0 with G = Σ θ_iG_i: then F₁* = (aᵀGa −
    t)/λ. The problem it is given must have unit traces and the regulariser mλ, for which F₃* has
    the same minimiser; that certifies the weights.

    References
    ----------
    Kim, Magnani and Boyd (2006), "Optimal kernel selection in kernel Fisher discriminant analysis".
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        if machine.alpha is None or not machine.has_classes or len(machine.counts) != 2:
            raise ValueError(
                "solver='kim' supports two classes and a given alpha; use solver='sdp'."
            )
        self._require_small("kim", [stack.n_samples + 1], stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        problem.stated_alpha = machine.alpha / stack.n_samples
        return _learn_once(problem, lambda first: self._solve(problem))

    @staticmethod
    def _solve(problem: DiscriminantProblem) -> Weights:
        n, labels = problem.stack.n_samples, problem.machine.labels
        a, J = binary_targets(labels), within_class_matrix(labels)
        Gs = [
            np.asarray(problem.stack.row_block(m, slice(0, n)), dtype=np.float64)
            for m in range(len(problem.scale))
        ]
        gains = np.array([a @ G @ a for G in Gs])
        # Units of the inequality; rounding may make either negative where it is zero.
        size = abs(float(np.mean([np.sum(J * (J @ G)) for G in Gs]))) / n or 1.0
        gain = abs(float(gains.mean())) or 1.0
        bordered = np.zeros((len(Gs), n + 1, n + 1))
        for B, G in zip(bordered, Gs, strict=True):
            B[:n, :n] = J @ G @ J / size
            B[:n, n] = B[n, :n] = J @ (G @ a) / np.sqrt(size * gain)
        constant = np.diag(np.append(np.full(n, (problem.machine.alpha or 0.0) / n / size), 0.0))
        inequality = MatrixInequality(constant, bordered, [(0, n)])
        return _minimise([inequality], np.append(-gains / gain, 1.0)).s


def _solve_inequalities(
    problem: DiscriminantProblem, at: Evaluation, groups: list[list[int]]
) -> BarrierSolution:
    """Minimise Σ t subject to [[λI + Σ s_iN_i, H_g], [H_gᵀ, diag t_g]] ⪰ 0 for groups g of targets.

    Constants are outside every centred matrix, so the inequality is written in a basis of their
    complement, on the samples' differences only. An evaluation tells about how large t will be.
    """
    n, targets = problem.stack.n_samples, problem.machine.targets
    Q, m = helmert(n), n - 1
    # N_i = G̃_i / r_i, zero for constant kernels; the identity over n first where λ is learned.
    each = [np.eye(n) / n] if problem.joint else []
    for k, scale in enumerate(problem.scale[len(each) :]):
        each.append(
            center(np.array(problem.stack.row_block(k, slice(0, n)), dtype=np.float64)) * scale
        )
    matrices, H = np.array([n * (Q @ N @ Q.T) for N in each]), Q @ targets
    # In these units every t is about one.
    unit = float(np.sqrt(np.sum(targets * at.solution.beta) / n / H.shape[1]))
    inequalities = []
    for group in groups:
        order = m + len(group)
        bordered, constant = np.zeros((len(matrices), order, order)), np.zeros((order, order))
        bordered[:, :m, :m] = matrices
        constant[:m, :m] = n * (problem.machine.alpha or 0.0) * np.eye(m)
        constant[:m, m:] = H[:, group] / unit
        constant[m:, :m] = constant[:m, m:].T
        inequalities.append(
            MatrixInequality(constant, bordered, [(j, m + i) for i, j in enumerate(group)])
        )
    found = _minimise(inequalities, np.append(np.zeros(len(matrices)), np.ones(H.shape[1])))
    # t was scaled with the matrices, which are n times what the problem has.
    return replace(found, t=found.t * unit**2 * n)


def _minimise(inequalities: list[MatrixInequality], linear: Weights) -> BarrierSolution:
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
    """Return the least t with [[M, B], [Bᵀ, tI]] ⪰ 0; zero, which is outside, where M is singular
    to rounding."""
    with suppress(np.linalg.LinAlgError):
        need = border.T @ np.linalg.solve(M, border)
        if np.all(np.isfinite(need)):
            return max(float(np.linalg.eigvalsh(need)[-1]), 0.0)
    return 0.0


def _unit_rows(X: Matrix) -> Matrix:
    """Return R whose rows have unit length, with RRᵀ about X scaled to a unit diagonal; any such R
    gives a bound."""
    if not np.all(np.isfinite(X)):
        return np.eye(len(X))
    eigenvalues, V = np.linalg.eigh(X)
    R = V * np.sqrt(np.maximum(eigenvalues, 0.0))
    size = np.sqrt(np.sum(R**2, axis=1, keepdims=True))
    return np.where(size > 0, R / np.where(size > 0, size, 1.0), np.eye(len(X)))


#: How the weights of discriminant analysis are learned, by the name that `solver` gives it.
DISCRIMINANT_SOLVERS: dict[str, type[Learner]] = {
    "newton": Newton,
    "silp": SILP,
    "qcqp": DiscriminantQCQP,
    "sdp": DiscriminantSDP,
    "sdp_approximate": DiscriminantApproximateSDP,
    "kim": DiscriminantKim,
}
