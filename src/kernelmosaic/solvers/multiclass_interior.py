"""Interior points for the multi-class program of a few samples: a few dozen steps, however badly it is conditioned.

Every coefficient is kept strictly inside its bounds by a barrier, which adds to the diagonals of the classes' kernels;
a step solves one system per class, and one more for the multipliers of the samples' and the classes' sums.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgetrf, dgetrs

from kernelmosaic._typing import AnyArray
from kernelmosaic.gram.gram import ClassGram
from kernelmosaic.solvers.interior_point import SHORT, Bounds, centring
from kernelmosaic.solvers.multiclass_newton import factorise, invert
from kernelmosaic.solvers.multiclass_program import Matrix, MulticlassProgram
from kernelmosaic.solvers.program import Solution, Vector, certify


def solve_interior(gram: ClassGram, program: MulticlassProgram, tol: float) -> Solution:
    """Solve a multi-class dual to a relative gap of `tol`, if rounding allows, by primal-dual interior points.

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
    present = program.class_C > 0 if program.constants else np.ones(program.n_classes, dtype=bool)
    classes = np.flatnonzero(present)

    def certified(x: Matrix, b: Vector, n_iter: int) -> Solution:
        beta, full = np.zeros(program.margins.shape), np.zeros(program.n_classes)
        beta[np.ix_(counted, classes)] = x
        beta, full[classes] = program.feasible(beta), b
        if program.constants:
            beta = program.balanced(beta)
        values = np.asarray(gram.products(beta, exact=True))
        return certify(program, beta, values, n_iter, intercept=program.best_intercept(values, full))

    best = most = certified(np.zeros((len(counted), len(classes))), np.zeros(len(classes)), 0)
    if len(counted) == 0 or len(classes) < 2:
        return best
    part = program.take(counted)
    labels = np.searchsorted(classes, part.labels)
    each = classes if len(K) > 1 else np.zeros(1, dtype=np.intp)
    kernels = K[np.ix_(each, counted, counted)].astype(np.float64)
    n_iter = 0
    # Relative to the mean diagonal and the margins: what is added to the diagonals, so that a step along which neither
    # the kernel nor the barrier bends the value is short; and less, which rounding bears less often, if these are too
    # short.
    for jitter in (1e-10, 1e-13):
        state, left = _State(kernels, part.target[:, classes], labels, part, jitter), np.inf
        halved, since = np.inf, 0
        # Far below the gap asked for, coefficients that are not at their bounds are worth as much; six certified steps
        # that do not halve the gap show rounding.
        while n_iter < 80 and best.gap > tol and left > 1e-5 * tol and since < 6:
            with np.errstate(all="ignore"):
                moved = state.step()
            if not moved:
                break
            n_iter, left = n_iter + 1, state.gap()
            if left > 3.0 * tol:  # too far off to be certified
                continue
            # Coefficients that are exactly at their bounds are what makes a machine sparse.
            best = min(best, certified(state.scale * state.snapped(), state.b, n_iter), key=attrgetter("gap"))
            inside = certified(state.scale * state.x, state.b, n_iter) if best.gap > tol else best
            most = min(most, inside, key=attrgetter("gap"))
            reached = min(best.gap, most.gap)
            halved, since = (reached, 0) if reached <= 0.5 * halved else (halved, since + 1)
        if min(best.gap, most.gap) <= tol:
            break
    return replace(best if best.gap <= tol else min(best, most, key=attrgetter("gap")), n_iter=n_iter)


class _State:
    """Coefficients in units of the mean C, their multipliers, and those of the sums."""

    def __init__(
        self,
        K: NDArray[np.float64],
        target: Matrix,
        labels: NDArray[np.intp],
        program: MulticlassProgram,
        jitter: float,
    ) -> None:
        from kernelmosaic.solvers import _numba_multiclass

        self.loops = _numba_multiclass
        n, k = target.shape
        rows = np.arange(n)
        self.scale = float(program.sample_C.mean())
        C = (program.sample_C / self.scale)[:, np.newaxis]
        own_upper = C * (k - 1) if program.pairwise else C
        self.lower, self.upper = np.tile(-C, k), np.zeros((n, k))
        self.lower[rows, labels], self.upper[rows, labels] = 0.0, own_upper[:, 0]
        self.K, self.target, self.constants = self.scale * K, target, program.constants
        self.jitter = jitter * float(np.diagonal(self.K, axis1=1, axis2=2).mean() + np.abs(target).max())
        # In the middle, every sample's coefficients sum to zero.
        self.x = np.tile(-0.5 * own_upper / (k - 1), k)
        self.x[rows, labels] = 0.5 * own_upper[:, 0]
        self.nu, self.b = np.zeros(n), np.zeros(k)
        force = max(1.0, float(np.abs(self.target - _times(self.K, self.x)).max()))
        both = np.ones((2, n, k))
        self.bounds = Bounds(self._room(), force * both, both > 0)

    def _room(self) -> NDArray[np.float64]:
        return np.stack([self.x - self.lower, self.upper - self.x])

    def gap(self) -> float:
        """Return about the relative gap: what is left of the products, over the value."""
        left = np.sum(self.bounds.products())
        value = abs(np.sum(self.target * self.x) - 0.5 * np.sum(self.x * _times(self.K, self.x)))
        return float(left / max(value, 1e-300))

    def snapped(self) -> Matrix:
        """Return the coefficients, those at their bounds whose multipliers are larger than the distance to these."""
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
                self.loops.mirror_lower(one)
        except np.linalg.LinAlgError:
            return False
        inverses = A
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
        slopes = self.target - _times(self.K, self.x) - self.nu[:, np.newaxis] - self.b

        def solved(right: Matrix, sums: Vector, totals: Vector) -> tuple[Matrix, Vector, Vector]:
            alone = _times(inverses, right)
            missing = np.concatenate([alone.sum(axis=1) - sums, (alone.sum(axis=0) - totals)[:free]])
            multipliers = dgetrs(lu, pivots, missing)[0]
            b = np.concatenate([multipliers[n:], np.zeros(k - free)])
            answer = _times(inverses, multipliers[:n, np.newaxis] + b)
            return alone - answer, multipliers[:n], b

        def direction(right: Matrix, refined: int = 2) -> tuple[Matrix, Vector, Vector]:
            sums, totals = -self.x.sum(axis=1), -self.x.sum(axis=0)
            dx, dnu, db = solved(right, sums, totals)
            for _ in range(refined):
                left = right - _times(self.K, dx) - D * dx - dnu[:, np.newaxis] - db
                more = solved(left, sums - dx.sum(axis=1), totals - dx.sum(axis=0))
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
        if not (np.isfinite(size) and np.all(np.isfinite(dx)) and np.all(np.isfinite(dnu)) and mu > 0):
            return False
        self.x = self.x + size * dx
        bounds.room, bounds.force = self._room(), bounds.force + size * change
        self.nu, self.b = self.nu + size * dnu, self.b + size * db
        return bool(np.all(bounds.room > 0))


def _times(K: NDArray[np.float64], x: Matrix) -> Matrix:
    """Return K_c x_c, of the shape of x."""
    return np.asarray((K @ x.T[:, :, np.newaxis])[:, :, 0].T)
