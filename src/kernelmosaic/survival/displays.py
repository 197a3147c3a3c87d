"""The display of survival estimators: their calibration at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernelmosaic._typing import Array, AxesOrNone, Estimator, MatrixLike, TargetLike
from kernelmosaic.plots.drawing import Display, colour, fitted_model
from kernelmosaic.stacking import check_row_names
from kernelmosaic.survival.metrics import read_times, share_at


@dataclass
class SurvivalCalibrationDisplay(Display):
    """Predicted and observed shares of samples that survive a time, by groups of predictions.

    Points on the diagonal are calibrated. Make it by :meth:`from_estimator`.

    Parameters
    ----------
    predicted, observed : ndarray of shape (n_groups,)
        The mean prediction of each group, and Kaplan and Meier's estimate of its share.
    time : float
        The time.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmosaic import MKLSurvival, plots
    >>> X = np.random.RandomState(0).randn(60, 2)
    >>> y = np.exp(X[:, 0])
    >>> model = MKLSurvival(loss="cox").fit(X, y)
    >>> display = plots.SurvivalCalibrationDisplay.from_estimator(model, X, y, n_groups=3)
    >>> bool(np.all(np.diff(display.observed) > 0))
    True
    """

    predicted: Array
    observed: Array
    time: float

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: MatrixLike,
        y: TargetLike,
        *,
        time: float | None = None,
        n_groups: int = 5,
        ax: AxesOrNone = None,
        **style: Any,
    ) -> Self:
        """Draw the calibration of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted; :class:`~kernelmosaic.MKLSurvival`, or a search whose best one it is.
        X : array-like of shape (n_samples, n_features)
            Samples, better not those of the fit.
        y : structured array or array-like
            Their events and times.
        time : float, optional
            The time; by default the median of `y`.
        n_groups : int, default=5
            Groups of equal size, in order of the predictions.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        **style
            Passed to ``Axes.plot``.
        """
        model = fitted_model(
            estimator, "predict_survival_function", cls.__name__, "survival estimators"
        )
        check_row_names(X, y=y)
        events_and_times = read_times(y)
        if time is None:
            time = float(np.median(events_and_times[:, 1]))
        time = float(time)
        # A survival function is known up to the end of its domain.
        curves = model.predict_survival_function(X)
        survival = np.array([curve(min(time, curve.domain[1])) for curve in curves])
        groups = np.array_split(np.argsort(survival, kind="stable"), n_groups)
        predicted = np.array([survival[rows].mean() for rows in groups])
        observed = np.array([share_at(events_and_times[rows], time) for rows in groups])
        return cls(predicted, observed, time).plot(ax=ax, **style)

    def plot(self, ax: AxesOrNone = None, **style: Any) -> Self:
        """Draw, on the given axes or in a new figure; see :meth:`from_estimator`."""
        ax = self._use_axes(ax, (3.8, 3.6))
        ax.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        ax.plot(self.predicted, self.observed, **{"marker": "o", "color": colour(0)} | style)
        ax.set(xlabel=f"predicted share alive after {self.time:g}", ylabel="observed share")
        return self
