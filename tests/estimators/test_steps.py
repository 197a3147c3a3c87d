"""Estimators of the package as steps of a pipeline that is searched or inspected: each step has its
own kernels."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.ensemble import StackingClassifier
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import FeatureUnion, make_pipeline

from kernelmosaic import (
    DiscriminantMKLClassifier,
    MKLClassifier,
    estimators,
    imputing,
    model_selection,
)
from kernelmosaic.inspection import kernel_importance, stability
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV

X, Y = make_classification(30, 5, n_informative=3, flip_y=0.1, random_state=2)
KERNELS = [Linear(), Gaussian()]
PUBLIC = [
    getattr(module, name)
    for module in (estimators, imputing, model_selection)
    for name in module.__all__
]
OURS = [
    one
    for one in PUBLIC
    if inspect.isclass(one) and issubclass(one, BaseEstimator) and hasattr(one, "fit")
]
#: What needs more than kernels; small, as the searches among them fit many times.
PARAMS = {
    "LocalizedBayesianMKLClassifier": {"n_init": 1},
    "LocalizedMKLClassifier": {"n_init": 1},
    "LocalizedMKLOneClass": {"n_init": 1},
    "LocalizedMKLRegressor": {"n_init": 1},
    "MKLClassifierCV": {"Cs": [1.0], "norms": ("uniform",), "cv": 2},
    "MKLRegressorCV": {"Cs": [1.0], "norms": ("uniform",), "cv": 2},
    "MKLSurvivalCV": {"Cs": [1.0], "norms": ("uniform",), "cv": 2},
    "MKLRidgeCV": {"n_init": 1},
    "MKLRidgeClassifierCV": {"n_init": 1},
    "MKLClustering": {"n_clusters": 2},
    "PathSearchCV": {
        "estimator": DiscriminantMKLClassifier(KERNELS, tol=0.1),
        "Cs": [1.0],
        "cv": 2,
        "calibration": None,
    },
    "ResponseSurfaceSearchCV": {
        "estimator": MKLClassifier(KERNELS, tol=0.1),
        "on": ["C"],
        "cv": 2,
        "order": 1,
        "max_iter": 0,
    },
    "SplitConformal": {"estimator": MKLClassifier(KERNELS, tol=0.1)},
}


class Outputs(TransformerMixin, BaseEstimator):
    """What an estimator says of the samples, for a column beside them; times are positive."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        targets = y if is_classifier(self.estimator) else y + 1.0 + 0.1 * X[:, 0].clip(-1, 1)
        self.fitted_ = clone(self.estimator).fit(X, targets)
        return self

    def transform(self, X):
        names = ("transform", "decision_function", "predict")
        name = next(name for name in names if hasattr(self.fitted_, name))
        return np.column_stack(
            [X, np.asarray(getattr(self.fitted_, name)(X), dtype=float).reshape(len(X), -1)]
        )


def step(kind):
    params = dict(PARAMS.get(kind.__name__, {}))
    names = inspect.signature(kind).parameters
    # A wide gap: what the first step learns differs between the search and the plain pipeline by
    # rounding alone.
    common = (("kernels", KERNELS), ("random_state", 0), ("tol", 0.1))
    params |= {name: value for name, value in common if name in names}
    return Outputs(kind(**params))


def union():
    return FeatureUnion(
        [("as they are", "passthrough"), ("ours", DiscriminantMKLClassifier(KERNELS))]
    )


NESTED = {
    "as it is": DiscriminantMKLClassifier([Gaussian(factor=0.3), Linear()]),
    "in a union": union(),
    "in a pipeline": make_pipeline(union(), Outputs(MKLClassifier(KERNELS))),
    "stacked": StackingClassifier(
        [("ours", MKLClassifier(KERNELS))], LogisticRegression(), cv=2, passthrough=True
    ),
    "selects": SelectFromModel(
        MKLClassifier([Linear()]),
        importance_getter=lambda one: np.abs(one.dual_coef_ @ X[: one.dual_coef_.shape[1]]),
    ),
}


def check(head):
    """The search's refit, and its fits to the folds, are those of the plain pipeline."""
    pipeline = make_pipeline(head, MKLClassifier(KERNELS, tol=1e-6))
    folds = StratifiedKFold(2)
    search = PathSearchCV(pipeline, Cs=[0.3], cv=folds, scale=False, calibration=None).fit(X, Y)
    plain = clone(pipeline).set_params(mklclassifier__C=0.3)
    expected = clone(plain).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(
        search.decision_function(X), expected, atol=5e-3 * np.abs(expected).max()
    )
    # The last fold follows fits of all the others.
    *_, (train, held) = folds.split(X, Y)
    expected = clone(plain).fit(X[train], Y[train]).decision_function(X[held])
    found = search._conformal.models[-1].decision_function(X[held])
    np.testing.assert_allclose(found, expected, atol=5e-3 * np.abs(expected).max())


def mean_margin(model, X, y):
    """Return a score that shows small differences."""
    return float(np.mean(np.where(y == 1, 1, -1) * model.decision_function(X)))


def test_inspections_of_a_pipeline_with_another_estimator():
    """Kernels of the same names in both steps: each has its own, and its own start."""
    kernels = [("a", Linear()), ("b", Gaussian()), ("c", Gaussian(factor=0.3))]
    head = Outputs(MKLClassifier(kernels[1:]))
    pipeline = make_pipeline(head, MKLClassifier(kernels, tol=1e-6))
    folds = StratifiedKFold(2)
    found = kernel_importance(pipeline, X, Y, cv=folds, n_repeats=1, scoring=mean_margin)
    for f, (train, held) in enumerate(folds.split(X, Y)):
        whole = clone(pipeline).fit(X[train], Y[train])
        np.testing.assert_allclose(found.scores[f], mean_margin(whole, X[held], Y[held]), rtol=1e-3)
        for m in range(3):
            rest = clone(pipeline).set_params(mklclassifier__kernels=kernels[:m] + kernels[m + 1 :])
            lost = found.scores[f] - mean_margin(rest.fit(X[train], Y[train]), X[held], Y[held])
            np.testing.assert_allclose(found.drops[f, m], lost, atol=1e-3)
    # Every fit starts from weights that the kernels of the first step are too few for.
    drawn = stability(pipeline, X, Y, n_resamples=2, random_state=0)
    np.testing.assert_allclose(drawn.resampled_weights.sum(axis=1), 1)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_estimator_as_a_step(kind):
    check(step(kind))


@pytest.mark.parametrize("head", NESTED.values(), ids=NESTED)
def test_estimators_within_steps(head):
    check(head)
