"""The bilinear multi-class problem, with one weight per class and kernel, and its learners."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from kernelmosaic._typing import Array
from kernelmosaic.gram.stack import GramStack
from kernelmosaic.learning.certificate import Iteration, Learned, LearnedClasses, Start
from kernelmosaic.learning.norms import damped, trusted_floor
from kernelmosaic.learning.problem import (
    ROUNDING,
    BoundTracker,
    Evaluation,
    Learner,
    LearnerOptions,
    Numbers,
    WeightProblem,
    joint_curvature,
)
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.line_search import Trials, line_search
from kernelmosaic.solvers.program import Program, Solution, certify, relative_gap
from kernelmosaic.solvers.smo import solve_smo

# Tuning values ------------------------------------------------------------------------------------

#: While balancing the weights lowers the value by this factor, the weights are of the wrong size,
#: and the search balances them instead of taking Newton steps. Chosen by hand.
BALANCING_FACTOR = 1.04
#: Failed or short Newton steps in a row after which the search takes quasi-Newton steps. Chosen by
#: hand.
MAX_FAILURES = 3
#: A Newton step is short if the line search leaves less than this fraction of it. Chosen by hand.
SHORT_FRACTION = 0.2
#: Fraction of its weights that a class keeps in one Newton step. Chosen by hand.
LEAST_CLASS_FRACTION = 0.1
#: No weight becomes larger in one Newton step than this many times the largest. Chosen by hand.
MAX_GROWTH = 10.0
#: Relative gap, and most steps of pairs, of the solver of machines on the quadratic model.
MODEL_TOL = 1e-10
MAX_MODEL_STEPS = 100_000
#: Machine tolerances: the least one as a fraction of tol, and that of a Newton step as a fraction
#: of the relative decrease that its gradient promises. Chosen by hand.
LEAST_MACHINE_TOL = 0.01
DECREASE_FRACTION = 0.1
#: Most evaluations in a line search of the projected gradient. Chosen by hand.
MAX_GRADIENT_TRIALS = 20
#: Pairs of steps and gradients that L-BFGS-B keeps. Chosen by hand.
MAX_CORRECTIONS = 20


# The problem --------------------------------------------------------------------------------------


class ClassWiseProblem(WeightProblem):
    """Minimise over θ ≥ 0 the sum of ½ Σθ and the value of a joint machine.

    The machine has a kernel Σ_r θ_cr K_r for every class c. The set of the weights is all θ ≥ 0:
    what a norm is to other problems, the term ½ Σθ is to this one. The gradient in θ_cr is ½ − q_cr
    with q_cr = ½ τ_cᵀK_rτ_c. Dividing a class's weights and multiplying its coefficients τ by the
    same number changes no output; `upper` is the value once that has balanced ½ Σ_r θ_cr and
    ½‖w_c‖² in every class.

    Parameters
    ----------
    stack : GramStack
        The kernels.
    machine : MulticlassMachine
        The joint machine of all classes.
    options : LearnerOptions
        Tolerances and limits; norm and penalties are not used.
    """

    def __init__(self, stack: GramStack, machine: Machine, options: LearnerOptions) -> None:
        super().__init__(stack, machine, options)
        self.n_classes = machine.program.n_classes
        n = stack.n_samples if stack.writes_matrices else 0
        self._K = np.empty((self.n_classes, n, n), dtype=matrix_dtype(stack, options))
        self._combined_theta: Array | None = None
        self._last: Evaluation | None = None

    def start(self) -> Array:
        return np.ones((self.n_classes, self.stack.n_kernels))

    def combine(self, theta: Array) -> Any:
        """Return the kernels of the classes at θ, or one for all classes of the same weights.

        The matrices are kept until the weights change.
        """
        classes_share = bool(np.all(theta == theta[0]))
        if not self.stack.writes_matrices:
            if classes_share:
                return self.stack.combine(theta[0])
            return self.stack.combine_classes(theta, self._K)
        if self._combined_theta is None or not np.array_equal(self._combined_theta, theta):
            n_matrices = 1 if classes_share else self.n_classes
            self.stack.combine_classes(theta[:n_matrices], self._K[:n_matrices])
            self._combined_theta = theta.copy()
        if classes_share:
            return self._K[0]
        return self._K

    def solve(self, theta: Array, warm_start: Array | None, tol: float) -> Any:
        """Return the machine's solution at θ to a relative gap of `tol`; None where refused.

        The outputs of the last evaluation's τ follow from its products, without a matrix.
        """
        values = None
        if self._last is not None and warm_start is self._last.solution.beta:
            values = _outputs(theta, self._last.products)
        return self.solve_machine(self.combine(theta), warm_start, tol, values=values)

    def evaluate(
        self, theta: Array, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> Evaluation | None:
        solution = self.solve(theta, warm_start, tol)
        if solution is None:
            return None
        tau = solution.beta
        products = self.stack.products(tau)
        # Rounding can make the form of a positive semi-definite matrix negative.
        q = np.maximum(0.5 * np.einsum("mic,ic->cm", products, tau), 0.0)
        norms = np.sqrt(2.0 * np.sum(theta * q, axis=1))
        # Where the norm of a class is zero, its outputs are rounding.
        outputs = _outputs(theta, products) * (norms > 0)
        program = self.machine.program
        solution = certify(program, tau, outputs, solution.n_iter)
        upper = float(np.sqrt(theta.sum(axis=1)) @ norms) + program.losses(solution.values)
        self._last = Evaluation(theta, solution, upper, q, products)
        return self._last

    def value(self, evaluation: Evaluation) -> float:
        """Return ½ Σθ plus the machine's primal value, before the classes are rescaled."""
        theta, q = evaluation.theta, evaluation.q
        norms = np.sqrt(2.0 * np.sum(theta * q, axis=1))
        imbalance = np.sum((np.sqrt(theta.sum(axis=1)) - norms) ** 2)
        return evaluation.upper + 0.5 * float(imbalance)

    def gradient(self, evaluation: Evaluation) -> Array:
        return np.asarray(0.5 - evaluation.q)

    def plane(self, evaluation: Evaluation) -> tuple[float, Array]:
        return self.machine.program.linear_value(evaluation.solution.beta), evaluation.q - 0.5

    def lower_bound(self, evaluation: Evaluation) -> float:
        """Return the value of the full dual at τ, scaled so that every ½ τ_cᵀK_rτ_c ≤ ½."""
        scale = max(1.0, float(np.sqrt(2.0 * evaluation.q.max(initial=0.0))))
        return float(self.machine.program.linear_value(evaluation.solution.beta)) / scale

    def curvature(self, evaluation: Evaluation) -> Array | None:
        """Return the curvature over all (c, r), from the free samples' blocks of the kernels.

        None is returned where the blocks are too large or singular.
        """
        # In single precision also for few samples: the curvature of a class without weights is
        # rounding, which a coarser one hides.
        in_single = self.options.tol >= self.options.single_tol
        return joint_curvature(
            self.combine(evaluation.theta),
            self.machine.program,
            evaluation,
            self.options.max_free_samples,
            in_single,
        )

    def balanced(self, evaluation: Evaluation) -> Array:
        """Return ‖u_cr‖ = θ_cr (τ_cᵀK_rτ_c)^½, the θ that balances every kernel of every class."""
        return np.asarray(evaluation.theta * np.sqrt(2.0 * evaluation.q))

    def rescaled(self, evaluation: Evaluation) -> tuple[Array, Solution]:
        """Return θ / s and the solution with τ s, where s balances the regulariser of each class.

        The outputs stay the same. A class without coefficients gets no weights: its part of the
        regulariser is zero without them.
        """
        theta = evaluation.theta
        square = 2.0 * np.sum(theta * evaluation.q, axis=1)
        total = theta.sum(axis=1)
        usable = (square > 0) & (total > 0)
        s = np.sqrt(np.divide(total, square, out=np.ones(len(total)), where=usable))
        theta = np.where(usable[:, np.newaxis], theta / s[:, np.newaxis], 0.0)
        return theta, replace(evaluation.solution, beta=evaluation.solution.beta * s)

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        """Return the result with rescaled weights of shape (classes, P): ½ Σθ is ½ Σ‖w_c‖²."""
        weights, solution = self.rescaled(best)
        return LearnedClasses(
            weights, solution, best.upper, gap, self.n_solves, history, witness=best.solution.beta
        )


