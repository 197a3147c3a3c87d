"""Tuned estimators: the same scores as a plain grid search, whatever is shared between the fits."""

from __future__ import annotations

import threading
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.metrics import log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.random_projection import GaussianRandomProjection
from tests.calls import recorded
from tests.sweeps import thinned
from threadpoolctl import threadpool_info

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLSurvivalCV,
    PosteriorMKLClassifier,
    load,
    save,
)
from kernelmosaic.backend import allowed_threads
from kernelmosaic.engine import search as _path
from kernelmosaic.engine.calibration import Calibration
from kernelmosaic.inspection import kernel_importance
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, Spectrum, per_column
from kernelmosaic.machines.base import SVC, SVR
from kernelmosaic.model_selection import (
    PairSplit,
    PathSearchCV,
    ResponseSurfaceSearchCV,
    SharedKernels,
)
from kernelmosaic.solvers.program import Program

CS = [0.03, 0.3, 3.0]
KERNELS = [("line", Linear()), ("near", Gaussian(factor=0.5)), ("far", Gaussian(factor=2.0))]


def two_classes(n=90, **options):
    return make_classification(n, 6, n_informative=4, flip_y=0.1, random_state=3, **options)


def grid_scores(estimator, name, values, X, y, cv=3, **fit):
    """Mean scores of scikit-learn's own search, one fit at a time."""
    search = GridSearchCV(estimator, {name: values}, cv=cv, refit=False).fit(X, y, **fit)
    folds = [search.cv_results_[f"split{f}_test_score"] for f in range(search.n_splits_)]
    return np.array(folds)


# Scores -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 2, 1.5, "uniform"])
def test_scores_are_those_of_a_grid_search(norm):
    X, y = two_classes()
    X = X * [1, 10, 1, 1, 100, 1] + 5
    options = {"weights": "uniform"} if norm == "uniform" else {"norm": norm}
    plain = make_pipeline(StandardScaler(), MKLClassifier(KERNELS, tol=1e-6, **options))
    values = CS if norm == 1 else CS[::2]
    expected = grid_scores(plain, "mklclassifier__C", values, X, y)
    model = MKLClassifierCV(KERNELS, Cs=values, norms=[norm], cv=3, tol=1e-6).fit(X, y)
    np.testing.assert_array_equal(model.scores_, expected)
    assert values[int(np.argmax(expected.mean(axis=0)))] == model.C_
    assert model.best_score_ == pytest.approx(expected.mean(axis=0).max())
    plain.set_params(mklclassifier__C=model.C_).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), plain.decision_function(X), atol=2e-3)
    np.testing.assert_allclose(model.weights_, plain[-1].weights_, atol=2e-3)


def test_decision_values_are_those_of_plain_fits():
    # Areas under the curve see every decision value, not only its sign.
    X, y = two_classes()
    plain = MKLClassifier(KERNELS, tol=1e-7)
    search = GridSearchCV(plain, {"C": CS[::2]}, cv=3, scoring="roc_auc", refit=False).fit(X, y)
    model = MKLClassifierCV(
        KERNELS, Cs=CS[::2], norms=[1], cv=3, scale=False, tol=1e-7, scoring="roc_auc"
    ).fit(X, y)
    np.testing.assert_allclose(
        model.scores_.mean(axis=0), search.cv_results_["mean_test_score"], atol=2e-3
    )


@pytest.mark.parametrize(
    "options", [{}, {"multi_class": "ovr-shared"}, {"multi_class": "joint"}, {"slack": 2}]
)
def test_several_classes(options):
    X, y = (every[::3] for every in load_iris(return_X_y=True))
    expected = grid_scores(MKLClassifier(KERNELS, tol=1e-5, **options), "C", CS[::2], X, y, cv=2)
    model = MKLClassifierCV(
        KERNELS, Cs=CS[::2], norms=[1], cv=2, scale=False, tol=1e-5, **options
    ).fit(X, y)
    # A sample on the very border may fall to either side.
    np.testing.assert_allclose(model.scores_, expected, atol=1.01 / 25)
    assert model.predict_proba(X).shape == (50, 3)


@pytest.mark.parametrize("options", [{}, {"slack": 2}, {"loss": "huber"}, {"loss": "squared"}])
def test_regression(options):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:50], y[:50]
    plain = make_pipeline(StandardScaler(), MKLRegressor(KERNELS, epsilon=5.0, tol=1e-6, **options))
    expected = grid_scores(plain, "mklregressor__C", [1.0, 100.0], X, y, cv=2)
    model = MKLRegressorCV(
        KERNELS, Cs=[1, 100], norms=[1], epsilon=5.0, cv=2, tol=1e-6, **options
    ).fit(X, y)
    np.testing.assert_allclose(model.scores_, expected, atol=1e-3)


def test_several_targets():
    X, y = load_diabetes(return_X_y=True)
    X, Y = X[:60], np.column_stack([y, -y, X[:, 0]])[:60]
    plain = MKLRegressor(KERNELS, epsilon=0.1, tol=1e-6)
    expected = grid_scores(plain, "C", [1.0, 30.0], X, Y, cv=2)
    model = MKLRegressorCV(
        KERNELS, Cs=[1, 30], norms=[1], epsilon=0.1, cv=2, tol=1e-6, scale=False
    ).fit(X, Y)
    np.testing.assert_allclose(model.scores_, expected, atol=2e-3)
    assert model.predict(X[:7]).shape == (7, 3)


