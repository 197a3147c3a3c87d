"""Regression with one weight per kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from kernelmosaic.estimators._base import BaseMKL
from kernelmosaic.kernels.text import refuse_text
from kernelmosaic.machines import SVR, Machine


class MKLRegressor(RegressorMixin, BaseMKL):
    """Support vector regression on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + C Σ max(0, |y_i − f(x_i)| − ε) over f(x) = Σ_m ⟨w_m, φ_m(x)⟩ + b.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    C : float, default=1.0
        Weight of the slack in the objective.
    epsilon : float, default=0.1
        Half-width of the tube in which errors are free.
    norm, weights, penalties, penalty_power, slack, solver, normalize, approximation, rank
        As in :class:`MKLClassifier`.
    tol, max_iter, memory_budget, device, random_state, verbose
        As in :class:`MKLClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (P,)
        The weights of the kernels.
    kernel_names_, dual_coef_, support_, n_support_, support_fraction_, intercept_
        As in :class:`MKLClassifier`.
    objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`MKLClassifier`.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology".
    """

    def __init__(
        self,
        kernels: Any = None,
        *,
        C: float = 1.0,
        epsilon: float = 0.1,
        norm: float = 1,
        weights: Any = None,
        penalties: Any = None,
        penalty_power: float = 0.5,
        slack: int = 1,
        solver: str = "newton",
        normalize: str | None = "trace",
        approximation: str | None = None,
        rank: Any = 500,
        tol: float = 1e-3,
        max_iter: int = 100,
        memory_budget: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernels = kernels
        self.C = C
        self.epsilon = epsilon
        self.norm = norm
        self.weights = weights
        self.penalties = penalties
        self.penalty_power = penalty_power
        self.slack = slack
        self.solver = solver
        self.normalize = normalize
        self.approximation = approximation
        self.rank = rank
        self.tol = tol
        self.max_iter = max_iter
        self.memory_budget = memory_budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to samples and their targets; see :meth:`MKLClassifier.fit`."""
        original = X
        with refuse_text(X, y):
            X, y = self._validate(X, y, reset=True, y_numeric=True)
            target = np.asarray(y, dtype=np.float64)
        self._fit(X, target, self._sample_weight(sample_weight, X), original)
        self.n_support_ = np.array([len(self.support_)])
        return self

    def _machines(self, y: Any, weight: NDArray[np.float64]) -> list[Machine]:
        return [SVR(y, self.C, self.epsilon, self.slack, weight)]

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted targets."""
        return self._outputs(X)[:, 0]
