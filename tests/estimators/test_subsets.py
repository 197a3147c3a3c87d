"""Estimators on kernels that are generated: the same problem as on the list of them, certified over all."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from kernelmosaic import (
    BayesianMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    load,
    save,
)
from kernelmosaic.gram.subsets import SubsetKernels, SubsetStack
from kernelmosaic.kernels import Gaussian, Laplacian, Linear, Subsets
from kernelmosaic.kernels.views import lay_specs, read_kernels
from kernelmosaic.learning.newton import ColumnGeneration
from kernelmosaic.learning.norms import SumNorm
from kernelmosaic.learning.problem import LearnerOptions
from kernelmosaic.machines.base import SVC

PAIRS = Subsets(Gaussian(), size=(1, 2), factor=[0.5, 2.0])
COLUMNS = range(8)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((40, 8))
    f = X[:, 0] * X[:, 3] + np.sin(2 * X[:, 7]) + 0.3 * rng.standard_normal(40)
    return X, f


#: Room for 18 matrices of 40 samples, so that no more than 8 kernels enter at a time.
MANY_ROUNDS = {"memory_budget": 18 * 8 * 40**2}


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (MKLClassifier(C=5.0), lambda f: f > 0),
        (MKLClassifier(C=5.0, penalties=np.linspace(1.0, 1.5, 20)), lambda f: f > 0),
        (MKLClassifier(C=2.0), lambda f: np.digitize(f, [-0.7, 0.7])),
        (MKLClassifier(C=2.0, multi_class="joint"), lambda f: np.digitize(f, [-0.7, 0.7])),
        (MKLRegressor(C=3.0), lambda f: f),
        (MKLRegressor(C=3.0, loss="squared"), lambda f: np.column_stack([f, f**2])),
        (MKLOneClass(nu=0.3), lambda f: None),
    ],
    ids=["svc", "penalties", "ovr", "joint", "svr", "targets", "one class"],
)
def test_the_same_as_the_list_of_kernels(samples, model, targets):
    X, f = samples
    X, y = X[:, [0, 1, 3, 7]], targets(f)
    generated = clone(model).set_params(kernels=PAIRS, tol=1e-5, **MANY_ROUNDS).fit(X, y)
    listed = clone(model).set_params(kernels=list(PAIRS.expand(range(4))), tol=1e-5).fit(X, y)
    assert generated.duality_gap_ <= 1e-5
    assert_allclose(generated.objective_, listed.objective_, rtol=2e-5)
    assert generated.weights_.shape == listed.weights_.shape
    # Half-way between two optima the objective is convex: weights may differ by about the root of the gaps.
    assert_allclose(generated.weights_, listed.weights_, atol=0.02)
    assert list(generated.kernel_names_) == listed.kernel_names_
    assert_allclose(generated._outputs(X[:9]), listed._outputs(X[:9]), atol=0.05)


@pytest.mark.parametrize("pattern", [Gaussian(), Laplacian()])
def test_the_certificate_is_over_all_kernels(samples, pattern):
    """Primal and dual value by a loop over hundreds of kernels, from the fitted attributes alone."""
    X, f = samples
    subsets = Subsets(pattern, size=(2, 3), width=[0.5, 1.0, 2.0])
    y, power = np.where(f > 0, 1.0, -1.0), 2 if type(pattern) is Gaussian else 1
    model = MKLClassifier(subsets, C=4.0, tol=1e-4, **MANY_ROUNDS).fit(X, y)
    beta = np.zeros(40)
    beta[model.support_] = model.dual_coef_[0]
    forms, outputs = [], np.full(40, model.intercept_[0])
    for eta, (_, kernel, columns) in zip(model.weights_, subsets.expand(COLUMNS), strict=True):
        distances = (np.abs(X[:, np.newaxis, columns] - X[:, columns]) ** power).sum(axis=2)
        K = np.exp(-distances / kernel.width**power)
        forms.append(0.5 * beta @ K @ beta)
        outputs += eta * K @ beta
    assert_allclose(model.weights_.sum(), 1.0)
    dual = np.abs(beta).sum() - max(forms)
    primal = model.weights_ @ forms + 4.0 * np.maximum(1.0 - y * outputs, 0.0).sum()
    assert np.all((beta * y >= -1e-12) & (beta * y <= 4.0 + 1e-12))
    assert_allclose(beta.sum(), 0.0, atol=1e-9)
    assert_allclose(model.objective_, primal, rtol=1e-6)
    assert dual <= primal * (1 + 1e-12)
    # An earlier β may have proved the bound that is stated.
    assert (primal - dual) / primal <= 10 * 1e-4
    assert model.duality_gap_ <= 1e-4


class CountedSubsets(SubsetStack):
    """A stack that notes how many kernels are stored at a time."""

    def take_kernels(self, kernels):
        self.taken = [*getattr(self, "taken", []), len(kernels)]
        return super().take_kernels(kernels)


def test_few_kernels_are_ever_stored(samples):
    X, f = samples
    specs = lay_specs(read_kernels(Subsets(Gaussian(), size=4, width=[1.0, 2.0])), X)
    kernel_set = SubsetKernels.fit(specs, X, "trace")
    # Half of the 40 matrices that there is room for beside two.
    stack = CountedSubsets(kernel_set, kernel_set.views(X), np.float64, 42 * 8 * 40**2)
    learner = ColumnGeneration(LearnerOptions(SumNorm(), np.ones(140)))
    learned = learner.learn(stack, SVC(np.where(f > 0, 1.0, -1.0), C=1.0))
    assert learned.weights.shape == (140,)
    assert learned.gap <= 1e-3
    assert len(stack.taken) > 1
    assert max(stack.taken) <= 20 + 40  # an optimum has no more kernels than samples


def test_few_kernels_are_ever_kept(samples):
    X, f = samples
    model = MKLClassifier(Subsets(Gaussian(), size=4, width=[1.0, 2.0]), memory_budget=42 * 8 * 40**2).fit(X, f > 0)
    active = np.flatnonzero(model.weights_)
    assert len(model.weights_) == len(model.kernel_names_) == 140
    assert model.duality_gap_ <= 1e-3
    assert_array_equal(model.function_.expansion.kept, active)
    assert [one.name for one in model.function_.expansion.kernel_set.fitted] == [
        model.kernel_names_[int(m)] for m in active
    ]
    assert len(pickle.dumps(model)) < 8 * 140 + 8 * 5 * 40 * len(active) + 2**14


def test_it_is_saved_and_loaded(samples, tmp_path):
    pytest.importorskip("skops")
    X, f = samples
    model = MKLClassifier(PAIRS).fit(X, f > 0)
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.kernel_names_[5] == model.kernel_names_[5]


def test_parameters_are_reached_by_name(samples):
    X, f = samples
    model = clone(MKLClassifier(PAIRS)).set_params(
        kernels__gaussian__size=1, kernels__gaussian__kernel__width="nearest"
    )
    assert model.get_params()["kernels__gaussian__kernel__width"] == "nearest"
    assert PAIRS.size == (1, 2)
    assert model.fit(X, f > 0).weights_.shape == (16,)


def test_columns_and_their_names(samples):
    pd = pytest.importorskip("pandas")
    X, f = samples
    frame = pd.DataFrame(X[:, :4], columns=["age", "dose", "site", "sex"])
    model = MKLClassifier([("pairs", Subsets(Gaussian()), ["sex", "age", "dose"])]).fit(frame, f > 0)
    assert list(model.kernel_names_) == ["pairs[sex,age]", "pairs[sex,dose]", "pairs[age,dose]"]
    assert "pairs[sex,age]" in model._repr_html_()
    shares = model.contributions(frame)
    assert_allclose(shares.sum(axis=1) + model.intercept_, model.decision_function(frame))


def test_shares_that_do_not_fit_say_so(samples):
    X, f = samples
    model = MKLClassifier(PAIRS).fit(X, f > 0)
    many = np.broadcast_to(X[:1], (10**13, 8))  # one row in memory
    with pytest.raises(MemoryError, match="contributions of 72 kernels for 10000000000000 samples"):
        model.function_.terms(many)


def test_with_tuning(samples):
    X, f = samples
    model = MKLClassifierCV(PAIRS, Cs=2, cv=2).fit(X, f > 0)
    assert model.norm_ == 1
    assert model.weights_path_.shape == (2, 72)
    assert model.duality_gaps_.max() <= 1e-3


@pytest.mark.torch
def test_on_a_device(samples):
    pytest.importorskip("torch")
    X, f = samples
    here, there = (MKLClassifier(PAIRS, tol=1e-4, device=device).fit(X, f > 0) for device in (None, "cpu"))
    assert there.duality_gap_ <= 1e-4
    assert_allclose(there.objective_, here.objective_, rtol=2e-4)


def test_without_slack(samples):
    X, f = samples
    generated = MKLClassifier(PAIRS, C=np.inf).fit(X, f > 0)
    listed = MKLClassifier(list(PAIRS.expand(COLUMNS)), C=np.inf).fit(X, f > 0)
    assert_allclose(generated.objective_, listed.objective_, rtol=2e-3)


@pytest.mark.filterwarnings("error")
def test_repeated_and_constant_columns(samples):
    X, f = samples
    twice = np.column_stack([X[:, :5], X[:, :5], np.ones(40)])
    assert MKLClassifier(PAIRS, tol=1e-6).fit(twice, f > 0).duality_gap_ <= 1e-6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"norm": 2}, "norm=2 needs all kernels"),
        ({"solver": "silp"}, "solver='silp' needs all kernels"),
        ({"weights": "uniform"}, "weights='uniform' needs all kernels"),
        ({"penalties": "eigenvalue"}, "penalties='eigenvalue' needs all kernels"),
        ({"C": "learn", "slack": 2}, "C='learn' needs all kernels"),
        ({"normalize": "centered"}, "normalize='centered': kernels of Subsets"),
        ({"approximation": "nystroem"}, "approximation='nystroem': kernels of Subsets"),
        ({"kernels": [Linear(), PAIRS]}, "Subsets.*must be the only kernel"),
        ({"kernels": Subsets(Gaussian(), size=9)}, "size=9: there are 8 columns"),
    ],
)
def test_what_needs_all_kernels_is_refused(samples, changes, says):
    X, f = samples
    with pytest.raises(ValueError, match=says):
        MKLClassifier(PAIRS).set_params(**changes).fit(X, f > 0)


@pytest.mark.parametrize("kind", [LocalizedMKLClassifier, DiscriminantMKLClassifier, BayesianMKLClassifier])
def test_other_estimators_refuse(samples, kind):
    X, f = samples
    with pytest.raises(ValueError, match=f"{kind.__name__} needs all kernels at once"):
        kind(PAIRS).fit(X, f > 0)


def test_more_kernels_than_memory():
    rng = np.random.RandomState(0)
    with pytest.raises(MemoryError, match=r"Subsets\(size=\(20,\)\) of 60 columns are 4191844505805495 kernels"):
        MKLClassifier(Subsets(Gaussian(), size=20)).fit(rng.standard_normal((9, 60)), np.arange(9) % 2)
