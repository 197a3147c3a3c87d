"""One weight per class and kernel: the bilinear multi-class problem, and the ways to learn its weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
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
    ExhaustedError,
    Learner,
    LearnerOptions,
    Numbers,
    WeightProblem,
    gap_progress,
    joint_curvature,
)
from kernelmosaic.machines.base import Machine
from kernelmosaic.solvers.line_search import Trials, line_search
from kernelmosaic.solvers.program import Program, Solution, certify, relative_gap
from kernelmosaic.solvers.smo import solve_smo


class ClassWiseProblem(WeightProblem):
    """min over θ ≥ 0 of ½ Σθ + the value of the machine with a kernel Σ_r θ_cr K_r for every class c.

    The set of the weights is all θ ≥ 0: what a norm is to other problems, the term ½ Σθ is to this one. Its slope in
    θ_cr is ½ − q_cr with q_cr = ½ τ_cᵀK_rτ_c. Dividing a class's weights and multiplying its coefficients τ by the same
    number changes no output; `upper` is the value once that has balanced ½ Σ_r θ_cr and ½‖w_c‖² in every class.
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
            return self.stack.combine(theta[0]) if shared else self.stack.combine_classes(theta, self._K)
        kinds = 1 if shared else self.n_classes
        if self._combined is None or not np.array_equal(self._combined, theta):
            self.stack.combine_classes(theta[:kinds], self._K[:kinds])
            self._combined = theta.copy()
        return self._K[0] if shared else self._K

    def solve(self, theta: Array, warm_start: Array | None, tol: float) -> Any:
        """Solve the machine at θ; the outputs of the last evaluation's τ follow from its products without a matrix."""
        known = self._last is not None and warm_start is self._last.solution.beta
        values = _outputs(theta, self._last.products) if known and self._last is not None else None
        return self.solve_machine(self.combine(theta), warm_start, tol, values=values)

    def evaluate(self, theta: Array, warm_start: Array | None, tol: float, kernels: Numbers = None) -> Evaluation:
        program, found = self.machine.program, self.solve(theta, warm_start, tol)
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
        """Return that of the free samples' blocks over all (c, r); None where they are too large or singular."""
        # Single also for few samples: the curvature of a class without weights is rounding, which a coarser one hides.
        single = self.options.tol >= self.options.single_tol
        return joint_curvature(self.combine(at.theta), self.machine.program, at, self.options.most_free, single)

    def balanced(self, at: Evaluation) -> Array:
        """Return ‖u_cr‖ = θ_cr (τ_cᵀK_rτ_c)^½: the weights that would balance every kernel of every class."""
        return np.asarray(at.theta * np.sqrt(2.0 * at.q))

    def rescaled(self, at: Evaluation) -> tuple[Array, Solution]:
        """Return θ / s and the solution with τ s: the same outputs, and the regulariser's two halves balanced."""
        square, total = 2.0 * np.sum(at.theta * at.q, axis=1), at.theta.sum(axis=1)
        usable = (square > 0) & (total > 0)
        s = np.sqrt(np.divide(total, square, out=np.ones(len(total)), where=usable))
        # A class without coefficients has no use for weights: its share of the regulariser is zero without them.
        theta = np.where(usable[:, np.newaxis], at.theta / s[:, np.newaxis], 0.0)
        return theta, replace(at.solution, beta=at.solution.beta * s)

    def learned(self, best: Evaluation, gap: float, history: list[Iteration]) -> Learned:
        """Return weights of shape (classes, P), rescaled so that ½ Σθ equals ½ Σ‖w_c‖² class by class."""
        weights, solution = self.rescaled(best)
        return LearnedClasses(weights, solution, best.upper, gap, self.n_solves, history, witness=best.solution.beta)


def matrix_dtype(stack: GramStack, options: LearnerOptions) -> np.dtype[Any]:
    """Return the precision of the classes' matrices: the machine is solved with them, the stack's own certify it."""
    return np.dtype(np.float32) if options.in_single(stack.n_samples) else stack.dtype


def _outputs(theta: Array, products: Array) -> Array:
    return np.asarray(np.einsum("cm,mic->ic", theta, products))


