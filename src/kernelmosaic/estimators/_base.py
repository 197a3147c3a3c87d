"""What all estimators share: parameters, samples in, one way to learn and to set what is fitted, predictions out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from kernelmosaic._checks import check_choice, check_positive, warn_caller
from kernelmosaic._typing import (
    AnyArray,
    Array,
    ArrayOrTensor,
    DType,
    KernelsLike,
    Mask,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import require_device, tensor_device, to_host
from kernelmosaic.engine.fit import Fit, Method, Recipe, WeightMethod, fit
from kernelmosaic.engine.samples import (
    FitInput,
    Standardizer,
    is_streamed,
    known_categories,
    read_sample_weight,
    read_targets,
    validate_rows,
    warn_of_unseen,
)
from kernelmosaic.engine.tasks import PathRule, Task
from kernelmosaic.engine.training_set import KernelOptions, active_store
from kernelmosaic.estimators.card import summary_html
from kernelmosaic.frames import is_sparse, read_frame, refuse_times, time_columns
from kernelmosaic.gram.missing import GATED, RULES, first_columns
from kernelmosaic.kernels.base import Kernel, object_table, refuse_text
from kernelmosaic.kernels.graphs import graph_table
from kernelmosaic.kernels.matrices import Precomputed, length_of, read_new_rows
from kernelmosaic.kernels.views import Entry, PerColumn, default_kernels, lay_specs, read_kernels
from kernelmosaic.learning.certificate import AIM
from kernelmosaic.learning.factory import Parameters
from kernelmosaic.learning.norms import numbers
from kernelmosaic.stacking import (
    StackedViews,
    are_tables,
    by_view,
    check_row_names,
    mark_lacking,
    refuse_annotated,
    several_tables,
    stack_tables,
)


class KernelEstimator(BaseEstimator, ABC):
    """What all estimators share: a list of kernels, samples in, and predictions of a fitted function."""

    # The parameters that are read here. Every subclass lists its own in its `__init__`.
    kernels: KernelsLike
    normalize: str | None
    approximation: str | None
    rank: Any
    tol: float
    memory_budget: float | None
    device: str | None
    random_state: Seed
    # Of subclasses without this parameter, samples must have all views.
    missing: Any = None
    # Subclasses without this parameter learn one machine after the other.
    n_jobs: Any = None
    # Whether the sum of all weights is set by the norm; else it depends on the number of samples.
    _has_normed_weights: ClassVar[bool] = True
    # Of the Gram matrices; None leaves it to their number.
    _stack_dtype: DType = None
    # The fitted function.
    function_: Any
    # What samples the last fit took, which is what predictions take, and the scale it put them on.
    _rules: Settings
    _standardizer: Standardizer | None = None

    def read_kernels(self, X: MatrixLike = None, views: Settings | None = None) -> list[Entry]:
        """Return the kernels by name; where they depend on the samples, those for X, and for each of several tables."""
        return read_kernels(self.kernels, partial(self._kernels_of, X, views), X, views)

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        """Return the kernels of ``kernels=None`` on columns of numbers, of X or of each of several tables."""
        return default_kernels()

    def get_params(self, deep: bool = True) -> Settings:
        """Return the parameters; if deep, also the kernels, ``kernels__name``, and theirs, ``kernels__name__width``."""
        params: Settings = super().get_params(deep=False)
        entries: list[Entry] = []
        if deep and self.kernels is not None:
            with suppress(TypeError, ValueError):  # a list that is none, which `fit` will say
                entries = self.read_kernels()
        for entry in entries:
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
        if not nested:
            return self
        known = {entry.name: entry for entry in self.read_kernels()}
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
        return self

    def _kernels_take(self, trait: str, entries: Sequence[Entry] | None = None) -> list[Any]:
        """A class attribute of every kernel, by default of those that depend on no samples."""
        if self.kernels is None and entries is None:  # without names, which take longer than a prediction
            return [getattr(kernel, trait) for kernel in self._kernels_of(None, None)]
        kernels = [entry.kernel for entry in (self.read_kernels() if entries is None else entries)]
        return [getattr(k.kernel if isinstance(k, PerColumn) else k, trait) for k in kernels]

    if hasattr(BaseEstimator, "_get_fitted_attr_html"):
        # In the estimator's own box, and so also where it is a step of a pipeline or what a search found.
        def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
            attributes = super()._get_fitted_attr_html(doc_link)
            table = attributes._repr_html_inner()
            attributes._repr_html_inner = lambda: f"{table}{summary_html(self)}"
            return attributes

    else:  # before scikit-learn 1.9: below the diagram

        def _repr_html_inner(self) -> str:
            return f"{super()._repr_html_inner()}{summary_html(self)}"

        def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
            bundle: dict[str, str] = super()._repr_mimebundle_(**options)
            if "text/html" in bundle:
                bundle["text/html"] += summary_html(self)
            return bundle

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # scikit-learn's printer would write kernels out as constructor calls, and a precomputed one with its matrix.
        changed = [
            (key, value)
            for key, parameter in signature(type(self)).parameters.items()
            if repr(value := getattr(self, key)) != repr(parameter.default)
        ]
        for written in (repr, _shortened):
            text = f"{type(self).__name__}({', '.join(f'{key}={written(value)}' for key, value in changed)})"
            if len(text) <= N_CHAR_MAX:
                return text
        return text[: max(N_CHAR_MAX - 4, 0)] + "...)"

    # Samples in ----------------------------------------------------------------------------------------------------

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        """Return a training set as `fit` takes it, or raise saying what is wrong."""
        return self._read_input(X, y, sample_weight=sample_weight)

    def _read_input(self, X: MatrixLike, *y: TargetLike, sample_weight: SampleWeight = None, **checks: Any) -> FitInput:
        """Return a training set with targets of any kind, or without."""
        views, tables = None, {}
        # Rows of arrays have no names, and an array is one table.
        if not all(isinstance(one, np.ndarray | None) for one in (X, *y, sample_weight)):
            refuse_annotated(X)
            check_row_names(X, y=y[0] if y else None, sample_weight=sample_weight)
            if are_tables(X) and not _OBJECTS.intersection(self._kernels_take("input_kind")):
                stacked = stack_tables(X)
                X, tables, views = *stacked, stacked.numbers
        if y and not checks.get("multi_output"):
            self._refuse_labels(y[0])
        device = tensor_device(X) if self.device is None else str(require_device(self.device))
        found = self._validate(X, *y, reset=True, views=views, **checks)
        checked, target = found if y else (found, None)
        self._rules["tables"] = tables
        weight = None if sample_weight is None else read_sample_weight(sample_weight, checked)
        given = FitInput(checked, target, weight, to_host(X), device, views)
        if "table" in self._rules["kinds"]:
            self._rules["categories"] = known_categories(self.read_kernels(given.table, views), given)
        return given

    def _refuse_labels(self, y: TargetLike) -> None:
        """Raise if samples have several labels, or a target of several columns."""
        ragged = isinstance(y, list | tuple) and len(y) > 0 and isinstance(y[0], list | tuple | set)
        widths = {len(one) for one in y} if ragged else set(getattr(y, "shape", ())[1:2])
        if len(widths) > 1 or max(widths, default=1) > 1:
            raise ValueError(
                "y should be a 1d array, one class per sample, and has several labels per sample: "
                "DiscriminantMKLClassifier takes a matrix of zeros and ones (MultiLabelBinarizer makes one of lists), "
                f"and sklearn.multioutput.MultiOutputClassifier({type(self).__name__}()) fits one model per column."
            )

    def _validate(
        self, X: MatrixLike, *y: TargetLike, reset: bool, views: Settings | None = None, **checks: Any
    ) -> MatrixLike:
        """Check samples as scikit-learn does; (X, y) if y is given, also if it is None, else X.

        At a fit, `views` are the column numbers of each table, where several were given.
        """
        matrices = {} if reset else self._rules.get("matrices", {})
        if matrices and not self._has_widths_of_fit(X):
            new_rows = read_new_rows(X, matrices)
            if new_rows is not None:
                return new_rows
        return self._validate_table(X, *y, reset=reset, views=views, **checks)

    def _has_widths_of_fit(self, X: MatrixLike) -> bool:
        """Whether samples have as many columns as those of the fit, in every table: then these are row numbers."""
        if not are_tables(X) or isinstance(X, StackedViews):
            return np.shape(X)[1:] == (self.n_features_in_,)
        tables = self._rules["tables"]
        if not isinstance(X, Mapping):
            X = {f"view{place}": table for place, table in enumerate(X)}
        return bool(tables) and all(
            name in tables and np.shape(table)[1:] == (len(tables[name]),) for name, table in X.items()
        )

    def _validate_table(
        self, X: MatrixLike, *y: TargetLike, reset: bool, views: Settings | None = None, **checks: Any
    ) -> MatrixLike:
        """Check samples that are rows of a table, or of several."""
        if reset:
            self._rules, self._standardizer = self._input_rules(X), None
        rules = self._rules  # parameters may have changed since the fit
        if not reset and not isinstance(X, np.ndarray):
            refuse_annotated(X)
            if are_tables(X) and not _OBJECTS.intersection(rules["kinds"]):
                X = stack_tables(X, rules["tables"]).X
        X, y = to_host(X), tuple(map(to_host, y))
        if is_streamed(X) and rules["approximation"] is not None:
            return validate_rows(self, X, y, reset, **checks)
        if is_streamed(X) and not isinstance(X, np.memmap):
            raise ValueError(
                f"X={X!r}: samples are read from files with approximation='nystroem' or 'fourier' only; "
                "load them, or choose one of these."
            )
        names = getattr(X, "columns", None) if issparse(X) else None
        self._refuse_times(X, reset, views)
        y = tuple(read_targets(target, checks.get("y_numeric", False)) for target in y)
        X, form = self._array_form(X, names)
        with refuse_text(X), warnings.catch_warnings() if names is not None else nullcontext():
            if names is not None:  # scikit-learn reads names of data frames only
                warnings.filterwarnings("ignore", "X does not have valid feature names")
            # Rows one after the other, as data frames do not have them: sums then round alike, and fits are the same.
            found = validate_data(self, X, *y, reset=reset, order="C", **form, **checks)
        checked, target = found if y else (found, None)
        if names is not None:
            self._check_names(names, reset)
        if rules["approximation"] is not None and rules.get("views"):
            _refuse_gaps(checked, rules["approximation"])
        if not reset and rules.get("categories"):
            labels: Any = getattr(self, "feature_names_in_", range(self.n_features_in_))
            warn_of_unseen(rules["categories"], checked, labels)
        if names is not None and (several_tables(X) or X.lacking):
            if reset:
                rules["gaps"] = first_columns(lay_specs(self.read_kernels(X, views), X), X.tables)
            checked = self._marked(checked, X.lacking)
        checked = checked if self._standardizer is None else self._standardizer(checked)
        return (checked, target) if y else checked

    def _array_form(self, X: MatrixLike, names: NDArray[np.object_] | None) -> tuple[MatrixLike, Settings]:
        """Return samples, and what scikit-learn's check is to make of them and to allow."""
        rules = self._rules
        may_hold_others = hasattr(X, "columns") or getattr(X, "dtype", None) == np.dtype(object)
        if rules["kinds"] != ["numbers"] or (rules["picked"] and names is None and may_hold_others):
            # Row numbers, sequences, graphs, tables with columns that no kernel reads: each kernel checks its own.
            table = read_frame(X)
            if "graphs" in rules["kinds"]:
                table = graph_table(X)
            elif "objects" in rules["kinds"]:
                table = object_table(X)
            # Row numbers and strings may come as a plain list: one column then.
            if not hasattr(table, "shape"):
                table = np.asarray(table, dtype=object)
            if len(table.shape) == 1:
                table = np.asarray(table).reshape(-1, 1)
            return table, {"dtype": None, "ensure_all_finite": False}
        is_scarce = is_sparse(X)
        if is_scarce and rules["dense"] is not None and not issparse(X):
            # A frame keeps its columns sparse to save memory; each of them may be dense as well.
            is_scarce = False
        if not is_scarce:
            X = read_frame(X)
        if issparse(X) and rules["dense"] is not None:
            raise TypeError(
                f"X is sparse, which kernel {rules['dense']!r} does not read: give X.toarray(), or kernels that do, "
                "such as Linear, Polynomial and Gaussian."
            )
        form: Settings = {
            "accept_sparse": "csr" if rules["dense"] is None else False,
            "dtype": (np.float64, np.float32),
        }
        # Of sparse samples, those with names have tables that a row can lack; gates read means of dense ones.
        if rules.get("views") and (not is_scarce or (names is not None and not rules["gated"])):
            form["ensure_all_finite"] = "allow-nan"
        return X, form

    def _refuse_times(self, X: MatrixLike, reset: bool, views: Settings | None) -> None:
        """Raise if a column that is read as numbers holds dates, spans of time, periods or intervals."""
        times = time_columns(X)
        if reset:
            self._rules["times"] = self.columns_without_numbers(X, views) if times else []
        refuse_times(X, {j: kind for j, kind in times.items() if j not in self._rules["times"]})

    def columns_without_numbers(self, X: MatrixLike, views: Settings | None = None) -> list[int]:
        """Return the numbers of the columns that no kernel of numbers reads."""
        read: set[int] = set()
        for spec in lay_specs(self.read_kernels(X, views), X):
            if spec.kernel.input_kind == "numbers":
                read.update(range(X.shape[-1]) if spec.columns is None else spec.columns.tolist())
        return [j for j in range(X.shape[-1]) if j not in read]

    def _marked(self, X: MatrixLike, lacking: Mapping[str, Mask]) -> MatrixLike:
        """Return sparse samples with NaN in every view of the tables that they lack."""
        firsts, across = self._rules.get("gaps", ({}, {}))
        for table in lacking:
            if table in across:
                raise ValueError(
                    f"kernel {across[table]!r} reads columns of several tables, of which samples lack {table!r}: give "
                    "each table kernels of its own."
                )
        return mark_lacking(X, lacking, firsts)

    def _check_names(self, names: NDArray[np.object_], reset: bool) -> None:
        """Keep the names of the columns of a sparse table, or raise if they are not those of the fit."""
        if reset:
            self.feature_names_in_ = names
        known = list(getattr(self, "feature_names_in_", names))
        if known != list(names):
            j = next(j for j, (own, name) in enumerate(zip(known, names, strict=True)) if own != name)
            raise ValueError(
                f"X: column {j} is {names[j]!r}, but {known[j]!r} in the training set; give the columns in the order "
                "of the training set, as views_from_anndata(..., genes=model.feature_names_in_) does."
            )

    def _input_rules(self, X: MatrixLike) -> Settings:
        """What samples may be, by the parameters as they are now: what the kernels read, and whether in features."""
        entries = self.read_kernels(X)
        # After the kernels there may be that of the gates.
        names = [*(entry.name for entry in entries), "gating_kernel"]
        readers = zip(names, self._kernels_take("accepts_sparse", entries), strict=False)
        return {
            "kinds": sorted(set(self._kernels_take("input_kind", entries))),
            "dense": next((name for name, sparse in readers if not sparse), None),
            "matrices": self._lengths_of_matrices(entries),
            "picked": all(entry.columns is not None for entry in entries),
            "approximation": self.approximation,
            "gated": self.missing == GATED,
            # Whether samples may lack what a kernel reads; else the kernels raise.
            "views": self.missing is not None,
        }

    def _lengths_of_matrices(self, entries: Sequence[Entry]) -> dict[str, int]:
        """Return how many rows the matrix of every kernel has; nothing where new rows cannot be given as blocks."""
        # Gates read the samples themselves.
        if hasattr(self, "gating_columns"):
            return {}
        matrices = {entry.name: entry.kernel for entry in entries if isinstance(entry.kernel, Precomputed)}
        if len(matrices) < len(entries):
            return {}
        return {name: length_of(matrix.K) for name, matrix in matrices.items()}

    def read(self, X: MatrixLike) -> MatrixLike:
        """Return samples as the fitted kernels read them, or raise if they are not like those of the fit.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        array or sparse matrix of shape (n_samples, n_features)
            On the scale of the training samples.
        """
        check_is_fitted(self)
        return self._validate(X, reset=False)

    def scaled(self, given: FitInput, scale: bool) -> FitInput:
        """Return the samples with standardised columns if `scale`, and keep the standardizer for new ones."""
        self._standardizer = given.standardizer(self.read_kernels(given.table, given.views)) if scale else None
        return given if self._standardizer is None else replace(given, X=self._standardizer(given.X))

    # Kernels of a training set ------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_positive("tol", self.tol)
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        if self.missing not in (None, GATED):
            check_choice("missing", self.missing, RULES, ", or None where no sample lacks a view")
        self._check_rank()

    def _gives_rank(self) -> bool:
        """Whether `rank` has another value than its default."""
        is_number = isinstance(self.rank, int | float | np.number) and not isinstance(self.rank, bool)
        return not is_number or self.rank != DEFAULT_RANK

    def _check_rank(self) -> None:
        """Raise if a rank is given for kernels that are exact."""
        if self.approximation is None and self._gives_rank():
            raise ValueError(
                f"rank={self.rank!r}: exact kernels have no rank; give approximation='nystroem', 'leading' or "
                "'fourier', too, or leave rank out."
            )

    def kernel_options(self, given: FitInput) -> KernelOptions:
        entries, name = self.read_kernels(given.table, given.views), type(self).__name__
        same = ("normalize", "approximation", "rank", "random_state", "memory_budget", "missing")
        own = {parameter: getattr(self, parameter) for parameter in same}
        return KernelOptions(entries, device=given.device, dtype=self._stack_dtype, estimator=name, **own)

    @property
    def view_weights_(self) -> dict[str, Any]:
        """The weights summed over the kernels of every view: a number, or one per class where classes have their own.

        Kernels that read the same columns are of one view. It is called what stands before a colon or a comma in the
        names of all its kernels, as :func:`~kernelmosaic.kernels.by_group` writes them; else its one kernel, or its
        columns.
        """
        check_is_fitted(self, "weights_")
        return by_view(self.weights_, self.view_names_)

    @property
    def weight_shares_(self) -> Array:
        """The weights as pictures and comparisons of several fits read them."""
        return np.asarray(self.weights_, dtype=np.float64)

    # Predictions out -----------------------------------------------------------------------------------------------

    def _outputs(self, X: MatrixLike) -> Array:
        X = self.read(X)
        return np.asarray(self.function_.outputs(X))

    def contributions(self, X: MatrixLike) -> Array:
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
        X = self.read(X)
        terms = np.asarray(self.function_.terms(X))
        return terms[:, :, 0] if terms.shape[2] == 1 else terms

    def kernel_matrix(self, X: MatrixLike, Y: MatrixLike = None) -> Array:
        """Return the combined kernel between X and Y.

        Parameters
        ----------
        X, Y : array-like of shape (n_samples, n_features)
            Samples; ``Y=None`` means X.

        Returns
        -------
        ndarray of shape (len(X), len(Y)), or (classes, len(X), len(Y)) where every class has weights of its own
        """
        X = self.read(X)
        K = np.asarray(self.function_.combined(X, X if Y is None else self._validate(Y, reset=False)))
        return K[0] if len(K) == 1 else K

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
        return float(len(self.support_) * costs[self.function_.expansion.active].sum() / costs.sum())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            entries = None if self.kernels is None else self.read_kernels()
            tags.input_tags.sparse = all(self._kernels_take("accepts_sparse", entries))
            tags.input_tags.string = "sequences" in self._kernels_take("input_kind", entries)
            has_columns = any(entry.columns is not None for entry in entries or ())
            tags.input_tags.allow_nan = self.missing is not None and has_columns
        except (TypeError, ValueError):
            tags.input_tags.sparse = False
        return tags


