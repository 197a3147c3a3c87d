"""Least squares with weights, ridge and scale learned by leave-one-out error or evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_choice, check_count, check_positive, warn_caller
from kernelmosaic._typing import (
    Array,
    ArrayOrTensor,
    Indices,
    KernelsLike,
    MatrixLike,
    SampleWeight,
    Seed,
    Settings,
    TargetLike,
)
from kernelmosaic.backend import row_strips, tensor_device, to_host
from kernelmosaic.engine import conformal
from kernelmosaic.engine.conformal import own_misfits
from kernelmosaic.engine.expansion import StripFunction
from kernelmosaic.engine.fit import Fit, fit
from kernelmosaic.engine.samples import FitInput, is_streamed
from kernelmosaic.engine.tasks import Labels, class_factors, find_classes, per_class
from kernelmosaic.engine.training_set import active_store
from kernelmosaic.estimators._base import KernelEstimator
from kernelmosaic.estimators.classifier import KernelClassifier
from kernelmosaic.estimators.inputs import NUMBERS
from kernelmosaic.frames import is_sparse
from kernelmosaic.gram.feature_maps import check_ranks
from kernelmosaic.kernels import Kernel, Linear
from kernelmosaic.kernels.base import is_missing, refuse_text
from kernelmosaic.kernels.numeric import Radial
from kernelmosaic.ridge import tuning
from kernelmosaic.ridge.kernels import ridge_kernels
from kernelmosaic.ridge.learning import centre_and_unit
from kernelmosaic.ridge.left_out import LeftOut, LeftOutMachines, ScaledSoftmax, noise_of
from kernelmosaic.ridge.method import CriterionMethod, RidgeClasses, RidgeNumbers, RidgeTask
from kernelmosaic.ridge.target_method import (
    RidgeEach,
    TargetMethod,
    filled_by_means,
    patterns_of_targets,
    shared_targets,
)
from kernelmosaic.row_order import content_order, on_grid
from kernelmosaic.stacking import check_row_names


class BaseRidge(KernelEstimator):
    """The common part of both estimators: parameters, fit, and outputs of samples left out."""

    criterion: str
    alpha: float | str
    weights: ArrayOrTensor
    weight_prior: float | str
    scale: bool
    subsample: int | str | None
    n_init: int
    max_iter: int
    verbose: bool
    # The samples as the kernels read them; None where the machine is one of features.
    _X: MatrixLike
    # The machines without one sample; unset where every target has its own weights.
    _left_out: LeftOutMachines

    # The digits of a small ridge need double precision.
    _stack_dtype = np.float64

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        # Fourier features support radial kernels only.
        if self.approximation == "fourier":
            return [kernel for kernel in ridge_kernels(ranks=False) if isinstance(kernel, Radial)]
        if views is not None and len(views) > 1:
            return ridge_kernels(ranks=False, squares=False)
        # Ranks of sparse columns would be dense.
        return ridge_kernels(ranks=not is_sparse(X))

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

    def _check_rank(self) -> None:
        """Raise if the rank is no number of features.

        Whether kernels are exact, and the rank not read, is known once samples are counted.
        """
        if self._gives_rank() and np.ndim(self.rank) == 0:
            check_ranks(self.rank, 1, self.approximation == "leading")

    def _method(self) -> CriterionMethod:
        return CriterionMethod(**self._criterion_parameters())

    def _criterion_parameters(self) -> Settings:
        """Return the parameters of `CriterionMethod`."""
        rank = self.rank if self._gives_rank() else None
        return {
            "criterion": self.criterion,
            "alpha": self.alpha,
            "weights": self.weights,
            "weight_prior": self.weight_prior,
            "subsample": self.subsample,
            "n_init": self.n_init,
            "tol": self.tol,
            "max_iter": self.max_iter,
            "rank": rank,
        }

    def _fit_counted(
        self, samples: FitInput, groups: TargetLike, all_targets: TargetLike = None
    ) -> Indices:
        """Fit to the samples of positive weight, and return their numbers.

        Sets the attributes of the fit, and `support_`.

        Parameters
        ----------
        samples : FitInput
            Validated samples.
        groups : array-like of shape (n,) or None
            Samples of one group are left out together.
        all_targets : array of shape (n, targets), optional
            The targets to fit to, if those of `samples` are only a part of them.

        Returns
        -------
        ndarray
            The numbers of the samples of positive weight.
        """
        # 1. The samples that count.
        self._check_parameters()
        if is_streamed(samples.X):
            raise ValueError(
                f"X: {type(self).__name__} reads samples in memory; give an array, or use"
                " MKLRegressor or MKLClassifier, which read rows from a disk."
            )
        n_samples = samples.X.shape[0]
        counted = replace(samples, groups=_read_groups(groups, n_samples))
        rows = np.arange(n_samples)
        if samples.weight is not None:
            rows = np.flatnonzero(samples.weight)
        if len(rows) < n_samples:
            counted = counted.take(rows)
            if all_targets is not None:
                all_targets = all_targets[rows]
        if len(rows) < 2:
            raise ValueError(
                f"n_samples={len(rows)} of positive weight: leave-one-out needs at least two; give"
                " more samples."
            )
        self._warn_of_repeats(counted)

        # 2. Their order and scale. The order is computed before columns are standardised: sums over
        # samples depend on how these are numbered, by rounding.
        order = _content_order(counted)
        scaled = replace(self.scaled(counted, self.scale), order=order)

        # 3. The fit.
        if all_targets is not None:
            scaled = replace(scaled, y=all_targets)
        self.keep(fit(self.recipe(scaled), scaled, store=active_store()), scaled)
        self.support_ = rows
        return rows

    def keep(self, fit: Fit, samples: FitInput) -> None:
        method = fit.method
        assert isinstance(method, CriterionMethod)
        summary = method.summary(fit)
        if self.verbose and summary is not None:
            print(f"{type(self).__name__}: {summary}", flush=True)
        super().keep(fit, samples)
        # Variances and intervals need the samples, unless the machine is one of features.
        self._X = None if fit.data.in_features else samples.X
        assert isinstance(fit.task, RidgeTask)
        # Predictions need the classes of the task, but none of its samples.
        self._task_of_fit = replace(fit.task, groups=None, order=None)
        rounding_warning = method.rounding_warning(fit)
        if rounding_warning is not None:
            warn_caller(f"{type(self).__name__}{rounding_warning}", ConvergenceWarning)

    def _outputs_left_out(self, samples: FitInput, groups: TargetLike, rows: Indices) -> Array:
        """Return the outputs of all samples, each by the machine fitted without it.

        A sample of weight zero has no part in the machine; for it only the other samples of its
        group are left out.

        Parameters
        ----------
        samples, groups
            As for `_fit_counted`.
        rows : ndarray
            The numbers of the samples of positive weight.
        """
        left_out = self._left_out
        n_samples = samples.X.shape[0]
        if len(rows) == n_samples:
            return left_out.left_out_outputs
        outputs = np.empty((n_samples, left_out.left_out_outputs.shape[1]))
        outputs[rows] = left_out.left_out_outputs
        uncounted = np.setdiff1d(np.arange(n_samples), rows)
        X_uncounted = self._standardised(samples.X[uncounted])
        outputs[uncounted] = self.function_.outputs(X_uncounted)
        group = _read_groups(groups, n_samples)
        if group is not None:
            influence = left_out.influence(X_uncounted, self._standardised(samples.X[rows]))
            is_of_group = group[uncounted, np.newaxis] == group[rows]
            outputs[uncounted] -= (influence * is_of_group) @ left_out.residuals
        return outputs

    def _standardised(self, X: MatrixLike) -> MatrixLike:
        """Return validated samples on the scale of the fit."""
        standardizer = self._input_rules.standardizer
        return X if standardizer is None else standardizer(X)

    def _warn_of_repeats(self, samples: FitInput) -> None:
        """Warn if many samples are equal to another one.

        Leave-one-out keeps the equal sample, so that its scores are too optimistic. The evidence
        underestimates the noise if the targets are equal, too.
        """
        leaves_out = self.criterion != "evidence"
        has_groups = samples.groups is not None
        is_dense_table = not sparse.issparse(samples.X) and samples.X.dtype.kind == "f"
        if (leaves_out and has_groups) or not is_dense_table:
            return
        rows = samples.X
        most_repeated = tuning.REPEATED_FOR_LEAVE_ONE_OUT
        if not leaves_out:
            target_numbers = np.unique(samples.y, axis=0, return_inverse=True)[1]
            rows = np.column_stack([samples.X, target_numbers.reshape(-1)])
            most_repeated = tuning.REPEATED_FOR_EVIDENCE
        repeated = 1.0 - len(np.unique(rows, axis=0)) / len(rows)
        if repeated < most_repeated:
            return
        if leaves_out:
            consequence = (
                "so leave-one-out scores are too optimistic: give groups, equal for samples that"
                " belong together"
            )
        else:
            consequence = (
                "with its target, so the evidence underestimates the noise: give each sample"
                " once, with its count as sample_weight, or use criterion='loo' with groups"
            )
        warn_caller(
            f"{type(self).__name__}: {100 * repeated:.0f} % of the samples duplicate another"
            f" one, {consequence}."
        )

    @property
    def weight_shares_(self) -> Array:
        """The fractions of all weights; how large all are together only scales the ridge."""
        return np.asarray(self.weights_ / self.weights_.sum(axis=-1, keepdims=True))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse |= self.kernels is None
        return tags


def _content_order(samples: FitInput) -> Indices:
    """Return the samples sorted by their content.

    The order depends on neither the numbers of the samples nor the units of their columns.
    """
    weight = np.ones(samples.X.shape[0]) if samples.weight is None else samples.weight
    keys = [np.asarray(to_host(samples.y)), weight]
    if samples.groups is not None:
        keys.append(samples.groups)
    return content_order(on_grid(samples.X), *keys)


def _read_groups(groups: TargetLike, n: int) -> NDArray[np.intp] | None:
    """Return the number of every sample's group, or None without groups.

    Raises ValueError if `groups` is not one label for each of n samples.
    """
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


def _missing_targets(y: TargetLike) -> NDArray[np.bool_] | None:
    """Return a mask of the missing targets of a table.

    It is None if there are none, or if y is no table of numbers.
    """
    if tensor_device(y) is not None:
        return None
    values = _as_numbers(y)
    if values is None or values.ndim != 2:
        return None
    missing = np.isnan(values)
    return missing if missing.any() else None


def _as_numbers(y: TargetLike) -> Any:
    """Return targets as numbers, with NaN for missing ones.

    It is None if y is neither an array of floating-point numbers nor a table of objects that are
    numbers or missing.
    """
    values = np.asarray(y)
    if values.dtype.kind == "f":
        return values
    if values.dtype.kind != "O" or values.ndim != 2:
        return None
    try:
        return np.where(is_missing(values), np.nan, values).astype(np.float64)
    except (TypeError, ValueError):
        return None


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
        samples = self.validated(X, y, sample_weight)
        self._is_flat = samples.y.ndim == 1
        if self._learns_each:
            return self._fit_each(samples, groups)
        rows = self._fit_counted(samples, groups)
        outputs = self._outputs_left_out(samples, groups, rows)
        self.loo_predictions_ = self.decide(outputs)

        # The mean over targets of R². As in scikit-learn it is one for a constant target that is
        # predicted: the unit of a constant is one.
        Y = samples.y.reshape(len(samples.y), -1)
        weight = np.ones(len(Y)) if samples.weight is None else samples.weight
        units = centre_and_unit(Y, weight)[1]
        errors = np.average(((Y - outputs) / units) ** 2, axis=0, weights=weight)
        self.best_score_ = float(np.mean(1.0 - errors))
        left_out = self._left_out
        training_errors = np.average(
            (left_out.residuals / units) ** 2, axis=0, weights=weight[rows]
        )
        self.training_score_ = float(np.mean(1.0 - training_errors))
        self._noise = noise_of(self.dual_coef_.T, left_out.residuals, left_out.unseen_residuals)
        return self

    def _fit_each(self, samples: FitInput, groups: TargetLike) -> Self:
        """Fit with weights and a ridge for every target."""
        check_count("n_candidates", self.n_candidates)
        patterns = patterns_of_targets(samples.y)
        if patterns is not None:
            # Samples without any target are left out.
            observed = np.unique(np.concatenate([pattern.rows for pattern in patterns]))
            group = _read_groups(groups, samples.X.shape[0])
            groups = None if group is None else group[observed]
            samples = samples.take(observed)
        # A part of the targets stands for all in what they share, as the order of the samples.
        shared = replace(samples, y=shared_targets(samples.y))
        self._fit_counted(shared, groups, samples.y)
        return self

    def _task(self) -> RidgeNumbers:
        kind = RidgeEach if self._learns_each else RidgeNumbers
        return kind(type(self).__name__)

    def _method(self) -> CriterionMethod:
        parameters = self._criterion_parameters()
        if self.per_target:
            # Products with many targets are worth a device, and all samples.
            parameters |= {"host_samples": 0, "uses_all_samples": True}
        if not self._learns_each:
            return CriterionMethod(**parameters)
        return TargetMethod(
            **parameters,
            n_candidates=self.n_candidates,
            random_state=self.random_state,
            verbose=bool(self.verbose),
        )

    @property
    def _learns_each(self) -> bool:
        """Whether every target has weights of its own."""
        return self.per_target and not self._is_flat

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            # 1. Targets on a device stay there; they are checked there, and only one is validated.
            device = tensor_device(y)
            if self.per_target and device is not None and y.ndim == 2:
                samples = self._read_input(X, y[:, :1], sample_weight, NUMBERS)
                if not bool(y.isfinite().all()):
                    raise ValueError(
                        "y contains NaN or infinity: leave these targets or samples out."
                    )
                return replace(samples, y=y, device=samples.device or device)

            # 2. Missing targets are means during the validation, and NaN afterwards.
            missing = _missing_targets(y) if self.per_target else None
            if missing is not None:
                check_row_names(X, y=y)
                filled = filled_by_means(_as_numbers(y))
                samples = self._read_input(X, filled, sample_weight, NUMBERS)
                values = np.where(missing, np.nan, samples.y).astype(samples.y.dtype)
                return replace(samples, y=values)

            # 3. Other targets are in double precision, but for many targets in single precision.
            samples = self._read_input(X, y, sample_weight, NUMBERS)
            is_table = self.per_target and samples.y.ndim == 2
            if is_table and samples.y.dtype == np.float32:
                return samples
            return replace(samples, y=np.asarray(samples.y, dtype=np.float64))

    def _refuse_each(self, request: str) -> None:
        """Raise if every target has weights of its own."""
        if np.ndim(self.alpha_) == 1:
            raise ValueError(
                f"{request} needs weights that all targets share: fit with per_target=False, or fit"
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
        n_outputs = len(self.intercept_)
        coefficients = {}
        for m, columns in linear.items():
            coef = np.zeros((len(columns), n_outputs))
            for strip in row_strips(n_outputs, StripFunction.at_once):
                expansion = self.function_.expansion.take(strip)
                coef[:, strip] = expansion.slopes(m, columns, len(unit))
            coef /= unit[columns, np.newaxis]
            coefficients[self.kernel_names_[m]] = coef[:, 0] if self._is_flat else coef
        return coefficients

    @property
    def coef_intercept_(self) -> Any:
        """The constant that goes with `coef_`: a number, or an ndarray of shape (targets,).

        Predictions are ``coef_intercept_``, and of every linear kernel ``X[:, columns] @
        coef_[name]``, and the contributions of all other kernels. `intercept_` goes with
        :meth:`contributions`, whose linear kernels read standardised columns.
        """
        linear = self._columns_of_linear_kernels("coef_intercept_")
        # The constants are the contributions of linear kernels for a sample whose columns are zero
        # before they are standardised. The columns of other kernels may hold text.
        if self._X is None:
            zeros: Any = np.zeros((1, self.n_features_in_))
        elif is_sparse(self._X):
            zeros = sparse.csr_matrix((1, self.n_features_in_))
        else:
            zeros = self._X[:1].copy()
            for columns in linear.values():
                zeros[:, columns] = 0.0
        Z = self._standardised(zeros)
        constants = np.array(self.intercept_, dtype=np.float64)
        for strip in row_strips(len(constants), StripFunction.at_once):
            terms = self.function_.expansion.take(strip).terms(Z)
            constants[strip] += terms[0, [*linear]].sum(axis=0)
        return float(constants[0]) if self._is_flat else constants

    def _columns_of_linear_kernels(self, attribute: str) -> dict[int, NDArray[np.intp]]:
        """Return the columns of every linear kernel, by the number of the kernel.

        Raises AttributeError, which names `attribute`, if no kernel has coefficients.
        """
        check_is_fitted(self)
        all_columns = np.arange(self.n_features_in_)
        linear = {}
        for m, entry in enumerate(self.kernels_):
            kernel = entry
            columns = None
            if isinstance(entry, tuple):
                _, kernel, columns = entry
            if isinstance(kernel, Linear):
                linear[m] = all_columns if columns is None else all_columns[columns]
        if not linear or self.normalize == "diagonal":
            raise AttributeError(
                f"{attribute}: only Linear() kernels have coefficients, and not with"
                " normalize='diagonal'."
            )
        return linear

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
        left_out = self._left_out
        if not left_out.has_matrix and left_out.covariance is None:
            raise ValueError(
                f"return_std=True: the matrix of the {len(left_out.residuals)} training pairs is"
                " not computed; use predict_interval, which adds quantiles of the leave-one-out"
                " residuals."
            )
        # Rounding may make a small variance negative.
        variance = np.maximum(left_out.variances(self.read(X)), 0.0)
        variance += left_out.mean_ridge
        deviation = np.sqrt(variance)[:, np.newaxis] * self._noise
        return outputs, self.decide(deviation)

    predict_interval = conformal.predict_interval

    def _unseen(self) -> LeftOut:
        self._refuse_each("predict_interval")
        return LeftOut(np.abs(self._left_out.unseen_residuals), None, self._is_flat, self)

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return R², the mean over several targets, weighted by the samples' weights if given."""
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
        y = np.asarray(to_host(y))
        Y = y[:, np.newaxis] if y.ndim == 1 else y
        n_outputs = len(self.intercept_)
        if Y.shape != (Z.shape[0], n_outputs):
            raise ValueError(
                f"y has shape {y.shape}: give {n_outputs} targets for each of the {Z.shape[0]}"
                " samples."
            )
        if self.weights_.ndim == 1:
            shares = _split_score(self.function_.expansion.terms(Z), self.intercept_, Y)
            return shares[:, 0] if self._is_flat else shares
        shares_of_strips = []
        for strip in row_strips(n_outputs, StripFunction.at_once):
            terms = self.function_.expansion.take(strip).terms(Z)
            shares_of_strips.append(_split_score(terms, self.intercept_[strip], Y[:, strip]))
        return np.concatenate(shares_of_strips, axis=1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _split_score(terms: Array, intercept: Array, y: Array) -> Array:
    """Return the share of R² of every kernel and target; see `score_split`.

    Parameters
    ----------
    terms : ndarray of shape (n, P, targets)
        The contributions of the kernels to the predictions.
    intercept : ndarray of shape (targets,)
        The constants of the predictions.
    y : ndarray of shape (n, targets)
        The targets.

    Returns
    -------
    ndarray of shape (P, targets)
    """
    y = np.asarray(y, dtype=np.float64)
    P = terms.shape[1]
    centred = y - y.mean(axis=0)
    f = terms.sum(axis=1) + intercept - y.mean(axis=0)
    g = terms - terms.mean(axis=0)
    bias = len(y) * f.mean(axis=0) ** 2 / P
    shares = np.einsum("imc,ic->mc", g, 2.0 * centred - f) - bias
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
        # 1. The machine, with the factors of the classes in the sample weights.
        check_row_names(X, groups=groups)
        samples = self.validated(X, y, sample_weight)
        self.classes_ = find_classes(samples.y, samples.weight, type(self).__name__)
        weight = np.ones(samples.X.shape[0])
        if samples.weight is not None:
            weight = samples.weight.copy()
        counted = np.flatnonzero(weight)
        if self.class_weight is not None:
            weight[counted] *= class_factors(
                self.class_weight, samples.y[counted], weight[counted], self.classes_
            )
        weighted = replace(samples, weight=weight)
        rows = self._fit_counted(weighted, groups)
        outputs = self._outputs_left_out(weighted, groups, rows)
        left_out = self._left_out

        # 2. Probabilities, fitted to leave-one-out outputs by unseen weights (weights that had not
        # seen the sample) and by seen ones, the weights of the model. Those of folds are a little
        # worse than the weights of the model, and seen ones a little too good.
        labels = Labels(self.classes_).codes(samples.y[rows])
        # As in the criterion, a common factor of all weights says nothing.
        relative_weight = weight[rows] / weight[rows].mean()
        seen_outputs = outputs[rows] + left_out.unseen_residuals - left_out.residuals
        seen_share = left_out.seen_share
        both_outputs = np.vstack([outputs[rows], seen_outputs])
        both_weights = np.concatenate(
            [(1.0 - seen_share) * relative_weight, seen_share * relative_weight]
        )
        both_labels = np.tile(labels, 2)
        self._calibration, shift = ScaledSoftmax.fit(both_outputs, both_labels, both_weights)
        self.function_ = replace(self.function_, intercept=self.function_.intercept + shift)
        self.intercept_ = self.function_.intercept

        # 3. Predictions of samples left out, and their scores.
        shifted = outputs + shift
        self.loo_predictions_ = self.decide(shifted)
        self.loo_probabilities_ = self._probabilities(shifted)
        is_right = self.loo_predictions_ == samples.y
        self.best_score_ = float(np.average(is_right, weights=samples.weight))
        given_weight = None if samples.weight is None else samples.weight[rows]
        is_right_if_seen = self.decide(seen_outputs + shift) == samples.y[rows]
        self.training_score_ = float(np.average(is_right_if_seen, weights=given_weight))
        self._own_misfits = own_misfits(per_class(shifted[rows]), labels)
        return self

    predict_set = conformal.predict_set

    def _unseen(self) -> LeftOut:
        return LeftOut(self._own_misfits[:, np.newaxis], self.classes_, True, self)

    def _task(self) -> RidgeClasses:
        return RidgeClasses(type(self).__name__)
