"""Machines that are solved in vain for too long are solved no more, and every search ends with what
it has."""

from __future__ import annotations

import numpy as np
import pytest
from tests.calls import recorded
from tests.learning.problems import make_kernels, make_problem, options

from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.problem import MachineProblem, Problem
from kernelmosaic.learning.simplex import SILP, ReducedGradient
from kernelmosaic.localized.gating import Softmax
from kernelmosaic.localized.learning import GateLearner
from kernelmosaic.machines.base import CrammerSinger
from kernelmosaic.multiclass.learning import ClassNewton, ProjectedGradient, QuasiNewton


def refuse_after(monkeypatch, n_solves):
    """Let every problem solve its machine so many times, and count how often more is asked for."""
    refused = []
    solve_machine = Problem.solve_machine

    def solve(self, *arguments, **known):
        self.is_spent = self.is_spent or self.n_solves >= n_solves
        solution = solve_machine(self, *arguments, **known)
        if solution is None:
            refused.append(self)
        return solution

    monkeypatch.setattr(Problem, "solve_machine", solve)
    return refused


@pytest.mark.parametrize("n_solves", [1, 2, 3, 5])
@pytest.mark.parametrize("learner", [Newton, ReducedGradient, SILP])
def test_searches_over_one_weight_per_kernel_end(learner, n_solves, monkeypatch):
    Ks, machine, d = make_problem("svc", 1)
    refused = refuse_after(monkeypatch, n_solves)
    # So few iterations are left to interior points that they do not take over.
    settings = options(len(Ks), penalties=d, tol=1e-12, max_iter=100, min_path_steps=100)
    learned = learner(settings).learn(StoredStack(Ks), machine)
    assert len(refused) >= 1
    assert learned.n_solves == n_solves
    # What is returned is an evaluation that was made.
    problem = MachineProblem(StoredStack(Ks), machine, settings)
    at_weights = problem.evaluation(learned.weights * d**2, learned.solution)
    assert learned.objective == pytest.approx(at_weights.upper)
    assert 0 < learned.gap < np.inf
    assert learned.history[-1].gap >= learned.gap


@pytest.mark.parametrize("n_solves", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("learner", [ClassNewton, QuasiNewton, ProjectedGradient])
def test_searches_over_one_weight_per_class_and_kernel_end(learner, n_solves, monkeypatch):
    rng = np.random.RandomState(0)
    _, Ks = make_kernels(rng, 40, 4)
    refused = refuse_after(monkeypatch, n_solves)
    settings = options(len(Ks), tol=1e-12)
    learned = learner(settings).learn(StoredStack(Ks), CrammerSinger(np.arange(40) % 3, 1.0))
    assert len(refused) >= 1
    assert learned.n_solves == len(learned.history) == n_solves
    assert 0 < learned.gap < np.inf


def test_the_quasi_newton_method_asks_for_nothing_once_its_search_has_ended():
    rng = np.random.RandomState(0)
    _, Ks = make_kernels(rng, 40, 4)
    for max_iter in (2, 5, 9):
        settings = options(len(Ks), tol=1e-12, max_iter=max_iter)
        with recorded(Problem.solve_machine) as solves:
            QuasiNewton(settings).learn(StoredStack(Ks), CrammerSinger(np.arange(40) % 3, 1.0))
        assert len(solves) == max_iter


@pytest.mark.parametrize("step", ["lbfgs", "armijo", "fixed"])
def test_descents_of_gates_end(step, monkeypatch):
    rng = np.random.RandomState(0)
    X, Ks = make_kernels(rng, 40, 3)
    machine = make_problem("svc", 1)[1]
    refused = refuse_after(monkeypatch, 4)
    learner = GateLearner(Softmax(), step, tol=1e-12, max_iter=50)
    learned = learner.learn(StoredStack(Ks), machine, X, rng)
    assert len(refused) >= 1
    assert learned.n_solves == 4
    assert not learned.converged