def test_discriminant():
    X, y = (every[::2] for every in load_iris(return_X_y=True))
    alphas = [1e-3, 0.1, 10.0]
    expected = grid_scores(DiscriminantMKLClassifier(KERNELS, tol=1e-6), "alpha", alphas, X, y)
    uniform = grid_scores(
        DiscriminantMKLClassifier(KERNELS, weights="uniform"), "alpha", alphas, X, y
    )
    plain = DiscriminantMKLClassifier(KERNELS, tol=1e-6)
    model = PathSearchCV(plain, Cs=alphas, norms=(1, "uniform"), cv=3, scale=False, near=None).fit(
        X, y
    )
    np.testing.assert_array_equal(model.scores_by_norm_[1], expected)
    np.testing.assert_array_equal(model.scores_by_norm_["uniform"], uniform)
    assert model.best_estimator_.alpha_ == model.best_estimator_.alpha == model.C_
    with pytest.raises(
        ValueError, match=r"norms: DiscriminantMKLClassifier has the norms 1.*not 2"
    ):
        PathSearchCV(plain, norms=(2,)).fit(X, y)


def test_several_labels():
    X, y = load_iris(return_X_y=True)
    Y = np.column_stack([y == 0, y >= 1, X[:, 0] > 6]).astype(int)
    folds = KFold(3, shuffle=True, random_state=0)
    expected = grid_scores(
        DiscriminantMKLClassifier(KERNELS, tol=1e-6), "alpha", [0.01, 1.0], X, Y, cv=folds
    )
    model = PathSearchCV(
        DiscriminantMKLClassifier(KERNELS, tol=1e-6), Cs=[0.01, 1], cv=folds, scale=False
    ).fit(X, Y)
    np.testing.assert_allclose(model.scores_, expected, atol=1.01 / 50)
    assert model.predict(X).shape == model.predict_proba(X).shape == (150, 3)


@pytest.mark.filterwarnings("ignore:Localized:sklearn.exceptions.ConvergenceWarning")
def test_localized():
    X, y = two_classes(100)
    kernels, options = [Linear(), Gaussian()], {"n_init": 1, "max_iter": 4}
    plain = LocalizedMKLClassifier(kernels, tol=1e-2, **options)
    model = PathSearchCV(
        clone(plain).set_params(random_state=5), Cs=[1, 10], cv=2, scale=False
    ).fit(X, y)
    seed = np.random.RandomState(5).randint(np.iinfo(np.int32).max)
    expected = grid_scores(plain.set_params(random_state=int(seed)), "C", [1.0, 10.0], X, y, cv=2)
    np.testing.assert_array_equal(model.scores_, expected)
    assert not hasattr(model, "norm_")
    assert model.best_estimator_.gate(X).shape == (100, 2)
    with pytest.raises(
        ValueError, match="norms: LocalizedMKLClassifier has the norms None alone, not 2"
    ):
        PathSearchCV(plain, norms=(None, 2)).fit(X, y)


def test_bilinear():
    X, y = (every[::2] for every in load_iris(return_X_y=True))
    plain = BilinearMKLClassifier(KERNELS, tol=1e-5)
    expected = grid_scores(plain, "kappa", [0.1, 1.0], X, y, cv=2)
    model = PathSearchCV(plain, Cs=[0.1, 1.0], cv=2, scale=False).fit(X, y)
    np.testing.assert_allclose(model.scores_, expected, atol=1.01 / 37)
    assert (model.parameter_, model.best_estimator_.kappa) == ("kappa", model.C_)
    assert model.predict_proba(X).shape == (75, 3)
    assert not hasattr(model.best_estimator_.set_params(calibration=None), "predict_proba")


def test_one_class():
    X, _ = two_classes(100)

    def accepted(model, X):
        return float(np.mean(model.predict(X) == 1))

    plain = MKLOneClass([Gaussian(), Gaussian(factor=2.0)], tol=1e-6)
    model = PathSearchCV(plain, Cs=[0.1, 0.5], cv=KFold(4), scoring=accepted, scale=False).fit(X)
    for f, (train, held) in enumerate(KFold(4).split(X)):
        expected = [
            accepted(clone(plain).set_params(nu=nu).fit(X[train]), X[held]) for nu in model.Cs_
        ]
        np.testing.assert_allclose(model.scores_[f], expected, atol=1.01 / 25)
    assert model.best_estimator_.nu == model.C_
    assert not hasattr(model, "predict_proba")
    assert model.decision_function(X).shape == (100,)


def test_the_steps_of_a_pipeline_are_fitted_to_every_fold():
    X, y = two_classes()
    X = X * [1, 10, 1, 1, 100, 1] + 5
    # The columns that are selected differ from fold to fold, and so do the means that they are
    # scaled by.
    plain = make_pipeline(
        SelectKBest(k=3), StandardScaler(), MKLClassifier([Linear(), Gaussian()], tol=1e-6)
    )
    expected = grid_scores(plain, "mklclassifier__C", CS[::2], X, y)
    model = PathSearchCV(plain, Cs=CS[::2], cv=3, scale=False).fit(X, y)
    np.testing.assert_array_equal(model.scores_, expected)
    plain.set_params(mklclassifier__C=model.C_).fit(X, y)
    assert [name for name, _ in model.best_estimator_.steps] == [name for name, _ in plain.steps]
    np.testing.assert_allclose(model.decision_function(X), plain.decision_function(X), atol=2e-3)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    np.testing.assert_array_equal(
        PathSearchCV(plain, Cs=CS[:1], cv=3, scale=False).fit(frame, y).scores_, expected[:, :1]
    )


