"""What decides on one sample, which samples have which views, and which columns count: numbers in
the pictures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kernelmosaic import MKLClassifier, MKLRegressor
from kernelmosaic.inspection import feature_importance
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.plots import (
    ContributionsDisplay,
    FeatureImportanceDisplay,
    KernelWeightsDisplay,
    ViewMapDisplay,
)

plt = pytest.importorskip("matplotlib.pyplot")
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
X[::4, :2] = np.nan
Y = np.where(X[:, 2] + np.nan_to_num(X[:, 0]) > 0, "ill", "well")
VIEWS = {"rna": [0, 1], "protein": [2, 3, 4]}
KERNELS = [
    (f"{view}:{i}", kernel, own)
    for view, own in VIEWS.items()
    for i, kernel in enumerate([Linear(), Gaussian()])
]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.mark.parametrize("contributions", [[-0.4, 0.8, 2.3], [-3.0, -0.01, 0.2], [1.0, 2.0, 3.0]])
def test_the_numbers_of_a_waterfall_are_within_its_axes(contributions):
    display = ContributionsDisplay(
        np.array(contributions), ["rna", "protein", "a long name"], 0.1, ""
    ).plot()
    display.figure_.canvas.draw()
    inside = display.ax_.get_window_extent()
    for text in display.ax_.texts:
        box = text.get_window_extent()
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1


def test_a_waterfall_ends_at_the_decision():
    model = MKLClassifier(KERNELS, weights="uniform", calibration="sigmoid").fit(X, Y)
    display = ContributionsDisplay.from_estimator(model, X[:1], truth=Y[0])
    ends = [bar.get_x() + bar.get_width() for bar in display.bars_]
    decision = model.decision_function(X[:1])[0]
    np.testing.assert_allclose([ends[-2], ends[-1]], decision)
    np.testing.assert_allclose(ends[0], model.intercept_[0])
    terms = model.contributions(X[:1])[0]
    expected = {"rna": terms[:2].sum(), "protein": terms[2:].sum()}
    for name, bar in zip(display.shown_[1:-1], display.bars_[1:-1], strict=True):
        np.testing.assert_allclose(bar.get_width(), expected[name])
    p = model.predict_proba(X[:1]).max()
    predicted = model.predict(X[:1])[0]
    assert display.ax_.get_title(loc="left") == (
        f"predicted: {predicted}, probability {p:.2f}; true: {Y[0]}\nmissing view (imputed): rna"
    )
    whole = ContributionsDisplay.from_estimator(model, X[1:2])
    assert "missing" not in whole.ax_.get_title(loc="left")


def test_of_several_classes_the_decision_is_that_of_the_predicted_one():
    labels = np.digitize(X[:, 2], [-0.5, 0.5])
    model = MKLClassifier(KERNELS, weights="uniform").fit(X, labels)
    display = ContributionsDisplay.from_estimator(model, X[3:4])
    np.testing.assert_allclose(display.bars_[-1].get_width(), model.decision_function(X[3:4]).max())


def test_numbers_and_many_views():
    kernels = [(f"c{j}", Linear(), [j]) for j in (2, 3, 4)]
    model = MKLRegressor(kernels, weights="uniform").fit(X, X[:, 2])
    display = ContributionsDisplay.from_estimator(model, X[:1], truth=X[0, 2], max_views=2)
    assert display.shown_[2:] == ["2 others", "decision"]
    np.testing.assert_allclose(display.bars_[-1].get_width(), model.predict(X[:1])[0])
    with pytest.raises(ValueError, match="X has 2 samples"):
        ContributionsDisplay.from_estimator(model, X[:2])


@pytest.mark.parametrize("as_frame", [False, True])
def test_the_map_shows_who_has_what(as_frame):
    views = {name: [f"x{c}" for c in own] for name, own in VIEWS.items()} if as_frame else VIEWS
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(5)]) if as_frame else X
    display = ViewMapDisplay.from_views(table, views)
    shown = np.asarray(display.image_.get_array())
    np.testing.assert_array_equal(shown.sum(axis=1), [45, 60])
    np.testing.assert_array_equal(shown, display.present[display.order_].T)
    assert shown[0, :45].all()
    assert [text.get_text() for text in display.ax_.texts] == ["45 of 60", "60 of 60"]


def test_bars_of_the_most_important_columns():
    model = MKLClassifier(KERNELS, C=10).fit(X, Y)
    found = feature_importance(model, X, random_state=0)
    display = FeatureImportanceDisplay.from_estimator(model, X, most=2, random_state=0)
    for view, bars in display.bars_.items():
        np.testing.assert_allclose(
            [bar.get_width() for bar in bars], [value for _, value in found.top(view, 2)]
        )
        # One axis for each view: a scale of its own, and intervals that hold the value.
        (ends,) = [line.get_segments() for line in display.axes_[view].collections]
        own = found.largest(view, 2)
        reach = (
            np.array([segment[:, 0] for segment in ends]) - found.importances[own][:, np.newaxis]
        )
        np.testing.assert_allclose(reach, np.outer(found.errors[own], [-2, 2]), atol=1e-12)
        assert view in display.axes_[view].get_title(loc="left")


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_by_view(classes):
    model = MKLClassifier(KERNELS, norm=2).fit(
        X, np.digitize(X[:, 2], np.linspace(-0.5, 0.5, classes - 1))
    )
    display = KernelWeightsDisplay.from_estimator(model, by_view=True)
    assert display.names == ["rna", "protein"]
    np.testing.assert_allclose(display.weights.T, list(model.view_weights_.values()))
