"""One weight per class and kernel: the bilinear multi-class problem, and Newton steps on its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.gram import GramStack
from kernelmosaic.learning.base import Iteration, Learned
from kernelmosaic.learning.multiclass import LARGEST, SINGLE
from kernelmosaic.learning.problem import line_search
from kernelmosaic.learning.progress import gap_progress
from kernelmosaic.machines.multiclass import MulticlassMachine
from kernelmosaic.solvers import Program, relative_gap, solve_smo
from kernelmosaic.solvers.multiclass_newton import free_coefficients, multiclass_curvature
from kernelmosaic.solvers.multiclass_program import MulticlassSolution, certify_multiclass

#: The machine is first solved to this gap, ...
_FIRST_TOL = 1e-2
#: ... then sharpened by this factor when its error is what holds the weights up, down to rounding.
_SHARPER = 0.03
_SHARPEST = 1e-12
#: Unless steps fail, the machine is solved no more exactly than this share of the gap asked for.
_ENOUGH = 1e-2
#: Pairs of steps and slopes that the quasi-Newton matrix remembers.
_MEMORY = 20
#: While rescaling would lower the value by this factor, the weights are still of the wrong size altogether.
_UNBALANCED = 1.04
#: Most evaluations in one line search.
_ATTEMPTS = 6
#: In a line search the machine is solved to this share of what the step should gain.
_VISIBLE = 0.1
#: A step too small to be seen in the value is kept if it closes the gap by this factor.
_CLOSING = 0.9
#: Steps that fail one after the other before another way is tried.
_FAILURES = 3
#: Relative to the curvature's mean: keeps a quadratic model of duplicated kernels solvable.
_DAMPING = 1e-8
#: A weight below this share of the mean may be set to zero in one step.
_NEGLIGIBLE = 1e-2
#: No weight becomes larger in one step than this many times the largest.
_LONGEST = 10.0
#: Relative gap of the quadratic model's solution.
_MODEL_TOL = 1e-10

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassWiseEvaluation:
    """The machine solved at weights d of shape (classes, P).

    Attributes
    ----------
    d : ndarray of shape (classes, P)
        The weights.
    solution : MulticlassSolution
        Of the machine with the kernels Σ_r d_cr K_r.
    products : ndarray of shape (P, n, classes)
        K_r τ_c.
    theta : ndarray of shape (classes, P)
        ½ τ_cᵀ K_r τ_c; the slope of the value in d_cr is ½ − θ_cr.
    value : float
        ½ Σd plus the machine's primal value at d.
    upper : float
        Σ_c (Σ_r d_cr)^½ ‖w_c‖ + κΣξ: what the value becomes when the classes are rescaled, which changes no output.
    lower : float
        The value of the full dual at τ, scaled so that every ½ τ_cᵀ K_r τ_c ≤ ½.
    """

    d: Array
    solution: MulticlassSolution
    products: Array
    theta: Array
    value: float
    upper: float
    lower: float

    @property
    def norms(self) -> Array:
        """‖u_cr‖ = d_cr (τ_cᵀ K_r τ_c)^½: the weights that would balance every kernel of every class."""
        return np.asarray(self.d * np.sqrt(2.0 * self.theta))

    @property
    def scales(self) -> Array:
        """s_c = (Σ_r d_cr)^½ / ‖w_c‖; 1 for a class whose kernels all have weight zero, or that is not told apart."""
        square = 2.0 * np.sum(self.d * self.theta, axis=1)
        total = self.d.sum(axis=1)
        usable = (square > 0) & (total > 0)
        return np.asarray(np.sqrt(np.divide(total, square, out=np.ones(len(total)), where=usable)))

    def rescaled(self) -> tuple[Array, MulticlassSolution]:
        """Return d / s and the solution with τ s: the same outputs, and the regulariser's two halves balanced."""
        s = self.scales
        return self.d / s[:, np.newaxis], replace(self.solution, beta=self.solution.beta * s)


