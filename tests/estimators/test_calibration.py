"""Probabilities: calibration against independent solvers, cross-fitting against a naive loop,
reliability."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit, log_softmax
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import cross_val_predict

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    PosteriorMKLClassifier,
    load,
    save,
)
from kernelmosaic.engine.calibration import Calibration
from kernelmosaic.engine.cross_calibration import CalibrationFolds
from kernelmosaic.engine.samples import FitInput
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed
from kernelmosaic.model_selection import PathSearchCV

KERNELS = [("line", Linear()), ("bell", Gaussian())]


def blobs(n_classes: int, n: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        n, 4, n_informative=3, n_redundant=0, n_classes=n_classes, class_sep=0.7, random_state=seed
    )


# The functions ------------------------------------------------------------------------------------


def bent(f: float, slopes: np.ndarray) -> float:
    """An increasing function with these slopes below −1, from −1 to 0, from 0 to 1 and above, zero
    at zero."""
    below, left, right, above = slopes
    if f < 0:
        return left * max(f, -1.0) + below * min(f + 1.0, 0.0)
    return right * min(f, 1.0) + above * max(f - 1.0, 0.0)


def smoothed_loss(F: np.ndarray, y: np.ndarray, weight: np.ndarray):
    """The log-loss of p ∝ exp(h(f)) with Platt's targets, sample by sample, and the penalty on the
    slopes of h."""
    k = F.shape[1]
    counts = [weight[y == c].sum() for c in range(k)]

    def loss(slopes: np.ndarray) -> float:
        total = 0.05 * np.sum((slopes - slopes.mean()) ** 2)
        for f, c, w in zip(F, y, weight, strict=True):
            own = (counts[c] + 1) / (counts[c] + 2)
            target = [own if d == c else (1 - own) / (k - 1) for d in range(k)]
            total -= w * np.dot(target, log_softmax([bent(one, slopes) for one in f]))
        return float(total)

    return loss


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_slopes_are_the_most_likely_ones(weighted, n_classes):
    random = np.random.RandomState(0)
    F = 1.2 * random.standard_normal((25, n_classes))
    F[:, 0] *= n_classes > 2  # of two classes the second has the output
    y = np.array([random.choice(n_classes, p=np.exp(log_softmax(row))) for row in F])
    weight = random.uniform(0.2, 3, 25) if weighted else None
    outputs = F[:, 1] if n_classes == 2 else F
    found = Calibration.fit(outputs, y, n_classes, weight, "sigmoid")
    loss = smoothed_loss(F, y, np.ones(25) if weight is None else weight)
    best = minimize(
        loss, np.ones(4), bounds=[(1e-6, None)] * 4, method="SLSQP", options={"ftol": 1e-12}
    ).x
    assert loss(found.slopes) == pytest.approx(loss(best), rel=1e-6)
    expected = [[bent(f, found.slopes) for f in row] for row in F]
    assert_allclose(found.probabilities(outputs), np.exp(log_softmax(expected, axis=1)), atol=5e-3)
    assert_array_equal(found.probabilities(outputs).argmax(axis=1), F.argmax(axis=1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_isotonic_is_that_of_scikit_learn(n_classes):
    random = np.random.RandomState(1)
    F = np.round(random.standard_normal((120, n_classes)), 1)  # with ties
    y = np.array([random.choice(n_classes, p=np.exp(log_softmax(row))) for row in F])
    weight = random.uniform(0.5, 2, 120)
    outputs = F[:, 1] if n_classes == 2 else F
    found = Calibration.fit(outputs, y, n_classes, weight, "isotonic")
    new = random.standard_normal((50, n_classes))
    given = new[:, 1] if n_classes == 2 else new
    columns = (
        [(1, outputs, given)]
        if n_classes == 2
        else [(c, F[:, c], new[:, c]) for c in range(n_classes)]
    )
    p = np.column_stack(
        [
            IsotonicRegression(out_of_bounds="clip")
            .fit(f, y == c, sample_weight=weight)
            .predict(at)
            for c, f, at in columns
        ]
    )
    p = np.maximum(
        np.hstack([1 - p, p]) if n_classes == 2 else p, 1 / (n_classes * (1 + weight.sum()))
    )
    assert_allclose(found.probabilities(given), p / p.sum(axis=1, keepdims=True), atol=1e-9)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_no_class_is_ruled_out(method):
    F = np.repeat(np.eye(3), 20, axis=0)
    p = Calibration.fit(F, np.repeat([0, 1, 2], 20), 3, None, method).probabilities(
        np.array([[1e3, -1e3, 0.0]])
    )
    assert np.all(p > 1 / 200)
    assert p[0, 0] > 0.98


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize(
    "outputs", [np.zeros(20), np.r_[-np.ones(10), np.ones(10)], np.r_[np.ones(10), -np.ones(10)]]
)
def test_values_that_tell_nothing_everything_or_the_wrong_way_round(method, outputs):
    y = np.repeat([0, 1], 10)
    p = Calibration.fit(outputs, y, 2, None, method).probabilities(np.array([-2.0, 0.0, 2.0]))
    assert np.all((p > 0) & (p < 1))
    assert_allclose(p.sum(axis=1), 1)
    assert np.all(np.diff(p[:, 1]) >= 0)


# Cross-fitting ------------------------------------------------------------------------------------

MODELS = {
    "binary": (2, MKLClassifier(KERNELS, tol=1e-6)),
    "weights": (
        2,
        MKLClassifier(KERNELS, tol=1e-6, class_weight="balanced", C=3.0, slack=2, norm=2),
    ),
    "learned C": (2, MKLClassifier(KERNELS, tol=1e-6, slack=2, C="learn")),
    "shared": (3, MKLClassifier(KERNELS, tol=1e-6, multi_class="ovr-shared")),
    "joint": (3, MKLClassifier(KERNELS, tol=1e-6, multi_class="joint")),
    "features": (
        3,
        MKLClassifier(KERNELS, tol=1e-6, approximation="nystroem", rank=10, random_state=0),
    ),
    "bilinear, two": (2, BilinearMKLClassifier(KERNELS, tol=1e-6)),
    "localized": (
        2,
        LocalizedMKLClassifier(
            KERNELS, step="lbfgs", tol=1e-4, n_init=1, max_iter=3, random_state=0
        ),
    ),
}


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_cross_fitting_is_a_loop_of_plain_fits(name):
    n_classes, model = MODELS[name]
    X, y = blobs(
        n_classes, 90 if name == "learned C" else 20
    )  # in folds of fewer samples no kernel earns a weight
    samples = FitInput(X, y, None, X)
    found = clone(model).set_params(calibration="sigmoid").fit(X, y)
    crossed = CalibrationFolds.of(found, samples, found.classes_)
    assert len(crossed.folds) == 5
    outputs = [None] * len(y)
    for train, held in crossed.folds:
        rows, others = crossed.rows[train], crossed.rows[held]
        values = clone(model).fit(X[rows], y[rows]).decision_function(X[others])
        for i, value in zip(others, values, strict=True):
            outputs[i] = value
    weight = None
    if getattr(model, "class_weight", None) == "balanced":
        weight = len(y) / (n_classes * np.bincount(y))[y]
    expected = Calibration.fit(np.array(outputs), y, n_classes, weight, "sigmoid")
    decisions = clone(model).fit(X, y).decision_function(X)
    assert_allclose(found.predict_proba(X), expected.probabilities(decisions), atol=5e-3)
    assert_allclose(found.decision_function(X), decisions, atol=1e-10)
    assert_allclose(found.predict_log_proba(X), np.log(found.predict_proba(X)))


@pytest.mark.parametrize("calibration", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_classes_in_order(calibration, n_classes):
    X, y = blobs(n_classes, 80)
    names = np.array(["c", "a", "b"])[y]
    model = MKLClassifier(KERNELS, calibration=calibration).fit(X, names)
    p = model.predict_proba(X)
    assert p.shape == (80, n_classes)
    assert_allclose(p.sum(axis=1), 1)
    assert np.all((p > 0) & (p < 1))
    assert np.mean(model.classes_[p.argmax(axis=1)] == names) > 0.7
    if n_classes == 2:
        # Monotone in the decision values: one threshold tells the classes apart.
        order = np.argsort(model.decision_function(X))
        assert np.all(np.diff(p[order, 1]) >= 0)


def test_weights_are_repetitions_and_order_does_not_matter():
    X, y = blobs(2, 40)
    random = np.random.RandomState(0)
    weight = random.randint(0, 4, len(y))
    model = MKLClassifier(KERNELS, calibration="sigmoid", tol=1e-6)
    weighted = clone(model).fit(X, y, sample_weight=weight).predict_proba(X)
    assert_allclose(
        clone(model).fit(X.repeat(weight, 0), y.repeat(weight)).predict_proba(X),
        weighted,
        atol=1e-6,
    )
    order = random.permutation(len(y))
    assert_allclose(
        clone(model).fit(X[order], y[order]).predict_proba(X),
        clone(model).fit(X, y).predict_proba(X),
        atol=1e-3,
    )


def test_sparse_samples_frames_and_model_files(tmp_path):
    X, y = blobs(2)
    model = MKLClassifier(KERNELS, calibration="sigmoid", tol=1e-6).fit(X, y)
    expected = model.predict_proba(X)
    assert_allclose(
        clone(model).fit(csr_matrix(X), y).predict_proba(csr_matrix(X)), expected, atol=1e-3
    )
    frame = pd.DataFrame(X, columns=list("abcd"))
    columns = [("line", Linear(), ["a", "b"]), ("bell", Gaussian(), ["b", "c", "d"])]
    named = MKLClassifier(columns, calibration="isotonic").fit(frame, y)
    numbered = MKLClassifier(
        [("line", Linear(), [0, 1]), ("bell", Gaussian(), [1, 2, 3])], calibration="isotonic"
    ).fit(X, y)
    assert_allclose(named.predict_proba(frame), numbered.predict_proba(X), atol=1e-6)
    for fitted, samples in ((model, X), (named, frame)):
        save(fitted, tmp_path / "model.kmosaic")
        assert_array_equal(
            load(tmp_path / "model.kmosaic").predict_proba(samples), fitted.predict_proba(samples)
        )


def test_the_search_serves_machines_of_all_classes_and_classes_that_a_fold_lacks():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    rows = np.arange(len(y))
    folds = [
        (np.flatnonzero(y != 0), np.flatnonzero(y == 0)),
        (rows[::2], rows[1::2]),
        (rows[1::2], rows[::2]),
    ]
    model = MKLClassifierCV(KERNELS, Cs=[1.0, 10.0], norms=(1,), cv=folds, multi_class="joint").fit(
        X, y
    )
    assert_allclose(model.predict_proba(X).sum(axis=1), 1)


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MKLClassifier, LocalizedMKLClassifier, BilinearMKLClassifier])
def test_without_calibration_an_error_says_how_to_get_probabilities(kind):
    X, y = blobs(2, 30)
    model = kind(KERNELS)
    for method in ("predict_proba", "predict_log_proba"):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError) as error:
            getattr(model, method)
        assert "calibration='sigmoid'" in str(error.value.__cause__ or error.value)
    model.fit(X, y).set_params(calibration="sigmoid")
    with pytest.raises(NotFittedError, match="without calibration"):
        model.predict_proba(X)


def test_parameters_that_are_refused():
    X, y = blobs(2, 30)
    with pytest.raises(
        ValueError, match="calibration='platt': choose one of 'sigmoid', 'isotonic'"
    ):
        MKLClassifier(calibration="platt").fit(X, y)
    names = np.where(np.arange(30) == 4, "rare", "common")
    with pytest.raises(ValueError, match=r"calibration='sigmoid'.*class 'rare' has one"):
        MKLClassifier(calibration="sigmoid").fit(X, names)
    few = np.where(np.arange(30) < 3, "rare", "common")
    model = MKLClassifier(calibration="sigmoid")
    assert len(CalibrationFolds.of(model, FitInput(X, few, None, X), np.unique(few)).folds) == 3
    assert model.fit(X, few).predict_proba(X).shape == (30, 2)


# Reliability --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [MKLClassifier(calibration="sigmoid"), MKLClassifier(calibration="isotonic")]
)
def test_probabilities_are_those_of_the_source(model):
    random = np.random.RandomState(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X = random.standard_normal((n, 2))
        p = expit(1.5 * X[:, 0] - X[:, 1] - 0.8)
        return X, p, (random.uniform(size=n) < p).astype(int)

    X, _, y = draw(400)
    A, truth, b = draw(4000)
    p = model.fit(X, y).predict_proba(A)[:, 1]
    assert np.mean(np.abs(p - truth)) < 0.1
    bins = np.digitize(p, [0.2, 0.4, 0.6, 0.8])
    # Steps of an isotonic fit may leave a bin to a handful of samples, of which shares say nothing.
    full = [i for i in range(5) if np.sum(bins == i) >= 100]
    assert len(full) >= 4
    for i in full:
        assert abs(p[bins == i].mean() - b[bins == i].mean()) < 0.12


# Natively -----------------------------------------------------------------------------------------


def rest(n: int, i: int) -> np.ndarray:
    return np.delete(np.arange(n), i)


def left_out_values(model: DiscriminantMKLClassifier, K: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Decision values of every sample by fits to all others, at the weights of the fit to all."""
    n = len(y)
    values = [
        clone(model).fit(rest(n, i)[:, np.newaxis], y[rest(n, i)]).decision_function([[i]])[0]
        for i in range(n)
    ]
    return np.array(values)