@pytest.mark.parametrize("kind", [MKLClassifier, MKLRegressor])
def test_pipelines_take_samples_as_lists(kind):
    X, y = two_classes(60)
    search = PathSearchCV(
        make_pipeline(StandardScaler(), kind(KERNELS)), Cs=CS[::2], norms=(1, "uniform"), cv=3
    )
    expected = clone(search).fit(X, y)
    model = search.fit(X.tolist(), y.tolist())
    np.testing.assert_array_equal(model.scores_, expected.scores_)
    np.testing.assert_array_equal(model.predict(X.tolist()), expected.predict(X))
    method = "predict_set" if kind is MKLClassifier else "predict_interval"
    np.testing.assert_array_equal(
        getattr(model, method)(X[:5].tolist()), getattr(expected, method)(X[:5])
    )


def test_pipelines_take_lists_of_texts():
    texts = ["red round", "red small", "red", "blue large", "blue", "blue round"] * 5
    y = [text.split()[0] for text in texts]
    model = PathSearchCV(
        make_pipeline(CountVectorizer(), MKLClassifier([Linear()])), Cs=2, cv=3
    ).fit(texts, y)
    assert model.best_score_ == 1.0
    assert model.predict(["small blue"]).tolist() == ["blue"]


class RandomProjection(GaussianRandomProjection):
    """Draws other directions at every fit, and keeps no seed to repeat them by."""

    draws = np.random.RandomState(0)

    def fit(self, X, y=None):
        self.random_state = int(self.draws.randint(2**31 - 1))
        super().fit(X, y)
        self.random_state = None
        return self


@pytest.mark.parametrize("near", [None, 1])
def test_models_of_folds_keep_the_steps_that_they_were_fitted_with(near):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((60, 12))
    y = X[:, :3].sum(axis=1) + 0.1 * rng.standard_normal(60)
    plain = make_pipeline(RandomProjection(6), MKLRegressor([Linear(), Gaussian()]))
    folds = list(KFold(3).split(X))
    search = PathSearchCV(
        plain, Cs=np.logspace(-1, 2, 4), norms=(1, "uniform"), cv=folds, near=near
    ).fit(X, y)
    [at] = np.flatnonzero(search.Cs_ == search.C_)
    # The residuals that intervals are of are those that the search has scored.
    scores = [
        model.score(X[held], y[held])
        for model, (_, held) in zip(search._conformal.models, folds, strict=True)
    ]
    np.testing.assert_allclose(scores, search.scores_[:, at], atol=1e-10)


def test_norms_are_compared_on_the_same_random_features():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((60, 12))
    y = X[:, :3].sum(axis=1) + 0.1 * rng.standard_normal(60)
    plain = make_pipeline(RandomProjection(3), MKLRegressor([Linear()]))
    # One kernel has nothing to weigh, and two copies of it are worth as much as one.
    twice = clone(plain).set_params(
        mklregressor__kernels=[Linear(), Linear()], mklregressor__tol=1e-8
    )
    search = PathSearchCV(twice, Cs=np.logspace(-1, 2, 4), norms=(1, "uniform"), cv=3, near=1).fit(
        X, y
    )
    learned, equal = search.scores_by_norm_[1], search.scores_by_norm_["uniform"]
    tried = np.isfinite(learned)
    assert tried.any()
    np.testing.assert_allclose(learned[tried], equal[tried], atol=1e-3)


def test_a_search_is_that_of_the_estimator_that_chooses_by_itself():
    X, y = two_classes(100)
    tuned = MKLClassifierCV(KERNELS, Cs=CS, norms=(1, "uniform"), cv=3).fit(X, y)
    search = PathSearchCV(MKLClassifier(KERNELS), Cs=CS, norms=(1, "uniform"), cv=3).fit(X, y)
    assert (search.C_, search.norm_) == (tuned.C_, tuned.norm_)
    np.testing.assert_array_equal(search.scores_, tuned.scores_)
    np.testing.assert_array_equal(search.predict_proba(X), tuned.predict_proba(X))
    with pytest.raises(TypeError, match="estimator=PosteriorMKLClassifier"):
        PathSearchCV(PosteriorMKLClassifier()).fit(X, y)
    with pytest.raises(
        TypeError, match=r"sample_weight: DiscriminantMKLClassifier\.fit takes none"
    ):
        PathSearchCV(DiscriminantMKLClassifier()).fit(X, y, sample_weight=np.ones(100))


# The choice ---------------------------------------------------------------------------------------


def test_norms_are_tried_and_the_best_is_kept():
    X, y = two_classes()
    model = MKLClassifierCV(KERNELS, Cs=CS, cv=3).fit(X, y)
    assert list(model.scores_by_norm_) == [1, 2, "uniform"]
    means = {norm: np.nanmax(scores.mean(axis=0)) for norm, scores in model.scores_by_norm_.items()}
    assert means[model.norm_] == max(means.values()) == pytest.approx(model.best_score_)
    np.testing.assert_array_equal(model.scores_, model.scores_by_norm_[model.norm_])
    one = MKLClassifierCV([Gaussian()], Cs=CS, cv=3).fit(X, y)
    assert list(one.scores_by_norm_) == [1]


