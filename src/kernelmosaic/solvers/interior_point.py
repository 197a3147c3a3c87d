"""Primal–dual interior points: for kernels in factors, K = Z Zᵀ, without forming K, and for few
samples of several classes.

For kernels in factors, `CentralPath` follows the central path of the program of one output. For
several classes, `solve_interior` solves the program of all classes: a barrier keeps every
coefficient strictly inside its bounds and adds to the diagonals of the classes' kernels. A step
solves one system per class, and one more for the multipliers of the samples' and the classes' sums.

Words: the *distances* of a variable are those to its lower and to its upper bound, and each has a
*multiplier*. Their products, which vanish at the solution, are called *products*; the right-hand
sides of the equations that the products shall meet are called *complementarity*. A *direction* is
the solution of a Newton system, a *step* the part of it that is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, Mask
from kernelmosaic.backend import backend_of
from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.gram.gram import ClassGram
from kernelmosaic.gram.linear_algebra import Cholesky
from kernelmosaic.solvers.multiclass_newton import class_products, factorise, invert
from kernelmosaic.solvers.program import (
    Matrix,
    MulticlassProgram,
    Program,
    Solution,
    Vector,
    assess,
    relative_gap,
)
from kernelmosaic.solvers.tuning import (
    CERTIFIED_CLASS_GAP,
    CLASS_PATH_JITTERS,
    CLASS_REFINEMENTS,
    CLASS_SUM_RESIDUAL,
    CLASS_SYSTEM_RESIDUAL,
    CORRECTION_AIM,
    DIAGONAL_SAMPLES,
    FINAL_CLASS_GAP,
    FRACTION_TO_BOUNDARY,
    LEAST_CORRECTION_GAIN,
    LEAST_START_WIDTH,
    LONG_ENOUGH_STEP,
    MOST_CLASS_PATH_STEPS,
    MOST_CORRECTIONS,
    MOST_IDLE_CLASS_STEPS,
    MOST_PATH_STEPS,
    NEGLIGIBLE_ROW,
    PATH_SUM_ERROR,
    PRODUCT_SPREAD,
    SHORTEST_PATH_STEP,
)


@dataclass(frozen=True)
class PathEnd:
    """The point at which a central path was left.

    Attributes
    ----------
    beta : ndarray of shape (n,)
        Coefficients strictly within their bounds.
    at_lower, at_upper : ndarray of shape (n,)
        Whether the path leads to the sample's lower or upper bound; with a tube, to zero where both
        are set.
    n_iter : int
        Newton matrices factorised.
    """

    beta: Vector
    at_lower: Mask
    at_upper: Mask
    n_iter: int


def longest_step(*pairs: tuple[Any, Any]) -> float:
    """Return the largest step along which positive numbers stay positive.

    Each pair holds the numbers and their changes in a step of size one. The result is infinite if
    no number shrinks.
    """
    steps = []
    for numbers, change in pairs:
        xp = backend_of(numbers).xp
        shrinks = change < 0
        ratios = xp.where(shrinks, numbers / xp.where(shrinks, -change, 1.0), np.inf)
        steps.append(float(ratios.min()))
    return min(steps)


def centring(mu: float, mu_ahead: float) -> float:
    """Return the product that the corrector aims at, by Mehrotra's rule.

    `mu` is the mean product of distances and multipliers now, `mu_ahead` that after the predictor's
    step.
    """
    if mu > 0:
        return mu * (mu_ahead / mu) ** 3
    return 0.0


class Bounds:
    """Distances of variables to their bounds, and the multipliers of the bounds.

    Parameters
    ----------
    distances, multipliers : array of shape (2, …)
        Of the lower bounds, then of the upper ones. Where a variable has no bound, its distance is
        one and its multiplier zero.
    exist : array of shape (2, …)
        Whether there is a bound.

    Attributes
    ----------
    side : array of shape (2, 1, …)
        The change of a distance as its variable grows: 1 to a lower bound, −1 to an upper one.
    count : int
        The number of bounds.
    """

    def __init__(
        self, distances: ArrayOrTensor, multipliers: ArrayOrTensor, exist: ArrayOrTensor
    ) -> None:
        backend = backend_of(distances)
        self.distances = distances
        self.multipliers = multipliers
        self.exist = exist
        self.xp = backend.xp
        self.count = int(exist.sum())
        ones = [1] * (distances.ndim - 1)
        self.side = backend.asarray(np.array([1.0, -1.0]).reshape(2, *ones))

    def zero_elsewhere(self, array: ArrayOrTensor) -> ArrayOrTensor:
        """Return an array of shape (2, …) with zeros where there is no bound."""
        return self.xp.where(self.exist, array, 0.0)

    def stiffness(self) -> ArrayOrTensor:
        """Return what the bounds add to the diagonal of the Newton system."""
        return (self.multipliers / self.distances).sum(0)

    def right_side(self, complementarity: ArrayOrTensor) -> ArrayOrTensor:
        """Return what the bounds add to the right-hand side of the Newton system."""
        return (self.side * (self.multipliers + complementarity / self.distances)).sum(0)

    def change(self, dx: ArrayOrTensor, complementarity: ArrayOrTensor) -> ArrayOrTensor:
        """Return the changes of the multipliers that go with changes dx of the variables."""
        return self.zero_elsewhere(
            (complementarity - self.side * self.multipliers * dx) / self.distances
        )

    def products(self, dx: Any = 0.0, change: Any = 0.0, size: float = 0.0) -> ArrayOrTensor:
        """Return the products of distances and multipliers after a step.

        `dx` and `change` are the changes of the variables and of the multipliers in a step of size
        one. By default the products are those of the current point.
        """
        return self.zero_elsewhere(
            (self.distances + size * self.side * dx) * (self.multipliers + size * change)
        )

    def complementarity(
        self, product: float, dx: ArrayOrTensor, change: ArrayOrTensor
    ) -> ArrayOrTensor:
        """Return the right-hand sides with which all products become `product`.

        The second-order term of the predictor's step, dx · change, is taken off.
        """
        return self.zero_elsewhere(product - self.products() - self.side * dx * change)

    def longest_step(self, dx: ArrayOrTensor, change: ArrayOrTensor) -> float:
        """Return the largest step after which distances and multipliers are still positive."""
        return longest_step(
            (self.distances, self.zero_elsewhere(self.side * dx)), (self.multipliers, change)
        )


# One output, kernels in factors -------------------------------------------------------------------


class CentralPath:
    """Mehrotra's predictor and corrector along the central path.

    The Newton system of the n coefficients is a diagonal plus ZZᵀ. Eliminating the diagonal leaves
    one of D + 1 unknowns, the change of w = Zᵀβ and of the intercept, whose matrix is I + [Z,
    1]ᵀΘ[Z, 1] with a diagonal Θ: a pass over the rows forms it, and nothing else costs more than a
    product with a vector.

    The iterate holds variables x between bounds, their multipliers, the intercept b, and Kβ.
    Without a tube x is β. With one, β = x₀ − x₁ is split into two parts that are not negative, each
    paying ε. Arrays have shape (parts, n). They are where the kernel's factors are, since a step is
    little but arithmetic on them.

    Parameters
    ----------
    gram : FactoredGram
        K = ZZᵀ.
    program : Program
        The dual program, which must have losses.

    Attributes
    ----------
    x : array of shape (parts, n)
        The variables.
    values : array of shape (n,)
        Kβ.
    intercept : float
        The multiplier of Σβ = total.
    n_iter : int
        Newton matrices factorised.

    References
    ----------
    Fine and Scheinberg (2001), "Efficient SVM training using low-rank kernel representations";
    Mehrotra (1992), "On the implementation of a primal-dual interior point method"; Gondzio (1996),
    "Multiple centrality corrections in a primal-dual method for linear programming".
    """

    def __init__(self, gram: FactoredGram, program: Program) -> None:
        self.gram = gram
        self.program = program
        self.xp = gram.backend.xp
        self.n_iter = 0

        # 1. The variables: minimise ½ βᵀKβ + ½ Σ ridge·x² + Σ cost·x with β = Σ_parts sign·x.
        p = program
        if p.epsilon:
            sign = np.array([[1.0], [-1.0]])
            upper = np.stack([p.upper, -p.lower])
            lower = np.zeros_like(upper)
        else:
            sign = np.array([[1.0]])
            upper = p.upper[np.newaxis]
            lower = p.lower[np.newaxis]
        cost = p.epsilon - sign * p.target
        can_move = upper > lower
        exist = can_move & np.isfinite(np.stack([lower, upper]))

        # 2. A start well between the bounds; variables that cannot move stay at their bounds.
        between = start_between_bounds(_mean_diagonal(gram), p, lower, upper, exist)
        x = np.where(can_move, between, np.where(np.isfinite(lower), lower, 0.0))
        if p.total is not None:
            x = move_to_total(p.total, x, sign, lower, upper)
        values = gram.apply(gram.adjoint((sign * x).sum(axis=0)))
        self.intercept = p.best_intercept(values)

        # 3. Multipliers that match the gradient and keep all products of one size.
        side = np.array([1.0, -1.0]).reshape(2, 1, 1)
        distances = np.where(exist, side * (x - np.stack([lower, upper])), 1.0)
        gradient = p.ridge * x + sign * (values + self.intercept) + cost
        nearest = np.where(exist, distances, np.inf).min(axis=0)
        is_bounded = exist.any(axis=0)
        mean_product = 0.0
        if is_bounded.any():
            mean_product = float(np.mean(np.abs(gradient[is_bounded]) * nearest[is_bounded]))
        mu = max(mean_product, 1e-12)
        multipliers = np.where(exist, np.maximum(side * gradient, 0.0) + mu / distances, 0.0)

        # 4. All arrays where the factors are.
        place = partial(gram.backend.asarray, dtype=None)
        self.sign = place(sign)
        self.ridge = place(p.ridge)
        self.cost = place(cost)
        self.x = place(x)
        self.values = place(values)
        self.can_move = place(can_move)
        self.bounds = Bounds(place(distances), place(multipliers), place(exist))

    def follow(self, tol: float) -> PathEnd:
        """Take steps until the relative gap is at most `tol`, and return the point reached.

        A path that was followed before is gone on with from its current point. Steps end above the
        tolerance if rounding prevents progress.
        """
        # Features in single precision can overflow at the end of a path; `_move` refuses steps that
        # are not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            while self.n_iter < MOST_PATH_STEPS and self.gap() > tol:
                moved = self.step()
                # The one step of a program without bounds is exact, so it is the last.
                is_exact = self.bounds.count == 0
                self.n_iter += int(moved or is_exact)
                if not moved:
                    break
        return self._path_end()

    def _path_end(self) -> PathEnd:
        """Return β with the bounds that the path leads to.

        It leads to a bound whose multiplier is larger than the distance, each relative to the
        largest numbers of its kind.
        """
        p = self.program
        bounds = self.bounds
        beta = self._fetch(self.beta)
        largest_x = max(float(abs(self.x).max()), 1e-300)
        largest_gradient = max(
            float(np.abs(p.target).max(initial=0.0)),
            p.epsilon,
            float(abs(self.values).max()),
            1e-300,
        )
        is_met = bounds.exist & (
            bounds.distances / largest_x < bounds.multipliers / largest_gradient
        )
        x_at_lower = self._fetch(is_met[0] | ~self.can_move)
        x_at_upper = self._fetch(is_met[1])
        if not p.epsilon:
            return PathEnd(beta, x_at_lower[0], x_at_upper[0], self.n_iter)
        # β = x₀ − x₁ is at its upper bound where x₀ is, and at its lower bound where x₁ is at its
        # upper one.
        is_zero = x_at_lower.all(axis=0)
        return PathEnd(beta, x_at_upper[1] | is_zero, x_at_upper[0] | is_zero, self.n_iter)

    @property
    def beta(self) -> ArrayOrTensor:
        """The coefficients, where the factors are."""
        return (self.sign * self.x).sum(axis=0)

    def gap(self) -> float:
        """Return the relative duality gap at β, infinite while Σβ is far from the total."""
        p = self.program
        beta = self._fetch(self.beta)
        values = self._fetch(self.values)
        quadratic = 0.5 * float(beta @ values)
        dual = p.linear_value(beta) - quadratic
        missing = 0.0
        if p.total is not None:
            missing = abs(p.total - float(beta.sum()))
        if missing > PATH_SUM_ERROR * max(abs(p.total or 0.0), float(np.abs(beta).sum())):
            return np.inf
        # Meeting the total would change the value by about the missing sum times its multiplier.
        primal = p.primal_value(quadratic, values, self.intercept) + missing * abs(self.intercept)
        return relative_gap(primal, dual)

    def step(self) -> bool:
        """Take one predictor and corrector step; return whether another step can help.

        It cannot where rounding prevented the step, nor where there are no bounds: one Newton step
        is exact then.
        """
        bounds = self.bounds

        # 1. Factorise the Newton matrix.
        stiffness = self.ridge + bounds.stiffness()
        moving = self.can_move & (stiffness > 0)
        self.inverse_stiffness = self.xp.where(
            moving, 1.0 / self.xp.where(moving, stiffness, 1.0), 0.0
        )
        try:
            self._factorise(self.inverse_stiffness.sum(axis=0))
        except np.linalg.LinAlgError:
            # The matrix has overflown in single precision.
            return False

        # 2. The predictor aims at products of zero.
        products = bounds.products()
        predictor = self._direction(-products)
        if bounds.count == 0:
            return self._move(predictor, 1.0)

        # 3. The corrector aims at equal products, the smaller the further the predictor leads.
        size = min(bounds.longest_step(predictor.x, predictor.multipliers), 1.0)
        products_ahead = bounds.products(predictor.x, predictor.multipliers, size)
        mu_ahead = float(products_ahead.sum()) / bounds.count
        product = centring(float(products.sum()) / bounds.count, mu_ahead)
        complementarity = bounds.complementarity(product, predictor.x, predictor.multipliers)
        direction = self._direction(complementarity)
        longest = bounds.longest_step(direction.x, direction.multipliers)

        # 4. Further corrections make a step that is too short longer.
        if longest < LONG_ENOUGH_STEP:
            direction, longest = self._corrected(
                direction, longest, complementarity, max(product, mu_ahead)
            )
        return self._move(direction, min(FRACTION_TO_BOUNDARY * longest, 1.0))

    def _corrected(
        self, direction: _Direction, longest: float, complementarity: ArrayOrTensor, mu: float
    ) -> tuple[_Direction, float]:
        """Return a direction along which the bounds allow a longer step, and its longest step.

        Each correction takes a trial step that is longer than the bounds allow, and moves the
        products that come out far from `mu` towards it (Gondzio 1996).
        """
        bounds = self.bounds
        for _ in range(MOST_CORRECTIONS):
            trial_size = min(longest + CORRECTION_AIM, 1.0)
            products = bounds.products(direction.x, direction.multipliers, trial_size)
            nearest = self.xp.clip(products, 1 / PRODUCT_SPREAD * mu, PRODUCT_SPREAD * mu)
            correction = self.xp.clip(nearest - products, -PRODUCT_SPREAD * mu, None)
            complementarity = complementarity + bounds.zero_elsewhere(correction)
            trial = self._direction(complementarity)
            trial_longest = bounds.longest_step(trial.x, trial.multipliers)
            if trial_longest < longest + LEAST_CORRECTION_GAIN:
                break
            direction = trial
            longest = trial_longest
        return direction, longest

    def _factorise(self, theta: ArrayOrTensor) -> None:
        """Set the factor of I + [Z, 1]ᵀΘ[Z, 1]; without an intercept that of I + ZᵀΘZ."""
        # The last factor's memory is free before the next matrix is formed.
        self.factor: Any = None
        diagonal = np.arange(self.gram.n_features)
        theta = self.xp.where(theta > NEGLIGIBLE_ROW * theta.mean(), theta, 0.0)
        M = self.gram.normal_matrix(theta)
        M[diagonal, diagonal] += 1.0
        if self.program.total is None:
            M = M[:-1, :-1]
        self.factor = Cholesky(M)

    def _direction(self, complementarity: ArrayOrTensor) -> _Direction:
        """Return the solution of the Newton system for right-hand sides of the products.

        With r the right-hand sides of the samples, the changes of w and of the intercept solve

            (I + ZᵀΘZ) dw + ZᵀΘ1 db = Zᵀr,  1ᵀΘZ dw + 1ᵀΘ1 db = 1ᵀr − (total − Σβ).
        """
        total = self.program.total
        D = self.gram.n_features
        gradient = self.ridge * self.x + self.sign * (self.values + self.intercept) + self.cost
        descent = self.bounds.right_side(complementarity) - gradient
        r = (self.sign * descent * self.inverse_stiffness).sum(axis=0)
        right = self.gram.adjoint(r)
        if total is not None:
            missing = total - float(self.beta.sum())
            right = self.xp.concatenate([right, (r.sum() - missing).reshape(1)])
        solution = self.factor.solve(right)
        values = self.gram.apply(solution[:D])
        intercept = 0.0
        if total is not None:
            intercept = float(solution[D])
        dx = self.inverse_stiffness * (descent - self.sign * (values + intercept))
        return _Direction(dx, self.bounds.change(dx, complementarity), intercept, values)

    def _move(self, d: _Direction, size: float) -> bool:
        """Take a step of this size along a direction; return whether another step can help."""
        is_finite = np.isfinite(size) and bool(self.xp.isfinite(d.x).all())
        if not is_finite or size <= SHORTEST_PATH_STEP:
            return False
        self.x = self.x + size * d.x
        bounds = self.bounds
        # The distances are not computed from x, which would round them away far from zero.
        bounds.distances = self.xp.where(
            bounds.exist, bounds.distances + size * bounds.side * d.x, 1.0
        )
        bounds.multipliers = bounds.multipliers + size * d.multipliers
        self.intercept += size * d.intercept
        self.values = self.values + size * d.values
        return bounds.count > 0

    def _fetch(self, array: ArrayOrTensor) -> AnyArray:
        return self.gram.backend.to_numpy(array)


class _Direction(NamedTuple):
    """Changes of the variables x, of their multipliers, of the intercept, and of Kβ."""

    x: ArrayOrTensor
    multipliers: ArrayOrTensor
    intercept: float
    values: ArrayOrTensor


def _mean_diagonal(gram: FactoredGram) -> float:
    """Return about the mean of the kernel's diagonal: that of evenly spread samples."""
    n = gram.n_samples
    places = np.linspace(0, n - 1, min(n, DIAGONAL_SAMPLES)).astype(np.intp)
    sample = gram.rows(np.unique(places))
    return float(np.mean(np.einsum("ij,ij->i", sample, sample)))


