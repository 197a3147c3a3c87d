"""Least squares with weights, ridge and scale learned by leave-one-out error or evidence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_choice, check_count, check_positive, warn_caller
from kernelmosaic._typing import (
    Array,
    ArrayOrTensor,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import (
    backend_on,
    default_budget,
    format_bytes,
    one_blas_thread,
    row_strips,
    tensor_device,
    to_host,
)
from kernelmosaic.engine import conformal
from kernelmosaic.engine.conformal import BLOCK, Unseen, own_misfits
from kernelmosaic.engine.expansion import Function, StripFunction
from kernelmosaic.engine.samples import DistinctSamples, FitInput, is_streamed
from kernelmosaic.engine.tasks import Labels, class_factors, find_classes, per_class
from kernelmosaic.engine.training_set import (
    ExactSet,
    FeatureSet,
    KernelOptions,
    TrainingSet,
    active_store,
    read_training_set,
)
from kernelmosaic.estimators._base import KernelEstimator
from kernelmosaic.estimators.classifier import KernelClassifier
from kernelmosaic.estimators.inputs import NUMBERS
from kernelmosaic.frames import is_sparse
from kernelmosaic.gram.feature_maps import FeatureMaps, check_ranks
from kernelmosaic.gram.feature_stack import FeatureStack, StoredFeatures
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.missing import present_views
from kernelmosaic.gram.normalizing import Centered
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.kernels import (
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Ranked,
    by_group,
    family,
)
from kernelmosaic.kernels.base import is_missing, refuse_text
from kernelmosaic.kernels.numeric import Radial, RadialWidths
from kernelmosaic.kernels.transformed import width_learner, with_width
from kernelmosaic.kernels.views import Entry, PerColumn, lay_specs
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.ridge import cross_fitting
from kernelmosaic.ridge.cross_fitting import Fold
from kernelmosaic.ridge.learning import (
    RidgeLearned,
    RidgeOptions,
    RidgeSearch,
    RidgeStart,
    RidgeTargets,
    centre_and_unit,
    learn_from_some,
    learn_ridge,
    search_ridge,
)
from kernelmosaic.ridge.per_target import (
    TargetOptions,
    TargetsLearned,
    join_targets,
    learn_target_weights,
)
from kernelmosaic.row_order import content_order, on_grid
from kernelmosaic.solvers.least_squares import (
    FeatureForm,
    MatrixLeastSquares,
    softmax_loss,
    variances,
)
from kernelmosaic.stacking import check_row_names

#: From how many targets what all of them share is learned, where each has weights of its own.
_SHARED_FROM = 50
#: Up to so many targets are learned one by one, too, by exact slopes.
_ONE_BY_ONE = 5
#: Operations of one candidate for all targets, of which several threads of the linear algebra are
#: faster than one.
_THREADED_FROM = 2e9
#: From how many samples weights are learned by default, and up to how many the host solves linear
#: systems of all.
_LEARNED_FROM, _EXACT_UP_TO = 1000, 15_000
#: Features of all kernels together beyond that.
_FEATURES = 3000
#: Features of one kernel, on average, below which they stand for nothing.
_LEAST_FEATURES = 10
#: The weights of more kernels are too many for a design: what some targets share is one of the
#: candidates then.
_COVERED = 6


#: Weights that are products of fewer factors, by the value of `weights` that names them: the module
#: and the function, loaded on first use, which says of the kernels what each is a product of.
TIES = {"factorized": ("kernelmosaic.pairs.stack", "side_ties")}


def ties_of_weights(name: str, kernel_set: KernelSet) -> Array:
    """Return of which factors the weight of every kernel is the product, as ones and zeros, (P,
    factors)."""
    module, function = TIES[name]
    ties: Array = getattr(import_module(module), function)(kernel_set)
    return ties


def ridge_kernels(ranks: bool = True, squares: bool = True) -> list[Kernel]:
    """Return the kernels of ``kernels=None``: nine, with `squares` ten, and with `ranks` the same
    of ranks."""
    factors, square = [0.5, 1, 2, 4], [Polynomial(degree=2)] if squares else []
    plain = [
        Linear(),
        *square,
        *family(Gaussian(), factor=factors),
        *family(Laplacian(), factor=factors),
    ]
    return plain + [Ranked(kernel) for kernel in plain] if ranks else plain


def ridge_view_kernels(views: Mapping[str, Any]) -> list[tuple[str, Kernel, Any]]:
    """Return kernels for views: of one, those of `ridge_kernels`; of several, nine of each, without
    squares and ranks.

    Parameters
    ----------
    views : dict
        Columns by the name of their view, as `stack_views` returns them.

    Returns
    -------
    list of (name, kernel, columns)
        Of each view, a linear kernel, Gaussians and Laplacians of ½, 1, 2 and 4 times the median
        distance.
    """
    several = len(views) > 1
    return by_group(ridge_kernels(not several, not several), views)


@dataclass(frozen=True)
class Prepared:
    """What is learned from.

    Attributes
    ----------
    rows : ndarray
        The samples of positive weight, to which all else belongs.
    group : ndarray of shape (n,) or None
        The number of every sample's group, of those without weight, too.
    targets : RidgeTargets
        As the criterion reads them.
    scaled : FitInput
        The samples as the kernels read them.
    data : TrainingSet
        Their kernels.
    first : RidgeLearned or None
        What was learned with the widths, or from some samples, if it was.
    some : ndarray or None
        The samples that weights are learned from, if not from all.
    options, exact_options : KernelOptions
        The kernels as given, before widths are learned, and those of `data` before features took
        the place of matrices.
    """

    rows: NDArray[np.intp]
    group: NDArray[np.intp] | None
    targets: RidgeTargets
    scaled: FitInput
    data: TrainingSet
    first: RidgeLearned | None
    some: NDArray[np.intp] | None
    options: KernelOptions
    exact_options: KernelOptions


@dataclass(frozen=True)
class WeightSearch:
    """How weights are learned, and what they are worth on samples that they had not seen.

    Attributes
    ----------
    options : RidgeOptions
        The criterion and the strength of its prior.
    n_effective : float or None
        The effective number of kernels; None where no weights are learned.
    judged, unseen : ndarray or None
        Numbers of samples, and their residuals by weights learned without them; None where those of
        the machine are as good, or are such.
    seen_share : float
        How much residuals by weights that had seen the sample count where outputs are calibrated.
    start : RidgeStart or None
        What the folds learned in the mean, from where the weights of all samples are near.
    """

    options: RidgeOptions
    n_effective: float | None = None
    judged: NDArray[np.intp] | None = None
    unseen: Array | None = None
    seen_share: float = 1.0
    start: RidgeStart | None = None


@dataclass(frozen=True)
class FoldProblem:
    """The samples that weights of folds judge.

    Attributes
    ----------
    rows : ndarray
        The numbers of these samples.
    data, stack, targets : TrainingSet, MatrixStack or FeatureStack, RidgeTargets
        Their kernels and targets.
    folds : list of Fold
        By the places of the samples in `rows`.
    judged : ndarray
        The numbers of the samples whose residuals are wanted.
    """

    rows: NDArray[np.intp]
    data: TrainingSet
    stack: MatrixStack | FeatureStack
    targets: RidgeTargets
    folds: list[Fold]
    judged: NDArray[np.intp]

    @property
    def numbers_of_judged(self) -> NDArray[np.intp]:
        """Their places in `rows`."""
        return np.searchsorted(self.rows, self.judged)


def entries_with_widths(options: KernelOptions, learned: RidgeLearned) -> list[Entry]:
    """Return the kernels with the widths that were learned."""
    return [
        replace(entry, kernel=with_width(entry.kernel, learned.widths.get(m, "median")))
        for m, entry in enumerate(options.entries)
    ]


class BaseRidge(KernelEstimator):
    """What both estimators share: the parameters, the fit, and what the closed form of
    leave-one-out gives."""

    criterion: str
    alpha: float | str
    weights: ArrayOrTensor
    weight_prior: float | str
    scale: bool
    subsample: int | str | None
    n_init: int
    max_iter: int
    verbose: bool
    # Only regressions have this parameter.
    per_target: bool = False

    # The digits of a small ridge need double precision.
    _stack_dtype = np.float64

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        if self.approximation == "fourier":  # which supports radial kernels only
            return [kernel for kernel in ridge_kernels(ranks=False) if isinstance(kernel, Radial)]
        if views is not None and len(views) > 1:
            return ridge_kernels(ranks=False, squares=False)
        return ridge_kernels(ranks=not is_sparse(X))  # ranks of sparse columns would fill them

    @abstractmethod
    def _targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        """Return what is fitted to the targets of samples with these weights."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("max_iter", self.max_iter)
        check_count("n_init", self.n_init)
        check_choice("criterion", self.criterion, ("auto", "loo", "evidence"))
        check_positive("alpha", self.alpha, word="learn")
        check_positive("weight_prior", self.weight_prior, word="auto")
        if isinstance(self.subsample, str):
            check_choice(
                "subsample", self.subsample, ("auto",), ", or give a number of samples or None"
            )
        elif self.subsample is not None:
            check_count("subsample", self.subsample)

    def _rows_to_learn_from(
        self, targets: RidgeTargets, options: KernelOptions
    ) -> NDArray[np.intp] | None:
        """Return samples of all classes and groups that weights are learned from; None if all
        are."""
        n = len(targets.Y)
        count = (
            n
            if self.subsample is None
            else _LEARNED_FROM
            if self.subsample == "auto"
            else int(self.subsample)
        )
        if count >= n or self.per_target or options.approximation is not None:
            return None
        # Kernels of pairs are products with the matrices of their members, whatever the number of
        # pairs.
        if any(entry.kernel.reads_pairs for entry in options.entries):
            return None
        return targets.spread(max(count, 2))

    def _prepare(self, whole: FitInput, groups: TargetLike) -> Prepared:
        """Check the parameters, and return what is learned from: the samples of positive weight,
        and their kernels."""
        self._check_parameters()
        if is_streamed(whole.X):
            raise ValueError(
                f"X: {type(self).__name__} reads samples in memory; give an array, or use"
                " MKLRegressor or MKLClassifier, which read rows from a disk."
            )
        group = _read_groups(groups, whole.X.shape[0])
        rows = np.arange(whole.X.shape[0]) if whole.weight is None else np.flatnonzero(whole.weight)
        given = whole if len(rows) == whole.X.shape[0] else whole.take(rows)
        n = len(rows)
        if n < 2:
            raise ValueError(
                f"n_samples={n} of positive weight: leave-one-out needs at least two; give more"
                " samples."
            )
        weight = np.ones(n) if given.weight is None else given.weight
        together = None if group is None else _members(group[rows])
        targets = replace(self._targets(given.y, weight), groups=together)
        # Of the samples as given: sums over them, as in standardised columns, depend on their order
        # by rounding.
        targets = replace(
            targets, order=_content_order(given, weight, group if group is None else group[rows])
        )
        self._warn_of_repeats(given.X, targets)
        scaled = self.scaled(given, self.scale)
        # Products with many targets are worth a device.
        options = self.kernel_options(scaled).placed(n, 0 if self.per_target else 2000)
        options = replace(options, entries=self._written_out(scaled))
        some = self._rows_to_learn_from(targets, options)
        most = RidgeOptions.width_rows if some is None else len(some)
        first = self._learn_widths(scaled, targets, options, most)
        as_given = options
        if first is not None:
            options = replace(options, entries=entries_with_widths(options, first))
        options = exact_options = replace(options, stores=some is None)
        if some is not None:
            own = default_budget(backend_on(options.device))
            budget = own if options.memory_budget is None else options.memory_budget
            # Exact linear systems, of three matrices, that take more than minutes or memory.
            if 3 * 8 * n * n > budget or (options.device is None and n > _EXACT_UP_TO):
                options, first = self._in_features(options, scaled, targets, some, first, budget)
        if options.approximation is None:
            super()._check_rank()
        counted = DistinctSamples(np.arange(n), weight)
        data = read_training_set(options, scaled.X, scaled.original, counted, active_store())
        return Prepared(rows, group, targets, scaled, data, first, some, as_given, exact_options)

    def _in_features(
        self,
        options: KernelOptions,
        scaled: FitInput,
        targets: RidgeTargets,
        some: NDArray[np.intp],
        first: RidgeLearned | None,
        budget: float,
    ) -> tuple[KernelOptions, RidgeLearned]:
        """Learn weights from exact kernels of some samples; features of all follow, more of them
        for more weight."""
        n, own = len(targets.Y), targets.take(some)
        specs = lay_specs(options.entries, scaled.table)
        n_kernels = len(specs)
        if present_views(specs, scaled.X) is not None:
            raise ValueError(
                f"X: some samples lack a view, which exact kernels complete, but {n} samples are"
                " too many for exact linear systems: give subsample=None for exact systems all the"
                f" same, which hold {n_kernels + 3} matrices of {format_bytes(8 * n * n)}, or fill"
                " the cells of missing views, too, as scikit-learn's SimpleImputer does in an"
                " earlier step of a pipeline."
            )
        # Half of the budget holds five matrices of products of features, as `make_feature_stack`
        # needs them.
        most_features = int(np.sqrt(0.5 * budget / (5 * 8))) - 1
        if most_features < _LEAST_FEATURES * n_kernels:
            raise MemoryError(
                f"The {n} samples are too many for exact linear systems, and"
                f" memory_budget={format_bytes(budget)} is too small for {_LEAST_FEATURES} features"
                f" of each of the {n_kernels} kernels: raise memory_budget."
            )
        counted = DistinctSamples(np.arange(len(some)), own.weight)
        exact = replace(options, stores=True)
        data = read_training_set(exact, scaled.X[some], scaled.original, counted)
        with data.threads():
            part = self._learn(data, own, start=first)
        share = part.weights / part.weights.sum()
        n_features = min(_FEATURES, most_features)
        ranks = [max(int(n_features * fraction), 1) for fraction in share]
        if self._gives_rank():
            highest = check_ranks(self.rank, len(share))
            ranks = [int(min(rank, limit)) for rank, limit in zip(ranks, highest, strict=True)]
        warn_caller(
            f"{type(self).__name__}: the {n} samples are too many for exact linear systems. The fit"
            f" uses {sum(ranks)} Nyström features and weights learned from {len(some)} samples; set"
            " approximation and rank to choose others, or subsample=None."
        )
        return replace(options, approximation="nystroem", rank=ranks), part

    def _check_rank(self) -> None:
        """Raise if the rank is no number of features; whether kernels are exact is known once
        samples are counted."""
        if self._gives_rank() and np.ndim(self.rank) == 0:
            check_ranks(self.rank, 1, self.approximation == "leading")

    def _keep_kernels(self, prepared: Prepared) -> None:
        """Keep the fitted kernels, and what of the samples predictions need."""
        data = prepared.data
        fitted = getattr(data.kernel_set, "kernel_set", data.kernel_set)
        self.kernel_names_, self.view_names_ = data.names()
        plain = all(one.columns is None for one in fitted.fitted)
        self.kernels_ = [
            one.kernel if plain else (one.name, one.kernel, one.columns) for one in fitted.fitted
        ]
        self.support_, self.support_fraction_ = prepared.rows, 1.0
        # Features need no samples.
        in_features = isinstance(data, FeatureSet)
        self._X, self._groups = None if in_features else prepared.scaled.X, prepared.targets.groups

    def _learn_ridge(self, whole: FitInput, groups: TargetLike) -> tuple[RidgeLearned, Array]:
        """Learn weights, ridge and scale, and keep the machine.

        Parameters
        ----------
        whole : FitInput
            Validated samples.
        groups : array-like of shape (n,) or None
            Samples of one group are left out together.

        Returns
        -------
        learned : RidgeLearned
            What was learned from the samples of positive weight, in units of the targets.
        outputs : ndarray of shape (n, outputs)
            Of all samples, each by the machine without it. One of weight zero has no part in it.
        """
        prepared = self._prepare(whole, groups)
        first, targets = prepared.first, prepared.targets
        with prepared.data.threads():
            search = self._choose_candidate(prepared)
            start = search.start if first is None else first
            found = self._learn(
                prepared.data, targets, start=start, rows=prepared.some, options=search.options
            )
        learned = replace(
            found,
            beta=found.beta * targets.unit,
            intercept=targets.mean + targets.unit * found.intercept,
            residuals=found.residuals * targets.unit,
        )
        if first is not None:
            steepest = max(first.stationarity, found.stationarity)
            learned = replace(learned, history=first.history + found.history, stationarity=steepest)
        self._keep_kernels(prepared)
        self._keep_search(search)
        self._keep_machine(prepared, learned)
        # The slopes of residuals that are rounding are rounding.
        self._say_how_level(is_exact=bool(np.abs(found.residuals).max() < 1e-6))
        self._warn_of_rounding(prepared.data, found)
        self._unseen_residuals, self._seen_share = learned.residuals, search.seen_share
        if search.unseen is not None:
            self._unseen_residuals = learned.residuals.copy()
            self._unseen_residuals[search.judged] = search.unseen * targets.unit
        return learned, self._outputs_left_out(prepared, learned, whole.X)

    def _keep_machine(self, prepared: Prepared, learned: RidgeLearned) -> None:
        """Keep weights, ridge and coefficients that all outputs share, and what variances of
        outputs need."""
        data, targets = prepared.data, prepared.targets
        self.weights_, self.stationarity_ = learned.weights, learned.stationarity
        # Numbers, or one for every target.
        self.alpha_: Any = learned.alpha * targets.weight_unit
        self._ridge_of_mean_weight = learned.alpha
        self.criterion_: Any = learned.value
        self.history_ = [
            {"iteration": i, "objective": value} for i, value in enumerate(learned.history, start=1)
        ]
        self.n_iter_ = len(learned.history)
        self.intercept_, self.dual_coef_ = learned.intercept, learned.beta.T
        eta = np.tile(learned.weights, (len(learned.intercept), 1))
        if isinstance(data, FeatureSet) and learned.sums is not None:
            each = np.split(learned.sums * targets.unit, np.cumsum(data.kernel_set.widths)[:-1])
            expansion = data.feature_expansion(
                [each[m] for m in np.flatnonzero(learned.weights)], eta
            )
        else:
            expansion = data.expansion(learned.beta.T, np.arange(len(learned.beta)), eta)
        self.function_ = Function(expansion, learned.intercept)
        self._ridge, self._left_out = learned.alpha / targets.weight, learned.residuals
        self._covariance, self._has_matrix = (
            None,
            isinstance(data.stack, MatrixStack) and data.stack.can_be_factorised,
        )
        if isinstance(data.stack, FeatureStack):
            covariance = learned.covariance
            if covariance is None:  # the machine was that of matrices
                with data.threads():
                    form = FeatureForm.of(data.stack, targets.weight)
                    covariance = form.at(learned.weights, learned.alpha).covariance()
            kept = np.isin(
                np.repeat(np.arange(len(learned.weights)), data.stack.widths),
                self.function_.expansion.kept,
            )
            at = np.append(np.flatnonzero(kept), len(kept))
            self._covariance = covariance[np.ix_(at, at)]

    def _say_how_level(self, is_exact: bool) -> None:
        """Print how level the criterion is, if `verbose`, and warn where it is not, unless all
        targets are met."""
        name = type(self).__name__
        if self.verbose:
            print(
                f"{name}: {self.n_iter_} evaluations, criterion {self.criterion_:.6g}, "
                f"largest slope per sample {self.stationarity_:.2g}.",
                flush=True,
            )
        if not self.stationarity_ <= self.tol and not is_exact:
            ended = self.n_iter_ > self.max_iter
            remedy = "raise max_iter, or accept a larger tol"
            if not ended:
                remedy = "no step lowers the criterion further; accept a larger tol"
            warn_caller(
                f"{name} stopped at a slope of {self.stationarity_:.2g} per sample, above"
                f" tol={self.tol:g}: {remedy}.",
                ConvergenceWarning,
            )

    def _warn_of_rounding(self, data: TrainingSet, found: RidgeLearned, most: float = 1e-3) -> None:
        """Warn if linear systems were not solved, or if rounding of large entries shows in
        predictions."""
        if found.unsolved:
            warn_caller(
                f"{type(self).__name__}: the linear systems of {data.stack.n_samples} pairs were"
                f" solved to a relative residual of {found.unsolved:.2g} only, so that predictions"
                f" and leave-one-out errors are wrong: give an alpha larger than {found.alpha:.2g},"
                " or kernels that are less alike.",
                ConvergenceWarning,
            )
        if not self._has_matrix:
            return
        largest = float(found.weights @ np.abs(data.diagonals()).max(axis=1))
        error = np.finfo(np.float64).eps * largest * float(np.abs(found.beta).sum(axis=0).max())
        if error > most:
            warn_caller(
                f"{type(self).__name__}: the combined kernel has entries up to {largest:.2g}, so"
                f" large relative to alpha={found.alpha:.2g} that rounding may change a prediction"
                f" by {error:.2g} standard deviations of the targets: use scale=True or"
                " normalize='trace', or centre the columns.",
                ConvergenceWarning,
            )

    def _outputs_left_out(self, prepared: Prepared, learned: RidgeLearned, X: MatrixLike) -> Array:
        """Return the outputs of all samples, each by the machine without it."""
        rows, group, targets = prepared.rows, prepared.group, prepared.targets
        outputs = np.empty((X.shape[0], targets.Y.shape[1]))
        outputs[rows] = targets.mean + targets.unit * targets.Y - self._unseen_residuals
        rest = np.setdiff1d(np.arange(len(outputs)), rows)
        if len(rest):
            standardizer = self._input_rules.standardizer
            Z = X[rest] if standardizer is None else standardizer(X[rest])
            outputs[rest] = self.function_.outputs(Z)
            if group is not None:
                same = group[rest, np.newaxis] == group[rows]
                outputs[rest] -= (self._influence(Z, prepared.scaled.X) * same) @ learned.residuals
        return outputs

    def _learn(
        self,
        data: TrainingSet,
        targets: RidgeTargets,
        stack: MatrixStack | FeatureStack | None = None,
        rows: NDArray[np.intp] | None = None,
        options: RidgeOptions | None = None,
        **start: Any,
    ) -> RidgeLearned:
        """Learn what the parameters leave open, on a training set's kernels, or on the same ones in
        another form."""
        stack = data.stack if stack is None else stack
        if options is None:
            options = self._candidates(data, stack, targets, targets.n_units)[0][0]
        known = {"options": options, **self._known_parameters(data, targets), **start}
        first = start.get("start")
        if rows is not None and isinstance(data, FeatureSet) and first is not None:
            known |= {"weights": first.weights, "ties": None}
        if rows is not None and isinstance(stack, MatrixStack) and stack.can_be_factorised:
            return learn_from_some(stack, targets, rows, **known)
        return learn_ridge(stack, targets, **known)

    def _known_parameters(self, data: TrainingSet, targets: RidgeTargets) -> dict[str, Any]:
        """Return what of ridge and weights is given, and which weights are tied, as `search_ridge`
        reads them."""
        tied = self._weights_are_tied
        return {
            "alpha": None if self.alpha == "learn" else float(self.alpha) / targets.weight_unit,
            "weights": (
                None
                if self.weights is None or tied
                else given_weights(self.weights, len(data.kernel_set))
            ),
            "ties": ties_of_weights("factorized", data.kernel_set) if tied else None,
        }

    @property
    def _weights_are_tied(self) -> bool:
        """Whether weights are products of factors that are learned."""
        return isinstance(self.weights, str) and self.weights == "factorized"

    def _count_weights(self, data: TrainingSet) -> int:
        """Return how many weights, or factors of weights, are learned: none of a single kernel."""
        if self._weights_are_tied:
            return int(ties_of_weights("factorized", data.kernel_set).shape[1])
        n_kernels = len(data.kernel_set)
        return n_kernels if self.weights is None and n_kernels > 1 else 0

    def _candidates(
        self,
        data: TrainingSet,
        stack: MatrixStack | FeatureStack,
        targets: RidgeTargets,
        n_learned: int,
    ) -> tuple[list[RidgeOptions], float | None]:
        """Return the criteria, with their priors, that are tried, and the effective number of
        kernels.

        Where no weights are learned there is one criterion, and the number is None.
        """
        options = RidgeOptions(tol=self.tol, max_iter=self.max_iter, n_init=self.n_init)
        n_weights = self._count_weights(data)
        if n_weights == 0:
            criterion = "evidence" if self.criterion == "evidence" else "loo"
            return [replace(options, criterion=criterion)], None
        n_effective = cross_fitting.effective_number(stack, targets.content_order)
        is_given = self.weight_prior != "auto"
        if is_given:
            strength = float(self.weight_prior)
        else:
            strength = cross_fitting.RULE.strength(n_effective, n_weights, n_learned)
        criterion = self.criterion
        if criterion == "auto" and not stack.can_be_factorised:
            criterion = "loo"  # the evidence needs a matrix of all pairs
        return cross_fitting.candidates(options, criterion, strength, is_given), n_effective

    def _choose_candidate(self, prepared: Prepared) -> WeightSearch:
        """Return the criterion and prior to learn weights by, and residuals of samples that weights
        had not seen."""
        data, targets = prepared.data, prepared.targets
        n_learned = (
            targets.n_units if prepared.some is None else targets.take(prepared.some).n_units
        )
        tried, n_effective = self._candidates(data, data.stack, targets, n_learned)
        n_widths = 0
        if prepared.first is not None:
            n_widths = sum(map(len, prepared.first.widths.values()))
        if n_widths > 0 or isinstance(data, FeatureSet):
            # What comes before, widths and numbers of features, is learned by the first of them.
            tried = tried[:1]
        is_given = self.weight_prior != "auto"
        seen_share = cross_fitting.RULE.seen_share(tried[0].weight_prior, is_given)
        n_parameters = self._count_weights(data) + n_widths
        if not cross_fitting.needs_folds(n_learned, n_parameters):
            return WeightSearch(tried[0], n_effective)
        problem = self._fold_problem(prepared)

        def search(
            stack: MatrixStack | FeatureStack, part: RidgeTargets, options: RidgeOptions, start: Any
        ) -> RidgeSearch:
            known = self._known_parameters(problem.data, part)
            return search_ridge(stack, part, options=options, start=start, **known)

        def stack_for(fold: Fold) -> tuple[MatrixStack | FeatureStack, RidgeLearned | None]:
            return self._stack_of_fold(prepared, problem, fold)

        fits = cross_fitting.cross_fit(problem.targets, problem.folds, tried, search, stack_for)
        chosen = cross_fitting.choose(fits, cross_fitting.RULE.gain(targets))
        unseen = fits[chosen].residuals[problem.numbers_of_judged]
        return WeightSearch(
            tried[chosen], n_effective, problem.judged, unseen, seen_share, fits[chosen].middle
        )

    def _fold_problem(self, prepared: Prepared) -> FoldProblem:
        """Return the samples that are judged by weights learned from others, and how they are
        split.

        Where weights are learned from less than half of the samples, the others have had no part in
        them, and judge those that had: the weights of as many others do.
        """
        data, targets, some = prepared.data, prepared.targets, prepared.some
        n = len(targets.Y)
        if some is None or n < 2 * len(some):
            most_rows = None if some is None else len(some)
            every = np.arange(n)
            return FoldProblem(
                every,
                data,
                data.stack,
                targets,
                cross_fitting.make_folds(targets, most_rows),
                every,
            )
        rest = np.setdiff1d(np.arange(n), some)
        second = rest[targets.take(rest).spread(len(some))]
        both = np.union1d(some, second)
        part = targets.take(both)
        if isinstance(data, FeatureSet):
            counted = DistinctSamples(np.arange(len(both)), part.weight)
            exact = replace(prepared.exact_options, stores=False)
            data = read_training_set(
                exact, prepared.scaled.X[both], prepared.scaled.original, counted
            )
            stack = data.stack
        else:
            stack = data.stack.take(both)
        numbers_of_some, numbers_of_second = (
            np.searchsorted(both, some),
            np.searchsorted(both, second),
        )
        folds = [Fold(numbers_of_some, numbers_of_second), Fold(numbers_of_second, numbers_of_some)]
        return FoldProblem(both, data, stack, part, folds, some)

    def _stack_of_fold(
        self, prepared: Prepared, problem: FoldProblem, fold: Fold
    ) -> tuple[MatrixStack | FeatureStack, RidgeLearned | None]:
        """Return the kernels of all samples that a fold needs, and what was learned with their
        widths, if it was.

        Widths that have seen the samples of the fold would judge them, too, so they are learned
        without it.
        """
        if prepared.first is None or not prepared.first.widths:
            return problem.stack, None
        rows = problem.rows[fold.learned_from]
        learned = self._learn_widths(
            prepared.scaled, prepared.targets, prepared.options, len(rows), rows
        )
        assert learned is not None
        counted = DistinctSamples(np.arange(len(problem.rows)), problem.targets.weight)
        options = replace(
            prepared.exact_options, entries=entries_with_widths(prepared.options, learned)
        )
        data = read_training_set(
            options, prepared.scaled.X[problem.rows], prepared.scaled.original, counted
        )
        return data.stack, learned

    def _keep_search(self, search: WeightSearch) -> None:
        """Keep how the weights were learned."""
        self.chosen_criterion_ = search.options.criterion
        self.n_effective_kernels_ = search.n_effective
        self.weight_prior_ = None if search.n_effective is None else search.options.weight_prior

    def _written_out(self, given: FitInput) -> list[Entry]:
        """Return the kernels, with `PerColumn` expanded where widths are learned."""
        entries = self.read_kernels(given.table, given.views)
        kernels = [
            entry.kernel.kernel if isinstance(entry.kernel, PerColumn) else entry.kernel
            for entry in entries
        ]
        if not any(width_learner(kernel) for kernel in kernels):
            return entries
        return [
            Entry(spec.name, spec.kernel, spec.columns) for spec in lay_specs(entries, given.table)
        ]

    def _learn_widths(
        self,
        given: FitInput,
        targets: RidgeTargets,
        options: KernelOptions,
        most: int,
        among: NDArray[np.intp] | None = None,
    ) -> RidgeLearned | None:
        """Learn widths with everything else, by exact kernels of samples that lack nothing; None if
        there are none.

        Of more than `most` such samples, so many are taken, evenly spread, and none but those in
        `among`.
        """
        learners = {
            m: one
            for m, entry in enumerate(options.entries)
            if (one := width_learner(entry.kernel))
        }
        if not learners:
            return None
        if self.normalize not in (None, "trace", "diagonal"):
            raise ValueError(
                f"normalize={self.normalize!r}: widths are learned with normalize='trace',"
                " 'diagonal' or None."
            )
        if sparse.issparse(given.X):
            raise ValueError(
                "width='learn': widths are learned from dense samples; give X as an array."
            )
        entries = [
            replace(entry, kernel=with_width(entry.kernel, "median")) for entry in options.entries
        ]
        present = present_views(lay_specs(entries, given.table), given.X)
        rows = np.arange(len(given.X)) if present is None else np.flatnonzero(present.all(axis=1))
        if present is not None and len(rows) < 10:
            raise ValueError(
                f"width='learn': {len(rows)} of the {len(present)} samples have all views, and"
                " widths are learned from at least 10 such samples; give widths as numbers, or"
                " 'median'."
            )
        if among is not None:
            rows = np.intersect1d(rows, among)
        complete = targets.take(rows)
        if complete.groups is not None and len(complete.groups) == 1:
            raise ValueError(
                "groups: all samples that have all views are of one group, and widths are learned"
                " from such samples; give widths as numbers, or 'median'."
            )
        rows = rows[complete.spread(most)]
        some = targets.take(rows)
        exact = replace(options, entries=entries, approximation=None, missing=None)
        data = read_training_set(
            exact, given.X[rows], given.original, DistinctSamples.all_of(len(rows), some.weight)
        )
        assert isinstance(data, ExactSet)
        asarray = data.stack.backend.asarray
        widths = {
            m: RadialWidths(learner, asarray(data.views[m])) for m, learner in learners.items()
        }
        with data.threads():
            return self._learn(data, some, widths=widths)

    def _warn_of_repeats(self, X: MatrixLike, targets: RidgeTargets) -> None:
        """Warn where many samples have an equal one: leave-one-out keeps it, and the evidence
        underestimates noise."""
        left_out = self.criterion != "evidence"
        if (left_out and targets.groups is not None) or sparse.issparse(X) or X.dtype.kind != "f":
            return
        rows = X if left_out else np.column_stack([X, targets.Y])
        repeated = 1.0 - len(np.unique(rows, axis=0)) / len(rows)
        if repeated >= (0.2 if left_out else 0.1):
            why = (
                "so leave-one-out scores are too optimistic: give groups, equal for samples that"
                " belong together"
                if left_out
                else (
                    "with its target, so the evidence underestimates the noise: give each sample"
                    " once, with its count as sample_weight, or use criterion='loo' with groups"
                )
            )
            warn_caller(
                f"{type(self).__name__}: {100 * repeated:.0f} % of the samples duplicate another"
                f" one, {why}."
            )

    @property
    def weight_shares_(self) -> Array:
        """The shares of the weights: how large all are together is a matter of the ridge."""
        return np.asarray(self.weights_ / self.weights_.sum(axis=-1, keepdims=True))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse |= self.kernels is None
        return tags

    def _influence(self, X: MatrixLike, training: MatrixLike) -> Array:
        """Return what the target of every training sample adds to the outputs for validated samples
        X."""
        if self._covariance is None:
            placed = self.function_.expansion.placed
            system = MatrixLeastSquares.of(placed(self._X, self._X), self._ridge)
            return system.influence(placed(X, training))
        return np.asarray(
            self._features(X) @ self._covariance @ self._features(training).T / self._ridge
        )

    def _features(self, X: MatrixLike) -> Array:
        """Return the features of validated samples, and a one."""
        maps = self.function_.expansion.kernel_set
        assert isinstance(maps, FeatureMaps)
        found = dict(maps.blocks(X, range(len(maps))))
        return np.column_stack([*(found[m] for m in range(len(maps))), np.ones(X.shape[0])])


