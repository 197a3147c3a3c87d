"""A search over positive parameters that fits a surface to validation scores instead of walking a
grid."""

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
from kernelmosaic.engine.pipelines import last_step
from kernelmosaic.engine.search import check_one_score, read_folds, resolution
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
        return np.asarray(
            self.constant + Z @ self.linear + np.einsum("im,mh,ih->i", Z, self.quadratic, Z)
        )

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
            Among points equally low the nearest to this one is returned; the middle of the box by
            default.

        Returns
        -------
        ndarray of shape (n_factors,)
            The global minimiser: of a convex surface for any number of factors; otherwise for up to
            six, above which it is the best of several local ones.
        """
        lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        start = (
            (lower + upper) / 2
            if start is None
            else np.clip(np.asarray(start, dtype=np.float64), lower, upper)
        )
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
        """The stationary point of every face that has one: the minimiser, convex or not, is among
        them."""
        found = [start]
        for state in product((-1, 0, 1), repeat=len(start)):
            side = np.array(state)
            z = np.where(side < 0, lower, np.where(side > 0, upper, start))
            free = side == 0
            if np.any(free):
                system = 2 * self.quadratic[np.ix_(free, free)]
                # Least squares, because a flat direction leaves the system singular: then do not
                # move along it.
                z[free] -= np.linalg.lstsq(system, self.gradient(z)[free], rcond=_ROUNDING)[0]
            if np.all((lower <= z) & (z <= upper)):
                found.append(z)
        return found

    def _by_descent(self, lower: Array, upper: Array, start: Array) -> list[Array]:
        """Local minimisers, from the start, the corner downhill and the corners where the surface
        bends down most."""
        steepest = np.linalg.eigh(self.quadratic)[1][:, 0]
        starts = [start, np.where(self.gradient(start) > 0, lower, upper)]
        if not self.is_convex:
            starts += [np.where(sign * steepest > 0, upper, lower) for sign in (1.0, -1.0)]
        bounds = list(zip(lower, upper, strict=True))
        # On the scale of the surface itself, so that L-BFGS-B's own tolerances mean something.
        scale = max(np.abs(self.linear).max(), np.abs(self.quadratic).max(), 1e-300)

        def value_and_gradient(z: Array) -> tuple[float, Array]:
            return (self.predict(z)[0] - self.constant) / scale, self.gradient(z) / scale

        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000}
        descents = [
            minimize(value_and_gradient, first, jac=True, bounds=bounds, options=options)
            for first in starts
        ]
        return [start, *(np.clip(done.x, lower, upper) for done in descents)]


def fit_surface(
    Z: Array,
    responses: Any,
    order: int = 2,
    *,
    centre: Any = 0.0,
    step: Any = 1.0,
    weights: Array | None = None,
) -> ResponseSurface:
    """Fit a polynomial by least squares; with fewer points than coefficients, the smallest that
    interpolates.

    Parameters
    ----------
    Z : ndarray of shape (n_points, n_factors)
        Points.
    responses : array-like of shape (n_points,)
        Their responses, all finite.
    order : {2, 1}, default=2
        Order of the polynomial.
    centre, step : float or array-like of shape (n_factors,), default=0.0 and 1.0
        Origin and unit in which the system is solved, for its conditioning; the result is in the
        coordinates of Z.
    weights : ndarray of shape (n_points,), optional
        How much each point counts.
    """
    r, n = np.asarray(responses, dtype=np.float64), Z.shape[1]
    centre, step = (
        np.broadcast_to(centre, n).astype(np.float64),
        np.broadcast_to(step, n).astype(np.float64),
    )
    U = (Z - centre) / step
    m, h = np.triu_indices(n)
    columns = [np.ones((len(U), 1)), U] + ([U[:, m] * U[:, h]] if order == 2 else [])
    root = np.ones(len(U)) if weights is None else np.sqrt(weights)
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
    """Return the first of the scores that are best to rounding: on ties the centre, which is the
    plain method."""
    return int(np.argmax(scores >= np.nanmax(scores) - resolution(scores, tol=0.0)))


# The walk -----------------------------------------------------------------------------------------


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
    """Evaluate a design, then the minimiser of the surface fitted to all points so far, until that
    stops moving.

    Failed points (response NaN) are no part of the fit. While the fit curves downwards somewhere,
    or after a failure, the step is confined to a box around the best point, which doubles on
    success and halves otherwise; with a plane (order 1), the step follows the steepest descent to
    the wall of that box.

    Parameters
    ----------
    terrain : Terrain
        Where to look.
    evaluate : callable
        From points (n, factors) to responses (n,).
    """

    def __init__(self, terrain: Terrain, evaluate: Callable[[Array], Array]) -> None:
        self.terrain, self.evaluate = terrain, evaluate
        self.points, self.responses = np.empty((0, len(terrain.centre))), np.empty(0)
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
            at = self._best()
            best, distance = (
                self.responses[at],
                float(np.max(np.abs(z - self.points[at]) / terrain.step)),
            )
            self._add(z[None, :])
            newest = self.responses[-1]
            if not np.isfinite(newest):
                self.radius, self.confined = distance / 2, True
            elif self.was_confined:
                self.radius *= 2.0 if newest < best else 0.5
        return self.surface()

    def surface(self) -> ResponseSurface:
        """Fit all points that did not fail; a plane is fitted to the neighbourhood of the best
        one."""
        terrain, ok = self.terrain, np.isfinite(self.responses)
        Z, responses, weights = self.points[ok], self.responses[ok], None
        if terrain.order == 1:
            squares = np.sum(((Z - self.points[self._best()]) / terrain.step) ** 2, axis=1)
            weights = 1.0 / (1.0 + squares)
        return fit_surface(
            Z, responses, terrain.order, centre=terrain.centre, step=terrain.step, weights=weights
        )

    def _next(self) -> Array | None:
        """The point to evaluate next; None if every proposal is within `tol` of a point already
        seen."""
        terrain, surface, best = self.terrain, self.surface(), self.points[self._best()]
        self.was_confined = self.confined or not surface.is_convex
        if not self.was_confined:
            z = surface.minimise(terrain.lower, terrain.upper, best)
            return z if self._is_new(z) else None
        while np.max(self.radius * terrain.step) >= terrain.tol:
            reach = self.radius * terrain.step
            lower, upper = (
                np.maximum(best - reach, terrain.lower),
                np.minimum(best + reach, terrain.upper),
            )
            if terrain.order == 1:
                z = _descend(surface.gradient(best) * terrain.step, best, lower, upper, reach)
            else:
                z = surface.minimise(lower, upper, best)
            if self._is_new(z):
                return z
            self.radius /= 2
        return None

    def _is_new(self, z: Array) -> bool:
        return bool(np.linalg.norm(self.points - z, axis=1).min() >= self.terrain.tol)

    def _best(self) -> int:
        return first_best(-self.responses)

    def _add(self, Z: Array) -> None:
        self.points, self.responses = (
            np.vstack([self.points, Z]),
            np.append(self.responses, self.evaluate(Z)),
        )


def _descend(gradient: Array, start: Array, lower: Array, upper: Array, reach: Array) -> Array:
    """Step down the gradient (in units of the step) to the wall of the box; coordinates already at
    a bound stay."""
    stuck = ((gradient > 0) & (start <= lower)) | ((gradient < 0) & (start >= upper))
    gradient = np.where(stuck, 0.0, gradient)
    return np.clip(start - reach * gradient / (np.abs(gradient).max() or 1.0), lower, upper)


# Which parameters it moves ------------------------------------------------------------------------


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
        """Return the parameters at a point, as `set_params` takes them."""
        found: Settings = {}
        for name, value in zip(self.parameters, (10.0 ** np.asarray(z)).tolist(), strict=True):
            found[name] = (
                (*found.get(name, (self.anchors[name],)), value) if name in self.anchors else value
            )
        return found


def read_factors(estimator: Estimator, on: Any, X: MatrixLike = None) -> Factors:
    """Return the factors that `on` names, centred at the estimator's own values.

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
    names = [on] if isinstance(on, str) else on
    if (
        not isinstance(names, Sequence)
        or not names
        or not all(isinstance(name, str) for name in names)
    ):
        raise TypeError(
            f"on={on!r}: give 'penalties', 'weights' or a list of names of positive parameters."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"on={on!r}: a name occurs twice.")
    known = estimator.get_params()
    unknown = [name for name in names if name not in known]
    if unknown:
        rule = getattr(estimator, "path_rule", None)
        remedy = (
            ""
            if rule is None
            else f"; give positive parameters that it has, such as on=[{rule.parameter!r}]"
        )
        raise ValueError(
            f"on={on!r}: {type(estimator).__name__} has no parameter {unknown[0]!r}{remedy}."
        )
    factors = Factors()
    for name in names:
        weights = f"{name.removesuffix('penalties')}weights"
        # Penalties act on learned weights only: to search them beside given weights would compare
        # equals.
        if name.endswith("penalties") and (weights in names or known.get(weights) is not None):
            raise ValueError(
                f"on={list(names)!r}: {name} has no effect where {weights} are given; leave"
                f" {weights} at None."
            )
        owner_name, _, last = name.rpartition("__")
        owner = known[owner_name] if owner_name else estimator
        if last in _LETTERS and hasattr(owner, "kernels"):
            (factors.anchors[name], *values), labels = _one_per_kernel(
                owner, last, X if owner is estimator else None
            )
        else:
            value, labels = known[name], [name]
            if (
                isinstance(value, bool)
                or not isinstance(value, Real)
                or not 0 < float(value) < np.inf
            ):
                raise ValueError(
                    f"{name}={value!r}: the search starts from this value; give a positive number."
                )
            values = [float(value)]
        factors.parameters.extend([name] * len(values))
        factors.labels.extend(labels)
        factors.centre.extend(np.log10(values).tolist())
    return factors


