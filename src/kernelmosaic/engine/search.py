"""Fits along a path of parameters, fold by fold, their outputs for held-out samples, and the choice
of a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, _safe_indexing, check_random_state, get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples

from kernelmosaic._checks import check_choice, warn_caller
from kernelmosaic._typing import (
    AnyArray,
    Array,
    Estimator,
    Indices,
    MatrixLike,
    SampleWeight,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import NUMPY, allowed_threads, iterate_threads, to_host
from kernelmosaic.engine.calibration import CALIBRATIONS, NEVER, Calibration
from kernelmosaic.engine.conformal import Conformal
from kernelmosaic.engine.fit import (
    Fit,
    Lead,
    Recipe,
    certify,
    follow,
    outputs,
    spread,
    training_set,
)
from kernelmosaic.engine.pipelines import divide_pipeline
from kernelmosaic.engine.samples import FitInput, count_samples, is_streamed
from kernelmosaic.engine.tasks import (
    ClassTask,
    Labels,
    PathRule,
    class_factors,
    find_classes,
    per_class,
)
from kernelmosaic.gram.row_blocks import ArrayRows
from kernelmosaic.kernels.views import PerColumn, lay_specs, term_names
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.stacking import StackedViews

# What an estimator's path is ----------------------------------------------------------------------


def path_rule(estimator: Estimator) -> PathRule:
    """Return the rule of an estimator or of the last step of a pipeline, or raise if there is
    none."""
    model = divide_pipeline(estimator)[1]
    rule: PathRule | None = getattr(model, "path_rule", None)
    if rule is None:
        raise TypeError(
            f"estimator={type(model).__name__}: give an estimator of kernelmosaic with a parameter"
            " C, alpha, kappa or nu, or a pipeline that ends in one; GridSearchCV searches the"
            " parameters of any other."
        )
    return rule


def predicts_targets(estimator: Estimator) -> bool:
    """Whether predictions are those of the targets themselves, as numbers: times may be
    censored."""
    rule: PathRule | None = getattr(divide_pipeline(estimator)[1], "path_rule", None)
    return is_regressor(estimator) and (rule is None or rule.strata is None)


def variant(model: Estimator, norm: Any) -> Settings:
    """Return the parameters of one of the norms of a search; None means the model's own."""
    params = model.get_params(deep=False)
    if norm is None:
        return {}
    if isinstance(norm, str) and norm in ("uniform", "loo") and "weights" in params:
        return {"weights": norm}
    if "norm" in params:
        return {"norm": norm, "weights": None}
    if norm == 1 and "weights" in params:
        return {"weights": None}
    known = "1, learned, and 'uniform'" if "weights" in params else "None alone"
    raise ValueError(f"norms: {type(model).__name__} has the norms {known}, not {norm!r}.")


# What a search is given ---------------------------------------------------------------------------


def read_folds(splits: Iterable[Any], n_samples: int) -> list[tuple[Indices, Indices]]:
    """Return the row numbers of the training and of the held-out samples of every fold, or raise.

    Parameters
    ----------
    splits : iterable of pairs
        Row numbers or masks of the training samples and of those held out, as arrays, lists, tuples
        or series.
    n_samples : int
        How many samples there are.
    """
    folds = []
    for number, (train, held) in enumerate(splits, start=1):
        rows_to_train = _read_rows(train, n_samples, f"the training samples of fold {number}")
        folds.append(
            (rows_to_train, _read_rows(held, n_samples, f"the held-out samples of fold {number}"))
        )
    if not folds:
        raise ValueError(
            "cv: there is no fold; give at least one pair of the rows to train on and to hold out."
        )
    return folds


def _read_rows(rows: Any, n_samples: int, what: str) -> Indices:
    """Return the numbers of rows that are given as numbers or as a mask, or raise."""
    values = np.asarray(rows)
    if values.ndim != 1 or len(values) == 0 or values.dtype.kind not in "biu":
        raise ValueError(
            f"cv: {what} are {rows!r}; give a list or an array of row numbers, or a mask."
        )
    try:
        chosen: Indices = np.arange(n_samples)[values]
    except IndexError as error:
        raise ValueError(
            f"cv: {what} do not fit {n_samples} samples: {error}; give rows of these samples."
        ) from error
    if len(chosen) == 0:
        raise ValueError(f"cv: {what} are none; give a mask that is true somewhere.")
    return chosen


def as_given(given: FitInput) -> Any:
    """Return samples as tables where they were given so: splitters, scorers and models find columns
    by their names."""
    return given.original if hasattr(given.original, "columns") else given.X


def check_one_score(scoring: Any) -> None:
    """Raise unless `scoring` names or computes a single score."""
    if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
        raise ValueError(
            f"scoring={scoring!r}: the choice is made by one score; give a single name or function."
        )


def _read_score(score: Any, scorer: Any) -> float:
    """Return what a scorer has returned as a number, or raise."""
    # A zero-dimensional array, of any library, is a number.
    value = score.item() if hasattr(score, "item") and np.ndim(score) == 0 else score
    if not isinstance(value, Real):
        raise ValueError(
            f"scoring={scorer!r} returned {score!r}; give a function that returns one number."
        )
    return float(value)


# One fold -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedFold:
    """The training samples of a fold as the first steps of a pipeline return them.

    Attributes
    ----------
    steps : Pipeline
        The steps, fitted to the training samples. Steps that draw at random would be others after
        another fit.
    X : array, sparse matrix or data frame
        What they have returned for the training samples when they were fitted.
    """

    steps: Any
    X: Any

    @classmethod
    def of(cls, steps: Any, given: FitInput) -> PreparedFold:
        """Fit a copy of the steps to samples."""
        fitted = clone(steps)
        return cls(fitted, fitted.fit_transform(given.X, given.y))


@dataclass(frozen=True)
class HeldOut:
    """Outputs and predictions of one fitted model for held-out samples.

    Attributes
    ----------
    outputs : ndarray of shape (n_held, outputs)
        Decision values, or predicted targets. There is no column if the training samples have one
        class, and a label that all of them have, or none of them, has ±`NEVER`.
    predicted : ndarray of shape (n_held,) or (n_held, targets)
        Its predictions.
    classes : ndarray or None
        The classes of the training samples, of a classifier.
    weights : ndarray of shape (P,) or (classes, P)
        The model's weights; NaN, of shape (), where one class, or constant labels, left nothing to
        learn.
    gap : float
        Its certified relative duality gap.
    fit : Fit or None
        The fit without its matrices, where its function follows from its coefficients.
    lead : Lead or None
        The weights and slopes that the same fit in another fold may start from.
    prepared : PreparedFold or None
        The training samples, of a pipeline, and the steps that have prepared them.
    """

    outputs: Array
    predicted: AnyArray
    classes: Any
    weights: Array
    gap: float
    fit: Fit | None = None
    lead: Lead | None = None
    prepared: PreparedFold | None = None

    def starts_of(self, n: int) -> list[Start] | None:
        """Return where a like fit to the same n samples starts; None where the coefficients are not
        kept."""
        return None if self.fit is None else self.fit.starts(n)

    def aligned(self, classes: AnyArray) -> Array:
        """Return outputs of shape (n,) for two classes, else with one column per class of the whole
        set.

        A class that the fold has no training sample of has −`NEVER`, as in scikit-learn's
        ``cross_val_predict``.
        """
        outputs, n = self.outputs, len(self.outputs)
        if len(classes) == 2:
            if len(self.classes) == 1:
                return np.full(n, NEVER if self.classes[0] == classes[1] else -NEVER)
            return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
        if len(self.classes) == len(classes):
            return outputs
        own = np.zeros((n, 1)) if len(self.classes) == 1 else per_class(outputs)
        return Labels(classes).spread(own, self.classes, -NEVER)


