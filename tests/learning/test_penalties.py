"""Penalties: given, from spectra, and refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.learning.problems import make_kernels

from kernelmosaic import MKLClassifier
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.learning.norms import large_eigenvalues, make_penalties


def test_large_eigenvalues_by_the_book():
    Ks = make_kernels(np.random.RandomState(0), 30, 6)[1]
    stack = StoredStack(7.0 * Ks)
    for m, K in enumerate(Ks):
        s = np.sqrt(np.diag(K))
        spectrum = np.linalg.eigvalsh(K / np.outer(s, s))
        assert large_eigenvalues(stack, m) == sum(value > 0.5 for value in spectrum)


def test_spectra_known_beforehand():
    n = 10
    blocks = np.kron(np.eye(2), np.ones((5, 5)))
    Ks = np.array([np.eye(n), np.ones((n, n)), blocks, np.zeros((n, n))])
    d = make_penalties("eigenvalue", 1, StoredStack(Ks))
    assert_array_equal(d, [10, 1, 2, 1])
    assert_allclose(make_penalties("eigenvalue", 0.5, StoredStack(Ks)), np.sqrt(d))
    assert_array_equal(make_penalties("eigenvalue", 0, StoredStack(Ks)), np.ones(4))


def test_the_matrices_are_left_alone():
    Ks = make_kernels(np.random.RandomState(0), 12, 3)[1] * 2
    before = Ks.copy()
    make_penalties("eigenvalue", 1, StoredStack(Ks))
    assert_array_equal(Ks, before)


def test_power_zero_is_plain_and_larger_powers_turn_to_simpler_kernels():
    X, y = make_gaussians(n_components=4, n_samples=80, random_state=0)
    kernels = [("line", Linear()), ("bell", Gaussian(0.3))]
    plain = MKLClassifier(kernels).fit(X, y)
    zero = MKLClassifier(kernels, penalties="eigenvalue", penalty_power=0).fit(X, y)
    assert_array_equal(zero.weights_, plain.weights_)
    strong = MKLClassifier(kernels, penalties="eigenvalue", penalty_power=1).fit(X, y)
    assert strong.weights_[0] / strong.weights_.sum() > plain.weights_[0]


@pytest.mark.parametrize(
    ("penalties", "power", "message"),
    [
        ("rank", 1, "penalties='rank': give 'eigenvalue', 2 positive numbers, or None"),
        ("eigenvalue", -1, "penalty_power=-1"),
        ("eigenvalue", "x", "penalty_power='x'"),
        ([1.0, 0.0], 1, "every penalty must be positive"),
        ([1.0], 1, "2 kernels"),
        ([1.0, np.nan], 1, "NaN"),
    ],
)
def test_refusals(penalties, power, message):
    with pytest.raises(ValueError, match=message):
        make_penalties(penalties, power, StoredStack(np.ones((2, 3, 3))))


def test_penalties_of_extreme_size():
    with pytest.raises(ValueError, match="give numbers between 1e-08 and 1e\\+08"):
        MKLClassifier([Gaussian(), Linear()], penalties=[1e-9, 1]).fit(np.eye(4), [0, 1, 0, 1])
