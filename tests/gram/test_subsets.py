"""The forms ½βᵀK_mβ of all kernels in one pass, against a loop over pairs of samples."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kernelmosaic.gram.subsets import SubsetKernels, SubsetStack
from kernelmosaic.kernels import Gaussian, Laplacian, Subsets
from kernelmosaic.kernels.views import lay_specs, read_kernels

WIDTHS = [0.3, "median", 4.0]


def make_stack(X, subsets):
    kernels = SubsetKernels.fit(lay_specs(read_kernels(subsets), X), X, "trace")
    return SubsetStack(kernels, kernels.views(X))


def naive_forms(X, subsets, beta):
    """½ Σ_c β_cᵀKβ_c by the book, kernel by kernel and pair by pair."""
    power = 2 if type(subsets.kernel) is Gaussian else 1
    W, forms = beta.reshape(len(X), -1) @ beta.reshape(len(X), -1).T, []
    for _, kernel, columns in subsets.expand(range(X.shape[1])):
        Z = X[:, columns]
        width = kernel.fit(Z).width_
        total = 0.0
        for i in range(len(Z)):
            for j in range(len(Z)):
                distance = sum(abs(a - b) ** power for a, b in zip(Z[i], Z[j], strict=True))
                total += 0.5 * W[i, j] * exp(-distance / width**power)
        forms.append(total)
    return np.array(forms)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((25, 5)) * [1.0, 3.0, 0.5, 1.0, 1.0]
    beta = rng.standard_normal((25, 2)) * (rng.uniform(size=(25, 1)) > 0.3)
    return X, beta


@pytest.mark.parametrize("pattern", [Gaussian(), Laplacian()])
@pytest.mark.parametrize("outputs", [1, 2])
def test_forms_of_all_kernels(samples, pattern, outputs):
    X, beta = samples
    beta = beta[:, 0] if outputs == 1 else beta
    subsets = Subsets(pattern, size=(1, 2, 3), width=WIDTHS)
    expected = naive_forms(X, subsets, beta)
    found = make_stack(X, subsets).quadratic_forms(beta)
    assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(beta).sum() ** 2)
    # What a certificate is made of is in double precision.
    assert np.argmax(found) == np.argmax(expected)
    assert_allclose(found.max(), expected.max(), rtol=1e-12)


def test_forms_of_some_kernels(samples):
    X, beta = samples
    subsets = Subsets(Gaussian(), size=2, width=WIDTHS)
    stack, some = make_stack(X, subsets), np.array([3, 4, 11, 29])
    found = stack.quadratic_forms(beta[:, 0], some)
    assert_allclose(found[some], stack.quadratic_forms(beta[:, 0])[some], rtol=1e-5)
    assert_array_equal(np.flatnonzero(found), some)
    assert_array_equal(stack.quadratic_forms(np.zeros(25)), 0.0)


def test_the_largest_by_its_factor(samples):
    """Where forms are multiplied, it is the largest product that is right, be the factors what they may."""
    X, beta = samples
    subsets = Subsets(Gaussian(), size=2, width=WIDTHS)
    stack, expected = make_stack(X, subsets), naive_forms(X, subsets, beta[:, 0])
    for seed in range(5):
        factors = np.exp(np.random.RandomState(seed).standard_normal(stack.n_kernels))
        found = stack.quadratic_forms(beta[:, 0], None, factors)
        assert np.argmax(found) == np.argmax(expected * factors)
        assert_allclose(found.max(), (expected * factors).max(), rtol=1e-12)


def test_errors_are_within_their_bound(samples):
    X, beta = samples
    subsets = Subsets(Gaussian(), size=3, width=np.logspace(-2, 2, 9))
    stack = make_stack(X, subsets)
    support = np.flatnonzero(beta[:, 0])
    found, error = stack._single_forms(support, beta[support, 0], np.arange(stack.n_kernels))
    assert np.all(np.abs(found - naive_forms(X, subsets, beta[:, 0])) <= error)
    assert error.max() <= 1e-4 * found.max()


@pytest.mark.parametrize("scale", [1e-150, 1e150, np.array([1e-40, 1.0, 1e40, 1.0, 1e-10])])
def test_samples_on_any_scale(samples, scale):
    X, beta = samples
    subsets = Subsets(Gaussian(), size=1)  # as wide as the median, so that scales do not matter
    expected = naive_forms(X, subsets, beta[:, 0])
    found = make_stack(X * scale, subsets).quadratic_forms(beta[:, 0])
    assert_allclose(found.max(), expected.max(), rtol=1e-9)


def test_matrices_of_a_few_kernels(samples):
    X, beta = samples
    subsets = Subsets(Gaussian(), size=2, width=WIDTHS)
    stack, family = make_stack(X, subsets), subsets.expand(range(5))
    asked = [28, 1, 7]
    Ks = np.array([kernel(X[:, columns]) for _, kernel, columns in (family[m] for m in asked)])
    for m, block in stack.blocks(asked, slice(0, 25), slice(0, 25)):
        assert_allclose(block, Ks[asked.index(m)], rtol=1e-12)
    weights = np.zeros(len(family))
    weights[asked] = [0.2, 0.3, 0.5]
    K = np.tensordot([0.2, 0.3, 0.5], Ks, axes=1)
    assert_allclose(np.asarray(stack.combine(weights)), K, rtol=1e-12)
    rows = np.array([0, 3])
    products = stack.products(beta[:, 0], rows, asked)
    assert_allclose(products[asked], Ks[:, rows] @ beta[:, 0], rtol=1e-10, atol=1e-12)
    assert sum(strip.stop - strip.start for strip in stack.row_strips(25)) == 25
