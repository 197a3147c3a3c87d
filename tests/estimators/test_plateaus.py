"""What a search chooses where scores tie: the smoothest model, whatever the last bits of the
samples are."""

from __future__ import annotations

from statistics import mean, stdev

import numpy as np
import pytest

from kernelmosaic import (
    MKLClassifierCV,
    MKLRegressor,
    MKLRegressorCV,
    MKLSurvivalCV,
)
from kernelmosaic.engine.choice import choose_value
from kernelmosaic.kernels import Gaussian, Linear, per_column
from kernelmosaic.model_selection import PathSearchCV

# Tables of scores ---------------------------------------------------------------------------------


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
    assert choose_value(table(*means), 1e-3) == chosen
    m, i = choose_value(table(*(row[::-1] for row in means)), 1e-3, descending=True)
    assert (m, len(means[0]) - 1 - i) == chosen
    # Scores that have no error tie with no other.
    assert choose_value(table([0.5, 0.9, 0.9 + 1e-5]), 1e-8) == (0, 2)


def test_as_many_right_answers_tie():
    sizes = np.array([17, 16, 16])
    right = np.array([[[12, 11, 13], [9, 10, 9], [10, 10, 10]]])
    scores = right / sizes[:, np.newaxis]
    assert scores[0].mean(axis=0)[1] > scores[0].mean(axis=0)[0]  # by less than a sample
    assert choose_value(scores[:, :, :2], 1e-8, sizes=sizes) == (0, 0)
    assert choose_value(scores[:, :, :2], 1e-8) == (0, 1)
    assert choose_value(scores, 1e-8, sizes=sizes) == (0, 2)


def naive_one_standard_error(scores, descending):
    """Look at one value after the other, the smoothest first, until a score is within one standard
    error."""
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
        assert choose_value(scores, 1e-9, "one_standard_error", descending) == expected
        moved += expected != choose_value(scores, 1e-9, "best", descending)
    assert 10 < moved < 50
    assert choose_value(table([0.5, 0.9, 0.9 + 1e-5]), 1e-3, "one_standard_error") == (
        0,
        1,
    )  # an error of zero


# Equal weights or learned ones --------------------------------------------------------------------

#: Folds differ by more than learned weights gain in any of them.
EQUAL = np.array([0.8, 0.6, 0.9, 0.7])


@pytest.mark.parametrize(
    ("gains", "pays"),
    [
        ([0.05, 0.05, 0.05, 0.05], True),  # the same in all folds: an error of zero
        ([0.0, 0.0, 0.0, 0.0], False),
        ([-0.05, -0.05, -0.05, -0.05], False),
        ([0.3, 0.1, 0.1, -0.1], True),  # 0.1 with an error of 0.0816
        ([0.3, 0.0, 0.1, -0.1], False),  # 0.075 with an error of 0.0854
        ([0.4, 0.0, 0.0, 0.0], False),  # a single fold: 0.1 with an error of 0.1
    ],
)
@pytest.mark.parametrize("rule", ["best", "one_standard_error"])
def test_learned_weights_win_by_more_than_one_standard_error_of_the_difference(gains, pays, rule):
    learned = EQUAL + np.array(gains)
    scores = np.stack([learned, EQUAL])[:, :, np.newaxis]
    assert choose_value(scores, 1e-9, rule, equal_weights=1) == (0 if pays else 1, 0)
    assert choose_value(scores[::-1], 1e-9, rule, equal_weights=0) == (1 if pays else 0, 0)


def naive_equal_or_learned(scores, equal_weights):
    """Compare the best models of both kinds fold by fold."""
    candidates = {}
    for norm, folds in enumerate(scores.tolist()):
        for value, column in enumerate(zip(*folds, strict=True)):
            if not np.isnan(column).any():
                candidates[norm, value] = column
    equal = max(
        (key for key in candidates if key[0] == equal_weights),
        key=lambda key: mean(candidates[key]),
    )
    learned = max(
        (key for key in candidates if key[0] != equal_weights),
        key=lambda key: mean(candidates[key]),
    )
    gains = [a - b for a, b in zip(candidates[learned], candidates[equal], strict=True)]
    return learned if mean(gains) > stdev(gains) / len(gains) ** 0.5 else equal


def test_equal_or_learned_weights_are_those_of_a_naive_loop():
    rng = np.random.RandomState(1)
    chosen = []
    for _ in range(100):
        scores = rng.uniform(0.6, 0.7, (3, 5, 4)) + rng.uniform(0, 0.1, (1, 5, 1))
        scores[rng.randint(2), :, rng.randint(4)] = np.nan  # not tried
        scores[0, 2, 1] = np.nan  # undefined in one fold
        expected = naive_equal_or_learned(scores, 2)
        assert choose_value(scores, 1e-9, equal_weights=2) == expected
        chosen.append(expected[0])
    assert set(chosen) == {0, 1, 2}


