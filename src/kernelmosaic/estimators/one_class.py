"""Novelty detection with one weight a kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OutlierMixin

from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.machines import Machine, OneClass
from kernelmosaic.machines.base import check_positive


class MKLOneClass(OutlierMixin, BaseMKL):
    """One-class support vector machine on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + 1/(ν n) Σ ξ_i + b subject to f(x_i) = Σ_m ⟨w_m, φ_m(x_i)⟩ + b ≥ −ξ_i.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    nu : float, default=0.5
        In (0, 1]: at most this share of the training samples is called novel, at least this share supports the boundary.
    norm, weights, penalties, penalty_power, solver, normalize
        As in :class:`MKLClassifier`.
    tol, max_iter, memory_budget, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels.
    offset_ : float
        ``decision_function = score_samples - offset_``.
    kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_, objective_, duality_gap_, n_iter_, n_solves_, \
history_
        As in :class:`MKLClassifier`.
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        nu: float = 0.5,
        norm: float = 1,
        weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        solver: str = "newton",
        normalize: str | None = "trace",
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.nu = nu
        self.norm = norm
        self.weights = weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.solver = solver
        self.normalize = normalize
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to samples; y is ignored. See :meth:`MKLClassifier.fit`."""
        if check_positive("nu", self.nu) > 1:
            raise ValueError(f"nu={self.nu!r}: must lie in (0, 1].")
        original = X
        X = self._validate(X, reset=True)
        self._n_samples = X.shape[0]
        self._fit(X, None, self._sample_weight(sample_weight, X), original)
        self.n_support_ = np.array([len(self.support_)])
        self.offset_ = -float(self.intercept_[0])
        return self

    def _machines(self, y: Any, sample_weight: NDArray[np.float64] | None) -> list[Machine]:
        counted = float(self._n_samples) if sample_weight is None else float(sample_weight.sum())
        n = self._n_samples if sample_weight is None else len(sample_weight)
        return [OneClass(n, 1.0 / (self.nu * counted), sample_weight)]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the signed distances: negative for novel samples."""
        return self._outputs(X)[:, 0]

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return the unshifted scores: the decision function plus `offset_`."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return +1 for samples like the training set, −1 for novel ones."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
