"""Weights by a criterion as a method of a fit: leave-one-out error or evidence of least squares.

In the order of a fit: `CriterionMethod.read` learns widths and says in which form the kernels are
kept; `learner` chooses the criterion and its prior, on folds where samples are few; `learn`
minimises the criterion; `completed` adds what the closed form of leave-one-out knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from scipy import sparse

from kernelmosaic._checks import warn_caller
from kernelmosaic._typing import AnyArray, Array, ArrayOrTensor, Indices, Settings, TargetLike
from kernelmosaic.backend import backend_on, default_budget, format_bytes
from kernelmosaic.engine.expansion import Function
from kernelmosaic.engine.fit import Fit, Method, Recipe
from kernelmosaic.engine.samples import DistinctSamples, FitInput
from kernelmosaic.engine.tasks import Labels, Task, find_classes
from kernelmosaic.engine.training_set import (
    FeatureSet,
    KernelOptions,
    KernelStore,
    TrainingSet,
    read_training_set,
)
from kernelmosaic.gram.feature_maps import check_ranks
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.missing import present_views
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.kernels.numeric import RadialWidths
from kernelmosaic.kernels.transformed import width_learner, with_width
from kernelmosaic.kernels.views import Entry, PerColumn, lay_specs
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.ridge import cross_fitting, tuning
from kernelmosaic.ridge.cross_fitting import Fold
from kernelmosaic.ridge.kernels import ties_of_weights
from kernelmosaic.ridge.learning import (
    RidgeLearned,
    RidgeOptions,
    RidgeSearch,
    RidgeStart,
    RidgeTargets,
    learn_from_subset,
    learn_ridge,
    search_ridge,
)
from kernelmosaic.ridge.left_out import LeftOutMachines
from kernelmosaic.solvers.least_squares import FeatureForm

# Tasks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RidgeTask(Task):
    """Targets of least squares, with the samples that are left out together.

    Attributes
    ----------
    groups : list of ndarray or None
        The samples of every group, known once the task is prepared.
    order : ndarray of shape (n,) or None
        The samples, sorted by their content.
    """

    groups: list[Indices] | None = None
    order: Indices | None = None

    merges_repeats: ClassVar[bool] = False

    def prepared(self, inputs: FitInput) -> Self:
        groups = None if inputs.groups is None else members_of_groups(inputs.groups)
        return replace(self, groups=groups, order=inputs.order)

    def targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        """Return what is fitted, for the targets and weights of all samples."""
        raise NotImplementedError

    def machines(self, y: TargetLike, weight: Array) -> list[Any]:
        """Return the targets of the one machine that all outputs share."""
        return [replace(self.targets(y, weight), groups=self.groups, order=self.order)]


@dataclass(frozen=True, eq=False)
class RidgeNumbers(RidgeTask):
    """Numbers, of one target or of several.

    Attributes
    ----------
    is_flat : bool
        Whether targets are numbers, not rows of several; known once the task is prepared.
    """

    is_flat: bool = True

    def prepared(self, inputs: FitInput) -> Self:
        return replace(super().prepared(inputs), is_flat=inputs.y.ndim == 1)

    def targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        return RidgeTargets.of_numbers(y.reshape(len(y), -1), weight)

    def decide(self, outputs: Array, intercept: Array) -> Array:
        return outputs[:, 0] if self.is_flat else outputs


@dataclass(frozen=True, eq=False)
class RidgeClasses(RidgeTask):
    """Classes: ±1 for two of them, indicators of several."""

    def prepared(self, inputs: FitInput) -> Self:
        classes = find_classes(inputs.y, inputs.weight, self.name)
        return replace(super().prepared(inputs), classes=classes)

    def targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        return RidgeTargets.of_classes(Labels(self.classes).codes(y), weight)

    def decide(self, outputs: Array, intercept: Array) -> AnyArray:
        return Labels(self.classes).decide(outputs)

    def count_support(self, y: TargetLike, support: Indices) -> Indices:
        codes = Labels(self.classes).codes(y[support])
        return np.bincount(codes, minlength=len(self.classes))


def members_of_groups(group: Indices) -> list[Indices]:
    """Return the rows of every group, or raise if there is a single one."""
    labels = np.unique(group, return_inverse=True)[1]
    if labels.max() == 0:
        raise ValueError(
            "groups holds one group only: some samples must stay when a group is left out."
        )
    sizes = np.bincount(labels)
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])


# What is learned from, and how --------------------------------------------------------------------


@dataclass(frozen=True)
class RidgeSamples:
    """The samples with their kernels and targets, as a criterion reads them.

    Attributes
    ----------
    inputs : FitInput
        The samples as the kernels read them.
    targets : RidgeTargets
        Their targets.
    data : TrainingSet
        Their kernels.
    with_widths : RidgeLearned or None
        The fit to a subset that learned widths, or from which features of all samples were chosen;
        None without either.
    subset : ndarray or None
        The samples that weights are learned from; None means all.
    options : KernelOptions
        The kernels as the user gave them, before widths are learned.
    exact_options : KernelOptions
        The kernels of `data`, exact even if `data` has features in place of matrices.
    """

    inputs: FitInput
    targets: RidgeTargets
    data: TrainingSet
    with_widths: RidgeLearned | None
    subset: Indices | None
    options: KernelOptions
    exact_options: KernelOptions

    @property
    def n_units(self) -> int:
        """The number of groups, or of single samples, that weights are learned from."""
        targets = self.targets if self.subset is None else self.targets.take(self.subset)
        return targets.n_units

    @property
    def n_widths(self) -> int:
        """The number of widths that were learned."""
        if self.with_widths is None:
            return 0
        return sum(map(len, self.with_widths.widths.values()))


@dataclass(frozen=True)
class WeightSearch:
    """The criterion to learn weights by, and the residuals by which it was chosen.

    Attributes
    ----------
    options : RidgeOptions
        The criterion and the strength of its prior.
    n_effective : float or None
        The effective number of kernels; None where no weights are learned.
    judged, unseen : ndarray or None
        Numbers of samples, and their leave-one-out residuals by weights learned without them. None
        if the residuals by the weights of the model serve as well.
    seen_share : float
        The fraction of the calibration for outputs by weights that have seen the sample.
    start : RidgeStart or None
        Where the search for the weights of all samples starts: the mean of what folds learned.
    """

    options: RidgeOptions
    n_effective: float | None = None
    judged: Indices | None = None
    unseen: Array | None = None
    seen_share: float = 1.0
    start: RidgeStart | None = None

    #: The reason why a gap was not reached, which `Fit` reads; a criterion has no gap.
    stalled: ClassVar[None] = None


@dataclass(frozen=True)
class FoldProblem:
    """The samples that are judged by weights of folds.

    Attributes
    ----------
    rows : ndarray
        The numbers of these samples.
    data, stack, targets : TrainingSet, MatrixStack or FeatureStack, RidgeTargets
        Their kernels and targets.
    folds : list of Fold
        Folds of these samples, by their places in `rows`.
    judged : ndarray
        The numbers of the samples whose residuals are wanted.
    """

    rows: Indices
    data: TrainingSet
    stack: MatrixStack | FeatureStack
    targets: RidgeTargets
    folds: list[Fold]
    judged: Indices

    @property
    def places_of_judged(self) -> Indices:
        """The places in `rows` of the samples whose residuals are wanted."""
        return np.searchsorted(self.rows, self.judged)


@dataclass(frozen=True)
class RidgeResult:
    """The machine that was learned by a criterion.

    Attributes
    ----------
    machine : RidgeLearned
        The machine, in units of the targets, with the history of all that was learned.
    standardised : RidgeLearned
        The same in units of the standardised targets, with the history of its own search.
    """

    machine: RidgeLearned
    standardised: RidgeLearned

    @property
    def weights(self) -> Array:
        """The weights of the kernels."""
        return self.machine.weights


@dataclass(frozen=True)
class CriterionMethod(Method):
    """Weights, ridge and scale that minimise leave-one-out error or negative evidence.

    Attributes
    ----------
    criterion, alpha, weights, weight_prior, subsample, n_init, tol, max_iter
        As in `MKLRidgeCV`.
    rank : int, sequence of int, or None
        Most features of a kernel; None where none was given.
    uses_all_samples : bool
        Whether weights are learned from all samples, whatever `subsample` says.
    host_samples : int
        Largest number of samples whose matrices stay on the host; `MKLRidgeCV` sets zero where
        many targets make products worth a device.
    samples : RidgeSamples or None
        The samples, once `read` has read them.
    """

    criterion: str
    alpha: float | str
    weights: ArrayOrTensor
    weight_prior: float | str
    subsample: int | str | None
    n_init: int
    tol: float
    max_iter: int
    rank: Any = None
    uses_all_samples: bool = False
    host_samples: int = 2000
    samples: RidgeSamples | None = field(default=None, repr=False)

    is_plain: ClassVar[bool] = False
    is_certified: ClassVar[bool] = False

    # Reading samples ------------------------------------------------------------------------------

    def read(
        self, recipe: Recipe, task: Task, inputs: FitInput, store: KernelStore | None
    ) -> tuple[Self, TrainingSet]:
        """Return the method with the samples, and the kernels of all samples.

        Widths are learned first; then features are chosen if there are too many samples for
        matrices.
        """
        n = inputs.X.shape[0]
        weight = np.ones(n) if inputs.weight is None else inputs.weight
        (targets,) = task.machines(inputs.y, weight)
        # 1. The kernels as given, with those of single columns written out if widths are learned.
        options = recipe.kernels.placed(n, self.host_samples)
        options = replace(options, entries=written_out(options.entries, inputs))
        given_options = options
        # 2. Widths, by exact kernels of a subset.
        subset = self._rows_to_learn_from(targets, options)
        most_rows = RidgeOptions.width_rows if subset is None else len(subset)
        with_widths = self._learn_widths(inputs, targets, options, most_rows)
        if with_widths is not None:
            options = replace(options, entries=entries_with_widths(options, with_widths))
        # 3. Features in place of matrices whose linear systems take more than minutes or memory.
        options = exact_options = replace(options, stores=subset is None)
        if subset is not None:
            budget = options.memory_budget
            if budget is None:
                budget = default_budget(backend_on(options.device))
            needs_memory = tuning.EXACT_MATRICES * 8 * n * n > budget
            needs_minutes = options.device is None and n > tuning.EXACT_UP_TO
            if needs_memory or needs_minutes:
                options, with_widths = self._in_features(
                    options, inputs, targets, subset, with_widths, budget
                )
        if options.approximation is None:
            self._refuse_rank()
        # 4. The kernels of all samples.
        counted = DistinctSamples(np.arange(n), weight)
        data = read_training_set(options, inputs.X, inputs.original, counted, store)
        samples = RidgeSamples(
            inputs, targets, data, with_widths, subset, given_options, exact_options
        )
        return replace(self, samples=samples), data

    def _refuse_rank(self) -> None:
        """Raise if a rank is given for kernels that are exact."""
        if self.rank is not None:
            raise ValueError(
                f"rank={self.rank!r}: exact kernels have no rank; give approximation='nystroem',"
                " 'leading' or 'fourier', too, or leave rank out."
            )

    def _rows_to_learn_from(self, targets: RidgeTargets, options: KernelOptions) -> Indices | None:
        """Return samples of all classes and groups that weights are learned from; None for all."""
        if self.subsample is None or self.uses_all_samples or options.approximation is not None:
            return None
        count = tuning.LEARNED_FROM if self.subsample == "auto" else int(self.subsample)
        if count >= len(targets.Y):
            return None
        # Kernels of pairs are products with the matrices of their members, whatever the number of
        # pairs.
        if any(entry.kernel.reads_pairs for entry in options.entries):
            return None
        return targets.spread(max(count, 2))

    def _in_features(
        self,
        options: KernelOptions,
        inputs: FitInput,
        targets: RidgeTargets,
        subset: Indices,
        with_widths: RidgeLearned | None,
        budget: float,
    ) -> tuple[KernelOptions, RidgeLearned]:
        """Learn weights from exact kernels of a subset, and choose features of all samples.

        A kernel has more features the more weight it has.

        Returns
        -------
        options : KernelOptions
            Those of the features.
        learned : RidgeLearned
            The fit to the subset.
        """
        n = len(targets.Y)
        subset_targets = targets.take(subset)
        specs = lay_specs(options.entries, inputs.table)
        n_kernels = len(specs)
        if present_views(specs, inputs.X) is not None:
            raise ValueError(
                f"X: some samples lack a view, which exact kernels complete, but {n} samples are"
                " too many for exact linear systems: give subsample=None for exact systems all the"
                f" same, which hold {n_kernels + 3} matrices of {format_bytes(8 * n * n)}, or fill"
                " the cells of missing views, too, as scikit-learn's SimpleImputer does in an"
                " earlier step of a pipeline."
            )
        matrix_bytes = tuning.FEATURE_FRACTION * budget / (tuning.FEATURE_MATRICES * 8)
        most_features = int(np.sqrt(matrix_bytes)) - 1
        if most_features < tuning.LEAST_FEATURES * n_kernels:
            raise MemoryError(
                f"The {n} samples are too many for exact linear systems, and"
                f" memory_budget={format_bytes(budget)} is too small for {tuning.LEAST_FEATURES}"
                f" features of each of the {n_kernels} kernels: raise memory_budget."
            )
        counted = DistinctSamples(np.arange(len(subset)), subset_targets.weight)
        exact = replace(options, stores=True)
        data = read_training_set(exact, inputs.X[subset], inputs.original, counted)
        with data.threads():
            learned = self.learn_on(data.stack, data, subset_targets, start=with_widths)
        fractions = learned.weights / learned.weights.sum()
        n_features = min(tuning.N_FEATURES, most_features)
        ranks = [max(int(n_features * fraction), 1) for fraction in fractions]
        if self.rank is not None:
            limits = check_ranks(self.rank, len(fractions))
            ranks = [int(min(rank, limit)) for rank, limit in zip(ranks, limits, strict=True)]
        warn_caller(
            f"{options.estimator}: the {n} samples are too many for exact linear systems. The fit"
            f" uses {sum(ranks)} Nyström features and weights learned from {len(subset)} samples;"
            " set approximation and rank to choose others, or subsample=None."
        )
        return replace(options, approximation="nystroem", rank=ranks), learned

    def _learn_widths(
        self,
        inputs: FitInput,
        targets: RidgeTargets,
        options: KernelOptions,
        most_rows: int,
        allowed_rows: Indices | None = None,
    ) -> RidgeLearned | None:
        """Learn widths with everything else, by exact kernels of samples that have all views.

        Parameters
        ----------
        inputs, targets, options
            The samples, their targets and their kernels.
        most_rows : int
            Largest number of samples, evenly spread, that are taken.
        allowed_rows : ndarray, optional
            The samples that may be taken; by default all.

        Returns
        -------
        RidgeLearned or None
            None where no kernel has a width to learn.
        """
        learners = {}
        for m, entry in enumerate(options.entries):
            learner = width_learner(entry.kernel)
            if learner:
                learners[m] = learner
        if not learners:
            return None
        if options.normalize not in (None, "trace", "diagonal"):
            raise ValueError(
                f"normalize={options.normalize!r}: widths are learned with normalize='trace',"
                " 'diagonal' or None."
            )
        if sparse.issparse(inputs.X):
            raise ValueError(
                "width='learn': widths are learned from dense samples; give X as an array."
            )
        entries = [
            replace(entry, kernel=with_width(entry.kernel, "median")) for entry in options.entries
        ]
        rows = self._complete_rows(entries, inputs)
        if allowed_rows is not None:
            rows = np.intersect1d(rows, allowed_rows)
        complete = targets.take(rows)
        if complete.groups is not None and len(complete.groups) == 1:
            raise ValueError(
                "groups: all samples that have all views are of one group, and widths are learned"
                " from such samples; give widths as numbers, or 'median'."
            )
        rows = rows[complete.spread(most_rows)]
        subset_targets = targets.take(rows)
        exact = replace(options, entries=entries, approximation=None, missing=None)
        counted = DistinctSamples.all_of(len(rows), subset_targets.weight)
        data = read_training_set(exact, inputs.X[rows], inputs.original, counted)
        asarray = data.stack.backend.asarray
        widths = {
            m: RadialWidths(learner, asarray(data.views[m])) for m, learner in learners.items()
        }
        with data.threads():
            return self.learn_on(data.stack, data, subset_targets, widths=widths)

    def _complete_rows(self, entries: list[Entry], inputs: FitInput) -> Indices:
        """Return the samples that have all views, or raise if they are too few for widths."""
        present = present_views(lay_specs(entries, inputs.table), inputs.X)
        if present is None:
            return np.arange(len(inputs.X))
        rows = np.flatnonzero(present.all(axis=1))
        if len(rows) < tuning.LEAST_COMPLETE_SAMPLES:
            raise ValueError(
                f"width='learn': {len(rows)} of the {len(present)} samples have all views, and"
                f" widths are learned from at least {tuning.LEAST_COMPLETE_SAMPLES} such samples;"
                " give widths as numbers, or 'median'."
            )
        return rows

    # Choosing criterion and prior -----------------------------------------------------------------

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> Any:
        """Return the criterion and prior to learn weights by.

        If there are few samples for each weight, they are chosen by residuals of folds.
        """
        samples = self.samples
        assert samples is not None
        candidates, n_effective = self._candidates(
            data, data.stack, samples.targets, samples.n_units
        )
        if samples.n_widths > 0 or data.in_features:
            # Widths and numbers of features were learned before, by the first candidate.
            candidates = candidates[:1]
        is_given = self.weight_prior != "auto"
        seen_share = cross_fitting.RULE.seen_share(candidates[0].weight_prior, is_given)
        n_parameters = self._count_weights(data) + samples.n_widths
        if not cross_fitting.needs_folds(samples.n_units, n_parameters):
            return WeightSearch(candidates[0], n_effective)
        problem = self._fold_problem(samples)

        def search(
            stack: MatrixStack | FeatureStack,
            fold_targets: RidgeTargets,
            options: RidgeOptions,
            start: Any,
        ) -> RidgeSearch:
            parameters = self._given_parameters(problem.data, fold_targets)
            return search_ridge(stack, fold_targets, options=options, start=start, **parameters)

        def stack_for(fold: Fold) -> tuple[MatrixStack | FeatureStack, RidgeLearned | None]:
            return self._stack_of_fold(samples, problem, fold)

        fits = cross_fitting.cross_fit(
            problem.targets, problem.folds, candidates, search, stack_for
        )
        chosen = cross_fitting.choose(fits, cross_fitting.RULE.gain(samples.targets))
        return WeightSearch(
            candidates[chosen],
            n_effective,
            judged=problem.judged,
            unseen=fits[chosen].residuals[problem.places_of_judged],
            seen_share=seen_share,
            start=fits[chosen].middle,
        )

    def _candidates(
        self,
        data: TrainingSet,
        stack: MatrixStack | FeatureStack,
        targets: RidgeTargets,
        n_units: int,
    ) -> tuple[list[RidgeOptions], float | None]:
        """Return the criteria to try, with their priors, and the effective number of kernels.

        If no weights are learned there is one criterion, and the number is None.
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
            strength = cross_fitting.RULE.strength(n_effective, n_weights, n_units)
        criterion = self.criterion
        if criterion == "auto" and not stack.can_be_factorised:
            # The evidence needs a matrix of all pairs.
            criterion = "loo"
        return cross_fitting.candidates(options, criterion, strength, is_given), n_effective

    def _count_weights(self, data: TrainingSet) -> int:
        """Return how many weights, or factors of weights, are learned: zero for one kernel."""
        if self._weights_are_tied:
            return int(ties_of_weights("factorized", data.kernel_set).shape[1])
        n_kernels = len(data.kernel_set)
        return n_kernels if self.weights is None and n_kernels > 1 else 0

    @property
    def _weights_are_tied(self) -> bool:
        """Whether weights are products of factors that are learned."""
        return isinstance(self.weights, str) and self.weights == "factorized"

    def _fold_problem(self, samples: RidgeSamples) -> FoldProblem:
        """Return the samples that are judged by weights learned from others, and their folds.

        If weights are learned from at most half of the samples, there are two folds: this subset,
        and a second one of as many other samples. The subset is judged by weights learned from the
        second one; the residuals of all other samples are by weights that had not seen them anyway.
        """
        data = samples.data
        targets = samples.targets
        subset = samples.subset
        n = len(targets.Y)
        if subset is None or n < 2 * len(subset):
            most_rows = None if subset is None else len(subset)
            all_rows = np.arange(n)
            folds = cross_fitting.make_folds(targets, most_rows)
            return FoldProblem(all_rows, data, data.stack, targets, folds, all_rows)
        remaining = np.setdiff1d(np.arange(n), subset)
        second_subset = remaining[targets.take(remaining).spread(len(subset))]
        rows = np.union1d(subset, second_subset)
        both_targets = targets.take(rows)
        if data.in_features:
            counted = DistinctSamples(np.arange(len(rows)), both_targets.weight)
            exact = replace(samples.exact_options, stores=False)
            data = read_training_set(
                exact, samples.inputs.X[rows], samples.inputs.original, counted
            )
            stack = data.stack
        else:
            stack = data.stack.take(rows)
        first_places = np.searchsorted(rows, subset)
        second_places = np.searchsorted(rows, second_subset)
        folds = [Fold(first_places, second_places), Fold(second_places, first_places)]
        return FoldProblem(rows, data, stack, both_targets, folds, subset)

    def _stack_of_fold(
        self, samples: RidgeSamples, problem: FoldProblem, fold: Fold
    ) -> tuple[MatrixStack | FeatureStack, RidgeLearned | None]:
        """Return the kernels of the samples of all folds, and the fit that learned their widths.

        Widths are learned without the samples of the fold, since they must not have seen the
        samples that they judge. The fit is None if no widths are learned.
        """
        if samples.n_widths == 0:
            return problem.stack, None
        inputs = samples.inputs
        rows = problem.rows[fold.learned_from]
        learned = self._learn_widths(inputs, samples.targets, samples.options, len(rows), rows)
        assert learned is not None
        counted = DistinctSamples(np.arange(len(problem.rows)), problem.targets.weight)
        entries = entries_with_widths(samples.options, learned)
        options = replace(samples.exact_options, entries=entries)
        data = read_training_set(options, inputs.X[problem.rows], inputs.original, counted)
        return data.stack, learned

    # Minimising the criterion ---------------------------------------------------------------------

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        samples = self.samples
        assert samples is not None
        targets = samples.targets
        with_widths = samples.with_widths
        start = learner.start if with_widths is None else with_widths
        standardised = self.learn_on(
            data.stack,
            data,
            targets,
            start=start,
            subset=samples.subset,
            options=learner.options,
        )
        machine = replace(
            standardised,
            beta=standardised.beta * targets.unit,
            intercept=targets.mean + targets.unit * standardised.intercept,
            residuals=standardised.residuals * targets.unit,
        )
        if with_widths is not None:
            machine = replace(
                machine,
                history=with_widths.history + standardised.history,
                stationarity=max(with_widths.stationarity, standardised.stationarity),
            )
        return [RidgeResult(machine, standardised)]

    def learn_on(
        self,
        stack: MatrixStack | FeatureStack,
        data: TrainingSet,
        targets: RidgeTargets,
        *,
        start: Any = None,
        subset: Indices | None = None,
        options: RidgeOptions | None = None,
        widths: dict[int, RadialWidths] | None = None,
    ) -> RidgeLearned:
        """Learn weights, ridge, scale and widths, as far as the user has not given them.

        Parameters
        ----------
        stack : MatrixStack or FeatureStack
            The kernels of `data`, or the same ones in another form.
        data : TrainingSet
            The training set.
        targets : RidgeTargets
            Its targets.
        start : RidgeStart or RidgeLearned, optional
            Where the search starts.
        subset : ndarray, optional
            The samples that weights are learned from; by default all.
        options : RidgeOptions, optional
            Criterion and prior; by default the first candidate.
        widths : dict of int to RadialWidths, optional
            The kernels whose widths are learned, too.
        """
        if options is None:
            candidates, _ = self._candidates(data, stack, targets, targets.n_units)
            options = candidates[0]
        parameters = {"options": options, **self._given_parameters(data, targets), "start": start}
        if widths is not None:
            parameters["widths"] = widths
        # The weights of features are those by which their numbers were chosen.
        if subset is not None and data.in_features and start is not None:
            parameters |= {"weights": start.weights, "ties": None}
        if subset is not None and stack.widths is None and stack.can_be_factorised:
            return learn_from_subset(stack, targets, subset, **parameters)
        return learn_ridge(stack, targets, **parameters)

    def _given_parameters(self, data: TrainingSet, targets: RidgeTargets) -> dict[str, Any]:
        """Return the parameters `alpha`, `weights` and `ties` of `search_ridge`.

        The ridge and weights are None unless the user gave them.
        """
        alpha = weights = ties = None
        if self.alpha != "learn":
            alpha = float(self.alpha) / targets.weight_unit
        if self._weights_are_tied:
            ties = ties_of_weights("factorized", data.kernel_set)
        elif self.weights is not None:
            weights = given_weights(self.weights, len(data.kernel_set))
        return {"alpha": alpha, "weights": weights, "ties": ties}

    # The fit --------------------------------------------------------------------------------------

    def completed(self, fit: Fit) -> Fit:
        """Return the fit with all machines without one sample, in closed form."""
        samples = self.samples
        assert samples is not None
        search = fit.learner
        data = fit.data
        targets = samples.targets
        machine = fit.learned[0].machine
        unseen_residuals = machine.residuals
        if search.unseen is not None:
            unseen_residuals = machine.residuals.copy()
            unseen_residuals[search.judged] = search.unseen * targets.unit
        function = self.function(fit)
        # Features need no samples.
        X = None if data.in_features else samples.inputs.X
        left_out = LeftOutMachines(
            function,
            X=X,
            groups=targets.groups,
            ridge=machine.alpha / targets.weight,
            mean_ridge=machine.alpha,
            residuals=machine.residuals,
            unseen_residuals=unseen_residuals,
            seen_share=search.seen_share,
            left_out_outputs=targets.mean + targets.unit * targets.Y - unseen_residuals,
            covariance=self._covariance(fit, function),
            has_matrix=data.stack.widths is None and data.stack.can_be_factorised,
        )
        return replace(fit, rule=left_out)

    def _covariance(self, fit: Fit, function: Function) -> Array | None:
        """Return the covariance of the coefficients of active features, or None without features.

        Active features are those of kernels with a weight.
        """
        samples = self.samples
        assert samples is not None
        stack = fit.data.stack
        if stack.widths is None:
            return None
        machine = fit.learned[0].machine
        covariance = machine.covariance
        if covariance is None:
            # The machine was computed from matrices, as features were more than samples.
            with fit.data.threads():
                form = FeatureForm.of(stack, samples.targets.weight)
                covariance = form.at(machine.weights, machine.alpha).covariance()
        kernel_of_feature = np.repeat(np.arange(len(machine.weights)), stack.widths)
        is_active = np.isin(kernel_of_feature, function.expansion.kept)
        # The last one belongs to the intercept.
        active = np.append(np.flatnonzero(is_active), len(is_active))
        return np.asarray(covariance[np.ix_(active, active)])

    def support(self, fit: Fit) -> Indices:
        # Every sample has a coefficient.
        return np.arange(len(fit.data.kept))

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        (result,) = fit.learned
        return result.machine.beta.T, result.machine.intercept

    def function(self, fit: Fit) -> Function:
        samples = self.samples
        assert samples is not None
        data = fit.data
        machine = fit.learned[0].machine
        weights = np.tile(machine.weights, (len(machine.intercept), 1))
        if data.in_features and machine.sums is not None:
            starts_of_kernels = np.cumsum(data.kernel_set.widths)[:-1]
            sums = np.split(machine.sums * samples.targets.unit, starts_of_kernels)
            active_sums = [sums[m] for m in np.flatnonzero(machine.weights)]
            expansion = cast(FeatureSet, data).feature_expansion(active_sums, weights)
        else:
            expansion = data.expansion(machine.beta.T, np.arange(len(machine.beta)), weights)
        return Function(expansion, machine.intercept)

    def progress(self, fit: Fit) -> Settings:
        history = fit.learned[0].machine.history
        return {"history_": numbered(history), "n_iter_": len(history)}

    def attributes(self, fit: Fit) -> Settings:
        samples = self.samples
        assert samples is not None
        search = fit.learner
        machine = fit.learned[0].machine
        weight_prior = None if search.n_effective is None else search.options.weight_prior
        return {
            "kernels_": fitted_kernels(fit.data),
            "alpha_": machine.alpha * samples.targets.weight_unit,
            "criterion_": machine.value,
            "stationarity_": machine.stationarity,
            "chosen_criterion_": search.options.criterion,
            "n_effective_kernels_": search.n_effective,
            "weight_prior_": weight_prior,
            "_left_out": fit.rule,
        }

    # Texts about a fit ----------------------------------------------------------------------------

    def summary(self, fit: Fit) -> str | None:
        """Return one line about the search, or None where there is nothing to report."""
        machine = fit.learned[0].machine
        return (
            f"{len(machine.history)} evaluations, criterion {machine.value:.6g}, largest slope per"
            f" sample {machine.stationarity:.2g}."
        )

    def warning(self, fit: Fit, max_iter: int) -> str | None:
        (result,) = fit.learned
        machine = result.machine
        # If residuals are only rounding, so are their gradients.
        is_exact = bool(np.abs(result.standardised.residuals).max() < tuning.EXACT_RESIDUAL)
        if machine.stationarity <= self.tol or is_exact:
            return None
        remedy = "no step lowers the criterion further; accept a larger tol"
        if len(machine.history) > max_iter:
            remedy = "raise max_iter, or accept a larger tol"
        return (
            f" stopped at a slope of {machine.stationarity:.2g} per sample, above"
            f" tol={self.tol:g}: {remedy}."
        )

    def rounding_warning(self, fit: Fit) -> str | None:
        """Return a warning that rounding changes predictions, or None if it does not.

        The text follows the estimator's name. The systems of kernels of pairs are solved by
        iterations, which may have ended too early; those of matrices are rounded.
        """
        machine = fit.learned[0].standardised
        data = fit.data
        if machine.unsolved:
            return (
                f": the linear systems of {data.stack.n_samples} pairs were solved to a relative"
                f" residual of {machine.unsolved:.2g} only, so that predictions and leave-one-out"
                f" errors are wrong: give an alpha larger than {machine.alpha:.2g}, or kernels that"
                " are less alike."
            )
        if not fit.rule.has_matrix:
            return None
        largest = float(machine.weights @ np.abs(data.diagonals()).max(axis=1))
        sum_of_coefficients = float(np.abs(machine.beta).sum(axis=0).max())
        error = np.finfo(np.float64).eps * largest * sum_of_coefficients
        if error <= tuning.MOST_ROUNDING:
            return None
        return (
            f": the combined kernel has entries up to {largest:.2g}, so large relative to"
            f" alpha={machine.alpha:.2g} that rounding may change a prediction by {error:.2g}"
            " standard deviations of the targets: use scale=True or normalize='trace', or centre"
            " the columns."
        )


