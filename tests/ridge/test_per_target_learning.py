"""Weights per target: the criterion of every candidate, the choice, and the interpolation between
candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from kernelmosaic.backend import NUMPY, torch_backend
from kernelmosaic.gram.feature_stack import StoredFeatures
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.ridge.learning import RidgeOptions, RidgeTargets, learn_ridge
from kernelmosaic.ridge.per_target import (
    Kriging,
    TargetOptions,
    learn_frequencies,
    learn_target_weights,
)

FEW, GIVEN = TargetOptions(sizes=(20, 6, 6), points=300), TargetOptions(sizes=())


def make(n=60, T=7, seed=0):
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(n, d)) for d in (5, 8, 3)]
    shares = rng.dirichlet(np.full(3, 0.5), size=T)
    Y = sum(
        np.sqrt(shares[:, m]) * (X @ rng.normal(size=(X.shape[1], T))) for m, X in enumerate(views)
    )
    Ks = np.array([X @ X.T / X.shape[1] for X in views])
    return Ks, Y + rng.normal(size=(n, T)) + 5.0, rng.uniform(0.5, 1.5, n)


def stack_on(device, Ks):
    backend = NUMPY if device is None else torch_backend(device)
    return StoredStack(backend.asarray(Ks))


def left_out(Ks, gamma, y, weight, rows):
    """The weighted mean square of what machines without these rows miss, by refits with a free
    constant."""
    total, n = 0.0, len(y)
    M = np.tensordot(gamma, Ks, 1)
    for S in rows:
        kept = np.setdiff1d(np.arange(n), S)
        system = np.block(
            [
                [M[np.ix_(kept, kept)] + np.diag(1 / weight[kept]), np.ones((len(kept), 1))],
                [np.ones((1, len(kept))), np.zeros((1, 1))],
            ]
        )
        found = np.linalg.solve(system, np.append(y[kept], 0.0))
        total += weight[S] @ (y[S] - M[np.ix_(S, kept)] @ found[:-1] - found[-1]) ** 2
    return total / weight.sum()


@pytest.mark.parametrize("grouped", [False, True])
def test_errors_are_those_of_refits(device, grouped):
    Ks, Y, weight = make()
    groups = np.array_split(np.arange(60), 20) if grouped else None
    learned = learn_target_weights(
        stack_on(device, Ks), Y, weight, np.random.RandomState(0), groups=groups, options=FEW
    )
    for t in (0, 3, 6):
        rows = groups if grouped else [np.array([i]) for i in range(60)]
        variance = weight @ (Y[:, t] - np.average(Y[:, t], weights=weight)) ** 2 / weight.sum()
        found = left_out(Ks, learned.ratios[t], Y[:, t], weight, rows)
        assert learned.errors[t] * variance == pytest.approx(found, rel=1e-8)
        assert learned.value[t] == pytest.approx(0.5 * weight.sum() * np.log(learned.errors[t]))
        # The machine satisfies its own equations.
        K = np.tensordot(learned.ratios[t], Ks, 1) + np.diag(1 / weight)
        assert_allclose(K @ learned.beta[:, t] + learned.intercept[t], Y[:, t], atol=1e-8)
        assert abs(learned.beta[:, t].sum()) < 1e-8


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
@pytest.mark.parametrize("grouped", [False, True])
def test_features_give_what_their_matrices_give(device, criterion, grouped):
    rng = np.random.default_rng(1)
    Zs = [rng.normal(size=(60, d)) for d in (5, 8, 3)]
    _, Y, weight = make()
    backend = NUMPY if device is None else torch_backend(device)
    stacks = (
        StoredFeatures([backend.asarray(Z) for Z in Zs]),
        StoredStack(np.array([Z @ Z.T for Z in Zs])),
    )
    run = {"criterion": criterion, "groups": np.array_split(np.arange(60), 20) if grouped else None}
    first = np.concatenate([np.exp(2.0 * rng.normal(size=(20, 3))), np.eye(3), np.zeros((1, 3))])
    given = {"first": first, "options": GIVEN, **run}
    a, b = (
        learn_target_weights(one, Y, weight, np.random.RandomState(0), **given) for one in stacks
    )
    assert_allclose(a.ratios, b.ratios)
    assert_allclose(a.value, b.value, rtol=1e-9)
    assert_allclose(a.errors, b.errors, rtol=1e-9)
    assert_allclose(a.beta, b.beta, atol=1e-9)
    assert_allclose(a.intercept, b.intercept, atol=1e-9)
    found = [
        learn_target_weights(
            one, Y, weight, np.random.RandomState(0), options=FEW, **run
        ).candidates[:26]
        for one in stacks
    ]
    assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("criterion", ["loo", "evidence"])
def test_no_target_is_worse_than_with_the_best_candidate(criterion):
    Ks, Y, weight = make(T=30)
    run = {"criterion": criterion}
    learned = learn_target_weights(
        StoredStack(Ks), Y, weight, np.random.RandomState(0), options=FEW, **run
    )
    # The last thirty are for one target each.
    assert len(learned.candidates) == 56
    for gamma in learned.candidates[:26]:
        one = learn_target_weights(
            StoredStack(Ks),
            Y,
            weight,
            np.random.RandomState(0),
            first=gamma[np.newaxis],
            options=GIVEN,
            **run,
        )
        assert np.all(learned.value <= one.value + 1e-9 * np.abs(one.value))
    assert list(learned.history) == sorted(learned.history, reverse=True)


def test_rounds_gain_over_a_design_of_the_same_size():
    rng = np.random.default_rng(3)
    views = [rng.normal(size=(200, d)) for d in (40, 60, 20)]
    shares = rng.dirichlet(np.full(3, 0.5), size=150)
    signal = [X @ rng.normal(size=(X.shape[1], 150)) / np.sqrt(X.shape[1]) for X in views]
    Y = sum(np.sqrt(shares[:, m]) * g for m, g in enumerate(signal)) + 0.5 * rng.normal(
        size=(200, 150)
    )
    stack, weight = StoredStack(np.array([X @ X.T / X.shape[1] for X in views])), np.ones(200)
    rounds, design = TargetOptions(sizes=(40, 30, 30), operations=0.0), TargetOptions(sizes=(100,))
    learned, plain = (
        learn_target_weights(stack, Y, weight, np.random.RandomState(0), options=one)
        for one in (rounds, design)
    )
    assert learned.value.mean() < plain.value.mean() - 0.5
    errors = [
        np.abs(one.ratios / one.ratios.sum(axis=1, keepdims=True) - shares).mean()
        for one in (learned, plain)
    ]
    assert errors[0] < 0.9 * errors[1]
    # Below what was chosen, in nats per target.
    assert learned.left_over < plain.left_over


def test_targets_that_leave_the_centre_of_their_group(device):
    rng = np.random.default_rng(2)
    Zs = [rng.normal(size=(120, d)) for d in (20, 30, 10)]
    shares = rng.dirichlet(np.full(3, 0.5), size=40)
    Y = sum(
        np.sqrt(shares[:, m]) * (Z @ rng.normal(size=(Z.shape[1], 40))) / 4
        for m, Z in enumerate(Zs)
    )
    Y += 0.5 * rng.normal(size=Y.shape)
    weight, Ks = rng.uniform(0.5, 1.5, 120), np.array([Z @ Z.T for Z in Zs])
    place = NUMPY.asarray if device is None else torch_backend(device).asarray
    for stack in (StoredStack(place(Ks)), StoredFeatures([place(Z) for Z in Zs])):
        options = TargetOptions(sizes=(60, 40, 20), points=500, operations=0.0)
        learned = learn_target_weights(stack, Y, weight, np.random.RandomState(0), options=options)
        assert 0.2 < learned.moved.mean() < 1.0
        assert list(learned.history) == sorted(learned.history, reverse=True)
        best = learn_target_weights(
            stack,
            Y,
            weight,
            np.random.RandomState(0),
            first=learned.candidates[:100],
            options=GIVEN,
        )
        exact = np.empty(40)
        for t in range(40):
            # Its machine satisfies its own equations.
            K = np.tensordot(learned.ratios[t], Ks, 1) + np.diag(1 / weight)
            assert_allclose(K @ learned.beta[:, t] + learned.intercept[t], Y[:, t], atol=1e-8)
            assert abs(learned.beta[:, t].sum()) < 1e-8
            own = {"first": learned.ratios[[t]], "options": GIVEN}
            exact[t] = learn_target_weights(
                stack, Y[:, [t]], weight, np.random.RandomState(0), **own
            ).value[0]
        # Criteria between candidates are interpolated, to a tenth of a nat, the others exact.
        off, moved = learned.value - exact, learned.moved
        assert_allclose(off[~moved], 0.0, atol=1e-7)
        assert np.median(np.abs(off[moved])) < 0.1
        assert np.all(exact < best.value + 1e-7)
        assert np.mean((exact - best.value)[moved]) < -0.5


def test_one_target_is_learned_as_well_as_by_exact_slopes():
    Ks, Y, weight = make(n=80, T=1, seed=5)
    learned = learn_target_weights(StoredStack(Ks), Y, weight, np.random.RandomState(0))
    exact = learn_ridge(
        StoredStack(Ks), RidgeTargets.of_numbers(Y, weight), options=RidgeOptions(n_init=3)
    )
    error = np.average(exact.residuals[:, 0] ** 2, weights=weight)
    assert 0.5 * weight.sum() * np.log(learned.errors[0] / error) < 0.5


def test_units_and_constants_of_targets_do_not_count():
    Ks, Y, weight = make()
    moved = np.column_stack([1e-9 * Y[:, :2], 1e200 * Y[:, 2:3], 1e6 + Y[:, 3:6], np.full(60, 3.1)])
    a, b = (
        learn_target_weights(StoredStack(Ks), one, weight, np.random.RandomState(0), options=FEW)
        for one in (Y, moved)
    )
    assert np.all(np.isfinite(b.beta))
    assert np.all(np.isfinite(b.ratios))
    # The draws depend on all targets, the candidates of the design do not.
    assert_allclose(a.errors[:6], b.errors[:6], rtol=0.2)
    assert b.intercept[6] == pytest.approx(3.1)
    assert_allclose(b.beta[:, 6], 0.0, atol=1e-12)


def test_batches_and_single_precision_give_the_same(tmp_path):
    Ks, Y, weight = make(T=20)
    path = tmp_path / "targets.npy"
    np.save(path, Y.astype(np.float32))
    mapped = np.load(path, mmap_mode="r")
    whole = learn_target_weights(StoredStack(Ks), Y, weight, np.random.RandomState(0), options=FEW)
    small = replace(FEW, batch_bytes=4 * 60 * 3)
    parts = learn_target_weights(
        StoredStack(Ks), mapped, weight, np.random.RandomState(0), options=small
    )
    assert parts.beta.dtype == np.float32
    assert_allclose(parts.errors, whole.errors, rtol=1e-2)


def test_targets_that_do_not_fit_are_read_again(device):
    Ks, Y, weight = make(T=20)
    whole = learn_target_weights(
        stack_on(device, Ks), Y, weight, np.random.RandomState(0), options=FEW
    )
    none = replace(FEW, kept_bytes=0.0)
    again = learn_target_weights(
        stack_on(device, Ks), Y, weight, np.random.RandomState(0), options=none
    )
    assert_allclose(again.beta, whole.beta, rtol=1e-9, atol=1e-12)
    assert_allclose(again.ratios, whole.ratios, rtol=1e-9)


def test_kriging_passes_through_values_and_knows_its_errors():
    rng = np.random.default_rng(0)
    gammas = np.exp(rng.normal(size=(40, 2)))
    values = np.log(1 + gammas @ rng.uniform(size=(2, 5)))
    kriging = Kriging(gammas, np.array([0.1, 0.3]), False, True, 4.0)
    assert_allclose(kriging.weights(gammas) @ values, values, atol=1e-3)
    without = Kriging(gammas[1:], np.array([0.1, 0.3]), False, True, 4.0)
    # The same scale of z, which depends on the points.
    without.__init__(
        gammas[1:], np.array([0.1, 0.3]), False, True, 4.0 * kriging.scale / without.scale
    )
    found = values[0] - (without.weights(gammas[:1]) @ values[1:])[0]
    assert_allclose(kriging.errors(values)[0], found, rtol=1e-4, atol=1e-7)


def test_frequencies_are_those_of_the_largest_likelihood():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 300)) ** 2
    found = learn_frequencies(values, 2000)
    assert found.sum() == pytest.approx(1.0)
    likelihoods = np.exp(-values)
    # At the optimum no point's slope exceeds one, and those in use have it.
    slopes = (likelihoods / (found @ likelihoods)).mean(axis=1)
    assert slopes.max() < 1.001
    assert_allclose(slopes[found > 1e-3], 1.0, atol=1e-3)
