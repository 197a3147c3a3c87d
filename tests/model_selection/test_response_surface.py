"""The search as a scikit-learn estimator: on a formula, on machines, broken, cloned, pickled and
nested."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tests.model_selection.scored_by_formula import ScoredByFormula

from kernelmosaic import BilinearMKLClassifier, MKLClassifier, MKLOneClass, MKLRegressor
from kernelmosaic.datasets import make_gaussians
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, per_column
from kernelmosaic.model_selection import FiveByTwoFold, ResponseSurfaceSearchCV

THREE = [Linear(), Polynomial(), Gaussian("nearest")]
NAMES = ["p1", "p2", "p3", "p4", "p5"]
OPTIMUM = np.array([0.42, -0.37, 0.11, 0.64, -0.58])
X, y = np.arange(12.0).reshape(-1, 1), np.tile([0, 1], 6)


def bowl(z):
    Q = np.eye(5) + 0.3
    return (z - OPTIMUM) @ Q @ (z - OPTIMUM)


def right_half(z):
    return z[0] > 0.2


def far_right(z):
    return z[0] > 0.35


@pytest.fixture
def toy():
    return make_gaussians(n_components=3, n_samples=40, random_state=0)


@pytest.mark.parametrize("P", [3, 5, 6])
def test_exact_quadratic_costs_the_design_and_one_point(P):
    names = NAMES[: P - 1]
    fixed = dict(zip(NAMES, 10**OPTIMUM, strict=True))
    base = ScoredByFormula(
        bowl, **{name: value for name, value in fixed.items() if name not in names}
    )
    ScoredByFormula.log.clear()
    search = ResponseSurfaceSearchCV(base, on=names, cv=3, refit=False).fit(X, y)
    assert search.n_solver_calls_ == P * (P + 1) // 2 + 1 == len(search.cv_results_["params"])
    found = np.log10([search.best_params_[name] for name in names])
    np.testing.assert_allclose(found, OPTIMUM[: P - 1], atol=1e-6)
    assert search.best_score_ == pytest.approx(0.0, abs=1e-10)
    np.testing.assert_allclose(
        search.surface_.minimise(-np.ones(P - 1), np.ones(P - 1)), found, atol=1e-6
    )
    # three folds per point, and no point twice
    assert (
        len(ScoredByFormula.log) == 3 * search.n_solver_calls_ == 3 * len(set(ScoredByFormula.log))
    )


def test_starts_from_the_estimators_own_values_and_respects_a_box_a_factor():
    base = ScoredByFormula(bowl, p1=100.0, p2=10**-0.37, p3=10**0.11, p4=10**0.64, p5=10**-0.58)
    search = ResponseSurfaceSearchCV(
        base, on=["p1", "p2"], bounds=[(-0.5, 2), (-0.3, 0.3)], cv=2
    ).fit(X, y)
    np.testing.assert_allclose(search.design_.points[0], [2.0, -0.37])
    assert search.design_.points[:, 0].min() == pytest.approx(
        1.5
    )  # the optimum at 0.42 is out of reach
    assert np.all(np.abs(search.design_.points[:, 1] + 0.37) <= 0.3 + 1e-12)


def test_partly_and_wholly_failed_points_are_recorded_and_left_out():
    base = ScoredByFormula(bowl, right_half, p3=10**0.11, p4=10**0.64, p5=10**-0.58)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search = ResponseSurfaceSearchCV(base, on=["p1", "p2"], cv=3).fit(X, y)
    assert any(issubclass(w.category, FitFailedWarning) for w in caught)
    scores, failed = (
        search.cv_results_["mean_test_score"],
        [p["p1"] > 10**0.2 for p in search.cv_results_["params"]],
    )
    np.testing.assert_array_equal(np.isnan(scores), failed)
    assert sum(failed) >= 2
    assert len(scores) == search.n_solver_calls_ == len(search.design_.points)
    assert np.log10(search.best_params_["p1"]) <= 0.2
    assert search.best_score_ == np.nanmax(scores)


def test_failed_proposal_joins_the_table_with_the_error_score():
    base = ScoredByFormula(bowl, far_right, p2=10**-0.37, p3=10**0.11, p4=10**0.64, p5=10**-0.58)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = ResponseSurfaceSearchCV(base, on=["p1"], cv=3, error_score=-50.0).fit(X, y)
    # the design is sound, its minimiser at 0.42 fails on every fold
    assert np.isnan(search.design_.responses[3])
    assert search.design_.points[3, 0] == pytest.approx(0.42)
    table = search.cv_results_
    assert len(table["params"]) == search.n_solver_calls_ == len(table["rank_test_score"])
    lost = [i for i, p in enumerate(table["params"]) if p["p1"] > 10**0.35]
    assert lost
    assert all(table["mean_test_score"][i] == -50.0 for i in lost)
    assert 0.3 <= np.log10(search.best_params_["p1"]) <= 0.35


def test_error_score_raise_and_a_design_without_any_sound_fit():
    base = ScoredByFormula(bowl, right_half)
    with pytest.raises(RuntimeError, match="no solution here"):
        ResponseSurfaceSearchCV(base, on=["p1"], cv=2, error_score="raise").fit(X, y)
    for verbose in (False, True):
        search = ResponseSurfaceSearchCV(
            base.set_params(p1=100.0), on=["p2"], cv=2, verbose=verbose
        )
        with pytest.raises(ValueError, match="fits failed"):
            search.fit(X, y)


def test_random_splits_are_drawn_once():
    seen = []

    class Spy(StratifiedKFold):
        def split(self, X, y=None, groups=None):
            seen.append(1)
            return super().split(X, y, groups)

    ResponseSurfaceSearchCV(ScoredByFormula(bowl), on=["p1"], cv=Spy(2, shuffle=True)).fit(X, y)
    assert len(seen) == 1


class Counting(MKLClassifier):
    """Notes with how many samples of each class it is fitted."""

    sizes: list = []  # noqa: RUF012 — shared on purpose: searches clone the estimator

    def fit(self, X, y, sample_weight=None):
        type(self).sizes.append(np.bincount(y > 0).tolist())
        return super().fit(X, y, sample_weight)


def test_settings_may_be_compared_on_a_part_and_the_best_fitted_to_all():
    X, y = make_gaussians(n_components=3, n_samples=80, random_state=0)
    part = StratifiedShuffleSplit(2, train_size=0.3, test_size=0.3, random_state=0)
    Counting.sizes.clear()
    search = ResponseSurfaceSearchCV(Counting(THREE), on="penalties", cv=part, max_iter=1).fit(X, y)
    counts = np.bincount(y > 0)
    *tried, refit = Counting.sizes
    assert len(tried) == 2 * len(search.cv_results_["params"])
    # Three tenths of each class in every fit but the last.
    np.testing.assert_allclose(tried, np.tile(0.3 * counts, (len(tried), 1)), atol=1.0)
    assert refit == counts.tolist()
    # The last is the plain machine on all samples at the penalties found.
    alone = MKLClassifier(THREE, penalties=search.best_params_["penalties"]).fit(X, y)
    np.testing.assert_allclose(search.best_estimator_.weights_, alone.weights_)
    by_hand = cross_val_score(MKLClassifier(THREE, **search.best_params_), X, y, cv=part).mean()
    assert search.best_score_ == pytest.approx(by_hand)
    assert search.best_score_ >= search.cv_results_["mean_test_score"][0]


def test_penalties_keep_the_first_at_one_and_the_sum_rule(toy):
    search = ResponseSurfaceSearchCV(MKLClassifier(THREE), on="penalties", cv=2, max_iter=2).fit(
        *toy
    )
    d = np.array(search.best_params_["penalties"])
    assert d[0] == 1.0
    assert search.design_.labels == ["d[polynomial]", "d[gaussian]"]
    assert np.sum(d**2 * search.best_estimator_.weights_) == pytest.approx(1.0, abs=1e-6)
    plain = cross_val_score(MKLClassifier(THREE), *toy, cv=2).mean()
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(plain)
    assert search.best_score_ >= plain
    assert search.design_.n_initial == 6


def test_weights_are_kept_as_found(toy):
    search = ResponseSurfaceSearchCV(MKLClassifier(THREE), on="weights", cv=2, max_iter=1).fit(*toy)
    np.testing.assert_allclose(search.best_estimator_.weights_, search.best_params_["weights"])
    assert search.best_params_["weights"][0] == 1.0
    assert search.best_estimator_.n_solves_ == 1


def test_penalties_and_C_together_are_never_worse_than_the_centre(toy):
    search = ResponseSurfaceSearchCV(
        MKLClassifier(THREE, C=0.5), on=["penalties", "C"], cv=2, max_iter=1
    ).fit(*toy)
    assert search.design_.labels == ["d[polynomial]", "d[gaussian]", "C"]
    assert search.design_.n_initial == 10
    assert search.cv_results_["params"][0] == {"penalties": (1.0, 1.0, 1.0), "C": 0.5}
    assert search.best_score_ >= search.cv_results_["mean_test_score"][0]


def test_regression_in_a_pipeline_and_a_kernel_a_column():
    rng = np.random.RandomState(0)
    U = rng.standard_normal((30, 3))
    v = U[:, 0] + 0.1 * rng.standard_normal(30)
    piped = make_pipeline(StandardScaler(), MKLRegressor([Linear(), Gaussian("median")]))
    search = ResponseSurfaceSearchCV(piped, on=["mklregressor__penalties"], cv=2, max_iter=1).fit(
        U, v
    )
    assert search.design_.labels == ["d[gaussian]"]
    assert search.best_score_ > 0.8
    columns = ResponseSurfaceSearchCV(MKLRegressor([per_column(Linear())]), cv=2, max_iter=0).fit(
        U, v
    )
    assert columns.design_.labels == ["d[linear[1]]", "d[linear[2]]"]
    piped = make_pipeline(StandardScaler(), MKLRegressor([per_column(Linear())]))
    with pytest.raises(ValueError, match="inside a pipeline"):
        ResponseSurfaceSearchCV(piped, on=["mklregressor__penalties"], cv=2).fit(U, v)


def test_any_estimator_beats_or_meets_its_start():
    U, v = make_classification(80, random_state=0)
    search = ResponseSurfaceSearchCV(SVC(gamma=0.05), on=["C", "gamma"], bounds=(-2, 2), cv=3).fit(
        U, v
    )
    assert search.best_score_ >= cross_val_score(SVC(gamma=0.05), U, v, cv=3).mean()
    assert search.predict(U).shape == v.shape


def test_clone_pickle_and_nested(toy):
    search = ResponseSurfaceSearchCV(MKLClassifier([Linear(), Gaussian()]), cv=2, max_iter=0)
    assert clone(search).get_params()["max_iter"] == 0
    assert set(search.get_params()) >= {"on", "step", "bounds", "order", "tol", "estimator__C"}
    search.fit(*toy)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(toy[0]), search.predict(toy[0]))
    np.testing.assert_array_equal(again.design_.points, search.design_.points)
    quick = ResponseSurfaceSearchCV(SVC(), on=["C"], cv=2, max_iter=0)
    outer = GridSearchCV(quick, {"estimator__gamma": [0.5, 2.0]}, cv=2).fit(*toy)
    assert outer.best_estimator_.n_solver_calls_ == 3


def test_parallel_fits_change_nothing():
    U, v = make_classification(60, random_state=0)
    alone = ResponseSurfaceSearchCV(
        SVC(), on=["C"], cv=FiveByTwoFold(random_state=0), max_iter=2
    ).fit(U, v)
    with parallel_config("threading"):
        together = clone(alone).set_params(n_jobs=2).fit(U, v)
    np.testing.assert_array_equal(together.design_.points, alone.design_.points)
    np.testing.assert_array_equal(together.design_.responses, alone.design_.responses)


def test_verbose_shows_a_bar_and_stays_as_given(capsys):
    search = ResponseSurfaceSearchCV(ScoredByFormula(bowl), on=["p1"], cv=2, verbose=True).fit(X, y)
    shown = capsys.readouterr().out
    assert "response surface" in shown
    assert "Fitting" not in shown
    assert search.verbose is True
    silent = ResponseSurfaceSearchCV(ScoredByFormula(bowl), on=["p1"], cv=2).fit(X, y)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(search.design_.points, silent.design_.points)


def test_parameters_stay_as_given_while_it_fits():
    splits, seen = StratifiedKFold(2), []

    def score(model, X, y):
        seen.append((search.verbose, search.cv))
        return model.score(X, y)

    search = ResponseSurfaceSearchCV(
        ScoredByFormula(bowl), on=["p1"], cv=splits, verbose=True, scoring=score
    )
    assert search.fit(X, y) is search
    assert set(seen) == {(True, splits)}
    # Splits that can be read once are enough.
    once = (fold for fold in splits.split(X, y))
    again = ResponseSurfaceSearchCV(ScoredByFormula(bowl), on=["p1"], cv=once).fit(X, y)
    np.testing.assert_array_equal(again.design_.points, search.design_.points)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": []}, "on="),
        ({"on": ["C", "C"]}, "twice"),
        ({"on": ["kappa"]}, "no parameter 'kappa'"),
        ({"on": ["tol", "solver"]}, "positive number"),
        ({"on": ["penalties", "weights"]}, "no effect"),
        ({"step": 0.0}, "step"),
        ({"step": [0.1, 0.2, 0.3]}, "2 factors"),
        ({"bounds": (-0.1, 1)}, "must hold the design"),
        ({"order": 3}, "order"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": -1}, "max_iter"),
        ({"scoring": ["accuracy", "f1"]}, "one score"),
        ({"scoring": lambda model, X, y: {"a": 1.0, "b": 2.0}, "refit": False}, "several scores"),
    ],
)
def test_wrong_input_is_named(toy, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ResponseSurfaceSearchCV(MKLClassifier(THREE), cv=2, **options).fit(*toy)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (MKLClassifier([Linear()]), "at least two kernels"),
        (MKLClassifier(weights="uniform"), "no effect"),
        (MKLClassifier([Linear(), Polynomial()], penalties=[1.0, 0.0]), "positive"),
    ],
)
def test_estimators_without_penalties_to_search_are_refused(toy, model, message):
    with pytest.raises(ValueError, match=message):
        ResponseSurfaceSearchCV(model, cv=2).fit(*toy)


def test_one_class_machines_are_scored_by_the_outliers_among_the_samples():
    rng = np.random.RandomState(0)
    X, y = rng.standard_normal((40, 2)), np.r_[np.ones(32), -np.ones(8)].astype(int)
    X[y < 0] *= 6.0
    model = MKLOneClass([Gaussian(1.0), Gaussian(4.0)], nu=0.2, tol=1e-6)
    search = ResponseSurfaceSearchCV(model, on=["nu"], bounds=(-0.5, 0.5), cv=2, max_iter=1).fit(
        X, y
    )
    nu = search.best_params_["nu"]
    areas = []
    for train, held in StratifiedKFold(2).split(X, y):
        values = clone(model).set_params(nu=nu).fit(X[train]).decision_function(X[held])
        inliers, outliers = values[y[held] > 0], values[y[held] < 0]
        areas.append(np.mean(inliers[:, np.newaxis] > outliers))
    assert search.best_score_ == pytest.approx(np.mean(areas), abs=0.02)
    assert search.best_score_ > 0.7
    with pytest.raises(
        ValueError, match="scoring=None: MKLOneClass has no score of its own; give y"
    ):
        clone(search).fit(X)


def test_what_an_estimator_without_penalties_is_searched_over_is_said(toy):
    X, y = toy
    with pytest.raises(
        ValueError, match=r"no parameter 'penalties'; give .* such as on=\['kappa'\]"
    ):
        ResponseSurfaceSearchCV(BilinearMKLClassifier([Linear(), Gaussian()])).fit(X, y)


@pytest.mark.parametrize("gap", [np.nan, None], ids=["NaN", "None"])
@pytest.mark.parametrize(
    "model", [MKLRegressor(THREE), make_pipeline(StandardScaler(), MKLClassifier(THREE))]
)
def test_samples_without_a_target_are_counted(toy, model, gap):
    X, y = toy
    y = y.astype(object)
    y[[3, 5]] = gap
    on = "penalties" if isinstance(model, MKLRegressor) else ["mklclassifier__C"]
    with pytest.raises(
        ValueError,
        match=r"2 of 40 samples have no target, the first of them sample 3; leave them out",
    ):
        ResponseSurfaceSearchCV(model, on=on, cv=2).fit(X, y)


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_score_that_no_fold_defines_is_named(toy):
    X, _ = toy
    model = MKLOneClass([Gaussian(1.0), Gaussian(4.0)])
    with pytest.raises(
        ValueError, match=r"y has the values \[1\.0\]: MKLOneClass .* give both, or another scoring"
    ):
        ResponseSurfaceSearchCV(model, cv=2).fit(X, np.ones(len(X)))
    undefined = ResponseSurfaceSearchCV(model, cv=2, scoring=lambda model, X, y: np.nan)
    with pytest.raises(ValueError, match="the score is NaN at every point of the design"):
        undefined.fit(X, np.ones(len(X)))
