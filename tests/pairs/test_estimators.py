"""Estimators on kernels of pairs that share members, against the same fits on matrices that are
written down."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from kernelmosaic import (
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    load,
    save,
)
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, pairwise
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.model_selection import PairSplit
from kernelmosaic.pairs.ridge import pair_problem
from kernelmosaic.pairs.stack import PairSums, make_pair_stack
from kernelmosaic.ridge.learning import RidgeOptions, RidgeProblem, RidgeTargets
from kernelmosaic.solvers.least_squares import RidgePoint

rng = np.random.RandomState(0)
M, Q, N = 14, 12, 130
#: Too little for stored matrices, enough for those of the members.
SMALL = 2e5
LEFT, RIGHT = rng.normal(size=(M, 2)), rng.normal(size=(Q, 3))
LEFT_OF, RIGHT_OF = np.divmod(rng.permutation(M * Q), Q)
X = np.hstack([LEFT[LEFT_OF], RIGHT[RIGHT_OF]])
F = np.sin(LEFT[LEFT_OF, 0] * RIGHT[RIGHT_OF, 0]) + 0.3 * RIGHT[RIGHT_OF, 1]
y = F + 0.1 * rng.normal(size=M * Q)
KERNELS = pairwise(
    [("g", Gaussian(1.5), [0, 1]), ("l", Linear(), [0, 1])],
    [("g", Gaussian(2.0), [2, 3, 4]), ("l", Linear(), [2, 3])],
)
TRAIN, TEST = slice(0, N), slice(N, None)


def written_down() -> tuple[list, np.ndarray]:
    """The same kernels as matrices of all pairs, computed by np.kron of those of the members."""
    left = [Gaussian(1.5)(LEFT), LEFT @ LEFT.T]
    right = [Gaussian(2.0)(RIGHT), RIGHT[:, :2] @ RIGHT[:, :2].T]
    at = LEFT_OF * Q + RIGHT_OF
    names = [name for name, _, _ in KERNELS]
    full = [np.kron(A, B)[np.ix_(at, at)] for A in left for B in right]
    return [(name, Precomputed(K)) for name, K in zip(names, full, strict=True)], np.arange(M * Q)[
        :, np.newaxis
    ]


@pytest.mark.parametrize(
    "model",
    [
        MKLRegressor(C=10, tol=1e-5),
        MKLRegressor(C=10, loss="squared", tol=1e-5),
        MKLRegressor(C=3, loss="huber", norm=2, tol=1e-5),
        MKLRegressor(C=10, loss="squared", weights="uniform", tol=1e-7),
        MKLClassifier(C=1, tol=1e-5),
    ],
    ids=lambda one: repr(one),
)
def test_fits_are_those_on_the_matrices_written_down(model):
    target = y > 0 if isinstance(model, MKLClassifier) else y
    pairs = (
        clone(model).set_params(kernels=KERNELS, memory_budget=SMALL).fit(X[TRAIN], target[TRAIN])
    )
    matrices, rows = written_down()
    plain = clone(model).set_params(kernels=matrices).fit(rows[TRAIN], target[TRAIN])
    assert isinstance(pairs.function_.expansion.sums, PairSums)
    assert not isinstance(plain.function_.expansion.sums, PairSums)
    assert pairs.duality_gap_ <= model.tol
    assert pairs.objective_ == pytest.approx(plain.objective_, rel=3 * model.tol)
    assert_allclose(pairs.weights_, plain.weights_, atol=3e-3)
    values = "predict" if target is y else "decision_function"
    assert_allclose(
        getattr(pairs, values)(X[TEST]),
        getattr(plain, values)(rows[TEST]),
        atol=1e-2 * np.abs(y).max(),
    )


def test_several_targets_share_weights():
    Y = np.column_stack([y, -(y**2)])
    model = MKLRegressor(KERNELS, loss="squared", tol=1e-6)
    pairs = clone(model).set_params(memory_budget=SMALL).fit(X[TRAIN], Y[TRAIN])
    plain = clone(model).fit(X[TRAIN], Y[TRAIN])
    assert pairs.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    assert_allclose(pairs.predict(X[TEST]), plain.predict(X[TEST]), atol=1e-2)


def test_fewer_pairs_than_members_are_plain_matrices():
    model = MKLRegressor(KERNELS, memory_budget=SMALL).fit(X[:25], y[:25])
    assert not isinstance(model.function_.expansion.sums, PairSums)


@pytest.mark.filterwarnings("ignore:LocalizedMKLClassifier. after max_iter")
def test_one_class_and_gates_take_pairs():
    one = MKLOneClass(KERNELS, nu=0.2, memory_budget=SMALL).fit(X[TRAIN])
    plain = MKLOneClass(KERNELS, nu=0.2).fit(X[TRAIN])
    assert one.objective_ == pytest.approx(plain.objective_, rel=2e-3)
    gated = LocalizedMKLClassifier(KERNELS, C=1.0, n_init=1, max_iter=2, random_state=0)
    values = [
        gated.set_params(memory_budget=b).fit(X[TRAIN], y[TRAIN] > 0).decision_function(X[TEST])
        for b in (None, SMALL)
    ]
    assert_allclose(values[0], values[1], atol=1e-2 * np.abs(values[0]).max())


def test_model_files(tmp_path):
    model = MKLRegressor(KERNELS, memory_budget=SMALL).fit(X[TRAIN], y[TRAIN])
    save(model, tmp_path / "pairs.skops")
    assert_allclose(
        load(tmp_path / "pairs.skops").predict(X[TEST]), model.predict(X[TEST]), rtol=1e-12
    )


def test_searches_with_folds_of_pairs():
    folds = PairSplit(2, new="left", left=[0, 1], right=[2, 3, 4], random_state=0)
    squares = {"kernels": KERNELS, "loss": "squared", "tol": 1e-2, "memory_budget": SMALL}
    model = MKLRegressorCV(Cs=[1.0, 10.0], cv=folds, **squares).fit(X[TRAIN], y[TRAIN])
    scores = [
        cross_val_score(MKLRegressor(C=C, **squares), X[TRAIN], y[TRAIN], cv=folds).mean()
        for C in (1.0, 10.0)
    ]
    assert (1.0, 10.0)[int(np.argmax(scores))] == model.C_
    ridge = MKLRidgeCV(KERNELS, alpha=0.3, weights="uniform")
    known = cross_val_score(ridge, X, y, cv=PairSplit(2, random_state=0)).mean()
    both = PairSplit(2, new="both", left=[0, 1], right=[2, 3, 4], random_state=0)
    assert known > cross_val_score(ridge, X, y, cv=both).mean()


# Ridge --------------------------------------------------------------------------------------------


def ridge_problem(targets: RidgeTargets, **options: int) -> tuple[RidgeProblem, np.ndarray]:
    kernel_set = KernelSet.fit(lay_specs(read_kernels(KERNELS), X[TRAIN]), X[TRAIN], "trace")
    views = kernel_set.views(X[TRAIN])
    stack = make_pair_stack(kernel_set, views, options=StackOptions(few_pairs=0))
    precise = RidgeOptions(product_tol=1e-10, product_steps=2000, **options)
    Ks = np.array([K for _, K in sorted(kernel_set.blocks(views, views, range(4)))])
    return pair_problem(stack, targets, precise), Ks


def ridge_targets(classes: bool) -> RidgeTargets:
    weight = np.linspace(0.5, 2.0, N)
    if classes:
        return RidgeTargets.of_classes((y[TRAIN] > 0).astype(np.intp), weight)
    return RidgeTargets.of_numbers(y[TRAIN, np.newaxis], weight)


def test_residuals_are_those_of_generalised_cross_validation():
    """With the trace written down, and many probes."""
    targets = ridge_targets(False)
    problem, Ks = ridge_problem(targets, probe_signs=200 * N, most_probes=200)
    at = RidgePoint(np.array([0.3, 0.1, 0.5, 0.2]), 0.4, 1.0, {})
    machine = problem.machine(at)
    S = np.tensordot(at.weights, Ks, 1) + np.diag(at.alpha / targets.weight)
    inverse = np.linalg.inv(S)
    ones = inverse.sum(axis=1)
    A = inverse - np.outer(ones, ones) / ones.sum()
    assert_allclose(machine.beta, A @ targets.Y, atol=1e-8)
    tau = np.mean(np.diagonal(A) / targets.weight)
    expected = A @ targets.Y / (tau * targets.weight[:, np.newaxis])
    assert_allclose(machine.residuals, expected, rtol=0.04)
    fit = np.tensordot(at.weights, Ks, 1) @ machine.beta + machine.intercept
    assert_allclose(
        targets.Y - fit, (at.alpha / targets.weight)[:, np.newaxis] * machine.beta, atol=1e-8
    )


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
def test_slopes_of_the_criterion_are_differences(classes):
    problem, _ = ridge_problem(ridge_targets(classes))
    x = np.log([0.3, 0.1, 0.5, 0.2, 0.4, 1.2])
    _, slope = problem.value(x)
    step = 1e-4 * np.eye(6)
    found = [(problem.value(x + one)[0] - problem.value(x - one)[0]) / 2e-4 for one in step]
    assert_allclose(slope, found, rtol=1e-4, atol=1e-4 * np.abs(slope).max())


@pytest.mark.parametrize("block", [3000, 10], ids=["factorised", "eigenvectors"])
def test_systems_are_solved_whatever_the_ridge(block):
    kernel_set = KernelSet.fit(lay_specs(read_kernels(KERNELS), X[TRAIN]), X[TRAIN], "trace")
    views = kernel_set.views(X[TRAIN])
    stack = make_pair_stack(
        kernel_set, views, options=StackOptions(few_pairs=0, pair_block=block, pair_rank=100)
    )
    targets = ridge_targets(False)
    eta = np.array([1.0, 0.5, 0.3, 2.0])
    K = np.tensordot(
        eta, np.array([K for _, K in sorted(kernel_set.blocks(views, views, range(4)))]), 1
    )
    problem = pair_problem(stack, targets, RidgeOptions())
    for alpha in (1e-3, 1e-6, 1e-9):
        machine = problem.machine(RidgePoint(eta, alpha, 1.0, {}))
        left = (
            targets.Y
            - K @ machine.beta
            - machine.intercept
            - alpha / targets.weight[:, np.newaxis] * machine.beta
        )
        assert np.linalg.norm(left) <= 1e-3 * np.linalg.norm(targets.Y)
        assert abs(machine.beta.sum()) <= 1e-6 * np.abs(machine.beta).sum()
        assert machine.unsolved == 0.0


def test_systems_that_are_not_solved_are_said():
    kernels = pairwise([("g", Gaussian(1e3), [0, 1])], [("g", Gaussian(1e3), [2, 3, 4])])
    model = MKLRidgeCV(kernels, alpha=1e-30, weights=[1.0], memory_budget=SMALL)
    with pytest.warns(
        ConvergenceWarning,
        match=r"130 pairs were solved to a relative residual of .* an alpha larger",
    ):
        model.fit(X[TRAIN], y[TRAIN])


def test_ridge_on_pairs_predicts_as_ridge_on_matrices():
    pairs = MKLRidgeCV(KERNELS, n_init=1, memory_budget=SMALL).fit(X[TRAIN], y[TRAIN])
    plain = MKLRidgeCV(KERNELS, n_init=1).fit(X[TRAIN], y[TRAIN])
    assert isinstance(pairs.function_.expansion.sums, PairSums)
    errors = [np.mean((one.predict(X[TEST]) - F[TEST]) ** 2) for one in (pairs, plain)]
    assert errors[0] < 1.5 * errors[1] + 0.01
    given = [
        MKLRidgeCV(KERNELS, alpha=0.3, weights="uniform", memory_budget=b) for b in (None, SMALL)
    ]
    outputs = [one.fit(X[TRAIN], y[TRAIN]).predict(X[TEST]) for one in given]
    assert_allclose(outputs[0], outputs[1], atol=1e-4)
    inside = pairs.predict_interval(X[TEST], coverage=0.8)
    share = np.mean((inside[:, 0] <= y[TEST]) & (y[TEST] <= inside[:, 1]))
    assert 0.5 < share <= 1.0
    classes = MKLRidgeClassifierCV(KERNELS, weights="uniform", memory_budget=SMALL).fit(
        X[TRAIN], y[TRAIN] > 0
    )
    assert classes.score(X[TEST], F[TEST] > 0) > 0.8
    assert classes.predict_proba(X[TEST]).shape == (M * Q - N, 2)


@pytest.mark.parametrize("alpha", [1e-8, "learn"])
def test_smooth_kernels_and_little_noise(alpha):
    """Products whose systems the members' preconditioner leaves unsolved."""
    random = np.random.default_rng(0)
    n, left, right = 150, random.standard_normal((14, 2)), random.standard_normal((14, 2))
    i, j = np.divmod(random.permutation(14 * 14), 14)
    Z = np.hstack([left[i], right[j]])
    target = np.sin(left[i, 0]) * right[j, 0] + left[i, 1] * right[j, 1]
    kernels = pairwise([("a", Gaussian(8.0), [0, 1])], [("b", Gaussian(8.0), [2, 3])])
    model = MKLRidgeCV(kernels, alpha=alpha, weights=[1.0], n_init=1, memory_budget=SMALL).fit(
        Z[:n], target[:n]
    )
    assert isinstance(model.function_.expansion.sums, PairSums)
    # The same system, factorised.
    K = model.kernel_matrix(Z[:n])
    system = np.block(
        [[K + model.alpha_ * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
    )
    solution = np.linalg.solve(system, np.append(target[:n], 0.0))
    expected = model.kernel_matrix(Z[n:], Z[:n]) @ solution[:-1] + solution[-1]
    assert_allclose(model.predict(Z[n:]), expected, atol=2e-2 * target.std())


@pytest.mark.parametrize("budget", [None, SMALL], ids=["matrices", "members"])
def test_weights_that_are_products_of_those_of_the_sides(budget):
    model = MKLRidgeCV(KERNELS, weights="factorized", n_init=1, memory_budget=budget).fit(
        X[TRAIN], y[TRAIN]
    )
    W = model.weights_.reshape(2, 2)
    assert np.linalg.svd(W, compute_uv=False)[1] < 1e-12 * W.max()
    assert model.stationarity_ <= model.tol
    plain = MKLRidgeCV(KERNELS, weights="uniform", memory_budget=budget).fit(X[TRAIN], y[TRAIN])
    assert model.criterion_ < plain.criterion_ - 1.0
    with pytest.raises(ValueError, match="weights='factorized': kernel 'linear' is not a product"):
        MKLRidgeCV([Linear()], weights="factorized").fit(X[TRAIN], y[TRAIN])


def test_what_ridge_does_not_compute_of_pairs():
    model = MKLRidgeCV(KERNELS, memory_budget=SMALL)
    with pytest.raises(
        ValueError, match="criterion='evidence': 130 pairs have 14 left and 12 right members"
    ):
        clone(model).set_params(criterion="evidence").fit(X[TRAIN], y[TRAIN])
    with pytest.raises(
        ValueError, match=r"groups: 130 pairs .* choose alpha by cross-validation with PairSplit"
    ):
        clone(model).fit(X[TRAIN], y[TRAIN], groups=LEFT_OF[TRAIN])
    with pytest.raises(
        ValueError, match="return_std=True: the matrix of the 130 training pairs is not computed"
    ):
        model.set_params(alpha=1.0, weights="uniform").fit(X[TRAIN], y[TRAIN]).predict(
            X[TEST], return_std=True
        )


@pytest.mark.parametrize("normalize", [None, "trace", "diagonal"])
def test_the_gap_counts_what_cancels_in_antisymmetric_kernels(normalize):
    # Of products of 10¹² differences of about one are left, four digits of which are known.
    random, m, C = np.random.RandomState(0), 5, 10.0
    u, G = random.normal(size=m), random.normal(size=(m, m))
    A = 1e6 * np.outer(u, u) + 1e-6 * G @ G.T
    A = 0.5 * (A + A.T)
    pairs = np.argwhere(np.ones((m, m)))
    target = random.normal(size=len(pairs))
    sides = ([("k", Precomputed(A), side)] for side in (0, 1))
    model = MKLRegressor(
        pairwise(*sides, mode="antisymmetric"), C=C, normalize=normalize, tol=1e-5, epsilon=0.1
    )
    with pytest.warns(ConvergenceWarning, match="rounding hides"):
        model.fit(pairs, target)
    exact = [[Fraction(one) for one in row] for row in A.tolist()]
    entry = lambda a, b, c, d: float(exact[a][c] * exact[b][d] - exact[a][d] * exact[b][c]) / 2  # noqa: E731
    K = np.array([[entry(*x, *z) for z in pairs] for x in pairs])
    if normalize == "trace":
        K /= K.diagonal().mean()
    if normalize == "diagonal":
        norms = np.sqrt(np.where(K.diagonal() > 0, K.diagonal(), 1.0))
        K /= np.outer(norms, norms)
    beta = np.zeros(len(pairs))
    beta[model.support_] = model.dual_coef_[0]
    f = K @ beta
    objective = (
        0.5 * beta @ f + C * np.maximum(np.abs(target - f - model.intercept_) - 0.1, 0.0).sum()
    )
    assert abs(objective - model.objective_) <= model.duality_gap_ * objective
