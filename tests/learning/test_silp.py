"""Column generation: the master problem, and how many planes it takes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.learning.problems import learn, make_problem

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.kernels import Gaussian, Linear, Polynomial
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.simplex import SILP
from kernelmosaic.solvers.conic import Master, solve_master


def plane_by_plane(constants, planes):
    master = Master(planes.shape[1])
    for constant, slopes in zip(constants, planes, strict=True):
        master.add(constant, slopes)
        found = master.solve()
    return found


@pytest.mark.parametrize("solve", [solve_master, plane_by_plane])
def test_master_against_a_grid(solve):
    rng = np.random.RandomState(0)
    for _ in range(5):
        constants, planes = 3 * rng.rand(6), rng.rand(6, 3) * 5
        theta, value, shares = solve(constants, planes)
        assert shares.min() >= 0
        assert value == pytest.approx(shares @ constants - (shares @ planes).max())
        assert theta.sum() == pytest.approx(1.0)
        assert theta.min() >= 0
        assert value == pytest.approx((constants - planes @ theta).max(), abs=1e-7)
        a, b = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101)))
        inside = np.column_stack([a, b, 1 - a - b])[a + b <= 1]
        heights = (constants - inside @ planes.T).max(axis=1)
        assert heights.min() - 0.1 <= value <= heights.min() + 1e-9


@pytest.mark.parametrize("kind", ["svc", "svr squared"])
def test_few_planes_do(kind):
    for seed in range(4):
        Ks, machine, d = make_problem(kind, seed)
        found = learn(SILP, Ks, machine, penalties=d, tol=1e-3)
        assert found.gap <= 1e-3
        assert found.n_solves <= 30


def test_only_column_generation_needs_highspy(hide):
    hide("highspy")  # importing it now raises an ImportError
    rng = np.random.RandomState(0)
    X = rng.standard_normal((40, 3)) + 1.0
    f = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(40)
    kernels = [Linear(), Polynomial(2), Gaussian(1.0), Gaussian(3.0)]
    models = [
        MKLClassifier(kernels, tol=1e-8).fit(X, f > 0),
        MKLClassifier(kernels, slack=2, tol=1e-8).fit(X, f > 0),
        MKLRegressor(kernels, tol=1e-8).fit(X, f),
        MKLRegressor(kernels, slack=2, tol=1e-8).fit(X, f),
        MKLOneClass(kernels, tol=1e-8).fit(X),
    ]
    assert all(model.duality_gap_ <= 1e-6 for model in models), [model.duality_gap_ for model in models]
    with pytest.raises(ImportError):
        MKLClassifier(kernels, solver="silp").fit(X, f > 0)
    # Nor do the planes that Newton's steps look at in kinks, which rounding may spare the fits above.
    assert SumNorm().lowest_plane_point(np.ones(2), np.array([[1.0, 3.0], [4.0, 2.0]]))[1] == pytest.approx(-1.5)
