"""A search over positive parameters by a polynomial surface that is fitted to validation scores.

In the order in which it is read: designs of points, the surface, the exploration that evaluates
points, the parameters that these stand for (`Factors`), and the search. Points are vectors of
logarithms, to base ten, of the parameters. Responses are minus mean validation scores, so that
small ones are good.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from math import ceil
from numbers import Real
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from sklearn.base import is_classifier, is_outlier_detector, is_regressor
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils.validation import _check_method_params, _num_samples

from kernelmosaic._checks import check_choice, check_count, check_positive
from kernelmosaic._typing import Array, ArrayOrTensor, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.engine.choice import resolution
from kernelmosaic.engine.pipelines import last_step
from kernelmosaic.engine.scoring import check_one_score
from kernelmosaic.engine.search import read_folds
from kernelmosaic.engine.training_set import SharedKernels
from kernelmosaic.estimators.inputs import read_targets
from kernelmosaic.kernels.views import PerColumn, lay_specs, read_kernels, term_names
from kernelmosaic.learning.problem import progress
from kernelmosaic.stacking import check_row_names

# Designs ------------------------------------------------------------------------------------------


def koshal_design(n_factors: int, order: int = 2) -> Array:
    """Return the design in units of the step, the centre first.

    Second order: the centre, both levels of every factor, the high levels of every pair:
    (n+1)(n+2)/2 points, as many as a quadratic in n factors has coefficients. First order: the
    centre and the high level of every factor.

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
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface
    methodology", Algorithm 1, lines 2 to 11, read as the appending of columns.

    Examples
    --------
    >>> from kernelmosaic.model_selection.response_surface import koshal_design
    >>> koshal_design(2).astype(int).tolist()
    [[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1]]
    """
    axes = np.eye(check_count("n_factors", n_factors))
    if check_choice("order", order, (1, 2)) == 1:
        return np.vstack([np.zeros(n_factors), axes])
    axial = np.stack([axes, -axes], axis=1).reshape(-1, n_factors)
    pairs = [axes[m] + axes[h] for m, h in combinations(range(n_factors), 2)]
    return np.vstack([np.zeros(n_factors), axial, *pairs])


# A polynomial fitted to responses -----------------------------------------------------------------


#: Number of factors up to which every face of the box is solved: 3^6 = 729 small linear systems.
_MAX_ENUMERATED = 6
#: Eigenvalues and differences below this fraction of the largest one are rounding.
_ROUNDING = 1e-10
#: Coefficients of a fitted surface below this fraction of the largest response are rounding.
_ROUNDING_OF_COEFFICIENTS = 1e-12


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
        return np.asarray(
            self.constant + Z @ self.linear + np.einsum("im,mh,ih->i", Z, self.quadratic, Z)
        )

    def gradient(self, z: ArrayLike) -> Array:
        """Return the gradient at one point."""
        return np.asarray(self.linear + 2 * self.quadratic @ np.asarray(z, dtype=np.float64))

    @property
    def is_convex(self) -> bool:
        """Whether no direction curves downwards, but for rounding; a plane is convex."""
        eigenvalues = np.linalg.eigvalsh(self.quadratic)
        return bool(eigenvalues.min() >= -_ROUNDING * np.abs(eigenvalues).max())

    def minimise(self, lower: Any, upper: Any, start: Any = None) -> Array:
        """Return the lowest point of the surface in a box.

        Parameters
        ----------
        lower, upper : array-like of shape (n_factors,)
            The box.
        start : array-like of shape (n_factors,), optional
            Of several lowest points the one nearest to it is returned; the middle of the box by
            default.

        Returns
        -------
        ndarray of shape (n_factors,)
            The global minimiser: of a convex surface for any number of factors, of others for up to
            six; above, it is the best of several local ones.
        """
        lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        if start is None:
            start = (lower + upper) / 2
        else:
            start = np.clip(np.asarray(start, dtype=np.float64), lower, upper)

        # 1. The stationary point of a strictly convex surface, if it is in the box.
        eigenvalues = np.linalg.eigvalsh(self.quadratic)
        if eigenvalues.min() > _ROUNDING * np.abs(eigenvalues).max():
            z = np.linalg.solve(self.quadratic, -self.linear / 2)
            if np.all((lower <= z) & (z <= upper)):
                return np.asarray(z)

        # 2. Otherwise the lowest of several candidates.
        find_candidates = self._on_faces if len(start) <= _MAX_ENUMERATED else self._by_descent
        candidates = np.array(find_candidates(lower, upper, start))
        values = self.predict(candidates)
        tolerance = _ROUNDING * max(np.ptp(values), 1e-300)
        lowest = candidates[values <= values.min() + tolerance]
        return np.asarray(lowest[np.argmin(np.linalg.norm(lowest - start, axis=1))])

    def _on_faces(self, lower: Array, upper: Array, start: Array) -> list[Array]:
        """Return the stationary points of all faces of the box, and the start.

        The minimiser in the box is one of them, whether the surface is convex or not.
        """
        candidates = [start]
        # A face has each coordinate at its lower bound (-1), at its upper bound (1), or free (0).
        for face in product((-1, 0, 1), repeat=len(start)):
            side = np.array(face)
            z = np.where(side < 0, lower, np.where(side > 0, upper, start))
            free = side == 0
            if np.any(free):
                system = 2 * self.quadratic[np.ix_(free, free)]
                # A flat direction makes the system singular; least squares does not move along it.
                z[free] -= np.linalg.lstsq(system, self.gradient(z)[free], rcond=_ROUNDING)[0]
            if np.all((lower <= z) & (z <= upper)):
                candidates.append(z)
        return candidates

    def _by_descent(self, lower: Array, upper: Array, start: Array) -> list[Array]:
        """Return local minimisers in the box, and the start.

        Descents begin at the start, at the corner down the gradient, and, of a surface that is not
        convex, at the two corners along its direction of most negative curvature.
        """
        starts = [start, np.where(self.gradient(start) > 0, lower, upper)]
        if not self.is_convex:
            most_concave = np.linalg.eigh(self.quadratic)[1][:, 0]
            starts += [np.where(sign * most_concave > 0, upper, lower) for sign in (1.0, -1.0)]
        bounds = list(zip(lower, upper, strict=True))
        # The tolerances of L-BFGS-B are meant for values of about one.
        scale = max(np.abs(self.linear).max(), np.abs(self.quadratic).max(), 1e-300)

        def value_and_gradient(z: Array) -> tuple[float, Array]:
            return (self.predict(z)[0] - self.constant) / scale, self.gradient(z) / scale

        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
        candidates = [start]
        for first in starts:
            descent = minimize(value_and_gradient, first, jac=True, bounds=bounds, options=options)
            candidates.append(np.clip(descent.x, lower, upper))
        return candidates


def fit_surface(
    Z: Array,
    responses: Any,
    order: int = 2,
    *,
    centre: Any = 0.0,
    step: Any = 1.0,
    weights: Array | None = None,
) -> ResponseSurface:
    """Return the polynomial fitted to responses by least squares.

    With fewer points than coefficients it is the interpolating one with the smallest coefficients.

    Parameters
    ----------
    Z : ndarray of shape (n_points, n_factors)
        Points.
    responses : array-like of shape (n_points,)
        Their responses, all finite.
    order : {2, 1}, default=2
        Order of the polynomial.
    centre, step : float or array-like of shape (n_factors,), default=0.0 and 1.0
        Origin and unit of the coordinates in which the system is solved, for its conditioning; the
        returned surface is in the coordinates of Z.
    weights : ndarray of shape (n_points,), optional
        How much each point counts.
    """
    r = np.asarray(responses, dtype=np.float64)
    n_factors = Z.shape[1]
    centre = np.broadcast_to(centre, n_factors).astype(np.float64)
    step = np.broadcast_to(step, n_factors).astype(np.float64)

    # 1. Coefficients in the coordinates u = (z − centre) / step. Responses are taken relative to
    # their mean, beside which their differences may be small.
    U = (Z - centre) / step
    m, h = np.triu_indices(n_factors)
    columns = [np.ones((len(U), 1)), U]
    if order == 2:
        columns.append(U[:, m] * U[:, h])
    root = np.ones(len(U)) if weights is None else np.sqrt(weights)
    A = root[:, None] * np.hstack(columns)
    beta = np.linalg.lstsq(A, root * (r - r.mean()), rcond=None)[0]
    beta[np.abs(beta) <= _ROUNDING_OF_COEFFICIENTS * np.abs(r).max()] = 0.0

    # 2. The same polynomial in the coordinates z.
    linear = beta[1 : n_factors + 1] / step
    quadratic = np.zeros((n_factors, n_factors))
    if order == 2:
        quadratic[m, h] = beta[n_factors + 1 :]
        quadratic = (quadratic + quadratic.T) / 2 / np.outer(step, step)
    linear_at_zero = linear - 2 * quadratic @ centre
    constant = float(r.mean() + beta[0] - linear @ centre + centre @ quadratic @ centre)
    return ResponseSurface(constant, linear_at_zero, quadratic)


def first_best(scores: Array) -> int:
    """Return the number of the first score that ties with the best, but for rounding.

    The first point of a design is its centre, the estimator as it is given, which so wins ties.
    """
    return int(np.argmax(scores >= np.nanmax(scores) - resolution(scores, tol=0.0)))


# The exploration ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terrain:
    """The region of an exploration, its first step, and when it ends.

    Attributes
    ----------
    centre : ndarray of shape (n_factors,)
        The first point.
    lower, upper : ndarray of shape (n_factors,)
        The box.
    step : ndarray of shape (n_factors,)
        The unit of the design.
    order : {2, 1}
        The order of the surface.
    tol : float
        The exploration ends when the next point is nearer than this to an evaluated one.
    max_iter : int
        The largest number of points after the design.
    """

    centre: Array
    lower: Array
    upper: Array
    step: Array
    order: int = 2
    tol: float = 0.01
    max_iter: int = 20


class Exploration:
    """Evaluate a design, then minimisers of the surface fitted to all points, until these settle.

    Failed points (response NaN) are left out of the fit. While the surface is not convex, or after
    a failure, the next point is confined to a box around the best point, which doubles on success
    and halves otherwise. With a plane (order 1) the next point is where the steepest descent leaves
    that box.

    Parameters
    ----------
    terrain : Terrain
        The region.
    evaluate : callable
        From points (n, n_factors) to responses (n,).

    Attributes
    ----------
    points : ndarray of shape (n, n_factors)
        All points that were evaluated.
    responses : ndarray of shape (n,)
        Their responses; NaN where the evaluation failed.
    n_initial : int
        The number of points of the design.
    radius : float
        Half the side of the confining box, in steps.
    confined : bool
        Whether all further points are confined.
    was_confined : bool
        Whether the last point was confined.
    """

    def __init__(self, terrain: Terrain, evaluate: Callable[[Array], Array]) -> None:
        self.terrain = terrain
        self.evaluate = evaluate
        self.points = np.empty((0, len(terrain.centre)))
        self.responses = np.empty(0)
        self.n_initial = 0
        self.radius = 1.0
        self.confined = terrain.order == 1
        self.was_confined = False

    def run(self) -> ResponseSurface:
        """Explore, and return the surface fitted to every point that did not fail."""
        terrain = self.terrain
        design = koshal_design(len(terrain.centre), terrain.order)
        self._add(terrain.centre + terrain.step * design)
        self.n_initial = len(self.points)
        for _ in range(terrain.max_iter):
            z = self._next()
            if z is None:
                break
            best_number = self._best()
            best_response = self.responses[best_number]
            distance = float(np.max(np.abs(z - self.points[best_number]) / terrain.step))
            self._add(z[None, :])
            response = self.responses[-1]
            if not np.isfinite(response):
                self.radius = distance / 2
                self.confined = True
            elif self.was_confined:
                self.radius *= 2.0 if response < best_response else 0.5
        return self.surface()

    def surface(self) -> ResponseSurface:
        """Return the surface fitted to all points that did not fail.

        In the fit of a plane, points count the less the farther they are from the best one.
        """
        terrain = self.terrain
        succeeded = np.isfinite(self.responses)
        Z = self.points[succeeded]
        weights = None
        if terrain.order == 1:
            from_best = (Z - self.points[self._best()]) / terrain.step
            weights = 1.0 / (1.0 + np.sum(from_best**2, axis=1))
        return fit_surface(
            Z,
            self.responses[succeeded],
            terrain.order,
            centre=terrain.centre,
            step=terrain.step,
            weights=weights,
        )

    def _next(self) -> Array | None:
        """Return the next point; None if all that are proposed are near evaluated ones."""
        terrain = self.terrain
        surface = self.surface()
        best = self.points[self._best()]
        self.was_confined = self.confined or not surface.is_convex
        if not self.was_confined:
            z = surface.minimise(terrain.lower, terrain.upper, best)
            return z if self._is_new(z) else None
        # The confining box is halved until the proposed point is a new one.
        while np.max(self.radius * terrain.step) >= terrain.tol:
            reach = self.radius * terrain.step
            lower = np.maximum(best - reach, terrain.lower)
            upper = np.minimum(best + reach, terrain.upper)
            if terrain.order == 1:
                z = _descend(surface.gradient(best) * terrain.step, best, lower, upper, reach)
            else:
                z = surface.minimise(lower, upper, best)
            if self._is_new(z):
                return z
            self.radius /= 2
        return None

    def _is_new(self, z: Array) -> bool:
        """Whether a point is at least `tol` from all evaluated ones."""
        return bool(np.linalg.norm(self.points - z, axis=1).min() >= self.terrain.tol)

    def _best(self) -> int:
        """Return the number of the point with the least response."""
        return first_best(-self.responses)

    def _add(self, Z: Array) -> None:
        """Evaluate points, and add them with their responses."""
        self.points = np.vstack([self.points, Z])
        self.responses = np.append(self.responses, self.evaluate(Z))


def _descend(gradient: Array, start: Array, lower: Array, upper: Array, reach: Array) -> Array:
    """Return the point where the steepest descent from a start leaves a box.

    Coordinates that are at the bound to which they descend stay there.

    Parameters
    ----------
    gradient : ndarray of shape (n_factors,)
        In units of the step.
    start : ndarray of shape (n_factors,)
        A point in the box.
    lower, upper : ndarray of shape (n_factors,)
        The box.
    reach : ndarray of shape (n_factors,)
        The length of the descent in the coordinate of the largest gradient.
    """
    at_lower = (gradient > 0) & (start <= lower)
    at_upper = (gradient < 0) & (start >= upper)
    gradient = np.where(at_lower | at_upper, 0.0, gradient)
    largest = np.abs(gradient).max() or 1.0
    return np.clip(start - reach * gradient / largest, lower, upper)


# The parameters that are searched -----------------------------------------------------------------


#: Parameters with one number per kernel, and the letter the papers use for it.
_LETTERS = {"penalties": "d", "weights": "η"}


@dataclass(frozen=True)
class Factors:
    """The free numbers of the search.

    Parameters
    ----------
    parameters : list of str
        The parameter of the estimator that each belongs to.
    labels : list of str
        What to write on an axis: ``d[gaussian]`` for a penalty, ``η[gaussian]`` for a weight, else
        the parameter.
    centre : list of float
        log10 of the values the search starts from.
    anchors : dict of float
        The first entry of each parameter that has one number per kernel: that one stays.
    """

    parameters: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    centre: list[float] = field(default_factory=list)
    anchors: dict[str, float] = field(default_factory=dict)

    def setting(self, z: Array) -> Settings:
        """Return the parameters at a point, as `set_params` takes them.

        A parameter with one number per kernel is a tuple that begins with its anchor.
        """
        settings: Settings = {}
        for name, value in zip(self.parameters, (10.0 ** np.asarray(z)).tolist(), strict=True):
            if name in self.anchors:
                earlier = settings.get(name, (self.anchors[name],))
                settings[name] = (*earlier, value)
            else:
                settings[name] = value
        return settings


def read_factors(estimator: Estimator, on: Any, X: MatrixLike = None) -> Factors:
    """Return the factors that `on` names, centred at the estimator's own values, or raise.

    Parameters
    ----------
    estimator : estimator
        The one to search.
    on : str or list of str
        Names as `set_params` takes them; those ending in ``penalties`` or ``weights`` count one
        number per kernel.
    X : array-like, optional
        The samples, for kernels that stand for one per column.
    """
    names = _read_names(on)
    params = estimator.get_params()
    unknown = [name for name in names if name not in params]
    if unknown:
        rule = getattr(estimator, "path_rule", None)
        remedy = ""
        if rule is not None:
            remedy = f"; give positive parameters that it has, such as on=[{rule.parameter!r}]"
        raise ValueError(
            f"on={on!r}: {type(estimator).__name__} has no parameter {unknown[0]!r}{remedy}."
        )
    factors = Factors()
    for name in names:
        # Penalties act on learned weights only. Beside given weights, all penalties are equivalent.
        weights = f"{name.removesuffix('penalties')}weights"
        has_given_weights = weights in names or params.get(weights) is not None
        if name.endswith("penalties") and has_given_weights:
            raise ValueError(
                f"on={list(names)!r}: {name} has no effect where {weights} are given; leave"
                f" {weights} at None."
            )
        owner_name, _, own_name = name.rpartition("__")
        owner = params[owner_name] if owner_name else estimator
        if own_name in _LETTERS and hasattr(owner, "kernels"):
            columns = X if owner is estimator else None
            (anchor, *values), labels = _one_per_kernel(owner, own_name, columns)
            factors.anchors[name] = anchor
        else:
            values, labels = [_positive_number(name, params[name])], [name]
        factors.parameters.extend([name] * len(values))
        factors.labels.extend(labels)
        factors.centre.extend(np.log10(values).tolist())
    return factors


def _read_names(on: Any) -> Sequence[str]:
    """Return the names of the parameters of a search, or raise."""
    names = [on] if isinstance(on, str) else on
    is_list = isinstance(names, Sequence) and len(names) > 0
    if not is_list or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"on={on!r}: give 'penalties', 'weights' or a list of names of positive parameters."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"on={on!r}: a name occurs twice.")
    return names


def _positive_number(name: str, value: Any) -> float:
    """Return the value of a parameter, from which the search starts, or raise."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < float(value) < np.inf:
        raise ValueError(
            f"{name}={value!r}: the search starts from this value; give a positive number."
        )
    return float(value)


