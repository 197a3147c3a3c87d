"""What the study of pairs computes by itself: divisions, what is chosen inside them, and its
baselines."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.kernel_ridge import KernelRidge


@pytest.fixture
def pairs(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "pairs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import pairs

    return pairs


@pytest.fixture
def table(pairs):
    """Twelve drugs with ten targets; the first kernels of both sides make the values, the others
    are noise."""
    rng = np.random.RandomState(0)
    features = [rng.normal(size=(n, 3)) for n in (12, 10)]
    sides = []
    for F in features:
        noise = rng.normal(size=(len(F), 40))
        sides.append(
            [
                ("true", pairs.cosine(F @ F.T + 0.1 * np.eye(len(F)))),
                ("noise", pairs.cosine(noise @ noise.T)),
            ]
        )
    left, right = sides
    grid = np.argwhere(rng.rand(12, 10) < 0.9)
    y = np.einsum(
        "na,nb,ab->n", features[0][grid[:, 0]], features[1][grid[:, 1]], rng.normal(size=(3, 3))
    )
    fold = rng.permutation(len(y)) % 6 - 1
    return pairs.Table(grid, y, fold, left, right, (left[0][1], right[0][1]), 10)


def test_units_have_names_of_their_own_and_the_longest_come_first(pairs):
    units = pairs.all_units([], list(pairs.GROUPS))
    assert len({unit.name for unit in units}) == len(units) == 10 * 7 + 2 * 7 + 3 * 3 * 3 + 1
    assert units[0].name == "certified"
    assert {unit.method for unit in units[1:13]} == {pairs.SINGLE}
    assert units[-1].method == pairs.MEANS
    assert {unit.set for unit in pairs.all_units(["davis"], ["new", "certified"])} == {"davis"}
    assert "kiba, both, 0: KronRLS, own" in {unit.name for unit in units}


@pytest.mark.parametrize("new", ["published", "left", "right", "both"])
def test_what_is_chosen_is_chosen_inside_the_pairs_of_some_training_drugs(pairs, table, new):
    task = pairs.make_task(table, pairs.Unit("davis", new, 0, pairs.KRON), most=6)
    assert not set(task.train) & set(task.test)
    if new == "published":
        assert set(table.fold[task.test]) == {-1}
        assert len(task.train) + len(task.test) == len(table.y)
    some = task.X[task.some]
    assert len(np.unique(some[:, 0])) <= 6
    for train, valid in task.inner:
        assert not set(train) & set(valid)
        for side, news in enumerate(({"left", "both"}, {"right", "both"})):
            if new in news:
                assert not set(task.X[:, side]) & set(task.Z[:, side])
                assert not set(some[train, side]) & set(some[valid, side])


def test_the_ridge_of_one_product_is_that_of_the_matrix_written_down(pairs, table):
    A, B = table.kron
    i, j = table.pairs.T
    F = pairs.kron_ridge(A, B, table.pairs, table.y, 0.5)
    K = A[np.ix_(i, i)] * B[np.ix_(j, j)]
    direct = KernelRidge(alpha=0.5, kernel="precomputed").fit(K, table.y - table.y.mean())
    np.testing.assert_allclose(
        F[i, j], direct.predict(K) + table.y.mean(), atol=0.01 * np.ptp(table.y)
    )


@pytest.mark.parametrize("new", ["published", "left"])
def test_the_best_single_product_is_that_of_the_values(pairs, table, new):
    task = pairs.make_task(table, pairs.Unit("davis", new, 0, pairs.SINGLE))
    found, outputs = pairs.best_single(task)
    assert found["kernel"].count("true") == 2
    assert pairs.scores(table.y[task.test], outputs)["r"] > 0.5


def test_normal_scores_see_the_order_of_the_targets_alone(pairs, table):
    found = []
    for y in (table.y, np.exp(table.y)):
        task = pairs.make_task(
            replace(table, y=y), pairs.Unit("davis", "published", 0, pairs.SCORES)
        )
        _, outputs = pairs.normal_scores(task)
        # Means of bins of targets, or between two of them.
        assert y.min() <= outputs.min() < outputs.max() <= y.max()
        found.append(outputs)
        assert pairs.scores(y[task.test], outputs)["ci"] > 0.7
    assert kendalltau(*found).statistic > 0.95
