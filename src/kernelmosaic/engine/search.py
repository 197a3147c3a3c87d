"""Fits along a path of parameters, fold by fold, their outputs for held-out samples, and the choice of a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, _safe_indexing, check_random_state, get_tags
from sklearn.utils.parallel import Parallel, delayed

from kernelmosaic._checks import check_choice, warn_caller
from kernelmosaic._typing import AnyArray, Array, Estimator, Indices, MatrixLike, SampleWeight, Settings, TargetLike
from kernelmosaic.backend import NUMPY, allowed_threads, iterate_threads, to_host
from kernelmosaic.engine.calibration import CALIBRATIONS, NEVER, Calibration
from kernelmosaic.engine.conformal import Conformal
from kernelmosaic.engine.fit import Fit, Lead, Recipe, certify, follow, outputs, spread, training_set
from kernelmosaic.engine.pipelines import divide_pipeline
from kernelmosaic.engine.samples import FitInput, count_samples, is_streamed
from kernelmosaic.engine.tasks import ClassTask, Indicators, Labels, PathRule, class_factors, find_classes, per_class
from kernelmosaic.gram.row_blocks import ArrayRows
from kernelmosaic.kernels.views import term_names
from kernelmosaic.learning.certificate import Start
from kernelmosaic.stacking import StackedViews

# What an estimator's path is -----------------------------------------------------------------------------------------


def path_rule(estimator: Estimator) -> PathRule:
    """Return the rule of an estimator or of the last step of a pipeline, or raise if there is none."""
    model = divide_pipeline(estimator)[1]
    rule: PathRule | None = getattr(model, "path_rule", None)
    if rule is None:
        raise TypeError(
            f"estimator={type(model).__name__}: give an estimator of kernelmosaic with a parameter C, alpha, kappa or "
            "nu, or a pipeline that ends in one; GridSearchCV searches the parameters of any other."
        )
    return rule


def predicts_targets(estimator: Estimator) -> bool:
    """Whether predictions are those of the targets themselves, as numbers: times may be censored."""
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


# One fold ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOut:
    """Outputs and predictions of one fitted model for held-out samples.

    Attributes
    ----------
    outputs : ndarray of shape (n_held, outputs)
        Decision values, or predicted targets. There is no column if the training samples have one class, and a label
        that all of them have, or none of them, has ±`NEVER`.
    predicted : ndarray of shape (n_held,) or (n_held, targets)
        Its predictions.
    classes : ndarray or None
        The classes of the training samples, of a classifier.
    weights : ndarray of shape (P,) or (classes, P)
        The model's weights; NaN, of shape (), where one class, or constant labels, left nothing to learn.
    gap : float
        Its certified relative duality gap.
    fit : Fit or None
        The fit without its matrices, where its function follows from its coefficients.
    lead : Lead or None
        What the same fit of another fold is led by.
    """

    outputs: Array
    predicted: AnyArray
    classes: Any
    weights: Array
    gap: float
    fit: Fit | None = None
    lead: Lead | None = None

    def starts_of(self, n: int) -> list[Start] | None:
        """Return where a like fit to the same n samples starts; None where the coefficients are not kept."""
        return None if self.fit is None else self.fit.starts(n)

    def aligned(self, classes: AnyArray) -> Array:
        """Return outputs of shape (n,) for two classes, else with one column per class of the whole set.

        A class that the fold has no training sample of has −`NEVER`, as in scikit-learn's ``cross_val_predict``.
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
Held = list[list[HeldOut]]


def follow_paths(
    recipes: Recipes,
    inside: FitInput,
    outside: MatrixLike,
    like: Leads | None = None,
    starts: Sequence[Start] | None = None,
) -> Held:
    """Fit along paths to some samples, and return the outputs of each fit for those held out.

    The recipes differ in what the kernels do not depend on, such as C: kernels are computed once, the outputs of all
    fits from one evaluation of them, and each fit of a path starts where the one before it ended.

    Parameters
    ----------
    recipes : sequence of sequences of Recipe
        Those of one path differ in C.
    inside : FitInput
        The samples to fit to.
    outside : array or sparse matrix
        Those held out, validated.
    like : sequence of sequences of Lead, optional
        The same paths of another fold: weights differ less from fold to fold than from one C to the next.
    starts : sequence of Start, optional
        Where the first fit of every path starts.
    """
    if not isinstance(recipes[0][0].task, ClassTask):
        return _follow(recipes, inside, outside, like, starts)
    if inside.y.ndim == 2 and isinstance(recipes[0][0].task, Indicators):
        return _follow_labels(recipes, inside, outside, like, starts)
    classes = np.unique(inside.y if inside.weight is None else inside.y[inside.weight > 0])
    if len(classes) == 1:
        return _learn_nothing(recipes, np.repeat(classes, outside.shape[0]), classes)
    same = like is not None and np.array_equal(np.asarray(like[0][0].classes), classes)
    return _follow(recipes, inside, outside, like if same else None, starts)


