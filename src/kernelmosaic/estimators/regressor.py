"""Regression with one weight per kernel."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from kernelmosaic._typing import MatrixLike, SampleWeight, TargetLike
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.engine.tasks import Numbers, PathRule, mean_deviation
from kernelmosaic.estimators._base import BaseMKL, parameters
from kernelmosaic.kernels.base import refuse_text
from kernelmosaic.stacking import check_row_names


@parameters
class MKLRegressor(RegressorMixin, BaseMKL):
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
    loss : {"epsilon", "huber", "squared", "quantile"}, default="epsilon"
        Loss of an error r. ``"epsilon"``: max(0, |r| − ε), squared with ``slack=2``. ``"huber"``: r²/(2ε) up to ε and
        |r| − ε/2 beyond, so that errors beyond count by their size as with ``"epsilon"``, and there is no tube.
        ``"squared"``: r², the same as ``"epsilon"`` with ``epsilon=0, slack=2``; the objective then is
        (Σ_m d_m ‖w_m‖)² + C Σ r_i². ``"quantile"``: q r of r = y − f(x) above zero and (q − 1) r below, the pinball
        loss, whose minimum has about a share q of the targets below f. `slack` is read by ``"epsilon"`` only.
    quantile : float or list of float, default=0.5
        The share q of ``loss="quantile"``, between 0 and 1. Several, in increasing order, are learned with one function
        each and one weight per kernel for all. Their predictions at a sample are put in order, so that no quantile
        crosses another: the sum of their pinball losses becomes no larger by it (Chernozhukov et al. 2010), whereas
        constraints in the problem would hold at the training samples alone. `contributions`, `objective_` and
        `duality_gap_` are those of the functions before they are put in order.
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
    Chernozhukov, Fernández-Val and Galichon (2010), "Quantile and probability curves without crossing".

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

    _: KW_ONLY
    C: float = 1.0
    epsilon: Any = 0.1
    loss: str = "epsilon"

    quantile: Any = 0.5

    @property
    def path_rule(self) -> PathRule:  # type: ignore[override]
        return PathRule(unit=mean_deviation, score=self._task().score)

    def validated(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight) -> FitInput:
        with refuse_text(X, y):
            given = self._read_input(X, y, sample_weight=sample_weight, y_numeric=True, multi_output=True)
            return replace(given, y=np.asarray(given.y, dtype=np.float64))

    def _task(self) -> Numbers:
        return Numbers(type(self).__name__, None, self.loss, self.C, self.epsilon, self.slack, self.quantile)

    def predict(self, X: MatrixLike) -> NDArray[np.float64]:
        """Return the predicted targets, in the shape of those the model was fitted to.

        Several quantiles have one column each, of shape (n_samples, quantiles), and increase from left to right.
        """
        return self.decide(self._outputs(X))

    def score(self, X: MatrixLike, y: TargetLike, sample_weight: SampleWeight = None) -> float:
        """Return R²; with ``loss="quantile"`` minus the mean pinball loss, of several quantiles the mean over them.

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
        # A pinball loss is no share of the variance.
        tags.regressor_tags.poor_score = self.loss == "quantile"
        return tags
