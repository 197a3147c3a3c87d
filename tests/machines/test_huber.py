"""Huber's loss: the program against the printed primal problem, and the regressor's losses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from kernelmosaic import MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.machines.base import SVR, Huber

rng = np.random.RandomState(0)
X = rng.standard_normal((50, 3))
Y = X @ [1.0, -0.5, 0.2] + 0.2 * rng.standard_normal(50)
Y[::10] += 4.0
WEIGHT = rng.randint(1, 4, 50).astype(float)
TIGHT = {"tol": 1e-8, "normalize": None, "weights": [1.0]}


def huber(r, delta):
    return np.where(np.abs(r) <= delta, r**2 / (2 * delta), np.abs(r) - delta / 2)


def printed_primal(K, y, sample_C, delta):
    """min ½‖w‖² + Σ Cᵢ (uᵢ²/(2δ) + |yᵢ − f(xᵢ) − uᵢ|), of which Huber's loss is the minimum over u,
    by Clarabel."""
    clarabel = pytest.importorskip("clarabel")
    from scipy import sparse
    from tests.reference.conic import factor

    L = factor(K)
    n, rank = L.shape
    # The variables are w, b, u and the absolute values s.
    P = sparse.diags(
        np.concatenate([np.ones(rank), [0.0], sample_C / delta, np.zeros(n)]), format="csc"
    )
    c = np.concatenate([np.zeros(rank + 1 + n), sample_C])
    F = np.hstack([L, np.ones((n, 1)), np.eye(n)])
    A = sparse.csc_matrix(np.vstack([np.hstack([-F, -np.eye(n)]), np.hstack([F, -np.eye(n)])]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    b = np.concatenate([-y, y])
    found = clarabel.DefaultSolver(P, c, A, b, [clarabel.NonnegativeConeT(2 * n)], settings).solve()
    x = np.array(found.x)
    return found.obj_val, L @ x[:rank] + x[rank]


@pytest.mark.parametrize("delta", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_equals_the_printed_primal_problem(C, delta):
    K = Gaussian(2.0)(X) + Linear()(X)
    machine = Huber(Y, C, delta, WEIGHT)
    found = machine.solve(K, tol=1e-9)
    optimum, values = printed_primal(K, Y, C * WEIGHT, delta)
    assert found.gap <= 1e-9
    assert found.objective == pytest.approx(optimum, rel=1e-6)
    assert machine.primal_value(found) == pytest.approx(optimum, rel=1e-6)
    assert_allclose(found.values + found.intercept, values, atol=1e-3)


def test_linear_kernel_equals_a_direct_minimisation():
    delta, C = 0.3, 2.0

    def value(p):
        r = Y - X @ p[:3] - p[3]
        slope = C * WEIGHT * np.clip(r / delta, -1, 1)
        return 0.5 * p[:3] @ p[:3] + C * WEIGHT @ huber(r, delta), np.append(
            p[:3] - X.T @ slope, -slope.sum()
        )

    best = minimize(
        value, np.zeros(4), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    )
    model = MKLRegressor([Linear()], C=C, epsilon=delta, loss="huber", **TIGHT).fit(X, Y, WEIGHT)
    assert model.objective_ == pytest.approx(best.fun, rel=1e-6)
    assert_allclose(model.predict(X), X @ best.x[:3] + best.x[3], atol=1e-3)


def test_limits_are_the_absolute_and_the_squared_loss():
    K = Gaussian(2.0)(X)
    absolute = SVR(Y, 1.0, 0.0).solve(K, tol=1e-10)
    assert Huber(Y, 1.0, 0.0).solve(K, tol=1e-10).objective == pytest.approx(
        absolute.objective, rel=1e-8
    )
    assert Huber(Y, 1.0, 1e-6).solve(K, tol=1e-10).objective == pytest.approx(
        absolute.objective, rel=1e-5
    )
    squared = SVR(Y, 1e-3, 0.0, slack=2).solve(K, tol=1e-10)
    assert Huber(Y, 1.0, 1e3).solve(K, tol=1e-10).objective == pytest.approx(
        squared.objective, rel=1e-8
    )


def test_squared_loss_is_kernel_ridge_with_a_constant():
    C = 3.0
    model = MKLRegressor([Linear()], C=C, loss="squared", **TIGHT).fit(X, Y, WEIGHT)
    A = np.column_stack([X, np.ones(50)])
    p = np.linalg.solve(
        A.T @ (C * WEIGHT[:, np.newaxis] * A) + np.diag([1.0, 1.0, 1.0, 0.0]),
        A.T @ (C * WEIGHT * Y),
    )
    assert_allclose(model.predict(X), A @ p, atol=1e-4)
    r = Y - A @ p
    assert model.objective_ == pytest.approx(p[:3] @ p[:3] + C * WEIGHT @ r**2, rel=1e-6)
    same = MKLRegressor([Linear()], C=C, epsilon=0.0, slack=2, **TIGHT).fit(X, Y, WEIGHT)
    assert model.objective_ == pytest.approx(same.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_weights_count_as_repetitions_and_zero_takes_a_sample_out(loss):
    kernels = [Linear(), Gaussian(2.0)]
    weight = WEIGHT * (np.arange(50) % 5 > 0)
    given = MKLRegressor(kernels, loss=loss, normalize=None, tol=1e-7).fit(X, Y, weight)
    repeated = np.repeat(np.arange(50), weight.astype(int))
    other = MKLRegressor(kernels, loss=loss, normalize=None, tol=1e-7).fit(X[repeated], Y[repeated])
    assert given.objective_ == pytest.approx(other.objective_, rel=1e-6)
    assert_allclose(given.predict(X), other.predict(X), atol=1e-2)


STORAGES = [
    {"approximation": "nystroem", "rank": 50},
    pytest.param({"device": "cpu"}, marks=pytest.mark.torch),
]


@pytest.mark.parametrize("storage", STORAGES, ids=str)
@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_every_storage_gives_the_same_objective(loss, storage):
    if "device" in storage:
        pytest.importorskip("torch", reason="torch is not installed")
    kernels = [Linear(), Gaussian(2.0)]
    exact = MKLRegressor(kernels, loss=loss, epsilon=0.3, tol=1e-5).fit(X, Y)
    stored = MKLRegressor(kernels, loss=loss, epsilon=0.3, tol=1e-5, **storage).fit(X, Y)
    assert stored.duality_gap_ <= 1e-5
    assert stored.objective_ == pytest.approx(exact.objective_, rel=1e-3)


def test_outliers_pull_less_than_with_the_squared_loss():
    errors = {}
    for loss in ("huber", "squared"):
        model = MKLRegressor([Linear()], loss=loss, epsilon=0.3).fit(X, Y)
        errors[loss] = np.abs(model.predict(X) - X @ [1.0, -0.5, 0.2]).mean()
    assert errors["huber"] < 0.5 * errors["squared"]


def test_refusals():
    with pytest.raises(
        ValueError, match="loss='absolute': choose one of 'epsilon', 'huber', 'squared', 'quantile'"
    ):
        MKLRegressor(loss="absolute").fit(X, Y)
    with pytest.raises(ValueError, match="epsilon=-1"):
        MKLRegressor(loss="huber", epsilon=-1).fit(X, Y)
    with pytest.raises(
        ValueError, match=r"solver='sdp' supports machines .*, not Huber; use solver='newton'"
    ):
        MKLRegressor(loss="huber", solver="sdp").fit(X, Y)