def _follow_labels(
    recipes: Recipes, inside: FitInput, outside: MatrixLike, like: Leads | None, starts: Sequence[Start] | None
) -> Held:
    """Follow paths of classifiers of several labels; a label that is the same for all samples stays what it is."""
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
        return replace(one, outputs=outputs, predicted=(outputs > 0).astype(int), classes=np.arange(len(varies)))

    return [[completed(one) for one in path] for path in found]


def _learn_nothing(recipes: Recipes, predicted: AnyArray, classes: AnyArray | None) -> Held:
    """Return the predictions of fits to samples of one class."""
    one = HeldOut(np.empty((len(predicted), 0)), predicted, classes, np.array(np.nan), 0.0)
    return [[one] * len(path) for path in recipes]


def _follow(
    recipes: Recipes, inside: FitInput, outside: MatrixLike, like: Leads | None, starts: Sequence[Start] | None
) -> Held:
    """Fit along all paths to the samples inside, and return the outputs of each fit for those outside."""
    first = recipes[0][0]
    data = training_set(first, first.task.prepared(inside), inside)
    paths = [follow(path, inside, data, () if like is None else like[p], starts) for p, path in enumerate(recipes)]
    fits = iter(certify([one for path in paths for one in path]))
    paths = [[next(fits) for _ in path] for path in paths]
    values = iter(outputs([one for path in paths for one in path], outside))
    return [[_held_out(one, next(values)) for one in path] for path in paths]


def _held_out(fit: Fit, values: Array) -> HeldOut:
    kept = fit.light() if fit.method.is_plain and fit.rule is None else None
    return HeldOut(values, fit.decide(values), fit.task.classes, fit.weights, fit.gap, kept, lead=fit.lead)


