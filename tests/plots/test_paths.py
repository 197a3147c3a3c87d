"""Pictures of searches along C: what is drawn is what was found."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
)
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV
from kernelmosaic.plots import ValidationPathDisplay, WeightsPathDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

X, Y = (part[::3] for part in load_iris(return_X_y=True))
TWO = Y > 0
KERNELS = [("line", Linear()), ("bell", Gaussian())]


@pytest.fixture(scope="module")
def searched():
    return MKLClassifierCV(KERNELS, Cs=[0.1, 1, 10], cv=3).fit(X, Y)


def test_scores_of_every_norm(searched):
    display = ValidationPathDisplay.from_estimator(searched)
    assert list(display.lines_) == [1, 2, "uniform"]
    for norm, line in display.lines_.items():
        np.testing.assert_allclose(line.get_xdata(), [0.1, 1, 10])
        np.testing.assert_allclose(line.get_ydata(), searched.scores_by_norm_[norm].mean(axis=0))
    assert display.ax_.get_xlabel() == "C"
    assert [tick.get_text() for tick in display.ax_.get_xticklabels(which="both")] == [
        "0.1",
        "1",
        "10",
    ]
    dot = display.ax_.lines[-1]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (
        searched.C_,
        pytest.approx(searched.best_score_),
    )


def test_weights_of_a_class_and_their_mean():
    learned = MKLClassifierCV(KERNELS, Cs=[0.1, 1, 10], cv=3, norms=(1, 2)).fit(X, Y)
    display = WeightsPathDisplay.from_estimator(learned)
    for m, line in zip(display.shown_, display.lines_, strict=True):
        np.testing.assert_allclose(line.get_ydata(), learned.weights_path_[:, :, m].mean(axis=1))
        assert line.get_label() == KERNELS[m][0]
    one = WeightsPathDisplay.from_estimator(learned, of_class=1, max_kernels=1)
    assert len(one.lines_) == 1
    np.testing.assert_allclose(
        one.lines_[0].get_ydata(), learned.weights_path_[:, 1, one.shown_[0]]
    )
    with pytest.raises(ValueError, match="of_class=7"):
        WeightsPathDisplay.from_estimator(learned, of_class=7)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("norm", [1, 2, "uniform"])
def test_weights_of_a_norm_that_was_not_chosen(searched, norm):
    display = WeightsPathDisplay.from_estimator(searched, norm=norm)
    path = searched.weights_path_by_norm_[norm]
    for m, line in zip(display.shown_, display.lines_, strict=True):
        np.testing.assert_allclose(line.get_ydata(), path[:, :, m].mean(axis=1))
    assert display.beside_ == {}
    one = WeightsPathDisplay.from_estimator(searched, norm=norm, of_class=2)
    np.testing.assert_allclose(one.lines_[0].get_ydata(), path[:, 2, one.shown_[0]])
    with pytest.raises(ValueError, match=r"norm=3: the search has tried \[1, 2, 'uniform'\]"):
        WeightsPathDisplay.from_estimator(searched, norm=3)


def test_what_other_norms_learned_is_drawn_beside_equal_weights():
    Cs, rng = np.array([0.1, 1.0, 10.0]), np.random.RandomState(0)
    learned = {1: rng.rand(3, 9), 2: rng.rand(3, 9)}
    display = WeightsPathDisplay(
        Cs, np.full((3, 9), 1 / 9), list("abcdefghi"), 1.0, beside=learned
    ).plot()
    largest = np.concatenate(list(learned.values())).max(axis=0)
    assert set(display.shown_) == set(np.argsort(-largest)[:8])  # as many as there are colours
    for norm, lines in display.beside_.items():
        for m, line in zip(display.shown_, lines, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), learned[norm][:, m])
    solid, dashed = (lines[0] for lines in display.beside_.values())
    assert solid.get_color() == dashed.get_color()
    assert solid.get_linestyle() != dashed.get_linestyle()
    assert len({line.get_color() for line in display.beside_[1]}) == 8


def test_other_searches_and_pipelines():
    search = PathSearchCV(DiscriminantMKLClassifier(KERNELS), Cs=[0.1, 1], cv=2).fit(X, TWO)
    assert ValidationPathDisplay.from_estimator(search).ax_.get_xlabel() == "alpha"
    local = PathSearchCV(LocalizedMKLClassifier(KERNELS, n_init=1, tol=0.1), Cs=[1, 10], cv=2)
    pipeline = make_pipeline(StandardScaler(), local)
    pipeline.fit(X, TWO)
    assert len(ValidationPathDisplay.from_estimator(pipeline).lines_) == 1
    assert len(WeightsPathDisplay.from_estimator(pipeline).lines_) == 2
    with pytest.raises(ValueError, match=r"norm=1: the search has tried \[None\]"):
        WeightsPathDisplay.from_estimator(pipeline, norm=1)
    with pytest.raises(TypeError, match="Cs_"):
        ValidationPathDisplay.from_estimator(MKLClassifier(KERNELS).fit(X, TWO))
