"""The displays of localized estimators show what the estimators say."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic import LocalizedMKLClassifier, LocalizedMKLRegressor, MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Linear
from kernelmosaic.plots import GatingDisplay, LocalKernelDisplay

mpl.use("Agg")

X, Y = make_gaussians(4, 80, random_state=0)
WIDE = np.column_stack([X, X[:, 0] ** 2])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def fitted(X, y, **options):
    return LocalizedMKLClassifier([Linear(), Linear()], n_init=1, tol=0.01, **options).fit(X, y)


def test_the_plane_shows_gates_and_decisions_of_its_points():
    model = fitted(X, Y)
    display = GatingDisplay.from_estimator(model, X, Y, grid_resolution=25)
    assert display.grid_gates.shape == (25, 25, 2)
    point = np.array([[display.x_grid[7], display.y_grid[19]]])
    assert_allclose(display.grid_gates[19, 7], model.gate(point)[0])
    assert_allclose(display.grid_decision[19, 7], model.decision_function(point)[0])
    assert_allclose(np.flatnonzero(display.support), np.sort(model.support_))
    assert [
        text.get_text() for text in display.figure_.legends[0].get_texts()
    ] == model.kernel_names_


def test_bars_are_as_high_as_the_gates():
    model = fitted(WIDE, Y, gating="sigmoid")
    display = GatingDisplay.from_estimator(model, WIDE, Y)
    heights = [
        sum(bar.get_height() for bar in bars) for bars in zip(*display.ax_.containers, strict=True)
    ]
    assert_allclose(np.sort(heights), np.sort(model.gate(WIDE).sum(axis=1)))
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["class -1", "class 1"]


def test_the_heat_map_is_the_kernel_reordered_by_class():
    model = fitted(X, Y)
    display = LocalKernelDisplay.from_estimator(model, X, Y)
    K = model.kernel_matrix(X)
    assert_allclose(np.sort(np.diag(display.K)), np.sort(np.diag(K)))
    n_first = int(np.sum(Y == -1))
    assert display.groups == [("class -1", n_first), ("class 1", len(Y) - n_first)]
    assert_allclose(display.K[:n_first, :n_first].sum(), K[np.ix_(Y == -1, Y == -1)].sum())


def test_several_classes_and_numbers_can_be_shown():
    labels = np.where(Y > 0, 2, np.where(X[:, 0] > 1, 1, 0))
    several = fitted(X, labels)
    display = GatingDisplay.from_estimator(several, X, labels, output=2, grid_resolution=10)
    assert_allclose(display.gates, several.gate(X)[:, :, 2])
    regressor = LocalizedMKLRegressor([Linear(), Linear()], n_init=1, tol=0.05).fit(WIDE, X[:, 1])
    assert (
        GatingDisplay.from_estimator(regressor, WIDE, X[:, 1]).ax_.get_xlabel()
        == "samples, by target"
    )
    assert LocalKernelDisplay.from_estimator(regressor, WIDE, max_samples=30).K.shape == (30, 30)


def test_a_machine_without_gates_is_refused_by_name():
    X, y = make_gaussians(n_components=4, n_samples=40, random_state=0)
    with pytest.raises(TypeError, match="MKLClassifier has no gates"):
        GatingDisplay.from_estimator(MKLClassifier([Linear()]).fit(X, y), X)
