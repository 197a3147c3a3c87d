"""Least squares with weights, ridge and scale learned by leave-one-out error or evidence."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._typing import ArrayOrTensor, KernelsLike, MatrixLike, SampleWeight, Seed, TargetLike
from kernelmosaic.estimators._base import KernelEstimator, parameters
from kernelmosaic.estimators._input import DistinctSamples, FitInput, is_streamed, level_of_caller
from kernelmosaic.estimators._shared import fit_context
from kernelmosaic.estimators._training_set import ExactSet, FeatureSet, KernelOptions, TrainingSet, read_training_set
from kernelmosaic.estimators.classifier import KernelClassifier
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import FeatureStack
from kernelmosaic.gram.missing import present_views
from kernelmosaic.gram.pairs import PairStack, side_ties
from kernelmosaic.kernels import Gaussian, Kernel, Laplacian, Linear, Polynomial, Ranked, by_group, family
from kernelmosaic.kernels.base import is_missing, refuse_text
from kernelmosaic.kernels.gaussian import Radial, RadialWidths
from kernelmosaic.kernels.transformed import width_learner, with_width
from kernelmosaic.kernels.views import Entry, PerColumn, lay_specs, read_kernels
from kernelmosaic.learning.fixed import given_weights
from kernelmosaic.learning.ridge_weights import (
    FeatureForm,
    RidgeLearned,
    RidgeOptions,
    RidgeTargets,
    centre_and_unit,
    learn_ridge,
)
from kernelmosaic.machines.base import check_count, check_positive
from kernelmosaic.solvers.leave_one_out import RidgeSystem, variances

Array = NDArray[np.float64]


def ridge_kernels(ranks: bool = True) -> list[Kernel]:
    """Return what ``kernels=None`` stands for: ten kernels of the columns, and the same of their ranks if asked for."""
    factors = [0.5, 1, 2, 4]
    plain = [Linear(), Polynomial(degree=2), *family(Gaussian(), factor=factors), *family(Laplacian(), factor=factors)]
    return plain + [Ranked(kernel) for kernel in plain] if ranks else plain


def ridge_view_kernels(views: Mapping[str, Any]) -> list[tuple[str, Kernel, Any]]:
    """Return kernels for views: of one, those of `ridge_kernels`; of several, nine of each, without squares and ranks.

    Parameters
    ----------
    views : dict
        Columns by the name of their view, as `stack_views` returns them.

    Returns
    -------
    list of (name, kernel, columns)
        Of each view, a linear kernel, Gaussians and Laplacians of ½, 1, 2 and 4 times the median distance.
    """
    several = [kernel for kernel in ridge_kernels(ranks=False) if not isinstance(kernel, Polynomial)]
    return by_group(views, several if len(views) > 1 else ridge_kernels())


@parameters
class BaseRidge(KernelEstimator):
    """What both estimators share: the parameters, the fit, and what the closed form of leave-one-out gives."""

    kernels: KernelsLike = None
    _: KW_ONLY
    criterion: str = "loo"
    alpha: float | str = "learn"
    weights: ArrayOrTensor = None
    scale: bool = True
    normalize: str | None = "trace"
    approximation: str | None = None
    rank: Any = 500
    missing: str = "neighbors"
    n_init: int = 2
    tol: float = 1e-3
    max_iter: int = 100
    memory_budget: float | None = None
    device: str | None = None
    random_state: Seed = None
    verbose: bool = False

    # The digits of a small ridge need double precision.
    _stack_dtype = np.float64

    def _read_kernels(self, X: MatrixLike = None) -> list[Entry]:
        return read_kernels(self.kernels, partial(self._kernels_of, X))

    def _kernels_of(self, X: MatrixLike) -> list[Kernel]:
        if self.approximation == "fourier":  # which serves radial kernels alone
            return [kernel for kernel in ridge_kernels(ranks=False) if isinstance(kernel, Radial)]
        return ridge_kernels(ranks=not sparse.issparse(X))  # ranks of sparse columns would fill them

    @abstractmethod
    def _targets(self, y: TargetLike) -> Array:
        """Return the numbers that are fitted, of shape (n, outputs)."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("max_iter", self.max_iter)
        check_count("n_init", self.n_init)
        if self.criterion not in ("loo", "evidence"):
            raise ValueError(f"criterion={self.criterion!r}: give 'loo' or 'evidence'.")
        if isinstance(self.alpha, str):
            if self.alpha != "learn":
                raise ValueError(f"alpha={self.alpha!r}: give a positive number or 'learn'.")
        else:
            check_positive("alpha", self.alpha)

    def _learn_ridge(self, whole: FitInput, groups: Any, has_classes: bool) -> tuple[RidgeLearned, Array]:
        """Learn weights, ridge and scale, and keep the machine.

        Parameters
        ----------
        whole : FitInput
            Validated samples.
        groups : array-like of shape (n,) or None
            Samples of one group are left out together.
        has_classes : bool
            Whether the targets are classes.

        Returns
        -------
        learned : RidgeLearned
            What was learned from the samples of positive weight, in units of the targets.
        outputs : ndarray of shape (n, outputs)
            Of all samples, each by the machine without it. One of weight zero has no part in it.
        """
        self._check_parameters()
        if is_streamed(whole.X):
            raise ValueError(
                f"X: {type(self).__name__} reads samples in memory; give an array, or use MKLRegressor or "
                "MKLClassifier, which read rows from a disk."
            )
        group = _read_groups(groups, whole.X.shape[0])
        rows = np.arange(whole.X.shape[0]) if whole.weight is None else np.flatnonzero(whole.weight)
        given = whole if len(rows) == whole.X.shape[0] else whole.take(rows)
        Y = self._targets(given.y)
        labels = np.searchsorted(self.classes_, np.asarray(given.y)) if has_classes else None
        n = len(Y)
        if n < 2:
            raise ValueError(f"n_samples={n} of positive weight: leaving one out takes two samples; give more.")
        weight = np.ones(n) if given.weight is None else given.weight
        together = None if group is None else _members(group[rows])
        self._warn_of_repeats(given.X, Y, together)
        # Targets of all units count alike; classes keep their sides.
        mean, unit = np.zeros(Y.shape[1]), np.ones(Y.shape[1])
        if labels is None:
            mean, unit = centre_and_unit(Y, weight)
        standardizer = given.standardizer(self._read_kernels(given.X)) if self.scale else None
        scaled = given if standardizer is None else replace(given, X=standardizer(given.X))
        targets = RidgeTargets((Y - mean) / unit, weight, labels, together)
        options = replace(self._kernel_options(n, scaled), entries=self._written_out(scaled))
        first = self._learn_widths(scaled, targets, options)
        if first is not None:
            entries = [
                replace(entry, kernel=with_width(entry.kernel, first.widths.get(m, "median")))
                for m, entry in enumerate(options.entries)
            ]
            options = replace(options, entries=entries)
        data = fit_context().training_set(options, scaled.X, scaled.original, DistinctSamples(np.arange(n), weight))
        with data.threads():
            found = self._learn(data, targets, start=first)
        beta, intercept = found.beta * unit, mean + unit * found.intercept
        learned = replace(found, beta=beta, intercept=intercept, residuals=found.residuals * unit)
        if first is not None:
            steepest = max(first.stationarity, found.stationarity)
            learned = replace(learned, history=first.history + found.history, stationarity=steepest)
        self._standardizer = standardizer
        fitted = data.kernel_set.kernel_set if self.approximation is not None else data.kernel_set
        self._set_kernel_names(data)
        plain = all(one.columns is None for one in fitted.fitted)
        self.kernels_ = [one.kernel if plain else (one.name, one.kernel, one.columns) for one in fitted.fitted]
        self.weights_, self.alpha_ = learned.weights, learned.alpha
        self.criterion_, self.stationarity_ = learned.value, learned.stationarity
        self.history_ = [{"iteration": i, "objective": value} for i, value in enumerate(learned.history, start=1)]
        self.n_iter_ = len(learned.history)
        self.support_, self.support_fraction_ = rows, 1.0
        self.intercept_, self.dual_coef_ = intercept, beta.T
        eta = np.tile(learned.weights, (len(unit), 1))
        if isinstance(data, FeatureSet) and learned.sums is not None:
            each = np.split(learned.sums * unit, np.cumsum(data.kernel_set.widths)[:-1])
            self._expansion = data.feature_expansion([each[m] for m in np.flatnonzero(learned.weights)], eta)
        else:
            self._expansion = data.expansion(beta.T, np.arange(n), eta)
        # Features need no samples.
        self._X, self._ridge = scaled.X if self.approximation is None else None, learned.alpha / weight
        self._groups, self._left_out = together, learned.residuals
        self._covariance, self._has_matrix = None, not isinstance(data.stack, FeatureStack | PairStack)
        if isinstance(data.stack, FeatureStack):
            with data.threads():
                covariance = FeatureForm(data.stack, targets, self.criterion).covariance(learned.weights, learned.alpha)
            kept = np.isin(np.repeat(np.arange(len(learned.weights)), data.stack.widths), self._expansion.kept)
            at = np.append(np.flatnonzero(kept), len(kept))
            self._covariance = covariance[np.ix_(at, at)]
        if self.verbose:
            print(
                f"{type(self).__name__}: {self.n_iter_} evaluations, criterion {self.criterion_:.6g}, "
                f"largest slope per sample {self.stationarity_:.2g}.",
                flush=True,
            )
        # The slopes of residuals that are rounding are rounding.
        if not learned.stationarity <= self.tol and not np.abs(found.residuals).max() < 1e-6:
            ended = len(learned.history) > self.max_iter
            remedy = "raise max_iter, or accept a larger tol" if ended else "rounding hides further progress"
            warnings.warn(
                f"{type(self).__name__} stopped at a slope of {learned.stationarity:.2g} per sample, above "
                f"tol={self.tol:g}: {remedy}.",
                ConvergenceWarning,
                stacklevel=level_of_caller(),
            )
        outputs = np.empty((whole.X.shape[0], len(unit)))
        outputs[rows] = Y - learned.residuals
        rest = np.setdiff1d(np.arange(len(outputs)), rows)
        if len(rest):
            Z = whole.X[rest] if standardizer is None else standardizer(whole.X[rest])
            outputs[rest] = self._outputs_of(Z)
            if group is not None:
                same = group[rest, np.newaxis] == group[rows]
                outputs[rest] -= (self._influence(Z, scaled.X) * same) @ learned.residuals
        return learned, outputs

    def _learn(self, data: TrainingSet, targets: RidgeTargets, **start: Any) -> RidgeLearned:
        """Learn what the parameters leave open, on a training set's kernels."""
        tied = isinstance(self.weights, str) and self.weights == "factorized"
        given = None if self.weights is None or tied else given_weights(self.weights, len(data.kernel_set))
        return learn_ridge(
            data.stack,
            targets,
            criterion=self.criterion,
            alpha=None if self.alpha == "learn" else float(self.alpha),
            weights=given,
            ties=side_ties(data.kernel_set) if tied else None,
            tol=self.tol,
            max_iter=self.max_iter,
            n_init=self.n_init,
            **start,
        )

    def _written_out(self, given: FitInput) -> list[Entry]:
        """Return the kernels, those that stand for one per column written out where widths are learned."""
        entries = self._read_kernels(given.X)
        inner = [one.kernel.kernel if isinstance(one.kernel, PerColumn) else one.kernel for one in entries]
        if not any(isinstance(kernel, Kernel) and width_learner(kernel) for kernel in inner):
            return entries
        specs = lay_specs(entries, given.table)
        return [Entry(one.name, one.kernel, one.columns) for one in specs if isinstance(one.kernel, Kernel)]

    def _learn_widths(self, given: FitInput, targets: RidgeTargets, options: KernelOptions) -> RidgeLearned | None:
        """Learn widths with everything else, by exact kernels of samples that lack nothing; None if there are none.

        Of more than `RidgeOptions.width_rows` such samples, so many are taken, evenly spread.
        """
        learners = {m: one for m, entry in enumerate(options.entries) if (one := width_learner(entry.kernel))}
        if not learners:
            return None
        if self.normalize not in (None, "trace", "diagonal"):
            raise ValueError(
                f"normalize={self.normalize!r}: widths are learned with normalize='trace', 'diagonal' or None."
            )
        if sparse.issparse(given.X):
            raise ValueError("width='learn': widths are learned from dense samples; give X as an array.")
        entries = [replace(entry, kernel=with_width(entry.kernel, "median")) for entry in options.entries]
        present = present_views(lay_specs(entries, given.table), given.X)
        rows = np.arange(len(given.X)) if present is None else np.flatnonzero(present.all(axis=1))
        if present is not None and len(rows) < 10:
            raise ValueError(
                f"width='learn': {len(rows)} of the {len(present)} samples have all views, and widths are learned from "
                "at least 10 such samples; give widths as numbers, or 'median'."
            )
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, RidgeOptions.width_rows).astype(np.intp))]
        some = targets.take(rows)
        exact = replace(options, entries=entries, approximation=None, missing=None)
        data = read_training_set(exact, given.X[rows], given.original, DistinctSamples.all_of(len(rows), some.weight))
        assert isinstance(data, ExactSet)
        widths = {}
        for m, learner in learners.items():
            view, fitted = data.views[m], data.kernel_set.fitted[m].kernel
            X = fitted.transform(view) if isinstance(fitted, Ranked) else view
            widths[m] = RadialWidths(learner, data.stack.backend.asarray(X))
        with data.threads():
            return self._learn(data, some, widths=widths)

    def _warn_of_repeats(self, X: MatrixLike, Y: Array, groups: Any) -> None:
        """Warn where many samples have an equal one: leave-one-out does not leave it out, evidence sees no noise."""
        left_out = self.criterion == "loo"
        if (left_out and groups is not None) or sparse.issparse(X) or X.dtype.kind != "f":
            return
        rows = X if left_out else np.column_stack([X, Y])
        repeated = 1.0 - len(np.unique(rows, axis=0)) / len(rows)
        if repeated >= (0.2 if left_out else 0.1):
            why = (
                "which leave-one-out does not leave out with them: give groups, equal for samples that belong together"
                if left_out
                else "with its target, which the evidence takes for targets without noise: give each sample once, with "
                "its number as sample_weight, or use criterion='loo' with groups"
            )
            warnings.warn(
                f"{type(self).__name__}: {100 * repeated:.0f} % of the samples repeat another one, {why}.",
                UserWarning,
                stacklevel=level_of_caller(),
            )

    @property
    def _shown_weights(self) -> Array:
        """The shares of the weights: how large all are together is a matter of the ridge."""
        return np.asarray(self.weights_ / self.weights_.sum(axis=-1, keepdims=True))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse |= self.kernels is None
        return tags

    def _system(self) -> RidgeSystem:
        """Return the linear system of the fitted machine again."""
        return RidgeSystem.of(self._expansion.placed(self._X, self._X), self._ridge)

    def _influence(self, X: MatrixLike, training: MatrixLike) -> Array:
        """Return what the target of every training sample adds to the outputs for validated samples X."""
        if self._covariance is None:
            return self._system().influence(self._expansion.placed(X, training))
        return np.asarray(self._features(X) @ self._covariance @ self._features(training).T / self._ridge)

    def _features(self, X: MatrixLike) -> Array:
        """Return the features of validated samples, and a one."""
        maps = self._expansion.kernel_set
        assert isinstance(maps, FeatureMaps)
        found = dict(maps.blocks(X, range(len(maps))))
        return np.column_stack([*(found[m] for m in range(len(maps))), np.ones(X.shape[0])])


