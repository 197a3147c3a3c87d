"""Nested parameters, copies of every kind, and how an estimator prints."""

from __future__ import annotations

import copy
import pickle
from inspect import isclass, signature

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelmosaic import (
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRidgeCV,
    estimators,
    model_selection,
)
from kernelmosaic.estimators._base import DEFAULT_RANK
from kernelmosaic.estimators.cv import DEFAULT_FOLDS, SEARCH_PARAMETERS
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Precomputed, family, per_column


def named():
    return [("line", Linear()), ("gauss", Gaussian(2.0), [0, 1])]


@pytest.fixture(scope="module")
def data():
    return make_classification(60, 4, flip_y=0.1, random_state=0)


def test_a_search_reaches_into_the_kernels(data):
    X, y = data
    grid = {"kernels__gauss__width": [0.01, 3.0], "C": [1.0]}
    search = GridSearchCV(MKLClassifier(named(), weights=[0, 1]), grid, cv=3).fit(X, y)
    alone = [
        MKLClassifier([Gaussian(width)], weights="uniform")
        .fit(X[:40, :2], y[:40])
        .score(X[40:, :2], y[40:])
        for width in (0.01, 3.0)
    ]
    assert search.best_params_["kernels__gauss__width"] == (0.01, 3.0)[int(np.argmax(alone))]
    assert len(set(search.cv_results_["mean_test_score"])) == 2
    fitted = search.best_estimator_.function_.expansion.kernel_set.fitted[0].kernel
    assert fitted.width_ == search.best_params_["kernels__gauss__width"]


def test_a_search_replaces_kernels(data):
    X, y = data
    candidates = [Gaussian(0.01), Polynomial(2)]
    pipeline = make_pipeline(StandardScaler(), MKLClassifier(named(), weights=[0, 1]))
    search = GridSearchCV(pipeline, {"mklclassifier__kernels__gauss": candidates}, cv=3).fit(X, y)
    chosen = search.best_estimator_.get_params()["mklclassifier__kernels__gauss"]
    assert type(chosen) in (Gaussian, Polynomial)
    assert search.best_estimator_[-1].kernels[1][2] == [0, 1]  # the columns stay


def test_parameters_are_read_and_written_by_name():
    model = MKLClassifier([*named(), Polynomial(3), ("column", per_column(Gaussian(1.0)))])
    params = model.get_params()
    assert params["kernels__gauss__width"] == 2.0
    assert params["kernels__polynomial__degree"] == 3
    assert params["kernels__column__kernel__width"] == 1.0
    assert isinstance(params["kernels__line"], Linear)
    model.set_params(
        kernels__gauss=Polynomial(),
        kernels__gauss__degree=5,
        kernels__column__kernel__width=4.0,
        C=7,
    )
    params = model.get_params()
    assert (
        params["kernels__gauss__degree"],
        params["kernels__column__kernel__width"],
        params["C"],
    ) == (5, 4.0, 7)
    assert "kernels__gauss__width" not in params
    assert [entry[0] for entry in model.kernels] == ["line", "gauss", "polynomial", "column"]


def test_a_new_list_and_its_parameters_in_one_call():
    model = MKLClassifier().set_params(kernels=[("k", Gaussian(1.0))], kernels__k__width=9.0)
    assert model.kernels[0][1].width == 9.0


def test_the_default_kernels_can_be_set_as_well():
    model = MKLClassifier().set_params(**{"kernels__gaussian(factor=2)__width": 9.0})
    assert model.get_params()["kernels__gaussian(factor=2)__width"] == 9.0
    assert model.kernels == [(entry.name, entry.kernel) for entry in model.read_kernels()]
    assert [entry[0] for entry in model.kernels[:2]] == ["linear", "polynomial"]
    assert [entry[1].factor for entry in model.kernels[2:]] == [1, 2, 4]


def test_setting_leaves_the_users_list_alone():
    kernels = named()
    first, second = MKLClassifier(kernels), MKLClassifier(kernels)
    first.set_params(kernels__gauss=Linear())
    assert isinstance(kernels[1][1], Gaussian)
    assert isinstance(second.get_params()["kernels__gauss"], Gaussian)


@pytest.mark.parametrize(
    "wrong", ["kernels__bell", "kernels__bell__width", "kernels__gauss__degree", "kernel"]
)
def test_unknown_names_are_named(wrong):
    with pytest.raises(ValueError, match=rf"Invalid parameter '({wrong}|degree)'"):
        MKLClassifier(named()).set_params(**{wrong: 1.0})


@pytest.mark.parametrize("estimator", [MKLClassifier, MKLRegressor, MKLOneClass])
def test_copies_of_every_kind_predict_the_same(data, estimator, tmp_path):
    X, y = data
    model = estimator(named(), weights="uniform").fit(X, y)
    expected = model.predict(X)
    joblib.dump(model, tmp_path / "model.joblib")
    copies = [
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        joblib.load(tmp_path / "model.joblib"),
        clone(model).fit(X, y),
    ]
    for other in copies:
        np.testing.assert_array_equal(other.predict(X), expected)
        assert repr(other) == repr(model)


def test_a_clone_is_unfitted_and_shares_no_kernel():
    model = MKLClassifier(named(), C=3).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    other = clone(model)
    assert not hasattr(other, "weights_")
    assert other.C == 3
    other.set_params(kernels__gauss__width=5.0)
    assert model.kernels[1][1].width == 2.0
    assert not hasattr(model.kernels[1][1], "width_")  # fitting works on clones