class ClassWiseLearner(Learner):
    """Finds the weights θ ≥ 0 of every class and kernel; `max_iter` counts solves of the inner machine."""

    machine_needs = ()
    stalled = ROUNDING

    def _learn(self, stack: GramStack, machine: Machine, start: Start) -> Learned:
        search = ClassSearch(ClassWiseProblem(stack, machine, self.options), start)
        with gap_progress(machine, self.options) as search.advance:
            with suppress(_Done, ExhaustedError):
                search.go_on()
                self.minimise(search)
            with suppress(ExhaustedError):
                search.drop_classes()
        return search.learned()

    @staticmethod
    @abstractmethod
    def minimise(search: ClassSearch) -> None:
        """Evaluate at better and better weights; the search ends it, by `_Done`, when the gap or the limit is met."""


class _Done(Exception):
    """The gap is met, or the solves are used up."""


class ClassSearch(BoundTracker):
    """The best weights so far, the best lower bound, and how exactly the machine is solved."""

    problem: ClassWiseProblem

    def __init__(self, problem: ClassWiseProblem, start: Start) -> None:
        self.options = problem.options
        self.inner = self.options.first_tol
        self.closest, self.since = np.inf, 0
        self.advance: Callable[[float], None] = lambda gap: None
        theta = problem.start() if start.weights is None else start.weights
        self.last = problem.evaluate(theta, start.beta, self.inner)
        super().__init__(problem, self.last)

    def evaluate(self, theta: Array) -> Evaluation:
        """Evaluate at θ, from where the last evaluation left τ; raises `_Done` as `go_on` does."""
        # A step that ends at zero may round to less.
        self.last = self.problem.evaluate(np.maximum(theta, 0.0), self.last.solution.beta, self.inner)
        self.consider(self.last)
        self.record()
        self.go_on()
        return self.last

    def go_on(self) -> None:
        """Show the gap; raises `_Done` when it is met, or the solves are used up."""
        self.advance(self.gap)
        options = self.options
        if self.gap <= options.tol or len(self.history) >= options.max_iter:
            raise _Done
        # Once the machine is as exact as can be, steps that do not close the gap are those of rounding.
        if self.inner > options.sharpest or self.gap < options.closer * self.closest:
            self.closest, self.since = self.gap, 0
        self.since += 1
        if self.since > options.n_idle:
            raise _Done
        # An error δ in the machine's value is one of √δ in the slopes.
        self.increase_precision_to(max(self.gap**2, 0.01 * options.tol))

    def increase_precision_to(self, inner: float) -> None:
        """Solve the machine at least so exactly from now on, as far as rounding allows."""
        self.inner = min(self.inner, max(inner, self.options.sharpest))

    def increase_precision(self) -> None:
        """Solve the machine more exactly from now on; raises `_Done` when rounding is all that is left."""
        if not self.sharpen():
            raise _Done

    def drop_classes(self) -> None:
        """Leave classes without weights whose weights are next to none, if the gap stays within the tolerance."""
        here, tol = self.proved, self.options.tol
        total = here.theta.sum(axis=1)
        tiny = (total > 0) & (0.5 * total <= tol * abs(here.upper))
        if not tiny.any() or self.gap > tol or len(self.history) >= self.options.max_iter:
            return
        trial = self.problem.evaluate(np.where(tiny[:, np.newaxis], 0.0, here.theta), here.solution.beta, self.inner)
        gap = relative_gap(trial.upper, self.problem.lower(trial), self.problem.noise)
        if gap <= tol:
            self.best, self.proved, self.gap = trial, trial, gap
            self.advance(self.record())

    def along(self, here: Evaluation, direction: Array) -> Evaluation | None:
        """Go along the direction as far as pays; None if nothing does."""
        gain = -float(np.sum(self.problem.slopes(here) * direction))
        # What the step should gain must show above the machine's own error, but for the last steps: they are too small.
        self.increase_precision_to(max(0.1 * gain / abs(self.problem.value(here)), 0.01 * self.options.tol))
        return self.walk(here, direction, self.evaluate)


