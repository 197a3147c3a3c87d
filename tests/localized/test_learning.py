"""The learner of gates: slopes by finite differences, steps that descend, special cases that are
other machines."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.stack import ComputedStack, StoredStack, make_stack
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Projected
from kernelmosaic.kernels.views import KernelSpec
from kernelmosaic.learning.problem import Evaluation
from kernelmosaic.localized.gating import GATINGS, Constant, Softmax
from kernelmosaic.localized.learning import (
    ArmijoStep,
    FixedStep,
    GatedProblem,
    GateLearner,
    Projections,
    QuasiNewtonStep,
    make_step,
)
from kernelmosaic.machines.base import SVC, SVR, CrammerSinger, OneClass, PairwiseSlack

RNG = np.random.RandomState(0)
X = RNG.normal(size=(40, 3))
LABELS = np.where(X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=40) > 0, 1.0, -1.0)
TARGETS = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=40)
CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] * X[:, 2] > 0)
MACHINES = {
    "svc": SVC(LABELS, C=2.0),
    "svc, squared slack": SVC(LABELS, C=2.0, slack=2),
    "svr": SVR(TARGETS, C=3.0, epsilon=0.05),
    "one class": OneClass(40, C=0.1),
    "joint": CrammerSinger(CLASSES, C=2.0, constants=True),
    "pairwise": PairwiseSlack(CLASSES, C=2.0, constants=True),
}
KERNELS = [Linear(), Polynomial(), Gaussian(2.0)]
WEIGHT = np.random.RandomState(5).uniform(0.5, 2.0, size=40)


def mosaic_of(kernels, normalize="trace", weight=None):
    return KernelSet.fit(
        [KernelSpec(str(m), kernel, None) for m, kernel in enumerate(kernels)], X, normalize, weight
    )


def stack_of(kernels):
    kernel_set = mosaic_of(kernels)
    return make_stack(kernel_set, kernel_set.views(X))


def assert_slopes(slopes, function, x, h=1e-5):
    """Compare with differences along directions of all entries at once: one wrong slope shows in
    each of them."""
    for direction in np.random.RandomState(0).normal(size=(2, *x.shape)):
        expected = (function(x + h * direction) - function(x - h * direction)) / (2 * h)
        assert_allclose(
            np.sum(slopes * direction), expected, rtol=1e-4, atol=2e-4 * np.abs(slopes).max()
        )
    assert np.abs(slopes).max() > 1e-3


#: Machines in turn, and every kind of gates with three of them: to the gates these are but the
#: coefficients.
GATED = list(zip(cycle(MACHINES), [kind for kind in GATINGS for _ in range(3)], strict=False))


@pytest.mark.parametrize(("machine", "gating"), GATED)
def test_slopes_in_the_gates_equal_finite_differences(machine, gating):
    gating = GATINGS[gating]()
    problem = GatedProblem(stack_of(KERNELS), MACHINES[machine], gating, X)
    V = gating.init(np.random.RandomState(3), 3, 3)
    V += 0.2 * np.random.RandomState(4).normal(size=V.shape)
    slopes = problem.slope(problem.evaluate(V, None, 1e-11))
    assert_slopes(slopes, lambda there: problem.evaluate(there, None, 1e-11).upper, V)


def projected_cases():
    """Every kernel with every normalisation, machines in turn: these are but the coefficients
    there."""
    machines = cycle(MACHINES)
    for inner, normalize in product(
        [Linear(), Polynomial(), Gaussian(2.0)], ["trace", "diagonal", "centered", None]
    ):
        yield next(machines), normalize, inner


@pytest.mark.parametrize(("machine", "normalize", "inner"), projected_cases(), ids=str)
def test_slopes_in_the_projections_equal_finite_differences(machine, normalize, inner):
    machine = MACHINES[machine]
    kernels = [
        Projected(inner, 2, random_state=0),
        Gaussian(2.0),
        Projected(inner, 1, random_state=1),
    ]
    kernel_set = mosaic_of(kernels, normalize, WEIGHT)
    projections = Projections(kernel_set, kernel_set.views(X), WEIGHT)
    problem = GatedProblem(projections.stack, machine, Softmax(), X)
    V = Softmax().init(np.random.RandomState(3), 3, 3)
    W = projections.start(np.random.RandomState(1))

    def value(there):
        projections.write(there)
        return problem.evaluate(V, None, 1e-11).upper

    projections.write(W)
    at = problem.evaluate(V, None, 1e-11)
    # A linear kernel of unit diagonal in one dimension is a sign: it has no slope.
    assert_slopes(projections.slope(at.solution.beta, at.gates), value, W)


@pytest.mark.parametrize(
    ("machine", "step"), list(zip(MACHINES, cycle(["lbfgs", "armijo"]), strict=False))
)
def test_line_searched_steps_never_climb(step, machine):
    learned = GateLearner(Softmax(), step, tol=1e-4, max_iter=6).learn(
        stack_of(KERNELS), MACHINES[machine], X, np.random.RandomState(0)
    )
    values = [line.objective for line in learned.history]
    assert len(values) > 2
    assert np.all(np.diff(values) < 0)
    assert learned.objective == values[-1]


def weights_of(projections):
    return np.concatenate([projections.kernel(m).W_.ravel() for m in projections.numbers])


@pytest.mark.parametrize(
    ("name", "normalize"),
    [
        *(("svc", rule) for rule in ("trace", "diagonal", "centered", None)),
        ("joint", "centered"),
        ("pairwise", "trace"),
    ],
)
def test_projections_descend_with_the_gates(name, normalize):
    kernel_set = mosaic_of([Projected(Linear(), 2), Projected(Gaussian(2.0), 1)], normalize)
    projections = Projections(kernel_set, kernel_set.views(X), np.ones(40))
    before = weights_of(projections)
    # The machine's own gap is at most a tenth of tol: what is left of the tolerance below is not
    # its.
    learned = GateLearner(Softmax(), tol=1e-5, max_iter=4).learn(
        projections.stack, MACHINES[name], X, np.random.RandomState(0), projections
    )
    assert np.all(np.diff([line.objective for line in learned.history]) < 0)
    assert not np.allclose(weights_of(projections), before)
    # What is returned belongs together: the value is that of the projections and gates in place.
    problem = GatedProblem(projections.stack, MACHINES[name], Softmax(), X)
    assert_allclose(problem.evaluate(learned.V, None, 1e-9).upper, learned.objective, rtol=1e-5)


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
def test_matrices_that_are_recomputed_follow_the_projections(normalize):
    found = []
    for kind, budget in ((StoredStack, None), (ComputedStack, 1.5 * 8 * len(X) ** 2)):
        kernel_set = mosaic_of([Projected(Polynomial(), 2), Projected(Gaussian(2.0), 1)], normalize)
        projections = Projections(kernel_set, kernel_set.views(X), np.ones(len(X)), budget)
        assert isinstance(projections.stack, kind)
        before = weights_of(projections)
        projections.write(before + np.random.RandomState(0).normal(size=before.shape))
        found.append(np.asarray(projections.stack.combine(np.array([1.0, 2.0]))))
    assert_allclose(*found, atol=1e-10)


def test_the_fixed_step_is_gradient_descent():
    stack = stack_of(KERNELS)
    learned = GateLearner(Softmax(), FixedStep(0.01, 3), tol=1e-8).learn(
        stack, MACHINES["svc"], X, np.random.RandomState(0)
    )
    problem = GatedProblem(stack, MACHINES["svc"], Softmax(), X)
    V = Softmax().init(np.random.RandomState(0), 3, 3)
    for _ in range(3):
        V = V - 0.01 * problem.slope(problem.evaluate(V, None, 1e-10))
    assert_allclose(learned.V, V, atol=1e-5)
    assert len(learned.history) == 4
    assert make_step("fixed").n_moves == 50


def test_the_fixed_step_takes_no_more_steps_than_are_allowed():
    for most, taken in ((4, 4), (100, 50)):
        learner = GateLearner(Softmax(), "fixed", tol=1e-3, max_iter=most)
        learned = learner.learn(stack_of(KERNELS), MACHINES["svc"], X, np.random.RandomState(0))
        assert len(learned.history) == taken + 1
        assert learned.converged


@pytest.mark.parametrize("step", [QuasiNewtonStep(), ArmijoStep()], ids=["lbfgs", "armijo"])
def test_steps_find_the_minimum_of_a_bowl(step):
    A = np.diag([1.0, 10.0, 50.0])
    c = np.array([1.0, -2.0, 0.5])

    def evaluate(x):
        return Evaluation(x, None, 0.5 * (x - c) @ A @ (x - c), A @ (x - c))

    x = np.zeros(3)
    at = evaluate(x)
    for _ in range(400):
        moved = step.move(x, at, A @ (x - c), evaluate)
        if moved is None:
            break
        x, at = moved
    assert_allclose(x, c, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("svc", {"C": 2.0}),
        ("joint", {"C": 2.0, "multi_class": "joint"}),
        ("pairwise", {"C": 2.0, "multi_class": "pairwise"}),
    ],
    ids=["svc", "joint", "pairwise"],
)
def test_learned_constant_gates_solve_the_global_problem(name, options):
    from kernelmosaic import MKLClassifier

    learned = GateLearner(Constant(), tol=1e-6, max_iter=500).learn(
        stack_of(KERNELS), MACHINES[name], X, np.random.RandomState(0)
    )
    convex = MKLClassifier(KERNELS, tol=1e-5, **options).fit(
        X, LABELS if name == "svc" else CLASSES
    )
    assert_allclose(learned.objective, convex.objective_, rtol=1e-4)
    assert_allclose(
        Constant().in_user_units(learned.V, X, X)["weights"], convex.weights_, atol=0.02
    )


@pytest.mark.parametrize("tol", [0.1, 0.001])
def test_the_stop_rule_is_the_published_one(tol):
    def values(n_short):
        learner = GateLearner(Softmax(), tol=tol, n_short=n_short)
        learned = learner.learn(stack_of(KERNELS), MACHINES["svc"], X, np.random.RandomState(0))
        assert learned.converged
        return np.array([line.objective for line in learned.history])

    J = values(1)
    short = J[1:] > (1 - tol) * J[:-1]
    # The first short iteration is the last.
    assert np.flatnonzero(short).tolist() == [len(J) - 2]
    longer = values(3)
    short = longer[1:] > (1 - tol) * longer[:-1]
    assert short[-3:].all()
    assert not np.any(short[:-3] & short[1:-2] & short[2:-1])
    assert len(longer) > len(J)


def test_a_smaller_tolerance_takes_more_iterations():
    def iterations(tol):
        learner = GateLearner(Softmax(), tol=tol)
        return len(
            learner.learn(stack_of(KERNELS), MACHINES["svc"], X, np.random.RandomState(0)).history
        )

    assert iterations(1e-1) < iterations(1e-4)


class PlainStack(StoredStack):
    """Stored matrices with the passes of a backend that has no compiled ones."""

    loops = None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stored_and_computed_stacks_combine_alike_under_gates(dtype):
    kernel_set = mosaic_of(KERNELS)
    gates = np.random.RandomState(0).normal(size=(40, 3))
    gates[:7, 1] = 0.0
    gates[3, 0] = 1e-300
    views = kernel_set.views(X)
    stored = make_stack(kernel_set, views, dtype=dtype)
    computed = ComputedStack.of(kernel_set, views, np.dtype(np.float64), 2**20)
    naive = np.zeros((40, 40))
    for m, kernel in enumerate(kernel_set.fitted):
        row_scale = kernel.normalization.row_scale(X)
        K = kernel.normalization.block(kernel.kernel(X), row_scale, row_scale)
        for i in range(40):
            for j in range(40):
                naive[i, j] += gates[i, m] * K[i, j] * gates[j, m]
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    plain = PlainStack(stored.matrices)
    for K in (one.combine(gates) for one in (stored, computed, plain)):
        assert_allclose(K, naive, atol=tolerance * np.abs(naive).max())


def test_unknown_steps_are_named():
    with pytest.raises(ValueError, match="step='newton': choose one of 'lbfgs', 'armijo', 'fixed'"):
        make_step("newton")