# All folds -----------------------------------------------------------------------------------------------------------


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
        At how many values on both sides of the best of equal weights the other norms are tried; None tries all.
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
        rule, classes, kind = path_rule(self.model), self.classes, get_tags(self.model).estimator_type
        scores = np.empty((len(self.norms), len(self.folds), len(self.Cs)))
        held_out = [_safe_indexing(self.given.X, held) for _, held in self.folds]
        for m, f, i in np.ndindex(*scores.shape):
            one, held = self.found[m][f][i], self.folds[f][1]
            if one is UNTRIED:
                scores[m, f, i] = np.nan
                continue

            curves = partial(self.calibration, m, i, method or "sigmoid", without=f)

            def probabilities(outputs: Array, calibration: Callable[[], Any] = curves) -> Array:
                return np.asarray(calibration().probabilities(outputs))

            outputs = one.outputs if classes is None or self.given.y.ndim == 2 else one.aligned(classes)
            known = HeldOutPredictor(kind, one.predicted, outputs, classes, rule.score, probabilities, curves)
            own = {name: np.asarray(value)[held] for name, value in params.items() if value is not None}
            y = () if self.given.y is None else (self.given.y[held],)
            scores[m, f, i] = scorer(known, held_out[f], *y, **own)
        return scores

    def unnamed(self) -> Indices:
        """Return how many classes no fold's predictions name, of every norm and value; where no fit was made, all."""
        count = 0 if self.classes is None or self.given.y.ndim == 2 else len(self.classes)
        missing = np.full((len(self.norms), len(self.Cs)), count)
        for m, i in np.ndindex(*missing.shape):
            every = [path[i] for path in self.found[m]]
            if count and not any(one is UNTRIED for one in every):
                missing[m, i] -= len(np.unique(np.concatenate([one.predicted for one in every])))
        return missing

    def best(self, scores: Array, rule: str = "best") -> tuple[int, int]:
        """Return the numbers of the norm and of the value that are chosen by a rule of `choose`."""
        sizes = np.array([len(held) for _, held in self.folds])
        return choose(scores, self.model.tol, rule, path_rule(self.model).descending, sizes)

    def calibration(self, m: int, i: int, method: str, without: int | None = None) -> Any:
        """Return what turns outputs into probabilities, or survival functions, by those of samples held out."""
        rest = [f for f in range(len(self.folds)) if f != without]
        found, held = [self.found[m][f][i] for f in rest], [self.folds[f][1] for f in rest]
        if self.classes is None:
            given, rows = self.given, np.concatenate(held)
            weight = None if given.weight is None else given.weight[rows]
            outputs = np.concatenate([one.outputs[:, 0] for one in found])
            return self.model.fit_curves(outputs, given.y[rows], weight, held_out=True)
        return calibration_of(found, held, self.given, self.model, self.classes, method)

    def weights(self, m: int) -> Array:
        """Return the weights of every fold and value, of shape (folds, Cs, P) or (folds, Cs, classes, P)."""
        # Of a fold with less than three classes they are fewer; of one class there are none.
        largest = max((one.weights for path in self.found[m] for one in path), key=np.ndim)
        classes = self.classes if largest.ndim == 2 else None

        def aligned(one: HeldOut) -> Array:
            full = np.full(largest.shape if classes is None else (len(classes), largest.shape[1]), np.nan)
            if one.weights.ndim > 0:
                full[... if classes is None else Labels(classes).codes(one.classes)] = one.weights
            return full

        return np.array([[aligned(one) for one in path] for path in self.found[m]])

    def mean_weights(self, m: int) -> Array:
        """Return the weights of every value, averaged over the folds; NaN where nothing was tried."""
        # Values that were not tried have no mean.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            return np.asarray(np.nanmean(self.weights(m), axis=0))

    def learned(self, scores: Array, rule: str = "best") -> dict[Any, Array]:
        """Return the weights of each norm at the value chosen for it, averaged over the folds.

        Those that were not chosen are shown beside the choice: equal weights do not rank the kernels.
        """
        known = [m for m, own in enumerate(scores) if not np.isnan(own.mean(axis=0)).all()]
        return {self.norms[m]: self.mean_weights(m)[self.best(scores[[m]], rule)[1]] for m in known}

    def all_gaps(self) -> Array:
        """Return the certified relative duality gaps of all fits that were made."""
        return np.array([one.gap for paths in self.found for path in paths for one in path if one is not UNTRIED])

    def gaps(self, m: int) -> Array:
        """Return the certified relative duality gaps, of shape (folds, Cs)."""
        return np.array([[one.gap for one in path] for path in self.found[m]])

    def fit(self, m: int, i: int, method: str | None = None) -> Estimator:
        """Return the choice fitted to all samples; with `method`, its probabilities are by the samples held out."""
        calibration = None if method is None else self.calibration(m, i, method)
        params = {} if method is None else {"calibration": method}
        return self._fit(m, i, self.given, params, calibration=calibration, starts=self.starts(m, i))

    def chosen(self, m: int, i: int, **params: Any) -> Estimator:
        """Return the estimator of a choice, not fitted, with other parameters as far as it has them."""
        rule, own = path_rule(self.model), self.model.get_params(deep=False)
        other = {name: value for name, value in params.items() if name in own}
        choice = {**variant(self.model, self.norms[m]), rule.parameter: float(self.Cs[i])}
        return _with(self.model, **{**choice, **other})

    def starts(self, m: int, i: int) -> list[Start] | None:
        """Return where the fit of a choice to all samples starts: at the means over the folds; None if these differ.

        None as well of what predicts neither numbers nor one class.
        """
        every, n = [path[i] for path in self.found[m]], self.given.X.shape[0]
        same = self.classes is None or all(np.array_equal(one.classes, self.classes) for one in every)
        each = [one.starts_of(len(train)) for one, (train, _) in zip(every, self.folds, strict=True)]
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
        self, m: int, i: int, given: FitInput, params: Settings, known: Fit | None = None, **learned: Any
    ) -> Estimator:
        """Return the choice with what was learned from some samples, and with other parameters as far as it has them.

        Of a fit that is known, the attributes and the function are set; what else is learned, `fit_input` is given.
        """
        model = self.chosen(m, i, **params)
        steps = divide_pipeline(self.estimator)[0]
        fitted = None if steps is None else clone(steps)
        if fitted is not None:
            X = fitted.fit_transform(given.X, given.y)
        else:  # with the columns of each table where several were given
            X = given.original if given.views is None else StackedViews(given.original, given.views)
        whole = replace(model.validated(X, given.y, given.weight), device=given.device)
        scaled = model.scaled(whole, self.scale)
        if known is None:
            model.fit_input(scaled, **learned)
        else:
            model.keep(known, scaled)
        if fitted is None:
            return model
        return type(fitted)([*fitted.steps, (self.estimator.steps[-1][0], model)])

    def conformal(self, m: int, i: int) -> Conformal | None:
        """Return the choice as fitted to the training samples of every fold, with the scores of those held out.

        None of what predicts neither numbers nor one class. Samples of weight zero have no score, nor have those that
        a fold of one class holds out.
        """
        y = self.given.y
        if not self._is_predictor():
            return None
        counts = np.ones(len(y), dtype=bool) if self.given.weight is None else self.given.weight > 0
        # Columns of a table are found by their names.
        samples = self.given.original if hasattr(self.given.original, "columns") else self.given.X
        models, unseen = [], []
        for (train, held), path in zip(self.folds, self.found[m], strict=True):
            weights, held = path[i].weights, held[counts[held]]
            if weights.ndim == 0 or len(held) == 0:
                continue
            inside = replace(self.given.take(train), original=_safe_indexing(samples, train))
            with _without_gaps():
                quiet = {"calibration": None, "verbose": False}
                models.append(self._fit(m, i, inside, quiet, known=path[i].fit))
            unseen.append((_safe_indexing(samples, held), y[held]))
        return Conformal.of(models, unseen, self.classes) if models else None


