"""C = ∞: the machine without slack, beside a conic program and LIBSVM."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.learning.certificate import Entries
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.hard_margin import learn_hard_margin

KERNELS = [("line", Linear()), ("square", Polynomial()), ("bell", Gaussian())]


def separable(n=60, gap=0.3):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((n, 3))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)
    X[:, 0] += gap * y
    return X, y


def conic_value(kernels, y):
    """min ½(Σ‖w_m‖)² subject to y f ≥ 1, from its dual: max Σα − t, t ≥ ½ (α∘y)ᵀK_m(α∘y), α ≥ 0,
    yᵀα = 0."""
    clarabel = pytest.importorskip("clarabel")
    from scipy import sparse

    n = len(y)
    # Variables (α, s), s = √(2t): maximise Σα − ½s², with s ≥ ‖Rᵀ(α∘y)‖ for each kernel K = RRᵀ.
    P = sparse.csc_matrix(([1.0], ([n], [n])), shape=(n + 1, n + 1))
    rows = [np.append(y, 0.0)[np.newaxis], np.hstack([-np.eye(n), np.zeros((n, 1))])]
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)]
    for K in kernels:
        values, vectors = np.linalg.eigh(K)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T * y
        rows.append(np.vstack([np.append(np.zeros(n), -1.0), np.hstack([-root, np.zeros((n, 1))])]))
        cones.append(clarabel.SecondOrderConeT(n + 1))
    A = np.vstack(rows)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cost = np.append(-np.ones(n), 0.0)
    found = clarabel.DefaultSolver(
        P, cost, sparse.csc_matrix(A), np.zeros(len(A)), cones, settings
    ).solve()
    return -found.obj_val


def matrices(X):
    return [
        MKLClassifier([kernel], weights="uniform").fit(X, X[:, 0] > 0).kernel_matrix(X)
        for _, kernel in KERNELS
    ]


def test_learned_weights_reach_the_optimum_of_a_conic_program():
    X, y = separable()
    model = MKLClassifier(KERNELS, C=np.inf, tol=1e-5).fit(X, y)
    assert model.duality_gap_ <= 1e-5
    assert_allclose(model.objective_, conic_value(matrices(X), y), rtol=2e-5)
    margins = y * model.decision_function(X)
    assert margins.min() > 1 - 1e-4
    # Support vectors are on the margin.
    assert np.all(margins[model.support_] < 1 + 0.05)
    assert_allclose(model.weights_.sum(), 1.0)


@pytest.mark.parametrize("slack", [1, 2])
def test_given_weights_are_the_machine_of_libsvm(slack):
    X, y = separable()
    model = MKLClassifier(KERNELS, C=np.inf, weights=[0.2, 0.3, 5.0], tol=1e-8, slack=slack).fit(
        X, y
    )
    K = model.kernel_matrix(X)
    theirs = SVC(C=1e12, kernel="precomputed", tol=1e-9).fit(K, y)
    assert_allclose(model.decision_function(X), theirs.decision_function(K), rtol=1e-5, atol=1e-5)
    w2 = float(
        theirs.dual_coef_[0] @ K[np.ix_(theirs.support_, theirs.support_)] @ theirs.dual_coef_[0]
    )
    assert_allclose(model.objective_, 0.5 * w2, rtol=1e-6)


def test_one_versus_rest_and_scales_and_weights_of_samples():
    X, y = load_iris(return_X_y=True)
    kernels = [Gaussian(), Linear()]
    model = MKLClassifier(kernels, C=np.inf).fit(X, y)
    assert model.score(X, y) == 1.0
    assert model.duality_gap_ <= model.tol
    # Without slack no sample weighs more than another.
    weighted = MKLClassifier(kernels, C=np.inf, class_weight="balanced").fit(
        X, y, np.linspace(0.1, 5, len(y))
    )
    assert_allclose(weighted.objective_, model.objective_, rtol=2e-3)
    # Nor does the scale of a kernel decide whether the classes are separable.
    for scale in (1e-3, 1e3):
        scaled = MKLClassifier([scale * Gaussian()], C=np.inf, normalize=None).fit(X, y)
        assert_allclose(
            scaled.objective_ * scale,
            MKLClassifier([Gaussian()], C=np.inf).fit(X, y).objective_,
            rtol=2e-3,
        )


@pytest.mark.parametrize(
    ("weights", "approximation"), [(None, None), (None, "nystroem"), ("uniform", None)]
)
def test_classes_that_overlap_are_an_error(weights, approximation):
    rng = np.random.RandomState(0)
    X, y = rng.standard_normal((80, 2)), rng.randint(2, size=80)
    model = MKLClassifier(
        [Linear(), Polynomial()], C=np.inf, weights=weights, approximation=approximation
    )
    with pytest.raises(ValueError, match=r"C=inf: the classes are not separable .* finite C"):
        model.fit(X, y)


def test_the_same_sample_in_both_classes_is_an_error():
    X, y = separable()
    X, y = np.vstack([X, X[:1]]), np.append(y, -y[0])
    with pytest.raises(ValueError, match="not separable"):
        MKLClassifier([Gaussian()], C=np.inf).fit(X, y)


def test_features_on_request_and_a_search_over_c():
    X, y = separable()
    exact = MKLClassifier(KERNELS, C=np.inf).fit(X, y)
    features = MKLClassifier(
        KERNELS, C=np.inf, approximation="nystroem", rank=60, random_state=0
    ).fit(X, y)
    assert_allclose(features.objective_, exact.objective_, rtol=5e-3)
    search = GridSearchCV(MKLClassifier([Gaussian()]), {"C": [1.0, np.inf]}, cv=3).fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_joint_machines_need_a_slack():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="C=inf needs multi_class='ovr', not multi_class='joint'"):
        MKLClassifier(C=np.inf, multi_class="joint").fit(X, y)
    with pytest.raises(
        ValueError, match=r"C=-inf: give a positive number; np\.inf allows no slack"
    ):
        MKLClassifier(C=-np.inf).fit(X, y)


def test_a_gap_that_is_not_met_is_warned_of():
    X, y = separable()
    with pytest.warns(ConvergenceWarning, match="relative duality gap"):
        MKLClassifier(KERNELS, C=np.inf, tol=1e-6, max_iter=1).fit(X, y)


def test_c_grows_no_further_once_rounding_exceeds_the_margin():
    # Entries that are differences of numbers of 10¹⁶ are off by one: no C leads to a margin that is
    # known.
    y = np.array([1.0, 1.0, -1.0, -1.0])
    for size, low, high, solves in (
        (1.0, 0.0, 1e-3, 1),
        (1e14, 0.1, 10.0, 5),
        (1e16, np.inf, np.inf, 1),
    ):
        learner, stack = FixedWeights(np.ones(1), 1e-3), StoredStack(np.eye(4)[np.newaxis])
        found = learn_hard_margin(learner, Entries(stack, np.full((1, 4), size)), y, 1.0, 1e-3)
        assert low <= found.gap <= high
        assert found.n_solves == solves