# Kernels with learned widths ----------------------------------------------------------------------


def entries_with_widths(options: KernelOptions, learned: RidgeLearned) -> list[Entry]:
    """Return the kernels with the widths that were learned."""
    return [
        replace(entry, kernel=with_width(entry.kernel, learned.widths.get(m, "median")))
        for m, entry in enumerate(options.entries)
    ]


def written_out(entries: list[Entry], inputs: FitInput) -> list[Entry]:
    """Return the kernels, with `PerColumn` expanded if any width is learned."""
    has_widths = False
    for entry in entries:
        kernel = entry.kernel.kernel if isinstance(entry.kernel, PerColumn) else entry.kernel
        has_widths = has_widths or bool(width_learner(kernel))
    if not has_widths:
        return entries
    specs = lay_specs(entries, inputs.table)
    return [Entry(spec.name, spec.kernel, spec.columns) for spec in specs]


def fitted_kernels(data: TrainingSet) -> list[Any]:
    """Return the fitted kernels, as a list of `kernels` has them."""
    kernel_set = getattr(data.kernel_set, "kernel_set", data.kernel_set)
    entries = kernel_set.fitted
    if all(entry.columns is None for entry in entries):
        return [entry.kernel for entry in entries]
    return [(entry.name, entry.kernel, entry.columns) for entry in entries]


def numbered(history: Sequence[float]) -> list[Settings]:
    """Return the values of a criterion as the lines of a history."""
    return [{"iteration": i, "objective": value} for i, value in enumerate(history, start=1)]