def _one_per_kernel(owner: Any, parameter: str, X: MatrixLike) -> tuple[list[float], list[str]]:
    """Return the values of a parameter with one number per kernel, and labels, or raise.

    Parameters
    ----------
    owner : estimator
        The estimator with the kernels.
    parameter : str
        A name of `_LETTERS`.
    X : array-like or None
        The samples, for kernels that stand for one per column; None if they are not known.

    Returns
    -------
    values : list of float
        Those of the estimator, or ones if it has none.
    labels : list of str
        One for each value but the first.
    """
    if hasattr(owner, "read_kernels"):
        entries = owner.read_kernels()
    else:
        entries = read_kernels(owner.kernels)
    names = term_names(entries)
    if any(isinstance(entry.kernel, PerColumn) for entry in entries):
        if X is None:
            raise ValueError(
                f"on={parameter!r}: a kernel that stands for one per column is only counted when"
                " the estimator is searched directly, not inside a pipeline; write its kernels out"
                " one by one."
            )
        names = [spec.name for spec in lay_specs(entries, X)]
    if len(names) < 2:
        raise ValueError(
            f"on={parameter!r}: the first kernel's stays fixed, so at least two kernels are needed."
        )
    value = getattr(owner, parameter)
    if value is None or isinstance(value, str):
        values = np.ones(len(names))
    else:
        values = np.asarray(value, dtype=np.float64)
    if values.shape != (len(names),) or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(
            f"{parameter}={value!r}: the search starts there, so give {len(names)} positive numbers"
            " or None."
        )
    return values.tolist(), [f"{_LETTERS[parameter]}[{name}]" for name in names[1:]]


