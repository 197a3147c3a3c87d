"""What joint machines ask of a bank: a combination a class, and products with several columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.gram import KernelBank, StoredBank


def make_bank(n=37, P=4, dtype=np.float64):
    A = np.random.default_rng(0).normal(size=(P, n, 6))
    return StoredBank((A @ A.transpose(0, 2, 1)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rule", [StoredBank.combine_classes, KernelBank.combine_classes])
def test_a_combination_a_class(rule, dtype):
    bank = make_bank(dtype=dtype)
    weights = np.random.default_rng(1).uniform(size=(5, 4))
    weights[1], weights[2, 1:] = 0.0, 0.0
    out = np.full((5, 37, 37), np.nan, dtype=dtype)
    rule(bank, weights, out)
    assert_allclose(out, np.tensordot(weights, bank.matrices, 1), rtol=1e-4, atol=1e-4 if dtype == np.float32 else 1e-9)
    assert_allclose(out, out.transpose(0, 2, 1), rtol=0, atol=0)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_products_with_columns(share):
    bank = make_bank()
    rng = np.random.default_rng(2)
    beta = rng.normal(size=(37, 3)) * (rng.random((37, 1)) < share)
    expected = np.einsum("mij,jc->mic", bank.matrices, beta)
    assert_allclose(bank.products(beta), expected, atol=1e-9)
    rows = np.array([3, 30, 1])
    assert_allclose(bank.products(beta, rows), expected[:, rows], atol=1e-9)
    some = bank.products(beta, rows, [2])
    assert_allclose(some[2], expected[2][rows], atol=1e-9)
    assert not some[[0, 1, 3]].any()
    assert_allclose(bank.quadratic_forms(beta), 0.5 * np.einsum("mic,ic->m", expected, beta), rtol=1e-9)
