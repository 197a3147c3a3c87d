"""Discriminant analysis as a problem in the weights: least squares on centred kernels, in matrices
or in features.

The module also has the learners that solve the papers' other programs: quadratic constraints,
matrix inequalities, and that of Kim et al.

Words: the *share* of a kernel is its weight times its centred trace; shares sum to one. The *forms*
are Σ_j β_jᵀG̃_iβ_j, one for each kernel i.
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

#: Fraction of a kernel's trace. A centred trace below it is rounding: the kernel is constant.
CONSTANT_KERNEL = 1e-12
#: Fraction of all shares. A learned λ, and the kernels together, keep at least this much: the value
#: changes by no more than that relative size, and no matrix is singular.
LEAST_SHARE = 1e-10
#: Relative to the size of the solution. A solution in features is refined to this residual; smaller
#: ones are rounding.
EXACT = 1e-10
#: Most steps of refinement. Each at least halves the residual, or is the last one.
REFINEMENTS = 5
#: Fraction of the step to the nearest bound that an interior-point step takes; chosen by hand.
FRACTION_TO_BOUNDARY = 0.99
#: Relative to equal shares of one. Smaller shares of a semi-definite program are zero: they are
#: what a barrier leaves of a zero (chosen by hand).
LEAST_BARRIER_SHARE = 1e-7
#: The start of a semi-definite program is inside its constraints by a factor, and by a number in
#: units in which the bounds are about one; both chosen by hand.
START_FACTOR = 2.0
START_MARGIN = 1e-3


class DiscriminantProblem(WeightProblem):
    """min over θ ≥ 0, Σ θ_i r_i = 1, of Σ_j h_jᵀ(λI + Σ θ_iG̃_i)⁻¹h_j, in the shares s = θ ∘ r.

    The shares are scaled weights with the penalties d_i² = r_i, in the set of `SumNorm`. With
    ``machine.alpha=None`` the identity is one more kernel, the first, of trace m, and λ its weight.
    The derivative in s_i is −q_i with q_i = Σ_j β_jᵀN_iβ_j and N_i = G̃_i / r_i, a matrix of trace
    one.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred: coefficients sum to zero, so that it suffices to centre products.
    machine : Discriminant
        The targets and λ.
    options : LearnerOptions
        Penalties √r_i, see `trace_penalties`; infinite for kernels that are constant on the
        training set, which get no weight.

    Attributes
    ----------
    learns_alpha : bool
        Whether λ is learned, as the first share.
    stated_alpha : float or "learn"
        λ as the user states it, for errors.
    """

    solves_exactly = True
    machine: Discriminant

    def __init__(self, stack: GramStack, machine: Discriminant, options: LearnerOptions) -> None:
        super().__init__(stack, machine, options)
        self.learns_alpha = machine.alpha is None
        self.stated_alpha: float | str = "learn" if machine.alpha is None else machine.alpha
        if self.learns_alpha:
            self.scale = np.append(1.0 / stack.n_samples, self.scale)
        self.solve_ridge = ridge_solver(stack, machine)

    def start(self) -> Weights:
        return self.retract(np.ones(len(self.scale)))

    def retract(self, theta: Weights, least: float = LEAST_SHARE) -> Weights:
        """Return shares on the simplex near `theta`, zero for constant kernels.

        If λ is learned, its share is at least `least`.
        """
        shares = self.norm.retract(np.where(self.scale > 0, theta, 0.0))
        if self.learns_alpha:
            shares[0] = max(shares[0], least)
            # Where the identity is the best kernel, the others still define the directions in which
            # the classes differ, so that they need shares.
            is_usable = self.scale[1:] > 0
            missing = max(least - float(shares[1:].sum()), 0.0)
            shares[1:][is_usable] += missing / np.count_nonzero(is_usable)
            shares /= shares.sum()
        return shares

    def scaled(self, weights: Weights) -> Weights:
        """Return the shares of given weights.

        If λ is learned, weights do not tell its share: the shares are those of `start`.
        """
        if self.learns_alpha:
            return self.start()
        return super().scaled(weights)

    def solve(self, theta: Weights, warm_start: Any = None, tol: float = 0.0) -> RidgeSolution:
        """Return the solution for all targets at these shares.

        It is exact: the start and the tolerance are not read.
        """
        weights = theta * self.scale
        alpha = self.machine.alpha
        if alpha is None:
            alpha = weights[0]
            weights = weights[1:]
        try:
            solution = self.solve_ridge(weights, float(alpha))
        except np.linalg.LinAlgError:
            remedy = "give alpha a number, say 1e-3" if self.learns_alpha else "raise alpha"
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
        q = self._scaled_forms(solution.beta, solution.forms)
        return Evaluation(theta, solution, require_finite(solution.value), q)

    def plane(self, at: Evaluation) -> tuple[float, Weights]:
        linear, ridge = self._linear(at.solution.beta, self.machine.targets)
        return 2.0 * linear - ridge, at.q

    def lower_bound(self, at: Evaluation) -> float:
        """Return the lower bound of β times its best factor, whatever the weights."""
        return self._lower(at.solution.beta, at.q, self.machine.targets)

    def guarantee(self, beta: Matrix, targets: Matrix) -> float:
        """Return the lower bound of any β for these targets, after its columns were centred."""
        beta = beta - beta.mean(axis=0)
        q = self._scaled_forms(beta, 2.0 * self.stack.quadratic_forms(beta))
        return self._lower(beta, q, targets)

    def curvature(self, at: Evaluation) -> Array:
        """Return 2 Σ_j (N_iβ_j)ᵀ(λI + G̃)⁻¹(N_lβ_j)."""
        responses = at.solution.responses(self.learns_alpha)
        return np.asarray(2.0 * self.scale[:, np.newaxis] * responses * self.scale)

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        weights = (best.theta * self.scale)[int(self.learns_alpha) :]
        return LearnedRidge(weights, best.solution, best.upper, gap, self.n_solves, history)

    def _lower(self, beta: Matrix, q: Weights, targets: Matrix) -> float:
        """Return max_c 2c⟨H, β⟩ − c²(λ‖β‖² + max_s ⟨s, q⟩), a lower bound at any shares s."""
        linear, ridge = self._linear(beta, targets)
        quadratic = ridge + self.norm.support(q)
        if quadratic > 0:
            return max(linear, 0.0) ** 2 / quadratic
        return 0.0

    def _linear(self, beta: Matrix, targets: Matrix) -> tuple[float, float]:
        """Return ⟨H, β⟩ and λ‖β‖², the latter zero if λ is learned."""
        alpha = self.machine.alpha or 0.0
        return float(np.sum(targets * beta)), alpha * float(np.sum(beta**2))

    def _scaled_forms(self, beta: Matrix, forms: Weights) -> Weights:
        """Return q, which is Σ_j β_jᵀN_iβ_j, from β and the forms."""
        if self.learns_alpha:
            forms = np.append(np.sum(beta**2), forms)
        return np.asarray(self.scale * forms)


# A linear system needs no start.
make_problem.register(
    Discriminant,
    lambda machine, stack, options, start: DiscriminantProblem(stack, machine, options),
)


def centered_traces(stack: GramStack, diagonals: Array) -> Weights:
    """Return r_i = tr ΠG_iΠ with Π = I − 11ᵀ/n, of shape (P,).

    It is exactly zero for kernels that are constant on the training set. A `ValueError` is raised
    if all of them are.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    diagonals : ndarray of shape (P, n)
        k_i(x, x) on the training set.
    """
    traces = diagonals.sum(axis=1)
    # tr ΠG_iΠ = tr G_i − 1ᵀG_i1 / n, and `quadratic_forms` returns ½ 1ᵀG_i1.
    centred = traces - 2.0 * stack.quadratic_forms(np.ones(stack.n_samples)) / stack.n_samples
    varies = centred > CONSTANT_KERNEL * traces
    if not np.any(varies):
        raise ValueError(
            "kernels: every kernel is constant on the training set, so the classes cannot be"
            " separated."
        )
    return np.where(varies, centred, 0.0)


def trace_penalties(traces: Weights) -> Weights:
    """Return the penalties √r_i, with which scaled weights are shares; infinite if r_i is zero."""
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
        An upper bound on Σ_j h_jᵀ(λI + G̃)⁻¹h_j, which holds however inexact β is.
    dual : float
        A lower bound on it.
    forms : ndarray of shape (P,)
        Σ_j β_jᵀG̃_iβ_j for every kernel.
    alpha : float
        λ.
    system : LeastSquares
        λI + G̃, factorised.
    form : FeatureForm, or None
        The centred features; None where kernels are matrices.
    products : ndarray
        G̃_iβ of every kernel, of shape (P, n, k); in features Z̃ᵀβ, of shape (features, k).
    missing : ndarray of shape (used, k), or None
        In features RZ̃ᵀβ − w, which is zero at the optimum.
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
        """Return Σ_j (G̃_iβ_j)ᵀ(λI + G̃)⁻¹(G̃_lβ_j) for all pairs of kernels i and l.

        With `identity`, the identity is the first kernel.
        """
        if self.form is None:
            V = self.products
            if identity:
                V = np.concatenate([self.beta[np.newaxis], V])
            return np.asarray(self.system.responses(V))
        # In features the system needs Z̃ᵀV_i and V_iᵀV_l of V_i = G̃_iβ. The first is Z̃ᵀZ̃_i Z̃_iᵀβ,
        # where no dimension is n.
        adjoint = self.products
        places = self.form.places
        Y = np.array([self.form.normal[:, place] @ adjoint[place] for place in places])
        inner = np.array([[np.sum(adjoint[place] * Y_l[place]) for Y_l in Y] for place in places])
        if identity:
            Y = np.concatenate([adjoint[np.newaxis], Y])
            corner = np.array([[np.sum(self.beta**2)]])
            inner = np.block([[corner, self.forms[np.newaxis]], [self.forms[:, np.newaxis], inner]])
        return np.asarray(self.system.responses(inner, Y))

    def response_diagonal(self) -> Array:
        """Return the diagonal of Q = Π(λI + G̃)⁻¹Π, with which β = QH."""
        if self.form is None:
            return np.asarray(self.system.diagonal)
        return self.form.diagonal(self.system)

    def left_out(self, targets: Matrix) -> Matrix:
        """Return the values at each sample of the fit to all others, of shape (n, k).

        That fit leaves the residual β_i / Q_ii at sample i.
        """
        return np.asarray(targets - self.beta / self.response_diagonal()[:, np.newaxis])


#: Solves for all targets at weights θ and λ. Raises a LinAlgError if λI + G̃ is not positive
#: definite to rounding.
RidgeSolver = Callable[[Weights, float], RidgeSolution]


def ridge_solver(stack: GramStack, machine: Discriminant) -> RidgeSolver:
    """Return the function that solves min ‖H − φ̃w‖²/λ + ‖w‖² for every target of a machine.

    φ̃ are the centred features of the combined kernel of a stack.

    Parameters
    ----------
    stack : GramStack
        The kernels, not centred.
    machine : Discriminant
        The targets, every column of which sums to zero.
    """
    # With fewer samples than features, a matrix of the samples is smaller than one of the features.
    if stack.widths is None or stack.n_samples <= stack.widths.sum():
        return partial(solve_in_matrices, stack, machine)
    form = FeatureForm.of_centred(cast(FeatureStack, stack), machine.targets)
    return partial(solve_in_features, form)


def dual_value(
    targets: Matrix, beta: Matrix, theta: Weights, alpha: float, forms: Weights
) -> float:
    """Return 2⟨H, β⟩ − λ‖β‖² − Σ_j β_jᵀG̃β_j."""
    linear = 2.0 * float(np.sum(targets * beta))
    ridge = alpha * float(np.sum(beta**2))
    return linear - ridge - float(theta @ forms)


def solve_in_matrices(
    stack: GramStack, machine: Discriminant, theta: Weights, alpha: float
) -> RidgeSolution:
    """Return the solution by one factorisation of an n × n matrix."""
    system = machine.system(stack.combine(theta), alpha)
    beta = system.solve(machine.targets)
    products = stack.products(beta)
    # Coefficients sum to zero, so that it suffices to centre the products.
    products -= products.mean(axis=1, keepdims=True)
    forms = np.einsum("inj,nj->i", products, beta)
    values = np.tensordot(theta, products, 1)
    # The primal value of w = Σ_i β_i φ̃(x_i), by the products of which the forms are made. For any β
    # it is no less than the optimum.
    value = float(np.sum((machine.targets - values) ** 2) / alpha + theta @ forms)
    dual = dual_value(machine.targets, beta, theta, alpha, forms)
    return RidgeSolution(beta, values, value, dual, forms, alpha, system, None, products)


def solve_in_features(form: FeatureForm, theta: Weights, alpha: float) -> RidgeSolution:
    """Return the solution by one factorisation in the features Z̃ of all kernels together.

    G̃_i = Z̃_iZ̃_iᵀ. At weights θ the features are Z̃R with R² = diag θ, and w = (λI +
    RZ̃ᵀZ̃R)⁻¹RZ̃ᵀH gives β = (H − Z̃Rw)/λ. Z̃ᵀZ̃ has rounding errors, which steps of iterative
    refinement correct.
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
    """Return any w as a solution, with its value and its lower bound.

    The value of w is ‖H − Z̃Rw‖²/λ + ‖w‖², and β = (H − Z̃Rw)/λ gives a lower bound. Both are
    computed from the rows, which takes two passes with k columns. Their difference is ‖RZ̃ᵀβ − w‖².
    """
    alpha = system.alpha
    values = form.stack.combine(theta).apply(w)
    values -= values.mean(axis=0)
    beta = (form.Y - values) / alpha
    beta -= beta.mean(axis=0)
    adjoint = form.sums(beta)
    value = alpha * float(np.sum(beta**2)) + float(np.sum(w**2))
    forms = np.array([np.sum(adjoint[place] ** 2) for place in form.places])
    dual = dual_value(form.Y, beta, theta, alpha, forms)
    missing = np.asarray(system.root[:-1, np.newaxis] * adjoint[system.used] - w)
    return RidgeSolution(beta, values, value, dual, forms, alpha, system, form, adjoint, missing)


