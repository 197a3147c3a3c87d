"""One weight per class and kernel: the bilinear multi-class problem, and the ways to learn its
weights."""

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


class ClassWiseProblem(WeightProblem):
    """min over θ ≥ 0 of ½ Σθ + the value of the machine with a kernel Σ_r θ_cr K_r for every class
    c.

    The set of the weights is all θ ≥ 0: what a norm is to other problems, the term ½ Σθ is to this
    one. Its slope in θ_cr is ½ − q_cr with q_cr = ½ τ_cᵀK_rτ_c. Dividing a class's weights and
    multiplying its coefficients τ by the same number changes no output; `upper` is the value once
    that has balanced ½ Σ_r θ_cr and ½‖w_c‖² in every class.
    """

    def __init__(self, stack: GramStack, machine: Machine, options: LearnerOptions) -> None:
        super().__init__(stack, machine, options)
        self.n_classes = machine.program.n_classes
        n = stack.n_samples if stack.writes_matrices else 0
        self._K = np.empty((self.n_classes, n, n), dtype=matrix_dtype(stack, options))
        self._combined: Array | None = None
        self._last: Evaluation | None = None

    def start(self) -> Array:
        return np.ones((self.n_classes, self.stack.n_kernels))

    def combine(self, theta: Array) -> Any:
        """Return the classes' kernels at θ, one for all where they have the same weights."""
        shared = bool(np.all(theta == theta[0]))
        if not self.stack.writes_matrices:
            return (
                self.stack.combine(theta[0])
                if shared
                else self.stack.combine_classes(theta, self._K)
            )
        kinds = 1 if shared else self.n_classes
        if self._combined is None or not np.array_equal(self._combined, theta):
            self.stack.combine_classes(theta[:kinds], self._K[:kinds])
            self._combined = theta.copy()
        return self._K[0] if shared else self._K

    def solve(self, theta: Array, warm_start: Array | None, tol: float) -> Any:
        """Solve the machine at θ; the outputs of the last evaluation's τ follow from its products
        without a matrix."""
        known = self._last is not None and warm_start is self._last.solution.beta
        values = _outputs(theta, self._last.products) if known and self._last is not None else None
        return self.solve_machine(self.combine(theta), warm_start, tol, values=values)

    def evaluate(
        self, theta: Array, warm_start: Array | None, tol: float, kernels: Numbers = None
    ) -> Evaluation | None:
        program, found = self.machine.program, self.solve(theta, warm_start, tol)
        if found is None:
            return None
        products = self.stack.products(found.beta)
        # Rounding can make the form of a positive semi-definite matrix negative.
        q = np.maximum(0.5 * np.einsum("mic,ic->cm", products, found.beta), 0.0)
        norms = np.sqrt(2.0 * np.sum(theta * q, axis=1))
        # What rounding leaves of the outputs of a class without a norm is no output.
        outputs = _outputs(theta, products) * (norms > 0)
        solution = certify(program, found.beta, outputs, found.n_iter)
        upper = float(np.sqrt(theta.sum(axis=1)) @ norms) + program.losses(solution.values)
        self._last = Evaluation(theta, solution, upper, q, products)
        return self._last

    def value(self, at: Evaluation) -> float:
        """Return ½ Σθ plus the machine's primal value, before the classes are rescaled."""
        norms = np.sqrt(2.0 * np.sum(at.theta * at.q, axis=1))
        return at.upper + 0.5 * float(np.sum((np.sqrt(at.theta.sum(axis=1)) - norms) ** 2))

    def slopes(self, at: Evaluation) -> Array:
        return np.asarray(0.5 - at.q)

    def plane(self, at: Evaluation) -> tuple[float, Array]:
        return self.machine.program.linear_value(at.solution.beta), at.q - 0.5

    def lower(self, at: Evaluation) -> float:
        """Return the value of the full dual at τ, scaled so that every ½ τ_cᵀK_rτ_c ≤ ½."""
        scale = max(1.0, float(np.sqrt(2.0 * at.q.max(initial=0.0))))
        return float(self.machine.program.linear_value(at.solution.beta)) / scale

    def curvature(self, at: Evaluation) -> Array | None:
        """Return that of the free samples' blocks over all (c, r); None where they are too large or
        singular."""
        # Single also for few samples: the curvature of a class without weights is rounding, which a
        # coarser one hides.
        single = self.options.tol >= self.options.single_tol
        return joint_curvature(
            self.combine(at.theta), self.machine.program, at, self.options.most_free, single
        )

    def balanced(self, at: Evaluation) -> Array:
        """Return ‖u_cr‖ = θ_cr (τ_cᵀK_rτ_c)^½: the weights that would balance every kernel of every
        class."""
        return np.asarray(at.theta * np.sqrt(2.0 * at.q))

    def rescaled(self, at: Evaluation) -> tuple[Array, Solution]:
        """Return θ / s and the solution with τ s: the same outputs, and the regulariser's two
        halves balanced."""
        square, total = 2.0 * np.sum(at.theta * at.q, axis=1), at.theta.sum(axis=1)
        usable = (square > 0) & (total > 0)
        s = np.sqrt(np.divide(total, square, out=np.ones(len(total)), where=usable))
        # A class without coefficients has no use for weights: its share of the regulariser is zero
        # without them.
        theta = np.where(usable[:, np.newaxis], at.theta / s[:, np.newaxis], 0.0)
        return theta, replace(at.solution, beta=at.solution.beta * s)

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        """Return weights of shape (classes, P), rescaled so that ½ Σθ equals ½ Σ‖w_c‖² class by
        class."""
        weights, solution = self.rescaled(best)
        return LearnedClasses(
            weights, solution, best.upper, gap, self.n_solves, history, witness=best.solution.beta
        )