#: Of a fit that a search has left out.
UNTRIED = HeldOut(np.empty((0, 0)), np.empty(0), None, np.array(np.nan), np.nan)

Recipes = Sequence[Sequence[Recipe]]
Leads = Sequence[Sequence[Lead]]
Starts = Sequence[Sequence[Start] | None]
Held = list[list[HeldOut]]


def follow_paths(
    recipes: Recipes,
    inside: FitInput,
    outside: MatrixLike,
    like: Leads | None = None,
    starts: Starts = (),
) -> Held:
    """Fit along paths to some samples, and return the outputs of each fit for those held out.

    The recipes differ in what the kernels do not depend on, such as C: kernels are computed once,
    the outputs of all fits from one evaluation of them, and each fit of a path starts where the one
    before it ended.

    Parameters
    ----------
    recipes : sequence of sequences of Recipe
        Those of one path differ in C.
    inside : FitInput
        The samples to fit to.
    outside : array or sparse matrix
        Those held out, validated.
    like : sequence of sequences of Lead, optional
        The same paths of another fold: weights differ less from fold to fold than from one C to the
        next.
    starts : sequence, optional
        Where the first fit of each path starts, a list of `Start`, or None.
    """
    if not isinstance(recipes[0][0].task, ClassTask):
        return _follow(recipes, inside, outside, like, starts)
    if inside.y.ndim == 2 and recipes[0][0].task.takes_labels:
        return _follow_labels(recipes, inside, outside, like, starts)
    classes = np.unique(inside.y if inside.weight is None else inside.y[inside.weight > 0])
    if len(classes) == 1:
        return _learn_nothing(recipes, np.repeat(classes, outside.shape[0]), classes)
    same = like is not None and np.array_equal(np.asarray(like[0][0].classes), classes)
    return _follow(recipes, inside, outside, like if same else None, starts)


def _follow_labels(
    recipes: Recipes, inside: FitInput, outside: MatrixLike, like: Leads | None, starts: Starts
) -> Held:
    """Follow paths of classifiers of several labels; a label that is the same for all samples stays
    what it is."""
    varies = np.any(inside.y != inside.y[0], axis=0)
    if varies.all():
        return _follow(recipes, inside, outside, like, starts)
    found = _learn_nothing(recipes, np.empty((outside.shape[0], 0)), None)
    if varies.any():
        # A single label is two classes.
        y = inside.y[:, varies] if varies.sum() > 1 else inside.y[:, varies][:, 0]
        found = _follow(recipes, replace(inside, y=y), outside, like, starts)

    def completed(one: HeldOut) -> HeldOut:
        outputs = np.tile(np.where(inside.y[0] > 0, NEVER, -NEVER), (len(one.outputs), 1))
        outputs[:, varies] = one.outputs
        return replace(
            one,
            outputs=outputs,
            predicted=(outputs > 0).astype(int),
            classes=np.arange(len(varies)),
        )

    return [[completed(one) for one in path] for path in found]


def _learn_nothing(recipes: Recipes, predicted: AnyArray, classes: AnyArray | None) -> Held:
    """Return the predictions of fits to samples of one class."""
    one = HeldOut(np.empty((len(predicted), 0)), predicted, classes, np.array(np.nan), 0.0)
    return [[one] * len(path) for path in recipes]


def _follow(
    recipes: Recipes, inside: FitInput, outside: MatrixLike, like: Leads | None, starts: Starts
) -> Held:
    """Fit along all paths to the samples inside, and return the outputs of each fit for those
    outside."""
    first = recipes[0][0]
    data = training_set(first, first.task.prepared(inside), inside)
    paths = []
    for p, path in enumerate(recipes):
        leads = () if like is None else like[p]
        paths.append(follow(path, inside, data, leads, starts[p] if starts else None))
    fits = iter(certify([one for path in paths for one in path]))
    paths = [[next(fits) for _ in path] for path in paths]
    values = iter(outputs([one for path in paths for one in path], outside))
    return [[_held_out(one, next(values)) for one in path] for path in paths]


def _held_out(fit: Fit, values: Array) -> HeldOut:
    kept = fit.light() if fit.method.is_plain and fit.rule is None else None
    return HeldOut(
        values, fit.decide(values), fit.task.classes, fit.weights, fit.gap, kept, lead=fit.lead
    )


