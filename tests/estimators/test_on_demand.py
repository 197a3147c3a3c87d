"""Kernels that are never stored: the same models as with stored matrices, within a budget that has
no room for one."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.svm import SVC

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
)
from kernelmosaic.gram.kernel_set import KernelSet
from kernelmosaic.gram.options import StackOptions
from kernelmosaic.gram.stack import make_stack
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.machines import base as machines
from kernelmosaic.solvers.tuning import DEFAULTS, SolverOptions
from kernelmosaic.solvers.working_set import FreeThenViolating, SingleOutput

N = 180
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 4))
VALUES = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=N)
TWO = np.where(VALUES > 0, "yes", "no")
THREE = np.digitize(VALUES, [-0.5, 0.5])
KERNELS = [Gaussian(0.7), Gaussian(3.0), Linear()]
#: Half of what one combined matrix takes: working sets have room for 99 of the 180 samples.
BUDGET = 2**17

CASES = {
    "classifier": (MKLClassifier(KERNELS, tol=1e-6), TWO),
    "quadratic slack": (MKLClassifier(KERNELS, slack=2, tol=1e-6), TWO),
    "one versus rest": (MKLClassifier(KERNELS, tol=1e-6), THREE),
    "all classes at once": (MKLClassifier(KERNELS, multi_class="joint", tol=1e-3), THREE),
    "weights shared by classes": (
        MKLClassifier(KERNELS, multi_class="ovr-shared", tol=1e-5),
        THREE,
    ),
    "quadratic norm": (MKLClassifier(KERNELS, norm=2, tol=1e-6), TWO),
    "fixed weights": (MKLClassifier(KERNELS, weights="uniform", C=30.0, tol=1e-6), TWO),
    "column generation": (MKLClassifier(KERNELS, solver="silp", tol=1e-4), TWO),
    "regressor": (MKLRegressor(KERNELS, epsilon=0.1, tol=1e-4), VALUES),
    "one class": (MKLOneClass(KERNELS, weights="uniform", tol=1e-6), None),
}


def fitted(model, y, **params):
    return model.set_params(**params).fit(X, y)


def outputs(model):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


@pytest.mark.parametrize("name", list(CASES))
def test_the_same_model_as_with_stored_matrices(name, device, capsys):
    model, y = CASES[name]
    stored = fitted(model, y, memory_budget=None, device=None, verbose=True)
    assert "3 kernel matrices of 253.1 KiB are stored" in capsys.readouterr().out
    values, objective, weights = outputs(stored), stored.objective_, stored.weights_
    there = fitted(model, y, memory_budget=BUDGET, device=device, verbose=True)
    assert "entries are computed whenever they are needed" in capsys.readouterr().out
    assert there.duality_gap_ <= model.tol
    assert_allclose(there.objective_, objective, rtol=2 * model.tol)
    # A gap of δ is an error of about √δ in the function.
    assert_allclose(outputs(there), values, atol=5 * model.tol**0.5 * np.abs(values).max())
    assert_allclose(there.weights_, weights, atol=5 * model.tol**0.5)


def test_one_kernel_is_libsvm():
    model = MKLClassifier(
        [Gaussian(2.0)], C=5.0, normalize=None, tol=1e-7, memory_budget=BUDGET
    ).fit(X, TWO)
    theirs = SVC(C=5.0, gamma=1 / 4.0, tol=1e-6).fit(X, TWO)
    assert_allclose(model.decision_function(X), theirs.decision_function(X), atol=2e-3)


def test_free_samples_that_no_working_set_has_room_for_move_together():
    # A narrow kernel: most samples are free, and a working set holds 99 of them.
    model = MKLClassifier([Gaussian(0.3)], C=10.0, tol=1e-6)
    stored = fitted(model, TWO, memory_budget=None).objective_
    there = fitted(model, TWO, memory_budget=BUDGET // 10)
    assert there.duality_gap_ <= 1e-6
    assert_allclose(there.objective_, stored, rtol=2e-6)
    kernel_set = KernelSet.fit(lay_specs(read_kernels([Gaussian(0.3)]), X), X, "trace")
    gram = make_stack(kernel_set, kernel_set.views(X), budget=BUDGET // 10).combine(np.ones(1))
    program, rounds = machines.SVC(np.where(TWO == "yes", 1.0, -1.0), 10.0).program, []
    for options in (
        DEFAULTS,
        SolverOptions(free_rounds=replace(DEFAULTS.free_rounds, max_newton_samples=0)),
    ):
        policy = FreeThenViolating(gram, options)
        state = SingleOutput(gram, program, np.zeros(N), policy)
        found = state.solve(1e-6)
        assert policy.crowded
        rounds.append(state.n_rounds if found.gap <= 1e-6 else np.inf)
    assert rounds[0] < 0.7 * rounds[1]


def test_one_class_of_many_samples_and_few_of_the_other():
    # Working sets of those with most to gain alone would hold one class, whose sum cannot change.
    y = np.where(np.arange(N) < 10, "rare", "common")
    model = MKLClassifier(KERNELS, tol=1e-5)
    stored = fitted(model, y, memory_budget=None).objective_
    assert_allclose(fitted(model, y, memory_budget=BUDGET // 8).objective_, stored, rtol=2e-5)


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
def test_localized_learning_takes_the_same_steps():
    model = LocalizedMKLClassifier(
        [Linear(), Gaussian(2.0)], n_init=1, max_iter=5, random_state=0, tol=1e-6
    )
    stored = fitted(model, TWO, memory_budget=None).objective_
    assert_allclose(fitted(model, TWO, memory_budget=BUDGET).objective_, stored, rtol=1e-3)


def test_what_needs_the_whole_matrix_says_so():
    with pytest.raises(MemoryError, match=r"180 x 180 .*approximation='nystroem'.*memory_budget"):
        DiscriminantMKLClassifier(KERNELS, memory_budget=BUDGET).fit(X, TWO)


def test_verbose_says_what_was_chosen_and_why(capsys):
    MKLClassifier(KERNELS, memory_budget=BUDGET, verbose=True).fit(X, TWO)
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "one combined 180 x 180 kernel matrix needs 253.1 KiB, the budget is 128.0 KiB: entries are"
        " computed" in said
    )


def test_memory_stays_within_the_budget():
    n = 6000
    samples = np.random.default_rng(0).normal(size=(n, 3))
    y = samples[:, 0] ** 2 + samples[:, 1] > 0.5
    budget = n * n * 4 // 4
    model = MKLClassifier([Gaussian(1.0), Gaussian(4.0)])
    # Compiled code is loaded before memory is watched: that of kernels on demand, in the precision
    # of many samples.
    model.set_params(memory_budget=budget / 16).fit(samples[:1500], y[:1500])
    model.set_params(memory_budget=budget)
    tracemalloc.start()
    model.fit(samples, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * budget


@pytest.mark.parametrize("gated", [False, True])
def test_low_rank_factors_are_those_of_nystroem(gated, device):
    kernel_set = KernelSet.fit(lay_specs(read_kernels(KERNELS), X), X, None)
    options = StackOptions(most_rank=20, rank_share=1.0)
    stack = make_stack(
        kernel_set, kernel_set.views(X), device=device, budget=BUDGET, options=options
    )
    gates = RNG.uniform(0.1, 1.0, size=(N, 3))
    weights = np.array([0.2, 0.0, 0.7])
    gram = stack.combine(gates if gated else weights)
    each = [gaussian(0.7), gaussian(3.0), X @ X.T]
    K = sum(
        (np.outer(g, g) if gated else w) * one
        for g, w, one in zip(gates.T, weights, each, strict=True)
    )
    Z = gram.backend.to_numpy(gram.low_rank())
    some = np.linspace(0, N - 1, 20).astype(int)
    assert Z.shape == (N, 20)
    assert_allclose(
        Z @ Z.T, K[:, some] @ np.linalg.solve(K[np.ix_(some, some)], K[some]), atol=1e-6
    )


def gaussian(width):
    return np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / width**2)


def test_rounds_that_reach_a_few_start_from_low_rank_factors(device):
    samples, labels = (
        np.tile(X, (2, 1)) + 0.1 * np.random.default_rng(4).normal(size=(2 * N, 4)),
        np.tile(TWO, 2),
    )
    y = np.where(labels == "yes", 1.0, -1.0)
    machine = machines.SVC(y, 1.0)
    kernel_set = KernelSet.fit(lay_specs(read_kernels(KERNELS), samples), samples, None)
    views, weights = kernel_set.views(samples), np.full(3, 1 / 3)
    stored = machine.solve(make_stack(kernel_set, views).combine(weights), tol=1e-6)
    # Room for 85 of 360 samples at once.
    budget, options = 8 * 85**2 / 0.6, StackOptions(rank_share=10.0)
    gram = make_stack(kernel_set, views, device=device, budget=budget, options=options).combine(
        weights
    )
    starts, plain = [], gram.low_rank
    gram.low_rank = lambda: starts.append(1) or plain()
    found = machine.solve(gram, tol=1e-6)
    assert starts
    assert found.gap <= 1e-6
    assert_allclose(found.objective, stored.objective, rtol=2e-6)