def search_paths(
    estimator: Estimator, given: FitInput, folds: Sequence[Any], Cs: Any, norms: Sequence[Any], options: PathOptions
) -> PathResult:
    """Follow the paths of all folds.

    A fold computes its kernels once, with widths, scales and normalising of its own training samples, so that its
    scores are those of a grid search, up to the tolerance of the fits. Along the path every fit starts from the weights
    and the coefficients of the one before it, those at a bound moved with it. The first fold leads the way.

    Parameters
    ----------
    estimator : estimator
        With a `PathRule`, or a pipeline that ends in one, whose first steps are fitted to every fold.
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
    steps, model = divide_pipeline(estimator)
    rule = path_rule(model)
    params = model.get_params(deep=False)
    # All fits draw the same landmarks.
    seed = int(check_random_state(params.get("random_state")).randint(np.iinfo(np.int32).max))
    model = _with(model, random_state=seed)
    quiet = {name: value for name, value in (("verbose", False), ("calibration", None)) if name in params}
    plain = {**model.get_params(deep=False), **quiet}
    values = rule.values(Cs, given)
    if not is_classifier(model):
        classes = None
    elif given.y.ndim == 2:
        classes = np.arange(given.y.shape[1])
    else:
        classes = find_classes(given.y, given.weight, type(model).__name__)
    # A single kernel has nothing to weigh.
    norms = list(norms) if len(term_names(model.read_kernels())) > 1 else list(norms[:1])
    order = -1 if rule.descending else 1

    def follow(norms: Sequence[Any], values: Array, starts: Sequence[Any], before: int, all_folds: int) -> list[Held]:
        def tasks() -> Iterator[tuple[Any, ...]]:
            each = [{**plain, **variant(model, norm)} for norm in norms]
            # Made one fold after the other: fitted models are large, and go when their fold is done.
            for (train, held), start in zip(folds, starts, strict=True):
                paths = [[type(model)(**{**own, rule.parameter: float(C)}) for C in values[::order]] for own in each]
                yield paths, steps, given, train, held, options.scale, start

        together = None
        if given.device is not None:
            from kernelmosaic.gpu import follow_together

            together = follow_together(list(tasks()), HeldOut)
        spare = 1 if steps is not None else _spare_threads(model, given, folds)
        by_fold = []
        run = nullcontext(together) if together is not None else closing(_run(tasks(), options.n_jobs, spare))
        with run as found:
            for done, paths in enumerate(found, start=1):
                by_fold.append(paths)
                share = (before + done) * len(folds) // all_folds
                options.show(f"{share} of {len(folds)} folds", share)
        if all(fold[0][0].weights.ndim == 0 for fold in by_fold):
            raise ValueError("cv: no fold has training samples of two classes; give other folds.")
        return [[fold[m][::order] for fold in by_fold] for m in range(len(norms))]

    def result(norms: list[Any], found: list[Held]) -> PathResult:
        return PathResult(estimator, model, given, classes, list(folds), values, norms, bool(options.scale), found)

    cold, n_folds = [None] * len(folds), len(folds)
    if options.near is None or len(norms) == 1 or len(values) <= 2 * options.near + 1:
        return result(norms, follow(norms, values, cold, 0, n_folds))
    assert options.scores is not None
    equal = result(["uniform"], follow(["uniform"], values, cold, 0, 2 * n_folds))
    best = equal.best(options.scores(equal), options.rule)[1]
    first, last = max(best - options.near, 0), min(best + options.near + 1, len(values))
    others = [norm for norm in norms if norm != "uniform"]
    smooth, both = last - 1 if rule.descending else first, zip(equal.found[0], folds, strict=True)
    starts = [path[smooth].starts_of(len(train)) for path, (train, _) in both]
    rest = dict(zip(others, follow(others, values[first:last], starts, n_folds, 2 * n_folds), strict=True))

    def filled(path: Sequence[HeldOut]) -> list[HeldOut]:
        return [UNTRIED] * first + list(path) + [UNTRIED] * (len(values) - last)

    whole = [equal.found[0] if norm == "uniform" else [filled(path) for path in rest[norm]] for norm in norms]
    return result(norms, whole)


def _with(model: Estimator, **params: Any) -> Estimator:
    """Return the model with other parameters, not fitted; kernels are shared."""
    return type(model)(**{**model.get_params(deep=False), **params})


def _run(tasks: Iterator[Any], n_jobs: int | None, n_threads: int) -> Generator[Held, None, None]:
    leader = _follow_fold_quietly(*next(tasks))
    yield leader
    # What the same paths of the other folds are led by; nothing where this fold has left out a path.
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


def _spare_threads(model: Any, given: FitInput, folds: Sequence[Any], few: int = 500, share: float = 0.25) -> int:
    """Return on how many threads the folds after the first are followed, each with one thread of linear algebra.

    Of fewer samples, most of the work has the interpreter's lock; of fewer folds than half of the threads, the linear
    algebra of one fold after the other has more of them. All folds at once must fit into a share of the memory.
    """
    n, threads, others = min(len(train) for train, _ in folds), allowed_threads(), len(folds) - 1
    if n < few or given.device is not None or threads > 2 * others:
        return 1
    # Kernels, and samples as given, standardised, in double precision and less their mean.
    n_bytes = 8.0 * n**2 * len(term_names(model.read_kernels())) + 32.0 * n * given.X.shape[1]
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
    starts: list[Start] | None,
    like: Leads | None = None,
) -> Held:
    inside, outside = given.take(train), _safe_indexing(given.X, held)
    if steps is not None:
        # What the steps learn they learn from the training samples of the fold.
        own, reader = clone(steps), _with(paths[0][0])
        prepared = own.fit_transform(inside.X, inside.y)
        inside = replace(inside, X=reader._validate(prepared, reset=True), original=to_host(prepared))
        outside = reader._validate(own.transform(outside), reset=False)
    if scale:
        standardizer = inside.standardizer(paths[0][0].read_kernels(inside.table, inside.views))
        inside, outside = replace(inside, X=standardizer(inside.X)), standardizer(outside)
    recipes = [[one.recipe(inside) for one in path] for path in paths]
    return follow_paths(recipes, inside, outside, like, starts)


def read_samples(estimator: Estimator, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> FitInput:
    """Return the samples of a search, validated by a copy of its estimator; of a pipeline, with X before its steps."""
    steps, model = divide_pipeline(estimator)
    prepared = X if steps is None else clone(steps).fit_transform(X, y)
    given: FitInput = _with(model).validated(prepared, y, sample_weight)
    return given if steps is None else replace(given, X=X, original=X)


def calibration_of(
    found: Sequence[HeldOut], held: Sequence[Indices], given: FitInput, model: Estimator, classes: AnyArray, method: str
) -> Calibration:
    """Return what turns decision values into probabilities, by those of samples while they were held out.

    Samples count as they do in the fit: a decision value of zero is a probability of one half, whatever the weights of
    the classes. Samples of a class that is not in the training part of their fold are left out.
    """
    rows = np.concatenate(held)
    weight = np.ones(len(given.y)) if given.weight is None else given.weight
    if given.y.ndim == 2:
        return Calibration.fit(np.concatenate([one.outputs for one in found]), given.y[rows], 2, weight[rows], method)
    # A class whose samples all have weight zero is none.
    counts = np.isin(given.y, classes)
    weight = weight.copy()
    weight[counts] *= class_factors(getattr(model, "class_weight", None), given.y[counts], weight[counts], classes)
    values = np.concatenate([one.aligned(classes) for one in found])[counts[rows]]
    rows = rows[counts[rows]]
    return Calibration.fit(values, Labels(classes).codes(given.y[rows]), len(classes), weight[rows], method)


# Folds of one classifier, for its probabilities ----------------------------------------------------------------------


@dataclass(frozen=True)
class CalibrationFolds:
    """The folds by which a classifier with a `calibration` learns probabilities: five, or fewer of a rare class.

    Repeated samples are one sample with the sum of their weights, so that none is held out while its like is not, and
    the folds are drawn from the samples in an order of their own: they depend neither on how the samples are ordered
    nor on whether a sample is given twice or with twice the weight.

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
                f"calibration={method!r} needs cross-validation, which supports arrays, sparse matrices and data "
                f"frames, not X={type(X).__name__}: load the samples, or use calibration=None."
            )
        weight = np.ones(len(given.y)) if given.weight is None else given.weight
        counted = count_samples(model.approximation, X, given.y, weight)
        samples = replace(given, X=X[counted.rows], y=given.y[counted.rows], weight=counted.weight)
        labels = Labels(classes).codes(samples.y)
        counts = np.bincount(labels, minlength=len(classes))
        if counts.min() < 2:
            rare = classes.tolist()[counts.argmin()]
            raise ValueError(
                f"calibration={method!r} holds out samples of every class, and class {rare!r} has one distinct "
                "sample: give more of it, or use calibration=None."
            )
        splitter = StratifiedKFold(min(5, int(counts.min())), shuffle=True, random_state=0)
        return cls(samples, counted.rows, list(splitter.split(labels, labels)))