def test_fitting_changes_no_parameter(data):
    X, y = data
    kernels = named()
    before = repr(kernels)
    model = MKLClassifier(kernels).fit(X, y)
    assert model.kernels is kernels
    assert repr(kernels) == before


# How it prints ------------------------------------------------------------------------------------


def test_it_prints_what_differs_from_the_defaults_as_it_was_written():
    assert repr(MKLClassifier()) == "MKLClassifier()"
    model = MKLRegressor(
        [("both", Gaussian(2.0) * Linear() + Polynomial(3), ["a"])], C=2, epsilon=0.1
    )
    assert (
        repr(model)
        == "MKLRegressor(kernels=[('both', Gaussian(width=2.0) * Linear() + Polynomial(degree=3),"
        " ['a'])], C=2)"
    )
    assert (
        repr(MKLOneClass([Precomputed(np.eye(3))], nu=0.2))
        == "MKLOneClass(kernels=[Precomputed(<3 x 3>)], nu=0.2)"
    )


def test_long_lists_are_shortened():
    text = repr(MKLClassifier(family(Gaussian(), width=range(1, 201)), C=5))
    assert len(text) <= 700
    assert text.startswith("MKLClassifier(kernels=[Gaussian(width=1), Gaussian(width=2), ")
    assert text.endswith("..., Gaussian(width=200) (200 in all)], C=5)")
    assert len(repr(MKLClassifier("x" * 1000))) <= 700
    assert (
        MKLClassifier(family(Gaussian(), width=range(1, 201)))
        .__repr__(N_CHAR_MAX=50)
        .endswith("...)")
    )


@pytest.mark.parametrize(
    "kernels", [None, named(), [Precomputed(np.eye(4))], [Linear() + Gaussian()], "wrong", 3]
)
def test_everything_around_it_prints_too(kernels):
    search = GridSearchCV(
        make_pipeline(StandardScaler(), MKLClassifier(kernels, C=2)), {"mklclassifier__C": [1, 2]}
    )
    assert "MKLClassifier(" in repr(search)
    assert "MKLClassifier" in search._repr_html_()
    assert "MKLClassifier" in MKLClassifier(kernels)._repr_html_()


ESTIMATORS = [
    public
    for module in (estimators, model_selection)
    for public in (getattr(module, name) for name in module.__all__)
    if isclass(public) and issubclass(public, BaseEstimator)
]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_lists_its_parameters_in_its_own_init(kind):
    assert "__init__" in vars(kind)
    parameters = signature(kind).parameters
    values = {name: object() for name in parameters}
    assert vars(kind(**values)) == values
    # What could be mistaken for the default of a parameter would be an attribute of the class.
    inherited = [name for name in parameters if name in vars(kind)]
    assert inherited == []
    by_name = [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    assert by_name == list(parameters)[-len(by_name) :]


def test_named_defaults_are_those_of_all_constructors():
    parameters = [signature(kind).parameters for kind in ESTIMATORS]
    assert {named["rank"].default for named in parameters if "rank" in named} == {DEFAULT_RANK}
    assert {named["cv"].default for named in parameters if "norms" in named} == {DEFAULT_FOLDS}
    shared = set.intersection(*(set(named) for named in parameters if "norms" in named))
    assert set(SEARCH_PARAMETERS) - {"calibration"} <= shared


class ShortList(MKLClassifier):
    """A subclass of a user, with fewer parameters."""

    def __init__(self, width=2.0, C=1.0):
        super().__init__([Gaussian(width)], C=C, weights="uniform")
        self.width = width


class LongList(MKLClassifier):
    """A subclass of a user, with one parameter more and another default."""

    def __init__(self, kernels=None, *, C=5.0, rank=500, extra="x"):
        super().__init__(kernels, C=C, rank=rank)
        self.extra = extra


def test_a_subclass_of_a_user_has_the_parameters_of_its_own_init(data):
    X, y = data
    model = ShortList(3.0)
    assert model.get_params(deep=False) == {"width": 3.0, "C": 1.0}
    assert repr(model) == "ShortList(width=3.0)"
    assert clone(model).set_params(C=7).C == 7
    alone = MKLClassifier([Gaussian(3.0)], weights="uniform").fit(X, y)
    np.testing.assert_array_equal(
        clone(model).fit(X, y).decision_function(X), alone.decision_function(X)
    )
    assert LongList().get_params() == LongList(None).get_params()
    assert {
        "extra": "x",
        "C": 5.0,
        "rank": 500,
        "kernels": None,
    }.items() <= LongList().get_params().items()
    assert clone(LongList(extra="z")).extra == "z"
    assert LongList() != LongList()  # estimators are compared by identity
    with pytest.raises(ValueError, match="rank=3: exact kernels have no rank"):
        LongList([Linear()], rank=3).fit(X, y)
    with pytest.raises(TypeError, match="positional"):
        MKLClassifier(None, 1.0)


@pytest.mark.parametrize("rank", [3, "many", -5, [3, 4], 2.5])
@pytest.mark.parametrize(
    "kind", [MKLClassifier, MKLRegressor, MKLOneClass, MKLRidgeCV, MKLClassifierCV]
)
def test_a_rank_of_exact_kernels_is_refused(kind, rank, data):
    said = r"rank=.*: (exact kernels have no rank; give approximation=|give a whole number)"
    with pytest.raises(ValueError, match=said):
        kind([Linear(), Gaussian()], rank=rank).fit(*data)


@pytest.mark.parametrize("rank", [500, np.int64(500), 500.0])
def test_the_default_rank_may_be_written_out(rank, data):
    kind = MKLClassifier([Linear(), Gaussian()], rank=rank, weights="uniform")
    assert kind.fit(*data).score(*data) > 0.5
