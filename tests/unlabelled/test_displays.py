"""Similarity of views, embedding and eigenvalues: what the pictures show is what the model has."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import MKLClassifier, MKLClustering, MKLKernelPCA
from kernelmosaic.kernels import Gaussian
from kernelmosaic.plots import EigenvaluesDisplay, EmbeddingDisplay, ViewSimilarityDisplay

plt = pytest.importorskip("matplotlib.pyplot")
RNG = np.random.RandomState(0)
GROUP = np.arange(60) % 3
X = np.hstack(
    [
        4 * np.eye(3)[GROUP] + RNG.randn(60, 3),
        3 * RNG.randn(3, 2)[GROUP] + RNG.randn(60, 2),
        RNG.randn(60, 2),
    ]
)
X[::6, 3:5] = np.nan
KERNELS = [("a", Gaussian(), [0, 1, 2]), ("b", Gaussian(), [3, 4]), ("noise", Gaussian(), [5, 6])]
pytestmark = pytest.mark.filterwarnings("ignore:.*left out:UserWarning")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return MKLClustering(3, KERNELS, random_state=0).fit(X)


def test_similarity_has_stars_and_brackets(model):
    display = ViewSimilarityDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.image_.get_array(), model.similarity_)
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["a", "b", "(noise)"]
    starred = {text.get_position() for text in display.ax_.texts if text.get_text().endswith("*")}
    assert starred == {(0, 1), (1, 0)}


def test_the_embedding_is_coloured_by_cluster_or_target(model):
    display = EmbeddingDisplay.from_estimator(model, X, components=(1, 0))
    np.testing.assert_array_equal(display.points, model.embed(X)[:, [1, 0]])
    np.testing.assert_array_equal(display.labels, model.predict(X))
    np.testing.assert_array_equal(display.lacking, np.arange(60) % 6 == 0)
    drawn = {tuple(point) for one in display.ax_.collections for point in one.get_offsets()}
    assert drawn == {tuple(point) for point in display.points}
    hollow = {
        tuple(p)
        for one in display.ax_.collections
        if len(one.get_facecolors()) == 0
        for p in one.get_offsets()
    }
    assert hollow == {tuple(point) for point in display.points[::6]}
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["0", "1", "2"]
    by_target = EmbeddingDisplay.from_estimator(model, X, np.where(GROUP > 1, "yes", "no"))
    assert [text.get_text() for text in by_target.ax_.get_legend().get_texts()] == ["no", "yes"]


def test_numbers_have_a_colour_bar_and_components_their_shares():
    components = make_pipeline(StandardScaler(), MKLKernelPCA(KERNELS, weights="equal")).fit(X)
    display = EmbeddingDisplay.from_estimator(components, X, X[:, 0])
    np.testing.assert_allclose(display.points, components.transform(X))
    np.testing.assert_array_equal(display.ax_.collections[0].get_array(), X[:, 0])
    assert len(display.ax_.collections[1].get_offsets()) == 10
    assert display.ax_.get_xlabel() == f"component 1 ({components[-1].explained_[0]:.1%})"
    assert EmbeddingDisplay.from_estimator(components, X).ax_.get_legend() is None


def test_eigenvalues_from_the_largest(model):
    display = EigenvaluesDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.line_.get_ydata(), model.eigenvalues_)
    graph = MKLClustering(3, KERNELS, embedding="graph", random_state=0).fit(X)
    assert (
        EigenvaluesDisplay.from_estimator(graph).ax_.get_ylabel() == "eigenvalue of the random walk"
    )


def test_other_models_are_refused_by_name():
    other = MKLClassifier().fit(X[:, :3], GROUP > 0)
    for draw in (ViewSimilarityDisplay.from_estimator, EigenvaluesDisplay.from_estimator):
        with pytest.raises(
            TypeError, match=r"MKLClassifier has no .*MKLKernelPCA and MKLClustering"
        ):
            draw(other)
    with pytest.raises(TypeError, match="EmbeddingDisplay shows MKLKernelPCA"):
        EmbeddingDisplay.from_estimator(other, X[:, :3])


def test_a_list_of_tables_is_embedded_as_it_was_fitted():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(40, 3)), rng.normal(size=(40, 2))]
    model = MKLKernelPCA(weights="equal").fit(views)
    display = EmbeddingDisplay.from_estimator(model, views)
    points = display.ax_.collections[0].get_offsets()
    np.testing.assert_allclose(points, model.embedding_, atol=1e-8)