@dataclass(frozen=True)
class LeftOut(Unseen):
    """All machines of a ridge estimator without one sample, or its group, in closed form.

    In features, and of many pairs, no sample changes the machine by much, and the machine itself
    takes their place.

    Attributes
    ----------
    model : BaseRidge
        Fitted.
    """

    model: BaseRidge

    def bands(self, X: MatrixLike) -> Iterator[tuple[Array, Array]]:
        model, X = self.model, self.model.read(X)
        outputs, r, groups = model.function_.outputs(X), model._left_out, model._groups
        if not model._has_matrix:
            yield outputs[:, np.newaxis], outputs[:, np.newaxis]
            return
        h, group = model._influence(X, model._X), np.arange(len(r))
        for g, S in enumerate(groups or []):
            group[S] = g
        for rows in row_strips(len(outputs), BLOCK // r.size):
            parts = h[rows, :, np.newaxis] * r
            if groups is not None:
                parts = np.stack([parts[:, S].sum(axis=1) for S in groups], axis=1)[:, group]
            values = outputs[rows, np.newaxis] - parts
            yield values, values


def _content_order(
    given: FitInput, weight: Array, group: NDArray[np.intp] | None
) -> NDArray[np.intp]:
    """Return the samples in an order that depends on neither the order nor the units in which they
    are given."""
    ties = [np.asarray(to_host(given.y)), weight]
    if group is not None:
        ties.append(group)
    return content_order(on_grid(given.X), *ties)


def _read_groups(groups: TargetLike, n: int) -> NDArray[np.intp] | None:
    """Return the number of every sample's group, or raise saying what is wrong."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (n,):
        raise ValueError(
            f"groups has shape {groups.shape}: give one label per sample, {n} of them."
        )
    if is_missing(groups).any():
        raise ValueError("groups holds None or NaN: give every sample the label of its group.")
    return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.intp)


def _members(group: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the rows of every group, or raise if there is one only."""
    labels = np.unique(group, return_inverse=True)[1]
    if labels.max() == 0:
        raise ValueError(
            "groups holds one group only: some samples must stay when a group is left out."
        )
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])


