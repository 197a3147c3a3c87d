"""The picture shows the components of the combined kernel, or the discriminant space."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, family
from kernelmosaic.plots import ProjectionDisplay

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    return DiscriminantMKLClassifier(family(Gaussian(), width=[1.0, 4.0])).fit(X, y), X, y


def test_linear_kernel_shows_principal_components():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier([Linear()], weights="uniform", normalize=None).fit(X, y > 0)
    display = ProjectionDisplay.from_estimator(model, X, y)
    centred = X - X.mean(axis=0)
    U, S, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(display.points), np.abs(U[:, :2] * S[:2]), atol=1e-6)
    np.testing.assert_allclose(display.shares, (S**2 / np.sum(S**2))[:2], rtol=1e-8)
    assert display.explained_share == pytest.approx(np.sum(S[:2] ** 2) / np.sum(S**2))
    assert len(display.ax_.collections) == 3
    assert "92.5 %" in display.ax_.get_xlabel()
    display.figure_.canvas.draw()


def test_combined_kernel_and_matrix_agree(fitted):
    import matplotlib.pyplot as plt

    model, X, y = fitted
    _, ax = plt.subplots()
    display = ProjectionDisplay.from_estimator(model, X, y, ax=ax)
    assert display.ax_ is ax
    K = model.kernel_matrix(X)
    n = len(K)
    Pi = np.eye(n) - 1.0 / n
    eigenvalues = np.linalg.eigvalsh(Pi @ K @ Pi)[::-1]
    assert display.explained_share == pytest.approx(
        eigenvalues[:2].sum() / eigenvalues.sum(), rel=1e-6
    )
    other = ProjectionDisplay.from_kernel_matrix(K, y)
    np.testing.assert_allclose(other.points, display.points)


def test_discriminant_space(fitted):
    model, X, y = fitted
    display = ProjectionDisplay.from_estimator(model, X, y, method="transform")
    np.testing.assert_allclose(display.points, model.transform(X))
    np.testing.assert_allclose(display.shares, model.explained_ratio_)
    assert "discriminant" in display.ax_.get_ylabel()
    # Two classes have one direction; the second axis shows nothing.
    binary = DiscriminantMKLClassifier([Linear()]).fit(X, y > 0)
    flat = ProjectionDisplay.from_estimator(binary, X, method="transform")
    assert np.all(flat.points[:, 1] == 0)
    assert flat.explained_share == pytest.approx(1.0)


def test_one_kernel_of_several_outputs(fitted):
    _, X, y = fitted
    model = MKLClassifier(family(Gaussian(), width=[1.0, 4.0])).fit(X, y)
    display = ProjectionDisplay.from_estimator(model, X, output=2)
    expected = ProjectionDisplay.from_kernel_matrix(model.kernel_matrix(X)[2])
    np.testing.assert_allclose(display.points, expected.points)


def test_errors(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match="method='umap'"):
        ProjectionDisplay.from_estimator(model, X, method="umap")
    with pytest.raises(TypeError, match="has no transform"):
        ProjectionDisplay.from_estimator(MKLClassifier().fit(X, y > 0), X, method="transform")
    with pytest.raises(NotFittedError):
        ProjectionDisplay.from_estimator(MKLClassifier(), X)
    with pytest.raises(ValueError, match="square"):
        ProjectionDisplay.from_kernel_matrix(np.ones((3, 2)))
