"""The estimators that tell all classes apart in one problem, and those fitted to posteriors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KernelDensity

from kernelmosaic import BilinearMKLClassifier, MKLClassifier, PosteriorMKLClassifier
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed
from kernelmosaic.multiclass.machine import PosteriorSVC
from kernelmosaic.multiclass.posterior import density_posteriors, neighbor_posteriors
from kernelmosaic.solvers.program import Program

X, Y = load_iris(return_X_y=True)
X, Y = X[::2], np.array(["seto", "versi", "virgi"])[Y[::2]]
KERNELS = [("line", Linear()), ("square", Polynomial(2)), ("bell", Gaussian("median"))]
JOINT = [
    BilinearMKLClassifier(KERNELS, tol=1e-3),
    MKLClassifier(KERNELS, multi_class="joint"),
    MKLClassifier(KERNELS, multi_class="pairwise"),
    PosteriorMKLClassifier(KERNELS),
]


def hard(y):
    return (np.asarray(y)[:, None] == np.unique(y)).astype(float)


@pytest.mark.parametrize("model", JOINT)
def test_contributions_and_coefficients_make_the_decision(model):
    model.fit(X, Y)
    scores = model.decision_function(X[:20])
    assert_allclose(model.contributions(X[:20]).sum(axis=1) + model.intercept_, scores, atol=1e-10)
    K = model.kernel_matrix(X[:20], X[model.support_])
    if K.ndim == 2:
        assert model.weights_.shape == (3,)
        assert_allclose(K @ model.dual_coef_.T + model.intercept_, scores, atol=1e-8)
        assert_allclose(model.dual_coef_.sum(axis=1), 0.0, atol=1e-10)
    else:
        assert model.weights_.shape == (3, 3)
        assert not model.intercept_.any()
        assert_allclose(np.einsum("cij,cj->ic", K, model.dual_coef_), scores, atol=1e-8)
    assert_allclose(model.dual_coef_.sum(axis=0) if K.ndim == 2 else 0.0, 0.0, atol=1e-10)
    assert model.duality_gap_ <= 1e-3
    assert model.n_support_.sum() == len(model.support_)
    assert (model.predict(X) == Y).mean() > 0.9


@pytest.mark.parametrize("model", JOINT)
def test_works_under_cross_validation(model):
    assert cross_val_score(model, X, Y, cv=2).mean() > 0.9


@pytest.mark.parametrize("multi_class", ["joint", "pairwise"])
def test_classes_away_from_the_origin_need_their_constants(multi_class):
    conic = pytest.importorskip("tests.reference.joint")
    x = np.concatenate([np.random.default_rng(0).normal(c, 0.3, 30) for c in (5.0, 6.0, 7.0)])[
        :, None
    ]
    y = np.repeat([0, 1, 2], 30)
    model = MKLClassifier([Linear()], multi_class=multi_class, normalize=None, tol=1e-6).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.intercept_.shape == (3,)
    pairwise = multi_class == "pairwise"
    margins = np.full((90, 3), 2.0 if pairwise else 1.0)
    printed = conic.solve_joint_conic(x @ x.T, y, 3, np.ones(90), margins, pairwise, constants=True)
    assert model.objective_ == pytest.approx(printed, rel=1e-5)
    # On a line no plane through the origin can put one class between the others.
    without = conic.solve_joint_conic(x @ x.T, y, 3, np.ones(90), margins, pairwise)
    assert without > 1.005 * printed


def test_renaming_the_classes_changes_nothing_else():
    names = {"seto": "z", "versi": "a", "virgi": "m"}
    renamed = np.array([names[c] for c in Y])
    for model in (
        BilinearMKLClassifier(KERNELS, tol=1e-6, max_iter=500),
        MKLClassifier(KERNELS, multi_class="joint", tol=1e-6),
    ):
        here = model.fit(X, Y).predict(X), model.objective_
        there = model.fit(X, renamed).predict(X), model.objective_
        assert there[1] == pytest.approx(here[1], rel=1e-5)
        assert [names[c] for c in here[0]] == there[0].tolist()


def test_bilinear_solvers_agree():
    models = [
        BilinearMKLClassifier(KERNELS, solver=s, tol=1e-3, max_iter=2000).fit(X, Y)
        for s in ("newton", "quasi_newton", "projected_gradient")
    ]
    assert models[0].objective_ == pytest.approx(models[1].objective_, rel=2e-3)
    assert models[0].objective_ == pytest.approx(models[2].objective_, rel=2e-3)


def test_bilinear_shows_its_progress_if_asked(capsys):
    BilinearMKLClassifier(KERNELS).fit(X, Y)
    assert capsys.readouterr().out == ""
    model = BilinearMKLClassifier(KERNELS, verbose=True).fit(X, Y)
    assert f"iteration {model.n_iter_}, gap {model.duality_gap_:.1e}" in " ".join(
        capsys.readouterr().out.split()
    )


def test_bilinear_with_two_classes_and_precomputed_kernels():
    two = Y != "virgi"
    K = X @ X.T
    rows = np.flatnonzero(two).reshape(-1, 1)
    model = BilinearMKLClassifier([Precomputed(K), Precomputed((K + 1.0) ** 2)]).fit(rows, Y[two])
    scores = model.decision_function(rows)
    assert scores.shape == (len(rows),)
    assert model.intercept_.shape == (1,)
    assert_allclose(model.contributions(rows).sum(axis=1) + model.intercept_, scores, atol=1e-10)
    assert model.weights_.shape == (2, 2)
    assert (model.predict(rows) == Y[two]).all()


@pytest.mark.parametrize("multi_class", ["joint", "pairwise"])
def test_a_price_at_which_no_slack_is_left(multi_class):
    conic = pytest.importorskip("tests.reference.joint")
    some, y = X[::2], Y[::2]
    model = MKLClassifier(
        [Gaussian(1.0), Polynomial(2)], C=1e9, multi_class=multi_class, weights="uniform"
    )
    model.fit(some, y)
    assert model.duality_gap_ <= 1e-3
    assert model.score(some, y) == 1.0
    # Beyond some price the optimum stays what it is.
    pairwise = multi_class == "pairwise"
    margins = np.full((len(y), 3), 2.0 if pairwise else 1.0)
    prices = np.full(len(y), 1e4)
    K, labels = model.kernel_matrix(some), np.unique(y, return_inverse=True)[1]
    optimum = conic.solve_joint_conic(K, labels, 3, prices, margins, pairwise, constants=True)
    assert model.objective_ == pytest.approx(optimum, rel=2e-3)
    learned = MKLClassifier(
        [Gaussian(1.0), Polynomial(2), Linear()], C=1e9, multi_class=multi_class
    ).fit(some, y)
    assert learned.duality_gap_ <= 1e-3


def test_a_class_that_no_kernel_tells_apart_has_no_weights():
    model = BilinearMKLClassifier([Precomputed(np.ones((6, 6)))], normalize=None).fit(
        np.arange(6).reshape(-1, 1), [0, 0, 1, 1, 2, 2]
    )
    # Samples that are all alike are worth one slack each; no output is.
    assert model.objective_ == pytest.approx(6.0, rel=1e-3)
    K = model.kernel_matrix(np.arange(6).reshape(-1, 1))
    beta = np.zeros((3, 6))
    beta[:, model.support_] = model.dual_coef_
    assert_allclose(
        model.weights_.sum(axis=1), [b @ k @ b for b, k in zip(beta, K, strict=True)], atol=1e-6
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (BilinearMKLClassifier(kappa=0.0), "kappa=0.0: give a positive, finite number"),
        (
            BilinearMKLClassifier(solver="silp"),
            "solver='silp': choose one of 'newton', 'quasi_newton'",
        ),
        (BilinearMKLClassifier(max_iter=0), "max_iter=0"),
        (MKLClassifier(multi_class="joint", slack=2), "slack=2: multi_class='joint'"),
        (
            MKLClassifier(multi_class="joint", solver="silp"),
            "solver='silp' supports .*'ovr'.*, not CrammerSinger; use",
        ),
        (MKLClassifier(multi_class="all"), "multi_class='all': choose one of 'ovr'"),
        (PosteriorMKLClassifier(n_neighbors=0), "n_neighbors=0"),
        (
            PosteriorMKLClassifier(estimate="parzen"),
            "estimate='parzen': choose one of 'neighbors', 'density'",
        ),
        (
            PosteriorMKLClassifier(bandwidth="wide"),
            "bandwidth='wide': give a positive, finite number, or 'scott'",
        ),
        (PosteriorMKLClassifier(bandwidth=0.0), "bandwidth=0.0: give a positive, finite number"),
    ],
)
def test_wrong_parameters_are_named(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(X, Y)


def test_bilinear_names_the_memory_it_lacks():
    with pytest.raises(MemoryError, match="3 classes needs"):
        BilinearMKLClassifier([Linear()], memory_budget=2 * 8 * 75**2).fit(X, Y)


def test_hard_posteriors_are_the_plain_machines():
    for rows in (np.arange(len(Y)), np.flatnonzero(Y != "seto")):
        plain = MKLClassifier(KERNELS, multi_class="pairwise").fit(X[rows], Y[rows])
        soft = PosteriorMKLClassifier(KERNELS).fit(X[rows], hard(Y[rows]))
        labels = PosteriorMKLClassifier(KERNELS, n_neighbors=1).fit(X[rows], Y[rows])
        for other in (soft, labels):
            assert_allclose(other.weights_, plain.weights_, rtol=1e-12)
            assert_allclose(
                other.decision_function(X), plain.decision_function(X), rtol=1e-12, atol=1e-12
            )
        assert soft.classes_.tolist() == list(range(len(set(Y[rows]))))
        assert labels.predict(X).tolist() == plain.predict(X).tolist()


def test_the_binary_program_is_the_published_one():
    joint = pytest.importorskip("tests.reference.conic")
    rng = np.random.default_rng(0)
    n = 25
    A = rng.normal(size=(n, 3))
    K = A @ A.T + 1e-3 * np.eye(n)
    soft = np.clip(A[:, 0] + 0.5 * rng.normal(size=n), -1, 1)
    soft[0] = 0.0
    machine = PosteriorSVC(soft, 2.0)
    found = machine.solve(K, tol=1e-9)
    assert found.beta[0] == 0
    # The primal as it is printed, at the machine's own f: ξ = 1 − f/ŷ where positive, nothing where
    # ŷ = 0.
    f = found.values + found.intercept
    slack = np.where(soft == 0, 0.0, np.maximum(0.0, 1.0 - f / np.where(soft == 0, 1.0, soft)))
    primal = 0.5 * found.beta @ K @ found.beta + 2.0 * slack.sum()
    assert primal == pytest.approx(found.objective, rel=1e-6)
    p = machine.program
    reference = Program(p.target, p.lower, p.upper, p.ridge)
    assert found.objective == pytest.approx(joint.solve_program_conic(K, reference)[0], rel=1e-6)


def test_the_multi_class_program_is_the_published_one():
    joint = pytest.importorskip("tests.reference.joint")
    rng = np.random.default_rng(1)
    P = rng.dirichlet(np.ones(3) * 0.5, size=len(Y))
    model = PosteriorMKLClassifier([Gaussian("median")], C=0.5, tol=1e-6).fit(X, P)
    K = model.kernel_matrix(X)
    margins = 2.0 * (P.max(axis=1)[:, None] - P)
    sample_C = np.full(len(Y), 0.5)
    optimum = joint.solve_joint_conic(
        K[:40, :40], P[:40].argmax(1), 3, sample_C[:40], margins[:40], True, True
    )
    small = PosteriorMKLClassifier([Precomputed(K)], C=0.5, tol=1e-7, normalize=None)
    small.fit(np.arange(40).reshape(-1, 1), P[:40])
    assert small.objective_ == pytest.approx(optimum, rel=1e-5)


def test_labels_stay_what_they_are_where_their_posteriors_doubt_them():
    joint = pytest.importorskip("tests.reference.joint")
    rng = np.random.default_rng(6)
    A, y = rng.normal(size=(40, 2)), rng.integers(3, size=40)
    model = PosteriorMKLClassifier([Gaussian(1.0)], C=0.7, n_neighbors=6, tol=1e-7).fit(A, y)
    P = model.posteriors_
    assert np.any(P.argmax(axis=1) != y)
    margins = np.array([[2.0 * (P[i, y[i]] - P[i, c]) for c in range(3)] for i in range(40)])
    optimum = joint.solve_joint_conic(
        model.kernel_matrix(A), y, 3, np.full(40, 0.7), margins, True, constants=True
    )
    assert model.objective_ == pytest.approx(optimum, rel=1e-5)
    assert model.n_support_.tolist() == np.bincount(y[model.support_], minlength=3).tolist()


def test_posteriors_of_neighbours_against_a_loop():
    rng = np.random.default_rng(2)
    A, y = rng.normal(size=(30, 2)), rng.integers(3, size=30)
    model = PosteriorMKLClassifier([Linear()], n_neighbors=4).fit(A, y)
    for i in range(30):
        near = sorted(range(30), key=lambda j: np.linalg.norm(A[i] - A[j]))[:4]
        assert_allclose(model.posteriors_[i], np.bincount(y[near], minlength=3) / 4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bandwidth", [0.3, 2.0, "scott"])
def test_posteriors_of_densities_are_bayes_rule(bandwidth, weighted):
    rng = np.random.default_rng(4)
    A, y = rng.normal(size=(30, 2)) * [1.0, 3.0], np.repeat([0, 1, 2], [15, 9, 6])
    weight = rng.integers(1, 4, size=30).astype(float) if weighted else np.ones(30)
    model = PosteriorMKLClassifier([Linear()], estimate="density", bandwidth=bandwidth).fit(
        A, y, weight
    )
    h = bandwidth
    if bandwidth == "scott":
        within = 0.0
        for c in range(3):
            mean = sum(weight[i] * A[i] for i in range(30) if y[i] == c) / weight[y == c].sum()
            within += sum(weight[i] * (A[i] - mean) ** 2 for i in range(30) if y[i] == c)
        spread = np.sqrt(np.mean(within / weight.sum()))
        h = spread * (weight.sum() / 3) ** (-1 / 6)
    joint = np.empty((30, 3))
    for c in range(3):
        density = KernelDensity(bandwidth=h, rtol=1e-12).fit(
            A[y == c], sample_weight=weight[y == c]
        )
        joint[:, c] = np.exp(density.score_samples(A)) * weight[y == c].sum() / weight.sum()
    assert_allclose(model.posteriors_, joint / joint.sum(axis=1, keepdims=True), atol=1e-7)


def test_densities_without_width_give_hard_posteriors():
    narrow = PosteriorMKLClassifier(KERNELS, estimate="density", bandwidth=1e-200).fit(X, Y)
    plain = MKLClassifier(KERNELS, multi_class="pairwise").fit(X, Y)
    assert_allclose(narrow.posteriors_, hard(Y))
    assert_allclose(narrow.decision_function(X), plain.decision_function(X), rtol=1e-12, atol=1e-12)
    # Classes of one point each have no spread to take a width from; far samples do not vanish.
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1e6, 0.0], [1e6, 0.0], [0.0, 3.0]])
    model = PosteriorMKLClassifier([Linear()], estimate="density").fit(points, [0, 0, 1, 1, 2])
    assert_allclose(model.posteriors_, hard([0, 0, 1, 1, 2]))
    # A sample that does not count takes the posteriors of those near it.
    points[[1, 3], 1] = 0.1
    model.fit(points, [0, 0, 1, 1, 2], [1.0, 0.0, 1.0, 0.0, 1.0])
    assert_allclose(model.posteriors_, hard([0, 0, 1, 1, 2]))


def test_rounding_does_not_decide_between_equal_outputs():
    A = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [1.0, 5.0]])
    P = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    model = PosteriorMKLClassifier([Gaussian(1.0)]).fit(A, P)
    assert len(model.support_) == 4
    # A function whose outputs for the first and the last class differ by rounding, at every sample.
    model.function_.expansion.sums.beta[:] = [[0.0] * 4, [-1.0] * 4, [1e-15] * 4]
    assert model.predict(A).tolist() == [0, 0, 0, 0]


def test_noisy_labels_move_the_boundary_less():
    rng = np.random.default_rng(3)
    A = rng.uniform(-1, 1, size=(200, 1))
    truth = (A[:, 0] > 0).astype(int)
    noisy = np.where(rng.random(200) < 0.15, 1 - truth, truth)
    grid = np.linspace(-1, 1, 400)[:, None]
    kernels = [Gaussian(0.1)]

    def errors(model):
        return np.mean(model.fit(A, noisy).predict(grid) != (grid[:, 0] > 0))

    plain = errors(MKLClassifier(kernels, C=100.0))
    assert errors(PosteriorMKLClassifier(kernels, C=100.0, n_neighbors=15)) < plain
    assert errors(PosteriorMKLClassifier(kernels, C=100.0, estimate="density")) < plain


@pytest.mark.parametrize(
    ("P", "words"),
    [
        (hard(Y) * 1.5, r"must lie in \[0, 1\]; they range from 0 to 1.5"),
        (hard(Y) - 0.1, r"must lie in \[0, 1\]"),
        (hard(Y) * 0.9, "must sum to one; those of row 0 sum to 0.9"),
        (hard(Y) * np.nan, "NaN"),
        (hard(Y)[:-1], "inconsistent numbers of samples"),
    ],
)
def test_wrong_posteriors_are_refused(P, words):
    with pytest.raises(ValueError, match=words):
        PosteriorMKLClassifier(KERNELS).fit(X, P)


def test_steps_that_end_before_the_gap_is_met_are_told():
    """An unreachable tolerance ends the search early: that is a warning, not an error."""
    with pytest.warns(ConvergenceWarning, match="above tol=1e-13"):
        model = BilinearMKLClassifier(KERNELS, tol=1e-13).fit(X[::3], Y[::3])
    assert len(model.history_) < model.max_iter


@pytest.mark.parametrize("estimate", [neighbor_posteriors, density_posteriors])
def test_posteriors_do_not_depend_on_the_strips_distances_come_in(estimate):
    rng = np.random.RandomState(0)
    X, members = rng.randn(50, 2), np.eye(3)[rng.randint(0, 3, 50)]
    whole = estimate(X, members, 5)
    # A product with fewer rows may round otherwise.
    np.testing.assert_allclose(estimate(X, members, 5, block_distances=120), whole, rtol=1e-12)
