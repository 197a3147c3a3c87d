"""Estimators that choose C and the norm of the weights by cross-validation, and know probabilities from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed

from kernelmosaic.estimators._calibration import Calibration, check_calibration
from kernelmosaic.estimators._cross_fitting import aligned, calibration_of
from kernelmosaic.estimators._path import HeldOut, Samples, follow_paths
from kernelmosaic.estimators._scaling import Standardizer
from kernelmosaic.estimators._training_set import is_streamed
from kernelmosaic.estimators._warnings import warn_of_gaps
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.discriminant import DiscriminantMKLClassifier, check_discriminant_targets
from kernelmosaic.estimators.localized import LocalizedMKLClassifier
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.estimators.survival import MKLSurvival, concordance
from kernelmosaic.learning.problem import progress
from kernelmosaic.machines.base import check_count

Array = NDArray[np.float64]

#: What the search itself is told; all other parameters are those of the models it fits.
_SEARCH = ("Cs", "norms", "cv", "scoring", "n_jobs", "refit", "scale", "calibration", "verbose")
#: Of y, the share of its standard deviation that ``epsilon="auto"`` stands for.
_TUBE = 0.1


class PathCV(BaseEstimator):
    """The search that the estimators below share: every fold follows the path of C, and the best C is fitted to all.

    A fold computes its kernels once, with widths, scales and normalising of its own training samples, so that the
    scores are those of a grid search, up to the tolerance of the fits. Along the path every fit starts from the weights
    and the coefficients of the one before it, those at a bound moved with it.
    """

    Cs: Any
    norms: Any = (None,)
    cv: Any
    scoring: Any
    n_jobs: Any
    refit: Any
    scale: Any
    calibration: Any = None
    verbose: Any
    C_: Any

    _model_class: ClassVar[Any]
    #: The parameter that is searched, its range, and whether large values come first: paths begin with what is smooth.
    _along: ClassVar[str] = "C"
    _range: ClassVar[tuple[float, float]] = (1e-2, 1e3)
    _falls: ClassVar[bool] = False
    #: Whether a number of folds means stratified ones, as it does for classifiers.
    _stratifies: ClassVar[bool] = False
    _standardizer: Standardizer | None = None
    _calibration: Calibration | None = None
    #: Prepares the samples of every fold anew, where that is more than to standardise them; see `Samples`.
    _prepare: Callable[[Any, Any], tuple[Any, Any]] | None = None
    #: How exactly the fits to folds are solved, if less so than `tol` asks for.
    _fold_tol: float = 0.0

    # The search ----------------------------------------------------------------------------------------------------

    def _search(self, samples: Samples, params: dict[str, Any], given_weight: Any) -> Self:
        """Follow the paths of all folds, choose, and fit the choice to all samples."""
        samples = replace(samples, prepare=self._prepare)
        self.Cs_ = self._values(samples)
        norms = self._distinct_norms()
        routed = self._routed(params, given_weight)
        target = self._fold_target(samples.y)
        folds = list(self._splitter(target).split(samples.X, target, **routed.splitter.split))
        order = self.Cs_[::-1] if self._falls else self.Cs_
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        model = partial(self._model, samples, seed=seed)
        # Made one fold after the other: fitted models are large, and go when their fold is done.
        tasks = (
            ([[self._loosened(model(C, norm)) for C in order] for norm in norms], samples, *fold, bool(self.scale))
            for fold in folds
        )
        paths = list(self._run(tasks, len(folds)))
        self._warn_of_gaps(paths)
        if self._falls:
            paths = [[path[::-1] for path in fold] for fold in paths]
        norm = self._choose(paths, norms, folds, samples, routed.scorer.score)
        if self.refit:
            self._take_over(model(self.C_, norm), samples)
        return self

    def _values(self, samples: Samples) -> Array:
        """Return the values of C to try, in ascending order."""
        if isinstance(self.Cs, int | np.integer) and not isinstance(self.Cs, bool):
            low, high = np.log10(self._range)
            return np.logspace(low, high, check_count("Cs", self.Cs)) * self._unit(samples)
        try:
            values = np.unique(np.asarray(self.Cs, dtype=np.float64))
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or len(values) == 0 or not np.all(np.isfinite(values) & (values > 0)):
            raise ValueError(f"Cs={self.Cs!r}: give how many values to try, or a list of positive numbers.")
        return values

    def _unit(self, samples: Samples) -> float:
        """What C is measured in, where `Cs` says only how many there are."""
        return 1.0

    def _distinct_norms(self) -> list[Any]:
        norms = [self.norms] if isinstance(self.norms, str | int | float) or self.norms is None else list(self.norms)
        if not norms:
            raise ValueError(f"norms={self.norms!r}: give at least one, such as 1, 2 or 'uniform'.")
        # A single kernel has nothing to weigh.
        return norms if len(self._read_kernels()) > 1 else norms[:1]

    def _model(self, samples: Samples, C: float, norm: Any, seed: int) -> Any:
        """Return the model of a point of the path, not yet fitted."""
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in _SEARCH}
        if norm is not None:
            params |= self._variant(norm)
        # All fits draw the same landmarks.
        params |= {self._along: float(C), "random_state": seed}
        model = self._model_class(**params)
        model._fit_device, model._fit_input = self._fit_device, self._fit_input
        return model

    def _loosened(self, model: Any) -> Any:
        return model if model.tol >= self._fold_tol else model.set_params(tol=self._fold_tol)

    def _variant(self, norm: Any) -> dict[str, Any]:
        """Return the parameters that stand for one of the norms."""
        return {"weights": "uniform"} if norm == "uniform" else {"norm": norm}

    def _run(self, tasks: Iterator[Any], total: int) -> Iterator[list[list[HeldOut]]]:
        """Yield the paths of every fold; the first leads the way for the others."""
        shown: Any = progress(type(self).__name__, total) if self.verbose else nullcontext(lambda *state: None)
        with shown as show:
            leader = follow_paths(*next(tasks))
            show(f"1 of {total} folds", 1)
            yield leader
            rest = Parallel(n_jobs=self.n_jobs, return_as="generator")(
                delayed(follow_paths)(*task, leader) for task in tasks
            )
            for done, paths in enumerate(rest, start=2):
                show(f"{done} of {total} folds", done)
                yield paths

    def _choose(
        self, paths: list[list[list[HeldOut]]], norms: list[Any], folds: Sequence[Any], samples: Samples, routed: Any
    ) -> Any:
        """Score every point of the paths, keep what was found, and return the norm that was chosen."""
        if all(one[0][0].weights.ndim == 0 for one in paths):
            raise ValueError(f"cv={self.cv!r}: no fold has training samples of two classes; give other folds.")
        scorer = self._scorer()
        scores = np.array(
            [
                [
                    [self._score(paths, f, m, i, folds, samples, routed, scorer) for i in _all(self.Cs_)]
                    for f in _all(folds)
                ]
                for m in _all(norms)
            ]
        )
        # Of equal scores the first norm and the smoothest machine.
        means = scores.mean(axis=1)[:, :: -1 if self._falls else 1]
        if np.all(np.isnan(means)):
            raise ValueError(
                f"scoring={self.scoring!r} gives no number in any fold; check the folds, or choose another."
            )
        m, i = np.unravel_index(int(np.nanargmax(means)), means.shape)
        i = len(self.Cs_) - 1 - i if self._falls else i
        self.C_ = float(self.Cs_[i])
        self.scores_, self.best_score_ = scores[m], float(scores[m, :, i].mean())
        if norms[m] is not None:
            self.norm_ = norms[m]
            self.scores_by_norm_ = {norm: scores[j] for j, norm in enumerate(norms)}
        chosen = [fold[m] for fold in paths]
        weights = [[self._aligned_weights(one) for one in path] for path in chosen]
        # A fold of one class has none.
        shape = max((one.shape for path in weights for one in path), key=len)
        self.weights_paths_ = np.array([[np.broadcast_to(one, shape) for one in path] for path in weights])
        self.weights_path_ = np.nanmean(self.weights_paths_, axis=0)
        self.duality_gaps_ = np.array([[one.gap for one in path] for path in chosen])
        self._calibrate([path[i] for path in chosen], [held for _, held in folds], samples)
        return norms[m]

    def _score(
        self,
        paths: list[list[list[HeldOut]]],
        f: int,
        m: int,
        i: int,
        folds: Sequence[Any],
        samples: Samples,
        routed: dict[str, Any],
        scorer: Any,
    ) -> float:
        """Return the score of fold f with norm m and the i-th C."""
        held = folds[f][1]

        def others() -> Calibration:
            rest = [g for g in _all(folds) if g != f]
            return self._calibration_of([paths[g][m][i] for g in rest], [folds[g][1] for g in rest], samples)

        stand_in = self._stand_in(paths[f][m][i], others)
        params = {name: np.asarray(value)[held] for name, value in routed.items() if value is not None}
        return float(scorer(stand_in, samples.X[held], samples.y[held], **params))

    def _stand_in(self, held: HeldOut, calibration: Callable[[], Calibration]) -> Any:
        raise NotImplementedError

    def _aligned_weights(self, held: HeldOut) -> Array:
        """Return the weights, one row per class if every class has its own."""
        return held.weights

    def _calibrate(self, outputs: list[HeldOut], held: list[NDArray[np.intp]], samples: Samples) -> None:
        """Learn probabilities from what the chosen models say of the samples they have not seen."""

    def _calibration_of(self, outputs: list[HeldOut], held: list[NDArray[np.intp]], samples: Samples) -> Calibration:
        raise NotImplementedError

    def _fold_target(self, y: Any) -> Any:
        """Return what folds may be stratified by."""
        return y

    def _splitter(self, y: Any = None) -> Any:
        # Loads a good part of scikit-learn, which the estimators that choose nothing do without.
        from sklearn.model_selection import check_cv

        return check_cv(self.cv, y, classifier=self._stratifies or is_classifier(self))

    def _scorer(self) -> Any:
        from sklearn.metrics import check_scoring

        return check_scoring(self, scoring=self.scoring)

    def _warn_of_gaps(self, found: list[list[list[HeldOut]]]) -> None:
        gaps = np.array([one.gap for fold in found for path in fold for one in path])
        remedy = "raise max_iter, accept a larger tol, or try smaller Cs"
        warn_of_gaps(type(self).__name__, gaps, max(self.tol, self._fold_tol), remedy)

    def _take_over(self, model: Any, samples: Samples) -> None:
        """Fit the chosen model to all samples, and become it."""
        if self.scale:
            self._standardizer = samples.standardizer(model)
        scaled = samples.scaled(self._standardizer)
        model._fit_validated(scaled.X, scaled.y, scaled.weight, scaled.original)
        own = model.get_params(deep=False)
        self.__dict__.update({name: value for name, value in vars(model).items() if name not in own})

    # scikit-learn's conventions ------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        # Without a refit there are scores, and nothing to predict with.
        return hasattr(self, "weights_")

    def _begin(self, X: Any) -> Any:
        """Forget an earlier fit, and return the samples, unless they cannot be divided into folds."""
        self.__dict__.pop("weights_", None)
        self._standardizer = self._calibration = None
        if isinstance(X, np.memmap):
            return np.asarray(X)
        if is_streamed(X):
            raise ValueError(
                f"X={type(X).__name__}: folds are taken of arrays, sparse matrices and data frames; load the samples, "
                f"or fit {self._model_class.__name__} with a C of your choice."
            )
        return X

    def _validate(self, X: Any, *y: Any, reset: bool, **checks: Any) -> Any:
        found = super()._validate(X, *y, reset=reset, **checks)
        return found if reset or self._standardizer is None else self._standardizer(found)

    def _routed(self, params: dict[str, Any], sample_weight: Any) -> Bunch:
        from sklearn import get_config

        if get_config().get("enable_metadata_routing", False):
            routed: Bunch = process_routing(self, "fit", sample_weight=sample_weight, **params)
            return routed
        unknown = set(params) - {"groups"}
        if unknown:
            raise TypeError(f"{type(self).__name__}.fit() got an unexpected argument {sorted(unknown)[0]!r}.")
        weights = {} if sample_weight is None or not self._scorer_takes_weights() else {"sample_weight": sample_weight}
        return Bunch(splitter=Bunch(split=params), scorer=Bunch(score=weights))

    def _scorer_takes_weights(self) -> bool:
        # A function of one's own may not know them.
        return self.scoring is None or isinstance(self.scoring, str)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what `fit` passes on: ``groups`` and such to the splitter, ``sample_weight`` to the scorer.

        Without `scoring`, folds are scored by ``score``: what it is to be given, ``set_score_request`` says.
        """
        to_split = MethodMapping().add(caller="fit", callee="split")
        to_score = MethodMapping().add(caller="fit", callee="score")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        # A scorer that passes on to this estimator's own would ask it for its routing, which is asked for here.
        scorer = self._get_metadata_request() if self.scoring is None else self._scorer()
        return router.add(splitter=self._splitter(), method_mapping=to_split).add(
            scorer=scorer, method_mapping=to_score
        )