def matrix_dtype(stack: GramStack, options: LearnerOptions) -> np.dtype[Any]:
    """Return the precision of the classes' combined matrices, with which the machine is solved.

    Certificates use the matrices of the stack.
    """
    if options.in_single(stack.n_samples):
        return np.dtype(np.float32)
    return stack.dtype


def _outputs(theta: Array, products: Array) -> Array:
    """Return Σ_m θ_cm K_m τ_c, of shape (n, classes)."""
    return np.asarray(np.einsum("cm,mic->ic", theta, products))


# Searches -----------------------------------------------------------------------------------------


class ClassWiseSearch(BoundTracker):
    """A search over the weights of all classes; every evaluation is one of its iterations.

    Every evaluation adds a line to the history. A step takes as many evaluations as it needs.

    Parameters
    ----------
    problem : ClassWiseProblem
        What is being solved.
    start : Start
        Where to begin.

    Attributes
    ----------
    last : Evaluation
        The last one; the next solve starts from its τ.
    gap_at_progress : float
        The gap when it last became smaller by enough to count as progress.
    """

    problem: ClassWiseProblem

    def __init__(self, problem: ClassWiseProblem, start: Start) -> None:
        self.options = problem.options
        self.machine_tol = self.options.first_machine_tol
        self.gap_at_progress = np.inf
        theta = problem.start() if start.weights is None else start.weights
        self.last = problem.evaluate_first(theta, start.beta, self.machine_tol)
        super().__init__(problem, self.last)

    def begin(self) -> None:
        self.show(self.gap)
        self._update_progress()

    def end_step(self) -> None:
        """Do nothing: every evaluation has its line in the history already."""

    def has_ended(self) -> bool:
        return super().has_ended() or not self.goes_on()

    def evaluate(self, theta: Array) -> Evaluation | None:
        """Return the evaluation at θ, started from the last τ; None where the search has ended.

        Its bounds are recorded, and it is counted as an iteration.
        """
        if self.has_ended():
            return None
        # A step that ends at zero may round to less.
        evaluation = self.problem.evaluate(
            np.maximum(theta, 0.0), self.last.solution.beta, self.machine_tol
        )
        if evaluation is None:
            return None
        self.last = evaluation
        self.consider(evaluation)
        self.show(self.record_iteration())
        self._update_progress()
        if self.has_ended():
            return None
        return evaluation

    def _update_progress(self) -> None:
        """Count idle iterations, and adapt the machine tolerance to the gap."""
        if not self.goes_on():
            return
        options = self.options
        # Iterations without progress count only once the machine is as exact as can be: they are
        # then due to rounding.
        machine_is_exact = self.machine_tol <= options.least_machine_tol
        has_progress = self.gap < options.progress_factor * self.gap_at_progress
        if not machine_is_exact or has_progress:
            self.gap_at_progress = self.gap
            self.n_idle_steps = 0
        else:
            self.n_idle_steps += 1
        # An error δ in the machine's value is one of √δ in the gradient.
        self.lower_machine_tol_to(max(self.gap**2, LEAST_MACHINE_TOL * options.tol))

    def lower_machine_tol_to(self, machine_tol: float) -> None:
        """Solve the machine at least so exactly from now on, as far as rounding allows."""
        allowed = max(machine_tol, self.options.least_machine_tol)
        self.machine_tol = min(self.machine_tol, allowed)

    def finish(self) -> None:
        """Set the weights of classes that hardly have any to zero, if the gap stays within tol."""
        tightest = self.tightest
        tol = self.options.tol
        totals = tightest.theta.sum(axis=1)
        is_tiny = (totals > 0) & (0.5 * totals <= tol * abs(tightest.upper))
        has_room = len(self.history) < self.options.max_iter
        if not is_tiny.any() or self.gap > tol or not has_room:
            return
        theta = np.where(is_tiny[:, np.newaxis], 0.0, tightest.theta)
        trial = self.problem.evaluate(theta, tightest.solution.beta, self.machine_tol)
        if trial is None:
            return
        gap = relative_gap(trial.upper, self.problem.lower_bound(trial), self.problem.noise)
        if gap <= tol:
            self.best = trial
            self.tightest = trial
            self.gap = gap
            self.show(self.record_iteration())

    def follow_direction(self, start: Evaluation, direction: Array) -> Evaluation | None:
        """Return the end of a line search along a direction; None if no step lowers the value."""
        # The decrease must show above the machine's own error, except in the last steps, which are
        # too small for that.
        decrease = -float(np.sum(self.problem.gradient(start) * direction))
        relative_decrease = DECREASE_FRACTION * decrease / abs(self.problem.value(start))
        self.lower_machine_tol_to(max(relative_decrease, LEAST_MACHINE_TOL * self.options.tol))
        return self.search_line(start, direction, self.evaluate)


