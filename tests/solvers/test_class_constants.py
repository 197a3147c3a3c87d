"""Joint machines with a constant per class, against the printed problems handed to a conic
solver."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.stack import StackClasses, StoredStack
from kernelmosaic.machines.base import CrammerSinger, PairwiseSlack
from kernelmosaic.solvers.interior_point import solve_interior
from kernelmosaic.solvers.multiclass import ClassMatrices, solve_multiclass
from kernelmosaic.solvers.program import MulticlassProgram
from kernelmosaic.solvers.tuning import RoundOptions, SolverOptions

pytest.importorskip("clarabel")
from tests.reference.joint import solve_joint_conic

MACHINES = [CrammerSinger, PairwiseSlack]


def make_problem(seed, n=30, k=4, shift=5.0):
    """Classes of different sizes away from the origin, where a linear kernel needs constants."""
    rng = np.random.default_rng(seed)
    y = np.concatenate(
        [np.arange(k), rng.choice(k, size=n - k, p=np.arange(1, k + 1) / (k * (k + 1) / 2))]
    )
    X = rng.normal(size=(n, 3)) + 1.5 * rng.normal(size=(k, 3))[y] + shift
    return X, y


def reference(K, program):
    given = (
        program.labels,
        program.n_classes,
        program.sample_C,
        program.margins,
        program.pairwise,
        True,
    )
    return solve_joint_conic(K, *given)


def assert_certified(K, program, found, tol):
    """Both sides of the printed problem, by loops."""
    n, k = found.beta.shape
    Ks = K if K.ndim == 3 else [K] * k
    f = np.column_stack([Ks[c] @ found.beta[:, c] for c in range(k)])
    half = 0.5 * float(np.sum(f * found.beta))
    dual, losses = -half, 0.0
    for i in range(n):
        y = program.labels[i]
        slacks = []
        for c in set(range(k)) - {y}:
            ahead = f[i, y] + found.intercept[y] - f[i, c] - found.intercept[c]
            slacks.append(max(0.0, program.margins[i, c] - ahead))
            dual -= program.margins[i, c] * found.beta[i, c]
            assert -program.sample_C[i] * (1 + 1e-12) <= found.beta[i, c] <= 0
        losses += program.sample_C[i] * (sum(slacks) if program.pairwise else max(slacks))
        if not program.pairwise:
            assert found.beta[i, y] <= program.sample_C[i] * (1 + 1e-12)
    size = np.abs(found.beta).sum()
    assert np.abs(found.beta.sum(axis=0)).max() <= 1e-13 * size
    assert np.abs(found.beta.sum(axis=1)).max() <= 1e-13 * size
    assert found.intercept.shape == (k,)
    primal = half + losses
    assert found.objective == pytest.approx(dual, rel=1e-9)
    assert found.gap == pytest.approx((primal - dual) / max(abs(primal), abs(dual)), abs=1e-9)
    assert found.gap <= tol


@pytest.mark.parametrize(
    ("machine", "kernel", "C"),
    [
        *((machine, "linear", C) for machine, C in product(MACHINES, (0.3, 3e4))),
        *((machine, "gaussian", C) for machine, C in product(MACHINES, (1e-3, 30.0))),
    ],
)
def test_value_is_that_of_the_printed_problem(machine, kernel, C):
    X, y = make_problem(0)
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    weight[5] = 0.0
    K = X @ X.T if kernel == "linear" else np.exp(-((X[:, None] - X) ** 2).sum(-1) / 8.0)
    program = machine(y, C, 4, weight, constants=True).program
    optimum = reference(K, program)
    inside = solve_interior(ClassMatrices(K), program, 1e-6)
    for found in (inside, solve_multiclass(K, program, tol=1e-6)):
        assert_certified(K, program, found, 1e-6)
        assert found.objective == pytest.approx(optimum, rel=3e-6)
    # Without interior points prices that are too high for the kernel take too many steps; the gap
    # tells.
    climbed = solve_multiclass(K, program, tol=1e-4, max_iter=5_000 if C > 1 else 100_000)
    assert_certified(K, program, climbed, 1.0 if C > 1 else 1e-4)


def test_interior_points_without_constants_and_with_a_kernel_per_class():
    X, y = make_problem(5)
    base = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 8.0)
    own = np.stack([(1 + c) * base for c in range(4)])
    for machine in MACHINES:
        program = machine(y, 2.0).program
        found = solve_interior(ClassMatrices(own), program, 1e-8)
        assert found.gap <= 1e-8
        assert found.objective == pytest.approx(
            solve_multiclass(own, program, tol=1e-8).objective, rel=1e-7
        )
        program = machine(y, 2.0, constants=True).program
        assert_certified(
            own, program, solve_multiclass(own, program, tol=1e-7, max_iter=10**6), 1e-7
        )
        assert_certified(own, program, solve_multiclass(own, program, tol=1e-7), 1e-7)


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_in_other_forms(machine):
    X, y = make_problem(7, n=45)
    Z = np.column_stack([X, np.cos(X @ np.random.default_rng(0).normal(size=(3, 9)))])
    program = machine(y, 0.5, constants=True).program
    expected = solve_multiclass(Z @ Z.T, program, tol=1e-7)
    rounds = SolverOptions(class_rounds=RoundOptions(size=30, steps_per_sample=5), small=0)
    # Each form with interior points and, of the other machine, with steps alone.
    limits = (None, 10**7) if machine is CrammerSinger else (10**7, None)
    for gram, limit in zip(
        (StoredFeatures([Z]).combine(np.ones(1)), DenseGram(Z @ Z.T)), limits, strict=True
    ):
        found = solve_multiclass(gram, program, tol=1e-6, max_iter=limit, options=rounds)
        assert_certified(Z @ Z.T, program, found, 1e-6)
        assert found.objective == pytest.approx(expected.objective, rel=2e-6)
    weights = np.array([[1.0, 0.2], [0.5, 0.5], [0.1, 2.0], [1.0, 1.0]])
    Ks = np.stack([Z @ Z.T, np.exp(-((X[:, None] - X) ** 2).sum(-1))])
    found = solve_multiclass(StackClasses(StoredStack(Ks), weights), program, tol=1e-6)
    assert_certified(np.tensordot(weights, Ks, 1), program, found, 1e-6)


@pytest.mark.torch
def test_a_matrix_of_torch():
    torch = pytest.importorskip("torch")
    X, y = make_problem(8, n=70)
    K = X @ X.T
    program = PairwiseSlack(y, 0.5, constants=True).program
    found = solve_multiclass(DenseGram(torch.from_numpy(K)), program, tol=1e-6)
    assert_certified(K, program, found, 1e-6)
    assert found.objective == pytest.approx(reference(K, program), rel=2e-6)


@pytest.mark.parametrize("machine", MACHINES)
def test_warm_starts(machine):
    X, y = make_problem(9, n=60)
    K = X @ X.T
    program = machine(y, 1.0, constants=True).program
    cold = solve_multiclass(K, program, tol=1e-7)
    again = solve_multiclass(K, program, cold.beta, tol=1e-3, max_iter=10**6)
    assert_certified(K, program, again, 1e-3)
    junk = 10.0 * np.random.default_rng(0).normal(size=cold.beta.shape)
    for start in (0.5 * cold.beta, junk):
        found = solve_multiclass(K, program, start, tol=1e-7)
        assert_certified(K, program, found, 1e-7)
        assert found.objective == pytest.approx(cold.objective, rel=3e-7)


def test_a_class_without_samples_is_never_in_the_way():
    X, y = make_problem(10, k=3)
    K = X @ X.T
    margins = np.random.default_rng(1).uniform(0.0, 2.0, (len(y), 4))
    program = PairwiseSlack(y, 1.0, 4, margins=margins, constants=True).program
    for limit in (None, 10**6):
        found = solve_multiclass(K, program, tol=1e-6, max_iter=limit)
        assert_certified(K, program, found, 1e-6)
        assert not found.beta[:, 3].any()
        assert found.objective == pytest.approx(reference(K, program), rel=3e-6)


@pytest.mark.parametrize("pairwise", [False, True])
def test_balanced_points_are_feasible_and_near(pairwise):
    rng = np.random.default_rng(3)
    y = np.concatenate([np.arange(3), rng.integers(3, size=17)])
    program = MulticlassProgram(y, np.ones((20, 3)), rng.uniform(0.5, 2.0, 20), pairwise, True)
    for size in (1e-8, 1.0, 10.0):
        start = program.feasible(rng.normal(size=(20, 3)) * size)
        found = program.balanced(start)
        assert np.abs(found.sum(axis=0)).max() <= 1e-13 * max(np.abs(found).sum(), size * 1e-3)
        np.testing.assert_allclose(found, program.feasible(found), atol=1e-12)
        np.testing.assert_allclose(program.balanced(found), found, atol=1e-12)
    corner = program.feasible(np.where(np.arange(3) == y[:, None], 0.0, -100.0))
    assert np.abs(program.balanced(corner).sum(axis=0)).max() <= 1e-12


@pytest.mark.parametrize("pairwise", [False, True])
def test_the_best_constant_of_a_class_against_a_grid(pairwise):
    rng = np.random.default_rng(4)
    y = rng.integers(3, size=25)
    program = MulticlassProgram(
        y, rng.uniform(0.5, 2.0, (25, 3)), rng.uniform(0.0, 2.0, 25), pairwise, True
    )
    values = 3.0 * rng.normal(size=(25, 3))
    b = rng.normal(size=3)
    for c in range(3):
        found = b.copy()
        found[c] = program._best_constant(values, b, c)
        grid = [
            program.losses(values + np.where(np.arange(3) == c, t, b))
            for t in np.linspace(-20, 20, 4001)
        ]
        assert program.losses(values + found) <= min(grid) + 1e-9
    best = program.best_intercept(values, b)
    assert program.losses(values + best) <= program.losses(values + b)
    assert best.sum() == pytest.approx(0.0, abs=1e-12)