class ClassWiseProblem:
    """min over d ≥ 0 of ½ Σ d + the value of the machine with a kernel Σ_r d_cr K_r for every class c."""

    def __init__(self, stack: GramStack, machine: MulticlassMachine, tol: float = 0.0) -> None:
        self.stack = stack
        self.machine = machine
        self.n_classes = machine.program.n_classes
        self.n_solves = 0
        self._K = np.empty((0, 0, 0))
        if stack.writes_matrices:
            self._K = np.empty((self.n_classes, stack.n_samples, stack.n_samples), dtype=matrix_dtype(stack, tol))
        self._combined: Array | None = None

    def combine(self, d: Array) -> Any:
        """Return the classes' kernels at d, one for all where they have the same weights."""
        shared = bool(np.all(d == d[0]))
        if not self.stack.writes_matrices:
            return self.stack.combine(d[0]) if shared else self.stack.combine_classes(d, self._K)
        kinds = 1 if shared else self.n_classes
        if self._combined is None or not np.array_equal(self._combined, d):
            self.stack.combine_classes(d[:kinds], self._K[:kinds])
            self._combined = d.copy()
        return self._K[0] if shared else self._K

    def evaluate(self, d: Array, start: ClassWiseEvaluation | None, tol: float) -> ClassWiseEvaluation:
        """Solve the machine at d to a relative gap of `tol`, with both bounds on the whole problem.

        The outputs of the coefficients to start from follow from an earlier evaluation's products: no matrix is read.
        """
        program = self.machine.program
        beta = np.zeros((program.n_samples, self.n_classes)) if start is None else start.solution.beta
        values = beta if start is None else _outputs(d, start.products)
        solution = self.machine.solve(self.combine(d), beta, tol, values=values)
        self.n_solves += 1
        products = self.stack.products(solution.beta)
        # Rounding can make the form of a positive semi-definite matrix negative.
        theta = np.maximum(0.5 * np.einsum("mic,ic->cm", products, solution.beta), 0.0)
        solution = certify_multiclass(program, solution.beta, _outputs(d, products), solution.n_iter)
        losses = program.losses(solution.values)
        value = 0.5 * float(d.sum()) + float(np.sum(d * theta)) + losses
        upper = float(np.sqrt(d.sum(axis=1)) @ np.sqrt(2.0 * np.sum(d * theta, axis=1))) + losses
        scale = max(1.0, float(np.sqrt(2.0 * theta.max(initial=0.0))))
        lower = program.linear_value(solution.beta) / scale
        return ClassWiseEvaluation(d, solution, products, theta, value, upper, lower)


def matrix_dtype(stack: GramStack, tol: float) -> np.dtype[Any]:
    """Return the precision of the classes' matrices: they tell the machine where to go, the stack's own certify it."""
    return np.dtype(np.float32) if tol >= SINGLE else stack.dtype


def _outputs(d: Array, products: Array) -> Array:
    return np.asarray(np.einsum("cm,mic->ic", d, products))


class ClassWiseLearner(ABC):
    """Finds the weights d ≥ 0 of every class and kernel.

    Parameters
    ----------
    tol : float
        Relative duality gap of the whole problem at which to stop.
    max_iter : int
        Most solves of the inner machine.
    verbose : bool
        Whether to show a progress bar.
    """

    advice = "raise max_iter, or accept a larger tol."
    stalled: str | None = None

    def __init__(self, tol: float = 1e-3, max_iter: int = 100, verbose: bool = False) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def learn(self, stack: GramStack, machine: MulticlassMachine) -> Learned:
        """Return weights of shape (classes, P), rescaled so that ½ Σd equals ½ Σ‖w_c‖² class by class."""
        search = ClassSearch(ClassWiseProblem(stack, machine, self.tol), self.tol, self.max_iter)
        progress = gap_progress(type(machine).__name__, self.tol) if self.verbose else nullcontext(lambda gap: None)
        with progress as search.advance, suppress(_Done):
            search.evaluate(np.ones((machine.program.n_classes, stack.n_kernels)))
            self.minimise(search)
        best = search.best
        weights, solution = best.rescaled()
        return Learned(weights, solution, best.upper, search.gap, search.problem.n_solves, search.history)

    @abstractmethod
    def minimise(self, search: ClassSearch) -> None:
        """Evaluate at better and better weights; the search ends it, by `_Done`, when the gap or the limit is met."""