class QuasiNewtonSearch(ClassWiseSearch):
    """Runs of L-BFGS-B, each with a more exact machine."""

    def step(self) -> bool:
        """Run L-BFGS-B until the machine's error hides the gradient; False where rounding does."""
        from scipy.optimize import minimize

        shape = self.best.theta.shape

        def value_and_gradient(x: Array) -> tuple[float, Array]:
            evaluation = self.evaluate(x.reshape(shape))
            if evaluation is None:
                # The search has ended: with a gradient of zero, L-BFGS-B ends, too.
                return self.problem.value(self.last), np.zeros_like(x)
            return self.problem.value(evaluation), self.problem.gradient(evaluation).ravel()

        start = self.problem.balanced(self.best).ravel()
        options = {
            "maxcor": MAX_CORRECTIONS,
            "ftol": 0.0,
            "gtol": 0.0,
            "maxiter": self.options.max_iter,
        }
        bounds = [(0.0, None)] * len(start)
        minimize(
            value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        if self.has_ended():
            return False
        # Its line search gives up where the machine's own error hides the gradient.
        return self.tighten_machine_tol()


class ClassNewtonSearch(QuasiNewtonSearch):
    """Newton steps, and quasi-Newton steps where those fail.

    Attributes
    ----------
    current : Evaluation
        Where the next step begins.
    has_right_size : bool
        Whether the weights need not be balanced any more.
    n_failures : int
        Newton steps in a row that failed or were cut short; from `MAX_FAILURES` on none is taken.
    """

    def __init__(self, problem: ClassWiseProblem, start: Start) -> None:
        super().__init__(problem, start)
        self.current = self.best
        self.has_right_size = False
        self.n_failures = 0

    def step(self) -> bool:
        """Balance the weights, or take a Newton step, or quasi-Newton steps; False at the end."""
        problem = self.problem
        if not self.has_right_size:
            if problem.value(self.current) > BALANCING_FACTOR * self.current.upper:
                return self._go_to(self.evaluate(problem.balanced(self.current)))
            self.has_right_size = True
        H = None
        if self.n_failures < MAX_FAILURES:
            H = problem.curvature(self.current)
        if H is None:
            self.n_failures = MAX_FAILURES
            return super().step()
        return self._newton_step(H)

    def _newton_step(self, H: Array) -> bool:
        """Take a Newton step of the curvature H, or solve the machine again; False at the end."""
        current = self.current
        step = _lowest_point(current.theta, current.q, H) - current.theta
        trial = self.follow_direction(current, step)
        if trial is None:
            if self.has_ended():
                return False
            self.n_failures += 1
            if not self.tighten_machine_tol():
                return False
            return self._go_to(self.evaluate(current.theta))
        # Where other samples become free along the steps, the curvature of their start is wrong at
        # their end, and they are cut short.
        largest_change = np.abs(trial.theta - current.theta).max()
        is_short = largest_change < SHORT_FRACTION * np.abs(step).max()
        self.n_failures = self.n_failures + 1 if is_short else 0
        return self._go_to(trial)

    def _go_to(self, evaluation: Evaluation | None) -> bool:
        """Begin the next step at an evaluation; False where the search has ended."""
        if evaluation is None:
            return False
        self.current = evaluation
        return True


class ProjectedGradientSearch(ClassWiseSearch):
    """Projected gradient steps, the first trial of each twice as long as the last step.

    Attributes
    ----------
    current : Evaluation or None
        Where the next step begins; None before the first.
    size : float
        Size of its first trial.
    """

    current: Evaluation | None = None
    size: float = 1.0

    def step(self) -> bool:
        """Balance the weights, or take a gradient step and rescale; False at the end."""
        problem = self.problem
        current = self.current
        if current is None:
            self.current = self.evaluate(problem.balanced(self.best))
            return self.current is not None
        theta = current.theta
        gradient = problem.gradient(current)

        def evaluate_step(size: float) -> Evaluation | None:
            return self.evaluate(np.maximum(theta - size * gradient, 0.0))

        projected_gradient = np.where(theta > 0, gradient, np.minimum(gradient, 0.0))
        slope = -float(np.sum(projected_gradient**2))
        trials = Trials(MAX_GRADIENT_TRIALS, self.size)
        step = line_search(evaluate_step, current, slope, trials, value=problem.value)
        if self.has_ended():
            return False
        if step is None:
            self.size = 1.0
            return self.tighten_machine_tol()
        size, end = step
        # Rescaling balances the regulariser. The machine is solved there, because the gradient says
        # too little about the value there.
        theta, _ = problem.rescaled(end)
        self.current = self.evaluate(theta)
        self.size = 2.0 * size
        return self.current is not None


# Learners -----------------------------------------------------------------------------------------


class ClassWiseLearner(Learner):
    """Finds the weights θ ≥ 0 of every class and kernel.

    `max_iter` counts solves of the inner machine.
    """

    machine_needs = ()
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        problem = ClassWiseProblem(stack, machine, self.options)
        return self.search(problem, start).improve().learned()

    @abstractmethod
    def search(self, problem: ClassWiseProblem, start: Start) -> ClassWiseSearch:
        """Return the search for the weights, before its first step."""


class ClassNewton(ClassWiseLearner):
    """Newton steps on the convex value ½ Σθ + J(θ) over θ ≥ 0.

    They use the exact curvature of the inner machine. Between changes of the set of free
    coefficients J is smooth, and its curvature follows from the free samples' blocks of the
    classes' matrices (`multiclass_curvature`). Where steps fail or are cut short, at kinks, or
    where the blocks are too large, quasi-Newton steps take over.
    """

    def search(self, problem: ClassWiseProblem, start: Start) -> ClassNewtonSearch:
        return ClassNewtonSearch(problem, start)


class QuasiNewton(ClassWiseLearner):
    """Limited-memory quasi-Newton steps on the convex value ½ Σθ + J(θ) over θ ≥ 0."""

    def search(self, problem: ClassWiseProblem, start: Start) -> QuasiNewtonSearch:
        return QuasiNewtonSearch(problem, start)


class ProjectedGradient(ClassWiseLearner):
    """The published scheme: projected gradient steps on the value over θ ≥ 0.

    Each has a line search on the re-solved value, and is followed by rescaling.
    """

    def search(self, problem: ClassWiseProblem, start: Start) -> ProjectedGradientSearch:
        return ProjectedGradientSearch(problem, start)


# The quadratic model of a Newton step -------------------------------------------------------------


def _lowest_point(theta: Array, q: Array, H: Array) -> Array:
    """Return where ½ Σθ − ⟨q, δ⟩ + ½ δᵀHδ is least over the weights θ + δ that are to be trusted.

    A class that would lose its weights keeps `LEAST_CLASS_FRACTION` of each.

    Parameters
    ----------
    theta, q : ndarray of shape (classes, P)
        The weights, and ½ τ_cᵀK_rτ_c.
    H : ndarray of shape (classes * P, classes * P)
        The curvature.
    """
    A = damped(H)
    # Only steps of weights that shrink end at the floor. Those of weights that grow are lengthened
    # by their gradients instead.
    floor = trusted_floor(theta.ravel(), q.ravel(), np.diag(H), common=0.5).reshape(theta.shape)
    floor = np.minimum(floor, theta)
    # The ascent q − ½ is made longer where a weight is far too small. There q falls like θ⁻², and
    # q^(−½) is nearly linear in θ: Newton's method for the root of q^(−½) − 2^½ has the same matrix
    # and this right-hand side, and takes a step where the plain one would take many of half that
    # length.
    is_too_small = (theta > 0) & (q > 0.5)
    ascent = np.where(is_too_small, 2.0 * q * (np.sqrt(2.0 * q) - 1.0), q - 0.5).ravel()

    def minimise_above(floor: Array) -> Array:
        # The quadratic model over a box is itself a program of the one form all machines share.
        zero = np.zeros(theta.size)
        start = theta.ravel() - floor.ravel()
        upper = zero + MAX_GROWTH * theta.max()
        box = Program(ascent + A @ start, zero, upper, zero, total=None)
        solution = solve_smo(A, box, warm_start=start, tol=MODEL_TOL, max_iter=MAX_MODEL_STEPS)
        return floor + solution.beta.reshape(theta.shape)

    lowest = minimise_above(floor)
    # Without weights a class has no outputs, and no curvature that leads back: it loses them in
    # several steps, unless all classes lose theirs.
    loses_weights = lowest.sum(axis=1) < LEAST_CLASS_FRACTION * theta.sum(axis=1)
    if not loses_weights.any() or loses_weights.all():
        return lowest
    raised_floor = np.maximum(floor, LEAST_CLASS_FRACTION * theta)
    return minimise_above(np.where(loses_weights[:, np.newaxis], raised_floor, floor))


#: Learners of the weights of every class, by the names of the parameter `solver`.
CLASS_WISE_SOLVERS: dict[str, type[Learner]] = {
    "newton": ClassNewton,
    "quasi_newton": QuasiNewton,
    "projected_gradient": ProjectedGradient,
}
