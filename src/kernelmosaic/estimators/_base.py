"""Base classes of all estimators: their kernels, reading of samples, fits and predictions.

A fit has three steps: samples are checked (`validated`), the parameters become a recipe (`recipe`)
that `kernelmosaic.engine.fit.fit` follows, and what was learned is set as attributes (`keep`).
"""

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
    """Base class of all estimators: a list of kernels, and predictions by a fitted function."""

    # The parameters that are read in this class. Every subclass has them in its `__init__`.
    kernels: KernelsLike
    normalize: str | None
    approximation: str | None
    rank: Any
    tol: float
    memory_budget: float | None
    device: str | None
    random_state: Seed
    max_iter: int
    # Subclasses without this parameter print nothing.
    verbose: bool = False
    # Subclasses without this parameter need samples that have all views.
    missing: Any = None
    # Subclasses without this parameter solve one machine after the other.
    n_jobs: Any = None
    # Whether the norm sets the sum of all weights; otherwise it depends on the number of samples.
    _has_normed_weights: ClassVar[bool] = True
    # The type of the Gram matrices; None chooses it by the number of samples.
    _stack_dtype: DType = None
    # The fitted function.
    function_: Any
    # The rules by which predictions read samples: those of the last fit, and its scale.
    _input_rules: InputRules
    # Whether samples must be in memory, also with an approximation.
    reads_in_memory: ClassVar[bool] = False
    # Whether a fit reads the samples also otherwise than by kernels.
    reads_samples: ClassVar[bool] = False

    def read_kernels(self, X: MatrixLike = None, views: Settings | None = None) -> list[Entry]:
        """Return the kernels of the parameter, with their names and columns.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame, optional
            Samples, where kernels depend on them.
        views : dict of list, optional
            The column numbers of each of several tables that X was made of.
        """
        return read_kernels(self.kernels, partial(self._kernels_of, X, views), X, views)

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        """Return the kernels of ``kernels=None`` on the columns of numbers of a table."""
        return default_kernels()

    def get_params(self, deep: bool = True) -> Settings:
        """Return the parameters, and with `deep` the kernels and their parameters.

        The names of the latter are ``kernels__name`` and ``kernels__name__width``.
        """
        params: Settings = super().get_params(deep=False)
        entries: list[Entry] = []
        if deep and self.kernels is not None:
            # `fit` raises if the parameter is no list of kernels.
            with suppress(TypeError, ValueError):
                entries = self.read_kernels()
        for entry in entries:
            params[f"kernels__{entry.name}"] = entry.kernel
            for parameter, value in entry.kernel.get_params(deep=True).items():
                params[f"kernels__{entry.name}__{parameter}"] = value
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and replace or change kernels.

        ``kernels__name`` replaces a kernel, ``kernels__name__width`` sets a parameter of a kernel.
        """
        # 1. Parameters of the estimator.
        if "kernels" in params:
            self.kernels = params.pop("kernels")
        nested_names = [name for name in params if name.startswith("kernels__")]
        nested = {name.removeprefix("kernels__"): params.pop(name) for name in nested_names}
        super().set_params(**params)
        if not nested:
            return self

        # 2. Kernels and their parameters. As in scikit-learn, a kernel is replaced before its
        # parameters are set.
        entries = {entry.name: entry for entry in self.read_kernels()}
        for path in sorted(nested, key=lambda path: path.count("__")):
            name, _, parameter = path.partition("__")
            if name not in entries:
                raise ValueError(
                    f"Invalid parameter 'kernels__{path}' for {type(self).__name__}: the kernels"
                    f" are {', '.join(entries)}."
                )
            entry = entries[name]
            if parameter:
                entry.kernel.set_params(**{parameter: nested[path]})
            else:
                entries[name] = Entry(name, nested[path], entry.columns)

        # 3. A new list, since other estimators may share the one that the user gave.
        kernels: list[Any] = []
        for entry in entries.values():
            if entry.columns is None:
                kernels.append((entry.name, entry.kernel))
            else:
                kernels.append((entry.name, entry.kernel, entry.columns))
        self.kernels = kernels
        return self

    def weighted_kernels(self, entries: Sequence[Entry] | None = None) -> list[Kernel]:
        """Return the kernels without names and columns.

        They are those of `entries`, by default those of the parameter `kernels` without samples. A
        kernel that is applied to every column on its own counts once.
        """
        if self.kernels is None and entries is None:
            # Reading the kernels with their names takes longer than a prediction.
            return self._kernels_of(None, None)
        if entries is None:
            entries = self.read_kernels()
        kernels = [entry.kernel for entry in entries]
        return [kernel.kernel if isinstance(kernel, PerColumn) else kernel for kernel in kernels]

    def further_kernels(self) -> dict[str, Kernel]:
        """Return kernels that have no weight, by the names of the parameters that give them."""
        return {}

    def kernel_traits(self, trait: str, entries: Sequence[Entry] | None = None) -> list[Any]:
        """Return the values of a class attribute of all kernels, those with weights first.

        `trait` is the name of the attribute; `entries` are as in `weighted_kernels`.
        """
        kernels = [*self.weighted_kernels(entries), *self.further_kernels().values()]
        return [getattr(kernel, trait) for kernel in kernels]

    if hasattr(BaseEstimator, "_get_fitted_attr_html"):
        # The summary stands in the estimator's box of the diagram, and so also if the estimator is
        # a step of a pipeline or the best one of a search.
        def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
            attributes = super()._get_fitted_attr_html(doc_link)
            table = attributes._repr_html_inner()
            attributes._repr_html_inner = lambda: f"{table}{summary_html(self)}"
            return attributes

    else:
        # Before scikit-learn 1.9, the summary stands below the diagram.
        def _repr_html_inner(self) -> str:
            return f"{super()._repr_html_inner()}{summary_html(self)}"

        def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
            bundle: dict[str, str] = super()._repr_mimebundle_(**options)
            if "text/html" in bundle:
                bundle["text/html"] += summary_html(self)
            return bundle

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        # scikit-learn's printer would write kernels as constructor calls, and a precomputed kernel
        # with its matrix.
        changed = {}
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            if repr(value) != repr(parameter.default):
                changed[name] = value
        for write_value in (repr, _shortened):
            parameters = ", ".join(f"{name}={write_value(changed[name])}" for name in changed)
            text = f"{type(self).__name__}({parameters})"
            if len(text) <= N_CHAR_MAX:
                return text
        return text[: max(N_CHAR_MAX - 4, 0)] + "...)"

    # Samples --------------------------------------------------------------------------------------

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        """Return a checked training set, and keep the rules by which new samples are read.

        Samples that the estimator cannot be fitted to raise an error.
        """
        return self._read_input(X, y, sample_weight, CLASSES)

    def _read_input(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: SampleWeight,
        targets: TargetRules,
    ) -> FitInput:
        """Return a checked training set, and keep the rules by which new samples are read."""
        samples, rules = read_samples(X, y, sample_weight, targets, self)
        self._keep_rules(rules)
        return samples

    def _keep_rules(self, rules: InputRules) -> None:
        """Keep the rules of new samples, and set scikit-learn's attributes of the columns."""
        self._input_rules = rules
        self.n_features_in_ = rules.n_columns
        if rules.column_names is not None:
            self.feature_names_in_ = rules.column_names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def read_parts(self, train: MatrixLike, held_out: MatrixLike) -> tuple[MatrixLike, MatrixLike]:
        """Return training samples and held-out samples as kernels read them, without a fit.

        Held-out samples are read as new samples are after a fit to the training samples, by rules
        that are kept.
        """
        table, _, rules = read_training_table(train, None, NO_TARGETS, self)
        self._keep_rules(rules)
        return table, read_new_samples(held_out, rules, self)

    def columns_without_numbers(self, X: MatrixLike) -> list[int]:
        """Return the numbers of the columns that no kernel reads as numbers."""
        return columns_without_numbers(self.read_kernels(X), X)

    def read(self, X: MatrixLike) -> MatrixLike:
        """Return samples as the fitted kernels read them.

        Samples that differ from those of the fit in form, columns or names raise a ValueError.

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

    def scaled(self, samples: FitInput, scale: bool) -> FitInput:
        """Return training samples on the scale of the fit, and keep this scale for new samples.

        If `scale`, the columns that kernels read as numbers are standardised; otherwise the samples
        are returned as they are.
        """
        standardizer = None
        if scale:
            standardizer = samples.standardizer(self.read_kernels(samples.table, samples.views))
            samples = replace(samples, X=standardizer(samples.X))
        self._input_rules = replace(self._input_rules, standardizer=standardizer)
        return samples

    # Fits ---------------------------------------------------------------------------------------

    def recipe(self, samples: FitInput) -> Recipe:
        """Return the recipe of a fit to samples, or raise if a parameter has a wrong value."""
        self._check_parameters()
        return Recipe(
            self.kernel_options(samples), self._method(), self._task(), self.tol, bool(self.verbose)
        )

    @abstractmethod
    def _task(self) -> Task:
        """Return the task that the parameters define."""

    @abstractmethod
    def _method(self) -> Method:
        """Return how the weights are learned."""

    def keep(self, fit: Fit, samples: FitInput) -> None:
        """Set the attributes and the function of a fit, and warn if it has not converged.

        `samples` are those that it was fitted to.
        """
        self.n_support_ = fit.task.count_support(samples.y, fit.data.kept[fit.support])
        for name, value in fit.attributes().items():
            setattr(self, name, value)
        self._task_of_fit: Any = fit.task
        self.function_ = fit.method.function(fit)
        if fit.learner is not None:
            self._warn_of_what_is_missing(fit)

    def _warn_of_what_is_missing(self, fit: Fit) -> None:
        """Warn if a fit ended without the accuracy that the parameters ask for."""
        warning = fit.method.warning(fit, self.max_iter)
        if warning is not None:
            warn_caller(f"{type(self).__name__}{warning}", ConvergenceWarning)

    def decide(self, outputs: Array) -> AnyArray:
        """Return the predictions that follow from outputs of shape (n_samples, outputs)."""
        predictions: AnyArray = self._task_of_fit.decide(outputs, self.intercept_)
        return predictions

    # Kernels of a training set --------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Raise if a parameter has a wrong value."""
        check_positive("tol", self.tol)
        if self.memory_budget is not None:
            check_positive("memory_budget", self.memory_budget)
        if self.missing not in (None, GATED):
            check_choice("missing", self.missing, RULES, ", or None where no sample lacks a view")
        self._check_rank()

    def _gives_rank(self) -> bool:
        """Whether `rank` has another value than its default."""
        is_bool = isinstance(self.rank, bool)
        is_number = isinstance(self.rank, int | float | np.number) and not is_bool
        return not is_number or self.rank != DEFAULT_RANK

    def _check_rank(self) -> None:
        """Raise if a rank is given for kernels that are exact."""
        if self.approximation is None and self._gives_rank():
            raise ValueError(
                f"rank={self.rank!r}: exact kernels have no rank; give approximation='nystroem',"
                " 'leading' or 'fourier', too, or leave rank out."
            )

    def kernel_options(self, samples: FitInput) -> KernelOptions:
        """Return the kernels, and how their matrices on training samples are computed."""
        return KernelOptions(
            self.read_kernels(samples.table, samples.views),
            normalize=self.normalize,
            approximation=self.approximation,
            rank=self.rank,
            random_state=self.random_state,
            memory_budget=self.memory_budget,
            missing=self.missing,
            device=samples.device,
            dtype=self._stack_dtype,
            estimator=type(self).__name__,
        )

    @property
    def view_weights_(self) -> dict[str, Any]:
        """The weights summed over the kernels of every view, by the name of the view.

        A sum is one number, or one per class where classes have weights of their own. Kernels that
        read the same columns are of one view. Its name is the text before a colon or a comma in the
        names of all its kernels, as :func:`~kernelmosaic.kernels.by_group` writes them; otherwise
        the name of its one kernel, or of its columns.
        """
        check_is_fitted(self, "weights_")
        return by_view(self.weights_, self.view_names_)

    @property
    def weight_shares_(self) -> Array:
        """The weights, for plots and comparisons of several fits; not necessarily of sum one."""
        return np.asarray(self.weights_, dtype=np.float64)

    # Predictions ----------------------------------------------------------------------------------

    def _outputs(self, X: MatrixLike) -> Array:
        """Return the values of the fitted function, of shape (n_samples, outputs)."""
        X = self.read(X)
        return np.asarray(self.function_.outputs(X))

    def contributions(self, X: MatrixLike) -> Array:
        """Return the part of each kernel in the decision function.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, P), or (n_samples, P, classes) with several outputs
            The sum over the kernels, with `intercept_` added, is the decision function. A view that
            a sample lacks contributes by the values that replace it.
        """
        X = self.read(X)
        terms = np.asarray(self.function_.terms(X))
        if terms.shape[2] == 1:
            terms = terms[:, :, 0]
        return terms

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
        Y = X if Y is None else self.read(Y)
        K: Array = np.asarray(self.function_.combined(X, Y))
        if len(K) == 1:
            return np.asarray(K[0])
        return K

    def cost(self, costs: ArrayLike) -> float:
        """Return the cost of a prediction, in evaluations of all kernels on a pair of samples.

        It is the number of support vectors times the fraction of all costs that the kernels with
        positive weights have.

        Parameters
        ----------
        costs : array-like of shape (P,)
            The cost of evaluating each kernel.
        """
        check_is_fitted(self)
        cost_of_kernel = numbers("costs", costs, len(self.kernel_names_))
        if np.any(cost_of_kernel < 0) or not cost_of_kernel.sum() > 0:
            raise ValueError(f"costs={costs!r}: costs must not be negative, nor all zero.")
        active = self.function_.expansion.active
        return float(len(self.support_) * cost_of_kernel[active].sum() / cost_of_kernel.sum())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            # The default kernels read all columns.
            has_columns = False
            entries = None
            if self.kernels is not None:
                entries = self.read_kernels()
                has_columns = any(entry.columns is not None for entry in entries)
            tags.input_tags.sparse = all(self.kernel_traits("accepts_sparse", entries))
            tags.input_tags.string = "sequences" in self.kernel_traits("input_kind", entries)
            tags.input_tags.allow_nan = self.missing is not None and has_columns
        except (TypeError, ValueError):
            # The parameter is no list of kernels, for which `fit` raises.
            tags.input_tags.sparse = False
        return tags


