"""The Tanimoto kernel: every way of computing it, and what it does to sets, counts and
estimators."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from tests.reference import naive_kernels as naive

from kernelmosaic import MKLClassifier, MKLClassifierCV
from kernelmosaic.kernels import Gaussian, Linear, Tanimoto

RNG = np.random.RandomState(0)
#: More pairs than are computed without compiled loops.
MANY = 301
BITS = (RNG.rand(MANY, 40) < 0.2).astype(float)
DENSE = RNG.poisson(1.0, size=(MANY, 40)).astype(float)
RARE = RNG.poisson(0.04, size=(MANY, 40)).astype(float)
REAL = DENSE * RNG.rand(MANY, 40)
HUGE = DENSE * 1e7


def expected(X, Y):
    return np.array(naive.block(naive.tanimoto, X.tolist(), Y.tolist()))


@pytest.mark.parametrize(
    "X", [BITS, DENSE, RARE, REAL, HUGE], ids=["bits", "dense", "rare", "real", "huge"]
)
@pytest.mark.parametrize("container", [np.asarray, np.asfortranarray, sparse.csr_array])
def test_compiled_sums_equal_the_naive_loop(X, container):
    whole = Tanimoto()(container(X))
    some = np.r_[0:5, MANY - 5 : MANY]
    assert_allclose(whole[np.ix_(some, some)], expected(X[some], X[some]), rtol=1e-12, atol=1e-15)
    assert_array_equal(whole, whole.T)
    # Between two sets, and from few pairs, which NumPy computes.
    assert_allclose(
        Tanimoto()(container(X)[:250], container(X)[3:]), whole[:250, 3:], rtol=1e-12, atol=1e-15
    )
    assert_allclose(Tanimoto()(container(X)[:9], container(X)), whole[:9], rtol=1e-12, atol=1e-15)


def test_sets_are_compared_by_jaccards_index():
    assert_allclose(Tanimoto()(BITS), 1 - cdist(BITS, BITS, "jaccard"), atol=1e-15)


def test_sparse_rows_may_be_out_of_order_and_say_a_number_in_parts():
    X = sparse.csr_array(
        (np.array([1.0, 2.0, 3.0, 0.0]), np.array([2, 0, 2, 1]), np.array([0, 4])), shape=(1, 4)
    )
    Y = sparse.csr_array(sparse.vstack([X] * 300))
    assert_allclose(Tanimoto()(Y, Y), 1.0)
    assert_allclose(Tanimoto()(Y, np.array([[2.0, 0, 2, 0]] * 300)), 4 / 6)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_negative_numbers_are_refused_by_name(container):
    with pytest.raises(ValueError, match=r"X holds -2: Tanimoto compares counts or zeros and ones"):
        Tanimoto().fit(container([[1.0, -2.0], [0.0, 1.0]]))


def test_cross_validation_does_not_standardise_counts():
    y = DENSE[:80, 0] > DENSE[:80, 1]
    X = np.hstack([DENSE[:80, :10], 100.0 * RNG.randn(80, 2)])
    kernels = [("counts", Tanimoto(), slice(0, 10)), ("rest", Gaussian(), [10, 11])]
    model = MKLClassifierCV(kernels, Cs=2, cv=2).fit(X, y)
    assert_array_equal(model._input_rules.standardizer.columns, [10, 11])
    sums = [("sum", 2.0 * Tanimoto() + Linear() * Tanimoto(), slice(0, 10)), kernels[1]]
    assert_array_equal(
        MKLClassifierCV(sums, Cs=2, cv=2).fit(X, y)._input_rules.standardizer.columns, [10, 11]
    )


def test_landmarks_serve_it_and_fourier_features_say_that_they_do_not():
    y = np.where(DENSE[:, 0] > DENSE[:, 1], "a", "b")
    exact = MKLClassifier([Tanimoto()], tol=1e-6).fit(DENSE, y)
    landmarks = MKLClassifier([Tanimoto()], approximation="nystroem", rank=MANY, tol=1e-6).fit(
        DENSE, y
    )
    assert_allclose(landmarks.decision_function(DENSE), exact.decision_function(DENSE), atol=1e-2)
    with pytest.raises(ValueError, match="use approximation='nystroem'"):
        MKLClassifier([Tanimoto()], approximation="fourier").fit(DENSE, y)


@pytest.mark.torch
@pytest.mark.parametrize("X", [BITS, DENSE, REAL], ids=["bits", "dense", "real"])
def test_tensors_give_what_arrays_do(X):
    torch = pytest.importorskip("torch")
    X = np.vstack([X, np.zeros((2, X.shape[1]))])
    block = Tanimoto()._block(torch.as_tensor(X), torch.as_tensor(X[:7]))
    assert isinstance(block, torch.Tensor)
    assert_allclose(block.numpy(), Tanimoto()(X, X[:7]), rtol=1e-12, atol=1e-14)
    y = np.arange(len(X)) % 2
    here, there = (
        MKLClassifier([Tanimoto(), Gaussian()], device=device).fit(X, y) for device in (None, "cpu")
    )
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