def _read_groups(groups: Any, n: int) -> NDArray[np.intp] | None:
    """Return the number of every sample's group, or raise saying what is wrong."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (n,):
        raise ValueError(f"groups has shape {groups.shape}: give one label per sample, {n} of them.")
    if is_missing(groups).any():
        raise ValueError("groups holds None or NaN: give every sample the label of its group.")
    return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.intp)


def _members(group: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the rows of every group, or raise if there is one only."""
    labels = np.unique(group, return_inverse=True)[1]
    if labels.max() == 0:
        raise ValueError("groups holds one group only: some samples must stay when a group is left out.")
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])


@parameters
class MKLRidgeCV(RegressorMixin, BaseRidge):
    """Kernel ridge regression with weights and ridge learned by leave-one-out error or evidence, without folds.

    Minimises Σ_i w_i (y_i − f(x_i) − b)² + α ‖f‖² in the function space of K = Σ_m η_m K_m, whose leave-one-out
    residuals are known in closed form. The weights η ≥ 0, not normalised, and the ridge α minimise a criterion by
    quasi-Newton steps in their logarithms, with weak priors towards equal weights and α = e⁻¹. The criterion is not
    convex: `stationarity_` says how level it is at the end, and `n_init` ridges are started from.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`; None stands for 20 kernels: linear, quadratic, Gaussians and Laplacians of ½, 1, 2
        and 4 times the median distance, on the columns and, unless they are sparse, on their ranks.
    criterion : {"loo", "evidence"}, default="loo"
        What is minimised: the logarithm of the mean squared leave-one-out residual, or the negative log evidence of
        the Gaussian process with this kernel and noise.
    alpha : float or "learn", default="learn"
        The ridge.
    weights : array-like of shape (P,), "uniform" or "factorized", default=None
        Given weights; None learns them. ``"factorized"``, for the products of :func:`kernels.pairwise`, learns one
        factor per kernel of the left and one per kernel of the right, whose products are the weights.
    scale : bool, default=True
        Whether to standardise the columns that kernels read as numbers.
    normalize, approximation, rank, missing, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`. With ``approximation="fourier"``, None stands for the Gaussians and Laplacians of
        the columns alone.
    n_init : int, default=2
        Ridges to start from; the best after five steps is followed.
    tol : float, default=1e-3
        Largest slope of the criterion in the logarithms at which to stop, divided by the number of samples, or by 300
        if there are more.
    max_iter : int, default=100
        Most steps.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        η, of the kernels as normalised.
    view_weights_ : dict
        Their sums over the kernels of every view, by its name.
    alpha_ : float
        The ridge.
    kernels_, kernel_names_ : list
        The fitted kernels, and their names.
    loo_predictions_ : ndarray of shape (n_samples,) or (n_samples, targets)
        Of every sample by all others.
    best_score_ : float
        R² of `loo_predictions_`.
    criterion_, stationarity_ : float
        The criterion with its priors at the end, in nats, and its largest slope, divided as for `tol`.
    history_ : list of dict
        The criterion at every evaluation.
    dual_coef_, intercept_
        As in :class:`MKLRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelmosaic import MKLRidgeCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MKLRidgeCV().fit(X[:200], y[:200])
    >>> model.predict_interval(X[200:203]).shape
    (3, 2)
    """

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None, groups: Any = None) -> Self:
        """Fit to samples and their targets.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of the squared errors. Leave-one-out leaves a sample of weight two out as one.
        groups : array-like of shape (n_samples,), optional
            Samples of one group are left out together.

        Returns
        -------
        self
        """
        given = self._validated(X, y, sample_weight)
        self._is_flat = given.y.ndim == 1
        learned, outputs = self._learn_ridge(given, groups, has_classes=False)
        self.loo_predictions_ = self._predictions(outputs)
        Y = self._targets(given.y)
        weight = np.ones(len(Y)) if given.weight is None else given.weight
        missed = np.average(((Y - outputs) / centre_and_unit(Y, weight)[1]) ** 2, axis=0, weights=weight)
        # As scikit-learn has it, one for a constant that is predicted.
        self.best_score_ = float(np.mean(1.0 - missed))
        # The deviation s of which standardised leave-one-out residuals r_i √A_ii / s have mean square one.
        unit = np.maximum(np.abs(learned.residuals).max(axis=0), np.finfo(float).tiny)
        self._noise = unit * np.sqrt(np.mean(learned.beta / unit * (learned.residuals / unit), axis=0))
        return self

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            given = self._read_input(X, y, sample_weight=sample_weight, y_numeric=True, multi_output=True)
            return replace(given, y=np.asarray(given.y, dtype=np.float64))

    def _targets(self, y: TargetLike) -> Array:
        return np.asarray(y if y.ndim == 2 else y[:, np.newaxis])

    def predict(self, X: MatrixLike, return_std: bool = False) -> Any:
        """Return the predicted targets, in the shape of those the model was fitted to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        return_std : bool, default=False
            Whether to return the standard deviation of every target around its prediction, too: that of the Gaussian
            process, whose scale makes the mean square of standardised leave-one-out residuals one. In features it is
            the process of the features, which is too sure far from the landmarks.
        """
        outputs = self._predictions(self._outputs(X))
        if not return_std:
            return outputs
        if not self._has_matrix and self._covariance is None:
            raise ValueError(
                f"return_std=True: the matrix of the {len(self._left_out)} training pairs is not made; use "
                "predict_interval, which adds quantiles of the leave-one-out residuals."
            )
        # Of a small variance rounding may leave less than nothing.
        variance = np.maximum(self._variances(self._validate(X, reset=False)), 0.0) + self.alpha_
        deviation = np.sqrt(variance)[:, np.newaxis] * self._noise
        return outputs, self._predictions(deviation)

    def _variances(self, X: MatrixLike) -> Array:
        """Return the variances of the outputs for validated samples, in units of that of the noise over α."""
        if self._covariance is not None:
            parts = [self._features(part) for _, (part,) in self._expansion.sums.strips(X, None)]
            return np.concatenate([np.einsum("ij,ij->i", one @ self._covariance, one) for one in parts])
        K, k = self._expansion.placed(self._X, self._X), self._expansion.placed(X, self._X)
        return variances(K, self._ridge, k, self._expansion.diagonal(X))

    def predict_interval(self, X: MatrixLike, coverage: float = 0.9) -> Array:
        """Return intervals that hold the targets of new samples with at least a given probability.

        The jackknife+ of Barber et al. (2021): quantiles of the predictions of all leave-one-out machines, each with
        its own residual added and subtracted, all in closed form. Whatever the distribution, the targets of samples
        that are exchangeable with the training ones are inside with a probability of at least 2·coverage − 1, were
        the weights given; in practice of about `coverage`. In features, and of many pairs, no sample changes the
        machine by much, and the quantile of the leave-one-out residuals alone is added and subtracted (the jackknife).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, 2, targets)
        """
        check_is_fitted(self)
        if not 0 < coverage < 1:
            raise ValueError(f"coverage={coverage!r}: give a number between 0 and 1.")
        Z = self._validate(X, reset=False)
        outputs, r = self._outputs_of(Z), self._left_out
        n = len(r)
        found = np.empty((len(outputs), 2, r.shape[1]))
        above = int(np.ceil(coverage * (n + 1) - 1e-9))  # 0.55 · 100 is 55, not a little more
        if not self._has_matrix:
            size = np.sort(np.abs(r), axis=0)[above - 1] if above <= n else np.inf
            found[:, 0], found[:, 1] = outputs - size, outputs + size
            return found[:, :, 0] if self._is_flat else found
        h = self._influence(Z, self._X)
        for c in range(r.shape[1]):
            parts = h * r[:, c]
            if self._groups is not None:
                together = np.empty(n, dtype=np.intp)
                for g, S in enumerate(self._groups):
                    together[S] = g
                parts = np.array([parts[:, S].sum(axis=1) for S in self._groups]).T[:, together]
            without = outputs[:, c : c + 1] - parts
            size = np.abs(r[:, c])
            found[:, 0, c] = np.partition(without - size, n - above, axis=1)[:, n - above] if above <= n else -np.inf
            found[:, 1, c] = np.partition(without + size, above - 1, axis=1)[:, above - 1] if above <= n else np.inf
        return found[:, :, 0] if self._is_flat else found

    def score_split(self, X: MatrixLike, y: TargetLike) -> Array:
        """Return each kernel's share of R², which they sum to (the product measure).

        The share of kernel m is Σ_i g_mi (2 ỹ_i − f̃_i) / Σ_i ỹ_i², with its contribution g_m centred and targets and
        predictions relative to the mean target. It is negative where a kernel's contribution points away from what the
        others leave unexplained, as with kernels that make up for each other. What the mean prediction is off counts
        against all kernels alike.

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
        check_is_fitted(self)
        terms = self._expansion.terms(self._validate(X, reset=False))
        given = np.asarray(y, dtype=np.float64)
        y = given[:, np.newaxis] if given.ndim == 1 else given
        if y.shape != (len(terms), terms.shape[2]):
            raise ValueError(f"y has shape {given.shape}: give {terms.shape[2]} targets of the {len(terms)} samples.")
        centred = y - y.mean(axis=0)
        f = terms.sum(axis=1) + self.intercept_ - y.mean(axis=0)
        parts = terms - terms.mean(axis=0)
        shares = np.einsum("imc,ic->mc", parts, 2.0 * centred - f) - len(y) * f.mean(axis=0) ** 2 / terms.shape[1]
        shares = np.asarray(shares / np.sum(centred**2, axis=0))
        return shares[:, 0] if self._is_flat else shares

    def _predictions(self, outputs: Array) -> Array:
        return outputs[:, 0] if self._is_flat else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@parameters
class MKLRidgeClassifierCV(KernelClassifier, BaseRidge):
    """Least-squares classification with weights and ridge learned by leave-one-out log-loss, without folds.

    The machine of :class:`MKLRidgeCV` for targets ±1 of two classes, or the indicators of several. The weights, the
    ridge and the scale a of outputs minimise the log-loss of softmax(a f₋ᵢ(xᵢ)), f₋ᵢ the machine without sample i, or
    the evidence. Probabilities come from the same leave-one-out outputs, with one constant more per class.

    Parameters
    ----------
    kernels, criterion, alpha, weights, scale, normalize, approximation, rank, missing
        As in :class:`MKLRidgeCV`; with ``criterion="loo"`` the log-loss is minimised.
    class_weight : dict or "balanced", default=None
        As in :class:`MKLClassifier`.
    n_init, tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLRidgeCV`.

    Attributes
    ----------
    classes_ : ndarray of shape (classes,)
        The classes in order.
    loo_predictions_ : ndarray of shape (n_samples,)
        The class of every sample by all others.
    loo_probabilities_ : ndarray of shape (n_samples, classes)
        Its probabilities by all others.
    best_score_ : float
        The share of them that is right.
    weights_, view_weights_, alpha_, kernels_, kernel_names_, criterion_, stationarity_, history_, dual_coef_, \
    intercept_
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

    kernels: KernelsLike = None
    _: KW_ONLY
    criterion: str = "loo"
    alpha: float | str = "learn"
    weights: ArrayOrTensor = None
    class_weight: Any = None

    _knows_probabilities = True

    def fit(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None, groups: Any = None) -> Self:
        """Fit to samples and their classes.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of the squared errors. Leave-one-out leaves a sample of weight two out as one.
        groups : array-like of shape (n_samples,), optional
            Samples of one group are left out together.

        Returns
        -------
        self
        """
        given = self._validated(X, y, sample_weight)
        self.classes_ = self._find_classes(given.y, given.weight)
        weight = np.ones(given.X.shape[0]) if given.weight is None else given.weight.copy()
        counted = np.flatnonzero(weight)
        if self.class_weight is not None:
            weight[counted] *= compute_sample_weight(self.class_weight, given.y[counted])
        learned, outputs = self._learn_ridge(replace(given, weight=weight), groups, has_classes=True)
        labels = np.searchsorted(self.classes_, np.asarray(given.y)[counted])
        self._calibration, shift = ScaledSoftmax.fit(outputs[counted], labels, weight[counted])
        self.intercept_ = learned.intercept + shift
        self.loo_predictions_ = self._predictions(outputs + shift)
        self.loo_probabilities_ = self._probabilities(outputs + shift)
        self.best_score_ = float(np.average(self.loo_predictions_ == given.y, weights=given.weight))
        return self

    def _probabilities(self, outputs: Array) -> Array:
        found: Array = self._calibration.probabilities(outputs)
        return found

    def _targets(self, y: TargetLike) -> Array:
        labels = np.searchsorted(self.classes_, np.asarray(y))
        if len(self.classes_) == 2:
            return np.where(labels == 1, 1.0, -1.0)[:, np.newaxis]
        return np.eye(len(self.classes_))[labels]


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
    def fit(cls, outputs: Array, labels: NDArray[np.intp], weight: Array) -> tuple[ScaledSoftmax, Array]:
        """Minimise the log-loss of softmax(a f + b), and return it with what b adds to the outputs f.

        The priors, in nats, are 3 b² and 0.02 (log a)².
        """
        scores = _per_class(outputs)
        n, c = scores.shape
        hot = np.eye(c)[labels]

        def value(x: Array) -> tuple[float, Array]:
            z = np.exp(x[0]) * scores + x[1:]
            loss = float(weight @ (logsumexp(z, axis=1) - z[np.arange(n), labels]))
            slope = weight[:, np.newaxis] * (softmax(z, axis=1) - hot)
            prior = 0.02 * x[0] ** 2 + 3.0 * float(x[1:] @ x[1:])
            first = np.exp(x[0]) * float(np.sum(slope * scores)) + 0.04 * x[0]
            return loss + prior, np.concatenate([[first], slope.sum(axis=0) + 6.0 * x[1:]])

        found = minimize(value, np.zeros(1 + c), jac=True, method="L-BFGS-B").x
        shift = found[1:] / np.exp(found[0])
        one = outputs.shape[1] == 1
        return cls(float(np.exp(found[0])), float(weight.sum())), 0.5 * (shift[1:] - shift[:1]) if one else shift

    def probabilities(self, outputs: Array) -> Array:
        """Return the probabilities of the classes, of shape (n, classes)."""
        p = softmax(self.scale * _per_class(outputs), axis=1)
        return np.asarray((self.total * p + 1.0 / p.shape[1]) / (self.total + 1.0))


def _per_class(outputs: Array) -> Array:
    """Return one score per class; a single output counts for the second class, and its negative for the first."""
    flat: Array = outputs if outputs.ndim == 2 else outputs[:, np.newaxis]
    return flat if flat.shape[1] > 1 else np.column_stack([-flat[:, 0], flat[:, 0]])
