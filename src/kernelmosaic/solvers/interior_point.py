"""Primal–dual interior points: for kernels in factors, K = Z Zᵀ, without forming K, and for few
samples in classes.

Of several classes, every coefficient is kept strictly inside its bounds by a barrier, which adds to
the diagonals of the classes' kernels; a step solves one system per class, and one more for the
multipliers of the samples' and the classes' sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs

from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Mask
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

#: How far towards the nearest bound a step goes.
SHORT = 0.995


@dataclass(frozen=True)
class PathEnd:
    """Where the method stopped.

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
    """Return how far along their changes positive numbers stay positive, for pairs of numbers and
    changes."""
    steps = []
    for room, change in pairs:
        xp, shrinks = backend_of(room).xp, change < 0
        steps.append(float(xp.where(shrinks, room / xp.where(shrinks, -change, 1.0), np.inf).min()))
    return min(steps)


def centring(mu: float, ahead: float) -> float:
    """Return the product to aim at, by Mehrotra's rule: from the mean product, and that after the
    predictor's step."""
    return mu * (ahead / mu) ** 3 if mu > 0 else 0.0


class Bounds:
    """Distances of variables to their lower and to their upper bounds, and the multipliers of both,
    on a first axis.

    Parameters
    ----------
    room, force : array of shape (2, …)
        The distances, one where there is no bound, and the multipliers, zero there.
    has : array of shape (2, …)
        Whether there is a bound.
    """

    def __init__(self, room: ArrayOrTensor, force: ArrayOrTensor, has: ArrayOrTensor) -> None:
        backend = backend_of(room)
        self.room, self.force, self.has, self.xp, self.count = (
            room,
            force,
            has,
            backend.xp,
            int(has.sum()),
        )
        # A variable that grows leaves its lower bound and nears its upper one.
        self.side = backend.asarray(np.array([1.0, -1.0]).reshape(2, *[1] * (room.ndim - 1)))

    def only(self, array: ArrayOrTensor) -> ArrayOrTensor:
        """Return an array with zeros where there is no bound."""
        return self.xp.where(self.has, array, 0.0)

    def stiffness(self) -> ArrayOrTensor:
        """Return what the bounds add to the diagonal of the Newton system."""
        return (self.force / self.room).sum(0)

    def pull(self, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return what they add to its right-hand side, for right-hand sides of the products."""
        return (self.side * (self.force + right / self.room)).sum(0)

    def change(self, dx: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
        """Return the changes of the multipliers with those of the variables."""
        return self.only((right - self.side * self.force * dx) / self.room)

    def products(self, dx: Any = 0.0, change: Any = 0.0, size: float = 0.0) -> ArrayOrTensor:
        """Return the products of distances and multipliers after a step."""
        return self.only((self.room + size * self.side * dx) * (self.force + size * change))

    def aimed(self, aim: float, dx: ArrayOrTensor, change: ArrayOrTensor) -> ArrayOrTensor:
        """Return the right-hand sides for products of one size, less what a predictor's step adds
        in second order."""
        return self.only(aim - self.products() - self.side * dx * change)

    def longest_step(self, dx: ArrayOrTensor, change: ArrayOrTensor) -> float:
        """Return how far all variables and multipliers stay on their side."""
        return longest_step((self.room, self.only(self.side * dx)), (self.force, change))


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

    References
    ----------
    Fine and Scheinberg (2001), "Efficient SVM training using low-rank kernel representations";
    Mehrotra (1992), "On the implementation of a primal-dual interior point method"; Gondzio (1996),
    "Multiple centrality corrections in a primal-dual method for linear programming".
    """

    def __init__(self, gram: FactoredGram, program: Program) -> None:
        self.gram, self.program, self.xp, self.n_iter = gram, program, gram.backend.xp, 0
        p, split = program, bool(program.epsilon)
        sign = np.array([[1.0], [-1.0]] if split else [[1.0]])
        upper = np.stack([p.upper, -p.lower]) if split else p.upper[np.newaxis]
        lower = np.zeros_like(upper) if split else p.lower[np.newaxis]
        cost, moves = p.epsilon - sign * p.target, upper > lower
        has = moves & np.isfinite(np.stack([lower, upper]))
        # A point well between the bounds, with multipliers that match the slopes and keep all
        # products of one size.
        start = middle(_mean_diagonal(gram), p, lower, upper, has)
        x = np.where(moves, start, np.where(np.isfinite(lower), lower, 0.0))
        x = x if p.total is None else of_total(p.total, x, sign, lower, upper)
        values = gram.apply(gram.adjoint((sign * x).sum(axis=0)))
        self.intercept = p.best_intercept(values)
        side = np.array([1.0, -1.0]).reshape(2, 1, 1)
        room = np.where(has, side * (x - np.stack([lower, upper])), 1.0)
        slope = p.ridge * x + sign * (values + self.intercept) + cost
        nearest, bounded = np.where(has, room, np.inf).min(axis=0), has.any(axis=0)
        mu = max(
            float(np.mean(np.abs(slope[bounded]) * nearest[bounded])) if bounded.any() else 0.0,
            1e-12,
        )
        force = np.where(has, np.maximum(side * slope, 0.0) + mu / room, 0.0)
        place = partial(gram.backend.asarray, dtype=None)
        self.sign, self.ridge, self.cost, self.x, self.values = map(
            place, (sign, p.ridge, cost, x, values)
        )
        self.moves, self.bounds = place(moves), Bounds(place(room), place(force), place(has))

    def follow(self, tol: float) -> PathEnd:
        """Go on from where the iterate is until the relative gap is at most `tol`, or rounding ends
        it."""
        # Features in single precision can overflow at the very end; what is not finite is never
        # moved to.
        with np.errstate(over="ignore", invalid="ignore"):
            while self.n_iter < 100 and self.gap() > tol:  # after so many, rounding is in the way
                moved = self.step()
                self.n_iter += int(moved or self.bounds.count == 0)
                if not moved:
                    break
        # A bound is met if its multiplier outgrows the distance to it.
        p, beta = self.program, self._fetch(self.beta)
        size = max(float(abs(self.x).max()), 1e-300)
        slope = max(
            float(np.abs(p.target).max(initial=0.0)),
            p.epsilon,
            float(abs(self.values).max()),
            1e-300,
        )
        near = self.bounds.has & (self.bounds.room / size < self.bounds.force / slope)
        low, high = self._fetch(near[0] | ~self.moves), self._fetch(near[1])
        if not p.epsilon:
            return PathEnd(beta, low[0], high[0], self.n_iter)
        zero = low.all(axis=0)
        return PathEnd(beta, high[1] | zero, high[0] | zero, self.n_iter)

    @property
    def beta(self) -> ArrayOrTensor:
        return (self.sign * self.x).sum(axis=0)

    def gap(self) -> float:
        """Return the relative duality gap at β, up to its violation of the sum."""
        p, beta, values = self.program, self._fetch(self.beta), self._fetch(self.values)
        quadratic = 0.5 * float(beta @ values)
        dual = p.linear_value(beta) - quadratic
        missing = 0.0 if p.total is None else abs(p.total - float(beta.sum()))
        # Further off its total, a gap means nothing.
        if missing > 1e-7 * max(abs(p.total or 0.0), float(np.abs(beta).sum())):
            return np.inf
        # What is missing would cost about this much.
        primal = p.primal_value(quadratic, values, self.intercept) + missing * abs(self.intercept)
        return relative_gap(primal, dual)

    def step(self) -> bool:
        """Take one predictor and corrector step; False when rounding is all that is left."""
        bounds = self.bounds
        stiffness = self.ridge + bounds.stiffness()
        moving = self.moves & (stiffness > 0)
        self.inverse_stiffness = self.xp.where(
            moving, 1.0 / self.xp.where(moving, stiffness, 1.0), 0.0
        )
        try:
            self._factorise(self.inverse_stiffness.sum(axis=0))
        except np.linalg.LinAlgError:  # overflown, in single precision
            return False
        products = bounds.products()
        predictor = self._direction(-products)
        if bounds.count == 0:
            return self._move(predictor, 1.0)
        size = min(bounds.longest_step(predictor.x, predictor.force), 1.0)
        ahead = float(bounds.products(predictor.x, predictor.force, size).sum()) / bounds.count
        aim = centring(float(products.sum()) / bounds.count, ahead)
        right = bounds.aimed(aim, predictor.x, predictor.force)
        chosen = self._direction(right)
        longest = bounds.longest_step(chosen.x, chosen.force)
        # Corrections of products that are too small or too large, which makes steps short, unless
        # the step is long enough; each is to make it longer by 0.3.
        for _ in range(3 if longest < 0.95 else 0):
            products, mu = (
                bounds.products(chosen.x, chosen.force, min(longest + 0.3, 1.0)),
                max(aim, ahead),
            )
            outside = self.xp.clip(products, 0.1 * mu, 10 * mu) - products
            right = right + bounds.only(self.xp.clip(outside, -10 * mu, None))
            other = self._direction(right)
            longer = bounds.longest_step(other.x, other.force)
            if longer < longest + 0.03:
                break
            chosen, longest = other, longer
        return self._move(chosen, min(SHORT * longest, 1.0))

    def _factorise(self, theta: ArrayOrTensor) -> None:
        """Factorise the matrix of w and the intercept; without an intercept that of w alone."""
        self.factor: Any = None  # its memory is that of the next one
        each = np.arange(self.gram.n_features)
        # Rows that add next to nothing are left out.
        M = self.gram.normal_matrix(self.xp.where(theta > 1e-14 * theta.mean(), theta, 0.0))
        M[each, each] += 1.0
        self.factor = Cholesky(M if self.program.total is not None else M[:-1, :-1])

    def _direction(self, right: ArrayOrTensor) -> _Direction:
        """Solve the Newton system for the given right-hand sides r of the products with the
        multipliers.

        (I + ZᵀΘZ) dw + ZᵀΘ1 db = Zᵀr,  1ᵀΘZ dw + 1ᵀΘ1 db = 1ᵀr − what β misses of the total.
        """
        slope = self.ridge * self.x + self.sign * (self.values + self.intercept) + self.cost
        pull = self.bounds.pull(right) - slope
        free = (self.sign * pull * self.inverse_stiffness).sum(axis=0)
        side, total, D = self.gram.adjoint(free), self.program.total, self.gram.n_features
        if total is not None:
            missing = total - float(self.beta.sum())
            side = self.xp.concatenate([side, (free.sum() - missing).reshape(1)])
        solution = self.factor.solve(side)
        change, intercept = (
            self.gram.apply(solution[:D]),
            0.0 if total is None else float(solution[D]),
        )
        dx = self.inverse_stiffness * (pull - self.sign * (change + intercept))
        return _Direction(dx, self.bounds.change(dx, right), intercept, change)

    def _move(self, d: _Direction, size: float) -> bool:
        # A step this short shows that rounding is in the way.
        if not np.isfinite(size) or size <= 1e-8 or not bool(self.xp.isfinite(d.x).all()):
            return False
        self.x = self.x + size * d.x
        bounds = self.bounds
        # Distances are kept by themselves: far from zero, x would round them away.
        bounds.room = self.xp.where(bounds.has, bounds.room + size * bounds.side * d.x, 1.0)
        bounds.force = bounds.force + size * d.force
        self.intercept += size * d.intercept
        self.values = self.values + size * d.values
        return bounds.count > 0

    def _fetch(self, array: ArrayOrTensor) -> AnyArray:
        return self.gram.backend.to_numpy(array)


def _mean_diagonal(gram: FactoredGram) -> float:
    """Return about the mean of the kernel's diagonal, that of evenly spread samples."""
    n = gram.n_samples
    sample = gram.rows(np.unique(np.linspace(0, n - 1, min(n, 200)).astype(np.intp)))
    return float(np.mean(np.einsum("ij,ij->i", sample, sample)))


def middle(mean_diagonal: float, p: Program, lower: Array, upper: Array, has: Mask) -> Array:
    """Return variables between their bounds, about as large as coefficients may become."""
    n, total = p.n_samples, p.total or 0.0
    size = mean_diagonal + float(p.ridge.mean()) or 1.0
    expected = max(float(np.abs(p.target).mean()) / size, abs(total) / n, 1e-12)
    width = np.where(has.all(axis=0), upper - lower, np.inf)
    # Where coefficients end up far from there, at a distant bound, the first step would be lost in
    # rounding.
    inside = np.minimum(
        0.5 * width, np.maximum(expected, 1e-5 * np.where(np.isfinite(width), width, 0.0))
    )
    base = np.where(has[0], lower, np.where(has[1], upper - 2 * inside, 0.0))
    return np.asarray(base + np.where(has.any(axis=0), inside, 0.0))


def of_total(total: float, x: Array, sign: Array, lower: Array, upper: Array) -> Array:
    """Shrink the coefficients of one sign, or let them grow towards their bounds, until the sum is
    met."""
    parts = sign * x
    need = total - float(parts.sum())
    shrinking = parts * need < 0
    size = float(np.abs(parts[shrinking]).sum())
    if 0 < abs(need) < size:
        return np.where(shrinking, x * (1.0 - abs(need) / size), x)
    grows = np.where(sign * need > 0, upper, lower) - x
    room = float(np.abs(grows).sum())
    return x + abs(need) / room * grows if abs(need) < room < np.inf else x


class _Direction(NamedTuple):
    """Changes of the variables, of their multipliers, of the intercept, and of Kβ."""

    x: ArrayOrTensor
    force: ArrayOrTensor
    intercept: float
    values: ArrayOrTensor


# Several classes, of a few samples: a few dozen steps, however badly the program is conditioned ---


def solve_interior(gram: ClassGram, program: MulticlassProgram, tol: float) -> Solution:
    """Solve a multi-class dual to a relative gap of `tol`, if rounding allows, by primal-dual
    interior points.

    Parameters
    ----------
    gram : ClassGram
        The classes' kernels; its matrix has the shape (1, n, n) or (classes, n, n).
    program : MulticlassProgram
        The rest of the problem.
    tol : float
        The relative duality gap at which to stop.

    Returns
    -------
    Solution
        The best that was seen; `n_iter` counts the steps.
    """
    K: AnyArray = gram.matrix
    counted = np.flatnonzero(program.sample_C > 0)
    # Constants keep the coefficients of a class without samples at zero.
    classes = np.flatnonzero((program.class_C > 0) | (not program.constants))

    def certified(x: Matrix, b: Vector, n_iter: int) -> Solution:
        beta, full = np.zeros(program.margins.shape), np.zeros(program.n_classes)
        beta[np.ix_(counted, classes)] = x
        beta, full[classes] = program.feasible(beta), b
        if program.constants:
            beta = program.balanced(beta)
        return assess(gram, program, beta, n_iter, near=full)

    best = most = certified(np.zeros((len(counted), len(classes))), np.zeros(len(classes)), 0)
    if len(counted) == 0 or len(classes) < 2:
        return best
    part = program.take(counted)
    part = replace(
        part, labels=np.searchsorted(classes, part.labels), margins=part.margins[:, classes]
    )
    each = classes if len(K) > 1 else np.zeros(1, dtype=np.intp)
    kernels = K[np.ix_(each, counted, counted)].astype(np.float64)
    n_iter = 0
    # Relative to the mean diagonal and the margins: what is added to the diagonals, so that a step
    # along which neither the kernel nor the barrier bends the value is short; and less, which
    # rounding bears less often, if these are too short.
    for jitter in (1e-10, 1e-13):
        state, left = _State(kernels, part, jitter), np.inf
        halved, since = np.inf, 0
        # Far below the gap asked for, coefficients that are not at their bounds are worth as much;
        # six certified steps that do not halve the gap show rounding.
        while n_iter < 80 and best.gap > tol and left > 1e-5 * tol and since < 6:
            with np.errstate(all="ignore"):
                moved = state.step()
            if not moved:
                break
            n_iter, left = n_iter + 1, state.gap()
            if left > 3.0 * tol:  # too far off to be certified
                continue
            # Coefficients that are exactly at their bounds are what makes a machine sparse.
            best = min(
                best,
                certified(state.scale * state.snapped(), state.b, n_iter),
                key=attrgetter("gap"),
            )
            inside = certified(state.scale * state.x, state.b, n_iter) if best.gap > tol else best
            most = min(most, inside, key=attrgetter("gap"))
            reached = min(best.gap, most.gap)
            halved, since = (reached, 0) if reached <= 0.5 * halved else (halved, since + 1)
        if min(best.gap, most.gap) <= tol:
            break
    return replace(
        best if best.gap <= tol else min(best, most, key=attrgetter("gap")), n_iter=n_iter
    )


class _State:
    """Coefficients in units of the mean C, their multipliers, and those of the sums."""

    def __init__(self, K: Array, program: MulticlassProgram, jitter: float) -> None:
        n, k = program.margins.shape
        self.scale = float(program.sample_C.mean())
        scaled = replace(program, sample_C=program.sample_C / self.scale)
        self.lower, self.upper = scaled.bounds()
        self.K, self.target, self.constants = self.scale * K, program.target, program.constants
        self.jitter = jitter * float(
            np.diagonal(self.K, axis1=1, axis2=2).mean() + np.abs(self.target).max()
        )
        # In the middle, every sample's coefficients sum to zero.
        self.x = np.where(
            self.upper > 0, 0.5 * self.upper, -0.5 * scaled.own_upper[:, np.newaxis] / (k - 1)
        )
        self.nu, self.b = np.zeros(n), np.zeros(k)
        force = max(1.0, float(np.abs(self.target - class_products(self.K, self.x)).max()))
        both = np.ones((2, n, k))
        self.bounds = Bounds(self._room(), force * both, both > 0)

    def _room(self) -> Array:
        return np.stack([self.x - self.lower, self.upper - self.x])

    def gap(self) -> float:
        """Return about the relative gap: what is left of the products, over the value."""
        left = np.sum(self.bounds.products())
        value = abs(
            np.sum(self.target * self.x) - 0.5 * np.sum(self.x * class_products(self.K, self.x))
        )
        return float(left / max(value, 1e-300))

    def snapped(self) -> Matrix:
        """Return the coefficients, those at their bounds whose multipliers are larger than the
        distance to these."""
        lower, upper = self.bounds.room < self.bounds.force
        return np.where(upper, self.upper, np.where(lower, self.lower, self.x))

    def step(self) -> bool:
        """Take a predictor and a corrector step; False if rounding is in the way."""
        bounds, (n, k) = self.bounds, self.x.shape
        D = bounds.stiffness() + self.jitter
        A = np.repeat(self.K, k, axis=0) if len(self.K) == 1 else self.K.copy()
        A[:, np.arange(n), np.arange(n)] += D.T
        try:
            for one in A:
                factorise(one)
                invert(one)
        except np.linalg.LinAlgError:
            return False
        inverses = np.tril(A) + np.tril(A, -1).transpose(0, 2, 1)
        ones = inverses.sum(axis=2)
        # Of the classes' sums the last follows from the others and the samples'.
        free = k - 1 if self.constants else 0
        S = np.empty((n + free, n + free))
        S[:n, :n] = inverses.sum(axis=0)
        S[:n, n:], S[n:, :n] = ones[:free].T, ones[:free]
        S[n:, n:] = np.diag(ones[:free].sum(axis=1))
        lu, pivots, singular = dgetrf(S, overwrite_a=True)
        if singular:
            return False
        slopes = self.target - class_products(self.K, self.x) - self.nu[:, np.newaxis] - self.b

        def solved(right: Matrix, sums: Vector, totals: Vector) -> tuple[Matrix, Vector, Vector]:
            alone = class_products(inverses, right)
            missing = np.concatenate(
                [alone.sum(axis=1) - sums, (alone.sum(axis=0) - totals)[:free]]
            )
            multipliers = dgetrs(lu, pivots, missing)[0]
            b = np.concatenate([multipliers[n:], np.zeros(k - free)])
            answer = class_products(inverses, multipliers[:n, np.newaxis] + b)
            return alone - answer, multipliers[:n], b

        def direction(right: Matrix, refined: int = 2) -> tuple[Matrix, Vector, Vector]:
            sums, totals = -self.x.sum(axis=1), -self.x.sum(axis=0)
            dx, dnu, db = solved(right, sums, totals)
            for _ in range(refined):
                left = right - class_products(self.K, dx) - D * dx - dnu[:, np.newaxis] - db
                lack, owed = sums - dx.sum(axis=1), totals - dx.sum(axis=0)
                # Where the system is well conditioned, the first solution is as exact as those that
                # follow.
                off = max(np.abs(lack).max(), np.abs(owed).max() if free else 0.0)
                if (
                    np.abs(left).max() <= 1e-10 * np.abs(right).max()
                    and off <= 1e-12 * np.abs(dx).max()
                ):
                    break
                more = solved(left, lack, owed)
                dx, dnu, db = dx + more[0], dnu + more[1], db + more[2]
            return dx, dnu, db

        dx, _, _ = direction(slopes, refined=0)
        products = bounds.products()
        change = bounds.change(dx, -products)
        size = min(1.0, bounds.longest_step(dx, change))
        mu, ahead = (float(one.mean()) for one in (products, bounds.products(dx, change, size)))
        right = bounds.aimed(centring(mu, ahead), dx, change)
        dx, dnu, db = direction(slopes + bounds.pull(right))
        change = bounds.change(dx, right)
        size = min(1.0, SHORT * bounds.longest_step(dx, change))
        if not (
            np.isfinite(size) and np.all(np.isfinite(dx)) and np.all(np.isfinite(dnu)) and mu > 0
        ):
            return False
        self.x = self.x + size * dx
        bounds.room, bounds.force = self._room(), bounds.force + size * change
        self.nu, self.b = self.nu + size * dnu, self.b + size * db
        return bool(np.all(bounds.room > 0))
