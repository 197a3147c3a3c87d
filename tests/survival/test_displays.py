"""The calibration of survival functions: groups of equal size, means of predictions, Kaplan–Meier
of what was seen."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic import MKLRegressor, MKLSurvival
from kernelmosaic.kernels import Linear
from kernelmosaic.metrics import kaplan_meier
from kernelmosaic.model_selection import PathSearchCV
from kernelmosaic.plots import SurvivalCalibrationDisplay

pytest.importorskip("matplotlib").use("Agg")

RNG = np.random.RandomState(0)
X = RNG.standard_normal((40, 2))
Y = np.column_stack([RNG.rand(40) < 0.7, np.exp(X[:, 0] + 0.5 * RNG.standard_normal(40))])


@pytest.mark.parametrize("time", [None, 0.8])
def test_points_are_those_of_the_groups(time):
    model = MKLSurvival([Linear()], loss="cox").fit(X, Y)
    display = SurvivalCalibrationDisplay.from_estimator(model, X, Y, time=time, n_groups=4)
    at = np.median(Y[:, 1]) if time is None else time
    values = np.array([one(at) for one in model.predict_survival_function(X)])
    for k, rows in enumerate(np.argsort(values, kind="stable").reshape(4, 10)):
        times, share = kaplan_meier(Y[rows, 1], Y[rows, 0])
        assert display.predicted[k] == pytest.approx(values[rows].mean())
        assert display.observed[k] == pytest.approx(
            share[times <= at][-1] if np.any(times <= at) else 1.0
        )
    assert_allclose(
        display.ax_.lines[1].get_xydata(), np.column_stack([display.predicted, display.observed])
    )
    assert f"{at:g}" in display.ax_.get_xlabel()


def test_searches_are_drawn_and_others_refused():
    search = PathSearchCV(MKLSurvival([Linear()]), Cs=2, cv=2).fit(X, Y)
    assert SurvivalCalibrationDisplay.from_estimator(search, X, Y).figure_ is not None
    with pytest.raises(
        TypeError, match="has no predict_survival_function: SurvivalCalibrationDisplay"
    ):
        SurvivalCalibrationDisplay.from_estimator(MKLRegressor().fit(X, Y[:, 1]), X, Y)
