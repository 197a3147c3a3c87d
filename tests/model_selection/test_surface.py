"""Fit and minimiser of a quadratic: against its own coefficients, a fine grid, and SciPy's bounded
least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from kernelmosaic.model_selection.response_surface import (
    ResponseSurface,
    fit_surface,
    koshal_design,
)


def random_surface(rng, n, convex):
    A = rng.standard_normal((n, n))
    Q = A @ A.T + 0.1 * np.eye(n) if convex else (A + A.T) / 2
    return ResponseSurface(float(rng.standard_normal()), rng.standard_normal(n), Q)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("centre", [0.0, 2.0])
def test_fit_recovers_a_quadratic_from_its_design(n, centre):
    truth = random_surface(np.random.RandomState(n), n, convex=False)
    Z = centre + 0.3 * koshal_design(n)
    fitted = fit_surface(Z, truth.predict(Z), centre=centre, step=0.3)
    assert fitted.constant == pytest.approx(truth.constant, abs=1e-8)
    np.testing.assert_allclose(fitted.linear, truth.linear, atol=1e-8)
    np.testing.assert_allclose(fitted.quadratic, truth.quadratic, atol=1e-8)


def test_predict_and_gradient_agree_with_loops_and_differences():
    rng = np.random.RandomState(0)
    surface = random_surface(rng, 3, convex=False)
    z = rng.standard_normal(3)
    value = surface.constant + sum(surface.linear[m] * z[m] for m in range(3))
    value += sum(surface.quadratic[m, h] * z[m] * z[h] for m in range(3) for h in range(3))
    assert surface.predict(z)[0] == pytest.approx(value)
    steps = 1e-6 * np.eye(3)
    numeric = [(surface.predict(z + e)[0] - surface.predict(z - e)[0]) / 2e-6 for e in steps]
    np.testing.assert_allclose(surface.gradient(z), numeric, atol=1e-8)


def test_plane_is_fitted_to_first_order():
    Z = koshal_design(4, order=1)
    fitted = fit_surface(Z, 2.0 + Z @ [1.0, -2.0, 0.5, 0.0], order=1)
    np.testing.assert_allclose(fitted.linear, [1.0, -2.0, 0.5, 0.0], atol=1e-12)
    assert fitted.is_convex
    np.testing.assert_allclose(fitted.minimise(-np.ones(4), np.ones(4)), [-1, 1, -1, 0])


@pytest.mark.parametrize("n", [2, 4, 9])
@pytest.mark.parametrize("seed", range(8))
def test_convex_minimiser_is_that_of_bounded_least_squares(n, seed):
    surface = random_surface(np.random.RandomState(seed), n, convex=True)
    assert surface.is_convex
    # zᵀQz + ⟨b, z⟩ = ‖Rz + R⁻ᵀb/2‖² + constant with Q = RᵀR
    R = np.linalg.cholesky(surface.quadratic).T
    wanted = lsq_linear(
        R, -np.linalg.solve(R.T, surface.linear) / 2, (-0.4, 0.7), method="bvls", tol=1e-14
    )
    found = surface.minimise(np.full(n, -0.4), np.full(n, 0.7))
    assert np.all((found >= -0.4) & (found <= 0.7))
    np.testing.assert_allclose(found, wanted.x, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_minimiser_of_a_saddle_is_global_in_the_box(seed):
    surface = random_surface(np.random.RandomState(seed), 3, convex=False)
    axis = np.linspace(-1, 1, 41)
    grid = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    found = surface.minimise(-np.ones(3), np.ones(3))
    assert np.all(np.abs(found) <= 1)
    assert surface.predict(found)[0] <= surface.predict(grid).min() + 1e-9


def test_many_factors_curved_downwards_stay_in_the_box_and_descend():
    surface = random_surface(np.random.RandomState(3), 12, convex=False)
    found = surface.minimise(-np.ones(12), np.ones(12))
    corners = np.random.RandomState(0).choice([-1.0, 1.0], size=(200, 12))
    assert np.all(np.abs(found) <= 1)
    assert surface.predict(found)[0] <= surface.predict(corners).min()


def test_flat_directions_are_not_walked():
    flat = ResponseSurface(1.0, np.zeros(2), np.zeros((2, 2)))
    np.testing.assert_array_equal(flat.minimise([-1, -1], [1, 1], start=[0.3, -0.2]), [0.3, -0.2])
    valley = ResponseSurface(0.0, np.array([-1.0, 0.0]), np.diag([1.0, 0.0]))
    np.testing.assert_allclose(
        valley.minimise([-1, -1], [1, 1], start=[0.0, 0.4]), [0.5, 0.4], atol=1e-12
    )


def test_constant_responses_leave_no_rounding_in_the_coefficients():
    Z = 0.3 * koshal_design(3)
    fitted = fit_surface(Z, np.full(len(Z), -0.8666666666666667), step=0.3)
    assert not fitted.linear.any()
    assert not fitted.quadratic.any()
    assert fitted.constant == pytest.approx(-0.8666666666666667)


def test_fewer_points_than_coefficients_are_interpolated():
    rng = np.random.RandomState(0)
    Z = 0.3 * koshal_design(3)[[0, 1, 4, 7]]
    r = rng.standard_normal(4)
    np.testing.assert_allclose(fit_surface(Z, r, step=0.3).predict(Z), r, atol=1e-10)