# Conic programs -----------------------------------------------------------------------------------


class DiscriminantQCQP(Learner):
    """Maximise Σ_j (β_jᵀh_j − ¼ β_jᵀβ_j) − t/(4λ) over β and t ≥ Σ_j β_jᵀG̃_iβ_j / r_i for all i.

    The multipliers of the constraints are the weights. If λ is learned, the term in β_jᵀβ_j is left
    out, and the identity is one more kernel.

    A general conic solver would carry all n·k coefficients of β through its linear algebra. Here
    they are eliminated: for given multipliers s, one Cholesky factorisation, shared by all targets,
    gives the optimal β, and the derivative of the constraints' values q in s. What is left of the
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
    """The interior-point search of `DiscriminantQCQP`.

    Attributes
    ----------
    current : Evaluation
        The evaluation at the current shares.
    usable : ndarray
        The kernels that are not constant; others have no share.
    unit : float
        The largest constraint value at the start, in units of which t and z are.
    s, z : ndarray, one entry per usable kernel
        The multipliers, which are the shares, and the slacks t − q.
    t : float
        The bound of the constraint values.
    """

    problem: DiscriminantProblem

    def __init__(self, problem: DiscriminantProblem) -> None:
        self.current = problem.evaluate(problem.start())
        super().__init__(problem, self.current)
        self.usable = np.flatnonzero(problem.scale > 0)
        self.unit = max(float(np.abs(self.current.q).max()), np.finfo(float).tiny)
        self.s: Weights = self.current.theta[self.usable]
        self.t = 1.0 + 1.0 / len(self.s)
        self.z: Weights = self.t - self.current.q[self.usable] / self.unit

    @np.errstate(over="ignore", invalid="ignore")
    def step(self) -> bool:
        """Take one predictor–corrector step, and evaluate its end.

        Returns False, without a step, where rounding or overflow prevents it.
        """
        # 1. The Newton system: the derivative C of q in s, and what the slacks miss.
        C = self.problem.curvature(self.current)[np.ix_(self.usable, self.usable)] / self.unit
        missing = self.t - self.current.q[self.usable] / self.unit - self.z
        mu = float(self.s @ self.z) / len(self.s)
        if not mu > 0:
            return False

        # 2. The predictor aims at products s∘z of zero. Its step may be slightly longer than a full
        #    one, since a step is cut before the boundary.
        ds, dz, _ = self._direction(C, missing, -self.s * self.z)
        predictor_s = min(1.0 / FRACTION_TO_BOUNDARY, longest_step((self.s, ds)))
        predictor_z = min(1.0 / FRACTION_TO_BOUNDARY, longest_step((self.z, dz)))
        products_ahead = float((self.s + predictor_s * ds) @ (self.z + predictor_z * dz))
        mu_ahead = max(products_ahead / len(self.s), 0.0)

        # 3. The corrector aims at equal products.
        product = min(centring(mu, mu_ahead), mu)
        ds, dz, dt = self._direction(C, missing, product - self.s * self.z - ds * dz)
        size = min(1.0, FRACTION_TO_BOUNDARY * longest_step((self.s, ds), (self.z, dz)))
        s = self.s + size * ds
        z = self.z + size * dz
        is_inside = np.all(s > 0) and np.all(z > 0)
        if not is_inside or not np.isfinite(dt):
            return False

        # 4. The step.
        self.s = s
        self.z = z
        self.t = self.t + size * dt
        self.current = self._evaluate(self.s)
        self.consider(self.current)
        return True

    def prune(self, tol: float) -> None:
        """Set shares to zero that interior points only approach, if the gap stays within `tol`.

        These are the shares that are smaller than the slack of their constraint.
        """
        shares = self.s
        is_active = self.s > self.z
        if is_active.any():
            shares = np.where(is_active, self.s, 0.0)
        trial = self._evaluate(shares)
        self.record_bounds(trial)
        gap = relative_gap(trial.upper, self.lower_bound)
        if gap <= max(tol, self.gap):
            self.best = trial
            self.tightest = trial
            self.gap = gap
            self.history[-1] = Iteration(trial.upper, self.gap)

    def _evaluate(self, s: Weights) -> Evaluation:
        """Return the evaluation at shares s of the usable kernels, made to sum to one."""
        theta = np.zeros(len(self.problem.scale))
        theta[self.usable] = s
        return self.problem.evaluate(self.problem.retract(theta))

    def _direction(
        self, C: Array, missing: Weights, complementarity: Weights
    ) -> tuple[Weights, Weights, float]:
        """Return ds, dz and dt of the Newton system; NaN where it overflows.

        The system is z∘ds + s∘dz = complementarity with dz = dt + C ds + missing and Σds = 0.
        """
        A = C + np.diag(self.z / self.s)
        ones = np.ones(len(self.s))
        right = np.column_stack([complementarity / self.s - missing, ones])
        is_finite = np.all(np.isfinite(A)) and np.all(np.isfinite(right))
        if not is_finite or not np.all(np.diag(A) > 0):
            return ones * np.nan, ones * np.nan, np.nan
        # Kernels that are nearly equal make A singular to rounding; the least-norm solution is as
        # good as any other.
        unit = 1.0 / np.sqrt(np.diag(A))[:, np.newaxis]
        solutions = unit * np.linalg.lstsq(A * unit * unit.T, unit * right, rcond=None)[0]
        of_right = solutions[:, 0]
        of_ones = solutions[:, 1]
        dt = float(of_right.sum() / of_ones.sum())
        ds = of_right - dt * of_ones
        return ds, dt + C @ ds + missing, dt


class MatrixLearner(Learner):
    """A learner that solves a semi-definite program with the kernel matrices."""

    machine_needs = ()
    reads_matrices = True
    advice = (
        "the semi-definite program is badly conditioned; use solver='newton', raise alpha, or"
        " accept a larger tol."
    )

    def _require_small(self, solver: str, orders: list[int], count: int) -> None:
        """Raise a MemoryError if the matrices of the inequalities have too many entries.

        `orders` are the orders of the inequalities, each of which has `count` matrices.
        """
        entries = count * sum(order**2 for order in orders)
        limit = self.options.max_conic_entries
        if entries > limit:
            raise MemoryError(
                f"solver={solver!r} would keep {entries:.1e} entries for {len(orders)} inequalities"
                f" of order {orders[0]} and supports up to {limit:.0e}; use solver='newton'."
            )


class DiscriminantSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, h_j], [h_jᵀ, t_j]] ⪰ 0 for every target j.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 2.1 and equations 29 and 41.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        k = machine.targets.shape[1]
        self._require_small("sdp", [stack.n_samples] * k, stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        groups = [[j] for j in range(k)]
        return _learn_once(problem, lambda first: _solve_inequalities(problem, first, groups).s)


def _learn_once(problem: DiscriminantProblem, shares: Callable[[Evaluation], Weights]) -> Learned:
    """Return what is learned in one iteration, from equal shares to those of a program.

    `shares` returns the shares that solve the program, from the evaluation at equal shares.
    """
    search = BoundTracker(problem, problem.evaluate(problem.start()))
    with gap_progress(problem.machine, problem.options) as advance:
        advance(search.gap)
        theta = problem.retract(shares(search.best))
        search.consider(problem.evaluate(theta))
        advance(search.record_iteration())
    return search.learned()


class DiscriminantApproximateSDP(MatrixLearner):
    """Minimise Σ_j t_j subject to [[I + (1/λ) Σ θ_iG̃_i, H], [Hᵀ, diag t]] ⪰ 0.

    This is one matrix inequality for all classes. Its optimum is no less than that of
    `DiscriminantSDP`, since diag t must exceed HᵀM⁻¹H as a matrix and not only on the diagonal. The
    gap is certified: at fixed weights the value is the largest tr(X HᵀM⁻¹H) over X ⪰ 0 with unit
    diagonal, so that for every such X the exact problem with the targets HX^½ gives a lower bound.

    References
    ----------
    Ye, Ji and Chen (2008), theorem 3.1 and equations 32 and 45.
    """

    def _learn(self, stack: GramStack, machine: Discriminant, start: Start) -> Learned:
        H = machine.targets
        self._require_small("sdp_approximate", [stack.n_samples - 1 + H.shape[1]], stack.n_kernels)
        problem = DiscriminantProblem(stack, machine, self.options)
        first = problem.evaluate(problem.start())
        k = H.shape[1]
        with gap_progress(machine, self.options) as advance:
            # 1. The weights.
            barrier = _solve_inequalities(problem, first, [list(range(k))])
            evaluation = problem.evaluate(problem.retract(barrier.s))
            beta = evaluation.solution.beta

            # 2. The upper bound: Σ t after t was raised until diag t exceeds HᵀM⁻¹H as a matrix.
            C = H.T @ beta
            excess = float(np.linalg.eigvalsh(0.5 * (C + C.T) - np.diag(barrier.t))[-1])
            upper = float(barrier.t.sum()) + k * max(excess, 0.0)

            # 3. The lower bound, by an X near the corner of the dual matrix.
            root = _unit_rows(barrier.multipliers[0][-k:, -k:])
            gap = relative_gap(upper, problem.guarantee(beta @ root, H @ root))
            advance(gap)
        learned = problem.learned(evaluation, gap, [Iteration(upper, gap)])
        return replace(learned, objective=upper)


class DiscriminantKim(MatrixLearner):
    """Maximise the within-class criterion F₁* over Σ θ_i = 1 as a semi-definite program; two
    classes.

    min t − aᵀGa subject to [[λI + JGJ, JGa], [aᵀGJ, t]] ⪰ 0 with G = Σ θ_iG_i: then F₁* = (aᵀGa −
    t)/λ. The weights are certified by the least-squares problem F₃*, which has the same minimiser
    if all kernels have unit traces and its regulariser is mλ; the learner is given that problem.

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
        """Return the shares that solve the semi-definite program."""
        n = problem.stack.n_samples
        labels = problem.machine.labels
        a = binary_targets(labels)
        J = within_class_matrix(labels)
        Gs = [_whole_matrix(problem.stack, m) for m in range(len(problem.scale))]
        gains = np.array([a @ G @ a for G in Gs])
        # The units of JGJ and of aᵀGa; rounding may make either negative where it is zero.
        size = abs(float(np.mean([np.sum(J * (J @ G)) for G in Gs]))) / n or 1.0
        gain = abs(float(gains.mean())) or 1.0
        bordered = np.zeros((len(Gs), n + 1, n + 1))
        for B, G in zip(bordered, Gs, strict=True):
            border = J @ (G @ a) / np.sqrt(size * gain)
            B[:n, :n] = J @ G @ J / size
            B[:n, n] = border
            B[n, :n] = border
        alpha = problem.machine.alpha or 0.0
        constant = np.diag(np.append(np.full(n, alpha / n / size), 0.0))
        inequality = MatrixInequality(constant, bordered, [(0, n)])
        return _minimise([inequality], np.append(-gains / gain, 1.0)).s


