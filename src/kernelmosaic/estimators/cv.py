"""Estimators that choose C and the norm of the weights by cross-validation, with probabilities from
the same folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import _num_samples

from kernelmosaic._checks import check_choice, check_count, check_positive
from kernelmosaic._typing import (
    Array,
    Estimator,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.engine import conformal
from kernelmosaic.engine.calibration import CALIBRATIONS
from kernelmosaic.engine.fit import fit
from kernelmosaic.engine.samples import FitInput, is_streamed
from kernelmosaic.engine.search import (
    RULES,
    PathOptions,
    PathResult,
    as_given,
    check_one_score,
    describe_choice,
    path_rule,
    read_folds,
    search_paths,
    warn_of_gaps,
)
from kernelmosaic.engine.tasks import mean_deviation
from kernelmosaic.engine.training_set import active_store
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.learning.problem import progress
from kernelmosaic.stacking import check_row_names

#: The default of `cv` in all searches.
DEFAULT_FOLDS = 5

#: The parameters of a search itself. The others are those of the estimator whose C and norm are
#: chosen.
SEARCH_PARAMETERS = (
    "Cs",
    "norms",
    "cv",
    "scoring",
    "n_jobs",
    "refit",
    "scale",
    "calibration",
    "near",
    "rule",
    "verbose",
)


class PathSearch(BaseEstimator):
    """What all searches along a path share: folds, scores, the choice, and what is routed to
    whom."""

    # The parameters of a search, which every subclass has (`SEARCH_PARAMETERS`).
    Cs: Any
    norms: Any
    cv: Any
    scoring: Any
    n_jobs: int | None
    refit: bool
    scale: bool
    calibration: str | None
    near: int | None
    rule: str
    verbose: bool

    # The machines of the folds, for intervals and sets of classes.
    _conformal: conformal.Conformal | None = None

    _is_refitted = False

    def _plain_params(self) -> Settings:
        """Return the parameters of the estimator of which C and the norm are chosen."""
        params = self.get_params(deep=False)
        return {name: value for name, value in params.items() if name not in SEARCH_PARAMETERS}

    # scikit-learn's conventions -------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        # Without a refit there are scores, and nothing to predict with.
        return self._is_refitted

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what `fit` passes on: ``groups`` and such to the splitter, ``sample_weight`` to
        the scorer.

        Without `scoring`, folds are scored by ``score``: what it is to be given,
        ``set_score_request`` says.
        """
        # A scorer that passes on to this estimator's own would ask it for its routing, which is
        # asked for here.
        scorer = self._get_metadata_request() if self.scoring is None else self._scorer()
        return self._router(self, scorer).add_self_request(self)

    def _search(
        self, estimator: Estimator, given: FitInput, routed: Bunch
    ) -> tuple[PathResult, int, int]:
        """Follow the paths of all folds; return what was found, and the numbers of the norm and the
        C chosen."""
        rule, scorer, choice = (
            path_rule(estimator),
            self._scorer(),
            check_choice("rule", self.rule, RULES),
        )
        strata = given.y if rule.strata is None else rule.strata(given.y)
        splits = self._splitter(estimator, strata).split(
            as_given(given), strata, **routed.splitter.split
        )
        folds = read_folds(splits, _num_samples(given.X))

        def eligible_scores(found: PathResult) -> Array:
            scores = found.scores(scorer, routed.scorer.score, self.calibration)
            return _without_blind_models(scores, found, scorer)

        with progress(type(self).__name__, len(folds), bool(self.verbose)) as show:
            norms = self._norms()
            near = None if self.near is None else check_count("near", self.near)
            near = near if "uniform" in norms else None
            options = PathOptions(
                bool(self.scale), self.n_jobs, show, near, eligible_scores, choice
            )
            found = search_paths(estimator, given, folds, self.Cs, norms, options)
        remedy = "raise max_iter, accept a larger tol, or try smaller Cs"
        self.n_unconverged_ = warn_of_gaps(
            type(self).__name__, found.all_gaps(), found.model.tol, remedy
        )
        scores = found.scores(scorer, routed.scorer.score, self.calibration)
        self._require_scores(scores)
        eligible = _without_blind_models(scores, found, scorer)
        m, i = found.best(eligible, choice)
        self.parameter_, self.Cs_, self.C_ = rule.parameter, found.Cs, float(found.Cs[i])
        self.scores_, self.best_score_ = scores[m], float(scores[m, :, i].mean())
        if self.norms is not None:
            self.norm_ = found.norms[m]
            self.scores_by_norm_ = dict(zip(found.norms, scores, strict=True))
            self.weights_by_norm_ = found.learned(scores, choice)
            self.weights_path_by_norm_ = {
                norm: found.mean_weights(k) for k, norm in enumerate(found.norms)
            }
            if self.verbose:
                said = describe_choice(self.scores_by_norm_, self.norm_, i, choice)
                print(f"{type(self).__name__}: {said}.", flush=True)
        self.weights_paths_, self.duality_gaps_ = found.weights(m), found.gaps(m)
        self.weights_path_ = found.mean_weights(m)
        return found, m, i

    def _require_scores(self, scores: Array) -> None:
        """Raise unless some value of C has a score in every fold."""
        if not np.all(np.isnan(scores.mean(axis=1))):
            return
        lost = [str(k + 1) for k in np.flatnonzero(np.isnan(scores).all(axis=(0, 2)))]
        where = f"fold {', '.join(lost)}" if lost else "some fold for every C"
        raise ValueError(
            f"scoring={self.scoring!r} is undefined in {where} (of {scores.shape[1]}), whose"
            " held-out samples may lack a class or an event, or be a single one: use fewer folds"
            " (cv), stratified folds, or another scoring."
        )

    def _unseen(self) -> conformal.Conformal:
        """Return the machines of the folds, or raise if none holds out what intervals or sets are
        of."""
        if self._conformal is None:
            raise ValueError(
                "y: intervals need numeric targets, and sets need one class per sample; held-out"
                " samples of positive weight are needed for both."
            )
        return self._conformal

    def _norms(self) -> list[Any]:
        norms = (
            [self.norms]
            if isinstance(self.norms, str | int | float) or self.norms is None
            else list(self.norms)
        )
        if not norms:
            raise ValueError(f"norms={self.norms!r}: give at least one, such as 1, 2 or 'uniform'.")
        return norms

    def _splitter(self, estimator: Estimator, y: TargetLike = None) -> Any:
        # Loads a good part of scikit-learn, which the estimators that choose nothing do without.
        from sklearn.model_selection import check_cv

        return check_cv(
            self.cv, y, classifier=is_classifier(self) or path_rule(estimator).strata is not None
        )

    def _scorer(self) -> Any:
        from sklearn.metrics import check_scoring

        check_one_score(self.scoring)
        return check_scoring(getattr(self, "estimator", self), scoring=self.scoring)

    # What is routed to whom -----------------------------------------------------------------------

    def _routed(self, sample_weight: SampleWeight, params: Settings) -> Bunch:
        """Return what estimator, splitter and scorer are given of the metadata of `fit`."""
        from sklearn import get_config

        given = params if sample_weight is None else {"sample_weight": sample_weight, **params}
        if get_config().get("enable_metadata_routing", False):
            routed: Bunch = process_routing(self, "fit", **given)
            return routed
        unknown = set(params) - {"groups"}
        if unknown:
            raise TypeError(
                f"{type(self).__name__}.fit() got an unexpected argument {sorted(unknown)[0]!r}."
            )
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        # A user's function may not accept weights.
        known = self.scoring is None or isinstance(self.scoring, str)
        score, fit = Bunch(score=weight if known else {}), Bunch(fit=weight)
        return Bunch(estimator=fit, splitter=Bunch(split=params), scorer=score)

    def _router(self, estimator: Estimator, scorer: Any) -> MetadataRouter:
        to = {name: MethodMapping().add(caller="fit", callee=name) for name in ("split", "score")}
        router = MetadataRouter(owner=type(self).__name__)
        router.add(splitter=self._splitter(estimator), method_mapping=to["split"])
        return router.add(scorer=scorer, method_mapping=to["score"])


