"""Columns that a decision depends on: beside outputs computed anew, and what a linear function says
itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLRegressor,
    MKLRidgeCV,
    stack_views,
)
from kernelmosaic.inspection import feature_importance
from kernelmosaic.kernels import (
    Correlation,
    Gaussian,
    Laplacian,
    Linear,
    Polynomial,
    Ranked,
    Spectrum,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 6)) * [1, 2, 1, 1, 3, 1]
Y = X[:, 0] + 2 * np.tanh(X[:, 1]) + X[:, 3] * X[:, 4] / 3
VIEWS = {"a": [0, 1, 2], "b": [3, 4, 5]}
KERNELS = [
    Linear(),
    Polynomial(degree=2),
    Gaussian(),
    Laplacian(),
    Ranked(Gaussian()),
    Correlation(),
]


def by_hand(model, samples, n_repeats, seed):
    """The definition, with outputs computed anew for every column."""
    random = np.random.RandomState(seed)
    orders = [random.permutation(len(samples)) for _ in range(n_repeats)]
    out = getattr(model, "decision_function", model.predict)
    before, found = out(samples).reshape(len(samples), -1), []
    for j in range(samples.shape[1]):
        there, square = ~np.isnan(samples[:, j]), 0.0
        for order in orders:
            changed = samples.copy()
            changed[there, j] = samples[order[there[order]], j]
            square += np.mean((out(changed).reshape(before.shape) - before) ** 2) / n_repeats
        found.append(np.sqrt(square / 2))
    return np.array(found)


@pytest.mark.parametrize(
    ("normalize", "classes"), [(None, 2), ("trace", 3), ("diagonal", 2), ("centered", 2)]
)
def test_one_column_at_a_time(normalize, classes):
    kernels = [
        (f"{view}, {i}", kernel, own)
        for view, own in VIEWS.items()
        for i, kernel in enumerate(KERNELS)
    ]
    model = MKLClassifier(kernels, weights="uniform", normalize=normalize)
    model.fit(X, np.digitize(Y, np.quantile(Y, np.linspace(0, 1, classes + 1)[1:-1])))
    new = X[:25] + 0.1
    found = feature_importance(model, new, n_repeats=3, random_state=7)
    assert found.views == VIEWS
    np.testing.assert_allclose(found.importances, by_hand(model, new, 3, 7), rtol=1e-7)


@pytest.mark.parametrize(
    "model",
    [
        MKLRegressor([Gaussian()], C=10, approximation="nystroem", rank=20, random_state=0),
        MKLRidgeCV([Linear(), Laplacian()], scale=True),
        LocalizedMKLClassifier(
            [("a", Linear(), [0, 1, 2]), ("b", Linear(), [3, 4, 5])], tol=0.1, n_init=1
        ),
        DiscriminantMKLClassifier([Linear(), Gaussian()]),
    ],
    ids=["features", "ridge", "gates", "discriminants"],
)
def test_every_form_of_a_model(model):
    target = Y > 0 if isinstance(model, LocalizedMKLClassifier) else Y
    target = np.digitize(Y, [-1, 1]) if isinstance(model, DiscriminantMKLClassifier) else target
    found = feature_importance(model.fit(X, target), X, n_repeats=2, random_state=1)
    np.testing.assert_allclose(found.importances, by_hand(model, X, 2, 1), rtol=1e-6)


def test_a_column_of_strings_beside_numbers():
    letters = np.array(["".join(rng.choice(list("ACGT"), 12)) for _ in range(60)], dtype=object)
    table = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(dna=letters)
    kernels = [("numbers", Gaussian(), ["a", "b"]), ("dna", Spectrum(2), ["dna"])]
    model = MKLRegressor(kernels, weights="uniform", C=10).fit(table, Y)
    found = feature_importance(model, table, n_repeats=2, random_state=3)
    assert found.views == {"numbers": [0, 1], "dna": [2]}
    # The definition, with outputs computed anew.
    random = np.random.RandomState(3)
    orders = [random.permutation(60) for _ in range(2)]
    for j, name in enumerate(table):
        changes = [
            model.predict(table.assign(**{name: table[name].to_numpy()[order]})) for order in orders
        ]
        importance = np.sqrt(
            np.mean([(changed - model.predict(table)) ** 2 for changed in changes]) / 2
        )
        assert found.importances[j] == pytest.approx(importance, rel=1e-7)


@pytest.mark.parametrize("missing", ["neighbors", "zero"])
def test_samples_that_lack_a_view_keep_it_missing(missing):
    lacking = X.copy()
    lacking[::5, :3] = np.nan
    kernels = [("a", Gaussian(), VIEWS["a"]), ("b", Gaussian(), VIEWS["b"])]
    model = MKLRegressor(kernels, weights="uniform", C=10, missing=missing).fit(lacking, Y)
    # Neighbours that stand in for a view depend on the other one, which `by_hand` lets change:
    # whole samples then.
    new = lacking if missing == "zero" else lacking[~np.isnan(lacking[:, 0])]
    found = feature_importance(model, new, n_repeats=2, random_state=0)
    np.testing.assert_allclose(found.importances, by_hand(model, new, 2, 0), rtol=1e-7)
    assert np.all(feature_importance(model, lacking, random_state=0).importances > 0)


def test_a_linear_function_has_the_size_of_its_slopes():
    model = MKLRidgeCV([Linear()]).fit(X, X @ [1.0, 2.0, 0.0, -1.0, 0.5, 0.0])
    found = feature_importance(model, X, n_repeats=200, random_state=0)
    np.testing.assert_allclose(
        found.importances, np.abs([1.0, 2.0, 0, -1, 0.5, 0]) * X.std(axis=0), rtol=0.05, atol=0.02
    )


def test_errors_are_those_of_means_over_samples():
    model = MKLRidgeCV([Linear(), Gaussian()]).fit(X, Y)
    found = feature_importance(model, X, n_repeats=1, random_state=0)
    order = np.random.RandomState(0).permutation(60)
    changed = X.copy()
    changed[:, 1] = X[order, 1]
    squares = 0.5 * (model.predict(changed) - model.predict(X)) ** 2
    # By the jackknife.
    leave = np.array([np.sqrt(np.delete(squares, i).mean()) for i in range(60)])
    jackknife = np.sqrt(59 * leave.var())
    assert found.importances[1] == pytest.approx(np.sqrt(squares.mean()))
    assert found.errors[1] == pytest.approx(jackknife, rel=0.1)


def test_names_views_and_pipelines():
    frames = {name: pd.DataFrame(X[:, own], columns=["u", "v", "w"]) for name, own in VIEWS.items()}
    table, views = stack_views(frames)
    model = MKLRegressor([(name, Gaussian(), own) for name, own in views.items()], C=10).fit(
        table, Y
    )
    found = feature_importance(model, table, random_state=0)
    assert found.top("a", 1)[0][0] == "a__v"
    assert "b__w" in str(found)
    numbers = [(name, Gaussian(), own) for name, own in VIEWS.items()]
    pipeline = make_pipeline(StandardScaler(), MKLRegressor(numbers, C=10)).fit(table, Y)
    assert feature_importance(pipeline, table, random_state=0).top("a", 1)[0][0] == "a__v"


def test_an_estimator_that_is_not_fitted_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        feature_importance(MKLRegressor(), X)
    with pytest.raises(ValueError, match="n_repeats"):
        feature_importance(MKLRegressor().fit(X, Y), X, n_repeats=0)