# All folds ----------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class HeldOutPredictor(BaseEstimator):
    """An estimator of given predictions for the held-out samples, which scorers receive.

    Parameters
    ----------
    kind : str
        The type of the estimator, as in scikit-learn's tags.
    predicted, outputs : ndarray
        Predictions and decision values.
    classes_ : ndarray or None
        Those of the whole set.
    rule : callable or None
        The score of y, predictions and weights.
    probabilities : callable or None
        Makes probabilities of the outputs.
    curves : callable or None
        Returns the survival functions of outputs.
    """

    kind: Any = None
    predicted: Any = None
    outputs: Any = None
    classes_: Any = None
    rule: Any = None
    probabilities: Any = None
    curves: Any = None

    def decision_function(self, X: MatrixLike) -> Array:
        return np.asarray(self.outputs)

    def predict(self, X: MatrixLike) -> AnyArray:
        return np.asarray(self.predicted)

    def predict_proba(self, X: MatrixLike) -> Array:
        return np.asarray(self.probabilities(self.outputs))

    def predict_survival_function(self, X: MatrixLike, return_array: bool = False) -> Any:
        return self.curves().functions(np.ravel(self.outputs), return_array)

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        return float(self.rule(y, self.predicted, sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = self.kind
        return tags


@dataclass(frozen=True)
class PathOptions:
    """How paths are followed.

    Attributes
    ----------
    scale : bool
        Whether columns of numbers are standardised, by the training samples of each fold.
    n_jobs : int or None
        Folds worked on at the same time.
    show : callable
        Called with a text on the number of folds done, and with their number.
    near : int or None
        At how many values on both sides of that of equal weights the other norms are tried first,
        and by how many these are extended; None tries all.
    scores : callable or None
        Called with a `PathResult`; returns its scores, by which the best of equal weights is known.
    rule : str
        By which that one is chosen.
    """

    scale: bool = True
    n_jobs: int | None = None
    show: Callable[[str, int], None] = lambda text, done: None
    near: int | None = None
    scores: Callable[[PathResult], Array] | None = None
    rule: str = "best"


@dataclass(frozen=True)
class PathResult:
    """Outputs of the fits of all folds for the samples held out.

    Attributes
    ----------
    estimator : estimator
        What the search was given.
    model : estimator
        The same, of a pipeline its last step, with the seed of all fits; not fitted.
    given : FitInput
        All samples; X before the steps.
    classes : ndarray or None
        The classes, or the numbers of labels; None of what is no classifier.
    folds : list of (ndarray, ndarray)
        Rows of the training samples and of those held out.
    Cs : ndarray
        The values of the parameter, ascending.
    norms : list
        The norms of the weights.
    scale : bool
        Whether columns are standardised.
    found : list of list of list of HeldOut
        By norm, fold and value.
    """

    estimator: Estimator
    model: Estimator
    given: FitInput
    classes: AnyArray | None
    folds: list[tuple[Indices, Indices]]
    Cs: Array
    norms: list[Any]
    scale: bool
    found: list[Held]

    def scores(self, scorer: Any, params: Settings, method: str | None = None) -> Array:
        """Return the scores of all norms, folds and values.

        Parameters
        ----------
        scorer : callable
            As in scikit-learn.
        params : dict of array
            What the scorer is given beside the samples held out, for all samples.
        method : {"sigmoid", "isotonic"} or None
            How decision values become probabilities for scorers, calibrated on the other folds.
        """
        rule, classes, kind = (
            path_rule(self.model),
            self.classes,
            get_tags(self.model).estimator_type,
        )
        scores = np.empty((len(self.norms), len(self.folds), len(self.Cs)))
        held_out = [_safe_indexing(as_given(self.given), held) for _, held in self.folds]
        for m, f, i in np.ndindex(*scores.shape):
            one, held = self.found[m][f][i], self.folds[f][1]
            if one is UNTRIED:
                scores[m, f, i] = np.nan
                continue

            curves = partial(self.calibration, m, i, method or "sigmoid", without=f)

            def probabilities(outputs: Array, calibration: Callable[[], Any] = curves) -> Array:
                return np.asarray(calibration().probabilities(outputs))

            outputs = (
                one.outputs if classes is None or self.given.y.ndim == 2 else one.aligned(classes)
            )
            known = HeldOutPredictor(
                kind, one.predicted, outputs, classes, rule.score, probabilities, curves
            )
            own = {
                name: np.asarray(value)[held] for name, value in params.items() if value is not None
            }
            y = () if self.given.y is None else (self.given.y[held],)
            scores[m, f, i] = _read_score(scorer(known, held_out[f], *y, **own), scorer)
        return scores

    def unnamed(self) -> Indices:
        """Return how many classes no fold's predictions name, of every norm and value; where no fit
        was made, all."""
        count = 0 if self.classes is None or self.given.y.ndim == 2 else len(self.classes)
        missing = np.full((len(self.norms), len(self.Cs)), count)
        for m, i in np.ndindex(*missing.shape):
            every = [path[i] for path in self.found[m]]
            if count and not any(one is UNTRIED for one in every):
                missing[m, i] -= len(np.unique(np.concatenate([one.predicted for one in every])))
        return missing

    def best(self, scores: Array, rule: str = "best") -> tuple[int, int]:
        """Return the numbers of the norm and of the value that are chosen by a rule of `choose`."""
        descending = path_rule(self.model).descending
        equal_weights = None
        if "uniform" in self.norms:
            equal_weights = self.norms.index("uniform")
        return choose(scores, self.model.tol, rule, descending, self._fold_sizes(), equal_weights)

    def best_value(self, scores: Array, rule: str = "best") -> int:
        """Return the number of the value that is chosen for one norm, of which the scores are."""
        descending = path_rule(self.model).descending
        return choose(scores[np.newaxis], self.model.tol, rule, descending, self._fold_sizes())[1]

    def _fold_sizes(self) -> Indices:
        """Return how many samples each fold holds out."""
        return np.array([len(held) for _, held in self.folds])

    def calibration(self, m: int, i: int, method: str, without: int | None = None) -> Any:
        """Return what turns outputs into probabilities, or survival functions, by those of samples
        held out."""
        rest = [f for f in range(len(self.folds)) if f != without]
        found, held = [self.found[m][f][i] for f in rest], [self.folds[f][1] for f in rest]
        if self.classes is None:
            given, rows = self.given, np.concatenate(held)
            weight = None if given.weight is None else given.weight[rows]
            outputs = np.concatenate([one.outputs[:, 0] for one in found])
            return self.model.fit_curves(outputs, given.y[rows], weight, held_out=True)
        return calibration_of(found, held, self.given, self.model, self.classes, method)

    def weights(self, m: int) -> Array:
        """Return the weights of every fold and value, of shape (folds, Cs, P) or (folds, Cs,
        classes, P)."""
        # Of a fold with less than three classes they are fewer; of one class there are none.
        largest = max((one.weights for path in self.found[m] for one in path), key=np.ndim)
        classes = self.classes if largest.ndim == 2 else None

        def aligned(one: HeldOut) -> Array:
            full = np.full(
                largest.shape if classes is None else (len(classes), largest.shape[1]), np.nan
            )
            if one.weights.ndim > 0:
                full[... if classes is None else Labels(classes).codes(one.classes)] = one.weights
            return full

        return np.array([[aligned(one) for one in path] for path in self.found[m]])

    def mean_weights(self, m: int) -> Array:
        """Return the weights of every value, averaged over the folds; NaN where nothing was
        tried."""
        # Values that were not tried have no mean.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            return np.asarray(np.nanmean(self.weights(m), axis=0))

    def learned(self, scores: Array, rule: str = "best") -> dict[Any, Array]:
        """Return the weights of each norm at the value chosen for it, averaged over the folds.

        Those that were not chosen are shown beside the choice: equal weights do not rank the
        kernels.
        """
        known = [m for m, own in enumerate(scores) if not np.isnan(own.mean(axis=0)).all()]
        return {
            self.norms[m]: self.mean_weights(m)[self.best_value(scores[m], rule)] for m in known
        }

    def all_gaps(self) -> Array:
        """Return the certified relative duality gaps of all fits that were made."""
        return np.array(
            [
                one.gap
                for paths in self.found
                for path in paths
                for one in path
                if one is not UNTRIED
            ]
        )

    def gaps(self, m: int) -> Array:
        """Return the certified relative duality gaps, of shape (folds, Cs)."""
        return np.array([[one.gap for one in path] for path in self.found[m]])

    def fit(self, m: int, i: int, method: str | None = None) -> Estimator:
        """Return the choice fitted to all samples; with `method`, its probabilities are by the
        samples held out."""
        calibration = None if method is None else self.calibration(m, i, method)
        params = {} if method is None else {"calibration": method}
        return self._fit(
            m, i, self.given, params, calibration=calibration, starts=self.starts(m, i)
        )

    def chosen(self, m: int, i: int, **params: Any) -> Estimator:
        """Return the estimator of a choice, not fitted, with other parameters as far as it has
        them."""
        rule, own = path_rule(self.model), self.model.get_params(deep=False)
        other = {name: value for name, value in params.items() if name in own}
        choice = {**variant(self.model, self.norms[m]), rule.parameter: float(self.Cs[i])}
        return _with(self.model, **{**choice, **other})

    def starts(self, m: int, i: int) -> list[Start] | None:
        """Return where the fit of a choice to all samples starts: at the means over the folds; None
        if these differ.

        None as well of what predicts neither numbers nor one class.
        """
        every, n = [path[i] for path in self.found[m]], _num_samples(self.given.X)
        same = self.classes is None or all(
            np.array_equal(one.classes, self.classes) for one in every
        )
        each = [
            one.starts_of(len(train)) for one, (train, _) in zip(every, self.folds, strict=True)
        ]
        known = [own for own in each if own is not None]
        if not self._is_predictor() or not same or len(known) < len(each):
            return None
        counts = np.zeros(n)
        for train, _ in self.folds:
            counts[train] += 1
        found = []
        for machines in zip(*known, strict=True):
            sums: Any = 0.0
            for own, (train, _) in zip(machines, self.folds, strict=True):
                sums = sums + spread(np.asarray(own.beta), train, n)
            scale = np.maximum(counts, 1.0).reshape(n, *[1] * (sums.ndim - 1))
            found.append(Start(np.mean([own.weights for own in machines], axis=0), sums / scale))
        return found

    def _is_predictor(self) -> bool:
        """Whether numbers are predicted, or one class of each sample."""
        return predicts_targets(self.model) or (self.classes is not None and self.given.y.ndim == 1)

    def _fit(
        self,
        m: int,
        i: int,
        given: FitInput,
        params: Settings,
        known: Fit | None = None,
        prepared: PreparedFold | None = None,
        **learned: Any,
    ) -> Estimator:
        """Return the choice with what was learned from some samples, and with other parameters as
        far as it has them.

        Of a fit that is known, the attributes and the function are set; what else is learned,
        `fit_input` is given. The first steps of a pipeline are those of the fold that `prepared` is
        of, else they are fitted to the samples.
        """
        model = self.chosen(m, i, **params)
        steps = divide_pipeline(self.estimator)[0]
        if steps is not None:
            prepared = prepared or PreparedFold.of(steps, given)
            X = prepared.X
        else:  # with the columns of each table where several were given
            X = given.original if given.views is None else StackedViews(given.original, given.views)
        whole = replace(model.validated(X, given.y, given.weight), device=given.device)
        scaled = model.scaled(whole, self.scale)
        if known is None:
            model.fit_input(scaled, **learned)
        else:
            model.keep(known, scaled)
        if prepared is None:
            return model
        return type(prepared.steps)([*prepared.steps.steps, (self.estimator.steps[-1][0], model)])

    def conformal(self, m: int, i: int) -> Conformal | None:
        """Return the choice as fitted to the training samples of every fold, with the scores of
        those held out.

        None of what predicts neither numbers nor one class. Samples of weight zero have no score,
        nor have those that a fold of one class holds out.
        """
        y = self.given.y
        if not self._is_predictor():
            return None
        counts = np.ones(len(y), dtype=bool) if self.given.weight is None else self.given.weight > 0
        samples = as_given(self.given)
        models, unseen = [], []
        for (train, held), path in zip(self.folds, self.found[m], strict=True):
            weights, held = path[i].weights, held[counts[held]]
            if weights.ndim == 0 or len(held) == 0:
                continue
            inside = replace(self.given.take(train), original=_safe_indexing(samples, train))
            with _without_gaps():
                quiet = {"calibration": None, "verbose": False}
                models.append(
                    self._fit(m, i, inside, quiet, known=path[i].fit, prepared=path[i].prepared)
                )
            unseen.append((_safe_indexing(samples, held), y[held]))
        return Conformal.of(models, unseen, self.classes) if models else None


def search_paths(
    estimator: Estimator,
    given: FitInput,
    folds: Sequence[Any],
    Cs: Any,
    norms: Sequence[Any],
    options: PathOptions,
) -> PathResult:
    """Follow the paths of all folds.

    A fold computes its kernels once for all norms and values that are tried together, with widths,
    scales and normalising of its own training samples, so that its scores are those of a grid
    search, up to the tolerance of the fits. Along the path every fit starts from the weights and
    the coefficients of the one before it; coefficients at a bound move with the bound. The weights
    of the first fold are where the other folds start.

    With `near`, the search has stages:

    1. Equal weights are followed along all values. Their best value says at which scale of the
       combined kernel the good models are.
    2. Every other norm is followed at the values around the one at which its equal weights are the
       best model of stage 1: ‖η‖_p = 1 makes equal weights P^(1 − 1/p) times larger than 1/P, which
       a C smaller by the same factor makes up for.
    3. While the best value of a norm is the first or the last of its values, more values are tried
       on that side, so that every norm is scored at a best value of its own.

    Parameters
    ----------
    estimator : estimator
        With a `PathRule`, or a pipeline that ends in one, whose first steps are fitted to every
        fold.
    given : FitInput
        All samples, as `read_samples` returns them.
    folds : sequence of (ndarray, ndarray)
        Rows of the training samples and of those held out.
    Cs : int or array-like
        The values of the parameter, or how many.
    norms : sequence
        Norms of the weights; None means the estimator's own.
    options : PathOptions
    """
    search = FoldSearch.of(estimator, given, folds, Cs, options)
    # A single kernel has nothing to weigh.
    norms = list(norms) if search.has_several_kernels() else list(norms[:1])
    for norm in norms:
        search.check_norm(norm)
    n_values = len(search.values)
    near = options.near
    if near is None or len(norms) == 1 or n_values <= 2 * near + 1:
        everywhere = [Stretch.cold(norm, search.along(0, n_values), len(folds)) for norm in norms]
        search.follow(everywhere, Progress(0, len(folds), len(folds)))
        return search.result(norms)

    # Stage 1: equal weights at all values.
    equal_weights = Stretch.cold("uniform", search.along(0, n_values), len(folds))
    search.follow([equal_weights], Progress(0, len(folds), 2 * len(folds)))
    best = search.best_of("uniform")
    if best is None:
        return search.result(norms)  # nothing has a score, whatever the norm

    # Stage 2: learned weights around the value at which their combined kernel has the scale of that
    # of stage 1.
    learned_norms = [norm for norm in norms if norm != "uniform"]
    windows = {norm: search.window(norm, best, near) for norm in learned_norms}
    stretches = [search.stretch_from_equal_weights(norm, *windows[norm]) for norm in learned_norms]
    search.follow(stretches, Progress(len(folds), len(folds), 2 * len(folds)))

    # Stage 3: further values where the best one is at an end.
    open_norms = learned_norms
    while open_norms:
        extended = {norm: search.extend(norm, windows[norm], near) for norm in open_norms}
        open_norms = [norm for norm in open_norms if extended[norm] != windows[norm]]
        stretches = [
            search.stretch_beyond(norm, windows[norm], extended[norm]) for norm in open_norms
        ]
        if stretches:
            search.follow(stretches, Progress(2 * len(folds), 0, 2 * len(folds)))
        windows |= extended
    return search.result(norms)


@dataclass(frozen=True)
class Stretch:
    """Values at which the fits of one norm are followed, fold by fold.

    Attributes
    ----------
    norm : norm
        Of the weights.
    numbers : sequence of int
        The numbers of the values, in the order in which they are followed.
    starts : list
        For every fold where the first fit starts, a list of `Start`, or None.
    """

    norm: Any
    numbers: Sequence[int]
    starts: list[list[Start] | None]

    @classmethod
    def cold(cls, norm: Any, numbers: Sequence[int], n_folds: int) -> Stretch:
        """Return a stretch whose first fits start from nothing."""
        return cls(norm, numbers, [None] * n_folds)


@dataclass(frozen=True)
class Progress:
    """How much of a search is done, in folds of all its stages: before a stage, by it, and in the
    end."""

    before: int
    by_stage: int
    in_all: int

    def after(self, n_done: int, n_folds: int) -> int:
        """Return how many of the search's folds count as done once a stage has followed so many."""
        done = self.before + n_done * self.by_stage // n_folds
        return done * n_folds // self.in_all


@dataclass
class FoldSearch:
    """The fits of a search as far as they are made; `follow` makes more of them.

    Attributes
    ----------
    estimator, model, given, classes, folds, scale
        As in `PathResult`.
    values : ndarray of shape (Cs,)
        The values of the parameter, in ascending order.
    options : PathOptions
    fits : dict from norm to list of list of HeldOut
        The fits by fold and value; `UNTRIED` where none was made.
    prepared : list of PreparedFold or None
        By fold, what the first steps of a pipeline have returned: all stages of the search read the
        same.
    """

    estimator: Estimator
    model: Any
    given: FitInput
    classes: AnyArray | None
    folds: list[tuple[Indices, Indices]]
    values: Array
    options: PathOptions
    fits: dict[Any, Held]
    prepared: list[PreparedFold | None]

    @classmethod
    def of(
        cls,
        estimator: Estimator,
        given: FitInput,
        folds: Sequence[Any],
        Cs: Any,
        options: PathOptions,
    ) -> FoldSearch:
        """Return a search without fits."""
        model = divide_pipeline(estimator)[1]
        params = model.get_params(deep=False)
        # All fits draw the same landmarks.
        seed = int(check_random_state(params.get("random_state")).randint(np.iinfo(np.int32).max))
        model = _with(model, random_state=seed)
        if not is_classifier(model):
            classes = None
        elif given.y.ndim == 2:
            classes = np.arange(given.y.shape[1])
        else:
            classes = find_classes(given.y, given.weight, type(model).__name__)
        values = path_rule(model).values(Cs, given)
        return cls(
            estimator, model, given, classes, list(folds), values, options, {}, [None] * len(folds)
        )

    @property
    def steps(self) -> Any:
        """The steps of a pipeline before the last; None without."""
        return divide_pipeline(self.estimator)[0]

    @property
    def descending(self) -> bool:
        """Whether the largest value has the smoothest model."""
        return path_rule(self.model).descending

    def has_several_kernels(self) -> bool:
        """Whether there may be more than one kernel: of families, the number depends on the
        columns."""
        return count_kernels(self.model, self.given if self.steps is None else None) > 1

    def check_norm(self, norm: Any) -> None:
        """Raise if the model has no such norm of weights, or weights."""
        settings = variant(self.model, norm)
        if settings.get("norm") is not None:
            make_norm(settings["norm"])

    def along(self, first: int, end: int) -> list[int]:
        """Return the numbers of values from `first` to before `end`, smooth models before rough
        ones."""
        numbers = range(first, end)
        return list(reversed(numbers) if self.descending else numbers)

    # Fits -----------------------------------------------------------------------------------------

    def follow(self, stretches: Sequence[Stretch], done: Progress) -> None:
        """Make the fits of stretches, fold by fold."""
        n_folds = len(self.folds)
        for stretch in stretches:
            self.fits.setdefault(stretch.norm, self._untried())
        together = None
        if self.given.device is not None:
            from kernelmosaic.gpu import follow_together

            together = follow_together(list(self._tasks(stretches)), HeldOut)
        spare = 1 if self.steps is not None else _spare_threads(self.model, self.given, self.folds)
        if together is None:
            run: Any = closing(_run(self._tasks(stretches), self.options.n_jobs, spare))
        else:
            run = nullcontext(together)
        trivial = True
        with run as by_fold:
            for f, paths in enumerate(by_fold):
                trivial = trivial and paths[0][0].weights.ndim == 0
                self.prepared[f] = paths[0][0].prepared
                for stretch, path in zip(stretches, paths, strict=True):
                    for number, fit in zip(stretch.numbers, path, strict=True):
                        self.fits[stretch.norm][f][number] = fit
                share = done.after(f + 1, n_folds)
                self.options.show(f"{share} of {n_folds} folds", share)
        if trivial:
            raise ValueError("cv: no fold has training samples of two classes; give other folds.")

    def _tasks(self, stretches: Sequence[Stretch]) -> Iterator[tuple[Any, ...]]:
        """Yield what `_follow_fold` is given, one fold after the other: models are large, and go
        with their fold."""
        plain = self.model.get_params(deep=False)
        for name, quiet_value in (("verbose", False), ("calibration", None)):
            if name in plain:
                plain[name] = quiet_value
        parameter, kind = path_rule(self.model).parameter, type(self.model)
        for f, (train, held) in enumerate(self.folds):
            paths = []
            for stretch in stretches:
                params = plain | variant(self.model, stretch.norm)
                paths.append(
                    [kind(**params | {parameter: float(self.values[i])}) for i in stretch.numbers]
                )
            steps, starts = (
                self.prepared[f] or self.steps,
                [stretch.starts[f] for stretch in stretches],
            )
            yield paths, steps, self.given, train, held, self.options.scale, starts

    def _untried(self) -> Held:
        """Return, by fold and value, that there is no fit."""
        return [[UNTRIED] * len(self.values) for _ in self.folds]

    def result(self, norms: Sequence[Any]) -> PathResult:
        """Return the fits of norms."""
        found = [self.fits.get(norm, self._untried()) for norm in norms]
        scale = bool(self.options.scale)
        return PathResult(
            self.estimator,
            self.model,
            self.given,
            self.classes,
            self.folds,
            self.values,
            list(norms),
            scale,
            found,
        )

    # Values around the best -----------------------------------------------------------------------

    def best_of(self, norm: Any) -> int | None:
        """Return the number of the best value of a norm; None where no value has a score."""
        assert self.options.scores is not None
        result = self.result([norm])
        scores = self.options.scores(result)
        if np.isnan(scores.mean(axis=1)).all():
            return None
        return result.best(scores, self.options.rule)[1]

    def window(self, norm: Any, best: int, near: int) -> tuple[int, int]:
        """Return the first number, and that after the last, of the values around the best of equal
        weights."""
        middle = self._nearest(self.values[best] / self._scale_of(norm))
        return max(middle - near, 0), min(middle + near + 1, len(self.values))

    def extend(self, norm: Any, window: tuple[int, int], near: int) -> tuple[int, int]:
        """Return a window with more values on the side where the best one of a norm is its first or
        its last."""
        first, end = window
        best = self.best_of(norm)
        if best == first:
            return max(first - near, 0), end
        if best == end - 1:
            return first, min(end + near, len(self.values))
        return window

    def stretch_from_equal_weights(self, norm: Any, first: int, end: int) -> Stretch:
        """Return the values of a window, whose first fits start at equal weights where these make
        the same kernel."""
        numbers = self.along(first, end)
        like = self._nearest(self.values[numbers[0]] * self._scale_of(norm))
        ratio = 1.0
        if path_rule(self.model).parameter == "C":
            # The coefficients of a kernel that is s times larger are s times smaller, and so are
            # their bounds.
            ratio = float(self.values[numbers[0]] / self.values[like])
        starts = [self._starts("uniform", f, like, ratio) for f in range(len(self.folds))]
        return Stretch(norm, numbers, starts)

    def stretch_beyond(
        self, norm: Any, window: tuple[int, int], extended: tuple[int, int]
    ) -> Stretch:
        """Return the values of an extended window that are not in the window, starting at the fit
        next to them."""
        if extended[0] < window[0]:
            numbers, neighbour = list(reversed(range(extended[0], window[0]))), window[0]
        else:
            numbers, neighbour = list(range(window[1], extended[1])), window[1] - 1
        ratio = 1.0
        if path_rule(self.model).parameter == "C":
            ratio = float(self.values[numbers[0]] / self.values[neighbour])
        starts = [self._starts(norm, f, neighbour, ratio) for f in range(len(self.folds))]
        return Stretch(norm, numbers, starts)

    def _starts(self, norm: Any, fold: int, number: int, ratio: float) -> list[Start] | None:
        """Return where a fit of a fold starts: at the weights of another, at a multiple of its
        coefficients."""
        starts = self.fits[norm][fold][number].starts_of(len(self.folds[fold][0]))
        if starts is None:
            return None
        return [replace(start, beta=ratio * np.asarray(start.beta)) for start in starts]

    def _nearest(self, value: float) -> int:
        """Return the number of the value that is nearest in ratio."""
        return int(np.argmin(np.abs(np.log(self.values) - np.log(value))))

    def _scale_of(self, norm: Any) -> float:
        """Return Σ η of the equal weights that a norm allows, in units of 1/P each; one where the
        norm is none of C."""
        settings = variant(self.model, norm)
        if "norm" not in settings or path_rule(self.model).parameter != "C":
            return 1.0
        # Fits to a single class have no weights.
        n_kernels = max(
            fit.weights.shape[-1]
            for path in self.fits["uniform"]
            for fit in path
            if fit.weights.ndim
        )
        equal_weights = make_norm(settings["norm"]).start(n_kernels)
        return float(equal_weights.sum())


def count_kernels(model: Any, given: FitInput | None) -> float:
    """Return how many kernels an estimator weighs; infinity where that depends on columns that are
    not known.

    Parameters
    ----------
    model : estimator
        With kernels.
    given : FitInput or None
        The samples that it is fitted to; None if they are not known, since the steps of a pipeline
        make them.
    """
    entries = (
        model.read_kernels() if given is None else model.read_kernels(given.table, given.views)
    )
    if not any(isinstance(entry.kernel, PerColumn) for entry in entries):
        return len(term_names(entries))
    return np.inf if given is None else len(lay_specs(entries, given.table))


def _with(model: Estimator, **params: Any) -> Estimator:
    """Return the model with other parameters, not fitted; kernels are shared."""
    return type(model)(**{**model.get_params(deep=False), **params})


def _run(tasks: Iterator[Any], n_jobs: int | None, n_threads: int) -> Generator[Held, None, None]:
    leader = _follow_fold_quietly(*next(tasks))
    yield leader
    # What the same paths of the other folds are led by; nothing where this fold has left out a
    # path.
    known = [[one.lead for one in path if one.lead is not None] for path in leader]
    leads = known if list(map(len, known)) == list(map(len, leader)) else None
    if n_jobs is None and effective_n_jobs(None) == 1 and n_threads > 1:
        context, config = copy_context(), get_config()

        def follow(one: tuple[Any, ...]) -> Held:
            with config_context(**config):
                return context.copy().run(lambda: _follow_fold(*(*one, leads)))

        # Filters of warnings are those of all threads.
        with _without_gaps():
            yield from iterate_threads(follow, tasks, n_threads)
        return
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    yield from parallel(delayed(_follow_fold_quietly)(*one, leads) for one in tasks)


def _spare_threads(
    model: Any, given: FitInput, folds: Sequence[Any], few: int = 500, share: float = 0.25
) -> int:
    """Return on how many threads the folds after the first are followed, each with one thread of
    linear algebra.

    Of fewer samples, most of the work has the interpreter's lock; of fewer folds than half of the
    threads, the linear algebra of one fold after the other has more of them. All folds at once must
    fit into a share of the memory.
    """
    n, threads, others = min(len(train) for train, _ in folds), allowed_threads(), len(folds) - 1
    if n < few or given.device is not None or threads > 2 * others:
        return 1
    # Kernels, and samples as given, standardised, in double precision and less their mean.
    n_bytes = 8.0 * n**2 * count_kernels(model, given) + 32.0 * n * given.X.shape[1]
    room = min(getattr(model, "memory_budget", None) or np.inf, share * NUMPY.free_bytes())
    return int(min(threads, others, room / n_bytes))


#: Without warnings of gaps: the search warns of all of them once.
_without_gaps = partial(warnings.catch_warnings, action="ignore", category=ConvergenceWarning)


def _follow_fold_quietly(*task: Any) -> Held:
    with _without_gaps():
        return _follow_fold(*task)


def _follow_fold(
    paths: Sequence[Sequence[Any]],
    steps: Any,
    given: FitInput,
    train: Indices,
    held: Indices,
    scale: bool,
    starts: Sequence[list[Start] | None],
    like: Leads | None = None,
) -> Held:
    """Fit along paths to the training samples of a fold; `steps` are those of a pipeline, fitted
    already or not."""
    inside, outside = given.take(train), _safe_indexing(given.X, held)
    prepared = None
    if steps is not None:
        # What the steps learn they learn from the training samples of the fold.
        prepared = steps if isinstance(steps, PreparedFold) else PreparedFold.of(steps, inside)
        reader = _with(paths[0][0])
        table, outside = reader.read_parts(prepared.X, prepared.steps.transform(outside))
        inside = replace(inside, X=table, original=to_host(prepared.X))
    if scale:
        standardizer = inside.standardizer(paths[0][0].read_kernels(inside.table, inside.views))
        inside, outside = replace(inside, X=standardizer(inside.X)), standardizer(outside)
    recipes = [[one.recipe(inside) for one in path] for path in paths]
    fits = follow_paths(recipes, inside, outside, like, starts)
    return [[replace(fit, prepared=prepared) for fit in path] for path in fits]


def read_samples(
    estimator: Estimator, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None
) -> FitInput:
    """Return the samples of a search, validated by a copy of its estimator; of a pipeline, with X
    before its steps."""
    steps, model = divide_pipeline(estimator)
    prepared = X if steps is None else clone(steps).fit_transform(X, y)
    given: FitInput = _with(model).validated(prepared, y, sample_weight)
    return given if steps is None else replace(given, X=X, original=X)


def calibration_of(
    found: Sequence[HeldOut],
    held: Sequence[Indices],
    given: FitInput,
    model: Estimator,
    classes: AnyArray,
    method: str,
) -> Calibration:
    """Return what turns decision values into probabilities, by those of samples while they were
    held out.

    Samples count as they do in the fit: a decision value of zero is a probability of one half,
    whatever the weights of the classes. Samples of a class that is not in the training part of
    their fold are left out.
    """
    rows = np.concatenate(held)
    weight = np.ones(len(given.y)) if given.weight is None else given.weight
    if given.y.ndim == 2:
        return Calibration.fit(
            np.concatenate([one.outputs for one in found]), given.y[rows], 2, weight[rows], method
        )
    # A class whose samples all have weight zero is none.
    counts = np.isin(given.y, classes)
    weight = weight.copy()
    weight[counts] *= class_factors(
        getattr(model, "class_weight", None), given.y[counts], weight[counts], classes
    )
    values = np.concatenate([one.aligned(classes) for one in found])[counts[rows]]
    rows = rows[counts[rows]]
    return Calibration.fit(
        values, Labels(classes).codes(given.y[rows]), len(classes), weight[rows], method
    )


# Folds of one classifier, for its probabilities ---------------------------------------------------


@dataclass(frozen=True)
class CalibrationFolds:
    """The folds by which a classifier with a `calibration` learns probabilities: five, or fewer of
    a rare class.

    Repeated samples are one sample with the sum of their weights, so that none is held out while
    its like is not, and the folds are drawn from the samples in an order of their own: they depend
    neither on how the samples are ordered nor on whether a sample is given twice or with twice the
    weight.

    Attributes
    ----------
    samples : FitInput
        The distinct samples.
    rows : ndarray
        Their rows among those given.
    folds : list of (ndarray, ndarray)
        Rows of the distinct samples to train on, and of those held out.
    """

    samples: FitInput
    rows: Indices
    folds: list[tuple[Indices, Indices]]

    @classmethod
    def of(cls, model: Estimator, given: FitInput, classes: AnyArray) -> CalibrationFolds:
        """Return the folds of the samples given to a classifier, or raise if there are none."""
        # Loads a good part of scikit-learn, which fits without probabilities do without.
        from sklearn.model_selection import StratifiedKFold

        method = check_choice("calibration", model.calibration, CALIBRATIONS)
        # Folds of a memory map are copies, which fit the memory as arrays do.
        X = np.asarray(given.X.X) if isinstance(given.X, ArrayRows) else given.X
        if is_streamed(X):
            raise ValueError(
                f"calibration={method!r} needs cross-validation, which supports arrays, sparse"
                f" matrices and data frames, not X={type(X).__name__}: load the samples, or use"
                " calibration=None."
            )
        counted = count_samples(model.approximation, X, given.y, given.weight, reorders=True)
        samples = replace(given, X=X[counted.rows], y=given.y[counted.rows], weight=counted.weight)
        labels = Labels(classes).codes(samples.y)
        counts = np.bincount(labels, minlength=len(classes))
        if counts.min() < 2:
            rare = classes.tolist()[counts.argmin()]
            raise ValueError(
                f"calibration={method!r} holds out samples of every class, and class {rare!r} has"
                " one distinct sample: give more of it, or use calibration=None."
            )
        splitter = StratifiedKFold(min(5, int(counts.min())), shuffle=True, random_state=0)
        return cls(samples, counted.rows, list(splitter.split(labels, labels)))


def cross_calibrate(model: Estimator, crossed: CalibrationFolds, fit: Fit, n: int) -> Calibration:
    """Return the calibration of a classifier by fits to all folds but one, which start from `fit`
    to all n samples."""
    params = model.get_params(deep=False) | {"calibration": None, "verbose": False}
    if not isinstance(model.random_state, int | np.integer):
        params["random_state"] = int(
            check_random_state(model.random_state).randint(np.iinfo(np.int32).max)
        )
    part, starts, found = (
        type(model)(**params),
        [one.take(crossed.rows) for one in fit.starts(n)],
        [],
    )
    with warnings.catch_warnings(action="ignore"):  # those of the fit to all samples are the same
        for train, held in crossed.folds:
            inside, own = crossed.samples.take(train), [one.take(train) for one in starts]
            found += follow_paths(
                [[part.recipe(inside)]], inside, crossed.samples.X[held], starts=[own]
            )[0]
    held_out = [held for _, held in crossed.folds]
    return calibration_of(
        found, held_out, crossed.samples, model, fit.task.classes, model.calibration
    )


def describe_choice(scores: dict[Any, Array], chosen: Any, at: int, rule: str = "best") -> str:
    """Say what the chosen norm scored over the folds, and what the others scored, each at its best
    value.

    Scores are means, with their standard errors.

    Parameters
    ----------
    scores : dict of ndarray of shape (folds, Cs)
        By norm.
    chosen : norm
        The one chosen.
    at : int
        The number of the value chosen.
    rule : str
        By which it was chosen.
    """
    rules = {"uniform": "equal weights", "loo": "weights by leave-one-out"}

    def figures(norm: Any, at: int) -> str:
        own = scores[norm][:, at]
        error = own.std(ddof=min(1, len(own) - 1)) / len(own) ** 0.5
        return (
            f"{rules.get(norm, f'learned weights of norm {norm}')} {own.mean():.3f} ± {error:.3f}"
        )

    means = {norm: own.mean(axis=0) for norm, own in scores.items() if norm != chosen}
    others = [
        figures(norm, int(np.nanargmax(own)))
        for norm, own in means.items()
        if not np.isnan(own).all()
    ]
    rest = f"; {', '.join(others)}" if others else ""
    why = "scored best over the folds"
    if rule != "best":
        why = "is within one standard error of the best over the folds"
    best_of_equal_weights = np.nanmax(scores[chosen].mean(axis=0))
    if chosen == "uniform" and any(np.any(own > best_of_equal_weights) for own in means.values()):
        why = (
            "is kept, as no learned weights score better over the folds by more than one standard"
            " error"
        )
    return f"{figures(chosen, at)} {why}{rest}"


# Warnings about all fits --------------------------------------------------------------------------


def warn_of_gaps(what: str, gaps: Array, tol: float, remedy: str) -> int:
    """Warn once of all fits whose relative duality gap is above `tol`, or is NaN, and return how
    many these are."""
    loose = int(np.sum(~(gaps <= tol)))
    if loose:
        warn_caller(
            f"{what}: {loose} of {len(gaps)} fits stopped above tol={tol:g}, the loosest at a"
            f" relative duality gap of {np.max(gaps):.2g}; {remedy}.",
            ConvergenceWarning,
        )
    return loose


# The choice ---------------------------------------------------------------------------------------


#: What a search may choose: the best score, or the smoothest model within one standard error of it.
RULES = ("best", "one_standard_error")


def choose(
    scores: Array,
    tol: float,
    rule: str = "best",
    descending: bool = False,
    sizes: Indices | None = None,
    equal_weights: int | None = None,
) -> tuple[int, int]:
    """Return the numbers of the norm and of the value that a search chooses.

    1. Equal weights, if they are among the norms, are kept unless learned ones pay: see
       `learned_weights_pay`. The other steps choose among the norms that this one has left.
    2. Of all scores that tie with the best, the smoothest value is taken; of the norms that tie at
       this value, the first. A plateau of scores, where a larger C changes nothing, thus has one
       choice, whatever the rounding of the scores.
    3. By the rule "one_standard_error", scores that are less than one standard error below the best
       tie with it as well. The standard error is that of the mean over the folds, of the best
       score.

    Parameters
    ----------
    scores : ndarray of shape (norms, folds, values)
        Larger is better; NaN where nothing was tried.
    tol : float
        The tolerance of the fits.
    rule : {"best", "one_standard_error"}
        Whether step 3 is made.
    descending : bool
        Whether large values are smooth.
    sizes : ndarray of shape (folds,), optional
        How many samples each fold holds out.
    equal_weights : int, optional
        Which of the norms is that of equal weights; None if none is.
    """
    check_choice("rule", rule, RULES)
    margin = _distinguishable(scores, tol, sizes)
    if equal_weights is not None and len(scores) > 1:
        is_equal = np.arange(len(scores)) == equal_weights
        left_out = is_equal
        if not learned_weights_pay(scores[~is_equal], scores[equal_weights], margin):
            left_out = ~is_equal
        scores = np.where(left_out[:, np.newaxis, np.newaxis], np.nan, scores)
    means = scores.mean(axis=1)
    m, i = _smoothest(means, margin, margin, descending)
    if rule == "best" or scores.shape[1] == 1:
        return m, i
    error = float(scores[m, :, i].std(ddof=1)) / scores.shape[1] ** 0.5
    below = float(np.nanmax(means) - means[m, i])
    return _smoothest(means, max(below + error, margin), margin, descending)


def learned_weights_pay(learned: Array, equal: Array, margin: float) -> bool:
    """Return whether learned weights score better than equal ones by more than the noise of the
    folds.

    The best models of both kinds are compared fold by fold: the mean of the differences must be
    larger than its standard error. Both models are scored by the same samples, so that what makes a
    fold hard for both is no noise.

    Parameters
    ----------
    learned : ndarray of shape (norms, folds, values)
        Scores of learned weights; NaN where nothing was tried.
    equal : ndarray of shape (folds, values)
        Scores of equal weights.
    margin : float
        The least difference of two means that is one.
    """
    learned_means = learned.mean(axis=1)
    equal_means = equal.mean(axis=0)
    if np.isnan(learned_means).all():
        return False
    if np.isnan(equal_means).all():
        return True
    norm, value = np.unravel_index(np.nanargmax(learned_means), learned_means.shape)
    differences = learned[norm, :, value] - equal[:, np.nanargmax(equal_means)]
    error = 0.0
    if len(differences) > 1:
        error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    # Half an error, one, and two were compared. With one kernel per column or cluster of columns
    # and at most 150 rows (36 fits to five real sets) the log-loss is 0.382 with one, 0.383 with
    # equal weights, 0.388 by the best mean. Where one or three of 20 or 54 groups of columns
    # inform, it is 0.634, 0.654 and 0.631. On 40 fits to twenty real sets that none of these had
    # part in (benchmarks/learned_norms.py) it is 0.367, 0.370 and 0.363, 0.364 with half an error;
    # all differences are within two standard errors.
    return float(differences.mean()) > max(error, margin)


def _distinguishable(scores: Array, tol: float, sizes: Indices | None) -> float:
    """Return the least difference of two mean scores that is one: of the fits' tolerance, and of
    half a sample."""
    margin = resolution(scores.mean(axis=1), tol)
    if sizes is None:
        return margin
    counts = (scores * np.reshape(sizes, (-1, 1)))[np.isfinite(scores)]
    if np.all(np.abs(counts - np.round(counts)) < 1e-6):
        # All scores are numbers of samples divided by those held out. Of folds of 16 and 17
        # samples, as many right answers differ by less than one sample in their mean.
        return max(margin, 0.5 / (len(sizes) * int(np.max(sizes))))
    return margin


def resolution(means: Array, tol: float) -> float:
    """Return the least difference of two mean scores by which two models are distinguished.

    A fit is certified to a relative gap of `tol`: its objective, and with it the loss that it has
    on samples held out, is known to this share and no better. So is the distance of a score from
    the best there can be, 1 for accuracies, R² and concordance, 0 for losses with a minus. (Copies
    of a problem that differ in the last bits of X have R² whose 1 − R² differ by up to 4 `tol`,
    relatively.) As outputs that are off by `tol` have a squared error of `tol`², nearly perfect
    scores are known to this share of the largest distance, that of a constant model, and to
    rounding.
    """
    best = float(np.nanmax(means))
    ideal = 1.0 if 0.0 < best <= 1.0 else 0.0
    largest = float(np.nanmax(np.abs(ideal - means)))
    # R² has no lower bound.
    largest = min(largest, 1.0) if ideal else largest
    return max(4.0 * tol * abs(ideal - best), max(tol**2, 1e-12) * largest)


def _smoothest(
    means: Array, margin: float, between_norms: float, descending: bool
) -> tuple[int, int]:
    """Return the first norm and the smoothest value whose mean score is at most a margin below the
    best.

    At that value norms are compared once more: those within another margin of its best tie.
    """
    tied = means >= np.nanmax(means) - margin
    values = np.flatnonzero(tied.any(axis=0))
    i = int(values[-1 if descending else 0])
    return int(np.argmax(means[:, i] >= np.nanmax(means[:, i]) - between_norms)), i
