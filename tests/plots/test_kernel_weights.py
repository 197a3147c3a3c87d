"""The bars and cells show the weights, by name."""

from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    MKLRidgeCV,
    PosteriorMKLClassifier,
)
from kernelmosaic.kernels import Gaussian, Laplacian, Linear
from kernelmosaic.plots import ColumnRelevanceDisplay, KernelWeightsDisplay

mpl.use("Agg")

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], Y[::3]
TWO = Y > 0
KERNELS = [("line", Linear()), ("wide", Gaussian(4.0)), ("narrow", Gaussian(0.5))]


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def names(display):
    return [label.get_text() for label in display.ax_.get_yticklabels()]


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(KERNELS, norm=2),
        MKLRegressor(KERNELS, norm=2),
        MKLOneClass(KERNELS, norm=2),
        DiscriminantMKLClassifier(KERNELS),
        PosteriorMKLClassifier(KERNELS, norm=2),
        LocalizedMKLClassifier(KERNELS, n_init=1, max_iter=3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_bar_is_as_long_as_its_weight(model):
    model.fit(X, TWO)
    display = KernelWeightsDisplay.from_estimator(model)
    assert model.weights_.shape == (3,)
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], model.weights_)
    assert names(display) == ["line", "wide", "narrow"]
    # The first kernel stands on top.
    heights = [display.ax_.transData.transform((0, bar.get_y()))[1] for bar in display.bars_]
    assert heights == sorted(heights, reverse=True)
    assert display.ax_.get_xlabel() == ("mean gate" if hasattr(model, "gate") else "weight")
    assert display.image_ is None
    display.figure_.canvas.draw()


@pytest.mark.parametrize(
    "model", [BilinearMKLClassifier(KERNELS), MKLClassifier(KERNELS)], ids=["bilinear", "ovr"]
)
def test_a_cell_a_class_and_kernel(model):
    model.fit(X, np.array(["setosa", "versicolor", "virginica"])[Y])
    display = KernelWeightsDisplay.from_estimator(model)
    np.testing.assert_allclose(display.image_.get_array(), model.weights_.T)
    assert names(display) == ["line", "wide", "narrow"]
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == [
        "setosa",
        "versicolor",
        "virginica",
    ]
    # Numbers in the cells, in a colour that is read on theirs.
    display.figure_.canvas.draw()
    for text in display.ax_.texts:
        c, m = map(int, text.get_position())
        weight = model.weights_[c, m]
        assert float(text.get_text()) == pytest.approx(weight, abs=0.005)
        lightness = np.dot(display.image_.to_rgba(weight)[:3], [0.299, 0.587, 0.114])
        written = mpl.colors.to_rgb(text.get_color())[0]
        assert abs(written - lightness) > 0.4
    assert len(display.ax_.texts) == 9


def test_the_largest_of_many_and_their_order():
    weights = np.array([0.1, 0.0, 0.5, 0.3, 0.1])
    display = KernelWeightsDisplay(weights, list("abcde")).plot(max_kernels=3)
    assert names(display) == ["a", "c", "d"]
    assert "3 largest of 5" in display.ax_.get_title(loc="left")
    ordered = KernelWeightsDisplay(weights, list("abcde")).plot(sort=True)
    assert names(ordered) == ["c", "d", "a", "e", "b"]
    assert [text.get_text() for text in ordered.ax_.texts] == ["0.50", "0.30", "0.10", "0.10", "0"]
    by_class = KernelWeightsDisplay(np.array([[0.0, 1.0, 0.2], [0.7, 0.0, 0.1]]), list("abc")).plot(
        max_kernels=2
    )
    assert names(by_class) == ["a", "b"]
    with pytest.raises(ValueError, match="max_kernels=0"):
        display.plot(max_kernels=0)


def boxes(labels):
    return [label.get_window_extent() for label in labels]


