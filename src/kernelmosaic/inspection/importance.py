"""What a score loses without a kernel, and by how much columns change decisions inside each
view."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

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
    """What :func:`kernel_importance` returns.

    Attributes
    ----------
    kernel_names : list of str
        Of the P kernels.
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
        columns = [self.drop_mean, self.drop_std, self.permutation_mean, self.permutation_std]
        if self.gains is not None:
            columns += [self.gains.mean(axis=0), self.gains.std(axis=0)]
        return [
            [name, *(column[m] for column in columns)] for m, name in enumerate(self.kernel_names)
        ]

    def to_frame(self) -> Any:
        """Return a data frame: one row per kernel, means over the folds and standard deviations."""
        heads = [
            f"{what}_{of}" for what in ("drop", "permutation", "gain") for of in ("mean", "std")
        ]
        return frame(["kernel", *heads[: 4 if self.gains is None else 6]], self._rows())

    def __str__(self) -> str:
        heads = ["kernel", "dropped", "±", "permuted", "±"]
        return text_table(heads if self.gains is None else [*heads, "added", "±"], self._rows())


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
    kernels read the right one: how much this model relies on the kernel. What stands in for the
    view of a sample that lacks it stays as it is. Of two kernels with the same information,
    dropping either loses nothing, and permuting either may lose.

    *Added*, with a `base`, is the difference of the scores with the base and the kernel, and with
    the base alone: what a view of omics adds to the clinical variables, without the other views.

    A kernel whose learned weight is zero is not fitted without, if samples have every view: the
    optimum stays what it is. A sample whose only view a kernel reads is not among those that the
    model without it is fitted to; where it is held out, the output of that model is its constant,
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
    >>> found = kernel_importance(model, X, y, cv=3, random_state=0)
    >>> bool(found.drop_mean[1] > 0.1 > found.drop_mean[0])
    True
    """
    # Loads a good part of scikit-learn.
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
    fold = _Fold(estimator, X, target, weight, scorer, int(n_repeats), base)
    found = Parallel(n_jobs=n_jobs)(
        delayed(fold)(*rows, int(seed)) for rows, seed in zip(folds, seeds, strict=True)
    )
    names = found[0][0]
    scores, drops, permutations, gains = map(np.array, list(zip(*found, strict=True))[1:])
    return KernelImportance(names, scores, drops, permutations, gains if fold.base else None)


@dataclass(frozen=True)
class _Fold:
    """What is done in one fold; the attributes are what all have in common."""

    estimator: Estimator
    X: MatrixLike
    y: AnyArray
    weight: Array | None
    scorer: Any
    n_repeats: int
    base: tuple[str, ...] = ()

    def __call__(self, train: Indices, held: Indices, seed: int) -> tuple[Any, ...]:
        """Return the names of the kernels, the score, what it loses without each, by both ways, and
        gains of a base."""
        # Warnings of scales are given once; gaps are those of the estimator's own tolerance.
        quiet = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)
        with SharedKernels(memory_budget=1) as shared, quiet:
            pipeline = self._fit(self.estimator, train)
            model, data = last_step(pipeline), shared.store.training_sets[-1]
            specs = lay_specs(model.read_kernels(data.table), data.table)
            if len(model.kernel_names_) < 2:
                raise ValueError(
                    f"kernels: {model.kernel_names_[0]!r} is the only one, which cannot be left"
                    " out; give at least two."
                )
            score = self._score(pipeline, held)
            warnings.simplefilter("ignore")
            inside, outside = (
                _present(pipeline, specs, _safe_indexing(self.X, rows)) for rows in (train, held)
            )
            fixed, everyone = _fixed_views(model), range(len(specs))

            def score_of(
                kept: list[int], start: Array | None = None, data: TrainingSet | None = None
            ) -> float:
                left, known = (np.asarray(mask[:, kept].any(axis=1)) for mask in (inside, outside))
                less = self._fit(
                    self._keeping(specs, kept, fixed),
                    train[left],
                    start,
                    data if left.all() else None,
                )
                return self._score_known(less, held, known)

            drops = []
            for m in everyone:
                # What stands in for a view that samples lack depends on all kernels, also on those
                # without a weight.
                if _is_unused(model, m) and inside.all() and outside.all():
                    drops.append(0.0)
                    continue
                kept = [j for j in everyone if j != m]
                # The weights of the other kernels to start from, unless a class has given them
                # none.
                rest = np.delete(model.weights_, m, axis=-1)
                start = rest if np.all(rest.sum(axis=-1) > 0) else None
                drops.append(score - score_of(kept, start, data.without(m)))
        permuted = self._permute(pipeline, held, outside, score, np.random.RandomState(seed))
        return (
            model.kernel_names_,
            score,
            drops,
            permuted,
            self._gains(model.kernel_names_, score_of),
        )

    def _gains(self, names: list[str], score_of: Callable[[list[int]], float]) -> list[float]:
        """Return what the score of the base gains by each kernel."""
        unknown = [name for name in self.base if name not in names]
        if unknown:
            raise ValueError(
                f"base: no kernel is called {unknown[0]!r}; the kernels are {', '.join(names)}."
            )
        if not self.base:
            return []
        base = [m for m, name in enumerate(names) if name in self.base]
        with warnings.catch_warnings(action="ignore"):
            alone = score_of(base)
            return [
                0.0 if m in base else score_of(sorted([*base, m])) - alone
                for m in range(len(names))
            ]

    def _fit(
        self,
        estimator: Estimator,
        rows: Indices,
        start: Array | None = None,
        data: TrainingSet | None = None,
    ) -> Estimator:
        weight = None if self.weight is None else self.weight[rows]
        return fit(
            clone(estimator), _safe_indexing(self.X, rows), self.y[rows], weight, start, data
        )

    def _score(self, estimator: Estimator, held: Indices, X: MatrixLike = None) -> float:
        weight = {} if self.weight is None else {"sample_weight": self.weight[held]}
        return float(
            self.scorer(
                estimator, _safe_indexing(self.X, held) if X is None else X, self.y[held], **weight
            )
        )

    def _score_known(self, estimator: Estimator, held: Indices, known: Mask) -> float:
        """Return the score where some samples have no view that the estimator reads: their output
        is its constant."""
        if known.all():
            return self._score(estimator, held)
        model, X = behind_pipeline(estimator, _safe_indexing(self.X, held))
        outputs = np.tile(model.intercept_, (len(held), 1))
        if known.any():
            outputs[known] = model.function_.outputs(
                model.read(_safe_indexing(X, np.flatnonzero(known)))
            )
        return self._score(_with_outputs(model, outputs), held, X)

    def _keeping(
        self, specs: list[KernelSpec], kept: list[int], fixed: dict[int, float]
    ) -> Estimator:
        """Return the estimator with some of its kernels, and with the parameters of these."""
        estimator = clone(self.estimator)
        model = last_step(estimator)
        model.set_params(kernels=[(specs[j].name, specs[j].kernel, specs[j].columns) for j in kept])
        for name in ("penalties", "weights", "rank"):  # which may have one entry per kernel
            value = getattr(model, name, None)
            if value is not None and np.ndim(value) == 1:
                model.set_params(**{name: np.asarray(value)[kept]})
        if fixed and all(j in fixed for j in kept):
            model.set_params(fixed_weights=None, weights=[fixed[j] for j in kept])
        elif fixed:
            model.set_params(fixed_weights={specs[j].name: fixed[j] for j in kept if j in fixed})
        return estimator

    def _permute(
        self,
        pipeline: Any,
        held: Indices,
        present: Mask,
        score: float,
        random: np.random.RandomState,
    ) -> list[list[float]]:
        """Return what the score loses when a kernel reads other samples: its share of the output is
        then theirs.

        Only samples that have a view exchange it: the share of a sample that lacks it is computed
        from its other views.
        """
        model, X = behind_pipeline(pipeline, _safe_indexing(self.X, held))
        terms = model.contributions(X)
        terms = terms[:, :, np.newaxis] if terms.ndim == 2 else terms
        outputs = terms.sum(axis=1) + model.intercept_

        def loss(m: int) -> float:
            having = np.flatnonzero(present[:, m])
            shuffled = outputs.copy()
            shuffled[having] += terms[random.permutation(having), m] - terms[having, m]
            return score - self._score(_with_outputs(model, shuffled), held, X)

        return [[loss(m) for _ in range(self.n_repeats)] for m in range(terms.shape[1])]


def _with_outputs(model: Estimator, outputs: Array) -> HeldOutPredictor:
    """Return what scorers read of a model whose outputs are given."""
    rule = getattr(model, "path_rule", None)
    score = accuracy if is_classifier(model) else r_squared if rule is None else rule.score
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
    """Return which views samples have, of shape (n, P), after the steps of a fitted pipeline."""
    model, X = behind_pipeline(estimator, X)
    present = None
    if model.missing is not None and model.approximation is None and may_lack(specs):
        present = present_views(specs, model.read(X))
    return np.ones((_num_samples(X), len(specs)), dtype=bool) if present is None else present


def _fixed_views(model: Estimator) -> dict[int, float]:
    """Return the weights of the kernels that do not compete, by their numbers."""
    given = getattr(model, "fixed_weights", None)
    fixed = read_fixed(given, model.kernel_names_, model.view_names_) if given else np.empty(0)
    return {m: float(weight) for m, weight in enumerate(fixed) if not np.isnan(weight)}


def _is_unused(model: Estimator, m: int) -> bool:
    """Whether a kernel has no weight at the optimum, which then is the optimum without it."""
    heuristics = ("alignment", "easymkl")  # whose weights are those of no optimum
    if type(model) not in (MKLClassifier, MKLRegressor, MKLSurvival) or model.solver in heuristics:
        return False
    return model.weights is None and not np.any(np.atleast_2d(model.weights_)[:, m])


#: Called with a column, rows, and the rows whose column they get; returns the changes, of shape
#: (rows, outputs).
Change = Callable[[int, Indices, Indices], Array]
#: What one column adds to each statistic.
_TERMS: dict[str, Callable[[Any, Any], Any]] = {
    "products": lambda x, z: x * z,
    "squared_distances": lambda x, z: (x - z) ** 2,
    "manhattan_distances": lambda x, z: abs(x - z),
}


@dataclass(frozen=True, eq=False)
class FeatureImportance:
    """What :func:`feature_importance` returns.

    Attributes
    ----------
    feature_names : list of str
        Of the columns that the estimator reads.
    views : dict
        The column numbers of each view.
    importances : ndarray of shape (columns,)
        By how much the decision changes; zero for a column that no kernel with a weight reads.
    errors : ndarray of shape (columns,)
        Standard errors of the importances, as means over the samples: of this model, not of one
        fitted to others.
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
        """Return a data frame: one row per view and column that it reads, the most important first
        in each view."""
        rows = [
            [name, view, value]
            for view, own in self.views.items()
            for name, value in self.top(view, len(own))
        ]
        return frame(("column", "view", "importance"), rows)

    def __str__(self) -> str:
        found = [(view, j) for view in self.views for j in self.largest(view)]
        rows = [
            [view, self.feature_names[j], self.importances[j], self.errors[j]] for view, j in found
        ]
        return text_table(("view", "column", "importance", "±"), rows)


