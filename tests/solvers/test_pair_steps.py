"""Pair steps by NumPy and by compiled code: the same to the last bit, and chosen by the solve
alone."""

from __future__ import annotations

import numpy as np
import pytest
from tests.calls import recorded

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions, MachineProblem
from kernelmosaic.machines.base import SVC
from kernelmosaic.solvers import smo
from kernelmosaic.solvers.program import Program
from kernelmosaic.solvers.smo import maximise, solve_smo
from kernelmosaic.solvers.tuning import SolverOptions


def program(n, C, epsilon):
    """Return the kernel and the program alone."""
    return problem(n, C, epsilon, 0.0, float, 0)[:2]


def problem(n, C, epsilon, ridge, dtype, seed):
    """Return the first arguments of `maximise`, for a Gaussian kernel and a start that is not
    zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1)).astype(dtype)
    t = X[:, 0] + 0.3 * rng.normal(size=n)
    t = t if epsilon else np.where(t > 0, 1.0, -1.0)
    lower, upper = (
        (np.full(n, -C), np.full(n, C)) if epsilon else (np.minimum(C * t, 0), np.maximum(C * t, 0))
    )
    size = min(int((t > 0).sum()), int((t < 0).sum()))
    beta = np.zeros(n)
    beta[np.flatnonzero(t > 0)[:size]], beta[np.flatnonzero(t < 0)[:size]] = C / 3, -C / 3
    rho = np.full(n, ridge)
    return K, Program(t, lower, upper, rho, epsilon), beta, t - K.astype(float) @ beta - rho * beta


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("C", "epsilon", "ridge"),
    [(1.0, 0.0, 0.0), (100.0, 0.0, 0.0), (10.0, 0.1, 0.0), (1.0, 0.0, 0.5)],
)
def test_numpy_and_compiled_code_take_the_same_steps(C, epsilon, ridge, dtype):
    ended = set()
    for n, most in ((1, 50), (2, 50), (40, 7), (150, 100_000)):
        found = []
        for compiled in (True, False):
            K, program, beta, residual = problem(n, C, epsilon, ridge, dtype, n)
            steps = maximise(K, program, beta, residual, 1e-6, most, compiled)
            rising, falling = program.slopes(beta, residual)
            left = program.violation(rising.max(), falling.min())
            assert beta.sum() == pytest.approx(0.0, abs=1e-9 * C * n)
            found.append((steps, left, beta.tobytes(), residual.tobytes()))
            ended.add(left <= 1e-6)
        assert found[0] == found[1]
    assert ended == {True, False}  # by the tolerance, and by the number of steps


def test_which_code_takes_the_steps_depends_on_the_solve_alone():
    easy, hard = (program(60, C, 0.1) for C in (1.0, 1e6))
    with recorded(smo.maximise, lambda given: given["compiled"]) as compiled:
        first = solve_smo(*easy, tol=1e-3)
        alone, compiled[:] = compiled.copy(), []
        solve_smo(*hard, tol=1e-9)
        both, compiled[:] = set(compiled), []
        again = solve_smo(*easy, tol=1e-3)
    assert compiled == alone == [False] * len(alone)
    assert both == {False, True}
    assert first.beta.tobytes() == again.beta.tobytes()


def test_a_fit_of_many_steps_is_compiled():
    K, given = program(60, 1.0, 0.0)
    machine = SVC(given.target, 1.0)
    machine.options = SolverOptions(fit_steps=1)
    problem = MachineProblem(
        StoredStack(K[np.newaxis]), machine, LearnerOptions(SumNorm(), np.ones(1))
    )
    with recorded(smo.maximise, lambda given: given["compiled"]) as compiled:
        first = problem.solve(np.ones(1), None, 1e-3)
        assert not any(compiled)
        compiled[:] = []
        again = problem.solve(np.ones(1), None, 1e-3)
    assert compiled
    assert all(compiled)
    assert first.beta.tobytes() == again.beta.tobytes()
    assert machine.options.numpy_steps  # of the fit alone


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_solution_is_the_same_whoever_takes_the_steps(share):
    K, given = program(60, 100.0, 0.1)
    by_numpy = solve_smo(K, given, tol=1e-8, options=SolverOptions(numpy_steps=np.inf))
    assert by_numpy.n_iter > 2 * 60
    found = solve_smo(K, given, tol=1e-8, options=SolverOptions(numpy_steps=share))
    assert (found.n_iter, found.beta.tobytes()) == (by_numpy.n_iter, by_numpy.beta.tobytes())


def test_an_empty_problem_is_solved():
    none = np.zeros(0)
    program = Program(none, none, none, none)
    assert maximise(np.zeros((0, 0)), program, none, none, 1e-3, 10) == 0