@dataclass(frozen=True)
class TargetPattern:
    """Samples that have the same targets: the numbers of both."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


def _patterns_of_targets(Y: ArrayOrTensor) -> list[TargetPattern] | None:
    """Return which samples have which targets, those of the same samples together; None if all
    samples have all."""
    if not isinstance(Y, np.ndarray):
        return None
    has = ~np.isnan(Y)
    if has.all():
        return None
    patterns, number = np.unique(has, axis=1, return_inverse=True)
    number = number.ravel()
    return [
        TargetPattern(np.flatnonzero(patterns[:, k]), np.flatnonzero(number == k))
        for k in range(patterns.shape[1])
    ]


def _missing_targets(y: TargetLike) -> NDArray[np.bool_] | None:
    """Return which targets of a table samples lack; None if there are none, or y is no table of
    numbers."""
    if tensor_device(y) is not None:
        return None
    values = _as_numbers(y)
    if values is None or values.ndim != 2:
        return None
    missing = np.isnan(values)
    return missing if missing.any() else None


def _as_numbers(y: TargetLike) -> Any:
    """Return a table of targets as numbers, NaN where there is none; None if it is of something
    else."""
    values = np.asarray(y)
    if values.dtype.kind == "f":
        return values
    if values.dtype.kind != "O" or values.ndim != 2:
        return None
    try:
        return np.where(is_missing(values), np.nan, values).astype(np.float64)
    except (TypeError, ValueError):
        return None


def _filled_by_means(Y: Array) -> Array:
    """Return targets with those that are NaN replaced by the mean of their column, or by zero
    without any."""
    missing = np.isnan(Y)
    if not missing.any():
        return Y
    counts = np.maximum((~missing).sum(axis=0), 1)
    means = np.where(missing, 0.0, Y).sum(axis=0) / counts
    return np.where(missing, means, Y).astype(Y.dtype)


class MKLRidgeCV(RegressorMixin, BaseRidge):
    """Kernel ridge regression with weights and ridge learned by leave-one-out error or evidence,
    without folds.

    Minimises Σ_i w_i (y_i − f(x_i) − b)² + α ‖f‖² in the function space of K = Σ_m η_m K_m, whose
    leave-one-out residuals are known in closed form. The weights η ≥ 0, not normalised, and the
    ridge α minimise a criterion by quasi-Newton steps in their logarithms, with weak priors towards
    equal weights and α = e⁻¹. The criterion is not convex: `stationarity_` is its largest slope at
    the end, and the search starts from `n_init` ridges.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`; None means 20 kernels: linear, quadratic, Gaussians and
        Laplacians of ½, 1, 2 and 4 times the median distance, on the columns and, unless they are
        sparse, on their ranks.
    criterion : {"auto", "loo", "evidence"}, default="auto"
        What is minimised. "loo" is the logarithm of the mean squared leave-one-out residual,
        "evidence" the negative log evidence of the Gaussian process with this kernel and noise.
        "auto" is "loo", or, where the prior on the weights is strong (many different kernels for
        few samples), the evidence if its outputs left out are better by two nats (classes: four),
        weights learned without the sample.
    alpha : float or "learn", default="learn"
        The ridge, relative to the sample weights: with twice the weights, the same fit needs twice
        the ridge.
    weights : array-like of shape (P,), "uniform" or "factorized", default=None
        Given weights; None learns them. ``"factorized"``, for the products of
        :func:`kernels.pairwise`, learns one factor per kernel of the left and one per kernel of the
        right, whose products are the weights.
    weight_prior : float or "auto", default="auto"
        How strongly learned weights are drawn towards equal ones, in nats per squared unit of log
        η. "auto" follows from the effective number of kernels and the number of samples: 0.2 for
        kernels of one table, up to 2 for many kernels that differ, such as one per column, with few
        samples; the evidence takes at most 0.6.
    per_target : bool, default=False
        Whether every column of a 2-D `y` has its own weights and ridge; a single column is fitted
        as a 1-D `y` is. They are chosen for all targets together from `n_candidates`, each one
        factorisation: a design, then centres of groups of targets with similar weights, found by
        interpolation of the criterion and the frequency of weights among all targets; from the
        centre of its group every target moves to its own posterior mean where that lowers its
        criterion. The criterion of a target, here without priors, is no larger than with the best
        candidate, one of which, for more than six kernels, has shared weights learned with exact
        gradients. `y` may be a memory map or, on a GPU, a tensor; in single precision it is not
        copied to double. Linear kernels of fewer columns than there are samples are factorised by
        their columns (banded ridge).
    n_candidates : int, default=210
        With `per_target`, the number of candidates.
    scale : bool, default=True
        Whether to standardise the columns that kernels read as numbers.
    normalize, approximation, rank, missing, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`. With ``approximation="fourier"``, None means the Gaussians and
        Laplacians of the columns alone.
    subsample : int, "auto" or None, default="auto"
        Most samples that weights and widths are learned from, evenly spread over the sorted
        targets, with at least two of every class and group; they do not depend on the order in
        which samples are given. The ridge and the machine, and so leave-one-out predictions and
        intervals, are those of all samples. ``"auto"`` is 1000, and None means all. Where exact
        linear systems of all samples take too long (more than 15,000 samples without a GPU) or too
        much memory, they are fitted by Nyström features, 3000 in all, or fewer by `rank` and
        `memory_budget`, unless `subsample` is None; a warning says so, and samples must have all
        views. With `per_target`, kernels of pairs or an `approximation`, all samples are learned
        from.
    n_init : int, default=2
        Ridges to start from; the best after five steps is followed.
    tol : float, default=1e-3
        Largest slope of the criterion in the logarithms at which to stop, divided by the number of
        samples, or by 300 if there are more.
    max_iter : int, default=100
        Maximum number of steps.

    Attributes
    ----------
    weights_ : ndarray of shape (P,), or (targets, P) with `per_target`
        η, of the kernels as normalised; per target their sum is one unless `alpha` or `weights` is
        given.
    view_weights_ : dict
        Their sums over the kernels of every view, by its name.
    alpha_ : float, or ndarray of shape (targets,)
        The ridge, relative to the sample weights as they were given.
    kernels_, kernel_names_ : list
        The fitted kernels, and their names.
    loo_predictions_ : ndarray of shape (n_samples,) or (n_samples, targets)
        The prediction of every sample by the machine fitted without it; not kept with `per_target`.
        With fewer than 50 samples for each learned weight the weights, too, are learned without the
        sample: on four of five folds.
    loo_scores_ : ndarray of shape (targets,)
        R² of every target by leave-one-out, with `per_target`. Where samples and targets are many
        (n³ times targets above 2·10¹⁰), that of weights between candidates is interpolated, mostly
        to three digits. The weights of a target are chosen by it, so that it is a training score:
        too high where samples are few for each kernel.
    best_score_ : float
        R² of `loo_predictions_`, the mean over targets. With `per_target` it is the
        `training_score_`: cross-validate the fit for a score of weights that had not seen the
        sample.
    training_score_ : float
        The same by the weights of the model, which were chosen to make it large; with `per_target`
        the mean of `loo_scores_`.
    chosen_criterion_ : {"loo", "evidence"}
        The criterion that was minimised.
    weight_prior_ : float or None
        The strength of the prior on the weights; None where they are given.
    n_effective_kernels_ : float or None
        The effective number of kernels, (Σ λ)² / Σ λ² of the eigenvalues of their centred
        alignments: 1 if all are alike, P if they have nothing in common; None where weights are
        given.
    criterion_, stationarity_ : float
        The criterion with its priors at the end, in nats, and its largest slope, divided as for
        `tol`: in the ridge that on all samples; in the weights, where `subsample` is fewer, that on
        the samples they are learned from. With `per_target` the criterion of every target, and by
        how much its interpolation between candidates falls below it, on average, divided likewise.
    history_ : list of dict
        The criterion at every evaluation; with `per_target` its mean after every round of
        candidates.
    n_iter_ : int
        The number of evaluations; with `per_target` that of candidates.
    dual_coef_, intercept_
        As in :class:`MKLRegressor`.
    coef_ : dict
        The coefficients of the columns in every linear kernel, by its name, in the units of X as
        given.
    coef_intercept_ : float, or ndarray of shape (targets,)
        The constant that goes with `coef_`. `intercept_` goes with `contributions`, of standardised
        columns.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelmosaic import MKLRidgeCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRidgeCV().fit(X[:200], y[:200])
    >>> model.predict_interval(X[200:203]).shape
    (3, 2)
    """

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        per_target: bool = False,
        n_candidates: int = 210,
        criterion: str = "auto",
        alpha: float | str = "learn",
        weights: ArrayOrTensor = None,
        weight_prior: float | str = "auto",
        scale: bool = True,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        missing: str = "neighbors",
        subsample: int | str | None = "auto",
        n_init: int = 2,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.per_target = per_target
        self.n_candidates = n_candidates
        self.criterion = criterion
        self.alpha = alpha
        self.weights = weights
        self.weight_prior = weight_prior
        self.scale = scale
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.missing = missing
        self.subsample = subsample
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: SampleWeight = None,
        groups: TargetLike = None,
    ) -> Self:
        """Fit to samples and their targets.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets. With `per_target` and exact kernels, NaN marks a target that a sample lacks:
            every target is learned from the samples that have it.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of the squared errors. Leave-one-out removes a sample with all its weight. A
            common factor of all weights changes nothing, unless `alpha` is a number, which is
            relative to the weights as given.
        groups : array-like of shape (n_samples,), optional
            Samples of one group are left out together.

        Returns
        -------
        self
        """
        check_row_names(X, groups=groups)
        given = self.validated(X, y, sample_weight)
        self._is_flat = given.y.ndim == 1
        if self.per_target and not self._is_flat:
            return self._fit_each(given, groups)
        learned, outputs = self._learn_ridge(given, groups)
        self.loo_predictions_ = self.decide(outputs)
        Y = given.y.reshape(len(given.y), -1)
        weight = np.ones(len(Y)) if given.weight is None else given.weight
        units = centre_and_unit(Y, weight)[1]
        missed = np.average(((Y - outputs) / units) ** 2, axis=0, weights=weight)
        # As scikit-learn has it, one for a constant that is predicted.
        self.best_score_ = float(np.mean(1.0 - missed))
        counted = np.flatnonzero(weight)
        missed_in_training = np.average(
            (self._left_out / units) ** 2, axis=0, weights=weight[counted]
        )
        self.training_score_ = float(np.mean(1.0 - missed_in_training))
        # The deviation s of which standardised leave-one-out residuals r_i √A_ii / s have mean
        # square one.
        unit = np.maximum(np.abs(learned.residuals).max(axis=0), np.finfo(float).tiny)
        noise = unit * np.sqrt(np.mean(learned.beta / unit * (learned.residuals / unit), axis=0))
        # Those that the weights did not see are larger by this factor.
        seen = np.sqrt(np.mean((learned.residuals / unit) ** 2, axis=0))
        unseen = np.sqrt(np.mean((self._unseen_residuals / unit) ** 2, axis=0))
        self._noise = noise * np.divide(unseen, seen, out=np.ones_like(seen), where=seen > 0)
        return self

    def _fit_each(self, given: FitInput, groups: TargetLike) -> Self:
        """Learn weights and ridge of every target."""
        check_count("n_candidates", self.n_candidates)
        patterns = _patterns_of_targets(given.y)
        if patterns is not None:
            observed = np.unique(np.concatenate([pattern.rows for pattern in patterns]))
            group = _read_groups(groups, given.X.shape[0])
            groups = None if group is None else group[observed]
            given = given.take(observed)
            patterns = _patterns_of_targets(given.y)
        T = given.y.shape[1]
        # What targets share, as the scale of columns, is learned from some.
        some = np.unique(np.linspace(0, T - 1, min(T, _SHARED_FROM)).astype(np.intp))
        few = replace(
            given, y=_filled_by_means(np.asarray(to_host(given.y[:, some]), dtype=np.float64))
        )
        prepared = self._prepare(few, groups)
        data, weight_unit = prepared.data, prepared.targets.weight_unit
        Y = given.y if len(prepared.rows) == len(given.y) else given.y[prepared.rows]
        if patterns is None:
            stack = _columns_of(data) or data.stack
            learned, stationarity = self._learn_each(prepared, stack, Y)
        else:
            learned, stationarity = self._learn_patterns(prepared, Y)
        self._keep_kernels(prepared)
        if self.alpha == "learn":
            scale = (
                given_weights(self.weights, len(data.kernel_set)).sum()
                if self.weights is not None
                else 1.0
            )
            alpha = scale / learned.ratios.sum(axis=1)
        else:
            alpha = np.full(T, float(self.alpha) / weight_unit)
        self.alpha_ = alpha * weight_unit
        self.weights_ = learned.ratios * alpha[:, np.newaxis]
        self.criterion_, self.loo_scores_ = learned.value, 1.0 - learned.errors
        # Every sample had a part in the weights that judge it.
        self.best_score_ = self.training_score_ = float(np.mean(self.loo_scores_))
        self.stationarity_ = stationarity
        self.history_ = [
            {"iteration": i, "objective": value} for i, value in enumerate(learned.history, start=1)
        ]
        self.n_iter_ = len(learned.candidates)
        self.intercept_, self.dual_coef_ = learned.intercept, learned.beta.T
        self.dual_coef_ /= alpha[:, np.newaxis].astype(self.dual_coef_.dtype)
        expansion = data.expansion(self.dual_coef_, np.arange(len(Y)), self.weights_)
        self.function_ = StripFunction(expansion, self.intercept_, shares_weights=False)
        return self

    def _learn_each(
        self, prepared: Prepared, stack: MatrixStack | FeatureStack, Y: ArrayOrTensor
    ) -> tuple[TargetsLearned, float]:
        """Return what is learned of every target, and how level the criterion is, of samples that
        have all targets."""
        T, weight = Y.shape[1], prepared.targets.weight
        if T > 1 and self.weights is not None:
            eta = given_weights(self.weights, stack.n_kernels)
            sums = np.geomspace(1e-4, 1e6, 101)
            if self.alpha != "learn":
                sums = eta.sum() * prepared.targets.weight_unit / np.array([float(self.alpha)])
            seeds, first = [], eta / eta.sum() * sums[:, np.newaxis]
        else:
            seeds = self._learn_seeds(prepared, stack, T)
            first = np.array([one.weights / one.alpha for one in seeds]) if seeds else None
        # One target has no others to be compared with: its weights are those by exact slopes.
        options = replace(TargetOptions.of(self.n_candidates), verbose=bool(self.verbose))
        if T == 1 or self.weights is not None:
            options = replace(options, sizes=())
        size = int(stack.widths.sum()) if isinstance(stack, FeatureStack) else len(Y)
        with one_blas_thread() if len(Y) * size * (size + T) < _THREADED_FROM else nullcontext():
            learned = learn_target_weights(
                stack,
                Y,
                weight,
                check_random_state(self.random_state),
                criterion="evidence" if self.criterion == "evidence" else "loo",
                groups=prepared.targets.groups,
                first=first,
                options=options,
            )
        if T == 1:
            return learned, seeds[0].stationarity
        return learned, learned.left_over / min(float(weight.sum()), RidgeOptions.slope_samples)

    def _learn_patterns(self, prepared: Prepared, Y: Array) -> tuple[TargetsLearned, float]:
        """Return the same where samples lack targets: each is learned from the samples that have
        it.

        Kernels are those of all samples; targets that the same samples have are learned together.
        """
        if not isinstance(prepared.data.stack, MatrixStack):
            raise ValueError(
                "y contains NaN: targets that some samples lack are learned with exact kernels; use"
                " approximation=None, or fit every target to the samples that have it."
            )
        parts = []
        for pattern in _patterns_of_targets(Y) or []:
            if len(pattern.rows) < 2:
                raise ValueError(
                    f"y contains NaN: target {pattern.columns[0]} has {len(pattern.rows)} samples"
                    " of positive weight, and leave-one-out needs at least two; leave it out."
                )
            own = np.asarray(Y[np.ix_(pattern.rows, pattern.columns)])
            weight = prepared.targets.weight[pattern.rows]
            shared = np.unique(
                np.linspace(0, own.shape[1] - 1, min(own.shape[1], _SHARED_FROM)).astype(np.intp)
            )
            numbers = RidgeTargets.of_numbers(own[:, shared].astype(np.float64), weight)
            targets = replace(
                prepared.targets.take(pattern.rows),
                Y=numbers.Y,
                mean=numbers.mean,
                unit=numbers.unit,
            )
            part = replace(prepared, targets=targets)
            stack = prepared.data.stack.take(pattern.rows, stored=True)
            parts.append((pattern, *self._learn_each(part, stack, own)))
        learned = join_targets(
            [(pattern.rows, pattern.columns, one) for pattern, one, _ in parts], Y.shape
        )
        return learned, max(stationarity for *_, stationarity in parts)

    def _learn_seeds(
        self, prepared: Prepared, stack: MatrixStack | FeatureStack, T: int
    ) -> list[RidgeLearned]:
        """Learn by exact slopes what is tried first: for some targets together and, where they are
        few, for each."""
        if T > _ONE_BY_ONE and stack.n_kernels <= _COVERED:
            return []
        targets = prepared.targets
        with prepared.data.threads():
            shared = self._learn(prepared.data, targets, stack, start=prepared.first)
            alone = [
                replace(targets, Y=targets.Y[:, t : t + 1])
                for t in range(T if 1 < T <= _ONE_BY_ONE else 0)
            ]
            return [
                shared,
                *(self._learn(prepared.data, one, stack, start=shared) for one in alone),
            ]

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            if self.per_target and tensor_device(y) is not None and y.ndim == 2:
                # It stays on its device; all of its columns are looked at there.
                given = self._read_input(X, y[:, :1], sample_weight, NUMBERS)
                if not bool(y.isfinite().all()):
                    raise ValueError(
                        "y contains NaN or infinity: leave these targets or samples out."
                    )
                return replace(given, y=y, device=given.device or tensor_device(y))
            missing = _missing_targets(y) if self.per_target else None
            if missing is not None:
                check_row_names(X, y=y)
                given = self._read_input(
                    X, _filled_by_means(_as_numbers(y)), sample_weight, NUMBERS
                )
                values = np.where(missing, np.nan, given.y).astype(given.y.dtype)
                return replace(given, y=values)
            given = self._read_input(X, y, sample_weight, NUMBERS)
            keep = self.per_target and given.y.ndim == 2 and given.y.dtype == np.float32
            return given if keep else replace(given, y=np.asarray(given.y, dtype=np.float64))

    def _refuse_each(self, what: str) -> None:
        """Raise if every target has weights of its own."""
        if np.ndim(self.alpha_) == 1:
            raise ValueError(
                f"{what} needs weights that all targets share: fit with per_target=False, or fit"
                " the targets that need it one by one."
            )

    @property
    def coef_(self) -> dict[str, Array]:
        """The coefficients of the columns in every linear kernel, (columns,) or (columns, targets),
        by its name.

        They are those of the columns as given, not standardised: the contribution of the kernel is
        ``X[:, columns] @ coef_[name]``, but for a constant. `coef_intercept_` has the constants of
        all linear kernels.
        """
        linear = self._columns_of_linear_kernels("coef_")
        unit = np.ones(self.n_features_in_)
        standardizer = self._input_rules.standardizer
        if standardizer is not None:
            unit[standardizer.columns] = standardizer.scale
        outputs, found = len(self.intercept_), {}
        for m, columns in linear.items():
            one = np.zeros((len(columns), outputs))
            for part in row_strips(outputs, StripFunction.at_once):
                one[:, part] = self.function_.expansion.take(part).slopes(m, columns, len(unit))
            one /= unit[columns, np.newaxis]
            found[self.kernel_names_[m]] = one[:, 0] if self._is_flat else one
        return found

    @property
    def coef_intercept_(self) -> Any:
        """The constant that goes with `coef_`: a number, or an ndarray of shape (targets,).

        Predictions are ``coef_intercept_``, and of every linear kernel ``X[:, columns] @
        coef_[name]``, and the contributions of all other kernels. `intercept_` goes with
        :meth:`contributions`, whose linear kernels read standardised columns.
        """
        linear = self._columns_of_linear_kernels("coef_intercept_")
        # Linear kernels of a sample whose columns are zero, as given, contribute the constants.
        if self._X is None:
            zeros: Any = np.zeros((1, self.n_features_in_))
        elif is_sparse(self._X):
            zeros = sparse.csr_matrix((1, self.n_features_in_))
        else:
            zeros = self._X[:1].copy()  # the columns of other kernels may hold text
            for columns in linear.values():
                zeros[:, columns] = 0.0
        standardizer = self._input_rules.standardizer
        Z = zeros if standardizer is None else standardizer(zeros)
        constants = np.array(self.intercept_, dtype=np.float64)
        for part in row_strips(len(constants), StripFunction.at_once):
            terms = self.function_.expansion.take(part).terms(Z)
            constants[part] += terms[0, [*linear]].sum(axis=0)
        return float(constants[0]) if self._is_flat else constants

    def _columns_of_linear_kernels(self, attribute: str) -> dict[int, NDArray[np.intp]]:
        """Return the columns of every linear kernel by its number, or raise if there is none."""
        check_is_fitted(self)
        entries = [one if isinstance(one, tuple) else (None, one, None) for one in self.kernels_]
        every = np.arange(self.n_features_in_)
        linear = {}
        for m, (_, kernel, columns) in enumerate(entries):
            if isinstance(kernel, Linear):
                linear[m] = every if columns is None else every[columns]
        if not linear or self.normalize == "diagonal":
            raise AttributeError(
                f"{attribute}: only Linear() kernels have coefficients, and not with"
                " normalize='diagonal'."
            )
        return linear

    def _targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        return RidgeTargets.of_numbers(y.reshape(len(y), -1), weight)

    def predict(self, X: MatrixLike, return_std: bool = False) -> ArrayOrTensor:
        """Return the predicted targets, in the shape of those the model was fitted to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        return_std : bool, default=False
            Whether to return the standard deviation of every target around its prediction, too:
            that of the Gaussian process, whose scale makes the mean square of standardised
            leave-one-out residuals one. In features it is the process of the features, whose
            deviations are too small far from the landmarks.
        """
        outputs = self.decide(self._outputs(X))
        if not return_std:
            return outputs
        self._refuse_each("return_std=True")
        if not self._has_matrix and self._covariance is None:
            raise ValueError(
                f"return_std=True: the matrix of the {len(self._left_out)} training pairs is not"
                " computed; use predict_interval, which adds quantiles of the leave-one-out"
                " residuals."
            )
        # Of a small variance rounding may leave less than nothing.
        variance = np.maximum(self._variances(self.read(X)), 0.0)
        variance += self._ridge_of_mean_weight
        deviation = np.sqrt(variance)[:, np.newaxis] * self._noise
        return outputs, self.decide(deviation)

    def _variances(self, X: MatrixLike) -> Array:
        """Return the variances of the outputs for validated samples, in units of that of the noise
        over α."""
        if self._covariance is not None:
            parts = [
                self._features(part) for _, (part,) in self.function_.expansion.sums.strips(X, None)
            ]
            return np.concatenate(
                [np.einsum("ij,ij->i", one @ self._covariance, one) for one in parts]
            )
        K, k = (
            self.function_.expansion.placed(self._X, self._X),
            self.function_.expansion.placed(X, self._X),
        )
        return variances(K, self._ridge, k, self.function_.expansion.diagonal(X))

    predict_interval = conformal.predict_interval

    def _unseen(self) -> LeftOut:
        self._refuse_each("predict_interval")
        return LeftOut(np.abs(self._unseen_residuals), None, self._is_flat, self)

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return R², of several targets the mean over them, by the weights of the samples if these
        are given."""
        check_row_names(X, y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))

    def score_split(self, X: MatrixLike, y: TargetLike) -> Array:
        """Return each kernel's share of R², which they sum to (the product measure).

        The share of kernel m is Σ_i g_mi (2 ỹ_i − f̃_i) / Σ_i ỹ_i², with its contribution g_m
        centred and targets and predictions relative to the mean target. It is negative where a
        kernel's contribution points away from what the others leave unexplained, as with kernels
        that cancel each other. The bias of the mean prediction is deducted from all kernels alike.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, targets)
            Their targets.

        Returns
        -------
        ndarray of shape (P,) or (P, targets)
        """
        check_row_names(X, y=y)
        Z = self.read(X)
        given = np.asarray(to_host(y))
        y, outputs = given[:, np.newaxis] if given.ndim == 1 else given, len(self.intercept_)
        if y.shape != (Z.shape[0], outputs):
            raise ValueError(
                f"y has shape {given.shape}: give {outputs} targets for each of the {Z.shape[0]}"
                " samples."
            )
        if self.weights_.ndim == 1:
            shares = _split_score(self.function_.expansion.terms(Z), self.intercept_, y)
            return shares[:, 0] if self._is_flat else shares
        parts = row_strips(outputs, StripFunction.at_once)
        each = [
            _split_score(self.function_.expansion.take(t).terms(Z), self.intercept_[t], y[:, t])
            for t in parts
        ]
        return np.concatenate(each, axis=1)

    def decide(self, outputs: Array) -> Array:
        return outputs[:, 0] if self._is_flat else outputs

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _columns_of(data: TrainingSet) -> StoredFeatures | None:
    """Return the columns that linear kernels read, as normalised, where these are fewer than
    samples; else None."""
    if not isinstance(data, ExactSet) or data.present is not None or not data.views:
        return None
    fitted, views = data.kernel_set.fitted, data.views
    is_linear = all(
        isinstance(one.kernel, Linear) and not isinstance(one.normalization, Centered)
        for one in fitted
    )
    if not is_linear or not all(isinstance(view, np.ndarray) for view in views):
        return None
    if sum(view.shape[1] for view in views) >= len(views[0]):
        return None
    place = backend_on(data.device)
    rules = [one.normalization for one in fitted]
    exact = (np.asarray(view, np.float64) for view in views)
    return StoredFeatures(
        [place.asarray(r.features(X, r.row_scale(X))) for r, X in zip(rules, exact, strict=True)]
    )


