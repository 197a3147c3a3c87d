"""Regression with one weight per kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from kernelmosaic._typing import MatrixLike, SampleWeight, TargetLike
from kernelmosaic.estimators._base import WeightedMKL, parameters
from kernelmosaic.estimators._input import FitInput
from kernelmosaic.estimators._path import PathRule, mean_deviation, r_squared
from kernelmosaic.kernels.base import refuse_text
from kernelmosaic.learning.ridge_weights import RidgeTargets
from kernelmosaic.machines import SVR, Huber, Machine
from kernelmosaic.machines.base import SharedMachines, check_positive


@parameters
class MKLRegressor(RegressorMixin, WeightedMKL):
    """Support vector regression on a weighted sum of kernels.

    Minimises ½ (Σ_m d_m ‖w_m‖)² + C Σ max(0, |y_i − f(x_i)| − ε) over f(x) = Σ_m ⟨w_m, φ_m(x)⟩ + b, or the same with
    another loss. Several targets are learned with one function each and one weight per kernel for all of them, which
    minimise the sum of their objectives.

    Parameters
    ----------
    kernels : list, default=None
        As in :class:`MKLClassifier`.
    C : float, default=1.0
        Factor of the loss.
    epsilon : float, default=0.1
        Half-width ε of the tube in which errors are free; with ``loss="huber"`` the error up to which the loss is
        quadratic. In units of the targets.
    loss : {"epsilon", "huber", "squared"}, default="epsilon"
        Loss of an error r. ``"epsilon"``: max(0, |r| − ε), squared with ``slack=2``. ``"huber"``: r²/(2ε) up to ε and
        |r| − ε/2 beyond, so that errors beyond count by their size as with ``"epsilon"``, and there is no tube.
        ``"squared"``: r², the same as ``"epsilon"`` with ``epsilon=0, slack=2``; the objective then is
        (Σ_m d_m ‖w_m‖)² + C Σ r_i². `slack` is read by ``"epsilon"`` only.
    norm, l1_ratio, weights, fixed_weights, penalties, penalty_power, slack, solver, normalize, approximation, rank
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
    objective_, duality_gap_, n_iter_, n_solves_, history_
        As in :class:`MKLClassifier`.

    References
    ----------
    Gönen and Alpaydın (2011), "Regularizing multiple kernel learning using response surface methodology".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLRegressor
    >>> from kernelmosaic.kernels import Gaussian, Linear
    >>> X = np.linspace(0, 6, 60)[:, np.newaxis]
    >>> model = MKLRegressor([("line", Linear()), ("bell", Gaussian(1.0))], C=10).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.95
    True
    """

    _: KW_ONLY
    C: float = 1.0
    epsilon: Any = 0.1
    loss: str = "epsilon"

    _path_rule: ClassVar[PathRule | None] = PathRule(unit=mean_deviation, score=r_squared)

    def _validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            given = self._read_input(X, y, sample_weight=sample_weight, y_numeric=True, multi_output=True)
            return replace(given, y=np.asarray(given.y, dtype=np.float64))

    def _fit_validated(self, given: FitInput, keep_function: bool = True) -> Self:
        self._is_flat = given.y.ndim == 1
        return super()._fit_validated(given, keep_function)

    def _machines(self, y: TargetLike, weight: NDArray[np.float64]) -> list[Any]:
        each = [self._machine(target, weight) for target in np.atleast_2d(y.T)]
        return each if len(each) == 1 else [SharedMachines(each)]

    def _machine(self, y: TargetLike, weight: NDArray[np.float64]) -> Machine:
        if self.loss == "epsilon":
            return SVR(y, self.C, self._tube(), self.slack, weight)
        if self.loss == "huber":
            return Huber(y, self.C, check_positive("epsilon", self._tube(), zero=True), weight)
        if self.loss == "squared":
            return SVR(y, self.C, 0.0, 2, weight)
        raise ValueError(f"loss={self.loss!r}: give 'epsilon', 'huber' or 'squared'.")

    def _ridge_targets(self, y: TargetLike, weight: NDArray[np.float64]) -> RidgeTargets:
        return RidgeTargets.of_numbers(y if y.ndim == 2 else y[:, np.newaxis], weight)

    def _tube(self) -> float:
        """Return the half-width of the tube."""
        width: float = self.epsilon
        return width

    def predict(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the predicted targets, in the shape of those the model was fitted to."""
        return self._predictions(self._outputs(X))

    def _predictions(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        return outputs[:, 0] if self._is_flat else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
