"""Regression and novelty detection with one weight per kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kernelmosaic._checks import check_positive
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
from kernelmosaic.backend import to_host
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import Novelty, Numbers, PathRule, mean_deviation
from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.estimators.inputs import NO_TARGETS, NUMBERS
from kernelmosaic.kernels.base import Kernel, refuse_text
from kernelmosaic.kernels.views import one_class_kernels
from kernelmosaic.stacking import check_row_names


class MKLRegressor(RegressorMixin, BaseMKL):
    """Support vector regression on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + C Σ max(0, |y_i − f(x_i)| − ε) over f(x) = Σ_m ⟨w_m, φ_m(x)⟩ + b,
    or the same with another loss. Several targets are learned with one function each and one weight
    per kernel for all of them, which minimise the sum of their objectives.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    C : float, default=1.0
        Factor of the loss.
    epsilon : float, default=0.1
        Half-width ε of the tube in which errors are free; with ``loss="huber"`` the error up to
        which the loss is quadratic. In units of the targets.
    loss : {"epsilon", "huber", "squared", "quantile"}, default="epsilon"
        Loss of an error r. ``"epsilon"``: max(0, |r| − ε), squared with ``slack=2``, where the
        objective is (Σ_m d_m ‖w_m‖)² plus C times the losses. ``"huber"``: r²/(2ε) up to ε and
        |r| − ε/2 beyond, so that errors beyond count by their size as with ``"epsilon"``, and there
        is no tube.
        ``"squared"``: r², the same as ``"epsilon"`` with ``epsilon=0, slack=2``; the objective then
        is (Σ_m d_m ‖w_m‖)² + C Σ r_i². ``"quantile"``: q r of r = y − f(x) above zero and (q − 1) r
        below, the pinball loss, whose minimum has about a share q of the targets below f. `slack`
        is read by ``"epsilon"`` only.
    quantile : float or list of float, default=0.5
        The share q of ``loss="quantile"``, between 0 and 1. Several, in increasing order, are
        learned with one function each and one weight per kernel for all. Their predictions at a
        sample are put in order, so that no quantile crosses another: the sum of their pinball
        losses becomes no larger by it (Chernozhukov et al. 2010), whereas constraints in the
        problem would hold at the training samples alone. `contributions`, `objective_` and
        `duality_gap_` are those of the functions before they are put in order.
    norm, weights, fixed_weights, penalties, penalty_power, slack, solver, normalize, approximation
        As in :class:`MKLClassifier`.
    rank
        As in :class:`MKLClassifier`.
    missing, tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels, shared by all targets.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        As in :class:`MKLClassifier`.
    objective_, duality_gap_, converged_, solver_, n_iter_, n_solves_, history_
        As in :class:`MKLClassifier`.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface
    methodology". Chernozhukov, Fernández-Val and Galichon (2010), "Quantile and probability curves
    without crossing".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLRegressor
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> X = np.linspace(0, 6, 60)[:, np.newaxis]
    >>> y = np.sin(X[:, 0])
    >>> kernels = [("line", Linear()), ("bell", Gaussian(1.0))]
    >>> model = MKLRegressor(kernels, C=10).fit(X, y)
    >>> model.score(X, np.sin(X[:, 0])) > 0.95
    True
    >>> model = MKLRegressor(loss="quantile", quantile=[0.1, 0.5, 0.9]).fit(X, y)
    >>> model.predict(X).shape
    (60, 3)
    """

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        C: float = 1.0,
        epsilon: Any = 0.1,
        loss: str = "epsilon",
        quantile: Any = 0.5,
        norm: float | str = 1,
        weights: ArrayOrTensor = None,
        fixed_weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        missing: str | None = "neighbors",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.epsilon = epsilon
        self.loss = loss
        self.quantile = quantile
        self.norm = norm
        self.weights = weights
        self.fixed_weights = fixed_weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def path_rule(self) -> PathRule:  # type: ignore[override]
        return PathRule(unit=mean_deviation, score=self._task().score)

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            samples = self._read_input(X, y, sample_weight, NUMBERS)
            return replace(samples, y=np.asarray(samples.y, dtype=np.float64))

    def _task(self) -> Numbers:
        return Numbers(
            type(self).__name__, None, self.loss, self.C, self.epsilon, self.slack, self.quantile
        )

    def predict(self, X: MatrixLike) -> Array:
        """Return the predicted targets, in the shape of those the model was fitted to.

        Several quantiles have one column each, of shape (n_samples, quantiles), and increase from
        left to right.
        """
        return self.decide(self._outputs(X))

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return R², or minus the mean pinball loss.

        The latter is the score of ``loss="quantile"``, of several quantiles the mean over them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Their targets.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts.

        Returns
        -------
        float
        """
        check_row_names(X, y=y, sample_weight=sample_weight)
        return self._task().score(y, self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        # scikit-learn's checks expect R² close to one, and minus a pinball loss is below zero.
        tags.regressor_tags.poor_score = self.loss == "quantile"
        return tags


class MKLOneClass(OutlierMixin, BaseMKL):
    """One-class support vector machine on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + 1/(ν n) Σ ξ_i + b subject to f(x_i) = Σ_m ⟨w_m, φ_m(x_i)⟩ + b ≥
    −ξ_i; with ``slack=2``, ½ (Σ_m d_m ‖w_m‖)² + 1/(2ν) Σ ξ_i² + b.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`; but None means Gaussians alone, of 0.175, 0.35 and 0.7 times
        the median distance between training samples. Learned weights favour the widest, since no
        sample of another class contradicts it. Where k(x, x) grows with the distance from the
        origin, as with linear and polynomial kernels, far samples are not called novel: `fit` warns
        of such kernels unless ``normalize="diagonal"``.
    nu : float, default=0.5
        With ``slack=1``, above 0 and at most 1: at most this share of the training samples is
        called novel, at least this share supports the boundary. With ``slack=2`` any positive
        number: it is added to the diagonal of the combined kernel and bounds no share; the samples
        called novel are those that support the boundary.
    slack : {1, 2}, default=1
        Whether a sample below the boundary costs its distance ξ_i, or half of the square.
    norm, weights, fixed_weights, penalties, penalty_power, solver, normalize, approximation, rank
        As in :class:`MKLClassifier`, except that ``normalize="centered"`` is refused: the origin
        would be the mean of the samples.
    missing
        As in :class:`MKLClassifier`, except that ``normalize="centered"`` is refused: the origin
        would be the mean of the samples.
    tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels.
    view_weights_ : dict
        The weights summed over the kernels of every view, by its name.
    offset_ : float
        ``decision_function = score_samples - offset_``.
    kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        As in :class:`MKLClassifier`.
    objective_, duality_gap_, converged_, solver_, n_iter_, n_solves_, history_
        As in :class:`MKLClassifier`.

    Examples
    --------
    >>> from kernelmosaic import MKLOneClass
    >>> from kernelmosaic.datasets import make_gaussians
    >>> X, _ = make_gaussians(n_samples=100, random_state=0)
    >>> model = MKLOneClass(nu=0.1).fit(X)
    >>> model.predict([[50.0, 50.0]])
    array([-1])
    >>> bool((model.predict(X) == 1).mean() > 0.85)
    True
    """

    path_rule: ClassVar[PathRule | None] = PathRule("nu", (1e-2, 0.5))

    def __init__(
        self,
        kernels: KernelsLike = None,
        *,
        nu: float = 0.5,
        norm: float | str = 1,
        weights: ArrayOrTensor = None,
        fixed_weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        missing: str | None = "neighbors",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: int | Sequence[int] = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.nu = nu
        self.norm = norm
        self.weights = weights
        self.fixed_weights = fixed_weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.missing = missing
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _kernels_of(self, X: MatrixLike, views: Settings | None) -> list[Kernel]:
        return one_class_kernels()

    def fit(self, X: MatrixLike, y: TargetLike = None, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples; y is ignored. See :meth:`MKLClassifier.fit`."""
        return super().fit(X, y, sample_weight)

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        return self._read_input(X, None, sample_weight, NO_TARGETS)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if check_positive("nu", self.nu) > 1 and self.slack == 1:
            raise ValueError(
                f"nu={self.nu!r}: with slack=1 it bounds the share of novel samples; give a number"
                " above 0, up to 1."
            )
        if self.normalize == "centered":
            raise ValueError(
                "normalize='centered': a one-class machine separates the samples from the origin,"
                " and centring moves the origin to their mean; choose 'trace', 'diagonal' or None."
            )

    def _task(self) -> Novelty:
        return Novelty(type(self).__name__, None, self.nu, self.slack)

    @property
    def offset_(self) -> float:
        """The offset of the scores: minus the constant of the decision function."""
        return -float(self.intercept_[0])

    def decision_function(self, X: MatrixLike) -> Array:
        """Return the decision values of samples, of shape (n_samples,): negative for novel ones."""
        check_is_fitted(self)
        return np.asarray(self._task_of_fit.distances(self._outputs(to_host(X)), self.intercept_))

    def score_samples(self, X: MatrixLike) -> Array:
        """Return the decision values without their constant, of shape (n_samples,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: MatrixLike) -> NDArray[np.int64]:
        """Return +1 for samples like the training set, −1 for novel ones."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