def _split_score(terms: Array, intercept: Array, y: Array) -> Array:
    """Return the share of R² of every kernel and target, for contributions of shape (n, P,
    targets)."""
    y = np.asarray(y, dtype=np.float64)
    centred = y - y.mean(axis=0)
    f = terms.sum(axis=1) + intercept - y.mean(axis=0)
    parts = terms - terms.mean(axis=0)
    shares = (
        np.einsum("imc,ic->mc", parts, 2.0 * centred - f)
        - len(y) * f.mean(axis=0) ** 2 / terms.shape[1]
    )
    return np.asarray(shares / np.sum(centred**2, axis=0))


class MKLRidgeClassifierCV(KernelClassifier, BaseRidge):
    """Least-squares classification with weights and ridge learned by leave-one-out log-loss,
    without folds.

    The machine of :class:`MKLRidgeCV` for targets ±1 of two classes, or the indicators of several.
    The weights, the ridge and the scale a of outputs minimise the log-loss of softmax(a f₋ᵢ(xᵢ)),
    f₋ᵢ the machine without sample i, or the evidence. Probabilities come from the same
    leave-one-out outputs, with one constant more per class.

    Parameters
    ----------
    kernels, criterion, alpha, weights, weight_prior, scale, normalize, approximation, rank, missing
        As in :class:`MKLRidgeCV`; with ``criterion="loo"`` the log-loss is minimised.
    class_weight : dict or "balanced", default=None
        Factors of the sample weights, class by class; ``"balanced"`` as in :class:`MKLClassifier`.
    subsample, n_init, tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLRidgeCV`.

    Attributes
    ----------
    classes_ : ndarray of shape (classes,)
        The classes in order.
    loo_predictions_ : ndarray of shape (n_samples,)
        The class of every sample, predicted by the machine fitted without it, weights included as
        in :class:`MKLRidgeCV`.
    loo_probabilities_ : ndarray of shape (n_samples, classes)
        Its class probabilities, likewise.
    best_score_ : float
        The accuracy of `loo_predictions_`.
    training_score_ : float
        The same by the weights of the model, which were chosen to make it large.
    weights_, view_weights_, alpha_, kernels_, kernel_names_, chosen_criterion_, weight_prior_, \
    n_effective_kernels_, criterion_, stationarity_, history_, dual_coef_, intercept_
        As in :class:`MKLRidgeCV`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelmosaic import MKLRidgeClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLRidgeClassifierCV().fit(X, y)
    >>> model.predict_proba(X[:2]).shape, model.best_score_ > 0.9
    ((2, 3), True)
    """

    _knows_probabilities = True

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        class_weight: Any = None,
        criterion: str = "auto",
        alpha: float | str = "learn",
        weights: ArrayOrTensor = None,
        weight_prior: float | str = "auto",
        scale: bool = True,
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        missing: str = "neighbors",
        subsample: int | str | None = "auto",
        n_init: int = 2,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.class_weight = class_weight
        self.criterion = criterion
        self.alpha = alpha
        self.weights = weights
        self.weight_prior = weight_prior
        self.scale = scale
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.missing = missing
        self.subsample = subsample
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: SampleWeight = None,
        groups: TargetLike = None,
    ) -> Self:
        """Fit to samples and their classes.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of the squared errors. Leave-one-out removes a sample with all its weight. A
            common factor of all weights changes nothing, unless `alpha` is a number, which is
            relative to the weights as given.
        groups : array-like of shape (n_samples,), optional
            Samples of one group are left out together.

        Returns
        -------
        self
        """
        check_row_names(X, groups=groups)
        given = self.validated(X, y, sample_weight)
        self.classes_ = find_classes(given.y, given.weight, type(self).__name__)
        weight = np.ones(given.X.shape[0]) if given.weight is None else given.weight.copy()
        counted = np.flatnonzero(weight)
        if self.class_weight is not None:
            weight[counted] *= class_factors(
                self.class_weight, given.y[counted], weight[counted], self.classes_
            )
        learned, outputs = self._learn_ridge(replace(given, weight=weight), groups)
        labels = Labels(self.classes_).codes(given.y[counted])
        # As in the criterion, a common factor of all weights says nothing.
        relative_weight = weight[counted] / weight[counted].mean()
        seen_outputs = outputs[counted] + self._unseen_residuals - self._left_out
        # Weights of folds are a little worse than those of all samples, which know a little too
        # much.
        both_outputs = np.vstack([outputs[counted], seen_outputs])
        shares = np.concatenate(
            [(1.0 - self._seen_share) * relative_weight, self._seen_share * relative_weight]
        )
        self._calibration, shift = ScaledSoftmax.fit(both_outputs, np.tile(labels, 2), shares)
        self.intercept_ = learned.intercept + shift
        self.function_ = replace(self.function_, intercept=self.intercept_)
        self.loo_predictions_ = self.decide(outputs + shift)
        self.loo_probabilities_ = self._probabilities(outputs + shift)
        self.best_score_ = float(np.average(self.loo_predictions_ == given.y, weights=given.weight))
        given_weight = None if given.weight is None else given.weight[counted]
        is_right = self.decide(seen_outputs + shift) == given.y[counted]
        self.training_score_ = float(np.average(is_right, weights=given_weight))
        self._own_misfits = own_misfits(per_class((outputs + shift)[counted]), labels)
        return self

    predict_set = conformal.predict_set

    def _unseen(self) -> LeftOut:
        return LeftOut(self._own_misfits[:, np.newaxis], self.classes_, True, self)

    def _targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        return RidgeTargets.of_classes(Labels(self.classes_).codes(y), weight)

    def decide(self, outputs: Array) -> NDArray[Any]:
        return Labels(self.classes_).decide(outputs)


