"""What a score loses without a kernel: fitted again without it, or shown the view of another sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples

from kernelmosaic._checks import check_count
from kernelmosaic._typing import AnyArray, Estimator, MatrixLike, SampleWeight, Seed, TargetLike
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.engine.search import HeldOutPredictor
from kernelmosaic.engine.tasks import accuracy, r_squared, single
from kernelmosaic.engine.training_set import SharedKernels, TrainingSet, may_lack
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.estimators.survival import MKLSurvival
from kernelmosaic.gram.missing import present_views
from kernelmosaic.inspection._refits import Rows, fit, frame, last_step, prepare, text_table
from kernelmosaic.kernels.views import KernelSpec, lay_specs
from kernelmosaic.learning.norms import read_fixed
from kernelmosaic.metrics import read_times

Array = NDArray[np.float64]


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
        What the score loses when the model is fitted without the kernel; negative where it gains.
    permutations : ndarray of shape (folds, P, n_repeats)
        What it loses when the kernel is shown the view of another sample.
    gains : ndarray of shape (folds, P) or None
        With `base`, what the score of the kernels of the base alone gains by the kernel; zero for those of the base.
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
        return [[name, *(column[m] for column in columns)] for m, name in enumerate(self.kernel_names)]

    def to_frame(self) -> Any:
        """Return a data frame: one row per kernel, means over the folds and standard deviations."""
        heads = [f"{what}_{of}" for what in ("drop", "permutation", "gain") for of in ("mean", "std")]
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

    In every fold the model is fitted to the other samples, with all kernels and with all but one. *Dropped* is the
    difference of their scores: the information of the kernel that the others do not have. *Permuted* is the loss of
    the score of the model with all kernels when the kernel reads the view of another sample, drawn among those held
    out, while the other kernels read the right one: how much this model relies on the kernel. Of two kernels with the
    same information, dropping either loses nothing, and permuting either may lose.

    *Added*, with a `base`, is the difference of the scores with the base and the kernel, and with the base alone: what
    a view of omics adds to the clinical variables, without the other views.

    A kernel whose learned weight is zero is not fitted without, if samples have every view: the optimum stays what it
    is. A sample whose only view a kernel reads is not among those that the model without it is fitted to; where it is
    held out, the output of that model is its constant, `intercept_`.

    Parameters
    ----------
    estimator : estimator
        Of this package, with targets and at least two kernels, or a pipeline that ends in one; not changed.
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
    scorer = check_scoring(estimator, scoring=scoring)
    strata = target[:, 0] if isinstance(model, MKLSurvival) else target
    folds = list(check_cv(cv, strata, classifier=is_classifier(model)).split(X, strata))
    seeds = random.randint(np.iinfo(np.int32).max, size=len(folds))
    base = (base,) if isinstance(base, str) else tuple(base)
    fold = _Fold(estimator, X, target, weight, scorer, int(n_repeats), base)
    found = Parallel(n_jobs=n_jobs)(delayed(fold)(*rows, int(seed)) for rows, seed in zip(folds, seeds, strict=True))
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

    def __call__(self, train: Rows, held: Rows, seed: int) -> tuple[Any, ...]:
        """Return the names of the kernels, the score, what it loses without each, by both ways, and gains of a base."""
        with SharedKernels(memory_budget=1) as shared, warnings.catch_warnings():
            # Warnings of scales are given once; gaps are those of the estimator's own tolerance.
            warnings.simplefilter("ignore", ConvergenceWarning)
            pipeline = self._fit(self.estimator, train)
            model, data = last_step(pipeline), shared.store.training_sets[-1]
            specs = lay_specs(model.read_kernels(), data.table)
            if len(model.kernel_names_) < 2:
                raise ValueError(
                    f"kernels: {model.kernel_names_[0]!r} is the only one, which cannot be left out; give at least two."
                )
            score = self._score(pipeline, held)
            warnings.simplefilter("ignore")
            inside, outside = (_present(pipeline, specs, _safe_indexing(self.X, rows)) for rows in (train, held))
            fixed, everyone = _fixed_views(model), range(len(specs))

            def score_of(kept: list[int], start: Array | None = None, data: TrainingSet | None = None) -> float:
                left, known = (np.asarray(mask[:, kept].any(axis=1)) for mask in (inside, outside))
                less = self._fit(self._keeping(specs, kept, fixed), train[left], start, data if left.all() else None)
                return self._score_known(less, held, known)

            drops = []
            for m in everyone:
                # What stands in for a view that samples lack depends on all kernels, also on those without a weight.
                if _is_unused(model, m) and inside.all() and outside.all():
                    drops.append(0.0)
                    continue
                kept = [j for j in everyone if j != m]
                drops.append(score - score_of(kept, _start_without(model, m), data.without(m)))
        permuted = self._permute(pipeline, held, score, np.random.RandomState(seed))
        return model.kernel_names_, score, drops, permuted, self._gains(model.kernel_names_, score_of)

    def _gains(self, names: list[str], score_of: Callable[[list[int]], float]) -> list[float]:
        """Return what the score of the base gains by each kernel."""
        unknown = [name for name in self.base if name not in names]
        if unknown:
            raise ValueError(f"base: there is no kernel {unknown[0]!r}; the kernels are {', '.join(names)}.")
        if not self.base:
            return []
        base = [m for m, name in enumerate(names) if name in self.base]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = score_of(base)
            return [0.0 if m in base else score_of(sorted([*base, m])) - alone for m in range(len(names))]

    def _fit(
        self, estimator: Estimator, rows: Rows, start: Array | None = None, data: TrainingSet | None = None
    ) -> Estimator:
        weight = None if self.weight is None else self.weight[rows]
        return fit(clone(estimator), _safe_indexing(self.X, rows), self.y[rows], weight, start, data)

    def _score(self, estimator: Estimator, held: Rows, X: MatrixLike = None) -> float:
        weight = {} if self.weight is None else {"sample_weight": self.weight[held]}
        return float(self.scorer(estimator, _safe_indexing(self.X, held) if X is None else X, self.y[held], **weight))

    def _score_known(self, estimator: Estimator, held: Rows, known: NDArray[np.bool_]) -> float:
        """Return the score where some samples have no view that the estimator reads: their output is its constant."""
        if known.all():
            return self._score(estimator, held)
        model, X = behind_pipeline(estimator, _safe_indexing(self.X, held))
        outputs = np.tile(model.intercept_, (len(held), 1))
        if known.any():
            outputs[known] = model.function_.outputs(model.read(_safe_indexing(X, np.flatnonzero(known))))
        return self._score(_with_outputs(model, outputs), held, X)

    def _keeping(self, specs: list[KernelSpec], kept: list[int], fixed: dict[int, float]) -> Estimator:
        """Return the estimator with some of its kernels, and with what parameters say of these."""
        estimator = clone(self.estimator)
        model = last_step(estimator)
        own = [specs[j] for j in kept]
        model.set_params(
            kernels=[
                (spec.name, spec.kernel) if spec.columns is None else (spec.name, spec.kernel, spec.columns)
                for spec in own
            ]
        )
        for name in ("penalties", "weights", "rank"):  # which may have one entry per kernel
            value = getattr(model, name, None)
            if value is not None and np.ndim(value) == 1:
                model.set_params(**{name: np.asarray(value)[kept]})
        if fixed and all(j in fixed for j in kept):
            model.set_params(fixed_weights=None, weights=[fixed[j] for j in kept])
        elif fixed:
            model.set_params(fixed_weights={specs[j].name: fixed[j] for j in kept if j in fixed})
        return estimator

    def _permute(self, pipeline: Any, held: Rows, score: float, random: np.random.RandomState) -> list[list[float]]:
        """Return what the score loses when a kernel reads other samples: its share of the output is then theirs."""
        model, X = behind_pipeline(pipeline, _safe_indexing(self.X, held))
        terms = model.contributions(X)
        terms = terms[:, :, np.newaxis] if terms.ndim == 2 else terms
        outputs = terms.sum(axis=1) + model.intercept_

        def loss(m: int) -> float:
            shuffled = outputs - terms[:, m] + terms[random.permutation(len(terms)), m]
            return score - self._score(_with_outputs(model, shuffled), held, X)

        return [[loss(m) for _ in range(self.n_repeats)] for m in range(terms.shape[1])]


def _with_outputs(model: Estimator, outputs: Array) -> HeldOutPredictor:
    """Return what scorers read of a model whose outputs are given."""
    rule = getattr(model, "path_rule", None)
    score = accuracy if is_classifier(model) else r_squared if rule is None else rule.score
    classes, probabilities = getattr(model, "classes_", None), getattr(model, "_probabilities", None)
    kind = get_tags(model).estimator_type
    curves = partial(getattr, model, "curves_", None)
    return HeldOutPredictor(kind, model.decide(outputs), single(outputs), classes, score, probabilities, curves)


def _present(estimator: Estimator, specs: list[KernelSpec], X: MatrixLike) -> NDArray[np.bool_]:
    """Return which views samples have, of shape (n, P), after the steps of a fitted pipeline."""
    model, X = behind_pipeline(estimator, X)
    present = None
    if model.missing is not None and model.approximation is None and may_lack(specs):
        present = present_views(specs, model.read(X))
    return np.ones((_num_samples(X), len(specs)), dtype=bool) if present is None else present


def _start_without(model: Estimator, m: int) -> Array | None:
    """Return the weights of the other kernels to start from, unless a class has given them none."""
    rest = np.delete(model.weights_, m, axis=-1)
    return rest if np.all(rest.sum(axis=-1) > 0) else None


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