@pytest.mark.parametrize("kind", ["two classes", "three classes", "labels"])
def test_discriminant_values_of_samples_left_out_equal_refits(kind):
    n = 16
    X, y = blobs(3 if kind == "three classes" else 2, n)
    y = np.column_stack([y, X[:, 0] > 0, X[:, 1] > 0.3]).astype(int) if kind == "labels" else y
    K = np.exp(-((X[:, np.newaxis] - X) ** 2).sum(axis=2) / 9)
    # Row numbers for samples: the kernel stays that of all samples when one is left out.
    model = DiscriminantMKLClassifier([Precomputed(K)], alpha=0.3, weights=[1.0], normalize=None)
    found = clone(model).fit(np.arange(n)[:, np.newaxis], y)
    values = left_out_values(model, K, y)
    new = np.linspace(-1.5, 1.5, 7)
    if kind == "labels":
        for j, one in enumerate(found._calibration.labels):
            expected = Calibration.fit(values[:, j], y[:, j], 2, None, "sigmoid")
            assert_allclose(one.probabilities(new), expected.probabilities(new), atol=1e-6)
        p = found.predict_proba(np.arange(n)[:, np.newaxis])
        assert p.shape == (n, 3)
        assert np.all((p > 0) & (p < 1))
        return
    outputs = new if kind == "two classes" else np.column_stack([new, new[::-1], 0 * new])
    expected = Calibration.fit(values, y, len(np.unique(y)), None, "sigmoid")
    assert_allclose(
        found._calibration.probabilities(outputs), expected.probabilities(outputs), atol=1e-6
    )


