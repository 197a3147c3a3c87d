"""What all estimators share: parameters, samples in, one way to learn and to set what is fitted, predictions out."""

from __future__ import annotations

import reprlib
import warnings
from abc import ABC, abstractmethod, update_abstractmethods
from collections.abc import Sequence
from dataclasses import KW_ONLY, MISSING, asdict, dataclass, field, replace
from functools import partial
from inspect import signature
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from kernelmosaic._typing import (
    AnyArray,
    ArrayOrTensor,
    DType,
    Estimator,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import map_threads, require_device, tensor_device, to_host
from kernelmosaic.estimators._calibration import Calibration
from kernelmosaic.estimators._expansion import Expansion
from kernelmosaic.estimators._html import FittedSummaryMixin
from kernelmosaic.estimators._input import (
    DistinctSamples,
    FitInput,
    Standardizer,
    check_approximation,
    count_samples,
    is_streamed,
    level_of_caller,
    validate_rows,
)
from kernelmosaic.estimators._path import PathRule
from kernelmosaic.estimators._shared import fit_context
from kernelmosaic.estimators._training_set import KernelOptions, TrainingSet
from kernelmosaic.gram.missing import GATED, RULES
from kernelmosaic.kernels.base import Kernel, refuse_text
from kernelmosaic.kernels.graphs import graph_table
from kernelmosaic.kernels.subsets import Subsets
from kernelmosaic.kernels.views import Entry, PerColumn, default_kernels, read_kernels, view_names
from kernelmosaic.learning import Learner, Parameters, make_learner
from kernelmosaic.learning.certificate import AIM, Start
from kernelmosaic.learning.norms import numbers, read_fixed
from kernelmosaic.learning.ridge_weights import RidgeTargets
from kernelmosaic.machines import Machine
from kernelmosaic.machines.base import check_positive
from kernelmosaic.stacking import are_tables, check_row_names, stack_tables

Listed = TypeVar("Listed")


@dataclass_transform()
def parameters(cls: type[Listed]) -> type[Listed]:
    """Give an estimator a constructor for its parameters.

    These are the annotated names of the class, then those of its bases, base by base. A value that the class assigns to
    a parameter of a base without an annotation is its new default; a ``ClassVar`` is no parameter, nor is one of a base
    that comes later.
    """
    listed: dict[str, tuple[str, Any, bool]] = {}
    by_name = False
    for name, hint in cls.__annotations__.items():
        by_name = by_name or hint == "KW_ONLY"
        if not name.startswith("_"):
            listed[name] = (hint, vars(cls).get(name, MISSING), by_name)
    for base in cls.__bases__:
        for name, (hint, default, by_name) in getattr(base, "_listed", {}).items():
            listed.setdefault(name, (hint, vars(cls).get(name, default), by_name))
    own = {name: one for name, one in listed.items() if not one[0].startswith("ClassVar")}
    body: Settings = {name: field(default=default, kw_only=by_name) for name, (_, default, by_name) in own.items()}
    body["__annotations__"] = {name: hint for name, (hint, _, _) in own.items()}
    made: Any = dataclass(eq=False, repr=False, match_args=False)(type(cls.__name__, (), body))
    cls.__init__, cls._listed = made.__init__, listed  # type: ignore[method-assign, attr-defined]
    return update_abstractmethods(cls)


class KernelListMixin(BaseEstimator):
    """Reach into the list of kernels by their names, and print it as it was written."""

    kernels: KernelsLike

    # What ``kernels=None`` stands for.
    _default_kernels = staticmethod(default_kernels)

    def _read_kernels(self, X: MatrixLike = None, views: Settings | None = None) -> list[Entry]:
        """Return the kernels by name; where they depend on the samples, those for X, and for each of several tables."""
        return read_kernels(self.kernels, partial(self._kernels_of, X, views), X, views)

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        """Return what ``kernels=None`` stands for on columns of numbers, of X or of each of several tables."""
        return self._default_kernels()

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

    def _kernels_take(self, trait: str, X: MatrixLike = None) -> list[Any]:
        """A class attribute of every kernel."""
        kernels = [entry.kernel for entry in self._read_kernels(X)]
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


class KernelEstimator(FittedSummaryMixin, KernelListMixin, ABC):
    """What all estimators share: samples in, the kernels of a training set, and predictions of a fitted function."""

    # What parameters stand for where a subclass does not list them. Without `missing`, samples must have all views.
    missing: Any = None
    n_jobs: Any = None
    weights: ArrayOrTensor = None
    fixed_weights: Any = None
    l1_ratio: Any = 0.5
    # Of the Gram matrices; None leaves it to their number.
    _stack_dtype: DType = None
    _expansion: Expansion
    # Whether kernels may be too many to be stored.
    _takes_subsets = False
    # What samples the last fit took, which is what predictions take, and the scale it put them on.
    _rules: Settings
    _standardizer: Standardizer | None = None

    # Samples in ----------------------------------------------------------------------------------------------------

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        """Return a training set as `fit` takes it, or raise saying what is wrong."""
        return self._read_input(X, y, sample_weight=sample_weight)

    def _read_input(self, X: MatrixLike, *y: TargetLike, sample_weight: SampleWeight = None, **checks: Any) -> FitInput:
        """Return a training set with targets of any kind, or without."""
        check_row_names(X, y=y[0] if y else None, sample_weight=sample_weight)
        views, tables = None, {}
        # A list of matrices may be one of graphs.
        if are_tables(X) and "graphs" not in self._kernels_take("input_kind"):
            stacked = stack_tables(X)
            X, tables, views = *stacked, stacked.numbers
        if y and not checks.get("multi_output"):
            self._refuse_labels(y[0])
        device = tensor_device(X) if self.device is None else str(require_device(self.device))
        found = self._validate(X, *y, reset=True, **checks)
        self._rules["tables"] = tables
        checked, target = found if y else (found, None)
        weight = None if sample_weight is None else self._sample_weight(sample_weight, checked)
        return FitInput(checked, target, weight, to_host(X), device, views)

    def _refuse_labels(self, y: TargetLike) -> None:
        """Raise if samples have several labels, or a target of several columns."""
        ragged = isinstance(y, list | tuple) and len(y) > 0 and isinstance(y[0], list | tuple | set)
        width = getattr(y, "shape", (0,))[1:] or ((len(y[0]),) if ragged else (1,))
        if width[0] > 1 or len({len(one) for one in y} if ragged else ()) > 1:
            name = type(self).__name__
            raise ValueError(
                f"y should be a 1d array, one class per sample, and has several labels per sample: "
                f"DiscriminantMKLClassifier takes a matrix of zeros and ones (MultiLabelBinarizer makes one of lists), "
                f"and sklearn.multioutput.MultiOutputClassifier({name}()) fits one model per column."
            )

    def _validate(self, X: MatrixLike, *y: TargetLike, reset: bool, **checks: Any) -> MatrixLike:
        """Check samples as scikit-learn does; (X, y) if y is given, be it None, else X."""
        if reset:
            self._rules, self._standardizer = self._input_rules(X), None
        rules = self._rules  # parameters may have changed since the fit
        if not reset and are_tables(X) and "graphs" not in rules["kinds"]:
            X = stack_tables(X, rules["tables"]).X
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
            # Row numbers, sequences, graphs, frames with columns that no kernel reads: each kernel checks its own.
            form = {"dtype": None, "ensure_all_finite": False}
            X = _as_column(graph_table(X) if "graphs" in rules["kinds"] else X)
        with refuse_text(X):
            # Rows one after the other, as data frames do not have them: sums then round alike, and fits are the same.
            found = validate_data(self, X, *y, reset=reset, order="C", **form, **checks)
        if rules["approximation"] is not None and rules.get("views"):
            _refuse_gaps(found[0] if y else found, rules["approximation"])
        return found if self._standardizer is None else self._standardizer(found)

    def _input_rules(self, X: MatrixLike) -> Settings:
        """What samples may be, by the parameters as they are now: what the kernels read, and whether in features."""
        entries = self._read_kernels(X)
        if not self._takes_subsets and any(isinstance(entry.kernel, Subsets) for entry in entries):
            raise ValueError(
                f"kernels={self.kernels!r}: {type(self).__name__} needs all kernels at once, and those of Subsets(...) "
                "are not stored; use MKLClassifier, MKLRegressor or MKLOneClass, or give a list of kernels."
            )
        # Past the kernels there may be the one gates live in.
        readers = zip(
            [*(entry.name for entry in entries), "gating_kernel"], self._kernels_take("accepts_sparse", X), strict=False
        )
        return {
            "kinds": sorted(set(self._kernels_take("input_kind", X))),
            "dense": next((name for name, sparse in readers if not sparse), None),
            "picked": all(entry.columns is not None for entry in entries),
            "approximation": self.approximation,
            # Whether samples may lack what a kernel reads; the kernels say so if they may not.
            "views": self.missing is not None and not any(isinstance(entry.kernel, Subsets) for entry in entries),
        }

    def _sample_weight(self, sample_weight: SampleWeight, X: MatrixLike) -> NDArray[np.float64]:
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

    # Kernels of a training set ------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_positive("tol", self.tol)
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        if self.missing not in (None, *RULES, GATED):
            raise ValueError(f"missing={self.missing!r}: choose one of {', '.join(map(repr, RULES))}.")

    def _training_set(self, given: FitInput, counted: DistinctSamples) -> TrainingSet:
        options = self._kernel_options(len(counted.rows), given)
        return fit_context(self).training_set(options, given.X, given.original, counted)

    def _host_samples(self) -> int:
        """Up to how many samples the host is faster than a GPU, which waits for it between small steps."""
        return 2000

    def _kernel_options(self, n_samples: int, given: FitInput) -> KernelOptions:
        on_gpu = str(given.device).startswith("cuda") and self.approximation is None
        return KernelOptions(
            entries=self._read_kernels(given.table, given.views),
            normalize=self.normalize,
            approximation=self.approximation,
            rank=self.rank,
            random_state=self.random_state,
            memory_budget=self.memory_budget,
            device=None if on_gpu and n_samples <= self._host_samples() else given.device,
            dtype=self._stack_dtype,
            missing=self.missing,
            estimator=type(self).__name__,
        )

    def _names_of(self, data: TrainingSet) -> tuple[list[str], list[str]]:
        """Return the names of the kernels, and of the view that each reads."""
        kernels = getattr(data.kernel_set, "kernel_set", data.kernel_set)
        labels = list(getattr(data.table, "columns", range(data.samples.shape[1])))
        fitted = getattr(kernels, "fitted", None)
        # Kernels that are not stored are one view.
        return kernels.names, ["all columns"] if fitted is None else view_names(fitted, labels)

    def _set_kernel_names(self, data: TrainingSet) -> None:
        """Set the names of the kernels, and of the view that each reads."""
        self.kernel_names_, self._view_names = self._names_of(data)

    @property
    def view_weights_(self) -> dict[str, Any]:
        """The weights summed over the kernels of every view: a number, or one per class where classes have their own.

        Kernels that read the same columns are of one view. It is called what stands before a colon or a comma in the
        names of all its kernels, as :func:`~kernelmosaic.kernels.by_group` writes them; else its one kernel, or its
        columns.
        """
        check_is_fitted(self, "weights_")
        weights = np.asarray(self.weights_)
        if len(self._view_names) < weights.shape[-1]:
            weights = weights.sum(axis=-1, keepdims=True)
        found: dict[str, Any] = {}
        for name, one in zip(self._view_names, weights.T, strict=True):
            found[name] = found.get(name, 0.0) + (float(one) if one.ndim == 0 else one)
        return found

    @property
    def _shown_weights(self) -> NDArray[np.float64]:
        """The weights as pictures and comparisons of several fits read them."""
        return np.asarray(self.weights_, dtype=np.float64)

    # Predictions out -----------------------------------------------------------------------------------------------

    def _outputs(self, X: MatrixLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        return self._outputs_of(self._validate(X, reset=False))

    def _outputs_of(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the outputs for validated samples, of shape (n_samples, outputs)."""
        return np.asarray(self._expansion.values(X) + self.intercept_)

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
        terms = self._terms_of(self._validate(X, reset=False))
        return terms[:, :, 0] if terms.shape[2] == 1 else terms

    def _terms_of(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return each kernel's share of the outputs for validated samples, of shape (n_samples, P, outputs)."""
        return self._expansion.terms(X)

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
        K = self._combined(X, X if Y is None else self._validate(Y, reset=False))
        return K[0] if len(K) == 1 else K

    def _combined(self, X: MatrixLike, Y: MatrixLike) -> NDArray[np.float64]:
        """Return the combined kernel between validated samples, one for every set of weights."""
        one = replace(self._expansion, eta=self._expansion.eta[:1])  # where the outputs share their weights
        return (one if self.weights_.ndim == 1 else self._expansion).combined(X, Y)

    def cost(self, costs: ArrayLike) -> float:
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            tags.input_tags.sparse = all(self._kernels_take("accepts_sparse"))
            tags.input_tags.string = "sequences" in self._kernels_take("input_kind")
            entries = self._read_kernels()
            tags.input_tags.allow_nan = self.missing is not None and any(entry.columns is not None for entry in entries)
        except (TypeError, ValueError):
            tags.input_tags.sparse = False
        return tags


@parameters
class BaseMKL(KernelEstimator):
    """One weight per kernel, learned or given, with the machine that a subclass names."""

    kernels: KernelsLike = None
    _: KW_ONLY
    normalize: str | None = "trace"
    approximation: str | None = None
    rank: int | Sequence[int] = 500
    tol: float = 1e-3
    max_iter: int = 100
    memory_budget: float | None = None
    device: str | None = None
    random_state: Seed = None
    verbose: bool = False

    # Whether an output is Σ_m η_m Σ_i β_i k_m(x, x_i) + b, of `weights_`, `dual_coef_` and `intercept_`.
    _has_plain_outputs = True
    # Whether its function follows from these alone, so that a fit may leave it to `_add_function`.
    _has_plain_function = True
    # Gates count their start as iteration zero.
    _first_iteration = 1
    # Whether a device may learn fits to several folds and values together.
    _is_batched = False
    # Along which parameter a search goes; None where there is no such parameter.
    _path_rule: ClassVar[PathRule | None] = None

    # What a subclass names -----------------------------------------------------------------------------------------

    @abstractmethod
    def _machines(self, y: TargetLike, weight: NDArray[np.float64]) -> list[Machine]:
        """Return one machine per output, for the targets and weights of distinct samples."""

    def _prepare(self, given: FitInput) -> None:
        """Set what `_machines` and `_predictions` read of a training set."""

    # Fitting -------------------------------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples and their targets.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features), or dict or list of such tables
            Samples; several tables have the same rows. Names of rows, by a pandas index of anything but integers, must
            be the same in the same order here, in `y` and in `sample_weight`. With `approximation` also a memory map,
            the path of a Parquet file, or a Dask collection.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Classes of a classifier, numbers of a regression.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, or of what an estimator has in its place, sample by sample.

        Returns
        -------
        self
        """
        return self._fit_calibrated(self._validated(X, y, sample_weight))

    def _fit_validated(self, given: FitInput, keep_function: bool = True) -> Self:
        """Fit to validated samples, without probabilities; `keep_function` as in `_fit`."""
        self._prepare(given)
        self._fit(given, keep_function)
        self.n_support_ = np.array([len(self.support_)])
        return self

    def _fit_calibrated(self, given: FitInput, calibration: Calibration | None = None) -> Self:
        """Fit to validated samples; where there are probabilities, these are by `calibration` if it is given."""
        return self._fit_validated(given)

    def _fit_scaled(self, given: FitInput, scale: bool, calibration: Calibration | None = None) -> Self:
        """Fit the choice of a search, to standardised columns if `scale` says so."""
        return self._fit_calibrated(self._scaled(given, scale), calibration)

    def _scaled(self, given: FitInput, scale: bool) -> FitInput:
        """Return the samples with standardised columns if `scale` says so, and note how new ones are standardised."""
        self._standardizer = given.standardizer(self._read_kernels(given.table, given.views)) if scale else None
        return given if self._standardizer is None else replace(given, X=self._standardizer(given.X))

    def _add_function(self, given: FitInput) -> None:
        """Set the function of a fit to these validated samples that has kept none, by what it has learned."""
        data = self._training_set(given, count_samples(self.approximation, given.X, given.y, given.weight))
        place = np.zeros(given.X.shape[0], dtype=np.intp)
        place[data.kept] = np.arange(len(data.kept))
        beta, support = np.zeros((len(self.dual_coef_), len(data.kept))), place[self.support_]
        beta[:, support] = self.dual_coef_
        eta = np.atleast_2d(self.weights_)
        self._expansion = data.expansion(beta, support, np.broadcast_to(eta, (len(beta), eta.shape[1])))

    def _fit(self, given: FitInput, keep_function: bool = True) -> None:
        """Fit to validated samples; without `keep_function` there are attributes, and no predictions."""
        self._check_parameters()
        context = fit_context(self)
        counted = context.counted(self.approximation, given)
        machines = self._machines(None if given.y is None else given.y[counted.rows], counted.weight)
        data = context.common_set or self._training_set(given, counted)
        if self.verbose and data.stack.form:
            print(f"{type(self).__name__}: {data.stack.form}.", flush=True)
        parameters = self._parameters()
        if self.fixed_weights:
            parameters = replace(parameters, fixed=read_fixed(self.fixed_weights, *self._names_of(data)))
        if isinstance(self.weights, str) and self.weights == "loo" and not data.stack.is_implicit:
            targets = self._ridge_targets(given.y[counted.rows] if given.y is not None else None, counted.weight)
            if targets is not None:
                parameters = replace(parameters, weights=fit_context(self).loo_weights(data, targets))
        learned, warning = self._learn(data, machines, parameters)
        if keep_function:
            learned = self._without_idle(data, machines, parameters, learned)
        self._set_kernel_names(data)
        beta, support = self._set_fitted(data, learned, machines)
        if keep_function:
            self._set_function(data, learned, beta, support)
        if warning is not None:
            warnings.warn(f"{type(self).__name__}{warning}", ConvergenceWarning, stacklevel=level_of_caller())

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
            learns_C=getattr(self, "C", None) == "learn",
        )

    def _ridge_targets(self, y: TargetLike, weight: NDArray[np.float64]) -> RidgeTargets | None:
        """Return the targets of the least-squares machine by which ``weights="loo"`` are learned; None without one."""
        return None

    def _learn(
        self, data: TrainingSet, machines: list[Machine], parameters: Parameters
    ) -> tuple[list[Any], str | None]:
        """Return what was learned for each machine, and what to warn of after the estimator's name, if anything."""
        learner = make_learner(parameters, data.stack, machines)
        with data.threads():
            found = self._learn_each(data, machines, learner)
            learned = fit_context(self).certified(self, data, machines, learner, found)
        hidden = any(one.gap > self.tol >= rough.gap for one, rough in zip(learned, found, strict=True))
        if hidden and (precise := fit_context(self).in_double(data)) is not None:
            return self._learn(precise, machines, parameters)
        return learned, self._gap_warning(learner, max(learned, key=attrgetter("gap")))

    def _without_idle(
        self, data: TrainingSet, machines: list[Machine], parameters: Parameters, learned: list[Any]
    ) -> list[Any]:
        """Return what was learned without the kernels that the certificate allows to have no weight."""
        return learned

    def _learn_each(self, data: TrainingSet, machines: Sequence[Any], learner: Learner) -> list[Any]:
        """Return what was learned for each machine, as the learner sees it."""
        context, workers = fit_context(self), self._workers(data, 1)
        starts = context.starts(data, learner, machines)
        if workers == 1 or len(machines) == 1:
            starts = [replace(start, kernel=data.kernel) for start in starts]
        tasks = list(zip(machines, starts, strict=True))
        found = list(map_threads(lambda task: learner.learn(data.stack, *task), tasks, workers))
        context.keep(data, learner, found)
        return found

    def _workers(self, data: TrainingSet, default: int) -> int:
        """Return how many threads `n_jobs` asks for; one where they would be in each other's way."""
        wanted = default if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        return wanted if wanted == 1 or (data.shareable and not self.verbose) else 1

    def _gap_warning(self, learner: Any, loosest: Any) -> str | None:
        """Return what to say of a gap above the tolerance, None if there is none."""
        if loosest.gap <= self.tol:
            return None
        ended = len(loosest.history) >= self.max_iter or learner.stalled is None
        return (
            f" stopped at a relative duality gap of {loosest.gap:.2g}, above tol={self.tol:g}: "
            f"{learner.advice if ended else learner.stalled}"
        )

    def _set_fitted(
        self, data: TrainingSet, learned: list[Any], machines: list[Machine]
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Set the fitted attributes; return the coefficients of distinct samples, and which are not zero."""
        # A joint machine has one column of coefficients per class.
        beta = np.concatenate([np.atleast_2d(one.solution.beta.T) for one in learned])
        support = np.flatnonzero(np.any(beta != 0, axis=0))
        support = support[np.argsort(data.kept[support])]
        self.support_ = data.kept[support]
        self.support_fraction_ = len(support) / len(data.kept)
        self.dual_coef_ = beta[:, support]
        self.intercept_ = np.concatenate([np.atleast_1d(one.solution.intercept) for one in learned])
        self.weights_ = learned[0].weights if len(learned) == 1 else np.array([one.weights for one in learned])
        self._set_history(learned, [machine.objective_scale for machine in machines])
        return beta, support

    def _set_function(
        self, data: TrainingSet, learned: list[Any], beta: NDArray[np.float64], support: NDArray[np.intp]
    ) -> None:
        # The classes of a joint machine may share their weights.
        eta = np.concatenate([np.atleast_2d(one.weights) for one in learned])
        self._expansion = data.expansion(beta, support, np.broadcast_to(eta, (len(beta), eta.shape[1])))

    def _set_history(self, learned: Sequence[Any], scales: Sequence[float]) -> None:
        self.objective_ = float(sum(s * one.objective for s, one in zip(scales, learned, strict=True)))
        self.duality_gap_ = max(one.gap for one in learned)
        self.n_iter_ = max(len(one.history) for one in learned)
        self.n_solves_ = sum(one.n_solves for one in learned)
        self.history_ = [
            {"output": c, "iteration": i, **asdict(step), "objective": scales[c] * step.objective}
            for c, one in enumerate(learned)
            for i, step in enumerate(one.history, start=self._first_iteration)
        ]

    @abstractmethod
    def _predictions(self, outputs: NDArray[np.float64]) -> AnyArray:
        """Return what outputs of shape (n_samples, outputs) predict."""


@parameters
class WeightedMKL(BaseMKL):
    """The parameters of estimators that learn the weights of one machine."""

    _: KW_ONLY
    norm: float | str = 1
    l1_ratio: float = 0.5
    weights: ArrayOrTensor = None
    fixed_weights: Any = None
    penalties: Any = None
    penalty_power: float = 0.5
    slack: int = 1
    solver: str = "newton"
    missing: str = "neighbors"

    _takes_subsets = True
    _is_batched = True

    def _without_idle(
        self, data: TrainingSet, machines: list[Machine], parameters: Parameters, learned: list[Any], most: float = 0.05
    ) -> list[Any]:
        """Return what was learned without the kernels that the certificate allows to have no weight.

        Of weights of sum one, those below a share `most` of the largest are set to zero and the machine is solved
        there: if the gap is within `tol` without them, they are left out; if not, the smaller half of them is tried.
        """
        sparse = self.norm == 1 and parameters.weights is None and parameters.fixed is None and self.solver == "newton"
        if not sparse or parameters.learns_C or data.stack.is_implicit or not np.isfinite(getattr(self, "C", 1.0)):
            return learned
        learner: Any = make_learner(parameters, data.stack, machines)
        # One step moves the weights that are left; what takes more of them needs those that were left out.
        short = type(learner)(replace(learner.options, max_iter=2))
        found = []
        for machine, one in zip(machines, learned, strict=True):
            small = np.flatnonzero((one.weights > 0) & (one.weights < most * one.weights.max(initial=0.0)))
            small = small[np.argsort(one.weights[small])]
            for idle in (small, small[: len(small) // 2]):
                if one.gap > self.tol or one.weights.ndim > 1 or len(idle) == 0:
                    continue
                rest = np.where(np.isin(np.arange(len(one.weights)), idle), 0.0, one.weights)
                start = Start(rest, one.solution.beta, machine)
                with data.threads():
                    less = short.learn(data.stack, machine, start)
                    if less.gap <= self.tol and not less.weights[idle].any():
                        less = less.certified(data.stack, data.sizes(), machine, learner)
                if less.gap <= self.tol and not less.weights[idle].any():
                    history = [*one.history, less.history[-1]]
                    one = replace(less, n_solves=one.n_solves + less.n_solves, history=history)
                    break
            found.append(one)
        return found


def _refuse_gaps(X: MatrixLike, approximation: str) -> None:
    """Raise if samples lack something where kernels are features."""
    if not issparse(X) and X.dtype.kind == "f" and np.isnan(X.sum()) and np.isnan(X).any():
        raise ValueError(
            f"approximation={approximation!r}: X contains NaN. Views that samples lack are completed with exact "
            "kernels only: use approximation=None, or fill X in."
        )


def _as_column(X: MatrixLike) -> MatrixLike:
    """Row numbers and strings may come as a plain list: one column then."""
    if hasattr(X, "shape") and len(X.shape) != 1:
        return X
    X = np.asarray(X, dtype=object) if not hasattr(X, "shape") else np.asarray(X)
    return X.reshape(-1, 1) if X.ndim == 1 else X


def _call(estimator: Estimator, arguments: dict[str, str]) -> str:
    return f"{type(estimator).__name__}({', '.join(f'{key}={text}' for key, text in arguments.items())})"


def _shortened(value: object) -> str:
    """Write a long list as its first three items, its last and how many it has."""
    if not isinstance(value, list | tuple) or len(value) <= 4:
        return repr(value)
    return f"[{', '.join(map(repr, value[:3]))}, ..., {value[-1]!r} ({len(value)} in all)]"
