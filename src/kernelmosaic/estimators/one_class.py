"""Novelty detection with one weight per kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin

from kernelmosaic._checks import check_positive
from kernelmosaic._typing import MatrixLike, SampleWeight, TargetLike
from kernelmosaic.backend import to_host
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import Novelty, PathRule
from kernelmosaic.estimators._base import BaseMKL, parameters
from kernelmosaic.kernels.views import one_class_kernels


@parameters
class MKLOneClass(OutlierMixin, BaseMKL):
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
    path_rule: ClassVar[PathRule | None] = PathRule("nu", (1e-2, 0.5))

    def fit(self, X: MatrixLike, y: TargetLike = None, sample_weight: SampleWeight = None) -> Self:
        """Fit to samples; y is ignored. See :meth:`MKLClassifier.fit`."""
        return super().fit(X, y, sample_weight)

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
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

    def _task(self) -> Novelty:
        return Novelty(type(self).__name__, None, self.nu, self.slack)

    @property
    def offset_(self) -> float:
        """Minus the constant of the decision function."""
        return -float(self.intercept_[0])

    def decision_function(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the signed distances: negative for novel samples."""
        outputs, task = self._outputs(to_host(X)), self._task_of_fit
        assert isinstance(task, Novelty)
        return task.distances(outputs, self.intercept_)

    def score_samples(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the unshifted scores: the decision function plus `offset_`."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: MatrixLike) -> NDArray[np.int64]:
        """Return +1 for samples like the training set, −1 for novel ones."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
