"""Classes so rare that a fold lacks them: the search goes on with the classes that the fold has."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    PosteriorMKLClassifier,
)
from kernelmosaic.engine.calibration import NEVER, Calibration
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV, SharedKernels

KERNELS = [("line", Linear()), ("bell", Gaussian())]
KINDS = ("ovr", "ovr-shared", "joint", "pairwise")
# The search, and the plain fits that it stands for; both machines of all classes are called in the
# same lines.
SEARCHES = {
    **{
        f"classifier {kind}": (
            MKLClassifierCV(KERNELS, Cs=[0.1, 10.0], norms=(1,), multi_class=kind, tol=1e-6),
            MKLClassifier(KERNELS, multi_class=kind, tol=1e-6),
            "C",
        )
        for kind in KINDS[:3]
    },
    **{
        f"localized {kind}": (
            PathSearchCV(
                LocalizedMKLClassifier(KERNELS, n_init=1, multi_class=kind, max_iter=2), Cs=[10.0]
            ),
            LocalizedMKLClassifier(KERNELS, n_init=1, multi_class=kind, max_iter=2),
            "C",
        )
        for kind in ("ovr", "joint")
    },
    **{
        f"discriminant {rule}": (
            PathSearchCV(
                DiscriminantMKLClassifier(KERNELS, decision=rule, tol=1e-6), Cs=[0.01, 1.0]
            ),
            DiscriminantMKLClassifier(KERNELS, decision=rule, tol=1e-6),
            "alpha",
        )
        for rule in ("least_squares", "centroid")
    },
}


def rare_class(rare, n_classes, n=8):
    """Classes of `n` samples each, and one more of `rare`, apart from the others."""
    random = np.random.RandomState(2)
    y = np.concatenate([np.repeat(np.arange(n_classes - 1), n), np.full(rare, n_classes - 1)])
    X = random.normal(size=(len(y), 3))
    X[np.arange(len(y)), y] += 2.0
    order = random.permutation(len(y))
    return X[order] * [1.0, 5.0, 1.0], y[order]


@pytest.mark.filterwarnings(
    "ignore:The least populated class", "ignore::sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize(
    ("name", "rare", "n_classes"),
    [
        *((name, 1, 3) for name in SEARCHES if name != "localized ovr"),
        *((name, 1, 2) for name in ("classifier ovr", "localized ovr", "discriminant centroid")),
        ("classifier ovr", 2, 3),  # every fold has every class
    ],
)
def test_scores_are_those_of_plain_fits_to_the_classes_of_each_fold(name, rare, n_classes):
    search, plain, along = SEARCHES[name]
    X, y = rare_class(rare, n_classes)
    search = clone(search).set_params(cv=3).fit(X, y)
    if isinstance(plain, LocalizedMKLClassifier):
        # Every fit of the search draws its starts by this seed.
        plain = clone(plain).set_params(
            random_state=np.random.RandomState(0).randint(np.iinfo(np.int32).max)
        )
    folds = list(StratifiedKFold(3).split(X, y))
    assert any(len(np.unique(y[train])) < n_classes for train, _ in folds) == (rare == 1)
    for f, (train, held) in enumerate(folds):
        for i, value in enumerate(search.Cs_):
            known = np.unique(y[train])
            predicted = np.repeat(known, len(held))
            if len(known) > 1:
                model = make_pipeline(StandardScaler(), clone(plain).set_params(**{along: value}))
                predicted = model.fit(X[train], y[train]).predict(X[held])
            assert search.scores_[f, i] == np.mean(predicted == y[held])
    assert search.duality_gaps_.shape == search.weights_paths_.shape[:2] == (3, len(search.Cs_))
    assert np.all(np.isfinite(search.weights_path_))
    p = search.predict_proba(X)
    assert p.shape == (len(y), n_classes)
    assert_allclose(p.sum(axis=1), 1.0)
    assert np.all(p > 0)  # the fit to all samples knows every class


@pytest.mark.filterwarnings(
    "ignore:The least populated class", "ignore::sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize(("name", "n_classes"), [("classifier ovr", 3), ("localized ovr", 2)])
def test_processes_find_the_same(name, n_classes):
    X, y = rare_class(1, n_classes)
    norms = {"norms": (1, "uniform")} if name == "classifier ovr" else {}
    search = clone(SEARCHES[name][0]).set_params(cv=3, **norms)
    expected, parallel = (clone(search).set_params(n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    assert_array_equal(parallel.scores_, expected.scores_)
    assert_allclose(parallel.weights_paths_, expected.weights_paths_, atol=1e-6)
    assert_allclose(parallel.predict_proba(X), expected.predict_proba(X), atol=1e-6)


@pytest.mark.filterwarnings("ignore:The least populated class")
@pytest.mark.parametrize("params", [{}, {"kernels": KERNELS, "norms": (1.5,), "Cs": [0.1, 1.0]}])
def test_a_class_of_one_sample_and_default_settings(params):
    X, y = rare_class(1, 3, n=6)
    model = MKLClassifierCV(**params).fit(X, y)
    search = GridSearchCV(MKLClassifier(norm=1, tol=1e-7), {"C": [1.0]}, cv=5).fit(
        StandardScaler().fit_transform(X), y
    )
    assert model.best_score_ >= search.best_score_ - 0.05


@pytest.mark.filterwarnings(
    "ignore:The least populated class", "ignore:Localized:sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize(
    ("search", "calibration", "n_classes"),
    [
        (MKLClassifierCV(KERNELS, norms=(1,)), "sigmoid", 2),
        (MKLClassifierCV(KERNELS, norms=(1,)), "isotonic", 3),
        (PathSearchCV(LocalizedMKLClassifier(KERNELS, n_init=1, max_iter=2)), "sigmoid", 2),
        (PathSearchCV(LocalizedMKLClassifier(KERNELS, n_init=1, max_iter=2)), "sigmoid", 3),
        (PathSearchCV(DiscriminantMKLClassifier(KERNELS)), "sigmoid", 3),
        (PathSearchCV(DiscriminantMKLClassifier(KERNELS)), "isotonic", 2),
    ],
)
def test_a_class_that_a_fold_lacks_has_probability_zero_there(search, calibration, n_classes):
    X, y = rare_class(1, n_classes)
    seen = []

    def loss(estimator, X, y):
        p, f = estimator.predict_proba(X), estimator.decision_function(X)
        assert_array_equal(estimator.classes_, np.arange(n_classes))
        assert_allclose(p.sum(axis=1), 1.0)
        lacking = n_classes - 1 in y  # the only sample of this class is held out
        assert np.all((p[:, -1] == 0) == lacking)
        assert (
            np.all((f == -NEVER) == lacking)
            if n_classes == 2
            else np.all((f[:, -1] == -NEVER) == lacking)
        )
        assert not np.any(estimator.predict(X) == n_classes - 1) or not lacking
        seen.append(lacking)
        return -log_loss(y, p, labels=estimator.classes_)

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = (
            clone(search)
            .set_params(Cs=[1.0], cv=3, calibration=calibration, scoring=loss)
            .fit(X, y)
        )
    assert sum(seen) == len(seen) / 3
    assert np.isfinite(model.best_score_)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_a_sample_whose_class_its_fold_lacks_does_not_calibrate(method):
    random = np.random.RandomState(0)
    labels = np.repeat([0, 1, 2], 20)
    F = random.normal(size=(60, 3)) + 2.0 * np.eye(3)[labels]
    expected = Calibration.fit(F, labels, 3, None, method)
    # Three samples that say nothing: two of a class their fold lacks, one of a fold that has one
    # class.
    more = np.array([[0.3, 0.1, -NEVER], [-0.1, 2.0, -NEVER], [0.0, -NEVER, -NEVER]])
    found = Calibration.fit(np.vstack([F, more]), np.append(labels, [2, 2, 0]), 3, None, method)
    assert_array_equal(found.probabilities(F), expected.probabilities(F))
    p = expected.probabilities(more)
    assert_array_equal(p == 0, more == -NEVER)
    assert_allclose(p.sum(axis=1), 1.0)
    if (
        method == "sigmoid"
    ):  # between the classes that are known the probabilities have the same ratio
        q = expected.probabilities(np.where(more == -NEVER, -3.0, more))
        assert_allclose(p[:2, 0] / p[:2, 1], q[:2, 0] / q[:2, 1])


@pytest.mark.parametrize("rare", [1, 2])
def test_a_label_that_is_constant_in_a_fold_stays_what_it_is(rare):
    X, y = rare_class(rare, 3)
    Y = np.column_stack([y == 0, y == 2, X[:, 2] > 0]).astype(int)
    folds = [(np.flatnonzero(y != 2), np.flatnonzero(y == 2))]
    rows = np.arange(len(y))
    folds += [(np.setdiff1d(rows, rows[i::3]), rows[i::3]) for i in range(3)]
    model = PathSearchCV(DiscriminantMKLClassifier(KERNELS, tol=1e-6), Cs=[0.1, 1.0], cv=folds).fit(
        X, Y
    )
    for f, (train, held) in enumerate(folds):
        varies = np.ptp(Y[train], axis=0) > 0
        predicted = np.repeat(Y[train][:1], len(held), axis=0)
        for i, alpha in enumerate(model.Cs_):
            plain = DiscriminantMKLClassifier(KERNELS, alpha=alpha, tol=1e-6)
            one = make_pipeline(StandardScaler(), plain).fit(X[train], Y[train][:, varies])
            predicted[:, varies] = one.predict(X[held])
            assert model.scores_[f, i] == np.mean((predicted == Y[held]).all(axis=1))
    assert np.all(np.isfinite(model.predict_proba(X)))


def test_a_class_whose_samples_all_have_weight_zero_is_none():
    X, y = rare_class(5, 3)
    for none in (0, 1, 2):
        weight = (y != none).astype(float)
        model = MKLClassifierCV(KERNELS, Cs=[1.0], cv=3).fit(X, y, sample_weight=weight)
        assert_array_equal(model.classes_, np.delete(np.arange(3), none))
        assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_folds_of_one_class_alone_are_refused():
    X, y = rare_class(8, 2)
    alone = [(np.flatnonzero(y == c), np.flatnonzero(y != c)) for c in (0, 1)]
    with pytest.raises(ValueError, match="no fold has training samples of two classes"):
        MKLClassifierCV(KERNELS, Cs=[1.0], cv=alone).fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        *(MKLClassifier(KERNELS, multi_class=kind, tol=1e-6) for kind in KINDS),
        DiscriminantMKLClassifier(KERNELS, tol=1e-6),
        PosteriorMKLClassifier(KERNELS, tol=1e-6),
        BilinearMKLClassifier(KERNELS, tol=1e-6),
    ],
)
def test_shared_kernels_serve_targets_with_other_numbers_of_classes(model):
    X = np.random.RandomState(0).normal(size=(16, 3))
    targets = [np.digitize(X[:, j], cuts) for j, cuts in enumerate(([0.0], [-0.5, 0.5]))]
    targets.append(targets[0][::-1])
    plain = [clone(model).fit(X, y).decision_function(X) for y in targets]
    with SharedKernels():
        for y, expected in zip(targets, plain, strict=True):
            shared = clone(model).fit(X, y)
            assert shared.duality_gap_ <= 1e-6
            assert_allclose(shared.decision_function(X), expected, atol=5e-3)


def test_calibration_of_a_plain_fit_needs_two_samples_of_a_class():
    # As scikit-learn's CalibratedClassifierCV, which needs as many as there are folds.
    X, y = rare_class(1, 3)
    with pytest.raises(ValueError, match="class 2 has one distinct sample"):
        MKLClassifier(KERNELS, calibration="sigmoid").fit(X, y)
    X, y = rare_class(2, 3)
    for kind in KINDS:
        model = MKLClassifier(KERNELS, calibration="sigmoid", multi_class=kind).fit(X, y)
        assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
