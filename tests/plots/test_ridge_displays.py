"""Displays of ridge estimators: those that make sense are drawn, the others say what they take."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic import MKLRidgeClassifierCV, MKLRidgeCV, plots
from kernelmosaic.inspection import kernel_importance, stability
from kernelmosaic.kernels import Gaussian

plt = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=60)
KERNELS = [("signal", Gaussian(), [0]), ("noise", Gaussian(), [1])]
MODELS = {
    "numbers": (MKLRidgeCV(KERNELS), Y),
    "two": (MKLRidgeClassifierCV(KERNELS), (Y > 0).astype(int)),
    "three": (MKLRidgeClassifierCV(KERNELS), np.digitize(Y, [-0.5, 0.5])),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model, y = MODELS[request.param]
    return model.fit(X, y), y


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_weights_are_drawn_as_shares(fitted):
    model, _ = fitted
    display = plots.KernelWeightsDisplay.from_estimator(model)
    lengths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(lengths, model.weights_ / model.weights_.sum())
    assert display.ax_.get_xlabel() == "share of all weights"


def test_the_criterion_is_drawn_with_the_lowest_so_far(fitted):
    model, _ = fitted
    display = plots.ConvergenceDisplay.from_estimator(model)
    values = [step["objective"] for step in model.history_]
    (line,) = display.objective_lines_
    np.testing.assert_allclose(line.get_ydata(), np.minimum.accumulate(values))
    dots = display.ax_.lines[1]
    np.testing.assert_allclose(dots.get_ydata(), values)
    assert display.gap_lines_ == []
    assert display.ax_.get_ylabel() == "criterion"
    low, high = display.ax_.get_ylim()
    assert low < min(values)
    assert values[0] < high


def test_regions_and_projections(fitted):
    model, y = fitted
    plots.DecisionRegionDisplay.from_estimator(model, X, y)
    plots.ProjectionDisplay.from_estimator(model, X, y)


def test_inspections_compare_shares(fitted):
    model, y = fitted
    share = model.weights_ / model.weights_.sum()
    again = stability(model, X, y, n_resamples=2, random_state=0)
    np.testing.assert_allclose(again.weights, share)
    np.testing.assert_allclose(again.resampled_weights.sum(axis=1), 1.0)
    plots.StabilityDisplay(again).plot()


def test_importance_of_kernels(fitted):
    model, y = fitted
    found = kernel_importance(model, X, y, cv=2, n_repeats=2, random_state=0)
    assert found.drop_mean[0] > found.drop_mean[1]
    assert found.permutation_mean[0] > found.permutation_mean[1]
    plots.KernelImportanceDisplay(found).plot()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            plots.ValidationPathDisplay.from_estimator,
            "has no Cs_: .* MKLClassifierCV, MKLRegressorCV and PathSearchCV",
        ),
        (
            plots.WeightsPathDisplay.from_estimator,
            "has no Cs_: .* MKLClassifierCV, MKLRegressorCV and Path",
        ),
        (
            plots.ResponseSurfaceDisplay.from_estimator,
            "has no surface_: .* ResponseSurfaceSearchCV",
        ),
        (
            lambda model: plots.LocalKernelDisplay.from_estimator(model, X),
            "has no gates: give a localized estimator",
        ),
        (
            lambda model: plots.GatingDisplay.from_estimator(model, X),
            "has no gates: give a localized estimator",
        ),
    ],
)
def test_displays_of_others_say_what_they_take(fitted, draw, message):
    with pytest.raises(TypeError, match=message):
        draw(fitted[0])


def test_shares_of_targets():
    targets = np.sin(2 * X[:, [0, 1] * 6]) + 0.5 * np.random.default_rng(1).normal(size=(60, 12))
    model = MKLRidgeCV(KERNELS, per_target=True, random_state=0).fit(X, targets)
    display = plots.TargetSharesDisplay.from_estimator(model)
    assert sorted(display.order_[:6]) == [0, 2, 4, 6, 8, 10]
    shares = model.weights_ / model.weights_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(display.image_.get_array(), shares[display.order_].T)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["signal", "noise"]
    split = plots.TargetSharesDisplay.from_estimator(model, X, targets)
    np.testing.assert_allclose(
        split.image_.get_array(), model.score_split(X, targets)[:, split.order_]
    )
    with pytest.raises(ValueError, match="TargetSharesDisplay"):
        plots.KernelWeightsDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="per_target=True"):
        plots.TargetSharesDisplay.from_estimator(MKLRidgeCV(KERNELS).fit(X, Y))
    plt.close("all")
