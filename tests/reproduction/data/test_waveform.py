"""Breiman's waveforms against their exact moments and the rule that knows them."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.data import make_waveform

PEAKS = {0: (7, 15), 1: (7, 11), 2: (11, 15)}


def wave(peak):
    return np.array([max(6 - abs(t - peak), 0) for t in range(1, 22)], dtype=float)


@pytest.mark.parametrize("label", PEAKS)
def test_moments_of_each_class_are_exact(label):
    X, y = make_waveform(150_000, random_state=0)
    one, other = map(wave, PEAKS[label])
    sample = X[y == label]
    np.testing.assert_allclose(sample.mean(axis=0), (one + other) / 2, atol=0.05)
    # u is uniform, of variance 1/12, and moves the sample along one − other
    expected = np.eye(21) + np.outer(one - other, one - other) / 12
    np.testing.assert_allclose(np.cov(sample.T), expected, atol=0.12)
    assert len(sample) / len(X) == pytest.approx(1 / 3, abs=0.006)


def test_the_mixing_weight_is_uniform_not_just_of_the_right_variance():
    X, y = make_waveform(150_000, random_state=1)
    one, other = map(wave, PEAKS[0])
    direction = (one - other) / ((one - other) @ (one - other))
    estimate = (X[y == 0] - other) @ direction  # u plus Gaussian noise of a known variance
    noise = 1 / ((one - other) @ (one - other))
    centred = estimate - 0.5
    # fourth cumulant of a uniform on [0, 1] is −1/120; the noise adds none
    fourth_cumulant = np.mean(centred**4) - 3 * np.mean(centred**2) ** 2
    assert fourth_cumulant == pytest.approx(-1 / 120, abs=5e-4)
    assert centred.var() == pytest.approx(1 / 12 + noise, abs=2e-3)


def test_the_rule_that_knows_the_waves_is_right_about_86_times_in_100():
    X, y = make_waveform(20_000, random_state=2)
    u = (np.arange(60) + 0.5) / 60
    scores = []
    for one, other in (map(wave, PEAKS[label]) for label in PEAKS):
        means = np.outer(u, one) + np.outer(1 - u, other)
        log_likelihood = X @ means.T - 0.5 * (means**2).sum(axis=1)
        scores.append(np.logaddexp.reduce(log_likelihood, axis=1))
    assert (np.argmax(scores, axis=0) == y).mean() == pytest.approx(0.86, abs=0.01)


def test_a_seed_gives_the_same_draw():
    X, y = make_waveform(30, random_state=5)
    X_again, y_again = make_waveform(30, random_state=5)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(y, y_again)
    assert X.shape == (30, 21)
    assert not np.array_equal(X, make_waveform(30, random_state=6)[0])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="n_samples=-1"):
        make_waveform(-1)
