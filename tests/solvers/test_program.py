"""The program's own arithmetic: primal values, the best intercept, the nearest feasible point, the
gap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from tests.reference.programs import MAKERS, cases, make_case

from kernelmosaic.solvers import program
from kernelmosaic.solvers.program import Program, certify, relative_gap
from kernelmosaic.solvers.smo import solve_smo

often = settings(max_examples=60, derandomize=True, deadline=None)
#: Kinds whose coefficients have a sum to keep, so that there is an intercept to find.
SUMMED = [kind for kind in MAKERS if "free" not in kind]


def any_beta(case, seed):
    """Some β inside the box, whatever its sum."""
    p = case.program
    rng = np.random.RandomState(seed)
    return np.clip(3 * rng.standard_normal(p.n_samples), p.lower, p.upper)


@often
@given(cases(), st.integers(0, 1000), st.floats(-3, 3))
def test_primal_value_is_the_textbook_loss(case, seed, intercept):
    beta = any_beta(case, seed)
    values = case.exact @ beta
    found = case.program.primal_value(0.5 * beta @ values, values, intercept)
    assert found == pytest.approx(case.primal(beta, intercept), rel=1e-9, abs=1e-9)


@often
@given(cases(), st.integers(0, 1000), st.floats(-3, 3))
def test_worst_losses_are_the_textbook_losses_at_the_worse_end(case, seed, intercept):
    outputs = case.exact @ any_beta(case, seed) + intercept
    error = np.random.RandomState(seed + 1).uniform(0.0, 2.0, len(outputs))
    here = case.loss(outputs)
    # One sample's output is moved at a time, up and down.
    moves = (sign * np.diag(error) for sign in (1.0, -1.0))
    worst = here + np.sum(
        np.max([[case.loss(outputs + one) - here for one in both] for both in moves], axis=0)
    )
    found = case.program.worst_losses(outputs - intercept, intercept, error).sum()
    assert found == pytest.approx(worst, rel=1e-8, abs=1e-8)


@often
@given(cases(), st.integers(0, 1000))
def test_linear_value_is_the_dual_without_its_kernel(case, seed):
    beta = any_beta(case, seed)
    without = case.program.linear_value(beta) - 0.5 * beta @ case.exact @ beta
    assert without == pytest.approx(case.dual(beta), rel=1e-10, abs=1e-10)


@often
@given(cases(SUMMED), st.integers(0, 1000))
def test_best_intercept_minimises_the_primal(case, seed):
    beta = any_beta(case, seed)
    values = case.exact @ beta

    def primal(b):
        return case.primal(beta, b)

    reach = np.abs(values).max() + 5.0
    # A grid brackets the minimum, a scalar search refines it: the primal is convex in the
    # intercept.
    grid = np.linspace(-reach, reach, 101)
    best = grid[np.argmin([primal(b) for b in grid])]
    step = grid[1] - grid[0]
    search = minimize_scalar(
        primal, bounds=(best - step, best + step), method="bounded", options={"xatol": 1e-10}
    )
    b = case.program.best_intercept(values)
    assert np.isfinite(b)
    assert primal(b) <= min(search.fun, primal(best)) + 1e-9 * (1 + abs(search.fun))


@pytest.mark.parametrize("C", [0.1, 1e-3, 0.7])
@pytest.mark.parametrize("epsilon", [0.0, 0.05])
def test_best_intercept_is_the_middle_of_all_that_are_best(C, epsilon):
    # Both classes at their bound: every intercept that leaves each sample on its side is as good as
    # any other. In this order tenths and minus tenths sum to −3e-17 rather than to zero, which must
    # not hide that.
    y = np.random.RandomState(1).permutation(np.repeat([1.0, -1.0], 13))
    p = Program(y, np.minimum(0, C * y), np.maximum(0, C * y), np.zeros(26), epsilon=epsilon)
    values = np.random.RandomState(0).uniform(-0.4, 0.4, 26)
    z = y - values
    low, high = z[y < 0].max() + epsilon, z[y > 0].min() - epsilon
    assert p.best_intercept(values) == pytest.approx((low + high) / 2, abs=1e-12)


def test_best_intercept_is_the_end_of_a_range_with_one_end():
    # One-class with C = 1/n leaves no choice of β: every intercept up to that of the farthest
    # sample is best.
    for n in (3, 49, 100):
        values = np.random.RandomState(n).rand(n)
        p = Program(np.zeros(n), np.zeros(n), np.full(n, 1 / n), np.zeros(n), total=1.0)
        assert p.best_intercept(values) == pytest.approx(-values.max(), abs=1e-12)
    # One class alone: f ≥ 1 is all it asks.
    p = Program(np.ones(4), np.zeros(4), np.ones(4), np.zeros(4))
    assert p.best_intercept(np.array([0.3, 0.0, 0.1, -0.2])) == pytest.approx(1.2, abs=1e-12)
    # Nobody may move: any intercept will do, but it must be a number.
    assert np.isfinite(
        Program(np.ones(3), np.zeros(3), np.zeros(3), np.zeros(3)).best_intercept(np.zeros(3))
    )


@pytest.mark.parametrize("total", [-5.0, 0.0, 7.0])
def test_best_intercept_of_least_squares_is_the_mean_residual(total):
    rng = np.random.RandomState(1)
    t, values, ridge, inf = rng.randn(9), rng.randn(9), 0.1 + rng.rand(9), np.full(9, np.inf)
    expected = (((t - values) / ridge).sum() - total) / (1 / ridge).sum()
    assert Program(t, -inf, inf, ridge, total=total).best_intercept(values) == pytest.approx(
        expected, rel=1e-10
    )


def test_without_a_sum_there_is_no_intercept():
    case = make_case("svm free", 8, 1.0, "wide", 0)
    assert case.program.best_intercept(np.arange(8.0)) == 0.0


@often
@given(cases(), st.integers(0, 1000), st.floats(-2, 2))
def test_feasible_is_the_nearest_point(case, seed, size):
    conic = pytest.importorskip("tests.reference.conic")
    p = case.program
    point = 10.0**size * np.random.RandomState(seed).standard_normal(p.n_samples)
    found = p.feasible(point)
    assert np.all((found >= p.lower) & (found <= p.upper))
    if p.total is not None:
        assert found.sum() == pytest.approx(p.total, abs=1e-10 * max(1.0, np.abs(found).sum()))
    # The nearest point maximises ⟨point, β⟩ − ½‖β‖² over the same set.
    nearest = replace(p, target=point, ridge=np.ones(p.n_samples), epsilon=0.0)
    _, expected = conic.solve_program_conic(np.zeros((p.n_samples,) * 2), nearest)
    distance = np.linalg.norm(found - point)
    assert distance <= np.linalg.norm(expected - point) + 1e-6 * (1 + distance)
    np.testing.assert_allclose(found, expected, atol=1e-3 * (1 + np.abs(point).max()))


def test_feasible_keeps_the_sum_from_far_away():
    p = Program(np.zeros(2), np.array([0.0, -np.pi]), np.array([4.0, 0.0]), np.zeros(2))
    found = p.feasible(np.array([1e9, -1e9]))  # where π is known to seven digits only
    np.testing.assert_allclose(found, [np.pi, -np.pi], rtol=1e-7)
    assert found.sum() == pytest.approx(0.0, abs=1e-12)


def test_feasible_leaves_a_feasible_point_alone():
    case = make_case("svr", 12, 2.0, "wide", 3)
    point = case.program.feasible(np.random.RandomState(0).randn(12))
    np.testing.assert_allclose(case.program.feasible(point), point, atol=1e-14)


@pytest.mark.parametrize("total", [3.1, -0.1])
def test_a_total_out_of_reach_is_refused(total):
    p = Program(np.zeros(3), np.zeros(3), np.ones(3), np.zeros(3), total=total)
    with pytest.raises(ValueError, match="No β is feasible"):
        p.feasible(np.zeros(3))


def test_relative_gap():
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(2.0, 1.0) == 0.5
    assert relative_gap(-1.0, -2.0) == 0.5
    assert relative_gap(1.0, 0.0) == 1.0
    # Rounding may put the dual a hair above the primal, but a gap is never negative.
    assert relative_gap(1.0, 1.0 + 1e-16) == 0.0
    assert relative_gap(1e-9, -1e-9, noise=1e-8) == 0.0
    assert relative_gap(1e-9, -1e-7, noise=1e-8) > 1.0


def test_certify_puts_the_pieces_together():
    case = make_case("svm", 20, 1.0, "wide", 5)
    beta = case.program.feasible(any_beta(case, 0))
    values = case.exact @ beta
    solution = certify(case.program, beta, values, 7)
    primal = case.primal(beta, solution.intercept)
    assert solution.objective == pytest.approx(case.dual(beta), rel=1e-12)
    assert solution.gap == pytest.approx(
        (primal - case.dual(beta)) / max(abs(primal), abs(case.dual(beta))), rel=1e-9
    )
    assert solution.n_iter == 7


def a_large_program(kind, n=30_000):
    rng = np.random.RandomState(1)
    t = np.sign(rng.standard_normal(n))
    sample_C = 3.0 * rng.rand(n) if "weighted" in kind else np.ones(n)
    lower, upper, ridge = (
        np.where(t > 0, 0.0, -sample_C),
        np.where(t > 0, sample_C, 0.0),
        np.zeros(n),
    )
    if "tube" in kind:
        ridge = rng.rand(n) if "ridge" in kind else ridge
        return Program(rng.standard_normal(n), -sample_C, sample_C, ridge, epsilon=0.1)
    if "one class" in kind:
        return Program(np.zeros(n), np.zeros(n), np.full(n, 1.0 / (0.3 * n)), ridge, total=1.0)
    if "ridge" in kind:
        return Program(t, lower, upper, rng.rand(n))
    if "unbounded" in kind:
        return Program(
            t, np.where(t > 0, 0.0, -np.inf), np.where(t > 0, np.inf, 0.0), np.full(n, 0.5)
        )
    return Program(t, lower, upper, ridge)


@pytest.mark.parametrize(
    "kind",
    [
        "classes",
        "classes weighted",
        "tube",
        "tube weighted",
        "one class",
        "ridge",
        "ridge tube",
        "unbounded",
    ],
)
@pytest.mark.parametrize("outputs", ["spread", "tied", "all equal", "far off", "very far off"])
def test_the_best_intercept_of_many_samples_is_that_of_the_few_it_depends_on(
    kind, outputs, monkeypatch
):
    many = a_large_program(kind)
    values = 2.0 * np.random.RandomState(2).standard_normal(many.n_samples)
    shift = {"far off": 50.0, "very far off": -1e6}.get(outputs, 0.0)
    values = {"tied": np.round(values), "all equal": 0.0 * values}.get(outputs, values) + shift
    z = many.target - values
    undecided = many._undecided(z, None)
    assert len(undecided.z) == undecided.program.n_samples
    assert len(undecided.z) < many.n_samples or outputs in ("all equal", "tied")
    interval, best = many.optimal_intercepts(values), many.best_intercept(values)
    guesses = undecided.reference + np.array([0.0, 0.3, -0.3])
    from_guesses = [many.optimal_intercepts(values, near) for near in guesses]
    # All samples at once.
    monkeypatch.setattr(program, "MANY_SAMPLES", np.inf)
    exact = many.optimal_intercepts(values)
    np.testing.assert_allclose([interval, *from_guesses], [exact] * 4, rtol=1e-9, atol=1e-12)
    ends = [end for end in exact if np.isfinite(end)] or [0.0]
    np.testing.assert_allclose(best, np.mean(ends), rtol=1e-9, atol=1e-12)


def test_a_thinned_program_is_worth_as_much_as_one_of_repeated_samples():
    rng = np.random.RandomState(0)
    Z = rng.standard_normal((40, 5))
    t = np.sign(Z[:, 0] + 0.5 * rng.standard_normal(40))
    for slack in (np.zeros(120), np.full(120, 0.3)):
        many = Program(
            np.tile(t, 3), np.tile(np.minimum(t, 0.0), 3), np.tile(np.maximum(t, 0.0), 3), slack
        )
        whole = solve_smo(np.tile(Z @ Z.T, (3, 3)), many, tol=1e-10)
        few = solve_smo(Z @ Z.T, many.subsampled(np.arange(40)), tol=1e-10)
        assert few.objective == pytest.approx(whole.objective, rel=1e-8)
        np.testing.assert_allclose(few.values, whole.values[:40], atol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize("kind", SUMMED)
def test_the_certificate_is_the_same_where_vectors_are_tensors(kind):
    pytest.importorskip("torch", reason="torch is not installed")
    from kernelmosaic.backend import torch_backend

    case, backend = make_case(kind, 80, 1.0, "narrow", 3), torch_backend("cpu")
    p = case.program
    if not p.has_losses:
        pytest.skip("its primal wants arrays of this process")
    beta = p.feasible(any_beta(case, 1))
    values = case.exact @ beta
    here = certify(p, beta, values, 0)
    there = certify(p.placed(backend), backend.asarray(beta), backend.asarray(values), 0)
    assert isinstance(there.beta, np.ndarray)
    assert there.intercept == pytest.approx(here.intercept, rel=1e-12, abs=1e-12)
    assert there.objective == pytest.approx(here.objective, rel=1e-12, abs=1e-12)
    assert there.gap == pytest.approx(here.gap, rel=1e-9)


def test_coefficients_at_a_bound_go_on_at_the_new_one():
    y = np.array([1.0, 1.0, -1.0, -1.0])

    def bounded(C):
        return Program(y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0), np.zeros(4))

    moved = bounded(5.0).continued(np.array([2.0, 0.5, -2.0, -0.5]), bounded(2.0))
    np.testing.assert_array_equal(moved, [5.0, 0.5, -5.0, -0.5])


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_slopes_are_those_of_the_objective(epsilon):
    rng = np.random.default_rng(0)
    n, size = 12, 1e-6
    Z, target = rng.normal(size=(n, 4)), rng.normal(size=n)
    K, ridge = Z @ Z.T, rng.uniform(0.0, 1.0, n)
    program = Program(target, np.full(n, -1.0), np.full(n, 1.0), ridge, epsilon, None)
    beta = np.clip(rng.normal(size=n), -1.0, 1.0)
    beta[:4] = -1.0, 1.0, 0.0, 0.0

    def value(at):
        return target @ at - epsilon * np.abs(at).sum() - 0.5 * at @ K @ at - 0.5 * ridge @ at**2

    rising, falling = program.slopes(beta, target - K @ beta - ridge * beta)
    for i, step in enumerate(size * np.eye(n)):
        rise, fall = (
            (value(beta + step) - value(beta)) / size,
            (value(beta) - value(beta - step)) / size,
        )
        assert rising[i] == (-np.inf if beta[i] == 1.0 else pytest.approx(rise, abs=1e-4))
        assert falling[i] == (np.inf if beta[i] == -1.0 else pytest.approx(fall, abs=1e-4))
    free = program.free(beta)
    np.testing.assert_array_equal(
        free, [i for i in range(n) if -1 < beta[i] < 1 and (beta[i] or not epsilon)]
    )
    lower, upper = program.sign_limits(free, beta[free])
    np.testing.assert_array_equal(
        lower, [0.0 if epsilon and one > 0 else -1.0 for one in beta[free]]
    )
    np.testing.assert_array_equal(
        upper, [0.0 if epsilon and one < 0 else 1.0 for one in beta[free]]
    )