def _all(items: Any) -> range:
    return range(len(items))


# Classifiers ---------------------------------------------------------------------------------------------------------


class _HeldOutClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that knows the answers for the samples held out, and nothing else; what scorers are given."""

    def __init__(self, outputs: Any = None, classes: Any = None, labels: bool = False, calibration: Any = None) -> None:
        self.outputs = outputs
        self.classes = classes
        self.labels = labels
        self.calibration = calibration

    @property
    def classes_(self) -> Any:
        return self.classes

    def decision_function(self, X: Any) -> Array:
        return np.asarray(self.outputs)

    def predict(self, X: Any) -> NDArray[Any]:
        if self.labels:
            return np.asarray(self.outputs > 0, dtype=int)
        one = self.outputs.ndim == 1
        return np.asarray(self.classes[(self.outputs > 0).astype(int) if one else self.outputs.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        return np.asarray(self.calibration().probabilities(self.outputs))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        # Accuracy as it stands: targets were checked before the folds were made, and there are many small ones.
        right = self.predict(X) == y
        return float(np.average(right.all(axis=1) if self.labels else right, weights=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ClassifierPathCV(PathCV):
    """The search of classifiers, which are calibrated by what is known of every sample from the fold that held it."""

    _several_labels = False

    def _fit_classes(self, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        original = X = self._begin(X)
        check_calibration(self.calibration)
        X, y = self._read_classes(X, y)
        weight = self._sample_weight(sample_weight, X)
        self.classes_ = np.arange(y.shape[1]) if self._several_labels else self._find_classes(y, weight)
        return self._search(Samples(X, y, weight, original), params, weight)

    def _read_classes(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = self._validate(X, y, reset=True)
        return X, y

    def _stand_in(self, held: HeldOut, calibration: Callable[[], Calibration]) -> Any:
        outputs = held.outputs if self._several_labels else aligned(held, self.classes_)
        return _HeldOutClassifier(outputs, self.classes_, self._several_labels, calibration)

    def _aligned_weights(self, held: HeldOut) -> Array:
        if held.weights.ndim == 0:
            return held.weights
        shared = len(self.classes_) == 2 or getattr(self, "multi_class", "joint") != "ovr"
        if shared or held.classes is None or len(held.classes) == len(self.classes_):
            return held.weights
        # Classes that the fold had no sample of have none.
        full = np.full((len(self.classes_), held.weights.shape[-1]), np.nan)
        full[np.searchsorted(self.classes_, held.classes)] = held.weights
        return full

    def _calibrate(self, outputs: list[HeldOut], held: list[NDArray[np.intp]], samples: Samples) -> None:
        self._calibration = self._calibration_of(outputs, held, samples)

    def _calibration_of(self, outputs: list[HeldOut], held: list[NDArray[np.intp]], samples: Samples) -> Calibration:
        return calibration_of(outputs, held, samples, self, self.calibration)


class MKLClassifierCV(ClassifierPathCV, MKLClassifier):
    """:class:`MKLClassifier` with C and the norm of its weights chosen by cross-validation, and with probabilities.

    Every fold follows a path of warm-started fits along C, one path per norm, and the best pair is fitted to all
    samples. The decision values of the samples held out calibrate :meth:`predict_proba`.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    Cs : int or array-like, default=20
        The values of C to try, or how many: so many from 0.01 to 1000, evenly on a logarithmic scale.
    norms : sequence, default=(1, 2, "uniform")
        The norms of the weights to try, ``"elastic"`` among them; ``"uniform"`` gives all kernels the same weight.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`: a number means stratified folds.
    scoring : str or callable, default=None
        As in :class:`~sklearn.model_selection.GridSearchCV`; None means accuracy. A function is called with an
        estimator that knows the samples held out: its `predict`, `decision_function` and `predict_proba`, which is
        calibrated by the other folds.
    n_jobs : int, default=None
        Folds worked on at the same time, in processes of their own.
    refit : bool, default=True
        Whether to fit the choice to all samples; else there are scores, and no predictions.
    scale : bool, default=True
        Whether to standardise the columns that kernels read as numbers, by the training samples of each fit; sparse
        samples are divided by the standard deviations only. Row numbers, strings and other columns stay as they are.
    calibration : {"sigmoid", "isotonic"}, default="sigmoid"
        How decision values become probabilities: p ∝ exp(a f_c), or monotone functions.
    l1_ratio, penalties, penalty_power, slack, solver, multi_class, normalize, approximation, rank, missing
        As in :class:`MKLClassifier`.
    class_weight, tol, max_iter, memory_budget, device, random_state
        As in :class:`MKLClassifier`.
    verbose : bool, default=False
        Show how many folds are done.

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
    best_score_ : float
        The mean score of the choice over the folds.
    weights_path_ : ndarray of shape (Cs, P) or (Cs, classes, P)
        The weights of the kernels along the path, with the chosen norm, averaged over the folds; those of every fold
        are in ``weights_paths_``.
    duality_gaps_ : ndarray of shape (folds, Cs)
        The certified relative duality gap of every fit of the chosen norm.
    weights_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, objective_, duality_gap_
        Of the fit to all samples, as in :class:`MKLClassifier`.
    n_iter_, n_solves_, history_, classes_, n_features_in_, feature_names_in_
        As in :class:`MKLClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifierCV(Cs=5).fit(X, y)
    >>> model.scores_.shape
    (5, 5)
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    """

    _model_class = MKLClassifier

    def __init__(
        self,
        kernels: Any = None,
        *,
        Cs: Any = 20,
        norms: Any = (1, 2, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        calibration: str = "sigmoid",
        l1_ratio: float = 0.5,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        multi_class: str = "ovr",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        missing: str = "neighbors",
        class_weight: Any = None,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
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
        self.l1_ratio = l1_ratio
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.multi_class = multi_class
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.missing = missing
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose C and the norm by cross-validation, and fit to all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, sample by sample; they count in the scores as well.
        **params : dict
            ``groups`` for the splitter; with metadata routing enabled, whatever splitter and scorer ask for.

        Returns
        -------
        self
        """
        return self._fit_classes(X, y, sample_weight, params)


