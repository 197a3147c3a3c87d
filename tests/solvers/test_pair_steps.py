"""Pair steps by NumPy and by compiled code: the same to the last bit, so that either may take over from the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelmosaic
from kernelmosaic.solvers import Program
from kernelmosaic.solvers.smo import PairSteps, maximise

SOURCES = str(Path(kernelmosaic.__file__).parents[1])


def problem(n, C, epsilon, ridge, dtype, seed):
    """Return the first arguments of `maximise`, for a Gaussian kernel and a start that is not zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1)).astype(dtype)
    t = X[:, 0] + 0.3 * rng.normal(size=n)
    t = t if epsilon else np.where(t > 0, 1.0, -1.0)
    lower, upper = (np.full(n, -C), np.full(n, C)) if epsilon else (np.minimum(C * t, 0), np.maximum(C * t, 0))
    size = min(int((t > 0).sum()), int((t < 0).sum()))
    beta = np.zeros(n)
    beta[np.flatnonzero(t > 0)[:size]], beta[np.flatnonzero(t < 0)[:size]] = C / 3, -C / 3
    rho = np.full(n, ridge)
    return K, Program(t, lower, upper, rho, epsilon), beta, t - K.astype(float) @ beta - rho * beta


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("C", "epsilon", "ridge"), [(1.0, 0.0, 0.0), (100.0, 0.0, 0.0), (10.0, 0.1, 0.0), (1.0, 0.0, 0.5)]
)
def test_numpy_and_compiled_code_take_the_same_steps(C, epsilon, ridge, dtype):
    ended = set()
    for n, most in ((1, 50), (2, 50), (40, 7), (150, 100_000)):
        found = []
        for few in (0, 300):
            K, program, beta, residual = problem(n, C, epsilon, ridge, dtype, n)
            steps, left = maximise(K, program, beta, residual, 1e-6, most, PairSteps(few))
            assert beta.sum() == pytest.approx(0.0, abs=1e-9 * C * n)
            found.append((steps, left, beta.tobytes(), residual.tobytes()))
            ended.add(left <= 1e-6)
        assert found[0] == found[1]
    assert ended == {True, False}  # by the tolerance, and by the number of steps


def test_compiled_code_takes_over_and_stays():
    pair_steps, taken = PairSteps(worth_compiling=20), []
    for most in (15, 15, 5, 5):
        assert maximise(*problem(60, 1.0, 0.0, 0.0, float, 0), 1e-9, most, pair_steps)[0] == most
        taken.append(pair_steps.taken)
    # NumPy counts its steps; compiled code keeps the count above what it takes to be worth loading.
    assert taken == [15, 30, 21, 21]


def test_an_empty_problem_is_solved():
    none = np.zeros(0)
    program = Program(none, none, none, none)
    assert maximise(np.zeros((0, 0)), program, none, none, 1e-3, 10) == (0, 0.0)


FITS = """
import numpy as np, sys
from kernelmosaic import MKLClassifier
from kernelmosaic.solvers import smo
rng = np.random.RandomState(0)
X = rng.standard_normal((60, 4))
y = X[:, 0] + 0.5 * rng.standard_normal(60) > 0
for limit in (10**9, 300, -1):
    smo.take_pairs.worth_compiling, smo.take_pairs.taken = limit, 0
    model = MKLClassifier(C=100).fit(X, y)
    print(model.objective_.hex(), model.dual_coef_.tobytes().hex(), "numba" in sys.modules)
"""


def test_a_fit_is_the_same_whoever_takes_the_steps():
    env = os.environ | {"PYTHONPATH": SOURCES}
    done = subprocess.run([sys.executable, "-c", FITS], env=env, capture_output=True, text=True, check=True)
    plain, both, compiled = (line.split() for line in done.stdout.splitlines())
    assert [one.pop() for one in (plain, both, compiled)] == ["False", "True", "True"]
    assert plain == compiled == both