def start_between_bounds(
    mean_diagonal: float, p: Program, lower: Array, upper: Array, exist: Mask
) -> Array:
    """Return variables between their bounds, about as large as coefficients may become.

    Parameters
    ----------
    mean_diagonal : float
        The mean of the kernel's diagonal.
    p : Program
        The dual program.
    lower, upper : ndarray of shape (parts, n)
        The bounds of the variables.
    exist : ndarray of shape (2, parts, n)
        Which lower and which upper bounds are finite.

    Returns
    -------
    ndarray of shape (parts, n)
    """
    n = p.n_samples
    total = p.total or 0.0
    mean_curvature = mean_diagonal + float(p.ridge.mean()) or 1.0
    expected = max(float(np.abs(p.target).mean()) / mean_curvature, abs(total) / n, 1e-12)
    width = np.where(exist.all(axis=0), upper - lower, np.inf)
    # A coefficient may end at a bound far from the start. The first step would then be lost in the
    # rounding of a start that is very near to the other bound.
    least = LEAST_START_WIDTH * np.where(np.isfinite(width), width, 0.0)
    distance = np.minimum(0.5 * width, np.maximum(expected, least))
    base = np.where(exist[0], lower, np.where(exist[1], upper - 2 * distance, 0.0))
    return np.asarray(base + np.where(exist.any(axis=0), distance, 0.0))


