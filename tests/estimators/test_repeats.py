"""Weights and repetitions are the same thing: one problem, in one order, whatever the tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.svm import SVC

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.engine.samples import count_samples
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, Spectrum


@pytest.fixture(scope="module")
def weighted():
    X, y = make_blobs(40, 3, centers=3, cluster_std=4.0, random_state=0)
    return X, y, np.random.RandomState(1).randint(0, 4, size=40)


def test_samples_come_class_by_class_in_one_order_for_labels_and_storage_of_any_kind(weighted):
    X, y, times = weighted
    expected = count_samples(None, X, y, times.astype(float))
    assert np.all(np.diff(y[expected.rows]) >= 0)
    objects = np.array(["a", "b", "c"], dtype=object)[y]
    for samples, labels in ((sparse.csr_matrix(X), y), (X, objects)):
        found = count_samples(None, samples, labels, times.astype(float))
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_array_equal(found.weight, expected.weight)


#: Every estimator with dense and with sparse samples; each normalisation counts weights with
#: either, whoever asks.
COUNTED = [
    (MKLClassifier(), np.asarray, "trace"),
    (MKLClassifier(), sparse.csr_matrix, "centered"),
    (MKLClassifier(class_weight="balanced"), np.asarray, "centered"),
    (MKLClassifier(class_weight="balanced"), sparse.csr_matrix, "diagonal"),
    (MKLRegressor(norm=2), np.asarray, "diagonal"),
    (MKLRegressor(norm=2), sparse.csr_matrix, "trace"),
    (MKLOneClass(nu=0.3), np.asarray, None),  # centring is refused there, see the tests of errors
    (MKLOneClass(nu=0.3), sparse.csr_matrix, "trace"),
]


@pytest.mark.parametrize(("estimator", "form", "normalize"), COUNTED)
def test_a_weight_of_two_is_a_sample_given_twice(weighted, estimator, form, normalize):
    X, y, times = weighted
    order = np.random.RandomState(2).permutation(times.sum())
    once = clone(estimator).set_params(normalize=normalize).fit(form(X), y, sample_weight=times)
    repeated = np.repeat(np.arange(40), times)[order]
    often = clone(estimator).set_params(normalize=normalize).fit(form(X[repeated]), y[repeated])
    np.testing.assert_array_equal(once.weights_, often.weights_)
    # The default tolerance is 1e-3: two different problems would be told apart here, rounding is
    # not.
    np.testing.assert_allclose(
        once.contributions(form(X)), often.contributions(form(X)), rtol=1e-9, atol=1e-11
    )
    np.testing.assert_array_equal(once.support_, np.sort(repeated[often.support_]))
    assert not np.any(times[once.support_] == 0)


def test_repeated_samples_change_nothing_for_libsvm_either(weighted):
    X, y, times = weighted
    rows = np.repeat(np.arange(40), times)
    model = MKLClassifier([Linear(), Gaussian("median")], weights="uniform", tol=1e-10).fit(
        X[rows], y[rows] == 0
    )
    reference = SVC(kernel="precomputed", tol=1e-9).fit(model.kernel_matrix(X[rows]), y[rows] == 0)
    expected = reference.decision_function(model.kernel_matrix(X, X[rows]))
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-4, atol=1e-4)


def test_equal_samples_of_different_targets_stay_apart():
    counted = count_samples(None, np.array([[1.0], [1.0], [1.0]]), np.array([0.5, 0.5, 0.7]), None)
    assert sorted(zip(counted.rows, counted.weight, strict=True)) == [(0, 2.0), (2, 1.0)]


def test_distinct_samples_stay_in_their_order():
    X = np.random.RandomState(0).normal(size=(20, 2))
    counted = count_samples(None, X, None, None)
    assert counted.rows.tolist() == list(range(20))
    assert counted.weight.tolist() == [1.0] * 20


@pytest.mark.parametrize(
    "X",
    [
        np.array([[0.0, 1.0], [-0.0, 1.0]]),
        np.array([[3, 1], [3, 1]]),
        np.array([["ab", 1.0], ["ab", 1.0]], dtype=object),
        np.array([[b"ab"], [b"ab"]], dtype=object),
        sparse.csr_matrix(
            (np.array([0.0, 1.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2)
        ),
    ],
    ids=["zeros of both signs", "integers", "objects", "bytes", "stored zeros"],
)
def test_equal_samples_are_recognised(X):
    counted = count_samples(None, X, None, None)
    assert (counted.rows.tolist(), counted.weight.tolist()) == ([0], [2.0])


def test_entries_that_do_not_compare_are_told_apart():
    X = np.empty((4, 1), dtype=object)
    X[:, 0] = ["a", b"a", "a", 1]
    counted = count_samples(None, X, None, None)
    assert dict(zip(counted.rows.tolist(), counted.weight.tolist(), strict=True)) == {
        0: 2.0,
        1: 1.0,
        3: 1.0,
    }


def test_bootstrap_rows_of_a_precomputed_kernel(weighted):
    X, y, times = weighted
    rows = np.repeat(np.arange(40), times)
    K = Precomputed(X @ X.T)
    drawn = MKLClassifier([K], weights="uniform").fit(rows, y[rows])
    counted = MKLClassifier([K], weights="uniform").fit(np.arange(40), y, sample_weight=times)
    np.testing.assert_array_equal(
        drawn.decision_function(np.arange(40)), counted.decision_function(np.arange(40))
    )


def test_repeated_strings():
    words = ["abab", "abba", "bbbb", "babb"]
    model = MKLClassifier([Spectrum(2)], weights="uniform").fit(words * 3, [0, 0, 1, 1] * 3)
    assert set(model.support_) <= set(range(4))
    assert model.dual_coef_.sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "settings", [{}, {"approximation": "nystroem", "rank": 5}], ids=["exact", "landmarks"]
)
def test_weights_of_one_are_no_weights(settings):
    random = np.random.default_rng(0)
    Z = random.standard_normal((60, 3))
    target = np.sin(2 * Z[:, 0]) + 0.3 * random.standard_normal(60)
    model = MKLRegressor([Gaussian(1.0), Linear()], random_state=0, **settings)
    without = model.fit(Z, target).predict(Z)
    np.testing.assert_array_equal(
        model.fit(Z, target, sample_weight=np.ones(60)).predict(Z), without
    )