def _whole_matrix(stack: GramStack, m: int) -> Matrix:
    """Return the matrix of kernel m in double precision, of shape (n, n)."""
    return np.asarray(stack.row_block(m, slice(0, stack.n_samples)), dtype=np.float64)


def _solve_inequalities(
    problem: DiscriminantProblem, evaluation: Evaluation, groups: list[list[int]]
) -> BarrierSolution:
    """Minimise Σ t subject to [[λI + Σ s_iN_i, H_g], [H_gᵀ, diag t_g]] ⪰ 0 for groups g of targets.

    Constant vectors are in the null space of every centred matrix, so the inequalities are written
    in a basis of the complement. `evaluation` gives the size of t.
    """
    n = problem.stack.n_samples
    targets = problem.machine.targets
    Q = helmert(n)
    m = n - 1

    # 1. The matrices N_i = G̃_i / r_i, zero for constant kernels. If λ is learned, the identity over
    #    n is the first.
    Ns = []
    if problem.learns_alpha:
        Ns.append(np.eye(n) / n)
    for i, scale in enumerate(problem.scale[len(Ns) :]):
        Ns.append(center(_whole_matrix(problem.stack, i).copy()) * scale)
    matrices = np.array([n * (Q @ N @ Q.T) for N in Ns])
    H = Q @ targets

    # 2. One inequality per group, in units in which every t is about one.
    unit = float(np.sqrt(np.sum(targets * evaluation.solution.beta) / n / H.shape[1]))
    alpha = problem.machine.alpha or 0.0
    inequalities = []
    for group in groups:
        order = m + len(group)
        bordered = np.zeros((len(matrices), order, order))
        bordered[:, :m, :m] = matrices
        constant = np.zeros((order, order))
        constant[:m, :m] = n * alpha * np.eye(m)
        constant[:m, m:] = H[:, group] / unit
        constant[m:, :m] = constant[:m, m:].T
        bounds = [(j, m + place) for place, j in enumerate(group)]
        inequalities.append(MatrixInequality(constant, bordered, bounds))

    # 3. The program. The matrices are n times those of the problem, and so is t.
    linear = np.append(np.zeros(len(matrices)), np.ones(H.shape[1]))
    barrier = _minimise(inequalities, linear)
    return replace(barrier, t=barrier.t * unit**2 * n)