def move_to_total(total: float, x: Array, sign: Array, lower: Array, upper: Array) -> Array:
    """Return variables near x with Σ sign·x = total.

    The coefficients of the sign that is in excess shrink, all by the same factor. If that does not
    suffice, coefficients grow towards their bounds, each by the same fraction of its distance; x is
    returned unchanged where no finite distances suffice.
    """
    parts = sign * x
    needed = total - float(parts.sum())
    shrinking = parts * needed < 0
    largest_reduction = float(np.abs(parts[shrinking]).sum())
    if 0 < abs(needed) < largest_reduction:
        return np.where(shrinking, x * (1.0 - abs(needed) / largest_reduction), x)
    distances = np.where(sign * needed > 0, upper, lower) - x
    largest_growth = float(np.abs(distances).sum())
    if abs(needed) < largest_growth < np.inf:
        return x + abs(needed) / largest_growth * distances
    return x


# Several classes, few samples: a few dozen steps, however badly the program is conditioned --------


def solve_interior(gram: ClassGram, program: MulticlassProgram, tol: float) -> Solution:
    """Solve a multi-class dual by primal-dual interior points, to a relative gap of `tol`.

    The gap of the result is larger if rounding prevents more.

    Parameters
    ----------
    gram : ClassGram
        The classes' kernels; its matrix has the shape (1, n, n) or (classes, n, n).
    program : MulticlassProgram
        The program of several classes.
    tol : float
        The relative duality gap at which to stop.

    Returns
    -------
    Solution
        The best solution of all steps; `n_iter` counts the steps.
    """
    problem = _ActiveProblem(gram, program)
    by_gap = attrgetter("gap")
    # Coefficients that are exactly at their bounds make a machine sparse: the solution at the
    # bounds is preferred to the one strictly inside them if its gap is within the tolerance.
    best_at_bounds = problem.zero_solution()
    best_inside = best_at_bounds
    if not problem.has_choice:
        return best_at_bounds

    kernels = problem.kernels()
    active_program = problem.active_program()
    n_iter = 0
    for jitter in CLASS_PATH_JITTERS:
        path = _ClassPath(kernels, active_program, jitter)
        path_gap = np.inf
        gap_to_halve = np.inf
        n_idle = 0
        while (
            n_iter < MOST_CLASS_PATH_STEPS
            and best_at_bounds.gap > tol
            and path_gap > FINAL_CLASS_GAP * tol
            and n_idle < MOST_IDLE_CLASS_STEPS
        ):
            # 1. A step.
            with np.errstate(all="ignore"):
                moved = path.step()
            if not moved:
                break
            n_iter += 1
            path_gap = path.gap()
            if path_gap > CERTIFIED_CLASS_GAP * tol:
                continue

            # 2. Its certificates: with coefficients at their bounds, then strictly inside.
            at_bounds = problem.certify(path.scale * path.moved_to_bounds(), path.b, n_iter)
            best_at_bounds = min(best_at_bounds, at_bounds, key=by_gap)
            inside = best_at_bounds
            if best_at_bounds.gap > tol:
                inside = problem.certify(path.scale * path.x, path.b, n_iter)
            best_inside = min(best_inside, inside, key=by_gap)

            # 3. Steps in a row that do not halve the gap show rounding.
            best_gap = min(best_at_bounds.gap, best_inside.gap)
            if best_gap <= 0.5 * gap_to_halve:
                gap_to_halve = best_gap
                n_idle = 0
            else:
                n_idle += 1
        if min(best_at_bounds.gap, best_inside.gap) <= tol:
            break

    if best_at_bounds.gap <= tol:
        return replace(best_at_bounds, n_iter=n_iter)
    return replace(min(best_at_bounds, best_inside, key=by_gap), n_iter=n_iter)


