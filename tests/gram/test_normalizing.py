"""Scales and centring, learned on the training set and applied to blocks of new samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from kernelmosaic.gram.normalizing import make_normalization
from kernelmosaic.kernels import Gaussian, Linear, Polynomial

RNG = np.random.RandomState(0)
X = RNG.normal(size=(30, 4)) + np.array([3.0, 0.0, -1.0, 0.0])
Z = RNG.normal(size=(7, 4)) * 2 + 1
WEIGHT = RNG.uniform(0.1, 2.0, size=30)
RULES = ["trace", "diagonal", "centered", None]


def fitted(rule, kernel, weight=None, samples=X):
    kernel = kernel.fit(samples)
    return make_normalization(rule).fit(kernel, samples, weight), kernel


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(3), Gaussian("median")], ids=repr)
@pytest.mark.parametrize("rule", RULES)
def test_the_diagonal_is_that_of_the_block(rule, kernel):
    scale, kernel = fitted(rule, kernel, WEIGHT)
    for samples in (X, Z):
        block = scale.block(kernel(samples), scale.row_scale(samples), scale.row_scale(samples))
        np.testing.assert_allclose(
            scale.diagonal(kernel.diag(samples), scale.row_scale(samples)),
            np.diag(block),
            rtol=1e-10,
        )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_the_trace_factor_is_learned_once_and_used_again(weight):
    scale, kernel = fitted("trace", Polynomial(2), weight)
    factor = np.average(np.diag((X @ X.T + 1) ** 2), weights=weight)
    np.testing.assert_allclose(
        scale.block(kernel(Z, X), scale.row_scale(Z), scale.row_scale(X)),
        (Z @ X.T + 1) ** 2 / factor,
    )
    np.testing.assert_allclose(
        np.average(scale.diagonal(kernel.diag(X), scale.row_scale(X)), weights=weight), 1.0
    )


def test_new_samples_have_a_unit_diagonal():
    scale, kernel = fitted("diagonal", Linear())
    lengths = np.linalg.norm
    expected = (Z @ X.T) / np.outer(lengths(Z, axis=1), lengths(X, axis=1))
    np.testing.assert_allclose(
        scale.block(kernel(Z, X), scale.row_scale(Z), scale.row_scale(X)), expected
    )
    np.testing.assert_allclose(
        np.diag(scale.block(kernel(Z), scale.row_scale(Z), scale.row_scale(Z))), 1.0
    )


def test_a_sample_at_the_origin_is_like_nothing():
    scale, kernel = fitted("diagonal", Linear())
    origin = np.zeros((1, 4))
    np.testing.assert_array_equal(
        scale.block(kernel(origin, X), scale.row_scale(origin), scale.row_scale(X)), 0.0
    )
    np.testing.assert_array_equal(
        scale.diagonal(kernel.diag(origin), scale.row_scale(origin)), [0.0]
    )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_centring_is_centring_of_the_features(weight, form):
    scale, kernel = fitted("centered", Linear(), weight, form(X))
    mean = np.average(X, axis=0, weights=weight)
    variance = np.average(np.square(X - mean).sum(axis=1), weights=weight)
    for left, right in ((Z, X), (X, X), (Z, Z)):
        block = scale.block(
            kernel(form(left), form(right)),
            scale.row_scale(form(left)),
            scale.row_scale(form(right)),
        )
        np.testing.assert_allclose(block, (left - mean) @ (right - mean).T / variance, atol=1e-12)


def test_centring_a_quadratic_kernel_centres_its_monomials():
    def features(A):
        pairs = [(i, j) for i in range(4) for j in range(i + 1)]
        squares = [A[:, i] * A[:, j] * (1.0 if i == j else np.sqrt(2)) for i, j in pairs]
        return np.column_stack([np.ones(len(A)), np.sqrt(2) * A, *squares])

    scale, kernel = fitted("centered", Polynomial(2))
    phi, mean = features, features(X).mean(axis=0)
    variance = np.square(phi(X) - mean).sum(axis=1).mean()
    np.testing.assert_allclose(
        scale.block(kernel(Z, X), scale.row_scale(Z), scale.row_scale(X)),
        (phi(Z) - mean) @ (phi(X) - mean).T / variance,
        atol=1e-10,
    )
    assert (
        np.abs(scale.block(kernel(X), scale.row_scale(X), scale.row_scale(X)).sum(axis=0)).max()
        < 1e-10
    )


def test_a_kernel_of_zeros_stays_one():
    nothing = np.zeros((5, 2))
    for rule in RULES:
        scale, kernel = fitted(rule, Linear(), samples=nothing)
        np.testing.assert_array_equal(
            scale.block(kernel(nothing), scale.row_scale(nothing), scale.row_scale(nothing)), 0.0
        )


def test_single_precision_stays_single():
    small = X.astype(np.float32)
    for rule in RULES:
        scale, kernel = fitted(rule, Polynomial(), samples=small)
        assert (
            scale.block(kernel(small), scale.row_scale(small), scale.row_scale(small)).dtype
            == np.float32
        )


@pytest.mark.parametrize("rule", ["unit", 1, ["trace"]])
def test_an_unknown_rule_is_told_the_known_ones(rule):
    with pytest.raises(ValueError, match=r"normalize=.*'trace'.*'diagonal'.*'centered'"):
        make_normalization(rule)