def _one_per_kernel(owner: Any, parameter: str, X: MatrixLike) -> tuple[list[float], list[str]]:
    """The values to start from, ones unless the estimator has its own, and a label for each but the
    first."""
    entries = (
        owner.read_kernels() if hasattr(owner, "read_kernels") else read_kernels(owner.kernels)
    )
    names = term_names(entries)
    if any(isinstance(entry.kernel, PerColumn) for entry in entries):
        if X is None:
            raise ValueError(
                f"on={parameter!r}: a kernel that stands for one per column is only counted when"
                " the estimator is searched directly, not inside a pipeline; write its kernels out"
                " one by one."
            )
        names = [tile.name for tile in lay_specs(entries, X)]
    if len(names) < 2:
        raise ValueError(
            f"on={parameter!r}: the first kernel's stays fixed, so at least two kernels are needed."
        )
    own = getattr(owner, parameter)
    values = (
        np.ones(len(names))
        if own is None or isinstance(own, str)
        else np.asarray(own, dtype=np.float64)
    )
    if values.shape != (len(names),) or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(
            f"{parameter}={own!r}: the search starts there, so give {len(names)} positive numbers"
            " or None."
        )
    return values.tolist(), [f"{_LETTERS[parameter]}[{name}]" for name in names[1:]]