def test_equal_scores_choose_the_smoothest():
    X = np.array([[-1.0], [1.0]] * 15) + np.linspace(0, 0.1, 30)[:, np.newaxis]
    y = np.tile([0, 1], 15)
    assert MKLClassifierCV([Linear()], Cs=[1, 10, 100], cv=3).fit(X, y).C_ == 1.0
    assert (
        PathSearchCV(DiscriminantMKLClassifier([Linear()]), Cs=[0.01, 0.1, 1], cv=3).fit(X, y).C_
        == 1.0
    )


def test_every_fit_is_certified():
    X, y = two_classes()
    model = MKLClassifierCV(KERNELS, Cs=CS, norms=[1], cv=3, tol=1e-4, scale=False).fit(X, y)
    assert model.duality_gaps_.shape == model.scores_.shape == (3, 3)
    assert model.duality_gaps_.max() <= 1e-4
    train, _ = next(StratifiedKFold(3).split(X, y))
    for i, C in enumerate(CS):
        alone = MKLClassifier(KERNELS, C=C, tol=1e-6).fit(X[train], y[train])
        np.testing.assert_allclose(model.weights_paths_[0, i], alone.weights_, atol=0.05)
    np.testing.assert_allclose(model.weights_path_, model.weights_paths_.mean(axis=0))


def test_loose_fits_are_spoken_of_once():
    X, y = two_classes()
    model = MKLClassifierCV(
        KERNELS, Cs=[1, 1000], norms=[2], cv=3, tol=1e-9, max_iter=1, refit=False
    )
    with pytest.warns(
        sklearn.exceptions.ConvergenceWarning, match=r"of 6 fits stopped above tol=1e-09"
    ) as seen:
        model.fit(X, y)
    assert len(seen) == 1
    assert f"{model.n_unconverged_} of 6 fits" in str(seen[0].message)
    assert model.n_unconverged_ == np.sum(model.duality_gaps_ > 1e-9) > 0
    assert MKLClassifierCV(KERNELS, Cs=CS, norms=[1], cv=3).fit(X, y).n_unconverged_ == 0


def test_a_search_over_linear_kernels_of_correlated_columns_reaches_tol():
    rng = np.random.RandomState(1)
    factors = rng.standard_normal((60, 3))
    X = factors @ rng.standard_normal((3, 20)) + 0.7 * rng.standard_normal((60, 20))
    y = factors[:, 0] + 0.7 * factors[:, 1] + rng.standard_normal(60) > 0
    model = MKLClassifierCV(per_column(Linear()), Cs=[0.1, 10.0, 1000.0], norms=(1, 2), cv=2)
    with warnings.catch_warnings(action="error", category=sklearn.exceptions.ConvergenceWarning):
        model.fit(X, y)
    assert model.n_unconverged_ == 0
    assert model.duality_gaps_.max() <= model.tol


# What scikit-learn's users expect -----------------------------------------------------------------


def test_splitters_and_groups():
    X, y = two_classes()
    groups = np.arange(90) % 7
    expected = grid_scores(
        MKLClassifier(KERNELS), "C", CS[::2], X, y, cv=GroupKFold(4), groups=groups
    )
    model = MKLClassifierCV(KERNELS, Cs=CS[::2], norms=[1], cv=GroupKFold(4), scale=False)
    np.testing.assert_allclose(model.fit(X, y, groups=groups).scores_, expected, atol=1.01 / 22)
    assert MKLClassifierCV(KERNELS, Cs=[1], norms=[1], cv=ShuffleSplit(6, random_state=0)).fit(
        X, y
    ).scores_.shape == (
        6,
        1,
    )
    assert MKLClassifierCV(KERNELS, Cs=[1], norms=[1], cv=list(KFold(3).split(X))).fit(
        X, y
    ).scores_.shape == (3, 1)
    with pytest.raises(TypeError, match="'colour'"):
        MKLClassifierCV(KERNELS).fit(X, y, colour="red")


def series_of_masks(train, held):
    inside = np.isin(np.arange(60), train)
    return pd.Series(inside), pd.Series(~inside)


FORMS_OF_FOLDS = {
    "masks": lambda train, held: (np.isin(np.arange(60), train), np.isin(np.arange(60), held)),
    "lists": lambda train, held: (train.tolist(), held.tolist()),
    "tuples": lambda train, held: (tuple(train.tolist()), tuple(held.tolist())),
    "series": series_of_masks,
    "negative": lambda train, held: (train - 60, held - 60),
}


@cache
def searched_by_row_numbers(kind):
    X, y = two_classes(60)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    return X, y, folds, PathSearchCV(kind(KERNELS), Cs=[0.3, 3.0], cv=folds).fit(X, y)


#: Searches of every kind read folds in one place, and each has intervals or sets of its own from
#: them.
FOLDS_OF_KINDS = [(form, kind) for form in FORMS_OF_FOLDS for kind in (MKLClassifier, MKLRegressor)]
READ_OFTEN = [
    (form, kind) for form, kind in FOLDS_OF_KINDS if kind is MKLClassifier or form == "masks"
]