class _Done(Exception):
    """The gap is met, or the solves are used up."""


class ClassSearch:
    """The best weights so far, the best lower bound, and how exactly the machine is solved."""

    def __init__(self, problem: ClassWiseProblem, tol: float, max_iter: int) -> None:
        self.problem = problem
        self.tol = tol
        self.max_iter = max_iter
        self.inner = _FIRST_TOL
        self.lower = -np.inf
        self.best: ClassWiseEvaluation = None  # type: ignore[assignment]
        self.advance: Callable[[float], None] = lambda gap: None
        self._last: ClassWiseEvaluation | None = None
        self.history: list[Iteration] = []

    @property
    def gap(self) -> float:
        return relative_gap(self.best.upper, self.lower)

    def evaluate(self, d: Array) -> ClassWiseEvaluation:
        """Evaluate at d, from where the last evaluation left τ; raises `_Done` when nothing more is asked."""
        there = self.problem.evaluate(d, self._last, self.inner)
        self._last = there
        self.lower = max(self.lower, there.lower)
        self.best = there if not self.history or there.upper < self.best.upper else self.best
        self.history.append(Iteration(self.best.upper, self.gap))
        self.advance(self.gap)
        if self.gap <= self.tol or len(self.history) >= self.max_iter:
            raise _Done
        # An error δ in the machine's value is one of √δ in the slopes.
        self.increase_precision_to(max(self.gap**2, _ENOUGH * self.tol))
        return there

    def increase_precision_to(self, inner: float) -> None:
        """Solve the machine at least so exactly from now on, as far as rounding allows."""
        self.inner = min(self.inner, max(inner, _SHARPEST))

    def increase_precision(self) -> None:
        """Solve the machine more exactly from now on; raises `_Done` when rounding is all that is left."""
        if self.inner <= _SHARPEST:
            raise _Done
        self.inner = max(_SHARPER * self.inner, _SHARPEST)


class ClassNewton(ClassWiseLearner):
    """Newton steps on the convex value ½ Σd + J(d) over d ≥ 0, with the exact curvature of the inner machine.

    Between changes of the set of free coefficients J is smooth, and its curvature follows from the free samples' blocks
    of the classes' matrices (`multiclass_curvature`). Where steps fail, at a kink, or where the blocks are too large,
    quasi-Newton steps take over.
    """

    def minimise(self, search: ClassSearch) -> None:
        here, failures = search.best, 0
        while here.value > _UNBALANCED * here.upper:
            here = search.evaluate(here.norms)
        while failures < _FAILURES:
            try:
                direction = self._direction(search, here)
            except np.linalg.LinAlgError:
                break
            if direction is None:
                break
            there = _walk(search, here, direction)
            failures = failures + 1 if there is None else 0
            if there is None:
                search.increase_precision()
                there = search.evaluate(here.d)
            here = there
        QuasiNewton(self.tol, self.max_iter).minimise(search)

    @staticmethod
    def _direction(search: ClassSearch, here: ClassWiseEvaluation) -> Array | None:
        """Return the step to the lowest point of the quadratic model; None if the model is too dear."""
        problem = search.problem
        program, beta = problem.machine.program, here.solution.beta
        if free_coefficients(program, beta).any(axis=1).sum() > LARGEST:
            return None
        H = multiclass_curvature(problem.combine(here.d), program, beta, here.products, single=search.tol >= SINGLE)
        return _lowest_point(here.d.ravel(), here.theta.ravel(), H).reshape(here.d.shape) - here.d