class _ActiveProblem:
    """A multi-class problem without the samples and classes whose coefficients must be zero.

    Attributes
    ----------
    samples : ndarray
        Those whose C is positive.
    classes : ndarray
        With constants those that have samples: constants keep the coefficients of a class without
        samples at zero. Without constants all classes.
    """

    def __init__(self, gram: ClassGram, program: MulticlassProgram) -> None:
        self.gram = gram
        self.program = program
        self.samples: Indices = np.flatnonzero(program.sample_C > 0)
        self.classes: Indices = np.flatnonzero((program.class_C > 0) | (not program.constants))

    @property
    def has_choice(self) -> bool:
        """Whether any coefficient may differ from zero."""
        return len(self.samples) > 0 and len(self.classes) >= 2

    def kernels(self) -> Array:
        """Return the kernels of the active samples, of shape (1, q, q) or (classes, q, q)."""
        K: AnyArray = self.gram.matrix
        kernels = self.classes
        if len(K) == 1:
            kernels = np.zeros(1, dtype=np.intp)
        return K[np.ix_(kernels, self.samples, self.samples)].astype(np.float64)

    def active_program(self) -> MulticlassProgram:
        """Return the program of the active samples and classes."""
        program = self.program.take(self.samples)
        return replace(
            program,
            labels=np.searchsorted(self.classes, program.labels),
            margins=program.margins[:, self.classes],
        )

    def zero_solution(self) -> Solution:
        """Return β = 0 as a solution of the whole problem."""
        n, k = len(self.samples), len(self.classes)
        return self.certify(np.zeros((n, k)), np.zeros(k), 0)

    def certify(self, x: Matrix, b: Vector, n_iter: int) -> Solution:
        """Return coefficients of the active problem as a solution of the whole one.

        `b` are the constants near which those of the solution are searched.
        """
        program = self.program
        beta = np.zeros(program.margins.shape)
        beta[np.ix_(self.samples, self.classes)] = x
        beta = program.feasible(beta)
        if program.constants:
            beta = program.balanced(beta)
        constants = np.zeros(program.n_classes)
        constants[self.classes] = b
        return assess(self.gram, program, beta, n_iter, near=constants)