def _minimise(inequalities: list[MatrixInequality], linear: Weights) -> BarrierSolution:
    """Return the solution of a semi-definite program, from equal shares.

    The bounds t start well above the least ones for these shares. Shares of the solution that are
    nearly zero are set to zero.
    """
    P = len(inequalities[0].matrices)
    s = np.full(P, 1.0 / P)
    t = np.zeros(len(linear) - P)
    for inequality in inequalities:
        corner = len(inequality.bounds)
        F = inequality.value(s, t)
        least = _least_bound(F[:-corner, :-corner], F[:-corner, -corner:])
        for j, _ in inequality.bounds:
            t[j] = START_FACTOR * least + START_MARGIN
    barrier = solve_matrix_inequalities(linear, inequalities, s, t)
    return replace(barrier, s=np.where(barrier.s > LEAST_BARRIER_SHARE, barrier.s, 0.0))


def _least_bound(M: Matrix, border: Matrix) -> float:
    """Return the least t with [[M, B], [Bᵀ, tI]] ⪰ 0, where B is the border.

    It is zero if M is singular to rounding; then it is no feasible bound.
    """
    with suppress(np.linalg.LinAlgError):
        schur = border.T @ np.linalg.solve(M, border)
        if np.all(np.isfinite(schur)):
            return max(float(np.linalg.eigvalsh(schur)[-1]), 0.0)
    return 0.0


def _unit_rows(X: Matrix) -> Matrix:
    """Return R with rows of length one such that RRᵀ is about X, scaled to a unit diagonal.

    R is the identity if X is not finite. Any such R gives a lower bound.
    """
    if not np.all(np.isfinite(X)):
        return np.eye(len(X))
    eigenvalues, V = np.linalg.eigh(X)
    R = V * np.sqrt(np.maximum(eigenvalues, 0.0))
    lengths = np.sqrt(np.sum(R**2, axis=1, keepdims=True))
    is_positive = lengths > 0
    return np.where(is_positive, R / np.where(is_positive, lengths, 1.0), np.eye(len(X)))


#: The learners of discriminant analysis, by the name that `solver` gives them.
DISCRIMINANT_SOLVERS: dict[str, type[Learner]] = {
    "newton": Newton,
    "silp": SILP,
    "qcqp": DiscriminantQCQP,
    "sdp": DiscriminantSDP,
    "sdp_approximate": DiscriminantApproximateSDP,
    "kim": DiscriminantKim,
}