@pytest.mark.parametrize(("form", "kind"), thinned(FOLDS_OF_KINDS, READ_OFTEN))
def test_folds_are_row_numbers_or_masks_in_any_sequence(form, kind):
    X, y, folds, expected = searched_by_row_numbers(kind)
    cv = [FORMS_OF_FOLDS[form](train, held) for train, held in folds]
    search = PathSearchCV(kind(KERNELS), Cs=[0.3, 3.0], cv=cv).fit(X, y)
    np.testing.assert_array_equal(search.scores_, expected.scores_)
    np.testing.assert_array_equal(search.predict(X), expected.predict(X))
    tuned = MKLClassifierCV if kind is MKLClassifier else MKLRegressorCV
    model = tuned(KERNELS, Cs=[1.0], norms=[1], cv=cv).fit(X, y)
    unseen = model.predict_set(X[:5]) if kind is MKLClassifier else model.predict_interval(X[:5])
    assert np.isfinite(unseen).all()


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (
            [(np.ones(59, dtype=bool), np.arange(5))],
            "training samples of fold 1 do not fit 60 samples",
        ),
        ([(np.arange(50), [60])], "held-out samples of fold 1 do not fit 60 samples"),
        ([(np.arange(50), np.zeros(60, dtype=bool))], "held-out samples of fold 1 are none"),
        ([(np.arange(50), np.linspace(50, 59, 10))], "held-out samples of fold 1 are array"),
        ([(np.arange(50), [])], r"held-out samples of fold 1 are \[\]"),
        ([], "there is no fold"),
    ],
)
def test_folds_that_are_none_are_refused_before_the_first_fit(cv, message):
    X, y = two_classes(60)
    with recorded(_path._follow_fold) as followed:
        for search in (MKLClassifierCV(KERNELS, cv=cv), PathSearchCV(MKLRegressor(KERNELS), cv=cv)):
            with pytest.raises(ValueError, match=f"cv: .*{message}"):
                search.fit(X, y)
    assert followed == []


@pytest.mark.parametrize("scoring", [["accuracy", "f1"], ("accuracy", "f1"), {"a": "accuracy"}])
def test_several_scores_are_refused_before_the_first_fit(scoring):
    X, y = two_classes(60)
    searches = [
        MKLClassifierCV(KERNELS, scoring=scoring),
        MKLRegressorCV(KERNELS, scoring=scoring),
        MKLSurvivalCV(KERNELS, scoring=scoring),
        PathSearchCV(MKLClassifier(KERNELS), scoring=scoring),
        ResponseSurfaceSearchCV(MKLClassifier(KERNELS), scoring=scoring),
    ]
    with recorded(_path._follow_fold) as followed:
        for search in searches:
            target = 1.0 + np.arange(60) if isinstance(search, MKLSurvivalCV) else y
            with pytest.raises(ValueError, match=r"scoring=.*: the choice is made by one score"):
                search.fit(X, target)
        with pytest.raises(ValueError, match=r"scoring=.*: the choice is made by one score"):
            kernel_importance(MKLClassifier(KERNELS), X, y, scoring=scoring)
    assert followed == []


def test_a_function_of_several_scores_is_refused_by_name():
    X, y = two_classes(60)

    def two_scores(model, X, y):
        return {"accuracy": model.score(X, y), "error": 1 - model.score(X, y)}

    with pytest.raises(
        ValueError, match=r"two_scores.* returned \{.*give a function that returns one number"
    ):
        MKLClassifierCV(KERNELS, Cs=2, cv=2, scoring=two_scores).fit(X, y)

    def zero_dimensional(model, X, y):
        return np.array(model.score(X, y))

    model = MKLClassifierCV(KERNELS, Cs=2, cv=2, scoring=zero_dimensional).fit(X, y)
    assert model.best_score_ == MKLClassifierCV(KERNELS, Cs=2, cv=2).fit(X, y).best_score_


@pytest.mark.parametrize("kind", ["tuned", "searched", "pipeline"])
def test_splitters_and_scorers_find_columns_of_tables_by_name(kind):
    X, y = two_classes(60)
    table = pd.DataFrame(X, columns=list("abcdef")).assign(
        left=np.arange(60) % 6, right=np.arange(60) // 6
    )
    names = []

    def score(model, X, y):
        names.append(list(X.columns))
        return model.score(X, y)

    kernels = [("line", Linear(), list("abc")), ("bell", Gaussian(), list("def"))]
    options = {
        "Cs": [1.0],
        "cv": PairSplit(2, new="left", left="left", right="right", random_state=0),
    }
    if kind == "tuned":
        search = MKLClassifierCV(kernels, scoring=score, norms=[1], **options)
    else:
        steps = [StandardScaler().set_output(transform="pandas")] if kind == "pipeline" else []
        model = MKLClassifier(kernels)
        search = PathSearchCV(
            make_pipeline(*steps, model) if steps else model, scoring=score, **options
        )
    search.fit(table, y)
    assert names == [list(table.columns)] * 2
    expected = [held for _, held in options["cv"].split(table)]
    assert sorted(np.concatenate(expected)) == list(range(60))
    assert search.predict(table).shape == (60,)


def test_metadata_routing():
    X, y = two_classes()
    groups, weight = np.arange(90) % 5, np.linspace(0.5, 1.5, 90)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(roc_auc_score, response_method="decision_function").set_score_request(
            sample_weight=True
        )
        splitter = GroupKFold(3).set_split_request(groups=True)
        model = MKLClassifierCV(KERNELS, Cs=CS, cv=splitter, scoring=scorer, norms=[1])
        model.set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weight, groups=groups)
    train, held = next(GroupKFold(3).split(X, y, groups))
    standard = StandardScaler().fit(X[train], sample_weight=weight[train])
    one = MKLClassifier(KERNELS, C=CS[1], tol=1e-7).fit(
        standard.transform(X[train]), y[train], weight[train]
    )
    score = roc_auc_score(
        y[held], one.decision_function(standard.transform(X[held])), sample_weight=weight[held]
    )
    assert model.scores_[0, 1] == pytest.approx(score, abs=5e-3)


