"""What all estimators share: kernels as parameters, samples in, one way to keep a fit, predictions out."""

from __future__ import annotations

import reprlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, replace
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kernelmosaic._typing import (
    AnyArray,
    ArrayOrTensor,
    Estimator,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import map_threads, require_device, tensor_device, to_host
from kernelmosaic.estimators._calibration import Calibration
from kernelmosaic.estimators._cross_fitting import CrossFit
from kernelmosaic.estimators._expansion import Expansion
from kernelmosaic.estimators._html import FittedSummaryMixin
from kernelmosaic.estimators._input import FitInput
from kernelmosaic.estimators._path import PathRule
from kernelmosaic.estimators._scaling import Standardizer
from kernelmosaic.estimators._shared import fit_context
from kernelmosaic.estimators._training_set import (
    DistinctSamples,
    KernelOptions,
    TrainingSet,
    check_approximation,
    count_samples,
    is_streamed,
    level_of_caller,
    validate_rows,
)
from kernelmosaic.gram import GramStack
from kernelmosaic.gram.missing import check_rule
from kernelmosaic.kernels.base import Kernel, refuse_text
from kernelmosaic.kernels.subsets import Subsets
from kernelmosaic.kernels.views import Entry, PerColumn, default_kernels, read_kernels
from kernelmosaic.learning import Learner, Parameters, make_learner
from kernelmosaic.learning.certificate import AIM
from kernelmosaic.learning.norms import numbers
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_positive

#: Items of a list that is too long to print that are printed nevertheless.
_SHOWN = 4


class KernelListMixin(BaseEstimator):
    """Reach into the list of kernels by their names, and print it as it was written."""

    kernels: KernelsLike

    @staticmethod
    def _default_kernels() -> list[Kernel]:
        """Return what ``kernels=None`` stands for."""
        return default_kernels()

    def _read_kernels(self) -> list[Entry]:
        return read_kernels(self.kernels, self._default_kernels)

    def get_params(self, deep: bool = True) -> Settings:
        """Return the parameters; if deep, also the kernels, ``kernels__name``, and theirs, ``kernels__name__width``."""
        params: Settings = super().get_params(deep=False)
        if deep:
            for entry in self._entries():
                params[f"kernels__{entry.name}"] = entry.kernel
                nested = entry.kernel.get_params(deep=True)
                params.update({f"kernels__{entry.name}__{key}": value for key, value in nested.items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernels__name`` replaces a kernel, ``kernels__name__width`` sets one of its own."""
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        nested = {key.removeprefix("kernels__"): params.pop(key) for key in list(params) if key.startswith("kernels__")}
        super().set_params(**params)
        if nested:
            self._set_kernels(nested)
        return self

    def _set_kernels(self, nested: Settings) -> None:
        entries = self._read_kernels()
        known = {entry.name: entry for entry in entries}
        # A kernel is replaced before its own parameters are set, as in scikit-learn.
        for key, value in sorted(nested.items(), key=lambda item: item[0].count("__")):
            name, _, parameter = key.partition("__")
            if name not in known:
                raise ValueError(
                    f"Invalid parameter 'kernels__{key}' for {type(self).__name__}: the kernels are {', '.join(known)}."
                )
            if parameter:
                known[name].kernel.set_params(**{parameter: value})
            else:
                known[name] = Entry(name, value, known[name].columns)
        # A new list: the one the user gave may be shared with other estimators.
        self.kernels = [
            (name, entry.kernel) if entry.columns is None else (name, entry.kernel, entry.columns)
            for name, entry in known.items()
        ]

    def _entries(self) -> list[Entry]:
        """The kernels by name; none where the list is not one, which `fit` will say."""
        if self.kernels is None:
            return []
        try:
            return self._read_kernels()
        except (TypeError, ValueError):
            return []

    def _kernels_take(self, trait: str) -> list[Any]:
        """A class attribute of every kernel."""
        kernels = [entry.kernel for entry in self._read_kernels()]
        return [getattr(k.kernel if isinstance(k, PerColumn) else k, trait) for k in kernels]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # scikit-learn's printer would write kernels out as constructor calls, and a precomputed one with its matrix.
        changed = [
            (key, value)
            for key, parameter in signature(type(self)).parameters.items()
            if repr(value := getattr(self, key)) != repr(parameter.default)
        ]
        text = _call(self, {key: repr(value) for key, value in changed})
        if len(text) > N_CHAR_MAX:
            text = _call(self, {key: _shortened(value) for key, value in changed})
        return text if len(text) <= N_CHAR_MAX else text[: max(N_CHAR_MAX - 4, 0)] + "...)"


class BaseMKL(FittedSummaryMixin, KernelListMixin, ABC):
    """One weight per kernel, learned or given, with the machine that a subclass names."""

    # What parameters stand for where a subclass does not list them. Without `missing`, samples must have all views.
    missing: Any = None
    weights: ArrayOrTensor = None
    l1_ratio: Any = 0.5
    n_jobs: Any = None
    # Of the Gram matrices; None leaves it to their number.
    _stack_dtype: Any = None
    _expansion: Expansion
    # Whether an output is Σ_m η_m Σ_i β_i k_m(x, x_i) + b, of `weights_`, `dual_coef_` and `intercept_`.
    _has_plain_outputs = True
    # Whether kernels may be too many to be stored.
    _takes_subsets = False
    # Gates count their start as iteration zero.
    _first_iteration = 1
    # What samples the last fit took, which is what predictions take, and the scale it put them on.
    _rules: Settings
    _standardizer: Standardizer | None = None
    # Along which parameter a search goes; None where there is no such parameter.
    _path_rule: ClassVar[PathRule | None] = None

    # What a subclass names -----------------------------------------------------------------------------------------

    @abstractmethod
    def _machines(self, y: TargetLike, weight: NDArray[np.float64]) -> list[Machine]:
        """Return one machine per output, for the targets and weights of distinct samples."""

    # Fitting -------------------------------------------------------------------------------------------------------

    def _fit_validated(self, given: FitInput, keep_function: bool = True) -> Self:
        """Fit to validated samples, without probabilities; `keep_function` as in `_fit`."""
        raise NotImplementedError

    def _fit_calibrated(self, given: FitInput, calibration: Calibration | None = None) -> Self:
        """Fit to validated samples; where there are probabilities, these are by `calibration` if it is given."""
        return self._fit_validated(given)

    def _fit_scaled(self, given: FitInput, scale: bool, calibration: Calibration | None = None) -> Self:
        """Fit the choice of a search, to standardised columns if `scale` says so."""
        self._standardizer = given.standardizer(self._read_kernels()) if scale else None
        scaled = given if self._standardizer is None else replace(given, X=self._standardizer(given.X))
        return self._fit_calibrated(scaled, calibration)

    def _fit(self, given: FitInput, keep_function: bool = True) -> None:
        """Fit to validated samples; without `keep_function` there are attributes, and no predictions."""
        self._check_parameters()
        counted = count_samples(self.approximation, given.X, given.y, given.weight)
        machines = self._machines(None if given.y is None else given.y[counted.rows], counted.weight)
        data = self._training_set(given, counted)
        if self.verbose and data.stack.form:
            print(f"{type(self).__name__}: {data.stack.form}.", flush=True)
        learned, complaint = self._learn(data, machines)
        self.kernel_names_ = data.kernel_set.names
        beta, support = self._keep(data, learned, machines)
        if keep_function:
            self._keep_function(data, learned, beta, support)
        if complaint is not None:
            warnings.warn(f"{type(self).__name__}{complaint}", ConvergenceWarning, stacklevel=level_of_caller())

    def _check_parameters(self) -> None:
        check_positive("tol", self.tol)
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        if self.missing is not None:
            check_rule(self.missing)

    def _training_set(self, given: FitInput, counted: DistinctSamples) -> TrainingSet:
        options = self._kernel_options(len(counted.rows), given.device)
        return fit_context().training_set(options, given.X, given.original, counted)

    def _host_samples(self) -> int:
        """Up to how many samples the host is faster than a GPU, which waits for it between small steps."""
        return 2000

    def _kernel_options(self, n_samples: int, device: str | None) -> KernelOptions:
        on_gpu = str(device).startswith("cuda") and self.approximation is None
        return KernelOptions(
            entries=self._read_kernels(),
            normalize=self.normalize,
            approximation=self.approximation,
            rank=self.rank,
            random_state=self.random_state,
            memory_budget=self.memory_budget,
            device=None if on_gpu and n_samples <= self._host_samples() else device,
            dtype=self._stack_dtype,
            missing=self.missing,
            estimator=type(self).__name__,
        )

    def _parameters(self) -> Parameters:
        """Return how the weights are to be learned."""
        return Parameters(
            tol=AIM * self.tol,
            max_iter=self.max_iter,
            verbose=self.verbose,
            solver=self.solver,
            weights=self.weights,
            norm=self.norm,
            l1_ratio=self.l1_ratio,
            penalties=self.penalties,
            penalty_power=self.penalty_power,
        )

    def _make_learner(self, stack: GramStack, machines: list[Any]) -> Learner:
        return make_learner(self._parameters(), stack, machines)

    def _learn(self, data: TrainingSet, machines: list[Machine]) -> tuple[list[Any], str | None]:
        """Return what was learned for each machine, and what to warn of after the estimator's name, if anything."""
        learner = self._make_learner(data.stack, machines)
        found = self._learn_each(data, machines, learner)
        learned = [data.certify(learner, machine, one) for machine, one in zip(machines, found, strict=True)]
        hidden = any(one.gap > self.tol >= rough.gap for one, rough in zip(learned, found, strict=True))
        if hidden and data.increase_precision():
            return self._learn(data, machines)
        return learned, self._complaint(learner, max(learned, key=lambda one: one.gap))

    def _learn_each(self, data: TrainingSet, machines: Sequence[Any], learner: Learner) -> list[Any]:
        """Return what was learned for each machine, as the learner sees it."""
        context, workers = fit_context(), self._workers(data, 1)
        starts = context.starts(data, learner, machines)
        if workers == 1 or len(machines) == 1:
            starts = [replace(start, kernel=data.kernel) for start in starts]
        tasks = list(zip(machines, starts, strict=True))
        found = list(map_threads(lambda task: data.learn(learner, *task), tasks, workers))
        context.keep(data, learner, found)
        return found

    def _workers(self, data: TrainingSet, default: int) -> int:
        """Return how many threads `n_jobs` asks for; one where they would be in each other's way."""
        if self.verbose or not data.shareable:
            return 1
        return default if self.n_jobs is None else effective_n_jobs(self.n_jobs)

    def _complaint(self, learner: Any, loosest: Any) -> str | None:
        """Return what to say of a gap above the tolerance, None if there is none."""
        if loosest.gap <= self.tol:
            return None
        ended = len(loosest.history) >= self.max_iter or learner.stalled is None
        return (
            f" stopped at a relative duality gap of {loosest.gap:.2g}, above tol={self.tol:g}: "
            f"{learner.advice if ended else learner.stalled}"
        )

    def _keep(
        self, data: TrainingSet, learned: list[Any], machines: list[Machine]
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Keep what was learned, and return the coefficients of distinct samples, and which are not zero."""
        # A joint machine has one column of coefficients per class.
        beta = np.concatenate([np.atleast_2d(one.solution.beta.T) for one in learned])
        support = np.flatnonzero(np.any(beta != 0, axis=0))
        support = support[np.argsort(data.kept[support])]
        self.support_ = data.kept[support]
        self.support_fraction_ = len(support) / len(data.kept)
        self.dual_coef_ = beta[:, support]
        self.intercept_ = np.concatenate([np.atleast_1d(one.solution.intercept) for one in learned])
        self.weights_ = learned[0].weights if len(learned) == 1 else np.array([one.weights for one in learned])
        self._keep_history(learned, [machine.objective_scale for machine in machines])
        return beta, support

    def _keep_function(
        self, data: TrainingSet, learned: list[Any], beta: NDArray[np.float64], support: NDArray[np.intp]
    ) -> None:
        # The classes of a joint machine may share their weights.
        eta = np.concatenate([np.atleast_2d(one.weights) for one in learned])
        self._expansion = data.expansion(beta, support, np.broadcast_to(eta, (len(beta), eta.shape[1])))

    def _keep_history(self, learned: Sequence[Any], scales: Sequence[float]) -> None:
        self.objective_ = float(sum(s * one.objective for s, one in zip(scales, learned, strict=True)))
        self.duality_gap_ = max(one.gap for one in learned)
        self.n_iter_ = max(len(one.history) for one in learned)
        self.n_solves_ = sum(one.n_solves for one in learned)
        self.history_ = [
            {"output": c, "iteration": i, **asdict(step), "objective": scales[c] * step.objective}
            for c, one in enumerate(learned)
            for i, step in enumerate(one.history, start=self._first_iteration)
        ]

    # Samples in ----------------------------------------------------------------------------------------------------

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        """Return a training set as `fit` takes it, or raise saying what is wrong."""
        return self._read_input(X, y, sample_weight=sample_weight)

    def _read_input(self, X: MatrixLike, *y: TargetLike, sample_weight: SampleWeight = None, **checks: Any) -> FitInput:
        """Return a training set with targets of any kind, or without."""
        device = tensor_device(X) if self.device is None else str(require_device(self.device))
        found = self._validate(X, *y, reset=True, **checks)
        checked, target = found if y else (found, None)
        return FitInput(checked, target, self._sample_weight(sample_weight, checked), to_host(X), device)

    def _validate(self, X: MatrixLike, *y: TargetLike, reset: bool, **checks: Any) -> Any:
        """Check samples as scikit-learn does; (X, y) if y is given, be it None, else X."""
        if reset:
            self._rules, self._standardizer = self._input_rules(), None
        rules = self._rules  # parameters may have changed since the fit
        X, y = to_host(X), tuple(map(to_host, y))
        check_approximation(rules["approximation"], X)
        if rules["approximation"] is not None and is_streamed(X):
            return validate_rows(self, X, y, reset, **checks)
        if rules["kinds"] == ["numbers"] and not (rules["picked"] and hasattr(X, "columns")):
            dense = rules["dense"]
            if issparse(X) and dense is not None:
                raise TypeError(
                    f"X is sparse, which kernel {dense!r} does not read: give X.toarray(), or kernels that do, such as "
                    "Linear, Polynomial and Gaussian."
                )
            form: Settings = {
                "accept_sparse": "csr" if dense is None else False,
                "dtype": (np.float64, np.float32),
            }
            if rules.get("views") and not issparse(X):
                form["ensure_all_finite"] = "allow-nan"
        else:
            # Row numbers, sequences, frames with columns nobody reads: leave each column to the kernel that reads it.
            form = {"dtype": None, "ensure_all_finite": False}
            X = _as_column(X)
        with refuse_text(X):
            # Rows one after the other, as data frames do not have them: sums then round alike, and fits are the same.
            found = validate_data(self, X, *y, reset=reset, order="C", **form, **checks)
        if rules["approximation"] is not None and rules.get("views"):
            _refuse_gaps(found[0] if y else found, rules["approximation"])
        return found if self._standardizer is None else self._standardizer(found)

    def _input_rules(self) -> Settings:
        """What samples may be, by the parameters as they are now: what the kernels read, and whether in features."""
        entries = self._read_kernels()
        if not self._takes_subsets and any(isinstance(entry.kernel, Subsets) for entry in entries):
            raise ValueError(
                f"kernels={self.kernels!r}: {type(self).__name__} needs all kernels at once, and those of Subsets(...) "
                "are not stored; use MKLClassifier, MKLRegressor or MKLOneClass, or give a list of kernels."
            )
        # Past the kernels there may be the one gates live in.
        readers = zip(
            [*(entry.name for entry in entries), "gating_kernel"], self._kernels_take("accepts_sparse"), strict=False
        )
        return {
            "kinds": sorted(set(self._kernels_take("input_kind"))),
            "dense": next((name for name, sparse in readers if not sparse), None),
            "picked": all(entry.columns is not None for entry in entries),
            "approximation": self.approximation,
            # Whether samples may lack what a kernel reads; the kernels say so if they may not.
            "views": self.missing is not None and not any(isinstance(entry.kernel, Subsets) for entry in entries),
        }

    def _sample_weight(self, sample_weight: SampleWeight, X: MatrixLike) -> NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        sample_weight = to_host(sample_weight)
        try:
            given = np.asarray(sample_weight, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"sample_weight={reprlib.repr(sample_weight)}: give one number per sample, or None."
            ) from None
        if given.size > 0 and not given.any():
            raise ValueError("sample_weight is zero everywhere: at least one sample must count.")
        return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))

    # Predictions out -----------------------------------------------------------------------------------------------

    def _outputs(self, X: MatrixLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return self._outputs_of(self._validate(X, reset=False))

    def _outputs_of(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the outputs for validated samples, of shape (n_samples, outputs)."""
        values: NDArray[np.float64] = self._expansion.values(X) + self.intercept_
        return values

    @abstractmethod
    def _predictions(self, outputs: NDArray[np.float64]) -> AnyArray:
        """Return what outputs of shape (n_samples, outputs) predict."""

    def contributions(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return each kernel's share of the decision.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P), or (n_samples, P, classes) with several outputs
            Summed over the kernels, and with `intercept_` added, the decision function. The share of a view that a
            sample lacks is that of what stands in for it.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        terms: NDArray[np.float64] = self._expansion.terms(X)
        return terms[:, :, 0] if terms.shape[2] == 1 else terms

    def kernel_matrix(self, X: MatrixLike, Y: MatrixLike = None) -> NDArray[np.float64]:
        """Return the combined kernel between X and Y.

        Parameters
        ----------
        X, Y : array-like of shape (n_samples, n_features)
            Samples; ``Y=None`` stands for X.

        Returns
        -------
        ndarray of shape (len(X), len(Y)), or (classes, len(X), len(Y)) where every class has weights of its own
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        K: NDArray[np.float64] = self._expansion.combined(X, X if Y is None else self._validate(Y, reset=False))
        return K[0] if self.weights_.ndim == 1 else K

    def cost(self, costs: Any) -> float:
        """Return what a prediction costs: the number of support vectors times the active kernels' share of all costs.

        Parameters
        ----------
        costs : array-like of shape (P,)
            What evaluating each kernel costs.
        """
        check_is_fitted(self)
        given, costs = costs, numbers("costs", costs, len(self.kernel_names_))
        if np.any(costs < 0) or not costs.sum() > 0:
            raise ValueError(f"costs={given!r}: costs must not be negative, nor all zero.")
        return float(len(self.support_) * costs[self._expansion.active].sum() / costs.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            tags.input_tags.sparse = all(self._kernels_take("accepts_sparse"))
            tags.input_tags.string = "sequences" in self._kernels_take("input_kind")
            entries = self._read_kernels()
            tags.input_tags.allow_nan = self.missing is not None and any(entry.columns is not None for entry in entries)
        except (TypeError, ValueError):
            tags.input_tags.sparse = False
        return tags


def _has_probabilities(estimator: Estimator) -> bool:
    """Whether a classifier knows probabilities, or raise an AttributeError that says how to get them."""
    if estimator.calibration is None and not estimator._knows_probabilities:
        name = type(estimator).__name__
        tuned = "MKLClassifierCV" if name == "MKLClassifier" else "model_selection.PathSearchCV"
        raise AttributeError(
            f"{name} knows decision values, not probabilities: give calibration='sigmoid' or 'isotonic' before "
            f"fitting, or use {tuned}."
        )
    return True


class BaseMKLClassifier(ClassifierMixin, BaseMKL):
    """What classifiers share: the classes, and the one with the largest output."""

    classes_: AnyArray
    # How decision values become probabilities: the parameter, and what was fitted; whether it needs no parameter.
    calibration: Any = None
    _calibration: Calibration | None = None
    _knows_probabilities = False

    def _find_classes(self, y: AnyArray, weight: NDArray[np.float64] | None = None) -> AnyArray:
        """Return the classes of the samples that count, in order, or raise if y holds no classes or a single one."""
        check_classification_targets(y)
        classes: AnyArray = np.unique(y if weight is None else y[weight > 0])
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only, {classes.tolist()}: {type(self).__name__} needs at least two classes."
            )
        return classes

    def _fit_calibrated(self, given: FitInput, calibration: Calibration | None = None) -> Self:
        """Fit to validated samples; without a calibration to folds of them, too, if the parameter asks for it."""
        self._calibration = calibration
        if calibration is not None or self.calibration is None:
            return self._fit_validated(given)
        crossed = CrossFit(self, given, self._find_classes(given.y, given.weight))
        self._fit_validated(given)
        self._calibration = crossed.calibration()
        return self

    def _class_factors(self, y: TargetLike, weight: NDArray[np.float64], classes: AnyArray) -> NDArray[np.float64]:
        """Return the factor of C that `class_weight` gives each sample; ones where there is no such parameter."""
        return np.ones(len(y))

    def _count_support(self, y: TargetLike) -> None:
        labels = np.searchsorted(self.classes_, np.asarray(y)[self.support_])
        self.n_support_ = np.bincount(labels, minlength=len(self.classes_))

    def decision_function(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return one output per class; for two classes a single one of shape (n_samples,), positive for the second."""
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the probabilities of the classes, in the order of `classes_`, of shape (n_samples, classes)."""
        return self._probabilities(self.decision_function(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the logarithms of the probabilities of the classes, of shape (n_samples, classes)."""
        return np.asarray(np.log(self.predict_proba(X)))

    def _probabilities(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities that decision values stand for."""
        if self._calibration is None:
            raise NotFittedError(
                f"{type(self).__name__} was fitted without calibration and knows no probabilities: call 'fit' again."
            )
        return self._calibration.probabilities(outputs)

    def predict(self, X: MatrixLike) -> AnyArray:
        """Return the class of each sample."""
        return self._predictions(self._outputs(X))

    def _predictions(self, outputs: NDArray[np.float64]) -> AnyArray:
        one = outputs.shape[1] == 1
        return np.asarray(self.classes_[(outputs[:, 0] > 0).astype(int) if one else outputs.argmax(axis=1)])


def _refuse_gaps(X: MatrixLike, approximation: str) -> None:
    """Raise if samples lack something where kernels are features."""
    if not issparse(X) and X.dtype.kind == "f" and np.isnan(X.sum()) and np.isnan(X).any():
        raise ValueError(
            f"approximation={approximation!r}: X contains NaN. Views that samples lack are completed with exact "
            "kernels only: use approximation=None, or fill X in."
        )


def _as_column(X: MatrixLike) -> Any:
    """Row numbers and strings may come as a plain list: one column then."""
    if hasattr(X, "shape") and len(X.shape) != 1:
        return X
    X = np.asarray(X, dtype=object) if not hasattr(X, "shape") else np.asarray(X)
    return X.reshape(-1, 1) if X.ndim == 1 else X


def _call(estimator: Estimator, arguments: dict[str, str]) -> str:
    return f"{type(estimator).__name__}({', '.join(f'{key}={text}' for key, text in arguments.items())})"


def _shortened(value: Any) -> str:
    """Write a long list as its beginning, its end and how many items it has."""
    if not isinstance(value, list | tuple) or len(value) <= _SHOWN:
        return repr(value)
    return f"[{', '.join(map(repr, value[: _SHOWN - 1]))}, ..., {value[-1]!r} ({len(value)} in all)]"
