"""From an estimator's parameters to a learner: names, refusals, warnings."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from tests.calls import recorded

from kernelmosaic import MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.learning.factory import SOLVERS, Parameters, make_learner
from kernelmosaic.learning.fixed import FixedWeights
from kernelmosaic.learning.hard_margin import LearnedC

X, Y = make_gaussians(n_components=4, n_samples=60, random_state=0)
BANK = StoredStack(np.array([np.eye(3), np.ones((3, 3))]))


def asked(**changes):
    return Parameters(**{"max_iter": 50, **changes})


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_by_its_name(name):
    learner = make_learner(asked(solver=name), BANK)
    assert type(learner) is SOLVERS[name]
    assert (learner.options.tol, learner.options.max_iter) == (1e-3, 50)
    if name != "sdp":
        given = make_learner(asked(solver=name, penalties=[1.0, 2.0]), BANK)
        np.testing.assert_array_equal(given.options.penalties, [1.0, 2.0])


def test_weights_to_keep_and_prices_to_learn():
    np.testing.assert_array_equal(make_learner(asked(weights="uniform"), BANK).weights, [0.5, 0.5])
    assert isinstance(make_learner(asked(weights=[0.0, 3.0]), BANK), FixedWeights)
    assert isinstance(make_learner(asked(learns_C=True), BANK), LearnedC)
    with pytest.raises(ValueError, match="C='learn' needs solver='newton', not solver='silp'"):
        make_learner(asked(learns_C=True, solver="silp"), BANK)


def test_given_weights_combine_the_kernels_once_for_all_classes():
    with recorded(StoredStack.combine) as combined:
        MKLClassifier(weights="uniform").fit(X[:, :2], (X[:, 0] > 0).astype(int) + (X[:, 1] > 0))
    assert len(combined) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver": "simplex"}, "solver='simplex': choose one of 'newton', 'reduced_gradient'"),
        ({"solver": None}, "solver=None"),
        (
            {"solver": "silp", "norm": 2},
            "solver='silp' supports norm=1, not norm=2; use solver='newton'",
        ),
        ({"solver": "qcqp", "norm": 1.5}, "solver='qcqp' supports norm=1, not norm=1.5"),
        (
            {"solver": "silp", "norm": 1.5},
            "solver='silp' supports norm=1, not norm=1.5; use solver=",
        ),
        ({"norm": 0.5}, "norm=0.5"),
        ({"norm": "l1"}, "norm='l1': give 1 .*, or a finite number above 1"),
        ({"norm": "elastic"}, "norm='elastic': give 1 .*, or a finite number above 1"),
        ({"norm": 1.5, "learns_C": True}, "C='learn' needs norm=1, not norm=1.5"),
        (
            {"solver": "easymkl", "easymkl_lambda": 0.0},
            "easymkl_lambda=0.0: give a number above 0, .* up to 1",
        ),
        ({"solver": "easymkl", "easymkl_lambda": 1.5}, "easymkl_lambda=1.5"),
        ({"solver": "easymkl", "easymkl_lambda": "even"}, "easymkl_lambda='even'"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"max_iter": 2.5}, "max_iter=2.5"),
        ({"weights": "equal"}, "weights='equal'"),
        ({"weights": [1.0, -1.0]}, "must not be negative"),
        ({"weights": [0.0, 0.0]}, "nor all zero"),
        ({"weights": [1.0]}, "2 kernels"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(ValueError, match=message):
        make_learner(asked(**changes), BANK)


def test_the_lambda_of_easymkl_reaches_the_weights():
    even = MKLClassifier(solver="easymkl", easymkl_lambda=1.0).fit(X, Y)
    # At 1 the mixtures are the means of the classes.
    mixtures = np.where(Y == 1, 1.0 / np.sum(Y == 1), -1.0 / np.sum(Y != 1))
    shares = [
        mixtures @ MKLClassifier(weights=w).fit(X, Y).kernel_matrix(X) @ mixtures for w in np.eye(5)
    ]
    np.testing.assert_allclose(even.weights_, np.divide(shares, np.sum(shares)), atol=1e-12)
    default = MKLClassifier(solver="easymkl").fit(X, Y).weights_
    assert np.abs(even.weights_ - default).max() > 0.01


def test_estimators_pass_refusals_on():
    with pytest.raises(
        ValueError,
        match="solver='easymkl' supports machines with the labels of two classes, not SVR",
    ):
        MKLRegressor(solver="easymkl").fit(X, X[:, 0])
    with pytest.raises(
        ValueError, match="solver='alignment' supports machines with targets, not OneClass"
    ):
        MKLOneClass(solver="alignment").fit(X)


@pytest.mark.parametrize("solver", ["newton", "reduced_gradient", "silp"])
def test_stopping_early_warns_with_the_gap_reached(solver):
    model = MKLClassifier(solver=solver, max_iter=1, tol=1e-9)
    with pytest.warns(
        ConvergenceWarning, match=r"relative duality gap of .*, above tol=1e-09: raise max_iter"
    ):
        model.fit(X, Y)
    assert model.duality_gap_ > 1e-9


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_estimator_with_every_solver(solver):
    # Of 30 samples at C = 1, the semi-definite program is too badly conditioned for one in four
    # last-bit copies of X.
    few, C = (slice(0, 30), 0.1) if solver == "sdp" else (slice(None), 1.0)
    model = MKLClassifier(solver=solver, C=C).fit(X[few], Y[few])
    assert model.duality_gap_ <= model.tol
    assert model.score(X, Y) > (0.6 if solver == "sdp" else 0.8)