class _ClassPath:
    """The central path of a multi-class program.

    Parameters
    ----------
    K : ndarray of shape (1, n, n) or (classes, n, n)
        The kernels.
    program : MulticlassProgram
        The program, in which every sample has a positive C.
    jitter : float
        What is added to the diagonals, relative to their mean and the margins.

    Attributes
    ----------
    scale : float
        The mean C, in units of which the coefficients x are.
    x : ndarray of shape (n, classes)
        The coefficients, strictly inside their bounds.
    nu : ndarray of shape (n,)
        Multipliers of the samples' sums.
    b : ndarray of shape (classes,)
        Multipliers of the classes' sums: the constants.
    """

    def __init__(self, K: Array, program: MulticlassProgram, jitter: float) -> None:
        n, k = program.margins.shape
        self.scale = float(program.sample_C.mean())
        scaled = replace(program, sample_C=program.sample_C / self.scale)
        self.lower, self.upper = scaled.bounds()
        self.K = self.scale * K
        self.target = program.target
        self.constants = program.constants
        mean_diagonal = np.diagonal(self.K, axis1=1, axis2=2).mean()
        self.jitter = jitter * float(mean_diagonal + np.abs(self.target).max())
        # Every sample's coefficients sum to zero at the start: that of its class is half of its
        # upper bound, the others have equal parts of the opposite.
        self.x = np.where(
            self.upper > 0, 0.5 * self.upper, -0.5 * scaled.own_upper[:, np.newaxis] / (k - 1)
        )
        self.nu = np.zeros(n)
        self.b = np.zeros(k)
        largest_gradient = float(np.abs(self.target - class_products(self.K, self.x)).max())
        ones = np.ones((2, n, k))
        self.bounds = Bounds(self._distances(), max(1.0, largest_gradient) * ones, ones > 0)

    def _distances(self) -> Array:
        return np.stack([self.x - self.lower, self.upper - self.x])

    def gap(self) -> float:
        """Return an estimate of the relative gap: the sum of all products over the value."""
        gap = np.sum(self.bounds.products())
        quadratic = 0.5 * np.sum(self.x * class_products(self.K, self.x))
        value = abs(np.sum(self.target * self.x) - quadratic)
        return float(gap / max(value, 1e-300))

    def moved_to_bounds(self) -> Matrix:
        """Return x with each coefficient at the bound whose multiplier exceeds the distance."""
        at_lower, at_upper = self.bounds.distances < self.bounds.multipliers
        return np.where(at_upper, self.upper, np.where(at_lower, self.lower, self.x))

    def step(self) -> bool:
        """Take a predictor and a corrector step; return False where rounding prevents it."""
        bounds = self.bounds

        # 1. Factorise the Newton system.
        try:
            system = _ClassSystem(self.K, bounds.stiffness() + self.jitter, self.constants)
        except np.linalg.LinAlgError:
            return False
        gradient = self.target - class_products(self.K, self.x) - self.nu[:, np.newaxis] - self.b
        sums = -self.x.sum(axis=1)
        totals = -self.x.sum(axis=0)

        # 2. The predictor aims at products of zero.
        dx, _, _ = system.solve(gradient, sums, totals)
        products = bounds.products()
        change = bounds.change(dx, -products)
        size = min(1.0, bounds.longest_step(dx, change))
        mu = float(products.mean())
        mu_ahead = float(bounds.products(dx, change, size).mean())

        # 3. The corrector aims at equal products.
        complementarity = bounds.complementarity(centring(mu, mu_ahead), dx, change)
        dx, dnu, db = system.solve_refined(
            gradient + bounds.right_side(complementarity), sums, totals
        )
        change = bounds.change(dx, complementarity)
        size = min(1.0, FRACTION_TO_BOUNDARY * bounds.longest_step(dx, change))
        is_finite = np.isfinite(size) and np.all(np.isfinite(dx)) and np.all(np.isfinite(dnu))
        if not is_finite or not mu > 0:
            return False

        # 4. The step.
        self.x = self.x + size * dx
        self.nu = self.nu + size * dnu
        self.b = self.b + size * db
        bounds.distances = self._distances()
        bounds.multipliers = bounds.multipliers + size * change
        return bool(np.all(bounds.distances > 0))


