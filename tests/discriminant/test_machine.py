"""Criteria of discriminant analysis against explicit features, and the identities between them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh, subspace_angles
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from tests.reference.criteria import (
    joint_ratio_value,
    least_squares_value,
    total_scatter_value,
    trace_value,
    within_class_value,
)

from kernelmosaic.discriminant.machine import (
    Discriminant,
    binary_targets,
    center,
    class_targets,
    discriminant_projection,
    within_from_least_squares,
)


def make_problem(n=30, classes=2, features=4, seed=0):
    rng = np.random.RandomState(seed)
    labels = rng.permutation(np.arange(n) % classes)
    labels[:3] = 0  # classes of different sizes
    X = rng.randn(n, features) + 0.8 * labels[:, np.newaxis] * rng.rand(features)
    return X, labels


def scatters(X, labels):
    """Total and between-class scatter (sums, not means) of explicit features."""
    centred = X - X.mean(axis=0)
    means = [X[labels == c].mean(axis=0) - X.mean(axis=0) for c in np.unique(labels)]
    between = sum(np.sum(labels == c) * np.outer(m, m) for c, m in enumerate(means))
    return centred.T @ centred, between


def test_binary_targets_give_the_difference_of_means():
    X, labels = make_problem()
    a = binary_targets(labels)
    np.testing.assert_allclose(X.T @ a, X[labels == 1].mean(0) - X[labels == 0].mean(0))
    assert abs(a.sum()) < 1e-14


def test_class_targets_are_scaled_one_versus_rest_targets():
    _, labels = make_problem(classes=4)
    H, n = class_targets(labels), len(labels)
    for c in range(4):
        n_c = np.sum(labels == c)
        one_versus_rest = binary_targets((labels == c).astype(int))
        np.testing.assert_allclose(H[:, c], (n - n_c) * np.sqrt(n_c / n) * one_versus_rest)


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 3.0])
def test_total_scatter_criterion_equals_explicit_features_and_completes_least_squares(alpha):
    X, labels = make_problem()
    a, K = binary_targets(labels), X @ X.T
    total, _ = scatters(X, labels)
    difference = X.T @ a
    explicit = difference @ np.linalg.solve(total + alpha * np.eye(X.shape[1]), difference)
    assert total_scatter_value(K, a, alpha) == pytest.approx(explicit, rel=1e-9)
    # F₃ = aᵀa − F₂
    assert least_squares_value(K, a, alpha) == pytest.approx(a @ a - explicit, rel=1e-9)


@pytest.mark.parametrize("classes", [3, 5])
def test_multi_class_criteria_agree(classes):
    X, labels = make_problem(classes=classes)
    alpha, H, K = 0.3, class_targets(labels), X @ X.T
    total, between = scatters(X, labels)
    explicit = np.trace(np.linalg.solve(total + alpha * np.eye(X.shape[1]), len(labels) * between))
    assert trace_value(K, H, alpha) == pytest.approx(explicit, rel=1e-7)
    # F₄ = F₅ and F₆ = Σ hᵀh − F₅
    assert total_scatter_value(K, H, alpha) == pytest.approx(explicit, rel=1e-9)
    assert least_squares_value(K, H, alpha) == pytest.approx(np.sum(H * H) - explicit, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 4])
def test_joint_ratio_equals_explicit_features_and_ranks_kernels_as_least_squares_does(classes):
    X, labels = make_problem(classes=classes)
    H = class_targets(labels)

    def explicit(X, tau):
        total, _ = scatters(X, labels)
        means = X.T @ H
        return np.trace(means.T @ np.linalg.solve(tau * total + np.eye(X.shape[1]), means))

    taus = [0.05, 0.3, 2.0]
    found = [joint_ratio_value(X @ X.T, H, tau) for tau in taus]
    np.testing.assert_allclose(found, [explicit(X, tau) for tau in taus], rtol=1e-9)
    assert found[0] > found[1] > found[2]
    # Of kernels, the one with the higher ratio has the lower F₉* = Σ hᵀ(I/τ + G̃)⁻¹h.
    parts = [X[:, :2] @ X[:, :2].T, X[:, 2:] @ X[:, 2:].T]
    ratios = [joint_ratio_value(K, H, 0.3) for K in parts]
    joint = [
        np.trace(H.T @ np.linalg.solve(np.eye(len(X)) / 0.3 + center(K.copy()), H)) for K in parts
    ]
    assert np.argmax(ratios) == np.argmin(joint)
    np.testing.assert_allclose(
        ratios, [(np.sum(H * H) - value / 0.3) / 0.3 for value in joint], rtol=1e-9
    )


def test_within_class_criterion_equals_explicit_features_and_relates_to_total_scatter():
    X, labels = make_problem(n=31)
    alpha, m, K = 0.05, len(labels), X @ X.T
    within = sum(np.cov(X[labels == c].T, bias=True) * np.mean(labels == c) for c in (0, 1))
    difference = X[labels == 1].mean(0) - X[labels == 0].mean(0)
    explicit = difference @ np.linalg.solve(within + alpha * np.eye(X.shape[1]), difference)
    first = within_class_value(K, labels, alpha)
    assert first == pytest.approx(explicit, rel=1e-8)
    counts = np.bincount(labels)
    g, c = first / m, counts[0] * counts[1] / m
    assert total_scatter_value(K, binary_targets(labels), m * alpha) == pytest.approx(
        g / (1 + c * g), rel=1e-8
    )
    least = least_squares_value(K, binary_targets(labels), m * alpha)
    assert within_from_least_squares(least, counts) == pytest.approx(explicit, rel=1e-8)


def test_one_factorisation_solves_every_target():
    X, labels = make_problem(classes=3)
    machine = Discriminant(labels, 0.2)
    K = center(X @ X.T)
    found = machine.system(K.copy(), 0.2)
    np.testing.assert_allclose(
        found.solve(machine.targets),
        np.linalg.solve(K + 0.2 * np.eye(len(K)), machine.targets),
        atol=1e-10,
    )
    right = machine.targets @ np.ones((3, 1)) + np.linspace(-1, 1, len(K))[:, np.newaxis]
    right -= right.mean()
    np.testing.assert_allclose(
        found.solve(right), np.linalg.solve(K + 0.2 * np.eye(len(K)), right), atol=1e-10
    )


def test_two_classes_are_the_least_squares_machine():
    X, labels = make_problem()
    machine = Discriminant(labels, 0.2)
    n = len(X)
    bordered = np.block(
        [[X @ X.T + 0.2 * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
    )
    expected = np.linalg.solve(bordered, np.append(binary_targets(labels), 0.0))[:n]
    found = machine.system(center(X @ X.T), 0.2).solve(machine.targets)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 4])
def test_projection_is_the_generalised_eigenvectors_of_the_scatters(classes):
    X, labels = make_problem(n=40, classes=classes)
    alpha, machine = 0.4, Discriminant(labels, 0.4)
    K = center(X @ X.T)
    beta = machine.system(K.copy(), alpha).solve(machine.targets)
    projection = discriminant_projection(machine.targets, beta, K @ beta)
    W = (X - X.mean(0)).T @ projection.coefficients
    assert W.shape == (X.shape[1], classes - 1)
    total, between = scatters(X, labels)
    regularised = total + alpha * np.eye(X.shape[1])
    np.testing.assert_allclose(W.T @ regularised @ W, np.eye(classes - 1), atol=1e-8)
    scale = 1.0 if classes > 2 else len(labels) / np.prod(np.bincount(labels)) / len(labels)
    expected = eigh(len(labels) * between, regularised, eigvals_only=True)[::-1][: classes - 1]
    np.testing.assert_allclose(projection.eigenvalues, scale * expected, rtol=1e-7)


def test_both_criteria_of_several_classes_project_to_one_space():
    X, labels = make_problem(n=40, classes=4)
    total, between = scatters(X, labels)
    regularised = total + 0.4 * np.eye(X.shape[1])
    joint = eigh(between, regularised)[1][:, -3:]  # (23): the trace
    single = np.linalg.solve(regularised, X.T @ class_targets(labels))  # (26): one ratio per class
    assert np.linalg.matrix_rank(single) == 3
    np.testing.assert_allclose(subspace_angles(joint, single), 0.0, atol=1e-7)


def test_linear_kernel_without_regulariser_is_linear_discriminant_analysis():
    X, labels = make_problem(n=60, classes=3)
    alpha, machine = 1e-9, Discriminant(labels, 1e-9)
    K = center(X @ X.T)
    beta = machine.system(K.copy(), alpha).solve(machine.targets)
    W = (X - X.mean(0)).T @ discriminant_projection(machine.targets, beta, K @ beta).coefficients
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(X, labels).scalings_[:, :2]
    for ours, other in zip(W.T, theirs.T, strict=True):
        assert abs(ours @ other) == pytest.approx(
            np.linalg.norm(ours) * np.linalg.norm(other), rel=1e-6
        )


def test_classes_with_holes_are_refused():
    with pytest.raises(ValueError, match="labels"):
        Discriminant(np.array([0, 2, 2]), 1.0)
