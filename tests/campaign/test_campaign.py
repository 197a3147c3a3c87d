"""A few hundred random problems on a fresh seed, and that the campaign finds what it looks for."""

from __future__ import annotations

import os
import secrets

import numpy as np
import pytest
from tests.campaign.certificates import Dishonest, check_fit
from tests.campaign.problems import draw
from tests.campaign.runner import report, run_many, run_one


def test_no_random_problem_crashes_hangs_or_is_dishonest():
    # Fresh every time; a failure prints the seed and how to run the problem again.
    seed = int(os.environ.get("CAMPAIGN_SEED", secrets.randbelow(2**31)))
    outcomes = run_many(seed, range(int(os.environ.get("CAMPAIGN_COUNT", 200))))
    # Seconds depend on the machine and on what else it does: only `make campaign` counts fits that are slow, and here
    # only those that do not end.
    assert not any(outcome.failed and outcome.kind != "SLOW" for outcome in outcomes), report(outcomes)


def test_problems_are_drawn_from_seed_and_index_alone():
    a, b = draw(3, 17), draw(3, 17)
    assert str(a) == str(b)
    assert np.array_equal(a.X, b.X)
    assert str(draw(3, 18)) != str(a)


def honest():
    problem = next(p for p in (draw(0, i) for i in range(100)) if p.name == "MKLRegressor" and len(p.X) > 20)
    return problem, problem.fit(problem.estimator())


@pytest.mark.filterwarnings("ignore")
def test_false_statements_are_found():
    problem, model = honest()
    check_fit(problem, model)
    changes = {
        "objective_": lambda value: 1.01 * value,
        "intercept_": lambda value: value + 1.0,
        "weights_": lambda value: 1.1 * value,
        "dual_coef_": lambda value: 2.0 * value,
    }
    for name, change in changes.items():
        kept = getattr(model, name)
        setattr(model, name, change(kept))
        with pytest.raises(Dishonest):
            check_fit(problem, model)
        setattr(model, name, kept)


def test_an_error_that_names_no_parameter_is_a_crash(monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("matrix is not positive definite")

    problem = draw(0, 0)
    monkeypatch.setattr(type(problem.estimator()), "fit", fail)
    assert run_one(0, 0).kind == "CRASH"