def _without_blind_models(scores: Array, found: PathResult, scorer: Any) -> Array:
    """Return the scores of the models that may be chosen, NaN of the others.

    Scores of ranks and of probabilities do not penalise a model that never predicts a rare class.
    By such scores, none is chosen whose predictions name fewer classes than those of another.
    """
    tried = ~np.isnan(scores.mean(axis=1))
    if getattr(scorer, "_response_method", "predict") == "predict" or not tried.any():
        return scores
    unnamed = found.unnamed()
    blind = unnamed > unnamed[tried].min()
    return np.where(blind[:, np.newaxis], np.nan, scores)


def fit_choice(
    self: Any, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None, **params: Any
) -> Any:
    """Choose C and the norm by cross-validation, and fit to all samples.

    Parameters
    ----------
    X : array-like, sparse matrix, data frame, or dict or list of such tables
        Samples; several tables have the same rows.
    y : array-like of shape (n_samples,), or of shape (n_samples, n_targets) for a regression
        Classes, or targets.
    sample_weight : array-like of shape (n_samples,), optional
        Factors of C, sample by sample; they count in the scores as well.
    **params : dict
        ``groups`` for the splitter; with metadata routing enabled, whatever splitter and scorer
        request.

    Returns
    -------
    self
    """
    self._is_refitted = False
    check_row_names(X, groups=params.get("groups"))
    given = self.validated(in_memory(X), y, sample_weight)
    routed = self._routed(given.weight, params)
    found, m, i = self._search(self._plain(given), given, routed)
    if self.refit:
        scaled = self.scaled(given, self.scale)
        recipe = found.chosen(m, i, verbose=self.verbose).recipe(scaled)
        self.keep(fit(recipe, scaled, starts=found.starts(m, i), store=active_store()), scaled)
        if self.calibration:
            self._set_calibration(found.calibration(m, i, self.calibration))
        self._conformal = found.conformal(m, i)
        self._is_refitted = True
    return self


