"""The walk over a response surface, free of everything but points and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from kernelmosaic._checks import check_choice, check_count
from kernelmosaic._typing import ArrayOrTensor
from kernelmosaic.engine.search import resolution

# Designs --------------------------------------------------------------------------------------------------------------


def koshal_design(n_factors: int, order: int = 2) -> NDArray[np.float64]:
    """Return the design in units of the step, the centre first.

    Second order: the centre, both levels of every factor, the high levels of every pair: (n+1)(n+2)/2 points, as many
    as a quadratic in n factors has coefficients. First order: the centre and the high level of every factor.

    Parameters
    ----------
    n_factors : int
        Number of free factors; for P kernels with the first one fixed, P − 1.
    order : {2, 1}, default=2
        Order of the polynomial.

    Returns
    -------
    ndarray of shape (n_points, n_factors)
        Levels −1, 0 and +1.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology", Algorithm 1,
    lines 2 to 11, read as the appending of columns.

    Examples
    --------
    >>> from kernelmosaic.model_selection.surface import koshal_design
    >>> koshal_design(2).astype(int).tolist()
    [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1]]
    """
    axes = np.eye(check_count("n_factors", n_factors))
    if check_choice("order", order, (1, 2)) == 1:
        return np.vstack([np.zeros(n_factors), axes])
    axial = np.stack([axes, -axes], axis=1).reshape(-1, n_factors)
    pairs = [axes[m] + axes[h] for m, h in combinations(range(n_factors), 2)]
    return np.vstack([np.zeros(n_factors), axial, *pairs])


# A polynomial fitted to responses -------------------------------------------------------------------------------------

Array = NDArray[np.float64]

#: Up to so many factors every face of the box is solved: 3^6 = 729 small linear systems.
_MOST_ENUMERATED = 6
#: Coefficients and eigenvalues this far below the largest number around are rounding, not shape.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class ResponseSurface:
    """r(z) = constant + ⟨linear, z⟩ + zᵀ quadratic z, with z on the log10 scale.

    Parameters
    ----------
    constant : float
        β_0.
    linear : ndarray of shape (n_factors,)
        The β_m.
    quadratic : ndarray of shape (n_factors, n_factors)
        Symmetric: β_mm on the diagonal, ½ β_mh beside it; zero for a surface of first order.
    """

    constant: float
    linear: Array
    quadratic: Array

    def predict(self, Z: ArrayOrTensor) -> Array:
        """Return the surface at each row of Z."""
        Z = np.atleast_2d(np.asarray(Z, dtype=np.float64))
        return np.asarray(self.constant + Z @ self.linear + np.einsum("im,mh,ih->i", Z, self.quadratic, Z))

    def gradient(self, z: ArrayLike) -> Array:
        """Return the gradient at one point."""
        return np.asarray(self.linear + 2 * self.quadratic @ np.asarray(z, dtype=np.float64))

    @property
    def is_convex(self) -> bool:
        """Whether no direction curves downwards (beyond rounding); a plane is convex."""
        eigenvalues = np.linalg.eigvalsh(self.quadratic)
        return bool(eigenvalues.min() >= -_ROUNDING * np.abs(eigenvalues).max())

    def minimise(self, lower: Any, upper: Any, start: Any = None) -> Array:
        """Return the lowest point of the surface in a box.

        Parameters
        ----------
        lower, upper : array-like of shape (n_factors,)
            The box.
        start : array-like of shape (n_factors,), optional
            Among points equally low the nearest to this one is returned; the middle of the box by default.

        Returns
        -------
        ndarray of shape (n_factors,)
            The global minimiser: of a convex surface for any number of factors; otherwise for up to six, above which it
            is the best of several local ones.
        """
        lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        start = (lower + upper) / 2 if start is None else np.clip(np.asarray(start, dtype=np.float64), lower, upper)
        eigenvalues = np.linalg.eigvalsh(self.quadratic)
        if eigenvalues.min() > _ROUNDING * np.abs(eigenvalues).max():
            z = np.linalg.solve(self.quadratic, -self.linear / 2)
            if np.all((lower <= z) & (z <= upper)):
                return np.asarray(z)
        candidates = self._on_faces if len(start) <= _MOST_ENUMERATED else self._by_descent
        Z = np.array(candidates(lower, upper, start))
        values = self.predict(Z)
        lowest = values <= values.min() + _ROUNDING * max(np.ptp(values), 1e-300)
        return np.asarray(Z[lowest][np.argmin(np.linalg.norm(Z[lowest] - start, axis=1))])

    def _on_faces(self, lower: Array, upper: Array, start: Array) -> list[Array]:
        """The stationary point of every face that has one: the minimiser, convex or not, is among them."""
        found = [start]
        for state in product((-1, 0, 1), repeat=len(start)):
            side = np.array(state)
            z = np.where(side < 0, lower, np.where(side > 0, upper, start))
            free = side == 0
            if np.any(free):
                system = 2 * self.quadratic[np.ix_(free, free)]
                # Least squares, because a flat direction leaves the system singular: then do not move along it.
                z[free] -= np.linalg.lstsq(system, self.gradient(z)[free], rcond=_ROUNDING)[0]
            if np.all((lower <= z) & (z <= upper)):
                found.append(z)
        return found

    def _by_descent(self, lower: Array, upper: Array, start: Array) -> list[Array]:
        """Local minimisers, from the start, the corner downhill and the corners where the surface bends down most."""
        steepest = np.linalg.eigh(self.quadratic)[1][:, 0]
        starts = [start, np.where(self.gradient(start) > 0, lower, upper)]
        if not self.is_convex:
            starts += [np.where(sign * steepest > 0, upper, lower) for sign in (1.0, -1.0)]
        bounds = list(zip(lower, upper, strict=True))
        # On the scale of the surface itself, so that L-BFGS-B's own tolerances mean something.
        scale = max(np.abs(self.linear).max(), np.abs(self.quadratic).max(), 1e-300)
        descents = [
            minimize(
                lambda z: (self.predict(z)[0] - self.constant) / scale,
                first,
                jac=lambda z: self.gradient(z) / scale,
                method="L-BFGS-B",
                bounds=bounds,
                options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
            )
            for first in starts
        ]
        return [start, *(np.clip(done.x, lower, upper) for done in descents)]


def fit_surface(
    Z: ArrayOrTensor,
    responses: Any,
    order: int = 2,
    *,
    centre: Any = 0.0,
    step: Any = 1.0,
    weights: ArrayOrTensor = None,
) -> ResponseSurface:
    """Fit a polynomial by least squares; with fewer points than coefficients, the smallest that interpolates.

    Parameters
    ----------
    Z : array-like of shape (n_points, n_factors)
        Points.
    responses : array-like of shape (n_points,)
        Their responses, all finite.
    order : {2, 1}, default=2
        Order of the polynomial.
    centre, step : float or array-like of shape (n_factors,), default=0.0 and 1.0
        Origin and unit in which the system is solved, for its conditioning; the result is in the coordinates of Z.
    weights : array-like of shape (n_points,), optional
        How much each point counts.
    """
    Z, r = np.asarray(Z, dtype=np.float64), np.asarray(responses, dtype=np.float64)
    n = Z.shape[1]
    centre, step = np.broadcast_to(centre, n).astype(np.float64), np.broadcast_to(step, n).astype(np.float64)
    U = (Z - centre) / step
    m, h = np.triu_indices(n)
    columns = [np.ones((len(U), 1)), U] + ([U[:, m] * U[:, h]] if order == 2 else [])
    root = np.ones(len(U)) if weights is None else np.sqrt(np.asarray(weights, dtype=np.float64))
    # Around the mean, so that a response which hardly varies is not lost in its own size.
    beta = np.linalg.lstsq(root[:, None] * np.hstack(columns), root * (r - r.mean()), rcond=None)[0]
    beta[np.abs(beta) <= 1e-12 * np.abs(r).max()] = 0.0
    linear, quadratic = beta[1 : n + 1] / step, np.zeros((n, n))
    if order == 2:
        quadratic[m, h] = beta[n + 1 :]
        quadratic = (quadratic + quadratic.T) / 2 / np.outer(step, step)
    shifted = linear - 2 * quadratic @ centre
    constant = float(r.mean() + beta[0] - linear @ centre + centre @ quadratic @ centre)
    return ResponseSurface(constant, shifted, quadratic)


def first_best(scores: Array) -> int:
    """Return the first of the scores that are best to rounding: on ties the centre, which is the plain method."""
    return int(np.argmax(scores >= np.nanmax(scores) - resolution(scores, tol=0.0)))


# The walk -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terrain:
    """Where to look: centre and box of the search, the step of the design, and when to stop."""

    centre: Array
    lower: Array
    upper: Array
    step: Array
    order: int = 2
    tol: float = 0.01
    max_iter: int = 20


class Exploration:
    """Evaluate a design, then the minimiser of the surface fitted to all points so far, until that stops moving.

    Failed points (response NaN) are no part of the fit. While the fit curves downwards somewhere, or after a failure,
    the step is confined to a box around the best point, which doubles on success and halves otherwise; with a plane
    (order 1), the step follows the steepest descent to the wall of that box.

    Parameters
    ----------
    terrain : Terrain
        Where to look.
    evaluate : callable
        From points (n, factors) to responses (n,).
    """

    def __init__(self, terrain: Terrain, evaluate: Callable[[Array], Array]) -> None:
        self.terrain = terrain
        self.evaluate = evaluate
        self.points = np.empty((0, len(terrain.centre)))
        self.responses = np.empty(0)
        self.n_initial = 0
        self.radius = 1.0  # of the confining box, in steps
        self.confined = terrain.order == 1  # from now on
        self.was_confined = False  # the last step

    def run(self) -> ResponseSurface:
        """Explore, and return the surface fitted to every point that did not fail."""
        terrain = self.terrain
        self._add(terrain.centre + terrain.step * koshal_design(len(terrain.centre), terrain.order))
        self.n_initial = len(self.points)
        for _ in range(terrain.max_iter):
            z = self._next()
            if z is None:
                break
            best = self.responses[self._best()]
            distance = float(np.max(np.abs(z - self.points[self._best()]) / terrain.step))
            self._add(z[None, :])
            self._learn_from(best, distance)
        return self.surface()

    def surface(self) -> ResponseSurface:
        """Fit all points that did not fail; a plane is fitted to the neighbourhood of the best one."""
        terrain, ok = self.terrain, np.isfinite(self.responses)
        Z, weights = self.points[ok], None
        if terrain.order == 1:
            squares = np.sum(((Z - self.points[self._best()]) / terrain.step) ** 2, axis=1)
            weights = 1.0 / (1.0 + squares)
        return fit_surface(
            Z, self.responses[ok], terrain.order, centre=terrain.centre, step=terrain.step, weights=weights
        )

    def _next(self) -> Array | None:
        """The point to evaluate next; None if every proposal is within `tol` of a point already seen."""
        terrain, surface, best = self.terrain, self.surface(), self.points[self._best()]
        self.was_confined = self.confined or not surface.is_convex
        if not self.was_confined:
            z = surface.minimise(terrain.lower, terrain.upper, best)
            return z if self._is_new(z) else None
        while np.max(self.radius * terrain.step) >= terrain.tol:
            reach = self.radius * terrain.step
            lower, upper = np.maximum(best - reach, terrain.lower), np.minimum(best + reach, terrain.upper)
            if terrain.order == 1:
                z = _descend(surface.gradient(best) * terrain.step, best, lower, upper, reach)
            else:
                z = surface.minimise(lower, upper, best)
            if self._is_new(z):
                return z
            self.radius /= 2
        return None

    def _learn_from(self, best: float, distance: float) -> None:
        newest = self.responses[-1]
        if not np.isfinite(newest):
            self.radius, self.confined = distance / 2, True
        elif self.was_confined:
            self.radius *= 2.0 if newest < best else 0.5

    def _is_new(self, z: Array) -> bool:
        return bool(np.linalg.norm(self.points - z, axis=1).min() >= self.terrain.tol)

    def _best(self) -> int:
        return first_best(-self.responses)

    def _add(self, Z: Array) -> None:
        responses = self.evaluate(Z)
        self.points = np.vstack([self.points, Z])
        self.responses = np.concatenate([self.responses, responses])


def _descend(gradient: Array, start: Array, lower: Array, upper: Array, reach: Array) -> Array:
    """Step down the gradient (in units of the step) to the wall of the box; coordinates already at a bound stay."""
    stuck = ((gradient > 0) & (start <= lower)) | ((gradient < 0) & (start >= upper))
    gradient = np.where(stuck, 0.0, gradient)
    largest = np.abs(gradient).max()
    return start if largest == 0 else np.clip(start - reach * gradient / largest, lower, upper)