def test_a_weight_of_zero_is_no_sample():
    X, y = two_classes()
    weight = np.r_[np.zeros(20), np.full(70, 2.0)]
    folds = [(np.arange(20, 65), np.arange(65, 90)), (np.arange(45, 90), np.arange(20, 45))]
    with_zeros = [(np.r_[np.arange(20), train], held) for train, held in folds]
    without = [(train - 20, held - 20) for train, held in folds]
    options = {"kernels": KERNELS, "Cs": CS, "norms": [1], "tol": 1e-6}
    model = MKLClassifierCV(cv=with_zeros, **options).fit(X, y, sample_weight=weight)
    other = MKLClassifierCV(cv=without, **options).fit(X[20:], y[20:], sample_weight=weight[20:])
    np.testing.assert_allclose(model.scores_, other.scores_, atol=1e-12)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), atol=1e-4)


def test_threads_change_nothing(monkeypatch):
    X, y = two_classes()
    search = MKLClassifierCV(KERNELS, Cs=CS[:2], cv=3, norms=[1], refit=False)
    other = clone(search).set_params(n_jobs=1).fit(X, y)
    monkeypatch.setattr(_path, "_spare_threads", lambda *args: 2)
    filters, threads = list(warnings.filters), allowed_threads()

    def see(_):
        return (threading.get_ident(), sklearn.get_config()["assume_finite"], allowed_threads())

    with sklearn.config_context(assume_finite=True), recorded(_path._follow_fold, see) as followed:
        model = clone(search).fit(X, y)
    np.testing.assert_allclose(model.weights_paths_, other.weights_paths_, atol=1e-6)
    np.testing.assert_array_equal(model.scores_, other.scores_)
    # The first fold shows the others the way; these have threads of their own, and what each of
    # them starts has one.
    assert followed[0] == (threading.get_ident(), True, threads)
    assert [one[1:] for one in followed[1:]] == [(True, 1)] * 2
    assert threading.get_ident() not in {one[0] for one in followed[1:]}
    assert list(warnings.filters) == filters
    assert allowed_threads() == threads


def test_folds_have_threads_where_they_are_large_and_memory_is_there():
    X, y = make_classification(900, 6, random_state=0)
    model, threads = MKLClassifier(KERNELS), allowed_threads()

    def spare(model=model, n=900, cv=5):
        given = _path.read_samples(model, X[:n], y[:n])
        return _path._spare_threads(model, given, list(KFold(cv).split(X[:n])))

    assert spare() == (threads if threads <= 8 else 1)
    # Little of the work of small folds lets others run, and kernels of 720 samples take 12 MB.
    assert spare(n=500) == 1
    assert spare(MKLClassifier(KERNELS, memory_budget=1.9e7)) <= 1
    # Two folds have no others than the first that leads and one that follows.
    assert spare(cv=2) <= 1


def test_an_error_in_a_search_leaves_threads_and_filters_as_they_were(monkeypatch):
    X, y = two_classes()
    monkeypatch.setattr(_path, "_spare_threads", lambda *args: 2)
    filters, model = list(warnings.filters), MKLClassifier(KERNELS)

    def raised(text, done):
        return 1 / 0 if done == 2 else None

    folds, options = list(KFold(3).split(X)), _path.PathOptions(show=raised)
    with pytest.raises(ZeroDivisionError) as kept:
        _path.search_paths(model, _path.read_samples(model, X, y), folds, CS[:2], [1], options)
    assert kept.traceback
    assert list(warnings.filters) == filters
    assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {
        allowed_threads()
    }


def test_without_a_refit_there_are_scores_alone():
    X, y = two_classes()
    model = MKLClassifierCV(KERNELS, Cs=CS[:2], cv=3, norms=[1], refit=False).fit(X, y)
    assert model.scores_.shape == (3, 2)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        model.predict(X)


def test_scorers_see_calibrated_probabilities_of_the_other_folds():
    X, y = two_classes()
    model = MKLClassifierCV(
        KERNELS, Cs=[1.0], norms=[1], cv=3, scoring="neg_log_loss", scale=False, tol=1e-6
    )
    model.fit(X, y)
    folds = list(StratifiedKFold(3).split(X, y))
    outside = [
        MKLClassifier(KERNELS, tol=1e-6).fit(X[t], y[t]).decision_function(X[h]) for t, h in folds
    ]
    rest = Calibration.fit(
        np.r_[outside[1], outside[2]], np.r_[y[folds[1][1]], y[folds[2][1]]], 2, None, "sigmoid"
    )
    loss = log_loss(y[folds[0][1]], rest.probabilities(outside[0]))
    assert model.scores_[0, 0] == pytest.approx(-loss, abs=1e-3)


def test_a_fold_without_a_class():
    X, y = load_iris(return_X_y=True)
    rows = np.r_[0:50:2, 50:100:2, 100:103]
    model = MKLClassifierCV(KERNELS, Cs=[1, 10], cv=KFold(3), norms=[1]).fit(X[rows], y[rows])
    assert model.predict_proba(X[rows]).shape == (53, 3)
    assert model.score(X[rows], y[rows]) > 0.9


