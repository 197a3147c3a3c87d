"""Regression without a tube, ε = 0: samples may be free although their coefficient is zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.learning.problems import learn, options
from tests.sweeps import later

from kernelmosaic import MKLRegressor
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.problem import MachineProblem
from kernelmosaic.machines.base import SVR


def few_samples(seed):
    """Samples, targets of which many are equal, and a price."""
    rng = np.random.RandomState(seed)
    n = rng.randint(4, 10)
    return (
        rng.standard_normal((n, 2)),
        rng.randint(-1, 2, n).astype(float),
        10.0 ** rng.uniform(-2, 2),
    )


@pytest.mark.parametrize("seeds", [range(20), later(range(20, 60))], ids=str)
def test_estimator_fits_and_certifies_small_problems(seeds):
    for seed in seeds:
        X, y, C = few_samples(seed)
        model = MKLRegressor([Linear(), Gaussian(1.0)], C=C, epsilon=0.0).fit(X, y)
        assert model.duality_gap_ <= 1e-3, seed


@pytest.mark.parametrize("seeds", [range(10), later(range(10, 25))], ids=str)
def test_objectives_against_conic_optima(seeds):
    conic = pytest.importorskip(
        "tests.reference.conic", reason="needs clarabel", exc_type=ImportError
    )
    for seed in seeds:
        X, y, C = few_samples(seed)
        D = ((X[:, np.newaxis] - X) ** 2).sum(-1)
        Ks = np.array([X @ X.T, np.exp(-D), np.exp(-D / 9)])
        machine = SVR(y, C, 0.0)
        found = learn(Newton, Ks, machine, tol=1e-6)
        optimum, _, _ = conic.solve_mkl_conic(Ks, machine.program)
        assert found.objective == pytest.approx(optimum, rel=1e-5, abs=1e-7), seed


@pytest.mark.parametrize("place", [0, 3, 6], ids=["first", "middle", "last"])
def test_curvature_with_a_free_coefficient_of_zero_against_differences(place):
    # An odd target on samples that mirror each other: the coefficient of the sample in the middle
    # is zero.
    x = np.insert(np.array([-3.0, -1.9, -0.7, 0.7, 1.9, 3.0]), place, 0.0)
    D = (x[:, np.newaxis] - x) ** 2
    stack = StoredStack(np.array([np.outer(x, x) / 4, np.exp(-D), np.exp(-D / 9)]))
    problem = MachineProblem(
        stack,
        SVR(np.sin(x) + 0.1 * x**3, 1e4, 0.0),
        options(3, penalties=np.array([1.0, 0.8, 1.3])),
    )
    theta, step = np.array([0.3, 0.5, 0.2]), 1e-4

    def slopes(at):
        return problem.evaluate(at, None, 1e-13).q

    differences = [
        (slopes(theta + step * e) - slopes(theta - step * e)) / (2 * step) for e in np.eye(3)
    ]
    here = problem.evaluate(theta, None, 1e-13)
    beta = here.solution.beta.copy()
    assert abs(beta[place]) < 1e-6 * np.abs(beta).max()
    beta[place] = 0.0
    support = np.flatnonzero(beta)
    without = replace(here, solution=replace(here.solution, beta=beta), support=support)
    without = problem.with_gradients(
        replace(without, products=np.zeros((3, len(support)))), np.arange(3)
    )
    expected = -np.array(differences)
    assert_allclose(
        problem.curvature(without), expected, rtol=1e-2, atol=1e-3 * np.abs(expected).max()
    )
