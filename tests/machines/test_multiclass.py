"""The joint machines against conic programs, the binary machine, an independent linear solver, and
themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.svm import LinearSVC

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions, MulticlassProblem
from kernelmosaic.machines.base import CrammerSinger, PairwiseSlack
from kernelmosaic.solvers._numba_multiclass import solve_sample
from kernelmosaic.solvers.interior_point import solve_interior
from kernelmosaic.solvers.multiclass import ClassMatrices, solve_multiclass
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import solve_smo
from kernelmosaic.solvers.tuning import SolverOptions

MACHINES = [CrammerSinger, PairwiseSlack]


def make_problem(seed, n=30, k=3, dimension=4):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    X = rng.normal(size=(n, dimension)) + 1.2 * rng.normal(size=(k, dimension))[y]
    width = np.median(((X[:, None] - X) ** 2).sum(-1))
    return X, y, np.exp(-((X[:, None] - X) ** 2).sum(-1) / width)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("k", "C"), [(3, 0.5), (4, 1.0), (6, 10.0)])
def test_equals_the_conic_program(machine, k, C):
    joint = pytest.importorskip("tests.reference.joint")
    _, y, K = make_problem(k, k=k)
    rng = np.random.default_rng(0)
    weight, margins = rng.uniform(0.2, 2.0, len(y)), rng.uniform(0.0, 2.0, (len(y), k))
    for options in ({}, {"sample_weight": weight, "margins": margins}):
        one = machine(y, C, **options)
        found = one.solve(K, tol=1e-9)
        p = one.program
        assert found.gap <= 1e-9
        assert found.objective == pytest.approx(
            joint.solve_joint_conic(K, y, k, p.sample_C, p.margins, p.pairwise), rel=1e-6
        )
        assert_allclose(found.beta.sum(axis=1), 0.0, atol=1e-12 * C)
        others = np.delete(np.arange(k), 0)
        assert np.all(found.beta[y == 0][:, others] <= 0)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_gap_is_a_true_bound_early_on(machine):
    _, y, K = make_problem(1, n=60)
    optimum = machine(y, 5.0).solve(K, tol=1e-10).objective
    for steps in (1, 20, 60, 200):
        early = solve_multiclass(K, machine(y, 5.0).program, tol=1e-12, max_iter=steps)
        assert early.objective <= optimum + 1e-9
        assert (optimum - early.objective) / optimum <= early.gap + 1e-9
        assert early.n_iter >= steps


def binary_without_intercept(K, signs, C, margin=1.0):
    n = len(signs)
    lower, upper = np.where(signs > 0, 0.0, -C), np.where(signs > 0, C, 0.0)
    return solve_smo(K, Program(margin * signs, lower, upper, np.zeros(n), total=None), tol=1e-10)


def test_two_classes_are_the_binary_machine():
    _, y, K = make_problem(2, n=50, k=2)
    signs = np.where(y == 1, 1.0, -1.0)
    binary = binary_without_intercept(K, signs, 0.7)
    pairwise = PairwiseSlack(y, 0.7).solve(K, tol=1e-10)
    assert pairwise.objective == pytest.approx(2 * binary.objective, rel=1e-8)
    assert_allclose(pairwise.values[:, 1], binary.values, atol=1e-4)
    # One slack per sample and margin 1 between the classes: f = (f_1 − f_0)/2 has margin ½.
    halved = binary_without_intercept(K, signs, 0.7, margin=0.5)
    assert CrammerSinger(y, 0.7).solve(K, tol=1e-10).objective == pytest.approx(
        2 * halved.objective, rel=1e-8
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_relabelling_the_classes_relabels_the_outputs(machine):
    _, y, K = make_problem(3, n=60, k=4)
    rename = np.array([2, 0, 3, 1])
    here, there = machine(y, 2.0).solve(K, tol=1e-10), machine(rename[y], 2.0).solve(K, tol=1e-10)
    assert there.objective == pytest.approx(here.objective, rel=1e-8)
    assert_allclose(there.values[:, rename], here.values, atol=1e-4)


@pytest.mark.filterwarnings(
    "ignore:Liblinear failed to converge"
)  # whose own tolerance is beyond rounding
def test_a_linear_kernel_against_liblinear():
    X, y, _ = make_problem(4, n=80, k=4)
    theirs = LinearSVC(
        multi_class="crammer_singer", fit_intercept=False, C=0.5, tol=1e-8, max_iter=100_000
    ).fit(X, y)
    ours = CrammerSinger(y, 0.5).solve(X @ X.T, tol=1e-10)
    assert_allclose(ours.beta.T @ X, theirs.coef_, atol=1e-4)


@pytest.mark.parametrize("machine", MACHINES)
def test_twenty_unbalanced_classes(machine):
    joint = pytest.importorskip("tests.reference.joint")
    _, y, K = make_problem(5, n=40, k=20)
    y[20:] = 0  # half of the samples in one class, one in each other
    one = machine(y, 1.0)
    found = one.solve(K, tol=1e-8)
    p = one.program
    assert found.gap <= 1e-8
    if not p.pairwise:
        assert found.objective == pytest.approx(
            joint.solve_joint_conic(K, y, 20, p.sample_C, p.margins, p.pairwise), rel=1e-6
        )


@pytest.mark.parametrize("machine", MACHINES)
def test_a_class_may_have_a_kernel_of_its_own_or_none(machine):
    _, y, K = make_problem(6, k=3)
    same = machine(y, 1.0).solve(np.stack([K, K, K]), tol=1e-9)
    assert same.objective == pytest.approx(machine(y, 1.0).solve(K, tol=1e-9).objective, rel=1e-7)
    own = np.stack([K, 0.0 * K, 3.0 * K])
    found = machine(y, 1.0).solve(own, tol=1e-7)
    assert found.gap <= 1e-7
    assert_allclose(found.values, np.einsum("cij,jc->ic", own, found.beta), atol=1e-9)
    assert np.all(found.values[:, 1] == 0)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_warm_start_from_the_solution_is_a_handful_of_steps(machine):
    _, y, K = make_problem(7, n=100, k=4)
    cold = machine(y, 1.0).solve(K, tol=1e-6)
    warm = machine(y, 1.0).solve(K, cold.beta, tol=1e-5)
    assert warm.n_iter == 0 < cold.n_iter
    junk = np.random.default_rng(0).normal(size=cold.beta.shape)
    assert machine(y, 1.0).solve(K, junk, tol=1e-8).objective == pytest.approx(
        cold.objective, rel=1e-5
    )


@pytest.mark.parametrize("pairwise", [False, True])
def test_the_samples_problem_against_projected_ascent(pairwise):
    rng = np.random.default_rng(8)
    for _ in range(20):
        k, label, price = 5, int(rng.integers(5)), float(rng.uniform(0.1, 3.0))
        top = (k - 1) * price if pairwise else price
        g, a, out = rng.normal(size=k) * 3, rng.uniform(0.3, 2.0, k), np.empty(k)
        solve_sample(g, a, label, price, top, out)
        low, high = np.full(k, -price), np.zeros(k)
        low[label], high[label] = 0.0, top
        assert abs(out.sum()) < 1e-12
        assert np.all(out >= low - 1e-15)
        assert np.all(out <= high + 1e-15)
        # No feasible exchange between two classes gains anything.
        slope = g - a * out
        rise, fall = slope[out < high - 1e-9], slope[out > low + 1e-9]
        assert len(rise) == 0 or len(fall) == 0 or rise.max() <= fall.min() + 1e-9


def test_wrong_input_is_named():
    _, y, K = make_problem(9)
    with pytest.raises(ValueError, match="K has shape"):
        CrammerSinger(y).solve(K[:-1, :-1])
    with pytest.raises(ValueError, match="at least two classes"):
        CrammerSinger(np.zeros(5, dtype=int))
    with pytest.raises(ValueError, match="margins has shape"):
        CrammerSinger(y, margins=np.ones((3, 3)))
    with pytest.raises(ValueError, match="C="):
        PairwiseSlack(y, C=-1.0)


def test_classes_without_a_kernel_do_not_stop_the_others():
    # Three of six classes are flat: what they round must not look like something to gain, or steps
    # never end.
    rng = np.random.default_rng(7)
    n, k = 120, 6
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    X = rng.normal(size=(n, 3)) + 2.0 * rng.normal(size=(k, 3))[y]
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 4.0)
    own = np.array([0.36, 0.0, 0.06, 0.0, 0.0, 0.005])[:, None, None] * K
    found = solve_multiclass(own, CrammerSinger(y, 0.02).program, tol=1e-7, max_iter=50_000)
    assert found.gap <= 1e-7
    assert found.n_iter < 50_000


def test_newton_steps_save_others_where_these_are_short():
    # A kernel that hardly tells the samples apart, at a price that wants them told apart.
    X, y, _ = make_problem(11, n=30, k=4)
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 200.0)
    program = CrammerSinger(y, 1e3).program
    # With a limit of its own it is not left to interior points.
    found = solve_multiclass(K, program, tol=1e-3, max_iter=10**6)
    assert found.gap <= 1e-3
    alone = solve_multiclass(
        K, program, tol=1e-3, max_iter=10**6, options=SolverOptions(class_newton=0)
    )
    assert found.objective == pytest.approx(alone.objective, rel=2e-3)
    assert found.n_iter < 0.7 * alone.n_iter


@pytest.mark.parametrize("constants", [False, True])
def test_interior_points_take_over_before_single_steps_cost_more(constants):
    # At this price single steps creep; interior points need a few dozen of theirs whatever came
    # before.
    X, y, _ = make_problem(11, n=100, k=4)
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 200.0)
    machine = CrammerSinger(y, 1e4, constants=constants)
    found, inside = (
        machine.solve(K, tol=1e-6),
        solve_interior(ClassMatrices(K), machine.program, 1e-6),
    )
    assert found.gap <= 1e-6
    # A step of theirs counts for a thousand samples solved.
    assert 0 < found.n_iter - inside.n_iter * 1000 <= 2000
    assert found.inside
    # Where they come first, nothing else is tried.
    first = machine.solve(K, tol=1e-6, inside=True)
    assert (first.n_iter, first.beta.tobytes()) == (inside.n_iter * 1000, inside.beta.tobytes())


def test_after_three_stalls_interior_points_come_first():
    X, y, _ = make_problem(11, n=60, k=3)
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 200.0)
    machine, asked = CrammerSinger(y, 1e4), []

    def solve(*given, inside=False):
        asked.append(inside)
        return CrammerSinger.solve(machine, *given, inside=inside)

    machine.solve = solve
    problem = MulticlassProblem(
        StoredStack(K[np.newaxis]), machine, LearnerOptions(SumNorm(), np.ones(1))
    )
    for _ in range(5):
        problem.solve(np.ones(1), None, 1e-6)
    assert asked == [False, False, False, True, True]


@pytest.mark.parametrize("machine", MACHINES)
def test_coefficients_at_their_bound_go_on_at_the_new_one(machine):
    _, y, _ = make_problem(1)
    before, after = machine(y, 1.0), machine(y, 3.0)
    others = np.zeros((len(y), 3))
    others[np.arange(len(y)), (y + 1) % 3] = np.where(np.arange(len(y)) % 2, 1.0, 0.4)
    beta = -others
    beta[np.arange(len(y)), y] = others.sum(axis=1)
    found = after.continued(beta, before)
    # Those at C = 1 are at C = 3 now; those inside stay where they are.
    assert_allclose(found, np.where((np.arange(len(y)) % 2 == 1)[:, np.newaxis], 3.0 * beta, beta))


@pytest.mark.parametrize("machine", MACHINES)
def test_the_worst_losses_bound_those_of_all_outputs_within_the_error(machine):
    _, y, _ = make_problem(2)
    program, rng = machine(y, 2.0).program, np.random.default_rng(3)
    values, constants, error = (
        rng.normal(size=(len(y), 3)),
        rng.normal(size=3),
        rng.uniform(0.1, 0.5, (len(y), 3)),
    )
    rows, worst = np.arange(len(y)), program.worst_losses(values, constants, error)
    reached = np.zeros(len(y))
    for signs in np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T:
        f = values + signs * error + constants
        behind = np.maximum(program.margins + f - f[rows, y][:, np.newaxis], 0.0)
        behind[rows, y] = 0.0
        losses = 2.0 * (behind.sum(axis=1) if program.pairwise else behind.max(axis=1))
        assert np.all(losses <= worst)
        reached = np.maximum(reached, losses)
    # The bound is reached at the worst of the corners.
    assert_allclose(worst, reached, rtol=1e-9)


def test_the_linear_bound_takes_off_what_the_sums_of_the_classes_miss():
    _, y, _ = make_problem(4)
    program = replace(CrammerSinger(y, 1.0).program, constants=True)
    beta = np.zeros((len(y), 3))
    beta[0, y[0]], beta[0, (y[0] + 1) % 3] = 0.5, -0.5
    constants = np.array([1.0, -2.0, 3.0])
    missed = 0.5 * (abs(constants[y[0]]) + abs(constants[(y[0] + 1) % 3]))
    assert program.linear_bound(beta, constants) == pytest.approx(
        program.linear_value(beta) - missed, rel=1e-9
    )