class BaseMKL(KernelEstimator):
    """Base class of estimators with one weight per kernel, learned or given.

    The task that a subclass returns says which machine is fitted.
    """

    # The parameters by which weights are learned. Subclasses that replace `_method` need not have
    # them.
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

    # The parameter that a search along a path varies; None if there is no such parameter.
    path_rule: ClassVar[PathRule | None] = None

    def _method(self) -> Method:
        """Return how the weights are learned."""
        parameters = Parameters(
            AIM * self.tol,
            max_iter=self.max_iter,
            verbose=self.verbose,
            solver=self.solver,
            weights=self.weights,
            norm=self.norm,
            penalties=self.penalties,
            penalty_power=self.penalty_power,
            easymkl_lambda=self.easymkl_lambda,
            learns_C=self._learns_C,
        )
        return WeightMethod(
            parameters, self.tol, self.fixed_weights, drops_idle=True, n_jobs=self.n_jobs
        )

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
        self, samples: FitInput, calibration: Any = None, starts: Any = None, **options: Any
    ) -> Self:
        """Fit to validated samples.

        Parameters
        ----------
        samples : FitInput
            As `validated` returns them.
        calibration : Calibration, optional
            What turns decision values into probabilities; read by subclasses that have any.
        starts : list of Start, optional
            Where the search for the weights of each machine starts.
        **options
            Further arguments of `kernelmosaic.engine.fit.fit`.
        """
        self.keep(fit(self.recipe(samples), samples, starts=starts, **options), samples)
        return self


def _shortened(value: object) -> str:
    """Return a value as text, of a long list the first three entries, the last and their number."""
    if not isinstance(value, list | tuple) or len(value) <= 4:
        return repr(value)
    return f"[{', '.join(map(repr, value[:3]))}, ..., {value[-1]!r} ({len(value)} in all)]"
