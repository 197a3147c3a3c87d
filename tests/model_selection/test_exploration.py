"""The walk: known optima, how many evaluations they cost, and what it does where a quadratic is no
good."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.model_selection.response_surface import Exploration, Terrain


def explore(function, n, **options):
    options = {
        "centre": np.zeros(n),
        "lower": -np.ones(n),
        "upper": np.ones(n),
        "step": np.full(n, 0.3),
    } | options
    walk = Exploration(Terrain(**options), lambda Z: np.array([function(z) for z in Z]))
    walk.run()
    assert np.all(
        (walk.points >= options["lower"] - 1e-12) & (walk.points <= options["upper"] + 1e-12)
    )
    distances = np.linalg.norm(walk.points[:, None] - walk.points, axis=2) + np.eye(
        len(walk.points)
    )
    assert distances.min() >= min(0.01, options.get("tol", 0.01))  # nothing is evaluated twice
    return walk, walk.points[np.nanargmin(walk.responses)]


@pytest.mark.parametrize("P", [2, 3, 4, 5, 6])
def test_bowl_is_solved_by_the_design_and_one_point_more(P):
    rng = np.random.RandomState(P)
    A = rng.standard_normal((P - 1, P - 1))
    Q, optimum = A @ A.T + np.eye(P - 1), rng.uniform(-0.9, 0.9, P - 1)
    walk, best = explore(lambda z: 3.0 + (z - optimum) @ Q @ (z - optimum), P - 1)
    np.testing.assert_allclose(best, optimum, atol=1e-6)
    assert len(walk.points) == P * (P + 1) // 2 + 1


def test_optimum_outside_the_box_is_met_at_its_wall():
    _, best = explore(lambda z: (z[0] - 3.0) ** 2 + (z[1] - 0.2) ** 2, 2)
    np.testing.assert_allclose(best, [1.0, 0.2], atol=1e-6)


def test_optimum_on_a_design_point_costs_nothing_more():
    walk, best = explore(lambda z: (z[0] - 0.3) ** 2 + z[1] ** 2, 2)
    np.testing.assert_allclose(best, [0.3, 0.0], atol=1e-12)
    assert len(walk.points) == 6


def test_saddle_ends_at_a_wall():
    walk, best = explore(lambda z: z[0] ** 2 - z[1] ** 2, 2)
    np.testing.assert_allclose(np.abs(best), [0.0, 1.0], atol=1e-6)
    assert len(walk.points) < 6 + 20


def test_top_of_a_hill_is_left():
    _, best = explore(lambda z: -np.sum((z - 0.05) ** 2), 3)
    np.testing.assert_allclose(best, -np.ones(3), atol=1e-6)


def test_flat_response_keeps_the_centre_and_the_design_alone():
    walk, best = explore(lambda z: -0.9, 3)
    assert len(walk.points) == 10
    np.testing.assert_array_equal(best, np.zeros(3))


def test_ties_keep_the_centre():
    # steps as coarse as accuracies on a small validation set
    _, best = explore(lambda z: 0.1 if np.max(np.abs(z)) < 0.5 else 0.2, 2)
    np.testing.assert_array_equal(best, np.zeros(2))


def test_not_quadratic_but_smooth_gets_near():
    def valley(z):
        return np.log1p(20 * (z[0] - 0.5) ** 2) + (z[1] + 0.3 - 0.5 * z[0] ** 2) ** 2

    _, best = explore(valley, 2, max_iter=40)
    assert valley(best) < 0.2 < valley(np.zeros(2))


def test_failed_points_are_left_out_and_walked_around():
    optimum = np.array([0.6, -0.2])

    def broken(z):
        return np.nan if z[0] > 0.7 or z[1] > 0.25 else np.sum((z - optimum) ** 2)

    _, best = explore(broken, 2)
    assert np.linalg.norm(best - optimum) < 0.35


def test_failed_minimiser_is_retried_nearer_the_best_point():
    walk, best = explore(lambda z: np.nan if z[0] > 0.5 else (z[0] - 0.8) ** 2, 1)
    assert np.isnan(walk.responses[3])
    assert 0.3 < best[0] <= 0.5


@pytest.mark.parametrize("n", [2, 30])
def test_first_order_needs_a_point_a_factor_and_goes_downhill(n):
    slope = np.linspace(0.1, 1.0, n)
    walk, best = explore(lambda z: slope @ z, n, order=1)
    assert walk.n_initial == n + 1
    np.testing.assert_allclose(best, -np.ones(n), atol=0.35)
    assert len(walk.points) <= n + 1 + 20


def test_first_order_settles_in_a_bowl():
    _, best = explore(lambda z: np.sum((z - 0.4) ** 2), 5, order=1)
    assert np.sum((best - 0.4) ** 2) < 0.2 * np.sum(
        0.4**2 * np.ones(5)
    )  # a plane knows no curvature: near, not there


def test_no_more_than_max_iter_points_after_the_design():
    rng = np.random.RandomState(0)
    walk, _ = explore(lambda z: rng.standard_normal(), 2, max_iter=3)
    assert len(walk.points) <= 6 + 3
    assert len(explore(lambda z: z[0] ** 3, 2, max_iter=0)[0].points) == 6


def test_of_points_that_tie_to_rounding_the_first_stays():
    """Means of the same fold scores in another order differ in their last bits."""
    walk = Exploration(
        Terrain(np.zeros(1), -np.ones(1), np.ones(1), np.full(1, 0.3)), lambda Z: np.empty(0)
    )
    walk.points, walk.responses = (
        np.array([[0.0], [0.3], [0.6]]),
        np.array([-0.8, np.nextafter(-0.8, -1), -0.7]),
    )
    assert walk._best() == 0
    walk.responses[1] -= 1e-9
    assert walk._best() == 1
