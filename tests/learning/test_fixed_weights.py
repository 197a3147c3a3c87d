"""Kernels that do not compete: their weights stay, the others are learned beside them, and the gap
is that of both."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import KFold

from kernelmosaic import (
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLSurvival,
)
from kernelmosaic.gram.stack import StoredStack
from kernelmosaic.inspection import kernel_importance
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, by_group
from kernelmosaic.learning.certificate import Start
from kernelmosaic.learning.newton import Newton
from kernelmosaic.learning.norms import BesideFixed, make_norm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import SVC

RNG = np.random.RandomState(0)
X = RNG.standard_normal((60, 6))
TARGET = X[:, 0] + np.sin(2 * X[:, 2]) + 0.3 * RNG.standard_normal(60)
CLASSES = (TARGET > 0).astype(int)
TIMES = np.column_stack([RNG.rand(60) < 0.7, np.exp(TARGET)])
KERNELS = [
    ("clinical", Linear(), [0, 1]),
    ("a", Gaussian(), [2, 3]),
    ("b", Gaussian(), [4, 5]),
    ("c", Polynomial(2)),
]
NORMS = (1, 2)
MODELS = {
    "classifier": (MKLClassifier(KERNELS, tol=1e-6), CLASSES),
    "three classes": (MKLClassifier(KERNELS, tol=1e-5), np.digitize(TARGET, [-0.7, 0.7])),
    "joint": (
        MKLClassifier(KERNELS, tol=1e-4, multi_class="joint"),
        np.digitize(TARGET, [-0.7, 0.7]),
    ),
    "regressor": (MKLRegressor(KERNELS, tol=1e-6), TARGET),
    "several targets": (MKLRegressor(KERNELS, tol=1e-5), np.column_stack([TARGET, X[:, 4]])),
    "one class": (MKLOneClass([("clinical", Gaussian(), [0, 1]), *KERNELS[1:3]], tol=1e-4), None),
    "survival": (MKLSurvival(KERNELS, tol=1e-5), TIMES),
    "cox": (MKLSurvival(KERNELS, loss="cox", tol=1e-6), TIMES),
}


# Every norm with the plain machines, the others with each norm in turn.
@pytest.mark.parametrize(
    ("name", "norm"),
    [
        *product(("classifier", "regressor"), NORMS),
        *zip([*MODELS][1:3] + [*MODELS][4:], cycle(NORMS), strict=False),
    ],
)
def test_a_fixed_weight_stays_and_the_others_obey_their_norm(name, norm):
    model, y = MODELS[name]
    model = type(model)(
        **model.get_params(deep=False) | {"norm": norm, "fixed_weights": {"clinical": 0.7}}
    ).fit(X, y)
    assert model.duality_gap_ <= model.tol
    for own in np.atleast_2d(model.weights_):
        assert own[0] == 0.7
        rest = own[1:]
        size = {1: rest.sum(), 2: np.linalg.norm(rest)}
        assert size[norm] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("name", ["classifier", "regressor", "cox"])
def test_the_optimum_is_that_of_a_search_over_the_other_weights(name):
    model, y = MODELS[name]
    params = model.get_params(deep=False) | {"kernels": KERNELS[:3]}
    found = type(model)(**params | {"fixed_weights": {"clinical": 2.0}}).fit(X, y)

    def value(share):
        return type(model)(**params | {"weights": [2.0, share, 1.0 - share]}).fit(X, y).objective_

    # The objective is convex in the share: what no share nearby and none far away undercuts is the
    # optimum.
    shares = found.weights_[1] + np.array([0.0, -0.3, -0.05, 0.05, 0.3])
    own, *others = (value(share) for share in shares if 0 <= share <= 1)
    assert found.objective_ == pytest.approx(own, rel=1e-5)
    assert own < min(others)


@pytest.mark.parametrize("norm", [1, 2])
def test_the_support_is_the_largest_inner_product_over_the_set(norm):
    q = RNG.gamma(1.0, size=4)
    beside = BesideFixed(make_norm(norm), np.array([np.nan, 0.7, np.nan, np.nan]))
    points = np.array([beside.retract(theta) for theta in RNG.gamma(0.3, size=(4000, 4)) + 1e-12])
    assert_allclose(points[:, 1], 0.7)
    assert 0.99 * beside.support(q) <= (points @ q).max() <= beside.support(q) * (1 + 1e-12)


def test_a_kernel_without_a_weight_at_the_start_may_get_one():
    Ks = np.array([X[:, one] @ X[:, one].T for one in ([0, 1], [2, 3], [4, 5])])
    norm = BesideFixed(make_norm(2), np.array([np.nan, np.nan, 0.5]))
    learner = Newton(LearnerOptions(norm, np.ones(3), 1e-4, entering_fraction=0.0))
    start = Start(weights=np.array([1.0, 0.0, 0.5]))
    found = learner.learn(StoredStack(Ks), SVC(np.where(CLASSES, 1.0, -1.0)), start)
    assert found.gap <= 1e-4
    assert found.weights[1] > 0.1
    assert len(found.history) < 20


def test_views_have_all_of_their_kernels_fixed():
    kernels = by_group({"clinical": [0, 1], "omics": [2, 3, 4, 5]}, [Linear(), Gaussian()])
    model = MKLRegressor(kernels, fixed_weights={"clinical": 0.5}).fit(X, TARGET)
    assert_allclose(model.weights_[:2], 0.5)
    assert model.view_weights_["omics"] == pytest.approx(1.0)


def test_equal_weights_stand_beside_a_fixed_one():
    model = MKLClassifier(KERNELS, weights="uniform", fixed_weights={"clinical": 2.0}).fit(
        X, CLASSES
    )
    assert_allclose(model.weights_, [2.0, 1 / 3, 1 / 3, 1 / 3])
    search = MKLClassifierCV(
        KERNELS, Cs=2, cv=2, norms=(1, "uniform"), fixed_weights={"clinical": 2.0}
    )
    assert search.fit(X, CLASSES).weights_[0] == 2.0


def test_importance_leaves_out_fixed_kernels_too():
    model = MKLRegressor(KERNELS[:3], fixed_weights={"clinical": 1.0})
    found = kernel_importance(model, X, TARGET, cv=2, n_repeats=1, random_state=0)
    assert found.drop_mean[0] > 0.05


def test_what_views_add_to_those_that_do_not_compete():
    model = MKLRegressor(KERNELS[:3], fixed_weights={"clinical": 0.7})
    folds = list(KFold(2).split(X))
    found = kernel_importance(
        model, X, TARGET, cv=folds, n_repeats=1, base="clinical", random_state=0
    )
    assert_allclose(found.gains[:, 0], 0.0)
    assert "added" in str(found)
    for k, (train, test) in enumerate(folds):
        alone = (
            MKLRegressor(KERNELS[:1], weights=[0.7])
            .fit(X[train], TARGET[train])
            .score(X[test], TARGET[test])
        )
        for m in (1, 2):
            both = MKLRegressor([KERNELS[0], KERNELS[m]], weights=[0.7, 1.0]).fit(
                X[train], TARGET[train]
            )
            assert found.gains[k, m] == pytest.approx(
                both.score(X[test], TARGET[test]) - alone, abs=5e-3
            )
    with pytest.raises(
        ValueError, match="base: no kernel is called 'genes'; the kernels are clinical, a, b"
    ):
        kernel_importance(model, X, TARGET, cv=2, base=["genes"])


WRONG = {
    "no dict": ([1.0], {}, TypeError, "give a dict from the names of kernels"),
    "unknown": (
        {"genes": 1.0},
        {},
        ValueError,
        "'genes' is not a kernel or a view; the kernels are clinical, a, b, c",
    ),
    "negative": (
        {"clinical": -1.0},
        {},
        ValueError,
        r"fixed_weights\['clinical'\]=-1.0: give a positive, finite number",
    ),
    "all": (dict.fromkeys("abc", 1.0) | {"clinical": 1.0}, {}, ValueError, "fixes all kernels"),
    "given": (
        {"clinical": 1.0},
        {"weights": np.ones(4)},
        ValueError,
        "fixed_weights needs weights=None",
    ),
    "silp": (
        {"clinical": 1.0},
        {"solver": "silp"},
        ValueError,
        "solver='silp' supports norm=1, not norm=1 with fixed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    fixed, settings, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        MKLClassifier(**{"kernels": KERNELS, "fixed_weights": fixed} | settings).fit(X, CLASSES)
