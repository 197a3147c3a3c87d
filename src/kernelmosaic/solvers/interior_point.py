"""The dual program for a kernel in factors, K = Z Zᵀ: a primal–dual interior-point method that never forms K."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kernelmosaic.gram.factored import FactoredGram
from kernelmosaic.solvers.program import Program, Vector, relative_gap

Array = NDArray[np.float64]

#: How far towards the nearest bound a step goes.
_SHORT = 0.995
#: Corrections of outlying products, how much longer each is to make the step, and when a step is long enough.
_CORRECTORS, _FURTHER, _LONG = 3, 0.3, 0.95
#: Variables start at least this share of the distance between their bounds away from them.
_LEAST_START = 1e-5
#: Iterations after which rounding, not the problem, is in the way.
_MAX_ITER = 100
#: ... and after which a step this short tells the same.
_TINY_STEP = 1e-8
#: Relative to the sizes summed: how near to the total the sum must be for a gap to mean anything.
_MET = 1e-7
#: Rows that add less than this share of the mean to the Newton matrix are left out of it.
_NEGLIGIBLE = 1e-14
#: Added to the Newton matrix, relative to its diagonal, until it can be factorised.
_JITTER = 1e-14


@dataclass(frozen=True)
class Interior:
    """Where the method stopped.

    Attributes
    ----------
    beta : ndarray of shape (n,)
        Coefficients strictly within their bounds.
    at_lower, at_upper : ndarray of shape (n,)
        Whether the path leads to the sample's lower or upper bound; with a tube, to zero where both say so.
    gap : float
        Relative duality gap at β, up to its violation of the sum.
    n_iter : int
        Newton matrices factorised.
    """

    beta: Vector
    at_lower: NDArray[np.bool_]
    at_upper: NDArray[np.bool_]
    gap: float
    n_iter: int


def follow_central_path(gram: FactoredGram, program: Program, tol: float) -> Interior:
    """Follow the central path by Mehrotra's predictor and corrector until the relative gap is at most `tol`.

    The Newton system of the n coefficients is a diagonal plus ZZᵀ. Eliminating the diagonal leaves one of D + 1
    unknowns, the change of w = Zᵀβ and of the intercept, whose matrix is I + [Z, 1]ᵀΘ[Z, 1] with a diagonal Θ: a pass
    over the rows forms it, and nothing else costs more than a product with a vector.

    References
    ----------
    Fine and Scheinberg (2001), "Efficient SVM training using low-rank kernel representations"; Mehrotra (1992), "On the
    implementation of a primal-dual interior point method"; Gondzio (1996), "Multiple centrality corrections in a
    primal-dual method for linear programming".
    """
    return CentralPath(gram, program).follow(tol)


class CentralPath:
    """The iterate: variables x between bounds, their multipliers, the intercept b, and Kβ.

    Without a tube x is β. With one, β = x₀ − x₁ is split into two parts that are not negative, each paying ε. Arrays
    have shape (parts, n).
    """

    def __init__(self, gram: FactoredGram, program: Program) -> None:
        self.gram, self.program = gram, program
        p = program
        if p.epsilon:
            self.sign = np.array([[1.0], [-1.0]])
            self.upper = np.stack([p.upper, -p.lower])
            self.lower = np.zeros_like(self.upper)
        else:
            self.sign = np.array([[1.0]])
            self.lower, self.upper = p.lower[np.newaxis], p.upper[np.newaxis]
        self.cost = p.epsilon - self.sign * p.target
        self.moves = self.upper > self.lower
        self.has_lower = self.moves & np.isfinite(self.lower)
        self.has_upper = self.moves & np.isfinite(self.upper)
        self.n_bounds = int(self.has_lower.sum() + self.has_upper.sum())
        self.n_iter = 0
        self._start()

    def follow(self, tol: float) -> Interior:
        """Go on from where the iterate is until the relative gap is at most `tol`, or rounding ends it."""
        # Features in single precision can overflow at the very end; what is not finite is never moved to.
        with np.errstate(over="ignore", invalid="ignore"):
            while self.n_iter < _MAX_ITER and self.gap() > tol:
                try:
                    moved = self.step()
                except LinAlgError:  # overflown, in single precision
                    break
                self.n_iter += int(moved or self.n_bounds == 0)
                if not moved:
                    break
        return self.stop(self.n_iter)

    def _start(self) -> None:
        """Begin well between the bounds, with multipliers that match the slopes and keep all products of one size."""
        p = self.program
        self.x = self._middle()
        self._meet_total()
        self.values = self.gram.apply(self.gram.adjoint(self.beta))
        self.intercept = p.best_intercept(self.values)
        self.room_lower = np.where(self.has_lower, self.x - self.lower, 1.0)
        self.room_upper = np.where(self.has_upper, self.upper - self.x, 1.0)
        slope = self._slope()
        nearest = np.minimum(
            np.where(self.has_lower, self.room_lower, np.inf), np.where(self.has_upper, self.room_upper, np.inf)
        )
        bounded = self.has_lower | self.has_upper
        mu = max(float(np.mean(np.abs(slope[bounded]) * nearest[bounded])) if bounded.any() else 0.0, 1e-12)
        self.z_lower = np.where(self.has_lower, np.maximum(slope, 0.0) + mu / self.room_lower, 0.0)
        self.z_upper = np.where(self.has_upper, np.maximum(-slope, 0.0) + mu / self.room_upper, 0.0)

    def _middle(self) -> Array:
        """Return variables between their bounds, about as large as coefficients may become."""
        p = self.program
        n, total = p.n_samples, p.total or 0.0
        sample = self.gram.rows(np.unique(np.linspace(0, n - 1, min(n, 200)).astype(np.intp)))
        size = float(np.mean(np.einsum("ij,ij->i", sample, sample))) + float(p.ridge.mean()) or 1.0
        reach = max(float(np.abs(p.target).mean()) / size, abs(total) / n, 1e-12)
        width = np.where(self.has_lower & self.has_upper, self.upper - self.lower, np.inf)
        # Where coefficients end up far from there, at a distant bound, the first step would be lost in rounding.
        inside = np.minimum(0.5 * width, np.maximum(reach, _LEAST_START * np.where(np.isfinite(width), width, 0.0)))
        base = np.where(self.has_lower, self.lower, np.where(self.has_upper, self.upper - 2 * inside, 0.0))
        fixed = np.where(np.isfinite(self.lower), self.lower, 0.0)
        return np.where(self.moves, base + np.where(self.has_lower | self.has_upper, inside, 0.0), fixed)

    def _meet_total(self) -> None:
        """Shrink the coefficients of one sign, or let them grow towards their bounds, until the sum is met."""
        if self.program.total is None:
            return
        parts = self.sign * self.x
        need = self.program.total - float(parts.sum())
        shrinking = parts * need < 0
        size = float(np.abs(parts[shrinking]).sum())
        if 0 < abs(need) < size:
            self.x = np.where(shrinking, self.x * (1.0 - abs(need) / size), self.x)
            return
        grows = np.where(self.sign * need > 0, self.upper, self.lower) - self.x
        room = float(np.abs(grows).sum())
        if abs(need) < room < np.inf:
            self.x = self.x + abs(need) / room * grows

    @property
    def beta(self) -> Vector:
        return np.asarray((self.sign * self.x).sum(axis=0))

    def _slope(self) -> Array:
        """The objective's slope, turned round to be minimised, in every variable."""
        outputs = self.values + self.intercept
        return np.asarray(self.program.ridge * self.x + self.sign * outputs + self.cost)

    def gap(self) -> float:
        p, beta = self.program, self.beta
        quadratic = 0.5 * float(beta @ self.values)
        dual = p.linear_value(beta) - quadratic
        missing = 0.0 if p.total is None else abs(p.total - float(beta.sum()))
        if missing > _MET * max(abs(p.total or 0.0), float(np.abs(beta).sum())):
            return np.inf
        # What is missing would cost about this much.
        primal = p.primal_value(quadratic, self.values, self.intercept) + missing * abs(self.intercept)
        return relative_gap(primal, dual)

    def step(self) -> bool:
        """Take one predictor and corrector step; False when rounding is all that is left."""
        stiffness = self.program.ridge + self.z_lower / self.room_lower + self.z_upper / self.room_upper
        self.give = np.divide(1.0, stiffness, out=np.zeros_like(stiffness), where=self.moves & (stiffness > 0))
        system = _System(self.gram, self.give.sum(axis=0), self.program.total is not None)
        products = self.room_lower * self.z_lower, self.room_upper * self.z_upper
        mu = float(products[0].sum() + products[1].sum()) / max(self.n_bounds, 1)
        predictor = self._direction(system, -products[0], -products[1])
        if self.n_bounds == 0:
            return self._move(predictor, 1.0)
        size = min(self._longest(predictor), 1.0)
        ahead = self._mu(predictor, size)
        aim = (ahead / mu) ** 3 * mu if mu > 0 else 0.0
        lower = np.where(self.has_lower, aim - products[0] - predictor.x * predictor.z_lower, 0.0)
        upper = np.where(self.has_upper, aim - products[1] + predictor.x * predictor.z_upper, 0.0)
        chosen = self._direction(system, lower, upper)
        reach = self._longest(chosen)
        for _ in range(_CORRECTORS if reach < _LONG else 0):
            more = self._outliers(chosen, min(reach + _FURTHER, 1.0), max(aim, ahead))
            lower, upper = lower + more[0], upper + more[1]
            other = self._direction(system, lower, upper)
            longer = self._longest(other)
            if longer < reach + 0.1 * _FURTHER:
                break
            chosen, reach = other, longer
        return self._move(chosen, min(_SHORT * reach, 1.0))

    def _outliers(self, d: _Direction, size: float, mu: float) -> tuple[Array, Array]:
        """How much the products after a step are too small or too large, which is what makes steps short."""
        lower = (self.room_lower + size * d.x) * (self.z_lower + size * d.z_lower)
        upper = (self.room_upper - size * d.x) * (self.z_upper + size * d.z_upper)
        wanted = (np.clip(one, 0.1 * mu, 10 * mu) - one for one in (lower, upper))
        low, high = (np.maximum(one, -10 * mu) for one in wanted)
        return np.where(self.has_lower, low, 0.0), np.where(self.has_upper, high, 0.0)

    def _mu(self, d: _Direction, size: float) -> float:
        """The mean product, after a step, of a variable's distance to a bound and that bound's multiplier."""
        lower = (self.room_lower + size * d.x) * (self.z_lower + size * d.z_lower)
        upper = (self.room_upper - size * d.x) * (self.z_upper + size * d.z_upper)
        return float(lower[self.has_lower].sum() + upper[self.has_upper].sum()) / self.n_bounds

    def _direction(self, system: _System, lower: Array, upper: Array) -> _Direction:
        """Solve the Newton system for the given right-hand sides of the products with the multipliers."""
        p = self.program
        pull = -(self._slope() - self.z_lower + self.z_upper) + lower / self.room_lower - upper / self.room_upper
        free = (self.sign * pull * self.give).sum(axis=0)
        missing = 0.0 if p.total is None else p.total - float(self.beta.sum())
        change, intercept = system.solve(free, missing)
        dx = self.give * (pull - self.sign * (change + intercept))
        dz_lower = np.where(self.has_lower, (lower - self.z_lower * dx) / self.room_lower, 0.0)
        dz_upper = np.where(self.has_upper, (upper + self.z_upper * dx) / self.room_upper, 0.0)
        return _Direction(dx, dz_lower, dz_upper, intercept, change)

    def _longest(self, d: _Direction) -> float:
        """How far all variables and multipliers stay on their side."""
        sides = [
            _reach(self.room_lower, d.x, self.has_lower),
            _reach(self.room_upper, -d.x, self.has_upper),
            _reach(self.z_lower, d.z_lower, self.has_lower),
            _reach(self.z_upper, d.z_upper, self.has_upper),
        ]
        return min(sides)

    def _move(self, d: _Direction, size: float) -> bool:
        if not np.isfinite(size) or size <= _TINY_STEP or not np.all(np.isfinite(d.x)):
            return False
        self.x = self.x + size * d.x
        # Kept by themselves: far from zero, x would round them away.
        self.room_lower = np.where(self.has_lower, self.room_lower + size * d.x, 1.0)
        self.room_upper = np.where(self.has_upper, self.room_upper - size * d.x, 1.0)
        self.z_lower = self.z_lower + size * d.z_lower
        self.z_upper = self.z_upper + size * d.z_upper
        self.intercept += size * d.intercept
        self.values = self.values + size * d.values
        return self.n_bounds > 0

    def stop(self, n_iter: int) -> Interior:
        """Say where the path leads: a bound is met if its multiplier outgrows the distance to it."""
        p = self.program
        size = max(float(np.abs(self.x).max(initial=0.0)), 1e-300)
        slope = max(float(np.abs(p.target).max(initial=0.0)), p.epsilon, float(np.abs(self.values).max()), 1e-300)
        near_lower = self.has_lower & (self.room_lower / size < self.z_lower / slope) | ~self.moves
        near_upper = self.has_upper & (self.room_upper / size < self.z_upper / slope)
        if not p.epsilon:
            return Interior(self.beta, near_lower[0], near_upper[0], self.gap(), n_iter)
        zero = near_lower.all(axis=0)
        return Interior(self.beta, near_upper[1] | zero, near_upper[0] | zero, self.gap(), n_iter)


