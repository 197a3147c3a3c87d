"""Ringnorm against its definition and its published error rate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from reproduction.data import make_ringnorm


@pytest.mark.parametrize("n_features", [3, 20])
def test_moments_and_priors(n_features):
    X, y = make_ringnorm(100_000, n_features, random_state=0)
    assert X.shape == (100_000, n_features)
    assert y.mean() == pytest.approx(0.5, abs=0.008)
    for label, mean, variance in ((0, 0.0, 4.0), (1, 2 / n_features**0.5, 1.0)):
        sample = X[y == label]
        np.testing.assert_allclose(sample.mean(axis=0), mean, atol=0.045)
        np.testing.assert_allclose(np.cov(sample.T), variance * np.eye(n_features), atol=0.12)


def test_the_bayes_rule_errs_as_often_as_published():
    # Breiman's report puts the best possible error at 1.3 %.
    X, y = make_ringnorm(100_000, random_state=1)
    wide = multivariate_normal(np.zeros(20), 4 * np.eye(20)).logpdf(X)
    narrow = multivariate_normal(np.full(20, 2 / 20**0.5), np.eye(20)).logpdf(X)
    assert ((narrow > wide) != y).mean() == pytest.approx(0.013, abs=0.0015)


def test_a_seed_gives_the_same_draw():
    X, y = make_ringnorm(30, random_state=5)
    X_again, y_again = make_ringnorm(30, random_state=5)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(y, y_again)
    assert X.shape == (30, 20)
    assert not np.array_equal(X, make_ringnorm(30, random_state=6)[0])


@pytest.mark.parametrize("name", ["n_samples", "n_features"])
def test_bad_arguments_are_named(name):
    with pytest.raises(ValueError, match=f"{name}=0"):
        make_ringnorm(**{name: 0})
