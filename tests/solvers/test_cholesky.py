"""Cholesky factors of Newton matrices, against plain linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from kernelmosaic.gram.linear_algebra import Cholesky


def placed(M, where):
    if where == "host":
        return M
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.as_tensor(M)


WHERE = ["host", pytest.param("device", marks=pytest.mark.torch)]


@pytest.mark.parametrize("where", WHERE)
def test_rows_of_very_different_sizes(where):
    rng = np.random.RandomState(0)
    A = rng.standard_normal((6, 6))
    scale = np.logspace(-8, 8, 6)
    M = scale[:, np.newaxis] * (A @ A.T + np.eye(6)) * scale
    X = rng.standard_normal((6, 2)) / scale[:, np.newaxis]
    factor = Cholesky(placed(M, where))
    np.testing.assert_allclose(factor.solve(placed(M @ X, where)), X, rtol=1e-6)
    np.testing.assert_allclose(factor.solve(placed(M @ X[:, 0], where)), X[:, 0], rtol=1e-6)


@pytest.mark.parametrize("where", WHERE)
def test_a_singular_matrix_gets_as_much_as_rounding_asks_for(where):
    Z = np.random.RandomState(1).standard_normal((8, 3))
    M = Z @ Z.T
    right = M @ np.ones(8)
    found = np.asarray(Cholesky(placed(M, where)).solve(placed(right, where)))
    np.testing.assert_allclose(M @ found, right, rtol=1e-4)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "wrong", [-np.eye(3), np.full((3, 3), np.nan)], ids=["negative", "not numbers"]
)
def test_what_no_small_addition_mends_is_refused(where, wrong):
    with pytest.raises(LinAlgError):
        Cholesky(placed(wrong, where))