class QuasiNewton(ClassWiseLearner):
    """Limited-memory quasi-Newton steps on the convex value ½ Σd + J(d) over d ≥ 0."""

    def minimise(self, search: ClassSearch) -> None:
        from scipy.optimize import minimize

        def value(x: Array) -> tuple[float, Array]:
            there = search.evaluate(x.reshape(search.best.d.shape))
            return there.value, (0.5 - there.theta).ravel()

        while True:
            start = search.best.norms.ravel()
            options = {"maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0, "maxiter": search.max_iter}
            minimize(value, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start), options=options)
            # The line search gives up where the machine's own error hides the slope.
            search.increase_precision()


def _walk(search: ClassSearch, here: ClassWiseEvaluation, direction: Array) -> ClassWiseEvaluation | None:
    """Go along the direction as far as pays; None if nothing does."""
    slope = float(np.sum((0.5 - here.theta) * direction))
    # What the step should gain must show above the machine's own error, but for the last steps, which are too small.
    search.increase_precision_to(max(_VISIBLE * max(-slope, 0.0) / abs(here.value), _ENOUGH * search.tol))
    before, closing = search.gap, None

    def evaluate(size: float) -> ClassWiseEvaluation:
        nonlocal before
        before = search.gap
        return search.evaluate(here.d + size * direction)

    def hidden(size: float, there: ClassWiseEvaluation) -> bool:
        nonlocal closing
        # Differences below the machine's own error say nothing about the weights; the bounds may.
        if -size * slope > (here.solution.gap + there.solution.gap) * abs(here.value):
            return False
        closing = there if search.gap < _CLOSING * before else None
        return True

    found: ClassWiseEvaluation | None = line_search(
        evaluate,
        here,
        slope,
        value=lambda at: at.value,
        slope_at=lambda at: float(np.sum((0.5 - at.theta) * direction)),
        hidden=hidden,
        attempts=_ATTEMPTS,
    )
    return closing if found is None else found


def _lowest_point(d: Array, theta: Array, H: NDArray[np.float64]) -> Array:
    """Return where ½ Σd − ⟨θ, δ⟩ + ½ δᵀHδ is least over the weights d + δ that are to be trusted."""
    A = 0.5 * (H + H.T)
    A[np.diag_indices_from(A)] += _DAMPING * max(float(np.trace(A)) / len(A), 1e-300)
    floor = _trusted_floor(d, theta, np.diag(A))
    # The quadratic model over a box is itself a program of the one form all machines share.
    zero = np.zeros(len(d))
    box = Program(_pull(d, theta) + A @ (d - floor), zero, zero + _LONGEST * d.max(), zero, total=None)
    return np.asarray(floor + solve_smo(A, box, warm_start=d - floor, tol=_MODEL_TOL, max_iter=100_000).beta)


def _pull(d: Array, theta: Array) -> Array:
    """Return the slopes upward, θ − ½, made longer where a weight is far too small.

    There θ falls like d⁻², and θ^(−½) is nearly linear in d: Newton's method for the root of θ^(−½) − 2^½ has the same
    matrix and this right-hand side, and takes a step where the plain one would take many of half that length.
    """
    return np.where((d > 0) & (theta > 0.5), 2.0 * theta * (np.sqrt(2.0 * theta) - 1.0), theta - 0.5)


def _trusted_floor(d: Array, theta: Array, curvature: Array) -> Array:
    """Return how far down a step may take each weight.

    Near zero a slope is not linear in the weight but a power of it, θ ∝ d^(−p) with p = d H / θ between 0 and 2. Where
    the linear model would make a weight negative before its θ has risen to ½, the power's solution is the floor; what
    is too small to matter may become zero.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.clip(d * curvature / theta, 1e-3, 2.0)
        floor = np.where((1.0 + power) * theta < 0.5, d * (2.0 * theta) ** (1.0 / power), 0.0)
    return np.where(np.isfinite(floor) & (floor > _NEGLIGIBLE * d.mean()), np.minimum(floor, d), 0.0)
