"""Importance of kernels and columns: the loss of a score without a kernel, and the change of the
decisions when a column is permuted."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from kernelmosaic._checks import check_count
from kernelmosaic._typing import (
    AnyArray,
    Array,
    Estimator,
    Indices,
    Mask,
    MatrixLike,
    SampleWeight,
    Seed,
    TargetLike,
)
from kernelmosaic.engine.expansion import PartialSums, SupportSums
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.engine.scoring import HeldOutPredictor, check_one_score
from kernelmosaic.engine.search import read_folds
from kernelmosaic.engine.tasks import accuracy, r_squared, single
from kernelmosaic.engine.training_set import SharedKernels, TrainingSet, may_lack
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.gram.kernel_set import FittedKernel
from kernelmosaic.gram.missing import filled, present_views
from kernelmosaic.inspection.refits import fit, frame, last_step, prepare, text_table
from kernelmosaic.kernels.base import StatisticKernel, is_missing
from kernelmosaic.kernels.distances import pairwise_statistic
from kernelmosaic.kernels.views import KernelSpec, lay_specs
from kernelmosaic.learning.norms import read_fixed
from kernelmosaic.survival.estimator import MKLSurvival
from kernelmosaic.survival.metrics import read_times


@dataclass(frozen=True, eq=False)
class KernelImportance:
    """The result of :func:`kernel_importance`.

    Attributes
    ----------
    kernel_names : list of str
        The names of the P kernels.
    scores : ndarray of shape (folds,)
        Scores of the model with all kernels on the samples held out.
    drops : ndarray of shape (folds, P)
        Loss of the score when the model is fitted without the kernel; negative for a gain.
    permutations : ndarray of shape (folds, P, n_repeats)
        Loss of the score when the kernel reads the view of another sample.
    gains : ndarray of shape (folds, P) or None
        With `base`, the gain of the kernel over the score of the base alone; zero for kernels of
        the base.
    """

    kernel_names: list[str]
    scores: Array
    drops: Array
    permutations: Array
    gains: Array | None = None

    @property
    def drop_mean(self) -> Array:
        """Mean of `drops` over the folds, of shape (P,)."""
        return np.asarray(self.drops.mean(axis=0))

    @property
    def permutation_mean(self) -> Array:
        """Mean of `permutations` over folds and repeats, of shape (P,)."""
        return np.asarray(self.permutations.mean(axis=(0, 2)))

    @property
    def drop_std(self) -> Array:
        """Standard deviation of `drops` over the folds, of shape (P,)."""
        return np.asarray(self.drops.std(axis=0))

    @property
    def permutation_std(self) -> Array:
        """Standard deviation of `permutations` over folds and repeats, of shape (P,)."""
        return np.asarray(self.permutations.std(axis=(0, 2)))

    def _rows(self) -> list[list[Any]]:
        """Return one row per kernel: its name, then means and standard deviations."""
        columns = [self.drop_mean, self.drop_std, self.permutation_mean, self.permutation_std]
        if self.gains is not None:
            columns += [self.gains.mean(axis=0), self.gains.std(axis=0)]
        rows = []
        for m, name in enumerate(self.kernel_names):
            rows.append([name, *(column[m] for column in columns)])
        return rows

    def to_frame(self) -> Any:
        """Return a data frame: one row per kernel, means over the folds and standard deviations."""
        heads = ["kernel", "drop_mean", "drop_std", "permutation_mean", "permutation_std"]
        if self.gains is not None:
            heads += ["gain_mean", "gain_std"]
        return frame(heads, self._rows())

    def __str__(self) -> str:
        heads = ["kernel", "dropped", "±", "permuted", "±"]
        if self.gains is not None:
            heads += ["added", "±"]
        return text_table(heads, self._rows())


def kernel_importance(
    estimator: Estimator,
    X: MatrixLike,
    y: TargetLike,
    *,
    scoring: Any = None,
    cv: Any = 5,
    n_repeats: int = 5,
    base: Sequence[str] = (),
    sample_weight: SampleWeight = None,
    random_state: Seed = None,
    n_jobs: int | None = None,
) -> KernelImportance:
    """Return how much a score on samples held out falls without each kernel.

    In every fold the model is fitted to the other samples, with all kernels and with all but one.
    *Dropped* is the difference of their scores: the information of the kernel that the others do
    not have. *Permuted* is the loss of the score of the model with all kernels when the kernel
    reads the view of another sample, drawn among those held out that have the view, while the other
    kernels read the right one: how much this model relies on the kernel. The replacement of a view
    that a sample lacks is not permuted. Of two kernels with the same information, dropping either
    loses nothing, and permuting either may lose.

    *Added*, with a `base`, is the difference of the scores with the base and the kernel, and with
    the base alone: what a view of omics adds to the clinical variables, without the other views.

    If samples have every view, no model is fitted without a kernel whose learned weight is zero:
    the optimum is the same. A sample that has no other view than that of the kernel is left out of
    the fit without it; where it is held out, the output of that model is its constant,
    `intercept_`.

    Parameters
    ----------
    estimator : estimator
        Of this package, with targets and at least two kernels, or a pipeline that ends in one; not
        changed.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        Samples.
    y : array-like
        Their targets, as `fit` takes them.
    scoring : str or callable, default=None
        As in :class:`~sklearn.model_selection.GridSearchCV`; None means the estimator's own score.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`.
    n_repeats : int, default=5
        How often the view of a kernel is permuted in each fold.
    base : sequence of str, default=()
        Names of kernels to which the others are added one at a time.
    sample_weight : array-like of shape (n_samples,), default=None
        Factors of C; they count in the scores as well.
    random_state : int, RandomState or None, default=None
        Draws the permutations, and a seed for an estimator that has none.
    n_jobs : int, default=None
        Folds at the same time, in processes; None means one. Results do not depend on it.

    Returns
    -------
    KernelImportance

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.inspection import kernel_importance
    >>> from kernelmosaic.kernels import Gaussian
    >>> X, y = load_iris(return_X_y=True)
    >>> views = [("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])]
    >>> model = MKLClassifier(views)
    >>> importance = kernel_importance(model, X, y, cv=3, random_state=0)
    >>> bool(importance.drop_mean[1] > 0.1 > importance.drop_mean[0])
    True
    """
    # These imports load a good part of scikit-learn.
    from sklearn.metrics import check_scoring
    from sklearn.model_selection import check_cv

    check_count("n_repeats", n_repeats)
    estimator, target, weight, random = prepare(estimator, X, y, sample_weight, random_state)
    model = last_step(estimator)
    if isinstance(model, MKLSurvival):
        target = read_times(y)
    check_one_score(scoring)
    scorer = check_scoring(estimator, scoring=scoring)
    strata = target[:, 0] if isinstance(model, MKLSurvival) else target
    splits = check_cv(cv, strata, classifier=is_classifier(model)).split(X, strata)
    folds = read_folds(splits, len(target))
    seeds = random.randint(np.iinfo(np.int32).max, size=len(folds))
    base = (base,) if isinstance(base, str) else tuple(base)
    inspect_fold = _FoldInspection(estimator, X, target, weight, scorer, int(n_repeats), base)
    results = Parallel(n_jobs=n_jobs)(
        delayed(inspect_fold)(train, held_out, int(seed))
        for (train, held_out), seed in zip(folds, seeds, strict=True)
    )
    return KernelImportance(
        results[0].kernel_names,
        np.array([result.score for result in results]),
        np.array([result.drops for result in results]),
        np.array([result.permutations for result in results]),
        np.array([result.gains for result in results]) if base else None,
    )


class _FoldResult(NamedTuple):
    """The result of one fold: the attributes of `KernelImportance` for that fold."""

    kernel_names: list[str]
    score: float
    drops: list[float]
    permutations: list[list[float]]
    gains: list[float]


class _FittedFold(NamedTuple):
    """A fold whose model with all kernels is fitted.

    Attributes
    ----------
    train, held_out : ndarray of int
        Row numbers of the training samples and of the samples held out.
    specs : list of KernelSpec
        The kernels of the model.
    has_view_in_training, has_view_held_out : ndarray of bool of shape (n, P)
        Whether each sample has the view of each kernel.
    fixed_weights : dict
        The weights of the kernels whose weights are fixed, by the number of the kernel.
    """

    train: Indices
    held_out: Indices
    specs: list[KernelSpec]
    has_view_in_training: Mask
    has_view_held_out: Mask
    fixed_weights: dict[int, float]


@dataclass(frozen=True)
class _FoldInspection:
    """The computation of a fold, as a function of its rows; the attributes hold for all folds.

    Attributes
    ----------
    estimator : estimator
    X, y, weight
        All samples, with targets and weights.
    scorer : callable
        As `check_scoring` of scikit-learn returns it.
    n_repeats, base
        As in `kernel_importance`.
    """

    estimator: Estimator
    X: MatrixLike
    y: AnyArray
    weight: Array | None
    scorer: Any
    n_repeats: int
    base: tuple[str, ...] = ()

    def __call__(self, train: Indices, held_out: Indices, seed: int) -> _FoldResult:
        """Return the score of a fold and its changes without each kernel.

        Parameters
        ----------
        train, held_out : ndarray of int
            Row numbers of the training samples and of the samples held out.
        seed : int
            Seed of the permutations.
        """
        # Warnings of scales are given once; gaps are those of the estimator's own tolerance.
        quiet = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)
        with SharedKernels(memory_budget=1) as shared, quiet:
            # 1. The model with all kernels.
            pipeline = self._fit(self.estimator, train)
            model = last_step(pipeline)
            training_set = shared.store.training_sets[-1]
            specs = lay_specs(model.read_kernels(training_set.table), training_set.table)
            if len(model.kernel_names_) < 2:
                raise ValueError(
                    f"kernels: {model.kernel_names_[0]!r} is the only one, which cannot be left"
                    " out; give at least two."
                )
            score = self._score(pipeline, held_out)
            warnings.simplefilter("ignore")
            fold = _FittedFold(
                train,
                held_out,
                specs,
                _present(pipeline, specs, _safe_indexing(self.X, train)),
                _present(pipeline, specs, _safe_indexing(self.X, held_out)),
                _fixed_views(model),
            )

            # 2. Models without each kernel.
            has_all_views = fold.has_view_in_training.all() and fold.has_view_held_out.all()
            drops = []
            for m in range(len(specs)):
                # Where samples lack views, the replacement of a view depends on all kernels, also
                # on those without a weight.
                if _is_unused(model, m) and has_all_views:
                    drops.append(0.0)
                    continue
                kernels = [j for j in range(len(specs)) if j != m]
                # A class whose weights are all zero without the kernel has no start.
                start = np.delete(model.weights_, m, axis=-1)
                if not np.all(start.sum(axis=-1) > 0):
                    start = None
                drops.append(
                    score - self._score_with(fold, kernels, start, training_set.without(m))
                )

        # 3. Permuted views, and kernels added to the base.
        random = np.random.RandomState(seed)
        permutations = self._permute(pipeline, held_out, fold.has_view_held_out, score, random)
        gains = self._gains(fold, model.kernel_names_)
        return _FoldResult(model.kernel_names_, score, drops, permutations, gains)

    def _score_with(
        self,
        fold: _FittedFold,
        kernels: list[int],
        start: Array | None = None,
        training_set: TrainingSet | None = None,
    ) -> float:
        """Return the score on the samples held out of a model with some of the kernels.

        Parameters
        ----------
        fold : _FittedFold
        kernels : list of int
            The numbers of the kernels.
        start : ndarray or None
            Weights to start from.
        training_set : TrainingSet or None
            The training set of these kernels, if it is known, for the case that all training
            samples have a view.
        """
        has_any_view = np.asarray(fold.has_view_in_training[:, kernels].any(axis=1))
        estimator = self._estimator_with(fold, kernels)
        if not has_any_view.all():
            training_set = None
        fitted = self._fit(estimator, fold.train[has_any_view], start, training_set)
        has_any_view_held_out = np.asarray(fold.has_view_held_out[:, kernels].any(axis=1))
        return self._score_where_known(fitted, fold.held_out, has_any_view_held_out)

    def _gains(self, fold: _FittedFold, names: list[str]) -> list[float]:
        """Return how much the score of the base rises with each kernel.

        It is zero for kernels of the base.

        Without a base the list is empty.
        """
        unknown = [name for name in self.base if name not in names]
        if unknown:
            raise ValueError(
                f"base: no kernel is called {unknown[0]!r}; the kernels are {', '.join(names)}."
            )
        if not self.base:
            return []
        base = [m for m, name in enumerate(names) if name in self.base]
        gains = []
        with warnings.catch_warnings(action="ignore"):
            base_score = self._score_with(fold, base)
            for m in range(len(names)):
                gain = 0.0
                if m not in base:
                    gain = self._score_with(fold, sorted([*base, m])) - base_score
                gains.append(gain)
        return gains

    def _fit(
        self,
        estimator: Estimator,
        rows: Indices,
        start: Array | None = None,
        training_set: TrainingSet | None = None,
    ) -> Estimator:
        """Return a clone of an estimator that is fitted to some rows; see `refits.fit`."""
        weight = None if self.weight is None else self.weight[rows]
        X = _safe_indexing(self.X, rows)
        return fit(clone(estimator), X, self.y[rows], weight, start, training_set)

    def _score(self, estimator: Estimator, held_out: Indices, X: MatrixLike = None) -> float:
        """Return the score of a fitted estimator on the samples held out; X may replace them."""
        if X is None:
            X = _safe_indexing(self.X, held_out)
        y = self.y[held_out]
        if self.weight is None:
            return float(self.scorer(estimator, X, y))
        return float(self.scorer(estimator, X, y, sample_weight=self.weight[held_out]))

    def _score_where_known(self, estimator: Estimator, held_out: Indices, has_view: Mask) -> float:
        """Return the score of an estimator of which some samples lack all views.

        The output for these samples is the constant of the model; `has_view` is False for them.
        """
        if has_view.all():
            return self._score(estimator, held_out)
        model, X = behind_pipeline(estimator, _safe_indexing(self.X, held_out))
        outputs = np.tile(model.intercept_, (len(held_out), 1))
        if has_view.any():
            table = model.read(_safe_indexing(X, np.flatnonzero(has_view)))
            outputs[has_view] = model.function_.outputs(table)
        return self._score(_with_outputs(model, outputs), held_out, X)

    def _estimator_with(self, fold: _FittedFold, kernels: list[int]) -> Estimator:
        """Return a clone of the estimator with some of its kernels, and with their parameters."""
        estimator = clone(self.estimator)
        model = last_step(estimator)
        specs = [fold.specs[j] for j in kernels]
        model.set_params(kernels=[(spec.name, spec.kernel, spec.columns) for spec in specs])
        # These parameters may have one entry per kernel.
        for parameter in ("penalties", "weights", "rank"):
            value = getattr(model, parameter, None)
            if value is not None and np.ndim(value) == 1:
                model.set_params(**{parameter: np.asarray(value)[kernels]})
        fixed = fold.fixed_weights
        if not fixed:
            return estimator
        if all(j in fixed for j in kernels):
            model.set_params(fixed_weights=None, weights=[fixed[j] for j in kernels])
        else:
            fixed_by_name = {fold.specs[j].name: fixed[j] for j in kernels if j in fixed}
            model.set_params(fixed_weights=fixed_by_name)
        return estimator

    def _permute(
        self,
        pipeline: Any,
        held_out: Indices,
        present: Mask,
        score: float,
        random: np.random.RandomState,
    ) -> list[list[float]]:
        """Return the loss of the score when a kernel reads other samples, by kernel and repeat.

        The output of a sample then has the term of another sample for this kernel. Only samples
        that have a view exchange it: the term of a sample that lacks it is computed from its other
        views.

        Parameters
        ----------
        pipeline : estimator
            Fitted with all kernels.
        held_out : ndarray of int
            Row numbers of the samples held out.
        present : ndarray of bool of shape (n, P)
            The views that each of these samples has.
        score : float
            The score without a permutation.
        random : RandomState
        """
        model, X = behind_pipeline(pipeline, _safe_indexing(self.X, held_out))
        terms = model.contributions(X)
        if terms.ndim == 2:
            terms = terms[:, :, np.newaxis]
        outputs = terms.sum(axis=1) + model.intercept_

        def loss(m: int) -> float:
            """Return the loss of the score for one permutation of kernel m."""
            having = np.flatnonzero(present[:, m])
            shuffled = outputs.copy()
            shuffled[having] += terms[random.permutation(having), m] - terms[having, m]
            return score - self._score(_with_outputs(model, shuffled), held_out, X)

        return [[loss(m) for _ in range(self.n_repeats)] for m in range(terms.shape[1])]


def _with_outputs(model: Estimator, outputs: Array) -> HeldOutPredictor:
    """Return a predictor with these outputs, and with what else scorers read of the model."""
    rule = getattr(model, "path_rule", None)
    score = r_squared if rule is None else rule.score
    if is_classifier(model):
        score = accuracy
    predictor = HeldOutPredictor(
        get_tags(model).estimator_type,
        model.decide(outputs),
        single(outputs),
        getattr(model, "classes_", None),
        score,
        getattr(model, "_probabilities", None),
    )
    if not hasattr(model, "curves_"):
        return predictor
    from kernelmosaic.survival.task import HeldOutTimes

    return HeldOutTimes.of(predictor, lambda: model.curves_)


def _present(estimator: Estimator, specs: list[KernelSpec], X: MatrixLike) -> Mask:
    """Return whether samples have the view of each kernel, of shape (n, P).

    X has the samples before the first step of the fitted pipeline.
    """
    model, X = behind_pipeline(estimator, X)
    present = None
    if model.missing is not None and model.approximation is None and may_lack(specs):
        present = present_views(specs, model.read(X))
    if present is None:
        return np.ones((_num_samples(X), len(specs)), dtype=bool)
    return present


def _fixed_views(model: Estimator) -> dict[int, float]:
    """Return the weights of the kernels whose weights are fixed, by the number of the kernel."""
    parameter = getattr(model, "fixed_weights", None)
    if not parameter:
        return {}
    weights = read_fixed(parameter, model.kernel_names_, model.view_names_)
    return {m: float(weight) for m, weight in enumerate(weights) if not np.isnan(weight)}


def _is_unused(model: Estimator, m: int) -> bool:
    """Whether kernel m has no weight at the optimum.

    The optimum without it is the same then.
    """
    if type(model) not in (MKLClassifier, MKLRegressor, MKLSurvival):
        return False
    # These heuristics, and weights that are given, are no optimum.
    if model.solver in ("alignment", "easymkl") or model.weights is not None:
        return False
    return not np.any(np.atleast_2d(model.weights_)[:, m])


#: A function of a column j, row numbers, and row numbers of other samples. It returns the changes
#: of the outputs, of shape (n_rows, n_outputs), when the rows get column j of the other samples.
Change = Callable[[int, Indices, Indices], Array]
#: The term of one column in each statistic of a pair of samples.
_TERMS: dict[str, Callable[[Any, Any], Any]] = {
    "products": lambda x, z: x * z,
    "squared_distances": lambda x, z: (x - z) ** 2,
    "manhattan_distances": lambda x, z: abs(x - z),
}


@dataclass(frozen=True, eq=False)
class FeatureImportance:
    """The result of :func:`feature_importance`.

    Attributes
    ----------
    feature_names : list of str
        The names of the columns that the estimator reads.
    views : dict
        The column numbers of each view.
    importances : ndarray of shape (columns,)
        The change of the decision; zero for a column that no kernel with a weight reads.
    errors : ndarray of shape (columns,)
        Standard errors of the importances as means over the samples. They hold for this model, not
        for one that is fitted to other samples.
    """

    feature_names: list[str]
    views: dict[str, list[int]]
    importances: Array
    errors: Array

    def largest(self, view: str, n: int = 10) -> list[int]:
        """Return the numbers of the most important columns of a view, the most important first."""
        columns = np.asarray(self.views[view])
        return list(columns[np.argsort(-self.importances[columns], kind="stable")[:n]].tolist())

    def top(self, view: str, n: int = 10) -> list[tuple[str, float]]:
        """Return the most important columns of a view with their importances, the largest first."""
        return [(self.feature_names[j], float(self.importances[j])) for j in self.largest(view, n)]

    def to_frame(self) -> Any:
        """Return a data frame: one row per view and column.

        The most important columns of each view come first.
        """
        rows = []
        for view, columns in self.views.items():
            for name, importance in self.top(view, len(columns)):
                rows.append([name, view, importance])
        return frame(("column", "view", "importance"), rows)

    def __str__(self) -> str:
        rows = [
            [view, self.feature_names[j], self.importances[j], self.errors[j]]
            for view in self.views
            for j in self.largest(view)
        ]
        return text_table(("view", "column", "importance", "±"), rows)


def feature_importance(
    estimator: Estimator, X: MatrixLike, *, n_repeats: int = 5, random_state: Seed = None
) -> FeatureImportance:
    """Return how much the decisions of a fitted model depend on each column.

    A column is permuted within its view.

    The importance of a column is √(½ · mean (f(x) − f(x′))²), where x′ is x with the column of
    another sample, drawn among those that have the view. For a linear kernel that is |w_j| times
    the standard deviation of the column, up to the draw of the permutations; for other kernels it
    is the corresponding standard deviation of a nonlinear function. It measures how much the model
    relies on a column: of two columns with the same information, each may have half. With several
    outputs the squares are averaged over them. The replacement of a view that a sample lacks stays
    as it is. Compare columns within a view: one of four columns
    changes the kernels of its view more than one of 500 does, whether or not it has to do with the
    targets.

    Kernels that are functions of distances or products are not computed anew for every column: one
    column changes the statistic of all pairs by a term of its own.

    Parameters
    ----------
    estimator : estimator
        Fitted; of this package, or a pipeline that ends in one. The columns are those that its last
        step reads.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        Samples. Held-out samples show which columns the model relies on for new samples.
    n_repeats : int, default=5
        How often every column is permuted.
    random_state : int, RandomState or None, default=None
        Draws the permutations.

    Returns
    -------
    FeatureImportance

    See Also
    --------
    kernel_importance : The loss of a score without a whole kernel.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.inspection import feature_importance
    >>> from kernelmosaic.kernels import Gaussian
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> views = [("sepal", Gaussian(), [0, 1]), ("petal", Gaussian(), [2, 3])]
    >>> model = MKLClassifier(views).fit(X[50:], y[50:])
    >>> [name for name, _ in feature_importance(model, X[50:], random_state=0).top("petal")]
    ['petal length (cm)', 'petal width (cm)']
    """
    check_count("n_repeats", n_repeats)
    last_step(estimator)
    check_is_fitted(estimator)
    random = check_random_state(random_state)

    # 1. The samples as the kernels read them, and a function for the changes of the outputs.
    model, X = behind_pipeline(estimator, X)
    sums = getattr(model.function_.expansion, "sums", None)
    kernels_with_gaps = sums.missing.kernel_set.fitted if isinstance(sums, PartialSums) else ()
    V = filled(model.read(X), kernels_with_gaps)
    if _is_sum_over_support(model, V[:2]):
        change = _change_by_kernels(model, V)
    else:
        change = _change_by_outputs(model, V)

    # 2. Mean squares of the changes, column by column.
    n, n_columns = V.shape
    names, views = _columns_of(model, estimator)
    orders = [random.permutation(n) for _ in range(n_repeats)]
    importances = np.zeros(n_columns)
    errors = np.zeros(n_columns)
    for j in sorted({j for columns in views.values() for j in columns}):
        is_present = ~is_missing(V[:, [j]])[:, 0]
        rows = np.flatnonzero(is_present)
        squares = np.zeros(n)
        for order in orders:
            # Without the samples that lack the column, the order is a permutation of the others.
            other_rows = order[is_present[order]]
            changes = change(j, rows, other_rows)
            squares[rows] += 0.5 / n_repeats * np.square(changes).mean(axis=1)
        importances[j] = np.sqrt(squares.mean())
        if importances[j] > 0 and n > 1:
            # The delta method: the error of a root is that of its argument times its derivative.
            errors[j] = squares.std(ddof=1) / n**0.5 / (2.0 * importances[j])
    return FeatureImportance(names, views, importances, errors)


def _columns_of(model: Estimator, estimator: Estimator) -> tuple[list[str], dict[str, list[int]]]:
    """Return the names of the columns that a model reads, and the columns of each view.

    Only views with a kernel that has a weight are included.

    Parameters
    ----------
    model : estimator
        The last step of the estimator, fitted.
    estimator : estimator
        The model itself, or a pipeline that ends in it.
    """
    names: Any = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    if estimator is not model and not hasattr(model, "feature_names_in_"):
        # A step of the pipeline may not name its columns.
        with suppress(AttributeError, ValueError):
            names = estimator[:-1].get_feature_names_out()
    expansion = model.function_.expansion
    kernels = getattr(expansion.kernel_set, "kernel_set", expansion.kernel_set).fitted
    # The keys of the inner dicts serve as ordered sets.
    views: dict[str, dict[int, None]] = defaultdict(dict)
    for m, kernel in zip(expansion.kept, kernels, strict=True):
        columns = _columns_read(kernel, len(names))
        views[model.view_names_[m]].update(dict.fromkeys(columns))
    columns_of_views = {name: list(columns) for name, columns in views.items()}
    return [str(name) for name in names], columns_of_views


def _columns_read(kernel: FittedKernel, n_columns: int) -> list[int]:
    """Return the numbers of the columns that a kernel reads, of `n_columns`."""
    if kernel.columns is None:
        return list(range(n_columns))
    columns: list[int] = kernel.columns.tolist()
    return columns


def _dense(view: Any) -> AnyArray:
    """Return samples as an array, those of a sparse array too."""
    if sparse.issparse(view):
        view = view.toarray()
    return np.asarray(view)


def _is_sum_over_support(model: Estimator, V: AnyArray) -> bool:
    """Whether outputs are sums over support samples, kernel by kernel, and a constant.

    A few samples V are computed in both ways.
    """
    expansion = model.function_.expansion
    if type(expansion.sums) not in (SupportSums, PartialSums):
        return False
    values = expansion.values(V)
    outputs = model.function_.outputs(V)
    return values.shape == outputs.shape and np.allclose(values + model.intercept_, outputs)


def _change_by_outputs(model: Estimator, V: AnyArray) -> Change:
    """Return a `Change` that computes the outputs of changed samples anew."""
    original_outputs = model.function_.outputs(V)

    def change(j: int, rows: Indices, other_rows: Indices) -> Array:
        changed = V.copy()
        changed[rows, j] = V[other_rows, j]
        return np.asarray(model.function_.outputs(changed)[rows] - original_outputs[rows])

    return change


class _KernelTerm(NamedTuple):
    """The term of one kernel in the outputs of the samples.

    Attributes
    ----------
    position_of_column : dict from int to int
        The positions of columns in the view of the kernel; other columns are not read.
    block : callable
        As `_block_of` returns it.
    beta : ndarray of shape (n_support, n_outputs)
        Coefficients of the support samples, times the weight of the kernel.
    outputs : ndarray of shape (n, n_outputs)
        The term for the samples as they are.
    factor : ndarray of shape (n,)
        The factor of the term for each sample, which depends on the views that the sample lacks.
    """

    position_of_column: dict[int, int]
    block: Callable[..., AnyArray]
    beta: Array
    outputs: Array
    factor: Array


def _change_by_kernels(model: Estimator, V: AnyArray) -> Change:
    """Return a `Change` that computes only the kernels that read the column."""
    expansion = model.function_.expansion
    sums = expansion.sums
    present = sums.missing.present_in(V) if isinstance(sums, PartialSums) else None
    if present is None:
        factors = np.ones((len(V), expansion.n_kernels))
    else:
        factors = sums.missing.factors(present)
    terms = []
    statistics: dict[Any, AnyArray] = {}
    kernels = zip(sums.kernel_set.fitted, sums.views_of(V), sums.samples, strict=True)
    for k, (kernel, view, support) in enumerate(kernels):
        block = _block_of(kernel, _dense(view), support, statistics)
        beta = sums.of_kernel(k).T * expansion.eta[:, k]
        columns = _columns_read(kernel, V.shape[1])
        position_of_column = {j: position for position, j in enumerate(columns)}
        outputs = block(slice(None)) @ beta
        factor = factors[:, expansion.kept[k]]
        terms.append(_KernelTerm(position_of_column, block, beta, outputs, factor))

    def change(j: int, rows: Indices, other_rows: Indices) -> Array:
        changes = np.zeros((len(rows), len(expansion.eta)))
        for term in terms:
            if j in term.position_of_column:
                position = term.position_of_column[j]
                outputs = term.block(rows, position, other_rows) @ term.beta
                changes += (outputs - term.outputs[rows]) * term.factor[rows, np.newaxis]
        return changes

    return change


def _block_of(
    fitted: FittedKernel, view: AnyArray, support: Any, statistics: dict[Any, AnyArray]
) -> Callable[..., AnyArray]:
    """Return a function that computes blocks of a kernel between samples and support samples.

    ``block(rows)`` is the block of these rows. In ``block(rows, position, other_rows)`` the samples
    have, in the column at this position in the view, the values of the other rows.

    Parameters
    ----------
    fitted : FittedKernel
    view : ndarray
        The samples as the kernel reads them.
    support : ndarray or sparse array
        The support samples as the kernel reads them.
    statistics : dict
        Distances or products of all pairs, computed once for all kernels that are functions of
        them; changed.
    """
    normalization = fitted.normalization
    kernel = fitted.kernel.inner
    support_scale = normalization.row_scale(support)
    if sparse.issparse(support):
        support = support.toarray()
    has_statistic = isinstance(kernel, StatisticKernel)
    if has_statistic:
        key = (kernel.statistic, fitted.view, fitted.kernel.preparation)
        if key not in statistics:
            statistics[key] = pairwise_statistic(kernel.statistic, view, support)
        statistic = statistics[key]
        term = _TERMS[kernel.statistic]

    def block(rows: Any, position: int | None = None, other_rows: Any = None) -> AnyArray:
        samples = view[rows]
        if position is not None and view.ndim == 1:
            # Texts, graphs and the like are one column.
            samples = view[other_rows]
        elif position is not None and not (has_statistic and support_scale is None):
            # The scale of a normalised kernel, and a kernel that is no function of a statistic,
            # are computed from the changed samples.
            samples = samples.copy()
            samples[:, position] = view[other_rows, position]
        scale = None if support_scale is None else normalization.row_scale(samples)
        if not has_statistic:
            return np.asarray(normalization.block(kernel(samples, support), scale, support_scale))
        S = statistic[rows]
        if position is not None:
            # One column changes the statistic of a pair by its own term.
            z = support[:, position]
            x_new = view[other_rows, position, None]
            x_old = view[rows, position, None]
            S = S + term(x_new, z) - term(x_old, z)
            if kernel.statistic != "products":
                # Rounding may leave distances below zero.
                S = np.maximum(S, 0.0)
        K = np.array(kernel.from_statistic(S))
        return np.asarray(normalization.block(K, scale, support_scale))

    return block
