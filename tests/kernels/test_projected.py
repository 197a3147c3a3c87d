"""Projected kernels: the kernel of the projected samples, and its slopes by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone

from kernelmosaic.kernels import (
    Correlation,
    Gaussian,
    Linear,
    Polynomial,
    Projected,
    Rescaled,
    Spectrum,
)

RNG = np.random.RandomState(0)
X = RNG.normal(size=(11, 4)) * [3.0, 1.0, 2.0, 0.5] + 0.7
INNER = [Linear(), Polynomial(degree=3, offset=0.5), Gaussian(width=2.0)]


def differences(function, W, h=1e-6):
    out = np.zeros_like(W)
    for index in np.ndindex(*W.shape):
        values = []
        for sign in (1, -1):
            there = W.copy()
            there[index] += sign * h
            values.append(function(there))
        out[index] = (values[0] - values[1]) / (2 * h)
    return out


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_it_is_the_kernel_of_the_projected_samples(inner):
    kernel = Projected(inner, 2).fit(X)
    P = X @ kernel.W_
    assert_allclose(kernel(X), inner(P), rtol=1e-10)
    assert_allclose(kernel(X[:3], X), inner(P[:3], P), rtol=1e-10)
    assert_allclose(kernel.diag(X), np.diag(inner(P)), rtol=1e-10)
    assert_allclose(kernel.transform(X), P)


@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize("symmetric", [True, False])
def test_slopes_equal_finite_differences(inner, symmetric):
    kernel = Projected(inner, 2, random_state=0).fit(X)
    G = RNG.normal(size=(len(X), len(X)))
    G = G + G.T if symmetric else G
    W = kernel.W_.copy()

    def total(there):
        kernel.W_ = there
        return np.sum(G * kernel(X))

    expected = differences(total, W)
    kernel.W_ = W
    assert_allclose(kernel.vjp(X, G), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_slopes_of_the_diagonal_equal_finite_differences(inner):
    kernel = Projected(inner, 3, random_state=0).fit(X)
    g = RNG.normal(size=len(X))
    W = kernel.W_.copy()

    def total(there):
        kernel.W_ = there
        return g @ kernel.diag(X)

    expected = differences(total, W)
    kernel.W_ = W
    assert_allclose(kernel.diagonal_vjp(X, g), expected, rtol=1e-5, atol=1e-6)


def test_it_starts_at_the_principal_directions():
    W = Projected(Linear(), 2).fit(X).W_
    _, _, Vt = np.linalg.svd(X - X.mean(axis=0))
    assert_allclose(np.abs(np.sum(W * Vt[:2].T, axis=0)), 1.0, atol=1e-10)
    other = Projected(Linear(), 2, random_state=3).fit(X).W_
    assert_allclose(other, Projected(Linear(), 2, random_state=3).fit(X).W_)
    assert not np.allclose(other, W)


def test_it_may_start_at_random_orthonormal_directions():
    W = Projected(Linear(), 2, init="random").fit(X).W_
    assert_allclose(W.T @ W, np.eye(2), atol=1e-12)
    assert_allclose(
        W, Projected(Linear(), 2, init="random").fit(X + 100.0 * X**2).W_
    )  # whatever the samples are
    kernel = Projected(Linear(), 2, random_state=1, init="random").fit(X)
    assert not np.allclose(kernel.W_, W)
    first, second = (kernel.start(np.random.RandomState(seed), is_single=True) for seed in (0, 1))
    assert_allclose(first.T @ first, np.eye(2), atol=1e-12)
    assert not np.allclose(first, second)


def test_sparse_samples_give_the_same():
    dense = Projected(Gaussian(2.0), 2).fit(X)
    thin = Projected(Gaussian(2.0), 2).fit(sparse.csr_array(X))
    G = RNG.normal(size=(len(X), len(X)))
    assert_allclose(thin.W_, dense.W_, atol=1e-10)
    assert_allclose(thin(sparse.csr_array(X)), dense(X), atol=1e-10)
    assert_allclose(thin.vjp(sparse.csr_array(X), G), dense.vjp(X, G), atol=1e-8)


def test_wrong_parameters_are_named():
    with pytest.raises(ValueError, match="n_components=5: give a whole number from 1 to the 4"):
        Projected(Linear(), 5).fit(X)
    with pytest.raises(TypeError, match="Linear, Polynomial and Gaussian"):
        Projected(Correlation(), 2).fit(X)
    with pytest.raises(ValueError, match="init='zeros': choose one of 'pca', 'random'"):
        Projected(Linear(), 2, init="zeros").fit(X)
    assert clone(Projected(Gaussian(1.0), 3)).get_params()["kernel__width"] == 1.0


def test_rescaled_kernels_have_a_width_of_their_own():
    with pytest.raises(
        TypeError, match=r"kernel=Spectrum\(.*give Gaussian, Laplacian, Linear or Polynomial"
    ):
        Rescaled(Spectrum(), np.ones(4)).fit(X)


def test_frequencies_of_rescaled_kernels():
    scale, rng = np.array([1.0, 2.0, 0.5, 4.0]), np.random.RandomState
    plain = Gaussian(2.0).fit(X).draw_frequencies(4, 7, rng(0))
    rescaled = Rescaled(Gaussian(2.0), scale).fit(X).draw_frequencies(4, 7, rng(0))
    assert_allclose(rescaled, plain / scale[:, np.newaxis])