@pytest.mark.parametrize("formulation", ["newton", "silp"])
@pytest.mark.parametrize("decision", ["least_squares", "centroid"])
def test_discriminant_in_features_and_with_either_rule(formulation, decision):
    X, y = blobs(3, 60)
    exact = DiscriminantMKLClassifier(
        KERNELS, solver=formulation, decision=decision, alpha=1e-3
    ).fit(X, y)
    p = exact.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1)
    assert np.mean(p.argmax(axis=1) == y) > 0.7
    assert_allclose(exact.predict_log_proba(X), np.log(p))
    # Fewer features than samples, so that the system is one of features.
    few = [("line", Linear()), ("square", Polynomial(2))]
    options = {"alpha": 1e-3, "decision": decision, "weights": "uniform"}
    features = DiscriminantMKLClassifier(
        few, approximation="nystroem", rank=20, random_state=0, **options
    ).fit(X, y)
    same = DiscriminantMKLClassifier(few, **options).fit(X, y)
    assert_allclose(features.predict_proba(X), same.predict_proba(X), atol=1e-4)


def test_the_discriminant_search_keeps_its_own_probabilities():
    X, y = blobs(2, 60)
    plain = DiscriminantMKLClassifier(KERNELS, weights="uniform")
    search = PathSearchCV(plain, Cs=[1e-3, 1e-1], cv=3, scale=False, calibration="isotonic").fit(
        X, y
    )
    plain.set_params(alpha=search.C_)
    held = cross_val_predict(plain, X, y, cv=3, method="decision_function")
    expected = Calibration.fit(held, y, 2, None, "isotonic")
    assert_allclose(
        search.predict_proba(X), expected.probabilities(search.decision_function(X)), atol=1e-6
    )
    own = PathSearchCV(plain, Cs=[search.C_], cv=3, scale=False, calibration=None).fit(X, y)
    assert_allclose(own.predict_proba(X), plain.fit(X, y).predict_proba(X))