@pytest.mark.parametrize(("n_classes", "n_kernels"), [(0, 40), (6, 12)])
def test_long_names_do_not_touch(n_classes, n_kernels):
    shape = (n_classes, n_kernels) if n_classes else (n_kernels,)
    weights = np.random.RandomState(0).uniform(size=shape)
    labels = [f"morphological profile number {m} at a coarse scale" for m in range(n_kernels)]
    classes = [f"a class with a long name {c}" for c in range(n_classes)] or None
    display = KernelWeightsDisplay(weights, labels, classes).plot()
    display.figure_.canvas.draw()
    found = boxes(display.ax_.get_yticklabels())
    assert all(upper.y0 >= lower.y1 - 0.5 for upper, lower in pairwise(found))
    assert min(box.x0 for box in found) >= 0
    assert len(set(names(display))) == n_kernels
    if n_classes:
        low, high = np.split(np.array([box.extents for box in boxes(display.ax_.texts)]), 2, axis=1)
        meet = np.all((low[:, np.newaxis] <= high) & (low <= high[:, np.newaxis]), axis=2)
        np.testing.assert_array_equal(meet, np.eye(len(low), dtype=bool))
    else:
        assert max(box.x1 for box in boxes(display.ax_.texts)) <= display.figure_.bbox.x1


def test_long_names_are_shortened_where_they_stay_apart():
    long = [f"{letter} " + 50 * "x" for letter in "ab"]
    assert [len(name) for name in names(KernelWeightsDisplay(np.ones(2), long).plot())] == [36, 36]
    alike = ["x" * 30 + letter + "x" * 30 for letter in "ab"]
    assert names(KernelWeightsDisplay(np.ones(2), alike).plot()) == alike


def test_pipelines_searches_axes_and_styles():
    import matplotlib.pyplot as plt

    pipeline = make_pipeline(StandardScaler(), MKLClassifier(KERNELS, weights="uniform"))
    search = GridSearchCV(pipeline, {"mklclassifier__C": [1.0]}, cv=2).fit(X, TWO)
    _, ax = plt.subplots()
    display = KernelWeightsDisplay.from_estimator(search, ax=ax, color="black")
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert display.bars_[0].get_facecolor() == (0.0, 0.0, 0.0, 1.0)
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], 1 / 3)


def test_what_has_no_weights_is_refused():
    with pytest.raises(TypeError, match="SVC has no kernel_names_"):
        KernelWeightsDisplay.from_estimator(SVC().fit(X, Y))
    with pytest.raises(NotFittedError):
        KernelWeightsDisplay.from_estimator(MKLClassifier())


def test_relevance_of_columns():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(100, 4)), columns=list("abcd"))
    y = np.sin(3 * X["c"].to_numpy()) + 0.1 * rng.normal(size=100)
    one = MKLRidgeCV(
        [Linear(), Gaussian(width="learn", per_column=True)], criterion="evidence"
    ).fit(X, y)
    display = ColumnRelevanceDisplay.from_estimator(one)
    assert display.names[display.shown_[0]] == "c"
    assert display.weights.max() == 1.0
    scale = one.kernels_[1].scale_
    assert display.weights == pytest.approx(scale.min() / scale)
    views = [
        ("left", Laplacian(width="learn", per_column=True), ["a", "c"]),
        Gaussian(width="learn", per_column=True),
    ]
    both = ColumnRelevanceDisplay.from_estimator(MKLRidgeCV(views, criterion="evidence").fit(X, y))
    assert both.weights.shape == (2, 4)
    assert both.weights[0, 1] == both.weights[0, 3] == 0.0
    with pytest.raises(
        ValueError, match="no kernel of the estimator has one learned width per column"
    ):
        ColumnRelevanceDisplay.from_estimator(MKLRidgeCV([Gaussian()]).fit(X, y))


def test_classes_are_a_list_or_an_array():
    weights = np.array([[0.2, 0.8], [0.5, 0.5]])
    display = KernelWeightsDisplay(weights, ["a", "b"], np.array(["no", "yes"])).plot()
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["no", "yes"]