class _ClassSystem:
    """The Newton system of a multi-class program, factorised.

    For the changes dx of the coefficients, dν of the samples' multipliers and db of the classes',

        K_c dx_c + D_c dx_c + dν + db_c 1 = right_c,   Σ_c dx_ic = sums_i,   Σ_i dx_ic = totals_c,

    where the last equations, and db, are those of constants only.

    Parameters
    ----------
    K : ndarray of shape (1, n, n) or (classes, n, n)
        The kernels.
    D : ndarray of shape (n, classes)
        What is added to their diagonals.
    constants : bool
        Whether every class has a constant.

    Raises
    ------
    numpy.linalg.LinAlgError
        If rounding makes the system singular.
    """

    def __init__(self, K: Array, D: Matrix, constants: bool) -> None:
        n, k = D.shape
        self.K = K
        self.D = D

        # 1. The inverse of every class's kernel and diagonal.
        A = np.repeat(K, k, axis=0) if len(K) == 1 else K.copy()
        A[:, np.arange(n), np.arange(n)] += D.T
        for A_c in A:
            factorise(A_c)
            invert(A_c)
        self.inverses = np.tril(A) + np.tril(A, -1).transpose(0, 2, 1)

        # 2. The system of the multipliers. The last class's sum follows from the sums of the other
        #    classes and those of the samples.
        self.n_constants = 0
        if constants:
            self.n_constants = k - 1
        m = self.n_constants
        inverse_sums = self.inverses.sum(axis=2)[:m]
        S = np.empty((n + m, n + m))
        S[:n, :n] = self.inverses.sum(axis=0)
        S[:n, n:] = inverse_sums.T
        S[n:, :n] = inverse_sums
        S[n:, n:] = np.diag(inverse_sums.sum(axis=1))
        self.lu, self.pivots, singular = dgetrf(S, overwrite_a=True)
        if singular:
            raise np.linalg.LinAlgError("the system of the multipliers is singular.")

    def solve(self, right: Matrix, sums: Vector, totals: Vector) -> tuple[Matrix, Vector, Vector]:
        """Return dx of shape (n, classes), dν of shape (n,) and db of shape (classes,)."""
        n, k = right.shape
        m = self.n_constants
        unconstrained = class_products(self.inverses, right)
        excess = np.concatenate(
            [unconstrained.sum(axis=1) - sums, (unconstrained.sum(axis=0) - totals)[:m]]
        )
        multipliers = dgetrs(self.lu, self.pivots, excess)[0]
        db = np.concatenate([multipliers[n:], np.zeros(k - m)])
        response = class_products(self.inverses, multipliers[:n, np.newaxis] + db)
        return unconstrained - response, multipliers[:n], db

    def solve_refined(
        self, right: Matrix, sums: Vector, totals: Vector
    ) -> tuple[Matrix, Vector, Vector]:
        """Return the solution as `solve` does, made more exact by iterative refinement."""
        dx, dnu, db = self.solve(right, sums, totals)
        for _ in range(CLASS_REFINEMENTS):
            residual = right - class_products(self.K, dx) - self.D * dx - dnu[:, np.newaxis] - db
            missing_sums = sums - dx.sum(axis=1)
            missing_totals = totals - dx.sum(axis=0)
            largest_missing = np.abs(missing_sums).max()
            if self.n_constants:
                largest_missing = max(largest_missing, np.abs(missing_totals).max())
            # A well-conditioned system is solved to rounding at once.
            is_solved = np.abs(residual).max() <= CLASS_SYSTEM_RESIDUAL * np.abs(right).max()
            are_sums_met = largest_missing <= CLASS_SUM_RESIDUAL * np.abs(dx).max()
            if is_solved and are_sums_met:
                break
            more_dx, more_dnu, more_db = self.solve(residual, missing_sums, missing_totals)
            dx = dx + more_dx
            dnu = dnu + more_dnu
            db = db + more_db
        return dx, dnu, db
