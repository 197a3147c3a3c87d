"""The regions are what the model predicts, the boundaries where predictions change."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, OneClassSVM

from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.plots import DecisionRegionDisplay

mpl.use("Agg")

X, Y = make_blobs(60, centers=[[0, 0], [3, 0], [0, 3]], random_state=0)
TWO = np.where(Y > 0, "far", "near")
KERNELS = [("line", Linear()), ("bell", Gaussian("median"))]


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def drawn(model, *data, **options):
    display = DecisionRegionDisplay.from_estimator(model, *data, grid_resolution=40, **options)
    display.figure_.canvas.draw()
    return display


def vertices(contours):
    return np.concatenate([path.vertices for path in contours.get_paths() if len(path.vertices)])


@pytest.mark.parametrize(
    "model",
    [MKLClassifier(KERNELS), SVC(gamma=1.0), RandomForestClassifier(10, random_state=0)],
    ids=["ours", "svc", "forest"],
)
def test_regions_are_predictions(model):
    model.fit(X, Y)
    display = drawn(model, X, Y)
    point = [[display.x_grid[7], display.y_grid[31]]]
    assert display.classes[display.response[31, 7]] == model.predict(point)[0]
    colours = display.surface_.get_array()
    same = display.response == display.response[31, 7]
    assert np.all(colours[same] == colours[31, 7])
    assert len({tuple(colour) for colour in colours.reshape(-1, 3)}) == len(
        np.unique(display.response)
    )
    assert [int(c.get_offsets().shape[0]) for c in display.samples_] == np.bincount(Y).tolist()
    labels = display.ax_.get_legend_handles_labels()[1]
    assert labels[:3] == ["class 0", "class 1", "class 2"]
    assert display.ax_.get_xlabel() == "$x_1$"


def test_the_boundary_is_where_the_decision_is_zero_and_the_margin_where_it_is_one():
    model = MKLClassifier(KERNELS).fit(X, TWO)
    display = DecisionRegionDisplay.from_estimator(model, X, TWO, grid_resolution=150)
    boundary, margin = display.boundaries_
    np.testing.assert_allclose(model.decision_function(vertices(boundary)), 0.0, atol=0.05)
    np.testing.assert_allclose(np.abs(model.decision_function(vertices(margin))), 1.0, atol=0.05)


def test_several_classes_meet_where_their_scores_are_equal():
    model = MKLClassifier(KERNELS).fit(X, Y)
    display = DecisionRegionDisplay.from_estimator(model, X, Y, grid_resolution=150)
    assert display.margin is None
    for contours in display.boundaries_:
        scores = np.sort(model.decision_function(vertices(contours)), axis=1)
        np.testing.assert_allclose(scores[:, -1], scores[:, -2], atol=0.05)


def test_support_vectors_of_the_training_set_are_ringed():
    model = MKLClassifier(KERNELS).fit(X, TWO)
    display = drawn(model, X, TWO)
    rings = display.support_vectors_.get_offsets()
    np.testing.assert_allclose(np.sort(rings, axis=0), np.sort(X[model.support_], axis=0))
    svc = SVC().fit(X, TWO)
    np.testing.assert_allclose(
        np.sort(drawn(svc, X).support_vectors_.get_offsets(), 0), np.sort(svc.support_vectors_, 0)
    )
    in_pipeline = make_pipeline(StandardScaler(), MKLClassifier(KERNELS)).fit(X, TWO)
    ringed = drawn(in_pipeline, X).support_vectors_.get_offsets()
    np.testing.assert_allclose(np.sort(ringed, 0), np.sort(X[in_pipeline[-1].support_], 0))
    # Other samples, or all of them, are not.
    assert drawn(model, X[:3]).support_vectors_ is None
    discriminant = drawn(DiscriminantMKLClassifier(KERNELS).fit(X, TWO), X)
    assert discriminant.support_vectors_ is None
    assert discriminant.margin is None


@pytest.mark.parametrize("model", [MKLRegressor(KERNELS), Ridge()], ids=["ours", "ridge"])
def test_a_regressor_shows_values_and_targets_on_one_scale(model):
    target = 2.0 * X[:, 0] - X[:, 1]
    model.fit(X, target)
    display = drawn(model, X, target)
    assert display.kind == "values"
    point = [[display.x_grid[3], display.y_grid[5]]]
    assert display.surface_.get_array()[5, 3] == pytest.approx(model.predict(point)[0])
    (samples,) = display.samples_
    np.testing.assert_allclose(samples.get_array(), target)
    assert samples.norm is display.surface_.norm
    low, high = display.surface_.get_clim()
    assert low <= target.min()
    assert high >= target.max()


@pytest.mark.parametrize(
    "model",
    [MKLOneClass([Gaussian(2.0)], nu=0.3), OneClassSVM(gamma=0.3, nu=0.3)],
    ids=["ours", "svm"],
)
def test_a_detector_shows_where_samples_are_normal(model):
    model.fit(X)
    display = drawn(model, X)
    plane = np.stack(np.meshgrid(display.x_grid, display.y_grid), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(display.response.ravel(), model.predict(plane) > 0)
    assert np.all(display.surface_.get_array()[display.response == 0] == 1.0)
    assert len(display.boundaries_) == 1


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_name_the_axes(library):
    columns = ["length", "width"]
    frame = (
        pd.DataFrame(X, columns=columns) if library == "pandas" else pl.DataFrame(X, schema=columns)
    )
    model = MKLClassifier([("line", Linear(), ["width"]), ("bell", Gaussian())]).fit(frame, TWO)
    display = drawn(model, frame, TWO)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("length", "width")
    point = frame.head(1)
    column = int(np.argmin(np.abs(display.x_grid - X[0, 0])))
    row = int(np.argmin(np.abs(display.y_grid - X[0, 1])))
    assert display.classes[display.response[row, column]] == model.predict(point)[0]


def test_sparse_samples_axes_and_styles():
    import matplotlib.pyplot as plt

    model = MKLClassifier(KERNELS).fit(sparse.csr_array(X), TWO)
    _, ax = plt.subplots()
    display = drawn(model, sparse.csr_array(X), TWO, ax=ax, alpha=0.5)
    assert display.ax_ is ax
    assert display.surface_.get_alpha() == 0.5


def test_what_cannot_be_drawn_is_refused():
    three = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match=r"\(60, 3\).*two columns"):
        DecisionRegionDisplay.from_estimator(SVC().fit(three, Y), three)
    with pytest.raises(TypeError, match="KMeans is not a classifier"):
        DecisionRegionDisplay.from_estimator(KMeans(2, n_init=1).fit(X), X)