def matrix_dtype(stack: GramStack, options: LearnerOptions) -> np.dtype[Any]:
    """Return the precision of the classes' matrices: the machine is solved with them, the stack's
    own certify it."""
    return np.dtype(np.float32) if options.in_single(stack.n_samples) else stack.dtype


def _outputs(theta: Array, products: Array) -> Array:
    return np.asarray(np.einsum("cm,mic->ic", theta, products))


class ClassWiseSearch(BoundTracker):
    """The best weights so far, the best lower bound, and how exactly the machine is solved.

    Every evaluation is an iteration, with a line in the history; steps take as many as they need.

    Parameters
    ----------
    problem : ClassWiseProblem
        What is being solved.
    start : Start
        Where to begin.
    """

    problem: ClassWiseProblem

    def __init__(self, problem: ClassWiseProblem, start: Start) -> None:
        self.options = problem.options
        self.inner = self.options.first_tol
        # The gap when it last became smaller by enough to count.
        self.closest = np.inf
        theta = problem.start() if start.weights is None else start.weights
        self.last = problem.evaluate_first(theta, start.beta, self.inner)
        super().__init__(problem, self.last)

    def begin(self) -> None:
        self.show(self.gap)
        self._note_progress()

    def end_step(self) -> None:
        """Do nothing: every evaluation has its line in the history already."""

    def has_ended(self) -> bool:
        return super().has_ended() or not self.goes_on()

    def evaluate(self, theta: Array) -> Evaluation | None:
        """Evaluate at θ, from where the last evaluation left τ; None where the search has ended."""
        if self.has_ended():
            return None
        # A step that ends at zero may round to less.
        evaluation = self.problem.evaluate(
            np.maximum(theta, 0.0), self.last.solution.beta, self.inner
        )
        if evaluation is None:
            return None
        self.last = evaluation
        self.consider(evaluation)
        self.show(self.record())
        self._note_progress()
        return None if self.has_ended() else evaluation

    def _note_progress(self) -> None:
        """Count iterations in vain, and solve the machine as exactly as the gap asks for."""
        if not self.goes_on():
            return
        options = self.options
        # Once the machine is as exact as can be, steps that do not close the gap are those of
        # rounding.
        if self.inner > options.sharpest or self.gap < options.closer * self.closest:
            self.closest, self.n_idle_steps = self.gap, 0
        else:
            self.n_idle_steps += 1
        # An error δ in the machine's value is one of √δ in the slopes.
        self.increase_precision_to(max(self.gap**2, 0.01 * options.tol))

    def increase_precision_to(self, inner: float) -> None:
        """Solve the machine at least so exactly from now on, as far as rounding allows."""
        self.inner = min(self.inner, max(inner, self.options.sharpest))

    def finish(self) -> None:
        """Leave classes without weights whose weights are next to none, if the gap stays within the
        tolerance."""
        here, tol = self.proved, self.options.tol
        total = here.theta.sum(axis=1)
        tiny = (total > 0) & (0.5 * total <= tol * abs(here.upper))
        if not tiny.any() or self.gap > tol or len(self.history) >= self.options.max_iter:
            return
        theta = np.where(tiny[:, np.newaxis], 0.0, here.theta)
        trial = self.problem.evaluate(theta, here.solution.beta, self.inner)
        if trial is None:
            return
        gap = relative_gap(trial.upper, self.problem.lower(trial), self.problem.noise)
        if gap <= tol:
            self.best, self.proved, self.gap = trial, trial, gap
            self.show(self.record())

    def along(self, here: Evaluation, direction: Array) -> Evaluation | None:
        """Go along the direction as far as pays; None if nothing does, or where the search has
        ended."""
        gain = -float(np.sum(self.problem.slopes(here) * direction))
        # What the step should gain must show above the machine's own error, but for the last steps:
        # they are too small.
        self.increase_precision_to(
            max(0.1 * gain / abs(self.problem.value(here)), 0.01 * self.options.tol)
        )
        return self.walk(here, direction, self.evaluate)


