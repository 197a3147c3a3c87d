"""What every gating must do. The classes are found in the package; each needs an example here."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from tests.contracts.discovery import concrete_subclasses

import kernelmosaic.gating
from kernelmosaic.localized.gating import (
    GATINGS,
    Constant,
    Gating,
    GaussianGating,
    Sigmoid,
    Softmax,
    make_gating,
)

P = 4
Z = np.random.RandomState(0).standard_normal((9, 3))

#: Instances, each with the range of its gates and with what the gates of one sample sum to, if to
#: anything.
EXAMPLES: dict[type[Gating], list[tuple[Gating, tuple[float, float], float | None]]] = {
    Softmax: [(Softmax(), (0.0, 1.0), 1.0), (Softmax(scale=3.0), (0.0, 1.0), 1.0)],
    Sigmoid: [(Sigmoid(), (0.0, 1.0), None)],
    GaussianGating: [(GaussianGating(), (0.0, 1.0), 1.0)],
    Constant: [
        (Constant(), (0.0, 1.0), None),
        (Constant([0.2, 0.0, 1.5, 0.3]), (0.0, np.sqrt(1.5)), None),
    ],
}
EVERY = [
    pytest.param(*example, id=repr(example[0]))
    for examples in EXAMPLES.values()
    for example in examples
]
every = pytest.mark.parametrize(("gating", "limits", "total"), EVERY)


@pytest.mark.parametrize("kind", concrete_subclasses(Gating), ids=lambda kind: kind.__name__)
def test_every_gating_has_an_example_and_a_name(kind):
    assert EXAMPLES.get(kind), f"add to EXAMPLES a {kind.__name__} and the range of its gates"
    assert kind in GATINGS.values(), f"give {kind.__name__} a name in GATINGS"
    assert getattr(kernelmosaic.gating, kind.__name__) is kind


def start(gating: Gating) -> np.ndarray:
    V = gating.init(np.random.RandomState(1), Z.shape[1], P)
    return V + 0.3 * np.random.RandomState(2).standard_normal(V.shape)


@every
def test_parameters_to_start_from(gating, limits, total):
    V = gating.init(np.random.RandomState(1), Z.shape[1], P)
    assert V.ndim == 2
    assert len(V) == P
    assert np.all(np.isfinite(V))
    assert_array_equal(gating.init(np.random.RandomState(1), Z.shape[1], P), V)
    assert gating.init(np.random.RandomState(1), 1, P).shape[0] == P
    # Two of one kernel must start apart, or they stay together; constant gates need not.
    if np.ptp(gating.values(V, Z), axis=0).max() > 0:
        assert len(np.unique(V, axis=0)) == P


@every
def test_values_are_in_range(gating, limits, total):
    for scale in (1.0, 1e3):
        eta = gating.values(scale * start(gating), Z)
        assert eta.shape == (len(Z), P)
        assert eta.min() >= limits[0]
        assert eta.max() <= limits[1] * (1 + 1e-12)
        if total is not None:
            assert_allclose(eta.sum(axis=1), total, rtol=1e-12)


@every
def test_gates_of_a_sample_depend_on_it_alone(gating, limits, total):
    V = start(gating)
    eta = gating.values(V, Z)
    assert_allclose(gating.values(V, Z[[5, 2]]), eta[[5, 2]], rtol=1e-12)


@every
def test_slopes_equal_finite_differences(gating, limits, total):
    V, G = start(gating), np.random.RandomState(3).standard_normal((len(Z), P))
    slopes = gating.vjp(V, Z, G)
    assert slopes.shape == V.shape
    expected = np.zeros_like(V)
    h = 1e-6
    for index in np.ndindex(*V.shape):
        ahead, behind = V.copy(), V.copy()
        ahead[index] += h
        behind[index] -= h
        expected[index] = np.sum(G * (gating.values(ahead, Z) - gating.values(behind, Z))) / (2 * h)
    assert_allclose(slopes, expected, rtol=1e-6, atol=1e-8)


@every
def test_parameters_in_the_users_units_and_clones(gating, limits, total):
    units = gating.in_user_units(start(gating), np.zeros(3), np.ones(3))
    assert units
    assert all(len(value) == P for value in units.values())
    assert repr(clone(gating)) == repr(gating)
    assert make_gating(gating) is gating
