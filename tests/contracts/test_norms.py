"""What every set of weights must do, against a general optimiser. The classes are found; each needs
an example here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from tests.contracts.discovery import concrete_subclasses

from kernelmosaic.learning.norms import BesideFixed, PowerNorm, SumNorm, WeightNorm, make_norm


@dataclass(frozen=True)
class Example:
    """A set of weights, and the norm that is one on it, written down again."""

    norm: WeightNorm
    gauge: Callable[[np.ndarray], float]


def p_norm(p: float) -> Callable[[np.ndarray], float]:
    return lambda theta: float(np.sum(np.abs(theta) ** p) ** (1.0 / p))


EXAMPLES: dict[type[WeightNorm], list[Example]] = {
    SumNorm: [Example(SumNorm(), lambda theta: float(np.abs(theta).sum()))],
    PowerNorm: [Example(PowerNorm(p), p_norm(p)) for p in (1.25, 2.0, 4.0)],
}
EVERY = [
    pytest.param(example, id=f"{kind.__name__}-{k}")
    for kind, examples in EXAMPLES.items()
    for k, example in enumerate(examples)
]
every = pytest.mark.parametrize("example", EVERY)
sizes = pytest.mark.parametrize("P", [1, 2, 5])


#: Weights beside fixed ones obey another norm; tests/learning/test_fixed_weights.py has theirs.
FOUND = [kind for kind in concrete_subclasses(WeightNorm) if kind is not BesideFixed]


@pytest.mark.parametrize("kind", FOUND, ids=lambda kind: kind.__name__)
def test_every_norm_has_an_example(kind):
    assert EXAMPLES.get(kind), f"add to EXAMPLES a {kind.__name__} and the norm that is one on it"


def test_the_parameter_of_estimators_names_them():
    assert isinstance(make_norm(1), SumNorm)
    assert isinstance(make_norm(3), PowerNorm)


def random(seed: int, P: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a point, slopes q ≥ 0, and a curvature of less than full rank."""
    rng = np.random.RandomState(seed)
    A = rng.standard_normal((P, max(P - 1, 1)))
    return rng.uniform(0.05, 1.0, P), rng.gamma(1.0, size=P), A @ A.T


def assert_inside(example: Example, theta: np.ndarray) -> None:
    assert np.all(theta >= 0)
    assert example.gauge(theta) == pytest.approx(1.0, rel=1e-12)


@every
@sizes
def test_start_is_in_the_set_and_prefers_no_kernel(example, P):
    theta = example.norm.start(P)
    assert theta.shape == (P,)
    assert_inside(example, theta)
    assert_allclose(theta, theta[0])


@every
@sizes
def test_support_is_the_largest_inner_product(example, P):
    for seed in range(3):
        _, q, _ = random(seed, P)
        found = example.norm.support(q)
        # From several points: the set has corners.
        starts = [example.norm.start(P), *(example.norm.retract(row + 0.05) for row in np.eye(P))]
        limit = {"type": "ineq", "fun": lambda theta: 1.0 - example.gauge(theta)}
        runs = [
            minimize(
                lambda theta, q=q: -q @ theta,
                start,
                jac=lambda theta, q=q: -q,
                bounds=[(0, 1)] * P,
                constraints=limit,
            )
            for start in starts
        ]
        best = max(-run.fun for run in runs if example.gauge(np.maximum(run.x, 0)) <= 1 + 1e-6)
        assert found == pytest.approx(best, rel=1e-4)
        # And no point of the set does better.
        for theta in np.random.RandomState(seed).gamma(0.3, size=(200, P)) + 1e-9:
            assert q @ theta / example.gauge(theta) <= found * (1 + 1e-12)
    assert example.norm.support(np.zeros(P)) == 0.0


@every
@sizes
def test_retract_lands_in_the_set_and_leaves_its_points_alone(example, P):
    for seed in range(3):
        theta = random(seed, P)[0]
        near = theta + 0.3 * np.random.RandomState(seed).standard_normal(P)
        near[np.argmax(near)] = 1.0
        inside = example.norm.retract(near)
        assert_inside(example, inside)
        assert_allclose(example.norm.retract(inside), inside, rtol=1e-12)
        assert np.all(inside[near <= 0] == 0)


@every
@sizes
def test_newton_direction_descends(example, P):
    for seed in range(5):
        theta, q, H = random(seed, P)
        theta = example.norm.retract(theta)
        step = example.norm.newton_direction(theta, q, H)
        # J falls with the slope −q, unless this is its lowest point over the set.
        if example.norm.support(q) - q @ theta > 1e-9:
            assert -q @ step < 0
        for t in (1e-3, 1.0):
            assert_inside(example, example.norm.retract(theta + t * step))
        delta = example.norm.retract(theta + 1e-4 * step) - theta
        assert -q @ delta + 0.5 * delta @ H @ delta <= 1e-12


@every
def test_newton_direction_stays_at_the_minimum(example):
    theta, _, H = random(0, 4)
    theta = example.norm.retract(theta)
    # With slopes normal to the set, that is along the gradient of the norm, no direction descends.
    h = 1e-6
    normal = np.array(
        [(example.gauge(theta + h * e) - example.gauge(theta - h * e)) / (2 * h) for e in np.eye(4)]
    )
    step = example.norm.newton_direction(theta, 10.0 * normal, H)
    assert_allclose(step, 0.0, atol=1e-4)


@every
def test_the_support_of_an_infinite_slope_is_infinite(example):
    with np.errstate(all="raise"):
        assert example.norm.support(np.array([1.0, np.inf, 0.0])) == np.inf
        assert np.isnan(example.norm.support(np.array([1.0, np.nan, 0.0])))