def test_the_rule_of_the_value_chooses_among_the_norms_that_are_left():
    means = np.array([[0.5, 0.8, 0.81], [0.79, 0.79, 0.7]])
    scores = means[:, np.newaxis] + (EQUAL - 0.75)[:, np.newaxis]
    # The folds differ by far more than the models, and learned weights gain 0.02 in every one.
    assert choose_value(scores, 1e-9, "one_standard_error") == (1, 0)
    assert choose_value(scores, 1e-9, "one_standard_error", equal_weights=1) == (0, 1)
    # They gain as much in the mean of folds that disagree.
    scores[0] += np.array([0.2, -0.2, 0.2, -0.2])[:, np.newaxis]
    assert choose_value(scores, 1e-9, "best") == (0, 2)
    assert choose_value(scores, 1e-9, "best", equal_weights=1) == (1, 0)


def test_equal_weights_of_which_nothing_or_one_fold_is_known():
    scores = np.array([[[0.7]], [[0.6]]])
    assert choose_value(scores, 1e-9, equal_weights=1) == (0, 0)  # a single fold has no error
    assert choose_value(scores, 1e-9, equal_weights=0) == (0, 0)
    assert choose_value(np.array([[[0.5]], [[np.nan]]]), 1e-9, equal_weights=1) == (0, 0)
    assert choose_value(np.array([[[np.nan]], [[0.5]]]), 1e-9, equal_weights=1) == (1, 0)
    assert choose_value(np.array([[[0.5, 0.6]]]), 1e-9, equal_weights=0) == (0, 1)  # no other norm


def test_one_more_right_answer_in_a_larger_fold_is_no_gain():
    sizes = np.array([17, 16, 16])
    right = np.array([[[12], [10], [10]], [[11], [11], [10]]])
    scores = right / sizes[:, np.newaxis]
    assert choose_value(scores, 1e-9, sizes=sizes, equal_weights=0) == (0, 0)


def best_mean(scores):
    return np.nanmax(scores.mean(axis=0))


def test_learned_weights_that_win_by_chance_are_not_chosen():
    rng = np.random.RandomState(18)
    X, y = rng.standard_normal((40, 12)), rng.standard_normal(40)
    model = MKLRegressorCV(per_column(Linear()), Cs=[0.1], cv=4).fit(X, y)
    learned = max(best_mean(model.scores_by_norm_[norm]) for norm in (1, 2))
    assert learned > best_mean(model.scores_by_norm_["uniform"]) + 0.02
    assert model.norm_ == "uniform"
    np.testing.assert_allclose(model.weights_, 1 / 12)
    assert model.best_score_ == pytest.approx(best_mean(model.scores_by_norm_["uniform"]))
    assert (
        "is kept, as no learned weights score better over the folds by more than one"
        in model._repr_html_()
    )


@pytest.mark.parametrize("search", [MKLRegressorCV, MKLClassifierCV])
def test_one_kernel_of_thirty_that_informs_is_found(search):
    rng = np.random.RandomState(10)
    X = rng.standard_normal((90, 30))
    y = X[:, 4] + 0.3 * rng.standard_normal(90)
    target = y > 0 if search is MKLClassifierCV else y
    model = search(per_column(Linear()), Cs=[0.1]).fit(X, target)
    assert model.norm_ in (1, 2)
    assert np.argmax(model.weights_) == 4
    assert "scored best over the folds" in model._repr_html_()


# Searches -----------------------------------------------------------------------------------------

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
    "squared error": (
        PathSearchCV(MKLRegressor(KERNELS), **OPTIONS, scoring=minus_squared_error),
        SMOOTH,
    ),
    "times": (
        MKLSurvivalCV(KERNELS, **OPTIONS, norms=1, loss="censored", scoring=minus_squared_error),
        TIMES,
    ),
    "log-loss": (MKLClassifierCV(KERNELS, **OPTIONS, norms=1, scoring="neg_log_loss"), SMOOTH > 0),
}


@pytest.mark.parametrize(("search", "y"), SEARCHES.values(), ids=SEARCHES)
def test_last_bits_do_not_choose(search, y):
    """Copies of the samples with other last bits, or columns in another order, have the same C."""
    eps = np.finfo(np.float64).eps
    copies = [
        X,
        X * (1 + eps * np.random.RandomState(1).choice([-1, 0, 1], X.shape)),
        X[:, [2, 0, 1]],
    ]
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
