"""Gates: their values by hand, and their parameters in the user's units."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.localized.gating import (
    Constant,
    Gating,
    GaussianGating,
    Sigmoid,
    Softmax,
    make_gating,
)

RNG = np.random.RandomState(0)
Z = RNG.normal(size=(9, 3))


class Cosine(Gating):
    """A gating as a user may write one: signed and not linear."""

    def init(self, rng, n_features, n_kernels):
        return rng.normal(size=(n_kernels, n_features))

    def values(self, V, Z):
        return np.cos(Z @ V.T)

    def vjp(self, V, Z, G):
        return -(G * np.sin(Z @ V.T)).T @ Z


def start(gating, P=4):
    V = gating.init(np.random.RandomState(1), Z.shape[1], P)
    return V + 0.3 * np.random.RandomState(2).normal(size=V.shape)


def test_softmax_by_hand():
    V = start(Softmax())
    for i, z in enumerate(Z.tolist()):
        powers = [
            math.exp(sum(a * b for a, b in zip(v[:-1], z, strict=True)) + v[-1]) for v in V.tolist()
        ]
        assert_allclose(Softmax().values(V, Z)[i], [p / sum(powers) for p in powers], rtol=1e-12)


def test_softmax_does_not_mind_a_common_shift_nor_huge_scores():
    V = start(Softmax())
    assert_allclose(Softmax().values(V + 3.0, Z), Softmax().values(V, Z), atol=1e-12)
    assert np.all(np.isfinite(Softmax().values(1e5 * V, Z)))


def test_sigmoid_by_hand():
    V = start(Sigmoid())
    for i, z in enumerate(Z.tolist()):
        scores = [sum(a * b for a, b in zip(v[:-1], z, strict=True)) + v[-1] for v in V.tolist()]
        assert_allclose(
            Sigmoid().values(V, Z)[i], [1 / (1 + math.exp(-s)) for s in scores], rtol=1e-12
        )


def test_gaussian_by_hand():
    V = start(GaussianGating())
    for i, z in enumerate(Z.tolist()):
        powers = []
        for v in V.tolist():
            centre, widths = v[:3], [math.exp(w) for w in v[3:]]
            q = 0.5 * sum(((a - c) / w) ** 2 for a, c, w in zip(z, centre, widths, strict=True))
            powers.append(math.exp(-q))
        assert_allclose(
            GaussianGating().values(V, Z)[i], [p / sum(powers) for p in powers], rtol=1e-10
        )


def test_squared_constant_gates_are_weights_that_sum_to_one():
    V = np.array([[0.3], [-1.0], [0.0]])
    eta = Constant().values(V, Z)
    assert_allclose(eta, np.tile(eta[0], (len(Z), 1)))
    assert_allclose((eta[0] ** 2).sum(), 1.0)
    assert_allclose(Constant([0.25, 4.0]).values(np.zeros((2, 0)), Z)[0], [0.5, 2.0])


@pytest.mark.parametrize("kind", [Softmax, Sigmoid])
def test_linear_scores_in_user_units(kind):
    mean, scale = np.array([5.0, -2.0, 100.0]), np.array([0.1, 3.0, 40.0])
    V = start(kind())
    units = kind().in_user_units(V, mean, scale)
    X = mean + scale * Z
    scores = X @ units["coef"].T + units["intercept"]
    assert_allclose(
        kind().values(np.column_stack([units["coef"], units["intercept"]]), X), kind().values(V, Z)
    )
    assert_allclose(scores, Z @ V[:, :-1].T + V[:, -1], atol=1e-9)


def test_gaussian_in_user_units():
    mean, scale = np.array([5.0, -2.0, 100.0]), np.array([0.1, 3.0, 40.0])
    V = start(GaussianGating())
    units = GaussianGating().in_user_units(V, mean, scale)
    there = np.hstack([units["centres"], np.log(units["widths"])])
    assert_allclose(
        GaussianGating().values(there, mean + scale * Z), GaussianGating().values(V, Z), rtol=1e-6
    )


def test_unknown_gatings_are_named():
    with pytest.raises(ValueError, match=r"gating='sofmax': choose one of 'softmax', 'sigmoid'"):
        make_gating("sofmax")
    own = Cosine()
    assert make_gating(own) is own


@pytest.mark.parametrize(
    ("gating", "message"),
    [
        (Softmax(scale=-1.0), "scale=-1.0"),
        (GaussianGating(scale=np.inf), "scale=inf"),
        (Constant([1.0, 2.0]), "3 numbers"),
        (Constant([1.0, -2.0, 0.0]), "none negative"),
    ],
)
def test_wrong_parameters_are_named(gating, message):
    with pytest.raises(ValueError, match=message):
        gating.init(np.random.RandomState(0), 2, 3)


def test_a_gating_of_ones_own_has_parameters_as_they_are():
    gating = Cosine()
    V = start(gating)
    found = gating.in_user_units(V, np.ones(3), np.ones(3))
    assert list(found) == ["parameters"]
    assert found["parameters"] is V


@pytest.mark.parametrize("gating", [Softmax(-1.0), Sigmoid(np.inf), GaussianGating(np.nan)])
def test_the_spread_at_the_start_is_a_finite_number(gating):
    with pytest.raises(ValueError, match=r"scale=.*: give a finite number of at least zero"):
        start(gating)
