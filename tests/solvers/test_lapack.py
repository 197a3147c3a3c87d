"""Factors and inverses against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.solvers.multiclass_newton import factorise, invert


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_factor_and_inverse_of_the_lower_half(dtype):
    L = np.random.default_rng(0).normal(size=(30, 40))
    A = L @ L.T
    work = np.tril(A).astype(dtype)
    factorise(work)
    # The transposed factor: A = UᵀU, U in the order LAPACK reads.
    assert_allclose(np.tril(work), np.linalg.cholesky(A), rtol=1e-3, atol=1e-4)
    invert(work)
    assert_allclose(
        np.tril(work),
        np.tril(np.linalg.inv(A)),
        rtol=1e-2,
        atol=1e-4 if dtype == np.float32 else 1e-12,
    )


def test_what_cannot_be_factorised_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="not positive semi-definite"):
        factorise(-np.eye(3))
    with pytest.raises(ValueError, match="C order"):
        factorise(np.asfortranarray(np.ones((3, 3))[:, :2]))
