"""Metadata routed by scikit-learn: weights and groups reach what asked for them; checked by a plain
loop."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressorCV,
    MKLSurvival,
)
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV, ResponseSurfaceSearchCV

RNG = np.random.RandomState(0)
X = RNG.normal(size=(60, 4))
Y = (X[:, 0] + X[:, 2] ** 2 + 0.4 * RNG.normal(size=60) > 0.8).astype(int)
WEIGHT = RNG.uniform(0.1, 3.0, size=60)
GROUPS = np.arange(60) % 6
KERNELS = [("a", Linear(), [0, 1]), ("b", Gaussian(2.0), [2, 3])]
SEARCHES = [
    MKLClassifierCV(KERNELS, norms=(1,)),
    MKLRegressorCV(KERNELS, norms=(1,)),
    PathSearchCV(MKLSurvival(KERNELS)),
    PathSearchCV(DiscriminantMKLClassifier(KERNELS)),
    PathSearchCV(LocalizedMKLClassifier(KERNELS, n_init=1, max_iter=2)),
]


@pytest.fixture(autouse=True)
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def weighted():
    return (
        MKLClassifier(KERNELS, tol=1e-6)
        .set_fit_request(sample_weight=True)
        .set_score_request(sample_weight=True)
    )


def pipeline(model):
    return make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)


def loop_scores(C):
    """Weighted accuracy of each fold of groups, weighted fit."""
    for train, held in GroupKFold(3).split(X, Y, GROUPS):
        scaler = StandardScaler().fit(X[train])
        model = MKLClassifier(KERNELS, C=C, tol=1e-6).fit(
            scaler.transform(X[train]), Y[train], WEIGHT[train]
        )
        yield np.average(model.predict(scaler.transform(X[held])) == Y[held], weights=WEIGHT[held])


def test_pipelines_and_searches_pass_weights_and_groups_on():
    Z = StandardScaler().fit_transform(X)
    piped = pipeline(weighted()).fit(X, Y, sample_weight=WEIGHT)
    plain = MKLClassifier(KERNELS, tol=1e-6).fit(Z, Y, WEIGHT)
    np.testing.assert_array_equal(piped.decision_function(X), plain.decision_function(Z))
    assert (
        np.abs(
            plain.decision_function(Z) - MKLClassifier(KERNELS).fit(Z, Y).decision_function(Z)
        ).max()
        > 0.05
    )

    expected = [list(loop_scores(C)) for C in (0.1, 10.0)]
    # Before version 1.7 a pipeline does not hand the weights on to its own score.
    folds = {
        "cv": GroupKFold(3),
        "scoring": get_scorer("accuracy").set_score_request(sample_weight=True),
    }
    search = GridSearchCV(pipeline(weighted()), {"mklclassifier__C": [0.1, 10.0]}, **folds)
    search.fit(X, Y, sample_weight=WEIGHT, groups=GROUPS)
    found = [[search.cv_results_[f"split{f}_test_score"][i] for f in range(3)] for i in range(2)]
    np.testing.assert_allclose(found, expected)
    model = pipeline(weighted().set_params(C=10.0))
    crossed = cross_validate(
        model, X, Y, params={"sample_weight": WEIGHT, "groups": GROUPS}, **folds
    )
    np.testing.assert_allclose(crossed["test_score"], expected[1])
    surface = ResponseSurfaceSearchCV(
        pipeline(weighted()), on=["mklclassifier__C"], max_iter=0, **folds
    )
    surface.fit(X, Y, sample_weight=WEIGHT, groups=GROUPS)
    np.testing.assert_allclose(
        surface.cv_results_["mean_test_score"][0], np.mean(list(loop_scores(1.0)))
    )


def test_what_nobody_asked_for_is_refused():
    for model in (
        GridSearchCV(MKLClassifier(KERNELS), {"C": [1.0]}),
        make_pipeline(MKLClassifier(KERNELS)),
    ):
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            model.fit(X, Y, sample_weight=WEIGHT)
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        PathSearchCV(MKLClassifier(KERNELS), Cs=[1.0]).fit(X, Y, sample_weight=WEIGHT)
    with pytest.raises(UnsetMetadataPassedError, match=r"sample_weight.*score"):
        MKLClassifierCV(KERNELS, Cs=[1.0]).fit(X, Y, sample_weight=WEIGHT)
    with pytest.raises(TypeError, match="colour"):
        MKLClassifierCV(KERNELS, Cs=[1.0]).fit(X, Y, colour=GROUPS)


def test_requests_outlive_clones_and_parameters():
    model = clone(weighted()).set_params(C=2.0)
    assert model.get_metadata_routing().fit.requests == {"sample_weight": True}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("search", SEARCHES)
def test_estimators_that_choose_c_route_to_their_folds(search):
    """In a pipeline, groups reach the splitter; without `scoring` folds are scored by the
    estimator's own score."""
    name = repr(search)
    y = (
        np.column_stack([Y, np.exp(X[:, 0])])
        if "Survival" in name
        else X[:, 0]
        if "Regressor" in name
        else Y
    )
    model = clone(search).set_params(cv=GroupKFold(3), Cs=[1.0], refit=False)
    found = pipeline(model).fit(X, y, groups=GROUPS)[-1]
    folds = list(GroupKFold(3).split(X, Y, GROUPS))
    Z = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(
        found.scores_, clone(model).set_params(cv=folds).fit(Z, y).scores_
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_weights_of_samples_reach_the_scores_of_folds_if_asked_for(wrapped):
    if wrapped:
        model = PathSearchCV(weighted(), Cs=[10.0], cv=GroupKFold(3))
        unweighted = clone(model)
        unweighted.estimator.set_score_request(sample_weight=False)
    else:
        model = MKLClassifierCV(KERNELS, Cs=[10.0], norms=[1], cv=GroupKFold(3), tol=1e-6)
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        unweighted = clone(model).set_score_request(sample_weight=False)
    search = pipeline(model).fit(X, Y, sample_weight=WEIGHT, groups=GROUPS)[-1]
    other = pipeline(unweighted).fit(X, Y, sample_weight=WEIGHT, groups=GROUPS)[-1]
    hits = other.scores_[:, 0] * 20  # of twenty samples in a fold
    np.testing.assert_allclose(hits, np.round(hits))
    assert np.any(search.scores_ != other.scores_)


def test_a_search_around_a_pipeline_routes_as_a_grid_search_does():
    scorer = get_scorer("accuracy").set_score_request(sample_weight=True)
    search = PathSearchCV(
        pipeline(weighted()), Cs=[0.1, 10.0], cv=GroupKFold(3), scoring=scorer, scale=False
    )
    search.fit(X, Y, sample_weight=WEIGHT, groups=GROUPS)
    np.testing.assert_allclose(search.scores_.T, [list(loop_scores(C)) for C in (0.1, 10.0)])


def test_weights_reach_fits_to_samples_that_lack_views():
    gone = X.copy()
    gone[::4, 2:] = np.nan
    Z = StandardScaler().fit_transform(gone)
    piped = pipeline(weighted()).fit(gone, Y, sample_weight=WEIGHT)
    expected = MKLClassifier(KERNELS, tol=1e-6).fit(Z, Y, WEIGHT)
    np.testing.assert_array_equal(piped.predict(gone), expected.predict(Z))
    np.testing.assert_array_equal(piped[-1].weights_, expected.weights_)
