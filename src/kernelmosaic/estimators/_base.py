"""What all estimators share: kernels, one way to learn and to set what is fitted, predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_choice, check_positive, warn_caller
from kernelmosaic._typing import (
    AnyArray,
    Array,
    ArrayOrTensor,
    DType,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.engine.fit import Fit, Method, Recipe, WeightMethod, fit
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import PathRule, Task
from kernelmosaic.engine.training_set import KernelOptions, active_store
from kernelmosaic.estimators.card import summary_html
from kernelmosaic.estimators.inputs import (
    CLASSES,
    NO_TARGETS,
    InputRules,
    TargetRules,
    columns_without_numbers,
    read_new_samples,
    read_samples,
    read_training_table,
)
from kernelmosaic.gram.missing import GATED, RULES
from kernelmosaic.kernels.base import Kernel
from kernelmosaic.kernels.views import Entry, PerColumn, default_kernels, read_kernels
from kernelmosaic.learning.factory import Parameters
from kernelmosaic.learning.norms import numbers
from kernelmosaic.learning.tuning import AIM
from kernelmosaic.stacking import by_view

#: The default of `rank` in all estimators that have it.
DEFAULT_RANK = 500


class KernelEstimator(BaseEstimator, ABC):
    """What all estimators share: a list of kernels, samples in, and predictions of a fitted
    function."""

    # The parameters that are read here. Every subclass lists its own in its `__init__`.
    kernels: KernelsLike
    normalize: str | None
    approximation: str | None
    rank: Any
    tol: float
    memory_budget: float | None
    device: str | None
    random_state: Seed
    max_iter: int
    # Of subclasses without this parameter, fits say nothing.
    verbose: bool = False
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
    _input_rules: InputRules
    # Whether samples cannot stay on a disk, whatever the approximation.
    reads_in_memory: ClassVar[bool] = False
    # Whether the samples themselves are read, beside their similarities by the kernels.
    reads_samples: ClassVar[bool] = False

    def read_kernels(self, X: MatrixLike = None, views: Settings | None = None) -> list[Entry]:
        """Return the kernels by name; where they depend on the samples, those for X, and for each
        of several tables."""
        return read_kernels(self.kernels, partial(self._kernels_of, X, views), X, views)

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        """Return the kernels of ``kernels=None`` on columns of numbers, of X or of each of several
        tables."""
        return default_kernels()

    def get_params(self, deep: bool = True) -> Settings:
        """Return the parameters; if deep, also the kernels, ``kernels__name``, and theirs,
        ``kernels__name__width``."""
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
        """Set parameters; ``kernels__name`` replaces a kernel, ``kernels__name__width`` sets one of
        its own."""
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        nested = {
            key.removeprefix("kernels__"): params.pop(key)
            for key in list(params)
            if key.startswith("kernels__")
        }
        super().set_params(**params)
        if not nested:
            return self
        known = {entry.name: entry for entry in self.read_kernels()}
        # A kernel is replaced before its own parameters are set, as in scikit-learn.
        for key, value in sorted(nested.items(), key=lambda item: item[0].count("__")):
            name, _, parameter = key.partition("__")
            if name not in known:
                raise ValueError(
                    f"Invalid parameter 'kernels__{key}' for {type(self).__name__}: the kernels are"
                    f" {', '.join(known)}."
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

    def weighted_kernels(self, entries: Sequence[Entry] | None = None) -> list[Kernel]:
        """Return the kernels of entries; by default those of the parameter, for unknown samples."""
        if self.kernels is None and entries is None:
            # Reading the kernels with their names takes longer than a prediction.
            return self._kernels_of(None, None)
        if entries is None:
            entries = self.read_kernels()
        kernels = [entry.kernel for entry in entries]
        return [kernel.kernel if isinstance(kernel, PerColumn) else kernel for kernel in kernels]

    def further_kernels(self) -> dict[str, Kernel]:
        """Return kernels beside those that are weighted, by the names of their parameters."""
        return {}

    def kernel_traits(self, trait: str, entries: Sequence[Entry] | None = None) -> list[Any]:
        """Return a class attribute of every kernel, the weighted ones first."""
        kernels = [*self.weighted_kernels(entries), *self.further_kernels().values()]
        return [getattr(kernel, trait) for kernel in kernels]

    if hasattr(BaseEstimator, "_get_fitted_attr_html"):
        # In the estimator's own box, and so also where it is a step of a pipeline or what a search
        # found.
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
        # scikit-learn's printer would write kernels out as constructor calls, and a precomputed one
        # with its matrix.
        changed = [
            (key, value)
            for key, parameter in signature(type(self)).parameters.items()
            if repr(value := getattr(self, key)) != repr(parameter.default)
        ]
        for written in (repr, _shortened):
            parameters = ", ".join(f"{key}={written(value)}" for key, value in changed)
            text = f"{type(self).__name__}({parameters})"
            if len(text) <= N_CHAR_MAX:
                return text
        return text[: max(N_CHAR_MAX - 4, 0)] + "...)"

    # Samples in -----------------------------------------------------------------------------------

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        """Return a training set as `fit` takes it, or raise saying what is wrong."""
        return self._read_input(X, y, sample_weight, CLASSES)

    def _read_input(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: SampleWeight,
        targets: TargetRules,
    ) -> FitInput:
        """Return a training set as checked, and keep the rules by which new samples are read."""
        given, rules = read_samples(X, y, sample_weight, targets, self)
        self._keep_rules(rules)
        return given

    def _keep_rules(self, rules: InputRules) -> None:
        """Keep what the fit has seen of the samples, also in the attributes that scikit-learn
        names."""
        self._input_rules = rules
        self.n_features_in_ = rules.n_columns
        if rules.column_names is not None:
            self.feature_names_in_ = rules.column_names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def read_parts(self, train: MatrixLike, held_out: MatrixLike) -> tuple[MatrixLike, MatrixLike]:
        """Return training samples and samples held out as kernels read them, without a fit.

        Samples held out are read as new samples are after a fit to the training samples.
        """
        table, _, rules = read_training_table(train, None, NO_TARGETS, self)
        self._keep_rules(rules)
        return table, read_new_samples(held_out, rules, self)

    def columns_without_numbers(self, X: MatrixLike) -> list[int]:
        """Return the numbers of the columns that no kernel of numbers reads."""
        return columns_without_numbers(self.read_kernels(X), X)

    def read(self, X: MatrixLike) -> MatrixLike:
        """Return samples as the fitted kernels read them, or raise if they are not like those of
        the fit.

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
        return read_new_samples(X, self._input_rules, self)

    def scaled(self, given: FitInput, scale: bool) -> FitInput:
        """Return the samples with standardised columns if `scale`, and keep the standardizer for
        new ones."""
        standardizer = None
        if scale:
            standardizer = given.standardizer(self.read_kernels(given.table, given.views))
            given = replace(given, X=standardizer(given.X))
        self._input_rules = replace(self._input_rules, standardizer=standardizer)
        return given

    # Fits ---------------------------------------------------------------------------------------

    def recipe(self, given: FitInput) -> Recipe:
        """Return the recipe that the parameters define."""
        self._check_parameters()
        return Recipe(
            self.kernel_options(given), self._method(), self._task(), self.tol, bool(self.verbose)
        )

    @abstractmethod
    def _task(self) -> Task:
        """Return the task that the parameters define."""

    @abstractmethod
    def _method(self) -> Method:
        """Return how the weights are to be learned."""

    def keep(self, fit: Fit, given: FitInput) -> None:
        """Set the attributes and the function of a fit to validated samples, and warn of what it
        has not reached."""
        self.n_support_ = fit.task.count_support(given.y, fit.data.kept[fit.support])
        for name, value in fit.attributes().items():
            setattr(self, name, value)
        self._task_of_fit: Any = fit.task
        self.function_ = fit.method.function(fit)
        if fit.learner is not None:
            self._warn_of_what_is_missing(fit)

    def _warn_of_what_is_missing(self, fit: Fit) -> None:
        """Warn if a fit has not reached what was asked for."""
        warning = fit.method.warning(fit, self.max_iter)
        if warning is not None:
            warn_caller(f"{type(self).__name__}{warning}", ConvergenceWarning)

    def decide(self, outputs: Array) -> AnyArray:
        """Return the predictions of outputs of shape (n_samples, outputs)."""
        predictions: AnyArray = self._task_of_fit.decide(outputs, self.intercept_)
        return predictions

    # Kernels of a training set --------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_positive("tol", self.tol)
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        if self.missing not in (None, GATED):
            check_choice("missing", self.missing, RULES, ", or None where no sample lacks a view")
        self._check_rank()

    def _gives_rank(self) -> bool:
        """Whether `rank` has another value than its default."""
        is_number = isinstance(self.rank, int | float | np.number) and not isinstance(
            self.rank, bool
        )
        return not is_number or self.rank != DEFAULT_RANK

    def _check_rank(self) -> None:
        """Raise if a rank is given for kernels that are exact."""
        if self.approximation is None and self._gives_rank():
            raise ValueError(
                f"rank={self.rank!r}: exact kernels have no rank; give approximation='nystroem',"
                " 'leading' or 'fourier', too, or leave rank out."
            )

    def kernel_options(self, given: FitInput) -> KernelOptions:
        entries, name = self.read_kernels(given.table, given.views), type(self).__name__
        same = ("normalize", "approximation", "rank", "random_state", "memory_budget", "missing")
        own = {parameter: getattr(self, parameter) for parameter in same}
        return KernelOptions(
            entries, device=given.device, dtype=self._stack_dtype, estimator=name, **own
        )

    @property
    def view_weights_(self) -> dict[str, Any]:
        """The weights summed over the kernels of every view: a number, or one per class where
        classes have their own.

        Kernels that read the same columns are of one view. It is called what stands before a colon
        or a comma in the names of all its kernels, as :func:`~kernelmosaic.kernels.by_group` writes
        them; else its one kernel, or its columns.
        """
        check_is_fitted(self, "weights_")
        return by_view(self.weights_, self.view_names_)

    @property
    def weight_shares_(self) -> Array:
        """The weights as pictures and comparisons of several fits read them."""
        return np.asarray(self.weights_, dtype=np.float64)

    # Predictions out ------------------------------------------------------------------------------

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
            Summed over the kernels, and with `intercept_` added, the decision function. The share
            of a view that a sample lacks is that of what stands in for it.
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
        ndarray of shape (len(X), len(Y)) or (classes, len(X), len(Y))
            The latter where every class has weights of its own.
        """
        X = self.read(X)
        K = np.asarray(self.function_.combined(X, X if Y is None else self.read(Y)))
        return K[0] if len(K) == 1 else K

    def cost(self, costs: ArrayLike) -> float:
        """Return what a prediction costs: the number of support vectors times the active kernels'
        share of all costs.

        Parameters
        ----------
        costs : array-like of shape (P,)
            What evaluating each kernel costs.
        """
        check_is_fitted(self)
        given, costs = costs, numbers("costs", costs, len(self.kernel_names_))
        if np.any(costs < 0) or not costs.sum() > 0:
            raise ValueError(f"costs={given!r}: costs must not be negative, nor all zero.")
        return float(
            len(self.support_) * costs[self.function_.expansion.active].sum() / costs.sum()
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            entries = None if self.kernels is None else self.read_kernels()
            tags.input_tags.sparse = all(self.kernel_traits("accepts_sparse", entries))
            tags.input_tags.string = "sequences" in self.kernel_traits("input_kind", entries)
            has_columns = any(entry.columns is not None for entry in entries or ())
            tags.input_tags.allow_nan = self.missing is not None and has_columns
        except (TypeError, ValueError):
            tags.input_tags.sparse = False
        return tags


class BaseMKL(KernelEstimator):
    """One weight per kernel, learned or given, with the machine that a subclass names."""

    # The parameters of weights that are learned for machines. Subclasses that replace `_method`
    # need not have them.
    norm: float | str
    weights: ArrayOrTensor
    fixed_weights: Any
    penalties: Any
    penalty_power: float
    slack: int
    solver: str
    # Only classifiers have this parameter, which ``solver="easymkl"`` reads.
    easymkl_lambda: float = 0.1

    # Whether C is learned with the weights; only classifiers have that.
    _learns_C: bool = False

    # Along which parameter a search goes; None where there is no such parameter.
    path_rule: ClassVar[PathRule | None] = None

    # What a subclass names ------------------------------------------------------------------------

    def _method(self) -> Method:
        """Return how the weights are to be learned."""
        same = (
            "max_iter",
            "verbose",
            "solver",
            "weights",
            "norm",
            "penalties",
            "penalty_power",
            "easymkl_lambda",
        )
        own = {parameter: getattr(self, parameter) for parameter in same}
        parameters = Parameters(AIM * self.tol, **own, learns_C=self._learns_C)
        return WeightMethod(
            parameters, self.tol, self.fixed_weights, drops_idle=True, n_jobs=self.n_jobs
        )

    # Fitting --------------------------------------------------------------------------------------

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples and their targets.

        Parameters
        ----------
        X : array-like, sparse matrix, data frame, or dict or list of such tables
            Samples; several tables have the same rows. Names of rows, by a pandas index of anything
            but integers, must be the same in the same order here, in `y` and in `sample_weight`.
            With `approximation` also a memory map, the path of a Parquet or ``.npy`` file, or a
            Dask collection.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Classes of a classifier, numbers of a regression.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of C, or of what an estimator has in its place, sample by sample.

        Returns
        -------
        self
        """
        return self.fit_input(self.validated(X, y, sample_weight), store=active_store())

    def fit_input(
        self, given: FitInput, calibration: Any = None, starts: Any = None, **known: Any
    ) -> Self:
        """Fit to validated samples; where there are probabilities, these are by `calibration` if it
        is given."""
        self.keep(fit(self.recipe(given), given, starts=starts, **known), given)
        return self


def _shortened(value: object) -> str:
    """Write a long list as its first three items, its last and how many it has."""
    if not isinstance(value, list | tuple) or len(value) <= 4:
        return repr(value)
    return f"[{', '.join(map(repr, value[:3]))}, ..., {value[-1]!r} ({len(value)} in all)]"
