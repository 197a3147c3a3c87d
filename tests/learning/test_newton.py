"""Newton steps on the weights: optimality where they end, descent on the way, norms above one, many
kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import make_norm
from kernelmosaic.learning.problem import MachineProblem
from kernelmosaic.learning.simplex import ReducedGradient
from kernelmosaic.machines.base import SVC

pytest.importorskip("clarabel")
from tests.learning.problems import KINDS, learn, make_kernels, make_problem, options, slopes
from tests.reference.conic import solve_mkl_lp_generic


@pytest.mark.parametrize(
    ("learner", "kind"),
    [*((Newton, kind) for kind in KINDS), (ReducedGradient, "svc"), (ReducedGradient, "huber")],
)
def test_value_never_rises_and_slopes_are_level_where_it_ends(learner, kind):
    for seed in range(2 if learner is Newton else 1):
        Ks, machine, d = make_problem(kind, seed)
        found = learn(learner, Ks, machine, penalties=d, tol=1e-8 if learner is Newton else 1e-6)
        values = np.array([step.objective for step in found.history])
        assert len(values) > 1
        assert np.all(np.diff(values) <= 1e-9 * np.abs(values[1:])), seed
        q = slopes(Ks, found.solution.beta, d)
        level = q.max()
        assert np.all(q[found.weights * d**2 > 1e-3] >= level * (1 - 1e-2)), (
            seed,
            q,
            found.weights,
        )
        assert found.weights @ d**2 == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1.5, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_power_norms_against_power_cones(kind, p):
    Ks, machine, _ = make_problem(kind, 0 if p == 2 else 2, n=30, P=5)
    optimum, weights, _ = solve_mkl_lp_generic(Ks, machine.program, p)
    found = learn(Newton, Ks, machine, norm=p)
    assert found.gap <= 1e-6
    assert found.objective == pytest.approx(optimum, rel=1e-5)
    assert_allclose(found.weights, weights, atol=1e-2)
    assert np.linalg.norm(found.weights, ord=p) == pytest.approx(1.0)


def test_power_norm_with_penalties_is_that_of_scaled_kernels():
    Ks, machine, d = make_problem("svc", 1)
    found = learn(Newton, Ks, machine, norm=2, penalties=d)
    scaled = learn(Newton, Ks / (d**2)[:, None, None], machine, norm=2)
    assert found.objective == pytest.approx(scaled.objective, rel=1e-5)
    assert_allclose(found.weights * d**2, scaled.weights, atol=1e-3)


@pytest.mark.parametrize("kind", ["svc", "svr", "least squares"])
def test_the_curvature_is_the_slope_of_the_slopes(kind):
    # ∂J/∂θ = −q, by central differences of machines solved to the last digits; the free samples
    # stay free.
    Ks, machine, _ = make_problem(kind, 3, n=30, P=3)
    problem = MachineProblem(StoredStack(Ks), machine, options(3, tol=1e-10))
    theta, step = np.array([0.5, 0.3, 0.2]), 1e-5
    at = problem.evaluate(theta, None, 1e-13)
    H = problem.curvature(at)
    q = [
        [problem.evaluate(theta + sign * step * e, None, 1e-13).q for sign in (1, -1)]
        for e in np.eye(3)
    ]
    slopes_of_q = np.array([(above - below) / (2 * step) for above, below in q])
    assert_allclose(H, -slopes_of_q.T, rtol=1e-3, atol=1e-3 * np.abs(H).max())


def test_two_hundred_kernels():
    rng = np.random.RandomState(0)
    n, P = 150, 200
    X, Ks = make_kernels(rng, n, P)
    y = np.where(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
    found = learn(Newton, Ks, SVC(y, C=10.0), tol=1e-4)
    # Second-order steps: about as many as for a handful of kernels, a first-order method would take
    # hundreds.
    assert found.n_solves <= 25
    assert found.gap <= 1e-4
    q = slopes(Ks, found.solution.beta, np.ones(P))
    lower = machine_value(y, found.solution.beta) - q.max()
    assert (found.objective - lower) / found.objective <= 1.2e-4


def machine_value(y, beta):
    return y @ beta


@pytest.mark.parametrize("norm", [1, 2])
def test_weights_of_a_part_are_a_start_and_no_more(norm):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((300, 4))
    machine = SVC(np.sign(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(300)), 1.0)
    squares = ((X[:, np.newaxis] - X) ** 2).sum(-1)
    Ks = np.array([np.exp(-squares / width**2) for width in (0.5, 1.0, 2.0, 4.0, 8.0)])
    plain = learn(Newton, Ks, machine, norm=norm, tol=1e-6)
    started = learn(Newton, Ks, machine, norm=norm, tol=1e-6, min_subsample=20)
    assert plain.gap <= 1e-6
    assert started.gap <= 1e-6
    assert started.objective == pytest.approx(plain.objective, rel=2e-6)
    assert_allclose(started.weights, plain.weights, atol=2e-3)


def test_a_part_that_says_it_all_spares_the_whole_its_steps():
    rng = np.random.RandomState(0)
    X = np.repeat(rng.standard_normal((150, 4)), 5, axis=0)
    machine = SVC(np.sign(X[:, 0] * X[:, 1] + 0.1), 1.0)
    squares = ((X[:, np.newaxis] - X) ** 2).sum(-1)
    Ks = np.array([np.exp(-squares / width**2) for width in (0.5, 1.0, 2.0, 4.0, 8.0)])
    plain = learn(Newton, Ks, machine, tol=1e-2)
    started = learn(Newton, Ks, machine, tol=1e-2, min_subsample=150)
    assert started.gap <= 1e-2
    assert started.n_solves <= 2 < plain.n_solves


def test_a_part_without_a_feasible_machine_is_no_start():
    from kernelmosaic.machines.base import OneClass

    rng = np.random.RandomState(0)
    X = rng.standard_normal((100, 2)) + 3.0
    Ks = np.array([X @ X.T, (1.0 + X @ X.T) ** 2])
    # Nearly all of the coefficients' room is with samples that the part leaves out.
    weight = np.where(np.isin(np.arange(100), np.linspace(0, 99, 20).astype(int)), 1e-3, 1.0)
    found = learn(Newton, Ks, OneClass(100, 0.9, weight), tol=1e-6, min_subsample=20)
    assert found.gap <= 1e-6


@pytest.mark.parametrize("solver", ["newton", "reduced_gradient", "silp"])
def test_machines_that_cannot_be_solved_are_not_solved_again_and_again(solver):
    from sklearn.exceptions import ConvergenceWarning

    from kernelmosaic import MKLClassifier

    rng = np.random.RandomState(0)
    X = 1e8 * rng.standard_normal((20, 3))
    y = (rng.standard_normal(20) > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap of .* normalize='trace'"):
        model = MKLClassifier(normalize=None, solver=solver).fit(X, y)
    assert model.duality_gap_ > model.tol
    assert model.n_solves_ <= 4
    assert np.all(np.isfinite(model.decision_function(X)))


@pytest.mark.parametrize("start", ["uniform", "far too small", "far too large"])
def test_weights_of_functions_that_stay_the_same_are_found_in_a_few_steps(start):
    """J = c + ½ Σ a/θ is lowest, by Lagrange, where a/θ² is the slope of the norm: weights over six
    decades."""
    a = np.array([1e-12, 1e-8, 1e-4, 0.3, 1.0])
    norm = make_norm(1)
    theta = norm.retract(np.ones(5))
    if start != "uniform":
        theta = norm.retract(
            np.where(np.arange(5) == 2, 1e-7 if start == "far too small" else 10.0, 0.1)
        )
    for _ in range(8):
        q = 0.5 * a / theta**2
        theta = norm.retract(theta + norm.newton_direction(theta, q, np.diag(2.0 * q / theta)))
    best = minimize(
        lambda log: 0.5 * np.sum(a / norm.retract(np.exp(log))),
        np.log(np.sqrt(a)),
        method="BFGS",
        tol=1e-12,
    )
    assert 0.5 * np.sum(a / theta) <= best.fun * (1 + 1e-6)
    # The certificate asks for every slope, of the smallest weights too.
    q = 0.5 * a / theta**2
    assert norm.support(q) <= (theta @ q) * (1 + 1e-2)