def in_memory(X: MatrixLike) -> MatrixLike:
    """Return samples of which folds can be taken, or raise."""
    if isinstance(X, np.memmap):
        return np.asarray(X)
    if is_streamed(X):
        raise ValueError(
            f"X={type(X).__name__}: cross-validation supports arrays, sparse matrices and data"
            " frames; load the samples, or choose C yourself and use the estimator without a"
            " search."
        )
    return X


class MKLClassifierCV(PathSearch, MKLClassifier):
    """:class:`MKLClassifier` with C and the norm of its weights chosen by cross-validation, and
    with probabilities.

    Every fold follows a path of warm-started fits along C, one path per norm, and the best pair is
    fitted to all samples. The decision values of the samples held out calibrate
    :meth:`predict_proba`.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    Cs : int or array-like, default=11
        The values of C to try, or their number: that many from 0.01 to 1000, evenly spaced on a
        logarithmic scale.
    norms : sequence, default=(1, 2, "uniform")
        The norms of the weights to try; ``"uniform"`` gives all kernels the same weight, and
        ``"loo"`` those that :class:`MKLRidgeClassifierCV` learns from the training samples of each
        fold, divided by their sum. The studies show whether these help a support vector machine.
        Where equal weights are among them, learned ones are chosen only if their best mean score is
        higher than that of equal weights by more than one standard error of the differences over
        the folds.
    near : int, default=1
        Where equal weights are among the norms they are tried at all values of C first. Every other
        norm is then tried at the C at which its equal weights, P^(1 − 1/p) times larger, give the
        best of these models again, and at so many values on both sides; as long as its best value
        is the first or the last of them, as many more are tried on that side. None tries all norms
        at all values. What is not tried has the score, the weights and the gap NaN in the
        attributes.
    rule : {"best", "one_standard_error"}, default="best"
        How C is chosen, with learned weights or with equal ones. ``"best"`` takes the best mean
        score; of scores that differ by less than the fits' tolerance, or by less than a sample,
        that of the smallest C, then of the first norm. ``"one_standard_error"`` takes the smallest
        C whose mean score is at most one standard error below the best.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`: a number means stratified folds.
    scoring : str or callable, default=None
        As in :class:`~sklearn.model_selection.GridSearchCV`; None means accuracy. A function is
        called with an estimator of the samples held out: its `predict`, `decision_function` and
        `predict_proba`, which is calibrated by the other folds. Where a scorer of scikit-learn
        reads one of the latter two, as ``"roc_auc"`` does, models whose predictions never name a
        class that those of others name are not chosen.
    n_jobs : int, default=None
        The number of folds computed at the same time, in separate processes. None computes them in
        threads, as many as linear algebra may use, where folds are large enough to gain and there
        is memory for their kernels.
    refit : bool, default=True
        Whether to fit the chosen parameters to all samples; otherwise there are only scores.
    scale : bool, default=True
        Whether to standardise the columns that kernels read as numbers, by the training samples of
        each fit; sparse samples are divided by the standard deviations only. Row numbers, strings
        and other columns stay as they are.
    calibration : {"sigmoid", "isotonic"}, default="sigmoid"
        How decision values become probabilities: p ∝ exp(h(f_c)) with one increasing, piecewise
        linear h for all classes, or one monotone function per class.
    fixed_weights, penalties, penalty_power, slack, solver, easymkl_lambda, multi_class, normalize
        As in :class:`MKLClassifier`.
    approximation, rank, missing, class_weight, tol, max_iter, memory_budget, device, random_state
        As in :class:`MKLClassifier`.
    verbose : bool, default=False
        Show how many folds are done, and the progress of the last fit.

    Attributes
    ----------
    C_ : float
        The chosen C.
    norm_ : float or str
        The chosen norm.
    Cs_ : ndarray of shape (Cs,)
        The values tried, in ascending order.
    scores_ : ndarray of shape (folds, Cs)
        The scores of the chosen norm; those of all norms are in the dictionary ``scores_by_norm_``.
    weights_by_norm_ : dict of ndarray
        The weights of each norm at its best C, averaged over the folds; where equal weights score
        best, these are the learned ones.
    best_score_ : float
        The mean score of the choice over the folds.
    weights_path_ : ndarray of shape (Cs, P) or (Cs, classes, P)
        The weights of the kernels along the path, with the chosen norm, averaged over the folds;
        those of every fold are in ``weights_paths_``, those of all norms in the dictionary
        ``weights_path_by_norm_``.
    duality_gaps_ : ndarray of shape (folds, Cs)
        The certified relative duality gap of every fit of the chosen norm.
    n_unconverged_ : int
        How many fits of the folds, of all norms, did not reach `tol`; a warning says so, too.
    weights_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        Of the fit to all samples, as in :class:`MKLClassifier`.
    objective_, duality_gap_, converged_, solver_
        Of the fit to all samples, as in :class:`MKLClassifier`.
    n_iter_, n_solves_, history_, classes_, n_features_in_, feature_names_in_
        As in :class:`MKLClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(Cs=4, cv=3).fit(X, y)
    >>> model.scores_.shape
    (3, 4)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    """

    # Parameters of the estimator without a search, of which cross-validation chooses the values.
    C: Any = None
    norm: Any = None
    weights: Any = None

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        Cs: Any = 11,
        norms: Any = (1, 2, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        calibration: str | None = "sigmoid",
        near: int | None = 1,
        rule: str = "best",
        verbose: bool = False,
        multi_class: str = "ovr",
        class_weight: Any = None,
        easymkl_lambda: float = 0.1,
        fixed_weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        missing: str | None = "neighbors",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
    ) -> None:
        self.kernels = kernels
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.scale = scale
        self.calibration = calibration
        self.near = near
        self.rule = rule
        self.verbose = verbose
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.easymkl_lambda = easymkl_lambda
        self.fixed_weights = fixed_weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state

    fit = fit_choice

    def _plain(self, given: FitInput) -> MKLClassifier:
        check_choice("calibration", self.calibration, CALIBRATIONS)
        return MKLClassifier(**self._plain_params())

    predict_set = conformal.predict_set


