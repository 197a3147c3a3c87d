"""Small fits that rounding keeps from converging: they end after a counted amount of work, with an
honest gap."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from tests.calls import recorded
from tests.campaign.problems import draw as drawn_problem
from tests.learning.hard_problems import draw
from threadpoolctl import threadpool_info, threadpool_limits

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLRidgeClassifierCV,
)
from kernelmosaic.backend import Backend
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.machines.base import MulticlassMachine
from kernelmosaic.solvers.interior_point import _ClassPath
from kernelmosaic.solvers.smo import SMOState


def fit(seed):
    """Fit the problem of the seed, and check that it either meets its gap or says that it does
    not."""
    model, X, y = draw(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    warned = any(issubclass(one.category, ConvergenceWarning) for one in caught)
    assert warned or model.duality_gap_ <= model.tol
    assert np.isfinite(model.duality_gap_)
    return model


@pytest.mark.parametrize(
    ("seed", "most"), [(100, 900), pytest.param(297, 1550, marks=pytest.mark.campaign)]
)
def test_steps_of_interior_points_are_counted_in_all_solves(seed, most):
    # A bilinear machine of 6 samples and a pairwise one of 60, C near 1e9: 3758 steps, and more
    # than 4000.
    with recorded(_ClassPath.step) as steps:
        fit(seed)
    assert 0 < len(steps) <= most


def test_a_class_loses_its_weights_in_several_steps():
    # At once, they came back in 83 solves: weights of 0.004 in sums of up to 120 have no curvature
    # to come back by.
    problem = drawn_problem(26111922, 2233)
    model = problem.fit(problem.estimator())
    assert model.duality_gap_ <= model.tol
    assert model.weights_.sum(axis=1).min() < 1e-3 * model.weights_.sum(axis=1).max()
    assert model.n_solves_ <= 25


@pytest.mark.parametrize(
    ("seed", "most"),
    [(1114, 1100), (621, 1100), pytest.param(546, 6000, marks=pytest.mark.campaign)],
)
def test_looks_at_the_gap_are_counted_where_few_steps_lie_between_them(seed, most):
    # Huber regression on kernels of size 1e21, one solve each: 8945 looks, and 3051; localized:
    # more than 30000.
    with recorded(SMOState.gap) as looks:
        fit(seed)
    assert 0 < len(looks) <= most


def blas_threads(given):
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.mark.filterwarnings("ignore:MKLRidgeClassifierCV:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator", [DiscriminantMKLClassifier, partial(MKLRidgeClassifierCV, max_iter=1)]
)
def test_systems_of_some_hundred_samples_are_solved_on_one_thread(estimator):
    rng = np.random.RandomState(0)
    X, y = rng.randn(600, 2), np.arange(600) % 2
    with (
        threadpool_limits(limits=2, user_api="blas"),
        recorded(Backend.cholesky, blas_threads) as threads,
    ):
        estimator([Linear(), Gaussian()]).fit(X, y)
    assert threads
    assert set.union(*threads) == {1}


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator", [MKLClassifier, partial(LocalizedMKLClassifier, n_init=1, max_iter=1)]
)
def test_few_samples_are_learned_on_one_thread_of_the_linear_algebra(estimator):
    rng = np.random.RandomState(0)
    with (
        threadpool_limits(limits=2, user_api="blas"),
        recorded(MulticlassMachine.solve, blas_threads) as threads,
    ):
        estimator([Linear(), Gaussian()], multi_class="joint", n_jobs=1).fit(
            rng.randn(24, 2), np.arange(24) % 3
        )
    assert threads
    assert set.union(*threads) == {1}
