"""The folds: ten halves, stratified, and what scikit-learn asks of a splitter."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from kernelmosaic.model_selection import FiveByTwoFold


def test_each_replication_halves_the_samples_and_keeps_the_shares():
    y = np.repeat([0, 1], [60, 20])
    X = np.zeros((80, 1))
    splits = list(FiveByTwoFold(random_state=1).split(X, y))
    assert len(splits) == 10
    for first, second in zip(splits[::2], splits[1::2], strict=True):
        np.testing.assert_array_equal(np.sort(first[0]), np.sort(second[1]))
        np.testing.assert_array_equal(np.sort(np.concatenate(first)), np.arange(80))
        for part in first:
            assert np.bincount(y[part]).tolist() == [30, 10]
    assert len({tuple(np.sort(train)) for train, _ in splits}) == 10


def test_seed_repeats_and_scikit_learn_takes_it():
    rng = np.random.RandomState(0)
    X, y = rng.standard_normal((40, 2)), np.tile([0, 1], 20)
    first, again = (list(FiveByTwoFold(7).split(X, y)) for _ in range(2))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert cross_val_score(LogisticRegression(), X, y, cv=FiveByTwoFold(0)).shape == (10,)
    assert repr(FiveByTwoFold(random_state=3)) == "FiveByTwoFold(random_state=3)"