class ClassNewton(ClassWiseLearner):
    """Newton steps on the convex value ½ Σθ + J(θ) over θ ≥ 0, with the exact curvature of the inner machine.

    Between changes of the set of free coefficients J is smooth, and its curvature follows from the free samples' blocks
    of the classes' matrices (`multiclass_curvature`). Where steps fail or are cut short, at kinks, or where the blocks
    are too large, quasi-Newton steps take over.
    """

    @staticmethod
    def minimise(search: ClassSearch) -> None:
        problem, here, failures = search.problem, search.best, 0
        # While rescaling lowers the value by this factor, the weights are still of the wrong size altogether.
        while problem.value(here) > 1.04 * here.upper:
            here = search.evaluate(problem.balanced(here))
        while failures < 3:
            H = problem.curvature(here)
            if H is None:
                break
            step = _lowest_point(here.theta, here.q, H) - here.theta
            trial = search.along(here, step)
            # Where other samples become free along every step, the curvature here is wrong at its end.
            short = trial is None or np.abs(trial.theta - here.theta).max() < 0.2 * np.abs(step).max()
            failures = failures + 1 if short else 0
            if trial is None:
                search.increase_precision()
                trial = search.evaluate(here.theta)
            here = trial
        QuasiNewton.minimise(search)


class QuasiNewton(ClassWiseLearner):
    """Limited-memory quasi-Newton steps on the convex value ½ Σθ + J(θ) over θ ≥ 0."""

    @staticmethod
    def minimise(search: ClassSearch) -> None:
        from scipy.optimize import minimize

        def value(x: Array) -> tuple[float, Array]:
            trial = search.evaluate(x.reshape(search.best.theta.shape))
            return search.problem.value(trial), search.problem.slopes(trial).ravel()

        while True:
            start = search.problem.balanced(search.best).ravel()
            options = {"maxcor": 20, "ftol": 0.0, "gtol": 0.0, "maxiter": search.options.max_iter}
            minimize(value, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start), options=options)
            # The line search gives up where the machine's own error hides the slope.
            search.increase_precision()


class ProjectedGradient(ClassWiseLearner):
    """The published scheme: gradient steps projected on θ ≥ 0, a line search on the re-solved value, and rescaling."""

    @staticmethod
    def minimise(search: ClassSearch) -> None:
        problem = search.problem
        here, size = search.evaluate(problem.balanced(search.best)), 1.0

        def projected(size: float) -> Evaluation:
            return search.evaluate(np.maximum(here.theta - size * problem.slopes(here), 0.0))

        while True:
            slope = problem.slopes(here)
            falling = np.where(here.theta > 0, slope, np.minimum(slope, 0.0))
            promise = -float(np.sum(falling**2))
            found = line_search(projected, here, promise, Trials(20, size), value=problem.value)
            if found is None:
                search.increase_precision()
                size = 1.0
                continue
            # Rescaling balances the regulariser; the value there is that of the machine, not extrapolated by the slope.
            here, size = search.evaluate(problem.rescaled(found[1])[0]), 2.0 * found[0]


def _lowest_point(theta: Array, q: Array, H: Array, least: float = 0.1) -> Array:
    """Return where ½ Σθ − ⟨q, δ⟩ + ½ δᵀHδ is least over the weights θ + δ that are to be trusted.

    A class that would lose its weights keeps the share `least` of each.
    """
    A = damped(H)
    # The steps of weights that are to grow are lengthened by their slopes instead.
    floor = trusted_floor(theta.ravel(), q.ravel(), np.diag(H), common=0.5).reshape(theta.shape)
    floor = np.minimum(floor, theta)
    # The slopes upward, q − ½, are made longer where a weight is far too small. There q falls like θ⁻², and q^(−½) is
    # nearly linear in θ: Newton's method for the root of q^(−½) − 2^½ has the same matrix and this right-hand side, and
    # takes a step where the plain one would take many of half that length.
    upward = np.where((theta > 0) & (q > 0.5), 2.0 * q * (np.sqrt(2.0 * q) - 1.0), q - 0.5).ravel()

    def lowest(floor: Array) -> Array:
        # The quadratic model over a box is itself a program of the one form all machines share.
        zero, given = np.zeros(theta.size), floor.ravel()
        # No weight becomes larger in one step than ten times the largest.
        box = Program(upward + A @ (theta.ravel() - given), zero, zero + 10.0 * theta.max(), zero, total=None)
        start = theta.ravel() - given
        return floor + solve_smo(A, box, warm_start=start, tol=1e-10, max_iter=100_000).beta.reshape(theta.shape)

    found = lowest(floor)
    # Without weights a class has no outputs, and no curvature that leads back: it loses them in several steps, unless
    # all classes lose theirs.
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