class LocalizedMKLClassifierCV(ClassifierPathCV, LocalizedMKLClassifier):
    """:class:`LocalizedMKLClassifier` with C chosen by cross-validation, and with probabilities.

    As :class:`MKLClassifierCV`, but for the norm, which gates do not have. Gates are learned from the same random
    starts at every C, since the problem is not convex; only kernels are shared.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`LocalizedMKLClassifier`.
    Cs : int or array-like, default=20
        The values of C to try, or how many: so many from 0.1 to 1000, evenly on a logarithmic scale.
    cv, scoring, n_jobs, refit, scale, calibration
        As in :class:`MKLClassifierCV`.
    gating, gating_columns, gating_kernel, step, n_init, slack, multi_class, normalize, approximation, rank
        As in :class:`LocalizedMKLClassifier`.
    class_weight, tol, n_iter_no_change, max_iter, memory_budget, device, random_state
        As in :class:`LocalizedMKLClassifier`.
    verbose : bool, default=False
        Show how many folds are done.

    Attributes
    ----------
    C_, Cs_, scores_, best_score_, weights_path_, weights_paths_, duality_gaps_
        As in :class:`MKLClassifierCV`; the weights are mean gates.
    weights_, gating_params_, kernel_names_, dual_coef_, support_, intercept_, objective_, duality_gap_, classes_
        Of the fit to all samples, as in :class:`LocalizedMKLClassifier`.

    Examples
    --------
    >>> from kernelmosaic import LocalizedMKLClassifierCV
    >>> from kernelmosaic.datasets import make_gaussians
    >>> from kernelmosaic.kernels import Linear
    >>> X, y = make_gaussians(n_samples=80, random_state=0)
    >>> model = LocalizedMKLClassifierCV([Linear(), Linear()], Cs=[1, 10], cv=2, n_init=1, tol=1e-2, random_state=0)
    >>> model.fit(X, y).C_ in (1, 10), model.predict_proba(X[:3]).shape
    (True, (3, 2))
    """

    _model_class = LocalizedMKLClassifier
    _range = (0.1, 1e3)

    def __init__(
        self,
        kernels: Any = None,
        *,
        Cs: Any = 20,
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        calibration: str = "sigmoid",
        gating: Any = "softmax",
        gating_columns: Any = None,
        gating_kernel: Any = None,
        step: Any = "lbfgs",
        n_init: int = 3,
        slack: int = 1,
        multi_class: str = "ovr",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        class_weight: Any = None,
        tol: float = 1e-3,
        n_iter_no_change: int = 3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.kernels = kernels
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.scale = scale
        self.calibration = calibration
        self.gating = gating
        self.gating_columns = gating_columns
        self.gating_kernel = gating_kernel
        self.step = step
        self.n_init = n_init
        self.slack = slack
        self.multi_class = multi_class
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.class_weight = class_weight
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose C by cross-validation, and fit to all samples; see :meth:`MKLClassifierCV.fit`."""
        return self._fit_classes(X, y, sample_weight, params)


class DiscriminantMKLClassifierCV(ClassifierPathCV, DiscriminantMKLClassifier):
    """:class:`DiscriminantMKLClassifier` with its regulariser chosen by cross-validation, and with probabilities.

    As :class:`MKLClassifierCV`. Paths begin with the strongest regulariser.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`DiscriminantMKLClassifier`.
    Cs : int or array-like, default=20
        The values of `alpha` to try, or how many: so many from 10⁻⁴ to 10², evenly on a logarithmic scale.
    norms : sequence, default=(1, "uniform")
        1 learns the weights, ``"uniform"`` gives all kernels the same.
    cv, scoring, n_jobs, refit, scale, calibration
        As in :class:`MKLClassifierCV`.
    formulation, decision, normalize, approximation, rank, tol, max_iter, memory_budget, device, random_state
        As in :class:`DiscriminantMKLClassifier`.
    verbose : bool, default=False
        Show how many folds are done.

    Attributes
    ----------
    C_ : float
        The chosen regulariser; ``alpha_`` is the same.
    norm_, Cs_, scores_, best_score_, weights_path_, weights_paths_, duality_gaps_
        As in :class:`MKLClassifierCV`.
    weights_, kernel_names_, dual_coef_, intercept_, objective_, duality_gap_, explained_ratio_, classes_
        Of the fit to all samples, as in :class:`DiscriminantMKLClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import DiscriminantMKLClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DiscriminantMKLClassifierCV(Cs=5).fit(X, y)
    >>> model.score(X, y) > 0.95, model.transform(X).shape
    (True, (150, 2))
    """

    _model_class = DiscriminantMKLClassifier
    _along = "alpha"
    _range = (1e-4, 1e2)
    _falls = True

    def __init__(
        self,
        kernels: Any = None,
        *,
        Cs: Any = 20,
        norms: Any = (1, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        calibration: str = "sigmoid",
        formulation: str = "newton",
        decision: str = "least_squares",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        tol: float = 5e-4,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
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
        self.formulation = formulation
        self.decision = decision
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Choose the regulariser and whether to learn weights by cross-validation, and fit to all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, labels)
            Classes, or the indicators of labels of which a sample may have several, or none.
        **params : dict
            ``groups`` for the splitter; with metadata routing enabled, whatever splitter and scorer ask for.

        Returns
        -------
        self
        """
        return self._fit_classes(X, y, None, params)

    def _read_classes(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = self._validate(X, y, reset=True, multi_output=True)
        y = check_discriminant_targets(y, self.decision)
        self._several_labels = y.ndim == 2
        return X, y

    def _variant(self, norm: Any) -> dict[str, Any]:
        if norm not in (1, "uniform"):
            raise ValueError(f"norms={self.norms!r}: discriminant analysis has the norms 1, learned, and 'uniform'.")
        return {"weights": "uniform" if norm == "uniform" else None}


# Regression ----------------------------------------------------------------------------------------------------------


class _HeldOutRegressor(RegressorMixin, BaseEstimator):
    """A regressor that knows the predictions for the samples held out, and nothing else; what scorers are given."""

    def __init__(self, outputs: Any = None) -> None:
        self.outputs = outputs

    def predict(self, X: Any) -> Array:
        return np.asarray(self.outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class MKLRegressorCV(PathCV, MKLRegressor):
    """:class:`MKLRegressor` with C and the norm of its weights chosen by cross-validation.

    Every fold follows a path of warm-started fits along C, one path per norm, and the best pair is fitted to all
    samples.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLRegressor`.
    Cs : int or array-like, default=20
        The values of C to try, or how many: so many from 0.01 to 1000 standard deviations of y, evenly on a logarithmic
        scale.
    norms : sequence, default=(1, 2, "uniform")
        The norms of the weights to try, ``"elastic"`` among them; ``"uniform"`` gives all kernels the same weight.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`.
    scoring : str or callable, default=None
        As in :class:`~sklearn.model_selection.GridSearchCV`; None means R². A function is called with an estimator that
        knows the predictions for the samples held out.
    n_jobs, refit, scale
        As in :class:`MKLClassifierCV`.
    epsilon : float or "auto", default="auto"
        As in :class:`MKLRegressor`; ``"auto"`` stands for a tenth of the standard deviation of y.
    loss, l1_ratio, penalties, penalty_power, slack, solver, normalize, approximation, rank, missing
        As in :class:`MKLRegressor`.
    tol, max_iter, memory_budget, device, random_state
        As in :class:`MKLRegressor`.
    verbose : bool, default=False
        Show how many folds are done.

    Attributes
    ----------
    C_, norm_, Cs_, scores_, scores_by_norm_, best_score_, weights_path_, weights_paths_, duality_gaps_
        As in :class:`MKLClassifierCV`.
    weights_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, objective_, duality_gap_
        Of the fit to all samples, as in :class:`MKLRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelmosaic import MKLRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> bool(MKLRegressorCV(Cs=5, cv=3).fit(X[:200], y[:200]).best_score_ > 0.3)
    True
    """

    _model_class = MKLRegressor

    def __init__(
        self,
        kernels: Any = None,
        *,
        Cs: Any = 20,
        norms: Any = (1, 2, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        epsilon: float | str = "auto",
        loss: str = "epsilon",
        l1_ratio: float = 0.5,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        missing: str = "neighbors",
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.scale = scale
        self.epsilon = epsilon
        self.loss = loss
        self.l1_ratio = l1_ratio
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.missing = missing
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose C and the norm by cross-validation, and fit to all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, sample by sample; they count in the scores as well.
        **params : dict
            ``groups`` for the splitter; with metadata routing enabled, whatever splitter and scorer ask for.

        Returns
        -------
        self
        """
        X, target, weight, original = self._validated(self._begin(X), y, sample_weight)
        return self._search(Samples(X, target, weight, original), params, weight)

    def _unit(self, samples: Samples) -> float:
        return float(np.mean([_deviation(y, samples.weight) for y in np.atleast_2d(samples.y.T)])) or 1.0

    def _model(self, samples: Samples, C: float, norm: Any, seed: int) -> Any:
        model = super()._model(samples, C, norm, seed)
        if isinstance(self.epsilon, str):
            if self.epsilon != "auto":
                raise ValueError(f"epsilon={self.epsilon!r}: give a number, or 'auto'.")
            model.epsilon = _TUBE * self._unit(samples)
        return model

    def _stand_in(self, held: HeldOut, calibration: Callable[[], Calibration]) -> Any:
        return _HeldOutRegressor(held.outputs)


def _deviation(y: Array, weight: Array | None) -> float:
    """Return the standard deviation; the same to the last digit for a sample of weight two and one given twice."""
    values, at = np.unique(y, return_inverse=True)
    counts = np.bincount(at, weights=weight)
    return float(np.sqrt(np.average((values - np.average(values, weights=counts)) ** 2, weights=counts)))


# Survival ------------------------------------------------------------------------------------------------------------


class _HeldOutSurvival(_HeldOutRegressor):
    """The same with the score of survival."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return concordance(y, self.outputs, sample_weight)


class MKLSurvivalCV(PathCV, MKLSurvival):
    """:class:`MKLSurvival` with C and the norm of its weights chosen by cross-validation.

    Every fold follows a path of warm-started fits along C, one path per norm, and the best pair is fitted to all
    samples.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLSurvival`.
    Cs : int or array-like, default=20
        The values of C to try, or how many: so many from 0.001 to 100, evenly on a logarithmic scale.
    norms : sequence, default=(1, 2, "uniform")
        The norms of the weights to try, ``"elastic"`` among them; ``"uniform"`` gives all kernels the same weight.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`: a number means folds that are stratified by whether the
        event was observed, which is also what splitters are given for y.
    scoring : callable, default=None
        Called with an estimator that knows the predictions for the samples held out, with these samples, and with
        their events and times in two columns; None means the concordance.
    n_jobs, refit, scale
        As in :class:`MKLClassifierCV`.
    epsilon, l1_ratio, penalties, penalty_power, slack, solver, normalize, approximation, rank, missing
        As in :class:`MKLSurvival`.
    tol, max_iter, memory_budget, device, random_state
        As in :class:`MKLSurvival`.
    verbose : bool, default=False
        Show how many folds are done.

    Attributes
    ----------
    C_, norm_, Cs_, scores_, scores_by_norm_, best_score_, weights_path_, weights_paths_, duality_gaps_
        As in :class:`MKLClassifierCV`.
    weights_, kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, objective_, duality_gap_
        Of the fit to all samples, as in :class:`MKLSurvival`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLSurvivalCV
    >>> X = np.random.RandomState(0).normal(size=(60, 2))
    >>> times = np.exp(X[:, 0])
    >>> y = np.column_stack([times < 2, np.minimum(times, 2)])  # event, time: censored at 2
    >>> model = MKLSurvivalCV(Cs=3, cv=3).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    _model_class = MKLSurvival
    _range = (1e-3, 1e2)
    _stratifies = True

    def __init__(
        self,
        kernels: Any = None,
        *,
        Cs: Any = 20,
        norms: Any = (1, 2, "uniform"),
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        scale: bool = True,
        epsilon: float = 0.1,
        l1_ratio: float = 0.5,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        missing: str = "neighbors",
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.Cs = Cs
        self.norms = norms
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.refit = refit
        self.scale = scale
        self.epsilon = epsilon
        self.l1_ratio = l1_ratio
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.missing = missing
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose C and the norm by cross-validation, and fit to all samples.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : structured array of shape (n_samples,), or array-like of shape (n_samples, 2) or (n_samples,)
            Events and times, as in :meth:`MKLSurvival.fit`.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, sample by sample; they count in the scores as well.
        **params : dict
            ``groups`` for the splitter; with metadata routing enabled, whatever splitter and scorer ask for.

        Returns
        -------
        self
        """
        X, times, weight, original = self._validated(self._begin(X), y, sample_weight)
        return self._search(Samples(X, times, weight, original), params, weight)

    def _fold_target(self, y: Array) -> NDArray[np.int64]:
        return y[:, 0].astype(np.int64)

    def _stand_in(self, held: HeldOut, calibration: Callable[[], Calibration]) -> Any:
        return _HeldOutSurvival(held.outputs[:, 0])