class QuasiNewtonSearch(ClassWiseSearch):
    """Runs of L-BFGS-B, each with a more exact machine."""

    def step(self) -> bool:
        """Take quasi-Newton steps until the machine's error hides the slope; False if rounding is
        all that is left."""
        from scipy.optimize import minimize

        shape = self.best.theta.shape

        def value(x: Array) -> tuple[float, Array]:
            evaluation = self.evaluate(x.reshape(shape))
            if evaluation is None:
                # The search has ended: without a slope, L-BFGS-B ends, too.
                return self.problem.value(self.last), np.zeros_like(x)
            return self.problem.value(evaluation), self.problem.slopes(evaluation).ravel()

        start = self.problem.balanced(self.best).ravel()
        options = {"maxcor": 20, "ftol": 0.0, "gtol": 0.0, "maxiter": self.options.max_iter}
        bounds = [(0.0, None)] * len(start)
        minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if self.has_ended():
            return False
        # The line search gives up where the machine's own error hides the slope.
        return self.sharpen()


class ClassNewtonSearch(QuasiNewtonSearch):
    """Newton steps, and quasi-Newton steps where those fail.

    Attributes
    ----------
    here : Evaluation
        Where the next step begins.
    has_right_size : bool
        Whether the weights are no more of the wrong size altogether.
    n_failures : int
        Newton steps in a row that failed or were cut short; from the third on none is taken.
    """

    def __init__(self, problem: ClassWiseProblem, start: Start) -> None:
        super().__init__(problem, start)
        self.here = self.best
        self.has_right_size = False
        self.n_failures = 0

    def step(self) -> bool:
        """Rescale the weights, or take a Newton step, or quasi-Newton steps; False if none is left
        to take."""
        # While rescaling lowers the value by this factor, the weights are still of the wrong size
        # altogether.
        if not self.has_right_size and self.problem.value(self.here) > 1.04 * self.here.upper:
            return self._go_to(self.evaluate(self.problem.balanced(self.here)))
        self.has_right_size = True
        H = self.problem.curvature(self.here) if self.n_failures < 3 else None
        if H is None:
            self.n_failures = 3
            return super().step()
        return self._newton_step(H)

    def _newton_step(self, H: Array) -> bool:
        here = self.here
        step = _lowest_point(here.theta, here.q, H) - here.theta
        trial = self.along(here, step)
        if trial is None and self.has_ended():
            return False
        # Where other samples become free along every step, the curvature here is wrong at its end.
        is_short = (
            trial is None or np.abs(trial.theta - here.theta).max() < 0.2 * np.abs(step).max()
        )
        self.n_failures = self.n_failures + 1 if is_short else 0
        if trial is None:
            if not self.sharpen():
                return False
            trial = self.evaluate(here.theta)
        return self._go_to(trial)

    def _go_to(self, evaluation: Evaluation | None) -> bool:
        """Begin the next step at an evaluation; False where the search has ended."""
        if evaluation is None:
            return False
        self.here = evaluation
        return True


class ProjectedGradientSearch(ClassWiseSearch):
    """Projected gradient steps, each as long as twice the last one at first.

    Attributes
    ----------
    here : Evaluation or None
        Where the next step begins; None before the first.
    size : float
        Its first trial.
    """

    here: Evaluation | None = None
    size: float = 1.0

    def step(self) -> bool:
        """Balance the weights, or take a gradient step and rescale; False if rounding is all that
        is left."""
        problem, here = self.problem, self.here
        if here is None:
            self.here = self.evaluate(problem.balanced(self.best))
            return self.here is not None
        slope, theta = problem.slopes(here), here.theta

        def projected(size: float) -> Evaluation | None:
            return self.evaluate(np.maximum(theta - size * slope, 0.0))

        falling = np.where(theta > 0, slope, np.minimum(slope, 0.0))
        promise = -float(np.sum(falling**2))
        found = line_search(projected, here, promise, Trials(20, self.size), value=problem.value)
        if self.has_ended():
            return False
        if found is None:
            self.size = 1.0
            return self.sharpen()
        size, end = found
        # Rescaling balances the regulariser; the value there is that of the machine, not
        # extrapolated by the slope.
        self.here, self.size = self.evaluate(problem.rescaled(end)[0]), 2.0 * size
        return self.here is not None


