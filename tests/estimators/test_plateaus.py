"""What a search chooses where scores tie: the smoothest model, whatever the last bits of the samples are."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic import (
    MKLClassifierCV,
    MKLRegressor,
    MKLRegressorCV,
    MKLSurvivalCV,
)
from kernelmosaic.engine.search import choose
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV

# Tables of scores ----------------------------------------------------------------------------------------------------


def table(*means, folds=5, spread=0.0):
    """Scores of one norm per list of means; the deviations over the folds have the mean zero."""
    off = spread * np.linspace(-1, 1, folds)
    return np.array([[[one + d for one in row] for d in off] for row in means])


@pytest.mark.parametrize(
    ("means", "chosen"),
    [
        ([[0.5, 0.9, 0.8]], (0, 1)),
        ([[0.5, 0.9, 0.9 + 1e-5]], (0, 1)),  # 1 − 0.9 is known to 4e-4
        ([[0.5, 0.9, 0.901]], (0, 2)),
        ([[0.5, 0.9999, 0.99990001, 0.99991]], (0, 3)),  # nearly perfect, and known better
        ([[0.0, 1 - 1e-9, 1.0]], (0, 1)),  # outputs that are off by tol have an error of tol²
        ([[-4.0, -2.0, -1.999, -2.5]], (0, 1)),  # losses
        ([[-4e-6, -2e-6, -1.999e-6, -1.9e-6]], (0, 3)),  # in other units
        ([[120.0, 300.0, 300.5]], (0, 1)),  # a score of no known maximum
        ([[0.5, 0.9, 0.8], [0.9, 0.9, 0.9]], (1, 0)),
        ([[0.5, 0.9, 0.8], [0.2, 0.90001, 0.9]], (0, 1)),
        ([[np.nan, 0.9, 0.8], [0.9, np.nan, np.nan]], (1, 0)),
    ],
)
def test_a_table_of_scores(means, chosen):
    assert choose(table(*means), 1e-3) == chosen
    m, i = choose(table(*(row[::-1] for row in means)), 1e-3, descending=True)
    assert (m, len(means[0]) - 1 - i) == chosen
    # Scores that have no error tie with no other.
    assert choose(table([0.5, 0.9, 0.9 + 1e-5]), 1e-8) == (0, 2)


def test_as_many_right_answers_tie():
    sizes = np.array([17, 16, 16])
    right = np.array([[[12, 11, 13], [9, 10, 9], [10, 10, 10]]])
    scores = right / sizes[:, np.newaxis]
    assert scores[0].mean(axis=0)[1] > scores[0].mean(axis=0)[0]  # by less than a sample
    assert choose(scores[:, :, :2], 1e-8, sizes=sizes) == (0, 0)
    assert choose(scores[:, :, :2], 1e-8) == (0, 1)
    assert choose(scores, 1e-8, sizes=sizes) == (0, 2)


def naive_one_standard_error(scores, descending):
    """Look at one value after the other, the smoothest first, until a score is within one standard error."""
    means = scores.mean(axis=1)
    m, i = np.unravel_index(np.argmax(means), means.shape)
    own = scores[m, :, i]
    least = means[m, i] - np.sqrt(np.sum((own - own.mean()) ** 2) / (len(own) - 1) / len(own))
    for i in reversed(range(means.shape[1])) if descending else range(means.shape[1]):
        if np.any(means[:, i] >= least):
            return int(np.argmax(means[:, i])), i
    raise AssertionError


@pytest.mark.parametrize("descending", [False, True])
def test_one_standard_error_is_that_of_a_naive_loop(descending):
    rng = np.random.RandomState(0)
    moved = 0
    for _ in range(50):
        scores = rng.uniform(0.6, 0.7, (2, 4, 6)) + rng.uniform(0, 0.05, (2, 1, 6))
        expected = naive_one_standard_error(scores, descending)
        assert choose(scores, 1e-9, "one_standard_error", descending) == expected
        moved += expected != choose(scores, 1e-9, "best", descending)
    assert 10 < moved < 50
    assert choose(table([0.5, 0.9, 0.9 + 1e-5]), 1e-3, "one_standard_error") == (0, 1)  # an error of zero


# Searches ------------------------------------------------------------------------------------------------------------

RNG = np.random.RandomState(4)
X = RNG.standard_normal((40, 3))
SMOOTH = np.sin(X[:, 0]) + X[:, 1]
TIMES = np.column_stack([RNG.uniform(size=40) < 0.8, np.exp(SMOOTH)])
KERNELS = [("line", Linear()), ("near", Gaussian()), ("far", Gaussian(factor=2.0))]
#: Machines without a coefficient at its bound are the same for all larger C.
LARGE = np.logspace(0, 6, 5)
OPTIONS = {"Cs": LARGE, "cv": 2, "refit": False}


def minus_squared_error(model, X, y):
    return -float(np.mean((model.predict(X) - (y if y.ndim == 1 else y[:, 1])) ** 2))


SEARCHES = {
    "numbers": (MKLRegressorCV(KERNELS, **OPTIONS, norms=1), SMOOTH),
    "equal weights": (MKLRegressorCV(KERNELS, **OPTIONS, norms="uniform"), SMOOTH),
    "squared error": (PathSearchCV(MKLRegressor(KERNELS), **OPTIONS, scoring=minus_squared_error), SMOOTH),
    "times": (MKLSurvivalCV(KERNELS, **OPTIONS, norms=1, loss="censored", scoring=minus_squared_error), TIMES),
    "log-loss": (MKLClassifierCV(KERNELS, **OPTIONS, norms=1, scoring="neg_log_loss"), SMOOTH > 0),
}


@pytest.mark.parametrize(("search", "y"), SEARCHES.values(), ids=SEARCHES)
def test_last_bits_do_not_choose(search, y):
    """Copies of the samples with other last bits, or columns in another order, have the same C."""
    eps = np.finfo(np.float64).eps
    copies = [X, X * (1 + eps * np.random.RandomState(1).choice([-1, 0, 1], X.shape)), X[:, [2, 0, 1]]]
    assert len({search.fit(Z, y).C_ for Z in copies}) == 1


def test_the_smoothest_of_a_plateau_is_taken():
    model = MKLRegressorCV(KERNELS, Cs=LARGE, norms=1, cv=3, refit=False).fit(X, SMOOTH)
    means = model.scores_.mean(axis=0)
    i = int(np.searchsorted(model.Cs_, model.C_))
    assert np.ptp(means[i:]) < 1e-6 < means[i] - means[i - 1]
    assert 0 < i < len(LARGE) - 2
    assert model.best_score_ == means[i]


def test_one_standard_error_of_a_search():
    noisy = SMOOTH + np.random.RandomState(3).standard_normal(40)
    best, smooth = (
        MKLRegressorCV(KERNELS, Cs=9, norms=(1,), cv=5, rule=rule, refit=False).fit(X, noisy)
        for rule in ("best", "one_standard_error")
    )
    np.testing.assert_array_equal(best.scores_, smooth.scores_)
    expected = naive_one_standard_error(best.scores_[np.newaxis], False)[1]
    assert smooth.C_ == best.Cs_[expected] < best.C_
    assert smooth.best_score_ == pytest.approx(best.scores_[:, expected].mean())
    with pytest.raises(ValueError, match="rule='1se': choose one of 'best', 'one_standard_error'"):
        MKLRegressorCV(KERNELS, rule="1se").fit(X, noisy)
