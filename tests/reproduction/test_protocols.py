"""Protocols: their splits, their arithmetic by hand, and the statistics they hand on to."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score
from sklearn.svm import SVC
from tests.reproduction.toy import gaussians

from kernelmosaic.datasets import make_gaussians
from kernelmosaic.estimators import LocalizedMKLRegressor, MKLClassifier, MKLRegressor
from kernelmosaic.kernels import Linear, Polynomial
from kernelmosaic.model_selection import ResponseSurfaceSearchCV
from kernelmosaic.stats import f_test_5x2cv
from reproduction import EXPERIMENTS, FULL, QUICK, Measurement, Record, Scale, Settings, Unit
from reproduction.cells import Grid, Pair, cells_of
from reproduction.executors import Task, execute
from reproduction.experiment import Method
from reproduction.protocols import FiveByTwo, SharedSearch, explained_variance
from reproduction.sources import Dataset, Generated, Samples, thin


def record(replicate, values, method="a", dataset="set"):
    """A record from {setting: (validation, accuracy)}."""
    found = []
    for setting, (validation, accuracy) in values.items():
        found += [
            Measurement("validation", validation, setting),
            Measurement("accuracy", accuracy, setting),
        ]
    return Record(Unit("toy", dataset, method, "k", replicate), tuple(found))


def test_the_setting_is_chosen_by_the_mean_validation_figure_and_nothing_else():
    # C=1 validates best on average though C=10 does on the second fold, and tests best on both.
    records = [
        record(0, {"C=0.1": (70.0, 99.0), "C=1": (90.0, 60.0), "C=10": (71.0, 95.0)}),
        record(1, {"C=0.1": (70.0, 99.0), "C=1": (80.0, 64.0), "C=10": (89.0, 95.0)}),
    ]
    (row,) = FiveByTwo((), ()).summarise(records)
    assert (row.setting, row.metric, row.count) == ("C=1", "accuracy", 2)
    assert row.mean == pytest.approx(62.0)
    assert row.std == pytest.approx(np.sqrt(8.0))


def test_of_equal_settings_the_first_is_taken():
    (cell,) = cells_of([record(0, {"C=0.1": (70.0, 1.0), "C=1": (70.0, 2.0)})])
    assert cell.setting == "C=0.1"


def test_ten_figures_in_one_record_count_as_ten():
    unit = Unit("toy", "set", "a", "k", 0)
    (cell,) = cells_of([Record(unit, tuple(Measurement("accuracy", float(i)) for i in range(10)))])
    assert cell.values == {"accuracy": [float(i) for i in range(10)]}


def test_pairs_hand_the_folds_to_the_f_test_in_their_order():
    rng = np.random.RandomState(0)
    first, second = 80 + rng.rand(10), 79 + rng.rand(10)
    records = []
    for name, scores in (("a", first), ("b", second)):
        # The clock's order, not the folds': summarise must put them right.
        records += [
            record(fold, {"C=1": (1.0, scores[fold])}, name) for fold in rng.permutation(10)
        ]
    pair = Pair(("a", "k"), ("b", "k"), "a vs b", overall="all sets", metrics=(("accuracy", True),))
    found = {(row.dataset, row.metric): row.mean for row in pair.rows(cells_of(records))}
    expected = f_test_5x2cv(first, second)
    assert found["set", "F:accuracy"] == pytest.approx(expected.statistic)
    assert found["set", "p:accuracy"] == pytest.approx(expected.p_value)
    assert found["all sets", "wins:direct:accuracy"] == 1
    assert (
        sum(found["all sets", f"{word}:5x2cvF:accuracy"] for word in ("wins", "ties", "losses"))
        == 1
    )
    assert found["all sets", "wins:5x2cvF:accuracy"] == (expected.p_value < 0.05)


def test_counts_over_some_of_the_sets_are_not_called_those_of_all():
    records = [
        record(fold, {"C=1": (1.0, 80.0 + fold)}, name) for name in "ab" for fold in range(10)
    ]
    for n_sets, expected in ((0, "all sets"), (1, "all sets"), (2, "1 of all sets")):
        pair = Pair(
            ("a", "k"), ("b", "k"), "a vs b", "all sets", n_sets, metrics=(("accuracy", True),)
        )
        assert {row.dataset for row in pair.rows(cells_of(records))} == {"set", expected}


def test_fewer_than_ten_folds_are_not_tested():
    records = [record(fold, {"C=1": (1.0, 80.0)}, name) for name in "ab" for fold in range(9)]
    assert Pair(("a", "k"), ("b", "k"), "a vs b", overall="all").rows(cells_of(records)) == []


def test_folds_halve_two_thirds_by_class_and_share_the_test_third():
    y = np.repeat([0, 1], [60, 30])
    samples = Samples(np.arange(90.0)[:, np.newaxis], y)
    splits = [FiveByTwo((), ()).split(samples, fold, seed=3) for fold in range(10)]
    for i, split in enumerate(splits):
        np.testing.assert_array_equal(split.test, splits[0].test)
        everything = np.concatenate([split.train, split.valid, split.test])
        np.testing.assert_array_equal(np.sort(everything), np.arange(90))
        assert (len(split.train), len(split.test)) == (30, 30)
        assert y[split.train].sum() == 10
        partner = splits[i + 1 if i % 2 == 0 else i - 1]
        np.testing.assert_array_equal(np.sort(split.train), np.sort(partner.valid))
    assert len({tuple(np.sort(split.train)) for split in splits}) == 10


def test_a_published_split_is_kept():
    samples = Samples(np.zeros((40, 1)), np.tile([0, 1], 20), np.arange(30), np.arange(30, 40))
    split = FiveByTwo((), ()).split(samples, 0, seed=0)
    np.testing.assert_array_equal(split.test, np.arange(30, 40))
    assert set(split.train) | set(split.valid) == set(range(30))


def test_a_price_per_sample_is_the_papers_price_on_kernels_of_trace_one():
    X, y = make_gaussians(4, 120, random_state=1)
    K = (X @ X.T + 1) ** 2
    theirs = SVC(kernel="precomputed", C=100.0, tol=1e-8).fit(K / np.trace(K), y)
    estimator = MKLClassifier([Polynomial(degree=2)], weights="uniform", tol=1e-8)
    ours = estimator.set_params(**Grid(per_sample=True).given(100.0, 120)).fit(X, y)
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(K / np.trace(K)), atol=1e-4
    )


def test_a_unit_measures_what_scikit_learn_would():
    experiment = gaussians()
    unit = next(unit for unit in experiment.units(FULL) if unit.key == "toy-gauss/GAUSS4/SVM/kL/3")
    done = execute(Task(experiment.protocol, unit, Settings(seed=2)))
    protocol = experiment.protocol
    samples = protocol.datasets[1].source(Settings(seed=2))
    split = protocol.split(samples, 3, Settings(seed=2).seed_for("GAUSS4", "split"))
    X, y = samples.X[split.train], samples.y[split.train]
    scale = np.mean(np.sum(X**2, axis=1))
    model = SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(X @ X.T / scale, y)
    found = {one.metric: one.value for one in done.measurements if one.setting == "C=10"}
    for metric, rows in (("validation", split.valid), ("accuracy", split.test)):
        expected = accuracy_score(samples.y[rows], model.predict(samples.X[rows] @ X.T / scale))
        assert found[metric] == pytest.approx(100 * expected)
    assert found["sv_percent"] == pytest.approx(100 * len(model.support_) / len(y), abs=4)
    assert found["weight:kL"] == 1
    assert found["active_kernels"] == 1


def test_costs_are_support_vectors_times_the_share_of_active_kernels():
    X, y = make_gaussians(4, 60, random_state=0)
    method = Method(
        "MKL", "k", MKLClassifier([Linear(), Polynomial()], weights=[1.0, 0.0]), costs=(1.0, 3.0)
    )
    found = {one.metric: one.value for one in method.describe(method.fit(X, y, seed=0, C=1.0))}
    assert found["total_cost"] == pytest.approx(found["sv_percent"] / 4)


def test_weights_may_be_shares():
    X, y = make_gaussians(4, 60, random_state=0)
    method = Method(
        "MKL", "k", MKLClassifier([Linear(), Polynomial()], weights=[1.0, 3.0]), shares=True
    )
    found = {one.metric: one.value for one in method.describe(method.fit(X, y, seed=0))}
    assert [found["weight:linear"], found["weight:polynomial"]] == [0.25, 0.75]


def test_what_did_not_converge_is_recorded_not_printed(recwarn):
    X, y = make_gaussians(4, 100, random_state=0)
    method = Method("MKL", "k", MKLClassifier([Linear(), Polynomial()], max_iter=1, tol=1e-9))
    assert not method.fit(X, y, seed=0).converged
    assert len(recwarn) == 0


def wave(n_samples, random_state):
    X = np.random.RandomState(random_state).uniform(-3, 3, (n_samples, 1))
    return X, np.abs(X[:, 0]) + 5.0


def test_regression_counts_squared_errors():
    protocol = FiveByTwo(
        (Dataset("WAVE", Generated(wave, 60), seeds=1),),
        (
            Method("SVR", "kL", MKLRegressor([Linear()], weights="uniform")),
            Method("LMKL", "kL-kL", LocalizedMKLRegressor([Linear()] * 2, random_state=0)),
        ),
        Grid("C", (0.1, 10.0)),
        regression=True,
        inputs="standardised",
    )
    scale = Scale("some", replicates=2)
    records = [execute(Task(protocol, unit, Settings())) for unit in protocol.units("toy", scale)]
    assert [one.failure for one in records] == [None] * 4
    errors = {row.method: row.mean for row in protocol.summarise(records) if row.metric == "mse"}
    # A line through |x| on [-3, 3] can do no better than its variance, 3/4; two lines can.
    assert 0.5 < errors["SVR"] < 1.2
    assert errors["LMKL"] < 0.2


def test_the_shared_search_finds_one_set_of_penalties_for_all_folds():
    kernels = [("kL", Linear()), ("kP", Polynomial(degree=2))]
    plain = MKLClassifier(kernels, normalize="diagonal")
    search = ResponseSurfaceSearchCV(plain, on="penalties", max_iter=1)
    protocol = SharedSearch(
        (Dataset("GAUSS4", Generated(make_gaussians, 60, (("n_components", 4),)), seeds=1),),
        (Method("MKL", "kL-kP", plain), Method("RMKL", "kL-kP", search)),
        Grid("C", (1.0, 10.0)),
        pairs=(Pair(("RMKL", "kL-kP"), ("MKL", "kL-kP"), "RMKL vs MKL"),),
    )
    records = [
        execute(Task(protocol, unit, Settings(seed=1))) for unit in protocol.units("toy", FULL)
    ]
    assert [one.failure for one in records] == [None, None]
    rows = {(row.method, row.metric): row for row in protocol.summarise(records)}
    assert rows["MKL", "accuracy"].count == rows["RMKL", "accuracy"].count == 10
    assert rows["RMKL", "penalty:kL"].mean == 1
    d = np.array([rows["RMKL", f"penalty:{name}"].mean for name in ("kL", "kP")])
    eta = np.array([rows["RMKL", f"weight:{name}"].mean for name in ("kL", "kP")])
    assert d**2 @ eta == pytest.approx(1)
    assert rows["RMKL", "n_solver_calls"].mean >= 3
    assert ("RMKL vs MKL", "F:accuracy") in rows


def test_explained_variance_is_that_of_plain_components():
    X = np.random.RandomState(0).randn(40, 5) * [5.0, 3.0, 1.0, 1.0, 1.0] + 7.0
    expected = PCA(2).fit(X).explained_variance_ratio_.sum()
    assert explained_variance(X @ X.T, 2) == pytest.approx(expected)


def test_thinning_keeps_the_class_shares_and_the_order():
    y = np.repeat([0, 1], [300, 100])
    rows = thin(y, 40, seed=0)
    assert np.all(np.diff(rows) > 0)
    assert np.bincount(y[rows]).tolist() == [30, 10]
    np.testing.assert_array_equal(thin(y, None, seed=0), np.arange(400))
    np.testing.assert_array_equal(thin(y, 400, seed=0), np.arange(400))


def test_seeds_hang_on_every_word_and_on_nothing_else():
    seeds = {
        Settings(seed).seed_for(*words)
        for seed in (0, 1)
        for words in (("a", "b"), ("a", "c"), ("b", "b"))
    }
    assert len(seeds) == 6
    assert Settings(0, QUICK, "here").seed_for("a") == Settings(0).seed_for("a")
    # The first four bytes of what sha256sum says of "0/a".
    assert Settings(0).seed_for("a") == 0x8D6B21D3


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_can_travel_and_has_units_of_its_own(name):
    experiment = pickle.loads(pickle.dumps(EXPERIMENTS[name]))
    for scale in (FULL, QUICK):
        units = experiment.units(scale)
        assert len({unit.key for unit in units}) == len(units) > 0
        assert {unit.experiment for unit in units} == {name}
        assert all(unit.cost > 0 for unit in units)
        assert experiment.fingerprint(scale) == EXPERIMENTS[name].fingerprint(scale)
