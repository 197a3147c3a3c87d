"""Weights and a ridge for every target as a method of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from kernelmosaic._typing import Array, ArrayOrTensor, Indices, Seed, Settings, TargetLike
from kernelmosaic.backend import backend_on, one_blas_thread, to_host
from kernelmosaic.engine.expansion import Function, StripFunction
from kernelmosaic.engine.fit import Fit
from kernelmosaic.engine.tasks import Task
from kernelmosaic.engine.training_set import TrainingSet
from kernelmosaic.gram.feature_stack import FeatureStack, StoredFeatures
from kernelmosaic.gram.normalizing import Centered
from kernelmosaic.gram.stack import MatrixStack
from kernelmosaic.kernels import Linear
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.ridge import tuning
from kernelmosaic.ridge.learning import RidgeLearned, RidgeOptions, RidgeTargets
from kernelmosaic.ridge.method import (
    CriterionMethod,
    RidgeNumbers,
    RidgeSamples,
    fitted_kernels,
    numbered,
)
from kernelmosaic.ridge.per_target import (
    TargetOptions,
    TargetsLearned,
    join_targets,
    learn_target_weights,
)


@dataclass(frozen=True, eq=False)
class RidgeEach(RidgeNumbers):
    """Several targets, each with weights of its own."""

    def targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        """Return some of the targets, which stand for all where targets share parameters."""
        return RidgeTargets.of_numbers(shared_targets(y), weight)


def shared_targets(y: ArrayOrTensor) -> Array:
    """Return some columns of targets in double precision, with means for missing targets."""
    columns = evenly_spread(y.shape[1])
    return filled_by_means(np.asarray(to_host(y[:, columns]), dtype=np.float64))


def evenly_spread(n_targets: int) -> Indices:
    """Return the numbers of the targets that stand for all of them."""
    count = min(n_targets, tuning.N_SHARED_TARGETS)
    return np.unique(np.linspace(0, n_targets - 1, count).astype(np.intp))


def filled_by_means(Y: Array) -> Array:
    """Return targets with NaN replaced by the mean of the column, or zero if it has no number."""
    missing = np.isnan(Y)
    if not missing.any():
        return Y
    counts = np.maximum((~missing).sum(axis=0), 1)
    means = np.where(missing, 0.0, Y).sum(axis=0) / counts
    return np.where(missing, means, Y).astype(Y.dtype)


@dataclass(frozen=True)
class TargetPattern:
    """Samples that have the same targets.

    Attributes
    ----------
    rows : ndarray
        The numbers of the samples.
    columns : ndarray
        The numbers of the targets, which exactly these samples have.
    """

    rows: Indices
    columns: Indices


def patterns_of_targets(Y: ArrayOrTensor) -> list[TargetPattern] | None:
    """Return one pattern for all targets of the same samples; None if no target is missing."""
    if not isinstance(Y, np.ndarray):
        return None
    is_known = ~np.isnan(Y)
    if is_known.all():
        return None
    patterns, number = np.unique(is_known, axis=1, return_inverse=True)
    number = number.ravel()
    return [
        TargetPattern(np.flatnonzero(patterns[:, k]), np.flatnonzero(number == k))
        for k in range(patterns.shape[1])
    ]


@dataclass(frozen=True)
class TargetsResult:
    """The machines of all targets.

    Attributes
    ----------
    learned : TargetsLearned
        Ratios of weights and ridge, with the criterion of every target.
    weights : ndarray of shape (targets, P)
        The weights of the kernels.
    alpha : ndarray of shape (targets,)
        The ridges of samples of mean weight.
    beta : ndarray of shape (targets, n)
        The coefficients.
    stationarity : float
        As for `_learn_each`.
    """

    learned: TargetsLearned
    weights: Array
    alpha: Array
    beta: Array
    stationarity: float


@dataclass(frozen=True)
class TargetMethod(CriterionMethod):
    """Weights and a ridge for every target, chosen for all of them from the same candidates.

    Attributes
    ----------
    n_candidates : int
        The number of candidates.
    random_state : int, RandomState or None
        Draws them.
    verbose : bool
        Whether to print what every round of candidates gains.
    """

    n_candidates: int = 210
    random_state: Seed = None
    verbose: bool = False

    def learner(self, task: Task, data: TrainingSet, machines: Sequence[Any]) -> TargetOptions:
        return replace(TargetOptions.of(self.n_candidates), verbose=self.verbose)

    def learn(
        self, task: Task, data: TrainingSet, machines: list[Any], learner: Any, starts: list[Start]
    ) -> list[Any]:
        samples = self.samples
        assert samples is not None
        Y = samples.inputs.y
        if patterns_of_targets(Y) is None:
            stack = columns_of_linear_kernels(data) or data.stack
            learned, stationarity = self._learn_each(samples, stack, Y, learner)
        else:
            learned, stationarity = self._learn_patterns(samples, Y, learner)
        if self.alpha == "learn":
            total = 1.0
            if self.weights is not None:
                total = given_weights(self.weights, len(data.kernel_set)).sum()
            alpha = total / learned.ratios.sum(axis=1)
        else:
            alpha = np.full(Y.shape[1], float(self.alpha) / samples.targets.weight_unit)
        # In place: there may be many targets.
        beta = learned.beta.T
        beta /= alpha[:, np.newaxis].astype(beta.dtype)
        weights = learned.ratios * alpha[:, np.newaxis]
        return [TargetsResult(learned, weights, alpha, beta, stationarity)]

    def _learn_each(
        self,
        samples: RidgeSamples,
        stack: MatrixStack | FeatureStack,
        Y: ArrayOrTensor,
        options: TargetOptions,
    ) -> tuple[TargetsLearned, float]:
        """Learn weights and ridge of every target, where all samples have all targets.

        Returns
        -------
        learned : TargetsLearned
        stationarity : float
            For one target, that of its search by gradients. For several, by how much the criterion
            between candidates falls below the least one on average, per sample.
        """
        n_targets = Y.shape[1]
        weight = samples.targets.weight
        seeds: list[RidgeLearned] = []
        first = None
        if n_targets > 1 and self.weights is not None:
            first = self._sums_of_given_weights(samples, stack.n_kernels)
        else:
            seeds = self._learn_seeds(samples, stack, n_targets)
            if seeds:
                first = np.array([seed.weights / seed.alpha for seed in seeds])
        # A single target keeps the weights found by gradients: others by which a prior could be
        # learned are missing. Given weights leave only the ridge to choose.
        if n_targets == 1 or self.weights is not None:
            options = replace(options, sizes=())
        # The linear systems are those of features, or of samples.
        order = len(Y)
        if stack.widths is not None:
            order = int(stack.widths.sum())
        operations = len(Y) * order * (order + n_targets)
        is_small = operations < tuning.THREADED_OPERATIONS
        threads = one_blas_thread() if is_small else nullcontext()
        criterion = "evidence" if self.criterion == "evidence" else "loo"
        with threads:
            learned = learn_target_weights(
                stack,
                Y,
                weight,
                check_random_state(self.random_state),
                criterion=criterion,
                groups=samples.targets.groups,
                first=first,
                options=options,
            )
        if n_targets == 1:
            return learned, seeds[0].stationarity
        return learned, learned.left_over / min(float(weight.sum()), RidgeOptions.gradient_samples)

    def _sums_of_given_weights(self, samples: RidgeSamples, n_kernels: int) -> Array:
        """Return given weights divided by several ridges, of shape (candidates, P).

        If the ridge is given, too, there is one candidate.
        """
        weights = given_weights(self.weights, n_kernels)
        sums = np.geomspace(tuning.LEAST_SUM, tuning.LARGEST_SUM, tuning.N_SUMS)
        if self.alpha != "learn":
            alpha = np.array([float(self.alpha)])
            sums = weights.sum() * samples.targets.weight_unit / alpha
        return np.asarray(weights / weights.sum() * sums[:, np.newaxis])

    def _learn_patterns(
        self, samples: RidgeSamples, Y: Array, options: TargetOptions
    ) -> tuple[TargetsLearned, float]:
        """Learn weights and ridge of every target from the samples that have it.

        The kernels are fitted to all samples. Targets of the same samples are learned together.
        Returns what `_learn_each` does, the largest stationarity for all targets.
        """
        if samples.data.in_features:
            raise ValueError(
                "y contains NaN: targets that some samples lack are learned with exact kernels; use"
                " approximation=None, or fit every target to the samples that have it."
            )
        parts = []
        largest_stationarity = -np.inf
        for pattern in patterns_of_targets(Y) or []:
            if len(pattern.rows) < 2:
                raise ValueError(
                    f"y contains NaN: target {pattern.columns[0]} has {len(pattern.rows)} samples"
                    " of positive weight, and leave-one-out needs at least two; leave it out."
                )
            pattern_Y = np.asarray(Y[np.ix_(pattern.rows, pattern.columns)])
            weight = samples.targets.weight[pattern.rows]
            columns = evenly_spread(pattern_Y.shape[1])
            shared = RidgeTargets.of_numbers(pattern_Y[:, columns].astype(np.float64), weight)
            targets = replace(
                samples.targets.take(pattern.rows), Y=shared.Y, mean=shared.mean, unit=shared.unit
            )
            stack = samples.data.stack.take(pattern.rows, stored=True)
            learned, stationarity = self._learn_each(
                replace(samples, targets=targets), stack, pattern_Y, options
            )
            parts.append((pattern.rows, pattern.columns, learned))
            largest_stationarity = max(largest_stationarity, stationarity)
        return join_targets(parts, Y.shape), largest_stationarity

    def _learn_seeds(
        self, samples: RidgeSamples, stack: MatrixStack | FeatureStack, n_targets: int
    ) -> list[RidgeLearned]:
        """Return machines found by gradients, whose weights are the first candidates.

        The first machine is of some targets together; if targets are few, one of each follows. With
        many targets and few kernels there are none, since the design covers the weights.
        """
        if n_targets > tuning.FEW_TARGETS and stack.n_kernels <= tuning.FEW_KERNELS:
            return []
        data = samples.data
        targets = samples.targets
        with data.threads():
            shared = self.learn_on(stack, data, targets, start=samples.with_widths)
            seeds = [shared]
            if 1 < n_targets <= tuning.FEW_TARGETS:
                for t in range(n_targets):
                    single = replace(targets, Y=targets.Y[:, t : t + 1])
                    seeds.append(self.learn_on(stack, data, single, start=shared))
        return seeds

    # The fit --------------------------------------------------------------------------------------

    def completed(self, fit: Fit) -> Fit:
        return fit

    def coefficients(self, fit: Fit) -> tuple[Array, Array]:
        (result,) = fit.learned
        return result.beta, result.learned.intercept

    def function(self, fit: Fit) -> Function:
        (result,) = fit.learned
        rows = np.arange(result.beta.shape[1])
        expansion = fit.data.expansion(result.beta, rows, result.weights)
        return StripFunction(expansion, result.learned.intercept, shares_weights=False)

    def progress(self, fit: Fit) -> Settings:
        learned = fit.learned[0].learned
        return {"history_": numbered(learned.history), "n_iter_": len(learned.candidates)}

    def attributes(self, fit: Fit) -> Settings:
        samples = self.samples
        assert samples is not None
        (result,) = fit.learned
        scores = 1.0 - result.learned.errors
        # The weights have seen all samples, so the score is a training score.
        mean_score = float(np.mean(scores))
        return {
            "kernels_": fitted_kernels(fit.data),
            "alpha_": result.alpha * samples.targets.weight_unit,
            "criterion_": result.learned.value,
            "stationarity_": result.stationarity,
            "loo_scores_": scores,
            "best_score_": mean_score,
            "training_score_": mean_score,
        }

    def summary(self, fit: Fit) -> str | None:
        return None

    def warning(self, fit: Fit, max_iter: int) -> str | None:
        return None

    def rounding_warning(self, fit: Fit) -> str | None:
        return None


def columns_of_linear_kernels(data: TrainingSet) -> StoredFeatures | None:
    """Return the normalised columns that linear kernels read, or None if they do not serve.

    They serve if all kernels are linear and not centred, if no sample lacks a view, and if there
    are fewer columns than samples.
    """
    if data.present is not None or not data.views:
        return None
    fitted = data.kernel_set.fitted
    views = data.views
    for entry in fitted:
        if not isinstance(entry.kernel, Linear) or isinstance(entry.normalization, Centered):
            return None
    if not all(isinstance(view, np.ndarray) for view in views):
        return None
    n_columns = sum(view.shape[1] for view in views)
    if n_columns >= len(views[0]):
        return None
    backend = backend_on(data.device)
    features = []
    for entry, view in zip(fitted, views, strict=True):
        X = np.asarray(view, np.float64)
        normalization = entry.normalization
        features.append(backend.asarray(normalization.features(X, normalization.row_scale(X))))
    return StoredFeatures(features)
