"""Gates shared by all classes of a joint machine: against conic programs, global machines and naive
loops."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from kernelmosaic import LocalizedMKLClassifier, MKLClassifier
from kernelmosaic.gating import Constant, Softmax
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Projected

X, CODES = load_iris(return_X_y=True)
X, CODES = X[::5] + 0.3 * np.random.RandomState(0).normal(size=(30, 4)), CODES[::5]
Y = np.array(["seto", "versi", "virgi"])[CODES]
KERNELS = [("line", Linear()), ("square", Polynomial()), ("bell", Gaussian(2.0))]
PROJECTED = [("flat", Projected(Linear(), 1)), ("round", Projected(Gaussian(2.0), 2))]
MACHINES = pytest.mark.parametrize("multi_class", ["joint", "pairwise"])
#: The first two tests have every machine with both kinds of kernels; where one of each kind is to
#: be met, two pairs do.
PAIRED = pytest.mark.parametrize(
    ("multi_class", "kernels"), [("joint", PROJECTED), ("pairwise", KERNELS)]
)


def half(setting, other=False):
    """The setting with both machines and both kinds of kernels; with the other half of settings,
    every two have met."""
    pairs = (
        [("joint", PROJECTED), ("pairwise", KERNELS)]
        if other
        else [("joint", KERNELS), ("pairwise", PROJECTED)]
    )
    return [
        pytest.param(setting, machine, kernels, id=f"{setting}-{machine}-{kernels[0][0]}")
        for machine, kernels in pairs
    ]


class Given(Softmax):
    """Softmax gates that start where they are told."""

    def __init__(self, V=None):
        self.V = V

    def init(self, rng, n_features, n_kernels):
        return np.array(self.V, dtype=float)


def fitted(kernels, y=Y, **options):
    options = {"n_init": 1, "max_iter": 4, "C": 2.0} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LocalizedMKLClassifier(kernels, **options).fit(X, y)


@pytest.mark.parametrize(
    ("gating", "multi_class", "kernels"), [*half("softmax"), *half("sigmoid", other=True)]
)
def test_the_machine_is_the_published_one_on_the_combined_kernel(multi_class, kernels, gating):
    model = fitted(kernels, multi_class=multi_class, gating=gating, tol=1e-6, max_iter=2)
    conic = pytest.importorskip("tests.reference.joint")
    pairwise = multi_class == "pairwise"
    margins = np.full((len(Y), 3), 2.0 if pairwise else 1.0)
    optimum = conic.solve_joint_conic(
        model.kernel_matrix(X), CODES, 3, np.full(len(Y), 2.0), margins, pairwise, True
    )
    assert model.objective_ == pytest.approx(optimum, rel=1e-5)
    assert model.duality_gap_ <= 1e-6


@pytest.mark.parametrize(
    ("normalize", "multi_class", "kernels"),
    [*half("trace"), *half("diagonal", other=True), *half("centered"), *half(None, other=True)],
)
def test_gates_contributions_and_coefficients_make_the_decision(multi_class, kernels, normalize):
    # Kernels as they are differ by orders of magnitude: a lower price keeps the machine quick.
    model = fitted(
        kernels,
        multi_class=multi_class,
        normalize=normalize,
        C=2.0 if normalize else 0.01,
        max_iter=1,
    )
    new = np.random.RandomState(1).normal(5.0, 1.0, size=(11, 4))
    gates, scores, terms = model.gate(new), model.decision_function(new), model.contributions(new)
    P = len(kernels)
    assert gates.shape == (11, P)
    assert terms.shape == (11, P, 3)
    assert_allclose(terms.sum(axis=1) + model.intercept_, scores, atol=1e-10)
    assert model.intercept_.shape == (3,)
    rows = model.support_
    dual = model.kernel_matrix(new, X[rows]) @ model.dual_coef_.T
    assert_allclose(dual + model.intercept_, scores, atol=1e-8)
    assert_allclose(model.dual_coef_.sum(axis=1), 0.0, atol=1e-10)
    # Kernel by kernel and sample by sample, from the gates and the plain kernels.
    kernel_set, own = model.function_.expansions[0].kernel_set, model.gate(X[rows])
    for m, piece in enumerate(kernel_set.fitted):
        rule = piece.normalization
        K = rule.block(piece.kernel(new, X[rows]), rule.row_scale(new), rule.row_scale(X[rows]))
        for i in range(11):
            expected = sum(
                gates[i, m] * K[i, j] * own[j, m] * model.dual_coef_[:, j] for j in range(len(rows))
            )
            assert_allclose(terms[i, m], expected, atol=1e-8)
    assert_array_equal(model.predict(new), model.classes_[scores.argmax(axis=1)])


@MACHINES
def test_the_fitted_attributes_have_one_set_of_gates(multi_class):
    model = fitted(KERNELS, multi_class=multi_class)
    assert model.weights_.shape == (3,)
    assert_allclose(model.weights_, model.gate(X).mean(axis=0))
    assert model.gating_params_["coef"].shape == (3, 4)
    assert model.dual_coef_.shape == (3, len(model.support_))
    assert np.all(np.any(model.dual_coef_ != 0, axis=0))
    assert_allclose(model.dual_coef_.sum(axis=0), 0.0, atol=1e-10)
    assert_array_equal(model.n_support_, np.bincount(CODES[model.support_], minlength=3))
    # A sample counts for its own class and against the others.
    own = CODES[model.support_][:, np.newaxis] == np.arange(3)
    assert np.all(np.where(own, model.dual_coef_.T >= 0, model.dual_coef_.T <= 0))
    assert model.kernel_matrix(X).shape == (30, 30)
    assert model.support_fraction_ == len(model.support_) / 30
    assert model.score(X, Y) > 0.9


@MACHINES
def test_one_kernel_is_the_plain_machine_and_given_constants_the_global_combination(multi_class):
    options = {"C": 2.0, "multi_class": multi_class}
    one = fitted([Gaussian(2.0)], tol=1e-6, **options)
    plain = MKLClassifier([Gaussian(2.0)], tol=1e-8, **options).fit(X, Y)
    assert_allclose(one.decision_function(X), plain.decision_function(X), atol=1e-3)
    assert one.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    weights = [0.5, 0.2, 0.3]
    fixed = fitted(KERNELS, gating=Constant(weights), tol=1e-6, **options)
    globally = MKLClassifier(KERNELS, weights=weights, tol=1e-8, **options).fit(X, Y)
    assert_allclose(fixed.decision_function(X), globally.decision_function(X), atol=1e-3)
    assert fixed.objective_ == pytest.approx(globally.objective_, rel=1e-6)
    assert_allclose(fixed.kernel_matrix(X[:5]), globally.kernel_matrix(X[:5]), rtol=1e-9)


@PAIRED
def test_two_classes_are_the_binary_machine(multi_class, kernels):
    y = Y == "virgi"
    here, there = fitted(kernels, y, multi_class=multi_class), fitted(kernels, y)
    assert_array_equal(here.decision_function(X), there.decision_function(X))
    assert_array_equal(here.gate(X), there.gate(X))
    assert here.objective_ == there.objective_


@MACHINES
def test_permuting_kernels_permutes_the_result(multi_class):
    V = np.random.RandomState(0).normal(size=(3, 5))
    order = [2, 0, 1]
    options = {"multi_class": multi_class, "tol": 1e-8, "max_iter": 2}
    one = fitted(KERNELS, gating=Given(V), **options)
    other = fitted([KERNELS[m] for m in order], gating=Given(V[order]), **options)
    assert not np.allclose(
        one.gate(X),
        fitted(KERNELS, gating=Given(V), **options | {"max_iter": 1}).gate(X),
        atol=0.01,
    )
    assert_allclose(other.gate(X), one.gate(X)[:, order], atol=1e-4)
    assert_allclose(other.decision_function(X), one.decision_function(X), atol=1e-2)
    assert other.kernel_names_ == [one.kernel_names_[m] for m in order]


@PAIRED
def test_permuting_classes_permutes_the_outputs(multi_class, kernels):
    renamed = np.array([{"seto": "z", "versi": "a", "virgi": "m"}[c] for c in Y])
    options = {"multi_class": multi_class, "tol": 1e-8, "max_iter": 2}
    one, other = fitted(kernels, **options), fitted(kernels, renamed, **options)
    assert_allclose(other.gate(X), one.gate(X), atol=1e-4)
    assert_allclose(other.decision_function(X), one.decision_function(X)[:, [1, 2, 0]], atol=1e-2)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-5)


@MACHINES
@pytest.mark.parametrize("step", ["lbfgs", "armijo"])
def test_the_objective_never_rises(multi_class, step):
    model = fitted(KERNELS, multi_class=multi_class, step=step, max_iter=4)
    values = [line["objective"] for line in model.history_]
    assert len(values) == model.n_iter_ + 1 > 2
    assert np.all(np.diff(values) < 0)
    assert values[-1] == model.objective_


@PAIRED
def test_seeds_reproduce_and_restarts_do_not_worsen(multi_class, kernels):
    model = LocalizedMKLClassifier(
        kernels, multi_class=multi_class, n_init=1, max_iter=1, random_state=3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first, again = clone(model).fit(X, Y), clone(model).fit(X, Y)
        several = clone(model).set_params(n_init=2).fit(X, Y)
        other = clone(model).set_params(random_state=4).fit(X, Y)
    assert_array_equal(first.decision_function(X), again.decision_function(X))
    assert not np.array_equal(first.gate(X), other.gate(X))
    assert several.objective_ <= first.objective_ + 1e-9
    assert several.n_solves_ > first.n_solves_


@MACHINES
def test_classes_share_their_projections(multi_class):
    model = fitted(PROJECTED, multi_class=multi_class, max_iter=2)
    assert model.transform(X).shape == (30, 3)
    start = [kernel.fit(X).W_ for _, kernel in PROJECTED]
    learned = [piece.kernel.W_ for piece in model.function_.expansions[0].kernel_set.fitted]
    assert_allclose(model.transform(X), np.hstack([X @ W for W in learned]))
    assert not np.allclose(learned[0], start[0])
    assert fitted(PROJECTED, max_iter=1).transform(X).shape == (30, 9)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"multi_class": "all"},
            ValueError,
            "multi_class='all': choose one of 'ovr', 'ovr-shared', 'joint', 'pair",
        ),
        ({"multi_class": "joint", "slack": 2}, ValueError, "slack=2: multi_class='joint'"),
        ({"C": "learn", "slack": 2}, TypeError, "C='learn': give a positive, finite number"),
        ({"n_iter_no_change": 0}, ValueError, "n_iter_no_change=0: give a whole number"),
    ],
)
def test_wrong_parameters_are_named(options, error, words):
    with pytest.raises(error, match=words):
        LocalizedMKLClassifier(KERNELS, **options).fit(X, Y)
