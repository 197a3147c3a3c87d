"""Several labels per sample in discriminant analysis: the printed criterion, written out, as the
reference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.metrics import f1_score
from sklearn.multioutput import MultiOutputClassifier

from kernelmosaic import DiscriminantMKLClassifier
from kernelmosaic.kernels import Gaussian, Linear

X, Y = make_multilabel_classification(120, 8, n_classes=4, n_labels=2, random_state=3)
X = (X - X.mean(axis=0)) / X.std(axis=0)
KERNELS = [("line", Linear()), ("bell", Gaussian(2.0))]


def test_one_label_each_is_the_same_as_classes():
    A, c = load_iris(return_X_y=True)
    classes = DiscriminantMKLClassifier(KERNELS, tol=1e-8).fit(A, c)
    labels = DiscriminantMKLClassifier(KERNELS, tol=1e-8).fit(A, np.eye(3, dtype=int)[c])
    assert labels.objective_ == pytest.approx(classes.objective_, rel=1e-7)
    np.testing.assert_allclose(labels.weights_, classes.weights_, atol=1e-4)
    # One score per class, between 0 and 1 with classes and between −1 and 1 with labels.
    np.testing.assert_allclose(
        labels.decision_function(A), 2 * classes.decision_function(A) - 1, atol=1e-3
    )
    np.testing.assert_array_equal(labels.predict(A), labels.decision_function(A) > 0)


def test_the_weights_minimise_the_criterion_as_it_is_written():
    n = len(X)
    center = np.eye(n) - 1.0 / n
    H = np.sqrt(n) * center @ Y @ np.linalg.inv(np.real(sqrtm(Y.T @ Y)))
    Ks = [X @ X.T, np.exp(-((X[:, None] - X) ** 2).sum(-1) / 4.0)]
    Gs = [center @ K @ center for K in Ks]
    Gs = [G / np.trace(G) for G in Gs]  # weights sum to one for kernels of trace one

    def criterion(share):
        return np.trace(
            H.T @ np.linalg.solve(np.eye(n) + (share * Gs[0] + (1 - share) * Gs[1]) / 1e-2, H)
        )

    best = minimize_scalar(criterion, bounds=(0, 1), method="bounded", options={"xatol": 1e-8})
    model = DiscriminantMKLClassifier(KERNELS, alpha=1e-2, tol=1e-9).fit(X, Y)
    assert 0.01 < best.x < 0.99
    assert model.objective_ == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_allclose(model.trace_shares_, [best.x, 1 - best.x], atol=1e-3)


@pytest.mark.parametrize("formulation", ["newton", "silp", "qcqp", "sdp"])
def test_every_formulation_has_the_same_optimum(formulation):
    few, labels = X[:40], Y[:40]
    model = DiscriminantMKLClassifier(KERNELS, alpha=1e-2, solver=formulation, tol=1e-5).fit(
        few, labels
    )
    reference = DiscriminantMKLClassifier(KERNELS, alpha=1e-2, tol=1e-9).fit(few, labels)
    assert model.objective_ == pytest.approx(reference.objective_, rel=2e-5)


def test_features_of_full_rank_and_a_learned_regulariser():
    for alpha in (1e-2, "learn"):
        exact, full = (
            DiscriminantMKLClassifier(KERNELS, alpha=alpha, random_state=0, tol=1e-6, **form)
            for form in ({}, {"approximation": "nystroem", "rank": 200})
        )
        assert full.fit(X, Y).objective_ == pytest.approx(exact.fit(X, Y).objective_, rel=1e-5)


def test_labels_together_are_no_worse_than_one_by_one():
    model = DiscriminantMKLClassifier(KERNELS, alpha="learn").fit(X[:80], Y[:80])
    single = MultiOutputClassifier(DiscriminantMKLClassifier(KERNELS, alpha="learn")).fit(
        X[:80], Y[:80]
    )
    ours, theirs = (
        f1_score(Y[80:], one.predict(X[80:]), average="micro") for one in (model, single)
    )
    assert model.predict(X).shape == Y.shape
    assert ours > 0.7
    assert ours >= theirs - 0.05
    terms = model.contributions(X).sum(axis=1) + model.intercept_
    np.testing.assert_allclose(terms, model.decision_function(X), atol=1e-10)


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        (
            {},
            np.c_[Y, np.ones(len(Y), dtype=int)],
            "y: the label in column 4 is the same for all samples",
        ),
        ({}, Y + Y[:, ::-1], "give one class per sample, or indicators"),
        (
            {"decision": "centroid"},
            Y,
            "decision='centroid' is for one class per sample; several labels need '",
        ),
        ({"solver": "kim"}, Y[:, :2], "solver='kim' supports two classes"),
    ],
)
def test_what_cannot_be_fitted_is_named(parameters, y, message):
    with pytest.raises(ValueError, match=message):
        DiscriminantMKLClassifier(KERNELS, **parameters).fit(X, y)
