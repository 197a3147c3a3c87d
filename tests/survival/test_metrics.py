"""Scores of survival predictions: naive loops over samples and pairs, and scikit-survival where it
is installed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import UndefinedMetricWarning

from kernelmosaic.survival.metrics import (
    StepFunction,
    brier_score,
    concordance_index,
    integrated_brier_score,
    kaplan_meier,
    uno_concordance_index,
    usual_times,
)

RNG = np.random.RandomState(0)


def draw(n, ties):
    time = RNG.randint(1, 12, size=n).astype(float) if ties else RNG.exponential(5.0, size=n) + 0.1
    return np.column_stack([RNG.rand(n) < 0.6, time]).astype(float)


TRAIN, HELD, RISK = draw(80, True), draw(50, True), RNG.standard_normal(50)
TRAIN[0] = 0.0, 13.0  # the last is censored later than any sample held out
TIMES = np.array([2.0, 3.5, 5.0, 8.0])
SURVIVAL = np.sort(RNG.rand(50, 4), axis=1)[:, ::-1]


def alive(y, t, reverse=False):
    """The product over times up to t; of the censoring, events come first."""
    share = 1.0
    for s in np.unique(y[y[:, 1] <= t, 1]):
        now, later = y[y[:, 1] == s, 0], np.sum(y[:, 1] > s)
        left = np.sum(now == 0) if reverse else np.sum(now == 1)
        at_risk = later + (np.sum(now == 0) if reverse else len(now))
        share *= 1.0 - left / at_risk if left else 1.0
    return share


@pytest.mark.parametrize("reverse", [False, True])
def test_kaplan_meier_is_the_product_over_times(reverse):
    times, share = kaplan_meier(HELD[:, 1], HELD[:, 0], reverse=reverse)
    assert_allclose(share, [alive(HELD, t, reverse) for t in times], atol=1e-12)
    twice = kaplan_meier(np.tile(HELD[:, 1], 2), np.tile(HELD[:, 0], 2), reverse=reverse)[1]
    assert_allclose(twice, share, atol=1e-12)
    assert_allclose(
        kaplan_meier(HELD[:, 1], HELD[:, 0], np.full(50, 2.0), reverse=reverse)[1],
        share,
        atol=1e-12,
    )


def test_brier_score_sums_over_samples():
    for k, t in enumerate(TIMES):
        total = 0.0
        for (event, time), S in zip(HELD, SURVIVAL[:, k], strict=True):
            if event and time <= t:
                total += S**2 / alive(TRAIN, time, reverse=True)
            elif time > t:
                total += (1 - S) ** 2 / alive(TRAIN, t, reverse=True)
        assert brier_score(TRAIN, HELD, SURVIVAL, TIMES)[k] == pytest.approx(
            total / len(HELD), abs=1e-12
        )


def test_integral_is_by_trapezoids_and_reads_step_functions():
    score = brier_score(TRAIN, HELD, SURVIVAL, TIMES)
    expected = (
        sum(0.5 * (score[k] + score[k + 1]) * (TIMES[k + 1] - TIMES[k]) for k in range(3)) / 6.0
    )
    assert integrated_brier_score(TRAIN, HELD, SURVIVAL, TIMES) == pytest.approx(
        expected, abs=1e-12
    )
    steps = [StepFunction(TIMES, row) for row in SURVIVAL]
    assert integrated_brier_score(TRAIN, HELD, steps, TIMES) == pytest.approx(expected, abs=1e-12)
    times = usual_times(HELD)
    values = [[one(min(t, 8.0)) for t in times] for one in steps]
    assert integrated_brier_score(TRAIN, HELD, steps) == pytest.approx(
        integrated_brier_score(TRAIN, HELD, values, times), abs=1e-12
    )


def test_the_usual_times_end_at_the_first_after_four_fifths():
    for y in (HELD, draw(37, False), np.column_stack([np.ones(3), [1.0, 1.0, 2.0]])):
        times = np.unique(y[:, 1])
        after = [t for t in times if np.mean(y[:, 1] < t) > 0.8]
        assert usual_times(y)[-1] == (after[0] if after else times[-1])


@pytest.mark.parametrize("tau", [None, 6.0])
def test_unos_concordance_weighs_pairs_by_censoring(tau):
    right = pairs = 0.0
    for (event, time), own in zip(HELD, RISK, strict=True):
        if not event or (tau is not None and time >= tau):
            continue
        weight = 1.0 / alive(TRAIN, time, reverse=True) ** 2
        for (other_event, other_time), other in zip(HELD, RISK, strict=True):
            if time < other_time or (time == other_time and not other_event):
                pairs += weight
                right += weight * ((own < other) + 0.5 * (own == other))
    assert uno_concordance_index(TRAIN, HELD, RISK, tau=tau) == pytest.approx(
        right / pairs, abs=1e-12
    )


def test_scores_are_those_of_scikit_survival():
    metrics = pytest.importorskip("sksurv.metrics")
    train, held = (
        np.array([(e > 0, t) for e, t in y], dtype=[("e", "?"), ("t", "f8")]) for y in (TRAIN, HELD)
    )
    assert_allclose(
        brier_score(train, held, SURVIVAL, TIMES),
        metrics.brier_score(train, held, SURVIVAL, TIMES)[1],
    )
    theirs = metrics.integrated_brier_score(train, held, SURVIVAL, TIMES)
    assert integrated_brier_score(train, held, SURVIVAL, TIMES) == pytest.approx(theirs, rel=1e-12)
    harrell = metrics.concordance_index_censored(held["e"], held["t"], -RISK)[0]
    assert concordance_index(held, RISK) == pytest.approx(harrell, abs=1e-12)
    uno = metrics.concordance_index_ipcw(train, held, -RISK, tau=6.0)[0]
    assert uno_concordance_index(train, held, RISK, tau=6.0) == pytest.approx(uno, abs=1e-12)


def test_what_censoring_leaves_undefined_is_nan():
    """The last training sample is censored at 3, and everybody who is predicted lives beyond."""
    train, held = [[1, 1.0], [1, 2.0], [0, 3.0]], [[1, 4.0], [1, 5.0], [1, 6.0], [0, 7.0]]
    dead = np.zeros((4, 3))
    with pytest.warns(
        UndefinedMetricWarning, match="Brier score is not defined from time 3.5 on: no sample"
    ):
        assert np.isnan(brier_score(train, held, dead, [2.5, 3.5, 4.5])).tolist() == [
            False,
            True,
            True,
        ]
    with pytest.warns(UndefinedMetricWarning, match="give smaller times"):
        assert np.isnan(integrated_brier_score(train, held, dead, [2.5, 3.5, 4.5]))
    with pytest.warns(
        UndefinedMetricWarning, match="Uno's concordance is not defined from time 4 on"
    ):
        assert np.isnan(uno_concordance_index(train, held, [1.0, 2.0, 3.0, 4.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Before 3 all is known; samples without weight need nothing; an event that none outlives
        # has no pair.
        assert brier_score(train, held, np.zeros((4, 1)), [2.5]) == pytest.approx(1.0)
        early = [[1, 1.5], *held]
        curves = np.full((5, 1), 0.25)
        known = brier_score(train, early, curves, [3.5], sample_weight=[1, 0, 0, 0, 0])
        assert known == pytest.approx(0.0625)
        assert uno_concordance_index(train, [[1, 1.0], [0, 2.0], [1, 4.0]], [1.0, 2.0, 3.0]) == 1.0


def test_default_times_end_before_the_first_that_is_not_defined():
    train, held = [[1, 1.0], [1, 2.0], [0, 3.0]], [[1, 1.0], [1, 2.0], [1, 2.5], [1, 3.5], [1, 4.0]]
    steps = [StepFunction([1.0, 2.0, 3.0, 4.0], [0.8, 0.6, 0.4, 0.2])] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = integrated_brier_score(train, held, steps)
        assert found == integrated_brier_score(train, held, steps, [1.0, 2.0, 2.5])


def test_weights_are_counts_in_the_scores():
    counts = RNG.randint(0, 3, 50)
    counts[:5] = 2
    again = np.repeat(np.arange(50), counts)
    steps = [StepFunction(TIMES, row) for row in SURVIVAL]
    both = {"sample_weight": counts, "train_weight": counts}
    expected = integrated_brier_score(HELD[again], HELD[again], [steps[i] for i in again])
    assert integrated_brier_score(HELD, HELD, steps, **both) == pytest.approx(expected, abs=1e-12)
    expected = brier_score(HELD[again], HELD[again], SURVIVAL[again], TIMES)
    assert_allclose(brier_score(HELD, HELD, SURVIVAL, TIMES, **both), expected, atol=1e-12)


def test_what_is_wrong_with_times_and_values():
    with pytest.raises(ValueError, match=r"survival has shape \(9, 4\): give"):
        brier_score(TRAIN, HELD, SURVIVAL[:9], TIMES)
    with pytest.raises(ValueError, match="at least two times, in ascending order"):
        integrated_brier_score(TRAIN, HELD, SURVIVAL, TIMES[::-1])
    with pytest.raises(ValueError, match=r"within \[0; 8"):
        StepFunction(TIMES, SURVIVAL[0])(9.0)
