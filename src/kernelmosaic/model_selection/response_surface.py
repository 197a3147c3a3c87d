"""A search over positive parameters that fits a surface to validation scores instead of walking a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from math import ceil
from numbers import Real
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils.validation import _check_method_params

from kernelmosaic._checks import check_choice, check_count, check_positive
from kernelmosaic._typing import ArrayOrTensor, Estimator, MatrixLike, Settings, TargetLike
from kernelmosaic.engine.training_set import SharedKernels
from kernelmosaic.estimators._base import parameters
from kernelmosaic.kernels.views import PerColumn, default_kernels, lay_specs, read_kernels, term_names
from kernelmosaic.learning.problem import progress
from kernelmosaic.model_selection.surface import Exploration, Terrain, first_best
from kernelmosaic.stacking import check_row_names

# Which parameters it moves --------------------------------------------------------------------------------------------

Array = NDArray[np.float64]

#: Parameters with one number per kernel, and the letter the papers use for it.
_LETTERS = {"penalties": "d", "weights": "η"}


@dataclass(frozen=True)
class Factor:
    """One free number of the search.

    Parameters
    ----------
    parameter : str
        The parameter of the estimator it belongs to.
    label : str
        What to write on an axis: ``d[gaussian]`` for a penalty, ``η[gaussian]`` for a weight, else the parameter.
    centre : float
        log10 of the value the search starts from.
    """

    parameter: str
    label: str
    centre: float


@dataclass(frozen=True)
class Factors:
    """All free numbers, and the first entry of each parameter that has one number per kernel: that one stays."""

    free: tuple[Factor, ...]
    anchors: dict[str, float]

    @property
    def centre(self) -> Array:
        """The point the search starts from."""
        return np.array([factor.centre for factor in self.free])

    def setting(self, z: Array) -> Settings:
        """Return the parameters at a point, as `set_params` takes them."""
        values: dict[str, list[float]] = {}
        for factor, value in zip(self.free, 10.0 ** np.asarray(z), strict=True):
            values.setdefault(factor.parameter, []).append(float(value))
        return {
            name: (self.anchors[name], *numbers) if name in self.anchors else numbers[0]
            for name, numbers in values.items()
        }


def read_factors(estimator: Estimator, on: Any, X: MatrixLike = None) -> Factors:
    """Return the factors that `on` names, centred at the estimator's own values.

    Parameters
    ----------
    estimator : estimator
        The one to search.
    on : str or list of str
        Names as `set_params` takes them; those ending in ``penalties`` or ``weights`` count one number per kernel.
    X : array-like, optional
        The samples, for kernels that stand for one per column.
    """
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"on={on!r}: give 'penalties', 'weights' or a list of names of positive parameters.")
    if len(set(names)) < len(names):
        raise ValueError(f"on={on!r}: a name occurs twice.")
    known = estimator.get_params()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"on={on!r}: {type(estimator).__name__} has no parameter {unknown[0]!r}.")
    free: list[Factor] = []
    anchors: dict[str, float] = {}
    for name in names:
        owner_name, _, last = name.rpartition("__")
        owner = known[owner_name] if owner_name else estimator
        if last in _LETTERS and hasattr(owner, "kernels"):
            values, labels = _one_per_kernel(owner, last, X if owner is estimator else None)
            anchors[name] = float(values[0])
            free += [Factor(name, label, float(np.log10(v))) for label, v in zip(labels[1:], values[1:], strict=True)]
        else:
            free.append(Factor(name, name, float(np.log10(_positive_number(name, known[name])))))
    _refuse_idle_penalties(names, known)
    return Factors(tuple(free), anchors)


def _one_per_kernel(owner: Any, parameter: str, X: MatrixLike) -> tuple[Array, list[str]]:
    """The values to start from, ones unless the estimator has its own, and a label for each."""
    entries = read_kernels(owner.kernels, getattr(owner, "_default_kernels", default_kernels))
    names = term_names(entries)
    if any(isinstance(entry.kernel, PerColumn) for entry in entries):
        if X is None:
            raise ValueError(
                f"on={parameter!r}: a kernel that stands for one per column is only counted when the estimator is "
                "searched directly, not inside a pipeline; write its kernels out one by one."
            )
        names = [tile.name for tile in lay_specs(entries, X)]
    if len(names) < 2:
        raise ValueError(f"on={parameter!r}: the first kernel's stays fixed, so at least two kernels are needed.")
    own = getattr(owner, parameter)
    values = np.ones(len(names)) if own is None or isinstance(own, str) else np.asarray(own, dtype=np.float64)
    if values.shape != (len(names),) or not np.all((values > 0) & np.isfinite(values)):
        raise ValueError(
            f"{parameter}={own!r}: the search starts there, so give {len(names)} positive numbers or None."
        )
    return values, [f"{_LETTERS[parameter]}[{name}]" for name in names]


def _positive_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(
            f"{name}={value!r}: the search starts from the estimator's own value, which must be a positive number."
        )
    return float(value)


def _refuse_idle_penalties(names: Sequence[str], known: Settings) -> None:
    """Penalties act on learned weights only: to search them beside given weights would compare equals."""
    for name in names:
        weights = f"{name.removesuffix('penalties')}weights"
        if name.endswith("penalties") and (weights in names or known.get(weights) is not None):
            raise ValueError(
                f"on={list(names)!r}: {name} has no effect where {weights} are given; leave {weights} at None."
            )


# The search -----------------------------------------------------------------------------------------------------------


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


@parameters
class ResponseSurfaceSearchCV(BaseSearchCV):
    """Search positive parameters on the log10 scale by a response surface on the validation score.

    Minimises r(z), minus the mean validation score at parameters 10^z: evaluates a Koshal design around the estimator's
    own values, fits r̂(z) = β_0 + Σ β_m z_m + Σ β_mh z_m z_h, evaluates the minimiser of r̂ in a box, refits, and so on
    until the minimiser moves by less than `tol`. The best validated point is the result. For P kernels with the first
    penalty fixed the design has P(P+1)/2 points, where a grid of three levels has 3^(P−1). No point is evaluated twice,
    and all are evaluated on the same splits even if `cv` draws them at random. Where the fit is not convex, or after a
    failed fit, the step is confined to a box around the best point, which grows with success and shrinks without.

    Parameters
    ----------
    estimator : estimator
        What to search; its own parameters are the centre of the design.
    on : "penalties", "weights" or list of str, default="penalties"
        ``"penalties"`` is RMKL: the d_m, the first fixed (at 1 unless the estimator has penalties). ``"weights"`` is
        RWKL: the η_m with nothing learned, the first fixed likewise; the scale of the sum is then free, and trades with
        C. A list names any positive parameters, such as ``["penalties", "C"]`` or ``["svc__C", "svc__gamma"]``.
    step : float or array-like of shape (n_factors,), default=0.3
        The Δ of the design, in powers of ten: 0.3 means halving and doubling.
    bounds : pair, or array-like of shape (n_factors, 2), default=(-1, 1)
        The box, in powers of ten away from the centre.
    order : {2, 1}, default=2
        2 fits a quadratic to P(P+1)/2 points; 1, for many kernels, fits a plane to P points and goes down its slope.
    tol : float, default=0.01
        Stop when the next point is nearer than this (in powers of ten) to one already evaluated.
    max_iter : int, default=20
        Most points after the design.
    scoring : str or callable, default=None
        One score, larger being better; None is the estimator's own.
    cv : int, splitter or iterable, default=None
        How to split, as in :class:`~sklearn.model_selection.GridSearchCV`.
    n_jobs : int, default=None
        Fits run in parallel.
    refit : bool or callable, default=True
        Whether to fit the best point on all samples; a callable picks the index of the point from `cv_results_`.
    error_score : "raise" or float, default=nan
        Score of a fit that raised. Such points never enter the surface.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    surface_ : ResponseSurface
        The last fit: ``constant``, ``linear``, ``quadratic``, with ``predict``, ``gradient``, ``minimise``.
    design_ : Design
        ``points`` on the log10 scale with their ``responses`` and the ``labels`` of the factors.
    n_solver_calls_ : int
        Points evaluated; each stands for `n_splits_` fits.
    cv_results_, best_params_, best_score_, best_index_, best_estimator_, n_splits_, refit_time_, scorer_
        As in :class:`~sklearn.model_selection.GridSearchCV`.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology", Algorithm 1.
    Where it is silent or cannot be meant: the point evaluated is the newest minimiser, the surface is minimised inside
    a box, and the best validated point is returned, not the last.

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

    estimator: Estimator
    on: Any = "penalties"
    _: KW_ONLY
    step: Any = 0.3
    bounds: Any = (-1, 1)
    order: int = 2
    tol: float = 0.01
    max_iter: int = 20
    scoring: Any = None
    cv: Any = None
    n_jobs: int | None = None
    refit: Any = True
    error_score: Any = np.nan
    verbose: bool = False

    pre_dispatch = "2*n_jobs"
    return_train_score = False
    # Of the copy that scikit-learn fits.
    _run: Any = None

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
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(f"scoring={self.scoring!r}: a surface is fitted to one score; give one.")
        check_row_names(X, y=y, sample_weight=params.get("sample_weight"), groups=params.get("groups"))
        # scikit-learn reads the parameters of what it fits: a copy, which prints no line of its own beside the bar.
        quiet = copy(self)
        quiet.verbose, quiet.cv = False, check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        given = quiet._get_routed_params_for_fit(_check_method_params(X, params)).splitter.split
        factors = read_factors(self.estimator, self.on, X)
        terrain = self._read_terrain(factors)
        quiet._run = _Run(factors, terrain, check_cv(list(quiet.cv.split(X, y, **given))), bool(self.verbose))
        # The points meet the same folds, whose kernels need be computed once.
        with SharedKernels():
            super(ResponseSurfaceSearchCV, quiet).fit(X, y, **params)
        quiet._append_failed()
        for name in [name for name in vars(quiet) if name.endswith("_")]:
            setattr(self, name, getattr(quiet, name))
        return self

    def score(self, X: MatrixLike, y: TargetLike = None, **params: Any) -> float:
        """Return the score of the best estimator, by `scoring`; `params` are passed to it."""
        check_row_names(X, y=y, sample_weight=params.get("sample_weight"))
        return float(super().score(X, y, **params))

    def _read_terrain(self, factors: Factors) -> Terrain:
        n = len(factors.free)
        try:
            bounds = np.broadcast_to(np.asarray(self.bounds, dtype=np.float64), (n, 2))
            step = np.broadcast_to(np.asarray(self.step, dtype=np.float64), (n,))
        except (TypeError, ValueError):
            raise ValueError(
                f"bounds={self.bounds!r}, step={self.step!r}: give a pair and a number, or one of each for each of "
                f"the {n} factors ({', '.join(factor.label for factor in factors.free)})."
            ) from None
        if not (np.all(np.isfinite(step)) and np.all(step > 0)):
            raise ValueError(f"step={self.step!r}: the step must be positive.")
        if not np.all((bounds[:, 0] <= -step) & (step <= bounds[:, 1])):
            raise ValueError(
                f"bounds={self.bounds!r}: the box must hold the design, from -step to step (step={self.step!r})."
            )
        order, tol = check_choice("order", self.order, (1, 2)), check_positive("tol", self.tol)
        centre, max_iter = factors.centre, check_count("max_iter", self.max_iter, least=0)
        return Terrain(centre, centre + bounds[:, 0], centre + bounds[:, 1], step, order, tol, max_iter)

    def _run_search(self, evaluate_candidates: Callable[..., Settings]) -> None:
        run = self._run
        self.n_splits_ = run.splits.get_n_splits()
        evaluate = partial(evaluate_candidates, cv=run.splits)
        with progress("response surface", 0, run.show) as show:
            explored = Exploration(run.terrain, lambda Z: self._evaluate(run, Z, evaluate, show))
            self.surface_ = explored.run()
        labels = [factor.label for factor in run.factors.free]
        self.design_ = Design(labels, explored.points, explored.responses, explored.n_initial)
        self.n_solver_calls_ = len(explored.points)

    def _evaluate(self, run: _Run, Z: Array, evaluate: Callable[..., Any], show: Callable[..., None]) -> Array:
        """Responses at points, batch by batch where a progress bar is to move; NaN where any fit of a point raised."""
        # A batch should still keep every worker busy.
        size = max(1, ceil(2 * effective_n_jobs(self.n_jobs) / self.n_splits_)) if run.show else len(Z)
        total = len(run.responses) + len(Z)
        error: ValueError | None = None
        for start in range(0, len(Z), size):
            settings = [run.factors.setting(z) for z in Z[start : start + size]]
            try:
                results = evaluate(settings)
            except ValueError as caught:
                # scikit-learn refuses a batch in which every fit failed; to a search that is one more failed point.
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
        return np.array(run.responses[-len(Z) :])

    def _responses_of_newest(self, results: Settings, n: int) -> list[float]:
        if "mean_test_score" not in results:
            raise ValueError(f"scoring={self.scoring!r} returns several scores; a surface is fitted to one.")
        scores = -np.asarray(results["mean_test_score"], dtype=np.float64)[-n:]
        outcomes = np.array([one["fit_error"] is not None for one in self._run.outcomes[1]]).reshape(-1, self.n_splits_)
        return list(np.where(outcomes[-n:].any(axis=1) | ~np.isfinite(scores), np.nan, scores))

    def _format_results(
        self, candidate_params: Any, n_splits: int, out: ArrayOrTensor, more_results: Any = None
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
        run = self._run
        if not run.failed:
            return
        settings, outcomes = run.outcomes
        lost = {**outcomes[0], "test_scores": self.error_score, "fit_time": 0.0, "score_time": 0.0}
        self.cv_results_ = super()._format_results(
            settings + run.failed, self.n_splits_, outcomes + [lost] * (len(run.failed) * self.n_splits_)
        )
