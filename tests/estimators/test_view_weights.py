"""``view_weights_``: the weights summed over the kernels of every view."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import kernelmosaic
from kernelmosaic import (
    BayesianMKLClassifier,
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedBayesianMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLClustering,
    MKLKernelPCA,
    MKLOneClass,
    MKLRegressor,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    PosteriorMKLClassifier,
    load,
    save,
    stack_views,
)
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, by_group, per_column

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = X[:, 0] + 0.3 * RNG.normal(size=40)
TWO, THREE = (Y > 0).astype(int), np.digitize(Y, [-0.5, 0.5])
GROUPS = by_group({"a": [0, 1], "b": [2, 3, 4]}, [Linear(), Gaussian(), Gaussian(factor=2)])
MODELS = {
    MKLClassifier: TWO,
    MKLClassifierCV: TWO,
    MKLRegressor: Y,
    MKLOneClass: None,
    BayesianMKLClassifier: TWO,
    BilinearMKLClassifier: THREE,
    DiscriminantMKLClassifier: TWO,
    LocalizedBayesianMKLClassifier: TWO,
    LocalizedMKLClassifier: TWO,
    PosteriorMKLClassifier: TWO,
    MKLRidgeCV: Y,
    MKLRidgeClassifierCV: THREE,
    MKLKernelPCA: None,
    MKLClustering: None,
}


def fitted(kind, kernels=GROUPS, **params):
    params |= {"Cs": [1.0], "norms": [1], "cv": 2} if kind is MKLClassifierCV else {}
    params |= (
        {"step": "lbfgs", "n_init": 1, "tol": 0.1} if kind is LocalizedMKLClassifier else {}
    )  # ends before `max_iter` here
    params |= {"n_init": 1, "tol": 1e-2} if kind is LocalizedBayesianMKLClassifier else {}
    return kind(kernels=kernels, **params).fit(X, MODELS[kind])


@pytest.mark.parametrize("kind", MODELS)
def test_weights_are_summed_per_view(kind):
    model = fitted(kind)
    assert list(model.view_weights_) == ["a", "b"]
    np.testing.assert_allclose(model.view_weights_["a"], model.weights_[..., :3].sum(axis=-1))
    np.testing.assert_allclose(model.view_weights_["b"], model.weights_[..., 3:].sum(axis=-1))


def test_every_estimator_with_weights_is_tried():
    kinds = [getattr(kernelmosaic, name) for name in kernelmosaic.estimators.__all__]
    here = {kind.__name__ for kind in MODELS}
    # Those that differ from one of the list in the targets alone.
    alike = {
        "LocalizedMKLRegressor",
        "LocalizedMKLOneClass",
        "MKLRegressorCV",
        "MKLSurvival",
        "MKLSurvivalCV",
    }
    with_kernels = {
        kind.__name__
        for kind in kinds
        if isinstance(kind, type) and "kernels" in signature(kind).parameters
    }
    assert with_kernels - alike == here


def test_classes_with_weights_of_their_own():
    model = MKLClassifier(GROUPS).fit(X, THREE)
    assert model.view_weights_["a"].shape == (3,)


def test_features_and_files(tmp_path):
    model = fitted(MKLRidgeCV, approximation="nystroem", rank=10, random_state=0)
    save(model, tmp_path / "m.skops")
    assert load(tmp_path / "m.skops").view_weights_ == model.view_weights_
    assert sum(model.view_weights_.values()) == pytest.approx(model.weights_.sum())


@pytest.mark.parametrize(
    ("kernels", "names"),
    [
        ([Linear(), Gaussian()], ["all columns"]),
        ([Linear()], ["linear"]),
        ([("one", Linear(), [0]), ("two", Gaussian(), [1, 2])], ["one", "two"]),
        (
            [
                ("rna:linear", Linear(), [0]),
                ("rna:gauss", Gaussian(), [0]),
                ("age:linear", Linear(), [1]),
            ],
            ["rna", "age"],
        ),
        # In several parts, one view is one view.
        ([("rna:linear", Linear(), [0]), ("rna:gauss", Gaussian(), [1, 2])], ["rna"]),
        ([("p", Linear(), [0, 1]), ("q", Gaussian(), [0, 1]), ("r", Linear(), [3])], ["0, 1", "r"]),
        ([("k", per_column(Linear()), [0, 2])], ["k[0]", "k[2]"]),
        (
            [
                ("gaussian(factor=1, width=1)", Gaussian(1.0), [0]),
                ("gaussian(factor=1, width=2)", Gaussian(2.0), [0]),
            ],
            ["0"],
        ),
    ],
)
def test_names_of_views(kernels, names):
    model = MKLRegressor(kernels, weights="uniform").fit(X, Y)
    assert list(model.view_weights_) == names


def test_views_that_were_stacked():
    Z, views = stack_views(
        rna=pd.DataFrame(X[:, :2], columns=["u", "v"]), age=pd.DataFrame(X[:, 2:3], columns=["y"])
    )
    kernels = [
        (f"{i}{view}", kernel, columns)
        for view, columns in views.items()
        for i, kernel in enumerate([Linear(), Gaussian()])
    ]
    assert list(MKLRegressor(kernels).fit(Z, Y).view_weights_) == ["rna", "age"]


def test_every_matrix_is_a_view():
    kernels = [("one", Precomputed(X @ X.T)), ("two", Precomputed(np.outer(Y, Y)))]
    model = MKLRegressor(kernels).fit(np.arange(40), Y)
    assert model.view_weights_ == dict(zip(["one", "two"], model.weights_, strict=True))


def test_an_estimator_that_is_not_fitted_has_none():
    with pytest.raises(NotFittedError):
        MKLRidgeCV().view_weights_  # noqa: B018
    assert not hasattr(MKLClassifier(), "view_weights_")
