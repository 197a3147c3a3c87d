"""Estimators in features: equal to the exact ones at full rank, wherever the samples are, and
within their memory."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from tests.sweeps import later, thinned

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLOneClass,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    PosteriorMKLClassifier,
    load,
    save,
)
from kernelmosaic.discriminant.learning import (
    DISCRIMINANT_SOLVERS,
    centered_traces,
    trace_penalties,
)
from kernelmosaic.discriminant.machine import Discriminant, binary_targets, class_targets
from kernelmosaic.engine.expansion import _BLOCK_BYTES
from kernelmosaic.gram.feature_maps import FeatureMaps
from kernelmosaic.gram.feature_stack import StackFactors, StoredFeatures
from kernelmosaic.gram.gram import DenseGram
from kernelmosaic.gram.options import FitOptions
from kernelmosaic.gram.row_blocks import open_rows
from kernelmosaic.kernels import (
    Gaussian,
    Linear,
    Polynomial,
    Precomputed,
    Projected,
    Spectrum,
    family,
)
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.localized.method import GateInputs
from kernelmosaic.machines.base import SVC, Machine
from kernelmosaic.solvers.tuning import RoundOptions, SolverOptions

RNG = np.random.RandomState(0)
X = RNG.standard_normal((70, 4))
F = np.sin(2 * X[:, 0]) + X[:, 1]
Y = (F > 0).astype(int) + (F > 1)
NEW = RNG.standard_normal((30, 4))
NAMED = np.array(["low", "middle", "high"])[Y]
POSTERIORS = np.random.RandomState(1).dirichlet(np.full(3, 0.5), len(X))
WEIGHT = np.random.RandomState(1).randint(0, 3, len(X)).astype(float)
#: At full rank more features than samples, and fewer: 35 of them span what these kernels see.
KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("square", Polynomial(2), [0, 1])]
SPANNED = [
    Linear(),
    ("square", Polynomial(2), [0, 1]),
    ("cube", Polynomial(3), [1, 2]),
    ("all", Polynomial(2)),
]
GAUSSIANS = [Gaussian(0.7), Gaussian(2.0), Gaussian(5.0)]
GATED = [Gaussian(1.5), Linear(), ("square", Polynomial(2), [0, 1])]
#: A few tightly solved steps: later ones would enlarge what rounding makes of the other form of the
#: kernels.
STEPS = {"tol": 1e-7, "max_iter": 2, "n_init": 1, "random_state": 0}
LOW = {"approximation": "nystroem", "rank": 20, "random_state": 0}
#: Near the best weights the objective exceeds its optimum by about the square of the gap. A step on
#: the weights is known by the objective that falls: below a gap of the square root of its rounding,
#: here 10⁻⁷, no arithmetic in double precision can be asked to see one, be it this machine's or a
#: device's.
VISIBLE = 8.0 * np.finfo(np.float64).eps ** 0.5

pytestmark = pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")


class Case(NamedTuple):
    """An estimator, its target, how much two objectives may differ, and how much the functions,
    relative to theirs."""

    model: Any
    y: Any
    objective: float
    close: float


def weighted_case(model, y):
    # A gap of tol leaves an error of about its root in the weights and the outputs.
    return Case(model, y, 3 * model.tol, 10 * np.sqrt(model.tol))


def discriminant_case(kernels=KERNELS, y=Y, **parameters):
    return Case(DiscriminantMKLClassifier(kernels, **{"tol": 1e-8, **parameters}), y, 1e-5, 1e-5)


def gated_case(kind, y, **parameters):
    return Case(kind(GATED, **STEPS, **parameters), y, 2e-3, 2e-3)


ONE_BY_ONE = {
    "classifier": (MKLClassifier(KERNELS, tol=1e-7), Y),
    "two classes": (MKLClassifier(KERNELS, C=10.0, tol=1e-7), Y > 0),
    "squared": (MKLClassifier(KERNELS, slack=2, norm=2, tol=1e-7), Y > 0),
    "centred": (
        MKLClassifier(KERNELS, normalize="centered", tol=1e-7, penalties=[1, 2, 1, 0.5]),
        Y > 0,
    ),
    "product": (MKLClassifier([Gaussian(4.0) * Linear() * Polynomial(2)], tol=1e-7), Y > 0),
    "uniform": (MKLClassifier(KERNELS, weights="uniform", tol=1e-7), Y),
    "silp": (MKLClassifier(KERNELS, solver="silp", tol=1e-5), Y > 0),
    "reduced gradient": (MKLRegressor(KERNELS, solver="reduced_gradient", tol=1e-5), F),
    "qcqp": (MKLClassifier(KERNELS, solver="qcqp", tol=1e-5), Y > 0),
    "alignment": (MKLClassifier(KERNELS, solver="alignment", tol=1e-7), Y > 0),
    "easymkl": (MKLClassifier(KERNELS, solver="easymkl", tol=1e-7), Y > 0),
    "eigenvalue": (MKLClassifier(KERNELS, penalties="eigenvalue", tol=1e-7), Y > 0),
    "regressor": (MKLRegressor(KERNELS, tol=1e-7), F),
    "regressor diagonal": (MKLRegressor(KERNELS, normalize="diagonal", slack=2, tol=1e-7), F),
    "one class": (MKLOneClass(KERNELS, nu=0.3, tol=1e-7), None),
}
ALL_CLASSES = {
    "joint": (MKLClassifier(KERNELS, multi_class="joint", tol=1e-6), NAMED),
    "pairwise": (
        MKLClassifier(KERNELS, multi_class="pairwise", class_weight="balanced", tol=1e-6),
        NAMED,
    ),
    "pairwise, given weights": (
        MKLClassifier(KERNELS, multi_class="pairwise", weights="uniform", tol=1e-7),
        NAMED,
    ),
    "posterior": (PosteriorMKLClassifier(KERNELS, tol=1e-6), POSTERIORS),
    "posterior of two": (PosteriorMKLClassifier(KERNELS, tol=1e-6), NAMED == "low"),
    "bilinear": (BilinearMKLClassifier(KERNELS, tol=1e-5), NAMED),
    "bilinear by gradients": (
        BilinearMKLClassifier(KERNELS, solver="quasi_newton", tol=1e-4),
        NAMED,
    ),
}
DISCRIMINANTS = {
    "two classes": {"y": Y > 0},
    "three classes": {},
    "learned regulariser": {"alpha": "learn"},
    "large regulariser": {"alpha": 0.5},
    # Without full rank so small a λ leaves β, which is the residual over λ, few digits.
    "tiny regulariser": {"alpha": 1e-10, "tol": 1e-3, "y": Y > 0},
    "centroids": {"decision": "centroid"},
    "centred": {"normalize": "centered"},
    "diagonal": {"normalize": "diagonal", "y": Y > 0},
    "silp": {"solver": "silp", "tol": 1e-5},
    "silp, learned regulariser": {"solver": "silp", "alpha": "learn", "tol": 1e-5, "y": Y > 0},
    "qcqp": {"solver": "qcqp"},
    "uniform": {"weights": "uniform"},
    "given": {"weights": [1.0, 0.0, 2.0, 0.5], "y": Y > 0},
}
#: Of those that are solved alike in few features and in many, one each.
NARROW = (
    "two classes",
    "learned regulariser",
    "tiny regulariser",
    "centroids",
    "centred",
    "silp",
    "given",
)
LOCALIZED = {
    "classes": gated_case(LocalizedMKLClassifier, Y),
    "squared slack": gated_case(LocalizedMKLClassifier, Y > 0, slack=2),
    "centred": gated_case(LocalizedMKLClassifier, Y > 0, normalize="centered"),
    "sigmoid": gated_case(LocalizedMKLClassifier, Y > 0, gating="sigmoid", class_weight="balanced"),
    "constant": gated_case(LocalizedMKLClassifier, Y > 0, gating="constant"),
    "some columns": gated_case(LocalizedMKLClassifier, Y > 0, gating_columns=[0]),
    "space of a kernel": gated_case(LocalizedMKLClassifier, Y > 0, gating_kernel=Gaussian(2.0)),
    "joint": gated_case(LocalizedMKLClassifier, Y, multi_class="joint"),
    "pairwise": gated_case(LocalizedMKLClassifier, Y, multi_class="pairwise"),
    "regression": gated_case(LocalizedMKLRegressor, F),
    "regression diagonal": gated_case(
        LocalizedMKLRegressor, F, normalize="diagonal", gating="gaussian"
    ),
    "one class": gated_case(LocalizedMKLOneClass, None, nu=0.3),
}
CASES = {
    **{name: weighted_case(*one) for name, one in (ONE_BY_ONE | ALL_CLASSES).items()},
    **{f"discriminant, {name}": discriminant_case(**one) for name, one in DISCRIMINANTS.items()},
    **{
        f"discriminant, {name}, few features": discriminant_case(SPANNED, **DISCRIMINANTS[name])
        for name in NARROW
    },
    **{f"localized, {name}": one for name, one in LOCALIZED.items()},
}
#: Weights reach the machine, the normalisation, the landmarks and two heuristics; the others see
#: nothing of them.
WEIGHTED = ("alignment", "easymkl", "one class")
#: With weights alone: without, others of their kind are fitted.
ONLY_WEIGHTED = (
    *("classifier", "centred", "regressor", "joint", "bilinear"),
    *("localized, centred", "localized, joint"),
)
#: Few features of every kind of estimator.
LOW_RANK = {
    **{
        name: weighted_case(*ONE_BY_ONE[name])._replace(close=3e-4)
        for name in ("classifier", "two classes")
    },
    **{name: weighted_case(*ONE_BY_ONE[name]) for name in ("regressor", "one class")},
    **{
        name: weighted_case(*ALL_CLASSES[name])
        for name in ("joint", "pairwise", "bilinear", "posterior")
    },
    "discriminant": discriminant_case(GAUSSIANS, tol=VISIBLE)._replace(objective=VISIBLE),
    "discriminant, learned regulariser": (
        discriminant_case(GAUSSIANS, tol=VISIBLE, alpha="learn")._replace(objective=VISIBLE)
    ),
    "localized": gated_case(LocalizedMKLClassifier, Y, gating_columns=[0, 2]),
    "localized, space of a kernel": gated_case(
        LocalizedMKLClassifier, Y > 0, gating_kernel=Gaussian(2.0)
    ),
    "localized, regression": gated_case(LocalizedMKLRegressor, F),
    "localized, one class": gated_case(LocalizedMKLOneClass, None, nu=0.3),
}


def low_rank(name, **parameters):
    case = LOW_RANK[name]
    return case._replace(model=clone(case.model).set_params(**LOW | parameters))


def outputs(model, samples):
    return model.predict(samples) if is_regressor(model) else model.decision_function(samples)


def assert_same(found, expected, case, given=NEW, samples=NEW):
    """The same function of the samples, which the first model reads as they are given, relative to
    its size."""
    close = case.close
    assert found.objective_ == pytest.approx(expected.objective_, rel=case.objective)
    size = np.abs(outputs(expected, samples)).max()
    assert_allclose(outputs(found, given), outputs(expected, samples), atol=close * size)
    if hasattr(expected, "trace_shares_"):
        assert_array_equal(found.predict(given), expected.predict(samples))
        assert_allclose(found.trace_shares_, expected.trace_shares_, atol=close)
        assert_allclose(
            np.abs(found.transform(given)), np.abs(expected.transform(samples)), atol=10 * close
        )
        return
    assert_allclose(found.weights_, expected.weights_, atol=close * np.abs(expected.weights_).max())
    if hasattr(expected, "gate"):
        assert_allclose(found.gate(given), expected.gate(samples), atol=close)
        for method in ("contributions", "kernel_matrix"):
            ours, theirs = getattr(found, method)(given), getattr(expected, method)(samples)
            assert_allclose(ours, theirs, atol=close * np.abs(theirs).max())


@pytest.fixture
def few_at_a_time(monkeypatch):
    """Many rounds of several classes even for the few samples here."""
    monkeypatch.setattr(
        Machine,
        "options",
        SolverOptions(class_rounds=RoundOptions(max_size=30, steps_per_sample=5)),
    )


@pytest.fixture
def mapped(tmp_path):
    def write(samples, name="samples.dat"):
        written = np.memmap(tmp_path / name, dtype=samples.dtype, mode="w+", shape=samples.shape)
        written[:] = samples
        written.flush()
        return np.memmap(tmp_path / name, dtype=samples.dtype, mode="r", shape=samples.shape)

    return write


# ---- against the exact estimators


FULL_RANK = [
    *((name, False) for name in CASES if name not in ONLY_WEIGHTED),
    *((name, True) for name in WEIGHTED + ONLY_WEIGHTED),
]
#: Settings that no line for features reads; those of their kind that are left say the same of
#: features.
SAME_IN_FEATURES = (
    *(
        "squared",
        "regressor diagonal",
        "pairwise, given weights",
        "posterior of two",
        "bilinear by gradients",
    ),
    *(
        "reduced gradient",
        "discriminant, large regulariser",
        "discriminant, silp, learned regulariser",
    ),
    *("discriminant, diagonal", "discriminant, given", "discriminant, silp, few features"),
    *(
        "discriminant, given, few features",
        "localized, sigmoid",
        "localized, constant",
        "localized, pairwise",
    ),
    *("localized, squared slack", "localized, regression diagonal"),
)


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize(
    ("name", "weighted"),
    thinned(FULL_RANK, [case for case in FULL_RANK if case[0] not in SAME_IN_FEATURES]),
)
def test_full_rank_is_exact(name, weighted):
    if "qcqp" in name:
        pytest.importorskip("clarabel")
    case = CASES[name]
    weight = {"sample_weight": WEIGHT} if weighted else {}
    exact = clone(case.model).fit(X, case.y, **weight)
    full = (
        clone(case.model)
        .set_params(approximation="nystroem", random_state=0)
        .fit(X, case.y, **weight)
    )
    assert full.duality_gap_ <= case.model.tol
    if name == "discriminant, tiny regulariser, few features":
        # Without full rank what such a λ leaves to the weights is less than the gap: any of them
        # will do.
        assert full.objective_ == pytest.approx(exact.objective_, rel=case.objective)
        return
    # Samples of weight zero are no landmarks; of new ones landmarks see what the training set
    # spans.
    counted = X[WEIGHT > 0] if weighted else X
    assert_same(full, exact, case, counted, counted)
    size = np.abs(outputs(exact, X)).max()
    for samples in (NEW,) if name.startswith("localized") else (X, NEW):
        assert_allclose(outputs(full, samples), outputs(exact, samples), atol=case.close * size)
    if name in ONE_BY_ONE:
        atol = case.close * len(KERNELS)
        assert_allclose(full.kernel_matrix(counted), exact.kernel_matrix(counted), atol=atol)
        assert abs(len(full.support_) - len(exact.support_)) <= 4
    elif name.startswith("discriminant"):
        assert full.alpha_ == pytest.approx(exact.alpha_, rel=case.close)
        assert_allclose(full.explained_ratio_, exact.explained_ratio_, atol=case.close)
    elif name.startswith("localized") and "constant" not in name:
        # Constant gates end at zero up to rounding, which decides whether a kernel costs anything.
        assert full.cost(np.ones(3)) == pytest.approx(exact.cost(np.ones(3)), rel=0.05)
    if hasattr(exact, "classes_"):
        assert list(full.classes_) == list(exact.classes_)


@pytest.mark.parametrize(
    ("name", "approximation"),
    [
        *((name, "nystroem") for name in LOW_RANK if "class" not in name or name == "classifier"),
        *(
            (name, "fourier")
            for name in ("classifier", "regressor", "joint", "discriminant", "localized")
        ),
    ],
)
def test_what_a_fitted_function_says_adds_up(name, approximation):
    # Whatever was learned adds up: a wide gap does.
    kernels = [Gaussian(1.0), Gaussian(4.0), Linear()]
    model, y, _, _ = low_rank(name, kernels=kernels, approximation=approximation, tol=0.01)
    rounding = 1e-9 if name.startswith(("discriminant", "localized")) else 1e-10
    for target in (y, y > 0) if name in ("classifier", "discriminant") else (y,):
        model.fit(X, target)
        scores = outputs(model, NEW).reshape(len(NEW), -1)
        shares = model.contributions(NEW).reshape(len(NEW), 3, -1)
        assert_allclose(shares.sum(axis=1) + model.intercept_, scores, atol=rounding)
        # The same function from its dual: β on the kernel between new samples and the support.
        K = model.kernel_matrix(NEW, X[model.support_])
        K = np.broadcast_to(K, (len(model.dual_coef_), *K.shape[-2:]))
        assert_allclose(
            np.einsum("cij,cj->ic", K, model.dual_coef_) + model.intercept_,
            scores,
            atol=10 * rounding,
        )
        assert model.cost(np.ones(3)) > 0
        again = pickle.loads(pickle.dumps(model))
        assert_array_equal(outputs(again, NEW), outputs(model, NEW))
        assert not hasattr(again.function_.expansion.sums, "samples")
        if name.startswith("discriminant"):
            assert_allclose(model.transform(X).mean(axis=0), 0.0, atol=1e-9)


def test_rank_and_seed_decide_what_comes_out():
    model = MKLClassifier(KERNELS[:2], approximation="nystroem", rank=15, random_state=3)
    first = model.fit(X, Y > 0).decision_function(NEW)
    assert_array_equal(clone(model).fit(X, Y > 0).decision_function(NEW), first)
    assert not np.allclose(
        clone(model).set_params(random_state=4).fit(X, Y > 0).decision_function(NEW), first
    )


def test_more_landmarks_lower_the_objective_towards_the_exact_one():
    exact = MKLClassifier([Gaussian(1.5)], C=3.0, tol=1e-6).fit(X, Y > 0).objective_
    values = []
    for rank in (5, 20, 40, len(X)):
        model = MKLClassifier(
            [Gaussian(1.5)], C=3.0, tol=1e-6, approximation="nystroem", rank=rank, random_state=0
        )
        values.append(model.fit(X, Y > 0).objective_)
    # Less of the kernel fits less: the value falls as landmarks come, and never below the exact
    # one.
    assert np.all(np.diff(values) < 1e-6)
    assert values[-1] == pytest.approx(exact, rel=1e-5)


def test_a_search_reaches_the_rank():
    search = GridSearchCV(
        MKLClassifier(KERNELS[:2], approximation="nystroem", random_state=0),
        {"rank": [2, 80]},
        cv=3,
    ).fit(X, Y > 0)
    assert search.best_params_ == {"rank": 80}


def test_linear_kernels_keep_their_columns():
    Z = RNG.standard_normal((len(X), 30)) * np.linspace(0.2, 3.0, 30)
    kernels = [
        ("a", Linear(), slice(0, 8)),
        ("b", Linear(), slice(8, 15)),
        ("c", Linear(), slice(15, 30)),
    ]
    exact = DiscriminantMKLClassifier(kernels, tol=1e-8).fit(Z, Y)
    fitted = DiscriminantMKLClassifier(kernels, tol=1e-8, approximation="fourier", rank=15).fit(
        Z, Y
    )
    assert_allclose(fitted.weights_, exact.weights_, rtol=1e-6, atol=1e-9)
    assert_allclose(fitted.decision_function(Z), exact.decision_function(Z), atol=1e-7)


def test_samples_need_not_be_dense_numbers():
    S = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0) + np.eye(4)[:1] * X)  # no row twice
    kernels = [Gaussian(1.0), Linear()]
    settings = {"approximation": "nystroem", "rank": 40, "random_state": 0, "tol": 1e-8}
    dense = MKLClassifier(kernels, **settings).fit(S.toarray(), Y > 0)
    thin = MKLClassifier(kernels, **settings).fit(S, Y > 0)
    # A gap of 1e-8 leaves the function about its root to wander.
    assert_allclose(thin.decision_function(S), dense.decision_function(S.toarray()), atol=1e-4)
    words = np.array([["gattaca"], ["gatt"], ["tacat"], ["cat"], ["acatac"], ["gag"]], dtype=object)
    model = MKLClassifier([Spectrum(2)], approximation="nystroem").fit(words, [0, 0, 1, 1, 1, 0])
    assert_array_equal(model.predict(words), [0, 0, 1, 1, 1, 0])
    numbers = np.arange(len(X))[:, np.newaxis]
    given = MKLClassifier([Precomputed(X @ X.T)], approximation="nystroem", tol=1e-7).fit(
        numbers, Y > 0
    )
    exact = MKLClassifier([Linear()], tol=1e-7).fit(X, Y > 0)
    assert given.objective_ == pytest.approx(exact.objective_, rel=1e-6)


# ---- what the discriminant solves on the features is solved exactly


def low_rank_matrices():
    """The kernels as their features give them: drawn with one seed, landmarks are the same whatever
    the weights."""
    ones = [
        DiscriminantMKLClassifier(GAUSSIANS, weights=weights, **LOW).fit(X, Y)
        for weights in np.eye(len(GAUSSIANS))
    ]
    return [one.kernel_matrix(X) for one in ones]


@pytest.mark.parametrize("alpha", [5e-4, "learn"])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_certificate_by_matrices(alpha, classes):
    y = np.minimum(Y, classes - 1)
    model = DiscriminantMKLClassifier(GAUSSIANS, alpha=alpha, tol=1e-8, **LOW).fit(X, y)
    assert model.duality_gap_ <= 1e-8
    n = len(X)
    H = binary_targets(y)[:, np.newaxis] if classes == 2 else class_targets(y)
    Pi = np.eye(n) - 1.0 / n
    Ns = [Pi @ K @ Pi / np.trace(Pi @ K @ Pi) for K in low_rank_matrices()]
    G = np.tensordot(model.trace_shares_, Ns, 1)
    scale = 1.0 if alpha == "learn" else alpha
    beta = np.linalg.solve(G + model.alpha_ * np.eye(n), H)
    gain = np.sum(H * beta)
    assert model.objective_ == pytest.approx(scale * gain, rel=1e-9)
    # min over the simplex ≥ min over it of the best multiple of any β.
    slopes = [np.sum(beta * (N @ beta)) for N in Ns]
    if alpha == "learn":
        slopes, rest = [*slopes, np.sum(beta**2) / n], 0.0
    else:
        rest = alpha * np.sum(beta**2)
    bound = scale * gain**2 / (max(slopes) + rest)
    assert 0 <= (model.objective_ - bound) / model.objective_ <= 2e-8


@pytest.mark.parametrize("formulation", ["newton", "silp", "qcqp"])
def test_kernels_of_low_rank_given_as_matrices(formulation):
    model = DiscriminantMKLClassifier(GAUSSIANS, solver=formulation, tol=1e-6, **LOW).fit(X, Y)
    given = [Precomputed(K) for K in low_rank_matrices()]
    numbers = np.arange(len(X))[:, np.newaxis]
    exact = DiscriminantMKLClassifier(given, solver=formulation, tol=1e-6).fit(numbers, Y)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    assert_allclose(model.trace_shares_, exact.trace_shares_, atol=1e-5)
    assert_allclose(model.decision_function(X), exact.decision_function(numbers), atol=1e-5)


class CountedFactors(StackFactors):
    """Factors that note how many features have their products formed."""

    def normal_matrix(self, theta, precise=False):
        assert precise
        self.stack.formed.append(self.n_features)
        return super().normal_matrix(theta, precise)


class CountedFeatures(StoredFeatures):
    """Features that multiply one vector at a time, and note what products of theirs are formed."""

    def __init__(self, arrays):
        super().__init__(arrays)
        self.formed = []

    def factors(self, weights, gates=None):
        return CountedFactors(self, weights, gates)

    def products(self, beta, *rest):
        assert beta.ndim == 1
        return super().products(beta, *rest)


def test_one_pass_forms_the_products_and_none_keeps_a_vector_a_kernel_and_class():
    Z = [
        np.random.RandomState(m).standard_normal((len(X), 20)) + np.outer(F, np.eye(20)[m])
        for m in range(3)
    ]
    stack = CountedFeatures(Z)
    traces = centered_traces(stack, np.array([np.sum(one * one, axis=1) for one in Z]))
    learner = DISCRIMINANT_SOLVERS["newton"](
        LearnerOptions(SumNorm(), trace_penalties(traces), tol=1e-6)
    )
    learned = learner.learn(stack, Discriminant(Y, 5e-4))
    assert learned.gap <= 1e-6
    assert learned.n_solves > 3
    assert stack.formed == [60]


def test_features_in_single_precision_keep_the_certificate():
    double = DiscriminantMKLClassifier(GAUSSIANS, tol=1e-8, **LOW).fit(X, Y)
    # Beside the products of 60 features there is room for these in single precision, not in double.
    budget = 5 * 8 * 61**2 + 6 * 60 * len(X)
    single = DiscriminantMKLClassifier(GAUSSIANS, tol=1e-8, memory_budget=budget, **LOW).fit(X, Y)
    assert single.objective_ != double.objective_
    assert single.duality_gap_ <= 1e-8
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-5)
    assert_allclose(single.decision_function(X), double.decision_function(X), atol=1e-3)


# ---- samples that stay where they are


class CountedGaussian(Gaussian):
    """A Gaussian kernel that counts the entries computed by all of its kind."""

    entries: ClassVar = [0]

    def from_statistic(self, S):
        self.entries[0] += S.size
        return super().from_statistic(S)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        # Bilinear machines compute their features anew where memory is counted, below.
        *((name, False) for name in ("joint", "discriminant", "localized")),
        *((name, True) for name in ("two classes", "bilinear")),
        *map(later, [("classifier", False), ("one class", False), ("discriminant", True)]),
    ],
)
def test_a_memory_map_is_worth_its_array(mapped, monkeypatch, name, stored):
    kernels = [CountedGaussian(0.7), CountedGaussian(2.0), CountedGaussian(5.0)]
    case, entries = low_rank(name, kernels=kernels), [CountedGaussian.entries[0]]
    expected = clone(case.model).fit(X, case.y)
    entries.append(CountedGaussian.entries[0])
    streamed = (
        clone(case.model)
        .set_params(memory_budget=2.0e6 if stored else 1.6e5)
        .fit(mapped(X), case.y)
    )
    entries.append(CountedGaussian.entries[0])
    # No room for 70 × 60 numbers beside the matrices of 61 × 61: every pass computes features anew.
    assert stored or entries[2] - entries[1] > 3 * (entries[1] - entries[0])
    assert streamed.duality_gap_ <= case.model.tol
    assert streamed.n_features_in_ == 4
    monkeypatch.setitem(_BLOCK_BYTES, "features", 2**13)
    assert_same(streamed, expected, case, mapped(NEW, "new.dat"))
    assert_allclose(outputs(streamed, mapped(NEW, "new.dat")), outputs(streamed, NEW), atol=1e-10)


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered", None])
def test_a_memory_map_is_normalised_like_its_array(mapped, normalize):
    model = MKLClassifier(
        KERNELS, approximation="nystroem", rank=30, random_state=0, normalize=normalize, tol=1e-7
    )
    stored = clone(model).fit(X, Y > 0)
    streamed = clone(model).set_params(memory_budget=2.0e6).fit(mapped(X), Y > 0)
    assert_allclose(
        streamed.decision_function(mapped(NEW)), stored.decision_function(NEW), atol=1e-3
    )
    assert streamed.objective_ == pytest.approx(stored.objective_, rel=1e-6)


def test_whole_numbers_are_read_as_numbers(mapped):
    whole = np.round(3 * X).astype(np.int16)
    model = MKLRegressor(KERNELS, approximation="nystroem", rank=30, random_state=0)
    streamed, stored = clone(model).fit(mapped(whole), F), clone(model).fit(whole, F)
    assert streamed.objective_ == pytest.approx(stored.objective_, rel=2e-3)
    novelty = MKLOneClass([Gaussian(20.0)], approximation="fourier", rank=30, random_state=0)
    assert novelty.fit(mapped(whole)).duality_gap_ <= 1e-3


@pytest.mark.parametrize(
    "name", ["classifier", later("regressor"), later("posterior"), "discriminant", "localized"]
)
def test_parquet_is_worth_its_array(tmp_path, name):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame, new = (pd.DataFrame(samples, columns=list("abcd")) for samples in (X, NEW))
    folder = tmp_path / "parts"
    folder.mkdir()
    frame.iloc[:40].to_parquet(folder / "0.parquet", row_group_size=15)
    frame.iloc[40:].to_parquet(folder / "1.parquet")
    frame.to_parquet(tmp_path / "whole.parquet", row_group_size=25)
    new.to_parquet(tmp_path / "new.parquet")
    case = low_rank(name, kernels=[("bell", Gaussian(1.0), ["a", "c"]), Linear()])
    if name == "localized":
        case.model.set_params(gating_columns=["b"])
    stored = clone(case.model).fit(frame, case.y)
    for path in (folder, str(tmp_path / "whole.parquet"))[
        : 2 if name in ("classifier", "localized") else 1
    ]:
        streamed = clone(case.model).fit(path, case.y)
        assert list(streamed.feature_names_in_) == list("abcd")
        assert_same(streamed, stored, case, tmp_path / "new.parquet", new)
    if name == "localized":
        with pytest.raises(ValueError, match=r"gating_columns=\['e'\]"):
            clone(case.model).set_params(gating_columns=["e"]).fit(path, case.y)


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize(
    "name",
    # Several classes, one after the other, are those of the last.
    [
        *("two classes", "joint", "discriminant, matrices", "localized"),
        *map(later, ["regressor", "one class", "bilinear"]),
    ],
)
def test_rows_on_workers_are_worth_rows_at_home(name):
    dask = pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    given, wide, _ = name.partition(", matrices")
    case = low_rank(given, **({"kernels": KERNELS, "rank": len(X)} if wide else {}))
    with dask.config.set(scheduler="synchronous"):
        y = None if case.y is None else da.from_array(case.y, chunks=(40, *np.shape(case.y)[1:]))
        away, home = (
            clone(case.model).fit(da.from_array(X, chunks=(40, 2)), y),
            clone(case.model).fit(X, case.y),
        )
        assert away.duality_gap_ <= case.model.tol
        assert_same(away, home, case, da.from_array(NEW, chunks=(20, 4)))


def test_labels_do_not_become_posteriors_of_samples_elsewhere(mapped):
    da = pytest.importorskip("dask.array")
    model = PosteriorMKLClassifier(KERNELS, **LOW)
    with pytest.raises(
        ValueError,
        match=r"estimated from arrays and memory maps only.*give the matrix of posteriors",
    ):
        model.fit(da.from_array(X, chunks=(50, 4)), NAMED)
    assert_array_equal(model.fit(mapped(X), NAMED).posteriors_, model.fit(X, NAMED).posteriors_)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(mapped(X), POSTERIORS[:-1])


def test_bad_sources_are_named(mapped, tmp_path):
    model = MKLClassifier(KERNELS, approximation="nystroem")
    with pytest.raises(ValueError, match="there is no such file"):
        model.fit(tmp_path / "nothing.parquet", Y)
    with pytest.raises(ValueError, match=r"holds no file named \*.parquet"):
        model.fit(tmp_path, Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(mapped(X), Y[:-1])
    fitted = clone(model).set_params(rank=10).fit(mapped(X), Y)
    with pytest.raises(ValueError, match=r"X has 3 features.*expecting 4"):
        fitted.predict(mapped(X[:, :3]))
    broken = X.copy()
    broken[47, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(mapped(broken), Y)


# ---- gates in features


@pytest.mark.parametrize("approximation", ["nystroem", "fourier"])
@pytest.mark.parametrize("target", [Y, Y > 0], ids=["three classes", "two classes"])
def test_predictions_under_gates_are_those_of_a_loop(approximation, target):
    kernels = [Gaussian(1.5), Linear()]
    model = LocalizedMKLClassifier(
        kernels, n_init=1, max_iter=3, **(LOW | {"approximation": approximation})
    )
    model.fit(X, target)
    gates, known_gates = np.atleast_3d(model.gate(NEW)), np.atleast_3d(model.gate(X))
    kernel_set = model.function_.expansion.kernel_set
    new, known = (dict(kernel_set.blocks(samples, range(2))) for samples in (NEW, X))
    expected = np.zeros((len(NEW), len(model.dual_coef_)))
    for c, (beta, b) in enumerate(zip(model.dual_coef_, model.intercept_, strict=True)):
        for j in range(len(NEW)):
            expected[j, c] = b
            for i, s in zip(model.support_, beta, strict=True):
                for m in range(2):
                    expected[j, c] += (
                        s * known_gates[i, m, c] * gates[j, m, c] * (known[m][i] @ new[m][j])
                    )
    assert_allclose(model.decision_function(NEW).reshape(expected.shape), expected, atol=1e-9)


def test_one_seed_draws_landmarks_and_starts():
    model = LocalizedMKLClassifier(GATED[:2], n_init=2, max_iter=3, **(LOW | {"random_state": 3}))
    first, again = clone(model).fit(X, Y > 0), clone(model).fit(X, Y > 0)
    assert_array_equal(first.decision_function(NEW), again.decision_function(NEW))
    other = clone(model).set_params(random_state=4).fit(X, Y > 0)
    assert not np.array_equal(other.gate(NEW), first.gate(NEW))
    assert not np.allclose(
        other.function_.expansion.kernel_set.landmarks[0],
        first.function_.expansion.kernel_set.landmarks[0],
    )
    drawn = [
        clone(model).set_params(random_state=np.random.RandomState(5)).fit(X, Y > 0)
        for _ in range(2)
    ]
    assert_array_equal(drawn[0].decision_function(NEW), drawn[1].decision_function(NEW))
    # The starts are those of the exact estimator: from one of them, both take the first step alike.
    full = clone(model).set_params(max_iter=1, rank=len(X), tol=1e-6).fit(X, Y > 0)
    exact = clone(full).set_params(approximation=None, rank=500).fit(X, Y > 0)
    assert_allclose(full.gate(NEW), exact.gate(NEW), atol=1e-3)


def test_a_model_file_holds_features_and_gates(tmp_path):
    pytest.importorskip("skops")
    model = LocalizedMKLRegressor(GATED, n_init=1, max_iter=2, **LOW).fit(X, F)
    save(model, tmp_path / "model.skops")
    assert_array_equal(load(tmp_path / "model.skops").predict(NEW), model.predict(NEW))


def test_gates_of_samples_that_are_no_numbers():
    rng = np.random.RandomState(0)
    words = np.array(["".join(rng.choice(list("ACGT"), 20)) for _ in range(40)])[:, np.newaxis]
    y = np.array([word.count("A") > 5 for word in words[:, 0]])
    model = LocalizedMKLClassifier(
        [Spectrum(2), Spectrum(3)], gating_kernel=Spectrum(1), n_init=1, **LOW
    ).fit(words, y)
    assert model.gate(words).shape == (40, 2)
    assert model.score(words, y) > 0.8
    K = [np.asarray(kernel(X)) for kernel in (Linear(), Polynomial())]
    numbers = np.arange(len(X))[:, np.newaxis]
    given = LocalizedMKLClassifier(
        [Precomputed(K[0]), Precomputed(K[1])], gating_kernel=Precomputed(K[0]), n_init=1, **LOW
    ).fit(numbers, Y > 0)
    assert given.decision_function(numbers).shape == (len(X),)


def test_gates_read_strips_of_a_few_rows(mapped):
    weight, few = np.arange(len(X)) % 3.0, {"strip_bytes": 8 * 4 * 11}
    for columns, kernel in (([0, 2], None), (None, Gaussian(2.0))):
        whole = GateInputs.fit(X, X, columns, kernel, weight)
        strips = GateInputs.fit(open_rows(mapped(X)), X, columns, kernel, weight, **few)
        assert_allclose(
            strips(open_rows(mapped(NEW, "new.dat")), **few), whole(NEW), rtol=1e-9, atol=1e-12
        )


def test_the_space_of_a_kernel_is_learned_from_a_part_of_many_samples():
    samples, weight = open_rows(X), np.ones(len(X))
    some, again = (
        GateInputs.fit(samples, X, None, Gaussian(2.0), weight, 0, space_rows=40) for _ in range(2)
    )
    assert some.space.samples.shape == (40, 4)
    assert_array_equal(some(NEW), again(NEW))
    for given in (X, samples):  # in memory, or few enough
        assert (
            GateInputs.fit(given, X, None, Gaussian(2.0), weight, 0).space.samples.shape == X.shape
        )


def test_starts_run_side_by_side_only_where_they_may():
    assert StoredFeatures([np.zeros((5, 40))] * 3).shareable
    assert not StoredFeatures([np.zeros((5, 40), dtype=np.float32)] * 3).shareable
    assert not StoredFeatures([np.zeros((5, 400))]).shareable


def test_projections_are_learned_with_exact_kernels():
    with pytest.raises(
        ValueError,
        match=r"approximation='nystroem': projections are learned with exact kernels only",
    ):
        LocalizedMKLClassifier([Projected(Linear(), 1)], approximation="nystroem").fit(X, Y)


# ---- memory


@pytest.fixture(scope="module")
def compiled_loops():
    """Import Numba and the compiled loops of machines.

    A small machine takes its first steps in NumPy and goes on in compiled loops if they do not
    suffice, which depends on rounding. Where that happens for the first time under measurement, the
    30 MB of Numba itself are counted.
    """
    samples = np.random.RandomState(0).standard_normal((500, 2))
    SVC(np.where(samples[:, 0] > samples[:, 1] ** 2, 1.0, -1.0)).solve(samples @ samples.T)
    assert "kernelmosaic.solvers._numba_smo" in sys.modules


SOME_AND_ALL = [("some", Gaussian(2.0), [0, 1]), ("all", Gaussian(25.0))]
UNIFORM = MKLClassifier(SOME_AND_ALL, weights="uniform", rank=150)
JOINT = MKLClassifier(
    [("some", Gaussian(2.0), [0, 1, 2]), ("all", Gaussian(30.0))], multi_class="joint", rank=60
)
GATES = LocalizedMKLClassifier(
    [("one", Gaussian(2.0), [0, 1]), ("line", Linear(), [0, 1]), ("all", Gaussian(25.0))],
    gating_columns=[0, 1],
    rank=60,
    n_init=2,
    max_iter=1,
)


@pytest.mark.parametrize(
    ("model", "n", "d", "budget", "vectors", "score"),
    [
        (UNIFORM, 3000, 600, 6e6, 50, 0.9),
        later((GATES, 3000, 600, 6e6, 80, 0.9)),
        later((clone(JOINT).set_params(weights="uniform", tol=0.5), 1200, 800, 1.1e6, 80, 0.0)),
        (BilinearMKLClassifier(JOINT.kernels, rank=60, tol=0.5), 1200, 800, 1.9e6, 80, 0.0),
    ],
    ids=["computed", "localized", "joint, computed", "bilinear"],
)
@pytest.mark.usefixtures("compiled_loops")
def test_memory_stays_within_the_budget(mapped, monkeypatch, model, n, d, budget, vectors, score):
    monkeypatch.setattr(FeatureMaps, "fit_options", FitOptions(least_rows=200))
    samples = mapped(np.random.RandomState(0).standard_normal((n, d)))
    if model is UNIFORM:
        y = samples[:, 0] + samples[:, 1] > 0
    elif model is GATES:
        y = np.where(samples[:, 0] > 0, samples[:, 1], -samples[:, 1]) > 0
    else:
        y = (samples[:, 0] > 0).astype(int) + (samples[:, 1] > 0) + (samples[:, 2] > 1)
    model = clone(model).set_params(approximation="nystroem", random_state=0, memory_budget=budget)
    clone(model).fit(np.array(samples[:250]), y[:250])  # loads what is loaded on first use
    tracemalloc.start()
    model.fit(samples, y)
    if score:
        assert np.mean(model.predict(samples) == y) > score
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.duality_gap_ <= model.tol
    # Beside the stack there are vectors of n numbers, and the few samples that the kernels are
    # fitted to.
    assert peak < budget + vectors * 8 * n + 2 * 8 * 200 * d < 0.75 * samples.nbytes


def test_features_need_no_matrix_a_class():
    n = len(X)
    with pytest.raises(MemoryError, match=r"3 classes needs.*approximation='nystroem'"):
        BilinearMKLClassifier([Linear()], memory_budget=1.5 * 8 * n * n, tol=1e-5).fit(X, NAMED)
    model = BilinearMKLClassifier([Linear()], memory_budget=3 * 8 * n * n, tol=1e-5, **LOW).fit(
        X, NAMED
    )
    assert model.duality_gap_ <= 1e-5


# ---- on a device


@pytest.mark.torch
@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize(
    "name",
    [*sorted(LOW_RANK), *(f"{name}, matrices" for name in sorted(LOW_RANK) if "disc" in name)],
)
def test_a_device_changes_nothing(name):
    pytest.importorskip("torch")
    given, wide, _ = name.partition(", matrices")
    case = low_rank(given, **({"kernels": KERNELS, "rank": len(X)} if wide else {}))
    here, there = (
        clone(case.model).fit(X, case.y),
        clone(case.model).set_params(device="cpu").fit(X, case.y),
    )
    assert there.function_.expansion.device == "cpu"
    assert there.duality_gap_ <= case.model.tol
    assert_same(there, here, case)


@pytest.mark.torch
@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("name", ["joint", "pairwise", "bilinear", "posterior"])
def test_a_device_copies_no_matrix(name, monkeypatch):
    pytest.importorskip("torch")
    case = CASES[name]
    here = clone(case.model).fit(X, case.y)
    monkeypatch.setattr(DenseGram, "__array__", None)
    there = clone(case.model).set_params(device="cpu").fit(X, case.y)
    assert there.duality_gap_ <= case.model.tol
    assert_same(there, here, case)


@pytest.mark.torch
@pytest.mark.usefixtures("few_at_a_time")
def test_single_precision_on_a_device_keeps_the_certificate():
    pytest.importorskip("torch")
    for name in ("joint", "bilinear"):
        model, y, _, _ = CASES[name]
        for budget in (None, 2.5 * 4 * len(X) ** 2):
            there = clone(model).set_params(device="cpu", tol=1e-4, memory_budget=budget)
            there._stack_dtype = np.float32
            there.fit(X, y)
            here = clone(model).set_params(tol=1e-4).fit(X, y)
            assert there.duality_gap_ <= 1e-4
            assert there.objective_ == pytest.approx(here.objective_, rel=3e-4)


# ---- what cannot be had


@pytest.mark.parametrize("name", sorted(LOW_RANK))
def test_what_does_not_go_together_is_refused(name, tmp_path):
    model, y, _, _ = LOW_RANK[name]
    for parameters, message in (
        ({"approximation": "best"}, r"approximation='best'.*'nystroem', 'leading', 'fourier'"),
        ({"approximation": "nystroem", "rank": 0}, "rank=0"),
        ({"approximation": "fourier", "kernels": [Polynomial(2)]}, "kernel 'polynomial'.*nystroem"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(model).set_params(**parameters).fit(X, y)
    with pytest.raises(ValueError, match="approximation='nystroem' or 'fourier' only"):
        clone(model).fit(str(tmp_path), y)


@pytest.mark.parametrize("formulation", ["sdp", "sdp_approximate", "kim"])
def test_formulations_in_matrices_are_refused(formulation):
    model = DiscriminantMKLClassifier(GAUSSIANS, solver=formulation, **LOW)
    message = (
        rf"solver='{formulation}' .*approximation='nystroem'.*solver='newton', or"
        r" approximation=None"
    )
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y > 0)
    # With given weights there is nothing to formulate.
    assert model.set_params(weights="uniform").fit(X, Y > 0).duality_gap_ <= 1e-8


def test_discriminants_that_are_lost_in_rounding_are_refused():
    with pytest.raises(ValueError, match="alpha=1e-300 leaves"):
        DiscriminantMKLClassifier(GAUSSIANS, alpha=1e-300, **LOW).fit(X, Y)
    with pytest.raises(ValueError, match="every kernel is constant"):
        DiscriminantMKLClassifier([Gaussian(1.0)], **LOW).fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])


def test_memory_maps_that_are_no_samples(mapped):
    model = MKLClassifier(approximation="nystroem")
    with pytest.raises(ValueError, match="X has 1 dimensions: give samples in rows"):
        model.fit(mapped(X[:, 0]), Y)
    with pytest.raises(ValueError, match="complex"):
        model.fit(mapped(X.astype(complex)), Y)
    with pytest.raises(ValueError, match="y is None"):
        model.fit(mapped(X), None)


@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_of_an_array_is_worth_its_memory_map(tmp_path, kind):
    path = tmp_path / "samples.npy"
    np.save(path, X)
    model = MKLClassifier(approximation="nystroem", rank=20, random_state=0)
    by_path, by_map = (
        clone(model).fit(one, Y) for one in (kind(path), np.load(path, mmap_mode="r"))
    )
    np.testing.assert_array_equal(
        by_path.decision_function(kind(path)), by_map.decision_function(X)
    )


def test_files_that_hold_no_samples_are_named(tmp_path):
    model = MKLClassifier(approximation="nystroem", rank=20)
    (tmp_path / "samples.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError, match=r"samples\.csv' is no Parquet file: give the path of one.*\.npy"
    ):
        model.fit(tmp_path / "samples.csv", Y)
    (tmp_path / "samples.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"samples\.npy' is not read as an array of numbers"):
        model.fit(tmp_path / "samples.npy", Y)
    np.save(tmp_path / "objects.npy", np.array([["a"], [1]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"objects\.npy' is not read as an array of numbers"):
        model.fit(tmp_path / "objects.npy", Y)
    with pytest.raises(ValueError, match="there is no such file"):
        model.fit(str(tmp_path / "nothing.npy"), Y)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_steps_that_lower_the_value_of_kernels_in_features_are_gone_on_with(seed):
    """The bound may follow the value a step later: interior points take three times as many steps
    there."""
    X, y = make_classification(n_samples=600, n_features=10, n_informative=6, random_state=seed)
    kernels = family(Gaussian(), width=[0.5, 1, 2, 4, 8])
    model = MKLClassifier(kernels, approximation="nystroem", rank=30, random_state=0).fit(X, y)
    assert model.converged_
    assert model.solver_ == "newton"
    assert model.n_iter_ <= 9
