"""Classes and codes, outputs and columns, and estimators inside others, by hand."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic.engine.pipelines import behind_pipeline, divide_pipeline, last_step, unwrap
from kernelmosaic.engine.tasks import Labels, per_class, single

RNG = np.random.default_rng(0)


def test_codes_and_columns_among_all():
    labels, y = Labels(np.array(["a", "b", "d"])), ["d", "a", "d", "b"]
    assert_array_equal(labels.codes(y), [2, 0, 2, 1])
    assert_array_equal(
        labels.spread(np.array([[1.0, 2.0]]), np.array(["b", "d"]), -9.0), [[-9.0, 1.0, 2.0]]
    )


def test_outputs_and_columns():
    one = np.array([[0.5], [-2.0], [0.0]])
    assert_array_equal(Labels(np.array([3, 7])).decide(one), [7, 3, 3])
    assert_array_equal(Labels(np.array([3, 7, 9])).decide(np.array([[1, 3, 2], [5, 0, 5]])), [7, 3])
    both = np.column_stack([-one[:, 0], one[:, 0]])
    for outputs in (one, one[:, 0], both):
        assert_array_equal(per_class(outputs), both)
    assert_array_equal(single(one), one[:, 0])
    assert single(both) is both


def test_estimators_inside_others():
    X = RNG.normal(3.0, size=(30, 3))
    y = X[:, 0] > 3
    inner = make_pipeline(PCA(2), LogisticRegression())
    search = GridSearchCV(
        make_pipeline(StandardScaler(), inner), {"pipeline__pca__n_components": [2]}, cv=2
    )
    whole = make_pipeline(StandardScaler(with_std=False), search).fit(X, y)
    model = whole[-1].best_estimator_[-1][-1]
    assert unwrap(whole) is model
    assert unwrap(model) is model
    assert last_step(whole) is whole[-1]
    assert last_step(whole[-1].best_estimator_) is model
    found, read = behind_pipeline(whole, X)
    assert found is model
    assert_array_equal(model.predict(read), whole.predict(X))
    assert read.shape == (30, 2)
    steps, last = divide_pipeline(whole)
    assert list(steps.named_steps) == ["standardscaler"]
    assert last is whole[-1]
    assert divide_pipeline(make_pipeline(model)) == (None, model)
    assert divide_pipeline(model) == (None, model)
