"""Every formulation of discriminant kernel learning against a matrix-fractional program, and
against each other."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference.criteria import least_squares_value, within_class_value
from tests.reference.discriminant import solve_matrix_fractional

from kernelmosaic.discriminant.learning import (
    DISCRIMINANT_SOLVERS,
    DiscriminantProblem,
    centered_traces,
    trace_penalties,
)
from kernelmosaic.discriminant.machine import Discriminant, center
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.factory import Parameters, make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions

EXACT = ("newton", "silp", "qcqp", "sdp")


def make_stack(n=20, classes=2, seed=0, widths=(0.5, 1.0, 3.0, 10.0)):
    rng = np.random.RandomState(seed)
    labels = rng.permutation(np.arange(n) % classes)
    X = rng.randn(n, 3)
    X[:, 0] += labels
    D = ((X[:, np.newaxis] - X) ** 2).sum(axis=2)
    stack = StoredStack(np.array([X @ X.T, *(np.exp(-D / width**2) for width in widths)]))
    return stack, labels


def make_problem(stack, labels, alpha):
    traces = centered_traces(stack, np.array([np.diag(K) for K in stack.matrices]))
    return DiscriminantProblem(
        stack, Discriminant(labels, alpha), LearnerOptions(SumNorm(), trace_penalties(traces))
    )


def learn(formulation, problem, tol=1e-7, max_iter=500, **tuning):
    penalties = np.sqrt(traces_of(problem))
    learner = DISCRIMINANT_SOLVERS[formulation](
        LearnerOptions(SumNorm(), penalties, tol, max_iter, **tuning)
    )
    return learner.learn(problem.stack, problem.machine)


def traces_of(problem):
    """Those of the kernels, infinite for one that is constant."""
    scale = problem.scale[int(problem.learns_alpha) :]
    return np.divide(1.0, scale, out=np.full(len(scale), np.inf), where=scale > 0)


def unit_trace(problem):
    """Centred matrices of trace one by loops' own arithmetic, the identity first where λ is
    learned."""
    n = problem.stack.n_samples
    Pi = np.eye(n) - np.full((n, n), 1.0 / n)
    Ns = [Pi @ K @ Pi / np.trace(Pi @ K @ Pi) for K in problem.stack.matrices]
    return [np.eye(n) / n, *Ns] if problem.learns_alpha else Ns


@pytest.mark.parametrize("formulation", EXACT)
@pytest.mark.parametrize(("classes", "alpha"), [(3, 2e-3), (2, 0.05), (2, None), (3, None)])
def test_formulations_reach_the_optimum_of_the_matrix_fractional_program(
    formulation, classes, alpha
):
    stack, labels = make_stack(classes=classes)
    problem = make_problem(stack, labels, alpha)
    value, shares = solve_matrix_fractional(
        unit_trace(problem), problem.machine.targets, alpha or 0.0
    )
    # The linear program's own tolerance ends column generation at about six digits.
    found = learn(formulation, problem, tol=1e-6 if formulation == "silp" else 1e-7)
    assert found.objective == pytest.approx(value, rel=1e-5 if formulation == "silp" else 1e-6)
    assert found.gap <= {"silp": 1e-6, "sdp": 2e-6}.get(formulation, 1e-7)
    first = int(alpha is None)
    np.testing.assert_allclose(found.weights * traces_of(problem), shares[first:], atol=5e-3)
    if alpha is None:
        assert found.solution.alpha * stack.n_samples == pytest.approx(shares[0], abs=5e-3)
    else:
        assert found.weights @ traces_of(problem) == pytest.approx(1.0)
        K = np.tensordot(found.weights, stack.matrices, 1)
        expected = least_squares_value(K, problem.machine.targets, alpha)
        assert problem.machine.objective_scale * found.objective == pytest.approx(
            expected, rel=1e-8
        )


class UpwardAtLast(SumNorm):
    """Turns directions of nearly no slope by as little as rounding might, so that they lead upward
    by a last digit."""

    n_turned = 0

    def newton_direction(self, theta, q, H):
        direction = super().newton_direction(theta, q, H)
        value = float(theta @ q)
        if abs(q @ direction) > 1e-10 * value:
            return direction
        self.n_turned += 1
        return direction - q * ((q @ direction + 3e-16 * value) / (q @ q))


@pytest.mark.parametrize("seed", [0, 1])  # the value falls by some last digits, and by none
def test_a_slope_lost_in_rounding_is_no_reason_to_stop(seed):
    stack, labels = make_stack(classes=3, seed=seed)
    problem = make_problem(stack, labels, None)
    expected = learn("newton", problem, tol=1e-9)
    norm = UpwardAtLast()
    options = LearnerOptions(norm, np.sqrt(traces_of(problem)), 1e-9, 500)
    found = DISCRIMINANT_SOLVERS["newton"](options).learn(stack, problem.machine)
    assert norm.n_turned == 1
    assert found.gap <= 1e-9
    assert found.objective == pytest.approx(expected.objective, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.05, None])
def test_approximate_program_lies_above_the_exact_one(alpha):
    stack, labels = make_stack(classes=3)
    exact, approximate = (
        learn(name, make_problem(stack, labels, alpha)) for name in ("newton", "sdp_approximate")
    )
    assert approximate.objective > 1.05 * exact.objective
    assert approximate.gap < 1e-5
    # Its weights are feasible for the exact problem, which can only be lower there.
    fixed = FixedWeights(approximate.weights).learn(
        stack, Discriminant(labels, approximate.solution.alpha)
    )
    assert exact.objective <= fixed.objective <= approximate.objective


def test_approximate_program_of_two_classes_is_exact():
    stack, labels = make_stack()
    exact, approximate = (
        learn(name, make_problem(stack, labels, 0.05)) for name in ("newton", "sdp_approximate")
    )
    assert approximate.objective == pytest.approx(exact.objective, rel=1e-6)


def test_kim_maximises_the_within_class_criterion():
    stack, labels = make_stack(n=24)
    n, alpha = stack.n_samples, 0.02
    options = LearnerOptions(SumNorm(), np.ones(stack.n_kernels))
    problem = DiscriminantProblem(stack, Discriminant(labels, n * alpha), options)
    found = learn("kim", problem)
    assert found.gap < 1e-4
    assert found.weights.sum() == pytest.approx(1.0)

    def value(theta):
        return within_class_value(np.tensordot(theta, stack.matrices, 1), labels, alpha)

    rng = np.random.RandomState(0)
    rivals = [*np.eye(stack.n_kernels), *rng.dirichlet(np.ones(stack.n_kernels), 200)]
    near = [0.98 * found.weights + 0.02 * rival for rival in rivals]
    assert value(found.weights) >= max(map(value, [*rivals, *near])) * (1 - 1e-6)
    assert found.weights == pytest.approx(learn("newton", problem, 1e-10).weights, abs=1e-3)


@pytest.mark.parametrize("alpha", [0.01, None])
def test_slopes_and_curvature_by_finite_differences(alpha):
    stack, labels = make_stack(classes=3)
    problem = make_problem(stack, labels, alpha)
    Ns, H, ridge = unit_trace(problem), problem.machine.targets, alpha or 0.0

    def value(s):
        M = ridge * np.eye(len(H)) + np.tensordot(s, Ns, 1)
        return np.sum(H * np.linalg.solve(M, H))

    s = problem.start()
    at = problem.evaluate(s)
    assert at.upper == pytest.approx(value(s), rel=1e-9)
    step, eye = 1e-4, np.eye(len(s))
    slopes = [(value(s + step * e) - value(s - step * e)) / (2 * step) for e in eye]
    np.testing.assert_allclose(-at.q, slopes, rtol=1e-4)
    curvature = [
        [
            (
                value(s + step * (e + f))
                - value(s + step * (e - f))
                - value(s - step * (e - f))
                + value(s - step * (e + f))
            )
            / (4 * step**2)
            for f in eye
        ]
        for e in eye
    ]
    np.testing.assert_allclose(problem.curvature(at), curvature, rtol=1e-3)


def test_bounds_hold_for_any_coefficients():
    stack, labels = make_stack(classes=3)
    problem = make_problem(stack, labels, 0.05)
    optimum = learn("newton", problem, 1e-10).objective
    rng = np.random.RandomState(0)
    for _ in range(20):
        assert (
            problem.guarantee(
                rng.randn(stack.n_samples, 3) + problem.machine.targets, problem.machine.targets
            )
            <= optimum
        )
        assert problem.evaluate(rng.dirichlet(np.ones(stack.n_kernels))).upper >= optimum


@pytest.mark.parametrize("formulation", EXACT)
def test_perfectly_correlated_kernels_share_what_one_of_them_gets(formulation):
    stack, labels = make_stack()
    twice = StoredStack(
        np.concatenate([stack.matrices, 3.0 * stack.matrices, np.ones((1, 20, 20))])
    )
    single, double = (
        learn(formulation, make_problem(b, labels, 0.05), 1e-6) for b in (stack, twice)
    )
    assert double.objective == pytest.approx(single.objective, rel=1e-5)
    assert double.weights[-1] == 0.0  # a constant kernel tells nothing apart
    merged = double.weights[:5] + 3.0 * double.weights[5:10]
    np.testing.assert_allclose(merged, single.weights, atol=2e-3)


@pytest.mark.parametrize("formulation", [*EXACT, "sdp_approximate"])
@pytest.mark.parametrize("alpha", [0.02, None])
def test_classes_of_one_sample(formulation, alpha):
    stack, labels = make_stack()
    labels = np.where(np.arange(20) == 3, 2, labels)
    found = learn(formulation, make_problem(stack, labels, alpha), 1e-6)
    assert found.gap < 1e-4
    assert np.all(np.isfinite(found.solution.beta))


def test_weights_do_not_depend_on_the_scale_of_a_kernel():
    stack, labels = make_stack()
    factors = np.array([1.0, 10.0, 0.1, 1e3, 1e-3])
    scaled = StoredStack(stack.matrices * factors[:, np.newaxis, np.newaxis])
    plain, other = (learn("newton", make_problem(b, labels, 0.05), 1e-9) for b in (stack, scaled))
    np.testing.assert_allclose(other.weights * factors, plain.weights, atol=1e-6)


def test_learned_regulariser_is_the_best_of_a_grid():
    stack, labels = make_stack(n=40)
    joint = learn("newton", make_problem(stack, labels, None), 1e-9)
    n = stack.n_samples
    values = []
    for share in (1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 0.8, 0.99, joint.solution.alpha * n):
        # λ = share/n leaves 1 − share of the trace to the kernels: Σ h'(λI + (1 − share) ΣsN)⁻¹h.
        ridge = share / n / (1 - share)
        fixed = learn("newton", make_problem(stack, labels, ridge), 1e-9)
        values.append(fixed.objective / (1 - share))
    assert joint.objective == pytest.approx(values[-1], rel=1e-6)
    assert joint.objective <= min(values) * (1 + 1e-8)


def test_given_weights_are_kept_and_solved_exactly():
    stack, labels = make_stack(classes=3)
    theta = np.array([0.5, 0.0, 2.0, 0.0, 1.0])
    problem = make_problem(stack, labels, 0.3)
    found = FixedWeights(theta).learn(stack, problem.machine)
    K = np.tensordot(theta, stack.matrices, 1)
    assert found.gap < 1e-10
    assert 0.3 * found.objective == pytest.approx(
        least_squares_value(K, problem.machine.targets, 0.3), rel=1e-9
    )
    np.testing.assert_allclose(
        found.solution.values, center(K.copy()) @ found.solution.beta, atol=1e-9
    )


def test_one_learner_of_given_weights_serves_one_machine_after_the_other():
    stack, labels = make_stack(classes=3)
    learner = FixedWeights(np.full(stack.n_kernels, 0.2))
    for machine in (Discriminant(labels, 0.3), Discriminant(labels[::-1], 0.3)):
        beta = learner.learn(stack, machine).solution.beta
        K = center(np.tensordot(learner.weights, stack.matrices, 1)) + 0.3 * np.eye(len(labels))
        np.testing.assert_allclose(beta, np.linalg.solve(K, machine.targets), atol=1e-10)


def test_newton_needs_fewer_factorisations_than_silp():
    stack, labels = make_stack(n=60, classes=4)
    newton, silp = (
        learn(name, make_problem(stack, labels, 5e-4), 1e-5) for name in ("newton", "silp")
    )
    assert newton.n_solves < silp.n_solves
    assert max(newton.gap, silp.gap) <= 1e-5


def test_silp_stops_where_the_linear_program_has_no_more_digits():
    stack, labels = make_stack()
    found = learn("silp", make_problem(stack, labels, 0.05), 1e-14, max_iter=100_000)
    assert 1e-14 < found.gap < 1e-5
    assert len(found.history) < 300


@pytest.mark.parametrize("alpha", [1e-6, 5e-4, None])
@pytest.mark.parametrize("classes", [2, 5])
def test_interior_points_agree_with_newton_on_nearly_alike_kernels(alpha, classes):
    stack, labels = make_stack(
        n=60, classes=classes, seed=3, widths=[0.01, 0.02, 1.0, 1.0, 1.001, 50.0, 100.0]
    )
    interior, newton = (
        learn(name, make_problem(stack, labels, alpha), 1e-6) for name in ("qcqp", "newton")
    )
    assert max(interior.gap, newton.gap) <= 1e-6
    assert interior.objective == pytest.approx(newton.objective, rel=2e-6)
    assert interior.n_solves < 40
    # Kernels that have no weight at the optimum have none here either, not what interior points
    # leave of a zero.
    assert np.count_nonzero(interior.weights) <= np.count_nonzero(newton.weights) + 1


def test_errors_say_what_would_do():
    stack, labels = make_stack()
    with pytest.raises(ValueError, match="solver='lp': choose one of 'newton', 'silp'"):
        make_learner(Parameters(solver="lp", solvers=DISCRIMINANT_SOLVERS), stack)
    with pytest.raises(ValueError, match="every kernel is constant"):
        make_problem(StoredStack(np.ones((2, 20, 20))), labels, 1.0)
    with pytest.raises(ValueError, match="kim"):
        learn("kim", make_problem(stack, labels, None))
    for name in ("sdp", "sdp_approximate", "kim"):
        with pytest.raises(MemoryError, match=f"solver='{name}'.*use solver='newton'"):
            learn(name, make_problem(stack, labels, 1.0), max_conic_entries=1000)
    with pytest.raises(ValueError, match="raise alpha"):
        learn(
            "newton",
            make_problem(
                StoredStack(np.ones((1, 20, 20)) + np.diag([1.0] + [0.0] * 19)), labels, 1e-300
            ),
        )
