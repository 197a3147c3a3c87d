"""Samples picked by what they hold: the order in which they are given makes no difference."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.stats import spearmanr

from kernelmosaic.row_order import (
    choose_groups,
    content_order,
    deal_into_folds,
    on_grid,
    spread_rows,
)

RNG = np.random.default_rng(5)
NUMBERS = RNG.normal(size=(200, 4)) * (RNG.random((200, 4)) < 0.7)
GAPS = np.where(RNG.random((200, 4)) < 0.2, np.nan, NUMBERS + np.arange(200)[:, np.newaxis])
TEXTS = np.array([[f"name {i % 7}", f"text {i}"] for i in range(200)], dtype=object)
SETS = np.array([[{f"a{i}", f"b{i % 3}", i}] for i in range(200)], dtype=object)
SHUFFLED = RNG.permutation(200)


@pytest.mark.parametrize(
    "X", [NUMBERS, sparse.csr_array(NUMBERS), GAPS, np.arange(200)[:, np.newaxis], TEXTS, SETS]
)
def test_the_order_is_that_of_contents(X):
    order = content_order(X)
    assert_array_equal(np.sort(order), np.arange(200))
    assert_array_equal(SHUFFLED[content_order(X[SHUFFLED])], order)
    assert not np.array_equal(content_order(X, seed=1), order)


def test_the_order_is_as_good_as_random():
    order = content_order(np.arange(2000.0)[:, np.newaxis])
    assert abs(spearmanr(order, np.arange(2000))[0]) < 0.1
    assert abs(spearmanr(order[::2], np.arange(1000))[0]) < 0.12


def test_objects_that_cannot_be_pickled_stay_in_their_order():
    X = np.array([[lambda i=i: i] for i in range(9)], dtype=object)
    assert_array_equal(content_order(X), np.arange(9))
    assert_array_equal(content_order(X, np.arange(9)[::-1]), np.arange(9)[::-1])


def test_equal_samples_are_sorted_by_what_else_is_known():
    X, y = np.repeat(NUMBERS[:20], 3, axis=0), RNG.normal(size=60)
    Y, shuffled = np.column_stack([np.zeros(60), y]), RNG.permutation(60)
    for ties in (y, Y):
        assert_array_equal(
            shuffled[content_order(X[shuffled], ties[shuffled])], content_order(X, ties)
        )


def test_equal_numbers_have_one_order():
    order = content_order(NUMBERS)
    signs = np.where(NUMBERS == 0, -0.0, NUMBERS)
    stored_zeros = sparse.csc_array(NUMBERS)
    stored_zeros.data[:] = stored_zeros.data
    assert_array_equal(content_order(sparse.csr_array(NUMBERS)), order)
    assert_array_equal(content_order(stored_zeros), order)
    assert_array_equal(content_order(signs), order)
    assert_array_equal(content_order(np.asfortranarray(NUMBERS)), order)


def test_cells_of_any_library_have_one_order():
    plain = np.array(
        [[i % 3, i % 2 == 0, f"text {i % 11}", i / 7.0] for i in range(60)], dtype=object
    )
    plain[4, 3] = plain[9, 2] = None
    others = {
        "floats": [[float(a), float(b), c, d] for a, b, c, d in plain],
        "NumPy": [
            [np.int64(a), np.bool_(b), c and np.str_(c), d if d is None else np.float64(d)]
            for a, b, c, d in plain
        ],
        "NaN": [
            [a, b, np.nan if c is None else c, np.nan if d is None else d] for a, b, c, d in plain
        ],
        "pandas": [
            [a, b, pd.NA if c is None else c, pd.NA if d is None else d] for a, b, c, d in plain
        ],
    }
    order = content_order(plain)
    for name, rows in others.items():
        cells = np.array(rows, dtype=object)
        assert_array_equal(content_order(cells), order, err_msg=name)


def test_a_view_that_is_missing_is_the_same_dense_and_sparse():
    counts = RNG.poisson(1.0, size=(50, 6)).astype(float)
    counts[0] = 0.0
    dense, marked = counts.copy(), counts.copy()
    dense[::7, 3:] = np.nan
    marked[::7, 3:] = 0.0
    marked[::7, 3] = np.nan
    order = content_order(on_grid(dense), np.arange(50))
    assert_array_equal(content_order(on_grid(sparse.csr_array(marked)), np.arange(50)), order)


def test_rows_are_spread_over_values_and_hold_two_of_every_category():
    n, values = 2000, RNG.normal(size=2000)
    order = content_order(values[:, np.newaxis])
    group = np.zeros(n, dtype=int)
    group[RNG.choice(n, 9, replace=False)] = np.repeat([1, 2, 3], [1, 2, 6])
    rows = spread_rows(order, 100, values, group)
    assert_array_equal(rows, np.unique(rows))
    assert len(rows) == 100
    assert list(np.bincount(group[rows])[1:3]) == [1, 2]
    assert np.sum(group[rows] == 3) >= 2
    # Every tenth of the sorted values has about a tenth of the rows.
    shares = np.histogram(values[rows], np.quantile(values, np.linspace(0, 1, 11)))[0]
    assert abs(shares - 10).max() <= 3
    shuffled = RNG.permutation(n)
    same = spread_rows(
        content_order(values[shuffled, np.newaxis]), 100, values[shuffled], group[shuffled]
    )
    assert_array_equal(np.sort(shuffled[same]), rows)


@pytest.mark.parametrize(("count", "expected"), [(1000, 40), (40, 40), (3, 4), (20, 20)])
def test_the_number_of_rows(count, expected):
    order, group = np.arange(40), np.arange(40) // 2
    rows = spread_rows(order, count, np.arange(40.0), group)
    assert len(rows) == expected
    assert len(np.unique(group[rows])) >= 2


def test_groups_are_chosen_whole_until_there_are_enough():
    order = content_order(np.arange(60.0)[:, np.newaxis])
    groups = np.split(np.arange(60), 20)
    chosen = choose_groups(order, groups, 24, 2)
    assert len(chosen) == 8
    assert_array_equal(chosen, np.unique(chosen))
    assert len(choose_groups(order, groups, 1, 5)) == 5
    assert len(choose_groups(order, groups, 100, 5)) == 20
    labels = np.zeros(60, dtype=int)
    labels[[7, 40]] = 1
    assert {2, 13} <= set(choose_groups(order, groups, 12, 2, labels))


def test_folds_have_their_share_of_every_class_and_follow_the_samples():
    labels = (RNG.random(200) < 0.2).astype(int)
    fold = deal_into_folds(content_order(NUMBERS), 5, labels)
    counts = [np.bincount(fold[labels == c], minlength=5) for c in (0, 1)]
    assert max(np.ptp(count) for count in counts) <= 1
    moved = deal_into_folds(content_order(NUMBERS[SHUFFLED]), 5, labels[SHUFFLED])
    assert_array_equal(moved, fold[SHUFFLED])


def test_folds_hold_whole_groups():
    group = RNG.integers(0, 30, 200)
    fold = deal_into_folds(content_order(NUMBERS), 5, groups=group)
    assert all(len(np.unique(fold[group == g])) == 1 for g in np.unique(group))
    assert np.ptp(np.bincount(fold)) <= 5
    moved = deal_into_folds(content_order(NUMBERS[SHUFFLED]), 5, groups=group[SHUFFLED])
    assert_array_equal(moved, fold[SHUFFLED])


def test_the_grid_of_columns_has_neither_units_nor_last_digits():
    X = np.random.default_rng(0).normal(size=(30, 3))
    X[3, 1] = np.nan
    assert_array_equal(on_grid(7.5 * X - 2.0), on_grid(X))
    assert_array_equal(on_grid(X * (1.0 + 1e-15)), on_grid(X))
    assert np.isnan(on_grid(X)[3, 1])
    constant = on_grid(np.ones((4, 2)))
    assert np.all(constant == constant[0])
    empty = on_grid(np.full((4, 1), np.nan))
    assert np.isnan(empty).all()
    part = sparse.random_array((20, 5), density=0.3, rng=np.random.default_rng(1), format="csr")
    assert_array_equal(on_grid(3.0 * part).todense(), on_grid(part).todense())
    words = np.array([["a"], ["b"]], dtype=object)
    assert on_grid(words) is words
