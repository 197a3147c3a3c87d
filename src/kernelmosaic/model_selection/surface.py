"""A polynomial fitted to responses, and where in a box it is lowest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

#: Up to so many factors every face of the box is looked at: 3^6 = 729 small linear systems.
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

    def predict(self, Z: Any) -> Array:
        """Return the surface at each row of Z."""
        Z = np.atleast_2d(np.asarray(Z, dtype=np.float64))
        return np.asarray(self.constant + Z @ self.linear + np.einsum("im,mh,ih->i", Z, self.quadratic, Z))

    def gradient(self, z: Any) -> Array:
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
    Z: Any, responses: Any, order: int = 2, *, centre: Any = 0.0, step: Any = 1.0, weights: Any = None
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
