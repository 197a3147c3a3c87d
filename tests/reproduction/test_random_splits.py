"""Random splits: sizes, shared parts, what searches and discriminants report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import SVC

from kernelmosaic.datasets import make_gaussians
from reproduction.experiment import FULL, QUICK, Measurement, Method, Record, Settings
from reproduction.papers import stand_ins
from reproduction.papers.paper_004 import (
    BINARY,
    EXACT,
    GROWTH,
    MULTICLASS,
    SIGMAS,
    TEN,
    SomeClasses,
)
from reproduction.protocols import RandomSplits
from reproduction.rows import Row
from reproduction.sources import Dataset, Generated

SOURCE = Generated(make_gaussians, 90, (("n_components", 4),))


def make_protocol(*methods):
    return RandomSplits((Dataset("toy", SOURCE, quick=True, seeds=1),), (60,), methods, repeats=3)


def measure(protocol, unit, settings):
    return {one.metric: one.value for one in protocol.run(unit, settings)}


def loading(bunch):
    """Return a `Settings.load` that knows this set alone, by any name."""
    return lambda name, data_home, options=(): bunch


def test_accuracy_is_that_of_the_method_on_the_rest():
    protocol = make_protocol(Method("SVM", "rbf", SVC(C=2.0)))
    settings = Settings(seed=4)
    units = protocol.units("x", FULL)
    assert len(units) == 3
    samples = SOURCE(settings)
    for unit in units:
        train, test = protocol.split(samples, 60, settings.seed_for("toy", "split", unit.replicate))
        assert (len(train.y), len(test.y)) == (60, 30)
        np.testing.assert_allclose(train.X.mean(axis=0), 0.0, atol=1e-12)
        # Together the parts are the samples, each once, whatever the scaling did to them.
        assert sorted([*train.y, *test.y]) == sorted(samples.y)
        expected = 100 * SVC(C=2.0).fit(train.X, train.y).score(test.X, test.y)
        assert measure(protocol, unit, settings)["accuracy"] == pytest.approx(expected)


def test_methods_see_the_same_splits_and_runs_repeat():
    twins = make_protocol(Method("first", "rbf", SVC()), Method("second", "rbf", SVC()))
    first, second = (
        [
            measure(twins, unit, Settings(1))["accuracy"]
            for unit in twins.units("x", FULL)
            if unit.method == name
        ]
        for name in ("first", "second")
    )
    assert first == second
    assert len(set(first)) > 1
    again = [measure(twins, unit, Settings(1))["accuracy"] for unit in twins.units("x", FULL)[:3]]
    assert again == first


def test_a_search_reports_its_last_fit():
    protocol = make_protocol(Method("search", "rbf", GridSearchCV(SVC(), {"C": [0.1, 10.0]}, cv=3)))
    found = measure(protocol, protocol.units("x", FULL)[0], Settings())
    assert 0 < found["refit_seconds"] < found["seconds"]


def test_quick_looks_are_small():
    assert {
        unit.replicate for unit in make_protocol(Method("SVM", "rbf", SVC())).units("x", QUICK)
    } == {0, 1}
    assert {unit.dataset for unit in MULTICLASS.units(QUICK)} == {"segment(3)"}
    # Ten sets, three split seeds, nine methods, ten splits.
    assert len(MULTICLASS.units(FULL)) == 10 * 3 * 9 * 10


def test_samples_of_each_class_are_drawn_by_the_seed_or_taken_in_order():
    y = np.repeat([7, 2, 5, 9], 150)
    load = loading({"data": np.arange(len(y), dtype=float)[:, np.newaxis], "target": y})
    source = SomeClasses("any", (0, 1, 3))
    drawn = source(Settings(seed=3, load=load))
    assert dict(zip(*np.unique(drawn.y, return_counts=True), strict=True)) == {
        2: 100,
        5: 100,
        9: 100,
    }
    np.testing.assert_array_equal(y[drawn.X[:, 0].astype(int)], drawn.y)
    assert len(np.unique(drawn.X)) == 300
    np.testing.assert_array_equal(source(Settings(seed=3, load=load)).X, drawn.X)
    assert not np.array_equal(source(Settings(seed=4, load=load)).X, drawn.X)
    assert not np.array_equal(source(Settings(seed=3, load=load).of_split(1)).X, drawn.X)
    first = SomeClasses("any", (1,), drawn=False)(Settings(seed=3, load=load))
    np.testing.assert_array_equal(first.X[:, 0], np.arange(300, 400))


def test_the_five_classes_of_satimage_are_those_without_the_fourth():
    sources_by_name = {one.name: one.source for one in MULTICLASS.protocol.datasets}
    labels = np.array([1, 2, 3, 4, 5, 7])
    assert labels[list(sources_by_name["satimage(5)"].classes)].tolist() == [1, 2, 3, 5, 7]
    assert sources_by_name["satimage(6)"].classes == tuple(range(6))


class Counting(SVC):
    """Says no more than how many samples it was given."""

    def fit(self, X, y):
        self.size_ = len(y)
        return super().fit(X, y)


class CountingMethod(Method):
    def describe(self, fit, setting=""):
        return [Measurement("size", fit.model.size_)]


@pytest.mark.parametrize(
    ("name", "n_samples", "size"),
    [("sonar", 208, 167), ("heart", 270, 216), ("ionosphere", 351, 281), ("cancer", 683, 546)],
)
def test_full_runs_train_on_as_many_samples_as_the_paper(name, n_samples, size):
    y = np.arange(n_samples) % 2
    load = loading({"data": np.random.RandomState(0).randn(n_samples, 2), "target": y})
    protocol = replace(BINARY.protocol, methods=(CountingMethod("count", "k", Counting()),))
    unit = next(unit for unit in protocol.units("x", FULL) if unit.dataset == name)
    assert measure(protocol, unit, Settings(load=load))["size"] == size
    # A quick look has fewer, and leaves some to test.
    assert measure(protocol, unit, Settings(scale=QUICK, load=load))["size"] == min(
        size, int(0.7 * min(n_samples, 240))
    )


def test_the_kernels_are_those_of_the_reading():
    X = np.random.RandomState(0).rand(5, 3)
    for (_, kernel), sigma in zip(TEN, SIGMAS, strict=True):
        np.testing.assert_allclose(kernel.fit(X)(X, X), rbf_kernel(X, gamma=1 / sigma))


def test_printed_scales():
    rng = np.random.RandomState(0)
    y = np.arange(80) % 2
    load = loading({"data": rng.randn(80, 3) + y[:, np.newaxis], "target": y})
    units = {unit.method: unit for unit in BINARY.units(QUICK)}
    records = [
        Record(
            units[name], tuple(BINARY.protocol.run(units[name], Settings(scale=QUICK, load=load)))
        )
        for name in ("SILP_theta_lambda", "SM1")
    ]
    rows = {(row.method, row.metric): row.mean for row in BINARY.rows(records)}
    shares = sum(
        value
        for (method, metric), value in rows.items()
        if method == "SILP_theta_lambda" and "weight:" in metric
    )
    assert shares + rows["SILP_theta_lambda", "lambda"] == pytest.approx(1.0, abs=1e-6)
    assert sum(
        value for (method, metric), value in rows.items() if method == "SM1" and "weight:" in metric
    ) == pytest.approx(10.0)
    assert rows["SM1", "n_sv"] == pytest.approx(rows["SM1", "sv_percent"] * 0.56)


def test_windows_are_indicators_around_the_site():
    random = np.random.RandomState(0)
    sequences = np.array(["".join(random.choice(list("ACGT"), 20)) for _ in range(90)], dtype="S")
    y = np.where(np.arange(90) % 3 == 0, 1, -1)
    load = loading({"target": y, "sequences": sequences, "site": 10})
    found = stand_ins.Windows("any", before=2, after=3, most=40, along_genome=True)(
        Settings(load=load)
    )
    assert dict(zip(*np.unique(found.y, return_counts=True), strict=True)) == {-1: 20, 1: 20}
    assert found.train.max() < found.test.min()
    letters = np.array(list("ATGCN"))[found.X.reshape(40, 5, 5).argmax(axis=2)]
    cut = {(bytes(s)[8:13].decode(), label) for s, label in zip(sequences, y, strict=True)}
    assert {("".join(row), label) for row, label in zip(letters, found.y, strict=True)} <= cut


def test_the_kernel_that_cross_validation_chooses_is_counted():
    y = np.arange(60) % 2
    load = loading({"data": np.random.RandomState(1).randn(60, 3) + y[:, np.newaxis], "target": y})
    settings = Settings(scale=QUICK, load=load)
    unit = next(unit for unit in BINARY.units(QUICK) if unit.method == "SVM_K_C")
    found = measure(BINARY.protocol, unit, settings)
    counts = {metric: value for metric, value in found.items() if metric.startswith("selections:")}
    samples = BINARY.protocol.datasets[0].source(settings)
    train, _ = BINARY.protocol.split(samples, 42, settings.seed_for("sonar", "split", 0))
    scores = {
        place: max(
            float(np.mean(cross_val_score(SVC(C=C, gamma=1 / sigma), train.X, train.y, cv=5)))
            for C in (0.1, 1.0, 10.0, 100.0, 1000.0)
        )
        for place, sigma in enumerate(SIGMAS, 1)
    }
    (chosen,) = (metric for metric, value in counts.items() if value)
    assert len(counts) == 10
    assert counts[chosen] == 30  # of as many splits as the paper has
    assert scores[int(chosen[-2:])] == max(scores.values())
    single = next(unit for unit in BINARY.units(QUICK) if unit.method == "SVM_C")
    assert not any(
        metric.startswith("selections:") for metric in measure(BINARY.protocol, single, settings)
    )


def test_powers_of_growth_are_slopes_of_logarithms():
    sizes = {
        data.name: size
        for data, size in zip(GROWTH.protocol.datasets, GROWTH.protocol.sizes, strict=True)
    }
    records = [
        Record(
            unit,
            (
                Measurement(
                    "time", 1e-6 * sizes[unit.dataset] ** 2.5 * int(unit.dataset.split()[-1]) ** 0.5
                ),
            ),
        )
        for unit in GROWTH.units(FULL)
    ]
    rows = GROWTH.rows(records)
    powers = {(row.method, row.metric): row.mean for row in rows if row.dataset == "all"}
    assert powers["SILP_theta", "power of samples"] == pytest.approx(2.5)
    assert powers["SDP_theta", "power of classes"] == pytest.approx(0.5)
    assert any(
        "SILP_theta" in said and "2.50" in said and "0.50" in said for said in GROWTH.findings(rows)
    )
    # Where the semi-definite program would take minutes it is not run.
    assert {unit.dataset for unit in GROWTH.units(FULL) if unit.method == "SDP_theta"} < set(sizes)


def test_the_two_programs_are_compared_in_words():
    values = {"SDP exact": (2.0, 0.50, 90.0, 4.0), "SDP approximate": (3.0, 0.45, 91.0, 1.0)}
    rows = [
        Row("wine(3)", method, "10 RBF", metric, value)
        for method, found in values.items()
        for metric, value in zip(
            ("objective", "weight:rbf01", "accuracy", "time"), found, strict=True
        )
    ]
    (said,) = EXACT.findings(rows)
    for words in ("1.50 times", "up to 0.05 away", "91.0 against 90.0", "0.25 times as long"):
        assert words in said
