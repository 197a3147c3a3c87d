"""What the study of worth computes by itself: pairs of methods from its table, splits, and groups
to run alone."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture
def worth(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "worth"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import common
    import worth

    monkeypatch.setattr(common, "TABLES", tmp_path)
    return worth


@pytest.fixture
def store(worth):
    """Figures of every unit, by a rule that the tests know."""

    kept = SimpleNamespace(units={})
    methods = {
        "ridge": [*worth.RIDGES],
        "margins": [*worth.NORMS, worth.SINGLE],
        "svm": [worth.SAME, worth.SVM, worth.SIGMOID],
        "trees": [worth.BOOSTING, worth.DEFAULT, worth.FOREST],
    }
    rng = np.random.RandomState(0)
    for s, name in enumerate(worth.SETS):
        for k in range(worth.REPEATS):
            for group, names in methods.items():
                found = {}
                for method in names:
                    if method != worth.SIGMOID or name in worth.CLASSES:
                        found[method] = {
                            "score": rng.uniform(0.5, 0.8),
                            "inner": rng.uniform(),
                            "seconds": 1.0,
                        }
                    if method in found and name in worth.CLASSES:
                        found[method]["log_loss"] = 0.4 if method == worth.LOO else 0.5
                if group == "ridge":  # a point better on the even sets, two worse on the others
                    found[worth.LOO]["score"] = found[worth.EQUAL]["score"] + (
                        0.01 if s % 2 == 0 else -0.02
                    )
                kept.units[f"{name}, {k}, {group}"] = {"methods": found, "train": 300, "test": 1000}
    return kept


def test_pairs_are_those_of_the_table(worth, store):
    worth.write_tables(store)
    figures = worth.Figures()
    pair = figures.pair(worth.LOO, worth.EQUAL)
    assert (pair.won.wins, pair.won.ties, pair.won.losses) == (15, 0, 15)
    assert pair.accuracy == pytest.approx(-0.5, abs=0.01)
    assert pair.r2 == pytest.approx(-0.5, abs=0.01)
    assert pair.loss_ratio == pytest.approx(0.8)
    assert pair.p_loss < 0.001
    assert pair.sure() == [15, 15]
    assert sum(figures.ranks().values()) == pytest.approx(sum(range(1, 13)))
    assert "better on 15 of\n  30 sets" in worth.page()


def test_the_norm_of_the_folds_is_the_best_inside_them(worth, store):
    worth.write_tables(store)
    figures = worth.Figures()
    found = store.units["wine, 3, margins"]["methods"]
    best = max(worth.NORMS, key=lambda norm: found[norm]["inner"])
    got = figures.of(worth.FOLDS)[figures.sets.index("wine"), 3]
    assert got == pytest.approx(100 * found[best]["score"], abs=0.01)


def test_a_split_is_the_same_whichever_splits_are_asked_for(worth):
    several = list(worth.splits("wine", [0, 2], None))
    alone = next(worth.splits("wine", [2], None))
    np.testing.assert_array_equal(several[1].A, alone.A)
    assert len(alone.a) == 124
    target = next(worth.splits("diabetes", [0], None))
    np.testing.assert_allclose([target.a.mean(), target.a.std()], [0, 1], atol=1e-12)


def test_ridges_have_scores_and_log_losses(worth):
    found = worth.ridges(next(worth.splits("wine", [0], None)))
    assert list(found) == list(worth.RIDGES)
    assert all(one["score"] > 0.9 and one["log_loss"] < 0.3 for one in found.values())
