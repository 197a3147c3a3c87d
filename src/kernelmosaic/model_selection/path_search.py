"""Estimators around other estimators: a search for C, and intervals and sets by samples set aside.

`PathSearchCV` chooses C, or the parameter that an estimator has in its place, by cross-validation.
`SplitConformal` sets samples aside, by which it states how far targets are from predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted, has_fit_parameter

from kernelmosaic._checks import check_choice, check_share
from kernelmosaic._typing import (
    AnyArray,
    ArrayOrTensor,
    Estimator,
    MatrixLike,
    SampleWeight,
    Seed,
    TargetLike,
)
from kernelmosaic.engine import conformal
from kernelmosaic.engine.calibration import CALIBRATIONS
from kernelmosaic.engine.conformal import Conformal
from kernelmosaic.engine.paths import path_rule, predicts_targets
from kernelmosaic.engine.pipelines import divide_pipeline
from kernelmosaic.engine.search import read_samples
from kernelmosaic.estimators.cv import PathSearch, in_memory
from kernelmosaic.stacking import check_row_names


def has(name: str) -> Callable[[Any], bool]:
    """Return a function that says whether the wrapped estimator has a method.

    Before the fit it asks the estimator that was given, after it the fitted one. A classifier that
    will be calibrated has probabilities.
    """

    def has_method(wrapper: Any) -> bool:
        if hasattr(wrapper, wrapper._fitted_name):
            return hasattr(getattr(wrapper, wrapper._fitted_name), name)
        if hasattr(wrapper.estimator, name):
            return True
        if name not in ("predict_proba", "predict_log_proba"):
            return False
        return getattr(wrapper, "calibration", None) is not None and is_classifier(
            wrapper.estimator
        )

    return has_method


class Wrapper(MetaEstimatorMixin):
    """An estimator around another one, whose predictions and tags it has."""

    estimator: Estimator
    #: The name of the attribute that is the fitted estimator.
    _fitted_name: ClassVar[str] = "estimator_"

    @property
    def _inner(self) -> Estimator:
        """The fitted estimator."""
        check_is_fitted(self)
        return getattr(self, self._fitted_name)

    @available_if(has("predict"))
    def predict(self, X: MatrixLike) -> ArrayOrTensor:
        """Return what the fitted estimator predicts."""
        return self._inner.predict(X)

    @available_if(has("score"))
    def score(
        self, X: MatrixLike, y: TargetLike = None, sample_weight: SampleWeight = None
    ) -> float:
        """Return the score of the fitted estimator."""
        check_row_names(X, y=y, sample_weight=sample_weight)
        params = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(self._inner.score(X, y, **params))

    predict_interval = available_if(lambda self: predicts_targets(self.estimator))(
        conformal.predict_interval
    )
    predict_set = available_if(lambda self: is_classifier(self.estimator))(conformal.predict_set)

    # scikit-learn's conventions -------------------------------------------------------------------

    classes_ = property(attrgetter("_inner.classes_"), doc="The classes.")
    n_features_in_ = property(attrgetter("_inner.n_features_in_"), doc="The number of columns.")
    feature_names_in_ = property(
        attrgetter("_inner.feature_names_in_"), doc="The names of the columns."
    )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags_of_estimator = get_tags(self.estimator)
        for name in (
            "estimator_type",
            "target_tags",
            "classifier_tags",
            "regressor_tags",
            "transformer_tags",
            "input_tags",
        ):
            setattr(tags, name, getattr(tags_of_estimator, name))
        return tags


class PathSearchCV(Wrapper, PathSearch):
    """C, and on request the norm of the weights, chosen by cross-validation for an estimator with
    kernels.

    Every fold follows a path of warm-started fits along C, one path per norm, with kernels that are
    computed once, and the best pair is fitted to all samples. Scores are those of
    :class:`~sklearn.model_selection.GridSearchCV`, up to the tolerance of the fits.
    :class:`~kernelmosaic.MKLClassifierCV` and :class:`~kernelmosaic.MKLRegressorCV` are the same
    search with the parameters of their estimators.

    Parameters
    ----------
    estimator : estimator
        Of this package, with a parameter ``C``, or ``alpha``, ``kappa`` or ``nu`` in its place; or
        a pipeline that ends in one, whose first steps are fitted to the training samples of every
        fold.
    Cs : int or array-like, default=11
        The values of that parameter to try, or how many: so many between bounds that depend on the
        estimator (0.01 and 1000; of regressions, in standard deviations of y; localized 0.1 and
        1000; survival 0.001 and 100; ``alpha`` 10⁻⁴ and 10²; ``nu`` 0.01 and 0.5), evenly on a
        logarithmic scale.
    norms : sequence, default=None
        The norms of the weights to try, such as ``(1, 2, "uniform")``; ``"uniform"`` gives all
        kernels the same weight, ``"loo"`` of support vector classification and regression those
        that a ridge estimator learns in each fold. None means that of the estimator. Of a
        discriminant, 1 learns the weights; gates have no norms. Where equal weights are among them,
        learned ones are chosen only if their best mean score is higher than that of equal weights
        by more than one standard error of the differences over the folds.
    near : int, default=1
        Where equal weights are among the norms they are tried at all values of C first. Every other
        norm is then tried at the C at which its equal weights, P^(1 − 1/p) times larger, give the
        best of these models again, and at so many values on both sides; as long as its best value
        is the first or the last of them, as many more are tried on that side. None tries all norms
        at all values. What is not tried has the score, the weights and the gap NaN in the
        attributes.
    rule : {"best", "one_standard_error"}, default="best"
        How the value is chosen, with learned weights or with equal ones. ``"best"`` takes the best
        mean score; of scores that differ by less than the fits' tolerance, or by less than a
        sample, that of the smoothest value (the smallest, of ``alpha`` the largest), then of the
        first norm. ``"one_standard_error"`` takes the smoothest value whose mean score is at most
        one standard error below the best.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`: a number means folds that are
        stratified by the classes, or, for survival, by whether the event was observed, which is
        also what splitters are given for y then.
    scoring : str or callable, default=None
        As in :class:`~sklearn.model_selection.GridSearchCV`; None means the estimator's own score.
        A function is called with an estimator of the samples held out: its `predict`, and of a
        classifier `decision_function` and `predict_proba`, which is calibrated by the other folds.
    n_jobs : int, default=None
        Folds computed at the same time, in separate processes. None computes them in threads, as
        many as linear algebra may use, where folds are large enough to gain and there is memory for
        their kernels.
    refit : bool, default=True
        Whether to fit the choice to all samples; else there are scores, and no predictions.
    scale : bool, default=True
        Whether to standardise the columns that kernels read as numbers, by the training samples of
        each fit; sparse samples are divided by the standard deviations only. Row numbers, strings
        and other columns stay as they are. The best estimator then standardises what it predicts.
    calibration : {"sigmoid", "isotonic"} or None, default="sigmoid"
        How decision values of the samples held out become the probabilities of a classifier; None
        leaves them to the estimator.
    verbose : bool, default=False
        Show how many folds are done.

    Attributes
    ----------
    best_estimator_ : estimator
        The choice, fitted to all samples; of a pipeline a pipeline.
    parameter_ : str
        The parameter that was searched, ``"C"`` for most.
    C_ : float
        Its chosen value.
    norm_ : float or str
        The chosen norm, if there are `norms`.
    Cs_ : ndarray of shape (Cs,)
        The values tried, in ascending order.
    scores_ : ndarray of shape (folds, Cs)
        The scores of the chosen norm; those of all norms are in the dictionary ``scores_by_norm_``.
    weights_by_norm_ : dict of ndarray
        The weights of each norm at its best C, averaged over the folds.
    best_score_ : float
        The mean score of the choice over the folds.
    weights_path_ : ndarray of shape (Cs, P) or (Cs, classes, P)
        The weights of the kernels along the path, with the chosen norm, averaged over the folds;
        those of every fold are in ``weights_paths_``, those of all norms in the dictionary
        ``weights_path_by_norm_``. Of gates they are means.
    duality_gaps_ : ndarray of shape (folds, Cs)
        The certified relative duality gap of every fit of the chosen norm.
    n_unconverged_ : int
        How many fits of the folds, of all norms, did not reach `tol`; a warning says so, too.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import DiscriminantMKLClassifier
    >>> from kernelmosaic.model_selection import PathSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = PathSearchCV(DiscriminantMKLClassifier(), Cs=5, norms=(1, "uniform"))
    >>> search = search.fit(X, y)
    >>> search.score(X, y) > 0.95, search.transform(X).shape, search.predict_proba(X).shape
    (True, (150, 2), (150, 3))
    """

    _fitted_name = "best_estimator_"

    def __init__(
        self,
        estimator: Estimator,
        *,
        Cs: Any = 11,
        norms: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        calibration: str | None = "sigmoid",
        near: int | None = 1,
        rule: str = "best",
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
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

    def fit(self, X: MatrixLike, y: TargetLike = None, **params: Any) -> Self:
        """Choose by cross-validation, and fit the choice to all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like, default=None
            Targets, as the estimator takes them.
        **params : dict
            ``sample_weight`` for the fits, and for scores that support it; ``groups`` for the
            splitter; with metadata routing enabled, whatever estimator, splitter and scorer
            request.

        Returns
        -------
        self
        """
        method = None
        if is_classifier(self.estimator):
            method = check_choice("calibration", self.calibration, (None, *CALIBRATIONS))
        # An estimator without a path is refused before its samples are read.
        path_rule(self.estimator)
        check_row_names(
            X, y=y, sample_weight=params.get("sample_weight"), groups=params.get("groups")
        )
        routed = self._routed(params.pop("sample_weight", None), params)
        weight = routed.estimator.fit.get("sample_weight")
        model = divide_pipeline(self.estimator)[1]
        if weight is not None and not has_fit_parameter(model, "sample_weight"):
            raise TypeError(f"sample_weight: {type(model).__name__}.fit takes none; give None.")
        samples = read_samples(self.estimator, in_memory(X), y, weight)
        choice = self._choose(self.estimator, samples, routed)
        if self.refit:
            self.best_estimator_ = choice.refit(method)
            self._conformal = choice.conformal()
        elif hasattr(self, "best_estimator_"):
            del self.best_estimator_
        return self

    @available_if(has("predict_proba"))
    def predict_proba(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the probabilities of the classes, of shape (n_samples, classes)."""
        return self._inner.predict_proba(X)

    @available_if(has("predict_log_proba"))
    def predict_log_proba(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the logarithms of the probabilities of the classes, of shape (n_samples,
        classes)."""
        return self._inner.predict_log_proba(X)

    @available_if(has("decision_function"))
    def decision_function(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the decision values of the best estimator."""
        return self._inner.decision_function(X)

    @available_if(has("transform"))
    def transform(self, X: MatrixLike) -> ArrayOrTensor:
        """Return the samples as the best estimator transforms them."""
        return self._inner.transform(X)

    @available_if(has("transform"))
    def fit_transform(self, X: MatrixLike, y: TargetLike = None, **params: Any) -> MatrixLike:
        """Fit, then return the samples as the best estimator transforms them."""
        return self.fit(X, y, **params).transform(X)

    def __sklearn_is_fitted__(self) -> bool:
        # Without a refit there are scores, but no predictions.
        return hasattr(self, "best_estimator_")

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what `fit` passes on, as :class:`~sklearn.model_selection.GridSearchCV` does."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = self._router(self.estimator, self._scorer())
        return router.add(estimator=self.estimator, method_mapping=to_fit)


class SplitConformal(Wrapper, BaseEstimator):
    """Intervals around the predictions of any regressor, or sets of classes by any classifier, with
    their coverage.

    Split conformal prediction: the estimator is fitted to some of the samples, and the others,
    which are set aside, measure how far targets are from its predictions. Whatever the estimator
    and the distribution, intervals and sets of samples that are exchangeable with those set aside
    contain the target with a probability of at least `coverage`, on average over all samples.
    Estimators that were cross-validated, such as :class:`~kernelmosaic.MKLRegressorCV` and
    :class:`~kernelmosaic.MKLRidgeCV`, have these methods themselves, and set no samples aside.

    Parameters
    ----------
    estimator : estimator
        A regressor or a classifier, of this package or any other. One that predicts several
        quantiles, ``MKLRegressor(loss="quantile", quantile=[0.05, 0.95])``, has its first and last
        one moved apart or together until they cover (conformalised quantile regression), so that
        intervals are wide where the targets vary. One that is fitted already,
        ``FrozenEstimator(model)`` of scikit-learn, is left as it is: all samples given to `fit` are
        then taken for new ones.
    calibration_size : float, default=0.25
        The share of the samples that is set aside, drawn at random.
    random_state : int, RandomState or None, default=None
        Draws them.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the other samples.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Papadopoulos, Proedrou, Vovk and Gammerman (2002), "Inductive confidence machines for
    regression". Romano, Patterson and Candès (2019), "Conformalized quantile regression".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelmosaic import MKLRegressor
    >>> from kernelmosaic.model_selection import SplitConformal
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SplitConformal(MKLRegressor(C=100), random_state=0).fit(X[:300], y[:300])
    >>> low, high = model.predict_interval(X[300:], coverage=0.8).T
    >>> bool(0.7 < ((low <= y[300:]) & (y[300:] <= high)).mean() < 0.9)
    True
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        calibration_size: float = 0.25,
        random_state: Seed = None,
    ) -> None:
        self.estimator = estimator
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit the estimator to some of the samples, and keep the residuals of the others.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or of shape (n_samples, n_targets) for a regression
            Classes, or targets.
        sample_weight : array-like of shape (n_samples,), optional
            Passed to the estimator's `fit`. Those set aside count alike, but for samples of weight
            zero, which do not.

        Returns
        -------
        self
        """
        check_row_names(X, y=y, sample_weight=sample_weight)
        X, y, weight = indexable(in_memory(X), y, sample_weight)
        y = self._read(y)
        rows = np.arange(len(y))
        if isinstance(self.estimator, FrozenEstimator):
            # The estimator is fitted already, to other samples.
            train, held = rows, rows
        else:
            from sklearn.model_selection import train_test_split

            size = check_share("calibration_size", self.calibration_size)
            train, held = train_test_split(rows, test_size=size, random_state=self.random_state)
        params = {}
        if weight is not None:
            params["sample_weight"] = _safe_indexing(weight, train)
        self.estimator_ = clone(self.estimator).fit(_safe_indexing(X, train), y[train], **params)
        if weight is not None:
            # The fit has refused weights of another shape.
            held = held[np.asarray(weight)[held] > 0]
        classes = self.estimator_.classes_ if is_classifier(self.estimator) else None
        unseen = (_safe_indexing(X, held), y[held])
        self._conformal = Conformal.of([self.estimator_], [unseen], classes)
        return self

    def _read(self, y: TargetLike) -> ArrayOrTensor:
        """Return the targets as an array, or raise."""
        if not is_classifier(self.estimator) and not is_regressor(self.estimator):
            raise TypeError(
                f"estimator={type(self.estimator).__name__}: give a regressor or a classifier."
            )
        if y is None:
            raise ValueError(
                "This SplitConformal estimator requires y to be passed, but the target y is None."
            )
        if is_regressor(self.estimator):
            return np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
        labels: AnyArray = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] > 1:
            raise ValueError(
                "y: the samples have several labels; sets are those of one class per sample."
            )
        return labels.ravel()

    def _unseen(self) -> Conformal:
        """Return the fitted estimator with the scores of the samples set aside."""
        return self._conformal