# Samples ------------------------------------------------------------------------------------------


def test_a_fold_without_a_score_is_named():
    y = np.r_[np.zeros(6), np.ones(54)]

    def nothing_of_one_class(model, X, y):
        return model.score(X, y) if len(set(y)) > 1 else np.nan

    X = np.random.RandomState(0).standard_normal((60, 2)) + y[:, np.newaxis]
    folds = [(np.r_[0:5, 20:60], np.r_[5, 6:20]), (np.r_[0:30], np.r_[30:60])]
    search = MKLClassifierCV([Linear()], Cs=2, cv=folds, scoring=nothing_of_one_class)
    with pytest.raises(
        ValueError, match=r"is undefined in fold 2 \(of 2\), whose held-out .* use fewer folds"
    ):
        search.fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("norms", [(1, 2, "uniform"), (1,)])
@pytest.mark.parametrize("n", [5, 9])
def test_folds_of_a_single_sample_have_no_r_squared(n, norms):
    X = np.random.RandomState(0).standard_normal((n, 2))
    search = MKLRegressorCV(Cs=4, norms=norms)
    with pytest.raises(
        ValueError, match=r"scoring=None is undefined in fold .*5 \(of 5\).* use fewer folds"
    ):
        search.fit(X, X[:, 0])
    assert search.set_params(cv=2).fit(X, X[:, 0]).predict(X).shape == (n,)


def test_columns_are_standardised_inside():
    X, y = two_classes()
    wild = X * np.logspace(-3, 6, 6) + 1e3
    search = MKLClassifierCV(KERNELS, Cs=CS[1:2], norms=[1], cv=3)
    tame, model = clone(search).fit(X, y), clone(search).fit(wild, y)
    np.testing.assert_allclose(model.scores_, tame.scores_, atol=1.01 / 30)
    np.testing.assert_allclose(model.decision_function(wild), tame.decision_function(X), atol=1e-2)
    unscaled = sparse.csr_matrix(np.where(X > 0, wild, 0.0))
    assert clone(search).fit(unscaled, y).best_score_ > 0.6
    single = clone(search).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.scores_, tame.scores_, atol=1.01 / 30)


def test_what_is_no_number_is_left_alone():
    rng = np.random.RandomState(0)
    y = np.tile([0, 1], 40)
    text = ["".join(rng.choice(list("AACG" if c else "ACGG"), 12)) for c in y]
    measured = y + rng.randn(80)
    K = np.outer(measured, measured) + 1.0
    table = pd.DataFrame(
        {"text": text, "measured": 1e4 * measured + 7, "row": np.arange(80), "ignored": ["?"] * 80}
    )
    kernels = [
        ("words", Spectrum(2), ["text"]),
        ("number", Gaussian(), ["measured"]),
        ("given", Precomputed(K), ["row"]),
    ]
    model = MKLClassifierCV(kernels, Cs=[1, 10], cv=3).fit(table, y)
    assert model.best_score_ > 0.6
    np.testing.assert_array_equal(model._input_rules.standardizer.columns, [1])
    assert model.predict(table.iloc[:3]).shape == (3,)


def test_low_rank():
    X, y = two_classes()
    exact = MKLClassifierCV(KERNELS, Cs=CS[::2], cv=3, norms=[1], scale=False, tol=1e-5).fit(X, y)
    model = clone(exact).set_params(approximation="nystroem", rank=90).fit(X, y)
    np.testing.assert_allclose(model.scores_, exact.scores_, atol=1.01 / 30)


def test_model_files(tmp_path):
    X, y = (every[::3] for every in load_iris(return_X_y=True))
    for method in ("sigmoid", "isotonic"):
        model = MKLClassifierCV(KERNELS, Cs=[1], norms=["uniform"], cv=2, calibration=method).fit(
            X, y
        )
        save(model, tmp_path / "model.kmz")
        again = load(tmp_path / "model.kmz")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model = MKLRegressorCV(KERNELS, Cs=[1], norms=[1], cv=2).fit(X, X[:, 0])
    save(model, tmp_path / "model.kmz")
    np.testing.assert_array_equal(load(tmp_path / "model.kmz").predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"Cs": [0, 1]}, "Cs=\\[0, 1\\]"),
        ({"Cs": "many"}, "Cs='many'"),
        ({"Cs": 0}, "Cs=0"),
        ({"norms": ()}, "norms=\\(\\)"),
        ({"calibration": None}, "calibration=None"),
        ({"calibration": "platt"}, "calibration='platt'"),
        ({"scoring": "goodness"}, "goodness"),
    ],
)
def test_wrong_parameters(params, message):
    X, y = two_classes(60)
    with pytest.raises(ValueError, match=message):
        MKLClassifierCV(KERNELS, **params).fit(X, y)


def test_wrong_epsilon_and_samples(tmp_path):
    X, y = two_classes(60)
    with pytest.raises(ValueError, match="epsilon='wide'"):
        MKLRegressorCV(epsilon="wide").fit(X, y)
    with pytest.raises(ValueError, match="cross-validation supports arrays"):
        MKLClassifierCV(approximation="nystroem").fit(str(tmp_path / "X.parquet"), y)


# Sharing ------------------------------------------------------------------------------------------


