"""Joint machines on kernels known by products and blocks, against the solver that reads the whole
matrix."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.stack import StackClasses, StoredStack
from kernelmosaic.machines.base import CrammerSinger, PairwiseSlack
from kernelmosaic.solvers.multiclass import MultiOutput, solve_multiclass
from kernelmosaic.solvers.multiclass_newton import multiclass_curvature
from kernelmosaic.solvers.tuning import RoundOptions, SolverOptions

MACHINES = [CrammerSinger, PairwiseSlack]
N, K, P, WIDTH = 150, 4, 3, 12


def make_problem(seed=0, n=N, width=WIDTH):
    rng = np.random.default_rng(seed)
    # Sorted by class: working sets that took the first of equals would see one class only.
    y = np.sort(np.concatenate([np.arange(K), rng.integers(K, size=n - K)]))
    X = rng.normal(size=(n, 3)) + 1.2 * rng.normal(size=(K, 3))[y]
    features = [
        np.cos(X @ rng.normal(size=(3, width)) / scale + rng.uniform(0, 7, width)) / np.sqrt(width)
        for scale in (0.5, 1.0, 3.0)
    ]
    return features, y


def rounds_of(size):
    """Working sets of this size; no problem is small enough for interior points."""
    return SolverOptions(class_rounds=RoundOptions(size=size, steps_per_sample=5), small=0)


def combined(features, weights):
    """The matrices themselves: one for all classes, or one per class."""
    Ks = np.stack([Z @ Z.T for Z in features])
    return np.tensordot(weights, Ks, 1)


def naive_gap(K, program, beta):
    """The relative gap of β by loops over samples and classes."""
    n, k = beta.shape
    matrices = K if K.ndim == 3 else [K] * k
    f = np.column_stack([matrices[c] @ beta[:, c] for c in range(k)])
    square = sum(beta[:, c] @ f[:, c] for c in range(k))
    dual, losses = -0.5 * square, 0.0
    for i in range(n):
        y = program.labels[i]
        others = [c for c in range(k) if c != y]
        dual -= sum(program.margins[i, c] * beta[i, c] for c in others)
        slacks = [max(0.0, program.margins[i, c] - f[i, y] + f[i, c]) for c in others]
        losses += program.sample_C[i] * (sum(slacks) if program.pairwise else max(slacks))
    return (0.5 * square + losses - dual) / max(abs(dual), abs(0.5 * square + losses))


def assert_feasible(program, beta):
    rows = np.arange(len(beta))
    np.testing.assert_allclose(beta.sum(axis=1), 0.0, atol=1e-12 * (1 + program.own_upper.max()))
    own = beta[rows, program.labels]
    others = beta.copy()
    others[rows, program.labels] = 0.0
    assert np.all(own >= 0)
    assert np.all(own <= program.own_upper * (1 + 1e-12))
    assert np.all(others <= 0)
    assert np.all(others >= -program.sample_C[:, None] * (1 + 1e-12))


SHARED = np.array([0.5, 0.3, 0.2])
OWN = np.array([[0.5, 0.0, 1.0], [0.2, 0.2, 0.2], [0.0, 0.0, 0.7], [1.0, 0.1, 0.0]])
FORMS = {
    "shared": (lambda features: StoredFeatures(features).combine(SHARED), SHARED),
    "own": (lambda features: StoredFeatures(features).combine_classes(OWN), OWN),
    "own, one without weights": (
        lambda features: StoredFeatures(features).combine_classes(
            OWN * [[1.0], [0.0], [1.0], [1.0]]
        ),
        OWN * [[1.0], [0.0], [1.0], [1.0]],
    ),
    "of a stack": (
        lambda features: StackClasses(StoredStack(np.stack([Z @ Z.T for Z in features])), OWN),
        OWN,
    ),
}


# Every C with a kernel that all classes share: to rounds, kernels in other forms are but products
# and blocks.
@pytest.mark.parametrize("machine", MACHINES, ids=["one slack", "pairwise"])
@pytest.mark.parametrize(
    ("form", "C"),
    [("shared", 1e-6), ("shared", 0.3), *((form, 10.0) for form in FORMS)],
)
def test_equals_the_solver_of_arrays(form, machine, C):
    features, y = make_problem()
    make, weights = FORMS[form]
    K_ = combined(features, weights)
    sample_C = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    sample_C[::7] = 0.0
    program = machine(y, C, K, sample_C).program
    expected = solve_multiclass(K_, program, tol=1e-7)
    rounds = MultiOutput(
        make(features),
        program,
        np.zeros(program.margins.shape),
        None,
        rounds_of(25),
        np.float64,
        0.0,
        10**7,
    )
    found = rounds.solve(1e-6, lambda: rounds.n_iter > 10**7)
    assert rounds.n_rounds > 5
    assert found.gap <= 1e-6
    assert naive_gap(K_, program, found.beta) == pytest.approx(found.gap, abs=1e-9)
    assert found.objective == pytest.approx(expected.objective, rel=2e-6)
    assert_feasible(program, found.beta)
    assert not found.beta[::7].any()
    # The primal is strongly convex in w, so that gaps bound how far two functions may lie apart.
    reach = sum(np.sqrt(2 * one.gap * abs(one.objective)) for one in (found, expected))
    size = np.sqrt(np.diagonal(K_, axis1=-2, axis2=-1).max())
    np.testing.assert_allclose(found.values, expected.values, atol=1.01 * size * reach)


@pytest.mark.parametrize("machine", MACHINES, ids=["one slack", "pairwise"])
def test_a_price_beyond_which_nothing_matters(machine):
    # Few features cannot tell the samples apart: β grows with the price, and sample by sample it
    # grows slowly.
    features, y = make_problem(3, n=40, width=4)
    program = machine(y, 1e3, K).program
    gram = StoredFeatures(features).combine(SHARED)
    early = solve_multiclass(gram, program, tol=1e-9, max_iter=3000, options=rounds_of(20))
    # Steps that do not do are told by the gap, and it is a true one.
    assert early.gap > 1e-9
    assert naive_gap(combined(features, SHARED), program, early.beta) == pytest.approx(
        early.gap, abs=1e-9
    )
    found = solve_multiclass(gram, program, early.beta, tol=1e-2, options=rounds_of(20))
    assert found.gap <= 1e-2
    optimum = solve_multiclass(combined(features, SHARED), program, tol=1e-3).objective
    assert early.objective <= found.objective <= optimum * (1 + 2e-3)
    assert optimum <= found.objective * (1 + 2e-2)


@pytest.mark.parametrize("form", ["shared", "own"])
def test_warm_starts(form):
    features, y = make_problem()
    make, weights = FORMS[form]
    gram, program = make(features), CrammerSinger(y, 1.0).program
    cold = solve_multiclass(gram, program, tol=1e-6, options=rounds_of(40))
    again = solve_multiclass(gram, program, cold.beta, tol=1e-5, options=rounds_of(40))
    assert again.n_iter == 0
    near = solve_multiclass(gram, program, 0.9 * cold.beta, tol=1e-6, options=rounds_of(40))
    assert near.gap <= 1e-6
    # Known outputs are believed: nothing is multiplied to find out where to begin, nor to certify
    # the end.
    known = solve_multiclass(
        gram, program, cold.beta, tol=1e-5, values=cold.values, options=SolverOptions(small=0)
    )
    np.testing.assert_array_equal(known.values, cold.values)
    junk = np.random.default_rng(0).normal(size=cold.beta.shape)
    from_junk = solve_multiclass(gram, program, junk, tol=1e-6, options=rounds_of(40))
    assert from_junk.objective == pytest.approx(cold.objective, rel=2e-6)
    assert naive_gap(combined(features, weights), program, from_junk.beta) <= 1.1e-6


def test_rounding_ends_the_rounds():
    features, y = make_problem()
    program = CrammerSinger(y, 1.0).program
    found = solve_multiclass(
        StoredFeatures(features).combine(SHARED), program, tol=0.0, options=rounds_of(60)
    )
    assert found.gap < 1e-11


def test_features_in_single_precision_are_certified_in_double():
    features, y = make_problem()
    single = [Z.astype(np.float32) for Z in features]
    program = PairwiseSlack(y, 2.0).program
    found = solve_multiclass(
        StoredFeatures(single).combine(SHARED), program, tol=1e-9, options=rounds_of(50)
    )
    assert found.gap <= 1e-9
    exact = combined([Z.astype(np.float64) for Z in single], SHARED)
    assert naive_gap(exact, program, found.beta) == pytest.approx(found.gap, abs=1e-10)


def test_gates_are_served():
    features, y = make_problem()
    gates = np.random.default_rng(2).uniform(size=(N, P))
    program = CrammerSinger(y, 3.0).program
    found = solve_multiclass(
        StoredFeatures(features).combine(gates), program, tol=1e-6, options=rounds_of(40)
    )
    K_ = sum(np.outer(g, g) * (Z @ Z.T) for g, Z in zip(gates.T, features, strict=True))
    assert naive_gap(K_, program, found.beta) <= 1.01e-6


def test_margins_of_ones_own():
    features, y = make_problem()
    margins = np.random.default_rng(4).uniform(0.0, 2.0, size=(N, K))
    program = PairwiseSlack(y, 1.0, K, margins=margins).program
    found = solve_multiclass(StoredFeatures(features).combine(SHARED), program, tol=1e-6)
    assert found.objective == pytest.approx(
        solve_multiclass(combined(features, SHARED), program, tol=1e-7).objective, rel=2e-6
    )
    nothing = PairwiseSlack(y, 1.0, K, margins=np.zeros((N, K))).program
    assert solve_multiclass(StoredFeatures(features).combine(SHARED), nothing).gap == 0.0


# What a class without weights has instead of a curvature is rounding's.
@pytest.mark.parametrize("form", ["shared", "own", "of a stack"])
def test_curvature_is_that_of_the_arrays(form):
    # Enough features for every block to be regular.
    features, y = make_problem(5, width=70)
    make, weights = FORMS[form]
    K_, gram = combined(features, weights), make(features)
    program = CrammerSinger(y, 1.0).program
    beta = solve_multiclass(K_, program, tol=1e-10).beta
    products = np.stack([Z @ (Z.T @ beta) for Z in features])
    H = multiclass_curvature(K_, program, beta, products)
    assert H.any()
    np.testing.assert_allclose(
        multiclass_curvature(gram, program, beta, products), H, atol=1e-6 * np.abs(H).max()
    )
    support = np.flatnonzero(beta.any(axis=1))
    rough = [
        multiclass_curvature(one, program, beta, products[:, support], support, single=True)
        for one in (gram, K_)
    ]
    np.testing.assert_allclose(rough[0], rough[1], atol=1e-2 * np.abs(H).max())
    assert not multiclass_curvature(gram, program, np.zeros_like(beta), np.zeros((P, N, K))).any()


def test_kernels_of_no_known_form_are_named():
    _, y = make_problem()
    with pytest.raises(TypeError, match="type list"):
        CrammerSinger(y).solve([[1.0]])


@pytest.mark.parametrize("machine", MACHINES, ids=["one slack", "pairwise"])
def test_more_free_samples_than_a_round_takes(machine):
    """Rounds alone undo each other on ill-conditioned free coefficients until rounding hides what
    one gains."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = np.digitize(np.sin(2 * X[:, 0]) + X[:, 1], [-0.5, 0.7])
    D = ((X[:, None] - X) ** 2).sum(axis=-1)
    K = 0.5 * np.exp(-D) + 0.5 * np.exp(-D / 16) + 0.25 * X @ X.T
    values, vectors = np.linalg.eigh(K)
    Z = vectors * np.sqrt(np.maximum(values, 0.0))
    program = machine(y, 20.0, 3).program
    found = solve_multiclass(
        StoredFeatures([Z]).combine(np.ones(1)),
        program,
        tol=1e-9,
        max_iter=60_000,
        options=rounds_of(20),
    )
    assert naive_gap(Z @ Z.T, program, found.beta) <= 2e-9


@pytest.mark.parametrize("limit", [1, 17, 400])
def test_rounds_keep_to_a_limit_and_leave_a_stored_matrix_as_it_is(limit):
    features, y = make_problem()
    program, matrix = CrammerSinger(y, 10.0, K).program, combined(features, SHARED)
    # Numbers that a copied block would set to zero.
    matrix[0, 1] = matrix[1, 0] = 1e-310
    before = matrix.copy()
    for gram in (matrix, StoredFeatures(features).combine(SHARED)):
        found = solve_multiclass(gram, program, tol=1e-12, max_iter=limit, options=rounds_of(40))
        assert 0 < found.n_iter <= limit
    np.testing.assert_array_equal(matrix, before)
