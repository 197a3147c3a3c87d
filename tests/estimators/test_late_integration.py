"""One machine per view, combined by scikit-learn's ensembles, beside the same written out."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from kernelmosaic import MKLClassifier
from kernelmosaic.kernels import Gaussian, Linear


def views_of_two_classes(n=120):
    rng = np.random.RandomState(0)
    y = rng.randint(2, size=n)
    X = rng.standard_normal((n, 6)) + np.outer(y, [1.2, 1.2, 0.9, 0.9, 0.0, 0.0])
    return X, y, [("a", Gaussian(), [0, 1]), ("b", Linear(), [2, 3]), ("noise", Gaussian(), [4, 5])]


def machines_of(views):
    return [(name, MKLClassifier([(name, kernel, columns)])) for name, kernel, columns in views]


def test_stacking_is_a_regression_on_held_out_decision_values():
    X, y, views = views_of_two_classes()
    folds = StratifiedKFold(3)
    late = StackingClassifier(machines_of(views), cv=folds).fit(X[:80], y[:80])
    held_out = np.column_stack(
        [
            cross_val_predict(
                MKLClassifier([(name, kernel)]),
                X[:80][:, columns],
                y[:80],
                cv=folds,
                method="decision_function",
            )
            for name, kernel, columns in views
        ]
    )
    plain = LogisticRegression().fit(held_out, y[:80])
    # The regression is solved to 1e-4.
    assert_allclose(late.final_estimator_.coef_, plain.coef_, rtol=1e-3)
    each = [
        MKLClassifier([(name, kernel)]).fit(X[:80][:, columns], y[:80])
        for name, kernel, columns in views
    ]
    values = [
        model.decision_function(X[80:][:, view[2]]) for model, view in zip(each, views, strict=True)
    ]
    expected = plain.decision_function(np.column_stack(values))
    assert_allclose(late.decision_function(X[80:]), expected, rtol=1e-3, atol=1e-3)
    # The machine of the view of noise counts least.
    assert np.argmin(np.abs(late.final_estimator_.coef_[0])) == 2


def test_voting_is_the_majority_of_the_views():
    X, y, views = views_of_two_classes()
    vote = VotingClassifier(machines_of(views)).fit(X[:80], y[:80])
    votes = [
        MKLClassifier([(name, kernel)]).fit(X[:80][:, columns], y[:80]).predict(X[80:][:, columns])
        for name, kernel, columns in views
    ]
    assert_array_equal(vote.predict(X[80:]), np.sum(votes, axis=0) >= 2)
