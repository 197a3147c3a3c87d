"""Weights between those of a sum and those of a 2-norm: the set, its support function, the learned weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.learning.problems import learn, make_problem

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import ElasticNorm, PowerNorm, SumNorm, make_norm

X, Y = make_gaussians(n_components=4, n_samples=60, random_state=0)
KERNELS = [Gaussian(1.0), ("wide", Gaussian(4.0)), Linear(), ("second", Linear(), [1])]


@pytest.mark.parametrize("a", [1e-3, 0.2, 0.5, 0.9, 0.999])
def test_support_is_the_largest_product_over_the_set(a):
    rng = np.random.RandomState(0)
    norm = ElasticNorm(a)
    for _ in range(20):
        q = rng.exponential(size=7) ** 3
        q[rng.rand(7) < 0.3] = 0.0
        value = norm.support(q)
        points = rng.exponential(size=(500, 7)) ** 4
        points /= (a * points.sum(axis=1) + (1 - a) * np.linalg.norm(points, axis=1))[:, np.newaxis]
        assert np.all(points @ q <= value * (1 + 1e-12))
        # The point that the docstring names attains it.
        best = np.maximum(q - a * value, 0.0)
        if best.any():
            best /= a * best.sum() + (1 - a) * np.linalg.norm(best)
            assert best @ q == pytest.approx(value, rel=1e-9)
    assert norm.support(np.zeros(3)) == 0.0


@pytest.mark.parametrize("q", [np.ones(5), np.array([3.0]), np.array([1e-200, 1e-200]), np.array([1e200, 0.0, 1e199])])
def test_support_of_equal_and_extreme_slopes(q):
    a = 0.4
    value = ElasticNorm(a).support(q)
    assert np.linalg.norm(np.maximum(q / value - a, 0.0)) == pytest.approx(1 - a, rel=1e-9)


@pytest.mark.parametrize("kind", ["svc", "svc squared", "svr", "one class", "huber"])
@pytest.mark.parametrize("a", [0.1, 0.5, 0.95])
def test_reaches_the_conic_optimum(kind, a):
    pytest.importorskip("clarabel")
    from tests.reference.conic import solve_mkl_elastic

    Ks, machine, _ = make_problem(kind, 0 if a == 0.5 else 2, n=30, P=5)
    optimum, weights, _ = solve_mkl_elastic(Ks, machine.program, a)
    found = learn(Newton, Ks, machine, norm="elastic", l1_ratio=a)
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(optimum, rel=1e-5)
    assert_allclose(found.weights, weights, atol=1e-2)
    assert a * found.weights.sum() + (1 - a) * np.linalg.norm(found.weights) == pytest.approx(1.0)


def test_penalties_scale_the_kernels():
    Ks, machine, d = make_problem("svc", 1)
    found = learn(Newton, Ks, machine, norm="elastic", penalties=d)
    scaled = learn(Newton, Ks / d[:, np.newaxis, np.newaxis] ** 2, machine, norm="elastic")
    assert found.objective == pytest.approx(scaled.objective, rel=1e-5)
    assert_allclose(found.weights * d**2, scaled.weights, atol=1e-2)


def test_ends_are_the_other_norms():
    assert isinstance(make_norm("elastic", 1), SumNorm)
    assert isinstance(make_norm("elastic", 0.0), PowerNorm)
    for kind in ("svc", "svr"):
        Ks, machine, _ = make_problem(kind, 2)
        for norm, near in ((1, 1 - 1e-4), (2, 1e-4)):
            # The sets differ by a factor of at most 1 + √P |a − end|, and J is at most inversely proportional to it.
            end = learn(Newton, Ks, machine, norm=norm).objective
            close = learn(Newton, Ks, machine, norm="elastic", l1_ratio=near).objective
            assert close == pytest.approx(end, rel=1e-3)


def test_between_the_ends_weights_are_sparser_than_one_and_fuller_than_the_other():
    Ks, machine, _ = make_problem("svc", 0, P=12)
    counts = [np.sum(learn(Newton, Ks, machine, norm="elastic", l1_ratio=a).weights > 1e-6) for a in (1.0, 0.5, 0.0)]
    assert counts[0] <= counts[1] <= counts[2] == 12
    assert counts[1] < 12


@pytest.mark.parametrize("multi_class", ["ovr", "joint"])
def test_classifier(multi_class):
    three = Y + (X[:, 0] > 1)
    model = MKLClassifier(KERNELS, norm="elastic", l1_ratio=0.3, multi_class=multi_class).fit(X, three)
    assert model.duality_gap_ <= model.tol
    for eta in np.atleast_2d(model.weights_):
        assert 0.3 * eta.sum() + 0.7 * np.linalg.norm(eta) == pytest.approx(1.0)


@pytest.mark.parametrize("model", [MKLRegressor(KERNELS), MKLOneClass(KERNELS[:2])], ids=repr)
def test_other_estimators(model):
    model = model.set_params(norm="elastic", l1_ratio=0.5).fit(X, X[:, 0])
    assert model.duality_gap_ <= model.tol
    assert 0.5 * model.weights_.sum() + 0.5 * np.linalg.norm(model.weights_) == pytest.approx(1.0)
