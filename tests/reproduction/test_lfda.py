"""Local Fisher discriminant analysis beside the scatters written out pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from reproduction.lfda import LFDA


def problem(n=24, d=4, classes=3):
    rng = np.random.RandomState(0)
    y = np.arange(n) % classes
    y[:3] = 0
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + y[:, np.newaxis], y


def naive_scatters(X, y, n_neighbors):
    """The definitions of the paper, pair by pair."""
    n, d = X.shape
    within, between = np.zeros((d, d)), np.zeros((d, d))

    def reach(i):
        distances = sorted(np.linalg.norm(X[i] - X[k]) for k in range(n) if y[k] == y[i])
        return distances[min(n_neighbors, len(distances) - 1)]

    for i in range(n):
        for j in range(n):
            pair = 0.5 * np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] != y[j]:
                between += pair / n
                continue
            affinity = np.exp(-(np.linalg.norm(X[i] - X[j]) ** 2) / (reach(i) * reach(j)))
            size = np.sum(y == y[i])
            within += affinity / size * pair
            between += affinity * (1 / n - 1 / size) * pair
    return within, between


@pytest.mark.parametrize("n_neighbors", [2, 7, 50])
def test_the_projection_is_that_of_naive_scatters(n_neighbors):
    X, y = problem()
    model = LFDA(2, n_neighbors=n_neighbors, shrinkage=0.05).fit(X, y)
    within, between = naive_scatters(X, y, n_neighbors)
    within += 0.05 * np.trace(within) / 4 * np.eye(4)
    W = model.components_.T
    assert_allclose(W.T @ within @ W, np.eye(2), atol=1e-9)
    assert_allclose(between @ W, within @ W * model.eigenvalues_, rtol=1e-7, atol=1e-9)
    # No directions do better than the two of the largest eigenvalues.
    assert_allclose(
        model.eigenvalues_,
        np.sort(np.linalg.eigvals(np.linalg.solve(within, between)).real)[::-1][:2],
    )
    assert_allclose(model.transform(X), X @ W)


def test_wide_affinities_are_those_of_fisher():
    # If all pairs of a class count alike, the criterion is Fisher's own.
    X, y = problem(classes=2)
    model = LFDA(1, shrinkage=0.0)
    model._affinity = lambda X: np.ones((len(X), len(X)))
    direction = model.fit(X, y).components_[0]
    fisher = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, 0]
    cosine = direction @ fisher / np.linalg.norm(direction) / np.linalg.norm(fisher)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-9)


def test_a_class_of_two_clusters_is_not_drawn_together():
    # One class left and right of the other: its mean is the other's, which is all that Fisher's
    # criterion sees.
    rng = np.random.RandomState(0)
    y = np.arange(90) % 3
    X = np.column_stack(
        [np.choose(y, [-6.0, 0.0, 6.0]) + 0.5 * rng.standard_normal(90), rng.standard_normal(90)]
    )
    direction = LFDA(1).fit(X, y == 1).components_[0]
    assert abs(direction[0]) > 5 * abs(direction[1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 5}, "n_components=5: give at most the number of features, n_features=4"),
        ({"n_components": 0}, "n_components=0: give a whole number"),
        ({"n_neighbors": 1.5}, "n_neighbors=1.5: give a whole number"),
        ({"shrinkage": -1.0}, "shrinkage=-1.0: give a finite number of at least zero"),
    ],
)
def test_errors(parameters, message):
    X, y = problem()
    with pytest.raises(ValueError, match=message):
        LFDA(**parameters).fit(X, y)


def test_singular_scatters_and_single_classes():
    X, y = problem()
    with pytest.raises(ValueError, match="one class only"):
        LFDA().fit(X, np.zeros(len(y)))
    flat = np.column_stack([X, np.ones(len(X))])
    with pytest.raises(ValueError, match=r"shrinkage=0.0: .* singular; raise shrinkage"):
        LFDA(shrinkage=0.0).fit(flat, y)
    assert np.isfinite(LFDA().fit(flat, y).transform(flat)).all()
