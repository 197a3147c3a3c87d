"""Newton steps on the weights of every class and kernel: a handful of machine solves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.learning.class_wise import ClassSearch, ClassWiseLearner, ClassWiseLook, QuasiNewton
from kernelmosaic.learning.multiclass import LARGEST, SINGLE
from kernelmosaic.solvers import Program, solve_smo
from kernelmosaic.solvers.multiclass_newton import free_coefficients, multiclass_curvature

#: While rescaling would lower the value by this factor, the weights are still of the wrong size altogether.
_UNBALANCED = 1.04
#: Sufficient decrease in the line search, and its most attempts.
_ARMIJO = 1e-4
_ATTEMPTS = 6
#: The machine is solved to this share of what a step should gain, though not below this share of the gap asked for.
_VISIBLE = 0.1
_ENOUGH = 1e-2
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


class ClassNewton(ClassWiseLearner):
    """Newton steps on the convex value ½ Σd + J(d) over d ≥ 0, with the exact curvature of the inner machine.

    Between changes of the set of free coefficients J is smooth, and its curvature follows from the free samples' blocks
    of the classes' matrices (`multiclass_curvature`). Where steps fail, at a kink, or where the blocks are too large,
    quasi-Newton steps take over.
    """

    def minimise(self, search: ClassSearch) -> None:
        here, failures = search.best, 0
        while here.value > _UNBALANCED * here.upper:
            here = search.look(here.norms)
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
                there = search.look(here.d)
            here = there
        QuasiNewton(self.tol, self.max_iter).minimise(search)

    @staticmethod
    def _direction(search: ClassSearch, here: ClassWiseLook) -> Array | None:
        """Return the step to the lowest point of the quadratic model; None if the model is too dear."""
        problem = search.problem
        program, beta = problem.machine.program, here.solution.beta
        if free_coefficients(program, beta).any(axis=1).sum() > LARGEST:
            return None
        H = multiclass_curvature(problem.combine(here.d), program, beta, here.products, single=search.tol >= SINGLE)
        return _lowest_point(here.d.ravel(), here.theta.ravel(), H).reshape(here.d.shape) - here.d


def _walk(search: ClassSearch, here: ClassWiseLook, direction: Array) -> ClassWiseLook | None:
    """Go along the direction as far as pays; None if nothing does."""
    slope = float(np.sum((0.5 - here.theta) * direction))
    size = 1.0
    # What the step should gain must show above the machine's own error, but for the last steps, which are too small.
    search.increase_precision_to(max(_VISIBLE * max(-slope, 0.0) / abs(here.value), _ENOUGH * search.tol))
    for _ in range(_ATTEMPTS if slope < 0 else 0):
        before = search.gap
        there = search.look(here.d + size * direction)
        if there.value <= here.value + _ARMIJO * size * slope:
            return there
        # Differences below the machine's own error say nothing about the weights; the bounds may.
        if -size * slope <= (here.solution.gap + there.solution.gap) * abs(here.value):
            return there if search.gap < _CLOSING * before else None
        rise = float(np.sum((0.5 - there.theta) * direction))
        size *= float(np.clip(slope / (slope - rise), 0.1, 0.7)) if rise > 0 else 0.5
    return None


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