def test_discriminant_model_files(tmp_path):
    X, y = blobs(3, 60)
    model = DiscriminantMKLClassifier(KERNELS).fit(X, y)
    save(model, tmp_path / "model.kmosaic")
    assert_array_equal(load(tmp_path / "model.kmosaic").predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_posteriors_come_back(n_classes):
    random = np.random.RandomState(0)
    X = random.uniform(-1, 1, (60, 2))
    scores = np.column_stack([X[:, 0], 0.8 * X[:, 1], -X[:, 0] - X[:, 1]])[:, :n_classes]
    truth = np.exp(log_softmax(1.5 * scores, axis=1))
    model = PosteriorMKLClassifier(KERNELS, C=10.0).fit(X, truth)
    p = model.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1)
    assert p.min() > 0
    assert np.mean(np.abs(p - truth)) < 0.06
    assert np.mean(p.argmax(axis=1) == model.predict(X)) > 0.98
    # The nearest point of the simplex, by a solver.
    outputs = model.decision_function(X[:5])
    V = 0.5 * (np.column_stack([-outputs, outputs]) if n_classes == 2 else outputs)
    for v, found in zip(V, p[:5], strict=True):
        nearest = minimize(
            lambda q, v=v: np.sum((q - v) ** 2),
            np.full(n_classes, 1 / n_classes),
            bounds=[(0, 1)] * n_classes,
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
            tol=1e-12,
        ).x
        assert_allclose(found, nearest, atol=5e-3)
    far = model.predict_proba(50 * X)
    assert far.min() > 0
    assert np.all(np.isfinite(model.predict_log_proba(50 * X)))
