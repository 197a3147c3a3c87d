"""The picture shows what the search found."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.model_selection import ResponseSurfaceSearchCV
from kernelmosaic.plots import ResponseSurfaceDisplay

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rmkl():
    X, y = make_gaussians(n_components=3, n_samples=80, random_state=0)
    return ResponseSurfaceSearchCV(
        MKLClassifier([Linear(), Polynomial(), Gaussian()]), cv=2, max_iter=3
    ).fit(X, y)


def test_two_penalties(rmkl):
    display = ResponseSurfaceDisplay.from_search(rmkl)
    ax = display.ax_
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_xlabel() == r"$d_{\mathrm{polynomial}}$"
    assert ax.get_ylabel() == r"$d_{\mathrm{gaussian}}$"
    np.testing.assert_allclose(ax.get_xlim(), (0.1, 10.0))
    np.testing.assert_allclose(display.best, rmkl.best_params_["penalties"][1:])
    np.testing.assert_allclose(np.log10(display.points), rmkl.design_.points, atol=1e-12)
    # the map is the surface plus one, an error then, with rows along y
    i, k = 20, 70
    z = np.log10([display.x[k], display.y[i]])
    assert display.response[i, k] == pytest.approx(1 + rmkl.surface_.predict(z)[0])
    star = ax.collections[-1].get_offsets()
    np.testing.assert_allclose(star, [display.best])
    display.figure_.canvas.draw()


def test_chosen_pair_on_given_axes():
    import matplotlib.pyplot as plt

    X, y = make_classification(60, random_state=0)
    model = SVC(kernel="poly", coef0=1.0, gamma=0.05)
    search = ResponseSurfaceSearchCV(
        model, on=["C", "gamma", "coef0"], cv=2, max_iter=2, scoring="roc_auc"
    ).fit(X, y)
    _, ax = plt.subplots()
    display = ResponseSurfaceDisplay.from_estimator(search, ("coef0", 0), ax=ax, grid_resolution=11)
    assert display.ax_ is ax
    assert display.labels == ("coef0", "C")
    assert display.response_name == "minus the fitted score"
    z = [np.log10(display.y[2]), np.log10(search.best_params_["gamma"]), np.log10(display.x[7])]
    assert display.response[2, 7] == pytest.approx(search.surface_.predict(z)[0])
    with pytest.raises(ValueError, match="3 factors"):
        ResponseSurfaceDisplay.from_search(search)
    for wrong in (("C", "C"), ("C", 7), ("C",), ("C", "nu")):
        with pytest.raises(ValueError, match="factors="):
            ResponseSurfaceDisplay.from_search(search, wrong)


def test_flat_surface_is_drawn():
    X = np.ones((20, 1))
    search = ResponseSurfaceSearchCV(Ridge(tol=1e-3), on=["alpha", "tol"], cv=2).fit(
        X, np.arange(20.0) % 2
    )
    ResponseSurfaceDisplay.from_search(search).figure_.canvas.draw()


def test_unfitted_search_is_refused():
    with pytest.raises(NotFittedError):
        ResponseSurfaceDisplay.from_search(ResponseSurfaceSearchCV(LogisticRegression(), on=["C"]))