# The search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """What was evaluated, in that order.

    Parameters
    ----------
    labels : list of str
        The factors.
    points : ndarray of shape (n_points, n_factors)
        On the log10 scale.
    responses : ndarray of shape (n_points,)
        What is minimised: minus the mean validation score; NaN where a fit failed.
    n_initial : int
        How many of them, the first ones, are the Koshal design.
    """

    labels: list[str]
    points: Array
    responses: Array
    n_initial: int


@dataclass
class _Run:
    """One search.

    Attributes
    ----------
    factors, terrain : Factors, Terrain
        What is searched, and where.
    splits : splitter
        The splits of all points.
    show : bool
        Whether to show a progress bar.
    outcomes : tuple of lists or None
        Settings whose fits scikit-learn has put in a table, and what became of every fit.
    failed : list of dict
        Settings of batches of which no fit succeeded, which are in no table.
    responses : list of float
        Of all points so far.
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
    # Of the copy that scikit-learn fits.
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
        # scikit-learn reads the parameters of what it fits: a copy, which prints no line of its own
        # beside the bar.
        quiet = copy(self)
        quiet.scoring = self._one_score(y)
        # Folds without an outlier have no area under the curve.
        stratified = is_classifier(self.estimator) or (
            is_outlier_detector(self.estimator) and y is not None
        )
        quiet.verbose, quiet.cv = False, check_cv(self.cv, y, classifier=stratified)
        given = quiet._get_routed_params_for_fit(_check_method_params(X, params)).splitter.split
        factors = read_factors(self.estimator, self.on, X)
        terrain = self._read_terrain(factors)
        folds = read_folds(quiet.cv.split(X, y, **given), _num_samples(X))
        quiet._run = _Run(factors, terrain, check_cv(folds), bool(self.verbose))
        # The points meet the same folds, whose kernels need be computed once.
        with SharedKernels():
            super(ResponseSurfaceSearchCV, quiet).fit(X, y, **params)
        if quiet._run.failed:
            quiet._append_failed()
        for name in [name for name in vars(quiet) if name.endswith("_")]:
            setattr(self, name, getattr(quiet, name))
        return self

    def score(self, X: MatrixLike, y: TargetLike = None, **params: Any) -> float:
        """Return the score of the best estimator, by `scoring`; `params` are passed to it."""
        check_row_names(X, y=y, sample_weight=params.get("sample_weight"))
        return float(super().score(X, y, **params))

    def _one_score(self, y: TargetLike) -> Any:
        """Return the score of the search: of outlier detectors, which have none of their own, the
        area under the curve.

        Raises a ValueError where the samples say nothing of who is an outlier.
        """
        if (
            self.scoring is not None
            or hasattr(self.estimator, "score")
            or not is_outlier_detector(self.estimator)
        ):
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
        order, tol = check_choice("order", self.order, (1, 2)), check_positive("tol", self.tol)
        max_iter, centre = check_count("max_iter", self.max_iter, least=0), np.array(factors.centre)
        return Terrain(
            centre, centre + bounds[:, 0], centre + bounds[:, 1], step, order, tol, max_iter
        )

    def _run_search(self, evaluate_candidates: Callable[..., Settings]) -> None:
        run = self._run
        self.n_splits_ = run.splits.get_n_splits()
        evaluate = partial(evaluate_candidates, cv=run.splits)
        with progress("response surface", 0, run.show) as show:
            explored = Exploration(run.terrain, partial(self._evaluate, evaluate, show))
            self.surface_ = explored.run()
        self.design_ = Design(
            run.factors.labels, explored.points, explored.responses, explored.n_initial
        )
        self.n_solver_calls_ = len(explored.points)

    def _evaluate(
        self, evaluate: Callable[..., Settings], show: Callable[..., None], Z: Array
    ) -> Array:
        """Responses at points, batch by batch where a progress bar is to move; NaN where any fit of
        a point raised."""
        # A batch should still keep every worker busy.
        run, error = self._run, None
        size = (
            max(1, ceil(2 * effective_n_jobs(self.n_jobs) / self.n_splits_)) if run.show else len(Z)
        )
        total = len(run.responses) + len(Z)
        for start in range(0, len(Z), size):
            settings = [run.factors.setting(z) for z in Z[start : start + size]]
            try:
                results = evaluate(settings)
            except ValueError as caught:
                # scikit-learn refuses a batch in which every fit failed; to a search that is one
                # more failed point.
                if self.error_score == "raise" or "fits failed" not in str(caught):
                    raise
                error = caught
                run.failed += settings
                run.responses += [np.nan] * len(settings)
            else:
                run.responses += self._responses_of_newest(results, len(settings))
            done, best = len(run.responses), np.nanmin([*run.responses, np.inf])
            state = f", best score {-best:.4g}" if np.isfinite(best) else ""
            show(f"{done}/{total} points{state}", done, total)
        if error is not None and run.outcomes is None:
            raise error  # not one point of the design could be fitted
        if not np.any(np.isfinite(run.responses)):
            raise ValueError(
                f"scoring={self.scoring!r}: the score is NaN at every point of the design, so there"
                " is no surface to fit; give a score that the held-out samples of every fold"
                " define, or other folds by cv."
            )
        return np.array(run.responses[-len(Z) :])

    def _responses_of_newest(self, results: Settings, n: int) -> list[float]:
        if "mean_test_score" not in results:
            raise ValueError(
                f"scoring={self.scoring!r} returns several scores; a surface is fitted to one."
            )
        scores = -np.asarray(results["mean_test_score"], dtype=np.float64)[-n:]
        outcomes = np.array(
            [one["fit_error"] is not None for one in self._run.outcomes[1]]
        ).reshape(-1, self.n_splits_)
        return list(np.where(outcomes[-n:].any(axis=1) | ~np.isfinite(scores), np.nan, scores))

    def _format_results(
        self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None
    ) -> Any:
        # Kept while the search runs: which fits raised, and the content of the table.
        self._run.outcomes = (list(candidate_params), list(out))
        return super()._format_results(candidate_params, n_splits, out, more_results)

    @staticmethod
    def _select_best_index(refit: Any, refit_metric: str, results: Settings) -> int:
        if callable(refit):
            return int(BaseSearchCV._select_best_index(refit, refit_metric, results))
        return first_best(np.asarray(results[f"mean_test_{refit_metric}"], dtype=np.float64))

    def _append_failed(self) -> None:
        """Points whose every fit failed join `cv_results_` at its end, with the error score."""
        failed, (settings, outcomes) = self._run.failed, self._run.outcomes
        lost = {**outcomes[0], "test_scores": self.error_score, "fit_time": 0.0, "score_time": 0.0}
        outcomes = outcomes + [lost] * (len(failed) * self.n_splits_)
        self.cv_results_ = super()._format_results(settings + failed, self.n_splits_, outcomes)
