"""The walk over a response surface, free of everything but points and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelmosaic.model_selection.koshal import koshal_design
from kernelmosaic.model_selection.surface import ResponseSurface, fit_surface

Array = NDArray[np.float64]


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
        # The first of equals: on ties the centre, which is the plain method, stays.
        return int(np.nanargmin(self.responses))

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
