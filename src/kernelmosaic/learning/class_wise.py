"""One weight a class and kernel: the bilinear multi-class problem, looked at through its inner machine."""

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
from kernelmosaic.learning.multiclass import SINGLE
from kernelmosaic.learning.progress import gap_progress
from kernelmosaic.machines.multiclass import MulticlassMachine
from kernelmosaic.solvers import relative_gap
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
#: Sufficient decrease in the line search, and its most halvings.
_ARMIJO = 1e-4
_MAX_HALVINGS = 20

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClassWiseLook:
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

    def look(self, d: Array, start: ClassWiseLook | None, tol: float) -> ClassWiseLook:
        """Solve the machine at d to a relative gap of `tol`, with both bounds on the whole problem.

        The outputs of the coefficients to start from follow from an earlier look's products: no matrix need be read.
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
        return ClassWiseLook(d, solution, products, theta, value, upper, lower)


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
            search.look(np.ones((machine.program.n_classes, stack.n_kernels)))
            self.minimise(search)
        best = search.best
        weights, solution = best.rescaled()
        return Learned(weights, solution, best.upper, search.gap, search.problem.n_solves, search.history)

    @abstractmethod
    def minimise(self, search: ClassSearch) -> None:
        """Look at better and better weights; the search ends it, by `_Done`, when the gap or the limit is met."""


class _Done(Exception):
    """The gap is met, or the solves are used up."""


class ClassSearch:
    """The best weights looked at so far, the best lower bound, and how exactly the machine is solved."""

    def __init__(self, problem: ClassWiseProblem, tol: float, max_iter: int) -> None:
        self.problem = problem
        self.tol = tol
        self.max_iter = max_iter
        self.inner = _FIRST_TOL
        self.lower = -np.inf
        self.best: ClassWiseLook = None  # type: ignore[assignment]
        self.advance: Callable[[float], None] = lambda gap: None
        self._last: ClassWiseLook | None = None
        self.history: list[Iteration] = []

    @property
    def gap(self) -> float:
        return relative_gap(self.best.upper, self.lower)

    def look(self, d: Array) -> ClassWiseLook:
        """Look at d, from where the last look left τ; raises `_Done` when nothing more is asked."""
        look = self.problem.look(d, self._last, self.inner)
        self._last = look
        self.lower = max(self.lower, look.lower)
        self.best = look if not self.history or look.upper < self.best.upper else self.best
        self.history.append(Iteration(self.best.upper, self.gap))
        self.advance(self.gap)
        if self.gap <= self.tol or len(self.history) >= self.max_iter:
            raise _Done
        # An error δ in the machine's value is one of √δ in the slopes.
        self.increase_precision_to(max(self.gap**2, _ENOUGH * self.tol))
        return look

    def increase_precision_to(self, inner: float) -> None:
        """Solve the machine at least so exactly from now on, as far as rounding allows."""
        self.inner = min(self.inner, max(inner, _SHARPEST))

    def increase_precision(self) -> None:
        """Solve the machine more exactly from now on; raises `_Done` when rounding is all that is left."""
        if self.inner <= _SHARPEST:
            raise _Done
        self.inner = max(_SHARPER * self.inner, _SHARPEST)


class QuasiNewton(ClassWiseLearner):
    """Limited-memory quasi-Newton steps on the convex value ½ Σd + J(d) over d ≥ 0."""

    def minimise(self, search: ClassSearch) -> None:
        from scipy.optimize import minimize

        def value(x: Array) -> tuple[float, Array]:
            look = search.look(x.reshape(search.best.d.shape))
            return look.value, (0.5 - look.theta).ravel()

        while True:
            start = search.best.norms.ravel()
            options = {"maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0, "maxiter": search.max_iter}
            minimize(value, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start), options=options)
            # The line search gives up where the machine's own error hides the slope.
            search.increase_precision()


class ProjectedGradient(ClassWiseLearner):
    """The published scheme: gradient steps projected on d ≥ 0, a line search on the re-solved value, and rescaling."""

    def minimise(self, search: ClassSearch) -> None:
        here, step = search.look(search.best.norms), 1.0
        while True:
            slope = 0.5 - here.theta
            for _ in range(_MAX_HALVINGS):
                d = np.maximum(here.d - step * slope, 0.0)
                there = search.look(d)
                if there.value <= here.value + _ARMIJO * float(np.sum(slope * (d - here.d))):
                    break
                step *= 0.5
            else:
                search.increase_precision()
                step = 1.0
                continue
            # Rescaling balances the regulariser; the value there is asked of the machine, not taken from the slope.
            here, step = search.look(there.rescaled()[0]), 2.0 * step
