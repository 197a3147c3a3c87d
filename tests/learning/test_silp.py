"""Column generation: the master problem, and how many planes it takes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.learning.problems import learn, make_problem

from kernelmosaic.learning.simplex import SILP
from kernelmosaic.solvers.conic import solve_master


def test_master_against_a_grid():
    rng = np.random.RandomState(0)
    for _ in range(5):
        constants, planes = 3 * rng.rand(6), rng.rand(6, 3) * 5
        theta, value, shares = solve_master(constants, planes)
        assert shares.min() >= 0
        assert value == pytest.approx(shares @ constants - (shares @ planes).max())
        assert theta.sum() == pytest.approx(1.0)
        assert theta.min() >= 0
        assert value == pytest.approx((constants - planes @ theta).max(), abs=1e-7)
        a, b = (
            grid.ravel() for grid in np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))
        )
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