def feature_importance(
    estimator: Estimator, X: MatrixLike, *, n_repeats: int = 5, random_state: Seed = None
) -> FeatureImportance:
    """Return how much the decisions of a fitted model depend on each column, by permuting it within
    its view.

    The importance of a column is √(½ · mean (f(x) − f(x′))²), where x′ is x with the column of
    another sample, drawn among those that have the view. For a linear kernel that is |w_j| times
    the standard deviation of the column, up to the draw of the permutations; for others it is the
    same of their nonlinear functions. It measures what the model relies on: of two columns with the
    same information, each may have half. Of several outputs it is the mean square. The replacement
    of a view that a sample lacks stays as it is. Compare columns within a view: one of four columns
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
        Samples; those held out show what the model relies on for new ones.
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
    model, read = behind_pipeline(estimator, X)
    sums = getattr(model.function_.expansion, "sums", None)
    V = filled(
        model.read(read), sums.missing.kernel_set.fitted if isinstance(sums, PartialSums) else ()
    )
    names, views = _columns_of(model, estimator)
    change = (
        _change_by_kernels(model, V) if _is_plain(model, V[:2]) else _change_by_outputs(model, V)
    )
    orders = [random.permutation(len(V)) for _ in range(n_repeats)]
    importances, errors, n = np.zeros(V.shape[1]), np.zeros(V.shape[1]), len(V)
    for j in sorted({column for own in views.values() for column in own}):
        there = ~is_missing(V[:, [j]])[:, 0]
        rows, squares = np.flatnonzero(there), np.zeros(n)
        for order in orders:
            squares[rows] += (
                0.5 / n_repeats * np.square(change(j, rows, order[there[order]])).mean(axis=1)
            )
        importances[j] = np.sqrt(squares.mean())
        if importances[j] > 0 and n > 1:  # by the slope of the root
            errors[j] = squares.std(ddof=1) / n**0.5 / (2.0 * importances[j])
    return FeatureImportance(names, views, importances, errors)


def _columns_of(model: Estimator, estimator: Estimator) -> tuple[list[str], dict[str, list[int]]]:
    """Return the names of the columns that a fitted model reads, and those of each view with a
    weight."""
    names: Any = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    if estimator is not model and not hasattr(model, "feature_names_in_"):
        with suppress(AttributeError, ValueError):  # of a step without names
            names = estimator[:-1].get_feature_names_out()
    expansion = model.function_.expansion
    kernels = getattr(expansion.kernel_set, "kernel_set", expansion.kernel_set).fitted
    views: dict[str, dict[int, None]] = defaultdict(dict)
    for m, one in zip(expansion.kept, kernels, strict=True):
        columns = range(len(names)) if one.columns is None else one.columns.tolist()
        views[model.view_names_[m]].update(dict.fromkeys(columns))
    return [str(name) for name in names], {name: list(own) for name, own in views.items()}


def _is_plain(model: Estimator, V: AnyArray) -> bool:
    """Whether outputs are sums over support samples, kernel by kernel, and a constant; as a few
    samples show."""
    expansion = model.function_.expansion
    if type(expansion.sums) not in (SupportSums, PartialSums):
        return False
    sums, found = expansion.values(V), model.function_.outputs(V)
    return sums.shape == found.shape and np.allclose(sums + model.intercept_, found)


def _change_by_outputs(model: Estimator, V: AnyArray) -> Change:
    """Return what computes by how much outputs change if rows have the column of others, by
    computing them anew."""
    before = model.function_.outputs(V)

    def change(j: int, rows: Indices, others: Indices) -> Array:
        changed = V.copy()
        changed[rows, j] = V[others, j]
        return np.asarray(model.function_.outputs(changed)[rows] - before[rows])

    return change


def _change_by_kernels(model: Estimator, V: AnyArray) -> Change:
    """Return the same, of the kernels that read the column alone."""
    expansion = model.function_.expansion
    sums, kernel_set = expansion.sums, expansion.sums.kernel_set
    present = sums.missing.present_in(V) if isinstance(sums, PartialSums) else None
    factors = (
        np.ones((len(V), expansion.n_kernels)) if present is None else sums.missing.factors(present)
    )
    parts = []
    shared: dict[Any, AnyArray] = {}
    for k, (one, view, support) in enumerate(
        zip(kernel_set.fitted, sums.views_of(V), sums.samples, strict=True)
    ):
        columns = range(V.shape[1]) if one.columns is None else one.columns.tolist()
        places = {j: place for place, j in enumerate(columns)}
        block = _block_of(
            one, view.toarray() if sparse.issparse(view) else np.asarray(view), support, shared
        )
        beta = sums.of_kernel(k).T * expansion.eta[:, k]
        parts.append(
            (places, block, beta, block(slice(None)) @ beta, factors[:, expansion.kept[k]])
        )

    def change(j: int, rows: Indices, others: Indices) -> Array:
        out = np.zeros((len(rows), len(expansion.eta)))
        for places, block, beta, before, factor in parts:
            if j in places:
                after = block(rows, places[j], others) @ beta
                out += (after - before[rows]) * factor[rows, np.newaxis]
        return out

    return change


def _block_of(
    one: FittedKernel, view: AnyArray, support: Any, shared: dict[Any, AnyArray]
) -> Callable[..., AnyArray]:
    """Return what computes the block of a kernel between some samples of a view and support
    samples.

    It is called with rows; with a place and other rows as well, these samples have the column there
    of the others. Statistics are stored in `shared`: they are computed once for the kernels that
    are functions of them.
    """
    rule, kernel, support_scale = (
        one.normalization,
        one.kernel.inner,
        one.normalization.row_scale(support),
    )
    support = support.toarray() if sparse.issparse(support) else support
    is_plain = isinstance(kernel, StatisticKernel)
    if is_plain:
        key = kernel.statistic, one.view, one.kernel.preparation
        if key not in shared:
            shared[key] = pairwise_statistic(kernel.statistic, view, support)
        statistic, terms = shared[key], _TERMS[kernel.statistic]

    def block(rows: Any, place: int | None = None, others: Any = None) -> AnyArray:
        changed = view[rows]
        if place is not None and view.ndim == 1:  # texts, graphs and the like, which are one column
            changed = view[others]
        elif place is not None and not (is_plain and support_scale is None):
            changed = changed.copy()
            changed[:, place] = view[others, place]
        scale = None if support_scale is None else rule.row_scale(changed)
        if not is_plain:
            return np.asarray(rule.block(kernel(changed, support), scale, support_scale))
        S = statistic[rows]
        if place is not None:
            z = support[:, place]
            S = S + terms(view[others, place, None], z) - terms(view[rows, place, None], z)
            S = S if kernel.statistic == "products" else np.maximum(S, 0.0)
        return np.asarray(rule.block(np.array(kernel.from_statistic(S)), scale, support_scale))

    return block
