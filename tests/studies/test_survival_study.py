"""What the study of survival computes by itself: published folds, indicators of levels, scores of
the test part."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from kernelmosaic.metrics import concordance_index, integrated_brier_score


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "survival"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import survival

    return survival


@pytest.fixture
def file(tmp_path):
    """Two sets in the form of the published ones; the first has a column of three levels and a
    constant one."""
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.normal(size=60), rng.randint(3, size=60), np.ones(60)])
    time, status = np.exp(X[:, 0]), (rng.rand(60) < 0.7).astype(int)
    arrays = {"names": ["some", "small"]}
    for name, n in (("some", 60), ("small", 30)):
        arrays |= {
            f"{name}_X": X[:n],
            f"{name}_columns": ["age", "stage", "one"],
            f"{name}_time": time[:n],
        }
        arrays |= {
            f"{name}_levels": json.dumps({"stage": ["I", "II", "III"]}),
            f"{name}_status": status[:n],
        }
        arrays |= {f"{name}_fold": np.array([rng.permutation(n) % 3 for _ in range(2)])}
    path = tmp_path / "survival.npz"
    np.savez(path, **arrays)
    return path, arrays


def test_an_iteration_is_a_fold_of_a_repeat_and_levels_are_indicators(study, file):
    path, arrays = file
    A, a, B, b = study.read_fold(path, "some", 5)
    test = arrays["some_fold"][1] == 1
    X = arrays["some_X"][:, :2]
    expected = np.column_stack([X[:, 0], X[:, 1] == 1, X[:, 1] == 2])
    np.testing.assert_array_equal(A, expected[~test])
    np.testing.assert_array_equal(B, expected[test])
    np.testing.assert_array_equal(
        a, np.column_stack([arrays["some_status"], arrays["some_time"]])[~test]
    )
    np.testing.assert_array_equal(b[:, 1], arrays["some_time"][test])


def test_first_folds_come_first_and_small_sets_before_large_ones(study, file):
    units = study.all_units(file[0], [])
    assert [unit.name for unit in units[:5]] == [
        "small, 1",
        "small, 2",
        "some, 1",
        "some, 2",
        "small, 3",
    ]
    assert len(units) == len(set(units)) == 12
    assert {unit.set for unit in study.all_units(file[0], ["some"])} == {"some"}


def test_a_unit_scores_the_test_part(study, file):
    search = study.SEARCH | {"Cs": [0.1], "norms": ("uniform",)}
    name, found = study.run_unit(study.Unit("some", 1), file[0], search)
    A, a, B, b = study.read_fold(file[0], "some", 1)
    scaler = StandardScaler().fit(A)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    model = study.MKLSurvivalCV(study.KERNELS, cv=folds, Cs=[0.1], norms="uniform", scale=False)
    model.fit(scaler.transform(A), a)
    B = scaler.transform(B)
    assert name == "some, 1"
    assert found["concordance"] == pytest.approx(concordance_index(b, model.predict(B)))
    assert found["brier"] == pytest.approx(
        integrated_brier_score(a, b, model.predict_survival_function(B))
    )
