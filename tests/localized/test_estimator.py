"""The localized estimators: against LIBSVM, against global machines, and their own promises."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

from kernelmosaic import (
    LocalizedMKLClassifier,
    LocalizedMKLOneClass,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
)
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.gating import Constant, Sigmoid, Softmax
from kernelmosaic.kernels import (
    Categorical,
    Gaussian,
    Linear,
    Polynomial,
    Precomputed,
    Projected,
    Spectrum,
)

X, Y = make_gaussians(4, 120, random_state=0)
T = np.sin(X[:, 0]) + 0.3 * X[:, 1]
KERNELS = [Linear(), Polynomial(), Gaussian(3.0)]


class Given(Softmax):
    """Softmax gates that start where they are told."""

    def __init__(self, V=None):
        self.V = V

    def init(self, rng, n_features, n_kernels):
        return np.array(self.V, dtype=float)


@pytest.mark.parametrize("gating", ["softmax", "sigmoid", "constant", "gaussian"])
def test_the_machine_is_libsvms_on_the_combined_kernel(gating):
    model = LocalizedMKLClassifier(KERNELS, C=3.0, gating=gating, tol=1e-5, n_init=1, max_iter=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    K = model.kernel_matrix(X)
    other = SVC(C=3.0, kernel="precomputed", tol=1e-8).fit(K, Y)
    assert_allclose(model.decision_function(X), other.decision_function(K), atol=2e-3)
    beta = other.dual_coef_[0]
    value = np.abs(beta).sum() - 0.5 * beta @ K[np.ix_(other.support_, other.support_)] @ beta
    assert_allclose(model.objective_, value, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_regression_is_libsvms_on_the_combined_kernel():
    model = LocalizedMKLRegressor(
        [Linear(), Gaussian(3.0)], C=3.0, epsilon=0.1, tol=1e-4, n_init=1, max_iter=8
    )
    model.fit(X, T)
    K = model.kernel_matrix(X)
    other = SVR(C=3.0, epsilon=0.1, kernel="precomputed", tol=1e-8).fit(K, T)
    assert_allclose(model.predict(X), other.predict(K), atol=5e-3)


def test_one_class_is_libsvms_on_the_combined_kernel():
    model = LocalizedMKLOneClass([Gaussian(1.0), Gaussian(4.0)], nu=0.2, tol=1e-4, n_init=1).fit(X)
    K = model.kernel_matrix(X)
    other = OneClassSVM(nu=0.2, kernel="precomputed", tol=1e-8).fit(K)
    # LIBSVM's problem is ours times ν n.
    assert_allclose(
        model.decision_function(X) * 0.2 * len(X), other.decision_function(K), atol=5e-3
    )


@pytest.mark.parametrize(
    ("local", "plain", "target"),
    [
        (LocalizedMKLClassifier, MKLClassifier, Y),
        (LocalizedMKLRegressor, MKLRegressor, T),
        (LocalizedMKLOneClass, MKLOneClass, None),
    ],
)
def test_one_kernel_is_the_plain_machine_and_given_constants_the_global_combination(
    local, plain, target
):
    price = {} if target is None else {"C": 2.0}
    one = local([Gaussian(3.0)], tol=1e-8, **price).fit(X, target)
    other = plain([Gaussian(3.0)], tol=1e-8, **price).fit(X, target)
    method = "predict" if plain is MKLRegressor else "decision_function"
    assert_allclose(getattr(one, method)(X), getattr(other, method)(X), atol=1e-3)
    assert_allclose(one.weights_, [1.0])
    weights = [0.5, 0.2, 0.3]
    fixed = local(KERNELS, gating=Constant(weights), tol=1e-8, **price).fit(X, target)
    globally = plain(KERNELS, weights=weights, tol=1e-8, **price).fit(X, target)
    assert_allclose(getattr(fixed, method)(X), getattr(globally, method)(X), atol=1e-3)
    assert_allclose(fixed.objective_, globally.objective_, rtol=1e-5)
    assert_allclose(fixed.kernel_matrix(X[:5]), globally.kernel_matrix(X[:5]), rtol=1e-9)


def test_contributions_gates_and_outputs_belong_together():
    model = LocalizedMKLClassifier(KERNELS, n_init=1).fit(X, Y)
    grid = np.random.RandomState(0).normal(scale=3, size=(17, 2))
    terms, gates = model.contributions(grid), model.gate(grid)
    assert terms.shape == gates.shape == (17, 3)
    assert_allclose(gates.sum(axis=1), 1.0)
    assert_allclose(terms.sum(axis=1) + model.intercept_, model.decision_function(grid))
    K = model.kernel_matrix(grid, X[model.support_])
    assert_allclose(K @ model.dual_coef_[0] + model.intercept_, model.decision_function(grid))
    assert_allclose(model.weights_, model.gate(X).mean(axis=0))
    used = model.gate(X[model.support_]) * np.abs(model.dual_coef_[0])[:, np.newaxis]
    active = used.max(axis=0) > 1e-12 * used.max()
    assert_allclose(
        model.cost([1, 2, 4]), len(model.support_) * np.array([1, 2, 4])[active].sum() / 7
    )


@pytest.mark.parametrize("approximation", [None, "nystroem"])
def test_skipping_changes_nothing_but_the_work(approximation):
    rng = np.random.RandomState(0)
    cluster = rng.randint(3, size=200)
    far = np.array([[-40.0, 0.0], [0.0, 40.0], [40.0, 0.0]])[cluster] + rng.normal(size=(200, 2))
    y = np.where(far[:, 1] - 40 * (cluster == 1) > 0, 1, -1)
    V = 30 * np.array([[-1.0, -0.5, 0.0], [0.0, 1.0, 0.0], [1.0, -0.5, 0.0]])
    model = LocalizedMKLClassifier([Gaussian(9.0)] * 3, gating=Given(V), n_init=1, max_iter=1)
    if approximation is not None:
        model.set_params(approximation=approximation, rank=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(far, y)
    gates = model.function_.gates(far)
    skipping = model.function_.expansions[0]
    everything = replace(skipping, skip=False)
    size = 3 * len(model.support_) if approximation is None else sum(map(len, skipping.sums.w))
    each = zip(skipping.kept, skipping.sums.sizes(), strict=True)
    work = sum(len(skipping._rows(slice(0, len(far)), gates, m)) * own for m, own in each)
    assert work < 0.5 * len(far) * size
    K = model.kernel_matrix(far, far[model.support_])
    assert_allclose(
        model.decision_function(far), K @ model.dual_coef_[0] + model.intercept_, atol=1e-9
    )
    assert_allclose(skipping.values(far, gates), everything.values(far, gates), atol=1e-9)
    assert_allclose(skipping.terms(far, gates), everything.terms(far, gates), atol=1e-9)


@pytest.mark.parametrize("step", ["lbfgs", "armijo"])
def test_the_objective_never_rises(step):
    model = LocalizedMKLClassifier(KERNELS, step=step, n_init=1, max_iter=20, tol=1e-2).fit(X, Y)
    values = [line["objective"] for line in model.history_]
    assert len(values) == model.n_iter_ + 1 > 1
    assert np.all(np.diff(values) < 0)
    assert values[-1] == model.objective_
    assert model.duality_gap_ <= 1e-2


def test_permuting_kernels_permutes_the_result():
    V = np.random.RandomState(0).normal(size=(3, 3))
    order = [2, 0, 1]
    # A few tightly solved steps: later ones would enlarge what rounding makes of the other order.
    options = {"n_init": 1, "tol": 1e-7, "max_iter": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = LocalizedMKLClassifier(KERNELS, gating=Given(V), **options).fit(X, Y)
        other = LocalizedMKLClassifier(
            [KERNELS[m] for m in order], gating=Given(V[order]), **options
        ).fit(X, Y)
    assert not np.allclose(
        one.gate(X), Softmax().values(V, (X - X.mean(axis=0)) / X.std(axis=0)), atol=0.01
    )
    assert_allclose(other.gate(X), one.gate(X)[:, order], atol=1e-4)
    assert_allclose(other.decision_function(X), one.decision_function(X), atol=1e-2)
    assert other.kernel_names_ == [one.kernel_names_[m] for m in order]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_seeds_reproduce_and_restarts_do_not_worsen():
    model = LocalizedMKLClassifier([Linear()] * 3, n_init=1, max_iter=3, random_state=3)
    first, again = clone(model).fit(X, Y), clone(model).fit(X, Y)
    assert_array_equal(first.decision_function(X), again.decision_function(X))
    other = clone(model).set_params(random_state=4).fit(X, Y)
    assert not np.array_equal(first.gate(X), other.gate(X))
    several = clone(model).set_params(n_init=2).fit(X, Y)
    assert several.objective_ <= first.objective_ + 1e-9
    assert several.n_solves_ > first.n_solves_


def test_local_kernels_beat_the_global_combination():
    train, test = make_gaussians(4, 600, random_state=1), make_gaussians(4, 5000, random_state=2)
    local = LocalizedMKLClassifier([Linear()] * 3).fit(*train)
    plain = MKLClassifier([Linear()], C=10.0).fit(*train)
    assert local.score(*test) > plain.score(*test) + 0.02
    assert local.support_fraction_ < plain.support_fraction_


def test_gates_are_reported_in_the_users_units():
    scaled = X * [100.0, 0.01] + [5000.0, -3.0]
    model = LocalizedMKLClassifier([Gaussian("median"), Gaussian(0.5)], n_init=1).fit(scaled, Y)
    params = model.gating_params_
    scores = scaled @ params["coef"].T + params["intercept"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert_allclose(model.gate(scaled), powers / powers.sum(axis=1, keepdims=True), atol=1e-6)


def test_several_classes_have_gates_of_their_own():
    y = np.where(Y > 0, "a", np.where(X[:, 0] > 1, "b", "c"))
    model = LocalizedMKLClassifier([Linear(), Linear()], n_init=1).fit(X, y)
    assert model.gate(X).shape == (120, 2, 3)
    assert model.weights_.shape == (3, 2)
    assert model.kernel_matrix(X).shape == (3, 120, 120)
    assert model.decision_function(X).shape == (120, 3)
    assert len(model.gating_params_) == 3
    assert_allclose(
        model.contributions(X).sum(axis=1) + model.intercept_, model.decision_function(X)
    )


def test_gates_may_read_other_columns_than_the_kernels():
    frame = pd.DataFrame(np.column_stack([X, np.sign(X[:, 0])]), columns=["a", "b", "side"])
    kernels = [("one", Linear(), ["a", "b"]), ("two", Linear(), ["a", "b"])]
    model = LocalizedMKLClassifier(kernels, gating_columns=["side"], n_init=1).fit(frame, Y)
    gates = model.gate(frame)
    assert len(np.unique(np.round(gates, 9), axis=0)) == 2
    assert model.gating_params_["coef"].shape == (2, 1)
    with pytest.raises(ValueError, match=r"gating_columns=\['sid'\]"):
        LocalizedMKLClassifier(kernels, gating_columns=["sid"]).fit(frame, Y)


def test_gates_in_the_space_of_a_kernel():
    K = [np.asarray(kernel(X)) for kernel in (Linear(), Polynomial())]
    rows = np.arange(len(X))[:, np.newaxis]
    kernels = [Precomputed(K[0]), Precomputed(K[1])]
    with pytest.raises(ValueError, match="gating_kernel"):
        LocalizedMKLClassifier(kernels).fit(rows, Y)
    model = LocalizedMKLClassifier(kernels, gating_kernel=Precomputed(K[0]), n_init=1, max_iter=1)
    with pytest.warns(ConvergenceWarning):
        model.fit(rows, Y)
    assert model.gating_params_["coef"].shape == (2, 2)
    # The principal coordinates of a linear kernel are a rotation of the columns, so scores are
    # affine in them.
    gates = model.gate(rows)
    assert 0 < gates.min() < gates.max() < 1
    scores = np.log(gates[:, 0] / gates[:, 1])
    columns = np.column_stack([X, np.ones(len(X))])
    assert_allclose(columns @ np.linalg.lstsq(columns, scores, rcond=None)[0], scores, atol=1e-6)


def test_sequences_can_be_gated():
    rng = np.random.RandomState(0)
    words = np.array(["".join(rng.choice(list("ACGT"), 20)) for _ in range(40)])
    y = np.array([w.count("A") > 5 for w in words])
    model = LocalizedMKLClassifier([Spectrum(2), Spectrum(3)], gating_kernel=Spectrum(1), n_init=1)
    model.fit(words[:, np.newaxis], y)
    assert model.gate(words[:, np.newaxis]).shape == (40, 2)
    assert model.score(words[:, np.newaxis], y) > 0.8


def test_projections_are_learned_and_transform():
    rng = np.random.RandomState(0)
    wide = np.column_stack([X[:100], 6 * rng.normal(size=(100, 6))])
    model = LocalizedMKLClassifier(
        [Projected(Gaussian(4.0), 2)], C=10.0, max_iter=25, tol=1e-2
    ).fit(wide, Y[:100])
    start = Projected(Gaussian(4.0), 2).fit(wide)
    assert model.transform(wide).shape == (100, 2)
    W = model.function_.expansions[0].kernel_set.fitted[0].kernel.W_
    assert_allclose(model.transform(wide), wide @ W)
    share = np.linalg.norm(W[:2]) / np.linalg.norm(W)
    assert share > 2 * np.linalg.norm(start.W_[:2]) / np.linalg.norm(start.W_)
    values = [line["objective"] for line in model.history_]
    assert values[-1] < 0.8 * values[0]
    local = LocalizedMKLClassifier(
        [Projected(Linear(), 1), Projected(Linear(), 1)], n_init=1, tol=0.3
    )
    assert local.fit(wide, Y[:100]).transform(wide).shape == (100, 2)
    assert not hasattr(LocalizedMKLClassifier([Linear()]), "transform")


def test_of_random_projections_each_start_has_others():
    wide = np.column_stack([X[:60], np.random.RandomState(0).normal(size=(60, 4))])
    ends = []
    for n_init in (1, 4):
        model = LocalizedMKLClassifier(
            [Projected(Linear(), 1, init="random")], n_init=n_init, max_iter=1, tol=0.5
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            ends.append(model.fit(wide, Y[:60]).objective_)
    assert ends[1] < ends[0]  # one kernel has no gates to start elsewhere: only its projection does


def test_parameters_of_kernels_are_within_reach_of_a_search():
    model = LocalizedMKLClassifier(
        [("one", Gaussian(1.0)), ("two", Gaussian(3.0))], n_init=1, tol=0.1
    )
    search = GridSearchCV(
        model, {"kernels__one__width": [0.5, 2.0], "gating": ["softmax", "constant"]}, cv=2
    ).fit(X, Y)
    assert len(search.cv_results_["params"]) == 4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"gating": "sofmax"}, "gating='sofmax'"),
        ({"step": "newton"}, "step='newton'"),
        ({"n_init": 0}, "n_init=0"),
        ({"max_iter": 2.5}, "max_iter=2.5"),
        ({"C": -1.0}, "C=-1.0"),
        ({"tol": 0.0}, "tol=0.0"),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        LocalizedMKLClassifier(**parameters).fit(X, Y)
    with pytest.raises(TypeError, match="gating_kernel='rbf'"):
        LocalizedMKLClassifier(gating_kernel="rbf").fit(X, Y)


def test_too_few_iterations_are_told():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        LocalizedMKLClassifier([Linear()] * 3, max_iter=1, n_init=1).fit(X, Y)


def test_a_small_memory_budget_changes_nothing():
    model = LocalizedMKLClassifier(KERNELS, n_init=1, tol=1e-2)
    stored = clone(model).fit(X, Y)
    computed = clone(model).set_params(memory_budget=1.5 * 8 * 120**2).fit(X, Y)
    assert_allclose(computed.objective_, stored.objective_, rtol=1e-3)


def naive_alternation(kernels, Z, y, V, C, n_steps=50, size=0.01):
    """The published algorithm written out: solve the machine, then a fixed step down the printed
    gradient.

    The paper scales kernels to trace 1 beforehand.
    """
    A = np.column_stack([Z, np.ones(len(Z))])
    for _ in range(n_steps):
        scores = A @ V.T
        eta = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        K = sum(np.outer(eta[:, m], eta[:, m]) * kernels[m] for m in range(len(kernels)))
        machine = SVC(C=C, kernel="precomputed", tol=1e-9).fit(K, y)
        b = np.zeros(len(y))
        b[machine.support_] = machine.dual_coef_[0]
        slope = np.zeros_like(V)
        for m in range(len(V)):
            for k in range(len(V)):
                W = np.outer(b * eta[:, k], b * eta[:, k]) * kernels[k]
                part = float(m == k) - eta[:, m]
                slope[m] -= 0.5 * ((W.sum(axis=1) * part) @ A + (W.sum(axis=0) * part) @ A)
        V = V - size * slope
    return V


def test_inputs_as_they_are_and_a_small_start_are_the_published_algorithm():
    rng = np.random.RandomState(0)
    X = np.column_stack([3.0 + rng.standard_normal(40), 0.2 * rng.standard_normal(40)])
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    gating = Softmax(scale=0.01, standardize=False)
    options = {
        "normalize": None,
        "step": "fixed",
        "n_init": 1,
        "C": 200.0,
        "tol": 1e-9,
        "gating_columns": [0, 1],
    }
    matrices = [X @ X.T, (X @ X.T + 1.0) ** 2]
    traces = [np.trace(K) for K in matrices]
    scaled = [
        kernel * (1.0 / trace)
        for kernel, trace in zip((Linear(), Polynomial()), traces, strict=True)
    ]
    model = LocalizedMKLClassifier(scaled, gating=gating, **options).fit(X, y)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=1)[0]
    V = np.random.RandomState(seed).normal(scale=0.01, size=(2, 3))
    V = naive_alternation(
        [K / trace for K, trace in zip(matrices, traces, strict=True)], X, y, V, 200.0
    )
    assert_allclose(model.gating_params_["coef"], V[:, :-1], rtol=1e-4, atol=1e-5)
    assert_allclose(model.gating_params_["intercept"], V[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kernel", [None, Gaussian(1.0)])
def test_standardising_is_a_matter_of_units(kernel):
    # Columns of mean 0 and deviation 1 are what they are either way.
    X = StandardScaler().fit_transform(np.random.RandomState(0).standard_normal((50, 2)))
    y = X[:, 0] * X[:, 1] > 0
    gates = []
    for standardize in (True, False):
        gating = Sigmoid(scale=0.0, standardize=standardize)
        model = LocalizedMKLClassifier(
            [Linear(), Polynomial()],
            gating=gating,
            gating_kernel=kernel,
            n_init=1,
            step="fixed",
            max_iter=20,
            tol=1e-9,
        )
        gates.append(model.fit(X, y).gate(X))
    if kernel is None:
        assert_allclose(*gates, atol=1e-6)
    else:
        assert np.abs(gates[0] - gates[1]).max() > 1e-3


def test_gates_of_words_are_refused():
    words = pd.DataFrame({"word": ["yes", "no"] * 60, "number": X[:, 0]})
    with pytest.raises(ValueError, match=r"gates need numbers, .* gating_columns"):
        LocalizedMKLClassifier([("word", Categorical(), ["word"])], gating_columns=["word"]).fit(
            words, Y
        )
