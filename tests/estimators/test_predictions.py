"""What a fitted model keeps and gives: shares of the decision, the combined kernel, and nothing it
does not need."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs

from kernelmosaic import DiscriminantMKLClassifier, MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.engine import expansion as _expansion
from kernelmosaic.kernels import Gaussian, Kernel, Linear, Polynomial
from kernelmosaic.kernels.base import pairwise_statistic

KERNELS = [Linear(), Polynomial(), Gaussian("median")]


class Counting(Kernel):
    """The linear kernel, counting the entries it computes."""

    entries = 0

    def _block(self, X, Y):
        Counting.entries += X.shape[0] * Y.shape[0]
        return pairwise_statistic("products", X, Y).copy()

    def _diagonal(self, X):
        return np.square(X).sum(axis=1)


def blobs(n_classes, n=80):
    X, y = make_blobs(n, 3, centers=n_classes, cluster_std=4.0, random_state=0)
    return X / 5, y


GIVEN = [0.0, 2.0, 0.3]
#: Every machine and every normalisation with equal and with given weights; centring is refused of
#: one class.
SUMMED = {
    "binary": [(MKLClassifier(), 2, "trace", "uniform"), (MKLClassifier(), 2, "centered", GIVEN)],
    "multi-class": [
        (MKLClassifier(), 4, "centered", "uniform"),
        (MKLClassifier(), 4, "diagonal", GIVEN),
    ],
    "regression": [(MKLRegressor(), 4, None, "uniform"), (MKLRegressor(), 4, "trace", GIVEN)],
    "novelty": [(MKLOneClass(), 2, "diagonal", "uniform"), (MKLOneClass(), 2, None, GIVEN)],
}


@pytest.mark.parametrize(
    ("estimator", "n_classes", "normalize", "weights"),
    [
        pytest.param(*case, id=f"{name}, {case[2]}")
        for name, cases in SUMMED.items()
        for case in cases
    ],
)
def test_contributions_and_intercept_make_the_decision(estimator, n_classes, normalize, weights):
    X, y = blobs(n_classes)
    if isinstance(estimator, MKLOneClass):
        X = (
            X + 10.0
        )  # away from the origin, which is what a one-class machine separates samples from
    model = (
        clone(estimator)
        .set_params(kernels=KERNELS, weights=weights, normalize=normalize)
        .fit(X[:60], y[:60])
    )
    shares = model.contributions(X[60:])
    decide = model.predict if isinstance(model, MKLRegressor) else model.decision_function
    assert shares.shape == (
        (20, 3, 4) if (isinstance(model, MKLClassifier) and n_classes == 4) else (20, 3)
    )
    intercept = model.intercept_ if shares.ndim == 3 else model.intercept_[0]
    np.testing.assert_allclose(shares.sum(axis=1) + intercept, decide(X[60:]), rtol=1e-9, atol=1e-9)
    # Each share by itself: the kernel's own matrix times the coefficients.
    for m, weight in enumerate(np.atleast_2d(model.weights_)[0]):
        alone = np.eye(3)[m] * weight
        if weight == 0:
            assert not shares[:, m].any()
            continue
        one = clone(model).set_params(weights=alone).fit(X[:60], y[:60])
        K = one.kernel_matrix(X[60:], X[:60])
        expected = K[0] if K.ndim == 3 else K
        first = shares[:, m, 0] if shares.ndim == 3 else shares[:, m]
        np.testing.assert_allclose(
            first, expected[:, model.support_] @ model.dual_coef_[0], rtol=1e-7, atol=1e-9
        )


def test_a_prediction_in_strips_is_the_same(monkeypatch):

    X, y = blobs(3)
    model = MKLClassifier(KERNELS, weights="uniform").fit(X, y)
    whole = model.decision_function(X), model.contributions(X)
    monkeypatch.setitem(_expansion._BLOCK_BYTES, "support", 8 * len(model.support_) * 7)
    np.testing.assert_allclose(model.decision_function(X), whole[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.contributions(X), whole[1], rtol=1e-9, atol=1e-12)


def test_kernels_without_weight_are_not_evaluated():
    X, y = blobs(2)
    model = MKLClassifier([("kept", Gaussian(3.0)), ("idle", Counting())], weights=[1.0, 0.0]).fit(
        X, y
    )
    Counting.entries = 0
    model.predict(X), model.contributions(X), model.kernel_matrix(X)
    assert Counting.entries == 0
    assert "Counting" not in repr(model.function_.expansion.kernel_set)


def test_only_support_vectors_are_evaluated():
    X, y = make_blobs(200, 3, centers=2, cluster_std=1.0, random_state=0)
    model = MKLClassifier([Counting()], weights="uniform").fit(X, y)
    assert len(model.support_) < 30
    Counting.entries = 0
    model.predict(X)
    assert Counting.entries == len(X) * len(model.support_)


def test_only_support_vectors_are_kept():
    X, y = make_blobs(2000, 50, centers=2, cluster_std=5.0, random_state=0)
    model = MKLClassifier([Linear(), Gaussian(40.0)], weights="uniform").fit(X, y)
    assert len(model.support_) < 200
    # Dense blocks of the support for one shared view, the coefficients, and little else.
    assert len(pickle.dumps(model)) < len(model.support_) * (X.shape[1] + 10) * 8 + 8000
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X[:50]), model.decision_function(X[:50]))


def test_kernel_matrix_is_the_weighted_sum():
    X, y = blobs(2)
    Y = X[:7] + 0.1
    model = MKLClassifier([Linear(), Polynomial(3, 0.5)], weights=[0.25, 2.0], normalize=None).fit(
        X, y
    )
    np.testing.assert_allclose(
        model.kernel_matrix(X, Y), 0.25 * X @ Y.T + 2.0 * (X @ Y.T + 0.5) ** 3
    )
    K = model.kernel_matrix(X)
    assert K.shape == (80, 80)
    np.testing.assert_allclose(K, K.T)


def test_a_model_without_support_vectors_is_its_intercept():
    X, _ = blobs(2)
    model = MKLRegressor(KERNELS, epsilon=1.0).fit(X, np.linspace(4.5, 5.5, len(X)))
    assert model.n_support_.tolist() == [0]
    np.testing.assert_allclose(model.predict(X), model.intercept_[0])
    assert 4.5 <= model.intercept_[0] <= 5.5
    np.testing.assert_array_equal(model.contributions(X), 0.0)


def test_labels_come_back_as_they_were_given():
    X, y = blobs(3)
    names = np.array(["pear", "apple", "fig"])[y]
    model = MKLClassifier(KERNELS, weights="uniform").fit(X, names)
    assert model.classes_.tolist() == ["apple", "fig", "pear"]
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, names) > 0.5


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "centered"])
@pytest.mark.parametrize("approximation", [None, "nystroem"])
@pytest.mark.parametrize("kind", [MKLClassifier, DiscriminantMKLClassifier])
def test_a_model_does_not_notice_what_becomes_of_its_training_set(kind, approximation, normalize):
    rng = np.random.RandomState(0)
    X, fresh = rng.standard_normal((40, 3)), rng.standard_normal((10, 3))
    model = kind(KERNELS, normalize=normalize, random_state=0)
    if approximation is not None:
        model.set_params(approximation=approximation, rank=40)
    before = model.fit(X, X[:, 0] > 0).decision_function(fresh)
    X[:] = 7.0
    np.testing.assert_array_equal(model.decision_function(fresh), before)


def test_every_class_is_decided_by_its_own_learned_weights():
    X, y = blobs(3)
    model = MKLClassifier(KERNELS, normalize=None, multi_class="ovr").fit(X, y)
    assert model.weights_.shape == (3, 3)
    assert np.ptp(model.weights_, axis=0).max() > 0.1
    blocks = [clone(kernel).fit(X)(X, X[model.support_]) for kernel in KERNELS]
    for c, (eta, beta) in enumerate(zip(model.weights_, model.dual_coef_, strict=True)):
        f = (
            sum(weight * block @ beta for weight, block in zip(eta, blocks, strict=True))
            + model.intercept_[c]
        )
        np.testing.assert_allclose(model.decision_function(X)[:, c], f, rtol=1e-8, atol=1e-8)