def cross_calibrate(model: Estimator, crossed: CalibrationFolds, fit: Fit, n: int) -> Calibration:
    """Return the calibration of a classifier by fits to all folds but one, which start from `fit` to all n samples."""
    params = model.get_params(deep=False) | {"calibration": None, "verbose": False}
    if not isinstance(model.random_state, int | np.integer):
        params["random_state"] = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
    part, starts, found = type(model)(**params), [one.take(crossed.rows) for one in fit.starts(n)], []
    with warnings.catch_warnings(action="ignore"):  # those of the fit to all samples are the same
        for train, held in crossed.folds:
            inside, own = crossed.samples.take(train), [one.take(train) for one in starts]
            found += follow_paths([[part.recipe(inside)]], inside, crossed.samples.X[held], starts=own)[0]
    held_out = [held for _, held in crossed.folds]
    return calibration_of(found, held_out, crossed.samples, model, fit.task.classes, model.calibration)


def describe_choice(scores: dict[Any, Array], chosen: Any, at: int, rule: str = "best") -> str:
    """Say what the chosen norm scored over the folds, and what the others scored, each at its best value.

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
        return f"{rules.get(norm, f'learned weights of norm {norm}')} {own.mean():.3f} ± {error:.3f}"

    means = {norm: own.mean(axis=0) for norm, own in scores.items() if norm != chosen}
    others = [figures(norm, int(np.nanargmax(own))) for norm, own in means.items() if not np.isnan(own).all()]
    rest = f"; {', '.join(others)}" if others else ""
    why = "scored best" if rule == "best" else "is within one standard error of the best"
    return f"{figures(chosen, at)} {why} over the folds{rest}"


# Warnings about all fits ---------------------------------------------------------------------------------------------


def warn_of_gaps(what: str, gaps: Array, tol: float, remedy: str) -> None:
    """Warn once of all fits whose relative duality gap is above `tol`, or is NaN."""
    loose = int(np.sum(~(gaps <= tol)))
    if loose:
        warn_caller(
            f"{what}: {loose} of {len(gaps)} fits stopped above tol={tol:g}, the loosest at a relative duality gap of "
            f"{np.max(gaps):.2g}; {remedy}.",
            ConvergenceWarning,
        )


# The choice ----------------------------------------------------------------------------------------------------------


#: What a search may choose: the best score, or the smoothest model within one standard error of it.
RULES = ("best", "one_standard_error")


def choose(
    scores: Array, tol: float, rule: str = "best", descending: bool = False, sizes: Indices | None = None
) -> tuple[int, int]:
    """Return the numbers of the norm and of the value that a search chooses.

    Of all scores that tie with the best, the smoothest value is taken; of the norms that tie at this value, the first.
    A plateau of scores, where a larger C changes nothing, thus has one choice, whatever the rounding of the scores.

    Parameters
    ----------
    scores : ndarray of shape (norms, folds, values)
        Larger is better; NaN where nothing was tried.
    tol : float
        The tolerance of the fits.
    rule : {"best", "one_standard_error"}
        Whether scores that are less than one standard error below the best tie with it as well. The standard error is
        that of the mean over the folds, of the best score.
    descending : bool
        Whether large values are smooth.
    sizes : ndarray of shape (folds,), optional
        How many samples each fold holds out.
    """
    means = scores.mean(axis=1)
    margin = resolution(means, tol)
    counts = np.zeros(0) if sizes is None else (scores * np.reshape(sizes, (-1, 1)))[np.isfinite(scores)]
    if sizes is not None and np.all(np.abs(counts - np.round(counts)) < 1e-6):
        # All scores are numbers of samples divided by those held out. Of folds of 16 and 17 samples, as many right
        # answers differ by less than one sample in their mean.
        margin = max(margin, 0.5 / (len(sizes) * int(np.max(sizes))))
    m, i = _smoothest(means, margin, margin, descending)
    if check_choice("rule", rule, RULES) == "best" or scores.shape[1] == 1:
        return m, i
    error = float(scores[m, :, i].std(ddof=1)) / scores.shape[1] ** 0.5
    below = float(np.nanmax(means) - means[m, i])
    return _smoothest(means, max(below + error, margin), margin, descending)


def resolution(means: Array, tol: float) -> float:
    """Return the least difference of two mean scores by which two models are distinguished.

    A fit is certified to a relative gap of `tol`: its objective, and with it the loss that it has on samples held out,
    is known to this share and no better. So is the distance of a score from the best there can be, 1 for accuracies,
    R² and concordance, 0 for losses with a minus. (Copies of a problem that differ in the last bits of X have R² whose
    1 − R² differ by up to 4 `tol`, relatively.) As outputs that are off by `tol` have a squared error of `tol`², nearly
    perfect scores are known to this share of the largest distance, that of a constant model, and to
    rounding.
    """
    best = float(np.nanmax(means))
    ideal = 1.0 if 0.0 < best <= 1.0 else 0.0
    largest = float(np.nanmax(np.abs(ideal - means)))
    # R² has no lower bound.
    largest = min(largest, 1.0) if ideal else largest
    return max(4.0 * tol * abs(ideal - best), max(tol**2, 1e-12) * largest)


def _smoothest(means: Array, margin: float, between_norms: float, descending: bool) -> tuple[int, int]:
    """Return the first norm and the smoothest value whose mean score is at most a margin below the best.

    At that value norms are compared once more: those within another margin of its best tie.
    """
    tied = means >= np.nanmax(means) - margin
    values = np.flatnonzero(tied.any(axis=0))
    i = int(values[-1 if descending else 0])
    return int(np.argmax(means[:, i] >= np.nanmax(means[:, i]) - between_norms)), i
