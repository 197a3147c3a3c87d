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
    """Several targets, each with weights of its own; some of them stand for all."""

    def targets(self, y: TargetLike, weight: Array) -> RidgeTargets:
        """Return some of the targets, from which is learned what all of them share."""
        return RidgeTargets.of_numbers(shared_targets(y), weight)


def shared_targets(y: ArrayOrTensor) -> Array:
    """Return some columns of targets in double precision, with means where there is no target."""
    columns = evenly_spread(y.shape[1])
    return filled_by_means(np.asarray(to_host(y[:, columns]), dtype=np.float64))


def evenly_spread(n_targets: int) -> Indices:
    """Return the numbers of the targets that stand for all of them."""
    count = min(n_targets, tuning.N_SHARED_TARGETS)
    return np.unique(np.linspace(0, n_targets - 1, count).astype(np.intp))


def filled_by_means(Y: Array) -> Array:
    """Return targets with the mean of their column, or zero without any, where there is NaN."""
    missing = np.isnan(Y)
    if not missing.any():
        return Y
    counts = np.maximum((~missing).sum(axis=0), 1)
    means = np.where(missing, 0.0, Y).sum(axis=0) / counts
    return np.where(missing, means, Y).astype(Y.dtype)


@dataclass(frozen=True)
class TargetPattern:
    """Samples that have the same targets: the numbers of both."""

    rows: Indices
    columns: Indices


def patterns_of_targets(Y: ArrayOrTensor) -> list[TargetPattern] | None:
    """Return which samples have which targets; None if all samples have all.

    Targets of the same samples are of one pattern.
    """
    if not isinstance(Y, np.ndarray):
        return None
    is_there = ~np.isnan(Y)
    if is_there.all():
        return None
    patterns, number = np.unique(is_there, axis=1, return_inverse=True)
    number = number.ravel()
    return [
        TargetPattern(np.flatnonzero(patterns[:, k]), np.flatnonzero(number == k))
        for k in range(patterns.shape[1])
    ]


@dataclass(frozen=True)
class TargetsResult:
    """What was learned of every target.

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
        How level the criterion is.
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
        Y = samples.given.y
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
        """Learn the weights of targets that all samples have.

        Returns
        -------
        learned : TargetsLearned
        stationarity : float
            How level the criterion is.
        """
        n_targets, weight = Y.shape[1], samples.targets.weight
        seeds: list[RidgeLearned] = []
        first = None
        if n_targets > 1 and self.weights is not None:
            first = self._sums_of_given_weights(samples, stack.n_kernels)
        else:
            seeds = self._learn_seeds(samples, stack, n_targets)
            if seeds:
                first = np.array([seed.weights / seed.alpha for seed in seeds])
        # One target has no others to be compared with: its weights are those by exact gradients.
        if n_targets == 1 or self.weights is not None:
            options = replace(options, sizes=())
        order = int(stack.widths.sum()) if stack.widths is not None else len(Y)
        operations = len(Y) * order * (order + n_targets)
        is_small = operations < tuning.THREADED_OPERATIONS
        with one_blas_thread() if is_small else nullcontext():
            learned = learn_target_weights(
                stack,
                Y,
                weight,
                check_random_state(self.random_state),
                criterion="evidence" if self.criterion == "evidence" else "loo",
                groups=samples.targets.groups,
                first=first,
                options=options,
            )
        if n_targets == 1:
            return learned, seeds[0].stationarity
        return learned, learned.left_over / min(float(weight.sum()), RidgeOptions.slope_samples)

    def _sums_of_given_weights(self, samples: RidgeSamples, n_kernels: int) -> Array:
        """Return given weights over ridges, of shape (candidates, P).

        There is one candidate where the ridge is given, too.
        """
        weights = given_weights(self.weights, n_kernels)
        sums = np.geomspace(1e-4, 1e6, 101)
        if self.alpha != "learn":
            alpha = np.array([float(self.alpha)])
            sums = weights.sum() * samples.targets.weight_unit / alpha
        return np.asarray(weights / weights.sum() * sums[:, np.newaxis])

    def _learn_patterns(
        self, samples: RidgeSamples, Y: Array, options: TargetOptions
    ) -> tuple[TargetsLearned, float]:
        """Learn the weights of targets that some samples lack, each from the samples that have it.

        Kernels are those of all samples; targets that the same samples have are learned together.
        """
        if samples.data.in_features:
            raise ValueError(
                "y contains NaN: targets that some samples lack are learned with exact kernels; use"
                " approximation=None, or fit every target to the samples that have it."
            )
        parts = []
        steepest = -np.inf
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
            steepest = max(steepest, stationarity)
        return join_targets(parts, Y.shape), steepest

    def _learn_seeds(
        self, samples: RidgeSamples, stack: MatrixStack | FeatureStack, n_targets: int
    ) -> list[RidgeLearned]:
        """Learn by exact gradients what is tried first: weights of some targets together and, where
        targets are few, of each."""
        if n_targets > tuning.FEW_TARGETS and stack.n_kernels <= tuning.FEW_KERNELS:
            return []
        data, targets = samples.data, samples.targets
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
        samples, (result,) = self.samples, fit.learned
        assert samples is not None
        scores = 1.0 - result.learned.errors
        # Every sample had a part in the weights that judge it.
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
    """Return the columns that linear kernels read, as normalised; None if other kernels are there.

    None also where columns are not fewer than samples.
    """
    if data.present is not None or not data.views:
        return None
    fitted, views = data.kernel_set.fitted, data.views
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