@dataclass(frozen=True)
class ScaledSoftmax:
    """Probabilities softmax(a f), shrunk by one sample of equal probabilities.

    Attributes
    ----------
    scale : float
        a.
    total : float
        The weight of the samples that it was fitted to.
    """

    scale: float
    total: float

    @classmethod
    def fit(
        cls, outputs: Array, labels: NDArray[np.intp], weight: Array
    ) -> tuple[ScaledSoftmax, Array]:
        """Minimise the log-loss of softmax(a f + b), and return it with what b adds to the outputs
        f.

        The priors, in nats, are 3 b² and 0.02 (log a)².
        """
        scores = per_class(outputs)

        def value(x: Array) -> tuple[float, Array]:
            z = np.exp(x[0]) * scores + x[1:]
            loss, slope = softmax_loss(z, labels, weight)
            prior = 0.02 * x[0] ** 2 + 3.0 * float(x[1:] @ x[1:])
            first = np.exp(x[0]) * float(np.sum(slope * scores)) + 0.04 * x[0]
            return loss + prior, np.concatenate([[first], slope.sum(axis=0) + 6.0 * x[1:]])

        found = minimize(value, np.zeros(1 + scores.shape[1]), jac=True, method="L-BFGS-B").x
        shift = found[1:] / np.exp(found[0])
        one = outputs.shape[1] == 1
        return cls(float(np.exp(found[0])), float(weight.sum())), (
            0.5 * (shift[1:] - shift[:1]) if one else shift
        )

    def probabilities(self, outputs: Array) -> Array:
        """Return the probabilities of the classes, of shape (n, classes)."""
        p = softmax(self.scale * per_class(outputs), axis=1)
        return np.asarray((self.total * p + 1.0 / p.shape[1]) / (self.total + 1.0))