@dataclass(frozen=True)
class _Direction:
    """Changes of the variables, of their multipliers, of the intercept, and of Kβ."""

    x: Array
    z_lower: Array
    z_upper: Array
    intercept: float
    values: Vector


class _System:
    """(I + ZᵀΘZ) dw + ZᵀΘ1 db = Zᵀr,  1ᵀΘZ dw + 1ᵀΘ1 db = 1ᵀr − missing; without an intercept the first alone."""

    def __init__(self, gram: FactoredGram, theta: Vector, has_intercept: bool) -> None:
        self.gram, self.has_intercept = gram, has_intercept
        M = gram.normal_matrix(np.where(theta > _NEGLIGIBLE * theta.mean(), theta, 0.0))
        M[np.arange(gram.n_features), np.arange(gram.n_features)] += 1.0
        self.factor = factorised(M if has_intercept else M[:-1, :-1])

    def solve(self, free: Vector, missing: float) -> tuple[Vector, float]:
        """Return the change of Kβ and that of the intercept."""
        right = self.gram.adjoint(free)
        if self.has_intercept:
            right = np.append(right, free.sum() - missing)
        solution = cho_solve(self.factor, right, check_finite=False)
        D = self.gram.n_features
        return self.gram.apply(solution[:D]), float(solution[D]) if self.has_intercept else 0.0


def factorised(M: Array) -> tuple[Array, bool]:
    """Return the Cholesky factor of M, as `cho_solve` reads it, with as much added to its diagonal as rounding asks."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(M), 1e-300))
    jitter = 0.0
    while True:
        A = M * scale * scale[:, np.newaxis]
        A[np.diag_indices_from(A)] += jitter
        try:
            factor, lower = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            jitter = max(_JITTER, 100 * jitter)
            if jitter > 1:
                raise
            continue
        # The factor of the matrix itself, its rows scaled back.
        return np.asarray(factor / scale[:, np.newaxis]), lower


def _reach(room: Array, change: Array, which: NDArray[np.bool_]) -> float:
    shrinks = which & (change < 0)
    return float(np.min(room[shrinks] / -change[shrinks], initial=np.inf))
