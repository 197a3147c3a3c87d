"""The least-squares problems of discriminant analysis in features and in matrices, against plain
linear algebra."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.discriminant.learning import (
    DISCRIMINANT_SOLVERS,
    DiscriminantProblem,
    centered_traces,
    ridge_solver,
    solution_of_features,
    solve_in_features,
    trace_penalties,
)
from kernelmosaic.discriminant.machine import Discriminant
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.solvers.least_squares import FeatureForm, FeatureLeastSquares, MatrixLeastSquares

N, WIDTHS = 50, (4, 1, 7)
THETA = np.array([0.7, 0.0, 0.2])


def make_case(classes=3, seed=0, shift=1.0):
    """Features far from centred, their kernels, and a machine."""
    rng = np.random.RandomState(seed)
    labels = rng.permutation(np.arange(N) % classes)
    Zs = [rng.standard_normal((N, r)) * 10.0 ** rng.uniform(-1, 0, r) + shift for r in WIDTHS]
    Zs[0][:, 0] += labels
    return Zs, Discriminant(labels, 0.3)


def stacks(Zs):
    return StoredFeatures(Zs), StoredStack(np.array([Z @ Z.T for Z in Zs]))


@pytest.mark.parametrize("form", ["features", "matrices"])
@pytest.mark.parametrize("alpha", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_solutions_by_plain_algebra(form, alpha, classes):
    Zs, machine = make_case(classes)
    found = ridge_solver(stacks(Zs)[form == "matrices"], machine)(THETA, alpha)
    Pi = np.eye(N) - 1.0 / N
    Gs = [Pi @ Z @ Z.T @ Pi for Z in Zs]
    M = np.tensordot(THETA, Gs, 1) + alpha * np.eye(N)
    beta = np.linalg.solve(M, machine.targets)
    np.testing.assert_allclose(found.beta, beta, atol=1e-9 * np.abs(beta).max())
    np.testing.assert_allclose(found.values, machine.targets - alpha * beta, atol=1e-9)
    np.testing.assert_allclose(found.beta.sum(axis=0), 0.0, atol=1e-9 * np.abs(beta).max())
    assert found.value == pytest.approx(np.sum(machine.targets * beta), rel=1e-10)
    assert found.dual == pytest.approx(found.value, rel=1e-9)
    assert found.alpha == alpha
    np.testing.assert_allclose(found.forms, [np.sum(beta * (G @ beta)) for G in Gs], rtol=1e-7)
    for identity in (False, True):
        V = [np.eye(N) @ beta] * identity + [G @ beta for G in Gs]
        expected = np.array([[np.sum(v * np.linalg.solve(M, u)) for u in V] for v in V])
        size = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(
            found.responses(identity) / np.outer(size, size),
            expected / np.outer(size, size),
            atol=1e-8,
        )


def test_any_coefficients_have_the_bound_of_their_forms():
    Zs, machine = make_case()
    beta = np.random.RandomState(1).standard_normal((N, 3)) + machine.targets
    centred = beta - beta.mean(axis=0)
    gain = np.sum(machine.targets * centred)
    largest = max(np.sum((Z.T @ centred) ** 2) for Z in Zs)
    for stack in stacks(Zs):
        problem = DiscriminantProblem(stack, machine, LearnerOptions(SumNorm(), np.ones(3)))
        bound = gain**2 / (0.3 * np.sum(centred**2) + largest)
        assert problem.guarantee(beta, machine.targets) == pytest.approx(bound, rel=1e-10)


def test_values_bound_the_optimum_from_above_wherever_they_are_taken():
    Zs, machine = make_case()
    form = FeatureForm.of_centred(StoredFeatures(Zs), machine.targets)
    system, best = form.at(THETA, 0.3), solve_in_features(form, THETA, 0.3)
    w = system.root[:-1, np.newaxis] * best.products[system.used]
    rng = np.random.RandomState(0)
    for size in (1e-3, 0.1, 1.0):
        there = solution_of_features(form, system, THETA, w + size * rng.standard_normal(w.shape))
        assert there.value > best.value
        # How far apart the problem and its dual are, which is what refining looks at.
        dual = (
            2 * np.sum(machine.targets * there.beta)
            - 0.3 * np.sum(there.beta**2)
            - THETA @ there.forms
        )
        assert there.value - dual == pytest.approx(np.sum(there.missing**2), rel=1e-8)


def test_what_rounding_takes_is_given_back():
    # Means ten thousand times the deviations: products taken as they come are wrong by more than a
    # tenth of λ.
    Zs, machine = make_case(shift=1e4)
    centred = [Z - Z.mean(axis=0) for Z in Zs]
    alpha = 1e-7
    form = FeatureForm.of_centred(StoredFeatures(Zs), machine.targets)
    assert np.abs(form.normal - np.hstack(centred).T @ np.hstack(centred)).max() > 0.1 * alpha
    found, exact = (
        solve_in_features(form, THETA, alpha),
        ridge_solver(StoredFeatures(centred), machine)(THETA, alpha),
    )
    assert found.value == pytest.approx(exact.value, rel=1e-9)
    system = form.at(THETA, alpha)
    w = system.factor.solve(system.root[:-1, np.newaxis] * form.right[system.used])
    crude = solution_of_features(form, system, THETA, w)
    assert np.linalg.norm(found.missing) < 1e-3 * np.linalg.norm(crude.missing)


def test_constant_features_and_kernels_are_left_out():
    Zs, machine = make_case()
    plain = ridge_solver(StoredFeatures(Zs), machine)(THETA, 1e-9)
    Zs[0] = np.column_stack([Zs[0], np.full(N, 1e3)])
    found = ridge_solver(StoredFeatures([*Zs, np.ones((N, 2))]), machine)(
        np.append(THETA, 5.0), 1e-9
    )
    assert found.value == pytest.approx(plain.value, rel=1e-6)
    assert (
        found.forms[-1] <= 1e-10 * found.forms[0]
    )  # rounding of sums, which depends on their order


def test_the_smaller_matrix_is_chosen():
    Zs, machine = make_case()
    wide = [np.hstack([Z] * 5) for Z in Zs]
    matrices = StoredStack(np.array([Z @ Z.T for Z in Zs]))
    for stack, system in (
        (StoredFeatures(Zs), FeatureLeastSquares),
        (StoredFeatures(wide), MatrixLeastSquares),
        (matrices, MatrixLeastSquares),
    ):
        assert type(ridge_solver(stack, machine)(THETA, 0.3).system) is system


@pytest.mark.parametrize("formulation", ["newton", "silp", "qcqp"])
@pytest.mark.parametrize("alpha", [5e-4, None])
def test_learners_do_not_tell_features_from_matrices(formulation, alpha):
    Zs, machine = make_case()
    machine = Discriminant(machine.labels, alpha)
    learned = []
    for stack in (StoredFeatures(Zs), StoredStack(np.array([Z @ Z.T for Z in Zs]))):
        traces = centered_traces(stack, np.array([np.sum(Z * Z, axis=1) for Z in Zs]))
        np.testing.assert_allclose(
            traces, [np.sum((Z - Z.mean(axis=0)) ** 2) for Z in Zs], rtol=1e-9
        )
        learner = DISCRIMINANT_SOLVERS[formulation](
            LearnerOptions(SumNorm(), trace_penalties(traces), 1e-6, 500)
        )
        learned.append(learner.learn(stack, machine))
    features, matrices = learned
    assert features.gap <= 1e-6
    assert features.objective == pytest.approx(matrices.objective, rel=1e-8)
    np.testing.assert_allclose(features.weights, matrices.weights, atol=1e-6)