# The search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """The points that a search has evaluated, in their order.

    Parameters
    ----------
    labels : list of str
        The factors.
    points : ndarray of shape (n_points, n_factors)
        On the log10 scale.
    responses : ndarray of shape (n_points,)
        What is minimised: minus the mean validation score; NaN where a fit failed.
    n_initial : int
        The number of points of the Koshal design, which are the first ones.
    """

    labels: list[str]
    points: Array
    responses: Array
    n_initial: int


@dataclass
class _Run:
    """The state of one search.

    Attributes
    ----------
    factors, terrain : Factors, Terrain
        What is searched, and where.
    splits : splitter
        The splits of all points.
    show : bool
        Whether to show a progress bar.
    outcomes : tuple of lists or None
        The settings of scikit-learn's table of results, and the outcome of every fit; None as long
        as every fit has failed.
    failed : list of dict
        The settings of batches of which every fit failed, which are in no table.
    responses : list of float
        The responses of all points so far.
    """

    factors: Factors
    terrain: Terrain
    splits: Any
    show: bool
    outcomes: Any = None
    failed: list[Settings] = field(default_factory=list)
    responses: list[float] = field(default_factory=list)


class ResponseSurfaceSearchCV(BaseSearchCV):
    """Search positive parameters on the log10 scale by a response surface on the validation score.

    Minimises r(z), minus the mean validation score at parameters 10^z: evaluates a Koshal design
    around the estimator's own values, fits r̂(z) = β_0 + Σ β_m z_m + Σ β_mh z_m z_h, evaluates the
    minimiser of r̂ in a box, refits, and so on until the minimiser moves by less than `tol`. The
    best validated point is the result. For P kernels with the first penalty fixed the design has
    P(P+1)/2 points, where a grid of three levels has 3^(P−1). No point is evaluated twice, and all
    are evaluated on the same splits even if `cv` draws them at random. Where the fit is not convex,
    or after a failed fit, the step is confined to a box around the best point, which grows with
    success and shrinks without.

    Parameters
    ----------
    estimator : estimator
        What to search; its own parameters are the centre of the design.
    on : "penalties", "weights" or list of str, default="penalties"
        ``"penalties"`` is RMKL: the d_m, the first fixed (at 1 unless the estimator has penalties).
        ``"weights"`` is RWKL: the η_m with nothing learned, the first fixed likewise; the scale of
        the sum is then free, and trades with C. A list names any positive parameters, such as
        ``["penalties", "C"]`` or ``["svc__C", "svc__gamma"]``.
    step : float or array-like of shape (n_factors,), default=0.3
        The Δ of the design, in powers of ten: 0.3 means halving and doubling.
    bounds : pair, or array-like of shape (n_factors, 2), default=(-1, 1)
        The box, in powers of ten away from the centre.
    order : {2, 1}, default=2
        2 fits a quadratic to P(P+1)/2 points; 1, for many kernels, fits a plane to P points and
        goes down its slope.
    tol : float, default=0.01
        Stop when the next point is nearer than this (in powers of ten) to one already evaluated.
    max_iter : int, default=20
        Most points after the design.
    scoring : str or callable, default=None
        One score, larger being better; None is the estimator's own, and of one-class machines the
        area under the ROC curve of y, 1 for inliers and −1 for outliers, which the fit does not
        read.
    cv : int, splitter or iterable, default=None
        How to split, as in :class:`~sklearn.model_selection.GridSearchCV`.
    n_jobs : int, default=None
        Fits run in parallel.
    refit : bool or callable, default=True
        Whether to fit the best point on all samples; a callable picks the index of the point from
        `cv_results_`.
    error_score : "raise" or float, default=nan
        Score of a fit that raised. Such points never enter the surface.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    surface_ : ResponseSurface
        The last fit: ``constant``, ``linear``, ``quadratic``, with ``predict``, ``gradient``,
        ``minimise``.
    design_ : Design
        ``points`` on the log10 scale with their ``responses`` and the ``labels`` of the factors.
    n_solver_calls_ : int
        Points evaluated, each by `n_splits_` fits.
    cv_results_, best_params_, best_score_, best_index_, best_estimator_, n_splits_, refit_time_
        As in :class:`~sklearn.model_selection.GridSearchCV`.
    scorer_
        As in :class:`~sklearn.model_selection.GridSearchCV`.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface
    methodology", Algorithm 1. Where it is silent or cannot be meant: the point evaluated is the
    newest minimiser, the surface is minimised inside a box, and the best validated point is
    returned, not the last.

    Examples
    --------
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Gaussian, Linear, Polynomial
    >>> from kernelmosaic.model_selection import ResponseSurfaceSearchCV
    >>> X, y = make_gaussians(n_components=3, n_samples=120, random_state=0)
    >>> model = MKLClassifier([Linear(), Polynomial(), Gaussian()])
    >>> search = ResponseSurfaceSearchCV(model, on="penalties", cv=2).fit(X, y)
    >>> search.design_.labels
    ['d[polynomial]', 'd[gaussian]']
    """

    pre_dispatch = "2*n_jobs"
    return_train_score = False
    # The state of a search; only the copy that scikit-learn fits has one.
    _run: Any = None

    def __init__(
        self,
        estimator: Estimator,
        on: Any = "penalties",
        *,
        step: Any = 0.3,
        bounds: Any = (-1, 1),
        order: int = 2,
        tol: float = 1e-2,
        max_iter: int = 20,
        scoring: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        error_score: Any = np.nan,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.on = on
        self.step = step
        self.bounds = bounds
        self.order = order
        self.tol = tol
        self.max_iter = max_iter
        self.scoring = scoring
        self.cv = cv
        self.n_jobs = n_jobs
        self.refit = refit
        self.error_score = error_score
        self.verbose = verbose

    def fit(self, X: MatrixLike, y: TargetLike = None, **params: Any) -> Self:
        """Search, and fit the best point on all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), optional
            Targets.
        **params : dict
            Passed on to the estimator, the scorer and the splitter, as in `GridSearchCV`.

        Returns
        -------
        self
        """
        check_one_score(self.scoring)
        check_row_names(
            X, y=y, sample_weight=params.get("sample_weight"), groups=params.get("groups")
        )
        # Some models learn each of several targets from the samples that have it.
        if y is not None and not getattr(last_step(self.estimator), "per_target", False):
            read_targets(y, is_regressor(self.estimator))

        # 1. scikit-learn fits a copy with other parameters: it prints no lines beside the progress
        # bar, and has the score and the splitter that are used. Folds of outlier detectors are
        # stratified because those without an outlier have no area under the ROC curve.
        is_stratified = is_classifier(self.estimator)
        if is_outlier_detector(self.estimator) and y is not None:
            is_stratified = True
        quiet = copy(self)
        quiet.scoring = self._one_score(y)
        quiet.verbose = False
        quiet.cv = check_cv(self.cv, y, classifier=is_stratified)

        # 2. What is searched, and on which folds.
        routed = quiet._get_routed_params_for_fit(_check_method_params(X, params))
        factors = read_factors(self.estimator, self.on, X)
        terrain = self._read_terrain(factors)
        folds = read_folds(quiet.cv.split(X, y, **routed.splitter.split), _num_samples(X))
        quiet._run = _Run(factors, terrain, check_cv(folds), bool(self.verbose))

        # 3. All points have the same folds, so that kernels are computed once.
        with SharedKernels():
            super(ResponseSurfaceSearchCV, quiet).fit(X, y, **params)
        if quiet._run.failed:
            quiet._append_failed()
        fitted_names = [name for name in vars(quiet) if name.endswith("_")]
        for name in fitted_names:
            setattr(self, name, getattr(quiet, name))
        return self

    def score(self, X: MatrixLike, y: TargetLike = None, **params: Any) -> float:
        """Return the score of the best estimator, by `scoring`; `params` are passed to it."""
        check_row_names(X, y=y, sample_weight=params.get("sample_weight"))
        return float(super().score(X, y, **params))

    def _one_score(self, y: TargetLike) -> Any:
        """Return the scoring of the search, or raise if there is none.

        Of outlier detectors, which have no score of their own, it is the area under the ROC curve.
        """
        has_score = self.scoring is not None or hasattr(self.estimator, "score")
        if has_score or not is_outlier_detector(self.estimator):
            return self.scoring
        if y is None:
            raise ValueError(
                f"scoring=None: {type(self.estimator).__name__} has no score of its own; give y, 1"
                " for inliers and -1 for outliers, for the area under the ROC curve, or a function"
                " of an estimator and X."
            )
        values = np.unique(np.asarray(y))
        if len(values) != 2:
            raise ValueError(
                f"y has the values {reprlib.repr(values.tolist())}: {type(self.estimator).__name__}"
                " is scored by the area under the ROC curve between inliers, 1, and outliers, -1;"
                " give both, or another scoring."
            )
        return "roc_auc"

    def _read_terrain(self, factors: Factors) -> Terrain:
        """Return the region of the search by its parameters, or raise."""
        n = len(factors.labels)
        try:
            bounds = np.broadcast_to(np.asarray(self.bounds, dtype=np.float64), (n, 2))
            step = np.broadcast_to(np.asarray(self.step, dtype=np.float64), (n,))
        except (TypeError, ValueError):
            raise ValueError(
                f"bounds={self.bounds!r}, step={self.step!r}: give a pair and a number, or one of"
                f" each for each of the {n} factors ({', '.join(factors.labels)})."
            ) from None
        if not (np.all(np.isfinite(step)) and np.all(step > 0)):
            raise ValueError(f"step={self.step!r}: the step must be positive.")
        if not np.all((bounds[:, 0] <= -step) & (step <= bounds[:, 1])):
            raise ValueError(
                f"bounds={self.bounds!r}: the box must hold the design, from -step to step"
                f" (step={self.step!r})."
            )
        centre = np.array(factors.centre)
        return Terrain(
            centre,
            lower=centre + bounds[:, 0],
            upper=centre + bounds[:, 1],
            step=step,
            order=check_choice("order", self.order, (1, 2)),
            tol=check_positive("tol", self.tol),
            max_iter=check_count("max_iter", self.max_iter, least=0),
        )

    def _run_search(self, evaluate_candidates: Callable[..., Settings]) -> None:
        """Explore the surface; scikit-learn calls this with its evaluation of settings."""
        run = self._run
        self.n_splits_ = run.splits.get_n_splits()
        evaluate = partial(evaluate_candidates, cv=run.splits)
        with progress("response surface", 0, run.show) as show:
            exploration = Exploration(run.terrain, partial(self._evaluate, evaluate, show))
            self.surface_ = exploration.run()
        self.design_ = Design(
            run.factors.labels,
            exploration.points,
            exploration.responses,
            exploration.n_initial,
        )
        self.n_solver_calls_ = len(exploration.points)

    def _evaluate(
        self, evaluate: Callable[..., Settings], show: Callable[..., None], Z: Array
    ) -> Array:
        """Return the responses at points, NaN where any fit of a point raised, or raise.

        Parameters
        ----------
        evaluate : callable
            Called with settings, returns scikit-learn's table of results.
        show : callable
            Moves the progress bar.
        Z : ndarray of shape (n, n_factors)
            The points.
        """
        run = self._run
        batch_size = len(Z)
        if run.show:
            # Batches that move the progress bar keep every worker busy.
            n_workers = effective_n_jobs(self.n_jobs)
            batch_size = max(1, ceil(2 * n_workers / self.n_splits_))
        n_points = len(run.responses) + len(Z)
        last_error: ValueError | None = None
        for start in range(0, len(Z), batch_size):
            settings = [run.factors.setting(z) for z in Z[start : start + batch_size]]
            try:
                results = evaluate(settings)
            except ValueError as error:
                # scikit-learn raises if every fit of a batch has failed. For the search these are
                # failed points like others.
                if self.error_score == "raise" or "fits failed" not in str(error):
                    raise
                last_error = error
                run.failed += settings
                run.responses += [np.nan] * len(settings)
            else:
                run.responses += self._responses_of_newest(results, len(settings))
            n_done = len(run.responses)
            best = np.nanmin([*run.responses, np.inf])
            best_score = f", best score {-best:.4g}" if np.isfinite(best) else ""
            show(f"{n_done}/{n_points} points{best_score}", n_done, n_points)
        if last_error is not None and run.outcomes is None:
            # No point of the design could be fitted.
            raise last_error
        if not np.any(np.isfinite(run.responses)):
            raise ValueError(
                f"scoring={self.scoring!r}: the score is NaN at every point of the design, so there"
                " is no surface to fit; give a score that the held-out samples of every fold"
                " define, or other folds by cv."
            )
        return np.array(run.responses[-len(Z) :])

    def _responses_of_newest(self, results: Settings, n: int) -> list[float]:
        """Return the responses of the last n points of scikit-learn's table, or raise."""
        if "mean_test_score" not in results:
            raise ValueError(
                f"scoring={self.scoring!r} returns several scores; a surface is fitted to one."
            )
        responses = -np.asarray(results["mean_test_score"], dtype=np.float64)[-n:]
        _, outcomes = self._run.outcomes
        raised = np.array([outcome["fit_error"] is not None for outcome in outcomes])
        any_raised = raised.reshape(-1, self.n_splits_)[-n:].any(axis=1)
        return list(np.where(any_raised | ~np.isfinite(responses), np.nan, responses))

    def _format_results(
        self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None
    ) -> Any:
        """Return scikit-learn's table of results, and keep what it is made of."""
        self._run.outcomes = (list(candidate_params), list(out))
        return super()._format_results(candidate_params, n_splits, out, more_results)

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: Settings) -> int:
        """Return the number of the best point, as scikit-learn asks for it."""
        if callable(refit):
            return int(BaseSearchCV._select_best_index(refit, refit_metric, results))
        return first_best(np.asarray(results[f"mean_test_{refit_metric}"], dtype=np.float64))

    def _append_failed(self) -> None:
        """Add the points of which every fit failed to `cv_results_`, with the error score."""
        failed = self._run.failed
        settings, outcomes = self._run.outcomes
        failure = {
            **outcomes[0],
            "test_scores": self.error_score,
            "fit_time": 0.0,
            "score_time": 0.0,
        }
        outcomes = outcomes + [failure] * (len(failed) * self.n_splits_)
        self.cv_results_ = super()._format_results(settings + failed, self.n_splits_, outcomes)
