"""Novelty detection with one weight per kernel."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin

from kernelmosaic._typing import MatrixLike, SampleWeight, TargetLike
from kernelmosaic.backend import to_host
from kernelmosaic.estimators._base import WeightedMKL, parameters
from kernelmosaic.estimators._input import DistinctSamples, FitInput, level_of_caller
from kernelmosaic.estimators._path import PathRule
from kernelmosaic.estimators._training_set import TrainingSet
from kernelmosaic.kernels.views import one_class_kernels
from kernelmosaic.machines import Machine, OneClass
from kernelmosaic.machines.base import check_positive


@parameters
class MKLOneClass(OutlierMixin, WeightedMKL):
    """One-class support vector machine on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + 1/(ν n) Σ ξ_i + b subject to f(x_i) = Σ_m ⟨w_m, φ_m(x_i)⟩ + b ≥ −ξ_i; with
    ``slack=2``, ½ (Σ_m d_m ‖w_m‖)² + 1/(2ν) Σ ξ_i² + b.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`; but None means Gaussians alone, of 0.175, 0.35 and 0.7 times the median distance
        between training samples. Learned weights favour the widest, since no sample of another class contradicts it.
        Where k(x, x) grows with the distance from the origin, as with linear and polynomial kernels, far samples are
        not called novel: `fit` warns of such kernels unless ``normalize="diagonal"``.
    nu : float, default=0.5
        In (0, 1]: at most this share of the training samples is called novel, at least this share supports the
        boundary. With ``slack=2`` it is what is added to the diagonal of the combined kernel, and bounds no share: the
        samples called novel are those that support the boundary.
    slack : {1, 2}, default=1
        Norm of the slack.
    norm, l1_ratio, weights, fixed_weights, penalties, penalty_power, solver, normalize, approximation, rank, missing
        As in :class:`MKLClassifier`, except that ``normalize="centered"`` is refused: the origin would be the mean of
        the samples.
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
    objective_, duality_gap_, n_iter_, n_solves_, history_
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

    _: KW_ONLY
    nu: float = 0.5

    _default_kernels = staticmethod(one_class_kernels)
    _path_rule: ClassVar[PathRule | None] = PathRule("nu", (1e-2, 0.5))

    def fit(self, X: MatrixLike, y: TargetLike = None, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples; y is ignored. See :meth:`MKLClassifier.fit`."""
        return super().fit(X, y, sample_weight)

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        return self._read_input(X, sample_weight=sample_weight)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if check_positive("nu", self.nu) > 1:
            raise ValueError(f"nu={self.nu!r}: must lie in (0, 1].")
        if self.normalize == "centered":
            raise ValueError(
                "normalize='centered': a one-class machine separates the samples from the origin, which centring "
                "moves into their midst; choose 'trace', 'diagonal' or None."
            )

    def _fit_validated(self, given: FitInput, keep_function: bool = True) -> Self:
        super()._fit_validated(given, keep_function)
        self.offset_ = -float(self.intercept_[0])
        return self

    def _training_set(self, given: FitInput, counted: DistinctSamples) -> TrainingSet:
        data = super()._training_set(given, counted)
        varying = [] if self.normalize == "diagonal" else data.varying_diagonals()
        if varying:
            warnings.warn(
                f"{type(self).__name__}: k(x, x) of {', '.join(varying)} differs between training samples, so that a "
                "sample may look usual for being far from the origin alone; use kernels such as Gaussian() whose "
                "k(x, x) is constant, or set normalize='diagonal', by which directions alone are compared.",
                UserWarning,
                stacklevel=level_of_caller(),
            )
        return data

    def _machines(self, y: TargetLike, weight: NDArray[np.float64]) -> list[Machine]:
        # A price per share of the samples bounds how many are novel; of squared slacks it would have all of them be.
        counted = float(weight.sum()) if self.slack == 1 else 1.0
        return [OneClass(len(weight), 1.0 / (self.nu * counted), weight, self.slack)]

    def _gap_warning(self, learner: Any, loosest: Any) -> str | None:
        if loosest.gap < 1.0:
            return super()._gap_warning(learner, loosest)
        return (
            ": the optimum is zero to rounding, since the origin lies among the samples, and no gap relative to it is "
            "certified; use kernels such as Gaussian(), whose samples lie to one side of the origin."
        )

    def decision_function(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the signed distances: negative for novel samples."""
        return self._distances(self._outputs(to_host(X)))

    def _distances(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the outputs, with zero for those that differ from it by rounding, relative to the offset."""
        values = outputs[:, 0]
        # The boundary runs through samples, which must fall on the same side however many are asked about at once.
        return np.where(np.abs(values) <= 1e-9 * abs(self.offset_), 0.0, values)

    def _predictions(self, outputs: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.where(self._distances(outputs) >= 0, 1, -1)

    def score_samples(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the unshifted scores: the decision function plus `offset_`."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: MatrixLike) -> NDArray[np.int64]:
        """Return +1 for samples like the training set, −1 for novel ones."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