#: The default of `rank` in all estimators that have it.
DEFAULT_RANK = 500

#: Kinds of samples that may come as a list, each item one sample, be it a matrix.
_OBJECTS = {"graphs", "objects"}


class BaseMKL(KernelEstimator):
    """One weight per kernel, learned or given, with the machine that a subclass names."""

    max_iter: int
    verbose: bool
    # The parameters of weights that are learned for machines. Subclasses that replace `_method` need not have them.
    norm: float | str
    weights: ArrayOrTensor
    fixed_weights: Any
    penalties: Any
    penalty_power: float
    slack: int
    solver: str
    # Only classifiers have this parameter, which ``solver="easymkl"`` reads.
    easymkl_lambda: float = 0.1

    # Along which parameter a search goes; None where there is no such parameter.
    path_rule: ClassVar[PathRule | None] = None

    # What a subclass names -----------------------------------------------------------------------------------------

    @abstractmethod
    def _task(self) -> Task:
        """Return the task that the parameters define."""

    def _method(self) -> Method:
        """Return how the weights are to be learned."""
        same = ("max_iter", "verbose", "solver", "weights", "norm", "penalties", "penalty_power", "easymkl_lambda")
        own = {parameter: getattr(self, parameter) for parameter in same}
        parameters = Parameters(AIM * self.tol, **own, learns_C=getattr(self, "C", None) == "learn")
        return WeightMethod(parameters, self.tol, self.fixed_weights, drops_idle=True, n_jobs=self.n_jobs)

    # Fitting -------------------------------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples and their targets.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features), or dict or list of such tables
            Samples; several tables have the same rows. Names of rows, by a pandas index of anything but integers, must
            be the same in the same order here, in `y` and in `sample_weight`. With `approximation` also a memory map,
            the path of a Parquet or ``.npy`` file, or a Dask collection.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Classes of a classifier, numbers of a regression.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, or of what an estimator has in its place, sample by sample.

        Returns
        -------
        self
        """
        return self.fit_input(self.validated(X, y, sample_weight), store=active_store())

    def recipe(self, given: FitInput) -> Recipe:
        """Return the recipe that the parameters define."""
        self._check_parameters()
        return Recipe(self.kernel_options(given), self._method(), self._task(), self.tol, bool(self.verbose))

    def fit_input(self, given: FitInput, calibration: Any = None, starts: Any = None, **known: Any) -> Self:
        """Fit to validated samples; where there are probabilities, these are by `calibration` if it is given."""
        self.keep(fit(self.recipe(given), given, starts=starts, **known), given)
        return self

    def keep(self, fit: Fit, given: FitInput) -> None:
        """Set the attributes and the function of a fit to validated samples, and warn of what it has not reached."""
        self.n_support_ = fit.task.count_support(given.y, fit.data.kept[fit.support])
        for name, value in fit.attributes().items():
            setattr(self, name, value)
        self._task_of_fit: Any = fit.task
        self.function_ = fit.method.function(fit)
        warning = None if fit.learner is None else fit.method.warning(fit, self.max_iter)
        if warning is not None:
            warn_caller(f"{type(self).__name__}{warning}", ConvergenceWarning)

    def decide(self, outputs: Array) -> AnyArray:
        """Return the predictions of outputs of shape (n_samples, outputs)."""
        found: AnyArray = self._task_of_fit.decide(outputs, self.intercept_)
        return found


def _refuse_gaps(X: MatrixLike, approximation: str) -> None:
    """Raise if samples lack something where kernels are features."""
    values = X.data if issparse(X) else X
    if values.dtype.kind == "f" and np.isnan(values.sum()) and np.isnan(values).any():
        raise ValueError(
            f"approximation={approximation!r}: X contains NaN, and missing views need exact kernels; use "
            "approximation=None, or fill the cells."
        )


def _shortened(value: object) -> str:
    """Write a long list as its first three items, its last and how many it has."""
    if not isinstance(value, list | tuple) or len(value) <= 4:
        return repr(value)
    return f"[{', '.join(map(repr, value[:3]))}, ..., {value[-1]!r} ({len(value)} in all)]"