class MKLRegressorCV(PathSearch, MKLRegressor):
    """:class:`MKLRegressor` with C and the norm of its weights chosen by cross-validation.

    Every fold follows a path of warm-started fits along C, one path per norm, and the best pair is
    fitted to all samples.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLRegressor`.
    Cs : int or array-like, default=11
        The values of C to try, or their number: that many from 0.01 to 1000 standard deviations of
        y, evenly spaced on a logarithmic scale.
    norms : sequence, default=(1, 2, "uniform")
        The norms of the weights to try; ``"uniform"`` gives all kernels the same weight, and
        ``"loo"`` those that :class:`MKLRidgeCV` learns from the training samples of each fold,
        divided by their sum. Learned weights must win by more than one standard error, as in
        :class:`MKLClassifierCV`.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`.
    scoring : str or callable, default=None
        As in :class:`~sklearn.model_selection.GridSearchCV`; None means R², or with
        ``loss="quantile"`` minus the mean pinball loss. A function is called with an estimator
        whose predictions are those of the samples held out.
    near, rule, n_jobs, refit, scale
        As in :class:`MKLClassifierCV`.
    epsilon : float or "auto", default="auto"
        As in :class:`MKLRegressor`; ``"auto"`` is a tenth of the standard deviation of y.
    loss, quantile, fixed_weights, penalties, penalty_power, slack, solver, normalize
        As in :class:`MKLRegressor`.
    approximation, rank
        As in :class:`MKLRegressor`.
    missing, tol, max_iter, memory_budget, device, random_state
        As in :class:`MKLRegressor`.
    verbose : bool, default=False
        Show how many folds are done, and the progress of the last fit.

    Attributes
    ----------
    C_, norm_, Cs_, scores_, scores_by_norm_, weights_by_norm_, best_score_, weights_path_
        As in :class:`MKLClassifierCV`.
    weights_paths_
        As in :class:`MKLClassifierCV`.
    weights_path_by_norm_, duality_gaps_, n_unconverged_
        As in :class:`MKLClassifierCV`.
    epsilon_ : float
        The half-width of the tube.
    weights_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        Of the fit to all samples, as in :class:`MKLRegressor`.
    objective_, duality_gap_, converged_, solver_
        Of the fit to all samples, as in :class:`MKLRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelmosaic import MKLRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> bool(MKLRegressorCV(Cs=4, cv=3).fit(X[:200], y[:200]).best_score_ > 0.3)
    True
    """

    # Parameters of the estimator without a search, of which cross-validation chooses the values.
    C: Any = None
    norm: Any = None
    weights: Any = None
    # Regressions have no probabilities.
    calibration = None

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        Cs: Any = 11,
        norms: Any = (1, 2, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        near: int | None = 1,
        rule: str = "best",
        verbose: bool = False,
        epsilon: Any = "auto",
        loss: str = "epsilon",
        quantile: Any = 0.5,
        fixed_weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        missing: str | None = "neighbors",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
    ) -> None:
        self.kernels = kernels
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.scale = scale
        self.near = near
        self.rule = rule
        self.verbose = verbose
        self.epsilon = epsilon
        self.loss = loss
        self.quantile = quantile
        self.fixed_weights = fixed_weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state

    fit = fit_choice

    def _plain(self, given: FitInput) -> MKLRegressor:
        epsilon = check_positive("epsilon", self.epsilon, zero=True, word="auto")
        self.epsilon_ = 0.1 * mean_deviation(given) if epsilon == "auto" else self.epsilon
        return MKLRegressor(**self._plain_params() | {"epsilon": self.epsilon_})

    predict_interval = conformal.predict_interval