class Counting(Linear):
    """A kernel that counts the entries it computes."""

    entries = 0

    def __call__(self, X, Y):
        K = super().__call__(X, Y)
        Counting.entries += K.size
        return K

    def from_statistic(self, *args, **kwargs):
        K = super().from_statistic(*args, **kwargs)
        Counting.entries += K.size
        return K


def test_shared_kernels_are_computed_once():
    X, y = two_classes()
    model = MKLClassifier([Counting(), Gaussian()], tol=1e-6)
    Counting.entries = 0
    plain = GridSearchCV(model, {"C": CS}, cv=3, scoring="roc_auc", refit=False).fit(X, y)
    alone, Counting.entries = Counting.entries, 0
    with SharedKernels():
        shared = GridSearchCV(model, {"C": CS}, cv=3, scoring="roc_auc", refit=False).fit(X, y)
    together, Counting.entries = Counting.entries, 0
    MKLClassifierCV(
        [Counting(), Gaussian()], Cs=CS, cv=3, norms=[1], scoring="roc_auc", refit=False
    ).fit(X, y)
    assert together < 0.7 * alone
    # Per fold the training samples once, and those held out once.
    assert Counting.entries < 0.4 * alone
    np.testing.assert_allclose(
        shared.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], atol=2e-3
    )


def test_sharing_tells_samples_and_kernels_apart():
    X, y = two_classes()
    weight = np.linspace(0.5, 1.5, 90)
    fits = [
        (MKLClassifier(KERNELS, tol=1e-6), X, None),
        (MKLClassifier(KERNELS[:2], tol=1e-6), X, None),
        (MKLClassifier(KERNELS, normalize="centered", tol=1e-6), X, None),
        (MKLClassifier(KERNELS, tol=1e-6), X + 1e-3 * np.arange(6), None),
        (MKLClassifier(KERNELS, tol=1e-6), X, weight),
        (MKLClassifier([("line", Gaussian(3.0)), *KERNELS[1:]], tol=1e-6), X, None),
    ]
    expected = [clone(model).fit(Z, y, weight).decision_function(Z) for model, Z, weight in fits]
    with SharedKernels():
        for _ in range(2):
            for (model, Z, weight), values in zip(fits, expected, strict=True):
                np.testing.assert_allclose(
                    clone(model).fit(Z, y, weight).decision_function(Z), values, atol=1e-3
                )


def test_a_shared_kernel_is_that_of_its_own_penalties():
    """The uniform weights of the first fit are no weights of the second, whose penalties scale the
    kernels."""
    X, y = make_classification(80, 4, random_state=0)
    second = MKLClassifier(KERNELS, penalties=[1.0, 3.0, 10.0])
    alone = clone(second).fit(X, y)
    with SharedKernels():
        MKLClassifier(KERNELS, weights="uniform").fit(X, y)
        together = clone(second).fit(X, y)
    assert together.objective_ == pytest.approx(alone.objective_, rel=2e-3)
    np.testing.assert_allclose(together.weights_, alone.weights_, atol=1e-2)


def test_what_is_kept_fits_the_budget():
    X, y = two_classes()
    with SharedKernels(memory_budget=3 * 90**2 * 8 * 1.5) as shared:
        for shift in range(4):
            MKLClassifier(KERNELS).fit(X + 0.1 * shift, y)
            assert sum(data.nbytes for data in shared.store.training_sets) <= shared.memory_budget
        assert len(shared.store.training_sets) == 1
    assert shared.store.training_sets == []
    with pytest.raises(ValueError, match="memory_budget=-1"), SharedKernels(memory_budget=-1):
        pass


def test_coefficients_at_a_bound_move_with_it():
    y = np.array([1.0, 1.0, -1.0, -1.0])
    before, after = SVC(y, 2.0), SVC(y, 8.0)
    beta = np.array([2.0, 0.5, -2.0, -0.5])
    np.testing.assert_array_equal(after.continued(beta, before), [8.0, 0.5, -8.0, -0.5])
    np.testing.assert_array_equal(before.continued(after.continued(beta, before), after), beta)
    np.testing.assert_array_equal(SVC(y, 0.25).continued(beta, before), [0.25, 0.25, -0.25, -0.25])
    free = SVC(y, 1.0, slack=2)
    np.testing.assert_array_equal(free.continued(beta, free), beta)
    tube = SVR(np.arange(4.0), 1.0)
    assert isinstance(tube.program, Program)
    np.testing.assert_array_equal(
        SVR(np.arange(4.0), 3.0).continued(np.array([1.0, -1, 0, 0.5]), tube), [3, -3, 0, 0.5]
    )


def test_verbose_says_what_was_chosen(capsys):
    X, y = two_classes()
    model = MKLClassifierCV(KERNELS, Cs=CS[:2], cv=3, norms=[1, 2], verbose=True).fit(X, y)
    [said] = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("MKLClassifierCV: ")
    ]
    assert f"norm {model.norm_}" in said


def test_a_search_without_refit_forgets_the_estimator_of_the_last():
    X, y = two_classes()
    search = PathSearchCV(MKLClassifier(KERNELS), cv=3).fit(X, y)
    search.set_params(refit=False).fit(X, y)
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize("seed", [0, None])
def test_features_are_shared_where_the_draws_are_the_same(seed):
    X, y = two_classes()
    model = MKLClassifier(KERNELS, approximation="nystroem", rank=20, random_state=seed)
    with SharedKernels():
        values = [clone(model).fit(X, y).decision_function(X) for _ in range(2)]
    assert np.array_equal(*values) == (seed == 0)
