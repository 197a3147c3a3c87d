"""Estimators that choose C and the norm of the weights by cross-validation.

Samples that the folds hold out calibrate their probabilities, and give intervals and sets.
"""

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
from kernelmosaic.engine.choice import RULES, Choice, HeldOutScoring
from kernelmosaic.engine.paths import path_rule
from kernelmosaic.engine.samples import FitInput, is_streamed
from kernelmosaic.engine.scoring import check_one_score
from kernelmosaic.engine.search import (
    PathOptions,
    as_given,
    read_folds,
    search_paths,
    warn_of_gaps,
)
from kernelmosaic.engine.tasks import mean_deviation
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.learning.problem import progress
from kernelmosaic.stacking import check_row_names

#: The default of `cv` in all searches.
DEFAULT_FOLDS = 5

#: The half-width of the tube with ``epsilon="auto"``, in standard deviations of the targets. Chosen
#: by hand.
AUTO_EPSILON = 0.1

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
    """What searches along a path share: folds, scores, the choice, and the routing of metadata."""

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
    # Whether there is a fit to all samples, by the chosen parameters.
    _is_refitted = False

    def _plain_params(self) -> Settings:
        """Return the parameters of the estimator of which C and the norm are chosen."""
        params = self.get_params(deep=False)
        return {name: value for name, value in params.items() if name not in SEARCH_PARAMETERS}

    # scikit-learn's conventions -------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        # Without a refit there are scores, but no predictions.
        return self._is_refitted

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which metadata `fit` passes to the splitter and to the scorer.

        Without `scoring`, folds are scored by ``score``, whose metadata ``set_score_request`` sets.
        """
        # The scorer of ``scoring=None`` calls ``score`` of this estimator, and would ask for this
        # very routing without end.
        scorer = self._get_metadata_request() if self.scoring is None else self._scorer()
        return self._router(self, scorer).add_self_request(self)

    def _choose(self, estimator: Estimator, samples: FitInput, routed: Bunch) -> Choice:
        """Return the norm and the C chosen by cross-validation, and set the attributes of both.

        Parameters
        ----------
        estimator : estimator
            The estimator without a search, of which C and the norm are chosen.
        samples : FitInput
            All samples, as `validated` returns them.
        routed : Bunch
            The metadata of the splitter and of the scorer, as `_routed` returns them.
        """
        # 1. How held-out samples are scored, and the folds.
        path = path_rule(estimator)
        scorer = self._scorer()
        rule = check_choice("rule", self.rule, RULES)
        scoring = HeldOutScoring(scorer, routed.scorer.score, self.scoring, rule, self.calibration)
        strata = samples.y if path.strata is None else path.strata(samples.y)
        splitter = self._splitter(estimator, strata)
        splits = splitter.split(as_given(samples), strata, **routed.splitter.split)
        folds = read_folds(splits, _num_samples(samples.X))

        # 2. Fits along the paths of all norms, in every fold. The neighbourhood of the best C is
        # known only where equal weights are tried first.
        with progress(type(self).__name__, len(folds), bool(self.verbose)) as show:
            norms = self._norms()
            near = None if self.near is None else check_count("near", self.near)
            if "uniform" not in norms:
                near = None
            options = PathOptions(bool(self.scale), self.n_jobs, show, near, scoring.best_value)
            fits = search_paths(estimator, samples, folds, self.Cs, norms, options)
        self.n_unconverged_ = warn_of_gaps(
            type(self).__name__,
            fits.all_gaps(),
            fits.problem.model.tol,
            "raise max_iter, accept a larger tol, or try smaller Cs",
        )

        # 3. The choice by the scores.
        choice = scoring.choose(fits)
        self._keep_choice(choice)
        return choice

    def _keep_choice(self, choice: Choice) -> None:
        """Set the attributes of a choice: C, norm, scores and weights."""
        fits = choice.fits
        self.parameter_ = fits.problem.rule.parameter
        self.Cs_ = fits.Cs
        self.C_ = choice.C
        self.scores_ = choice.scores_of_norm
        self.best_score_ = float(choice.scores_of_norm[:, choice.value_number].mean())
        if self.norms is not None:
            self.norm_ = choice.norm
            self.scores_by_norm_ = choice.scores_by_norm
            self.weights_by_norm_ = choice.weights_by_norm()
            self.weights_path_by_norm_ = {
                norm: fits.mean_weights(m) for m, norm in enumerate(fits.norms)
            }
            if self.verbose:
                print(f"{type(self).__name__}: {choice.described()}.", flush=True)
        self.weights_paths_ = fits.weights(choice.norm_number)
        self.duality_gaps_ = fits.gaps(choice.norm_number)
        self.weights_path_ = fits.mean_weights(choice.norm_number)

    def _unseen(self) -> conformal.Conformal:
        """Return the machines of the folds, or raise if no samples were held out for them."""
        if self._conformal is None:
            raise ValueError(
                "y: intervals need numeric targets, and sets need one class per sample; held-out"
                " samples of positive weight are needed for both."
            )
        return self._conformal

    def _norms(self) -> list[Any]:
        """Return the norms to try, or raise if there are none."""
        is_single = self.norms is None or isinstance(self.norms, str | int | float)
        norms = [self.norms] if is_single else list(self.norms)
        if not norms:
            raise ValueError(f"norms={self.norms!r}: give at least one, such as 1, 2 or 'uniform'.")
        return norms

    def _splitter(self, estimator: Estimator, y: TargetLike = None) -> Any:
        """Return the splitter of samples into folds.

        A number of folds, `cv`, means folds stratified by y if y are classes or the estimator names
        strata.
        """
        # Imported here because it loads much of scikit-learn, which other estimators do not need.
        from sklearn.model_selection import check_cv

        has_strata = is_classifier(self) or path_rule(estimator).strata is not None
        return check_cv(self.cv, y, classifier=has_strata)

    def _scorer(self) -> Any:
        """Return the function that scores a fit, or raise if `scoring` names no single score."""
        # Imported here because it loads much of scikit-learn, which other estimators do not need.
        from sklearn.metrics import check_scoring

        check_one_score(self.scoring)
        return check_scoring(getattr(self, "estimator", self), scoring=self.scoring)

    # Routing of metadata --------------------------------------------------------------------------

    def _routed(self, sample_weight: SampleWeight, params: Settings) -> Bunch:
        """Return the metadata of `fit` for the estimator, the splitter and the scorer.

        `params` are further arguments of `fit`; those that none of the three takes raise an error.
        """
        from sklearn import get_config

        # 1. With metadata routing, each of the three says what it takes.
        if get_config().get("enable_metadata_routing", False):
            metadata = dict(params)
            if sample_weight is not None:
                metadata = {"sample_weight": sample_weight, **params}
            routed: Bunch = process_routing(self, "fit", **metadata)
            return routed

        # 2. Otherwise, groups are for the splitter, and weights for the estimator and the scorer.
        unknown = set(params) - {"groups"}
        if unknown:
            raise TypeError(
                f"{type(self).__name__}.fit() got an unexpected argument {sorted(unknown)[0]!r}."
            )
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        # A function of the user may not accept weights.
        scorer_takes_weight = self.scoring is None or isinstance(self.scoring, str)
        return Bunch(
            estimator=Bunch(fit=weight),
            splitter=Bunch(split=params),
            scorer=Bunch(score=weight if scorer_takes_weight else {}),
        )

    def _router(self, estimator: Estimator, scorer: Any) -> MetadataRouter:
        """Return a router of the metadata of `fit` to the splitter and the scorer."""
        to_split = MethodMapping().add(caller="fit", callee="split")
        to_score = MethodMapping().add(caller="fit", callee="score")
        router = MetadataRouter(owner=type(self).__name__)
        router.add(splitter=self._splitter(estimator), method_mapping=to_split)
        return router.add(scorer=scorer, method_mapping=to_score)


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
    samples = self.validated(in_memory(X), y, sample_weight)
    routed = self._routed(samples.weight, params)
    choice = self._choose(self._plain(samples), samples, routed)
    if self.refit:
        choice.refit_in(self, samples)
        self._conformal = choice.conformal()
        self._is_refitted = True
    return self


def in_memory(X: MatrixLike) -> MatrixLike:
    """Return samples from which folds can be taken, or raise; a memory map as an array."""
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

    def _plain(self, samples: FitInput) -> MKLClassifier:
        """Return the classifier without a search, of which C and the norm are chosen."""
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

    def _plain(self, samples: FitInput) -> MKLRegressor:
        """Return the regression without a search, of which C and the norm are chosen.

        The half-width of its tube is set as `epsilon_`.
        """
        epsilon = check_positive("epsilon", self.epsilon, zero=True, word="auto")
        self.epsilon_ = self.epsilon
        if epsilon == "auto":
            self.epsilon_ = AUTO_EPSILON * mean_deviation(samples)
        return MKLRegressor(**self._plain_params() | {"epsilon": self.epsilon_})

    predict_interval = conformal.predict_interval