class ClassWiseLearner(Learner):
    """Finds the weights θ ≥ 0 of every class and kernel; `max_iter` counts solves of the inner
    machine."""

    machine_needs = ()
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        return (
            self.search(ClassWiseProblem(stack, machine, self.options), start).improve().learned()
        )

    @abstractmethod
    def search(self, problem: ClassWiseProblem, start: Start) -> ClassWiseSearch:
        """Return the search for the weights, before its first step."""


class ClassNewton(ClassWiseLearner):
    """Newton steps on the convex value ½ Σθ + J(θ) over θ ≥ 0, with the exact curvature of the
    inner machine.

    Between changes of the set of free coefficients J is smooth, and its curvature follows from the
    free samples' blocks of the classes' matrices (`multiclass_curvature`). Where steps fail or are
    cut short, at kinks, or where the blocks are too large, quasi-Newton steps take over.
    """

    def search(self, problem: ClassWiseProblem, start: Start) -> ClassNewtonSearch:
        return ClassNewtonSearch(problem, start)


class QuasiNewton(ClassWiseLearner):
    """Limited-memory quasi-Newton steps on the convex value ½ Σθ + J(θ) over θ ≥ 0."""

    def search(self, problem: ClassWiseProblem, start: Start) -> QuasiNewtonSearch:
        return QuasiNewtonSearch(problem, start)


class ProjectedGradient(ClassWiseLearner):
    """The published scheme: gradient steps projected on θ ≥ 0, a line search on the re-solved
    value, and rescaling."""

    def search(self, problem: ClassWiseProblem, start: Start) -> ProjectedGradientSearch:
        return ProjectedGradientSearch(problem, start)


def _lowest_point(theta: Array, q: Array, H: Array, least: float = 0.1) -> Array:
    """Return where ½ Σθ − ⟨q, δ⟩ + ½ δᵀHδ is least over the weights θ + δ that are to be trusted.

    A class that would lose its weights keeps the share `least` of each.
    """
    A = damped(H)
    # The steps of weights that are to grow are lengthened by their slopes instead.
    floor = trusted_floor(theta.ravel(), q.ravel(), np.diag(H), common=0.5).reshape(theta.shape)
    floor = np.minimum(floor, theta)
    # The slopes upward, q − ½, are made longer where a weight is far too small. There q falls like
    # θ⁻², and q^(−½) is nearly linear in θ: Newton's method for the root of q^(−½) − 2^½ has the
    # same matrix and this right-hand side, and takes a step where the plain one would take many of
    # half that length.
    upward = np.where((theta > 0) & (q > 0.5), 2.0 * q * (np.sqrt(2.0 * q) - 1.0), q - 0.5).ravel()

    def lowest(floor: Array) -> Array:
        # The quadratic model over a box is itself a program of the one form all machines share.
        zero, given = np.zeros(theta.size), floor.ravel()
        # No weight becomes larger in one step than ten times the largest.
        box = Program(
            upward + A @ (theta.ravel() - given), zero, zero + 10.0 * theta.max(), zero, total=None
        )
        start = theta.ravel() - given
        return floor + solve_smo(
            A, box, warm_start=start, tol=1e-10, max_iter=100_000
        ).beta.reshape(theta.shape)

    found = lowest(floor)
    # Without weights a class has no outputs, and no curvature that leads back: it loses them in
    # several steps, unless all classes lose theirs.
    lost = found.sum(axis=1) < least * theta.sum(axis=1)
    if not lost.any() or lost.all():
        return found
    return lowest(np.where(lost[:, np.newaxis], np.maximum(floor, least * theta), floor))


#: How weights of every class are learned, by the name that `solver` gives it.
CLASS_WISE_SOLVERS: dict[str, type[Learner]] = {
    "newton": ClassNewton,
    "quasi_newton": QuasiNewton,
    "projected_gradient": ProjectedGradient,
}
